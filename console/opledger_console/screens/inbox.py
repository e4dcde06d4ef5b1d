"""Inbox."""

from __future__ import annotations

from opledger_console.screens.base import LedgerScreen


class InboxScreen(LedgerScreen):
    """Inbox."""

    TITLE_WORDS = "Inbox"
