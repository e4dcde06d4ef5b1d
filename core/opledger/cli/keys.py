"""``keys``: the console's actions, by the ids that ``[console.keys]`` takes."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from opledger.cli.frame import Run, command

CONSOLE = "opledger_console.app"
KEYMAP = "opledger_console.keymap"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    command(app)(keys)


def keys(run: Run) -> None:
    """List the console's actions: id, keys, what it does, where. Another key goes into [console.keys] by that id."""
    from importlib import import_module

    # By name, because the core must not depend on the console. Once the app is loaded, all its keys are.
    import_module(CONSOLE)
    known = import_module(KEYMAP).known()

    def lines() -> Iterable[str]:
        width = max(len(one.action_id) for one in known)
        pressed = max(len(", ".join(one.keys)) for one in known)
        for one in known:
            yield f"{one.action_id:<{width}}  {', '.join(one.keys):<{pressed}}  {one.does} ({', '.join(one.places)})"

    document = [
        {"id": one.action_id, "keys": list(one.keys), "does": one.does, "places": list(one.places)} for one in known
    ]
    run.give({"keys": document}, lines)
