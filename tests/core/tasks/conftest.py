"""A folder with a plan, a ledger that it goes with, and programs that leave a trace."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opledger.ledger import Ledger
from opledger.tasks import Task
from tests.core.ledgers import Home
from tests.support.databases import (  # noqa: F401 - fixtures
    database_url,
    postgres_server,
    postgres_url,
    sqlite_template,
    sqlite_url,
)

PYTHON = sys.executable
TRACE = """
import json, os, pathlib, sys
with open("trace.txt", "a") as file: file.write(sys.argv[1] + "\\n")
if len(sys.argv) > 2: pathlib.Path(sys.argv[2]).open("a").write("a,b\\n1,2\\n")
print("a line"); print(json.dumps({"rows": 1, "key": os.environ["OPLEDGER_STEP_TOKEN"]}))
"""


class Desk(Home):
    """A place where people and agents work on one plan; `ledger` stays open for the test."""

    def __init__(self, root: Path, url: str, toml: str = "") -> None:
        super().__init__(root, url)
        self._settings = self.settings(toml)
        self.opened = Ledger.open(settings=self._settings)
        (root / "work").mkdir(exist_ok=True)
        self.folder = root / "work"
        self.plan = self.folder / "monthly.plan.toml"
        self.progress = self.folder / "monthly.progress.jsonl"
        (self.folder / "trace.py").write_text(TRACE)

    def write(self, *steps: str, task: str = "monthly") -> None:
        """Write the plan."""
        self.plan.write_text(f'task = "{task}"\n' + "".join(steps))

    def task(self, by: str = "ana", plan: Path | None = None) -> Task:
        """Open it, as somebody."""
        return Task(self.opened, plan or self.plan, by)

    def trace(self, folder: Path | None = None) -> list[str]:
        """Which steps ran, in order."""
        path = (folder or self.folder) / "trace.txt"
        return path.read_text().split() if path.exists() else []

    def kinds(self) -> list[tuple[str | None, str]]:
        """The records that the ledger has."""
        from opledger.tasks.reading import read_records

        return [(one.step, str(one.kind)) for one in read_records(self.opened, "monthly")]

    def copy(self, name: str) -> Path:
        """Hand the folder over to another machine; returns the plan there."""
        other = self.root / name
        shutil.copytree(self.folder, other)
        return other / self.plan.name


def ran(step: str, *more: str, output: str = "") -> str:
    """A step whose command leaves its id in the trace."""
    words = ", ".join(f'"{word}"' for word in (PYTHON, "trace.py", step, *([output] if output else [])))
    check = f'check = {{ file = "{output}", parses = "csv" }}\n' if output else ""
    return f'[[step]]\nid = "{step}"\nrun = [{words}]\n{check}' + "".join(f"{line}\n" for line in more)


@pytest.fixture
def desk(tmp_path: Path, database_url: str) -> Iterator[Desk]:  # noqa: F811
    """A desk, once on each database."""
    made = Desk(tmp_path, database_url, '[worker]\nlease = "2s"\n')
    yield made
    made.opened.close()


@pytest.fixture
def small(tmp_path: Path, sqlite_url: str) -> Iterator[Desk]:  # noqa: F811
    """A desk on SQLite, for what has nothing to do with databases."""
    made = Desk(tmp_path, sqlite_url)
    yield made
    made.opened.close()
