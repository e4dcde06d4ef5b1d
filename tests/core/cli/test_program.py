from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest

from opledger.cli import main, program
from opledger.errors import ProviderBroke
from tests.core.cli.conftest import Terminal
from tests.core.ledgers import accepted, happens, observed, sent
from tests.core.rules.operations import JOBS

OPERATION = '{"rows": 5}'


def test_flags_may_stand_before_and_after_the_command(terminal: Terminal, tmp_path: Any) -> None:
    """Programs put them first, people last; both must mean the same."""
    name = terminal.submit()
    after, before = terminal("show", name, "--json"), terminal("--json", "show", name)
    assert after.json == before.json
    elsewhere = f"sqlite:///{tmp_path}/other.db"
    assert terminal("--db", elsewhere, "list", "--json").json == []
    assert terminal("list", "--json", "--db", elsewhere).json == []
    assert terminal("--db", elsewhere, "list", "--json", "--db", terminal.url).json != []


def test_the_version_is_told(terminal: Terminal) -> None:
    """Bug reports begin with it."""
    assert terminal("--version").out == "opledger 0.1.0\n"
    assert terminal("--version", "--json").json == {"version": "0.1.0"}


def test_without_a_command_there_is_help_and_a_usage_error(terminal: Terminal) -> None:
    """A script whose command is empty must not look as if it had worked."""
    done = terminal()
    assert (done.code, done.out) == (2, "")
    assert "submit" in done.err
    assert terminal("--json").error["code"] == "usage"


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["-h", "show"],
        ["--json", "--help", "show"],
        ["--db", "show", "--help"],
        ["--db=show", "-h", "list"],
        ["--version", "show", "op_x"],
        ["--db", "show"],
        ["shw", "op_x"],
        ["--wrong", "show"],
        ["--", "show", "--help"],
        ["--db", "sqlite:///:memory:", "audit", "--help"],
        ["--debug", "show", "--help"],
        ["show", "list"],
        ["list", "show"],
    ],
    ids=" ".join,
)
def test_only_the_command_that_is_named_is_built_and_all_else_stays(
    terminal: Terminal, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Help, guesses at a wrong word and flags before the command know of all commands, as if all had been built."""
    part = terminal(*words)
    monkeypatch.setattr(program, "_part", lambda _: program.app)
    whole = terminal(*words)
    assert (part.code, part.out, part.err) == (whole.code, whole.out, whole.err)


def test_of_a_named_command_no_other_is_built() -> None:
    """The options of fifty commands would take a twentieth of the time of a short one."""
    for words in (["show", "op_x"], ["--json", "--db", "list", "show"], ["--db=list", "--debug", "show", "-h"]):
        (one,) = program._part(program._named(words)).registered_commands
        assert one.name == "show"
    assert len(program.app.registered_commands) > 20


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nonsense"], 2, "No such command"),
        (["show"], 2, "Missing argument"),
        (["show", "op_x", "--wrong"], 2, "--wrong"),
        (["list", "--limit", "many"], 2, "--limit"),
        (["list", "--limit", "0"], 2, "--limit"),
        (["list", "--state", "running"], 2, "running"),
        (["list", "--tag", "team"], 2, "KEY=VALUE"),
        (["submit", "jobs", "--body", '{"rows": }'], 2, "JSON"),
        (["submit", "jobs", "--body", '{"a": 1, "a": 2}'], 2, "twice"),
        (["submit", "jobs", "--body", '{"a": NaN}'], 2, "NaN"),
        (["submit", "jobs", "--body", "missing.json"], 2, "missing.json"),
        (["submit", "jobs", "--body", "."], 2, "cannot be read"),
        (["submit", "jobs", "--body", OPERATION, "--id", "nope"], 2, "op_"),
        (["submit", "jobs", "--body", OPERATION, "--create-deadline", "soon"], 2, "--create-deadline"),
        (["submit", "jobs", "--body", OPERATION, "--result-deadline", "1.5h"], 2, "--result-deadline"),
        (["submit", "jobs", "--body", OPERATION, "--result-deadline", "0s"], 2, "more than 0"),
        (["submit", "jobs", "--body", OPERATION, "--timeout", "5s"], 2, "--wait"),
        (["submit", "jobs", "--body", OPERATION, "--task", "t"], 2, "step"),
        (["submit", "jobs", "--body", OPERATION, "--tag", "a=1", "--tag", "a=2"], 2, "was given before"),
        (["submit", "filled", "--body", "[1]"], 2, "object"),
        (["submit", "nowhere", "--body", OPERATION], 3, "nowhere"),
        (["submit", "broken", "--body", OPERATION], 3, "broken.toml"),
        (["submit", "jobs", "--body", OPERATION, "--supersedes", "op_nobody"], 3, "op_nobody"),
        (["show", "op_nobody"], 3, "op_nobody"),
        (["history", "op_nobody"], 3, "op_nobody"),
        (["events", "op_nobody"], 3, "op_nobody"),
        (["explain", "op_nobody"], 3, "op_nobody"),
        (["choices", "op_nobody"], 3, "op_nobody"),
        (["wait", "op_nobody"], 3, "op_nobody"),
        (["wait", "op_nobody", "--timeout", "never"], 2, "--timeout"),
        (["read", "op_nobody"], 3, "op_nobody"),
        (["list", "--after", "op_nobody"], 3, "op_nobody"),
        (["approve", "op_nobody", "--reason", "fine"], 3, "op_nobody"),
        (["approve", "op_nobody"], 2, "--reason"),
        (["cancel", "op_nobody", "--reason", " "], 2, "reason"),
        (["resolve", "op_nobody", "--as", "close", "--reason", "x"], 3, "op_nobody"),
        (["resolve", "op_nobody", "--as", "maybe", "--reason", "x"], 2, "maybe"),
        (["resolve", "op_nobody", "--as", "extend", "--reason", "x", "--for", "long"], 2, "--for"),
        (["contract", "show", "nowhere"], 3, "nowhere"),
        (["contract", "check", "missing.toml"], 2, "missing.toml"),
        (["contract", "check", "nowhere"], 3, "nowhere"),
        (["contract", "probe", "jobs.toml"], 3, "later version"),
        (["contract", "adopt", "jobs", "--reason", "x"], 3, "later version"),
        (["contract"], 2, ""),
        (["provider", "pause", "nowhere", "--reason", "x"], 3, "nowhere"),
        (["provider", "resume", "jobs", "--reason", "x"], 3, "not paused"),
        (["worker", "--until-idle", "--once"], 2, "exclude"),
        (["console"], 2, "terminal"),
        (["sim", "--faults", "nonsense"], 2, "nonsense"),
        (["--db", "mysql://x/y", "list"], 2, "sqlite:///"),
        (["--db", "nonsense", "list"], 2, "sqlite:///"),
        (["--db", "sqlite:////dev/null/x.db", "list"], 5, "/dev/null/x.db"),
        (["--db", "postgresql://127.0.0.1:1/x?connect_timeout=2", "list"], 5, "cannot be reached"),
    ],
)
def test_errors_have_a_code_and_one_sentence(terminal: Terminal, arguments: list[str], code: int, says: str) -> None:
    """Programs read the code, people the sentence, and nothing is written."""
    terminal.contract('name = "broken"\nbase_url = 5\n', "broken")
    terminal.contract(JOBS.replace("[create]", '[create]\nfields = { "/ref" = "{operation_id}" }'), "filled")
    told = terminal(*arguments)
    assert (told.code, told.out) == (code, "")
    assert says in told.err
    if says:
        assert told.err.count("\n") == 1
    shown = terminal(*arguments, "--json")
    assert shown.code == code
    assert says in shown.error["message"]
    assert terminal("list", "--json").json == []


def test_refusals_are_told_apart_by_their_codes(terminal: Terminal) -> None:
    """A program that must know why does not parse sentences."""
    terminal.submit("--id", "op_mine")
    again = terminal("submit", "jobs", "--body", '{"rows": 6}', "--id", "op_mine", "--json")
    assert (again.code, again.error["code"]) == (3, "body_conflict")
    assert "op_mine" in again.error["message"]
    assert terminal("show", "op_x", "--json").error["code"] == "unknown_operation"
    assert terminal("submit", "nowhere", "--json").error["code"] == "unknown_contract"
    assert terminal("show", "--json").error["code"] == "usage"
    assert terminal("--db", "sqlite:////dev/null/x", "list", "--json").error["code"] == "store_unavailable"


def test_a_newer_database_is_left_alone(terminal: Terminal) -> None:
    """An old program must not write what a newer one would misread."""
    with sqlite3.connect(terminal.root / "ledger.db") as database:
        database.execute("UPDATE opledger_version SET version_num = '9999', oldest = '9999'")
    done = terminal("submit", "jobs", "--body", OPERATION, "--json")
    assert (done.code, done.error["code"]) == (5, "schema_mismatch")


def test_wrong_settings_are_a_usage_error(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file and its line are named."""
    (terminal.root / "opledger.toml").write_text("[worker]\nlease = 'soon'\n")
    done = terminal("list", "--json")
    assert done.code == 2
    assert "opledger.toml" in done.error["message"]
    (terminal.root / "opledger.toml").write_text("")
    monkeypatch.setenv("OPLEDGER_LOG", "loud")
    assert terminal("list").code == 2


def boom(*_: Any, **__: Any) -> None:
    """Fail as nobody foresaw."""
    password = "hunter2"
    raise ZeroDivisionError(f"no {len(password)}")


def test_the_unexpected_is_one_sentence(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A traceback helps nobody at three in the morning; --debug shows it, without the values of variables."""
    monkeypatch.setattr("opledger.ledger.Ledger.list", boom)
    done = terminal("list")
    assert (done.code, done.out) == (1, "")
    assert "Traceback" not in done.err
    assert "--debug" in done.err
    debugged = terminal("list", "--debug")
    assert debugged.code == 1
    assert "Traceback" in debugged.err
    assert "ZeroDivisionError" in debugged.err
    assert "hunter2" not in debugged.err.replace('password = "hunter2"', "")
    shown = terminal("list", "--json", "--debug")
    assert shown.error["code"] == "unexpected"
    assert "ZeroDivisionError" in "".join(shown.error["traceback"])


def test_a_provider_that_broke_is_out_of_reach(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes 5 and 3 separate their fault from ours."""

    def broke(*_: Any, **__: Any) -> None:
        raise ProviderBroke("they sent HTML")

    monkeypatch.setattr("opledger.ledger.Ledger.list", broke)
    assert terminal("list").code == 5


def test_an_interruption_leaves_quietly(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is no error."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("opledger.ledger.Ledger.list", interrupted)
    done = terminal("list")
    assert (done.code, done.out, done.err) == (130, "", "")


def test_a_closed_pipe_makes_no_noise(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """`opledger list | head` ends early, and nobody wants to read about it."""

    def closed(*_: Any, **__: Any) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("opledger.cli.frame.put_json", closed)
    monkeypatch.setattr("opledger.cli.program.hush", lambda: None)
    done = terminal("list", "--json")
    assert (done.code, done.err) == (141, "")


def test_json_is_one_document_in_which_nothing_acts(terminal: Terminal) -> None:
    """Hostile text stays data: escaped, and unchanged when it is read back."""
    hostile = "\x1b]0;owned\x07 \u202e\u200b\x9b2J [red]"
    name = terminal.submit("--expect", hostile)
    done = terminal("show", name, "--json")
    assert done.json["expectation"] == hostile
    assert not {"\x1b", "\x07", "\u202e", "\u200b", "\x9b"} & set(done.out)
    told = terminal("show", name)
    assert "[red]" in told.out
    assert not {"\x1b", "\x07", "\u202e", "\u200b", "\x9b"} & set(told.out)


def test_every_command_for_people_fits_eighty_columns_and_is_inert(terminal: Terminal) -> None:
    """Tables are cut to the terminal; outside text does nothing."""
    long = "\x1b[2J" + "x" * 300
    with terminal.ledger() as ledger:
        for number in range(3):
            name = f"op_number_{number}"
            op = ledger.submit("jobs", {"rows": number}, operation_id=name, expectation=long)
            happens(ledger, op, sent(), accepted(f"job_{number}" + "é" * 40), observed(job=f"job_{number}"))
    for line in terminal("list").out.splitlines():
        assert len(line) <= 80
    for command in ("show", "history", "events", "explain", "choices"):
        done = terminal(command, "op_number_2")
        assert (done.code, done.err) == (0, "")
        assert done.out.strip()
        assert "\x1b" not in done.out
    for words in (["contract", "list"], ["contract", "show", "jobs"], ["provider", "list"], ["doctor"]):
        done = terminal(*words)
        assert done.out.strip()
        assert "\x1b" not in done.out


@pytest.mark.parametrize("command", ["submit", "show", "list", "wait", "resolve", "worker", "contract", "provider"])
def test_every_command_explains_itself(terminal: Terminal, command: str) -> None:
    """--help is the first thing that a newcomer types."""
    done = terminal(command, "--help")
    assert done.code == 0
    assert "Usage: opledger" in done.out


def test_main_takes_the_words_of_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The installed script calls it without arguments."""
    monkeypatch.setattr("sys.argv", ["opledger", "--version", "--json"])
    assert main() == 0
    assert json.loads(capsys.readouterr().out)
