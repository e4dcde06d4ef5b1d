from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opledger.config import UnknownContract
from opledger.errors import BodyConflict, Refused, UsageError
from opledger.ledger import WaitTimedOut
from opledger.rules import evidence as e
from opledger.rules.model import Means
from opledger.rules.tasks.ahead import Need
from opledger.rules.tasks.story import PlanChanged
from opledger.tasks import commands, doing
from opledger.tasks.keeper import Keeper
from opledger.tasks.reading import operation_of, read_records
from opledger.tasks.task import AlreadyDone
from tests.core.ledgers import RUNNING, happens, observed
from tests.core.tasks.conftest import PYTHON, Desk, ran
from tests.fakes.sim import SimThread

NOTICE = ("repeatable = false",)
REVIEW = '[[step]]\nid = "review"\nagent = "Write review.md"\ncheck = { file = "review.md", parses = "text" }\n'


def python(step: str, code: str, *more: str) -> str:
    """A step that runs a line of Python."""
    argv = json.dumps([PYTHON, "-c", code])
    return f'[[step]]\nid = "{step}"\nrun = {argv}\n' + "".join(f"{line}\n" for line in more)


def needs(need: Need | None) -> Need:
    """Somebody is needed."""
    assert need is not None
    return need


def proof(desk: Desk, kind: str) -> Any:
    """The proof of the last record of a kind."""
    return [one for one in read_records(desk.opened, "monthly") if one.kind == kind][-1].proof


class Died(BaseException):
    """Stands in for a kill: nothing of the product catches it."""


def die_after(patch: pytest.MonkeyPatch, times: int = 1) -> None:
    """Let the runner die right after a command has done its work."""
    real, left = commands.run, [times]

    def run(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        left[0] -= 1
        if left[0] == 0:
            raise Died
        return found

    patch.setattr(commands, "run", run)


# --- commands ----------------------------------------------------------------------------------------------------


def test_what_a_command_hands_on_reaches_later_steps(small: Desk) -> None:
    """The JSON object on its last line; its words are never read by a shell."""
    small.write(
        python("a", 'print(\'x\'); print(\'{"rows": 5, "name": "$(id); *"}\')'),
        f'[[step]]\nid = "b"\nrun = ["{PYTHON}", "trace.py", "{{step.a.name}}-{{step.a.rows}}"]\n',
    )
    assert small.task().run() is None
    assert (small.folder / "trace.txt").read_text() == "$(id); *-5\n"
    assert small.task().outcome("a") == {"rows": 5, "name": "$(id); *"}
    assert small.task().outcome("b") is not None


def test_the_key_of_a_step_is_the_same_everywhere_and_in_the_record(small: Desk) -> None:
    """A receiver can tell a second notice from the first by it."""
    small.write(ran("tell", *NOTICE))
    assert small.task().run() is None
    assert small.task().outcome("tell") == {"rows": 1, "key": proof(small, "intent")["token"]}
    small.write(ran("tell", *NOTICE), task="other")
    assert doing.token_of(small.task().plan, small.task().plan.steps[0]) != proof(small, "intent")["token"]


def test_secrets_never_reach_a_record(small: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a command prints, hands on or complains about is masked before it is kept."""
    monkeypatch.setenv("PAYMENTS_API_KEY", "sk-canary-17Zq9")
    say = "import os, sys; k = os.environ['PAYMENTS_API_KEY']; print(k, file=sys.stderr); print('{\"k\": \"%s\"}' % k)"
    small.write(python("a", say + "  # not sk-canary-17Zq9"), python("b", say + "; sys.exit(k)"))
    assert needs(small.task().run()).step == "b"
    assert proof(small, "failed")["exit"] == 1
    for data in (small.progress.read_bytes(), b"".join(small.opened.store.tasks.lines("monthly"))):
        assert b"canary" not in data
        assert data.count(b"***") >= 3


def test_what_has_a_secret_in_it_is_handed_on_to_nobody(small: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the secret nor stars in its place: a program would take them for the value, and send them."""
    monkeypatch.setenv("PAYMENTS_API_KEY", "sk-canary-17Zq9")
    url = "https://x.test/y?X-Amz-Signature=abcdef"
    say = "import json, os; k = os.environ['PAYMENTS_API_KEY']; print(json.dumps({'rows': 5, 'at': [k], 'url': '%s'}))"
    small.write(
        python("a", say % url),
        ran("rows-{step.a.rows}").replace('id = "rows-{step.a.rows}"', 'id = "b"'),
        ran("c", 'inputs = ["{step.a.url}"]'),
    )
    assert "handed on no 'url'" in needs(small.task().run()).what
    assert small.trace() == ["rows-5"]
    assert small.task().outcome("a") == {"rows": 5}
    small.task().decide("c", "done", reason="seen", outputs={"pair": (1, ["x"]), "deep": {"k": ["sk-canary-17Zq9"]}})
    assert small.task().outcome("c") == {"pair": [1, ["x"]]}
    assert next(one for one in small.task().status().view.steps if one.id == "a").proof["withheld"] == ["at", "url"]


def test_who_looks_at_a_failed_step_is_told_who_must_act(small: Desk) -> None:
    """The status says what the run said."""
    small.write(python("a", "import sys; sys.exit('no paper')"))
    assert small.task().run() == (shown := small.task().status()).need
    assert shown.view.state == "waiting_human"
    assert "no paper" in needs(shown.need).what
    assert "mend it and run again" in needs(shown.need).how


def test_outputs_are_cut(small: Desk) -> None:
    """A command that prints for ever fills neither memory nor the record, and does not block."""
    small.write(
        python("a", "import sys; [sys.stdout.write('x' * 1000 + '\\n') for _ in range(20000)]; print('{\"n\": 1}')")
    )
    assert small.task().run() is None
    assert small.task().outcome("a") == {"n": 1}
    assert small.progress.stat().st_size < 20_000


def test_a_command_that_takes_too_long_is_ended_with_all_it_started(small: Desk) -> None:
    """Its children too: they would hold files, and go on."""
    code = (
        "import subprocess, sys, time; "
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
        "open('pids', 'w').write(str(p.pid)); time.sleep(600)"
    )
    small.write(python("a", code, 'timeout = "3s"'))
    assert "took longer than 3 seconds" in needs(small.task().run()).what
    pid = int((small.folder / "pids").read_text())
    ended = threading.Event()
    for _ in range(600):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            break
        if state == "Z":
            break
        ended.wait(0.1)
    else:
        raise AssertionError("the grandchild runs on")


def test_a_program_that_is_not_there(small: Desk) -> None:
    """It is told by its name, and the step can be mended and done."""
    small.write('[[step]]\nid = "a"\nrun = ["no-such-program"]\n')
    assert "no-such-program cannot be started" in needs(small.task().run()).what
    small.write(ran("a"))
    assert small.task().run() is None


def test_an_input_must_be_there(small: Desk) -> None:
    """Nothing comes from a conversation: what a step needs is a file or an earlier step's."""
    small.write(ran("a", 'inputs = ["in.txt"]'), '[[step]]\nid = "b"\nrun = ["true", "{step.a.nothing}"]\n')
    assert "its input in.txt is not there" in needs(small.task().run()).what
    (small.folder / "in.txt").touch()
    assert "handed on no 'nothing'" in needs(small.task().run()).what
    assert small.trace() == ["a"]


# --- what is half-made -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", ['check = { file = "{step.a.name}" }', 'inputs = ["{step.a.name}"]'])
def test_a_name_that_no_file_can_have_is_not_there(small: Desk, more: str) -> None:
    """An earlier step may hand on anything; the person who must mend it is told which file it was."""
    small.write(python("a", "print('{\"name\": \"' + 'x' * 300 + '\"}')"), ran("b", more))
    assert f"{'x' * 300} is not there" in needs(small.task().run()).what
    assert f"{'x' * 300} is not there" in needs(small.task().run()).what


@pytest.mark.parametrize("before", [None, "a,b\n0,0\n"])
def test_a_repeated_command_begins_with_the_files_of_the_first_time(
    small: Desk, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    """A command that appends does not append twice; what was half-made is kept aside."""
    if before is not None:
        (small.folder / "out.csv").write_text(before)
    small.write(ran("a", output="out.csv"))
    with monkeypatch.context() as patch:
        die_after(patch)
        with pytest.raises(Died):
            small.task().run()
    with (small.folder / "out.csv").open("a") as file:
        file.write("half a li")
    assert small.task().run() is None
    assert (small.folder / "out.csv").read_text() == (before or "") + "a,b\n1,2\n"
    assert small.trace() == ["a", "a"]
    (aside,) = (small.folder / "monthly.runs").glob("run_*/a.files/half-made-*")
    assert aside.read_text().endswith("half a li")


def test_an_earlier_steps_file_is_nobodys_output(small: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that changes what an earlier one made does not lose it by being repeated."""
    small.write(ran("a", output="out.csv"), ran("b", output="out.csv"))
    with monkeypatch.context() as patch:
        die_after(patch, 2)
        with pytest.raises(Died):
            small.task().run()
    assert (small.folder / "out.csv").exists()


def test_a_proof_that_does_not_hold_any_more_is_made_again(desk: Desk) -> None:
    """Resuming trusts no record: the file is gone, so the step before is done again, and no other."""
    desk.write(ran("a"), ran("b", output="out.csv"), REVIEW)
    needs(desk.task().run())
    (desk.folder / "out.csv").write_text("a,b\nsomebody,else\n")
    assert needs(desk.task().run()).step == "review"
    assert desk.trace() == ["a", "b", "b"]
    assert (desk.folder / "out.csv").read_text() == "a,b\n1,2\n"
    assert ("b", "verified") not in desk.kinds()
    needs(desk.task().run())
    assert desk.kinds()[-1] == ("b", "verified")


# --- what cannot be looked up ------------------------------------------------------------------------------------


def test_a_notice_is_never_sent_twice(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Intent without completion: a person is asked, again and again, and nothing is sent."""
    desk.write(ran("tell", *NOTICE), ran("after"))
    with monkeypatch.context() as patch:
        die_after(patch)
        with pytest.raises(Died):
            desk.task().run()
    for _ in range(3):
        need = needs(desk.task().run())
        assert (need.step, need.who) == ("tell", "a person")
        assert "nobody knows whether it happened" in need.what and "idem_" in need.what
    assert desk.trace() == ["tell"]
    with pytest.raises(Refused, match="agent-7 is an agent"):
        desk.task("agent-7").decide("tell", "done", reason="I sent it")
    desk.task().decide("tell", "done", reason="the receiver has it", outputs={"seen": "yes"})
    assert desk.task().run() is None
    assert desk.trace() == ["tell", "after"]
    assert desk.task().outcome("tell") == {"seen": "yes"}


def test_a_person_may_have_it_repeated_or_skipped(small: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no program may decide."""
    small.write(ran("tell", *NOTICE), ran("more", *NOTICE))
    with monkeypatch.context() as patch:
        die_after(patch)
        with pytest.raises(Died):
            small.task().run()
    small.task().decide("tell", "repeat", reason="the receiver has nothing")
    with monkeypatch.context() as patch:
        die_after(patch, 2)
        with pytest.raises(Died):
            small.task().run()
    small.task().decide("more", "skip", reason="nobody needs it")
    assert small.task().run() is None
    assert small.trace() == ["tell", "tell", "more"]


def test_a_receiver_that_can_be_asked_is_asked(small: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of the step finds that it happened: it is completed, and not repeated."""
    small.write(ran("tell", *NOTICE, 'check = { file = "trace.txt", parses = "text" }'))
    with monkeypatch.context() as patch:
        die_after(patch)
        with pytest.raises(Died):
            small.task().run()
    assert small.task().run() is None
    assert small.trace() == ["tell"]
    assert proof(small, "completed")["found"] is True


def test_a_notice_that_failed_is_not_tried_again(small: Desk) -> None:
    """It may have reached the receiver before it failed."""
    small.write(python("tell", "open('trace.txt', 'a').write('tell '); raise SystemExit('no answer')", *NOTICE))
    for _ in range(2):
        assert "no answer" in needs(small.task().run()).what
    assert small.trace() == ["tell"]


# --- operations --------------------------------------------------------------------------------------------------

CREATE = '[[step]]\nid = "create"\nsubmit = { contract = "jobs", body = { rows = 5 } }\n'


def test_an_operation_is_submitted_once_and_its_end_is_the_proof(desk: Desk) -> None:
    """However often the task is run; who runs it is who asks for it."""
    desk.write(CREATE, ran("after"))
    for _ in range(3):
        with pytest.raises(WaitTimedOut):
            desk.task("agent-7").run(0)
    assert desk.kinds() == [(None, "note"), ("create", "intent")]
    op = operation_of(desk.opened, "monthly", "create")
    assert op is not None and op.requested_by == "agent-7"
    happens(desk.opened, op, *RUNNING, observed("failed", Means.FAILED))
    need = needs(desk.task().run())
    assert (need.step, need.who) == ("create", "a person") and "is failed" in need.what
    with pytest.raises(Refused, match="one operation, which stands"):
        desk.task().decide("create", "repeat", reason="again")
    needs(desk.task().run())
    assert desk.kinds().count(("create", "failed")) == 1
    desk.task().decide("create", "skip", reason="done by hand")
    assert desk.task().run() is None


def test_a_reworded_operation_is_refused_and_shown(small: Desk) -> None:
    """Another body under the step that has one already: by the plan, and by the ledger where the plan is silent."""
    small.write(CREATE)
    with pytest.raises(WaitTimedOut):
        small.task().run(0)
    small.write(CREATE.replace("5", "6"))
    with pytest.raises(PlanChanged, match=r'step create \(begun at .*"rows":5.* and now says .*"rows":6'):
        small.task().run(0)
    small.progress.unlink()
    small.write(CREATE.replace('"create"', '"again"'), task="weekly")
    small.opened.submit("jobs", {"rows": 7}, task="weekly", step="again")
    with pytest.raises(BodyConflict, match="another"):
        small.task().run(0)


def test_an_operation_that_was_never_made_may_be_mended(small: Desk) -> None:
    """The ledger refused it (here: no such contract), so nothing is out there, and the plan may say it better."""
    small.write(CREATE.replace('"jobs"', '"jbos"'))
    for _ in range(2):
        with pytest.raises(UnknownContract, match="jbos"):
            small.task().run(0)
    assert small.kinds()[-1] == ("create", "failed")
    small.write(CREATE)
    with pytest.raises(WaitTimedOut):
        small.task().run(0)
    assert small.kinds()[-1] == ("create", "intent")
    small.write(CREATE.replace("5", "6"))
    with pytest.raises(PlanChanged, match="step create"):
        small.task().run(0)


def test_an_operation_that_waits_for_a_person_says_who(small: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An approver, an operator, or somebody who starts a worker."""
    small.write(CREATE)
    monkeypatch.setattr(doing, "NO_WORKER", 0.0)
    need = needs(small.task().run())
    assert (need.who, need.how) == ("an operator", "start one: opledger worker")
    op = operation_of(small.opened, "monthly", "create")
    assert op is not None
    happens(small.opened, op, *RUNNING, e.UnfamiliarJobId(why="another id", jobs=("job_7", "job_8")))
    need = needs(small.task().run())
    assert need.who == "an operator" and op.operation_id in need.how and "contract_violation" in need.what
    assert small.task().status().view.state == "waiting_human"


# --- an agent's own program --------------------------------------------------------------------------------------


def test_an_agents_program_uses_the_same_protocol(desk: Desk) -> None:
    """Intent before the block, checks after it, completion last; asked again, it is told what was recorded."""
    desk.write(ran("one"), REVIEW, f'[[step]]\nid = "use"\nrun = ["{PYTHON}", "trace.py", "{{step.review.words}}"]\n')
    task = desk.task("agent-7")
    with pytest.raises(Refused, match="step review is not next; next is step one"), task.step("review"):
        raise AssertionError("the block must not run")
    needs(task.run())
    with task.step("review") as step:
        assert desk.kinds()[-1] == ("review", "intent")
        assert step.outputs["one"]["rows"] == 1 and step.token.startswith("idem_")
        (desk.folder / "review.md").write_text("fine\n")
        step.hand_on(words=812)
    assert desk.kinds()[-1] == ("review", "completed")
    with pytest.raises(AlreadyDone) as done, task.step("review"):
        raise AssertionError("the block must not run")
    assert done.value.outputs == {"words": 812}
    assert task.done("review") == {"words": 812}
    assert desk.task("agent-8").run() is None
    assert desk.trace() == ["one", "812"]


def test_work_that_is_not_proved_does_not_count(small: Desk) -> None:
    """No file, no completion; an exception is a failure that may be tried again."""
    small.write(REVIEW)
    task = small.task("agent-7")
    with (
        pytest.raises(Refused, match=r"is not done: the file review\.md is not there"),
        task.step("review"),
    ):
        pass
    with pytest.raises(ZeroDivisionError), task.step("review"):
        raise ZeroDivisionError("by zero")
    assert small.kinds()[-1] == ("review", "failed")
    with pytest.raises(Refused, match="is not done"):
        task.done("review")
    (small.folder / "review.md").write_text("fine\n")
    task.claim("review")
    with pytest.raises(Refused, match="was claimed by agent-7"):
        small.task("agent-8").claim("review")
    with pytest.raises(Refused, match="was claimed by agent-7"):
        small.task("agent-8").done("review")
    assert small.task("agent-8").claim("review", take_over=True).claimed_by == "agent-8"
    assert small.task("agent-8").done("review", {"n": 1}) == {"n": 1}
    assert small.task().run() is None


def test_an_agents_work_that_may_not_be_repeated(small: Desk) -> None:
    """Its intent stands when the program dies in the middle, and only a person goes on."""
    small.write(REVIEW + "repeatable = false\n")
    task = small.task("agent-7")
    with pytest.raises(ZeroDivisionError), task.step("review"):
        raise ZeroDivisionError
    with pytest.raises(Refused, match="nobody knows whether it happened"), task.step("review"):
        raise AssertionError("the block must not run")
    small.task().decide("review", "skip", reason="not needed")
    assert small.task().run() is None


def test_what_cannot_be_said_is_a_usage_error(small: Desk) -> None:
    """Unknown steps, unknown decisions, missing reasons, a missing plan."""
    small.write(REVIEW)
    task = small.task()
    for wrong in (
        lambda: task.claim("nothing"),
        lambda: task.decide("review", "maybe", reason="x"),
        lambda: task.decide("review", "rebuild", reason="x"),
        lambda: task.decide(None, "skip", reason="x"),
        lambda: task.answer("review", "yes", reason=" "),
        lambda: small.task(plan=small.folder / "other.plan.toml"),
    ):
        with pytest.raises(UsageError):
            wrong()
    with pytest.raises(Refused, match="has not begun"):
        task.resume()


# --- reads at a provider -----------------------------------------------------------------------------------------


@pytest.mark.processes
def test_a_read_through_a_contract_is_a_proof(small: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the contract's address and credentials; what it does not say yet is not done."""
    with SimThread() as sim:
        monkeypatch.setenv("SIM_TOKEN", sim.token)
        small.contract(sim.contract(), "sim")
        check = 'check = { http = { contract = "sim", path = "/v1/jobs", when = "size(body.data) > 0" } }'
        small.write(ran("a", check))
        need = needs(small.task().run())
        assert "sim answered 200 to /v1/jobs, and 'size(body.data) > 0' does not hold" in need.what
        small.write(ran("a", check.replace("> 0", ">= 0")))
        assert small.task().run() is None
        (one,) = proof(small, "completed")["checks"]
        assert (one["http"], one["status"]) == ("sim", 200)
        assert sim.token not in small.progress.read_text()


# --- what a killed runner leaves running -------------------------------------------------------------------------


@pytest.mark.processes
def test_a_command_that_outlives_its_runner_is_waited_for(small: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not started beside itself: the next runner waits until it has ended."""
    code = (
        "import os, time\n"
        "def say(word): open('said.txt', 'a').write(word + ' ')\n"
        "say('begin' if not os.path.exists('here') else 'BESIDE')\n"
        "open('here', 'w').close()\n"
        "while not os.path.exists('go'): time.sleep(0.05)\n"
        "os.remove('here')\n"
        "say('end')\n"
    )
    (small.folder / "slow.py").write_text(code)
    small.write(f'[[step]]\nid = "slow"\nrun = ["{PYTHON}", "slow.py"]\ntimeout = "60s"\n')
    said = small.folder / "said.txt"
    runner = subprocess.Popen(
        [PYTHON, "-m", "opledger.cli", "--db", small.url, "task", "run", str(small.plan)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OPLEDGER_OPERATOR": "ana"},
    )
    until(lambda: said.exists() and said.read_text() == "begin ")
    runner.kill()
    runner.wait()
    waits, pause = threading.Event(), Keeper.pause

    def paused(self: Keeper, seconds: float) -> None:
        waits.set()
        pause(self, seconds)

    monkeypatch.setattr(Keeper, "pause", paused)
    ended: list[Need | None] = []
    other = threading.Thread(target=lambda: ended.append(small.task().run()))
    other.start()
    until(lambda: waits.is_set() or "BESIDE" in said.read_text())
    assert said.read_text() == "begin "
    (small.folder / "go").touch()
    other.join(60)
    assert ended == [None]
    assert said.read_text() == "begin end begin end "


def until(fact: Callable[[], bool]) -> None:
    """Wait for a fact."""
    pause = threading.Event()
    for _ in range(1_200):
        if fact():
            return
        pause.wait(0.05)
    raise AssertionError("it did not come about")
