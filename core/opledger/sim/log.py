"""What arrived at the simulator, in order: the judge of every test and of the demonstration.

Each request is written down before anything is done with it. Credentials never get in: only where they were found.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from opledger.rules.model import to_rfc3339

Entry = dict[str, Any]
_SECRET_HEADERS: Final = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key"})
_STARRED: Final = "***"


def credentials_in(headers: Sequence[tuple[str, str]], query: str, token: str) -> list[str]:
    """Where credentials were found: ``header:NAME`` or ``query:NAME``. A basic password is looked into."""
    found = [f"header:{name}" for name, value in headers if name in _SECRET_HEADERS or token in value]
    found += [f"query:{name}" for name, value in parse_qsl(query, keep_blank_values=True) if token in value]
    return found


def is_right(headers: Mapping[str, str], query: Mapping[str, str], token: str) -> bool:
    """True if the credentials prove who the client is: bearer, basic (any user), ``X-Api-Key`` or ``?api_key=``."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    match scheme.lower():
        case "bearer":
            return value == token
        case "basic":
            try:
                return b64decode(value, validate=True).decode().partition(":")[2] == token
            except ValueError:
                return False
        case _:
            return token in (headers.get("x-api-key"), query.get("api_key"))


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request as it came. Header names are lower-case."""

    kind: str
    origin: str
    method: str
    path: str
    query: str
    headers: Sequence[tuple[str, str]]
    body: bytes
    peer: str | None = None  #: the address it came from


class Log:
    """The entries, and a way to wait for one."""

    def __init__(self, token: str) -> None:
        self.entries: list[Entry] = []
        self._token = token
        self._changed: asyncio.Event | None = None

    def arrived(self, arrival: Arrival, at: datetime, flavour: str | None = None) -> Entry:
        """Write a request down and return its entry, to be completed as the request is handled."""
        entry: Entry = {
            "at": len(self.entries) + 1,
            "time": to_rfc3339(at),
            "peer": arrival.peer,
            "origin": arrival.origin,
            "kind": arrival.kind,
            "flavour": flavour,
            "method": arrival.method,
            "path": arrival.path,
            "query": self._without_secret(arrival.query),
            "headers": {name: self._shown(name, value) for name, value in arrival.headers},
            "authorization": any(name == "authorization" for name, _ in arrival.headers),
            "credentials_in": credentials_in(arrival.headers, arrival.query, self._token),
            "token": None,
            "access": None,
            "client_ref": None,
            "body_sha256": sha256(arrival.body).hexdigest(),
            "body_size": len(arrival.body),
            "personality": None,
            "variant": None,
            "job_id": None,
            "started": False,
            "effect": None,
            "fault": None,
            "held": False,
            "status": None,
        }
        self.entries.append(entry)
        self.changed()
        return entry

    def _shown(self, name: str, value: str) -> str:
        return _STARRED if name in _SECRET_HEADERS else value.replace(self._token, _STARRED)

    def _without_secret(self, query: str) -> str:
        pairs = parse_qsl(query, keep_blank_values=True)
        return urlencode([(name, value.replace(self._token, _STARRED)) for name, value in pairs])

    def after(self, number: int) -> list[Entry]:
        """The entries with a higher number."""
        return self.entries[max(0, number) :]

    def clear(self) -> None:
        """Forget all entries; numbers start again."""
        self.entries.clear()

    def changed(self) -> None:
        """Wake whoever waits."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def wait(self, count: int, match: Mapping[str, str], timeout: float) -> int:  # noqa: ASYNC109 - a plain limit
        """Wait until `count` entries have these values (compared as text), at most `timeout` seconds.

        Returns how many there are then.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        while True:
            found = sum(_matches(entry, match) for entry in self.entries)
            left = end - loop.time()
            if found >= count or left <= 0:
                return found
            self._changed = self._changed or asyncio.Event()
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except TimeoutError:
                continue


def _matches(entry: Entry, match: Mapping[str, str]) -> bool:
    return all(_as_text(entry.get(key)) == value for key, value in match.items())


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
