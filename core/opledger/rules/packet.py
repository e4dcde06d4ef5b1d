"""The escalation packet: all that a provider's support, or the next person on call, needs to know of an operation.

It holds nothing that is not in the journal already, and the journal holds no secrets; outside text is made inert for
Markdown. The JSON form keeps outside text as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from opledger.rules import jsontext, shapes
from opledger.rules.choices import Option, choices
from opledger.rules.contract import Contract, Guarantees
from opledger.rules.model import Operation, StoredRequest
from opledger.rules.plain import clean
from opledger.rules.redact import mask_url, redact_pointers
from opledger.rules.shapes import Event, Json

SHOWN_BODY: Final = 4096
"""Most characters of an answer or a body that Markdown shows; the JSON form has all that is stored."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A stored answer as the packet shows it."""

    sha256: str
    text: str
    content_type: str | None
    size: int
    truncated: bool


def packet(
    op: Operation,
    contract: Contract,
    guarantees: Guarantees,
    events: Sequence[Event],
    request: StoredRequest,
    answers: Mapping[str, Kept],
    *,
    checkpoint: Json | None = None,
) -> Json:
    """Return the packet as data (`packet --json`). `checkpoint`: the one that holds it; None: none does yet."""
    report = shapes.contract_report(contract.name, guarantees)["guarantees"]
    return {
        "operation_id": op.operation_id,
        "remote_job_id": op.remote_job_id,
        "trace_id": op.trace_id,
        "provider_request_ids": _request_ids(events),
        "contract": {"name": op.contract, "digest": op.contract_digest, "title": contract.title or None},
        "guarantees": report,
        "record": shapes.record(op),
        "request": request_shown(contract, request),
        "history": [shapes.transition(event) for event in events if event.to_state is not None],
        "calls": _calls(events),
        "answers": [
            {
                "sha256": kept.sha256,
                "content_type": kept.content_type,
                "size": kept.size,
                "truncated": kept.truncated,
                "body": kept.text,
            }
            for kept in answers.values()
        ],
        "choices": [shapes.option(option) for option in choices(op, contract)],
        "head": {"seq": op.head_seq, "hash": op.head_hash},
        "checkpoint": checkpoint,
    }


def cited(events: Sequence[Event]) -> tuple[str, ...]:
    """Return the hashes of all answers that the events refer to, in order, each once."""
    found = (event.data.get("answer") for event in events if event.data is not None)
    return tuple(dict.fromkeys(answer for answer in found if isinstance(answer, str)))


def _request_ids(events: Sequence[Event]) -> list[str]:
    # A person's wish has a request id too; only what names a call came from the provider.
    found = (event.data.get("request_id") for event in events if event.data is not None and "call_id" in event.data)
    return list(dict.fromkeys(str(one) for one in found if one))


def request_shown(contract: Contract, request: StoredRequest) -> Json:
    """Return the create request as it was sent, less credentials and what the contract redacts."""
    body: Any = request.body.decode("utf-8", "replace")
    if contract.create.body == "json" and request.body:
        body = redact_pointers(jsontext.loads(request.body), contract.safety.redact)
    elif contract.safety.redact:
        body = "[redacted]"
    return {
        "method": request.method,
        "url": mask_url(request.url),
        "headers": dict(request.headers),
        "body": body,
    }


def _calls(events: Sequence[Event]) -> list[Json]:
    """Return each outside call: what was asked when, and what came back when. Safe reads have only an answer."""
    calls: dict[str, Json] = {}
    for event in events:
        data = event.data or {}
        call_id = data.get("call_id")
        if not isinstance(call_id, str):
            continue
        call = calls.setdefault(
            call_id,
            {
                "call_id": call_id, "action": None, "method": None, "url": None, "strategy": None, "sent_at": None,
                "answered_at": None, "status": None, "outcome": None, "why": None, "request_id": None, "answer": None,
                "seq": [],
            },
        )  # fmt: skip
        call["seq"].append(event.seq)
        if event.kind == "CallSent":
            call |= {key: data.get(key) for key in ("action", "method", "url", "strategy")}
            call["sent_at"] = shapes.moment(event.at)
            continue
        call["answered_at"] = shapes.moment(event.at)
        call["outcome"] = event.kind
        call["action"] = call["action"] or data.get("action") or _ACTIONS.get(event.kind)
        for key in ("status", "request_id", "answer"):
            call[key] = data.get(key)
        call["why"] = data.get("why") or data.get("error") or data.get("remote_state")
    return list(calls.values())


_ACTIONS: Final[Mapping[str, str]] = {
    "Observed": "observe",
    "ReadFailed": "observe",
    "ResultAccepted": "collect",
    "ResultInvalid": "collect",
    "ResultMissing": "collect",
    "ResultAllItemsFailed": "collect",
}


# --- Markdown ----------------------------------------------------------------------------------------------------


def markdown(document: Json, options: Sequence[Option] = ()) -> str:
    """Return the packet as Markdown. Nothing that came from outside can act in it as markup or on a terminal."""
    record = document["record"]
    lines = [
        f"# Escalation packet: {document['operation_id']}",
        "",
        f"- contract: {_code(record['contract'])} ({_code(record['contract_digest'])})",
        f"- state: {_code(record['state'])}; the provider's word: {_code(record['remote_state'])}",
        f"- remote job id: {_code(document['remote_job_id'])}",
        f"- every job id seen: {', '.join(map(_code, record['jobs'])) or '(none)'}",
        f"- trace id: {_code(document['trace_id'])}",
        f"- idempotency token: {_code(record['idempotency_token'])}",
        f"- fingerprint: {_code(record['request_fingerprint'])}",
        f"- provider request ids: {', '.join(map(_code, document['provider_request_ids'])) or '(none)'}",
        f"- requested by {_code(record['requested_by'])} at {record['created_at']}",
        f"- journal head: event {document['head']['seq']}, {_code(document['head']['hash'])}",
    ]
    checkpoint = document["checkpoint"]
    if checkpoint is not None:
        which = f"checkpoint {checkpoint['number']} of {checkpoint['at']}"
        lines.append(f"- signed: {which} holds it up to event {checkpoint['seq']}")
    attention = record["attention"]
    if attention is not None:
        lines.append(
            f"- attention: {_code(attention['code'])} since {attention['since']}: {_plain(attention['reason'])}"
        )
    lines += ["", "## What was asked for", "", *_block(_request_text(document["request"]))]
    lines += [
        "",
        "## Transitions",
        "",
        "| seq | at | from | to | evidence | cause | reason |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        "| " + " | ".join(_cell(event[key]) for key in ("seq", "at", "from", "to", "kind", "cause", "reason")) + " |"
        for event in document["history"]
    ]
    lines += ["", "## Calls", "", "| sent | answered | call | status | outcome | why | provider request id |"]
    lines += ["|---|---|---|---|---|---|---|"]
    lines += [_call_row(call) for call in document["calls"]]
    lines += ["", "## What the contract promises", ""]
    lines += [f"- {name}: {_plain(_promise(document['guarantees'][name]))}" for name in ("create", "cancel", "result")]
    lines += [f"- gap: {_plain(gap)}" for gap in document["guarantees"]["gaps"]]
    if document["choices"]:
        lines += ["", "## What a person may decide", ""]
        lines += [f"- {_code(option['choice'])}: {_plain(option['consequence'])}" for option in document["choices"]]
    lines += ["", "## Answers, as received (sanitised)", ""]
    for answer in document["answers"]:
        cut = " (cut)" if answer["truncated"] or len(answer["body"]) > SHOWN_BODY else ""
        lines += [
            f"{_code(answer['sha256'])}, {answer['size']} bytes{cut}",
            "",
            *_block(answer["body"][:SHOWN_BODY]),
            "",
        ]
    if checkpoint is not None:
        lines += ["## The checkpoint that holds it", "", *_block(checkpoint["note"].rstrip("\n"))]
    return "\n".join(lines).rstrip() + "\n"


def _promise(what: Mapping[str, Any]) -> str:
    return "; ".join(f"{name} {value}" for name, value in what.items() if value not in (None, "", []))


def _request_text(request: Json) -> str:
    head = [
        f"{request['method']} {request['url']}",
        *(f"{name}: {value}" for name, value in request["headers"].items()),
    ]
    body = request["body"]
    shown = body if isinstance(body, str) else jsontext.dumps_inert(body, indent=2)
    return "\n".join([*head, "", shown[:SHOWN_BODY]])


def _call_row(call: Json) -> str:
    what = " ".join(str(call[key]) for key in ("action", "method", "url", "strategy") if call[key])
    columns = (
        call["sent_at"],
        call["answered_at"],
        what,
        call["status"],
        call["outcome"],
        call["why"],
        call["request_id"],
    )
    return "| " + " | ".join(map(_cell, columns)) + " |"


def _plain(text: Any) -> str:
    """Outside text between Markdown: inert on a terminal, and without characters that Markdown acts on."""
    shown = clean(str(text))
    return "".join(f"\\{char}" if char in r"\`*_{}[]<>#|!~" else char for char in shown)


def _cell(value: Any) -> str:
    return "" if value is None else _plain(clean(str(value), limit=160))


def _code(value: Any) -> str:
    return "(none)" if value is None else f"`{clean(str(value), limit=200).replace('`', chr(0x2CB))}`"


def _block(text: str) -> list[str]:
    """A fenced block that its content cannot close."""
    content = clean(text, newlines=True)
    fence = "```"
    while fence in content:
        fence += "`"
    return [fence, *content.splitlines(), fence]
