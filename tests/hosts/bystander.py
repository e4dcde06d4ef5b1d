"""Somebody who only listens, and somebody in the middle of a transaction, on a host that vanishes without a word.

As a script it is that host's process: one thread waits for news as a console does, the other stands still within a
transaction that holds a row's lock, as a process does that is stopped there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import psycopg

from opledger.errors import StoreUnavailable
from opledger.store import Store
from opledger.store.statements import Tx
from tests.hosts.cuts import Told
from tests.hosts.rig import PATIENCE, Rig, Slow, until
from tests.hosts.worker import plant

NOTICED: Final = 20.0
"""Seconds in which a vanished link must be noticed, by the listener and by the server: it takes eleven of them."""


class Bystander:
    """The host that vanishes, seen from here."""

    def __init__(self, rig: Rig, planted: Sequence[str]) -> None:
        self._rig, self._host = rig, rig.lan.plug("console")
        folder = rig.folder / "console"
        folder.mkdir()
        operation = rig.lab.submit(_polls=1)
        until(lambda: rig.lab.show(operation).result is not None, "an operation that has ended")
        self._locked = operation.operation_id
        self._said: dict[str, float] = {}
        self._process = subprocess.Popen(
            [*self._host.enter, sys.executable, "-m", "tests.hosts.bystander", self._locked],
            cwd=folder,
            env=rig.environment(folder, planted),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        threading.Thread(target=self._hear, daemon=True).start()
        for word in ("listening", "locking"):
            until(lambda word=word: word in self._said, word)  # type: ignore[misc]
        self._since = time.monotonic()
        self._freed: float | None = None
        rig.lan.cut(self._host, rig.addresses("database"), "silent")
        threading.Thread(target=self._look, daemon=True).start()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, at = line.decode().split()
            self._said.setdefault(word, float(at))

    def _look(self) -> None:
        """See when the server has let the lock go."""
        while self._freed is None and time.monotonic() < self._since + PATIENCE:
            with suppress(psycopg.errors.LockNotAvailable):
                statement = "SELECT 1 FROM operation WHERE operation_id = %s FOR UPDATE NOWAIT"
                self._rig.server.ask(statement, self._locked, database="opledger")
                self._freed = time.monotonic()
            time.sleep(0.1)

    def end(self, told: Told) -> None:
        """Judge what was noticed, heal, and see that the listener listens again."""
        left = max(0.1, self._since + NOTICED - time.monotonic())
        for what, holds in (
            ("I21 a listener does not notice that its link to the database has gone", lambda: "noticed" in self._said),
            ("I21 the server keeps the row locks of a host that has gone", lambda: self._freed is not None),
        ):
            with suppress(Slow):
                until(holds, what, left)
            if not holds():
                told.wrong.append(f"{what}, not within {NOTICED:g} s")
        if told.wrong:
            return
        told.noticed = [("listener", self._said["noticed"] - self._since), ("server", (self._freed or 0) - self._since)]
        self._rig.lan.heal(self._host)
        until(lambda: "back" in self._said, "a listener that listens again")
        last = self._rig.lab.submit(_polls=1)
        until(lambda: "heard" in self._said, "a listener that hears")
        until(lambda: self._rig.lab.show(last).result is not None, "the last operation's end")
        told.counts["vanished links noticed"] += 2

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


# --- what runs on the host --------------------------------------------------------------------------------------


def _say(word: str) -> None:
    sys.stdout.write(f"{word} {time.monotonic()}\n")
    sys.stdout.flush()


def _listen(store: Store) -> None:
    store.wait_for_change(0.1)
    while store.wait_for_change(0.5):
        pass
    _say("listening")
    while True:
        try:
            store.wait_for_change(2 * PATIENCE)
        except StoreUnavailable:
            break
    _say("noticed")
    back = False
    while True:
        try:
            if store.wait_for_change(1.0):
                _say("heard" if back else "back")
                back = True
        except StoreUnavailable:
            time.sleep(0.2)


def _lock(store: Store, operation_id: str) -> None:
    def work(tx: Tx) -> None:
        cursor: Any = tx.cursor
        cursor.execute("SELECT 1 FROM operation WHERE operation_id = %s FOR UPDATE", (operation_id,))
        _say("locking")
        threading.Event().wait(10 * PATIENCE)

    store.database.write(work)


def _main() -> None:
    plant()
    with Store.open(os.environ["OPLEDGER_DB"]) as store:
        threading.Thread(target=_lock, args=(store, sys.argv[1]), daemon=True).start()
        _listen(store)


if __name__ == "__main__":
    _main()
