"""DBOS: one durable workflow for each operation, one step for each call, durable sleeps between them."""

from __future__ import annotations

import asyncio
import os
import sys

from dbos import DBOS, DBOSConfig

from tests.bench.rivals import common

given = common.given()
provider: common.Provider


@DBOS.step()
async def create(number: int) -> str:
    return await provider.create(number)


@DBOS.step()
async def poll(job: str) -> dict[str, object]:
    return await provider.poll(job)


@DBOS.step()
async def fetch(job: str) -> str:
    return await provider.fetch(job)


@DBOS.workflow()
async def operation(number: int) -> str:
    job = await create(number)
    while True:
        await DBOS.sleep_async(common.GAP)
        if (await poll(job))["state"] == "succeeded":
            return await fetch(job)


async def main() -> None:
    global provider  # noqa: PLW0603 - its steps are functions of a module
    provider = common.Provider(given.base_url)
    database = given.database or f"sqlite:///{given.folder / 'dbos.db'}"
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": database,
        "log_level": "ERROR",
        "executor_id": "bench",
    }
    DBOS(config=config)
    DBOS.launch()
    watch = common.Watch()
    handles = await asyncio.gather(*(DBOS.start_workflow_async(operation, number) for number in range(given.count)))
    await asyncio.gather(*(handle.get_result() for handle in handles))
    figures = watch.figures()
    ended = await DBOS.list_workflows_async(status="SUCCESS", load_input=False, load_output=False)
    common.tell(figures, len(ended), given.count)
    sys.stdout.flush()
    os._exit(0)  # its threads wait for more


if __name__ == "__main__":
    asyncio.run(main())
