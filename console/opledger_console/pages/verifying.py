"""What people read of a verification and of a search, as text."""

from __future__ import annotations

from datetime import timedelta

from rich.text import Text

from opledger.ledger.audit import Progress, Verified
from opledger.store.finding import Found
from opledger_console.text import line
from opledger_console.views import span


def how_far(progress: Progress) -> str:
    """Say how far a verification has got."""
    words = f"{progress.done:,} of {progress.total:,} operations, {progress.rate:,.0f} events/s"
    if progress.left is not None:
        words += f", {span(timedelta(seconds=progress.left))} left"
    return f"{words}, {progress.found:,} findings" if progress.found else words


def outcome(one: Verified) -> str:
    """Say what a verification came to."""
    how = one.progress
    took = span(timedelta(seconds=how.seconds))
    checked = f"{how.events:,} events of {how.done:,} operations in {took}"
    found = f"{one.count:,} finding{'s' if one.count != 1 else ''}" if one.count else "all as it was written"
    return f"{checked}, {found}."


def anchored(one: Verified) -> Text:
    """Up to where anchors outside hold the history, and what else is good to know."""
    words = Text()
    if one.anchored is not None:
        note, name = one.anchored[0].note, one.anchored[1]
        words.append(f"Anchored up to checkpoint {note.number} of {note.at:%Y-%m-%d %H:%M:%S}Z (")
        words.append_text(line(name, limit=60))
        words.append(").")
    elif one.checkpoints:
        words.append("Not anchored: no anchor outside of the database holds a checkpoint of it.")
    if one.since is not None:
        words.append(f" Verified is what came behind checkpoint {one.since[0]}; v verifies everything.")
    for known in one.notes:
        words.append(" " if words.plain else "")
        words.append_text(line(f"{known.message[:1].upper()}{known.message[1:]}.", limit=300))
    return words


def hits_line(found: Found) -> str:
    """Say how many operations a search found."""
    number = f"{len(found.hits):,} operation{'s' if len(found.hits) != 1 else ''}"
    searched = f", {found.searched:,} gone through" if found.searched else ""
    return f"{number}{searched}" + ("" if found.complete else "; STOPPED or cut off, there may be more")
