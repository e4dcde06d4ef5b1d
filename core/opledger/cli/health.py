"""What ``doctor`` looks at: what is well and what is not, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from opledger.cli.frame import Run

if TYPE_CHECKING:
    from opledger.config import Settings
    from opledger.ledger import Ledger
    from opledger.ledger.health import Check

REFUSED, INTEGRITY, OUT_OF_REACH = 3, 4, 5


def look(run: Run) -> int:
    """Look at database, contracts, secrets, clocks and workers. Exit code 5: the database, 4: its guards, 3: others."""
    from opledger.errors import IntegrityBroken, StoreUnavailable
    from opledger.ledger.health import Check

    settings = run.settings()
    try:
        with run.ledger() as ledger:
            found = [*ledger.doctor(), *_secrets(settings, ledger), _results(settings), *_files(settings)]
        wrong = {check.name for check in found if not check.ok}
        code = INTEGRITY if "guards" in wrong else REFUSED if wrong else 0
    except StoreUnavailable as error:
        found, code = [Check("database", False, error.message)], OUT_OF_REACH
    except IntegrityBroken as error:
        found, code = [Check("guards", False, error.message)], INTEGRITY

    def lines() -> Iterable[str]:
        from opledger.cli import text

        for check in found:
            first, *rest = text.wrapped(f"{check.name}: {check.message}", "       ")
            yield f"{'ok   ' if check.ok else 'WRONG'}  {first.lstrip()}"
            yield from rest

    document = {
        "ok": code == 0,
        "checks": [{"name": check.name, "ok": check.ok, "message": check.message} for check in found],
    }
    run.give(document, lines)
    return code


def _results(settings: Settings) -> Check:
    """See whether a worker could keep a result here."""
    from opledger.edges.stores import open_store
    from opledger.errors import ConfigWrong, StoreUnavailable
    from opledger.ledger.health import Check

    try:
        store = open_store(settings.results)
        store.check()
    except (ConfigWrong, StoreUnavailable) as error:
        return Check("results", False, error.message)
    return Check("results", True, f"results are kept in {store.where}")


def _files(settings: Settings) -> Iterable[Check]:
    """Name what other users of this machine can get at."""
    from pathlib import Path

    from opledger.config import sqlite_path
    from opledger.edges.private import open_to_others
    from opledger.ledger.health import Check

    files: list[Path] = []
    folders: list[Path] = []
    shared = [*settings.files, *settings.contracts]  # whoever writes there decides what is sent, and who is asked
    database = sqlite_path(settings.database)
    if database is not None:
        files += [database.with_name(database.name + end) for end in ("", "-wal", "-shm")]
        shared.append(database.absolute().parent)
    for anchor in settings.audit.anchors:
        if isinstance(anchor, Path):
            files += anchor.parent.glob(anchor.name.replace("{ledger}", "*"))
    folders.append(settings.audit.keys)
    files += settings.audit.keys.glob("*")
    if settings.audit.key is not None:
        files.append(settings.audit.key)
    if ":" not in settings.results:
        folders += [Path(settings.results), *Path(settings.results).glob("*/")]
    found = list(open_to_others(files, folders, shared))
    for sentence in found[:20]:
        yield Check("files", False, sentence)
    if not found:
        yield Check("files", True, "nothing here is open to other users of this machine")


def _secrets(settings: Settings, ledger: Ledger) -> Iterable[Check]:
    """Resolve what the contracts refer to. A secret that nobody needs now may be missing."""
    from opledger.config import list_contracts
    from opledger.edges.secrets import SecretResolver
    from opledger.errors import ConfigWrong
    from opledger.ledger.health import Check

    resolver = SecretResolver(settings.environment)
    used = ledger.store.queries.open_by_contract()
    good = 0
    try:
        files = list_contracts(settings)
    except ConfigWrong:
        return  # the ledger's own checks have said so
    # No command that fetches one secret inherits another one.
    resolver.hide(one for file in files if file.contract is not None for one in file.contract.references)
    for file in files:
        if file.contract is None:
            continue
        needed = used.get(file.name, 0) > 0 or not file.shipped
        for reference in dict.fromkeys(file.contract.references):
            try:
                resolver.resolve(reference)
                good += 1
            except ConfigWrong as error:
                note = "" if needed else "; nothing open needs it"
                yield Check(f"secret of {file.name}", not needed, f"{error.message}{note}")
    yield Check("secrets", True, f"{good} secrets resolve")
