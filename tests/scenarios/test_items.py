"""Results that are made of items: joined by key, over all files, and never called a success that they are not."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from opledger.errors import Refused
from opledger.rules.model import ItemSummary, Operation, State
from tests.scenarios.stage import Stage

KEYS = [f"row-{number}" for number in range(1, 9)]
ITEMS = [{"custom_id": key, "amount": 10} for key in KEYS]


def batch(stage: Stage, personality: str, variant: str | None = None, **body: Any) -> Operation:
    """Submit a job of eight items, and let the worker work until nothing more happens."""
    operation = stage.submit(personality, variant, flavour="batch", **{"requests": ITEMS, **body})
    stage.run()
    return stage.show(operation)


def lines(location: str | None) -> list[str]:
    """The keys in a kept file, in its order."""
    assert location is not None
    return [json.loads(line)["custom_id"] for line in Path(location).read_text().splitlines()]


def test_a_batch_whose_items_all_went_well_has_succeeded(stage: Stage) -> None:
    """The summary says so, and there is no second file."""
    found = batch(stage, "ideal")
    assert (found.state, found.attention) == (State.SUCCEEDED, None)
    assert found.result is not None
    assert (found.result.items, found.result.also) == (ItemSummary(8, 8, 0), ())
    assert lines(found.result.location) == KEYS
    stage.honest()


def test_b27_some_items_failed_and_stand_in_a_file_of_their_own(stage: Stage) -> None:
    """Both files are read and kept; it is a success, with counts and the names of what failed. B29: in any order."""
    found = batch(stage, "batch", "mixed")
    result = found.result
    assert (found.state, found.attention) == (State.SUCCEEDED, None)
    assert result is not None
    assert result.items == ItemSummary(8, 6, 2, ("row-7", "row-8"))
    assert (result.validated, result.problems) == (True, ())
    assert lines(result.location) == KEYS[5::-1]
    (errors,) = result.also
    assert (errors.name, lines(errors.location)) == ("errors", ["row-7", "row-8"])
    assert found.attempts.collect == 1
    (told,) = stage.told(found, "ResultAccepted")
    assert "errors: read by call_" in told["notes"][0]
    assert len(stage.wire("result", found)) == 2


def test_b27_all_items_failed_is_a_failure_and_says_why(stage: Stage) -> None:
    """The provider says "completed", with no output file at all, and only a file of errors."""
    found = batch(stage, "batch", "all_failed")
    assert found.state is State.FAILED
    assert found.result is not None
    assert (found.result.location, found.result.items) == (None, ItemSummary(8, 0, 8, tuple(KEYS)))
    assert lines(found.result.also[0].location) == KEYS
    assert found.last_error == "all 8 items failed, most of them so: The model was too busy."
    stage.on(found)
    assert stage.show(found) == found


def test_b27_neither_file_is_no_result(stage: Stage) -> None:
    """A job that says "completed" and names nothing has not succeeded."""
    found = batch(stage, "batch", "nothing")
    assert (found.state, found.result) == (State.RESULT_UNAVAILABLE, None)
    assert "names no result URL" in (found.last_error or "")


@pytest.mark.parametrize(
    ("variant", "says"),
    [
        ("missing", "items missing from the result: row-1"),
        ("repeated", "items that stand in the result more than once: row-1"),
        ("extra", "items in the result that were never sent: never-sent"),
    ],
)
def test_b29_items_that_do_not_match_what_was_sent_are_listed(file_stage: Stage, variant: str, says: str) -> None:
    """Nothing is guessed by position: a person looks, and the file as it came is kept."""
    found = batch(file_stage, "batch", variant)
    assert found.state is State.RESULT_VALIDATION_FAILED
    assert found.result is not None
    assert found.result.problems[0] == says
    assert not found.result.validated
    assert lines(found.result.location)
    assert says in (found.last_error or "")


def test_b29_two_items_under_one_key_are_refused_before_anything_is_written(file_stage: Stage) -> None:
    """Afterwards their outcomes could not be told apart."""
    with pytest.raises(Refused, match="the same key: row-1; give each one of its own"):
        batch(file_stage, "ideal", requests=[*ITEMS, {"custom_id": "row-1"}])
    with pytest.raises(Refused, match="item 9 of the body has no key at /custom_id"):
        batch(file_stage, "ideal", requests=[*ITEMS, {"amount": 3}])
    with pytest.raises(Refused, match="no list of items at /requests"):
        batch(file_stage, "ideal", requests="row-1")
    assert (file_stage.operations(), file_stage.calls()) == ([], [])


def test_a_total_that_the_status_states_is_compared(file_stage: Stage) -> None:
    """Where it is not known what was sent, the provider's own count is all there is."""
    sent = 'sent = "/requests"\n'
    file_stage.contract("batch", {sent: "", 'total = "/counts/total"': 'total = "/counts/completed"'})
    found = batch(file_stage, "batch", "mixed")
    assert found.state is State.RESULT_VALIDATION_FAILED
    assert found.result is not None
    assert found.result.problems == ("the result has 8 items; /counts/completed says 6",)


def test_two_files_that_answer_for_one_item_are_not_believed(file_stage: Stage) -> None:
    """A success and an error under one key: whoever reads only one of the files would never know."""
    file_stage.contract("batch", {'url = "/error_url", optional = true': 'url = "/output_url"'})
    found = batch(file_stage, "ideal")
    assert found.state is State.RESULT_VALIDATION_FAILED
    assert found.result is not None
    assert "more than once: row-1 (in the result and in errors), row-2 (in" in found.result.problems[0]


def test_a_second_file_that_must_be_there_and_is_not(file_stage: Stage) -> None:
    """Only an optional one may be missing."""
    file_stage.contract("batch", {", optional = true": ""})
    found = batch(file_stage, "ideal")
    assert (found.state, found.last_error) == (State.RESULT_UNAVAILABLE, "the status answer names no URL of errors")


def test_a_second_file_that_does_not_come_is_fetched_again_with_the_first(stage: Stage) -> None:
    """Half of a result is none: both are read anew, and there is one of each in the end."""
    operation = stage.submit("batch", "mixed", flavour="batch", requests=ITEMS)
    body = "".join(json.dumps({"custom_id": key, "error": None}) + "\n" for key in KEYS[:6])
    whole: dict[str, Any] = {"kind": "result", "body": body, "content_type": "application/jsonl"}
    whole["headers"] = {"x-checksum-sha256": sha256(body.encode()).hexdigest()}
    stage.sim.control(answer_next=[whole, {"kind": "result", "status": 503, "body": {}}])
    stage.run()
    found = stage.show(operation)
    assert (found.state, found.attempts.collect) == (State.SUCCEEDED, 2)
    assert len(stage.wire("result", operation)) == 4
    files = sorted(path.name for path in (stage.folder / "results").rglob("*") if path.is_file())
    assert files == [f"{found.operation_id}.errors.jsonl", f"{found.operation_id}.jsonl"]
