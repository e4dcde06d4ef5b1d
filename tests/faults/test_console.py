"""The console in a real terminal, against a real provider: triage, approve, cancel, resolve, judged by its log."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from opledger.rules.model import Operation, State
from opledger.sim.judge import judge
from opledger.sim.process import SimProcess
from tests.faults.lab import Lab
from tests.support.terminal import Terminal

pytestmark = [pytest.mark.processes, pytest.mark.slow]

SETTINGS = """
[console]
grace = "300ms"

[[policy]]
when = 'operation.body.rows == 77'
expires = "4h"
"""


@pytest.fixture
def lab(sim: SimProcess, tmp_path: Path, sqlite_template: Path) -> Iterator[Lab]:
    """A ledger whose payments of 77 rows need a person's approval."""
    (tmp_path / "ledger.db").write_bytes(sqlite_template.read_bytes())
    (tmp_path / "opledger.toml").write_text(SETTINGS, encoding="utf-8")
    with Lab(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}", sim) as lab:
        lab.contract(cancel="20s")
        yield lab


def console(lab: Lab, *flags: str, size: tuple[int, int] = (80, 24), **environment: str) -> Terminal:
    """Start the console as a person would; it starts its own worker."""
    return Terminal(
        [sys.executable, "-m", "opledger.cli", "console", *flags],
        size=size,
        folder=lab.folder,
        environment={
            **lab.environment,
            "OPLEDGER_OPERATOR": "ana",
            "XDG_STATE_HOME": str(lab.folder / "state"),
            **environment,
        },
    )


def in_state(lab: Lab, op: Operation, terminal: Terminal, *states: State) -> Operation:
    """Wait until an operation is in one of some states, while the terminal goes on being read."""
    terminal.until(lambda _: lab.show(op).state in states)
    return lab.show(op)


def asleep(terminal: Terminal, dialog: str) -> None:
    """Wait until a dialog stands there and listens: it is deaf at first, against keys meant for something else."""
    terminal.until(dialog)
    terminal.rest(0.5)


def test_triage_approve_cancel_resolve(lab: Lab) -> None:
    """A whole shift at the keyboard of an 80x24 terminal; what was sent stands in the provider's own log."""
    payout = lab.submit(rows=77)
    endless = lab.submit("cancellable", "prompt")
    doubled = lab.submit("token_ignoring")
    with console(lab) as terminal:
        in_state(lab, doubled, terminal, State.CONTRACT_VIOLATION)
        in_state(lab, endless, terminal, State.OBSERVING)
        terminal.until(lambda text: "violation 1" in text and "approve 1" in text)
        assert lab.wire("create", payout) == []

        # Approve: the inbox has it, the dialog shows what will be sent, and needs a reason.
        terminal.until(payout.operation_id[-8:])
        while payout.operation_id[-8:] not in _under_cursor(terminal):
            terminal.press("down")
            terminal.rest(0.2)
        terminal.press("a")
        asleep(terminal, "APPROVE")
        give_reason(terminal, "checked against the order")
        in_state(lab, payout, terminal, State.SUCCEEDED)
        assert len(lab.wire("create", payout)) == 1
        assert [given.by for given in lab.show(payout).approvals] == ["ana"]

        # Cancel: found by its id in the list of all.
        terminal.press("2")
        terminal.until("operations")
        terminal.press("/")
        terminal.rest(0.2)
        terminal.type(endless.operation_id[-8:])
        terminal.press("enter")
        terminal.until("1 match")
        terminal.press("x")
        asleep(terminal, "CANCELLATION")
        assert lab.wire("cancel", endless) == []
        give_reason(terminal, "the customer called", fields=2)  # why, and what is expected of it
        in_state(lab, endless, terminal, State.CANCELLED)
        assert len(lab.wire("cancel", endless)) == 1

        # Resolve: two jobs under one token; nothing but reads has left since, and a person closes it.
        terminal.press("1")
        terminal.until(doubled.operation_id[-8:])
        terminal.press("v")
        asleep(terminal, "RESOLVE")
        jobs = lab.jobs(doubled)
        assert len(jobs) == 2
        terminal.press("1")  # the first choice: keep
        terminal.until("RESOLVE: keep")
        terminal.rest(0.5)
        terminal.press("tab")
        terminal.press("down")
        terminal.until(lambda text: any(job in _field(text, "Job id") for job in jobs))
        terminal.press("enter")
        terminal.rest(0.2)
        terminal.type("support named the right one")
        terminal.until("support named")
        _confirm(terminal)
        terminal.until("Once more")
        terminal.rest(0.5)
        _confirm(terminal, fields=0)
        kept = in_state(lab, doubled, terminal, State.SUCCEEDED)
        assert kept.remote_job_id in jobs
        # Nothing but reads: a person decided which job is ours, nobody stopped or started one for it.
        assert len(lab.wire("create", doubled)) == 2
        assert lab.wire("cancel", doubled) == []
        terminal.press("q")
        assert terminal.until_ended() == 0
    assert judge(lab.sim.log()) == []


def _under_cursor(terminal: Terminal) -> str:
    return next((line for line in terminal.text().splitlines() if line.startswith("▌")), "")


def give_reason(terminal: Terminal, reason: str, fields: int = 1) -> None:
    """Type why, and confirm: the safe button has the focus before and after the `fields` of the dialog."""
    terminal.press("tab")
    terminal.rest(0.2)
    terminal.type(reason)
    terminal.until(reason)
    _confirm(terminal, fields)


def _confirm(terminal: Terminal, fields: int = 1) -> None:
    # One key for each field and never one more: a machine that draws late would take it for the safe button.
    for _ in range(fields):
        terminal.press("enter")
        terminal.rest(0.2)
    safe = _focused(terminal.until(lambda text: _focused(text) != ""))
    terminal.press("tab")
    terminal.until(lambda text: _focused(text) not in ("", safe))
    terminal.press("enter")
    terminal.rest(0.2)


def _focused(text: str) -> str:
    """The button that Enter presses: it stands in brackets."""
    return text.partition("[ ")[2].partition(" ]")[0]


def _field(text: str, label: str) -> str:
    return next((line for line in text.splitlines() if label in line), "")


def test_a_worker_ends_with_its_console_however_that_ends(lab: Lab) -> None:
    """The console is killed outright; the worker it started notices, gives its leases back and signs off."""
    endless = lab.submit("cancellable", "prompt")
    with console(lab) as terminal:
        in_state(lab, endless, terminal, State.OBSERVING)
        assert len(lab.ledger.store.workers()) == 1
        os.kill(terminal.process.pid, signal.SIGKILL)
        terminal.process.wait()
        lab.deserted()
    assert lab.show(endless).lease is None
    assert lab.wire("cancel", endless) == []


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_lost_line_or_a_polite_signal_ends_it_in_good_order(lab: Lab, number: signal.Signals) -> None:
    """SSH drops: the console ends, the terminal is left as it was, nothing is cancelled."""
    with console(lab) as terminal:
        terminal.until("Inbox")
        terminal.until("1 worker")
        os.kill(terminal.process.pid, number)
        assert terminal.until_ended() == 128 + number
        assert bytes(terminal.raw).endswith(b"\x1b[?1004l") or b"\x1b[?1049l" in bytes(terminal.raw)
        lab.deserted()


def test_a_terminal_that_goes_away_takes_the_console_with_it(lab: Lab) -> None:
    """Without any signal: reading on from a terminal that is gone would take a whole core for ever."""
    for delay in (None, 0.15, 0.25):
        terminal = console(lab)
        terminal.until("Inbox")
        os.close(terminal._master)
        if delay is not None:
            # When the leader of a session dies, the kernel wakes its processes after the hang-up.
            threading.Event().wait(delay)
            os.kill(terminal.process.pid, signal.SIGCONT)
        assert terminal.process.wait(timeout=30) != 0
    lab.deserted()


def test_hostile_text_reaches_no_real_terminal(lab: Lab) -> None:
    """What a provider and an agent write arrives as text: the screen is not cleared, titled or left by it (F3)."""
    hostile = "\x1b[2J\x1b]0;owned\x07\x9b31m\x1b]52;c;aGFja2Vk\x07[@click=app.quit]x[/] [/"
    op = lab.submit("id_changing", note=hostile)
    with console(lab, size=(100, 30)) as terminal:
        in_state(lab, op, terminal, State.CONTRACT_VIOLATION)
        for keys in (("2",), ("enter",), ("l",), ("l",), ("l",), ("escape",), ("5",), ("1",), ("v",)):
            terminal.press(*keys)
            terminal.rest(0.4)
        raw = bytes(terminal.raw)
        assert b"owned" not in raw or b"\x1b]0;owned" not in raw
        for forbidden in (b"\x1b]0;", b"\x1b]52;", b"\xc2\x9b31m"):
            assert forbidden not in raw
        assert terminal.process.poll() is None, terminal.text()


def test_without_colour_and_at_every_size_it_stays_readable(lab: Lab) -> None:
    """NO_COLOR: no colour codes at all; resized from large to tiny and back, it shows what matters."""
    lab.submit(rows=77)
    with console(lab, size=(200, 60), NO_COLOR="1") as terminal:
        terminal.until("awaiting_approval")
        for columns, lines in ((120, 40), (80, 24), (20, 4), (80, 24)):
            terminal.resize(columns, lines)
            terminal.rest(0.4)
        terminal.until("approve 1")
        coloured = re.findall(rb"\x1b\[[0-9;]*(?:38|48);2;(\d+);(\d+);(\d+)", bytes(terminal.raw))
        assert all(red == green == blue for red, green, blue in coloured)
