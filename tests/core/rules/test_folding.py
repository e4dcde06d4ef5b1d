"""A chain is folded fast where its columns are known to be what the bytes say: the record must be the same one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.errors import IllegalTransition
from opledger.rules import evidence as e
from opledger.rules import jsontext
from opledger.rules.audit import Raw, Scanner
from opledger.rules.folding import Folder
from opledger.rules.journal import FORMAT, GENESIS, Finding, body_of, link
from opledger.rules.model import Action, Actor, ActorKind, Choice, Means, Operation, Plan, State
from opledger.rules.projection import Entry, project
from tests.support.records import JOB, OPERATION_ID, T0, a_permit, a_submission

WORKERS: Final = (Actor("w-1", ActorKind.WORKER, "host", "7@x"), Actor("w-2", ActorKind.WORKER))
WORDS: Final = {
    "queued": Means.QUEUED, "running": Means.RUNNING, "odd": Means.UNKNOWN, "asks": Means.WAITING_HUMAN,
    "done": Means.SUCCEEDED, "broken": Means.FAILED, "stopped": Means.CANCELLED, "gone": Means.GONE,
}  # fmt: skip
FIELDS: Final = tuple(field.name for field in fields(Operation))
EPOCH: Final = T0.fromtimestamp(0, T0.tzinfo)


def polled(word: str, **facts: Any) -> e.Observed:
    """What a status read says; its call is named when it is told."""
    return e.Observed(job_id=JOB, remote_state=word, means=WORDS[word], status=200, **facts)


ALPHABET: Final[Sequence[e.Evidence]] = (
    *(polled(word) for word in WORDS),
    polled("running", progress={"completed": 1, "total": 7}, answer="a" * 64),
    polled("running", progress={"completed": 2, "total": 7}, answer="b" * 64),
    polled("running", error="it says so"),
    polled("running", refs={"result": "r"}),
    polled("running", retry_at=T0, hint="Retry-After"),
    polled("done", refs={"result": "r"}),
    e.ReadFailed(call_id="read_1", why="reset"),
    e.CancelRequested("req_1", "ana"),
    a_permit(Action.CREATE),
    e.Accepted(call_id="call_1", job_id=JOB),
    a_permit(Action.CANCEL, "call_2"),
    e.CallLost(call_id="call_2", why="reset"),
    e.CancelAnswered(call_id="call_2"),
    a_permit(Action.COLLECT, "call_3"),
    replace(polled("running"), call_id="call_3"),
    e.ResultMissing(call_id="call_3", why="gone"),
    e.Decided(by="ana", choice=Choice.COLLECT, request_id="req_2"),
    e.Decided(by="ana", choice=Choice.WATCH, request_id="req_3", extend_by=timedelta(hours=1)),
    e.Acknowledged("ana", T0),
    e.Noted("late", late_kind="Accepted", late={"job_id": "job_2"}),
    e.UnfamiliarJobId(call_id="call_1", jobs=(JOB, "job_2")),
)


def rows_of(evidence: Sequence[e.Evidence], luck: random.Random, *, twisted: float = 0.0) -> list[Raw]:
    """The chain of those that apply, one after the other, as the store would write it.

    Of some, as luck takes it, the cause names another call than the evidence: then the evidence's own counts.
    """
    record: Operation | None = None
    rows: list[Raw] = []
    previous, now = GENESIS, T0
    for one in (a_submission(), *evidence):
        seq, call = len(rows) + 1, f"call_{len(rows):x}{luck.randrange(16**9):x}"
        if isinstance(one, e.Observed) and one.call_id is None:
            one = replace(one, call_id=call)  # noqa: PLW2901 - each read has a call of its own
        call_id = getattr(one, "call_id", None)
        if call_id and luck.random() < twisted:
            call_id = "call_of_another"
        cause = f"call:{call_id}" if call_id else "human_request:req_1"
        entry = Entry(OPERATION_ID, seq, now, luck.choice(WORKERS), one, cause, luck.choice([None, 'he "said"\\']))
        try:
            after = project(record, entry)
        except IllegalTransition:
            continue
        left = None if record is None else record.state
        plan = Plan("observe", now, f"after {seq} polls") if luck.random() < 0.7 else None
        rows.append(row_of(entry, left, after, plan, previous))
        record, previous = after, rows[-1][12].hex()
        now += timedelta(microseconds=luck.randrange(1, 10**8))
    return rows


def row_of(entry: Entry, left: State | None, after: Operation, plan: Plan | None, previous: str) -> Raw:
    """One row of the event table."""
    entered: State | None = after.state
    if left is entered:
        left = entered = None
    body = body_of(entry, left, entered, after.remote_job_id, plan)
    digest = bytes.fromhex(link(previous, entry.operation_id, entry.seq, body))
    at = (entry.at - EPOCH) // timedelta(microseconds=1)
    words = (at, entry.actor.name, entry.evidence.kind, left, entered, entry.cause, entry.reason, after.remote_job_id)
    return (entry.operation_id, entry.seq, *words, body, bytes.fromhex(previous), digest, FORMAT)


def both(rows: list[Raw], scanner: Scanner, folder: Folder) -> tuple[dict[str, Any], dict[str, Any]]:
    """All of the record, folded fast and folded from the bytes."""
    assert scanner.whole(OPERATION_ID, rows)
    fast, slow = folder.fold(rows, scanner.said), Folder().fold(rows)
    assert not isinstance(fast, Finding) and not isinstance(slow, Finding), (fast, slow)
    return ({name: getattr(one, name) for name in FIELDS} for one, _ in (fast, slow))  # type: ignore[return-value]


OPENED: Final = (a_permit(Action.CREATE), e.Accepted(call_id="call_1", job_id=JOB))

RUNS = st.lists(st.tuples(st.sampled_from(ALPHABET), st.integers(1, 6)), max_size=12)


@given(RUNS, st.randoms(use_true_random=False))
def test_the_same_record(runs: list[tuple[e.Evidence, int]], luck: random.Random) -> None:
    """However often a word is heard again, and in whatever state: only its last and how often matter."""
    told = [*OPENED, *(one for one, times in runs for _ in range(times))]
    scanner, folder = Scanner(), Folder()
    for _ in range(2):  # the second time words of the first are known
        fast, slow = both(rows_of(told, luck, twisted=0.1), scanner, folder)
        assert fast == slow


def test_long_waits_are_counted_and_not_folded() -> None:
    """A word that was only heard once more makes no entry, whatever it costs to make one."""
    rows = rows_of([*OPENED, *[polled("running")] * 500], random.Random(1))
    scanner = Scanner()
    assert scanner.whole(OPERATION_ID, rows)
    found = Folder().fold(rows, scanner.said)
    assert not isinstance(found, Finding)
    record, entries = found
    assert (record.attempts.observe, record.backoff, record.head_seq) == (500, 500, 503)
    assert len(entries) == 5


def test_a_word_in_answer_to_an_open_call_closes_only_its_own() -> None:
    """The same word is one object, whichever call it answers; an open call must still see which."""
    collecting = [*OPENED, polled("running"), polled("done"), a_permit(Action.COLLECT, "call_3")]
    for call_id, still_open in (("call_3", False), ("call_4", True)):
        heard = [*collecting, replace(polled("running"), call_id=call_id)]
        fast, slow = both(rows_of(heard, random.Random(2)), Scanner(), Folder())
        assert fast == slow
        assert (slow["open_call"] is not None) is still_open


@pytest.mark.parametrize(
    ("seq", "change"),
    [(5, {"data": 7}), (5, {"data": {"nobody": "knows"}}), (5, {"kind": "Unheard"}), (6, {"next": {"at": "x"}})],
)
def test_what_cannot_be_folded_is_a_finding(seq: int, change: dict[str, Any]) -> None:
    """Whoever owns the database may write a chain anew around bytes that mean nothing."""
    rows = rows_of([*OPENED, *[polled("running")] * 3], random.Random(3))
    forged, previous = [], GENESIS
    for row in rows:
        body = row[10]
        if row[1] == seq:
            body = jsontext.dumps({**jsontext.loads(body), **change})
        digest = bytes.fromhex(link(previous, OPERATION_ID, row[1], body))
        kind = change.get("kind", row[4]) if row[1] == seq else row[4]
        forged.append((*row[:4], kind, *row[5:10], body, bytes.fromhex(previous), digest, FORMAT))
        previous = digest.hex()
    scanner = Scanner()
    whole = scanner.whole(OPERATION_ID, forged)
    found = Folder().fold(forged, scanner.said)
    assert isinstance(found, Finding)
    assert (found.kind, found.operation_id) == ("PROJECTION", OPERATION_ID)
    assert found.seq == seq
    assert whole is ("next" not in change and change.get("data") != 7)
