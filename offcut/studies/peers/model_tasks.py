"""Whole models on given inputs: what a library is given of an ONNX file, and of a module of torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from offcut.describe.request import Array


@dataclass(frozen=True)
class ModelTask:
    """A file of ONNX, as bytes, and an array for each input."""

    file: bytes
    feed: Mapping[str, Array]


@dataclass(frozen=True)
class TorchTask:
    """A module that is ready to be called, the tensors of a call, and what exports it to ONNX."""

    module: Any
    inputs: Sequence[Any]
    to_onnx: Callable[[], ModelTask]


def as_onnx(task: ModelTask | TorchTask) -> ModelTask:
    """Return a model as a file of ONNX, which torch exports of a module."""
    return task.to_onnx() if isinstance(task, TorchTask) else task


def results_of(outputs: Any) -> tuple[Array, ...]:
    """Return the arrays of what a model, or a way of a peer, gave."""
    if isinstance(outputs, Mapping):
        outputs = tuple(outputs.values())
    outputs = outputs if isinstance(outputs, tuple | list) else (outputs,)
    return tuple(
        one.detach().numpy() if hasattr(one, "detach") else np.asarray(one) for one in outputs
    )
