"""Many cases in several workers; what fails is made small, the first few of each symptom."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

from .case import Case, Outcome
from .reducing import Finding, reduced
from .workers import Worker

ENOUGH = 3  # failures of a kind and symptom that are made small; the others are only told


class Pool:
    """Workers that take cases as they come."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.often: Counter[tuple[str, ...]] = Counter()
        self.idle: SimpleQueue[Worker] = SimpleQueue()
        self.workers = [Worker() for _ in range(jobs)]
        for worker in self.workers:
            self.idle.put(worker)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.close()

    def outcomes(self, cases: Iterable[Case]) -> Iterator[tuple[Case, Outcome, Finding | None]]:
        """Each case with what became of it, in their order; what fails is made small."""
        with ThreadPoolExecutor(self.jobs) as threads:
            waiting: deque[Future[tuple[Case, Outcome, Finding | None]]] = deque()
            for case in cases:
                waiting.append(threads.submit(self.outcome, case))
                if len(waiting) > 2 * self.jobs:
                    yield waiting.popleft().result()
            for last in waiting:
                yield last.result()

    def outcome(self, case: Case) -> tuple[Case, Outcome, Finding | None]:
        """What becomes of one case."""
        worker = self.idle.get()
        try:
            outcome = worker.check(case)
            return case, outcome, self.finding(case, outcome, worker)
        finally:
            self.idle.put(worker)

    def finding(self, case: Case, outcome: Outcome, worker: Worker) -> Finding | None:
        """The case made small, if it failed and its like was not made small often enough."""
        if not outcome.failed:
            return None
        sort = (case.kind, outcome.kind, outcome.step, outcome.symptom)
        self.often[sort] += 1
        if self.often[sort] > ENOUGH:
            return None
        small = reduced(case, outcome, worker.check)
        return Finding(case, small, worker.check(small))
