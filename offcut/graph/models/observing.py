"""Who watches the kernels of models run: a profile, or torch's profiler. While nobody does, a call runs its kernels without Python between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from offcut.graph.graph import Bound
from offcut.graph.models.step import Step


class Observed(Protocol):
    """A model that is called."""

    bound: Bound
    steps: tuple[Step, ...]

    def cost(self, **sizes: int) -> Any:
        """Return what its kernels are predicted to cost: a `ModelCost`."""


class Observer(Protocol):
    """Watches calls of models in a context."""

    def model(self, model: Observed, sizes: Mapping[str, int]) -> AbstractContextManager[Any]:
        """Return what is around a call of a model at these sizes."""

    def kernel(self, step: Step) -> AbstractContextManager[Any]:
        """Return what is around each run of a kernel, which is over at its end, on a device too."""


OBSERVER: ContextVar[Observer | None] = ContextVar("observer", default=None)


@contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """Let `observer` watch the calls of models inside of the context."""
    token = OBSERVER.set(observer)
    try:
        yield
    finally:
        OBSERVER.reset(token)


__all__ = ["OBSERVER", "Observed", "Observer", "observed_by"]
