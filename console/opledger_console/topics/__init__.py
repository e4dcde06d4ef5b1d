"""The topics of the help: short texts in files beside this one, and what follows from the rules. No widget.

A file begins with ``# Title`` and a line of what it is about. In the rest ``## `` is a heading, ``- `` a point, four
spaces a line that stays as it is. The states' file has a section for each state, and their choices come from
`opledger.rules.choices`, so that they are what the dialogs will say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from typing import Any, Final, Literal

from opledger.rules.choices import Option, choices
from opledger.rules.files.contract import parse
from opledger.rules.model import Operation, State
from opledger_console.commands import VERBS
from opledger_console.views import GLYPHS

NAMES: Final = ("night", "states", "filter", "commands", "providers", "capacity", "copying", "access")
"""The topics in the order of the help."""

Kind = Literal["title", "head", "text", "point", "as-is", "label", "gap"]


@dataclass(frozen=True, slots=True)
class Line:
    """One paragraph: its text, what kind it is, and the part at its beginning that stands out."""

    text: str
    kind: Kind = "text"
    label: str = ""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. `places` says at which line the section of a state begins."""

    name: str
    title: str
    about: str
    lines: tuple[Line, ...]
    places: dict[str, int]


@lru_cache(maxsize=1)
def topics() -> tuple[Topic, ...]:
    """Return all topics, in the order of the help."""
    return tuple(_topic(name) for name in NAMES)


def known() -> tuple[str, ...]:
    """Return what ``:help`` takes: topics, and states."""
    return (*NAMES, *State)


def _topic(name: str) -> Topic:
    text = (resources.files(__package__ or __name__) / f"{name}.md").read_text(encoding="utf-8")
    title, _, rest = text.removeprefix("# ").partition("\n")
    about, _, body = rest.strip().partition("\n")
    lines = list(_lines(body))
    if name == "commands":
        lines += [Line(f":{verb}  {one.does}", "point", label=f":{verb}") for verb, one in VERBS.items()]
    if name == "states":
        lines = list(_states(lines))
    places = {
        line.text.rpartition(" ")[2]: at for at, line in enumerate(lines) if name == "states" and line.kind == "head"
    }
    return Topic(name, title.strip(), about.strip(), tuple(lines), places)


def _lines(body: str) -> Iterator[Line]:
    for raw in body.strip("\n").split("\n"):
        text = raw.rstrip()
        if not text:
            yield Line("", "gap")
        elif text.startswith("## "):
            yield Line(text[3:], "head")
        elif text.startswith("    "):
            yield Line(text.strip(), "as-is")
        elif text.startswith("- "):
            yield Line(text[2:], "point")
        else:
            label, colon, _ = text.partition(": ")
            if colon and label in LABELS:
                yield Line(text, "label", label=f"{label}:")
            else:
                yield Line(text)


LABELS: Final = ("Means", "Certain", "Uncertain", "First", "Keys", "Never")
"""What each state's section says, in this order."""


def _states(lines: list[Line]) -> Iterator[Line]:
    """Put the sections in the order of the states, and add what may be decided in each."""
    sections: dict[str, list[Line]] = {}
    before: list[Line] = []
    here = before
    for line in lines:
        if line.kind == "head":
            here = sections.setdefault(line.text, [])
        else:
            here.append(line)
    yield from before
    for state in State:
        yield Line(f"{GLYPHS[state]} {state}", "head")
        yield from (line for line in sections.get(state, ()) if line.kind != "gap")
        for option in options_in(state):
            yield Line(
                f"resolve --as {option.choice}: {_told(option)}", "point", label=f"resolve --as {option.choice}:"
            )
        yield Line("", "gap")


def _told(option: Option) -> str:
    undo = f" Cannot be undone: {option.undoable}" if option.undoable else ""
    return f"{option.consequence} Only if: {option.precondition}{undo}"


@lru_cache(maxsize=32)
def options_in(state: State) -> tuple[Option, ...]:
    """Return what a person may decide in a state, at a provider that can do everything."""
    source = (resources.files(__package__ or __name__) / "sample.toml").read_text(encoding="utf-8")
    return choices(_sample(state), parse(source, environment={}))


def _sample(state: State) -> Operation:
    facts: dict[str, Any] = dict.fromkeys(
        ("create_timeout", "result_timeout", "cancel_timeout", "collect_timeout"), timedelta(hours=1)
    )
    return Operation(
        operation_id="op_sample",
        contract="sample",
        contract_digest="",
        request_fingerprint="",
        idempotency_token=None,
        trace_id="",
        requested_by="agent",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        state=state,
        jobs=("job",),
        **facts,
    )
