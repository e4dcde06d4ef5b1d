from __future__ import annotations

import asyncio
import socket

import httpx
import pytest

from opledger.edges.listening import listen
from opledger.errors import ConfigWrong
from opledger.sim.server import HOST, Running, serve
from tests.fakes.clock import HandClock
from tests.fakes.sim import SimThread


def test_listeners_name_their_protocol() -> None:
    """Only then does asyncio set TCP_NODELAY, without which every answer waits 40 ms for an acknowledgement."""
    with listen(HOST, 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


async def test_a_port_in_use_is_the_callers_mistake() -> None:
    """One sentence that names the port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigWrong, match=str(port)):
            await serve(port=port)


async def test_it_serves_inside_a_running_loop_until_told_to_stop() -> None:
    """For programs that have a loop of their own; `ready` comes once connections are accepted."""
    ready: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(serve(ready=ready.set_result))
    running = await ready
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{running.base_url}/_log")).json() == []
    running.stop()
    await serving
    running.stop()


async def test_it_ends_with_whatever_it_was_bound_to() -> None:
    """The child of a process that was killed must not stay."""
    await asyncio.wait_for(serve(until=lambda: None), timeout=20)


def test_jobs_move_by_the_clock_that_was_given() -> None:
    """A test decides when a job ends."""
    clock = HandClock()
    with SimThread(clock=clock) as sim, httpx.Client(base_url=sim.base_url, headers=sim.headers) as client:
        job = client.post("/v1/jobs", json={"_seconds": 10}).json()
        assert job["created_at"] == "2026-11-29T12:00:00.000000Z"
        clock.pass_by(10)
        said = client.get(f"/v1/jobs/{job['id']}").json()
        assert (said["state"], said["updated_at"]) == ("succeeded", "2026-11-29T12:00:10.000000Z")
