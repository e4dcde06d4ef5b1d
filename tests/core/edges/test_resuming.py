"""What a broken transfer may be gone on with: the rest of exactly the same thing, and of nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from opledger.edges.streams import Rest, Sink

TAG = '"v1"'
DATE = "Sun, 29 Nov 2026 10:00:00 GMT"
NOW = "Sun, 29 Nov 2026 19:00:00 GMT"


def rest(tmp_path: Path, **headers: str) -> Rest:
    """Half of ten bytes."""
    sink = Sink.__new__(Sink)
    del tmp_path
    given = {"accept-ranges": "bytes", "content-length": "10", **{k.replace("_", "-"): v for k, v in headers.items()}}
    found = Rest.of(sink, 200, given, 5)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("headers", "fits"),
    [
        ({"etag": TAG, "content-range": "bytes 5-9/10"}, True),
        ({"content-range": "bytes 5-9/10"}, False),  # it does not say what it is a part of
        ({"etag": '"v2"', "content-range": "bytes 5-9/10"}, False),
        ({"etag": TAG, "content-range": "bytes 4-9/10"}, False),
        ({"etag": TAG, "content-range": "bytes 5-9/11"}, False),
        ({"etag": TAG, "content-range": "bytes 5-9/10", "content-encoding": "gzip"}, False),
        ({"etag": TAG}, False),
    ],
)
def test_a_part_must_name_the_tag_of_the_whole(tmp_path: Path, headers: dict[str, str], fits: bool) -> None:
    """The tag of the 200 must stand in the 206 (RFC 9110 §15.3.7); else two versions become one file."""
    assert rest(tmp_path, etag=TAG).fits(headers) is fits


def test_a_part_that_was_asked_for_by_date_may_leave_the_date_out(tmp_path: Path) -> None:
    """As RFC 9110 allows it; another date is another thing."""
    by_date = rest(tmp_path, last_modified=DATE, date=NOW)
    assert by_date.fits({"content-range": "bytes 5-9/10"})
    assert by_date.fits({"content-range": "bytes 5-9/10", "last-modified": DATE})
    assert not by_date.fits({"content-range": "bytes 5-9/10", "last-modified": NOW})
