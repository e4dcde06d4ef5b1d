"""The help: the keys of the screen that was asked from, as they are just now, and what to do in each state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from opledger.errors import UsageError
from opledger.rules.model import Operation
from opledger_console import topics
from opledger_console.screens.command import LineScreen
from opledger_console.text import line
from opledger_console.topics import Line, Topic
from opledger_console.views import short_id
from opledger_console.widgets.paper import Paper, Paragraph

KEY_CELLS: Final = 14
PALETTE: Final = "command_palette"


class HelpScreen(ModalScreen[None]):
    """One long text: keys first, then the topics. Reading it changes nothing."""

    DEFAULT_CSS = """
    HelpScreen { background: $background; layout: vertical; }
    HelpScreen #title { height: 1; background: $panel; }
    HelpScreen #foot { height: 1; color: $text-muted; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "back", "back", id="help.back"),
        Binding("j,down", "line(1)", "down", show=False),
        Binding("k,up", "line(-1)", "up", show=False),
        Binding("space,pagedown", "page(1)", "page down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("g,home", "edge(-1)", "first", show=False),
        Binding("G,end", "edge(1)", "last", show=False),
        Binding("slash", "search", "search", key_display="/", id="help.search"),
        Binding("n", "again(1)", "next match", show=False),
        Binding("N", "again(-1)", "match before", show=False),
        Binding("tab", "topic(1)", "next topic", id="help.topic"),
        Binding("shift+tab", "topic(-1)", "topic before", show=False),
        Binding("s", "state", "this state", id="help.state"),
    ]

    def __init__(self, about: Screen[Any], topic: str | None = None) -> None:
        """Take the screen below, and where to begin: a topic or a state; None: at the keys."""
        super().__init__()
        self.about = about
        self._topic = topic
        self._starts: dict[str, int] = {}
        self._searched = ""

    def compose(self) -> ComposeResult:
        """Title, text, what else there is."""
        yield Static("", id="title", markup=False)
        yield Paper(id="paper")
        yield Static("", id="foot", markup=False)

    def on_mount(self) -> None:
        """Put it together from the bindings as they are now."""
        paragraphs = list(self._keys())
        for topic in topics.topics():
            self._starts[topic.name] = len(paragraphs)
            shown = list(_paragraphs(topic))
            # Title and what it is about stand before the lines, and one empty line before both.
            self._starts |= {name: len(paragraphs) + BEFORE + at for name, at in topic.places.items()}
            paragraphs += shown
        paper = self.query_one(Paper)
        paper.show(paragraphs)
        paper.focus()
        if self._topic is not None and self._topic in self._starts:
            paper.go_to(self._starts[self._topic])
        self._label()

    def _label(self) -> None:
        title = Text(no_wrap=True, overflow="ellipsis", end="")
        title.append(" Help ", style="bold reverse")
        title.append("  ")
        title.append("  ".join(("keys", *(topic.name for topic in topics.topics()))))
        self.query_one("#title", Static).update(title)
        words = ["esc back", "j k space move", "tab next topic", "/ search"]
        if self._searched:
            words.append("n N next match")
        op = self._subject()
        if op is not None:
            words.insert(1, f"s what to do in {op.state} ({short_id(op.operation_id)})")
        self.query_one("#foot", Static).update(line("  ·  ".join(words)))

    def _subject(self) -> Operation | None:
        subject: Callable[[], Operation | None] | None = getattr(self.about, "subject", None)
        return None if subject is None else subject()

    # --- the keys of the screen below ---------------------------------------------------------------------------

    def _keys(self) -> Iterator[Paragraph]:
        here: list[ActiveBinding] = []
        everywhere: list[ActiveBinding] = []
        for active in self.about.active_bindings.values():
            binding = active.binding
            if binding.description and (binding.action == PALETTE or _is_ours(active)):
                (everywhere if active.node is self.app else here).append(active)
        # What the screen does stands before how to move in it.
        here.sort(key=lambda active: not isinstance(active.node, Screen))
        name = getattr(self.about, "TITLE_WORDS", "") or "this screen"
        yield Paragraph(f" Keys of {name} ", "title")
        yield from self._table(here)
        yield Paragraph("")
        yield Paragraph(" Keys everywhere ", "title")
        yield from self._table(everywhere)

    def _table(self, found: list[ActiveBinding]) -> Iterator[Paragraph]:
        by_action: dict[str, list[ActiveBinding]] = {}
        for active in found:
            by_action.setdefault(active.binding.action, []).append(active)
        for action, many in by_action.items():
            keys = " ".join(dict.fromkeys(self.app.get_key_display(active.binding) for active in many))
            first = many[0]
            words = first.binding.tooltip or first.binding.description
            if first.enabled:
                yield Paragraph(words, label=keys, hang=KEY_CELLS)
            else:
                yield Paragraph(f"{words}: off now, {self._why_not(action)}", "dim", label=keys, hang=KEY_CELLS)

    def _why_not(self, action: str) -> str:
        why_not: Callable[[str], str | None] | None = getattr(self.about, "why_not", None)
        return (why_not(action) if why_not is not None else None) or "it does nothing here"

    # --- moving -------------------------------------------------------------------------------------------------

    def action_line(self, by: int) -> None:
        """Scroll by lines."""
        self.query_one(Paper).action_line(by)

    def action_page(self, by: int) -> None:
        """Scroll by screens."""
        self.query_one(Paper).action_screen(by)

    def action_edge(self, which: int) -> None:
        """Go to the first line or the last."""
        self.query_one(Paper).action_edge(which)

    def action_topic(self, by: int) -> None:
        """Go to the next topic, or to the one before."""
        paper = self.query_one(Paper)
        here = paper.paragraph_at_top
        starts = [0, *(self._starts[topic.name] for topic in topics.topics())]
        if by > 0:
            paper.go_to(next((start for start in starts if start > here), 0))
        else:
            paper.go_to(next((start for start in reversed(starts) if start < here), starts[-1]))

    def action_state(self) -> None:
        """Go to what to do about the operation in focus on the screen below."""
        op = self._subject()
        if op is not None:
            self.query_one(Paper).go_to(self._starts[op.state])

    # --- searching ----------------------------------------------------------------------------------------------

    def action_search(self) -> None:
        """Ask for a word."""
        self.app.push_screen(LineScreen("/", self._checked, value=self._searched), self._found)

    def _checked(self, text: str) -> str:
        paper = self.query_one(Paper)
        if not text.strip() or not paper.look_for(text.strip()):
            raise UsageError(f"the help does not have {text.strip()[:40]!a}" if text.strip() else "type a word")
        return text.strip()

    def _found(self, text: str | None) -> None:
        if text is not None:
            self._searched = text
            self._label()

    def action_again(self, by: int) -> None:
        """Go to the next place that has the word, or to the one before."""
        if self._searched:
            self.query_one(Paper).look_for(self._searched, by=by, again=True)

    def action_back(self) -> None:
        """Back to the screen that was asked from."""
        self.dismiss(None)


def _is_ours(active: ActiveBinding) -> bool:
    """Tell whether a key was bound here, and not by Textual for all its programs."""
    return any(
        one.action == active.binding.action
        for cls in type(active.node).__mro__
        if cls.__module__.startswith("opledger_console")
        for one in Binding.make_bindings(cls.__dict__.get("BINDINGS", ()))
    )


BEFORE: Final = 4
"""Paragraphs of a topic before its lines: an empty one, the title, what it is about, an empty one."""


def _paragraphs(topic: Topic) -> Iterator[Paragraph]:
    yield Paragraph("")
    yield Paragraph(f" {topic.title} ", "title")
    yield Paragraph(topic.about, "dim")
    yield Paragraph("")
    yield from map(_paragraph, topic.lines)


def _paragraph(one: Line) -> Paragraph:
    if one.kind == "head":
        return Paragraph(one.text, "head")
    if one.kind == "as-is":
        return Paragraph(one.text, "head", indent=4)
    if one.kind == "label":
        return Paragraph(one.text[len(one.label) :].strip(), label=one.label, indent=2, hang=11)
    if one.kind == "point":
        text = one.text[len(one.label) :].strip() if one.label else one.text
        return Paragraph(text, label=one.label, indent=4) if one.label else Paragraph(text, label="-", indent=2, hang=2)
    return Paragraph(one.text)
