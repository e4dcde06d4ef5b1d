"""An event loop without a clock and without luck: time jumps to the next timer, and the seed says who goes next.

Everything that runs belongs to a *strand*, and strands belong to *processes*. Within a strand callbacks run in the
order in which they were scheduled, as asyncio promises; which strand goes next is drawn from the seed. A process can
be killed (nothing of it ever runs again, no ``finally`` either: as SIGKILL) or stalled (as SIGSTOP: what comes for it
waits).
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any, Final, TypeVar

T = TypeVar("T")


MOST_TURNS: Final = 100_000
"""Most callbacks of one seed; ten times what one needs. One that wants more goes round in a circle."""


class Spinning(Exception):
    """Something is done again and again, and time does not pass."""


class Process:
    """Something that can die as a whole."""

    __slots__ = ("dead", "kept", "name", "stalled_at", "stalls", "stash", "until")

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.until = 0.0  #: stalled until then
        self.stalls = 0
        self.stalled_at = -1.0  #: when it woke from its last stall
        self.stash: list[Strand] = []
        self.kept: list[Any] = []  #: what must not be collected: a dead process runs no clean-up

    @property
    def stalled(self) -> bool:
        """Whether it stands still now."""
        return self.until > 0.0


class Strand:
    """Callbacks that keep their order."""

    __slots__ = ("listed", "name", "process", "queue")

    def __init__(self, process: Process, name: str = "") -> None:
        self.process = process
        self.name = name
        self.queue: deque[Handle] = deque()
        self.listed = False


class Handle:
    """A callback to come."""

    __slots__ = ("args", "callback", "context", "gone", "moment", "ours", "strand")

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: contextvars.Context, strand: Strand
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.strand = strand
        self.gone = False
        self.ours = False  #: made by the simulation, as a delay of something else
        self.moment = 0.0

    def cancel(self) -> None:
        """It is not to run."""
        self.gone = True

    def cancelled(self) -> bool:
        """Whether it is not to run."""
        return self.gone

    def when(self) -> float:
        """When it is to run, of a timer."""
        return self.moment


def _driven_by(coro: Any) -> str | None:
    """Return the operation that a coroutine drives; the name of its task comes too late."""
    if getattr(coro, "__qualname__", "") != "Drive.run":
        return None
    return str(coro.cr_frame.f_locals["self"].op.operation_id)


WORLD: Final = Process("world")
STRAND: contextvars.ContextVar[Strand] = contextvars.ContextVar("strand")


def operation() -> str:
    """Return the id of the operation that is driven now, or nothing."""
    strand = STRAND.get(None)
    return "" if strand is None else strand.name


def current() -> Process:
    """Return the process that runs now."""
    strand = STRAND.get(None)
    return WORLD if strand is None else strand.process


class SimLoop(asyncio.AbstractEventLoop):
    """The loop. `turns` counts callbacks, `fired` timers."""

    def __init__(self, random: Random) -> None:
        self._random = random.random
        self.now = 0.0
        self.turns = 0
        self.fired = 0
        self._ready: list[Strand] = []
        self._timers: list[tuple[float, int, Handle]] = []
        self._count = 0
        self._running = False
        self._closed = False
        self._main = Strand(WORLD)
        self.graves: list[asyncio.Task[Any]] = []
        self.broken: list[BaseException] = []

    # --- scheduling -------------------------------------------------------------------------------------------------

    def _push(self, handle: Handle) -> None:
        strand = handle.strand
        if strand.process.dead:
            return
        strand.queue.append(handle)
        if not strand.listed:
            strand.listed = True
            self._ready.append(strand)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """Run it when its strand is drawn."""
        if context is None:
            context = contextvars.copy_context()
        strand = context.get(STRAND, self._main)
        handle = Handle(callback, args, context, strand)
        if not strand.process.dead:  # as `_push`, and it is called too often for another call
            strand.queue.append(handle)
            if not strand.listed:
                strand.listed = True
                self._ready.append(strand)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """There are no threads here."""
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """Run it once so much time has passed."""
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        """Run it at that time."""
        if context is None:
            context = contextvars.copy_context()
        handle = Handle(callback, args, context, context.get(STRAND, self._main))
        handle.moment = when
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, handle))
        return handle

    def in_strand(self, process: Process, callback: Callable[..., Any], *args: Any, delay: float = 0.0) -> Handle:
        """Run something in a new strand of a process."""
        context = contextvars.copy_context()
        context.run(STRAND.set, Strand(process))
        handle = self.call_later(delay, callback, *args, context=context)
        handle.ours = True
        return handle

    # --- futures and tasks ------------------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[T]:
        """Start a task; one that drives an operation gets a strand of its own."""
        if context is None:
            context = contextvars.copy_context()
            driven = _driven_by(coro)
            if driven is not None:
                context.run(STRAND.set, Strand(context.get(STRAND, self._main).process, driven))
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def spawn(self, process: Process, coro: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Start a task in a new strand of a process."""
        context = contextvars.copy_context()
        context.run(STRAND.set, Strand(process))
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Do what a thread would do, between two callbacks."""
        future = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                found = func(*args)
            except Exception as error:  # noqa: BLE001 - raised again where the caller waits
                future.set_exception(error)
            else:
                future.set_result(found)

        self.call_soon(work)
        return future

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self, *, until: float, done: Callable[[], bool] | None = None) -> None:
        """Run until that time, or until `done` says so; it is asked whenever time is about to pass."""
        ready, timers, random = self._ready, self._timers, self._random
        asyncio._set_running_loop(self)
        self._running = True
        try:
            while True:
                while ready:
                    index = int(random() * len(ready)) if len(ready) > 1 else 0
                    strand = ready[index]
                    process = strand.process
                    if process.dead or process.until > 0.0 or not strand.queue:
                        ready[index] = ready[-1]
                        ready.pop()
                        if process.until > 0.0 and not process.dead:
                            process.stash.append(strand)  # it stays listed: what comes waits with it
                        else:
                            strand.listed = False
                            strand.queue.clear()
                        continue
                    handle = strand.queue.popleft()
                    if not strand.queue:
                        strand.listed = False
                        ready[index] = ready[-1]
                        ready.pop()
                    if not handle.gone:
                        self.turns += 1
                        if self.turns > MOST_TURNS:
                            raise Spinning(f"after {self.turns:,} callbacks it is only {self.now:.3f} s")
                        handle.context.run(handle.callback, *handle.args)
                if self.broken:
                    raise self.broken[0]
                while timers and (timers[0][2].gone or timers[0][2].strand.process.dead):
                    heapq.heappop(timers)
                if not timers or timers[0][0] > until or (done is not None and done()):
                    if done is None:
                        self.now = max(self.now, until)
                    return
                when, _, handle = heapq.heappop(timers)
                self.now = max(self.now, when)
                self.fired += not handle.ours
                self._push(handle)
        finally:
            self._running = False
            asyncio._set_running_loop(None)

    def kill(self, process: Process) -> None:
        """End a process. What it was about to do never happens, and nothing of it is cleaned up."""
        process.dead = True
        process.stash.clear()
        self.graves.extend(asyncio.all_tasks(self))

    def stall(self, process: Process, seconds: float) -> None:
        """Let a process stand still for a while."""
        if process.dead or process.until > 0.0:
            return
        process.until = self.now + seconds
        process.stalls += 1
        self.in_strand(WORLD, self._wake, process, delay=seconds)

    def _wake(self, process: Process) -> None:
        process.until = 0.0
        process.stalled_at = self.now
        self._ready.extend(process.stash)
        process.stash = []

    def bury(self) -> None:
        """At the end: throw away what still waits, without letting it do anything."""
        self._closed = True
        for task in {*self.graves, *asyncio.all_tasks(self)}:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coro = task.get_coro()
            with suppress(BaseException):  # it may want to wait for something: for that there is no time any more
                coro.close()
        self.graves.clear()
        self._timers.clear()
        self._ready.clear()

    # --- the rest of what asyncio asks of a loop --------------------------------------------------------------------

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self.now

    def get_debug(self) -> bool:
        """Return False."""
        return False

    def is_running(self) -> bool:
        """Tell whether it runs."""
        return self._running

    def is_closed(self) -> bool:
        """Tell whether it is closed."""
        return self._closed

    def _timer_handle_cancelled(self, handle: Any) -> None:
        """Nothing: timers that are gone are passed over."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what nobody caught: it ends the run."""
        error = context.get("exception")
        if error is not None and not self._closed and "never retrieved" not in str(context.get("message")):
            self.broken.append(error)


def new_loop(random: Random) -> SimLoop:
    """Make a loop. What it has not, sockets, signals and the like, nobody may ask for here."""
    make: Any = SimLoop
    made: SimLoop = make(random)
    return made
