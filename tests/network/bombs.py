"""Answers that are made to hurt (T19): how much memory they cost, and how soon their outcome is on record.

Provider and worker are processes of their own; the worker's is this module: ``python -m tests.network.bombs URL LOG``.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.network.bomber import NAMES, PLACES

ROOT: Final = Path(__file__).resolve().parents[2]
BOUND: Final = 64.0
"""MiB above the worker's base that no bomb may take (I26)."""
TIMEOUT: Final = 2.0
"""Seconds of a call's total deadline."""
LATE: Final = 1.0
"""Seconds after which, beyond that deadline, the outcome is on record."""

CONTRACT: Final = """\
name = "bombs"
base_url = "BASE"
[create]
method = "POST"
path = "/jobs"
job_id = "/id"
timeout = "2s"
fields = { "/ref" = "{operation_id}" }
[create.idempotency]
mechanism = "none"
[[reconcile]]
strategy = "list"
path = "/jobs"
query = { ref = "{operation_id}" }
items = "/data"
item_id = "/id"
match = "item.ref == operation.operation_id"
timeout = "2s"
[status]
path = "/jobs/{job_id}"
state = "/state"
timeout = "2s"
[status.states]
queued = ["queued"]
succeeded = ["succeeded"]
[poll]
first = "50ms"
factor = 1.2
max = "200ms"
[cancel]
method = "DELETE"
path = "/jobs/{job_id}"
[result]
path = "/jobs/{job_id}/result"
timeout = "2s"
format = "json"
max_size = "8MiB"
"""

KINDS: Final = {
    "create": {"CallLost"},
    "list": {"Inconclusive"},
    "status": {"ReadFailed"},
    "result": {"ReadFailed", "ResultInvalid", "ResultMissing"},
}
"""What the journal may say of a bomb in each place."""
HARMLESS: Final = {
    **{("result", name): {"ResultAccepted"} for name in ("keys-within", "deep", "exponent", "escapes")},
    **{("status", name): {"Observed"} for name in ("keys-within", "escapes")},
}
"""What is only large may be taken for what it is."""


@dataclass
class Tally:
    """What was set off and what came of it."""

    bombs: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    states: dict[str, int] = field(default_factory=dict)
    peak: float = 0.0  #: MiB above the base, at most
    late: float = 0.0  #: seconds beyond the deadline, at most
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Round:
    """Bombs that go off at the same time."""

    place: str
    names: Sequence[str]


def rounds(names: Sequence[str] = NAMES, places: Sequence[str] = PLACES, *, at_once: int = 1) -> list[Round]:
    """All bombs in all places, so many at once."""
    return [Round(place, names[start : start + at_once]) for place in places for start in range(0, len(names), at_once)]


def run(chosen: Sequence[Round], *, late: float = LATE, broken: str = "", limit: float = 1500) -> Tally:
    """Run them in one worker, one round after the other, for `limit` seconds at most.

    `broken` names product code that is switched off there.
    """
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="opledger-bombs-") as name:
        log = Path(name) / "log"
        log.touch()
        command = [
            sys.executable,
            "-m",
            "tests.network.bomber",
            str(log),
            *sorted({name for one in chosen for name in one.names}),
        ]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as provider:
            assert provider.stdin is not None
            assert provider.stdout is not None
            url = f"http://127.0.0.1:{int(provider.stdout.readline())}"
            plan = json.dumps([[one.place, list(one.names)] for one in chosen])
            worker = [sys.executable, "-m", "tests.network.bombs", url, plan, broken]
            done = subprocess.run(worker, check=False, capture_output=True, text=True, cwd=ROOT, timeout=limit)
            provider.stdin.close()
        if done.returncode:
            tally.faults.append(f"bombs: the worker died: {done.stderr[-1500:]}")
        began = {line["job"]: line["at"] for line in map(json.loads, log.read_text().splitlines())}
    for line in done.stdout.splitlines():
        _judge(tally, json.loads(line), began, late)
    if not done.returncode and tally.bombs != sum(len(one.names) for one in chosen):
        tally.faults.append(f"bombs: only {tally.bombs} went off")
    return tally


def _judge(tally: Tally, told: dict[str, Any], began: dict[str, float], late: float) -> None:
    where = f"bombs {told['place']} {','.join(told['names'])}"
    tally.peak = max(tally.peak, told["peak"])
    if told["peak"] > BOUND:
        tally.faults.append(f"{where}: {told['peak']:.1f} MiB above the base")
    for job, found in told["jobs"].items():
        place, name, _ = job.split(".")
        tally.bombs += job in began
        state = found["state"]
        tally.states[state] = tally.states.get(state, 0) + 1
        kinds = KINDS[place] | HARMLESS.get((place, name), set())
        outcomes = [(at, kind) for at, kind in found["events"] if kind in kinds]
        if not outcomes or job not in began:
            tally.faults.append(f"bombs {place} {name}: no outcome on record: {found}")
            continue
        at, kind = outcomes[-1] if place == "list" else outcomes[0]
        over = at - began[job] - TIMEOUT
        tally.late = max(tally.late, over)
        tally.outcomes[f"{place} {kind}"] = tally.outcomes.get(f"{place} {kind}", 0) + 1
        if over > late:
            tally.faults.append(f"bombs {place} {name}: its outcome came {over:.1f} s after the deadline")
        ends = {
            "create": {"create_unknown", "succeeded"}, "list": {"succeeded", "create_unknown"},
            "status": {"succeeded"}, "result": {"succeeded", "result_validation_failed"},
        }[place]  # fmt: skip
        if state not in ends:
            tally.faults.append(f"bombs {place} {name}: it ended as {state}: {found['events']}")


# --- the worker's process -----------------------------------------------------------------------------------------


def work(url: str, plan: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Run every round and print, for each, the memory that it took and what the journal says."""
    from opledger.config import load_settings
    from opledger.ledger import Ledger
    from opledger.service import make_worker, serve
    from tests.bench.contestants import resident_mib, run_async
    from tests.bench.memory import _high_water

    with tempfile.TemporaryDirectory(prefix="opledger-bombs-") as name:
        folder = Path(name)
        (folder / "contracts").mkdir()
        (folder / "contracts" / "bombs.toml").write_text(CONTRACT.replace("BASE", url))
        database = f"sqlite:///{folder / 'ledger.db'}"
        environment = {"OPLEDGER_CONTRACTS": str(folder / "contracts")}
        settings = load_settings({"db": database, "operator": "bench"}, environment, folder, folder, folder)
        with Ledger.open(database, settings=settings) as ledger:

            def once(place: str, names: Sequence[str]) -> dict[str, Any]:
                made = {
                    f"{place}.{bomb}.{n}": ledger.submit("bombs", {"place": place, "bomb": bomb, "n": n}).operation_id
                    for n, bomb in enumerate(names)
                }
                worker = make_worker(ledger.store, results=folder / "results", name="bombed")
                run_async(serve(worker, asyncio.Event(), until_idle=True))
                return {
                    job: {
                        "state": str(ledger.show(one).state),
                        "events": [[event.at.timestamp(), event.kind] for event in ledger.events(one)],
                    }
                    for job, one in made.items()
                }

            once("nowhere", ["none"])
            gc.collect()
            base = resident_mib()
            for place, names in plan:
                Path("/proc/self/clear_refs").write_text("5")
                jobs = once(place, names)
                peak = _high_water() - base
                print(json.dumps({"place": place, "names": names, "peak": peak, "jobs": jobs}), flush=True)


def _switch_off(what: str) -> None:
    """Break the product, in this process only."""
    from opledger.edges import bodies

    if what == "unpacking":
        bodies.STEP = 1 << 30  # type: ignore[misc]
        bounded = bodies.Unpacker.feed

        def feed(unpacker: bodies.Unpacker, data: bytes) -> Iterator[bytes]:
            return bounded(unpacker, data) if unpacker._coding is None else unpacker._inflated(data)

        bodies.Unpacker.feed = feed  # type: ignore[assignment,method-assign]
    elif what:
        raise SystemExit(f"nothing is called {what}")


if __name__ == "__main__":
    _switch_off(sys.argv[3])
    work(sys.argv[1], json.loads(sys.argv[2]))
