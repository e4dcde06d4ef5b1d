"""SSH signatures over messages, as ``ssh-keygen -Y sign`` makes them: read strictly and verified in-process.

Sources: OpenSSH PROTOCOL.sshsig (the envelope), RFC 4253 §6.6 and RFC 8332 (RSA), RFC 5656 §3.1 (ECDSA), RFC 8709
(Ed25519), OpenSSH PROTOCOL.u2f (keys in hardware). What is not understood is refused, never taken for good.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurve
    from cryptography.hazmat.primitives.hashes import HashAlgorithm

LARGEST: Final = 16 * 1024
"""Bytes of a signature that are looked at: one of an RSA key of 16,384 bits has about 4,200."""
SHORTEST_RSA: Final = 2048
"""Bits that an RSA key must have at least."""

_MAGIC: Final = b"SSHSIG"
_HASHES: Final = {"sha256": hashlib.sha256, "sha512": hashlib.sha512}
_CURVES: Final = {"nistp256": "SECP256R1", "nistp384": "SECP384R1", "nistp521": "SECP521R1"}
_TOUCHED: Final = 0x01  #: PROTOCOL.u2f: the user was present
_ARMOR: Final = re.compile(r"-----BEGIN SSH SIGNATURE-----([A-Za-z0-9+/=\s]+)-----END SSH SIGNATURE-----", re.ASCII)


class SignatureWrong(ValueError):
    """A signature or a key cannot be read, is of a kind that is not supported, or does not fit. Says which."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature as it was read; nothing of it is believed before `verify`."""

    key: bytes  #: the public key in the form of SSH, which names its own type
    namespace: str
    hash_algorithm: str
    algorithm: str
    value: bytes
    flags: int | None = None  #: of a key in hardware
    counter: int | None = None


def read(text: str) -> Signature:
    """Read a signature: armoured as ssh-keygen prints it, or the bare base64. Raises SignatureWrong."""
    if len(text) > 2 * LARGEST:
        raise SignatureWrong(f"the signature is longer than {LARGEST:,} bytes")
    try:
        blob = base64.b64decode(_inside(text), validate=True)
    except ValueError:  # binascii.Error is one
        raise SignatureWrong("the signature is not what ssh-keygen -Y sign makes: it is not base64") from None
    return _envelope(blob)


def bare(text: str) -> str:
    """Return a signature as one line of base64. Raises SignatureWrong for what `read` would not take."""
    read(text)
    return _inside(text)


def _inside(text: str) -> str:
    found = _ARMOR.fullmatch(text.strip())
    return "".join((text if found is None else found[1]).split())


def armoured(bare: str) -> str:
    """Return a signature as ssh-keygen -Y verify reads it."""
    lines = [bare[at : at + 70] for at in range(0, len(bare), 70)]
    return "\n".join(("-----BEGIN SSH SIGNATURE-----", *lines, "-----END SSH SIGNATURE-----", ""))


def verify(signature: Signature, message: bytes, namespace: str) -> None:
    """Check that the signature's own key made it over `message`. Whose key that is, is not asked here.

    Raises SignatureWrong: another namespace, a key that is too short, no touch, or simply not signed by it.
    """
    from cryptography.exceptions import InvalidSignature

    if signature.namespace != namespace:
        raise SignatureWrong(f"it was made for {signature.namespace[:80]!r}, and not for {namespace}")
    signed = _signed(signature, message)
    check = _check(signature)
    try:
        check(signed)
    except (InvalidSignature, ValueError):
        raise SignatureWrong("it is not a signature over this text by this key") from None


def key_type(key: bytes) -> str:
    """Return the type that a public key names. Raises SignatureWrong for one that is not supported."""
    name = Reader(key, "the key").word()
    if name not in KEY_TYPES:
        raise SignatureWrong(f"keys of type {name[:80]!r} are not supported; there are: {', '.join(KEY_TYPES)}")
    return name


def fingerprint(key: bytes) -> str:
    """Return a public key's fingerprint as ``ssh-keygen -l`` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


# --- the envelope -----------------------------------------------------------------------------------------------------


class Reader:
    """Reads the fields of an SSH structure (RFC 4251 §5) one after the other. Raises SignatureWrong."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._at = 0
        self._what = what

    def take(self, size: int) -> bytes:
        """Return so many bytes."""
        found = self._data[self._at : self._at + size]
        if len(found) != size:
            raise SignatureWrong(f"{self._what} is cut short")
        self._at += size
        return found

    def number(self) -> int:
        """Return a uint32."""
        return int.from_bytes(self.take(4), "big")

    def string(self) -> bytes:
        """Return a string."""
        return self.take(self.number())

    def word(self) -> str:
        """Return a string of printable ASCII."""
        found = self.string()
        if not found.isascii() or not found.decode("ascii").isprintable():
            raise SignatureWrong(f"{self._what} has a name in it that cannot be read")
        return found.decode("ascii")

    def integer(self) -> int:
        """Return an mpint that is not negative."""
        found = self.string()
        if found and (found[0] & 0x80 or (found[0] == 0 and not (len(found) > 1 and found[1] & 0x80))):
            raise SignatureWrong(f"{self._what} has a number in it that is written wrongly")
        return int.from_bytes(found, "big")

    def end(self) -> None:
        """Raise where something is left."""
        if self._at != len(self._data):
            raise SignatureWrong(f"{self._what} has something behind its end")


def _envelope(blob: bytes) -> Signature:
    reader = Reader(blob, "the signature")
    if reader.take(6) != _MAGIC:
        raise SignatureWrong("the signature is not what ssh-keygen -Y sign makes")
    version = reader.number()
    if version != 1:
        raise SignatureWrong(f"the signature has version {version}; 1 is supported")
    key, namespace, _, hashed = reader.string(), reader.word(), reader.string(), reader.word()
    inner = Reader(reader.string(), "the signature")
    reader.end()
    if hashed not in _HASHES:
        raise SignatureWrong(f"the signature hashes with {hashed[:80]!r}; sha256 and sha512 are supported")
    kind = key_type(key)
    algorithm, value = inner.word(), inner.string()
    flags = counter = None
    if kind.startswith("sk-"):
        flags, counter = inner.take(1)[0], inner.number()
    inner.end()
    if algorithm not in KEY_TYPES[kind]:
        raise SignatureWrong(f"a key of type {kind} made it with {algorithm[:80]!r}, which is not supported")
    return Signature(key, namespace, hashed, algorithm, value, flags, counter)


def _signed(signature: Signature, message: bytes) -> bytes:
    """Return the bytes that the key has signed (PROTOCOL.sshsig §3)."""
    digest = _HASHES[signature.hash_algorithm](message).digest()
    parts = (signature.namespace.encode(), b"", signature.hash_algorithm.encode(), digest)
    return _MAGIC + b"".join(len(part).to_bytes(4, "big") + part for part in parts)


# --- the keys ---------------------------------------------------------------------------------------------------------

Check = Callable[[bytes], None]  # raises InvalidSignature


def _check(signature: Signature) -> Check:
    reader = Reader(signature.key, "the key")
    kind = reader.word()
    check = _BY_TYPE[kind](signature, reader)
    reader.end()
    return check


def _ed25519(signature: Signature, reader: Reader) -> Check:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    point = reader.string()
    if len(point) != 32:
        raise SignatureWrong("an Ed25519 key has 32 bytes")
    key = Ed25519PublicKey.from_public_bytes(point)
    return lambda signed: key.verify(signature.value, signed)


def _rsa(signature: Signature, reader: Reader) -> Check:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

    exponent, modulus = reader.integer(), reader.integer()
    if modulus.bit_length() < SHORTEST_RSA:
        raise SignatureWrong(f"an RSA key needs {SHORTEST_RSA} bits or more; this one has {modulus.bit_length()}")
    try:
        key = RSAPublicNumbers(exponent, modulus).public_key()
    except ValueError:
        raise SignatureWrong("the RSA key is not sound") from None
    digest = hashes.SHA256() if signature.algorithm == "rsa-sha2-256" else hashes.SHA512()
    # OpenSSH takes a signature whose leading zeros are left out, and so do we.
    value = signature.value.rjust((modulus.bit_length() + 7) // 8, b"\0")
    return lambda signed: key.verify(value, signed, padding.PKCS1v15(), digest)


def _ecdsa(signature: Signature, reader: Reader) -> Check:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    curve, point = reader.word(), reader.string()
    if curve not in _CURVES or not signature.algorithm.split("@")[0].endswith(curve):
        raise SignatureWrong(f"the key is on the curve {curve[:80]!r}, which its type does not say")
    group: EllipticCurve = getattr(ec, _CURVES[curve])()
    try:
        key = ec.EllipticCurvePublicKey.from_encoded_point(group, point)
    except ValueError:
        raise SignatureWrong("the ECDSA key is no point of its curve") from None
    numbers = Reader(signature.value, "the signature")
    value = encode_dss_signature(numbers.integer(), numbers.integer())
    numbers.end()
    return lambda signed: key.verify(value, signed, ec.ECDSA(_digest(curve)))


def _digest(curve: str) -> HashAlgorithm:
    from cryptography.hazmat.primitives import hashes

    return {"nistp256": hashes.SHA256(), "nistp384": hashes.SHA384(), "nistp521": hashes.SHA512()}[curve]


def _in_hardware(inside: Callable[[Signature, Reader], Check]) -> Callable[[Signature, Reader], Check]:
    def make(signature: Signature, reader: Reader) -> Check:
        check = inside(signature, reader)
        application = hashlib.sha256(reader.string()).digest()
        assert signature.flags is not None and signature.counter is not None
        if not signature.flags & _TOUCHED:
            raise SignatureWrong("nobody touched the security key when it was made; use a key that asks for a touch")
        with_flags = application + bytes([signature.flags]) + signature.counter.to_bytes(4, "big")
        return lambda signed: check(with_flags + hashlib.sha256(signed).digest())

    return make


_BY_TYPE: Final[Mapping[str, Callable[[Signature, Reader], Check]]] = {
    "ssh-ed25519": _ed25519,
    **{f"ecdsa-sha2-{curve}": _ecdsa for curve in _CURVES},
    "ssh-rsa": _rsa,
    "sk-ssh-ed25519@openssh.com": _in_hardware(_ed25519),
    "sk-ecdsa-sha2-nistp256@openssh.com": _in_hardware(_ecdsa),
}

KEY_TYPES: Final[Mapping[str, frozenset[str]]] = {
    kind: frozenset({"rsa-sha2-256", "rsa-sha2-512"} if kind == "ssh-rsa" else {kind}) for kind in _BY_TYPE
}
"""The types of keys that are supported, and what each signs with."""
