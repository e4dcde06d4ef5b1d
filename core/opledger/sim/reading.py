"""Reading a create request: body, token, client reference, and the options that steer the simulation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final
from urllib.parse import parse_qsl

from opledger.sim.flavours import Flavour
from opledger.sim.jobs import Order

_OPTIONS: Final = ("personality", "variant", "seconds", "polls", "format")


class Unreadable(Exception):
    """The body is not what its content type says."""


def read_order(flavour: Flavour, headers: Mapping[str, str], query: Mapping[str, str], body: bytes) -> Order:
    """Read a create request. Header names are lower-case.

    An option ``_personality`` in the body may also come as a header ``X-Sim-Personality``, and so on. Raises
    Unreadable for malformed JSON.
    """
    fields = _fields(headers.get("content-type", ""), body)
    for option in _OPTIONS:
        if f"x-sim-{option}" in headers:
            fields[f"_{option}"] = headers[f"x-sim-{option}"]
    return Order(
        flavour=flavour,
        token=_token(flavour, headers, query, fields),
        client_ref=_text(fields.get("client_ref") or headers.get("x-client-ref") or query.get("client_ref")),
        body_sha256=sha256(body).hexdigest(),
        fields=fields,
    )


def _fields(content_type: str, body: bytes) -> dict[str, Any]:
    if not body:
        return {}
    if content_type.startswith("application/x-www-form-urlencoded"):
        return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
    if not content_type.startswith("application/json"):
        return {}
    try:
        document = json.loads(body)
    except ValueError as error:
        raise Unreadable(str(error)) from error
    return dict(document) if isinstance(document, dict) else {}


def _token(
    flavour: Flavour, headers: Mapping[str, str], query: Mapping[str, str], fields: Mapping[str, Any]
) -> str | None:
    match flavour.place:
        case "header":
            return headers.get(flavour.token)
        case "query":
            return query.get(flavour.token)
        case "body":
            return _text(fields.get(flavour.token))
        case _:
            return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
