"""Verify an export of an opledger ledger on its own: python verifier.py FILE [--key KEY] [--anchor FILE]... [--json]

Shares no code with opledger: two programs that agree are worth more than one. Needs Python 3.11 and cryptography. Exits
with 0 for nothing found, 4 for findings, 2 for no whole export. Of records only state, job, version and head are looked
at. KEY: as `opledger audit key` prints it; without it, the key that the export names, which a forger can change too.
A finding about a checkpoint has no operation, and the checkpoint's number in place of a seq.
"""
import argparse, base64, datetime, hashlib, json, pathlib, re, sys
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
KEYS = {"from_state": "from", "to_state": "to"} | {k: k for k in ("kind", "cause", "reason", "remote_job_id", "seq")}
N, ASK = "(?:0|[1-9][0-9]{0,18})", {"method", "url", "body_sha256", "headers_sha256"}
NOTE = re.compile(
    rf"(?P<text>(?P<origin>opledger/ldg_[0-9A-HJKMNP-TV-Z]{{26}})\n(?P<size>{N})\n(?P<root>[A-Za-z0-9+/]{{43}}=)\n"
    rf"number (?P<number>{N})\nat (?P<at>[0-9-]{{10}}T[0-9:]{{8}}\.[0-9]{{6}}Z)\noperations (?P<operations>{N})\n"
    rf"events (?P<events>{N})\nepoch (?P<epoch>{N})\nprevious (?P<previous>[0-9a-f]{{64}})\n"
    "(?:acknowledged (?P<acknowledged>[0-9a-f]{64})\n)?)\n\u2014 (?P=origin) (?P<signature>[A-Za-z0-9+/]{91}=)\n")
EPOCH, found = datetime.datetime.fromtimestamp(0, datetime.UTC), []
def find(kind, name, seq, wrong=True):
    found.extend([{"kind": kind, "operation_id": name if isinstance(name, str) else None, "seq": seq}] if wrong else [])
def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()
def named(domain, name, seq):
    return domain + len(raw := name.encode("utf-8", "surrogatepass")).to_bytes(8, "big") + raw + seq.to_bytes(8, "big")
def micros(text):
    try:
        return (datetime.datetime.fromisoformat(text) - EPOCH) // datetime.timedelta(microseconds=1)
    except (TypeError, ValueError):
        return None
def digest_of(one):
    text = json.dumps({k: one[k] for k in {*one} - {"type"}}, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return sha(f"opledger/{one['type']}1".encode(), text.encode("utf-8", "surrogatepass")).hex()
def unique(pairs):
    return dict(pairs) if len(dict(pairs)) == len(pairs) else dict(None)  # a key stands twice: TypeError
def read(body):
    """JSON that all programs read alike: an object in UTF-8, without a key twice, NaN or half of a surrogate pair."""
    try:
        event = {**json.loads(body.decode("utf-8-sig"), object_pairs_hook=unique)}
        return json.dumps(event, ensure_ascii=False, allow_nan=False).encode() and event
    except (ValueError, TypeError, RecursionError):
        return None
def chain(name, rows):
    seq, before = 0, bytes(32)
    for row in rows:
        if any(isinstance(value, dict) for value in row.values()):
            find("COLUMN", name, row["seq"])
            continue
        judge(name, row, seq, before)
        seq, before = (row["seq"], bytes.fromhex(row["hash"])) if row["seq"] > seq else (seq, before)
def judge(name, row, seq, before):
    """Each event's hash covers operation, seq, the hash before it and the hash of its bytes."""
    body, link, digest = base64.b64decode(row["body"]), bytes.fromhex(row["prev_hash"]), bytes.fromhex(row["hash"])
    event, number = read(body), row["seq"]
    own, own_seq = ((event or {}).get(key) for key in ("operation_id", "seq"))
    own, own_seq = own if isinstance(own, str) else name, own_seq if type(own_seq) is int else number
    genuine = any(sha(named(b"opledger/h1", who, at), previous, sha(body)) == digest for who in {name, own}
                  for at in {number, own_seq} if 0 <= at < 2**63 for previous in (link, before))
    find("SEQ", name, number, number != seq + 1)
    find("LINK", name, number, number == seq + 1 and link != before)
    find("FORMAT_DOWNGRADE", name, number, row["format"] != 1 or (event is not None and event.get("format") != 1))
    find("HASH", name, number, not genuine)
    if genuine and own != name:
        find("MOVED", name, number)
    elif event is None:
        find("COLUMN", name, number, genuine)
    else:
        actor = event["actor"].get("name") if isinstance(event.get("actor"), dict) else None
        wrong = [column for column, key in KEYS.items() if row[column] != event.get(key)]
        find("COLUMN", name, number, wrong or (row["actor"], row["at"]) != (actor, micros(event.get("at"))))
def tombstone(name, stone, leaves, head):
    if head:
        kind = "BEHIND_CHECKPOINT" if type(stone["seq"]) is int and head["seq"] > stone["seq"] else "REWRITTEN"
        find(kind, name, head["seq"], (head["seq"], head["hash"]) != (stone["seq"], stone["head_hash"]))
    its = (stone["seq"], digest_of(stone))
    for leaf in leaves:
        find("REWRITTEN", name, leaf["seq"], leaf["kind"] == 2 and (leaf["seq"], leaf["hash"]) != its)
def operation(name, rows, leaves, record, stone):
    start, heads = len(found), [leaf for leaf in leaves if leaf["kind"] == 1 and type(leaf["seq"]) is int]
    if stone and (rows or record):
        find("MOVED", name, None)
    elif stone:
        tombstone(name, stone, leaves, heads[-1] if heads else None)
    find("MISSING_OP", name, None, (not rows and not stone) or (rows and not record))
    if not rows or not isinstance(name, str) or not all(type(row["seq"]) is int for row in rows):
        return find("COLUMN", name, None, rows)
    before, last, head = len(found), rows[-1], (rows[-1]["seq"], rows[-1]["hash"])
    chain(name, rows)
    hashes, seen = {row["seq"]: row["hash"] for row in rows}, max([0, *(leaf["seq"] for leaf in heads)])
    changed = [leaf["seq"] for leaf in heads if hashes.get(leaf["seq"], leaf["hash"]) != leaf["hash"]]
    find("REWRITTEN", name, min(changed, default=0), changed and before == len(found))
    find("BEHIND_CHECKPOINT", name, seen, seen > last["seq"])
    find("PROJECTION", name, last["seq"], record and (record["head_seq"], record["head_hash"]) != head)
    if record and start == len(found):
        must = ([row["to_state"] for row in rows if row["to_state"]][-1:], last["remote_job_id"], last["seq"])
        find("PROJECTION", name, last["seq"], ([record["state"]], record["remote_job_id"], record["version"]) != must)
        was, it = read(base64.b64decode(rows[0]["body"])).get("data"), record["request"]
        find("PROJECTION", name, 1, {dict} != {type(was), type(it)} or any(it.get(k) != was[k] for k in ASK & {*was}))
def read_note(text, key):
    """Return the parts of a note, None where it cannot be read; and whether it is signed with the ledger's key."""
    note, (origin, _, rest) = NOTE.fullmatch(text) if isinstance(text, str) else None, (key or "").partition("+")
    if note is None or micros(note["at"]) is None:
        return None, False
    public, signature = base64.b64decode(rest.partition("+")[2])[1:], base64.b64decode(note["signature"])
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature[4:], note["text"].encode())
    except (InvalidSignature, ValueError):
        return note, False
    return note, (note["origin"], signature[:4]) == (origin, sha(origin.encode(), b"\n\1", public)[:4])
def grow(peaks, size, leaves, upto):
    """Add leaves to the peaks of an RFC 9162 tree and return its root; None where some are missing."""
    for number in range(size, upto):
        leaf = leaves[number] if number < len(leaves) else {"number": None}
        seq, odd = leaf.get("seq", 0), any(isinstance(value, dict) for value in leaf.values())
        if leaf["number"] != number or odd or type(seq) is not int or seq < 0:
            return None
        kind = {1: b"opledger/l1", 2: b"opledger/t1"}.get(leaf.get("kind"), b"")
        data = b"" if "digest" in leaf else named(kind, leaf["operation_id"], seq) + bytes.fromhex(leaf["hash"])
        node = sha(b"\0", data) if data else bytes.fromhex(leaf["digest"])
        while number & 1:
            node, number = sha(b"\1", peaks.pop(), node), number >> 1
        peaks.append(node)
    root = peaks[-1] if peaks else sha(b"")
    for peak in peaks[-2::-1]:
        root = sha(b"\1", peak, root)
    return root if upto >= size else None
def log(rows, leaves, given_up, key):
    """Checkpoints are signed notes over the tree, each naming the hash of the one before. Return the good ones."""
    good, number, before, size, peaks, broken = {}, 0, "0" * 64, 0, [], False
    for row in rows:
        (note, valid), here = read_note(row["note"], key), row["number"] if type(row["number"]) is int else None
        digest = sha(str(row["note"]).encode("utf-8", "surrogatepass")).hex()
        says = valid and {name: int(note[name]) for name in ("number", "size", "operations", "events", "epoch")} | {
            "at": micros(note["at"]), "root": base64.b64decode(note["root"]).hex(), "hash": digest,
            "previous": note["previous"], "key_id": base64.b64decode(note["signature"])[:4].hex()}
        find("CHECKPOINT_SIG", None, here, not valid or any(row[name] != says[name] for name in says))
        if here is None or here <= number:
            find("CHECKPOINT_GAP", None, None)
            continue
        said, known = valid and note["acknowledged"], given_up.get(here - 1, (here, None))
        lost = (here > number + 1 or said) and (said != known[1] or known[0] > number + 1)
        find("CHECKPOINT_GAP", None, number + 1, lost)
        find("CHECKPOINT_CHAIN", None, here, not lost and valid and note["previous"] != before)
        number, before, good = here, digest, good | ({here: note} if valid else {})
        if valid and not broken:
            broken = grow(peaks, size, leaves, int(note["size"])) != base64.b64decode(note["root"])
            size = int(note["size"])
            find("CHECKPOINT_CHAIN", None, here, broken or row["peaks"] != b"".join(peaks).hex())
    find("CHECKPOINT_CHAIN", None, number or None, not broken and size < len(leaves))
    return good, number
def anchor(lines, good, last, given_up, key):
    """What an anchor outside holds must be in the ledger: the same note under the same number."""
    ahead, roots = 0, {note["size"]: note["root"] for note in good.values()}
    for line in lines:
        try:
            note, valid = read_note(json.loads(line)["note"], key)
        except (ValueError, KeyError, TypeError):
            continue  # torn by a crash
        number = int(note["number"]) if note else None
        if not valid or any(first <= number <= to for to, (first, _) in given_up.items()):
            find("CHECKPOINT_SIG", None, number, not valid)
        elif number > last:
            ahead = max(ahead, number)
        elif good.get(number, note)[0] != note[0] or roots.get(note["size"], note["root"]) != note["root"]:
            find("FORK", None, number)
    find("ANCHOR_AHEAD", None, ahead, ahead)
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, action in {"file": "store", "--key": "store", "--anchor": "append", "--json": "store_true"}.items():
        parser.add_argument(name, action=action)
    given, kinds, names = parser.parse_args(), {}, {}
    try:
        lines = [dict(json.loads(line)) for line in pathlib.Path(given.file).read_bytes().splitlines()]
        for one in lines:
            kinds.setdefault(one.get("type", "head"), []).append(one)
            if "operation_id" in one:
                names.setdefault(str(one["operation_id"]), {}).setdefault(one["type"], []).append(one)
        head, key = (head := kinds.get("head", [{}])[0]), given.key or head.get("verifier_key")
        if head.get("format") != "opledger-export/1" or kinds.get("end", [{}])[-1].get("lines") != len(lines):
            raise ValueError("it was cut, or is something else")
        find("CHECKPOINT_SIG", None, None, given.key and head["verifier_key"] not in (None, given.key))
        given_up = {one["abandoned_to"]: (one["abandoned_from"], digest_of(one))
                    for one in kinds.get("acknowledgement", ()) if type(one["abandoned_to"]) is int}
        good, last = log(kinds.get("checkpoint", ()), kinds.get("leaf", ()), given_up, key)
        for to in [to for to, (_, it) in given_up.items() if to + 1 not in good or good[to + 1]["acknowledged"] != it]:
            find("CHECKPOINT_SIG", None, to, given_up.pop(to))
        for name in given.anchor or ():
            anchor(pathlib.Path(name).read_bytes().splitlines(), good, last, given_up, key)
        for its in names.values():
            name = next(iter(its.values()))[0]["operation_id"]
            record, stone = (its.get(kind, [None])[0] for kind in ("record", "tombstone"))
            operation(name, its.get("event", []), its.get("leaf", []), record, stone)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        parser.error(f"{given.file} cannot be read as an export of opledger: {type(error).__name__} {error}")
    find("NOTHING_CHECKED", None, None, not names and not found)
    for one in found:
        print(json.dumps(one) if given.json else "{kind} {operation_id!a} {seq}".format(**one))
    print(f"{len(kinds.get('event', ()))} events, {len(good)} checkpoints, {len(found)} findings", file=sys.stderr)
    sys.exit(4 if found else 0)
if __name__ == "__main__":
    main()
