"""Converters from raw TOML values to what contracts are made of. Each raises ValueError with a message for the key."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from opledger.rules.contract import is_reference
from opledger.rules.durations import parse_duration, parse_rate, parse_size
from opledger.rules.files.reader import Unfit, kind_of, nearest
from opledger.rules.values import Condition, Pick

M = TypeVar("M", timedelta, int, float)

ANSWER_NAMES: Final = frozenset({"status", "headers", "body", "operation"})
"""What a condition over an answer may speak of."""
ITEM_NAMES: Final = frozenset({"item", "operation"})
"""What the match of a list look-up may speak of."""

_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::[0-9]{1,5})?")
_MEDIA_TYPE: Final = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+*-]+")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""Hosts on this machine, as they are written in a contract."""


def text(raw: Any) -> str:
    """A text that says something: not empty, without control characters."""
    if not isinstance(raw, str):
        raise Unfit(f"must be a text in quotes, not {kind_of(raw)}")
    if not raw.strip():
        raise Unfit("must not be empty")
    if _CONTROL.search(raw):
        raise Unfit("must not have line breaks or other control characters in it")
    return raw


def prose(raw: Any) -> str:
    """A text for people; it may have line breaks, which are read as spaces."""
    if not isinstance(raw, str):
        raise Unfit(f"must be a text in quotes, not {kind_of(raw)}")
    return text(" ".join(raw.split()))


def flag(raw: Any) -> bool:
    """True or false."""
    if not isinstance(raw, bool):
        raise Unfit(f"must be true or false, not {kind_of(raw)}")
    return raw


def integer(low: int, high: int) -> Callable[[Any], int]:
    """A whole number within bounds."""

    def convert(raw: Any) -> int:
        if not isinstance(raw, int) or isinstance(raw, bool):
            raise Unfit(f"must be a whole number, not {kind_of(raw)}")
        if not low <= raw <= high:
            raise Unfit(f"must be between {low} and {high}")
        return raw

    return convert


def number(low: float, high: float) -> Callable[[Any], float]:
    """A number within bounds."""

    def convert(raw: Any) -> float:
        if not isinstance(raw, int | float) or isinstance(raw, bool):
            raise Unfit(f"must be a number, not {kind_of(raw)}")
        if math.isnan(raw) or not low <= raw <= high:
            raise Unfit(f"must be between {low:g} and {high:g}")
        return float(raw)

    return convert


def one_of(*words: str) -> Callable[[Any], str]:
    """One word of a closed list."""

    def convert(raw: Any) -> str:
        if not isinstance(raw, str):
            raise Unfit(f"must be one of {', '.join(words)}, not {kind_of(raw)}")
        if raw not in words:
            raise Unfit(f"must be one of {', '.join(words)}{nearest(raw, list(words))}")
        return raw

    return convert


def day(raw: Any) -> date:
    """A date without a time."""
    if not isinstance(raw, date) or isinstance(raw, datetime):
        raise Unfit(f"must be a date such as 2026-11-29, without quotes, not {kind_of(raw)}")
    return raw


def _measure(raw: Any, parse: Callable[[str], M], example: str) -> M:
    if not isinstance(raw, str):
        raise Unfit(f'must be a text such as "{example}", not {kind_of(raw)}')
    return parse(raw)


def span(raw: Any) -> timedelta:
    """A duration; zero is allowed."""
    return _measure(raw, parse_duration, "30s")


def duration(raw: Any) -> timedelta:
    """A duration above zero."""
    found = span(raw)
    if not found:
        raise Unfit("must be longer than nothing")
    return found


def size(raw: Any) -> int:
    """A number of bytes above zero."""
    found = _measure(raw, parse_size, "2GiB")
    if found < 1:
        raise Unfit("must be at least one byte")
    return found


def rate(raw: Any) -> float:
    """Calls a second, above zero."""
    return _measure(raw, parse_rate, "50/s")


def pick(raw: Any) -> Pick:
    """A JSON Pointer, ``header:NAME`` or ``header:NAME|regex``."""
    if not isinstance(raw, str):
        raise Unfit(f"must be a JSON Pointer or header:NAME in quotes, not {kind_of(raw)}")
    return Pick.parse(raw)


def pointer(raw: Any) -> Pick:
    """A JSON Pointer."""
    found = pick(raw)
    if found.pointer is None:
        raise Unfit("must be a JSON Pointer; a header cannot be used here")
    return found


def field_pointer(raw: Any) -> str:
    """A JSON Pointer to a field of our own body, not to the body as a whole."""
    if not pointer(raw).pointer:
        raise Unfit("must name a field; the whole body cannot be replaced")
    return str(raw)


def condition(names: frozenset[str]) -> Callable[[Any], Condition]:
    """A CEL expression over these names."""

    def convert(raw: Any) -> Condition:
        if not isinstance(raw, str):
            raise Unfit(f"must be a CEL condition in quotes, not {kind_of(raw)}")
        return Condition.parse(raw, names)

    return convert


over_answer: Final = condition(ANSWER_NAMES)
"""A condition over an answer."""


def status_code(low: int, high: int) -> Callable[[Any], int]:
    """An HTTP status code within bounds."""
    return integer(low, high)


def header_name(raw: Any) -> str:
    """The name of an HTTP header (RFC 9110 §5.6.2)."""
    if not isinstance(raw, str):
        raise Unfit(f"must be a header name in quotes, not {kind_of(raw)}")
    if not _HEADER.fullmatch(raw):
        raise Unfit(f"{raw!r} is not a header name")
    return raw


def host(raw: Any) -> str:
    """``host`` or ``host:port``, in small letters."""
    found = text(raw)
    if not _HOST.fullmatch(found):
        raise Unfit('must be "host" or "host:port", without scheme, path or wildcard')
    return found.lower()


def media_type(raw: Any) -> str:
    """A media type such as ``text/csv``, in small letters and without parameters."""
    found = text(raw)
    if not _MEDIA_TYPE.fullmatch(found):
        raise Unfit(f'{found!r} is not a media type such as "text/csv"')
    return found.lower()


def name(raw: Any) -> str:
    """A name for variables, secrets and captured values: letters, digits, ``_`` and ``-``."""
    if not isinstance(raw, str) or not _NAME.fullmatch(raw):
        raise Unfit("must be a name of letters, digits, _ and -")
    return raw


def secret(raw: Any) -> str:
    """A reference to a secret. The message never shows what stood there: it may be the secret itself."""
    if not isinstance(raw, str) or not is_reference(raw) or _CONTROL.search(raw):
        raise Unfit(
            "must say where the secret is (env:NAME, file:PATH, keyring:service/user or command:…), "
            "never the secret itself"
        )
    return raw


def client_id(raw: Any) -> str:
    """The name of an OAuth client, or a reference to it."""
    return secret(raw) if isinstance(raw, str) and is_reference(raw) else text(raw)


def scope_word(raw: Any) -> str:
    """One or more scopes, with blanks between them (RFC 6749 §3.3)."""
    found = text(raw)
    if not re.fullmatch(r"[!#-\[\]-~]+(?: [!#-\[\]-~]+)*", found):
        raise Unfit("must be plain ASCII words with one blank between two of them, without quotes and backslashes")
    return found


def token_url(raw: Any) -> str:
    """Where access tokens come from: https, or http on this machine. It may have a query (RFC 6749 §3.2)."""
    found = _absolute(raw)
    parts = urlsplit(found)
    if parts.scheme != "https" and parts.hostname not in LOOPBACK:
        raise Unfit("must be https: the client's secret goes there (plain http only to this machine)")
    return found


def base_url(raw: Any) -> str:
    """An absolute http or https URL without credentials, query or fragment; a trailing slash is dropped."""
    found = _absolute(raw)
    if "?" in found:
        raise Unfit("must not have a query (?); use query = { … } with each call")
    return found.rstrip("/")


def _absolute(raw: Any) -> str:
    """An absolute http or https URL without credentials or fragment."""
    found = text(raw)
    try:
        parts = urlsplit(found)
        port = parts.port
    except ValueError as error:
        raise Unfit("is not a URL: host or port cannot be read") from error
    if parts.scheme not in ("http", "https"):
        raise Unfit("must start with http:// or https://")
    if "@" in parts.netloc:
        raise Unfit("must not have credentials in it; they belong in [auth], as a reference")
    if not parts.hostname or port == 0 or not _HOST.fullmatch(parts.netloc):
        raise Unfit("must name a host, in plain ASCII, with a port at most")
    if "#" in found:
        raise Unfit("must not have a fragment (#)")
    if not re.fullmatch(r"[!-~]*", found):
        raise Unfit("must be plain ASCII without spaces; percent-encode the rest")
    return found
