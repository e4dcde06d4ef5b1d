"""Which stories, how many points, on how many processes; and what is printed of it."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from opledger.edges.clock import new_id
from opledger.sim.process import SimProcess
from opledger.store import open_database
from tests.disk import breaks
from tests.disk import faults as failing
from tests.disk import power as power_cuts
from tests.disk.recorder import nothing, record
from tests.disk.stories import SHORT, STORIES, Place, Story, live, prepare
from tests.support.forking import made_once

SHOWN: Final = 20
"""Violations that are printed."""


@contextmanager
def bench() -> Iterator[Path]:
    """A folder in memory, with an empty ledger in it."""
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    base = Path(tempfile.mkdtemp(prefix="opledger-disk-", dir=parent))
    try:
        open_database(f"sqlite:///{base / 'template.db'}").close()
        _load(base)
        yield base
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _load(base: Path) -> None:
    """Import and make here whatever a child had by its end: otherwise each of them would, anew."""
    with SimProcess() as sim:
        life = live(stage(base, 0, STORIES["approve"], sim), last=lambda: sorted(sys.modules))
    assert life.ended == 0, life.said
    for name in life.facts["last"]:
        with suppress(ImportError):
            import_module(name)
    made_once()


def stage(base: Path, job: int, story: Story, sim: SimProcess) -> Place:
    """A place where the story can begin."""
    place = Place(base / f"job-{job}", story, tuple(new_id("op") for _ in story.bodies))
    prepare(place, sim.base_url, sim.elsewhere, base / "template.db")
    return place


Tell = Callable[[dict[str, Any]], None]


def on_jobs(jobs: int, work: Callable[[int, Tell], None]) -> Iterator[dict[str, Any]]:
    """Run `work` in so many processes, and yield what they tell. Raises AssertionError where one broke.

    Ctrl-C ends them, and no more is told.
    """
    ours, theirs = os.pipe()
    sys.stdout.flush()
    children = []
    for job in range(jobs):
        child = os.fork()
        if child == 0:
            os.close(ours)
            _job(job, theirs, work)
        children.append(child)
    os.close(theirs)
    try:
        with os.fdopen(ours, "rb") as pipe:
            for line in pipe:
                yield json.loads(line)
    except KeyboardInterrupt:  # what was reached until then counts
        print("stopped early", flush=True)
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        return
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert not any(ends), f"a part of the harness itself broke: {ends}"


def _job(job: int, pipe: int, work: Callable[[int, Tell], None]) -> None:
    code = 1
    try:
        # A pipe takes up to 4,096 bytes in one piece, whoever else writes into it.
        work(job, lambda told: _put(pipe, json.dumps(told).encode() + b"\n"))
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _put(pipe: int, line: bytes) -> None:
    assert len(line) <= 4096, "too much to tell in one piece"
    os.write(pipe, line)


def chosen(asked: Namespace, extra: tuple[str, ...] = ()) -> list[Story]:
    """The stories that are to be told."""
    if asked.only:
        return [STORIES[asked.only]]
    return list(STORIES.values()) if asked.long else [STORIES[name] for name in (*SHORT, *extra)]


# --- power cuts ------------------------------------------------------------------------------------------------------


def power(asked: Namespace) -> int:
    """Cut the power at every point of every story."""
    break_it = breaks.POWER[asked.broken] if asked.broken else nothing
    stories = chosen(asked, ("several", "busy"))
    wanted = asked.images or (100_000 if asked.long else 2_000)
    jobs = 1 if asked.trace else min(asked.jobs, len(stories))
    began = time.monotonic()
    total: Counter[str] = Counter()
    broken: list[dict[str, Any]] = []
    with bench() as base:

        def work(job: int, tell: Tell) -> None:
            if asked.trace:
                _cut(asked, pickle.loads(asked.trace.read_bytes()), asked.seed, 1.0, base / "job-0", tell)
                return
            with SimProcess(seed=asked.seed) as sim:
                done, turn = 0, 0
                while done < wanted / jobs if asked.long or asked.only else turn * jobs + job < len(stories):
                    story = stories[(turn * jobs + job) % len(stories)]
                    seed = asked.seed + (turn * jobs + job) // len(stories)
                    turn += 1
                    place = stage(base, job, story, sim)
                    trace = record(place, break_it)
                    # In the short form each story has its share, spread over all of it.
                    share = 1.0 if asked.long else min(1.0, wanted / len(stories) / (9 * len(trace.entries)))
                    done += _cut(asked, trace, seed, share, place.folder, tell)

        for told in on_jobs(jobs, work):
            if "broken" in told:
                broken.append(told)
                if len(broken) <= SHOWN:
                    print(_violation(told), flush=True)
                continue
            total.update(told["counts"])
            words = ", ".join(f"{number:,} {name}" for name, number in told["counts"].items() if number)
            print(f"{told['story']:10} seed {told['seed']:<3} {words}, {told['seconds']:.0f} CPU s", flush=True)
        caught = bool(asked.long or asked.trace or asked.broken) or _prove_power(asked, base, stories[0])
    _summary(total, broken, time.monotonic() - began)
    missed = [] if asked.trace or asked.broken else [name for name in MUST if not total[name]]
    if missed:
        print(f"nothing was proved: the run saw no {', no '.join(missed)}")
    return 1 if broken or missed or not caught else 0


def _prove_power(asked: Namespace, base: Path, story: Story) -> bool:
    """Damage the product in memory, in one way after the other: each must be caught."""
    caught = True
    with SimProcess(seed=asked.seed) as sim:
        for name, damage in breaks.POWER.items():
            place = stage(base, 0, story, sim)
            trace = record(place, damage)
            points = range(len(trace.entries), 0, -max(1, len(trace.entries) // 6))
            found = power_cuts.check(trace, place.folder, power_cuts.images(trace, asked.seed, only=points))
            harm = ", ".join(f"{found.counts[kind]} {kind}" for kind in power_cuts.HARM if found.counts[kind])
            print(f"damaged product: {name:8} of {found.counts['images']} images {harm or 'NONE CAUGHT'}", flush=True)
            caught &= bool(found.broken)
    return caught


MUST: Final = ("images", "commits", "undone", "done", "states", "files", "audits", "sends")
"""What every run must have seen: a commit that a cut undid, one that it let be, results and keys beside, and so on."""


def _cut(asked: Namespace, trace: Any, seed: int, share: float, base: Path, tell: Tell) -> int:
    began = time.process_time()
    only = None if asked.at is None else (asked.at,)
    found = power_cuts.check(trace, base, power_cuts.images(trace, seed, share=share, only=only))
    counts = Counter({"images": 0, "points": len(trace.entries), "commits": trace.commits, "sends": trace.sends})
    counts.update(found.counts)
    if found.broken:
        kept = asked.trace or _keep(trace, seed)
        for why in found.broken:
            tell({"broken": why[:600], "story": trace.story, "seed": seed, "trace": str(kept)})
    told = {"story": trace.story, "seed": seed, "counts": counts, "seconds": time.process_time() - began}
    tell(told)
    return counts["images"]


def _keep(trace: Any, seed: int) -> Path:
    path = Path(tempfile.gettempdir()) / f"opledger-{trace.story}-{seed}-{os.getpid()}.trace"
    path.write_bytes(pickle.dumps(trace))
    return path


def _violation(told: dict[str, Any]) -> str:
    point = told["broken"].split()[1]
    again = f"python -m tests.disk power --seed {told['seed']} --trace {told['trace']} --at {point}"
    return f"VIOLATION {told['story']}, seed {told['seed']}, {told['broken']}; repeat: {again}"


def _summary(total: Counter[str], broken: list[dict[str, Any]], seconds: float) -> None:
    harm = ", ".join(f"{total[kind]:,} {kind}" for kind in power_cuts.HARM)
    print(
        f"power: {total['images']:,} images of {total['points']:,} points, {total['commits']:,} commits acknowledged, "
        f"{total['sends']:,} sends; in mid-commit {total['undone']:,} undone and {total['done']:,} done; "
        f"{total['files']:,} files compared, {total['audits']:,} audits; {seconds:.0f} s\n"
        f"power: {harm}: {len(broken):,} violations"
    )


# --- failing calls ---------------------------------------------------------------------------------------------------


def faults(asked: Namespace) -> int:
    """Let the n-th call fail, in each of the ways."""
    break_it = breaks.FAULTS[asked.broken][0] if asked.broken else nothing
    stories = chosen(asked)
    began = time.monotonic()
    total: Counter[str] = Counter()
    broken: list[dict[str, Any]] = []
    done: Counter[tuple[str, str]] = Counter()
    with bench() as base:
        with SimProcess(seed=asked.seed) as sim:
            clean = {story.name: failing.clean_run(stage(base, 0, story, sim), sim) for story in stories}
        cases = _cases(asked, clean)
        jobs = min(asked.jobs, len(cases)) or 1

        def work(job: int, tell: Tell) -> None:
            with SimProcess(seed=asked.seed) as sim:
                for one in cases[job::jobs]:
                    for at in _tries(one, len(clean[one.story].calls[one.kind])):
                        sim.control(reset=True)
                        place, kind = stage(base, job, STORIES[one.story], sim), failing.KINDS[one.kind]
                        case = failing.run(place, sim, kind, at, clean[one.story], break_it, call=one.call)
                        shutil.rmtree(place.folder, ignore_errors=True)
                        about = {**one._asdict(), "nth": at, "struck": case.struck}
                        tell({**about, "counts": case.counts})
                        for why in case.broken:
                            tell({**about, "broken": why[:900]})
                        if case.broken:
                            _log(case).write_text(case.told, encoding="utf-8")
                        if (case.struck is None) != bool(one.call):
                            break

        for told in on_jobs(jobs, work):
            if "broken" in told:
                broken.append(told)
                if len(broken) <= SHOWN:
                    print(_fault(told, asked), flush=True)
            else:
                done[told["story"], told["kind"]] += told["struck"] is not None
                total.update(told["counts"])
                total["cases"] += told["struck"] is not None
                total["clean"] += told["struck"] is None
                if (seen := total["cases"] + total["clean"]) % 25 == 0:
                    print(f"… {seen} of {len(cases)} cases", flush=True)
        caught = bool(asked.long or asked.broken) or _prove_faults(asked, base, clean[stories[0].name], stories[0])
    for story in clean:
        counts = (f"{kind} {done[story, kind]} of {len(clean[story].calls[kind])}" for kind in failing.KINDS)
        print(f"{story:10} {', '.join(counts)}")
    struck = {name: number for name, number in sorted(total.items()) if " " in name}
    print(f"faults: {', '.join(f'{name} {number}' for name, number in struck.items())}")
    print(
        f"faults: {total['cases']:,} cases in {len(clean)} stories, {total['clean']:,} runs past the last call; "
        f"commands that were refused in {total['refused']:,}, the disk named in {total['told']:,}, unnoticed in "
        f"{total['silent']:,}; {time.monotonic() - began:.0f} s: {len(broken):,} violations"
    )
    missed = [] if asked.only or asked.kind or asked.broken else [name for name in STRUCK if not struck.get(name)]
    if missed:
        print(f"nothing was proved: nothing struck {', '.join(missed)}")
    return 1 if broken or missed or not caught else 0


def _prove_faults(asked: Namespace, base: Path, clean: failing.Clean, story: Story) -> bool:
    """Damage the product in memory, in one way after the other: each must be caught."""
    caught = True
    with SimProcess(seed=asked.seed) as sim:
        for name, (damage, kind) in breaks.FAULTS.items():
            sim.control(reset=True)
            case = failing.run(stage(base, 0, story, sim), sim, kind, 1, clean, damage)
            print(f"damaged product: {name:8} {case.broken[0][:120] if case.broken else 'NOT CAUGHT'}", flush=True)
            caught &= bool(case.broken)
    return caught


STRUCK: Final = (
    *(f"database {what}" for what in ("open", "write", "sync", "truncate", "delete")),
    *(f"files {what}" for what in ("open", "write", "sync", "syncdir", "link", "mkdir", "delete")),
)
"""What every run must have struck."""


class _One(NamedTuple):
    """The call that is to fail: the nth of a story that can fail in this way, or the nth of one kind of call."""

    story: str
    kind: str
    nth: int
    call: str = ""


def _tries(one: _One, calls: int) -> Iterable[int]:
    """Which calls are struck, one after the other: behind the last one until a run is clean.

    How many there are of a kind of call depends on who was faster. Where there were not so many the first is struck.
    """
    if one.call:
        return dict.fromkeys((one.nth, 1))
    return itertools.count(one.nth) if one.nth > calls else (one.nth,)


def _cases(asked: Namespace, clean: Mapping[str, failing.Clean]) -> list[_One]:
    """What is to fail; one behind the last call means: go on until a run is clean."""
    random, found = Random(f"{asked.seed} faults"), []
    kinds = [asked.kind] if asked.kind else list(failing.KINDS)
    for kind in kinds:
        rare: dict[str, list[_One]] = {}
        for story, good in clean.items():
            calls = good.calls[kind]
            if asked.calls:
                found += [_One(story, kind, asked.at or 1, call) for call in asked.calls.split(",")]
            elif asked.at is not None:
                found.append(_One(story, kind, asked.at))
            elif asked.long and asked.points is None:
                found += [_One(story, kind, nth) for nth in range(1, len(calls) + 2)]
            else:
                points = min(asked.points or 2, len(calls))
                found += [_One(story, kind, nth) for nth in sorted(random.sample(range(1, len(calls) + 1), points))]
            for call, times in Counter(calls).items():
                rare.setdefault(call, []).extend(_One(story, kind, nth, call) for nth in range(1, times + 1))
        if asked.at is None and not asked.calls and not (asked.long and asked.points is None):
            found += [random.choice(rare[call]) for call in sorted(rare)]
    found = sorted(set(found))
    random.shuffle(found)
    return found


def _log(case: failing.Case) -> Path:
    return Path(tempfile.gettempdir()) / f"opledger-{case.story}-{case.kind}-{case.nth}.log"


def _fault(told: dict[str, Any], asked: Namespace) -> str:
    again = f"python -m tests.disk faults --only {told['story']} --kind {told['kind']} --at {told['nth']}"
    again += f" --break {asked.broken}" if asked.broken else ""
    again += f" --calls '{told['call']}'" if told["call"] else ""
    where = f"{told['story']}, {told['kind']} at call {told['nth']} ({told['struck']})"
    return f"VIOLATION {where}: {told['broken']}; repeat: {again}"
