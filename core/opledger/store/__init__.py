"""The database: tables, engine, the only state writes, and reads for people. Decides nothing.

store       `Store`: open, claim, record, and everything else that is asked of the database
queries     reads for people
values      what goes in and what comes out
recording, opening, claims, directory, notices   the transactions behind `Store`, by subject
watch       waiting for another process's write
rows        row <-> `Operation`
statements  SQLAlchemy Core, compiled once
engine, sqlite, postgres, trouble       connections, transactions, what drivers' errors mean
tables, schema, migrations, guards, roles   what stands in the database, and who may touch it
"""

from __future__ import annotations

from opledger.store.engine import Database, open_database, restore_guards
from opledger.store.notices import FailingTarget, Listening, Settled
from opledger.store.queries import Queries
from opledger.store.roles import roles_sql
from opledger.store.store import Store
from opledger.store.values import (
    Answer,
    Changed,
    Claim,
    Claimed,
    Declined,
    Fence,
    Filter,
    JobIdTaken,
    Opening,
    Page,
    Provider,
    Recorded,
    TokenTaken,
    WorkerLife,
    Write,
)

__all__ = [
    "Answer",
    "Changed",
    "Claim",
    "Claimed",
    "Database",
    "Declined",
    "FailingTarget",
    "Fence",
    "Filter",
    "JobIdTaken",
    "Listening",
    "Opening",
    "Page",
    "Provider",
    "Queries",
    "Recorded",
    "Settled",
    "Store",
    "TokenTaken",
    "WorkerLife",
    "Write",
    "open_database",
    "restore_guards",
    "roles_sql",
]
