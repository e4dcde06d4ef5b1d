"""The simulator's HTTP face: read a request, write it down, act on it, and answer as its personality has it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route

from opledger.edges.clock import Clock, SystemClock
from opledger.rules.model import to_rfc3339
from opledger.sim.artefacts import lines_reply, outcomes, ranged
from opledger.sim.contracts import DEFAULT_TOKEN
from opledger.sim.control import Control
from opledger.sim.delivery import Holds, Parcel, Post, Receive, Send
from opledger.sim.faults import Fault, Scene, cancel_fault, create_fault, result_fault, status_fault
from opledger.sim.flavours import FLAVOURS, Flavour
from opledger.sim.hooks import Hooks
from opledger.sim.jobs import FINAL_WORDS, Job, Jobs, Order, Outcome, Wish
from opledger.sim.log import Arrival, Entry, Log, is_right
from opledger.sim.personalities import PERSONALITIES, draw, draw_variant
from opledger.sim.protocol import Lines
from opledger.sim.reading import Unreadable, read_order
from opledger.sim.replies import Reply, error_reply, json_reply
from opledger.sim.tokens import Issuer

VISIBLE_AFTER: Final = 0.4  #: seconds until a hidden job shows up in the list
UNKNOWN_JOB: Final = error_reply(404, "not_found", "No such job.")


@dataclass(frozen=True, slots=True)
class Settings:
    """How the simulator behaves. `faults` are weights by personality; `token` is the credential it wants to see."""

    seed: int = 0
    faults: dict[str, float] = field(default_factory=lambda: {"ideal": 1.0})
    token: str = DEFAULT_TOKEN
    page_size: int = 20


class Sim:
    """The provider on one origin and a stranger on another (`elsewhere`), told apart by port."""

    def __init__(self, settings: Settings, lines: Lines, ports: tuple[int, int], clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.base_url, self.elsewhere = (f"http://127.0.0.1:{port}" for port in ports)
        self._foreign_port = ports[1]
        self.log = Log(settings.token)
        self.jobs = Jobs(settings.seed)
        self.holds = Holds()
        self.post = Post(lines, self.log, self.holds)
        self.issuer = Issuer(settings.token, self.clock)
        self.control = Control(self.jobs, self.log, self.holds, self.clock, self.issuer)
        self.hooks = Hooks(self.jobs, self.clock, self.post)
        jobs = "/{flavour}/jobs"
        job = jobs + "/{job_id}"
        self._app = Starlette(
            routes=[
                *self.control.routes(self.base_url, self.elsewhere),
                *self.hooks.routes(),
                Route("/oauth/token", self.token, methods=["POST"]),
                Route(jobs, self.create, methods=["POST"]),
                Route(jobs, self.list_jobs, methods=["GET"]),
                Route("/singleton/current", self.current, methods=["GET"]),
                Route(job, self.status, methods=["GET"]),
                Route(job, self.cancel, methods=["DELETE"]),
                Route(job + "/cancel", self.cancel, methods=["POST"]),
                Route(job + "/result", self.result, methods=["GET"]),
                Route(job + "/errors", self.result, methods=["GET"]),
            ]
        )
        everything = ["GET", "POST", "PUT", "PATCH", "DELETE"]
        self._stranger = Starlette(routes=[Route("/{path:path}", self.foreign, methods=everything)])

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """The ASGI entry: which origin was called?"""
        foreign = scope["type"] == "http" and scope["server"][1] == self._foreign_port
        try:
            await (self._stranger if foreign else self._app)(scope, receive, send)
        except ClientDisconnect:
            return  # it was gone before its request was whole: nothing was done, and nobody waits for an answer

    # --- create ---------------------------------------------------------------------------------------------------

    async def create(self, request: Request) -> Parcel:
        """``POST /{flavour}/jobs``."""
        body = await request.body()
        entry = self._note("create", request, body)
        flavour = FLAVOURS.get(request.path_params["flavour"])
        if flavour is None:
            return self._send(UNKNOWN_JOB, None, entry)
        try:
            order = read_order(flavour, request.headers, request.query_params, body)
        except Unreadable as error:
            return self._send(error_reply(400, "malformed", f"The body is not JSON: {error}"), None, entry)
        entry.update(token=order.token, client_ref=order.client_ref)
        if not self._knows(request, entry):
            return self._send(self._who_are_you(), None, entry)
        if flavour.client_id and order.token is None:
            return self._send(error_reply(422, "id_missing", f"{flavour.token} is missing."), None, entry)
        wish = self._wish(order)
        wish.creates += 1
        entry.update(personality=wish.personality, variant=wish.variant)
        scene = self._scene(wish, wish.creates, request)
        fault = self.control.next_fault("create") or create_fault(scene)
        if fault is not None and fault.before:
            self._mark_refusal(wish, fault)
            return self._send(error_reply(500, "internal", "Something broke."), fault, entry)
        parcel = self._act(order, wish, fault, scene, entry)
        if entry["started"]:
            await self.hooks.created(self.jobs.by_id[entry["job_id"]])
        return parcel

    def _act(self, order: Order, wish: Wish, fault: Fault | None, scene: Scene, entry: Entry) -> Parcel:
        outcome, job = self.jobs.start_or_find(wish, order, self.clock.monotonic(), self.clock.now())
        entry.update(effect=outcome, started=outcome == "started", job_id=None if job is None else job.id)
        reply, document = self._create_reply(outcome, order.flavour, wish, job)
        if fault is not None and fault.reply is not None and fault.reply.status == 202:
            fault = create_fault(replace(scene, document=document))  # it dresses up the honest answer
        if outcome != "started":
            return self._send(reply, fault, entry)
        wish.in_flight += 1

        def sent() -> None:
            wish.in_flight -= 1

        return self._send(reply, fault, entry, sent)

    def _create_reply(
        self, outcome: Outcome, flavour: Flavour, wish: Wish, job: Job | None
    ) -> tuple[Reply, dict[str, Any]]:
        document = {} if job is None else self._document(job)
        match outcome:
            case "started":
                wish.first_document = document
                return json_reply(200 if flavour.inline else 202, document), document
            case "repeated" if flavour.repeat == "current" or wish.first_document is None or wish.variant == "failed":
                mark = () if flavour.repeat == "current" else (("idempotent-replayed", "true"),)
                return json_reply(200 if flavour.repeat == "current" else 202, document, *mark), document
            case "repeated":
                first = wish.first_document or document
                status = 200 if flavour.inline else 202
                return json_reply(status, first, ("idempotent-replayed", "true")), first
            case "mismatch":
                message = "This token was used with another body."
                return error_reply(422, "idempotency_mismatch", message), document
            case "in_flight":
                return error_reply(409, "in_progress", "The first request is still being handled."), document
            case "busy":
                return error_reply(409, "busy", "A job is running.", id=document["id"]), document
            case "conflict":
                return error_reply(409, "already_exists", "There is such a job.", id=document["id"]), document

    def _wish(self, order: Order) -> Wish:
        key = order.token or order.client_ref or f"unnamed-{len(self.jobs.wishes)}"
        known = self.jobs.wishes.get((order.flavour.name, key))
        if known is not None:
            return known
        seed = (self.settings.seed, order.client_ref or key)
        asked = str(order.fields.get("_personality"))
        name = asked if asked in PERSONALITIES else self.control.planned() or draw(self.settings.faults, *seed)
        variant = str(order.fields.get("_variant"))
        if variant not in PERSONALITIES[name].variants:
            variant = PERSONALITIES[name].variants[0] if asked == name else draw_variant(name, *seed)
        wish = self.jobs.wishes[order.flavour.name, key] = Wish(key, name, variant)
        return wish

    async def token(self, request: Request) -> Parcel:
        """``POST /oauth/token``: an access token for the client that knows the secret."""
        body = await request.body()
        entry = self._note("token", request, body)
        fault = self.control.next_fault("token")
        if fault is not None and fault.before:
            return self._send(error_reply(500, "internal", "Something broke."), fault, entry)
        reply, entry["access"] = self.issuer.answer(request.headers, body)
        entry["effect"] = "refused" if entry["access"] is None else "issued"
        return self._send(reply, fault, entry)

    # --- reads and cancel -----------------------------------------------------------------------------------------

    async def status(self, request: Request) -> Parcel:
        """``GET /{flavour}/jobs/{id}``."""
        entry = self._note("status", request)
        job = self._job(request, entry)
        if not self._knows(request, entry):
            return self._send(self._who_are_you(), None, entry)
        if job is None:
            return self._send(UNKNOWN_JOB, None, entry)
        job.reads += 1
        document = self._document(job)
        entry["effect"] = document["state"]
        scene = replace(self._scene(job, job.reads, request), job_id=job.id, document=document)
        fault = self.control.next_fault("status") or status_fault(scene)
        self._mark_refusal(job, fault)
        return self._send(json_reply(200, document), fault, entry)

    async def cancel(self, request: Request) -> Parcel:
        """``DELETE /{flavour}/jobs/{id}``, or ``POST …/cancel``."""
        entry = self._note("cancel", request, await request.body())
        job = self._job(request, entry)
        if not self._knows(request, entry):
            return self._send(self._who_are_you(), None, entry)
        if job is None:
            return self._send(UNKNOWN_JOB, None, entry)
        scene = replace(self._scene(job, job.cancels + 1, request), job_id=job.id)
        fault = self.control.next_fault("cancel") or cancel_fault(scene)
        if fault is not None and fault.before:
            return self._send(error_reply(500, "internal", "Something broke."), fault, entry)
        verdict = self.jobs.cancel(job, self.clock.monotonic())
        entry["effect"] = verdict
        now = {"id": job.id, "state": job.word(self.clock.monotonic())}
        match verdict:
            case "finished":
                reply = error_reply(409, "already_finished", "The job has ended.", **now, accepted=False)
            case "refused":
                reply = error_reply(409, "not_cancellable", "The job cannot be cancelled now.", **now, accepted=False)
            case "refused_politely":
                reply = json_reply(200, {**now, "accepted": False})
            case _:
                reply = json_reply(202, {"id": job.id, "state": "cancelling", "accepted": True})
        return self._send(reply, fault, entry)

    async def result(self, request: Request) -> Parcel:
        """``GET /{flavour}/jobs/{id}/result``, and ``…/errors`` of a batch."""
        entry = self._note("result", request)
        job = self._job(request, entry)
        if not self._knows(request, entry):
            return self._send(self._who_are_you(), None, entry)
        if job is None:
            return self._send(UNKNOWN_JOB, None, entry)
        flavour = FLAVOURS[job.flavour]
        if job.word(self.clock.monotonic()) not in (FINAL_WORDS if flavour.batch else {"succeeded"}):
            return self._send(error_reply(409, "not_ready", "The job has not ended."), None, entry)
        job.result_reads += 1
        if flavour.once and job.result_reads > 1:
            return self._send(error_reply(410, "used_up", "The result was read already."), None, entry)
        signature = request.query_params.get("sig")
        scene = self._scene(job, job.result_reads, request)
        fault = self.control.next_fault("result") or result_fault(replace(scene, job_id=job.id, signature=signature))
        if fault is not None and fault.note == "address expired":
            job.signature = 1  # the next status read gives a fresh address
        if flavour.batch:
            files = outcomes(job.items, job.personality, job.variant, job.word(self.clock.monotonic()))
            return self._send(lines_reply(files[request.url.path.endswith("/errors")]), fault, entry)
        reply = self._result_reply(job)
        if job.personality == "breaking":
            reply = ranged(reply, request.headers, ignores_ranges=job.variant == "restarts")
        return self._send(reply, fault, entry)

    async def list_jobs(self, request: Request) -> Parcel:
        """``GET /{flavour}/jobs?client_ref=…&name=…&limit=…&cursor=…``: ``{"data": […], "next": cursor or null}``."""
        entry = self._note("list", request)
        query = request.query_params
        entry["client_ref"] = query.get("client_ref")
        flavour = FLAVOURS.get(request.path_params["flavour"])
        if flavour is None or not flavour.lists:
            return self._send(UNKNOWN_JOB, None, entry)
        if not self._knows(request, entry):
            return self._send(self._who_are_you(), None, entry)
        now = self.clock.monotonic()
        found = [
            job
            for job in self.jobs.listed
            if job.flavour == flavour.name
            and query.get("client_ref") in (None, job.client_ref)
            and query.get("name") in (None, job.name)
            and (job.personality != "hidden" or now - job.created + job.skew > VISIBLE_AFTER)
        ]
        limit = _number(query.get("limit"), self.settings.page_size)
        start = _number(query.get("cursor"), 0)
        after = start + max(1, limit)
        cursor = str(after) if after < len(found) else None
        if self.control.list_loops:
            cursor = "0"
        data = [self._document(job) for job in found[start:after]]
        fault = self.control.next_fault("list")
        return self._send(json_reply(200, {"data": data, "next": cursor}), fault, entry)

    async def current(self, request: Request) -> Parcel:
        """``GET /singleton/current``: the job that runs, or the one that ran last."""
        entry = self._note("list", request)
        if not self._knows(request, entry):
            return self._send(self._who_are_you(), None, entry)
        job = self.jobs.latest("singleton")
        none = error_reply(404, "no_job", "No job has run yet.")
        reply = none if job is None else json_reply(200, self._document(job))
        return self._send(reply, self.control.next_fault("list"), entry)

    async def foreign(self, request: Request) -> Parcel:
        """The other origin: it hands out results, and tempts whoever followed any other redirect."""
        entry = self._note("foreign", request, await request.body(), origin="elsewhere")
        path = request.path_params["path"]
        job = self.jobs.by_id.get(path.removeprefix("results/")) if path.startswith("results/") else None
        if job is not None:
            entry["job_id"] = job.id
            return self._send(self._result_reply(job), self.control.next_fault("foreign"), entry)
        bait = {"id": "job_trap", "state": "succeeded", "result_url": f"{self.elsewhere}/trap/result"}
        return self._send(json_reply(200, bait), None, entry)

    # --- shared ---------------------------------------------------------------------------------------------------

    def _note(self, kind: str, request: Request, body: bytes = b"", *, origin: str = "provider") -> Entry:
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]
        peer = None if request.client is None else request.client.host
        arrival = Arrival(kind, origin, request.method, request.url.path, request.url.query, headers, body, peer)
        return self.log.arrived(arrival, self.clock.now(), request.path_params.get("flavour"))

    def _send(self, reply: Reply, fault: Fault | None, entry: Entry, done: Any = None) -> Parcel:
        return self.post.parcel(reply, fault, entry, done)

    def _knows(self, request: Request, entry: Entry) -> bool:
        right = is_right(request.headers, request.query_params, self.settings.token)
        entry["access"] = self.issuer.recognises(request.headers)
        right = right or entry["access"] is not None
        return right and not self.control.credentials_revoked

    def _who_are_you(self) -> Reply:
        challenge = ("www-authenticate", 'Bearer realm="sim"')
        return error_reply(401, "unauthorized", "The credentials are missing or wrong.", challenge)

    def _job(self, request: Request, entry: Entry) -> Job | None:
        job = self.jobs.by_id.get(request.path_params["job_id"])
        if job is None or job.flavour != request.path_params["flavour"]:
            return None
        entry.update(
            job_id=job.id,
            token=job.token,
            client_ref=job.client_ref,
            personality=job.personality,
            variant=job.variant,
        )
        return job

    def _scene(self, about: Wish | Job, nth: int, request: Request) -> Scene:
        refused = about.first_refusal
        return Scene(
            personality=about.personality,
            variant=about.variant,
            nth=nth,
            now=self.clock.now(),
            elsewhere=self.elsewhere,
            authorization=request.headers.get("authorization", ""),
            refused_for=None if refused is None else self.clock.monotonic() - refused,
        )

    def _mark_refusal(self, about: Wish | Job, fault: Fault | None) -> None:
        if about.first_refusal is None and fault is not None and fault.note == "credentials refused":
            about.first_refusal = self.clock.monotonic()

    def _document(self, job: Job) -> dict[str, Any]:
        now = self.clock.monotonic()
        word = job.word(now)
        if word != job.last_word:
            job.last_word, job.updated_at = word, self.clock.now()
        done = word == "succeeded"
        address = f"{self.base_url}/{job.flavour}/jobs/{quote(job.id, safe='')}"
        document = {
            "id": job.id,
            "state": word,
            "status_url": address,
            "progress": {"completed": job.rows if done else int(job.rows * job.share(now)), "total": job.rows},
            "result_url": f"{address}/result?sig={job.signature + 1}" if done else None,
            "records": job.rows if done else None,
            "error": job.error(),
            "client_ref": job.client_ref,
            "name": job.name,
            "created_at": to_rfc3339(job.created_at),
            "updated_at": to_rfc3339(job.updated_at),
            **job.forced,
        }
        flavour = FLAVOURS[job.flavour]
        if flavour.inline:
            document["output"] = {"records": job.rows, "reference": job.client_ref}
        if flavour.batch:
            document |= self._batch(job, address, word)
        return document

    def _batch(self, job: Job, address: str, word: str) -> dict[str, Any]:
        """What the status of a batch says of its files: null for one that has nothing in it."""
        output, errors = outcomes(job.items, job.personality, job.variant, word) if word in FINAL_WORDS else ([], [])
        return {
            "output_url": f"{address}/result?sig={job.signature + 1}" if output else None,
            "error_url": f"{address}/errors?sig={job.signature + 1}" if errors else None,
            "counts": {"total": len(job.items), "completed": len(output), "failed": len(errors)},
        }

    def _result_reply(self, job: Job) -> Reply:
        content, content_type = job.result()
        headers = (("x-checksum-sha256", sha256(content).hexdigest()), ("x-record-count", str(job.rows)))
        return Reply(200, content, headers, content_type)


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() else default
