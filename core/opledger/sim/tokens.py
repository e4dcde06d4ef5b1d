"""The simulator's token endpoint: an OAuth client shows its secret and gets an access token (RFC 6749 §4.4)."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs, unquote_plus

from opledger.edges.clock import Clock, new_id
from opledger.sim.replies import Reply

CLIENT: Final = "sim-client"


class Issuer:
    """Gives access tokens to the one client, and knows them again as long as they last."""

    def __init__(self, secret: str, clock: Clock) -> None:
        self._first_secret = secret
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Forget all tokens and orders."""
        self.secret = self._first_secret
        self.lifetime: float | None = 3600.0
        self.said: float | None = None  #: what ``expires_in`` says instead of the truth
        self._ends: dict[str, tuple[int, float]] = {}
        self._count = 0

    def obey(self, order: Mapping[str, Any]) -> None:
        """Change the secret, how long tokens last (null: not said), or take all that were given back."""
        self.secret = str(order.get("secret", self.secret))
        self.lifetime = order.get("lifetime", self.lifetime)
        self.said = order.get("said", self.said)
        if order.get("revoke"):
            self._ends.clear()

    def answer(self, headers: Mapping[str, str], body: bytes) -> tuple[Reply, int | None]:
        """Answer a token request; returns the number of the token, None where there is none."""
        form = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
        if form.get("grant_type") != ["client_credentials"]:
            return _error(400, "unsupported_grant_type"), None
        if _client(headers, form) != (CLIENT, self.secret):
            return _error(401, "invalid_client"), None
        self._count += 1
        token = new_id("access")
        lifetime = 300.0 if self.lifetime is None else self.lifetime
        self._ends[token] = (self._count, self._clock.monotonic() + lifetime)
        document: dict[str, Any] = {"access_token": token, "token_type": "bearer"}
        said = self.lifetime if self.said is None else self.said
        if said is not None:
            document["expires_in"] = said
        return Reply(200, json.dumps(document).encode(), (("cache-control", "no-store"),)), self._count

    def recognises(self, headers: Mapping[str, str]) -> int | None:
        """Return the number of the access token in a request; None where it has none, or one that has run out."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        number, ends = self._ends.get(token if scheme.lower() == "bearer" else "", (0, 0.0))
        return number if number and self._clock.monotonic() < ends else None


def _client(headers: Mapping[str, str], form: Mapping[str, list[str]]) -> tuple[str, str]:
    scheme, _, pair = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            name, _, secret = b64decode(pair, validate=True).decode().partition(":")
        except ValueError:
            return "", ""
        return unquote_plus(name), unquote_plus(secret)
    return form.get("client_id", [""])[0], form.get("client_secret", [""])[0]


def _error(status: int, code: str) -> Reply:
    """An error in the shape of RFC 6749 §5.2."""
    return Reply(status, json.dumps({"error": code, "error_description": "Look at your client."}).encode())
