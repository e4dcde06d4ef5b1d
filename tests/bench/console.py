"""What the console costs with very many operations: on a real pseudo-terminal, from key to what the key changed.

A figure is the time from writing a key into the terminal until the bytes have come that show its effect. The console
runs in a process of its own, and so does whoever makes 200 changes a second. ``python -m tests.bench.console``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.bench import crowd
from tests.support.terminal import Terminal

RATE: Final = 200
SIZE: Final = (120, 40)

_CHILD: Final = """
import sys, time
from pathlib import Path
from opledger.config import load_settings
from opledger_console import app
folder, note = Path(sys.argv[1]), Path(sys.argv[2])
import os
settings = load_settings({"db": f"sqlite:///{folder / 'ledger.db'}", "operator": "ana"}, os.environ, folder)
note.write_text(repr(time.monotonic()))
sys.exit(app.run(settings, worker=False, start="operations"))
"""


class Console:
    """The console on a ledger, in a terminal."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        note = scratch / "begun"
        environment = {"OPLEDGER_CONTRACTS": str(folder / "contracts"), "XDG_STATE_HOME": str(scratch)}
        command = [sys.executable, "-c", _CHILD, str(folder), str(note)]
        self.terminal = Terminal(command, size=SIZE, environment=environment)
        begun = self.terminal.clock.monotonic()
        self.terminal.until(lambda text: any(line.startswith("▌") for line in text.splitlines()))
        painted = self.terminal.read_at
        self.first_paint = painted - float(note.read_text())
        self.from_exec = painted - begun
        self.terminal.rest()

    @property
    def pid(self) -> int:
        """The console's process."""
        return self.terminal.process.pid

    def cursor(self) -> tuple[int, str]:
        """Where the cursor is on the screen, and on which line of the list."""
        for y, line in enumerate(self.terminal.screen.display):
            if line.startswith("▌"):
                return y, line[29:37]
        return -1, ""

    def key(self, key: str, shown: Callable[[], bool]) -> float:
        """Press a key; seconds until `shown`."""
        clock = self.terminal.clock
        begun = clock.monotonic()
        self.terminal.press(key)
        while not shown():
            assert clock.monotonic() - begun < 20, f"{key} showed nothing:\n{self.terminal.text()}"
            self.terminal.read(0.05)
        return self.terminal.read_at - begun

    def moves(self, key: str) -> float:
        """Press a key that moves the cursor; seconds until it stands elsewhere."""
        before = self.cursor()[1]
        return self.key(key, lambda: self.cursor()[1] not in ("", before))

    def cpu(self) -> float:
        """Seconds of CPU it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self) -> float:
        """MiB of memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def share(self, seconds: float) -> tuple[float, float]:
        """Watch it for a while: its share of a core, and bytes a second to the terminal."""
        clock, cpu, size = self.terminal.clock, self.cpu(), len(self.terminal.raw)
        begun = clock.monotonic()
        while clock.monotonic() - begun < seconds:
            self.terminal.read(0.1)
        spent = clock.monotonic() - begun
        return (self.cpu() - cpu) / spent, (len(self.terminal.raw) - size) / spent


@contextmanager
def stirred(folder: Path, rate: int) -> Iterator[None]:
    """Have `rate` changes a second made while the block runs."""
    command = [sys.executable, "-m", "tests.bench.crowd", str(folder), "--stir", str(rate)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.stdin.close()


def _figures(seconds: Sequence[float]) -> str:
    ranked = sorted(seconds)
    last = ranked[min(len(ranked) - 1, int(len(ranked) * 0.99))]
    return f"p50 {statistics.median(ranked) * 1000:6.1f} ms   p99 {last * 1000:6.1f} ms"


def _say(what: str, figures: str) -> None:
    print(f"  {what:<44}{figures}", flush=True)


def _keys(console: Console, rounds: int) -> None:
    _say("cursor down", _figures([console.moves("down") for _ in range(rounds)]))
    down: list[float] = []
    up: list[float] = []
    while len(down) < rounds:
        down += [console.moves("pagedown") for _ in range(20)]
        up += [console.moves("pageup") for _ in range(10)]
        console.terminal.press("g")
        console.terminal.rest(0.3)
    _say("page down", _figures(down))
    _say("page up", _figures(up))
    opened: list[float] = []
    back: list[float] = []
    escaped: list[float] = []
    for _ in range(max(rounds // 4, 5)):
        opened.append(console.key("enter", lambda: "Operations" not in console.terminal.line(0)))
        console.terminal.until(lambda _: "Operation" in console.terminal.line(0))
        console.terminal.rest(0.15)
        (escaped if len(opened) % 3 == 0 else back).append(
            console.key(
                "escape" if len(opened) % 3 == 0 else "backspace", lambda: "Operations" in console.terminal.line(0)
            )
        )
        console.terminal.rest(0.15)
    _say("open an operation", _figures(opened))
    _say("back to the list, by Backspace", _figures(back))
    # Textual looks every 100 ms whether an escape is a key or the start of a sequence.
    _say("back to the list, by Escape", _figures(escaped))


def _filters(console: Console) -> None:
    """From Enter in the filter line, or the key that changes the order, to the first rows."""
    terminal = console.terminal
    for words in (
        "state:create_unknown",
        "state:failed by:agent-7",
        "contract:jobs age>1h",
        "tag:team=blue",
        "needs:me",
    ):
        terminal.press("/")
        terminal.until("state:waiting")
        terminal.rest(0.2)
        terminal.type(words)
        terminal.rest(0.3)
        _say(f"filter {words}", _figures([console.key("enter", lambda: "match " in terminal.line(SIZE[1] - 2))]))
        terminal.rest(0.3)
        terminal.press("escape")
        terminal.until(lambda text: " match " not in text)
        terminal.rest(0.3)
    for _ in range(4):
        before = terminal.line(SIZE[1] - 2)
        taken = console.key("s", _turned(terminal))
        terminal.rest(0.5)
        after = terminal.line(SIZE[1] - 2)
        _say(f"order: {before.split('·')[1].strip()} to {after.split('·')[1].strip()}", _figures([taken]))
    terminal.press("s")
    terminal.until("newest first")


def _turned(terminal: Terminal) -> Callable[[], bool]:
    """The line of words changes at once; the first rows come from the database."""
    rows, words = terminal.line(4), terminal.line(SIZE[1] - 2)
    return lambda: terminal.line(4) != rows and terminal.line(SIZE[1] - 2) != words


def measure(folder: Path, count: int, rounds: int) -> None:
    """Measure one size."""
    print(f"\n{count:,} operations, {SIZE[0]}x{SIZE[1]}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        console = Console(folder, Path(scratch))
        try:
            _say("first rows after start of the app", f"{console.first_paint * 1000:6.0f} ms")
            _say("first rows after start of the process", f"{console.from_exec * 1000:6.0f} ms")
            share, _ = console.share(10)
            _say("nothing changes: share of a core", f"{share * 100:6.1f} %")
            _keys(console, rounds)
            _filters(console)
            with stirred(folder, RATE):
                share, written = console.share(10)
                _say(f"{RATE} changes a second: share of a core", f"{share * 100:6.1f} %   {written / 1000:.1f} kB/s")
                print(f"  with {RATE} changes a second:")
                _keys(console, rounds)
            _say("memory", f"{console.resident():6.0f} MiB")
        finally:
            console.terminal.close()


def main() -> None:
    """Measure the sizes that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000,100000,1000000")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--keep", type=Path, help="where ledgers are made, and found again")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for size in given.sizes.split(","):
            folder = (given.keep or Path(scratch)) / f"ledger-{size}"
            if not (folder / "ledger.db").exists():
                crowd.fill(folder, int(size))
            measure(folder, int(size), given.rounds)


if __name__ == "__main__":
    main()
