"""Tasks with a plan on the tasks screen: what their records say, what their files say, and a person's answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from opledger.errors import Refused, StoreUnavailable
from opledger.ledger import Ledger
from opledger.rules.tasks.records import Kind
from opledger.tasks import Task
from opledger.tasks.reading import read_records
from opledger_console.desk import Desk
from opledger_console.desk.plans import PlanBook, answer, sheet_of
from opledger_console.dialogs.answer import AnswerDialog
from opledger_console.dialogs.panel import TextPanel
from opledger_console.dialogs.parts import Alternatives, FieldInput
from opledger_console.pages import plans as words
from opledger_console.pages.plans import PlanLook
from opledger_console.screens.tasks import TasksScreen
from opledger_console.verdicts import TaskAnswer
from opledger_console.widgets.listing import Listing
from tests.console.hands import HOSTILE, assert_inert, console, running, sees, shown, until
from tests.console.planned import Scribe, example
from tests.core.ledgers import Home

BEGAN = datetime(2026, 11, 30, 3, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty ledger."""
    home = Home(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")
    with home.ledger():
        return home


@contextmanager
def desk_of(home: Home, operator: str = "ana", *, read_only: bool = False) -> Iterator[Desk]:
    """A desk without a console."""
    desk = Desk(home.settings(operator=operator), read_only=read_only, drive=False)
    try:
        yield desk
    finally:
        desk.close()


def looks(home: Home, folder: Path | None = None) -> dict[str, PlanLook]:
    """Every task with a plan, as the desk reads it."""
    with desk_of(home) as desk:
        return {look.view.task: look for look in PlanBook(desk, folder).read()}


def ask_plan(folder: Path, *, task: str = "monthly", question: str = "Publish it?") -> Path:
    """A plan of a command and a question, run as far as the question."""
    folder.mkdir(exist_ok=True)
    path = folder / "monthly.plan.toml"
    run = json.dumps([sys.executable, "-c", "print('done')"])
    path.write_text(
        f'task = "{task}"\ntitle = "Monthly report"\n[[step]]\nid = "make"\nrun = {run}\n'
        f'[[step]]\nid = "publish"\nask = {{ question = {json.dumps(question)}, answers = ["yes", "no"], '
        'stop_on = ["no"] }\n',
        encoding="utf-8",
    )
    return path


@pytest.fixture
def asked(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A real task in the folder of the console, which waits for an answer."""
    path = ask_plan(tmp_path / "work")
    with home.ledger() as ledger:
        need = Task(ledger, path, "agent-7").run()
        assert need is not None
    monkeypatch.chdir(path.parent)
    return path


def answers(home: Home, task: str = "monthly") -> list[tuple[str, str, str | None]]:
    """The answers on record: by whom, which, why."""
    with home.ledger() as ledger:
        return [
            (one.actor, str(one.outputs.get("answer")), one.reason)
            for one in read_records(ledger, task)
            if one.kind is Kind.ANSWER
        ]


async def on_question(pilot: Pilot[Any], task: str = "monthly", step: str = "publish") -> None:
    """Put the cursor on the question, once it is there."""
    listing = pilot.app.screen.query_one(Listing)
    await until(pilot, lambda: listing.go_to(words.step_key(task, step)), "have the question")
    await sees(pilot, "question of step publish")


async def filled(pilot: Pilot[Any], reason: str = "the numbers are right") -> AnswerDialog:
    """Open the dialog and type the reason."""
    await pilot.press("v")
    await until(pilot, lambda: isinstance(pilot.app.screen, AnswerDialog), "ask")
    dialog = pilot.app.screen
    assert isinstance(dialog, AnswerDialog)
    await until(pilot, lambda: not dialog.deaf)
    dialog.query_one("#reason", FieldInput).value = reason
    await pilot.pause()
    return dialog


# --- what is shown -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_a_task_is_told_with_its_steps_proofs_and_question(home: Home, size: tuple[int, int]) -> None:
    """All that a person needs who was not there."""
    with home.ledger() as ledger:
        example(Scribe(ledger, "reports", BEGAN))
    async with running(home, "tasks", size) as pilot:
        await sees(pilot, "reports", "4 of 6 steps", "? waits for somebody", "? asked", "1 plan, 1 waiting")
        steps = [row.cells[1] for row in pilot.app.screen.query_one(Listing).rows]
        assert steps == ["4 of 6 steps", "create", "convert", "tell", "review", "publish", "deliver"]
        await sees(pilot, "goal: The report of November", "Deliver the report?", "yes / no")
        await pilot.press("down", "down")
        await sees(
            pilot, "proof: file report.csv, holds csv, sha256 9f86d081884c7d65", "output: rows = 5", "by agent-7"
        )
        await pilot.press("up")
        await sees(pilot, "is succeeded", "output: location = results/r.json")
        assert_inert(shown(pilot))


async def test_a_runner_is_named_and_told_to_be_gone_when_its_lease_runs_out(home: Home) -> None:
    """Whether somebody works on it is the first thing that a person asks."""
    with home.ledger() as ledger:
        scribe = Scribe(ledger, "reports", BEGAN)
        example(scribe, upto=1)
        now = ledger.clock.now()
        claimed = ledger.store.tasks.claim("reports", scribe.run, "box/runner_1", "p", timedelta(hours=1), now=now)
    look = looks(home)["reports"]
    assert (look.view.state, look.view.runner, look.runs_until) == ("running", "box/runner_1", claimed.expires_at)
    assert words.state_of(look, now) == ("▸ running", "busy")
    assert "box/runner_1 until" in words.task_told(look, now).plain
    late = now + timedelta(hours=2)
    assert words.state_of(look, late) == ("! its runner is gone", "human")
    assert "the lease of box/runner_1 has run out" in words.task_told(look, late).plain
    with home.ledger() as ledger:
        ledger.store.tasks.release("reports", "box/runner_1", claimed.epoch)
    assert words.state_of(looks(home)["reports"], now) == ("‖ nobody runs it", "human")
    assert "nobody; go on with: opledger task resume PLAN" in words.task_told(looks(home)["reports"], now).plain


def test_the_book_reads_a_task_again_only_when_something_was_written(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look is taken several times a second; a lease and an answer are seen all the same."""
    with home.ledger() as ledger:
        scribe = Scribe(ledger, "reports", BEGAN)
        example(scribe)
    reads: list[str] = []
    real = read_records

    def counting(ledger: Ledger, task: str) -> Any:
        reads.append(task)
        return real(ledger, task)

    monkeypatch.setattr("opledger_console.desk.plans.read_records", counting)
    with desk_of(home) as desk:
        book = PlanBook(desk)
        assert [look.view.state for look in (*book.read(), *book.read())] == ["waiting_human"] * 2
        lease = timedelta(hours=1)
        taken = desk.ledger.store.tasks.claim("reports", scribe.run, "box/r", "p", lease, now=desk.now())
        assert [look.view.state for look in book.read()] == ["running"]
        desk.ledger.store.tasks.release("reports", "box/r", taken.epoch)
        assert [look.view.state for look in book.read()] == ["waiting_human"]
        assert reads == ["reports"]
        scribe.ledger = desk.ledger
        scribe.add(Kind.ANSWER, "publish", by="ana", outputs={"answer": "yes"}, reason="fine")
        (look,) = book.read()
        assert (look.view.questions, reads) == ((), ["reports"] * 2)
        assert "answered yes" in next(row.cells[7] for row in words.rows_of(look, {}, BEGAN) if "publish" in row.cells)


@pytest.mark.parametrize(
    ("facts", "task_words", "step_words", "told"),
    [
        ([("tell", Kind.INTENT, None)], "? waits for somebody", "‽ begun, outcome unknown", "task decide PLAN tell"),
        ([("tell", Kind.FAILED, "exit 3")], "? waits for somebody", "✗ failed", "reason: exit 3"),
        (
            [("tell", Kind.COMPLETED, None), ("review", Kind.INTENT, None)],
            "? waits for somebody",
            "▸ claimed",
            "task claim PLAN review",
        ),
        ([("tell", Kind.COMPLETED, None)], "? waits for somebody", "? waits for an agent", "task claim PLAN review"),
    ],
)
def test_each_wait_is_told_with_what_to_type(
    home: Home, facts: list[tuple[str, Kind, str | None]], task_words: str, step_words: str, told: str
) -> None:
    """A state without a way on is a riddle."""
    with home.ledger() as ledger:
        scribe = Scribe(ledger, "reports", BEGAN)
        example(scribe, upto=2)
        for step, kind, reason in facts:
            scribe.add(kind, step, reason=reason)
    look = looks(home)["reports"]
    assert look.view.waits_for is not None
    one = next(one for one in look.view.steps if one.id == look.view.waits_for[0])
    assert words.state_of(look, BEGAN)[0] == task_words
    assert words.step_words(look, one)[0] == step_words
    assert told in words.step_told(look, one, None, BEGAN).plain


def test_decisions_and_notes_are_told_with_reasons(home: Home) -> None:
    """Who decided what, and why."""
    with home.ledger() as ledger:
        scribe = Scribe(ledger, "reports", BEGAN)
        example(scribe, upto=2)
        scribe.add(Kind.DECISION, "tell", by="ben", proof={"decided": "skip"}, reason="they know already")
        scribe.add(Kind.NOTE, by="ana", reason="the mail server was down")
        proof = {"decided": "rebuild", "because": "is cut off in the middle of a line", "aside": None, "records": 5}
        scribe.add(Kind.DECISION, by="ana", proof=proof, reason="the disk was full")
    look = looks(home)["reports"]
    text = words.task_told(look, BEGAN).plain
    assert "decided: step tell: skip, by ben" in text
    assert "they know already" in text
    assert "note: note, by ana" in text
    assert "written anew from the ledger" in text
    assert "because it is cut off in the middle of a line" in text


async def test_an_operation_of_a_step_stands_in_its_row_and_enter_opens_it(home: Home) -> None:
    """The same thing must not stand there twice."""
    with home.ledger() as ledger:
        scribe = Scribe(ledger, "reports", BEGAN)
        scribe.began()
        scribe.add(Kind.INTENT, "create", proof={"token": "k"})
        made = ledger.submit("jobs", {"rows": 1}, requested_by="agent-7", task="reports", step="create")
        other = ledger.submit("jobs", {"rows": 2}, requested_by="agent-7", task="reports", step="besides")
    async with running(home, "tasks", (160, 40)) as pilot:
        await sees(pilot, "besides", "create_pending")
        keys = [row.key for row in pilot.app.screen.query_one(Listing).rows]
        assert keys[0] == words.task_key("reports")
        assert made.operation_id not in keys
        assert keys[-1] == other.operation_id
        assert len(keys) == 8
        await pilot.press("down", "enter")
        await sees(pilot, "Operation ", made.operation_id[-8:])


async def test_braces_go_over_tasks_with_and_without_a_plan(home: Home) -> None:
    """Each task is one stop, however many steps it has."""
    with home.ledger() as ledger:
        example(Scribe(ledger, "reports", BEGAN))
        made = ledger.submit("jobs", {"rows": 1}, requested_by="agent-7", task="bare", step="s")
    async with running(home, "tasks") as pilot:
        await sees(pilot, "reports", "bare")
        listing = pilot.app.screen.query_one(Listing)
        first = listing.rows[0].key
        await pilot.press("right_curly_bracket")
        assert {first, listing.key} == {words.task_key("reports"), made.operation_id}
        await pilot.press("left_curly_bracket")
        assert listing.key == first


async def test_records_that_cannot_be_read_spoil_no_other_task(home: Home) -> None:
    """One that was changed by hand is named, and the others are shown."""
    with home.ledger() as ledger:
        example(Scribe(ledger, "reports", BEGAN))
        scribe = Scribe(ledger, "torn", BEGAN)
        scribe.began()
        record = replace(read_records(ledger, "torn")[0], seq=2)
        ledger.store.tasks.append("torn", record, b'{"half', BEGAN)
    async with running(home, "tasks") as pilot:
        await sees(pilot, "! unreadable", "4 of 6 steps")
        pilot.app.screen.query_one(Listing).go_to(words.task_key("torn"))
        await sees(pilot, "it was changed by hand")


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (200, 60)])
async def test_hostile_text_in_records_is_shown_as_text(home: Home, size: tuple[int, int]) -> None:
    """A title, a proof, an output, a question and a reason come from agents, programs and providers."""
    bad = HOSTILE
    with home.ledger() as ledger:
        scribe = Scribe(ledger, "reports", BEGAN)
        scribe.began((("s1", bad, "run"), ("publish", bad, "ask")), title=bad, goal=bad)
        scribe.done("s1", {"file": bad, "sha256": bad}, {"command": [bad], "exit": bad}, {bad: bad}, outputs={bad: bad})
        scribe.asks("publish", bad, bad, "no")
        scribe.add(Kind.NOTE, by="ana", reason=bad)
    async with running(home, "tasks", size) as pilot:
        await sees(pilot, "reports")
        for _ in range(3):
            assert_inert(shown(pilot))
            await pilot.press("down")
            await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, TextPanel))
        assert_inert(shown(pilot))


async def test_while_the_database_is_away_the_last_picture_stands(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, nothing can be answered, and it comes back by itself."""
    with home.ledger() as ledger:
        example(Scribe(ledger, "reports", BEGAN))

    def away(*_: object) -> None:
        raise StoreUnavailable("no route")

    async with running(home, "tasks") as pilot:
        await on_question(pilot, "reports")
        with monkeypatch.context() as broken:
            broken.setattr(Desk, "overview", away)
            broken.setattr(PlanBook, "read", away)
            await pilot.press("r")
            await sees(pilot, "DATABASE AWAY", "? asked")
            await pilot.press("v")
            await sees(pilot, "the database is away")
        await until(pilot, lambda: "DATABASE AWAY" not in shown(pilot))


# --- the files -----------------------------------------------------------------------------------------------------


def test_a_plan_in_the_folder_is_looked_at(home: Home, asked: Path) -> None:
    """Whole, then cut: what the command would say stands there, with the plan's name in it."""
    look = looks(home)["monthly"]
    assert (look.plan, look.problem) == ("monthly.plan.toml", None)
    text = words.task_told(look, BEGAN).plain
    assert "progress file: whole" in text
    assert "v answers it here, or: opledger task answer monthly.plan.toml publish ANSWER" in text
    progress = asked.with_name("monthly.progress.jsonl")
    whole = progress.read_bytes()
    progress.write_bytes(whole[:-20])
    look = looks(home)["monthly"]
    assert words.state_of(look, BEGAN) == ("! needs a person", "human")
    assert "is cut off in the middle of a line" in words.task_told(look, BEGAN).plain
    assert progress.read_bytes() == whole[:-20], "a look changes nothing"


def test_a_broken_file_is_seen_by_a_book_that_is_open(home: Home, asked: Path) -> None:
    """Nobody writes to the ledger when a file breaks."""
    with desk_of(home) as desk:
        book = PlanBook(desk)
        assert [look.problem for look in book.read()] == [None]
        asked.with_name("monthly.progress.jsonl").unlink()
        assert "is missing" in str(book.read()[0].problem)
        asked.write_text("task = ")
        assert book.read()[0].problem is not None


def test_a_plan_elsewhere_is_not_looked_at(
    home: Home, asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is another plan of the same name: it is the place that its records carry that counts."""
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert looks(home)["monthly"].plan is None
    (tmp_path / "other" / asked.name).write_bytes(asked.read_bytes())
    look = looks(home)["monthly"]
    assert look.plan is None
    assert "it is not in the folder of this console" in words.task_told(look, BEGAN).plain


# --- an answer -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("asked")
async def test_a_question_is_answered_by_the_operator(home: Home) -> None:
    """One record, with the name and the reason; the file beside the plan has it too."""
    async with running(home, "tasks") as pilot:
        await on_question(pilot)
        dialog = await filled(pilot)
        await sees(pilot, "Publish it?", "this one ends the task", "Missing: an answer")
        dialog.confirm()
        assert pilot.app.screen is dialog, "nothing is chosen beforehand"
        dialog.query_one(Alternatives).chosen = 1
        await sees(pilot, "no second answer counts")
        dialog.confirm()
        await sees(pilot, "step publish is answered: yes")
        await until(pilot, lambda: "? asked" not in shown(pilot), "show it")
    assert answers(home) == [("ana", "yes", "the numbers are right")]
    assert '"answer":"yes"' in Path("monthly.progress.jsonl").read_text().replace(": ", ":")


@pytest.mark.usefixtures("asked")
async def test_keys_alone_answer_a_question(home: Home) -> None:
    """Tab goes to what is missing, the answer first; Enter never confirms in a field."""
    async with running(home, "tasks", (80, 24)) as pilot:
        await on_question(pilot)
        await filled(pilot, "")
        await pilot.press("tab", "right", "enter", *"fine", "enter")
        assert answers(home) == []
        await pilot.press("tab", "enter")
        await sees(pilot, "step publish is answered: yes")
    assert answers(home) == [("ana", "yes", "fine")]


@pytest.mark.usefixtures("asked")
async def test_leaving_the_dialog_answers_nothing(home: Home) -> None:
    """The safe button is the one that has the focus."""
    async with running(home, "tasks") as pilot:
        await on_question(pilot)
        dialog = await filled(pilot, "short")
        dialog.query_one(Alternatives).chosen = 2
        await sees(pilot, "This answer ends the task")
        await pilot.press("escape")
        await sees(pilot, "nothing was done")
    assert answers(home) == []


async def test_an_answer_that_came_first_closes_the_dialog_for_good(home: Home, asked: Path) -> None:
    """Two people look at one question; one answer counts, and the other is told while they type."""
    async with running(home, "tasks") as pilot:
        await on_question(pilot)
        dialog = await filled(pilot)
        dialog.query_one(Alternatives).chosen = 1
        with home.ledger() as ledger:
            Task(ledger, asked, "ben").answer("publish", "no", reason="not yet")
        await sees(pilot, "changed while you were reading")
        dialog.confirm()
        assert pilot.app.screen is dialog
    assert answers(home) == [("ben", "no", "not yet")]


async def test_where_it_cannot_be_answered_the_key_says_why(
    home: Home, asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No question, another folder, read-only, an agent: each has its words, and the command for elsewhere."""
    assert asked.exists()
    with console(home, "tasks") as app:
        async with app.run_test(size=(160, 30)) as pilot:
            await sees(pilot, "1 plan")
            pilot.app.screen.query_one(Listing).go_to(words.step_key("monthly", "make"))
            await pilot.press("v")
            await sees(pilot, "there is no open question here")
    with console(home, "tasks", read_only=True) as app:
        async with app.run_test(size=(160, 30)) as pilot:
            await on_question(pilot)
            await pilot.press("v")
            await sees(pilot, "this console is read-only")
    monkeypatch.chdir(tmp_path)
    async with running(home, "tasks", (160, 30)) as pilot:
        await on_question(pilot)
        await pilot.press("v")
        await sees(pilot, "its plan is not in the folder of this console; there: opledger task answer PLAN publish")
        assert isinstance(pilot.app.screen, TasksScreen)


def test_an_agent_a_reader_and_who_looked_at_another_question_are_refused(home: Home, asked: Path) -> None:
    """The rule is the core's; a hidden key is no protection."""
    at = looks(home)["monthly"].view.questions[0].asked_at
    given = TaskAnswer(str(asked), "monthly", "publish", at, "yes", "because")
    with desk_of(home, operator="agent-7") as desk, pytest.raises(Refused, match="only a person may"):
        answer(desk, given)
    with desk_of(home, read_only=True) as desk, pytest.raises(Refused, match="--read-only"):
        answer(desk, given)
    with desk_of(home) as desk:
        with pytest.raises(Refused, match="asked anew"):
            answer(desk, replace(given, asked_at=at - timedelta(seconds=1)))
        assert sheet_of(desk, asked, "publish", at).stops == ("no",)
        answer(desk, given)
        with pytest.raises(Refused, match="not open any more"):
            answer(desk, given)
    assert answers(home) == [("ana", "yes", "because")]


# --- the inbox -----------------------------------------------------------------------------------------------------


async def test_the_inbox_says_that_tasks_wait_and_where(home: Home) -> None:
    """An inbox that calls itself empty while a task asks for an answer would be believed."""
    with home.ledger() as ledger:
        scribe = Scribe(ledger, "reports", BEGAN)
        example(scribe)
        async with running(home, "inbox") as pilot:
            text = await sees(pilot, "No operation waits for a person; 1 task waits for somebody: 4 shows it.")
            assert "Nothing waits" not in text
            await pilot.press("4")
            await sees(pilot, "Deliver the report?")
            await pilot.press("1")
            scribe.add(Kind.ANSWER, "publish", by="ana", outputs={"answer": "no"}, reason="later")
            scribe.add(Kind.NOTE, proof={"ended": "stopped", "steps": {}}, reason="answered with no")
            await sees(pilot, "Nothing waits for a person.")
