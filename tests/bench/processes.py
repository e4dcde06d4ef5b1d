"""What a PostgreSQL server that is measured beside us takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def session_of(url: str) -> Iterator[Any]:
    """A session on the server."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as session:
        yield session


def server_cpu(url: str) -> float:
    """CPU seconds of the server and all its processes, those that have ended too."""
    with session_of(url) as session:
        folder = session.execute("SHOW data_directory").fetchone()[0]
    pid = int((Path(folder) / "postmaster.pid").read_text().split("\n", 1)[0])
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, _, rest = stat.read_text().partition(" (")
        except OSError:
            continue  # it has just ended; its parent counts it
        fields = rest.rpartition(") ")[2].split()
        if int(number) == pid:
            ticks += sum(int(one) for one in fields[11:15])
        elif int(fields[1]) == pid:
            ticks += sum(int(one) for one in fields[11:13])
    return ticks / 100
