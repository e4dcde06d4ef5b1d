"""Resolve: what no program may decide. First the choices, then what the chosen one needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from textual import events

from opledger.rules.choices import Option
from opledger.rules.durations import parse_duration
from opledger.rules.model import Choice, Operation, State
from opledger_console.dialogs.answers import beside, stacked
from opledger_console.dialogs.base import Clock
from opledger_console.dialogs.deciding import REASON, TYPED, Deciding, titled
from opledger_console.dialogs.heads import Head, head_of
from opledger_console.dialogs.lines import Lines, Piece
from opledger_console.dialogs.parts import Field, FieldInput, FieldName, Lack
from opledger_console.text import line
from opledger_console.verdicts import Verdict

JOB: Final = Field("job", "Job id", "at the provider; up and down offer the known ones")
LENGTH: Final = Field("length", "For how long", "30m, 4h, 2d")

_EFFECTS: Final[Mapping[Choice, str]] = {
    Choice.BIND: "That job becomes this operation's job, for good. Read above what follows.",
    Choice.NOT_CREATED: "The operation fails for good. Should there be a job after all, it runs on unseen.",
    Choice.RESEND: "The same request is sent once more; there may be two jobs then. That cannot be called back.",
    Choice.KEEP: "That job is polled from now on; the others run on and cost what they cost.",
    Choice.CANCEL: "A cancellation is requested, once. What has been sent cannot be called back.",
    Choice.WATCH: "It is polled until the new deadline. What the job costs meanwhile cannot be undone.",
    Choice.EXTEND: "It is polled until the new deadline. What the job costs meanwhile cannot be undone.",
    Choice.COLLECT: "The result is fetched again. A file that is fetched anew takes the place of the present one.",
    Choice.ACCEPT: "The operation ends for good, with what there is.",
    Choice.RESUME: "Automation goes on.",
    Choice.CLOSE: "Automation ends for good; whatever runs at the provider runs on. It is never opened again.",
}
_TYPED: Final = frozenset({Choice.RESEND, Choice.CLOSE, Choice.NOT_CREATED, Choice.ACCEPT})
WIDE: Final = 92
"""From this width of the content on (a window of 100 columns) two answers stand side by side."""


class ResolveDialog(Deciding):
    """Decide one operation that waits for a person. `answers`: what a provider said that contradicts itself."""

    keep_word = "Decide nothing"
    confirm_word = "Decide"

    def __init__(
        self,
        operation: Operation,
        options: tuple[Option, ...],
        answers: tuple[tuple[str, str], ...],
        now: datetime,
        *,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(operation, now, clock=clock)
        self.options, self.answers = options, answers
        self.option: Option | None = None
        self.set_class(len(answers) > 1, "-wide")

    @property
    def violated(self) -> bool:
        """True where the provider broke its promises: everything is asked twice then."""
        return self.operation.state is State.CONTRACT_VIOLATION

    def level(self) -> int:
        """What ends the operation, or may make a second job, wants the id."""
        if self.option is None:
            return 2
        choice = self.option.choice
        return 3 if choice in _TYPED or (choice is Choice.CANCEL and self.violated) else 2

    def head(self) -> Head:
        """The operation, and the choice once it is made; a choice is one of our own words."""
        return head_of("RESOLVE" if self.option is None else f"RESOLVE: {self.option.choice.value}", self.operation)

    def fields(self) -> tuple[Field, ...]:
        """All that any choice needs; those of the chosen one are shown."""
        return (JOB, LENGTH, REASON, TYPED)

    def offers(self) -> Mapping[FieldName, Sequence[str]]:
        """The jobs that ever came up."""
        return {"job": self._known()}

    def _known(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(job for option in self.options for job in option.jobs))

    # --- content --------------------------------------------------------------------------------------------

    def pieces_for(self, width: int) -> Sequence[Piece]:
        """The choices, or the chosen one; then the answers."""
        return (*(self._listed() if self.option is None else self._chosen(self.option)), *self._answers(width))

    def _listed(self) -> Iterator[Piece]:
        if not self.options:
            yield Piece("Nothing is to be decided here.", "dim")
        for place, option in enumerate(self.options):
            yield Piece(f"{place + 1}  {option.choice.value}  → {option.to.value}", "head", pick=place)
            yield from _told(option, place)
            yield Piece("", pick=place)

    def _chosen(self, option: Option) -> Iterator[Piece]:
        yield Piece(f"{option.choice.value}  → {option.to.value}", "head")
        yield from _told(option, None)
        if option.jobs:
            yield Piece("Known jobs:", "dim", 2)
            yield from (Piece(job, "data", 4) for job in option.jobs)
        yield Piece("Esc goes back to the choices.", "dim")
        yield Piece("")

    def _answers(self, width: int) -> Iterator[Piece]:
        if self.answers:
            side = len(self.answers) == 2 and width >= WIDE
            shown = beside(self.answers) if side else stacked(self.answers)
            yield from titled("What the provider said (≠ marks what differs)", tuple(shown))

    # --- choosing -------------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        """Begin with the choices."""
        self._lay_out()

    def on_key(self, event: events.Key) -> None:
        """A digit chooses; a field that has the focus keeps its digits."""
        if not self.deaf and event.key.isdecimal() and event.key.isascii():
            event.stop()
            self.choose(int(event.key) - 1)

    def on_lines_picked(self, event: Lines.Picked) -> None:
        """A click chooses too."""
        if not self.deaf:
            self.choose(event.pick)

    def choose(self, place: int | None) -> None:
        """Show what one choice needs; None: show the choices again. What was typed stays."""
        if self._phase != "form" or (place is not None and not 0 <= place < len(self.options)):
            return
        self.option = None if place is None else self.options[place]
        self.query_one("#typed", FieldInput).value = ""  # it was typed for another choice
        self._lay_out()
        self.query_one(Lines).scroll_home(animate=False)
        self.set_focus(self.query_one("#keep"))

    def _lay_out(self) -> None:
        needs = () if self.option is None else self.option.needs
        shown = {
            "job": "job" in needs,
            "length": "for" in needs,
            "reason": self.option is not None,
            "typed": self.level() >= 3,
        }
        for name, wanted in shown.items():
            self.query_one(f"#row-{name}").display = wanted
        self.query_one("#confirm").display = self.option is not None
        self.show_head()
        self.query_one(Lines).rebuild()
        self.refresh_foot()

    def action_back(self) -> None:
        """From the chosen one to the choices, from there away."""
        if self._phase == "form" and self.option is not None and self._moved is None:
            self.choose(None)
        else:
            super().action_back()

    # --- deciding -------------------------------------------------------------------------------------------

    def effect(self) -> str:
        """What the choice does."""
        return "Nothing is chosen yet." if self.option is None else _EFFECTS[self.option.choice]

    def second_question(self) -> str | None:
        """Of a violation: nobody but a person knows what runs there."""
        if not self.violated or self.option is None:
            return None
        return f"Once more: {self.option.choice.value}. The provider broke its promises: have you read both answers?"

    def _lacks(self) -> Iterator[Lack]:
        if self.option is None:
            last = min(len(self.options), 9)
            yield Lack(f"a choice: press 1 to {last}, or click one" if last else "a choice, and there is none")
            return
        if "job" in self.option.needs:
            yield from self._job_lacks(self.option)
        if "for" in self.option.needs and self._length() is None:
            yield Lack("a time such as 30m, 4h or 2d", "length")
        yield from super()._lacks()

    def _job_lacks(self, option: Option) -> Iterator[Lack]:
        typed = self.value("job")
        meant = [job for job in option.jobs if line(job).plain.strip() == typed]
        if not typed:
            yield Lack("the job's id", "job")
        elif len(meant) > 1:
            yield Lack("a job that can be told from the others: two look the same, use opledger resolve", "job")
        elif option.jobs and not meant:
            yield Lack("one of the known jobs", "job")

    def _length(self) -> timedelta | None:
        try:
            length = parse_duration(self.value("length"))
        except ValueError:
            return None
        return length if length > timedelta(0) else None

    def _job(self, option: Option) -> str:
        """Return the id as the record has it: what is shown of it has been made inert."""
        typed = self.value("job")
        return next((job for job in option.jobs if line(job).plain.strip() == typed), typed)

    def result(self) -> Verdict:
        """With what the choice needs, and nothing that it does not take."""
        op, option = self.operation, self.option
        if option is None:
            raise ValueError("nothing is chosen")
        return Verdict(
            "resolve",
            op.operation_id,
            op.version,
            self.value("reason"),
            choice=option.choice.value,
            job=self._job(option) if "job" in option.needs else None,
            length=self.value("length") if "for" in option.needs else None,
        )


def _told(option: Option, pick: int | None) -> Iterator[Piece]:
    if option.precondition:
        yield Piece(f"Only if: {option.precondition}", "text", 3, pick)
    yield Piece(f"Then: {option.consequence}", "text", 3, pick)
    if option.sends:
        yield Piece(f"Sends: {option.sends}", "warn", 3, pick)
    else:
        yield Piece("Sends nothing.", "dim", 3, pick)
    if option.undoable:
        yield Piece(f"Cannot be undone: {option.undoable}", "text", 3, pick)
