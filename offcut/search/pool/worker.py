"""A worker of a pool: one process, one device, one task at a time."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from offcut.errors import TargetError
from offcut.search.pool.settings import RESOURCE, Pool, unanswered


def serve(pool: Pool, device: str, ready: Callable[[], None]) -> None:
    """Take tasks until the scheduler goes, or a signal ends it.

    It listens at the address that leads to the scheduler, on loopback where that is on this machine.

    device  what records and errors call it; no two of one pool are alike
    ready   called when it is known to the scheduler

    Raises TargetError where no scheduler answers, or it knows a worker of that name.
    """
    asyncio.run(_served(pool, device, ready))


async def _served(pool: Pool, device: str, ready: Callable[[], None]) -> None:
    from distributed import Worker

    worker = Worker(
        pool.address,
        host=_own_host(pool),
        security=pool.security(),
        dashboard_address="127.0.0.1:0",
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


def _own_host(pool: Pool) -> str:
    """Return this machine's address towards the scheduler: no other network is listened to."""
    port = urlsplit(pool.address).port
    try:
        family, kind, _, _, address = socket.getaddrinfo(pool.host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # of datagrams: nothing is sent
            return str(probe.getsockname()[0])
    except OSError as error:
        raise unanswered(pool, "worker", error) from error


def _taken(pool: Pool, device: str) -> TargetError:
    return TargetError(
        "worker",
        f"cannot be device {device!r} of {pool.address}",
        because="a worker of that name is there",
        help=("--device another name",),
    )
