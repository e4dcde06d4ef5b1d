"""The look for a second job after a resend: how long it is owed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from opledger.rules.model import State
from opledger.worker.second_job import _untouched
from tests.support.records import a_record

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("state", "read", "owed"),
    [
        (State.ACCEPTED, False, True),
        (State.OBSERVING, False, True),  # a deadline passed first, and a person let it go on
        (State.CANCELLING, False, True),
        (State.OBSERVING, True, False),
        (State.CANCELLING, True, False),
        (State.CANCEL_REQUESTED, False, False),  # the cancel comes first
        (State.CREATE_UNKNOWN, False, False),
        (State.SUCCEEDED, False, False),
    ],
)
def test_it_is_owed_until_the_job_was_read_for_the_first_time(state: State, read: bool, owed: bool) -> None:
    """A deadline or a cancel that comes before the look does not make a second job nobody's."""
    assert _untouched(a_record(state, observed_at=NOON if read else None)) is owed
