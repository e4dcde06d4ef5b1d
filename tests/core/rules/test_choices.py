"""What a person is offered, and that every offer can be taken."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from opledger.errors import IllegalTransition
from opledger.rules import evidence as e
from opledger.rules.choices import Option, choices
from opledger.rules.contract import Contract
from opledger.rules.model import CancelIntent, Choice, Operation, State, StoredResult
from opledger.rules.states import advance
from tests.support.contracts import a_contract, with_cancel
from tests.support.records import T0, a_record

INTENT = CancelIntent("req_1", "ana", T0, "too dear")
RESULT = StoredResult("file:///r", 3, "0" * 64, "text/csv", validated=False)

ASKED = {
    State.CREATE_UNKNOWN: ("bind", "not-created", "resend", "close"),
    State.CONTRACT_VIOLATION: ("keep", "cancel", "close"),
    State.CANCELLATION_UNCONFIRMED: ("watch", "cancel", "close"),
    State.RESULT_TIMED_OUT: ("extend", "close"),
    State.RESULT_UNAVAILABLE: ("collect", "accept", "close"),
    State.RESULT_VALIDATION_FAILED: ("collect", "accept", "close"),
}


def a_question(state: State, **facts: object) -> Operation:
    """A record in a state where a person is asked."""
    return a_record(state, first_sent_at=T0, remote_job_id="job_1", jobs=("job_1", "job_2"), **facts)


def offers(op: Operation, contract: Contract | None = None) -> dict[str, Option]:
    """The choices by name."""
    return {option.choice.value: option for option in choices(op, contract or a_contract())}


@pytest.mark.parametrize("state", State, ids=str)
def test_a_person_is_offered_what_the_design_lists(state: State) -> None:
    """No more and no less, in every state."""
    assert tuple(offers(a_question(state))) == ASKED.get(state, ())


@pytest.mark.parametrize("state", ASKED, ids=str)
@pytest.mark.parametrize("contract", [a_contract(), a_contract(cancel=None)], ids=["cancel", "no cancel"])
@pytest.mark.parametrize("intent", [None, INTENT], ids=["", "cancel stands"])
def test_every_offer_leads_where_it_says(state: State, contract: Contract, intent: CancelIntent | None) -> None:
    """A dialog that offers what the machine then refuses is worse than none."""
    op = a_question(state, cancel=intent)
    for option in choices(op, contract):
        job = "job_2" if "job" in option.needs else None
        time = timedelta(minutes=5) if "for" in option.needs else None
        assert advance(op, e.Decided("ana", option.choice, job, time)) is option.to
        for words in (option.precondition, option.consequence, option.undoable):
            assert words.endswith(".")


@pytest.mark.parametrize("state", ASKED, ids=str)
def test_what_an_offer_needs_is_needed(state: State) -> None:
    """A choice that asks for a job id or a time must not be taken without."""
    op = a_question(state)
    for option in choices(op, a_contract()):
        if option.needs:
            with pytest.raises(IllegalTransition):
                advance(op, e.Decided("ana", option.choice))


@pytest.mark.parametrize("state", [State.CONTRACT_VIOLATION, State.CANCELLATION_UNCONFIRMED])
def test_no_cancel_is_offered_where_the_provider_has_none(state: State) -> None:
    """The console says so before anybody needs it."""
    assert "cancel" not in offers(a_question(state), a_contract(cancel=None))


def test_what_a_cancel_leaves_and_destroys_is_said_before() -> None:
    """Whoever confirms must know the damage (it stands in the contract)."""
    contract = with_cancel(destroys=("the export", "its log"), leaves="Rows stay.")
    for state in (State.CONTRACT_VIOLATION, State.CANCELLATION_UNCONFIRMED):
        said = offers(a_question(state), contract)["cancel"].undoable
        assert said == (
            "What has been sent cannot be called back. It leaves behind: Rows stay. It destroys: the export, its log."
        )


def test_without_a_known_job_a_violation_can_only_be_closed() -> None:
    """There is nothing to keep and nothing to cancel."""
    assert tuple(offers(replace(a_question(State.CONTRACT_VIOLATION), jobs=()))) == ("close",)


def test_the_jobs_in_question_are_listed() -> None:
    """A person chooses between ids, not between guesses."""
    found = offers(a_question(State.CONTRACT_VIOLATION))
    assert {name: option.jobs for name, option in found.items()} == dict.fromkeys(found, ("job_1", "job_2"))


def test_what_will_be_sent_is_said() -> None:
    """Calls that leave the building are named before the choice, and only those."""
    sent = {
        (state, name): option.sends
        for state in ASKED
        for name, option in offers(a_question(state), with_cancel(method="POST")).items()
        if option.sends is not None
    }
    assert sent == {
        (State.CREATE_UNKNOWN, "resend"): "POST create of reports under token idem_abcdefghijklmnop",
        (State.CONTRACT_VIOLATION, "cancel"): "the cancel call (POST)",
        (State.CANCELLATION_UNCONFIRMED, "cancel"): "the cancel call (POST)",
        (State.RESULT_UNAVAILABLE, "collect"): "result read",
        (State.RESULT_VALIDATION_FAILED, "collect"): "result read",
    }


def test_nothing_is_created_any_more_while_a_cancel_stands() -> None:
    """A resend would be taken back before it left; a job that is bound is cancelled at once."""
    found = offers(a_question(State.CREATE_UNKNOWN, cancel=INTENT))
    assert tuple(found) == ("bind", "not-created", "close")
    assert found["bind"].sends == "the cancel call (DELETE)"
    assert "cancelled" in found["bind"].consequence
    without = offers(a_question(State.CREATE_UNKNOWN, cancel=INTENT), a_contract(cancel=None))
    assert (without["bind"].sends, "polled" in without["bind"].consequence) == (None, True)


@pytest.mark.parametrize("state", [State.RESULT_UNAVAILABLE, State.RESULT_VALIDATION_FAILED])
@pytest.mark.parametrize(("result", "words"), [(RESULT, "stays attached"), (None, "no result")])
def test_whoever_accepts_is_told_what_there_is(state: State, result: StoredResult | None, words: str) -> None:
    """To accept a result that is not there is another decision than to accept a wrong one."""
    found = offers(a_question(state, result=result))
    assert words in found[Choice.ACCEPT].consequence
    assert words in found[Choice.CLOSE].consequence
