from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.cli.conftest import Terminal
from tests.support import sshkeys

pytestmark = [sshkeys.needs_ssh_keygen, pytest.mark.processes]

TOML = """
[audit]
allowed_signers = "allowed"
[[policy]]
when = 'true'
signed = true
"""


@pytest.fixture
def key(terminal: Terminal) -> Path:
    """Ana's key, which counts here."""
    (terminal.root / ".ssh").mkdir(mode=0o700)
    key = sshkeys.make(terminal.root / ".ssh", "id_ed25519")
    listed = terminal.root / "allowed"
    listed.write_text(f'ana namespaces="opledger-approval@1" {sshkeys.public(key)}\n')
    listed.chmod(0o600)
    terminal.settings(TOML)
    terminal.environ["HOME"] = str(terminal.root)
    terminal.environ.pop("SSH_AUTH_SOCK", None)
    return key


def approved(terminal: Terminal, name: str) -> bool:
    """Whether it may be sent, on a signed approval."""
    events = terminal("events", name, "--json").json
    return bool(events[-1]["kind"] == "Approved" and events[-1]["data"].get("signature"))


def test_an_approval_is_signed_with_the_key_at_hand(terminal: Terminal, key: Path) -> None:
    """From a refusal, through what it says, to an approval that counts."""
    name = terminal.submit()
    refused = terminal.process("approve", name, "--reason", "ok", "--json")
    assert (refused.code, refused.error["code"]) == (3, "signature_required")
    assert f"opledger approve {name}" in refused.error["message"]
    done = terminal.process("approve", name, "--reason", "ok", "--sign")
    assert done.code == 0, done.err
    assert approved(terminal, name)
    event = terminal("events", name, "--json").json[-1]
    assert event["host"]
    assert "@" in event["process"]


@pytest.mark.parametrize("how", [["--key", "K"], ["--sign", "K"], ["--sign", "--key", "K"], ["--key", "K.pub"]])
def test_a_key_can_be_named(terminal: Terminal, key: Path, how: list[str]) -> None:
    """``--sign FILE`` reads like a flag with a value, and is taken as one."""
    other = key.rename(key.with_name("other"))
    key.with_name(f"{key.name}.pub").rename(other.with_name("other.pub"))
    name = terminal.submit()
    done = terminal.process("approve", name, "--reason", "ok", *(word.replace("K", str(other)) for word in how))
    assert done.code == 0, done.err
    assert approved(terminal, name)


def test_another_key_is_refused_and_nothing_is_recorded(terminal: Terminal, key: Path) -> None:
    """A key that is not listed, a file that is not there."""
    name = terminal.submit()
    other = sshkeys.make(terminal.root, "other")
    done = terminal.process("approve", name, "--reason", "ok", "--key", str(other), "--json")
    assert (done.code, done.error["code"]) == (3, "bad_signature")
    assert "is not listed" in done.error["message"]
    done = terminal.process("approve", name, "--reason", "ok", "--key", "nowhere")
    assert (done.code, "there is no key file nowhere" in done.err) == (2, True)
    assert terminal("show", name, "--json").json["state"] == "awaiting_approval"


def test_many_are_signed_each(terminal: Terminal, key: Path) -> None:
    """By filter, as everywhere; a dry run asks for no key."""
    names = [terminal.submit(body=f'{{"rows": {rows}}}') for rows in (5, 6)]
    ahead = terminal.process("approve", "--contract", "jobs", "--reason", "ok", "--sign", "--dry-run", "--json")
    assert [one["eligible"] for one in ahead.json] == [True, True]
    done = terminal.process("approve", "--contract", "jobs", "--reason", "ok", "--sign", "--yes")
    assert done.code == 0, done.err
    assert all(approved(terminal, name) for name in names)


def test_the_passphrase_is_asked_at_the_terminal(terminal: Terminal, key: Path) -> None:
    """By ssh-keygen itself: we never see it."""
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "correct horse", "-f", str(key)], check=True, timeout=60)
    name = terminal.submit()
    environ = {**os.environ, **terminal.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environ.pop("SSH_AUTH_SOCK", None)
    command = [sys.executable, "-m", "opledger.cli", "approve", name, "--reason", "ok", "--sign"]
    answers = {b"passphrase": b"correct horse\n"}
    code, said = sshkeys.at_terminal(command, answers, env=environ, folder=terminal.root)
    assert code == 0, said
    assert b"correct horse" not in said
    assert approved(terminal, name)


def test_the_doctor_says_whether_signed_approvals_can_be_judged(terminal: Terminal, key: Path) -> None:
    """A demand that nobody can meet must not wait until somebody wants to approve."""

    def told() -> tuple[bool, str]:
        found = terminal("doctor", "--json").json["checks"]
        return next((one["ok"], one["message"]) for one in found if one["name"] == "allowed signers")

    assert told() == (True, f"{terminal.root / 'allowed'} lists 1 key that may sign approvals")
    (terminal.root / "allowed").write_text("ana cert-authority ssh-ed25519 AAAA\n")
    assert not told()[0]
    assert "line 1: cert-authority is not supported" in told()[1]
    terminal.settings(TOML.partition("[[policy]]")[1] + TOML.partition("[[policy]]")[2])
    assert "nothing says whose keys count" in told()[1]


def test_verify_checks_the_signatures(terminal: Terminal, key: Path) -> None:
    """By the journal alone: a key that is no longer listed, or never was, is found with its place (exit 4)."""
    name = terminal.submit()
    assert terminal.process("approve", name, "--reason", "ok", "--sign").code == 0
    well = terminal.process("audit", "verify", "--json")
    assert (well.code, well.json["findings"]) == (0, [])
    other = sshkeys.make(terminal.root, "other")
    (terminal.root / "allowed").write_text(f"ana {sshkeys.public(other)}\n")
    found = terminal.process("audit", "verify", "--json")
    assert found.code == 4
    assert [(one["kind"], one["operation_id"], one["seq"]) for one in found.json["findings"]] == [
        ("SIGNATURE", name, 2)
    ]
    (terminal.root / "allowed").unlink()  # who removes it to hide a signature hides nothing
    gone = terminal.process("audit", "verify", "--json")
    assert gone.code == 4
    assert [(one["kind"], one["seq"]) for one in gone.json["findings"]] == [("SIGNATURE", 2)]
    (unread,) = [one["message"] for one in gone.json["notes"] if one["kind"] == "SIGNERS_UNREAD"]
    assert "cannot be read: No such file" in unread
    terminal.settings("")
    unjudged = terminal.process("audit", "verify", "--json")
    assert [one["kind"] for one in unjudged.json["findings"]] == ["SIGNATURE"]
