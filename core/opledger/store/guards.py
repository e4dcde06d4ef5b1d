"""The database's own refusal to change what only grows: against accidents and clumsy SQL, not against its owner.

What the owner of a file or of a server does is found by the hash chain and the checkpoints instead. Two holes that
plain "before update, before delete" triggers leave open on SQLite are closed here: REPLACE deletes rows without firing
delete triggers (unless `recursive_triggers` is on), and it can do so through the hidden rowid as well as through the
key.

The one way out of the journal is the archive: events of an operation, its request and its record may be deleted once a
tombstone says so, and a tombstone is only taken if it names the head of that operation's chain.
"""

from __future__ import annotations

from typing import Any, Final

from opledger.store.statements import Kind

REFUSAL: Final = "the journal only grows: an event cannot be changed, replaced or removed"
_NO_HEAD: Final = "a tombstone must name the head of an operation's chain"

_KEYS: Final = {
    "event": ("operation_id", "seq"),
    "ledger": ("one",),
    "leaf": ("number",),
    "checkpoint": ("number",),
    "acknowledgement": ("abandoned_to",),
    "tombstone": ("operation_id",),
    "task_record": ("task", "seq"),
    "answer": ("sha256",),
    "contract": ("digest",),
}
"""The tables that only grow, with their keys. They have no other unique index, through which REPLACE could reach."""

APPEND_ONLY: Final = tuple(_KEYS)

ONCE: Final = frozenset({"answer", "contract"})
"""Of these the same row comes again and again, and the first one stays: SQLite passes a second one over unseen."""

REVOKED: Final = tuple(table for table in APPEND_ONLY if table != "contract")
"""What the owner on PostgreSQL gives up its right to change. For a row that a foreign key leads to, the server itself
needs that right when it locks it; there the triggers must do."""

RECORDS: Final = ("request", "operation")
"""What stands beside the journal and stays as long as it does; of a record, only the projection may change."""

GUARDED: Final = (*APPEND_ONLY, *RECORDS)

_RECORD_STAYS: Final = (
    "an operation and its request stay until a tombstone stands for them, and a request never changes"
)

_IS_HEAD: Final = (
    "EXISTS (SELECT 1 FROM event WHERE operation_id = NEW.operation_id AND seq = NEW.seq"
    " AND hash = NEW.head_hash)"
    " AND NOT EXISTS (SELECT 1 FROM event WHERE operation_id = NEW.operation_id AND seq > NEW.seq)"
)


def _words(table: str) -> str:
    return (
        REFUSAL
        if table == "event"
        else f"the journal only grows: no row of {table} can be changed, replaced or removed"
    )


def _quoted(sentence: str) -> str:
    return sentence.replace("'", "''")


def _abort(sentence: str) -> str:
    return f"BEGIN SELECT RAISE(ABORT, '{_quoted(sentence)}'); END"


def _sqlite_of(table: str) -> dict[str, str]:
    refuse = _abort(_words(table))
    same = " AND ".join(f"{column} = NEW.{column}" for column in _KEYS[table])
    found = f"EXISTS (SELECT 1 FROM {table} WHERE "  # noqa: S608 - names of our own
    taken = f"{found}{same}) OR {found}rowid = NEW.rowid)"
    again = "BEGIN SELECT RAISE(IGNORE); END" if table in ONCE else refuse
    archived = (
        " WHEN NOT EXISTS (SELECT 1 FROM tombstone WHERE operation_id = OLD.operation_id AND seq >= OLD.seq)"
        if table == "event"
        else ""
    )
    return {
        f"{table}_no_update": f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} {refuse}",
        f"{table}_no_delete": f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table}{archived} {refuse}",
        f"{table}_no_replace": f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} WHEN {taken} {again}",
    }


def _sqlite_records() -> dict[str, str]:
    refuse = _abort(_RECORD_STAYS)
    kept = "WHEN NOT EXISTS (SELECT 1 FROM tombstone WHERE operation_id = OLD.operation_id)"
    return {
        "request_no_update": f"CREATE TRIGGER request_no_update BEFORE UPDATE ON request {refuse}",
        **{
            f"{table}_no_delete": f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} {kept} {refuse}"
            for table in RECORDS
        },
    }


SQLITE: Final[dict[str, str]] = {
    **_sqlite_records(),
    **{name: statement for table in APPEND_ONLY for name, statement in _sqlite_of(table).items()},
    "tombstone_of_head": (
        f"CREATE TRIGGER tombstone_of_head BEFORE INSERT ON tombstone WHEN NOT ({_IS_HEAD}) {_abort(_NO_HEAD)}"
    ),
}
"""Trigger name -> the statement that makes it, as `sqlite_master` keeps it."""

# The functions look nowhere but in the catalogue, and put the table's own schema into what they ask. No percent sign
# stands in them: drivers take it for a parameter.
_REFUSE_BODY: Final = (
    f"BEGIN IF TG_TABLE_NAME = 'event' THEN RAISE EXCEPTION '{REFUSAL}'; END IF; RAISE EXCEPTION USING MESSAGE = "
    "'the journal only grows: no row of ' || TG_TABLE_NAME || ' can be changed, replaced or removed'; END"
)
_DELETE_BODY: Final = (
    "DECLARE archived boolean; BEGIN EXECUTE 'SELECT EXISTS (SELECT FROM ' || quote_ident(TG_TABLE_SCHEMA) || "  # noqa: S608
    "'.tombstone WHERE operation_id = $1 AND seq >= $2)' INTO archived USING OLD.operation_id, OLD.seq; "
    f"IF archived THEN RETURN OLD; END IF; RAISE EXCEPTION '{REFUSAL}'; END"
)
_TOMBSTONE_BODY: Final = (
    "DECLARE head bytea; BEGIN EXECUTE 'SELECT hash FROM ' || quote_ident(TG_TABLE_SCHEMA) || "  # noqa: S608
    "'.event WHERE operation_id = $1 AND seq = $2 AND NOT EXISTS (SELECT FROM ' || quote_ident(TG_TABLE_SCHEMA) || "
    "'.event WHERE operation_id = $1 AND seq > $2)' INTO head USING NEW.operation_id, NEW.seq; "
    f"IF head = NEW.head_hash THEN RETURN NEW; END IF; RAISE EXCEPTION '{_quoted(_NO_HEAD)}'; END"
)

_RECORD_BODY: Final = (
    "DECLARE archived boolean; BEGIN IF TG_OP = 'DELETE' THEN EXECUTE 'SELECT EXISTS (SELECT FROM ' || "  # noqa: S608
    "quote_ident(TG_TABLE_SCHEMA) || '.tombstone WHERE operation_id = $1)' INTO archived USING OLD.operation_id; "
    f"IF archived THEN RETURN OLD; END IF; END IF; RAISE EXCEPTION '{_quoted(_RECORD_STAYS)}'; END"
)

POSTGRES_FUNCTIONS: Final = {
    "opledger_keep_record": _RECORD_BODY,
    "opledger_refuse": _REFUSE_BODY,
    "opledger_refuse_delete": _DELETE_BODY,
    "opledger_check_tombstone": _TOMBSTONE_BODY,
}


def _postgres_triggers() -> dict[str, tuple[str, str, str]]:
    """Name -> table, when it fires, and the function that it calls."""
    found = {
        "event_no_delete": ("event", "BEFORE DELETE ON event FOR EACH ROW", "opledger_refuse_delete"),
        "tombstone_of_head": ("tombstone", "BEFORE INSERT ON tombstone FOR EACH ROW", "opledger_check_tombstone"),
        "request_no_update": ("request", "BEFORE UPDATE ON request FOR EACH ROW", "opledger_keep_record"),
    }
    for table in RECORDS:
        found[f"{table}_no_delete"] = (table, f"BEFORE DELETE ON {table} FOR EACH ROW", "opledger_keep_record")
        found[f"{table}_no_truncate"] = (
            table,
            f"BEFORE TRUNCATE ON {table} FOR EACH STATEMENT",
            "opledger_keep_record",
        )
    for table in APPEND_ONLY:
        rows = "UPDATE" if table == "event" else "UPDATE OR DELETE"
        found[f"{table}_no_change"] = (table, f"BEFORE {rows} ON {table} FOR EACH ROW", "opledger_refuse")
        found[f"{table}_no_truncate"] = (table, f"BEFORE TRUNCATE ON {table} FOR EACH STATEMENT", "opledger_refuse")
    return found


POSTGRES_TRIGGERS: Final = _postgres_triggers()

POSTGRES: Final = (
    *(
        f"""CREATE OR REPLACE FUNCTION {name}() RETURNS trigger
            LANGUAGE plpgsql SET search_path = pg_catalog AS $${body}$$"""
        for name, body in POSTGRES_FUNCTIONS.items()
    ),
    *(
        f"CREATE OR REPLACE TRIGGER {name} {when} EXECUTE FUNCTION {function}()"
        for name, (_, when, function) in POSTGRES_TRIGGERS.items()
    ),
    # ALWAYS: also in a session that pretends to be a replica.
    *(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}" for name, (table, _, _) in POSTGRES_TRIGGERS.items()),
    # The owner can grant itself these again, but not by accident. What may be archived it may delete: see the trigger.
    *(f"REVOKE UPDATE, TRUNCATE ON {table} FROM PUBLIC, CURRENT_USER" for table in REVOKED),
    *(f"REVOKE DELETE ON {table} FROM PUBLIC, CURRENT_USER" for table in REVOKED if table != "event"),
    "GRANT DELETE ON event TO CURRENT_USER",  # an earlier version took it away
)

_POSTGRES_CHECK: Final = """
SELECT c.relname, t.tgname, p.proname, p.prosrc, t.tgtype,
    t.tgenabled = 'A' AND t.tgqual IS NULL AND t.tgattr::text = ''
FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.oid IN (SELECT to_regclass(name) FROM unnest(%s::text[]) name) AND NOT t.tgisinternal
UNION ALL
SELECT c.relname, r.rulename, '', '', 2, false FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
WHERE c.oid IN (SELECT to_regclass(name) FROM unnest(%s::text[]) name)
"""
"""Every trigger and rule on what is guarded; the last column says that it always holds, for every row and column."""


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
    """The guards that are not there, or are not what this version made; and what could act before them.

    Somebody else's trigger, or a rule, that comes before a row is written could swallow or change it unseen. Cheap
    enough for every start.
    """
    return _missing_on_server(cursor) if kind == "postgresql" else _missing_in_file(cursor)


def _missing_on_server(cursor: Any) -> list[str]:
    tables = list(GUARDED)
    cursor.execute(_POSTGRES_CHECK, (tables, tables))
    rows = cursor.fetchall()
    found = {tuple(row[:5]) for row in rows if row[5]}
    gone = {
        name
        for name, (table, when, function) in POSTGRES_TRIGGERS.items()
        if (table, name, function, POSTGRES_FUNCTIONS[function], _moment(when)) not in found
    }
    ours = {(table, name) for name, (table, _, _) in POSTGRES_TRIGGERS.items()}
    return sorted(gone | {_stranger(row[0], row[1]) for row in rows if row[4] & 2 and (row[0], row[1]) not in ours})


def _missing_in_file(cursor: Any) -> list[str]:
    cursor.execute("SELECT name, sql, tbl_name FROM sqlite_master WHERE type = 'trigger'")
    found = {name: (statement, table) for name, statement, table in cursor.fetchall()}
    gone = {name for name, statement in SQLITE.items() if found.get(name, ("",))[0] != statement}
    return sorted(
        gone | {_stranger(table, name) for name, (_, table) in found.items() if name not in SQLITE and table in GUARDED}
    )


def _stranger(table: str, name: str) -> str:
    return f"{name} on {table}, which is none of ours"


_MOMENTS: Final = {"INSERT": 4, "DELETE": 8, "UPDATE": 16, "TRUNCATE": 32}


def _moment(when: str) -> int:
    """When a trigger fires, as `pg_trigger.tgtype` keeps it: 1 each row, 2 before, and the events."""
    return 2 + ("EACH ROW" in when) + sum(bit for word, bit in _MOMENTS.items() if word in when)
