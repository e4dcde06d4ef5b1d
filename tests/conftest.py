"""What every test gets: hypothesis profiles, files in memory, no word of its owner's own ledger."""

from __future__ import annotations

import functools
import os
import signal
import tempfile
from pathlib import Path

import httpx
import hypothesis
import pytest

from tests.support.places import in_memory

# No deadline: the machines that run this are shared, and a slow example is no bug.
hypothesis.settings.register_profile("default", deadline=None, max_examples=60)
hypothesis.settings.register_profile("ci", deadline=None, max_examples=60, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2_000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


def pytest_configure(config: pytest.Config) -> None:
    """Hide the owner's settings and ledger, so that the tests find the same world on every machine."""
    for name in [name for name in os.environ if name.startswith("OPLEDGER_") and name != "OPLEDGER_TEST_POSTGRES"]:
        del os.environ[name]
    home = tempfile.TemporaryDirectory(prefix="opledger-tests-", ignore_cleanup_errors=True)
    config.add_cleanup(home.cleanup)
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        os.environ[name] = str(Path(home.name) / name.lower())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell has whatever it starts in the background ignore Ctrl-C, and so would all that a test interrupts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    memory = in_memory()
    if memory is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))
    # Whoever sends requests reads the same trust store, which takes longer than the rest of a short test.
    httpx.create_ssl_context = functools.cache(httpx.create_ssl_context)
