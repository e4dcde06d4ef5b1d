"""``python -m opledger.cli`` is the same as ``opledger``."""

from __future__ import annotations

import sys

from opledger.cli import main

if __name__ == "__main__":
    sys.exit(main())
