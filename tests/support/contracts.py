"""Contracts as values, for tests: one reports API like the documented example, and ways to make it worse."""

from __future__ import annotations

import functools
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from opledger.rules.contract import (
    Auth,
    Cancel,
    Contract,
    Create,
    Deadlines,
    Idempotency,
    Limits,
    Poll,
    Result,
    Status,
    StatusRule,
    Strategy,
)
from opledger.rules.model import Means
from opledger.rules.values import Condition, Pick, Template

NAMES: Final = frozenset({"status", "headers", "body", "operation", "item", "row"})

WORDS: Final = {
    "queued": Means.QUEUED,
    "running": Means.RUNNING,
    "processing": Means.RUNNING,
    "review": Means.WAITING_HUMAN,
    "cancelling": Means.CANCELLING,
    "succeeded": Means.SUCCEEDED,
    "partial": Means.PARTIAL,
    "failed": Means.FAILED,
    "cancelled": Means.CANCELLED,
    "canceled": Means.CANCELLED,
    "expired": Means.EXPIRED,
    "deleted": Means.GONE,
}


@functools.cache
def when(text: str) -> Condition:
    """A CEL condition."""
    return Condition.parse(text, NAMES)


def at(text: str) -> Pick:
    """A pick: a JSON Pointer or ``header:NAME``."""
    return Pick.parse(text)


def text(template: str) -> Template:
    """A template with any names."""
    return Template.parse(template, lambda _: True)


TOKEN: Final = Idempotency(
    mechanism="header",
    name="Idempotency-Key",
    memory=timedelta(hours=24),
    same_body="replay_original",
    duplicate_when=when("status == 409"),
    mismatch_when=when('status == 422 && body.code == "idempotency_mismatch"'),
    in_flight_when=when('status == 409 && body.code == "in_progress"'),
    replay_marker=at("header:idempotent-replayed"),
)
"""A token in a header, remembered for a day; every way to answer it is named."""

CREATE: Final = Create(
    method="POST",
    path=text("/v1/reports"),
    job_id=(at("/job_id"),),
    remote_state=at("/state"),
    status_url=at("/status_url"),
    fields={"/client_ref": text("{operation_id}")},
    idempotency=TOKEN,
)

RESEND: Final = Strategy("resend")
LIST: Final = Strategy(
    "list",
    path=text("/v1/reports"),
    query={"client_ref": text("{operation_id}")},
    items=at("/data"),
    item_id=at("/job_id"),
    match=when("item.client_ref == operation.operation_id"),
    item_state=at("/state"),
    item_created_at=at("/created_at"),
    next_page=at("/next"),
    page_param="cursor",
    visibility_lag=timedelta(seconds=30),
    absence_is_proof=True,
    settle=timedelta(minutes=1),
)
GET: Final = Strategy(
    "get",
    path=text("/v1/reports/{token}"),
    item_id=at("/job_id"),
    item_state=at("/state"),
    absence_is_proof=True,
    settle=timedelta(minutes=1),
)
SINGLETON: Final = Strategy("singleton", path=text("/v1/current"), item_id=at("/job_id"), item_state=at("/state"))

STATUS: Final = Status(
    path=text("/v1/jobs/{job_id}"),
    job_id=at("/job_id"),
    state=(at("/state"),),
    updated_at=at("/updated_at"),
    progress={"completed": at("/progress/completed"), "total": at("/progress/total")},
    error=(at("/error/code"), at("/error/message")),
    words=WORDS,
)

CANCEL: Final = Cancel(method="DELETE", path=text("/v1/jobs/{job_id}"))

RESULT: Final = Result(
    url=at("/result_url"),
    not_ready_when=when("status in [202, 404, 409, 425]"),
    content_type=("text/csv",),
    format="csv",
)


def a_contract(**parts: Any) -> Contract:
    """The reports API. Keyword arguments replace parts of the contract as a whole."""
    whole: dict[str, Any] = {
        "name": "reports",
        "digest": "sha256:" + "c" * 64,
        "base_url": "https://api.example.com",
        "create": CREATE,
        "source": "",
        "auth": Auth("bearer", "env:REPORTS_TOKEN"),
        "request_id_headers": ("X-Request-Id",),
        "reconcile": (RESEND,),
        "status": STATUS,
        "poll": Poll(hints=(at("header:retry-after"), at("/poll_after_seconds"))),
        "cancel": CANCEL,
        "result": RESULT,
        "deadlines": Deadlines(),
    }
    return Contract(**{**whole, **parts})


def with_token(**changes: Any) -> Contract:
    """The reports API with another idempotency section."""
    return a_contract(create=replace(CREATE, idempotency=replace(TOKEN, **changes)))


def with_create(**changes: Any) -> Contract:
    """The reports API with another create section."""
    return a_contract(create=replace(CREATE, **changes))


def with_status(**changes: Any) -> Contract:
    """The reports API with another status section."""
    return a_contract(status=replace(STATUS, **changes))


def with_cancel(**changes: Any) -> Contract:
    """The reports API with another cancel section."""
    return a_contract(cancel=replace(CANCEL, **changes))


def with_limits(throttled_when: str) -> Contract:
    """The reports API with its own sign of being throttled."""
    return a_contract(limits=Limits(throttled_when=when(throttled_when)))


def rule(condition: str, means: Means) -> StatusRule:
    """A status rule."""
    return StatusRule(when(condition), means)
