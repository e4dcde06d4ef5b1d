from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from opledger.rules.approval_signatures import LONGEST, NAMESPACE, Statement, check
from opledger.rules.evidence import Approved, Submitted
from opledger.rules.journal import Finding, body_of, read_body
from opledger.rules.model import Actor, ActorKind
from opledger.rules.projection import Entry
from opledger.rules.signers import AllowedSigners, parse
from tests.support.sshkeys import SecurityKey

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
OP = "op_01J7Q5X4D4PA3DK0F5Q2V8W9AB"
ANAS, JOS = SecurityKey("sk-ssh-ed25519@openssh.com", 7), SecurityKey("sk-ssh-ed25519@openssh.com", 8)
STATEMENT = Statement(OP, "sha256:ab", "sha256:cd", "ana", NOON, "looks right")


def allowed(*lines: str) -> AllowedSigners:
    """Who may sign: ana and jo, or whoever these lines say."""
    return parse("\n".join(lines or (f"ana {ANAS.public}", f"jo {JOS.public}")), "allowed")


def submitted(*, signed: bool = True) -> Entry:
    """The first event."""
    span = timedelta(hours=1)
    wish = Submitted(
        "jobs", "sha256:cd", "sha256:ab", None, "0" * 31 + "1", "agent-7", 2, span, span, span, span, "POST",
        "https://api.example.com/jobs", "ef", signed_approval=signed,
    )  # fmt: skip
    return Entry(OP, 1, NOON, Actor("agent-7", ActorKind.AGENT), wish, "submit")


def approved(key: SecurityKey | None = ANAS, seq: int = 2, **how: Any) -> Entry:
    """An approval as it is recorded; `how` says what its statement says otherwise."""
    statement = replace(STATEMENT, **how)
    given = Approved(statement.by, statement.fingerprint, "shown", statement.contract_digest)
    if key is not None:
        given = replace(given, signature=key.sign(statement.text()), signed_at=statement.at)
    actor = Actor(statement.by, ActorKind.HUMAN)
    return Entry(OP, seq, statement.at + timedelta(seconds=2), actor, given, "human_request:r", statement.reason)


def found(*entries: Entry, signers: AllowedSigners | None = None, op: str = OP) -> Sequence[Finding]:
    """What is wrong with a chain; read back from its bytes, as verify reads it."""
    again = [read_body(body_of(entry, None, None, None, None)).entry for entry in entries]
    return list(check(signers or allowed())(op, again))


def test_the_text_of_a_statement() -> None:
    """The one form; another one needs another version and another namespace."""
    assert NAMESPACE == "opledger-approval@1"
    assert replace(STATEMENT, reason='so "be"\nit é').text() == (
        b"opledger-approval/1\n"
        b'operation "op_01J7Q5X4D4PA3DK0F5Q2V8W9AB"\n'
        b'fingerprint "sha256:ab"\n'
        b'contract "sha256:cd"\n'
        b"decision approve\n"
        b'by "ana"\n'
        b"at 2026-11-30T12:00:00.000000Z\n"
        b'reason "so \\"be\\"\\nit \\u00e9"\n'
    )


def test_signed_approvals_hold() -> None:
    """No alarm where all is well, and none about what needed no signature."""
    assert found(submitted(), approved(), approved(JOS, 3, by="jo")) == []
    assert found(submitted(signed=False), approved(None)) == []
    assert found(submitted(signed=False), approved()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"by": "jo"},
        {"fingerprint": "sha256:ac"},
        {"contract_digest": "sha256:ce"},
        {"signed_at": NOON + timedelta(microseconds=1)},
        {"signature": JOS.sign(STATEMENT.text())},
        {"signature": ANAS.sign(STATEMENT.text(), namespace="git")},
        {"signature": ANAS.sign(STATEMENT.text(), flags=0)},
        {"signature": "rubbish"},
        {"signature": ""},
        {"signature": None},
        {"signed_at": None},
    ],
)
def test_any_other_fact_in_the_event_breaks_the_signature(change: dict[str, Any]) -> None:
    """Whoever can write the database cannot make an approval of their own."""
    entry = approved()
    forged = entry._replace(evidence=replace(entry.evidence, **change))
    (finding,) = found(submitted(), forged)
    assert (finding.kind, finding.operation_id, finding.seq) == ("SIGNATURE", OP, 2)


def test_reason_actor_and_operation_are_signed_too() -> None:
    """A signature cannot be carried to another operation, or put under other words."""
    entry = approved()
    for forged in (entry._replace(reason="other"), entry._replace(actor=Actor("jo", ActorKind.HUMAN))):
        assert [finding.kind for finding in found(submitted(), forged)] == ["SIGNATURE"]
    assert [finding.seq for finding in found(submitted(), entry, op="op_other")] == [2]


def test_an_unsigned_approval_is_found_where_signed_ones_were_asked_for() -> None:
    """What the first event says is in the chain, whatever the policies say today."""
    (finding,) = found(submitted(), approved(), approved(None, 3, by="jo"))
    assert (finding.kind, finding.seq) == ("SIGNATURE", 3)
    assert "not signed" in finding.message


def test_a_key_that_is_not_the_approvers_then_is_found() -> None:
    """Another's key, one that had expired, one for something else."""
    for line in (
        f"jo {ANAS.public}",
        f'ana valid-before="20261130Z" {ANAS.public}',
        f'ana valid-after="20261201Z" {ANAS.public}',
        f'ana namespaces="git" {ANAS.public}',
    ):
        (finding,) = found(submitted(), approved(), signers=allowed(line))
        assert finding.kind == "SIGNATURE", line


def test_one_key_is_one_person() -> None:
    """Four eyes are not two names of one key."""
    (finding,) = found(submitted(), approved(), approved(ANAS, 3, by="ben"), signers=allowed(f"* {ANAS.public}"))
    assert (finding.seq, "has signed for ana already" in finding.message) == (3, True)


def test_a_signature_of_another_time_is_found() -> None:
    """Signed after it was recorded, or long before."""
    entry = approved()
    for at in (NOON - timedelta(seconds=1), NOON + LONGEST + timedelta(seconds=1)):
        (finding,) = found(submitted(), entry._replace(at=at))
        assert "was signed at" in finding.message


def test_a_signature_that_nobody_can_judge_is_not_well() -> None:
    """Without allowed signers the file says nothing; that must show."""
    entries = [submitted(signed=False), approved()]
    (finding,) = check(None)(OP, entries)
    assert "allowed_signers" in finding.message
    assert list(check(None)(OP, [submitted(signed=False), approved(None)])) == []
