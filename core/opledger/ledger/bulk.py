"""Deciding many at once: freeze the set, say what would become of each, then decide them one by one.

Nothing here is decided together: every operation is judged and recorded by itself, so a run that is interrupted leaves
whole decisions behind, and the same run again goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from opledger.errors import Refused, UsageError
from opledger.ledger import TRIES, Judge, Ledger
from opledger.ledger.reading import RECENT, Span
from opledger.ledger.signing import Signing, Unasked
from opledger.rules import evidence as e
from opledger.rules import human
from opledger.rules.approval_signatures import Sign
from opledger.rules.choices import choices
from opledger.rules.contract import Contract
from opledger.rules.model import Actor, Operation, State, to_rfc3339
from opledger.rules.projection import Entry, project
from opledger.rules.shapes import event_of
from opledger.store import Answer, Changed

Verb = Literal["approve", "reject", "cancel", "resolve"]

PAGE: Final = 1000
_KINDS: Final[Mapping[Verb, frozenset[str]]] = {
    "approve": frozenset({"Approved"}),
    "reject": frozenset({"Rejected"}),
    "cancel": frozenset({"CancelRequested", "Withdrawn"}),
    "resolve": frozenset({"Decided"}),
}
_READS: Final = frozenset({"Observed", "ReadFailed", "LeaseTaken"})
"""Events of a worker that looks, which change nothing that a preview showed while the state stays the same."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is decided about each operation of a set, and why."""

    verb: Verb
    reason: str
    by: str | None = None  #: who decides; the operator of the settings where nobody is named
    effect: str = ""  #: of a cancel: what is expected to happen
    choice: str = ""  #: of resolve
    job: str | None = None
    extend_by: Span | None = None
    fingerprint: str | None = None  #: of approve: the request that was looked at; another one is not approved
    sign: Sign | None = None  #: of approve: what signs each

    def on(
        self, ledger: Ledger, operation: str, *, also: Sequence[str] = (), expected_version: int | None = None
    ) -> Operation:
        """Decide one operation; `also` are all that are decided with it. Raises what the ledger raises."""
        who = self.by
        if self.verb == "approve":
            return ledger.approve(
                operation,
                reason=self.reason,
                by=who,
                fingerprint=self.fingerprint,
                expected_version=expected_version,
                sign=self.sign,
            )
        if self.verb == "reject":
            return ledger.reject(operation, reason=self.reason, by=who, expected_version=expected_version)
        if self.verb == "cancel":
            return ledger.cancel(
                operation,
                reason=self.reason,
                by=who,
                effect=self.effect,
                also=also,
                expected_version=expected_version,
            )
        return ledger.resolve(
            operation,
            self.choice,
            reason=self.reason,
            by=who,
            job=self.job,
            extend_by=self.extend_by,
            expected_version=expected_version,
        )


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a decision would do to one operation, as things stand; `operation` is None where there is none."""

    operation_id: str
    eligible: bool
    because: str
    operation: Operation | None = None
    to: State | None = None
    done: bool = False  #: this very decision was made before


@dataclass(frozen=True, slots=True)
class Target:
    """One operation to decide; with a `version`, only as long as it stands as it did then."""

    name: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one operation: the record, or why not. `done`: decided so before, and nothing was written."""

    operation_id: str
    operation: Operation | None
    error: Refused | None = None
    done: bool = False


def freeze(
    ledger: Ledger,
    *,
    states: Sequence[str] = (),
    contract: str | None = None,
    attention: bool = False,
    tags: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Return the ids of all operations that match now, newest first; what matches later is not among them.

    Raises UsageError where nothing restricts the set: nobody means every operation of a ledger.
    """
    if not (states or contract or attention or tags):
        raise UsageError(
            "which operations? Give their ids, or a filter: --state S, --contract C, --tag K=V, --attention"
        )
    found: list[str] = []
    while True:
        page = ledger.list(
            states=states,
            contract=contract,
            attention=attention,
            tags=tags,
            limit=PAGE,
            after=found[-1] if found else None,
        )
        found += [op.operation_id for op in page]
        if len(page) < PAGE:
            return tuple(found)


def preview(ledger: Ledger, names: Iterable[str], decision: Decision) -> list[Prospect]:
    """Say for each operation what the decision would do, and write nothing.

    Raises UsageError where the decision itself makes no sense.
    """
    rehearsal = _Rehearsal(ledger)
    asked = list(dict.fromkeys(names))
    known = _known(ledger, asked) if decision.verb == "cancel" else ()
    return [_prospect(rehearsal, name, decision, known) for name in asked]


def carry_out(ledger: Ledger, targets: Sequence[Target], decision: Decision) -> Iterator[Outcome]:
    """Decide the operations one by one, each with its own outcome.

    Refusals are outcomes, except for UsageError: it would be the same for all of them. Whatever else is raised (the
    database has gone) leaves the rest undecided; to go on, do the same again.
    """
    also = [target.name for target in targets]
    known = _known(ledger, also) if decision.verb == "cancel" else ()
    for target in targets:
        try:
            done = _decided(ledger, target, decision, known)
            yield Outcome(done.operation_id, done)
        except UsageError:
            raise
        except Refused as error:
            op = _find(ledger, target.name)
            same = op is not None and done_before(ledger, op, decision) is not None
            name = target.name if op is None else op.operation_id
            yield Outcome(name, op, None if same else error, done=same)


def done_before(ledger: Ledger, op: Operation, decision: Decision) -> str | None:
    """Return when this very decision (who, what, why) was made about an operation before; None if it was not."""
    who = human.actor(decision.by or ledger.settings.operator).name
    for row in reversed(ledger.store.queries.events(op.operation_id, max(op.head_seq - RECENT, 0), limit=RECENT)):
        event = event_of(row)
        data = event.data or {}
        same = event.kind in _KINDS[decision.verb] and event.actor == who and event.reason == decision.reason.strip()
        if same and (
            decision.verb != "resolve" or (data.get("choice"), data.get("job_id")) == (decision.choice, decision.job)
        ):
            return to_rfc3339(event.at)
    return None


def _decided(ledger: Ledger, target: Target, decision: Decision, also: Sequence[str]) -> Operation:
    version = target.version
    for _ in range(TRIES):
        try:
            return decision.on(ledger, target.name, also=also, expected_version=version)
        except Changed:
            op = ledger.show(target.name)
            if version is None or not _only_read(ledger, op, version):
                raise
            version = op.version
    return decision.on(ledger, target.name, also=also, expected_version=version)


def changed_meanwhile(ledger: Ledger, operation: str, version: int) -> str | None:
    """Say what happened to a record since `version`; None where a decision that was bound to it still holds."""
    op = ledger.show(operation)
    if op.version == version or _only_read(ledger, op, version):
        return None
    return ledger.what_changed(op, version)


def _only_read(ledger: Ledger, op: Operation, version: int) -> bool:
    """Tell whether a worker has merely looked at the job since, and found it where it was."""
    rows = ledger.store.queries.events(op.operation_id, version, limit=RECENT)
    return bool(rows) and all(row.kind in _READS and row.to_state is None for row in rows)


def _find(ledger: Ledger, name: str) -> Operation | None:
    try:
        return ledger.show(name)
    except Refused:
        return None


def _known(ledger: Ledger, names: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of those that there are: one that is not there is its own refusal and nobody else's."""
    return tuple(op.operation_id for name in names if (op := _find(ledger, name)) is not None)


# --- rehearsing --------------------------------------------------------------------------------------------------


class _Rehearsal(Ledger):
    """A ledger that judges every wish as the other one would, and writes nothing."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger.store, ledger.settings, ledger.clock)
        self.judged: tuple[Operation, e.Evidence] | None = None

    def _act(
        self,
        operation: str,
        by: str | None,
        reason: str,
        judge: Judge,
        *,
        request: str | None = None,  # noqa: ARG002 - nothing is recorded under it
        expected_version: int | None = None,  # noqa: ARG002 - the record is taken as it stands
    ) -> Operation:
        because, op, who = human.reason(reason), self.show(operation), self._who(by)
        evidence = judge(op, self.contract_of(op))
        self.judged = (op, evidence)
        return project(op, _entry(self, op, who, evidence, because))

    def _signing(self, sign: Sign | None, by: str | None, reason: str) -> Signing:
        return Unasked(self, sign, self._who(by).name, human.reason(reason))

    def _shown(self, op: Operation) -> Answer:  # noqa: ARG002
        return Answer.of(b"")  # what the approver was shown is kept with a real approval, and costs many reads


def _entry(ledger: Ledger, op: Operation, who: Actor, evidence: e.Evidence, reason: str) -> Entry:
    return Entry(op.operation_id, op.head_seq + 1, ledger.clock.now(), who, evidence, "preview", reason)


def _prospect(rehearsal: _Rehearsal, name: str, decision: Decision, also: Sequence[str]) -> Prospect:
    try:
        op = rehearsal.show(name)
    except Refused as error:
        return Prospect(name, eligible=False, because=error.message)
    try:
        after = decision.on(rehearsal, op.operation_id, also=also)
    except UsageError:
        raise
    except Refused as error:
        at = done_before(rehearsal, op, decision)
        said = error.message if at is None else f"this was decided at {at} already; it is now {op.state}"
        return Prospect(op.operation_id, eligible=False, because=said, operation=op, done=at is not None)
    assert rehearsal.judged is not None
    before, evidence = rehearsal.judged
    because = _because(before, after, evidence, rehearsal.contract_of(before))
    return Prospect(op.operation_id, eligible=True, because=because, operation=before, to=after.state)


def _because(before: Operation, after: Operation, evidence: e.Evidence, contract: Contract) -> str:
    if isinstance(evidence, e.Approved):
        count = f"approval {len(after.approvals)} of {after.approvals_needed}"
        return f"{count}: it may then be sent" if after.state is not before.state else f"{count}: it goes on waiting"
    if isinstance(evidence, e.Rejected):
        return "it is rejected and never sent"
    if isinstance(evidence, e.Withdrawn):
        return "nothing was sent yet: it is withdrawn"
    if isinstance(evidence, e.CancelRequested):
        if evidence.shares is not None:
            return f"a cancel is recorded; the one of {evidence.shares} stops this job too"
        leaves = f"; it leaves behind: {contract.cancel.leaves}" if contract.cancel and contract.cancel.leaves else ""
        if after.state is State.CANCEL_REQUESTED:
            return f"a cancel is recorded and sent once{leaves}"
        return f"a cancel is recorded and sent once the job's id is known{leaves}"
    if isinstance(evidence, e.Decided):
        option = next(option for option in choices(before, contract) if option.choice is evidence.choice)
        return option.consequence
    return f"it becomes {after.state}"  # pragma: no cover - there are no other decisions
