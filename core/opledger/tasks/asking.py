"""One read at a provider, through its contract: GET below the contract's own address, with its credentials."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from opledger.config import Settings, find_contract
from opledger.edges.clock import SystemClock
from opledger.edges.http import Http
from opledger.edges.secrets import SecretResolver
from opledger.errors import ConfigWrong
from opledger.rules import jsontext
from opledger.rules.calls import Answer, Failure, Request, origin_of
from opledger.rules.contract import Contract
from opledger.rules.tasks import templates
from opledger.rules.tasks.proofs import HttpCheck
from opledger.rules.values import ConditionError


class NoAnswer(Exception):
    """The provider did not say what the check waits for. The message says what it said, without its words."""


def read(settings: Settings, check: HttpCheck, outputs: templates.Outputs) -> Mapping[str, Any]:
    """Read once, and return the proof. Raises NoAnswer where the condition does not hold, ConfigWrong, NothingThere."""
    contract = find_contract(settings, check.contract)
    path = templates.fill_text(check.path, outputs, each=_segment)
    answer = asyncio.run(_send(settings, _request(contract, path)))
    if isinstance(answer, Failure):
        raise NoAnswer(f"{check.contract} could not be read: {answer.why}")
    try:
        body = jsontext.loads(answer.body) if answer.body else None
    except jsontext.JsonError:
        body = answer.body.decode("utf-8", "replace")
    try:
        holds = check.when.holds({"status": answer.status, "headers": dict(answer.headers), "body": body})
    except ConditionError as error:
        raise NoAnswer(f"{check.contract} answered {answer.status}, and {error}") from error
    if not holds:
        raise NoAnswer(f"{check.contract} answered {answer.status} to {path}, and {check.when.text!r} does not hold")
    sha256 = hashlib.sha256(answer.body).hexdigest()
    return {"http": check.contract, "path": path, "status": answer.status, "sha256": sha256, "when": check.when.text}


def _segment(value: str) -> str:
    if value in (".", ".."):
        raise templates.NothingThere(f"{value!r} cannot stand in a path")
    return quote(value, safe="")


def _request(contract: Contract, path: str) -> Request:
    names = {f"var.{name}": value for name, value in contract.var.items()}
    names.update({f"secret.{name}": f"{{secret.{name}}}" for name in contract.secrets})
    try:
        headers = tuple((name, template.fill(names)) for name, template in contract.headers.items())
    except KeyError as missing:
        raise ConfigWrong(f"{contract.name} fills {missing} into a header, which only an operation has") from missing
    return Request(
        "GET",
        contract.base_url.rstrip("/") + path,
        headers,
        auth=contract.auth,
        origin=origin_of(contract.base_url),
        secrets=contract.secrets,
        timeout=contract.status.timeout,
    )


async def _send(settings: Settings, request: Request) -> Answer | Failure:
    http = Http(SystemClock(), SecretResolver({**os.environ, **settings.environment}), max_connections=1)
    try:
        return await http.send(request)
    finally:
        await http.aclose()
