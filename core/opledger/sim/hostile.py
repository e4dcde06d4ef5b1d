"""Answers made to break whoever reads them: the shapes of the `hostile` personality.

The job id stays true wherever an answer can be read at all, so that a sane client ends in success.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from opledger.sim.replies import Reply, json_reply

ESCAPES: Final = "\x1b[2J\x1b]52;c;cm0gLXJm\x07\x1b]0;owned\x07\x9b31mred\x08\x08\x00"
MARKUP: Final = "[@click=app.quit]click me[/] [bold red]approved[/red] [0] [/path] \\ [sys:LOCK=SAFE…]"
BIDI: Final = "safe\u202egpj.exe\u2066\u200b\u2069 \ufeffa\u0301\U0001f468\u200d\U0001f469\u200d\U0001f467"
HUGE: Final = "A" * 300_000

Shape = Callable[[Mapping[str, Any]], Reply]


def _with(**changes: Any) -> Shape:
    def shape(document: Mapping[str, Any]) -> Reply:
        return json_reply(200, {**document, "result_url": None, **changes})

    return shape


def _bytes(text: bytes, content_type: str = "application/json") -> Shape:
    def shape(_: Mapping[str, Any]) -> Reply:
        return Reply(200, text, (), content_type)

    return shape


def _escapes_in_headers(document: Mapping[str, Any]) -> Reply:
    reply = json_reply(200, {**document, "result_url": None, "state": "running"})
    return reply.adding(("x-request-id", MARKUP.replace("…", "")), ("retry-after", "1e400"), ("x-long", "B" * 6000))


def _twice(document: Mapping[str, Any]) -> Reply:
    """The same key twice: readers disagree which one counts."""
    body = json.dumps({**document, "state": "running", "result_url": None})
    return Reply(200, (body[:-1] + ', "state": "succeeded", "state": "failed"}').encode())


SHAPES: Final[Mapping[str, Shape]] = {
    "escape bytes": _with(state=f"running{ESCAPES}", error={"code": ESCAPES, "message": ESCAPES}),
    "html": _bytes(b"<html><body><h1>Sign in</h1></body></html>", "text/html"),
    "markup": _with(state=MARKUP, error={"code": MARKUP, "message": MARKUP}),
    "not a number": _bytes(b'{"id": NaN, "state": "succeeded", "progress": {"completed": Infinity, "total": 1e999}}'),
    "wrong types": _with(state={"is": ["running"]}, progress="lots", error=[1, 2], updated_at={}),
    "duplicate keys": _twice,
    "bidirectional": _with(state=BIDI, error={"code": BIDI, "message": BIDI}),
    "bad utf-8": _bytes(b'{"id": "\xff\xfe", "state": "succeeded"}'),
    "huge text": _with(
        state="running", error={"code": "huge", "message": HUGE}, progress={"completed": -1, "total": 0}
    ),
    "deep": _bytes(b"[" * 100_000 + b"]" * 100_000),
    "headers": _escapes_in_headers,
    "list": _bytes(b'["succeeded"]'),
    "lone surrogate": _with(state="running", error={"code": "\ud800", "message": "\udfff"}),
    "long integer": _bytes(b'{"state": "succeeded", "progress": {"completed": ' + b"9" * 5000 + b', "total": 1}}'),
    "empty": _bytes(b""),
}
PER_JOB: Final = 9  #: how many bad answers one job gives before it comes to its senses


def hostile_create(document: Mapping[str, Any]) -> Reply:
    """A create answer whose id is true and whose every other word is bait."""
    return json_reply(202, {**document, "state": MARKUP, "message": ESCAPES + BIDI, "title": MARKUP})


def hostile_status(document: Mapping[str, Any], nth: int) -> Reply | None:
    """The `nth` answer of a hostile job; None once it has come to its senses. Jobs start at different shapes."""
    if nth > PER_JOB:
        return None
    shapes = list(SHAPES.values())
    start = sum(str(document.get("id", "")).encode()) % len(shapes)
    return shapes[(start + nth - 1) % len(shapes)](document)
