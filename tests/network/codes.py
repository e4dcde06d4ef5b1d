"""Every status code, in every phase, with every kind of body (T13), held against the table.

The short form hands answers to the readers. The long form brings them over real sockets, through the HTTP edge.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from opledger.edges.http import Http
from opledger.edges.secrets import SecretResolver
from opledger.errors import OpledgerError
from opledger.rules import answers, lookups, states
from opledger.rules import evidence as e
from opledger.rules.calls import Answer, Download, Failure, Fate, Request, origin_of
from opledger.rules.contract import Contract
from opledger.rules.files.contract import parse
from opledger.rules.model import Action, Means, Operation, StoredResult
from opledger.rules.results import Checker, judge, may_be_empty
from tests.fakes.clock import HandClock
from tests.network.table import BODIES, CONTRACT, JOB, PAUSES, PHASES, STATES, Body, content, expected
from tests.support.records import T0, Story, a_permit

CODES: Final = range(100, 600)
CALL: Final = "call_2"
LATER: Final = T0 + timedelta(hours=1)
BODILESS: Final = frozenset({204, 304})
"""Codes whose answers have no body on the wire (RFC 9110 §6.4.1)."""

Outcome = Answer | Failure | Download


@dataclass
class Tally:
    """How many cases had which outcome, and which of them were wrong."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    @property
    def cases(self) -> int:
        """How many were looked at."""
        return self.outcomes.total()

    def missing(self) -> list[str]:
        """Outcomes of the table that no case had."""
        return [f"{phase}: {one}" for phase, found in STATES.items() for one in found if not self.outcomes[phase, one]]


def contract_for(base_url: str = "https://api.example.com", *, proves: bool = True) -> Contract:
    """The contract of the table. `proves`: a look-up under our own token that finds nothing is proof."""
    absence = 'absence_is_proof = true\nsettle = "1m"' if proves else ""
    text = CONTRACT.replace("BASE", base_url).replace("ABSENCE", absence)
    if not proves:
        before, _, after = text.partition('[[reconcile]]\nstrategy = "get"')
        text = before + "[status]" + after.partition("[status]")[2]
    return parse(text, name_hint="reports.toml", environment={})


# --- the operation at each phase ----------------------------------------------------------------------------------


def operation(phase: str, contract: Contract) -> Operation:
    """An operation whose call of this phase is under way, or due."""
    story = Story(contract)
    if phase == "create":
        return story.tell(a_permit(Action.CREATE, CALL))
    if phase in ("resend", "list", "get"):
        story.lost("call_1")
        return story.wait(3000).tell(a_permit(Action.RECONCILE, CALL, strategy=phase))
    story.accepted(JOB, "call_1")
    if phase == "young":
        return story.wait(30).tell(_seen("queued", Means.QUEUED))
    story.wait(3000).tell(_seen("running", Means.RUNNING))
    if phase == "cancel":
        return story.tell(e.CancelRequested(request_id="r1", by="olga"), a_permit(Action.CANCEL, CALL))
    return story.tell(_seen("succeeded", Means.SUCCEEDED)) if phase == "result" else story.op


def _seen(word: str, means: Means) -> e.Observed:
    return e.Observed(call_id="read", job_id=JOB, remote_state=word, means=means)


# --- from an answer to an outcome ---------------------------------------------------------------------------------


def read(phase: str, outcome: Outcome, op: Operation, contract: Contract, body: bytes) -> tuple[str, str, bool]:
    """Read an answer as the worker does; returns what it was taken for, the state after it, and whether it pauses."""
    reading = _reading(phase, outcome, op, contract, body)
    return name_of(phase, reading), str(states.advance(op, reading.evidence)), reading.credentials


def _reading(phase: str, outcome: Outcome, op: Operation, contract: Contract, body: bytes) -> answers.Reading:
    if isinstance(outcome, Download):
        return answers.Reading(_judged(outcome, contract, body))
    if phase in ("create", "resend"):
        return answers.read_create(outcome, op, contract, call_id=CALL, answer=None, resend=phase == "resend")
    if phase in ("list", "get"):
        strategy = next(one for one in contract.reconcile if one.strategy == phase)
        search = lookups.Search(strategy)
        page = lookups.read_page(outcome, op, contract, search, call_id=CALL, answer=None)
        if isinstance(page, answers.Reading):
            return page
        return answers.Reading(lookups.conclude(search, op, LATER, complete=True))
    if phase in ("status", "young"):
        now = T0 + timedelta(seconds=45) if phase == "young" else LATER
        return answers.read_status(outcome, op, contract, call_id=CALL, answer=None, now=now)
    if phase == "cancel":
        return answers.read_cancel(outcome, op, contract, call_id=CALL, answer=None)
    return answers.read_missing_result(outcome, op, contract, call_id=CALL, answer=None)


def _judged(found: Download, contract: Contract, body: bytes) -> e.Evidence:
    """What the worker makes of a file that came; one with a wrong checksum is fetched again."""
    checker = Checker(contract, None, found.headers)
    checker.feed(body)
    verdict = checker.finish()
    if not body and not may_be_empty(contract, None, found.headers):
        return e.ReadFailed(call_id=CALL, action=Action.COLLECT, code="not_ready")
    if verdict.checksum_failed:
        return e.ReadFailed(call_id=CALL, action=Action.COLLECT, code="result")
    whole = judge(contract, None, {"": verdict}, [])
    if not whole.ok:
        return e.ResultInvalid(call_id=CALL, why="; ".join(whole.problems))
    return e.ResultAccepted(call_id=CALL, result=StoredResult("r", verdict.size, verdict.sha256, None, validated=True))


def name_of(phase: str, reading: answers.Reading) -> str:
    """The table's word for some evidence."""
    found = reading.evidence
    if reading.credentials:
        return "credentials"
    if isinstance(found, e.CancelAnswered):
        return "finished" if found.verdict == "already_finished" else found.verdict
    if isinstance(found, e.ReadFailed):
        if phase == "result":
            return "again"
        return found.code if found.code in ("gone", "throttled", "not_visible_yet") else "failed"
    words: dict[type[e.Evidence], str] = {
        e.Accepted: "accepted", e.Refused: "refused", e.Throttled: "throttled", e.CallLost: "lost",
        e.Inconclusive: "unknown", e.ProvenAbsent: "absent", e.Observed: "observed", e.ResultAccepted: "succeeded",
        e.ResultInvalid: "invalid", e.ResultMissing: "missing",
    }  # fmt: skip
    return words.get(type(found), found.kind)


def compare(tally: Tally, phase: str, code: int, body: Body, found: tuple[str, str, bool], *, says: str = "") -> None:
    """Hold what was made of a case against the table."""
    wanted = says or expected(phase, code, body)
    tally.outcomes[phase, wanted] += 1
    if found != (wanted, STATES[phase][wanted], wanted in PAUSES):
        tally.faults.append(
            f"codes {phase} {code} {body}: taken for {found[0]} -> {found[1]}{', paused' if found[2] else ''}, "
            f"the table says {wanted} -> {STATES[phase][wanted]}"
        )


# --- the short form -----------------------------------------------------------------------------------------------


def cases() -> Iterator[tuple[str, int, Body]]:
    """Everything: 8 phases, 500 codes, 5 bodies."""
    for phase in PHASES:
        for code in CODES:
            for body in BODIES:
                yield phase, code, body


def run(*phases: str) -> Tally:
    """Hand every answer to its reader, or those of some phases."""
    tally = Tally()
    contracts = {phase: contract_for(proves=phase == "get") for phase in PHASES}
    ops = {phase: operation(phase, contracts[phase]) for phase in PHASES}
    for phase, code, body in cases():
        if phases and phase not in phases:
            continue
        contract, op = contracts[phase], ops[phase]
        raw, headers = content(phase, body)
        outcome: Outcome = Answer(code, headers, raw, LATER, "https://api.example.com/x")
        if body == "broken":
            outcome = Failure(Fate.LOST, "the answer broke off", code)
        elif phase == "result" and code in (200, 201, 203):
            outcome = Download(code, headers, "", len(raw), LATER)
        try:
            found = read(phase, outcome, op, contract, raw)
        except OpledgerError as error:
            found = (f"{type(error).__name__}: {error}", "", False)
        compare(tally, phase, code, body, found)
    return tally


# --- the long form ------------------------------------------------------------------------------------------------


class Speaker:
    """A server that answers ``/CODE/BODY/PHASE`` so."""

    def __init__(self) -> None:
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Listen; returns the address."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Stop."""
        self._server.close()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            _, code, body, phase = head.split(b" ")[1].decode().split("/")
            writer.write(_wire(int(code), body, phase))  # type: ignore[arg-type]
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def _wire(code: int, body: Body, phase: str) -> bytes:
    raw, headers = content(phase, body)
    lines = [f"HTTP/1.1 {code} Any", *(f"{name}: {value}" for name, value in headers.items())]
    if code in BODILESS:
        return "\r\n".join([*lines, "connection: close", "", ""]).encode()
    if body in ("empty", "valid", "html", "broken"):
        lines.append(f"content-length: {len(raw) + (9 if body == 'broken' else 0)}")
    return "\r\n".join([*lines, "connection: close", "", ""]).encode() + raw


async def over_sockets(chosen: Iterator[tuple[str, int, Body]] | None = None) -> Tally:
    """Send every answer over a socket of its own, through the HTTP edge, and hand what came to its reader."""
    tally, speaker = Tally(), Speaker()
    url = await speaker.start()
    http = Http(HandClock(), SecretResolver({"REPORTS_TOKEN": "no-secret-of-anybody"}))
    contracts = {phase: contract_for(url, proves=phase == "get") for phase in PHASES}
    ops = {phase: operation(phase, contracts[phase]) for phase in PHASES}
    room = asyncio.Semaphore(16)

    async def one(phase: str, code: int, body: Body, folder: Path) -> None:
        request = Request(
            "GET", f"{url}/{code}/{body}/{phase}", auth=contracts[phase].auth, origin=origin_of(url),
            timeout=timedelta(seconds=60), effectful=phase in ("create", "resend", "cancel"),
        )  # fmt: skip
        got: list[bytes] = []
        async with room:
            if phase == "result":
                outcome: Outcome = await http.download(request, folder, got.append)
            else:
                outcome = await http.send(request)
        if isinstance(outcome, Download):
            Path(outcome.path).unlink()
        if isinstance(outcome, Answer):
            outcome = replace(outcome, answered_at=LATER)
        try:
            found = read(phase, outcome, ops[phase], contracts[phase], b"".join(got))
        except OpledgerError as error:
            found = (f"{type(error).__name__}: {error}", "", False)
        compare(tally, phase, code, body, found, says=_said_on_the_wire(phase, code, body))

    with tempfile.TemporaryDirectory(prefix="opledger-net-") as name:
        waiting: set[asyncio.Task[None]] = set()
        for phase, code, body in chosen or cases():
            waiting.add(asyncio.create_task(one(phase, code, body, Path(name))))
            if len(waiting) >= 64:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        await asyncio.gather(*waiting)
    await http.aclose()
    await speaker.stop()
    return tally


def _said_on_the_wire(phase: str, code: int, body: Body) -> str:
    """The table's outcome for what can be told over a wire: some codes have no body, 1xx is no answer at all."""
    if code in BODILESS:
        return expected(phase, code, "empty")
    return expected(phase, code, "broken") if code < 200 else ""
