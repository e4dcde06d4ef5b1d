"""``config``: where settings are looked for, and which files were read."""

from __future__ import annotations

import typer

from opledger.cli.frame import Run, command


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Where settings come from.", rich_markup_mode=None, no_args_is_help=True)
    command(group)(path)
    app.add_typer(group, name="config")


def path(run: Run) -> None:
    """List the settings files, the one that counts first, and whether each is there."""
    from pathlib import Path

    from opledger import config
    from opledger.rules.plain import clean

    read = run.settings().files
    places = [{"path": str(place), "read": place in read} for place in config.places(Path.cwd())]
    lines = [f"{clean(str(place['path']))}  {'read' if place['read'] else 'not there'}" for place in places]
    run.give(places, lambda: lines)
