"""Every status code against the table, and broken readers that it must catch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from opledger.rules import answers, lookups
from opledger.rules import evidence as e
from opledger.rules.model import Means
from tests.network import codes
from tests.network.table import BODIES, PHASES


def test_every_code_in_every_phase_means_what_the_table_says() -> None:
    found = codes.run()
    assert found.faults == []
    assert found.missing() == []
    assert found.cases == len(PHASES) * 500 * len(BODIES) == 20_000


async def test_some_codes_over_real_sockets() -> None:
    """All of them are the long form."""
    some = [case for case in codes.cases() if case[1] in (101, 200, 204, 302, 404, 409, 422, 429, 500)]
    found = await codes.over_sockets(iter(some))
    assert found.faults == []
    assert found.cases == len(some) == 8 * 9 * 5


def test_a_job_that_is_called_failed_because_it_is_not_found_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    read = answers.read_status

    def broken(outcome: Any, *rest: Any, **facts: Any) -> answers.Reading:
        if getattr(outcome, "status", None) == 404:
            return answers.Reading(e.Observed(call_id="c", job_id="job_1", remote_state="", means=Means.FAILED))
        return read(outcome, *rest, **facts)

    monkeypatch.setattr(answers, "read_status", broken)
    assert len(codes.run("status", "young").faults) == 10


def test_a_server_error_that_is_read_as_a_refusal_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_lost", lambda why, facts, **_: e.Refused(call_id=facts["call_id"], why=why))
    found = codes.run("create").faults
    assert any(fault.startswith("codes create 500 empty: taken for refused -> failed") for fault in found)


def test_an_error_page_that_proves_absence_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "content_type", lambda _: "")
    assert len(codes.run("get").faults) == 2


def test_a_refusal_that_pauses_nobody_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    read = answers.read_cancel

    def broken(*rest: Any, **facts: Any) -> answers.Reading:
        return replace(read(*rest, **facts), credentials=False)

    monkeypatch.setattr(answers, "read_cancel", broken)
    assert len(codes.run("cancel").faults) == 8
