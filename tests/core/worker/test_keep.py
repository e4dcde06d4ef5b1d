"""What of an answer is kept in the ledger."""

from __future__ import annotations

from datetime import UTC, datetime

from opledger.rules.calls import Answer
from opledger.rules.redact import Redactor
from opledger.worker.keep import KEPT_ANSWER, kept
from tests.support.contracts import a_contract

PASSPHRASE = "correct horse battery staple of the payments team"


def test_a_secret_that_the_cut_goes_through_is_not_kept() -> None:
    """What is kept is cut after it was masked: half a passphrase is found out soon (I24)."""
    body = b"x" * (KEPT_ANSWER - 30) + PASSPHRASE.encode() + b"y" * 50
    answer = Answer(200, {}, body, datetime(2026, 11, 29, tzinfo=UTC))
    found = kept(answer, a_contract(), Redactor([PASSPHRASE]))
    assert found is not None
    assert len(found.body) <= KEPT_ANSWER
    assert PASSPHRASE[:8].encode() not in found.body
