from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.core.cli.conftest import Terminal


def checks(terminal: Terminal) -> dict[str, tuple[bool, str]]:
    """Name -> whether it is well, and what is said."""
    found = terminal("doctor", "--json").json["checks"]
    return {check["name"]: (check["ok"], check["message"]) for check in found}


def test_it_tries_what_must_not_work(terminal: Terminal) -> None:
    """And says how much that was."""
    terminal.submit()
    ok, message = checks(terminal)["guards"]
    assert ok
    assert "forbidden statements were tried and refused" in message


def test_guards_that_are_gone_are_named_and_nobody_starts(terminal: Terminal) -> None:
    """By doctor, by a worker and by the receiver; what is there stays as it is."""
    terminal.submit()
    database = Path(terminal.environ["OPLEDGER_DB"].removeprefix("sqlite:///"))
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("DROP TRIGGER event_no_delete")
        connection.execute("CREATE TRIGGER quiet BEFORE INSERT ON event BEGIN SELECT RAISE(IGNORE); END")
    done = terminal("doctor", "--json")
    assert done.code == 4
    (check,) = done.json["checks"]
    assert check["name"] == "guards"
    assert "event_no_delete" in check["message"]
    assert check["message"].endswith("opledger doctor --guards")
    for command in (["worker", "--once"], ["webhooks", "serve", "--port", "0"]):
        refused = terminal.process(*command, "--json")
        assert refused.code == 4
        assert "event_no_delete" in refused.error["message"]
    # It only reads, so it can say what was changed before anything is mended.
    assert terminal("audit", "verify", "--full", "--json").code == 0
    again = terminal("doctor", "--guards", "--json")
    assert again.code == 4
    assert "quiet on event, which is none of ours: remove that" in again.error["message"]
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("DROP TRIGGER quiet")
        connection.execute("DROP TRIGGER answer_no_replace")
    assert terminal("doctor", "--guards", "--json").json == {"restored": ["answer_no_replace"]}
    assert "no guard was missing" in terminal("doctor", "--guards").out
    assert "guards" in checks(terminal)
    assert terminal("doctor", "--guards", "--json", by="agent-7").code == 3


@pytest.mark.parametrize("command", [["worker", "--once"], ["webhooks", "serve", "--port", "0"]])
def test_nobody_starts_where_history_can_be_rewritten(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    """The guards are in the catalogue; what says otherwise is the try alone."""
    terminal.submit()
    monkeypatch.setattr("opledger.store.sqlite._authorize", lambda *_: sqlite3.SQLITE_OK)
    done = terminal(*command, "--json")
    assert done.code == 4
    assert "not safe from this program, which could run" in done.error["message"]
    ok, message = checks(terminal)["guards"]
    assert not ok
    assert "could run" in message


def test_it_names_what_others_can_get_at(terminal: Terminal) -> None:
    """With the command that ends it; nothing is changed silently."""
    terminal.submit()
    database = Path(terminal.environ["OPLEDGER_DB"].removeprefix("sqlite:///"))
    assert checks(terminal)["files"] == (True, "nothing here is open to other users of this machine")
    results = database.parent / "results"
    database.chmod(0o644)
    results.chmod(0o755)
    done = terminal("doctor", "--json")
    assert done.code == 3
    told = [check["message"] for check in done.json["checks"] if check["name"] == "files"]
    assert f"{database} is open to other users (mode 0644); run: chmod 600 {database}" in told
    assert f"{results} is open to other users (mode 0755); run: chmod 700 {results}" in told
    assert database.stat().st_mode & 0o777 == 0o644


def test_it_prints_the_roles(terminal: Terminal) -> None:
    """For psql, or as one document; a name that cannot be is a usage error."""
    done = terminal("doctor", "--roles", "--worker", "agents")
    assert done.code == 0
    assert 'CREATE ROLE "agents" LOGIN' in done.out
    assert done.out.rstrip().endswith(";")
    document = terminal("doctor", "--roles", "--worker", "agents", "--json").json
    assert document["sql"].splitlines() == done.out.splitlines()
    assert terminal("doctor", "--roles", "--owner", "a'b", "--json").code == 2
    assert terminal("doctor", "--roles", "--owner", "x", "--worker", "x", "--json").code == 2
