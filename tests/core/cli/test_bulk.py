from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from opledger.errors import StoreUnavailable
from opledger.ledger import Ledger
from tests.core.cli.conftest import Terminal
from tests.core.ledgers import LOST, RUNNING, happens

APPROVE = """
[[policy]]
when = 'operation.body.rows > 3'
approvers = ["ana", "jo"]
"""


@pytest.fixture
def waiting(terminal: Terminal) -> list[str]:
    """Three requests of one batch that wait for approval, and one that needs none."""
    (terminal.root / "opledger.toml").write_text(APPROVE)
    names = [terminal.submit("--tag", "batch=7") for _ in range(3)]
    terminal.submit("--tag", "batch=7", body='{"rows": 1}')
    return names


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ((), "which operations"),
        (("op_x", "--state", "observing"), "not both"),
        (("--state", "observing", "--yes", "--dry-run"), "one of them"),
        (("--state", "resting", "--yes"), "is no state"),
        (("--state", "observing", "--if-version", "3"), "one operation"),
        (("op_x", "op_y", "--if-version", "3"), "one operation"),
        (("--tag", "batch", "--yes"), "KEY=VALUE"),
    ],
)
@pytest.mark.parametrize("verb", ["approve", "reject", "cancel", "resolve"])
def test_flags_that_name_no_clear_set_are_refused(
    terminal: Terminal, verb: str, flags: tuple[str, ...], says: str
) -> None:
    """Above all: no ids and no filter never mean everything."""
    extra = ("--as", "close") if verb == "resolve" else ()
    done = terminal(verb, *flags, *extra, "--reason", "x", "--json")
    assert (done.code, done.error["code"]) == (2, "usage")
    assert says in done.error["message"]


def test_a_dry_run_only_looks(terminal: Terminal, waiting: list[str]) -> None:
    """Every item says what would become of it, and why not."""
    done = terminal("approve", "--tag", "batch=7", "--reason", "fine", "--dry-run", "--json", by="jo")
    assert (done.code, done.err) == (0, "")
    assert [item["operation_id"] for item in done.json][1:] == list(reversed(waiting))
    assert [item["eligible"] for item in done.json] == [False, True, True, True]
    assert "needs no approval" in done.json[0]["because"]
    assert done.json[1]["because"] == "approval 1 of 1: it may then be sent"
    stranger = terminal("approve", *waiting, "--reason", "fine", "--dry-run", "--json", by="kim")
    assert [item["eligible"] for item in stranger.json] == [False] * 3
    assert "the policy names: ana, jo" in stranger.json[0]["because"]
    told = terminal("approve", "--tag", "batch=7", "--reason", "fine", "--dry-run", by="jo")
    assert "3 of 4 can be decided" in told.out
    assert all(len(line) <= 80 for line in told.out.splitlines())
    assert len(terminal("list", "--state", "awaiting_approval", "--json").json) == 3


def test_a_filter_decides_only_on_a_clear_yes(terminal: Terminal, waiting: list[str], ledger: Ledger) -> None:
    """A script that forgot --yes changes nothing and is told so."""
    asked = terminal("reject", "--state", "awaiting_approval", "--reason", "too big", "--json", by="jo")
    assert (asked.code, asked.error["code"]) == (2, "usage")
    assert "3 operations" in asked.error["message"]
    seen = terminal("reject", "--state", "awaiting_approval", "--reason", "too big", by="jo", stdin="3\n")
    assert seen.code == 2  # what comes through a pipe is nobody who has read the preview
    assert "3 of 3 can be decided" in seen.out
    assert all(ledger.show(name).state == "awaiting_approval" for name in waiting)
    done = terminal("reject", "--tag", "batch=7", "--reason", "too big", "--yes", "--json", by="jo")
    assert done.code == 3
    assert [item["ok"] for item in done.json] == [False, True, True, True]
    assert all(ledger.show(name).state == "rejected" for name in waiting)
    again = terminal("reject", *waiting, "--reason", "too big", "--json", by="jo")
    assert (again.code, [item["done_before"] for item in again.json]) == (0, [True] * 3)
    idle = terminal("reject", "--tag", "batch=7", "--reason", "another", "--json", by="jo")
    assert (idle.code, [item["ok"] for item in idle.json]) == (3, [False] * 4)
    none = terminal("reject", "--state", "awaiting_approval", "--reason", "x", "--yes", "--json", by="jo")
    assert (none.code, none.json) == (0, [])


@pytest.mark.parametrize(("typed", "code", "state"), [("3", 0, "withdrawn"), ("y", 3, "awaiting_approval")])
def test_at_a_terminal_the_count_is_typed(
    terminal: Terminal, waiting: list[str], ledger: Ledger, typed: str, code: int, state: str
) -> None:
    """A bare yes is typed by habit; a number is read first."""
    here, there = pty.openpty()
    command = ["cancel", "--state", "awaiting_approval", "--reason", "enough"]
    running = subprocess.Popen(
        [sys.executable, "-m", "opledger.cli", *command],
        cwd=terminal.root,
        env={**os.environ, **terminal.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=there,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.write(here, f"{typed}\n".encode())
    out, err = running.communicate(timeout=60)
    os.close(here)
    os.close(there)
    assert (running.returncode, "Type 3 to cancel 3 operations" in err) == (code, True)
    assert "3 of 3 can be decided" in out
    assert [ledger.show(name).state.value for name in waiting] == [state] * 3


def test_several_are_resolved_at_once(terminal: Terminal, ledger: Ledger) -> None:
    """One id gives the record, several give the array."""
    names = [terminal.submit() for _ in range(3)]
    for name in names:
        happens(ledger, name, *LOST)
    one = terminal("resolve", names[0], "--as", "close", "--reason", "enough", "--json")
    assert one.json["state"] == "resolved"
    done = terminal("resolve", *names[1:], "--as", "close", "--reason", "enough", "--json")
    assert (done.code, [item["record"]["state"] for item in done.json]) == (0, ["resolved"] * 2)
    told = terminal("resolve", *names, "--as", "close", "--reason", "enough")
    assert told.out.count("nothing was written") == 3


def test_a_decision_may_depend_on_the_version(terminal: Terminal, ledger: Ledger) -> None:
    """Whoever decides on an old sight learns what happened since."""
    name = terminal.submit()
    seen = ledger.show(name).version
    happens(ledger, name, *RUNNING)
    late = terminal("cancel", name, "--reason", "x", "--if-version", str(seen), "--json")
    assert (late.code, late.error["code"]) == (3, "changed")
    assert "Accepted by worker-1 (create_pending -> accepted)" in late.error["message"]
    now = ledger.show(name).version
    assert terminal("cancel", name, "--reason", "x", "--if-version", str(now), "--json").code == 0


@pytest.mark.parametrize(
    ("arguments", "by", "code", "says"),
    [
        (("approve", "op_nobody"), "ana", 3, "there is no operation op_nobody"),
        (("resolve", "{lost}", "--as", "keep", "--job", "j"), "ana", 3, "it can be: bind, not-created, resend, close"),
        (("resolve", "{lost}", "--as", "bind"), "ana", 3, "needs the job's id"),
        (("resolve", "{lost}", "--as", "maybe"), "ana", 2, "there are: bind"),
        (("resolve", "{lost}", "--as", "bind", "--for", "soon"), "ana", 2, "--for"),
        (("resolve", "{lost}", "--as", "close"), "agent-3", 3, "only a person"),
        (("approve", "{waits}"), "kim", 3, "the policy names: ana, jo"),
        (("approve", "{waits}"), "agent-7", 3, "only a person"),
        (("reject", "{lost}"), "ana", 3, "needs no approval"),
    ],
)
def test_bad_input_is_named_by_its_rule(
    terminal: Terminal, ledger: Ledger, arguments: tuple[str, ...], by: str, code: int, says: str
) -> None:
    """A sentence that says which rule it was, whoever asks."""
    (terminal.root / "opledger.toml").write_text(APPROVE)
    names = {"lost": terminal.submit(body='{"rows": 1}'), "waits": terminal.submit()}
    happens(ledger, names["lost"], *LOST)
    given = [word.format(**names) for word in arguments]
    done = terminal(*given, "--reason", "because", "--json", by=by)
    assert done.code == code
    assert says in done.error["message"]


@pytest.mark.parametrize(
    ("end", "code", "word"), [(KeyboardInterrupt(), 130, "interrupted"), (StoreUnavailable("gone"), 5, "store_unav")]
)
def test_an_interrupted_run_tells_what_it_did(
    terminal: Terminal, waiting: list[str], monkeypatch: pytest.MonkeyPatch, end: BaseException, code: int, word: str
) -> None:
    """And the same command goes on with the rest."""
    real = Ledger.reject
    count = iter(range(9))

    def reject(self: Ledger, *args: object, **more: object) -> object:
        if next(count) == 1:
            raise end
        return real(self, *args, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "reject", reject)
        done = terminal("reject", *waiting, "--reason", "no", "--json", by="jo")
    assert (done.code, [item["ok"] for item in done.json]) == (code, [True])
    assert word in done.err
    assert "1 of 3" in done.err
    again = terminal("reject", *waiting, "--reason", "no", "--json", by="jo")
    assert (again.code, [item["done_before"] for item in again.json]) == (0, [True, False, False])


def test_many_are_counted_on_a_terminal_only(
    terminal: Terminal, waiting: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress is for eyes; a log has no use for it."""
    monkeypatch.setattr("opledger.cli.bulk.PROGRESS_FROM", 2)
    assert terminal("reject", *waiting, "--reason", "no", by="jo").err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert "\r2 of 3\r3 of 3" in terminal("reject", *waiting, "--reason", "no", by="jo").err
    assert terminal("reject", *waiting[:2], "--reason", "no", by="jo").err == ""
