"""What makes two wishes the same wish, and the token that tells a provider so (invariants I1, I2; DESIGN §3, §8).

A fingerprint is made once, by one rule that knows no locale: RFC 8785 canonical JSON, with one extension, stored, and
compared before every send. Text is not normalised: a composed and a decomposed é are different wishes, which a person
sees as a possible duplicate before approving.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring
from math import isfinite
from typing import Any, Final

import rfc8785

from opledger.rules.jsontext import MAX_DEPTH

MIN_TOKEN: Final = 16  #: with fewer characters two tokens could meet by chance
PREFIX: Final = "idem_"


def canonical(value: Any) -> bytes:
    """Return the RFC 8785 canonical JSON of `value`.

    One documented extension: integers beyond 2^53 keep their exact digits, where RFC 8785 would round them, so that
    two ids that differ in the last digit have two fingerprints. Numbers are otherwise written by value (1, 1.0 and
    1e0 are ``1``, -0 is ``0``), keys are ordered by UTF-16 code units, tuples are arrays.

    Raises ValueError for NaN, infinities, keys that are not text, lone surrogates, more than 64 levels, and types
    that JSON does not have.
    """
    parts: list[str] = []
    _write(value, parts.append, MAX_DEPTH)
    try:
        return "".join(parts).encode()
    except UnicodeEncodeError as error:
        raise ValueError("half of a surrogate pair stands in a text; it cannot be sent as JSON") from error


def _write(value: Any, put: Callable[[str], None], depth: int) -> None:
    if isinstance(value, str):
        put(encode_basestring(value))
    elif value is None:
        put("null")
    elif isinstance(value, bool):
        put("true" if value else "false")
    elif isinstance(value, int):
        put(int.__repr__(value))
    elif isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{value} is not a JSON number")
        put(rfc8785.dumps(value).decode())
    elif depth == 0:
        raise ValueError(f"the JSON is nested deeper than {MAX_DEPTH} levels")
    elif isinstance(value, Mapping):
        _write_object(value, put, depth - 1)
    elif isinstance(value, list | tuple):
        put("[")
        for index, item in enumerate(value):
            if index:
                put(",")
            _write(item, put, depth - 1)
        put("]")
    else:
        raise ValueError(f"a {type(value).__name__} is not a JSON value")


def _write_object(value: Mapping[Any, Any], put: Callable[[str], None], depth: int) -> None:
    put("{")
    for index, key in enumerate(sorted(value, key=_utf16)):
        if index:
            put(",")
        put(encode_basestring(key))
        put(":")
        _write(value[key], put, depth)
    put("}")


def _utf16(key: Any) -> bytes:
    """Return the sort key of an object key (RFC 8785 §3.2.3)."""
    if isinstance(key, str):
        return key.encode("utf-16-be", "surrogatepass")
    raise ValueError(f"the key {key!r} is not a text; JSON keys are")


def fingerprint(contract: str, method: str, url: str, asked: bytes | None) -> str:
    """Return ``sha256:`` and 64 hex digits over the canonical JSON of ``{contract, method, url, body}``.

    `asked` is the canonical JSON of what the caller asked for, before token and reference fields (`canonical`; a body
    that is not JSON enters as ``{"sha256": hex}``). None means that there is no body: the member is left out, so that
    "no body" and a JSON null differ. `url` is the one without operation id and token.
    """
    head = b"" if asked is None else b'"body":' + asked + b","
    # As `canonical` writes it; a verification makes one for every operation.
    texts = (encode_basestring(text) for text in (contract, method, url))
    tail = '"contract":{},"method":{},"url":{}}}'.format(*texts)
    return "sha256:" + hashlib.sha256(b"{" + head + tail.encode()).hexdigest()


def token_for(
    operation_id: str, fingerprint: str, *, task: str | None = None, step: str | None = None, max_length: int = 255
) -> str:
    """Return the idempotency token of an operation: the same inputs give the same token, on every machine.

    Without a task it comes from the operation id and the fingerprint; with `task` and `step` from these and the
    fingerprint, so that a step asked again is the same wish whichever operation id it carries (DESIGN §8). It is
    ``idem_`` and base32 in lower case (a-z, 2-7), 57 characters, or `max_length` where that is less; the shortest
    token allowed carries 55 bits.

    Raises ValueError for a `max_length` under 16, and for a task without a step or a step without a task.
    """
    if max_length < MIN_TOKEN:
        raise ValueError(f"a token of {max_length} characters is too short to be unique; it needs {MIN_TOKEN}")
    if (task is None) != (step is None):
        raise ValueError("a token of a task step needs both the task and the step")
    origin = ["operation", operation_id] if task is None else ["step", task, step]
    digest = hashlib.sha256(canonical(["opledger/token/1", *origin, fingerprint])).digest()
    text = PREFIX + base64.b32encode(digest).decode().rstrip("=").lower()
    return text[:max_length]
