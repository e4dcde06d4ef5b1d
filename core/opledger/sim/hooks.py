"""The simulator's webhooks: what a provider sends by itself, in every manner in which providers do.

POST /_webhooks   ``{"to": URL, "scheme": "standard", "manner": "plain"}``: from now on each job that is created sends
                  its events there (with ``"follow": false`` only when told); ``{}`` ends it; see `MANNERS`
POST /_deliver    ``{"job": ID, "events": ["queued", "succeeded"], "manner": …, "more": {…}}``: send now, with more in
                  the data of each; answers with what the receiver said: ``[{"event", "id", "status"}]``
GET  /_webhooks   everything that was sent so far, in order, and the receiver's status; null: it did not answer
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from opledger.edges.clock import Clock
from opledger.sim.contracts import STATES
from opledger.sim.delivery import Post
from opledger.sim.jobs import FINAL_WORDS, Job, Jobs

WEBHOOK_SECRET: Final = "whsec_" + base64.b64encode(b"the simulator's own webhook secret").decode()
"""What the simulator signs with unless it is told otherwise."""

REFERENCE: Final = "env:SIM_WEBHOOK_SECRET"

MANNERS: Final[Mapping[str, str]] = {
    "plain": "sends each event once, in order",
    "duplicated": "sends each event three times, each time with a new time",
    "reordered": "sends the last event first, and the first one last",
    "early": "sends all events before it answers the create",
    "late": "sends the last event long after the job has ended",
    "forged": "signs with another secret",
    "stranger": "signs well, and speaks of a job of somebody else",
    "replayed": "sends what it signed an hour ago",
    "lost": "sends nothing",
}

LOOK: Final = 0.02  #: seconds between two looks at whether a job has ended
LATE: Final = 1.0
REPLAYED: Final = 3600.0
TIMES: Final = 3

_CONTRACTS: Final[Mapping[str, str]] = {
    "standard": 'scheme = "standard"\n',
    "hmac": (
        'scheme = "hmac"\nsignature = "header:sim-signature|v1=([0-9a-f]+)"\n'
        'timestamp = "header:sim-signature|t=([0-9]+)"\nsigned = "{timestamp}.{body}"\nevent_id = "/id"\n'
    ),
}


_READING: Final = f"""\
state = "/data/state"
error = "/data/error"

[webhook.states]
{STATES}"""


def webhook_text(scheme: str, secret: str = REFERENCE, *, decides: bool = False) -> str:
    """Return the part of a contract with which the simulator's webhooks are received.

    `secret` is the reference under which its secret is found; with `decides` they are read, for a contract that says
    ``status = "none"``. Raises KeyError for an unknown scheme.
    """
    where = 'event_type = "/type"\njob_id = "/data/id"\ntoken = "/data/client_ref"\n'
    return f'\n[webhook]\n{_CONTRACTS[scheme]}secret = "{secret}"\n{where}{_READING if decides else ""}'


@dataclass(frozen=True, slots=True)
class Account:
    """Where webhooks go, and how."""

    to: str
    scheme: str = "standard"
    manner: str = "plain"
    secret: str = WEBHOOK_SECRET
    follow: bool = True  #: send by itself; else only what is asked for


class Hooks:
    """Sends events. Jobs tell nobody when they change, so whoever sends looks at them."""

    def __init__(self, jobs: Jobs, clock: Clock, post: Post) -> None:
        self._jobs = jobs
        self._clock = clock
        self._post = post
        self._account: Account | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.sent: list[dict[str, Any]] = []

    def routes(self) -> list[Route]:
        """The back door's routes."""
        return [
            Route("/_webhooks", self._register, methods=["POST"]),
            Route("/_webhooks", self._list, methods=["GET"]),
            Route("/_deliver", self._deliver, methods=["POST"]),
        ]

    async def created(self, job: Job) -> None:
        """A job was started and its create is not answered yet."""
        account = self._account
        if account is None or not account.follow:
            return
        if account.manner == "early":
            await self._send(account, job, ["queued", "running", "succeeded"])
            return
        task = asyncio.create_task(self._follow(account, job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, account: Account, job: Job) -> None:
        if account.manner != "reordered":
            await self._send(account, job, ["queued", "running"])
        while job.word(self._clock.monotonic()) not in FINAL_WORDS:
            await self._post.pause(LOOK)
            if self._post.closing.is_set():
                return
        if account.manner == "late":
            await self._post.pause(LATE)
        last = job.word(self._clock.monotonic())
        await self._send(account, job, ["queued", "running", last] if account.manner == "reordered" else [last])

    async def _send(
        self, account: Account, job: Job, words: Sequence[str], more: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        told = []
        for word, attempt in _order(account.manner, words):
            event = f"evt_{hashlib.sha256(f'{job.id}/{word}/{account.manner}'.encode()).hexdigest()[:16]}"
            body = _body(job, event, word, more or {}, stranger=account.manner == "stranger")
            at = self._clock.now().timestamp() - (REPLAYED if account.manner == "replayed" else 0) + attempt
            headers = sign(account, event, int(at), body)
            entry: dict[str, Any] = {"event": word, "id": event, "status": None}
            self.sent.append(entry)
            told.append(entry)
            entry["status"] = await _post(account.to, headers, body)
        return told

    # --- the back door ----------------------------------------------------------------------------------------

    async def _register(self, request: Request) -> Response:
        told = await request.json()
        if told and (
            set(told) - {"to", "scheme", "manner", "secret", "follow"} or told.get("manner", "plain") not in MANNERS
        ):
            return JSONResponse({"error": f"give to, scheme, secret and a manner of {', '.join(MANNERS)}"}, 400)
        self._account = Account(**told) if told else None
        return JSONResponse({"ok": True})

    async def _list(self, _: Request) -> Response:
        return JSONResponse(self.sent)

    async def _deliver(self, request: Request) -> Response:
        told = await request.json()
        job, account = self._jobs.by_id.get(told["job"]), self._account
        if job is None or account is None:
            return JSONResponse({"error": "there is no such job, or nobody to tell (POST /_webhooks first)"}, 400)
        asked = replace(account, manner=told.get("manner", account.manner))
        return JSONResponse(await self._send(asked, job, told["events"], told.get("more")))


def _order(manner: str, words: Sequence[str]) -> Iterator[tuple[str, int]]:
    if manner == "lost":
        return
    for word in reversed(words) if manner == "reordered" else words:
        yield from ((word, attempt) for attempt in range(TIMES if manner == "duplicated" else 1))


def _body(job: Job, event: str, word: str, more: Mapping[str, Any], *, stranger: bool) -> bytes:
    data: dict[str, Any] = {"id": job.id, "client_ref": job.client_ref, "state": word}
    if word == "succeeded":
        data |= {"result_url": f"/{job.flavour}/jobs/{job.id}/result", "records": job.rows}
    data |= more
    if stranger:
        data = {"id": "job_of_a_stranger", "client_ref": "op_of_a_stranger", "state": word}
    return json.dumps({"id": event, "type": f"job.{word}", "data": data}).encode()


def sign(account: Account, event: str, at: int, body: bytes) -> dict[str, str]:
    """Return the headers of a delivery under the account's scheme."""
    secret = WEBHOOK_SECRET[:-8] + "Zm9yZ2Vk" if account.manner == "forged" else account.secret
    if account.scheme == "hmac":
        made = hmac.new(secret.encode(), f"{at}.".encode() + body, "sha256").hexdigest()
        return {"sim-signature": f"t={at},v1={made}"}
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = base64.b64encode(hmac.digest(key, f"{event}.{at}.".encode() + body, "sha256")).decode()
    return {"webhook-id": event, "webhook-timestamp": str(at), "webhook-signature": f"v1,{signature}"}


async def _post(url: str, headers: Mapping[str, str], body: bytes) -> int | None:
    """Send one POST by hand; returns the status, or None where there was no answer."""
    parts = urlsplit(url)
    lines = [f"POST {parts.path} HTTP/1.1", f"host: {parts.netloc}", "connection: close"]
    lines += [f"content-length: {len(body)}", "content-type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    try:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except OSError:
        return None
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        answer = await asyncio.wait_for(reader.read(65536), 20)
        return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else None
    except (OSError, TimeoutError):
        return None
    finally:
        writer.close()
