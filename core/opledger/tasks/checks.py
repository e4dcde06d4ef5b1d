"""Trying whether a step is done, against reality: files, programs, operations, reads at a provider."""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from opledger.edges.clock import Clock
from opledger.edges.files import digest_of
from opledger.errors import StoreUnavailable
from opledger.ledger import Ledger
from opledger.rules import jsontext
from opledger.rules.model import Operation
from opledger.rules.redact import Redactor
from opledger.rules.tasks import templates
from opledger.rules.tasks.plan import Step
from opledger.rules.tasks.proofs import Check, CommandCheck, FileCheck, HttpCheck, OperationCheck
from opledger.rules.tasks.templates import Outputs
from opledger.tasks import commands
from opledger.tasks.outputs import is_there

LARGEST: Final = 256 * 1024 * 1024
"""Bytes of the largest file that is parsed; a larger one can still be checked by its hash or a command."""


@dataclass(frozen=True, slots=True)
class Held:
    """What became of the checks of a step: the proofs, or why one of them did not hold."""

    proofs: tuple[Mapping[str, Any], ...] = ()
    why: str | None = None

    @property
    def ok(self) -> bool:
        """All of them held."""
        return self.why is None


class NotYet(Exception):
    """A check did not hold. The message says why."""


class Checker:
    """Tries checks in the plan's folder. `operation_of` finds the operation of a step."""

    def __init__(
        self,
        folder: Path,
        ledger: Ledger,
        environment: Callable[[Step], Mapping[str, str]],
        redactor: Redactor,
        operation_of: Callable[[Step], Operation | None],
    ) -> None:
        self._folder = folder
        self._ledger = ledger
        self._environment = environment
        self._redactor = redactor
        self._operation_of = operation_of

    def try_all(
        self,
        step: Step,
        outputs: Outputs,
        *,
        before: Mapping[str, Any] | None = None,
        going: Callable[[], None] = lambda: None,
    ) -> Held:
        """Try every check of a step. `before` is its recorded proof, which files must still fit.

        Raises StoreUnavailable where a file cannot be read, and ConfigWrong for a contract that is wrong.
        """
        recorded = (
            {} if before is None else {one["file"]: one["sha256"] for one in before.get("checks", ()) if "file" in one}
        )
        proofs: list[Mapping[str, Any]] = []
        for check in step.checks:
            try:
                proofs.append(self._try(step, check, outputs, recorded, going))
            except (NotYet, templates.NothingThere) as reason:
                return Held(tuple(proofs), str(reason))
        return Held(tuple(proofs))

    def _try(
        self,
        step: Step,
        check: Check,
        outputs: Outputs,
        recorded: Mapping[str, str],
        going: Callable[[], None],
    ) -> Mapping[str, Any]:
        if isinstance(check, FileCheck):
            name = templates.fill_text(check.path, outputs)
            wanted = None if check.sha256 is None else templates.fill_text(check.sha256, outputs)
            return _file(self._folder / name, name, check.parses, (wanted or "").removeprefix("sha256:"), recorded)
        if isinstance(check, CommandCheck):
            argv = [templates.fill_text(word, outputs) for word in check.argv]
            return self._command(step, argv, going)
        if isinstance(check, OperationCheck):
            return _operation(self._operation_of(step), check)
        return self._read(check, outputs)

    def _command(self, step: Step, argv: Sequence[str], going: Callable[[], None]) -> Mapping[str, Any]:
        clock: Clock = self._ledger.clock
        ran = commands.run(argv, self._folder, self._environment(step), step.timeout, clock=clock, going=going)
        if not ran.ok:
            raise NotYet(f"the check {' '.join(argv)[:200]} does not hold: {ran.sentence(self._redactor)}")
        return {"command": argv, "exit": 0}

    def _read(self, check: HttpCheck, outputs: Outputs) -> Mapping[str, Any]:
        from opledger.tasks import asking

        try:
            return asking.read(self._ledger.settings, check, outputs)
        except asking.NoAnswer as reason:
            raise NotYet(str(reason)) from reason


def _operation(op: Operation | None, check: OperationCheck) -> Mapping[str, Any]:
    if op is None:
        raise NotYet("its operation is not in the ledger")
    if op.state is not check.state:
        why = f" ({op.last_error})" if op.last_error else ""
        raise NotYet(f"its operation {op.operation_id} is {op.state}{why} and should be {check.state}")
    return {"operation": op.operation_id, "state": str(op.state), "head_seq": op.head_seq, "head_hash": op.head_hash}


def _file(path: Path, name: str, parses: str | None, sha256: str, recorded: Mapping[str, str]) -> Mapping[str, Any]:
    if not is_there(path):
        raise NotYet(f"the file {name} is not there")
    size, digest = digest_of(path)
    if sha256 and digest != sha256:
        raise NotYet(f"the file {name} has the SHA-256 {digest} and should have {sha256}")
    if digest != recorded.get(name, digest):
        raise NotYet(f"the file {name} was changed since: it has the SHA-256 {digest} and had {recorded[name]}")
    if parses is not None:
        if size > LARGEST:
            raise NotYet(f"the file {name} is larger than {LARGEST} bytes and is not parsed; check it by a command")
        try:
            _PARSERS[parses](path.read_bytes())
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, csv.Error, RecursionError) as error:
            raise NotYet(f"the file {name} does not hold {parses}: {error}") from error
    return {"file": name, "size": size, "sha256": digest, "parses": parses}


def _text(data: bytes) -> None:
    if not data.decode("utf-8").strip() or b"\0" in data:
        raise ValueError("it is blank, or holds NUL characters")


def _jsonl(data: bytes) -> None:
    for number, line in enumerate(data.splitlines(), 1):
        try:
            jsontext.loads(line)
        except jsontext.JsonError as error:
            raise ValueError(f"line {number}: {error}") from error
    if not data.strip():
        raise ValueError("it is empty")


def _csv(data: bytes) -> None:
    rows = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
    widths = {len(row) for row in rows if row}
    if not widths:
        raise ValueError("it is empty")
    if len(widths) > 1:
        raise ValueError(f"its rows have between {min(widths)} and {max(widths)} columns")


_PARSERS: Final[Mapping[str, Callable[[bytes], object]]] = {
    "text": _text,
    "json": jsontext.loads,
    "jsonl": _jsonl,
    "csv": _csv,
    "toml": lambda data: tomllib.loads(data.decode("utf-8")),
}
