"""What a person and a worker do with one ledger, command by command, in a process of its own.

A story is told twice in every case of `faults`: once on a disk that fails, then on one that is well. So every command
must be one that may be given again; what was done already, the second time refuses.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from opledger import cli
from opledger.rules import webhooks
from opledger.sim.contracts import DEFAULT_TOKEN, contract_name, contract_text

WORK: Final = ("worker", "--until-idle", "--name", "w")
LOOK: Final = ("worker", "--once", "--name", "w")
SETTINGS: Final = """\
log = "info"
[worker]
lease = "1s"
tick = "1s"
[audit]
checkpoint = "1s"
"""
DEADLINES: Final[Mapping[str, str]] = {"create": "60s", "result": "60s", "cancel": "60s", "collect": "60s"}


@dataclass(frozen=True, slots=True)
class Story:
    """Commands in order. ``{0}``, ``{1}`` stand for operations, ``submit 0`` submits the first one."""

    name: str
    steps: tuple[tuple[str, ...], ...]
    bodies: tuple[Mapping[str, Any], ...]
    flavour: str = "v1"
    settings: str = ""
    born: bool = False  #: begins without a database
    pages: int | None = None  #: after so many pages SQLite brings its log into the file, instead of after 1,000
    keep: timedelta = webhooks.KEEP  #: how long the archive keeps what has ended


def _submits(count: int) -> tuple[tuple[str, ...], ...]:
    return tuple(("submit", str(number)) for number in range(count))


def _one(name: str, personality: str, variant: str = "plain", **more: Any) -> Story:
    body = {"rows": 3, "_personality": personality, "_variant": variant, "_polls": 2, **more.pop("body", {})}
    return Story(name, (*_submits(1), WORK), (body,), **more)


_ITEMS: Final = [{"custom_id": f"row-{number}", "amount": number} for number in range(1, 5)]
_APPROVAL: Final = "[[policy]]\nwhen = 'operation.body.rows > 2'\nexpires = \"4h\"\n"

STORIES: Final[Mapping[str, Story]] = {
    story.name: story
    for story in (
        _one("ideal", "ideal"),
        Story(
            "cancel",
            (("submit", "0"), LOOK, ("cancel", "{0}", "--reason", "not wanted"), WORK),
            ({"rows": 3, "_personality": "cancellable", "_variant": "prompt"},),
        ),
        Story(
            "approve",
            (("submit", "0"), ("approve", "{0}", "--reason", "fine"), WORK, ("result", "{0}", "--out", "disk/out.csv")),
            ({"rows": 3, "_personality": "ideal", "_polls": 1},),
            settings=_APPROVAL,
        ),
        _one("batch", "batch", "mixed", flavour="batch", body={"requests": _ITEMS}),
        _one("born", "ideal", born=True),
        _one("lossy", "lossy"),
        _one("resumes", "breaking", "resumes"),
        _one("checksum", "bad_checksum", "once"),
        _one("failing", "failing"),
        _one("violation", "id_changing"),
        Story(
            "resolve",
            (
                *(("submit", "0"), WORK, ("ack", "{0}", "--reason", "seen")),
                *(("resolve", "{0}", "--as", "close", "--reason", "enough"), WORK),
                ("audit", "export", "--out", "disk/export{life}.json"),
            ),
            ({"rows": 3, "_personality": "id_changing"},),
        ),
        Story(
            "archive",
            (
                *(*_submits(2), WORK),
                *(("archive", "--closed-before", "0s", "--out", "disk/gone{life}.jsonl", "--reason", "old", "--yes"),),
            ),
            ({"rows": 3, "_personality": "failing"}, {"rows": 3, "_personality": "refusing"}),
            keep=timedelta(0),
        ),
        Story(
            "paused",
            (
                *(("submit", "0"), ("provider", "pause", "sim", "--reason", "strike")),
                *(("provider", "resume", "sim", "--reason", "over"), WORK),
            ),
            ({"rows": 3, "_personality": "ideal", "_polls": 1},),
        ),
        Story(
            "several",
            (*_submits(4), WORK),
            tuple({"rows": 3, "_personality": name, "_polls": 2} for name in ("ideal", "lossy", "failing", "ideal")),
        ),
        Story(
            "busy",
            (*_submits(6), WORK),
            tuple({"rows": 3, "_personality": "ideal", "_polls": 3 + number} for number in range(6)),
            pages=24,
        ),
    )
}

SHORT: Final = ("ideal", "cancel", "approve", "batch", "born")
"""The stories of the short form."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a story is told: settings and logs in `folder`, and all that is watched in `disk`."""

    folder: Path
    story: Story
    ids: tuple[str, ...]
    life: int = 1

    @property
    def disk(self) -> Path:
        """The folder on the disk that fails."""
        return self.folder / "disk"

    @property
    def database(self) -> Path:
        """The ledger's file."""
        return self.disk / "ledger.db"

    @property
    def environment(self) -> dict[str, str]:
        """What the commands find in their environment."""
        return {
            "OPLEDGER_DB": f"sqlite:///{self.database}",
            "OPLEDGER_CONTRACTS": str(self.folder / "contracts"),
            "OPLEDGER_RESULTS": str(self.disk / "results"),
            "OPLEDGER_OPERATOR": "olga",
            "SIM_TOKEN": DEFAULT_TOKEN,
            "XDG_DATA_HOME": str(self.disk / "data"),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "XDG_STATE_HOME": str(self.folder / "state"),
        }

    def command(self, step: tuple[str, ...]) -> list[str]:
        """The words of one command."""
        if step[0] != "submit":
            return [word.format(*self.ids, life=self.life) for word in step]
        number = int(step[1])
        body = json.dumps({"account": "acct_218", **self.story.bodies[number]})
        contract = contract_name(self.story.flavour)
        return ["submit", contract, "--body", body, "--id", self.ids[number], "--by", "agent-7"]


def prepare(place: Place, base_url: str, elsewhere: str, template: Path) -> None:
    """Make the folder anew."""
    shutil.rmtree(place.folder, ignore_errors=True)
    (place.folder / "contracts").mkdir(parents=True)
    place.disk.mkdir(mode=0o700)
    story = place.story
    text = contract_text(story.flavour, base_url, elsewhere=elsewhere, deadlines=DEADLINES)
    (place.folder / "contracts" / f"{contract_name(story.flavour)}.toml").write_text(text, encoding="utf-8")
    (place.folder / "opledger.toml").write_text(SETTINGS + story.settings, encoding="utf-8")
    if not story.born:
        shutil.copyfile(template, place.database)
        place.database.chmod(0o600)


@dataclass(frozen=True, slots=True)
class Told:
    """One command of a life: its words, its exit code, and what it said."""

    words: tuple[str, ...]
    code: int
    said: str


@dataclass(slots=True)
class Life:
    """What became of one process."""

    told: list[Told] = field(default_factory=list)
    ended: int = 0  #: exit code; a negative one names the signal
    facts: dict[str, Any] = field(default_factory=dict)  #: what the process reported besides
    said: str = ""  #: by the command that was under way when it died


Say = Callable[[Any], None]
Arm = Callable[[Say], None]
PATIENCE: Final = 120.0
"""Seconds after which a life is called stuck, and ended."""


def live(
    place: Place,
    *,
    arm: Arm = lambda _: None,
    first: Callable[[], Any] | None = None,
    last: Callable[[], Any] | None = None,
    steps: Sequence[tuple[str, ...]] | None = None,
) -> Life:
    """Tell the story in a child, after `arm` has prepared it there; `first` and `last` look at what lies there.

    All report to the parent through a pipe; what is not there when the process dies was never acknowledged.
    """
    ours, theirs = os.pipe()
    log = place.folder / "log"
    log.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        os.close(ours)
        code = 99
        try:
            code = _live(place, theirs, log, arm, (first, last), place.story.steps if steps is None else steps)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    os.close(theirs)
    lines = _hear(ours, child)
    _, status = os.waitpid(child, 0)
    return _read(lines, os.waitstatus_to_exitcode(status), log.read_bytes() if log.exists() else b"")


def _hear(pipe: int, child: int) -> list[Any]:
    """All lines until the child has closed its end; it is ended where that takes too long."""
    heard, end = b"", time.monotonic() + PATIENCE
    with os.fdopen(pipe, "rb", buffering=0) as stream:
        while True:
            if not select.select([stream], [], [], max(0.0, end - time.monotonic()))[0]:
                os.kill(child, signal.SIGALRM)
                break
            piece = stream.read(65536)
            if not piece:
                break
            heard += piece
    return [json.loads(line) for line in heard.splitlines(keepends=True) if line.endswith(b"\n")]


def _live(
    place: Place,
    pipe: int,
    log: Path,
    arm: Arm,
    looks: tuple[Callable[[], Any] | None, Callable[[], Any] | None],
    steps: Sequence[tuple[str, ...]],
) -> int:
    raw = os.write  # the watched one comes later

    def say(fact: Any) -> None:
        raw(pipe, json.dumps(fact).encode() + b"\n")

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    sink = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    for number in (1, 2):
        os.dup2(sink, number)
    os.chdir(place.folder)
    for name in [name for name in os.environ if name.startswith(("OPLEDGER_", "XDG_"))]:
        del os.environ[name]
    os.environ.update(place.environment)
    webhooks.KEEP = place.story.keep  # type: ignore[misc]
    arm(say)
    if looks[0] is not None:
        say({"first": looks[0]()})
    for step in steps:
        code = cli.main(place.command(step))
        sys.stdout.flush()
        sys.stderr.flush()
        say({"step": list(step), "code": code, "end": os.lseek(sink, 0, os.SEEK_END)})
    if looks[1] is not None:
        say({"last": looks[1]()})
    return 0


def _read(lines: list[Any], ended: int, log: bytes) -> Life:
    life, at = Life(ended=ended), 0
    for line in lines:
        if "step" in line:
            life.told.append(Told(tuple(line["step"]), line["code"], log[at : line["end"]].decode("utf-8", "replace")))
            at = line["end"]
        else:
            life.facts.update(line)
    life.said = log[at:].decode("utf-8", "replace")
    return life
