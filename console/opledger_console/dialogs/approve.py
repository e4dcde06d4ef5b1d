"""Approve: exactly what will be sent, what the contract promises of it and what not, who asked, and what is like it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from opledger.rules import jsontext
from opledger.rules.model import Operation
from opledger.rules.shapes import Json
from opledger_console.dialogs.base import Clock
from opledger_console.dialogs.deciding import Deciding, due, titled
from opledger_console.dialogs.heads import Head, head_of
from opledger_console.dialogs.lines import Piece
from opledger_console.dialogs.parts import Lack
from opledger_console.verdicts import Verdict
from opledger_console.views import span

SHOWN: Final = 256 * 1024
"""So many characters of a body are shown; what is left out is said."""

_GRADES: Final[Mapping[str, str]] = {
    "server_enforced": "yes, enforced by the provider while it keeps the job's record",
    "bounded": "yes, enforced by the provider for a limited time",
    "two_phase": "yes, because the first call starts nothing",
    "lookup_strong": "by look-up under our own reference; the provider enforces nothing",
    "lookup_weak": "hardly: the provider enforces nothing, and a look-up may find other jobs",
    "none": "NO: the provider enforces nothing and cannot be asked",
}
_RELATIONS: Final[Mapping[str, str]] = {
    "supersedes": "Compared with the one that it supersedes",
    "same": "THE SAME REQUEST IS OPEN ALREADY",
    "alike": "A request much like it is open",
}


class ApproveDialog(Deciding):
    """Approve the request that is shown, and no other: the verdict carries its fingerprint and the version."""

    keep_word = "Not now"
    confirm_word = "Approve"

    def __init__(
        self, operation: Operation, review: Json, now: datetime, *, grace: float = 5.0, clock: Clock | None = None
    ) -> None:
        super().__init__(operation, now, grace=grace, clock=clock)
        self.review = review
        self._opened: float | None = None
        if review["fingerprint"] != operation.request_fingerprint:
            self._moved = "the request that is shown is not the one of this record; open it again"

    def head(self) -> Head:
        """With the fingerprint that is approved, and how long it can be."""
        head = head_of("APPROVE", self.operation, str(self.review["fingerprint"]))
        return replace(head, lapses=self._lapses())

    def on_mount(self) -> None:
        """Let the time run."""
        self._opened = self._clock()
        self.set_interval(1.0, self.show_head)

    def _lapses(self) -> str:
        deadline = self.operation.approval_deadline
        if deadline is None:
            return ""
        passed = timedelta(seconds=self._clock() - (self._opened or self._clock()))
        left = deadline - self.now - passed
        return f"lapses {span(left)}" if left > timedelta(0) else "LAPSED"

    def pieces(self) -> Sequence[Piece]:
        """All that an approver is to look at."""
        return review_pieces(self.review, self.operation, self.now)

    def lacks(self) -> Sequence[Lack]:
        """A signature, where one is demanded: it cannot be made here, so that this dialog only shows."""
        return (Lack("your signature"),) if self.review["signed"] else super().lacks()

    def effect(self) -> str:
        """The one thing that matters."""
        if self.review["signed"]:
            return f"It must be signed, on a command line: {_command(self.operation.operation_id)}"
        given, needed = len(self.review["approvals"]), int(self.review["approvals_needed"])
        if given + 1 < needed:
            return f"Gives approval {given + 1} of {needed}; it goes on waiting. An approval cannot be taken back."
        return "The worker may then send exactly this request, once. What has been sent cannot be called back."

    def result(self) -> Verdict:
        """Approve this fingerprint at this version."""
        op = self.operation
        return Verdict(
            "approve", op.operation_id, op.version, self.value("reason"), fingerprint=str(self.review["fingerprint"])
        )


def review_pieces(review: Json, op: Operation, now: datetime) -> tuple[Piece, ...]:
    """Return a review as content of a dialog."""
    return tuple(_pieces(review, op, now))


def _pieces(review: Json, op: Operation, now: datetime) -> Iterator[Piece]:
    yield from titled("Before you decide", tuple(_warnings(review)))
    yield from titled("Exactly this will be sent", tuple(request_pieces(review["request"], review["credentials"])))
    yield from titled("Who asks, and why", tuple(_asked(review, op, now)))
    yield from titled("What the contract promises", tuple(_promises(review)))
    compared = review["compared_with"]
    if compared is not None:
        yield from titled(_RELATIONS.get(compared["relation"], "Compared"), tuple(compared_pieces(compared)))


def _command(operation_id: str) -> str:
    return f"opledger approve {operation_id} --reason R --sign"


def _warnings(review: Json) -> Iterator[Piece]:
    if review["signed"]:
        yield Piece("! An approval counts only with your SSH signature, which is made on a command line:", "warn")
        yield Piece(_command(review["operation_id"]), "data", 2)
    compared = review["compared_with"]
    if compared is not None and compared["relation"] == "same":
        yield Piece("! The same request is open already: this would be a second job. See the end.", "warn")
    if review["billable"]:
        yield Piece("! It costs money.", "warn")
    if review["guarantees"]["create"]["at_most_once"] in ("none", "lookup_weak"):
        yield Piece("! A lost answer may end in two jobs: see what the contract promises.", "warn")
    if review["destroys"]:
        yield Piece("! A later cancel destroys:", "warn")
        yield from (Piece(str(what), "said", 2) for what in review["destroys"])


def request_pieces(request: Json, credentials: str | None) -> Iterator[Piece]:
    """Show a request: method, address, headers (masked before they came here), credential reference, body."""
    yield Piece(f"{request['method']} {request['url']}", "data")
    for name, value in request["headers"].items():
        yield Piece(f"{name}: {value}", "data")
    yield Piece(
        f"credential: {credentials}" if credentials else "without a credential", "dim" if not credentials else "data"
    )
    body = request["body"]
    text = body if isinstance(body, str) else jsontext.dumps_inert(body, indent=2)
    yield Piece("body:" if text else "no body", "dim")
    if text:
        yield Piece(text[:SHOWN], "data")
    if len(text) > SHOWN:
        yield Piece(f"! {len(text) - SHOWN} of {len(text)} characters of the body are not shown here.", "warn")


def _asked(review: Json, op: Operation, now: datetime) -> Iterator[Piece]:
    yield Piece("requested by:")
    yield Piece(str(review["requested_by"]), "said", 2)
    if review["expectation"]:
        yield Piece("expects:")
        yield Piece(str(review["expectation"]), "said", 2)
    if review["because"]:
        yield Piece("approval is asked for because:")
        yield Piece(str(review["because"]), "said", 2)
    given = len(review["approvals"])
    yield Piece(f"approvals: {given} of {review['approvals_needed']}" + (", given by:" if given else ""))
    yield from (Piece(str(by), "said", 2) for by in review["approvals"])
    if review["approvers"] is not None:
        left = [name for name in review["approvers"] if name not in review["approvals"]]
        yield Piece("may still be given by:")
        yield from (Piece(str(name), "said", 2) for name in left or ("nobody",))
    if review["four_eyes"]:
        yield Piece("four eyes: whoever requested it cannot approve it")
    lapses = op.approval_deadline
    late = lapses is not None and lapses <= now
    yield Piece(f"the request for approval lapses {due(lapses, now)}", "warn" if late else "text")


def _promises(review: Json) -> Iterator[Piece]:
    create, cancel, result = (review["guarantees"][part] for part in ("create", "cancel", "result"))
    grade = str(create["at_most_once"])
    words = _GRADES.get(grade, grade) + (f" ({create['for']})" if create.get("for") else "")
    yield Piece(f"At most one job: {words}")
    yield from (Piece(str(create[key]), "text", 2) for key in ("conditions", "lost_answer") if create.get(key))
    if not cancel["supported"]:
        yield Piece("Cancel: none; an accepted job cannot be stopped from here")
    else:
        yield Piece(f"Cancel: yes, {'confirmed by' if cancel['confirmed_by'] else 'and it cannot be confirmed'}")
        if cancel["confirmed_by"]:
            yield Piece(str(cancel["confirmed_by"]), "text", 2)
    if review["leaves"]:
        yield Piece("A cancel leaves behind:")
        yield Piece(str(review["leaves"]), "said", 2)
    yield Piece(f"Result: {result['where']}")
    gaps = review["guarantees"]["gaps"]
    yield Piece("Gaps:" if gaps else "No gaps")
    yield from (Piece(f"! {gap}", "warn", 2) for gap in gaps)


def compared_pieces(compared: Json) -> Iterator[Piece]:
    """Show what differs from another operation: signs and colours."""
    yield Piece(f"{compared['operation_id']} ({compared['state']})", "data")
    for difference in compared["differences"]:
        place = difference["pointer"] or "(the whole body)"
        if difference["change"] != "added":
            yield Piece(f"{place}: {_shown(difference['before'])}", "minus", 2)
        if difference["change"] != "removed":
            yield Piece(f"{place}: {_shown(difference['after'])}", "plus", 2)
    if not compared["differences"]:
        yield Piece("= no difference", "warn", 2)


def _shown(value: Any) -> str:
    return jsontext.dumps_inert(value)
