"""One line at the bottom of the screen: the ``:`` commands, and any other line that is read and may be wrong.

The screen below stays in sight. What is wrong is said above the line, and the line stays for mending.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, TypeVar

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from opledger.errors import UsageError
from opledger_console.commands import VERBS, Command, Vocabulary, complete, parse
from opledger_console.text import line
from opledger_console.widgets.typed import Typed

Result = TypeVar("Result")

OFFERED = 8
"""How many ways to go on are shown at once."""

REMEMBERED = 100


class LineScreen(ModalScreen[Result | None], Generic[Result]):
    """Asks for one line. Its result is what `read` makes of it, or None where somebody went back."""

    DEFAULT_CSS = """
    LineScreen { background: transparent; align: left bottom; }
    LineScreen Vertical { height: auto; dock: bottom; background: $panel; }
    LineScreen Horizontal { height: 1; }
    LineScreen #prompt { width: auto; text-style: bold; }
    LineScreen Input, LineScreen Input:focus { border: none; height: 1; padding: 0; background: $panel; width: 1fr; }
    LineScreen #words { height: 1; color: $text-muted; }
    LineScreen #words.-wrong { color: $text-error; text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back", show=False),
        Binding("tab", "complete(1)", "complete", show=False, priority=True),
        Binding("shift+tab", "complete(-1)", "complete", show=False, priority=True),
        Binding("up", "recall(-1)", "line before", show=False, priority=True),
        Binding("down", "recall(1)", "line after", show=False, priority=True),
    ]
    _past: ClassVar[dict[str, list[str]]] = {}  #: what was entered in this run of the console, by prompt

    def __init__(
        self,
        prompt: str,
        read: Callable[[str], Result],
        *,
        value: str = "",
        offer: Callable[[str], Sequence[str]] = lambda _: (),
        hint: str = "",
    ) -> None:
        """Take what checks a line (raises UsageError) and what offers ways to go on from one."""
        super().__init__()
        self._prompt, self._read, self._value, self._offer, self._hint = prompt, read, value, offer, hint
        self._offers: tuple[str, ...] = ()
        self._offered: int | None = None
        self._place = len(self.past)
        self._draft = value

    @property
    def past(self) -> list[str]:
        """What was entered at this prompt before, oldest first."""
        return self._past.setdefault(self._prompt, [])

    def compose(self) -> ComposeResult:
        """The words above, the line below."""
        with Vertical():
            yield Static("", id="words", markup=False)
            with Horizontal():
                yield Static(Text(self._prompt), id="prompt", markup=False)
                yield Typed(self._value, select_on_focus=False, id="line")

    def on_mount(self) -> None:
        """Begin to type at the end of what is there."""
        field = self.query_one(Input)
        field.cursor_position = len(self._value)
        field.focus()
        self._tell(self._hint)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        if self._offered is not None and event.value == self._offers[self._offered]:
            self._show_offers()
            return
        self._offered = None
        self._offers = tuple(self._offer(event.value)) if event.value else ()
        if self._offers:
            self._show_offers()
        else:
            self._tell(self._hint)

    def _tell(self, words: str, *, wrong: bool = False) -> None:
        shown = self.query_one("#words", Static)
        shown.set_class(wrong, "-wrong")
        shown.update(line(words, limit=400))

    def _show_offers(self) -> None:
        first = max((self._offered or 0) - OFFERED + 1, 0)
        shown = Text(no_wrap=True, overflow="ellipsis", end="")
        for place, offer in enumerate(self._offers[first : first + OFFERED], first):
            shown.append_text(line(offer, limit=60, style="bold reverse" if place == self._offered else ""))
            shown.append("  ")
        words = self.query_one("#words", Static)
        words.set_class(False, "-wrong")
        words.update(shown)

    def action_complete(self, by: int) -> None:
        """Go on as is offered; pressed again, in the next way that is."""
        if not self._offers:
            return
        if len(self._offers) == 1:
            chosen, self._offered = self._offers[0], None
        else:
            before = self._offered if self._offered is not None else (-1 if by > 0 else 0)
            self._offered = (before + by) % len(self._offers)
            chosen = self._offers[self._offered]
        self._put(chosen)

    def action_recall(self, by: int) -> None:
        """Bring back what was entered before."""
        if self._place == len(self.past):
            self._draft = self.query_one(Input).value
        self._place = max(0, min(self._place + by, len(self.past)))
        self._offered = None
        self._put(self.past[self._place] if self._place < len(self.past) else self._draft)

    def _put(self, text: str) -> None:
        field = self.query_one(Input)
        field.value = text
        field.cursor_position = len(text)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        try:
            result = self._read(event.value)
        except UsageError as wrong:
            self._tell(wrong.message, wrong=True)
            return
        self._remember(event.value)
        self.dismiss(result)

    def _remember(self, text: str) -> None:
        past = self.past
        if text and past[-1:] != [text]:
            past.append(text)
            del past[:-REMEMBERED]

    def action_back(self) -> None:
        """Leave everything as it was."""
        self.dismiss(None)

    def on_click(self, event: events.Click) -> None:
        """A click on the screen below goes back to it."""
        if event.widget is self:
            self.dismiss(None)


class CommandScreen(LineScreen[Command]):
    """The ``:`` command line. Its result is the command, or None."""

    def __init__(self, vocabulary: Vocabulary, *, value: str = "") -> None:
        super().__init__(
            ":",
            parse,
            value=value,
            offer=lambda text: complete(text, vocabulary),
            hint=f"{' '.join(VERBS)}   tab completes, up recalls",
        )
