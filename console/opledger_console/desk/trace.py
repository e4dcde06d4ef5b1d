"""Where unexpected errors of the console are written down: a file of its own, because the terminal is taken.

Only kinds and places go there, no values and no messages: what an unexpected error carries in them nobody can know, and
it may be a secret.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path

from platformdirs import user_state_path

from opledger.edges.clock import SystemClock
from opledger.edges.private import make_folder, open_file
from opledger.rules.model import to_rfc3339

MOST = 256 * 1024
"""Bytes after which the file begins anew."""


def path() -> Path:
    """Where it is."""
    return user_state_path("opledger", appauthor=False) / "console-errors.log"


def write_down(error: BaseException) -> str:
    """Add an error to the file; return a sentence that says what and where, for the person in front of the screen."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    kind = type(error).__name__
    last = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
    file = path()
    try:
        make_folder(file.parent)
        mode = os.O_TRUNC if file.exists() and file.stat().st_size > MOST else os.O_APPEND
        with os.fdopen(open_file(file, os.O_CREAT | os.O_WRONLY | mode), "w", encoding="utf-8") as stream:
            stream.write("\n".join((f"{to_rfc3339(SystemClock().now())} {kind}", *places)) + "\n")
    except OSError as trouble:
        return f"{kind} in {last}; {file} cannot be written ({type(trouble).__name__})"
    return f"{kind} in {last}; {file} has where it came from"
