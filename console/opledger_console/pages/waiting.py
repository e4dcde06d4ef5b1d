"""What waits for a person, in words: rows for the inbox, and what is to be said of one of them. Pure formatting."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from opledger.rules import partial
from opledger.rules.escalation import PROVIDER_PAUSED, Escalation, Severity
from opledger.rules.model import Operation, State
from opledger_console.views import GLYPHS, Column, Row, TimeStyle, next_words, short_id, span, stamp

COLUMNS: Final[tuple[Column, ...]] = (
    ("", 1, 0),
    ("what", 18, 0),
    ("sev", 4, 50),
    ("age", 4, 0),
    ("left", 6, 0),
    ("provider", 10, 60),
    ("id", 8, 50),
    ("asked by", 14, 100),
    ("why", 0, 0),
)

WHAT: Final[Mapping[str, str]] = {
    State.AWAITING_APPROVAL: "approve",
    State.CREATE_UNKNOWN: "create unknown",
    State.CONTRACT_VIOLATION: "violation",
    State.CANCELLATION_UNCONFIRMED: "cancel unconfirmed",
    State.RESULT_TIMED_OUT: "timed out",
    State.RESULT_UNAVAILABLE: "result missing",
    State.RESULT_VALIDATION_FAILED: "result wrong",
    PROVIDER_PAUSED: "provider paused",
    "final_state_contradicted": "contradicted",
    partial.LOST: "partial missing",
    partial.INVALID: "partial wrong",
    "unknown_state": "unknown word",
    "waiting_human": "waits at provider",
    "status_went_backwards": "went backwards",
}

TABS: Final[Mapping[str, str]] = {
    State.AWAITING_APPROVAL: "request",
    State.CONTRACT_VIOLATION: "conflict",
    State.RESULT_UNAVAILABLE: "result",
    State.RESULT_VALIDATION_FAILED: "result",
    partial.LOST: "result",
    partial.INVALID: "result",
}
"""The tab of an operation's page on which to begin; the timeline where nothing is said."""

_FATES: Final[Mapping[str, str]] = {
    State.CREATE_UNKNOWN: "nothing is sent or looked for any more; a job, should there be one, runs on and costs.",
    State.CONTRACT_VIOLATION: "automation stays stopped: no read, no cancel. The jobs run on and cost.",
    State.CANCELLATION_UNCONFIRMED: "nothing more is sent; the job may run on and cost.",
    State.RESULT_TIMED_OUT: "the job is not read any more; it may still end, and its result lapse unfetched.",
    State.RESULT_UNAVAILABLE: "the operation stays without a result.",
    State.RESULT_VALIDATION_FAILED: "the result is not fetched again, and stays marked as wrong.",
    PROVIDER_PAUSED: "no call is made there, not even a status read or a cancel; deadlines run on.",
    "final_state_contradicted": "the record stays as it is, and the job is not read again.",
    partial.LOST: "the record stays as it is; what the job left is not fetched again, and the provider may delete it.",
    partial.INVALID: "the record stays as it is; what the job left stays attached, marked as wrong.",
}

_KINDS: Final = {Severity.CRITICAL: "bad", Severity.HIGH: "human", Severity.LOW: "busy"}
_SHORT: Final = {Severity.CRITICAL: "crit", Severity.HIGH: "high", Severity.LOW: "low"}


def what(code: str) -> str:
    """Return what is wanted, in plain words."""
    return WHAT.get(code, code.replace("_", " "))


def left_words(deadline: datetime | None, now: datetime) -> str:
    """Return how long is left until a deadline; ``-`` where there is none."""
    if deadline is None:
        return "-"
    return "passed" if deadline <= now else span(deadline - now)


def taken_words(one: Escalation, now: datetime) -> str:
    """Return who has said that they have seen it, while that holds; else nothing."""
    if not one.acknowledged(now):
        return ""
    until = one.acknowledged_until
    return f"{one.acknowledged_by} has it" + (f" for {span(until - now)}" if until is not None else "")


def row_of(one: Escalation, now: datetime) -> Row:
    """Return the row of one thing that waits."""
    taken = taken_words(one, now)
    cells = (
        "‖" if one.state is None else GLYPHS[one.state],
        what(one.code),
        _SHORT[one.severity],
        stamp(one.since, now, TimeStyle.RELATIVE),
        left_words(one.deadline, now),
        one.contract,
        "-" if one.operation_id is None else short_id(one.operation_id),
        one.requested_by or "-",
        f"[{taken}] {one.reason}" if taken else one.reason,
    )
    return Row(one.subject, cells, "ended" if taken else _KINDS[one.severity], dim=bool(taken))


def fate(one: Escalation, op: Operation | None, now: datetime) -> str:
    """Return what happens if nobody does anything."""
    if one.code == State.AWAITING_APPROVAL:
        if one.deadline is None:
            return "it goes on waiting; nothing is sent."
        if one.deadline <= now:
            return "its time has passed: a worker records it as rejected. Nothing was sent."
        return f"at {one.deadline:%H:%M:%S}Z it lapses and is rejected. Nothing was sent."
    known = _FATES.get(one.code)
    if known is not None:
        return known
    ahead = "" if op is None else next_words(op, now)
    return f"automation goes on by itself{f': {ahead}' if ahead else '.'}"
