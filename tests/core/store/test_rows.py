from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opledger.errors import StoreUnavailable
from opledger.rules.model import (
    Action,
    Approval,
    Attempts,
    Attention,
    CancelIntent,
    ItemSummary,
    Means,
    OpenCall,
    Operation,
    Plan,
    State,
    StoredResult,
)
from opledger.store import encoding, rows

moments = st.integers(0, 253_000_000_000 * 10**6).map(encoding.from_micros)
spans = st.timedeltas(timedelta(0), timedelta(days=10_000))
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
numbers = st.integers(0, 2**40)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
results = st.builds(
    StoredResult,
    location=st.none() | texts,
    size=numbers,
    sha256=st.none() | texts,
    content_type=st.none() | texts,
    validated=st.booleans(),
    problems=st.lists(texts, max_size=2).map(tuple),
    items=st.none() | st.builds(ItemSummary, numbers, numbers, numbers, st.lists(texts, max_size=2).map(tuple)),
)
hashes = st.binary(min_size=32, max_size=32).map(bytes.hex)

#: A strategy by type, for every type that a field of `Operation` has.
BY_TYPE: Mapping[Any, st.SearchStrategy[Any]] = {
    "str": texts,
    "int": numbers,
    "bool": st.booleans(),
    "datetime": moments,
    "timedelta": spans,
    "State": st.sampled_from(State),
    "Means | None": st.none() | st.sampled_from(Means),
    "str | None": st.none() | texts,
    "datetime | None": st.none() | moments,
    "Mapping[str, str]": st.dictionaries(texts, texts, max_size=3),
    "Mapping[str, int]": st.dictionaries(texts, numbers, max_size=3),
    "Mapping[str, Any] | None": st.none() | st.dictionaries(texts, json_values, max_size=3),
    "Plan | None": st.none() | st.builds(Plan, texts, st.none() | moments, texts),
    "Attempts": st.builds(Attempts, numbers, numbers, numbers, numbers, numbers),
    "Attention | None": st.none() | st.builds(Attention, texts, moments, texts),
    "tuple[Approval, ...]": st.lists(st.builds(Approval, texts, moments, texts, texts), max_size=2).map(tuple),
    "tuple[str, ...]": st.lists(texts, max_size=3).map(tuple),
    "OpenCall | None": st.none() | st.builds(OpenCall, texts, st.sampled_from(Action), moments, texts),
    "CancelIntent | None": st.none()
    | st.builds(
        CancelIntent, texts, texts, moments, texts, texts, numbers, st.booleans(), st.booleans(), st.booleans()
    ),
    "StoredResult | None": st.none() | results,
    "Lease | None": st.none(),
}


def field_strategy(field: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    """Values for one field of `Operation`."""
    return hashes if field.name == "head_hash" else BY_TYPE[str(field.type)]


operations = st.builds(Operation, **{field.name: field_strategy(field) for field in dataclasses.fields(Operation)})


@given(operations)
def test_a_record_survives_its_row(operation: Operation) -> None:
    """Every field of the record is stored somewhere and comes back exactly, also fields added later."""
    assert rows.from_row(rows.new_row(operation)) == operation


CHANGING = [f.name for f in dataclasses.fields(Operation) if f.name not in ("lease", "operation_id")]


@given(operations, operations, st.sets(st.sampled_from(CHANGING)))
def test_an_update_of_the_changed_columns_gives_the_whole_new_row(
    before: Operation, other: Operation, several: set[str]
) -> None:
    """An UPDATE of only what `changes` names must leave the row that an INSERT would have made, for every field."""
    for names in (several, *({name} for name in CHANGING)):
        after = dataclasses.replace(before, **{name: getattr(other, name) for name in names})
        columns, values = rows.changes(before, after)
        updated = dict(zip(rows.COLUMNS, rows.new_row(before), strict=True)) | dict(zip(columns, values, strict=True))
        assert updated == dict(zip(rows.COLUMNS, rows.new_row(after), strict=True))
        assert len(columns) == len(set(columns))


def make(**changes: Any) -> Operation:
    """A plain record."""
    span = timedelta(seconds=1)
    base = Operation(
        "op_1",
        "c",
        "d",
        "f",
        None,
        "t",
        "by",
        datetime(2026, 1, 1, tzinfo=UTC),
        State.OBSERVING,
        span,
        span,
        span,
        span,
    )
    return dataclasses.replace(base, **changes)


def test_nothing_changed_is_nothing_to_write() -> None:
    """A row whose record is the same must not touch an index."""
    assert rows.changes(make(), make()) == ((), ())


def test_a_poll_touches_few_columns() -> None:
    """Indexes on what a poll does not change cost nothing."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    columns, _ = rows.changes(make(), make(observed_at=at, attempts=Attempts(observe=1), next=Plan("observe", at, "x")))
    assert set(columns) == {"observed_at", "facts", "next_action_at", "next_action", "next_because"}


@pytest.mark.parametrize(
    ("column", "value"),
    [("state", "asleep"), ("facts", "{"), ("facts", '{"attempts": 3}'), ("facts", '{"mood": 1}'), ("head_hash", None)],
)
def test_a_damaged_row_is_named_and_not_guessed_at(column: str, value: object) -> None:
    """A half-read record must never reach a decision."""
    row = list(rows.new_row(make()))
    row[rows.COLUMNS.index(column)] = value
    with pytest.raises(StoreUnavailable, match=r"op_1.*audit verify"):
        rows.from_row(row)


@given(st.datetimes(timezones=st.timezones()).filter(lambda moment: 1900 < moment.year < 9999))
def test_times_are_exact_to_the_microsecond(moment: datetime) -> None:
    """Both databases hold whole microseconds; a float would lose some (F17)."""
    back = encoding.from_micros(encoding.to_micros(moment))
    assert back == moment.astimezone(UTC)
    assert back.tzinfo is UTC


def test_a_naive_time_is_refused() -> None:
    """A time without a zone means nothing across machines."""
    with pytest.raises(TypeError):
        encoding.to_micros(datetime(2026, 1, 1))  # noqa: DTZ001


@given(spans)
def test_durations_are_exact(span: timedelta) -> None:
    """Also those of many years."""
    assert encoding.span(encoding.span_micros(span)) == span
