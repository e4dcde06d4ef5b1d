from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opledger.cli import units
from opledger.errors import UsageError
from opledger.receiver.intake import WITHIN
from opledger.worker.hand import GRACE
from tests.core.cli.conftest import Terminal

SERVER = "postgresql://opledger_worker@db.example/opledger?service=opledger"

#: What reliability.md (4.12) asks of both units; where `systemd-analyze` is at hand, it says the same as one figure.
ASKED = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "UMask": "0077",
    "ProtectSystem": "strict",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "PrivateUsers": "yes",
    "ProtectClock": "yes",
    "ProtectHostname": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectControlGroups": "yes",
    "ProtectProc": "invisible",
    "ProcSubset": "pid",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
    "RestrictNamespaces": "yes",
    "RestrictRealtime": "yes",
    "RestrictSUIDSGID": "yes",
    "LockPersonality": "yes",
    "MemoryDenyWriteExecute": "yes",
    "RemoveIPC": "yes",
    "SystemCallArchitectures": "native",
    "StateDirectoryMode": "0700",
    "User": "opledger",
    "Restart": "on-failure",
    "RestartPreventExitStatus": "2 3 4",
    "KillSignal": "SIGTERM",
    "KillMode": "mixed",
}


def lines_of(text: str) -> list[str]:
    """What systemd reads."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("server", [None, SERVER])
@pytest.mark.parametrize("kind", units.KINDS)
def test_a_unit_keeps_everything_from_its_process_that_it_does_not_need(
    tmp_path: Path, kind: str, server: str | None
) -> None:
    """T24: every directive that was asked for; and, where it can be measured, an exposure of 1.5 at most."""
    name, text = units.unit(kind, server)
    assert name == f"opledger-{kind}.service"
    found = dict(line.partition("=")[::2] for line in lines_of(text) if "=" in line)
    assert {key: found.get(key) for key in ASKED} == ASKED
    assert "SystemCallFilter=@system-service\nSystemCallFilter=~@privileged @resources\n" in text
    assert f"LoadCredential=secret:/etc/opledger/secrets/{kind}\n" in text
    assert {"MemoryMax", "StartLimitBurst", "StateDirectory", "IPAddressDeny"} <= found.keys()
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return
    file = tmp_path / name
    file.write_text(text)
    done = subprocess.run(
        [analyze, "security", "--offline=true", "--no-pager", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    if exposure is None:  # older than 250, or without what it needs: then the list above must do
        return
    assert float(exposure.group(1)) <= 1.5
    checked = subprocess.run([analyze, "verify", str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert name not in checked.stderr, checked.stderr  # unknown keys and words that cannot be read


def test_a_unit_stops_its_process_no_sooner_than_that_would_stop() -> None:
    """A worker that is killed while it winds down leaves leases and unknown calls behind for nothing."""
    assert units.KINDS["worker"].stop >= 2 * GRACE
    assert units.KINDS["webhooks"].stop > WITHIN + 2


def test_a_unit_starts_the_interpreter_that_printed_it(terminal: Terminal) -> None:
    """Another installation on the path could be another version."""
    done = terminal("doctor", "--systemd", "worker")
    assert done.code == 0
    assert f"ExecStart={sys.executable} -m opledger.cli worker --name %H" in done.out.splitlines()
    document = terminal("doctor", "--systemd", "webhooks", "--json").json
    assert document["name"] == "opledger-webhooks.service"
    assert f"ExecStart={sys.executable} -m opledger.cli webhooks serve " in document["unit"]


def test_a_unit_holds_no_password(terminal: Terminal) -> None:
    """Units can be read by everybody; the password comes as a credential."""
    url = "postgresql://opledger_worker:s3cret@db.example/opledger?sslmode=require"
    done = terminal("doctor", "--systemd", "worker", "--db", url)
    assert done.code == 0
    assert "s3cret" not in done.out
    assert "OPLEDGER_DB=postgresql://opledger_worker@db.example/opledger?service=opledger&sslmode=require" in done.out
    assert "Environment=PGSERVICEFILE=%d/secret_pg_service.conf" in done.out
    without = terminal("doctor", "--systemd", "worker", "--db", "postgresql:///opledger")
    assert "PGSERVICEFILE" not in without.out  # libpq refuses a service that is nowhere


def test_the_receiver_of_a_file_ledger_calls_nobody() -> None:
    """It only listens, behind what speaks TLS on the same machine."""
    assert {"IPAddressDeny=any", "IPAddressAllow=localhost"} <= set(lines_of(units.unit("webhooks")[1]))
    assert "IPAddressDeny=link-local multicast" in lines_of(units.unit("webhooks", SERVER)[1])


def test_a_program_in_a_home_folder_is_all_that_is_seen_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the unit of a virtual environment at home would not start, or would see all of that home."""
    monkeypatch.setattr(units, "_code", lambda: (Path("/home/an a/50%:x"), Path("/opt/x")))
    text = units.unit("worker")[1]
    assert "ProtectHome=tmpfs" in text
    assert r'BindReadOnlyPaths="/home/an a/50%%\\:x"' in lines_of(text)
    assert "/opt/x" not in text
    monkeypatch.setattr(units, "_code", lambda: (Path("/opt/x"),))
    assert "ProtectHome=yes" in units.unit("worker")[1]


def test_a_unit_that_cannot_be_is_refused(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line break in a path would begin another directive."""
    done = terminal("doctor", "--systemd", "console", "--json")
    assert done.code == 2
    assert "--systemd worker or --systemd webhooks" in done.error["message"]
    assert terminal("doctor", "--systemd", "worker", "--roles").code == 2
    monkeypatch.setattr(sys, "executable", "/opt/x\nExecStartPre=/bin/sh")
    with pytest.raises(UsageError, match="control character"):
        units.unit("worker")
