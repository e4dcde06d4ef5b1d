"""``db``: what an administrator of PostgreSQL needs."""

from __future__ import annotations

from typing import Annotated

import typer

from opledger.cli.frame import Run, command


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="For administrators of a PostgreSQL ledger.", rich_markup_mode=None, no_args_is_help=True)
    command(group)(roles)
    app.add_typer(group, name="db")


def roles(
    run: Run,
    owner: Annotated[str, typer.Option(metavar="ROLE", help="Owns the tables and upgrades them.")] = "opledger_owner",
    worker: Annotated[
        str, typer.Option(metavar="ROLE", help="Agents, workers and consoles: adds to the journal, never changes it.")
    ] = "opledger_worker",
    reader: Annotated[str, typer.Option(metavar="ROLE", help="Auditors: only reads.")] = "opledger_reader",
) -> None:
    """Print the SQL that makes the three roles. Pipe it into psql as a superuser, after the ledger was opened once."""
    from opledger.errors import UsageError
    from opledger.store.roles import roles_sql

    try:
        sql = roles_sql(owner, worker, reader)
    except ValueError as error:
        raise UsageError(f"{error}; choose another name") from error
    run.give({"sql": sql}, sql.splitlines)
