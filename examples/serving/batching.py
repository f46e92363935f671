"""Requests that wait together run as one batch.

A worker that is free takes what waits, at once, up to `most_rows`: under little load a request runs alone and waits for nobody, under much
load batches grow by themselves. Nothing is padded, since the model runs at every size; requests whose other axes differ run in batches of
their own. What waits is bounded: one more is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

LOG = logging.getLogger("examples.serving")
Arrays = Mapping[str, Any]


class Session(Protocol):
    """What runs a model: of offcut or of onnxruntime."""

    def run(self, output_names: Sequence[str] | None, input_feed: Arrays) -> list[Any]:
        """Return the outputs."""


class Overloaded(Exception):
    """As many requests wait as may."""


@dataclass
class _Request:
    """Arrays whose first axes are the rows of the request.

    key  what requests of one batch have in common: extents but the first
    """

    feed: Arrays
    rows: int
    key: tuple[Any, ...]
    done: asyncio.Future[list[Any]]


@dataclass
class Batcher:
    """Runs requests in batches.

    session    runs them, in as many threads at once as there are workers
    most_rows  of a batch
    most_waiting  requests that wait for a worker
    batches    rows of the batches that ran, by how many: for who wants to know
    """

    session: Session
    most_rows: int = 64
    most_waiting: int = 256
    workers: int = 1
    batches: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._waiting: deque[_Request] = deque()
        self._pool = ThreadPoolExecutor(self.workers, "model")
        self._busy: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Return how many requests wait for a worker."""
        return len(self._waiting)

    async def run(self, feed: Arrays) -> list[Any]:
        """Return the outputs for a request, whose arrays all have its rows as their first axes.

        Raises Overloaded where too many wait, ValueError for arrays that no batch can be made of, and what the session does.
        """
        rows = {array.shape[0] if array.ndim else 0 for array in feed.values()}
        if len(rows) != 1 or not 1 <= (count := rows.pop()) <= self.most_rows:
            raise ValueError(f"each input has the same 1…{self.most_rows} rows as its first axis")
        if self.waiting >= self.most_waiting:
            raise Overloaded
        key = tuple((name, feed[name].shape[1:]) for name in sorted(feed))
        result = asyncio.get_running_loop().create_future()
        self._waiting.append(_Request(feed, count, key, result))
        self._start()
        outputs: list[Any] = await result
        return outputs

    def _start(self) -> None:
        """Give what waits to a worker that is free."""
        if len(self._busy) < self.workers and (batch := self._take()):
            task = asyncio.get_running_loop().create_task(self._run(batch))
            self._busy.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._busy.discard(task)
        self._start()

    def _take(self) -> list[_Request]:
        """Return requests of one key, in the order in which they came; who has gone meanwhile is left out."""
        batch, rest, rows = list[_Request](), deque[_Request](), 0
        for one in self._waiting:
            if one.done.done():
                continue
            alike = not batch or one.key == batch[0].key
            if alike and rows + one.rows <= self.most_rows:
                batch.append(one)
                rows += one.rows
            else:
                rest.append(one)
        self._waiting = rest
        return batch

    async def _run(self, batch: Sequence[_Request]) -> None:
        """Run requests together; where that fails, each by itself, so that none answers for another."""
        loop = asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(self._pool, self._outputs, batch)
        except Exception as error:
            if len(batch) == 1:
                _give(batch[0], error=error)
                return
            LOG.warning("a batch of %d requests failed: %s", len(batch), error)
            for one in batch:
                await self._run([one])
            return
        rows = sum(one.rows for one in batch)
        self.batches[rows] = self.batches.get(rows, 0) + 1
        at = 0
        for one in batch:
            _give(one, [array[at : at + one.rows] for array in results])
            at += one.rows

    def _outputs(self, batch: Sequence[_Request]) -> list[Any]:
        if len(batch) == 1:
            return self.session.run(None, batch[0].feed)
        names = batch[0].feed
        return self.session.run(
            None, {name: np.concatenate([one.feed[name] for one in batch]) for name in names}
        )

    async def close(self) -> None:
        """Wait until nobody waits."""
        while self._busy:
            await asyncio.wait(self._busy)
        self._pool.shutdown()


def _give(
    request: _Request, outputs: list[Any] | None = None, error: Exception | None = None
) -> None:
    if request.done.done():  # who asked has gone
        return
    if error is not None:
        request.done.set_exception(error)
    else:
        request.done.set_result(outputs or [])
