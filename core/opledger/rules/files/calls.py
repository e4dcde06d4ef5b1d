"""Reading the parts of a contract that say how to make a call: auth, create, look-ups, status, cancel."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date, time
from typing import Any, Final, cast, get_args

from opledger.rules.contract import (
    Auth,
    AuthKind,
    BodyKind,
    Cancel,
    ClientAuth,
    Create,
    Idempotency,
    Mechanism,
    Poll,
    SameBody,
    Status,
    StatusRule,
    Strategy,
    StrategyName,
    TimeUnit,
)
from opledger.rules.files import converters as v
from opledger.rules.files.reader import Table, Unfit
from opledger.rules.files.scope import JOB, OWN, Scope
from opledger.rules.model import Means
from opledger.rules.values import Condition, Pick, Template

# Words that the format knows and this version cannot drive (see not_yet) are read like the others; a contract
# that uses one never leaves `parse`, so the casts below hold for every contract there is.
AUTH_KINDS: Final = (*get_args(AuthKind), "sigv4")
BODY_KINDS: Final = (*get_args(BodyKind), "multipart", "file")
MECHANISMS: Final = (*get_args(Mechanism), "two_phase")
PROGRESS: Final = ("completed", "total", "failed", "percent", "queue_position")
WHILE_RECORD_EXISTS: Final = "while_record_exists"

_CREATE: Final = Create("POST", Template(""))
_STRATEGY: Final = Strategy("list")


def auth(table: Table | None, fill: Callable[[Any], Any] = lambda raw: raw) -> Auth:
    """Read ``[auth]``: which keys belong there depends on the kind. `fill` puts the environment into ``token_url``."""
    if table is None:
        return Auth()
    table.require("kind")
    kind = table.value("kind", "none", v.one_of(*AUTH_KINDS))
    if table.problems.touches(*table.path, "kind"):
        return Auth()
    needs, may = _AUTH_KEYS[kind]
    table.require(*needs)
    for key in table.data:
        if key in _AUTH_KNOWN and key not in (*needs, *may):
            table.problem(key, f'has no meaning with kind = "{kind}"')
    read: dict[str, Any] = {key: table.value(key, None, convert) for key, convert in _AUTH_CONVERTERS.items()}
    token_url = table.value("token_url", None, lambda raw: v.token_url(fill(raw)))
    scope = " ".join(table.values("scope", (), v.scope_word)) or None
    name = read["name"]
    if kind == "header" and isinstance(name, str):
        name = table.value("name", None, v.header_name)
    table.done()
    return Auth(
        kind=cast("AuthKind", kind),
        secret=read["secret"],
        name=name,
        prefix=read["prefix"] or "",
        username=read["username"],
        token_url=token_url,
        scope=scope,
        **{key: read[key] for key in _OAUTH_KEYS if read[key] is not None},
    )


def _prefix(raw: Any) -> str:
    return "" if raw == "" else v.text(raw)


_AUTH_KEYS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "none": ((), ()),
    "bearer": (("secret",), ()),
    "header": (("secret", "name"), ("prefix",)),
    "query": (("secret", "name"), ("prefix",)),
    "basic": (("secret",), ("username",)),
    "sigv4": (("secret", "region", "service"), ()),
    "oauth2_client_credentials": (
        ("secret", "token_url", "client_id"),
        ("scope", "audience", "client_auth", "margin", "lifetime"),
    ),
}
_OAUTH_KEYS: Final = ("client_id", "client_auth", "audience", "margin", "lifetime")
_AUTH_CONVERTERS: Final[Mapping[str, Any]] = {
    "secret": v.secret,
    "name": v.text,
    "prefix": _prefix,
    "username": v.text,
    "region": v.text,
    "service": v.text,
    "client_id": v.client_id,
    "client_auth": v.one_of(*get_args(ClientAuth)),
    "audience": v.text,
    "margin": v.span,
    "lifetime": v.duration,
}
_AUTH_KNOWN: Final = frozenset({*_AUTH_CONVERTERS, "token_url", "scope"})


def headers(table: Table, key: str, scope: Scope) -> dict[str, Template]:
    """Read a table of headers. What the transport or ``[auth]`` sets is not set here."""
    read = table.mapping(key, scope.header(OWN), v.header_name)
    seen: dict[str, str] = {}
    for name, value in read.items():
        lower = name.lower()
        if lower in _RESERVED:
            table.problems.add((*table.path, key, name), f"cannot be set here: {_RESERVED[lower]}")
        elif lower in _CREDENTIALS and "{secret." not in value.text:
            message = "carries credentials, and their value must not stand in this file; use [auth], or {secret.NAME}"
            table.problems.add((*table.path, key, name), message)
        elif lower in seen:
            table.problems.add((*table.path, key, name), f"is the same header as {seen[lower]}")
        seen[lower] = name
    return read


_CREDENTIALS: Final = frozenset({"authorization", "proxy-authorization", "cookie"})
_TRANSPORT: Final = "the transport sets it for each call"
_RESERVED: Final[Mapping[str, str]] = {
    "host": _TRANSPORT,
    "content-length": _TRANSPORT,
    "transfer-encoding": _TRANSPORT,
    "connection": _TRANSPORT,
    "te": _TRANSPORT,
    "upgrade": _TRANSPORT,
    "accept-encoding": "answers are asked for unpacked, so that their size can be held in bounds",
    "content-type": "the body kind sets it",
}


def create(table: Table, scope: Scope) -> Create:
    """Read ``[create]``, without its steps."""
    table.require("method")
    if "steps" not in table.data:
        table.require("path")
    read = Create(
        method=table.value("method", "POST", v.one_of("POST", "PUT", "PATCH")),
        path=table.value("path", Template("/"), scope.path(OWN)),
        body=cast("BodyKind", table.value("body", _CREATE.body, v.one_of(*BODY_KINDS))),
        query=table.mapping("query", scope.text(OWN), v.text),
        headers=headers(table, "headers", scope),
        success=frozenset(table.values("success", tuple(_CREATE.success), v.status_code(200, 299))),
        job_id=table.values("job_id", (), v.pick),
        remote_state=table.value("remote_state", None, v.pick),
        status_url=table.value("status_url", None, v.pick),
        refs=table.mapping("refs", v.pick, v.name),
        timeout=table.value("timeout", _CREATE.timeout, v.duration),
        refused=frozenset(table.values("refused", tuple(_CREATE.refused), v.status_code(400, 499))),
        fields=table.mapping("fields", scope.field(OWN), v.field_pointer),
        error_when=table.value("error_when", None, v.over_answer),
        inline_when=table.value("inline_when", None, v.over_answer),
        idempotency=idempotency(table.table("idempotency")),
    )
    for step in table.tables("steps"):
        _step(step, scope)
    table.done()
    return read


def _step(table: Table, scope: Scope) -> None:
    """Read one of ``[[create.steps]]``, only to find what is wrong in it: no version drives steps yet."""
    table.require("name", "method", "path")
    table.value("name", None, v.name)
    table.value("method", None, v.one_of("GET", "POST", "PUT", "PATCH"))
    table.value("path", None, scope.path(OWN))
    table.value("body", None, v.one_of(*BODY_KINDS))
    table.mapping("query", scope.text(OWN), v.text)
    headers(table, "headers", scope)
    table.mapping("fields", scope.field(OWN), v.field_pointer)
    table.values("success", (), v.status_code(200, 299))
    table.value("timeout", None, v.duration)
    table.value("repeat_safe", None, v.flag)
    table.value("effect", None, v.one_of("none", "registers", "starts_work"))
    table.mapping("capture", v.pick, v.name)
    table.done()


def idempotency(table: Table | None) -> Idempotency:
    """Read ``[create.idempotency]``."""
    if table is None:
        return Idempotency()
    table.require("mechanism")
    kept = table.data.get("memory") == WHILE_RECORD_EXISTS
    memory = table.value("memory", None, _kept if kept else v.duration)
    read = Idempotency(
        mechanism=cast("Mechanism", table.value("mechanism", "none", v.one_of(*MECHANISMS))),
        name=table.value("name", None, v.text),
        max_length=table.value("max_length", 255, v.integer(16, 65_536)),
        memory=memory,
        while_record_exists=kept,
        resend_adds=table.mapping("resend_adds", v.text, v.text),
        same_body=cast("SameBody | None", table.value("same_body", None, v.one_of(*get_args(SameBody)))),
        duplicate_when=table.value("duplicate_when", None, v.over_answer),
        mismatch_when=table.value("mismatch_when", None, v.over_answer),
        in_flight_when=table.value("in_flight_when", None, v.over_answer),
        replay_marker=table.value("replay_marker", None, v.pick),
    )
    table.done()
    return read


def _kept(raw: Any) -> None:
    """The word that says: as long as the provider keeps the job's record."""


def strategy(table: Table, scope: Scope) -> Strategy:
    """Read one of ``[[reconcile]]``."""
    table.require("strategy")
    read = Strategy(
        strategy=cast("StrategyName", table.value("strategy", "list", v.one_of(*get_args(StrategyName)))),
        method=table.value("method", _STRATEGY.method, v.one_of("GET", "POST")),
        path=table.value("path", None, scope.path(OWN)),
        query=table.mapping("query", scope.text(OWN), v.text),
        items=table.value("items", None, v.pointer),
        item_id=table.value("item_id", None, v.pointer),
        match=table.value("match", None, v.condition(v.ITEM_NAMES)),
        item_state=table.value("item_state", None, v.pointer),
        item_created_at=table.value("item_created_at", None, v.pointer),
        created_at_unit=_unit(table, "item_created_at"),
        next_page=table.value("next_page", None, v.pick),
        page_param=table.value("page_param", None, v.text),
        max_pages=table.value("max_pages", _STRATEGY.max_pages, v.integer(1, 100_000)),
        visibility_lag=table.value("visibility_lag", _STRATEGY.visibility_lag, v.span),
        absence_is_proof=table.value("absence_is_proof", _STRATEGY.absence_is_proof, v.flag),
        settle=table.value("settle", _STRATEGY.settle, v.span),
        timeout=table.value("timeout", _STRATEGY.timeout, v.duration),
    )
    table.done()
    return read


def _unit(table: Table, key: str) -> TimeUnit:
    """Read the unit of a time stamp; without the stamp itself it means nothing."""
    unit = f"{key}_unit"
    if unit in table.data and key not in table.data:
        table.problem(unit, f"has no meaning without {key}")
    return cast("TimeUnit", table.value(unit, "rfc3339", v.one_of(*get_args(TimeUnit))))


def reading(table: Table, pick: Callable[[Any], Pick], condition: Callable[[Any], Condition]) -> Status:
    """Read how a document tells of a job: of a status answer, or of a delivery where there is no status read."""
    return Status(
        state=table.values("state", (), pick),
        updated_at=table.value("updated_at", None, pick),
        updated_at_unit=_unit(table, "updated_at"),
        progress=table.mapping("progress", pick, v.one_of(*PROGRESS)),
        error=table.values("error", (), pick),
        words=_words(table.table("states")),
        rules=tuple(_rule(rule, condition) for rule in table.tables("rules")),
    )


def status(table: Table, scope: Scope) -> Status:
    """Read ``[status]``."""
    default = Status()
    read = replace(
        reading(table, v.pick, v.over_answer),
        method=table.value("method", default.method, v.one_of("GET", "POST")),
        path=table.value("path", None, scope.path(JOB)),
        query=table.mapping("query", scope.text(JOB), v.text),
        job_id=table.value("job_id", None, v.pick),
        timeout=table.value("timeout", default.timeout, v.duration),
        not_visible_for=table.value("not_visible_for", default.not_visible_for, v.span),
        gone_when=table.value("gone_when", None, v.over_answer),
    )
    table.done()
    return read


def _words(table: Table | None) -> dict[str, Means]:
    """Read a table of states turned round: trimmed, case-folded word -> reading."""
    if table is None:
        return {}
    read: dict[str, Means] = {}
    for means in Means:
        for word in table.values(means.value, (), v.text):
            folded = word.strip().casefold()
            if read.setdefault(folded, means) is not means:
                table.problem(means.value, f"lists {word!r}, which already means {read[folded]}")
    table.done()
    return read


def _rule(table: Table, condition: Callable[[Any], Condition]) -> StatusRule:
    table.require("when", "means")
    when = table.value("when", None, condition)
    means = table.value("means", Means.UNKNOWN.value, v.one_of(*Means))
    table.done()
    return StatusRule(when or v.over_answer("false"), Means(means))


def poll(table: Table | None) -> Poll:
    """Read ``[poll]``."""
    default = Poll()
    if table is None:
        return default
    read = Poll(
        first=table.value("first", default.first, v.duration),
        factor=table.value("factor", default.factor, v.number(1, 100)),
        max=table.value("max", default.max, v.duration),
        hints=table.values("hints", (), v.pick),
        max_silence=table.value("max_silence", None, v.duration),
    )
    table.done()
    return read


def cancel(table: Table, scope: Scope) -> Cancel:
    """Read ``[cancel]``."""
    table.require("method", "path")
    default = Cancel("DELETE", Template("/"))
    read = Cancel(
        method=table.value("method", default.method, v.one_of("DELETE", "POST", "PUT", "PATCH")),
        path=table.value("path", default.path, scope.path(JOB)),
        query=table.mapping("query", scope.text(JOB), v.text),
        body=table.value("body", None, constant_json),
        success=frozenset(table.values("success", tuple(default.success), v.status_code(200, 299))),
        timeout=table.value("timeout", default.timeout, v.duration),
        accepted_when=table.value("accepted_when", None, v.over_answer),
        idempotent=table.value("idempotent", default.idempotent, v.flag),
        already_finished_when=table.value("already_finished_when", None, v.over_answer),
        destroys=table.values("destroys", (), v.one_of("result", "record")),
        leaves=table.value("leaves", None, v.prose),
    )
    table.done()
    return read


def resume(table: Table, scope: Scope) -> None:
    """Read ``[resume]``, only to find what is wrong in it: no version drives it yet."""
    table.require("method", "path")
    table.value("method", None, v.one_of("POST", "PUT", "PATCH"))
    table.value("path", None, scope.path(JOB))
    table.mapping("query", scope.text(JOB), v.text)
    table.value("body", None, constant_json)
    table.values("success", (), v.status_code(200, 299))
    table.value("timeout", None, v.duration)
    table.value("idempotent", None, v.flag)
    table.done()


def constant_json(raw: Any) -> bytes:
    """A constant JSON body, written as a TOML table."""
    if not isinstance(raw, Mapping):
        raise Unfit("must be a table; it is sent as JSON")
    _only_json(raw)
    return json.dumps(raw, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _only_json(raw: Any) -> None:
    if isinstance(raw, date | time):  # a datetime is a date
        raise Unfit("has a date or time in it, which JSON does not know; write it as a text")
    if isinstance(raw, float) and not math.isfinite(raw):
        raise Unfit("has a number in it that JSON does not know")
    if isinstance(raw, str) and ("{job_id}" in raw or "{operation_id}" in raw or "{token}" in raw):
        raise Unfit("is sent as it stands; {names} are not filled in here")
    for inner in raw.values() if isinstance(raw, Mapping) else raw if isinstance(raw, list) else ():
        _only_json(inner)
