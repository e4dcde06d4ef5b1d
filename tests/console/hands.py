"""What tests of the screens share: an app over a ledger of a test's own, and waiting for what is to be seen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic
from typing import Any, Final

from textual.pilot import Pilot

from opledger_console.app import ConsoleApp
from opledger_console.desk import Desk
from tests.core.ledgers import Home

HOSTILE = "\x1b[2J\x9b31m[/red][@click=app.quit]\u202e\u200bx[bold"
PATIENCE: Final = 60.0
FORBIDDEN = {"\x9b", "\u202e", "\u200b", "\x7f", "\x1b"}


@contextmanager
def console(home: Home, start: str, *, read_only: bool = False, toml: str = "") -> Iterator[ConsoleApp]:
    """The console on a ledger; it starts no worker."""
    desk = Desk(home.settings(toml), read_only=read_only, drive=False)
    try:
        yield ConsoleApp(desk, start=start)
    finally:
        desk.close()


@asynccontextmanager
async def running(
    home: Home, start: str, size: tuple[int, int] = (120, 40), *, toml: str = ""
) -> AsyncIterator[Pilot[Any]]:
    """The console, open at one of its screens."""
    with console(home, start, toml=toml) as app:
        async with app.run_test(size=size) as pilot:
            yield pilot


def shown(pilot: Pilot[Any]) -> str:
    """What is on the screen."""
    return "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())


async def until(pilot: Pilot[Any], holds: Callable[[], object], what: str = "") -> None:
    """Wait until something holds; threads read, so that nobody knows how many turns of the loop it takes.

    The screens spare a slow database, so that what takes milliseconds may take many seconds on a busy machine.
    """
    end = monotonic() + PATIENCE
    while monotonic() < end:
        if holds():
            return
        await pilot.pause(0.01)
    raise AssertionError(f"it never came to {what or holds}:\n{shown(pilot)}")


async def sees(pilot: Pilot[Any], *words: str) -> str:
    """Wait until words are on the screen, and return all of it."""
    await until(pilot, lambda: all(word in shown(pilot) for word in words), f"show {words}")
    return shown(pilot)


def assert_inert(text: str) -> None:
    """No character that a terminal would obey, none that hides."""
    assert not {char for char in text if ord(char) < 32 and char != "\n"}
    assert not FORBIDDEN & set(text)
