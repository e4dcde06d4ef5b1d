"""The head of a dialog: what is decided, about what; fixed, so that no content can push it away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rich.text import Text

from opledger.rules.model import Operation
from opledger_console.text import line
from opledger_console.views import GLYPHS, short_id

TAIL: Final = 6
"""How many last characters of an id are typed to confirm, and shown of a fingerprint."""


@dataclass(frozen=True, slots=True)
class Head:
    """What is decided, about what; only `name` and `state` may come from outside."""

    verb: str  #: our word
    subject: str
    name: str = ""
    state: str = ""
    fingerprint: str = ""
    version: int | None = None
    lapses: str = ""  #: our words


def head_of(verb: str, op: Operation, fingerprint: str | None = None) -> Head:
    """Return the head of a dialog about one operation."""
    state = f"{GLYPHS[op.state]} {op.state.value}"
    seen = op.request_fingerprint if fingerprint is None else fingerprint
    return Head(verb, short_id(op.operation_id), op.contract, state, seen[-TAIL:], op.version)


def drawn(head: Head) -> tuple[Text, Text]:
    """Return its two lines: ids first, so that no name can push them out."""
    first = Text(f"{head.verb} ", no_wrap=True, overflow="ellipsis", end="")
    first.append_text(line(head.subject, limit=60, style="bold"))
    if head.name:
        first.append("  ")
        first.append_text(line(head.name, limit=80))
    facts = Text(no_wrap=True, overflow="ellipsis", end="")
    facts.append_text(line(head.state, limit=30))
    if head.fingerprint:
        facts.append("  fingerprint …")
        facts.append_text(line(head.fingerprint, limit=TAIL * 10, style="bold"))
    if head.lapses:
        facts.append(f"  {head.lapses}", style="bold")
    if head.version is not None:
        facts.append(f"  v{head.version}")
    return first, facts
