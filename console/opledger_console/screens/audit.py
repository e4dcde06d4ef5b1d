"""Audit."""

from __future__ import annotations

from opledger_console.screens.base import LedgerScreen


class AuditScreen(LedgerScreen):
    """Audit."""

    TITLE_WORDS = "Audit"
