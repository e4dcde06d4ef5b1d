"""Every value of a contract: as it is written, and as it is where nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from opledger.rules.contract import (
    Also,
    Cancel,
    Contract,
    Create,
    Idempotency,
    Items,
    Result,
    Status,
    Strategy,
    Webhook,
)
from opledger.rules.files.contract import parse
from opledger.rules.values import Pick, Template
from tests.core.rules.test_contract_bad import GOOD

HERE = Path(__file__).parent
WHOLE = (HERE / "contract_whole.toml").read_text("utf-8")
LEAST = (
    GOOD
    + """\
[webhook]
scheme = "hmac"
secret = "env:A"
signature = "header:x"
signed = "{body}"
job_id = "/id"
[create.idempotency]
mechanism = "query"
name = "k"
[[reconcile]]
strategy = "get"
path = "/{token}"
[cancel]
method = "POST"
path = "/{job_id}"
[result]
url = "/u"
"""
)
EMPTY = '[auth]\nkind = "none"\n[poll]\n[deadlines]\n[limits]\n[approval]\n[safety]\n'


def flat(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    """All values in something, each with its way there; durations in seconds, what is compiled as its text."""
    if isinstance(value, timedelta):
        yield key, value.total_seconds()
    elif isinstance(value, Enum):
        yield key, value.value
    elif is_dataclass(value) and hasattr(value, "text"):
        yield key, value.text
    elif is_dataclass(value):
        for one in fields(value):
            yield from flat(getattr(value, one.name), f"{key}.{one.name}" if key else one.name)
    elif isinstance(value, frozenset):
        yield key, sorted(getattr(one, "value", one) for one in value)
    elif isinstance(value, Mapping | tuple) and value:
        for name, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from flat(inner, f"{key}[{name}]")
    else:
        yield key, value


def values(source: str) -> list[str]:
    """The lines of a contract, as `contract_values.txt` has them."""
    contract = parse(source, environment={}, beside=lambda _: "{}")
    return [f"{key} = {value!r}" for key, value in flat(contract, "") if key not in ("digest", "source")]


def expected(heading: str) -> list[str]:
    """The lines under a heading."""
    parts = (HERE / "contract_values.txt").read_text("utf-8").split("### ")
    (found,) = [part for part in parts if part.startswith(f"{heading}\n")]
    return found.splitlines()[1:]


def test_every_key_is_read_into_its_own_place() -> None:
    """Each value differs from its default, and from its neighbour's: one that came from elsewhere would show."""
    assert values(WHOLE) == expected("whole")


def test_every_default_is_the_documented_one() -> None:
    """A contract says only what is different; what it doesn't say is a promise of ours, tables or no tables."""
    assert values(LEAST) == expected("least")
    assert values(LEAST + EMPTY) == expected("least")


def test_what_a_part_is_made_of_when_only_the_least_is_given() -> None:
    """Parts are made by hand too, by tests and by code that reads old contracts; their defaults are the same."""
    pick, path = Pick.parse("/x"), Template("/x")
    contract = Contract("jobs", "sha256:0", "https://api.example.com", Create("POST", path), source="")
    parts = [
        contract, Strategy("get"), Status(), Cancel("POST", path), Result(), Also("a", pick), Items(pick),
        Webhook("standard", ()),
    ]  # fmt: skip
    assert [f"{key} = {value!r}" for part in parts for key, value in flat(part, type(part).__name__)] == expected(
        "bare"
    )


def test_every_secret_is_named_once() -> None:
    """Whoever starts a worker is told of all that are missing, those of results and webhooks too."""
    assert parse(WHOLE, environment={}, beside=lambda _: "{}").references == ("env:KEY", "env:HOOK", "env:A", "env:B")
    more = '[auth]\nkind = "bearer"\nsecret = "env:A"\n[secrets]\nx = "env:X"\n'
    own = 'result_hosts = ["f.example.com"]\n' + LEAST + 'auth = { kind = "bearer", secret = "env:R" }\n' + more
    assert parse(own, environment={}).references == ("env:A", "env:X", "env:R")
    assert parse(GOOD, environment={}).references == ()


def test_without_a_token_there_is_no_time_to_resend_in() -> None:
    """Whatever is said of a memory."""
    said: dict[str, Any]
    for said in ({"memory": timedelta(days=1)}, {"while_record_exists": True}):
        token = Idempotency("query", "k", **said)
        assert _with(token).resend_window is not None
        assert _with(replace(token, mechanism="none")).resend_window is None


def test_a_memory_as_long_as_one_call_leaves_no_time_to_resend_in() -> None:
    """The resend itself may take that long."""
    assert _with(Idempotency("query", "k", memory=timedelta(seconds=30))).resend_window is None
    assert _with(Idempotency("query", "k", memory=timedelta(seconds=31))).resend_window == timedelta(seconds=1)


def _with(token: Idempotency) -> Contract:
    create = Create("POST", Template("/x"), idempotency=token)
    return Contract("jobs", "sha256:0", "https://api.example.com", create, source="")


def test_what_tells_of_a_job_has_a_name() -> None:
    """It stands in messages."""
    assert (Status().told_in, Status(by_delivery=True).told_in) == ("the status answer", "the delivery")
