from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opledger.ledger import Ledger
from opledger.rules.model import Means
from tests.core.cli.conftest import Terminal
from tests.core.ledgers import FAILED, LOST, RUNNING, VIOLATED, accepted, happens, observed, sent
from tests.core.rules.operations import JOBS

APPROVE = """
[[policy]]
when = 'operation.body.rows > 3'
"""


def test_submit_writes_everything_that_was_said(terminal: Terminal) -> None:
    """Each flag arrives in the record."""
    old = terminal.submit()
    flags = ["--id", "op_mine", "--by", "agent-9", "--tag", "team=a", "--tag", "cost=b=c", "--expect", "a CSV"]
    flags += ["--create-deadline", "30s", "--result-deadline", "2h", "--supersedes", old, "--task", "t", "--step", "s"]
    done = terminal("submit", "jobs", "--body", '{"rows": 12345678901234567890}', *flags, "--json")
    assert (done.code, done.err) == (0, "")
    found = done.json
    assert (found["operation_id"], found["requested_by"]) == ("op_mine", "agent-9")
    assert (found["tags"], found["expectation"]) == ({"team": "a", "cost": "b=c"}, "a CSV")
    assert (found["supersedes"], found["task"], found["step"]) == (old, "t", "s")
    assert (found["state"], found["head_seq"]) == ("create_pending", 1)
    with terminal.ledger() as ledger:
        assert ledger.body_of(ledger.show("op_mine")) == {"rows": 12345678901234567890}


def test_what_is_expected_is_tried_or_said_to_be_a_remark(terminal: Terminal) -> None:
    """Nobody believes that a sentence is checked, and nobody loses a condition by a slip in it."""
    remark = terminal("submit", "jobs", "--body", "{}", "--expect", "about thirty rows")
    assert (remark.code, remark.err) == (0, "")
    assert "about thirty rows (kept as a remark, not checked)" in " ".join(remark.out.split())
    for text, kind in (("count >= 28", "checked"), ("cel: count > 1", "checked"), ("remark: count > 1", "remark")):
        done = terminal("submit", "jobs", "--body", "{}", "--expect", text, "--json")
        assert (done.json["expectation"], done.json["expectation_kind"]) == (text, kind)
    assert terminal("submit", "jobs", "--body", "{}", "--json").json["expectation_kind"] is None
    before = len(terminal("list", "--json").json)
    slip = terminal("submit", "jobs", "--body", "{}", "--expect", "cuont >= 28")
    assert slip.code == 2
    assert "uses 'cuont'; only content_type, count, items, size can be used here; correct it, or write remark:" in (
        " ".join(slip.err.split())
    )
    assert len(terminal("list", "--json").json) == before


def test_the_operator_asks_where_nobody_is_named(terminal: Terminal) -> None:
    """A person at the terminal need not say who they are each time."""
    assert terminal("submit", "jobs", "--body", "{}", "--json", by="kim").json["requested_by"] == "kim"


@pytest.mark.parametrize("text", ["{}", '{"a": [1, 2.5, null]}', " {} "])
def test_bodies_are_taken_as_json_file_or_input(terminal: Terminal, tmp_path: Path, text: str) -> None:
    """Three ways to the same bytes."""
    (tmp_path / "body.json").write_text(text)
    (tmp_path / "1234").write_text(text)
    ways = [
        terminal("submit", "jobs", "--body", text, "--json"),
        terminal("submit", "jobs", "--body", "body.json", "--json"),
        terminal("submit", "jobs", "--body", str(tmp_path / "body.json"), "--json"),
        terminal("submit", "jobs", "--body", "-", "--json", stdin=text),
    ]
    assert len({way.json["request_fingerprint"] for way in ways}) == 1


@pytest.mark.parametrize("text", ['"some text"', "12", "-1.5e3", "true", "null", "[1]"])
def test_a_body_may_be_any_json(terminal: Terminal, text: str) -> None:
    """Contracts say what they take; the command line does not guess."""
    from opledger.cli.inputs import body

    assert body(text) == json.loads(text)


def test_a_raw_body_is_a_json_string(terminal: Terminal) -> None:
    """Text is sent as it is."""
    terminal.contract(JOBS.replace("[create]", '[create]\nbody = "raw"'), "raw")
    assert terminal("submit", "raw", "--body", '"line one\\nline two"').code == 0
    assert terminal("submit", "raw", "--body", "{}").code == 2


def test_the_same_submit_again_is_the_same_record(terminal: Terminal) -> None:
    """Agents repeat themselves."""
    first = terminal("submit", "jobs", "--body", '{"rows": 5}', "--id", "op_mine", "--json")
    assert terminal("submit", "jobs", "--body", '{"rows":5.0}', "--id", "op_mine", "--json").json == first.json


def test_lists_are_arrays_and_can_be_narrowed(terminal: Terminal, ledger: Ledger) -> None:
    """Whatever is listed is a record like any other."""
    first, second = terminal.submit("--tag", "team=a"), terminal.submit("--tag", "team=b")
    happens(ledger, second, *LOST)
    assert [found["operation_id"] for found in terminal("list", "--json").json] == [second, first]
    assert terminal("list", "--json").json[1] == terminal("show", first, "--json").json

    def listed(*flags: str) -> list[str]:
        return [found["operation_id"] for found in terminal("list", "--json", *flags).json]

    assert listed("--state", "create_pending") == [first]
    assert listed("--state", "create_pending", "--state", "create_unknown") == [second, first]
    assert listed("--tag", "team=a") == [first]
    assert listed("--attention") == [second]
    assert listed("--contract", "other") == []
    assert listed("--limit", "1") == [second]
    assert listed("--limit", "1", "--after", second) == [first]
    assert "No operations." in terminal("list", "--contract", "other").out


def test_history_and_events_tell_the_same_story(terminal: Terminal, ledger: Ledger) -> None:
    """Transitions are the events that changed the state, with the same hashes left out."""
    name = terminal.submit()
    happens(ledger, name, *FAILED)
    steps, events = terminal("history", name, "--json").json, terminal("events", name, "--json").json
    assert [step["to"] for step in steps] == ["create_pending", "accepted", "observing", "failed"]
    assert [event["seq"] for event in events] == [1, 2, 3, 4, 5]
    changed = [event for event in events if event["to"] is not None]
    assert [{key: event[key] for key in step} for step, event in zip(steps, changed, strict=True)] == steps
    assert events[1]["from"] is None
    assert events[-1]["data"]["remote_state"] == "failed"
    assert events[-1]["hash"] == terminal("show", name, "--json").json["head_hash"]
    told = terminal("history", name).out
    assert "observing -> failed" in told
    assert "worker-1" in told


def test_short_ids_do_everywhere(terminal: Terminal, ledger: Ledger) -> None:
    """People see eight characters."""
    name = terminal.submit()
    happens(ledger, name, *LOST)
    for command in ("show", "history", "events", "explain", "choices"):
        assert terminal(command, name[-8:], "--json").code == 0
    done = terminal("resolve", name[-8:], "--as", "close", "--reason", "enough", "--json")
    assert (done.code, done.json["operation_id"], done.json["state"]) == (0, name, "resolved")


def test_explain_says_what_holds_it_up(terminal: Terminal, ledger: Ledger) -> None:
    """Sentences for people, fields for programs."""
    name = terminal.submit()
    found = terminal("explain", name, "--json").json
    assert found["blocked_by"]["code"] == "no_worker"
    assert found["next"]["kind"] == "create"
    assert "opledger worker" in terminal("explain", name).out
    happens(ledger, name, *VIOLATED)
    found = terminal("explain", name, "--json").json
    assert found["blocked_by"]["code"] == "contract_violation"
    assert [choice["choice"] for choice in found["choices"]] == ["keep", "cancel", "close"]
    assert found["choices"] == terminal("choices", name, "--json").json
    assert "--as keep --job" in terminal("explain", name).out


# --- deciding ----------------------------------------------------------------------------------------------------


def test_approvals_go_through_the_terminal(terminal: Terminal) -> None:
    """The requester and agents are refused, somebody else is not."""
    (terminal.root / "opledger.toml").write_text(APPROVE)
    name = terminal.submit()
    assert terminal("approve", name, "--reason", "fine", by="agent-7").code == 3
    done = terminal("approve", name, "--reason", "fine", "--json", by="jo")
    assert (done.code, done.json["state"]) == (0, "create_pending")
    assert [(given["by"], given["reason"]) for given in done.json["approvals"]] == [("jo", "fine")]
    late = terminal("reject", name, "--reason", "no", "--json", by="kim")
    assert (late.code, late.error["code"]) == (3, "refused")
    assert "by jo" in late.error["message"]


def test_several_are_decided_one_by_one(terminal: Terminal) -> None:
    """Each has its own outcome, and one refusal shows in the exit code."""
    (terminal.root / "opledger.toml").write_text(APPROVE)
    first, second, free = terminal.submit(), terminal.submit(), terminal.submit(body='{"rows": 1}')
    done = terminal("reject", first, free, "op_nobody", second, "--reason", "too big", "--json", by="jo")
    assert (done.code, done.err) == (3, "")
    assert [item["ok"] for item in done.json] == [True, False, False, True]
    assert [item["operation_id"] for item in done.json] == [first, free, "op_nobody", second]
    assert done.json[0]["record"]["state"] == "rejected"
    assert done.json[2]["error"]["code"] == "unknown_operation"
    told = terminal("cancel", free, first, "--reason", "x")
    assert told.code == 3
    assert "withdrawn" in told.out
    assert "refused" in told.out


def test_a_cancel_keeps_what_is_expected(terminal: Terminal, ledger: Ledger) -> None:
    """And says that it is a wish, not an outcome."""
    name = terminal.submit()
    happens(ledger, name, *RUNNING)
    done = terminal("cancel", name, "--reason", "too slow", "--effect", "it stops", "--json")
    assert done.json["state"] == "cancel_requested"
    assert done.json["expected_effect"] == "it stops"
    assert terminal("cancel", name, "--reason", "again").code == 3


def test_a_job_is_bound_by_a_person(terminal: Terminal, ledger: Ledger) -> None:
    """`resolve` takes what the choice needs, and nothing else."""
    name = terminal.submit()
    happens(ledger, name, *LOST)
    assert terminal("resolve", name, "--as", "bind", "--reason", "found it").code == 3
    assert terminal("resolve", name, "--as", "close", "--reason", "x", "--job", "j").code == 2
    assert terminal("resolve", name, "--as", "extend", "--reason", "x", "--for", "1h").code == 3
    assert terminal("resolve", name, "--as", "bind", "--reason", "found", "--job", "j9", by="agent-7").code == 3
    done = terminal("resolve", name, "--as", "bind", "--reason", "found", "--job", "j9", "--json")
    assert (done.json["state"], done.json["remote_job_id"]) == ("accepted", "j9")


# --- waiting -----------------------------------------------------------------------------------------------------


def test_waiting_for_what_has_ended_returns_at_once(terminal: Terminal, ledger: Ledger) -> None:
    """The record is the answer."""
    name = terminal.submit()
    happens(ledger, name, *FAILED)
    done = terminal("wait", name, "--timeout", "0s", "--json")
    assert (done.code, done.err, done.json["state"]) == (0, "", "failed")


def test_waiting_ends_where_a_person_is_needed(terminal: Terminal) -> None:
    """Exit code 7, with the record, and with who is needed and what for."""
    (terminal.root / "opledger.toml").write_text(APPROVE)
    done = terminal("submit", "jobs", "--body", '{"rows": 5}', "--wait", "--timeout", "0s", "--json", "--id", "op_mine")
    assert (done.code, done.json["state"]) == (7, "awaiting_approval")
    error = json.loads(done.err)["error"]
    assert error["code"] == "human_needed"
    assert "op_mine needs an approver" in error["message"]
    told = terminal("wait", "op_mine", "--timeout", "0s")
    assert told.code == 7
    assert "approve or reject" in told.err


def test_a_timeout_loses_nothing(terminal: Terminal) -> None:
    """Exit code 6; a submit that was waited for has still been written."""
    name = terminal.submit()
    done = terminal("wait", name, "--timeout", "0s", "--json")
    assert (done.code, done.error["code"]) == (6, "timeout")
    assert name in done.error["message"]
    both = terminal("submit", "jobs", "--body", "{}", "--wait", "--timeout", "0s", "--json")
    assert (both.code, both.json["state"]) == (6, "create_pending")
    assert json.loads(both.err)["error"]["code"] == "timeout"


def test_several_are_waited_for(terminal: Terminal, ledger: Ledger) -> None:
    """An array with one outcome each; what is not there is told beside what is."""
    first, second = terminal.submit(), terminal.submit()
    happens(ledger, first, *FAILED)
    happens(ledger, second, sent(), accepted("job_8"), observed("failed", Means.FAILED, "job_8"))
    done = terminal("wait", first, second, "--timeout", "0s", "--json")
    assert (done.code, [item["ok"] for item in done.json]) == (0, [True, True])
    some = terminal("wait", first, "op_nobody", "--timeout", "0s", "--json")
    assert (some.code, [item["ok"] for item in some.json]) == (3, [True, False])
    happens(ledger, terminal.submit("--id", "op_lost"), *LOST)
    assert terminal("wait", first, "op_lost", "--timeout", "0s", "--json").code == 7
    assert terminal("wait", first, terminal.submit(), "--timeout", "0s", "--json").code == 6


# --- contracts, providers, doctor --------------------------------------------------------------------------------


def test_a_contract_is_checked(terminal: Terminal) -> None:
    """Valid: the guarantee report. Invalid: everything that is wrong, with key and line, and exit code 3."""
    good = terminal("contract", "check", "contracts/jobs.toml", "--json")
    assert (good.code, good.err) == (0, "")
    assert (good.json["name"], good.json["valid"], good.json["errors"]) == ("jobs", True, [])
    assert good.json["guarantees"]["create"]["at_most_once"] == "bounded"
    assert terminal("contract", "check", "jobs", "--json").json == good.json
    terminal.contract('name = "broken"\nbase_url = 5\ntypo = 1\n', "broken")
    bad = terminal("contract", "check", "contracts/broken.toml", "--json")
    assert (bad.code, bad.err, bad.json["valid"], bad.json["guarantees"]) == (3, "", False, None)
    assert {"base_url", "typo"} <= {wrong["key"] for wrong in bad.json["errors"]}
    assert all(set(wrong) == {"key", "line", "message"} for wrong in bad.json["errors"])
    told = terminal("contract", "check", "contracts/broken.toml")
    assert (told.code, told.err) == (3, "")
    assert "line 2" in told.out
    assert "gaps" in terminal("contract", "check", "jobs").out


def test_contracts_are_listed_and_shown(terminal: Terminal) -> None:
    """The broken ones too: somebody has to mend them."""
    terminal.contract('name = "broken"\nbase_url = 5\n', "broken")
    found = {item["name"]: item for item in terminal("contract", "list", "--json").json}
    assert (found["jobs"]["valid"], found["jobs"]["shipped"]) == (True, False)
    assert found["broken"]["valid"] is False
    assert found["airflow"]["shipped"] is True
    shown = terminal("contract", "show", "jobs", "--json").json
    assert shown["digest"] == found["jobs"]["digest"]
    assert "[create]" in shown["source"]
    assert "[create]" in terminal("contract", "show", "jobs").out


def test_providers_are_paused_and_resumed(terminal: Terminal) -> None:
    """Who, why and since when stand in the list."""
    terminal.submit()

    def jobs() -> dict[str, Any]:
        return next(item for item in terminal("provider", "list", "--json").json if item["contract"] == "jobs")

    assert jobs() == {
        "contract": "jobs", "state": "open", "by": None, "reason": None, "since": None, "open_operations": 1
    }  # fmt: skip
    assert terminal("provider", "pause", "jobs", "--reason", "outage").code == 0
    assert (jobs()["state"], jobs()["by"], jobs()["reason"]) == ("paused", "ana", "outage")
    assert terminal("provider", "pause", "jobs", "--reason", "outage").code == 3
    assert terminal("provider", "resume", "jobs", "--reason", "over", "--json").json["state"] == "open"
    assert "jobs" in terminal("provider", "list").out


def test_the_doctor_says_what_is_wrong(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh ledger is well; a missing secret that is needed is not; a missing database is code 5."""
    well = terminal("doctor", "--json")
    assert (well.code, well.json["ok"]) == (0, True)
    assert all(set(check) == {"name", "ok", "message"} for check in well.json["checks"])
    assert {"database", "contracts", "workers", "clocks", "secrets"} <= {check["name"] for check in well.json["checks"]}
    terminal.contract(JOBS + '[auth]\nkind = "bearer"\nsecret = "env:JOBS_TOKEN"\n')
    ill = terminal("doctor", "--json")
    assert (ill.code, ill.json["ok"]) == (3, False)
    assert [check["name"] for check in ill.json["checks"] if not check["ok"]] == ["secret of jobs"]
    assert "JOBS_TOKEN" in terminal("doctor").out
    monkeypatch.setenv("JOBS_TOKEN", "hunter2")
    cured = terminal("doctor")
    assert cured.code == 0
    assert "hunter2" not in cured.out
    more = '[result]\nurl = "/url"\nauth = { kind = "bearer", secret = "env:FILES_KEY" }\n'
    terminal.contract(f'{JOBS}[auth]\nkind = "bearer"\nsecret = "env:JOBS_TOKEN"\n{more}')
    assert "FILES_KEY" in terminal("doctor").out
    monkeypatch.setenv("FILES_KEY", "hunter3")
    assert terminal("doctor").code == 0
    monkeypatch.setenv("OPLEDGER_CONTRACTS", "nowhere")
    lost = terminal("doctor", "--json")
    assert (lost.code, [check["name"] for check in lost.json["checks"] if not check["ok"]]) == (3, ["contracts"])
    gone = terminal("doctor", "--json", "--db", "sqlite:////dev/null/x.db")
    assert (gone.code, gone.json["ok"]) == (5, False)
    assert gone.json["checks"][0]["name"] == "database"
