"""Plain requests and answers: what rules and the HTTP edge hand each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from opledger.rules.contract import Auth

MAX_ANSWER: Final = 1024 * 1024
"""Most bytes of an answer (wire and unpacked) that is read into memory."""


class Fate(StrEnum):
    """What is known about a request that got no usable answer."""

    NOT_DELIVERED = "not_delivered"  #: provably no byte was accepted: DNS, refused connection, TLS failure
    LOST = "lost"  #: bytes may have arrived: timeout, reset, cut or oversized answer


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request without credentials. `auth` is resolved and added by the edge, last, and only if
    `origin` (scheme, host and port of the contract's base URL) is the URL's own origin.

    `auth_origin` names another origin that `auth` is for, and then it goes to that one only: a result may lie on a host
    that wants credentials of its own. `secrets` maps names to references for ``{secret.NAME}`` in header values,
    and in those fields of the body that `secret_fields` points to: nowhere else, since a body says what its author
    likes.
    `effectful` requests are never repeated by any transport.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    auth: Auth = Auth()
    origin: str = ""
    auth_origin: str | None = None
    secrets: Mapping[str, str] | None = None
    secret_fields: tuple[str, ...] = ()
    timeout: timedelta = timedelta(seconds=30)
    max_bytes: int = MAX_ANSWER
    effectful: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer, read whole. `headers` has lower-case names; repeated ones are joined by ", "."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    answered_at: datetime
    url: str = ""
    renewed: bool = False
    """It refused our credentials, and the edge has others by now: what asks again is not refused for the same ones."""


@dataclass(frozen=True, slots=True)
class Failure:
    """No usable answer: what is known about the request's fate, and why, in words without secrets."""

    fate: Fate
    why: str
    status: int | None = None  #: where a status line arrived before the answer broke
    too_large: bool = False  #: it was larger than `Request.max_bytes`, on the wire or unpacked


@dataclass(frozen=True, slots=True)
class Download:
    """A streamed 2xx answer, stored under a temporary name and hashed while it came.

    `path` is the temporary file; the caller moves or removes it.
    """

    status: int
    headers: Mapping[str, str]
    path: str
    size: int
    answered_at: datetime


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL in one comparable form, e.g. ``https://api.example.com:443``.

    Raises ValueError for anything that is not an absolute http or https URL without credentials in it.
    """
    if url.startswith(("https://", "http://")):
        end = url.find("/", len("https://"))  # all that says where it leads stands before
        return _origin(url if end < 0 else url[:end])
    return _origin(url)


@lru_cache(maxsize=256)  # a worker asks this several times for each call, and always of the same few hosts
def _origin(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not an absolute http or https URL")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL with credentials in it is not used")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname  # IPv6, so that it can be read again
    return f"{parts.scheme}://{host.lower()}:{port}"
