"""What an event says, in words. The data of an event may hold anything: only a sound journal holds what we wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeGuard

from opledger.rules.shapes import Event

MUCH: Final = 400
"""Most characters of one outside word in a line; all of it stands in the opened event."""


def fact(event: Event, name: str) -> str | None:
    """Return a value out of an event's data as text, or None where there is none."""
    value = (event.data or {}).get(name)
    return None if value is None or value == "" else str(value)[:MUCH]


def progress_of(event: Event) -> tuple[float, float] | None:
    """Return what is done and what there is, where an observation says so in numbers."""
    progress = (event.data or {}).get("progress")
    if not isinstance(progress, Mapping):
        return None
    done, total = progress.get("completed"), progress.get("total")
    if not _number(done) or not _number(total) or not total or total <= 0:
        return None
    return float(done), float(total)


def _number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15


def progress_words(event: Event) -> str:
    """Return the progress of an observation as the provider states it."""
    found = progress_of(event)
    if found is not None:
        return f"{found[0]:g}/{found[1]:g}"
    progress = (event.data or {}).get("progress")
    if not isinstance(progress, Mapping):
        return ""
    return " ".join(f"{name} {value}" for name, value in progress.items())[:MUCH]


def word_of(event: Event) -> str:
    """Return the provider's word in an observation, and what it means where that is another one."""
    word, means = fact(event, "remote_state") or "(no word)", fact(event, "means")
    return word if means in (None, word) else f"{word} (means {means})"


def told(event: Event) -> str:
    """Return the one thing that an event says."""
    if event.data is None:
        return "the bytes of this event cannot be read"
    words = _WORDS.get(event.kind)
    if words is not None:
        found = words(event)
        if found:
            return found
    for name in ("why", "error", "text", "remote_state"):
        value = fact(event, name)
        if value is not None:
            return value
    return event.reason or event.cause


def _call(event: Event) -> str:
    attempt = fact(event, "attempt")
    parts = (fact(event, "action"), f"#{attempt}" if attempt else None, fact(event, "method"), fact(event, "url"))
    return " ".join(part for part in parts if part)


def _accepted(event: Event) -> str:
    how = fact(event, "how")
    found = f", found by {how}" if how not in (None, "create") else ""
    return f"as job {fact(event, 'job_id') or '(no id)'}{found}"


def _observed(event: Event) -> str:
    progress = progress_words(event)
    return f"{word_of(event)}{f', {progress}' if progress else ''}"


def _decided(event: Event) -> str:
    job = fact(event, "job_id")
    return f"{fact(event, 'choice')}{f' {job}' if job else ''}: {event.reason or 'no reason was given'}"


def _violated(event: Event) -> str:
    jobs = (event.data or {}).get("jobs")
    named = f" (jobs {', '.join(map(str, jobs))[:MUCH]})" if isinstance(jobs, list) and jobs else ""
    return f"{fact(event, 'why') or 'the provider broke its promises'}{named}"


def _lease(event: Event) -> str:
    return f"lease taken over from {fact(event, 'previous_owner')}, epoch {fact(event, 'epoch')}"


def _deadline(event: Event) -> str:
    return f"the {fact(event, 'which')} deadline passed ({fact(event, 'deadline')})"


_WORDS: Final[Mapping[str, Callable[[Event], str | None]]] = {
    "Submitted": lambda event: fact(event, "expectation") or f"{fact(event, 'method')} {fact(event, 'url')}",
    "Approved": lambda event: event.reason,
    "Rejected": lambda event: event.reason,
    "Withdrawn": lambda event: event.reason,
    "CallSent": _call,
    "Accepted": _accepted,
    "Observed": _observed,
    "Decided": _decided,
    "LeaseTaken": _lease,
    "DeadlinePassed": _deadline,
    "CancelRequested": lambda event: event.reason,
    "CancelAnswered": lambda event: " ".join(filter(None, (fact(event, "verdict"), fact(event, "why")))),
    "Acknowledged": lambda event: event.reason,
    **dict.fromkeys(
        ("UnfamiliarJobId", "TokenMismatch", "ManyJobs", "IdentityChanged", "FinalStateChanged"), _violated
    ),
}
