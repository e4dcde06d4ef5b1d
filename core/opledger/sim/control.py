"""The simulator's back door for tests, the demonstration and curious people: look at the truth, and steer it.

GET  /_log?after=N      what arrived, as an array
GET  /_wait?count=N&timeout=S&FIELD=VALUE…   answers once N entries have these values: ``{"count": …}``
GET  /_jobs             the jobs as they really are
GET  /_personalities    name -> what it does
GET  /_contract/NAME    the contract file for a flavour
POST /_control          one JSON object of commands, carried out in the order below
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from opledger.edges.clock import Clock
from opledger.rules.model import to_rfc3339
from opledger.sim.contracts import contract_text
from opledger.sim.delivery import Holds
from opledger.sim.faults import Fault
from opledger.sim.flavours import FLAVOURS
from opledger.sim.jobs import FINAL_WORDS, Job, Jobs
from opledger.sim.log import Log
from opledger.sim.personalities import PERSONALITIES
from opledger.sim.replies import JSON, Reply
from opledger.sim.tokens import Issuer

KINDS: Final = ("create", "status", "cancel", "result", "list", "token", "foreign")


class BadCommand(Exception):
    """The command cannot be carried out; the message says why."""


class Control:
    """Carries out control commands. Each command is a key of the posted object."""

    def __init__(self, jobs: Jobs, log: Log, holds: Holds, clock: Clock, issuer: Issuer) -> None:
        self._jobs = jobs
        self._log = log
        self._holds = holds
        self._clock = clock
        self._issuer = issuer
        self._plan: deque[str] = deque()
        self._next: dict[str, deque[Fault]] = {kind: deque() for kind in KINDS}
        self.credentials_revoked = False
        self.list_loops = False
        self._commands: dict[str, Callable[[Any], None]] = {
            "reset": self._reset,
            "plan": self._add_plan,
            "hold": self._hold,
            "release": self._release,
            "drop_next": self._drop,
            "drop_before_next": self._drop_before,
            "answer_next": self._answer,
            "advance": self._advance,
            "job": self._change_job,
            "revoke": self._revoke,
            "access": self._access,
            "list_loops": self._loop,
            "forget_tokens": self._forget,
        }

    def routes(self, base_url: str, elsewhere: str) -> list[Route]:
        """The back door's routes."""

        async def contract(request: Request) -> Response:
            name = request.path_params["name"]
            if name not in FLAVOURS:
                return PlainTextResponse(f"no such flavour; known are {', '.join(FLAVOURS)}\n", 404)
            return PlainTextResponse(contract_text(name, base_url, elsewhere=elsewhere))

        return [
            Route("/_log", self._get_log),
            Route("/_wait", self._get_wait),
            Route("/_jobs", self._get_jobs),
            Route("/_personalities", self._get_personalities),
            Route("/_contract/{name}", contract),
            Route("/_control", self._post_control, methods=["POST"]),
        ]

    def planned(self) -> str | None:
        """The personality planned for the next new wish."""
        return self._plan.popleft() if self._plan else None

    def next_fault(self, kind: str) -> Fault | None:
        """The fault ordered for the next request of this kind."""
        return self._next[kind].popleft() if self._next[kind] else None

    # --- looking --------------------------------------------------------------------------------------------------

    async def _get_log(self, request: Request) -> Response:
        after = request.query_params.get("after", "0")
        return JSONResponse(self._log.after(int(after) if after.isdigit() else 0))

    async def _get_wait(self, request: Request) -> Response:
        match = dict(request.query_params)
        count, timeout = int(match.pop("count", "1")), float(match.pop("timeout", "10"))
        return JSONResponse({"count": await self._log.wait(count, match, timeout)})

    async def _get_jobs(self, _: Request) -> Response:
        now = self._clock.monotonic()
        return JSONResponse([_truth(job, now) for job in self._jobs.by_id.values()])

    async def _get_personalities(self, _: Request) -> Response:
        return JSONResponse({personality.name: personality.does for personality in PERSONALITIES.values()})

    # --- steering -------------------------------------------------------------------------------------------------

    async def _post_control(self, request: Request) -> Response:
        try:
            commands = await request.json()
            self._obey(commands)
        except (BadCommand, ValueError) as error:
            return JSONResponse({"error": str(error)}, 400)
        held = [kind for kind, _ in self._holds.waiting.values()]
        return JSONResponse({"holding": sorted(self._holds.kinds), "held": held, "planned": list(self._plan)})

    def _obey(self, commands: Any) -> None:
        if not isinstance(commands, Mapping):
            raise BadCommand("send one JSON object of commands")
        unknown = sorted(set(commands) - set(self._commands))
        if unknown:
            raise BadCommand(f"{unknown[0]!r} is no command; known are {', '.join(self._commands)}")
        for name, command in self._commands.items():
            if name in commands:
                command(commands[name])

    def _reset(self, _: Any) -> None:
        """``"reset": true``: forget everything, as if just started."""
        self._holds.release()
        self._jobs.clear()
        self._log.clear()
        self._plan.clear()
        self._issuer.reset()
        for faults in self._next.values():
            faults.clear()
        self.credentials_revoked = self.list_loops = False

    def _add_plan(self, names: Any) -> None:
        """``"plan": ["lossy", …]``: personalities of the next new wishes that do not choose their own."""
        wanted = list(names) if isinstance(names, list) else [names]
        for name in wanted:
            if name not in PERSONALITIES:
                raise BadCommand(f"{name!r} is not a personality")
        self._plan.extend(wanted)

    def _hold(self, kinds: Any) -> None:
        """``"hold": "create"`` (or a list): act, but keep the answer back until it is released."""
        for kind in _kinds(kinds):
            self._holds.hold(kind)

    def _release(self, kinds: Any) -> None:
        """``"release": true`` (all) or a kind: let held answers go and hold no more."""
        for kind in (None,) if kinds is True else _kinds(kinds):
            self._holds.release(kind)

    def _drop(self, kinds: Any) -> None:
        """``"drop_next": "cancel"`` (or a list): act on the next request, then reset its connection."""
        for kind in _kinds(kinds):
            self._next[kind].append(Fault("answer dropped by order", drop=True))

    def _drop_before(self, kinds: Any) -> None:
        """``"drop_before_next": "create"``: reset the next request's connection without acting."""
        for kind in _kinds(kinds):
            self._next[kind].append(Fault("dropped by order before anything was done", before=True, drop=True))

    def _answer(self, answers: Any) -> None:
        """``"answer_next": {"kind", "status", "body", "headers", "content_type", "delay", "before"}`` (or a list).

        A body that is no string is sent as JSON. Without ``before`` the request is acted on, then answered so.
        """
        for answer in answers if isinstance(answers, list) else [answers]:
            known = {"kind", "status", "body", "headers", "content_type", "delay", "before", "cut"}
            if not isinstance(answer, Mapping) or set(answer) - known or "kind" not in answer:
                raise BadCommand(f"an answer is an object with kind and any of {', '.join(sorted(known))}")
            (kind,) = _kinds(answer["kind"])
            self._next[kind].append(_ordered(answer))

    def _advance(self, by: Any) -> None:
        """``"advance": 10`` seconds for all jobs, or ``{"job": ID, "seconds": 10}`` for one."""
        jobs, seconds = list(self._jobs.by_id.values()), by
        if isinstance(by, Mapping):
            jobs, seconds = [self._job(by.get("job"))], by.get("seconds")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise BadCommand(f"{seconds!r} is not a number of seconds")
        for job in jobs:
            job.skew += seconds

    def _change_job(self, change: Any) -> None:
        """``"job": {"id": ID, "state": WORD, "document": {…}}``: set its state; lay fields over its status answers."""
        if not isinstance(change, Mapping) or set(change) - {"id", "state", "document"}:
            raise BadCommand("a job change is an object with id, and state or document")
        job = self._job(change.get("id"))
        forced = {**job.forced, **(change.get("document") or {})}
        if "state" in change:
            forced.pop("state", None)
            job.final = change["state"] if change["state"] in FINAL_WORDS else None
            if job.final is None:
                forced["state"] = change["state"]
        job.forced = forced

    def _revoke(self, revoked: Any) -> None:
        """``"revoke": true``: refuse all credentials until ``false``."""
        self.credentials_revoked = bool(revoked)

    def _access(self, order: Any) -> None:
        """``"access": {"secret": S, "lifetime": 60, "said": 3600, "revoke": true}``: see `Issuer.obey`."""
        if not isinstance(order, Mapping) or set(order) - {"secret", "lifetime", "said", "revoke"}:
            raise BadCommand("an access order is an object with any of secret, lifetime, said, revoke")
        self._issuer.obey(order)

    def _loop(self, loops: Any) -> None:
        """``"list_loops": true``: every page of a list names the first page as the next."""
        self.list_loops = bool(loops)

    def _forget(self, _: Any) -> None:
        """``"forget_tokens": true``: as after the token memory's time; the same token then starts a new job."""
        self._jobs.forget_tokens()

    def _job(self, job_id: Any) -> Job:
        job = self._jobs.by_id.get(str(job_id))
        if job is None:
            raise BadCommand(f"there is no job {job_id!r}")
        return job


def _kinds(kinds: Any) -> list[str]:
    wanted = list(kinds) if isinstance(kinds, list) else [kinds]
    for kind in wanted:
        if kind not in KINDS:
            raise BadCommand(f"{kind!r} is no kind of request; known are {', '.join(KINDS)}")
    return wanted


def _ordered(answer: Mapping[str, Any]) -> Fault:
    body = answer.get("body", "")
    reply = Reply(
        status=int(answer.get("status", 200)),
        body=(body if isinstance(body, str) else json.dumps(body)).encode(),
        headers=tuple((str(name).lower(), str(value)) for name, value in dict(answer.get("headers", {})).items()),
        content_type=answer.get("content_type", JSON),
    )
    return Fault(
        "answered by order",
        before=bool(answer.get("before", False)),
        cut=bool(answer.get("cut", False)),
        delay=float(answer.get("delay", 0)),
        reply=reply if {"status", "body", "headers", "content_type"} & set(answer) else None,
    )


def _truth(job: Job, now: float) -> dict[str, Any]:
    return {
        "id": job.id,
        "flavour": job.flavour,
        "token": job.token,
        "client_ref": job.client_ref,
        "personality": job.personality,
        "variant": job.variant,
        "state": job.word(now),
        "reads": job.reads,
        "result_reads": job.result_reads,
        "cancels": job.cancels,
        "created_at": to_rfc3339(job.created_at),
    }
