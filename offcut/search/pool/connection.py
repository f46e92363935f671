"""A client of the scheduler of a pool; of a pool of this machine alone, with that scheduler and its worker."""

from __future__ import annotations

import logging
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from offcut.errors import TargetError
from offcut.search.pool.settings import LOCAL, Pool

if TYPE_CHECKING:
    from distributed import Client

_STARTING = 60.0  # seconds until a worker has imported what it needs, at most
_SOON = 3.0  # seconds that a worker takes to end


@contextmanager
def connected(pool: Pool, op: str) -> Iterator[Client]:
    """A client, as long as the context lasts.

    Raises TargetError where no scheduler answers in time.
    """
    from distributed import Client

    with _quiet(), ExitStack() as stack:
        address = stack.enter_context(_local()) if pool.address == LOCAL else pool.address
        try:
            client = Client(address, timeout=pool.answer, set_as_default=False)
        except Exception as error:
            raise unanswered(pool, op, error) from error
        yield stack.enter_context(client)


@contextmanager
def _quiet() -> Iterator[None]:
    """The client's own words of a scheduler that goes are left out: it is refused in ours."""
    log = logging.getLogger("distributed.client")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def unanswered(pool: Pool, op: str, error: Exception) -> TargetError:
    """What is to be said where no scheduler answers."""
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    because = f"no dask scheduler answers in {pool.answer:g} s"
    return TargetError(
        op,
        f"cannot reach {pool.address}",
        because=because if isinstance(error, TimeoutError) else f"{because}: {said}",
        help=("dask scheduler --port 8786",),
    )


@contextmanager
def _local() -> Iterator[str]:
    """The address of a scheduler in this process, with a worker in another."""
    from distributed import LocalCluster

    settings: dict[str, Any] = {
        "n_workers": 0,
        "processes": False,
        "protocol": "tcp://",
        "host": "127.0.0.1",
        "dashboard_address": None,
    }
    with LocalCluster(**settings) as cluster:
        address = cluster.scheduler_address
        with worker_process(address) as process:
            until = time.monotonic() + _STARTING
            while not cluster.scheduler.workers and process.poll() is None:
                if time.monotonic() > until:
                    break  # whoever waits for a device says so
                time.sleep(0.05)
            yield address


@contextmanager
def worker_process(address: str, device: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A worker on this machine, as ``offcut worker`` starts one; it is ended at the end.

    device  its name; "": that of this machine
    """
    command = [sys.executable, "-m", "offcut", "worker", address]
    command += ["--device", device or platform.node()]
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a signal of the terminal is ours to handle
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_SOON)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
