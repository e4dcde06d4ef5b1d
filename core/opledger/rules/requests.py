"""From an action to the plain request that carries it out.

The create request is made once, at submit (`prepare`), stored, and sent as stored. The others are made anew each time
from the record and the contract. Credentials are never in here; the HTTP edge adds them last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from opledger.errors import ConfigWrong, Refused
from opledger.rules import bodies, fingerprint, jsontext, redact
from opledger.rules.calls import Answer, Request, origin_of
from opledger.rules.contract import Also, Auth, Contract, Strategy
from opledger.rules.evidence import Submitted
from opledger.rules.filling import address, filled, fills, names_of, trace, variables, with_query
from opledger.rules.model import Operation, StoredRequest
from opledger.rules.values import MISSING

UNFILLED: Final = {"operation_id": "{operation_id}", "token": "{token}", "trace_id": "{trace_id}"}
"""What stands for the operation's own names while a fingerprint is made: the same wish must have the same one."""


def prepare(
    contract: Contract, *, operation_id: str, token: str | None, trace_id: str, asked: Any | None
) -> StoredRequest:
    """Make the create request exactly as it will be sent, less credentials.

    `asked` is the caller's body: a JSON value for json, an object of texts for form, text for raw, None for none.
    Raises UsageError where the body does not fit the contract's body kind, Refused where it already carries a field
    that the contract fills in.
    """
    create = contract.create
    names = {"operation_id": operation_id, "token": token or "", "trace_id": trace_id, **variables(contract)}
    body, content_type = bodies.make(contract, asked, names, token)
    headers = [(name, template.fill(names)) for name, template in {**contract.headers, **create.headers}.items()]
    if content_type is not None:
        headers.append(("Content-Type", content_type))
    if create.idempotency.mechanism == "header" and token is not None:
        headers.append((create.idempotency.name or "Idempotency-Key", token))
    if contract.trace_header is not None:
        headers.append(trace(contract.trace_header, trace_id))
    query = {name: template.fill(names) for name, template in create.query.items()}
    if create.idempotency.mechanism == "query" and token is not None:
        query[create.idempotency.name or "request_id"] = token
    url = address(contract, create.path, names, query)
    return StoredRequest(
        method=create.method,
        url=url,
        headers=tuple(headers),
        body=body,
        content_type=content_type,
        asked=b"" if asked is None else fingerprint.canonical(asked),
        fingerprint_url=address(
            contract,
            create.path,
            {**names, **UNFILLED},
            {name: template.fill({**names, **UNFILLED}) for name, template in create.query.items()},
        ),
    )


def fingerprint_of(contract: Contract, stored: StoredRequest) -> str:
    """Return the fingerprint of a stored request (checked again before every send)."""
    return fingerprint.fingerprint(contract.name, stored.method, stored.fingerprint_url, stored.asked or None)


def wish(contract: Contract, asked: Any | None) -> str:
    """Return the fingerprint of a wish before there is an operation for it."""
    names = {**UNFILLED, **variables(contract)}
    query = {name: template.fill(names) for name, template in contract.create.query.items()}
    return fingerprint.fingerprint(
        contract.name,
        contract.create.method,
        address(contract, contract.create.path, names, query),
        None if asked is None else fingerprint.canonical(asked),
    )


def check_unchanged(op: Operation, contract: Contract, stored: StoredRequest, submitted: Submitted) -> None:
    """Compare a stored request with what the journal says was submitted, and approved, before it is sent.

    The fingerprint is made of what was asked for; these are the bytes that leave. Raises ConfigWrong where anything
    of them was changed.
    """
    token = contract.create.idempotency
    header = (token.name or "Idempotency-Key").lower() if token.mechanism == "header" else None
    changed = [
        name
        for name, same in (
            ("method", stored.method == submitted.method),
            ("URL", stored.url == submitted.url),
            ("body", hashlib.sha256(stored.body).hexdigest() == submitted.body_sha256),
            (
                "set of headers",
                submitted.headers_sha256 in (None, headers_digest(stored.headers, stored.content_type)),
            ),
            (
                "token",
                header is None or [op.idempotency_token] == [v for n, v in stored.headers if n.lower() == header],
            ),
        )
        if not same
    ]
    if changed:
        raise ConfigWrong(
            f"the stored request of {op.operation_id} has another {' and '.join(changed)} than was submitted; it was "
            "changed outside opledger and is not sent"
        )


def headers_digest(headers: Iterable[Iterable[str]], content_type: str | None) -> str:
    """Return the SHA-256 (hex) over the headers of a stored request, in their order, and its content type."""
    return hashlib.sha256(jsontext.dumps([[list(pair) for pair in headers], content_type])).hexdigest()


def sent_digest(stored: StoredRequest) -> str:
    """Return the SHA-256 (hex) over exactly what is sent: method, URL, headers and body."""
    digest = hashlib.sha256(f"{stored.method} {stored.url}\n".encode())
    for name, value in stored.headers:
        digest.update(f"{name}: {value}\n".encode())
    digest.update(b"\n" + stored.body)
    return digest.hexdigest()


def create(op: Operation, contract: Contract, stored: StoredRequest, *, resend: bool = False) -> Request:
    """Return the create request as stored; on a resend with what the contract adds then.

    Raises ConfigWrong where the stored request no longer has the fingerprint that was recorded: nothing is sent.
    """
    if fingerprint_of(contract, stored) != op.request_fingerprint:
        raise ConfigWrong(
            f"the stored request of {op.operation_id} does not have the fingerprint {op.request_fingerprint}; "
            "it was changed outside opledger and is not sent"
        )
    url, body = stored.url, stored.body
    adds = contract.create.idempotency.resend_adds
    if resend and adds:
        query = {name: value for name, value in adds.items() if not name.startswith("/")}
        fields = {name: value for name, value in adds.items() if name.startswith("/")}
        url = with_query(url, query)
        if fields:
            document = jsontext.loads(body)
            for pointer, value in fields.items():
                document = bodies.put(document, pointer, value)
            body = jsontext.dumps(document)
    return Request(
        method=stored.method,
        url=url,
        headers=stored.headers,
        body=body if contract.create.body != "none" else None,
        auth=contract.auth,
        origin=origin_of(contract.base_url),
        secrets=contract.secrets,
        secret_fields=secret_fields(contract),
        timeout=contract.create.timeout,
        effectful=True,
    )


def secret_fields(contract: Contract) -> tuple[str, ...]:
    """Return the fields of the create's body that the HTTP edge puts secrets into (JSON Pointers)."""
    fields = contract.create.fields.items()
    return tuple(pointer for pointer, text in fields if any(name.startswith("secret.") for name in text.names))


def observe(op: Operation, contract: Contract) -> Request:
    """Return the status read. Raises ConfigWrong where the record has no address that may be read."""
    status = contract.status
    url = op.remote_refs.get("status_url") if contract.create.status_url is not None else None
    if url is None:
        if status.path is None:
            raise ConfigWrong(f"{op.operation_id} has no status URL on the contract's own origin, and no status path")
        url = filled(contract, status.path, op, status.query)
    return _read(op, contract, url, status.method, status.timeout)


def look_up(op: Operation, contract: Contract, strategy: Strategy, page: str | None = None) -> Request:
    """Return a reconciliation look-up; `page` is a further page's URL, already checked."""
    if page is None:
        if strategy.path is None:
            raise ConfigWrong(f"the {strategy.strategy} strategy of {contract.name} has no path")
        page = filled(contract, strategy.path, op, strategy.query)
    return _read(op, contract, page, strategy.method, strategy.timeout)


def cancel(op: Operation, contract: Contract) -> Request:
    """Return the cancel call. Raises Refused where the provider has none."""
    how = contract.cancel
    if how is None:
        raise Refused(f"{contract.name} has no cancel; nothing can be sent for {op.operation_id}")
    headers = _headers(op, contract)
    if how.body is not None:
        headers = (*headers, ("Content-Type", bodies.JSON))
    return Request(
        method=how.method,
        url=filled(contract, how.path, op, how.query),
        headers=headers,
        body=how.body,
        auth=contract.auth,
        origin=origin_of(contract.base_url),
        secrets=contract.secrets,
        timeout=how.timeout,
        effectful=True,
    )


def collect(op: Operation, contract: Contract, status_document: Any, answer_url: str) -> Request:
    """Return the result read. `status_document` is the status answer that named it, fetched just now.

    Raises Refused (with the reason for the record) where the answer names no result, or one on a host that the
    contract does not list.
    """
    result = contract.result
    if result is None:
        raise Refused(f"{contract.name} has no result to fetch")
    if result.path is not None:
        return result_read(op, contract, filled(contract, result.path, op, {}))
    value = result.url.of(status_document, {}) if result.url is not None else MISSING
    if not isinstance(value, str) or not value:
        raise Refused(f"{contract.status.told_in} names no result URL")
    return result_read(op, contract, result_url(contract, value, answer_url))


def collect_parts(
    op: Operation, contract: Contract, status_document: Any, answer_url: str
) -> list[tuple[Also | None, Request | str]]:
    """Return the reads of all files of a result; None stands for the result itself, which comes first.

    A text stands for an optional file whose address may not be read: it says why.

    Where the outcome of each item is read, the result itself may be missing beside a file of failed items: a job
    whose items all failed has none. Raises Refused as `collect` does, and where another file is missing that must
    be there.
    """
    result = contract.result
    if result is None:
        raise Refused(f"{contract.name} has no result to fetch")
    others: list[tuple[Also | None, Request | str]] = []
    for also in result.also:
        value = also.url.of(status_document, {})
        if isinstance(value, str) and value:
            try:
                others.append((also, result_read(op, contract, result_url(contract, value, answer_url))))
            except Refused as refused:
                if not also.optional:
                    raise
                others.append((also, refused.message))
        elif not also.optional:
            raise Refused(f"{contract.status.told_in} names no URL of {also.name}")
    named = result.url is None or result.url.of(status_document, {}) not in (MISSING, None, "")
    if not named and others and result.items is not None:
        return others
    return [(None, collect(op, contract, status_document, answer_url)), *others]


def result_read(op: Operation, contract: Contract, url: str, *, redirected: bool = False) -> Request:
    """Return the read of a result at a URL that `result_url` has let pass. A foreign host gets no credentials.

    Nor does our own one where a redirect led there: whoever sent it would choose what we ask for in our name. Where the
    result has credentials of its own, they go to `result_origin` and nowhere else, and the others never go there.
    """
    result = contract.result
    if result is None:
        raise Refused(f"{contract.name} has no result to fetch")
    origin, given = origin_of(contract.base_url), result_origin(contract)
    if origin_of(url) != origin:
        abroad = Request(method="GET", url=url, origin=origin, timeout=result.timeout, max_bytes=result.max_size)
        return replace(abroad, auth=result.credentials, auth_origin=given) if origin_of(url) == given else abroad
    read = _read(op, contract, url, "GET", result.timeout)
    read = replace(read, max_bytes=result.max_size, effectful=result.single_use)
    if redirected:
        return replace(read, headers=(), auth=Auth(), secrets=None)
    if given == origin:
        return replace(read, auth=result.credentials)
    return read if result.auth == "same_origin" else replace(read, auth=Auth())


def result_origin(contract: Contract) -> str | None:
    """Return the one origin that the result's own credentials are for; None where it has none.

    That is the host in `result_hosts`, which is one then, under the scheme of the base URL; else the own origin.
    """
    result = contract.result
    if result is None or result.credentials.kind == "none":
        return None
    if not contract.result_hosts:
        return origin_of(contract.base_url)
    (host,) = contract.result_hosts
    return origin_of(f"{urlsplit(contract.base_url).scheme}://{host}")


def result_url(contract: Contract, value: str, answer_url: str) -> str:
    """Resolve a result URL against the answer that named it and check that it may be read.

    Own origin, or one of the contract's `result_hosts`; never a step down from https to http. Raises Refused.
    """
    if contract.status.by_delivery and redact.MASK in value:
        raise Refused(
            "the delivery names the result by a link with a signature in it; that is a secret and was not kept, so the "
            "result cannot be read: give [result] a path, or ask the provider for links without a signature"
        )
    try:
        url = _resolved(contract, value, answer_url)
        origin = origin_of(url)
    except ValueError as error:
        raise Refused(f"the result URL cannot be used: {error}") from error
    if origin == origin_of(contract.base_url):
        return url
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    netloc = f"{host}:{parts.port}" if parts.port else host
    listed = {entry.lower() for entry in contract.result_hosts}
    if host not in listed and netloc not in listed:
        raise Refused(
            f"the result is on {netloc}, which the contract does not list under result_hosts; it was not read"
        )
    if urlsplit(contract.base_url).scheme == "https" and parts.scheme != "https":
        raise Refused(f"the result URL steps down from https to http ({netloc}); it was not read")
    return url


def own_url(contract: Contract, value: str, answer_url: str) -> str | None:
    """Resolve a URL from an answer; return it only if it stays on the contract's own origin."""
    try:
        url = _resolved(contract, value, answer_url)
        return url if origin_of(url) == origin_of(contract.base_url) else None
    except ValueError:
        return None


def got_credentials(contract: Contract, url: str) -> bool:
    """Tell whether a result read at this URL may have had credentials with it."""
    return own_url(contract, url, "") is not None or origin_of(url) == result_origin(contract)


def _resolved(contract: Contract, value: str, answer_url: str) -> str:
    # What urllib strips in silence, a client may send: a URL with such characters means two things.
    if not value.isprintable() or " " in value or "\\" in value:
        raise ValueError("it has spaces, backslashes or control characters in it")
    return urljoin(answer_url or contract.base_url, value)


def next_page(contract: Contract, strategy: Strategy, answer: Answer, document: Any, current: str) -> str | None:
    """Return the next page's URL, or None after the last. A page on a foreign origin raises Refused."""
    if strategy.next_page is None:
        return None
    value = strategy.next_page.of(document, answer.headers)
    if value is MISSING or value in (None, "", False):
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise Refused("the list names its next page by neither a text nor a number; it was not read")
    if strategy.page_param is not None:
        return with_query(current, {strategy.page_param: str(value)})
    url = own_url(contract, str(value), current)
    if url is None:
        raise Refused("the list's next page is on another origin; it was not read")
    return url


# --- pieces ------------------------------------------------------------------------------------------------------


def _headers(op: Operation, contract: Contract) -> tuple[tuple[str, str], ...]:
    if not contract.headers and contract.trace_header is None:
        return ()
    headers = [*fills(contract, contract.headers, names_of(op, contract)).items()]
    for name, value in headers:
        if not value.isprintable():
            raise ConfigWrong(f"a value of the provider's answer cannot stand in the header {name}; it was not sent")
        if value.count("{secret.") != contract.headers[name].text.count("{secret."):
            raise ConfigWrong(
                f"a value of the provider's answer asks for a secret in the header {name}; it was not sent"
            )
    if contract.trace_header is not None:
        headers.append(trace(contract.trace_header, op.trace_id))
    return tuple(headers)


def _read(op: Operation, contract: Contract, url: str, method: str, timeout: Any) -> Request:
    return Request(
        method=method,
        url=url,
        headers=_headers(op, contract),
        auth=contract.auth,
        origin=origin_of(contract.base_url),
        secrets=contract.secrets,
        timeout=timeout,
    )
