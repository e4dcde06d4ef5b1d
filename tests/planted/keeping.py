"""Bugs in what is kept: the journal and its evidence, its chain, checkpoints, files, and what must not be in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final

from opledger.edges import failures, http
from opledger.ledger import audit as audits
from opledger.ledger import auditing, verifying
from opledger.rules import audit, auditlog, journal, projection
from opledger.rules import evidence as e
from opledger.rules.journal import Finding
from opledger.rules.redact import Redactor
from opledger.store import encoding, recording, rows
from opledger.worker.hand import Hand
from tests.model.designs import Patch, _nothing, _uncounted, _unsent, both, entry, function
from tests.planted.bug import Bug
from tests.planted.looks import death, inputs, power, seeds, tampering
from tests.planted.looks import states as worlds
from tests.planted.looks import table as coded
from tests.simulation.planted import _forget

# --- evidence -------------------------------------------------------------------------------------------------------

_write, _record, _note = Hand.write, Hand.record, Hand._keep_late


def _keeps_nothing(self: Any, outcome: Any, contract: Any) -> None:
    """Store no answer."""


def _answer_left_out(self: Any, evidence: Any, cause: str, *, answer: Any = None, **how: Any) -> Any:
    """Name an answer, and do not store it."""
    return _write(self, evidence, cause, **how)


def _some_cause(self: Any, evidence: Any, cause: str, **how: Any) -> Any:
    return _write(self, evidence, "recovery", **how)


def _no_reason(self: Any, evidence: Any, cause: str, **how: Any) -> Any:
    return _write(self, evidence, "", **how)


def _uncited(self: Any, evidence: Any, cause: str, **how: Any) -> Any:
    if isinstance(evidence, e.Observed):
        evidence = replace(evidence, call_id=None)
    return _write(self, evidence, cause, **how)


# --- the journal ----------------------------------------------------------------------------------------------------

_seal, _link, _changes = recording.seal, journal.link, rows.changes
_body_of, _micros = journal.body_of, encoding.to_micros


def _forks(before: Any, after: Any, entry: Any, plan: Any, lease: Any) -> Any:
    """Let every fifth event follow from nothing."""
    lost = before is not None and before.head_seq % 5 == 4
    return _seal(replace(before, head_hash=journal.GENESIS) if lost else before, after, entry, plan, lease)


def _coarse(entry: Any, *rest: Any) -> bytes:
    """Hash a time with other digits than the columns have."""
    return _body_of(entry._replace(at=entry.at.replace(microsecond=entry.at.microsecond // 1000 * 1000)), *rest)


def _stays(before: Any, after: Any) -> Any:
    """Leave the row's state as it was now and then."""
    if before is not None and after.version % 5 == 4:
        after = replace(after, state=before.state)
    return _changes(before, after)


# --- verifying ------------------------------------------------------------------------------------------------------

_against, _whole, _columns, _verify = audit.against_leaves, audit.Scanner._whole, journal._columns, verifying.verify
_verify_chain = journal.verify_chain


def _without(*kinds: str) -> Callable[..., Any]:
    def found(*given: Any, **how: Any) -> list[Finding]:
        return [one for one in _against(*given, **how) if one.kind not in kinds]

    return found


def _chain_without(*kinds: str) -> Patch:
    """A verifier of chains that does not know some findings; the fast one hands all to it."""

    def verified(*given: Any, **how: Any) -> list[Finding]:
        return [one for one in _verify_chain(*given, **how) if one.kind not in kinds]

    return function(audit, "verify_chain", verified)


def _only_hashes(self: Any, operation_id: str, rows: Any) -> bool:
    """Believe the columns where the chain holds."""
    before, head = bytes(32), journal._head(operation_id)
    for seq, row in enumerate(rows, 1):
        digest = sha256(head + seq.to_bytes(8, "big") + before + sha256(row[10]).digest()).digest()
        if row[1] != seq or row[11] != before or row[12] != digest or row[0] != operation_id or row[13] != 1:
            return False
        before = digest
    return True


def _fewer_columns(event: Any) -> Any:
    found = _columns(event)
    del found["cause"], found["reason"]
    return found


def _blind_to(column: int) -> Any:
    def whole(self: Any, operation_id: str, rows: Any) -> bool:
        kept = [list(row) for row in rows]
        for row in kept:
            said = journal._read(row[10]) or {}
            row[column] = said.get({7: "cause", 8: "reason"}[column], row[column])
        return _whole(self, operation_id, kept)

    return whole


def _is_fine(*given: Any, **how: Any) -> Any:
    found = _verify(*given, **how)
    return replace(
        found,
        findings=tuple(one for one in found.findings if one.kind != "NOTHING_CHECKED"),
        kinds=tuple(pair for pair in found.kinds if pair[0] != "NOTHING_CHECKED"),
    )


def _nobody_signs(self: Any) -> Any:
    return lambda _: None


def _no_anchor(*_: Any, **__: Any) -> auditlog.Anchors:
    return auditlog.Anchors()


def _same_size(self: Any, note: Any, peaks: Any) -> None:
    """Find that a checkpoint covers as many leaves as it says, and look no further."""
    _grow(self, note, peaks)


_grow = auditlog._Growing.to
_explained = auditlog._given_up


class _Anything(list[Any]):
    def __contains__(self, other: object) -> bool:
        return True


def _all_given_up(*_: Any) -> Any:
    return _Anything()


def _none_missing(self: Any) -> Finding:
    return Finding("UNANCHORED_TAIL", None, None, "nothing to see")


_look = auditing._One.look


def _looks_away(self: Any, scanner: Any) -> list[Finding]:
    return [] if not self.chain else _look(self, scanner)


def _no_record(*_: Any, **__: Any) -> list[Finding]:
    return []


# --- secrets --------------------------------------------------------------------------------------------------------


def _as_it_is(self: Any, value: Any) -> Any:
    return value


def _own_words(error: BaseException) -> str:
    return f"the exchange failed ({error})"


def _whole_url(text: str) -> str:
    return text


BUGS: Final = (
    # Evidence.
    Bug("the evidence is missing", (seeds("I13"),), function(Hand, "keep", _keeps_nothing)),
    Bug("an answer is named and not stored", (seeds("I23"),), function(Hand, "write", _answer_left_out)),
    Bug("the cause is wrong", (seeds("I13"),), function(Hand, "write", _some_cause)),
    Bug("there is no cause", (seeds("I13"),), function(Hand, "write", _no_reason), quick=True),
    Bug("a status read cites no call", (seeds("I13"),), function(Hand, "write", _uncited)),
    Bug(
        "a late answer is dropped",
        (seeds("I17", "I3", faults={"stalled before send": 0.3, "answer late": 0.2}),),
        function(Hand, "_keep_late", _forget),
    ),
    Bug(
        "the job of a late answer is not remembered",
        (worlds("resend"),),
        entry(projection._HANDLERS, e.Noted, _nothing),
    ),
    Bug(
        "a permit leaves no trace",
        (worlds("blind"), seeds("I14", "I23", "I4", "I6")),
        entry(projection._HANDLERS, e.CallSent, _uncounted),
    ),
    Bug(
        "the first send is not remembered",
        (worlds("blind"), coded("status")),
        entry(projection._HANDLERS, e.CallSent, _unsent),
    ),
    # The journal.
    Bug("a chain forks", (seeds("I23"),), function(recording, "seal", _forks), issue="F17"),
    Bug(
        "a time is hashed with other digits than are stored",
        (seeds("I23"),),
        function(journal, "body_of", _coarse),
        issue="F17",
    ),
    Bug("a row does not follow its journal", (seeds("I14", "I23"),), function(rows, "changes", _stays)),
    # Verifying (F17).
    Bug(
        "a tail that was cut is not noticed",
        (tampering(),),
        function(audit, "against_leaves", _without("BEHIND_CHECKPOINT")),
        issue="F17",
        quick=True,
    ),
    Bug(
        "a checkpoint compares only how long a chain is",
        (tampering(),),
        function(audit, "against_leaves", _without("REWRITTEN")),
        issue="F17",
    ),
    Bug(
        "a checkpoint compares only its size",
        (tampering(),),
        function(auditlog._Growing, "to", _same_size),
        issue="F17",
    ),
    Bug(
        "the columns are outside the digest",
        (tampering(), inputs("forged")),
        function(audit.Scanner, "_whole", _only_hashes),
        issue="F17",
    ),
    Bug(
        "one column is outside the digest",
        (tampering(),),
        both(function(audit.Scanner, "_whole", _blind_to(7)), function(journal, "_columns", _fewer_columns)),
        issue="F17",
    ),
    Bug("zero rows are reported fine", (tampering(),), function(audits, "verify", _is_fine), issue="F17"),
    Bug(
        "signatures of checkpoints are not looked at", (tampering(),), function(verifying.Trust, "judge", _nobody_signs)
    ),
    Bug("anchors are not compared", (tampering(),), function(auditlog, "compare", _no_anchor)),
    Bug("a checkpoint that is gone is not missed", (tampering(),), function(auditlog, "_given_up", _all_given_up)),
    Bug("an operation that is gone is not missed", (tampering(),), function(auditing._One, "look", _looks_away)),
    Bug(
        "records are not compared with their journals",
        (tampering(), inputs("forged", executions=400)),
        function(auditing, "_compared", _no_record),
    ),
    Bug(
        "an event that is gone is not missed",
        (tampering(), inputs("export", executions=400)),
        _chain_without("SEQ", "LINK"),
    ),
    Bug("an older format is taken", (tampering(),), _chain_without("FORMAT_DOWNGRADE")),
    Bug("an event of another operation is taken", (tampering(),), _chain_without("MOVED")),
    # Files.
    Bug("commits are not synced", (power("off"),), issue="F1"),
    Bug("commits are synced as SQLite calls normal", (power("normal"),), issue="F1"),
    Bug("the bytes of results are not synced", (power("bytes"),)),
    Bug("the names of results are not synced", (power("folders"),)),
    Bug("a checkpoint is anchored before it is committed", (death("anchored-first"),)),
    Bug("half a result lies at its place", (death("half-result"),)),
    # Tasks.
    Bug("a task's progress file is written before its ledger", (death("progress-first"),)),
    Bug("a task submits again what it has submitted", (death("keyless"),)),
    # Secrets.
    Bug(
        "what an answer repeats of our secrets is kept",
        (seeds("I24"),),
        both(*(function(Redactor, name, _as_it_is) for name in ("hide_bytes", "hide_text", "mask_bytes", "mask_text"))),
    ),
    Bug(
        "an error's own words are recorded",
        (seeds("I24", faults={"refused": 0.5}),),
        both(*(function(module, "words", _own_words) for module in (failures, http))),
    ),
)
