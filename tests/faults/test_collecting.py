"""Killed at every step of collecting: there is no result, or the whole one, and what can be read once is read once."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from opledger.rules.model import Operation, State
from tests.faults.lab import Lab
from tests.faults.victim import Strike

pytestmark = [pytest.mark.processes, pytest.mark.slow]

ITEMS = [{"custom_id": f"row-{number}"} for number in range(1, 9)]
RECORDED = {"ResultAccepted", "PartialAttached"}


def dies_and_is_followed(lab: Lab, operation: Operation, effect: str, nth: int = 1) -> Operation:
    """Let a worker die at an effect, and another one go on to the end."""
    hand = lab.worker(Strike(at=effect, nth=nth), until_idle=True, lease=0.5)
    assert hand.ends() == -signal.SIGKILL, hand.tail()
    assert hand.struck() == f"kill {effect}"
    # Whatever the dead one wrote is recorded as a whole, or not recorded.
    found = lab.show(operation)
    assert (found.result is not None) == bool(RECORDED & set(lab.kinds(operation)))
    lab.finish(lease=5.0)
    return lab.show(operation)


def whole(operation: Operation) -> dict[str, int]:
    """How many lines each file has that the record names."""
    result = operation.result
    assert result is not None
    files = {"": result.location, **{file.name: file.location for file in result.also}}
    lines = {name: Path(place).read_bytes().splitlines() for name, place in files.items() if place is not None}
    for read in lines.values():
        assert all(json.loads(line)["custom_id"] for line in read)
    return {name: len(read) for name, read in lines.items()}


@pytest.mark.parametrize(
    ("effect", "nth"),
    [
        *((f"{when} download", nth) for when in ("before", "after") for nth in (1, 2)),
        *(("before chunk", nth) for nth in (1, 2)),
        *((f"{when} keep", nth) for when in ("before", "after") for nth in (1, 2)),
        ("before record ResultAccepted", 1),
        ("after record ResultAccepted", 1),
    ],
)
def test_killed_between_the_files_of_one_result(lab: Lab, effect: str, nth: int) -> None:
    """Two files make one result: both are there in the end, once, and the record names both."""
    operation = lab.submit("batch", "mixed", flavour="batch", requests=ITEMS, _polls=1)
    found = dies_and_is_followed(lab, operation, effect, nth)
    assert found.state is State.SUCCEEDED
    assert whole(found) == {"": 6, "errors": 2}
    assert len(lab.kept()) == 2
    lab.honest()


@pytest.mark.parametrize(
    ("effect", "nth", "statuses"),
    [
        ("after download", 1, [200, 206]),
        ("before record ReadFailed", 1, [200, 206]),
        ("after record ReadFailed", 1, [200, 206]),
        ("before download", 2, [200, 206]),
        ("before keep", 1, [200, 206, 200]),  # it was whole: then it is somebody's who moves it, and no half any more
    ],
)
def test_killed_while_a_transfer_is_gone_on_with(lab: Lab, effect: str, nth: int, statuses: list[int]) -> None:
    """The first half is on the disk, and marked: the next worker asks for the rest of exactly the same thing."""
    operation = lab.submit("breaking", "resumes", _polls=1)
    found = dies_and_is_followed(lab, operation, effect, nth)
    assert found.state is State.SUCCEEDED
    assert found.result is not None
    assert found.result.validated
    reads = lab.wire("result", operation)
    assert [entry["status"] for entry in reads] == statuses
    for entry in reads:
        assert ("range" in entry["headers"]) == ("if-range" in entry["headers"]) == (entry["status"] == 206)
    assert len(lab.kept()) == 1
    lab.honest()


def test_killed_in_the_middle_of_a_stream(lab: Lab) -> None:
    """Nothing was written at the last moment: what was marked before is what the next worker goes on with."""
    operation = lab.submit("breaking", "resumes", _polls=1, rows=40_000)
    hand = lab.worker(Strike(at="before chunk", nth=2), until_idle=True, lease=0.5, mark_every=1)
    assert hand.ends() == -signal.SIGKILL, hand.tail()
    (part,) = lab.partials()
    assert part.stat().st_size > 0
    lab.finish(lease=5.0)
    found = lab.show(operation)
    assert found.state is State.SUCCEEDED
    assert found.result is not None
    assert found.result.validated
    first, second = lab.wire("result", operation)
    assert (first["status"], second["status"]) == (200, 206)
    start = int(second["headers"]["range"].removeprefix("bytes=").removesuffix("-"))
    assert 0 < start < found.result.size // 2
    assert lab.partials() == []
    lab.honest()


@pytest.mark.parametrize(
    ("effect", "reads", "state"),
    [
        ("before record CallSent.collect", 1, State.SUCCEEDED),
        ("after record CallSent.collect", 0, State.RESULT_UNAVAILABLE),
        ("before download", 0, State.RESULT_UNAVAILABLE),
        ("before chunk", 1, State.RESULT_UNAVAILABLE),
        ("after download", 1, State.RESULT_UNAVAILABLE),
        ("before keep", 1, State.RESULT_UNAVAILABLE),
        ("after keep", 1, State.RESULT_UNAVAILABLE),
        ("before record ResultAccepted", 1, State.RESULT_UNAVAILABLE),
        ("after record ResultAccepted", 1, State.SUCCEEDED),
    ],
)
def test_killed_around_a_read_that_can_be_made_once(lab: Lab, effect: str, reads: int, state: State) -> None:
    """Its permit is used once. Where nobody knows what became of it, a person is asked, and nothing is read again."""
    operation = lab.submit(flavour="once", _polls=1)
    found = dies_and_is_followed(lab, operation, effect)
    assert (found.state, found.open_call) == (state, None)
    assert len(lab.wire("result", operation)) == reads
    assert (found.result is not None) == (state is State.SUCCEEDED)
    lab.honest()


@pytest.mark.parametrize(
    "effect",
    ["after record Observed", "before download", "after keep", "before record PartialAttached",
     "after record PartialAttached"],
)  # fmt: skip
def test_killed_while_what_a_failed_job_left_is_fetched(lab: Lab, effect: str) -> None:
    """The failure is settled; its output is attached once, by whoever comes next."""
    operation = lab.submit("failing", flavour="batch", requests=ITEMS, _polls=1)
    found = dies_and_is_followed(lab, operation, effect)
    assert (found.state, found.attention) == (State.FAILED, None)
    assert whole(found) == {"": 4}
    assert lab.kinds(operation).count("PartialAttached") == 1
    assert len(lab.kept()) == 1
    lab.honest()
