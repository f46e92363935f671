"""Operators that torch traces step by step, traced whole: sequences of any length then stay what they are.

Torch finds the shape of a recurrent layer by walking its steps, as many as the example has, and that number would be the
program's. While it traces for us, a function of shapes stands for the walk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import is_fake

NAMES = ("lstm", "gru", "rnn_tanh", "rnn_relu")


@contextmanager
def whole() -> Iterator[None]:
    """Recurrent layers are traced by their shapes, inside."""
    every = [getattr(torch.ops.aten, name).input for name in NAMES]
    before = [(dict(op.py_kernels), decomposition_table[op]) for op in every]
    for op, (kernels, walked) in zip(every, before, strict=True):
        shaped = _traced(walked)
        _set(op, dict.fromkeys(kernels, shaped), shaped)
    try:
        yield
    finally:
        for op, (kernels, walked) in zip(every, before, strict=True):
            _set(op, kernels, walked)


def _set(op: Any, kernels: dict[Any, Any], walked: Any) -> None:
    op.py_kernels.clear()
    op.py_kernels.update(kernels)
    op._dispatch_cache.clear()
    decomposition_table[op] = walked


def _traced(walked: Any) -> Any:
    """Shapes for tensors that have no elements; tensors that have are calculated with."""

    def found(x: Any, *others: Any) -> Any:
        return _shaped(x, *others) if is_fake(x) else walked(x, *others)

    return found


def _shaped(
    x: Any,
    hx: Any,
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Any, ...]:
    """Results of the shapes and strides that the layer gives."""
    states = hx if isinstance(hx, tuple | list) else (hx,)
    width = states[0].shape[2] * (2 if bidirectional else 1)
    batch, steps = x.shape[:2] if batch_first else x.shape[1::-1]
    every = x.new_empty((steps, batch, width))
    last = (one.new_empty(one.shape) for one in states)
    return (every.transpose(0, 1) if batch_first else every, *last)
