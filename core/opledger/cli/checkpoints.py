"""``audit key`` and ``audit acknowledge``: who signs the history, and how it goes on after a backup was restored."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from opledger.cli.audit import group_of
from opledger.cli.frame import Run, command

HUMAN_NEEDED = 7


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = group_of(app)
    command(group)(key)
    command(group)(acknowledge)


def key(run: Run) -> None:
    """Print the key that others check the checkpoints with. Makes the ledger's name and key if it has none yet."""
    from opledger.checkpoints.keys import signer

    with run.ledger() as ledger:
        found = signer(ledger.store.database, ledger.settings.audit, ledger.clock)
    document = {"origin": found.ledger.origin, "key": found.verifier, "path": str(found.key.path)}
    run.give(document, lambda: [found.verifier, f"the private half of it: {found.key.path}"])


def acknowledge(
    run: Run,
    *,
    reason: Annotated[str, typer.Option(metavar="R", help="Why the ledger goes on; it stands there for good.")],
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Who says so; otherwise the operator.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> int:
    """Go on with a database that is older than its anchors: give up what it has forgotten. For people only."""
    from opledger.checkpoints import givingup
    from opledger.edges.place import acting
    from opledger.rules import human
    from opledger.rules.plain import clean

    with run.ledger() as ledger:
        database, audit = ledger.store.database, ledger.settings.audit
        who = acting(human.actor(by or ledger.settings.operator))
        givingup.check_person(who, reason)
        found = givingup.forgotten(database, audit)
        if not yes:
            if run.flags.as_json or not sys.stdin.isatty():
                run.tell("human_needed", f"{givingup.meaning(found)} If you mean that, give --yes")
                return HUMAN_NEEDED
            print(clean(givingup.meaning(found)), file=sys.stderr)
            if not typer.confirm("Go on with this database?", err=True):
                run.tell("human_needed", "nothing was written")
                return HUMAN_NEEDED
        given = givingup.acknowledge(database, audit, who, reason, ledger.clock.now(), found)
    one = given.acknowledged
    document = {
        "abandoned_from": one.abandoned_from,
        "abandoned_to": one.abandoned_to,
        "by": one.by,
        "reason": one.reason,
        "operations": given.operations,
    }
    told = (
        f"Checkpoints {one.abandoned_from} to {one.abandoned_to} are given up by {clean(one.by)}. "
        f"{given.operations} open operations have new fences; workers can be started."
    )
    run.give(document, lambda: [told])
    return 0
