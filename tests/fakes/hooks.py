"""The receiver of webhooks in a thread of the test's own process, and a sender that signs what it sends."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import threading
from concurrent.futures import Future
from http.client import HTTPConnection
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from opledger.edges.secrets import SecretResolver
from opledger.ledger import Ledger
from opledger.ledger.deliveries import Doors
from opledger.receiver import Limits, Receiver, listen, serve

SECRET: Final = "whsec_" + base64.b64encode(b"a secret of the simulated provider").decode()
"""What the contracts of tests call ``env:HOOK_SECRET``."""

WEBHOOK: Final = """
[webhook]
scheme = "standard"
secret = "env:HOOK_SECRET"
event_type = "/type"
job_id = "/data/id"
token = "/data/client_ref"
"""
"""For a contract of the simulated provider: by job and by our own reference."""

Answer = tuple[int, Any]


def signed(body: bytes, event: str, at: float, secret: str = SECRET) -> dict[str, str]:
    """The headers of a delivery as the standard has them."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    made = base64.b64encode(hmac.digest(key, f"{event}.{int(at)}.".encode() + body, "sha256")).decode()
    return {"webhook-id": event, "webhook-timestamp": str(int(at)), "webhook-signature": f"v1,{made}"}


def event(kind: str, **data: Any) -> bytes:
    """The body of an event."""
    return json.dumps({"type": kind, "data": data}).encode()


def post(url: str, body: bytes, headers: dict[str, str]) -> Answer:
    """Send a delivery; returns the status, and the answer's document."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=30)
    try:
        connection.request("POST", parts.path, body, {"content-type": "application/json", **headers})
        answer = connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if content.startswith(b"{") else content.decode()
    finally:
        connection.close()


def without_status(contract: str) -> str:
    """Return the simulated provider's contract as one that has no status read: what it tells is all that is known."""
    text = contract[: contract.index("[status]")] + contract[contract.index("[poll]") :]
    told = {
        "[auth]": 'status = "none"\n[auth]',
        'url = "/result_url"': 'url = "/data/result_url"',
        'count = "/records"': 'count = "/data/records"',
    }
    for old, new in told.items():
        text = text.replace(old, new, 1)
    return text


class ReceiverThread:
    """Use as a context manager: a receiver over a ledger of its own connection, on any free port."""

    def __init__(self, ledger: Ledger, *, limits: Limits | None = None, secret: str = SECRET) -> None:
        self.ledger = ledger
        doors = Doors(ledger.settings, SecretResolver({"HOOK_SECRET": secret}))
        doors.look()
        self.receiver = Receiver(ledger, doors, limits)
        self._listener = listen("127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="receiver", daemon=True)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            await serve(self.receiver, self._listener, self._stop, lambda: self._started.set_result(None))
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            raise

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result(20)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop, as a signal does, and wait for the end."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(30)
            assert not self._thread.is_alive(), "the receiver does not stop"

    def url(self, contract: str) -> str:
        """Where deliveries to a contract go."""
        return f"{self.address}/webhooks/{contract}"

    def send(self, contract: str, body: bytes, name: str, *, at: float | None = None, **more: str) -> Answer:
        """Send a signed delivery; `at` is the time it claims."""
        moment = self.ledger.clock.now().timestamp() if at is None else at
        return post(self.url(contract), body, {**signed(body, name, moment), **more})
