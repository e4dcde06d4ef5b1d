"""The line in which a filter is typed: it says what is wrong while it is typed, and offers what could follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input, Static

from opledger.rules.filters import FilterWrong, Wanted, complete, parse
from opledger_console.text import line
from opledger_console.widgets.typed import Typed


class _Suggests(Suggester):
    def __init__(self, offers: Callable[[str, int], Sequence[str]]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._offers = offers

    async def get_suggestion(self, value: str) -> str | None:
        """Return the first thing that what is typed could become."""
        return next((one for one in self._offers(value, len(value)) if one.startswith(value) and one != value), None)


class FilterBar(Vertical):
    """Hidden until it is asked for; hands back a filter that can be read, or nothing."""

    DEFAULT_CSS = """
    FilterBar { height: auto; display: none; }
    FilterBar.-open { display: block; }
    FilterBar > Input { border: none; height: 1; padding: 0 1; background: $panel; }
    FilterBar > Static { height: 1; padding: 0 1; color: $text-muted; }
    FilterBar.-wrong > Static { color: $text-error; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back", show=False, id="filter.back"),
        Binding("tab", "take", "complete", show=False, id="filter.complete"),
    ]

    @dataclass
    class Applied(Message):
        """A filter was typed and confirmed."""

        text: str
        wanted: Wanted

    @dataclass
    class Left(Message):
        """Typing was given up; the filter stays what it was."""

    def __init__(self) -> None:
        super().__init__()
        self.vocabulary: dict[str, tuple[str, ...]] = {}

    def compose(self) -> ComposeResult:
        """The line, and what is said about it."""
        yield Typed(
            placeholder="state:waiting contract:NAME by:WHO age>2h tag:K=V, or the end of an id",
            suggester=_Suggests(self._offers),
            compact=True,
        )
        yield Static("", markup=False)

    @property
    def is_open(self) -> bool:
        """True while somebody types."""
        return self.has_class("-open")

    def open(self, text: str) -> None:
        """Begin with a text."""
        self.add_class("-open")
        field = self.query_one(Input)
        field.value = text
        field.cursor_position = len(text)
        field.focus()
        self._comment(text)

    def close(self) -> None:
        """Hide again."""
        self.remove_class("-open")

    def action_leave(self) -> None:
        """Give up."""
        self.close()
        self.post_message(self.Left())

    def action_take(self) -> None:
        """Complete the word under the cursor."""
        field = self.query_one(Input)
        offered = self._offers(field.value, field.cursor_position)
        if offered:
            field.value = offered[0]
            field.cursor_position = len(offered[0])

    def _offers(self, text: str, cursor: int) -> Sequence[str]:
        return complete(text, cursor, self.vocabulary)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._comment(event.value)

    def _comment(self, text: str) -> None:
        said = self.query_one(Static)
        try:
            parse(text)
        except FilterWrong as error:
            self.add_class("-wrong")
            said.update(line(error.message, limit=300))
            return
        self.remove_class("-wrong")
        words = Text(no_wrap=True, overflow="ellipsis", end="")
        offered = self._offers(text, len(text))[:8]
        if offered:
            words.append("Tab: ", style="bold")
        for one in offered:
            words.append_text(line(one.rpartition(" ")[2] or one, limit=40))
            words.append("  ")
        self.query_one(Static).update(words)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        try:
            wanted = parse(event.value)
        except FilterWrong:
            self.app.bell()
            return
        self.close()
        self.post_message(self.Applied(event.value.strip(), wanted))
