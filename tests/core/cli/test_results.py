from __future__ import annotations

import hashlib
import os
import pty
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from opledger.edges.stores import open_store
from opledger.rules import evidence as e
from opledger.rules.model import Means, StoredResult
from tests.core.cli.conftest import Terminal
from tests.core.ledgers import RUNNING, happens, observed

DATA = bytes(range(256)) * 40 + b"\r\n\x1b[2J"
SHA = hashlib.sha256(DATA).hexdigest()


def seen(terminal: Terminal, *arguments: str) -> str:
    """What a person sees on a terminal that stands behind both outputs; the command must end well."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "opledger.cli", *arguments]
    ran = subprocess.Popen(command, cwd=terminal.root, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL)
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(ours, 4096):
            said += chunk
    except OSError:  # the other side has ended
        pass
    finally:
        os.close(ours)
    assert ran.wait(60) == 0
    return said.decode()


@pytest.fixture
def done(terminal: Terminal) -> str:
    """The id of an operation that has a result; its bytes would clear a terminal."""
    return stored(terminal, DATA)


def stored(terminal: Terminal, data: bytes) -> str:
    """The id of an operation with this result."""
    op_id = terminal.submit()
    with terminal.ledger() as ledger:
        op = happens(ledger, op_id, *RUNNING, observed("done", Means.SUCCEEDED))
        location = open_store(ledger.settings.results).keep_bytes(data, op_id, ".bin")
        sha256 = hashlib.sha256(data).hexdigest()
        result = StoredResult(location, len(data), sha256, "application/x", validated=True)
        happens(ledger, op, e.ResultAccepted(call_id="call_2", result=result))
    return op_id


def location_of(terminal: Terminal, op_id: str) -> Path:
    """Where the result lies."""
    return Path(terminal("show", op_id, "--json").json["result"]["location"])


def test_the_bytes_go_to_standard_output_as_they_are(terminal: Terminal, done: str) -> None:
    """No line ending, no encoding and no word of ours may get between; this is for pipes."""
    for flags in ([], ["--out", "-"]):
        command = [sys.executable, "-m", "opledger.cli", "result", done, *flags]
        ran = subprocess.run(command, cwd=terminal.root, capture_output=True, check=True)
        assert (ran.stdout, ran.stderr) == (DATA, b"")


def test_a_terminal_gets_a_sentence_and_never_the_bytes(terminal: Terminal, done: str) -> None:
    """Outside bytes drive a terminal: they clear it, write its clipboard, forge what stands there."""
    text = seen(terminal, "result", done)
    assert str(location_of(terminal, done)) in text
    assert "give --out FILE" in text
    assert "\x1b" not in text


def test_out_writes_a_file_and_says_so(terminal: Terminal, done: str) -> None:
    """For people a sentence, for programs one document; the file is for its owner only and replaces an older one."""
    place = terminal.root / "got.bin"
    place.write_bytes(b"old")
    said = terminal("result", done, "--out", "got.bin")
    assert (said.code, said.err) == (0, "")
    assert "stands in got.bin" in said.out
    assert (place.read_bytes(), place.stat().st_mode & 0o777) == (DATA, 0o600)
    document = terminal("result", done, "--out", "other.bin", "--json").json
    assert (terminal.root / "other.bin").read_bytes() == DATA
    assert document == {
        "operation_id": done,
        "state": "succeeded",
        "also": None,
        "location": str(location_of(terminal, done)),
        "size": len(DATA),
        "sha256": SHA,
        "content_type": "application/x",
        "validated": True,
        "problems": [],
        "file": "other.bin",
    }


def test_json_without_out_is_a_document_and_no_bytes(terminal: Terminal, done: str) -> None:
    """With --json there is exactly one document on standard output."""
    said = terminal("result", done, "--json")
    assert (said.code, said.json["file"], said.json["sha256"]) == (0, None, SHA)


def test_out_never_goes_through_a_link_to_a_device_or_over_the_stored_result(terminal: Terminal, done: str) -> None:
    """Bytes of somebody else must land in the file that was named, or nowhere."""
    kept = location_of(terminal, done)
    target = terminal.root / "target"
    target.write_bytes(b"precious")
    (terminal.root / "link").symlink_to(target)
    (terminal.root / "hard").hardlink_to(kept)
    for name, why in (
        ("link", "is a link"),
        ("/dev/null", "no regular file"),
        (str(terminal.root), "is a folder"),
        ("none/x", "there is no folder"),
        (str(kept), "is the stored result itself"),
        ("hard", "is the stored result itself"),
    ):
        said = terminal("result", done, "--out", name)
        assert (said.code, said.out) == (2, ""), name
        assert why in said.err
    # Said before anything is read: gigabytes may stand between.
    assert terminal("result", "op_nobody", "--out", "link").code == 2
    assert target.read_bytes() == b"precious"
    assert kept.read_bytes() == DATA


@pytest.mark.parametrize("out", [(), ("--out", "got.bin")])
def test_a_result_that_was_changed_is_exit_4_and_nothing_comes_out(
    terminal: Terminal, done: str, out: tuple[str, ...]
) -> None:
    """Whoever pipes a result into a payment run must not get one altered byte before the exit code."""
    location_of(terminal, done).write_bytes(DATA[:-1] + b"K")
    said = terminal("result", done, *out)
    assert (said.code, said.out) == (4, "")
    assert "is not what was stored" in said.err
    assert not (terminal.root / "got.bin").exists()
    assert terminal("result", done, *out, "--json").error["code"] == "integrity"


def test_gone_is_4_and_a_store_that_is_away_is_5(terminal: Terminal, done: str) -> None:
    """A removed result is a finding; a disk that is not mounted is not, and passes."""
    kept = location_of(terminal, done)
    kept.unlink()
    assert terminal("result", done, "--json").error["code"] == "integrity"
    assert terminal("result", done).code == 4
    kept.parents[1].rename(terminal.root / "away")
    assert terminal("result", done).code == 5


def test_no_result_is_3_with_the_reason(terminal: Terminal) -> None:
    """Scripts stop, people read why."""
    said = terminal("result", terminal.submit())
    assert (said.code, said.out) == (3, "")
    assert "it is create_pending, so there is none yet" in said.err
    assert terminal("result", "op_nobody").code == 3


def test_what_failed_its_checks_comes_with_a_word_on_standard_error(terminal: Terminal) -> None:
    """It is handed over to be looked at, and nobody may take it for a good one; its own text is made inert."""
    op_id = terminal.submit()
    with terminal.ledger() as ledger:
        op = happens(ledger, op_id, *RUNNING, observed("done", Means.SUCCEEDED))
        location = open_store(ledger.settings.results).keep_bytes(DATA, op_id, ".bin")
        problems = ("a\x1b[2Jb",)
        result = StoredResult(location, len(DATA), SHA, None, validated=False, problems=problems)
        happens(ledger, op, e.ResultInvalid(call_id="call_2", why="x", problems=problems, result=result))
    said = terminal.process("result", op_id, "--out", "got.bin")
    assert said.code == 0
    assert "did not pass its checks" in said.err
    assert "\x1b" not in said.err
    assert terminal("result", op_id, "--json").json["validated"] is False


def test_a_store_that_cannot_be_used_is_said(terminal: Terminal, done: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that is wrong is told as such, also by doctor, and not as a missing result."""
    monkeypatch.setenv("OPLEDGER_RESULTS", "s3://user:secret@bucket")
    for command in (("result", done), ("worker", "--once")):
        said = terminal(*command)
        assert said.code == 3
        assert "OPLEDGER_RESULTS must be" in said.err
        assert "secret" not in said.err.replace("credentials", "")
    checks = {check["name"]: check for check in terminal("doctor", "--json").json["checks"]}
    assert checks["results"]["ok"] is False


def test_a_reader_that_goes_away_is_no_error(terminal: Terminal, done: str) -> None:
    """``opledger result OP | head -c 10`` is an ordinary thing to do."""
    kept = location_of(terminal, done)
    assert kept.stat().st_size > 10
    command = f"{sys.executable} -m opledger.cli result {done} | head -c 10 >/dev/null; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", command], cwd=terminal.root, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() in ("0", "141")
    assert ran.stderr == ""


def test_people_see_how_far_the_look_at_a_large_result_is(terminal: Terminal) -> None:
    """On standard error, in one line that goes away; not where nobody looks, and not for programs."""
    op_id = stored(terminal, DATA * 3300)
    text = seen(terminal, "result", op_id, "--out", "large.bin")
    assert " of 34 MB looked at" in text
    assert "\rThe result (34 MB, application/x) stands in large.bin." in text
    said = terminal.process("result", op_id, "--out", "large.bin")
    assert (said.code, said.err) == (0, "")
    assert "looked at" not in seen(terminal, "result", op_id, "--json")


def ran(terminal: Terminal, *arguments: str, out: str | None = None, most: int | None = None) -> tuple[int, str]:
    """Run a command of its own process, with another standard output, or on a disk that takes only so many bytes."""

    def limit() -> None:
        if most is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    command = [sys.executable, "-m", "opledger.cli", *arguments]
    with Path(out or os.devnull).open("wb") as sink:
        done = subprocess.run(
            command, cwd=terminal.root, stdout=sink, stderr=subprocess.PIPE, preexec_fn=limit, timeout=60, check=False
        )
    return done.returncode, done.stderr.decode()


FULL_DEVICE = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")


@FULL_DEVICE
@pytest.mark.parametrize("size", [10, 1_000_000])
def test_an_output_that_is_full_is_told(terminal: Terminal, size: int) -> None:
    """A sentence and an exit code; whoever goes on after a 0 would go on with half a file."""
    op_id = stored(terminal, b"x" * size)
    code, said = ran(terminal, "result", op_id, out="/dev/full")
    assert code == 5
    assert said == (
        "standard output cannot be written: No space left on device; what stands there is not whole, and is not to be "
        "used\n"
    )


@FULL_DEVICE
@pytest.mark.parametrize("arguments", [["show"], ["show", "--json"], ["events", "--json"], ["result", "--json"]])
def test_so_it_is_for_every_command(terminal: Terminal, done: str, arguments: list[str]) -> None:
    """Also where what is printed is small, and would be written only at the very end."""
    code, said = ran(terminal, arguments[0], done, *arguments[1:], out="/dev/full")
    assert code == 5
    assert "standard output cannot be written: No space left on device" in said
    assert said.count("\n") == 1


def test_a_file_that_does_not_fit_is_not_left_in_half(terminal: Terminal) -> None:
    """The disk is full in the middle: what stood there before still stands, and nothing lies beside it."""
    op_id = stored(terminal, b"x" * 4_000_000)
    out = terminal.root / "out" / "report"
    out.parent.mkdir()
    out.write_text("the old one")
    code, said = ran(terminal, "result", op_id, "--out", str(out), most=1_000_000)
    assert code == 5
    assert said.startswith(f"files in {out.parent} cannot be written: ")
    assert "Traceback" not in said
    assert out.read_text() == "the old one"
    assert list(out.parent.iterdir()) == [out]


def test_results_in_memory_are_none(terminal: Terminal, done: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker would put them where nobody ever finds them; it says so before it starts."""
    monkeypatch.setenv("OPLEDGER_RESULTS", "memory:")
    for arguments in (["worker", "--once"], ["result", done]):
        refused = terminal(*arguments)
        assert refused.code == 3
        assert "keeps results in one process and only until it ends; name a folder" in refused.err
