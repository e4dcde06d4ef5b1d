from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from opledger import Ledger, config
from opledger.config import ContractInvalid, UnknownContract
from opledger.errors import BodyConflict, Refused, UnknownOperation, UsageError
from opledger.ledger import Wish
from opledger.rules.contract import Contract
from opledger.rules.model import State
from tests.core.ledgers import BODY, Home
from tests.core.rules.operations import CANCEL, JOBS


def test_what_is_submitted_can_be_read_back_by_another_process(home: Home) -> None:
    """The record is durable before anything else happens."""
    with home.ledger() as mine:
        op = mine.submit(
            "jobs",
            BODY,
            requested_by="agent-7",
            tags={"team": "a"},
            expectation="a CSV",
            create_deadline="30s",
            result_deadline=600,
        )
    with home.ledger() as other:
        found = other.show(op.operation_id)
        assert found == op
        assert (found.state, found.requested_by, found.tags) == (State.CREATE_PENDING, "agent-7", {"team": "a"})
        assert found.create_deadline == found.created_at + timedelta(seconds=30)
        assert found.result_deadline == found.created_at + timedelta(minutes=10)
        assert found.next is not None
        assert found.next.kind == "create"
        assert other.body_of(found) == BODY
        assert [event.kind for event in other.events(op.operation_id)] == ["Submitted"]
        assert other.list(tags={"team": "a"}) == (op,)
        assert other.list(tags={"team": "b"}) == ()


def test_the_same_id_with_the_same_body_is_the_same_operation(home: Home) -> None:
    """An agent that lost its memory asks again and gets what it has."""
    with home.ledger() as ledger:
        first = ledger.submit("jobs", BODY, operation_id="op_mine")
        again = ledger.submit("jobs", {"rows": 5.0}, operation_id="op_mine", requested_by="agent-9")
        assert again == first
        assert len(ledger.events("op_mine")) == 1


def test_the_same_id_with_another_body_is_refused(home: Home) -> None:
    """The first one stands, is named, and nothing is written."""
    with home.ledger() as ledger:
        first = ledger.submit("jobs", BODY, operation_id="op_mine", requested_by="agent-7")
        with pytest.raises(BodyConflict, match=r"op_mine.*agent-7"):
            ledger.submit("jobs", {"rows": 6}, operation_id="op_mine")
        assert ledger.list() == (first,)
        assert len(ledger.events("op_mine")) == 1


def test_a_step_that_is_asked_again_is_the_same_operation(home: Home) -> None:
    """Steps have no memory of operation ids."""
    with home.ledger() as ledger:
        first = ledger.submit("jobs", BODY, task="t", step="s")
        assert ledger.submit("jobs", BODY, task="t", step="s") == first
        assert ledger.submit("jobs", BODY, task="t", step="s2") != first
        with pytest.raises(BodyConflict, match="step s"):
            ledger.submit("jobs", {"rows": 6}, task="t", step="s")


def test_many_processes_that_submit_one_id_make_one_operation(home: Home) -> None:
    """Agents run in herds."""

    def submit(_: int) -> str:
        with home.ledger() as ledger:
            return ledger.submit("jobs", BODY, operation_id="op_herd").trace_id

    with home.ledger():
        pass
    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(submit, range(12)))) == 1
    with home.ledger() as ledger:
        assert len(ledger.events("op_herd")) == 1


def test_an_edited_contract_makes_no_new_wish_of_an_old_one(file_home: Home) -> None:
    """The path changed since; the agent's wish did not."""
    with file_home.ledger() as ledger:
        first = ledger.submit("jobs", BODY, operation_id="op_mine")
        stepped = ledger.submit("jobs", BODY, task="t", step="s")
    file_home.contract(JOBS.replace('"/jobs"', '"/v2/jobs"') + CANCEL)
    with file_home.ledger() as ledger:
        assert ledger.submit("jobs", BODY, operation_id="op_mine") == first
        assert ledger.submit("jobs", BODY, task="t", step="s") == stepped
        assert ledger.submit("jobs", BODY).request_fingerprint != first.request_fingerprint
        assert ledger.contract_of(first).create.path.text == "/jobs"


@pytest.mark.parametrize(
    ("wish", "error", "says"),
    [
        ({"contract": "nowhere"}, UnknownContract, "nowhere"),
        ({"contract": "broken"}, ContractInvalid, "broken.toml"),
        ({"contract": "../jobs"}, UnknownContract, "jobs"),
        ({"body": [1]}, UsageError, "object"),
        ({"body": {"a": float("nan")}}, UsageError, "nan"),
        ({"operation_id": "mine"}, UsageError, "op_"),
        ({"supersedes": "op_nobody"}, UnknownOperation, "op_nobody"),
        ({"create_deadline": "soon"}, UsageError, "duration"),
        ({"result_deadline": 0}, UsageError, "deadline"),
        ({"requested_by": "\x1b[2J"}, UsageError, "name"),
        ({"tags": {"a b": "c"}}, UsageError, "tag"),
        ({"task": "t"}, UsageError, "step"),
    ],
)
def test_what_is_refused_leaves_nothing_behind(
    file_home: Home, wish: dict[str, Any], error: type[Exception], says: str
) -> None:
    """Half an operation would be worse than none."""
    file_home.contract('name = "broken"\nbase_url = 5\n', "broken")
    file_home.contract(JOBS.replace("[create]", '[create]\nfields = { "/ref" = "{operation_id}" }'))
    with file_home.ledger() as ledger:
        with pytest.raises(error, match=f"(?i){says}"):
            ledger.submit(**{"contract": "jobs", "body": BODY, **wish})
        assert ledger.list() == ()


def test_a_field_that_the_contract_fills_in_is_not_overwritten(file_home: Home) -> None:
    """The caller would otherwise send one reference and the ledger look for another."""
    file_home.contract(JOBS.replace("[create]", '[create]\nfields = { "/ref" = "{operation_id}" }'))
    with file_home.ledger() as ledger, pytest.raises(Refused, match="/ref"):
        ledger.submit("jobs", {"ref": "mine"})


def test_many_wishes_each_have_their_outcome(home: Home) -> None:
    """One bad wish must not cost the others."""
    with home.ledger() as ledger:
        first = ledger.submit("jobs", BODY, operation_id="op_a")
        asked = [
            Wish("jobs", BODY, requested_by="agent-7", operation_id="op_a"),
            Wish("jobs", {"rows": 9}, requested_by="agent-7", operation_id="op_a"),
            Wish("nowhere", BODY, requested_by="agent-7"),
            *(Wish("jobs", {"rows": n}, requested_by="agent-7", operation_id=f"op_n{n}") for n in range(50)),
            Wish("jobs", {"rows": 0}, requested_by="agent-8", operation_id="op_n0"),
        ]
        found = ledger.submit_many(asked)
        assert found[0] == first
        assert isinstance(found[1], BodyConflict)
        assert isinstance(found[2], UnknownContract)
        assert found[3] == found[-1]
        assert len(ledger.list(limit=100)) == 51


def test_an_operation_can_replace_another(ledger: Ledger) -> None:
    """A new try with a new token is a new operation that links to the old one."""
    old = ledger.submit("jobs", BODY)
    assert ledger.submit("jobs", BODY, supersedes=old.operation_id).supersedes == old.operation_id
    assert ledger.submit("jobs", BODY, supersedes=old.operation_id[-8:]).supersedes == old.operation_id


def test_a_contract_is_read_again_only_when_a_file_has_changed(
    file_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents submit in loops, and operators edit contracts meanwhile."""
    reads: list[str] = []
    honest = config.find_contract

    def counted(settings: config.Settings, name: str) -> Contract:
        reads.append(name)
        return honest(settings, name)

    monkeypatch.setattr(config, "find_contract", counted)
    with file_home.ledger() as ledger:
        first = [ledger.submit("jobs", {"rows": n}) for n in range(3)]
        assert len(reads) == 1
        assert len({op.contract_digest for op in first}) == 1
        file_home.contract(JOBS + CANCEL + "# edited\n")
        edited = ledger.submit("jobs", BODY)
        assert edited.contract_digest != first[0].contract_digest
        assert ledger.contract_of(edited).source.endswith("# edited\n")
        file_home.contract(JOBS + CANCEL, "other")
        assert ledger.submit("other", BODY).contract == "other"
        (file_home.root / "contracts" / "jobs.toml").unlink()
        with pytest.raises(UnknownContract):
            ledger.submit("jobs", BODY)
