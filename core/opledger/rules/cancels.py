"""What a cancel would hit. Two operations with one target are stopped by one call, whoever asked for it (B24)."""

from __future__ import annotations

from typing import Final

from opledger.errors import ConfigWrong, Refused
from opledger.rules import requests
from opledger.rules.contract import Contract
from opledger.rules.model import Operation, State

LIVE: Final = frozenset(
    {
        State.ACCEPTED,
        State.OBSERVING,
        State.CANCEL_REQUESTED,
        State.CANCELLING,
        State.CANCELLATION_UNCONFIRMED,
        State.RESULT_TIMED_OUT,
    }
)
"""States in which a job may run that a cancel would stop."""

_OWN: Final = frozenset({"job_id", "operation_id", "token"})
"""Names that only one operation has: with one of them in its address, a cancel hits that operation alone."""


def shared(contract: Contract) -> bool:
    """Tell whether the cancel of one operation may stop another one's job."""
    if contract.cancel is None:
        return False
    templates = (contract.cancel.path, *contract.cancel.query.values())
    return not any(name in _OWN for template in templates for name in template.names)


def target(op: Operation, contract: Contract) -> str | None:
    """Return the address that a cancel of `op` is sent to, or None where there is none."""
    if contract.cancel is None or op.state not in LIVE:
        return None
    try:
        request = requests.cancel(op, contract)
    except (ConfigWrong, Refused):
        return None
    return f"{request.method} {request.url}"
