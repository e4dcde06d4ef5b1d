"""Answers and pinned contracts only grow as well: what events cite by its hash is guarded like the events themselves.

No table changes. Whoever upgrades makes all guards anew at the end, and those that this version adds with them.
"""

from __future__ import annotations

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass
