"""What the contract format knows and this version cannot drive.

Such keys are read as strictly as all others, and then refused, so that a contract never promises what does not happen.
A version that learns one of them deletes its line here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from opledger.rules.files.reader import Problems


@dataclass(frozen=True, slots=True)
class NotYet:
    """One thing that cannot be driven: at this key, where its raw value fits."""

    key: tuple[str, ...]
    fits: Callable[[Any], bool]
    what: str


def _given(value: Any) -> bool:
    return True


def _is(word: str) -> Callable[[Any], bool]:
    return lambda value: bool(value == word)


NOT_YET: Final[tuple[NotYet, ...]] = (
    NotYet(("auth", "kind"), _is("sigv4"), 'kind = "sigv4"'),
    NotYet(("create", "body"), _is("multipart"), 'body = "multipart"'),
    NotYet(("create", "body"), _is("file"), 'body = "file"'),
    NotYet(("create", "steps"), _given, "a create of several steps"),
    NotYet(("create", "idempotency", "mechanism"), _is("two_phase"), 'mechanism = "two_phase"'),
    NotYet(("resume",), _given, "a resume call"),
    NotYet(("result", "auth", "kind"), _is("sigv4"), 'kind = "sigv4"'),
)


def check(document: Mapping[str, Any], problems: Problems) -> None:
    """Note every thing in the document that this version cannot drive."""
    for entry in NOT_YET:
        value: Any = document
        for part in entry.key:
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None and entry.fits(value):
            problems.add(
                entry.key,
                f"{entry.what} cannot be driven by this version yet; remove it or wait for the version that can",
            )
