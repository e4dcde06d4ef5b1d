from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from opledger import notices as module
from opledger import service
from opledger.edges.clock import SystemClock
from opledger.edges.secrets import SecretResolver
from opledger.errors import ConfigWrong, StoreUnavailable
from opledger.ledger import Ledger
from opledger.notices import LEASE, Notices, send_by_apprise
from opledger.rules import escalation
from opledger.rules.escalation import Message, Severity, Target, TrackState
from opledger.rules.files.settings import Notify, SettingsInvalid, notice_targets
from opledger.rules.model import Means, Operation
from opledger.rules.plain import SafeText
from opledger.store import Store
from tests.core.ledgers import BODY, LOST, RUNNING, Home, happens, observed
from tests.fakes.clock import HandClock
from tests.support.databases import sqlite_template, sqlite_url  # noqa: F401 - fixtures

# apprise's plugins import modules that Python is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore:.*imghdr.*:DeprecationWarning")

WORRY = Message(SafeText("a title"), SafeText("a body"), Severity.HIGH, (0,))


class Inbox:
    """A small HTTP server on a real socket that keeps what it is sent."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.status = 200
        self.arrived = threading.Event()
        self.hold: threading.Event | None = None
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                inbox.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                inbox.arrived.set()
                if inbox.hold is not None:
                    inbox.hold.wait(30)
                    return
                self.send_response(inbox.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Tests have enough to say."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it is, as apprise writes it, with a password and a token that must never be seen elsewhere."""
        return f"json://jo:hunter2@127.0.0.1:{self.port}/T0KENvalue?+X-Key=s3cretkey"

    @property
    def titles(self) -> list[str]:
        """The titles of what came, in order."""
        return [one["title"] for one in self.got]

    def close(self) -> None:
        """Stop listening: from now on connections are refused."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    """A target that answers."""
    one = Inbox()
    yield one
    if one._thread.is_alive():
        one.close()


@pytest.fixture
def home(tmp_path: Path, sqlite_url: str) -> Home:  # noqa: F811
    """A folder with a contract and an empty ledger."""
    return Home(tmp_path, sqlite_url)


@pytest.fixture
def ledger(home: Home) -> Iterator[Ledger]:
    """The ledger of `home`."""
    with home.ledger() as opened:
        yield opened


@pytest.fixture
def clock() -> HandClock:
    """A clock that stands a minute ahead of what tests record."""
    return HandClock(SystemClock().now() + timedelta(minutes=1))


def telling(store: Store, clock: HandClock, url: str, worker: str = "w1", **how: Any) -> Notices:
    """The outbox as a worker of this name empties it."""
    return Notices(store, [Notify((url,), **how)], name=worker, secrets=SecretResolver({}), clock=clock)


def lost(ledger: Ledger, number: int = 0) -> Operation:
    """An operation of which nobody knows whether it was created."""
    return happens(ledger, ledger.submit("jobs", {**BODY, "number": number}), *LOST)


def the_track(ledger: Ledger, op: Operation) -> escalation.Track:
    """What the one target was told of an operation."""
    (track,) = ledger.store.notices_of(op.operation_id)
    return track


def test_a_target_is_read_from_the_settings(home: Home) -> None:
    """Every key of [[notify]]; what is left out has a default."""
    settings = home.settings(
        '[[notify]]\nname = "pager"\nurl = ["env:A", "env:B"]\non = ["gone"]\n'
        'severity = "high"\nrepeat = "10m"\ndigest = 3\n[[notify]]\nurl = "env:A"\n[[notify]]\nurl = "env:A"\n'
    )
    assert notice_targets(settings.notify) == (
        (Target("pager", frozenset({"gone"}), Severity.HIGH, timedelta(minutes=10), 3), "env:A"),
        (Target("pager/2", frozenset({"gone"}), Severity.HIGH, timedelta(minutes=10), 3), "env:B"),
        (Target("env:A", frozenset(), Severity.LOW, timedelta(minutes=30), 5), "env:A"),
        (Target("env:A+2", frozenset(), Severity.LOW, timedelta(minutes=30), 5), "env:A"),
    )


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('severity = "urgent"', "severity: must be one of critical, high, low"),
        ("digest = 0", "digest"),
        ('repeat = "0s"', "repeat"),
        ('name = "on call"', "name: must be a name"),
    ],
)
def test_a_wrong_setting_of_a_target_is_named(home: Home, line: str, says: str) -> None:
    """A target that is silently deaf is found out in the worst night."""
    with pytest.raises(SettingsInvalid, match=says):
        home.settings(f'[[notify]]\nurl = "env:A"\n{line}\n')


# --- telling -----------------------------------------------------------------------------------------------------


def test_an_escalation_is_told_once_over_a_real_socket(ledger: Ledger, clock: HandClock, inbox: Inbox) -> None:
    """And when nothing has changed, nothing is sent and nothing is written."""
    op = lost(ledger)
    telling_ = telling(ledger.store, clock, inbox.url)
    assert telling_.tick() == 1
    (got,) = inbox.got
    assert got["title"] == f"[critical] create_unknown: jobs {op.operation_id}"
    assert "why: no way is left" in got["message"]
    assert got["type"] == "failure"
    track = the_track(ledger, op)
    assert (track.state, track.rounds, track.sent_at) == (TrackState.SENT, 1, clock.now())
    ledger.store.database.read_only = True
    clock.pass_by(60)
    assert telling_.tick() == 0
    assert len(inbox.got) == 1


def test_what_is_no_longer_true_is_not_told(ledger: Ledger, clock: HandClock, inbox: Inbox) -> None:
    """Solved before anybody could be told: the row says so."""
    inbox.status = 500
    op = lost(ledger)
    telling_ = telling(ledger.store, clock, inbox.url)
    telling_.tick()
    ledger.resolve(op.operation_id, "not-created", reason="asked them")
    inbox.status = 200
    clock.pass_by(60)
    assert telling_.tick() == 0
    assert the_track(ledger, op).state is TrackState.OVER


def test_each_target_hears_what_it_asked_for(ledger: Ledger, clock: HandClock, inbox: Inbox) -> None:
    """By code and by severity, each with a track of its own."""
    op = lost(ledger)
    odd = happens(ledger, ledger.submit("jobs", BODY), *RUNNING, observed("odd", Means.UNKNOWN))
    wanted = [
        Notify((inbox.url,), name="pager", severity=Severity.HIGH),
        Notify((inbox.url,), name="chat", on=("unknown_state",)),
    ]
    assert Notices(ledger.store, wanted, name="w1", secrets=SecretResolver({}), clock=clock).tick() == 2
    tracks = [track for one in (op, odd) for track in ledger.store.notices_of(one.operation_id)]
    assert [(track.target, track.code) for track in tracks] == [("pager", "create_unknown"), ("chat", "unknown_state")]


def test_one_place_asked_for_twice_is_two_targets(ledger: Ledger, clock: HandClock, inbox: Inbox) -> None:
    """Two blocks with one URL must not undo each other's tracks."""
    lost(ledger)
    wanted = [Notify((inbox.url,), on=("gone",)), Notify((inbox.url,), on=("create_unknown",))]
    telling_ = Notices(ledger.store, wanted, name="w1", secrets=SecretResolver({}), clock=clock)
    assert [telling_.tick(), telling_.tick()] == [1, 0]


def test_a_stopped_provider_is_told_once_for_all_its_operations(ledger: Ledger, clock: HandClock, inbox: Inbox) -> None:
    """One escalation instead of five hundred."""
    for number in range(3):
        ledger.submit("jobs", {**BODY, "number": number})
    ledger.store.pause_provider("jobs", "w1", "401 from the provider", SystemClock().now())
    telling_ = telling(ledger.store, clock, inbox.url)
    assert [telling_.tick(), telling_.tick()] == [1, 0]
    assert inbox.titles == ["[high] provider_paused: provider jobs"]


def test_many_at_once_come_as_one_digest(ledger: Ledger, clock: HandClock, inbox: Inbox) -> None:
    """Counts and the first few, and every one of them is marked as told."""
    ops = [lost(ledger, number) for number in range(7)]
    telling_ = telling(ledger.store, clock, inbox.url, digest=6)
    assert telling_.tick() == 1
    assert inbox.titles == ["[critical] 7 escalations"]
    assert inbox.got[0]["message"].startswith("7 × create_unknown (critical)")
    assert {the_track(ledger, op).state for op in ops} == {TrackState.SENT}
    assert telling_.tick() == 0


def test_silence_is_broken_and_an_acknowledgement_keeps_it(ledger: Ledger, clock: HandClock, inbox: Inbox) -> None:
    """Told, told again, acknowledged, and open again right when that lapses, not when the next repetition was due."""
    op = lost(ledger)
    telling_ = telling(ledger.store, clock, inbox.url)
    for minutes, sent in ((0, 1), (29, 0), (1, 1)):
        clock.pass_by(minutes * 60)
        assert telling_.tick() == sent
    until = clock.now() + timedelta(minutes=40)
    ledger.acknowledge(op.operation_id, by="jo", until=until)
    for minutes, sent in ((1, 0), (38, 0), (1, 1)):
        clock.pass_by(minutes * 60)
        assert telling_.tick() == sent
    assert [title.partition(": ")[0] for title in inbox.titles] == [
        "[critical] create_unknown", "[critical] still not acknowledged", "[critical] the acknowledgement has lapsed",
    ]  # fmt: skip
    ledger.acknowledge(op.operation_id, by="jo")
    clock.pass_by(9 * 24 * 3600)
    assert [telling_.tick(), telling_.tick()] == [0, 0]


def test_an_acknowledgement_before_the_first_notice_keeps_it_quiet(
    ledger: Ledger, clock: HandClock, inbox: Inbox
) -> None:
    """Somebody was looking at the console anyway."""
    op = lost(ledger)
    ledger.acknowledge(op.operation_id, by="jo", until=clock.now() + timedelta(hours=1))
    telling_ = telling(ledger.store, clock, inbox.url)
    assert telling_.tick() == 0
    clock.pass_by(3600)
    assert telling_.tick() == 1


# --- when things break -------------------------------------------------------------------------------------------


def test_an_unreachable_target_is_tried_again_later_and_shows_in_doctor(
    home: Home, clock: HandClock, inbox: Inbox
) -> None:
    """The waits grow; once it answers, everything held up comes."""
    toml = f'[[notify]]\nname = "oncall"\nurl = "{inbox.url}"\n'
    with home.ledger(toml) as ledger:
        op = lost(ledger)
        inbox.status = 503
        telling_ = Notices(ledger.store, ledger.settings.notify, name="w1", secrets=SecretResolver({}), clock=clock)
        assert telling_.tick() == 0
        waits = []
        for _ in range(3):
            track = the_track(ledger, op)
            assert (track.state, track.rounds) == (TrackState.FAILED, 0)
            assert track.due_at is not None
            waits.append(track.due_at - clock.now())
            clock.pass_by((track.due_at - clock.now()).total_seconds() - 1)
            assert telling_.tick() == 0
            assert the_track(ledger, op) == track
            clock.pass_by(1)
            assert telling_.tick() == 0
        assert [wait.total_seconds() for wait in waits] == [15, 30, 60]
        (check,) = [one for one in ledger.doctor() if one.name == "notices oncall"]
        assert not check.ok
        assert "1 could not be sent" in check.message
        assert "after up to 4 tries" in check.message
        assert "hunter2" not in check.message
        inbox.status = 200
        clock.pass_by(10_000)
        assert telling_.tick() == 1
        assert [one.message for one in ledger.doctor() if one.name.startswith("notices")] == [
            "nothing is held up to: oncall"
        ]


def test_a_dead_target_holds_up_no_other(ledger: Ledger, clock: HandClock, inbox: Inbox) -> None:
    """A pager that is down is no reason for the chat to be silent."""
    dead = Inbox()
    dead.close()
    lost(ledger)
    wanted = [Notify((dead.url, inbox.url))]
    assert Notices(ledger.store, wanted, name="w1", secrets=SecretResolver({}), clock=clock).tick() == 1
    assert len(inbox.got) == 1


def test_a_missing_variable_is_a_failed_try_that_names_it(ledger: Ledger, clock: HandClock) -> None:
    """The worker goes on, and `doctor` says what to set."""
    op = lost(ledger)
    assert telling(ledger.store, clock, "env:NOBODY_SET_ME").tick() == 0
    track = the_track(ledger, op)
    assert track.target == "env:NOBODY_SET_ME"
    assert "set the variable NOBODY_SET_ME" in (track.last_error or "")


def test_the_url_stands_in_a_variable(ledger: Ledger, clock: HandClock, inbox: Inbox) -> None:
    """Settings files get committed; URLs of targets must not be."""
    lost(ledger)
    secrets = SecretResolver({"PAGER": inbox.url})
    assert Notices(ledger.store, [Notify(("env:PAGER",))], name="w1", secrets=secrets, clock=clock).tick() == 1


def test_two_workers_at_once_tell_everything_once(home: Home, ledger: Ledger, clock: HandClock, inbox: Inbox) -> None:
    """The normal case: no duplicates, whatever the interleaving."""
    for number in range(5):
        lost(ledger, number)
    with home.ledger() as other:
        workers = [telling(store, clock, inbox.url, f"w{n}") for n, store in enumerate((ledger.store, other.store))]
        barrier = threading.Barrier(2)

        def tick(one: Notices) -> None:
            barrier.wait()
            one.tick()

        threads = [threading.Thread(target=tick, args=(one,)) for one in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(inbox.titles) == len(set(inbox.titles)) == 5


@pytest.mark.processes
def test_a_worker_killed_between_sending_and_marking_is_made_up_for(
    home: Home, ledger: Ledger, clock: HandClock, inbox: Inbox
) -> None:
    """At least once: a duplicate is a nuisance, a lost page is an outage."""
    op = lost(ledger)
    home.settings(f'[[notify]]\nname = "oncall"\nurl = "{inbox.url}"\n')
    inbox.hold = threading.Event()
    environ = {
        **os.environ,
        "OPLEDGER_DB": home.url,
        "OPLEDGER_CONTRACTS": str(home.root / "contracts"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-m", "opledger.cli", "worker", "--once"]
    with subprocess.Popen(command, cwd=home.root, env=environ, stderr=subprocess.PIPE) as worker:
        assert inbox.arrived.wait(60), worker.communicate(timeout=5)
        worker.send_signal(signal.SIGKILL)
    inbox.hold.set()
    inbox.hold = None
    assert the_track(ledger, op).state is TrackState.SENDING
    other = telling(ledger.store, clock, inbox.url, "w2", name="oncall")
    assert other.tick() == 0
    clock.pass_by(LEASE.total_seconds())
    assert other.tick() == 1
    assert len(inbox.got) == 2
    assert inbox.got[0] == inbox.got[1]
    assert the_track(ledger, op).state is TrackState.SENT


def test_a_worker_that_is_told_to_stop_gives_back_what_it_has_not_sent(ledger: Ledger, clock: HandClock) -> None:
    """The next one need not wait for its lease to lapse."""
    for number in range(3):
        lost(ledger, number)
    sent: list[Message] = []

    def send(url: str, message: Message) -> None:
        sent.append(message)
        first.stop()

    first = Notices(
        ledger.store, [Notify(("json://x",))], name="w1", secrets=SecretResolver({}), clock=clock, send=send
    )
    assert first.tick() == 1
    assert first.tick() == 0
    second = Notices(
        ledger.store,
        [Notify(("json://x",))],
        name="w2",
        secrets=SecretResolver({}),
        clock=clock,
        send=lambda _, message: sent.append(message),
    )
    assert second.tick() == 2
    assert len({message.title for message in sent}) == 3


def test_a_worker_that_is_slow_leaves_the_rest_to_others(ledger: Ledger, clock: HandClock) -> None:
    """Beyond half of its time it begins nothing new: it might still be sending when others take over."""
    for number in range(3):
        lost(ledger, number)

    def send(url: str, message: Message) -> None:
        clock.pass_by(LEASE.total_seconds() / 3)

    one = Notices(ledger.store, [Notify(("json://x",))], name="w1", secrets=SecretResolver({}), clock=clock, send=send)
    assert [one.tick(), one.tick()] == [2, 1]


# --- apprise -----------------------------------------------------------------------------------------------------


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Everything that comes to the root logger (caplog also hears those that are cut off from it)."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    root, keep = logging.getLogger(), Keep()
    level = root.level
    root.addHandler(keep)
    root.setLevel(logging.DEBUG)
    yield lines
    root.setLevel(level)
    root.removeHandler(keep)


@pytest.mark.parametrize("status", [401, 404, 500])
def test_a_refusal_says_why_and_gives_no_secret_away(status: int, inbox: Inbox, logged: list[str]) -> None:
    """Of all that apprise knows and logs only a masked sentence comes out."""
    inbox.status = status
    why = send_by_apprise(inbox.url, WORRY)
    assert why is not None
    assert str(status) in why
    for secret in ("hunter2", "T0KENvalue", "s3cretkey", "127.0.0.1"):
        assert secret not in why
        assert secret not in "".join(logged)


def test_nothing_listening_is_a_sentence_too(inbox: Inbox) -> None:
    """The commonest trouble of all."""
    inbox.close()
    why = send_by_apprise(inbox.url, WORRY) or ""
    assert "onnection error" in why
    assert "127.0.0.1" not in why  # the host of many a target is its token


def test_a_url_that_apprise_cannot_use_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    """The library itself would print it whole."""
    why = send_by_apprise("slack://T0KENvalue/other", WORRY)
    assert why == "apprise does not know this kind of URL, or a part of it is missing"
    assert "T0KEN" not in "".join(capfd.readouterr())


def test_no_secret_of_a_target_reaches_the_database(home: Home, clock: HandClock, inbox: Inbox) -> None:
    """Neither of a target that works nor of one that fails."""
    with home.ledger() as ledger:
        lost(ledger)
        for inbox.status in (500, 200):
            telling(ledger.store, clock, inbox.url).tick()
            clock.pass_by(60)
    stored = b"".join(path.read_bytes() for path in home.root.glob("ledger.db*"))
    assert b"create_unknown" in stored
    for secret in (b"hunter2", b"T0KENvalue", b"s3cretkey"):
        assert secret not in stored


def test_notices_without_apprise_are_a_wrong_setting(
    home: Home, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence would look like peace. Without [[notify]] nobody needs apprise."""
    settings = home.settings('[[notify]]\nurl = "env:PAGER"\n')
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(ConfigWrong, match=r"apprise is not installed.*opledger\[notify\]"):
        Notices.from_settings(ledger.store, settings, "w1")
    with pytest.raises(ConfigWrong, match="apprise is not installed"):
        service.run_worker(settings, once=True)
    assert Notices.from_settings(ledger.store, home.settings(), "w1") is None
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(ConfigWrong, match="apprise is not installed"):
        send_by_apprise("json://x", WORRY)


def test_a_worker_loads_apprise_only_to_send(home: Home) -> None:
    """It costs a fifth of a second, and most ledgers have no target."""
    code = "import sys, opledger.service; print('apprise' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# --- the service -------------------------------------------------------------------------------------------------


async def test_the_service_tells_in_intervals_and_once_more_at_the_end(
    home: Home, ledger: Ledger, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the database is away for a moment, which must not end it."""
    monkeypatch.setattr(service, "NOTICES", timedelta(milliseconds=20))
    worker = service.make_worker(ledger.store, results=home.root / "results")
    stop, ticks = asyncio.Event(), 0

    class Telling(Notices):
        def tick(self) -> int:
            nonlocal ticks
            ticks += 1
            if ticks == 1:
                raise StoreUnavailable("gone for a moment")
            if ticks == 3:
                worker_loop.call_soon_threadsafe(stop.set)
            return 0

    worker_loop = asyncio.get_running_loop()
    telling_ = Telling(ledger.store, [], name="w1", secrets=SecretResolver({}))
    async with asyncio.timeout(30):
        await service.serve(worker, stop, notices=telling_)
    assert ticks >= 3
    lost(ledger)
    settings = home.settings(f'[[notify]]\nurl = "{inbox.url}"\n')
    await asyncio.to_thread(_run_once, ledger, settings, home)
    assert len(inbox.got) == 1


def _run_once(ledger: Ledger, settings: Any, home: Home) -> None:
    worker = service.make_worker(ledger.store, results=home.root / "results")
    told = Notices.from_settings(ledger.store, settings, worker.name)
    asyncio.run(service.serve(worker, asyncio.Event(), once=True, notices=told))
