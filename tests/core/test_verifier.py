"""The stand-alone verifier on exports that are written here, by the documented format, and on one lie at a time.

No ledger and no database: an export is lines of JSON, and a lie is an edit of them. Beside each lie stands what is to
be found, in the order in which it is told.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.util
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import opledger

SCRIPT: Final = Path(opledger.__file__).parent / "verifier.py"
ORIGIN: Final = "opledger/ldg_01ARZ3NDEKTSV4RRFFQ69G5FAV"
A, B, C, D = "op_a", "op_b", "op_c", "op_d"
AT: Final = 1_796_057_434_000_001
AT_TEXT: Final = "2026-11-30T16:50:34.000001Z"

Line = dict[str, Any]
Lines = list[Line]
Told = tuple[str, str | None, int | None]


def sha(*parts: bytes) -> bytes:
    """SHA-256."""
    return hashlib.sha256(b"".join(parts)).digest()


def named(domain: bytes, name: str, seq: int) -> bytes:
    """An operation and a place in its chain, as they stand under a hash."""
    raw = name.encode("utf-8", "surrogatepass")
    return domain + len(raw).to_bytes(8, "big") + raw + seq.to_bytes(8, "big")


class Signer:
    """A ledger's key."""

    def __init__(self, seed: int = 0, origin: str = ORIGIN) -> None:
        self.origin = origin
        self.secret = Ed25519PrivateKey.from_private_bytes(bytes(range(seed, seed + 32)))
        self.public = self.secret.public_key().public_bytes_raw()
        self.id = sha(origin.encode(), b"\n\x01", self.public)[:4]

    @property
    def verifier(self) -> str:
        """The key as `opledger audit key` prints it."""
        public = base64.b64encode(b"\x01" + self.public).decode()
        return f"{self.origin}+{self.id.hex()}+{public}"

    def signed(self, text: str, key_id: bytes | None = None) -> str:
        """The text as a signed note."""
        made = base64.b64encode((key_id or self.id) + self.secret.sign(text.encode())).decode()
        return f"{text}\n\u2014 {self.origin} {made}\n"


KEY: Final = Signer()
OTHER: Final = Signer(7)


def event(name: str, seq: int, before: str, **body: Any) -> Line:
    """A row of the journal, by what its body says."""
    said: Line = {
        "actor": {"kind": "worker", "name": "w"}, "at": AT_TEXT, "cause": "c", "format": 1, "from": None,
        "kind": "Noted", "operation_id": name, "reason": None, "remote_job_id": None, "seq": seq, "to": None,
    } | body  # fmt: skip
    raw = json.dumps(said).encode()
    return {
        "type": "event", "operation_id": name, "seq": seq, "at": AT, "actor": "w", "kind": said["kind"],
        "from_state": said["from"], "to_state": said["to"], "cause": said["cause"], "reason": said["reason"],
        "remote_job_id": said["remote_job_id"], "body": base64.b64encode(raw).decode(), "prev_hash": before,
        "hash": sha(named(b"opledger/h1", name, seq), bytes.fromhex(before), sha(raw)).hex(), "format": 1,
    }  # fmt: skip


ASKED: Final = {"method": "POST", "url": "https://x.example", "body_sha256": "b", "headers_sha256": "h"}


def story(name: str, length: int) -> Lines:
    """The events of one operation, and its record."""
    rows: Lines = []
    steps: list[Line] = [
        {"kind": "Submitted", "to": "create_pending", "data": {**ASKED, "more": 1}},
        {"kind": "Accepted", "from": "create_pending", "to": "accepted", "remote_job_id": f"job_{name}"},
        {"kind": "Noted", "remote_job_id": f"job_{name}", "reason": "why"},
    ]
    for seq, step in enumerate(steps[:length], 1):
        rows.append(event(name, seq, rows[-1]["hash"] if rows else "0" * 64, **step))
    return [*rows, record(name, rows)]


def record(name: str, rows: Lines) -> Line:
    """The record that follows from these events."""
    state = [row["to_state"] for row in rows if row["to_state"]][-1]
    last = rows[-1]
    return {
        "type": "record", "operation_id": name, "state": state, "remote_job_id": last["remote_job_id"],
        "version": last["seq"], "head_seq": last["seq"], "head_hash": last["hash"], "request": {**ASKED, "headers": []},
    }  # fmt: skip


def digest_of(one: Line) -> str:
    """The hash of a tombstone or an acknowledgement."""
    told = {key: value for key, value in one.items() if key != "type"}
    text = json.dumps(told, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return sha(f"opledger/{one['type']}1".encode(), text.encode()).hex()


def leaf(number: int, name: str, seq: int, digest: str, kind: int = 1) -> Line:
    """A row of the tree."""
    return {"type": "leaf", "number": number, "operation_id": name, "seq": seq, "hash": digest, "kind": kind}


def nodes(leaves: Lines) -> list[bytes]:
    """The hashes of the leaves themselves."""
    kinds = {1: b"opledger/l1", 2: b"opledger/t1"}
    return [
        sha(b"\0", named(kinds[one["kind"]], one["operation_id"], one["seq"]), bytes.fromhex(one["hash"]))
        for one in leaves
    ]


def root_of(level: list[bytes]) -> bytes:
    """RFC 9162 2.1.1, as it stands there: split at the largest power of two below the number of leaves."""
    if len(level) < 2:
        return level[0] if level else sha()
    half = 1 << (len(level) - 1).bit_length() - 1
    return sha(b"\1", root_of(level[:half]), root_of(level[half:]))


def peaks_of(level: list[bytes]) -> bytes:
    """The roots of the whole subtrees, from the left."""
    found, at = b"", 0
    for bit in range(len(level).bit_length() - 1, -1, -1):
        if len(level) & 1 << bit:
            found += root_of(level[at : at + (1 << bit)])
            at += 1 << bit
    return found


def checkpoint(number: int, leaves: Lines, previous: str, acknowledged: str = "", signer: Signer = KEY) -> Line:
    """A row of the log: a signed note over so many leaves."""
    root = root_of(nodes(leaves))
    text = (
        f"{signer.origin}\n{len(leaves)}\n{base64.b64encode(root).decode()}\nnumber {number}\nat {AT_TEXT}\n"
        f"operations {number + 10}\nevents {number + 20}\nepoch {number + 30}\nprevious {previous}\n"
        + (f"acknowledged {acknowledged}\n" if acknowledged else "")
    )
    note = signer.signed(text)
    return {
        "type": "checkpoint", "number": number, "at": AT, "size": len(leaves), "operations": number + 10,
        "events": number + 20, "epoch": number + 30, "root": root.hex(), "previous": previous, "note": note,
        "hash": sha(note.encode()).hex(), "key_id": signer.id.hex(), "peaks": peaks_of(nodes(leaves)).hex(),
        "mark": "m",
    }  # fmt: skip


def leaves_of(a: Lines, b: Lines, stone: Line) -> Lines:
    """What the checkpoints cover: chains, and one operation that was given to an archive."""
    return [
        leaf(0, A, 2, a[1]["hash"]),
        leaf(1, B, 1, b[0]["hash"]),
        leaf(2, C, 4, "cc" * 32),
        leaf(3, A, 3, a[2]["hash"]),
        leaf(4, C, 4, digest_of(stone), 2),
        leaf(5, B, 2, b[1]["hash"]),
        leaf(6, "op_é\udc80", 1, "dd" * 32),
    ]


STONE: Final[Line] = {"type": "tombstone", "operation_id": C, "seq": 4, "head_hash": "cc" * 32, "at": AT, "why": "é"}
GIVEN_UP: Final[Line] = {
    "type": "acknowledgement",
    "abandoned_from": 4,
    "abandoned_to": 5,
    "by": "ana é",
    "reason": "lost",
}
STRANGE: Final[Line] = {"type": "tombstone", "operation_id": "op_é\udc80", "seq": 1, "head_hash": "dd" * 32}


def export() -> Lines:
    """Four operations, one given away, one in no checkpoint yet; two checkpoints are lost, and accounted for."""
    a, b, d = story(A, 3), story(B, 2), story(D, 1)
    leaves = leaves_of(a, b, STONE)
    first = checkpoint(1, leaves[:1], "0" * 64)
    second = checkpoint(2, leaves[:3], first["hash"])
    third = checkpoint(3, leaves[:3], second["hash"])
    sixth = checkpoint(6, leaves, third["hash"], digest_of(GIVEN_UP))
    head = {"format": "opledger-export/1", "origin": ORIGIN, "verifier_key": KEY.verifier}
    return [head, first, second, third, sixth, dict(GIVEN_UP), *leaves, *a, *b, dict(STONE), dict(STRANGE), *d]


def find(lines: Lines, kind: str, name: str | None = None, number: int | None = None) -> Line:
    """The one line of a kind: of an operation, with a seq or a number."""
    wanted = [
        one
        for one in lines
        if one.get("type", "head") == kind
        and name in (None, one.get("operation_id"))
        and number in (None, one.get("seq") if kind == "event" else one.get("number"))
    ]
    assert len(wanted) == 1, (kind, name, number)
    return wanted[0]


def written(lines: Lines, folder: Path, name: str = "export.jsonl", *, end: int | None = 0) -> Path:
    """The file; `end` is added to the number of lines that it says it has."""
    whole = [*lines, *([] if end is None else [{"type": "end", "lines": len(lines) + 1 + end}])]
    path = folder / name
    path.write_text("".join(json.dumps(one) + "\n" for one in whole), "utf-8")
    return path


def run(*words: str) -> tuple[int, list[str], str]:
    """Run the script as fresh as in a process of its own: its exit code, its lines, and what it says beside them."""
    spec = importlib.util.spec_from_file_location("verifier_on_its_own", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["verifier.py", *words]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        module.main()
    assert isinstance(end.value.code, int)
    return end.value.code, out.getvalue().splitlines(), err.getvalue()


def told(lines: Lines, folder: Path, *more: str, key: str | None = KEY.verifier) -> list[Told]:
    """What is found in an export."""
    words = [str(written(lines, folder)), *([f"--key={key}"] if key else []), *more, "--json"]
    code, out, err = run(*words)
    found = [json.loads(line) for line in out]
    assert all(one.keys() == {"kind", "operation_id", "seq"} for one in found)
    assert code == (4 if found else 0), err
    events = sum(one.get("type") == "event" for one in lines)
    assert err.startswith(f"{events} events, ")
    assert err.endswith(f" checkpoints, {len(found)} findings\n")
    return [(one["kind"], one["operation_id"], one["seq"]) for one in found]


Edit = Callable[[Lines], object]


def forged(lines: Lines, name: str, at_seq: int, /, *, raw: bytes | None = None, **body: Any) -> None:
    """Write another body, and all hashes of the chain anew, as a forger does who has the database and not the key."""
    before = "0" * 64
    for one in [one for one in lines if one.get("type") == "event" and one["operation_id"] == name]:
        if one["seq"] == at_seq:
            was = json.loads(base64.b64decode(one["body"]))
            one["body"] = base64.b64encode(json.dumps(was | body).encode() if raw is None else raw).decode()
        digest = sha(named(b"opledger/h1", name, one["seq"]), bytes.fromhex(before), sha(base64.b64decode(one["body"])))
        one["prev_hash"], one["hash"] = before, digest.hex()
        before = one["hash"]
    find(lines, "record", name)["head_hash"] = before


def put(what: str, name: str | None, at_number: int | None, /, **values: Any) -> Edit:
    """Edit columns of one line."""
    return lambda lines: find(lines, what, name, at_number).update(values)


def without(kind: str, name: str | None = None, number: int | None = None) -> Edit:
    """Remove a line."""
    return lambda lines: lines.remove(find(lines, kind, name, number))


def doubled(kind: str, name: str | None = None, number: int | None = None) -> Edit:
    """Write a line twice."""
    return lambda lines: lines.append(dict(find(lines, kind, name, number)))


def forge(name: str, at_seq: int, /, raw: Any = None, **body: Any) -> Edit:
    """As `forged`."""
    return lambda lines: forged(lines, name, at_seq, raw=raw, **body)


def both(*edits: Edit) -> Edit:
    """One edit after the other."""
    return lambda lines: [edit(lines) for edit in edits]


def noted(
    number: int, old: str, new: str, *, signer: Signer = KEY, key_id: bytes | None = None, row: bool = True
) -> Edit:
    """Say something else in a note, and sign that; `row` keeps the digest of its row right."""

    def edit(lines: Lines) -> None:
        one = find(lines, "checkpoint", None, number)
        text = one["note"].partition("\n\u2014")[0]
        assert old in text
        note = signer.signed(text.replace(old, new), key_id)
        one["note"] = note
        if row:
            one["hash"] = sha(note.encode()).hex()

    return edit


def appended(line: Line) -> Edit:
    """Write a line at the end."""
    return lambda lines: lines.append(dict(line))


H: Final = "ab" * 32
TWICE: Final = b'{"seq": 1, "seq": 1, "operation_id": "op_d"}'
BODY: Final = {
    "actor": {"name": "w"}, "at": AT_TEXT, "cause": "c", "format": 1, "from": None, "kind": "Submitted",
    "operation_id": D, "reason": None, "remote_job_id": None, "seq": 1, "to": "create_pending", "data": {},
}  # fmt: skip


def _with(number: int, leaves: int, acknowledged: str = "") -> Edit:
    """Write one checkpoint anew, over so many leaves, signed by the ledger's key, and the next ones after it."""

    def edit(lines: Lines) -> None:
        every = [one for one in lines if one.get("type") == "leaf"]
        rows = [one for one in lines if one.get("type") == "checkpoint"]
        previous = "0" * 64
        for row in rows:
            if row["number"] == number:
                row.update(checkpoint(number, every[:leaves], previous, acknowledged))
            elif row["number"] > number:
                size, said = row["size"], digest_of(find(lines, "acknowledgement")) if row["number"] == 6 else ""
                row.update(checkpoint(row["number"], every[:size], previous, said))
            previous = row["hash"]

    return edit


shrunk = _with(3, 2)
acknowledging = _with(3, 3, H)
less = both(put("acknowledgement", None, None, abandoned_from=5), _with(3, 3))
more = both(put("acknowledgement", None, None, abandoned_from=2), _with(3, 3))


def _numbered_from_zero(lines: Lines) -> None:
    """The events of the operation that no checkpoint knows begin with 0, and all hashes are right."""
    row = event(D, 0, "0" * 64, kind="Submitted", to="create_pending", data={**ASKED, "more": 1})
    find(lines, "event", D, 1).update(row)
    find(lines, "record", D).update(record(D, [row]))


def _said_at_no_time(lines: Lines) -> None:
    """A note that is signed, and gives a time that there is not; the row has none either."""
    noted(6, AT_TEXT, AT_TEXT.replace("-11-", "-13-"))(lines)
    find(lines, "checkpoint", None, 6)["at"] = None


def _by_digest_alone(lines: Lines) -> None:
    """What a leaf was about is not told, as after it was given away; the tree still holds its digest."""
    one = find(lines, "leaf", None, 0)
    digest = nodes([one])[0].hex()
    one.clear()
    one.update({"type": "leaf", "number": 0, "digest": digest})


CASES: Final[dict[str, tuple[Edit, list[Told]]]] = {
    "a leaf by its digest alone": (_by_digest_alone, []),
    "a note of no time": (  # is none: what it accounts for and covers is not accounted for and not covered
        _said_at_no_time,
        [
            ("CHECKPOINT_SIG", None, 6),
            ("CHECKPOINT_GAP", None, 4),
            ("CHECKPOINT_CHAIN", None, 6),
            ("CHECKPOINT_SIG", None, 5),
        ],
    ),
    "nothing": (both(), []),
    "event body": (
        put("event", A, 2, body=base64.b64encode(b"{}").decode()),
        [("FORMAT_DOWNGRADE", "op_a", 2), ("HASH", "op_a", 2), ("COLUMN", "op_a", 2)],
    ),
    "event prev_hash": (put("event", A, 2, prev_hash=H), [("LINK", "op_a", 2)]),
    "event hash": (put("event", A, 2, hash=H), [("HASH", "op_a", 2), ("LINK", "op_a", 3)]),
    "event hash, of the last": (put("event", D, 1, hash=H), [("HASH", "op_d", 1), ("PROJECTION", "op_d", 1)]),
    "event format": (put("event", A, 2, format=2), [("FORMAT_DOWNGRADE", "op_a", 2)]),
    "event at": (put("event", A, 2, at=AT + 1), [("COLUMN", "op_a", 2)]),
    "event actor": (put("event", A, 2, actor="x"), [("COLUMN", "op_a", 2)]),
    "event kind": (put("event", A, 2, kind="Noted"), [("COLUMN", "op_a", 2)]),
    "event from_state": (put("event", A, 2, from_state="accepted"), [("COLUMN", "op_a", 2)]),
    "event to_state": (put("event", A, 2, to_state="failed"), [("COLUMN", "op_a", 2)]),
    "event cause": (put("event", A, 2, cause="x"), [("COLUMN", "op_a", 2)]),
    "event reason": (put("event", A, 3, reason="x"), [("COLUMN", "op_a", 3)]),
    "event remote_job_id": (put("event", A, 3, remote_job_id="x"), [("COLUMN", "op_a", 3)]),
    "event seq": (put("event", A, 3, seq=9), [("SEQ", "op_a", 9), ("COLUMN", "op_a", 9), ("PROJECTION", "op_a", 9)]),
    "event seq, of the first": (
        put("event", A, 1, seq=2),
        [("SEQ", "op_a", 2), ("COLUMN", "op_a", 2), ("SEQ", "op_a", 2), ("LINK", "op_a", 3)],
    ),
    "event seq, no number": (put("event", A, 2, seq="2"), [("COLUMN", "op_a", None)]),
    "event seq, a flag": (put("event", D, 1, seq=True), [("COLUMN", "op_d", None)]),
    "event seq, below zero": (
        put("event", D, 1, seq=-1),
        [("SEQ", "op_d", -1), ("COLUMN", "op_d", -1), ("BEHIND_CHECKPOINT", "op_d", 0), ("PROJECTION", "op_d", -1)],
    ),
    "event of another operation": (
        put("event", A, 3, operation_id=B),
        [
            ("BEHIND_CHECKPOINT", "op_a", 3),
            ("PROJECTION", "op_a", 2),
            ("SEQ", "op_b", 3),
            ("MOVED", "op_b", 3),
            ("SEQ", "op_b", 1),
            ("SEQ", "op_b", 2),
        ],
    ),
    "event of an unknown operation": (
        put("event", D, 1, operation_id="op_x"),
        [("MISSING_OP", "op_x", None), ("MOVED", "op_x", 1), ("MISSING_OP", "op_d", None)],
    ),
    "event in no operation": (
        put("event", D, 1, operation_id=7),
        [("MISSING_OP", None, None), ("COLUMN", None, None), ("MISSING_OP", "op_d", None)],
    ),
    "event with a value that is no text": (
        put("event", A, 2, reason={"x": 1}),
        [("COLUMN", "op_a", 2), ("SEQ", "op_a", 3)],
    ),
    "event with a value that is no text, the last": (put("event", A, 3, cause={"x": 1}), [("COLUMN", "op_a", 3)]),
    "no first event": (without("event", A, 1), [("SEQ", "op_a", 2)]),
    "no second event": (without("event", A, 2), [("SEQ", "op_a", 3)]),
    "no last event": (without("event", A, 3), [("BEHIND_CHECKPOINT", "op_a", 3), ("PROJECTION", "op_a", 2)]),
    "no event": (both(without("event", D, 1)), [("MISSING_OP", "op_d", None)]),
    "event body names a seq that no event has": (forge(A, 2, seq=-1), [("COLUMN", "op_a", 2)]),
    "event body names a seq beyond all": (forge(A, 2, seq=2**64), [("COLUMN", "op_a", 2)]),
    "event body names another operation, and its hash is of none": (
        put("event", A, 2, body=story(B, 2)[1]["body"]),
        [("HASH", "op_a", 2), ("COLUMN", "op_a", 2)],
    ),
    "event that is honest and has no place": (_numbered_from_zero, [("SEQ", "op_d", 0)]),
    "an event twice": (
        doubled("event", A, 2),
        [("SEQ", "op_a", 2), ("BEHIND_CHECKPOINT", "op_a", 3), ("PROJECTION", "op_a", 2)],
    ),
    "the last event twice": (doubled("event", A, 3), [("SEQ", "op_a", 3)]),
    "the last event cut, and the record with it": (
        both(
            without("event", A, 3),
            put("record", A, None, state="accepted", version=2, head_seq=2, head_hash=story(A, 2)[1]["hash"]),
        ),
        [("BEHIND_CHECKPOINT", "op_a", 3)],
    ),
    "forged": (forge(A, 2, reason="x"), [("COLUMN", "op_a", 2)]),
    "forged, and its column": (
        both(forge(A, 2, reason="x"), put("event", A, 2, reason="x")),
        [("REWRITTEN", "op_a", 2)],
    ),
    "forged after all checkpoints": (both(forge(D, 1, reason="x"), put("event", D, 1, reason="x")), []),
    "forged: format": (forge(D, 1, format=2), [("FORMAT_DOWNGRADE", "op_d", 1)]),
    "forged: no format": (
        forge(D, 1, raw=json.dumps({k: v for k, v in BODY.items() if k != "format"}).encode()),
        [("FORMAT_DOWNGRADE", "op_d", 1)],
    ),
    "forged: another operation": (forge(D, 1, operation_id=A), [("MOVED", "op_d", 1)]),
    "forged: another seq": (forge(D, 1, seq=2), [("COLUMN", "op_d", 1)]),
    "forged: operation no text": (forge(D, 1, operation_id=7), []),
    "forged: seq a flag": (forge(D, 1, seq=True), []),
    "forged: actor no object": (forge(D, 1, actor="w"), [("COLUMN", "op_d", 1)]),
    "forged: actor without a name": (forge(D, 1, actor={}), [("COLUMN", "op_d", 1)]),
    "forged: at no time": (forge(D, 1, at="never"), [("COLUMN", "op_d", 1)]),
    "forged: at no text": (forge(D, 1, at=7), [("COLUMN", "op_d", 1)]),
    "forged: at without a zone": (forge(D, 1, at="2026-11-30T16:50:34.000001"), [("COLUMN", "op_d", 1)]),
    "forged: from": (forge(D, 1, **{"from": "x"}), [("COLUMN", "op_d", 1)]),
    "forged: not JSON": (forge(D, 1, raw=b"{"), [("COLUMN", "op_d", 1)]),
    "forged: not UTF-8": (forge(D, 1, raw=b"\xff"), [("COLUMN", "op_d", 1)]),
    "forged: a list": (forge(D, 1, raw=b"[1]"), [("COLUMN", "op_d", 1)]),
    "forged: a key twice": (forge(D, 1, raw=TWICE), [("COLUMN", "op_d", 1)]),
    "forged: a key twice, else right": (
        forge(D, 1, raw=json.dumps(BODY).encode()[:-1] + b', "seq": 1}'),
        [("COLUMN", "op_d", 1)],
    ),
    "forged: NaN": (forge(D, 1, raw=json.dumps(BODY | {"x": float("nan")}).encode()), [("COLUMN", "op_d", 1)]),
    "forged: half a pair": (forge(D, 1, raw=json.dumps(BODY | {"x": "\ud800"}).encode()), [("COLUMN", "op_d", 1)]),
    "forged: deep": (forge(D, 1, raw=b"[" * 100_000), [("COLUMN", "op_d", 1)]),
    "forged: with a mark at its start": (forge(D, 1, raw=b"\xef\xbb\xbf" + json.dumps(BODY).encode()), []),
    "forged: data no object": (forge(D, 1, data=[]), [("PROJECTION", "op_d", 1)]),
    "forged: no data": (forge(D, 1, data=None), [("PROJECTION", "op_d", 1)]),
    "forged: an address that the record has not": (forge(D, 1, data={"url": "y"}), [("PROJECTION", "op_d", 1)]),
    "forged: asks for nothing": (forge(D, 1, data={"more": 1}), []),
    "no record": (without("record", A), [("MISSING_OP", "op_a", None)]),
    "record state": (put("record", A, None, state="failed"), [("PROJECTION", "op_a", 3)]),
    "record remote_job_id": (put("record", A, None, remote_job_id="x"), [("PROJECTION", "op_a", 3)]),
    "record version": (put("record", A, None, version=4), [("PROJECTION", "op_a", 3)]),
    "record head_seq": (put("record", A, None, head_seq=2), [("PROJECTION", "op_a", 3)]),
    "record head_hash": (put("record", A, None, head_hash=H), [("PROJECTION", "op_a", 3)]),
    "record no request": (put("record", A, None, request=None), [("PROJECTION", "op_a", 1)]),
    "record request method": (put("record", A, None, request=ASKED | {"method": "PUT"}), [("PROJECTION", "op_a", 1)]),
    "record request url": (put("record", A, None, request=ASKED | {"url": "y"}), [("PROJECTION", "op_a", 1)]),
    "record request body": (put("record", A, None, request=ASKED | {"body_sha256": "y"}), [("PROJECTION", "op_a", 1)]),
    "record request headers": (
        put("record", A, None, request=ASKED | {"headers_sha256": "y"}),
        [("PROJECTION", "op_a", 1)],
    ),
    "record only": (
        both(without("event", D, 1), put("record", D, None, operation_id="op_y")),
        [("MISSING_OP", "op_y", None)],
    ),
    "record of a broken chain": (
        both(put("event", A, 2, cause="x"), put("record", A, None, state="failed")),
        [("COLUMN", "op_a", 2)],
    ),
    "tombstone of what is there": (
        put("tombstone", C, None, operation_id=D),
        [("MISSING_OP", "op_c", None), ("MOVED", "op_d", None)],
    ),
    "tombstone and a record": (
        both(without("event", D, 1), put("tombstone", C, None, operation_id=D)),
        [("MISSING_OP", "op_c", None), ("MOVED", "op_d", None)],
    ),
    "tombstone and events": (
        both(without("record", D), put("tombstone", C, None, operation_id=D)),
        [("MISSING_OP", "op_c", None), ("MOVED", "op_d", None), ("MISSING_OP", "op_d", None)],
    ),
    "tombstone gone": (without("tombstone", C), [("MISSING_OP", "op_c", None)]),
    "tombstone head": (put("tombstone", C, None, head_hash=H), [("REWRITTEN", "op_c", 4), ("REWRITTEN", "op_c", 4)]),
    "tombstone seq lower": (
        put("tombstone", C, None, seq=3),
        [("BEHIND_CHECKPOINT", "op_c", 4), ("REWRITTEN", "op_c", 4)],
    ),
    "tombstone seq higher": (put("tombstone", C, None, seq=5), [("REWRITTEN", "op_c", 4), ("REWRITTEN", "op_c", 4)]),
    "tombstone seq no number": (
        put("tombstone", C, None, seq="4"),
        [("REWRITTEN", "op_c", 4), ("REWRITTEN", "op_c", 4)],
    ),
    "tombstone reason": (put("tombstone", C, None, why="x"), [("REWRITTEN", "op_c", 4)]),
    "tombstone of nothing": (appended({"type": "tombstone", "operation_id": "op_z", "seq": 1, "head_hash": H}), []),
    "leaf number": (put("leaf", None, 3, number=9), [("CHECKPOINT_CHAIN", None, 6)]),
    "leaf seq": (put("leaf", None, 3, seq=2), [("CHECKPOINT_CHAIN", None, 6), ("REWRITTEN", "op_a", 2)]),
    "leaf seq below zero": (put("leaf", None, 3, seq=-1), [("CHECKPOINT_CHAIN", None, 6)]),
    "leaf seq no number": (put("leaf", None, 3, seq="3"), [("CHECKPOINT_CHAIN", None, 6)]),
    "leaf hash": (put("leaf", None, 3, hash=H), [("CHECKPOINT_CHAIN", None, 6), ("REWRITTEN", "op_a", 3)]),
    "leaf kind": (put("leaf", None, 3, kind=2), [("CHECKPOINT_CHAIN", None, 6)]),
    "leaf kind unknown": (put("leaf", None, 3, kind=3), [("CHECKPOINT_CHAIN", None, 6)]),
    "leaf no text": (put("leaf", None, 3, mark={"x": 1}), [("CHECKPOINT_CHAIN", None, 6)]),
    "leaf of another": (
        put("leaf", None, 3, operation_id=B),
        [("CHECKPOINT_CHAIN", None, 6), ("BEHIND_CHECKPOINT", "op_b", 3)],
    ),
    "leaf as a digest": (
        put("leaf", None, 6, digest=nodes([leaf(6, STRANGE["operation_id"], 1, "dd" * 32)])[0].hex()),
        [],
    ),
    "leaf as a wrong digest": (put("leaf", None, 6, digest=H), [("CHECKPOINT_CHAIN", None, 6)]),
    "leaf gone": (without("leaf", None, 6), [("CHECKPOINT_CHAIN", None, 6)]),
    "leaf gone in the middle": (without("leaf", None, 1), [("CHECKPOINT_CHAIN", None, 2)]),
    "leaf too many": (appended(leaf(7, D, 1, story(D, 1)[0]["hash"])), [("CHECKPOINT_CHAIN", None, 6)]),
    "leaf beyond the chain": (
        appended(leaf(7, D, 2, H)),
        [("CHECKPOINT_CHAIN", None, 6), ("BEHIND_CHECKPOINT", "op_d", 2)],
    ),
    "leaf of zero": (both(put("leaf", None, 1, seq=0)), [("CHECKPOINT_CHAIN", None, 2)]),
    "checkpoint at": (put("checkpoint", None, 2, at=AT + 1), [("CHECKPOINT_SIG", None, 2)]),
    "checkpoint size": (put("checkpoint", None, 2, size=4), [("CHECKPOINT_SIG", None, 2)]),
    "checkpoint operations": (put("checkpoint", None, 2, operations=4), [("CHECKPOINT_SIG", None, 2)]),
    "checkpoint events": (put("checkpoint", None, 2, events=4), [("CHECKPOINT_SIG", None, 2)]),
    "checkpoint epoch": (put("checkpoint", None, 2, epoch=4), [("CHECKPOINT_SIG", None, 2)]),
    "checkpoint root": (put("checkpoint", None, 2, root=H), [("CHECKPOINT_SIG", None, 2)]),
    "checkpoint previous": (put("checkpoint", None, 2, previous=H), [("CHECKPOINT_SIG", None, 2)]),
    "checkpoint hash": (put("checkpoint", None, 2, hash=H), [("CHECKPOINT_SIG", None, 2)]),
    "checkpoint key_id": (put("checkpoint", None, 2, key_id="00000000"), [("CHECKPOINT_SIG", None, 2)]),
    "checkpoint peaks": (put("checkpoint", None, 2, peaks=H), [("CHECKPOINT_CHAIN", None, 2)]),
    "checkpoint number": (
        put("checkpoint", None, 2, number=4),
        [
            ("CHECKPOINT_SIG", None, 4),
            ("CHECKPOINT_GAP", None, 2),
            ("CHECKPOINT_GAP", None, None),
            ("CHECKPOINT_CHAIN", None, 6),
        ],
    ),
    "checkpoint number no number": (
        put("checkpoint", None, 2, number="2"),
        [("CHECKPOINT_SIG", None, None), ("CHECKPOINT_GAP", None, None), ("CHECKPOINT_GAP", None, 2)],
    ),
    "checkpoint number zero": (
        put("checkpoint", None, 1, number=0),
        [("CHECKPOINT_SIG", None, 0), ("CHECKPOINT_GAP", None, None), ("CHECKPOINT_GAP", None, 1)],
    ),
    "checkpoint note no text": (
        put("checkpoint", None, 2, note=7),
        [("CHECKPOINT_SIG", None, 2), ("CHECKPOINT_CHAIN", None, 3)],
    ),
    "checkpoint note": (
        put("checkpoint", None, 2, note="x"),
        [("CHECKPOINT_SIG", None, 2), ("CHECKPOINT_CHAIN", None, 3)],
    ),
    "checkpoint note half a pair": (
        put("checkpoint", None, 2, note="\ud800"),
        [("CHECKPOINT_SIG", None, 2), ("CHECKPOINT_CHAIN", None, 3)],
    ),
    "checkpoint gone": (without("checkpoint", None, 2), [("CHECKPOINT_GAP", None, 2)]),
    "first checkpoint gone": (without("checkpoint", None, 1), [("CHECKPOINT_GAP", None, 1)]),
    "last checkpoint gone": (
        without("checkpoint", None, 6),
        [("CHECKPOINT_CHAIN", None, 3), ("CHECKPOINT_SIG", None, 5)],
    ),
    "checkpoint twice": (doubled("checkpoint", None, 2), [("CHECKPOINT_GAP", None, None)]),
    "signed by another": (
        noted(2, "epoch", "epoch", signer=OTHER),
        [("CHECKPOINT_SIG", None, 2), ("CHECKPOINT_CHAIN", None, 3)],
    ),
    "signed by another, in our name": (
        noted(2, "epoch", "epoch", signer=OTHER, key_id=KEY.id),
        [("CHECKPOINT_SIG", None, 2), ("CHECKPOINT_CHAIN", None, 3)],
    ),
    "signed with another id": (
        noted(2, "epoch", "epoch", key_id=b"1234"),
        [("CHECKPOINT_SIG", None, 2), ("CHECKPOINT_CHAIN", None, 3)],
    ),
    "signed under another name": (
        noted(2, ORIGIN, ORIGIN[:-1] + "W", signer=Signer(0, ORIGIN[:-1] + "W")),
        [("CHECKPOINT_SIG", None, 2), ("CHECKPOINT_CHAIN", None, 3)],
    ),
    "says another number": (
        noted(3, "number 3", "number 4"),
        [("CHECKPOINT_SIG", None, 3), ("CHECKPOINT_CHAIN", None, 6)],
    ),
    "says another time": (
        noted(3, "34.000001Z", "34.000002Z"),
        [("CHECKPOINT_SIG", None, 3), ("CHECKPOINT_CHAIN", None, 6)],
    ),
    "says no time": (noted(3, "11-30T", "13-30T"), [("CHECKPOINT_SIG", None, 3), ("CHECKPOINT_CHAIN", None, 6)]),
    "says fewer operations": (
        noted(3, "operations 13", "operations 12"),
        [("CHECKPOINT_SIG", None, 3), ("CHECKPOINT_CHAIN", None, 6)],
    ),
    "says fewer events": (
        noted(3, "events 23", "events 22"),
        [("CHECKPOINT_SIG", None, 3), ("CHECKPOINT_CHAIN", None, 6)],
    ),
    "says another epoch": (
        noted(3, "epoch 33", "epoch 32"),
        [("CHECKPOINT_SIG", None, 3), ("CHECKPOINT_CHAIN", None, 6)],
    ),
    "says another size": (
        both(noted(3, "\n3\n", "\n2\n"), put("checkpoint", None, 3, size=2)),
        [("CHECKPOINT_CHAIN", None, 3), ("CHECKPOINT_CHAIN", None, 6)],
    ),
    "says a smaller size, and its root": (shrunk, [("CHECKPOINT_CHAIN", None, 3)]),
    "says another root": (
        both(
            noted(
                3, find(export(), "checkpoint", None, 3)["note"].split("\n")[2], base64.b64encode(bytes(32)).decode()
            ),
            put("checkpoint", None, 3, root="00" * 32),
        ),
        [("CHECKPOINT_CHAIN", None, 3), ("CHECKPOINT_CHAIN", None, 6)],
    ),
    "says another previous": (
        both(
            noted(3, "previous " + find(export(), "checkpoint", None, 3)["previous"], "previous " + H),
            put("checkpoint", None, 3, previous=H),
        ),
        [("CHECKPOINT_CHAIN", None, 3), ("CHECKPOINT_CHAIN", None, 6)],
    ),
    "acknowledges nothing": (
        noted(6, "acknowledged " + digest_of(GIVEN_UP) + "\n", ""),
        [("CHECKPOINT_GAP", None, 4), ("CHECKPOINT_SIG", None, 5)],
    ),
    "acknowledges something else": (
        noted(6, digest_of(GIVEN_UP), H),
        [("CHECKPOINT_GAP", None, 4), ("CHECKPOINT_SIG", None, 5)],
    ),
    "acknowledges where nothing is lost": (acknowledging, [("CHECKPOINT_GAP", None, 3)]),
    "acknowledgement gone": (without("acknowledgement"), [("CHECKPOINT_GAP", None, 4)]),
    "acknowledgement reason": (
        put("acknowledgement", None, None, reason="x"),
        [("CHECKPOINT_GAP", None, 4), ("CHECKPOINT_SIG", None, 5)],
    ),
    "acknowledgement to": (
        put("acknowledgement", None, None, abandoned_to=4),
        [("CHECKPOINT_GAP", None, 4), ("CHECKPOINT_SIG", None, 4)],
    ),
    "acknowledgement to no number": (
        put("acknowledgement", None, None, abandoned_to="5"),
        [("CHECKPOINT_GAP", None, 4)],
    ),
    "acknowledgement from": (
        put("acknowledgement", None, None, abandoned_from=5),
        [("CHECKPOINT_GAP", None, 4), ("CHECKPOINT_SIG", None, 5)],
    ),
    "acknowledgement of less": (less, [("CHECKPOINT_GAP", None, 4)]),
    "acknowledgement of more": (more, []),
    "acknowledgement of nothing": (
        appended({"type": "acknowledgement", "abandoned_from": 9, "abandoned_to": 9}),
        [("CHECKPOINT_SIG", None, 9)],
    ),
    "another key in the head": (put("head", None, None, verifier_key=OTHER.verifier), [("CHECKPOINT_SIG", None, None)]),
    "no key in the head": (put("head", None, None, verifier_key=None), []),
}


@pytest.mark.parametrize("name", CASES)
def test_a_lie_is_told_by_its_kind_and_place(name: str, tmp_path: Path) -> None:
    """In this order, and nothing beside it."""
    edit, expected = CASES[name]
    lines = export()
    edit(lines)
    assert told(lines, tmp_path) == expected


def test_what_people_read(tmp_path: Path) -> None:
    """Without --json: a line each, with names made inert; how much was looked at stands beside."""
    lines = export()
    find(lines, "event", D, 1)["operation_id"] = "op_\u202eé"
    code, out, err = run(str(written(lines, tmp_path)))
    assert code == 4
    assert out == ["MISSING_OP 'op_\\u202e\\xe9' None", "MOVED 'op_\\u202e\\xe9' 1", "MISSING_OP 'op_d' None"]
    assert err == "6 events, 4 checkpoints, 3 findings\n"


def test_the_key_is_that_of_the_export_where_none_is_given(tmp_path: Path) -> None:
    """A forger who signs anew with a key of his own is found by whoever knows the right one."""
    assert told(export(), tmp_path, key=None) == []
    assert told(export(), tmp_path, key=OTHER.verifier)[:2] == [
        ("CHECKPOINT_SIG", None, None),
        ("CHECKPOINT_SIG", None, 1),
    ]
    for key in ("x", f"{ORIGIN}+00000000", KEY.verifier[:-8]):
        assert ("CHECKPOINT_SIG", None, 1) in told(export(), tmp_path, key=key)
    lines = export()
    find(lines, "head")["verifier_key"] = None
    assert ("CHECKPOINT_SIG", None, 1) in told(lines, tmp_path, key=None)


def test_nothing_is_not_all_right(tmp_path: Path) -> None:
    """An export in which nothing could be checked is a finding."""
    assert told(export()[:1], tmp_path) == [("NOTHING_CHECKED", None, None)]
    empty = checkpoint(1, [], "0" * 64)
    assert told([export()[0], empty], tmp_path) == [("NOTHING_CHECKED", None, None)]
    broken = empty | {"peaks": "00"}
    assert told([export()[0], broken], tmp_path) == [("CHECKPOINT_CHAIN", None, 1)]
    assert told([export()[0], *story(A, 2)], tmp_path) == []
    unsigned = [export()[0], *story(A, 2), leaf(0, A, 2, story(A, 2)[1]["hash"])]
    assert told(unsigned, tmp_path) == [("CHECKPOINT_CHAIN", None, None)]


@pytest.mark.parametrize(
    ("edit", "end"),
    [
        (both(), 1),
        (both(), -1),
        (both(), None),
        (put("head", None, None, format="opledger-export/2"), 0),
        (without("head"), 0),
        (put("leaf", None, 3, hash="x"), 0),
        (put("event", A, 2, body="x"), 0),
        (put("event", A, 2, body=None), 0),
        (lambda lines: find(lines, "event", A, 2).pop("cause"), 0),
        (put("checkpoint", None, 2, number=None), None),
        (lambda lines: lines.append([1]), 0),
        (put("leaf", None, 0, seq=2**70), 0),
        (put("head", None, None, verifier_key=7), 0),
    ],
)
def test_what_is_no_whole_export_is_refused(edit: Edit, end: int | None, tmp_path: Path) -> None:
    """Cut, of another format, or with lines that no ledger writes: exit code 2, and nothing is said to be found."""
    lines = export()
    edit(lines)
    code, out, err = run(str(written(lines, tmp_path, end=end)), "--json")
    assert (code, out) == (2, [])
    assert re.search(r"cannot be read as an export of opledger: \w*Error \S", err)


def test_files_that_are_not_there_and_words_that_are_wrong(tmp_path: Path) -> None:
    """Exit code 2; and the help is what stands at the head of the script."""
    assert run(str(tmp_path / "none"))[0] == 2
    assert run(str(written(export(), tmp_path)), "--anchor", str(tmp_path / "none"))[0] == 2
    (tmp_path / "text").write_text("no JSON\n")
    assert run(str(tmp_path / "text"))[0] == 2
    (tmp_path / "deep").write_text("[" * 100_000 + "\n")
    assert run(str(tmp_path / "deep"))[0] == 2
    assert run()[0] == 2
    code, out, _ = run("--help")
    assert code == 0
    assert "Verify an export of an opledger ledger on its own: python verifier.py FILE" in "\n".join(out)
    assert "looked\nat. KEY:" in "\n".join(out)


def anchored(folder: Path, *notes: Any, torn: str = "") -> str:
    """The word that names a new anchor file with these lines."""
    path = folder / f"anchor-{len(list(folder.iterdir()))}"
    path.write_text("".join(json.dumps(one) + "\n" for one in notes) + torn, "utf-8")
    return f"--anchor={path}"


def test_anchors(tmp_path: Path) -> None:
    """What stands outside must stand inside, unless somebody accounted for its loss."""
    lines = export()
    rows = {one["number"]: one for one in lines if one.get("type") == "checkpoint"}
    leaves = [one for one in lines if one.get("type") == "leaf"]
    kept = [{"note": rows[number]["note"]} for number in (1, 2, 3, 6)]
    assert told(export(), tmp_path, anchored(tmp_path, *kept), anchored(tmp_path)) == []
    assert told(export(), tmp_path, anchored(tmp_path, *kept, {"x": 1}, 7, [], torn='{"note": "')) == []

    ahead = [{"note": checkpoint(number, leaves, H)["note"]} for number in (8, 9, 7)]
    assert told(export(), tmp_path, anchored(tmp_path, *ahead)) == [("ANCHOR_AHEAD", None, 9)]
    assert told(export(), tmp_path, anchored(tmp_path, {"x": 1}, *ahead)) == [("ANCHOR_AHEAD", None, 9)]  # torn before
    two = anchored(tmp_path, ahead[0]), anchored(tmp_path, ahead[2])
    assert told(export(), tmp_path, *two) == [("ANCHOR_AHEAD", None, 8), ("ANCHOR_AHEAD", None, 7)]

    other = {"note": checkpoint(2, leaves[:3], H)["note"]}
    assert told(export(), tmp_path, anchored(tmp_path, other)) == [("FORK", None, 2)]
    same_size = {"note": checkpoint(6, leaves[:2] + leaves[:1], H)["note"]}
    lost = export()
    lost.remove(find(lost, "checkpoint", None, 2))
    found = told(lost, tmp_path, anchored(tmp_path, {"note": rows[2]["note"]}))
    assert found == [("CHECKPOINT_GAP", None, 2)]
    unknown = {"note": checkpoint(2, leaves[:2], H)["note"]}  # nobody knows the root of that size any more
    assert told(lost, tmp_path, anchored(tmp_path, unknown)) == [("CHECKPOINT_GAP", None, 2)]
    forked = {"note": checkpoint(2, [leaf(0, D, 1, H), *leaves[:2]], H)["note"]}
    found = told(lost, tmp_path, anchored(tmp_path, forked))
    assert found == [("CHECKPOINT_GAP", None, 2), ("FORK", None, 2)]
    assert told(export(), tmp_path, anchored(tmp_path, same_size)) == [("FORK", None, 6)]

    for number in (4, 5):
        given_up = {"note": checkpoint(number, leaves[:4], H)["note"]}
        assert told(export(), tmp_path, anchored(tmp_path, given_up)) == []
        other = {"note": checkpoint(number, leaves[:2] + leaves[:1], H)["note"]}  # of a size that others have
        assert told(export(), tmp_path, anchored(tmp_path, other)) == []
    stranger = {"note": checkpoint(4, leaves[:4], H, signer=OTHER)["note"]}
    assert told(export(), tmp_path, anchored(tmp_path, stranger)) == [("CHECKPOINT_SIG", None, 4)]
    stranger = {"note": checkpoint(9, leaves[:4], H, signer=OTHER)["note"]}
    assert told(export(), tmp_path, anchored(tmp_path, stranger)) == [("CHECKPOINT_SIG", None, 9)]
    assert told(export(), tmp_path, anchored(tmp_path, {"note": "x"})) == [("CHECKPOINT_SIG", None, None)]
    assert told(export(), tmp_path, anchored(tmp_path, {"note": 7})) == [("CHECKPOINT_SIG", None, None)]


@pytest.mark.parametrize("size", range(18))
def test_trees_of_every_size(size: int, tmp_path: Path) -> None:
    """Peaks and roots, grown by steps of every length; the last leaf missing."""
    story_of = {f"op_{number:02}": story(f"op_{number:02}", 2) for number in range(size)}
    leaves = [leaf(at, name, 2, rows[1]["hash"]) for at, (name, rows) in enumerate(story_of.items())]
    rows: Lines = []
    for number, upto in enumerate(sorted({0, size // 3, size // 2, size}), 1):
        rows.append(checkpoint(number, leaves[:upto], rows[-1]["hash"] if rows else "0" * 64))
    whole = [export()[0], *rows, *leaves, *(one for rows in story_of.values() for one in rows)]
    assert told(whole, tmp_path) == ([] if size else [("NOTHING_CHECKED", None, None)])
    if size:
        whole.remove(leaves[-1])
        assert told(whole, tmp_path) == [("CHECKPOINT_CHAIN", None, len(rows))]
