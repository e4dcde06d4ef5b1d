"""Going through a ledger slice by slice: here, and in processes beside that take slices of their own."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from opledger.ledger.auditing import Part, cited, in_pieces, look, of_range
from opledger.rules.audit import Check, Leaf
from opledger.store import Store, auditing

STEP: Final = 500
"""Operations in one slice."""

AHEAD: Final = 2
"""Slices that wait for processes beside, or are in them, for each core."""

_Slice = tuple[str, str | None, Mapping[str, Sequence[Leaf]]]
"""Behind which operation it begins, with which it ends (None: the last), and the leaves of those between."""


def parts(
    store: Store,
    leaves: Mapping[str, Sequence[Leaf]],
    checks: Sequence[Check],
    stopped: Callable[[], bool],
    *,
    ids: Sequence[str] | None,
    records: bool,
    pool: ProcessPoolExecutor | None,
) -> Iterator[Part]:
    """Look at all operations, or at those of `ids`, slice by slice, until `stopped` says so."""
    if ids is not None:
        for some in in_pieces(ids, STEP):
            if stopped():
                return
            of_these = {name: leaves[name] for name in some if name in leaves}
            seen = auditing.anchored(store.database, some)
            found = look(auditing.named(store.database, some), of_these, checks, records=records, seen=seen)
            yield cited(store.database, found)
        return
    asked = _asked(store, leaves)
    if pool is None:
        for after, upto, mine in asked:
            if stopped():
                return
            found = look(auditing.within(store.database, after, upto), mine, checks, records=records)
            yield cited(store.database, found)
        return
    yield from _shared(store, asked, checks, stopped, records=records, pool=pool)


def _shared(
    store: Store,
    asked: Iterator[_Slice],
    checks: Sequence[Check],
    stopped: Callable[[], bool],
    *,
    records: bool,
    pool: ProcessPoolExecutor,
) -> Iterator[Part]:
    """Slices in processes beside, and in this one meanwhile: it takes them a second to come up."""
    ahead = AHEAD * multiprocessing.cpu_count()
    under_way: dict[Future[Part], _Slice] = {}

    def here(one: _Slice) -> Part:
        after, upto, mine = one
        return cited(store.database, look(auditing.within(store.database, after, upto), mine, checks, records=records))

    try:
        for number, one in enumerate(asked):
            if stopped():
                break
            if number and len(under_way) < ahead:
                with _deaf():
                    under_way[pool.submit(_in_child, *one, records=records)] = one
                continue
            yield here(one)
            for done in [future for future in under_way if future.done()]:
                del under_way[done]
                yield done.result()
        for future in [future for future in under_way if future.cancel()]:  # no process has begun it yet
            yield here(under_way.pop(future))
        for future in as_completed(under_way):
            yield future.result()
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()  # they only read, and may still be coming up: nobody waits for what they find
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes that start meanwhile hear of no Ctrl-C, not even while they come up: it is for whoever asked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def is_name(value: Any) -> bool:
    """Whether it can be the id of an operation."""
    return isinstance(value, str)  # SQLite keeps whatever is put into a column


def _asked(store: Store, leaves: Mapping[str, Sequence[Leaf]]) -> Iterator[_Slice]:
    names = sorted(filter(is_name, leaves))
    at = 0
    for after, upto in auditing.bounds(store.database, STEP):
        mine, at = of_range(leaves, names, after, upto, at)
        yield after, upto, mine


_child: tuple[Store, Sequence[Check]] | None = None


def _begin_child(url: str, checks: Callable[[], Sequence[Check]]) -> None:
    global _child  # noqa: PLW0603 - one process, one task
    _child = Store.open(url, read_only=True), checks()


def _in_child(after: str, upto: str | None, leaves: Mapping[str, Sequence[Leaf]], *, records: bool) -> Part:
    assert _child is not None, "begun by _begin_child"
    store, checks = _child
    return cited(store.database, look(auditing.within(store.database, after, upto), leaves, checks, records=records))


def processes(url: str, count: int, checks: Callable[[], Sequence[Check]]) -> Callable[[], ProcessPoolExecutor]:
    """Return what starts processes, one less than `count`, that help this one.

    For programs whose main module may be imported again.
    `checks` makes the checks anew over there, so it must be something that can be pickled.
    """
    context = multiprocessing.get_context("spawn")
    begin = partial(_begin_child, url, checks)
    return lambda: ProcessPoolExecutor(count - 1, mp_context=context, initializer=begin)
