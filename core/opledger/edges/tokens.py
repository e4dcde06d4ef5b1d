"""Access tokens of OAuth clients (RFC 6749 §4.4): fetched when a call needs one, kept in memory, replaced in time.

Nothing of a token endpoint's answer leaves this module but the token, and the error code where it is a known one.
"""

from __future__ import annotations

import asyncio
import base64
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol
from urllib.parse import quote_plus, urlencode

from opledger.edges.clock import Clock
from opledger.edges.failures import NotSent
from opledger.errors import ConfigWrong, SecretWrong
from opledger.rules import jsontext, schedule
from opledger.rules.calls import Answer, Failure, Request, origin_of
from opledger.rules.contract import Auth

TIMEOUT: Final = timedelta(seconds=20)
MAX_TOKEN_ANSWER: Final = 64 * 1024
LONGEST_LIFE: Final = 30 * 86400.0
"""Seconds after which a token is replaced, however long it says that it lasts."""
SPARE: Final = 5.0
"""Seconds that a token must last at least when a call takes it."""
FAILED_FOR: Final = 2.0
"""Seconds for which a fetch that failed stands for those that want the same: hundreds of calls make no storm."""
FAILED_LONGEST: Final = 60.0
"""Most seconds that a token endpoint may ask us to wait."""

Ask = Callable[[Request, str], Awaitable[Answer | Failure]]
"""Sends a token request; the text is the contract's own origin."""

_TOKEN: Final = re.compile(r"[!-~]{1,16384}")
_SAID: Final = frozenset(
    {"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type"}
    | {"invalid_scope", "invalid_target", "access_denied", "server_error", "temporarily_unavailable", "slow_down"}
)
"""Error codes that are told (RFC 6749 §5.2 and its kin). Any other text of the answer may hold our own secret."""
_PASSING: Final = frozenset({"server_error", "temporarily_unavailable", "slow_down"})


class Secrets(Protocol):
    """What this needs of `Keys`."""

    async def secret(self, reference: str) -> tuple[str, int]:
        """Return a secret and its number. Raises SecretWrong."""

    async def changed(self, reference: str, value: str, times: int) -> bool:
        """Tell whether a secret has another value now."""

    def learn(self, source: tuple[object, ...], *values: str) -> None:
        """Know values that are to be masked."""


@dataclass(frozen=True, slots=True, repr=False)
class Token:
    """One access token. Times are monotonic seconds; `number` counts all tokens of one `Tokens`."""

    value: str
    number: int
    renew_at: float
    ends: float
    source: tuple[Auth, str]


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Why there is no token: `passing` trouble may be over soon, else somebody must mend something."""

    why: str
    passing: bool = False
    here: bool = False  #: a secret is missing on this machine
    wait: float = FAILED_FOR
    client: bool = False  #: the endpoint refuses what we say of ourselves


class Tokens:
    """The tokens of one event loop, by client and contract origin."""

    def __init__(self, clock: Clock, secrets: Secrets, ask: Ask) -> None:
        self._clock = clock
        self._secrets = secrets
        self._ask = ask
        self._held: dict[tuple[Auth, str], Token] = {}
        self._fetching: dict[tuple[Auth, str], asyncio.Task[Token | _Trouble]] = {}
        self._failed: dict[tuple[Auth, str], tuple[float, _Trouble]] = {}
        self.number = 0  #: of the token that was fetched last

    async def aclose(self) -> None:
        """Stop what is being fetched, and forget all tokens."""
        fetching = list(self._fetching.values())
        for task in fetching:
            task.cancel()
        await asyncio.gather(*fetching, return_exceptions=True)
        self._held.clear()

    async def get(self, auth: Auth, origin: str) -> Token:
        """Return a token that lasts, fetched if need be; all that wait for one wait for the same fetch.

        Inside of its margin a token is still used, while the next one is fetched: nobody waits, and a token endpoint
        that is away for a moment is not noticed. Raises ConfigWrong where the client is refused or the contract must be
        mended, SecretWrong where a secret is missing here, and NotSent where no token can be had at the moment.
        """
        source = auth, origin
        held, now = self._held.get(source), self._clock.monotonic()
        if held is not None and now < held.renew_at:
            return held
        until, trouble = self._failed.get(source, (-math.inf, None))
        fetch = self._fetching.get(source)
        if fetch is None and now >= until:
            fetch = self._begin(source)
        if held is not None and now < held.ends:
            return held
        found = trouble if fetch is None else await asyncio.shield(fetch)
        if isinstance(found, Token):
            return found
        assert found is not None
        if found.passing:
            raise NotSent(found.why)
        raise (SecretWrong if found.here else ConfigWrong)(found.why)

    def drop(self, token: Token) -> None:
        """Use a token no more: it was refused."""
        if self._held.get(token.source) is token:
            del self._held[token.source]

    def _begin(self, source: tuple[Auth, str]) -> asyncio.Task[Token | _Trouble]:
        task = self._fetching[source] = asyncio.create_task(self._fetch(source), name="access token")
        task.add_done_callback(lambda _: self._fetching.pop(source, None))
        return task

    async def _fetch(self, source: tuple[Auth, str]) -> Token | _Trouble:
        """Fetch one token; where the client is refused, once more if its secret was rotated meanwhile."""
        found, taken = await self._once(source)
        if isinstance(found, _Trouble) and found.client:
            changed = [await self._secrets.changed(reference, *used) for reference, used in taken.items()]
            if any(changed):
                found, _ = await self._once(source)
        if isinstance(found, Token):
            self._held[source] = found
            self._failed.pop(source, None)
        elif found.passing:
            self._failed[source] = (self._clock.monotonic() + found.wait, found)
        return found

    async def _once(self, source: tuple[Auth, str]) -> tuple[Token | _Trouble, dict[str, tuple[str, int]]]:
        auth, origin = source
        taken: dict[str, tuple[str, int]] = {}
        try:
            for reference in auth.references:
                taken[reference] = await self._secrets.secret(reference)
            request = self._request(auth, {reference: value for reference, (value, _) in taken.items()})
        except ConfigWrong as wrong:
            return _Trouble(wrong.message, here=isinstance(wrong, SecretWrong)), taken
        asked = self._clock.monotonic()
        outcome = await self._ask(request, origin)
        if isinstance(outcome, Failure):
            return _Trouble(f"no access token: {outcome.why}", passing=True), taken
        return self._read(outcome, source, asked), taken

    def _request(self, auth: Auth, values: Mapping[str, str]) -> Request:
        """Make the token request. Only this one has the client's secret in it. Raises ConfigWrong."""
        if auth.token_url is None or auth.client_id is None or auth.secret is None:
            raise ConfigWrong("the OAuth client needs token_url, client_id and secret; correct the contract")
        client, secret = values.get(auth.client_id, auth.client_id), values[auth.secret]
        form = {"grant_type": "client_credentials"}
        form |= {"scope": auth.scope} if auth.scope is not None else {}
        form |= {"audience": auth.audience} if auth.audience is not None else {}
        headers = [("Content-Type", "application/x-www-form-urlencoded"), ("Accept", "application/json")]
        if auth.client_auth == "basic":
            # Each half is form-encoded first (RFC 6749 §2.3.1), and so a form of the secret that nobody else knows.
            pair = f"{quote_plus(client)}:{quote_plus(secret)}"
            self._secrets.learn(("client", auth), quote_plus(secret), pair)
            headers.append(("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"))
        else:
            form |= {"client_id": client, "client_secret": secret}
        return Request(
            method="POST",
            url=auth.token_url,
            headers=tuple(headers),
            body=urlencode(form).encode(),
            origin=origin_of(auth.token_url),
            timeout=TIMEOUT,
            max_bytes=MAX_TOKEN_ANSWER,
        )

    def _read(self, answer: Answer, source: tuple[Auth, str], asked: float) -> Token | _Trouble:
        try:
            document = jsontext.loads(answer.body)
        except jsontext.JsonError:
            document = None
        said: Mapping[str, Any] = document if isinstance(document, Mapping) else {}
        self._secrets.learn(
            source, *(said[key] for key in ("refresh_token", "id_token", "access_token") if _is_text(said.get(key)))
        )
        if answer.status != 200:
            return _refusal(answer, said)
        value, kind = said.get("access_token"), said.get("token_type", "Bearer")
        if not isinstance(value, str) or not _TOKEN.fullmatch(value):
            return _Trouble("no access token: the token endpoint's answer has none that can be used", passing=True)
        if not isinstance(kind, str) or kind.lower() != "bearer":
            return _Trouble("the token endpoint gives tokens of another type than Bearer, which cannot be used")
        auth = source[0]
        life = _life(said.get("expires_in"), auth.lifetime.total_seconds())
        # Counted from before it was asked for. One that lasts hardly longer than the margin is used for half its life.
        margin, spare = min(auth.margin.total_seconds(), life / 2), min(SPARE, life / 10)
        self.number += 1
        return Token(value, self.number, asked + life - max(margin, spare), asked + life - spare, source)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _life(raw: Any, default: float) -> float:
    """Read ``expires_in``: seconds, as a number, or as the text of one that some servers send."""
    found = schedule.seconds(raw)
    return default if found is None else min(found.total_seconds(), LONGEST_LIFE)


def _refusal(answer: Answer, said: Mapping[str, Any]) -> _Trouble:
    """Read an answer that brings no token: whose fault, and whether it may be over soon."""
    code, status = said.get("error"), answer.status
    word = f", {code}" if isinstance(code, str) and code in _SAID else ""
    if 300 <= status < 400:
        return _Trouble(f"the token endpoint redirects (status {status}), which is not followed; correct token_url")
    if 400 <= status < 500 and status not in (408, 425, 429) and code not in _PASSING:
        why = f"the token endpoint refused our client (status {status}{word}); check client_id, secret and scope"
        return _Trouble(why, client=True)
    wait = schedule.retry_after(answer.headers.get("retry-after", ""), answer.answered_at, answer.headers.get("date"))
    seconds = FAILED_FOR if wait is None else min(max(wait.total_seconds(), FAILED_FOR), FAILED_LONGEST)
    return _Trouble(f"no access token: the token endpoint answered with status {status}{word}", True, wait=seconds)
