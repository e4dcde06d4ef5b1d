from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy

from opledger.cli import program
from opledger.sim.contracts import DEFAULT_TOKEN, write_contracts
from tests.core.cli.conftest import Terminal
from tests.fakes.sim import SimThread

pytestmark = pytest.mark.processes


@pytest.fixture
def sim(terminal: Terminal) -> Iterator[SimThread]:
    """A provider on loopback, with its contracts in the terminal's folder."""
    with SimThread(seed=3) as running:
        write_contracts(terminal.root / "contracts", running.base_url, elsewhere=running.elsewhere)
        # Its deadlines are a demo's; here every step is a process that a busy machine may start slowly.
        contract = terminal.root / "contracts" / "sim.toml"
        calm = contract.read_text().partition("[deadlines]")[0]
        contract.write_text(calm + '[deadlines]\ncreate = "10m"\nresult = "20m"\ncancel = "10m"\ncollect = "10m"\n')
        terminal.environ["SIM_TOKEN"] = DEFAULT_TOKEN
        yield running


def test_an_operation_goes_from_submit_to_its_result(terminal: Terminal, sim: SimThread) -> None:
    """One whole story, each step a process of its own, as on a newcomer's first evening."""
    submitted = terminal.process("submit", "sim", "--body", '{"rows": 3}', "--by", "agent-7", "--json")
    assert (submitted.code, submitted.err) == (0, "")
    name = submitted.json["operation_id"]
    assert sim.log() == []
    worked = terminal.process("worker", "--until-idle", "--name", "w1", "--json")
    assert (worked.code, worked.json, worked.err) == (0, {"ok": True}, "")
    found = terminal("show", name, "--json").json
    assert found["state"] == "succeeded", terminal("events", name).out
    assert Path(found["result"]["location"].removeprefix("file://")).is_file()
    steps = [step["to"] for step in terminal("history", name, "--json").json]
    assert steps[0] == "create_pending"
    assert steps[-2:] == ["result_collecting", "succeeded"]
    assert sum(entry["kind"] == "create" for entry in sim.log()) == 1


def test_a_read_is_done_now_and_recorded(terminal: Terminal, sim: SimThread) -> None:
    """By the command itself, as no worker is there; and an outage is the provider's fault."""
    done = terminal.process("submit", "sim", "--body", '{"_seconds": 600}', "--id", "op_long", "--json")
    assert done.code == 0, done.err
    assert "never sent" in terminal.process("read", "op_long", "--json").error["message"]
    assert terminal.process("worker", "--once").code == 0
    before = terminal("show", "op_long", "--json").json
    assert before["remote_job_id"] is not None
    read = terminal.process("read", "op_long", "--json")
    assert (read.code, read.err) == (0, "")
    assert read.json["attempts"]["observe"] == before["attempts"]["observe"] + 1
    assert read.json["lease"] is None
    sim.__exit__(None, None, None)
    gone = terminal.process("read", "op_long", "--json")
    assert gone.code == 5
    assert gone.json["last_error"]
    assert json.loads(gone.err)["error"]["code"] == "provider_out_of_reach"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_worker_and_cancels_nothing(
    terminal: Terminal, sim: SimThread, number: signal.Signals
) -> None:
    """A deploy is no reason to cancel anybody's job."""
    done = terminal.process("submit", "sim", "--body", '{"_seconds": 600}', "--id", "op_long")
    assert done.code == 0, done.err
    worker = terminal.start("worker", "--name", "w1")
    assert sim.wait_for(1, kind="status", timeout=60) >= 1
    worker.send_signal(number)
    out, err = worker.communicate(timeout=60)
    assert (worker.returncode, out, err) == (0, "", "")
    assert not any(entry["kind"] == "cancel" for entry in sim.log())
    assert terminal("show", "op_long", "--json").json["lease"] is None


def test_waiting_can_be_interrupted(terminal: Terminal) -> None:
    """Ctrl-C ends the command without a traceback."""
    name = terminal.submit()
    waiting = terminal.start("--debug", "wait", name, OPLEDGER_LOG="debug", PYTHONUNBUFFERED="1")
    try:
        while waiting.poll() is None and not _holds(waiting.pid, "ledger.db"):
            threading.Event().wait(0.01)
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate(timeout=60)
    finally:
        waiting.kill()
        waiting.communicate()
    assert (waiting.returncode, out) == (130, "")
    assert "Traceback" not in err


def test_a_key_that_nobody_could_hear_is_heard_a_moment_later() -> None:
    """Inside SQLite's authorizer an exception is thrown away, and Ctrl-C with it."""
    interrupted = program._Interrupted()
    interrupted.watch()

    def _authorize() -> None:
        signal.raise_signal(signal.SIGINT)

    try:
        _authorize()
        assert interrupted.seen
        with pytest.raises(KeyboardInterrupt):
            threading.Event().wait(60)
    finally:
        interrupted.restore()
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


@pytest.mark.parametrize("step", ["do_rollback", "do_close"])
def test_a_key_pressed_while_a_connection_goes_back_prints_no_trace(
    step: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool logs whatever meets it there, a KeyboardInterrupt too, before it lets it through."""
    engine = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.NullPool)
    engine.raw_connection().close()  # the first connection is a story of its own
    done = getattr(engine.dialect, step)

    def press(connection: object) -> None:
        done(connection)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(engine.dialect, step, press)
    interrupted = program._Interrupted()
    interrupted.watch()
    try:
        with pytest.raises(KeyboardInterrupt):
            _read_and_wait(engine)
    finally:
        interrupted.restore()
    assert not caplog.records


def _read_and_wait(engine: sqlalchemy.Engine) -> None:
    engine.raw_connection().close()
    threading.Event().wait(60)


def _holds(pid: int, name: str) -> bool:
    """Tell whether a process has a file of this name open."""
    try:
        return any(name in str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def test_a_pipe_that_closes_early_is_no_error(terminal: Terminal) -> None:
    """`opledger list --json | true` prints nothing on standard error."""
    for _ in range(3):
        terminal.submit("--expect", "x" * 4000)
    running = terminal.start("events", terminal.submit("--expect", "x" * 4000), "--json")
    assert running.stdout is not None
    running.stdout.close()
    assert running.stderr is not None
    err = running.stderr.read()
    running.stderr.close()
    assert (running.wait(timeout=60), err) == (141, "")


def test_logs_are_json_lines_on_standard_error(terminal: Terminal) -> None:
    """A log collector reads them; standard output stays the command's own."""
    terminal.contract('name = "jobs"\nbase_url = "http://127.0.0.1:1"\n' + _calls())
    terminal.submit("--create-deadline", "1s")
    done = terminal.process("worker", "--until-idle", OPLEDGER_LOG="debug")
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in done.err.splitlines()]
    assert lines
    assert all({"event", "level", "at"} <= set(line) for line in lines)


def _calls() -> str:
    from tests.core.rules.operations import JOBS

    return JOBS.split("\n", 3)[3]


def test_the_simulator_runs_until_it_is_stopped(terminal: Terminal) -> None:
    """It says where it listens, in one document, and writes its contract files."""
    running = terminal.start("sim", "--json", "--contracts", str(terminal.root / "contracts"), PYTHONUNBUFFERED="1")
    try:
        assert running.stdout is not None
        told = json.loads(running.stdout.readline())
        with urllib.request.urlopen(told["base_url"] + "/_log", timeout=30) as answer:
            assert json.load(answer) == []
        assert terminal("contract", "check", "sim").code == 0
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=60) == 0
    finally:
        running.kill()
        running.communicate()


def test_help_imports_nothing_heavy() -> None:
    """`opledger --help` and `--version` must answer in a blink: the database alone takes ten times as long."""
    code = (
        "import sys, opledger.cli\n"
        "for words in (['--help'], ['--version'], ['submit', '--help'], ['nonsense']): opledger.cli.main(words)\n"
        "print('LOADED', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    assert "typer" in loaded
    heavy = {"aiohttp", "alembic", "apscheduler", "cel", "httpx", "platformdirs", "psycopg", "rich", "sqlalchemy"}
    assert loaded & (heavy | {"sqlmodel", "starlette", "structlog", "textual", "uvicorn", "asyncio"}) == set()
