"""The terminal console over the ledger."""
