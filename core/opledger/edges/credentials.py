"""The last thing that happens to a request: credentials and secret headers are put in, for the own origin only (I25).

Everything here raises ConfigWrong before anything is sent, and never with a value in the message.
"""

from __future__ import annotations

import base64
import re
from typing import Final, Protocol
from urllib.parse import parse_qsl, quote, urlencode

from opledger.errors import ConfigWrong
from opledger.rules import bodies, jsontext
from opledger.rules.calls import Request
from opledger.rules.contract import Auth
from opledger.rules.values import Pick

Headers = dict[str, tuple[str, str]]  #: lower-case name -> (name as written, value)


class Purse(Protocol):
    """Where secrets come from for one request."""

    async def secret(self, reference: str) -> str:
        """Return what a reference stands for. Raises ConfigWrong."""

    async def access_token(self, auth: Auth, origin: str) -> str:
        """Return an access token for the contract's origin. Raises ConfigWrong, and NotSent where none can be had."""


_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE: Final = re.compile(r"(?:[^\x00-\x20\x7f](?:[^\x00-\x08\x0a-\x1f\x7f]*[^\x00-\x20\x7f])?)?")  # RFC 9110 §5.5
_HALF: Final = re.compile("[\ud800-\udfff]")
_SECRET: Final = re.compile(r"\{secret\.([A-Za-z0-9_-]+)\}")
_ABROAD: Final = frozenset({"accept", "accept-language", "user-agent"})
_OURS: Final = frozenset(
    {"connection", "content-length", "expect", "host", "keep-alive", "te", "trailer"} | {"transfer-encoding", "upgrade"}
)
"""Headers that say how the message itself travels. A contract that sets them could make two requests out of one."""


def plain_headers(request: Request, *, own: bool) -> Headers:
    """Return the request's own headers, checked. A foreign origin gets only what says what we can read.

    Not even harmless-looking ones go abroad: an API key in a header of another name is a credential, too (F5).
    """
    headers: Headers = {}
    for name, value in request.headers:
        key = name.lower()
        if not _NAME.fullmatch(name):
            raise ConfigWrong(f"{name[:40]!r} is not a header name; correct the contract")
        if key in _OURS:
            raise ConfigWrong(f"the header {name} is made by opledger itself; take it out of the contract")
        if own or key in _ABROAD:
            headers[key] = (name, value)
    return headers


async def dress(request: Request, headers: Headers, purse: Purse) -> tuple[Headers, str]:
    """Put secrets and credentials into a request to its own origin; return its headers and URL.

    Raises as `Purse` does.
    """
    dressed: Headers = {}
    url = request.url
    for key, (name, value) in headers.items():
        dressed[key] = (name, await _with_secrets(request, name, value, purse))
    auth = request.auth
    if auth.kind == "none":
        return dressed, url
    if auth.secret is None:
        raise ConfigWrong(f"the credentials of kind {auth.kind} name no secret; correct the contract")
    if auth.kind == "oauth2_client_credentials":
        token = await purse.access_token(auth, request.auth_origin or request.origin)
        dressed["authorization"] = ("Authorization", f"Bearer {token}")
        return dressed, url
    secret = await purse.secret(auth.secret)
    if auth.kind == "bearer":
        dressed["authorization"] = ("Authorization", f"Bearer {secret}")
    elif auth.kind == "basic":
        pair = base64.b64encode(_pair(auth.username, secret).encode()).decode()
        dressed["authorization"] = ("Authorization", f"Basic {pair}")
    elif not auth.name or (auth.kind == "header" and not _NAME.fullmatch(auth.name)):
        raise ConfigWrong(f"the credentials of kind {auth.kind} need a name; correct the contract")
    elif auth.kind == "header":
        dressed[auth.name.lower()] = (auth.name, f"{auth.prefix}{secret}")
    else:
        bare, mark, fragment = url.partition("#")
        parameter = f"{quote(auth.name, safe='')}={quote(secret, safe='')}"
        url = f"{bare}{'&' if '?' in bare else '?'}{parameter}{mark}{fragment}"
    return dressed, url


def _pair(username: str | None, secret: str) -> str:
    """Return ``user:password`` (RFC 7617). A secret without a colon, and no user named, is a user without password."""
    if username is not None:
        return f"{username}:{secret}"
    return secret if ":" in secret else f"{secret}:"


async def body_of(request: Request, purse: Purse) -> bytes | None:
    """Return the body as it leaves: with secrets in the fields that are for them. Raises as `Purse` does."""
    if not request.secret_fields or request.body is None:
        return request.body
    is_form = any(value == bodies.FORM for name, value in request.headers if name.lower() == "content-type")
    if is_form:
        names = {bodies.form_name(pointer) for pointer in request.secret_fields}
        pairs = parse_qsl(request.body.decode(), keep_blank_values=True)
        told = [
            (name, await _with_secrets(request, name, text, purse) if name in names else text) for name, text in pairs
        ]
        return urlencode(told, quote_via=quote).encode()
    document = jsontext.loads(request.body)
    for pointer in request.secret_fields:
        place, tokens = document, Pick.parse(pointer).pointer or ()
        for token in tokens[:-1]:
            place = place[token]
        place[tokens[-1]] = await _with_secrets(request, pointer, place[tokens[-1]], purse)
    return jsontext.dumps(document)


async def _with_secrets(request: Request, header: str, value: str, purse: Purse) -> str:
    parts = _SECRET.split(value)  # text, name, text, name, text …
    for index in range(1, len(parts), 2):
        reference = (request.secrets or {}).get(parts[index])
        if reference is None:
            raise ConfigWrong(f"{header} uses a secret {parts[index]!r} that the contract does not name")
        parts[index] = await purse.secret(reference)
    return "".join(parts)


def checked(headers: Headers) -> list[tuple[str, str]]:
    """Return headers as they are sent. Raises ConfigWrong for a value that could end one header and begin another."""
    sent = []
    for name, value in headers.values():
        if not _VALUE.fullmatch(value):
            raise ConfigWrong(f"the value of the header {name} has a control character in it, or blanks at its ends")
        if not value.isascii() and _HALF.search(value):
            raise ConfigWrong(f"the value of the header {name} has half a character in it, which no UTF-8 can hold")
        sent.append((name, value))
    return sent
