"""The short form of ``python -m tests.network cuts``, and broken products that it must catch."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import aiohttp
import httpx
import pytest

from opledger.edges.connections import Connector
from opledger.edges.failures import Trail
from opledger.edges.http import Http
from opledger.rules import answers
from opledger.rules import evidence as e
from opledger.rules.calls import Failure, Fate
from opledger.rules.results import Checker
from tests.network import cuts, tls
from tests.network.cuts import PHASES, Case, Tally
from tests.network.proxy import Proxy, Toxic, framed
from tests.network.stand import SHORT, Stand, stand
from tests.scenarios.stage import Stage

AT_ONCE = [phase for phase in PHASES if phase != "token"]


@pytest.fixture(scope="module")
def here() -> Iterator[Stand]:
    """Worker, proxy and provider, with patience."""
    with stand() as made:
        yield made


@pytest.fixture(scope="module")
def hurried() -> Iterator[Stand]:
    """The same with short timeouts."""
    with stand(SHORT) as made:
        yield made


@pytest.fixture(scope="module")
def lengths(here: Stand) -> dict[str, tuple[int, int]]:
    """Bytes of the request and of the answer of each phase."""
    return cuts.sizes(here)


def done(here: Stand, chosen: Sequence[Case]) -> Tally:
    """Run cases; nothing may be wrong."""
    total = Tally()
    for batch in cuts.batches([case for case in chosen if cuts.usable(case)]):
        total.add(cuts.run(here, batch))
    assert total.faults == []
    return total


def caught(here: Stand, *chosen: Case, refused: bool = False) -> str:
    """Run cases of one phase against a broken product; returns what was found."""
    found = cuts.run(here, chosen, refused=refused)
    assert found.faults
    return "\n".join(found.faults)


# --- the product ------------------------------------------------------------------------------------------------------


def test_cuts_at_many_bytes_of_every_phase(here: Stand, lengths: dict[str, tuple[int, int]]) -> None:
    total = done(here, cuts.some_cuts(lengths, 72, seed=3))
    assert set(total.cases) == set(PHASES)
    assert total.arrived > 10
    assert {("create", "CallLost"), ("create", "Accepted"), ("result", "ReadFailed")} <= set(total.told)


def test_every_kind_of_trouble_that_is_over_soon(here: Stand, lengths: dict[str, tuple[int, int]]) -> None:
    """Half of them in each phase; all of them everywhere are the command's short form."""
    chosen = []
    for number, phase in enumerate(AT_ONCE):
        chosen += cuts.spread({phase: lengths[phase]}, cuts.QUICK[number % 2 :: 2], 3)[1::3]
    total = done(here, chosen)
    assert {kind for _, kind in total.kinds} == {toxic.kind for toxic in cuts.QUICK}
    assert set(total.cases) == set(AT_ONCE)


def test_every_kind_of_trouble_that_only_a_deadline_ends(hurried: Stand, lengths: dict[str, tuple[int, int]]) -> None:
    hanging = cuts.spread({phase: lengths[phase] for phase in AT_ONCE}, cuts.HANGING, 3)[1::3]
    total = done(hurried, [*hanging, Case("token", Toxic("silent"))])
    assert total.lost >= len(hanging)
    assert {kind for _, kind in total.kinds} == {toxic.kind for toxic in cuts.HANGING}


@pytest.mark.parametrize("phase", cuts.REFUSED)
def test_what_nobody_took_is_sent_again(here: Stand, phase: str) -> None:
    found = cuts.run(here, [Case(phase, cuts.HONEST)] * 2, refused=True)
    assert found.faults == []


def test_two_status_answers_that_change_places_stop_both_operations(here: Stand) -> None:
    found = cuts.run(here, [Case("status", cuts.CROSSED)] * 2)
    assert found.faults == []
    assert found.states == {"contract_violation": 2}


def test_tls_that_breaks_at_many_bytes() -> None:
    found = tls.run(step=97)
    assert found.faults == []
    assert found.cases > 80


def test_the_same_seed_makes_the_same_cases(lengths: dict[str, tuple[int, int]]) -> None:
    one, two, other = (cuts.some_cuts(lengths, 300, seed) for seed in (5, 5, 6))
    assert one == two != other
    assert len(set(cuts.every_cut(lengths, both=True))) > 10_000


def test_answers_are_framed_in_three_ways() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nx: 1\r\n\r\n12345"
    assert framed(answer, "length") == answer
    assert framed(answer, "close") == b"HTTP/1.1 200 OK\r\nx: 1\r\nconnection: close\r\n\r\n12345"
    assert framed(answer, "chunked").endswith(b"chunked\r\n\r\n2\r\n12\r\n3\r\n345\r\n0\r\n\r\n")


def test_results_are_taken_apart_one_at_a_time(here: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads take no less time for it, and the memory of each."""
    guard, most, now = threading.Lock(), 0, 0
    finish = Checker.finish

    def counted(checker: Checker) -> Any:
        nonlocal most, now
        with guard:
            now += 1
            most = max(most, now)
        try:
            threading.Event().wait(0.01)  # long enough for another one to come in
            return finish(checker)
        finally:
            with guard:
                now -= 1

    monkeypatch.setattr(Checker, "finish", counted)
    made = [here.stage.submit(_seconds=1) for _ in range(12)]
    here.stage.run()
    assert {here.stage.show(one).state for one in made} == {"succeeded"}
    assert most == 1


# --- broken products --------------------------------------------------------------------------------------------------

CUT = Toxic("cut", "answer", 300)


def test_a_cut_answer_that_is_read_as_a_refusal_is_caught(here: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    read = answers.read_create

    def broken(outcome: Any, *rest: Any, **facts: Any) -> answers.Reading:
        if isinstance(outcome, Failure) and outcome.status is not None:
            return answers.Reading(e.Refused(call_id=facts["call_id"], why="cut"))
        return read(outcome, *rest, **facts)

    monkeypatch.setattr(answers, "read_create", broken)
    assert "it ended as failed" in caught(here, Case("create", CUT))


def test_a_lost_create_that_is_called_not_delivered_is_caught(here: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = Trail.failure
    monkeypatch.setattr(Trail, "failure", lambda trail, why: replace(failure(trail, why), fate=Fate.NOT_DELIVERED))
    assert "is called not delivered" in caught(here, Case("create", CUT))


def test_a_create_without_its_token_is_caught(here: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    send = Http.send

    async def broken(http: Http, request: Any) -> Any:
        kept = tuple((name, value) for name, value in request.headers if name.lower() != "idempotency-key")
        return await send(http, replace(request, headers=kept) if request.method == "POST" else request)

    monkeypatch.setattr(Http, "send", broken)
    found = cuts.run(here, [Case("resend", CUT)])
    assert any("started 2 jobs" in fault or "never came" in fault for fault in found.faults)


def test_a_call_without_a_total_deadline_is_caught(hurried: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    async def endless(_: Http, __: Trail, work: Any) -> Any:
        return await work

    monkeypatch.setattr(Http, "_bounded", endless)
    assert "was open for" in caught(hurried, Case("create", Toxic("drip", "answer", 250, seconds=0.03)))


def test_a_stray_answer_that_is_read_as_the_next_one_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connector, "_get", aiohttp.TCPConnector._get)
    monkeypatch.setattr(Connector, "_release", aiohttp.TCPConnector._release)
    turn, proxies = Stage.turn, list[Proxy]()

    def patient(stage: Stage, worker: Any = None) -> int:
        """A turn, and then a moment for what comes late."""
        taken, ends = turn(stage, worker), monotonic() + 60
        while (
            any(one.toxic == late and not one.stray for proxy in proxies for one in proxy.seen) and monotonic() < ends
        ):
            threading.Event().wait(0.002)
        return taken

    late = Toxic("late", seconds=0.005)
    monkeypatch.setattr(Stage, "turn", patient)
    with stand() as fresh:
        proxies.append(fresh.proxy)
        assert "whole answer came and says something else" in caught(fresh, *[Case("status", late)] * 6)


def test_a_read_that_is_repeated_behind_our_back_is_caught(here: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    new = Http._new_session

    def broken(http: Http, connector: Any) -> aiohttp.ClientSession:
        session = new(http, connector)
        session._retry_connection = True
        return session

    monkeypatch.setattr(Http, "_new_session", broken)
    with stand() as fresh:
        assert "the journal" in caught(fresh, *[Case("status", Toxic("cut", "answer", 0))] * 4)


def test_a_cut_result_that_is_taken_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(http: Http, trail: Trail, stream: Any, stall: Any) -> Any:
        try:
            return await http._streamed(trail, stream, stall)
        except (aiohttp.ClientError, httpx.HTTPError, OSError):
            return await stream.finish(http._clock.now()) if stream.started else trail.failure("cut")

    monkeypatch.setattr(Http, "_download", broken)
    with stand(lax=True) as lax:
        assert "of the answer came" in caught(lax, *[Case("result", Toxic("cut", "answer", 350))] * 2)


def test_a_cancel_that_is_sent_again_is_caught(here: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    send = Http.send

    async def twice(http: Http, request: Any) -> Any:
        outcome = await send(http, request)
        if request.method == "DELETE" and isinstance(outcome, Failure):
            outcome = await send(http, request)
        return outcome

    monkeypatch.setattr(Http, "send", twice)
    assert "under 1 permits" in caught(here, Case("cancel", Toxic("cut", "answer", 100)))


def test_what_is_patched_is_put_back() -> None:
    assert asyncio.iscoroutinefunction(Http._bounded)
    assert Connector._get is not aiohttp.TCPConnector._get
