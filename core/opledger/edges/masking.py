"""Keeping secrets out of what the HTTP libraries log (F6)."""

from __future__ import annotations

import logging
import re
from typing import Final

from opledger.edges.secrets import SecretResolver
from opledger.rules.redact import Redactor

LOGGERS: Final = (
    *("httpx", "httpcore", "httpcore.connection", "httpcore.http11", "httpcore.http2", "httpcore.proxy"),
    *("aiohttp", "aiohttp.client", "aiohttp.internal", "httpx_aiohttp"),
)
_QUERY: Final = re.compile(r"(https?://[^\s?'\"]*)\?[^\s'\"]*")


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
