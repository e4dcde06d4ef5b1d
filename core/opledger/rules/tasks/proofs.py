"""The completion checks of a step: how it is proved that it is done. Data, and reading it from a plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from opledger.rules.files import converters as v
from opledger.rules.files.reader import Table, Unfit, kind_of
from opledger.rules.model import TERMINAL, State
from opledger.rules.tasks import templates
from opledger.rules.values import Condition

ANSWER_NAMES: Final = frozenset({"status", "headers", "body"})
"""What the condition of an ``http`` check may speak of."""

PARSERS: Final = ("text", "json", "jsonl", "csv", "toml")


@dataclass(frozen=True, slots=True)
class FileCheck:
    """The file is there, holds what `parses` says, and has this SHA-256 where one is given."""

    path: str
    parses: str | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class CommandCheck:
    """The command exits 0. It must only look."""

    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OperationCheck:
    """The step's operation is in this state."""

    state: State


@dataclass(frozen=True, slots=True)
class HttpCheck:
    """A read through a contract: GET `path`, and the condition holds of the answer."""

    contract: str
    path: str
    when: Condition


Check = FileCheck | CommandCheck | OperationCheck | HttpCheck


def proofs(table: Table) -> tuple[Check, ...]:
    """Read the key ``check`` of a step: an argv list, a table, or a list of either."""
    raw = table.data.get("check")
    table.value("check", None, lambda given: given)
    path = (*table.path, "check")
    if raw is None:
        return ()
    if isinstance(raw, Mapping):
        return (_check(Table(raw, path, table.problems)),)
    if isinstance(raw, list) and raw and not all(isinstance(item, str) for item in raw):
        return tuple(_item(item, (*path, index), table) for index, item in enumerate(raw))
    return (CommandCheck(table.value("check", ("?",), argv)),)


def argv(raw: Any) -> tuple[str, ...]:
    """Convert a list of words: a program and its arguments. Raises Unfit."""
    if isinstance(raw, str):
        raise Unfit('must be a list of words, such as ["python", "convert.py"]: no shell reads it')
    if not isinstance(raw, list) or not raw or not all(isinstance(word, str) for word in raw):
        raise Unfit(f"must be a list of texts: a program and its arguments, not {kind_of(raw)}")
    if not raw[0].strip():
        raise Unfit("must begin with the name of a program")
    if any("\0" in word for word in raw):
        raise Unfit("has a NUL character in it, which no argument can have")
    return tuple(raw)


def _item(item: Any, path: tuple[str | int, ...], table: Table) -> Check:
    if isinstance(item, Mapping):
        return _check(Table(item, path, table.problems))
    try:
        return CommandCheck(argv(item))
    except Unfit as error:
        table.problems.add(path, f"{error}; or a table")
        return CommandCheck(("?",))


def _check(table: Table) -> Check:
    kinds: dict[str, Callable[[Table], Check]] = {
        "file": _file_check,
        "command": _command_check,
        "operation": _operation_check,
        "http": _http_check,
    }
    given = [name for name in kinds if name in table.data]
    if len(given) != 1:
        found = f"has {' and '.join(given)}" if given else "has none"
        table.problem(None, f"needs exactly one of file, command, operation and http; it {found}")
        return CommandCheck(("?",))
    check = kinds[given[0]](table)
    table.done()
    return check


def _file_check(table: Table) -> Check:
    return FileCheck(
        table.value("file", "", v.text),
        table.value("parses", None, v.one_of(*PARSERS)),
        table.value("sha256", None, _sha256),
    )


def _sha256(raw: Any) -> str:
    text = v.text(raw).removeprefix("sha256:").lower()
    if re.fullmatch("[0-9a-f]{64}", text) is None and not any(templates.places(text)):
        raise Unfit("must be 64 hex digits")
    return text


def _command_check(table: Table) -> Check:
    return CommandCheck(table.value("command", ("?",), argv))


def _operation_check(table: Table) -> Check:
    ends = sorted(str(state) for state in TERMINAL)
    return OperationCheck(State(table.value("operation", "succeeded", v.one_of(*ends))))


def _http_check(table: Table) -> Check:
    inner = table.table("http")
    always = Condition("true")
    if inner is None:
        return HttpCheck("", "/", always)
    inner.require("contract", "path", "when")
    check = HttpCheck(
        inner.value("contract", "", v.text),
        inner.value("path", "/", _path),
        inner.value("when", always, v.condition(ANSWER_NAMES)),
    )
    inner.done()
    return check


def _path(raw: Any) -> str:
    text = v.text(raw)
    if not text.startswith("/") or text.startswith("//") or re.search(r"[\s\\#]", text):
        raise Unfit("must be a path below the contract's base_url, and begin with one /")
    return text
