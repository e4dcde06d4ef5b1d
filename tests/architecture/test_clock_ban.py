"""The lint rule that keeps time and randomness in one file: it bites, and only where it should."""

from __future__ import annotations

import json

import pytest

from tests.architecture.source import run, tool

READS = [
    "import datetime\ndatetime.datetime.now(datetime.UTC)",
    "from datetime import UTC, datetime\ndatetime.now(UTC)",
    "import time\ntime.time()",
    "from time import monotonic\nmonotonic()",
    "import random\nrandom.random()",
    "import uuid\nuuid.uuid4()",
    "import os\nos.urandom(8)",
    "import secrets\nsecrets.token_hex()",
]


def findings(code: str, path: str) -> set[str]:
    """The rules that ruff finds broken by `code` if it stood in `path`."""
    command = [tool("ruff"), "check", "--no-cache", "--output-format", "json", "--stdin-filename", path, "-"]
    done = run(command, input=code)
    assert done.returncode in (0, 1), done.stderr
    return {finding["code"] for finding in json.loads(done.stdout)}


@pytest.mark.parametrize("code", READS)
def test_reading_the_clock_or_chance_is_refused(code: str) -> None:
    """Whatever reads a clock by itself cannot be tested at a chosen time."""
    assert "TID251" in findings(code, "core/opledger/worker.py")


@pytest.mark.parametrize("code", READS)
def test_the_clock_itself_may_read(code: str) -> None:
    """The one file that all others ask."""
    assert "TID251" not in findings(code, "core/opledger/edges/clock.py")
