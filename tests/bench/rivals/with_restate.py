"""Restate: one durable handler for each operation, `ctx.run` for each call, durable sleeps; its own server beside."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from datetime import timedelta
from pathlib import Path

import httpx
import hypercorn.asyncio
import hypercorn.config
import restate

from tests.bench.rivals import common

given = common.given()
service = restate.Service("bench")
provider: common.Provider


@service.handler()
async def operation(ctx: restate.Context, number: int) -> str:
    job = await ctx.run_typed("create", provider.create, number=number)
    while True:
        await ctx.sleep(timedelta(seconds=common.GAP))
        seen = await ctx.run_typed("poll", provider.poll, job=job)
        if seen["state"] == "succeeded":
            return await ctx.run_typed("fetch", provider.fetch, job=job)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def server_cpu(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def main() -> None:
    global provider  # noqa: PLW0603 - its handlers are functions of a module
    provider = common.Provider(given.base_url)
    ingress, admin, node, own = (free_port() for _ in range(4))
    ports = {
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
        "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}",
    }
    log = (given.folder / "restate.log").open("wb")
    server = subprocess.Popen(  # noqa: ASYNC220 - before anything is measured
        [
            os.environ["RESTATE_SERVER"],
            "--no-logo",
            "--listen-mode",
            "tcp",
            "--base-dir",
            str(given.folder / "restate"),
        ],
        env={**os.environ, **ports},
        stdout=log,
        stderr=log,
    )
    config = hypercorn.config.Config()
    config.bind = [f"127.0.0.1:{own}"]
    config.accesslog = config.errorlog = None
    stop = asyncio.Event()
    serving = asyncio.ensure_future(hypercorn.asyncio.serve(restate.app([service]), config, shutdown_trigger=stop.wait))
    try:
        async with httpx.AsyncClient(timeout=300, limits=httpx.Limits(max_connections=given.count)) as client:
            await _registered(client, f"http://127.0.0.1:{admin}/deployments", f"http://127.0.0.1:{own}")
            watch, before = common.Watch(), server_cpu(server.pid)
            url = f"http://127.0.0.1:{ingress}/bench/operation"
            answers = await asyncio.gather(
                *(
                    client.post(url, json=number, headers={"idempotency-key": f"n{number}"})
                    for number in range(given.count)
                )
            )
            figures = watch.figures() | {"server_cpu": server_cpu(server.pid) - before}
            assert all(answer.status_code == 200 for answer in answers)
            done = await _completed(client, f"http://127.0.0.1:{admin}/query")
    finally:
        stop.set()
        await provider.aclose()
        server.terminate()
        await serving
        server.wait()
        log.close()
    common.tell(figures, done, given.count)


async def _completed(client: httpx.AsyncClient, admin: str) -> int:
    """Ask the server how many invocations it holds as completed."""
    query = {
        "query": "SELECT count(*) AS n FROM sys_invocation WHERE status = 'completed' AND completion_result = 'success'"
    }
    answer = await client.post(admin, json=query, headers={"accept": "application/json"})
    return int(answer.json()["rows"][0]["n"])


async def _registered(client: httpx.AsyncClient, admin: str, own: str) -> None:
    for _ in range(240):
        try:
            if (await client.post(admin, json={"uri": own, "force": True})).status_code in (200, 201):
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.25)
    raise SystemExit("the server of Restate did not come up within a minute; its log is beside its folder")


if __name__ == "__main__":
    common.run(main)
