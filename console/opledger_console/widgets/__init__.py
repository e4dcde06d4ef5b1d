"""One widget a file. Widgets get frozen views; they know neither the desk nor the ledger."""
