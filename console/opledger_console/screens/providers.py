"""Providers."""

from __future__ import annotations

from opledger_console.screens.base import LedgerScreen


class ProvidersScreen(LedgerScreen):
    """Providers."""

    TITLE_WORDS = "Providers"
