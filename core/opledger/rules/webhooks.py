"""Is this delivery the provider's, and what is it about? Decided from bytes, headers, secrets and the time alone.

Nothing in a body is read before the signature over exactly these bytes was found right, and nothing that is not under
the signature decides which delivery was here before. A refusal is a value: its kind is counted, its sentence is said.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from opledger.rules import jsontext, signatures
from opledger.rules.contract import Webhook
from opledger.rules.model import Operation, from_rfc3339
from opledger.rules.pages import text_id
from opledger.rules.values import MISSING, ConditionError, Pick

KEEP: Final = timedelta(days=7)
"""How long a delivery is remembered at least: senders try again for up to 75 hours, each time with a new timestamp."""

SOURCE: Final = "webhook"
"""What the events of deliveries name as their source."""

SIGNATURES: Final = 16
"""Most signatures of one delivery that are looked at."""
LONGEST_KEY: Final = 200
LONGEST_TYPE: Final = 100

STANDARD_ID, STANDARD_TIME, STANDARD_SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
_STANDARD: Final = Pick("header:webhook-id", header=STANDARD_ID)


class Kind(StrEnum):
    """Why a delivery is not taken."""

    UNSIGNED = "unsigned"
    SIGNATURE = "signature"
    STALE = "stale"
    FUTURE = "future"
    WRONG_TENANT = "wrong_tenant"
    MALFORMED = "malformed"
    COMPRESSED = "compressed"
    INCOMPLETE = "incomplete"
    TOO_LARGE = "too_large"
    TOO_SLOW = "too_slow"
    UNKNOWN_CONTRACT = "unknown_contract"
    FULL = "full"
    UNAVAILABLE = "unavailable"


STATUS: Final[Mapping[Kind, int]] = {
    Kind.UNSIGNED: 401,
    Kind.SIGNATURE: 401,
    Kind.STALE: 401,
    Kind.FUTURE: 401,
    Kind.WRONG_TENANT: 401,
    Kind.MALFORMED: 400,
    Kind.COMPRESSED: 400,
    Kind.INCOMPLETE: 400,
    Kind.TOO_LARGE: 413,
    Kind.TOO_SLOW: 408,
    Kind.UNKNOWN_CONTRACT: 404,
    Kind.FULL: 429,
    Kind.UNAVAILABLE: 503,
}
"""What the sender is answered: 4xx but 408 and 429 for good, the others are worth another try."""

SENTENCES: Final[Mapping[Kind, str]] = {
    Kind.UNSIGNED: "the delivery has no signature, or not all that was signed: send it as the scheme says",
    Kind.SIGNATURE: "the signature is not right for these bytes and our secrets; compare the secret on both sides",
    Kind.STALE: "the signed time lies too far back: this may be a replay; send it again with a new time",
    Kind.FUTURE: "the signed time lies too far ahead; set the sender's clock",
    Kind.WRONG_TENANT: "the delivery is right and not meant for this contract; send it to its own address",
    Kind.MALFORMED: "its JSON or its signed headers are doubled or broken, and cannot be read in one way only",
    Kind.COMPRESSED: "compressed deliveries are not taken; send the body as it is",
    Kind.INCOMPLETE: "the body broke off before its end",
    Kind.TOO_LARGE: "the delivery is larger than we take",
    Kind.TOO_SLOW: "the delivery took too long to arrive; send it faster",
    Kind.UNKNOWN_CONTRACT: "no contract of this name receives webhooks here; look at the address",
    Kind.FULL: "too many deliveries at once; send this one again later",
    Kind.UNAVAILABLE: "the delivery could not be stored; send it again",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A delivery that is not taken, and why."""

    kind: Kind
    detail: str = ""  #: for our log; never sent back

    @property
    def status(self) -> int:
        """The HTTP status to answer."""
        return STATUS[self.kind]

    @property
    def sentence(self) -> str:
        """What is said to the sender: nothing that it did not know."""
        return SENTENCES[self.kind]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A verified delivery. `key` tells it from all others of its contract; only signed material is in it."""

    key: str
    event_type: str | None
    job_id: str | None
    token: str | None


Headers = Sequence[tuple[str, str]]


def verify(webhook: Webhook, raw: bytes, headers: Headers, secrets: Sequence[str], now: datetime) -> Delivery | Refusal:
    """Judge one delivery. `raw` is the body as it came, `headers` all of them in order with names in small letters.

    Raises ConfigWrong where none of the secrets can be used: then nobody can say what the delivery is worth.
    """
    twice = _said_twice(webhook, headers)
    if twice is not None:
        return Refusal(Kind.MALFORMED, f"the header {twice} stands there twice")
    found = dict(headers)
    keys = signatures.checks(webhook, secrets)
    given = _signatures(webhook, found)
    message = _message(webhook, raw, found)
    if not given or message is None:
        return Refusal(Kind.UNSIGNED)
    # Every key is tried on every signature, however early one is right: how long it takes says nothing.
    right = [check(message, signature) for signature in given for check in keys]
    if not any(right):
        return Refusal(Kind.SIGNATURE)
    untimely = _untimely(webhook, found, now)
    if untimely is not None:
        return untimely
    try:
        document = jsontext.loads(raw)
    except jsontext.JsonError as error:
        return Refusal(Kind.MALFORMED, str(error))
    if not _for_us(webhook, document, found):
        return Refusal(Kind.WRONG_TENANT)
    return Delivery(
        key=_key(webhook, raw, document, found),
        event_type=_short(webhook.event_type, document, found),
        job_id=_id(webhook.job_id, document, found),
        token=_id(webhook.token, document, found),
    )


def signs_body(webhook: Webhook) -> bool:
    """Tell whether a right delivery proves that its body is the provider's."""
    return webhook.scheme != "static_header"


def signs_time(webhook: Webhook) -> bool:
    """Tell whether a replayed delivery is refused by its age."""
    return webhook.scheme == "standard" or (webhook.timestamp is not None and "{timestamp}" in webhook.signed)


def signs_event_id(webhook: Webhook) -> bool:
    """Tell whether the event id is under the signature, so that nobody can make one delivery look like another."""
    pick = _event_id(webhook)
    if pick is None or not signs_body(webhook):
        return False
    if pick.header is None:
        return True
    if webhook.scheme == "standard":
        return pick.header == STANDARD_ID
    return "{id}" in webhook.signed or f"{{header:{pick.header}}}" in webhook.signed.lower()


def _event_id(webhook: Webhook) -> Pick | None:
    return webhook.event_id or (_STANDARD if webhook.scheme == "standard" else None)


def reason(op: Operation, event_type: str | None, job_id: str | None) -> str:
    """Say what a delivery tells, for the journal."""
    said = "a webhook came" if event_type is None else f"a webhook says {event_type}"
    if job_id is None or op.remote_job_id == job_id:
        return said
    if op.remote_job_id is None:
        return f"{said} and names job {job_id}"
    return f"{said} and names job {job_id}, where the record has job {op.remote_job_id}"


# --- what is signed ----------------------------------------------------------------------------------------------


def _said_twice(webhook: Webhook, headers: Headers) -> str | None:
    """Name a header that counts and stands there more than once: two readers could read two deliveries."""
    counts = {pick.header for pick in (webhook.signature, webhook.timestamp, webhook.event_id) if pick is not None}
    counts |= {name.lower() for name in re.findall(r"\{header:([^{}]*)\}", webhook.signed)}
    if webhook.scheme == "standard":
        counts |= {STANDARD_ID, STANDARD_TIME, STANDARD_SIGNATURE}
    seen = Counter(name for name, _ in headers if name in counts)
    return next((name for name, times in seen.items() if times > 1), None)


def _signatures(webhook: Webhook, headers: Mapping[str, str]) -> list[str]:
    if webhook.scheme == "standard":
        return headers.get(STANDARD_SIGNATURE, "").split()[:SIGNATURES]
    pick = webhook.signature
    value = None if pick is None else headers.get(pick.header or "")
    if pick is None or value is None:
        return []
    if pick.pattern is None:
        return [value.strip()] if value.strip() else []
    matches = [match.group(1 if match.re.groups else 0) for match in pick.pattern.finditer(value)]
    return [match for match in matches if match][:SIGNATURES]


def _message(webhook: Webhook, raw: bytes, headers: Mapping[str, str]) -> bytes | None:
    """Return the bytes under the signature, or None where a part of them is missing."""
    if webhook.scheme == "standard":
        event, moment = headers.get(STANDARD_ID), headers.get(STANDARD_TIME)
        if not event or not moment:
            return None
        return b".".join((event.encode("latin-1", "replace"), moment.encode("latin-1", "replace"), raw))
    if webhook.scheme == "static_header":
        return b""
    message = b""
    for literal, name in re.findall(r"([^{}]*)(?:\{([^{}]*)\})?", webhook.signed):
        message += literal.encode()
        if name:
            part = _part(webhook, name, raw, headers)
            if part is None:
                return None
            message += part
    return message


def _part(webhook: Webhook, name: str, raw: bytes, headers: Mapping[str, str]) -> bytes | None:
    if name == "body":
        return raw
    if name == "body_sha256":
        return hashlib.sha256(raw).hexdigest().encode()
    if name.startswith("header:"):
        value: Any = headers.get(name.removeprefix("header:").lower(), MISSING)
    else:
        pick = webhook.timestamp if name == "timestamp" else webhook.event_id
        value = MISSING if pick is None else pick.of(None, headers)
    return value.encode("latin-1", "replace") if isinstance(value, str) and value else None


# --- what is in it -----------------------------------------------------------------------------------------------


def _untimely(webhook: Webhook, headers: Mapping[str, str], now: datetime) -> Refusal | None:
    if not signs_time(webhook):
        return None
    if webhook.scheme == "standard":
        moment = _moment(headers.get(STANDARD_TIME), "s")
    else:
        value = MISSING if webhook.timestamp is None else webhook.timestamp.of(None, headers)
        moment = _moment(value, webhook.timestamp_unit)
    if moment is None:
        return Refusal(Kind.MALFORMED, "the signed time cannot be read")
    if now - moment > webhook.tolerance:
        return Refusal(Kind.STALE, f"signed {now - moment} ago")
    if moment - now > webhook.tolerance:
        return Refusal(Kind.FUTURE, f"signed {moment - now} ahead")
    return None


def _moment(value: Any, unit: str) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        if unit == "rfc3339":
            return from_rfc3339(value)
        if not re.fullmatch(r"[0-9]{1,15}(?:\.[0-9]{1,9})?", value, re.ASCII):
            return None
        return datetime.fromtimestamp(float(value) / (1000 if unit == "ms" else 1), UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _for_us(webhook: Webhook, document: Any, headers: Mapping[str, str]) -> bool:
    if webhook.accept_when is None:
        return True
    try:
        return webhook.accept_when.holds({"body": document, "headers": dict(headers)})
    except ConditionError:
        return False


def _key(webhook: Webhook, raw: bytes, document: Any, headers: Mapping[str, str]) -> str:
    """Name the delivery by its signed id, else by its bytes."""
    pick = _event_id(webhook)
    if pick is not None and signs_event_id(webhook):
        value = text_id(pick.of(document, headers))
        if value is not None:
            plain = len(value) <= LONGEST_KEY and value.isascii() and value.isprintable()
            return f"id:{value}" if plain else f"id-sha256:{hashlib.sha256(value.encode()).hexdigest()}"
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def _id(pick: Pick | None, document: Any, headers: Mapping[str, str]) -> str | None:
    return None if pick is None else text_id(pick.of(document, headers))


def _short(pick: Pick | None, document: Any, headers: Mapping[str, str]) -> str | None:
    value = None if pick is None else pick.of(document, headers)
    if not isinstance(value, str) or not value.strip():
        return None
    return value.replace("\0", "\\u0000")[:LONGEST_TYPE]
