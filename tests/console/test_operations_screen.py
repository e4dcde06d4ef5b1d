"""The operations screen, in a real app without a terminal: what it shows, what keys do, what hostile text cannot."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from textual.pilot import Pilot

from opledger.rules import evidence as e
from opledger.rules.model import Means, Operation
from opledger_console.dialogs.bulk import BulkDialog, BulkReport
from opledger_console.dialogs.viewmenu import ViewMenu
from opledger_console.pages import columns
from opledger_console.screens.operation import OperationScreen
from opledger_console.screens.operations import OperationsScreen
from opledger_console.verdicts import BulkVerdict
from opledger_console.views import Look, TimeStyle
from opledger_console.widgets import table as table_module
from opledger_console.widgets.filterbar import FilterBar
from opledger_console.widgets.table import OperationsTable
from tests.console.hands import HOSTILE, assert_inert, running, sees, shown, until
from tests.core.ledgers import BODY, LOST, Home, accepted, happens, observed, sent

SIZES = [(80, 24), (120, 40), (200, 60)]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A ledger with one operation of each kind that matters here."""
    home = Home(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")
    with home.ledger() as ledger:
        quiet = ledger.submit("jobs", BODY, requested_by="agent-1", tags={"team": "red"})
        happens(ledger, quiet, sent(), accepted("job_1"), observed(job="job_1"))
        broken = ledger.submit("jobs", {"rows": 6}, requested_by="agent-2")
        happens(ledger, broken, sent("call_2"), accepted("job_2", "call_2"))
        happens(ledger, broken, e.IdentityChanged(why=f"answered for {HOSTILE}", jobs=("job_2", HOSTILE)))
        strange = ledger.submit(
            "jobs", {"rows": 7}, requested_by="agent-3", tags={"markup": "[/red][@click=app.quit]x[/"}
        )
        happens(ledger, strange, sent("call_3"), accepted(f"job{HOSTILE}", "call_3"))
        happens(ledger, strange, observed(HOSTILE, Means.UNKNOWN, f"job{HOSTILE}"))
    return home


def crowd(home: Home, count: int) -> list[str]:
    """Submit many; returns their ids, newest first."""
    with home.ledger() as ledger:
        return [
            ledger.submit("jobs", {"rows": 100 + number}, requested_by=f"agent-{number % 3}").operation_id
            for number in range(count)
        ][::-1]


def submit(home: Home, rows: int = 99, by: str = "agent-4") -> Operation:
    """Submit one more."""
    with home.ledger() as ledger:
        return ledger.submit("jobs", {"rows": rows}, requested_by=by)


def screen_of(pilot: Pilot[int]) -> OperationsScreen:
    """The screen, also under a dialog."""
    screen = next(one for one in pilot.app.screen_stack if isinstance(one, OperationsScreen))
    assert isinstance(screen, OperationsScreen)
    return screen


def table(pilot: Pilot[int]) -> OperationsTable:
    """The list."""
    return screen_of(pilot).query_one(OperationsTable)


def ids(pilot: Pilot[int]) -> list[str]:
    """The rows that are held, in order."""
    return [row.operation_id for row in table(pilot).rows]


async def held(pilot: Pilot[int], count: int) -> None:
    """Wait until so many rows are there."""
    await until(pilot, lambda: len(table(pilot).rows) == count, f"hold {count} rows")


async def filtered(pilot: Pilot[int], text: str) -> None:
    """Type a filter and confirm it."""
    await pilot.press("slash")
    bar = screen_of(pilot).query_one(FilterBar)
    assert bar.is_open
    field = bar.query_one("Input")
    field.value = text  # type: ignore[attr-defined]
    await pilot.press("enter")


# --- what it shows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_it_says_what_needs_a_person_at_every_size(home: Home, size: tuple[int, int]) -> None:
    """The list, the strip and the state of the whole stand on the screen, also in 80 columns."""
    async with running(home, "operations", size) as pilot:
        text = await sees(pilot, "violation 1", "contract_violation", "observing", "NO WORKER", "3 operations")
        lines = text.splitlines()
        assert len(lines) == size[1]
        assert lines[-1].strip().startswith("a approve")


async def test_hostile_text_reaches_the_screen_as_text_only(home: Home) -> None:
    """No control byte, no markup, no action: what a provider sends is shown, and does nothing (B50, F2, F3, F4)."""
    async with running(home, "operations", (200, 60)) as pilot:
        await sees(pilot, "3 operations")
        for key in ("w", "j", "j", "k", "t", "t"):
            await pilot.press(key)
            assert_inert(shown(pilot))
        assert "[/red][@click=app.quit]" in await sees(pilot, "team=red")
        await pilot.click(OperationsTable, offset=(12, 2))
        await pilot.pause()
        assert pilot.app.is_running


@pytest.mark.parametrize("width", [30, 60, 80, 100, 120, 160, 200, 400])
def test_columns_fill_the_line_and_no_more(width: int) -> None:
    """Whatever is shown, state and id are among it, and all together fit."""
    for wide in (False, True):
        for style in TimeStyle:
            shown_now = columns.chosen((), width, wide=wide, style=style)
            names = [column.name for column, _ in shown_now]
            assert {"state", "id", "next"} <= set(names)
            assert len(names) == len(set(names))
            assert width < 80 or sum(size + 1 for _, size in shown_now) <= width + 1
    assert [column.name for column, _ in columns.chosen(("id", "by", "gone"), width, wide=False)] == ["id", "by"]


# --- the cursor ------------------------------------------------------------------------------------------------------


async def test_the_cursor_stays_on_its_operation(home: Home) -> None:
    """A new operation comes; the cursor stays with the one it stood on, and on its line (B52)."""
    async with running(home, "operations") as pilot:
        await held(pilot, 3)
        await pilot.press("j")
        before, line = table(pilot).cursor_id, ids(pilot).index(table(pilot).cursor_id or "")
        newest = submit(home)
        await sees(pilot, "1 new above, g shows them")
        assert (table(pilot).cursor_id, ids(pilot).index(before or "")) == (before, line)
        await pilot.press("g")
        await sees(pilot, newest.operation_id[-8:])
        assert table(pilot).cursor_id == newest.operation_id


async def test_what_arrives_enters_while_the_list_follows_its_top(home: Home) -> None:
    """Nobody has moved the cursor: new rows come in above it, and it stays with its operation."""
    async with running(home, "operations") as pilot:
        await held(pilot, 3)
        before = table(pilot).cursor_id
        newest = submit(home)
        await held(pilot, 4)
        assert ids(pilot)[0] == newest.operation_id
        assert table(pilot).cursor_id == before


async def test_a_cursor_that_would_be_pushed_off_the_screen_stops_the_list(home: Home) -> None:
    """However many arrive, the operation that somebody looks at does not leave the screen."""
    async with running(home, "operations", (80, 12)) as pilot:
        await held(pilot, 3)
        before = table(pilot).cursor_id
        for number in range(12):
            submit(home, number)
        await until(pilot, lambda: not table(pilot).follows, "stop following")
        submit(home)
        await sees(pilot, "new above")
        assert table(pilot).cursor_id == before
        assert (before or "")[-8:] in shown(pilot)


async def test_random_events_and_keys_never_part_cursor_and_operation(home: Home) -> None:
    """The cursor changes its operation only by a key that moves it, whatever happens in the ledger meanwhile."""
    crowd(home, 60)
    choose = random.Random(7)
    async with running(home, "operations", (100, 20)) as pilot:
        await held(pilot, 63)
        known = ids(pilot)
        with home.ledger() as ledger:
            for turn in range(40):
                key = choose.choice(["j", "k", "pagedown", "pageup", "F", "space", "w", None, None])
                before = table(pilot).cursor_id
                if key is None:
                    if turn % 2:
                        ledger.submit("jobs", {"rows": 1000 + turn}, requested_by="agent-4")
                    else:
                        ledger.cancel(choose.choice(known), reason=f"turn {turn}", by="ana")
                    screen_of(pilot).action_look()
                    await pilot.pause(0.02)
                    assert table(pilot).cursor_id == before
                else:
                    await pilot.press(key)
                chosen = table(pilot).chosen
                assert chosen is not None
                assert chosen.operation_id == table(pilot).cursor_id
                line = next(line for line in shown(pilot).splitlines() if line.startswith("▌"))
                assert chosen.operation_id[-8:] in line


async def test_frozen_rows_stay_where_they_are(home: Home) -> None:
    """While frozen nothing enters the list but what it says goes on changing; afterwards it moves again."""
    async with running(home, "operations") as pilot:
        await held(pilot, 3)
        await pilot.press("F")
        before = ids(pilot)
        newest = submit(home)
        with home.ledger() as ledger:
            happens(ledger, before[-1], observed("nearly done", job="job_1"))
        await sees(pilot, "FROZEN, 1 new", "nearly done")
        assert ids(pilot) == before
        await pilot.press("F")
        await until(pilot, lambda: ids(pilot)[0] == newest.operation_id, "let it in")


async def test_enter_opens_and_a_click_chooses_first(home: Home) -> None:
    """The mouse selects, a second click opens; Enter opens what the cursor is on."""
    async with running(home, "operations") as pilot:
        await held(pilot, 3)
        await pilot.click(OperationsTable, offset=(12, 2))
        second = ids(pilot)[1]
        assert table(pilot).cursor_id == second
        await pilot.click(OperationsTable, offset=(12, 2))
        await until(pilot, lambda: isinstance(pilot.app.screen, OperationScreen), "open it")
        assert isinstance(pilot.app.screen, OperationScreen)
        assert pilot.app.screen.operation_id == second
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, OperationsScreen)
        assert table(pilot).cursor_id == second


# --- more than fits --------------------------------------------------------------------------------------------------


async def test_a_long_list_is_read_in_pages_and_held_in_part(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going to the end and back passes every operation once, though never more than a window of them is held."""
    monkeypatch.setattr(table_module, "MOST", 300)
    everything = crowd(home, 650)
    async with running(home, "operations", (80, 30)) as pilot:
        await held(pilot, 200)
        passed: list[str] = []
        while len(passed) < 653:
            cursor = table(pilot).cursor_id
            assert cursor is not None
            passed.append(cursor)
            assert len(table(pilot).rows) <= 300
            if len(passed) < 653:
                table(pilot).action_move(1)
                await until(pilot, lambda before=cursor: _moves_on(pilot, before), "move on")  # type: ignore[misc]
        assert passed[:650] == everything
        assert len(set(passed)) == 653
        for expected in reversed(passed[:-1]):
            table(pilot).action_move(-1)
            await until(pilot, lambda one=expected: _reaches(pilot, one, -1), "move back")  # type: ignore[misc]
        assert table(pilot).cursor_id == everything[0]


def _moves_on(pilot: Pilot[int], before: str) -> bool:
    if table(pilot).cursor_id == before:
        table(pilot).action_move(1)
    return table(pilot).cursor_id != before


def _reaches(pilot: Pilot[int], expected: str, by: int) -> bool:
    if table(pilot).cursor_id != expected:
        table(pilot).action_move(by)
    return table(pilot).cursor_id == expected


# --- filter, order, views --------------------------------------------------------------------------------------------


async def test_a_filter_shows_what_matches_and_says_how_many(home: Home) -> None:
    """And Escape takes it away again."""
    crowd(home, 30)
    async with running(home, "operations") as pilot:
        await held(pilot, 33)
        await filtered(pilot, "by:agent-1")
        await held(pilot, 11)
        await sees(pilot, "11 match by:agent-1")
        await pilot.press("escape")
        await held(pilot, 33)


async def test_a_filter_that_cannot_be_read_says_what_is_wrong(home: Home) -> None:
    """While it is typed; and Enter does not take it."""
    async with running(home, "operations") as pilot:
        await held(pilot, 3)
        await filtered(pilot, "stat:observing")
        await sees(pilot, "state")
        assert screen_of(pilot).query_one(FilterBar).is_open
        assert screen_of(pilot).query_one(FilterBar).has_class("-wrong")
        await pilot.press("escape")
        assert not screen_of(pilot).query_one(FilterBar).is_open
        assert screen_of(pilot).look == Look()


async def test_tab_completes_a_filter(home: Home) -> None:
    """Keys, states and what the ledger has in it are offered."""
    async with running(home, "operations") as pilot:
        await held(pilot, 3)
        await pilot.press("slash", *"stat", "tab")
        assert screen_of(pilot).query_one("#operations") is not None
        field = screen_of(pilot).query_one(FilterBar).query_one("Input")
        assert field.value.startswith("state:")  # type: ignore[attr-defined]


async def test_a_row_that_leaves_the_filter_stays_until_the_cursor_leaves_it(home: Home) -> None:
    """What somebody looks at does not vanish under them: it is dimmed, and goes when they go on."""
    crowd(home, 4)
    async with running(home, "operations") as pilot:
        await filtered(pilot, "state:create_pending")
        await held(pilot, 4)
        await pilot.press("j")
        looked_at = table(pilot).cursor_id
        assert looked_at is not None
        with home.ledger() as ledger:
            ledger.cancel(looked_at, reason="no longer wanted", by="ana")
        await sees(pilot, "withdrawn", "no longer of it", "3 match")
        assert table(pilot).cursor_id == looked_at
        await pilot.press("j")
        await held(pilot, 3)
        assert looked_at not in ids(pilot)


async def test_orders_are_held_and_read_anew_by_a_key(home: Home) -> None:
    """An order by what changes is frozen from the start: rows must not jump while somebody reads them."""
    async with running(home, "operations") as pilot:
        await held(pilot, 3)
        newest_first = ids(pilot)
        await pilot.press("s")
        await sees(pilot, "oldest first", "FROZEN")
        await until(pilot, lambda: ids(pilot) == newest_first[::-1], "turn round")
        newest = submit(home)
        await pilot.press("r")
        await until(pilot, lambda: ids(pilot)[-1:] == [newest.operation_id], "read it anew")
        for words in ("nearest deadline first", "next action first", "by state", "newest first"):
            await pilot.press("s")
            await sees(pilot, words)


async def test_views_are_kept_over_a_restart(home: Home) -> None:
    """A view is saved under a name and found again; the last one shown is where the next start begins."""
    async with running(home, "operations") as pilot:
        await filtered(pilot, "by:agent-2")
        await held(pilot, 1)
        screen_of(pilot).save_view("mine")
        await filtered(pilot, "")
        await held(pilot, 3)
        await pilot.press("f")
        await until(pilot, lambda: isinstance(pilot.app.screen, ViewMenu), "offer the views")
        await until(pilot, lambda: not pilot.app.screen.deaf, "listen")  # type: ignore[attr-defined]
        await pilot.press("1")
        await held(pilot, 1)
    async with running(home, "operations") as pilot:
        await held(pilot, 1)
        await pilot.press("left_square_bracket")
        assert screen_of(pilot).look.text == "by:agent-2"


async def test_brackets_go_through_the_views_of_a_session(home: Home) -> None:
    """Back to what was shown before, and forth again."""
    async with running(home, "operations") as pilot:
        await held(pilot, 3)
        await filtered(pilot, "by:agent-2")
        await held(pilot, 1)
        await pilot.press("left_square_bracket")
        await held(pilot, 3)
        await pilot.press("right_square_bracket")
        await held(pilot, 1)


async def test_a_damaged_memory_is_left_alone(home: Home, own_state: Path) -> None:
    """What the console remembers is a convenience: a file that cannot be read stops nothing and is not written over."""
    file = own_state / "opledger" / "console.json"
    file.parent.mkdir(parents=True)
    file.write_text("{broken")
    async with running(home, "operations") as pilot:
        await held(pilot, 3)
        await filtered(pilot, "by:agent-2")
        await held(pilot, 1)
    assert file.read_text() == "{broken"


# --- marks and bulk --------------------------------------------------------------------------------------------------


async def test_marks_follow_their_operations(home: Home) -> None:
    """Space marks, m marks up to the cursor, i turns it round, Escape takes all away; ids, never rows."""
    crowd(home, 8)
    async with running(home, "operations") as pilot:
        await held(pilot, 11)
        rows = ids(pilot)
        await pilot.press("space")
        assert table(pilot).marks == {rows[0]}
        await pilot.press("j", "j", "m")
        assert table(pilot).marks == set(rows[:4])
        submit(home)
        screen_of(pilot).action_look()
        await sees(pilot, "4 marked")
        await pilot.press("i")
        assert table(pilot).marks == set(rows[4:])
        await pilot.press("escape")
        assert table(pilot).marks == set()


async def test_all_that_match_are_marked_also_those_that_are_not_on_the_screen(home: Home) -> None:
    """The set is what matched when the key was pressed; what comes later is not among it."""
    pending = crowd(home, 260)
    async with running(home, "operations") as pilot:
        await filtered(pilot, "state:create_pending")
        await held(pilot, 200)
        await pilot.press("M")
        await sees(pilot, "260 marked")
        submit(home)
        assert table(pilot).marks == set(pending)


async def test_many_are_withdrawn_together_each_with_its_outcome(home: Home) -> None:
    """The dialog lists exactly the marked ones, asks for their number, and the report says what became of each."""
    pending = crowd(home, 3)
    async with running(home, "operations") as pilot:
        await held(pilot, 6)
        table(pilot).marks = {pending[0], pending[1], ids(pilot)[-2]}
        await pilot.press("x")
        await until(pilot, lambda: isinstance(pilot.app.screen, BulkDialog), "ask")
        dialog = pilot.app.screen
        assert isinstance(dialog, BulkDialog)
        assert {one.operation_id for one in dialog.eligible} == {pending[0], pending[1]}
        with home.ledger() as ledger:
            ledger.cancel(pending[1], reason="somebody was faster", by="jo")
        targets = tuple((one.operation_id, one.version) for one in dialog.eligible)
        dialog.dismiss(BulkVerdict("cancel", targets, "not wanted after all"))
        await until(pilot, lambda: isinstance(pilot.app.screen, BulkReport), "report")
        text = await sees(pilot, "withdrawn")
        assert_inert(text)
    with home.ledger() as ledger:
        assert ledger.show(pending[0]).state == "withdrawn"
        assert [event.actor for event in ledger.history(pending[1])].count("jo") == 1
        assert ledger.show(pending[2]).state == "create_pending"


# --- when things are not as they should be ---------------------------------------------------------------------------


async def test_a_database_that_is_away_is_told_and_comes_back(home: Home) -> None:
    """The last picture stays, with the word that it is old; keys that decide say why they do nothing."""
    async with running(home, "operations") as pilot:
        await held(pilot, 3)
        await sees(pilot, "NO WORKER")  # the frame has its own reader; without a first picture it names no time
        file = home.root / "ledger.db"
        away = file.with_name("away.db")
        ledger = pilot.app.desk._ledger  # type: ignore[attr-defined]
        pilot.app.desk._ledger = None  # type: ignore[attr-defined]
        ledger.close()
        file.rename(away)
        file.mkdir()
        text = await sees(pilot, "DATABASE AWAY", "what you see was true at")
        assert "contract_violation" in text
        await pilot.press("x")
        await sees(pilot, "the database is away")
        file.rmdir()
        away.rename(file)
        await until(pilot, lambda: "DATABASE AWAY" not in shown(pilot), "come back")


async def test_a_key_that_is_off_says_why(home: Home) -> None:
    """A dimmed key is no riddle."""
    async with running(home, "operations") as pilot:
        await held(pilot, 3)
        await pilot.press("G", "a")
        await sees(pilot, "waits for no approval")


async def test_read_only_refuses_to_decide_and_says_so(home: Home) -> None:
    """The banner stands on every screen; a decision key opens nothing."""
    from tests.console.hands import console

    with console(home, "operations", read_only=True) as app:
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            await sees(pilot, "READ-ONLY", "3 operations")
            await pilot.press("x")
            await sees(pilot, "this console is read-only")
            assert isinstance(pilot.app.screen, OperationsScreen)
            app.desk.closing.set()


async def test_a_window_too_small_says_so(home: Home) -> None:
    """Down to one cell nothing breaks, and coming back to size shows everything again."""
    async with running(home, "operations", (80, 24)) as pilot:
        await held(pilot, 3)
        for size in ((20, 4), (1, 1), (40, 10)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        await pilot.resize_terminal(20, 5)
        await sees(pilot, "this window is too")
        await pilot.resize_terminal(80, 24)
        await sees(pilot, "contract_violation", "3 operations")


async def test_q_ends_the_console(home: Home) -> None:
    """And only the console: it holds no lease and cancels nothing."""
    async with running(home, "operations", (80, 24)) as pilot:
        await held(pilot, 3)
        await pilot.press("q")
        await pilot.pause()
        app = pilot.app
    assert app.return_code == 0


async def test_what_nobody_knows_is_shown_as_such(home: Home) -> None:
    """A create whose fate is unknown stands in the strip and in the list, and u asks about it."""
    with home.ledger() as ledger:
        op = ledger.submit("jobs", {"rows": 3}, requested_by="agent-8")
        happens(ledger, op, *LOST)
    async with running(home, "operations") as pilot:
        await sees(pilot, "unknown create 1", "create_unknown")
        await pilot.press("u")
        await until(pilot, lambda: pilot.app.screen is not screen_of(pilot), "ask")
        assert_inert(shown(pilot))
