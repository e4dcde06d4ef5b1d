from __future__ import annotations

import json
import sys

import pytest

from opledger.ledger import Ledger
from opledger.rules.tasks.story import Verdict
from opledger.tasks.reading import read_task
from tests.core.cli.conftest import Terminal

PLAN = f"""
task = "monthly"
title = "Monthly reports"
goal = "One report"

[[step]]
id = "make"
run = ["{sys.executable}", "-c", "print('{{\\"rows\\": 5}}')"]

[[step]]
id = "review"
agent = "Look at the {{step.make.rows}} rows and write review.md"
check = {{ file = "review.md", parses = "text" }}

[[step]]
id = "publish"
ask = {{ question = "Publish?", answers = ["yes", "no"], stop_on = ["no"] }}
"""


@pytest.fixture
def plan(terminal: Terminal) -> str:
    """The plan's name, in the terminal's folder."""
    (terminal.root / "monthly.plan.toml").write_text(PLAN)
    return "monthly.plan.toml"


def test_a_task_from_its_beginning_to_its_end(terminal: Terminal, plan: str) -> None:
    """Run, claim, done, resume, answer, resume: the JSON and the exit codes that other programs know."""
    before = terminal("task", "status", plan, "--json")
    assert (before.code, before.json["run"], before.json["state"]) == (0, None, "stopped")
    assert [one["state"] for one in before.json["steps"]] == ["open", "open", "open"]

    run = terminal("task", "run", plan, "--json")
    assert run.code == 7
    assert set(run.json) >= {"task", "run", "state", "steps", "questions", "decisions"}
    assert (run.json["task"], run.json["state"]) == ("monthly", "waiting_human")
    assert run.json["run"].startswith("run_")
    needed = json.loads(run.err)["error"]
    assert (needed["code"], needed["who"], needed["step"]) == ("human_needed", "an agent", "review")
    assert "Look at the 5 rows" in needed["what"]
    assert run.json["needs"]["how"] == "claim it: opledger task claim monthly.plan.toml review"

    claimed = terminal("task", "claim", plan, "review", "--json", by="agent-7")
    assert claimed.json["work"] == "Look at the 5 rows and write review.md"
    assert claimed.json["outputs"] == {"make": {"rows": 5}}
    assert terminal("task", "status", plan, "--json").json["steps"][1]["state"] == "intent"
    early = terminal("task", "done", plan, "review", "--json", by="agent-7")
    assert (early.code, early.error["code"]) == (3, "refused")
    (terminal.root / "review.md").write_text("fine\n")
    done = terminal("task", "done", plan, "review", "--output", "words=1", "--json", by="agent-7")
    assert done.json["steps"][1]["state"] == "done"
    assert done.json["steps"][1]["proof"]["checks"][0]["file"] == "review.md"
    again = terminal("task", "claim", plan, "review", "--json", by="agent-8")
    assert again.json == {"task": "monthly", "step": "review", "settled": True, "outputs": {"words": "1"}}

    asked = terminal("task", "resume", plan, "--json")
    assert asked.code == 7
    (question,) = asked.json["questions"]
    assert (question["step"], question["question"], question["answers"]) == ("publish", "Publish?", ["yes", "no"])
    assert asked.json["steps"][2]["state"] == "waiting"
    for who, code in (("agent-7", 3), ("ana", 0), ("bo", 3)):
        answered = terminal("task", "answer", plan, "publish", "yes", "--reason", "it is fine", "--json", by=who)
        assert answered.code == code
    ended = terminal("task", "resume", plan, "--json")
    assert (ended.code, ended.json["state"], ended.err) == (0, "done", "")
    assert [one["decided"] for one in ended.json["decisions"]] == ["yes"]
    assert ended.json["questions"] == []
    assert (terminal.root / "monthly.runs" / ended.json["run"] / "summary.md").exists()
    assert terminal("task", "run", plan, "--json").json["state"] == "done"


def test_people_get_sentences(terminal: Terminal, plan: str) -> None:
    """A table of the steps, and who must act next."""
    shown = terminal("task", "run", plan)
    assert shown.code == 7
    assert "monthly is waiting for somebody" in shown.out and "make" in shown.out
    assert "step review needs an agent: Look at the 5 rows" in shown.err
    assert "has step review" in terminal("task", "claim", plan, "review", by="agent-7").out
    terminal("task", "note", plan, "seen\x1b[31m")
    assert "Note by ana: seen" in terminal("task", "status", plan).out
    assert "\x1b" not in terminal("task", "status", plan).out


def test_an_answer_may_stop_a_task(terminal: Terminal, plan: str) -> None:
    """It has ended, though not as hoped: exit 0, and the state says so."""
    terminal("task", "run", plan)
    assert terminal("task", "decide", plan, "review", "--as", "skip", "--reason", "no need", by="agent-7").code == 3
    assert terminal("task", "decide", plan, "review", "--as", "skip", "--reason", "no need").code == 0
    terminal("task", "run", plan)
    terminal("task", "answer", plan, "publish", "no", "--reason", "wrong month")
    stopped = terminal("task", "resume", plan, "--json")
    assert (stopped.code, stopped.json["state"]) == (0, "stopped")


def test_a_broken_progress_file_needs_a_person(terminal: Terminal, plan: str) -> None:
    """Exit 7, with what is wrong; status shows it; only a decision of a person goes on."""
    terminal("task", "run", plan)
    (terminal.root / "monthly.progress.jsonl").write_text("")
    for command in ("run", "resume"):
        broken = terminal("task", command, plan, "--json")
        assert (broken.code, broken.json["state"]) == (7, "stopped")
        assert json.loads(broken.err)["error"]["code"] == "progress_broken"
    assert "is missing" in terminal("task", "status", plan, "--json").json["problem"]
    assert terminal("task", "decide", plan, "--as", "rebuild", "--reason", "r", by="agent-1").code == 3
    assert terminal("task", "decide", plan, "--as", "rebuild", "--reason", "it was cut").code == 0
    assert terminal("task", "run", plan, "--json").code == 7
    assert terminal("task", "status", plan, "--json").json["problem"] is None


def test_what_is_wrong_has_its_exit_code(terminal: Terminal, plan: str) -> None:
    """2 for what cannot be read, 3 for what a rule refuses."""
    assert terminal("task", "run", "missing.plan.toml").code == 2
    assert terminal("task", "claim", plan, "nothing").code == 2
    assert terminal("task", "decide", plan, "make", "--as", "perhaps", "--reason", "r").code == 2
    assert terminal("task", "run", plan, "--timeout", "soon").code == 2
    assert terminal("task", "resume", plan).code == 3
    (terminal.root / plan).write_text(PLAN + "retry = 3\n")
    wrong = terminal("task", "run", plan, "--json")
    assert (wrong.code, wrong.error["code"]) == (3, "plan_invalid")
    assert "line 18" in wrong.error["message"] and "step[2].retry" in wrong.error["message"]


def test_what_to_type_can_be_typed(terminal: Terminal) -> None:
    """The plan's name is quoted as a shell needs it, and only our own commands are filled in."""
    name = "a b; echo c.plan.toml"
    question = PLAN.replace("Publish?", "Is this the PLAN?").replace('agent = "Look', 'agent = "The PLAN: look')
    (terminal.root / name).write_text(question)
    run = terminal("task", "run", name, "--json")
    assert run.json["needs"]["how"] == f"claim it: opledger task claim '{name}' review"
    assert run.json["needs"]["what"].startswith("The PLAN: look")
    claimed = terminal("task", "claim", name, "review", by="agent-7")
    assert f"opledger task done '{name}' review" in claimed.out
    slip = terminal("task", "done", name, "review", "--output", "rows", by="agent-7")
    assert (slip.code, slip.err.split(":")[0]) == (2, "--output rows")


def test_waiting_for_an_operation_runs_out(terminal: Terminal, ledger: Ledger) -> None:
    """Exit 6, nothing is lost, and the operation is there for the worker."""
    (terminal.root / "op.plan.toml").write_text(
        'task = "op"\n[[step]]\nid = "create"\nsubmit = { contract = "jobs", body = { rows = 5 } }\n'
    )
    late = terminal("task", "run", "op.plan.toml", "--timeout", "0s", "--json", by="agent-7")
    assert (late.code, late.error["code"]) == (6, "timeout")
    view = read_task(ledger, "op")
    assert view is not None and view.steps[0].state == "intent"
    assert [op.step for op in ledger.list(limit=10)] == ["create"]


@pytest.mark.processes
def test_two_commands_at_once(terminal: Terminal) -> None:
    """Two processes run one plan; each step happens once."""
    line = "open('trace.txt', 'a').write('x')"
    steps = "".join(f'[[step]]\nid = "s{number}"\nrun = ["{sys.executable}", "-c", "{line}"]\n' for number in range(4))
    (terminal.root / "both.plan.toml").write_text(f'task = "both"\n{steps}')
    running = [terminal.start("task", "run", "both.plan.toml", "--json") for _ in range(2)]
    codes = []
    for one in running:
        out, err = one.communicate(timeout=120)
        codes.append(one.returncode)
        assert one.returncode == 0 or "already_run" in err, (out, err)
    assert 0 in codes
    assert terminal("task", "status", "both.plan.toml", "--json").json["state"] == "done"
    assert (terminal.root / "trace.txt").read_text() == "xxxx"


def test_the_example_can_be_had(terminal: Terminal) -> None:
    """Into a new folder; what is there and different is not overwritten."""
    first = terminal("task", "example", "try", "--json")
    assert sorted(first.json["files"]) == ["try/convert.py", "try/monthly.plan.toml", "try/notify.py"]
    assert terminal("task", "example", "try").code == 0
    (terminal.root / "try" / "notify.py").write_text("mine")
    assert terminal("task", "example", "try").code == 2
    assert terminal("task", "status", "try/monthly.plan.toml", "--json").code == 0
    assert {str(one) for one in Verdict} == {"repeat", "done", "skip", "rebuild"}
