from __future__ import annotations

import base64
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from opledger.rules import sshsig
from opledger.rules.approval_signatures import NAMESPACE
from opledger.rules.sshsig import SignatureWrong
from tests.core.rules.ssh_vectors import MESSAGE, VECTORS
from tests.support import sshkeys
from tests.support.sshkeys import SecurityKey, envelope, integer, needs_ssh_keygen, string

ED25519 = VECTORS["ed25519 sha512"][1]
SK = "sk-ssh-ed25519@openssh.com"
SK_ECDSA = "sk-ecdsa-sha2-nistp256@openssh.com"


def check(signature: str, message: bytes = MESSAGE, namespace: str = NAMESPACE) -> None:
    """Read and verify."""
    sshsig.verify(sshsig.read(signature), message, namespace)


def one_line(key: bytes, inner: bytes, **how: object) -> str:
    """An envelope of a test's own, in base64."""
    return base64.b64encode(envelope(key, inner, **how)).decode()  # type: ignore[arg-type]


# --- what holds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VECTORS)
def test_a_signature_of_every_supported_kind_is_verified(name: str) -> None:
    """Fixed ones: verifying needs no ssh-keygen, today and after every upgrade."""
    public, signature = VECTORS[name]
    check(signature)
    check(sshsig.armoured(signature))
    read = sshsig.read(signature)
    assert read.key == base64.b64decode(public.split()[1])
    assert sshsig.key_type(read.key) == public.split()[0]
    assert read.hash_algorithm in name or name.startswith("sk-")


@needs_ssh_keygen
@pytest.mark.parametrize(
    ("kind", "bits"), [("ed25519", None), ("ecdsa", 256), ("ecdsa", 384), ("ecdsa", 521), ("rsa", 2048), ("rsa", 3072)]
)
@pytest.mark.parametrize("hashed", ["sha256", "sha512"])
def test_what_ssh_keygen_signs_is_verified(tmp_path: Path, kind: str, bits: int | None, hashed: str) -> None:
    """Fresh keys: lengths of numbers vary from one to the next."""
    key = sshkeys.make(tmp_path, "key", kind, bits)
    armoured = sshkeys.signed(key, MESSAGE, hashed=hashed)
    check(armoured)
    assert sshsig.armoured(sshsig.bare(armoured)) == armoured
    with pytest.raises(SignatureWrong, match="not a signature over this text"):
        check(armoured, MESSAGE + b"x")


@needs_ssh_keygen
@pytest.mark.parametrize("kind", [SK, SK_ECDSA])
@pytest.mark.parametrize(("flags", "counter"), [(1, 0), (5, 2**32 - 1)])
def test_we_and_ssh_keygen_agree_on_keys_in_hardware(tmp_path: Path, kind: str, flags: int, counter: int) -> None:
    """Two verifiers, written apart, take the same signature."""
    key = SecurityKey(kind)
    signature = key.sign(MESSAGE, flags=flags, counter=counter)
    check(signature)
    assert (sshsig.read(signature).flags, sshsig.read(signature).counter) == (flags, counter)
    assert sshkeys.accepted(tmp_path, f"ana {key.public}", sshsig.armoured(signature), MESSAGE)


@needs_ssh_keygen
def test_a_fingerprint_is_written_as_ssh_keygen_writes_it(tmp_path: Path) -> None:
    """People compare it with what ``ssh-add -l`` shows them."""
    import subprocess

    key = sshkeys.make(tmp_path, "key")
    shown = subprocess.run(["ssh-keygen", "-l", "-f", str(key)], capture_output=True, text=True, check=True, timeout=60)
    assert sshsig.fingerprint(sshkeys.blob(key)) in shown.stdout.split()


# --- what does not ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VECTORS)
def test_any_changed_byte_makes_a_signature_wrong(name: str) -> None:
    """Nothing in it lies outside what is checked: not the key, not the namespace, not the counter."""
    whole = base64.b64decode(VECTORS[name][1])
    for at in range(0, len(whole), 1 if len(whole) < 400 else 3):
        changed = bytearray(whole)
        changed[at] ^= 1
        with pytest.raises(SignatureWrong):
            check(base64.b64encode(changed).decode())


@pytest.mark.parametrize("name", VECTORS)
def test_a_signature_that_is_cut_or_longer_is_wrong(name: str) -> None:
    """Half of one, or one with a tail, was not made by ssh-keygen."""
    whole = base64.b64decode(VECTORS[name][1])
    for other in (*(whole[:size] for size in range(0, len(whole), 7)), whole + b"\0", whole + whole):
        with pytest.raises(SignatureWrong):
            check(base64.b64encode(other).decode())


def test_a_signature_for_something_else_approves_nothing() -> None:
    """A signed commit, or a login, is no approval."""
    with pytest.raises(SignatureWrong, match="made for 'opledger-approval@1', and not for git"):
        check(ED25519, namespace="git")
    with pytest.raises(SignatureWrong, match="made for 'git'"):
        check(SecurityKey(SK).sign(MESSAGE, namespace="git"))


def test_a_security_key_must_have_been_touched() -> None:
    """Without a touch, whatever runs on the machine can sign."""
    for flags in (0, 4, 0xFE):
        with pytest.raises(SignatureWrong, match="nobody touched"):
            check(SecurityKey(SK).sign(MESSAGE, flags=flags))


def test_a_signature_of_a_security_key_counts_for_its_application_only() -> None:
    """What the key signs names the application."""
    other = SecurityKey(SK, application="ssh:other")
    right = sshsig.read(SecurityKey(SK).sign(MESSAGE))
    from dataclasses import replace

    with pytest.raises(SignatureWrong, match="not a signature"):
        sshsig.verify(replace(right, key=other.blob), MESSAGE, NAMESPACE)


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        ("", "cut short"),
        ("!!!", "not base64"),
        ("é", "not base64"),
        ("aGVsbG8gd29ybGQgaGVsbG8=", "not what ssh-keygen"),
        ("-----BEGIN SSH SIGNATURE-----\n-----END SSH SIGNATURE-----", "cut short"),
        ("A" * 40_000, "longer than"),
        (one_line(b"", b"", version=2), "version 2"),
        (one_line(string(b"ssh-dss"), b""), "'ssh-dss' are not supported"),
        (one_line(string(b"ssh-ed25519-cert-v01@openssh.com"), b""), "are not supported"),
        (one_line(string(b"ssh\x1b[2J"), b""), "cannot be read"),
        (one_line(string(b"ssh-ed25519") + string(b"k" * 32), b"", hashed="md5"), "'md5'"),
        (
            one_line(string(b"ssh-ed25519") + string(b"k" * 31), string(b"ssh-ed25519") + string(b"s" * 64)),
            "has 32 bytes",
        ),
        (
            one_line(string(b"ssh-ed25519") + string(b"k" * 32), string(b"ssh-rsa") + string(b"s" * 64)),
            "made it with 'ssh-rsa'",
        ),
        (
            one_line(string(b"ssh-rsa") + integer(65537) + integer(2**2047 + 1), string(b"ssh-rsa") + string(b"")),
            "made it with 'ssh-rsa'",
        ),
        (
            one_line(
                string(b"ecdsa-sha2-nistp256") + string(b"nistp384") + string(b"\4" + b"p" * 96),
                string(b"ecdsa-sha2-nistp256") + string(integer(1) + integer(1)),
            ),
            "on the curve 'nistp384'",
        ),
        (
            one_line(
                string(b"ecdsa-sha2-nistp256") + string(b"nistp256") + string(b"\4" + b"p" * 64),
                string(b"ecdsa-sha2-nistp256") + string(integer(1) + integer(1)),
            ),
            "no point of its curve",
        ),
    ],
)
def test_what_is_not_understood_is_refused_by_name(signature: str, said: str) -> None:
    """Never taken for good, and people read why."""
    with pytest.raises(SignatureWrong, match=said):
        check(signature)


def test_a_short_rsa_key_is_refused() -> None:
    """1024 bits can be broken."""
    numbers = rsa.generate_private_key(65537, 1024).public_key().public_numbers()
    key = string(b"ssh-rsa") + integer(numbers.e) + integer(numbers.n)
    with pytest.raises(SignatureWrong, match="2048 bits or more; this one has 1024"):
        check(one_line(key, string(b"rsa-sha2-512") + string(b"s" * 128)))


@given(st.binary(max_size=300))
def test_rubbish_never_raises_anything_else(rubbish: bytes) -> None:
    """A journal may hold anything; verifying it must end in a finding."""
    for blob in (rubbish, b"SSHSIG\0\0\0\1" + rubbish):
        with pytest.raises(SignatureWrong):
            check(base64.b64encode(blob).decode())
