from __future__ import annotations

import tomllib

import pytest

from opledger.rules.files.contract import parse
from opledger.rules.guarantees import at_most_once
from opledger.sim.contracts import DEADLINES, contract_name, contract_text
from opledger.sim.flavours import FLAVOURS
from tests.core.sim.conftest import Client

BASE = "http://127.0.0.1:8001"


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_contract_tells_the_token_where_the_flavour_reads_it(flavour: str) -> None:
    """The contract and the server are two files about one thing."""
    document = tomllib.loads(contract_text(flavour, BASE))
    about = FLAVOURS[flavour]
    identity = document["create"]["idempotency"]
    assert document["name"] == contract_name(flavour)
    assert document["create"]["path"] == f"/{flavour}/jobs"
    assert identity.get("name", "").lower().lstrip("/") == about.token
    mechanisms = {
        "header": {"header"},
        "query": {"query"},
        "none": {"none"},
        "body": {"body", "client_id", "unique_name"},
    }
    assert identity["mechanism"] in mechanisms[about.place]


@pytest.mark.parametrize(
    ("flavour", "grade"),
    [
        ("v1", "bounded"),
        ("guarded", "bounded"),
        ("header", "bounded"),
        ("none", "none"),
        ("clientid", "server_enforced"),
        ("query", "bounded"),
        ("body", "bounded"),
        ("unique", "bounded"),
        ("singleton", "lookup_weak"),
        ("batch", "bounded"),
        ("once", "bounded"),
        ("inline", "bounded"),
    ],
)
def test_a_contract_is_read_and_promises_what_the_flavour_keeps(flavour: str, grade: str) -> None:
    """Every grade of "at most once" has a provider here to try it on."""
    contract = parse(contract_text(flavour, BASE, elsewhere="http://127.0.0.1:9"), environment={})
    assert at_most_once(contract) == grade


def test_every_flavour_is_graded_above() -> None:
    """A new one must say what it promises."""
    assert len(FLAVOURS) == 12


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_contract_looks_jobs_up_only_where_the_flavour_can(flavour: str) -> None:
    """A look-up of something that is not there would prove absence wrongly."""
    document = tomllib.loads(contract_text(flavour, BASE))
    strategies = [strategy["strategy"] for strategy in document.get("reconcile", [])]
    about = FLAVOURS[flavour]
    assert ("list" in strategies) == about.lists
    assert ("resend" in strategies) == (about.repeat in ("replay", "current"))
    assert ("get" in strategies) == about.client_id


def test_the_deadlines_and_the_secret_can_be_chosen() -> None:
    """Tests want short ones, and a credential that is missing."""
    document = tomllib.loads(contract_text("v1", BASE, deadlines={"cancel": "1s"}, secret="env:NOT_THERE"))
    assert document["deadlines"] == {**DEADLINES, "cancel": "1s"}
    assert document["auth"]["secret"] == "env:NOT_THERE"


def test_results_may_be_read_from_the_other_origin_only_if_it_is_named() -> None:
    """As host and port."""
    assert tomllib.loads(contract_text("v1", BASE))["result_hosts"] == []
    named = tomllib.loads(contract_text("v1", BASE, elsewhere="http://127.0.0.1:9"))
    assert named["result_hosts"] == ["127.0.0.1:9"]


def test_an_unknown_flavour_is_an_error() -> None:
    """Never an empty contract."""
    with pytest.raises(KeyError):
        contract_text("v2", BASE)


def test_the_served_contract_names_its_own_server(client: Client) -> None:
    """Fetched and used as it is."""
    document = tomllib.loads(client.sim.contract("guarded"))
    assert document["base_url"] == client.sim.base_url
    assert document["result_hosts"] == [client.sim.elsewhere.removeprefix("http://")]
    assert client.http.get("/_contract/nothing").status_code == 404
