"""The long form goes on where it was ended, counts per revision, and loses nothing that it wrote."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.simulation import longform
from tests.simulation.counts import Counts
from tests.simulation.world import Outcome, Steps, Violation


def outcome(seed: int, *problems: Violation) -> Outcome:
    return Outcome(
        seed=seed,
        digest="",
        operations=20,
        steps=Steps(calls=seed, commits=2),
        problems=list(problems),
        states=Counter(succeeded=20),
        cells=Counter({("answer lost", "create"): 1}),
        arrows=Counter({"start/Opened/0": 1}),
        faults=frozenset({"answer lost"}),
        seconds=0.5,
        virtual=100.0,
    )


def runner(
    ran: list[int], *, broken: frozenset[int] = frozenset(), then: Callable[[int], None] = lambda _: None
) -> longform.Runs:
    def runs(seeds: range) -> Iterator[Outcome]:
        for seed in seeds:
            ran.append(seed)
            then(seed)
            yield outcome(seed, *([Violation("I4", "two jobs")] if seed in broken else []))

    return runs


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_after_a_seed_and_it_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    path, ran = tmp_path / "state.json", list[int]()
    handlers = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]

    def strike(seed: int) -> None:
        if seed == 12:
            os.kill(os.getpid(), number)

    state = longform.read(path, 10)
    assert longform.go_on(path, state, 6, runner(ran, then=strike), now="a") == number
    assert ran == [10, 11, 12]
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == handlers
    again = longform.read(path, 10)
    assert again == state
    assert longform.go_on(path, again, 6, runner(ran), now="a") is None
    assert ran == [10, 11, 12, 13, 14, 15]
    whole = Counts()
    for seed in ran:
        whole.add(outcome(seed))
    assert longform.read(path, 10).total() == whole
    assert len(again.parts) == 1
    assert json.loads(path.read_text())["operations"] == 120


def test_revisions_are_counted_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "state.json"
    longform.go_on(path, longform.read(path, 0), 3, runner([]), now="a")
    longform.go_on(path, longform.read(path, 0), 7, runner([]), now="b")
    state = longform.read(path, 0)
    assert [(part.revision, part.first, part.counts.seeds) for part in state.parts] == [("a", 0, 3), ("b", 3, 4)]
    assert "the tree was a until seed 2, and is b now" in capsys.readouterr().out
    assert any("revision b: seeds 3 to 6, 80 operations" in line for line in state.lines())


def test_what_was_broken_is_tried_again_when_the_tree_has_changed(tmp_path: Path) -> None:
    path, ran = tmp_path / "state.json", list[int]()
    longform.go_on(path, longform.read(path, 0), 3, runner([], broken=frozenset({1, 2})), now="a")
    assert {one.seed for one in longform.read(path, 0).open} == {1, 2}
    longform.go_on(path, longform.read(path, 0), 3, runner(ran), now="a")
    assert ran == []
    longform.go_on(path, longform.read(path, 0), 3, runner(ran, broken=frozenset({2})), now="b")
    state = longform.read(path, 0)
    assert ran == [1, 2]
    assert [(one.seed, one.mended) for one in state.broken] == [(1, "b"), (2, None)]
    assert state.total().problems == 2


def test_a_run_that_breaks_loses_no_seed_that_was_through(tmp_path: Path) -> None:
    path = tmp_path / "state.json"

    def strike(seed: int) -> None:
        if seed == 3:
            raise RuntimeError("the harness itself")

    with pytest.raises(RuntimeError):
        longform.go_on(path, longform.read(path, 0), 9, runner([], then=strike), now="a")
    assert longform.read(path, 0).done == 3
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    longform.write(path, longform.State(5))
    with pytest.raises(longform.StateWrong, match="--from 5"):
        longform.read(path, 0)
    for text in ("no JSON", "[]", '{"first": 0}'):
        path.write_text(text)
        with pytest.raises(longform.StateWrong, match="no state of the simulation"):
            longform.read(path, 0)
        assert path.read_text() == text


def test_a_change_in_no_commit_is_another_revision(tmp_path: Path) -> None:
    assert longform.revision(tmp_path / "nowhere") == "unknown"
    for name in ("core", "tests"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("as it was\n")
    for words in (("init", "-q"), ("add", "."), ("-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "x")):
        longform._git(tmp_path, *words)
    clean = longform.revision(tmp_path)
    (tmp_path / "core" / "file").write_text("changed\n")
    assert longform.revision(tmp_path).startswith(f"{clean}+")
