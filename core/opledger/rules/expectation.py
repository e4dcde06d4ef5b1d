"""What a requester expects of a result: a condition that is tried on its summary, or a remark for people.

A text is a condition where it begins with ``cel:``; then it must be one, and a slip in it is refused at submit. It is
one, too, where it reads as one by itself: CEL that uses nothing but the words below and says yes or no, such as
``count >= 28``. Any other text is a remark: people see it, and nothing is tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from opledger.rules import cel_names
from opledger.rules.model import ItemSummary
from opledger.rules.values import Condition, ConditionError

PREFIX: Final = "cel:"

NAMES: Final = frozenset({"count", "size", "content_type", "items"})
"""What a condition may speak of: the number of records, of bytes, the type as the provider named it, and the items as
``items.total``, ``items.succeeded`` and ``items.failed``."""

_SAMPLE: Final = {
    "count": 1,
    "size": 1,
    "content_type": "text/csv",
    "items": {"total": 1, "succeeded": 1, "failed": 0},
}


@dataclass(frozen=True, slots=True)
class Summary:
    """What is known of a result once it is read. None: not known, because its format does not tell."""

    size: int
    content_type: str | None = None
    count: int | None = None
    items: ItemSummary | None = None

    def facts(self) -> dict[str, Any]:
        """Return what is known, under the names that conditions use."""
        items = self.items
        found = {
            "count": self.count,
            "size": self.size,
            "content_type": self.content_type,
            "items": None
            if items is None
            else {"total": items.total, "succeeded": items.succeeded, "failed": items.failed},
        }
        return {name: value for name, value in found.items() if value is not None}


def condition_of(text: str | None) -> Condition | None:
    """Return the condition that an expectation is, or None for a remark.

    Raises ValueError where it begins with ``cel:`` and is no condition.
    """
    if text is None:
        return None
    if text.startswith(PREFIX):
        return parse(text.removeprefix(PREFIX).strip())
    try:
        found = parse(text)
    except ValueError:
        return None
    return found if cel_names.free_names(text) & NAMES else None


def parse(text: str) -> Condition:
    """Read a condition over a summary. Raises ValueError for what is none, or can say neither yes nor no."""
    found = Condition.parse(text, NAMES)
    try:
        found.holds(_SAMPLE)
    except ConditionError as error:
        if "not true or false" in str(error):
            raise ValueError(f"the condition can never hold: {error}") from error
    return found


def unmet(condition: Condition, summary: Summary, whose: str) -> str | None:
    """Try a condition; return a sentence where it does not hold or cannot be tried, None where it holds.

    What cannot be tried is as good as not met: a person decides, nobody guesses.
    """
    facts = summary.facts()
    used = sorted(cel_names.free_names(condition.text) & NAMES)
    try:
        if condition.holds(facts):
            return None
    except ConditionError as error:
        unknown = [name for name in used if name not in facts]
        why = f"{' and '.join(unknown)} cannot be told of this result" if unknown else str(error)
        return f"what {whose} expects could not be tried: {condition.text} ({why})"
    return f"what {whose} expects does not hold: {condition.text} ({_told(used, facts)})"


def problems(expectation: str | None, expected: Condition | None, summary: Summary) -> tuple[str, ...]:
    """Return what a result falls short of: first of what the contract expects, then of what its requester does."""
    wanted = ((expected, "the contract"), (condition_of(expectation), "the requester"))
    found = (unmet(condition, summary, whose) for condition, whose in wanted if condition is not None)
    return tuple(one for one in found if one is not None)


def _told(names: list[str], facts: Mapping[str, Any]) -> str:
    told = []
    for name in names:
        value = facts.get(name, "not known")
        if isinstance(value, Mapping):
            value = ", ".join(f"{number} {word}" for word, number in value.items())
        told.append(f"{name}: {value}")
    return "; ".join(told)
