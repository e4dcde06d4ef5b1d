"""Writing the journal out as JSON lines: for auditors, for the stand-alone verifier, for the archive.

Leaves and checkpoints are read first and events last, so that everything a leaf names is in the file. Of operations
that are not exported only the hash of each leaf is: it gives nothing away, and the roots can be computed all the same.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from opledger.errors import Refused
from opledger.ledger.auditing import headers_sha256, in_pieces
from opledger.ledger.reading import Reading
from opledger.rules import audit, notes, tree
from opledger.rules.auditlog import Checkpoint
from opledger.rules.journal import Row
from opledger.rules.model import to_rfc3339
from opledger.rules.tombstones import Tombstone
from opledger.store import auditing, rows
from opledger.store.auditing import Slice

FORMAT: Final = "opledger-export/1"
STEP: Final = 500
REQUEST: Final = ("operation_id", "method", "url", "headers", "content_type", "body", "asked", "fingerprint_url")
"""The columns of a request, in order."""

_DISPLACED: Final = ("state", "remote_job_id", "version", "head_seq", "head_hash")
"""Columns of a record that a chain alone says something about."""


def lines(ledger: Reading, operations: Sequence[str] = ()) -> Iterator[bytes]:
    """Yield an export of some operations, or of all, line by line: ASCII, each with its line feed.

    Raises UnknownOperation for one that is not there.
    """
    ids = sorted({ledger.show(one).operation_id for one in operations})
    return of(ledger, ids if operations else None)


def of(ledger: Reading, ids: Sequence[str] | None, *, rows_too: bool = False) -> Iterator[bytes]:
    """Yield an export of these operations (None: of all), given by their whole ids.

    `rows_too`: also the whole rows of records and requests, as an archive keeps them.
    """
    database, count = ledger.store.database, 0
    papers = auditing.papers(database)
    chosen = None if ids is None else frozenset(ids)

    def written() -> Iterator[dict[str, Any]]:
        yield _head(ledger, papers.ledger, chosen)
        yield from (_checkpoint(row) for row in papers.checkpoints)
        for one in papers.acknowledgements:
            yield {"type": "acknowledgement", **_shape(one._asdict())}
        for leaf in auditing.leaves(database, 0, papers.last_leaf):
            yield _leaf(leaf, whole=chosen is None or leaf.operation_id in chosen)
        for found in _slices(ledger, ids):
            yield from _of_slice(found)
            if rows_too:
                yield from _rows(found)

    for document in written():
        count += 1
        yield _line(document)
    yield _line({"type": "end", "lines": count + 1})


def _slices(ledger: Reading, ids: Sequence[str] | None) -> Iterator[Slice]:
    database = ledger.store.database
    if ids is None:
        for after, upto in auditing.bounds(database, STEP):
            yield auditing.within(database, after, upto)
        return
    for some in in_pieces(ids, STEP):
        found = auditing.named(database, some)
        if gone := set(some) - {row[0] for row in found.operations}:
            raise Refused(f"{', '.join(sorted(gone))} went away while it was exported; try again")
        yield found


def _head(ledger: Reading, named: tuple[str, str] | None, chosen: frozenset[str] | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "format": FORMAT,
        "origin": None,
        "verifier_key": None,
        "exported_at": to_rfc3339(ledger.clock.now()),
        "operations": None if chosen is None else len(chosen),
    }
    if named is not None:
        document["origin"] = origin = f"opledger/{named[0]}"
        try:
            document["verifier_key"] = notes.verifier_key(origin, base64.b64decode(named[1], validate=True))
        except (TypeError, ValueError):
            document["verifier_key"] = ""
    return document


def _checkpoint(row: Checkpoint) -> dict[str, Any]:
    return {"type": "checkpoint", **_shape(row._asdict())}


def _leaf(leaf: audit.Leaf, *, whole: bool) -> dict[str, Any]:
    if whole:
        return {"type": "leaf", **_shape(leaf._asdict())}
    try:
        digest = tree.leaf_of(leaf.kind, leaf.operation_id, leaf.seq, leaf.hash).hex()
    except (ValueError, TypeError, AttributeError, OverflowError):
        digest = ""
    return {"type": "leaf", "number": leaf.number, "digest": digest}


def _of_slice(found: Slice) -> Iterator[dict[str, Any]]:
    for event in found.events:
        yield {"type": "event", **_event(Row(*event))}
    requests = {row[0]: row for row in found.requests}
    for row in found.operations:
        values = dict(zip(rows.COLUMNS, row, strict=True))
        request = requests.get(row[0])
        yield {
            "type": "record",
            "operation_id": row[0],
            **_shape({name: values[name] for name in _DISPLACED}),
            "request": None
            if request is None
            else {
                "method": _plain(request[1]),
                "url": _plain(request[2]),
                "body_sha256": audit.sha256_of(request[5]),
                "headers_sha256": headers_sha256(request),
            },
        }
    for stone in found.tombstones:
        yield {"type": "tombstone", **_shape(Tombstone(*stone)._asdict())}


def _event(row: Row) -> dict[str, Any]:
    """An event, in which nothing of another type than its column has can pass for what it should be."""
    values = _shape(row._asdict())
    wrong = [name for name in _TEXTS if not isinstance(values[name], str)]
    wrong += [name for name in _MAYBE if not isinstance(values[name], str | None)]
    wrong += [name for name in _NUMBERS if not isinstance(values[name], int)]
    return {**values, **{name: _wrong(getattr(row, name)) for name in wrong}}


def _rows(found: Slice) -> Iterator[dict[str, Any]]:
    for table, names, some in (("operation", rows.COLUMNS, found.operations), ("request", REQUEST, found.requests)):
        for row in some:
            yield {"type": "row", "table": table, **_shape(dict(zip(names, row, strict=True)))}


def _shape(values: dict[str, Any]) -> dict[str, Any]:
    """Columns as JSON holds them: hashes in hex, the bytes of an event in base64, what does not belong there told."""
    return {name: _SHAPES.get(name, _plain)(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int) else _wrong(value)


def _hex(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else _wrong(value)


def _base64(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else _wrong(value)


def _base64_or_none(value: Any) -> Any:
    return None if value is None else _base64(value)


def _wrong(value: Any) -> dict[str, str]:
    return {"of_type": type(value).__name__, "value": str(value)[:1000]}


_TEXTS: Final = ("operation_id", "actor", "kind", "cause")
_MAYBE: Final = ("from_state", "to_state", "reason", "remote_job_id")
_NUMBERS: Final = ("seq", "at", "format")
_HASHES: Final = ("prev_hash", "hash", "head_hash", "file_sha256", "root", "previous", "key_id", "peaks")
_SHAPES: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(_HASHES, _hex),
    "body": _base64,
    "asked": _base64_or_none,
}


def _line(document: dict[str, Any]) -> bytes:
    # ASCII, so that nothing in it acts on a terminal; the encoder leaves only DEL as it is.
    return json.dumps(document, separators=(",", ":")).replace("\x7f", "\\u007f").encode("ascii") + b"\n"
