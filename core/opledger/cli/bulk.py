"""Deciding about many operations with one command: named ones, or all that match a filter at this moment.

With a filter the set is frozen first and shown with what would become of each; only ``--yes``, or typing how many,
decides. What has changed between the look and the act is skipped and says what changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opledger.cli.frame import Run, put

if TYPE_CHECKING:
    from opledger.errors import StoreUnavailable
    from opledger.ledger import Ledger
    from opledger.ledger.bulk import Decision, Outcome, Prospect, Target

REFUSED, OUT_OF_REACH, INTERRUPTED = 3, 5, 130
PROGRESS_FROM = 20
"""So many operations are decided without a word on the way."""

Ops = Annotated[
    list[str] | None,
    typer.Argument(metavar="OP...", help="Operation ids, or their last eight or more characters; or give a filter."),
]
States = Annotated[
    list[str] | None, typer.Option("--state", metavar="S", help="All in this state; several may be given.")
]
OfContract = Annotated[str | None, typer.Option("--contract", metavar="C", help="All of this contract.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="K=V", help="All with this tag.")]
Attention = Annotated[bool, typer.Option("--attention", help="All that want a person's attention.")]
Yes = Annotated[bool, typer.Option("--yes", help="Decide about all that the filter finds, without asking.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would become of each.")]
IfVersion = Annotated[
    int | None, typer.Option("--if-version", metavar="N", min=1, help="Only if the record still has this version.")
]


@dataclass(frozen=True, slots=True)
class Which:
    """What the flags say about which operations are meant, and how far to go."""

    ops: Sequence[str]
    states: Sequence[str]
    contract: str | None
    tags: Sequence[str]
    attention: bool
    yes: bool
    dry_run: bool
    if_version: int | None

    @property
    def by_filter(self) -> bool:
        """True where a filter is given."""
        return bool(self.states or self.contract or self.tags or self.attention)

    def check(self) -> None:
        """Raise UsageError for flags that contradict each other."""
        from opledger.errors import UsageError

        if self.ops and self.by_filter:
            raise UsageError("give the ids of operations or a filter, not both")
        if not self.ops and not self.by_filter:
            raise UsageError(
                "which operations? Give their ids, or a filter: --state S, --contract C, --tag K=V, --attention"
            )
        if self.yes and self.dry_run:
            raise UsageError("--yes decides and --dry-run only looks; give one of them")
        if self.if_version is not None and len(self.ops) != 1:
            raise UsageError("--if-version is the version of one record; give the id of that one operation")


def decide(run: Run, which: Which, decision: Decision, equip: Callable[[Ledger], Decision] | None = None) -> int:
    """Carry a decision out on all that are meant, or say what it would do; returns the exit code.

    `equip` makes the decision whole, where that takes the open ledger.
    """
    from opledger.cli import inputs
    from opledger.ledger import bulk

    which.check()
    with run.ledger(read_only=which.dry_run) as ledger:
        decision = decision if equip is None else equip(ledger)
        if not which.by_filter and not which.dry_run:
            targets = [bulk.Target(name, which.if_version) for name in dict.fromkeys(which.ops)]
            if len(targets) == 1:
                return _one(run, ledger, targets[0], decision)
            return _many(run, ledger, targets, decision)
        names: Sequence[str] = which.ops
        if which.by_filter:
            names = bulk.freeze(
                ledger,
                states=which.states,
                contract=which.contract,
                attention=which.attention,
                tags=inputs.tags(which.tags),
            )
        found = bulk.preview(ledger, names, decision)
        if which.dry_run:
            run.give([_foreseen(one) for one in found], lambda: _preview(found, decision))
            return 0
        return _all(run, ledger, found, decision, yes=which.yes)


def _one(run: Run, ledger: Ledger, target: Target, decision: Decision) -> int:
    from opledger.cli import text
    from opledger.rules import shapes

    done = decision.on(ledger, target.name, also=[target.name], expected_version=target.version)
    run.give(shapes.record(done), lambda: text.record(done, ledger.clock.now()))
    return 0


def _all(run: Run, ledger: Ledger, found: Sequence[Prospect], decision: Decision, *, yes: bool) -> int:
    """Decide about a frozen set, once somebody has said that this is meant."""
    from opledger.errors import Refused, UsageError
    from opledger.ledger.bulk import Outcome, Target

    eligible = sum(one.eligible for one in found)
    if not run.flags.as_json:
        put(_preview(found, decision))
    if not yes and not eligible:
        # Nobody has said yes, so nothing is tried that might have become possible meanwhile.
        refused = [
            Outcome(one.operation_id, one.operation, None if one.done else Refused(one.because), one.done)
            for one in found
        ]
        run.give([_became(one) for one in refused], lambda: ())
        return REFUSED if any(one.error is not None for one in refused) else 0
    if not yes:
        if run.flags.as_json or not sys.stdin.isatty():
            raise UsageError(
                f"this would {decision.verb} {_operations(eligible)}; give --yes to do it, or --dry-run to see each"
            )
        if not _confirmed(eligible, decision):
            raise Refused("the number was not typed, so nothing was decided")
    targets = [Target(one.operation_id, None if one.operation is None else one.operation.version) for one in found]
    return _many(run, ledger, targets, decision)


def _confirmed(count: int, decision: Decision) -> bool:
    sys.stderr.write(f"Type {count} to {decision.verb} {_operations(count)}: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip() == str(count)


def _many(run: Run, ledger: Ledger, targets: Sequence[Target], decision: Decision) -> int:
    """Decide one after the other and print every outcome, also where something puts an early end to it."""
    from opledger.errors import StoreUnavailable
    from opledger.ledger.bulk import carry_out

    outcomes: list[Outcome] = []
    stopped: KeyboardInterrupt | StoreUnavailable | None = None
    progress = _Progress(len(targets))
    try:
        for outcome in carry_out(ledger, targets, decision):
            outcomes.append(outcome)
            progress.at(len(outcomes))
    except (KeyboardInterrupt, StoreUnavailable) as end:
        stopped = end
    progress.clear()
    run.give([_became(one) for one in outcomes], lambda: _lines(outcomes))
    if stopped is not None:
        why = f"{stopped}; " if str(stopped) else ""
        run.tell(
            "interrupted" if isinstance(stopped, KeyboardInterrupt) else stopped.code,
            f"{why}{len(outcomes)} of {len(targets)} were decided; the same command goes on with the rest",
        )
        return INTERRUPTED if isinstance(stopped, KeyboardInterrupt) else OUT_OF_REACH
    return REFUSED if any(one.error is not None for one in outcomes) else 0


class _Progress:
    """Counts on standard error, where that is a terminal and there are many."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._shown = total > PROGRESS_FROM and sys.stderr.isatty()

    def at(self, done: int) -> None:
        """Say how many are done."""
        self._say(f"\r{done} of {self._total}")

    def clear(self) -> None:
        """Take the line away."""
        self._say("\r\x1b[2K")

    def _say(self, text: str) -> None:
        if self._shown:
            sys.stderr.write(text)
            sys.stderr.flush()


# --- what is printed ---------------------------------------------------------------------------------------------


def _operations(count: int) -> str:
    return "1 operation" if count == 1 else f"{count} operations"


def _foreseen(one: Prospect) -> dict[str, Any]:
    op = one.operation
    return {
        "operation_id": one.operation_id,
        "eligible": one.eligible,
        "because": one.because,
        "state": None if op is None else op.state.value,
        "to": None if one.to is None else one.to.value,
        "version": None if op is None else op.version,
        "done": one.done,
    }


def _became(one: Outcome) -> dict[str, Any]:
    from opledger.rules import shapes

    if one.error is not None or one.operation is None:
        error = one.error
        assert error is not None
        return {
            "operation_id": one.operation_id,
            "ok": False,
            "error": {"code": error.code, "message": error.message},
        }
    return {
        "operation_id": one.operation_id,
        "ok": True,
        "record": shapes.record(one.operation),
        "done_before": one.done,
    }


def _preview(found: Sequence[Prospect], decision: Decision) -> Iterable[str]:
    from opledger.cli import text
    from opledger.rules.plain import clean

    eligible, done = sum(one.eligible for one in found), sum(one.done for one in found)
    counts = f"{eligible} of {len(found)} can be decided"
    if done:
        counts += f", {done} were decided so before"
    what = f"{decision.verb} --as {decision.choice}" if decision.choice else decision.verb
    yield f"{what}: {counts}" if found else f"{what}: nothing matches"
    if not found:
        return
    # Never cut: what a cancel leaves behind, or why something is refused, is what the preview is for.
    for one in found:
        state = "-" if one.operation is None else one.operation.state.value
        word = "yes " if one.eligible else "done" if one.done else "no  "
        yield f"{word}  {clean(text.short(one.operation_id)):<8}  {state}"
        yield from text.wrapped(one.because.replace(one.operation_id, "it"), "      ")


def _lines(outcomes: Sequence[Outcome]) -> Iterable[str]:
    from opledger.cli import text
    from opledger.rules.plain import clean

    for one in outcomes:
        if one.error is not None:
            yield f"refused: {clean(one.error.message)}"
        elif one.operation is not None:
            already = " (decided so before; nothing was written)" if one.done else ""
            yield f"{clean(one.operation_id)} is {text.state_word(one.operation.state)}{already}"
