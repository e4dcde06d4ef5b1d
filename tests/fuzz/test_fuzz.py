"""The short form: what earlier runs have kept, a fixed number of new inputs, and broken parsers that must be caught."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from unittest import mock

import pytest

from opledger.errors import OpledgerError
from opledger.ledger import archive
from opledger.ledger.auditing import Part
from opledger.rules import (
    answers,
    auditlog,
    calls,
    filters,
    journal,
    jsontext,
    model,
    plain,
    records,
    requests,
    signatures,
    signers,
    sshsig,
)
from opledger.rules.files import contract, settings
from opledger.rules.tasks import plan
from opledger.rules.tasks import records as progress
from tests.fuzz import engine
from tests.fuzz.ground import Target, corpus
from tests.fuzz.targets import TARGETS

SLOW = {"contract": 25, "export": 25, "forged": 25, "plan": 80, "answers": 200, "results": 120, "filter": 150}
"""New inputs of those that take more than half a millisecond each."""
MOST = 300


@pytest.mark.parametrize("name", TARGETS)
def test_all_laws_hold_for_what_was_kept_and_for_new_inputs(name: str) -> None:
    target = TARGETS[name]
    seeds = len(target.seeds())
    report = engine.run(target, seed=20261130, executions=seeds + SLOW.get(name, MOST))
    assert not report.findings, "\n".join(finding.line() for finding in report.findings)
    assert report.executions >= seeds + SLOW.get(name, MOST)
    assert report.accepted, "no input was accepted: nothing was tried behind the door"
    assert report.branches > 30


def _prefix(url: str) -> str:
    return "https://api.example.com:443" if url.startswith("https://api.example.com") else calls.origin_of(url)


def _overflows(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _forgets(*given: Any) -> Any:
    return replace(_CONTRACT(*given), environment={})


_CONTRACT = contract._contract


def _breaks(error: type[Exception]) -> Callable[..., Any]:
    def broken(*_: Any, **__: Any) -> Any:
        raise error("broken")

    return broken


def _lenient(line: bytes) -> progress.Record:
    return _READ(line.replace(b"\t", b" "))


_READ = progress.read

BROKEN: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "json": partial(mock.patch.object, jsontext, "_SURROGATE", mock.Mock(search=lambda _: None)),
    "plain": partial(mock.patch.object, plain, "_HIDING", plain._HIDING - {"Cf"}),
    "dates": partial(mock.patch.object, model, "utc", _overflows),
    "urls": partial(mock.patch.object, requests, "origin_of", _prefix),
    "webhook": partial(mock.patch.object, signatures, "_by_hmac", lambda *_: lambda *_: True),
    "answers": partial(mock.patch.object, answers, "first_id", lambda *_: "job_x"),
    "results": partial(mock.patch.object, records._Lines, "finish", lambda _: None),
    "contract": partial(mock.patch.object, contract, "_contract", _forgets),
    "settings": partial(mock.patch.object, settings, "_worker", _breaks(KeyError)),
    "plan": partial(mock.patch.object, plan, "_plain", _breaks(TypeError)),
    "progress": partial(mock.patch.object, progress, "read", _lenient),
    "filter": partial(mock.patch.object, filters, "_quoted", lambda value, **_: value),
    "note": partial(mock.patch.object, auditlog, "signed_by", lambda *_: lambda _: None),
    "export": partial(mock.patch.object, archive, "look", lambda *_: Part()),
    "forged": partial(mock.patch.object, archive, "look", lambda *_: Part()),
    "body": partial(mock.patch.object, journal, "from_rfc3339", lambda text: _overflows(datetime.fromisoformat(text))),
    "sshsig": partial(mock.patch.object, sshsig, "_check", lambda _: lambda _: None),
    "signers": partial(mock.patch.object, signers.AllowedSigners, "keys_of", lambda *_: ()),
}


def test_there_is_a_broken_parser_for_each_target() -> None:
    assert set(BROKEN) == set(TARGETS)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_parser_is_caught(name: str) -> None:
    target = TARGETS[name]
    with BROKEN[name](), mock.patch.multiple(engine, MOST=1, SMALLER=0):
        report = engine.run(target, seed=1, executions=len(target.seeds()) + 400)
    target.fresh()
    assert report.findings, f"{report.executions} inputs, and nobody noticed"
    assert engine.judge(target, report.findings[0].data) is None


def test_the_same_seed_goes_the_same_way() -> None:
    for name in ("plain", "signers"):
        twice = [engine.run(TARGETS[name], seed=7, executions=150) for _ in range(2)]
        assert twice[0].kept == twice[1].kept and twice[0].branches == twice[1].branches


def _target(run: Callable[[bytes], bool]) -> Target:
    return replace(TARGETS["plain"], name="made_up", run=run, starts=(b"0123456789" * 9 + b"!" + b"x" * 90,))


def test_an_input_that_hangs_is_found() -> None:
    def endless(_: bytes) -> bool:
        while True:
            pass

    with mock.patch.object(engine, "PATIENCE", 0.05):
        assert "takes more than 0.05 s" in str(engine.judge(_target(endless), b""))


def test_an_input_that_takes_much_memory_is_found() -> None:
    with mock.patch.object(engine, "_peak", mock.Mock(side_effect=[0, 65 << 20])):
        assert engine.judge(_target(lambda _: True), b"") == "it takes 65 MiB of memory"


def test_what_breaks_a_law_is_made_small() -> None:
    def run(data: bytes) -> bool:
        if b"!" in data:
            raise OpledgerError("no exclamation marks")
        return True

    with mock.patch.object(engine, "MOST", 1):
        report = engine.run(_target(run), seed=1, executions=50)
    (finding,) = report.findings
    assert finding.data == b"!" and "--input 21" in finding.line()


def test_the_corpus_is_small() -> None:
    size = sum(len(data) for name in TARGETS for kind in corpus(name).values() for data in kind)
    assert size < 400_000
