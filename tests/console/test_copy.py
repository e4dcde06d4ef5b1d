"""Copying: what goes to the terminal's clipboard, and that no credential is among it."""

from __future__ import annotations

from pathlib import Path

import pytest

from opledger_console.desk import Desk
from opledger_console.desk.operation import curl_of
from opledger_console.dialogs.copymenu import CopyMenu
from tests.console.hands import assert_inert, running, sees, shown, until
from tests.core.ledgers import Home, accepted, happens, observed, sent


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A ledger with one running operation whose body holds what a shell would obey."""
    home = Home(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}")
    with home.ledger() as ledger:
        op = ledger.submit("jobs", {"rows": 5, "note": "it's $(rm -rf /)"}, requested_by="agent-1")
        happens(ledger, op, sent(), accepted("job_1"), observed(job="job_1"))
    return home


def test_a_request_as_a_command_quotes_everything_and_holds_no_secret(home: Home) -> None:
    """Pasted into a shell it is one word after the other, and the credential is only named."""
    desk = Desk(home.settings(), read_only=True, drive=False)
    try:
        (op,) = desk.ledger.list()
        text = curl_of(desk, op)
    finally:
        desk.close()
    remark, command = text.split("\n", 1)
    assert remark.startswith("#")
    assert command.startswith("curl -X POST ")
    assert "'\"'\"'s $(rm -rf /)" in command
    assert op.idempotency_token is None or op.idempotency_token in command


async def test_a_digit_sends_a_value_to_the_terminal(home: Home) -> None:
    """And the screen says that it was sent, not that it was copied: no terminal tells."""
    async with running(home, "operations") as pilot:
        await sees(pilot, "1 operation")
        await pilot.press("c")
        await until(pilot, lambda: isinstance(pilot.app.screen, CopyMenu), "offer values")
        await until(pilot, lambda: not pilot.app.screen.deaf, "listen")  # type: ignore[attr-defined]
        assert_inert(shown(pilot))
        await pilot.press("3")
        await sees(pilot, "sent to the terminal: 5 characters")
        assert pilot.app.clipboard == "job_1"
