"""Commands that run beside each other: what each one says is kept apart, and printed whole when it has ended."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Final

from opledger.edges.clock import SystemClock

SKIPPED: Final = 77
"""The exit code of a command that this machine has not what it needs for; it has said what."""

ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WORDS: Final = {0: "held", SKIPPED: "skipped"}


@dataclass(frozen=True, slots=True)
class Job:
    """A command, and what company it bears."""

    name: str
    what: str
    argv: tuple[str, ...]
    timed: bool = False  #: judges by real time: no other such one beside it
    alone: bool = False  #: nothing beside it


@dataclass(slots=True)
class End:
    """How a command ended; `code` is negative for a signal, and None where it was stopped."""

    name: str
    code: int | None
    seconds: float
    cpu: float  #: seconds of it and of all that it has waited for

    @property
    def word(self) -> str:
        """The same for people."""
        return "stopped" if self.code is None else WORDS.get(self.code, f"FAILED ({self.code})")


@dataclass(slots=True)
class _Run:
    job: Job
    process: subprocess.Popen[bytes]
    begun: float
    log: Path | None
    cpu: float = 0.0


def fits(job: Job, beside: Sequence[Job]) -> bool:
    """Tell whether a command may begin beside others."""
    if not beside:
        return True
    return not (job.alone or any(one.alone for one in beside) or (job.timed and any(one.timed for one in beside)))


@dataclass(slots=True)
class Beside:
    """Runs commands, at most `at_once` of them at a time, in their order as far as they bear each other.

    Each is a group of processes of its own. On Ctrl-C (SIGTERM, SIGHUP) all groups are told to end, as a terminal
    tells them, and what is still there after `grace` seconds is killed. One at a time says what it says at once.
    """

    at_once: int = 2
    grace: float = 20.0
    look: float = 60.0  #: seconds in which nothing begins or ends, after which it is told what runs
    ends: list[End] = field(default_factory=list)
    _running: list[_Run] = field(default_factory=list)
    _over: SimpleQueue[_Run | None] = field(default_factory=SimpleQueue)  #: None: a signal came
    _signalled: int = 0
    _clock: SystemClock = field(default_factory=SystemClock)
    _began: float = 0.0

    def run(self, jobs: Sequence[Job]) -> int:
        """Run all; exit code 0 where each of them held or was skipped, and 128 and a number where a signal came."""
        before = {number: signal.signal(number, self._told) for number in ENDS}
        self._began = self._clock.monotonic()
        with tempfile.TemporaryDirectory(prefix="opledger-programme-") as folder:
            try:
                self._all(list(jobs), Path(folder))
            finally:
                self._stop()
                for number, handler in before.items():
                    signal.signal(number, handler)
        self._table()
        return 128 + self._signalled if self._signalled else int(any(end.code not in WORDS for end in self.ends))

    def _told(self, number: int, frame: FrameType | None) -> None:
        self._signalled = self._signalled or number
        self._over.put(None)

    def _all(self, waiting: list[Job], folder: Path) -> None:
        while (waiting or self._running) and not self._signalled:
            beside = [run.job for run in self._running]
            found = next((job for job in waiting if len(beside) < self.at_once and fits(job, beside)), None)
            if found is not None:
                waiting.remove(found)
                self._begin(found, folder)
                continue
            try:
                over = self._over.get(timeout=self.look)
            except Empty:
                self._say(f"nothing new: {self._who()}")
                continue
            if over is not None:
                self._ended(over)

    def _begin(self, job: Job, folder: Path) -> None:
        log = folder / f"{job.name.replace(' ', '-')}.log" if self.at_once > 1 else None
        self._say(f"begun: {job.name}, {job.what}\n$ {shlex.join(job.argv)}{f'  (says it in {log})' if log else ''}")
        sink = None if log is None else log.open("wb")
        try:
            process = subprocess.Popen(
                job.argv,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},  # whoever looks into the log sees how far it is
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink and subprocess.STDOUT,
                process_group=0,
            )
        finally:
            if sink is not None:
                sink.close()
        run = _Run(job, process, self._clock.monotonic(), log)
        self._running.append(run)
        threading.Thread(target=self._wait, args=(run,), daemon=True).start()

    def _wait(self, run: _Run) -> None:
        _, status, used = os.wait4(run.process.pid, 0)
        run.process.returncode, run.cpu = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        self._over.put(run)

    def _ended(self, run: _Run, *, stopped: bool = False) -> None:
        self._running.remove(run)
        code = None if stopped else run.process.returncode
        end = End(run.job.name, code, self._clock.monotonic() - run.begun, run.cpu)
        self.ends.append(end)
        if run.log is not None:
            sys.stdout.write(f"\n== {run.job.name}\n")
            with run.log.open(encoding="utf-8", errors="replace") as said:
                shutil.copyfileobj(said, sys.stdout)
        beside = f"; {self._who()}" if self._running else ""
        self._say(f"ended: {end.name}, {end.word} after {end.seconds:.1f} s{beside}")

    def _who(self) -> str:
        now = self._clock.monotonic()
        return ", ".join(f"{run.job.name} runs since {now - run.begun:.0f} s" for run in self._running)

    def _say(self, words: str) -> None:
        sys.stdout.write(f"[{self._clock.monotonic() - self._began:5.0f} s] {words}\n")
        sys.stdout.flush()

    def _stop(self) -> None:
        """End what still runs: asked first, and then killed, with all that it started."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._signal(number)
            end = self._clock.monotonic() + self.grace / 2
            while self._running and (left := end - self._clock.monotonic()) > 0:
                with suppress(Empty):
                    self._stopped(self._over.get(timeout=left))
        self._signal(signal.SIGKILL)
        while self._running:
            self._stopped(self._over.get())

    def _stopped(self, run: _Run | None) -> None:
        if run is None:
            return  # one more signal, however impatient its sender is
        with suppress(ProcessLookupError):
            os.killpg(run.process.pid, signal.SIGKILL)  # what it has started and not ended
        self._ended(run, stopped=True)

    def _signal(self, number: signal.Signals) -> None:
        for run in self._running:
            with suppress(ProcessLookupError):
                os.killpg(run.process.pid, number)

    def _table(self) -> None:
        lines = [f"\n{'harness':<16}{'end':<12}{'seconds':>8}{'CPU s':>8}"]
        lines += [f"{end.name:<16}{end.word:<12}{end.seconds:>8.1f}{end.cpu:>8.1f}" for end in self.ends]
        spent, used = self._clock.monotonic() - self._began, sum(end.cpu for end in self.ends)
        lines += [f"{'all':<28}{spent:>8.1f}{used:>8.1f}   {self.at_once} at a time\n"]
        sys.stdout.write("\n".join(lines))
