"""A ledger with key and anchor in a folder, and independent looks at what was written."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from opledger.checkpoints import standing
from opledger.checkpoints.maker import Checkpointer
from opledger.checkpoints.standing import Anchored
from opledger.config import AuditSettings, load_settings
from opledger.edges.anchors import FileAnchor
from opledger.edges.signing import is_signed, load_key
from opledger.ledger import Ledger
from opledger.ledger import audit as verifying
from opledger.rules import notes, tree
from opledger.rules.notes import Signed
from opledger.rules.tree import Tree
from opledger.store import Store, auditing, open_database
from opledger.store import checkpoints as table


class World:
    """One ledger; `store` writes what agents and workers would."""

    def __init__(self, url: str, folder: Path, **audit: Any) -> None:
        self.url, self.folder = url, folder
        self.anchor = FileAnchor(folder / "ledger.anchor")
        given: dict[str, Any] = {"anchors": (self.anchor.path,), "keys": folder / "keys", **audit}
        self.audit = AuditSettings(checkpoint=timedelta(seconds=5), **given)
        self._stack = ExitStack()
        self.store = Store(open_database(url))
        self._stack.enter_context(self.store)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def worker(self, store: Store | None = None, **audit: Any) -> Checkpointer:
        """The checkpointer of a worker that has just started."""
        return Checkpointer((store or self.store).database, replace(self.audit, **audit))

    def another(self) -> Store:
        """The database as another process has it open."""
        return self._stack.enter_context(Store(open_database(self.url)))

    # --- looking --------------------------------------------------------------------------------------------------

    @property
    def public(self) -> bytes:
        """The public key, from the key's file."""
        (path,) = (self.folder / "keys").glob("*.key")
        key = load_key(path)
        assert key is not None
        return key.public

    def notes(self) -> list[Signed]:
        """All notes of the table, after a look at every one: signature, number, chain, tree, columns that count."""
        papers = auditing.papers(self.store.database)
        leaves = list(auditing.leaves(self.store.database, 0, papers.last_leaf))
        found, before, given = [], notes.GENESIS, {one.abandoned_to: one for one in papers.acknowledgements}
        number = 0
        for row in papers.checkpoints:
            signed = notes.read(row.note)
            note = signed.note
            assert is_signed(signed, self.public)
            assert note.previous == before
            if note.number != number + 1:
                assert given[note.number - 1].digest() == note.acknowledged
            grown = Tree().add(
                tree.leaf_of(one.kind, one.operation_id, one.seq, one.hash) for one in leaves[: note.size]
            )
            assert grown.root == note.root
            assert [leaf.number for leaf in leaves[: note.size]] == list(range(note.size))
            before, number = signed.hash, note.number
            found.append(signed)
        assert len(leaves) == (found[-1].note.size if found else 0)
        return found

    def anchored(self) -> Anchored | None:
        """Up to where the history is anchored."""
        return standing.look(self.store.database, self.audit).anchored

    def kept(self) -> list[int]:
        """The numbers of the notes in the anchor, in its order."""
        return [notes.read(text).note.number for text in self.anchor.notes()]

    def newest(self) -> int:
        """The number of the newest checkpoint; 0: none."""
        found = table.newest(self.store.database)
        return 0 if found is None else found.number

    def findings(self) -> list[str]:
        """What `audit verify` finds, with the anchor. The requests here are made up, so those are not compared."""
        settings = load_settings({"db": self.url}, {}, self.folder, self.folder / "none", self.folder)
        settings = replace(settings, audit=self.audit)
        with Ledger.open(settings=settings, read_only=True) as ledger:
            found = verifying.run(ledger, verifying.Asked(full=True))
        return [
            f"{one.kind} {one.operation_id} {one.seq}: {one.message}"
            for one in found.findings
            if one.kind != "PROJECTION"
        ]
