"""Runs the migrations on the connection and in the transaction that `schema.migrate` has opened."""

from __future__ import annotations

from alembic import context

from opledger.store.schema import VERSION_TABLE
from opledger.store.tables import whole

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=whole(),
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
