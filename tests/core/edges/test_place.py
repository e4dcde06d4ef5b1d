from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from opledger.edges import place
from opledger.rules.model import Actor, ActorKind


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    place._place.cache_clear()
    yield
    place._place.cache_clear()


def test_an_actor_acts_in_this_process_on_this_host() -> None:
    """Two workers of one name on two machines must not look like one (issue 6, "Who")."""
    actor = place.acting(Actor("worker-3", ActorKind.WORKER))
    assert (actor.name, actor.kind) == ("worker-3", ActorKind.WORKER)
    assert actor.host == socket.gethostname()[:64]
    assert actor.process is not None
    assert re.fullmatch(rf"{os.getpid()}@\d{{8}}T\d{{6}}Z", actor.process)
    assert place.acting(actor) == actor


def test_a_forked_child_is_another_process() -> None:
    """What a parent remembered of itself is not true of its child."""
    code = (
        "import os\n"
        "from opledger.edges.place import here\n"
        "before = here()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    os._exit(0 if here().process.startswith(f'{os.getpid()}@') and here() != before else 1)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\x1b[31mb", "a␛[31mb"),
        ("h" * 70, "h" * 64 + "…(+6)"),
        ("", "unknown"),
        ("  ", "unknown"),
        ("bad\udcff", "bad\ufffd"),
    ],
)
def test_a_hosts_name_is_outside_text(monkeypatch: pytest.MonkeyPatch, name: str, shown: str) -> None:
    """Whoever names machines writes into every event: bounded, inert, and storable."""
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    assert place.here().host == shown


def test_a_host_without_a_name_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recording must not fail because a name cannot be had."""

    def gone() -> str:
        raise OSError("no name")

    monkeypatch.setattr(socket, "gethostname", gone)
    assert place.here().host == "unknown"
