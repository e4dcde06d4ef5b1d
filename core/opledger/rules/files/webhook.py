"""Reading the part of a contract that says how deliveries come and by what they are known to be the provider's."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final, cast, get_args

from opledger.rules.contract import Status, TextCode, TimeUnit, Webhook, WebhookScheme
from opledger.rules.files import calls
from opledger.rules.files import converters as v
from opledger.rules.files.reader import Table, Unfit, kind_of
from opledger.rules.values import Pick

NONE: Final = "none"
NAMES: Final = frozenset({"headers", "body"})
"""What `accept_when` may speak of."""

EVENT: Final = frozenset({"body", "operation", "event_type"})
"""What a rule over a delivery may speak of: its headers are not kept."""

READING: Final = ("state", "updated_at", "updated_at_unit", "progress", "error", "states", "rules")
"""How a delivery tells of its job."""

_OWN: Final = ("id", "timestamp", "body", "body_sha256")
_STANDARD: Final = ("signature", "signed", "digest", "encoding", "key_encoding", "timestamp", "timestamp_unit")
"""What the standard fixes, so that nothing is left to say."""


def webhook(table: Table, *, decides: bool) -> tuple[Webhook | None, Status]:
    """Read ``[webhook]``: None for ``scheme = "none"``, and how a delivery tells of its job where that `decides`."""
    table.require("scheme")
    scheme = table.value("scheme", NONE, v.one_of(*get_args(WebhookScheme), NONE))
    default = Webhook("standard", ())
    read = Webhook(
        scheme=cast("WebhookScheme", scheme),
        secrets=table.values("secret", (), v.secret),
        signature=table.value("signature", None, _header),
        signed=table.value("signed", default.signed, _signed),
        digest=table.value("digest", default.digest, v.one_of("sha1", "sha256", "sha384", "sha512")),
        encoding=cast("TextCode", table.value("encoding", default.encoding, v.one_of("hex", "base64"))),
        key_encoding=cast("TextCode", table.value("key_encoding", default.key_encoding, v.one_of(*get_args(TextCode)))),
        timestamp=table.value("timestamp", None, _header),
        timestamp_unit=cast(
            "TimeUnit", table.value("timestamp_unit", default.timestamp_unit, v.one_of(*get_args(TimeUnit)))
        ),
        tolerance=table.value("tolerance", default.tolerance, v.duration),
        event_id=table.value("event_id", None, v.pick),
        event_type=table.value("event_type", None, v.pick),
        job_id=table.value("job_id", None, v.pick),
        token=table.value("token", None, v.pick),
        accept_when=table.value("accept_when", None, v.condition(NAMES)),
    )
    if scheme != NONE:
        _whole(table, read)
    status = _reading(table, decides=decides)
    table.done()
    return None if scheme == NONE else read, status


def _reading(table: Table, *, decides: bool) -> Status:
    """Read what only a contract without a status read may say: elsewhere a delivery is a hint, whatever is in it."""
    if not decides:
        for key in READING:
            if key in table.data:
                table.problem(key, 'has no meaning while there is a status read; only status = "none" reads deliveries')
    read = calls.reading(table, v.pointer, v.condition(EVENT))
    return replace(read, by_delivery=True) if decides else Status()


def _whole(table: Table, read: Webhook) -> None:
    """Note what is missing for the scheme, and what would have no effect in it."""
    table.require("secret")
    if table.data.get("secret") == []:
        table.problem("secret", "must not be an empty list: nothing could be verified")
    if read.scheme == "standard":
        for key in _STANDARD:
            if key in table.data:
                table.problem(key, 'has no meaning with scheme = "standard": the standard fixes it')
    elif read.scheme == "static_header":
        table.require("signature")
        for key in (*_STANDARD[1:], "tolerance"):
            if key in table.data:
                table.problem(key, 'has no meaning with scheme = "static_header": nothing is signed')
    else:
        table.require("signature", "signed")
        _signed_parts(table, read)
    if "job_id" not in table.data and "token" not in table.data:
        table.problem(None, "needs job_id or token: without one no delivery can be matched to an operation")


def _signed_parts(table: Table, read: Webhook) -> None:
    if "signed" not in table.data or table.problems.touches(*table.path, "signed"):
        return
    names = parts(read.signed)
    if "timestamp" in names and "timestamp" not in table.data:
        table.problem("timestamp", "is missing, and signed has {timestamp} in it")
    for key in ("timestamp", "timestamp_unit", "tolerance"):
        if key in table.data and "timestamp" not in names:
            table.problem(key, "has no meaning: {timestamp} is not in signed, so anybody could have written it")
    if "id" in names and (read.event_id is None or read.event_id.header is None):
        table.problem("event_id", "must be a header, because signed has {id} in it")
    if read.scheme == "ed25519":
        for key in ("digest", "key_encoding"):
            if key in table.data:
                table.problem(key, 'has no meaning with scheme = "ed25519"')


def parts(signed: str) -> tuple[str, ...]:
    """Return the names in a template of what is signed, in order."""
    return tuple(re.findall(r"\{([^{}]*)\}", signed))


def _header(raw: Any) -> Pick:
    found = v.pick(raw)
    if found.header is None:
        raise Unfit("must be header:NAME, with |regex where only a part of it counts: nothing in a body is trusted yet")
    return found


def _signed(raw: Any) -> str:
    """What is signed: a text over a few names; the body must be under the signature. It may have line feeds in it."""
    if not isinstance(raw, str):
        raise Unfit(f"must be a text in quotes, not {kind_of(raw)}")
    if re.search(r"[\x00-\x09\x0b-\x1f\x7f]", raw):
        raise Unfit("must not have control characters other than line feeds in it")
    names = parts(raw)
    for name in names:
        if name not in _OWN and not re.fullmatch(r"header:[A-Za-z0-9!#$%&'*+.^_`~-]+", name):
            known = ", ".join(f"{{{own}}}" for own in _OWN)
            raise Unfit(f"uses {{{name}}}; there are {known} and {{header:NAME}}")
    if re.search(r"[{}]", re.sub(r"\{[^{}]*\}", "", raw)):
        raise Unfit("has a brace that is not part of a {name}")
    if not {"body", "body_sha256"} & set(names):
        raise Unfit("must have {body} or {body_sha256} in it: a body that is not signed proves nothing")
    return raw
