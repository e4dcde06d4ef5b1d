from __future__ import annotations

from datetime import timedelta

import pytest

from opledger.edges.clock import SystemClock
from opledger.ledger import Ledger
from opledger.rules.model import Means, from_rfc3339
from tests.core.cli.conftest import Terminal
from tests.core.ledgers import LOST, RUNNING, VIOLATED, happens, observed

KEYS = [
    "operation_id", "contract", "state", "code", "severity", "first_seen", "deadline", "reason", "requested_by",
    "acknowledged", "acknowledged_by", "acknowledged_until",
]  # fmt: skip


def test_the_most_urgent_comes_first(terminal: Terminal, ledger: Ledger) -> None:
    """Whoever opens the list at three in the morning begins at the top."""
    odd = happens(ledger, terminal.submit(), *RUNNING, observed("odd", Means.UNKNOWN)).operation_id
    ledger.store.pause_provider("jobs", "w1", "401", SystemClock().now())
    lost = happens(ledger, terminal.submit(body='{"rows": 6}'), *LOST).operation_id
    terminal.submit(body='{"rows": 7}')
    found = terminal("escalations", "--json").json
    assert [list(one) for one in found] == [KEYS] * 3
    assert [(one["code"], one["severity"], one["operation_id"]) for one in found] == [
        ("create_unknown", "critical", lost),
        ("provider_paused", "high", None),
        ("unknown_state", "low", odd),
    ]
    assert found[0]["reason"] == "no way is left"
    assert from_rfc3339(found[2]["deadline"]) > SystemClock().now()
    assert [one["code"] for one in terminal("escalations", "--limit", "1", "--json").json] == ["create_unknown"]
    assert terminal("escalations", "--contract", "other", "--json").json == []


def test_people_get_a_table(terminal: Terminal, ledger: Ledger) -> None:
    """Without --json, and a sentence where there is nothing to do."""
    assert terminal("escalations").out == "Nothing wants a person.\n"
    lost = happens(ledger, terminal.submit(), *LOST)
    out = terminal("escalations").out
    assert out.splitlines()[0].split()[:3] == ["SEVERITY", "CODE", "ID"]
    assert "critical" in out
    assert lost.operation_id[-8:] in out


def test_an_acknowledgement_moves_it_to_the_end_until_it_lapses(terminal: Terminal, ledger: Ledger) -> None:
    """Who has taken it and until when stands in list and record."""
    lost = happens(ledger, terminal.submit(), *LOST)
    bad = happens(ledger, terminal.submit(body='{"rows": 6}'), *VIOLATED)
    before = SystemClock().now()
    done = terminal("ack", lost.operation_id[-8:], "--for", "2h", "--reason", "on it", "--json", by="jo")
    attention = done.json["attention"]
    assert (attention["severity"], attention["acknowledged_by"]) == ("critical", "jo")
    until = from_rfc3339(attention["acknowledged_until"])
    assert timedelta(hours=2) <= until - before < timedelta(hours=2, minutes=1)
    found = terminal("escalations", "--json").json
    assert [(one["operation_id"], one["acknowledged"]) for one in found] == [
        (bad.operation_id, False), (lost.operation_id, True),
    ]  # fmt: skip
    assert "jo, 1h 59m" in terminal("escalations").out
    assert terminal("events", lost.operation_id, "--json").json[-1]["reason"] == "on it"
    assert (terminal("ack", lost.operation_id, bad.operation_id, "--reason", "all mine").code) == 0
    assert {one["acknowledged_until"] for one in terminal("escalations", "--json").json} == {None}


@pytest.mark.parametrize(
    ("words", "by", "code", "says"),
    [
        (["--reason", "x"], "agent-7", 3, "agent"),
        (["--reason", " "], "jo", 2, "reason"),
        ([], "jo", 2, "--reason"),
        (["--reason", "x", "--for", "0s"], "jo", 2, "more than 0"),
        (["--reason", "x", "--for", "soon"], "jo", 2, "--for"),
    ],
)
def test_who_may_not_or_says_nonsense_changes_nothing(
    terminal: Terminal, ledger: Ledger, words: list[str], by: str, code: int, says: str
) -> None:
    """Agents do not answer for people, and an acknowledgement without a reason tells the next shift nothing."""
    lost = happens(ledger, terminal.submit(), *LOST)
    done = terminal("ack", lost.operation_id, *words, by=by)
    assert done.code == code, done.err
    assert says in done.err
    assert ledger.show(lost.operation_id) == lost


def test_what_needs_nobody_cannot_be_acknowledged(terminal: Terminal) -> None:
    """A typing error must not look like somebody being on it."""
    op = terminal.submit()
    done = terminal("ack", op, "--reason", "on it", "--json")
    assert (done.code, done.error["code"]) == (3, "refused")
    assert "needs no attention" in done.error["message"]
    assert terminal("ack", "op_nobody", "--reason", "x").code == 3
