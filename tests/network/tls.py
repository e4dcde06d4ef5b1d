"""Breaking TLS: the handshake and the sealed bytes after it, cut in both directions; a server nobody vouches for.

"Not delivered" may be said only where the provider has not read one byte of a request. What it has read, this server
knows, since it ends the TLS itself.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from opledger.edges.http import Http
from opledger.edges.secrets import SecretResolver
from opledger.rules.calls import Answer, Failure, Fate, Request, origin_of
from tests.fakes.clock import HandClock

ANSWER: Final = b'HTTP/1.1 202 Accepted\r\ncontent-length: 15\r\n\r\n{"id": "job_1"}'
OPEN_ENDED: Final = b'HTTP/1.1 202 Accepted\r\nconnection: close\r\n\r\n{"id": "job_1"}'


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@dataclass
class Tally:
    """What was cut and what was said of it."""

    cases: int = 0
    fates: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def certificate(folder: Path, name: str) -> Path:
    """Write a self-signed certificate for 127.0.0.1 with its key; returns the file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / f"{name}.pem"
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


class Sealed:
    """A TLS server behind a proxy that counts the sealed bytes and cuts them."""

    def __init__(self, chain: Path, answer: bytes) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(chain)
        self.answer = answer
        self.read = 0  #: bytes of requests that were read, unsealed
        self.limits = {"up": 1 << 30, "down": 1 << 30}
        self.passed = Counter[str]()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Listen; returns the address of the proxy."""
        self._inner = await asyncio.start_server(self._accept(self._serve), "127.0.0.1", 0, ssl=self._context)
        self._outer = await asyncio.start_server(self._accept(self._pass), "127.0.0.1", 0)
        return f"https://127.0.0.1:{self._outer.sockets[0].getsockname()[1]}"

    def _accept(self, talk: Talk) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(talk(reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return accept

    async def stop(self) -> None:
        """Stop."""
        self._outer.close()
        self._inner.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b""
        try:
            while b"\r\n\r\n" not in head:
                data = await reader.read(4096)
                if not data:
                    return
                head += data
                self.read += len(data)
            writer.write(self.answer)
            await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inside, outward = await asyncio.open_connection(*self._inner.sockets[0].getsockname())
        streams = [
            asyncio.ensure_future(self._pour("up", reader, outward)),
            asyncio.ensure_future(self._pour("down", inside, writer)),
        ]
        try:
            await asyncio.wait(streams, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for stream in streams:
                stream.cancel()
            outward.close()
            writer.close()

    async def _pour(self, way: str, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                left = self.limits[way] - self.passed[way]
                target.write(data[:left])
                await target.drain()
                self.passed[way] += len(data[:left])
                if len(data) > left:
                    return
        except OSError:
            return


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="opledger-tls-") as name:
        yield Path(name)


def run(step: int = 1) -> Tally:
    """Cut after every `step`-th sealed byte of either direction, and meet servers with a wrong certificate."""
    with _folder() as folder:
        return asyncio.run(_run(folder, step))


async def _run(folder: Path, step: int) -> Tally:
    tally = Tally()
    ours, theirs = certificate(folder, "ours"), certificate(folder, "theirs")
    trusted = ssl.create_default_context(cafile=ours)
    for answer in (ANSWER, OPEN_ENDED):
        for effectful in (True, False):
            whole = await _once(tally, ours, trusted, answer, effectful=effectful)
            for way in ("up", "down"):
                for limit in range(0, whole[way], step):
                    await _once(tally, ours, trusted, answer, effectful=effectful, way=way, limit=limit)
    for effectful in (True, False):
        await _once(tally, theirs, trusted, ANSWER, effectful=effectful, stranger=True)
    for fate in ("answer", Fate.NOT_DELIVERED, Fate.LOST):
        if not tally.fates[fate]:
            tally.faults.append(f"TLS: no case ended as {fate}")
    return tally


async def _once(
    tally: Tally,
    chain: Path,
    trusted: ssl.SSLContext,
    answer: bytes,
    *,
    effectful: bool,
    way: str = "",
    limit: int = 0,
    stranger: bool = False,
) -> Counter[str]:
    server = Sealed(chain, answer)
    if way:
        server.limits[way] = limit
    url = await server.start()
    http = Http(HandClock(), SecretResolver({}), tls=trusted)
    request = Request(
        "POST", url, body=b"{}", origin=origin_of(url), timeout=timedelta(seconds=20), effectful=effectful
    )
    outcome = await http.send(request)
    await http.aclose()
    await server.stop()
    case = f"TLS: {'create' if effectful else 'read'} {way or 'whole'}@{limit}{' of a stranger' if stranger else ''}"
    tally.cases += 1
    tally.fates["answer" if isinstance(outcome, Answer) else outcome.fate] += 1
    if isinstance(outcome, Failure):
        if outcome.fate is Fate.NOT_DELIVERED and server.read:
            tally.faults.append(f"{case}: called not delivered, and the provider read {server.read} bytes of it")
        if not way and not stranger:
            tally.faults.append(f"{case}: nothing was wrong, and it failed: {outcome.why}")
        if stranger and effectful and outcome.fate is not Fate.NOT_DELIVERED:
            tally.faults.append(f"{case}: called {outcome.fate}, and nothing can have been sent: {outcome.why}")
        return server.passed
    if stranger or not server.read:
        tally.faults.append(f"{case}: an answer of a server that nobody vouches for, or that read nothing")
    if outcome.status != 202 or (answer == ANSWER and outcome.body != b'{"id": "job_1"}'):
        tally.faults.append(f"{case}: an answer that was cut was taken: {outcome.status} {outcome.body!r}")
    if answer == OPEN_ENDED and outcome.body not in (b'{"id": "job_1"}', b""):
        tally.faults.append(f"{case}: half an answer was taken: {outcome.body!r}")
    return server.passed
