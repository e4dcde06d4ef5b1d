"""All planted bugs."""

from __future__ import annotations

from typing import Final

from tests.planted import keeping, reading, sending, telling
from tests.planted.bug import Bug

BUGS: Final[tuple[Bug, ...]] = (*sending.BUGS, *reading.BUGS, *telling.BUGS, *keeping.BUGS)
