"""An answer taken apart once, and the small questions that every reader of answers asks of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from opledger.rules import cel_names, jsontext, schedule
from opledger.rules.calls import Answer
from opledger.rules.contract import Contract
from opledger.rules.model import Means, Operation, to_rfc3339
from opledger.rules.values import MISSING, Condition, ConditionError, Pick

CREDENTIALS: Final = (401, 403)
WORD_LIMIT: Final = 200
ID_LIMIT: Final = 512


@dataclass(slots=True)
class Page:
    """An answer taken apart once: JSON where it is JSON, and the notes that reading it made."""

    answer: Answer
    contract: Contract
    op: Operation
    document: Any = None
    is_json: bool = False
    why_not_json: str = ""
    notes: list[str] = field(default_factory=list)

    def holds(self, condition: Condition | None, **more: Any) -> bool:
        """Evaluate a condition; one that cannot be evaluated on this answer does not hold, and that is noted."""
        if condition is None:
            return False
        # Only what the condition speaks of: a list of a thousand items, handed over with each, takes half a minute.
        values: dict[str, Any] = {"status": self.answer.status, **more}
        if "headers" in condition.text:
            values["headers"] = dict(self.answer.headers)
        if "body" in condition.text:
            values["body"] = self.document
        if "operation" in condition.text:
            values["operation"] = context(self.op)
        try:
            return condition.holds(values)
        except ConditionError as error:
            self.notes.append(str(error)[:WORD_LIMIT])
            return False

    def pick(self, pick: Pick | None) -> Any:
        """Take a value out of the answer, or MISSING."""
        return MISSING if pick is None else pick.of(self.document, self.answer.headers)

    @property
    def ok(self) -> bool:
        """True for a 2xx status."""
        return 200 <= self.answer.status < 300

    def facts(self, call_id: str | None, answer: str | None) -> dict[str, Any]:
        """Return what every piece of evidence from this answer carries."""
        request_id = next(
            (
                self.answer.headers[name]
                for name in map(str.lower, self.contract.request_id_headers)
                if name in self.answer.headers
            ),
            None,
        )
        return {
            "call_id": call_id,
            "status": self.answer.status,
            "answer": answer,
            "request_id": None if request_id is None else request_id[:WORD_LIMIT],
            "notes": tuple(self.notes),
        }


def context(op: Operation) -> dict[str, Any]:
    """Return the operation as conditions see it."""
    return {
        "operation_id": op.operation_id,
        "contract": op.contract,
        "token": op.idempotency_token,
        "idempotency_token": op.idempotency_token,
        "trace_id": op.trace_id,
        "job_id": op.remote_job_id,
        "remote_job_id": op.remote_job_id,
        "requested_by": op.requested_by,
        "tags": dict(op.tags),
        "state": str(op.state),
        "created_at": to_rfc3339(op.created_at),
    }


def open_page(answer: Answer, contract: Contract, op: Operation) -> Page:
    """Take an answer apart. A body that is not JSON is kept as text, for conditions on text answers."""
    page = Page(answer, contract, op)
    if not answer.body:
        page.why_not_json = "the answer is empty"
        return page
    try:
        page.document = jsontext.loads(answer.body)
        page.is_json = True
    except jsontext.JsonError as error:
        page.why_not_json = f"the answer is not usable JSON: {error}"
        page.document = answer.body[:65536].decode("utf-8", "replace").replace("\0", "\\u0000")
    return page


def text_id(value: Any) -> str | None:
    """Return a job id as text, exactly as received, or None where the value cannot be an id.

    Integers keep all digits (B19); floats, booleans, null, blank and absurdly long texts are no ids, nor is one with
    a NUL in it, which no database keeps, nor ``.`` and ``..``, which would lead every path with them astray.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        value = str(value)
    if not isinstance(value, str) or "\0" in value or value.strip() in ("", ".", ".."):
        return None
    return value if len(value.encode()) <= ID_LIMIT else None


def first_id(page: Page, picks: tuple[Pick, ...]) -> str | None:
    """Return the first usable id among the picks, in order of preference."""
    for pick in picks:
        found = text_id(page.pick(pick))
        if found is not None:
            return found
    return None


def word_of(value: Any) -> str:
    """Return a provider's state word as text, verbatim (cut at a sane length)."""
    if value is MISSING:
        return "(missing)"
    word = value if isinstance(value, str) else jsontext.dumps(value).decode()
    return word[:WORD_LIMIT].replace("\0", "\\u0000")


def means_of(contract: Contract, word: str) -> Means:
    """Return our reading of a word: trimmed and case-folded; a word the contract does not list is unknown."""
    return contract.status.words.get(word.strip().casefold(), Means.UNKNOWN)


def short(page: Page) -> str:
    """Say in a few words what came back."""
    return f"status {page.answer.status}" + (f", {page.why_not_json}" if page.why_not_json else "")


def wait_until(page: Page) -> tuple[datetime | None, str | None]:
    """Return when the provider asks to be called again, and where it said so. Absurd values are capped later."""
    at = page.answer.answered_at
    hints = (*page.contract.poll.hints, *_STANDARD_HINTS)
    found = schedule.read_hint(hints, page.document, page.answer.headers, at)
    return (None, None) if found is None else (at + found[0], found[1])


_STANDARD_HINTS: Final = (Pick.parse("header:retry-after-ms"), Pick.parse("header:retry-after"))
"""Honoured whether a contract names them or not."""


def throttled(page: Page) -> bool:
    """True for 429 and for whatever else the contract names: the call was not taken."""
    return page.answer.status == 429 or page.holds(page.contract.limits.throttled_when)


def refusal(answer: Answer) -> tuple[str, bool]:
    """Say that our credentials were refused, and whether somebody must see to that.

    Where the edge has others by now, an expired token's successor for one, nobody must: the next attempt takes those.
    """
    why = f"the provider refused our credentials (status {answer.status})"
    return (f"{why}; the next attempt takes fresh ones", False) if answer.renewed else (why, True)


def content_type(page: Page) -> str:
    """Return the answer's media type in small letters, without parameters; empty where none is named."""
    return page.answer.headers.get("content-type", "").partition(";")[0].strip().lower()


def reads_status(condition: Condition) -> bool:
    """True where a condition names the answer's status code itself, not only some ``body.status``."""
    return "status" in cel_names.free_names(condition.text)


def redirect_note(page: Page) -> str:
    """Say that a redirect was seen and not followed."""
    return f"redirect {page.answer.status}, not followed" if 300 <= page.answer.status < 400 else short(page)


def moment_of(value: Any, unit: str) -> datetime | None:
    """Read a provider's time stamp: seconds or milliseconds since 1970, or RFC 3339. None where it is neither."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        if unit == "rfc3339":
            moment = datetime.fromisoformat(str(value))
            return None if moment.tzinfo is None else moment.astimezone(UTC)
        return datetime.fromtimestamp(float(value) / (1000 if unit == "ms" else 1), UTC)
    except (ValueError, OverflowError, OSError):
        return None
