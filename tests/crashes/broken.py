"""Faults planted into the product in memory, each with the story that must find it: what cannot fail proves nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from opledger.edges.anchors import FileAnchor
from opledger.edges.files import ResultFolder, file_name
from opledger.ledger import Ledger
from opledger.notices import LEASE, Notices
from opledger.receiver.intake import Intake
from opledger.rules import escalation
from opledger.rules.model import Action
from opledger.rules.tasks.records import Record, read, write
from opledger.rules.tasks.story import tell
from opledger.store import checkpointing, claims
from opledger.tasks.book import Book
from opledger.tasks.reading import operation_of
from opledger.worker.hand import Hand


@dataclass(frozen=True, slots=True)
class Broken:
    """A planted fault: what it does, how it is planted in this process, and where its harm shows."""

    does: str
    plant: Callable[[], None]
    story: str
    at: str  #: the point of the death that brings it out


def _permit_late(*actions: Action) -> Callable[[], None]:
    """Plant: send first, and write the permit down afterwards."""

    def plant() -> None:
        permitted, send = Hand.permitted, Hand.send

        async def early(self: Hand, action: Action, request: Any, **more: Any) -> Any:
            self.early = await self.shop.http.send(request) if action in actions else None  # type: ignore[attr-defined]
            return await permitted(self, action, request, **more)

        async def sent(self: Hand, request: Any, call_id: str, **more: Any) -> Any:
            found = getattr(self, "early", None)
            return await send(self, request, call_id, **more) if found is None else found

        Hand.permitted = early  # type: ignore[method-assign]
        Hand.send = sent  # type: ignore[method-assign]

    return plant


def _half_result() -> None:
    def keep(self: ResultFolder, path: Path, operation_id: str, suffix: str = "", **_: Any) -> str:
        folder = self.root / operation_id[-2:]
        folder.mkdir(exist_ok=True)
        place = folder / file_name(operation_id, suffix)
        if not place.exists():
            data = path.read_bytes()
            number = os.open(place, os.O_CREAT | os.O_WRONLY, 0o600)
            os.write(number, data[: len(data) // 2])
            os.write(number, data[len(data) // 2 :])
            os.close(number)
        path.unlink()
        return str(place)

    ResultFolder.keep = keep  # type: ignore[method-assign]


def _leases_for_ever() -> None:
    claims._abandoned = lambda *_: []


def _confirmed_first() -> None:
    put = Intake.put

    async def at_once(self: Intake, arrival: Any) -> Any:
        import asyncio

        self.later = asyncio.ensure_future(put(self, arrival))  # type: ignore[attr-defined]
        return SimpleNamespace(stored=True)

    Intake.put = at_once  # type: ignore[method-assign]


def _anchored_first() -> None:
    add = checkpointing.add

    def anchored(database: Any, draft: Any) -> bool:
        FileAnchor(Path(f"{database.name}.anchor")).append([(draft.parsed.note.number, draft.note)])
        return add(database, draft)

    checkpointing.add = anchored


def _told_first() -> None:
    def tell(self: Notices, target: Any, url: str, tracks: Sequence[Any], notices: Sequence[Any]) -> int:
        until = self._clock.now() + LEASE
        self._store.take_notices(tracks, self._name, until)
        pairs = zip(tracks, notices, strict=True)
        self._store.settle_notices([self._outcome(target, *pair, None) for pair in pairs], until)
        for message in escalation.messages(notices, target.digest, self._clock.now()):
            self._deliver(url, message)
        return 1

    Notices._tell = tell  # type: ignore[method-assign]


def _progress_first() -> None:
    def write_file_first(self: Book, record: Record, fence: tuple[str, int] | None, *, file: bool = True) -> None:
        line = write(record)
        self.papers.put(self.papers.progress, self.lines + line)
        self.ledger.store.tasks.append(self.plan.task, record, line, self.clock.now(), fence)
        self._lines.append(line)
        self.story = tell(map(read, self._lines))

    Book._write = write_file_first  # type: ignore[method-assign]


def _keyless() -> None:
    """Whoever goes on with a task submits what it lacks as a new wish: its key does not come from the step."""
    submit = Ledger.submit

    def anew(self: Ledger, *args: Any, step: str | None = None, **more: Any) -> Any:
        found = None if step is None else operation_of(self, more["task"], step)
        return submit(self, *args, step=step if found is None else f"{step}-again", **more)

    Ledger.submit = anew  # type: ignore[method-assign]


BROKEN: Final = {
    "permit-late": Broken(
        "sends the create, then writes its permit down", _permit_late(Action.CREATE), "plain", "after call POST"
    ),
    "resend-blind": Broken(
        "the same where the provider cannot recognise a second create",
        _permit_late(Action.CREATE),
        "unknown-close",
        "sent call POST",
    ),
    "cancel-late": Broken(
        "sends the cancel, then writes its permit down",
        _permit_late(Action.CANCEL),
        "cancel-running",
        "after call DELETE",
    ),
    "half-result": Broken("writes a result at its place", _half_result, "plain", "after write result"),
    "lease-for-ever": Broken("takes nothing from the dead", _leases_for_ever, "plain", "before call POST"),
    "confirmed-first": Broken(
        "confirms a webhook, then stores it", _confirmed_first, "told", "before commit take_deliveries"
    ),
    "anchored-first": Broken(
        "anchors a checkpoint, then commits it", _anchored_first, "checkpoints", "before commit add"
    ),
    "told-first": Broken(
        "notes that somebody was told, then tells them", _told_first, "notices", "after commit settle_notices"
    ),
    "progress-first": Broken(
        "writes the progress file of a task, then the ledger", _progress_first, "task", "before commit append"
    ),
    "keyless": Broken(
        "submits anew what an earlier run of a task has submitted", _keyless, "task", "after commit open_many"
    ),
}
