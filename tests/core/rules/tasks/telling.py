"""Plans and records for tests of the rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from opledger.rules.tasks.plan import Plan, parse
from opledger.rules.tasks.records import Kind, Record
from opledger.rules.tasks.story import Story, tell

BEGAN = datetime(2026, 11, 30, 12, tzinfo=UTC)
HEAD = 'task = "monthly"\ntitle = "Monthly"\ngoal = "A report"\n'
CREATE = """
[[step]]
id = "create"
submit = { contract = "reports", body = { account = "acct_218" } }
"""
CONVERT = """
[[step]]
id = "convert"
run = ["python", "convert.py", "{step.create.location}"]
check = { file = "out.csv", parses = "csv" }
"""
TELL = """
[[step]]
id = "tell"
run = ["python", "notify.py"]
repeatable = false
"""
REVIEW = """
[[step]]
id = "review"
agent = "Read out.csv"
check = { file = "review.md", parses = "text" }
"""
PUBLISH = """
[[step]]
id = "publish"
ask = { question = "Publish?", answers = ["yes", "no"], stop_on = ["no"] }
"""
ALL = (CREATE, CONVERT, TELL, REVIEW, PUBLISH)


def plan(*steps: str) -> Plan:
    """A plan of these steps; of all where none is given."""
    return parse(HEAD + "".join(steps or ALL), name_hint="monthly.plan.toml")


def story(on: Plan, *facts: tuple[Any, ...]) -> Story:
    """A story of (step, kind) or (step, kind, more) facts, each with the fingerprint that the plan's step has."""
    return tell(records(on, *facts))


def records(on: Plan, *facts: tuple[Any, ...]) -> list[Record]:
    """The records of such a story."""
    found = []
    for seq, (step_id, kind, *rest) in enumerate(facts, 1):
        more = dict(rest[0]) if rest else {}
        step = None if step_id is None else on.step(step_id)
        mark = None if step is None else step.fingerprint
        at = BEGAN + timedelta(seconds=seq)
        given = {"fingerprint": mark, "place": "here", "actor": "ana", **more}
        found.append(Record(seq=seq, at=at, run="run_1", step=step_id, kind=Kind(kind), **given))
    return found


def settled(*steps: str) -> tuple[tuple[Any, ...], ...]:
    """Facts by which steps were begun and completed, one after the other."""
    return tuple(fact for step in steps for fact in ((step, "intent"), (step, "completed")))
