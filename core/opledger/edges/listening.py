"""Listening for HTTP: a socket, and a server that says when it is ready and leaves signals to whoever runs it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator

import uvicorn

from opledger.errors import ConfigWrong


class ReadyServer(uvicorn.Server):
    """uvicorn that calls `started` once it takes connections, without its own signal handling: that would end this
    process by the signal, past whatever is still to be done.
    """

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets=sockets)
        self._tell()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def listen(host: str, port: int, advice: str = "choose others with --host and --port") -> socket.socket:
    """Open a listening socket; port 0 takes any. Raises ConfigWrong, with `advice`, where that is not possible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY only where it is: without it each answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        why = error.strerror or error
        raise ConfigWrong(f"port {port} on {host} cannot be used ({why}); {advice}") from error
    return listener
