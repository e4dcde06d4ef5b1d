"""``webhooks serve``: receive what providers send."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from opledger.cli.frame import Run, command, put_json


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="Receive what providers send.", rich_markup_mode=None, no_args_is_help=True)
    command(group)(serve)
    app.add_typer(group, name="webhooks")


def serve(
    run: Run,
    host: Annotated[str, typer.Option(metavar="H", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="P", min=0, max=65_535, help="The port; 0 takes any.")] = 8787,
) -> None:
    """Receive webhooks at /webhooks/CONTRACT until stopped. It speaks plain HTTP: put TLS in front of it."""
    from opledger import receiver
    from opledger.cli import logs

    settings = run.settings()
    logs.configure(settings.log)

    def ready(address: str, contracts: Sequence[str]) -> None:
        if run.flags.as_json:
            put_json({"address": address, "contracts": list(contracts)}, sys.stdout)
        else:
            print(f"Webhooks are received at {address}/webhooks/CONTRACT")
            print(f"Contracts that have them: {', '.join(contracts) or 'none yet; they are looked for every second'}")
        sys.stdout.flush()

    with run.ledger(tested=True) as ledger:
        receiver.run(ledger, host, port, ready)
