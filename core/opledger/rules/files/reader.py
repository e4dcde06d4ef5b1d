"""Reading a parsed TOML document strictly: every value is typed, every unknown key is an error, nothing stops early.

A `Table` hands out values through converters and notes what is wrong under key and line. A converter takes the raw
value and returns the wanted one, or raises ValueError (mostly `Unfit`) with a message for people.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from opledger.rules.contract import ContractProblem
from opledger.rules.files.toml_lines import Path, locate

T = TypeVar("T")
D = TypeVar("D")

MAX_SOURCE: Final = 256 * 1024
"""Most characters of a contract or settings file."""

_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


class Unfit(ValueError):
    """A value that does not fit. The message says what it must be, and never shows what may be a secret."""


class Problems:
    """What has been found wrong so far, each with its key and line."""

    def __init__(self, lines: Mapping[Path, int] | None = None) -> None:
        self._lines = lines or {}
        self._found: dict[ContractProblem, Path] = {}

    def add(self, path: Path, message: str, *, line: int | None = None) -> None:
        """Note a problem. The line is that of the key, or of the nearest table around it that the file has."""
        self._found.setdefault(ContractProblem(key_of(path), line or self._line(path), message), path)

    def touches(self, *path: str | int) -> bool:
        """Tell whether something at this key or below is wrong already, so that nothing more can be said of it."""
        return any(found[: len(path)] == path for found in self._found.values())

    def all(self) -> tuple[ContractProblem, ...]:
        """Return the problems in the order of the file."""
        return tuple(sorted(self._found, key=lambda problem: (problem.line or 0, problem.key)))

    def _line(self, path: Path) -> int:
        for length in range(len(path), 0, -1):
            if path[:length] in self._lines:
                return self._lines[path[:length]]
        return 1


def key_of(path: Path) -> str:
    """Write a path as people write keys: ``create.fields."/client_ref"``, ``reconcile[0].path``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            quoted = part if _PLAIN_KEY.fullmatch(part) else json.dumps(part, ensure_ascii=False)
            text += f".{quoted}" if text else quoted
    return text


def document(source: str) -> tuple[Mapping[str, Any] | None, Problems]:
    """Parse TOML. Returns None, and the reason among the problems, for text that is not TOML."""
    problems = Problems()
    if len(source) > MAX_SOURCE:
        problems.add((), f"the file is longer than {MAX_SOURCE} characters")
        return None, problems
    try:
        source.encode()
        parsed = tomllib.loads(source)
        return parsed, Problems(locate(source))
    except UnicodeEncodeError as error:
        line = source.count("\n", 0, error.start) + 1
        problems.add((), "the file is not valid UTF-8", line=line)
    except RecursionError:
        problems.add((), "the file has lists or tables nested too deeply to be read")
    except ValueError as error:  # TOMLDecodeError, and numbers with more digits than Python reads
        message, line = _syntax(str(error), source)
        problems.add((), f"this is not TOML: {message}", line=line)
    return None, problems


def _syntax(message: str, source: str) -> tuple[str, int]:
    found = re.search(r"\s*\(at line (\d+), column (\d+)\)$", message)
    if found is None:
        return re.sub(r"\s*\(at end of document\)$", " at the end of the file", message), source.count("\n") + 1
    return f"{message[: found.start()]} at column {found.group(2)}", int(found.group(1))


class Table:
    """One table of the document. Ask for every key that may stand in it, then call `done`."""

    def __init__(self, data: Mapping[str, Any], path: Path, problems: Problems) -> None:
        self.data = data
        self.path = path
        self.problems = problems
        self._known: list[str] = []

    def problem(self, key: str | None, message: str) -> None:
        """Note a problem with a key of this table, or with the table itself."""
        self.problems.add(self.path if key is None else (*self.path, key), message)

    def require(self, *keys: str) -> None:
        """Note each of these keys that is missing."""
        for key in keys:
            if key not in self.data:
                self.problem(key, "is missing; it is required here")

    def value(self, key: str, default: D, convert: Callable[[Any], T]) -> T | D:
        """Return a value, or the default where the key is missing or wrong."""
        self._known.append(key)
        if key not in self.data:
            return default
        return self._converted((*self.path, key), self.data[key], default, convert)

    def values(self, key: str, default: tuple[T, ...], convert: Callable[[Any], T]) -> tuple[T, ...]:
        """Return a list's items; a single value that is no list counts as a list of one."""
        self._known.append(key)
        if key not in self.data:
            return default
        found = self.data[key]
        items = found if isinstance(found, list) else [found]
        path = (*self.path, key)
        paths = [(*path, index) for index in range(len(items))] if isinstance(found, list) else [path]
        read = [self._converted(at, item, None, convert) for at, item in zip(paths, items, strict=True)]
        return tuple(item for item in read if item is not None)

    def mapping(
        self, key: str, convert: Callable[[Any], T], name: Callable[[str], str] = lambda name: name
    ) -> dict[str, T]:
        """Return a table of like values. `name` checks and normalises its keys."""
        self._known.append(key)
        inner = self.data.get(key, {})
        if not isinstance(inner, Mapping):
            self.problem(key, f"must be a table, not {kind_of(inner)}")
            return {}
        read: dict[str, T] = {}
        for raw, item in inner.items():
            path = (*self.path, key, raw)
            word = self._converted(path, raw, None, name)
            value = self._converted(path, item, None, convert)
            if word is not None and value is not None:
                read[word] = value
        return read

    def table(self, key: str) -> Table | None:
        """Return a sub-table, or None where it is missing or no table."""
        self._known.append(key)
        inner = self.data.get(key)
        if inner is None:
            return None
        if not isinstance(inner, Mapping):
            self.problem(key, f"must be a table, not {kind_of(inner)}")
            return None
        return Table(inner, (*self.path, key), self.problems)

    def tables(self, key: str) -> tuple[Table, ...]:
        """Return the tables of a list of tables (``[[key]]``)."""
        self._known.append(key)
        inner = self.data.get(key, [])
        if not isinstance(inner, list):
            header = key_of((*self.path, key))
            self.problem(key, f"must be a list of tables ([[{header}]]), not {kind_of(inner)}")
            return ()
        found = []
        for index, item in enumerate(inner):
            path = (*self.path, key, index)
            if isinstance(item, Mapping):
                found.append(Table(item, path, self.problems))
            else:
                self.problems.add(path, f"must be a table, not {kind_of(item)}")
        return tuple(found)

    def done(self) -> None:
        """Note every key that nobody asked for, with the nearest one that exists."""
        for key in self.data:
            if key not in self._known:
                self.problem(key, f"is not a key that is known here{nearest(key, self._known)}")

    def _converted(self, path: Path, raw: Any, default: D, convert: Callable[[Any], T]) -> T | D:
        try:
            return convert(raw)
        except ValueError as error:
            self.problems.add(path, str(error))
            return default


def nearest(word: str, known: list[str]) -> str:
    """Return ``; did you mean "x"?`` where something close exists, else an empty text."""
    close = get_close_matches(word, known, n=1)
    return f'; did you mean "{close[0]}"?' if close else ""


def kind_of(value: Any) -> str:
    """Say what a raw TOML value is, without showing it: it may be a secret in the wrong place."""
    if isinstance(value, bool):
        return "true or false"
    names = {str: "a text", int: "a number", float: "a number", list: "a list", dict: "a table"}
    return names.get(type(value), "a date or time")
