"""A ledger of one night, made by hand: something of everything, at times and with ids that are always the same."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from ulid import ULID

from opledger.edges import clock as clocks
from opledger.rules import decide
from opledger.rules import evidence as e
from opledger.rules.model import Action, Deadline, Means, Operation, StoredResult
from opledger.rules.tasks.records import Kind
from opledger.store import Answer, Recorded, Write
from tests.console.planned import Scribe, example
from tests.core.ledgers import WORKER, Home
from tests.core.rules.operations import CANCEL, JOBS

NIGHT: Final = datetime(2026, 11, 29, 3, 12, tzinfo=UTC)
SETTINGS: Final = """
[[policy]]
when = 'operation.body.rows > 1000'
approvals = 2
approvers = ["ana", "ben"]
expires = '8h'
"""
VIDEO: Final = (
    JOBS.replace("api.example.com", "video.example.com")
    + CANCEL
    + """\
leaves = "the frames that were drawn so far"
[result]
url = "/result_url"
[auth]
kind = "bearer"
secret = "env:VIDEO_TOKEN"
[limits]
rate = "5/s"
concurrency = 7
"""
)


# --- time and chance ---------------------------------------------------------------------------------------------


class Hands:
    """The clock of a test, and ids that count up."""

    def __init__(self) -> None:
        self.time = NIGHT
        self._count = itertools.count(1)

    def now(self) -> datetime:
        """The time that the test says it is."""
        return self.time

    def digest(self) -> bytes:
        """Bytes that look like chance and are none."""
        return hashlib.sha256(b"%d" % next(self._count)).digest()

    def hex(self, size: int) -> str:
        """As `secrets.token_hex`."""
        return self.digest()[:size].hex()

    def ulid(self, at: datetime) -> ULID:
        """As `ULID.from_datetime`."""
        return ULID.from_bytes(ULID.from_datetime(at).bytes[:6] + self.digest()[:10])

    def later(self, **span: float) -> None:
        """Let time pass."""
        self.time += timedelta(**span)


# --- a night -----------------------------------------------------------------------------------------------------

Told = e.Evidence | tuple[e.Answered, str]
"""What a worker learned; with it, where there is one, the answer's body."""


class Night:
    """A ledger with something of everything that waits, something that runs and something that has ended."""

    def __init__(self, root: Path, hands: Hands) -> None:
        self.hands = hands
        self.home = Home(root, f"sqlite:///{root / 'ledger.db'}")
        self.home.contract(VIDEO, "video")
        self.ids: dict[str, str] = {}

    def submit(self, name: str, rows: int, contract: str = "jobs", **more: Any) -> str:
        """An agent's wish."""
        self.hands.later(minutes=7)
        agent = ("agent-billing", "agent-reports", "agent-7")[rows % 3]
        with self.home.ledger(SETTINGS) as ledger:
            made = ledger.submit(contract, {"rows": rows, "report": name}, requested_by=agent, **more)
        self.ids[name] = made.operation_id
        return made.operation_id

    def tell(self, operation_id: str, *told: Told, every: float = 2.5) -> Operation:
        """Record what a worker would, one event after the other, so many seconds apart."""
        with self.home.ledger(SETTINGS) as ledger:
            op = ledger.show(operation_id)
            contract = ledger.contract_of(op)
            for one in told:
                self.hands.later(seconds=every)
                now, answer = self.hands.now(), None
                evidence = one if isinstance(one, e.Evidence) else one[0]
                if not isinstance(one, e.Evidence):
                    answer = Answer.of(one[1].encode(), "application/json")
                    evidence = replace(one[0], answer=answer.sha256)

                def plan(after: Operation, evidence: e.Evidence = evidence, now: datetime = now) -> Any:
                    return decide.plan(after, contract, evidence, now, 0.5)

                cause = f"call:{getattr(evidence, 'call_id', None) or 'tick'}"
                (done,) = ledger.store.record_many(
                    [Write(op.operation_id, evidence, WORKER, now, cause, plan, answer=answer)]
                )
                assert isinstance(done, Recorded), done.error
                op = done.operation
        return op

    def begin(self, name: str, rows: int, *told: Told, contract: str = "jobs", **more: Any) -> Operation:
        """A wish that was sent and bound to a job, and what came then."""
        operation_id = self.submit(name, rows, contract, **more)
        job, call = f"job_{rows}", f"call_{rows}"
        body = f'{{"id": "{job}", "state": "queued", "rows": {rows}, "owner": {{"team": "blue"}}}}'
        accepted = e.Accepted(call_id=call, job_id=job, status=201, request_id=f"req_{rows}")
        return self.tell(operation_id, sent(call), (accepted, body), *told)


def sent(call: str, action: Action = Action.CREATE) -> e.CallSent:
    """The permit of a call."""
    creates = action is Action.CREATE
    method, path = ("POST", "/jobs") if creates else ("DELETE", f"/jobs/job_{call.rpartition('_')[2]}")
    return e.CallSent(call, action, method, f"https://api.example.com{path}", 1, may_create=creates)


def _read(rows: int, done: int, word: str = "running", means: Means = Means.RUNNING) -> e.Observed:
    progress = {"completed": done, "total": rows}
    return e.Observed(job_id=f"job_{rows}", status=200, remote_state=word, means=means, progress=progress)


def _asked(rows: int) -> tuple[Told, ...]:
    cancel = e.CancelRequested(f"cancel_{rows}", "agent-billing", "the quarter was closed without it")
    answered = e.CancelAnswered(call_id=f"cancel_{rows}", status=202)
    return _read(rows, 3), cancel, sent(f"cancel_{rows}", Action.CANCEL), answered


def _passes(night: Night, op: Operation, which: Deadline) -> None:
    deadline = {Deadline.RESULT: op.result_deadline, Deadline.CANCEL: op.cancel_deadline}[which]
    assert deadline is not None
    night.hands.time = deadline
    night.tell(op.operation_id, e.DeadlinePassed(which, deadline))


def _ended(night: Night) -> None:
    """What has come to an end."""
    done = _read(120, 120, "done", Means.SUCCEEDED)
    stored = StoredResult(
        "results/2026-11/report.json", 5689, "9f86d0" * 10 + "abcd", "application/json", validated=True
    )
    night.begin(
        "daily sales", 120, _read(120, 20), _read(120, 80), done, e.ResultAccepted(result=stored), contract="video"
    )
    failed = replace(_read(33, 12, "failed", Means.FAILED), error="row 13: no such account")
    night.begin("accounts", 33, _read(33, 10), failed)
    night.begin("stock", 48, *_asked(48), _read(48, 5, "cancelled", Means.CANCELLED))


def _waiting(night: Night) -> None:
    """One of each kind that waits for a person."""
    _passes(night, night.begin("year end", 90, *_asked(90), _read(90, 41)), Deadline.CANCEL)
    _passes(night, night.begin("forecast", 70, *(_read(70, n) for n in (4, 9, 17))), Deadline.RESULT)
    done = _read(21, 21, "done", Means.SUCCEEDED)
    gone = e.ResultMissing(status=404, why="the provider says the result is gone (status 404)")
    night.begin("teaser", 21, done, gone, contract="video")
    wrong = e.ResultInvalid(why="the file does not match its checksum", problems=("sha256 is 74080f, not 9f86d0",))
    night.begin("trailer", 22, replace(done, job_id="job_22"), wrong, contract="video")
    lost = e.CallLost(call_id="call_lost", why="the connection was reset after the request had gone out")
    spent = e.Inconclusive(why="no way is left to find out", exhausted=True)
    night.tell(night.submit("payroll", 64), sent("call_lost"), lost, spent)
    other = e.UnfamiliarJobId(
        call_id="call_again", status=200, why="another job id came back under our token", jobs=("job_57", "job_58")
    )
    body = '{"id": "job_58", "state": "running", "rows": 57, "owner": {"team": "red"}}'
    night.begin("ledger export", 57, _read(57, 1), (other, body))
    night.begin("inventory", 35, _read(35, 8), _read(35, 8, "archived", Means.UNKNOWN))
    taken = e.Acknowledged("ben", NIGHT + timedelta(minutes=40))
    night.tell(night.ids["payroll"], taken)


def _running(night: Night) -> None:
    """What goes on by itself, and what may not begin yet."""
    night.hands.time = NIGHT - timedelta(minutes=40)
    tags = {"team": "growth"}
    night.begin(
        "weekly", 81, _read(81, 2), _read(81, 30), _read(81, 64), task="monthly close", step="collect", tags=tags
    )
    night.submit("invoices", 82, task="monthly close", step="send", tags=tags)
    night.begin("archive", 83, task="archive 2025", step="pack")
    why = "the auditors want all of it by Monday"
    night.submit("audit trail", 5000, expectation=why)
    with night.home.ledger(SETTINGS) as ledger:
        ledger.approve(night.ids["audit trail"], reason="checked with finance", by="ben")
    night.submit("audit trail again", 5001, expectation=why)


def _tasks(night: Night) -> None:
    """Tasks with a plan: one asks, one is run, one waits because a step failed, one is over."""
    with night.home.ledger(SETTINGS) as ledger:
        example(Scribe(ledger, "reports-2026-11", NIGHT - timedelta(minutes=9)), night.ids["daily sales"])
        runs = Scribe(ledger, "monthly close", NIGHT - timedelta(minutes=41))
        runs.began((("collect", "Collect the accounts", "submit"), ("send", "Send the invoices", "submit")))
        runs.add(Kind.INTENT, "collect", proof={"does": "collect", "token": "key-of-collect"})
        ledger.store.tasks.claim(
            "monthly close", runs.run, "box-1/runner_1", "box-1", timedelta(minutes=2), now=NIGHT - timedelta(minutes=1)
        )
        lost = Scribe(ledger, "wages", NIGHT - timedelta(hours=2))
        example(lost, upto=2)
        lost.add(Kind.INTENT, "tell", proof={"does": "python notify.py", "token": "key-of-tell"})
        lost.add(Kind.NOTE, by="ben", reason="the mail server was down at one")
        over = Scribe(ledger, "wages-2026-10", NIGHT - timedelta(days=3))
        example(over)
        over.add(Kind.ANSWER, "publish", by="ana", outputs={"answer": "no"}, reason="sent by hand already")
        over.add(Kind.NOTE, proof={"ended": "stopped", "steps": {}}, reason="step publish was answered with no")


def _places(night: Night) -> None:
    """A paused provider; a worker that lives, and one that died with a lease."""
    now = NIGHT
    with night.home.ledger(SETTINGS) as ledger:
        ledger.store.claim("worker-2-c0ffee", limit=1, lease=timedelta(seconds=90), now=night.hands.now())
        night.hands.time = now
        paused = now - timedelta(minutes=3)
        ledger.store.pause_provider(
            "video", "worker-1-58e936", "the provider refused our credentials (status 401)", paused
        )
        ledger.store.heartbeat(
            "worker-2-c0ffee", "box-2", 52, now - timedelta(minutes=9), started=now - timedelta(days=1)
        )
        started, late = now - timedelta(hours=5), timedelta(seconds=0.2)
        ledger.store.heartbeat("worker-1-58e936", "box-1", 4711, now, started=started, lateness=late)


@contextmanager
def frozen() -> Iterator[Hands]:
    """All time and all chance."""
    made = Hands()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clocks.SystemClock, "now", lambda _: made.now())
        patch.setattr(clocks.SystemClock, "monotonic", lambda _: 100.0)
        patch.setattr(clocks.SystemClock, "random", lambda _: 0.5)
        patch.setattr(clocks, "secrets", SimpleNamespace(token_hex=made.hex))
        patch.setattr(clocks, "ULID", SimpleNamespace(from_datetime=made.ulid))
        yield made


def whole_night(root: Path, hands: Hands) -> Night:
    """Make all of it."""
    hands.time = NIGHT - timedelta(hours=5)
    made = Night(root, hands)
    for part in (_ended, _waiting, _running, _tasks, _places):
        part(made)
    return made
