from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from opledger.edges.files import ResultFolder, note_progress
from opledger.edges.stores import open_store
from opledger.errors import IntegrityBroken, Refused, StoreUnavailable
from opledger.ledger import Ledger
from opledger.ledger.results import size_words
from opledger.rules import evidence as e
from opledger.rules.model import Means, Operation, StoredFile, StoredResult
from tests.core.ledgers import FAILED, RUNNING, Home, accepted, happens, observed, sent

DATA = b"id,name\n1,\x00\xff\n" * 200_000  # more than two pieces
COLLECTING = (*RUNNING, observed("done", Means.SUCCEEDED))
OTHER = (sent(), accepted("job_8"), observed("done", Means.SUCCEEDED, "job_8"))


def stored(location: str, data: bytes = DATA, **more: Any) -> StoredResult:
    """A result as the record has it."""
    facts = {"validated": True, **more}
    return StoredResult(location, len(data), hashlib.sha256(data).hexdigest(), "text/csv", **facts)


@pytest.fixture(params=["folder", "memory"])
def setting(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where results are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return str(tmp_path / "kept") if request.param == "folder" else f"memory://{tmp_path.name}-{os.getpid()}"


@pytest.fixture
def opened(tmp_path: Path, sqlite_url: str, setting: str) -> Iterator[Ledger]:
    """A ledger with that store."""
    home = Home(tmp_path, sqlite_url)
    with home.ledger(f'results = "{setting}"') as ledger:
        yield ledger


def succeeded(ledger: Ledger, data: bytes = DATA) -> Operation:
    """An operation with its result."""
    op = happens(ledger, ledger.submit("jobs", {"rows": 5}), *COLLECTING)
    location = open_store(ledger.settings.results).keep_bytes(data, op.operation_id, ".csv")
    return happens(ledger, op, e.ResultAccepted(call_id="call_2", result=stored(location, data)))


def location_of(op: Operation) -> str:
    """Where its result lies."""
    assert op.result is not None
    assert op.result.location is not None
    return op.result.location


@pytest.mark.parametrize("data", [DATA, b""], ids=["large", "empty"])
def test_a_result_is_handed_over_as_it_was_stored(opened: Ledger, data: bytes) -> None:
    """By path, by stream, in pieces; whoever asks is told how far the look is."""
    op = succeeded(opened, data)
    told: list[tuple[int, int]] = []
    with opened.result(op.operation_id[-8:], progress=lambda *how: told.append(how)) as found:
        assert found.path.read_bytes() == data
        assert found.stream().read() == data
        assert b"".join(found.pieces()) == data
        assert (found.file.size, found.file.location, found.remark()) == (len(data), location_of(op), None)
    assert told[-1:] == ([(len(data), len(data))] if data else [])
    assert [size for size, _ in told] == sorted({size for size, _ in told})


def test_a_copy_out_of_an_object_store_goes_when_it_is_closed(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the bytes turned out to be wrong: scratch must not fill up with other people's data."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Home(tmp_path, sqlite_url).ledger(f'results = "memory://scratch-{tmp_path.name}"') as ledger:
        scratch = open_store(ledger.settings.results).temporary()
        op = succeeded(ledger)
        with ledger.result(op.operation_id) as found:
            assert found.path.parent == scratch
        assert list(scratch.iterdir()) == []
        wrong = happens(ledger, ledger.submit("jobs", {"rows": 6}), *OTHER)
        wrong = happens(
            ledger, wrong, e.ResultAccepted(call_id="call_2", result=stored(location_of(op), DATA[:-1] + b"x"))
        )
        with pytest.raises(IntegrityBroken):
            ledger.result(wrong.operation_id)
        assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    "change", [DATA[:-1], DATA + b"x", DATA[:-1] + b"x", b""], ids=["short", "long", "other", "no"]
)
def test_a_result_that_was_changed_is_never_handed_over(tmp_path: Path, sqlite_url: str, change: bytes) -> None:
    """What was stored and what lies there now must be one; the sentence names both hashes."""
    with Home(tmp_path, sqlite_url).ledger(f'results = "{tmp_path / "kept"}"') as ledger:
        op = succeeded(ledger)
        Path(location_of(op)).write_bytes(change)
        with pytest.raises(IntegrityBroken, match="is not what was stored") as broken:
            ledger.result(op.operation_id)
        if len(change) > len(DATA):
            assert f"more than the {len(DATA)} bytes" in str(broken.value)
        else:
            assert all(hashlib.sha256(data).hexdigest() in str(broken.value) for data in (DATA, change))


def test_a_result_that_changes_while_it_is_handed_over_is_noticed(tmp_path: Path, sqlite_url: str) -> None:
    """A copy is looked at while it is made, not only before."""
    with Home(tmp_path, sqlite_url).ledger(f'results = "{tmp_path / "kept"}"') as ledger:
        op = succeeded(ledger)
        with ledger.result(op.operation_id) as found:
            found.path.write_bytes(DATA[:-1] + b"x")
            with pytest.raises(IntegrityBroken):
                b"".join(found.pieces())


def test_a_result_that_was_removed_is_told_from_a_store_that_is_away(tmp_path: Path, sqlite_url: str) -> None:
    """The one is a finding about the ledger's integrity; the other passes when the disk is mounted again."""
    with Home(tmp_path, sqlite_url).ledger(f'results = "{tmp_path / "kept"}"') as ledger:
        op = succeeded(ledger)
        Path(location_of(op)).unlink()
        with pytest.raises(IntegrityBroken, match="somebody removed it"):
            ledger.result(op.operation_id)
        (tmp_path / "kept").rename(tmp_path / "away")
        with pytest.raises(StoreUnavailable, match="is not there"):
            ledger.result(op.operation_id)


def test_a_result_of_another_store_is_not_looked_for_here(tmp_path: Path, sqlite_url: str) -> None:
    """A location in a record is not a way to read any file there is; the setting says where results may lie."""
    with Home(tmp_path, sqlite_url).ledger(f'results = "{tmp_path / "kept"}"') as ledger:
        outside = ResultFolder(tmp_path / "old").keep_bytes(DATA, "op_outside")
        op = happens(ledger, ledger.submit("jobs", {"rows": 5}), *COLLECTING)
        happens(ledger, op, e.ResultAccepted(call_id="call_2", result=stored(outside)))
        with pytest.raises(Refused, match="set OPLEDGER_RESULTS"):
            ledger.result(op.operation_id)


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (RUNNING, "it is observing, so there is none yet"),
        (FAILED, "it is failed"),
        ((*COLLECTING, e.ResultMissing(call_id="call_2", why="410 gone")), "it could not be had.*410 gone"),
    ],
    ids=["not yet", "never", "not to be had"],
)
def test_where_there_is_no_result_it_is_said_why(ledger: Ledger, evidence: tuple[e.Evidence, ...], why: str) -> None:
    """Not yet, never, and could not be had are three different things to whoever waits for it."""
    op = happens(ledger, ledger.submit("jobs", {"rows": 5}), *evidence)
    with pytest.raises(Refused, match=f"has no result: {why}"):
        ledger.result(op.operation_id)


def test_a_further_file_has_a_name(tmp_path: Path, sqlite_url: str) -> None:
    """Good rows and errors come in two files; each is handed over by itself, and a job may have errors only."""
    with Home(tmp_path, sqlite_url).ledger() as ledger:
        with pytest.raises(Refused, match="no further file 'errors'; there are: none"):
            ledger.result(succeeded(ledger).operation_id, also="errors")
        op = happens(ledger, ledger.submit("jobs", {"rows": 6}), *OTHER)
        errors = open_store(ledger.settings.results).keep_bytes(b"bad", op.operation_id, ".errors")
        file = StoredFile("errors", errors, 3, hashlib.sha256(b"bad").hexdigest())
        whole = StoredResult(None, 0, None, None, validated=True, also=(file,))
        happens(ledger, op, e.ResultAllItemsFailed(call_id="call_2", why="all 3 items failed", result=whole))
        with ledger.result(op.operation_id, also="errors") as found:
            assert (found.stream().read(), found.file) == (b"bad", file)
            assert found.remark() == "the operation is failed: this is what the provider had by then"
        with pytest.raises(Refused, match=r"the provider made none.*--also: errors"):
            ledger.result(op.operation_id)


def test_a_result_that_did_not_pass_is_handed_over_with_a_word(tmp_path: Path, sqlite_url: str) -> None:
    """People must see what came to decide about it, and must not take it for a good one."""
    with Home(tmp_path, sqlite_url).ledger() as ledger:
        op = happens(ledger, ledger.submit("jobs", {"rows": 5}), *COLLECTING)
        location = open_store(ledger.settings.results).keep_bytes(DATA, op.operation_id)
        result = stored(location, validated=False, problems=("3 of 4 rows",))
        happens(
            ledger, op, e.ResultInvalid(call_id="call_2", why="3 of 4 rows", problems=("3 of 4 rows",), result=result)
        )
        with ledger.result(op.operation_id) as found:
            assert found.remark() == "this result did not pass its checks: 3 of 4 rows"
            assert found.stream().read() == DATA


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (312_400_000, "312 MB"),
        (1_999_999_999, "2.0 GB"),
        (9_960_000, "10 MB"),
        (999_600, "1.0 MB"),
        (5 * 10**12, "5.0 TB"),
    ],
)
def test_sizes_are_said_as_people_say_them(count: int, words: str) -> None:
    """Two figures are enough, and never four."""
    assert size_words(count) == words


def test_explain_says_how_far_a_download_is(home: Home) -> None:
    """Who waits for two gigabytes wants to see them come; nothing of it is in the journal."""
    with home.ledger(f'results = "{home.root / "kept"}"') as ledger:
        op = happens(ledger, ledger.submit("jobs", {"rows": 5}), *COLLECTING)
        folder = open_store(ledger.settings.results).temporary()
        note_progress(folder, op.operation_id, 312_000_000, 2_000_000_000)
        assert "are here" not in ledger.explain(op.operation_id).why  # nobody is at work on it
        assert ledger.store.claim_one(op.operation_id, "w", timedelta(seconds=30), ledger.clock.now())
        assert ledger.explain(op.operation_id).why.endswith("Of the result 312 MB of 2.0 GB are here.")
        note_progress(folder, op.operation_id, 1_000, None)
        assert ledger.explain(op.operation_id).why.endswith("Of the result 1.0 kB are here.")
        assert len(ledger.events(op.operation_id)) == op.head_seq
