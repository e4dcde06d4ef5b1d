from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from opledger.edges.sshkeys import SshKeygen, Unsigned, read_signers
from opledger.errors import ConfigWrong, UsageError
from opledger.rules import sshsig
from opledger.rules.signers import LARGEST
from tests.support import sshkeys
from tests.support.sshkeys import needs_ssh_keygen

MESSAGE = b"approve it\n"
NAMESPACE = "opledger-approval@1"


def script(folder: Path, body: str) -> str:
    """A program in ssh-keygen's place."""
    path = folder / "keygen"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def environ(home: Path, **more: str) -> Mapping[str, str]:
    """The environment of somebody whose keys lie in `home`."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), **more}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder with an empty .ssh."""
    (tmp_path / ".ssh").mkdir(mode=0o700)
    return tmp_path


def verified(signature: str, key: Path) -> bool:
    """Whether this key made it."""
    read = sshsig.read(signature)
    sshsig.verify(read, MESSAGE, NAMESPACE)
    return read.key == sshkeys.blob(key)


# --- signing ----------------------------------------------------------------------------------------------------------


@needs_ssh_keygen
def test_a_named_key_signs(home: Path) -> None:
    """The file that was named, and no other."""
    sshkeys.make(home / ".ssh", "id_ed25519")
    key = sshkeys.make(home, "other", "ecdsa")
    keygen = SshKeygen(environ(home))
    assert verified(keygen.sign(MESSAGE, NAMESPACE, key_file=key), key)


@needs_ssh_keygen
def test_a_usual_key_is_found_if_it_may_sign(home: Path) -> None:
    """Not the first one that lies about, but one that counts for this person."""
    sshkeys.make(home / ".ssh", "id_ed25519")
    key = sshkeys.make(home / ".ssh", "id_ecdsa", "ecdsa")
    keygen = SshKeygen(environ(home))
    assert verified(keygen.sign(MESSAGE, NAMESPACE, keys=[sshkeys.blob(key)]), key)
    with pytest.raises(Unsigned, match=r"name the file: --key"):
        keygen.sign(MESSAGE, NAMESPACE, keys=[b"another"])


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[str]:
    """An ssh-agent of this test's own."""
    socket = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            if socket.exists():
                break
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
        yield str(socket)
    finally:
        process.terminate()
        process.wait(60)


@needs_ssh_keygen
def test_a_key_of_the_agent_signs(home: Path, agent: str) -> None:
    """The private half need not lie on this machine (a forwarded agent, a security key)."""
    key = sshkeys.make(home, "elsewhere")
    here = environ(home, SSH_AUTH_SOCK=agent)
    subprocess.run(["ssh-add", "-q", str(key)], env=here, check=True, timeout=60)
    key.unlink()
    keygen = SshKeygen(here)
    assert verified(keygen.sign(MESSAGE, NAMESPACE, keys=[sshkeys.blob(key)]), key)
    assert verified(keygen.sign(MESSAGE, NAMESPACE, key_file=key.with_name("elsewhere.pub")), key)


@needs_ssh_keygen
def test_a_passphrase_that_nobody_can_type_ends_at_once(home: Path) -> None:
    """Without a terminal there is nobody to ask."""
    key = sshkeys.make(home, "locked", passphrase="correct horse")
    with pytest.raises(Unsigned, match="ended with status"):
        SshKeygen(environ(home)).sign(MESSAGE, NAMESPACE, key_file=key)


def test_a_key_file_that_is_not_there_is_said(home: Path) -> None:
    """Before anything is started."""
    with pytest.raises(UsageError, match="there is no key file"):
        SshKeygen(environ(home), program="/nonexistent").sign(MESSAGE, NAMESPACE, key_file=home / "none")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("exec sleep 600", "had not ended after"),
        ("echo 'no such key' >&2; exit 255", "status 255 and said: no such key"),
        ("printf 'a\\033[2Jb' >&2; exit 1", "said: a␛"),
        ("exit 0", "left no signature"),
    ],
)
def test_a_program_that_fails_or_hangs_is_a_clear_error(home: Path, body: str, said: str) -> None:
    """It must neither hang us nor speak to the terminal through us."""
    key = home / "key"
    key.write_text("")
    keygen = SshKeygen(environ(home), program=script(home, body), timeout=0.5 if "sleep" in body else 60)
    with pytest.raises(Unsigned, match=said.replace("[", r"\[")) as caught:
        keygen.sign(MESSAGE, NAMESPACE, key_file=key)
    assert "\x1b" not in caught.value.message


def test_the_terminal_is_left_as_it_was(home: Path) -> None:
    """What is killed while it reads a passphrase cannot put the echo back."""
    (home / "key").write_text("")
    code = (
        "import sys, termios, pathlib\n"
        "from opledger.edges.sshkeys import SshKeygen, Unsigned\n"
        "home = pathlib.Path(sys.argv[1])\n"
        "try:\n"
        "    SshKeygen(program=sys.argv[2], timeout=2).sign(b'm', 'n', key_file=home / 'key')\n"
        "except Unsigned as error:\n"
        "    (home / 'said').write_text(error.message)\n"
        "raise SystemExit(0 if termios.tcgetattr(0)[3] & termios.ECHO else 1)\n"
    )
    program = script(home, f"stty -echo; touch {home / 'off'}; exec sleep 600")
    command = [sys.executable, "-c", code, str(home), program]
    status, _ = sshkeys.at_terminal(command, {}, env={**os.environ, **environ(home)}, folder=home)
    assert (home / "off").exists()
    assert "had not ended after 2 seconds" in (home / "said").read_text()
    assert status == 0


def test_where_there_is_no_ssh_keygen_its_package_is_named(home: Path) -> None:
    """Not every machine has it."""
    key = home / "key"
    key.write_text("")
    with pytest.raises(Unsigned, match="package openssh-client"):
        SshKeygen(environ(home), program=str(home / "none")).sign(MESSAGE, NAMESPACE, key_file=key)


def test_no_secret_reaches_the_programs_environment(home: Path) -> None:
    """It runs programs of others: agents' askpass, drivers of security keys."""
    key = home / "key"
    key.write_text("")
    seen = home / "seen"
    given = environ(
        home, PROVIDER_TOKEN="canary", OPLEDGER_DB="postgresql://u:canary@h/d", SSH_AUTH_SOCK="/a", LC_ALL="C"
    )
    with pytest.raises(Unsigned):
        SshKeygen(given, program=script(home, f"env > {seen}")).sign(MESSAGE, NAMESPACE, key_file=key)
    text = seen.read_text()
    assert "canary" not in text
    assert "SSH_AUTH_SOCK=/a" in text
    assert "LC_ALL=C" in text


# --- whose keys count -------------------------------------------------------------------------------------------------


def test_a_file_of_signers_is_read(tmp_path: Path) -> None:
    """As it is, with its name for people."""
    path = tmp_path / "allowed"
    path.write_text("# nobody yet\n")
    path.chmod(0o644)
    assert read_signers(path).name == str(path)


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_a_file_that_others_can_change_is_refused(tmp_path: Path, mode: int) -> None:
    """They would add a key of their own."""
    path = tmp_path / "allowed"
    path.write_text("")
    path.chmod(mode)
    with pytest.raises(ConfigWrong, match="can be changed by other users"):
        read_signers(path)


def test_what_is_no_file_of_signers_is_refused(tmp_path: Path) -> None:
    """Each with its own words."""
    with pytest.raises(ConfigWrong, match="cannot be read: No such file"):
        read_signers(tmp_path / "none")
    with pytest.raises(ConfigWrong):
        read_signers(tmp_path)
    long = tmp_path / "long"
    long.write_bytes(b"#" * (LARGEST + 1))
    long.chmod(0o600)
    with pytest.raises(ConfigWrong, match="longer than"):
        read_signers(long)
    bad = tmp_path / "bad"
    bad.write_bytes(b"\xff\xfe ana\n")
    bad.chmod(0o600)
    with pytest.raises(ConfigWrong, match="line 1"):
        read_signers(bad)
