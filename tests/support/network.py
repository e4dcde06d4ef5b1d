"""A small internet in one event loop: names, addresses, one provider, and strangers that answer everybody.

Connections are real. Names are looked up in a table of the test, and whatever address a connection is made to, it ends
at a server on this machine that knows which address was meant. Nothing leaves the machine.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Address = tuple[str, int]


@dataclass(frozen=True)
class Seen:
    """One request, at the address that it was sent to."""

    address: Address
    raw: bytes

    @property
    def first_line(self) -> str:
        """The request line."""
        return self.raw.partition(b"\r\n")[0].decode("latin-1")


@dataclass
class Network:
    """Who is where, who tried to go where, and what arrived."""

    names: dict[str, list[Sequence[str]]] = field(default_factory=dict)
    """Name -> what it resolves to: the first time, the second time …; the last one stands."""
    answer: Callable[[Seen], bytes] = lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    tls: dict[Address, ssl.SSLContext] = field(default_factory=dict)
    tried: list[Address] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    lookups: dict[str, int] = field(default_factory=dict)
    _servers: dict[Address, asyncio.Server] = field(default_factory=dict)

    def forget(self) -> None:
        """Forget what happened; who is where stays."""
        self.tried.clear()
        self.seen.clear()
        self.lookups.clear()

    def resolve(self, host: str) -> Sequence[str]:
        """Look a name up, as the machine's resolver does. Raises gaierror for one that nobody has."""
        try:
            return [str(ipaddress.ip_address(host.partition("%")[0]))]
        except ValueError:
            pass
        times = self.names.get(host.rstrip(".").lower())
        if times is None:
            try:
                return [socket.inet_ntoa(socket.inet_aton(host))]  # 2130706433, 127.1, 0x7f.1: as the C library does
            except OSError:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
        count = self.lookups[host] = self.lookups.get(host, 0) + 1
        return times[min(count, len(times)) - 1]

    async def door(self, address: Address) -> Address:
        """Return where the server for this address really listens."""
        server = self._servers.get(address)
        if server is None:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                try:
                    while await self._one(address, reader, writer):
                        continue
                except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                    pass
                finally:
                    writer.close()

            server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=self.tls.get(address))
            self._servers[address] = server
        found: Address = server.sockets[0].getsockname()
        return found

    async def _one(self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        size = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                size = int(line.partition(b":")[2])
        seen = Seen(address, head + await reader.readexactly(size))
        self.seen.append(seen)
        answer = self.answer(seen)
        writer.write(answer)
        await writer.drain()
        return b"Connection: close" not in answer and b"connection: close" not in head.lower()

    async def close(self) -> None:
        """Close all servers."""
        for server in self._servers.values():
            server.close()


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose network is the one of the test."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        """Look a name up in the test's table."""
        name = host.decode() if isinstance(host, bytes) else host or "127.0.0.1"
        found = []
        for address in self.network.resolve(name):
            family, end = (socket.AF_INET6, (0, 0)) if ":" in address else (socket.AF_INET, ())
            found.append((family, socket.SOCK_STREAM, 6, "", (address, int(port or 0), *end)))
        return found

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Connect to the server that stands for this address. IPv6 is noted, and then it is unreachable."""
        meant = str(address[0]), int(address[1])
        self.network.tried.append(meant)
        if sock.family != socket.AF_INET:
            raise OSError(101, "Network is unreachable")
        await super().sock_connect(sock, await self.network.door(meant))
