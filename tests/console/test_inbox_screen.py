"""The inbox: what waits stands in the order of urgency, keys act on what was looked at, and an empty one says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from textual.message import Message
from textual.pilot import Pilot

from opledger.errors import StoreUnavailable
from opledger.rules import evidence as e
from opledger.rules import partial
from opledger.rules.escalation import Escalation, Severity, severity
from opledger.rules.model import Deadline, Means, Operation, State
from opledger_console.app import ConsoleApp
from opledger_console.desk import Desk
from opledger_console.desk import inbox as reads
from opledger_console.dialogs.acknowledge import AcknowledgeDialog
from opledger_console.dialogs.approve import ApproveDialog
from opledger_console.dialogs.cancel import CancelDialog
from opledger_console.dialogs.deciding import Deciding
from opledger_console.dialogs.note import NoteDialog
from opledger_console.dialogs.panel import TextPanel
from opledger_console.dialogs.reject import RejectDialog
from opledger_console.dialogs.resolve import ResolveDialog
from opledger_console.messages import Opened
from opledger_console.pages import waiting
from opledger_console.screens.inbox import NOTHING, InboxScreen
from opledger_console.widgets.listing import Listing
from tests.console.hands import HOSTILE, assert_inert, console, running, sees, shown, until
from tests.core.ledgers import LOST, Home, accepted, happens, observed, sent

APPROVALS = """
[[policy]]
when = 'operation.body.rows < 10'
expires = '8h'
"""
MARKUP = "[/red][@click=app.quit]x[bold"
"""A name must be printable; that it is markup forbids nobody."""
SIZES = [(80, 24), (120, 40), (40, 10)]


class Made:
    """A ledger with one of each thing that waits, and the whole ids of them."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root, f"sqlite:///{root / 'ledger.db'}")
        self.home.contract(name="video")
        with self.home.ledger(APPROVALS) as ledger:

            def wish(rows: int, contract: str = "jobs", expectation: str | None = None) -> Operation:
                return ledger.submit(contract, {"rows": rows}, requested_by=f"agent-{rows}", expectation=expectation)

            self.approval = wish(5, expectation=f"five rows {HOSTILE}").operation_id
            self.unknown = happens(ledger, wish(11), *LOST).operation_id
            broken = happens(ledger, wish(12, "video"), sent("c12"), accepted(f"job{HOSTILE}", "c12"))
            self.violation = broken.operation_id
            happens(ledger, broken, e.IdentityChanged(why=f"answered for {HOSTILE}", jobs=(f"job{HOSTILE}", HOSTILE)))
            late = happens(ledger, wish(13), sent("c13"), accepted("job_13", "c13"), observed(job="job_13"))
            assert late.result_deadline is not None
            self.late = happens(ledger, late, e.DeadlinePassed(Deadline.RESULT, late.result_deadline)).operation_id
            strange = happens(ledger, wish(14), sent("c14"), accepted("job_14", "c14"))
            self.strange = happens(ledger, strange, observed(HOSTILE, Means.UNKNOWN, "job_14")).operation_id
            self.order = [self.unknown, self.violation, self.late, self.strange, self.approval]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """One of each thing that waits."""
    return Made(tmp_path)


@pytest.fixture
def calm(tmp_path: Path) -> Home:
    """A ledger in which nothing waits."""
    return Home(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")


def inbox(pilot: Pilot[int]) -> InboxScreen:
    """The screen."""
    screen = pilot.app.screen
    assert isinstance(screen, InboxScreen)
    return screen


def listing(pilot: Pilot[int]) -> Listing:
    """The list."""
    return inbox(pilot).query_one("#waiting", Listing)


def keys_of(pilot: Pilot[int]) -> list[str]:
    """What stands in the list, in order."""
    return [row.key for row in listing(pilot).rows]


async def ready(pilot: Pilot[int], count: int = 5) -> None:
    """Wait until so many rows are shown."""
    await until(pilot, lambda: len(keys_of(pilot)) == count, f"{count} rows")
    await pilot.pause()


def listen(screen: InboxScreen, said: list[Message], monkeypatch: pytest.MonkeyPatch) -> None:
    """Hear what would be opened, instead of opening it."""
    passed_on = screen.post_message

    def hear(message: Message) -> bool:
        if isinstance(message, Opened):
            said.append(message)
            return True
        return passed_on(message)

    monkeypatch.setattr(screen, "post_message", hear)


@pytest.mark.parametrize("size", SIZES)
async def test_what_waits_stands_in_the_order_of_urgency(made: Made, size: tuple[int, int]) -> None:
    """The first row is what to do first, in words, at every size."""
    async with running(made.home, "inbox", size) as pilot:
        await ready(pilot)
        text = await sees(pilot, "create unknown", "violation", "timed out", "approve", "2 critical")
        # Two that are equally urgent and have no deadline come by age.
        assert keys_of(pilot) == made.order
        assert listing(pilot).key == made.unknown
        assert size != (80, 24) or listing(pilot).size.height >= 11, "ten rows and their names"
        assert "7h" in text


async def test_the_one_under_the_cursor_is_told_in_full(made: Made) -> None:
    """Why, what may be done with which key, and what happens if nobody does anything: also in 80 columns."""
    async with running(made.home, "inbox", (80, 24)) as pilot:
        await ready(pilot)
        await sees(pilot, "no way is left", "u say what became of the create", "not-created", "if nobody does anything")
        await pilot.press("G")
        text = await sees(pilot, "0 of 1 approval", "lapses and is rejected", "nothing was sent")
        assert "d decline" in text
        assert "v resolve it" not in text


async def test_hostile_text_is_shown_and_does_nothing(made: Made) -> None:
    """Job ids, provider's words, names, reasons and notices: all of it comes from outside."""
    with made.home.ledger(APPROVALS) as ledger:
        ledger.pause_provider("video", reason=f"down {HOSTILE}", by=f"jo{MARKUP}")
        ledger.acknowledge(made.late, by=f"jo{MARKUP}", reason=HOSTILE)
        ledger.submit("jobs", {"rows": 6}, requested_by=f"agent{MARKUP}")
    async with running(made.home, "inbox", (200, 60)) as pilot:
        await ready(pilot, 7)
        for _ in range(7):
            text = shown(pilot)
            assert_inert(text)
            assert "[/red][@click=app.quit]" in text
            await pilot.press("j")
        assert pilot.app.is_running


@pytest.mark.parametrize(
    ("name", "tab"),
    [("approval", "request"), ("violation", "conflict"), ("late", "timeline"), ("unknown", "timeline")],
)
async def test_enter_opens_the_operation_at_the_tab_that_matters(
    made: Made, name: str, tab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At night nobody looks for the right tab."""
    said: list[Message] = []
    async with running(made.home, "inbox") as pilot:
        await ready(pilot)
        listen(inbox(pilot), said, monkeypatch)
        listing(pilot).go_to(getattr(made, name))
        await pilot.press("enter")
        await until(pilot, lambda: any(isinstance(one, Opened) for one in said))
        opened = next(one for one in said if isinstance(one, Opened))
        assert (opened.operation_id, opened.tab) == (getattr(made, name), tab)


@pytest.mark.parametrize(("code", "words"), [(partial.LOST, "partial missing"), (partial.INVALID, "partial wrong")])
def test_what_a_job_left_behind_has_words_of_its_own(code: str, words: str) -> None:
    """The record has ended, so nothing else will ever show that its output is lost or wrong."""
    at = datetime(2026, 11, 29, tzinfo=UTC)
    one = Escalation("op_1", "jobs", code, at, "gone", severity(code), "op_1", State.FAILED)
    assert waiting.row_of(one, at).cells[1:3] == (words, "high")
    assert waiting.TABS[code] == "result"
    assert waiting.fate(one, None, at).startswith("the record stays as it is; what the job left ")


@pytest.mark.parametrize(
    ("state", "tab"), [(State.RESULT_UNAVAILABLE, "result"), (State.RESULT_VALIDATION_FAILED, "result")]
)
def test_a_result_problem_opens_at_the_result(state: State, tab: str) -> None:
    """As above, for states that take many events to reach."""
    assert waiting.TABS[state] == tab


async def test_a_paused_provider_leads_to_the_providers(made: Made) -> None:
    """It is no operation: decisions are off and say so, and Enter goes where it can be let go."""
    with made.home.ledger(APPROVALS) as ledger:
        ledger.pause_provider("jobs", reason="slow")
        ledger.pause_provider("video", reason="down")
    async with running(made.home, "inbox") as pilot:
        await ready(pilot, 7)
        listing(pilot).go_to("provider:video")
        await sees(pilot, "provider video  paused", "deadlines run on")
        await pilot.press("a")
        await sees(pilot, "this row is a provider")
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.current_mode == "providers")
        # Of two that are paused the other one would stand first.
        await until(pilot, lambda: [one.key for one in pilot.app.screen.query(Listing) if one.has_focus] == ["video"])


async def test_exclamation_mark_goes_to_the_next_one_and_round(made: Made) -> None:
    """One key, from anywhere, through all that waits."""
    async with running(made.home, "operations") as pilot:
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: pilot.app.current_mode == "inbox")
        await ready(pilot)
        seen = []
        for _ in range(6):
            seen.append(listing(pilot).key)
            await pilot.press("exclamation_mark")
        assert seen == [*made.order, made.order[0]]


DIALOGS: list[tuple[str, str, type[Deciding]]] = [
    ("a", "approval", ApproveDialog),
    ("d", "approval", RejectDialog),
    ("x", "strange", CancelDialog),
    ("u", "unknown", ResolveDialog),
    ("v", "violation", ResolveDialog),
    ("y", "late", AcknowledgeDialog),
    ("n", "strange", NoteDialog),
]


@pytest.mark.parametrize(("key", "name", "dialog"), DIALOGS)
async def test_a_key_asks_about_what_was_looked_at(made: Made, key: str, name: str, dialog: type[Deciding]) -> None:
    """Rows come in above and others go between the look and the key; the dialog is about the same operation (B52)."""
    async with running(made.home, "inbox", toml=APPROVALS) as pilot:
        await ready(pilot)
        wanted = getattr(made, name)
        listing(pilot).go_to(wanted)
        with made.home.ledger(APPROVALS) as ledger:
            happens(ledger, ledger.submit("jobs", {"rows": 21}, requested_by="x"), *LOST)
            gone = made.late if name != "late" else made.unknown
            ledger.resolve(gone, "close", reason="nobody needs it")
        await until(pilot, lambda: gone not in keys_of(pilot) and len(keys_of(pilot)) == 5)
        assert listing(pilot).key == wanted
        await pilot.press(key)
        await until(pilot, lambda: isinstance(pilot.app.screen, dialog), f"ask with {key}")
        asked = pilot.app.screen
        assert isinstance(asked, Deciding)
        assert asked.operation.operation_id == wanted


async def test_p_and_e_need_no_dialog(made: Made) -> None:
    """A status read changes nothing at the provider, and a packet only reads."""
    async with running(made.home, "inbox") as pilot:
        await ready(pilot)
        listing(pilot).go_to(made.strange)
        await pilot.press("p")
        await sees(pilot, "a status read is due now")
        await pilot.press("e")
        await until(pilot, lambda: isinstance(pilot.app.screen, TextPanel))


async def test_what_needs_nobody_any_more_says_so_and_hands_the_cursor_on(made: Made) -> None:
    """Somebody else was faster: the next key would mean another operation, so it is told."""
    async with running(made.home, "inbox") as pilot:
        await ready(pilot)
        listing(pilot).go_to(made.late)
        with made.home.ledger(APPROVALS) as ledger:
            ledger.resolve(made.late, "close", reason="nobody needs it")
        await until(pilot, lambda: len(keys_of(pilot)) == 4)
        assert listing(pilot).key == made.strange
        await sees(pilot, f"{made.late[-8:]} needs nobody any more")


async def test_what_somebody_has_taken_goes_to_the_end_and_the_cursor_with_it(made: Made) -> None:
    """Two people on call must not do the same; the row says who has it, and for how long."""
    async with running(made.home, "inbox") as pilot:
        await ready(pilot)
        with made.home.ledger(APPROVALS, operator="jo") as ledger:
            ledger.acknowledge(made.unknown, until=ledger.clock.now() + timedelta(hours=3))
        await until(pilot, lambda: keys_of(pilot) == [*made.order[1:], made.unknown])
        assert listing(pilot).key == made.unknown
        await sees(pilot, "jo has it for 2h", "1 taken by somebody")


async def test_read_only_decides_nothing_and_says_so(made: Made) -> None:
    """The keys are off, the words say why, and looking still works."""
    with console(made.home, "inbox", read_only=True) as app:
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            await ready(pilot)
            await sees(pilot, "READ-ONLY", "look at it with Enter; this console is read-only")
            for key in "adxuvynp":
                await pilot.press(key)
                assert isinstance(app.screen, InboxScreen), key
            await pilot.press("e")
            await until(pilot, lambda: isinstance(app.screen, TextPanel))


async def test_without_a_database_the_last_picture_stays_and_decides_nothing(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was true is still worth reading; nothing is done on the strength of it. It comes back by itself."""

    def away(*_: object) -> None:
        raise StoreUnavailable(f"no route {HOSTILE}")

    async with running(made.home, "inbox") as pilot:
        await ready(pilot)
        with monkeypatch.context() as broken:
            broken.setattr(Desk, "overview", away)
            broken.setattr(reads.InboxReader, "read", away)
            await pilot.press("r")
            text = await sees(pilot, "DATABASE AWAY", "create unknown", "look at it with Enter; the database is away")
            assert_inert(text)
            await pilot.press("u", "e", "p")
            await pilot.pause()
            assert isinstance(pilot.app.screen, InboxScreen)
        await until(pilot, lambda: "DATABASE AWAY" not in shown(pilot))
        await sees(pilot, "u say what became")


@pytest.mark.parametrize("size", SIZES)
async def test_an_empty_inbox_says_so(calm: Home, size: tuple[int, int]) -> None:
    """Nothing to do is an answer; a blank screen is a doubt."""
    async with running(calm, "inbox", size) as pilot:
        await sees(pilot, NOTHING, "Nobody has decided anything lately")
        await pilot.press("exclamation_mark", "enter", "a")
        await pilot.pause()
        assert isinstance(pilot.app.screen, InboxScreen)


async def test_an_empty_inbox_shows_what_was_decided_last(calm: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who took over the shift wants to know what was done, by whom and why; ten are enough, the newest first."""
    with calm.ledger(APPROVALS) as ledger:
        ids = [ledger.submit("jobs", {"rows": 3}, requested_by="agent-1").operation_id for _ in range(11)]
        for number, one in enumerate(ids):
            ledger.reject(one, reason=f"reason-{number:02} {HOSTILE}", by=f"jo{MARKUP}")
    async with running(calm, "inbox") as pilot:
        text = await sees(pilot, NOTHING, "decided last", "reason-10", "reason-01")
        assert "reason-00" not in text
        assert text.index("reason-10") < text.index("reason-01")
        assert "declined" in text
        assert_inert(text)
        with calm.ledger(APPROVALS) as ledger:
            ledger.cancel(ledger.submit("jobs", {"rows": 4}, requested_by="ana").operation_id, reason="not needed")
        await sees(pilot, "withdrawn", "not needed")
        said: list[Message] = []
        listen(inbox(pilot), said, monkeypatch)
        await pilot.press("G", "enter")
        await until(pilot, lambda: any(isinstance(one, Opened) for one in said))
        assert [one.operation_id for one in said if isinstance(one, Opened)] == [ids[2]]


async def test_what_comes_into_an_empty_inbox_is_shown_at_once(calm: Home) -> None:
    """And it has the keys."""
    async with running(calm, "inbox") as pilot:
        await sees(pilot, NOTHING)
        with calm.ledger(APPROVALS) as ledger:
            one = ledger.submit("jobs", {"rows": 3}, requested_by="agent-1")
        await ready(pilot, 1)
        assert pilot.app.focused is listing(pilot)
        assert inbox(pilot).subject() == one


# --- reading -------------------------------------------------------------------------------------------------------


def test_with_very_much_only_the_first_are_read_in_the_right_order(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many approvals wait, what is critical is among the first; of approvals those with the nearest end."""
    with made.home.ledger(APPROVALS.replace("8h", "30m")) as ledger:
        near = ledger.submit("jobs", {"rows": 7}, requested_by="agent-7").operation_id
    with made.home.ledger(APPROVALS) as ledger:
        for _ in range(5):
            ledger.submit("jobs", {"rows": 8}, requested_by="agent-8")
    monkeypatch.setattr(reads, "MOST", 3)
    desk = Desk(made.home.settings(), read_only=False, drive=False)
    try:
        found = reads.InboxReader(desk).read()
    finally:
        desk.close()
    assert [one.subject for one in found.rows] == [made.unknown, made.violation, near]
    assert found.total == 11
    assert set(found.operations) == {made.unknown, made.violation, near}


async def test_it_says_how_much_more_there_is(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that ends must not look like all there is."""
    monkeypatch.setattr(reads, "MOST", 2)
    async with running(made.home, "inbox") as pilot:
        await sees(pilot, "the first 2 of 5, and 3 more: 2 shows all, filter needs:me")


# --- words ---------------------------------------------------------------------------------------------------------


def test_times_are_clamped_and_told(made: Made) -> None:
    """A deadline that has passed is said so, and a clock that runs ahead shows as that and not as nonsense."""
    desk = Desk(made.home.settings(), read_only=False, drive=False)
    try:
        found = reads.InboxReader(desk).read()
    finally:
        desk.close()
    one = next(one for one in found.rows if one.subject == made.approval)
    assert one.deadline is not None
    assert one.severity is Severity.LOW
    assert waiting.row_of(one, one.since + timedelta(seconds=65)).cells[3:5] == ("65s", "7h")
    assert waiting.row_of(one, one.deadline).cells[4] == "passed"
    assert "passed: a worker records it as rejected" in waiting.fate(one, None, one.deadline)
    assert waiting.row_of(one, one.since - timedelta(hours=1)).cells[3] == "0s!"
    bare = next(one for one in found.rows if one.subject == made.violation)
    assert waiting.left_words(bare.deadline, found.taken_at) == "-"


async def test_countdowns_go_on_while_nothing_changes(made: Made) -> None:
    """Nobody writes, and the minute is another one all the same."""
    async with running(made.home, "inbox") as pilot:
        await ready(pilot)
        screen = inbox(pilot)
        assert screen._found is not None
        found = screen._found
        approval = next(one for one in found.rows if one.subject == made.approval)
        assert approval.deadline is not None
        # Looked at in the same turn of the loop: the screen's own tick would draw the time that it is.
        screen._draw(approval.deadline - timedelta(seconds=5))
        assert any(row.cells[4] == "5s" for row in listing(pilot).rows)


@pytest.mark.parametrize("size", [(80, 24), (60, 15)])
async def test_what_is_said_is_seen_in_a_full_window(made: Made, size: tuple[int, int]) -> None:
    """A notice takes its room from the list: nothing is pushed out of the window, and no scroll bar comes."""
    async with running(made.home, "inbox", size, toml=APPROVALS) as pilot:
        await sees(pilot, "create unknown")
        inbox(pilot).say("approved; the next free worker sends it, once")
        text = await sees(pilot, "the next free worker sends it", "Inbox", "a approve")
        assert len(text.splitlines()) == size[1]
        assert inbox(pilot).max_scroll_y == 0


async def test_what_an_agent_may_not_do_is_off_before_any_dialog(made: Made) -> None:
    """The ledger would refuse it; the key says so first."""
    settings = made.home.settings(APPROVALS, operator="agent-9")
    desk = Desk(settings, read_only=False, drive=False)
    app = ConsoleApp(desk, start="inbox")
    async with app.run_test(size=(120, 40)) as pilot:
        await sees(pilot, "approve")
        until_on = made.order.index(made.approval)
        await pilot.press(*["j"] * until_on, "a")
        await sees(pilot, "agent-9 is an agent; only a person may do this")
        assert isinstance(app.screen, InboxScreen)
    desk.close()
