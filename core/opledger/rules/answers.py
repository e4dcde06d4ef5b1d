"""What an answer means: from a plain answer (or the lack of one) to evidence.

An answer that was lost is never read as yes and never as no. An answer to a create is read in the order of DESIGN §6:
in flight, mismatch, duplicate, throttled, credentials, refused, success; whatever is left is *lost*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from opledger.rules import evidence as e
from opledger.rules.calls import Answer, Failure, Fate
from opledger.rules.contract import Contract
from opledger.rules.model import FINAL_MEANS, SUCCESS_MEANS, Action, Means, Operation, State
from opledger.rules.pages import (
    CREDENTIALS,
    WORD_LIMIT,
    Page,
    content_type,
    first_id,
    means_of,
    moment_of,
    open_page,
    reads_status,
    redirect_note,
    refusal,
    short,
    text_id,
    throttled,
    wait_until,
    word_of,
)
from opledger.rules.requests import got_credentials, own_url
from opledger.rules.values import MISSING

CLOCK_SKEW: Final = timedelta(minutes=2)
"""What a provider dates this much before our first send, or more, is not of our making."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Evidence, and whether the answer says that our credentials are refused (which pauses the provider)."""

    evidence: e.Evidence
    credentials: bool = False


# --- create and resend -------------------------------------------------------------------------------------------


def read_create(
    outcome: Answer | Failure, op: Operation, contract: Contract, *, call_id: str, answer: str | None, resend: bool
) -> Reading:
    """Read the answer to a create, or to its resend (whose inconclusive answers leave the create unknown)."""
    if isinstance(outcome, Failure):
        if outcome.fate is Fate.NOT_DELIVERED and not resend:
            return Reading(e.NotDelivered(call_id=call_id, action=Action.CREATE, why=outcome.why))
        return Reading(
            _lost(outcome.why, {"call_id": call_id, "status": outcome.status, "answer": answer}, resend=resend)
        )
    page = open_page(outcome, contract, op)
    idempotency = contract.create.idempotency
    in_flight = page.holds(idempotency.in_flight_when)
    mismatch = not in_flight and page.holds(idempotency.mismatch_when)
    duplicate = not (in_flight or mismatch) and page.holds(idempotency.duplicate_when)
    busy = not (in_flight or mismatch or duplicate) and throttled(page)
    facts = page.facts(call_id, answer)
    retry_at, hint = wait_until(page)
    if in_flight:
        why = "the first request under this token is still running"
        return Reading(_lost(why, facts, resend=resend, retry_at=retry_at, again=retry_at is not None))
    if mismatch:
        why = f"the provider knows token {op.idempotency_token} with another body ({short(page)})"
        return Reading(e.TokenMismatch(**facts, why=why, jobs=_ids(first_id(page, contract.create.job_id))))
    if duplicate:
        return Reading(_duplicate(page, facts, resend=resend))
    if busy:
        why = f"throttled ({hint or short(page)})"
        if resend:
            return Reading(_lost(why, facts, resend=resend, retry_at=retry_at, again=retry_at is not None))
        return Reading(e.Throttled(**facts, action=Action.CREATE, why=why, retry_at=retry_at))
    status = outcome.status
    if status in CREDENTIALS and status not in contract.create.refused:
        why, pauses = refusal(outcome)
        if resend:
            at = outcome.answered_at if outcome.renewed else None
            return Reading(_lost(why, facts, resend=resend, retry_at=at, again=outcome.renewed), credentials=pauses)
        return Reading(e.Throttled(**facts, action=Action.CREATE, why=why), credentials=pauses)
    if status in contract.create.refused and status not in contract.create.success:
        return Reading(_refused(page, facts, _error_text(page), resend=resend))
    if status in contract.create.success:
        return Reading(_success(page, call_id, answer, resend=resend))
    return Reading(_lost(redirect_note(page), facts, resend=resend, retry_at=retry_at))


def _lost(
    why: str, facts: Mapping[str, Any], *, resend: bool, retry_at: datetime | None = None, again: bool = False
) -> e.Evidence:
    """A create without a usable answer: unknown, on a resend as unknown as before. `again`: it is sent once more."""
    if resend:
        return e.Inconclusive(**facts, why=why, strategy="resend", next_strategy=not again, retry_at=retry_at)
    return e.CallLost(**facts, action=Action.CREATE, why=why, retry_at=retry_at)


def _ids(*found: str | None) -> tuple[str, ...]:
    return tuple(job for job in found if job)


def _replayed(page: Page) -> bool:
    marker = page.contract.create.idempotency.replay_marker
    value = page.pick(marker)
    return value is not MISSING and str(value).strip().lower() not in ("", "false", "0", "no")


def _error_text(page: Page) -> str:
    for pick in page.contract.status.error:
        value = page.pick(pick)
        if value is not MISSING and value is not None:
            return f"status {page.answer.status}: {word_of(value)}"
    return f"status {page.answer.status}"


def _refused(page: Page, facts: Mapping[str, Any], why: str, *, resend: bool) -> e.Evidence:
    """A definitive no. To a resend it says nothing sure of the first create, where a look-up can prove its fate."""
    if resend and any(strategy.absence_is_proof for strategy in page.contract.reconcile):
        why = f"the resend was refused ({why}); a look-up says what became of the first"
        return _lost(why, facts, resend=True, retry_at=wait_until(page)[0])
    return e.Refused(**facts, why=why, replay=_replayed(page))


def _duplicate(page: Page, facts: Mapping[str, Any], *, resend: bool) -> e.Evidence:
    """The provider says that this token or id is taken. With a job id that is our job; without one, look it up."""
    job_id = first_id(page, page.contract.create.job_id)
    if job_id is None:
        why = f"the provider says this was created before ({short(page)}); it must be looked up"
        return _lost(why, facts, resend=resend, retry_at=wait_until(page)[0])
    return _bound(page, facts, job_id, "resend" if resend else "create", replay=True)


def _success(page: Page, call_id: str, answer: str | None, *, resend: bool) -> e.Evidence:
    create = page.contract.create
    failed = page.holds(create.error_when)
    inline = not failed and page.holds(create.inline_when) and _may_be_result(page)
    facts = page.facts(call_id, answer)
    if failed:
        return _refused(page, facts, f"the answer carries an error: {_error_text(page)}", resend=resend)
    if inline:
        return e.CompletedInline(**facts)
    job_id = first_id(page, create.job_id)
    if job_id is None:
        why = f"a success answer without a job id ({short(page)})"
        return _lost(why, facts, resend=resend, retry_at=wait_until(page)[0])
    return _bound(page, facts, job_id, "resend" if resend else "create", replay=_replayed(page))


def _may_be_result(page: Page) -> bool:
    """True for JSON, and for what the contract says its results are: an error page with status 200 is no result."""
    result = page.contract.result
    if page.is_json or not page.answer.body or result is None:
        return page.is_json
    if result.content_type:
        return content_type(page) in result.content_type
    return result.format in ("csv", "jsonl", "binary") and content_type(page) != "text/html"


def _bound(page: Page, facts: Mapping[str, Any], job_id: str, how: str, *, replay: bool) -> e.Evidence:
    op, contract = page.op, page.contract
    if op.jobs and job_id not in op.jobs:
        why = f"token {op.idempotency_token} brought job {job_id}, after job {op.jobs[0]}"
        return e.UnfamiliarJobId(**facts, why=why, jobs=(*op.jobs, job_id))
    refs: dict[str, str] = {}
    notes = list(facts["notes"])
    for name, pick in contract.create.refs.items():
        value = page.pick(pick)
        if isinstance(value, str | int) and not isinstance(value, bool):
            refs[name] = str(value)
    status_url = page.pick(contract.create.status_url)
    if isinstance(status_url, str):
        url = own_url(contract, status_url, page.answer.url)
        if url is None:
            notes.append("the status URL is on another origin and is not used")
        else:
            refs["status_url"] = url
    state = page.pick(contract.create.remote_state)
    retry_at, _ = wait_until(page)
    return e.Accepted(
        **{**facts, "notes": tuple(notes)},
        job_id=job_id,
        remote_state=None if state is MISSING else word_of(state),
        refs=refs or None,
        how=how,
        replay=replay or job_id in op.jobs,
        retry_at=retry_at,
    )


# --- status ------------------------------------------------------------------------------------------------------


def read_status(
    outcome: Answer | Failure, op: Operation, contract: Contract, *, call_id: str, answer: str | None, now: datetime
) -> Reading:
    """Read a status answer. A read that failed changes nothing; another job's answer stops everything."""
    if isinstance(outcome, Failure):
        return Reading(e.ReadFailed(call_id=call_id, status=outcome.status, answer=answer, why=outcome.why))
    page = open_page(outcome, contract, op)
    status = contract.status
    means, word = by_rule(page)
    failed = None if means is not None else _failed_read(page, op, now)
    if failed is not None:
        why, code, credentials = failed
        retry_at, hint = wait_until(page)
        return Reading(
            e.ReadFailed(**page.facts(call_id, answer), why=why, code=code, retry_at=retry_at, hint=hint), credentials
        )
    if status.job_id is not None:
        raw = page.pick(status.job_id)
        found = text_id(raw)
        if found is None:
            why = "the status answer names no job id"
            return Reading(e.ReadFailed(**page.facts(call_id, answer), why=why))
        if op.remote_job_id is not None and found != op.remote_job_id:
            why = f"the status of job {op.remote_job_id} answered for job {found}"
            return Reading(
                e.IdentityChanged(**page.facts(call_id, answer), why=why, jobs=_ids(op.remote_job_id, found))
            )
    if word is None:
        words = [page.pick(pick) for pick in status.state]
        if not isinstance(page.document, Mapping) and all(found is MISSING for found in words):
            why = "the status answer has another shape than the contract says"
            return Reading(e.ReadFailed(**page.facts(call_id, answer), why=why))
        word = "/".join(map(word_of, words))
    reading = means or means_of(contract, word)
    if op.state is State.RESULT_COLLECTING and reading in FINAL_MEANS - SUCCESS_MEANS:
        why = f"the job was {op.remote_state} and is now {word}"
        return Reading(
            e.FinalStateChanged(**page.facts(call_id, answer), why=why, jobs=_ids(op.remote_job_id)),
        )
    return Reading(observed(page, call_id, answer, word, reading))


def by_rule(page: Page, **more: Any) -> tuple[Means | None, str | None]:
    """Try the contract's rules; on an answer that is no 2xx only a rule that reads the status code may speak.

    `more` are further names that conditions may speak of. No rule reads an error page: HTML says nothing about a job,
    whatever its status code.
    """
    if not page.is_json and content_type(page) == "text/html":
        return None, None
    for rule in page.contract.status.rules:
        if (page.ok or reads_status(rule.when)) and page.holds(rule.when, **more):
            states = page.contract.status.state
            word = "/".join(word_of(page.pick(pick)) for pick in states) if states and page.is_json else rule.when.text
            return rule.means, word
    return None, None


def _failed_read(page: Page, op: Operation, now: datetime) -> tuple[str, str, bool] | None:
    """Say why this answer tells nothing about the job: (why, attention code, credentials refused), or None."""
    status = page.answer.status
    contract = page.contract
    if throttled(page):
        return f"throttled ({short(page)})", "throttled", False
    young = op.accepted_at is not None and now < op.accepted_at + contract.status.not_visible_for
    if status == 410 or page.holds(contract.status.gone_when):
        return f"the provider says the job is gone ({short(page)})", "gone", False
    if status == 404 or (status == 403 and young):
        if young:
            return f"not yet visible (status {status})", "not_visible_yet", False
        return "the provider no longer finds the job (status 404)", "gone", False
    if status in CREDENTIALS:
        why, pauses = refusal(page.answer)
        return why, "credentials", pauses
    if not page.ok:
        return redirect_note(page), "read_failed", False
    if not page.is_json:
        return page.why_not_json, "read_failed", False
    return None


def observed(page: Page, call_id: str | None, answer: str | None, word: str, means: Means) -> e.Observed:
    """Return what a page says about the job, beside its state: progress, errors, when to look again."""
    status = page.contract.status
    progress: dict[str, Any] = {}
    for name, pick in status.progress.items():
        value = page.pick(pick)
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            progress[name] = value if not isinstance(value, str) else value[:WORD_LIMIT]
    errors = [
        word_of(value)
        for value in (page.pick(pick) for pick in status.error)
        if value is not MISSING and value is not None
    ]
    retry_at, hint = (None, None) if means in FINAL_MEANS else wait_until(page)
    updated_at = moment_of(page.pick(status.updated_at), status.updated_at_unit)
    sent = page.op.first_sent_at
    if means in FINAL_MEANS and updated_at is not None and sent is not None and updated_at < sent - CLOCK_SKEW:
        page.notes.append("it ended before our first send: a replay")
    return e.Observed(
        **page.facts(call_id, answer),
        job_id=page.op.remote_job_id,
        remote_state=word,
        means=means,
        progress=progress or None,
        updated_at=updated_at,
        error=": ".join(errors) if errors else None,
        retry_at=retry_at,
        hint=hint,
    )


# --- cancel ------------------------------------------------------------------------------------------------------


def read_cancel(
    outcome: Answer | Failure, op: Operation, contract: Contract, *, call_id: str, answer: str | None
) -> Reading:
    """Read the answer to a cancel. It never says how the job ended: only a status read does."""
    if isinstance(outcome, Failure):
        if outcome.fate is Fate.NOT_DELIVERED:
            return Reading(e.NotDelivered(call_id=call_id, action=Action.CANCEL, why=outcome.why))
        return Reading(
            e.CallLost(call_id=call_id, status=outcome.status, answer=answer, action=Action.CANCEL, why=outcome.why)
        )
    page = open_page(outcome, contract, op)
    how = contract.cancel
    assert how is not None
    status = outcome.status
    finished = page.holds(how.already_finished_when)
    busy = not finished and throttled(page)
    noted = len(page.notes)
    accepted = status in how.success and (how.accepted_when is None or page.holds(how.accepted_when))
    unread = len(page.notes) > noted  # what cannot be read says no more "no" than "yes"
    retry_at, _ = wait_until(page)
    facts = page.facts(call_id, answer)
    said = {**facts, "retry_at": retry_at}  # nothing is asked before, whatever the answer means
    if finished:
        return Reading(e.CancelAnswered(**said, verdict="already_finished", why=short(page)))
    if busy and how.idempotent:
        return Reading(e.Throttled(**said, action=Action.CANCEL, why=f"throttled ({short(page)})"))
    if status in CREDENTIALS:
        why, pauses = refusal(outcome)
        if how.idempotent and not pauses:
            return Reading(e.Throttled(**facts, action=Action.CANCEL, why=why))
        return Reading(e.CancelAnswered(**facts, verdict="refused", why=why), credentials=pauses)
    if status in how.success:
        verdict = "accepted" if accepted else "unclear" if unread else "refused"
        return Reading(e.CancelAnswered(**said, verdict=verdict, why=short(page)))
    if 400 <= status < 500:
        verdict = "unclear" if status in (404, 409, 410) else "refused"
        return Reading(e.CancelAnswered(**said, verdict=verdict, why=_error_text(page)))
    return Reading(e.CallLost(**said, action=Action.CANCEL, why=redirect_note(page)))


# --- results -----------------------------------------------------------------------------------------------------


def read_missing_result(
    outcome: Answer | Failure, op: Operation, contract: Contract, *, call_id: str, answer: str | None
) -> Reading:
    """Read an answer to a result read that brought no result: gone for good, or to be tried again."""
    result = contract.result
    assert result is not None
    if isinstance(outcome, Failure):
        return Reading(
            e.ReadFailed(
                call_id=call_id,
                status=outcome.status,
                answer=answer,
                action=Action.COLLECT,
                why=outcome.why,
                code="result",
            )
        )
    page = open_page(outcome, contract, op)
    retry_at, hint = wait_until(page)
    status = outcome.status
    # A host that got no credentials cannot have refused them.
    credentials = status == 401 and not outcome.renewed and got_credentials(contract, outcome.url)
    waits = (
        page.holds(result.not_ready_when) if result.not_ready_when is not None else status in (202, 404, 409, 425)
    ) or (page.ok and not outcome.body)
    facts = page.facts(call_id, answer)
    if status == 410 and not waits:
        return Reading(e.ResultMissing(**facts, why="the provider says the result is gone (status 410)"))
    # Whether that is JSON is no matter: a result need not be any, and an error page of a file server is none.
    said = redirect_note(page) if 300 <= status < 400 else "the provider did not hand the result out"
    why = "the result is not ready yet" if waits else said
    if status == 206 and not waits:
        why = "the provider sent a part of the result where nobody asked for a part; it was not taken"
    code = "not_ready" if waits else "result"
    return Reading(
        e.ReadFailed(
            **facts, action=Action.COLLECT, why=f"{why} (status {status})", code=code, retry_at=retry_at, hint=hint
        ),
        credentials,
    )
