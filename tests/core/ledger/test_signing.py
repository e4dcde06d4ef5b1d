from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from opledger import Ledger
from opledger.edges.clock import SystemClock
from opledger.errors import BadSignature, ConfigWrong, Refused, SignatureRequired
from opledger.ledger.bulk import Decision, Target, carry_out, preview
from opledger.ledger.signing import signing
from opledger.rules.approval_signatures import LONGEST, Statement, check
from opledger.rules.journal import read_body
from opledger.rules.model import Operation, State
from opledger.rules.signers import parse
from tests.core.ledgers import BODY, Home
from tests.core.rules.operations import CANCEL, JOBS
from tests.support import sshkeys
from tests.support.sshkeys import SecurityKey, needs_ssh_keygen

ANAS, JOS = SecurityKey("sk-ssh-ed25519@openssh.com", 7), SecurityKey("sk-ecdsa-sha2-nistp256@openssh.com", 8)
SIGNED = """
[audit]
allowed_signers = "allowed"
[[policy]]
when = 'operation.body.rows > 3'
signed = true
"""
TWO = SIGNED + "approvals = 2\n"
UNSIGNED = SIGNED.partition("[[policy]]")[0] + "[[policy]]\nwhen = 'true'\n"


class Clock(SystemClock):
    """A clock that can be put forward."""

    ahead = timedelta()

    def now(self) -> datetime:
        """Wall time, as it is here."""
        return super().now() + self.ahead


def by(key: SecurityKey, **how: Any) -> Callable[[Statement], str]:
    """Somebody with this security key."""
    return lambda statement: key.sign(statement.text(), **how)


def never(_: Statement) -> str:
    """Nobody may be asked."""
    raise AssertionError("somebody was asked to sign")


def lines(home: Home, *texts: str) -> None:
    """Write the file of allowed signers."""
    path = home.root / "allowed"
    path.write_text("".join(f"{text}\n" for text in texts or (f"ana {ANAS.public}", f"jo {JOS.public}")))
    path.chmod(0o600)


@pytest.fixture
def open_(home: Home) -> Callable[..., AbstractContextManager[Ledger]]:
    """Opens the ledger under a policy that wants signed approvals."""
    lines(home)
    return lambda toml=SIGNED, **how: home.ledger(toml, **how)


def asked(ledger: Ledger) -> Operation:
    """A request that waits for approval."""
    return ledger.submit("jobs", BODY, requested_by="agent-7")


def findings(ledger: Ledger, op: Operation, text: str) -> list[int | None]:
    """What verify would say of the journal, under these allowed signers."""
    entries = [read_body(row.body).entry for row in ledger.store.queries.events(op.operation_id, 0, limit=99)]
    return [one.seq for one in check(parse(text, "allowed"))(op.operation_id, entries)]


# --- what counts ------------------------------------------------------------------------------------------------------


def test_a_signed_approval_counts_and_its_signature_is_kept(home: Home, open_: Any) -> None:
    """What was signed can be verified from the journal alone, ever after."""
    with open_() as ledger:
        op = asked(ledger)
        assert op.state is State.AWAITING_APPROVAL
        assert ledger.review(op.operation_id)["signed"]
        done = ledger.approve(op.operation_id, reason=" looks right ", sign=by(ANAS))
        assert done.state is State.CREATE_PENDING
        event = ledger.events(op.operation_id)[-1]
        assert event.kind == "Approved"
        assert event.data is not None
        assert {"signature", "signed_at"} <= set(event.data)
        assert event.host
        assert event.process
        assert findings(ledger, op, (home.root / "allowed").read_text()) == []
        assert findings(ledger, op, f"ana {JOS.public}") == [2]


def test_two_people_sign_with_two_keys(open_: Any) -> None:
    """Each their own."""
    with open_(TWO) as ledger:
        op = asked(ledger)
        ledger.approve(op.operation_id, reason="ok", sign=by(ANAS))
        assert ledger.approve(op.operation_id, reason="ok", by="jo", sign=by(JOS)).state is State.CREATE_PENDING


def test_a_contract_can_ask_for_it_too(home: Home) -> None:
    """[approval] signed: whoever uses this provider."""
    lines(home)
    home.contract(JOBS + CANCEL + "\n[approval]\nsigned = true\n")
    with home.ledger('[audit]\nallowed_signers = "allowed"\n') as ledger:
        op = ledger.submit("jobs", {"rows": 1}, requested_by="agent-7")
        with pytest.raises(SignatureRequired):
            ledger.approve(op.operation_id, reason="ok")
        assert ledger.approve(op.operation_id, reason="ok", sign=by(ANAS)).state is State.CREATE_PENDING


def test_a_signature_that_nobody_asked_for_is_verified_all_the_same(open_: Any) -> None:
    """What stands in the journal as signed must be."""
    with open_(UNSIGNED) as ledger:
        op = asked(ledger)
        with pytest.raises(BadSignature):
            ledger.approve(op.operation_id, reason="ok", sign=by(JOS))
        assert ledger.approve(op.operation_id, reason="ok", sign=by(ANAS)).state is State.CREATE_PENDING
        other = ledger.submit("jobs", {"rows": 9}, requested_by="agent-7")
        assert ledger.approve(other.operation_id, reason="ok").state is State.CREATE_PENDING


# --- what does not ----------------------------------------------------------------------------------------------------


def test_an_unsigned_approval_is_refused_and_the_command_is_named(open_: Any) -> None:
    """In the console too: it must say where to go."""
    with open_() as ledger:
        op = asked(ledger)
        with pytest.raises(SignatureRequired, match=rf"opledger approve {op.operation_id} --reason .* --sign"):
            ledger.approve(op.operation_id, reason="ok")
        assert ledger.show(op.operation_id) == op


@pytest.mark.parametrize(
    ("sign", "said"),
    [
        (by(JOS), "listed for others than ana"),
        (by(SecurityKey(ANAS.kind, 9)), "is not listed"),
        (by(ANAS, namespace="git"), "made for 'git'"),
        (by(ANAS, flags=0), "nobody touched"),
        (lambda statement: ANAS.sign(statement.text() + b" "), "not a signature over this text"),
        (lambda _: "rubbish", "not base64"),
    ],
)
def test_a_wrong_signature_is_refused_and_nothing_is_recorded(open_: Any, sign: Any, said: str) -> None:
    """It never counts, so no request leaves on it."""
    with open_() as ledger:
        op = asked(ledger)
        with pytest.raises(BadSignature, match=said):
            ledger.approve(op.operation_id, reason="ok", sign=sign)
        assert ledger.show(op.operation_id) == op


def test_a_signature_of_another_operation_is_refused(open_: Any) -> None:
    """An approval cannot be carried over."""
    kept: list[str] = []

    def keep(statement: Statement) -> str:
        kept.append(ANAS.sign(statement.text()))
        return kept[0]

    with open_() as ledger:
        one, other = asked(ledger), ledger.submit("jobs", {"rows": 9}, requested_by="agent-7")
        ledger.approve(one.operation_id, reason="ok", sign=keep)
        with pytest.raises(BadSignature):
            ledger.approve(other.operation_id, reason="ok", sign=lambda _: kept[0])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f'ana valid-before="20200101Z" {ANAS.public}', "was valid until 2020"),
        (f'ana valid-after="29990101Z" {ANAS.public}', "valid from 2999"),
        (f'ana namespaces="git" {ANAS.public}', "namespace"),
    ],
)
def test_a_key_out_of_its_time_or_purpose_is_refused(home: Home, open_: Any, line: str, said: str) -> None:
    """By the file as it is now."""
    with open_() as ledger:
        op = asked(ledger)
        lines(home, line)
        with pytest.raises(BadSignature, match=said):
            ledger.approve(op.operation_id, reason="ok", sign=by(ANAS))


def test_one_key_cannot_approve_under_two_names(home: Home, open_: Any) -> None:
    """Four eyes are not two names of one key."""
    lines(home, f"* {ANAS.public}")
    with open_(TWO) as ledger:
        op = asked(ledger)
        ledger.approve(op.operation_id, reason="ok", sign=by(ANAS))
        with pytest.raises(BadSignature, match="has signed another approval"):
            ledger.approve(op.operation_id, reason="ok", by="jo", sign=by(ANAS))


def test_without_allowed_signers_nothing_signed_is_taken(home: Home) -> None:
    """A signature that nobody can judge is no signature; and nobody is asked for one."""
    with home.ledger("[[policy]]\nwhen = 'true'\nsigned = true\n") as ledger:
        op = asked(ledger)
        with pytest.raises(ConfigWrong, match=r"\[audit\] allowed_signers"):
            ledger.approve(op.operation_id, reason="ok", sign=never)
        assert ledger.show(op.operation_id) == op


def test_what_is_refused_anyway_asks_nobody_to_sign(open_: Any) -> None:
    """A passphrase is not typed for nothing."""
    with open_() as ledger:
        op = asked(ledger)
        for who in ("agent-8", "agent-7"):
            with pytest.raises(Refused):
                ledger.approve(op.operation_id, reason="ok", by=who, sign=never)
        with pytest.raises(Refused, match="fingerprint that was looked at"):
            ledger.approve(op.operation_id, reason="ok", fingerprint="sha256:00", sign=never)


def test_the_demand_holds_also_where_the_policy_is_taken_away(home: Home, open_: Any) -> None:
    """It stands in the first event; editing a file does not lower it."""
    with open_() as ledger:
        op = asked(ledger)
    with open_(UNSIGNED) as ledger:
        with pytest.raises(SignatureRequired):
            ledger.approve(op.operation_id, reason="ok")
        assert ledger.approve(op.operation_id, reason="ok", sign=by(ANAS)).state is State.CREATE_PENDING


def test_a_policy_that_came_later_counts_too(open_: Any) -> None:
    """The strictest word of then and now."""
    with open_(UNSIGNED) as ledger:
        op = asked(ledger)
    with open_() as ledger, pytest.raises(SignatureRequired):
        ledger.approve(op.operation_id, reason="ok")


# --- time, and others ------------------------------------------------------------------------------------------------


def test_who_takes_too_long_signs_anew(open_: Any) -> None:
    """A statement that lies about is not taken out hours later."""
    clock = Clock()

    def slow(statement: Statement) -> str:
        clock.ahead = LONGEST + timedelta(seconds=5)
        return ANAS.sign(statement.text())

    with open_(clock=clock) as ledger:
        op = asked(ledger)
        with pytest.raises(BadSignature, match="minutes old"):
            ledger.approve(op.operation_id, reason="ok", sign=slow)


def test_what_lapsed_while_somebody_signed_is_not_approved(open_: Any) -> None:
    """It is judged again behind the signature."""
    clock = Clock()

    def slow(statement: Statement) -> str:
        clock.ahead = timedelta(minutes=2)
        return ANAS.sign(statement.text())

    with open_(SIGNED + 'expires = "1m"\n', clock=clock) as ledger:
        op = asked(ledger)
        with pytest.raises(Refused, match="has expired"):
            ledger.approve(op.operation_id, reason="ok", sign=slow)


def test_somebody_who_approves_meanwhile_does_not_make_us_sign_again(open_: Any) -> None:
    """The record moves on while a passphrase is typed; the signature says nothing of its version."""
    with open_(TWO) as ledger:
        op = asked(ledger)
        times: list[Statement] = []

        def meanwhile(statement: Statement) -> str:
            times.append(statement)
            ledger.approve(op.operation_id, reason="me first", by="jo", sign=by(JOS))
            return ANAS.sign(statement.text())

        done = ledger.approve(op.operation_id, reason="ok", sign=meanwhile)
        assert [given.by for given in done.approvals] == ["jo", "ana"]
        assert len(times) == 1


# --- many at once ----------------------------------------------------------------------------------------------------


def test_a_preview_says_what_is_needed_and_asks_nobody(open_: Any) -> None:
    """What is shown before many are approved."""
    with open_() as ledger:
        op = asked(ledger)
        (unsigned,) = preview(ledger, [op.operation_id], Decision("approve", "ok"))
        assert not unsigned.eligible
        assert "--sign" in unsigned.because
        (signed,) = preview(ledger, [op.operation_id], Decision("approve", "ok", sign=never))
        assert signed.eligible


def test_of_many_each_is_signed_by_itself(open_: Any) -> None:
    """One signature for each operation."""
    with open_() as ledger:
        ops = [ledger.submit("jobs", {"rows": rows}, requested_by="agent-7") for rows in (4, 5, 6)]
        done = list(
            carry_out(ledger, [Target(op.operation_id) for op in ops], Decision("approve", "ok", sign=by(ANAS)))
        )
        assert [one.operation.state for one in done if one.operation] == [State.CREATE_PENDING] * 3
        assert len({(ledger.events(op.operation_id)[-1].data or {})["signature"] for op in ops}) == 3


@needs_ssh_keygen
def test_ssh_keygen_signs_with_a_key_of_the_approver(home: Home, open_: Any, tmp_path: Path) -> None:
    """The whole way, with a key that ssh-keygen made."""
    (tmp_path / ".ssh").mkdir(mode=0o700)
    key = sshkeys.make(tmp_path / ".ssh", "id_ed25519")
    lines(home, f'ana namespaces="opledger-approval@1" {sshkeys.public(key)}')
    with open_() as ledger:
        ledger.settings.environment["HOME"] = str(tmp_path)
        ledger.settings.environment["PATH"] = "/usr/local/bin:/usr/bin:/bin"
        op = asked(ledger)
        assert ledger.approve(op.operation_id, reason="ok", sign=signing(ledger)).state is State.CREATE_PENDING
        assert findings(ledger, op, (home.root / "allowed").read_text()) == []
