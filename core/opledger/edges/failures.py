"""What is known about a request that got no usable answer, and why, in words that hold no secrets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

from opledger.rules.calls import Failure, Fate, Request

_BEFORE_ANY_BYTE: Final = frozenset(
    f"connection.{step}.{stage}" for step in ("connect_tcp", "start_tls") for stage in ("started", "complete", "failed")
)


class NotSent(Exception):
    """A request that cannot be sent as it is. The message is in our own words."""


class Trail:
    """How far one request got, and so what a failure says about it.

    "Not delivered" is claimed only on proof: either we never gave the request to a transport, or that told of
    connecting (TCP, then TLS) and of nothing after it. An event that is not known counts as "bytes may have left".
    """

    def __init__(self, request: Request, *, guest_of: str | None = None) -> None:
        """`guest_of`: the origin that decides where this request may lead, though it goes to an origin of its own."""
        self.request = request
        self.guest_of = guest_of
        #: Tells, once the credentials were refused, whether there are others now; within the time given (loop time).
        self.renewed: Callable[[float | None], Awaitable[bool]] | None = None
        self.ends: float | None = None
        self.handed_over = False
        self.status: int | None = None
        self._connecting = False
        self._beyond = False

    async def trace(self, event: str, _: Mapping[str, Any]) -> None:
        """Be told how far the request is, in the words of httpcore."""
        if event in _BEFORE_ANY_BYTE:
            self._connecting = True
        else:
            self._beyond = True

    def failure(self, why: str) -> Failure:
        """Return what is known now."""
        connecting = self.request.effectful and self._connecting and not self._beyond
        unsent = not self.handed_over or connecting
        return Failure(Fate.NOT_DELIVERED if unsent else Fate.LOST, why, self.status)


# Names of classes of httpx, aiohttp, ssl and the standard library; the first that a cause is (or is derived from) wins.
# More telling ones stand first: the libraries wrap a refused certificate into five errors.
_WORDS: Final[tuple[tuple[frozenset[str], str], ...]] = tuple(
    (frozenset(names.split()), words)
    for names, words in (
        (
            "AddressRefused",
            "the host has a private address, where only a contract may lead whose base_url is there itself",
        ),
        ("SSLCertVerificationError ClientConnectorCertificateError", "the server's certificate is not accepted"),
        ("SSLError ClientConnectorSSLError", "the TLS handshake failed"),
        ("gaierror ClientConnectorDNSError", "the host name cannot be resolved"),
        ("ConnectionRefusedError", "the server refused the connection"),
        ("ServerDisconnectedError", "the server closed the connection without an answer"),
        ("ConnectionResetError BrokenPipeError", "the connection was reset"),
        ("ClientConnectorError ConnectError", "no connection could be made"),
        ("InvalidURL UnsupportedProtocol UnicodeError", "the URL is not one that can be used"),
        ("ConnectionTimeoutError", "no connection in time"),
        ("ReadTimeout SocketTimeoutError", "the server went silent"),
        ("WriteTimeout", "the server did not take the request in time"),
        ("ConnectTimeout PoolTimeout", "no connection in time"),
        ("RemoteProtocolError ClientResponseError", "the answer is broken HTTP, or was cut"),
        ("ClientPayloadError ReadError", "the answer broke off"),
    )
)


def words(error: BaseException) -> str:
    """Say what went wrong, and the class of the error. Its own text stays out: it may hold a URL or a header (I24)."""
    chain = [(cause, {kind.__name__ for kind in type(cause).__mro__}) for cause in _causes(error)]
    for names, said in _WORDS:
        for cause, kinds in chain:
            if names & kinds:
                return f"{said} ({type(cause).__name__})"
    return f"the exchange failed ({type(error).__name__})"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Give an error and what it was made of; the libraries keep the first cause in arguments and contexts."""
    seen: list[Any] = []
    waiting: list[Any] = [error]
    while waiting and len(seen) < 20:
        at = waiting.pop(0)
        if isinstance(at, BaseException) and not any(at is before for before in seen):
            seen.append(at)
            waiting += [at.__cause__, at.__context__, *at.args, getattr(at, "os_error", None)]
            waiting += getattr(at, "exceptions", ())
            yield at
