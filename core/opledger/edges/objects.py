"""Checkpoints in an object store: ``checkpoints/<ledger id>/<number, 20 digits>.note``, each written once.

The bucket's own retention lock is what makes this an anchor that nobody on this machine can reach back into.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from opledger.edges.stores import connect, read_url, words
from opledger.errors import ConfigWrong, StoreUnavailable
from opledger.rules.notes import MAX_NOTE

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PATIENCE: Final = 10
"""Seconds for one request: a worker that ends waits for this, and the next one brings what is missing."""

_DIGITS: Final = 20
_STEPS: Final = (1, 1_000, 100_000)
"""How far behind the newest checkpoint is looked for the last one that was kept, before all are listed."""


class ObjectAnchor:
    """One folder of an object store."""

    reads: Final[bool] = True

    def __init__(self, url: str, ledger_id: str, store: ObjectStore) -> None:
        self.name: Final = url
        self._store = store
        self._folder = f"checkpoints/{ledger_id}"

    @classmethod
    def from_url(cls, url: str, ledger_id: str) -> ObjectAnchor:
        """Open the store of a URL; nothing is asked of it yet. Raises ConfigWrong, never with the URL in it."""
        scheme, bucket, prefix = read_url(url, "an anchor in [audit]")
        try:
            import obstore  # noqa: F401 - only to see whether it is there
        except ImportError:
            raise ConfigWrong(
                "an anchor in [audit] is an object store, and obstore is not installed; "
                "install it: pip install 'opledger[objects]'"
            ) from None
        place = "/".join((f"{scheme}://{bucket}", *prefix))
        return cls(
            place, ledger_id, connect(scheme, bucket, "/".join(prefix), "an anchor in [audit]", patience=PATIENCE)
        )

    def latest(self, near: int) -> list[str]:
        """Return some of the newest notes, the newest last."""
        with self._told():
            for step in _STEPS:
                if step < near:
                    found = self._keys(near - step)
                    if found:
                        return [self._get(key) for key in found[-3:]]
            return [self._get(key) for key in self._keys(-1)[-3:]]

    def notes(self) -> Iterator[str]:
        """Yield all notes, in the order of their numbers."""
        with self._told():
            for key in self._keys(-1):
                yield self._get(key)

    def append(self, kept: Sequence[tuple[int, str]]) -> None:
        """Keep notes, given with their numbers. Raises StoreUnavailable, also where another one has that number."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, NotSupportedError

        with self._told():
            for number, note in kept:
                key = self._key(number)
                try:
                    obstore.put(self._store, key, note.encode(), mode="create", use_multipart=False)
                except (AlreadyExistsError, NotSupportedError, NotImplementedError):
                    # Some stores cannot refuse to replace; there the look comes before.
                    self._compare(key, note)

    def _compare(self, key: str, note: str) -> None:
        import obstore

        try:
            found = self._get(key)
        except FileNotFoundError:
            obstore.put(self._store, key, note.encode(), use_multipart=False)
            return
        if found != note:
            raise StoreUnavailable(f"the anchor {self.name} has another checkpoint at {key} than the database")

    def _key(self, number: int) -> str:
        return f"{self._folder}/{number:0{_DIGITS}}.note"

    def _keys(self, after: int) -> list[str]:
        """The keys behind a number, in order."""
        import obstore

        offset = self._key(after) if after >= 0 else None
        listed: Any = obstore.list(self._store, self._folder, offset=offset, chunk_size=1000)
        return sorted(one["path"] for chunk in listed for one in chunk if one["path"].endswith(".note"))

    def _get(self, key: str) -> str:
        import obstore

        data = bytes(obstore.get(self._store, key, options={"range": (0, MAX_NOTE * 4)}).bytes())
        return data.decode("utf-8", "replace")

    @contextmanager
    def _told(self) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, ValueError, OSError) as error:
            raise StoreUnavailable(f"the anchor {self.name}: {words(error)}") from None
