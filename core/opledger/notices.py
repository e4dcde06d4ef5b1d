"""Telling people outside: from what needs attention, through the outbox, to apprise. At least once, and recorded.

The service calls `Notices.tick` every few seconds on a thread. A tick begins tracks of new escalations, looks at those
that are due, takes those that must be told now, sends them and writes down what became of them. Any number of workers
may do so at once: each track is taken by one of them. A worker that dies while it sends leaves its tracks taken until
`LEASE` has passed; then they are sent again.

apprise is an optional extra and loaded with the first notice. Its URLs are secrets: they are read when something is
sent, and stand neither in the database nor in a log.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from importlib.util import find_spec
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from opledger.config import Notify, Settings
from opledger.edges.clock import Clock, SystemClock
from opledger.edges.secrets import SecretResolver
from opledger.errors import ConfigWrong
from opledger.rules import escalation
from opledger.rules.escalation import (
    Escalation,
    Later,
    Message,
    Notice,
    Over,
    Send,
    Severity,
    Target,
    Track,
    TrackState,
)
from opledger.rules.files.settings import notice_targets
from opledger.rules.plain import clean
from opledger.rules.redact import Redactor
from opledger.store import Listening, Settled, Store

log = logging.getLogger("opledger.notices")

LEASE: Final = timedelta(minutes=2)
"""How long a worker may take to send what it took; afterwards others send it again."""

ERROR: Final = 300
"""Characters that are kept of why a notice could not be sent."""

Sender = Callable[[str, Message], str | None]
"""Sends a message to a URL and returns None, or one sentence why it could not; that sentence holds no secret."""


class Notices:
    """The outbox of one ledger, as one worker empties it."""

    def __init__(
        self,
        store: Store,
        notify: Iterable[Notify],
        *,
        name: str,
        secrets: SecretResolver,
        clock: Clock | None = None,
        send: Sender | None = None,
    ) -> None:
        self._store = store
        self._name = name
        self._secrets = secrets
        self._clock = clock or SystemClock()
        self._send = send or send_by_apprise
        self._targets = notice_targets(notify)
        self._ticking = threading.Lock()
        self._stopped = threading.Event()

    @classmethod
    def from_settings(cls, store: Store, settings: Settings, name: str, clock: Clock | None = None) -> Notices | None:
        """Return what the settings ask for; None where they ask for no notices.

        Raises ConfigWrong where apprise is not installed.
        """
        if not settings.notify:
            return None
        if find_spec("apprise") is None:
            raise ConfigWrong(MISSING)
        return cls(store, settings.notify, name=name, secrets=SecretResolver(settings.environment), clock=clock)

    def stop(self) -> None:
        """Begin no further message; what was taken and not sent is given back."""
        self._stopped.set()

    def tick(self) -> int:
        """Tell each target what is to be told now; returns how many messages went out.

        Blocks while it sends, so call it on a thread of its own. Raises StoreUnavailable.
        """
        with self._ticking:
            return sum(self._serve(target, url) for target, url in self._targets if not self._stopped.is_set())

    def _serve(self, target: Target, url: str) -> int:
        now = self._clock.now()
        listening = Listening(target.name, target.listened_for(), target.approvals_before(now))
        fresh = self._store.untold(listening)
        if fresh:
            self._store.begin_notices(target.name, fresh, now)
        due = self._store.due_notices(target.name, now)
        if not due:
            return 0
        standing = self._standing(due, now)
        notices: list[Notice] = []
        tracks: list[Track] = []
        settled: list[Settled] = []
        for track in due:
            one = standing.get(track.subject)
            step = escalation.next_step(track, one, target, now)
            if isinstance(step, Send) and one is not None:
                notices.append(Notice(one, step.occasion))
                tracks.append(track)
            elif isinstance(step, Over | Later):
                settled.append(_untouched(track, step))
        if settled:
            self._store.settle_notices(settled)
        return self._tell(target, url, tracks, notices) if notices else 0

    def _standing(self, due: Sequence[Track], now: datetime) -> dict[str, Escalation]:
        """Return what the subjects of these tracks want of a person now."""
        found = self._store.stopped_providers()
        for op in self._store.queries.get_many([track.subject for track in due]):
            one = escalation.of_operation(op, now)
            if one is not None:
                found[one.subject] = one
        return found

    def _tell(self, target: Target, url: str, tracks: Sequence[Track], notices: Sequence[Notice]) -> int:
        """Take, send, and write down."""
        until, began = self._clock.now() + LEASE, self._clock.monotonic()
        taken = self._store.take_notices(tracks, self._name, until)
        held = [(track, notice) for track, notice, mine in zip(tracks, notices, taken, strict=True) if mine]
        count = 0
        told: set[int] = set()
        for message in escalation.messages([notice for _, notice in held], target.digest, self._clock.now()):
            late = self._clock.monotonic() - began > LEASE.total_seconds() / 2
            if self._stopped.is_set() or late:
                break
            why = self._deliver(url, message)
            covered = [held[index] for index in message.covers]
            self._store.settle_notices([self._outcome(target, *one, why) for one in covered], until)
            told.update(message.covers)
            if why is None:
                count += 1
            else:
                log.warning("a notice to %s failed: %s", target.name, why)
        left = [_given_back(track) for index, (track, _) in enumerate(held) if index not in told]
        if left:
            self._store.settle_notices(left, until)
        return count

    def _deliver(self, url: str, message: Message) -> str | None:
        try:
            secret = self._secrets.resolve(url) if url.startswith("env:") else url
            why = self._send(secret, message)
        except ConfigWrong as wrong:
            why = wrong.message
        return None if why is None else clean(why, limit=ERROR)

    def _outcome(self, target: Target, track: Track, notice: Notice, why: str | None) -> Settled:
        now = self._clock.now()
        if why is not None:
            again = now + escalation.retry_after(track.attempts + 1, self._clock.random())
            failed = replace(track, attempts=track.attempts + 1)
            return _settled(failed, TrackState.FAILED, again, why)
        rounds, again_at = escalation.after_sending(track, notice.standing, notice.occasion, target, now)
        sent = replace(track, severity=notice.standing.severity, rounds=rounds, attempts=0, sent_at=now)
        return _settled(sent, TrackState.SENT, again_at)


def _settled(track: Track, state: TrackState, due_at: datetime | None, error: str | None = None) -> Settled:
    return Settled(track, state, due_at, track.severity, track.rounds, track.attempts, track.sent_at, error)


def _untouched(track: Track, step: Over | Later) -> Settled:
    """Write down that nothing is told now."""
    told = track.sent_at is not None
    if isinstance(step, Over):
        return _settled(track, TrackState.SENT if told else TrackState.OVER, None)
    quiet = replace(track, attempts=0)
    return _settled(quiet, TrackState.SENT if told else TrackState.PENDING, step.at)


def _given_back(track: Track) -> Settled:
    return _settled(track, track.state, track.due_at, track.last_error)


# --- apprise -----------------------------------------------------------------------------------------------------

MISSING: Final = (
    "opledger.toml asks for notices ([[notify]]) and apprise is not installed; "
    "install it with: pip install 'opledger[notify]'"
)

_TYPES: Final = {Severity.CRITICAL: "failure", Severity.HIGH: "warning", Severity.LOW: "info"}


def send_by_apprise(url: str, message: Message) -> str | None:
    """Send one message; return None, or why it could not be sent. Raises ConfigWrong where apprise is missing."""
    _hush()
    try:
        import apprise
    except ImportError as error:
        raise ConfigWrong(MISSING) from error
    asset = apprise.AppriseAsset(app_id="opledger", app_desc="opledger", app_url="", async_mode=False)
    sender = apprise.Apprise(asset=asset)
    if not sender.add(url):  # what it logs about that holds the whole URL
        return "apprise does not know this kind of URL, or a part of it is missing"
    with apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as said:  # type: ignore[no-untyped-call]
        sent = sender.notify(
            title=message.title,
            body=message.body,
            notify_type=apprise.NotifyType(_TYPES[message.severity]),
            body_format=apprise.NotifyFormat.TEXT,
        )
        words = " ".join(said.getvalue().split())
    if sent:
        return None
    return Redactor(_secrets_of(url)).mask_text(words) or "the target did not take it, and apprise does not say why"


def _hush() -> None:
    """Let nothing that apprise and its HTTP client log go any further: whole URLs stand in it."""
    for name in ("apprise", "requests", "urllib3"):
        logger = logging.getLogger(name)
        logger.propagate = False
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())


def _secrets_of(url: str) -> tuple[str, ...]:
    """Return every part of a notice URL that may be a token; with many services even the host is one."""
    parts = urlsplit(url)
    pieces = [*parts.netloc.replace("@", ":").split(":"), *parts.path.split("/"), parts.fragment]
    pieces += [value for _, value in parse_qsl(parts.query)]
    return (url, *pieces, *(unquote(piece) for piece in pieces))
