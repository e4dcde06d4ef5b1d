"""The application: read within bounds, judge, store, and only then say so."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from opledger.errors import DatabaseReplaced, OpledgerError, SchemaMismatch, StoreUnavailable
from opledger.ledger import Ledger
from opledger.ledger.deliveries import NOBODY, Deliveries, Doors
from opledger.receiver.intake import Intake, Limits, Outcome
from opledger.rules.webhooks import Kind, Refusal

log = logging.getLogger("opledger.receiver")

UPKEEP: Final = 1.0  #: seconds between two looks at contracts, secrets and what is parked
MATCHING: Final = 20.0  #: looking for what is parked rests for so many times as long as it took
SWEEP: Final = 600  #: upkeeps between two sweeps
LINGER: Final = 4  #: of a body that is too large, so many times what we take is thrown away before the answer
LINGERS: Final = 1.0  #: seconds that this may last
RETRY_AFTER: Final = "1"


class Receiver:
    """The ASGI application over one ledger, and its upkeep. `app` serves; `run` must go on meanwhile."""

    def __init__(self, ledger: Ledger, doors: Doors, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.doors = doors
        self.deliveries = Deliveries(ledger)
        self.intake = Intake(lambda batch: self.deliveries.take(batch, self.doors.mask), self.limits)
        self._clock = ledger.clock
        self._match_from = 0.0
        self._refused: Counter[tuple[str, Kind]] = Counter()
        self.app = Starlette(
            routes=[
                Route("/webhooks/{contract}", self.receive, methods=["POST"]),
                Route("/webhooks/{contract}/", self.receive, methods=["POST"]),
                Route("/healthz", self.health, methods=["GET"]),
            ],
            exception_handlers={HTTPException: no_such_door},
        )
        self.app.router.redirect_slashes = False  # a sender that follows no redirect would lose its delivery

    # --- requests -------------------------------------------------------------------------------------------

    async def receive(self, request: Request) -> Response:
        """``POST /webhooks/{contract}``."""
        name = request.path_params["contract"]
        outcome = await self._receive(name, request)
        if isinstance(outcome, Refusal):
            if outcome.kind is Kind.TOO_LARGE:
                await self._let_out(request)
            return self._refuse(name, outcome)
        return JSONResponse({"status": "stored" if outcome.stored else "duplicate"}, 202)

    async def _receive(self, name: str, request: Request) -> Outcome:
        unfit = self._unfit(name, request)
        if unfit is not None:
            return unfit
        if self.intake.full:
            return Refusal(Kind.FULL)
        with self.intake.room():
            body = bytearray()
            try:
                refusal = await self._read(request, body)
                if refusal is not None:
                    return refusal
                judged = self.doors.judge(name, bytes(body), _headers(request), self._clock.now())
                return judged if isinstance(judged, Refusal) else await self.intake.put(judged)
            finally:
                self.intake.held -= len(body)

    def _unfit(self, name: str, request: Request) -> Refusal | None:
        """Refuse what is told by the headers alone."""
        if name not in self.doors.names:
            return Refusal(Kind.UNKNOWN_CONTRACT)
        if request.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            return Refusal(Kind.COMPRESSED)
        length = request.headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length) > self.limits.largest:
            return Refusal(Kind.TOO_LARGE)
        return None

    async def _read(self, request: Request, body: bytearray) -> Refusal | None:
        """Read the body within its bounds; what is in `body` counts as held."""
        try:
            async with asyncio.timeout(self.limits.within):
                async for chunk in request.stream():
                    if len(body) + len(chunk) > self.limits.largest:
                        return Refusal(Kind.TOO_LARGE)
                    if self.intake.held + len(chunk) > self.limits.held:
                        return Refusal(Kind.FULL)
                    body += chunk
                    self.intake.held += len(chunk)
        except TimeoutError:
            return Refusal(Kind.TOO_SLOW)
        except ClientDisconnect:
            return Refusal(Kind.INCOMPLETE)
        return None

    async def _let_out(self, request: Request) -> None:
        """Throw away some more of a body that is too large, so that its sender gets to read the answer.

        A connection that is closed while the other side still sends is reset, and the answer is lost with it (RFC 9112
        §9.6). Bounded in bytes and time; who waits for a go-ahead (``Expect``) has sent nothing.
        """
        if "expect" in request.headers:
            return
        left = LINGER * self.limits.largest
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(LINGERS, self.limits.within)):
                while left > 0:
                    message = await request.receive()
                    left -= len(message.get("body", b""))
                    if message["type"] != "http.request" or not message.get("more_body"):
                        return

    def _refuse(self, name: str, refusal: Refusal) -> Response:
        unknown = refusal.kind is Kind.UNKNOWN_CONTRACT
        self._refused[NOBODY if unknown else name, refusal.kind] += 1
        level = logging.DEBUG if unknown or refusal.kind is Kind.FULL else logging.INFO
        log.log(level, "a delivery to %s was refused: %s %s", name[:80], refusal.kind, refusal.detail)
        headers = {}
        if refusal.status in (429, 503):
            headers["retry-after"] = RETRY_AFTER
        if refusal.kind in (Kind.TOO_LARGE, Kind.TOO_SLOW, Kind.INCOMPLETE):
            headers["connection"] = "close"  # the rest of that body is not worth reading
        return refusal_document(refusal.status, refusal.kind.value, refusal.sentence, headers)

    async def health(self, _: Request) -> Response:
        """``GET /healthz``."""
        well = self.intake.broken is None
        document = {"ok": well, "contracts": list(self.doors.names), "waiting": self.intake.open}
        return JSONResponse(document, 200 if well else 503)

    # --- upkeep ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Store what arrives and keep house, until cancelled; what was counted is written down at the end.

        Raises DatabaseReplaced, and SchemaMismatch where the ledger was upgraded to what this version cannot use: what
        is taken from now on would be lost, and senders try again elsewhere or later.
        """
        storing = asyncio.ensure_future(self.intake.run())
        rounds = 0
        try:
            while not storing.done() and self.intake.lost is None:
                await asyncio.wait({storing}, timeout=UPKEEP)
                await self._keep_house(sweep=rounds % SWEEP == 0)
                rounds += 1
            if self.intake.lost is not None:
                raise self.intake.lost
            storing.result()  # a fault of ours: stop loudly
        finally:
            storing.cancel()
            await self._keep_house(sweep=False)

    async def _keep_house(self, *, sweep: bool) -> None:
        counted, self._refused = self._refused, Counter()
        if not await asyncio.to_thread(self._house, counted, sweep=sweep):
            self._refused.update(counted)

    def _house(self, refused: Mapping[tuple[str, Kind], int], *, sweep: bool) -> bool:
        """On a thread: write counters down, look at contracts and secrets, hand over what was parked, forget the old.

        Returns whether the counters were written.
        """
        written = False
        try:
            if refused:
                self.deliveries.count(refused)
            written = True
            self.deliveries.check_version()
            self.doors.look()
            began = self._clock.monotonic()
            if began >= self._match_from:
                self.deliveries.match_parked()
                # However much is parked, looking through it takes a small share of the time.
                now = self._clock.monotonic()
                self._match_from = now + MATCHING * (now - began)
            if sweep:
                self.deliveries.sweep()
            self.intake.broken = None
        except OpledgerError as error:
            log.warning("the upkeep of the receiver waits: %s", error)
            if isinstance(error, StoreUnavailable):
                self.intake.broken = error.message
            if isinstance(error, DatabaseReplaced | SchemaMismatch):
                self.intake.lost = error
        return written


async def no_such_door(request: Request, error: Exception) -> Response:
    """Answer what is no delivery as deliveries are answered: with a JSON document."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        taken = ", ".join(sorted((error.headers or {}).get("Allow", "POST").split(", ")))
        return refusal_document(405, "method", f"this address takes {taken}", {"allow": taken})
    return refusal_document(error.status_code, "unknown_path", "deliveries go to /webhooks/CONTRACT", error.headers)


def refusal_document(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the answer that says why something was not taken."""
    return JSONResponse({"error": {"code": code, "message": message}}, status, headers)


def _headers(request: Request) -> list[tuple[str, str]]:
    return [(key.decode("latin-1").lower(), value.decode("latin-1")) for key, value in request.headers.raw]
