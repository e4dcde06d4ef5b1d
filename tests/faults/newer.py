"""A program of the next version: ``python -m tests.faults.newer adds|changes ARGUMENTS`` is `opledger ARGUMENTS` then.

It knows one more revision of the schema, which adds a table and a column. With ``adds`` programs of today may go on
with that, as after most releases; with ``changes`` it says that they could not.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from opledger.cli import main
from opledger.store import schema

NEXT: Final = "9001"
TODAY: Final = schema.CURRENT


def become(how: str) -> None:
    """Make this process a program of the next version."""
    import alembic.command

    real = alembic.command.upgrade

    def upgrade(config: Any, _: str) -> None:
        real(config, TODAY)
        run = config.attributes["connection"].exec_driver_sql
        run("ALTER TABLE operation ADD COLUMN later TEXT")
        run("CREATE TABLE later (one TEXT)")
        run(f"UPDATE {schema.VERSION_TABLE} SET version_num = '{NEXT}'")

    alembic.command.upgrade = upgrade  # type: ignore[assignment]
    schema.REVISIONS = (*schema.REVISIONS, NEXT)  # type: ignore[misc, assignment]
    schema.CURRENT = NEXT  # type: ignore[misc]
    schema.OLDEST = {"adds": TODAY, "changes": NEXT}[how]  # type: ignore[misc]


if __name__ == "__main__":
    become(sys.argv[1])
    sys.exit(main(sys.argv[2:]))
