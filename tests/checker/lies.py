"""Lies: each changes one thing in honest papers, and names the invariant that is broken by it.

A lie about events is told by somebody who can also hash: the chain is made anew over it, so that the lie itself must be
seen. Lies about the paper are told by somebody who cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.checker.honest import Data, Tale, make, papers

Tell = Callable[[Tale], bool]
"""Changes a history; False where it has nothing to lie about."""
Spoil = Callable[[list[Data], list[Data]], bool]
"""Changes the documents of an export and of a log."""


@dataclass(frozen=True, slots=True)
class Lie:
    """One lie, by name."""

    name: str
    invariant: str
    tell: Tell | None = None
    spoil: Spoil | None = None

    @property
    def where(self) -> str:
        """The module that tells it."""
        return str((self.tell or self.spoil).__module__)


TELLS: Final[list[Lie]] = []


def lie(invariant: str) -> Callable[[Tell], Tell]:
    """Put a lie about a history into the list."""

    def added(tell: Tell) -> Tell:
        TELLS.append(Lie(tell.__name__.strip("_"), invariant, tell))
        return tell

    return added


def spoiled(invariant: str) -> Callable[[Spoil], Spoil]:
    """Put a lie about the paper into the list."""

    def added(spoil: Spoil) -> Spoil:
        TELLS.append(Lie(spoil.__name__.strip("_"), invariant, spoil=spoil))
        return spoil

    return added


def told(made: Lie, count: int) -> Iterator[tuple[int, list[Data], list[Data]]]:
    """Tell one lie about `count` different honest histories: the seed, and both papers."""
    found = 0
    for seed in range(20_000):
        tale = make(seed)
        if made.tell is not None and not made.tell(tale):
            continue
        export, log = papers([tale, make(f"{seed}_bystander")])
        if made.spoil is not None and not made.spoil(export, log):
            continue
        yield seed, export, log
        found += 1
        if found == count:
            return
    raise AssertionError(f"{made.name} could be told about {found} histories only")


def find(tale: Tale, kind: str, **data: Any) -> Data | None:
    """The first event of a kind whose data are so."""
    for event in tale.events:
        if event["kind"] == kind and all(event["data"].get(key) == value for key, value in data.items()):
            return event
    return None


def arrived(tale: Tale, kind: str, **more: Any) -> Data | None:
    """The first request of a kind in the log that is so."""
    for entry in tale.log:
        if entry["kind"] == kind and all(entry.get(key) == value for key, value in more.items()):
            return entry
    return None


def follows(tale: Tale, event: Data) -> Data | None:
    """The event after one."""
    place = tale.events.index(event) + 1
    return tale.events[place] if place < len(tale.events) else None


def insert(tale: Tale, before: Data | None, kind: str, data: Data, **more: Any) -> Data:
    """Put an event in before another one, or at the end; it leaves the state as it is unless told otherwise."""
    place = len(tale.events) if before is None else tale.events.index(before)
    last = tale.events[place - 1]
    event = {
        "actor": {"kind": "worker", "name": "worker-1"},
        "at": last["at"],
        "cause": "recovery",
        "data": data,
        "from": None,
        "kind": kind,
        "next": last["next"],
        "reason": None,
        "remote_job_id": last["remote_job_id"],
        "to": None,
        **more,
    }
    tale.events.insert(place, event)
    return event


def later(tale: Tale, event: Data, by: int) -> None:
    """Let an event, and all that follows, happen later."""
    since = event["at"]
    for one in tale.events:
        one["at"] += by if one["at"] >= since else 0
    for entry in tale.log:
        entry["time"] += by if entry["time"] >= since else 0


def standing(tale: Tale, event: Data) -> str | None:
    """The state before an event."""
    place = tale.events.index(event)
    return next((one["to"] for one in reversed(tale.events[:place]) if one["to"] is not None), None)


def change(tale: Tale, kind: str, values: Data, **data: Any) -> bool:
    """Change data of the first event that is so."""
    event = find(tale, kind, **data)
    if event is None:
        return False
    event["data"].update(values)
    return True


def again(tale: Tale, kind: str, **more: Any) -> bool:
    """Let the first request of a kind arrive once more."""
    entry = arrived(tale, kind)
    if entry is None:
        return False
    tale.log.append({**entry, "time": entry["time"] + 10, **more})
    return True


def cut_at(tale: Tale, event: Data, to: str) -> None:
    """Let a history end with an event, in a state."""
    del tale.events[tale.events.index(event) + 1 :]
    event["to"], tale.state = to, to
    event["next"] = None
