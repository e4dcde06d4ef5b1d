"""The loop of a task: ask the rules what is next, do it, write it down; until it ends or needs somebody."""

from __future__ import annotations

from opledger.errors import Refused
from opledger.rules.tasks.ahead import Begin, End, Ended, GoOn, LookFor, Need, Verify, ahead
from opledger.rules.tasks.plan import Ask, Step
from opledger.rules.tasks.records import Kind
from opledger.rules.tasks.story import Story, check_plan
from opledger.rules.tasks.summary import summary
from opledger.tasks.book import Book, Draft, beginning
from opledger.tasks.doing import Doer, Patience
from opledger.tasks.keeper import Keeper


def run(book: Book, patience: Patience) -> Need | None:
    """Go on with a task; return who is needed, or None where it has ended.

    Raises AlreadyRun, PlanChanged, ProgressBroken, WaitTimedOut, LeaseLost, and whatever a step raises.
    """
    lease = book.ledger.settings.worker.lease
    with Keeper(book.ledger.store, book.papers, book.clock, task=book.plan.task, run=book.run, lease=lease) as keeper:
        return _Run(book, keeper, patience).go()


def reach(book: Book, keeper: Keeper, step: Step) -> None:
    """Begin the run where it has not begun, and verify what an agent's step stands on.

    Raises Refused where that step is not next, and PlanChanged.
    """
    check_plan(book.plan, book.story)
    run_ = _Run(book, keeper, Patience())
    run_.begin()
    while isinstance(found := ahead(book.plan, book.story, verified=run_.verified), Verify):
        run_.verify(found.step)
    reached = found.step.id if isinstance(found, Begin | GoOn | LookFor) else getattr(found, "step", None)
    if reached != step.id:
        instead = "the run has ended" if reached is None else f"next is step {reached}: opledger task run PLAN"
        raise Refused(f"step {step.id} is not next; {instead}")


class _Run:
    def __init__(self, book: Book, keeper: Keeper, patience: Patience) -> None:
        self._book = book
        self._keeper = keeper
        self._doer = Doer(book, keeper, patience)
        self.verified: set[str] = set()

    def go(self) -> Need | None:
        self._book.open()
        check_plan(self._book.plan, self._book.story)
        self.begin()
        while True:
            self._keeper.check()
            ahead_of = ahead(self._book.plan, self._book.story, verified=self.verified)
            need: Need | None = None
            if isinstance(ahead_of, Need):
                return ahead_of
            if isinstance(ahead_of, Ended):
                archive(self._book)
                return None
            if isinstance(ahead_of, End):
                self._end(ahead_of)
            elif isinstance(ahead_of, Verify):
                self.verify(ahead_of.step)
            elif isinstance(ahead_of, Begin):
                need = self._doer.begin(ahead_of.step)
                self.verified.add(ahead_of.step.id)
            elif isinstance(ahead_of, GoOn):
                need = self._doer.go_on(ahead_of.step, ahead_of.began)
                self.verified.add(ahead_of.step.id)
            elif isinstance(ahead_of, LookFor):
                need = self._doer.look_for(ahead_of.step, ahead_of.began)
                self.verified.add(ahead_of.step.id)
            if need is not None:
                return need

    def begin(self) -> None:
        draft, began = beginning(self._book.plan), self._book.story.began
        if began is None or began.proof.get("plan") != draft.proof["plan"]:
            self._book.add(lambda _: draft, self._keeper.fence)

    def verify(self, step: Step) -> None:
        held = self._doer.verify(step)
        if held.ok:
            self.verified.add(step.id)
            if not isinstance(step.action, Ask):
                draft = Draft(Kind.VERIFIED, step, {"checks": list(held.proofs)})
                self._book.add(lambda _: draft, self._keeper.fence)
            return
        draft = Draft(Kind.FAILED, step, {"unproven": True}, reason=f"its proof does not hold any more: {held.why}")
        self._book.add(lambda _: draft, self._keeper.fence)

    def _end(self, end: End) -> None:
        def judge(story: Story) -> Draft:
            states = {step.id: story.of(step.id).word for step in self._book.plan.steps}
            return Draft(Kind.NOTE, proof={"ended": end.outcome, "steps": states}, reason=end.why)

        self._book.add(judge, self._keeper.fence)


def archive(book: Book) -> None:
    """Put plan, progress and summary into the folder of the run. Done again, it changes nothing."""
    folder = book.papers.run_folder(book.run)
    for name, data in (
        (book.papers.plan.name, book.source),
        (book.papers.progress.name, book.lines),
        ("summary.md", summary(book.plan, book.story).encode()),
    ):
        path = folder / name
        if not path.is_file() or path.read_bytes() != data:
            book.papers.put(path, data)
