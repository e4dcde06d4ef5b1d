"""Letting people see how far a large download is: a line in the log, and a small file that `explain` reads.

Nothing of it is in the journal: how much had come at noon is of no use to anybody at one o'clock.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from opledger.edges.clock import Clock
from opledger.edges.files import NOTE_EVERY, forget_progress, note_progress

log = logging.getLogger("opledger.worker")

_HEADER: Final = "content-length"


class Shown:
    """One download that people may want to watch. Small ones are over before they are shown.

    Called from one thread at a time. It never fails: a disk that takes no note of it has worse to tell elsewhere.
    """

    def __init__(self, folder: Path, operation_id: str, clock: Clock) -> None:
        self._folder = folder
        self._operation_id = operation_id
        self._clock = clock
        self._done = 0
        self._total: int | None = None
        self._next = clock.monotonic() + NOTE_EVERY
        self._noted = False

    def begin(self, headers: Mapping[str, str]) -> None:
        """A file begins, maybe anew; the head of the answer says how much there is to come, or does not."""
        length = headers.get(_HEADER, "")
        packed = headers.get("content-encoding", "identity") != "identity"
        self._done = 0
        self._total = int(length) if length.isascii() and length.isdigit() and not packed else None

    def add(self, count: int) -> None:
        """So many more bytes are here."""
        self._done += count
        now = self._clock.monotonic()
        if now < self._next:
            return
        self._next = now + NOTE_EVERY
        self._noted = True
        note_progress(self._folder, self._operation_id, self._done, self._total)
        log.info("%s: collecting, %d bytes of %s are here", self._operation_id, self._done, self._total or "?")

    def end(self) -> None:
        """The stream has ended, well or not."""
        if self._noted:
            forget_progress(self._folder, self._operation_id)
