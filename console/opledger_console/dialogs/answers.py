"""Contradictory answers of a provider, with the fields marked in which they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

from opledger.rules import jsontext
from opledger.rules.review import leaves
from opledger_console.dialogs.lines import Piece

SHOWN: Final = 64 * 1024
"""So many characters of each answer are shown."""

Answers = Sequence[tuple[str, str]]
_MISSING: Final = object()


def stacked(answers: Answers) -> Iterator[Piece]:
    """Show one under the other."""
    for pane in _panes(answers):
        yield from pane
        yield Piece("")


def beside(answers: Answers) -> Iterator[Piece]:
    """Show two side by side."""
    left, right = _panes(answers)
    for one, other in zip_longest(left, right, fillvalue=Piece("", "data")):
        yield Piece(one.text, one.kind, one.indent, beside=other)


def _panes(answers: Answers) -> list[list[Piece]]:
    documents = [_read(body[:SHOWN]) for _, body in answers]
    if all(document is not _MISSING for document in documents):
        differing = _differing(documents)
        bodies = [list(_written(document, differing)) for document in documents]
    else:
        bodies = _compared([body[:SHOWN].split("\n") for _, body in answers])
    panes = []
    for (title, body), lines in zip(answers, bodies, strict=True):
        cut = [Piece(f"! {len(body) - SHOWN} more characters are not shown here.", "warn")] if len(body) > SHOWN else []
        panes.append([Piece(title, "data"), Piece(""), *lines, *cut])
    return panes


def _read(body: str) -> Any:
    try:
        return jsontext.loads(body)
    except jsontext.JsonError:
        return _MISSING


def _differing(documents: Sequence[Any]) -> frozenset[str]:
    """Return the JSON Pointers at which not all documents have the same value."""
    found: list[Mapping[str, Any]] = [dict(leaves(document)) for document in documents]
    places = {place for one in found for place in one}
    return frozenset(place for place in places if len({_key(one.get(place, _MISSING)) for one in found}) > 1)


def _key(value: Any) -> str:
    # As text: in Python 1 == True and 1 == 1.0; in JSON they are three values.
    return "missing" if value is _MISSING else jsontext.dumps_text(value)


def _written(
    document: Any, differing: frozenset[str], pointer: str = "", name: str | None = None, deep: int = 0
) -> Iterator[Piece]:
    """Write a document with one value a line, marked where it differs."""
    label = f"{jsontext.dumps_inert(name)}: " if name is not None else ""
    pad = "  " * deep
    if isinstance(document, Mapping) and document:
        yield _line(f"{pad}{label}{{", marked=False)
        for key, value in document.items():
            below = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
            yield from _written(value, differing, below, key, deep + 1)
        yield _line(f"{pad}}}", marked=False)
    elif isinstance(document, list) and document:
        yield _line(f"{pad}{label}[", marked=False)
        for place, value in enumerate(document):
            yield from _written(value, differing, f"{pointer}/{place}", None, deep + 1)
        yield _line(f"{pad}]", marked=False)
    else:
        yield _line(f"{pad}{label}{jsontext.dumps_inert(document)}", marked=pointer in differing)


def _compared(bodies: list[list[str]]) -> list[list[Piece]]:
    """Mark the lines that differ, place by place; for what is not JSON there is no better sense of a field."""
    rows = list(zip_longest(*bodies))
    return [[_line(text, marked=len(set(rows[place])) > 1) for place, text in enumerate(body)] for body in bodies]


def _line(text: str, *, marked: bool) -> Piece:
    return Piece(text, "differs" if marked else "data")
