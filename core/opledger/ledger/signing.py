"""Signed approvals at record time: what is not signed as it must be is refused here, and so never counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from opledger.edges.sshkeys import SshKeygen, read_signers
from opledger.errors import BadSignature, ConfigWrong, SignatureRequired
from opledger.rules import sshsig
from opledger.rules.approval_signatures import LONGEST, NAMESPACE, Sign, Statement, key_of
from opledger.rules.evidence import Approved
from opledger.rules.model import Operation
from opledger.rules.policy import Demand
from opledger.rules.shapes import event_of
from opledger.rules.signers import AllowedSigners
from opledger.rules.sshsig import SignatureWrong

if TYPE_CHECKING:
    from pathlib import Path

    from opledger.ledger.reading import Reading


def signing(ledger: Reading, *, key_file: Path | None = None, keygen: SshKeygen | None = None) -> Sign:
    """Return what signs with ssh-keygen: with this key, or with one of the approver's that is at hand.

    It blocks while somebody types a passphrase or touches a key. Raises ConfigWrong where no allowed signers are
    configured, and what `SshKeygen.sign` raises.
    """
    program = keygen or SshKeygen(ledger.settings.environment)

    def sign(statement: Statement) -> str:
        keys = allowed(ledger).keys_of(statement.by, NAMESPACE, statement.at)
        return program.sign(statement.text(), NAMESPACE, key_file=key_file, keys=keys)

    return sign


def allowed(ledger: Reading) -> AllowedSigners:
    """Return whose keys count. Raises ConfigWrong where nothing says so, or what does cannot be used."""
    path = ledger.settings.audit.allowed_signers
    if path is None:
        raise ConfigWrong(
            "signed approvals cannot be judged: nothing says whose keys count; name a file of allowed signers, in the "
            'form that git uses, in opledger.toml: [audit] allowed_signers = "path"'
        )
    return read_signers(path)


def needed(ledger: Reading, op: Operation, demand: Demand) -> bool:
    """Tell whether an approval must be signed: by the policies of today, or by those of when it was submitted."""
    if demand.signed:
        return True
    first = ledger.store.queries.events(op.operation_id, 0, limit=1)
    return bool(first) and bool((event_of(first[0]).data or {}).get("signed_approval"))


def require(ledger: Reading, op: Operation, demand: Demand, sign: Sign | None) -> None:
    """Raise SignatureRequired where an approval must be signed, and nobody is there to sign."""
    if sign is None and needed(ledger, op, demand):
        raise SignatureRequired(
            f"an approval of {op.operation_id} must be signed with your SSH key; give it on a terminal: "
            f'opledger approve {op.operation_id} --reason "…" --sign'
        )


class Signing:
    """Signs one approval, and signs it again only where the request itself is another by then."""

    def __init__(self, ledger: Reading, sign: Sign | None, by: str, reason: str) -> None:
        self._ledger = ledger
        self._sign = sign
        self._by = by
        self._reason = reason
        self._made: tuple[Statement, str] | None = None

    def signed(self, op: Operation, judge: Callable[[Operation], tuple[Approved, Demand]]) -> Approved:
        """Return the approval as it may be recorded.

        It is judged before somebody is asked to sign, and again afterwards: that may have taken minutes.
        """
        approved, demand = judge(op)
        require(self._ledger, op, demand, self._sign)
        if self._sign is None:
            return approved
        signers = allowed(self._ledger)
        statement = Statement(
            op.operation_id,
            op.request_fingerprint,
            op.contract_digest,
            self._by,
            self._ledger.clock.now(),
            self._reason,
        )
        if self._made is None or replace(self._made[0], at=statement.at) != statement:
            self._made = statement, self._sign(statement)
            approved, _ = judge(op)
        statement, signature = self._made
        late = self._ledger.clock.now() - statement.at
        if late > LONGEST:
            minutes, most = (span.total_seconds() / 60 for span in (late, LONGEST))
            raise BadSignature(
                f"{op.operation_id} was not approved: the signature is {minutes:.0f} minutes old, and {most:.0f} are "
                "the most; sign anew"
            )
        try:
            mark = key_of(statement, signature, signers)
            self._another_key(op, mark)
        except SignatureWrong as wrong:
            raise BadSignature(f"{op.operation_id} was not approved: {wrong}") from None
        return replace(approved, signature=sshsig.bare(signature), signed_at=statement.at)

    def _another_key(self, op: Operation, mark: str) -> None:
        """Raise where the key has signed for somebody else: one key is one person, whatever names it goes by."""
        if not op.approvals:
            return
        for row in self._ledger.store.queries.events(op.operation_id, 0, limit=op.head_seq):
            given = (event_of(row).data or {}).get("signature") if row.kind == "Approved" else None
            if given is not None and sshsig.fingerprint(sshsig.read(given).key) == mark:
                raise SignatureWrong(f"the key {mark} has signed another approval of it already")


class Unasked(Signing):
    """Judges as `Signing` does and asks nobody to sign: a preview says what would be tried."""

    def signed(self, op: Operation, judge: Callable[[Operation], tuple[Approved, Demand]]) -> Approved:
        """Return the approval without a signature."""
        approved, demand = judge(op)
        require(self._ledger, op, demand, self._sign)
        if self._sign is not None:
            allowed(self._ledger)
        return approved
