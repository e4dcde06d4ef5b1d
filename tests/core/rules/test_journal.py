from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.rules import evidence as e
from opledger.rules import journal, jsontext
from opledger.rules.journal import (
    FORMAT,
    GENESIS,
    Finding,
    Row,
    body_of,
    link,
    read_body,
    verify,
    verify_chain,
)
from opledger.rules.model import Action, Actor, ActorKind, ItemSummary, Means, Plan, State, StoredResult
from opledger.rules.projection import Entry

NOW = datetime(2026, 11, 29, 14, 22, 11, 123456, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WORKER = Actor("worker-3", ActorKind.WORKER)
ANA = Actor("ana", ActorKind.HUMAN)
OP = "op_01J7Q5X4D4PA3DK0F5Q2V8W9AB"
OTHER = "op_01J7Q5X4D4PA3DK0F5Q2V8W9ZZ"

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=15)
MAYBE_TEXT = st.none() | TEXT
TIMES = st.integers(-(10**15), 10**16).map(lambda micros: EPOCH + timedelta(microseconds=micros))
STATES = st.none() | st.sampled_from(State)
DATA = st.dictionaries(TEXT, st.recursive(st.none() | st.booleans() | st.integers() | TEXT, st.lists, max_leaves=4))
ACTORS = st.builds(Actor, TEXT, st.sampled_from(ActorKind), MAYBE_TEXT, MAYBE_TEXT)
EVIDENCE = st.one_of(
    st.builds(
        e.Observed,
        call_id=MAYBE_TEXT,
        status=st.none() | st.integers(100, 599),
        notes=st.lists(TEXT, max_size=2).map(tuple),
        remote_state=MAYBE_TEXT,
        means=st.sampled_from(Means),
        progress=st.none() | DATA,
        updated_at=st.none() | TIMES,
        retry_at=st.none() | TIMES,
    ),
    st.builds(e.Noted, text=TEXT, late_kind=MAYBE_TEXT, late=st.none() | DATA),
    st.builds(e.CallSent, TEXT, st.sampled_from(Action), TEXT, TEXT, st.integers(1, 99)),
    st.builds(
        e.ResultAccepted,
        result=st.builds(
            StoredResult,
            MAYBE_TEXT,
            st.integers(0, 2**62),
            MAYBE_TEXT,
            MAYBE_TEXT,
            st.booleans(),
            st.lists(TEXT, max_size=2).map(tuple),
            st.none() | st.builds(ItemSummary, st.integers(), st.integers(), st.integers()),
        ),
    ),
)
ENTRIES = st.builds(Entry, TEXT, st.integers(1, 2**40), TIMES, ACTORS, EVIDENCE, TEXT, MAYBE_TEXT)
PLANS = st.none() | st.builds(Plan, TEXT, st.none() | TIMES, TEXT)


# --- writing and reading ----------------------------------------------------------------------------------------------


def test_the_bytes_of_an_event() -> None:
    """The one layout that every later version must be able to read; a change here needs a new format number."""
    entry = Entry(OP, 9, NOW, WORKER, e.Observed(status=200, remote_state="läuft", means=Means.RUNNING), "call:c1")
    plan = Plan("observe", NOW + timedelta(seconds=20), "Retry-After: 20")
    assert body_of(entry, State.ACCEPTED, State.OBSERVING, "job_7ad2", plan).decode() == (
        '{"actor":{"kind":"worker","name":"worker-3"},"at":"2026-11-29T14:22:11.123456Z","cause":"call:c1",'
        '"data":{"means":"running","remote_state":"läuft","status":200},"format":1,"from":"accepted","kind":"Observed",'
        '"next":{"at":"2026-11-29T14:22:31.123456Z","because":"Retry-After: 20","kind":"observe"},'
        f'"operation_id":"{OP}","reason":null,"remote_job_id":"job_7ad2","seq":9,"to":"observing"}}'
    )


def test_the_bytes_say_where_the_actor_was() -> None:
    """Issue 6: who, on which host, in which process. Events of before have neither, and keep their bytes."""
    there = Actor("worker-3", ActorKind.WORKER, 'build"er', "41@20261129T142200Z")
    body = body_of(Entry(OP, 9, NOW, there, e.Noted("x"), "call:c1"), None, None, None, None)
    start = (
        '{"actor":{"host":"build\\"er","kind":"worker","name":"worker-3","process":"41@20261129T142200Z"},"at":"2026'
    )
    assert body.decode().startswith(start)
    assert read_body(body).entry.actor == there


@given(ENTRIES, STATES, STATES, MAYBE_TEXT, PLANS)
def test_the_bytes_are_canonical(
    entry: Entry, before: State | None, after: State | None, job: str | None, plan: Plan | None
) -> None:
    """Made by hand for speed, they must be what the plain JSON writer makes of the same event."""
    body = body_of(entry, before, after, job, plan)
    event = jsontext.loads(body)
    assert jsontext.dumps(event) == body
    assert set(event) == {
        *("format", "operation_id", "seq", "at", "actor", "kind", "from", "to", "cause", "reason"),
        *("remote_job_id", "data", "next"),
    }


@given(ENTRIES, STATES, STATES, MAYBE_TEXT, PLANS)
def test_the_bytes_are_read_back_into_what_was_recorded(
    entry: Entry, before: State | None, after: State | None, job: str | None, plan: Plan | None
) -> None:
    """A record is rebuilt from these bytes alone (I14)."""
    written = read_body(body_of(entry, before, after, job, plan))
    moved = (before, after) if before is not after else (None, None)
    assert written == (entry, plan, *moved, job)


def test_an_unchanged_state_is_no_transition() -> None:
    """The transition history is the events whose `to` is set; a poll must not appear in it."""
    entry = Entry(OP, 9, NOW, WORKER, e.Observed(), "call:c1")
    event = jsontext.loads(body_of(entry, State.OBSERVING, State.OBSERVING, None, None))
    assert (event["from"], event["to"]) == (None, None)


def test_every_zone_is_written_as_utc() -> None:
    """Two workers in two zones must write the same bytes for the same moment (B42)."""
    there = NOW.astimezone(timezone(timedelta(hours=-5)))
    bodies = {body_of(Entry(OP, 1, at, ANA, e.Noted("x"), "submit"), None, None, None, None) for at in (NOW, there)}
    assert len(bodies) == 1


@pytest.mark.parametrize(
    "entry",
    [
        Entry(OP, 1, NOW.replace(tzinfo=None), ANA, e.Noted("x"), "submit"),
        Entry(OP, 1, NOW, ANA, e.Noted("\ud800"), "submit"),
        Entry(OP, 1, NOW, ANA, e.Noted("x"), "submit", reason="\udfff"),
        Entry(OP, 1, NOW, ANA, e.Noted("x", late={"n": float("nan")}), "submit"),
    ],
)
def test_what_cannot_be_kept_exactly_is_refused(entry: Entry) -> None:
    """Such bytes could not be read back by every reader; nothing half-readable enters the journal."""
    with pytest.raises(ValueError):
        body_of(entry, None, None, None, None)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"format": None},
        {"kind": "Nonsense"},
        {"kind": None},
        {"data": {"nonsense": 1}},
        {"data": []},
        {"actor": {"name": "x", "kind": "robot"}},
        {"actor": None},
        {"at": "2026-11-29T14:22:11"},
        {"at": None},
        {"to": "nowhere"},
        {"next": {"kind": "observe"}},
    ],
)
def test_bytes_that_are_no_event_are_refused(change: dict[str, Any]) -> None:
    """A journal that was written by something else must be reported, not guessed at."""
    event = jsontext.loads(body_of(Entry(OP, 1, NOW, ANA, e.Noted("x"), "submit"), None, None, None, None))
    with pytest.raises(ValueError):
        read_body(jsontext.dumps({**event, **change}))


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"1", b'"x"', b"{}", b"\xff"])
def test_other_bytes_are_refused_too(body: bytes) -> None:
    """As above, for bytes that are not even an object."""
    with pytest.raises(ValueError):
        read_body(body)


# --- the chain --------------------------------------------------------------------------------------------------------


def test_the_hash_is_the_documented_formula() -> None:
    """A stand-alone verifier is written from the documentation; both must agree (reliability §5.2)."""
    body, previous = b'{"x":1}', "ab" * 32
    whole = (
        b"opledger/h1\x00\x00\x00\x00\x00\x00\x00\x05"
        + "op_é".encode()
        + b"\x00\x00\x00\x00\x00\x00\x01\x02"
        + bytes.fromhex(previous)
        + hashlib.sha256(body).digest()
    )
    assert link(previous, "op_é", 258, body) == hashlib.sha256(whole).hexdigest()


def test_a_known_hash_stays_what_it_is() -> None:
    """Ledgers in use must still verify after an upgrade (I30)."""
    assert link(GENESIS, "op_1", 1, b"{}") == "f1f5156ac25143585efabb279c478caa8c27b7ddcdf440e0f46fb7db013db18f"


def test_every_input_of_the_hash_counts() -> None:
    """Nothing that places an event may lie outside its hash, and parts cannot be shifted into each other."""
    inputs = [
        (GENESIS, "op_1", 1, b"{}"),
        ("1" * 64, "op_1", 1, b"{}"),
        (GENESIS, "op_2", 1, b"{}"),
        (GENESIS, "op_", 1, b"{}"),
        (GENESIS, "op_1", 2, b"{}"),
        (GENESIS, "op_1", 1, b"{} "),
    ]
    assert len({link(*each) for each in inputs}) == len(inputs)


# --- verifying --------------------------------------------------------------------------------------------------------


def row_of(entry: Entry, to_state: State | None, previous: str, plan: Plan | None = None, **columns: Any) -> Row:
    """An event as the store would keep it."""
    body = body_of(entry, None, to_state, "job_1", plan)
    row = Row(
        entry.operation_id,
        entry.seq,
        (entry.at - EPOCH) // timedelta(microseconds=1),
        entry.actor.name,
        entry.evidence.kind,
        None,
        to_state,
        entry.cause,
        entry.reason,
        "job_1",
        body,
        bytes.fromhex(previous),
        bytes.fromhex(link(previous, entry.operation_id, entry.seq, body)),
        FORMAT,
    )
    return row._replace(**columns)


def chain(operation_id: str = OP, length: int = 6) -> list[Row]:
    """A small journal with transitions, reasons, plans, and text that tries to look like the bytes around it."""
    rows: list[Row] = []
    previous = GENESIS
    for seq in range(1, length + 1):
        evidence: e.Evidence = e.Observed(
            status=200, progress={"a": {"format": 1, "from": None, "kind": "x", "next": None, "z": {"to": 1}}}
        )
        if seq % 2:
            evidence = e.Noted('x","name":"y"},"format":1,"from":null', late={"é": [1, "\x1b"]})
        entry = Entry(
            operation_id,
            seq,
            NOW + timedelta(seconds=seq, microseconds=-123456 * (seq == 2)),
            WORKER if seq % 3 else Actor('a"b\\é', ActorKind.HUMAN, 'h","kind":"x","name":"y', '1"},"at":"2'),
            evidence,
            f"call:{seq}",
            'because "he" said so' if seq == 3 else None,
        )
        plan = Plan("observe", NOW, 'x","format":1') if seq % 2 else None
        rows.append(row_of(entry, State.OBSERVING if seq == 2 else None, previous, plan))
        previous = rows[-1].hash.hex()
    return rows


def kinds(findings: list[Finding]) -> set[tuple[str, int | None]]:
    """What was found, and where."""
    return {(finding.kind, finding.seq) for finding in findings}


def test_an_honest_journal_has_no_findings() -> None:
    """False alarms teach people to ignore the real one."""
    assert verify_chain(OP, chain()) == []
    assert verify([*chain(), *chain(OTHER)]) == []


@given(st.lists(st.tuples(ENTRIES, STATES, PLANS), min_size=1, max_size=4))
def test_no_honest_event_is_suspected(events: list[tuple[Entry, State | None, Plan | None]]) -> None:
    """Whatever text people and providers put into an event."""
    rows: list[Row] = []
    previous = GENESIS
    for seq, (entry, to_state, plan) in enumerate(events, 1):
        rows.append(row_of(entry._replace(operation_id=OP, seq=seq), to_state, previous, plan))
        previous = rows[-1].hash.hex()
    assert verify_chain(OP, rows) == []


def test_honest_events_are_checked_without_reading_their_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger of ten million events is verified in a minute only because the slow way is for suspects."""

    def slow(*_: Any) -> list[Finding]:
        raise AssertionError("an honest event was examined")

    monkeypatch.setattr(journal, "_examine", slow)
    assert verify([*chain(), *chain(OTHER)]) == []


def test_many_operations_are_checked_each_by_itself() -> None:
    """One bad chain neither hides nor taints another."""
    others = chain(OTHER)
    others[3] = others[3]._replace(reason="forged")
    (finding,) = verify([*chain(), *others, *chain("op_last")])
    assert (finding.kind, finding.operation_id, finding.seq) == ("COLUMN", OTHER, 4)


def test_checking_nothing_is_a_finding() -> None:
    """A verifier that looked at no row must not say that all is well (F17)."""
    assert kinds(verify([])) == {("NOTHING_CHECKED", None)}


def test_a_check_can_go_on_where_the_last_one_ended() -> None:
    """Verifying from the last checkpoint costs only what is new."""
    rows = chain()
    assert verify_chain(OP, rows[3:], after=(3, rows[2].hash.hex())) == []
    assert kinds(verify_chain(OP, rows[3:], after=(3, "0" * 64))) == {("LINK", 4)}
    assert kinds(verify_chain(OP, rows[3:])) == {("SEQ", 4)}


@pytest.mark.parametrize("index", range(6))
def test_any_changed_byte_of_any_event_is_found(index: int) -> None:
    """Every byte of every event, and nothing is blamed on a neighbour."""
    rows = chain()
    for position in range(len(rows[index].body)):
        body = bytearray(rows[index].body)
        body[position] ^= 1
        tampered = [*rows]
        tampered[index] = rows[index]._replace(body=bytes(body))
        found = verify_chain(OP, tampered)
        assert ("HASH", index + 1) in kinds(found), position
        assert {finding.seq for finding in found} == {index + 1}


@pytest.mark.parametrize("index", range(6))
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("at", 1),
        ("at", 10**30),
        ("actor", "eve"),
        ("actor", 'worker-3"'),
        ("actor", "y"),
        ("kind", "Approved"),
        ("from_state", "accepted"),
        ("from_state", ""),
        ("to_state", "succeeded"),
        ("cause", "submit"),
        ("reason", "because I say so"),
        ("remote_job_id", "job_2"),
        ("remote_job_id", None),
        ("remote_job_id", ""),
    ],
)
def test_any_changed_column_is_found_and_named(index: int, column: str, value: Any) -> None:
    """Columns beside the bytes were rewritable in other ledgers (F17)."""
    rows = chain()
    rows[index] = rows[index]._replace(**{column: value})
    found = verify_chain(OP, rows)
    assert kinds(found) == {("COLUMN", index + 1)}
    assert column in found[0].message


@pytest.mark.parametrize("column", Row._fields)
def test_a_column_of_another_type_is_found(column: str) -> None:
    """SQLite keeps text in a number column if it is told to; that must neither crash the check nor pass it."""
    rows = chain()
    change: dict[str, Any] = {column: 1.5}
    rows[3] = rows[3]._replace(**change)
    assert ("COLUMN", None if column == "seq" else 4) in kinds(verify_chain(OP, rows))


def test_a_changed_hash_is_found_at_the_event_and_after_it() -> None:
    """The stored hash is what the next event links to."""
    rows = chain()
    rows[2] = rows[2]._replace(hash=b"\1" * 32)
    assert kinds(verify_chain(OP, rows)) == {("HASH", 3), ("LINK", 4)}


def test_a_changed_link_is_told_from_a_changed_event() -> None:
    """Different alarms have different runbooks (F17)."""
    rows = chain()
    rows[2] = rows[2]._replace(prev_hash=b"\1" * 32)
    assert kinds(verify_chain(OP, rows)) == {("LINK", 3)}


def test_a_rehashed_event_breaks_the_link_after_it() -> None:
    """Whoever edits an event and mends its hash must rewrite everything after it."""
    rows = chain()
    entry = read_body(rows[2].body).entry._replace(reason="forged")
    rows[2] = row_of(entry, None, rows[1].hash.hex())
    assert kinds(verify_chain(OP, rows)) == {("LINK", 4)}


@pytest.mark.parametrize("index", range(5))
def test_a_removed_event_is_found(index: int) -> None:
    """Except at the end, where only the record and the checkpoints can tell."""
    rows = chain()
    del rows[index]
    assert kinds(verify_chain(OP, rows)) == {("SEQ", index + 2)}


def test_a_removed_and_closed_gap_is_found() -> None:
    """Renumbering the columns does not renumber the bytes."""
    rows = chain()
    del rows[2]
    rows[2:] = [row._replace(seq=row.seq - 1) for row in rows[2:]]
    found = kinds(verify_chain(OP, rows))
    assert ("LINK", 3) in found
    assert {("COLUMN", 3), ("COLUMN", 4), ("COLUMN", 5)} <= found
    assert not any(kind == "HASH" for kind, _ in found)


def test_events_that_stand_twice_or_out_of_order_are_found() -> None:
    """A duplicate is not a harmless repetition: it may hide that another event is gone."""
    rows = chain()
    assert kinds(verify_chain(OP, [*rows[:3], rows[2], *rows[3:]])) == {("SEQ", 3)}
    assert kinds(verify_chain(OP, [rows[0], rows[2], rows[1], *rows[3:]])) == {("SEQ", 3), ("SEQ", 2)}
    forged = row_of(read_body(rows[2].body).entry._replace(reason="forged"), None, rows[1].hash.hex())
    assert kinds(verify_chain(OP, [*rows[:3], forged, *rows[3:]])) == {("SEQ", 3)}
    first = rows[0]._replace(seq=0)
    assert {("SEQ", 0), ("COLUMN", 0)} <= kinds(verify_chain(OP, [first, *rows[1:]]))
    assert ("SEQ", -5) in kinds(verify_chain(OP, [rows[0]._replace(seq=-5)]))


def test_an_event_of_another_operation_is_found_as_such() -> None:
    """Moved as it was, or with its hash made anew for the new place."""
    rows, others = chain(), chain(OTHER)
    moved = [*rows[:2], others[2]._replace(operation_id=OP), *rows[3:]]
    assert {("MOVED", 3), ("LINK", 3), ("LINK", 4)} == kinds(verify_chain(OP, moved))
    previous = rows[1].hash
    mended = others[2]._replace(
        operation_id=OP, prev_hash=previous, hash=bytes.fromhex(link(previous.hex(), OP, 3, others[2].body))
    )
    assert {("MOVED", 3), ("LINK", 4)} == kinds(verify_chain(OP, [*rows[:2], mended, *rows[3:]]))


def test_a_whole_chain_under_another_name_is_found() -> None:
    """The operation id is under the hash."""
    renamed = [row._replace(operation_id=OTHER) for row in chain()]
    assert kinds(verify_chain(OTHER, renamed)) == {("MOVED", seq) for seq in range(1, 7)}
    assert kinds(verify_chain(OTHER, chain()[:1])) == {("MOVED", 1)}


def test_another_format_is_refused() -> None:
    """An older, weaker format must not be smuggled into a chain, nor a newer one be passed unread."""
    for number in (0, 2):
        rows = chain()
        rows[3] = rows[3]._replace(format=number)
        assert kinds(verify_chain(OP, rows)) == {("FORMAT_DOWNGRADE", 4)}
    rows = chain(length=1)
    body = jsontext.dumps({**jsontext.loads(rows[0].body), "format": 0})
    forged = rows[0]._replace(body=body, hash=bytes.fromhex(link(GENESIS, OP, 1, body)))
    assert kinds(verify_chain(OP, [forged])) == {("FORMAT_DOWNGRADE", 1)}


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        b"[]",
        b"{}",
        b'{"actor":1,"seq":true,"at":5}',
        b'{"operation_id":7,"seq":99999999999999999999999}',
        b'{"seq":1,"seq":1}',
    ],
)
def test_rehashed_rubbish_is_found(body: bytes) -> None:
    """Bytes that hash rightly and say nothing must not pass because nothing can be compared."""
    rows = chain(length=1)
    forged = rows[0]._replace(body=body, hash=bytes.fromhex(link(GENESIS, OP, 1, body)))
    assert ("COLUMN", 1) in kinds(verify_chain(OP, [forged]))


def test_rubbish_that_does_not_hash_is_one_finding() -> None:
    """Where the bytes are gone there is nothing to compare the columns with."""
    rows = chain(length=1)
    assert kinds(verify_chain(OP, [rows[0]._replace(body=b"\xff")])) == {("HASH", 1)}


def test_the_same_event_in_other_bytes_agrees_by_meaning() -> None:
    """The quick comparison of text may only save time; where it does not fit, the bytes are read."""
    rows = chain(length=1)
    body = json.dumps(json.loads(rows[0].body), indent=1).encode()
    respelt = rows[0]._replace(body=body, hash=bytes.fromhex(link(GENESIS, OP, 1, body)))
    assert verify_chain(OP, [respelt]) == []


def test_findings_are_sentences_with_a_place() -> None:
    """`audit verify` prints them as they are."""
    rows = chain()
    del rows[2]
    assert verify_chain(OP, rows) == [Finding("SEQ", OP, 4, "event 3 is missing before event 4")]
