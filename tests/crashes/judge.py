"""What is judged when a story has come to its end: the provider's log, the journal and the files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opledger.checkpoints import standing
from opledger.ledger import Ledger, export
from opledger.ledger import audit as verifying
from opledger.rules.model import NEEDS_HUMAN, Operation, State, to_rfc3339
from opledger.sim.judge import judge
from opledger.store.auditing import tombstones
from opledger.store.checkpoints import newest
from tests.checker.judging import check
from tests.checker.papers import read_facts
from tests.crashes.life import Life, Story, intents, permits, told

NEVER_SENT = frozenset({State.WITHDRAWN, State.REJECTED})


def faults(life: Life, story: Story, acknowledged: Path, before: int, *, died: bool) -> Iterator[str]:
    """Whatever is wrong now. `before`: how many operations there were before anybody could die."""
    operations = sorted(life.operations(), key=lambda op: op.operation_id)
    if not story.made and len(operations) != before:
        yield f"there are {len(operations)} operations, and {before} were submitted"
    if not died and tuple(op.state for op in operations) != story.clean:
        yield f"nobody died, and it ended in {', '.join(op.state for op in operations)}"
    asked, accepted = intents(life)
    log = life.sim.log()
    if story.resends_cancels:
        asked = dict.fromkeys(asked, 9)
    if not story.faults:
        yield from judge(log, asked, accepted)
    for op in operations:
        yield from (f"{op.operation_id} ({op.state}): {why}" for why in _of_one(life, story, op, log))
    yield from _files(life, story, operations)
    if not story.forgets:
        yield from _acknowledged(life, acknowledged)
    yield from _history(life)
    if operations:
        yield from _from_outside(life)


def _from_outside(life: Life) -> Iterator[str]:
    """The judge who knows nothing of opledger, over the exported history and the provider's log."""
    names = [op.operation_id for op in life.operations()]
    with Ledger.open(settings=life.ledger.settings, clock=life.clock, read_only=True) as ledger:
        history = list(export.of(ledger, names))
    log = [json.dumps(entry) for entry in life.sim.log()]
    contracts = dict(read_facts(path.read_text()) for path in life.contracts.glob("*.toml"))
    yield from (f"from outside: {finding}" for finding in check(history, log, contracts, idle=True))


def _of_one(life: Life, story: Story, op: Operation, log: list[dict[str, Any]]) -> Iterator[str]:
    waits = op.state in NEEDS_HUMAN or (op.state is State.CREATE_UNKNOWN and op.exhausted)
    if not op.state.terminal and not waits:
        yield f"it has not ended, and waits for nobody: next {op.next}"
    if op.state not in {*story.clean, *story.ends}:
        yield "that is no end that this story may have"
    if waits and (op.attention is None or not life.ledger.packet(op.operation_id)):
        yield "a person must decide, and is told nothing"
    # While it waits for a person nobody works on it: a dead worker's lease that has run out stands in nobody's way.
    held = op.lease is not None and not (waits and op.lease.expires_at <= life.clock.now())
    if held or op.open_call is not None:
        yield f"something is left open: {op.lease}, {op.open_call}"
    creates = [entry for entry in log if entry["kind"] == "create" and entry["client_ref"] == op.operation_id]
    started = [entry for entry in creates if entry["started"]]
    if len(started) > story.jobs:
        yield f"it started {len(started)} jobs"
    if op.state in NEVER_SENT and started:
        yield "it was taken back, and a job runs"
    allowed = [one for one in permits(life, op, ("create", "reconcile")) if one.get("may_create")]
    if len(creates) > len(allowed):
        yield f"{len(creates)} creates left under {len(allowed)} permits"
    cancels = [entry for entry in log if entry["kind"] == "cancel" and entry["client_ref"] == op.operation_id]
    if len(cancels) > len(permits(life, op, ("cancel",))):
        yield f"{len(cancels)} cancels left under {len(permits(life, op, ('cancel',)))} permits"
    yield from _after_the_end(life, op, creates + cancels)


def _after_the_end(life: Life, op: Operation, calls: list[dict[str, Any]]) -> Iterator[str]:
    """Nothing that changes anything leaves once the operation was taken back, refused, or closed by a person."""
    for event in life.ledger.events(op.operation_id):
        ended = event.kind in ("Withdrawn", "Rejected", "ApprovalExpired")
        closed = event.kind == "Decided" and dict(event.data or {}).get("choice") == "close"
        if ended or closed:
            moment = to_rfc3339(event.at)
            late = [entry["at"] for entry in calls if entry["time"] > moment]
            if late:
                yield f"calls {late} left after {event.kind}"


def _files(life: Life, story: Story, operations: list[Operation]) -> Iterator[str]:
    """Each result is where its record says, whole; nothing half-written stands beside it."""
    known: dict[str, str] = {}
    for op in operations:
        result = op.result
        parts = [] if result is None else [(result.location, result.size, result.sha256)]
        parts += [] if result is None else [(one.location, one.size, one.sha256) for one in result.also]
        for location, size, sha256 in parts:
            if location is None:
                continue
            path = Path(location)
            if not path.is_file():
                yield f"{op.operation_id}: its result is not at {path.name}"
                continue
            data = path.read_bytes()
            known[path.name] = op.operation_id
            if len(data) != size or (sha256 and hashlib.sha256(data).hexdigest() != sha256.rpartition(":")[2]):
                yield f"{op.operation_id}: {path.name} is not what its record says"
    results = life.folder / "results"
    for path in sorted(results.rglob("op_*")):
        if path.is_file() and ".partial" not in path.parts and path.name not in known and not story.orphans:
            yield f"{path.name} lies among the results, and no record names it"
    left = [path.name for path in (results / ".partial").glob("*")] if results.is_dir() else []
    if left:
        yield f"left behind for good: {', '.join(left)}"


def _acknowledged(life: Life, path: Path) -> Iterator[str]:
    """Every transaction that returned is there."""
    given = told(path)
    heads: dict[str, dict[int, str]] = {}
    database = life.ledger.store.database
    archived = {stone.operation_id: stone for stone in tombstones(database, sorted({one for one, *_ in given}))}
    for operation_id, seq, digest in given:
        if operation_id in archived:
            if seq > archived[operation_id].seq:
                yield f"event {seq} of {operation_id} was acknowledged, and is not in its archive"
            continue
        if operation_id not in heads:
            rows = life.ledger.store.queries.events(operation_id)
            heads[operation_id] = {row.seq: bytes(row.hash).hex() for row in rows}
        if heads[operation_id].get(seq) != digest:
            yield f"event {seq} of {operation_id} was acknowledged, and is lost"


def _history(life: Life) -> Iterator[str]:
    """The journal verifies from outside, with key, checkpoints and anchor."""
    settings = life.ledger.settings
    with Ledger.open(settings=settings, clock=life.clock, read_only=True) as ledger:
        found = verifying.run(ledger, verifying.Asked(full=True))
        yield from (f"audit: {one.kind} {one.operation_id} {one.seq}: {one.message}" for one in found.findings)
        if "UNANCHORED_TAIL" in [one.kind for one in found.notes]:
            yield "audit: not every event is under a checkpoint"
        last, stands = newest(ledger.store.database), standing.look(ledger.store.database, settings.audit)
        if last is None or stands.anchored is None or stands.anchored.number != last.number:
            yield "audit: the newest checkpoint is not in the anchor"
