"""Where the workers of a pool meet, and how long is waited for what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from offcut.core.extras import check_installed
from offcut.errors import DescribeError

LOCAL = "local"
"""The address of a pool that is started for one campaign: a scheduler and one worker, on this machine."""

RESOURCE = "device"
"""What a worker has one of, and each task takes."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of devices.

    address  ``tcp://host:port`` of a dask scheduler, or ``tls://``; or ``local``
    answer   seconds until the scheduler answers, and until what it holds is here
    wait     seconds that a campaign goes on without a device that could take a task
    silence  seconds without a sign of a worker, after which it hangs
    """

    address: str
    answer: float = 10.0
    wait: float = 10.0
    silence: float = 30.0


def pool_of(given: Any, op: str) -> Pool:
    """What was given as a pool, an address or a `Pool`, checked for `op`.

    Raises DescribeError for what is no address, TargetError where dask.distributed is not installed.
    """
    pool = given if isinstance(given, Pool) else Pool(given)
    because = _misfit(pool.address)
    if because:
        raise DescribeError(
            op,
            f"cannot take pool={pool.address!r}",
            because=because,
            help=('pool="tcp://host:8786"', f'pool="{LOCAL}"'),
        )
    check_installed(op, "cannot use a pool of devices", "distributed")
    return pool


def _misfit(address: Any) -> str:
    """Why this is no address; "" where it is one."""
    if address == LOCAL:
        return ""
    if not isinstance(address, str):
        return "the address of a pool is a text"
    try:
        parts = urlsplit(address)
        whole = parts.scheme in ("tcp", "tls") and parts.hostname and parts.port
    except ValueError as error:
        return str(error)
    rest = not whole or parts.path or parts.query or parts.fragment or parts.username is not None
    return "it is not tcp://, a host, and a port" if rest else ""
