"""The two papers that are judged: an exported history and the provider's log. Reading them is where chains are checked.

Nothing is taken on trust: an event that cannot be read is a finding, and the rest is judged all the same.
"""

from __future__ import annotations

import base64
import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
REFUSED: Final = frozenset({400, 404, 405, 410, 413, 415, 422})
"""Answers that mean "nothing was created" where a contract says nothing else (DESIGN §6, contracts.md)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken invariant: which, of what operation, at which event, and in one sentence how."""

    invariant: str
    operation: str | None
    seq: int | None
    sentence: str

    def __str__(self) -> str:
        where = f" {self.operation}" if self.operation else ""
        return f"{self.invariant}{where}{f' event {self.seq}' if self.seq else ''}: {self.sentence}"


@dataclass(slots=True)
class Event:
    """One event of a history, as its own bytes tell it. Times are microseconds since 1970."""

    seq: int
    at: int
    kind: str
    actor: str
    actor_kind: str
    left: str | None
    entered: str | None
    cause: str
    reason: str | None
    job: str | None
    data: Mapping[str, Any]
    plan: Mapping[str, Any] | None


@dataclass(slots=True)
class Story:
    """One operation: its events in order, and what its record says."""

    operation: str
    events: list[Event] = field(default_factory=list)
    record: Mapping[str, Any] | None = None


@dataclass(slots=True)
class Request:
    """One request, as the provider wrote it down. `started`: it began a job."""

    number: int
    at: int
    kind: str
    origin: str
    status: int | None
    job: str | None
    token: str | None
    reference: str | None
    trace: str | None
    body: str
    started: bool
    effect: str | None
    fault: str | None
    personality: str | None
    credentials: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """What a contract promises and neither paper tells; what is not known is taken at its strictest."""

    window: float | None = None  #: seconds in which a create may be sent again under its token, margin taken off
    cancels: int = 1  #: cancel calls under one intent
    told: bool = False  #: there is no status read: a webhook is the evidence
    inline: bool = False  #: the result is a part of the status answer
    looks: bool = False  #: a job can be looked up without sending the create again
    refused: frozenset[int] = REFUSED


STRICT: Final = Facts()


@dataclass(slots=True)
class History:
    """An export, read."""

    stories: dict[str, Story]
    archived: frozenset[str]
    findings: list[Finding]


def micros(text: Any) -> int:
    """Microseconds since 1970 of an RFC 3339 time that names its zone. Raises ValueError for anything else."""
    moment = datetime.fromisoformat(str(text))
    if moment.tzinfo is None:
        raise ValueError(f"{text} has no zone")
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def read_export(lines: Iterable[bytes]) -> History:
    """Read an export line by line. Raises ValueError where it is none, or was cut."""
    stories: dict[str, Story] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    archived: set[str] = set()
    count, told, headed = 0, None, False
    for line in lines:
        count += 1
        document = json.loads(line)
        match document.get("type"):
            case None:
                headed = document.get("format") == "opledger-export/1"
            case "event":
                rows.setdefault(str(document["operation_id"]), []).append(document)
            case "record":
                name = str(document["operation_id"])
                stories.setdefault(name, Story(name)).record = document
            case "tombstone":
                archived.add(str(document["operation_id"]))
            case "end":
                told = document["lines"]
    if not headed or told != count:
        raise ValueError("this is no whole export of a ledger: it was cut, or is something else")
    findings: list[Finding] = []
    for name, some in rows.items():
        _chain(stories.setdefault(name, Story(name)), some, findings)
    for story in stories.values():
        _record(story, rows.get(story.operation, []), findings)
    return History(stories, frozenset(archived), findings)


def _chain(story: Story, rows: Iterable[Mapping[str, Any]], findings: list[Finding]) -> None:
    """Every event must follow from the one before it, and its columns from its bytes (I23)."""
    name, before, last = story.operation, bytes(32), 0
    head = b"opledger/h1" + len(name.encode()).to_bytes(8, "big") + name.encode()
    for row in rows:
        seq = row["seq"]

        def wrong(sentence: str, invariant: str = "I23", seq: int = seq) -> None:
            findings.append(Finding(invariant, name, seq, sentence))

        try:
            body = base64.b64decode(row["body"])
            link, digest = bytes.fromhex(row["prev_hash"]), bytes.fromhex(row["hash"])
            said = json.loads(body)
            event = _event(said)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            wrong(f"the event cannot be read: {error!r}")
            continue
        if seq != last + 1:
            wrong(f"event {last + 1} should stand here: one is missing, or stands twice")
        elif link != before:
            wrong("the event does not follow from the one before it")
        made = hashlib.sha256(head + seq.to_bytes(8, "big") + link + hashlib.sha256(body).digest()).digest()
        if made != digest:
            wrong("the event's bytes are not those that were hashed")
        if said.get("operation_id") != name or said.get("format") != 1 or row["format"] != 1:
            wrong("the event belongs to another operation or format")
        beside = (seq, event.at, event.actor, event.kind, event.left, event.entered, event.cause, event.reason)
        names = ("seq", "at", "actor", "kind", "from_state", "to_state", "cause", "reason")
        if beside != tuple(row[one] for one in names) or row["remote_job_id"] != event.job or event.seq != seq:
            wrong("the columns say something else than the event's own bytes")
        story.events.append(event)
        last, before = seq, digest


def _event(said: Mapping[str, Any]) -> Event:
    actor, plan = said["actor"], said["next"]
    return Event(
        said["seq"],
        micros(said["at"]),
        said["kind"],
        actor["name"],
        actor["kind"],
        said["from"],
        said["to"],
        said["cause"],
        said["reason"],
        said["remote_job_id"],
        said["data"],
        None if plan is None else {**plan, "at": None if plan["at"] is None else micros(plan["at"])},
    )


def _record(story: Story, rows: list[dict[str, Any]], findings: list[Finding]) -> None:
    """The record must be what its events come to (I14)."""
    record, name = story.record, story.operation
    if record is None or not rows:
        missing = "record" if record is None else "events"
        findings.append(Finding("I14", name, None, f"the operation has no {missing}"))
        return
    if not story.events:
        return
    states = [event.entered for event in story.events if event.entered is not None]
    said = (record["state"], record["remote_job_id"], record["version"], record["head_seq"], record["head_hash"])
    comes_to = (
        states[-1] if states else None,
        story.events[-1].job,
        rows[-1]["seq"],
        rows[-1]["seq"],
        rows[-1]["hash"],
    )
    if said != comes_to:
        findings.append(Finding("I14", name, rows[-1]["seq"], f"the record says {said}, its events come to {comes_to}"))
    first, request = story.events[0].data, record["request"]
    asked = {key: first[key] for key in ("method", "url", "body_sha256", "headers_sha256") if key in first}
    if first.get("method") is not None and not asked.items() <= (request or {}).items():
        findings.append(Finding("I2", name, 1, "the stored request is not the one that was submitted"))


def read_log(lines: Iterable[str | bytes]) -> list[Request]:
    """Read the provider's log, one JSON object a line. Raises ValueError where a line is none."""
    return [_request(json.loads(line)) for line in lines if line.strip()]


def _request(entry: Mapping[str, Any]) -> Request:
    parent = str(entry["headers"].get("traceparent", "")).split("-")
    return Request(
        entry["at"],
        micros(entry["time"]),
        entry["kind"],
        entry["origin"],
        entry["status"],
        entry["job_id"],
        entry["token"],
        entry["client_ref"],
        parent[1] if len(parent) == 4 else None,
        entry["body_sha256"],
        bool(entry["started"]),
        entry["effect"],
        entry["fault"],
        entry["personality"],
        bool(entry["credentials_in"] or entry["authorization"]),
    )


def read_facts(text: str) -> tuple[str, Facts]:
    """Read a contract's name and the few facts that are needed. Raises ValueError where it is no contract file."""
    said = tomllib.loads(text)
    create, status, cancel = said.get("create", {}), said.get("status"), said.get("cancel")
    memory = create.get("idempotency", {}).get("memory")
    ways = [one["strategy"] for one in said.get("reconcile", ())]
    idempotent = isinstance(cancel, dict) and cancel.get("idempotent") is True
    return str(said["name"]), Facts(
        window=None if memory is None else _seconds(memory) * 0.9,
        cancels=5 if idempotent else 1,
        told=status == "none",
        inline=str(said.get("result")).startswith("inline:"),
        looks=any(way != "resend" for way in ways),
        refused=frozenset(create.get("refused", REFUSED)),
    )


def _seconds(text: str) -> float:
    unit = text.lstrip("0123456789.")
    return float(text.removesuffix(unit)) * UNITS[unit]
