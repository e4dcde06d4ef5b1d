"""What every dialog shares: the frame, the deafness at first, the ladder, the countdown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from typing import ClassVar, Final, Literal, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from opledger_console.dialogs.heads import Head, drawn
from opledger_console.dialogs.lines import Lines, Piece
from opledger_console.dialogs.parts import Alternatives, Field, FieldInput, FieldName, Foot, Lack, Press
from opledger_console.text import block, line

__all__ = ["Clock", "Dialog", "Head"]

Result = TypeVar("Result")
Clock = Callable[[], float]
"""Seconds on a clock that never goes back."""

Phase = Literal["form", "again", "sending", "done"]

DEAF: Final = 0.3
"""For so many seconds after it opens a dialog hears nothing: what was pressed was meant for something else."""

MUCH: Final = 30
"""Characters in a field from which on leaving asks once more."""

LEAST: Final = (60, 15)
"""In a smaller window nothing can be decided: not everything could be read."""


class Dialog(ModalScreen[Result]):
    """A question with a safe answer. Hands back None where nothing is to happen.

    Subclasses say what is shown (`pieces`), what is missing (`lacks`) and what is handed back (`result`). `clock` is
    for tests; `grace` is how many seconds a decision waits, visibly, before it is handed back.
    """

    CSS_PATH = "../dialogs.tcss"
    AUTO_FOCUS = "#keep"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back", show=False),
        Binding("j,down", "scroll_by(1)", "down", show=False),
        Binding("k,up", "scroll_by(-1)", "up", show=False),
        Binding("pagedown", "page_by(1)", "page down", show=False),
        Binding("pageup", "page_by(-1)", "page up", show=False),
    ]
    keep_word: str = "Back"
    confirm_word: str | None = None
    again_word: str = "Yes, I am sure"
    harmful: bool = True

    def __init__(self, *, grace: float = 0.0, clock: Clock | None = None) -> None:
        super().__init__()
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._grace = grace
        self._deaf_until = float("inf")
        self._sends_at = 0.0
        self._timer: Timer | None = None
        self._phase: Phase = "form"
        self._moved: str | None = None
        self._warned = False  #: it was said that leaving loses what is typed
        self._decided: Result | None = None

    # --- what a dialog says ---------------------------------------------------------------------------------

    def head(self) -> Head:
        """What is decided about what."""
        raise NotImplementedError

    def pieces(self) -> Sequence[Piece]:
        """The content."""
        raise NotImplementedError

    def pieces_for(self, width: int) -> Sequence[Piece]:  # noqa: ARG002 - most content is the same at every width
        """The content for so many columns."""
        return self.pieces()

    def fields(self) -> tuple[Field, ...]:
        """What can be typed in, in order."""
        return ()

    def offers(self) -> Mapping[FieldName, Sequence[str]]:
        """Known values for fields; data."""
        return {}

    def extra(self) -> Iterator[Widget]:
        """More rows between the content and the fields."""
        yield from ()

    def effect(self) -> str:
        """What will be done, and what of it cannot be undone; our words, at most 150 characters."""
        return ""

    def lacks(self) -> Sequence[Lack]:
        """What is missing before it can be confirmed."""
        return ()

    def second_question(self) -> str | None:
        """Our words, where it must be confirmed twice."""
        return None

    def result(self) -> Result:
        """What is handed back; asked for only where nothing is missing."""
        raise NotImplementedError

    # --- the frame ------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Head, content, foot."""
        with Vertical(id="dialog"):
            yield Static("", id="head", markup=False)
            yield Static("", id="facts", markup=False)
            yield Lines(self._content, id="content")
            with Foot(id="foot"):
                yield from self.extra()
                for field in self.fields():
                    with Horizontal(classes="field", id=f"row-{field.name}"):
                        yield Static(Content(field.label), classes="label", markup=False)
                        yield FieldInput(field, self.offers().get(field.name, ()))
                yield Static("", id="effect", markup=False)
                yield Static("", id="missing", markup=False)
                with Horizontal(id="buttons"):
                    yield Press(self.keep_word, id="keep")
                    if self.confirm_word is not None:
                        confirm = Press(self.confirm_word, id="confirm", variant="error" if self.harmful else "default")
                        confirm.disabled = True  # not even the first picture may show it awake
                        yield confirm
                yield Static("", id="countdown", markup=False)
                take_back = Press("Take it back", id="take-back")
                take_back.can_focus = False
                yield take_back
        yield Static("", id="small", markup=False)

    def on_mount(self) -> None:
        """Begin deaf."""
        self._deafen()
        self.query_one("#small", Static).update(
            Content(f"This window is too small to decide in: {LEAST[0]} x {LEAST[1]} at least. Esc goes back.")
        )
        self.show_head()
        self.refresh_foot()

    def on_screen_resume(self) -> None:
        """Whatever was on top is gone, perhaps by a key that is still being pressed."""
        self._deafen()

    def on_screen_suspend(self) -> None:
        """Nothing is sent while nobody sees the countdown."""
        self.take_back()

    def on_foot_grown(self, event: Foot.Grown) -> None:
        """Make room for it."""
        event.stop()
        self._fit()

    def on_resize(self) -> None:
        """Show a notice instead where the window is too small to read in."""
        grown = self.has_class("-small") and not self.too_small
        self.set_class(self.too_small, "-small")
        self.set_class(self.size.height < 20, "-short")
        if self.too_small:
            self.take_back()
        if grown:  # what had the focus was hidden and has lost it
            self.call_after_refresh(self.set_focus, self.query_one("#keep"))
        self.refresh_foot()

    def show_head(self) -> None:
        """Draw the two lines of the head: ids first, so that no name can push them out."""
        if not self.query("#facts"):
            return  # a timer asked for it while the dialog was taken down, and its lines went first
        first, facts = drawn(self.head())
        self.query_one("#head", Static).update(first, layout=False)
        self.query_one("#facts", Static).update(facts, layout=False)
        self.query_one("#facts", Static).display = bool(facts)

    def _content(self, width: int) -> Sequence[Piece]:
        moved = () if self._moved is None else (Piece(self._moved_words(), "warn"), Piece(""))
        self.call_after_refresh(self._fit)
        return (*moved, *self.pieces_for(width))

    def _fit(self) -> None:
        """Make the dialog no higher than its content, and never so low that the foot is cut."""
        dialog, foot = self.query_one("#dialog"), self.query_one("#foot").outer_size.height
        if foot and not self.too_small:
            heads = 1 + bool(self.query_one("#facts").display)
            frame = dialog.gutter.height
            wanted = max(self.query_one(Lines).count, 1) + heads + foot + frame
            dialog.styles.height = min(wanted, self.size.height)

    def refresh_foot(self) -> None:
        """Say what will be done and what is missing, and wake or disable the button."""
        if not self.is_mounted:
            return
        lacks = [lack.words for lack in self.lacks()]
        said = self.second_question() if self._phase == "again" else self.effect()
        effect = self.query_one("#effect", Static)
        effect.update(Content(said or ""))
        effect.display = bool(said)
        missing = self.query_one("#missing", Static)
        missing.set_class(self._moved is not None, "-moved")
        missing.set_class(not lacks, "-ready")
        words = ""
        if self._moved is not None:
            missing.update(block(self._moved_words(limit=300)))
        else:
            words = f"Missing: {'; '.join(lacks)}" if lacks else "" if self.sending else self._ready()
            if self._warned:
                words = f"Esc again throws away what is typed. {words}"
            missing.update(Content(words))
        missing.display = self._moved is not None or bool(words)
        self.set_class(self._phase == "sending", "-sending")
        for button in self.query("#confirm").results(Press):
            button.disabled = bool(lacks) or self._moved is not None or self.too_small
            button.say((self.again_word if self._phase == "again" else self.confirm_word) or "")
        self.call_after_refresh(self._fit)

    def _ready(self) -> str:
        if self.confirm_word is None or not self.fields():
            return ""
        wait = f" It is sent {self._grace:g} s later; Esc takes it back until then." if self._grace > 0 else ""
        return f"Nothing is missing.{wait}"

    def _moved_words(self, limit: int | None = None) -> str:
        return line(f"changed while you were reading: {self._moved}", limit=limit).plain

    # --- state ----------------------------------------------------------------------------------------------

    @property
    def deaf(self) -> bool:
        """True as long as keys and clicks are not heard."""
        return self._clock() < self._deaf_until

    @property
    def too_small(self) -> bool:
        """True where the window is too small to read in."""
        return self.size.width < LEAST[0] or self.size.height < LEAST[1]

    @property
    def sending(self) -> bool:
        """True while the countdown runs."""
        return self._phase == "sending"

    @property
    def holds_text(self) -> bool:
        """True where somebody has typed something that closing would lose."""
        return any(field.value for field in self.query(FieldInput))

    def _holds_much(self) -> bool:
        """True where somebody has typed more than they would lightly type again."""
        return any(len(field.value) >= MUCH for field in self.query(FieldInput))

    def value(self, name: FieldName) -> str:
        """What stands in a field, without spaces around it."""
        return next((field.value.strip() for field in self.query(FieldInput) if field.field.name == name), "")

    def record_moved(self, message: str) -> None:
        """The record is not the one that is shown any more: nothing can be confirmed here again."""
        self._moved = message
        self.take_back()
        if self._phase == "again":
            self._phase = "form"
        if self.is_mounted:
            self.query_one(Lines).rebuild()
            self.refresh_foot()
            self.set_focus(self.query_one("#keep"))

    def _deafen(self) -> None:
        self._deaf_until = self._clock() + DEAF

    # --- keys and clicks ------------------------------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        """Hear nothing at first. Keys come here before any binding is looked up."""
        if self.deaf:
            event.stop()
            event.prevent_default()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Do what the button says."""
        event.stop()
        if self.deaf:
            return
        if event.button.id == "confirm":
            self.confirm()
        elif event.button.id == "take-back":
            self.take_back()
        elif not self.sending:
            self.action_back()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Look again at what is missing; after a change the second question is asked anew."""
        event.stop()
        if self._phase == "again":
            self._phase = "form"
        self._warned = False
        self.refresh_foot()

    def on_alternatives_changed(self, event: Alternatives.Changed) -> None:
        """Look again at what is missing."""
        event.stop()
        self.refresh_foot()

    def action_after_field(self) -> None:
        """Go on to the next field, and from the last one to the safe button: Enter never confirms in a field."""
        fields = [widget for widget in self.focus_chain if isinstance(widget, FieldInput)]
        if not self.deaf and self.focused in fields:
            after = fields[fields.index(self.focused) + 1 :]
            self.set_focus(after[0] if after else self.query_one("#keep"))

    def action_next_field(self) -> None:
        """Go to what is missing, or to the button that is awake now."""
        if self.deaf:
            return
        wanted = next((lack.field for lack in self.lacks() if lack.field is not None), None)
        confirm = next(iter(self.query("#confirm").results(Press)), None)
        if wanted is not None:
            self.set_focus(self.query_one(f"#{wanted}"))
        elif confirm is not None and not confirm.disabled and self.focused is not confirm:
            self.set_focus(confirm)
        else:
            self.focus_next()

    def action_button(self, step: int) -> None:
        """Go to the button beside."""
        awake = [widget for widget in self.focus_chain if isinstance(widget, Press)]
        if self.focused in awake:
            self.set_focus(awake[(awake.index(self.focused) + step) % len(awake)])

    def action_scroll_by(self, step: int) -> None:
        """Scroll the content by a line, wherever the focus is."""
        self.query_one(Lines).scroll_relative(y=step, animate=False)

    def action_page_by(self, step: int) -> None:
        """Scroll the content by a page, wherever the focus is."""
        content = self.query_one(Lines)
        content.scroll_relative(y=step * max(content.size.height - 1, 1), animate=False)

    def action_back(self) -> None:
        """Take back what is not sent yet, else the second question, else leave: nothing happens."""
        if self.sending:
            self.take_back()
        elif self._phase == "again":
            self._phase = "form"
            self.refresh_foot()
        elif self._holds_much() and not self._warned:
            self._warned = True
            self.refresh_foot()
            self.set_focus(self.query_one("#keep"))
        else:
            self._finish(None)

    # --- confirming -----------------------------------------------------------------------------------------

    def confirm(self) -> None:
        """Hand the decision back, after the second question and the countdown where there are any."""
        blocked = self.deaf or self.too_small or self._moved is not None or bool(self.lacks())
        if blocked or self._phase not in ("form", "again"):
            return
        if self._phase == "form" and self.second_question() is not None:
            self._phase = "again"
            self._deafen()
            self.set_focus(self.query_one("#keep"))
            self.refresh_foot()
            return
        decided = self.result()
        if self._grace <= 0:
            self._finish(decided)
            return
        self._phase, self._decided = "sending", decided
        self._sends_at = self._clock() + self._grace
        self._timer = self.set_interval(0.1, self.tick)
        self.set_focus(None)
        self.refresh_foot()
        self.tick()

    def tick(self) -> None:
        """Count down, and hand the decision back at zero."""
        if not self.sending:
            return
        left = self._sends_at - self._clock()
        if left <= 0:
            self._finish(self._decided)
        else:
            for line in self.query("#countdown").results(Static):  # gone where the dialog is taken down meanwhile
                line.update(Content(f"Sending in {ceil(left)} s - Esc takes it back"))

    def take_back(self) -> None:
        """Return to the form, with everything that was typed; nothing has been handed back."""
        if not self.sending:
            return
        self._phase, self._decided = "form", None
        if self._timer is not None:
            self._timer.stop()
        self.refresh_foot()
        self.set_focus(self.query_one("#keep"))

    def _finish(self, decided: Result | None) -> None:
        """Close, once: a second press of a key that is still in the queue finds nothing to do."""
        if self._phase == "done" or not self.is_current:
            return
        self._phase = "done"
        self.dismiss(decided)
