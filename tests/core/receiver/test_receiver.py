from __future__ import annotations

import gzip
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest

from opledger import Ledger
from opledger.errors import StoreUnavailable
from opledger.ledger.deliveries import Deliveries, Doors
from opledger.receiver import Limits
from opledger.receiver import server as serving
from opledger.rules.model import State
from tests.core.ledgers import BODY, Home, accepted, happens, observed, sent
from tests.core.rules.operations import CANCEL, JOBS
from tests.fakes.clock import HandClock
from tests.fakes.hooks import WEBHOOK, ReceiverThread, event, post, signed


def running(ledger: Ledger) -> Any:
    """An operation whose job runs, and is to be looked at much later."""
    op = ledger.submit("jobs", BODY, requested_by="agent-7")
    return happens(ledger, op, sent(), accepted(), observed())


def kinds(ledger: Ledger, operation: Any) -> list[str]:
    """The kinds of evidence in a journal, in order."""
    return [one.kind for one in ledger.events(operation.operation_id)]


def refused(ledger: Ledger) -> dict[tuple[str, str], int]:
    """The counters of refusals."""
    return {(one.contract, one.kind): one.times for one in ledger.store.refusals()}


def raw(address: str, *pieces: bytes, close: bool = False) -> bytes:
    """Send bytes as they are, and read until the other side has nothing more to say."""
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as line:
        for piece in pieces:
            line.sendall(piece)
        if close:
            line.shutdown(socket.SHUT_WR)
        found = b""
        while chunk := line.recv(65536):
            found += chunk
        return found


def test_a_delivery_is_stored_and_brings_the_next_read_forward(both: Ledger) -> None:
    """And nothing else: the state is what the read says (I15, I18)."""
    op = running(both)
    with ReceiverThread(both) as receiver:
        body = event("job.succeeded", id="job_7")
        assert receiver.send("jobs", body, "msg_1") == (202, {"status": "stored"})
        assert receiver.send("jobs", body, "msg_1") == (202, {"status": "duplicate"})
    now = both.show(op.operation_id)
    assert (now.state, now.remote_state, now.version) == (State.OBSERVING, "running", op.version + 1)
    assert now.next is not None and now.next.kind == "observe"
    last = both.events(op.operation_id)[-1]
    assert (last.kind, last.reason) == ("Notified", "a webhook says job.succeeded")
    assert now.next.at == last.at
    assert str(last.cause).startswith("webhook:dlv_")
    assert last.data is not None
    kept = both.store.answer(str(last.data["answer"]))
    assert kept is not None and kept.body == body
    (delivery,) = Deliveries(both).listed(op.operation_id)
    assert (delivery.key, delivery.event_type, delivery.job_id) == ("id:msg_1", "job.succeeded", "job_7")


def test_what_comes_before_the_create_answer_waits_for_it(both: Ledger) -> None:
    """B37: by job id it waits until the id is known, by our own reference it is handed over at once."""
    first = both.submit("jobs", BODY, requested_by="agent-7")
    second = both.submit("jobs", {"rows": 6}, requested_by="agent-7")
    happens(both, first, sent("call_1"))
    happens(both, second, sent("call_2"))
    with ReceiverThread(both) as receiver:
        assert receiver.send("jobs", event("job.done", id="job_7"), "msg_1")[0] == 202
        assert receiver.send("jobs", event("job.done", id="job_8", client_ref=second.operation_id), "msg_2")[0] == 202
    assert kinds(both, first)[-1] == "CallSent"
    assert kinds(both, second)[-1] == "Notified"
    assert both.events(second.operation_id)[-1].reason == "a webhook says job.done and names job job_8"
    assert Deliveries(both).match_parked() == 0
    happens(both, first, accepted("job_7", "call_1"))
    assert Deliveries(both).match_parked() == 1
    assert kinds(both, first)[-2:] == ["Accepted", "Notified"]
    assert Deliveries(both).match_parked() == 0
    assert both.store.parked_counts() == {}


def test_our_token_says_who_is_meant_and_not_the_job_of_another_operation(both: Ledger) -> None:
    """A delivery that contradicts itself must not move the operation whose job it names: it is about another one."""
    first = both.submit("jobs", BODY, requested_by="agent-7")
    second = both.submit("jobs", {"rows": 6}, requested_by="agent-7")
    third = both.submit("jobs", {"rows": 7}, requested_by="agent-7")
    happens(both, first, sent("call_1"), accepted("job_7", "call_1"))
    happens(both, second, sent("call_2"), accepted("job_8", "call_2"))
    with ReceiverThread(both) as receiver:
        receiver.send("jobs", event("job.done", id="job_8", client_ref=first.operation_id), "msg_1")
        receiver.send("jobs", event("job.done", id="job_8", client_ref=third.operation_id), "msg_2")
        assert [kinds(both, one)[-1] for one in (first, second)] == ["Notified", "Accepted"]
        assert Deliveries(both).match_parked() == 0
        happens(both, third, sent("call_3"))
        assert Deliveries(both).match_parked() == 1
        assert [kinds(both, one)[-1] for one in (second, third)] == ["Accepted", "Notified"]


def test_the_token_of_an_operation_that_has_ended_keeps_a_delivery_from_nobody(both: Ledger) -> None:
    """A person may have closed one, and bound its job to another."""
    ended = both.cancel(both.submit("jobs", BODY).operation_id, reason="not needed")
    waits, bound = (both.submit("jobs", {"rows": rows}) for rows in (6, 7))
    happens(both, bound, sent("call_1"), accepted("job_7", "call_1"))
    with ReceiverThread(both) as receiver:
        receiver.send("jobs", event("job.done", id="job_7", client_ref=ended.operation_id), "msg_1")
        receiver.send("jobs", event("job.done", id="job_8", client_ref=ended.operation_id), "msg_2")
    assert kinds(both, bound)[-1] == "Notified"
    happens(both, waits, sent("call_2"), accepted("job_8", "call_2"))
    assert Deliveries(both).match_parked() == 1
    assert kinds(both, waits)[-1] == "Notified"


def test_of_a_job_that_is_not_ours_nothing_is_told(ledger: Ledger, home: Home, receiver: ReceiverThread) -> None:
    """The same job id at another provider is another job; our own reference at another provider is refused."""
    op = running(ledger)
    home.contract(JOBS + CANCEL + WEBHOOK, name="others")
    receiver.receiver.doors.look()
    assert receiver.send("others", event("job.done", id="job_7"), "msg_1")[0] == 202
    status, answer = receiver.send("others", event("job.done", id="x", client_ref=op.operation_id), "msg_2")
    assert (status, answer["error"]["code"]) == (401, "wrong_tenant")
    receiver.stop()
    assert ledger.show(op.operation_id).version == op.version
    assert [one.key for one in Deliveries(ledger).listed(parked=True)] == ["id:msg_1"]
    assert refused(ledger) == {("others", "wrong_tenant"): 1}


def test_strange_deliveries_are_refused_and_counted(ledger: Ledger, receiver: ReceiverThread) -> None:
    """Each with its own answer; none of them leaves anything but a number."""
    op = running(ledger)
    body, now = event("job.done", id="job_7"), ledger.clock.now().timestamp()
    right = signed(body, "msg_1", now)
    twice = b'{"data": {"id": "job_1", "id": "job_7"}}'
    attempts: list[tuple[int, str, bytes, dict[str, str], str]] = [
        (401, "signature", body + b" ", right, "jobs"),
        (401, "signature", body, signed(body, "msg_1", now, "whsec_b3RoZXI="), "jobs"),
        (401, "unsigned", body, {}, "jobs"),
        (401, "stale", body, signed(body, "msg_1", now - 3600), "jobs"),
        (401, "future", body, signed(body, "msg_1", now + 3600), "jobs"),
        (400, "malformed", twice, signed(twice, "msg_1", now), "jobs"),
        (400, "compressed", gzip.compress(body), {**right, "content-encoding": "gzip"}, "jobs"),
        (413, "too_large", b"x" * (1024 * 1024 + 1), right, "jobs"),
        (404, "unknown_contract", body, right, "nobody"),
        (404, "unknown_contract", body, right, "prefect"),
    ]
    for status, code, content, headers, contract in attempts:
        found, answer = post(receiver.url(contract), content, headers)
        assert (found, answer["error"]["code"]) == (status, code)
        assert "whsec" not in str(answer)
    receiver.stop()
    assert ledger.show(op.operation_id) == op
    assert Deliveries(ledger).listed() == []
    assert refused(ledger) == {
        ("", "unknown_contract"): 2,
        ("jobs", "compressed"): 1,
        ("jobs", "future"): 1,
        ("jobs", "malformed"): 1,
        ("jobs", "signature"): 2,
        ("jobs", "stale"): 1,
        ("jobs", "too_large"): 1,
        ("jobs", "unsigned"): 1,
    }
    checks = {check.name: check for check in ledger.doctor()}
    assert not checks["webhooks of jobs"].ok
    assert "2 signature" in checks["webhooks of jobs"].message
    assert checks["webhooks"].ok
    assert checks["webhooks"].message.endswith(": 2 unknown_contract")


def test_a_body_without_a_length_is_cut_at_the_limit(ledger: Ledger) -> None:
    """Chunks say nothing of how many will come."""
    head = b"POST /webhooks/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with ReceiverThread(ledger, limits=Limits(largest=1000)) as receiver:
        found = raw(receiver.address, head, b"3e8\r\n" + b"x" * 1000 + b"\r\n1\r\nx\r\n")
        assert found.startswith(b"HTTP/1.1 413")
        assert b"connection: close" in found.lower()
        assert receiver.receiver.intake.held == 0


def test_a_slow_body_is_given_up(ledger: Ledger) -> None:
    """One that drips holds a place that others need."""
    with ReceiverThread(ledger, limits=Limits(within=0.05)) as receiver:
        found = raw(receiver.address, b"POST /webhooks/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert found.startswith(b"HTTP/1.1 408")
        assert receiver.receiver.intake.open == 0
        assert receiver.receiver.intake.held == 0
    assert refused(ledger) == {("jobs", "too_slow"): 1}


@pytest.mark.parametrize(
    "head", [b"GET / HTTP/1.1\r\nX: ", b"GET / HTT", b"POST /webhooks/jobs HTTP/1.1\r\nHost: x\r\n"]
)
def test_headers_that_do_not_end_are_given_up(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, head: bytes) -> None:
    """However slowly they come: the server under us would wait for ever."""
    monkeypatch.setattr(serving, "WITHIN", 0.05)
    with ReceiverThread(ledger) as receiver:
        assert raw(receiver.address, head).startswith(b"HTTP/1.1 400")
        assert raw(receiver.address) == b""  # a line on which nothing is said is closed without a word


def test_too_many_headers_are_refused(receiver: ReceiverThread) -> None:
    """In one piece, in many, and as one that never ends."""
    start = b"POST /webhooks/jobs HTTP/1.1\r\nHost: x\r\n"
    many = b"".join(b"X-%d: y\r\n" % number for number in range(200))
    assert raw(receiver.address, start + many + b"\r\n").startswith(b"HTTP/1.1 400")
    assert raw(receiver.address, start + b"X: " + b"y" * 70_000).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    ("head", "status", "code", "says"),
    [
        (b"GET /webhooks/jobs", 405, "method", "this address takes POST"),
        (b"PUT /webhooks/jobs/", 405, "method", "this address takes POST"),
        (b"POST /healthz", 405, "method", "this address takes GET"),
        (b"POST /", 404, "unknown_path", "deliveries go to /webhooks/CONTRACT"),
        (b"POST /webhooks", 404, "unknown_path", "deliveries go to /webhooks/CONTRACT"),
        (b"GET /healthz/", 404, "unknown_path", "deliveries go to /webhooks/CONTRACT"),
        (b"?", 400, "malformed", "Invalid HTTP request received."),
    ],
)
def test_what_is_no_delivery_gets_a_document_too(
    receiver: ReceiverThread, head: bytes, status: int, code: str, says: str
) -> None:
    """Whoever sets a webhook up reads the answers by program; and none of them is a redirect."""
    told = raw(receiver.address, head + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    begin, _, document = told.partition(b"\r\n\r\n")
    assert begin.startswith(b"HTTP/1.1 %d " % status)
    assert b"content-type: application/json" in begin
    assert (b"allow: " in begin.lower()) == (status == 405)
    error = json.loads(document)["error"]
    assert error["code"] == code
    assert says in error["message"]


def test_a_slash_at_the_end_of_the_address_makes_no_difference(ledger: Ledger, receiver: ReceiverThread) -> None:
    """A redirect would lose the delivery of every sender that follows none."""
    running(ledger)
    body = event("done", id="job_1")
    answer = receiver.send("jobs/", body, "evt_1")
    assert answer == (202, {"status": "stored"})
    assert receiver.send("jobs", body, "evt_1")[1] == {"status": "duplicate"}


def test_a_body_that_breaks_off_is_nothing(ledger: Ledger, receiver: ReceiverThread) -> None:
    """The sender will send it again."""
    raw(receiver.address, b"POST /webhooks/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{", close=True)
    receiver.stop()
    assert receiver.receiver.intake.open == 0
    assert Deliveries(ledger).listed() == []


def test_when_there_is_no_room_the_sender_is_told_to_come_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood is bounded in memory, and nothing that got its 2xx is lost in it."""
    op = running(ledger)
    take, gate = Deliveries.take, threading.Event()

    def slow(self: Deliveries, *arguments: Any) -> Any:
        gate.wait(20)
        return take(self, *arguments)

    monkeypatch.setattr(Deliveries, "take", slow)
    with ReceiverThread(ledger, limits=Limits(waiting=3)) as receiver, ThreadPoolExecutor(3) as senders:
        waiting = [
            senders.submit(receiver.send, "jobs", event("x", id="job_7"), f"msg_{number}") for number in range(3)
        ]
        while receiver.receiver.intake.open < 3:
            pass
        status, answer = receiver.send("jobs", event("x", id="job_7"), "msg_9")
        assert (status, answer["error"]["code"]) == (429, "full")
        gate.set()
        assert {one.result()[0] for one in waiting} == {202}
        assert receiver.send("jobs", event("x", id="job_7"), "msg_9")[0] == 202
    assert kinds(ledger, op).count("Notified") == 4
    assert refused(ledger) == {("jobs", "full"): 1}


def test_without_a_database_nothing_is_acknowledged(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 means: send it again. And the health says so."""
    op = running(ledger)
    take = Deliveries.take
    away = threading.Event()
    away.set()

    def flaky(self: Deliveries, *arguments: Any) -> Any:
        if away.is_set():
            raise StoreUnavailable("the database is away, says the test")
        return take(self, *arguments)

    monkeypatch.setattr(Deliveries, "take", flaky)
    monkeypatch.setattr("opledger.receiver.app.UPKEEP", 60)
    body = event("x", id="job_7")
    with ReceiverThread(ledger) as receiver:
        status, answer = receiver.send("jobs", body, "msg_1")
        assert (status, answer["error"]["code"]) == (503, "unavailable")
        assert raw(receiver.address, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").startswith(
            b"HTTP/1.1 503"
        )
        away.clear()
        assert receiver.send("jobs", body, "msg_1") == (202, {"status": "stored"})
        found = raw(receiver.address, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 200")
        assert b'"contracts":["jobs"]' in found
    assert kinds(ledger, op).count("Notified") == 1


def test_many_at_once_are_stored_once_each(both: Ledger) -> None:
    """B35: each of the events forty times, also in parallel."""
    op = running(both)
    sends = [(event(word, id="job_7"), f"msg_{word}") for word in ("completed", "in_progress", "queued")] * 40
    with ReceiverThread(both) as receiver, ThreadPoolExecutor(8) as senders:
        found = list(senders.map(lambda one: receiver.send("jobs", *one), sends))
    assert {status for status, _ in found} == {202}
    assert [answer["status"] for _, answer in found].count("stored") == 3
    assert kinds(both, op).count("Notified") == 3
    assert both.show(op.operation_id).state is State.OBSERVING


def test_a_delivery_is_known_for_seven_days(home: Home) -> None:
    """Senders try again for days; after that its row goes, and what it led to stays in the journal."""
    clock = HandClock()
    with home.ledger(clock=clock) as ledger, ReceiverThread(ledger) as receiver:
        op = running(ledger)
        body = event("x", id="job_7")
        assert receiver.send("jobs", body, "msg_1") == (202, {"status": "stored"})
        clock.pass_by(7 * 86_400)
        assert Deliveries(ledger).sweep() == 0
        assert receiver.send("jobs", body, "msg_1") == (202, {"status": "duplicate"})
        clock.pass_by(1)
        assert Deliveries(ledger).sweep() == 1
        assert Deliveries(ledger).listed() == []
        assert kinds(ledger, op).count("Notified") == 1


def test_old_news_about_what_has_ended_changes_nothing(ledger: Ledger, receiver: ReceiverThread) -> None:
    """It is stored, so that it is known when it comes again."""
    op = ledger.cancel(ledger.submit("jobs", BODY).operation_id, reason="not needed")
    assert op.state is State.WITHDRAWN
    assert receiver.send("jobs", event("x", client_ref=op.operation_id), "msg_1")[0] == 202
    assert ledger.show(op.operation_id) == op


def test_contracts_and_secrets_are_looked_at_again(ledger: Ledger, home: Home) -> None:
    """A rotated secret, or a contract that gets a webhook, is seen without a restart; a broken file changes nothing."""
    from opledger.edges.secrets import SecretResolver

    environment = {"HOOK_SECRET": "whsec_b2xk"}
    now, ticks = ledger.clock.now(), [0.0]

    class Clock:
        def monotonic(self) -> float:
            return ticks[0]

    doors = Doors(ledger.settings, SecretResolver(environment, clock=Clock()))  # type: ignore[arg-type]
    body = event("x", id="1")
    headers = list(signed(body, "m", now.timestamp(), "whsec_bmV3").items())
    doors.look()
    assert getattr(doors.judge("jobs", body, headers, now), "kind", None) == "signature"
    environment["HOOK_SECRET"], ticks[0] = "whsec_bmV3", 31.0
    doors.look()
    assert not hasattr(doors.judge("jobs", body, headers, now), "kind")
    home.contract("broken", name="other")
    doors.look()
    assert doors.names == ("jobs",)
    environment.clear()
    ticks[0] = 62.0
    doors.look()
    assert getattr(doors.judge("jobs", body, headers, now), "kind", None) == "unavailable"


def test_secrets_and_redacted_places_are_not_stored(home: Home) -> None:
    """A provider that repeats our secret in an event puts it nowhere."""
    home.contract(JOBS + CANCEL + WEBHOOK + '[safety]\nredact = ["/data/patient"]\n')
    with home.ledger() as ledger, ReceiverThread(ledger, secret="whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ=") as receiver:
        body = event("x", id="job_7", patient="Ann", echo="whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ=")
        now = ledger.clock.now().timestamp()
        headers = signed(body, "msg_1", now, "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ=")
        assert post(receiver.url("jobs"), body, headers)[0] == 202
        happens(ledger, ledger.submit("jobs", BODY), sent(), accepted())
        (parked,) = ledger.store.parked_deliveries()
        assert b"Ann" not in parked.answer.body
        assert b"c2VjcmV0" not in parked.answer.body
        assert parked.answer.size >= len(parked.answer.body)
