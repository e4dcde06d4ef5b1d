from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from opledger.rules.files.contract import ContractInvalid
from opledger.rules.files.settings import Policy
from opledger.rules.policy import Demand, demand
from opledger.rules.values import Condition
from tests.core.rules.operations import CANCEL, contract

PAYOUT = {"contract": "jobs", "body": {"amount": 2000}, "tags": {"team": "a"}}


def policy(when: str, **how: Any) -> Policy:
    """A policy with a compiled condition."""
    return Policy(Condition.parse(when, frozenset({"operation"})), **how)


def asked(*policies: Policy, operation: dict[str, Any] | None = None) -> Demand:
    """What these policies ask for together."""
    return demand(policies, contract(), operation or PAYOUT)


def test_without_policies_nothing_is_asked() -> None:
    """Most work needs no approval, and must not wait for any."""
    assert asked() == Demand(0, None, four_eyes=True, expires=None, because=None)


def test_a_policy_that_does_not_apply_asks_nothing() -> None:
    """A rule for large payouts says nothing about small ones."""
    assert asked(policy("operation.body.amount > 5000", approvals=2)).approvals == 0


def test_a_policy_that_applies_is_named() -> None:
    """The approver reads which rule made the request wait."""
    found = asked(policy("operation.body.amount > 1000", approvals=2, expires=timedelta(hours=4)))
    assert (found.approvals, found.expires) == (2, timedelta(hours=4))
    assert "operation.body.amount > 1000" in str(found.because)


@pytest.mark.parametrize("body", [None, {}, {"amount": "2000"}, [1], "text"])
def test_a_policy_that_cannot_be_evaluated_asks_and_says_so(body: Any) -> None:
    """A rule that nobody can read must not wave anything through."""
    found = asked(policy("operation.body.amount > 1000"), operation={"contract": "jobs", "body": body})
    assert found.approvals == 1
    assert "could not be evaluated" in str(found.because)


def test_the_strictest_word_of_each_policy_counts() -> None:
    """Two rules together never ask for less than either of them."""
    found = asked(
        policy("true", approvals=2, approvers=("ana", "jo", "kim"), four_eyes=False, expires=timedelta(hours=4)),
        policy("true", approvals=1, approvers=("jo", "kim", "lee"), four_eyes=True, expires=timedelta(hours=1)),
        policy("false", approvals=9),
    )
    assert found.approvals == 2
    assert found.approvers == frozenset({"jo", "kim"})
    assert found.four_eyes
    assert found.expires == timedelta(hours=1)


def test_four_eyes_can_only_be_waived_by_every_policy() -> None:
    """Waiving it is the owner's explicit wish; the contract's own demand waives nothing."""
    assert not asked(policy("true", four_eyes=False)).four_eyes
    needs = contract("[approval]\nrequired = true\n" + CANCEL)
    assert demand([], needs, PAYOUT).four_eyes


def test_one_policy_that_wants_signatures_is_enough() -> None:
    """As with every other word, the strictest counts; a policy that does not apply asks nothing."""
    assert not asked(policy("true"), policy("false", signed=True)).signed
    assert asked(policy("true"), policy("true", signed=True)).signed
    assert asked(policy("operation.nothing > 1", signed=True)).signed
    found = demand([], contract("[approval]\nsigned = true\n" + CANCEL), PAYOUT)
    assert (found.signed, found.approvals) == (True, 1)
    assert not demand([], contract("[approval]\nrequired = true\n" + CANCEL), PAYOUT).signed


def test_signed_approvals_of_none_are_refused() -> None:
    """A contract that says both was not meant."""
    with pytest.raises(ContractInvalid, match=r"approval\.signed"):
        contract("[approval]\nrequired = false\nsigned = true\n" + CANCEL)


def test_a_contract_can_ask_by_itself() -> None:
    """A provider whose work cannot be undone is never driven without a person."""
    found = demand([], contract("[approval]\nrequired = true\n" + CANCEL), PAYOUT)
    assert found.approvals == 1
    assert "contract" in str(found.because)
