from __future__ import annotations

import base64
import binascii
import html
import json
import os
import random
import re
import signal
import string
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, quote_plus

import pytest
import sqlalchemy

from opledger.receiver import listen
from opledger.rules.model import TERMINAL, State
from opledger.sim.hooks import WEBHOOK_SECRET, webhook_text
from opledger.sim.process import SimProcess
from tests.fakes.hooks import post, signed
from tests.faults.lab import PATIENCE, ROOT, Lab

pytestmark = pytest.mark.processes

CANARY = 'canary/7f3c?9a=51&e0 d2"b8\\64+1c'
"""A credential full of bytes that every encoding writes in its own way."""

FRAGMENT = 8
"""So many characters of a secret in a row are a leak."""


def forms(secret: str) -> set[bytes]:
    """The secret as it may turn up: as it is, percent-encoded, in JSON, in hex, in base64 at each of three offsets."""
    raw = secret.encode()
    found = {raw, quote(secret, safe="").encode(), quote(secret).encode(), binascii.hexlify(raw)}
    found.add(secret.replace("\\", "\\\\").replace('"', '\\"').encode())
    for before in (b"", b"x", b"xy", b"sim:", b"Bearer "):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            told = encode(before + raw)
            found.add(told[-(-len(before) * 4 // 3) + 2 : -6])
    return found | {secret[start : start + FRAGMENT].encode() for start in range(len(secret) - FRAGMENT + 1)}


@pytest.fixture
def guarded(tmp_path: Path, sqlite_url: str) -> Iterator[Lab]:
    """A provider that wants to see the canary."""
    with SimProcess(seed=5, token=CANARY) as sim, Lab(tmp_path, sqlite_url, sim) as lab:
        lab.environment["SIM_TOKEN"] = CANARY
        yield lab


def test_no_credential_is_left_anywhere(guarded: Lab) -> None:
    """A provider repeats our credential in bodies and headers of errors; no database, log or result may hold it."""
    echoed = [
        guarded.submit("credential_echo", "status"),
        guarded.submit("credential_echo", "create"),
        guarded.submit("credential_echo", "status", flavour="header"),
        guarded.submit("credential_echo", "status", flavour="query"),
    ]
    bearer = f"Bearer {CANARY}"
    guarded.sim.control(
        answer_next=[
            {"kind": "create", "status": 500, "body": {"error": f"no such key {bearer}"}, "before": True},
            {"kind": "list", "status": 400, "body": f"<b>{bearer}</b>", "content_type": "text/html"},
            {"kind": "result", "status": 404, "headers": {"x-debug": quote(CANARY)}, "body": {"key": CANARY}},
        ]
    )
    echoed += [guarded.submit(_seconds=0.1), guarded.submit("lossy", flavour="body", _seconds=0.1)]
    program = guarded.program("worker", "--until-idle", OPLEDGER_LOG="debug")
    assert program.wait(PATIENCE) == 0
    ends = [guarded.show(operation).state for operation in echoed]
    assert ends == [State.SUCCEEDED, State.FAILED, *[State.SUCCEEDED] * 4]
    assert len([entry for entry in guarded.sim.log() if entry["fault"] == "credentials echoed"]) >= 6

    events = b"".join(path.read_bytes() for path in guarded.folder.glob("ledger.db*"))
    assert b"could not parse header Authorization" in events  # what was said around it is kept
    scanned = [path for path in sorted(guarded.folder.rglob("*")) if path.is_file()]
    assert {"ledger.db", "program-1.log"} <= {path.name for path in scanned}
    leaks = [
        (path.name, form)
        for path in scanned
        for form in forms(CANARY)
        if len(form) >= FRAGMENT and form in path.read_bytes()
    ]
    assert leaks == []


# --- T16: forty secrets, each in twelve encodings, through everything that can be said --------------------------------

ENCODERS: Final[Mapping[str, Callable[[str], str]]] = {
    "raw": lambda secret: secret,
    "json": lambda secret: json.dumps(secret)[1:-1].replace("/", "\\/"),
    "json, utf-8": lambda secret: json.dumps(secret, ensure_ascii=False)[1:-1],
    "url": lambda secret: quote(secret, safe=""),
    "url, small": lambda secret: re.sub("%..", lambda found: found[0].lower(), quote(secret, safe="")),
    "url, every byte": lambda secret: "".join(f"%{byte:02X}" for byte in secret.encode()),
    "form": quote_plus,
    "html": html.escape,
    "hex": lambda secret: secret.encode().hex(),
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "base64, second": lambda secret: base64.urlsafe_b64encode(f"x{secret}".encode()).decode().rstrip("="),
    "base64, third": lambda secret: base64.b64encode(f"xy{secret}y".encode()).decode(),
}


def secrets_of(seed: int) -> list[str]:
    """Forty secrets of the shapes that people have; the same ones for the same seed."""
    draw = random.Random(seed)

    def some(letters: str, size: int) -> str:
        return "".join(draw.choice(letters) for _ in range(size))

    word, hexes = string.ascii_letters + string.digits, "0123456789abcdef"
    part = string.ascii_letters + string.digits + "-_"
    shapes = [
        lambda: f"sk-live-{some(word, 24)}",
        lambda: some(hexes, 40),
        lambda: some(hexes.upper(), 32),
        lambda: "-".join(some(hexes, size) for size in (8, 4, 4, 4, 12)),
        lambda: f"{some(part, 30)}.{some(part, 180)}.{some(part, 43)}",
        lambda: base64.b64encode(draw.randbytes(30)).decode(),
        lambda: some(word, 6) + "'\"<&>%" + some(word, 9) + "\\+/ =?#" + some(word, 5),
        lambda: "pä§s-" + some(word, 8) + "€-" + some(word, 8) + "\U0001f511",
        lambda: f"{some(word, 10)}:{some(word, 12)}@{some(word, 4)}",
        lambda: some(word, 12),
    ]
    return [shapes[number % len(shapes)]() for number in range(40)]


def traces(secret: str) -> set[bytes]:
    """What of a secret may be nowhere: every encoding, and any sixteen of its characters in a row."""
    found = {encode(secret).encode() for name, encode in ENCODERS.items() if not name.startswith("base64")}
    for before in (b"", b"x", b"xy"):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            told = encode(before + secret.encode() + b"yyy")
            start, end = -(-len(before) * 8 // 6), (len(before) + len(secret.encode())) * 8 // 6
            found.add(told[start:end])
    found |= {secret[at : at + 12].encode() for at in range(0, len(secret) - 12, 5) if _tells(secret[at : at + 12])}
    return {form for form in found if len(form) >= FRAGMENT}


def _tells(piece: str) -> bool:
    """True for a piece that stands in no innocent text."""
    return piece.isascii() and sum(char.isdigit() for char in piece) >= 2 and piece.lower() != piece


def answers(forms: list[str]) -> list[dict[str, Any]]:
    """An answer to a status read for each form, which stands in all of its fields; faults of all kinds between."""
    said = []
    for number, form in enumerate(forms):
        plain = quote(form, safe="") if not form.isascii() or not form.isprintable() else form
        document = {
            "id": form,
            "state": form,
            "progress": {"completed": form, "total": form},
            "error": {"code": form, "message": f"no such key: {form}"},
            "updated_at": form,
            "result_url": f"http://user:{form}@127.0.0.1:9/{form}?sig={form}",
            "poll_after_seconds": form,
        }
        headers = {
            "x-request-id": plain,
            "x-debug": plain,
            "set-cookie": f"key={plain}",
            "link": f"<http://a:{plain}@b>",
        }
        answer: dict[str, Any] = {"kind": "status", "status": 200, "body": document, "headers": headers}
        match number % 8:
            case 1:
                answer |= {"status": 500, "body": f"Traceback\n  key={form}\nValueError: {form}"}
            case 2:
                answer |= {"status": 400, "body": f"<p>{form}</p>", "content_type": "text/html"}
            case 3:
                answer |= {"status": 302, "headers": {**headers, "location": f"http://u:{plain}@127.0.0.1:9/{plain}"}}
            case 4:
                answer |= {"status": 429, "headers": {**headers, "retry-after": plain}}
            case 5:
                answer |= {"body": json.dumps(document)[:-1]}
            case 6:
                answer |= {"cut": True}
            case 7:
                answer |= {"content_type": f"text/{plain}"}
        said.append(answer)
    return said


SPY: Final = """#!/bin/sh
tr '\\0' '\\n' < /proc/self/environ >> {folder}/environment-of-children
tr '\\0' ' ' < /proc/$PPID/cmdline >> {folder}/arguments
cat {hidden}/{name}
"""

LOOKS: Final = """\
import json, sys
from opledger.cli.program import run
for words in json.loads(sys.argv[1]):
    print("$", *words, flush=True)
    print("=>", run(words), flush=True)
"""


def references(folder: Path, hidden: Path, secrets: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Put the secrets where secrets are: name -> reference, and the environment. What holds them is not searched."""
    found, environment = {}, {}
    for number, secret in enumerate(secrets):
        name = f"s{number:02}"
        place = hidden / name
        place.write_text(secret, encoding="utf-8")
        place.chmod(0o600)
        if number % 10 < 6:
            environment[f"CANARY_{name}"] = secret
            found[name] = f"env:CANARY_{name}"
        elif number % 10 < 9:
            found[name] = f"file:{place}"
        else:
            spy = hidden / f"{name}.sh"
            spy.write_text(SPY.format(folder=folder, hidden=hidden, name=name))
            spy.chmod(0o700)
            found[name] = f"command:{spy}"
    return found, environment


@pytest.mark.slow
@pytest.mark.parametrize("seed", [16])
def test_forty_secrets_in_twelve_encodings_are_nowhere(
    both: Lab, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Every answer field, webhooks, errors and faults; then all that is left of it is searched."""
    lab, secrets = both, secrets_of(seed)
    named, environment = references(lab.folder, tmp_path_factory.mktemp("hidden"), secrets)
    temporary = lab.folder / "tmp"
    temporary.mkdir()
    lab.environment |= {**environment, "TMPDIR": str(temporary), "HOOK_SECRET": WEBHOOK_SECRET, "OPLEDGER_LOG": "debug"}
    table = "\n".join(f'{name} = "{reference}"' for name, reference in named.items())
    headers = "\n".join(f'X-{name} = "{{secret.{name}}}"' for name in named)
    path = lab.contracts / f"{lab.contract(changes=QUICK)}.toml"
    more = f"\n[secrets]\n{table}\n\n[headers]\n{headers}\n{webhook_text('standard', 'env:HOOK_SECRET')}"
    path.write_text(path.read_text() + more)
    forms = [encode(secret) for encode in ENCODERS.values() for secret in secrets]
    assert len(forms) == 480
    draw = random.Random(seed)
    draw.shuffle(forms)
    # What is said, and how it is read and shown, is the same with every database; what that leaves behind is not.
    everywhere = lab.url.startswith("sqlite")
    forms = forms if everywhere else forms[::4]

    # What is asked for first makes the worker know the secrets; a provider repeats what it was sent.
    first = lab.submit(_seconds=0.1)
    worker = lab.program("worker", "--until-idle")
    assert worker.wait(PATIENCE) == 0
    assert lab.show(first).state is State.SUCCEEDED
    lab.sim.control(answer_next=[*answers(forms), *elsewhere(forms)])
    operations = [lab.submit(_seconds=3600) for _ in range(40)]
    ends = [lab.submit(_seconds=0.1) for _ in range(5)]
    worker = lab.program("worker")
    known = [f"/proc/{worker.pid}/cmdline"]
    lab.sim.wait_for(len(forms), timeout=PATIENCE, kind="status", fault="answered by order")
    deliveries(lab, forms)
    for operation in operations[:5]:
        lab.ledger.cancel(operation.operation_id, reason="enough")
    assert lab.sim.wait_for(5, timeout=PATIENCE, kind="cancel", fault="answered by order") >= 5
    for operation in ends:
        lab.until(operation, lambda op: op.state in TERMINAL or op.attention is not None)
    told = [Path(name).read_bytes() for name in known]
    told += [path.read_bytes() for path in lab.folder.glob("ledger.db-wal")]  # it is gone once the worker has ended
    if everywhere:
        looks(lab, operations[0].operation_id)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0
    told += [path.read_bytes() for path in sorted(lab.folder.rglob("*")) if path.is_file()]
    told += [dump(lab)]

    answered = [entry for entry in lab.sim.log() if entry["fault"] == "answered by order"]
    assert {entry["kind"] for entry in answered} == {"status", "create", "list", "result", "cancel"}
    everything = b"\0".join(told)
    for witness in (b"no such key: ", b"CANARY_s00", b"PATH=", b"Traceback", b"hook.news_%d" % (len(forms) - 1)):
        assert witness in everything, witness  # what was said around the secrets is kept
    holds = searched(everything)
    assert holds(b"no such key: ")
    leaks = [
        (named[f"s{number:02}"], trace)
        for number, secret in enumerate(secrets)
        for trace in traces(secret)
        if holds(trace)
    ]
    assert leaks == []


def searched(everything: bytes) -> Callable[[bytes], bool]:
    """`in`, for thousands of questions that are nearly all answered with no.

    Wherever a trace stands, one of four ways to cut it into fours falls on the cuts of the whole; most traces have a
    four that stands nowhere. What is left is looked for in earnest. Traces of seven bytes or more have a four each way.
    """
    fours = set(memoryview(everything + bytes(-len(everything) % 4)).cast("I"))

    def holds(trace: bytes) -> bool:
        assert len(trace) >= 7
        ways = (memoryview(trace[at : len(trace) - (len(trace) - at) % 4]).cast("I") for at in range(4))
        return any(fours.issuperset(way) for way in ways) and trace in everything

    return holds


@pytest.mark.parametrize("before", range(9))
@pytest.mark.parametrize("size", range(7, 17))
def test_the_search_misses_nothing(before: int, size: int) -> None:
    """Wherever it stands, and however long it is; and what only looks like it is not it."""
    trace = bytes(range(100, 100 + size))
    assert searched(b"." * before + trace + b"." * 5)(trace)
    assert searched(b"." * before + trace)(trace)
    assert not searched(b"." * before + trace[:-1] + b"..." + trace[1:])(trace)


QUICK: Final = {
    'max = "400ms"': 'max = "60ms"',
    'job_id = "/id"\ntimeout = "2s"': 'timeout = "2s"',
    "[limits]\n": "[limits]\nerror_budget = 0\n",
}


def elsewhere(forms: list[str]) -> list[dict[str, Any]]:
    """Answers to the other calls: creates that are lost, look-ups that fail, results that cannot be had."""
    said: list[dict[str, Any]] = []
    for form in forms[:20]:
        plain = quote(form, safe="") if not form.isascii() else form
        echo = {
            "headers": {"x-request-id": plain, "x-debug": plain},
            "body": {"error": {"code": form, "message": form}},
        }
        said.append({"kind": "create", "status": 500, "before": True, **echo})
        said.append({"kind": "list", "status": 503, **echo})
        said.append({"kind": "result", "status": 404, **echo})
        said.append({"kind": "cancel", "status": 500, **echo})
    for form in forms[20:24]:
        plain = quote(form, safe="") if not form.isascii() else form
        away = {"location": f"http://user:{plain}@127.0.0.1:9/{plain}?token={plain}"}
        said.append({"kind": "result", "status": 302, "headers": away})
        said.append({"kind": "result", "status": 200, "content_type": f"text/{plain}", "headers": {"etag": plain}})
    return said


def deliveries(lab: Lab, forms: list[str]) -> None:
    """Webhooks, signed well, that carry a form in every field; and some that are refused."""
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with (lab.folder / "receiver.log").open("wb") as log:
        receiver = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.receiving", str(port), "never", "0"],
            cwd=lab.folder,
            env={**os.environ, **lab.environment, "PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == b"ready\n"
        for number, form in enumerate(forms):
            data = {"id": form, "client_ref": form, "note": f"key {form}", "hook.news": form}
            body = json.dumps({"type": f"hook.news_{number}" if number % 2 else form, "data": data}).encode()
            name = f"msg_{number}"
            sent = signed(body, name, lab.ledger.clock.now().timestamp(), WEBHOOK_SECRET)
            if number % 10 == 3:
                sent["webhook-signature"] = f"v1,{quote(form)}"
            status, _ = post(f"http://127.0.0.1:{port}/webhooks/sim", body, {**sent, "x-echo": quote(form)})
            assert status in (200, 202, 204, 400, 401, 422)
    finally:
        receiver.send_signal(signal.SIGTERM)
        receiver.wait(PATIENCE)
        assert receiver.stdout is not None
        receiver.stdout.close()
        listener.close()


def looks(lab: Lab, operation: str) -> None:
    """Everything that shows or hands out what is recorded, for people and for programs, in one process."""
    asked: list[list[str]] = [
        ["list"],
        ["escalations"],
        ["doctor"],
        ["config"],
        ["audit", "export"],
        ["contract", "list"],
    ]
    asked += [["contract", "show", "sim"], ["provider", "list"], ["webhooks", "--help"]]
    for word in ("show", "history", "events", "explain", "choices", "packet", "review"):
        asked.append([word, operation])
    words = [*asked, *(["--json", *one] for one in asked), ["--debug", "read", operation]]
    program = subprocess.run(
        [sys.executable, "-c", LOOKS, json.dumps(words)],
        cwd=lab.folder,
        env={**os.environ, **lab.environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=True,
    )
    (lab.folder / "looks.txt").write_bytes(program.stdout + program.stderr)
    assert program.stdout.count(b"=> 0") > len(words) // 2


def dump(lab: Lab) -> bytes:
    """Every row of every table, as a backup would have it."""
    engine = sqlalchemy.create_engine(lab.url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with engine.connect() as session:
            names = sqlalchemy.inspect(session).get_table_names()
            rows = [row for name in names for row in session.execute(sqlalchemy.text(f'SELECT * FROM "{name}"'))]
    finally:
        engine.dispose()
    cells = [cell for row in rows for cell in row if cell is not None]
    return b"\0".join(bytes(cell) if isinstance(cell, bytes | memoryview) else str(cell).encode() for cell in cells)
