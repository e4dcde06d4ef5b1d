"""Prefect: one flow run for each operation, one task run with a persisted result for each call; its own server."""

from __future__ import annotations

import asyncio
import os

from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter

from tests.bench.rivals import common

given = common.given()
provider: common.Provider


@task(persist_result=True, log_prints=False)
async def create(number: int) -> str:
    return await provider.create(number)


@task(persist_result=True)
async def poll(job: str) -> dict[str, object]:
    return await provider.poll(job)


@task(persist_result=True)
async def fetch(job: str) -> str:
    return await provider.fetch(job)


@flow(persist_result=True)
async def operation(number: int) -> str:
    job = await create(number)
    while True:
        await asyncio.sleep(common.GAP)
        if (await poll(job))["state"] == "succeeded":
            return await fetch(job)


async def main() -> None:
    global provider  # noqa: PLW0603 - its tasks are functions of a module
    provider = common.Provider(given.base_url)
    watch = common.Watch()
    await asyncio.gather(*(operation(number) for number in range(given.count)))
    figures = watch.figures()
    async with get_client() as client:
        done = await client.count_flow_runs(
            flow_run_filter=FlowRunFilter.model_validate({"state": {"type": {"any_": ["COMPLETED"]}}})
        )
    common.tell(figures, done, given.count)


if __name__ == "__main__":
    assert os.environ.get("PREFECT_API_URL"), "its server is started by whoever starts this"
    asyncio.run(main())
