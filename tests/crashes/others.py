"""Stories of results, and of providers that break their word or are in trouble."""

from __future__ import annotations

from typing import Final

from opledger.rules.model import State
from opledger.sim.hooks import webhook_text
from opledger.sim.process import BackDoor
from opledger.sim.tokens import CLIENT
from tests.crashes.core import CALLS, FILES, ITEMS, control, one_copy, wish, work
from tests.crashes.creating import decide
from tests.crashes.life import Life, Story

S = State
BEARER: Final = 'kind = "bearer"\nsecret = "env:SIM_TOKEN"'
LIST_ONLY: Final = {'[[reconcile]]\nstrategy = "resend"\n': ""}

# --- the provider breaks its word -------------------------------------------------------------------------------------


def kept(life: Life) -> None:
    """A person keeps the first job that came up, and it is followed to its end."""
    life.run(1200)
    op = life.op()
    if op.state is S.CONTRACT_VIOLATION:
        decide(life, "keep", job=op.jobs[0])
    life.run()


def one_cancelled(life: Life) -> None:
    """A person lets one of the two jobs be cancelled."""
    life.run(1200)
    op = life.op()
    if op.state is S.CONTRACT_VIOLATION and op.jobs:
        decide(life, "cancel", job=op.jobs[0])
    life.run()
    decide(life, "close")


def all_closed(life: Life) -> None:
    """A person closes whatever stands still."""
    life.run()
    for op in life.operations():
        if op.state is S.CONTRACT_VIOLATION:
            life.ledger.resolve(op.operation_id, "close", reason="support has it")
    life.run()


def listed_twice(sim: BackDoor, ids: list[str]) -> None:
    """Two jobs answer to our reference."""
    jobs = [{"client_ref": ids[0], "state": "running", "created_at": "2100-01-01T00:00:00Z"} for _ in "ab"]
    page = {"data": [{"id": f"job_{name}", **job} for name, job in zip("ab", jobs, strict=True)], "next": None}
    sim.control(drop_next="create", answer_next=[{"kind": "list", "status": 200, "body": page}] * 9)


def mismatch(sim: BackDoor, ids: list[str]) -> None:
    """The token is known with another body."""
    body = {"error": {"code": "idempotency_mismatch", "message": "other parameters"}, "id": "job_other"}
    sim.control(drop_next="create", answer_next=[{"kind": "create", "status": 422, "body": body, "before": True}] * 9)


def only_listed(life: Life) -> None:
    """Only the list tells."""
    life.contract("body", {**LIST_ONLY, 'max = "60s"': 'max = "20m"', "factor = 2.0": "factor = 10.0"})
    life.submit(flavour="body", _seconds=7200)


def shared_id(life: Life) -> None:
    """Two operations, and the provider gives both the same job."""
    life.contract()
    life.submit("id_reusing", _seconds=1800)
    life.submit("id_reusing", _seconds=1800)


def comes_undone(life: Life) -> None:
    """The job has succeeded, and before its result is here it says that it failed."""
    op = life.go(lambda op: op.state is S.RESULT_COLLECTING or op.state.terminal)
    if op.state is S.RESULT_COLLECTING:
        life.sim.control(job={"id": op.remote_job_id, "state": "failed"})
    all_closed(life)


# --- trouble ----------------------------------------------------------------------------------------------------------


def broken(sim: BackDoor, ids: list[str]) -> None:
    """500 and 502 to the create, to reads, and to the result."""
    bad = {"status": 500, "body": {"error": {"code": "internal"}}, "before": True}
    html = {"status": 502, "body": "<html>nginx</html>", "content_type": "text/html"}
    kinds = ("create", "status", "result")
    sim.control(answer_next=[{"kind": kind, **one} for kind in kinds for one in (bad, html)])


def oauth(life: Life) -> None:
    """The provider wants access tokens, which do not last long."""
    auth = f"""\
kind = "oauth2_client_credentials"
token_url = "{life.sim.base_url}/oauth/token"
client_id = "{CLIENT}"
client_auth = "basic"
secret = "env:SIM_TOKEN"
margin = "60s"
"""
    life.contract(changes={BEARER: auth})
    life.submit(_seconds=900)


def short_lived(sim: BackDoor, ids: list[str]) -> None:
    """Access tokens end sooner than was said, so that reads are refused with them."""
    sim.control(access={"lifetime": 200, "said": 3600})


def resumed(life: Life) -> None:
    """The credential was refused; a person puts that right and says so, in time also where it is told twice."""
    life.run(200)
    if life.ledger.store.paused():
        life.ledger.resume_provider("sim", reason="a new credential is in place")
    life.run()


def hinted(life: Life) -> None:
    """Webhooks beside polls: each makes a read due, and is durable before it is confirmed."""
    op = life.go(lambda op: op.remote_job_id is not None)
    if not op.state.terminal:
        life.deliver("queued", "running")
        life.turn()
        life.passes(60)
        life.deliver("succeeded")
    life.run()


def with_hooks(life: Life) -> None:
    """A provider that also sends webhooks."""
    life.contract(
        "v1",
        {'max = "60s"': 'max = "1h"', 'first = "1s"': 'first = "1h"'},
        more=webhook_text("standard", "env:HOOK_SECRET"),
    )
    life.submit(_seconds=30)


def three_heard(life: Life) -> None:
    """All three are there, once each."""
    assert len(life.ledger.store.deliveries()) == 3, life.ledger.store.deliveries()


# --- results ----------------------------------------------------------------------------------------------------------


def wrong_result(life: Life) -> None:
    """The checksum never fits; a person takes the result all the same."""
    life.run()
    decide(life, "accept")
    life.run()


def expected(life: Life) -> None:
    """More was expected of the result than what comes."""
    life.contract()
    life.submit(rows=3, wish={"expectation": "count >= 28"}, _polls=1)


def fetched_again(life: Life) -> None:
    """The result could not be had; a person asks for it once more."""
    life.run()
    decide(life, "collect")
    life.run()
    decide(life, "close")


CLOSED: Final = frozenset({S.RESOLVED})

OTHERS: Final = (
    Story(
        "resumed-transfer",
        wish(personality="breaking", variant="resumes", _polls=1),
        work,
        (S.SUCCEEDED,),
        must=FILES,
        check=one_copy,
    ),
    Story(
        "restarted-transfer",
        wish(personality="breaking", variant="restarts", _polls=1),
        work,
        (S.SUCCEEDED,),
        must=FILES,
        check=one_copy,
    ),
    Story(
        "fresh-address",
        wish(personality="expiring", variant="fresh", _polls=1),
        work,
        (S.SUCCEEDED,),
        must=FILES,
        check=one_copy,
    ),
    Story(
        "gone-result", wish(personality="expiring", variant="gone", _polls=1), fetched_again, (S.RESOLVED,), must=CALLS
    ),
    Story("items", wish("batch", "batch", "mixed", requests=ITEMS, _polls=1), work, (S.SUCCEEDED,), must=FILES),
    Story("partial", wish("batch", "failing", requests=ITEMS, _polls=1), work, (S.FAILED,), must=FILES, check=one_copy),
    Story(
        "wrong-checksum",
        wish(personality="bad_checksum", variant="always", _polls=1),
        wrong_result,
        (S.RESOLVED,),
        must=FILES,
    ),
    Story("less-than-expected", expected, wrong_result, (S.RESOLVED,), must=FILES, check=one_copy),
    Story(
        "second-job",
        wish(personality="token_ignoring", pace="20m", _seconds=1800),
        kept,
        (S.SUCCEEDED,),
        CLOSED,
        must=CALLS,
        jobs=9,
        faults=True,
    ),
    Story(
        "other-id", wish(personality="id_changing", _seconds=1800), all_closed, (S.RESOLVED,), must=CALLS, faults=True
    ),
    Story("two-listed", only_listed, one_cancelled, (S.RESOLVED,), must=CALLS, begin=listed_twice, faults=True),
    Story(
        "one-id-for-two",
        shared_id,
        all_closed,
        (S.RESOLVED, S.RESOLVED),
        frozenset({S.SUCCEEDED}),
        must=CALLS,
        faults=True,
    ),
    Story(
        "token-mismatch",
        wish(_seconds=1800),
        all_closed,
        (S.RESOLVED,),
        # Dead before the first create left, the resend is the one whose answer is lost, and the list finds its job.
        frozenset({S.SUCCEEDED}),
        must=CALLS,
        begin=mismatch,
        faults=True,
    ),
    Story(
        "undone",
        wish(personality="expiring", variant="late", _seconds=1),
        comes_undone,
        (S.RESOLVED,),
        frozenset({S.SUCCEEDED, S.FAILED}),
        must=CALLS,
        faults=True,
    ),
    Story("throttled", wish(personality="throttling", _polls=4), work, (S.SUCCEEDED,), must=FILES),
    Story("broken", wish(_polls=3), work, (S.SUCCEEDED,), must=FILES, begin=broken),
    Story("oauth", oauth, work, (S.SUCCEEDED,), must=FILES, begin=short_lived),
    Story(
        "resumed-provider",
        wish(_polls=1),
        resumed,
        (S.SUCCEEDED,),
        must=FILES,
        begin=control(answer_next={"kind": "create", "status": 401, "body": {}, "before": True}),
    ),
    Story("hinted", with_hooks, hinted, (S.SUCCEEDED,), must=FILES | {"delivery"}, check=three_heard),
)
