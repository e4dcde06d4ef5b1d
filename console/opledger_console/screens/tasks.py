"""Tasks."""

from __future__ import annotations

from opledger_console.screens.base import LedgerScreen


class TasksScreen(LedgerScreen):
    """Tasks."""

    TITLE_WORDS = "Tasks"
