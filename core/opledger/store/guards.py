"""The database's own refusal to change the journal: against accidents and clumsy SQL, not against its owner.

What the owner of a file or of a server does is found by the hash chain and the checkpoints instead. Two holes that
plain "before update, before delete" triggers leave open on SQLite are closed here: REPLACE deletes rows without firing
delete triggers (unless `recursive_triggers` is on), and it can do so through the hidden rowid as well as through the
key.
"""

from __future__ import annotations

from typing import Any, Final

from opledger.store.statements import Kind

REFUSAL: Final = "the journal only grows: an event cannot be changed, replaced or removed"

_REFUSE: Final = f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
_TAKEN: Final = (
    "EXISTS (SELECT 1 FROM event WHERE operation_id = NEW.operation_id AND seq = NEW.seq)"
    " OR EXISTS (SELECT 1 FROM event WHERE rowid = NEW.rowid)"
)

SQLITE: Final = {
    "event_no_update": f"CREATE TRIGGER event_no_update BEFORE UPDATE ON event {_REFUSE}",
    "event_no_delete": f"CREATE TRIGGER event_no_delete BEFORE DELETE ON event {_REFUSE}",
    "event_no_replace": f"CREATE TRIGGER event_no_replace BEFORE INSERT ON event WHEN {_TAKEN} {_REFUSE}",
}
"""Trigger name -> the statement that makes it, as `sqlite_master` keeps it."""

_POSTGRES_BODY: Final = f"BEGIN RAISE EXCEPTION '{REFUSAL}'; END"

POSTGRES: Final = (
    f"""CREATE OR REPLACE FUNCTION opledger_refuse() RETURNS trigger
        LANGUAGE plpgsql SET search_path = pg_catalog AS $${_POSTGRES_BODY}$$""",
    """CREATE OR REPLACE TRIGGER event_no_change BEFORE UPDATE OR DELETE ON event
       FOR EACH ROW EXECUTE FUNCTION opledger_refuse()""",
    """CREATE OR REPLACE TRIGGER event_no_truncate BEFORE TRUNCATE ON event
       FOR EACH STATEMENT EXECUTE FUNCTION opledger_refuse()""",
    # ALWAYS: also in a session that pretends to be a replica.
    "ALTER TABLE event ENABLE ALWAYS TRIGGER event_no_change",
    "ALTER TABLE event ENABLE ALWAYS TRIGGER event_no_truncate",
    # The owner can grant itself these again, but not by accident.
    "REVOKE UPDATE, DELETE, TRUNCATE ON event FROM PUBLIC, CURRENT_USER",
)

_POSTGRES_CHECK: Final = """
SELECT t.tgname FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
WHERE t.tgrelid = to_regclass('event') AND t.tgenabled = 'A' AND p.prosrc = %s
"""


def install(kind: Kind, run: Any) -> None:
    """Make (or make again) every guard. `run` executes one statement; a migration calls this last."""
    if kind == "postgresql":
        for statement in POSTGRES:
            run(statement)
        return
    for name, statement in SQLITE.items():
        run(f"DROP TRIGGER IF EXISTS {name}")
        run(statement)


def missing(kind: Kind, cursor: Any) -> list[str]:
    """The guards that are not there, or are not what this version made. Cheap enough for every start."""
    if kind == "postgresql":
        cursor.execute(_POSTGRES_CHECK, (_POSTGRES_BODY,))
        return sorted({"event_no_change", "event_no_truncate"} - {row[0] for row in cursor.fetchall()})
    cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    found = dict(cursor.fetchall())
    return sorted(name for name, statement in SQLITE.items() if found.get(name) != statement)
