"""A database that is away is waited for, and told of once."""

from __future__ import annotations

import asyncio
import logging

import pytest

from opledger.errors import StoreUnavailable
from opledger.worker.absence import FIRST, LONGEST, Absence

AWAY = StoreUnavailable("the disk is full")


async def pauses(absence: Absence, monkeypatch: pytest.MonkeyPatch, tries: int) -> list[float]:
    """How long each of so many waits is, without waiting."""
    found: list[float] = []

    async def wait(_: object, **how: float) -> None:
        found.append(how["timeout"])

    monkeypatch.setattr(asyncio, "wait", wait)
    for _ in range(tries):
        await absence.wait(AWAY, asyncio.get_running_loop().create_future())
    return found


async def test_each_wait_is_twice_as_long_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk must not cost half a core, nor fill itself with what is logged about it."""
    found = await pauses(Absence(), monkeypatch, 10)
    assert found[:3] == [FIRST, 2 * FIRST, 4 * FIRST]
    assert found[-1] == LONGEST


async def test_it_is_said_once_when_it_goes_and_once_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And the next absence is waited for from the beginning."""
    absence = Absence()
    with caplog.at_level(logging.WARNING, "opledger.worker"):
        await pauses(absence, monkeypatch, 5)
        absence.over()
        absence.over()
    assert [record.message for record in caplog.records] == [
        "the database is away: the disk is full",
        "the database is back, after 5 tries",
    ]
    assert (await pauses(absence, monkeypatch, 1)) == [FIRST]
