"""The pieces that dialogs are put together from: fields, buttons, a row of alternatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from textual import events
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Button, Input, Static
from textual.widgets.button import ButtonVariant

from opledger_console.text import block, line

FieldName = Literal["reason", "effect", "job", "length", "typed"]


@dataclass(frozen=True, slots=True)
class Field:
    """One line to type in. `label` and `hint` are our own words, never data."""

    name: FieldName
    label: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Lack:
    """What is still missing, in words, and the field that wants it."""

    words: str
    field: FieldName | None = None


class FieldInput(Input):
    """One line of text. What is pasted into it is made inert as well: an Input passes control bytes on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.after_field", "go on", show=False, priority=True),
        Binding("up", "offer(-1)", "known before", show=False),
        Binding("down", "offer(1)", "known next", show=False),
    ]

    def __init__(self, field: Field, offers: Sequence[str] = ()) -> None:
        super().__init__(placeholder=field.hint, compact=True, id=field.name, select_on_focus=False)
        self.field = field
        self._offers = tuple(dict.fromkeys(line(offer).plain for offer in offers))

    def validate_value(self, value: str) -> str:
        """Keep only what can be looked at; line feeds and tabs become spaces."""
        return line(value.replace("\n", " ").replace("\t", " ")).plain

    def _on_paste(self, event: events.Paste) -> None:
        # Textual takes the first line only: the rest of a reason would be lost without a word.
        event.prevent_default()
        event.stop()
        self.replace(" ".join(event.text.split()), *self.selection)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Where nothing is known the arrows scroll the content, as everywhere else."""
        return bool(self._offers) if action == "offer" else super().check_action(action, parameters)

    def action_offer(self, step: int) -> None:
        """Put the next of the known values in."""
        at = self._offers.index(self.value) if self.value in self._offers else (-1 if step > 0 else 0)
        self.value = self._offers[(at + step) % len(self._offers)]
        self.cursor_position = len(self.value)


class Press(Button):
    """A button of one line that space presses too. Its label is always one of ours: Textual reads markup in it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "press", "press", show=False),
        # Priority: looked up before the next key is handed out, so that what follows fast lands in the field.
        Binding("tab", "screen.next_field", "to what is missing", show=False, priority=True),
        Binding("left", "screen.button(-1)", "left", show=False),
        Binding("right", "screen.button(1)", "right", show=False),
    ]

    def __init__(self, label: str, *, id: str, variant: ButtonVariant = "primary") -> None:  # noqa: A002 - Textual's name
        super().__init__(Content(f"  {label}  "), variant=variant, id=id, compact=True)
        self._words = label
        # The effect of Textual's own would swallow a second press; pressing twice is the dialog's business.
        self.active_effect_duration = 0

    def say(self, words: str) -> None:
        """Change what the button says."""
        self._words = words
        self._mark(self.has_focus)

    def on_focus(self) -> None:
        """Mark what Enter would press; a colour alone does not reach everybody."""
        self._mark(True)

    def on_blur(self) -> None:
        """Take the mark away."""
        self._mark(False)

    def _mark(self, on: bool) -> None:  # noqa: FBT001 - a switch
        self.label = Content(f"[ {self._words} ]" if on else f"  {self._words}  ")


class Alternatives(Static, can_focus=True):
    """A row of words of which one holds; left and right, or a click, choose another."""

    DEFAULT_CSS = """
    Alternatives { height: 1; width: 1fr; }
    Alternatives:focus { background: $primary 20%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "step(-1)", "before", show=False),
        Binding("right,l,space", "step(1)", "next", show=False),
        Binding("enter", "screen.next_field", "go on", show=False),
    ]
    chosen: reactive[int] = reactive(0)

    class Changed(Message):
        """Another one holds now."""

    def __init__(self, words: Sequence[str], *, id: str, chosen: int = 0) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id, markup=False)
        self.words = tuple(words)
        self.set_reactive(Alternatives.chosen, chosen)

    def render(self) -> Content:
        """Mark the one that holds with brackets too: colour is never the only sign."""
        shown = Content("")
        for place, word in enumerate(self.words):
            held = place == self.chosen
            shown += block(f"[{word}]" if held else f" {word} ").stylize("bold reverse" if held else "dim")
        return shown

    def watch_chosen(self) -> None:
        """Tell the dialog."""
        self.post_message(self.Changed())

    def action_step(self, step: int) -> None:
        """Choose the neighbour."""
        self.chosen = (self.chosen + step) % len(self.words)

    def on_click(self, event: events.Click) -> None:
        """Choose what was clicked."""
        end = 0
        for place, word in enumerate(self.words):
            end += len(word) + 2
            if event.x < end:
                self.chosen = place
                return


class Foot(Vertical):
    """What stands below the content; tells its dialog when it has grown."""

    class Grown(Message):
        """It has another height."""

    def on_resize(self) -> None:
        """Tell."""
        self.post_message(self.Grown())
