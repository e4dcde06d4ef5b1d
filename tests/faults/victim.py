"""A worker process that dies, stops or fails at a chosen effect; started by `tests.faults.lab`.

It runs the real worker. The product has no hooks for this: what it does to the outside world (a commit, a request, a
download, keeping a file) is wrapped here, from outside, and counted. At the chosen effect the process sends itself a
signal that nothing can catch, or the effect fails. As a script: ``python -m tests.faults.victim ORDER`` (JSON).
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from opledger.checkpoints import keys
from opledger.cli import logs
from opledger.config import WorkerSettings, load_settings
from opledger.edges import marks, stores
from opledger.edges.anchors import FileAnchor
from opledger.edges.clock import SystemClock
from opledger.edges.files import ResultFolder
from opledger.edges.http import Http
from opledger.edges.stores import ObjectResults
from opledger.errors import StoreUnavailable
from opledger.rules import evidence as e
from opledger.service import run_worker
from opledger.store import Store, checkpointing, checkpoints
from opledger.store.engine import Database
from opledger.store.statements import Tx

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Strike:
    """What happens at which effect: at the `nth` one of that name, or at effect `number`, counted from 1.

    Names are ``before`` or ``after`` and the effect: ``before record Accepted``, ``after send POST``, ``before keep``.
    """

    what: Literal["kill", "stop", "fail"] = "kill"
    at: str = ""
    nth: int = 1
    number: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """How the worker is to run, and what is to happen to it."""

    folder: str
    environment: Mapping[str, str]
    log: str
    name: str = "victim"
    lease: float = 2.0
    tick: float = 1.0
    until_idle: bool = False
    once: bool = False
    strikes: tuple[Strike, ...] = ()
    skew: float = 0.0  #: seconds by which the clock of this machine is wrong
    level: str = "info"
    mark_every: int | None = None  #: bytes of a transfer between two marks


@dataclass(slots=True)
class Effects:
    """Counts effects, and strikes at the chosen ones."""

    strikes: tuple[Strike, ...]
    tell: Tell
    count: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    quiet: threading.RLock = field(default_factory=threading.RLock)  #: held while a transaction is open

    def __call__(self, when: str, names: Iterable[str]) -> None:
        """One effect is about to happen, or has happened; it may have several names."""
        told = [f"{when} {name}" for name in names]
        if not told:
            return
        with self.lock:
            self.count += 1
            for name in told:
                self.seen[name] = self.seen.get(name, 0) + 1
            for strike in self.strikes:
                by_name = strike.at in told and self.seen[strike.at] == strike.nth
                if by_name or strike.number == self.count:
                    self._strike(strike, strike.at or told[0])

    def _strike(self, strike: Strike, name: str) -> None:
        if strike.what == "stop":
            self.stop(name)
            return
        self.tell(f"{strike.what} {name}")
        if strike.what == "fail":
            raise StoreUnavailable("the database went away, says the test")
        os.kill(os.getpid(), signal.SIGKILL)

    def stop(self, name: str) -> None:
        """Freeze, and not inside of a transaction: its locks would hold everybody else up, and that is another story.

        The signal goes to this thread, which else would run on for a moment.
        """
        with self.quiet:
            self.tell(f"stop {name}")
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def obey(self, ask: Callable[[], Any]) -> None:
        """Freeze whenever the test says so. Runs on a thread of its own."""
        while ask():
            self.stop("by order")


def _written(_: Any, writes: Any) -> list[str]:
    names = []
    for write in writes:
        action = getattr(write.evidence, "action", None)
        calls = isinstance(write.evidence, e.CallSent | e.CallLost)
        names.append(f"record {write.evidence.kind}" + (f".{action}" if calls else ""))
    return names


def _sync(effects: Effects, owner: Any, method: str, names: Callable[..., list[str]]) -> None:
    real = getattr(owner, method)

    @functools.wraps(real)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        told = names(*args)
        effects("before", told)
        result = real(*args, **kwargs)
        effects("after", told)
        return result

    setattr(owner, method, wrapped)


def _async(effects: Effects, owner: type, method: str, names: Callable[..., list[str]]) -> None:
    real = getattr(owner, method)

    @functools.wraps(real)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        told = names(*args)
        effects("before", told)
        result = await real(*args, **kwargs)
        effects("after", told)
        return result

    setattr(owner, method, wrapped)


def _chunks(effects: Effects) -> None:
    real = Http.download

    @functools.wraps(real)
    async def wrapped(self: Http, request: Any, folder: Path, on_chunk: Any, **kwargs: Any) -> Any:
        def feed(chunk: bytes) -> None:
            effects("before", ["chunk"])
            on_chunk(chunk)

        return await real(self, request, folder, feed, **kwargs)

    Http.download = wrapped  # type: ignore[method-assign]


def arm(effects: Effects) -> None:
    """Wrap everything by which a worker touches the world outside."""
    _sync(effects, Store, "record_many", _written)
    _sync(effects, Store, "exchange", lambda store, writes, _: [*_written(store, writes), "claim"])
    _sync(effects, Store, "release", lambda *_: ["release"])
    _sync(effects, Store, "farewell", lambda *_: ["farewell"])
    _sync(effects, ResultFolder, "keep", lambda *_: ["keep"])
    _sync(effects, ObjectResults, "keep", lambda *_: ["keep"])
    _sync(effects, ObjectResults, "_upload", lambda *_: ["upload"])
    _sync(effects, stores, "go_on", lambda *_: ["piece"])  # of an upload, and of reading it back
    _async(effects, Http, "send", lambda _, request: [f"send {request.method}"])
    _chunks(effects)
    _async(effects, Http, "download", lambda *_: ["download"])
    if any(strike.at in CHECKPOINT_EFFECTS for strike in effects.strikes):
        _arm_checkpoints(effects)
    if any(strike.at.endswith(" transaction") for strike in effects.strikes):
        _sync(effects, Database, "_commit", lambda _self, _cursor, tx: ["transaction"] if tx.proof else [])
    write = Database.write

    def quietly(self: Database, work: Any) -> Any:
        with effects.quiet:
            return write(self, work)

    Database.write = quietly  # type: ignore[method-assign]


STEPS = ("key", "name", "checkpoint", "leaves", "note", "anchor")
CHECKPOINT_EFFECTS = tuple(f"{when} {step}" for step in STEPS for when in ("before", "after"))
"""Only armed where a strike asks for one: the others count all effects of operations, and these are none."""


def _arm_checkpoints(effects: Effects) -> None:
    def added(tx: Tx, statement: Any, _: Any) -> list[str]:
        text = statement.text
        return ["leaves"] if "INTO leaf" in text else ["note"] if "INTO checkpoint" in text else []

    _sync(effects, keys, "make_key", lambda *_: ["key"])
    _sync(effects, checkpoints, "name_ledger", lambda *_: ["name"])
    _sync(effects, checkpointing, "add", lambda *_: ["checkpoint"])
    _sync(effects, Tx, "many", added)
    _sync(effects, FileAnchor, "append", lambda *_: ["anchor"])


def set_clock_wrong(seconds: float) -> None:
    """Make this process believe in another time of day; how fast time passes stays right."""
    real = SystemClock.now

    def now(self: SystemClock) -> datetime:
        return real(self) + timedelta(seconds=seconds)

    SystemClock.now = now  # type: ignore[method-assign]


def run(order: Order, tell: Tell, ask: Callable[[], Any] | None = None) -> int:
    """Run the worker in this process; returns its exit code. It freezes each time `ask` returns."""
    os.environ.update(order.environment)
    os.chdir(order.folder)
    sink = os.open(order.log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    for number in (1, 2):
        os.dup2(sink, number)
    effects = Effects(order.strikes, tell)
    arm(effects)
    if ask is not None:
        threading.Thread(target=effects.obey, args=(ask,), daemon=True).start()
    if order.skew:
        set_clock_wrong(order.skew)
    if order.mark_every is not None:
        marks.MARK_EVERY = order.mark_every  # type: ignore[misc]
    logs.configure(order.level)
    settings = load_settings({}, os.environ, Path(order.folder))
    worker = WorkerSettings(timedelta(seconds=order.lease), 200, timedelta(seconds=order.tick))
    code = run_worker(replace(settings, worker=worker), name=order.name, until_idle=order.until_idle, once=order.once)
    tell(f"done {effects.count}")
    return code


def child(order: Order, pipe: Any) -> None:
    """Run as a child of the fork server; what is struck is told through the pipe before it happens."""
    sys.exit(run(order, pipe.send, pipe.recv))


def main() -> int:
    """Run an order that is given as JSON."""
    given = json.loads(sys.argv[1])
    strikes = tuple(Strike(**strike) for strike in given.pop("strikes", ()))
    return run(Order(**given, strikes=strikes), lambda _: None)


if __name__ == "__main__":
    sys.exit(main())
