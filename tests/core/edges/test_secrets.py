from __future__ import annotations

import os
import stat
import sys
import traceback
from pathlib import Path
from types import ModuleType

import pytest

from opledger.edges import secrets as module
from opledger.edges.secrets import FRESH, REMEMBERED, SecretResolver
from opledger.errors import ConfigWrong
from tests.core.edges.wire import StillClock

VALUE = "the-Secret-Value-1"


def private(path: Path, data: bytes, mode: int = 0o600) -> str:
    """A file with a mode, as a reference."""
    path.write_bytes(data)
    path.chmod(mode)
    return f"file:{path}"


def test_each_kind_is_resolved(tmp_path: Path) -> None:
    """People keep secrets in different places."""
    resolver = SecretResolver({"TOKEN": VALUE, "PATH": os.environ["PATH"]})
    assert resolver.resolve("env:TOKEN") == VALUE
    assert resolver.resolve(private(tmp_path / "s", b"from-file\n")) == "from-file"
    assert resolver.resolve("command:printf 'from command\\nsecond line'") == "from command"
    assert resolver.known() == (VALUE, "from-file", "from command")


@pytest.mark.parametrize(("data", "value"), [(b"a\n", "a"), (b"a\r\n", "a"), (b" a ", " a "), ("ä".encode(), "ä")])
def test_one_line_break_at_the_end_of_a_file_is_no_part_of_the_secret(tmp_path: Path, data: bytes, value: str) -> None:
    """Editors put it there; blanks may be meant."""
    assert SecretResolver({}).resolve(private(tmp_path / "s", data)) == value


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("env:MISSING", "env:MISSING is not there"),
        ("env:EMPTY", "env:EMPTY is empty"),
        ("env:LINES", "env:LINES has a line break"),
        ("env:DEL", "env:DEL has a line break or another control character"),
        ("TOKEN", "not a secret reference"),
        ("the-Secret-Value-1", "not a secret reference"),
        ("the-Secret:Value-1", "not a secret reference"),
        ("env:", "not a secret reference"),
        ("vault:x", "not a secret reference"),
        ("", "not a secret reference"),
        ("file:/nowhere/at/all", "cannot be read: No such file"),
        ("file:/dev/null", "not a plain file"),
        ("keyring:service", "keyring:service/user"),
        ("command:false", "command:false cannot be had: the program ended with status 1"),
        ("command:no-such-program-here x", "command:no-such-program-here cannot be had: the program does not start"),
        ("command:echo 'x", "command:echo is not a command line"),
        ("command:true", "command:true is empty"),
        ("command: ", "does not start"),
    ],
)
def test_what_cannot_be_resolved_is_named(reference: str, says: str) -> None:
    """The reference tells a person where to look; the value, or what may be one, is never shown."""
    environ = {"EMPTY": "", "LINES": f"{VALUE}\r\nX: y", "DEL": f"{VALUE}\x7f", "PATH": os.environ["PATH"]}
    with pytest.raises(ConfigWrong) as caught:
        SecretResolver(environ).resolve(reference)
    assert says in caught.value.message
    assert "Secret:Value" not in caught.value.message
    assert VALUE not in "".join(traceback.format_exception(caught.value)).replace(repr(reference), "")


@pytest.mark.parametrize(
    ("mode", "owner", "taken"),
    [
        (0o600, 1000, True), (0o400, 1000, True), (0o640, 1000, False), (0o604, 1000, False), (0o444, 1000, False),
        (0o444, 0, True), (0o640, 0, True), (0o620, 0, False), (0o666, 0, False),
    ],
)  # fmt: skip
def test_a_file_that_others_can_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, owner: int, taken: bool
) -> None:
    """Except where root mounted it so, as container platforms do."""
    reference = private(tmp_path / "s", VALUE.encode(), mode)
    real = os.fstat

    def owned(number: int) -> os.stat_result:
        found = list(real(number))
        found[0], found[4] = stat.S_IFREG | mode, owner
        return os.stat_result(found)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", owned)
        if taken:
            assert SecretResolver({}).resolve(reference) == VALUE
        else:
            with pytest.raises(ConfigWrong, match=f"mode {mode:04o}"):
                SecretResolver({}).resolve(reference)


@pytest.mark.parametrize("data", [b"x" * (64 * 1024 + 1), b"\xff\xfe"])
def test_a_file_that_cannot_be_a_secret_is_refused(tmp_path: Path, data: bytes) -> None:
    """A wrong path must not load a disk image, nor show bytes in an error."""
    with pytest.raises(ConfigWrong) as caught:
        SecretResolver({}).resolve(private(tmp_path / "s", data))
    assert "xff" not in "".join(traceback.format_exception(caught.value))


def test_a_command_sees_no_secret_of_ours(tmp_path: Path) -> None:
    """A helper program has no business with other credentials or with the database's password."""
    environ = {
        "TOKEN": VALUE, "COPY": VALUE, "LATER": "another-Secret-2", "OPLEDGER_DATABASE": "postgresql://u:p@h/d",
        "HARMLESS": "yes", "PATH": os.environ["PATH"],
    }  # fmt: skip
    resolver = SecretResolver(environ)
    resolver.hide(["env:LATER", "file:/x"])
    resolver.resolve("env:TOKEN")
    script = tmp_path / "script.sh"
    script.write_text('env | cut -d= -f1 | sort | grep -vx -e _ -e PWD -e OLDPWD -e SHLVL | tr "\\n" " "\n')
    assert resolver.resolve(f"command:sh {script}") == "HARMLESS PATH "


def test_what_a_command_printed_is_in_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It may have printed the secret before it failed or hung."""
    monkeypatch.setattr(module, "COMMAND_TIMEOUT", 0.2)
    for rest in ("exit 3", "exec sleep 30"):
        script = tmp_path / "script.sh"
        script.write_text(f"echo {VALUE}\necho {VALUE} >&2\n{rest}\n")
        with pytest.raises(ConfigWrong) as caught:
            SecretResolver(os.environ).resolve(f"command:sh {script} --password {VALUE}")
        assert "command:sh " in caught.value.message
        assert VALUE not in "".join(traceback.format_exception(caught.value))


def test_a_command_that_prints_for_ever_is_stopped_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that it prints in its time would fill the memory of a worker."""
    monkeypatch.setattr(module, "COMMAND_TIMEOUT", 60.0)
    most, read = [0], os.read

    def counted(handle: int, size: int) -> bytes:
        most[0] += size
        return read(handle, size)

    monkeypatch.setattr("opledger.edges.secrets.os.read", counted)
    with pytest.raises(ConfigWrong, match="longer than 65536 bytes"):
        SecretResolver(os.environ).resolve("command:yes")
    assert most[0] < 100 * module.MAX_SECRET


def test_a_value_is_used_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rotated secret is seen after half a minute, and the old one stays masked."""
    clock = StillClock()
    environ = {"TOKEN": "one"}
    resolver = SecretResolver(environ, clock=clock)
    assert resolver.cached("env:TOKEN") is None
    assert resolver.resolve("env:TOKEN") == "one"
    environ["TOKEN"] = "two"
    clock.passed = FRESH - 0.1
    assert (resolver.resolve("env:TOKEN"), resolver.cached("env:TOKEN")) == ("one", "one")
    clock.passed = FRESH
    assert resolver.cached("env:TOKEN") is None
    assert resolver.resolve("env:TOKEN") == "two"
    assert resolver.known() == ("one", "two")


def test_old_values_are_forgotten_at_last() -> None:
    """A worker that runs for years with hourly tokens must not grow for ever."""
    clock = StillClock()
    environ: dict[str, str] = {}
    resolver = SecretResolver(environ, clock=clock)
    for number in range(REMEMBERED + 5):
        clock.passed += FRESH
        environ["TOKEN"] = f"value-{number}"
        resolver.resolve("env:TOKEN")
    assert len(resolver.known()) == REMEMBERED
    assert resolver.known()[-1] == f"value-{REMEMBERED + 4}"
    assert "value-4" not in resolver.known()


class FakeKeyring(ModuleType):
    """The part of keyring that is used."""

    class errors:  # noqa: N801 - keyring's own name
        """As in keyring."""

        class KeyringError(Exception):
            """The root of its errors."""

    def get_password(self, service: str, user: str) -> str | None:
        """Answer for one user; fail for another."""
        if user == "locked":
            raise self.errors.KeyringError(VALUE)
        return {("shop", "ann/b"): VALUE}.get((service, user))


def test_a_keyring_is_asked_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no dependency of ours; without it the message says what to install."""
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(ConfigWrong, match="pip install keyring"):
        SecretResolver({}).resolve("keyring:shop/ann/b")
    monkeypatch.setitem(sys.modules, "keyring", FakeKeyring("keyring"))
    resolver = SecretResolver({})
    assert resolver.resolve("keyring:shop/ann/b") == VALUE
    with pytest.raises(ConfigWrong, match="not in the keyring"):
        resolver.resolve("keyring:shop/bob")
    with pytest.raises(ConfigWrong, match="answers KeyringError") as caught:
        resolver.resolve("keyring:shop/locked")
    assert VALUE not in "".join(traceback.format_exception(caught.value))
