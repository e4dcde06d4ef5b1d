from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote_plus

import pytest

from opledger.edges import addresses, tokens
from opledger.edges.http import Http
from opledger.edges.secrets import SecretResolver
from opledger.edges.tokens import FAILED_FOR, LONGEST_LIFE
from opledger.errors import ConfigWrong, SecretWrong
from opledger.rules.calls import Answer, Failure, Fate, Request
from opledger.rules.contract import Auth
from tests.core.edges.conftest import SECRET
from tests.core.edges.wire import StillClock, Talk, Wire, closed_port, reply

TOKEN = "access-Token.1234567890~abc"


def granted(token: str = TOKEN, **more: Any) -> bytes:
    """An answer that grants a token."""
    document = {"access_token": token, "token_type": "Bearer", "expires_in": 3600, **more}
    return reply(200, json.dumps({key: value for key, value in document.items() if value is not None}).encode())


class Idp:
    """A token endpoint whose answers are told one after the other; the last one stands."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.gate = asyncio.Event()
        self.gate.set()
        self.wire = Wire(self._handle)

    async def _handle(self, talk: Talk) -> bool:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        await self.gate.wait()
        await talk.send(answer)
        return b"Connection: close" in answer

    def auth(self, **changes: Any) -> Auth:
        """The client of this endpoint."""
        return client(**{"token_url": f"{self.wire.url}/token", **changes})


def client(**changes: Any) -> Auth:
    """An OAuth client."""
    values: dict[str, Any] = {"kind": "oauth2_client_credentials", "secret": "env:TOKEN", "client_id": "me"}
    return Auth(**(values | changes))


@pytest.fixture
async def api() -> AsyncIterator[Wire]:
    """The provider."""
    async with Wire(reply(200, b'{"ok":1}')) as wire:
        yield wire


@pytest.fixture
def clock() -> StillClock:
    """The clock of the edge."""
    return StillClock()


@pytest.fixture
async def edge(clock: StillClock, secrets: SecretResolver) -> AsyncIterator[Http]:
    """The edge, whose clock a test moves on."""
    made = Http(clock, secrets)
    yield made
    await made.aclose()


async def arrives(wire: Wire, count: int) -> None:
    """Wait until so many requests have come."""
    while len(wire.arrived) < count:
        wire.came.clear()
        await wire.came.wait()


def bearer(wire: Wire) -> list[str]:
    """The access tokens that came, in order."""
    return [arrived.headers["authorization"].removeprefix("Bearer ") for arrived in wire.arrived]


@pytest.mark.parametrize("effectful", [True, False])
async def test_a_token_is_fetched_when_a_call_needs_one_and_kept(edge: Http, api: Wire, effectful: bool) -> None:
    """One request of the form that RFC 6749 §4.4.2 shows, and then none for as long as the token lasts."""
    idp = Idp(granted())
    async with idp.wire:
        auth = idp.auth(scope="jobs.read jobs.write", audience="https://jobs")
        for _ in range(3):
            assert isinstance(await edge.send(api.request(effectful=effectful, auth=auth)), Answer)
        (asked,) = idp.wire.arrived
    assert (asked.method, asked.target) == ("POST", "/token")
    assert asked.headers["content-type"] == "application/x-www-form-urlencoded"
    pair = base64.b64decode(asked.headers["authorization"].removeprefix("Basic ")).decode()
    assert pair == f"me:{quote_plus(SECRET)}"
    form = {"grant_type": ["client_credentials"], "scope": ["jobs.read jobs.write"], "audience": ["https://jobs"]}
    assert parse_qs(asked.body.decode()) == form
    assert bearer(api) == [TOKEN] * 3


async def test_a_client_may_name_itself_in_the_form(edge: Http, api: Wire) -> None:
    """Some servers know no other way."""
    idp = Idp(granted())
    async with idp.wire:
        await edge.send(api.request(auth=idp.auth(client_auth="post", client_id="env:OTHER")))
        (asked,) = idp.wire.arrived
    assert "authorization" not in asked.headers
    form = parse_qs(asked.body.decode())
    assert (form["client_id"], form["client_secret"]) == (["0ther-Secret-9"], [SECRET])


async def test_all_that_wait_for_a_token_wait_for_one_fetch(edge: Http, api: Wire) -> None:
    """Also where some of them do not wait to its end; a second client has a fetch of its own."""
    idp = Idp(granted())
    async with idp.wire:
        idp.gate.clear()
        first = [asyncio.ensure_future(edge.send(api.request(auth=idp.auth()))) for _ in range(30)]
        other = asyncio.ensure_future(edge.send(api.request(auth=idp.auth(scope="more"))))
        await arrives(idp.wire, 2)
        for call in first[:10]:
            call.cancel()
        idp.gate.set()
        await asyncio.gather(*first, other, return_exceptions=True)
        assert len(idp.wire.arrived) == 2
    assert len(api.arrived) == 21
    assert set(bearer(api)) == {TOKEN}


@pytest.mark.parametrize(
    ("expires", "life"),
    [(3600, 3600), ("3600", 3600), (None, 300), (True, 300), (-1, 300), ("soon", 300), (1e300, LONGEST_LIFE)],
)
async def test_a_token_is_replaced_before_it_expires(
    edge: Http, api: Wire, clock: StillClock, expires: Any, life: float
) -> None:
    """By the margin, and while the old one is still good enough for the call that finds it so."""
    idp = Idp(granted("one", expires_in=expires), granted("two", expires_in=expires))
    async with idp.wire:
        request = api.request(auth=idp.auth())
        await edge.send(request)
        clock.passed = life - 60.5
        await edge.send(request)
        assert len(idp.wire.arrived) == 1
        clock.passed = life - 59.5
        await edge.send(request)
        await asyncio.gather(*edge._keys.tokens._fetching.values())
        await edge.send(request)
        assert len(idp.wire.arrived) == 2
    assert bearer(api) == ["one", "one", "one", "two"]


async def test_a_token_that_has_expired_is_never_sent(edge: Http, api: Wire, clock: StillClock) -> None:
    """Not where its successor cannot be had either; inside of the margin it is, and nobody waits."""
    idp = Idp(granted("one"), reply(503))
    async with idp.wire:
        request = api.request(auth=idp.auth())
        await edge.send(request)
        clock.passed = 3600 - 30
        assert isinstance(await edge.send(request), Answer)
        clock.passed = 3600 - 4
        assert isinstance(await edge.send(request), Failure)
    assert bearer(api) == ["one", "one"]


@pytest.mark.parametrize("effectful", [True, False])
@pytest.mark.parametrize(
    "answer",
    [
        reply(500),
        reply(429, b"{}", "Retry-After: 7"),
        reply(400, b'{"error":"temporarily_unavailable"}'),
        reply(200, b"<html>"),
        reply(200, b"[]"),
        reply(200, b"{}"),
        granted(token=""),
        granted(token="two words"),
        granted(token="line\r\nX-Evil: 1"),
        granted(token="x" * 20000),
        granted(token="a" * 70000),
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nConnection: close\r\n\r\n{",
        b"rubbish\r\n\r\n",
    ],
)
async def test_without_a_token_nothing_was_sent(edge: Http, api: Wire, answer: bytes, effectful: bool) -> None:
    """Whatever the token endpoint does wrong, a create that waited for it did provably not leave."""
    idp = Idp(answer)
    async with idp.wire:
        outcome = await edge.send(api.request(effectful=effectful, auth=idp.auth()))
        again = await edge.send(api.request(effectful=effectful, auth=idp.auth()))
        assert len(idp.wire.arrived) == 1  # the second call does not ask again at once
    assert isinstance(outcome, Failure) and isinstance(again, Failure)
    assert (outcome.fate, again.fate) == (Fate.NOT_DELIVERED, Fate.NOT_DELIVERED)
    assert outcome.why.startswith("no access token: ")
    assert api.connections == 0


async def test_a_token_endpoint_that_is_away_or_silent(edge: Http, api: Wire, clock: StillClock) -> None:
    """The call's own time bounds the wait; a failed fetch is tried again a little later."""
    async with closed_port() as nowhere:
        gone = await edge.send(api.request(auth=client(token_url=nowhere)))
    assert isinstance(gone, Failure) and gone.fate is Fate.NOT_DELIVERED
    idp = Idp(granted())
    async with idp.wire:
        idp.gate.clear()
        late = await edge.send(api.request(effectful=True, auth=idp.auth(), timeout=timedelta(milliseconds=200)))
        assert isinstance(late, Failure) and late.fate is Fate.NOT_DELIVERED
        idp.gate.set()
        assert isinstance(await edge.send(api.request(auth=idp.auth())), Answer)
    mended = Idp(reply(502), granted())
    async with mended.wire:
        assert isinstance(await edge.send(api.request(auth=mended.auth())), Failure)
        clock.passed += FAILED_FOR
        assert isinstance(await edge.send(api.request(auth=mended.auth())), Answer)


@pytest.mark.parametrize("seconds", [7, 1000])
async def test_a_token_endpoint_may_ask_for_patience(edge: Http, api: Wire, clock: StillClock, seconds: int) -> None:
    """For a minute at most."""
    idp = Idp(reply(429, b"{}", f"Retry-After: {seconds}"), granted())
    async with idp.wire:
        await edge.send(api.request(auth=idp.auth()))
        clock.passed = min(seconds, 60) - 0.1
        assert isinstance(await edge.send(api.request(auth=idp.auth())), Failure)
        clock.passed = min(seconds, 60)
        assert isinstance(await edge.send(api.request(auth=idp.auth())), Answer)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (reply(401, b'{"error":"invalid_client"}'), "status 401, invalid_client"),
        (reply(400, b'{"error":"invalid_scope"}'), "status 400, invalid_scope"),
        (reply(400, json.dumps({"error": SECRET, "error_description": SECRET}).encode()), "(status 400);"),
        (reply(403, b"<html>"), "(status 403);"),
        (reply(302, b"", "Location: http://127.0.0.1:1/steal"), "redirects (status 302)"),
        (reply(307, b"", "Location: http://127.0.0.1:1/steal"), "redirects (status 307)"),
        (granted(token_type="mac"), "another type than Bearer"),
    ],
)
async def test_a_client_that_is_refused_is_somebodys_to_mend(edge: Http, api: Wire, answer: bytes, says: str) -> None:
    """It is no trouble that passes; and what the answer says beside a known code is not repeated."""
    idp = Idp(answer)
    async with idp.wire:
        with pytest.raises(ConfigWrong) as caught:
            await edge.send(api.request(effectful=True, auth=idp.auth()))
        assert len(idp.wire.arrived) == 1
    assert says in caught.value.message
    assert not isinstance(caught.value, SecretWrong)
    assert SECRET not in caught.value.message
    assert api.connections == 0


async def test_a_rotated_client_secret_is_read_again_before_anybody_is_called(
    edge: Http, api: Wire, tmp_path: Path
) -> None:
    """The worker still knew the old one."""
    place = tmp_path / "secret"
    place.write_text("old-Secret-1")
    place.chmod(0o600)
    old = base64.b64encode(b"me:old-Secret-1").decode()

    async def answers(talk: Talk) -> None:
        refused = talk.request.headers["authorization"] == f"Basic {old}"
        await talk.send(reply(401, b'{"error":"invalid_client"}') if refused else granted())

    async with Wire(answers) as idp:
        auth = Auth("oauth2_client_credentials", f"file:{place}", client_id="me", token_url=idp.url)
        with pytest.raises(ConfigWrong):
            await edge.send(api.request(auth=auth))
        place.write_text("new-Secret-2")
        assert isinstance(await edge.send(api.request(auth=auth)), Answer)
        # Refused at first; not rotated, refused; then rotated: read from the cache, refused, read again, taken.
        assert len(idp.arrived) == 3


async def test_a_missing_client_secret_is_missing_here(edge: Http, api: Wire) -> None:
    """Another worker may have it."""
    with pytest.raises(SecretWrong, match="env:NOWHERE"):
        await edge.send(api.request(auth=client(secret="env:NOWHERE", token_url="http://127.0.0.1:1")))


@pytest.mark.parametrize("effectful", [True, False])
async def test_a_refused_token_is_dropped_and_the_next_call_takes_another(edge: Http, effectful: bool) -> None:
    """Never in the same call: what was sent stays sent once. A fresh token that is refused is no old one."""
    live = {"one"}

    async def answers(talk: Talk) -> None:
        right = talk.request.headers["authorization"].removeprefix("Bearer ") in live
        await talk.send(reply(200 if right else 401, close=effectful))
        if effectful:
            await talk.writer.drain()

    idp = Idp(granted("one"), granted("two"), granted("three"))
    async with idp.wire, Wire(answers) as api:
        request = api.request(effectful=effectful, auth=idp.auth())

        async def call() -> tuple[int, bool]:
            outcome = await edge.send(request)
            assert isinstance(outcome, Answer)
            return outcome.status, outcome.renewed

        assert await call() == (200, False)
        live.clear()
        assert await call() == (401, True)
        assert len(idp.wire.arrived) == 1
        assert await call() == (401, False)  # with the second, which was made for it
        live.add("two")
        assert await call() == (200, False)  # it is kept: nothing else would help
        assert bearer(api) == ["one", "one", "two", "two"]


async def test_many_that_are_refused_at_once_fetch_one_token(edge: Http) -> None:
    """An answer that comes late does not drop the token that has replaced the one it speaks of."""
    live = {"one"}
    slow = asyncio.Event()

    async def answers(talk: Talk) -> None:
        token = talk.request.headers["authorization"].removeprefix("Bearer ")
        if talk.request.target == "/slow":
            await slow.wait()
        await talk.send(reply(200 if token in live else 401))

    idp = Idp(granted("one"), granted("two"), granted("three"))
    async with idp.wire, Wire(answers) as api:
        auth = idp.auth()
        await edge.send(api.request(auth=auth))
        live.clear()
        live.add("two")
        late = asyncio.ensure_future(edge.send(api.request("/slow", auth=auth)))
        await arrives(api, 2)
        refused = await asyncio.gather(*(edge.send(api.request(auth=auth)) for _ in range(20)))
        assert all(isinstance(one, Answer) and one.renewed for one in refused)
        fresh = await asyncio.gather(*(edge.send(api.request(auth=auth)) for _ in range(20)))
        assert {one.status for one in fresh if isinstance(one, Answer)} == {200}
        slow.set()
        outcome = await late
        assert isinstance(outcome, Answer) and outcome.renewed
        await edge.send(api.request(auth=auth))
        assert len(idp.wire.arrived) == 2


async def test_a_token_goes_to_the_contracts_own_origin_only(edge: Http, api: Wire) -> None:
    """Another host does not even make us fetch one; and no token is shared with another contract's origin."""
    idp = Idp(granted("one"), granted("two"))
    async with idp.wire, Wire(reply(200)) as other:
        await edge.send(other.request(auth=idp.auth(), origin=api.origin))
        assert idp.wire.arrived == [] and "authorization" not in other.arrived[0].headers
        await edge.send(api.request(auth=idp.auth()))
        await edge.send(other.request(auth=idp.auth()))
    assert bearer(api) == ["one"]
    assert other.arrived[1].headers["authorization"] == "Bearer two"


async def test_a_secret_is_not_led_into_a_private_network(
    edge: Http, api: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the provider is outside, so is its token endpoint; the address counts, not the name."""

    async def outside(host: str, port: int) -> frozenset[addresses.Kind]:
        return addresses.PUBLIC

    monkeypatch.setattr(addresses, "kinds", outside)
    idp = Idp(granted())
    async with idp.wire:
        for host in ("127.0.0.1", "localhost"):
            url = idp.wire.url.replace("127.0.0.1", host)
            outcome = await edge.send(api.request(effectful=True, auth=idp.auth(token_url=url)))
            assert isinstance(outcome, Failure) and "private address" in outcome.why
            assert outcome.fate is Fate.NOT_DELIVERED
        assert idp.wire.connections == 0


async def test_a_token_is_a_secret_from_then_on(
    edge: Http, secrets: SecretResolver, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer that repeats it is scrubbed; and the endpoint may give the same one again, which still works."""

    async def echo(talk: Talk) -> None:
        told = talk.request.headers["authorization"]
        await talk.send(reply(200, json.dumps({"you": told, "raw": base64.b64encode(told.encode()).decode()}).encode()))

    caplog.set_level(logging.DEBUG)
    idp = Idp(granted(refresh_token="refresh-Token-77", id_token="id-Token-88"))
    async with idp.wire, Wire(echo) as api:
        for scope in ("a", "b"):
            outcome = await edge.send(api.request(auth=idp.auth(scope=scope)))
            assert isinstance(outcome, Answer)
            assert TOKEN.encode() not in outcome.body
            assert base64.b64encode(TOKEN.encode())[4:-6] not in outcome.body
        assert bearer(api) == [TOKEN, TOKEN]
    assert {TOKEN, "refresh-Token-77", "id-Token-88", SECRET, quote_plus(SECRET)} <= set(secrets.known())
    for secret in (TOKEN, SECRET, quote_plus(SECRET), "refresh-Token-77"):
        assert secret not in caplog.text
    assert TOKEN not in repr(edge._keys.tokens._held)


async def test_of_tokens_the_latest_stay_known(
    edge: Http, api: Wire, clock: StillClock, secrets: SecretResolver
) -> None:
    """A token is replaced every few minutes, for months."""
    idp = Idp(*(granted(f"Token-number-{index}", expires_in=60) for index in range(30)))
    async with idp.wire:
        for step in range(30):
            clock.passed = step * 60.0
            await edge.send(api.request(auth=idp.auth()))
    known = set(secrets.known())
    assert {"Token-number-29", "Token-number-28", SECRET} <= known
    assert "Token-number-3" not in known
    assert len(known) < 12


@pytest.mark.parametrize("kind", ["bearer", "header", "basic", "query"])
async def test_a_rotated_secret_is_read_again_after_a_401(
    edge: Http, tmp_path: Path, kind: Any, clock: StillClock
) -> None:
    """A worker that still knows the old one tells that there is another; where there is none, it says so."""
    place = tmp_path / "secret"
    place.write_text("old-Secret-1")
    place.chmod(0o600)
    auth = Auth(kind, f"file:{place}", name="x-key")
    async with Wire(reply(401)) as api:

        async def call() -> bool:
            outcome = await edge.send(api.request(auth=auth))
            assert isinstance(outcome, Answer)
            return outcome.renewed

        assert not await call()  # read for this call
        assert not await call()  # kept, read again, and still the same
        place.write_text("new-Secret-2")
        assert await call()  # the old one was sent, and there is another
        assert not await call()
        last = api.arrived[-1]
        assert "new-Secret-2" in last.raw.decode() or base64.b64encode(b"new-Secret-2:") in last.raw
        place.unlink()
        assert not await call()  # it cannot be had any more: that is for a person


async def test_a_command_that_prints_something_else_each_time_is_given_up(edge: Http, tmp_path: Path) -> None:
    """What was read for this very call and was refused is not read again, else nobody would ever be told."""
    counter = tmp_path / "count"
    counter.write_text("")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho x >> {counter}\nwc -l < {counter} | tr -d ' ' | sed 's/^/secret-/'\n")
    program.chmod(0o700)
    async with Wire(reply(401)) as api:
        outcome = await edge.send(api.request(auth=Auth("bearer", f"command:{program}")))
        assert isinstance(outcome, Answer) and not outcome.renewed
    assert len(counter.read_text().split()) == 1


async def test_a_slow_rotation_does_not_cost_the_answer(
    edge: Http, secrets: SecretResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call ends in time, with the answer that it got."""
    gate = asyncio.Event()
    async with Wire(reply(401)) as api:
        request = api.request(effectful=True, auth=Auth("bearer", "env:TOKEN"), timeout=timedelta(seconds=1))
        await edge.send(request)
        kept: Callable[..., Any] = edge._keys.changed

        async def never(*_: Any) -> bool:
            await gate.wait()
            return bool(await kept(*_))

        monkeypatch.setattr(edge._keys, "changed", never)
        outcome = await edge.send(request)
        assert isinstance(outcome, Answer) and outcome.status == 401 and not outcome.renewed


async def test_closing_stops_a_fetch(clock: StillClock, secrets: SecretResolver, api: Wire) -> None:
    """A worker that ends leaves nothing behind."""
    edge, idp = Http(clock, secrets), Idp(granted())
    async with idp.wire:
        idp.gate.clear()
        call = asyncio.ensure_future(edge.send(api.request(auth=idp.auth())))
        await arrives(idp.wire, 1)
        await edge.aclose()
        with pytest.raises(asyncio.CancelledError):
            await call


def test_a_token_request_is_small() -> None:
    """A token endpoint is somebody else's server, too."""
    assert tokens.MAX_TOKEN_ANSWER <= 64 * 1024
    assert timedelta(seconds=30) >= tokens.TIMEOUT
    assert Request("GET", "https://a.example").auth == Auth()
