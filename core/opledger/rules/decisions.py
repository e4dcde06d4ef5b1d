"""What can be decided for an operation: make a call, read what is here, conclude, wait, or ask a person."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from opledger.rules import evidence as e
from opledger.rules.model import Action


@dataclass(frozen=True, slots=True)
class Call:
    """Make this call now. `strategy` is the index of the reconcile strategy to use."""

    action: Action
    because: str
    strategy: int | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """Read this delivery now: it is here, nobody is called, and nothing else says how the job goes."""

    delivery: str
    seq: int  #: of the event that told of it
    because: str


@dataclass(frozen=True, slots=True)
class Conclude:
    """Record this evidence now: it follows from the record and the clock, without any call."""

    evidence: e.Evidence
    cause: str
    because: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until then (None: nothing more happens by itself)."""

    until: datetime | None
    because: str


@dataclass(frozen=True, slots=True)
class AskHuman:
    """Automation has ended here; `until` is when the question lapses, if it does."""

    code: str
    question: str
    until: datetime | None = None


Decision = Call | Read | Conclude | Wait | AskHuman
