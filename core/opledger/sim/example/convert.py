"""Turn a report into a table: ``convert.py REPORT TABLE``. The last line that it prints is what later steps get."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path


def main(report: str, table: str) -> None:
    """Read the report, write the table whole, and say how many rows it has."""
    data = Path(report).read_bytes()
    rows = [[number, line.decode(errors="replace")] for number, line in enumerate(data.splitlines(), 1)]
    with Path(table).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["number", "line"], *rows])
    print(json.dumps({"rows": len(rows), "bytes": len(data)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
