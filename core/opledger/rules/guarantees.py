"""What a contract lets us promise, and every gap, in the words that an approver reads before approving."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from opledger.rules import webhooks
from opledger.rules.calls import origin_of
from opledger.rules.contract import Contract, Guarantees, Result, Strategy
from opledger.rules.durations import format_duration, write_duration
from opledger.rules.files.checks import compares_reference
from opledger.rules.model import FAILURE_MEANS, Means
from opledger.rules.requests import result_origin, secret_fields

Grade = Literal["server_enforced", "bounded", "two_phase", "lookup_strong", "lookup_weak", "none"]

_OUR_OWN_ID: Final = ("client_id", "put_resource")  # the token is the job's identity, so it lasts as long as the job
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_DAY: Final = timedelta(days=1)

_GRADES: Final[dict[Grade, str]] = {
    "server_enforced": "yes, enforced by the provider for as long as it keeps the job's record",
    "bounded": "yes, enforced by the provider for a limited time",
    "two_phase": "yes, because the first call starts nothing",
    "lookup_strong": "by look-up: the provider enforces nothing, but the job can be found by our own reference",
    "lookup_weak": "hardly: the provider enforces nothing, and a look-up finds jobs that may not be ours",
    "none": "no: the provider enforces nothing and cannot be asked",
}


def guarantees(contract: Contract) -> Guarantees:
    """Return the guarantee report of a contract."""
    return Guarantees(
        create=_create(contract),
        cancel=_cancel(contract),
        result=_result(contract),
        webhooks=_webhooks(contract),
        gaps=(*_create_gaps(contract), *_running_gaps(contract), *_result_gaps(contract), *_other_gaps(contract)),
    )


def at_most_once(contract: Contract) -> Grade:
    """Say how far the provider lets us show that one wish makes at most one job."""
    idempotency = contract.create.idempotency
    if idempotency.mechanism != "none":
        if idempotency.memory is not None:
            return "bounded"
        if idempotency.while_record_exists or idempotency.mechanism in _OUR_OWN_ID:
            return "server_enforced"
        if idempotency.mechanism == "unique_name":
            return "bounded"
    strengths = {strength(strategy) for strategy in contract.reconcile}
    return "lookup_strong" if "strong" in strengths else "lookup_weak" if "weak" in strengths else "none"


def strength(strategy: Strategy) -> Literal["strong", "weak"] | None:
    """Say how much a look-up that finds one job proves: strong where it goes by our own reference. None: no look-up."""
    if strategy.strategy == "resend":
        return None
    if strategy.strategy == "get" or (strategy.strategy == "list" and compares_reference(strategy.match)):
        return "strong"
    return "weak"


def _create(contract: Contract) -> dict[str, Any]:
    idempotency = contract.create.idempotency
    return {
        "at_most_once": at_most_once(contract),
        "for": None if idempotency.memory is None else span(idempotency.memory),
        "conditions": _conditions(contract),
        "lost_answer": _lost_answer(contract),
        "mechanism": idempotency.mechanism,
        "billable": contract.safety.billable,
    }


def _conditions(contract: Contract) -> str:
    idempotency = contract.create.idempotency
    grade = at_most_once(contract)
    if grade == "server_enforced":
        return "The job's record at the provider must not be deleted while the operation is open."
    if grade == "bounded" and idempotency.memory is None:
        return "Holds as long as a job with our name exists at the provider; nothing is resent after a lost answer."
    if grade == "bounded":
        window = contract.resend_window
        last = (
            "nothing is resent"
            if window is None
            else f"nothing is resent later than {format_duration(window)} after it"
        )
        return f"The provider knows a token for {span(idempotency.memory or _DAY)} from the first send; {last}."
    if grade == "lookup_strong":
        return "After a lost answer the provider is asked for a job with our reference before anything else is done."
    if grade == "lookup_weak":
        return "A job that a look-up finds may be somebody else's; a person should compare it."
    return "Cannot be guaranteed."


def _lost_answer(contract: Contract) -> str:
    """Say what a create leads to whose answer was lost."""
    steps: list[str] = []
    for strategy in contract.reconcile:
        if strategy.strategy == "resend":
            window = format_duration(contract.resend_window or timedelta(0))
            kept = contract.create.idempotency.while_record_exists
            until = "" if kept else f", until {window} after the first send"
            steps.append(f"the same request is sent again under the same token{until}")
        elif strategy.strategy == "get":
            steps.append("the job is fetched by our own id")
        elif strategy.strategy == "list":
            steps.append("the provider's list of jobs is searched")
        else:
            steps.append("the provider's current job is looked at")
    if not steps:
        return "A person must decide whether the job exists; nothing is sent again by itself."
    return f"First {', then '.join(steps)}. If that settles nothing until the create deadline, a person must decide."


def _cancel(contract: Contract) -> dict[str, Any]:
    cancel = contract.cancel
    if cancel is None:
        return {"supported": False, "idempotent": None, "destroys": [], "leaves": None, "confirmed_by": None}
    confirmed = Means.CANCELLED in _readings(contract) and "record" not in cancel.destroys
    return {
        "supported": True,
        "idempotent": cancel.idempotent,
        "destroys": list(cancel.destroys),
        "leaves": cancel.leaves,
        "confirmed_by": f"{_look(contract)} that says cancelled" if confirmed else None,
    }


def _result(contract: Contract) -> dict[str, Any]:
    result = contract.result
    return {
        "where": _where(result, "delivery" if contract.status.by_delivery else "status answer"),
        "available_for": None if result is None or result.available_for is None else span(result.available_for),
        "checks": [] if result is None else list(_checks(result)),
        "strict": result is not None and result.strict,
        "max_size": None if result is None else result.max_size,
        "credentials": _result_credentials(contract),
        "hosts": [urlsplit(contract.base_url).netloc, *contract.result_hosts] if result is not None else [],
    }


def _result_credentials(contract: Contract) -> str | None:
    """Say with which credentials a result is read, and where they go; None: with none."""
    result, origin = contract.result, result_origin(contract)
    if result is None or result.inline is not None:
        return None
    if origin is not None:
        return f"its own ({result.credentials.kind}), to {origin} only"
    if contract.auth.kind == "none" or result.auth == "none":
        return None
    return f"those of the other calls ({contract.auth.kind}), to {origin_of(contract.base_url)} only"


def _webhooks(contract: Contract) -> dict[str, Any]:
    webhook = contract.webhook
    if webhook is None:
        return {"supported": False, "verifiable": False, "scheme": "none"}
    return {
        "supported": True,
        "verifiable": webhooks.signs_body(webhook),
        "scheme": webhook.scheme,
        "replays": "refused by age" if webhooks.signs_time(webhook) else "known for 7 days",
        "told_apart_by": "the signed event id" if webhooks.signs_event_id(webhook) else "the digest of the body",
        "matched_by": [name for name in ("token", "job_id") if getattr(webhook, name) is not None],
        "final": "the delivery itself, which is lower-grade evidence"
        if contract.status.by_delivery
        else "a status read",
    }


def _look(contract: Contract) -> str:
    return "a delivery" if contract.status.by_delivery else "a status read"


def _where(result: Result | None, told: str) -> str:
    if result is None:
        return "nowhere: there is no result to fetch"
    if result.inline is not None:
        return f"in the {told} at {result.inline.text or 'its root'}"
    if result.url is not None:
        return f"at the URL that the {told} names at {result.url.text}"
    return f"at {result.path.text if result.path else '?'}"


def _checks(result: Result) -> Iterator[str]:
    if result.content_type:
        yield f"content type {' or '.join(result.content_type)}"
    if result.size is not None:
        yield f"size from {result.size.text}"
    if result.checksum is not None:
        yield f"checksum {result.checksum_algorithm or 'named by its value'} from {result.checksum.text}"
    if result.count is not None:
        yield f"record count from {result.count.text}"
    if result.format is not None and result.format != "binary":
        yield f"parses as {result.format}"
    if result.schema is not None:
        yield f"fits the JSON Schema {result.schema.name}"
    if result.error_row_when is not None:
        yield f"no record with {result.error_row_when.text}"
    if result.items is not None:
        keys = "the keys that were sent" if result.items.sent is not None else "no two with one key"
        yield f"the outcome of each item by {result.items.id.text}, {keys}"


def _readings(contract: Contract) -> set[Means]:
    return {*contract.status.words.values(), *(rule.means for rule in contract.status.rules)}


def _create_gaps(contract: Contract) -> Iterator[str]:
    idempotency = contract.create.idempotency
    look_ups = [strategy for strategy in contract.reconcile if strategy.strategy != "resend"]
    if idempotency.mechanism == "none":
        yield "The provider takes no idempotency token: a create that is sent twice makes two jobs."
    elif idempotency.memory is None and not idempotency.while_record_exists:
        yield "How long the provider knows a token is unknown: nothing is ever resent under it."
    resends = len(look_ups) < len(contract.reconcile)
    if not look_ups and resends:
        yield "There is no look-up: only a resend under the same token can find the job, and later only a person."
    elif not look_ups:
        yield "There is no look-up: after a lost answer only a person can find out whether the job exists."
    elif not any(strategy.absence_is_proof for strategy in look_ups):
        settles = "a resend under the same token" if resends else "a person"
        yield f"A look-up that finds nothing proves nothing: only {settles} can settle it then."
    if any(strength(strategy) == "weak" for strategy in look_ups):
        yield "A look-up does not go by our own reference: what it finds may be somebody else's job."
    if idempotency.mechanism != "none" and idempotency.mismatch_when is None:
        yield "The contract does not say how the provider reports a token that it knows with another body."
    if idempotency.mechanism != "none" and idempotency.same_body is None:
        yield "The contract does not say what the provider answers to the same request under the same token."
    window = contract.resend_window
    if window is not None and window < contract.deadlines.create:
        yield f"The last resend is possible {format_duration(window)} after the first send, before the create deadline."
    if contract.safety.billable:
        yield "Jobs are billed: one that is created twice, or cancelled late, is paid for."


def _running_gaps(contract: Contract) -> Iterator[str]:
    readings = _readings(contract)
    cancel = contract.cancel
    if cancel is None:
        yield "There is no cancel: a job that was accepted cannot be stopped from here."
    else:
        if _cancel(contract)["confirmed_by"] is None:
            yield f"A cancellation cannot be confirmed: no {_look(contract)[2:]} says cancelled after it."
        if not cancel.idempotent or contract.status.by_delivery:
            yield (
                f"A cancel whose answer was lost is not sent again: only {_look(contract)} can show whether it worked."
            )
        if cancel.destroys:
            yield f"A cancel destroys {' and '.join(f'the {what}' for what in cancel.destroys)}."
    if contract.status.job_id is None and contract.status.path is not None:
        yield "Status answers do not name the job, so an answer about another job is not noticed."
    if not readings & FAILURE_MEANS:
        until = "waited for" if contract.status.by_delivery else "polled"
        yield f"No word of the provider means failed: a job that fails is {until} until its deadline."
    if contract.status.by_delivery:
        yield from _unasked_gaps(contract)
    if contract.poll.max_silence is not None:
        yield f"The provider abandons a job that nobody polls for {span(contract.poll.max_silence)}."


def _unasked_gaps(contract: Contract) -> Iterator[str]:
    yield (
        "There is no status read: how a job goes is believed as its webhooks tell it. That is lower-grade evidence, "
        "and nobody can ask again."
    )
    yield (
        f"A delivery that is lost is missed for good: the result deadline ({span(contract.deadlines.result)}) ends the "
        "wait, and then a person must look."
    )
    if contract.webhook is not None and contract.webhook.job_id is None:
        yield "Deliveries do not name the job, so one about another job is not noticed."
    if contract.result is not None and contract.result.url is not None:
        yield "A link to the result with a signature in it is a secret and is not kept: such a result cannot be read."


def _result_gaps(contract: Contract) -> Iterator[str]:
    result = contract.result
    if result is None:
        yield f"No result is fetched: success rests on {_look(contract).replace('a ', 'the ')} alone."
        return
    if result.inline is not None:
        told = "delivery" if contract.status.by_delivery else "status answer"
        yield f"The result is part of the {told}: nothing but its presence is checked."
        return
    if result.checksum is None:
        yield "The result has no checksum: damage on the way is seen only by size, count or shape."
    if result.checksum is None and result.size is None and result.count is None:
        yield "Neither size nor count of the result is known beforehand: a cut result may look whole."
    if not result.strict and (result.checksum or result.size or result.count):
        yield "A checksum, size or count that is missing in an answer is noted, and the result still accepted."
    if result.single_use:
        yield "The result can be read only once: where that read is lost, so is the result."
    if result.items is not None and result.items.sent is None:
        yield "Which items were sent is not known: one that the result leaves out is noticed by the total at most."
    if result.available_for is None:
        yield "How long the result can be fetched is unknown."
    if not contract.result_hosts:
        yield "A result on another host is not read, and a redirect is not followed: result_hosts is empty."


def _other_gaps(contract: Contract) -> Iterator[str]:
    yield from _webhook_gaps(contract)
    parts = urlsplit(contract.base_url)
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        yield "base_url is plain http: anybody on the way can read and change what is said."
    if "query" in (contract.auth.kind, None if contract.result is None else contract.result.credentials.kind):
        yield "The credential travels in the URL, where proxies and servers log it."
    if secret_fields(contract):
        yield "A secret stands in the create's body: once it is rotated, a resend has another body than the first send."
    if contract.trace_header is None:
        yield "The provider takes no trace id: its logs can be searched only by job id."
    if contract.verified_on is None:
        yield "The contract does not say when somebody last checked it against the provider."


def _webhook_gaps(contract: Contract) -> Iterator[str]:
    webhook, again = contract.webhook, "is read again" if contract.status.by_delivery else "leads to another read"
    if webhook is None:
        yield "There are no webhooks: a change is seen at the next poll."
        return
    if not webhooks.signs_body(webhook):
        yield "Webhooks are not signed: a header shows who sends them, and nothing that is in them is proven."
    elif not webhooks.signs_time(webhook):
        yield f"Webhooks carry no signed time: a replay more than 7 days later {again}."
    if not webhooks.signs_event_id(webhook):
        yield "Webhooks carry no signed event id: two events with the same body count as one."
    if webhook.token is None:
        yield "Webhooks do not carry our reference: one that comes before the job id is known waits for it."


def span(duration: timedelta) -> str:
    """Write a duration as contracts do, a day as 24h; one that has no exact form as people say it."""
    if duration < 2 * _DAY and duration % timedelta(hours=1) == timedelta(0) and duration:
        return f"{duration // timedelta(hours=1)}h"
    if duration % timedelta(milliseconds=1):
        return format_duration(duration)
    return write_duration(duration)


def report_text(contract: Contract) -> str:
    """Write the guarantee report for people, as plain text."""
    report = guarantees(contract)
    cancel, result = report.cancel, report.result
    lines = [
        f"{contract.title or contract.name} ({contract.name}, version {contract.contract_version})",
        f"  {contract.create.method} {contract.base_url}{contract.create.path.text}",
        "",
        f"At most one job?    {_GRADES[at_most_once(contract)]}"
        + (f" ({report.create['for']})" if report.create["for"] else ""),
        f"                    {report.create['conditions']}",
        f"A lost answer?      {report.create['lost_answer']}",
        f"Cancel?             {cancel_line(cancel)}",
    ]
    if cancel["leaves"]:
        lines.append(f"                    It leaves: {cancel['leaves']}")
    lines.append(
        f"Result?             {result['where']}"
        + (f", for {result['available_for']}" if result["available_for"] else "")
    )
    if result["credentials"]:
        lines.append(f"                    credentials: {result['credentials']}")
    if result["checks"]:
        lines.append(f"                    checked: {', '.join(result['checks'])}")
    lines += [f"Webhooks?           {_webhook_line(report.webhooks)}", "", "Gaps" if report.gaps else "No gaps"]
    lines += [f"  - {gap}" for gap in report.gaps]
    return "\n".join(lines) + "\n"


def _webhook_line(told: Mapping[str, Any]) -> str:
    if not told["supported"]:
        return "no"
    proven = "verified" if told["verifiable"] else "the sender is known, the content is not proven"
    if told["final"] != "a status read":
        return f"yes, {told['scheme']}, {proven}; there is no status read, so each is itself the (lower-grade) evidence"
    return f"yes, {told['scheme']}, {proven}; each only brings the next status read forward"


def cancel_line(cancel: Mapping[str, Any]) -> str:
    """Say in a line what the provider promises about cancelling."""
    if not cancel["supported"]:
        return "no"
    confirmed = f"confirmed by {cancel['confirmed_by']}" if cancel["confirmed_by"] else "cannot be confirmed"
    again = "may be repeated" if cancel["idempotent"] else "is sent once per intent"
    destroys = f"; destroys {', '.join(cancel['destroys'])}" if cancel["destroys"] else ""
    return f"yes, {confirmed}; {again}{destroys}"
