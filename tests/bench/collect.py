"""Collecting one large result, against ``curl | sha256sum`` and against curl into a file that is brought to the disk.

``python -m tests.bench.collect SIZE_MIB`` prints its table; ``--serve FILE`` and ``--ours URL`` are its own child
processes: the provider with the large file, and one run of our worker.

curl only adds up a hash. What is compared with it has also asked for the job, checked the size and the form, written
the file, brought it to the disk and recorded it; the second baseline is what a careful script would do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.wire import requests

MIB = 1024 * 1024
FORMS = ("binary", "jsonl", "csv")


# --- the provider ------------------------------------------------------------------------------------------------


def serve(file: Path) -> None:
    """Serve one job that has succeeded, with this file as its result, until standard input ends."""
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(server.getsockname()[1], flush=True)
    threading.Thread(target=_accept, args=(server, file), daemon=True).start()
    sys.stdin.buffer.read()


def _accept(server: socket.socket, file: Path) -> None:
    while True:
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_talk, args=(connection, file), daemon=True).start()


def _talk(connection: socket.socket, file: Path) -> None:
    with connection, connection.makefile("rb") as asked:
        for method, target, _ in requests(asked):
            if target.endswith("/result"):
                size = file.stat().st_size
                connection.sendall(_head(200, size, "application/octet-stream"))
                with file.open("rb") as source:
                    connection.sendfile(source)
                continue
            state = "queued" if method == "POST" else "succeeded"
            body = json.dumps({"id": "job_1", "state": state}).encode()
            connection.sendall(_head(202 if method == "POST" else 200, len(body), "application/json") + body)


def _head(status: int, length: int, kind: str) -> bytes:
    return f"HTTP/1.1 {status} OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n".encode()


@contextmanager
def provider(file: Path) -> Iterator[str]:
    """The provider as a child process; gives its address."""
    command = [sys.executable, "-m", "tests.bench.collect", "--serve", str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        yield f"http://127.0.0.1:{int(child.stdout.readline())}"
        child.stdin.close()


# --- the contestants ---------------------------------------------------------------------------------------------


def ours(base_url: str, form: str) -> dict[str, float]:
    """Collect with our worker. The time is that between two events of the journal: success seen, result accepted."""
    from opledger.service import make_worker
    from opledger.service import serve as run_service
    from tests.bench.contestants import open_ledger, resident_mib, run_async

    with tempfile.TemporaryDirectory(prefix="opledger-bench-", dir=os.environ.get("BENCH_DIR")) as name:
        folder = Path(name)
        with open_ledger(folder, base_url, None) as ledger:
            more = f'\nformat = "{form}"\nmax_size = "8GiB"\nsize = "header:content-length"\ntimeout = "9m"'
            contract = folder / "contracts" / "bench.toml"
            contract.write_text(contract.read_text().replace('/result"', f'/result"{more}'))
            op = ledger.submit("bench", {"n": 1})
            worker = make_worker(ledger.store, results=folder / "results", name="bench")
            before, cpu = resident_mib(), os.times()
            run_async(run_service(worker, asyncio.Event(), until_idle=True))
            used = os.times()
            events = {event.kind: event for event in ledger.events(op.operation_id)}
            if ledger.show(op.operation_id).state != "succeeded":
                raise SystemExit(f"not collected: {ledger.show(op.operation_id).last_error}")
            wall = (events["ResultAccepted"].at - events["Observed"].at).total_seconds()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"wall": wall, "cpu": used.user - cpu.user + used.system - cpu.system, "adds": peak - before}


def _child(base_url: str, form: str) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.bench.collect", "--ours", base_url, "--form", form]
    figures: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return figures


def _shell(script: str, base_url: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="opledger-bench-", dir=os.environ.get("BENCH_DIR")) as folder:
        before, began = os.times(), time.perf_counter()
        subprocess.run(
            ["bash", "-o", "pipefail", "-c", script, "bench", f"{base_url}/jobs/job_1/result"],
            check=True,
            capture_output=True,
            cwd=folder,
        )
        wall, after = time.perf_counter() - began, os.times()
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return {"wall": wall, "cpu": cpu}


def contest(size_mib: int, rounds: int) -> None:
    """Print the table. Contestants take turns, because the machine drifts; each ratio is within one round."""
    print(f"\ncollect one result of {size_mib} MiB, {rounds} rounds (median)")
    print(f"{'':<46}{'MB/s':>16}{'of curl|sha256':>16}{'of curl+sync':>16}{'CPU s/GB':>16}{'memory added':>16}")
    runs: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="opledger-bench-", dir=os.environ.get("BENCH_DIR")) as name:
        files = {form: make(Path(name) / form, form, size_mib * MIB) for form in FORMS}
        for _ in range(rounds):
            with provider(files["binary"]) as url:
                runs.setdefault("curl | sha256sum", []).append(_shell('curl -sf "$1" | sha256sum', url))
                script = 'curl -sf "$1" | tee file | sha256sum && sync file'
                runs.setdefault("curl | tee file | sha256sum, and sync", []).append(_shell(script, url))
            for form, file in files.items():
                with provider(file) as url:
                    runs.setdefault(f"opledger, {form}", []).append(_child(url, form))
    bases = list(runs.values())[:2]
    for label, measured in runs.items():
        rate = size_mib * MIB / 1e6 / statistics.median(run["wall"] for run in measured)
        ratios = (
            statistics.median(one["wall"] / run["wall"] for one, run in zip(base, measured, strict=True))
            for base in bases
        )
        cpu = statistics.median(run["cpu"] for run in measured) / (size_mib * MIB / 1e9)
        adds = f"{statistics.median(run['adds'] for run in measured):.0f} MiB" if "adds" in measured[0] else ""
        columns = [f"{rate:.0f}", *(f"{ratio:.2f}" for ratio in ratios), f"{cpu:.1f}", adds]
        print(f"{label:<46}" + "".join(f"{column:>16}" for column in columns), flush=True)


def make(path: Path, form: str, size: int) -> Path:
    """Write a file of about this size: noise, or rows as providers write them."""
    rows: Callable[[int], bytes] = {
        "binary": lambda _: os.urandom(MIB),
        "jsonl": lambda n: b'{"id": "item_%d", "status": "ok", "value": 12.5, "text": "%s"}\n' % (n, b"words " * 30),
        "csv": lambda n: b'item_%d,ok,12.5,"%s"\n' % (n, b"words, " * 25),
    }[form]
    block = b"".join(rows(n) for n in range(1 if form == "binary" else MIB // 200))
    with path.open("wb") as file:
        file.write(b"id,status,value,text\n" if form == "csv" else b"")
        while file.tell() < size:
            file.write(block)
    return path


def main() -> None:
    """Print the table, or be one of its child processes."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.collect")
    parser.add_argument("size_mib", type=int, nargs="?", default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", type=Path)
    parser.add_argument("--ours")
    parser.add_argument("--form", default="binary")
    chosen = parser.parse_args()
    if chosen.serve is not None:
        serve(chosen.serve)
    elif chosen.ours is not None:
        print(json.dumps(ours(chosen.ours, chosen.form)))
    else:
        contest(chosen.size_mib, chosen.rounds)


if __name__ == "__main__":
    main()
