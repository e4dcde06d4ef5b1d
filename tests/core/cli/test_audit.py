"""``audit verify``, ``audit export``, ``audit verifier`` and ``archive``, as people and programs run them."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opledger.ledger import Ledger
from tests.core.cli.conftest import Terminal
from tests.core.ledgers import FAILED, happens, observed
from tests.support.tampering import checkpoint


@pytest.fixture
def ledger(terminal: Terminal) -> Iterator[Ledger]:
    """The terminal's ledger with the settings that its commands have, the place of the key among them."""
    with Ledger.open(terminal.url) as opened:
        yield opened


def tamper(terminal: Terminal, *statements: str) -> None:
    """Change the file as its owner could, who does not put the guards back."""
    session = sqlite3.connect(terminal.url.removeprefix("sqlite:///"), isolation_level=None)
    for (name,) in session.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        session.execute(f'DROP TRIGGER "{name}"')
    for statement in statements:
        session.execute(statement)
    session.close()


def test_nothing_is_not_called_good(terminal: Terminal, ledger: Ledger) -> None:
    """An empty ledger is a finding, with the exit code of one."""
    done = terminal("audit", "verify", "--json")
    assert done.code == 4
    assert [one["kind"] for one in done.json["findings"]] == ["NOTHING_CHECKED"]
    assert done.json["ok"] is False


def test_a_ledger_as_it_was_written(terminal: Terminal, ledger: Ledger) -> None:
    """What was looked at, up to where it is anchored, and what is not yet."""
    operation_id = terminal.submit()
    done = terminal("audit", "verify")
    assert (done.code, "there is no checkpoint yet" in done.out) == (0, True)
    checkpoint(ledger)
    happens(ledger, ledger.show(operation_id), *FAILED)
    done = terminal("audit", "verify", "--json")
    assert done.code == 0
    document = done.json
    assert document["ok"] is True
    assert (document["operations"], document["events"], document["checkpoints"], document["archived"]) == (1, 5, 1, 0)
    assert document["anchored_up_to"]["number"] == 1
    assert document["findings"] == []
    assert [(one["kind"], one["operation_id"], one["seq"]) for one in document["notes"]] == [
        ("UNANCHORED_TAIL", None, None)
    ]
    done = terminal("audit", "verify")
    assert "anchored up to checkpoint 1 of " in done.out
    assert done.out.endswith("no findings: all as it was written\n")


def test_what_was_changed_is_named_and_exits_with_4(terminal: Terminal, ledger: Ledger) -> None:
    """Also where the guards are gone: it only reads."""
    operation_id = terminal.submit()
    tamper(terminal, "UPDATE event SET actor = 'eve'")
    done = terminal("audit", "verify")
    assert done.code == 4
    assert f"COLUMN  {operation_id} event 1: of event 1 the bytes and the columns differ: actor" in done.out
    assert done.out.endswith("1 finding\n")


def test_what_a_row_says_acts_on_no_terminal(terminal: Terminal, ledger: Ledger) -> None:
    """Whoever changed a row chose what stands in it; not even text that is no text stops the look."""
    terminal.submit()
    tamper(terminal, "UPDATE event SET operation_id = char(27) || '[31m' || char(8238), cause = CAST(x'ff' AS TEXT)")
    done = terminal("audit", "verify")
    assert done.code == 4
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out
    done = terminal("audit", "verify", "--json")
    assert {"MISSING_OP", "MOVED"} & {one["kind"] for one in done.json["findings"]}


def test_only_what_is_new_where_somebody_says_so(terminal: Terminal, ledger: Ledger) -> None:
    """From a checkpoint on: what was changed before it is not looked at, and the outcome says so."""
    first, second = terminal.submit(), terminal.submit(body='{"rows": 6}')
    checkpoint(ledger)
    happens(ledger, ledger.show(second), *FAILED)
    checkpoint(ledger)
    happens(ledger, ledger.show(second), observed("failed"))
    tamper(terminal, f"UPDATE event SET actor = 'eve' WHERE operation_id = '{first}'")
    done = terminal("audit", "verify", "--since", "1", "--json")
    assert (done.code, done.json["operations"], done.json["since"]["number"]) == (0, 1, 1)
    assert done.json["notes"][0]["message"].startswith("1 event of 1 operation came")
    assert "only what came behind checkpoint 1" in terminal("audit", "verify", "--since", "1").out
    assert terminal("audit", "verify").code == 4
    tamper(terminal, f"UPDATE event SET actor = 'eve' WHERE operation_id = '{second}' AND seq = 2")
    done = terminal("audit", "verify", "--since", "1", "--json")
    assert [(one["kind"], one["seq"]) for one in done.json["findings"]] == [("COLUMN", 2)]
    done = terminal("audit", "verify", "--since", "7")
    assert (done.code, "there is no checkpoint 7" in done.err) == (2, True)
    assert terminal("audit", "verify", "--since", "1", "--full").code == 2


def test_what_was_verified_before_is_remembered(
    terminal: Terminal, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large ledger is verified from there on; --full is everything; a checkpoint that went away since is found."""
    monkeypatch.setattr("opledger.ledger.audit.LARGE", 0)
    first = terminal.submit()
    checkpoint(ledger)
    assert terminal("audit", "verify", "--json").json["since"] is None
    terminal.submit(body='{"rows": 6}')
    done = terminal("audit", "verify", "--json")
    assert (done.json["since"]["number"], done.json["operations"]) == (1, 1)
    tamper(terminal, f"UPDATE event SET actor = 'eve' WHERE operation_id = '{first}'")
    assert terminal("audit", "verify").code == 0
    assert terminal("audit", "verify", "--full").code == 4
    tamper(terminal, "DELETE FROM checkpoint", "DELETE FROM leaf", "DELETE FROM anchored")
    for anchor in terminal.root.glob("*.anchor"):
        anchor.unlink()
    done = terminal("audit", "verify", "--json")
    assert ("ANCHOR_AHEAD", 1) in {(one["kind"], one["seq"]) for one in done.json["findings"]}


def test_an_anchor_and_a_key_that_somebody_brings(terminal: Terminal, ledger: Ledger, tmp_path: Path) -> None:
    """A copy of the anchor from elsewhere is compared; a key that is none, or a file that is not there, is usage."""
    terminal.submit()
    checkpoint(ledger)
    key = terminal("audit", "key").out.splitlines()[0]
    (anchor,) = terminal.root.glob("*.anchor")
    elsewhere = tmp_path / "elsewhere"
    anchor.rename(elsewhere)
    assert "not anchored" in terminal("audit", "verify", "--key", key).out
    done = terminal("audit", "verify", "--anchor", str(elsewhere), "--key", key, "--json")
    assert (done.code, done.json["anchored_up_to"]["anchor"]) == (0, str(elsewhere))
    assert terminal("audit", "verify", "--anchor", str(tmp_path / "none")).code == 2
    assert terminal("audit", "verify", "--key", "mine").code == 2


def test_an_export_for_the_other_verifier(terminal: Terminal, ledger: Ledger, tmp_path: Path) -> None:
    """As its own process, from what `audit verifier` prints; a file that was cut is none."""
    op, _ = terminal.submit(), terminal.submit(body='{"rows": 6}')
    checkpoint(ledger)
    script, out = tmp_path / "v.py", tmp_path / "all.jsonl"
    script.write_text(terminal("audit", "verifier").out)
    assert terminal("audit", "export", "--out", str(out)).code == 0
    assert out.stat().st_mode & 0o777 == 0o600

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, check=False)

    done = run(str(out))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "2 events, 1 checkpoints, 0 findings\n")
    lines = out.read_text().splitlines()
    out.write_text("\n".join(lines).replace('"agent-7"', '"eve"') + "\n")
    done = run(str(out), "--json")
    assert done.returncode == 4
    assert {json.loads(line)["kind"] for line in done.stdout.splitlines()} == {"COLUMN"}
    out.write_text("\n".join(lines[:-1]) + "\n")
    assert run(str(out)).returncode == 2
    for cut in ("\n".join(lines)[:-40], "", "[]\n"):
        out.write_text(cut)
        assert (run(str(out)).returncode, "Traceback" in run(str(out)).stderr) == (2, False), cut
    assert run(str(tmp_path / "none")).returncode == 2
    one = terminal("audit", "export", op)
    documents = [json.loads(line) for line in one.out.splitlines()]
    assert json.loads(terminal("audit", "export", op, "--json").out)[1:] == documents[1:]
    assert {one.get("operation_id") for one in documents} == {op, None}
    out.write_text(one.out)
    assert run(str(out)).returncode == 0


def test_archive_asks_and_says_what_is_left(terminal: Terminal, ledger: Ledger, tmp_path: Path) -> None:
    """Nothing without --yes where nobody can be asked, nothing for agents, nothing that is too new."""
    terminal.submit()
    checkpoint(ledger)
    arguments = ("archive", "--closed-before", "2030-01-01", "--out", str(tmp_path / "a"), "--reason", "old")
    done = terminal(*arguments, "--yes")
    assert (done.code, "nothing can be archived" in done.err) == (3, True)
    assert terminal(*arguments, by="agent-7").code == 3
    assert terminal("archive", "--closed-before", "soon", "--out", "a", "--reason", "old").code == 2
