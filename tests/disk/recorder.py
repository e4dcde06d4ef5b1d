"""T8, first half: one process tells a story, and everything that it asked of the disk is written down in order.

Between the calls stand *marks*: a commit begins, a commit has been acknowledged. At each acknowledgement the whole
content of the database is taken down, so that later every image can be compared with what was committed.
"""

from __future__ import annotations

import hashlib
import pickle
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from opledger.edges.http import Http
from opledger.store import schema, sqlite
from opledger.store.engine import Database
from tests.disk.events import Call, Refusal
from tests.disk.osfiles import Files
from tests.disk.stories import Arm, Life, Place, live
from tests.disk.vfs import Layer


@dataclass(frozen=True, slots=True)
class Mark:
    """Commit number `commit` has begun, or is acknowledged. Number 0 is what was there before."""

    commit: int
    acknowledged: bool


Entry = Call | Mark


@dataclass(slots=True)
class Trace:
    """One story as the disk saw it."""

    story: str
    root: str  #: where the files lay
    before: dict[str, bytes]  #: the files that were there, safe on the disk
    folders: frozenset[str]
    entries: list[Entry] = field(default_factory=list)
    states: list[str] = field(default_factory=list)  #: digest of the content after each commit
    sends: int = 0  #: requests with an effect that left, each with its permit committed before

    @property
    def commits(self) -> int:
        """How many commits were acknowledged."""
        return len(self.states) - 1


def content(connection: sqlite3.Connection) -> str:
    """A digest of every row of every table."""
    digest = hashlib.sha256()
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    for table in tables:
        digest.update(repr((table, connection.execute(f'SELECT * FROM "{table}" ORDER BY rowid').fetchall())).encode())
    return digest.hexdigest()


EMPTY: Final = hashlib.sha256().hexdigest()
"""The content of a database without tables, or of none."""


def content_of(path: Path, *, still: bool = False) -> str:
    """The content of a database file, as a reader sees it now. `still`: nobody has it open, and it has no log."""
    if not path.exists() or path.stat().st_size == 0:
        return EMPTY
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro{'&immutable=1' if still else ''}", uri=True)) as connection:
        return content(connection)


class Recorder:
    """Writes the calls down; asked and told by the layers below, never two at a time."""

    def __init__(self, place: Place) -> None:
        self._database = place.database
        files = sorted(place.disk.rglob("*"))
        named = {str(path.relative_to(place.disk)): path for path in files}
        self.trace = Trace(
            place.story.name,
            str(place.disk),
            {name: path.read_bytes() for name, path in named.items() if path.is_file()},
            frozenset(name for name, path in named.items() if path.is_dir()),
        )
        self.trace.states.append(content_of(self._database, still=True))

    def before(self, call: Call) -> Refusal | None:
        """Refuse nothing."""

    def after(self, call: Call) -> None:
        """Write the call down."""
        self.trace.entries.append(call)

    def commits(self, perform: Callable[[], Any]) -> Any:
        """Mark what becomes a commit. The writer's lock is held meanwhile, so nothing else changes the content."""
        number = len(self.trace.states)
        self.trace.entries.append(Mark(number, acknowledged=False))
        result = perform()
        self.trace.entries.append(Mark(number, acknowledged=True))
        self.trace.states.append(content_of(self._database))
        return result

    def sent(self) -> None:
        """Hear that a request with an effect is about to leave: its permit must have been committed before."""
        self.trace.sends += 1
        with closing(sqlite3.connect(f"{self._database.as_uri()}?mode=ro", uri=True)) as connection:
            permits = connection.execute("SELECT count(*) FROM event WHERE kind = 'CallSent'").fetchone()[0]
        assert permits >= self.trace.sends, f"{self.trace.sends} requests left, and {permits} permits are committed"


def arm(place: Place, kept: Path, break_it: Callable[[], None]) -> tuple[Arm, Callable[[], int]]:
    """What prepares the child, and what it does last: write the trace into `kept`.

    `break_it` damages the product there: to see what would be lost then.
    """
    holder: list[Recorder] = []

    def prepare(_: Any) -> None:
        recorder = Recorder(place)
        holder.append(recorder)
        layer = Layer(place.disk, recorder)
        Files(place.disk, recorder, layer.lock).install()
        layer.install()
        if place.story.pages is not None:
            _checkpoint_often(place.story.pages)
        break_it()
        commit, migrate, send = Database._commit, schema.migrate, Http.send

        def committing(self: Database, cursor: Any, tx: Any) -> None:
            recorder.commits(lambda: commit(self, cursor, tx))

        def migrating(side: Any) -> None:
            recorder.commits(lambda: migrate(side))

        async def sending(self: Http, request: Any, *args: Any, **named: Any) -> Any:
            if request.effectful:
                recorder.sent()
            return await send(self, request, *args, **named)

        Database._commit = committing  # type: ignore[method-assign]
        schema.migrate = migrating
        Http.send = sending  # type: ignore[method-assign]

    def save() -> int:
        trace = holder[0].trace
        kept.write_bytes(pickle.dumps(trace))
        return trace.commits

    return prepare, save


def _checkpoint_often(pages: int) -> None:
    """Let SQLite bring its log into the file after so few pages: the same steps as always, only more often."""
    settle = sqlite.SqliteFile._settle

    def settling(self: Any, connection: sqlite3.Connection, *, writing: bool, guarded: bool) -> None:
        settle(self, connection, writing=writing, guarded=guarded)
        if writing:
            connection.set_authorizer(None)
            connection.execute(f"PRAGMA wal_autocheckpoint={pages}")
            if guarded:
                connection.set_authorizer(sqlite._authorize)

    sqlite.SqliteFile._settle = settling  # type: ignore[method-assign]


def nothing() -> None:
    """Break nothing."""


def record(place: Place, break_it: Callable[[], None] = nothing) -> Trace:
    """Tell the story at a place that is prepared, and return what the disk saw. Raises AssertionError if it broke."""
    kept = place.folder / "trace"
    prepare, save = arm(place, kept, break_it)
    life: Life = live(place, arm=prepare, last=save)
    codes = [(told.words, told.code, told.said) for told in life.told if told.code]
    assert life.ended == 0 and not codes, f"{place.story.name} broke while it was recorded: {codes} {life.said}"
    trace: Trace = pickle.loads(kept.read_bytes())
    kept.unlink()
    return trace
