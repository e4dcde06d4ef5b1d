"""What a dialog hands back: a decision in values, for the desk to carry out. Nothing here acts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

Verb = Literal["approve", "reject", "cancel", "resolve", "acknowledge", "note", "read", "pause", "resume"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One decision about one operation, or one provider, as it stood when a person looked at it."""

    verb: Verb
    subject: str  #: the operation's whole id, or the provider's name
    version: int | None  #: the record's version that was looked at; None of a provider
    reason: str  #: of a note: its text
    fingerprint: str | None = None  #: of approve: the request that was shown
    effect: str = ""  #: of cancel: what is expected to happen
    also: tuple[str, ...] = ()  #: of cancel: the other operations that the same call stops
    choice: str | None = None  #: of resolve
    job: str | None = None  #: of resolve: the provider's id, exactly as the record has it
    length: str | None = None  #: of resolve: a duration as contracts write it, ``30m``
    until: timedelta | None = None  #: of acknowledge: from now on for how long; None: until the attention ends


@dataclass(frozen=True, slots=True)
class BulkVerdict:
    """The same decision about each operation of a frozen set, each as it stood when it was looked at."""

    verb: Verb
    targets: tuple[tuple[str, int | None], ...]  #: operation id and the version that was looked at
    reason: str
    effect: str = ""
    choice: str | None = None
    job: str | None = None
    length: str | None = None
    until: timedelta | None = None


@dataclass(frozen=True, slots=True)
class TaskAnswer:
    """The answer to one question of a task, as it was asked at `asked_at`."""

    plan: str  #: the plan's file
    task: str
    step: str
    asked_at: datetime
    answer: str
    reason: str
