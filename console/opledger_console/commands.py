"""The ``:`` command line, read: which words there are, what they take, and how they go on. No screen, no ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, Literal

from opledger.errors import UsageError
from opledger.rules import filters
from opledger_console import tailfilter

Takes = Literal["nothing", "filter", "tail filter", "topic", "operation", "theme", "name", "view", "text"]


@dataclass(frozen=True, slots=True)
class Verb:
    """One word of the command line: what it takes, whether it must be given, and what it does."""

    takes: Takes
    needed: bool
    does: str


VERBS: Final[Mapping[str, Verb]] = {
    "inbox": Verb("nothing", False, "what waits for a person"),
    "ops": Verb("filter", False, "operations, those of a filter"),
    "providers": Verb("nothing", False, "providers and workers"),
    "tasks": Verb("nothing", False, "operations by task"),
    "tail": Verb("tail filter", False, "events as they come, those of a filter"),
    "audit": Verb("nothing", False, "verify the journal"),
    "find": Verb("text", True, "find an operation by any id, fingerprint or token"),
    "open": Verb("operation", True, "open an operation by its id or its last 8 characters"),
    "help": Verb("topic", False, "keys and topics"),
    "theme": Verb("theme", True, "dress the console"),
    "save": Verb("name", True, "keep this filter and order under a name"),
    "view": Verb("view", True, "go to what was kept under a name"),
    "q": Verb("nothing", False, "quit"),
}

ALIASES: Final[Mapping[str, str]] = {
    "operations": "ops", "list": "ops", "escalations": "inbox", "provider": "providers", "workers": "providers",
    "show": "open", "explain": "open", "events": "tail", "verify": "audit", "task": "tasks", "quit": "q", "exit": "q",
    "?": "help",
}  # fmt: skip
"""What the commands of ``opledger`` are called, and what people type out of habit."""


class CommandWrong(UsageError):
    """A line that cannot be carried out; the message says what would be right."""


@dataclass(frozen=True, slots=True)
class Command:
    """What was asked for: one of `VERBS`, and the rest of the line (a filter, an id, a name), empty where none."""

    verb: str
    rest: str = ""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the completion knows besides the verbs."""

    filters: Mapping[str, Sequence[str]] = field(default_factory=dict)  #: values by filter key: contract, by, task …
    themes: Sequence[str] = ()
    views: Sequence[str] = ()
    topics: Sequence[str] = ()


def parse(text: str) -> Command:
    """Read a line, with or without its ``:``. Raises CommandWrong, and FilterWrong for a filter that cannot be read.

    A filter may begin with ``/``, as elsewhere: ``:ops /state:failed``.
    """
    word, _, rest = text.strip().removeprefix(":").strip().partition(" ")
    rest = rest.strip()
    if not word:
        raise CommandWrong(f"a command is missing; there are {', '.join(VERBS)}")
    name = ALIASES.get(word.lower(), word.lower())
    verb = VERBS.get(name)
    if verb is None:
        raise CommandWrong(f"{word[:40]!a} is no command; {_nearest(word)}")
    if verb.takes == "nothing" and rest:
        raise CommandWrong(f"{name} takes nothing more, and {rest[:40]!a} follows it")
    if verb.needed and not rest:
        raise CommandWrong(f"{name} needs a {verb.takes}: {verb.does}")
    if verb.takes in ("operation", "theme") and len(rest.split()) > 1:
        raise CommandWrong(f"{name} takes one {verb.takes}, and {rest[:40]!a} is more")
    if verb.takes in ("filter", "tail filter"):
        rest = rest.removeprefix("/").strip()
        if verb.takes == "filter":
            filters.parse(rest)
        else:
            tailfilter.parse(rest)
    return Command(name, rest)


def _nearest(word: str) -> str:
    near = get_close_matches(word.lower(), [*VERBS, *ALIASES], n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(VERBS)}"


def complete(text: str, vocabulary: Vocabulary) -> tuple[str, ...]:
    """Return whole lines that go on from what is typed, the likeliest first; none where nothing is known."""
    typed = text.lstrip().removeprefix(":").lstrip()
    word, space, rest = typed.partition(" ")
    if not space:
        begun = word.lower()
        names = [name for name in VERBS if name.startswith(begun)]
        names = names or [name for name in ALIASES if name.startswith(begun)]
        return tuple(f"{name} " if _takes(name) else name for name in names)
    verb = VERBS.get(ALIASES.get(word.lower(), word.lower()))
    if verb is None:
        return ()
    before = f"{word} "
    if verb.takes == "filter":
        slash = "/" if rest.startswith("/") else ""
        rest = rest.removeprefix("/")
        return tuple(before + slash + one for one in filters.complete(rest, len(rest), vocabulary.filters))
    if verb.takes == "tail filter":
        known = {key: tuple(values) for key, values in vocabulary.filters.items()}
        return tuple(before + one for one in tailfilter.complete(rest, known))
    offered: Mapping[str, Sequence[str]] = {
        "theme": vocabulary.themes, "view": vocabulary.views, "topic": vocabulary.topics, "name": vocabulary.views,
    }  # fmt: skip
    known_names = offered.get(verb.takes, ())
    return tuple(before + one for one in known_names if one.lower().startswith(rest.lower()) and one != rest)


def _takes(name: str) -> bool:
    return VERBS[ALIASES.get(name, name)].takes != "nothing"
