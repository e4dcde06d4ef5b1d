"""The tasks: what belongs together stands together, and nothing is shown that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from opledger_console.desk import Desk
from opledger_console.desk import tasks as reads
from opledger_console.desk.tasks import TaskBook
from opledger_console.widgets.listing import Listing
from tests.console.hands import assert_inert, running, sees
from tests.core.ledgers import Home, accepted, happens, sent

HOSTILE_NAME = "[/red][@click=app.quit][bold"
"""The ledger takes no name that cannot be printed; markup can."""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty ledger."""
    home = Home(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")
    with home.ledger():
        return home


def submit(home: Home, task: str | None, step: str | None, rows: int) -> str:
    """One more operation."""
    with home.ledger() as ledger:
        return ledger.submit("jobs", {"rows": rows}, requested_by="agent-1", task=task, step=step).operation_id


async def test_without_tasks_one_sentence_says_how_to_get_one(home: Home) -> None:
    """An operation without a task is none of this screen's business."""
    submit(home, None, None, 1)
    async with running(home, "tasks") as pilot:
        await sees(pilot, "no operation belongs to a task", "--task T --step S", "0 tasks")


async def test_operations_stand_under_their_task(home: Home) -> None:
    """The newest task first, its steps in the order they were made; what comes later is added."""
    first = submit(home, "report", "fetch", 1)
    submit(home, "video", "cut", 2)
    last = submit(home, "report", "send", 3)
    async with running(home, "tasks", (160, 30)) as pilot:
        text = await sees(pilot, "2 tasks, 2 with open operations, 3 operations")
        assert [row.key for row in pilot.app.screen.query_one(Listing).rows][:2] == [first, last]
        assert text.index("report") < text.index("fetch") < text.index("send") < text.index("video")
        with home.ledger() as ledger:
            happens(ledger, first, sent(), accepted("job_1"))
        await sees(pilot, "accepted")
        submit(home, "third", "only", 4)
        await sees(pilot, "3 tasks", "only")


async def test_braces_go_from_task_to_task(home: Home) -> None:
    """A task may have many operations."""
    ids = [submit(home, task, f"s{n}", n) for n, task in enumerate(("one", "one", "two", "two"))]
    async with running(home, "tasks") as pilot:
        await sees(pilot, "2 tasks")
        listing = pilot.app.screen.query_one(Listing)
        await pilot.press("right_curly_bracket")
        assert listing.key == ids[0]
        await pilot.press("left_curly_bracket")
        assert listing.key == ids[2]


def test_only_the_newest_are_gone_through_and_that_is_told(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million operations must not be read for a task or two."""
    monkeypatch.setattr(reads, "SEARCHED", 2)
    monkeypatch.setattr(reads, "PAGE", 2)
    for n in range(3):
        submit(home, "t", f"s{n}", n)
    desk = Desk(home.settings(), read_only=True, drive=False)
    book = TaskBook(desk)
    found = book.read()
    assert (len(found.members), found.searched, found.partial) == (2, 2, True)
    assert book.read() == found
    desk.close()


@pytest.mark.parametrize("size", [(40, 10), (80, 24)])
async def test_hostile_names_are_shown_as_text(home: Home, size: tuple[int, int]) -> None:
    """Agents choose the names of tasks and steps."""
    submit(home, HOSTILE_NAME, HOSTILE_NAME, 1)
    async with running(home, "tasks", size) as pilot:
        assert_inert(await sees(pilot, "[/red]"))
