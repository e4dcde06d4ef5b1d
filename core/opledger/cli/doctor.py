"""``doctor``: what is well here; and, for an administrator, the roles of PostgreSQL and the units of systemd."""

from __future__ import annotations

from typing import Annotated

import typer

from opledger.cli.frame import Run, command


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    command(app)(doctor)


def doctor(
    run: Run,
    *,
    roles: Annotated[
        bool, typer.Option("--roles", help="Print the SQL that makes PostgreSQL's roles; pipe it into psql.")
    ] = False,
    owner: Annotated[str, typer.Option(metavar="ROLE", help="Owns the tables and upgrades them.")] = "opledger_owner",
    worker: Annotated[
        str, typer.Option(metavar="ROLE", help="Workers and agents: adds to the journal, never changes it.")
    ] = "opledger_worker",
    operator: Annotated[
        str, typer.Option(metavar="ROLE", help="People: what a worker may, and acknowledging and archiving.")
    ] = "opledger_operator",
    reader: Annotated[str, typer.Option(metavar="ROLE", help="Auditors: only reads.")] = "opledger_reader",
    systemd: Annotated[
        str | None, typer.Option(metavar="UNIT", help="Print a systemd unit: worker or webhooks.", show_default=False)
    ] = None,
    guards: Annotated[
        bool, typer.Option("--guards", help="Make the guards of the journal anew, once you know who removed them.")
    ] = False,
) -> int:
    """Look at database, contracts, secrets, clocks and workers. Exit code 5: the database, 4: its guards, 3: others."""
    from opledger.errors import UsageError

    if sum((roles, systemd is not None, guards)) > 1:
        raise UsageError("--roles, --systemd and --guards exclude each other; give one of them")
    if guards:
        return _guards(run)
    if roles:
        return _roles(run, owner, worker, operator, reader)
    if systemd is not None:
        return _unit(run, systemd)
    from opledger.cli.health import look

    return look(run)


def _roles(run: Run, *names: str) -> int:
    from opledger.errors import UsageError
    from opledger.store.roles import roles_sql

    try:
        sql = roles_sql(*names)
    except ValueError as error:
        raise UsageError(f"{error}; choose another name") from error
    run.give({"sql": sql}, sql.splitlines)
    return 0


def _guards(run: Run) -> int:
    from opledger.errors import Refused
    from opledger.rules import human
    from opledger.rules.model import ActorKind
    from opledger.store.engine import restore_guards

    settings = run.settings()
    who = human.actor(settings.operator)
    if who.kind is not ActorKind.HUMAN:
        raise Refused(f"{who.name} is no person; only a person may say that it is known why the guards were gone")
    were = restore_guards(settings.database)
    told = f"the guards were made anew; wrong with them was: {', '.join(were)}" if were else "no guard was missing"
    run.give({"restored": were}, lambda: [f"{told}. See what was changed meanwhile: opledger audit verify --full"])
    return 0


def _unit(run: Run, kind: str) -> int:
    from opledger.cli.units import unit
    from opledger.store.engine import without_secrets

    name, text = unit(kind, without_secrets(run.settings().database))
    run.give({"name": name, "unit": text}, text.splitlines)
    return 0
