"""Secret references and what they stand for. Values stay in memory, for a short while, and are never shown."""

from __future__ import annotations

import os
import select
import shlex
import stat
import subprocess
from collections.abc import Hashable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final
from weakref import WeakSet

from opledger.edges.clock import Clock, SystemClock
from opledger.errors import ConfigWrong

FRESH: Final = 30.0
"""Seconds for which a value is used again: a rotated secret is seen soon, and no command runs for every poll."""
COMMAND_TIMEOUT: Final = 10.0
MAX_SECRET: Final = 64 * 1024
REMEMBERED: Final = 1000
"""How many values, old ones too, stay known so that they can be masked."""
LEARNED: Final = 6
"""How many values of one source that are no reference's do."""

_KINDS: Final = "env:NAME, file:PATH, keyring:service/user or command:PROGRAM"


def known_here() -> tuple[str, ...]:
    """Return every value that any resolver of this process has seen."""
    return tuple(dict.fromkeys(value for resolver in tuple(_LIVING) for value in resolver.known()))


class SecretResolver:
    """Turns ``env:NAME``, ``file:PATH``, ``keyring:service/user`` and ``command:PROGRAM ARGUMENTS`` into values.

    Every method may be called from any thread.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ, *, clock: Clock | None = None) -> None:
        self._environ = environ
        self._clock = clock or SystemClock()
        self._fresh: dict[str, tuple[float, str]] = {}
        self._times: dict[str, int] = {}
        self._known: dict[str, None] = {}
        self._learned: dict[Hashable, tuple[str, ...]] = {}
        self._hidden: set[str] = set()
        _LIVING.add(self)

    def resolve(self, reference: str) -> str:
        """Return the value now. May block for up to `COMMAND_TIMEOUT` seconds.

        Raises ConfigWrong, naming the reference and never the value, where there is none, where it is empty, or where
        it has control characters in it (they could end a header and begin another).
        """
        known = self.cached(reference)
        if known is not None:
            return known
        kind, colon, rest = reference.partition(":")
        name = _shown(reference)
        if not colon or not rest:
            raise ConfigWrong(f"{name!r} is not a secret reference; write {_KINDS}")
        if kind == "env":
            value = self._from_environment(rest)
        elif kind == "file":
            value = _from_file(rest, name)
        elif kind == "keyring":
            value = _from_keyring(rest, name)
        elif kind == "command":
            value = self._from_command(rest, name)
        else:
            raise ConfigWrong(f"{name!r} is not a secret reference; write {_KINDS}")
        if not value:
            raise ConfigWrong(f"the secret {name} is empty")
        if any(ord(char) < 0x20 or ord(char) == 0x7F for char in value):
            raise ConfigWrong(f"the secret {name} has a line break or another control character in it")
        self._fresh[reference] = (self._clock.monotonic(), value)
        self._times[reference] = self.times(reference) + 1
        self._remember(value)
        return value

    def cached(self, reference: str) -> str | None:
        """Return the value if it was resolved less than `FRESH` seconds ago."""
        found = self._fresh.get(reference)
        if found is None or self._clock.monotonic() - found[0] >= FRESH:
            return None
        return found[1]

    def times(self, reference: str) -> int:
        """Return how many times a value was resolved. Where that is more than it was, the value may be a newer one."""
        return self._times.get(reference, 0)

    def forget(self, reference: str, times: int) -> None:
        """Resolve the value anew next time, unless that was done since it had this number."""
        if self.times(reference) == times:
            self._fresh.pop(reference, None)

    def learn(self, source: Hashable, *values: str) -> None:
        """Know values that are no reference's, access tokens for one, so that they are masked.

        Of one source the latest `LEARNED` stay known: what is replaced every few minutes must not fill the memory.
        """
        before = [value for value in self._learned.get(source, ()) if value not in values]
        self._learned[source] = (*before, *values)[-LEARNED:]

    def known(self) -> tuple[str, ...]:
        """Return every value seen so far."""
        return (*self._known, *(value for values in tuple(self._learned.values()) for value in values))

    def hide(self, references: Iterable[str]) -> None:
        """Keep the variables of these ``env:`` references out of the environment of every ``command:``."""
        self._hidden.update(text.removeprefix("env:") for text in references if text.startswith("env:"))

    def _remember(self, value: str) -> None:
        self._known.pop(value, None)
        self._known[value] = None
        while len(self._known) > REMEMBERED:
            self._known.pop(next(iter(self._known), ""), None)

    def _from_environment(self, variable: str) -> str:
        self._hidden.add(variable)
        value = self._environ.get(variable)
        if value is None:
            raise ConfigWrong(f"the secret env:{variable} is not there; set the variable {variable}")
        return value

    def _from_command(self, line: str, name: str) -> str:
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise ConfigWrong(f"the secret {name} is not a command line: a quote is left open") from error
        until = self._clock.monotonic() + COMMAND_TIMEOUT
        try:
            program = subprocess.Popen(  # noqa: S603 - the operator names the program; no shell sees the line
                words,
                env=self._environment_for_commands(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except (OSError, ValueError, IndexError) as error:
            raise ConfigWrong(f"the secret {name} cannot be had: the program does not start") from error
        with program:
            try:
                data = self._printed(program, until)
                code = None if data is None else program.wait(max(until - self._clock.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                data = code = None
            finally:
                program.kill()
        if data is None or code is None:
            raise ConfigWrong(f"the secret {name} did not come within {COMMAND_TIMEOUT:.0f} seconds")
        if len(data) > MAX_SECRET:
            raise ConfigWrong(f"the secret {name} is longer than {MAX_SECRET} bytes")
        if code != 0:
            raise ConfigWrong(f"the secret {name} cannot be had: the program ended with status {code}")
        lines = _decoded(data, name).splitlines()
        return lines[0] if lines else ""

    def _printed(self, program: subprocess.Popen[bytes], until: float) -> bytes | None:
        """What a program prints, at most a little more than a secret may have; None where it takes too long.

        Never all of it: one that prints for ever would fill the memory before its time is over. Nor is waited for what
        it leaves behind with its output open: that is read until it ends, or until the time is over.
        """
        assert program.stdout is not None
        found, ready = b"", select.poll()
        ready.register(program.stdout, select.POLLIN)
        while len(found) <= MAX_SECRET:
            if not ready.poll(max(until - self._clock.monotonic(), 0.0) * 1_000):
                return None
            piece = os.read(program.stdout.fileno(), MAX_SECRET)
            if not piece:
                return found
            found += piece
        program.kill()
        return found

    def _environment_for_commands(self) -> dict[str, str]:
        """Everything but our own settings (a database URL has a password) and what is known to be secret."""
        known = self._known
        return {
            variable: value
            for variable, value in self._environ.items()
            if variable not in self._hidden and not variable.startswith("OPLEDGER_") and value not in known
        }


_LIVING: Final[WeakSet[SecretResolver]] = WeakSet()


def _shown(reference: str) -> str:
    """Return a reference for people. Arguments of a command stay out: people do put passwords there."""
    kind, colon, rest = reference.partition(":")
    if kind not in ("env", "file", "keyring", "command") or not colon:
        return f"{kind[:16]}:…" if colon else "a text without a kind"
    if kind == "command" and rest.split():
        return f"command:{rest.split()[0]}"
    return reference


def _from_file(place: str, name: str) -> str:
    path = Path(place).expanduser()
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            _check_file(found, name)
            data = file.read(MAX_SECRET + 1)
    except OSError as error:
        raise ConfigWrong(f"the secret {name} cannot be read: {error.strerror or type(error).__name__}") from None
    if len(data) > MAX_SECRET:
        raise ConfigWrong(f"the secret {name} is longer than {MAX_SECRET} bytes")
    text = _decoded(data, name)
    return text.removesuffix("\n").removesuffix("\r")


def _check_file(found: os.stat_result, name: str) -> None:
    """Refuse a file that others can read or change.

    A file of root that others may only read is taken: container platforms mount secrets that way, and nobody but root
    could have made it so.
    """
    if not stat.S_ISREG(found.st_mode):
        raise ConfigWrong(f"the secret {name} is not a plain file")
    others = stat.S_IMODE(found.st_mode) & 0o077
    if others & 0o022 or (others & 0o044 and found.st_uid != 0):
        mode = stat.S_IMODE(found.st_mode)
        raise ConfigWrong(f"the secret {name} is open to other users (mode {mode:04o}); make it 0600")


def _from_keyring(place: str, name: str) -> str:
    service, slash, user = place.partition("/")
    if not slash or not service or not user:
        raise ConfigWrong(f"the secret {name} needs the form keyring:service/user")
    try:
        keyring = import_module("keyring")
    except ImportError:
        raise ConfigWrong(f"the secret {name} needs keyring; install it with: pip install keyring") from None
    try:
        value = keyring.get_password(service, user)
    except keyring.errors.KeyringError as error:
        raise ConfigWrong(f"the secret {name} cannot be had: the keyring answers {type(error).__name__}") from None
    if value is None:
        raise ConfigWrong(f"the secret {name} is not in the keyring")
    return str(value)


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        # That error carries the bytes: it must not be a part of ours.
        raise ConfigWrong(f"the secret {name} is not UTF-8 text") from None
