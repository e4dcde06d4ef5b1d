"""JSON from outside, read strictly, and JSON of our own, written in one way.

Python's own reader takes NaN, lets the last of two equal keys win, passes lone surrogates on and gives up on deep
nesting with a RecursionError. Each of these has made two programs read one text differently; here they are refused.
Integers keep all their digits (a job id of nineteen digits is not a float).
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final, NoReturn

from opledger.rules import plain

MAX_DEPTH: Final = 64
MAX_DIGITS: Final = 4300  #: Python's own limit for reading an integer

_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_STRINGS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NOT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_BOM: Final = b"\xef\xbb\xbf"


class JsonError(ValueError):
    """The bytes are not JSON that we accept. The message is one sentence, without the bytes."""


def loads(data: bytes | str, *, max_depth: int = MAX_DEPTH, max_digits: int = MAX_DIGITS) -> Any:
    """Read one JSON text (RFC 8259, and the stricter I-JSON of RFC 7493 for keys and strings).

    Integers are exact. A byte order mark before the text is skipped, as RFC 8259 §8.1 allows.

    Raises JsonError for anything that is not JSON, bytes that are not UTF-8, NaN and infinities (written out or by
    overflow), a key that stands twice in one object, a lone surrogate, nesting deeper than `max_depth` arrays and
    objects, and a number with more than `max_digits` characters.
    """
    text, raw = _texts(data)
    if raw.count(b"[") + raw.count(b"{") > max_depth and _depth(raw) > max_depth:
        raise JsonError(f"the JSON is nested deeper than {max_depth} levels")
    decode = _DECODE if len(text) <= max_digits else _decoder(max_digits)
    try:
        value = decode(text)
        if "\\u" in text and _SURROGATE.search(text):
            dumps_text(value).encode()
    except JsonError:
        raise
    except json.JSONDecodeError as error:
        raise JsonError(f"this is not JSON: {error}") from error
    except UnicodeEncodeError as error:
        raise JsonError("the JSON has half of a surrogate pair in a string") from error
    except RecursionError as error:
        raise JsonError("the JSON is nested too deeply to be read here") from error
    except ValueError as error:
        raise JsonError(f"the JSON has a number that cannot be read: {error}") from error
    return value


dumps_text: Final = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False
).encode
"""As `dumps`, but as text, and lone surrogates pass."""


def dumps(value: Any) -> bytes:
    """Write JSON: compact, keys sorted by code point, UTF-8, nothing escaped that need not be.

    The same value gives the same bytes. Raises ValueError for NaN, infinities and lone surrogates, TypeError for what
    is not JSON.
    """
    return dumps_text(value).encode()


def dumps_inert(value: Any, *, indent: int | None = None) -> str:
    r"""Write JSON for a terminal or a log: as `dumps`, but keys stay in their order, and whatever `plain.clean` would
    not let through stands as ``\u....``. Reading it back gives the value unchanged.

    Raises ValueError for NaN and infinities, TypeError for what is not JSON.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    if text.isascii() and "\x7f" not in text:  # the writer has escaped the C0 controls already
        return text
    text = text.translate(_ESCAPES)
    high = list(plain.tall(text, '\n"'))
    if not high:
        return text
    ends = [0, *(index + 1 for index in high)]
    pieces = zip(ends, [*high, len(text)], strict=True)
    return "".join(text[start:end] + (json.dumps(text[end])[1:-1] if end < len(text) else "") for start, end in pieces)


def _texts(data: bytes | str) -> tuple[str, bytes]:
    try:
        if isinstance(data, str):
            return data, data.encode()
        raw = data.removeprefix(_BOM)
        return raw.decode(), raw
    except UnicodeDecodeError as error:
        raise JsonError(f"the JSON is not UTF-8: byte {error.start} does not fit") from error
    except UnicodeEncodeError as error:
        raise JsonError("the JSON has half of a surrogate pair in it") from error


def _depth(raw: bytes) -> int:
    """Return how deep the brackets outside of strings are nested."""
    brackets = _STRINGS.sub(b"", raw).translate(_STEPS, _NOT_BRACKETS)
    return max(accumulate(memoryview(brackets).cast("b")), default=0)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise JsonError(f"the key {twice[:40]!a} stands twice in one JSON object")
    return found


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise JsonError("the JSON has a number too large for a float")
    return number


def _constant(name: str) -> NoReturn:
    raise JsonError(f"{name} is not JSON")


def _decoder(max_digits: int) -> Callable[[str], Any]:
    """Return a reader that also counts digits; needed only for texts long enough to hold too many."""

    def counted(text: str) -> str:
        if len(text) - text.startswith("-") > max_digits:
            raise JsonError(f"the JSON has a number of more than {max_digits} digits")
        return text

    return json.JSONDecoder(
        object_pairs_hook=_object,
        parse_constant=_constant,
        parse_float=lambda text: _float(counted(text)),
        parse_int=lambda text: int(counted(text)),
    ).decode


def _escaped(char: str) -> str:
    """Return a character as it may stand in JSON that is shown."""
    if char == "\n" or plain.inert(char):  # the writer leaves line feeds only between values
        return char
    return json.dumps(char)[1:-1]


_DECODE: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float).decode
_ESCAPES: Final = plain.Shapes(_escaped)
