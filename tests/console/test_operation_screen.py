"""The page of one operation, in a real app without a terminal: every tab, key and size, and what hostile text cannot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from opledger.rules import evidence as e
from opledger.rules.model import Means
from opledger_console.screens.operation import OperationScreen
from opledger_console.widgets.sheet import Sheet
from tests.console.hands import assert_inert, running, sees, shown, until
from tests.core.ledgers import BODY, VIOLATED, Home, accepted, happens, observed, sent

SIZES = [(80, 24), (120, 40), (200, 60), (40, 10)]
WORDS = {
    "timeline": "Submitted by",
    "calls": "action",
    "observations": "every",
    "request": "credentials",
    "result": "no result yet",
    "approvals": "asked for by",
    "raw": "chain verified up to seq",
    "packet": "Escalation packet",
}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A ledger to submit to."""
    return Home(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")


def polled(home: Home, times: int = 6, **more: Any) -> str:
    """An operation whose job was looked at some times."""
    with home.ledger() as ledger:
        op = ledger.submit("jobs", BODY, requested_by="agent-1", **more)
        reads = [
            e.Observed(
                job_id="job_7", remote_state="running", means=Means.RUNNING, progress={"completed": n, "total": times}
            )
            for n in range(times)
        ]
        happens(ledger, op, sent(), accepted(), *reads)
    return op.operation_id


@asynccontextmanager
async def opened(
    home: Home, operation_id: str, size: tuple[int, int] = (120, 40), tab: str | None = None
) -> AsyncIterator[Pilot[int]]:
    """The console with one operation open, as soon as it has been read."""
    async with running(home, "operations", size) as pilot:
        screen = OperationScreen(pilot.app.desk, operation_id, tab=tab)
        await pilot.app.push_screen(screen)
        await until(pilot, lambda: screen.found is not None or screen.gone is not None, "read it")
        await pilot.pause()
        yield pilot


def page(pilot: Pilot[int]) -> OperationScreen:
    """The screen in front."""
    screen = pilot.app.screen
    assert isinstance(screen, OperationScreen)
    return screen


def sheet(pilot: Pilot[int]) -> Sheet:
    """The rows of the tab in view."""
    return page(pilot).query_one("#page", Sheet)


@pytest.mark.parametrize("size", SIZES)
async def test_the_head_and_the_page_fit_every_size(home: Home, size: tuple[int, int]) -> None:
    """At three at night on any terminal: the state, the provider's word, and room for the page."""
    async with opened(home, polled(home), size) as pilot:
        text = await sees(pilot, "observing", "Timeline")
        if size[0] >= 80:
            assert "job job_7" in text
            assert "running" in text
            assert "observe" in text
            assert "you " in text
            assert sheet(pilot).size.height >= 12
        else:
            assert sheet(pilot).size.height >= 3
