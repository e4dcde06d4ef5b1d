"""SSH keys of a test's own: made by ssh-keygen, or by hand where that takes hardware."""

from __future__ import annotations

import base64
import hashlib
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from opledger.rules.approval_signatures import NAMESPACE

needs_ssh_keygen = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed here (package openssh-client)"
)


def make(folder: Path, name: str, kind: str = "ed25519", bits: int | None = None, *, passphrase: str = "") -> Path:
    """Let ssh-keygen make a key; returns the private half, whose public one lies beside it."""
    path = folder / name
    size = [] if bits is None else ["-b", str(bits)]
    subprocess.run(
        ["ssh-keygen", "-q", "-t", kind, *size, "-N", passphrase, "-C", name, "-f", str(path)], check=True, timeout=60
    )
    return path


def public(path: Path) -> str:
    """The type and the key, as a line of allowed signers has them."""
    return " ".join(path.with_name(f"{path.name}.pub").read_text().split()[:2])


def blob(path: Path) -> bytes:
    """The public key in the form of SSH."""
    return base64.b64decode(public(path).split()[1])


def signed(path: Path, message: bytes, namespace: str = NAMESPACE, hashed: str = "sha512") -> str:
    """What ``ssh-keygen -Y sign`` makes of a message."""
    return subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-f", str(path), "-n", namespace, "-O", f"hashalg={hashed}"],
        input=message,
        capture_output=True,
        check=True,
        timeout=60,
    ).stdout.decode()


def accepted(folder: Path, line: str, signature: str, message: bytes, namespace: str = NAMESPACE) -> bool:
    """Whether ``ssh-keygen -Y verify`` takes a signature of ana's, by this line of allowed signers."""
    (folder / "allowed").write_text(f"{line}\n")
    (folder / "sig").write_text(signature)
    files = ["-f", str(folder / "allowed"), "-s", str(folder / "sig")]
    done = subprocess.run(
        ["ssh-keygen", "-q", "-Y", "verify", "-I", "ana", "-n", namespace, *files],
        input=message,
        capture_output=True,
        check=False,
        timeout=60,
    )
    return done.returncode == 0


# --- keys in hardware, made of software ----------------------------------------------------------------------------


def string(data: bytes) -> bytes:
    """A string of RFC 4251 §5."""
    return len(data).to_bytes(4, "big") + data


def integer(value: int) -> bytes:
    """A positive mpint of RFC 4251 §5."""
    return string(value.to_bytes(value.bit_length() // 8 + 1, "big"))


def envelope(key: bytes, inner: bytes, namespace: str = NAMESPACE, hashed: str = "sha512", version: int = 1) -> bytes:
    """An SSHSIG around a signature."""
    parts = string(key) + string(namespace.encode()) + string(b"") + string(hashed.encode()) + string(inner)
    return b"SSHSIG" + version.to_bytes(4, "big") + parts


def to_sign(message: bytes, namespace: str = NAMESPACE, hashed: str = "sha512") -> bytes:
    """What a key signs for it."""
    digest = hashlib.new(hashed, message).digest()
    return b"SSHSIG" + string(namespace.encode()) + string(b"") + string(hashed.encode()) + string(digest)


@dataclass(frozen=True)
class SecurityKey:
    """A key that signs as hardware does (PROTOCOL.u2f), with flags and a counter."""

    kind: str
    seed: int = 7
    application: str = "ssh:"

    @property
    def blob(self) -> bytes:
        """The public key in the form of SSH."""
        if self.kind.startswith("sk-ssh-ed25519"):
            point = string(self._ed25519().public_key().public_bytes_raw())
        else:
            numbers = self._ecdsa().public_key().public_numbers()
            both = numbers.x.to_bytes(32, "big") + numbers.y.to_bytes(32, "big")
            point = string(b"nistp256") + string(b"\x04" + both)
        return string(self.kind.encode()) + point + string(self.application.encode())

    @property
    def public(self) -> str:
        """The type and the key, as a line of allowed signers has them."""
        return f"{self.kind} {base64.b64encode(self.blob).decode()}"

    def sign(self, message: bytes, *, flags: int = 1, counter: int = 77, namespace: str = NAMESPACE) -> str:
        """The signature, as one line."""
        mark = bytes([flags]) + counter.to_bytes(4, "big")
        inside = hashlib.sha256(to_sign(message, namespace)).digest()
        data = hashlib.sha256(self.application.encode()).digest() + mark + inside
        if self.kind.startswith("sk-ssh-ed25519"):
            value = self._ed25519().sign(data)
        else:
            r, s = decode_dss_signature(self._ecdsa().sign(data, ec.ECDSA(hashes.SHA256())))
            value = integer(r) + integer(s)
        inner = string(self.kind.encode()) + string(value) + mark
        return base64.b64encode(envelope(self.blob, inner, namespace)).decode()

    def _ed25519(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(bytes([self.seed]) * 32)

    def _ecdsa(self) -> ec.EllipticCurvePrivateKey:
        return ec.derive_private_key(int.from_bytes(bytes([self.seed]) * 32, "big"), ec.SECP256R1())


# --- a terminal to be asked at ---------------------------------------------------------------------------------------

_OWN_IT: Final = (
    "import fcntl, os, sys, termios\nfcntl.ioctl(0, termios.TIOCSCTTY, 0)\nos.execv(sys.argv[1], sys.argv[1:])"
)


def at_terminal(
    command: Sequence[str],
    answers: Mapping[bytes, bytes],
    *,
    env: Mapping[str, str],
    folder: Path,
    patience: float = 120,
) -> tuple[int, bytes]:
    """Run a program that owns a terminal; type an answer once its question shows. Returns exit code and all it said."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _OWN_IT, *command],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=dict(env),
        cwd=folder,
        start_new_session=True,
    )
    os.close(slave)
    said, left, until = b"", dict(answers), time.monotonic() + patience
    try:
        while time.monotonic() < until:
            if not select.select([master], [], [], 1)[0]:
                continue
            try:
                piece = os.read(master, 4096)
            except OSError:  # the other end is closed: it has ended
                break
            said += piece
            for question in [one for one in left if one in said]:
                os.write(master, left.pop(question))
        return process.wait(max(until - time.monotonic(), 1)), said
    finally:
        process.kill()
        process.wait()
        os.close(master)
