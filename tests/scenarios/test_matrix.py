"""The fault matrix: for each fault and each phase that it can strike, the tests that show what then happens.

A cell without an entry, and an entry without its test, fail here. `LATER` cells belong to work that is not done yet,
and say which. Names: folder under ``tests``, file without ``test_``, and the test without ``test_``.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).resolve().parents[1]
COLUMNS: Final = ("create", "observe", "cancel", "approve")

Cell = tuple[str, ...]


class Later(str):
    """Why a cell has no test yet: the work that brings it."""

    __slots__ = ()


AUDIT: Final = Later("audit and security: anchors, checkpoints, verification at the start")
PROGRAMME: Final = Later("the reliability programme: power loss images, fault-injecting file systems, clock checks")
SCALE: Final = Later("scale and speed: fail-over of the server, old and new version together")

# --- cells that many rows share ---------------------------------------------------------------------------------------

KILLED = "crashes/crashes::the_core_stories_with_deaths_at_a_sample_of_points"
AGAIN = "crashes/crashes::a_death_in_the_recovery_from_a_death"
HELD = "faults/kill::killed_while_the_provider_holds_its_answer"
B01 = "scenarios/creating::b01_a_worker_dies_at_any_point_and_one_job_exists"
CUT_SHORT = "core/store/crash::a_process_killed_at_any_step_leaves_all_or_nothing"
KEPT = "core/store/crash::what_was_acknowledged_is_there_after_a_kill"
BAD_CREATE = "scenarios/bad_answers::a_bad_answer_to_a_create_leaves_it_unknown"
BAD_READ = "scenarios/bad_answers::a_bad_answer_to_a_status_read_changes_nothing"
BAD_CANCEL = "scenarios/bad_answers::a_bad_answer_to_a_cancel_is_no_end"
BAD: Final[dict[str, Cell | Later]] = {"create": (BAD_CREATE,), "observe": (BAD_READ,), "cancel": (BAD_CANCEL,)}
FATE = "core/edges/http_fate::"
LOST = FATE + "what_breaks_after_sending_is_lost"
UNSENT = "scenarios/bad_answers::what_provably_never_left_is_tried_again"
LOST_CANCEL = "scenarios/cancelling::a_lost_answer_is_read_after_and_no_second_cancel_leaves"
LOST_CREATE = "faults/kill::a_dropped_create_answer_leads_to_exactly_one_job"
B14 = "scenarios/reading::b14_two_hours_of_bad_polls_change_no_state"
B22 = "scenarios/cancelling::b22_only_a_status_read_says_how_a_cancel_ended"
STOPS = "scenarios/violations::b04_and_its_kin_all_automation_stops_and_both_answers_are_kept"
MOVED_ID = "scenarios/bad_answers::a_job_that_changes_its_id_while_a_cancel_is_under_way_stops_everything"
GHOST = "faults/leases::a_ghost_wakes_after_its_lease"
GHOST_CREATE = "faults/leases::a_ghost_wakes_with_a_create_in_flight"
GHOST_CANCEL = "faults/leases::a_ghost_wakes_with_a_cancel_in_hand"
STALE = "core/store/recording::five_stale_writes_of_a_ghost_are_refused"
AWAY = "faults/database_away::a_commit_that_fails_loses_nothing"
LOCKED = "faults/database_away::a_file_that_another_program_has_locked"
BUSY = "core/store/engine::a_locked_file_is_waited_for_and_then_reported"
FULL = "core/store/engine::a_full_disk_is_one_sentence_and_no_half_write"
EIO = "core/store/engine::a_commit_that_the_disk_refused_is_said_to_be_uncertain"
LOOKED_UP = "core/store/engine::an_uncertain_commit_is_looked_up"
READ_ONLY = "core/store/engine::a_ledger_on_a_read_only_medium_can_be_read"
DAMAGED = "core/store/engine::a_damaged_file_is_said_to_be_damaged"
RESTART = "faults/database_away::a_server_that_restarts_while_jobs_run"
DECIDERS = "scenarios/approving::of_two_deciders_at_once_one_wins_and_the_other_hears_who"
CLOCKS = "faults/leases::a_worker_whose_clock_is_wrong_works_all_the_same"
CROWD = "scenarios/time::many_workers_and_one_operation"
LEAP = "scenarios/time::a_clock_that_leaps_ahead_costs_at_most_one_poll_and_no_second_cancel"
LATE_WORD = "scenarios/reading::b12_a_failed_job_that_comes_back_is_put_before_a_person"
LATE_CANCEL_WORD = "scenarios/bad_answers::a_cancelled_job_that_says_otherwise_later_keeps_its_record"


def every(*names: str) -> dict[str, Cell | Later]:
    """The same tests for create, observe, cancel and approve."""
    return dict.fromkeys(COLUMNS, names)


def later(why: Later, *columns: str) -> dict[str, Cell | Later]:
    """Not yet, in these columns (none named: all)."""
    return dict.fromkeys(columns or COLUMNS, why)


# A cell that cannot occur is not there, as in the design.
MATRIX: Final[Mapping[str, Mapping[str, Mapping[str, Cell | Later]]]] = {
    "3.1 process death and power loss": {
        "before intent commit": {
            "create": ("core/ledger/submitting::the_same_id_with_the_same_body_is_the_same_operation", CUT_SHORT),
            "observe": (KILLED,),
            "cancel": (CUT_SHORT, "core/ledger/deciding::a_cancel_is_an_intent_before_it_is_a_call"),
            "approve": (CUT_SHORT,),
        },
        "after intent commit, before send": {
            "create": (B01, KILLED),
            "observe": (KILLED,),
            "cancel": (KILLED,),
            "approve": ("scenarios/approving::nothing_is_on_the_wire_before_the_quorum", KEPT),
        },
        "after first request byte, before answer": {
            "create": (HELD, KILLED),
            "observe": (HELD,),
            "cancel": (KILLED, HELD),
        },
        "answer received, before its commit": {
            "create": (B01, KILLED),
            "observe": (KILLED, B01),
            "cancel": (KILLED,),
            "approve": (CUT_SHORT,),
        },
        "after answer commit, before next step": {
            "create": (B01, KILLED),
            "observe": (KILLED,),
            "cancel": (KILLED,),
            "approve": (KEPT,),
        },
        "during recovery": {
            "create": (AGAIN, "scenarios/creating::b01_two_deaths_in_a_row"),
            "observe": (AGAIN,),
            "cancel": (AGAIN,),
            "approve": (CUT_SHORT,),
        },
        "power cut, un-synced writes lost": later(PROGRAMME),
        "kill during checkpoint, truncation or migration": {
            **every(
                "core/store/schema::an_older_ledger_is_upgraded_under_a_lock",
                KILLED,
            ),
        },
    },
    "3.2 network": {
        "DNS fail, refused, TLS fail": {
            "create": (
                UNSENT,
                FATE + "a_refused_connection_is_proof",
                FATE + "a_name_that_cannot_be_resolved_is_proof",
            ),
            "observe": (UNSENT,),
            "cancel": (UNSENT,),
        },
        "reset or timeout after a byte": {
            "create": (LOST, BAD_CREATE),
            "observe": (B14, LOST),
            "cancel": (LOST_CANCEL,),
        },
        "answer dropped": {"create": (LOST_CREATE, BAD_CREATE), "observe": (BAD_READ,), "cancel": (LOST_CANCEL,)},
        "answer cut at any byte": {
            "create": (FATE + "an_answer_cut_at_any_byte_is_lost", BAD_CREATE),
            "observe": (BAD_READ,),
            "cancel": (BAD_CANCEL,),
        },
        "answer delayed beyond lease": {
            "create": (GHOST_CREATE, "core/worker/worker::a_call_ends_before_the_lease_does"),
            "observe": (GHOST,),
            "cancel": (GHOST_CANCEL,),
        },
        "answer duplicated, proxy repeats request": {
            "create": ("scenarios/reconciling::in_flight_at_the_first_create_leaves_it_unknown", STOPS),
            "observe": ("core/store/recording::an_answer_is_stored_once_however_often_it_comes",),
            "cancel": (B22,),
            "approve": (DECIDERS,),
        },
        "answers swapped between two connections": {
            "create": ("scenarios/violations::the_answer_that_gave_one_id_to_two_operations_is_kept_on_the_second",),
            "observe": (STOPS,),
            "cancel": (B22,),
        },
        "slow drip": {
            "create": (FATE + "the_deadline_holds_for_the_whole_exchange", LOST),
            "observe": (FATE + "the_deadline_holds_for_the_whole_exchange",),
            "cancel": (FATE + "the_deadline_holds_for_the_whole_exchange",),
        },
        "redirects": BAD | {"create": (BAD_CREATE, "core/edges/http::redirects_are_answers")},
        "TLS certificate wrong or changed": {
            "create": (FATE + "a_certificate_that_is_not_trusted_stops_the_request",),
            "observe": (FATE + "a_certificate_that_is_not_trusted_stops_the_request", UNSENT),
            "cancel": (FATE + "a_certificate_that_is_not_trusted_stops_the_request",),
        },
        "smuggling shapes, 1xx storms, header bomb": {
            "create": (LOST, "core/edges/bodies::headers_have_bounds"),
            "observe": (LOST, "core/edges/bodies::headers_that_disagree_about_the_length_are_refused"),
            "cancel": (LOST,),
        },
    },
    "3.3 provider answers": {
        "429 with and without Retry-After": {
            "create": ("scenarios/creating::b06_after_429_the_same_body_goes_under_the_same_token",),
            "observe": ("scenarios/reading::b17_a_poll_is_never_earlier_than_a_valid_wish",),
            "cancel": ("scenarios/cancelling::a_throttled_idempotent_cancel_waits_as_long_as_it_was_told", B22),
        },
        "500, 502, 503, 504": BAD
        | {
            "create": (BAD_CREATE, "scenarios/creating::b03_a_stored_500_goes_to_a_person_and_not_round_for_ever"),
        },
        "400, 422": {
            "create": ("scenarios/bad_answers::a_refusal_that_the_contract_names_is_final", BAD_CREATE),
            "observe": (BAD_READ,),
            "cancel": (B22, BAD_CANCEL),
        },
        "401, 403": {
            "create": (
                "scenarios/providers::refused_credentials_pause_the_provider_once",
                "scenarios/providers::refused_credentials_of_a_resend_leave_the_create_unknown",
            ),
            "observe": (B14,),
            "cancel": ("scenarios/providers::refused_credentials_of_a_cancel_pause_too",),
            "approve": ("scenarios/providers::refused_credentials_pause_the_provider_once",),
        },
        "409": BAD | {"create": ("scenarios/creating::b03_a_conflict_that_says_done_is_looked_up",), "cancel": (B22,)},
        "404, 410": {
            "create": (BAD_CREATE,),
            "observe": (
                "scenarios/reading::b09_not_found_soon_after_the_create_is_no_verdict",
                "scenarios/reading::b09_not_found_after_the_grace_period_goes_to_a_person",
            ),
            "cancel": (B22,),
        },
        "2xx without id": BAD,
        "HTML or wrong content type with 200": BAD,
        "invalid JSON and its kin": BAD
        | {
            "create": (
                BAD_CREATE,
                "core/rules/jsontext::what_is_refused",
                "core/rules/jsontext::no_bytes_bring_another_error",
            ),
        },
        "oversize and bombs": {
            "create": ("core/edges/http::a_bomb_is_cut_off", LOST),
            "observe": ("core/edges/http::a_bomb_is_cut_off", "core/rules/jsontext::a_bomb_is_refused_and_not_a_crash"),
            "cancel": ("core/edges/http::a_bomb_is_cut_off",),
        },
        "unknown state word": {
            "create": ("scenarios/reading::b10_words_that_nobody_knows_are_kept_and_the_job_goes_on",),
            "observe": (
                "scenarios/reading::b10_words_that_nobody_knows_are_kept_and_the_job_goes_on",
                "scenarios/reading::b10_an_unknown_word_that_never_changes_ends_at_the_deadline",
            ),
            "cancel": ("scenarios/bad_answers::a_status_that_goes_backwards_is_stored_and_no_verdict",),
        },
        "job id changed": {"create": (STOPS,), "observe": (STOPS,), "cancel": (MOVED_ID,)},
        "id type changed": {
            "create": ("scenarios/reading::b19_a_large_number_is_kept_to_its_last_digit",),
            "observe": (
                "scenarios/reading::b19_another_form_of_the_id_is_another_job",
                "scenarios/reading::b19_what_can_be_no_id_is_a_failed_read",
            ),
            "cancel": (MOVED_ID,),
        },
        "id already belongs to another operation": {
            "create": (
                STOPS,
                "scenarios/violations::an_id_that_an_ended_operation_had_is_put_before_a_person_there_too",
            ),
            "observe": (STOPS,),
            "cancel": (MOVED_ID,),
        },
        "token ignored": {
            "create": (STOPS, "faults/duplicates::a_second_job_under_one_token_stops_everything"),
            "approve": ("scenarios/violations::cancel_cancels_exactly_that_job",),
        },
        "token window passed": {
            "create": (
                "scenarios/reconciling::after_the_tokens_memory_only_look_ups_are_left",
                "scenarios/reconciling::after_the_tokens_memory_without_a_look_up_a_person_is_asked",
            ),
            "approve": ("scenarios/creating::b03_a_new_attempt_is_a_new_record_with_a_token_of_its_own",),
        },
        "status goes backwards": {
            "observe": ("scenarios/bad_answers::a_status_that_goes_backwards_is_stored_and_no_verdict",),
            "cancel": ("scenarios/bad_answers::a_status_that_goes_backwards_is_stored_and_no_verdict",),
        },
        "terminal contradiction after terminal": {
            "create": ("scenarios/violations::an_id_that_an_ended_operation_had_is_put_before_a_person_there_too",),
            "observe": (LATE_WORD, "scenarios/reading::b12_a_success_that_turns_into_a_failure_is_put_before_a_person"),
            "cancel": (LATE_CANCEL_WORD,),
        },
        "finishes before cancel takes effect": {
            "observe": ("scenarios/time::a_cancel_and_a_finish_in_one_moment_are_told_in_order",),
            "cancel": ("scenarios/cancelling::b22_a_cancel_of_a_job_that_had_finished_ends_in_its_success",),
        },
        "cancel 2xx, job runs on": {
            "observe": (B22,),
            "cancel": (
                "scenarios/cancelling::b22_unconfirmed_at_the_deadline_with_a_packet_and_again_only_on_a_new_wish",
            ),
            "approve": (
                "scenarios/cancelling::b22_unconfirmed_at_the_deadline_with_a_packet_and_again_only_on_a_new_wish",
            ),
        },
    },
    "3.4 storage": {
        "busy or locked beyond timeout": {
            "create": (LOCKED, BUSY),
            "observe": (LOCKED,),
            "cancel": (LOCKED,),
            "approve": (BUSY,),
        },
        "disk full before send or when storing": {
            "create": (AWAY, FULL),
            "observe": (AWAY, FULL),
            "cancel": (AWAY,),
            "approve": (FULL,),
        },
        "EIO on write": {"create": (AWAY, EIO), "observe": (AWAY,), "cancel": (AWAY,), "approve": (EIO,)},
        "EIO on fsync or commit outcome unknown": every(LOOKED_UP, EIO),
        "read-only file system or database": {
            "create": (READ_ONLY, "core/store/engine::a_server_that_only_reads_is_one_sentence"),
            "observe": (READ_ONLY,),
            "cancel": (READ_ONLY,),
            "approve": ("core/ledger/reading::a_read_only_ledger_is_only_read",),
        },
        "database replaced by older copy": later(AUDIT),
        "page damaged": every(DAMAGED),
        "server fail-over, lost last commits": later(SCALE),
        "connection lost at COMMIT": {
            "create": (LOOKED_UP, RESTART),
            "observe": (LOOKED_UP, RESTART),
            "cancel": (LOOKED_UP,),
            "approve": (LOOKED_UP,),
        },
    },
    "3.5 time and concurrency": {
        "wall clock ahead": {
            "create": ("scenarios/time::a_clock_that_leaps_ahead_resends_nothing",),
            "observe": (LEAP,),
            "cancel": (LEAP,),
            "approve": PROGRAMME,
        },
        "wall clock back": {
            "create": ("faults/leases::a_wrong_clock_does_not_end_the_lease_of_another", CLOCKS),
            "observe": PROGRAMME,  # on a server; a file on a host whose clock steps back polls late
            "cancel": (CLOCKS,),
            "approve": PROGRAMME,
        },
        "pause beyond lease, before permit": {
            "create": (GHOST, "core/store/recording::a_permit_needs_a_lease_that_has_not_run_out"),
            "observe": (GHOST,),
            "cancel": (GHOST_CANCEL,),
        },
        "pause beyond lease, between permit and send": {
            "create": (GHOST, GHOST_CREATE),
            "observe": (GHOST,),
            "cancel": (GHOST_CANCEL,),
        },
        "pause beyond token window": {
            "create": ("scenarios/reconciling::the_window_is_checked_again_after_the_permit",),
        },
        "lease expires during call": {
            "create": (GHOST_CREATE, "scenarios/violations::a_late_answer_that_names_another_job_stops_everything"),
            "observe": (GHOST, STALE),
            "cancel": (GHOST_CANCEL,),
        },
        "two workers take same op": every("core/store/claims::no_operation_is_ever_handed_to_two_workers", CROWD),
        "take-over storm": {
            "create": (CROWD, "faults/leases::many_workers_on_one_database"),
            "observe": (CROWD,),
            "cancel": (CROWD,),
        },
        "cancel while collecting, collect while cancelling": {
            "observe": ("scenarios/time::a_cancel_and_a_finish_in_one_moment_are_told_in_order",),
            "cancel": ("faults/cancel::a_terminal_answer_under_way_while_a_cancel_is_asked_for",),
        },
        "two operators at once, double key press": {
            "cancel": ("scenarios/cancelling::two_wishes_at_a_time_are_one",),
            "approve": (
                DECIDERS,
                "scenarios/approving::b52_a_decision_on_a_record_that_moved_on_does_nothing_and_says_so",
            ),
        },
        "same operation key, different body": {
            "create": ("scenarios/creating::b06_another_body_under_one_identity_is_refused_before_any_call",),
            "approve": (
                "scenarios/approving::an_approval_does_not_carry_over_to_another_body",
                "scenarios/approving::a_request_that_was_changed_after_the_approval_is_not_sent",
            ),
        },
        "old and new version together": later(SCALE),
        "host clocks apart": {
            "create": (CLOCKS, "core/store/claims::leases_on_a_server_are_counted_by_its_own_clock"),
            "observe": (CLOCKS,),
            "cancel": (CLOCKS,),
            "approve": SCALE,
        },
    },
}

LIVE: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "3.1 process death and power loss": (
        ("before intent commit", "coxa"),
        ("after intent commit, before send", "coxa"),
        ("after first request byte, before answer", "cox"),
        ("answer received, before its commit", "coxa"),
        ("after answer commit, before next step", "coxa"),
        ("during recovery", "coxa"),
        ("power cut, un-synced writes lost", "coxa"),
        ("kill during checkpoint, truncation or migration", "coxa"),
    ),
    "3.2 network": (
        ("DNS fail, refused, TLS fail", "cox"),
        ("reset or timeout after a byte", "cox"),
        ("answer dropped", "cox"),
        ("answer cut at any byte", "cox"),
        ("answer delayed beyond lease", "cox"),
        ("answer duplicated, proxy repeats request", "coxa"),
        ("answers swapped between two connections", "cox"),
        ("slow drip", "cox"),
        ("redirects", "cox"),
        ("TLS certificate wrong or changed", "cox"),
        ("smuggling shapes, 1xx storms, header bomb", "cox"),
    ),
    "3.3 provider answers": (
        ("429 with and without Retry-After", "cox"),
        ("500, 502, 503, 504", "cox"),
        ("400, 422", "cox"),
        ("401, 403", "coxa"),
        ("409", "cox"),
        ("404, 410", "cox"),
        ("2xx without id", "cox"),
        ("HTML or wrong content type with 200", "cox"),
        ("invalid JSON and its kin", "cox"),
        ("oversize and bombs", "cox"),
        ("unknown state word", "cox"),
        ("job id changed", "cox"),
        ("id type changed", "cox"),
        ("id already belongs to another operation", "cox"),
        ("token ignored", "ca"),
        ("token window passed", "ca"),
        ("status goes backwards", "ox"),
        ("terminal contradiction after terminal", "cox"),
        ("finishes before cancel takes effect", "ox"),
        ("cancel 2xx, job runs on", "oxa"),
    ),
    "3.4 storage": (
        ("busy or locked beyond timeout", "coxa"),
        ("disk full before send or when storing", "coxa"),
        ("EIO on write", "coxa"),
        ("EIO on fsync or commit outcome unknown", "coxa"),
        ("read-only file system or database", "coxa"),
        ("database replaced by older copy", "coxa"),
        ("page damaged", "coxa"),
        ("server fail-over, lost last commits", "coxa"),
        ("connection lost at COMMIT", "coxa"),
    ),
    "3.5 time and concurrency": (
        ("wall clock ahead", "coxa"),
        ("wall clock back", "coxa"),
        ("pause beyond lease, before permit", "cox"),
        ("pause beyond lease, between permit and send", "cox"),
        ("pause beyond token window", "c"),
        ("lease expires during call", "cox"),
        ("two workers take same op", "cox"),
        ("take-over storm", "cox"),
        ("cancel while collecting, collect while cancelling", "ox"),
        ("two operators at once, double key press", "xa"),
        ("same operation key, different body", "ca"),
        ("old and new version together", "coxa"),
        ("host clocks apart", "coxa"),
    ),
}
"""Every fault of the design and the phases it can strike: create, observe, cancel (x), approve.

Result-only faults (a foreign result URL, a wrong checksum, a partial batch) strike none of these.
"""

_LETTERS: Final = dict(zip("coxa", COLUMNS, strict=True))


@cache
def named_in(name: str) -> frozenset[str]:
    """The tests that a file defines."""
    folder, _, stem = name.rpartition("/")
    path = TESTS / folder / f"test_{stem}.py"
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


CELLS: Final = [
    pytest.param(part, fault, _LETTERS[letter], id=f"{part.split()[0]} {fault}: {_LETTERS[letter]}")
    for part, faults in LIVE.items()
    for fault, letters in faults
    for letter in letters
]


@pytest.mark.parametrize(("part", "fault", "column"), CELLS)
def test_every_live_cell_has_its_tests(part: str, fault: str, column: str) -> None:
    """A fault that nobody tries in a phase is a promise that nobody keeps."""
    cell = MATRIX[part].get(fault, {}).get(column)
    assert cell is not None, f"nothing shows what happens at {fault!r} during {column}"
    if isinstance(cell, Later):
        assert cell
        return
    assert cell
    for entry in cell:
        file, separator, test = entry.partition("::")
        assert separator, f"{entry!r} names no test"
        assert f"test_{test}" in named_in(file), f"there is no {entry}"


def test_the_matrix_names_no_fault_that_the_design_does_not_have() -> None:
    """A row that was renamed would else hide its cells."""
    for part, faults in MATRIX.items():
        assert set(faults) == {fault for fault, _ in LIVE[part]}
    assert len({(part, fault) for part, faults in LIVE.items() for fault, _ in faults}) == 61


def test_a_missing_test_is_noticed() -> None:
    """The check itself can fail."""
    assert "test_b01_two_deaths_in_a_row" in named_in("scenarios/creating")
    assert "test_nobody_wrote_this" not in named_in("scenarios/creating")
    assert named_in("scenarios/nowhere") == frozenset()


def test_what_is_left_for_later_is_counted() -> None:
    """Whoever moves a cell to later has to say so here as well."""
    left = [cell for faults in MATRIX.values() for row in faults.values() for cell in row.values()]
    assert sum(isinstance(cell, Later) for cell in left) == 20
