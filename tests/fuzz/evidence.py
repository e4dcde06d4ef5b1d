"""Targets that read what an auditor is given: notes, exports, archives, signatures, bodies of events."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import io
import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final, cast
from unittest import mock

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import opledger
from opledger.errors import IntegrityBroken
from opledger.ledger import archive, auditing
from opledger.rules import auditlog, journal, notes, signers, sshsig, tree
from opledger.rules import evidence as evidences
from tests.core.rules.ssh_vectors import MESSAGE, VECTORS
from tests.fuzz.ground import CORPUS, Target, law, text_of

NOW: Final = datetime(2026, 11, 29, 12, tzinfo=UTC)


def _verifier() -> ModuleType:
    path = Path(opledger.__file__).parent / "verifier.py"
    spec = importlib.util.spec_from_file_location("fuzzed_verifier", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VERIFIER: Final = _verifier()

# --- notes -----------------------------------------------------------------------------------------------------------

ORIGIN: Final = "opledger/ldg_01ARZ3NDEKTSV4RRFFQ69G5FAV"
_PRIVATE: Final = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
_PUBLIC: Final = _PRIVATE.public_key().public_bytes_raw()
_KEY: Final = notes.verifier_key(ORIGIN, _PUBLIC)


def _note(**changes: Any) -> str:
    said: dict[str, Any] = {
        "origin": ORIGIN, "size": 1042, "root": bytes(32), "number": 17, "at": NOW, "operations": 1000, "events": 20180,
        "epoch": 12, "previous": bytes(32),
    }  # fmt: skip
    return notes.Note(**{**said, **changes}).text()


def checkpoint_note(data: bytes) -> bool:
    """A note, in which ``{sign}`` becomes the right signature: read by both verifiers, or by none."""
    whole = text_of(data)
    text = whole.partition("\n\n")[0] + "\n"
    signed = "{sign}" in whole
    if signed:
        made = _PRIVATE.sign(text.encode("utf-8", "surrogatepass"))
        whole = whole.replace("{sign}", base64.b64encode(notes.key_id(ORIGIN, _PUBLIC) + made).decode())
    theirs, valid = VERIFIER.read_note(whole, _KEY)
    _key(text)
    try:
        read = notes.read(whole)
        whole.encode()
    except (notes.NoteInvalid, UnicodeEncodeError):
        law(not valid, "the other verifier takes a note that we do not read")
        return False
    law(read.note.text() == read.text, "written again it says something else")
    law(
        notes.sign_off(read.text, read.note.origin, read.key_id, read.signature) == whole, "written again it is another"
    )
    right = auditlog.signed_by(ORIGIN, _PUBLIC)(read) is None
    law(right == valid, "one verifier takes the signature of a note, the other does not")
    law(not right or signed, "a signature is taken that the key did not make")
    law(theirs is None or int(theirs["number"]) == read.note.number, "the verifiers read two numbers")
    return True


def _key(text: str) -> None:
    line = text.partition("\n")[0]
    try:
        name, public = notes.read_verifier_key(line)
    except notes.NoteInvalid:
        return
    law(notes.verifier_key(name, public) == line, "written again it is another key")


# --- exports ---------------------------------------------------------------------------------------------------------

EXPORT: Final = (CORPUS / "export.jsonl").read_bytes() if (CORPUS / "export.jsonl").exists() else b""
_REHASH: Final = b"#rehash\n"
_BODY: Final = b"#body"
_CHAIN: Final = frozenset({"HASH", "LINK", "SEQ", "MOVED", "FORMAT_DOWNGRADE", "COLUMN"})


class _File:
    """Bytes that pass for a path."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_bytes(self) -> bytes:
        """Return them."""
        return self._data

    def __str__(self) -> str:
        return "export.jsonl"


Found = set[tuple[str, Any, Any]]


def script(data: bytes) -> tuple[int, Found]:
    """Run the stand-alone verifier on an export; return what it exits with and what it found."""
    out, code = io.StringIO(), 1
    VERIFIER.found.clear()
    key = json.loads(EXPORT.split(b"\n", 1)[0])["verifier_key"]
    with (
        mock.patch.object(VERIFIER, "pathlib", SimpleNamespace(Path=lambda _: _File(data))),
        mock.patch.object(sys, "argv", ["verifier.py", "export.jsonl", f"--key={key}", "--json"]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        try:
            VERIFIER.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    return code, {(one["kind"], one["operation_id"], one["seq"]) for one in found}


def product(data: bytes) -> Found:
    """What the product finds in the chains of the same file, read as an archive. Raises IntegrityBroken."""
    file = archive.File(cast("Path", _File(data)))
    return {(one.kind, one.operation_id, one.seq) for one in file.look().findings}


def _events(data: bytes) -> list[tuple[Any, ...]]:
    found = []
    for line in data.splitlines():
        one = json.loads(line)
        if one.get("type") == "event":
            found.append(tuple(json.dumps(one.get(key)) for key in ("operation_id", "seq", "body", "hash")))
    return found


def _rehashed(data: bytes) -> bytes:
    """Compute all hashes anew, as a forger would who has the database and not the key."""
    lines: list[bytes] = []
    last: dict[str, tuple[str, int]] = {}
    for raw in data.splitlines():
        try:
            one = json.loads(raw)
            if one.get("type") == "event":
                name, seq, before = one["operation_id"], one["seq"], last.get(one["operation_id"], (journal.GENESIS, 0))
                digest = journal.link(before[0], name, seq, base64.b64decode(one["body"]))
                one |= {"prev_hash": before[0], "hash": digest}
                last[name] = digest, seq
            if one.get("operation_id") in last and (one.get("type") == "record" or one.get("table") == "operation"):
                one["head_hash"], one["head_seq"] = last[one["operation_id"]]
            lines.append(json.dumps(one, separators=(",", ":")).encode())
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError):
            lines.append(raw)
    return b"\n".join(lines) + b"\n"


def _with_body(data: bytes) -> bytes:
    """Put what follows ``#body N`` into the place of the body of the n-th event of the export."""
    head, _, body = data.partition(b"\n")
    word = head.removeprefix(_BODY).strip()
    at, lines = int(word) if word.isdigit() and len(word) < 3 else 0, EXPORT.splitlines()
    events = [number for number, line in enumerate(lines) if json.loads(line).get("type") == "event"]
    number = events[at % len(events)]
    lines[number] = json.dumps({**json.loads(lines[number]), "body": base64.b64encode(body).decode()}).encode()
    return b"\n".join(lines)


def exports(data: bytes) -> bool:
    """An export, maybe hashed anew: both verifiers find fault with the same chains, and nothing forged passes."""
    if data.startswith(_BODY):
        data = _REHASH + _with_body(data)
    data = _rehashed(data.removeprefix(_REHASH)) if data.startswith(_REHASH) else data
    code, theirs = script(data)
    law(code in (0, 2, 4), f"the stand-alone verifier exits with {code}")
    law((code == 4) == bool(theirs), "what it exits with is not what it found")
    try:
        ours = product(data)
    except IntegrityBroken as broken:
        law(str(broken), "refused without a reason")
        return False
    if code == 2:
        return False
    # The product may say of bytes that are no JSON that no record follows from them, and the script cannot fold.
    chains = {one[1] for one in ours if one[0] in _CHAIN}
    said = {one[1] for one in theirs if one[0] in _CHAIN}
    law(chains <= {one[1] for one in theirs}, f"the stand-alone verifier finds nothing in {chains}: {ours}")
    law(said <= {one[1] for one in ours}, f"the product finds nothing in {said}: {theirs}")
    if code == 0 and not ours:
        law(set(_events(data)) <= set(_events(EXPORT)), "an event that nobody wrote passes both verifiers")
    return not theirs


# --- bodies of events ------------------------------------------------------------------------------------------------


def bodies(data: bytes) -> bool:
    """The bytes of an event: not of this journal, or read and written as what they are."""
    try:
        read = journal.read_body(data)
    except ValueError as error:
        law(str(error), "refused without a reason")
        return False
    data_ = evidences.to_data(read.entry.evidence)
    again = evidences.from_data(read.entry.evidence.kind, json.loads(json.dumps(data_)))
    law(again == read.entry.evidence, "its evidence is read back as other evidence")
    return True


# --- signatures of people --------------------------------------------------------------------------------------------

_SPACE: Final = "opledger-approval@1"
_KEYS: Final = {name: base64.b64decode(public.split()[1]) for name, (public, _) in VECTORS.items()}


def ssh_signature(data: bytes) -> bool:
    """A namespace, a message and a signature: right only where the key signed this message for this."""
    head, _, rest = data.partition(b"\n")
    message, _, signature = rest.partition(b"\n\n")
    text = text_of(signature)
    try:
        read = sshsig.read(text)
        bare = sshsig.bare(text)
    except sshsig.SignatureWrong as wrong:
        law(str(wrong), "refused without a reason")
        return False
    law(sshsig.read(sshsig.armoured(bare)) == read == sshsig.read(bare), "in its armour it is another signature")
    try:
        sshsig.verify(read, message + b"\n", text_of(head))
    except sshsig.SignatureWrong:
        return False
    law(text_of(head) == _SPACE == read.namespace, "a signature for something else is taken")
    law(message + b"\n" == MESSAGE, "a signature is taken for another message")
    law(read.key in _KEYS.values(), "a signature is taken of a key that made none")
    return True


def allowed_signers(data: bytes) -> bool:
    """A file of allowed signers."""
    text = text_of(data)
    try:
        read = signers.parse(text, "signers")
    except signers.SignersInvalid as wrong:
        law(re.search(r"line [0-9]+", str(wrong)), "it is not said on which line")
        return False
    law(signers.parse(text, "signers") == read, "read twice it says something else")
    for key in _KEYS.values():
        for who in ("ana@example.com", "ben"):
            counts = True
            try:
                read.check(who, key, _SPACE, NOW)
            except sshsig.SignatureWrong:
                counts = False
            law(counts == (key in read.keys_of(who, _SPACE, NOW)), "a key counts, and is not listed; or the other way")
    nobody = signers.parse(text + "\n# a remark\n\n", "signers")
    law(nobody.signers == read.signers, "a remark changes who may sign")
    return bool(read.signers)


def _signers() -> bytes:
    keys = [public for public, _ in VECTORS.values()]
    return "\n".join(
        (
            f"ana@example.com {keys[0]} remark",
            f'*@example.com,!ben@example.com namespaces="opledger-approval@1,git",valid-after="20200101Z" {keys[-1]}',
            f'"ben,carl" valid-before="20300101120000Z" {keys[0]}',
            "# a remark",
        )
    ).encode()


def _all_bodies() -> list[bytes]:
    found = [json.loads(line) for line in EXPORT.splitlines()]
    return [base64.b64decode(one["body"]) for one in found if one.get("type") == "event"]


def _first_bodies() -> tuple[bytes, ...]:
    return tuple({json.loads(body)["kind"]: body for body in _all_bodies()}.values())


_AT_THE_END: Final = re.sub(rb'"at":"[^"]*"', b'"at":"0001-01-01T00:00:00+14:00"', _all_bodies()[1], count=1)

TARGETS: Final = (
    Target(
        "note",
        checkpoint_note,
        (notes, tree),
        ("words", "lines"),
        (
            f"{_note()}\n— {ORIGIN} {{sign}}\n".encode(),
            f"{_note(acknowledged=bytes(32))}\n— {ORIGIN} {{sign}}\n".encode(),
            f"{_KEY}\n".encode(),
            f"{_note()}\n— {ORIGIN} {base64.b64encode(notes.key_id(ORIGIN, _PUBLIC) + bytes(64)).decode()}\n".encode(),
        ),
        (b"{sign}", ORIGIN.encode(), "—".encode()),
    ),
    Target("export", exports, (archive, VERIFIER, journal), ("lines", "json", "json"), (EXPORT, _REHASH + EXPORT)),
    Target(
        "forged",
        exports,
        (VERIFIER, journal, evidences, auditing),
        ("json", "json", "words"),
        (
            *(b"%s %d\n%s" % (_BODY, at, body) for at, body in enumerate(_all_bodies())),
            b"%s 1\n%s" % (_BODY, _all_bodies()[1].replace(b'"reason":', b'"reason":"x","reason":', 1)),
        ),
    ),
    Target("body", bodies, (journal, evidences), ("json", "json", "words"), (*_first_bodies(), _AT_THE_END)),
    Target(
        "sshsig",
        ssh_signature,
        (sshsig,),
        (),
        tuple(f"{_SPACE}\n{MESSAGE.decode()}\n{signature}".encode() for _, signature in VECTORS.values()),
        (b"-----BEGIN SSH SIGNATURE-----", b"-----END SSH SIGNATURE-----", b"U1NIU0lH", b"AAAA"),
    ),
    Target(
        "signers", allowed_signers, (signers,), ("words", "lines"), (_signers(),), (b"cert-authority", b"20260101Z")
    ),
)
