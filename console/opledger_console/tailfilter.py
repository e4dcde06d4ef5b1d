"""The filter of the tail: the language of the operations list, as far as it can be asked of an event.

    kind:CallLost,Accepted contract:reports !by:agent-7 timeout

Terms stand apart by spaces and must all hold; of several values with commas between them one must. ``!`` or ``-``
before a term turns it round, a value with spaces stands in quotes. A word without a key is the beginning of an
operation id, a job id or a trace id, the last eight characters of an operation id, or a part of what the event says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from opledger.rules.evidence import KINDS
from opledger.rules.filters import GROUPS, SUFFIX, FilterWrong
from opledger.rules.model import State
from opledger.rules.shapes import Event, Json
from opledger.store.tail import TailEvent

TEXT: Final = ""
"""The key of a word that has none."""

KEYS: Final = ("contract", "by", "kind", "actor", "state")
_ALIASES: Final = {"provider": "contract"}
_ELSEWHERE: Final = frozenset(
    {"age", "due", "deadline", "task", "tag", "code", "needs", "remote", "job", "trace"},
)
_WORD: Final = re.compile(r"""(?P<sign>[!-]?)(?:(?P<key>[A-Za-z_]*)(?P<colon>[:<>]))?(?P<value>(?:"[^"]*"|[^\s"])*)""")


@dataclass(frozen=True, slots=True)
class TailTerm:
    """One condition: `key` (`TEXT` for a word without one) has one of the `values`."""

    key: str
    values: tuple[str, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class TailWanted:
    """A filter: all its terms must hold. Without terms it wants everything."""

    terms: tuple[TailTerm, ...] = ()


def parse(text: str) -> TailWanted:
    """Read a filter. Raises FilterWrong, which says what is wrong and where."""
    if text.count('"') % 2:
        raise FilterWrong('this quote has no end; add a "', text.rindex('"'))
    terms: list[TailTerm] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        found = _WORD.match(text, at)
        if found is None or found.end() == at:
            raise FilterWrong("a term begins with a key or a word", at)
        terms.append(_term(found))
        at = found.end()
    return TailWanted(tuple(dict.fromkeys(terms)))


def _term(found: re.Match[str]) -> TailTerm:
    negated, colon = bool(found["sign"]), found["colon"]
    at = found.start() + len(found["sign"])
    if colon is None:
        value = found["value"].replace('"', "")
        if not value:
            raise FilterWrong("nothing follows; write a word, or a key and a value such as kind:CallLost", at)
        return TailTerm(TEXT, (value,), negated)
    name = found["key"].lower()
    key = _ALIASES.get(name, name)
    if key not in KEYS:
        raise FilterWrong(_unknown(name), at)
    if colon != ":":
        raise FilterWrong(f"{key} is not compared with {colon}; write {key}: and a value", found.start("colon"))
    values = tuple(part.replace('"', "") for part in re.findall(r'(?:"[^"]*"|[^,"])+', found["value"]))
    if not values or not all(values):
        raise FilterWrong(f"{key}: needs a value", found.start("value"))
    return TailTerm(key, tuple(_checked(key, value, found.start("value")) for value in values), negated)


def _unknown(name: str) -> str:
    if name in _ELSEWHERE:
        return f"{name} can be asked of an operation and not of an event; events have {', '.join(KEYS)}"
    near = get_close_matches(name, KEYS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(KEYS)}"
    return f"{name[:40]!a} is no key of an event; {hint} (a word with a colon in it stands in quotes)"


def _checked(key: str, value: str, at: int) -> str:
    known: Iterable[str]
    if key == "state":
        known = [*GROUPS, *State]
        if value.lower() in known:
            return value.lower()
    elif key == "kind":
        known = KINDS
        if any(kind.lower().startswith(value.lower()) for kind in known):
            return value
    else:
        return value
    near = get_close_matches(value, list(known), n=1, cutoff=0.4)
    raise FilterWrong(f"{value[:40]!a} is no {key}" + (f"; did you mean {near[0]}?" if near else ""), at)


def matches(one: TailEvent, wanted: TailWanted) -> bool:
    """Whether an event is wanted. `state` asks where the event led; `kind` may be the beginning of a kind."""
    return all(any(_holds(one, term.key, value) for value in term.values) is not term.negated for term in wanted.terms)


def _holds(one: TailEvent, key: str, value: str) -> bool:
    event = one.event
    if key == "contract":
        return one.contract == value
    if key == "by":
        return one.requested_by == value
    if key == "actor":
        return value in (event.actor, event.actor_kind)
    if key == "kind":
        return event.kind.lower().startswith(value.lower())
    if key == "state":
        return event.to_state == value or event.to_state in GROUPS.get(value, ())
    return _means_text(one, value)


def _means_text(one: TailEvent, text: str) -> bool:
    trace = (one.event.data or {}).get("trace_id")
    names = (one.operation_id, one.event.remote_job_id, trace)
    return (
        any(isinstance(name, str) and name.startswith(text) for name in names)
        or (len(text) == SUFFIX and one.operation_id[-SUFFIX:].upper() == text.upper())
        or text.lower() in said(one.event).lower()
    )


def said(event: Event) -> str:
    """Return what an event says besides its kind: a person's reason, why, the provider's word, the call, the cause."""
    data = event.data
    if data is None:
        return event.reason or "the bytes of this event cannot be read"
    words = (event.reason, data.get("why"), data.get("text"), _own_words(event.kind, data), data.get("remote_state"))
    return next((one for one in words if isinstance(one, str) and one), event.cause)


def _own_words(kind: str, data: Json) -> str:
    """Return what the evidence of some kinds is about."""
    if kind == "Submitted":
        return f"by {data.get('requested_by', '')}" + (f", task {data['task']}" if data.get("task") else "")
    if kind == "CallSent":
        return f"{data.get('action', '')}: {data.get('method', '')} {data.get('url', '')}"
    if kind == "Accepted":
        how = data.get("how")
        return f"job {data.get('job_id', '')}" + (f" ({how})" if how else "")
    if kind == "Decided":
        return str(data.get("choice", ""))
    if kind == "DeadlinePassed":
        return f"{data.get('which', '')} deadline"
    if kind == "CancelAnswered":
        return str(data.get("verdict", ""))
    result = data.get("result")
    if isinstance(result, dict):
        size = result.get("size")  # whatever stands there, where somebody has changed the bytes
        number = f"{size:,}" if isinstance(size, int) else str(size)
        return f"{number} bytes at {result.get('location') or 'no place'}"
    return ""


def complete(text: str, values: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Offer whole new texts for the last term; `values` has contracts, requesters and actors by key."""
    start = max(text.rfind(" ") + 1, 0)
    typed = text[start:]
    sign = typed[:1] if typed[:1] in {"!", "-"} else ""
    name, colon, value = typed[len(sign) :].partition(":")
    if not colon:
        return tuple(f"{text[:start]}{sign}{key}:" for key in KEYS if name and key.startswith(name.lower()))
    key = _ALIASES.get(name.lower(), name.lower())
    done, comma, part = value.rpartition(",")
    known: Iterable[str] = values.get(key, ())
    if key == "state":
        known = [*GROUPS, *State]
    elif key == "kind":
        known = KINDS
    fitting = [one for one in known if one.lower().startswith(part.lower()) and one != part]
    return tuple(f"{text[:start]}{sign}{name}:{done}{comma}{_quoted(one)}" for one in fitting)


def _quoted(value: str) -> str:
    return f'"{value}"' if any(char.isspace() or char == "," for char in value) else value
