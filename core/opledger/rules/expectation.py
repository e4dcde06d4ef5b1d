"""What a requester expects of a result: a condition that is tried on its summary, or a remark for people.

A text is a condition where it begins with ``cel:``, or where it reads as one by itself: CEL that uses nothing but the
words below and says yes or no, such as ``count >= 28``. A text that begins with ``remark:``, and any plain sentence, is
a remark: people see it, and nothing is tried. What only looks like a condition (``cuont >= 28``) is a slip: it is
refused at submit, because nobody would find out later that nothing was tried.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal

from opledger.rules import cel_names, jsontext
from opledger.rules import evidence as e
from opledger.rules.contract import Contract
from opledger.rules.model import ItemSummary, Operation
from opledger.rules.results import Verdict, Whole
from opledger.rules.values import Condition, ConditionError

PREFIX: Final = "cel:"
REMARK: Final = "remark:"

NAMES: Final = frozenset({"count", "size", "content_type", "items"})
"""What a condition may speak of: the number of records, of bytes, the type as the provider named it, and the items as
``items.total``, ``items.succeeded`` and ``items.failed``."""

_WORDS: Final = r"(?<![\w.])(?:count|size|content_type|items(?:\.\w+)?)(?!\w)"
_QUOTED: Final = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'")
_SLIPS: Final = re.compile(
    rf"""
      [\w)\]"']\s*(?:==|!=|<=|>=|=<|=>|&&|\|\|)\s*[\w("'\[!+-]   # an operator with something on both sides of it
    | {_WORDS}\s*[=<>!]                                         # one of our words, compared with something
    | [\w)"']\s*[<>]\s*{_WORDS}
    | \.(?:contains|startsWith|endsWith|matches|exists|exists_one|all|filter|map|size)\(
    """,
    re.VERBOSE,
)
"""What nobody writes into a sentence. Tried on a text whose quoted parts are empty."""

_SAMPLE: Final = {
    "count": 1,
    "size": 1,
    "content_type": "text/csv",
    "items": {"total": 1, "succeeded": 1, "failed": 0},
}
_SAMPLES: Final = (
    _SAMPLE,
    {
        "count": 7919,
        "size": 1048583,
        "content_type": "application/json; charset=utf-8",
        "items": {"total": 97, "succeeded": 89, "failed": 8},
    },
)
"""Two summaries that have nothing in common: what fails on both by its kinds or names fails on every result."""


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
    if text is None or text.startswith(REMARK):
        return None
    if text.startswith(PREFIX):
        return parse(text.removeprefix(PREFIX).strip())
    if re.search(_WORDS, text) is None:  # reading CEL costs more than that
        return None
    try:
        found = parse(text)
    except ValueError:
        return None
    return found if cel_names.free_names(text) & NAMES else None


def check(text: str | None) -> None:
    """Raise ValueError for an expectation that is none: a condition with a slip in it."""
    if text is None or text.startswith(REMARK):
        return
    slip = "this looks like a condition, and none can be tried"
    bare = _QUOTED.sub("''", text)
    try:
        condition = condition_of(text)
        if condition is not None:
            _try(condition)
            return
        if _SLIPS.search(bare) is None and not _is_expression(text):
            return
        parse(text)
        slip = f"it speaks of none of {', '.join(sorted(NAMES))}"
    except ValueError as error:
        slip = str(error)
    raise ValueError(f"{slip}; correct it, or write {REMARK} in front of what is only meant for people")


def _is_expression(text: str) -> bool:
    """Tell whether this is whole CEL that compares something, or speaks of a result: no sentence is that."""
    if re.search(r"[<>]|" + _WORDS, text) is None:
        return False
    import cel

    try:
        cel.compile(text)
    except ValueError:
        return False
    return True


def _try(condition: Condition) -> None:
    """Raise ValueError where a condition cannot be tried on any result, such as ``items.succeded > 1``."""
    why = ""
    for sample in _SAMPLES:
        try:
            condition.holds(sample)
        except ConditionError as error:
            why = str(error)
        else:
            return
    raise ValueError(f"it could not be tried on any result: {why}; of items there are total, succeeded and failed")


Kind = Literal["checked", "remark"]


@lru_cache(maxsize=1024)
def kind(text: str | None) -> Kind | None:
    """Return how an expectation is taken; None where there is none."""
    if not text:
        return None
    try:
        return "remark" if condition_of(text) is None else "checked"
    except ValueError:  # a record of another version; it is said of its result that it could not be tried
        return "checked"


def parse(text: str) -> Condition:
    """Read a condition over a summary. Raises ValueError for what is none, or can say neither yes nor no."""
    found = Condition.parse(text, NAMES)
    try:
        found.holds(_SAMPLE)
    except ConditionError as error:
        if "not true or false" in str(error):
            raise ValueError(f"the condition can never hold: {error}") from error
    return found


def parse_whole(text: str) -> Condition:
    """Read a condition that some result can meet or miss. Raises ValueError as `parse`, and for a slip in a name."""
    found = parse(text)
    _try(found)
    return found


def unmet(condition: Condition, facts: Mapping[str, Any], whose: str) -> str | None:
    """Try a condition on what is known. Return None where it holds, else a sentence that says why not.

    What cannot be tried is as good as not met: a person decides, nobody guesses.
    """
    used = sorted(cel_names.free_names(condition.text) & NAMES)
    try:
        if condition.holds(facts):
            return None
    except ConditionError as error:
        unknown = [name for name in used if name not in facts]
        why = f"{' and '.join(unknown)} cannot be told of this result" if unknown else str(error)
        return f"what {whose} expects could not be tried: {condition.text} ({why})"
    return f"what {whose} expects does not hold: {condition.text} ({_told(used, facts)})"


def problems(expectation: str | None, expected: Condition | None, summary: Summary | None) -> tuple[str, ...]:
    """Return what a result falls short of: first of what the contract expects, then of what its requester does.

    Without a summary there is no result at all, and nothing can be told of it.
    """
    facts = {} if summary is None else summary.facts()
    found = [] if expected is None else [unmet(expected, facts, "the contract")]
    try:
        condition = condition_of(expectation)
    except ValueError as error:  # submit refuses it; a record of another version may have it
        found.append(f"what the requester expects could not be tried: {error}")
    else:
        found += [] if condition is None else [unmet(condition, facts, "the requester")]
    return tuple(one for one in found if one is not None)


def tried(op: Operation, contract: Contract, whole: Whole, verdict: Verdict | None) -> Whole:
    """Hold a result that was judged against what is expected of it; `verdict` is that over the result itself.

    A job whose items all failed has failed whatever was expected of it.
    """
    if whole.all_failed:
        return whole
    summary = None
    if verdict is not None or whole.items is not None:
        count = None if verdict is None else verdict.count
        if count is None and whole.items is not None:
            count = whole.items.total
        size, kind = (0, None) if verdict is None else (verdict.size, verdict.content_type)
        summary = Summary(size, kind, count, whole.items)
    short = problems(op.expectation, None if contract.result is None else contract.result.expect, summary)
    return whole if not short else replace(whole, ok=False, problems=(*short, *whole.problems))


def tried_inline(op: Operation, contract: Contract, content: bytes, content_type: str | None) -> tuple[str, ...]:
    """Return what a result falls short of that came inside an answer. The items of a JSON list are its records."""
    expected = None if contract.result is None else contract.result.expect
    if expected is None and op.expectation is None:
        return ()
    try:
        document = jsontext.loads(content)
    except jsontext.JsonError:
        document = None
    count = len(document) if isinstance(document, list) else None
    return problems(op.expectation, expected, Summary(len(content), content_type, count))


def nothing_to_fetch(op: Operation) -> e.ResultAccepted | e.ResultInvalid:
    """Return what is said of a success that has no result to fetch: it has none, or it came with the create answer."""
    short = problems(op.expectation, None, None) if op.result is None else op.result.problems
    if short and (op.result is None or not op.result.validated):
        return e.ResultInvalid(why="; ".join(short), problems=short, result=op.result)
    return e.ResultAccepted(result=op.result)


def word(text: str) -> str:
    """Say how an expectation is taken: ``tried on the result``, or ``kept as a remark, not checked``."""
    try:
        return "kept as a remark, not checked" if condition_of(text) is None else "tried on the result"
    except ValueError:
        return "cannot be tried"


def _told(names: list[str], facts: Mapping[str, Any]) -> str:
    told = []
    for name in names:
        value = facts.get(name, "not known")
        if isinstance(value, Mapping):
            value = ", ".join(f"{number} {word}" for word, number in value.items())
        told.append(f"{name}: {value}")
    return "; ".join(told)
