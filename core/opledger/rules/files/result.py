"""Reading the part of a contract that says where a result is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Literal, cast, get_args

from opledger.rules import expectation
from opledger.rules.contract import Also, Auth, Items, Result, ResultFormat
from opledger.rules.files import converters as v
from opledger.rules.files.calls import auth
from opledger.rules.files.reader import Table, Unfit
from opledger.rules.files.scope import JOB, Scope
from opledger.rules.model import Means
from opledger.rules.schemas import Schema
from opledger.rules.values import Pick

ALGORITHMS: Final = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512")
INLINE: Final = "inline:"
MEANS_WITH_RESULT: Final = ("succeeded", "failed", "cancelled", "expired")

_TELLS_ITSELF: Final = frozenset({"content-digest", "repr-digest", "digest"})  # the value names its algorithm
_ROW: Final = frozenset({"row"})
_FILE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


def inline(raw: str) -> Result:
    """Read ``result = "inline:/pointer"``. Raises ValueError."""
    pointer = v.pointer(raw.removeprefix(INLINE))
    return Result(inline=pointer)


Beside = Callable[[str], str]
"""Reads a file that lies beside the contract. Raises ValueError where there is none."""


def result(table: Table, scope: Scope, beside: Beside) -> Result:
    """Read the ``[result]`` table."""
    default = Result()
    if "url" in table.data and "path" in table.data:
        table.problem("path", "cannot stand beside url: a result has exactly one of them")
    elif "url" not in table.data and "path" not in table.data:
        table.problem(None, "needs exactly one of url and path")
    checksum = table.value("checksum", None, v.pick)
    word, credentials = _auth(table)
    read = Result(
        url=table.value("url", None, v.pointer),
        path=table.value("path", None, scope.path(JOB)),
        auth=word,
        credentials=credentials,
        available_for=table.value("available_for", None, v.duration),
        timeout=table.value("timeout", default.timeout, v.duration),
        not_ready_when=table.value("not_ready_when", None, v.over_answer),
        content_type=table.values("content_type", (), v.media_type),
        max_size=table.value("max_size", default.max_size, v.size),
        size=table.value("size", None, v.pick),
        checksum=checksum,
        checksum_algorithm=_algorithm(table, checksum),
        count=table.value("count", None, v.pick),
        strict=table.value("strict", default.strict, v.flag),
        empty=table.value("empty", default.empty, v.flag),
        format=cast("ResultFormat | None", table.value("format", None, v.one_of(*get_args(ResultFormat)))),
        schema=table.value("schema", None, _schema(beside)),
        error_row_when=table.value("error_row_when", None, v.condition(_ROW)),
        single_use=table.value("single_use", default.single_use, v.flag),
        also=tuple(_also(inner) for inner in table.tables("also")),
        collect_in=frozenset(map(Means, table.values("collect_in", ("succeeded",), v.one_of(*MEANS_WITH_RESULT)))),
        items=_items(table.table("items")),
        expect=table.value("expect", None, lambda raw: expectation.parse_whole(v.text(raw))),
    )
    _fit_together(table, read)
    table.done()
    return read


def _schema(beside: Beside) -> Callable[[Any], Schema]:
    def convert(raw: Any) -> Schema:
        name = v.text(raw)
        if not _FILE.fullmatch(name):
            raise Unfit("must be the name of a file beside the contract, such as reports.schema.json")
        return Schema.parse(beside(name), name)

    return convert


def _also(table: Table) -> Also:
    table.require("name", "url")
    read = Also(
        name=table.value("name", "also", v.name),
        url=table.value("url", Pick.parse("/"), v.pointer),
        optional=table.value("optional", False, v.flag),
        failed=table.value("failed", False, v.flag),
    )
    table.done()
    return read


def _items(table: Table | None) -> Items | None:
    if table is None:
        return None
    table.require("id")
    read = Items(
        id=table.value("id", Pick.parse("/"), v.pointer),
        at=table.value("at", None, v.pointer),
        failed_when=table.value("failed_when", None, v.condition(v.ITEM_NAMES)),
        reason=table.value("reason", None, v.pointer),
        total=table.value("total", None, v.pointer),
        sent=table.value("sent", None, v.pointer),
        sent_id=table.value("sent_id", None, v.pointer),
    )
    if "sent_id" in table.data and "sent" not in table.data:
        table.problem("sent_id", "has no meaning without sent")
    table.done()
    return read


def _fit_together(table: Table, read: Result) -> None:
    """Note what cannot stand beside each other."""
    looked_into = ("json", "jsonl", "csv")
    for key in ("error_row_when", "items", "schema"):
        if key in table.data and read.format not in looked_into and not table.problems.touches(*table.path, "format"):
            table.problem(key, f"needs a format that can be looked into: {', '.join(looked_into)}")
    if read.items is not None and read.items.at is not None and read.format != "json":
        table.problem("items", 'has "at", which only format = "json" can have')
    names = [also.name for also in read.also]
    for name in sorted({name for name in names if names.count(name) > 1}):
        table.problem("also", f"has {name!r} twice")
    if read.single_use and read.also:
        table.problem(
            "single_use", "cannot stand beside also: of several files that can be read once, one could be lost"
        )
    if read.single_use and read.collect_in != Result().collect_in:
        table.problem("collect_in", "must be succeeded alone where the result can be read only once")
    if Means.SUCCEEDED not in read.collect_in and "collect_in" in table.data:
        table.problem("collect_in", "must have succeeded in it")


def _auth(table: Table) -> tuple[Literal["same_origin", "none"], Auth]:
    """Read ``auth``: one of two words, or a table with credentials of its own for the host of the results."""
    if isinstance(table.data.get("auth"), dict):
        return "same_origin", auth(table.table("auth"))
    word = table.value("auth", "same_origin", v.one_of("same_origin", "none"))
    return "none" if word == "none" else "same_origin", Auth()


def _algorithm(table: Table, checksum: Pick | None) -> str | None:
    """Say by which algorithm the checksum is made: as written, or as its own name tells."""
    given = table.value("checksum_algorithm", None, v.one_of(*ALGORITHMS))
    if "checksum_algorithm" in table.data and "checksum" not in table.data:
        table.problem("checksum_algorithm", "has no meaning without checksum")
    if given is not None or checksum is None or checksum.header in _TELLS_ITSELF:
        return given
    where = checksum.header or "/".join(checksum.pointer or ())
    found = re.search(r"md5|sha-?(?:1|224|256|384|512)(?![0-9])", where.lower())
    if found is None and not table.problems.touches(*table.path, "checksum_algorithm"):
        table.problem("checksum", "does not tell its algorithm; add checksum_algorithm")
    return found.group().replace("-", "") if found else None
