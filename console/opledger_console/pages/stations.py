"""Providers and workers at one moment, and in words: rows for their lists, and what is to be said of one of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from rich.text import Text

from opledger.ledger.health import ALIVE
from opledger.rules.contract import Contract
from opledger.rules.pulse import Beat
from opledger.store import Provider
from opledger.store.directory import Holding
from opledger.store.values import Aside, WorkerLife
from opledger_console.pages.sparks import sparks
from opledger_console.text import line
from opledger_console.views import Column, Row, TimeStyle, span, stamp

PROVIDERS: Final[tuple[Column, ...]] = (
    ("", 1, 0),
    ("provider", 14, 0),
    ("state", 8, 0),
    ("open", 6, 46),
    ("calls/m", 7, 54),
    ("of", 6, 60),
    ("err", 4, 0),
    ("p50", 5, 100),
    ("p95", 5, 66),
    ("errors", 15, 112),
    ("polls of 30 min", 0, 0),
)
WORKERS: Final[tuple[Column, ...]] = (
    ("", 1, 0),
    ("worker", 18, 0),
    ("state", 5, 0),
    ("host", 14, 90),
    ("pid", 7, 70),
    ("up", 4, 60),
    ("beat", 4, 0),
    ("late", 5, 50),
    ("leases", 6, 46),
    ("they lapse", 0, 0),
)
NOT_COUNTED: Final = "…"
SHAPE: Final = 15
FULL: Final = 30
ON_TIME: Final = timedelta(seconds=5)
"""A worker that is later than this is too late."""
REFUSED: Final = "the provider refused our credentials"
"""How a worker's reason begins where it stopped the calls because of them."""


@dataclass(frozen=True, slots=True)
class Contracted:
    """What is known of a provider's contract: its limits and guarantees, or why they are not known."""

    contract: Contract | None
    guarantees: str
    from_file: bool  #: as the file says now; else as the newest operation is pinned


@dataclass(frozen=True, slots=True)
class ProviderLook:
    """One provider."""

    provider: Provider
    contracted: Contracted
    beat: Beat
    refused: tuple[tuple[str, int], ...] = ()  #: webhooks that were refused: why, and how often
    parked: int = 0  #: webhooks that match no operation yet

    @property
    def name(self) -> str:
        """What operations call it."""
        return self.provider.contract

    @property
    def paused(self) -> bool:
        """True while no call is made to it."""
        return self.provider.state == "paused"

    @property
    def credentials_refused(self) -> bool:
        """True where a worker stopped the calls because the provider refused our credentials."""
        return self.paused and (self.provider.reason or "").startswith(REFUSED)


@dataclass(frozen=True, slots=True)
class WorkerLook:
    """One worker, alive or not; `life` is None of one that left the list and leases behind."""

    name: str
    life: WorkerLife | None
    alive: bool
    holding: Holding | None


@dataclass(frozen=True, slots=True)
class Stations:
    """All providers and workers at one moment."""

    providers: tuple[ProviderLook, ...]
    workers: tuple[WorkerLook, ...]
    counted: bool  #: the figures hold what the journal says of the last half hour
    taken_at: datetime


# --- rows ----------------------------------------------------------------------------------------------------------


def provider_row(look: ProviderLook, *, counted: bool) -> Row:
    """Return the row of a provider."""
    beat, contract = look.beat, look.contracted.contract
    calls = beat.creates + beat.reads + beat.cancels + beat.collects
    rate = None if contract is None else contract.limits.rate
    state, kind = ("paused", "human") if look.paused else ("open", "plain")
    if look.credentials_refused:
        state, kind = "auth bad", "bad"
    figures = (
        str(calls),
        "-" if rate is None else f"{rate * 60:.4g}",
        share(beat.error_share),
        wait(beat.late_p50),
        wait(beat.late_p95),
        sparks(beat.errors, SHAPE),
        sparks(beat.calls, SHAPE),
    )
    shown = figures if counted else (NOT_COUNTED, figures[1], *([NOT_COUNTED] * 5))
    glyph = "‖" if look.paused else "▸"
    return Row(look.name, (glyph, look.name, state, str(look.provider.open_operations), *shown), kind)


def worker_row(look: WorkerLook, now: datetime) -> Row:
    """Return the row of a worker."""
    life, holding = look.life, look.holding
    known = ("-", "-", "-", "-", "-")
    if life is not None:
        late = f"{life.lateness.total_seconds():.1f}s"
        known = (
            life.host,
            str(life.pid),
            span(now - life.started),
            stamp(life.heartbeat, now, TimeStyle.RELATIVE),
            late,
        )
    host, pid, up, beat, late = known
    leases = "0" if holding is None else str(holding.leases)
    kind = "plain" if look.alive else ("bad" if holding is not None else "ended")
    if look.alive and life is not None and life.lateness > ON_TIME:
        kind = "human"
    state = "alive" if look.alive else "gone"
    if look.alive and _asides(look, now):
        state, kind = "aside", "human"
    cells = ("●" if look.alive else "○", look.name, state, host, pid, up, beat, late, leases, _lapse(look, now))
    return Row(look.name, cells, kind)


def _asides(look: WorkerLook, now: datetime) -> tuple[Aside, ...]:
    """Return the providers that a worker leaves to others now."""
    return () if look.life is None else tuple(one for one in look.life.asides if one.until > now)


def share(part: float | None) -> str:
    """Return a share in percent; ``-`` where there is nothing to share."""
    if part is None:
        return "-"
    return "<1%" if 0 < part < 0.01 else f"{part:.0%}"


def wait(late: timedelta | None) -> str:
    """Return a lateness in at most five characters."""
    if late is None:
        return "-"
    seconds = late.total_seconds()
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.1f}s" if seconds < 100 else span(late)


def _lapse(look: WorkerLook, now: datetime) -> str:
    held = look.holding
    if held is None:
        return "-"
    if look.alive:
        return "extended while it lives"
    if held.last_lapses <= now:
        return "all lapsed: another worker takes them"
    first = "now" if held.first_lapses <= now else f"in {span(held.first_lapses - now)}"
    last = f"in {span(held.last_lapses - now)}"
    when = first if first == last else f"{first}, the last {last}"
    return f"{when}, then another worker takes them"


# --- the one under the cursor --------------------------------------------------------------------------------------


def provider_told(look: ProviderLook, now: datetime, *, counted: bool) -> Text:
    """Say what is known of a provider, the most urgent first."""
    provider, contract, text = look.provider, look.contracted.contract, Text()
    text.append_text(line(look.name, limit=60, style="bold"))
    if look.paused:
        text.append("  PAUSED", style="bold")
        text.append(" by ")
        text.append_text(line(provider.by or "?", limit=40))
        if provider.since is not None:
            text.append(
                f" for {stamp(provider.since, now, TimeStyle.RELATIVE)}, since {provider.since:%d %b %H:%M:%S}Z"
            )
        text.append("\nwhy: ", style="bold")
        text.append_text(line(provider.reason or "(no reason)", limit=600))
        text.append("\nNo call is made there until somebody lets it go with l; deadlines run on.")
        if look.credentials_refused:
            text.append(" Mend the credential first.", style="bold")
    else:
        text.append("  open", style="bold")
    text.append(f"  {_many(provider.open_operations)} open")
    _figures(text, look, counted=counted)
    text.append("\n")
    _limits(text, look)
    if look.refused or look.parked:
        text.append("\nwebhooks: ", style="bold")
        told = [f"{count:,} refused ({kind.replace('_', ' ')})" for kind, count in look.refused]
        told += [f"{look.parked:,} match no operation yet"] if look.parked else []
        text.append_text(line(", ".join(told), limit=300))
    text.append("\n")
    if contract is not None and not look.contracted.from_file:
        text.append("\nAs the newest operation is pinned; there is no good contract file of this name here.")
    for words in look.contracted.guarantees.splitlines():
        text.append("\n")
        text.append_text(line(words, limit=400))
    return text


def _figures(text: Text, look: ProviderLook, *, counted: bool) -> None:
    beat = look.beat
    if not counted:
        text.append("\ncounting what happened in the last half hour …", style="dim")
        return
    text.append("\nlast minute: ", style="bold")
    text.append(f"creates {beat.creates}, reads {beat.reads}, cancels {beat.cancels}, results {beat.collects}")
    text.append("\nlast 10 min: ", style="bold")
    text.append(f"{share(beat.error_share)} errors, {wait(beat.late_p50)} late (p95 {wait(beat.late_p95)})")
    text.append("\nlast 30 min: ", style="bold")
    text.append(f"calls  {sparks(beat.calls, FULL)} {sum(beat.calls)}")
    text.append(f"\n             errors {sparks(beat.errors, FULL, max(beat.calls, default=0))} {sum(beat.errors)}")


def _limits(text: Text, look: ProviderLook) -> None:
    contract = look.contracted.contract
    if contract is None:
        return
    limits, auth = contract.limits, contract.auth
    rate = "no rate limit" if limits.rate is None else f"{limits.rate:g} calls a second"
    text.append("\nallowed: ", style="bold")
    text.append(f"{rate}, {limits.concurrency} at once")
    text.append("   credential: ", style="bold")
    # The reference only; what it stands for is read by the worker, at the moment of a call.
    text.append_text(line(auth.secret or "(none)", limit=80))
    if contract.secrets:
        text.append_text(line(f", {', '.join(sorted(set(contract.secrets.values())))}", limit=200))


def worker_told(look: WorkerLook, now: datetime) -> Text:
    """Say what is known of a worker, and what becomes of its leases."""
    life, holding, text = look.life, look.holding, Text()
    text.append_text(line(look.name, limit=80, style="bold"))
    text.append("  alive" if look.alive else "  GONE", style="bold")
    if life is not None:
        text.append(" at ")
        text.append_text(line(f"{life.host}, process {life.pid}", limit=100))
        text.append(f"\nstarted {life.started:%d %b %H:%M:%S}Z, last sign of life {_ago(life.heartbeat, now)}")
        text.append(f", {life.lateness.total_seconds():.1f} s behind its work")
    else:
        text.append("\nIt signed off, or was forgotten after a day, and left leases behind.")
    for aside in _asides(look, now) if look.alive else ():
        text.append("\nleaves to others: ", style="bold")
        text.append_text(line(aside.contract, limit=60))
        text.append(f", since {aside.since:%H:%M:%S}Z and for {span(aside.until - now)} more: ")
        text.append_text(line(aside.why, limit=400))
    if look.alive:
        held = 0 if holding is None else holding.leases
        text.append(f"\nIt holds {_many(held)} and keeps them as long as it lives.")
        return text
    text.append(f"\nA worker counts as gone after {span(ALIVE)} without a sign of life.")
    if holding is None:
        text.append(" It holds nothing: there is nothing to do.")
        return text
    text.append(f" It still holds {_many(holding.leases)}.")
    first, last = holding.first_lapses, holding.last_lapses
    text.append(f"\nThe first of these leases lapses at {first:%H:%M:%S}Z ({_in(first, now)})")
    text.append(f", the last at {last:%H:%M:%S}Z ({_in(last, now)}).")
    text.append("\nNothing needs to be done: any other worker takes each one over when it lapses, and asks the")
    text.append(" provider before it sends anything. No worker alive? Start one: opledger worker")
    return text


def _ago(at: datetime, now: datetime) -> str:
    said = stamp(at, now, TimeStyle.RELATIVE)
    return "ahead of our clock" if said.endswith("!") else f"{said} ago"


def _many(count: int) -> str:
    return f"{count} operation{'' if count == 1 else 's'}"


def _in(at: datetime, now: datetime) -> str:
    return "passed" if at <= now else f"in {span(at - now)}"
