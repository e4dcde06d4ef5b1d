"""``contract list|show|check``: contract files and what they let us promise."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opledger.cli.deciding import Reason
from opledger.cli.frame import Run, command

if TYPE_CHECKING:
    from opledger.rules.contract import Contract

LATER = "comes in a later version of opledger; this one cannot do it"


def add_to(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(
        help="Contract files and what they let us promise.", rich_markup_mode=None, no_args_is_help=True
    )
    command(group)(list_)
    command(group)(show)
    command(group)(check)
    command(group)(probe)
    command(group)(adopt)
    app.add_typer(group, name="contract")


def list_(run: Run) -> None:
    """List every contract that can be found, and the files that are wrong."""
    from opledger.config import list_contracts

    found = list_contracts(run.settings())
    documents = [
        {
            "name": file.name,
            "title": file.contract.title if file.contract is not None else None,
            "valid": file.contract is not None,
            "error": file.error.message if file.error is not None else None,
            "digest": file.contract.digest if file.contract is not None else None,
            "path": file.path,
            "shipped": file.shipped,
        }
        for file in found
    ]

    def lines() -> Iterable[str]:
        from opledger.cli import text
        from opledger.rules.plain import clean

        rows = [
            (
                clean(file.name),
                "shipped" if file.shipped else "own",
                "ok" if file.contract is not None else "wrong",
                clean(file.contract.title if file.contract is not None else str(file.error)),
            )
            for file in found
        ]
        return text.table(("NAME", "FROM", "STATE", "TITLE"), rows, stretch=3)

    run.give(documents, lines)


def show(run: Run, name: Annotated[str, typer.Argument(help="The contract's name.")]) -> None:
    """Show one contract: its text, and what it lets us promise."""
    from opledger.config import find_contract
    from opledger.rules import shapes
    from opledger.rules.guarantees import guarantees

    contract = find_contract(run.settings(), name)
    report = shapes.contract_report(contract.name, guarantees(contract))
    document = {
        "name": contract.name,
        "title": contract.title,
        "contract_version": contract.contract_version,
        "digest": contract.digest,
        "base_url": contract.base_url,
        "guarantees": report["guarantees"],
        "source": contract.source,
    }

    def lines() -> Iterable[str]:
        from opledger.cli import text
        from opledger.rules.plain import clean

        yield f"{clean(contract.name)}: {clean(contract.title)} ({clean(contract.base_url)})"
        yield f"digest {contract.digest}"
        yield from text.guarantees(report["guarantees"])
        yield ""
        yield from clean(contract.source, newlines=True).splitlines()

    run.give(document, lines)


def check(run: Run, file: Annotated[str, typer.Argument(help="A contract file, or a name.")]) -> int:
    """Read a contract file and say everything that is wrong with it, or what it lets us promise."""
    from opledger.config import ContractInvalid
    from opledger.rules import shapes
    from opledger.rules.guarantees import guarantees

    try:
        contract = _read(run, file)
    except ContractInvalid as wrong:
        report = shapes.contract_report(file, None, wrong.problems)
        run.give(report, lambda: _problems(report))
        return 3
    report = shapes.contract_report(contract.name, guarantees(contract))

    def lines() -> Iterable[str]:
        from opledger.cli import text
        from opledger.rules.plain import clean

        yield f"{clean(contract.name)} is a contract that can be used."
        yield from text.guarantees(report["guarantees"])

    run.give(report, lines)
    return 0


def _read(run: Run, file: str) -> Contract:
    """Return the contract in a file, or the one of that name where there is no such file and no path was meant."""
    from opledger.config import find_contract, read_contract

    path = Path(file)
    settings = run.settings()
    if path.is_file() or "/" in file or file.endswith(".toml"):
        return read_contract(path, settings.environment)
    return find_contract(settings, file)


def _problems(report: dict[str, Any]) -> Iterable[str]:
    from opledger.cli import text

    yield from text.wrapped(f"{report['name']} is not a contract that can be used:")
    for wrong in report["errors"]:
        line = f"line {wrong['line']}: " if wrong["line"] is not None else ""
        yield from text.wrapped(f"{line}{wrong['key']}: {wrong['message']}", "  ")


def probe(run: Run, file: Annotated[str, typer.Argument(help="A contract file.")]) -> None:
    """Compare a contract with a live sandbox (comes in a later version)."""
    from opledger.errors import Refused

    raise Refused(f"probing a live sandbox ({file}) {LATER}")


def adopt(run: Run, name: Annotated[str, typer.Argument(help="The contract's name.")], reason: Reason) -> None:
    """Move open operations to the current version of a contract (comes in a later version)."""
    from opledger.errors import Refused

    raise Refused(f"moving open operations to the current version of {name} {LATER}")
