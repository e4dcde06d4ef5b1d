"""Settings and contract files, turned into frozen values.

Order: flags, environment, ``opledger.toml`` in the working directory, ``opledger.toml`` in the user's configuration
folder, defaults. Approval policies and notices of both files apply together: a file in the working directory can add a
policy, and never take one away. Whose keys count is said by the user's own file, if it says so: a working directory
must not bring keys of its own.
"""

from __future__ import annotations

import getpass
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import unquote

import platformdirs

from opledger.errors import ConfigWrong, Refused, UsageError
from opledger.rules.contract import Contract
from opledger.rules.files import contract as contract_file
from opledger.rules.files.contract import ContractInvalid
from opledger.rules.files.reader import nearest
from opledger.rules.files.settings import Notify, Policy, SettingsFile, SettingsInvalid, is_url, level, parse_settings
from opledger.rules.schemas import MAX_SCHEMA

__all__ = [
    "AuditSettings",
    "ConsoleSettings",
    "ContractFile",
    "ContractInvalid",
    "Notify",
    "Policy",
    "Settings",
    "SettingsInvalid",
    "UnknownContract",
    "WorkerSettings",
    "find_contract",
    "list_contracts",
    "load_settings",
    "read_contract",
    "sqlite_path",
]

FILE: Final = "opledger.toml"


class UnknownContract(Refused):
    """No contract file has this name."""

    code: ClassVar[str] = "unknown_contract"


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker works."""

    lease: timedelta = timedelta(seconds=30)  #: calls are cut before it ends
    concurrency: int = 200  #: open calls of one worker
    tick: timedelta = timedelta(seconds=1)  #: longest time between two looks at the table


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """When checkpoints are written, and where they are anchored."""

    checkpoint: timedelta = timedelta(seconds=5)
    anchors: tuple[Path | str, ...] = ()  #: files, and URLs of other places; ``{ledger}`` becomes the ledger's id
    key: Path | None = None  #: signs them; None: a file of the ledger's name in `keys`
    keys: Path = field(default_factory=lambda: platformdirs.user_data_path("opledger") / "keys")
    allowed_signers: Path | None = None  #: whose SSH keys count under signed approvals; in the form that git uses

    def verified(self, ledger_id: str) -> Path:
        """Where the note stands up to which this user has verified a ledger on this machine."""
        return self.keys.parent / "verified" / f"{ledger_id}.json"


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """How the console looks."""

    theme: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict)  #: action -> key
    columns: tuple[str, ...] = ()
    grace: timedelta = timedelta(seconds=5)  #: in which an approval or a cancellation can be taken back


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that is configured. What may hold a secret is not in its repr."""

    database: str = field(repr=False)
    results: str = field(repr=False)  #: a folder, or the URL of an object store
    operator: str  #: who acts in command line and console
    log: str = "warning"
    contracts: tuple[Path, ...] = ()  #: folders that are searched before the shipped contracts
    worker: WorkerSettings = WorkerSettings()
    audit: AuditSettings = AuditSettings()
    policies: tuple[Policy, ...] = ()
    notify: tuple[Notify, ...] = ()
    console: ConsoleSettings = ConsoleSettings()
    files: tuple[Path, ...] = ()  #: the settings files that were read
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)  #: what contracts fill ``${NAME}`` from


@dataclass(frozen=True, slots=True)
class ContractFile:
    """A contract file that was found: the contract, or what is wrong with it."""

    name: str
    path: str
    shipped: bool
    contract: Contract | None
    error: ConfigWrong | None


def places(cwd: Path, user_config_dir: Path | None = None) -> tuple[Path, ...]:
    """Return where settings files are looked for, the one that counts first."""
    config = user_config_dir or platformdirs.user_config_path("opledger")
    return tuple(dict.fromkeys((cwd / FILE, config / FILE)))


def load_settings(
    flags: Mapping[str, str | None],
    environ: Mapping[str, str],
    cwd: Path,
    user_config_dir: Path | None = None,
    user_data_dir: Path | None = None,
) -> Settings:
    """Read the settings.

    `flags` may hold ``db``, ``contracts``, ``results``, ``operator`` and ``log``; None and "" count as not given.
    Raises SettingsInvalid for a settings file that is wrong, ConfigWrong for a flag or variable that is.
    """
    data = user_data_dir or platformdirs.user_data_path("opledger")
    paths = [path for path in places(cwd, user_config_dir) if path.is_file()]
    files = {path.parent: parse_settings(_read(path), name_hint=str(path)) for path in paths}

    def word(name: str) -> str | None:
        given = flags.get(name) or environ.get(f"OPLEDGER_{name.upper()}")
        return given or next((file.words[name] for file in files.values() if name in file.words), None)

    database = _database(word("db") or f"sqlite:///{data / 'ledger.db'}")
    sqlite = sqlite_path(database)
    beside = data if sqlite is None else (cwd / sqlite).parent
    audit = _merged(files, "audit")
    audit.pop("allowed_signers", None)
    audit.pop("key", None)
    # A server's ledgers have no folder of their own to tell them apart.
    elsewhere = "ledger.db.anchor" if database.startswith("sqlite") else "anchors/{ledger}.anchor"
    anchors = audit.pop("anchors", (elsewhere if sqlite is None else f"{sqlite.name}.anchor",))
    return Settings(
        database=database,
        results=word("results") or str(beside / "results"),
        operator=word("operator") or _os_user(),
        log=_log_level(word("log") or "warning"),
        contracts=_contract_folders(flags.get("contracts") or environ.get("OPLEDGER_CONTRACTS"), cwd, files),
        worker=WorkerSettings(**_merged(files, "worker")),
        audit=AuditSettings(
            anchors=tuple(name if is_url(name) else beside / Path(name).expanduser() for name in anchors),
            key=_signing_key(files),
            keys=data / "keys",
            allowed_signers=_signers(files),
            **audit,
        ),
        policies=tuple(policy for file in files.values() for policy in file.policies),
        notify=tuple(notify for file in files.values() for notify in file.notify),
        console=ConsoleSettings(**_merged(files, "console")),
        files=tuple(paths),
        environment=dict(environ),
    )


def find_contract(settings: Settings, name: str) -> Contract:
    """Return the contract of this name, from the configured folders or else as shipped.

    Raises UnknownContract where there is none, ContractInvalid (naming the file) where it is wrong, ConfigWrong where
    a folder or that file cannot be read, or a folder holds two contracts of this name.
    """
    known: list[str] = []
    for file in _contract_files(settings):
        if file.name == name:
            return file.load(settings.environment)
        known.append(file.name)
    have = ", ".join(sorted(set(known))) or "none"
    raise UnknownContract(
        f"there is no contract named {name[:80]!r}{nearest(name, known)} (there are: {have}; "
        "put the file into a folder that OPLEDGER_CONTRACTS names)"
    )


def list_contracts(settings: Settings) -> tuple[ContractFile, ...]:
    """Return every contract that `find_contract` would find, sorted by name, and the files that are wrong.

    Raises ConfigWrong where a folder cannot be read.
    """
    found: dict[str, ContractFile] = {}
    for file in _contract_files(settings):
        if file.name in found:
            continue
        try:
            found[file.name] = ContractFile(file.name, file.path, file.shipped, file.load(settings.environment), None)
        except ConfigWrong as wrong:
            found[file.name] = ContractFile(file.name, file.path, file.shipped, None, wrong)
    return tuple(found[name] for name in sorted(found))


def read_contract(path: Path, environment: Mapping[str, str]) -> Contract:
    """Read one contract file, wherever it lies.

    Raises UsageError where there is no such file, ContractInvalid where it is wrong, ConfigWrong where it cannot be
    read.
    """
    if not path.is_file():
        raise UsageError(f"there is no contract file {path}")
    return contract_file.parse(_read(path), name_hint=str(path), environment=environment, beside=_beside(path.parent))


# --- contract files ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Source:
    """A contract file before it is parsed; `wrong` is why it cannot be."""

    name: str
    path: str
    shipped: bool
    text: str
    beside: Callable[[str], str]
    wrong: str | None = None

    def load(self, environment: Mapping[str, str]) -> Contract:
        if self.wrong is not None:
            raise ConfigWrong(self.wrong)
        return contract_file.parse(self.text, name_hint=self.path, environment=environment, beside=self.beside)


def _contract_files(settings: Settings) -> Iterator[_Source]:
    """Yield the contract files in the order of search."""
    for folder in settings.contracts:
        if not folder.is_dir():
            raise ConfigWrong(f"the contract folder {folder} is not there; look at OPLEDGER_CONTRACTS and {FILE}")
        yield from _folder(folder, shipped=False)
    yield from _folder(resources.files("opledger") / "contracts", shipped=True)


def _folder(folder: Traversable, *, shipped: bool) -> Iterator[_Source]:
    try:
        entries = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".toml")), key=lambda e: e.name)
    except OSError as error:
        raise ConfigWrong(f"the contract folder {folder} cannot be read: {error.strerror}") from error
    found = [_source(folder, entry, shipped=shipped) for entry in entries]
    for file in found:
        twins = [other.path for other in found if other.name == file.name]
        if len(twins) > 1:
            wrong = f"{' and '.join(twins)} are both contracts named {file.name!r}; rename one of them"
            yield replace(file, wrong=wrong)
        else:
            yield file


def _source(folder: Traversable, entry: Traversable, *, shipped: bool) -> _Source:
    stem = entry.name.removesuffix(".toml")
    try:
        text = _read(entry)
    except ConfigWrong as error:
        return _Source(stem, str(entry), shipped, "", _beside(folder), error.message)
    return _Source(_name_in(text) or stem, str(entry), shipped, text, _beside(folder))


def _beside(folder: Traversable) -> Callable[[str], str]:
    """Return what reads a file beside a contract."""

    def read(name: str) -> str:
        try:
            with (folder / name).open("rb") as file:
                return file.read(MAX_SCHEMA + 1).decode()  # one byte too many is refused where it is compiled
        except OSError as error:
            raise ValueError(f"{name} beside the contract cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ValueError(f"{name} beside the contract is not UTF-8") from error

    return read


def _name_in(source: str) -> str | None:
    """Return the name that a contract gives itself; None for a file that cannot be read as TOML."""
    try:
        name = tomllib.loads(source).get("name")
    except (ValueError, RecursionError):
        return None
    return name if isinstance(name, str) else None


def _read(path: Traversable) -> str:
    """Read a text file. Bytes that are no UTF-8 become lone surrogates, which the parser refuses with their line."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise ConfigWrong(f"{path} cannot be read: {error.strerror}") from error


# --- pieces of the settings --------------------------------------------------------------------------------------


def sqlite_path(database: str) -> Path | None:
    """Return the file of a SQLite URL, or None for one in memory and for every other database."""
    found = re.fullmatch(r"sqlite(?:\+\w+)?:///([^?#]+)(?:\?.*)?", database)
    return None if found is None or found.group(1) == ":memory:" else Path(unquote(found.group(1)))


def _merged(files: Mapping[Path, SettingsFile], part: str) -> dict[str, Any]:
    """Merge one table over all files, key by key; the first file wins."""
    merged: dict[str, Any] = {}
    for file in files.values():
        merged = {**getattr(file, part), **merged}
    return merged


def _signing_key(files: Mapping[Path, SettingsFile]) -> Path | None:
    """Return the file with the key that signs checkpoints, relative to the settings file that names it."""
    named = (folder / Path(file.audit["key"]).expanduser() for folder, file in files.items() if "key" in file.audit)
    return next(named, None)


def _signers(files: Mapping[Path, SettingsFile]) -> Path | None:
    """Return the file that says whose keys count; the user's own word stands before that of the working directory."""
    named = [folder / Path(file.audit["allowed_signers"]).expanduser() for folder, file in files.items()
             if "allowed_signers" in file.audit]  # fmt: skip
    return named[-1] if named else None


def _contract_folders(given: str | None, cwd: Path, files: Mapping[Path, SettingsFile]) -> tuple[Path, ...]:
    if given:
        return tuple(cwd / Path(name).expanduser() for name in given.split(":") if name)
    return tuple(folder / Path(name).expanduser() for folder, file in files.items() for name in file.contracts)


def _database(given: str) -> str:
    if not re.match(r"(?:sqlite|postgres(?:ql)?)(?:\+\w+)?://", given):
        # The text itself is not shown: a database URL may carry a password.
        raise ConfigWrong(
            "the database must be sqlite:///PATH or postgresql://…; look at --db, OPLEDGER_DB and " + FILE
        )
    return given


def _log_level(given: str) -> str:
    try:
        return level(given)
    except ValueError as error:
        raise ConfigWrong(f"the log level {error}; look at OPLEDGER_LOG and {FILE}") from error


def _os_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError) as error:
        raise ConfigWrong("this process runs as a user without a name; say who acts: set OPLEDGER_OPERATOR") from error
