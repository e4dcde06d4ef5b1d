"""How an event of the tail looks as a row: made once, as it comes, and kept."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from opledger.rules.model import NEEDS_HUMAN, State
from opledger.store.tail import TailEvent
from opledger_console.tailfilter import said
from opledger_console.views import GLYPHS, Column, Row, TimeStyle, short_id

CONTRACT: Final = 2
"""The place of the contract among the cells of a row."""

NEVER: Final = 10_000
"""A width that no terminal has."""

ROOMY: Final = 96
"""From this width on the state that an event led to has a column of its own; before it stands among the words."""


TIME: Final = 13
"""Cells of a time with its zone, and a date before it where it is not of today: ``28Nov 22:00Z``."""


def columns(width: int) -> tuple[Column, ...]:
    """Return the columns of a list of this width."""
    roomy, tight = (0, NEVER) if width >= ROOMY else (NEVER, 0)
    return (
        ("time", TIME if width >= ROOMY else 9, 0),
        ("id", 8, 0),
        ("contract", 14, 112),
        ("from", 26, 150),
        ("to", 26, roomy),
        ("actor", 16, 128),
        ("what happened", 0, roomy),
        ("what happened", 0, tight),
    )


_GOOD: Final = frozenset({State.SUCCEEDED})
_BAD: Final = frozenset({State.FAILED, State.REJECTED})


def row_of(one: TailEvent, now: datetime, style: TimeStyle) -> Row:
    """Return the line of an event; its time without a date where it is of today."""
    event = one.event
    changed = event.to_state is not None
    words = f"{event.kind}  {said(event)}"
    cells = (
        _time(event.at, now, style),
        short_id(one.operation_id),
        one.contract,
        _named(event.from_state) if changed else "",
        _named(event.to_state) if changed else "",
        event.actor,
        words,
        f"{_named(event.to_state)}: {words}" if changed else words,
    )
    return Row(f"{one.operation_id}/{event.seq}", cells, _colour(one), dim=not changed)


def _time(at: datetime, now: datetime, style: TimeStyle) -> str:
    local = style is TimeStyle.LOCAL
    shown, today = (at.astimezone(), now.astimezone()) if local else (at, now)
    words = f"{shown:%H:%M:%S}" if shown.date() == today.date() else f"{shown:%d%b %Hh%M}"
    return words + ("" if local else "Z")


def _named(word: str | None) -> str:
    if word is None:
        return "· new"
    return f"{GLYPHS[State(word)]} {word}" if word in frozenset(State) else f"? {word}"


def _colour(one: TailEvent) -> str:
    state = one.event.to_state
    if one.event.data is None:
        return "bad"
    if state in NEEDS_HUMAN:
        return "human"
    return "good" if state in _GOOD else "bad" if state in _BAD else "plain"


def gap(number: int) -> Row:
    """Return the line that says that something is missing."""
    words = "… some events are left out here: more came at once than are read"
    cells = ("", "", "", "", "", "", words, words)
    return Row(f"gap/{number}", cells, "human")
