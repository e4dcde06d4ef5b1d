"""How much memory a worker takes for what providers send it: large results, and answers that are made to hurt.

``python -m tests.bench.memory [LOAD …] [--mib 2048]`` prints, for each load, what the worker's memory rose to above its
base. The base is the worker after one small job; the peak is the highest resident size that the kernel saw since then
(``VmHWM``). ``--serve`` and ``--ours`` are its own child processes. It ends with code 1 where a load passes the bound.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import gzip
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.wire import requests

ROOT: Final = Path(__file__).resolve().parents[2]
MIB: Final = 1024 * 1024
BOUND: Final = 64
"""MiB above the base that no load may take (issue 4: results and webhooks)."""

BLOCK: Final = MIB
BOMB: Final = 1024 * MIB  #: what a bomb would unpack to
TAKEN: Final = "300MiB"  #: the most that a contract of these loads takes as a result


@dataclass(frozen=True, slots=True)
class Load:
    """What the provider sends, how the contract reads it, and how many jobs do so at the same time."""

    form: str
    jobs: int = 1
    most: str = TAKEN
    state: str = ""  #: the state that the jobs must end in; "" for those that never end


LOADS: Final = {
    "binary": Load("binary", most="8GiB", state="succeeded"),
    "jsonl": Load("jsonl", most="8GiB", state="succeeded"),
    "csv": Load("csv", most="8GiB", state="succeeded"),
    "json-array": Load("json", most="8GiB", state="succeeded"),
    "gzip-jsonl": Load("jsonl", most="8GiB", state="succeeded"),
    "four-at-once": Load("binary", 4, most="8GiB", state="succeeded"),
    "bombs": Load("jsonl", 4, state="result_validation_failed"),
    "bombs-as-status": Load("jsonl", 8),
    "endless": Load("jsonl", 2, state="result_validation_failed"),
    "endless-as-status": Load("jsonl", 8),
    "deep": Load("json", 2, state="result_validation_failed"),
    "deep-as-status": Load("jsonl", 8),
    "wide": Load("json", 2, state="succeeded"),
    "wide-as-status": Load("jsonl", 8),
    "one-line": Load("jsonl", 4, state="succeeded"),
    "one-line-csv": Load("csv", 4, state="succeeded"),
    "open-quote": Load("csv", 2, state="result_validation_failed"),
    "columns": Load("csv", 4, state="succeeded"),
}
ENDS: Final = 6.0
"""Seconds for which a worker is watched under a load whose jobs never end."""


# --- the provider ------------------------------------------------------------------------------------------------


def serve(mib: int) -> None:
    """Answer create, status and result requests for jobs that are named after their load, until input ends."""
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(server.getsockname()[1], flush=True)
    threading.Thread(target=_accept, args=(server, Bodies(mib)), daemon=True).start()
    sys.stdin.buffer.read()


def _accept(server: socket.socket, bodies: Bodies) -> None:
    while True:
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_talk, args=(connection, bodies), daemon=True).start()


def _talk(connection: socket.socket, bodies: Bodies) -> None:
    with connection, connection.makefile("rb") as asked, suppress(OSError):  # the worker has had enough
        for _, target, body in requests(asked):
            if not _answer(connection, bodies, target, body):
                return


def _answer(connection: socket.socket, bodies: Bodies, target: str, body: bytes) -> bool:
    """Send one answer; False where nothing may follow it."""
    if body:
        asked = json.loads(body)
        _send(connection, json.dumps({"id": f"{asked['load']}-{asked['n']}", "state": "queued"}).encode(), status=202)
        return True
    load = target.split("/")[2].rpartition("-")[0]
    if target.endswith("/result"):
        return bodies.result(connection, load)
    if load.endswith("-as-status"):
        return bodies.result(connection, load.removesuffix("-as-status"))
    _send(connection, b'{"state": "succeeded"}')
    return True


def _send(connection: socket.socket, body: bytes, *headers: str, status: int = 200) -> None:
    lines = [f"HTTP/1.1 {status} OK", f"content-length: {len(body)}", *headers, "", ""]
    connection.sendall("\r\n".join(lines).encode() + body)


class Bodies:
    """What is sent as a result, or in the place of a status answer."""

    def __init__(self, mib: int) -> None:
        self._mib = mib
        rows = (
            b'{"id": "item_%d", "status": "ok", "value": 12.5, "text": "%s"}' % (n, b"words " * 30) for n in range(5000)
        )
        lines = list(rows)
        self._jsonl = b"\n".join(lines) + b"\n"
        self._csv = b"".join(b'item_%d,ok,12.5,"%s"\n' % (n, b"words, " * 25) for n in range(5000))
        self._array = b",".join(lines) + b","
        # A bomb is packed piece by piece: several members are one body.
        self._bomb = gzip.compress(bytes(16 * MIB)) * (BOMB // (16 * MIB))
        self._packed = gzip.compress(self._jsonl)

    def result(self, connection: socket.socket, load: str) -> bool:
        """Send it; False where nothing may follow it."""
        size = self._mib * MIB
        if load in ("binary", "jsonl", "csv", "json-array", "four-at-once"):
            block = {"jsonl": self._jsonl, "csv": self._csv, "json-array": self._array}.get(
                load, bytes(range(256)) * 4096
            )
            begin, end = {"csv": (b"id,status,value,text\n", b""), "json-array": (b"[", b"1]")}.get(load, (b"", b""))
            return _stream(connection, begin, block, max(1, size // len(block)), end)
        if load == "small":
            _send(connection, b"1\n")  # JSON, JSON lines, CSV: it is all of them
            return True
        if load == "gzip-jsonl":
            times = max(1, size // len(self._jsonl))
            return _stream(connection, b"", self._packed, times, b"", "content-encoding: gzip")
        if load == "bombs":
            _send(connection, self._bomb, "content-encoding: gzip")
            return True
        if load == "endless":
            return _endless(connection, self._jsonl)
        if load in ("deep", "wide"):
            _send(connection, {"deep": b"[" * 3_000_000, "wide": b"[" + b'{"a":1},' * 700_000 + b"1]"}[load])
            return True
        begin, block, end = {
            "one-line": (b'"', b"x" * BLOCK, b'"\n'),
            "one-line-csv": (b"id\n", b"x" * BLOCK, b"\n"),
            "open-quote": (b'id,text\n1,"', (b"words " * 30 + b"\n") * 5000, b""),
            "columns": (b"", b"x," * (BLOCK // 2), b"x\n"),
        }[load]
        return _stream(connection, begin, block, 200, end)


def _stream(connection: socket.socket, begin: bytes, block: bytes, times: int, end: bytes, *headers: str) -> bool:
    length = len(begin) + times * len(block) + len(end)
    lines = ["HTTP/1.1 200 OK", f"content-length: {length}", *headers, "", ""]
    connection.sendall("\r\n".join(lines).encode() + begin)
    for _ in range(times):
        connection.sendall(block)
    connection.sendall(end)
    return True


def _endless(connection: socket.socket, block: bytes) -> bool:
    connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"%x\r\n%s\r\n" % (len(block), block))


# --- the worker --------------------------------------------------------------------------------------------------

CONTRACT: Final = """\
name = "load"
base_url = "{base_url}"
[create]
method = "POST"
path = "/jobs"
job_id = "/id"
[status]
path = "/jobs/{{job_id}}"
state = "/state"
[status.states]
queued = ["queued"]
succeeded = ["succeeded"]
[poll]
first = "50ms"
factor = 1.0
[result]
path = "/jobs/{{job_id}}/result"
timeout = "9m"
format = "{form}"
max_size = "{most}"
"""


def ours(base_url: str, load: str) -> dict[str, float]:
    """Run a worker over one load; returns MiB at its base and at its peak, and seconds."""
    from opledger.cli import GARBAGE
    from opledger.config import load_settings
    from opledger.ledger import Ledger
    from opledger.service import make_worker
    from opledger.service import serve as run_service
    from opledger.store import Filter
    from tests.bench.contestants import resident_mib, run_async

    gc.set_threshold(GARBAGE)  # as the command line does for a worker
    chosen = LOADS[load]
    with tempfile.TemporaryDirectory(prefix="opledger-bench-") as name:
        folder = Path(name)
        (folder / "contracts").mkdir()
        text = CONTRACT.format(base_url=base_url, form=chosen.form, most=chosen.most)
        (folder / "contracts" / "load.toml").write_text(text)
        environment = {"OPLEDGER_CONTRACTS": str(folder / "contracts")}
        url = f"sqlite:///{folder / 'ledger.db'}"
        settings = load_settings({"db": url, "operator": "bench"}, environment, folder, folder, folder)
        with Ledger.open(url, settings=settings) as ledger:

            def work(what: str, count: int) -> list[str]:
                ids = [ledger.submit("load", {"load": what, "n": n}).operation_id for n in range(count)]
                worker = make_worker(ledger.store, results=folder / "results", name="bench")
                run_async(_run(run_service, worker, None if chosen.state or what != load else ENDS))
                return [str(ledger.show(one).state) for one in ids]

            work("small", 1)
            gc.collect()
            base = resident_mib()
            Path("/proc/self/clear_refs").write_text("5")
            began = time.perf_counter()
            states = work(load, chosen.jobs)
            took = time.perf_counter() - began
            peak = _high_water()
            if chosen.state and set(states) != {chosen.state}:
                last = ledger.store.queries.list(Filter()).operations[0].last_error
                raise SystemExit(f"{load}: the jobs ended as {set(states)}, not as {chosen.state}: {last}")
    return {"base": base, "peak": peak, "wall": took}


async def _run(run_service: Any, worker: Any, seconds: float | None) -> None:
    """Run until nothing is left to do, or for a while."""
    stop = asyncio.Event()
    if seconds is not None:
        asyncio.get_running_loop().call_later(seconds, stop.set)
    await run_service(worker, stop, until_idle=seconds is None)


def _high_water() -> float:
    """The most resident memory since it was last reset, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("this system does not tell the highest resident size")


# --- the table ---------------------------------------------------------------------------------------------------


@contextmanager
def provider(mib: int) -> Iterator[str]:
    """The provider as a child process; gives its address."""
    command = [sys.executable, "-m", "tests.bench.memory", "--serve", "--mib", str(mib)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        yield f"http://127.0.0.1:{int(child.stdout.readline())}"
        child.stdin.close()


def measure(base_url: str, load: str) -> dict[str, float]:
    """One load, in a worker process of its own."""
    command = [sys.executable, "-m", "tests.bench.memory", "--ours", base_url, load]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{load}: {done.stderr[-3000:]}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def contest(loads: Sequence[str], mib: int) -> bool:
    """Print the table; tells whether all loads stayed within the bound."""
    print(f"\nmemory of a worker, results of {mib} MiB, bound {BOUND} MiB above its base")
    print(f"{'':<46}{'base':>16}{'peak above it':>16}{'seconds':>16}")
    good = True
    with provider(mib) as base_url:
        for load in loads:
            figures = measure(base_url, load)
            adds = figures["peak"] - figures["base"]
            good = good and adds <= BOUND
            label = f"{load}, {LOADS[load].jobs} at once" if LOADS[load].jobs > 1 else load
            base, wall = f"{figures['base']:.0f} MiB", f"{figures['wall']:.1f}"
            print(
                f"{label:<46}{base:>16}{adds:>12.1f} MiB{wall:>16}{'' if adds <= BOUND else '  TOO MUCH'}", flush=True
            )
    return good


def main() -> None:
    """Print the table, or be one of its child processes."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.memory")
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=f"default: all of {', '.join(LOADS)}")
    parser.add_argument("--mib", type=int, default=2048, help="size of a large result")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--ours")
    chosen = parser.parse_args()
    unknown = set(chosen.loads) - set(LOADS)
    if unknown:
        parser.error(f"there is no load {', '.join(sorted(unknown))}")
    if chosen.serve:
        serve(chosen.mib)
    elif chosen.ours is not None:
        print(json.dumps(ours(chosen.ours, chosen.loads[0])))
    elif not contest(chosen.loads or list(LOADS), chosen.mib):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
