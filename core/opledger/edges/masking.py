"""Keeping secrets out of what is logged: by the HTTP libraries (F6), and by anybody in this process."""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Final

from opledger.edges.secrets import SecretResolver, known_here
from opledger.rules.redact import Redactor

LOGGERS: Final = (
    *("httpx", "httpcore", "httpcore.connection", "httpcore.http11", "httpcore.http2", "httpcore.proxy"),
    *("aiohttp", "aiohttp.client", "aiohttp.internal"),
)
_QUERY: Final = re.compile(r"(https?://[^\s?'\"]*)\?[^\s'\"]*")


def hide_known(text: str) -> str:
    """Return a text without any secret that this process knows.

    The last thing that happens to a line of the log or a traceback: whatever an error that nobody expected may hold.
    """
    return _redactor(known_here()).hide_text(text)


@lru_cache(maxsize=2)
def _redactor(known: tuple[str, ...]) -> Redactor:
    return Redactor(known)


class Mask(logging.Filter):
    """Takes secrets, and the queries of URLs, out of what the HTTP libraries log (F6)."""

    def __init__(self, secrets: SecretResolver) -> None:
        super().__init__()
        self._secrets = secrets
        self._known: tuple[str, ...] = ()
        self._redactor = Redactor(())

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite the record; a traceback is left out, since its last line is the exception's own text."""
        known = self._secrets.known()
        if known != self._known:
            self._known, self._redactor = known, Redactor(known)
        text = _QUERY.sub(r"\1?…", self._redactor.mask_text(record.getMessage()))
        record.msg, record.args, record.exc_info, record.exc_text = text, (), None, None
        return True
