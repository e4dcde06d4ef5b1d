"""Try the changes of one module: its tests are collected once, and every change gets a process of its own.

What is in a function is changed in a fork of the process that has collected the tests: all functions made of that code
get the changed code, closures too. Which tests run a line was seen in one run without any change; only those are asked,
the quickest first, until one is red. What runs while modules are imported (tables, classes, and functions called then)
is tried from further back, in a fork that has no module of the product yet and imports the changed one.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Final

import pytest

from tests.mutation.change import Mutant, Source
from tests.support.places import in_memory

SURVIVED, KILLED, NOT_SWAPPED, BROKEN = 0, 1, 70, 71
"""How a try ends: all green, one red, the change doesn't fit into functions that are there, the harness failed."""
GRACE: Final = 1.5
"""Seconds of CPU that a test may take at least; beyond that, five times what it takes without a change."""
LOOK: Final = 2.0
IDLE: Final = 16.0
"""A try that has used no CPU for so many seconds hangs. How long it takes by the clock means nothing here."""
DEAREST: Final = 3.0
"""A test that takes more seconds of CPU is not asked: it would be asked hundreds of times."""
RECENT: Final = 6
"""So many of the tests that were red last are asked first."""
KILLER: Final = "killer"
"""A file with the name of the test that was red."""
BYTES: Final = 6 << 30

Key = tuple[str, int, int]
"""A code object: its name, its first line, and the how-many-th of these."""


@dataclass
class Outcome:
    """What came of one module."""

    same: int = 0  #: changes that make no difference to the interpreter, which don't count
    killed: int = 0
    timed_out: int = 0
    survived: list[int] = field(default_factory=list)
    unreached: list[int] = field(default_factory=list)
    cpu: float = 0.0
    broken: str = ""


@dataclass
class Notes:
    """What the process that collected the tests tells the one that has nothing imported yet."""

    outcome: Outcome = field(default_factory=Outcome)
    late: list[int] = field(default_factory=list)  #: mutants that need a fresh import
    costs: dict[str, float] = field(default_factory=dict)  #: seconds of CPU of each test
    imports: list[str] = field(default_factory=list)  #: third-party modules that the tests load


class Ground:
    """One module, its tests, and the changes that are to be tried."""

    def __init__(
        self, module: str, path: Path, tests: list[str], chosen: Callable[[Mutant], bool], *, script: bool = False
    ) -> None:
        self.module = module
        self.script = script  # the tests load it themselves, again and again
        self.tests = tests
        self.source = Source(path.read_text("utf-8"), str(path))
        self.mutants = [one for one in self.source.mutants if chosen(one)]
        self.folder = Path(tempfile.mkdtemp(prefix="opledger-mutation-", dir=in_memory()))

    def run(self, told: Callable[[str], None]) -> Outcome:
        """Try all of them."""
        try:
            notes = self._collected(told)
            if notes.outcome.broken:
                return notes.outcome
            _load(notes.imports)
            self._late(notes, told)
            return notes.outcome
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _collected(self, told: Callable[[str], None]) -> Notes:
        answer = self.folder / "notes.json"
        used = _used()

        def child() -> None:
            self._pytest(_Near(self, answer, told))

        status = _forked(child, quiet=False, cpu=None)
        if not answer.exists():
            return Notes(Outcome(broken=f"the tests were not collected (status {status}): {' '.join(self.tests)}"))
        raw = json.loads(answer.read_text("utf-8"))
        notes = Notes(Outcome(**raw.pop("outcome")), **raw)
        notes.outcome.cpu = _used() - used
        return notes

    def _late(self, notes: Notes, told: Callable[[str], None]) -> None:
        if not notes.late:
            return
        used = _used()
        limit = 10 + GRACE + 5 * sum(notes.costs.values())
        # As it is, it must stay green this way too.
        if (end := self._freshly(None, notes, limit)) != SURVIVED:
            notes.outcome.broken = f"without a change the tests end with {end} after a fresh import"
            return
        by_number = {one.number: one for one in self.mutants}
        for count, number in enumerate(notes.late):
            if count % 25 == 0:
                told(f"{self.module}: imported anew {count} of {len(notes.late)}")
            end = self._freshly(by_number[number], notes, limit)
            _booked(notes.outcome, number, end)
        notes.outcome.cpu += _used() - used

    def _freshly(self, mutant: Mutant | None, notes: Notes, limit: float) -> int:
        code = (mutant and self.source.changed(mutant)) or self.source.code

        def child() -> None:
            sys.meta_path.insert(0, _Finder(self.module, code))
            try:
                importlib.import_module(self.module)
                self._pytest(_Far(notes.costs, self.folder))
            finally:
                os._exit(KILLED)  # the module could not even be imported, or the tests not be collected

        return _forked(child, quiet=True, cpu=limit)

    def _pytest(self, plugin: Any) -> None:
        os.environ["HYPOTHESIS_PROFILE"] = "ci"
        words = [
            "-s",
            "--assert=plain",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:terminal",
            "-m",
            "not postgres and not processes",
            *self.tests,
        ]
        with contextlib.redirect_stdout(sys.stderr):
            pytest.main(words, plugins=[plugin])


class _Plugin:
    """Takes over from pytest once the tests are collected."""

    def __init__(self) -> None:
        self.red = False
        self.killer: Path | None = None
        self.costs: dict[str, float] = {}
        self.dearest = 0.0  # whichever test is the first pays for what all of them share

    def pytest_configure(self, config: pytest.Config) -> None:
        import hypothesis

        # A red test is enough: nobody wants it small. The same examples for every change.
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile(
            "mutation", deadline=None, max_examples=25, derandomize=True, database=None, phases=phases
        )
        hypothesis.settings.load_profile("mutation")  # before tests are collected: their own settings start from it

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.red = self.red or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Go at once: how the red test would be shown takes longer than the test."""
        if self.killer is None or call.excinfo is None or item.get_closest_marker("xfail"):
            return
        if not isinstance(call.excinfo.value, pytest.skip.Exception | pytest.xfail.Exception):
            self.killer.write_text(item.nodeid, "utf-8")
            os._exit(KILLED)

    def runs(self, items: list[pytest.Item], killer: Path) -> bool:
        """Run them until one is red, which is told."""
        self.killer = killer
        for item, after in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if self.red:
                return False
        return True


class _Far(_Plugin):
    """After a fresh import of the changed module: all its tests, the quickest first."""

    def __init__(self, costs: dict[str, float], folder: Path) -> None:
        super().__init__()
        self.costs = costs
        self.dearest = max(costs.values(), default=0.0) + 3
        self.folder = folder

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self.costs.get(item.nodeid, 0.0))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            os._exit(KILLED)
        session.items = [item for item in session.items if item.nodeid in self.costs]
        if len(session.items) != len(self.costs):
            os._exit(KILLED)  # tests are named after what the module holds
        with _scratch(session.config, self.folder):
            green = self.runs(session.items, self.folder / KILLER)
        os._exit(SURVIVED if green else KILLED)


class _Near(_Plugin):
    """In the process that has collected the tests: everything inside functions."""

    def __init__(self, ground: Ground, answer: Path, told: Callable[[str], None]) -> None:
        super().__init__()
        self.ground = ground
        self.answer = answer
        self.told = told
        self.early: set[tuple[str, int]] = set()
        sys.setprofile(self._seen)

    def _seen(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename == self.ground.source.path:
            self.early.add((code.co_qualname, code.co_firstlineno))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        importlib.import_module(self.ground.module)
        sys.setprofile(None)
        notes = Notes()
        if session.testsfailed or not session.items:
            notes.outcome.broken = f"collecting: {session.testsfailed} errors, {len(session.items)} tests"
        else:
            self._judge(session, notes)
        own = {"opledger", "tests", "conftest", "__main__", self.ground.module.partition(".")[0]}
        names = [name for name in sys.modules if name.partition(".")[0] not in own]
        notes.imports = [name for name in names if not name.startswith("test_")]
        self.answer.write_text(json.dumps(asdict(notes)), "utf-8")
        os._exit(0)

    def _judge(self, session: pytest.Session, notes: Notes) -> None:
        items = {item.nodeid: item for item in session.items}
        functions = _functions(self.ground.source)
        seen = self._baseline(session, notes)
        if notes.outcome.broken:
            return
        ordered = sorted(seen, key=notes.costs.__getitem__)
        red: list[str] = []  # the last ones first

        files = list(dict.fromkeys(name.partition("::")[0] for name in items))

        def promise(name: str) -> tuple[int, int, float]:
            last = red.index(name) if name in red[:RECENT] else RECENT
            return last, files.index(name.partition("::")[0]), notes.costs[name]

        def tried(names: list[str], swap: Callable[[], bool]) -> int:
            """Those first that were red for the changes before this one, then file by file the quickest."""
            cost = sum(notes.costs[name] for name in names)
            asked = [items[name] for name in sorted(names, key=promise)]
            killer = self.ground.folder / KILLER
            killer.unlink(missing_ok=True)
            end = _forked(functools.partial(self._attempt, session, asked, swap), quiet=True, cpu=GRACE + 5 * cost)
            if killer.exists():
                name = killer.read_text("utf-8")
                red[:] = [name, *(one for one in red if one != name)]
            return end

        as_it_is = functools.partial(self._attempt, session, [items[name] for name in ordered], lambda: True)
        if (end := _forked(as_it_is, quiet=True, cpu=None)) != SURVIVED:
            notes.outcome.broken = f"without a change, the tests end with {end} in another order"
            return
        early = self.early
        # Not everything can be replaced in place: what asks for the class of an object sees two of each.
        anew = functools.partial(_again, self.ground.module, self.ground.source.code)
        as_it_is = functools.partial(self._attempt, session, [items[name] for name in ordered], anew)
        again = _forked(as_it_is, quiet=True, cpu=None) == SURVIVED
        for count, mutant in enumerate(self.ground.mutants):
            if count % 100 == 0:
                self.told(f"{self.ground.module}: {count} of {len(self.ground.mutants)}")
            changed = self.ground.source.changed(mutant)
            if changed is None:
                notes.outcome.same += 1
                continue
            if mutant.at_import and not self.ground.script:
                anew = functools.partial(_again, self.ground.module, changed)
                end = tried(ordered, anew) if again and not mutant.in_class else NOT_SWAPPED
                if end in (NOT_SWAPPED, SURVIVED):
                    notes.late.append(mutant.number)
                else:
                    _booked(notes.outcome, mutant.number, end)
                continue
            names = [name for name, lines in seen.items() if not lines.isdisjoint(mutant.lines)]
            parts = {} if self.ground.script else _parts(self.ground.source.code, changed)
            if parts is None:
                notes.late.append(mutant.number)
                continue
            ran_early = any((name, line) in early for name, line, _ in parts)
            if not names and not ran_early:
                notes.outcome.unreached.append(mutant.number)
                continue
            swap = (
                functools.partial(_reload, changed)
                if self.ground.script
                else functools.partial(_swap, parts, functions)
            )
            end = tried(names, swap) if names else SURVIVED
            if not self.ground.script and (end == NOT_SWAPPED or (end == SURVIVED and ran_early)):
                if again:
                    end = tried(ordered, functools.partial(_again, self.ground.module, changed))
                if end in (NOT_SWAPPED, SURVIVED):
                    notes.late.append(mutant.number)
                    continue
            _booked(notes.outcome, mutant.number, end)

    def _attempt(self, session: pytest.Session, items: list[pytest.Item], swap: Callable[[], bool]) -> None:
        if not swap():
            os._exit(NOT_SWAPPED)
        try:
            with _scratch(session.config, self.ground.folder):
                green = self.runs(items, self.ground.folder / KILLER)
                os._exit(SURVIVED if green else KILLED)
        finally:
            os._exit(KILLED)

    def _baseline(self, session: pytest.Session, notes: Notes) -> dict[str, set[int]]:
        """Run all of them as they are: what each costs, and the lines that it runs."""
        answer = self.ground.folder / "seen.json"

        def child() -> None:
            seen: dict[str, Any] = {}
            with _scratch(session.config, self.ground.folder):
                for item, after in zip(session.items, [*session.items[1:], None], strict=True):
                    lines: set[int] = set()
                    began = time.process_time()
                    with _tracing(self.ground.source.path, lines):
                        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                    seen[item.nodeid] = [time.process_time() - began, sorted(lines)]
                    if self.red:
                        seen = {"red": item.nodeid}
                        break
            answer.write_text(json.dumps(seen), "utf-8")
            os._exit(0)

        end = _forked(child, quiet=True, cpu=None)
        told: dict[str, Any] = json.loads(answer.read_text("utf-8")) if answer.exists() else {"red": f"status {end}"}
        if "red" in told:
            notes.outcome.broken = f"red without any change: {told['red']}"
            return {}
        if os.environ.get("MUTATION_COSTS"):
            for name in sorted(told, key=lambda name: told[name][0])[-5:]:
                self.told(f"{told[name][0]:.2f} s {name}")
        self.dearest = max(cost for cost, _ in told.values())
        notes.costs = self.costs = {name: cost for name, (cost, _) in told.items() if cost < DEAREST}
        return {name: set(lines) for name, (_, lines) in told.items() if name in notes.costs}


def _booked(outcome: Outcome, number: int, end: int) -> None:
    if end == SURVIVED:
        outcome.survived.append(number)
    elif end < 0:
        outcome.timed_out += 1
    else:
        outcome.killed += 1


# --- code --------------------------------------------------------------------------------------------------------


def _codes(code: CodeType) -> dict[Key, CodeType]:
    """All code objects in one, by name, line and number."""
    found: dict[Key, CodeType] = {}

    def walk(one: CodeType) -> None:
        for constant in one.co_consts:
            if isinstance(constant, CodeType):
                name, line, number = constant.co_qualname, constant.co_firstlineno, 0
                while (name, line, number) in found:
                    number += 1
                found[name, line, number] = constant
                walk(constant)

    walk(code)
    return found


def _parts(before: CodeType, after: CodeType) -> dict[Key, CodeType] | None:
    """The code objects that differ; None where there are others than before."""
    old, new = _codes(before), _codes(after)
    if old.keys() != new.keys():
        gone = {key for key in old.keys() ^ new.keys() if "<locals>" not in key[0]}
        if gone:
            return None
    return {key: new[key] for key in old.keys() & new.keys() if old[key] != new[key]}


def _functions(source: Source) -> dict[Key, list[FunctionType]]:
    """Every function that is made of the module's code, by the key of that code."""
    numbers: dict[CodeType, Key] = {code: key for key, code in _codes(source.code).items()}
    found: dict[Key, list[FunctionType]] = {}
    for one in gc.get_objects():
        key = numbers.get(one.__code__) if isinstance(one, FunctionType) else None
        if key is not None and one.__code__.co_filename == source.path:
            found.setdefault(key, []).append(one)
    return found


def _swap(parts: dict[Key, CodeType], functions: dict[Key, list[FunctionType]]) -> bool:
    """Give the functions that are there the changed code."""
    swapped = [(function, code) for key, code in parts.items() for function in functions.get(key, ())]
    try:
        for function, code in swapped:
            function.__code__ = code
    except ValueError:  # it closes over something else now
        return False
    return bool(swapped)


def _again(name: str, code: CodeType) -> bool:
    """Run the changed module once more, and put its tables and functions where those of the first run are."""
    module = sys.modules[name]
    again = ModuleType(name)
    again.__dict__.update({key: value for key, value in vars(module).items() if key.startswith("__")})
    exec(code, again.__dict__)
    own = ("opledger", "tests", "test_")
    others = [
        vars(one) for key, one in list(sys.modules.items()) if key.startswith(own) and isinstance(one, ModuleType)
    ]
    others.append(vars(module))
    swapped: dict[int, tuple[Any, Any]] = {}
    for key, new in vars(again).items():
        old = vars(module).get(key)
        if key.startswith("__") or old is new or old is None or isinstance(old, type):
            continue
        if isinstance(old, FunctionType) and isinstance(new, FunctionType) and not old.__closure__:
            if old.__module__ == name and not new.__closure__:
                old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__
        elif isinstance(old, bool | int | str | bytes):  # equal ones may be one object: only by its name
            for one in others:
                if one.get(key) is old:
                    one[key] = new
        else:
            swapped[id(old)] = old, new
    for one in others:
        for its, value in list(one.items()):
            if id(value) in swapped:
                one[its] = swapped[id(value)][1]
    return True


def _reload(changed: CodeType) -> bool:
    """Give the changed code to whoever loads the file from now on."""
    real = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> CodeType | None:
        return changed if self.path == changed.co_filename else real(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[assignment]
    return True


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the changed module in place of the one on the disk."""

    def __init__(self, name: str, code: CodeType) -> None:
        self.name = name
        self.code = code

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(name, spec.origin, self.code)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self.changed = code

    def get_code(self, fullname: str) -> CodeType:
        return self.changed


# --- processes ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _tracing(path: str, lines: set[int]) -> Iterator[None]:
    def local(frame: FrameType, event: str, _: Any) -> Any:
        lines.add(frame.f_lineno)
        return local

    def called(frame: FrameType, event: str, _: Any) -> Any:
        return local(frame, event, None) if frame.f_code.co_filename == path else None

    threading.settrace(called)
    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(None)
        threading.settrace(None)


@contextlib.contextmanager
def _scratch(config: pytest.Config, folder: Path) -> Iterator[None]:
    """Files of this process only, which whoever started it removes."""
    own = folder / f"tries-{os.getpid()}"
    own.mkdir()
    config._tmp_path_factory._basetemp = own  # type: ignore[attr-defined]
    tempfile.tempdir = str(own)
    yield


def _forked(child: Callable[[], None], *, quiet: bool, cpu: float | None) -> int:
    """Run it in a fork of this process: its exit code, negative where it took too long or was killed by a signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    gc.freeze()
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0) if quiet else None
            if quiet:
                nowhere = os.open(os.devnull, os.O_RDWR)
                for one in (0, 1, 2):
                    os.dup2(nowhere, one)
            if cpu is not None:
                signal.signal(signal.SIGXCPU, signal.SIG_DFL)
                resource.setrlimit(resource.RLIMIT_CPU, (int(cpu) + 1, int(cpu) + 60))
                resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            child()
        finally:
            if not quiet:
                traceback.print_exc()
            os._exit(BROKEN)
    return _awaited(pid, watched=cpu is not None)


def _awaited(pid: int, *, watched: bool) -> int:
    """Wait for its end. One that is watched and does nothing for long waits for what never comes."""
    descriptor, spent, idle = os.pidfd_open(pid), "", 0.0
    try:
        while watched and not select.select([descriptor], [], [], LOOK)[0]:
            now = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[11:13]
            spent, idle = " ".join(now), idle + LOOK if " ".join(now) == spent else 0.0
            if idle >= IDLE:
                os.kill(pid, signal.SIGKILL)
                break
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _used() -> float:
    return sum(os.times()[:4])


def _load(names: list[str]) -> None:
    """Import what the tests need besides the product, once for all."""
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
