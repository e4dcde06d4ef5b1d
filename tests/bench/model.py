"""``make bench-model``: what this machine's unit costs mean for loads up to a hundred million open operations.

Two minutes of measuring (`units`), then arithmetic (`capacity`) and a schedule in virtual time (`schedule`). The model
is held against one measured point: ten thousand open operations under a real worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Final

from tests.bench import capacity, schedule, units
from tests.bench.capacity import USE, Costs, Load, Site

HOUR: Final = 3600.0
DAY: Final = 86_400.0

LOADS: Final = {
    "10 thousand, a poll a minute": Load(10_000, 60, HOUR),
    "100 thousand, a poll a minute": Load(100_000, 60, HOUR),
    "1 million, a poll a minute": Load(1_000_000, 60, DAY),
    "10 million, a poll in 5 minutes": Load(10_000_000, 300, DAY),
    "100 million, a poll in 10 minutes": Load(100_000_000, 600, DAY),
}

POINT: Final = 10_000
"""Open operations of the point that is measured."""

MINUTE: Final = Load(100_000, 60, HOUR)
"""The mix by which it is said what one worker, one file and one server carry: an hour's job, polled each minute."""


def report(fresh: Callable[[], str | None] | None, *, big: int = 100_000_000) -> bool:
    """Measure and print; `fresh` makes an empty database on a PostgreSQL server. False where the model is far off."""
    began = time.monotonic()
    first = units.costs("sqlite", lambda: None, 0.0)
    half, whole = units.points([POINT // 2, POINT])
    found = {"SQLite": replace(first, wake=units.wake(first, half))}
    if fresh is not None:
        found["PostgreSQL"] = units.costs("postgresql", fresh, found["SQLite"].wake)
    _costs(found)
    fits = _point(found["SQLite"], whole)
    print(f"  measured in {time.monotonic() - began:.0f} s; what follows is computed")
    for name, costs in found.items():
        _loads(name, costs)
        _carries(name, costs)
    _schedule(big, next(reversed(found.values())))
    return fits


def _costs(found: dict[str, Costs]) -> None:
    print("\nunit costs" + "".join(f"{name:>16}" for name in found))
    for field in fields(Costs):
        if field.name == "kind":
            continue
        values = [float(getattr(one, field.name)) for one in found.values()]
        size = "bytes" in field.name or "log" in field.name
        shown = [f"{value:,.0f} B" if size else f"{value * 1e6:,.0f} us" for value in values]
        if field.name == "idle":
            shown = [f"{value:.1%}" for value in values]
        print(f"  {field.name:<22}" + "".join(f"{one:>14}" for one in shown))


def _point(costs: Costs, seen: units.Figures) -> bool:
    """Hold the model against a worker over many open operations; what it says must not be twice off.

    What a poll costs alone was measured with half as many.
    """
    load = Load(POINT, POINT / seen["asked"], 1e12, latency=0.001)
    wanted = capacity.needs(load, costs)
    print(f"\none measured point: {POINT:,} open operations, SQLite, {seen['asked']:.0f} polls/s asked for")
    print(f"  {'':<22}{'measured':>14}{'model':>14}{'error':>10}")
    fits = True
    for name, real, said in (
        ("polls/s", seen["polls"], load.polls),
        ("worker CPU, cores", seen["cpu"], wanted.cpu),
        ("bytes of a poll", seen["bytes"], costs.poll_bytes),
    ):
        print(f"  {name:<22}{real:>14.3g}{said:>14.3g}{said / real - 1:>10.0%}")
        fits = fits and real / 2 <= said <= real * 2
    print(f"  late: p50 {seen['late_p50_ms']:.0f} ms, p99 {seen['late_p99_ms']:.0f} ms (due until on record)")
    return fits


def _loads(name: str, costs: Costs) -> None:
    print(f"\n{name}: what loads ask for (each operation lives an hour; from a million on, a day)")
    heads = ("polls/s", "rows/s", "workers", "server", "WAL MB/s", "GB/day", "KiB/op")
    print(f"  {'open operations':<34}" + "".join(f"{head:>10}" for head in heads))
    for label, load in LOADS.items():
        wanted = capacity.needs(load, costs)
        shown = (
            f"{wanted.polls:,.0f}", f"{wanted.rows:,.0f}", f"{wanted.workers:,}", f"{wanted.server_cores:.1f}",
            f"{wanted.log / 1e6:.1f}", f"{wanted.bytes_day / 1e9:,.0f}", f"{wanted.bytes_operation / 1024:,.1f}",
        )  # fmt: skip
        print(f"  {label:<34}" + "".join(f"{one:>10}" for one in shown))


def _carries(name: str, costs: Costs) -> None:
    print(f"  {name}, an hour's jobs polled each minute: where the first walls stand")
    for workers in (1, 2, 8, 10_000):
        first, second, *_ = capacity.own_walls(MINUTE, costs, Site(workers=workers, cores=4))
        open_ = first.polls * MINUTE.interval
        daily = capacity.needs(replace(MINUTE, open=int(open_)), costs).bytes_day
        print(
            f"  {workers:>6,} worker(s): {first.name} at {first.polls:,.0f} polls/s, {open_:,.0f} open ({first.then}); "
            f"then {second.name} at {second.polls:,.0f}; a terabyte lasts {1e12 / daily:,.0f} days"
        )
    if costs.kind == "postgresql":
        for cores in (4, 16):
            found = capacity.own_walls(MINUTE, costs, Site(workers=10_000, cores=cores))[:3]
            said = "; ".join(f"{wall.name} at {wall.polls:,.0f} polls/s ({wall.then})" for wall in found)
            print(f"  a server of {cores} cores whose log disk takes 50 MB/s: {said}")
        for label, load in LOADS.items():
            print(f"  {label}: {capacity.spread(load, costs, Site(cores=16))} server(s) of 16 cores")


def _schedule(open_: int, costs: Costs) -> None:
    interval = 600.0
    one = USE / costs.poll_cpu
    enough = open_ / interval / one
    print(f"\n{open_:,} open operations, a poll in {interval:.0f} s: the schedule in virtual time")
    print(f"  one worker makes {one:,.0f} polls/s (at {USE:.0%} of a core), so that {enough:,.0f} are needed")
    print(f"  {'workers':>9}{'polls/s':>10}{'late, mean':>12}{'p99':>8}{'formula':>10}{'waiting':>14}{'formula':>14}")
    for share in (0.5, 0.9, 1.02, 1.25, 2.0):
        rate = share * open_ / interval
        began = time.monotonic()
        seen = schedule.run(open_, interval, rate, seconds=8 * interval, warm=5 * interval, step=1.0)
        print(
            f"  {enough * share:>9,.0f}{seen.rate:>10,.0f}{seen.mean:>10,.0f} s{seen.quantile(0.99):>6,.0f} s"
            f"{capacity.lateness(open_, interval, rate):>8,.0f} s{seen.waiting:>14,}"
            f"{capacity.queue(open_, interval, rate):>14,.0f}   ({time.monotonic() - began:.1f} s)"
        )
