"""Log lines: JSON on standard error when it is no terminal, short sentences when it is one.

Values of any kind are made inert, and secrets that this process knows are masked; libraries that would log whole URLs
are held at warning.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

import structlog

from opledger.edges.masking import hide_known
from opledger.rules.jsontext import dumps_inert
from opledger.rules.plain import clean

_TALKATIVE: Final = ("aiohttp", "alembic", "apscheduler", "asyncio", "httpcore", "httpx", "uvicorn")


def configure(level: str) -> None:
    """Send everything at `level` (one of `config.LEVELS`) and above to standard error."""
    structured = not sys.stderr.isatty()
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.format_exc_info,
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _as_json if structured else _as_sentence,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _as_json(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    return hide_known(dumps_inert({key: _plain(value) for key, value in event.items()}))


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _as_sentence(_: Any, __: str, event: Mapping[str, Any]) -> str:
    known = {"event", "level", "logger", "at", "exception"}
    more = "".join(f" {key}={value}" for key, value in event.items() if key not in known)
    trace = "\n" + clean(str(event["exception"]), newlines=True) if event.get("exception") else ""
    return hide_known(clean(f"{event.get('level', '')}: {event.get('event', '')}{more}") + trace)
