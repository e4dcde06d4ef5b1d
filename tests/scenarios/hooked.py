"""A stage whose provider sends webhooks to a receiver: as hints beside the polls, or as all that it ever tells."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from opledger.rules.model import Operation
from opledger.sim.hooks import WEBHOOK_SECRET, webhook_text
from tests.fakes.hooks import ReceiverThread, without_status
from tests.scenarios.stage import Stage

LONG_POLL: Final = {'max = "60s"': 'max = "1h"', 'first = "1s"': 'first = "1h"'}
"""So seldom that whatever happens soon happens because of a webhook."""


class Hooked:
    """A stage whose provider sends webhooks to a receiver."""

    def __init__(self, stage: Stage, scheme: str = "standard", **changes: str) -> None:
        self.stage = stage
        self.contract(scheme, changes)
        self.thread = ReceiverThread(stage.ledger, secret=WEBHOOK_SECRET)
        self.scheme = scheme

    def contract(self, scheme: str, changes: Mapping[str, str]) -> None:
        """Write the contract."""
        self.stage.contract("v1", changes, more=webhook_text(scheme, "env:HOOK_SECRET"))

    def __enter__(self) -> Self:
        self.thread.__enter__()
        self.tells()
        return self

    def __exit__(self, *_: object) -> None:
        self.stage.sim.ask("POST", "/_webhooks", {})
        self.thread.stop()

    def tells(self, **how: Any) -> None:
        """Say how the provider sends from now on."""
        told = {"to": self.thread.url("sim"), "scheme": self.scheme, "follow": False, **how}
        self.stage.sim.ask("POST", "/_webhooks", told)

    def deliver(self, operation: Operation, *events: str, manner: str = "plain", **more: Any) -> list[int]:
        """Let the provider send now; returns what it was answered."""
        (job,) = self.stage.jobs(operation)
        told = {"job": job, "events": events, "manner": manner, "more": more}
        sent = self.stage.sim.ask("POST", "/_deliver", told)
        return [one["status"] for one in sent]

    def reads(self, operation: Operation) -> int:
        """How often the job was looked at."""
        return len(self.stage.wire("status", operation))


class Told(Hooked):
    """A stage whose provider has no status read: what it tells is all that is known."""

    def contract(self, scheme: str, changes: Mapping[str, str]) -> None:
        """Write the contract; `changes` are made to it in the end."""
        self.stage.contract("v1", more=webhook_text(scheme, "env:HOOK_SECRET", decides=True))
        path = self.stage.contracts / "sim.toml"
        text = without_status(path.read_text())
        for old, new in changes.items():
            assert old in text, f"the contract does not say {old!r}"
            text = text.replace(old, new, 1)
        path.write_text(text)


def moved_by(stage: Stage, operation: Operation) -> set[str]:
    """What moved the operation from state to state."""
    return {str(event.cause).partition(":")[0] for event in stage.ledger.history(operation.operation_id)}


def outcome(stage: Stage, operation: Operation) -> tuple[Any, ...]:
    """What counts in the end: state, the provider's word, lines of the result, jobs started and results read."""
    op = stage.show(operation)
    lines = None if op.result is None else len(Path(str(op.result.location)).read_bytes().splitlines())
    return op.state, op.remote_state, lines, len(stage.jobs(operation)), len(stage.wire("result", operation))
