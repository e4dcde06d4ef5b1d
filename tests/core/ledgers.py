"""A ledger of a test's own, with contract files and settings beside it, and a hand that writes what a worker would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from opledger.config import Settings, load_settings
from opledger.edges.clock import SystemClock
from opledger.ledger import Ledger
from opledger.rules import decide
from opledger.rules import evidence as e
from opledger.rules.model import Action, Actor, ActorKind, Means, Operation
from opledger.store import Answer, Recorded, Write
from tests.core.rules.operations import CANCEL, JOBS

BODY = {"rows": 5}
WORKER = Actor("worker-1", ActorKind.WORKER)


class Home:
    """A folder with contracts and settings, and the ledger that they go with."""

    def __init__(self, root: Path, url: str) -> None:
        self.root = root
        self.url = url
        (root / "contracts").mkdir(exist_ok=True)
        self.contract()

    def contract(self, source: str = JOBS + CANCEL, name: str = "jobs") -> Path:
        """Write a contract file, or write it anew."""
        path = self.root / "contracts" / f"{name}.toml"
        path.write_text(source.replace('name = "jobs"', f'name = "{name}"'), encoding="utf-8")
        return path

    def settings(self, toml: str = "", operator: str = "ana") -> Settings:
        """The settings of a command that is run here."""
        (self.root / "opledger.toml").write_text(toml, encoding="utf-8")
        environ = {"OPLEDGER_CONTRACTS": str(self.root / "contracts"), "OPLEDGER_OPERATOR": operator}
        return load_settings({"db": self.url}, environ, self.root, self.root / "none", self.root / "none")

    @contextmanager
    def ledger(self, toml: str = "", *, operator: str = "ana", **how: Any) -> Iterator[Ledger]:
        """Open the ledger, as another process would."""
        with Ledger.open(settings=self.settings(toml, operator), **how) as ledger:
            yield ledger


def happens(ledger: Ledger, operation: Operation | str, *evidence: e.Evidence, body: bytes | None = None) -> Operation:
    """Record what a worker would, one event after the other; all of them cite the answer `body`, if there is one."""
    answer = None if body is None else Answer.of(body, "application/json")
    op = ledger.show(operation if isinstance(operation, str) else operation.operation_id)
    contract = ledger.contract_of(op)
    for said in evidence:
        one = said if answer is None else replace(said, answer=answer.sha256)  # type: ignore[call-arg]
        now = SystemClock().now()

        def plan(after: Operation, one: e.Evidence = one, now: Any = now) -> Any:
            return decide.plan(after, contract, one, now, 0.5)

        (outcome,) = ledger.store.record_many(
            [Write(op.operation_id, one, WORKER, now, "call:call_1", plan, answer=answer)]
        )
        assert isinstance(outcome, Recorded), outcome.error
        op = outcome.operation
    return op


def sent(call_id: str = "call_1") -> e.CallSent:
    """The permit of a create."""
    return e.CallSent(call_id, Action.CREATE, "POST", "https://api.example.com/jobs", 1, may_create=True)


def accepted(job: str = "job_7", call_id: str = "call_1") -> e.Accepted:
    """The answer that binds a job."""
    return e.Accepted(call_id=call_id, job_id=job)


def observed(word: str = "running", means: Means = Means.RUNNING, job: str = "job_7") -> e.Observed:
    """One status read."""
    return e.Observed(job_id=job, remote_state=word, means=means)


RUNNING = (sent(), accepted(), observed())
LOST = (sent(), e.CallLost(call_id="call_1", why="reset"), e.Inconclusive(why="no way is left", exhausted=True))
FAILED = (*RUNNING, observed("failed", Means.FAILED))
VIOLATED = (*RUNNING, e.UnfamiliarJobId(why="another id under our token", jobs=("job_7", "job_8")))
