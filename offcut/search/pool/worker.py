"""A worker of a pool: one process, one device, one task at a time."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from offcut.errors import TargetError
from offcut.search.pool.connection import unanswered
from offcut.search.pool.settings import RESOURCE, Pool


def serve(pool: Pool, device: str, ready: Callable[[], None]) -> None:
    """Take tasks until the scheduler goes, or a signal ends it.

    device  what records and errors call it; no two of one pool are alike
    ready   called when it is known to the scheduler

    Raises TargetError where no scheduler answers, or it knows a worker of that name.
    """
    asyncio.run(_served(pool, device, ready))


async def _served(pool: Pool, device: str, ready: Callable[[], None]) -> None:
    from distributed import Worker

    worker = Worker(
        pool.address,
        name=device,
        nthreads=1,
        resources={RESOURCE: 1},
        memory_limit=0,  # candidates have limits of their own, in processes of their own
        death_timeout=pool.answer,
        dashboard=False,
    )
    try:
        await worker
    except Exception as error:
        if "name taken" in str(error.__cause__):  # dask has no exception of its own for it
            raise _taken(pool, device) from error
        raise unanswered(pool, "worker", error) from error
    loop = asyncio.get_running_loop()
    ended: set[asyncio.Task[object]] = set()  # the loop itself does not hold them
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: ended.add(loop.create_task(worker.close())))
    ready()
    await worker.finished()


def _taken(pool: Pool, device: str) -> TargetError:
    return TargetError(
        "worker",
        f"cannot be device {device!r} of {pool.address}",
        because="a worker of that name is there",
        help=("--device another name",),
    )
