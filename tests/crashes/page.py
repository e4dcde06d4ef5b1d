"""A page of memory that all processes of one lane share: the time, and where somebody died."""

from __future__ import annotations

import mmap
import struct
from datetime import datetime, timedelta
from typing import Final

from opledger.edges.clock import SystemClock

_PASSED: Final = struct.Struct("d")
_STRUCK: Final = 16
_SIZE: Final = 4096


class Page:
    """Made before the first fork, and never written by two processes at once."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SIZE)

    @property
    def passed(self) -> float:
        """Seconds of virtual time since the story began."""
        return float(_PASSED.unpack_from(self._memory, 0)[0])

    @passed.setter
    def passed(self, seconds: float) -> None:
        _PASSED.pack_into(self._memory, 0, seconds)

    @property
    def struck(self) -> str:
        """The point at which the last process died; empty where it came to its end."""
        return bytes(self._memory[_STRUCK:_SIZE]).rstrip(b"\0").decode()

    @struck.setter
    def struck(self, name: str) -> None:
        data = name.encode()[: _SIZE - _STRUCK]
        self._memory[_STRUCK:_SIZE] = data.ljust(_SIZE - _STRUCK, b"\0")


class SharedClock:
    """The one time of a lane: of the provider, of everybody who dies, and of everybody who comes after."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._began = SystemClock().now()

    def now(self) -> datetime:
        """Wall time, UTC."""
        return self._began + timedelta(seconds=self._page.passed)

    def monotonic(self) -> float:
        """Seconds since the story began."""
        return self._page.passed

    def random(self) -> float:
        """The same number every time."""
        return 0.5

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self._page.passed += seconds

    def jump(self, seconds: float) -> None:
        """Let time pass; there is only one time here."""
        self.pass_by(seconds)
