"""Many at once: exactly the operations that are listed here, each as it stood, and a report of what became of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from opledger_console.dialogs.base import Clock, Dialog
from opledger_console.dialogs.deciding import REASON
from opledger_console.dialogs.heads import Head
from opledger_console.dialogs.lines import Kind, Piece
from opledger_console.dialogs.parts import Field, Lack
from opledger_console.verdicts import BulkVerdict, Verb
from opledger_console.views import short_id

COUNT: Final = Field("typed", "Type to confirm", "how many operations it is done to")
EFFECTS: Final[Mapping[Verb, str]] = {
    "approve": "Each may then be sent, once, exactly as recorded. What has been sent cannot be called back.",
    "reject": "Each is refused and never sent. That is final.",
    "cancel": "A cancellation of each is requested, once. What has been sent cannot be called back.",
    "resolve": "Each is decided in this way. What it sends cannot be called back.",
    "acknowledge": "Reminders about each fall silent. Nothing is decided.",
}


@dataclass(frozen=True, slots=True)
class Prospect:
    """What would become of one operation of the set."""

    operation_id: str
    state: str
    eligible: bool
    because: str
    version: int | None = None  #: as it was looked at


@dataclass(frozen=True, slots=True)
class BulkOutcome:
    """What became of one operation."""

    operation_id: str
    outcome: Literal["done", "skipped", "failed"]
    words: str


class BulkDialog(Dialog[BulkVerdict]):
    """Decide a frozen set. `what` are the rest of the decision: its choice, job and time where the verb is resolve."""

    keep_word = "Do nothing"

    def __init__(
        self,
        verb: Verb,
        prospects: tuple[Prospect, ...],
        *,
        what: BulkVerdict | None = None,
        grace: float = 5.0,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(grace=grace if verb in ("approve", "cancel") else 0.0, clock=clock)
        self.verb, self.prospects, self.what = verb, prospects, what
        self.eligible = tuple(one for one in prospects if one.eligible)
        self.confirm_word = "Request cancellation" if verb == "cancel" else verb.capitalize()

    def head(self) -> Head:
        """How many."""
        verb = "REQUEST CANCELLATION" if self.verb == "cancel" else self.verb.upper()
        left = len(self.prospects) - len(self.eligible)
        return Head(f"{verb} OF MANY:", f"{len(self.eligible)} operations", state=f"{left} left out")

    def fields(self) -> tuple[Field, ...]:
        """One reason for all, and the count."""
        return (REASON, COUNT)

    def lacks(self) -> Sequence[Lack]:
        """The reason, and the count of those that it is done to."""
        return tuple(self._lacks())

    def _lacks(self) -> Iterator[Lack]:
        if not self.eligible:
            yield Lack("an operation that this can be done to")
            return
        if not self.value("reason"):
            yield Lack("a reason", "reason")
        if self.value("typed") != str(len(self.eligible)):
            yield Lack(f"the count: {len(self.eligible)}", "typed")

    def pieces(self) -> Sequence[Piece]:
        """All of them; nothing that is not listed here is touched."""
        left = [one for one in self.prospects if not one.eligible]
        return (
            Piece(f"Done to {len(self.eligible)}, each judged again when its turn comes:", "head"),
            *(piece for one in self.eligible for piece in _listed(one, "✓", "data")),
            Piece(""),
            Piece(f"Left out {len(left)}:" if left else "None is left out.", "head" if left else "dim"),
            *(piece for one in left for piece in _listed(one, "–", "dim")),
        )

    def effect(self) -> str:
        """For each of them."""
        return EFFECTS.get(self.verb, "It is done to each of them.")

    def result(self) -> BulkVerdict:
        """The frozen set, with versions."""
        what = self.what or BulkVerdict(self.verb, (), "")
        return BulkVerdict(
            self.verb,
            tuple((one.operation_id, one.version) for one in self.eligible),
            self.value("reason"),
            effect=what.effect,
            choice=what.choice,
            job=what.job,
            length=what.length,
            until=what.until,
        )


class BulkReport(Dialog[None]):
    """What became of each operation of a set. `verb` is one of our words."""

    keep_word = "Close"

    def __init__(self, verb: Verb, outcomes: tuple[BulkOutcome, ...], *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self.verb, self.outcomes = verb, outcomes

    def head(self) -> Head:
        """Counts."""
        counts = {word: sum(one.outcome == word for one in self.outcomes) for word in ("done", "skipped", "failed")}
        return Head(f"{self.verb.upper()}:", ", ".join(f"{count} {word}" for word, count in counts.items()))

    def pieces(self) -> Sequence[Piece]:
        """What failed first."""
        kinds: Mapping[str, Kind] = {"failed": "minus", "skipped": "differs", "done": "data"}
        ordered = sorted(self.outcomes, key=lambda one: list(kinds).index(one.outcome))
        return tuple(
            Piece(f"{one.outcome:<8}{short_id(one.operation_id)}  {one.words}", kinds[one.outcome]) for one in ordered
        )


def _listed(one: Prospect, mark: str, kind: Kind) -> Iterator[Piece]:
    yield Piece(f"{mark} {short_id(one.operation_id)}  {one.state}", kind)
    yield Piece(one.because, "said", 4)
