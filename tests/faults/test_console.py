"""The console in a real terminal, against a real provider: triage, approve, cancel, resolve, judged by its log."""

from __future__ import annotations

import sys
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
        give_reason(terminal, "the customer called")
        in_state(lab, endless, terminal, State.CANCELLED)
        assert len(lab.wire("cancel", endless)) == 1

        # Resolve: two jobs under one token; nothing but reads has left since, and a person closes it.
        terminal.press("1")
        terminal.until(doubled.operation_id[-8:])
        terminal.press("v")
        asleep(terminal, "RESOLVE")
        print(terminal.text())
        terminal.press("1")
        terminal.rest(0.3)
        print(terminal.text())
        for _ in range(3):
            terminal.press("tab")
            terminal.rest(0.3)
            print(terminal.text())
        assert 0
    assert judge(lab.sim.log()) == []


def _under_cursor(terminal: Terminal) -> str:
    return next((line for line in terminal.text().splitlines() if line.startswith("▌")), "")


def give_reason(terminal: Terminal, reason: str) -> None:
    """Type why, and confirm: the safe button has the focus before and after."""
    terminal.press("tab")
    terminal.rest(0.2)
    terminal.type(reason)
    terminal.until(reason)
    while "▐ " not in terminal.text():
        terminal.press("enter")  # on to the next field, and from the last one to the safe button
        terminal.rest(0.2)
    terminal.press("tab")
    terminal.rest(0.2)
    terminal.press("enter")
