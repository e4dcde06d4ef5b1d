"""What a load asks for, and where the first wall stands: arithmetic over costs that were measured (`units`).

Nothing here measures, waits or looks at a clock; `python -m tests.bench model` measures and prints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Literal

Kind = Literal["sqlite", "postgresql"]

DAY: Final = 86_400
MONTH: Final = 30 * DAY
USE: Final = 0.7
"""The share of a core, a writer or a server that is planned for: above it, waiting grows faster than load."""

OTHER_EVENTS: Final = 4
"""Events of an operation besides its polls: submitted, permit, accepted, result."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What things cost on one machine with one database. CPU and busy times in seconds, sizes in bytes."""

    kind: Kind
    poll_cpu: float  #: of a worker: one poll, from claim to durable
    operation_cpu: float  #: of submitter and worker: all of an operation but its polls
    server_poll_cpu: float  #: of the database server, one poll; 0 for a file
    server_operation_cpu: float
    idle: float  #: share of a core that a worker with nothing to do takes
    commit: float  #: one commit, whatever is in it
    commit_cpu: float  #: and the CPU of it
    wake: float  #: CPU of a worker that wakes up for a single poll, besides commits
    row: float  #: what one more recorded poll adds to a commit
    claim: float  #: what claiming one operation adds
    look: float  #: one look at the table when nothing is due
    poll_bytes: float  #: event and its index, for a poll whose answer was seen before
    answer_bytes: float  #: a new answer and its index, without its own bytes
    operation_bytes: float  #: all rows of an operation but its polls
    leaf_bytes: float  #: what a checkpoint adds for an operation that moved
    archived_bytes: float  #: a poll whose answer was seen before, in a compressed archive
    log_poll: float  #: bytes of the server's log (WAL) for a poll
    log_operation: float


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked for."""

    open: int  #: operations open at any time
    interval: float  #: seconds between two polls of one of them
    life: float  #: seconds from submit to the end
    changing: float = 0.2  #: share of polls whose answer is new
    answer: float = 300.0  #: bytes of an answer
    result: float = 0.0  #: bytes of a result; it goes to the store of results, not to the database
    latency: float = 0.3  #: seconds that the provider takes for an answer

    @property
    def polls(self) -> float:
        """Polls a second."""
        return self.open / self.interval

    @property
    def operations(self) -> float:
        """Operations that begin, and end, each second."""
        return self.open / self.life

    @property
    def events(self) -> float:
        """Events a second."""
        return self.polls + OTHER_EVENTS * self.operations


@dataclass(frozen=True, slots=True)
class Site:
    """What there is to carry it."""

    workers: int = 1
    cores: int = 2  #: of the database server
    in_flight: int = 200  #: requests that one worker has under way at most
    log_rate: float = 50e6  #: bytes a second that the server's log disk takes
    disk: float = 1e12  #: bytes for the database
    dead_rows: float = 30_000.0  #: rows a second that vacuum makes free again: about one process of autovacuum
    shards: int = 1  #: databases among which operations are spread by a hash of their id


@dataclass(frozen=True, slots=True)
class Needs:
    """What a load asks for."""

    polls: float  #: a second
    rows: float  #: written a second: events, records, answers, leaves
    cpu: float  #: cores that the workers use
    workers: int
    server_cores: float
    in_flight: float  #: requests that are under way at the same time
    log: float  #: bytes a second
    dead_rows: float  #: a second
    bytes_operation: float  #: in the database, over its whole life
    bytes_day: float  #: in the database, by all of them
    results_day: float  #: in the store of results


@dataclass(frozen=True, slots=True)
class Wall:
    """A part that is full at some rate."""

    name: str
    polls: float  #: polls a second at which it is full
    then: str  #: what moves it


def needs(load: Load, costs: Costs) -> Needs:
    """Work out what a load asks for."""
    cpu, workers = cores(load, costs)
    fresh = load.polls * load.changing
    in_flight = load.polls * load.latency
    # Each event and each claim makes a new version of the record, and the old one is a dead row.
    updates = 2 * load.events
    polls_of_one = load.life / load.interval
    stored = costs.poll_bytes + costs.leaf_bytes + load.changing * (costs.answer_bytes + load.answer)
    of_one = costs.operation_bytes + OTHER_EVENTS * costs.leaf_bytes + polls_of_one * stored
    return Needs(
        polls=load.polls,
        rows=2 * load.events + updates + fresh,
        cpu=cpu,
        workers=workers,
        server_cores=load.polls * costs.server_poll_cpu + load.operations * costs.server_operation_cpu,
        in_flight=in_flight,
        log=load.polls * costs.log_poll + load.operations * costs.log_operation,
        dead_rows=updates,
        bytes_operation=of_one,
        bytes_day=of_one * load.operations * DAY,
        results_day=load.result * load.operations * DAY,
    )


def cores(load: Load, costs: Costs) -> tuple[float, int]:
    """Return how many cores the workers use, and how many workers are needed.

    Polls that come one by one pay each a wake-up and two commits (claimed, recorded). A worker that has no time left
    takes up what has come meanwhile in one go: then many share them, which is what workers are counted by.
    """
    least = load.polls * costs.poll_cpu + load.operations * costs.operation_cpu
    workers = max(1, math.ceil(least / USE), math.ceil(load.polls * load.latency / Site().in_flight))
    alone = least + load.polls * (costs.wake + 2 * costs.commit_cpu)
    return workers * costs.idle + min(alone, max(least, float(workers))), workers


def batch(rate: float, costs: Costs) -> float:
    """How many polls share a commit at a rate: those that come while the commit before is under way, at least one.

    The writer commits without a pause where there is always something to write: in a commit of b polls, which takes
    commit + b * row, come rate * (commit + b * row) others. Infinite where rows alone keep it busy.
    """
    free = 1 - rate * (costs.row + costs.claim)
    return max(1.0, rate * costs.commit / free) if free > 0 else math.inf


def writer_rate(costs: Costs, most: float = 200.0) -> float:
    """Polls a second that one writing connection makes durable, with at most so many in a commit."""
    return most / (costs.commit + most * (costs.row + costs.claim))


def walls(load: Load, costs: Costs, site: Site) -> list[Wall]:
    """List what is full at which rate of polls, in this mix of polls and operations; the first wall comes first."""
    wanted = needs(load, costs)
    share = wanted.polls  # everything grows in proportion to it
    busy = load.polls * costs.poll_cpu + load.operations * costs.operation_cpu  # where many share a commit

    def at(use: float, room: float) -> float:
        return share * room / use if use > 0 else math.inf

    found = [
        Wall("worker CPU", at(busy, USE * site.workers), "more workers"),
        Wall(
            "requests under way",
            at(wanted.in_flight, site.in_flight * site.workers),
            "concurrency of workers, providers",
        ),
        Wall("disk in a month", at(wanted.bytes_day * 30, site.disk * site.shards), "archive what has ended"),
    ]
    if costs.kind == "sqlite":
        found.append(Wall("the one writer of the file", USE * writer_rate(costs), "PostgreSQL"))
    else:
        found += [
            Wall("server CPU", at(wanted.server_cores, USE * site.cores * site.shards), "more cores; shards by hash"),
            Wall("log (WAL)", at(wanted.log, USE * site.log_rate * site.shards), "a faster disk; shards by hash"),
            Wall("vacuum", at(wanted.dead_rows, site.dead_rows * site.shards), "more vacuum; shards by hash"),
            Wall(
                "the writers of the workers",
                USE * writer_rate(costs) * site.workers,
                "more workers",
            ),
        ]
    return sorted(found, key=lambda wall: wall.polls)


def own_walls(load: Load, costs: Costs, site: Site) -> list[Wall]:
    """As `walls`, without the disk: that is full some day at any rate, and is emptied by archiving."""
    return [wall for wall in walls(load, costs, site) if not wall.name.startswith("disk")]


def first_wall(load: Load, costs: Costs, site: Site) -> Wall:
    """The part that is full first."""
    return walls(load, costs, site)[0]


def lateness(open_: int, interval: float, rate: float) -> float:
    """Mean seconds that polls are late in the long run, when all workers together make `rate` polls a second.

    Each operation is polled again an interval after it was polled, so that a queue slows down what feeds it: all of
    them are polled once in open / rate seconds, or in the interval where that is longer.
    """
    return max(0.0, open_ / rate - interval)


def queue(open_: int, interval: float, rate: float) -> float:
    """How many operations are due and not yet polled, in the long run."""
    return max(0.0, open_ - rate * interval)


def carried(load: Load, costs: Costs, site: Site) -> int:
    """How many open operations of this kind are carried before the first wall."""
    return int(first_wall(load, costs, site).polls * load.interval)


def spread(load: Load, costs: Costs, site: Site) -> int:
    """How many shards are needed so that none of the database's own parts is the first wall."""
    own = [wall for wall in walls(load, costs, replace(site, shards=1)) if "hash" in wall.then]
    return max([1, *(math.ceil(load.polls / wall.polls) for wall in own)])
