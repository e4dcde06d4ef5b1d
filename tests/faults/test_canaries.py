from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from opledger.rules.model import State
from opledger.sim.process import SimProcess
from tests.faults.lab import PATIENCE, Lab

pytestmark = pytest.mark.processes

CANARY = 'canary/7f3c?9a=51&e0 d2"b8\\64+1c'
"""A credential full of bytes that every encoding writes in its own way."""

FRAGMENT = 8
"""So many characters of a secret in a row are a leak."""


def forms(secret: str) -> set[bytes]:
    """The secret as it may turn up: as it is, percent-encoded, in JSON, in hex, in base64 at each of three offsets."""
    raw = secret.encode()
    found = {raw, quote(secret, safe="").encode(), quote(secret).encode(), binascii.hexlify(raw)}
    found.add(secret.replace("\\", "\\\\").replace('"', '\\"').encode())
    for before in (b"", b"x", b"xy", b"sim:", b"Bearer "):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            told = encode(before + raw)
            found.add(told[-(-len(before) * 4 // 3) + 2 : -6])
    return found | {secret[start : start + FRAGMENT].encode() for start in range(len(secret) - FRAGMENT + 1)}


@pytest.fixture
def guarded(tmp_path: Path, sqlite_url: str) -> Iterator[Lab]:
    """A provider that wants to see the canary."""
    with SimProcess(seed=5, token=CANARY) as sim, Lab(tmp_path, sqlite_url, sim) as lab:
        lab.environment["SIM_TOKEN"] = CANARY
        yield lab


def test_no_credential_is_left_anywhere(guarded: Lab) -> None:
    """A provider repeats our credential in bodies and headers of errors; no database, log or result may hold it."""
    echoed = [
        guarded.submit("credential_echo", "status"),
        guarded.submit("credential_echo", "create"),
        guarded.submit("credential_echo", "status", flavour="header"),
        guarded.submit("credential_echo", "status", flavour="query"),
    ]
    bearer = f"Bearer {CANARY}"
    guarded.sim.control(
        answer_next=[
            {"kind": "create", "status": 500, "body": {"error": f"no such key {bearer}"}, "before": True},
            {"kind": "list", "status": 400, "body": f"<b>{bearer}</b>", "content_type": "text/html"},
            {"kind": "result", "status": 404, "headers": {"x-debug": quote(CANARY)}, "body": {"key": CANARY}},
        ]
    )
    echoed += [guarded.submit(_seconds=0.1), guarded.submit("lossy", flavour="body", _seconds=0.1)]
    program = guarded.program("worker", "--until-idle", OPLEDGER_LOG="debug")
    assert program.wait(PATIENCE) == 0
    ends = [guarded.show(operation).state for operation in echoed]
    assert ends == [State.SUCCEEDED, State.FAILED, *[State.SUCCEEDED] * 4]
    assert len([entry for entry in guarded.sim.log() if entry["fault"] == "credentials echoed"]) >= 6

    events = b"".join(path.read_bytes() for path in guarded.folder.glob("ledger.db*"))
    assert b"could not parse header Authorization" in events  # what was said around it is kept
    scanned = [path for path in sorted(guarded.folder.rglob("*")) if path.is_file()]
    assert {"ledger.db", "program-1.log"} <= {path.name for path in scanned}
    leaks = [
        (path.name, form)
        for path in scanned
        for form in forms(CANARY)
        if len(form) >= FRAGMENT and form in path.read_bytes()
    ]
    assert leaks == []
