"""The rows of the operation page: what they say, how they fold, and that no byte of an answer is changed."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from typing import Any

import pytest

from opledger.rules.explain import Explanation
from opledger.rules.holdups import Blocked
from opledger.rules.journal import Finding
from opledger.rules.model import (
    Attention,
    ItemSummary,
    Lease,
    Means,
    Operation,
    Plan,
    State,
    StoredResult,
)
from opledger.rules.plain import clean
from opledger.rules.shapes import Event
from opledger_console.pages import calls, conflict, events, head, observations, papers, rows, timeline
from tests.core.rules.operations import NOON, operation

SECOND = timedelta(seconds=1)


def event(seq: int, kind: str, to: str | None = None, *, at: datetime | None = None, **data: Any) -> Event:
    """One event; each a second after the one before."""
    return Event(
        seq=seq,
        at=at or NOON + seq * SECOND,
        actor="worker-1",
        actor_kind="worker",
        kind=kind,
        from_state=None,
        to_state=to,
        cause="call:call_1",
        reason=None,
        remote_job_id=None,
        data=data,
        prev_hash="0" * 64,
        hash=f"{seq:064x}",
    )


def read(seq: int, done: float | None = None, word: str = "running", **more: Any) -> Event:
    """A status read that changed nothing."""
    progress: dict[str, Any] = {} if done is None else {"progress": {"completed": done, "total": 10}}
    return event(seq, "Observed", remote_state=word, means="running", **progress, **more)


def texts(found: Any) -> list[str]:
    """The rows as plain text."""
    return [" ".join(text for text, _, _ in one.cells) for one in found]


STORY = (
    event(1, "Submitted", "create_pending", requested_by="agent-1", expectation="ten rows"),
    event(2, "CallSent", call_id="call_1", action="create", attempt=1, method="POST", url="https://a.example/jobs"),
    event(3, "CallLost", "create_unknown", call_id="call_1", why="reset"),
    event(4, "Accepted", "accepted", call_id="call_2", job_id="job_7", how="get", status=200, request_id="req_1"),
    *(read(seq, seq - 4) for seq in range(5, 11)),
    event(11, "Observed", "result_collecting", remote_state="done", means="succeeded"),
)


# --- timeline ----------------------------------------------------------------------------------------------------


def test_a_run_of_observations_is_one_line() -> None:
    """Three thousand polls must not hide the three events that matter."""
    found = texts(timeline.rows(STORY, (), 120))
    assert sum("observed" in text for text in found) == 1
    assert "observed 6 times over 5s, running 1/10 … 6/10" in "\n".join(found)


def test_an_opened_run_shows_every_read() -> None:
    """What is folded is not gone, and its line stays as the handle that closes it."""
    found = timeline.rows(STORY, {("run", 5)}, 120)
    assert [one.seq for one in found if one.opens is not None and one.opens[0] == "event"] == list(range(1, 12))
    assert any(one.opens == ("run", 5) for one in found)


def test_a_run_ends_where_something_else_happened() -> None:
    """A failed read between two runs is told apart, and a change of state never disappears in a run."""
    found = texts(timeline.rows((read(1), read(2), event(3, "ReadFailed", why="502"), read(4), read(5)), (), 120))
    assert [("2 times" in text, "502" in text) for text in found[1:]] == [(True, False), (False, True), (True, False)]


def test_ambiguous_hops_are_drawn_differently() -> None:
    """Where nobody knows what runs the line is broken, whatever the colours of the terminal."""
    hops = {
        state: timeline.rows((event(1, "CallLost", state), event(2, "Noted", text="x")), (), 120)
        for state in ("create_unknown", "reconciliation", "contract_violation", "cancellation_unconfirmed", "observing")
    }
    broken = {state: ("◌" in texts(found)[1], "┊" in texts(found)[2]) for state, found in hops.items()}
    assert broken.pop("observing") == (False, False)
    assert set(broken.values()) == {(True, True)}


def test_a_clock_that_ran_back_is_marked_and_never_a_negative_time() -> None:
    """Two machines disagree about the time: the page says so and counts no minus seconds."""
    late = (event(1, "Submitted", "create_pending"), event(2, "Noted", at=NOON - SECOND, text="x"))
    found = timeline.rows(late, {("event", 2)}, 120)
    assert ("skew", "warn", 6) in found[2].cells
    assert "clock is behind" in "\n".join(texts(found))
    assert not any("+-" in text for text in texts(found))


def test_a_new_day_has_a_line() -> None:
    """A job of three days is not read as one of three hours."""
    found = texts(
        timeline.rows((event(1, "Noted"), event(2, "Accepted", "accepted", at=NOON + timedelta(days=2))), (), 99)
    )
    assert [text for text in found if text.startswith("2026-")] == ["2026-11-29 Sun", "2026-12-01 Tue"]


def test_an_opened_event_tells_everything() -> None:
    """Who, because of what, every value of its data, and its hash."""
    text = "\n".join(texts(timeline.rows(STORY[:4], {("event", 4)}, 120)))
    for words in ("worker-1 (worker)", "call:call_1", "job_7", "req_1", "200", f"{4:064x}"):
        assert words in text


def test_an_opened_event_says_where_its_actor_was() -> None:
    """Its host and its process; and of an approval, that it is signed."""
    there = dataclasses.replace(event(1, "Approved", "create_pending"), host="desk-1", process="41@20261129T142200Z")
    text = "\n".join(texts(timeline.rows([there], {("event", 1)}, 120)))
    assert "worker-1 (worker) on desk-1, process 41@20261129T142200Z" in text
    assert "desk-1" not in "\n".join(texts(timeline.rows([there], (), 120)))
    signed = dataclasses.replace(there, data={"signature": "U1NI"})
    for one, words in ((there, "approved by worker-1:"), (signed, "approved by worker-1 (signed):")):
        assert words in "\n".join(texts(papers.approvals(operation(), [one], (), {}, 120)))


def test_an_event_that_cannot_be_read_says_so() -> None:
    """A damaged journal is shown, not hidden, and ends nothing."""
    damaged = dataclasses.replace(event(1, "Submitted", "create_pending"), data=None)
    for found in (
        timeline.rows([damaged], {("event", 1)}, 80),
        calls.rows([damaged], (), 80, {}, {}),
        observations.rows([damaged], (), 80),
        papers.approvals(operation(), [damaged], {("event", 1)}, {}, 80),
        papers.raw(operation(), [damaged], {("event", 1)}, (), 80),
    ):
        assert found
    assert "cannot be read" in "\n".join(texts(timeline.rows([damaged], (), 80)))


@pytest.mark.parametrize("value", [None, 7, [], {}, "x", True, 1e300, [None], {"completed": [], "total": 0}])
def test_data_of_the_wrong_shape_breaks_no_page(value: Any) -> None:
    """The bytes of a journal that somebody has changed may hold anything."""
    names = (
        "progress",
        "jobs",
        "notes",
        "status",
        "answer",
        "call_id",
        "why",
        "remote_state",
        "means",
        "shown",
        "action",
    )
    for kind in (
        "Observed",
        "UnfamiliarJobId",
        "CallSent",
        "Approved",
        "Decided",
        "Accepted",
        "Submitted",
        "ReadFailed",
    ):
        story = [event(seq, kind, **dict.fromkeys(names, value)) for seq in (1, 2, 3)]
        opened = {(sort, seq) for sort in ("event", "run", "call") for seq in (1, 2, 3)}
        assert timeline.rows(story, opened, 80)
        assert calls.rows(story, opened, 80, {}, {})
        assert observations.rows(story, opened, 80)
        assert papers.approvals(operation(), story, opened, {}, 80)


# --- calls -------------------------------------------------------------------------------------------------------


def test_a_call_shows_its_permit_answer_and_time() -> None:
    """What support asks for first: which call, when, how long, which status and which id."""
    story = (STORY[1], event(3, "Accepted", "accepted", call_id="call_1", job_id="j", status=201, request_id="req_9"))
    line, *_ = texts(calls.rows(story, (), 120, {}, {}))[1:]
    for words in ("create", " 1s ", "201", "req_9", "POST https://a.example/jobs"):
        assert words in line


def test_a_permit_without_an_answer_is_no_success() -> None:
    """The worker died after sending: nobody knows whether it arrived."""
    text = "\n".join(texts(calls.rows(STORY[:2], {("call", 2)}, 120, {}, {})))
    assert "NO ANSWER" in text
    assert "it may have arrived, and it may not" in text


def test_an_opened_call_shows_the_answer_as_it_came() -> None:
    """Every digit of a large number, and the escapes that the provider chose."""
    body = '{"id":12345678901234567890,"rate":1.10,"name":"\\u00e9"}'
    story = (event(1, "Observed", "observing", answer="ab", status=200, call_id="c"),)
    found = calls.rows(story, {("call", 1)}, 120, {"ab": calls.Kept(body, "application/json", len(body))}, {})
    text = "\n".join(texts(found))
    for words in ("12345678901234567890", "1.10", "\\u00e9"):
        assert words in text


def test_at_most_64_kilobytes_of_an_answer_are_shown() -> None:
    """A body of megabytes costs what its first part costs, and says that there is more."""
    found = list(rows.body_rows("x" * 300_000, 100, size=4_300_000))
    assert texts(found)[0] == "first 64 KB of 4.1 MB"
    assert sum(len(text) for text in texts(found)[1:]) < 70_000


def test_a_body_that_was_cut_when_it_was_kept_says_so() -> None:
    """What is missing was never stored, and no file has it."""
    assert texts(rows.body_rows("abc", 100, size=2048))[0] == "first 3 B of 2 KB; no more is kept"


def test_laying_out_changes_no_token() -> None:
    """Only blanks between the tokens come and go."""
    text = '{"b":[1,{"a":1.0e5}],"a":"x,{}[]: \\" y","e":[],"o":{}, "n":null}'
    laid = rows.laid_out(text)
    assert laid.count("\n") == 11
    assert "".join(rows._TOKENS.findall(laid)) == "".join(rows._TOKENS.findall(text))
    assert '"e": []' in laid
    assert rows.laid_out("not { json") == "not { json"


# --- observations ------------------------------------------------------------------------------------------------


def test_progress_is_plotted_from_nothing_to_all() -> None:
    """The left end is empty, the right end as high as the share that is done."""
    found = observations.plot([read(1, 0), read(2, 5), read(3, 10)], 40)
    top, middle, bottom, _ = (one.cells[1][0] for one in found)
    assert (top[0], middle[0], bottom[0]) == (" ", " ", " ")
    assert (top[-1], middle[-1], bottom[-1]) == ("█", "█", "█")
    half = len(bottom) // 2 + 1
    assert (top[half], middle[half], bottom[half]) == (" ", "▄", "█")


def test_without_numbers_there_is_no_plot() -> None:
    """A provider that states no progress gets no flat line that looks like none was made."""
    assert observations.plot([read(1), read(2)], 80) == ()


def test_the_polls_are_summed_up() -> None:
    """Whether somebody polls too often is seen without counting."""
    reads = [read(1), read(2), event(9, "ReadFailed", why="502")]
    assert observations.summary(reads) == "read 3 times; every 1s … 7s, median 7s; 1 told nothing"


# --- head --------------------------------------------------------------------------------------------------------


def drawn(op: Operation, now: datetime = NOON, *, height: int = 20, width: int = 120, **more: Any) -> str:
    """The head as text."""
    facts: dict[str, Any] = {"why": "Because.", "evidence": (), "next": op.next, "blocked_by": None, "choices": ()}
    found = head.Head(op, Explanation(op, **{**facts, **more}), None, (("x", "cancel"),))
    return "\n".join(texts(head.rows(found, now, width, height)))


def test_the_head_says_all_that_is_asked_at_night() -> None:
    """Both states, what is next, who holds it, how long there is, and what one may do."""
    op = operation(
        remote_job_id="job_7",
        remote_state="WORKING",
        remote_means=Means.RUNNING,
        next=Plan("observe", NOON + 12 * SECOND, "Retry-After: 20"),
        lease=Lease("w-1", 3, NOON + 20 * SECOND),
        result_timeout=timedelta(hours=4),
        result_deadline=NOON + timedelta(hours=1),
        attention=Attention("poll_failing", NOON - timedelta(minutes=7), "it failed"),
        acknowledged_by="bo",
        acknowledged_until=NOON + timedelta(minutes=30),
    )
    text = drawn(op, blocked_by=Blocked("no_worker", "no worker is alive"))
    for words in (
        "observing", "WORKING (means running)", "job job_7", "observe in 12s: Retry-After: 20", "no worker is alive",
        "w-1 holds it (epoch 3), the lease lapses in 20s", "75%, 60m left", "taken by bo, 30m left", "x cancel",
        op.request_fingerprint[-6:], op.trace_id,
    ):  # fmt: skip
        assert words in text, words


def test_a_head_of_two_lines_keeps_what_matters_most() -> None:
    """In ten lines of terminal the state and what comes next are still there."""
    text = drawn(operation(next=Plan("observe", NOON, "x"), last_error="e"), height=2)
    assert text.splitlines()[0].startswith("here")
    assert text.splitlines()[1].startswith("next")


def test_what_has_lapsed_is_never_shown_as_time_left() -> None:
    """A lease, a deadline and an acknowledgement that are over say so."""
    op = operation(
        lease=Lease("w-1", 3, NOON - 5 * SECOND),
        result_deadline=NOON - 5 * SECOND,
        attention=Attention("x", NOON, "y"),
        acknowledged_by="bo",
        acknowledged_until=NOON - SECOND,
    )
    text = drawn(op)
    for words in ("the lease lapsed 5s ago", "100%, passed 5s ago", "bo took it, and that has lapsed"):
        assert words in text


@pytest.mark.parametrize(("share", "shown"), [(0, "░" * 10), (0.999, "█" * 9 + "░"), (1, "█" * 10), (2, "█" * 10)])
def test_a_bar_is_full_only_when_the_time_is_over(share: float, shown: str) -> None:
    """Nine tenths and a second before the end must not look the same as the end."""
    assert head.bar(share) == shown


def test_an_operation_that_has_ended_has_no_deadline() -> None:
    """Its timers stand still; a bar that fills would mislead."""
    assert head.deadlines(operation(State.SUCCEEDED, result_deadline=NOON)) == ()


def test_a_record_whose_contract_is_gone_is_shown_all_the_same() -> None:
    """And says why it cannot be explained."""
    op = operation()
    text = "\n".join(texts(head.rows(head.Head(op, None, "the contract is not in the ledger", ()), NOON, 120, 20)))
    assert "the contract is not in the ledger" in text
    assert "observing" in text


# --- conflict ----------------------------------------------------------------------------------------------------

ANSWERS = (("first", '{"id":"job_7","n":1,"same":true}'), ("second", '{"id":"job_8","n":1.0,"same":true,"more":0}'))


def test_places_that_differ_are_marked_in_two_columns() -> None:
    """1 and 1.0 are two values in JSON, and what is only in one answer differs, too."""
    found = texts(conflict.rows("why", ("job_a", "job_b"), ANSWERS, (), 120))
    marked = [text for text in found if text.startswith("≠")]
    assert len(marked) == 3
    assert '/id: "job_7"' in marked[0]
    assert '/id: "job_8"' in marked[0]
    assert "/n: 1.0" in marked[1]
    assert "/more: (not there)" in marked[2]
    assert "3 of 4 places differ" in "\n".join(found)


def test_in_a_narrow_terminal_differing_values_stand_under_each_other() -> None:
    """Under 100 columns there is no room for two answers, but for two values there is."""
    found = texts(conflict.rows("why", (), ANSWERS, (), 80))
    assert [text[:2] for text in found if text.startswith("≠")] == ["≠1", "≠2"] * 3
    assert all(len(text) <= 80 for text in found)


@pytest.mark.parametrize("width", [40, 120])
def test_answers_that_are_no_json_are_shown_as_they_are(width: int) -> None:
    """A proxy's error page contradicts an answer as well as any."""
    text = "\n".join(texts(conflict.rows("why", (), (("first", "<html>"), ("second", '{"a":1}')), (), width)))
    assert "<html>" in text
    assert '"a": 1' in text


def test_a_single_answer_and_none_are_shown_honestly() -> None:
    """An answer may contradict itself, and an old one may not be kept."""
    assert "no answer of the provider is kept" in "\n".join(texts(conflict.rows("why", (), (), (), 80)))
    assert '"id"' in "\n".join(texts(conflict.rows("why", (), ANSWERS[:1], (), 80)))


def test_why_nothing_can_be_decided_yet_is_said_in_place_of_the_choices() -> None:
    """Without it, somebody would wait for choices and not know for what."""
    found = texts(conflict.rows("why", (), ANSWERS, (), 80, wait="the cancel call is still without an outcome"))
    assert found[-1].strip() == "the cancel call is still without an outcome"


# --- papers ------------------------------------------------------------------------------------------------------


def test_a_result_tells_where_it_is_and_what_is_wrong() -> None:
    """Location, size, hash, checks, problems, items and each failed reference."""
    items = ItemSummary(3, 2, 1, ("row-3",))
    op = operation(
        State.SUCCEEDED, result=StoredResult("/r/x.json", 2048, "ab" * 32, "text/csv", False, ("too short",), items)
    )
    text = "\n".join(texts(papers.result(op, "", None, 120)))
    for words in (
        "/r/x.json",
        "2 KB (2048 bytes)",
        "ab" * 32,
        "text/csv",
        "NOT CHECKED",
        "too short",
        "2 of 3",
        "row-3",
    ):
        assert words in text


@pytest.mark.parametrize("state", list(State))
def test_without_a_result_the_page_says_why(state: State) -> None:
    """In every state there is a sentence, and none claims that a result will come after the end."""
    first = texts(papers.result(operation(state), "", None, 200))[0]
    assert first.startswith("there is no result: " if state.terminal else "no result yet, because ")


def test_the_chain_is_verified_only_to_the_head() -> None:
    """A journal that was cut at its end is not called whole."""
    op = operation(head_seq=11, head_hash=f"{11:064x}")
    assert "✓ chain verified up to seq 11" in texts(papers.raw(op, STORY, (), (), 120))[0]
    assert "not all of the journal" in texts(papers.raw(op, STORY[:9], (), (), 120))[0]
    broken = papers.raw(op, STORY, (), (Finding("HASH", op.operation_id, 4, "event 4 was changed"),), 120)
    assert "BROKEN" in texts(broken)[0]
    assert "event 4 was changed" in texts(broken)[1]


def test_decisions_say_who_why_and_what_they_were_shown() -> None:
    """The proof of what an approver looked at is one key away."""
    approved = dataclasses.replace(
        event(2, "Approved", "create_pending", by="bo", shown="ab"), actor="bo", reason="looks right"
    )
    found = papers.approvals(operation(), (STORY[0], approved), {("event", 2)}, {"ab": ["POST it, once"]}, 120)
    text = "\n".join(texts(found))
    for words in ("asked for by agent-1", "approved by bo: looks right", "they were shown:", "POST it, once"):
        assert words in text


def test_a_difference_to_another_request_is_marked_like_in_a_review() -> None:
    """Minus before, plus after; the same request that is open already is loud."""
    shown = {"method": "POST", "url": "https://a", "headers": {"X": "1"}, "body": {"rows": 5}}
    compared = {
        "operation_id": "op_1234567890", "relation": "alike", "state": "observing",
        "differences": [{"pointer": "/rows", "change": "changed", "before": 4, "after": 5}],
    }  # fmt: skip
    text = "\n".join(texts(papers.request(shown, operation(), "env:KEY", compared, 120)))
    for words in ("POST https://a", "env:KEY", "- /rows: 4", "+ /rows: 5", "34567890 (observing)"):
        assert words in text
    same = papers.request(shown, operation(), None, {**compared, "relation": "same", "differences": []}, 120)
    assert "THE SAME REQUEST IS OPEN ALREADY" in "\n".join(texts(same))


# --- texts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 9, 40, 200])
def test_wrapped_rows_hold_the_whole_text(width: int) -> None:
    """Nothing is lost at the edge, wide characters included, and no line feed or escape gets through."""
    text = "日本語テキスト" * 9 + "\x1b[2J\r\n" + "word " * 40
    found = texts(rows.wrapped(text, width, "data"))
    assert "".join(one.removeprefix(rows.BAR) for one in found) == clean(text, newlines=True).replace("\n", "")
    assert not any(char in one for one in found for char in "\x1b\r\n")


@pytest.mark.parametrize(
    ("length", "words"),
    [(timedelta(milliseconds=84), "84ms"), (1.26 * SECOND, "1.3s"), (-SECOND, "skew"), (timedelta(minutes=7), "7m")],
)
def test_the_time_of_a_call_is_short(length: timedelta, words: str) -> None:
    """And never negative."""
    assert rows.took(length) == words


def test_words_of_an_event_fall_back_on_its_cause() -> None:
    """Every kind of event says something."""
    assert events.told(event(1, "SomethingNew")) == "call:call_1"
