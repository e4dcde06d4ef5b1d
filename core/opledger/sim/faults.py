"""Which fault strikes which request: pure functions from a scene to a `Fault`, which `app` then carries out.

`nth` counts the requests of this kind for this wish or job, from 1, so a personality can misbehave first and behave
afterwards; nothing here depends on chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Any, Final
from urllib.parse import quote

from opledger.sim.hostile import hostile_create, hostile_status
from opledger.sim.replies import Reply, error_reply, json_reply

REFUSED_FOR: Final = 0.8  #: seconds for which credentials are refused, counted from the first refusal
SILENCE: Final = 2.5  #: seconds of silence that outlast the status timeout of the simulator's own contracts
LATE: Final = 0.25
DRIP: Final = 0.4


@dataclass(frozen=True, slots=True)
class Scene:
    """What a fault may depend on."""

    personality: str
    variant: str
    nth: int
    now: datetime
    job_id: str = ""
    elsewhere: str = ""  #: the other origin, as http://host:port
    authorization: str = ""  #: what the client sent, for a provider that repeats it
    refused_for: float | None = None  #: seconds since its credentials were first refused
    signature: str | None = None  #: the signature in the result address that was used
    document: Mapping[str, Any] = field(default_factory=dict)  #: the honest answer


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `note` goes into the log. `before`: it strikes before the request has any effect."""

    note: str
    before: bool = False
    drop: bool = False  #: abort the connection without a byte
    cut: bool = False  #: send half of the answer, then close the connection
    delay: float = 0.0  #: seconds before the first byte
    drip: float = 0.0  #: seconds over which the body is spread
    reply: Reply | None = None  #: sent in place of the honest answer
    headers: tuple[tuple[str, str], ...] = ()  #: added to the answer


def create_fault(scene: Scene) -> Fault | None:
    """The fault of the `nth` create of a wish."""
    first = scene.nth == 1
    match scene.personality, scene.variant:
        case ("lossy" | "token_ignoring", _) | ("replaying", "failed") if first:
            return Fault("answer dropped", drop=True)
        case "lossy_before", _ if first:
            return Fault("dropped before anything was done", before=True, drop=True)
        case "cut", "create" if first:
            return Fault("answer cut in half", cut=True)
        case "slow", _:
            return Fault("late and dripping", delay=LATE, drip=DRIP)
        case "throttling", _:
            return _throttled_create(scene)
        case "replaying", "error":
            marks = () if first else (("idempotent-replayed", "true"),)
            return Fault(
                "stored 500",
                before=True,
                reply=error_reply(500, "internal", "The export service failed.", *marks),
            )
        case "redirecting", "create" if first:
            return _redirect(scene, 307, f"{scene.elsewhere}/trap/jobs")
        case "refusing", _:
            return Fault(
                "refused for good",
                before=True,
                reply=error_reply(422, "account_closed", "The account is closed; nothing was started."),
            )
        case "unauthorized", "create":
            return _unauthorized(scene)
        case "credential_echo", "create":
            return Fault("credentials echoed", before=True, reply=_echo(scene, 400))
        case "hostile", _:
            return Fault("hostile create answer", reply=hostile_create(scene.document))
        case _:
            return None


def status_fault(scene: Scene) -> Fault | None:
    """The fault of the `nth` status read of a job."""
    match scene.personality, scene.variant:
        case "hidden", _ if scene.nth <= 3 or scene.nth == 5:
            return Fault("not visible", reply=error_reply(404, "not_found", "No such job."))
        case "flapping", _:
            return _flap(scene)
        case "throttling", _:
            return _throttled_status(scene)
        case "slow", _:
            return Fault("late and dripping", delay=LATE / 2, drip=DRIP / 2)
        case "redirecting", "status" if scene.nth <= 3:
            target = f"{scene.elsewhere}/trap/jobs/{quote(scene.job_id, safe='')}"
            return _redirect(scene, (302, 307, 301)[scene.nth - 1], target)
        case "unauthorized", "status":
            return _unauthorized(scene)
        case "credential_echo", "status" if scene.nth <= 2:
            return Fault("credentials echoed", reply=_echo(scene, 500 if scene.nth == 1 else 400))
        case "hostile", _:
            reply = hostile_status(scene.document, scene.nth)
            return None if reply is None else Fault("hostile status answer", reply=reply)
        case "id_changing", _ if scene.nth >= 2:
            changed = {**scene.document, "id": "job_of_somebody_else"}
            return Fault("another job's id", reply=json_reply(200, changed))
        case "unknown_words", variant:
            return _unknown_word(scene, variant)
        case _:
            return None


def cancel_fault(scene: Scene) -> Fault | None:
    """The fault of the `nth` cancel of a job. What the cancel *does* is the job's own affair."""
    match scene.personality, scene.variant:
        case "cancellable", "lossy" if scene.nth == 1:
            return Fault("answer dropped", drop=True)
        case "slow", _:
            return Fault("late", delay=LATE)
        case _:
            return None


def result_fault(scene: Scene) -> Fault | None:
    """The fault of the `nth` result read of a job."""
    first = scene.nth == 1
    match scene.personality, scene.variant:
        case ("cut", "result") | ("breaking", _) if first:
            return Fault("result cut in half", cut=True)
        case "slow", _:
            return Fault("dripping", drip=DRIP)
        case "redirecting", ("result" | "foreign") as variant:
            host = scene.elsewhere if variant == "result" else scene.elsewhere.replace("127.0.0.1", "localhost")
            return _redirect(scene, 302, f"{host}/results/{quote(scene.job_id, safe='')}")
        case "expiring", variant:
            return _expiring(scene, variant)
        case "bad_checksum", variant if first or variant == "always":
            return Fault("wrong checksum", headers=(("x-checksum-sha256", "0" * 64),))
        case _:
            return None


def _throttled_create(scene: Scene) -> Fault | None:
    waits = {1: "1", 2: "soon"}
    if scene.nth not in waits:
        return None
    reply = error_reply(429, "rate_limited", "Too many requests.", ("retry-after", waits[scene.nth]))
    return Fault("throttled", before=True, reply=reply)


def _throttled_status(scene: Scene) -> Fault | None:
    match scene.nth:
        case 1:
            date = format_datetime(scene.now + timedelta(seconds=1), usegmt=True)
            reply = error_reply(429, "rate_limited", "Too many requests.", ("retry-after", date))
        case 2:
            reply = error_reply(503, "busy", "Try again later.", ("retry-after", "1"))
        case 3 | 4:
            rubbish = "-3" if scene.nth == 3 else "120junk"
            return Fault("Retry-After is rubbish", headers=(("retry-after", rubbish),))
        case _:
            return None
    return Fault("throttled", reply=reply)


def _flap(scene: Scene) -> Fault | None:
    match scene.nth:
        case 1:
            return Fault("500", reply=error_reply(500, "internal", "Something broke."))
        case 2:
            page = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
            return Fault("502 in HTML", reply=Reply(502, page, content_type="text/html"))
        case 3:
            return Fault("dropped", drop=True)
        case 4:
            return Fault("silence", delay=SILENCE)
        case _:
            return None


def _unauthorized(scene: Scene) -> Fault | None:
    if scene.refused_for is not None and scene.refused_for > REFUSED_FOR:
        return None
    reply = error_reply(
        401, "token_expired", "The token has expired.", ("www-authenticate", 'Bearer error="invalid_token"')
    )
    return Fault("credentials refused", before=True, reply=reply)


def _echo(scene: Scene, status: int) -> Reply:
    message = f"could not parse header Authorization: {scene.authorization}"
    return error_reply(status, "bad_header", message, ("x-debug-authorization", scene.authorization))


def _redirect(scene: Scene, status: int, target: str) -> Fault:
    reply = Reply(status, b"", (("location", target),), None)
    return Fault(f"redirected with {status} to another origin", reply=reply)


_STRANGE: Final[tuple[Any, ...]] = ("Retry", "pending_review", None, 7, "PAUSED by operator")


def _unknown_word(scene: Scene, variant: str) -> Fault | None:
    """Unmapped words, a null, a number, no word at all; then the truth, or one strange word for ever."""
    if variant == "last" and scene.nth > len(_STRANGE):
        said: dict[str, Any] = {**scene.document, "state": "archived", "result_url": None}
        return Fault("unknown last word", reply=json_reply(200, said))
    if scene.nth > len(_STRANGE) + 1:
        return None
    said = {**scene.document, "result_url": None}
    del said["state"]
    if scene.nth <= len(_STRANGE):
        said["state"] = _STRANGE[scene.nth - 1]
    return Fault("unknown word", reply=json_reply(200, said))


_DENIED: Final = (
    b'<?xml version="1.0" encoding="UTF-8"?>'
    b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"
)


def _expiring(scene: Scene, variant: str) -> Fault | None:
    match variant, scene.nth:
        case "gone", _:
            return Fault("gone for good", reply=error_reply(410, "gone", "Results are kept for one hour."))
        case "late", 1 | 2:
            status = 404 if scene.nth == 1 else 425
            return Fault("not there yet", reply=error_reply(status, "not_ready", "Not there yet."))
        case "empty", 1:
            return Fault("empty at first", reply=Reply(200, b"", (("content-length", "0"),), "text/csv"))
        case "fresh", _ if scene.signature == "1" or (scene.signature is None and scene.nth == 1):
            return Fault("address expired", reply=Reply(403, _DENIED, (), "application/xml"))
        case _:
            return None
