"""T18: what a provider, an agent and a person may write goes through the whole record and out of every door."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from opledger.cli import main
from opledger.errors import Refused
from opledger.rules.model import Operation
from tests.scenarios.stage import Stage
from tests.support.hostile import raw, stacks, strings

COMMANDS = ("show", "history", "events", "explain", "choices", "packet", "review")
PER_ANSWER = 6


def document(job: str, texts: list[str]) -> dict[str, Any]:
    """A status answer with a hostile text in each of its fields."""
    state, code, message, completed, updated, url = texts
    return {
        "id": job,
        "state": state,
        "error": {"code": code, "message": message},
        "progress": {"completed": completed, "total": completed},
        "updated_at": updated,
        "result_url": url,
    }


@pytest.fixture
def told(file_stage: Stage, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Operation], list[str]]:
    """A ledger in which two thousand hostile texts were recorded, and what they were."""
    stage, texts = file_stage, [text for text in strings() if len(text) < 100_000]
    stage.contract()
    operations = []
    for number in range(10):
        mine = texts[number::10]
        body: dict[str, Any] = {"note": mine[0], "list": mine[:40], "deep": {text: text for text in mine[:40]}}
        wish = {"tags": {"team": "x", "about": mine[1][:100]}, "expectation": mine[2][:100]}
        try:
            operation = stage.submit(by=f"agent{number}", wish=wish, _seconds=10**6, **body)
        except Refused:  # what no database keeps, half a surrogate pair for one, is refused where it is written
            body = json.loads(json.dumps(body).encode("ascii").replace(b"\\ud", b"\\ue"))
            operation = stage.submit(by=f"agent{number}", _seconds=10**6, note=body["note"])
        operations.append(operation)
    stage.turn()
    jobs = {operation.operation_id: stage.show(operation).remote_job_id or "" for operation in operations}
    for at in range(0, len(texts) - PER_ANSWER, PER_ANSWER * len(operations)):
        for place, job in enumerate(jobs.values()):
            chunk = texts[at + place * PER_ANSWER : at + (place + 1) * PER_ANSWER]
            if len(chunk) == PER_ANSWER:
                stage.sim.control(job={"id": job, "document": document(job, chunk)})
        stage.passes(61)
        stage.turn()
    for name, value in (("OPLEDGER_DB", stage.url), ("OPLEDGER_CONTRACTS", str(stage.contracts)), ("COLUMNS", "80")):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(stage.folder)
    return operations, texts


def test_nothing_of_it_acts_on_whoever_looks(
    told: tuple[list[Operation], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command that shows a record, as text and as JSON, the packet and the export among them."""
    operations, texts = told
    asked = [[word, operation.operation_id] for word in COMMANDS for operation in operations]
    asked += [["list"], ["escalations"], ["audit", "export"], ["doctor"], ["provider", "list"]]
    asked += [["show", text[:200]] for text in texts[::40]] + [["approve", texts[3][:100], "--note", texts[5][:100]]]
    seen: set[str] = set()
    shown = 0
    for words in asked:
        for flags in ([], ["--json"]):
            capsys.readouterr()
            main([*flags, *words])
            out, err = capsys.readouterr()
            for printed in (out, err):
                assert raw(printed) == [], words
                assert stacks(printed) <= 4, words
            shown += len(out)
            if flags and words[0] == "events":
                seen |= set(_texts(json.loads(out)))
    assert shown > 1_000_000
    passed = {text for text in texts if text[:200].replace("\0", "\\u0000") in seen}
    assert len(passed) > len(texts) // 8  # as state words alone: they are kept as they were


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
