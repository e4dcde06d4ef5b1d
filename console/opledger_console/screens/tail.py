"""Tail."""

from __future__ import annotations

from opledger_console.screens.base import LedgerScreen


class TailScreen(LedgerScreen):
    """Tail."""

    TITLE_WORDS = "Tail"
