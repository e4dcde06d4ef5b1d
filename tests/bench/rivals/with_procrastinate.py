"""procrastinate: a job for each call. A poll that finds no end defers the next one; what was seen is its argument."""

from __future__ import annotations

import asyncio

import procrastinate
from psycopg_pool import AsyncConnectionPool

from tests.bench.rivals import common

given = common.given()
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=given.database, max_size=20))
results: AsyncConnectionPool
provider: common.Provider
ended = asyncio.Event()
left = given.count


@app.task(name="create")
async def create(number: int) -> None:
    job = await provider.create(number)
    await poll.configure(schedule_in={"seconds": common.GAP}).defer_async(number=number, job=job, seen=None)


@app.task(name="poll")
async def poll(number: int, job: str, seen: object) -> None:
    found = await provider.poll(job)
    if found["state"] == "succeeded":
        await fetch.defer_async(number=number, job=job)
    else:
        await poll.configure(schedule_in={"seconds": common.GAP}).defer_async(number=number, job=job, seen=found)


@app.task(name="fetch")
async def fetch(number: int, job: str) -> None:
    global left  # noqa: PLW0603 - its tasks are functions of a module
    result = await provider.fetch(job)
    async with results.connection() as session:
        await session.execute("INSERT INTO result VALUES (%s, %s)", (number, result))
    left -= 1
    if left == 0:
        ended.set()


async def main() -> None:
    global provider, results  # noqa: PLW0603
    provider = common.Provider(given.base_url)
    async with app.open_async(), AsyncConnectionPool(given.database, max_size=20) as pool:
        results = pool
        await app.schema_manager.apply_schema_async()
        async with pool.connection() as session:
            await session.execute("CREATE TABLE result (number int PRIMARY KEY, body text)")
        watch = common.Watch()
        await create.batch_defer_async(*({"number": number} for number in range(given.count)))
        working = asyncio.ensure_future(
            app.run_worker_async(
                concurrency=common.IN_FLIGHT,
                fetch_job_polling_interval=common.GAP,
                install_signal_handlers=False,
            )
        )
        await ended.wait()
        figures = watch.figures()
        working.cancel()
        await asyncio.wait({working})
        await provider.aclose()
        async with pool.connection() as session:
            row = await (await session.execute("SELECT count(*) FROM result")).fetchone()
    common.tell(figures, row[0] if row else 0, given.count)


if __name__ == "__main__":
    common.run(main)
