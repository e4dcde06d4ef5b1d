"""Targets that read what people write: contracts, settings, plans, progress files, filters, signers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from opledger.rules import decide, durations, filters, guarantees, requests, shapes, values
from opledger.rules.calls import origin_of
from opledger.rules.contract import Contract, ContractProblem
from opledger.rules.files import (
    calls,
    checks,
    contract,
    converters,
    reader,
    result,
    scope,
    settings,
    toml_lines,
    webhook,
)
from opledger.rules.files.contract import ContractInvalid
from opledger.rules.filters import FilterWrong
from opledger.rules.model import State
from opledger.rules.tasks import plan, proofs, records, story, templates
from opledger_console import tailfilter
from tests.core.rules.contract_example import EXAMPLE
from tests.core.rules.operations import CANCEL, JOBS, operation
from tests.fuzz.ground import Target, law, text_of

NOW: Final = datetime(2026, 11, 29, 12, tzinfo=UTC)
_ENVIRONMENT: Final = {"X": "https://other.example", "REGION": "eu"}
_BESIDE: Final = '{"type":"array","items":{"type":"object"}}'


def _problems(problems: Sequence[ContractProblem], source: str) -> None:
    law(problems, "a file is refused without a reason")
    for problem in problems:
        law(str(problem).strip(), "a problem is not said")
        lines = source.count("\n") + source.count("\r") + 2
        law(problem.line is None or 1 <= problem.line <= lines, "a problem stands on a line that is not there")


# --- contracts and settings ------------------------------------------------------------------------------------------


def contracts(data: bytes) -> bool:
    """A contract file: all that is wrong with it, or a contract that is the same when it is read from the ledger."""
    source = text_of(data)
    try:
        read = contract.parse(source, environment=_ENVIRONMENT, beside=lambda _: _BESIDE)
    except ContractInvalid as invalid:
        _problems(invalid.problems, source)
        return False
    again = contract.parse(read.source, environment=read.environment)
    law(again.digest == read.digest, "read from the ledger it has another digest")
    law(_told(again) == _told(read), "read from the ledger it promises something else")
    law(read.digest == contract.digest_of(source, read.environment), "its digest is not that of its text")
    _used(read)
    return True


def _told(one: Contract) -> tuple[Any, str]:
    shapes.contract_report(one.name, guarantees.guarantees(one))
    return guarantees.guarantees(one), guarantees.report_text(one)


def _used(one: Contract) -> None:
    """What a submit and a worker do with it first may be refused, in words, and must not break."""
    from opledger.errors import OpledgerError

    op = operation(State.CREATE_PENDING, contract=one.name, contract_digest=one.digest, created_at=NOW)
    decide.decide(op, one, NOW)
    seen = operation(State.OBSERVING, contract=one.name, remote_job_id="job_7", accepted_at=NOW, created_at=NOW)
    decide.decide(seen, one, NOW)
    for ask in (requests.observe, requests.cancel):
        if (one.cancel is None and ask is requests.cancel) or one.status.by_delivery:
            continue
        try:
            request = ask(seen, one)
        except OpledgerError:
            continue
        law(request.origin == origin_of(one.base_url), "a request is for another origin")
        law(origin_of(request.url) == request.origin, "a read of our own goes to another origin")


def configuration(data: bytes) -> bool:
    """opledger.toml."""
    source = text_of(data)
    try:
        read = settings.parse_settings(source)
    except settings.SettingsInvalid as invalid:
        _problems(invalid.problems, source)
        return False
    law(settings.parse_settings(source) == read, "read twice it says something else")
    settings.notice_targets(read.notify)
    return True


# --- plans and progress ----------------------------------------------------------------------------------------------


def plans(data: bytes) -> bool:
    """A plan: all that is wrong with it, or steps whose fingerprints are those of what they do."""
    source = text_of(data)
    try:
        read = plan.parse(source)
    except plan.PlanInvalid as invalid:
        _problems(invalid.problems, source)
        return False
    law(plan.parse(source) == read, "read twice it is another plan")
    law(len(set(read.ids)) == len(read.ids) > 0, "two steps have one id, or there is none")
    moved = plan.parse(f"# a remark\n{source}")
    law([one.fingerprint for one in moved.steps] == [one.fingerprint for one in read.steps], "a remark changes a step")
    outputs: dict[str, dict[str, Any]] = {name: {"job_id": "job_7", "operation_id": "op_1"} for name in read.ids}
    for step in read.steps:
        law(read.step(step.id) is step, "a step is not found by its id")
        action = step.action
        for value in vars_of(action):
            try:
                templates.fill(value, outputs)
            except templates.NothingThere:
                continue
    return True


def vars_of(action: plan.Action) -> list[Any]:
    """What an action is made of."""
    return [getattr(action, name) for name in type(action).__slots__]


def progress(data: bytes) -> bool:
    """A progress file: refused, or the very bytes that were written."""
    try:
        read = records.read_all(data)
    except records.Unreadable as error:
        law(str(error), "it is refused without a reason")
        read = ()
    compared = records.compare(data, data.splitlines(keepends=True) if read else (), "here")
    law((compared.broken is None) == bool(read), "a file that is what the ledger has is called broken")
    if not read:
        return False
    law(b"".join(map(records.write, read)) == data, "it was read, and opledger would not have written it so")
    law(compared == records.Compared(), "the file is what the ledger has, and is to be written anew")
    shorter = records.compare(data, data.splitlines(keepends=True)[:-1], "here")
    law(shorter.broken, "a record that the ledger does not have is taken")
    told = story.tell(read)
    law(len(told.records) == len(read), "records are lost in the telling")
    return True


# --- filters ---------------------------------------------------------------------------------------------------------

_OPS: Final = tuple(
    operation(state, tags={"team": "growth"}, remote_job_id=job, task="t", created_at=NOW - timedelta(hours=hours))
    for state, job, hours in ((State.OBSERVING, "job_7", 1), (State.SUCCEEDED, None, 50), (State.CREATE_UNKNOWN, "", 3))
)
_VOCABULARY: Final = {"contract": ("jobs", "a b", 'q"x'), "tag": ("team=growth",), "by": ("agent-7",)}


def console_filter(data: bytes) -> bool:
    """The filter of the operations list, and that of the tail."""
    text = text_of(data)
    _tail(text)
    for cursor in {0, len(text) // 2, len(text)}:
        for offer in filters.complete(text, cursor, _VOCABULARY):
            law(offer != text, "what is offered is there already")
    try:
        wanted = filters.parse(text)
    except FilterWrong as wrong:
        law(0 <= wrong.at <= len(text), "it goes wrong at a place that is not there")
        return False
    written = filters.text_of(wanted)
    law(filters.parse(written) == wanted, "written and read it is another filter")
    law(filters.text_of(filters.parse(written)) == written, "written twice it is another text")
    for op in _OPS:
        whole = filters.matches(op, wanted, NOW)
        parts = [filters.matches(op, filters.Wanted((term,)), NOW) for term in wanted.terms]
        law(whole == all(parts), "the terms hold, and the filter does not")
        for term in wanted.terms:
            turned = filters.Wanted((_turned(term),))
            alone = filters.Wanted((term,))
            law(filters.matches(op, turned, NOW) is not filters.matches(op, alone, NOW), "a turned term means the same")
    return True


def _turned(term: filters.Term) -> filters.Term:
    from dataclasses import replace

    return replace(term, negated=not term.negated)


def _tail(text: str) -> None:
    try:
        wanted = tailfilter.parse(text)
    except FilterWrong as wrong:
        law(0 <= wrong.at <= len(text), "the tail: it goes wrong at a place that is not there")
        return
    for term in wanted.terms:
        law(bool(term.values) & all(term.values), "the tail: a term without a value")


_SETTINGS: Final = b"""
[worker]
lease = "30s"
concurrency = 10
tick = "500ms"
[audit]
checkpoint = "5s"
anchors = ["/var/a-{ledger}.txt", "s3://bucket/x"]
[console]
theme = "night"
[console.keys]
approve = "a"
[[policy]]
when = 'operation.contract == "jobs"'
approvals = 2
approvers = ["ana", "ben"]
expires = "4h"
[[notify]]
url = "https://hooks.example.com/x"
on = ["create_unknown"]
"""
_PLAN: Final = b"""task = "monthly report"
title = "The report"
goal = "A report"
[[step]]
id = "fetch"
title = "Fetch"
run = ["make", "fetch"]
inputs = ["a.csv"]
timeout = "10m"
[[step.check]]
file = "out/a.csv"
[[step]]
id = "send"
submit = { contract = "jobs", body = { rows = 3, at = 2026-11-29T12:00:00Z }, tags = { team = "{steps.fetch.job_id}" } }
[[step]]
id = "look"
agent = "look at it"
repeatable = false
[[step.check]]
file = "look.txt"
[[step]]
id = "ask"
ask = { question = "Go on?", answers = ["yes", "no"], stop_on = ["no"] }
"""


def _progress() -> bytes:
    at = NOW
    made = [
        records.Record(1, at, "ana", "run_1", None, records.Kind.NOTE, {"began": "t"}, reason="begin", place="here"),
        records.Record(2, at, "ana", "run_1", "fetch", records.Kind.INTENT, fingerprint="sha256:1", place="here"),
        records.Record(
            3, at, "ana", "run_1", "fetch", records.Kind.COMPLETED, {"exit": 0}, {"rows": 3, "é\u202e": [1.5, None]},
            fingerprint="sha256:1", place="here",
        ),
        records.Record(4, at, "ana", "run_1", "ask", records.Kind.QUESTION, {"question": "?"}, place="here"),
        records.Record(5, at, "ana", "run_1", "ask", records.Kind.ANSWER, {}, {"answer": "yes"}, "so", place="here"),
    ]  # fmt: skip
    return b"".join(map(records.write, made))


TARGETS: Final = (
    Target(
        "contract",
        contracts,
        (contract, calls, checks, converters, reader, result, scope, webhook, values, toml_lines),
        ("words", "lines", "lines"),
        (
            EXAMPLE.encode(),
            (JOBS + CANCEL).encode(),
            (JOBS + CANCEL).replace("https://api.example.com", "${X}/v1").encode(),
        ),
    ),
    Target("settings", configuration, (settings, converters, reader, toml_lines), ("words", "lines"), (_SETTINGS,)),
    Target("plan", plans, (plan, proofs, templates), ("words", "lines", "lines"), (_PLAN,)),
    Target(
        "progress",
        progress,
        (records, story),
        ("lines", "json"),
        (_progress(), _progress().replace(b'"seq": 2', b'"seq":\t2')),
    ),
    Target(
        "filter",
        console_filter,
        (filters, tailfilter, durations),
        ("words",),
        (
            b"state:open !by:agent-7 age>2h",
            b'tag:team=growth contract:jobs,"a b" job_7',
            b'"a \\" b" deadline<10m',
            b"needs:me code:gone remote:x trace:0 task:t kind:CallLost due>1d",
        ),
    ),
)
