"""What is known about a request that got no usable answer: each fault × kind of request, over real sockets."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from opledger.edges.failures import Trail
from opledger.edges.http import Http
from opledger.edges.secrets import SecretResolver
from opledger.rules.calls import Answer, Failure, Fate, Request
from tests.core.edges.wire import SHORT, Handler, StillClock, Talk, Wire, closed_port, reply

KINDS = [("POST", True), ("PUT", True), ("DELETE", True), ("GET", True), ("GET", False), ("POST", False)]
EFFECTFUL = [method for method, effectful in KINDS if effectful]


async def hang(_: Talk) -> None:
    """Never answer."""
    await asyncio.Event().wait()


async def reset(talk: Talk) -> bool:
    """Take the request, then cut the connection."""
    talk.reset()
    return True


async def vanish(_: Talk) -> bool:
    """Take the request, then end the connection in order."""
    return True


async def drip(talk: Talk) -> None:
    """Send a byte now and then, for ever: every single read succeeds."""
    await talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        await talk.send(b"x")
        await asyncio.sleep(0.01)


async def drip_head(talk: Talk) -> None:
    """The same in the headers."""
    await talk.send(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while True:
        await talk.send(b"x")
        await asyncio.sleep(0.01)


async def informational(talk: Talk) -> None:
    """A storm of 1xx answers and no final one."""
    while True:
        await talk.send(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 10)
        await asyncio.sleep(0.01)


def raw(data: bytes) -> Handler:
    """Send these bytes and end the connection."""

    async def send(talk: Talk) -> bool:
        await talk.send(data)
        return True

    return send


def then_reset(data: bytes) -> Handler:
    """Send these bytes and cut the connection."""

    async def send(talk: Talk) -> bool:
        await talk.send(data)
        await asyncio.sleep(0.02)  # let the bytes leave before the reset throws them away
        talk.reset()
        return True

    return send


AFTER: dict[str, tuple[Handler, int | None]] = {
    "hang": (hang, None),
    "reset": (reset, None),
    "vanish": (vanish, None),
    "drip": (drip, 200),
    "drip in the headers": (drip_head, None),
    "1xx storm": (informational, None),
    "half a status line": (raw(b"HTTP/1.1 20"), None),
    "half the headers": (raw(b"HTTP/1.1 200 OK\r\nContent-Le"), None),
    "half the body": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345"), 200),
    "half the body, reset": (then_reset(b"HTTP/1.1 201 OK\r\nContent-Length: 10\r\n\r\n12345"), 201),
    "half a chunk": (raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n123"), 200),
    "no last chunk": (raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"), 200),
    "not HTTP": (raw(b"SSH-2.0-OpenSSH_9.6\r\n"), None),
    "switching protocols": (raw(b"HTTP/1.1 101 Now\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), None),
    "two lengths": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x"), None),
    "length and chunks": (
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
        None,
    ),
    "too many headers": (raw(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 5000 + b"Content-Length: 2\r\n\r\n{}"), None),
    "a huge header": (raw(b"HTTP/1.1 200 OK\r\nX-A: " + b"b" * 90_000 + b"\r\nContent-Length: 2\r\n\r\n{}"), None),
    "too large": (raw(reply(200, b"x" * 3000)), 200),
    "too large, chunked": (
        raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n" + b"x" * 1024 + b"\r\n0\r\n\r\n"), 200,
    ),
    "unknown packing": (raw(reply(200, b"xxxx", "Content-Encoding: br")), 200),
    "packed twice": (raw(reply(200, b"xxxx", "Content-Encoding: gzip, gzip")), 200),
    "damaged packing": (raw(reply(200, b"\x1f\x8bxxxx", "Content-Encoding: gzip")), 200),
}  # fmt: skip
ENDLESS = {"hang", "drip", "drip in the headers", "1xx storm"}  #: only our own timeout ends these


@pytest.mark.parametrize(("method", "effectful"), KINDS)
@pytest.mark.parametrize("fault", AFTER)
async def test_what_breaks_after_sending_is_lost(http: Http, fault: str, method: str, effectful: bool) -> None:
    """The provider may have acted on it: neither "it ran" nor "it did not" may be said, and nothing is sent again."""
    handler, status = AFTER[fault]
    timeouts = [SHORT, 5 * SHORT, 300 * SHORT] if fault in ENDLESS else [300 * SHORT]
    while timeouts:
        async with Wire(handler) as wire:
            timeout = timeouts.pop(0)
            request = wire.request(effectful=effectful, method=method, timeout=timeout, max_bytes=1000)
            outcome = await http.send(request)
        assert isinstance(outcome, Failure)
        if timeouts and not (wire.arrived and status in (None, outcome.status)):
            continue  # a machine that was too busy to bring the fault about in so short a time gets more
        assert outcome.fate is Fate.LOST
        assert status is None or outcome.status == status
        assert len(wire.arrived) == 1
        assert wire.connections == 1
        return


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("effectful", [False, True])
async def test_an_answer_cut_at_any_byte_is_lost(http: Http, effectful: bool, chunked: bool) -> None:
    """There is no place at which a cut answer looks like a whole one."""
    whole = reply(201, b'{"job_id": "j1"}', "X-Request-Id: 7")
    if chunked:
        whole = b'HTTP/1.1 201 Any\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{"job_id"\r\n7\r\n: "j1"}\r\n0\r\n\r\n'
    async with Wire(b"") as wire:
        for cut in range(len(whole)):
            wire.handler = raw(whole[:cut])
            outcome = await http.send(wire.request(effectful=effectful))
            assert isinstance(outcome, Failure), whole[:cut]
            assert outcome.fate is Fate.LOST
        wire.handler = raw(whole)
        outcome = await http.send(wire.request(effectful=effectful))
        assert isinstance(outcome, Answer)
        assert (outcome.status, outcome.body) == (201, b'{"job_id": "j1"}')
        assert len(wire.arrived) == len(whole) + 1


@pytest.mark.parametrize("method", EFFECTFUL)
async def test_a_refused_connection_is_proof(http: Http, method: str) -> None:
    """Nobody listened, so nobody acted; the same request may go again."""
    async with Wire(b"") as wire, closed_port() as url:
        request = replace(wire.request(effectful=True, method=method), url=url, origin=url)
        outcome = await http.send(request)
    assert outcome == Failure(Fate.NOT_DELIVERED, "the server refused the connection (ConnectionRefusedError)")


async def test_a_name_that_cannot_be_resolved_is_proof(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an address there was nobody to send to."""

    def unknown(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    for effectful, fate in ((True, Fate.NOT_DELIVERED), (False, Fate.LOST)):
        request = Request("POST", "http://api.example.com/x", origin="http://api.example.com:80", effectful=effectful)
        outcome = await http.send(request)
        assert isinstance(outcome, Failure)
        assert outcome.fate is fate
        assert outcome.why.startswith("the host name cannot be resolved (")


async def test_a_server_that_takes_no_connection_is_proof(http: Http) -> None:
    """A full queue of connections: the deadline comes before the connection does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        place = listener.getsockname()
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(place)
            fillers.append(filler)
        url = f"http://127.0.0.1:{place[1]}"
        outcome = await http.send(Request("POST", url, origin=url, effectful=True, timeout=SHORT, body=b"x"))
        for filler in fillers:
            filler.close()
    assert isinstance(outcome, Failure)
    assert outcome.fate is Fate.NOT_DELIVERED


async def test_a_request_that_waits_for_its_turn_is_not_delivered(secrets: SecretResolver) -> None:
    """With every connection taken, the deadline can pass before anything was tried."""
    http = Http(StillClock(), secrets, max_connections=1)
    async with Wire(hang) as wire:
        first = asyncio.create_task(http.send(wire.request(effectful=True)))
        await wire.came.wait()
        outcome = await http.send(wire.request(effectful=True, timeout=SHORT))
        assert outcome == Failure(Fate.NOT_DELIVERED, "no whole answer within 0.2 s")
        assert len(wire.arrived) == 1
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    await http.aclose()


@pytest.mark.parametrize("effectful", [True, False])
async def test_a_server_that_does_not_speak_tls_gets_no_request(http: Http, effectful: bool) -> None:
    """The request goes out only after the handshake, so a failed handshake is proof."""

    async def plain(talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

    async with Wire(b"") as wire:
        wire.greet = plain
        url = wire.url.replace("http://", "https://")
        request = replace(wire.request(effectful=effectful), url=url, origin=url)
        outcome = await http.send(request)
    assert isinstance(outcome, Failure)
    assert outcome.fate is (Fate.NOT_DELIVERED if effectful else Fate.LOST)
    assert outcome.why.startswith("the TLS handshake failed (")


async def test_a_tls_handshake_that_hangs_is_proof(http: Http) -> None:
    """The deadline can strike between the connection and the end of the handshake."""
    async with Wire(b"") as wire:
        wire.greet = hang
        url = wire.url.replace("http://", "https://")
        outcome = await http.send(replace(wire.request(effectful=True, timeout=SHORT), url=url, origin=url))
    assert isinstance(outcome, Failure)
    assert outcome.fate is Fate.NOT_DELIVERED


@pytest.fixture(scope="module")
def own_tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """A server's side of TLS, with a certificate that nobody trusts."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl program to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    place = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key)]
    subprocess.run([openssl, *words, *place, "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.sni_callback = None
    (folder / "ca").write_bytes(certificate.read_bytes())
    _CERTIFICATES[id(context)] = folder / "ca"
    return context


_CERTIFICATES: dict[int, Path] = {}


@pytest.mark.parametrize("effectful", [True, False])
async def test_a_certificate_that_is_not_trusted_stops_the_request(
    http: Http, own_tls: ssl.SSLContext, effectful: bool
) -> None:
    """An impostor must not even see the headers."""
    async with Wire(reply(), own_tls) as wire:
        outcome = await http.send(wire.request(effectful=effectful))
        assert wire.arrived == []
    assert isinstance(outcome, Failure)
    assert outcome.fate is (Fate.NOT_DELIVERED if effectful else Fate.LOST)
    assert outcome.why.startswith("the server's certificate is not accepted (")


@pytest.mark.parametrize("effectful", [True, False])
async def test_over_tls_the_fates_are_the_same(
    secrets: SecretResolver, own_tls: ssl.SSLContext, effectful: bool
) -> None:
    """The handshake succeeded, the answer did not come: lost, as without TLS."""
    trusting = ssl.create_default_context(cafile=str(_CERTIFICATES[id(own_tls)]))
    http = Http(StillClock(), secrets, tls=trusting)
    async with Wire(reply(), own_tls) as wire:
        assert isinstance(await http.send(wire.request(effectful=effectful)), Answer)
        for handler in (reset, vanish):
            wire.handler = handler
            outcome = await http.send(wire.request(effectful=effectful))
            assert isinstance(outcome, Failure)
            assert outcome.fate is Fate.LOST
        assert len(wire.arrived) == 3
        wire.handler = hang
        outcome = await http.send(wire.request(effectful=effectful, timeout=SHORT))
        if len(wire.arrived) == 3:  # the machine was too busy to send it in so short a time
            outcome = await http.send(wire.request(effectful=effectful, timeout=300 * SHORT))
        assert isinstance(outcome, Failure)
        assert outcome.fate is Fate.LOST
        assert len(wire.arrived) == 4
    await http.aclose()


@pytest.mark.parametrize("url", ["ftp://h/x", "http:///x", "nonsense", "http://u:p@h/x", "http://h:99999/", ""])
async def test_a_url_that_cannot_be_used_is_not_delivered(http: Http, url: str) -> None:
    """A broken URL comes from an answer or a contract, and must end in words, not in an exception."""
    outcome = await http.send(Request("POST", url, origin="http://h:80", effectful=True))
    assert outcome == Failure(Fate.NOT_DELIVERED, "the URL is not one that can be used")


async def test_kept_connections_are_used_for_reads_only(http: Http) -> None:
    """A kept connection that dies looks like a lost request; for a create that doubt would be of our own making."""
    async with Wire(reply()) as wire:
        for _ in range(3):
            assert isinstance(await http.send(wire.request()), Answer)
        assert wire.connections == 1
        for _ in range(3):
            assert isinstance(await http.send(wire.request(effectful=True)), Answer)
        assert wire.connections == 4
        assert [seen.headers.get("connection") for seen in wire.arrived[3:]] == ["close"] * 3


@pytest.mark.parametrize("end", [reset, vanish])
async def test_a_kept_connection_that_dies_is_not_tried_again(http: Http, end: Callable[[Talk], Any]) -> None:
    """By itself aiohttp would send a GET again; then our record of what was sent would be wrong."""
    async with Wire(reply()) as wire:
        assert isinstance(await http.send(wire.request()), Answer)
        wire.handler = end
        outcome = await http.send(wire.request())
        assert isinstance(outcome, Failure)
        assert outcome.fate is Fate.LOST
        assert (len(wire.arrived), wire.connections) == (2, 1)


@pytest.mark.parametrize("turns", [0, 20])
@pytest.mark.parametrize("stray", [reply(200, b'{"id": "another"}'), b"HTTP/1.1 2", b"\x00"])
async def test_what_follows_an_answer_is_not_the_next_one(http: Http, stray: bytes, turns: int) -> None:
    """A proxy that answers twice would have one job's answer read as another's; by itself aiohttp takes it so."""
    talks: list[Talk] = []

    async def answers(talk: Talk) -> None:
        talks.append(talk)
        await talk.send(reply(200, talk.request.target.encode()))

    async with Wire(answers) as wire:
        assert isinstance(await http.send(wire.request("/1")), Answer)
        await talks[0].send(stray)
        for _ in range(turns):
            await asyncio.sleep(0)  # with turns it was read from the socket, without it was not
        for target in ("/2", "/3"):
            outcome = await http.send(wire.request(target))
            assert isinstance(outcome, Answer)
            assert outcome.body == target.encode()
        assert wire.connections == 2


async def test_a_few_interim_answers_are_skipped_and_a_storm_of_them_is_no_answer(http: Http) -> None:
    """They cost the sender nothing, and aiohttp would keep them all: 150 MiB, and ten seconds for nobody else."""
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"

    async def storm(talk: Talk) -> bool:
        await talk.send(hint * int(talk.request.target[1:]) + reply())
        return True

    async with Wire(storm) as wire:
        for _ in range(2):
            assert isinstance(await http.send(wire.request("/60")), Answer)
        outcome = await http.send(wire.request("/5000"))
        assert outcome == Failure(Fate.LOST, "the answer is broken HTTP, or was cut (ClientResponseError)")


@pytest.mark.parametrize("effectful", [True, False])
async def test_cancelling_closes_the_connection(http: Http, effectful: bool) -> None:
    """A worker that stops must not leave calls open behind it."""

    async def until_closed(talk: Talk) -> bool:
        while not talk.writer.is_closing():
            await talk.send(b"HTTP/1.1 103 Wait\r\n\r\n")
            await asyncio.sleep(0.01)
        talk.wire.closed.set()
        return True

    async with Wire(until_closed) as wire:
        task = asyncio.create_task(http.send(wire.request(effectful=effectful)))
        await wire.came.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(wire.closed.wait(), 10)


async def test_a_step_that_is_not_known_counts_as_sent() -> None:
    """A new version of the library may name its steps in another way; then nothing is proof any more."""
    trail = Trail(Request("POST", "http://h/", effectful=True))
    assert trail.failure("x").fate is Fate.NOT_DELIVERED
    trail.handed_over = True
    assert trail.failure("x").fate is Fate.LOST
    await trail.trace("connection.connect_tcp.started", {})
    assert trail.failure("x").fate is Fate.NOT_DELIVERED
    await trail.trace("connection.write_all.started", {})
    assert trail.failure("x").fate is Fate.LOST
    read = Trail(Request("GET", "http://h/"))
    read.handed_over = True
    await read.trace("connection.connect_tcp.started", {})
    assert read.failure("x").fate is Fate.LOST


async def test_the_deadline_holds_for_the_whole_exchange(http: Http) -> None:
    """By itself httpx would let a server that drips hold a call, and with it a lease, for hours."""
    async with Wire(drip) as wire:
        for effectful in (True, False):
            outcome = await asyncio.wait_for(
                http.send(wire.request(effectful=effectful, timeout=timedelta(milliseconds=100))), 10
            )
            assert outcome == Failure(Fate.LOST, "no whole answer within 0.1 s", 200)
