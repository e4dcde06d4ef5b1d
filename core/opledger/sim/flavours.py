"""The same job API under several prefixes, each with another way to recognise a repeated create."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

TokenPlace = Literal["header", "query", "body", "none"]
Repeat = Literal["replay", "current", "conflict", "new", "busy"]


@dataclass(frozen=True, slots=True)
class Flavour:
    """One prefix of the simulator. `repeat` says what a second create under the same token meets:

    the stored first answer, the job as it stands now, 409 with the job's id, a new job, or "busy" (one job at a time).
    """

    name: str
    says: str
    place: TokenPlace
    token: str = ""  #: header name, query name, or top-level body field
    repeat: Repeat = "replay"
    lists: bool = False  #: GET /jobs exists
    client_id: bool = False  #: the token becomes the job's id
    inline: bool = False  #: the create answer already holds the result
    batch: bool = False  #: a job has items, each with an outcome of its own; also a job that failed leaves some
    once: bool = False  #: a result can be read once


def _table(*flavours: Flavour) -> dict[str, Flavour]:
    return {flavour.name: flavour for flavour in flavours}


FLAVOURS: Final[Mapping[str, Flavour]] = _table(
    Flavour("v1", "Idempotency-Key; list by client reference", "header", "idempotency-key", lists=True),
    Flavour("guarded", "as v1, a provider of its own", "header", "idempotency-key", lists=True),
    Flavour("header", "Idempotency-Key; nothing can be looked up", "header", "idempotency-key"),
    Flavour("none", "no token and no list: at most once cannot be shown", "none", repeat="new"),
    Flavour("clientid", "the client chooses the id", "body", "id", repeat="conflict", client_id=True),
    Flavour("query", "token in ?request_id=; answers with the job as it is", "query", "request_id", repeat="current"),
    Flavour("body", "token in the body; a list of everything, in pages", "body", "request_token", lists=True),
    Flavour("unique", "unique names; list by name", "body", "name", repeat="conflict", lists=True),
    Flavour("singleton", "one job at a time", "none", repeat="busy"),
    Flavour("batch", "outcomes by item, in two files", "header", "idempotency-key", lists=True, batch=True),
    Flavour("once", "a result can be read once", "header", "idempotency-key", once=True),
    Flavour("inline", "answers the create with the result", "header", "idempotency-key", inline=True),
)
