"""Operation."""

from __future__ import annotations

from opledger_console.desk import Desk
from opledger_console.screens.base import LedgerScreen


class OperationScreen(LedgerScreen):
    """Operation."""

    TITLE_WORDS = "Operation"

    def __init__(self, desk: Desk, operation_id: str, tab: str | None = None) -> None:
        super().__init__(desk)
        self.operation_id, self.tab = operation_id, tab
