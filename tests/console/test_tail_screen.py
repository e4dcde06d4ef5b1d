"""The tail: what comes is shown, what somebody looks at stands still, and a filter means what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from textual.message import Message

from opledger.rules import evidence as e
from opledger.rules.filters import FilterWrong
from opledger.rules.model import Means
from opledger.rules.shapes import Event
from opledger.store.tail import TailEvent
from opledger_console import tailfilter
from opledger_console.desk import tail as reads
from opledger_console.messages import Opened
from opledger_console.screens import tail as screen_module
from opledger_console.screens.tail import TailScreen
from opledger_console.widgets.listing import Listing
from tests.console.hands import HOSTILE, assert_inert, running, sees, shown, until
from tests.core.ledgers import BODY, RUNNING, Home, accepted, happens, observed, sent

OP = "op_01M8KVTWC2BZCK3B77YGWBXFHZ"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A ledger with one running operation: four events."""
    home = Home(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")
    with home.ledger() as ledger:
        happens(ledger, ledger.submit("jobs", BODY, requested_by="agent-1"), *RUNNING)
    return home


def grow(home: Home, times: int, word: str = "running") -> str:
    """Another operation, and so many polls of it."""
    with home.ledger() as ledger:
        op = ledger.submit("jobs", {"rows": times}, requested_by="agent-2")
        job = f"job-{word}-{times}"
        polls = [observed(f"{word}-{n}", Means.RUNNING, job) for n in range(times)]
        happens(ledger, op, sent(), accepted(job), observed(job=job), *polls)
    return op.operation_id


def tail_of(pilot: object) -> TailScreen:
    """The screen."""
    screen = pilot.app.screen  # type: ignore[attr-defined]
    assert isinstance(screen, TailScreen)
    return screen


async def test_events_come_by_themselves_and_the_newest_is_in_sight(home: Home) -> None:
    """Nobody presses a key: that is what a tail is for."""
    async with running(home, "tail") as pilot:
        await sees(pilot, "Submitted", "Observed", "following")
        operation_id = grow(home, 50)
        await sees(pilot, operation_id[-8:], "running-49")
        assert tail_of(pilot).listing.key == f"{operation_id}/54"


async def test_looking_at_a_line_stops_it_and_says_how_many_are_new(home: Home) -> None:
    """What somebody reads must not run away; G goes back to what comes."""
    async with running(home, "tail") as pilot:
        await sees(pilot, "following")
        await pilot.press("k")
        await sees(pilot, "standing still")
        held = tail_of(pilot).listing.key
        grow(home, 33)
        await sees(pilot, "37 new below, G goes there")
        assert tail_of(pilot).listing.key == held
        await pilot.press("G")
        await sees(pilot, "following", "running-32")


async def test_follow_is_switched_by_its_key(home: Home) -> None:
    """L stops without moving, and starts again at the newest."""
    async with running(home, "tail") as pilot:
        await sees(pilot, "following")
        await pilot.press("L")
        await sees(pilot, "standing still; L follows")
        await pilot.press("L")
        await sees(pilot, "following")


async def test_scrolling_up_reads_what_was_before(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only some are read at first; the others when somebody goes there."""
    monkeypatch.setattr(reads, "STEP", 20)
    grow(home, 60)
    async with running(home, "tail") as pilot:
        await sees(pilot, "running-59", "20 events")
        newest = tail_of(pilot).listing.rows[0].key
        await pilot.press("g")
        await until(pilot, lambda: tail_of(pilot).held > 20)
        assert tail_of(pilot).listing.key == newest
        for _ in range(3):
            await pilot.press("g")
        await until(pilot, lambda: tail_of(pilot).held == 68)
        await sees(pilot, "from the first on")


async def test_no_more_is_held_than_is_allowed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tail that is left open for a week must not eat the memory, followed or not."""
    monkeypatch.setattr(reads, "STEP", 20)
    monkeypatch.setattr(screen_module, "MOST", 40)
    async with running(home, "tail") as pilot:
        await sees(pilot, "following")
        grow(home, 12)
        await sees(pilot, "running-11")
        grow(home, 12, "again")
        await sees(pilot, "again-11")
        grow(home, 12, "third")
        await sees(pilot, "third-11")
        assert tail_of(pilot).held <= 60
        await pilot.press("k")
        await sees(pilot, "standing still")
        await sees(pilot, "newer ones are not read: G goes to the newest")
        grow(home, 12, "fourth")
        await pilot.press("G")
        await sees(pilot, "fourth-11", "following")


async def test_what_was_left_out_is_told(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """More came at once than is read: silence there would be a lie."""
    async with running(home, "tail") as pilot:
        await sees(pilot, "following")
        monkeypatch.setattr(reads, "STEP", 5)
        grow(home, 30)
        await sees(pilot, "some events are left out here")


async def test_a_filter_is_asked_for_and_shows_only_what_it_wants(home: Home) -> None:
    """Also when what it wants lies far back, and when new events come."""
    async with running(home, "tail") as pilot:
        await sees(pilot, "Submitted", "Observed")
        await pilot.press("slash", *"kind:Acc", "enter")
        text = await sees(pilot, "kind:Acc: 1 of the last", "Accepted")
        assert "Submitted" not in text
        grow(home, 3)
        await until(pilot, lambda: tail_of(pilot).held == 2)
        assert "Observed" not in shown(pilot)
        await pilot.press("escape")
        await sees(pilot, "Submitted")


async def test_a_filter_that_is_wrong_stays_to_be_mended(home: Home) -> None:
    """The line says why, and nothing is lost."""
    async with running(home, "tail") as pilot:
        await sees(pilot, "Submitted")
        await pilot.press("slash", *"kin:x", "enter")
        await sees(pilot, "did you mean kind?", "kin:x")
        await pilot.press("escape")
        await sees(pilot, "following")


async def test_enter_opens_the_operation_of_the_event(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """One key from what happened to the operation that it happened to."""
    async with running(home, "tail") as pilot:
        await sees(pilot, "Submitted")
        screen = tail_of(pilot)
        seen: list[Opened] = []
        monkeypatch.setattr(screen, "post_message", _catching(screen.post_message, seen))
        await pilot.press("enter")
        await until(pilot, lambda: seen)
        assert screen.listing.key == f"{seen[0].operation_id}/4"


def _catching(post: Callable[[Message], bool], seen: list[Opened]) -> Callable[[Message], bool]:
    def caught(message: Message) -> bool:
        if isinstance(message, Opened):
            seen.append(message)
            return True
        return post(message)

    return caught


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (200, 60)])
async def test_hostile_text_is_shown_and_does_nothing(home: Home, size: tuple[int, int]) -> None:
    """What a provider or an agent writes is a text, at every size."""
    with home.ledger() as ledger:
        op = ledger.submit("jobs", {"rows": 9}, requested_by="agent-[bold")
        happens(ledger, op, sent(), accepted("job_8"), observed(HOSTILE, Means.UNKNOWN, "job_8"))
        happens(ledger, op, e.IdentityChanged(why=f"answered for {HOSTILE}", jobs=("job_8", HOSTILE)))
    async with running(home, "tail", size) as pilot:
        assert_inert(await sees(pilot, "contract_violati", "observing"))
        assert pilot.app.screen.query_one(Listing).has_focus


async def test_times_have_a_date_where_they_are_not_of_today_and_a_zone(home: Home) -> None:
    """A tail that is left open over midnight must not show yesterday as today; t takes the zone of the machine."""
    async with running(home, "tail") as pilot:
        await sees(pilot, "Submitted")
        screen = tail_of(pilot)
        assert all(row.cells[0].endswith("Z") for row in screen.listing.rows)
        await until(pilot, lambda: screen.overview is not None, "take the time")
        assert screen.overview is not None
        held = screen.listing.key
        screen.overview = replace(screen.overview, taken_at=screen.overview.taken_at + timedelta(days=2))
        screen.tick()
        assert all(row.cells[0][:5] == f"{day_of(screen):%d%b}" for row in screen.listing.rows)
        screen.overview = None
        await pilot.press("t")
        assert not any(row.cells[0].endswith("Z") for row in screen.listing.rows)
        assert screen.listing.key == held


def day_of(screen: TailScreen) -> datetime:
    """The day of the events."""
    return screen._held[0].events[0].event.at


# --- the filter language ------------------------------------------------------------------------------------------


def event(kind: str = "Observed", **more: object) -> TailEvent:
    """One event of the tail."""
    fields: dict = {
        "seq": 3, "at": datetime(2026, 11, 29, tzinfo=UTC), "actor": "worker-1", "actor_kind": "worker", "kind": kind,
        "from_state": None, "to_state": None, "cause": "call:1", "reason": None, "remote_job_id": "job_7", "data": {},
        "prev_hash": "", "hash": "",
    }  # fmt: skip
    fields |= more
    return TailEvent(OP, "reports", "agent-7", Event(**fields), None)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", True),
        ("kind:observed", True),
        ("kind:Obs,CallLost", True),
        ("!kind:Obs", False),
        ("kind:CallLost", False),
        ("contract:reports by:agent-7", True),
        ("provider:reports", True),
        ("contract:reports by:agent-8", False),
        ("actor:worker", True),
        ("actor:worker-1", True),
        ("actor:human", False),
        ("state:failed", False),
        ("op_01M8", True),
        ("ygwbxfhz", True),
        ("job_7", True),
        ("b7", False),
        ('"call:1"', True),
        ("!nowhere", True),
    ],
)
def test_what_a_filter_means(text: str, fits: bool) -> None:
    """Terms must all hold, values one of them; a bare word is an id's beginning or a part of what is said."""
    assert tailfilter.matches(event(), tailfilter.parse(text)) is fits


def test_a_state_is_where_the_event_led() -> None:
    """A group of states counts as each of them."""
    one = event("DeadlinePassed", from_state="observing", to_state="result_timed_out")
    for text in ("state:result_timed_out", "state:waiting", "state:open", "!state:observing", "!state:ended"):
        assert tailfilter.matches(one, tailfilter.parse(text)), text


def test_a_reason_is_found_by_a_part_of_it() -> None:
    """People remember a word and no id."""
    one = event("Noted", reason="Rang their support, Twice")
    assert tailfilter.matches(one, tailfilter.parse('"support, twice"'))
    assert tailfilter.said(one.event) == "Rang their support, Twice"


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        ("Submitted", {"requested_by": "agent-7", "task": "t"}, "by agent-7, task t"),
        ("CallSent", {"action": "create", "method": "POST", "url": "https://x"}, "create: POST https://x"),
        ("Accepted", {"job_id": "job_7", "how": "resend", "remote_state": "queued"}, "job job_7 (resend)"),
        ("Observed", {"remote_state": "running"}, "running"),
        ("Decided", {"choice": "bind"}, "bind"),
        ("DeadlinePassed", {"which": "result"}, "result deadline"),
        ("CancelAnswered", {"verdict": "refused", "why": ""}, "refused"),
        ("ResultAccepted", {"result": {"size": 1234, "location": "/r/1"}}, "1,234 bytes at /r/1"),
        ("ResultAccepted", {"result": {"size": "big"}}, "big bytes at no place"),
        ("CallLost", {"why": "reset"}, "reset"),
        ("LeaseTaken", {}, "call:1"),
    ],
)
def test_each_kind_says_what_it_is_about(kind: str, data: dict, words: str) -> None:
    """One line an event: its kind alone says too little, its cause is a number."""
    assert tailfilter.said(event(kind, data=data).event) == words


def test_an_event_whose_bytes_are_damaged_says_so() -> None:
    """It is no reason to fall over, and none to hide it."""
    assert tailfilter.said(event(data=None).event) == "the bytes of this event cannot be read"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("age>2h", "can be asked of an operation and not of an event"),
        ("knd:x", "did you mean kind?"),
        ("kind:", "needs a value"),
        ("kind<x", "not compared"),
        ("state:faild", "did you mean failed?"),
        ("kind:Observd", "did you mean Observed?"),
        ('by:"x', "no end"),
        ("!", "nothing follows"),
        (":x", "is no key"),
    ],
)
def test_a_wrong_filter_says_what_would_be_right(text: str, words: str) -> None:
    """Guessing at 03:00 is no help."""
    with pytest.raises(FilterWrong, match=words.replace("?", r"\?")):
        tailfilter.parse(text)


def test_a_filter_is_completed() -> None:
    """Keys first, then what they take."""
    assert tailfilter.complete("by:x ki", {}) == ("by:x kind:",)
    assert "kind:CallLost" in tailfilter.complete("kind:call", {})
    assert tailfilter.complete("!state:succ", {}) == ("!state:succeeded",)
    assert tailfilter.complete("contract:", {"contract": ("two words",)}) == ('contract:"two words"',)
