"""Small compiled things that contract files are made of: picks, templates, conditions.

A *pick* takes a value out of an answer: a JSON Pointer (RFC 6901), ``header:NAME``, or ``header:NAME|regex``. A
*template* fills ``{names}`` into text. A *condition* is a CEL expression over an answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from opledger.rules import cel_names

MISSING: Final = object()
"""What a pick returns when the place it names does not exist. Distinct from a JSON null."""

_TEMPLATE_NAME: Final = re.compile(r"\{([a-z_]+(?:\.[A-Za-z0-9_-]+)*)\}")
_MAX_INDEX_DIGITS: Final = 9  #: no answer has more items than that; longer numbers are not converted at all


@dataclass(frozen=True, slots=True)
class Pick:
    """Where a value stands in an answer.

    `text` is as written in the contract; `pointer` holds the unescaped reference tokens of a JSON Pointer, `header`
    a lower-case header name, `pattern` an optional regular expression whose first group (or whole match) is taken.
    """

    text: str
    pointer: tuple[str, ...] | None = None
    header: str | None = None
    pattern: re.Pattern[str] | None = None

    @classmethod
    def parse(cls, text: str) -> Pick:
        """Read a pick. Raises ValueError that says what is wrong with it."""
        if text.startswith("header:"):
            name, bar, pattern = text.removeprefix("header:").partition("|")
            if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`~-]+", name):
                raise ValueError(f"{name!r} is not a header name")
            try:
                return cls(text, header=name.lower(), pattern=re.compile(pattern) if bar else None)
            except (re.error, OverflowError, RecursionError) as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
        if text and not text.startswith("/"):
            raise ValueError(f"{text!r} is neither a JSON Pointer (it would start with '/') nor 'header:NAME'")
        if re.search(r"~(?![01])", text):
            raise ValueError(f"{text!r} has a '~' that is not '~0' or '~1' (RFC 6901)")
        tokens = text.split("/")[1:]
        return cls(text, pointer=tuple(token.replace("~1", "/").replace("~0", "~") for token in tokens))

    def of(self, body: Any, headers: Mapping[str, str]) -> Any:
        """Return the value, or `MISSING`. `headers` has lower-case names."""
        if self.pointer is None:
            value = headers.get(self.header or "")
            if value is None:
                return MISSING
            if self.pattern is None:
                return value
            found = self.pattern.search(value)
            if found is None:
                return MISSING
            return found.group(1) if self.pattern.groups else found.group(0)
        return follow(body, self.pointer)


def follow(document: Any, tokens: tuple[str, ...]) -> Any:
    """Walk a JSON document along unescaped pointer tokens (RFC 6901 §4); `MISSING` where a step does not exist."""
    for token in tokens:
        if isinstance(document, Mapping):
            if token not in document:
                return MISSING
            document = document[token]
        elif isinstance(document, list):
            if not re.fullmatch(r"0|[1-9][0-9]*", token, re.ASCII) or len(token) > _MAX_INDEX_DIGITS:
                return MISSING
            if int(token) >= len(document):
                return MISSING
            document = document[int(token)]
        else:
            return MISSING
    return document


@dataclass(frozen=True, slots=True)
class Template:
    """Text with ``{names}`` in it. `names` lists them in order."""

    text: str
    names: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, allowed: Callable[[str], bool]) -> Template:
        """Read a template. Raises ValueError for an unknown name or a stray brace."""
        names = tuple(_TEMPLATE_NAME.findall(text))
        for name in names:
            if not allowed(name):
                raise ValueError(f"{{{name}}} is not a name that can be filled in here")
        if re.search(r"[{}]", _TEMPLATE_NAME.sub("", text)):
            raise ValueError(f"{text!r} has a brace that is not part of a {{name}}")
        return cls(text, names)

    def fill(self, values: Mapping[str, str], *, encode: bool = False) -> str:
        """Fill the names in; with `encode`, percent-encode each value for a path segment or query value.

        Raises KeyError for a name without a value. An encoded value of ``.`` or ``..`` is refused by ValueError:
        it would change the path.
        """

        def put(found: re.Match[str]) -> str:
            value = values[found.group(1)]
            if not encode:
                return value
            if value in (".", ".."):
                raise ValueError(f"{value!r} cannot stand in a path")
            return quote(value, safe="")

        return _TEMPLATE_NAME.sub(put, self.text)


_MAX_CONDITION: Final = 4_000


class ConditionError(Exception):
    """A condition that could not be evaluated on this answer (a key is missing, types do not fit)."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A compiled CEL expression that yields true or false."""

    text: str
    program: Any = field(compare=False, repr=False, default=None)

    @classmethod
    def parse(cls, text: str, names: frozenset[str]) -> Condition:
        """Compile. Raises ValueError for a syntax error, a name that is not in `names`, or an unknown function."""
        if len(text) > _MAX_CONDITION:
            raise ValueError(f"the condition is longer than {_MAX_CONDITION} characters")
        # Its package brings a command line of its own, at a third of a second: only a condition is worth that.
        import cel

        try:
            program = cel.compile(text)
        except ValueError as error:
            raise ValueError(f"the condition does not compile: {_without_echo(str(error))}") from error
        unknown = sorted((set(program.variables()) - names - cel_names.TYPES) & cel_names.free_names(text))
        if unknown:
            known = ", ".join(sorted(names))
            raise ValueError(f"the condition uses {unknown[0]!r}; only {known} can be used here")
        functions = cel_names.unknown_functions(program.functions())
        if functions:
            raise ValueError(f"the condition calls {functions[0]}(), and there is no such function")
        condition = cls(text, program)
        if not program.variables():
            condition._must_be_constant()
        return condition

    def _must_be_constant(self) -> None:
        """Evaluate a condition that depends on nothing. Raises ValueError where it can never say yes or no."""
        try:
            self.holds({})
        except ConditionError as error:
            raise ValueError(f"the condition can never hold: {error}") from error

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Evaluate. Raises ConditionError where the answer lacks a key or has another type."""
        try:
            outcome = self.program.execute(dict(values))
        except (LookupError, TypeError, ValueError, RuntimeError, ArithmeticError) as error:
            raise ConditionError(f"{self.text!r} could not be evaluated: {error}") from error
        if not isinstance(outcome, bool):
            raise ConditionError(f"{self.text!r} gave {type(outcome).__name__}, not true or false")
        return outcome


def _without_echo(message: str) -> str:
    """Keep what the CEL parser says and where, without its copy of the expression."""
    found = re.search(r"ERROR: <input>:([0-9]+):([0-9]+): (.*)", message)
    if found is None:
        return message.splitlines()[0]
    line, column, what = found.groups()
    where = f"column {column}" if line == "1" else f"line {line} of it, column {column}"
    return f"{what} at {where}"
