"""Records of tasks, written as a runner writes them, without a runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from opledger.ledger import Ledger
from opledger.rules.tasks.records import Kind, Record, write

SIX: Final = (
    ("create", "Have the report made", "submit"),
    ("convert", "Make a table of it", "run"),
    ("tell", "Tell the team", "run"),
    ("review", "Review the table", "agent"),
    ("publish", "Let a person decide", "ask"),
    ("deliver", "Have it delivered", "submit"),
)
"""The steps of the example: id, title, kind."""


class Scribe:
    """Writes the records of one task, so many seconds apart."""

    def __init__(self, ledger: Ledger, task: str, at: datetime, *, place: str = "elsewhere") -> None:
        self.ledger = ledger
        self.task = task
        self.run = f"run_{task}"
        self.at = at
        self._place = place
        self._seq = 0

    def began(self, steps: Sequence[tuple[str, str, str]] = SIX, *, title: str = "", goal: str = "") -> None:
        """The first record."""
        told = [{"id": step, "title": words, "kind": kind, "repeatable": step != "tell"} for step, words, kind in steps]
        proof = {"began": self.task, "title": title or self.task, "goal": goal, "plan": "sha256:0", "steps": told}
        self.add(Kind.NOTE, proof=proof, reason="the plan as it stands")

    def add(
        self,
        kind: Kind,
        step: str | None = None,
        *,
        by: str = "agent-7",
        proof: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        reason: str | None = None,
        after: float = 20,
    ) -> None:
        """One record more."""
        self._seq += 1
        self.at += timedelta(seconds=after)
        record = Record(
            self._seq, self.at, by, self.run, step, kind, proof or {}, outputs or {}, reason, "sha256:1", self._place
        )
        self.ledger.store.tasks.append(self.task, record, write(record), self.at)

    def done(self, step: str, *checks: Mapping[str, Any], outputs: Mapping[str, Any] | None = None) -> None:
        """Begun and done."""
        self.add(Kind.INTENT, step, proof={"does": step, "token": f"key-of-{step}"})
        self.add(Kind.COMPLETED, step, proof={"checks": list(checks)}, outputs=outputs)

    def asks(self, step: str, question: str, *answers: str) -> None:
        """A question."""
        self.add(Kind.QUESTION, step, proof={"question": question, "answers": list(answers)})


def example(scribe: Scribe, operation: str = "op_EXAMPLE", *, upto: int = 5) -> None:
    """The six steps as far as the question, or as far as `upto` says."""
    scribe.began(title="Monthly report", goal="The report of November is made, reviewed, and delivered once.")
    parts = (
        lambda: scribe.done(
            "create", {"operation": operation, "state": "succeeded"}, outputs={"location": "results/r.json", "rows": 5}
        ),
        lambda: scribe.done(
            "convert",
            {"file": "report.csv", "size": 310, "sha256": "9f86d081884c7d65" * 4, "parses": "csv"},
            outputs={"rows": 5},
        ),
        lambda: scribe.done("tell", {"command": ["python", "sent.py", "November"], "exit": 0}),
        lambda: scribe.done("review", {"file": "review.md", "size": 99, "sha256": "60303ae22b998861" * 4}),
        lambda: scribe.asks("publish", "Deliver the report?", "yes", "no"),
    )
    for part in parts[:upto]:
        part()
