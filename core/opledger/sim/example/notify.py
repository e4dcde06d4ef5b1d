"""Send a notice: ``notify.py TEXT``. To the address in NOTICE_URL, or else into ``notices.txt`` beside the plan.

The step's key goes along, so that a receiver that knows it could tell the second notice from the first.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path


def main(text: str) -> None:
    """Send it, once; an answer that is no success is an error."""
    key = os.environ["OPLEDGER_STEP_TOKEN"]
    notice = json.dumps({"text": text, "key": key})
    url = os.environ.get("NOTICE_URL")
    if url is None:
        with Path("notices.txt").open("a", encoding="utf-8") as file:
            file.write(f"{notice}\n")
    else:
        request = urllib.request.Request(url, notice.encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30):
            pass
    print(json.dumps({"key": key}))


if __name__ == "__main__":
    main(sys.argv[1])
