"""What a job leaves behind: its result, the outcomes of its items, and the part of a file that was asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from opledger.sim.replies import Reply

_RANGE: Final = re.compile(r"bytes=([0-9]{1,15})-")


def outcomes(keys: tuple[str, ...], personality: str, variant: str, word: str) -> tuple[list[str], list[str]]:
    """Return the lines of the output and of the error file of a batch: one outcome for each item, as it is written.

    A job that did not succeed has the first half of its items. How the files of a batch go wrong is its variant.
    """
    done = list(keys) if word == "succeeded" else list(keys[: len(keys) // 2])
    if personality != "batch":
        return [_line(key) for key in done], []
    match variant:
        case "all_failed":
            return [], [_line(key, failed=True) for key in done]
        case "nothing":
            return [], []
        case "missing":
            return [_line(key) for key in done[1:]], []
        case "repeated":
            return [*(_line(key) for key in done), _line(done[0], amount=999)], []
        case "extra":
            return [_line(key) for key in (*done, "never-sent")], []
        case _:
            failed = done[-2:]
            return [_line(key) for key in reversed(done[:-2])], [_line(key, failed=True) for key in failed]


def _line(key: str, *, failed: bool = False, amount: int | None = None) -> str:
    error = {"code": "rate_limited", "message": "The model was too busy."} if failed else None
    response = None if failed else {"amount": len(key) * 7 if amount is None else amount}
    return json.dumps({"custom_id": key, "response": response, "error": error})


def lines_reply(lines: list[str]) -> Reply:
    """Answer with JSON lines."""
    content = "".join(f"{line}\n" for line in lines).encode()
    return Reply(200, content, (("x-checksum-sha256", sha256(content).hexdigest()),), "application/jsonl")


def keys_of(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys of the items in a create request."""
    items = fields.get("requests")
    rows = items if isinstance(items, list) else []
    return tuple(str(row["custom_id"]) for row in rows if isinstance(row, dict) and "custom_id" in row)


def ranged(reply: Reply, headers: Mapping[str, str], *, ignores_ranges: bool = False) -> Reply:
    """Answer a read of a file that can be gone on with (RFC 9110 §14): the rest of it, or all where it changed."""
    etag = f'"{sha256(reply.body).hexdigest()[:20]}"'
    whole = reply.adding(("etag", etag), ("accept-ranges", "bytes"))
    asked = _RANGE.fullmatch(headers.get("range", ""))
    if asked is None or ignores_ranges or headers.get("if-range", etag) != etag:
        return whole
    start, size = int(asked.group(1)), len(reply.body)
    if start >= size:
        return Reply(416, b"", (("content-range", f"bytes */{size}"),), None)
    part = Reply(206, reply.body[start:], whole.headers, reply.content_type)
    return part.adding(("content-range", f"bytes {start}-{size - 1}/{size}"))
