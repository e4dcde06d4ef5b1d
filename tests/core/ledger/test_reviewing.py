"""What an approver is shown is kept with the approval, and a cancel names everything that it would stop."""

from __future__ import annotations

import hashlib
import json

import pytest

from opledger.errors import Refused
from opledger.rules.model import State
from tests.core.ledgers import Home, accepted, happens, observed, sent
from tests.core.rules.operations import JOBS

ASKS = JOBS + '[approval]\nrequired = true\n[safety]\nredact = ["/account"]\n'
SHARED = JOBS + ('[cancel]\nmethod = "POST"\npath = "/runs/{step.run}/cancel"\n[create.refs]\nrun = "/run_id"\n')


def test_the_review_shows_the_exact_request_and_hides_what_must_not_be_shown(home: Home) -> None:
    """Method, URL, headers and body stand there; what the contract redacts and credentials do not."""
    home.contract(ASKS)
    with home.ledger() as ledger:
        op = ledger.submit("jobs", {"account": "acct_218", "rows": 5}, requested_by="agent-1")
        shown = ledger.review(op.operation_id)
    assert shown["request"]["method"] == "POST"
    assert shown["request"]["url"] == "https://api.example.com/jobs"
    assert shown["request"]["headers"]["Idempotency-Key"] == op.idempotency_token
    assert shown["request"]["body"] == {"account": "[redacted]", "rows": 5}
    assert "acct_218" not in json.dumps(shown)
    assert shown["fingerprint"] == op.request_fingerprint


def test_a_twin_that_is_open_is_shown_as_one(home: Home) -> None:
    """Before a second one may cost money, the approver sees that the first is there."""
    home.contract(ASKS)
    with home.ledger() as ledger:
        first = ledger.submit("jobs", {"rows": 5}, requested_by="agent-1")
        second = ledger.submit("jobs", {"rows": 5}, requested_by="agent-2")
        compared = ledger.review(second.operation_id)["compared_with"]
    assert compared["operation_id"] == first.operation_id
    assert compared["relation"] == "same"


def test_an_approval_cites_what_was_shown(home: Home) -> None:
    """The review's bytes are kept, and their hash and the contract's digest stand in the event."""
    home.contract(ASKS)
    with home.ledger(operator="jo") as ledger:
        op = ledger.submit("jobs", {"rows": 5}, requested_by="agent-1")
        shown = ledger.review(op.operation_id)
        approved = ledger.approve(op.operation_id, reason="within budget")
        assert approved.state is State.CREATE_PENDING
        event = next(event for event in ledger.events(op.operation_id) if event.kind == "Approved")
        assert event.data is not None
        kept = ledger.store.answer(event.data["shown"])
        assert kept is not None
        assert hashlib.sha256(kept.body).hexdigest() == event.data["shown"]
        assert json.loads(kept.body) == shown
        assert event.data["contract_digest"] == op.contract_digest


def run(home: Home, *wishes: int) -> list[str]:
    """Jobs that run at the provider, all parts of one run."""
    ids = []
    with home.ledger() as ledger:
        for number in wishes:
            op = ledger.submit("jobs", {"rows": number}, requested_by="agent-1")
            call = f"call_{number}"
            bound = accepted(f"job_{number}", call)
            happens(ledger, op, sent(call), type(bound)(call_id=call, job_id=f"job_{number}", refs={"run": "run_9"}))
            happens(ledger, op, observed(job=f"job_{number}"))
            ids.append(op.operation_id)
    return ids


def test_a_cancel_that_would_stop_others_names_them_and_does_nothing(home: Home) -> None:
    """The sub-jobs of one run have one cancel; whoever stops one must know of the others (B24)."""
    home.contract(SHARED)
    first, second = run(home, 1, 2)
    with home.ledger() as ledger:
        with pytest.raises(Refused, match=second):
            ledger.cancel(first, reason="ordered twice")
        assert ledger.show(first).state is State.OBSERVING


def test_named_together_each_gets_its_event_and_one_call_is_sent(home: Home) -> None:
    """The second one's job is stopped by the first one's call: for it nothing is sent, only watched."""
    home.contract(SHARED)
    first, second = run(home, 1, 2)
    with home.ledger() as ledger:
        ledger.cancel(first, reason="ordered twice", also=[first, second])
        ledger.cancel(second, reason="ordered twice", also=[first, second])
        one, other = ledger.show(first), ledger.show(second)
    assert one.cancel is not None
    assert other.cancel is not None
    assert (one.cancel.shares, other.cancel.shares) == (None, first)
    assert one.next is not None
    assert other.next is not None
    assert (one.next.kind, other.next.kind) == ("cancel", "observe")
