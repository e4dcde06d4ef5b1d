"""The command palette (ctrl+p): what can be done here, screens, saved views, themes and topics, found by name.

Textual's own system commands are not offered: screenshots and maximised widgets are no help to anybody on call. Errors
in a provider are swallowed by Textual, and so are tested for. It reads strings as markup, and its fuzzy search takes
exponential time for names that repeat a letter; so only `Text` leaves here, and the search is a plain one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import App
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.screen import Screen

from opledger_console import themes, topics
from opledger_console.screens.help import HelpScreen
from opledger_console.text import line

SHOWN: Final = 60
"""Cells of a name; the key stands behind it."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One line of the palette: what it does, the key that does the same, and the doing."""

    name: str
    key: str
    run: Callable[[], Any]

    @property
    def shown(self) -> Text:
        """The line as it is drawn."""
        text = line(self.name, limit=SHOWN)
        if self.key:
            text.append("  ")
            text.append_text(line(self.key, limit=16, style="bold"))
        return text


class _Deeds(Provider):
    """A provider over a list of deeds."""

    WEIGHT: ClassVar[float] = 1.0  #: where two fit alike, the one with the greater weight stands first

    def deeds(self) -> Iterator[Deed]:
        """Yield what there is now."""
        raise NotImplementedError

    async def discover(self) -> Hits:
        """Offer everything while nothing is typed."""
        for deed in self.deeds():
            yield DiscoveryHit(deed.shown, deed.run, text=deed.name)

    async def search(self, query: str) -> Hits:
        """Offer what fits the words that were typed."""
        for deed in self.deeds():
            fit = fits(query, deed.name)
            if fit:
                yield Hit(fit * self.WEIGHT, deed.shown, deed.run, text=deed.name)


class ActionsProvider(_Deeds):
    """Every action of the screen that can be had now, and the screens to go to."""

    def deeds(self) -> Iterator[Deed]:
        """Yield the bindings of the screen and of the app, without those that only move a cursor."""
        done: set[str] = set()
        for active in self.screen.active_bindings.values():
            binding, node = active.binding, active.node
            if not active.enabled or not binding.description or binding.system or binding.action in done:
                continue
            if not isinstance(node, App | Screen):
                continue
            done.add(binding.action)
            going = binding.action.startswith("mode(")
            name = f"go to {binding.description}" if going else binding.tooltip or binding.description
            run: Callable[[], Awaitable[Any]] = partial(self.app.run_action, binding.action, node)
            yield Deed(name, self.app.get_key_display(binding), run)


class ViewsProvider(_Deeds):
    """Views that were saved under a name, where the app knows any: ``saved_views()`` and ``open_view(name)``."""

    WEIGHT = 0.95

    def deeds(self) -> Iterator[Deed]:
        """Yield them in the order of the app."""
        names, show = getattr(self.app, "saved_views", None), getattr(self.app, "open_view", None)
        if names is not None and show is not None:
            for name in names():
                yield Deed(f"view {name}", "", partial(show, name))


class ThemesProvider(_Deeds):
    """The ways to dress."""

    WEIGHT = 0.9

    def deeds(self) -> Iterator[Deed]:
        """Yield those with a short name."""
        for short, name in themes.SHORT.items():
            yield Deed(f"theme {short}", "", partial(setattr, self.app, "theme", name))


class TopicsProvider(_Deeds):
    """What the help has to say, and what to do in each state."""

    WEIGHT = 0.8

    def deeds(self) -> Iterator[Deed]:
        """Yield topics, then states."""
        for topic in topics.topics():
            yield Deed(f"help: {topic.title}", "", partial(self._show, topic.name))
        states = next(topic for topic in topics.topics() if topic.name == "states")
        for state in states.places:
            yield Deed(f"help: what to do in {state}", "", partial(self._show, state))

    def _show(self, name: str) -> None:
        self.app.push_screen(HelpScreen(self.screen, name))


PROVIDERS: Final[set[type[Provider] | Callable[[], type[Provider]]]] = {
    ActionsProvider, ViewsProvider, ThemesProvider, TopicsProvider,
}  # fmt: skip
"""For `App.COMMANDS`, in the place of Textual's own."""


def fits(query: str, name: str) -> float:
    """Return how well a name fits, from 0 (not at all) to 1: each word typed must begin a word, or stand in one."""
    found = name.lower()
    words = query.lower().split()
    if not words:
        return 0.0
    total = 0.0
    for word in words:
        at = found.find(word)
        if at < 0:
            return 0.0
        begins = at == 0 or any(part.startswith(word) for part in found.replace("_", " ").split())
        total += 1.0 if at == 0 else 0.9 if begins else 0.6
    return total / len(words)
