"""The simulator in a child process, and a client for its back door. Uses nothing outside the standard library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from http.client import HTTPConnection  # noqa: TID251 - the simulator's back door, not a provider
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode, urlsplit

from opledger.errors import ProviderBroke
from opledger.sim.contracts import DEFAULT_TOKEN
from opledger.sim.personalities import parse_faults

_GRACE: Final = 5.0  #: seconds a child has to stop by itself


class BackDoor:
    """Looks at a simulator's truth, and steers it (see `opledger.sim.control`)."""

    base_url: str
    elsewhere: str

    def ask(self, method: str, path: str, document: Any = None) -> Any:
        """Call the back door and return the JSON answer. Raises ValueError for a command that was refused."""
        connection = HTTPConnection(urlsplit(self.base_url).netloc, timeout=60)
        try:
            body = None if document is None else json.dumps(document)
            connection.request(method, path, body, {"content-type": "application/json"} if body else {})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise ValueError(content.decode(errors="replace"))
        return content.decode() if path.startswith("/_contract/") else json.loads(content)

    def log(self, after: int = 0) -> list[dict[str, Any]]:
        """What arrived since entry number `after`."""
        entries: list[dict[str, Any]] = self.ask("GET", f"/_log?after={after}")
        return entries

    def jobs(self) -> list[dict[str, Any]]:
        """The jobs as they really are."""
        jobs: list[dict[str, Any]] = self.ask("GET", "/_jobs")
        return jobs

    def control(self, **commands: Any) -> dict[str, Any]:
        """Steer: ``control(hold="create")``, ``control(plan=["lossy"])``, …"""
        answer: dict[str, Any] = self.ask("POST", "/_control", commands)
        return answer

    def wait_for(self, count: int = 1, *, timeout: float = 60.0, **match: str) -> int:
        """Wait until `count` log entries have these values; return how many have by then (fewer: time ran out).

        ``wait_for(kind="create", held="true")`` returns once an answer to a create is being held back.
        """
        query = urlencode({**match, "count": count, "timeout": timeout})
        return int(self.ask("GET", f"/_wait?{query}")["count"])

    def contract(self, flavour: str = "v1") -> str:
        """The contract file for one flavour."""
        return str(self.ask("GET", f"/_contract/{flavour}"))


class SimProcess(BackDoor):
    """A simulator in a child process: ``with SimProcess(seed=7) as sim: sim.base_url …``.

    It stops when the block is left, and by itself when this process dies. Raises UsageError for a bad `faults`
    and ProviderBroke if the child does not start.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        faults: str = "none",
        port: int = 0,
        token: str = DEFAULT_TOKEN,
        contracts: Path | None = None,
    ) -> None:
        parse_faults(faults)  # a mistake is told here, not by a child that died
        self._command = [sys.executable, "-m", "opledger.sim", "--stdin"]
        self._command += ["--port", str(port), "--seed", str(seed), "--faults", faults]
        if contracts is not None:
            self._command += ["--contracts", str(contracts)]
        self._token = token
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The child's process id."""
        assert self._child is not None
        return self._child.pid

    def start(self) -> Self:
        """Start the child and wait until it accepts connections."""
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
        environment = {**os.environ, "SIM_TOKEN": self._token, "PYTHONPATH": path}
        child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._child = child
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            self.stop()
            raise ProviderBroke("the simulated provider did not start; its own message stands above")
        told = json.loads(line)
        self.base_url, self.elsewhere = told["base_url"], told["elsewhere"]
        return self

    def stop(self) -> None:
        """Stop the child. Does nothing if it is not running."""
        child, self._child = self._child, None
        if child is None:
            return
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.close()
        child.terminate()
        try:
            child.wait(_GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        child.stdout.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
