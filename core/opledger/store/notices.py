"""The outbox of notices: what each target has been told of each escalation. Decides nothing.

A row is made by a sweep over what needs attention, never by the writes of the hot path. Whoever sends takes the rows
first, for a while: if that worker dies, they are due again, so that everything is sent at least once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import BigInteger, ClauseElement, Text, and_, bindparam, exists, func, null, or_, select, update

from opledger.rules.escalation import Escalation, Severity, Track, TrackState, of_provider
from opledger.rules.model import State
from opledger.store import encoding
from opledger.store.encoding import from_micros, to_micros
from opledger.store.statements import Recipe, Tongue, Tx
from opledger.store.tables import NOTICE, OPERATION, PROVIDER

n: Final = NOTICE.c
o: Final = OPERATION.c

MOST: Final = 5_000
"""Most tracks begun or taken at once."""

_NEVER: Final = to_micros(datetime.max.replace(tzinfo=UTC))

_KEY: Final = and_(
    n.subject == bindparam("the_subject"),
    n.code == bindparam("the_code"),
    n.since == bindparam("the_since"),
    n.target == bindparam("the_target"),
)


@dataclass(frozen=True, slots=True)
class Listening:
    """What one target wants to hear of."""

    target: str
    codes: frozenset[str] | None  #: None: all
    approvals_before: datetime  #: a waiting approval counts only if its deadline is not later


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a track that was looked at: what to remember of it."""

    track: Track  #: as it was read
    state: TrackState
    due_at: datetime | None
    severity: Severity | None
    rounds: int
    attempts: int
    sent_at: datetime | None
    last_error: str | None = None


# --- statements -------------------------------------------------------------------------------------------------


def _untold(tongue: Tongue, *, all_codes: bool) -> ClauseElement:
    told = exists().where(
        n.subject == o.operation_id,
        n.code == o.attention_code,
        n.since == o.attention_since,
        n.target == bindparam("target", type_=Text),
    )
    wanted = [] if all_codes else [tongue.among(o.attention_code, "codes")]
    deadline = func.coalesce(o.approval_deadline, bindparam("never", type_=BigInteger))
    near = deadline <= bindparam("near", type_=BigInteger)
    return (
        select(o.operation_id, o.attention_code, o.attention_since)
        .where(o.attention_code.is_not(None), *wanted, or_(o.attention_code != bindparam("approval"), near), ~told)
        .order_by(o.attention_since)
        .limit(bindparam("most", type_=BigInteger))
    )


def _untold_of_all(tongue: Tongue) -> ClauseElement:
    return _untold(tongue, all_codes=True)


def _untold_of_some(tongue: Tongue) -> ClauseElement:
    return _untold(tongue, all_codes=False)


def _stopped(_: Tongue) -> ClauseElement:
    return select(PROVIDER.c.contract, PROVIDER.c.by, PROVIDER.c.reason, PROVIDER.c.since).where(
        PROVIDER.c.state == "paused"
    )


def _told(tongue: Tongue) -> ClauseElement:
    return select(n.subject, n.code, n.since).where(
        tongue.among(n.subject, "subjects"), n.target == bindparam("target", type_=Text)
    )


def _begin(tongue: Tongue) -> ClauseElement:
    return tongue.insert(NOTICE).on_conflict_do_nothing()


def _due(_: Tongue) -> ClauseElement:
    return (
        select(NOTICE)
        .where(n.target == bindparam("target", type_=Text), n.due_at <= bindparam("now", type_=BigInteger))
        .order_by(n.due_at, n.subject, n.code, n.since)  # taken in this order by everybody: no deadlocks
        .limit(bindparam("most", type_=BigInteger))
    )


def _take(_: Tongue) -> ClauseElement:
    """Only as it was read: whoever comes second finds another `due_at`."""
    return (
        update(NOTICE)
        .where(_KEY, n.due_at == bindparam("was_due"))
        .values(state=TrackState.SENDING.value, claimed_by=bindparam("who"), due_at=bindparam("until"))
        .returning(n.subject)
    )


def _settle(_: Tongue) -> ClauseElement:
    """Only as it was left: `due_at` changes with everything that is done to a track."""
    return (
        update(NOTICE)
        .where(_KEY, n.due_at == bindparam("was_due"))
        .values(
            state=bindparam("new_state"),
            due_at=bindparam("new_due"),
            severity=bindparam("new_severity"),
            rounds=bindparam("new_rounds"),
            attempts=bindparam("new_attempts"),
            sent_at=bindparam("new_sent_at"),
            last_error=bindparam("new_error"),
            claimed_by=null(),
        )
    )


def _look_now(_: Tongue) -> ClauseElement:
    return (
        update(NOTICE)
        .where(n.subject == bindparam("the_subject"), n.state == TrackState.SENT.value)
        .values(due_at=bindparam("at", type_=BigInteger))
    )


def _failing(tongue: Tongue) -> ClauseElement:
    return (
        select(n.target, func.count(), func.max(n.attempts), func.min(n.first_seen), func.max(n.last_error))
        .where(tongue.among(n.target, "targets"), n.state == TrackState.FAILED.value)
        .group_by(n.target)
        .order_by(n.target)
    )


def _of(_: Tongue) -> ClauseElement:
    return select(NOTICE).where(n.subject == bindparam("the_subject")).order_by(n.since, n.code, n.target)


# --- transactions -----------------------------------------------------------------------------------------------


def stopped(tx: Tx) -> dict[str, Escalation]:
    """The escalations of the providers whose calls are stopped, by subject."""
    found = [of_provider(name, by, why, from_micros(since)) for name, by, why, since in tx.all(_stopped)]
    return {one.subject: one for one in found}


def untold(tx: Tx, listening: Listening) -> list[tuple[str, str, datetime]]:
    """(subject, code, since) of what a target wants to hear of and has no track of, the oldest first."""
    values = {
        "target": listening.target,
        "near": to_micros(listening.approvals_before),
        "never": _NEVER,
        "approval": State.AWAITING_APPROVAL.value,
        "most": MOST,
    }
    recipe: Recipe = _untold_of_all
    if listening.codes is not None:
        recipe, values["codes"] = _untold_of_some, tx.tongue.several(listening.codes)
    found = [(subject, code, from_micros(since)) for subject, code, since in tx.all(recipe, **values)]
    halted = [
        (one.subject, one.code, one.since)
        for one in stopped(tx).values()
        if listening.codes is None or one.code in listening.codes
    ]
    if halted:
        subjects = tx.tongue.several([subject for subject, _, _ in halted])
        told = {
            (subject, code, from_micros(since))
            for subject, code, since in tx.all(_told, subjects=subjects, target=listening.target)
        }
        found += [one for one in halted if one not in told]
    return found


def begin(tx: Tx, target: str, found: Iterable[tuple[str, str, datetime]], at: datetime) -> None:
    """Begin tracks; those that are there stay as they are."""
    now, pending = to_micros(at), TrackState.PENDING.value
    tx.many(
        tx.prepared(_begin),
        [
            (subject, code, to_micros(since), target, now, pending, now, None, 0, 0, None, None, None)
            for subject, code, since in found
        ],
    )


def due(tx: Tx, target: str, now: datetime) -> list[Track]:
    """The tracks of a target that must be looked at, the longest due first."""
    return [_track(row) for row in tx.all(_due, target=target, now=to_micros(now), most=MOST)]


def take(tx: Tx, tracks: Sequence[Track], who: str, until: datetime) -> list[bool]:
    """Take tracks in order to send them; False for those that somebody else took, or that have moved on."""
    return [
        bool(tx.all(_take, **_key(track), was_due=_micros(track.due_at), who=who, until=to_micros(until)))
        for track in tracks
    ]


def settle(tx: Tx, outcomes: Sequence[Settled], held_until: datetime | None = None) -> int:
    """Write down what became of tracks: of those that were taken until `held_until`, or else as they were read.

    Returns how many were written; the others were taken by somebody else in the meantime.
    """
    return sum(
        tx.run(
            _settle,
            **_key(one.track),
            was_due=_micros(held_until or one.track.due_at),
            new_state=one.state.value,
            new_due=_micros(one.due_at),
            new_severity=None if one.severity is None else one.severity.value,
            new_rounds=one.rounds,
            new_attempts=one.attempts,
            new_sent_at=_micros(one.sent_at),
            new_error=encoding.text(one.last_error),
        )
        for one in outcomes
    )


def look_now(tx: Tx, subject: str, at: datetime) -> None:
    """Make everything that was told of a subject due: it has been acknowledged, or is no longer."""
    tx.run(_look_now, the_subject=subject, at=to_micros(at))


@dataclass(frozen=True, slots=True)
class FailingTarget:
    """A target that did not take what it was sent."""

    target: str
    notices: int
    attempts: int  #: the most tries in a row that failed
    since: datetime
    last_error: str


def failing(tx: Tx, targets: Iterable[str]) -> list[FailingTarget]:
    """Those of the targets that still owe us a success."""
    return [
        FailingTarget(target, count, attempts, from_micros(since), error or "")
        for target, count, attempts, since, error in tx.all(_failing, targets=tx.tongue.several(tuple(targets)))
    ]


def of_subject(tx: Tx, subject: str) -> list[Track]:
    """All tracks of an operation or provider."""
    return [_track(row) for row in tx.all(_of, the_subject=subject)]


def _key(track: Track) -> dict[str, Any]:
    return {
        "the_subject": track.subject,
        "the_code": track.code,
        "the_since": to_micros(track.since),
        "the_target": track.target,
    }


def _micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def _track(row: Sequence[Any]) -> Track:
    subject, code, since, target, first_seen, state, due_at, severity, rounds, attempts, sent_at, error, _ = row
    return Track(
        target=target,
        subject=subject,
        code=code,
        since=from_micros(since),
        first_seen=from_micros(first_seen),
        state=TrackState(state),
        due_at=_moment(due_at),
        severity=None if severity is None else Severity(severity),
        rounds=rounds,
        attempts=attempts,
        sent_at=_moment(sent_at),
        last_error=error,
    )
