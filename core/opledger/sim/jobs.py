"""The provider's truth: which wishes arrived, which jobs run, and where each stands now. No HTTP here.

Everything is in memory and changed only from the server's one event loop, so nothing needs a lock.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, Literal

from opledger.sim.artefacts import keys_of
from opledger.sim.flavours import Flavour
from opledger.sim.personalities import fraction

FINAL_WORDS: Final = frozenset({"succeeded", "failed", "cancelled", "expired"})
FOREVER: Final = float("inf")
WINDING_DOWN: Final = 0.15  #: seconds an honest cancel takes
LARGE: Final = 60_000  #: rows of a result that takes long enough to break off in the middle
QUEUED_FOR: Final = 0.3  #: seconds a long job waits in the queue
LAST_LAP: Final = 0.6  #: seconds a job that ignores its cancel still runs, where it ends at all

_SECONDS: Final[Mapping[tuple[str, str], float]] = {
    ("never_ending", "plain"): FOREVER,
    ("cancel_ignoring", "forever"): FOREVER,
    ("cancel_ignoring", "until_end"): 30.0,
    ("cancel_racing", "plain"): 30.0,
    ("id_changing", "plain"): 30.0,
    ("cancellable", "prompt"): 30.0,
    ("cancellable", "lossy"): 30.0,
    ("cancel_refusing", "conflict"): 3.0,
    ("cancel_refusing", "polite"): 3.0,
    ("replaying", "failed"): 0.0,
}
_ENDS: Final[Mapping[str, str]] = {"failing": "failed", "replaying": "failed", "expired": "expired"}
_ERRORS: Final[Mapping[str, tuple[str, str]]] = {
    "failed": ("source_unreadable", "The ledger of the account could not be read at row 7."),
    "expired": ("too_old", "The job waited longer than this provider keeps jobs."),
}


@dataclass(slots=True)
class Wish:
    """What arrived under one token (or client reference): one intention of the client, however often it is sent."""

    key: str
    personality: str
    variant: str
    creates: int = 0
    in_flight: int = 0  #: accepted creates whose answer is still being sent
    body_sha256: str | None = None
    first_document: dict[str, Any] | None = None
    jobs: list[str] = field(default_factory=list)
    first_refusal: float | None = None  #: when its credentials were first refused


@dataclass(slots=True)
class Job:
    """One job. `seconds` and `polls` say when it ends: by time, or after so many status reads."""

    id: str
    flavour: str
    token: str | None
    client_ref: str | None
    name: str | None
    personality: str
    variant: str
    rows: int
    kind: str  #: csv or json
    seconds: float
    polls: int
    created: float
    created_at: datetime
    updated_at: datetime
    reads: int = 0
    result_reads: int = 0
    signature: int = 0
    skew: float = 0.0
    cancels: int = 0
    cancelled: float | None = None
    first_refusal: float | None = None
    forced: Mapping[str, Any] = field(default_factory=dict)
    items: tuple[str, ...] = ()  #: the keys of a batch
    final: str | None = None
    last_word: str = "queued"

    def share(self, now: float) -> float:
        """How much of the work is done, 0 to 1."""
        if self.polls:
            return min(1.0, self.reads / self.polls)
        elapsed = now - self.created + self.skew
        if self.seconds == FOREVER:
            return min(0.97, 0.2 + elapsed / 60)
        return 1.0 if elapsed >= self.seconds else elapsed / self.seconds

    def word(self, now: float) -> str:
        """The provider's honest word for the state. Once final, it stays."""
        if self.final is None:
            word = self._running_word(now)
            if word not in FINAL_WORDS:
                return word
            self.final = word
        return self.final

    def _running_word(self, now: float) -> str:
        if self.cancelled is not None:
            since = now - self.cancelled + self.skew
            match self.personality, self.variant:
                case "cancel_racing", _:
                    return "succeeded"
                case "cancel_ignoring", "until_end":
                    return "succeeded" if since >= LAST_LAP else "running"
                case "cancel_ignoring", _:
                    return "running"
                case _:
                    return "cancelled" if since >= WINDING_DOWN else "cancelling"
        share = self.share(now)
        if share >= 1:
            return _ENDS.get(self.personality, "succeeded")
        fresh = now - self.created + self.skew < QUEUED_FOR
        return "queued" if fresh and share < 0.2 else "running"

    def error(self) -> dict[str, str] | None:
        """What the provider says about a job that failed or expired."""
        code, message = _ERRORS.get(self.final or "", ("", ""))
        return {"code": code, "message": message} if code else None

    def result(self) -> tuple[bytes, str]:
        """The result's bytes and content type; the same for every read, but where the personality has it otherwise."""
        revision = self.personality == "breaking" and self.variant == "changed" and self.result_reads > 1
        rows = [(row, self.client_ref or "", 100 + (row * 37) % 900 + revision) for row in range(1, self.rows + 1)]
        if self.kind == "json":
            records = [dict(zip(("row", "reference", "amount"), row, strict=True)) for row in rows]
            return json.dumps({"id": self.id, "records": records}).encode(), "application/json"
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("row", "reference", "amount"))
        writer.writerows(rows)
        return text.getvalue().encode(), "text/csv"


Outcome = Literal["started", "repeated", "conflict", "mismatch", "busy", "in_flight"]


@dataclass(frozen=True, slots=True)
class Order:
    """One create request, read: what is asked for, and the options that steer the simulation."""

    flavour: Flavour
    token: str | None
    client_ref: str | None
    body_sha256: str
    fields: Mapping[str, Any]


class Jobs:
    """All wishes and all jobs of the simulated provider."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.wishes: dict[tuple[str, str], Wish] = {}
        self.by_id: dict[str, Job] = {}
        self.listed: list[Job] = []  #: as lists have them: an id that was given twice stands there for both references
        self._shared_id: str | None = None

    def start_or_find(self, wish: Wish, order: Order, now: float, at: datetime) -> tuple[Outcome, Job | None]:
        """Carry out a create as the flavour and the wish's personality have it."""
        flavour = order.flavour
        known = self.by_id.get(wish.jobs[0]) if wish.jobs else None
        if wish.in_flight and flavour.repeat != "new":
            return "in_flight", known
        if flavour.repeat == "busy":
            running = self.running(flavour.name, now)
            if running is not None:
                return "busy", running
        elif known is not None and flavour.repeat != "new":
            if flavour.repeat == "conflict":
                return "conflict", known
            if wish.body_sha256 != order.body_sha256:
                return "mismatch", known
            if wish.personality != "token_ignoring":
                return "repeated", known
        return "started", self._start(wish, order, now, at)

    def _start(self, wish: Wish, order: Order, now: float, at: datetime) -> Job:
        options = order.fields
        job = Job(
            id=self._new_id(wish, order),
            flavour=order.flavour.name,
            token=order.token,
            client_ref=order.client_ref,
            name=_text(options.get("name")),
            personality=wish.personality,
            variant=wish.variant,
            rows=LARGE if wish.personality == "breaking" else max(0, min(200_000, _whole(options.get("rows"), 50))),
            items=keys_of(options),
            kind="json" if options.get("_format") == "json" or order.flavour.inline else "csv",
            seconds=self._seconds(wish, options),
            polls=_whole(options.get("_polls"), 0),
            created=now,
            created_at=at,
            updated_at=at,
        )
        if order.flavour.inline:
            job.final = "succeeded"
        wish.jobs.append(job.id)
        wish.body_sha256 = order.body_sha256
        self.by_id.setdefault(job.id, job)
        self.listed.append(job)
        return self.by_id[job.id]

    def _new_id(self, wish: Wish, order: Order) -> str:
        if order.flavour.client_id and order.token:
            return order.token
        if wish.personality == "id_reusing" and self._shared_id is not None:
            shared, self._shared_id = self._shared_id, None
            return shared
        digest = sha256(f"{self.seed}/{order.flavour.name}/{wish.key}/{len(wish.jobs)}".encode()).hexdigest()
        made = f"job_{digest[:12]}"
        while made in self.by_id:  # a forgotten token starts anew under the same key
            made += "x"
        if wish.personality == "id_reusing":
            self._shared_id = made
        return made + "[@click=app.quit]" if wish.personality == "hostile" else made

    def _seconds(self, wish: Wish, options: Mapping[str, Any]) -> float:
        asked = options.get("_seconds")
        try:
            return max(0.0, float(asked)) if asked is not None else self._usual_seconds(wish)
        except (TypeError, ValueError):
            return self._usual_seconds(wish)

    def _usual_seconds(self, wish: Wish) -> float:
        usual = 0.3 + 0.9 * fraction(self.seed, "seconds", wish.key)
        return _SECONDS.get((wish.personality, wish.variant), usual)

    def cancel(self, job: Job, now: float) -> Literal["accepted", "finished", "refused", "refused_politely"]:
        """Carry out a cancel as the job's personality has it."""
        job.cancels += 1
        if job.word(now) in FINAL_WORDS:
            return "finished"
        if job.personality == "cancel_refusing":
            return "refused_politely" if job.variant == "polite" else "refused"
        if job.cancelled is None:
            job.cancelled = now
        return "accepted"

    def running(self, flavour: str, now: float) -> Job | None:
        """The job of this flavour that has not ended, if there is one."""
        live = (job for job in self.by_id.values() if job.flavour == flavour and job.word(now) not in FINAL_WORDS)
        return next(live, None)

    def latest(self, flavour: str) -> Job | None:
        """The job of this flavour that was created last."""
        return next((job for job in reversed(self.by_id.values()) if job.flavour == flavour), None)

    def clear(self) -> None:
        """Forget every wish and every job."""
        self.wishes.clear()
        self.by_id.clear()
        self.listed.clear()
        self._shared_id = None

    def forget_tokens(self) -> None:
        """Drop the token memory, as a provider does after its retention time."""
        for wish in self.wishes.values():
            wish.jobs.clear()
            wish.body_sha256 = wish.first_document = None


def _whole(value: Any, default: int) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return default


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
