"""The poll workload side by side with other durable engines: ``python -m tests.bench peers``.

Each rival is installed into an environment of its own below a cache folder, once, and runs the program in
`tests.bench.rivals` that is written as its documentation says. All take turns with opledger and the hand-written loop
against the same provider. A rival's program ends with an error unless its own database says that every operation is
done. What its server takes is not in its CPU, unless it says so in a column of its own.

Prefect is not among them: on SQLite its server answered one poll of one flow in a hundred seconds beside other work
("database is locked"), and on PostgreSQL it wants an extension that the server of the tests does not have.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
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


RIVALS: Final = {
    "DBOS, SQLite": Rival("dbos", ("dbos>=3.4,<4",)),
    "DBOS, PostgreSQL": Rival("dbos", ("dbos>=3.4,<4",), postgres=True),
    "procrastinate, PostgreSQL": Rival(
        "procrastinate", ("procrastinate>=3.10,<4", "psycopg[binary,pool]>=3.3,<4"), postgres=True
    ),
    "Restate": Rival("restate", ("restate-sdk>=1.3,<2", "hypercorn>=0.18"), npm="@restatedev/restate-server@1.7"),
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
    with tempfile.TemporaryDirectory(prefix="opledger-bench-") as folder:
        told = {**os.environ, **environment, "PYTHONPATH": str(ROOT)}
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
                    figures = run(rival, provider.base_url, count, database, environment)
            except (Broke, subprocess.TimeoutExpired) as broke:
                print(f"{label} did not do all of it, and is left out:\n{broke}", flush=True)
                runs.pop(label, None)
                del rivals[label]
            else:
                runs.setdefault(label, []).append(figures)
    _table(count, rounds, runs)


def _table(count: int, rounds: int, runs: dict[str, list[Figures]]) -> None:
    print(f"\npoll workload beside others, N = {count}, {rounds} rounds (median)")
    heads = ("polls/s", "CPU s/1000", "its server", "opledger is", "with its CPU")
    print(f"{'':<34}" + "".join(f"{head:>14}" for head in heads))
    polls = 5 * count
    for label, measured in runs.items():
        # Like with like: who keeps its record in PostgreSQL is measured against opledger on PostgreSQL.
        base = runs["opledger, PostgreSQL" if "PostgreSQL" in label else "opledger, SQLite FULL"]
        pairs = list(zip(base, measured, strict=True))
        faster = statistics.median(run["wall"] / own["wall"] for own, run in pairs)
        cheaper = statistics.median(run["cpu"] / own["cpu"] for own, run in pairs)
        wall, cpu = (statistics.median(run[key] for run in measured) for key in ("wall", "cpu"))
        beside = [run["server_cpu"] for run in measured if "server_cpu" in run]
        also = f"{statistics.median(beside) / polls * 1000:.2f}" if beside else ""
        print(
            f"{label:<34}{polls / wall:>14.0f}{cpu / polls * 1000:>14.2f}{also:>14}"
            f"{f'{faster:.1f} x':>14}{f'{cheaper:.1f} x':>14}",
            flush=True,
        )
