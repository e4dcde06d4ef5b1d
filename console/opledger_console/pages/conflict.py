"""Two answers that contradict each other, with the places marked where they differ, and what a person may do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

from rich.cells import chop_cells

from opledger.rules import jsontext
from opledger.rules.choices import Option
from opledger.rules.review import leaves
from opledger_console.pages.rows import BAR, Kind, Row, body_rows, capped, laid_out, row, wrapped
from opledger_console.text import block

WIDE: Final = 100
"""From this width on the answers stand beside each other."""

MARK: Final = "≠ "


@dataclass(frozen=True, slots=True)
class Place:
    """A place in two JSON texts: what stands there, or None where nothing does."""

    pointer: str
    left: str | None
    right: str | None

    @property
    def differs(self) -> bool:
        """True where the two are not the same."""
        return self.left != self.right


def places(left: str, right: str) -> tuple[Place, ...] | None:
    """Return every place of two JSON texts, in the order of the first one; None where one of them is no JSON."""
    try:
        one, other = dict(leaves(jsontext.loads(left))), dict(leaves(jsontext.loads(right)))
    except jsontext.JsonError:
        return None
    return tuple(
        Place(pointer, _value(one, pointer), _value(other, pointer)) for pointer in dict.fromkeys((*one, *other))
    )


def _value(values: dict[str, Any], pointer: str) -> str | None:
    # As JSON, so that 1, true and "1" are told apart.
    return jsontext.dumps_inert(values[pointer]) if pointer in values else None


def rows(
    why: str,
    jobs: Sequence[str],
    answers: Sequence[tuple[str, str]],
    options: Sequence[Option],
    width: int,
    *,
    wait: str | None = None,
) -> tuple[Row, ...]:
    """Return the jobs it is about, both answers with the places marked where they differ, and the choices below.

    `wait` says why there are none yet.
    """
    out = [*wrapped(why, width, "warn")]
    if jobs:
        out += wrapped(f"jobs: {', '.join(jobs)}", width, "warn")
    out.append(row(""))
    if not answers:
        out.append(row("no answer of the provider is kept", "dim"))
    elif len(answers) == 1:
        out += [row(answers[0][0], "head"), *body_rows(answers[0][1], width)]
    else:
        out += _both(answers[0], answers[1], width)
    out += [row(""), *(wrapped(wait, width, "warn") if wait else _choices(options, width))]
    return tuple(out)


def _both(left: tuple[str, str], right: tuple[str, str], width: int) -> Iterator[Row]:
    one, more = capped(left[1])
    other, yet_more = capped(right[1])
    if more or yet_more:
        yield row(f"first answer: {more or 'whole'}; second answer: {yet_more or 'whole'}", "warn")
    found = places(one, other)
    if found is not None:
        differing = sum(place.differs for place in found)
        yield row(f"{differing} of {len(found)} places differ", "dim")
    draw = _beside if width >= WIDE else _stacked
    yield from draw((left[0], one), (right[0], other), found, width)


def _beside(
    left: tuple[str, str], right: tuple[str, str], found: tuple[Place, ...] | None, width: int
) -> Iterator[Row]:
    half = (width - 3) // 2
    titles = ([one.cells[0][0] for one in wrapped(title, half)] for title in (left[0], right[0]))
    for a, b in zip_longest(*titles, fillvalue=""):
        yield Row(((a, "head", half), ("", "dim", 1), (b, "head", 0)))
    if found is None:
        lines = zip_longest(block(laid_out(left[1])).plain.split("\n"), block(laid_out(right[1])).plain.split("\n"))
        pairs = [(one, other, one != other) for one, other in lines]
    else:
        pairs = [(_shown(place, place.left), _shown(place, place.right), place.differs) for place in found]
    for one, other, differs in pairs:
        kind: Kind = "mark" if differs else "data"
        front = (MARK if differs else "  ") + BAR
        room = max(half - len(front), 8)
        for a, b in zip_longest(_chopped(one, room), _chopped(other, room), fillvalue=""):
            yield Row(((front + a, kind, half), ("", "dim", 1), (BAR + b, kind, 0)))
            front = "  " + BAR


def _stacked(
    left: tuple[str, str], right: tuple[str, str], found: tuple[Place, ...] | None, width: int
) -> Iterator[Row]:
    if found is None:
        for title, text in (left, right):
            yield from (*wrapped(title, width, "head"), *body_rows(text, width))
        return
    yield from (*wrapped(f"1 {left[0]}", width, "head"), *wrapped(f"2 {right[0]}", width, "head"))
    for place in found:
        if not place.differs:
            yield from _marked("  ", _shown(place, place.left), "data", width)
            continue
        # Under each other, so that one look is enough: the answers as wholes would not fit on the screen.
        yield from _marked("≠1", _shown(place, place.left), "mark", width)
        yield from _marked("≠2", _shown(place, place.right), "mark", width)


def _marked(mark: str, text: str, kind: Kind, width: int) -> Iterator[Row]:
    for piece in _chopped(text, max(width - len(mark) - len(BAR), 8)):
        yield Row(((mark + BAR + piece, kind, 0),))
        mark = " " * len(mark)


def _shown(place: Place, value: str | None) -> str:
    return f"{place.pointer or '(all)'}: {'(not there)' if value is None else value}"


def _chopped(text: str | None, room: int) -> list[str]:
    return chop_cells(block(text or "").plain.replace("\n", "␊"), room) or [""]


def _choices(options: Sequence[Option], width: int) -> Iterator[Row]:
    if not options:
        yield row("nothing is to be decided about it now", "dim")
        return
    yield row("v decides; a person may choose:", "head")
    for option in options:
        needs = "".join(f" --{need} …" for need in option.needs)
        yield row(f"  {option.choice.value}{needs}  leads to {option.to.value}", "strong")
        yield from wrapped(option.consequence, width, indent=4)
        yield row(f"    sends: {option.sends or 'nothing'}", "dim")
