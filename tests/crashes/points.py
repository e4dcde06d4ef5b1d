"""The points at which a process can die: everything by which it touches what outlives it, wrapped from outside.

The product has no hooks for this. Each point has a name, ``before commit record CallSent.create``, and from the name
follow its kinds; a story says which kinds it must have, or it proves nothing.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp

from opledger.edges.files import Partial
from opledger.edges.http import Http
from opledger.store import Store
from opledger.store.engine import Database
from tests.crashes.page import Page
from tests.faults.victim import _arm_checkpoints, _async, _chunks, _sync, _written

KINDS: Final = ("commit", "send", "receive", "file", "lease", "checkpoint", "delivery", "notice", "task")

_LEASE: Final = frozenset({"exchange", "claim", "claim_one", "renew", "release", "farewell"})
_CHECKPOINT: Final = frozenset({"key", "name", "checkpoint", "leaves", "note", "anchor", "add", "name_ledger"})
_FILE: Final = frozenset({"open", "write", "fsync", "rename", "link", "unlink", "mkdir", "truncate", "close", "flush"})
_DELIVERY: Final = frozenset({"take_deliveries", "match_deliveries"})
_TASK: Final = frozenset({"append"})
_NOTICE: Final = frozenset({"begin_notices", "take_notices", "settle_notices", "tell"})


def kinds(name: str) -> set[str]:
    """What a point is one of: ``before commit exchange …`` is a commit and a lease step."""
    when, what, *rest = name.split(" ")
    found: set[str] = set()
    if what == "commit":
        found.add("commit")
        for names, kind in ((_LEASE, "lease"), (_CHECKPOINT, "checkpoint"), (_DELIVERY, "delivery"), (_TASK, "task")):
            if rest and rest[0] in names:
                found.add(kind)
        if rest and rest[0] in _NOTICE:
            found.add("notice")
    elif what in ("call", "download", "chunk"):
        found.add("receive" if when == "after" or what == "chunk" else "send")
    elif what in _FILE:
        found.add("file")
        if rest and rest[0] in ("anchor", "key"):
            found.add("checkpoint")
        if rest == ["task"]:
            found.add("task")
    elif what in _CHECKPOINT:
        found.add("checkpoint")
    elif what in _NOTICE:
        found.add("notice")
    return found


def fresh(names: Sequence[str]) -> list[int]:
    """Which points leave something else behind than the one before them: in between, something outside was touched.

    That is so where the one before says ``before``: what it names has happened since. An answer to a read changes
    nothing outside, and the one to a call that changes something shows that the provider has done it by now.
    """
    numbers = [1] if names else []
    for number, before in enumerate(names, 1):
        when, what, *_ = before.split(" ")
        reads = before in ("before call GET", "sent call GET", "before download", "before chunk")
        if number < len(names) and (when == "before" or (when == "sent" and what == "call")) and not reads:
            numbers.append(number + 1)
    return numbers


class Points:
    """Counts points, and dies at one of them: at number `die_at`, or at the first of that name."""

    def __init__(self, page: Page, die_at: int = 0, by_name: str = "") -> None:
        self.names: list[str] = []
        self._page, self._die_at, self._by_name = page, die_at, by_name
        self._lock = threading.RLock()

    def __call__(self, when: str, names: Iterable[str]) -> None:
        """One point; of several names the first counts."""
        name = next(iter(names), None)
        if name is None:
            return
        told = f"{when} {name}"
        with self._lock:
            self.names.append(told)
            if len(self.names) == self._die_at or told == self._by_name:
                self._page.struck = told
                os.kill(os.getpid(), signal.SIGKILL)
                threading.Event().wait()  # the signal is on its way: nothing more may happen


def arm(points: Points, folder: Path, acknowledged: int) -> None:
    """Wrap everything in this process. `acknowledged`: an open file in which each commit that returned is noted."""
    _transactions(points, acknowledged)
    _calls(points)
    _arm_checkpoints(points)  # type: ignore[arg-type] # it is called as its counter is
    _files(points, folder)


# --- transactions -----------------------------------------------------------------------------------------------------

_about = threading.local()


def _transactions(points: Points, acknowledged: int) -> None:
    note = os.write
    for method in ("record_many", "exchange"):
        # How many of a kind one commit takes depends on who was faster.
        _with_words(Store, method, lambda store, writes, *_: " ".join(dict.fromkeys(_written(store, writes))))
    write, commit = Database.write, Database._commit

    def writing(self: Database, work: Any) -> Any:
        # ``Store.release.<locals>.<lambda>`` is a release.
        _about.work = getattr(work, "__qualname__", "?").partition(".<locals>")[0].rpartition(".")[2]
        return write(self, work)

    def committing(self: Database, cursor: Any, tx: Any) -> None:
        name = [f"commit {_about.work} {getattr(_about, 'words', '')}".strip()]
        points("before", name)
        commit(self, cursor, tx)
        if tx.proof is not None:
            operation_id, seq, digest = tx.proof
            note(acknowledged, f"{operation_id} {seq} {digest.hex()}\n".encode())
        points("after", name)

    Database.write = writing  # type: ignore[method-assign]
    Database._commit = committing  # type: ignore[method-assign]


def _with_words(owner: type, method: str, words: Callable[..., str]) -> None:
    real = getattr(owner, method)

    @functools.wraps(real)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        _about.words = words(*args)
        try:
            return real(*args, **kwargs)
        finally:
            _about.words = ""

    setattr(owner, method, wrapped)


# --- requests ---------------------------------------------------------------------------------------------------------


def _calls(points: Points) -> None:
    _async(points, Http, "send", lambda _, request: [f"call {request.method}"])  # type: ignore[arg-type]
    _async(points, Http, "_ask_for_token", lambda *_: ["call token"])  # type: ignore[arg-type]
    _chunks(points)  # type: ignore[arg-type]
    _async(points, Http, "download", lambda *_: ["download"])  # type: ignore[arg-type]
    start = aiohttp.ClientResponse.start

    async def starting(self: aiohttp.ClientResponse, connection: Any) -> aiohttp.ClientResponse:
        points("sent", [f"call {self.method}"])
        return await start(self, connection)

    aiohttp.ClientResponse.start = starting  # type: ignore[method-assign]


# --- files ------------------------------------------------------------------------------------------------------------

_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def _files(points: Points, folder: Path) -> None:
    """Wrap the steps by which files of results, anchors and keys come about. SQLite's own are no business of ours."""
    root = str(folder) + os.sep

    def about(place: Any) -> str | None:
        try:
            path = os.readlink(f"/proc/self/fd/{place}") if isinstance(place, int) else os.fspath(place)  # noqa: PTH115
        except (OSError, TypeError):
            return None
        return _category(str(path).removeprefix(root)) if str(path).startswith(root) else None

    def wrap(name: str, word: str, which: int, *, after: bool = False) -> None:
        real = getattr(os, name)

        @functools.wraps(real)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            kind = about(args[which]) if len(args) > which else None
            if kind is None or (name == "open" and not args[1] & _WRITES):
                return real(*args, **kwargs)
            points("before", [f"{word} {kind}"])
            found = real(*args, **kwargs)
            if after:
                points("after", [f"{word} {kind}"])
            return found

        setattr(os, name, wrapped)

    wrap("open", "open", 0)
    wrap("mkdir", "mkdir", 0)
    wrap("write", "write", 0, after=True)
    wrap("fsync", "fsync", 0)
    wrap("ftruncate", "truncate", 0)
    wrap("link", "link", 1, after=True)
    wrap("replace", "rename", 1, after=True)
    wrap("rename", "rename", 1, after=True)
    wrap("unlink", "unlink", 0, after=True)
    for step in ("write", "flush", "close"):
        _sync(points, Partial, step, lambda *_, step=step: [f"{step} partial"])  # type: ignore[arg-type]


def _category(path: str) -> str | None:
    first, _, rest = path.partition(os.sep)
    if first.endswith(".anchor"):
        return "anchor"
    if first.startswith("ledger.db"):
        return None
    if first == "no":
        return "key"
    if first == "work":
        return "task"
    if first != "results":
        return "file" if rest or first.endswith((".jsonl", ".json")) else None
    if rest.startswith(".partial"):
        return "partial" if not rest.endswith((".mark", ".rest", ".progress")) else rest.rpartition(".")[2]
    return "result"
