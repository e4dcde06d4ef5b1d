from __future__ import annotations

import base64
import json
from typing import Any

from opledger import Ledger
from opledger.edges.secrets import SecretResolver
from opledger.ledger.deliveries import Arrival, Deliveries, Doors
from tests.core.ledgers import Home
from tests.core.rules.operations import CANCEL, JOBS
from tests.fakes.hooks import SECRET, WEBHOOK, signed

KEY = "sk-live-Canary7f3c9a51e0d2"
AUTH = '\n[auth]\nkind = "bearer"\nsecret = "env:API_KEY"\n'


def taken(ledger: Ledger, environment: dict[str, str], *names: str, **data: Any) -> list[Any]:
    """Deliver events under these names, in one batch; returns the outcomes."""
    doors = Doors(ledger.settings, SecretResolver({"HOOK_SECRET": SECRET, **environment}))
    doors.look()
    now = ledger.clock.now()
    arrivals = []
    for name in names:
        body = json.dumps({"type": data.get("type", "job.news"), "data": data}).encode()
        found = doors.judge("jobs", body, list(signed(body, name, now.timestamp()).items()), now)
        assert isinstance(found, Arrival)
        arrivals.append(found)
    return Deliveries(ledger).take(arrivals, doors.mask)


def test_a_webhook_that_repeats_our_key_is_masked(home: Home) -> None:
    """The receiver never uses the key of the API; it knows it where it can, so that it is not written down (I24)."""
    home.contract(JOBS + CANCEL + AUTH + WEBHOOK)
    told = base64.b64encode(f"me:{KEY}".encode()).decode()
    with home.ledger() as ledger:
        data = {"id": f"job-{KEY}", "client_ref": KEY, "note": f"Basic {told}", "type": f"failed {KEY}"}
        outcomes = taken(ledger, {"API_KEY": KEY}, f"msg-{KEY}", f"msg-{KEY}", f"other-{KEY}", **data)
        # The same event twice, and another one: an event that is named by a secret is still told from others.
        assert [outcome.stored for outcome in outcomes] == [True, False, True]
    kept = b"".join(path.read_bytes() for path in home.root.rglob("*") if path.is_file())
    assert b"job-***" in kept and b"failed ***" in kept
    for trace in (KEY, KEY[8:20], told[8:-4]):
        assert trace.encode() not in kept


def test_a_receiver_runs_without_the_key(home: Home) -> None:
    """What is not there cannot be masked, and is nobody's fault."""
    home.contract(JOBS + CANCEL + AUTH + WEBHOOK)
    with home.ledger() as ledger:
        assert len(taken(ledger, {}, "msg_1", id="job_1")) == 1
