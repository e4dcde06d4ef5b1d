"""What the simulator answers: plain values, before anything is sent or spoilt."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. A `content_type` of None sends no such header."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str | None = JSON

    def adding(self, *headers: tuple[str, str]) -> Reply:
        """The same answer with further headers."""
        return Reply(self.status, self.body, (*self.headers, *headers), self.content_type)


def json_reply(status: int, document: Any, *headers: tuple[str, str]) -> Reply:
    """An answer that carries a JSON document."""
    return Reply(status, json.dumps(document).encode(), headers)


def error_reply(status: int, code: str, message: str, *headers: tuple[str, str], **more: Any) -> Reply:
    """An error in the shape of this API: ``{"error": {"code", "message"}, …}``."""
    return json_reply(status, {"error": {"code": code, "message": message}, **more}, *headers)
