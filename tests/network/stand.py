"""A real ledger and a real worker on one side of the proxy, the simulated provider on the other; time by hand."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from opledger.edges import tokens
from opledger.edges.clock import SystemClock
from opledger.rules.model import Operation, State
from opledger.sim.contracts import contract_text
from opledger.sim.process import BackDoor
from opledger.sim.tokens import CLIENT
from tests.fakes.clock import HandClock
from tests.fakes.sim import SimThread
from tests.network.proxy import Proxy
from tests.scenarios.stage import Loop, Stage

SHORT: Final = 1.5
"""Seconds that a call may take where the proxy is to use them up."""
LONG: Final = 30.0
"""Seconds where it is not: a slow machine must not look like a slow network."""

_BEARER: Final = 'kind = "bearer"\nsecret = "env:SIM_TOKEN"'
_LAX: Final = (
    'size = "header:content-length"\nchecksum = "header:x-checksum-sha256"\ncount = "/records"\nstrict = true\n'
)


class Behind(BackDoor):
    """The provider as it is found behind the proxy; its back door stays where it is."""

    def __init__(self, sim: SimThread, url: str) -> None:
        self._sim = sim
        self.base_url, self.elsewhere = url, sim.elsewhere

    def ask(self, method: str, path: str, document: Any = None) -> Any:
        """Call the back door, not through the proxy."""
        return self._sim.ask(method, path, document)


@dataclass
class Stand:
    """All that one run has."""

    stage: Stage
    sim: SimThread
    proxy: Proxy
    line: Loop  #: the proxy's event loop
    timeout: float
    idempotent: bool  #: a cancel may be repeated

    def forget(self) -> None:
        """Forget what the proxy has seen."""
        self.proxy.disarm()
        self.proxy.seen.clear()

    def refuse(self) -> None:
        """Refuse connections from now on."""
        self.line.run(self.proxy.shut())

    def accept(self) -> None:
        """Accept connections again."""
        self.line.run(self.proxy.open())

    def until(self, operations: Sequence[Operation], *states: State) -> list[Operation]:
        """Let the worker work until all are in one of these states."""
        for _ in range(60):
            self.stage.turn()
            found = [self.stage.show(one) for one in operations]
            if all(one.state in states for one in found):
                return found
            ahead = self.stage.ledger.store.idle_horizon(self.stage.clock.now())
            assert ahead is not None, [one.state for one in found]
            self.stage.clock.pass_by(max(0.001, (ahead - self.stage.clock.now()).total_seconds()))
        raise AssertionError(f"not all came there: {[self.stage.show(one).state for one in operations]}")


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def _token_timeout(seconds: float) -> Iterator[None]:
    before = tokens.TIMEOUT
    tokens.TIMEOUT = timedelta(seconds=seconds)  # type: ignore[misc]
    try:
        yield
    finally:
        tokens.TIMEOUT = before  # type: ignore[misc]


@contextmanager
def stand(timeout: float = LONG, *, lax: bool = False, idempotent: bool = False) -> Iterator[Stand]:
    """Build it. `timeout` holds for every call, `lax` takes from the contracts what a result is compared with."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with ExitStack() as parts:
        folder = Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="opledger-net-", dir=memory)))
        clock = HandClock(SystemClock().now())
        sim = parts.enter_context(SimThread(seed=8, clock=clock))
        parts.enter_context(_quiet("uvicorn.error"))  # it tells of every request that was cut
        line, loop = parts.enter_context(Loop()), parts.enter_context(Loop())
        address = urlsplit(sim.base_url)
        proxy = Proxy((address.hostname or "", address.port or 0))
        line.run(proxy.open())
        parts.callback(lambda: line.run(proxy.shut()))
        stage = Stage(folder, f"sqlite:///{folder / 'ledger.db'}", Behind(sim, proxy.url), clock, loop)  # type: ignore[arg-type]
        parts.enter_context(stage)
        times = {f'timeout = "{old}s"': f'timeout = "{round(timeout * 1000)}ms"' for old in (3, 2, 5)}
        cancels = {"idempotent = false": "idempotent = true"} if idempotent else {}
        oauth = f'kind = "oauth2_client_credentials"\ntoken_url = "{proxy.url}/oauth/token"\nclient_id = "{CLIENT}"\n'
        for how in ("list", "get"):
            times[f'strategy = "{how}"'] = f'strategy = "{how}"\ntimeout = "{round(timeout * 1000)}ms"'
        parts.enter_context(_token_timeout(timeout))
        for flavour in ("v1", "unique", "clientid", "header", "guarded"):
            text = contract_text(flavour, proxy.url)
            changes = {old: new for old, new in {**times, **cancels}.items() if old in text}
            if flavour == "guarded":
                changes[_BEARER] = oauth + 'secret = "env:SIM_TOKEN"'
            changes["strict = true"] = "strict = false"
            if lax and flavour == "v1":
                changes[_LAX.replace("true", "false")] = ""
            stage.contract(flavour, changes)
        yield Stand(stage, sim, proxy, line, timeout, idempotent)
