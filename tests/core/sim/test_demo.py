from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from opledger.edges.clock import SystemClock
from opledger.ledger import Ledger
from opledger.rules import evidence as e
from opledger.rules.model import Action, Deadline, Operation, State
from opledger.sim import demo
from opledger.sim.demo import Play
from opledger.sim.people import POLICY, SCENES, SCRIPT, Part, People
from opledger.sim.personalities import PERSONALITIES
from opledger.sim.screen import Screen
from tests.core.ledgers import LOST, RUNNING, VIOLATED, Home, accepted, happens, observed, sent
from tests.support.databases import sqlite_template, sqlite_url  # noqa: F401 - fixtures


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


class Stagehand:
    """A ledger, a screen and the scripted people, without provider and worker."""

    def __init__(self, root: Path, ledger: Ledger) -> None:
        self.ledger = ledger
        self.out = io.StringIO()
        screen = Screen(self.out, SystemClock())
        self.people = People(ledger, screen, SystemClock(), root, lambda op: f"job_of_{op.operation_id[-8:]}")
        self.play = Play(ledger, screen, self.people)

    def part(self, *evidence: e.Evidence, scene: str = "", personality: str = "ideal", rows: int = 5) -> Part:
        """An operation of the play that has come so far."""
        op = self.ledger.submit("jobs", {"rows": rows, "copy": scene}, requested_by="agent-billing")
        happens(self.ledger, op, *evidence)
        part = Part(op.operation_id, personality, "plain", scene=scene)
        self.play.parts[op.operation_id] = part
        return part

    def act(self, part: Part, *evidence: e.Evidence) -> Operation:
        """Let the people act, after something has happened; return the record then."""
        happens(self.ledger, part.operation_id, *evidence)
        self.people.act(part, self.ledger.show(part.operation_id))
        self.play.last[part.operation_id] = op = self.ledger.show(part.operation_id)
        return op


@pytest.fixture
def stage(tmp_path: Path, sqlite_url: str) -> Iterator[Stagehand]:  # noqa: F811
    """The people on a ledger with their policy."""
    with Home(tmp_path, sqlite_url).ledger(POLICY) as ledger:
        yield Stagehand(tmp_path, ledger)


def late(which: Deadline) -> e.DeadlinePassed:
    """A deadline that has passed."""
    return e.DeadlinePassed(which, SystemClock().now())


def test_the_policy_asks_two_people(stage: Stagehand) -> None:
    """The near copy is rejected by sight of the difference; the agent that asks is refused, and two others agree."""
    first = stage.part(scene="two approve", rows=1000)
    copy = stage.part(scene="near copy", rows=1001)
    back = stage.part(scene="taken back", rows=4000)
    assert stage.act(first).approvals == ()  # not before the copy was looked at
    assert stage.act(copy).state is State.REJECTED
    assert stage.act(back).state is State.WITHDRAWN
    assert [len(stage.act(first).approvals) for _ in range(2)] == [1, 2]
    assert stage.ledger.show(first.operation_id).state is State.CREATE_PENDING
    assert [given.by for given in stage.ledger.show(first.operation_id).approvals] == ["ana", "jo"]
    shown = stage.out.getvalue()
    assert "refused: agent-billing is an agent" in shown
    assert "approves" in shown


def test_two_bodies_are_compared_in_one_line(stage: Stagehand) -> None:
    """Whoever reads along must see why the copy is rejected."""
    like = {name: value for name, value in SCENES[0].body.items() if name != "rows"}
    one = stage.ledger.submit("jobs", {**like, "rows": 1000}, requested_by="agent-billing")
    two = stage.ledger.submit("jobs", {**like, "rows": 1001}, requested_by="agent-billing")
    stage.act(Part(two.operation_id, "ideal", "plain", scene="near copy"))
    assert f"it is like {one.operation_id[-8:]} but for /rows: 1000 -> 1001" in " ".join(stage.out.getvalue().split())


def test_an_escalation_is_acknowledged_and_goes_to_support(stage: Stagehand, tmp_path: Path) -> None:
    """Before anything is decided about it; and one of the jobs is kept."""
    part = stage.part(*VIOLATED, personality="token_ignoring")
    op = stage.act(part)
    assert (op.state, op.remote_job_id) == (State.OBSERVING, "job_7")
    kinds = [event.kind for event in stage.ledger.events(part.operation_id)]
    assert kinds[-2:] == ["Acknowledged", "Decided"]
    assert "job_8" in (tmp_path / "packets" / f"{part.operation_id}.md").read_text()
    assert stage.act(part, e.UnfamiliarJobId(why="again", jobs=("job_7", "job_9"))).state is State.RESOLVED


def test_lost_creates_are_bound_and_sent_once_more(stage: Stagehand) -> None:
    """And the judge is told for which tokens a second job was accepted."""
    bound = stage.part(*LOST, scene="found by hand", personality="lossy")
    again = stage.part(*LOST, scene="sent once more", personality="lossy_before")
    gone = stage.part(*LOST, personality="replaying")
    assert stage.act(bound).remote_job_id == f"job_of_{bound.operation_id[-8:]}"
    assert stage.act(again).state is State.CREATE_PENDING
    assert stage.act(gone).state is State.FAILED
    token = stage.ledger.show(again.operation_id).idempotency_token
    assert stage.play.accepted() == {again.operation_id, token}


def test_every_cancel_intent_counts_once(stage: Stagehand) -> None:
    """A cancel that was sent again by a person's decision is no fault; one wish recorded twice is still one wish."""
    answered = e.CancelAnswered(call_id="call_2", verdict="accepted", why="202")
    permit = e.CallSent("call_2", Action.CANCEL, "DELETE", "https://api.example.com/jobs/job_7", 1)
    part = stage.part(*RUNNING, personality="cancel_ignoring")
    assert stage.act(part).state is State.CANCEL_REQUESTED
    assert stage.play.intents() == {"job_7": 1}
    assert stage.act(part, permit, answered, late(Deadline.CANCEL)).state is State.CANCELLING  # watched
    assert stage.play.intents() == {"job_7": 1}
    assert stage.act(part, late(Deadline.CANCEL)).state is State.CANCEL_REQUESTED
    assert stage.play.intents() == {"job_7": 2}
    assert stage.act(part, late(Deadline.CANCEL)).state is State.RESOLVED


def test_a_wait_is_extended_and_then_given_up(stage: Stagehand) -> None:
    """The second time nobody waits any more: a cancel, which may still be told from the record."""
    part = stage.part(*RUNNING, personality="never_ending")
    assert stage.act(part, late(Deadline.RESULT)).state is State.OBSERVING
    assert stage.act(part, late(Deadline.RESULT)).state is State.CANCEL_REQUESTED
    assert stage.people.did == {"extend": 1, "cancel": 1}


def test_the_script_knows_every_personality(stage: Stagehand) -> None:
    """A name that nobody has would never be played, and a state without an answer would wait for ever."""
    names = {*PERSONALITIES, *(scene.name for scene in SCENES), ""}
    assert {name for name, _ in SCRIPT} <= names
    waits = {state for state in State if state.needs_human} - {State.AWAITING_APPROVAL}
    assert {state for name, state in SCRIPT if name == ""} == waits | {State.CREATE_UNKNOWN}


@pytest.mark.parametrize("columns", [80, 120])
def test_nothing_is_wider_than_the_terminal(stage: Stagehand, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A demonstration that wraps cannot be read."""
    monkeypatch.setenv("COLUMNS", str(columns))
    part = stage.part(*RUNNING, personality="cancel_ignoring", rows=3)
    stage.act(part)
    stage.play.look()
    screen = stage.play.screen
    screen.table([(State.RESULT_VALIDATION_FAILED, 12, "x" * 300)])
    screen.personalities([("cancel_ignoring/until_end", "does " * 40, "result_validation_failed", True)])
    screen.people([("resume a provider", 3), *((f"do {n}", 1) for n in range(40))])
    screen.verdict("counts " * 40, ["problem " * 40], ["note " * 40])
    assert "cancel_requested" in stage.out.getvalue()
    assert max(map(len, stage.out.getvalue().splitlines())) <= columns


def test_where_there_is_no_room_people_still_say_why(stage: Stagehand, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is decided without a visible reason looks arbitrary; what a worker does may be looked up."""
    monkeypatch.setenv("COLUMNS", "80")
    part = stage.part(*LOST, scene="sent once more", personality="lossy_before")
    stage.act(part)
    stage.play.look()
    assert "Decided: no such job is to be seen" in stage.out.getvalue()


def test_an_end_that_no_honest_client_has_is_marked(stage: Stagehand) -> None:
    """The reader must not have to know which state is the right one; scenes are not the provider's doing."""
    honest = stage.part(*RUNNING, personality="failing")
    wrong = stage.part(sent(), accepted("job_8"), observed(job="job_8"), personality="refusing")
    stage.part(scene="taken back", personality="ideal", rows=5000)
    stage.play.look()
    stage.play.parts[honest.operation_id].rested = State.FAILED
    stage.play.parts[wrong.operation_id].rested = State.SUCCEEDED
    told = [(name, came, fine) for name, _, came, fine in demo._endings(stage.play)]
    assert told == [("failing", "failed", True), ("refusing", "succeeded", False)]
    stage.play.screen.personalities(demo._endings(stage.play))
    assert "\n! refusing" in stage.out.getvalue()


@pytest.mark.parametrize(
    ("stream", "plain", "colours"), [(Terminal, "", True), (Terminal, "1", False), (io.StringIO, "", False)]
)
def test_colours_are_for_terminals(
    stream: type[io.StringIO], plain: str, colours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log with escape codes is hard to search; NO_COLOR is honoured."""
    monkeypatch.setenv("NO_COLOR", plain)
    out = stream()
    screen = Screen(out, SystemClock())
    screen.table([(State.SUCCEEDED, 3, "fetched")])
    screen.verdict("3 requests", [], [])
    assert ("\x1b[3" in out.getvalue()) is colours
    assert "succeeded" in out.getvalue()


def test_the_demonstration_runs_and_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a real provider and a real worker: the scenes, one job of the plan, and the provider's own log."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert demo.run(headless=True, count=1) == 0
    out = capsys.readouterr().out
    assert "6 of 6 ended" in out
    assert "check passed" in out
    assert "people did: approve ×2, bind, reject, resend, take back" in out
    assert "\x1b" not in out
