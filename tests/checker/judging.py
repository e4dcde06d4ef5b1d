"""The whole judgement over both papers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tests.checker import laws, papers, wire
from tests.checker.machine import Standing
from tests.checker.papers import STRICT, Facts, Finding, History, Request

UNSEEN: Final = {
    "I4": "without its contract nobody knows how long the provider remembers a token",
    "I12": "neither paper says how long a call was open, or how long a lease had left",
    "I19": "webhooks that came before their job was known stand in neither paper",
}
"""What two papers cannot show."""


def check(
    export: Iterable[bytes],
    log: Iterable[str | bytes],
    contracts: Mapping[str, Facts] | None = None,
    *,
    idle: bool = False,
    apart: float = 0.0,
) -> list[Finding]:
    """Read both papers and return every broken invariant. Raises ValueError for papers that cannot be read."""
    return judge(papers.read_export(export), papers.read_log(log), contracts, idle=idle, apart=apart)


def judge(
    history: History,
    log: Sequence[Request],
    contracts: Mapping[str, Facts] | None = None,
    *,
    idle: bool = False,
    apart: float = 0.0,
) -> list[Finding]:
    """Judge what was read.

    `idle`: workers ran, without faults, until nothing was left to do. `apart`: how many seconds there may be between
    the ledger's clock and the provider's.
    """
    micros = round(apart * 1e6)
    stories = history.stories
    findings = [*history.findings]
    if not stories:
        findings.append(Finding("I23", None, None, "there is no operation to be judged: that proves nothing"))
    found, strays = wire.sort_out(stories, log, history.archived)
    findings += strays
    calls: set[str] = set()
    standings: dict[str, Standing] = {}
    for name, story in stories.items():
        contract = story.events[0].data.get("contract") if story.events else None
        facts = (contracts or {}).get(str(contract), STRICT)
        now, wrong = laws.judge_story(story, facts, calls)
        standings[name] = now
        findings += wrong
        findings += laws.judge_end(story, now, idle=idle)
        findings += wire.judge_wire(story, now, found.get(name, []), facts, micros)
    findings += wire.judge_jobs(stories, standings)
    findings += wire.judge_adoption(standings, found, micros)
    return findings
