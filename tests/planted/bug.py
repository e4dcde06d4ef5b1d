"""What a planted bug is, and what came of looking for it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

from tests.model.designs import Patch

Search = Callable[[Patch, float], "Found"]
"""Looks for a bug: with its patch, and for so many seconds of CPU at most."""


@dataclass(frozen=True, slots=True)
class Found:
    """What came of one look."""

    what: str | None  #: what was broken, in words; None where nobody noticed
    where: str  #: the seed, scenario, table or point, as the harness takes it
    seconds: float  #: of CPU, children included
    broke: frozenset[str] = frozenset()  #: the invariants, where the harness names them


@dataclass(frozen=True, slots=True)
class Look:
    """One harness, pointed at a bug."""

    harness: str
    search: Search
    breaks: Collection[str] = ()  #: by one of these it must show; whatever else breaks is another bug


@dataclass(frozen=True, slots=True)
class Bug:
    """A planted bug. The cheapest harness stands first."""

    name: str
    looks: tuple[Look, ...]
    patch: Patch = nullcontext  #: nothing where the harness plants it in a process of its own
    issue: str = ""  #: the finding of reliability.md §0 that it is an example of
    quick: bool = False  #: in the short test run

    def __post_init__(self) -> None:
        assert self.looks, self.name


BUDGET: Final = 1_800.0
"""Seconds of CPU after which a look has found nothing (worst case of the design: half an hour)."""


def hunt(bug: Bug, look: Look, seconds: float = BUDGET) -> Found:
    """Look for a bug. What shows by another invariant than it should counts as not found: that was no proof."""
    found = look.search(bug.patch, seconds)
    if found.what is not None and look.breaks and not found.broke & set(look.breaks):
        words = f"shows as {', '.join(sorted(found.broke))}, not as {', '.join(look.breaks)}: {found.what}"
        return Found(None, f"{found.where} ({words})", found.seconds)
    return found
