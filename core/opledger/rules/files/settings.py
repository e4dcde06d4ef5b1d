"""What ``opledger.toml`` may say: read as strictly as a contract, every mistake with key and line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Final

from opledger.errors import ConfigWrong
from opledger.rules.contract import ContractProblem
from opledger.rules.escalation import Severity, Target, target_name
from opledger.rules.files import converters as v
from opledger.rules.files.reader import Table, Unfit, document, kind_of
from opledger.rules.values import Condition

POLICY_NAMES: Final = frozenset({"operation"})
"""What the condition of a policy may speak of."""

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
WORDS: Final = ("db", "results", "operator", "log")
"""Settings that are one word each, and can also be given as flag or variable."""


class SettingsInvalid(ConfigWrong):
    """A settings file cannot be used. `problems` holds all that is wrong with it, in the order of the file."""

    code: ClassVar[str] = "settings_invalid"

    def __init__(self, file: str, problems: tuple[ContractProblem, ...]) -> None:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"the settings in {file} cannot be used; {problems[0]}{more}")
        self.file = file
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Policy:
    """Who must approve an operation for which `when` holds. A condition that cannot be evaluated asks for approval."""

    when: Condition
    approvals: int = 1
    approvers: tuple[str, ...] = ()  #: empty: anybody but the requester
    four_eyes: bool = True  #: the requester cannot approve, nobody counts twice
    expires: timedelta | None = None
    signed: bool = False  #: an approval counts only with the approver's SSH signature


@dataclass(frozen=True, slots=True)
class Notify:
    """Where to send a notice. The URLs are secrets, so they are never shown."""

    urls: tuple[str, ...] = field(repr=False)
    on: tuple[str, ...] = ()  #: attention codes; empty: all
    name: str | None = None  #: what it is called where its URLs must not be shown
    severity: Severity = Severity.LOW  #: the least that is told
    repeat: timedelta = timedelta(minutes=30)  #: until something critical that nobody acknowledged is told again
    digest: int = 5  #: more than so many at once become one message


def notice_targets(notify: Iterable[Notify]) -> tuple[tuple[Target, str], ...]:
    """Return each place that notices go to, with its URL or the reference to one.

    What is named twice, for other codes perhaps, is two targets.
    """
    found: list[tuple[Target, str]] = []
    times: Counter[str] = Counter()
    for one in notify:
        for at, url in enumerate(one.urls):
            name = target_name(url, one.name, at)
            times[name] += 1
            if times[name] > 1:
                name = f"{name}+{times[name]}"
            found.append((Target(name, frozenset(one.on), one.severity, one.repeat, one.digest), url))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """What one file says. What it does not mention is not in the mappings, so that other sources can say it."""

    words: Mapping[str, str]
    contracts: tuple[str, ...]
    worker: Mapping[str, Any]
    audit: Mapping[str, Any]
    console: Mapping[str, Any]
    policies: tuple[Policy, ...]
    notify: tuple[Notify, ...]


def parse_settings(source: str, *, name_hint: str = "opledger.toml") -> SettingsFile:
    """Read a settings file. Raises SettingsInvalid with all problems."""
    parsed, problems = document(source)
    if parsed is None:
        raise SettingsInvalid(name_hint, problems.all())
    root = Table(parsed, (), problems)
    read = SettingsFile(
        words=_given(root, {name: level if name == "log" else v.text for name in WORDS}),
        contracts=root.values("contracts", (), v.text),
        worker=_worker(root.table("worker")),
        audit=_audit(root.table("audit")),
        console=_console(root.table("console")),
        policies=tuple(_policy(table) for table in root.tables("policy")),
        notify=tuple(_notify(table) for table in root.tables("notify")),
    )
    root.done()
    if problems.all():
        raise SettingsInvalid(name_hint, problems.all())
    return read


def is_url(anchor: str) -> bool:
    """Say whether an anchor as it is written names something else than a file: an object store, ``syslog:`` …"""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", anchor) is not None


def level(raw: Any) -> str:
    """A log level, in small letters."""
    return v.one_of(*LEVELS)(raw.lower() if isinstance(raw, str) else raw)


def _given(table: Table, converters: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """Read those keys of a table that are there."""
    read = {name: table.value(name, None, convert) for name, convert in converters.items()}
    return {name: value for name, value in read.items() if value is not None}


def _worker(table: Table | None) -> dict[str, Any]:
    if table is None:
        return {}
    read = _given(table, {"lease": v.duration, "concurrency": v.integer(1, 100_000), "tick": v.duration})
    table.done()
    return read


def _audit(table: Table | None) -> dict[str, Any]:
    if table is None:
        return {}
    read = _given(table, {"checkpoint": v.duration, "key": v.text, "allowed_signers": v.text})
    anchors = table.values("anchors", (), v.text)
    table.done()
    return {**read, "anchors": anchors} if anchors else read


def _console(table: Table | None) -> dict[str, Any]:
    if table is None:
        return {}
    read = _given(table, {"theme": v.text, "grace": v.span})
    keys, columns = table.mapping("keys", v.text, v.text), table.values("columns", (), v.text)
    table.done()
    return {**read, **({"keys": keys} if keys else {}), **({"columns": columns} if columns else {})}


def _policy(table: Table) -> Policy:
    table.require("when")
    approvers = table.values("approvers", (), v.text)
    policy = Policy(
        when=table.value("when", None, v.condition(POLICY_NAMES)) or Condition(""),
        approvals=table.value("approvals", 1, v.integer(1, 100)),
        approvers=approvers,
        four_eyes=table.value("four_eyes", True, v.flag),
        expires=table.value("expires", None, v.duration),
        signed=table.value("signed", False, v.flag),
    )
    if table.data.get("approvers") == []:
        table.problem("approvers", "must not be an empty list: nobody could approve")
    elif approvers and len(set(approvers)) < policy.approvals:
        table.problem("approvals", f"asks for {policy.approvals}, and only {len(set(approvers))} may approve")
    table.done()
    return policy


def _notify(table: Table) -> Notify:
    table.require("url")
    notify = Notify(
        urls=table.values("url", (), _notice_url),
        on=table.values("on", (), v.name),
        name=table.value("name", None, v.name),
        severity=Severity(table.value("severity", Severity.LOW.value, v.one_of(*Severity))),
        repeat=table.value("repeat", timedelta(minutes=30), v.duration),
        digest=table.value("digest", 5, v.integer(1, 10_000)),
    )
    table.done()
    return notify


def _notice_url(raw: Any) -> str:
    """A notice URL, or a reference to one. The message does not show it: such URLs carry tokens."""
    if not isinstance(raw, str):
        raise Unfit(f"must be a notice URL or env:NAME in quotes, not {kind_of(raw)}")
    if not re.match(r"[a-z][a-z0-9+.-]*://|env:[A-Za-z_]", raw):
        raise Unfit("must be a notice URL (scheme://…) or env:NAME")
    return v.text(raw)
