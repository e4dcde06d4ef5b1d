"""The demonstration: real operations against a real, misbehaving HTTP provider on loopback, with a real database and
a real worker in a process of its own.

It plays everybody: agents that submit, an operator who cancels, and the person who decides what no program may decide.
At the end the provider's own log is judged, not our records.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time as _time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

__all__ = ["run"]
