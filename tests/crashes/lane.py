"""One lane: a process that has loaded everything, its provider, its time, and a child for everything that may die."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from opledger.edges.clock import SystemClock
from opledger.edges.http import Http
from opledger.rules.model import State
from opledger.sim.contracts import DEFAULT_TOKEN
from opledger.sim.hooks import WEBHOOK_SECRET
from opledger.store import open_database
from opledger.store.statements import Prepared, Recipe, Tx
from tests.crashes import judge
from tests.crashes.broken import BROKEN
from tests.crashes.forks import in_child
from tests.crashes.life import Life, Story, live
from tests.crashes.page import Page, SharedClock
from tests.crashes.points import Points, arm
from tests.crashes.provider import ForkedSim
from tests.support.forking import made_once

SWEPT: Final = 7 * 3600.0
"""Seconds after which what broken transfers left behind is removed."""

MOMENT: Final = 0.001
"""Seconds that pass before a call leaves, and again until its answer is here."""

Place = int | str
"""Where somebody dies: the number of a point, or its name."""


def _submitted(life: Life) -> None:
    life.contract()
    life.submit(_polls=1)


WARM: Final = Story("warm", _submitted, lambda life: life.run(), (State.SUCCEEDED,))


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one story."""

    struck: tuple[str, ...]  #: the points at which somebody died
    states: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    points: tuple[str, ...] = field(default=(), repr=False)  #: of the last one who was to die, and came to its end


class Lane:
    """Use as a context manager, in a process that has one thread."""

    def __init__(self, broken: str | None = None) -> None:
        """`broken` names a fault that is planted into everybody in all stories."""
        self._always_broken = broken
        self._broken: str | None = None
        parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="opledger-crashes-", dir=parent))
        self._page = Page()
        self._clock = SharedClock(self._page)
        self._sim = ForkedSim(self._clock)
        self._ready: set[str] = set()
        self._count = 0

    def __enter__(self) -> Self:
        faulthandler.enable()
        self._sim.start()
        _settle(self._clock)
        self._warm_up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sim.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def tell(self, story: Story, *deaths: Place, counting: bool = False, broken: str | None = None) -> Fate:
        """Tell a story in which somebody dies at each of these places, one after the other, and judge its end.

        With `counting`, the one who comes after all these deaths notes its points, too, and does not die. `broken`
        names a fault that is planted into everybody in it.
        """
        self._broken = broken or self._always_broken
        template = self._template(story)
        self._count += 1
        folder = self.folder / f"{story.name}-{self._count}"
        shutil.copytree(template, folder / "ledger")
        self._page.passed = 1.0
        self._sim.control(reset=True)
        self._sim.ask("POST", "/_webhooks", {})
        if story.begin is not None:
            story.begin(self._sim, json.loads((template.parent / f"{story.name}.ids").read_text()))
        try:
            return self._tell(story, deaths, folder, counting=counting)
        finally:
            shutil.rmtree(folder)

    def _tell(self, story: Story, deaths: Sequence[Place], folder: Path, *, counting: bool) -> Fate:
        struck: list[str] = []
        points: tuple[str, ...] = ()
        log, ledger = folder / "log", folder / "ledger"
        for death in (*deaths, *((0,) if counting else ())):
            self._page.struck = ""
            code = in_child(lambda at=death: self._mortal(story, folder, at), log)  # type: ignore[misc]
            if code == -signal.SIGKILL and self._page.struck:
                struck.append(self._page.struck)
                self._sim.control(release=True)
                continue
            if code != 0:
                return Fate(tuple(struck), wrong=(f"a process ended with {code}: {_tail(log)}",))
            points = tuple((folder / "points").read_text().splitlines())
            break
        before = len(json.loads((self.folder / f"{story.name}.ids").read_text()))
        died = bool(struck)
        code = in_child(lambda: self._judge(story, folder, before, died=died), log)
        if code != 0:
            return Fate(tuple(struck), wrong=(f"whoever came after ended with {code}: {_tail(log)}",), points=points)
        assert ledger.is_dir()
        verdict = json.loads((folder / "verdict").read_text())
        return Fate(tuple(struck), tuple(verdict["states"]), tuple(verdict["wrong"]), points)

    # --- in children ----------------------------------------------------------------------------------------------

    def _mortal(self, story: Story, folder: Path, death: Place) -> None:
        """Tell the story with every point armed, and note the points that were passed."""
        at, name = (death, "") if isinstance(death, int) else (0, death)
        points = Points(self._page, at, name)
        self._plant()
        acknowledged = os.open(folder / "acknowledged", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        arm(points, folder / "ledger", acknowledged)
        self._live(folder, partial(_whole, story=story))
        (folder / "points").write_text("\n".join(points.names))

    def _judge(self, story: Story, folder: Path, before: int, *, died: bool) -> None:
        """Tell it to its end with nobody dying, and look at everything that is left."""
        found: dict[str, list[str]] = {}
        self._plant()

        def to_the_end(life: Life) -> None:
            _whole(life, story)
            life.passes(SWEPT)
            life.worker.sweep()
            life.leave()
            life.seal()
            found["states"] = [op.state.value for op in sorted(life.operations(), key=lambda op: op.operation_id)]
            found["wrong"] = list(judge.faults(life, story, folder / "acknowledged", before, died=died))
            if story.check is not None:
                try:
                    story.check(life)
                except (AssertionError, OSError) as error:
                    found["wrong"].append(f"the story's own check: {error}")

        self._live(folder, to_the_end)
        (folder / "verdict").write_text(json.dumps(found))

    def _plant(self) -> None:
        if self._broken is not None:
            BROKEN[self._broken].plant()

    def _live(self, folder: Path, work: Callable[[Life], None]) -> None:
        live(folder / "ledger", self._sim, self._clock, work)

    def _warm_up(self) -> None:
        """Tell one story in this process, so that no child need load, read or compile what this one has."""
        folder = self.folder / "warm"
        (folder / "ledger").mkdir(parents=True)
        self._prepare(WARM, folder / "ledger")
        self._judge(WARM, folder, 1, died=True)
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join(20)
        assert threading.active_count() == 1, threading.enumerate()
        gc.collect()
        gc.freeze()

    # --- beginnings -----------------------------------------------------------------------------------------------

    def _template(self, story: Story) -> Path:
        """The folder in which the story begins; made once."""
        folder = self.folder / story.name
        if story.name not in self._ready:
            folder.mkdir()
            log = self.folder / "log"
            code = in_child(lambda: self._prepare(story, folder), log)
            assert code == 0, f"{story.name} cannot begin: {_tail(log)}"
            self._ready.add(story.name)
        return folder

    def _prepare(self, story: Story, folder: Path) -> None:
        self._page.passed = 0.0
        open_database(f"sqlite:///{folder / 'ledger.db'}").close()

        def prepare(life: Life) -> None:
            story.prepare(life)
            ids = life.ids()
            (self.folder / f"{story.name}.ids").write_text(json.dumps(ids))

        live(folder, self._sim, self._clock, prepare)


def _whole(life: Life, story: Story) -> None:
    story.play(life)
    life.leave()


def _tail(log: Path) -> str:
    text = log.read_text(errors="replace") if log.exists() else ""
    return " | ".join(text.strip().splitlines()[-12:])


def _settle(clock: SharedClock) -> None:
    """Prepare this process so that its children begin at once: one time, one trust store, nothing left to collect."""

    def now(self: SystemClock) -> datetime:
        return clock.now()

    def monotonic(self: SystemClock) -> float:
        return clock.monotonic()

    for method in ("send", "download"):
        _takes_time(method, clock)
    SystemClock.now = now  # type: ignore[method-assign]
    SystemClock.monotonic = monotonic  # type: ignore[method-assign]
    os.environ.update(SIM_TOKEN=DEFAULT_TOKEN, HOOK_SECRET=WEBHOOK_SECRET)
    made_once()
    statements: dict[Any, Prepared] = {}
    prepared = Tx.prepared

    def remembered(self: Tx, recipe: Recipe) -> Prepared:
        if self.tongue.kind != "sqlite":
            return prepared(self, recipe)
        found = statements.get(recipe)
        if found is None:
            found = statements[recipe] = self.tongue.compile(recipe(self.tongue))
        return found

    Tx.prepared = remembered  # type: ignore[method-assign]


def _takes_time(method: str, clock: SharedClock) -> None:
    """Let a call take some time, so that no two of them are at the same moment."""
    real = getattr(Http, method)

    async def calling(*args: Any, **kwargs: Any) -> Any:
        clock.pass_by(MOMENT)
        try:
            return await real(*args, **kwargs)
        finally:
            clock.pass_by(MOMENT)

    setattr(Http, method, calling)


def seconds() -> float:
    """Real seconds, for the report."""
    return time.perf_counter()
