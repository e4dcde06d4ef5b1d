"""Faults that are put into the product, in the worker's process only: whoever looks for faults must find these.

``CHAOS_PLANTED`` names one. The child of the fork server starts here in place of in `tests.faults.victim`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from opledger.edges.http import Http
from opledger.rules import answers
from opledger.rules import evidence as e
from opledger.rules.calls import Failure
from tests.faults.victim import Order, run


def _sends_creates_twice() -> None:
    """As a transport does that tries again by itself."""
    real = Http.send

    @functools.wraps(real)
    async def twice(self: Http, request: Any, *args: Any, **kwargs: Any) -> Any:
        if request.method == "POST":
            await real(self, request, *args, **kwargs)
        return await real(self, request, *args, **kwargs)

    Http.send = twice  # type: ignore[method-assign]


def _reads_lost_answers_as_refusals() -> None:
    """As a client does for which no answer is a no."""
    real = answers.read_create

    def refused(outcome: Any, op: Any, contract: Any, *, call_id: str, answer: str | None, resend: bool) -> Any:
        if isinstance(outcome, Failure):
            return answers.Reading(e.Refused(call_id=call_id, status=outcome.status, why=outcome.why))
        return real(outcome, op, contract, call_id=call_id, answer=answer, resend=resend)

    answers.read_create = refused


PLANTS: Final[Mapping[str, Callable[[], None]]] = {
    "sends creates twice": _sends_creates_twice,
    "reads lost answers as refusals": _reads_lost_answers_as_refusals,
}


def child(order: Order, pipe: Any) -> None:
    """Run a worker with the fault that its environment names."""
    planted = order.environment.get("CHAOS_PLANTED")
    if planted is not None:
        PLANTS[planted]()
    sys.exit(run(order, pipe.send, pipe.recv))
