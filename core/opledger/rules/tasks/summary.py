"""The report at the end of a run: every step and its proof, the questions, the decisions. Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from opledger.rules.jsontext import dumps_inert
from opledger.rules.model import to_rfc3339
from opledger.rules.plain import clean
from opledger.rules.tasks.plan import Ask, Plan
from opledger.rules.tasks.records import Kind, Record
from opledger.rules.tasks.story import Story, kind_of

_MARKS: Final = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_[]<>#|"})


def summary(plan: Plan, story: Story) -> str:
    """Write the summary. The same records give the same text."""
    first, last = story.records[0], story.records[-1]
    ended = story.ended or last
    lines = [
        f"# {_text(plan.title)}",
        "",
        f"- task: {_code(plan.task)}",
        f"- run: {_code(first.run)}",
        f"- goal: {_text(plan.goal) or '–'}",
        f"- outcome: {_text(story.outcome or 'open')}: {_text(ended.reason or '')}",
        f"- from {to_rfc3339(first.at)} by {_text(first.actor)} to {to_rfc3339(ended.at)} by {_text(ended.actor)}",
        f"- plan: {plan.digest}",
        "",
        "## Steps",
    ]
    for number, step in enumerate(plan.steps, 1):
        standing = story.of(step.id)
        lines += ["", f"### {number}. {_text(step.title)} ({_text(step.id)}, {kind_of(step)}): {standing.word}", ""]
        if isinstance(step.action, Ask):
            lines.append(f"- question: {_text(step.action.question)}")
        record = standing.last
        if record is None:
            lines.append("- never begun")
            continue
        lines.append(f"- {record.kind} at {to_rfc3339(record.at)} by {_text(record.actor)}")
        if record.reason:
            lines.append(f"- reason: {_text(record.reason)}")
        lines += _pairs("proof", record.proof)
        lines += _pairs("output", record.outputs)
        if standing.verified is not None:
            lines.append(f"- proof tried again at {to_rfc3339(standing.verified.at)}: it holds")
    lines += _told("Decisions", story, (Kind.DECISION, Kind.ANSWER))
    lines += _told("Failures", story, (Kind.FAILED,))
    lines += _told("Notes", story, (Kind.NOTE,))
    return "\n".join(lines) + "\n"


def _told(title: str, story: Story, kinds: Iterable[Kind]) -> list[str]:
    found = [record for record in story.records if record.kind in kinds]
    if not found:
        return []
    return ["", f"## {title}", "", *(_line(record) for record in found)]


def _line(record: Record) -> str:
    where = "" if record.step is None else f" step {_text(record.step)}:"
    what = record.proof.get("decided") or record.outputs.get("answer") or ""
    word = f" {_text(str(what))}" if what else ""
    return f"- {to_rfc3339(record.at)} {_text(record.actor)}:{where}{word} {_text(record.reason or '')}".rstrip()


def _pairs(word: str, values: Mapping[str, Any]) -> list[str]:
    return [
        f"- {word} {_text(name)}: {_code(value if isinstance(value, str) else dumps_inert(value))}"
        for name, value in values.items()
        if value not in (None, "", [], {})
    ]


def _code(text: str) -> str:
    """Outside text as a piece of code: nothing in it acts."""
    line = clean(" ".join(text.split()))
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def _text(text: str) -> str:
    """Outside text in Markdown: in one line, and no mark of it acts."""
    return clean(" ".join(text.split())).translate(_MARKS)
