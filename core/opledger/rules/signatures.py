"""Signatures of deliveries: which secret makes which check, compared in constant time."""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from opledger.errors import ConfigWrong
from opledger.rules import jsontext
from opledger.rules.contract import TextCode, Webhook

Check = Callable[[bytes, str], bool]  # message, signature as it came


def checks(webhook: Webhook, secrets: Sequence[str]) -> list[Check]:
    """Return a check for each key among the secrets. Raises ConfigWrong where there is none."""
    makers: Mapping[str, Callable[[Webhook, str], Iterable[Check]]] = {
        "standard": _standard,
        "hmac": _hmac,
        "ed25519": _ed25519,
        "static_header": _static,
    }
    found: list[Check] = []
    wrong: list[str] = []
    for secret in secrets:
        try:
            found += makers[webhook.scheme](webhook, secret)
        except ValueError as error:
            wrong.append(str(error))
    if not found:
        raise ConfigWrong(f"no webhook secret can be used: {wrong[0] if wrong else 'there is none'}")
    return found


def _standard(_: Webhook, secret: str) -> Iterable[Check]:
    if secret.startswith("whpk_"):
        public = _decoded(secret.removeprefix("whpk_"), "base64")
        return [_prefixed("v1a", _by_key(public), "base64")]
    key = _decoded(secret.removeprefix("whsec_"), "base64")
    if not key:
        raise ValueError("it is empty")
    return [_prefixed("v1", _by_hmac(key, "sha256"), "base64")]


def _hmac(webhook: Webhook, secret: str) -> Iterable[Check]:
    key = secret.encode() if webhook.key_encoding == "text" else _decoded(secret, webhook.key_encoding)
    if not key:
        raise ValueError("it is empty")
    return [_encoded(_by_hmac(key, webhook.digest), webhook.encoding)]


def _ed25519(webhook: Webhook, secret: str) -> Iterable[Check]:
    return [_encoded(_by_key(key), webhook.encoding) for key in public_keys(secret)]


def _static(_: Webhook, secret: str) -> Iterable[Check]:
    expected = secret.encode()
    return [lambda _, given: hmac.compare_digest(expected, given.encode("latin-1", "replace"))]


def _by_hmac(key: bytes, digest: str) -> Callable[[bytes, bytes], bool]:
    return lambda message, signature: hmac.compare_digest(hmac.digest(key, message, digest), signature)


def _by_key(public: bytes) -> Callable[[bytes, bytes], bool]:
    # Loaded only where a contract asks for it: it costs more than the rest of this module.
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key = Ed25519PublicKey.from_public_bytes(public)

    def right(message: bytes, signature: bytes) -> bool:
        try:
            key.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    return right


def _encoded(check: Callable[[bytes, bytes], bool], code: TextCode) -> Check:
    def right(message: bytes, given: str) -> bool:
        try:
            signature = _decoded(given, code)
        except ValueError:
            return False
        return check(message, signature)

    return right


def _prefixed(version: str, check: Callable[[bytes, bytes], bool], code: TextCode) -> Check:
    plain = _encoded(check, code)

    def right(message: bytes, given: str) -> bool:
        name, comma, rest = given.partition(",")
        return bool(comma) and name == version and plain(message, rest)

    return right


def public_keys(text: str) -> list[bytes]:
    """Return the Ed25519 keys in a secret: a JWKS document on one line, or one key in hex or base64.

    Raises ValueError where there is none.
    """
    if not text.lstrip().startswith("{"):
        key = _decoded(text.strip(), "hex" if re.fullmatch(r"\s*[0-9A-Fa-f]{64}\s*", text) else "base64")
        if len(key) != 32:
            raise ValueError("an Ed25519 key has 32 bytes")
        return [key]
    document = jsontext.loads(text)
    listed = document.get("keys", [document])
    found = [
        _decoded(str(one.get("x")), "base64")
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, Mapping) and one.get("crv") == "Ed25519"
    ]
    keys = [key for key in found if len(key) == 32]
    if not keys:
        raise ValueError("the key set has no Ed25519 key in it")
    return keys


def _decoded(text: str, code: TextCode) -> bytes:
    """Decode hex or base64 (either alphabet, padded or not). Raises ValueError, which never shows the text."""
    try:
        if code == "hex":
            return binascii.unhexlify(text)
        plain = text.translate(str.maketrans("-_", "+/")).rstrip("=")
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"it is not {code}") from None
