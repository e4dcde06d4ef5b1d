"""T7: the n-th call on the disk fails, or is the last one; then the disk is well, and the story is told once more.

Judged is what a person may rely on: what was acknowledged is there, every job was started once, a process says what is
wrong and ends well, ``audit verify`` has no finding, and the second telling needs no hand to bring all to its end.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final

from opledger.config import load_settings
from opledger.errors import UnknownOperation
from opledger.ledger import Ledger
from opledger.rules.model import State
from opledger.sim.judge import judge
from opledger.sim.process import SimProcess
from opledger.worker.absence import Absence
from tests.disk.events import Call, Refusal, What
from tests.disk.osfiles import Files
from tests.disk.recorder import nothing
from tests.disk.stories import WORK, Arm, Life, Place, Say, live
from tests.disk.vfs import Layer

GROWS: Final[frozenset[What]] = frozenset({"open", "write", "link", "rename", "mkdir"})
"""What needs room on the disk."""

PATIENT: Final = 12
"""A lasting fault is over after so many calls that failed, or once a worker has waited for its database twice."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One way in which a disk fails. `applies` to calls that are counted."""

    name: str
    number: int  #: errno; 0: the process dies
    lasts: bool = False
    share: float = 0.0  #: of a write that comes through before
    only: frozenset[What] | None = None
    named: str = ""  #: only files whose name ends so

    def applies(self, call: Call) -> bool:
        """Whether this call can fail so. An open that makes nothing touches nothing."""
        if call.what == "open" and not call.made and call.room == "files":
            return False
        return (self.only is None or call.what in self.only) and call.name.endswith(self.named)


KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind("kill", 0),
        Kind("torn", 0, share=0.5, only=frozenset({"write"})),
        Kind("eio", errno.EIO),
        Kind("eio-lasts", errno.EIO, lasts=True),
        Kind("full", errno.ENOSPC, only=GROWS),
        Kind("full-lasts", errno.ENOSPC, lasts=True, only=GROWS),
        Kind("short", errno.ENOSPC, share=0.5, only=frozenset({"write"})),
    )
}

CLEAR: Final = re.compile(
    r"disk is full|by the disk|cannot be (?:made|opened|written|read)|could not be read or written"
    r"|No space left on device|Input/output error"
)
"""Words that tell a person that it is the disk."""
LOUD: Final = re.compile(r"Traceback|did not expect|Exception ignored")
"""Words of a program that does not know what happened."""


class Striker:
    """Counts calls, and strikes at the chosen one: the `nth` of all that can fail so, or of one `call` of these."""

    def __init__(self, kind: Kind, nth: int, say: Say, call: str = "") -> None:
        self._kind, self._nth, self._say, self._call = kind, nth, say, call
        self.count = 0
        self._failed = 0
        self._well = False
        self._rest = False  #: of a write that was short: what comes next finds no room at all

    def before(self, call: Call) -> Refusal | None:
        """Strike, or count."""
        if not self._kind.applies(call):
            return None
        if self._call and self.count < self._nth and f"{call.room} {call.what}" != self._call:
            return None
        self.count += 1
        if self.count < self._nth or self._well:
            return None
        if self.count == self._nth:
            self._say({"struck": f"{call.room} {call.what}", "file": call.name})
            if not self._kind.number:
                return self._last(call)
        elif not self._kind.lasts and not self._rest:
            return None
        self._rest = bool(self._kind.share) and self.count == self._nth and call.room == "files"
        self._failed += 1
        if self._failed >= PATIENT:
            self.heal()
        return Refusal(self._kind.number, self._kind.share if self.count == self._nth else 0.0)

    def _last(self, call: Call) -> Refusal | None:
        if self._kind.share and call.what == "write":
            return Refusal(0, self._kind.share)  # the layer lets that much through, and then the process dies
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    def after(self, call: Call) -> None:
        """Nothing."""

    def heal(self) -> None:
        """The disk is well from now on."""
        self._well = True


def arm(
    place: Place, kind: Kind, nth: int, break_it: Callable[[], None], call: str = ""
) -> tuple[Arm, Callable[[], int]]:
    """What prepares the child, and tells at its end how many calls there were."""
    holder: list[Striker] = []

    def prepare(say: Say) -> None:
        striker = Striker(kind, nth, say, call)
        holder.append(striker)
        layer = Layer(place.disk, striker)
        Files(place.disk, striker, layer.lock).install()
        layer.install()
        break_it()
        wait = Absence.wait

        async def waiting(self: Absence, error: Exception, stopping: Any) -> None:
            if self.tries:
                striker.heal()
            await wait(self, error, stopping)

        Absence.wait = waiting  # type: ignore[method-assign]

    return prepare, lambda: holder[0].count


# --- what is there ---------------------------------------------------------------------------------------------------


def look(place: Place) -> dict[str, Any]:
    """What the ledger holds of each operation. Runs in the child, where the disk is well."""
    if not place.database.exists():
        return {"sound": "ok", "states": {}, "kinds": {}}
    with closing(sqlite3.connect(place.database)) as raw:
        sound = str(raw.execute("PRAGMA integrity_check").fetchone()[0])
    found: dict[str, Any] = {"sound": sound, "states": {}, "kinds": {}}
    with Ledger.open(settings=load_settings({}, os.environ, place.folder)) as ledger:
        for operation in place.ids:
            try:
                op = ledger.store.get(operation)
            except UnknownOperation:
                if operation in _buried(place):
                    found["states"][operation], found["kinds"][operation] = "archived", []
                continue
            found["states"][operation] = op.state.value
            events = ledger.events(operation)
            found["kinds"][operation] = [
                event.kind + (f".{event.data['action']}" if event.kind == "CallSent" and event.data else "")
                for event in events
            ]
            if op.state is State.SUCCEEDED and op.result is not None and op.result.location is not None:
                with open(op.result.location, "rb") as file:
                    whole = hashlib.file_digest(file, "sha256").hexdigest() == op.result.sha256
                found.setdefault("results", {})[operation] = whole
    return found


def _buried(place: Place) -> list[str]:
    with closing(sqlite3.connect(place.database)) as raw:
        return [row[0] for row in raw.execute("SELECT operation_id FROM tombstone")]


@dataclass(slots=True)
class Clean:
    """How a story goes on a disk that is well."""

    calls: dict[str, list[str]]  #: what each kind of fault could strike, in order
    codes: dict[tuple[str, ...], int]
    states: list[str]  #: where the operations end
    creates: list[int]


@dataclass(slots=True)
class Case:
    """One fault in one story, and what came of it."""

    story: str
    kind: str
    nth: int
    struck: str | None = None
    broken: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    told: str = ""  #: what both lives said, where something was broken


VERIFY: Final = ("audit", "verify", "--full")


def second(place: Place) -> Life:
    """Tell the story again on a disk that is well, after a look at what was left."""
    again = replace(place, life=2)
    before = ((*VERIFY, *_archives(place)),) if place.database.exists() else ()
    steps = (*before, *place.story.steps, WORK)
    life = live(again, first=lambda: look(place), steps=steps, last=lambda: look(place))
    if life.ended == 0:
        checked = live(again, steps=((*VERIFY, *_archives(place)),))
        life.told += checked.told
        life.ended = checked.ended
    return life


def _archives(place: Place) -> list[str]:
    named = sorted(place.disk.glob("gone*.jsonl"))
    buried = set(_files(place)) if place.database.exists() and named else set()
    return [word for path in named if str(path) in buried for word in ("--archive", str(path))]


def _files(place: Place) -> list[str]:
    with closing(sqlite3.connect(f"{place.database.as_uri()}?mode=ro", uri=True)) as raw:
        return [row[0] for row in raw.execute("SELECT DISTINCT file FROM tombstone")]


def run(
    place: Place,
    sim: SimProcess,
    kind: Kind,
    nth: int,
    clean: Clean,
    break_it: Callable[[], None] = nothing,
    *,
    call: str = "",
) -> Case:
    """One case, at a place that is prepared; `call` as in `Striker`."""
    case = Case(place.story.name, kind.name, nth)
    prepare, count = arm(place, kind, nth, break_it, call)
    first = live(place, arm=prepare, last=count)
    struck = first.facts.get("struck")
    if struck is None:
        return case
    case.struck = f"{struck} {first.facts['file']}"
    case.counts[struck] += 1
    case.broken += _first_life(first, kind, clean, case.counts)
    after = second(place)
    case.broken += _second_life(place, first, after, clean, log := sim.log())
    case.broken += _wire(place, log, after, clean)
    if case.broken:
        case.told = "\n\n".join(_story(life) for life in (first, after))
    return case


def _story(life: Life) -> str:
    told = [f"$ {' '.join(told.words)} -> {told.code}\n{told.said}" for told in life.told]
    return "\n".join([*told, life.said, f"ended with {life.ended}; {life.facts}"])


def _first_life(life: Life, kind: Kind, clean: Clean, counts: Counter[str]) -> list[str]:
    """While the disk fails: who cannot go on says why, and nothing breaks."""
    said = "".join(told.said for told in life.told) + life.said
    broken = [f"it did not know what happened: {_line(said, LOUD)}"] if LOUD.search(said) else []
    if not kind.number:
        if life.ended != -signal.SIGKILL:
            broken.append(f"it was to die, and ended with {life.ended}")
        return broken
    if life.ended != 0:
        return [*broken, f"it ended with {life.ended}: {_end(life.said)}"]
    failed = [told for told in life.told if told.code != clean.codes.get(told.words, 0)]
    counts["refused"] += bool(failed)
    counts["told"] += bool(CLEAR.search(said))
    counts["silent"] += not failed and not CLEAR.search(said)
    if failed and not CLEAR.search(failed[0].said):
        broken.append(f"{failed[0].words[0]} ended with {failed[0].code} and did not say why: {_end(failed[0].said)}")
    return broken


def _second_life(place: Place, first: Life, after: Life, clean: Clean, log: list[dict[str, Any]]) -> list[str]:
    """On the well disk: what was acknowledged is there, all is sound, and everything comes to its end."""
    if after.ended != 0:
        return [f"the second telling ended with {after.ended}: {_end(after.said)}"]
    found, end = after.facts["first"], after.facts["last"]
    states = [end["states"].get(one, "none") for one in place.ids]
    broken = [f"integrity_check says {one['sound']}" for one in (found, end) if one["sound"] != "ok"]
    for told in first.told:
        if told.code == 0 and (lost := _lost(place, told.words, found)):
            broken.append(f"{' '.join(told.words)} was acknowledged, and {lost}")
    for told in after.told:
        again = told.words[0] in _EVIDENCE or told.words[0] in ("archive", "provider") or "archived" in states
        fits = (0, 3) if again and told.words[0] not in ("worker", "audit") else (0,)
        if told.code not in fits and not (told.words[0] == "audit" and _is_empty(found, told.said)):
            broken.append(f"on the well disk {' '.join(told.words)} ended with {told.code}: {_end(told.said)}")
    # A cancel that was never taken down is none; and one whose permit was committed just before the process died is
    # not sent again, for nobody knows whether it left. The job then comes to its own end; as it does where all is slow.
    unheard = not any(one["kind"] == "cancel" and (one["status"] or 0) < 300 for one in log)
    unheard = unheard and "cancel" in {step[0] for step in place.story.steps}
    if states != clean.states and not (unheard and set(states) <= {"succeeded", "withdrawn"}):
        broken.append(f"the operations ended {states} instead of {clean.states}")
    return broken + [f"the result of {one} is not whole" for one, whole in end.get("results", {}).items() if not whole]


def _is_empty(found: Mapping[str, Any], said: str) -> bool:
    return not found["states"] and ("NOTHING_CHECKED" in said or "holds no ledger" in said)


_EVIDENCE: Final[Mapping[str, str]] = {
    "approve": "Approved",
    "cancel": "CancelRequested",
    "resolve": "Decided",
    "ack": "Acknowledged",
}


def _lost(place: Place, words: tuple[str, ...], found: Mapping[str, Any]) -> str | None:
    if words[0] == "submit":
        return None if place.ids[int(words[1])] in found["states"] else "the operation is not there"
    kind = _EVIDENCE.get(words[0])
    there = set(found["kinds"].get(place.ids[0], ()))
    if "Withdrawn" in there:  # the cancel came before the create had left
        return None
    if kind is not None and kind not in there:
        return f"there is no {kind} in the journal: {found['kinds']}"
    return None


def _wire(place: Place, log: list[dict[str, Any]], after: Life, clean: Clean) -> list[str]:
    """At the provider: no duplicate, and no request without a permit."""
    broken = list(judge(log))
    kinds = after.facts["last"]["kinds"] if "last" in after.facts else {}
    for operation, usual in zip(place.ids, clean.creates, strict=True):
        creates = [entry for entry in log if entry["kind"] == "create" and entry["client_ref"] == operation]
        started = sum(bool(entry["started"]) for entry in creates)
        if started > 1 or (usual and not started and "Withdrawn" not in kinds.get(operation, ())):
            broken.append(f"{operation} started {started} jobs")
        permits = sum(kind.startswith("CallSent.") and kind != "CallSent.cancel" for kind in kinds.get(operation, ()))
        if operation in kinds and kinds[operation] and len(creates) > permits:
            broken.append(f"{len(creates)} creates arrived for {permits} permits")
    return broken


def clean_run(place: Place, sim: SimProcess) -> Clean:
    """How the story goes where nothing fails. Raises AssertionError where it does not go well."""
    seen: dict[str, list[str]] = {name: [] for name in KINDS}

    class Counting(Striker):
        def before(self, call: Call) -> Refusal | None:
            for kind in KINDS.values():
                if kind.applies(call):
                    seen[kind.name].append(f"{call.room} {call.what}")
            return None

    def prepare(say: Say) -> None:
        watcher = Counting(KINDS["eio"], 0, say)
        layer = Layer(place.disk, watcher)
        Files(place.disk, watcher, layer.lock).install()
        layer.install()

    life = live(place, arm=prepare, last=lambda: [dict(seen), look(place)])
    assert life.ended == 0, life.said
    calls, end = life.facts["last"]
    codes = {told.words: told.code for told in life.told}
    assert not any(codes.values()), [(told.words, told.code, told.said) for told in life.told if told.code]
    log = sim.log()
    creates = [
        sum(entry["kind"] == "create" and entry["client_ref"] == one and bool(entry["started"]) for entry in log)
        for one in place.ids
    ]
    return Clean(calls, codes, [end["states"][one] for one in place.ids], creates)


def _line(text: str, pattern: re.Pattern[str]) -> str:
    return next((line.strip() for line in text.splitlines() if pattern.search(line)), "")[:300]


def _end(text: str) -> str:
    return " ".join(text.split())[-300:]
