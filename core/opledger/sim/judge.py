"""Was the client honest? Pure functions over the simulator's log.

A *problem* is the client's fault. What the provider did wrong by its personality (a second job for one token, one id
for two operations) is only *noted*: it must show in the ledger as a contract violation, and is no client's fault.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Entry = Mapping[str, Any]
_REFUSAL: Final = frozenset({400, 401, 403, 422, 429})
_TAKES_TOKENS: Final = frozenset({"v1", "guarded", "header", "clientid", "query", "body", "unique", "inline"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the log shows."""

    requests: int
    wishes: int  #: different tokens (or client references) under which creates arrived
    creates: int  #: create requests that arrived
    jobs: int  #: jobs that were started
    cancels: int  #: cancel requests that arrived
    problems: tuple[str, ...]  #: the client's faults
    notes: tuple[str, ...]  #: the provider's own faults


def judge(log: Sequence[Entry], intents: Mapping[str, int] | None = None, accepted: Container[str] = ()) -> list[str]:
    """Return the client's faults, one sentence each; empty if it was honest.

    `intents` says how many cancel intents were recorded, by job id; a job that is not named there had at most one.
    `accepted` holds the tokens (or client references) for which a person accepted a possible duplicate.
    """
    return list(verdict(log, intents, accepted).problems)


def verdict(log: Sequence[Entry], intents: Mapping[str, int] | None = None, accepted: Container[str] = ()) -> Verdict:
    """Return counts, faults of the client, and faults of the provider."""
    creates = [entry for entry in log if entry["kind"] == "create"]
    cancels = [entry for entry in log if entry["kind"] == "cancel"]
    wishes = _by_wish(creates)
    problems, notes = _jobs_per_wish(wishes, accepted)
    problems += _bodies_per_token(wishes)
    problems += _creates_without_token(creates)
    problems += _creates_after_refusal(wishes)
    problems += _cancels_per_job(cancels, intents or {})
    problems += _strangers(log)
    problems += _leaked_in_urls(log)
    notes += _shared_ids(creates)
    return Verdict(
        requests=len(log),
        wishes=len(wishes),
        creates=len(creates),
        jobs=sum(bool(entry["started"]) for entry in creates),
        cancels=len(cancels),
        problems=tuple(problems),
        notes=tuple(notes),
    )


def _by_wish(creates: Iterable[Entry]) -> dict[tuple[str, str], list[Entry]]:
    wishes: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in creates:
        key = entry["token"] or entry["client_ref"]
        if key is not None:
            wishes[str(entry["flavour"]), key].append(entry)
    return wishes


def _jobs_per_wish(
    wishes: Mapping[tuple[str, str], list[Entry]], accepted: Container[str]
) -> tuple[list[str], list[str]]:
    problems: list[str] = []
    notes: list[str] = []
    for (_, key), entries in wishes.items():
        jobs = [entry["job_id"] for entry in entries if entry["started"]]
        if len(jobs) < 2:
            continue
        sentence = f"{key} started {len(jobs)} jobs: {', '.join(map(str, jobs))}"
        if any(entry["personality"] == "token_ignoring" for entry in entries):
            notes.append(f"{sentence} (the provider ignored the token)")
        elif key in accepted:
            notes.append(f"{sentence} (a person accepted a possible duplicate)")
        else:
            problems.append(sentence)
    by_reference: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for wish, entries in wishes.items():
        for entry in entries:
            if entry["started"] and entry["client_ref"] is not None:
                by_reference[entry["client_ref"]].add(wish)
    for reference, used in by_reference.items():
        if len(used) > 1:
            tokens = ", ".join(sorted(key for _, key in used))
            problems.append(f"{reference} started jobs under {len(used)} tokens: {tokens}")
    return problems, notes


def _bodies_per_token(wishes: Mapping[tuple[str, str], list[Entry]]) -> list[str]:
    problems = []
    for (_, key), entries in wishes.items():
        bodies = {entry["body_sha256"] for entry in entries}
        if len(bodies) > 1:
            problems.append(f"{key} was sent with {len(bodies)} different bodies")
    return problems


def _creates_without_token(creates: Iterable[Entry]) -> list[str]:
    return [
        f"create {entry['at']} came without a token, though {entry['flavour']} takes one"
        for entry in creates
        if entry["token"] is None and entry["flavour"] in _TAKES_TOKENS
    ]


def _creates_after_refusal(wishes: Mapping[tuple[str, str], list[Entry]]) -> list[str]:
    """A create that was refused for good may not be sent again under the same token."""
    problems = []
    for (_, key), entries in wishes.items():
        refused = [place for place, entry in enumerate(entries) if entry["status"] in (400, 422)]
        if refused and refused[0] < len(entries) - 1:
            problems.append(f"{key} was sent again after it had been refused for good")
    return problems


def _cancels_per_job(cancels: Iterable[Entry], intents: Mapping[str, int]) -> list[str]:
    counted = Counter(
        entry["job_id"] for entry in cancels if entry["job_id"] is not None and entry["status"] not in _REFUSAL
    )
    return [
        f"{job} was sent {count} cancels for {_times(intents.get(job, 1))}"
        for job, count in counted.items()
        if count > intents.get(job, 1)
    ]


def _times(count: int) -> str:
    return "1 intent" if count == 1 else f"{count} intents"


def _strangers(log: Iterable[Entry]) -> list[str]:
    problems = []
    for entry in log:
        if entry["origin"] != "elsewhere":
            continue
        what = f"{entry['method']} {entry['path']} went to another origin"
        if entry["credentials_in"] or entry["authorization"]:
            problems.append(f"{what} with credentials in {', '.join(entry['credentials_in']) or 'a header'}")
        if "idempotency-key" in entry["headers"]:
            problems.append(f"{what} with the idempotency token")
        if entry["body_size"]:
            problems.append(f"{what} with a request body")
        if not entry["path"].startswith("/results/"):
            problems.append(f"{what}: a redirect was followed")
    return problems


def _leaked_in_urls(log: Iterable[Entry]) -> list[str]:
    return [
        f"{entry['method']} {entry['path']} carried credentials in its {place}"
        for entry in log
        for place in entry["credentials_in"]
        if place.startswith("query:") and place != "query:api_key"
    ]


def _shared_ids(creates: Iterable[Entry]) -> list[str]:
    wishes: dict[str, set[str]] = defaultdict(set)
    for entry in creates:
        if entry["job_id"] is not None and entry["effect"] in ("started", "repeated"):
            wishes[entry["job_id"]].add(str(entry["token"] or entry["client_ref"]))
    return [
        f"{job} was given to {len(keys)} operations: {', '.join(sorted(keys))} (the provider reused the id)"
        for job, keys in wishes.items()
        if len(keys) > 1
    ]
