"""Running ``ssh-keygen`` to sign, and reading the file that says whose keys count.

The key itself never comes here: ssh-keygen reads it, or asks the agent or a security key, and talks to whoever sits at
the terminal.
"""

from __future__ import annotations

import base64
import os
import stat
import subprocess
import sys
import tempfile
import termios
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

from opledger.errors import ConfigWrong, Refused, UsageError
from opledger.rules import sshsig
from opledger.rules.plain import clean
from opledger.rules.signers import LARGEST, AllowedSigners, parse

TIMEOUT: Final = 120.0
"""Seconds in which somebody must have typed a passphrase or touched a key."""
LISTING: Final = 5.0
"""Seconds in which an agent must have said what keys it holds."""

_USUAL: Final = ("id_ed25519", "id_ed25519_sk", "id_ecdsa", "id_ecdsa_sk", "id_rsa")
#: What ssh-keygen and its helpers need; everything else, secrets among it, stays out of their environment.
_NEEDED: Final = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "TERM", "LANG", "LANGUAGE", "TZ", "TMPDIR", "DISPLAY", "WAYLAND_DISPLAY",
    "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE",
    "SSH_SK_PROVIDER", "SSH_SK_HELPER", "SSH_PKCS11_HELPER", "GPG_TTY",
})  # fmt: skip


class Unsigned(Refused):
    """No signature was made; nothing was recorded."""

    code = "unsigned"


def read_signers(path: Path) -> AllowedSigners:
    """Read a file of allowed signers.

    Raises ConfigWrong where it is not there, can be changed by others, or says something that is not supported.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise ConfigWrong(f"the allowed signers {path} are not a plain file")
            if mode & 0o022:
                raise ConfigWrong(
                    f"the allowed signers {path} can be changed by other users (mode {stat.S_IMODE(mode):04o}), who "
                    "could add keys of their own; chmod go-w it"
                )
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise ConfigWrong(
            f"the allowed signers {path} cannot be read: {error.strerror or type(error).__name__}"
        ) from None
    return parse(text.decode("utf-8", "replace"), str(path))


class SshKeygen:
    """Signs with ``ssh-keygen -Y sign``. Blocks until somebody has answered what it asks, for `timeout` at most."""

    def __init__(
        self, environ: Mapping[str, str] = os.environ, *, program: str = "ssh-keygen", timeout: float = TIMEOUT
    ) -> None:
        self._environ = {name: value for name, value in environ.items() if name in _NEEDED or name.startswith("LC_")}
        self._program = program
        self._timeout = timeout

    def sign(
        self, message: bytes, namespace: str, *, key_file: Path | None = None, keys: Collection[bytes] = ()
    ) -> str:
        """Return the signature over a message, as ssh-keygen prints it.

        `key_file` is a private key, or a public one whose other half an agent or a security key holds. Without one, a
        usual key of ``~/.ssh`` or a key of the agent is taken that is one of `keys` (public keys, in the form of SSH).
        Raises UsageError where the file is not there, Unsigned where no key is found or no signature was made.
        """
        with tempfile.TemporaryDirectory(prefix="opledger-") as name:
            folder = Path(name)  # mode 0700; nothing secret goes into it
            if key_file is not None and not key_file.is_file():
                raise UsageError(f"there is no key file {key_file}")
            key = key_file if key_file is not None else self._found(keys, folder)
            # A file and not standard input: ssh-keygen asks for passphrases on the terminal only where both are free.
            statement = folder / "statement"
            statement.write_bytes(message)
            self._run(["-Y", "sign", "-q", "-f", str(key), "-n", namespace, str(statement)])
            try:
                return (folder / "statement.sig").read_text("ascii")
            except (OSError, ValueError):
                raise Unsigned(f"{self._program} said that it signed with {key}, and left no signature") from None

    def _run(self, arguments: Sequence[str]) -> None:
        at_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()
        try:
            with _terminal_as_it_was() if at_terminal else nullcontext():
                done = subprocess.run(  # noqa: S603 - no shell sees it
                    [self._program, *arguments],
                    env=self._environ,
                    # At a terminal it may ask for a passphrase and say that a key is to be touched.
                    stdin=None if at_terminal else subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=None if at_terminal else subprocess.PIPE,
                    timeout=self._timeout,
                    check=False,
                )
        except subprocess.TimeoutExpired:
            raise Unsigned(
                f"nothing was signed: {self._program} had not ended after {self._timeout:.0f} seconds (a passphrase, a "
                "touch, or an agent that does not answer); nothing was recorded, so try again"
            ) from None
        except (OSError, ValueError) as error:
            why = "is not installed (package openssh-client)" if isinstance(error, FileNotFoundError) else str(error)
            raise Unsigned(f"nothing was signed: {self._program} {why}") from None
        if done.returncode != 0:
            said = clean((done.stderr or b"").decode("utf-8", "replace").strip(), limit=300)
            raise Unsigned(
                f"nothing was signed: {self._program} ended with status {done.returncode}"
                f"{f' and said: {said}' if said else ''}; nothing was recorded"
            )

    def _found(self, keys: Collection[bytes], folder: Path) -> Path:
        """Return a key file, or the public half of a key in the agent, for one of these keys."""
        for path in self._usual():
            if _public(_text(path.with_name(f"{path.name}.pub"))) in keys:
                return path
        for line in self._in_agent():
            if _public(line) in keys:
                public = folder / "agent.pub"
                public.write_text(f"{line}\n")
                return public
        marks = ", ".join(sorted(map(sshsig.fingerprint, keys))) or "none"
        raise Unsigned(
            f"none of the keys with which you may sign now ({marks}) lies in ~/.ssh under a usual name or in an agent; "
            "name the file: --key FILE"
        )

    def _usual(self) -> Iterator[Path]:
        home = self._environ.get("HOME")
        if home:
            yield from (Path(home) / ".ssh" / name for name in _USUAL)

    def _in_agent(self) -> Sequence[str]:
        if "SSH_AUTH_SOCK" not in self._environ:
            return ()
        try:
            done = subprocess.run(
                ["ssh-add", "-L"],  # noqa: S607 - where it lies is the machine's business
                env=self._environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LISTING,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ()  # an agent that is not there holds no key
        return done.stdout.decode("ascii", "replace").splitlines() if done.returncode == 0 else ()


@contextmanager
def _terminal_as_it_was() -> Iterator[None]:
    """Put the terminal back: who is killed while it reads a passphrase leaves it without echo."""
    before = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""


def _public(line: str) -> bytes | None:
    """Return the key of one line of a ``.pub`` file, in the form of SSH."""
    words = line.split()
    try:
        return base64.b64decode(words[1], validate=True) if len(words) > 1 else None
    except ValueError:
        return None
