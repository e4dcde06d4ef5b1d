from __future__ import annotations

import signal
from typing import Any

import pytest

from opledger.rules.model import State
from tests.faults.lab import Lab
from tests.faults.victim import Strike

pytestmark = pytest.mark.processes


def test_a_second_job_under_one_token_stops_everything(both: Lab) -> None:
    """The provider ignores the token: the resend started a second job, and only its list shows both (B04)."""
    operation = both.submit("token_ignoring", _seconds=30)
    both.finish()
    found = both.show(operation)
    assert found.state is State.CONTRACT_VIOLATION
    assert set(found.jobs) == set(both.jobs(operation))
    assert len(found.jobs) == 2
    assert both.wire("cancel") == []


@pytest.mark.parametrize("effect", ["after record Accepted", "before send GET"])
def test_a_death_does_not_skip_the_look_at_the_list(lab: Lab, effect: str) -> None:
    """Killed between the answer to the resend and the look-up after it: the successor looks, before it polls."""
    operation = lab.submit("token_ignoring", _seconds=30)
    dead = lab.worker(Strike(at=effect), until_idle=True, lease=0.5)
    assert dead.ends() == -signal.SIGKILL
    lab.finish()
    assert lab.show(operation).state is State.CONTRACT_VIOLATION
    assert len(lab.show(operation).jobs) == 2


@pytest.mark.parametrize(
    "commands",
    [
        {"drop_next": "list"},
        {"answer_next": {"kind": "list", "status": 500, "body": {"error": "internal"}}},
        {"answer_next": {"kind": "list", "status": 429, "headers": {"retry-after": "1"}, "body": {}}},
    ],
    ids=["dropped", "broken", "throttled"],
)
def test_a_look_at_the_list_that_fails_is_made_again(lab: Lab, commands: dict[str, Any]) -> None:
    """A look-up without a verdict says nothing about a second job, and must not be recorded as if it did."""
    lab.sim.control(**commands)
    operation = lab.submit("token_ignoring", _seconds=30)
    lab.finish()
    assert lab.show(operation).state is State.CONTRACT_VIOLATION
    assert len(lab.show(operation).jobs) == 2
