"""Which requests need approval before they leave, how many, and by whom.

A policy is a CEL condition over the request. One that cannot be evaluated asks for approval, and says so: a rule that
nobody can read must not wave anything through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from opledger.rules.contract import Contract
from opledger.rules.values import Condition, ConditionError


class Policy(Protocol):
    """One ``[[policy]]``: when it applies, and what it asks for. No approvers: anybody but the requester."""

    @property
    def when(self) -> Condition:
        """The condition over ``operation``."""
        ...

    @property
    def approvals(self) -> int:
        """How many persons must approve."""
        ...

    @property
    def approvers(self) -> Sequence[str]:
        """Who may approve; empty for anybody."""
        ...

    @property
    def four_eyes(self) -> bool:
        """True where the requester cannot approve."""
        ...

    @property
    def signed(self) -> bool:
        """True where an approval counts only with the approver's SSH signature."""
        ...

    @property
    def expires(self) -> timedelta | None:
        """How long the request waits for approval before it is rejected."""
        ...


@dataclass(frozen=True, slots=True)
class Demand:
    """What all policies that apply ask for together; the strictest word of each counts.

    `approvers` are those whom every such policy names; None where none names anybody.
    """

    approvals: int = 0
    approvers: frozenset[str] | None = None
    four_eyes: bool = True
    expires: timedelta | None = None
    because: str | None = None
    signed: bool = False  #: an approval counts only with the approver's SSH signature


def demand(policies: Sequence[Policy], contract: Contract, operation: Mapping[str, Any]) -> Demand:
    """Return what a request needs: the policies that apply, and the contract's own wish for approval.

    `operation` is what a condition sees under that name.
    """
    reasons: list[str] = []
    applying: list[Policy] = []
    for policy in policies:
        try:
            if not policy.when.holds({"operation": operation}):
                continue
            reasons.append(f"the policy {policy.when.text!r} applies to it")
        except ConditionError as error:
            reasons.append(f"a policy could not be evaluated on it ({error})")
        applying.append(policy)
    if contract.approval_required:
        reasons.append(f"the contract {contract.name} asks for approval")
    lists = [frozenset(policy.approvers) for policy in applying if policy.approvers]
    spans = [policy.expires for policy in applying if policy.expires is not None]
    asked = [policy.approvals for policy in applying] + ([1] if contract.approval_required else [])
    return Demand(
        approvals=max(asked, default=0),
        approvers=frozenset.intersection(*lists) if lists else None,
        four_eyes=not applying or any(policy.four_eyes for policy in applying),
        expires=min(spans, default=None),
        because="; ".join(reasons) or None,
        signed=contract.approval_signed or any(policy.signed for policy in applying),
    )
