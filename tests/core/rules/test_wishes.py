from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from opledger.errors import BodyConflict, UsageError
from opledger.rules import requests, wishes
from opledger.rules.policy import Demand
from opledger.rules.wishes import Wish
from tests.core.rules.operations import CANCEL, JOBS, contract, operation

WISH = Wish("jobs", {"rows": 5}, requested_by="agent-7")
ID = "op_01TESTTESTTESTTESTTEST0001"


def admitted(wish: Wish = WISH, source: str = JOBS, demand: Demand | None = None) -> wishes.Admitted:
    """A wish that was let in."""
    return wishes.admit(wish, contract(source=source), operation_id=ID, trace_id="a" * 32, demand=demand or Demand())


def test_the_first_event_holds_what_the_record_is_rebuilt_from() -> None:
    """The journal alone must be enough."""
    wish = replace(
        WISH,
        tags={"team": "a"},
        expectation="a CSV",
        create_deadline=timedelta(seconds=9),
        result_deadline=timedelta(minutes=9),
        supersedes="op_old",
        task="t",
        step="s",
    )
    found = admitted(wish)
    event = found.submitted
    assert event.fingerprint == requests.fingerprint_of(contract(), found.request)
    assert event.token is not None
    assert event.token.encode() in dict(found.request.headers)["Idempotency-Key"].encode()
    assert (event.create_timeout, event.result_timeout) == (timedelta(seconds=9), timedelta(minutes=9))
    assert (event.cancel_timeout, event.collect_timeout) == (timedelta(minutes=10), timedelta(minutes=15))
    assert (event.tags, event.expectation, event.supersedes) == ({"team": "a"}, "a CSV", "op_old")
    assert (event.task, event.step, event.approvals_needed, event.approval_because) == ("t", "s", 0, None)


def test_an_approval_that_is_needed_stands_in_the_first_event() -> None:
    """Why it waits, for how many and how long, must not depend on tomorrow's settings."""
    event = admitted(demand=Demand(2, None, expires=timedelta(hours=1), because="a policy")).submitted
    assert (event.approvals_needed, event.approval_timeout) == (2, timedelta(hours=1))
    assert event.approval_because == "a policy"


@pytest.mark.parametrize(
    ("source", "has"),
    [
        (JOBS, True),
        (JOBS.replace('mechanism = "header"\nname = "Idempotency-Key"\nmemory = "1h"', 'mechanism = "none"'), False),
    ],
)
def test_a_token_is_made_only_where_it_goes_out(source: str, has: bool) -> None:
    """A record that shows a token the provider never sees would promise what nobody keeps."""
    source = source.replace('[[reconcile]]\nstrategy = "resend"\n', "")
    assert (admitted(source=source).submitted.token is not None) is has


def test_the_same_step_has_the_same_token_under_any_id() -> None:
    """A step that is asked again after everything was forgotten is the same wish (DESIGN §8)."""
    wish = replace(WISH, task="t", step="s")
    first = wishes.admit(wish, contract(), operation_id="op_a", trace_id="a" * 32, demand=Demand())
    second = wishes.admit(wish, contract(), operation_id="op_b", trace_id="b" * 32, demand=Demand())
    assert first.submitted.token == second.submitted.token


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"operation_id": "nope"}, "operation id"),
        ({"operation_id": "op_"}, "operation id"),
        ({"operation_id": "op_" + "x" * 65}, "operation id"),
        ({"operation_id": "op_a/b"}, "operation id"),
        ({"operation_id": "op_a\n"}, "operation id"),
        ({"tags": {"": "x"}}, "tag"),
        ({"tags": {"a b": "x"}}, "tag"),
        ({"tags": {"a": "x\n"}}, "tag"),
        ({"tags": {"a": "x" * 201}}, "tag"),
        ({"create_deadline": timedelta(0)}, "create deadline"),
        ({"result_deadline": timedelta(seconds=-1)}, "result deadline"),
        ({"task": "t"}, "step"),
        ({"step": "s"}, "task"),
        ({"task": " ", "step": "s"}, "task"),
        ({"task": "t", "step": "s\x00"}, "step"),
        ({"expectation": "x" * 4001}, "expectation"),
        ({"expectation": "a\0b"}, "expectation"),
    ],
)
def test_what_cannot_be_kept_is_refused(changes: dict[str, Any], says: str) -> None:
    """Everything is checked before anything is written."""
    with pytest.raises(UsageError, match=says):
        wishes.check(replace(WISH, **changes))


def test_what_just_fits_is_kept() -> None:
    """The limits are generous and exact."""
    wishes.check(replace(WISH, tags={"a" * 64: "x" * 200, "a:b/c.d-e": ""}, expectation="x" * 4000))
    wishes.check(replace(WISH, task="t" * 200, step="s" * 200))


@pytest.mark.parametrize("operation_id", ["op_a", ID, "op_" + "x" * 64, "op_A-b_9"])
def test_ids_of_callers_are_taken(operation_id: str) -> None:
    """An agent that names its own operations can ask again after a restart."""
    wishes.check(replace(WISH, operation_id=operation_id))


@pytest.mark.parametrize("body", [{"a": float("nan")}, {"a": {1: 2}}, {"a": object()}, {"a": "\ud800"}])
def test_a_body_that_is_no_json_is_refused(body: Any) -> None:
    """Two programs must read the same request in the same bytes."""
    with pytest.raises(UsageError, match="body"):
        admitted(replace(WISH, body=body))


def test_the_same_wish_again_is_the_same_operation() -> None:
    """Agents forget and ask again; only who asks, tags and deadlines may differ."""
    first = operation(request_fingerprint=admitted().submitted.fingerprint)
    again = replace(WISH, requested_by="agent-8", tags={"x": "y"})
    assert wishes.same(again, first, contract()) is first


@pytest.mark.parametrize("changes", [{"body": {"rows": 6}}, {"body": None}, {"contract": "other"}])
def test_another_body_under_the_same_identity_is_refused(changes: dict[str, Any]) -> None:
    """The first one stands, and the message says which it is."""
    first = operation(request_fingerprint=admitted().submitted.fingerprint)
    with pytest.raises(BodyConflict, match=rf"^{ID}.*agent-7.*another body"):
        wishes.same(replace(WISH, **changes), first, contract())


def test_a_conflict_in_a_step_names_the_step() -> None:
    """Whoever asks for a step knows no operation id."""
    first = operation(request_fingerprint="sha256:other", task="t", step="s")
    with pytest.raises(BodyConflict, match=r"^task t, step s is op_"):
        wishes.same(replace(WISH, task="t", step="s"), first, contract())


def test_policies_see_the_body_that_was_asked_for() -> None:
    """Rules are written about the caller's words, not about token fields that we put in."""
    from opledger.rules.files.settings import Policy
    from opledger.rules.values import Condition

    def asks(when: str) -> int:
        policy = Policy(Condition.parse(when, frozenset({"operation"})))
        return wishes.needs(replace(WISH, tags={"team": "a"}), contract(CANCEL), ID, [policy]).approvals

    assert asks('operation.contract == "jobs" && operation.body.rows == 5 && operation.tags.team == "a"') == 1
    assert asks('operation.requested_by == "agent-7" && operation.method == "POST" && operation.task == null') == 1
    assert asks("operation.body.rows > 5") == 0
