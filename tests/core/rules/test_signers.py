from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest

from opledger.rules.approval_signatures import NAMESPACE
from opledger.rules.signers import AllowedSigners, SignersInvalid, parse
from opledger.rules.sshsig import SignatureWrong
from tests.core.rules.ssh_vectors import VECTORS

KEY = VECTORS["ed25519 sha512"][0]
OTHER = VECTORS["ecdsa256 sha512"][0]
BLOB, OTHER_BLOB = (base64.b64decode(line.split()[1]) for line in (KEY, OTHER))
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def signers(*lines: str) -> AllowedSigners:
    """A file of these lines."""
    return parse("\n".join(lines), "allowed")


def may(found: AllowedSigners, who: str = "ana", key: bytes = BLOB, at: datetime = NOON) -> str | None:
    """Why somebody may not sign; None where they may."""
    try:
        found.check(who, key, NAMESPACE, at)
    except SignatureWrong as wrong:
        assert key not in found.keys_of(who, NAMESPACE, at)
        return str(wrong)
    assert key in found.keys_of(who, NAMESPACE, at)
    return None


@pytest.mark.parametrize(
    "line",
    [
        f"ana {KEY}",
        f"ana {KEY} ana@desk",
        f"jo,ana {KEY} a comment of words",
        f'"jo,ana" {KEY}',
        f"  ana\t{KEY}  \r",
        f'ana namespaces="opledger-approval@1" {KEY}',
        f'ana namespaces="git,opledger-*" {KEY}',
        f'ana NAMESPACES="*",valid-after="20261130Z",valid-before="20261201Z" {KEY}',
        f'ana valid-before="20261130120000Z" {KEY}',
        f'ana valid-after="202611301200Z" {KEY}',
        f"an* {KEY}",
        f"a?a {KEY}",
        f"*,!jo {KEY}",
    ],
)
def test_who_is_listed_may_sign(line: str) -> None:
    """The forms that ssh-keygen takes, too."""
    assert may(signers("# those who may", "", line)) is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"jo {KEY}", "listed for others than ana"),
        (f"Ana {KEY}", "listed for others than ana"),
        (f"*,!ana {KEY}", "listed for others"),
        (f"[a]na {KEY}", "listed for others"),
        (f"ana {OTHER}", "is not listed in allowed"),
        (f'ana namespaces="git" {KEY}', "not for the namespace opledger-approval@1"),
        (f'ana namespaces="*,!opledger-*" {KEY}', "not for the namespace"),
        (f'ana valid-after="20261201Z" {KEY}', "valid from 2026-12-01"),
        (f'ana valid-before="20261130Z" {KEY}', "valid until 2026-11-30T00:00:00"),
    ],
)
def test_who_is_not_may_not_and_is_told_why(line: str, said: str) -> None:
    """The reason says which word of the file it was."""
    assert said in str(may(signers(line)))


def test_a_key_counts_in_its_time_whatever_the_time_is_now() -> None:
    """Who left last year has still approved what they approved before."""
    found = signers(f'ana valid-after="20260101Z",valid-before="20261130Z" {KEY}', f"ana {OTHER}")
    assert may(found, at=NOON - timedelta(days=1)) is None
    assert may(found, at=NOON) is not None
    assert may(found, at=datetime(2025, 1, 1, tzinfo=UTC)) is not None
    assert found.keys_of("ana", NAMESPACE, NOON) == (OTHER_BLOB,)


def test_one_of_several_lines_is_enough() -> None:
    """A renewed key stands beside the old line."""
    assert may(signers(f'ana namespaces="git" {KEY}', f"ana {KEY}")) is None


def test_nobody_is_listed_in_an_empty_file() -> None:
    """No line, no signer."""
    assert "is not listed" in str(may(parse("\n# nobody\n", "allowed")))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"ana cert-authority {KEY}", "cert-authority is not supported"),
        (f'ana namespaces="x",CERT-authority {KEY}', "cert-authority is not supported"),
        (f'ana valid-after="20260101" {KEY}', "must be in UTC and end in Z"),
        (f'ana valid-after="soon" {KEY}', "must be YYYYMMDDZ"),
        (f'ana valid-after="20261331Z" {KEY}', "is no date"),
        (f'ana valid-after="20261130Z",valid-before="20261130Z" {KEY}', "not before valid-before"),
        (f'ana valid-after="20260101Z",valid-after="20250101Z" {KEY}', "stands there twice"),
        (f"ana valid-after=20260101Z {KEY}", "cannot be read"),
        (f"ana namespaces {KEY}", "needs a value"),
        (f'ana namespaces="" {KEY}', "needs a value"),
        (f"ana no-touch-required {KEY}", "'no-touch-required' is not known"),
        (f'ana valid-until="20260101Z" {KEY}', "'valid-until' is not known"),
        ("ana", "must be: principals"),
        ("ana ssh-ed25519", "must be: principals"),
        (f"ana,, {KEY}", "a principal is empty"),
        (f'"ana {KEY}', "a quote is left open"),
        ("ana ssh-dss AAAAB3NzaC1kc3M=", "'ssh-dss' are not supported"),
        ("ana ssh-ed25519-cert-v01@openssh.com AAAA", "are not supported"),
        ("ana ssh-ed25519 !!!", "cannot be read"),
        ("ana ssh-ed25519 AAAA", "cannot be read"),
        (f"ana ssh-rsa {KEY.split()[1]}", "is of type ssh-ed25519 and not ssh-rsa"),
        ("ana x\x1b[2J ssh-ed25519 AAAA", "line 2: "),
    ],
)
def test_what_is_not_supported_is_refused_with_its_line(line: str, said: str) -> None:
    """A line that is skipped in silence is a line somebody relied on."""
    with pytest.raises(SignersInvalid) as caught:
        signers(f"jo {KEY}", line)
    assert said in caught.value.message
    assert "line 2: " in caught.value.message
    assert "\x1b" not in caught.value.message


def test_a_file_without_end_is_refused() -> None:
    """It is read into memory whole."""
    with pytest.raises(SignersInvalid, match="longer than"):
        parse("#" * (1024 * 1024 + 1), "allowed")
