"""What threads tell the screens. Handlers own every change of what is shown."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message

from opledger_console.views import Detail, Snapshot


@dataclass
class SnapshotTaken(Message):
    """The list as it stands."""

    snapshot: Snapshot

    def can_replace(self, message: Message) -> bool:
        """A newer picture replaces one that nobody has looked at yet."""
        return isinstance(message, SnapshotTaken)


@dataclass
class DetailTaken(Message):
    """One operation as it stands."""

    detail: Detail


@dataclass
class LedgerAway(Message):
    """The database cannot be read now."""

    why: str


class Chosen(Message):
    """The cursor stands on another operation."""

    def __init__(self, operation_id: str | None) -> None:
        super().__init__()
        self.operation_id = operation_id
