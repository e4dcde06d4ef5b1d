"""How a simulated provider can misbehave: one name each, what it does in a line, and where an honest client may end.

A personality belongs to a *wish*: everything that arrives under one token (or one client reference) meets the same one.
It is chosen by the request itself (``X-Sim-Personality`` or ``_personality``), else by the test's plan, else by seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from opledger.errors import UsageError
from opledger.rules.model import State

SUCCEEDED: Final = frozenset({State.SUCCEEDED})
FAILED: Final = frozenset({State.FAILED})
CANCELLED: Final = frozenset({State.CANCELLED})
VIOLATION: Final = frozenset({State.CONTRACT_VIOLATION})
TIMED_OUT: Final = frozenset({State.RESULT_TIMED_OUT})
UNAVAILABLE: Final = frozenset({State.RESULT_UNAVAILABLE})
INVALID: Final = frozenset({State.RESULT_VALIDATION_FAILED})


@dataclass(frozen=True, slots=True)
class Personality:
    """One way to misbehave. `ends` maps each variant to the states in which a correct client may come to rest."""

    name: str
    does: str
    ends: Mapping[str, frozenset[State]]
    wants_cancel: bool = False  #: shows itself only to somebody who cancels
    flavour: str = "v1"  #: the contract to drive it with
    together: int = 1  #: how many operations it takes to show itself
    options: Mapping[str, Any] = field(default_factory=dict)  #: further body fields it needs to be seen

    @property
    def variants(self) -> tuple[str, ...]:
        """The variant names; the first is the default."""
        return tuple(self.ends)


def _table(*personalities: Personality) -> dict[str, Personality]:
    return {personality.name: personality for personality in personalities}


PERSONALITIES: Final[Mapping[str, Personality]] = _table(
    Personality("ideal", "does what it says", {"plain": SUCCEEDED}),
    Personality("lossy", "starts the job, then drops the answer", {"plain": SUCCEEDED}),
    Personality("lossy_before", "drops the connection before it starts anything", {"plain": SUCCEEDED}),
    Personality(
        "cut",
        "breaks off in the middle of an answer, of the create or of the result",
        {"create": SUCCEEDED, "result": SUCCEEDED},
    ),
    Personality("slow", "answers late and drop by drop, just inside the timeouts", {"plain": SUCCEEDED}),
    Personality(
        "throttling",
        "says 429 and 503, with Retry-After as seconds, as a date and as rubbish",
        {"plain": SUCCEEDED},
    ),
    Personality("hidden", "knows nothing of the job (404) for a while after it was created", {"plain": SUCCEEDED}),
    Personality(
        "token_ignoring",
        "drops the first answer, then starts a second job for the same token",
        {"plain": VIOLATION},
    ),
    Personality("id_changing", "answers a status read with the id of another job", {"plain": VIOLATION}),
    Personality(
        "id_reusing",
        "gives one job id to two operations",
        {"plain": VIOLATION | SUCCEEDED},
        together=2,
    ),
    Personality(
        "cancellable",
        "runs until it is cancelled, and says so; or drops the answer to the cancel",
        {"prompt": CANCELLED, "lossy": CANCELLED},
        wants_cancel=True,
    ),
    Personality(
        "cancel_ignoring",
        "says 202 to a cancel and runs on, for ever or to its end",
        {"forever": frozenset({State.CANCELLATION_UNCONFIRMED}), "until_end": SUCCEEDED},
        wants_cancel=True,
    ),
    Personality(
        "cancel_racing",
        "finishes just as the cancel arrives",
        {"plain": SUCCEEDED},
        wants_cancel=True,
    ),
    Personality(
        "cancel_refusing",
        "refuses the cancel: 409, or a 200 that says no",
        {"conflict": SUCCEEDED, "polite": SUCCEEDED},
        wants_cancel=True,
    ),
    Personality(
        "replaying",
        "answers a token with an old failure: the failed job, or the same stored 500",
        {"failed": FAILED, "error": frozenset({State.CREATE_UNKNOWN, State.FAILED})},
    ),
    Personality(
        "hostile",
        "sends escape bytes, markup, huge and wrong-typed values, HTML with 200, NaN and duplicate keys",
        {"plain": SUCCEEDED},
        options={"_polls": 12},
    ),
    Personality(
        "redirecting",
        "redirects status reads, results or the create to another origin",
        {"status": SUCCEEDED, "result": SUCCEEDED, "foreign": UNAVAILABLE, "create": SUCCEEDED},
    ),
    Personality(
        "expiring",
        "has the result late, behind an address that died, empty at first, or not at all",
        {"late": SUCCEEDED, "fresh": SUCCEEDED | UNAVAILABLE, "gone": UNAVAILABLE, "empty": SUCCEEDED},
    ),
    Personality("failing", "fails the job and says why", {"plain": FAILED}),
    Personality("refusing", "refuses the create for good (422)", {"plain": FAILED}),
    Personality(
        "unknown_words",
        "uses state words nobody knows, for some polls or as its last word",
        {"passing": SUCCEEDED, "last": TIMED_OUT},
        options={"_polls": 7},
    ),
    Personality("expired", "lets the job expire", {"plain": FAILED}),
    Personality(
        "unauthorized",
        "refuses our credentials (401) for a while",
        {"status": SUCCEEDED, "create": SUCCEEDED},
        flavour="guarded",
    ),
    Personality(
        "credential_echo",
        "repeats our credentials in an error, of a status read or of the create",
        {"status": SUCCEEDED, "create": FAILED},
    ),
    Personality(
        "flapping",
        "answers status reads with 500, 502 in HTML, silence and dropped connections, then well",
        {"plain": SUCCEEDED},
    ),
    Personality(
        "bad_checksum",
        "states a wrong checksum for the result, once or always",
        {"once": SUCCEEDED, "always": INVALID},
    ),
    Personality(
        "breaking",
        "breaks off in a large result, and sends the rest when asked; or all of it, or another one",
        {"resumes": SUCCEEDED, "restarts": SUCCEEDED, "changed": SUCCEEDED},
    ),
    Personality(
        "batch",
        "answers for items in another order and in two files, for some twice, for some not, for none of them",
        {
            "mixed": SUCCEEDED,
            "all_failed": FAILED,
            "nothing": UNAVAILABLE,
            "missing": INVALID,
            "repeated": INVALID,
            "extra": INVALID,
        },
        flavour="batch",
        options={"requests": [{"custom_id": f"row-{number}", "amount": 10 * number} for number in range(1, 9)]},
    ),
    Personality("never_ending", "runs and runs", {"plain": TIMED_OUT}),
)


def fraction(*parts: object) -> float:
    """A number in [0, 1) that depends on nothing but `parts`: the simulator's only chance."""
    digest = sha256("\x1f".join(str(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:7], "big") / (1 << 56)


def parse_faults(spec: str) -> dict[str, float]:
    """Read ``--faults``: ``none``, ``all``, or names with weights such as ``ideal=6,lossy,throttling=2``.

    Returns the weight of each personality. Raises UsageError for an unknown name or a weight that is no
    positive number.
    """
    if spec in ("", "none"):
        return {"ideal": 1.0}
    if spec == "all":
        return dict.fromkeys(PERSONALITIES, 1.0)
    weights: dict[str, float] = {}
    for part in spec.split(","):
        name, _, weight = part.strip().partition("=")
        if name not in PERSONALITIES:
            known = ", ".join(PERSONALITIES)
            raise UsageError(f"{name!r} is not a personality of the simulated provider; known are {known}")
        try:
            weights[name] = float(weight or 1)
        except ValueError as error:
            raise UsageError(f"{weight!r} is not a weight for {name}; write a number such as {name}=2") from error
        if not 0 < weights[name] < float("inf"):
            raise UsageError(f"the weight of {name} must be a positive number, not {weight}")
    return weights


def draw(weights: Mapping[str, float], *parts: object) -> str:
    """Choose a personality by weight; the same `parts` always choose the same."""
    point = fraction("personality", *parts) * sum(weights.values())
    for name, weight in weights.items():
        point -= weight
        if point < 0:
            return name
    return next(reversed(list(weights)))


def draw_variant(name: str, *parts: object) -> str:
    """Choose one of the personality's variants; the same `parts` always choose the same."""
    variants = PERSONALITIES[name].variants
    return variants[int(fraction("variant", name, *parts) * len(variants))]


def plan(seed: int, count: int) -> list[tuple[str, dict[str, Any]]]:
    """Return `count` jobs for a demonstration: (personality, body), in an order that depends on `seed`.

    Every personality is there at least once if `count` is 40 or more, then every variant as far as room is left,
    then well-behaved jobs. The body chooses its personality, so it can be sent by any client.
    """
    wanted: list[tuple[str, str]] = []
    later: list[tuple[str, str]] = []
    for personality in PERSONALITIES.values():
        first = draw_variant(personality.name, seed)
        wanted += [(personality.name, first)] * personality.together
        later += [(personality.name, variant) for variant in personality.variants if variant != first]
    later.sort(key=lambda pair: fraction(seed, "later", *pair))
    wanted = [*wanted, *later][:count]
    wanted += [("ideal", "plain")] * (count - len(wanted))
    numbered = sorted(enumerate(wanted), key=lambda item: fraction(seed, "order", item[0]))
    return [(name, _body(seed, place, name, variant)) for place, (_, (name, variant)) in enumerate(numbered)]


_ACCOUNTS: Final = ("acct_218", "acct_340", "acct_557", "acct_902")
_REPORTS: Final = ("ledger-close", "payout-summary", "usage-by-region", "invoice-batch", "churn-cohort")


def _body(seed: int, place: int, name: str, variant: str) -> dict[str, Any]:
    rows = 20 + int(fraction(seed, "rows", place) * 180)
    return {
        "report": _REPORTS[int(fraction(seed, "report", place) * len(_REPORTS))],
        "account": _ACCOUNTS[int(fraction(seed, "account", place) * len(_ACCOUNTS))],
        "rows": rows,
        "_personality": name,
        "_variant": variant,
        **PERSONALITIES[name].options,
    }
