"""The provider of the simulation: twelve personalities, one truth, and a log that nobody else writes.

It speaks the API of `opledger.sim` (its contracts, replies and hostile shapes), with times that fit hours instead of
seconds, and forgets its tokens exactly when its contract says that it may.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from random import Random
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from opledger.rules.model import to_rfc3339
from opledger.sim.artefacts import lines_reply, outcomes
from opledger.sim.contracts import DEFAULT_TOKEN, contract_text
from opledger.sim.hooks import webhook_text
from opledger.sim.hostile import SHAPES, hostile_create
from opledger.sim.replies import Reply, error_reply, json_reply

OWN: Final = "http://127.0.0.1:1"
ELSEWHERE: Final = "http://127.0.0.1:2"
FORBIDDEN: Final = "http://localhost:2"
MEMORY: Final = 600.0  #: seconds that tokens are remembered, as the contract says
HIDDEN: Final = 50.0  #: seconds that a slow provider hides a job; the contract allows for more
WIND_DOWN: Final = 2.0
FINAL: Final = frozenset({"succeeded", "failed", "cancelled", "expired"})

PERSONALITIES: Final = (
    "ideal", "lossy", "replays-500", "ignores-token", "mis-scopes-token", "changes-id", "id-reuser",
    "slow-visibility", "liar-webhook", "cancel-ignorer", "hostile-bytes", "redirector",
)  # fmt: skip
DISHONEST: Final = frozenset({"ignores-token", "mis-scopes-token", "changes-id", "id-reuser"})
"""Those that break what makes at-most-once possible: a second job is theirs, and must be noticed where it can be."""

FLAVOURS: Final = ("v1", "header", "none", "inline", "once", "batch")
TOKENS: Final = frozenset({"v1", "header", "inline", "once", "batch"})
LISTS: Final = frozenset({"v1", "batch"})
NOTHING: Final = error_reply(404, "not_found", "No such job.")
_DEADLINES: Final = {"create": "20m", "result": "40m", "cancel": "8m", "collect": "12m"}
_PACE: Final = {
    'first = "50ms"\nfactor = 1.6\nmax = "400ms"': 'first = "2s"\nfactor = 2.0\nmax = "120s"',
    'not_visible_for = "5s"': 'not_visible_for = "60s"',
    'timeout = "5s"': 'timeout = "8s"',
}
_SLOW: Final = {'visibility_lag = "500ms"': 'visibility_lag = "30s"', 'settle = "1s"': 'settle = "60s"'}


def contract(flavour: str) -> str:
    """Return the contract of a flavour."""
    text = contract_text(flavour, OWN, elsewhere=ELSEWHERE, deadlines=_DEADLINES)
    changes = {**_PACE, **_SLOW} if flavour in LISTS else dict(_PACE)
    for old, new in changes.items():
        if old in text:
            text = text.replace(old, new)
    if flavour == "none":
        text = text.replace("[limits]\nconcurrency = 50", "[limits]\nconcurrency = 50\nerror_budget = 0")
    hooks = webhook_text("standard", "env:HOOK_SECRET") if flavour in ("v1", "header") else ""
    # One of them names nothing but its job: what comes before that is known must wait.
    return text + (hooks if flavour == "v1" else hooks.replace('token = "/data/client_ref"\n', ""))


@dataclass(slots=True)
class Arrived:
    """A request at the provider's door, and what became of it."""

    number: int
    at: float
    kind: str
    origin: str
    worker: str
    method: str
    path: str
    token: str | None = None
    ref: str | None = None
    job: str | None = None
    flavour: str = ""
    body: str = ""
    started: bool = False
    effect: str = ""
    status: int | None = None
    credentials: bool = False
    copy: bool = False  #: the network made it out of another one
    wait: float = 0.0  #: seconds that its answer asks to wait


@dataclass(slots=True)
class Job:
    """One job."""

    id: str
    ref: str | None
    token: str | None
    flavour: str
    personality: str
    created: float
    at: datetime
    seconds: float
    end: str
    rows: int
    mood: str = ""  #: how its result goes wrong
    variant: str = ""
    items: tuple[str, ...] = ()
    reads: int = 0
    result_reads: int = 0
    cancels: int = 0
    cancelled: float | None = None
    final: str | None = None
    order: int = 0

    def word(self, now: float) -> str:
        """Return how it stands; once it has ended, that stays."""
        if self.final is None:
            word = self._word(now)
            if word not in FINAL:
                return word
            self.final = word
        return self.final

    def _word(self, now: float) -> str:
        ended = now >= self.created + self.seconds
        if self.cancelled is not None and self.personality != "cancel-ignorer":
            if ended and self.created + self.seconds <= self.cancelled + WIND_DOWN / 2:
                return self.end
            return "cancelled" if now >= self.cancelled + WIND_DOWN else "cancelling"
        if ended:
            return self.end
        return "queued" if now < self.created + 1 else "running"


@dataclass(slots=True)
class Wish:
    """What came under one token."""

    key: str
    personality: str
    born: float
    creates: int = 0
    jobs: list[str] = field(default_factory=list)
    body: str = ""
    first: dict[str, Any] | None = None


class Provider:
    """All flavours of one API. `tell` is called with each job that begins."""

    def __init__(self, random: Random, now: Callable[[], float], wall: Callable[[], datetime]) -> None:
        self.random, self.now, self.wall = random, now, wall
        self.log: list[Arrived] = []
        self.jobs: list[Job] = []
        self.by_id: dict[tuple[str, str], Job] = {}
        self.wishes: dict[tuple[str, str], Wish] = {}
        self.tell: Callable[[Job], None] = lambda _: None
        self._reusable: dict[str, list[str]] = {}
        self._unnamed = 0

    def jobs_of(self, ref: str) -> list[Job]:
        """Return the jobs that were begun for an operation."""
        return [job for job in self.jobs if job.ref == ref]

    # --- the door ---------------------------------------------------------------------------------------------------

    def read(self, method: str, url: str, headers: Mapping[str, str], body: bytes, worker: str) -> Arrived:
        """Write down what arrives, before anything is done with it."""
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        pieces = [piece for piece in parts.path.split("/") if piece]
        query = parse_qs(parts.query)
        entry = Arrived(len(self.log), self.now(), "other", origin, worker, method, parts.path)
        entry.credentials = any(DEFAULT_TOKEN in value for value in headers.values()) or DEFAULT_TOKEN in parts.query
        entry.token = headers.get("idempotency-key")
        if origin == OWN and len(pieces) >= 2 and pieces[1] == "jobs":
            entry.flavour = pieces[0]
            if len(pieces) == 2:
                entry.kind = "create" if method == "POST" else "list"
                entry.ref = next(iter(query.get("client_ref", ())), None)
            else:
                entry.job = pieces[2].replace("%5B", "[").replace("%5D", "]").replace("%40", "@").replace("%3D", "=")
                entry.kind = "status" if len(pieces) == 3 else "result"
                if method == "DELETE":
                    entry.kind = "cancel"
        elif origin != OWN:
            entry.kind = "abroad"
        if body:
            entry.body = sha256(body).hexdigest()
            if entry.kind == "create":
                asked = json.loads(body)
                entry.ref = asked.get("client_ref")
        return entry

    def handle(self, entry: Arrived, body: bytes, query: str) -> Reply:
        """Do what is asked, and answer."""
        entry.number, entry.at = len(self.log), self.now()
        self.log.append(entry)
        if entry.origin != OWN:
            return self._abroad(entry)
        if not entry.credentials:
            return error_reply(401, "unauthorized", "The credentials are missing or wrong.")
        reply: Reply
        if entry.kind == "create":
            reply = self._create(entry, json.loads(body))
        elif entry.kind == "list":
            reply = self._list(entry, parse_qs(query))
        elif entry.kind in ("status", "cancel", "result"):
            job = self.by_id.get((entry.flavour, entry.job or ""))
            if job is None:
                return NOTHING
            if job.personality == "slow-visibility" and self.now() < job.created + HIDDEN:
                entry.ref, entry.effect = job.ref, "not found"
                return NOTHING
            entry.ref, entry.token = job.ref, job.token
            reply = getattr(self, f"_{entry.kind}")(entry, job)
        else:
            return NOTHING
        entry.status = reply.status
        return reply

    # --- create -----------------------------------------------------------------------------------------------------

    def _create(self, entry: Arrived, asked: Mapping[str, Any]) -> Reply:
        personality = str(asked.get("_personality", "ideal"))
        key = entry.token if entry.flavour in TOKENS else None
        if key is not None and personality == "mis-scopes-token":
            key = f"account {asked.get('account')}"
        if key is None:
            self._unnamed += 1
            key = f"unnamed {self._unnamed}"
        wish = self.wishes.get((entry.flavour, key))
        if wish is None or self.now() >= wish.born + MEMORY:
            wish = self.wishes[entry.flavour, key] = Wish(key, personality, self.now())
        wish.creates += 1
        if asked.get("_refuse"):
            entry.effect = "refused"
            # As providers do that repeat what they were sent: with the credentials.
            said = f"The account is closed; nothing was started. (Authorization: Bearer {DEFAULT_TOKEN})"
            return error_reply(422, "account_closed", said)
        if personality == "replays-500":
            entry.effect = "stored 500"
            marks = (("idempotent-replayed", "true"),) if wish.creates > 1 else ()
            return error_reply(500, "internal", "The export service failed.", *marks)
        if personality == "redirector" and wish.creates == 1 and self.random.random() < 0.4:
            entry.effect = "redirected"
            return Reply(307, b"", (("location", f"{ELSEWHERE}/trap/jobs"),), None)
        if wish.jobs and personality != "ignores-token":
            if wish.body != entry.body and personality != "mis-scopes-token":
                entry.effect = "mismatch"
                return error_reply(422, "idempotency_mismatch", "This token was used with another body.")
            if self.random.random() < 0.1:
                entry.effect = "in_flight"
                return error_reply(409, "in_progress", "The first request is still being handled.")
            entry.effect, entry.job = "repeated", wish.jobs[0]
            first = wish.first or {}
            return json_reply(200 if entry.flavour == "inline" else 202, first, ("idempotent-replayed", "true"))
        job = self._start(entry, wish, asked)
        document = self.document(job)
        wish.first = document
        self.tell(job)
        if personality == "hostile-bytes":
            if len(self.jobs) % 3 == 0:  # it names its job only to whoever asks again
                return json_reply(202, {**document, "id": (1.5, True, " ")[len(self.jobs) // 3 % 3]})
            return hostile_create(document)
        return json_reply(200 if entry.flavour == "inline" else 202, document)

    def _start(self, entry: Arrived, wish: Wish, asked: Mapping[str, Any]) -> Job:
        made = f"job_{sha256(f'{entry.flavour}/{entry.ref}/{len(self.jobs)}'.encode()).hexdigest()[:12]}"
        if wish.personality == "id-reuser":
            before = self._reusable.setdefault(entry.flavour, [])
            if before and self.random.random() < 0.5:
                made = before[int(self.random.random() * len(before))]
            before.append(made)
        if wish.personality == "hostile-bytes":
            made += "[@click=app.quit]"
        items = asked.get("requests") or []
        job = Job(
            id=made, ref=entry.ref, token=entry.token, flavour=entry.flavour, personality=wish.personality,
            created=self.now(), at=self.wall(), seconds=float(asked.get("_seconds", 10.0)),
            end=str(asked.get("_end", "succeeded")), rows=int(asked.get("rows", 3)),
            mood=str(asked.get("_mood", "")), variant=str(asked.get("_variant", "mixed")),
            items=tuple(str(item["custom_id"]) for item in items), order=len(self.jobs),
        )  # fmt: skip
        if entry.flavour == "inline":
            job.seconds = 0.0
        self.jobs.append(job)
        self.by_id[job.flavour, made] = job
        wish.jobs.append(made)
        wish.body = wish.body or entry.body
        entry.started, entry.effect, entry.job = True, "started", made
        return job

    def document(self, job: Job) -> dict[str, Any]:
        """Return the job as an answer shows it."""
        now = self.now()
        word = job.word(now)
        done = word == "succeeded"
        place = f"{OWN}/{job.flavour}/jobs/{job.id.replace('[', '%5B').replace(']', '%5D').replace('@', '%40')}"
        share = min(1.0, (now - job.created) / job.seconds) if job.seconds > 0 else 1.0
        document: dict[str, Any] = {
            "id": job.id,
            "state": word,
            "status_url": place,
            "progress": {"completed": job.rows if done else int(job.rows * share), "total": job.rows},
            "result_url": f"{place}/result?sig=1" if done else None,
            "records": job.rows if done else None,
            "error": {"code": "source_unreadable", "message": "Row 7."} if word in ("failed", "expired") else None,
            "client_ref": job.ref,
            "created_at": to_rfc3339(job.at),
            "updated_at": to_rfc3339(self.wall()),
        }
        if job.flavour == "inline":
            document["output"] = {"records": job.rows, "reference": job.ref}
        if job.flavour == "batch":
            output, errors = self._files(job, word)
            document["output_url"] = f"{place}/result?sig=1" if output else None
            document["error_url"] = f"{place}/errors?sig=1" if errors else None
            document["counts"] = {"total": len(job.items), "completed": len(output), "failed": len(errors)}
        return document

    def _files(self, job: Job, word: str) -> tuple[list[str], list[str]]:
        return outcomes(job.items, "batch", job.variant, word) if word in FINAL else ([], [])

    # --- the rest ---------------------------------------------------------------------------------------------------

    def _list(self, entry: Arrived, query: Mapping[str, list[str]]) -> Reply:
        if entry.flavour not in LISTS:
            return NOTHING
        found = [
            job
            for job in self.jobs
            if job.flavour == entry.flavour
            and job.ref == entry.ref
            and not (job.personality == "slow-visibility" and self.now() < job.created + HIDDEN)
        ]
        luck = sha256(f"{entry.flavour}/{entry.ref}".encode()).digest()
        if ("cursor" not in query and luck[0] < 96) or luck[4] < 32:
            # An empty page is not the last one; and some lists go round in a circle.
            return json_reply(200, {"data": [], "next": "0"})
        start, limit = int((query.get("cursor") or ["0"])[0]), int((query.get("limit") or ["20"])[0])
        after = start + limit
        data = [self.document(job) for job in found[start:after]]
        more = str(after) if after < len(found) else None
        return json_reply(200, {"data": [*self._strangers(entry, luck), *data], "next": more})

    def _strangers(self, entry: Arrived, luck: bytes) -> list[dict[str, Any]]:
        """What a list shows beside what was asked for: a job of another one, and one of last week under our name."""
        others = [job for job in self.jobs if job.flavour == entry.flavour and job.ref != entry.ref]
        shown = [self.document(others[-1])] if others and luck[1] < 96 else []
        if luck[2] < 40:
            made = to_rfc3339(self.wall() - timedelta(days=7))
            old = {"id": f"job_of_last_week_{luck[3]}", "state": "succeeded", "client_ref": entry.ref}
            shown.append({**old, "created_at": made, "updated_at": made})
        return shown

    def _status(self, entry: Arrived, job: Job) -> Reply:
        job.reads += 1
        document = self.document(job)
        entry.effect = document["state"]
        if job.personality == "hostile-bytes" and job.reads <= 6:
            shapes = list(SHAPES.values())
            entry.effect = "hostile"
            return shapes[(job.order + job.reads) % len(shapes)](document)
        if job.personality == "changes-id" and job.reads >= 2:
            entry.effect = "another id"
            return json_reply(200, {**document, "id": "job_of_somebody_else"})
        if job.personality == "redirector" and job.reads <= 2:
            entry.effect = "redirected"
            code = (302, 307)[job.reads - 1]
            return Reply(code, b"", (("location", f"{ELSEWHERE}/trap/jobs/x"),), None)
        if job.mood == "words" and job.reads <= 3:
            entry.effect = "unknown word"
            return json_reply(200, {**document, "state": ("Retry", None, 7)[job.reads - 1], "result_url": None})
        if job.mood == "backwards" and job.word(self.now()) in FINAL and job.reads % 2:
            entry.effect = "backwards"
            return json_reply(200, {**document, "state": "running", "result_url": None})
        return json_reply(200, document)

    def _cancel(self, entry: Arrived, job: Job) -> Reply:
        job.cancels += 1
        now = self.now()
        about = {"id": job.id, "state": job.word(now)}
        if job.word(now) in FINAL:
            entry.effect = "finished"
            return error_reply(409, "already_finished", "The job has ended.", **about, accepted=False)
        if job.mood == "refuses cancel":
            entry.effect = "refused"
            return json_reply(200, {**about, "accepted": False})
        entry.effect = "accepted"
        if job.cancelled is None:
            job.cancelled = now
        return json_reply(202, {"id": job.id, "state": "cancelling", "accepted": True})

    def _result(self, entry: Arrived, job: Job) -> Reply:
        word = job.word(self.now())
        if word not in (FINAL if job.flavour == "batch" else {"succeeded"}):
            return error_reply(409, "not_ready", "The job has not ended.")
        job.result_reads += 1
        if job.flavour == "once" and job.result_reads > 1:
            entry.effect = "used up"
            return error_reply(410, "used_up", "The result was read already.")
        if job.flavour == "batch":
            return lines_reply(self._files(job, word)[entry.path.endswith("/errors")])
        if job.personality == "redirector" and job.result_reads == 1:
            entry.effect = "redirected"
            host = ELSEWHERE if job.order % 2 else FORBIDDEN
            return Reply(302, b"", (("location", f"{host}/results/{job.flavour}/{job.id}"),), None)
        if job.mood == "gone":
            entry.effect = "gone"
            return error_reply(410, "gone", "Results are kept for one hour.")
        if job.mood == "late" and job.result_reads <= 2:
            return error_reply((404, 425)[job.result_reads - 1], "not_ready", "Not there yet.")
        if job.mood == "wrong" or (job.mood == "wrong once" and job.result_reads == 1):
            return self._content(job, damaged=True)
        if job.mood == "short" and job.rows and job.flavour in ("v1", "once"):
            content = self.content(job).rpartition(b"\n")[0].rpartition(b"\n")[0] + b"\n"
            return Reply(200, content, (("x-checksum-sha256", sha256(content).hexdigest()),), "text/csv")
        return self._content(job)

    def _content(self, job: Job, *, damaged: bool = False) -> Reply:
        content = self.content(job)
        told = ("x-checksum-sha256", sha256(content).hexdigest())
        if damaged:  # on its way out of their store: as long, with as many rows
            content = content.replace(b"row,", b"row;", 1).replace(b",", b"\t", 1)
        return Reply(200, content, (told,), "text/csv")

    def content(self, job: Job) -> bytes:
        """Return the result of a job as it is."""
        lines = [f"{row},{job.ref},{row * 7}" for row in range(job.rows)]
        return "\n".join(["row,reference,amount", *lines, ""]).encode()

    def _abroad(self, entry: Arrived) -> Reply:
        pieces = [piece for piece in entry.path.split("/") if piece]
        if entry.origin == ELSEWHERE and len(pieces) == 3 and pieces[0] == "results":
            job = self.by_id.get((pieces[1], pieces[2]))
            return NOTHING if job is None else self._content(job)
        return error_reply(404, "trap", "Nobody was to come here.")


def at(epoch: datetime, seconds: float) -> datetime:
    """Return a moment."""
    return epoch + timedelta(seconds=seconds)
