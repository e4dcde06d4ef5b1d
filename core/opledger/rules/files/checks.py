"""What must fit together in a contract once each value is right by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import combinations
from typing import Any, Final

from opledger.rules.contract import Contract, Strategy
from opledger.rules.files.reader import Problems
from opledger.rules.files.scope import REFERENCES
from opledger.rules.model import SUCCESS_MEANS
from opledger.rules.values import Condition, Pick, Template

_MEANINGLESS_WITHOUT_TOKEN: Final = (
    *("name", "max_length", "memory", "resend_adds", "same_body", "duplicate_when", "mismatch_when", "in_flight_when"),
    "replay_marker",
)
_FOR_LISTS: Final = ("items", "next_page", "page_param", "max_pages", "item_created_at")
_FOR_LOOK_UPS: Final = (
    *("method", "path", "query", "item_id", "match", "item_state", "visibility_lag", "absence_is_proof", "settle"),
    "timeout",
)


def check(contract: Contract, document: Mapping[str, Any], problems: Problems) -> None:
    """Note everything that does not fit together. Keys that are wrong by themselves are left alone."""
    create = document.get("create")
    if isinstance(create, Mapping) and "steps" not in create:
        _create(contract, create, problems)
    if isinstance(create, Mapping):
        _token(contract, create, problems)
        _token_place(contract, create, problems)
        _fields(contract, problems)
        _headers(contract, problems)
        _reconcile(contract, document, problems)
    _status(contract, document, problems)
    _jobs_are_named(contract, document, problems)
    _one_host(contract, problems)
    _times(contract, document, problems)


def references(*templates: Template | None) -> set[str]:
    """Return by which of our own names these templates speak of the operation: operation_id, token."""
    return {name for template in templates if template is not None for name in template.names} & REFERENCES


def compares_reference(match: Condition | None) -> set[str]:
    """Return which of our own names a match compares with."""
    if match is None:
        return set()
    text = match.text
    found = {name for name in ("operation_id", "trace_id") if f"operation.{name}" in text}
    return found | ({"token"} if "operation.token" in text or "operation.idempotency_token" in text else set())


def sent_names(contract: Contract) -> set[str]:
    """Return which of our own names the create call carries to the provider."""
    create = contract.create
    templates = (create.path, *create.query.values(), *create.fields.values(), *contract.headers.values())
    names = {name for template in (*templates, *create.headers.values()) for name in template.names}
    if contract.trace_header is not None:
        names.add("trace_id")
    if create.idempotency.mechanism != "none":
        names.add("token")
    return names


def _create(contract: Contract, raw: Mapping[str, Any], problems: Problems) -> None:
    create = contract.create
    for key in ("success", "job_id"):
        if raw.get(key) == []:
            problems.add(("create", key), "must not be an empty list")
    if "job_id" not in raw and create.inline_when is None:
        message = "is missing; without it (or inline_when) no answer can ever say that the work was accepted"
        problems.add(("create", "job_id"), message)


def _token(contract: Contract, raw: Mapping[str, Any], problems: Problems) -> None:
    """The idempotency token: what is said about it must have an effect, and duplicates must be recognisable."""
    idempotency = contract.create.idempotency
    table = raw.get("idempotency", {})
    if not isinstance(table, Mapping) or problems.touches("create", "idempotency", "mechanism"):
        return
    path = ("create", "idempotency")
    if idempotency.mechanism == "none":
        for key in _MEANINGLESS_WITHOUT_TOKEN:
            if key in table:
                problems.add((*path, key), 'has no meaning with mechanism = "none"')
        return
    if idempotency.same_body == "duplicate_error" and "duplicate_when" not in table:
        message = 'is missing; with same_body = "duplicate_error" a duplicate would be read as a refusal'
        problems.add((*path, "duplicate_when"), message)
    if idempotency.resend_adds and not any(strategy.strategy == "resend" for strategy in contract.reconcile):
        problems.add((*path, "resend_adds"), 'has no meaning without [[reconcile]] strategy = "resend"')
    for name in idempotency.resend_adds:
        if not name.startswith("/"):
            continue
        if contract.create.body != "json":
            problems.add((*path, "resend_adds", name), "adds a field to a body that is not JSON")
        elif not _is_pointer(name):
            problems.add((*path, "resend_adds", name), "is not a JSON Pointer")


def _token_place(contract: Contract, raw: Mapping[str, Any], problems: Problems) -> None:
    """Where the token stands in the create call."""
    create = contract.create
    idempotency = create.idempotency
    mechanism, name = idempotency.mechanism, idempotency.name
    at = ("create", "idempotency", "name")
    if mechanism == "none" or problems.touches("create", "idempotency", "mechanism") or problems.touches(*at):
        return
    if mechanism == "put_resource":
        if name is not None:
            problems.add(at, 'has no meaning with mechanism = "put_resource": the path names the resource')
        if create.method != "PUT" and not problems.touches("create", "method"):
            problems.add(("create", "method"), 'must be PUT with mechanism = "put_resource"')
        if not references(create.path) and not problems.touches("create", "path"):
            problems.add(("create", "path"), "must have {token} or {operation_id} in it: it names the resource")
        return
    if name is None:
        elsewhere = references(create.path, *create.query.values(), *create.fields.values())
        if mechanism in ("client_id", "unique_name") and elsewhere:
            return
        what = {"header": "the header", "query": "the query parameter"}.get(mechanism, "the JSON Pointer of the field")
        problems.add(at, f"is missing; it is {what} that carries the token")
    elif mechanism == "header":
        if not _is_header(name):
            problems.add(at, "is not a header name")
    elif mechanism == "query":
        if name in create.query:
            problems.add(at, "is also set in create.query")
    elif not _is_pointer(name):
        problems.add(at, f'must be a JSON Pointer to a field of the body with mechanism = "{mechanism}"')
    elif create.body not in ("json", "form"):
        problems.add(at, f'needs a body to stand in, and body = "{create.body}" has no fields')


def _fields(contract: Contract, problems: Problems) -> None:
    """Fields that the contract puts into the body must not overwrite each other."""
    create = contract.create
    if create.fields and create.body not in ("json", "form") and not problems.touches("create", "body"):
        problems.add(("create", "fields"), f'need a body to stand in, and body = "{create.body}" has no fields')
    for first, second in combinations(sorted(create.fields), 2):
        if second.startswith(first + "/"):
            problems.add(("create", "fields", second), f"lies inside {first}, which is set too")
    token = create.idempotency.name
    if token is None or create.idempotency.mechanism not in ("body", "client_id", "unique_name"):
        return
    for pointer in create.fields:
        if pointer == token or pointer.startswith(token + "/") or token.startswith(pointer + "/"):
            problems.add(("create", "fields", pointer), f"collides with the token at {token}")


def _headers(contract: Contract, problems: Problems) -> None:
    """No header may be set from two sides; a header of the create call may replace a general one of the same name."""
    sides: dict[str, str] = {}
    for name in contract.headers:
        sides[name.lower()] = f"headers.{name}"
    for name in contract.create.headers:
        other = sides.get(name.lower())
        if other is not None and other != f"headers.{name}":
            problems.add(("create", "headers", name), f"is the same header as {other}; write both in the same way")
        sides[name.lower()] = f"create.headers.{name}"
    for path, header in _our_headers(contract):
        if header.lower() in sides:
            problems.add(path, f"is the header that {sides[header.lower()]} sets too")
        sides[header.lower()] = ".".join(path)


def _our_headers(contract: Contract) -> Iterable[tuple[tuple[str, ...], str]]:
    idempotency, auth = contract.create.idempotency, contract.auth
    if auth.kind in ("bearer", "basic", "oauth2_client_credentials"):
        yield ("auth", "kind"), "Authorization"
    if auth.kind == "header" and auth.name is not None:
        yield ("auth", "name"), auth.name
    if contract.trace_header is not None:
        yield ("trace_header",), contract.trace_header
    if idempotency.mechanism == "header" and idempotency.name is not None:
        yield ("create", "idempotency", "name"), idempotency.name


def _reconcile(contract: Contract, document: Mapping[str, Any], problems: Problems) -> None:
    tables = document.get("reconcile", [])
    if not isinstance(tables, list) or len(tables) != len(contract.reconcile):
        return
    for index, (strategy, raw) in enumerate(zip(contract.reconcile, tables, strict=True)):
        path = ("reconcile", index)
        if problems.touches(*path, "strategy"):
            continue
        if strategy.strategy == "resend":
            _resend(contract, raw, path, problems)
        else:
            _look_up(contract, strategy, raw, path, problems)


def _resend(contract: Contract, raw: Mapping[str, Any], path: tuple[str | int, ...], problems: Problems) -> None:
    idempotency = contract.create.idempotency
    at = (*path, "strategy")
    if problems.touches("create", "idempotency"):
        return
    if idempotency.mechanism == "none":
        problems.add(at, "cannot resend without an idempotency token: it would create a second job")
    elif idempotency.memory is None and not idempotency.while_record_exists:
        message = "cannot resend while create.idempotency.memory does not say how long the provider knows the token"
        problems.add(at, message)
    elif contract.resend_window is None:
        message = "cannot resend in time: the token's memory is not longer than the create timeout"
        problems.add(at, message)
    for key in (*_FOR_LISTS, *_FOR_LOOK_UPS):
        if key in raw:
            problems.add((*path, key), 'has no meaning with strategy = "resend"')


def _look_up(
    contract: Contract,
    strategy: Strategy,
    raw: Mapping[str, Any],
    path: tuple[str | int, ...],
    problems: Problems,
) -> None:
    kind = strategy.strategy
    required = {"list": ("path", "items", "item_id", "match"), "singleton": ("path", "item_id"), "get": ("path",)}[kind]
    for key in required:
        if key not in raw:
            problems.add((*path, key), f'is missing; strategy = "{kind}" needs it')
    if kind != "list":
        for key in _FOR_LISTS:
            if key in raw:
                problems.add((*path, key), f'has no meaning with strategy = "{kind}"')
    if "page_param" in raw and "next_page" not in raw:
        problems.add((*path, "page_param"), "has no meaning without next_page")
    asked = references(strategy.path, *strategy.query.values())
    if kind == "get" and strategy.path is not None and not asked:
        problems.add((*path, "path"), "must have {operation_id} or {token} in it: it gets one job by our own id")
    if problems.touches("create"):
        return
    sent = sent_names(contract)
    for name in sorted(asked - sent):
        problems.add((*path, "path"), f"asks for {{{name}}}, which the create call never sends")
    for name in sorted(compares_reference(strategy.match) - sent):
        problems.add((*path, "match"), f"compares with operation.{name}, which the create call never sends")


def _status(contract: Contract, document: Mapping[str, Any], problems: Problems) -> None:
    raw, status = document.get("status"), contract.status
    if raw is None:
        if contract.create.job_id:
            problems.add(("status",), "is missing; without it nobody can see how a job goes")
        return
    if status.by_delivery:
        _by_delivery(contract, document, problems)
        return
    if not isinstance(raw, Mapping):
        return
    if "path" not in raw and contract.create.status_url is None and not problems.touches("create", "status_url"):
        problems.add(("status", "path"), "is missing, and create.status_url does not stand in for it")
    _words(contract, raw, "status", problems)


def _words(contract: Contract, raw: Mapping[str, Any], table: str, problems: Problems) -> None:
    """What is said of a job must mean something, and success must be sayable."""
    if "state" not in raw and not raw.get("rules"):
        problems.add((table, "state"), "is missing, and there are no rules in its place")
    if "states" in raw and "state" not in raw:
        problems.add((table, "states"), "has no meaning without state")
    if "state" in raw and not raw.get("states") and not raw.get("rules"):
        problems.add((table, "states"), "is missing, so no word of the provider means anything")
    if problems.touches(table):
        return
    readings = {*contract.status.words.values(), *(rule.means for rule in contract.status.rules)}
    if not readings & SUCCESS_MEANS:
        problems.add((table, "states"), "has no word that means succeeded, so no job could ever succeed")


def _by_delivery(contract: Contract, document: Mapping[str, Any], problems: Problems) -> None:
    """Without a status read, deliveries of webhooks are all that is ever learnt of a job."""
    hooks = document.get("webhook")
    if not isinstance(hooks, Mapping):
        if hooks is None:
            message = 'is "none", and there is no [webhook]: nobody could ever learn how a job goes'
            problems.add(("status",), message)
        return
    if hooks.get("scheme") == "none":
        message = 'is "none", and status is "none" too: nobody could ever learn how a job goes'
        problems.add(("webhook", "scheme"), message)
        return
    _words(contract, hooks, "webhook", problems)
    poll = document.get("poll")
    for table, key, raw in (("poll", "max_silence", poll), ("create", "status_url", document.get("create"))):
        if isinstance(raw, Mapping) and key in raw:
            problems.add((table, key), 'has no meaning with status = "none": the job is never polled')
    for pointer in contract.safety.redact:
        for name, pick in _read_from_deliveries(contract):
            if f"{pick.text}/".startswith(f"{pointer}/") or f"{pointer}/".startswith(f"{pick.text}/"):
                message = f"hides {name}, and of a delivery only what is left after that is kept and read"
                problems.add(("safety", "redact"), message)


def _read_from_deliveries(contract: Contract) -> Iterator[tuple[str, Pick]]:
    status, result = contract.status, contract.result
    yield from (("webhook.state", pick) for pick in status.state)
    if result is None:
        return
    named = {
        "result.url": result.url,
        "result": result.inline,
        "result.size": result.size,
        "result.count": result.count,
    }
    named["result.checksum"] = result.checksum
    yield from ((name, pick) for name, pick in named.items() if pick is not None and pick.pointer is not None)
    yield from ((f"result.also ({also.name})", also.url) for also in result.also)


def _jobs_are_named(contract: Contract, document: Mapping[str, Any], problems: Problems) -> None:
    """A call about one job must say which."""
    calls: list[tuple[str, Template | None, Mapping[str, Template]]] = [
        ("status", contract.status.path, contract.status.query)
    ]
    if contract.cancel is not None:
        calls.append(("cancel", contract.cancel.path, contract.cancel.query))
    if contract.result is not None:
        calls.append(("result", contract.result.path, {}))
    for table, path, query in calls:
        raw = document.get(table)
        if path is None or not isinstance(raw, Mapping) or "path" not in raw or problems.touches(table, "path"):
            continue
        names = {name for template in (path, *query.values()) for name in template.names}
        # A value kept from the create's answer may name the job, too: a run id that its parts share, for one.
        if not names & {"job_id", *REFERENCES} and not any(name.startswith("step.") for name in names):
            problems.add((table, "path"), "does not say which job: put {job_id} into it or into query")


def _one_host(contract: Contract, problems: Problems) -> None:
    """Credentials are for one place: which of several hosts would get them?"""
    if contract.result is None or contract.result.credentials.kind == "none" or problems.touches("result_hosts"):
        return
    if len(contract.result_hosts) > 1:
        message = "is for one host, and result_hosts lists several: no credential is handed from one to another"
        problems.add(("result", "auth"), message)


def _times(contract: Contract, document: Mapping[str, Any], problems: Problems) -> None:
    """Waits that contradict each other."""
    poll = contract.poll
    if not problems.touches("poll"):
        if poll.first > poll.max:
            problems.add(("poll", "first"), "is longer than poll.max")
        if poll.max_silence is not None and poll.max_silence <= poll.max:
            message = "is not longer than poll.max: the provider would abandon a job between two polls"
            problems.add(("poll", "max_silence"), message)
    pairs: list[tuple[str, timedelta, str, timedelta]] = [
        ("create", contract.deadlines.create, "create.timeout", contract.create.timeout)
    ]
    if contract.cancel is not None:
        pairs.append(("cancel", contract.deadlines.cancel, "cancel.timeout", contract.cancel.timeout))
    if contract.result is not None and contract.result.inline is None:
        pairs.append(("collect", contract.deadlines.collect, "result.timeout", contract.result.timeout))
    for key, deadline, other, timeout in pairs:
        if deadline < timeout and not problems.touches("deadlines", key) and not problems.touches(*other.split(".")):
            problems.add(("deadlines", key), f"is shorter than {other}, which one attempt may take")


def _is_pointer(text: str) -> bool:
    try:
        return bool(Pick.parse(text).pointer)
    except ValueError:
        return False


def _is_header(text: str) -> bool:
    try:
        return Pick.parse(f"header:{text}").pattern is None and "|" not in text
    except ValueError:
        return False
