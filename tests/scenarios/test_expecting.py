"""What a requester or a contract expects of a result, held against what came."""

from __future__ import annotations

import pytest

from opledger.rules.model import Choice, State
from tests.scenarios.stage import Stage


@pytest.mark.parametrize("expectation", ["count >= 28", "cel:count >= 28 && size > 10", "a CSV of 30 rows", None])
def test_a_result_that_is_what_was_expected_is_accepted(stage: Stage, expectation: str | None) -> None:
    """A condition that holds, and words for people, both end in a success that is the same."""
    operation = stage.submit(rows=30, wish={"expectation": expectation})
    stage.run()
    found = stage.show(operation)
    assert (found.state, found.expectation) == (State.SUCCEEDED, expectation)
    assert found.result is not None
    assert (found.result.validated, found.result.problems) == (True, ())
    stage.honest()


@pytest.mark.parametrize(
    ("expectation", "why"),
    [
        ("count >= 28", "what the requester expects does not hold: count >= 28 (count: 3)"),
        (
            "items.failed == 0",
            "what the requester expects could not be tried: items.failed == 0 (items cannot be told of this result)",
        ),
    ],
)
def test_a_result_that_falls_short_waits_for_a_person(stage: Stage, expectation: str, why: str) -> None:
    """The provider called it a success; the file is kept, and somebody decides. Nothing is fetched twice for it."""
    operation = stage.submit(rows=3, wish={"expectation": expectation})
    stage.run()
    found = stage.show(operation)
    assert found.state is State.RESULT_VALIDATION_FAILED
    assert found.result is not None
    assert (found.result.validated, found.result.problems) == (False, (why,))
    assert found.result.location is not None
    assert found.attention is not None
    assert why in found.attention.reason
    assert len(stage.wire("result", operation)) == 1
    stage.ledger.resolve(found.operation_id, choice=Choice.ACCEPT, reason="three are enough today", by="olga")
    assert stage.show(operation).state is State.RESOLVED
    stage.honest()


def test_a_contract_expects_it_of_every_result(stage: Stage) -> None:
    """What is true of every report stands in the contract, once."""
    wants = """strict = true\nexpect = "count >= 28 && content_type.startsWith('text/csv')\""""
    stage.contract(changes={"strict = true": wants})
    short, enough = stage.submit(rows=3), stage.submit(rows=30)
    stage.run()
    assert stage.show(enough).state is State.SUCCEEDED
    found = stage.show(short)
    assert found.state is State.RESULT_VALIDATION_FAILED
    assert found.last_error is not None
    assert "what the contract expects does not hold" in found.last_error
    assert "; count: 3)" in found.last_error


@pytest.mark.parametrize(
    ("expectation", "state"), [("size > 1", State.SUCCEEDED), ("size > 9999", State.RESULT_VALIDATION_FAILED)]
)
def test_a_result_inside_the_create_answer_is_held_against_it_too(stage: Stage, expectation: str, state: State) -> None:
    """There is no other way by which a result could go round what was expected of it."""
    operation = stage.submit(flavour="inline", wish={"expectation": expectation})
    stage.run()
    assert stage.show(operation).state is state
