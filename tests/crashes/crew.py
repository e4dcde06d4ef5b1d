"""Lanes in processes of their own, and tasks that are handed to whichever is free."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

from tests.crashes.forks import dies_with_parent
from tests.crashes.lane import Fate, Lane, Place
from tests.crashes.stories import STORIES


@dataclass(frozen=True, slots=True)
class Task:
    """Tell a story with these deaths; with `counting` the one who comes after them notes their points."""

    story: str
    deaths: tuple[Place, ...] = ()
    counting: bool = False
    broken: str | None = None


class Crew:
    """Use as a context manager, in a process that has one thread."""

    def __init__(self, lanes: int, broken: str | None = None) -> None:
        self._count, self._broken = max(1, lanes), broken
        self._lanes: dict[Connection[Any, Any], int] = {}

    def __enter__(self) -> Self:
        for _ in range(self._count):
            ours, theirs = Pipe()
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                for other in self._lanes:
                    other.close()
                ours.close()
                _serve(theirs, self._broken)
            theirs.close()
            self._lanes[ours] = pid
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe, pid in self._lanes.items():
            with suppress(OSError):
                pipe.send(None)
            if error is not None:
                with suppress(OSError):
                    os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
            pipe.close()

    def work(self, tasks: deque[Task], done: Callable[[Task, Fate], None]) -> None:
        """Have all tasks done; `done` is told of each, and may add more."""
        under_way: dict[Connection[Any, Any], Task] = {}
        free = list(self._lanes)
        while tasks or under_way:
            while tasks and free:
                pipe, task = free.pop(), tasks.popleft()
                pipe.send(task)
                under_way[pipe] = task
            for ready in wait(list(under_way)):
                assert isinstance(ready, Connection)
                task = under_way.pop(ready)
                fate = ready.recv()
                free.append(ready)
                done(task, fate)


def _serve(pipe: Connection[Any, Any], broken: str | None) -> None:
    """Be a lane until there is nothing more to do; never returns."""
    code = 1
    try:
        dies_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        with Lane(broken) as lane:
            while (task := pipe.recv()) is not None:
                pipe.send(lane.tell(STORIES[task.story], *task.deaths, counting=task.counting, broken=task.broken))
        code = 0
    except EOFError:
        code = 0  # whoever asked is gone
    except SystemExit:
        code = 0
    except BaseException:  # noqa: BLE001 - told on standard error; the other side sees the pipe end
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
