from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from opledger.edges.files import (
    Gone,
    Partial,
    ResultFolder,
    atomic_write,
    copy_out,
    forget_progress,
    note_progress,
    read_progress,
    write_out,
)
from opledger.errors import ConfigWrong, Refused, StoreUnavailable, UsageError

ID = "op_01JD7Q3M5K8W9X2Y4Z6A7B8C9D"


@pytest.fixture
def results(tmp_path: Path) -> ResultFolder:
    """A folder that is not there yet."""
    return ResultFolder(tmp_path / "deep" / "results")


def content(results: ResultFolder, location: str) -> bytes:
    """Read through the front door."""
    with results.open(location) as file:
        return file.read()


def leftovers(results: ResultFolder) -> list[Path]:
    """What lies among the unfinished files."""
    return list(results.temporary().iterdir())


def test_a_result_is_kept_where_it_can_be_found(results: ResultFolder) -> None:
    """The location is a plain path; the folders keep their size bounded by the end of the id."""
    location = results.keep_bytes(b"data", ID, ".csv")
    assert location == str(results.root / "9D" / f"{ID}.csv")
    assert content(results, location) == b"data"
    assert leftovers(results) == []


def test_everything_is_for_the_owner_only(results: ResultFolder) -> None:
    """Results hold other people's data."""
    old = os.umask(0)
    try:
        location = Path(results.keep_bytes(b"data", ID))
    finally:
        os.umask(old)
    assert location.stat().st_mode & 0o777 == 0o600
    foreign = results.temporary() / "foreign"
    foreign.write_bytes(b"x")
    foreign.chmod(0o644)
    assert Path(results.keep(foreign, ID, ".x")).stat().st_mode & 0o777 == 0o600
    for folder in (results.root, location.parent, results.temporary()):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_the_same_result_twice_is_one_file(results: ResultFolder) -> None:
    """After a crash between storing and recording, the result is fetched again."""
    assert results.keep_bytes(b"data", ID) == results.keep_bytes(b"data", ID)
    assert [path.name for path in results.root.rglob("op_*")] == [ID]
    assert leftovers(results) == []


def test_nothing_is_ever_replaced(results: ResultFolder) -> None:
    """An accepted result is evidence: another content gets another name, always the same one."""
    first = results.keep_bytes(b"data", ID, ".json")
    second = results.keep_bytes(b"xata", ID, ".json")
    third = results.keep_bytes(b"longer data", ID, ".json")
    assert len({first, second, third}) == 3
    assert results.keep_bytes(b"xata", ID, ".json") == second
    assert [content(results, place) for place in (first, second, third)] == [b"data", b"xata", b"longer data"]
    Path(second).write_bytes(b"changed by somebody")
    with pytest.raises(StoreUnavailable, match="two other files"):
        results.keep_bytes(b"xata", ID, ".json")
    assert leftovers(results) == []


def test_without_hard_links_the_same_holds(results: ResultFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network file systems have none."""

    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    first = results.keep_bytes(b"data", ID)
    assert results.keep_bytes(b"data", ID) == first
    second = results.keep_bytes(b"other", ID)
    assert [content(results, place) for place in (first, second)] == [b"data", b"other"]
    assert leftovers(results) == []


def test_a_kept_file_is_on_the_disk_before_its_name_is(results: ResultFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes, then name, then folder: in any other order a power cut leaves a name without its bytes."""
    steps: list[str] = []
    real_sync, real_link = os.fsync, Path.hardlink_to

    def sync(number: int) -> None:
        place = Path(f"/proc/self/fd/{number}").resolve()
        steps.append("folder" if place.is_dir() else "bytes")
        real_sync(number)

    def link(path: Path, target: Path) -> None:
        steps.append("name")
        real_link(path, target)

    results.keep_bytes(b"warm up", ID + "x9D")
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "hardlink_to", link)
    results.keep_bytes(b"data", ID)
    assert steps == ["bytes", "name", "folder"]


@pytest.mark.parametrize(
    ("operation_id", "suffix"),
    [
        ("../x", ""),
        ("a/b", ""),
        ("", ""),
        ("ab", ""),
        ("op_1\n", ""),
        (ID, "/../x"),
        (ID, "csv"),
        (ID, ".c/v"),
        (ID, ".."),
    ],
)
def test_names_cannot_lead_elsewhere(results: ResultFolder, operation_id: str, suffix: str) -> None:
    """A suffix may come from what a provider said."""
    with pytest.raises(ValueError, match="not fit"):
        results.keep_bytes(b"x", operation_id, suffix)
    assert leftovers(results) == []


def test_only_results_can_be_opened(results: ResultFolder, tmp_path: Path) -> None:
    """A location in a record is not a way to read any file there is."""
    kept = Path(results.keep_bytes(b"data", ID))
    outside = tmp_path / "secret"
    outside.write_bytes(b"x")
    (results.root / "link").symlink_to(outside)
    relative = os.path.relpath(kept)
    for place in (str(outside), str(results.root / ".." / ".." / "secret"), relative):
        with pytest.raises(Refused, match="not in the folder"):
            results.open(place)
    with pytest.raises(Gone, match="any more"):
        results.open(str(results.root / "gone"))
    with pytest.raises(StoreUnavailable, match="is not there"):  # a disk that is not mounted
        ResultFolder(tmp_path / "away").open(str(tmp_path / "away" / "x"))
    (results.root / "folder").mkdir()
    with pytest.raises(Gone, match="not the file"):
        results.open(str(results.root / "folder"))


def test_the_sweep_takes_old_unfinished_files_only(results: ResultFolder) -> None:
    """A transfer under way must not lose its file, nor a kept result its name."""
    kept = Path(results.keep_bytes(b"data", ID))
    old, new = (results.temporary() / name for name in ("old.part", "new.part"))
    now = datetime(2026, 11, 29, 12, tzinfo=UTC)
    for path, age in ((old, 3600), (new, 10), (kept, 9999)):
        path.write_bytes(b"x")
        os.utime(path, (now.timestamp() - age,) * 2)
    assert results.sweep(now - timedelta(minutes=30)) == 1
    assert [old.exists(), new.exists(), kept.exists()] == [False, True, True]
    assert results.sweep(now - timedelta(minutes=30)) == 0


@pytest.mark.parametrize("text", ["s3://bucket/results", "gs://b", "file:///x"])
def test_a_folder_is_no_object_store(text: str) -> None:
    """A URL must not quietly become a folder called "s3:"."""
    with pytest.raises(ConfigWrong, match="path of a folder is needed"):
        ResultFolder.from_setting(text)


def test_the_setting_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths and ~ are what people write."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert ResultFolder.from_setting("~/r").root == tmp_path / "r"
    assert ResultFolder.from_setting("r").root == tmp_path / "r"
    with pytest.raises(ConfigWrong, match="empty"):
        ResultFolder.from_setting("  ")


def fill_up(*_: Any) -> None:
    """What a full disk does."""
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("call", ["fsync", "fdopen"])
def test_a_full_disk_is_told_and_leaves_nothing(
    results: ResultFolder, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The worker tries again later; what it had must not look whole, nor fill the disk further."""
    results.keep_bytes(b"before", ID + "x9D")
    monkeypatch.setattr(os, call, fill_up)
    with pytest.raises(StoreUnavailable, match="No space left"):
        results.keep_bytes(b"data", ID)
    monkeypatch.undo()
    assert [path.name for path in results.root.rglob("op_*")] == [ID + "x9D"]
    assert leftovers(results) == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """A mistyped path is found at the first use, in one sentence."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        ResultFolder(tmp_path / "file" / "x").temporary()


def test_a_partial_file_is_gone_when_it_is_discarded(tmp_path: Path) -> None:
    """Whether nothing, something or all was written, or it was moved away."""
    for writes in (0, 1):
        partial = Partial(tmp_path)
        for _ in range(writes):
            partial.write(b"x")
        partial.discard()
        partial.discard()
        assert list(tmp_path.iterdir()) == []
    partial = Partial(tmp_path)
    partial.close().rename(tmp_path / "kept")
    partial.discard()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan, progress and anchor files are read back after any crash."""
    path = tmp_path / "plan.json"
    atomic_write(path, b"one")
    atomic_write(path, b"two")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"two", 0o600)
    monkeypatch.setattr(os, "fsync", fill_up)
    with pytest.raises(StoreUnavailable):
        atomic_write(path, b"three")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_written_out_leaves_devices_and_links_what_they_are(tmp_path: Path) -> None:
    """A person who names /dev/null, a pipe or a link means what stands there, not a file in its place."""
    target, link = tmp_path / "packet.md", tmp_path / "latest.md"
    link.symlink_to(target)
    write_out(link, b"one")
    assert link.is_symlink()
    assert target.read_bytes() == b"one"
    write_out(Path("/dev/null"), b"two")
    assert Path("/dev/null").is_char_device()


def test_a_copy_takes_the_place_of_a_regular_file_only(tmp_path: Path) -> None:
    """Outside data must not go to a device, nor through a link to a file that nobody named."""
    place, link, folder = tmp_path / "out.csv", tmp_path / "link", tmp_path / "folder"
    folder.mkdir()
    copy_out(iter([b"one", b""]), place)
    copy_out([b"t", b"wo"], place)
    assert (place.read_bytes(), place.stat().st_mode & 0o777) == (b"two", 0o600)
    link.symlink_to(place)
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    for name, why in (
        (link, "is a link"),
        (tmp_path / "dangling", "is a link"),
        (folder, "is a folder"),
        (tmp_path / "pipe", "no regular file"),
        (Path("/dev/null"), "no regular file"),
        (tmp_path / "none" / "x", "no folder"),
        (place / "x", "Not a directory|no folder"),
    ):
        with pytest.raises(UsageError, match=why):
            copy_out([b"three"], name)
    assert place.read_bytes() == b"two"
    assert len(list(tmp_path.iterdir())) == 5


def test_a_copy_that_breaks_off_leaves_the_old_file(tmp_path: Path) -> None:
    """Half a result under the name of a whole one would be taken for it."""

    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise StoreUnavailable("the store went away")

    place = tmp_path / "out.csv"
    place.write_bytes(b"old")
    with pytest.raises(StoreUnavailable, match="went away"):
        copy_out(pieces(), place)
    assert place.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [place]


def test_a_note_of_progress_is_read_while_it_is_fresh(tmp_path: Path) -> None:
    """Another process says how far a download is; what a crash left behind, or somebody scribbled, says nothing."""
    now = datetime.now(UTC)
    assert read_progress(tmp_path, ID, now) is None
    note_progress(tmp_path, ID, 312, 2000)
    assert read_progress(tmp_path, ID, now) == (312, 2000)
    note_progress(tmp_path, ID, 400, None)
    assert read_progress(tmp_path, ID, now) == (400, None)
    assert read_progress(tmp_path, ID, now + timedelta(seconds=60)) is None
    (tmp_path / f"{ID}.progress").write_text("1e99 x\n")
    assert read_progress(tmp_path, ID, now) is None
    forget_progress(tmp_path, ID)
    forget_progress(tmp_path, ID)
    assert list(tmp_path.iterdir()) == []
    note_progress(tmp_path / "none", ID, 1, 2)  # a disk that takes none is told where the result is written


def test_what_has_taken_the_place_of_a_result_is_neither_followed_nor_waited_for(
    results: ResultFolder, tmp_path: Path
) -> None:
    """A link could lead to any file, and a pipe would be read for ever: both are not what was stored."""
    outside = tmp_path / "secret"
    outside.write_bytes(b"x")
    kept = Path(results.keep_bytes(b"data", ID))
    for put in (lambda: kept.symlink_to(outside), lambda: os.mkfifo(kept), kept.mkdir):
        kept.unlink()
        put()
        with pytest.raises(Gone, match="not the file that was stored"):
            results.open(str(kept))
        if kept.is_dir() and not kept.is_symlink():
            kept.rmdir()
            kept.touch()
