"""What is kept of an answer: sanitised, capped, without what the contract redacts."""

from __future__ import annotations

from typing import Any, Final

from opledger.rules import redact
from opledger.rules.calls import Answer, Failure
from opledger.rules.contract import Contract
from opledger.rules.jsontext import JsonError
from opledger.rules.jsontext import dumps as dump_json
from opledger.rules.jsontext import loads as load_json
from opledger.store import Answer as StoredAnswer

KEPT_ANSWER: Final = 64 * 1024
"""Most bytes of an answer that are stored; the hash is over what is stored."""


def kept(outcome: Answer | Failure, contract: Contract, redactor: redact.Redactor) -> StoredAnswer | None:
    """Return an answer as it may be stored; None where there is no body to keep."""
    if isinstance(outcome, Failure) or not outcome.body:
        return None
    body = redactor.mask_bytes(outcome.body)
    if contract.safety.redact:
        body = _without(body, contract.safety.redact)
    return StoredAnswer.of(body[:KEPT_ANSWER], outcome.headers.get("content-type"), size=len(outcome.body))


def document_of(body: bytes) -> Any:
    """Return a JSON answer's document, or None."""
    try:
        return load_json(body)
    except JsonError:
        return None


def _without(body: bytes, pointers: tuple[str, ...]) -> bytes:
    """Blank the contract's redacted places in a JSON answer; other answers are dropped whole."""
    document = document_of(body)
    if document is None:
        return b"[redacted: not JSON]"
    return dump_json(redact.redact_pointers(document, pointers))
