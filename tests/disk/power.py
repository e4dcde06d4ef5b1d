"""T8, second half: every image is opened with the product, and must show a state that was committed.

An image is *lost* where it shows an older state than the last that was acknowledged, *half* where it shows none that
ever was, *damaged* where the product or SQLite calls it broken, *unclean* where ``audit verify`` has a finding,
*ahead* where a record speaks of a file (a result, the signing key) that is not there, whole.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from opledger.config import load_settings
from opledger.errors import OpledgerError
from opledger.ledger import Ledger, audit
from opledger.rules.model import StoredFile, StoredResult
from tests.disk.images import Disk, Image
from tests.disk.recorder import EMPTY, Trace, content

HARM: Final = ("lost", "half", "damaged", "unclean", "ahead")


@dataclass(slots=True)
class Verdict:
    """What was seen of one trace."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    shown: set[int] = field(default_factory=set)  #: commits whose state was seen in an image


@dataclass(frozen=True, slots=True)
class Papers:
    """What a state says about files beside the database: relative names, and the digest of each that is known."""

    files: Mapping[str, str | None]


class Checker:
    """Opens the images of one trace, one after the other, in one folder."""

    def __init__(self, trace: Trace, base: Path) -> None:
        self._trace, self._base = trace, base
        self._numbers = {digest: number for number, digest in enumerate(trace.states)}
        folder = base / "image"
        self._settings = load_settings(
            {"db": f"sqlite:///{folder / 'ledger.db'}", "results": str(folder / "results"), "operator": "olga"},
            {},
            base,
            base / "no",
            folder / "data" / "opledger",
        )
        self._papers: dict[str, Papers] = {}
        self._audited: set[tuple[str, bytes]] = set()
        self.verdict = Verdict()

    def check(self, image: Image) -> None:
        """Judge one image."""
        folder = self._base / "image"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in image.files:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(image.bytes_of(name))
        self.verdict.counts["images"] += 1
        kind, why = self._look(image, folder)
        if kind is not None:
            self.verdict.counts[kind] += 1
            self.verdict.broken.append(f"point {image.point} {image.how}: {kind}: {why}")

    def _look(self, image: Image, folder: Path) -> tuple[str | None, str]:
        database = folder / "ledger.db"
        if not database.exists():
            return (None, "") if image.acknowledged == 0 and self._trace.states[0] == EMPTY else ("lost", "no database")
        try:
            with Ledger.open(settings=self._settings, tested=False) as ledger:
                found = ledger.store.database.read(lambda tx: content(tx.cursor), snapshot=True)  # type: ignore[arg-type]
                if found not in self._papers and found in self._numbers:
                    self._papers[found] = self._read(ledger)
                    self.verdict.counts["states"] += 1
                kind, why = self._judge(image, found)
                if kind is None:
                    kind, why = self._beside(found, folder)
                if kind is None:
                    kind, why = self._audit(ledger, found, folder)
            with closing(sqlite3.connect(database)) as raw:
                told = raw.execute("PRAGMA integrity_check").fetchall()
            if told != [("ok",)]:
                return "damaged", f"integrity_check says {told[:3]}"
        except (OpledgerError, sqlite3.Error) as error:
            return "damaged", f"{type(error).__name__}: {error}"
        return kind, why

    def _judge(self, image: Image, found: str) -> tuple[str | None, str]:
        number = self._numbers.get(found)
        if number is None:
            return "half", f"a content that never was, behind commit {image.acknowledged}"
        self.verdict.shown.add(number)
        allowed = self._trace.states[image.acknowledged : max(image.acknowledged, image.begun) + 1]
        if found in allowed or (image.begun == 0 and found == self._made()):
            if image.begun > image.acknowledged:
                self.verdict.counts["undone" if found == allowed[0] else "done"] += 1
            return None, ""
        if number < image.acknowledged:
            return "lost", f"commit {image.acknowledged} was acknowledged, and commit {number} is there"
        return "half", f"commit {number} is there, and only {image.begun} had begun"

    def _made(self) -> str:
        """The content of a ledger that was only made: whoever opens an empty database makes one."""
        return self._trace.states[1] if self._trace.states[0] == EMPTY else ""

    def _read(self, ledger: Ledger) -> Papers:
        files: dict[str, str | None] = {}
        for op in ledger.list():
            result = op.result
            kept: list[StoredResult | StoredFile] = [] if result is None else [result, *result.also]
            for one in kept:
                if one.location is not None:
                    files[str(Path(one.location).relative_to(self._trace.root))] = one.sha256
        row = ledger.store.database.read(lambda tx: _ledger_id(tx.cursor))
        if row is not None:
            files[f"data/opledger/keys/{row}.key"] = None
        return Papers(files)

    def _beside(self, found: str, folder: Path) -> tuple[str | None, str]:
        for name, digest in self._papers[found].files.items():
            path = folder / name
            if not path.is_file():
                return "ahead", f"{name} is not there"
            data = path.read_bytes()
            if digest is not None and hashlib.sha256(data).hexdigest() != digest:
                return "ahead", f"{name} is not whole"
            if digest is None and b"-----END" not in data:
                return "ahead", f"{name} is not whole"
            self.verdict.counts["files"] += 1
        return None, ""

    def _audit(self, ledger: Ledger, found: str, folder: Path) -> tuple[str | None, str]:
        """Verify each content once with each anchor that was found beside it."""
        anchor = folder / "ledger.db.anchor"
        seen = (found, anchor.read_bytes() if anchor.exists() else b"")
        if seen in self._audited:
            return None, ""
        archives = sorted(folder.glob("gone*.jsonl"))
        verified = audit.run(ledger, audit.Asked(full=True, archives=archives if _has_stones(ledger) else ()))
        self.verdict.counts["audits"] += 1
        kinds = {one.kind for one in verified.findings}
        if verified.count and not (kinds == {"NOTHING_CHECKED"} and not verified.progress.events):
            return "unclean", "; ".join(f"{one.kind} {one.message}" for one in verified.findings[:3])
        self._audited.add(seen)
        return None, ""


def _ledger_id(cursor: Any) -> str | None:
    row = cursor.execute("SELECT ledger_id FROM ledger").fetchone()
    return None if row is None else str(row[0])


def _has_stones(ledger: Ledger) -> bool:
    return bool(ledger.store.database.read(lambda tx: tx.cursor.execute("SELECT 1 FROM tombstone").fetchone()))


def images(trace: Trace, seed: int, *, share: float = 1.0, only: Container[int] | None = None) -> Iterator[Image]:
    """All different images of a trace, in order; of a `share` of its points, and `only` of some."""
    disk, seen = Disk(trace), set()
    chosen = Random(f"{seed} {trace.story} points")
    for entry in (None, *trace.entries):
        if entry is not None:
            disk.play(entry)
        if chosen.random() >= share or (only is not None and disk.point not in only):
            continue
        for image in disk.images(Random(f"{seed} {trace.story} {disk.point}")):
            key = (image.acknowledged, image.begun, image.key)
            if key not in seen:
                seen.add(key)
                yield image


def check(trace: Trace, base: Path, found: Iterable[Image]) -> Verdict:
    """Judge images, in a folder below `base`."""
    checker = Checker(trace, base)
    for image in found:
        checker.check(image)
    shutil.rmtree(base / "image", ignore_errors=True)
    return checker.verdict
