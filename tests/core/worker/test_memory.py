"""A worker's memory, whatever providers send: the loads of `make bench`, smaller, in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bench import memory

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """The provider, whose large results have 256 MiB."""
    with memory.provider(256) as base_url:
        yield base_url


@pytest.mark.parametrize("load", ["binary", "bombs", "bombs-as-status", "endless-as-status", "deep", "one-line"])
def test_a_worker_stays_within_its_bound(provider: str, load: str) -> None:
    """Four times the bound goes by, or what is made to fill it; `make bench` sends 2 GiB, and in every format."""
    figures = memory.measure(provider, load)
    assert figures["peak"] - figures["base"] <= memory.BOUND
