"""The filter language of the console: which operations a person wants to see, as one line of text.

    state:open,failed !by:agent-7 tag:team=growth age>2h Q2V8W9AB

Terms stand apart by spaces and must all hold; of several values with commas between them one must. ``!`` or ``-``
before a term turns it round. A value with spaces or commas stands in quotes. One word without a key is the beginning
of an operation id, of a job id or of a trace id, or the last eight characters of an operation id.

`matches` says what a filter means. The store says the same in SQL, and is tested against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import Final, Literal

from opledger.errors import UsageError
from opledger.rules.decide import open_deadline
from opledger.rules.durations import parse_duration, write_duration
from opledger.rules.model import NEEDS_HUMAN, TERMINAL, Operation, State

SUFFIX: Final = 8
"""How many of an id's last characters people see and may type."""


MOST: Final = 50
"""How many terms a filter may have, and how many values one of them: more are no filter but a list."""


class FilterWrong(UsageError):
    """A filter that cannot be read; `at` is the position in the text, counted from 0, where it goes wrong."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(f"at character {at + 1}: {message}")
        self.at = at


class Key(StrEnum):
    """What a term asks about."""

    TEXT = "text"  #: a word without a key
    STATE = "state"
    CONTRACT = "contract"
    BY = "by"
    TASK = "task"
    TAG = "tag"
    CODE = "code"
    NEEDS = "needs"
    REMOTE = "remote"
    JOB = "job"
    TRACE = "trace"
    AGE = "age"
    DUE = "due"
    DEADLINE = "deadline"


SPANS: Final = (Key.AGE, Key.DUE, Key.DEADLINE)
"""Keys that are compared with a duration."""

ALIASES: Final[Mapping[str, Key]] = {"provider": Key.CONTRACT, "actor": Key.BY}
NEEDS: Final = ("me", "nobody")

_KEYS: Final[Mapping[str, Key]] = {**{key.value: key for key in Key if key is not Key.TEXT}, **ALIASES}

GROUPS: Final[Mapping[str, frozenset[State]]] = {
    "open": frozenset(State) - TERMINAL,
    "ended": TERMINAL,
    "waiting": NEEDS_HUMAN,
    "busy": frozenset(State) - TERMINAL - NEEDS_HUMAN,
}
"""Names for several states at once: not ended, ended, a person must decide, automation goes on."""

_STATES: Final[Mapping[str, frozenset[State]]] = {**GROUPS, **{state.value: frozenset({state}) for state in State}}


@dataclass(frozen=True, slots=True)
class Term:
    """One condition. A key of `SPANS` has `than` and `span`, every other one has `values`."""

    key: Key
    values: tuple[str, ...] = ()  #: one of them must fit
    negated: bool = False
    than: Literal["", "<", ">"] = ""
    span: timedelta = timedelta(0)

    def states(self) -> frozenset[State]:
        """The states that a term about states lets through; all of them for a term about something else."""
        if self.key is not Key.STATE:
            return frozenset(State)
        meant = frozenset[State]().union(*(_STATES[value] for value in self.values))
        return frozenset(State) - meant if self.negated else meant


@dataclass(frozen=True, slots=True)
class Wanted:
    """A filter: all its terms must hold. Without terms it wants everything."""

    terms: tuple[Term, ...] = ()


# --- reading ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Char:
    char: str
    plain: bool  #: not quoted, so that it may mean something
    at: int


_Word = list[_Char]


def parse(text: str) -> Wanted:
    """Read a filter. Raises FilterWrong, which says what is wrong, where, and what would be right."""
    words, unclosed = _words(text)
    if unclosed is not None:
        raise FilterWrong('this quote has no end; add a "', unclosed)
    if len(words) > MOST:
        raise FilterWrong(f"more than {MOST} terms; leave some out", words[MOST][0].at)
    terms: list[Term] = []
    for word in words:
        term = _term(word)
        if term.key is Key.TEXT and any(other.key is Key.TEXT for other in terms):
            raise FilterWrong(
                "a second word without a key; one is looked for at a time, and a text with spaces stands in quotes",
                word[0].at,
            )
        terms.append(term)
    return Wanted(tuple(dict.fromkeys(terms)))


def _words(text: str) -> tuple[list[_Word], int | None]:
    r"""Return the words, and where a quote begins that does not end. Inside quotes \" and \\ stand for " and \."""
    words: list[_Word] = []
    word: _Word | None = None
    opened: int | None = None
    at = 0
    while at < len(text):
        char = text[at]
        if opened is None and char.isspace():
            word = None
            at += 1
            continue
        if word is None:
            word = []
            words.append(word)
        if char == '"':
            opened = at if opened is None else None
            word.append(_Char("", plain=False, at=at))  # so that an empty quoted text is still a word
        elif opened is not None and char == "\\" and text[at + 1 : at + 2] in {'"', "\\"}:
            at += 1
            word.append(_Char(text[at], plain=False, at=at - 1))
        else:
            word.append(_Char(char, plain=opened is None, at=at))
        at += 1
    return words, opened


def _term(word: _Word) -> Term:
    negated = word[0].plain and word[0].char in {"!", "-"}
    rest = word[1:] if negated else word
    if not rest:
        raise FilterWrong(
            f"nothing follows the {word[0].char}; write it before a term, as in !state:failed", word[0].at
        )
    stop = next((n for n, one in enumerate(rest) if one.plain and one.char in {":", "<", ">"}), None)
    if stop is None or not all(one.plain for one in rest[:stop]):
        return Term(Key.TEXT, (_value(rest, rest[0].at),), negated)
    name = "".join(one.char for one in rest[:stop])
    key = _key(name, rest[0].at)
    sign, value = rest[stop], rest[stop + 1 :]
    if key in SPANS:
        return _span_term(key, sign, value, negated=negated)
    if sign.char != ":":
        raise FilterWrong(f"{key} is not compared with {sign.char}; write {key}: and a value", sign.at)
    return Term(key, _values(key, value, sign.at), negated)


def _key(name: str, at: int) -> Key:
    found = _KEYS.get(name.lower())
    if found is not None:
        return found
    if not name:
        raise FilterWrong("a key is missing before this sign, such as state", at)
    raise FilterWrong(
        f"{_shown(name)} is not a key; {_nearest(name, _KEYS)} (a job id with a colon in it stands in quotes)", at
    )


def _span_term(key: Key, sign: _Char, value: _Word, *, negated: bool) -> Term:
    text = "".join(one.char for one in value)
    if sign.char == ":":
        raise FilterWrong(f"{key} is compared with a duration: write {key}>2h or {key}<10m", sign.at)
    try:
        span = parse_duration(text)
    except ValueError as wrong:
        at = value[0].at if value else sign.at
        raise FilterWrong(f"{wrong}; write {key}{sign.char}2h, for example", at) from None
    return Term(key, (), negated, "<" if sign.char == "<" else ">", span)


def _values(key: Key, word: _Word, at: int) -> tuple[str, ...]:
    parts: list[_Word] = [[]]
    for one in word:
        if one.plain and one.char == ",":
            parts.append([])
        else:
            parts[-1].append(one)
    if len(parts) > MOST:
        raise FilterWrong(f"more than {MOST} values; leave some out", at)
    values: dict[str, None] = {}
    for part in parts:
        start = part[0].at if part else at
        values[_checked(key, _value(part, start, key), start)] = None
        at = part[-1].at + 1 if part else at
    return tuple(values)


def _value(part: _Word, at: int, key: Key | None = None) -> str:
    value = "".join(one.char for one in part)
    if not value:
        raise FilterWrong(f"{'a text' if key is None else f'{key}:'} needs a value{_example(key)}", at)
    return value


def _example(key: Key | None) -> str:
    examples = {Key.STATE: "state:open", Key.TAG: "tag:team=growth", Key.NEEDS: "needs:me"}
    return f", such as {examples[key]}" if key in examples else ""


def _checked(key: Key, value: str, at: int) -> str:
    """Return the value as it is kept. Raises FilterWrong where the key has no such value."""
    known: Iterable[str] = _STATES if key is Key.STATE else NEEDS if key is Key.NEEDS else ()
    if key not in {Key.STATE, Key.NEEDS}:
        if key is Key.TAG and value.startswith("="):
            raise FilterWrong("the tag has no name; write tag:name=value or tag:name", at)
        return value
    plain = value.lower()
    if plain not in known:
        what = "a state" if key is Key.STATE else "what somebody can need"
        raise FilterWrong(f"{_shown(value)} is not {what}; {_nearest(value, known)}", at)
    return plain


def _nearest(wrong: str, known: Iterable[str]) -> str:
    names = list(known)
    near = get_close_matches(wrong.lower(), names, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"


def _shown(text: str) -> str:
    return f"{text[:40]!a}"


# --- writing ----------------------------------------------------------------------------------------------------


def text_of(wanted: Wanted) -> str:
    """Write a filter in the one way that `parse` reads back as the same filter."""
    return " ".join(map(text_of_term, wanted.terms))


def text_of_term(term: Term) -> str:
    """Write one term, as it stands in the text of the whole filter."""
    sign = "!" if term.negated else ""
    if term.key in SPANS:
        return f"{sign}{term.key}{term.than}{write_duration(term.span)}"
    if term.key is Key.TEXT:
        return sign + _quoted(term.values[0], bare=True)
    return f"{sign}{term.key}:{','.join(map(_quoted, term.values))}"


def _quoted(value: str, *, bare: bool = False) -> str:
    special = any(char.isspace() or char in '",' for char in value)
    if bare:
        special = special or value[:1] in {"!", "-"} or any(char in ":<>" for char in value)
    if not special:
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# --- meaning ----------------------------------------------------------------------------------------------------


def matches(op: Operation, wanted: Wanted, now: datetime) -> bool:
    """Whether an operation is wanted; ages and waits are counted from `now`."""
    return all(_holds(op, term, now) is not term.negated for term in wanted.terms)


def _holds(op: Operation, term: Term, now: datetime) -> bool:
    if term.key in SPANS:
        return _in_span(op, term, now)
    fits = _FITS[term.key]
    return any(fits(op, value) for value in term.values)


def _in_span(op: Operation, term: Term, now: datetime) -> bool:
    if term.key is Key.AGE:
        return _compared(now - op.created_at, term)
    if term.key is Key.DUE:
        at = None if op.next is None else op.next.at
    else:
        running = open_deadline(op)
        at = None if running is None else running[1]
    return at is not None and _compared(at - now, term)


def _compared(span: timedelta, term: Term) -> bool:
    return span < term.span if term.than == "<" else span > term.span


def _means_text(op: Operation, text: str) -> bool:
    if op.operation_id.startswith(text) or (op.remote_job_id or "").startswith(text) or op.trace_id.startswith(text):
        return True
    return len(text) == SUFFIX and op.operation_id[-SUFFIX:] in {text, text.upper()}


def _has_tag(op: Operation, text: str) -> bool:
    name, equals, value = text.partition("=")
    return op.tags.get(name) == value if equals else name in op.tags


_FITS: Final[Mapping[Key, Callable[[Operation, str], bool]]] = {
    Key.TEXT: _means_text,
    Key.STATE: lambda op, value: op.state in _STATES[value],
    Key.CONTRACT: lambda op, value: op.contract == value,
    Key.BY: lambda op, value: op.requested_by == value,
    Key.TASK: lambda op, value: op.task == value,
    Key.TAG: _has_tag,
    Key.CODE: lambda op, value: op.attention is not None and op.attention.code == value,
    Key.NEEDS: lambda op, value: (op.attention is not None) is (value == "me"),
    Key.REMOTE: lambda op, value: op.remote_state == value,
    Key.JOB: lambda op, value: (op.remote_job_id or "").startswith(value),
    Key.TRACE: lambda op, value: op.trace_id.startswith(value),
}


# --- completing -------------------------------------------------------------------------------------------------

_OFFERED: Final = (
    *(f"{key}:" for key in (*Key, *ALIASES) if key is not Key.TEXT and key not in SPANS),
    *("age>10m", "age>1h", "age>1d", "age<10m", "age<1h", "due<1m", "due<10m", "deadline<10m", "deadline<1h"),
)


def complete(text: str, cursor: int, vocabulary: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Offer whole new texts for the term under the cursor: keys, states, and the `vocabulary` of other keys.

    `vocabulary` has values by key (contract, by, task, tag, code …). Nothing is offered where the term is as it
    should be, or where nothing is known.
    """
    start, stop = _around(text, cursor)
    typed = text[start:cursor]
    sign = typed[:1] if typed[:1] in {"!", "-"} else ""
    offers = (text[:start] + sign + term + text[stop:] for term in _offered(typed[len(sign) :], vocabulary))
    return tuple(offer for offer in dict.fromkeys(offers) if offer != text)


def _around(text: str, cursor: int) -> tuple[int, int]:
    """Return where the term under the cursor begins and ends."""
    start, quoted = 0, False
    for at, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif char.isspace() and not quoted:
            if at >= cursor:
                return start, at
            start = at + 1
    return start, len(text)


def _offered(typed: str, vocabulary: Mapping[str, Sequence[str]]) -> list[str]:
    """Return terms that go on from what is typed; those that begin like it stand before those that contain it."""
    name, colon, rest = typed.partition(":")
    if not colon:
        return [term for term in _OFFERED if term.startswith(typed.lower())]
    key = _KEYS.get(name.lower())
    if key is None:
        return []
    done, comma, part = rest.rpartition(",")
    part = part.replace('"', "").lower()
    known: Sequence[str] = vocabulary.get(key, ())
    if key is Key.STATE:
        known = tuple(_STATES)
    elif key is Key.NEEDS:
        known = NEEDS
    fitting = [value for value in known if value and part in value.lower()]
    fitting.sort(key=lambda value: not value.lower().startswith(part))
    taken = set(done.split(","))
    return [f"{name}:{done}{comma}{value}" for value in map(_quoted, fitting) if value not in taken]
