"""What goes out, what comes back, and what stays inside: the HTTP edge over real sockets."""

from __future__ import annotations

import asyncio
import base64
import gzip
import logging
import zlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from opledger import __version__
from opledger.edges.http import Http
from opledger.edges.secrets import SecretResolver
from opledger.errors import ConfigWrong, StoreUnavailable
from opledger.rules.calls import Answer, Download, Failure, Fate, Request
from opledger.rules.contract import Auth
from tests.core.edges.conftest import SECRET
from tests.core.edges.wire import NOON, SHORT, StillClock, Talk, Wire, reply

BEARER = Auth("bearer", "env:TOKEN")
BOTH = pytest.mark.parametrize("effectful", [False, True])


def ignore(_: bytes) -> None:
    """Check nothing."""


def left(folder: Path) -> list[tuple[str, bytes, int]]:
    """Every file in a folder: path, content, mode."""
    return [(str(path), path.read_bytes(), path.stat().st_mode & 0o777) for path in folder.iterdir()]


@BOTH
async def test_an_answer_comes_back_as_it_was(http: Http, effectful: bool) -> None:
    """The rules decide on exactly this, so nothing may be lost or made up on the way."""
    sent = reply(418, b'{"a": "\xff"}', "X-Id: 1", "x-id: 2", "X-Name: caf\xe9", "X-Utf: \xc3\xa9", "Empty:")
    async with Wire(sent) as wire:
        answer = await http.send(wire.request("/jobs?a=1", effectful=effectful))
        assert answer == Answer(
            status=418,
            headers={"content-length": "10", "x-id": "1, 2", "x-name": "café", "x-utf": "é", "empty": ""},
            body=b'{"a": "\xff"}',
            answered_at=NOON,
            url=wire.url + "/jobs?a=1",
        )


@BOTH
async def test_the_request_goes_out_as_it_is_written(http: Http, effectful: bool) -> None:
    """Signed URLs break when a library rewrites their escapes, and a body is resent as stored or not at all."""
    target = "/a%2Fb/%7Ec?x=%7e&y=a%20b+c&z=%2f%3D"
    async with Wire(reply()) as wire:
        await http.send(
            wire.request(target, effectful=effectful, method="PUT", body=b"\x00\xff", headers=(("X-A", "ä"),))
        )
        seen = wire.arrived[0]
        assert (seen.method, seen.target, seen.body) == ("PUT", target, b"\x00\xff")
        assert seen.headers == {
            "host": wire.url.removeprefix("http://"),
            "accept": "*/*",
            "accept-encoding": "identity",
            "user-agent": f"opledger/{__version__}",
            "content-length": "2",
            "x-a": "ä".encode().decode("latin-1"),
            **({"connection": "close"} if effectful else {}),
        }


@BOTH
async def test_a_request_without_a_body_has_none(http: Http, effectful: bool) -> None:
    """No content type and no chunks may be made up for it."""
    async with Wire(reply()) as wire:
        for method in ("GET", "POST", "DELETE"):
            await http.send(wire.request(effectful=effectful, method=method, body=None))
        for seen in wire.arrived:
            assert seen.body == b""
            assert not {"content-type", "transfer-encoding"} & set(seen.headers)


@BOTH
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_answers(http: Http, status: int, effectful: bool) -> None:
    """Following one would carry the body, and any header that is not called Authorization, to somebody else (F5)."""
    async with Wire(reply()) as sink, Wire(reply(status, b"", f"Location: {sink.url}/x")) as wire:
        answer = await http.send(wire.request(effectful=effectful, auth=BEARER, headers=(("X-Api-Key", "k"),)))
        assert isinstance(answer, Answer)
        assert (answer.status, answer.headers["location"]) == (status, f"{sink.url}/x")
        assert sink.connections == 0


@BOTH
async def test_cookies_and_proxies_are_not_known(http: Http, effectful: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cookie would tie one operation's requests to another's; a proxy from the environment would read them all."""
    async with Wire(reply()) as proxy, Wire(reply(200, b"{}", "Set-Cookie: id=1; Path=/")) as wire:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        for _ in range(2):
            await http.send(wire.request(effectful=effectful))
        assert proxy.connections == 0
        assert [seen.headers.get("cookie") for seen in wire.arrived] == [None, None]


CREDENTIALS = [
    (BEARER, {"authorization": f"Bearer {SECRET}"}, ""),
    (Auth("header", "env:TOKEN", name="X-Api-Key"), {"x-api-key": SECRET}, ""),
    (Auth("header", "env:TOKEN", name="Authorization", prefix="Key "), {"authorization": f"Key {SECRET}"}, ""),
    (
        Auth("basic", "env:TOKEN", username="me"),
        {"authorization": "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()},
        "",
    ),
    (
        Auth("basic", "env:TOKEN"),
        {"authorization": "Basic " + base64.b64encode(f"{SECRET}:".encode()).decode()},
        "",
    ),
    (Auth("query", "env:TOKEN", name="api key"), {}, "&api%20key=s3cr3t-VALUE%2Fwith%2Bodd%3Dchars"),
]


@BOTH
@pytest.mark.parametrize(("auth", "headers", "query"), CREDENTIALS)
async def test_credentials_are_put_in_for_the_own_origin(
    http: Http, auth: Auth, headers: dict[str, str], query: str, effectful: bool
) -> None:
    """Each kind in its place, over whatever the request already says there, and never in what we keep."""
    async with Wire(reply()) as wire:
        given = (("AUTHORIZATION", "mine"), ("X-Key", "a {secret.other} b"))
        request = wire.request("/x?a=1", effectful=effectful, auth=auth, headers=given, secrets={"other": "env:OTHER"})
        answer = await http.send(request)
        seen = wire.arrived[0]
        assert seen.headers | headers == seen.headers
        assert seen.headers["x-key"] == "a 0ther-Secret-9 b"
        assert seen.target == "/x?a=1" + query
        assert isinstance(answer, Answer)
        assert answer.url == wire.url + "/x?a=1"


@pytest.mark.parametrize("auth", [auth for auth, _, _ in CREDENTIALS])
async def test_nothing_of_ours_goes_to_another_origin(http: Http, auth: Auth) -> None:
    """Not the credentials, not a header with a key under a name of its own, not the token, not the body."""
    async with Wire(reply()) as wire:
        request = wire.request(
            auth=auth,
            origin="http://127.0.0.1:1",
            body=b"private",
            headers=(("X-Api-Key", "k"), ("Idempotency-Key", "t"), ("X-S", "{secret.other}"), ("Accept", "text/csv")),
            secrets={"other": "env:OTHER"},
        )
        assert isinstance(await http.send(request), Answer)
        seen = wire.arrived[0]
        assert set(seen.headers) == {"host", "accept", "accept-encoding", "user-agent", "connection"}
        assert (seen.headers["accept"], seen.body, seen.target) == ("text/csv", b"", "/jobs")


@pytest.mark.parametrize(("auth", "headers", "query"), CREDENTIALS)
async def test_credentials_for_another_origin_go_to_that_one_and_no_other(
    http: Http, auth: Auth, headers: dict[str, str], query: str
) -> None:
    """A result's host gets its own key, and nothing else of ours; our own origin does not get that key."""
    async with Wire(reply()) as files, Wire(reply()) as stranger, Wire(reply()) as own:
        common: dict[str, Any] = {"auth": auth, "origin": own.origin, "auth_origin": files.origin}
        common["headers"] = (("X-Api-Key", "k"),)
        for wire in (files, stranger, own):
            assert isinstance(await http.send(wire.request("/x?a=1", **common)), Answer)
        (seen,) = files.arrived
        assert seen.headers | headers == seen.headers
        assert seen.target == f"/x?a=1{query}"
        assert set(seen.headers) == {"host", "accept", "accept-encoding", "user-agent", "connection", *headers}
        for wire in (stranger, own):
            assert SECRET not in repr(wire.arrived[0])
            assert wire.arrived[0].target == "/x?a=1"
        assert own.arrived[0].headers["x-api-key"] == "k"


@pytest.mark.parametrize("other", ["https://127.0.0.1:{}", "http://localhost:{}", "http://127.0.0.1:1"])
async def test_an_origin_is_scheme_host_and_port(http: Http, other: str) -> None:
    """The same host under another name, scheme or port is somebody else."""
    async with Wire(reply()) as wire:
        origin = other.format(wire.origin.rpartition(":")[2])
        await http.send(wire.request(auth=BEARER, origin=origin))
        assert "authorization" not in wire.arrived[0].headers


async def test_a_call_that_changes_something_stays_at_home(http: Http) -> None:
    """Whatever a template or an answer makes of the URL, a create goes to the contract's own origin."""
    async with Wire(reply()) as wire:
        for origin in ("", "https://api.example.com:443"):
            outcome = await http.send(wire.request(effectful=True, origin=origin))
            assert isinstance(outcome, Failure)
            assert outcome.fate is Fate.NOT_DELIVERED
        assert wire.connections == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0", "[::ffff:127.0.0.1]"])
@pytest.mark.parametrize("origin", ["http://93.184.216.34:80", ""])
async def test_a_foreign_url_does_not_lead_inside(http: Http, host: str, origin: str) -> None:
    """A provider on the internet could otherwise have us read a service that only this machine can reach."""
    async with Wire(reply()) as wire:
        port = wire.origin.rpartition(":")[2]
        request = wire.request(origin=origin, url=f"http://{host}:{port}/latest/meta-data")
        outcome = await http.send(request)
        assert isinstance(outcome, Failure)
        assert outcome.why.startswith(("the host has a private address", "the URL is not one"))
        assert wire.connections == 0


async def test_a_foreign_host_is_checked_each_time(http: Http) -> None:
    """One contract may lead into the local network, another may not; a kept connection must not mix them up."""
    async with Wire(reply()) as wire:
        url = wire.url.replace("127.0.0.1", "localhost") + "/x"
        inside = replace(wire.request(url=url), origin="http://127.0.0.1:1")
        assert isinstance(await http.send(inside), Answer)
        outside = await http.send(replace(inside, origin="http://93.184.216.34:80"))
        assert isinstance(outside, Failure)
        assert isinstance(await http.send(inside), Answer)
        assert (len(wire.arrived), wire.connections) == (2, 2)


BAD_HEADERS = [
    ("X", "a\r\nY: b"), ("X", "a\nb"), ("X", "a\x00"), ("X", " a"), ("X", "a "), ("X\r\nY", "b"), ("", "b"),
    ("X y", "b"),
    ("Host", "other"), ("Content-Length", "3"), ("Transfer-Encoding", "chunked"), ("Connection", "keep-alive"),
    ("X", "{secret.unknown}"), ("X", "{secret.other} "),
]  # fmt: skip


@BOTH
@pytest.mark.parametrize(("name", "value"), BAD_HEADERS)
async def test_a_header_that_could_become_two_is_refused(http: Http, name: str, value: str, effectful: bool) -> None:
    """A job id or a tag in a template must not be able to write further headers, or a further request."""
    async with Wire(reply()) as wire:
        request = wire.request(effectful=effectful, headers=((name, value),), secrets={"other": "env:OTHER"})
        with pytest.raises(ConfigWrong) as caught:
            await http.send(request)
        assert "0ther" not in str(caught.value)
        assert wire.connections == 0


@pytest.mark.parametrize(
    "auth",
    [
        Auth("bearer"),
        Auth("bearer", "env:MISSING"),
        Auth("header", "env:TOKEN"),
        Auth("header", "env:TOKEN", name="a b"),
    ],
)
async def test_credentials_that_cannot_be_had_stop_the_request(http: Http, auth: Auth) -> None:
    """Without them the provider would answer 401, and that would look like the provider's fault."""
    async with Wire(reply()) as wire:
        with pytest.raises(ConfigWrong):
            await http.send(wire.request(effectful=True, auth=auth))
        assert wire.connections == 0


async def test_a_secret_is_resolved_once_for_many_calls(http: Http, secrets: SecretResolver, tmp_path: Path) -> None:
    """A password manager must not be started five hundred times because five hundred polls are due."""
    log = tmp_path / "log"
    script = tmp_path / "script.sh"
    script.write_text(f"echo started >> {log}\necho s3cret-of-program\n")
    async with Wire(reply()) as wire:
        request = wire.request(auth=Auth("bearer", f"command:sh {script}"))
        await asyncio.gather(*(http.send(request) for _ in range(10)))
        assert {seen.headers["authorization"] for seen in wire.arrived} == {"Bearer s3cret-of-program"}
    assert log.read_text() == "started\n"
    assert secrets.known() == ("s3cret-of-program",)


async def test_no_secret_is_in_a_log_or_a_failure(http: Http, caplog: pytest.LogCaptureFixture) -> None:
    """Providers echo what they are sent, and the libraries log what they see."""
    caplog.set_level(logging.DEBUG)
    encoded = "s3cr3t-VALUE%2Fwith%2Bodd%3Dchars"

    async def echo(talk: Talk) -> bool:
        token = talk.request.headers.get("authorization", "")
        await talk.send(f"HTTP/1.1 200 {token}\r\nX-Echo: {token}\r\nLocation: http://h/?s={encoded}\r\n".encode())
        await talk.send(b"Content-Length: 10\r\n\r\n123")
        return True

    outcomes = []
    async with Wire(echo) as wire:
        for verbose in (False, True):
            for name in ("httpcore.http11", "httpcore.connection", "httpx", "aiohttp.client") if verbose else ():
                logging.getLogger(name).setLevel(logging.DEBUG)
            for effectful in (False, True):
                outcomes += [
                    await http.send(wire.request("/x?sig=abcdef", effectful=effectful, auth=auth))
                    for auth in (BEARER, Auth("query", "env:TOKEN", name="key"))
                ]
            if not verbose:
                assert caplog.text == "" or "DEBUG    asyncio" in caplog.text
    logging.getLogger("aiohttp.client").warning("failed: %s", f"http://h/p?key={encoded}&x=1 Bearer {SECRET}")
    assert "failed: http://h/p?… " in caplog.text
    for text in (caplog.text, *map(str, outcomes)):
        assert SECRET not in text
        assert encoded not in text
        assert "sig=abcdef" not in text
    for name in ("httpcore.http11", "httpcore.connection", "httpx", "aiohttp.client"):
        logging.getLogger(name).setLevel(logging.NOTSET)


async def test_closing_takes_the_log_filters_away(secrets: SecretResolver) -> None:
    """A process that opens many edges must not pay for all of them with every line."""
    before = list(logging.getLogger("httpcore.http11").filters)
    await Http(StillClock(), secrets).aclose()
    assert logging.getLogger("httpcore.http11").filters == before


PACKED = [
    ("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress),
    ("deflate", lambda data: zlib.compress(data, wbits=-15)),
]  # fmt: skip


@BOTH
@pytest.mark.parametrize(("coding", "pack"), PACKED)
async def test_an_answer_that_is_packed_all_the_same_is_unpacked(
    http: Http, effectful: bool, coding: str, pack: object
) -> None:
    """Some servers compress whatever they are asked."""
    assert callable(pack)
    async with Wire(reply(200, pack(b'{"id": 1}'), f"Content-Encoding: {coding}")) as wire:
        answer = await http.send(wire.request(effectful=effectful))
        assert isinstance(answer, Answer)
        assert answer.body == b'{"id": 1}'
        whole = pack(b'{"id": 1}')
        wire.handler = reply(200, whole[:-1], f"Content-Encoding: {coding}")
        assert isinstance(await http.send(wire.request(effectful=effectful)), Failure)


@BOTH
async def test_a_bomb_is_cut_off(http: Http, effectful: bool) -> None:
    """Half a megabyte on the wire was half a gigabyte in memory (F8)."""
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
    async with Wire(reply(200, bomb, "Content-Encoding: gzip")) as wire:
        outcome = await http.send(wire.request(effectful=effectful))
        assert outcome == Failure(Fate.LOST, "the answer is larger than 1048576 bytes", 200, too_large=True)


@BOTH
@pytest.mark.parametrize("method", ["HEAD", "GET"])
async def test_answers_without_a_body_are_whole(http: Http, method: str, effectful: bool) -> None:
    """A HEAD tells a length and sends nothing; 204 and 304 neither."""
    heads = [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\n"] if method == "HEAD" else []
    heads += [b"HTTP/1.1 204 No\r\n\r\n", b"HTTP/1.1 304 No\r\nContent-Encoding: gzip\r\n\r\n"]
    async with Wire(b"") as wire:
        for head in heads:
            wire.handler = head
            answer = await http.send(wire.request(effectful=effectful, method=method, body=None))
            assert isinstance(answer, Answer)
            assert answer.body == b""


@BOTH
async def test_early_hints_before_the_answer_are_passed_over(http: Http, effectful: bool) -> None:
    """A 1xx is not the answer."""
    async with Wire(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hint\r\nX: y\r\n\r\n" + reply(201)) as wire:
        answer = await http.send(wire.request(effectful=effectful))
        assert isinstance(answer, Answer)
        assert (answer.status, "x" in answer.headers) == (201, False)


# --- downloads ---------------------------------------------------------------------------------------------------

BIG = bytes(range(256)) * 4000


@BOTH
@pytest.mark.parametrize("coding", [None, "gzip"])
async def test_a_result_is_streamed_to_a_file(http: Http, tmp_path: Path, effectful: bool, coding: str | None) -> None:
    """The bytes in the file, and those that were checked, are the result's own."""
    sent = reply(200, BIG) if coding is None else reply(200, gzip.compress(BIG), "Content-Encoding: gzip")
    chunks: list[bytes] = []
    heads: list[Mapping[str, str]] = []

    def begin(headers: Mapping[str, str]) -> None:
        assert chunks == []
        heads.append(headers)

    async with Wire(sent) as wire:
        request = wire.request(effectful=effectful, max_bytes=len(BIG))
        got = await http.download(request, tmp_path, chunks.append, on_head=begin)
        assert isinstance(got, Download)
        assert (got.status, got.size, got.answered_at) == (200, len(BIG), NOON)
        assert got.headers["content-length"] == str(len(sent) - sent.index(b"\r\n\r\n") - 4)
        assert left(tmp_path) == [(got.path, BIG, 0o600)]
        assert b"".join(chunks) == BIG
        assert heads == [got.headers]
        assert len(chunks) > 1


@pytest.mark.parametrize("status", [200, 204])
async def test_an_empty_result_is_an_empty_file(http: Http, tmp_path: Path, status: int) -> None:
    """Empty is for the caller to judge."""
    async with Wire(reply(status, b"")) as wire:
        got = await http.download(wire.request(), tmp_path, ignore)
        assert isinstance(got, Download)
        assert (got.size, left(tmp_path)) == (0, [(got.path, b"", 0o600)])


@pytest.mark.parametrize("status", [202, 206, 302, 404, 410, 500])
async def test_what_is_no_result_is_an_answer(http: Http, tmp_path: Path, status: int) -> None:
    """The rules must see a "not ready" and its body, and a part is not the whole."""
    async with Wire(reply(status, b"{}")) as wire:
        got = await http.download(wire.request(max_bytes=10**9), tmp_path, ignore)
        assert isinstance(got, Answer)
        assert got.status == status
        wire.handler = reply(status, b"x" * (1024 * 1024 + 1))
        assert isinstance(await http.download(wire.request(max_bytes=10**9), tmp_path, ignore), Failure)
        assert left(tmp_path) == []


BREAKS = {
    "too large, announced": reply(200, BIG),
    "too large": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfa000\r\n" + BIG + b"\r\n0\r\n\r\n",
    "too large, unpacked": reply(200, gzip.compress(bytes(10_000_000)), "Content-Encoding: gzip"),
    "cut": reply(200, BIG[:900_000])[:-10] + b"",
    "cut in the packing": reply(200, gzip.compress(BIG[:1000])[:-2], "Content-Encoding: gzip"),
}


@pytest.mark.parametrize("fault", BREAKS)
async def test_a_result_that_breaks_off_leaves_no_file(http: Http, tmp_path: Path, fault: str) -> None:
    """A partial file must never be taken for a result."""

    async def send(talk: Talk) -> bool:
        await talk.send(BREAKS[fault])
        return True

    async with Wire(send) as wire:
        got = await http.download(wire.request(max_bytes=900_000), tmp_path, ignore)
        assert isinstance(got, Failure)
        assert (got.fate, got.status) == (Fate.LOST, 200)
        assert left(tmp_path) == []


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 600000\r\n\r\n" + BIG[:300_000]])
async def test_a_result_that_stalls_is_cut(http: Http, tmp_path: Path, head: bytes) -> None:
    """A transfer of ten minutes is fine, half a minute of silence is not."""

    async def stall(talk: Talk) -> None:
        await talk.send(head)
        await asyncio.Event().wait()

    async with Wire(stall) as wire:
        got = await http.download(wire.request(), tmp_path, ignore, stall=SHORT)
        assert isinstance(got, Failure)
        assert got.why.startswith("the server went silent (")
        assert left(tmp_path) == []


async def test_a_result_that_takes_too_long_is_cut(http: Http, tmp_path: Path) -> None:
    """A drip never stalls, and must end all the same."""

    async def drip(talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 600000\r\n\r\n")
        while True:
            await talk.send(b"x" * 100)
            await asyncio.sleep(0.01)

    async with Wire(drip) as wire:
        got = await http.download(wire.request(timeout=SHORT), tmp_path, ignore)
        assert got == Failure(Fate.LOST, "no whole answer within 0.2 s", 200)
        assert left(tmp_path) == []


async def test_a_cancelled_download_leaves_no_file(http: Http, tmp_path: Path) -> None:
    """A worker that is stopped in the middle must not leave rubbish for the sweep each time."""
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def begin(_: bytes) -> None:
        loop.call_soon_threadsafe(begun.set)

    async def endless(talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n")
        while True:
            await talk.send(BIG)

    async with Wire(endless) as wire:
        request = wire.request(max_bytes=10**9)
        task = asyncio.create_task(http.download(request, tmp_path, begin))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert left(tmp_path) == []


async def test_an_error_in_a_check_is_not_swallowed(http: Http, tmp_path: Path) -> None:
    """A bug of ours is no fault of the provider."""

    def fail(_: bytes) -> None:
        raise ZeroDivisionError

    async with Wire(reply(200, b"x")) as wire:
        with pytest.raises(ZeroDivisionError):
            await http.download(wire.request(), tmp_path, fail)
        assert left(tmp_path) == []


async def test_a_disk_that_refuses_is_no_fault_of_the_network(http: Http, tmp_path: Path) -> None:
    """Else the provider would be asked again and again for what cannot be stored."""
    async with Wire(reply(200, b"x")) as wire:
        with pytest.raises(StoreUnavailable):
            await http.download(wire.request(), tmp_path / "missing", ignore)


async def test_many_calls_at_once(http: Http) -> None:
    """Answers must not be mixed up between connections."""

    async def echo(talk: Talk) -> None:
        await talk.send(reply(200, talk.request.target.encode()))

    async with Wire(echo) as wire:
        answers = await asyncio.gather(
            *(http.send(wire.request(f"/{n}", effectful=n % 3 == 0, timeout=timedelta(seconds=60))) for n in range(300))
        )
        for n, answer in enumerate(answers):
            assert isinstance(answer, Answer)
            assert answer.body == f"/{n}".encode()


async def test_a_request_says_who_asks_unless_the_contract_does(http: Http) -> None:
    """Some providers want a user agent of their own choice."""
    async with Wire(reply()) as wire:
        await http.send(wire.request(headers=(("User-Agent", "acme/1"), ("accept-encoding", "gzip"))))
        assert wire.arrived[0].headers["user-agent"] == "acme/1"
        assert wire.arrived[0].headers["accept-encoding"] == "identity"


def test_a_request_shows_no_secret_by_itself() -> None:
    """It may end in a traceback; it holds references, not values."""
    assert SECRET not in repr(Request("GET", "http://h/", auth=BEARER))


@BOTH
async def test_an_answer_that_repeats_our_credentials_is_scrubbed(http: Http, effectful: bool) -> None:
    """Before anybody reads a word out of it: an error text ends up in the journal and on the screen (I24)."""
    async with Wire(reply(400, f"bad key {SECRET}!".encode(), f"X-Was: Bearer {SECRET}")) as wire:
        answer = await http.send(wire.request(effectful=effectful, auth=BEARER))
    assert isinstance(answer, Answer)
    assert answer.body.startswith(b"bad key ")
    assert SECRET.encode() not in answer.body
    assert SECRET not in answer.headers["x-was"]


async def test_the_headers_of_a_result_are_scrubbed_too(http: Http, tmp_path: Path) -> None:
    """They are told in problems, kept in marks, and sent back in If-Range."""
    heads: list[Mapping[str, str]] = []
    answer = reply(200, b"a,b\n", f"ETag: {SECRET}", f"Content-Type: text/{SECRET}")
    async with Wire(answer) as wire:
        found = await http.download(wire.request(auth=BEARER), tmp_path, lambda _: None, on_head=heads.append)
    assert isinstance(found, Download)
    for headers in (found.headers, *heads):
        assert {"etag", "content-type"} <= set(headers)
        assert not any(SECRET in value for value in headers.values())
