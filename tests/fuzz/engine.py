"""Runs a target on one input after the other, guided by the lines that it reaches.

`sys.settrace` sees only the target's own files; a function that has shown nothing new for long is watched on every
sixteenth input only. An input that reaches a new line, or a line from another one, is kept and changed further.
"""

from __future__ import annotations

import contextlib
import gc
import random
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, Final

from tests.fuzz.ground import Broken, Target
from tests.fuzz.mutate import Mutator

PATIENCE: Final = 1.0
"""CPU seconds that one input may take, without tracing."""
ROOM: Final = 64 * 1024 * 1024
"""Bytes by which one input, or a whole run, may make the process larger."""
QUIET: Final = 400
"""Calls of a function that show nothing new, after which it is watched seldom."""
SELDOM: Final = 16
SMALLER: Final = 400
"""Tries to make an input that breaks a law smaller."""
MOST: Final = 8
"""Findings of one run: whatever comes then is likely the same again."""


class Hang(BaseException):
    """An input took too long. No parser may catch it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that breaks a law, made small."""

    target: str
    seed: int
    data: bytes
    what: str

    def line(self) -> str:
        """Return the one line that tells all of it."""
        again = f"python -m tests.fuzz {self.target} --input {self.data.hex() or '-'}"
        return f"BROKEN {self.target} seed {self.seed}: {self.what} | {again}"


@dataclass(slots=True)
class Report:
    """What a run came to."""

    target: str
    seed: int
    executions: int = 0
    lines: int = 0
    branches: int = 0
    kept: list[bytes] = field(default_factory=list)  #: inputs that reached something new, in order
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0
    accepted: int = 0  #: inputs that the parser took

    def line(self) -> str:
        """Return the counters in one line."""
        rate = self.executions / max(self.seconds, 1e-6)
        return (
            f"{self.target:10} {self.executions:>9,} executions, {self.accepted:>8,} accepted, {self.lines:>5} lines, "
            f"{self.branches:>5} branches, {len(self.kept):>4} new inputs, {rate:8,.0f}/s, "
            f"{len(self.findings)} findings"
        )


class Watch:
    """Which lines, and which steps from line to line, the files of a target have gone through."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = frozenset(files)
        self._codes: dict[CodeType, int] = {}
        self._calls: list[int] = []
        self.seen: set[int] = set()
        self.lines: set[int] = set()
        self.fresh = 0
        self.whole = True  #: this input is watched in every function

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        number = self._codes.get(code)
        if number is None:
            number = self._codes[code] = len(self._calls) if code.co_filename in self._files else -1
            if number >= 0:
                self._calls.append(0)
        if number < 0:
            return None
        self._calls[number] += 1
        if self._calls[number] > QUIET and not self.whole:
            return None
        base, last, seen = number << 36, code.co_firstlineno, self.seen

        def step(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal last
            if event == "line":
                line = frame.f_lineno
                edge = base | last << 18 | line
                if edge not in seen:
                    seen.add(edge)
                    self.lines.add(base | line)
                    self.fresh += 1
                    self._calls[number] = 0
                last = line
            return step

        return step

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what runs inside."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)


@contextlib.contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Raise Hang in what runs inside once it has used so many CPU seconds."""
    if threading.current_thread() is not threading.main_thread():  # signals come to the main thread alone
        yield
        return

    def over(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def judge(target: Target, data: bytes) -> str | None:
    """Run one input without watching; say which law it breaks, None where all hold."""
    before = _peak()
    try:
        with patience(PATIENCE):
            target.run(data)
    except Broken as broken:
        return str(broken)
    except Hang:
        return f"it takes more than {PATIENCE:g} s of CPU"
    except RecursionError:
        return "RecursionError"
    except Exception as error:  # noqa: BLE001 - that nothing else comes out is one of the laws
        return f"{type(error).__name__}, which nobody who calls it expects, {_where(error)}"
    grown = _peak() - before
    return f"it takes {grown >> 20} MiB of memory" if grown > ROOM else None


def run(
    target: Target,
    *,
    seed: int,
    seconds: float | None = None,
    executions: int | None = None,
    told: Callable[[Report], None] = lambda _: None,
) -> Report:
    """Fuzz a target for so many CPU seconds, or so many executions: the kept inputs first, then their descendants."""
    target.fresh()
    report = Report(target.name, seed)
    luck = random.Random(f"{target.name}:{seed}")
    mutator = Mutator(luck, target.words(), target.shapes)
    watch = Watch(target.paths())
    known: set[str] = set()
    began, said, at_start = time.process_time(), time.process_time(), _now()
    todo = [*target.seeds()]
    while len(report.findings) < MOST:
        passed = time.process_time() - began
        if (executions is not None and report.executions >= executions) or (seconds is not None and passed >= seconds):
            break
        if time.process_time() - said > 5:
            said = time.process_time()
            report.seconds = passed
            told(report)
        data = todo.pop(0) if todo else mutator.of(_chosen(luck, mutator.pool))
        _one(target, data, watch, report, known, seed)
        if watch.fresh or (not mutator.pool and not todo):
            mutator.pool.append(data)
            if report.executions > len(target.seeds()):
                report.kept.append(data)
    report.seconds = time.process_time() - began
    report.lines, report.branches = len(watch.lines), len(watch.seen)
    gc.collect()
    grown = _now() - at_start
    if grown > ROOM:
        report.findings.append(Finding(target.name, seed, b"", f"the whole run leaves {grown >> 20} MiB behind"))
    return report


def _one(target: Target, data: bytes, watch: Watch, report: Report, known: set[str], seed: int) -> None:
    report.executions += 1
    watch.fresh, watch.whole = 0, report.executions % SELDOM == 0 or report.executions < QUIET
    before, taken, bad = _peak(), None, False
    try:
        with patience(8 * PATIENCE), watch.watching():
            taken = target.run(data)
    except (Hang, Exception):  # noqa: BLE001 - looked at again without watching
        bad = True
    report.accepted += taken is True
    if not bad and _peak() - before <= ROOM:
        return
    what = judge(target, data)
    if what is None or what in known:
        return
    known.add(what)
    small = smaller(data, lambda one: judge(target, one) == what)
    report.findings.append(Finding(target.name, seed, small, what))


def _chosen(luck: random.Random, pool: Sequence[bytes]) -> bytes:
    """Take an input to change: every other time one of the newest."""
    return pool[-1 - luck.randrange(max(1, len(pool) // 5))] if luck.random() < 0.5 else luck.choice(pool)


def smaller(data: bytes, bad: Callable[[bytes], bool]) -> bytes:
    """Leave out what is not needed for it to stay bad: halves first, single bytes last."""
    tries, size = 0, max(1, len(data) // 2)
    while size >= 1 and tries < SMALLER:
        at = 0
        while at < len(data) and tries < SMALLER:
            tries += 1
            shorter = data[:at] + data[at + size :]
            if bad(shorter):
                data = shorter
            else:
                at += size
        size //= 2
    return data


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    place = "?"
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if "/opledger" in name:
            place = f"{name.rpartition('/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"at {place}: {str(error)[:200]!a}"


def _peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _now() -> int:
    """Bytes of memory now; where the system does not tell, the most there ever were."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - no file of ours
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return _peak()
