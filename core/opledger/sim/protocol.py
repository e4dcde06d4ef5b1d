"""Breaking connections on purpose: uvicorn keeps its sockets to itself, so this protocol remembers them by peer."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Base
else:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Base
    except ImportError:  # the fast parser is not installed on this machine; h11 always is
        from uvicorn.protocols.http.h11_impl import H11Protocol as Base

_LINGER_NOTHING = struct.pack("ii", 1, 0)  #: SO_LINGER on, 0 seconds: close() sends RST instead of FIN


class Lines:
    """The open connections by peer address (``scope["client"]``)."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], tuple[asyncio.Transport, asyncio.Event]] = {}

    def opened(self, peer: tuple[str, int] | None, transport: asyncio.Transport) -> None:
        """Remember a new connection."""
        if peer is not None:
            self._open[peer] = transport, asyncio.Event()

    def closed(self, peer: tuple[str, int] | None) -> None:
        """Forget a connection that is gone."""
        if peer is not None:
            known = self._open.pop(peer, None)
            if known is not None:
                known[1].set()

    async def reset(self, peer: tuple[str, int]) -> None:
        """Abort a connection: the peer sees a reset (RST), and not one byte of an answer."""
        if peer not in self._open:
            return
        transport, gone = self._open[peer]
        connection = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOTHING)
        transport.abort()
        await gone.wait()  # uvicorn must know before the endpoint returns, or it would try to answer for it

    async def hang_up(self, peer: tuple[str, int]) -> None:
        """Close a connection in order (FIN) after what was written so far; an unfinished answer stays cut."""
        if peer in self._open:
            transport, gone = self._open[peer]
            transport.close()
            await gone.wait()


def protocol_class(lines: Lines) -> type[asyncio.Protocol]:
    """A uvicorn HTTP protocol that tells `lines` of every connection."""

    class Watched(Base):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            lines.opened(self.client, transport)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            lines.closed(self.client)

    return Watched
