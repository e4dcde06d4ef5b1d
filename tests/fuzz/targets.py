"""All targets by name."""

from __future__ import annotations

from typing import Final

from tests.fuzz import answering, evidence, ours, outside
from tests.fuzz.ground import Target

TARGETS: Final[dict[str, Target]] = {
    target.name: target for target in (*outside.TARGETS, *answering.TARGETS, *ours.TARGETS, *evidence.TARGETS)
}
