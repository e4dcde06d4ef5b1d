"""What a person is asked where automation has ended, in one sentence for each state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opledger.rules.model import State

QUESTIONS: Final[Mapping[State, str]] = {
    State.AWAITING_APPROVAL: "a person must approve or reject the request before anything is sent",
    State.CREATE_UNKNOWN: (
        "nobody knows whether the job was created, and no automatic way to find out is left: at-most-once cannot be "
        "shown; look at the provider and decide"
    ),
    State.CONTRACT_VIOLATION: "the provider broke its promises; decide which job stands, or close",
    State.CANCELLATION_UNCONFIRMED: "the provider never confirmed the cancel; keep watching, send again, or close",
    State.RESULT_TIMED_OUT: (
        "the job did not finish in time and may still run; extend the deadline, look once more (opledger read), cancel "
        "it (opledger cancel), or close"
    ),
    State.RESULT_UNAVAILABLE: "the job succeeded but its result cannot be had; collect again, accept, or close",
    State.RESULT_VALIDATION_FAILED: "the result arrived and is wrong; collect again, accept as is, or close",
}

NEVER_TOLD: Final = (
    "no delivery told of the job's end in time, and it may still run; no status can be read, so look at the provider "
    "yourself, then extend the deadline, cancel it (opledger cancel), or close"
)
"""For `result_timed_out`, where the provider has no status read."""

NEVER_ASKED: Final = (
    "the cancel deadline passed before any worker sent the cancel: the provider was never asked; send it now (resolve "
    "--as cancel), keep watching, or close"
)
