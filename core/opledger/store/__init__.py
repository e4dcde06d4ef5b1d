"""The database: tables, engine, the only state writes, and reads for people. Decides nothing.

store       `Store`: open, claim, record, and everything else that is asked of the database
queries     reads for people; listing, sources and conditions: windows of a filter in an order; tail: the journal of
            all operations as it grows; finding: one operation by anything that names it
values      what goes in and what comes out
recording, opening, claims, shares, reach, deliveries, directory, notices   the transactions behind `Store`, by subject
tasks       agent tasks: their records, append-only, and who runs them
watch       waiting for another process's write
rows        row <-> `Operation`
statements  SQLAlchemy Core, compiled once
engine, sqlite, postgres, trouble       connections, transactions, what drivers' errors mean
tables, schema, migrations, guards, roles   what stands in the database, and who may touch it
"""

from __future__ import annotations

from opledger.store.deliveries import Incoming, KeptDelivery, Match, Named, Parked, Taken
from opledger.store.engine import Database, open_database, restore_guards
from opledger.store.finding import Found, Hit
from opledger.store.notices import FailingTarget, Listening, Settled
from opledger.store.queries import Queries
from opledger.store.roles import roles_sql
from opledger.store.store import Store
from opledger.store.tail import Mark, Tail, TailEvent
from opledger.store.values import (
    Answer,
    Changed,
    Claim,
    Claimed,
    Declined,
    Fence,
    Filter,
    Grant,
    JobIdTaken,
    Opening,
    Page,
    Place,
    Provider,
    Recorded,
    Sort,
    Takings,
    TokenTaken,
    Want,
    Window,
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
    "Found",
    "Grant",
    "Hit",
    "Incoming",
    "JobIdTaken",
    "KeptDelivery",
    "Listening",
    "Mark",
    "Match",
    "Named",
    "Opening",
    "Page",
    "Parked",
    "Place",
    "Provider",
    "Queries",
    "Recorded",
    "Settled",
    "Sort",
    "Store",
    "Tail",
    "TailEvent",
    "Taken",
    "Takings",
    "TokenTaken",
    "Want",
    "Window",
    "WorkerLife",
    "Write",
    "open_database",
    "restore_guards",
    "roles_sql",
]
