"""The receiver of webhooks: an HTTP door that verifies, stores and then says so. ``opledger webhooks serve``.

POST /webhooks/CONTRACT   202 stored (also a duplicate) · 400 malformed · 401 signature · 404 unknown contract
                          408 too slow · 413 too large · 429 full · 503 not stored, send again
GET  /healthz             200 while deliveries can be stored

Strangers may send anything, and as much as they like. So nothing is read before there is room for it, nothing is kept
before it is verified, and everything that arrives meanwhile is stored in one transaction: a flood costs one fsync a
batch, and those for whom there is no room are told to come again.
"""

from __future__ import annotations

from opledger.edges.listening import listen
from opledger.receiver.app import Receiver
from opledger.receiver.intake import Limits
from opledger.receiver.server import run, serve

__all__ = ["Limits", "Receiver", "listen", "run", "serve"]
