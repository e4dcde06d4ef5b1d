"""Providers and workers: who is called and how that goes, pausing by name, and what a dead worker leaves behind."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from textual.containers import VerticalScroll
from textual.pilot import Pilot

from opledger.errors import StoreUnavailable
from opledger.rules import evidence as e
from opledger.rules.model import Action
from opledger.store.values import Aside, WorkerLife
from opledger_console.desk import Desk
from opledger_console.desk import providers as reads
from opledger_console.dialogs.panel import TextPanel
from opledger_console.dialogs.provider import ProviderDialog
from opledger_console.pages import stations
from opledger_console.pages.sparks import sparks
from opledger_console.screens.providers import ProvidersScreen
from opledger_console.verdicts import Verdict
from opledger_console.widgets.listing import Listing
from tests.console.hands import HOSTILE, assert_inert, console, running, sees, shown, until
from tests.core.ledgers import RUNNING, Home, accepted, happens, observed, sent
from tests.core.rules.operations import CANCEL, JOBS

SIZES = [(80, 24), (120, 40), (40, 10)]
GONE = f"w-gone{HOSTILE}"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Two providers that are used, a worker that is alive, and one that left three leases behind."""
    home = Home(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")
    limits = '[auth]\nkind = "bearer"\nsecret = "env:VIDEO_TOKEN"\n[limits]\nrate = "5/s"\nconcurrency = 7\n'
    home.contract(JOBS + CANCEL + limits, name="video")
    with home.ledger() as ledger:
        now = ledger.clock.now()
        happens(ledger, ledger.submit("jobs", {"rows": 1}, requested_by="agent-1"), *RUNNING)
        for number in range(3):
            ledger.submit("video", {"rows": number}, requested_by="agent-1")
        ledger.store.claim(GONE, limit=4, lease=timedelta(seconds=90), now=now + timedelta(seconds=5))
        ledger.store.heartbeat(GONE, f"box{HOSTILE}", 4712, now - timedelta(minutes=3))
        late = timedelta(seconds=7)
        ledger.store.heartbeat("w-alive", "box-1", 4711, now + timedelta(seconds=1), started=now, lateness=late)
    return home


def screen_of(pilot: Pilot[int]) -> ProvidersScreen:
    """The screen."""
    screen = pilot.app.screen
    assert isinstance(screen, ProvidersScreen)
    return screen


def providers(pilot: Pilot[int]) -> Listing:
    """The upper list."""
    return screen_of(pilot).query_one("#providers", Listing)


def cells(pilot: Pilot[int], name: str, which: str = "#providers") -> tuple[str, ...]:
    """What stands in a row."""
    return next(row.cells for row in screen_of(pilot).query_one(which, Listing).rows if row.key == name)


async def ready(pilot: Pilot[int], name: str = "video") -> None:
    """Wait until the figures are counted, and put the cursor on a provider."""
    await until(pilot, lambda: isinstance(pilot.app.screen, ProvidersScreen))
    await until(pilot, lambda: any(row.cells[4] != stations.NOT_COUNTED for row in providers(pilot).rows), "figures")
    assert providers(pilot).go_to(name)
    await pilot.pause()


@pytest.mark.parametrize("size", SIZES)
async def test_both_lists_stand_on_the_screen_at_every_size(home: Home, size: tuple[int, int]) -> None:
    """The one question at night: is it the provider, or is it us?"""
    async with running(home, "providers", size) as pilot:
        await ready(pilot)
        await sees(pilot, "video", "open", "w-alive", "alive")
        assert cells(pilot, "video")[:4] == ("▸", "video", "open", "3")


async def test_the_provider_under_the_cursor_is_told_with_limits_and_guarantees(home: Home) -> None:
    """What it promises, what we allow ourselves, and by which credential: its name, never what it stands for."""
    async with running(home, "providers", (120, 60)) as pilot:
        await ready(pilot)
        await sees(pilot, "5 calls a second, 7 at once", "env:VIDEO_TOKEN", "At most one job?", "3 operations open")
        assert cells(pilot, "video")[5] == "300"
        assert cells(pilot, "jobs")[5] == "-"


async def test_calls_and_errors_are_counted_as_they_come(home: Home) -> None:
    """What happened before the screen was opened is in the figures, and what happens after it too, once."""
    async with running(home, "providers", (120, 60)) as pilot:
        await ready(pilot, "jobs")
        before = int(cells(pilot, "jobs")[4])
        assert before > 0
        with home.ledger() as ledger:
            one = ledger.submit("jobs", {"rows": 2}, requested_by="agent-1")
            lost = e.CallLost(call_id="call_x", action=Action.CREATE, why="reset")
            happens(ledger, one, sent("call_x"), lost)
        await until(pilot, lambda: cells(pilot, "jobs")[4] == str(before + 1), "one more call")
        assert cells(pilot, "jobs")[6] != "0%"
        assert set(cells(pilot, "jobs")[10]) & set("▁▂▃▄▅▆▇█")
        assert set(cells(pilot, "video")[10]) == {"·"}


def test_figures_are_read_in_slices_and_begin_anew_where_too_much_came(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A burst between two looks must neither be half counted nor held in memory at once."""
    monkeypatch.setattr(reads, "SLICE", 3)
    monkeypatch.setattr(reads, "AT_ONCE", 2)
    desk = Desk(home.settings(), read_only=False, drive=False)
    try:
        reader = reads.ProvidersReader(desk)
        assert not reader.read().counted
        reader.catch_up()
        first = next(look.beat for look in reader.read().providers if look.name == "jobs")
        with home.ledger() as ledger:
            one = ledger.submit("jobs", {"rows": 2}, requested_by="agent-1")
            happens(ledger, one, sent("c9"), accepted("job_9", "c9"), *(observed(job="job_9") for _ in range(9)))
        assert not reader.read().counted
        reader.catch_up()
        found = reader.read()
    finally:
        desk.close()
    assert found.counted
    second = next(look.beat for look in found.providers if look.name == "jobs")
    assert sum(second.calls) == sum(first.calls) + 1


async def test_h_and_l_pause_and_resume_what_was_looked_at(home: Home) -> None:
    """A provider that comes in above between look and key changes nothing: it goes by name (B52)."""
    async with running(home, "providers") as pilot:
        await ready(pilot)
        home.contract(name="aaaa")
        with home.ledger() as ledger:
            ledger.submit("aaaa", {"rows": 1}, requested_by="agent-1")
        await until(pilot, lambda: providers(pilot).rows[0].key == "aaaa")
        await pilot.press("h", "h")
        await until(pilot, lambda: isinstance(pilot.app.screen, ProviderDialog))
        dialog = pilot.app.screen
        assert isinstance(dialog, ProviderDialog)
        assert (dialog.provider, dialog.verb, dialog.open_operations) == ("video", "pause", 3)
        dialog.dismiss(Verdict("pause", "video", None, "they are down"))
        await sees(pilot, "PAUSED by ana", "they are down", "calls to video are paused")
        assert providers(pilot).rows[0].key == "video", "what is paused comes first"
        await pilot.press("l")
        await until(pilot, lambda: isinstance(pilot.app.screen, ProviderDialog))
        again = pilot.app.screen
        assert isinstance(again, ProviderDialog)
        assert (again.provider, again.verb, again.why_paused) == ("video", "resume", "they are down")
        again.dismiss(Verdict("resume", "video", None, "they are back"))
        await until(pilot, lambda: cells(pilot, "video")[2] == "open")
        with home.ledger() as ledger:
            assert ledger.store.paused() == {}


async def test_a_dialog_that_is_left_does_nothing_and_the_keys_work_again(home: Home) -> None:
    """Escape is always safe."""
    async with running(home, "providers") as pilot:
        await ready(pilot)
        for _ in range(2):
            await pilot.press("h")
            await until(pilot, lambda: isinstance(pilot.app.screen, ProviderDialog))
            assert isinstance(pilot.app.screen, ProviderDialog)
            pilot.app.screen.dismiss(None)
            await until(pilot, lambda: isinstance(pilot.app.screen, ProvidersScreen))
        with home.ledger() as ledger:
            assert ledger.store.paused() == {}


async def test_somebody_was_faster(home: Home) -> None:
    """The first one's reason stands, and the second one is told."""
    async with running(home, "providers") as pilot:
        await ready(pilot)
        await pilot.press("h")
        await until(pilot, lambda: isinstance(pilot.app.screen, ProviderDialog))
        with home.ledger(operator="jo") as ledger:
            ledger.pause_provider("video", reason="first")
        assert isinstance(pilot.app.screen, ProviderDialog)
        pilot.app.screen.dismiss(Verdict("pause", "video", None, "second"))
        await until(pilot, lambda: isinstance(pilot.app.screen, TextPanel))
        await sees(pilot, "NOTHING WAS DONE", "first")


async def test_keys_that_are_off_say_why(home: Home) -> None:
    """Nothing to resume, paused already, or no provider under the cursor."""
    async with running(home, "providers") as pilot:
        await ready(pilot)
        await pilot.press("l")
        await sees(pilot, "calls to video are not paused")
        with home.ledger() as ledger:
            ledger.pause_provider("video", reason="down", by="jo")
        await until(pilot, lambda: cells(pilot, "video")[2] == "paused")
        await pilot.press("h")
        await sees(pilot, "paused already, by jo")
        await pilot.press("tab")
        await sees(pilot, "w-alive  alive at box-1")
        await pilot.press("h")
        await sees(pilot, "the cursor is on no provider")
        assert isinstance(pilot.app.screen, ProvidersScreen)


async def test_read_only_pauses_nothing(home: Home) -> None:
    """And says so."""
    with console(home, "providers", read_only=True) as app:
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            await ready(pilot)
            await pilot.press("h")
            await sees(pilot, "this console is read-only")
            assert isinstance(app.screen, ProvidersScreen)


async def test_without_a_database_nothing_is_paused(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last picture stays; it comes back by itself."""

    def away(*_: object) -> None:
        raise StoreUnavailable("no route")

    async with running(home, "providers") as pilot:
        await ready(pilot)
        with monkeypatch.context() as broken:
            broken.setattr(Desk, "overview", away)
            broken.setattr(reads.ProvidersReader, "read", away)
            await pilot.press("r")
            await sees(pilot, "DATABASE AWAY", "video")
            await pilot.press("h")
            await sees(pilot, "the database is away: no route")
            assert isinstance(pilot.app.screen, ProvidersScreen)
        await until(pilot, lambda: "DATABASE AWAY" not in shown(pilot))


async def test_a_dead_worker_s_leases_are_told_with_their_end(home: Home) -> None:
    """How many, when the first and the last lapse, and that nobody needs to do anything."""
    async with running(home, "providers") as pilot:
        await ready(pilot)
        await pilot.press("tab")
        await pilot.pause()
        await pilot.press("G")
        await sees(pilot, "GONE", "It still holds 4 operations", "first of these leases lapses", "takes each one over")
        assert "then another worker takes them" in cells(pilot, GONE, "#workers")[9]
        assert cells(pilot, "w-alive", "#workers")[9] == "-"
        assert cells(pilot, "w-alive", "#workers")[7] == "7.0s"
        await pilot.press("tab")
        await sees(pilot, "operations open")


async def test_hostile_text_is_shown_and_does_nothing(home: Home) -> None:
    """A worker's name and host, the reason and the name of whoever paused."""
    with home.ledger() as ledger:
        ledger.pause_provider("video", reason=f"down {HOSTILE}", by="jo[/red][@click=app.quit]x[bold")
        ledger.store.pause_provider("jobs", HOSTILE, HOSTILE, ledger.clock.now())
    async with running(home, "providers", (200, 60)) as pilot:
        await ready(pilot)
        assert_inert(await sees(pilot, "[/red][@click=app.quit]"))
        for key in ("k", "j", "tab", "G", "enter", "h", "l"):
            await pilot.press(key)
            assert_inert(shown(pilot))
        assert pilot.app.is_running


async def test_enter_reads_on_below(home: Home) -> None:
    """The guarantees are longer than the room for them."""
    async with running(home, "providers", (80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: screen_of(pilot).query_one("#told", VerticalScroll).scroll_offset.y > 0)


async def test_nobody_drives_and_a_contract_is_wrong(tmp_path: Path) -> None:
    """Both are the answer to "why does nothing happen?"."""
    home = Home(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")
    home.contract("name = 7", name="broken")
    with home.ledger():
        pass
    async with running(home, "providers", (120, 60)) as pilot:
        await until(pilot, lambda: isinstance(pilot.app.screen, ProvidersScreen) and providers(pilot).rows)
        await sees(pilot, "No worker is known")
        providers(pilot).go_to("broken")
        await sees(pilot, "The contract file is wrong")


# --- words ---------------------------------------------------------------------------------------------------------


def test_refused_credentials_have_a_word_of_their_own(home: Home) -> None:
    """A worker pauses then, and only a person who mends the credential helps."""
    with home.ledger() as ledger:
        ledger.store.pause_provider("video", "worker-1", f"{reads_refused()} (status 401)", ledger.clock.now())
    desk = Desk(home.settings(), read_only=False, drive=False)
    try:
        found = reads.ProvidersReader(desk).read()
    finally:
        desk.close()
    look = found.providers[0]
    assert look.name == "video"
    assert stations.provider_row(look, counted=True).cells[2] == "auth bad"
    assert "Mend the credential first" in stations.provider_told(look, found.taken_at, counted=True).plain


def reads_refused() -> str:
    """How the core words it; where that changes, the screen must notice."""
    from opledger.rules import pages

    source = Path(pages.__file__).read_text(encoding="utf-8")
    assert f'f"{stations.REFUSED} (status {{answer.status}})"' in source
    return stations.REFUSED


def test_a_worker_whose_clock_runs_ahead_is_marked(home: Home) -> None:
    """A heartbeat from the future is no heartbeat of minus an hour."""
    with home.ledger() as ledger:
        now = ledger.clock.now()
    life = WorkerLife("w", "box", 1, now - timedelta(hours=5), now + timedelta(hours=1), timedelta(0))
    look = stations.WorkerLook("w", life, alive=True, holding=None)
    assert stations.worker_row(look, now).cells[5:7] == ("5h", "0s!")
    assert "ahead of our clock" in stations.worker_told(look, now).plain


def test_a_worker_that_leaves_a_provider_to_others_says_so(home: Home) -> None:
    """Which one, since when, for how much longer, and why; afterwards nothing is left of it."""
    with home.ledger() as ledger:
        now = ledger.clock.now()
    aside = Aside("video", now - timedelta(minutes=3), now + timedelta(seconds=25), "no route\x1b[31m to host")
    life = WorkerLife("w", "box", 1, now, now, timedelta(0), (aside,))
    look = stations.WorkerLook("w", life, alive=True, holding=None)
    assert (stations.worker_row(look, now).cells[2], stations.worker_row(look, now).kind) == ("aside", "human")
    told = stations.worker_told(look, now).plain
    assert "leaves to others: video" in told
    assert "for 25s more: no route" in told
    assert "\x1b" not in told
    over = now + timedelta(seconds=26)
    assert stations.worker_row(look, over).cells[2] == "alive"
    assert "leaves to others" not in stations.worker_told(look, over).plain


@pytest.mark.parametrize(
    ("values", "width", "most", "drawn"),
    [
        ((), 3, None, "···"),
        ((0, 0, 0), 3, None, "···"),
        ((1, 4, 8), 3, None, "▁▄█"),
        ((0, 1, 0, 100), 4, None, "·▁·█"),
        ((1, 1, 1, 1, 1, 1), 3, None, "███"),
        ((5, 1, 1, 0, 0), 3, None, "█▄·"),
        ((8,), 3, 16, "··▄"),
        ((1, 2), 0, None, ""),
    ],
)
def test_sparks_show_the_shape(values: tuple[int, ...], width: int, most: int | None, drawn: str) -> None:
    """Nothing is a dot, one is already a block, and the newest stands last."""
    assert sparks(values, width, most) == drawn


def test_figures_have_words_at_both_ends() -> None:
    """Few is not none, and short is not nothing."""
    assert [stations.share(part) for part in (None, 0.0, 0.004, 0.25, 1.0)] == ["-", "0%", "<1%", "25%", "100%"]
    lengths = (None, timedelta(milliseconds=7), timedelta(seconds=2.5), timedelta(minutes=9))
    assert [stations.wait(one) for one in lengths] == ["-", "7ms", "2.5s", "9m"]


async def test_refused_and_waiting_webhooks_are_counted_where_their_provider_is(home: Home) -> None:
    """A sender whose secret was changed shows up where somebody looks."""
    with home.ledger() as ledger:
        ledger.store.count_refusals({("jobs", "wrong_signature"): 3}, ledger.clock.now())
    async with running(home, "providers") as pilot:
        await sees(pilot, "jobs")
        assert isinstance(pilot.app.screen, ProvidersScreen)
        pilot.app.screen.choose("jobs")
        assert_inert(await sees(pilot, "3 refused (wrong signature)"))
