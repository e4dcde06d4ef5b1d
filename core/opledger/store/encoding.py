"""How single values are written: times, durations, texts and JSON, so that both databases hold them exactly."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from opledger.rules.model import EPOCH, StoredResult
from opledger.rules.result_data import result_from_data, result_to_data

_DAY: Final = 86_400_000_000
_SECOND: Final = 1_000_000

LONGEST_KEY: Final = 1_000
"""Bytes of the longest text that may stand in an index; PostgreSQL refuses rows beyond about 2,700."""


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970 in UTC. Raises TypeError for a naive time."""
    since = moment - EPOCH
    return since.days * _DAY + since.seconds * _SECOND + since.microseconds


def from_micros(micros: int) -> datetime:
    """The moment that `to_micros` wrote, in UTC."""
    return EPOCH + timedelta(0, 0, micros)


def span_micros(span: timedelta) -> int:
    """A duration in whole microseconds."""
    return span.days * _DAY + span.seconds * _SECOND + span.microseconds


@lru_cache(maxsize=1024)
def span(micros: int) -> timedelta:
    """The duration that `span_micros` wrote. Cached: a contract's operations share a handful of them."""
    return timedelta(0, 0, micros)


def text(value: str | None) -> str | None:
    """Check that both databases can hold a text, and return it.

    Raises ValueError for NUL characters, which PostgreSQL cannot store, and for half surrogate pairs, which are no
    Unicode text; one such value must not fail a whole batch.
    """
    if value is None:
        return None
    if "\0" in value:
        raise ValueError("a text with a NUL character cannot be stored")
    if not value.isascii():
        value.encode()
    return value


def storable(value: str) -> bool:
    """Whether any row can hold this text; what no row can hold need not be looked for."""
    try:
        text(value)
    except ValueError:
        return False
    return True


def key(value: str | None) -> str | None:
    """As `text`, for a column with an index: the value may not be too long for one.

    Raises ValueError for what `text` refuses and for more than `LONGEST_KEY` bytes.
    """
    if value is not None and len(value) * 4 > LONGEST_KEY and len(value.encode()) > LONGEST_KEY:
        raise ValueError(f"a name of more than {LONGEST_KEY} bytes cannot be stored")
    return text(value)


_dumps = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
_raw_decode = json.JSONDecoder().raw_decode


def to_json(data: Any) -> str:
    """Compact JSON in ASCII. Raises ValueError for NaN and infinities."""
    return _dumps(data)


def from_json(written: str) -> Any:
    """The data that `to_json` wrote."""
    return _raw_decode(written)[0]


# --- frozen values as JSON objects -------------------------------------------------------------------------------

_Codec = tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]


def _codec(hint: Any) -> _Codec:
    """(encode, decode) for a field's type; None where JSON holds the value as it is."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        inner = [part for part in get_args(hint) if part is not type(None)]
        return _codec(inner[0])
    if hint is datetime:
        return to_micros, from_micros
    if hint is timedelta:
        return span_micros, span
    if hint is StoredResult:
        return result_to_data, result_from_data
    if origin is tuple:
        return _list_codec(*_codec(get_args(hint)[0]))
    if is_dataclass(hint) and isinstance(hint, type):
        return _dataclass_codec(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return str, hint
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return dict, None
    return None, None


def _list_codec(encode: Callable[[Any], Any] | None, decode: Callable[[Any], Any] | None) -> _Codec:
    if encode is None or decode is None:
        return list, tuple
    return (lambda items: [encode(item) for item in items]), (lambda items: tuple(decode(item) for item in items))


def layout_of(cls: type[Any], skip: frozenset[str] = frozenset()) -> list[tuple[str, Any, Any, Any]]:
    """(name, default, encode, decode) for every field that is not skipped."""
    hints = get_type_hints(cls)
    return [
        (f.name, f.default_factory() if f.default_factory is not MISSING else f.default, *_codec(hints[f.name]))
        for f in fields(cls)
        if f.name not in skip
    ]


def _dataclass_codec(cls: type[Any]) -> _Codec:
    layout = layout_of(cls)
    read = attrgetter(*(name for name, *_ in layout))
    decoders = decoders_of(layout)

    def encode(value: Any) -> dict[str, Any]:
        return encode_fields(layout, read(value))

    def decode(data: dict[str, Any]) -> Any:
        return cls(**decode_fields(decoders, data))

    return encode, decode


def encode_fields(layout: Sequence[tuple[str, Any, Any, Any]], values: Sequence[Any]) -> dict[str, Any]:
    """The fields that are not at their default, as JSON holds them."""
    data = {}
    for (name, default, encode, _), value in zip(layout, values, strict=True):
        if value is default or value == default:
            continue
        data[name] = value if encode is None or value is None else encode(value)
    return data


def decoders_of(layout: Sequence[tuple[str, Any, Any, Any]]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """The fields of a layout that JSON does not hold as they are, and how each is read back."""
    return tuple((name, decode) for name, _, _, decode in layout if decode is not None)


def decode_fields(decoders: Sequence[tuple[str, Callable[[Any], Any]]], data: dict[str, Any]) -> dict[str, Any]:
    """What `encode_fields` wrote, read back in place: arguments for the dataclass."""
    for name, decode in decoders:
        if name in data and data[name] is not None:
            data[name] = decode(data[name])
    return data
