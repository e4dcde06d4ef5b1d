"""Pictures of the console: the demonstration's operations on its screens, each cell drawn as a terminal would.

``python -m tests.support.pictures FOLDER`` plays the demonstration up to where people are needed, opens the console on
its ledger without a terminal, goes through the screens by key, and writes a PNG of each.
"""

from __future__ import annotations

import asyncio
import importlib.util
import io
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from PIL import Image, ImageDraw, ImageFont
from rich.segment import Segment
from rich.style import Style
from textual.pilot import Pilot
from textual.strip import Strip

from opledger.config import load_settings
from opledger.edges.clock import SystemClock
from opledger.rules.explain import waits_for_person
from opledger.rules.model import State
from opledger.sim.contracts import contract_name
from opledger.sim.demo import COUNT, Play
from opledger.sim.people import AGENTS, POLICY
from opledger.sim.personalities import PERSONALITIES, plan
from opledger.sim.screen import Screen
from opledger.sim.stage import Stage
from opledger_console import themes
from opledger_console.app import ConsoleApp
from opledger_console.desk import Desk
from opledger_console.desk.prefs import Memory
from opledger_console.messages import Opened
from opledger_console.widgets.listing import Listing

SIZE: Final = 15
"""Pixels of the letters: a cell is 9 wide then, to a thirtieth of a pixel."""

COLOURS: Final = 192
"""Colours that a picture may have: those that cover most of it, as they are; others become the nearest of them."""

SEED: Final = 7
LOOK: Final = 0.2
LONGEST: Final = 45.0
"""Seconds after which the play is taken as it is."""

CALM: Final = 13.0
"""Seconds without any change after which nothing more will come of itself."""

STEADY: Final = frozenset({"ideal", "slow", "never_ending", "throttling", "hidden"})
MORE: Final = 14
"""Of what agents submit later, for the pictures in which something is to be under way: which providers, how many."""

FAMILY: Final = "DejaVuSansMono"
HOURGLASS: Final = "⧖"
"""These letters lack it; it is drawn."""

PLACES: Final = ("/usr/share/fonts/truetype/dejavu", "/usr/share/fonts/TTF", "/usr/share/fonts/dejavu-sans-mono-fonts")

Colour = tuple[int, int, int]
Font = ImageFont.FreeTypeFont


def say(words: str) -> None:
    """Tell whoever ran this."""
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


# --- drawing -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pen:
    """The letters, plain and bold, and the size of one cell in pixels."""

    plain: Font
    bold: Font
    width: int
    height: int


def fonts() -> Path:
    """Return the folder of the letters: matplotlib brings them along, and many systems have them. Ends without them."""
    found = importlib.util.find_spec("matplotlib")
    homes = [Path(home) / "mpl-data" / "fonts" / "ttf" for home in (found and found.submodule_search_locations) or ()]
    for folder in (*homes, *map(Path, PLACES)):
        if (folder / f"{FAMILY}.ttf").is_file() and (folder / f"{FAMILY}-Bold.ttf").is_file():
            return folder
    raise SystemExit(f"{FAMILY} is not on this machine; `make screenshots` installs it with the extra `pictures`")


def pen() -> Pen:
    """Take up the letters."""
    folder = fonts()
    plain = ImageFont.truetype(folder / f"{FAMILY}.ttf", SIZE)
    bold = ImageFont.truetype(folder / f"{FAMILY}-Bold.ttf", SIZE)
    ascent, descent = plain.getmetrics()
    return Pen(plain, bold, round(plain.getlength("M")), ascent + descent)


def draw(strips: Sequence[Strip], pen: Pen, paper: Colour) -> Image.Image:
    """Draw what stands on a screen. `paper` is the colour where a cell says nothing."""
    columns = max(strip.cell_length for strip in strips)
    image = Image.new("RGB", (columns * pen.width, len(strips) * pen.height), paper)
    canvas = ImageDraw.Draw(image)
    for row, strip in enumerate(strips):
        column = 0
        for segment in strip:
            _draw_segment(canvas, segment, (column * pen.width, row * pen.height), pen, paper)
            column += segment.cell_length
    counted = sorted(image.getcolors(image.width * image.height) or (), reverse=True)
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, colour in counted[:COLOURS] for part in _triplet(colour)])
    return image.quantize(palette=palette, dither=Image.Dither.NONE)


def _draw_segment(canvas: ImageDraw.ImageDraw, segment: Segment, at: tuple[int, int], pen: Pen, paper: Colour) -> None:
    if not segment.cell_length:
        return
    x, y = at
    style = segment.style or Style.null()
    ink, ground = _colours(style, paper)
    end = x + segment.cell_length * pen.width
    if ground != paper:
        canvas.rectangle((x, y, end - 1, y + pen.height - 1), fill=ground)
    font = pen.bold if style.bold else pen.plain
    for char in segment.text:
        if char == HOURGLASS:
            right, top, bottom = x + pen.width - 2, y + 4, y + pen.height - 5
            canvas.line(((x, top), (right, top), (x, bottom), (right, bottom), (x, top)), fill=ink)
        elif char != " ":
            canvas.text((x, y), char, font=font, fill=ink)
        x += Segment(char).cell_length * pen.width
    if style.underline:
        canvas.line((at[0], y + pen.height - 2, end - 1, y + pen.height - 2), fill=ink)
    if style.strike:
        canvas.line((at[0], y + pen.height // 2, end - 1, y + pen.height // 2), fill=ink)


def _colours(style: Style, paper: Colour) -> tuple[Colour, Colour]:
    """Return the colours of the letters and of what is behind them, as a terminal with true colour has them."""
    light = sum(paper) > 3 * 127
    ink: Colour = (0, 0, 0) if light else (255, 255, 255)
    ground = paper
    if style.color is not None and not style.color.is_default:
        ink = _triplet(style.color.get_truecolor())
    if style.bgcolor is not None and not style.bgcolor.is_default:
        ground = _triplet(style.bgcolor.get_truecolor(foreground=False))
    if style.reverse:
        ink, ground = ground, ink
    if style.dim:
        ink = (ink[0] + ground[0]) // 2, (ink[1] + ground[1]) // 2, (ink[2] + ground[2]) // 2
    return ink, ground


def _triplet(colour: Any) -> Colour:
    red, green, blue = colour
    return red, green, blue


def missing(strips: Sequence[Strip], pen: Pen) -> set[str]:
    """Return the characters of which there is no picture: they get what is drawn for one that cannot be."""
    nothing = bytes(pen.plain.getmask("\U0010fffd"))
    chars = {char for strip in strips for char in strip.text if not char.isspace()} - {HOURGLASS}
    return {char for char in chars if bytes(pen.plain.getmask(char)) == nothing}


# --- the play ----------------------------------------------------------------------------------------------------


def play(stage: Stage) -> Play:
    """Let agents submit and cancel, and the worker work, until nothing more happens without people."""
    clock, pause = SystemClock(), threading.Event()
    acts = Play(stage.ledger, Screen(io.StringIO(), clock), None)
    acts.submit(SEED, COUNT)
    stage.start_worker()
    begun = moved = clock.monotonic()
    seen: dict[str, State] = {}
    while clock.monotonic() < begun + LONGEST and clock.monotonic() < moved + CALM:
        acts.look()
        for part in acts.parts.values():
            running = acts.last[part.operation_id].state is State.OBSERVING
            if PERSONALITIES[part.personality].wants_cancel and running and not part.cancelled:
                part.cancelled = True
                stage.ledger.cancel(part.operation_id, reason="not needed any more", by=AGENTS[0])
        states = {op.operation_id: op.state for op in acts.last.values()}
        if states != seen:
            seen, moved = states, clock.monotonic()
        pause.wait(LOOK)
    return acts


# --- the console -------------------------------------------------------------------------------------------------


class Album:
    """The console on the ledger of the play, and the folder for its pictures."""

    def __init__(self, stage: Stage, folder: Path, acts: Play) -> None:
        self.stage = stage
        self.folder = folder
        self.acts = acts
        self._batch = SEED
        self.pen = pen()

    def one(self, *states: State) -> str:
        """Return the id of an operation in the first of these states that there is."""
        self.acts.look()
        found = [op.operation_id for state in states for op in self.acts.last.values() if op.state is state]
        assert found, f"the play brought no operation to {' or '.join(states)}"
        return found[0]

    async def more(self, pilot: Pilot[Any], among: Collection[str] = STEADY, seconds: float = 2.5) -> None:
        """Let agents submit some jobs that take their time, so that something is under way, and wait until it is."""
        self._batch += 1
        jobs = [(name, body) for name, body in plan(self._batch, COUNT) if name in among]
        for place, (name, body) in enumerate(jobs[:MORE]):
            does = f"the provider {PERSONALITIES[name].does}"
            agent = AGENTS[place % len(AGENTS)]
            self.acts._submit(
                contract_name(PERSONALITIES[name].flavour), {**body, "_polls": 3 + 4 * place}, agent, does
            )
        await pilot.pause(seconds)

    def desk(self) -> Desk:
        """A desk as ana's, one of the two who approve."""
        environment = self.stage.environment
        settings = load_settings({"operator": "ana"}, environment, self.stage.folder)
        memory = Memory(self.stage.folder / "console.json")
        return Desk(settings, read_only=False, drive=False, memory=memory)

    @asynccontextmanager
    async def open(
        self, start: str, size: tuple[int, int] = (120, 40), theme: str = "dark"
    ) -> AsyncIterator[Pilot[Any]]:
        """The console at one of its screens."""
        desk = self.desk()
        app = ConsoleApp(desk, start=start)
        try:
            async with app.run_test(size=size) as pilot:
                themes.dress(app, theme)
                await settled(pilot)
                yield pilot
        finally:
            desk.close()

    def shoot(self, pilot: Pilot[Any], name: str) -> None:
        """Write the picture of what is on the screen."""
        app = pilot.app
        strips = app.screen._compositor.render_strips()
        paper = app.theme_variables["background"].lstrip("#")
        image = draw(strips, self.pen, (int(paper[:2], 16), int(paper[2:4], 16), int(paper[4:6], 16)))
        path = self.folder / f"{name}.png"
        image.save(path, optimize=True)
        gaps = missing(strips, self.pen)
        say(f"  {path}  {path.stat().st_size / 1024:.0f} KB" + (f"  no picture of {sorted(gaps)}" if gaps else ""))


def words(pilot: Pilot[Any]) -> list[str]:
    """What is on the screen, without the line of the clock."""
    return [strip.text for strip in pilot.app.screen._compositor.render_strips()][1:]


async def settled(pilot: Pilot[Any]) -> None:
    """Wait until the screen stays as it is for a while, but for what counts seconds."""
    before: list[str] = []
    for _ in range(12):
        await pilot.pause(0.25)
        now = words(pilot)
        if sum(one != other for one, other in zip(before, now, strict=False)) < 2 and before:
            return
        before = now


async def go(pilot: Pilot[Any], *keys: str) -> None:
    """Press keys and let the screen settle."""
    await pilot.press(*keys)
    await settled(pilot)


async def inbox(album: Album, size: tuple[int, int] = (120, 40), suffix: str = "") -> None:
    """The inbox, and the dialogs that are opened from it."""
    async with album.open("inbox", size) as pilot:
        album.shoot(pilot, f"inbox{suffix}")
        listing = pilot.app.screen.query_one("#waiting", Listing)
        for name, key, states in (
            ("approve", "a", (State.AWAITING_APPROVAL,)),
            ("cancel", "x", (State.RESULT_TIMED_OUT,)),
            ("resolve", "v", (State.CONTRACT_VIOLATION,)),
        ):
            if suffix and name != "approve":
                continue
            listing.go_to(album.one(*states))
            await go(pilot, key)
            album.shoot(pilot, f"{name}{suffix}")
            await go(pilot, "escape")


async def one_operation(album: Album) -> None:
    """The page of an operation: how it came to be where it is, and two answers that contradict each other."""
    async with album.open("operations") as pilot:
        for name, states, tab in (
            ("operation", (State.CANCELLATION_UNCONFIRMED, State.RESULT_TIMED_OUT), "timeline"),
            ("conflict", (State.CONTRACT_VIOLATION,), "conflict"),
        ):
            pilot.app.post_message(Opened(album.one(*states), tab))
            await settled(pilot)
            album.shoot(pilot, name)
            await go(pilot, "escape")


async def screens(album: Album) -> None:
    """The other screens, from one to the next."""
    async with album.open("tail") as pilot:
        await album.more(pilot, PERSONALITIES, 1.2)
        album.shoot(pilot, "tail")
    async with album.open("operations") as pilot:
        await album.more(pilot)
        album.shoot(pilot, "operations")
        await go(pilot, "question_mark")
        album.shoot(pilot, "help")
        await go(pilot, "escape", "3")
        await pilot.pause(1.5)  # figures are counted over the first moments
        await settled(pilot)
        album.shoot(pilot, "providers")
    async with album.open("operations", (200, 60)) as pilot:
        await album.more(pilot)
        album.shoot(pilot, "operations-200x60")


async def dresses(album: Album) -> None:
    """Light and high contrast."""
    for theme in ("light", "contrast"):
        for name in ("inbox", "operations"):
            async with album.open(name, theme=theme) as pilot:
                album.shoot(pilot, f"{name}-{theme}")


async def take(album: Album) -> None:
    """Take all pictures."""
    await inbox(album)
    await inbox(album, (80, 24), "-80x24")
    await one_operation(album)
    await screens(album)
    await dresses(album)


def main(arguments: Sequence[str]) -> int:
    """Write the pictures into a folder."""
    folder = Path(arguments[0] if arguments else "screenshots")
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="opledger-pictures-") as home, Stage(Path(home), SEED, POLICY) as stage:
        say("playing the demonstration up to where people are needed ...")
        acts = play(stage)
        waiting = sum(waits_for_person(op) for op in acts.last.values())
        say(f"{len(acts.last)} operations, of which {waiting} wait for a person:")
        asyncio.run(take(Album(stage, folder, acts)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
