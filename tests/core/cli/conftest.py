"""A terminal of a test's own: commands run in a folder with a ledger, contracts and settings."""

from __future__ import annotations

import functools
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from opledger.cli import main
from opledger.ledger import Ledger
from tests.core.ledgers import Home
from tests.support.databases import sqlite_template, sqlite_url  # noqa: F401 - fixtures


@dataclass(frozen=True)
class Done:
    """What became of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on standard output."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The error in the one document on standard error."""
        assert self.out == ""
        document = json.loads(self.err)
        assert set(document["error"]) >= {"code", "message"}
        return document["error"]


class Terminal(Home):
    """Runs commands, in this process or in one of their own."""

    def __init__(self, root: Path, url: str, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        super().__init__(root, url)
        self._capsys = capsys
        self._patch = patch
        self.environ = {
            "OPLEDGER_DB": url,
            "OPLEDGER_CONTRACTS": str(root / "contracts"),
            "OPLEDGER_OPERATOR": "ana",
            "COLUMNS": "80",
        }
        for name, value in self.environ.items():
            patch.setenv(name, value)
        patch.chdir(root)

    def __call__(self, *arguments: str, stdin: str | None = None, by: str | None = None) -> Done:
        """Run a command in this process."""
        with self._patch.context() as patch:
            if by is not None:
                patch.setenv("OPLEDGER_OPERATOR", by)
            if stdin is not None:
                patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            self._capsys.readouterr()
            code = main(list(arguments))
            out, err = self._capsys.readouterr()
        return Done(code, out, err)

    def start(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        """Start a command as a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "opledger.cli", *arguments],
            cwd=self.root,
            env={**os.environ, **self.environ, **environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def process(self, *arguments: str, **environ: str) -> Done:
        """Run a command as a process of its own, to its end."""
        running = self.start(*arguments, **environ)
        out, err = running.communicate(timeout=120)
        return Done(running.returncode, out, err)

    def submit(self, *arguments: str, body: str = '{"rows": 5}') -> str:
        """Submit something as an agent and return its id."""
        done = self("submit", "jobs", "--body", body, "--by", "agent-7", "--json", *arguments)
        assert done.code == 0, done.err
        return str(done.json["operation_id"])


@pytest.fixture(scope="session", autouse=True)
def built_once() -> Iterator[None]:
    """Build the commands once for all runs in this process; that takes longer than most of what they do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("opledger.cli.program.get_command", functools.cache(get_command))
        yield


@pytest.fixture
def terminal(
    tmp_path: Path,
    sqlite_url: str,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Terminal:
    """A terminal over an empty ledger with one contract, `jobs`."""
    return Terminal(tmp_path, sqlite_url, capsys, monkeypatch)


@pytest.fixture
def ledger(terminal: Terminal) -> Iterator[Ledger]:
    """The terminal's ledger, opened as a worker would."""
    with terminal.ledger() as opened:
        yield opened
