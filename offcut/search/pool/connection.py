"""A client of the scheduler of a pool."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from offcut.errors import TargetError
from offcut.search.pool.settings import Pool

if TYPE_CHECKING:
    from distributed import Client


@contextmanager
def connected(pool: Pool, op: str) -> Iterator[Client]:
    """A client, as long as the context lasts.

    Raises TargetError where no scheduler answers in time.
    """
    from distributed import Client

    with _quiet():
        settings: dict[str, Any] = {"timeout": pool.answer, "security": pool.security()}
        try:
            client = Client(pool.address, **settings, set_as_default=False)
        except Exception as error:
            raise unanswered(pool, op, error) from error
        with client:
            yield client


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
        help=("dask scheduler --host 127.0.0.1 --port 8786, on this machine",),
    )
