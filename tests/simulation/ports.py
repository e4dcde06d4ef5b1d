"""Everything through which luck, time and threads reach the product, replaced for the length of a run."""

from __future__ import annotations

import logging
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, BinaryIO, Final

import ulid

from opledger import config
from opledger import worker as workers
from opledger.edges import clock as clocks
from opledger.edges import place
from opledger.edges.files import ResultFolder
from opledger.receiver import app as receiving
from opledger.rules.contract import Contract
from opledger.rules.files import contract as contract_files
from opledger.worker import commits as committing
from opledger.worker import known
from tests.simulation.loop import SimLoop, current

EPOCH: Final = datetime(2026, 11, 29, 12, tzinfo=UTC)
TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class SimClock:
    """The one host's clock: its time of day can be set wrong, its monotonic time cannot."""

    def __init__(self, loop: SimLoop, random: Random) -> None:
        self._loop = loop
        self._random = random
        self.step = 0.0
        self.stepped_at = -1.0
        self.back = False
        self.leaps: list[float] = []  #: when it was set ahead, in true seconds
        self._told = (0.0, EPOCH)

    def now(self) -> datetime:
        """Return what the host takes for the time of day."""
        seconds = self._loop.now + self.step
        if seconds != self._told[0]:  # it is asked several times before it moves
            self._told = (seconds, EPOCH + timedelta(seconds=seconds))
        return self._told[1]

    def true(self) -> datetime:
        """Return what everybody else takes for it."""
        return EPOCH + timedelta(seconds=self._loop.now)

    def monotonic(self) -> float:
        """Return seconds that never jump."""
        return self._loop.now

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return self._random.random()

    def jump(self, seconds: float) -> None:
        """Set the time of day wrong."""
        self.step += seconds
        self.stepped_at = self._loop.now
        self.back = self.back or seconds < 0
        if seconds > 0:
            self.leaps.append(self._loop.now)


class Results:
    """A folder of results whose locations are the same in every run."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._folder = ResultFolder.from_setting(str(root))

    def _plain(self, location: str) -> str:
        return location.replace(self._root, "/results")

    def path(self, location: str) -> Path:
        """Return where a location really is."""
        return Path(location.replace("/results", self._root, 1))

    def temporary(self) -> Path:
        """As the folder."""
        return self._folder.temporary()

    def sweep(self, older_than: datetime) -> int:
        """Nothing is old here."""
        return 0

    def check(self) -> None:
        """As the folder."""
        self._folder.check()

    def keep(self, path: Path, operation_id: str, suffix: str = "", *, going: Callable[[], bool] | None = None) -> str:
        """As the folder."""
        return self._plain(self._folder.keep(path, operation_id, suffix, going=going))

    def keep_bytes(self, data: bytes, operation_id: str, suffix: str = "") -> str:
        """As the folder."""
        return self._plain(self._folder.keep_bytes(data, operation_id, suffix))

    def open(self, location: str) -> BinaryIO:
        """As the folder."""
        return self._folder.open(str(self.path(location)))


class _Tokens:
    """In place of the module `secrets`."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def token_hex(self, size: int) -> str:
        return self._random.randbytes(size).hex()


class _Ids:
    """In place of the class `ULID`."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def from_datetime(self, moment: datetime) -> ulid.ULID:
        millis = int(moment.timestamp() * 1000)
        return ulid.ULID(millis.to_bytes(6, "big") + self._random.randbytes(10))


class _Watcher:
    """In place of the thread that watches the file: whoever simulates wakes the worker itself."""

    def start(self) -> None:
        """Nothing."""

    def join(self, timeout: float | None = None) -> None:
        """Nothing."""

    def is_alive(self) -> bool:
        """Return False."""
        return False


def _names(random: Random) -> Iterator[str]:
    while True:
        yield random.randbytes(6).hex()


@cache
def _parsed(source: str, name_hint: str, environment: tuple[tuple[str, str], ...]) -> Contract:
    return contract_files.parse(source, name_hint=name_hint, environment=dict(environment))


def _parse(source: str, *, name_hint: str, environment: Any) -> Contract:
    return _parsed(source, name_hint, tuple(sorted(environment.items())))


_find, _list = config.find_contract, config.list_contracts
_found: dict[tuple[object, ...], Any] = {}


def _find_once(settings: config.Settings, name: str) -> Contract:
    """Parse a contract once for all seeds: the files are the same, and what is made of them is frozen."""
    key = (settings.contracts, name)
    if key not in _found:
        _found[key] = _find(settings, name)
    contract: Contract = _found[key]
    return contract


def _list_once(settings: config.Settings) -> tuple[config.ContractFile, ...]:
    if settings.contracts not in _found:
        _found[settings.contracts] = _list(settings)
    files: tuple[config.ContractFile, ...] = _found[settings.contracts]
    return files


def _here() -> place.Place:
    return place.Place("simulated", f"{current().name}@20261129T120000Z")


@contextmanager
def replaced(random: Random, commits: type, http: type) -> Iterator[None]:
    """Take luck, threads and sockets away from the product, and give them back."""
    changes: list[tuple[Any, str, Any]] = [
        (clocks, "secrets", _Tokens(random)),
        (clocks, "ULID", _Ids(random)),
        (place, "here", _here),
        (workers, "Commits", commits),
        (workers, "Http", http),
        (workers, "wake_on_change", lambda *_: _Watcher()),
        (known, "parse", _parse),
        (config, "find_contract", _find_once),
        (config, "list_contracts", _list_once),
        (tempfile, "_name_sequence", _names(random)),
        (receiving, "UPKEEP", 240.0),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        for owner, name, other in changes:
            setattr(owner, name, other)
        yield
    finally:
        for owner, name, old in before:
            setattr(owner, name, old)
        logging.disable(disabled)


__all__ = ["EPOCH", "TLS", "Results", "SimClock", "committing", "replaced"]
