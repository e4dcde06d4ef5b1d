"""The short forms of T7 and T8, shorter still; and what they found in the product, each with its smallest test.

``python -m tests.disk faults`` and ``power`` go on from here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from opledger.edges.files import ResultFolder, remove_spare
from opledger.service import _is_told
from tests.disk.events import Call
from tests.disk.faults import KINDS, Striker
from tests.disk.images import Disk
from tests.disk.programme import _One, _tries
from tests.disk.recorder import Mark, Trace
from tests.disk.vfs import Unreachable, library

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> str:
    """Run the harness, and return what it printed; it found nothing, and was caught at every damage."""
    try:
        library()
    except Unreachable as error:
        pytest.skip(str(error))
    paths = [str(ROOT), str(ROOT / "core"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "tests.disk", *arguments, "--jobs", "1"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.processes
@pytest.mark.slow
def test_no_power_cut_takes_what_was_acknowledged() -> None:
    """And four damaged products lose something: commits, files, names."""
    told = run("power", "--only", "ideal", "--images", "150")
    assert "0 lost, 0 half, 0 damaged, 0 unclean, 0 ahead: 0 violations" in told
    assert told.count("damaged product:") == 4


@pytest.mark.processes
@pytest.mark.slow
def test_a_failing_disk_costs_nothing_but_time() -> None:
    """Struck once in each room; and three damaged products are found out."""
    told = run("faults", "--only", "ideal", "--kind", "eio", "--calls", "database sync,files write")
    assert "2 cases in 1 stories" in told
    assert told.count("damaged product:") == 3


def test_a_kind_of_call_is_struck_by_its_own_number() -> None:
    """How many others come before it depends on who was faster; what lasts strikes all that follow it."""
    log, result = Call("write", "l", b"x", room="database"), Call("write", "r", b"x")
    said: list[Any] = []
    once = Striker(KINDS["eio"], 2, said.append, "files write")
    refused = [once.before(call) is not None for call in (log, result, log, log, result, result, log)]
    assert refused == [False, False, False, False, True, False, False]
    assert said == [{"struck": "files write", "file": "r"}]
    lasting = Striker(KINDS["eio-lasts"], 1, said.append, "files write")
    assert [lasting.before(call) is not None for call in (log, result, log)] == [False, True, True]


def test_a_kind_of_call_that_did_not_come_so_often_is_struck_at_its_first() -> None:
    """And behind the last call it goes on until a run is clean."""
    assert list(_tries(_One("ideal", "eio", 3, "files write"), 9)) == [3, 1]
    assert list(_tries(_One("ideal", "eio", 1, "files write"), 9)) == [1]
    assert list(_tries(_One("ideal", "eio", 4), 9)) == [4]
    assert list(islice(_tries(_One("ideal", "eio", 10), 9), 3)) == [10, 11, 12]


# --- the model of a disk ---------------------------------------------------------------------------------------------


def test_a_disk_keeps_what_was_synced_and_any_mixture_of_the_rest() -> None:
    """Four writes, one of them safe: eight mixtures of the others, and the safe one in each."""
    trace = Trace("-", "/", {}, frozenset())
    trace.entries += [Call("open", "f", made=True), Call("write", "f", b"a" * 512, 0), Call("sync", "f")]
    trace.entries += [Call("syncdir", ""), Mark(1, acknowledged=True)]
    trace.entries += [Call("write", "f", letter * 512, 512 * at) for at, letter in enumerate((b"b", b"c", b"d"), 1)]
    disk = Disk(trace)
    for entry in trace.entries:
        disk.play(entry)
    random = Random(1)
    seen = {image.bytes_of("f") for _ in range(20) for image in disk.images(random)}
    assert all(data.startswith(b"a" * 512) for data in seen)
    assert len(seen) == 8
    assert {image.acknowledged for image in disk.images(random)} == {1}


def test_a_name_is_there_for_certain_once_its_folder_was_synced() -> None:
    """Before, a file that was written and synced may have no name; afterwards it has."""
    trace = Trace("-", "/", {}, frozenset())
    disk = Disk(trace)
    for call in (Call("mkdir", "d"), Call("open", "d/f", made=True), Call("sync", "d/f"), Call("syncdir", "d")):
        disk.play(call)
    assert {bool(image.files) for image in disk.images(Random(1))} == {True, False}  # the folder itself has no name yet
    disk.play(Call("syncdir", ""))
    assert {bool(image.files) for image in disk.images(Random(1))} == {True}


def test_a_write_may_be_torn_between_sectors_only() -> None:
    """Whatever is left of it begins and ends where sectors do."""
    disk = Disk(Trace("-", "/", {"f": bytes(2048)}, frozenset()))
    disk.play(Call("write", "f", b"x" * 1024, 256))
    seen = {image.bytes_of("f") for _ in range(20) for image in disk.images(Random(_))}
    pieces = [(256, 512), (512, 1024), (1024, 1280)]
    for data in seen:
        assert all(data[start:end] in (bytes(end - start), b"x" * (end - start)) for start, end in pieces)
    assert len(seen) == 8


# --- what they found -------------------------------------------------------------------------------------------------


def test_a_spare_file_that_cannot_be_removed_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk refused to remove what was downloaded, after the result was kept: the worker went down over it."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(5, "Input/output error")

    folder = ResultFolder(tmp_path / "results")
    path = folder.temporary() / "spare.part"
    path.write_bytes(b"data")
    monkeypatch.setattr(os, "unlink", refuse)
    kept = folder.keep(path, "op_0123456789", ".csv")
    remove_spare(path)
    assert Path(kept).read_bytes() == b"data"
    assert path.exists()


def test_a_job_that_is_called_off_with_its_worker_is_no_error() -> None:
    """A heartbeat under way while the worker stopped was logged with a traceback; one that breaks still is."""

    def record(error: BaseException) -> logging.LogRecord:
        return logging.LogRecord("apscheduler", logging.ERROR, "", 0, "", None, (type(error), error, None))

    assert not _is_told(record(asyncio.CancelledError()))
    assert _is_told(record(ValueError()))
