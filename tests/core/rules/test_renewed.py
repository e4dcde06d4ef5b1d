"""A 401 while the edge has other credentials by now: a new attempt, recorded as one, and nobody is called."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from opledger.rules import answers, lookups
from opledger.rules import evidence as e
from opledger.rules.answers import Reading
from opledger.rules.calls import Answer
from opledger.rules.model import Action, State
from tests.support.contracts import CREATE, LIST, RESULT, a_contract, with_cancel
from tests.support.records import JOB, T0, a_record

NOW = T0 + timedelta(minutes=5)
ARGUMENTS: dict[str, Any] = {"call_id": "call_1", "answer": None}


def refused(status: int = 401, *, renewed: bool = True) -> Answer:
    """An answer that refuses our credentials."""
    return Answer(status, {}, json.dumps({"error": "no"}).encode(), NOW, "https://api.example.com/x", renewed=renewed)


def readings(answer: Answer, *, idempotent: bool = True) -> dict[str, Reading]:
    """What such an answer means in every call."""
    op = a_record(State.OBSERVING, remote_job_id=JOB, first_sent_at=T0, accepted_at=T0)
    contract = replace(with_cancel(idempotent=idempotent), result=RESULT, reconcile=(LIST,))
    page = lookups.read_page(answer, op, contract, lookups.Search(LIST), **ARGUMENTS)
    assert isinstance(page, Reading)
    return {
        "create": answers.read_create(answer, op, contract, **ARGUMENTS, resend=False),
        "resend": answers.read_create(answer, op, contract, **ARGUMENTS, resend=True),
        "look-up": page,
        "status": answers.read_status(answer, op, contract, **ARGUMENTS, now=NOW),
        "cancel": answers.read_cancel(answer, op, contract, **ARGUMENTS),
        "result": answers.read_missing_result(answer, op, contract, **ARGUMENTS),
    }


def test_no_call_pauses_a_provider_whose_refusal_is_out_of_date() -> None:
    """And every one that is refused with what we have now does."""
    for call, reading in readings(refused()).items():
        assert not reading.credentials, call
    for call, reading in readings(refused(renewed=False)).items():
        assert reading.credentials, call


def test_it_is_no_success_no_failure_and_no_loss() -> None:
    """401 says that a call was not taken: a create waits for its next attempt, and keeps all that it is."""
    found = {call: reading.evidence for call, reading in readings(refused()).items()}
    create, resend, look_up, status, cancel = (found[k] for k in ("create", "resend", "look-up", "status", "cancel"))
    assert isinstance(create, e.Throttled) and create.action is Action.CREATE
    assert "the next attempt takes fresh ones" in create.why
    assert isinstance(resend, e.Inconclusive) and not resend.next_strategy and resend.retry_at == NOW
    assert isinstance(look_up, e.Inconclusive) and not look_up.next_strategy and look_up.retry_at == NOW
    assert isinstance(status, e.ReadFailed) and status.code == "credentials"
    assert isinstance(cancel, e.Throttled) and cancel.action is Action.CANCEL
    assert isinstance(found["result"], e.ReadFailed)


def test_a_cancel_that_must_not_be_sent_twice_is_not() -> None:
    """Not even then: whoever promises one cancel for one wish sends one."""
    cancel = readings(refused(), idempotent=False)["cancel"].evidence
    assert isinstance(cancel, e.CancelAnswered) and cancel.verdict == "refused"


@pytest.mark.parametrize("renewed", [True, False])
def test_a_contract_that_calls_401_a_refusal_has_the_last_word(renewed: bool) -> None:
    """What the contract says of its own API stands above what we know of our keys."""
    contract = a_contract(create=replace(CREATE, refused=frozenset({400, 401})))
    op = a_record(State.CREATE_PENDING, first_sent_at=T0)
    reading = answers.read_create(refused(renewed=renewed), op, contract, **ARGUMENTS, resend=False)
    assert isinstance(reading.evidence, e.Refused) and not reading.credentials
