"""The door for agents, the command line and the console: everything they may ask of the ledger, and nothing that sends.

`Ledger` is synchronous and safe to use from many processes. Each method reads the record, asks the rules whether the
wish is allowed, and writes one event that holds only if the record has not moved on meanwhile. HTTP is out of reach:
nothing imported here can open a connection to a provider (a test proves it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from opledger import config
from opledger.edges.clock import Clock, new_id
from opledger.edges.place import acting
from opledger.errors import Refused, UsageError
from opledger.ledger.reading import Reading, Span, WaitTimedOut, span
from opledger.ledger.shelf import Shelf
from opledger.ledger.submitting import Outcome, Submitting
from opledger.rules import decide, human
from opledger.rules import evidence as e
from opledger.rules.contract import Contract
from opledger.rules.model import Actor, ActorKind, Choice, Operation, State, to_rfc3339, utc
from opledger.rules.policy import Demand
from opledger.rules.wishes import Wish
from opledger.store import Answer, Changed, Provider, Recorded, Store, Write

if TYPE_CHECKING:  # what decisions need is loaded with the first one: most commands only look or submit
    from opledger.ledger.signing import Signing
    from opledger.rules.approval_signatures import Sign

__all__ = ["Ledger", "Outcome", "Reading", "Span", "WaitTimedOut", "Wish"]

TRIES: Final = 5
"""How often a wish is judged again because the record moved on under it."""

Judge = Callable[[Operation, Contract], e.Evidence]

_DECISIONS: Final = {
    "Approved": "approved",
    "Rejected": "rejected",
    "ApprovalExpired": "rejected because nobody approved it in time",
    "Withdrawn": "withdrawn",
}


class Ledger(Reading):
    """One open ledger. Make it with `open`; close it, or use it in a ``with`` statement.

    An operation may be named by its whole id or by its last eight or more characters. `by` is the name of whoever acts
    and defaults to the operator of the settings; a name such as ``agent-7`` is an agent's, and agents submit, wait and
    cancel, and never approve or resolve.
    """

    def __init__(self, store: Store, settings: config.Settings, clock: Clock) -> None:
        super().__init__(store, settings, clock)
        self._submitting = Submitting(store, settings, clock, Shelf(store, settings), self.show, self.contract_of)

    # --- submitting -----------------------------------------------------------------------------------------

    def submit(  # noqa: PLR0913 - one for each thing that can be said of a wish
        self,
        contract: str,
        body: Any = None,
        *,
        requested_by: str | None = None,
        operation_id: str | None = None,
        tags: Mapping[str, str] | None = None,
        expectation: str | None = None,
        create_deadline: Span | None = None,
        result_deadline: Span | None = None,
        supersedes: str | None = None,
        task: str | None = None,
        step: str | None = None,
    ) -> Operation:
        """Write a new operation down; a worker sends it. The same wish again returns the operation it already has.

        Raises BodyConflict where `operation_id`, or the step of the task, stands for another body; UnknownContract,
        ContractInvalid and UsageError for what they say. Nothing is half-written.
        """
        wish = Wish(
            contract,
            body,
            requested_by=self.settings.operator if requested_by is None else requested_by,
            operation_id=operation_id,
            tags=tags or {},
            expectation=expectation,
            create_deadline=span(create_deadline, "the create deadline"),
            result_deadline=span(result_deadline, "the result deadline"),
            supersedes=supersedes,
            task=task,
            step=step,
        )
        return _or_raise(self.submit_many([wish])[0])

    def submit_many(self, asked: Sequence[Wish]) -> tuple[Outcome, ...]:
        """Write many new operations in one transaction, each with its own outcome: the operation, or why not."""
        return self._submitting.submit_many(asked)

    # --- deciding -------------------------------------------------------------------------------------------

    def approve(
        self,
        operation: str,
        *,
        reason: str,
        by: str | None = None,
        fingerprint: str | None = None,
        expected_version: int | None = None,
        sign: Sign | None = None,
    ) -> Operation:
        """Approve the request as it is recorded. With the last approval that is needed it may be sent.

        `fingerprint` and `expected_version` are what the approver looked at: where they no longer hold, nothing is
        approved. `sign` signs the approval (`signing.signing`). Raises Refused for agents, for the requester under four
        eyes, and for a second vote of one person; SignatureRequired where an approval must be signed and is not, and
        BadSignature where the signature is not this approver's over this approval.
        """
        signed = self._signing(sign, by, reason)

        def judge(op: Operation, contract: Contract) -> e.Evidence:
            approved = signed.signed(op, allowed)
            return replace(approved, shown=self._shown(op).sha256, contract_digest=op.contract_digest)

        def allowed(op: Operation) -> tuple[e.Approved, Demand]:
            self._still_asked(op, "approve")
            demand = self.demand(op)
            return human.approval(op, self._who(by), demand, fingerprint, now=self.clock.now()), demand

        return self._act(operation, by, reason, judge, expected_version=expected_version)

    def review(self, operation: str) -> dict[str, Any]:
        """Return what an approver is to look at: the exact request, the guarantees, and what is much like it."""
        from opledger.ledger.reviewing import review_of

        return review_of(self, self.show(operation))

    def reject(
        self, operation: str, *, reason: str, by: str | None = None, expected_version: int | None = None
    ) -> Operation:
        """Refuse the request; it never leaves. Raises Refused for agents, and for the requester under four eyes."""

        def judge(op: Operation, contract: Contract) -> e.Evidence:
            self._still_asked(op, "reject")
            return human.rejection(op, self._who(by), self.demand(op))

        return self._act(operation, by, reason, judge, expected_version=expected_version)

    def cancel(
        self,
        operation: str,
        *,
        reason: str,
        by: str | None = None,
        effect: str = "",
        also: Sequence[str] = (),
        expected_version: int | None = None,
    ) -> Operation:
        """Take back what was never sent, or record the wish to cancel: a worker sends it, once.

        `effect` says what the requester expects to happen. Where the same call would stop other operations too, all of
        them must be named in `also`, and each is cancelled by its own event. Raises Refused where nothing can be
        cancelled, and why.
        """
        request = new_id("req")

        def judge(op: Operation, contract: Contract) -> e.Evidence:
            shares = self._shared_target(op, contract, also)
            return human.cancellation(op, contract, self._who(by), request, effect, shares=shares)

        return self._act(
            operation,
            by,
            reason,
            judge,
            request=request,
            expected_version=expected_version,
        )

    def resolve(
        self,
        operation: str,
        choice: Choice | str,
        *,
        reason: str,
        by: str | None = None,
        job: str | None = None,
        extend_by: Span | None = None,
        expected_version: int | None = None,
    ) -> Operation:
        """Decide what no program may decide: one of `choices`, with the job or the time that it needs.

        Raises Refused for agents, for what is not offered, and where a job or a time is missing; UsageError for a word
        that is no choice at all, or for a job or a time that the choice does not take.
        """
        if choice not in list(Choice):
            raise UsageError(f"{choice!r} is no choice; there are: {', '.join(Choice)}")
        request, length = new_id("req"), span(extend_by, "the time")
        return self._act(
            operation,
            by,
            reason,
            lambda op, contract: human.decision(
                op, contract, self._who(by), Choice(choice), request_id=request, job=job, extend_by=length
            ),
            request=request,
            expected_version=expected_version,
        )

    def acknowledge(
        self, operation: str, *, by: str | None = None, reason: str = "seen", until: datetime | None = None
    ) -> Operation:
        """Record that a person has seen the attention and works on it; notices about it fall silent.

        That lapses at `until`, or else when the attention ends. Where nothing needs attention it is a mere remark.
        Raises Refused for agents, UsageError for a time that has passed or has no zone.
        """
        who = self._person(by, "acknowledge")
        if until is not None and (until.tzinfo is None or until <= self.clock.now()):
            raise UsageError("an acknowledgement must hold until a time that is still ahead, given with its zone")
        op = self._act(
            operation, by, reason, lambda *_: e.Acknowledged(who.name, None if until is None else utc(until))
        )
        # After the record: should this be lost, the next repetition finds the acknowledgement by itself.
        self.store.review_notices(op.operation_id, self.clock.now())
        return op

    def note(self, operation: str, text: str, *, by: str | None = None) -> Operation:
        """Add a remark to the journal; it changes nothing else."""
        return self._act(operation, by, human.reason(text), lambda *_: e.Noted(text.strip()))

    def ask_for_read(self, operation: str, *, by: str | None = None) -> Operation:
        """Make a status read due now; whichever worker holds or takes the operation does it.

        Raises Refused where the provider has none.
        """
        who = self._who(by)
        self.check_has_status_read(self.show(operation))
        return self._act(operation, by, "a read was asked for", lambda *_: e.Notified("person", who.name))

    def _shared_target(self, op: Operation, contract: Contract, also: Sequence[str]) -> str | None:
        """Return the operation whose cancel call stops this one too, if one was sent or asked for already.

        Raises Refused where others would be stopped that nobody named.
        """
        from opledger.ledger.reviewing import sharing

        others = sharing(self, op, contract)
        named = {self.show(one).operation_id for one in also} if others else set()
        unnamed = [other.operation_id for other in others if other.operation_id not in named and other.cancel is None]
        if unnamed:
            raise Refused(
                f"cancelling {op.operation_id} would also stop {', '.join(unnamed)}: the provider has one cancel for "
                "all of them; name them all in one cancel"
            )
        return next((other.operation_id for other in others if other.cancel is not None), None)

    def _signing(self, sign: Sign | None, by: str | None, reason: str) -> Signing:
        from opledger.ledger.signing import Signing

        return Signing(self, sign, self._who(by).name, human.reason(reason))

    def _shown(self, op: Operation) -> Answer:
        from opledger.ledger.reviewing import shown_to

        return shown_to(self, op)

    def _who(self, by: str | None) -> Actor:
        return acting(human.actor(self.settings.operator if by is None else by))

    def _person(self, by: str | None, verb: str) -> Actor:
        who = self._who(by)
        if who.kind is ActorKind.AGENT:
            raise Refused(f"{who.name} is an agent; only a person may {verb}")
        return who

    def _act(
        self,
        operation: str,
        by: str | None,
        reason: str,
        judge: Judge,
        *,
        request: str | None = None,
        expected_version: int | None = None,
    ) -> Operation:
        """Judge the record as it stands and write what follows; judge anew where it moved on in between."""
        because, operation_id, cause = human.reason(reason), self.show(operation).operation_id, request or new_id("req")
        for _ in range(TRIES):
            op = self.store.get(operation_id)
            if expected_version is not None and op.version != expected_version:
                raise Changed(self.what_changed(op, expected_version))
            contract = self.contract_of(op)
            evidence = judge(op, contract)
            write = self._write(op, contract, evidence, self._who(by), because, f"human_request:{cause}")
            if isinstance(evidence, e.Approved):
                write = replace(write, answer=self._shown(op))
            (outcome,) = self.store.record_many([replace(write, expected_version=op.version)])
            if isinstance(outcome, Recorded):
                return outcome.operation
            if not isinstance(outcome.error, Changed):
                raise outcome.error
        raise Refused(f"{operation_id} changes too fast to be decided upon; look at it and try again")

    def _write(
        self, op: Operation, contract: Contract, evidence: e.Evidence, who: Actor, reason: str, cause: str
    ) -> Write:
        now, jitter = self.clock.now(), self.clock.random()
        return Write(
            operation_id=op.operation_id,
            evidence=evidence,
            actor=who,
            at=now,
            cause=cause,
            reason=reason,
            plan=lambda after: decide.plan(after, contract, evidence, now, jitter),
        )

    def _still_asked(self, op: Operation, verb: str) -> None:
        """Tell whoever comes too late who decided, when, and what."""
        if op.state is State.AWAITING_APPROVAL:
            return
        for event in reversed(self.events(op.operation_id)):
            if event.kind in _DECISIONS:
                raise Refused(
                    f"{op.operation_id} was {_DECISIONS[event.kind]} by {event.actor} at {to_rfc3339(event.at)} and is "
                    f"now {op.state}; there is nothing left to {verb}"
                )
        raise Refused(f"{op.operation_id} needs no approval and is {op.state}; there is nothing to {verb}")

    # --- providers and contracts ----------------------------------------------------------------------------

    def providers(self) -> tuple[Provider, ...]:
        """Return every provider that the ledger or a contract file knows, and whether calls to it are stopped."""
        known = {provider.contract: provider for provider in self.store.providers()}
        for file in config.list_contracts(self.settings):
            known.setdefault(file.name, Provider(file.name, "open"))
        return tuple(known[name] for name in sorted(known))

    def pause_provider(self, contract: str, *, reason: str, by: str | None = None) -> Provider:
        """Stop all calls to one provider, in every worker. Raises Refused where they are stopped already."""
        before, who = self._provider(contract), self._person(by, "pause a provider")
        if not self.store.pause_provider(contract, who.name, human.reason(reason), self.clock.now()):
            since = f" by {before.by} at {to_rfc3339(before.since)}" if before.since is not None else ""
            raise Refused(f"calls to {contract} were paused{since} ({before.reason}); resume them first")
        return self._provider(contract)

    def resume_provider(self, contract: str, *, reason: str, by: str | None = None) -> Provider:
        """Allow calls to a provider again. Raises Refused where they are not stopped."""
        self._provider(contract)
        who = self._person(by, "resume a provider")
        if not self.store.resume_provider(contract, who.name, human.reason(reason), self.clock.now()):
            raise Refused(f"calls to {contract} are not paused; there is nothing to resume")
        return self._provider(contract)

    def _provider(self, contract: str) -> Provider:
        for provider in self.providers():
            if provider.contract == contract:
                return provider
        config.find_contract(self.settings, contract)
        return Provider(contract, "open")


def _or_raise(outcome: Outcome) -> Operation:
    if isinstance(outcome, Operation):
        return outcome
    raise outcome
