from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx
import pytest

from opledger.errors import ProviderBroke, UsageError
from opledger.sim.flavours import FLAVOURS
from opledger.sim.process import SimProcess

pytestmark = pytest.mark.processes


def test_a_simulator_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    """Started on a free port, asked, steered, stopped; its contract files lie where they were wanted."""
    with SimProcess(seed=5, token="s3cret", contracts=tmp_path) as sim:
        assert sim.pid != os.getpid()
        answer = httpx.post(
            f"{sim.base_url}/v1/jobs", json={"client_ref": "op_1"}, headers={"authorization": "Bearer s3cret"}
        )
        assert answer.status_code == 202
        assert [entry["client_ref"] for entry in sim.log()] == ["op_1"]
        sim.control(advance=100)
        assert [job["state"] for job in sim.jobs()] == ["succeeded"]
        written = {path.name: tomllib.loads(path.read_text()) for path in tmp_path.iterdir()}
        assert len(written) == len(FLAVOURS)
        assert written["sim.toml"]["base_url"] == sim.base_url
        assert sim.contract("v1") == (tmp_path / "sim.toml").read_text()
    with pytest.raises(httpx.ConnectError):
        httpx.get(sim.base_url)


def test_stopping_twice_does_nothing() -> None:
    """Clean-up code may run twice."""
    sim = SimProcess().start()
    sim.stop()
    sim.stop()


def test_a_bad_fault_spec_is_told_before_anything_starts() -> None:
    """In the caller's process, as the caller's mistake."""
    with pytest.raises(UsageError, match="lossie"):
        SimProcess(faults="lossie")


def test_a_port_in_use_is_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    """No traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ProviderBroke, match="did not start"):
            SimProcess(port=port).start()
    said = capfd.readouterr().err
    assert f"port {port} on 127.0.0.1 cannot be used" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0_even_while_answers_are_held(number: signal.Signals) -> None:
    """A simulator started by hand is stopped by Ctrl-C."""
    with subprocess.Popen(
        [sys.executable, "-m", "opledger.sim"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        told = json.loads(child.stdout.readline())
        httpx.post(f"{told['base_url']}/_control", json={"hold": "create"})
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"{told['base_url']}/v1/jobs", headers={"authorization": "Bearer loopback-only-token"}, timeout=0.05
            )
        child.send_signal(number)
        out, err = child.communicate(timeout=20)
        assert (child.returncode, out, err) == (0, "", "")


def test_it_ends_with_its_parent() -> None:
    """A killed demonstration leaves no process behind: the child's standard input ends."""
    program = "from opledger.sim.process import SimProcess; s = SimProcess().start(); print('up', flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        parent.kill()
        # The simulator holds the same standard error: it ends only when both have gone.
        assert parent.communicate(timeout=20) == ("", "")


def test_bad_arguments_exit_with_2() -> None:
    """As every command of this program does."""
    done = subprocess.run(
        [sys.executable, "-m", "opledger.sim", "--faults", "lossie"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "'lossie' is not a personality" in done.stderr
