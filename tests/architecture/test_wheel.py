"""What people get when they install: everything in the two packages, data files and migrations too."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from tests.architecture.source import SOURCE_ROOTS, run


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = run(command)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def test_the_wheel_holds_every_file_of_both_packages(wheel: zipfile.ZipFile) -> None:
    """A contract or a migration that stays behind is missed only on somebody else's machine."""
    expected = {
        path.relative_to(root).as_posix()
        for root in SOURCE_ROOTS
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {Path(name).suffix for name in expected} >= {".py", ".toml", ".typed"}
    assert expected - set(wheel.namelist()) == set()


def test_the_wheel_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    """Tests and tools stay at home."""
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"opledger", "opledger_console"}


def test_the_licence_travels_along(wheel: zipfile.ZipFile) -> None:
    """Apache-2.0 asks for it."""
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.namelist())
