"""The bytes of events are kept packed from now on (`packing`); what is there stays as it is.

No column changes, and what an older program would read in one does: it must not go on beside this one.

On PostgreSQL records are vacuumed once a fiftieth of them is dead and not a fifth: each poll leaves two dead versions
of its record behind, and a fifth of ten million records is gigabytes.
"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE operation SET (autovacuum_vacuum_scale_factor = 0.02)")
