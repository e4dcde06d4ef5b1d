"""Bugs in what answers, lists and results are taken for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from opledger.rules import answers, decide, lookups, pages, requests, results, states
from opledger.rules import evidence as e
from opledger.rules.calls import Answer, Failure
from opledger.rules.model import SUCCESS_MEANS, Means, State
from opledger.store import recording
from opledger.worker import actions, collect, drive, second_job
from opledger.worker.hand import Hand
from tests.model.designs import (
    _ANY_JOB,
    _any_id,
    _error_is_no,
    _never,
    _nobody_asked,
    _nothing_settles,
    _settles_from_first,
    _status_404,
    _takes_for_granted,
    _undelivered,
    _unmapped,
    both,
    cell,
    entry,
    function,
    table,
    to,
)
from tests.planted.bug import Bug
from tests.planted.looks import seeds
from tests.planted.looks import states as worlds
from tests.planted.looks import table as coded
from tests.simulation.planted import _whosever

_LOST: Final = {"answer lost": 0.3}
_create, _status, _cancel, _means = answers.read_create, answers.read_status, answers.read_cancel, pages.means_of
_failed_read, _refused, _matches, _absent = answers._failed_read, answers._refused, lookups._matches, lookups._absent
_text_id, _refusal, _reconcile_time = pages.text_id, pages.refusal, decide._reconcile_time


def _no_answer_is_no(outcome: Any, op: Any, contract: Any, **facts: Any) -> answers.Reading:
    if isinstance(outcome, Failure):
        return answers.Reading(e.Refused(call_id=facts["call_id"], status=outcome.status, why=outcome.why))
    return _create(outcome, op, contract, **facts)


def _read_as_refused(*statuses: int) -> Any:
    def read(outcome: Any, op: Any, contract: Any, **facts: Any) -> answers.Reading:
        status = getattr(outcome, "status", None)
        if status in statuses and not isinstance(outcome, Failure):
            refused = e.Refused(call_id=facts["call_id"], status=status, answer=facts["answer"], why="it said no")
            return answers.Reading(refused)
        return _create(outcome, op, contract, **facts)

    return read


def _taken_is_no(page: Any, facts: Any, *, resend: bool) -> e.Evidence:
    """Read "taken" as a no."""
    return e.Refused(**facts, why="the name is taken")


def _redirect_is_yes(outcome: Any, op: Any, contract: Any, **facts: Any) -> answers.Reading:
    if not isinstance(outcome, Failure) and 300 <= outcome.status < 400:
        outcome = replace(outcome, status=201)
    return _create(outcome, op, contract, **facts)


def _no_grace(page: Any, op: Any, now: Any) -> Any:
    """Take a job that is not visible yet for one that is gone."""
    if page.answer.status in (403, 404):
        return "the provider no longer finds the job (status 404)", "gone", False
    return _failed_read(page, op, now)


def _cancel_refused(outcome: Any, op: Any, contract: Any, **facts: Any) -> answers.Reading:
    reading = _cancel(outcome, op, contract, **facts)
    if isinstance(reading.evidence, e.CancelAnswered) and reading.evidence.verdict == "unclear":
        return replace(reading, evidence=replace(reading.evidence, verdict="accepted"))
    return reading


def _runs_is_done(contract: Any, word: str) -> Means:
    found = _means(contract, word)
    return Means.SUCCEEDED if found is Means.RUNNING else found


def _nobody_pauses(answer: Any) -> tuple[str, bool]:
    return _refusal(answer)[0], False


def _any_text(value: Any) -> str | None:
    return str(value) if isinstance(value, float | bool) else _text_id(value)


def _no_settling(search: Any, op: Any, now: Any, facts: Any) -> e.Evidence:
    strategy = replace(search.strategy, settle=search.strategy.visibility_lag)
    return _absent(replace(search, strategy=strategy), op, now, facts)


def _without_lag(op: Any, contract: Any, *rest: Any) -> Any:
    """Look at once, whether a new job can be seen already or not."""
    ways = tuple(replace(strategy, visibility_lag=timedelta(0)) for strategy in contract.reconcile)
    return _reconcile_time(op, replace(contract, reconcile=ways), *rest)


def _one_page(*_: Any) -> None:
    """Know of no further page."""


async def _without_end(
    drive: Hand, contract: Any, search: Any, request: Any, call_id: str, *, permitted: bool = True
) -> Any:
    """Read page after page, as long as there is another one."""
    began, kept = drive.shop.clock.now(), None
    while True:
        outcome = await drive.shop.http.send(await drive.within_lease(request))
        kept = drive.keep(outcome, contract)
        page = lookups.read_page(
            outcome, drive.op, contract, search, call_id=call_id, answer=kept.sha256 if kept else None
        )
        if isinstance(page, answers.Reading):
            return page, kept
        assert isinstance(outcome, Answer)
        further = requests.next_page(contract, search.strategy, outcome, page.document, request.url)
        if further is None:
            return answers.Reading(lookups.conclude(search, drive.op, began, complete=True)), kept
        request = requests.look_up(drive.op, contract, search.strategy, further)


def _everything_matches(page: Any, search: Any, item: Any) -> bool:
    return True


def _any_age(*_: Any) -> None:
    """Read no time."""


async def _no_second_look(*_: Any, **__: Any) -> bool:
    return False


def _whose_it_is(*_: Any) -> dict[Any, Any]:
    return {}


def _fits(self: Any) -> bool:
    return False


def _counts(self: Any) -> None:
    """Count nothing."""


def _good_enough(contract: Any, document: Any, verdicts: Any, outcomes: Any, **how: Any) -> Any:
    return replace(_judge(contract, document, verdicts, outcomes, **how), ok=True)


_judge = results.judge


def _many_are_one(search: Any, op: Any, now: Any, **how: Any) -> e.Evidence:
    """Adopt the first of several jobs."""
    del search.matches[1:]
    return _conclude(search, op, now, **how)


_conclude = lookups.conclude


def _incomplete_is_whole(search: Any, op: Any, now: Any, *, complete: bool, why_incomplete: str = "") -> e.Evidence:
    return _conclude(search, op, now, complete=True)


BUGS: Final = (
    # Creates.
    Bug(
        "a lost answer is read as refused",
        (seeds("I16", faults=_LOST), coded("create"), worlds("resend")),
        function(answers, "read_create", _no_answer_is_no),
        quick=True,
    ),
    Bug(
        "a lost answer is read as not delivered",
        (worlds("blind"), seeds("I4", "I6", faults=_LOST)),
        function(answers, "_lost", _undelivered),
    ),
    Bug(
        "a 5xx to a create is read as a no",
        (coded("create"), seeds("I16", faults={"5xx after": 0.3})),
        function(answers, "_lost", _error_is_no),
        quick=True,
    ),
    Bug(
        "a 401 to a create is read as a no",
        (coded("create"), seeds("I16", faults={"401": 0.1})),
        function(answers, "read_create", _read_as_refused(401, 403)),
    ),
    Bug(
        "a 429 to a create is read as a no",
        (coded("create"), seeds("I16", faults={"429": 0.3})),
        function(answers, "read_create", _read_as_refused(429)),
    ),
    Bug(
        "a 409 is read as a no, and not looked up",
        (coded("create"),),
        function(answers, "_duplicate", _taken_is_no),
        issue="F14",
    ),
    Bug(
        "a 409 while the first request runs is read as a no",
        (seeds("I16", personalities=("lossy",), flavours=("v1", "header")), coded("create")),
        function(answers, "read_create", _read_as_refused(409)),
        issue="F14",
    ),
    Bug("a redirect is read as a yes", (coded("create"),), function(answers, "read_create", _redirect_is_yes)),
    Bug(
        "credentials that are refused pause nobody",
        (coded("create", "status", "cancel"),),
        both(*(function(module, "refusal", _nobody_pauses) for module in (answers, lookups))),
    ),
    Bug(
        "a number that is no id is taken for one",
        (seeds("I3", personalities=("hostile-bytes",), flavours=("v1", "header")),),
        both(*(function(module, "text_id", _any_text) for module in (pages, answers, lookups))),
    ),
    Bug(
        "another job under the token is taken",
        (worlds("twins"),),
        both(function(answers, "_bound", _any_id), table(_ANY_JOB)),
        issue="F13",
    ),
    Bug(
        "nobody looks for a second job after a resend",
        (seeds("I3", personalities=("ignores-token",), flavours=("v1", "batch"), faults=_LOST),),
        function(drive, "look_for_second_job", _no_second_look),
        issue="F13",
    ),
    Bug(
        "one job id stands for two operations",
        (seeds("I3", "I17", "I21", personalities=("id-reuser",), flavours=("v1", "header")),),
        function(recording, "_taken", _whose_it_is),
        issue="F13",
    ),
    Bug(
        "a replay is taken for news",
        (seeds("I13", personalities=("lossy",), flavours=("v1", "header")),),
        function(answers, "_replayed", _never),
    ),
    # Status.
    Bug(
        "a 404 to a status read means failed",
        (seeds("I16", personalities=("slow-visibility",)), coded("status", "young"), worlds("resend")),
        function(answers, "read_status", _status_404(Means.FAILED)),
        issue="F15",
        quick=True,
    ),
    Bug(
        "a job that is not visible yet counts as gone",
        (coded("young"),),
        function(answers, "_failed_read", _no_grace),
        issue="F15",
    ),
    Bug(
        "an unknown word means success",
        (worlds("resend"), seeds("I15")),
        function(answers, "means_of", _unmapped(Means.SUCCEEDED)),
    ),
    Bug(
        "an unknown word means failure",
        (worlds("resend"), seeds("I16")),
        function(answers, "means_of", _unmapped(Means.FAILED)),
    ),
    Bug(
        "the answer about another job is taken",
        (seeds("I3", personalities=("changes-id",)),),
        function(answers, "read_status", _whosever),
        issue="F13",
    ),
    Bug(
        "nobody is asked in the end",
        (seeds("I21", flavours=("none",), faults=_LOST), worlds("blind")),
        entry(decide._DECIDERS, State.CREATE_UNKNOWN, _nobody_asked),
    ),
    # Look-ups.
    Bug(
        "absent after one look",
        (
            worlds("settle"),
            seeds("I4", "I5", personalities=("slow-visibility",), flavours=("v1",), faults=_LOST, cancels=0.8),
        ),
        function(lookups, "_absent", _nothing_settles),
        quick=True,
    ),
    Bug(
        "the settle time is not waited for",
        (seeds("I4", "I5", personalities=("slow-visibility",), flavours=("v1",), faults=_LOST, cancels=0.8),),
        function(lookups, "_absent", _no_settling),
    ),
    Bug(
        "the settle time runs from the first send",
        (
            worlds("settle"),
            seeds("I4", "I5", personalities=("slow-visibility",), flavours=("v1",), faults=_LOST, cancels=0.8),
        ),
        function(lookups, "_absent", _settles_from_first),
    ),
    Bug(
        "the visibility lag is not waited for",
        (seeds("I20", flavours=("v1",), faults=_LOST, cancels=0.8),),
        function(decide, "_reconcile_time", _without_lag),
    ),
    Bug(
        "page 2 is not read",
        (seeds("I5", "I3", "I4", flavours=("v1",), faults=_LOST, cancels=0.8),),
        function(requests, "next_page", _one_page),
    ),
    Bug(
        "a list that goes round in a circle is read for ever",
        (seeds("I20", "I21", personalities=("lossy",), flavours=("v1",), cancels=1.0),),
        both(*(function(module, "read_pages", _without_end) for module in (actions, second_job))),
    ),
    Bug(
        "what is read of half a list counts as all",
        (seeds("I5", "I4", flavours=("v1",), faults=_LOST, cancels=1.0),),
        function(lookups, "conclude", _incomplete_is_whole),
    ),
    Bug(
        "the match rule is not looked at",
        (seeds("I3", flavours=("v1",), faults={"request lost": 0.5}, cancels=1.0),),
        function(lookups, "_matches", _everything_matches),
    ),
    Bug(
        "a job older than our send is adopted",
        (seeds("I3", "I5", flavours=("v1",), faults={"request lost": 0.5}, cancels=1.0),),
        function(lookups, "moment_of", _any_age),
    ),
    Bug(
        "of several jobs the first is adopted",
        (seeds("I3", personalities=("ignores-token",), flavours=("v1", "batch"), faults=_LOST),),
        function(lookups, "conclude", _many_are_one),
        issue="F13",
    ),
    Bug("an error page proves absence", (coded("get"),), function(lookups, "content_type", lambda _: "")),
    # Cancels.
    Bug(
        "the cancel's answer is trusted without a read",
        (seeds("I13", "I16", cancels=1.0), worlds("calm")),
        cell(State.CANCEL_REQUESTED, e.CancelAnswered, *to(State.CANCELLED)),
        quick=True,
    ),
    Bug(
        "an unclear answer to a cancel counts as a yes",
        (coded("cancel"),),
        function(answers, "read_cancel", _cancel_refused),
    ),
    # Results.
    Bug(
        "a result is accepted that nobody has fetched",
        (seeds("I15"), worlds("calm")),
        entry(decide._DECIDERS, State.RESULT_COLLECTING, _takes_for_granted),
    ),
    Bug(
        "a job that runs counts as done",
        (seeds("I15", "I21"), worlds("calm")),
        function(answers, "means_of", _runs_is_done),
    ),
    Bug(
        "a job that succeeded needs no result",
        (seeds("I13", "I15"), worlds("calm")),
        cell(
            State.OBSERVING, e.Observed, states.Arrow(State.SUCCEEDED, states._means(SUCCESS_MEANS)), states.Arrow(None)
        ),
    ),
    Bug(
        "a missing result is good enough",
        (seeds("I13", "I15"), worlds("calm")),
        cell(State.RESULT_COLLECTING, e.ResultMissing, *to(State.SUCCEEDED)),
    ),
    Bug(
        "the result's checksum is not compared",
        (seeds("I15"), coded("result")),
        function(results.Checker, "_check_checksum", _fits),
    ),
    Bug(
        "the result's records are not counted",
        (seeds("I15"),),
        function(results.Checker, "_check_count", _counts),
    ),
    Bug("a result that does not fit is taken all the same", (seeds("I15"),), function(collect, "judge", _good_enough)),
)
