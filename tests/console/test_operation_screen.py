"""The page of one operation, in a real app without a terminal: every tab, key and size; hostile text does nothing."""

from __future__ import annotations

import dataclasses
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from opledger.edges.clock import SystemClock
from opledger.errors import StoreUnavailable
from opledger.rules import decide
from opledger.rules import evidence as e
from opledger.rules.model import Means, Operation
from opledger.store import Answer, Recorded, Write
from opledger_console.app import ConsoleApp
from opledger_console.desk import Desk
from opledger_console.desk.operation import answers_in_conflict
from opledger_console.dialogs.resolve import ResolveDialog
from opledger_console.screens.operation import OperationScreen
from opledger_console.screens.operations import OperationsScreen
from opledger_console.widgets.sheet import Sheet
from tests.console.hands import HOSTILE, PATIENCE, assert_inert, running, sees, shown, until
from tests.core.ledgers import BODY, VIOLATED, WORKER, Home, accepted, happens, observed, sent

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
        app = pilot.app
        assert isinstance(app, ConsoleApp)
        screen = OperationScreen(app.desk, operation_id, tab=tab)
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


def shows(pilot: Pilot[int], tab: str) -> bool:
    """Whether a tab is in view and has been read."""
    return page(pilot).tab == tab and tab in page(pilot)._pages


def longer(pilot: Pilot[int], than: int) -> bool:
    """Whether the page has more rows."""
    return len(sheet(pilot).rows) > than


def head_seq(pilot: Pilot[int]) -> int:
    """Up to which event the page has been read."""
    found = page(pilot).found
    assert found is not None
    return found.operation.head_seq


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


@pytest.mark.parametrize("size", SIZES)
async def test_every_tab_shows_what_it_is_for(home: Home, size: tuple[int, int]) -> None:
    """Round all tabs by key, at every size, and back to the first one."""
    async with opened(home, polled(home), size) as pilot:
        for tab, words in WORDS.items():
            await until(pilot, partial(shows, pilot, tab), tab)
            found = "\n".join(text for one in sheet(pilot).rows for text, _, _ in one.cells)
            assert words in found
            await pilot.press("l")
        assert page(pilot).tab == "timeline"


async def test_the_other_keys_for_tabs_go_both_ways(home: Home) -> None:
    """Arrows, h and l, tab and its reverse; a tab that is not there is not opened."""
    async with opened(home, polled(home)) as pilot:
        for key, tab in (("right", "calls"), ("tab", "observations"), ("left", "calls"), ("shift+tab", "timeline")):
            await pilot.press(key)
            assert page(pilot).tab == tab
        await pilot.press("h")
        assert page(pilot).tab == "packet"
        page(pilot).turn_to("conflict")
        assert page(pilot).tab == "packet"


async def test_a_click_on_a_tab_opens_it(home: Home) -> None:
    """The mouse works, and nothing needs it."""
    async with opened(home, polled(home)) as pilot:
        await pilot.click("TabLine", offset=(12, 0))
        assert page(pilot).tab == "calls"


async def test_it_opens_at_the_tab_that_was_asked_for(home: Home) -> None:
    """The inbox knows where the answer lies; a name that is none leads to what matters most."""
    operation_id = polled(home)
    async with opened(home, operation_id, tab="result") as pilot:
        assert page(pilot).tab == "result"
    async with opened(home, operation_id, tab="[red]") as pilot:
        assert page(pilot).tab == "timeline"


async def test_escape_goes_back(home: Home) -> None:
    """To where the operation was opened from; it never quits."""
    async with opened(home, polled(home)) as pilot:
        await pilot.press("escape")
        assert not isinstance(pilot.app.screen, OperationScreen)
        assert pilot.app.is_running


async def test_an_operation_that_is_not_there_is_told(home: Home) -> None:
    """No picture, no key that decides, and a way back."""
    polled(home)
    async with opened(home, "op_[/nothing]", (80, 24)) as pilot:
        text = await sees(pilot, "[/nothing]")
        assert "escape goes back" in text
        assert page(pilot).subject() is None
        await pilot.press("l", "enter", "j", "G", "L", "x", "o", "r")
        assert page(pilot).why_not("cancel") is not None
        assert isinstance(pilot.app.screen, OperationScreen)


async def test_an_operation_that_vanished_stays_to_be_seen(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody restored an older copy: the last picture stays, marked, and nothing can be decided on it."""
    async with opened(home, polled(home)) as pilot:
        await sees(pilot, "observed 5 times")
        page(pilot)._reader._operation_id = "op_gone"
        await pilot.press("r")
        text = await sees(pilot, "op_gone", "what you see was true at")
        assert "observed 5 times" in text
        assert page(pilot).subject() is None


# --- what is chosen stays chosen ---------------------------------------------------------------------------------


async def test_the_chosen_event_survives_other_tabs_and_news(home: Home) -> None:
    """The cursor is an event, not a line: rows come and open above it, and it does not move."""
    operation_id = polled(home)
    async with opened(home, operation_id) as pilot:
        await pilot.press("g", "j", "j", "j")
        assert page(pilot).seq == sheet(pilot).seq == 3
        for _ in range(2):
            await pilot.press("l")
        page(pilot).turn_to("raw")
        await until(pilot, partial(shows, pilot, "raw"))
        assert sheet(pilot).seq == 3
        with home.ledger() as ledger:
            happens(ledger, operation_id, observed("paused"))
        await until(pilot, lambda: head_seq(pilot) == 10, "see the news")
        assert page(pilot).seq == sheet(pilot).seq == 3
        page(pilot).turn_to("timeline")
        assert sheet(pilot).seq == 3


async def test_following_keeps_to_the_newest_until_somebody_moves(home: Home) -> None:
    """It opens at the end and goes along; a step up stops it, and L takes it up again."""
    operation_id = polled(home)
    async with opened(home, operation_id, (80, 24), tab="raw") as pilot:
        assert sheet(pilot).seq == 9
        with home.ledger() as ledger:
            happens(ledger, operation_id, observed("paused"))
        await until(pilot, lambda: sheet(pilot).seq == 10, "follow")
        await pilot.press("k")
        assert not page(pilot).following
        with home.ledger() as ledger:
            happens(ledger, operation_id, observed("waiting"))
        await until(pilot, lambda: head_seq(pilot) == 11, "see the news")
        assert sheet(pilot).seq == 9
        await pilot.press("L")
        assert sheet(pilot).seq == 11


async def test_enter_opens_and_closes_under_the_cursor(home: Home) -> None:
    """A run, and one read in it; the cursor stays where it was."""
    async with opened(home, polled(home), (120, 40)) as pilot:
        before = len(sheet(pilot).rows)
        await pilot.press("enter")
        await until(pilot, lambda: len(sheet(pilot).rows) == before + 5, "open the run")
        await pilot.press("j", "enter")
        await sees(pilot, "because of")
        await pilot.press("j", "j", "enter")
        await until(pilot, lambda: len(sheet(pilot).rows) == before + 5, "close the read from within")
        await pilot.press("g", "j", "G", "k", "k", "k", "k", "k", "enter")
        await until(pilot, lambda: len(sheet(pilot).rows) == before, "close the run")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_what_is_wrapped_is_never_cut(home: Home, size: tuple[int, int]) -> None:
    """A hash of which one digit is missing is worse than none; also where the scroll bar has just appeared."""
    async with opened(home, polled(home), size) as pilot:
        await pilot.press("g", "j", "enter")
        await sees(pilot, "because of")
        width = sheet(pilot).scrollable_content_region.width
        lines = [one.cells for one in sheet(pilot).rows if one.seq == 1 and one.opens is None]
        assert len(lines) > 10
        assert all(size + 1 + len(text) <= width for (_, _, size), (text, _, _) in lines)


async def test_t_writes_times_in_the_zone_of_the_machine(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of a server is in UTC, the clock on the wall is not; what is exact stays in UTC."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # the choice is remembered, and not for other tests
    monkeypatch.setenv("TZ", "XXX-05:30")
    time.tzset()
    try:
        async with opened(home, polled(home), (120, 40)) as pilot:
            await pilot.press("g", "j", "enter")
            await sees(pilot, "because of")
            first = page(pilot)._reader._events[0].at
            assert f"{first:%H:%M:%S}Z  " in shown(pilot)
            await pilot.press("t")
            await sees(pilot, f"{first + timedelta(hours=5, minutes=30):%H:%M:%S}   ", f"{first:%H:%M:%S.%f}Z")
            await pilot.press("t")
            await sees(pilot, f"{first:%H:%M:%S}Z  ")
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_keys_that_decide_open_their_dialog_or_say_why_not(home: Home) -> None:
    """From the page of an operation everything can be decided that its state allows."""
    async with opened(home, violated(home)) as pilot:
        await pilot.press("a")
        await sees(pilot, "waits for no approval")
        await pilot.press("v")
        await until(pilot, lambda: isinstance(pilot.app.screen, ResolveDialog), "ask")


async def test_a_database_that_is_away_leaves_the_picture(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was seen last stays, said to be old; nothing can be decided, and it comes back by itself."""

    def away(*_: object) -> None:
        raise StoreUnavailable("it is away")

    async with opened(home, polled(home)) as pilot:
        await sees(pilot, "observed 5 times")
        with monkeypatch.context() as broken:
            broken.setattr(Desk, "overview", away)
            text = await sees(pilot, "DATABASE AWAY")
            assert "observed 5 times" in text
            assert "the database is away" in (page(pilot).why_not("cancel") or "")
        await sees(pilot, "watches")
        assert page(pilot).why_not("cancel") is None


async def test_five_thousand_events_cost_what_the_screen_shows(home: Home) -> None:
    """A key draws the lines on the screen, however long the journal is."""
    operation_id = polled(home)
    async with opened(home, operation_id, (120, 40)) as pilot:
        reader = page(pilot)._reader
        last = reader._events[-1]
        reader._events += [dataclasses.replace(last, seq=last.seq + n) for n in range(1, 5001)]
        page(pilot).turn_to("observations")
        await until(pilot, lambda: len(sheet(pilot).rows) > 5000, "read them")
        high = sheet(pilot).size.height
        for key in ("k", "pageup", "g", "G", "j"):
            before = sheet(pilot).drawn
            await pilot.press(key)
            assert sheet(pilot).drawn - before <= 4 * high
        assert len(list(sheet(pilot).query("*"))) < 5


# --- a broken promise --------------------------------------------------------------------------------------------


def record(home: Home, operation_id: str, evidence: e.Answered, body: bytes) -> None:
    """Record an answer with its body, as a worker does."""
    with home.ledger() as ledger:
        answer = Answer.of(body, "application/json")
        told = dataclasses.replace(evidence, answer=answer.sha256)
        now = SystemClock().now()
        contract = ledger.contract_of(ledger.show(operation_id))

        def plan(after: Operation) -> Any:
            return decide.plan(after, contract, told, now, 0.5)

        (done,) = ledger.store.record_many([Write(operation_id, told, WORKER, now, "call:c", plan, answer=answer)])
        assert isinstance(done, Recorded)


def violated(home: Home, first: bytes = b'{"id":"job_7","rows":5}', second: bytes = b'{"id":"job_8","rows":5}') -> str:
    """An operation whose provider answered with another job under our token."""
    with home.ledger() as ledger:
        operation_id = ledger.submit("jobs", BODY, requested_by="agent-1").operation_id
        happens(ledger, operation_id, sent())
    record(home, operation_id, e.Accepted(call_id="call_1", status=201, job_id="job_7"), first)
    record(home, operation_id, e.Observed(call_id="call_3", remote_state="running", means=Means.RUNNING), b'{"s":1}')
    broken = e.UnfamiliarJobId(call_id="call_2", status=200, why="another id under our token", jobs=("job_7", "job_8"))
    record(home, operation_id, broken, second)
    return operation_id


async def test_a_violation_opens_with_both_answers(home: Home) -> None:
    """Beside each other from 100 columns on, under each other below, with what a person may choose."""
    operation_id = violated(home)
    async with opened(home, operation_id, (140, 40)) as pilot:
        text = await sees(pilot, "Conflict", "places differ")
        line = next(one for one in text.splitlines() if one.startswith("≠"))
        assert '"job_7"' in line
        assert '"job_8"' in line
        assert "leads to resolved" in text
    async with opened(home, operation_id, (80, 24)) as pilot:
        text = await sees(pilot, '≠1│ /id: "job_7"', '≠2│ /id: "job_8"')
        await pilot.press("G")
        await sees(pilot, "close  leads to")
        await pilot.resize_terminal(140, 40)
        await sees(pilot, '≠ │ /id: "job_7"')


def test_the_answers_are_those_that_contradict_each_other(home: Home) -> None:
    """The acceptance and the other id, not the harmless status read between them; word for word."""
    desk = Desk(home.settings(), read_only=True, drive=False)
    try:
        operation_id = violated(home, b'{"id":"job_7", "n": 1.10}', b'{"id":"\x1b[2Jjob_8"')
        (one, first), (other, second) = answers_in_conflict(desk, desk.ledger.show(operation_id))
        assert "Accepted, event 3" in one
        assert first == '{"id":"job_7", "n": 1.10}'
        assert "UnfamiliarJobId, event 5" in other
        assert second == '{"id":"␛[2Jjob_8"'
        with home.ledger() as ledger:
            calm = happens(ledger, ledger.submit("jobs", {"rows": 6}, requested_by="agent-1"), sent("call_9"))
        assert answers_in_conflict(desk, calm) == ()
    finally:
        desk.close()


def test_a_job_that_two_operations_got_shows_the_answer_of_each(home: Home) -> None:
    """Of the first owner no answer was wrong: the one that contradicts it came for the other operation."""
    with home.ledger() as ledger:
        first, second = (
            happens(ledger, ledger.submit("jobs", {"rows": n}, requested_by="agent-1"), sent(f"call_{n}")).operation_id
            for n in (1, 2)
        )
    record(home, first, e.Accepted(call_id="call_1", job_id="job_7", status=201), b'{"for":"first"}')
    twice = e.IdentityChanged(call_id="call_2", why="twice", jobs=("job_7",), other_operation=first)
    record(home, second, twice, b'{"for":"second"}')
    with home.ledger() as ledger:
        happens(ledger, first, e.IdentityChanged(why="twice", jobs=("job_7",), other_operation=second))
    desk = Desk(home.settings(), read_only=True, drive=False)
    try:
        for whose, other in ((first, second), (second, first)):
            answers = answers_in_conflict(desk, desk.ledger.show(whose))
            assert [text for _, text in answers] == ['{"for":"first"}', '{"for":"second"}']
            assert [other[-8:] in title for title, _ in answers] == [other == first, other == second]
    finally:
        desk.close()


def test_without_bodies_what_was_understood_stands_for_them(home: Home) -> None:
    """Retention may have taken the bodies; the events are never taken."""
    with home.ledger() as ledger:
        op = happens(ledger, ledger.submit("jobs", BODY, requested_by="agent-1"), *VIOLATED)
    desk = Desk(home.settings(), read_only=True, drive=False)
    try:
        (one, first), (other, second) = answers_in_conflict(desk, op)
        assert "no body is kept" in one
        assert '"job_id": "job_7"' in first
        assert "no body is kept" in other
        assert '"job_8"' in second
    finally:
        desk.close()


# --- hostile text ------------------------------------------------------------------------------------------------


async def test_hostile_text_in_every_field_is_only_text(home: Home) -> None:
    """Whatever a provider, an agent or an operator writes is shown and does nothing, in every tab (B50, F2-F4)."""
    bad = HOSTILE
    with home.ledger() as ledger:
        op = ledger.submit(
            "jobs",
            {"rows": 5, bad: bad},
            requested_by="agent-[/red][bold",
            expectation=bad,
            tags={"who": "[/red][@click=app.quit]"},
        )
        happens(ledger, op, sent(f"call{bad}"), accepted(f"job{bad}", f"call{bad}"))
        ledger.note(op.operation_id, bad)
    read = e.Observed(
        call_id=f"read{bad}", request_id=bad, remote_state=bad, means=Means.UNKNOWN, progress={bad: bad},
        hint=bad, error=bad, notes=(bad,), job_id=f"job{bad}", status=200,
    )  # fmt: skip
    record(home, op.operation_id, read, f'{{"x": "{bad}"}}'.encode())
    record(
        home, op.operation_id, e.IdentityChanged(call_id="c", why=bad, jobs=(bad, "b"), request_id=bad), bad.encode()
    )
    async with opened(home, op.operation_id, (200, 60)) as pilot:
        for tab in ("conflict", *WORDS):
            page(pilot).turn_to(tab)
            await until(pilot, partial(shows, pilot, tab), tab)
            keys = frozenset(one.opens for one in sheet(pilot).rows if one.opens is not None)
            before = len(sheet(pilot).rows)
            page(pilot)._opened[tab] = keys
            page(pilot).action_look()
            await until(pilot, partial(longer, pilot, before if keys else -1), "open")
            assert_inert(shown(pilot))
            assert "[@click=app.quit]" in shown(pilot)
            await pilot.click(offset=(60, 20))
        assert pilot.app.is_running
        assert isinstance(pilot.app.screen, OperationScreen)


# --- saving ------------------------------------------------------------------------------------------------------


async def test_the_packet_is_saved_into_a_new_file(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For its owner only, with a name that says what it is, and never over another file or through a link."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    operation_id = polled(home)
    precious = tmp_path / "precious"
    precious.write_text("mine")
    name = f"opledger-packet-{operation_id[-8:]}-event-9"
    (folder / f"{name}.md").symlink_to(precious)
    async with opened(home, operation_id, (120, 40), tab="packet") as pilot:
        await pilot.press("o")
        await sees(pilot, "the packet stands in")
    saved = folder / f"{name}-2.md"
    assert saved.stat().st_mode & 0o777 == 0o600
    assert "Escalation packet" in saved.read_text()
    assert precious.read_text() == "mine"


async def test_e_leads_to_the_packet_of_now(home: Home) -> None:
    """It is made when it is looked at, says of which event it is, and r makes it anew."""
    operation_id = polled(home)
    async with opened(home, operation_id, (120, 40)) as pilot:
        await pilot.press("e")
        await sees(pilot, "made at event 9")
        with home.ledger() as ledger:
            happens(ledger, operation_id, observed("paused"))
        await sees(pilot, "the journal has gone on to event 10")
        await pilot.press("r")
        await sees(pilot, "made at event 10")


async def test_a_changed_journal_is_called_broken(home: Home) -> None:
    """Raw says whether what stands there is what was written."""
    operation_id = polled(home)
    with sqlite3.connect(home.root / "ledger.db") as database:
        guards = database.execute("select name, sql from sqlite_master where type = 'trigger'").fetchall()
        for name, _ in guards:
            database.execute(f'drop trigger "{name}"')
        database.execute("update event set reason = 'other' where seq = 4")
        for _, again in guards:
            database.execute(again)
    database.close()
    async with opened(home, operation_id, tab="raw") as pilot:
        await sees(pilot, "THE CHAIN IS BROKEN", "event 4")


async def test_the_head_counts_down(home: Home) -> None:
    """Nothing was written, and the time until the next read shrinks all the same."""
    async with opened(home, polled(home)) as pilot:
        screen = page(pilot)
        before = shown(pilot)
        assert screen.overview is None or "observe in" in before
        found = screen.found
        assert found is not None
        later = dataclasses.replace(found, taken_at=found.taken_at + timedelta(seconds=30))

        def left() -> int:
            return int(shown(pilot).partition("observe in ")[2].partition("s")[0])

        def counted_down() -> bool:
            if left() <= 30:
                return True
            # Again each time: the page reads the operation now and then, and then it is the time that it is.
            screen.found = later
            screen.tick()
            return False

        assert left() > 30
        await until(pilot, counted_down, "count down")


async def test_a_list_that_is_still_read_behind_it_does_not_hold_the_page_up(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody writes meanwhile, so that no news would have the page read later."""
    operation_id, go_on = polled(home), threading.Event()
    async with running(home, "operations") as pilot:
        app = pilot.app
        assert isinstance(app, ConsoleApp)
        await sees(pilot, "1 operation")
        behind = app.screen
        assert isinstance(behind, OperationsScreen)
        gather = behind.gather

        def slow(question: Any) -> Any:
            assert go_on.wait(PATIENCE)
            return gather(question)

        monkeypatch.setattr(behind, "gather", slow)
        behind.action_look()
        await until(pilot, lambda: behind.at_work("look"), "read the list")
        try:
            screen = OperationScreen(app.desk, operation_id)
            await app.push_screen(screen)
            await until(pilot, lambda: screen.found is not None, "read the page")
            assert behind.at_work("look")
        finally:
            go_on.set()
