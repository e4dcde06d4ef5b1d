from __future__ import annotations

import logging
from pathlib import Path

import pytest

from opledger.edges.clock import SystemClock
from opledger.edges.files import NOTE_EVERY, read_progress
from opledger.worker.progress import Shown


class Hands(SystemClock):
    """A clock whose monotonic side is moved by hand."""

    at = 100.0

    def monotonic(self) -> float:
        """Return what was set."""
        return self.at


def test_a_download_is_shown_every_few_seconds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In the log and beside the file; a small one is over before, and leaves nothing at all."""
    clock = Hands()
    shown = Shown(tmp_path, "op_1", clock)
    with caplog.at_level(logging.INFO, "opledger.worker"):
        shown.begin({"content-length": "2000"})
        shown.add(500)
        assert list(tmp_path.iterdir()) == []
        clock.at += NOTE_EVERY
        shown.add(500)
        shown.add(500)
        assert read_progress(tmp_path, "op_1", clock.now()) == (1000, 2000)
        clock.at += NOTE_EVERY
        shown.add(100)
        assert read_progress(tmp_path, "op_1", clock.now()) == (1600, 2000)
        shown.end()
    assert list(tmp_path.iterdir()) == []
    assert [record.getMessage() for record in caplog.records] == [
        "op_1: collecting, 1000 bytes of 2000 are here",
        "op_1: collecting, 1600 bytes of 2000 are here",
    ]


@pytest.mark.parametrize(
    ("headers", "total"),
    [
        ({}, None),
        ({"content-length": "many"}, None),
        ({"content-length": "\u0662"}, None),
        ({"content-length": "90", "content-encoding": "gzip"}, None),
        ({"content-length": "90", "content-encoding": "identity"}, 90),
    ],
)
def test_the_total_is_what_the_head_says_or_nothing(tmp_path: Path, headers: dict[str, str], total: int | None) -> None:
    """A length of packed bytes is not how much there is to come."""
    clock = Hands()
    shown = Shown(tmp_path, "op_1", clock)
    shown.add(1000)  # of a try before this one
    shown.begin(headers)
    clock.at += NOTE_EVERY
    shown.add(5)
    assert read_progress(tmp_path, "op_1", clock.now()) == (5, total)
