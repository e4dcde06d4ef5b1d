"""Taking secrets out of what is stored, logged or shown (DESIGN §9, invariant I24).

Known secret values are found in every form that a provider may give them back in. Signatures in URLs, passwords in
front of a host and credentials in headers are told by their names. What we do not know and cannot tell by name stays:
only a contract's `redact` list can name it.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, AnyStr, Final
from urllib.parse import quote, quote_plus, unquote

from opledger.rules.values import Pick

MASK: Final = "***"
REDACTED: Final = "[redacted]"
LEAST: Final = 4  #: a shorter secret is no secret, and masking it would blot out half of every text
FRAGMENT: Final = 8  #: so many characters of a secret in a row give it away
LONG: Final = 128  #: of a longer secret only pieces of 24 characters are sure to be found

# Compared in small letters and without punctuation.
_SECRET_NAMES: Final = frozenset({
    "accesskey", "accesskeyid", "auth", "authorization", "awsaccesskeyid", "bearer", "credentials", "hmac",
    "idtoken", "jwt", "key", "passwd", "pwd", "refreshtoken", "sas", "sig", "token",
})  # fmt: skip
_SECRET_ENDINGS: Final = (
    "accesstoken", "apikey", "authkey", "authtoken", "credential", "csrftoken", "functionskey", "password",
    "privatetoken", "secret", "securitytoken", "sessiontoken", "signature", "subscriptionkey", "usertoken",
    "vaulttoken", "xsrftoken",
)  # fmt: skip
_SECRET_HEADERS: Final = frozenset(
    {"authenticationinfo", "cookie", "proxyauthenticationinfo", "proxyauthorization", "setcookie"}
)

# Both also find a URL inside JSON, where "/", "&" and "=" may be escaped, and inside HTML ("&amp;").
_USERINFO: Final = re.compile(r"""((?:^|:)(?:\\?/){2})[^/?#\s"'<>\\]*@""")
_PARAMETER: Final = re.compile(
    r"""((?:[?;#]|&(?:amp;)?|\\u0026)([^=&;#?\s"'<>\\]{1,64})(?:=|\\u003d))(?:[^&;#\s"'<>\\]|\\/)+""", re.IGNORECASE
)


def mask_url(text: str) -> str:
    """Mask, in a URL or in every URL of a text, the userinfo and the values of parameters that carry credentials.

    A name counts whatever its case and punctuation (``X-Amz-Signature``, ``sig``, ``api_key``, ``token`` …); what only
    describes a signature (``Expires``, ``X-Amz-Date``) stays. Takes any text, and changes nothing the second time.
    """
    if "@" in text and "/" in text:
        text = _USERINFO.sub(rf"\1{MASK}@", text)
    if "=" in text or "\\u003" in text:
        text = _PARAMETER.sub(lambda found: found[1] + MASK if secret_name(found[2]) else found[0], text)
    return text


@lru_cache(maxsize=1024)
def secret_name(name: str) -> bool:
    """True for the name of a header, parameter or field whose value is a credential, by its name alone."""
    plain = "".join(char for char in unquote(name).casefold() if char.isalnum())
    return plain in _SECRET_NAMES or plain.endswith(_SECRET_ENDINGS)


def mask_header(name: str, value: str) -> str:
    """Return a header's value, masked whole where the name says credential, else with its URLs masked."""
    plain = name.casefold().replace("-", "").replace("_", "")
    return MASK if plain in _SECRET_HEADERS or secret_name(name) else mask_url(value)


def redact_pointers(document: Any, pointers: Iterable[str]) -> Any:
    """Return a JSON document with ``[redacted]`` where the JSON Pointers lead; the one given is left as it is.

    A pointer that leads nowhere changes nothing. Raises ValueError for one that is malformed.
    """
    for text in pointers:
        tokens = Pick.parse(text).pointer
        if tokens is None:
            raise ValueError(f"{text!r} is no JSON pointer into a document")
        document = _replaced(document, tokens)
    return document


def _replaced(document: Any, tokens: tuple[str, ...]) -> Any:
    if not tokens:
        return REDACTED
    token, rest = tokens[0], tokens[1:]
    if isinstance(document, Mapping) and token in document:
        return {**document, token: _replaced(document[token], rest)}
    if isinstance(document, list) and re.fullmatch(r"0|[1-9][0-9]{0,8}", token) and int(token) < len(document):
        index = int(token)
        return [*document[:index], _replaced(document[index], rest), *document[index + 1 :]]
    return document


class Redactor:
    """Masks known secret values, and what `mask_url` and `mask_header` tell by name.

    A value is found as it is; escaped for JSON, URLs, HTML or Python; in hex; in base64, at any offset inside a longer
    text; and, where it looks random, in pieces of `FRAGMENT` characters and more. Values under `LEAST` characters are
    ignored. Every method can be applied again without changing anything more.
    """

    def __init__(self, secrets: Iterable[str | bytes]) -> None:
        texts: set[str] = set()
        raw: set[bytes] = set()
        for secret in secrets:
            data = secret.encode("utf-8", "surrogatepass") if isinstance(secret, str) else secret
            if len(data) < LEAST:
                continue
            raw.add(data)
            texts.update(_encodings(data))
            try:
                texts.update(_spellings(data.decode()))
            except UnicodeDecodeError:  # a binary key has no text of its own
                continue
        texts = {form for form in texts if len(form) >= LEAST}
        self._texts: Final = tuple(texts)
        self._bytes: Final = tuple(raw | {form.encode() for form in texts})

    def __repr__(self) -> str:
        return f"Redactor({len(self._bytes)} forms)"

    def hide_bytes(self, data: bytes) -> bytes:
        """Return `data` without the known secrets. URLs stay as they are: whoever reads the answer may need them."""
        return _mask(data, self._bytes, MASK.encode())

    def hide_text(self, text: str) -> str:
        """As `hide_bytes`, for text."""
        return _mask(text, self._texts, MASK)

    def mask_bytes(self, data: bytes) -> bytes:
        """Return `data`, an answer's body for one, without secrets."""
        while (masked := self._masked_bytes(data)) != data:
            data = masked
        return data

    def mask_text(self, text: str) -> str:
        """Return `text` without secrets."""
        while (masked := mask_url(_mask(text, self._texts, MASK))) != text:
            text = masked
        return text

    def _masked_bytes(self, data: bytes) -> bytes:
        data = _mask(data, self._bytes, MASK.encode())
        if b"=" in data or b"@" in data or b"\\u003" in data:
            return mask_url(data.decode("latin-1")).encode("latin-1")
        return data

    def mask_header(self, name: str, value: str) -> str:
        """As the function of this name, and without known secrets."""
        return mask_header(name, self.mask_text(value))

    def mask_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return headers whose names all stand and whose credentials do not."""
        return {name: self.mask_header(name, value) for name, value in headers.items()}


def _mask(data: AnyStr, forms: tuple[AnyStr, ...], mask: AnyStr) -> AnyStr:
    """Replace every occurrence of every form, overlapping ones together.

    A mask is shorter than any form, so that this ends, and it ends only where no form is left.
    """
    while found := [form for form in forms if form in data]:
        spans = sorted(span for form in found for span in _spans(data, form))
        pieces: list[AnyStr] = []
        end = 0
        for start, stop in spans:
            if start > end or not pieces:
                pieces += [data[end:start], mask]
            end = max(end, stop)
        pieces.append(data[end:])
        data = data[:0].join(pieces)
    return data


def _spans(data: AnyStr, form: AnyStr) -> Iterator[tuple[int, int]]:
    start = data.find(form)
    while start >= 0:
        yield start, start + len(form)
        start = data.find(form, start + 1)


def _encodings(data: bytes) -> Iterator[str]:
    """Yield the forms of a secret that look nothing like it."""
    yield data.hex()
    yield data.hex().upper()
    yield "".join(f"%{byte:02X}" for byte in data)
    yield "".join(f"%{byte:02x}" for byte in data)
    for offset in range(3):
        # Only the characters that this secret decides alone, whatever stands before and behind it.
        code = base64.b64encode(bytes(offset) + data).decode()[(0, 2, 3)[offset] : (offset + len(data)) * 8 // 6]
        yield code
        yield code.replace("+", "-").replace("/", "_")


def _spellings(text: str) -> Iterator[str]:
    """Yield a secret as text, escaped in the ways of JSON, URLs, HTML and Python, and in pieces."""
    yield text
    for ascii_only in (True, False):
        escaped = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        for form in (escaped, re.sub(r"\\u....", lambda found: "\\u" + found[0][2:].upper(), escaped)):
            yield form
            yield form.replace("/", "\\/")
    for form in (quote(text, safe=""), quote(text), quote_plus(text), quote(text, safe="!*'()~")):
        yield form
        yield re.sub("%..", lambda found: found[0].lower(), form)
    yield html.escape(text)
    yield html.escape(text).replace("&#x27;", "&#39;")
    yield repr(text)[1:-1]
    # Of a long secret, a key file for one, not every piece: a search for thousands of them would cost too much.
    step, most = (1, FRAGMENT) if len(text) <= LONG else (FRAGMENT, 2 * FRAGMENT)
    for start in range(0, max(len(text) - FRAGMENT + 1, 0), step):
        pieces = (text[start : start + size] for size in range(FRAGMENT, most + 1))
        piece = next(filter(_random, pieces), None)
        if piece is not None:
            yield piece


def _random(piece: str) -> bool:
    """True where a piece of a secret is no word that innocent texts use too: mixed cases and digits, or hex."""
    digits = sum(char.isdigit() for char in piece)
    if re.fullmatch("[0-9a-f]+|[0-9A-F]+", piece):
        return 2 <= digits <= len(piece) - 2
    return digits > 0 and piece != piece.lower() and piece != piece.upper()
