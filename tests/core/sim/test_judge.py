from __future__ import annotations

from typing import Any

import pytest

from opledger.sim.judge import judge, verdict

OURS = {"origin": "provider", "flavour": "v1", "personality": "ideal", "credentials_in": ["header:authorization"]}


def create(
    token: str | None = "idem_1", job: str | None = "job_1", *, started: bool = True, **more: Any
) -> dict[str, Any]:
    """A create that arrived."""
    return {
        **OURS,
        "kind": "create",
        "method": "POST",
        "path": "/v1/jobs",
        "token": token,
        "client_ref": f"op_of_{token}",
        "body_sha256": "aa",
        "body_size": 2,
        "job_id": job,
        "started": started,
        "effect": "started" if started else "repeated",
        "status": 202,
        "at": 1,
        "headers": {},
        "authorization": True,
        **more,
    }


def cancel(job: str = "job_1", **more: Any) -> dict[str, Any]:
    """A cancel that arrived."""
    return {**create(job=job, started=False), "kind": "cancel", "effect": "accepted", **more}


def foreign(path: str = "/results/job_1", **more: Any) -> dict[str, Any]:
    """A request that reached the other origin."""
    entry = create(started=False)
    entry |= {"kind": "foreign", "origin": "elsewhere", "path": path, "credentials_in": [], "authorization": False}
    return {**entry, "body_size": 0, "method": "GET", **more}


def test_an_honest_client_has_no_problems() -> None:
    """A lost answer, a resend of the same bytes and one cancel are as it should be."""
    log = [create(status=None), create(started=False), create("idem_2", "job_2"), cancel(), foreign()]
    found = verdict(log)
    assert found.problems == ()
    assert (found.wishes, found.creates, found.jobs, found.cancels, found.requests) == (2, 3, 2, 1, 5)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ([create(), create(job="job_2")], "idem_1 started 2 jobs: job_1, job_2"),
        ([create(), create(started=False, body_sha256="bb")], "idem_1 was sent with 2 different bodies"),
        ([create(), cancel(), cancel(status=None)], "job_1 was sent 2 cancels for 1 intent"),
        ([create(), create("idem_2", "job_2", client_ref="op_of_idem_1")], "op_of_idem_1 started jobs under 2 tokens"),
        ([create(token=None)], "came without a token"),
        ([create(None, None, started=False, flavour="query", client_ref=None)], "came without a token"),
        ([create(status=422, started=False), create()], "idem_1 was sent again after it had been refused for good"),
        ([foreign(credentials_in=["header:x-api-key"])], "with credentials in header:x-api-key"),
        ([foreign(authorization=True)], "with credentials"),
        ([foreign(headers={"idempotency-key": "idem_1"})], "with the idempotency token"),
        ([foreign(body_size=9)], "with a request body"),
        ([foreign("/trap/jobs")], "a redirect was followed"),
        ([create(credentials_in=["query:token"])], "carried credentials in its query:token"),
    ],
)
def test_a_planted_fault_is_found(log: list[dict[str, Any]], words: str) -> None:
    """A judge that finds nothing would let every client pass."""
    (problem,) = judge(log)
    assert words in problem


def test_two_jobs_of_a_flavour_without_tokens_are_told_by_the_reference() -> None:
    """Where no token exists, the operation id in the body says that both are one wish."""
    log = [
        create(token=None, flavour="none", client_ref="op_1"),
        create(None, "job_2", flavour="none", client_ref="op_1"),
    ]
    assert judge(log) == ["op_1 started 2 jobs: job_1, job_2"]


def test_a_provider_that_ignores_tokens_is_noted_and_is_no_fault_of_the_client() -> None:
    """The client did right to resend; the second job must show in its ledger, not here."""
    log = [create(personality="token_ignoring"), create(job="job_2", personality="token_ignoring")]
    found = verdict(log)
    assert found.problems == ()
    assert "the provider ignored the token" in found.notes[0]


def test_a_provider_that_reuses_an_id_is_noted() -> None:
    """Two operations with one job id are the provider's doing."""
    found = verdict([create(), create("idem_2", "job_1")])
    assert found.problems == ()
    assert "the provider reused the id" in found.notes[0]


def test_a_duplicate_that_a_person_accepted_is_noted() -> None:
    """`resolve --as resend` says in so many words that a second job may start."""
    log = [create(), create(job="job_2")]
    assert judge(log, accepted={"idem_1"}) == []
    assert "a person accepted" in verdict(log, accepted={"idem_1"}).notes[0]


def test_every_recorded_intent_allows_one_cancel() -> None:
    """A person may ask again; each wish is sent once."""
    log = [create(), cancel(), cancel()]
    assert judge(log, {"job_1": 2}) == []
    assert judge([*log, cancel()], {"job_1": 2}) == ["job_1 was sent 3 cancels for 2 intents"]


def test_a_cancel_that_was_not_taken_does_not_count() -> None:
    """A throttled or unauthorised cancel had no effect and may be sent again."""
    assert judge([create(), cancel(status=429), cancel(status=401), cancel()]) == []
