"""The ledger's Ed25519 key: a file outside of the database, for its owner only. And whether a note is signed with it.

Who can change the database must not be able to sign; so the key lies elsewhere, is made once, and is never replaced.
"""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from opledger.edges.private import FILE, make_folder, sync_folder
from opledger.errors import ConfigWrong
from opledger.rules import notes

MAX_KEY = 16 * 1024
"""Bytes of a key file beyond which it is none."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key and the file it came from. The key itself is not in the repr."""

    path: Path
    private: Ed25519PrivateKey
    public: bytes

    def __repr__(self) -> str:
        return f"Key({self.path})"

    def sign(self, text: str, origin: str) -> str:
        """Return the whole note of a text."""
        return notes.sign_off(text, origin, notes.key_id(origin, self.public), self.private.sign(text.encode()))


def load_key(path: Path) -> Key | None:
    """Read a key file; None where there is none.

    Raises ConfigWrong where it cannot be read, is none of ours, or others may read it.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise ConfigWrong(f"the signing key {path} is not a plain file; look at [audit] key in opledger.toml")
    with os.fdopen(handle, "rb") as file:
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise ConfigWrong(
                f"the signing key {path} is open to other users (mode {stat.S_IMODE(found.st_mode):04o}), who could "
                f"sign with it: find out whether somebody did, then run: chmod 600 {shlex.quote(str(path))}"
            )
        try:
            data = file.read(MAX_KEY)
        except OSError as error:
            raise _unreadable(path, error) from error
    try:
        private = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError):
        # The error itself may say more about the file than a log should hold.
        raise _no_key(path) from None
    if not isinstance(private, Ed25519PrivateKey):
        raise _no_key(path)
    return _key(path, private)


def make_key(path: Path) -> Key:
    """Make a key file, durably and for its owner only; where there is one by now, that one is returned.

    Raises ConfigWrong where it cannot be made, or as `load_key`.
    """
    private = Ed25519PrivateKey.generate()
    data = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        make_folder(path.parent)
        handle, new = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                os.fchmod(handle, FILE)
                file.write(data)
                file.flush()
                os.fsync(handle)
            os.link(new, path)  # unlike a rename it never replaces: whoever is first has made the key
        finally:
            Path(new).unlink()
        sync_folder(path.parent)
    except FileExistsError:
        found = load_key(path)
        if found is not None:
            return found
        raise ConfigWrong(f"the signing key {path} comes and goes; look at [audit] key in opledger.toml") from None
    except OSError as error:
        raise ConfigWrong(
            f"the signing key {path} cannot be made ({error.strerror}); "
            "name another place: [audit] key in opledger.toml"
        ) from error
    return _key(path, private)


def is_signed(signed: notes.Signed, public: bytes) -> bool:
    """Say whether a note has been signed with the private half of this key, in the name of its own ledger."""
    if signed.key_id != notes.key_id(signed.note.origin, public):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signed.signature, signed.text.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


def _key(path: Path, private: Ed25519PrivateKey) -> Key:
    public = private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return Key(path, private, public)


def _no_key(path: Path) -> ConfigWrong:
    return ConfigWrong(
        f"{path} is no Ed25519 key (PEM, PKCS8, without a password); put the ledger's own key back from a backup"
    )


def _unreadable(path: Path, error: OSError) -> ConfigWrong:
    return ConfigWrong(f"the signing key {path} cannot be read: {error.strerror}; look at [audit] key in opledger.toml")
