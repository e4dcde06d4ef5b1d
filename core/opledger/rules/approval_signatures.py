"""Signed approvals: the statement that is signed, and what must hold of its signature, then and ever after.

A statement says all that an approval says, in one fixed form, so that a signature can be made for nothing else and be
verified from the journal alone. It is kept in the event: ``Approved.signature`` and ``signed_at``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from json.encoder import encode_basestring_ascii as quoted
from typing import Final

from opledger.rules import sshsig
from opledger.rules.evidence import Approved, Submitted
from opledger.rules.journal import Finding
from opledger.rules.model import to_rfc3339
from opledger.rules.projection import Entry
from opledger.rules.signers import AllowedSigners
from opledger.rules.sshsig import SignatureWrong

NAMESPACE: Final = "opledger-approval@1"
"""The namespace of ``ssh-keygen -Y sign -n``: a signature of a commit approves nothing."""

LONGEST: Final = timedelta(minutes=15)
"""How long after it was made a statement may be recorded: passphrases and security keys take their time."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What somebody signs: this approval of exactly this request, and no other."""

    operation_id: str
    fingerprint: str
    contract_digest: str
    by: str
    at: datetime
    reason: str

    def text(self) -> bytes:
        """Return the exact bytes that are signed, version 1: ASCII, one fact a line, outside text as JSON strings."""
        return (
            "opledger-approval/1\n"
            f"operation {quoted(self.operation_id)}\n"
            f"fingerprint {quoted(self.fingerprint)}\n"
            f"contract {quoted(self.contract_digest)}\n"
            "decision approve\n"
            f"by {quoted(self.by)}\n"
            f"at {to_rfc3339(self.at)}\n"
            f"reason {quoted(self.reason)}\n"
        ).encode("ascii")


Sign = Callable[[Statement], str]
"""Signs a statement; returns the signature as ssh-keygen prints it. Raises Refused where none is made."""


def key_of(statement: Statement, signature: str, signers: AllowedSigners) -> str:
    """Return the fingerprint of the key that signed, where it is one of the approver's, at that time, for approvals.

    Raises SignatureWrong, with the reason.
    """
    read = sshsig.read(signature)
    sshsig.verify(read, statement.text(), NAMESPACE)
    signers.check(statement.by, read.key, NAMESPACE, statement.at)
    return sshsig.fingerprint(read.key)


def check(signers: AllowedSigners | None) -> Callable[[str, Sequence[Entry]], Iterable[Finding]]:
    """Return what looks at the whole chain of one operation for approvals without the signature that they need.

    It yields ``Finding("SIGNATURE", operation_id, seq, message)`` for each approval that

    - carries a signature which is not over this operation, fingerprint, contract, approver, time and reason, or whose
      key is not one of the approver's by `signers` for approvals at the time of signing;
    - carries none, where the first event says that the request needs signed ones;
    - is signed with the key of another approval of the same operation;
    - carries a signature, while `signers` is None: nobody can say then whose key it is, and that is not "all is well".

    For ``audit verify``: ``check(None if no [audit] allowed_signers else edges.sshkeys.read_signers(path))``. Pass the
    entries from the first event on; those of other kinds cost one isinstance each. It never raises.
    """

    def look(operation_id: str, entries: Sequence[Entry]) -> Iterator[Finding]:
        needed = False
        used: dict[str, str] = {}
        for entry in entries:
            evidence = entry.evidence
            if isinstance(evidence, Submitted):
                needed = evidence.signed_approval
            if not isinstance(evidence, Approved):
                continue
            try:
                mark = _look(operation_id, entry, evidence, signers, needed=needed)
                if mark is not None and used.setdefault(mark, evidence.by) != evidence.by:
                    raise SignatureWrong(f"the key {mark} has signed for {used[mark]} already")
            except SignatureWrong as wrong:
                yield Finding("SIGNATURE", operation_id, entry.seq, f"the approval by {evidence.by}: {wrong}")

    return look


def _look(
    operation_id: str, entry: Entry, approved: Approved, signers: AllowedSigners | None, *, needed: bool
) -> str | None:
    if approved.signature is None:
        if needed:
            raise SignatureWrong("it is not signed, and the request needs signed ones")
        return None
    if approved.signed_at is None or approved.by != entry.actor.name:
        raise SignatureWrong("it does not say who signed when")
    if not timedelta(0) <= entry.at - approved.signed_at <= LONGEST:
        raise SignatureWrong(
            f"it was signed at {to_rfc3339(approved.signed_at)} and recorded at {to_rfc3339(entry.at)}"
        )
    if signers is None:
        raise SignatureWrong(
            "it is signed, and no [audit] allowed_signers is configured here, or none that can be read, so nobody can "
            "say whose key that is"
        )
    statement = Statement(
        operation_id,
        approved.fingerprint,
        approved.contract_digest or "",
        approved.by,
        approved.signed_at,
        entry.reason or "",
    )
    return key_of(statement, approved.signature, signers)
