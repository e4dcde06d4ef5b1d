"""The poll workload side by side with other durable engines: ``python -m tests.bench peers``.

Each rival is installed into an environment of its own below a cache folder, once, and runs the program in
`tests.bench.rivals` that is written as its documentation says. All take turns with opledger and the hand-written loop
against the same provider. A rival's program ends with an error unless its own database says that every operation is
done. What its server takes is not in its CPU, unless it says so in a column of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.provider import Provider

Figures = dict[str, float]

ROOT: Final = Path(__file__).resolve().parents[2]
LONGEST: Final = 1_800
"""Seconds that one run may take."""

TRANSPORT: Final = ("httpx==0.28.1", "httpx-aiohttp>=0.2,<0.3", "aiohttp>=3.13,<4", "uvloop>=0.21")


@dataclass(frozen=True, slots=True)
class Rival:
    """Another engine: what is installed for it, and what it needs besides."""

    name: str  #: of its program, and of its environment
    packages: tuple[str, ...]
    postgres: bool = False
    npm: str = ""  #: a package of npm that brings its server
    share: int = 1  #: it gets one operation in so many: for all of them nobody would wait


RIVALS: Final = {
    "DBOS, SQLite": Rival("dbos", ("dbos>=3.4,<4",)),
    "DBOS, PostgreSQL": Rival("dbos", ("dbos>=3.4,<4",), postgres=True),
    "procrastinate, PostgreSQL": Rival(
        "procrastinate", ("procrastinate>=3.10,<4", "psycopg[binary,pool]>=3.3,<4"), postgres=True
    ),
    "Restate": Rival("restate", ("restate-sdk>=1.3,<2", "hypercorn>=0.18"), npm="@restatedev/restate-server@1.7"),
    "Prefect, SQLite": Rival("prefect", ("prefect>=3.9,<4",), share=10),
}


class Broke(Exception):
    """A rival's program ended with an error, or without all operations done."""


def cache() -> Path:
    """Where the environments stand: below XDG_CACHE_HOME."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opledger-bench"


def install(rival: Rival) -> dict[str, str] | None:
    """Make a rival's environment where there is none; what its program is told besides, None where it cannot be had."""
    folder = cache() / rival.name
    wanted = "\n".join((*rival.packages, *TRANSPORT, rival.npm))
    mark = folder / "installed"
    if not mark.exists() or mark.read_text() != wanted:
        print(f"installing {rival.name} into {folder} ...", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.run([*pip, *rival.packages, *TRANSPORT], check=False).returncode:
            return None
        if rival.npm:
            npm = shutil.which("npm")
            if npm is None:
                print(f"{rival.name}: its server comes by npm, and there is none on this machine", flush=True)
                return None
            if subprocess.run([npm, "install", "--silent", "--prefix", str(folder), rival.npm], check=False).returncode:
                return None
        mark.write_text(wanted)
    servers = sorted(folder.glob("node_modules/@restatedev/*/bin/restate-server"))
    return {"RESTATE_SERVER": str(servers[0])} if servers else {}


def run(rival: Rival, base_url: str, count: int, database: str, environment: dict[str, str]) -> Figures:
    """Run a rival's program once."""
    python = cache() / rival.name / "bin/python"
    with tempfile.TemporaryDirectory(prefix="opledger-bench-") as folder, contextlib.ExitStack() as around:
        told = {**os.environ, **environment, "PYTHONPATH": str(ROOT)}
        if rival.name == "prefect":
            told |= around.enter_context(_prefect_server(python.parent, Path(folder)))
        command = [str(python), "-m", f"tests.bench.rivals.with_{rival.name}", base_url, str(count), folder]
        finished = subprocess.run(
            [*command, "--db", database],
            env=told,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
    if finished.returncode:
        raise Broke(finished.stderr[-2000:])
    figures: Figures = json.loads(finished.stdout.splitlines()[-1])
    return figures


@contextlib.contextmanager
def _prefect_server(programs: Path, folder: Path) -> Iterator[dict[str, str]]:
    """Prefect's server with a database in the folder; what its clients are told."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    told = {"PREFECT_HOME": str(folder), "PREFECT_LOGGING_LEVEL": "ERROR", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    log = (folder / "server.log").open("wb")
    command = [str(programs / "prefect"), "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(command, env={**os.environ, **told}, stdout=log, stderr=log)
    api = f"http://127.0.0.1:{port}/api"
    try:
        ends = time.monotonic() + 120
        while not _answers(f"{api}/health"):
            assert server.poll() is None and time.monotonic() < ends, (folder / "server.log").read_text()[-2000:]
            time.sleep(0.25)
        yield {**told, "PREFECT_API_URL": api}
    finally:
        server.terminate()
        server.wait()
        log.close()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def contest(
    count: int,
    rounds: int,
    only: Sequence[str],
    ours: Callable[[str, str, int, str | None], Figures],
    server: str | None,
    fresh: Callable[[str], str],
) -> None:
    """Print polls/s and CPU of all, and how many times as fast opledger is.

    `ours` runs one of the contestants of this tree: "hand" or "ours". Without a `server`, who needs PostgreSQL is left
    out.
    """
    rivals = {}
    for label, rival in RIVALS.items():
        if (only and rival.name not in only) or (rival.postgres and server is None):
            continue
        environment = install(rival)
        if environment is None:
            print(f"{label}: not to be had here; left out", flush=True)
        else:
            rivals[label] = (rival, environment)
    runs: dict[str, list[Figures]] = {}
    shares = {label: max(count // rival.share, 1) for label, (rival, _) in rivals.items()}
    for _ in range(rounds):
        for label, name in (("hand-written loop", "hand"), ("opledger, SQLite FULL", "ours")):
            with Provider() as provider:
                runs.setdefault(label, []).append(ours(name, provider.base_url, count, None))
        if server is not None:
            with Provider() as provider:
                runs.setdefault("opledger, PostgreSQL", []).append(
                    ours("ours", provider.base_url, count, fresh(server))
                )
        for label, (rival, environment) in list(rivals.items()):
            database = fresh(server) if rival.postgres and server is not None else ""
            try:
                with Provider() as provider:
                    figures = run(rival, provider.base_url, shares[label], database, environment)
            except (Broke, subprocess.TimeoutExpired) as broke:
                print(f"{label} did not do all of it, and is left out:\n{broke}", flush=True)
                runs.pop(label, None)
                del rivals[label]
            else:
                runs.setdefault(label, []).append(figures)
    _table(count, rounds, runs, shares)


def _table(count: int, rounds: int, runs: dict[str, list[Figures]], shares: dict[str, int]) -> None:
    print(f"\npoll workload beside others, N = {count}, {rounds} rounds (median)")
    heads = ("polls/s", "CPU s/1000", "its server", "opledger is", "with its CPU")
    print(f"{'':<34}" + "".join(f"{head:>14}" for head in heads))
    for label, measured in runs.items():
        polls = 5 * shares.get(label, count)
        # Like with like: who keeps its record in PostgreSQL is measured against opledger on PostgreSQL.
        base = runs["opledger, PostgreSQL" if "PostgreSQL" in label else "opledger, SQLite FULL"]
        pairs = list(zip(base, measured, strict=True))
        faster = statistics.median((run["wall"] / polls) / (own["wall"] / (5 * count)) for own, run in pairs)
        cheaper = statistics.median((run["cpu"] / polls) / (own["cpu"] / (5 * count)) for own, run in pairs)
        wall, cpu = (statistics.median(run[key] for run in measured) for key in ("wall", "cpu"))
        beside = [run["server_cpu"] for run in measured if "server_cpu" in run]
        also = f"{statistics.median(beside) / polls * 1000:.2f}" if beside else ""
        few = "" if polls == 5 * count else f" (N = {polls // 5})"
        print(
            f"{label + few:<34}{polls / wall:>14.0f}{cpu / polls * 1000:>14.2f}{also:>14}"
            f"{f'{faster:.1f} x':>14}{f'{cheaper:.1f} x':>14}",
            flush=True,
        )
