"""Reading the parts of a contract that say where a result is and how it is announced."""

from __future__ import annotations

import re
from typing import Any, Final, Literal, cast, get_args

from opledger.rules.contract import Result, ResultFormat
from opledger.rules.files import converters as v
from opledger.rules.files.calls import auth
from opledger.rules.files.reader import Table, Unfit
from opledger.rules.files.scope import JOB, Scope
from opledger.rules.values import Pick

ALGORITHMS: Final = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512")
INLINE: Final = "inline:"
MEANS_WITH_RESULT: Final = ("succeeded", "failed", "cancelled", "expired")

_TELLS_ITSELF: Final = frozenset({"content-digest", "repr-digest", "digest"})  # the value names its algorithm
_ROW: Final = frozenset({"row"})


def inline(raw: str) -> Result:
    """Read ``result = "inline:/pointer"``. Raises ValueError."""
    pointer = v.pointer(raw.removeprefix(INLINE))
    return Result(inline=pointer)


def result(table: Table, scope: Scope) -> Result:
    """Read the ``[result]`` table."""
    default = Result()
    if "url" in table.data and "path" in table.data:
        table.problem("path", "cannot stand beside url: a result has exactly one of them")
    elif "url" not in table.data and "path" not in table.data:
        table.problem(None, "needs exactly one of url and path")
    checksum = table.value("checksum", None, v.pick)
    read = Result(
        url=table.value("url", None, v.pointer),
        path=table.value("path", None, scope.path(JOB)),
        auth=_auth(table),
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
        format=cast("ResultFormat | None", table.value("format", None, v.one_of(*get_args(ResultFormat)))),
        error_row_when=table.value("error_row_when", None, v.condition(_ROW)),
    )
    _not_yet(table)
    table.done()
    return read


def _not_yet(table: Table) -> None:
    """Read what no version drives yet, only to find what is wrong in it."""
    table.value("single_use", False, v.flag)
    table.value("schema", None, v.text)
    table.values("collect_in", (), v.one_of(*MEANS_WITH_RESULT))
    for also in table.tables("also"):
        also.require("name", "url")
        also.value("name", None, v.name)
        also.value("url", None, v.pointer)
        also.value("optional", None, v.flag)
        also.done()
    items = table.table("items")
    if items is not None:
        items.require("id")
        items.value("id", None, v.pointer)
        items.value("failed_when", None, v.condition(v.ITEM_NAMES))
        items.value("total", None, v.pick)
        items.done()


def _auth(table: Table) -> Literal["same_origin", "none"]:
    """Read ``auth``: one of two words, or a table with credentials of its own."""
    if isinstance(table.data.get("auth"), dict):
        auth(table.table("auth"))
        return "none"
    word = table.value("auth", "same_origin", v.one_of("same_origin", "none"))
    return "none" if word == "none" else "same_origin"


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


def webhook(table: Table) -> None:
    """Read ``[webhook]``, only to find what is wrong in it: no version receives deliveries yet."""
    table.require("scheme")
    scheme = table.value("scheme", "none", v.one_of("standard", "hmac", "ed25519", "static_header", "none"))
    if scheme != "none":
        table.require("secret")
    if scheme == "hmac":
        table.require("signature", "signed")
    table.values("secret", (), v.secret)
    table.value("signature", None, v.pick)
    table.value("signed", None, _signed)
    table.value("digest", None, v.one_of("sha1", "sha256", "sha384", "sha512"))
    table.value("encoding", None, v.one_of("hex", "base64"))
    table.value("timestamp", None, v.pick)
    table.value("tolerance", None, v.duration)
    table.value("event_id", None, v.pick)
    table.value("job_id", None, v.pick)
    table.value("token", None, v.pick)
    table.done()


def _signed(raw: Any) -> str:
    """What is signed: a text over ``{id}``, ``{timestamp}`` and ``{body}``; the body must be under the signature."""
    found = v.text(raw)
    stray = set(re.findall(r"\{([^{}]*)\}", found)) - {"id", "timestamp", "body"}
    if stray:
        raise Unfit(f"uses {{{min(stray)}}}; there are {{id}}, {{timestamp}} and {{body}}")
    if "{body}" not in found:
        raise Unfit("must have {body} in it: a body that is not signed proves nothing")
    return found
