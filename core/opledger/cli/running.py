"""``worker read console demo sim``: whatever runs for a while or sends something."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from opledger.cli import loaded
from opledger.cli.frame import Run, command, put_json
from opledger.cli.looking import Op

if TYPE_CHECKING:
    from opledger.config import Settings
    from opledger.ledger import Ledger
    from opledger.rules.model import Operation

OUT_OF_REACH = 5
CONSOLE = "opledger_console.app"


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    command(app)(worker)
    command(app)(read)
    command(app)(console)
    command(app)(demo)
    command(app)(sim)


def worker(
    run: Run,
    name: Annotated[str | None, typer.Option(metavar="N", help="What people call this worker.")] = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Stop once nothing will become due without a person.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Do what is due now, and stop.")] = False,
    with_parent: Annotated[
        bool, typer.Option("--with-parent", help="Stop once the process that started it has ended.")
    ] = False,
    parent: Annotated[
        int | None, typer.Option("--parent", metavar="PID", hidden=True, help="Stop unless this process started it.")
    ] = None,
) -> int:
    """Drive operations: send, poll, collect results. SIGTERM stops it and cancels nothing."""
    # Who starts a worker with its own id may have ended before this line: then the id is no longer the parent's.
    parent = os.getppid() if with_parent and parent is None else parent
    from opledger.cli import logs
    from opledger.errors import UsageError
    from opledger.service import run_worker

    if until_idle and once:
        raise UsageError("--until-idle and --once exclude each other; give one of them")
    settings = run.settings()
    logs.configure(settings.log)
    code = run_worker(settings, name=name, until_idle=until_idle, once=once, parent=parent)
    run.give({"ok": code == 0}, lambda: ())
    return code


def read(run: Run, op: Op) -> int | None:
    """Read one status now and record it. The worker that holds the operation does it, or this command."""
    from opledger.cli import logs, text
    from opledger.rules import shapes

    settings = run.settings()
    logs.configure(settings.log)
    with run.ledger() as ledger:
        before = ledger.show(op)
        ledger.check_readable(before)
        found = _read_here(settings, ledger, before) or _read_there(ledger, before)
        last = ledger.last_event(found.operation_id, {"Observed", "ReadFailed"})
        run.give(shapes.record(found), lambda: text.record(found, ledger.clock.now()))
    if last is not None and last.kind == "ReadFailed" and (last.data or {}).get("status") is None:
        run.tell(
            "provider_out_of_reach", f"{found.contract} gave no answer: {(last.data or {}).get('why', 'no reason')}"
        )
        return OUT_OF_REACH
    return None


def _read_here(settings: Settings, ledger: Ledger, op: Operation) -> Operation | None:
    """Read under a lease of our own; None where a worker holds it."""
    import asyncio

    from opledger.service import make_worker
    from opledger.worker.hand import Dropped

    reader = make_worker(ledger.store, results=settings.results, name="read", lease=settings.worker.lease)
    try:
        return asyncio.run(reader.read_once(op.operation_id))
    except Dropped:
        return None  # somebody else was faster: what they do next is as good


def _read_there(ledger: Ledger, op: Operation) -> Operation:
    """Ask the worker that holds the operation for a read, and wait for it."""
    asked = ledger.ask_for_read(op.operation_id)
    return ledger.wait_for_event(
        asked.operation_id, {"Observed", "ReadFailed"}, after_seq=asked.head_seq, timeout="60s"
    )


def console(
    run: Run,
    read_only: Annotated[bool, typer.Option("--read-only", help="Look, and change nothing.")] = False,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Do not drive operations beside the console.")] = False,
) -> int:
    """Open the terminal console."""
    from importlib import import_module

    from opledger.errors import UsageError

    settings = run.settings()
    # It draws on standard error, as Textual does: redirected, it would run unseen.
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "the console needs a terminal for its input, output and errors; in scripts use show, list and explain "
            "with --json"
        )
    # By name, because the core must not depend on the console.
    app = import_module(CONSOLE)
    return int(app.run(settings, read_only=read_only, worker=not no_worker) or 0)


def demo(
    run: Run,
    headless: Annotated[bool, typer.Option("--headless", help="Print instead of opening the console.")] = False,
    seed: Annotated[int, typer.Option(metavar="N", help="Chooses what goes wrong.")] = 7,
) -> int:
    """Show it all against a provider that misbehaves. Everything happens on this machine."""
    from contextlib import nullcontext, redirect_stdout
    from importlib.util import find_spec

    from opledger.cli import logs
    from opledger.sim.demo import run as play

    loaded()
    logs.configure("error")
    as_json = run.flags.as_json
    terminal = sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()
    can_show = terminal and find_spec(CONSOLE) is not None and not as_json
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        code = play(headless=headless or not can_show, seed=seed, show=_open_console)
    run.give({"ok": code == 0}, lambda: ())
    return code


def _open_console(database: str, environment: Mapping[str, str]) -> None:
    """Open the console on a ledger that somebody else's worker drives."""
    import os
    from importlib import import_module
    from pathlib import Path

    from opledger.config import load_settings

    # The policies of the demonstration stand beside its results.
    folder = Path(environment["OPLEDGER_RESULTS"]).parent
    settings = load_settings({"db": database}, {**os.environ, **environment}, folder)
    import_module(CONSOLE).run(settings, read_only=False, worker=False)


def sim(
    run: Run,
    port: Annotated[int, typer.Option(metavar="P", min=0, max=65_535, help="The port; 0 takes any.")] = 0,
    seed: Annotated[int, typer.Option(metavar="N", help="Chooses personalities and durations.")] = 0,
    faults: Annotated[str, typer.Option(metavar="SPEC", help="none, all, or e.g. ideal=6,lossy,slow=2.")] = "none",
    contracts: Annotated[str | None, typer.Option(metavar="DIR", help="Write the contract files there.")] = None,
) -> None:
    """Run only the misbehaving provider. It listens on this machine until it is stopped."""
    import asyncio
    import os
    from pathlib import Path

    from opledger.sim.app import Settings
    from opledger.sim.contracts import DEFAULT_TOKEN, write_contracts
    from opledger.sim.personalities import parse_faults
    from opledger.sim.server import Running, serve

    def ready(running: Running) -> None:
        if contracts is not None:
            write_contracts(Path(contracts), running.base_url, elsewhere=running.elsewhere)
        document = {"base_url": running.base_url, "elsewhere": running.elsewhere, "pid": os.getpid()}
        if run.flags.as_json:
            put_json(document, sys.stdout)
        else:
            print(f"The provider listens at {running.base_url}; what arrived: {running.base_url}/_log")
            print(f"Its contract file: {contracts or running.base_url + '/_contract/v1'}")
        sys.stdout.flush()

    loaded()
    token = os.environ.get("SIM_TOKEN") or DEFAULT_TOKEN
    asyncio.run(serve(Settings(seed=seed, faults=parse_faults(faults), token=token), port=port, ready=ready))
