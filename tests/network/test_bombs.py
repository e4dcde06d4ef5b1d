"""Some bombs in every place, and a worker without its bounds, which must be caught."""

from __future__ import annotations

import pytest

from tests.network import bombs
from tests.network.bomber import NAMES, PLACES, _zstd
from tests.network.bombs import Round

PATIENCE = 20.0
"""Seconds that a machine with other things to do may take; ``python -m tests.network bombs`` says one."""

pytestmark = pytest.mark.processes


def test_bombs_cost_little_and_are_recorded_in_time() -> None:
    """A handful in each place, at the same time; the others are the long form."""
    handful = {
        "create": ("gzip", "continues", "drip"),
        "status": ("gzip", "zstd", "continues", "headers", "drip"),
        "list": ("deflate", "endless", "header-once"),
        "result": ("gzip", "deep", "drip-gigabyte"),
    }
    found = bombs.run([Round(place, names) for place, names in handful.items()], late=PATIENCE, limit=240)
    assert found.faults == []
    assert found.bombs == sum(map(len, handful.values()))
    assert set(handful) == set(PLACES)


def test_a_worker_that_unpacks_without_a_bound_is_caught() -> None:
    """The storm of interim answers has its own test at the edge: without that bound it costs ten seconds of CPU."""
    found = bombs.run([Round("status", ["deflate"])], late=PATIENCE, broken="unpacking", limit=240)
    assert any("MiB above the base" in fault for fault in found.faults)


def test_a_bomb_of_zstd_is_one() -> None:
    """Four bytes for 128 KiB; there is nothing here to unpack it with, and nothing needs to."""
    assert len(_zstd(8192)) < 40_000
    assert len(set(NAMES)) == len(NAMES) >= 30
