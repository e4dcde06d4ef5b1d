from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from opledger.rules import records as module
from opledger.rules.contract import Contract, Create, Result
from opledger.rules.looks import MOST_BAD
from opledger.rules.results import Checker, Verdict
from opledger.rules.schemas import MAX_SCHEMA, MOST_FAULTS, Schema
from opledger.rules.values import Template

AMOUNTS = Schema.parse('{"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer"}}}')


def check(data: bytes, schema: Schema = AMOUNTS, form: Any = "jsonl") -> Verdict:
    """Check a result that has a schema."""
    result = Result(format=form, schema=schema)
    create = Create("POST", Template("/x"))
    contract = Contract("reports", "0", "https://api.example.com", create, "", result=result)
    checker = Checker(contract, None, {})
    checker.feed(data)
    return checker.finish()


def test_a_document_is_tried_as_a_whole() -> None:
    """The records of a list are its own affair."""
    many = Schema.parse('{"type": "array", "minItems": 2}')
    assert check(b"[1, 2]", many, "json").ok
    assert check(b"[1]", many, "json").problems == ("the result does not fit its schema: its root breaks minItems",)


@pytest.mark.parametrize(
    ("form", "data"),
    [("jsonl", b'{"amount":1}\n{"amount":"x"}\n{"amount":3}'), ("csv", b"amount\n1\n2\n")],
)
def test_each_record_is_tried(form: str, data: bytes) -> None:
    """Lines of JSON, and rows of a CSV, which are objects of texts."""
    verdict = check(data, form=form)
    assert not verdict.ok
    number = 2 if form == "jsonl" else 1
    says = f"record {number} does not fit the schema: /amount breaks properties/amount/type"
    assert verdict.problems[0] == says
    texts = Schema.parse('{"properties": {"amount": {"pattern": "^[0-9]+$"}}}')
    assert check(b"amount\n1\n2\n", texts, "csv").ok


def test_a_file_that_is_wrong_all_through_does_not_fill_the_record() -> None:
    """The first records are told, and that the others were not tried."""
    verdict = check(b'{"amount": "x"}\n' * 5000)
    assert len(verdict.problems) == MOST_BAD + 1
    assert verdict.problems[-1] == f"the records after {MOST_BAD} were not tried against the schema"
    assert verdict.count == 5000


def test_a_fault_names_place_and_rule_and_never_what_stands_there() -> None:
    """What a provider sends may be anybody's data, and hostile to a terminal."""
    schema = Schema.parse('{"additionalProperties": {"const": 1}}')
    (fault,) = schema.faults({"\x1b[2J\u202e": "secret"})
    assert "secret" not in fault
    assert fault.isprintable()
    long = schema.faults({"x" * 10_000: "secret"})
    assert len(long[0]) < 400
    assert len(schema.faults({str(number): 2 for number in range(100)})) == MOST_FAULTS + 1


def test_whole_numbers_keep_all_their_digits() -> None:
    """A job id of nineteen digits is no float, in a schema either."""
    schema = Schema.parse('{"const": 12345678901234567890123}')
    assert schema.faults(12345678901234567890123) == ()
    assert schema.faults(12345678901234567890124) != ()


def test_nothing_is_fetched_for_a_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither from the network nor from a file: a contract could make a worker knock on any door inside."""

    def no(*_: Any, **__: Any) -> Any:
        raise AssertionError("a connection was made")

    monkeypatch.setattr(socket, "socket", no)
    monkeypatch.setattr(socket, "create_connection", no)
    for uri in ("http://127.0.0.1:1/x", "https://example.com/x", "file:///etc/passwd"):
        with pytest.raises(ValueError, match="not fetched"):
            Schema.parse(json.dumps({"$ref": uri}))
    inner = Schema.parse('{"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}')
    assert inner.faults("x") == ()


def test_a_pattern_that_takes_for_ever_elsewhere_does_not_here() -> None:
    """The data is the provider's, and could be made for it."""
    schema = Schema.parse('{"pattern": "^(a+)+$"}')
    assert schema.faults("a" * 40 + "!") != ()


def test_a_schema_has_bounds() -> None:
    """It lies beside the contract, and is stored with it."""
    with pytest.raises(ValueError, match="larger than"):
        Schema.parse('{"title": "' + "x" * MAX_SCHEMA + '"}')


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_b33_few_bytes_of_many_values_are_not_read(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Each value takes up to a hundred bytes of memory: two bytes on the wire would make fifty times as much."""
    monkeypatch.setattr(module, "MAX_VALUES", 1000)
    verdict = check(b"[" + b"[]," * 1000 + b"[]]", Schema.parse("{}"), form)
    assert not verdict.ok
    assert "was not looked into" in verdict.problems[0]
    fine = check(b"[" + b"[]," * 400 + b"[]]", Schema.parse("{}"), form)
    assert fine.ok
