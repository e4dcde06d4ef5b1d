"""The import rules of pyproject.toml: they hold, and each of them would notice."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.architecture.source import ROOT, SOURCE_ROOTS, environment, run, tool


def lint_imports(tree: Path, *contracts: str) -> subprocess.CompletedProcess[str]:
    """Run import-linter over the packages in `tree`, all contracts or those named."""
    chosen = [word for contract in contracts for word in ("--contract", contract)]
    command = [tool("lint-imports"), "--no-cache", *chosen, str(ROOT / "pyproject.toml")]
    return run(command, cwd=tree, env=environment(*(tree / root.name for root in SOURCE_ROOTS)))


def test_the_import_contracts_hold() -> None:
    """The layers are what the room map says, or the map is a lie."""
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("contract", "module", "offence"),
    [
        ("layers", "core/opledger/rules/model.py", "import opledger.store"),
        ("layers", "core/opledger/newroom.py", ""),
        ("cycles", "core/opledger/rules/model.py", "import opledger.rules.decide"),
        ("headless", "core/opledger/cli/__init__.py", "import opledger_console"),
        ("rules", "core/opledger/rules/model.py", "import os"),
        ("edges", "core/opledger/edges/clock.py", "import opledger.rules.decide"),
        ("submit", "core/opledger/ledger.py", "def send():\n    import opledger.edges.http"),
        ("sql", "core/opledger/ledger.py", "import sqlalchemy"),
        ("http", "core/opledger/cli/__init__.py", "import httpx"),
        ("ticks", "core/opledger/worker.py", "import apscheduler"),
        ("console", "console/opledger_console/widgets/table.py", "import opledger_console.desk"),
    ],
)
def test_a_forbidden_import_breaks_its_contract(contract: str, module: str, offence: str, tmp_path: Path) -> None:
    """A contract that cannot be broken protects nothing, so each is broken once in a copy of the tree."""
    for root in SOURCE_ROOTS:
        shutil.copytree(root, tmp_path / root.name, ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / module).open("a", encoding="utf-8") as file:
        file.write(f"\n\n{offence}\n")
    done = lint_imports(tmp_path, contract)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout, done.stdout + done.stderr
