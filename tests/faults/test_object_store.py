"""Killed while a result is on its way into an object store: it is there whole, or not there at all."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from opledger.edges.stores import PIECE
from opledger.rules.model import State
from tests.faults.lab import Lab
from tests.faults.victim import Strike
from tests.support.objects import S3, SECRET, s3_server

ROWS = 200_000  #: so many rows are more than one part

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    """One S3 server for all tests here."""
    with s3_server() as running:
        yield running


@pytest.fixture
def bucket(server: S3, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> S3:
    """An empty bucket for the results of the lab."""
    settings = {
        **server.environment,
        "XDG_CACHE_HOME": str(lab.folder / "cache"),
        "OPLEDGER_RESULTS": f"s3://{server.bucket}/r",
    }
    lab.environment |= settings
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    server.empty()
    return server


@pytest.mark.parametrize(
    ("effect", "nth"),
    [
        ("before upload", 1),
        ("before piece", 3),  # some of a part is on its way
        ("before piece", 8),  # a part is there
        ("after upload", 1),
        ("before piece", 10),  # while it is read back
        ("before record ResultAccepted", 1),
        ("after record ResultAccepted", 1),
    ],
)
def test_killed_on_the_way_into_a_bucket(lab: Lab, bucket: S3, effect: str, nth: int) -> None:
    """The next worker fetches it again, or finds it there; at the end one object stands, the one that was recorded."""
    lab.contract(collect="60s")
    operation = lab.submit(_polls=1, rows=ROWS)
    hand = lab.worker(Strike(at=effect, nth=nth), until_idle=True)
    assert hand.ends() == -signal.SIGKILL, hand.tail()
    early = effect == "before upload" or (effect == "before piece" and nth < 10)
    assert len(bucket.objects()) == (0 if early else 1)
    if not effect.startswith("after record"):
        assert lab.show(operation).result is None
    lab.finish()
    found = lab.show(operation)
    assert found.state is State.SUCCEEDED
    assert found.result is not None
    assert found.result.size > PIECE
    assert [f"s3://{bucket.bucket}/{key}" for key in bucket.objects()] == [found.result.location]
    with lab.ledger.result(found.operation_id) as handed:
        assert handed.file.sha256 == found.result.sha256
    logs = "".join(path.read_text() for path in Path(lab.folder).glob("*.log"))
    assert SECRET not in logs
    lab.honest()
