from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opledger.edges import private
from opledger.edges.clock import SystemClock
from opledger.edges.files import atomic_write, note_progress, private_folder
from opledger.edges.private import make_folder, open_file, open_to_others
from opledger.errors import StoreUnavailable
from opledger.store import Store


def mode(path: Path) -> int:
    """The permission bits."""
    return path.stat().st_mode & 0o7777


@pytest.fixture(params=[0o000, 0o022, 0o277])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """Open to all, the usual one, and one that takes bits of our own away."""
    old = os.umask(request.param)
    try:
        yield request.param
    finally:
        os.umask(old)


def test_folders_are_private_all_the_way_up(tmp_path: Path, umask: int) -> None:
    """Parents too: who may rename a folder's parent may put another folder there."""
    made = private_folder(tmp_path / "a" / "b" / "c")
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3
    made.chmod(0o755)
    private_folder(made)
    assert mode(made) == 0o755  # what was there keeps its mode


def test_a_file_in_the_way_of_a_folder_is_told(tmp_path: Path) -> None:
    """And nothing is made in its place."""
    (tmp_path / "x").write_text("")
    with pytest.raises(StoreUnavailable):
        private_folder(tmp_path / "x")
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        make_folder(tmp_path / "x" / "y")


def test_files_are_private(tmp_path: Path, umask: int) -> None:
    """Made new: 0600; already there: opened as it is."""
    path = tmp_path / "one"
    os.close(open_file(path, os.O_CREAT | os.O_WRONLY))
    assert mode(path) == 0o600
    path.chmod(0o640)
    os.close(open_file(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND))
    assert mode(path) == 0o640
    with pytest.raises(FileExistsError, match="one"):
        open_file(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    atomic_write(tmp_path / "two", b"x")
    note_progress(tmp_path, "op_1", 1, 2)
    assert {mode(file) for file in tmp_path.iterdir() if file != path} == {0o600}


def test_links_are_not_followed(tmp_path: Path) -> None:
    """Somebody could have it lead to a file of ours."""
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic"):
        open_file(tmp_path / "link", os.O_CREAT | os.O_WRONLY)
    assert not (tmp_path / "target").exists()


def test_a_database_and_the_files_beside_it_are_private(tmp_path: Path, umask: int) -> None:
    """The log holds the same rows as the database."""
    path = tmp_path / "deep" / "er" / "ledger.db"
    with Store.open(f"sqlite:///{path}") as store:
        store.heartbeat("w", "host", 1, SystemClock().now())
        found = {file.name: mode(file) for file in path.parent.iterdir()}
        assert found == {"ledger.db": 0o600, "ledger.db-wal": 0o600, "ledger.db-shm": 0o600}
    assert [mode(path.parent), mode(path.parent.parent)] == [0o700, 0o700]


def test_a_group_of_ones_own_is_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many systems give every user a group, and let it write; a group with somebody else in it is another thing."""
    (tmp_path / "toml").write_text("")
    (tmp_path / "toml").chmod(0o664)
    for own, told in ((True, 0), (False, 1)):
        monkeypatch.setattr(private, "_is_own_group", lambda _, own=own: own)
        assert len(list(open_to_others([], [], [tmp_path / "toml"]))) == told
        assert len(list(open_to_others([tmp_path / "toml"], []))) == 1


def test_what_others_can_get_at_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that is told does it."""
    monkeypatch.setattr(private, "_is_own_group", lambda _: False)
    file, folder, home = tmp_path / "a b.db", tmp_path / "results", tmp_path / "home"
    file.write_text("")
    folder.mkdir()
    home.mkdir()
    for path, bits in ((file, 0o640), (folder, 0o750), (home, 0o775)):
        path.chmod(bits)
    told = list(open_to_others([file, tmp_path / "none"], [folder], [home]))
    assert told == [
        f"{file} is open to other users (mode 0640); run: chmod 600 '{file}'",
        f"{folder} is open to other users (mode 0750); run: chmod 700 {folder}",
        f"{home} is open to other users (mode 0775); run: chmod go-w {home}",
    ]
    for sentence in told:
        subprocess.run(["/bin/sh", "-c", sentence.partition("run: ")[2]], check=True)
    assert list(open_to_others([file], [folder], [home])) == []
    home.chmod(0o1777)  # as /tmp is
    assert list(open_to_others([], [], [home])) == []


@pytest.mark.processes
@pytest.mark.slow
def test_nothing_the_demonstration_leaves_behind_is_open_to_others(tmp_path: Path) -> None:
    """T24: database, log, results, packets, contracts, log of the worker: walked, under the most generous umask."""
    script = (
        "import os, sys; os.umask(0); from opledger.cli import main; from opledger.sim import demo;"
        "demo.LONGEST = 500; sys.exit(main(['demo', '--headless']))"  # people would not wait so long
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TMPDIR": str(tmp_path), "HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    left = [path for path in tmp_path.rglob("*") if not path.is_symlink()]
    names = {path.name for path in left}
    assert {"ledger.db", "worker.log", "packets", "contracts", "results"} <= names, (
        done.stdout[-2000:],
        done.stderr[-2000:],
    )
    open_ = {str(path.relative_to(tmp_path)): oct(mode(path)) for path in left if mode(path) & 0o077}
    assert open_ == {}
