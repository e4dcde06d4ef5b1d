"""The audit: what was changed behind the ledger's back is found and named, and a search says how far it looked."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from opledger.rules import evidence as e
from opledger_console.desk import Desk, audit
from opledger_console.desk.audit import Progress, verify
from opledger_console.screens.audit import AuditScreen
from opledger_console.widgets.listing import Listing
from tests.console.hands import HOSTILE, assert_inert, running, sees, shown, until
from tests.core.ledgers import BODY, VIOLATED, Home, accepted, happens, sent
from tests.support.tampering import checkpoint


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A ledger with two operations."""
    home = Home(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")
    with home.ledger() as ledger:
        happens(ledger, ledger.submit("jobs", BODY, requested_by="agent-1"), *VIOLATED)
        happens(ledger, ledger.submit("jobs", {"rows": 6}, requested_by="agent-2"), sent(), accepted("job_9"))
    return home


def tamper(home: Home, *statements: str) -> None:
    """Change the file as somebody with the rights of its owner could, who puts the guards back afterwards."""
    with sqlite3.connect(home.root / "ledger.db") as connection:
        guards = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for statement in (*(f'DROP TRIGGER "{name}"' for name, _ in guards), *statements, *(sql for _, sql in guards)):
            connection.execute(statement)
    connection.close()


def first(home: Home) -> str:
    """The id of the operation that was made first."""
    with home.ledger() as ledger:
        return ledger.list()[-1].operation_id


def verified(home: Home, stop: Callable[[], bool] = lambda: False) -> tuple[audit.Verified, list[Progress]]:
    """Verify, without a screen."""
    told: list[Progress] = []
    desk = Desk(home.settings(), read_only=True, drive=False)
    try:
        return verify(desk, told.append, stop), told
    finally:
        desk.close()


def test_a_ledger_as_it_was_written_has_no_findings(home: Home) -> None:
    """Records are computed from their journals too, with leases left out: those are no part of them."""
    found, told = verified(home)
    assert found.complete
    assert (found.progress.done, found.progress.events, found.count) == (2, 8, 0)
    assert (told[0].done, told[0].total, told[0].events) == (0, 2, 0)


def test_an_empty_ledger_is_not_called_good(tmp_path: Path) -> None:
    """Nothing checked is a finding: an emptied table must not look like a clean one."""
    home = Home(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")
    with home.ledger():
        found, _ = verified(home)
    assert [one.kind for one in found.findings] == ["NOTHING_CHECKED"]


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("UPDATE operation SET state = 'succeeded' WHERE operation_id = '{id}'", "PROJECTION"),
        ("UPDATE operation SET requested_by = 'ana' WHERE operation_id = '{id}'", "PROJECTION"),
        ("UPDATE event SET actor = 'ana' WHERE operation_id = '{id}' AND seq = 2", "COLUMN"),
        ("UPDATE event SET hash = zeroblob(32) WHERE operation_id = '{id}' AND seq = 2", "HASH"),
        ("DELETE FROM event WHERE operation_id = '{id}' AND seq = 2", "SEQ"),
        ("DELETE FROM event WHERE operation_id = '{id}' AND seq = 5", "PROJECTION"),
        ("DELETE FROM event WHERE operation_id = '{id}'", "MISSING_OP"),
        ("UPDATE operation SET head_hash = zeroblob(32) WHERE operation_id = '{id}'", "PROJECTION"),
    ],
)
def test_what_was_changed_is_found_and_named(home: Home, statement: str, kind: str) -> None:
    """Each by its own name, and at the operation it was done to."""
    changed = first(home)
    tamper(home, statement.format(id=changed))
    found, _ = verified(home)
    assert kind in {one.kind for one in found.findings}
    assert {one.operation_id for one in found.findings} == {changed}


def test_a_verification_that_was_stopped_says_how_far_it_got(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must never pass for a whole one."""
    monkeypatch.setattr("opledger.ledger.slices.STEP", 0)  # each slice one operation
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 1

    found, _ = verified(home, stop)
    assert not found.complete
    assert (found.progress.done, found.progress.total) == (1, 2)


def test_how_long_it_takes_is_worked_out_from_how_it_went() -> None:
    """A quarter in ten seconds: thirty more."""
    progress = Progress(25, 100, 500, 10.0)
    assert (progress.rate, progress.left) == (50.0, 30.0)
    assert Progress(0, 100, 0, 0.0).left is None


async def test_v_verifies_and_says_so(home: Home) -> None:
    """With what is not checked beside it: nobody must take this for an anchor."""
    async with running(home, "audit") as pilot:
        await sees(pilot, "Nothing was verified in this session", "signatures of all")
        await pilot.press("v")
        await sees(pilot, "8 events of 2 operations", "all as it was written", "no findings", "verified at")


async def test_findings_are_listed_and_enter_opens_one(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the finding to the operation, at its raw events."""
    opened: list[tuple[str, str | None]] = []
    monkeypatch.setattr(
        "opledger_console.app.OperationScreen", _recording(opened, pytest.importorskip("textual.screen").Screen)
    )
    changed = first(home)
    tamper(home, f"UPDATE event SET actor = 'ana' WHERE operation_id = '{changed}' AND seq = 2")
    async with running(home, "audit") as pilot:
        await sees(pilot, "Nothing was verified")
        await pilot.press("v")
        await sees(pilot, "1 COLUMN", changed[-8:], "the bytes and the columns differ: actor", "1 finding.")
        await pilot.press("enter")
        await until(pilot, lambda: opened)
        assert opened == [(changed, "raw")]


def _recording(opened: list[tuple[str, str | None]], screen: type) -> Callable[..., object]:
    def make(_desk: Desk, operation_id: str, *, tab: str | None) -> object:
        opened.append((operation_id, tab))
        return screen()

    return make


async def test_escape_stops_a_verification(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take long, and nobody must wait for it."""
    going: list[AuditScreen] = []

    def slow(desk: Desk, told: Callable[[Progress], None], stop: Callable[[], bool], *, recent: bool) -> audit.Verified:
        told(Progress(1, 4, 100, 2.0))
        going[0]._stop.wait(5)
        return audit.Verified(desk.now(), Progress(1, 4, 100, 2.0), (), (), complete=not stop())

    monkeypatch.setattr(audit, "verify", slow)
    async with running(home, "audit") as pilot:
        await sees(pilot, "Nothing was verified")
        screen = pilot.app.screen
        assert isinstance(screen, AuditScreen)
        going.append(screen)
        await pilot.press("v")
        await sees(pilot, "verifying: 1 of 4 operations, 50 events/s, 6s left")
        assert screen.why_not("verify") == "a verification is under way; escape stops it"
        await pilot.press("escape")
        await sees(pilot, "STOPPED after 1 of 4")


async def test_an_operation_is_found_by_anything_that_names_it(home: Home) -> None:
    """Also by the provider's job id; Esc goes back to the findings."""
    async with running(home, "audit") as pilot:
        await sees(pilot, "Nothing was verified")
        await pilot.press("slash", *"job_9", "enter")
        await sees(pilot, "found by job_9: 1 operation", "remote job id")
        await pilot.press("escape")
        await until(pilot, lambda: "found by" not in shown(pilot))


async def test_what_is_not_found_is_said_with_how_much_was_searched(home: Home) -> None:
    """Nothing found and nothing searched are two answers."""
    async with running(home, "audit") as pilot:
        await sees(pilot, "Nothing was verified")
        await pilot.press("slash", *"nosuchthing", "enter")
        await sees(pilot, "found by nosuchthing: 0 operations, 2 gone through", "no operation has that name")


async def test_a_search_for_nothing_is_refused(home: Home) -> None:
    """The line stays."""
    async with running(home, "audit") as pilot:
        await sees(pilot, "Nothing was verified")
        await pilot.press("slash", "enter")
        await sees(pilot, "nothing is looked for")


@pytest.mark.parametrize("size", [(40, 10), (80, 24)])
async def test_hostile_findings_are_shown_as_text(home: Home, size: tuple[int, int]) -> None:
    """Whoever changed a row chose what stands in it."""
    changed = first(home)
    hostile = HOSTILE.replace("'", "''")
    tamper(home, f"UPDATE event SET operation_id = '{hostile}', seq = 1 WHERE operation_id = '{changed}' AND seq = 3")
    async with running(home, "audit", size) as pilot:
        await sees(pilot, "verified in this")
        await pilot.press("v")
        await until(pilot, lambda: pilot.app.screen.query_one(Listing).rows)
        assert_inert(await sees(pilot, "SEQ"))
        screen = pilot.app.screen
        assert isinstance(screen, AuditScreen)
        screen.find(HOSTILE)
        await until(pilot, lambda: screen.found is not None)
        assert_inert(shown(pilot))


async def test_what_anchors_hold_is_said_and_the_rest_is_verified_at_once_next_time(home: Home) -> None:
    """Once the ledger was verified here, opening the page verifies what came since; v verifies everything."""
    with home.ledger() as ledger:
        checkpoint(ledger)
    async with running(home, "audit") as pilot:
        await sees(pilot, "Nothing was verified in this session")
        await pilot.press("v")
        await sees(pilot, "8 events of 2 operations", "Anchored up to checkpoint 1 of")
    with home.ledger() as ledger:
        happens(ledger, first(home), e.Noted("seen"))
    async with running(home, "audit") as pilot:
        await sees(
            pilot, "6 events of 1 operations", "Verified is what came behind checkpoint 1", "1 event of 1 operation"
        )
        await pilot.press("v")
        await sees(pilot, "9 events of 2 operations", "all as it was written")
