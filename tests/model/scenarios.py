"""The small worlds: a contract, a provider and its manners, and how much may go wrong."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from opledger.rules.contract import Contract
from opledger.rules.files.contract import parse

T0: Final = datetime(2026, 11, 29, 12, tzinfo=UTC)
TICK: Final = timedelta(minutes=1)
"""The grain of time: a request arrives within one tick or never; a lease does not outlast the tick it is renewed in."""

MEMORY: Final = 3
"""Ticks for which the provider knows a token; the contract says the same."""

CREATE, RESULT, CANCEL, COLLECT, APPROVAL = 4, 5, 2, 2, 2
"""The five deadlines in ticks."""

_JOBS: Final = """\
name = "jobs"
base_url = "https://api.example.com"
[create]
method = "POST"
path = "/jobs"
job_id = "/id"
timeout = "60s"
fields = {{ "/ref" = "{{operation_id}}" }}
[create.idempotency]
{token}
{reconcile}
[status]
path = "/jobs/{{job_id}}"
job_id = "/id"
state = "/state"
not_visible_for = "0s"
[status.states]
running = ["running"]
succeeded = ["succeeded"]
failed = ["failed"]
cancelled = ["cancelled"]
[result]
path = "/jobs/{{job_id}}/result"
format = "json"
{cancel}
"""
_TOKEN: Final = f'mechanism = "header"\nname = "Idempotency-Key"\nmemory = "{MEMORY}m"'
_NO_TOKEN: Final = 'mechanism = "none"'
_RESEND: Final = '[[reconcile]]\nstrategy = "resend"'
_LIST: Final = """\
[[reconcile]]
strategy = "list"
path = "/jobs"
items = "/data"
item_id = "/id"
match = 'item.ref == operation.operation_id'
item_state = "/state"
absence_is_proof = true
settle = "2m"
"""
_CANCEL: Final = '[cancel]\nmethod = "DELETE"\npath = "/jobs/{job_id}"\n'
_IDEMPOTENT: Final = _CANCEL + "idempotent = true\n"


@functools.cache
def _contract(token: str, reconcile: str, cancel: str) -> Contract:
    return parse(_JOBS.format(token=token, reconcile=reconcile, cancel=cancel), environment={})


@dataclass(frozen=True)
class Scenario:
    """One small world. Everything that may go wrong has a budget, so that the world is finite."""

    name: str
    contract: Contract
    operations: int = 1
    drives: int = 2  #: how many drives of workers may be under way at once
    approvals: int = 0
    manners: str = "honest"  #: honest, ignores_token, or same_id (one job id for two operations)
    horizon: int = 6  #: the last tick
    crashes: int = 1
    expiries: int = 1  #: leases that run out under a living worker, beside those that time ends
    doubles: int = 0  #: requests that the network delivers twice
    cancels: int = 1
    decisions: int = 1
    quiet: bool = False  #: the provider answers every call, and the network loses nothing


RESENDS: Final = _contract(_TOKEN, _RESEND, _CANCEL)
LISTS: Final = _contract(_NO_TOKEN, _LIST, _IDEMPOTENT)
BOTH: Final = _contract(_TOKEN, _LIST + _RESEND, _CANCEL)
BLIND: Final = _contract(_NO_TOKEN, "", "")

SCENARIOS: Final = {
    scenario.name: scenario
    for scenario in (
        Scenario("resend", RESENDS),
        Scenario("list", LISTS),
        Scenario("both", BOTH),
        Scenario("blind", BLIND, doubles=0),
        Scenario("calm", RESENDS, drives=1, crashes=0, expiries=0),
        Scenario("window", RESENDS, drives=1, expiries=0, cancels=0, decisions=0),
        Scenario("settle", LISTS, drives=1, crashes=0, expiries=0, cancels=0, decisions=0),
        Scenario("twins", RESENDS, manners="ignores_token", crashes=0, cancels=0, decisions=0),
        Scenario("quiet", RESENDS, drives=1, crashes=0, expiries=0, quiet=True),
        Scenario("doubled", RESENDS, doubles=1, cancels=0, decisions=0),
        Scenario("approval", RESENDS, approvals=2, crashes=0, horizon=5),
        Scenario("ignores", RESENDS, manners="ignores_token", decisions=1),
        Scenario("collides", BLIND, operations=2, manners="same_id", crashes=0, expiries=0, horizon=2, quiet=True),
        Scenario("pair", BLIND, operations=2, crashes=0, expiries=1, horizon=1),
    )
}
