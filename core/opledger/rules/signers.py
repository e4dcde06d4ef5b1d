"""Whose SSH keys count: the ``allowed_signers`` file, as git and ``ssh-keygen -Y verify`` use it.

One line a signer: principals, options, type of the key, the key, a comment (ssh-keygen(1), "ALLOWED SIGNERS"). Read
strictly: what is not supported (certificates, times of the machine's own zone) is refused with its line, because a line
that is skipped in silence is a line somebody relied on.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import ClassVar, Final

from opledger.errors import ConfigWrong
from opledger.rules.model import to_rfc3339
from opledger.rules.plain import clean
from opledger.rules.sshsig import KEY_TYPES, SignatureWrong, fingerprint, key_type

LARGEST: Final = 1024 * 1024
"""Most characters of a file."""

_OPTION: Final = re.compile(r'([A-Za-z-]+)(?:="([^"]*)")?(,|$)')
_TIME: Final = re.compile(r"(\d{4})(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d)?)?(Z?)", re.IGNORECASE | re.ASCII)
_KINDS: Final = re.compile(r"(?:ssh|ecdsa|sk|webauthn)-[\w@.+-]+", re.ASCII)


class SignersInvalid(ConfigWrong):
    """A file of allowed signers cannot be used; names the file and the line."""

    code: ClassVar[str] = "signers_invalid"


@dataclass(frozen=True, slots=True)
class Signer:
    """One line: who may sign with which key, for what, and when."""

    line: int
    principals: tuple[str, ...]  #: patterns with ``*`` and ``?``; ``!`` before one excludes
    key: bytes
    namespaces: tuple[str, ...] | None = None  #: patterns; None: for anything
    valid_after: datetime | None = None
    valid_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class AllowedSigners:
    """All lines of a file."""

    name: str  #: of the file, for people
    signers: tuple[Signer, ...]

    def keys_of(self, principal: str, namespace: str, at: datetime) -> tuple[bytes, ...]:
        """Return the keys with which somebody may sign then."""
        lines = (line for line in self.signers if _fits(principal, line.principals))
        return tuple(dict.fromkeys(line.key for line in lines if _unfit(line, namespace, at) is None))

    def check(self, principal: str, key: bytes, namespace: str, at: datetime) -> None:
        """Raise SignatureWrong, with the reason, where this key is not one of theirs for this and then."""
        mark = fingerprint(key)
        theirs = [line for line in self.signers if line.key == key]
        named = [line for line in theirs if _fits(principal, line.principals)]
        if not named:
            listed = f"is listed for others than {principal}" if theirs else "is not listed"
            raise SignatureWrong(f"the key {mark} {listed} in {self.name}")
        reasons = [_unfit(line, namespace, at) for line in named]
        if None not in reasons:
            lines = zip(named, reasons, strict=True)
            said = "; ".join(f"{reason} (line {line.line})" for line, reason in lines)
            raise SignatureWrong(f"the key {mark} of {principal} does not count here, by {self.name}: {said}")


def parse(text: str, name: str) -> AllowedSigners:
    """Read a file. Raises SignersInvalid for the first line that cannot be read, or asks for what is not supported."""
    if len(text) > LARGEST:
        raise SignersInvalid(f"the allowed signers in {name} are longer than {LARGEST:,} characters")
    found: list[Signer] = []
    for number, line in enumerate(text.split("\n"), 1):
        content = line.strip(" \t\r")
        if not content or content.startswith("#"):
            continue
        try:
            found.append(_line(number, content))
        except ValueError as error:
            raise SignersInvalid(
                f"the allowed signers in {name} cannot be used; line {number}: {clean(str(error), limit=300)}"
            ) from None
    return AllowedSigners(name, tuple(found))


def _fits(text: str, patterns: Sequence[str]) -> bool:
    """Match as OpenSSH does: one that is excluded is excluded, whatever else fits."""
    if any(_like(text, pattern[1:]) for pattern in patterns if pattern.startswith("!")):
        return False
    return any(_like(text, pattern) for pattern in patterns if not pattern.startswith("!"))


def _like(text: str, pattern: str) -> bool:
    wild = {"*": ".*", "?": "."}
    return re.fullmatch("".join(wild.get(char) or re.escape(char) for char in pattern), text, re.DOTALL) is not None


def _unfit(line: Signer, namespace: str, at: datetime) -> str | None:
    if line.namespaces is not None and not _fits(namespace, line.namespaces):
        return f"it is not for the namespace {namespace}"
    if line.valid_after is not None and at < line.valid_after:
        return f"it is valid from {to_rfc3339(line.valid_after)} on"
    if line.valid_before is not None and at > line.valid_before:
        return f"it was valid until {to_rfc3339(line.valid_before)}"
    return None


def _line(number: int, content: str) -> Signer:
    principals, rest = _field(content)
    options = ""
    if not _KINDS.match(rest):
        options, rest = _field(rest, quotes_inside=True)
    signer = _with_options(Signer(number, (), b""), options)
    words = rest.split(None, 2)
    if len(words) < 2:
        raise ValueError("must be: principals, options, the type of the key, the key")
    kind, encoded = words[:2]
    if kind not in KEY_TYPES:
        raise ValueError(f"keys of type {kind!r} are not supported; there are: {', '.join(KEY_TYPES)}")
    try:
        key = base64.b64decode(encoded, validate=True)
        named = key_type(key)
    except ValueError:
        raise ValueError(f"the {kind} key cannot be read") from None
    if named != kind:
        raise ValueError(f"the key is of type {named} and not {kind}")
    names = tuple(name.strip() for name in principals.split(","))
    if not all(name.removeprefix("!") for name in names):
        raise ValueError("a principal is empty")
    return replace(signer, principals=names, key=key)


def _field(text: str, *, quotes_inside: bool = False) -> tuple[str, str]:
    """Return the first field and the rest; blanks between quotes belong to the field."""
    if text.startswith('"') and not quotes_inside:
        inside, closed, rest = text[1:].partition('"')
        if not closed:
            raise ValueError("a quote is left open")
        return inside, rest.lstrip(" \t")
    found = re.match(r'(?:"[^"]*"|[^\s"])*' if quotes_inside else r"\S*", text)
    assert found is not None
    return found[0], text[found.end() :].lstrip(" \t")


def _with_options(signer: Signer, options: str) -> Signer:
    namespaces, after, before = signer.namespaces, signer.valid_after, signer.valid_before
    seen: set[str] = set()
    at = 0
    while at < len(options):
        found = _OPTION.match(options, at)
        if found is None:
            raise ValueError(f'the options {options[:80]!r} cannot be read; write them as name="value",…')
        at = found.end()
        option, value = found[1].lower(), found[2]
        if option in seen:
            raise ValueError(f"{option} stands there twice")
        seen.add(option)
        if option == "cert-authority":
            raise ValueError("cert-authority is not supported: list each person's own key")
        if option not in ("namespaces", "valid-after", "valid-before"):
            raise ValueError(f"the option {option!r} is not known")
        if not value:
            raise ValueError(f"{option} needs a value in quotes")
        if option == "namespaces":
            namespaces = tuple(value.split(","))
        elif option == "valid-after":
            after = _time(option, value)
        else:
            before = _time(option, value)
    if after is not None and before is not None and after >= before:
        raise ValueError("valid-after is not before valid-before")
    return replace(signer, namespaces=namespaces, valid_after=after, valid_before=before)


def _time(option: str, text: str) -> datetime:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{option} must be YYYYMMDDZ or YYYYMMDDHHMMSSZ, not {text[:40]!r}")
    if not found[7]:
        raise ValueError(f"{option} must be in UTC and end in Z: {text}Z; what midnight is must not hang on a machine")
    try:
        year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise ValueError(f"{option} is no date: {text[:40]!r}") from None
