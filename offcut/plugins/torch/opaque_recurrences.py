"""Operators that torch traces step by step, traced whole: sequences of any length then stay what they are.

Torch finds the shape of a recurrent layer by walking its steps, as many as the example has, and that number would be the
program's. While it traces for us, a function of shapes stands for the walk, but where a gradient is asked for.

In a frame that dynamo traced, an operator of ours stands for the layer, ``offcut::lstm``: what comes after dynamo walks torch's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import is_fake
from torch.utils import _pytree as pytree

from offcut.plugins.torch.entry_replacement import replace_entries

NAMES = ("lstm", "gru", "rnn_tanh", "rnn_relu")


@contextmanager
def trace_recurrences_whole() -> Iterator[None]:
    """Recurrent layers are traced by their shapes, inside."""
    with ExitStack() as stack:
        for op in (getattr(torch.ops.aten, name).input for name in NAMES):
            shaped = _trace_shapes(decomposition_table[op])
            stack.callback(op._dispatch_cache.clear)
            stack.enter_context(
                replace_entries(op.py_kernels, dict.fromkeys(op.py_kernels, shaped))
            )
            stack.enter_context(replace_entries(decomposition_table, {op: shaped}))
            op._dispatch_cache.clear()
        yield


def _trace_shapes(walked: Any) -> Any:
    """Return shapes for tensors that have no elements and ask for no gradient; others are calculated with."""

    def call(x: Any, *others: Any) -> Any:
        return (
            _result_shapes(x, *others)
            if is_fake(x) and not _learns(x, *others)
            else walked(x, *others)
        )

    return call


def _learns(*arguments: Any) -> bool:
    """Return whether a gradient is asked for."""
    return torch.is_grad_enabled() and any(
        one.requires_grad for one in pytree.tree_leaves(arguments) if isinstance(one, torch.Tensor)
    )


def _result_shapes(
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


_OURS = torch.library.Library("offcut", "DEF")


def _define(name: str) -> Any:
    """Return an operator of ours that does what one of torch does, which nothing takes apart."""
    theirs = getattr(torch.ops.aten, name).input
    schema = str(theirs._schema).partition("(")[2]
    _OURS.define(f"{name}({schema}")
    _OURS.impl(name, getattr(torch, name), "CompositeExplicitAutograd")
    torch.library.register_fake(f"offcut::{name}", _result_shapes, lib=_OURS)
    return getattr(torch.ops.offcut, name).default


_BY_FUNCTION = {getattr(torch, name): _define(name) for name in NAMES}


def keep_whole(module: Any) -> None:
    """Put operators of ours in place of the recurrent layers of a graph of dynamo in which no gradient is asked for; of packed sequences none is."""
    for node in module.graph.nodes:
        ours = _BY_FUNCTION.get(node.target) if node.op == "call_function" else None
        arguments = torch.fx.node.map_arg(node.args, lambda one: one.meta.get("example_value"))
        if (
            ours is not None
            and len(node.args) == len(ours._schema.arguments)
            and not _learns(arguments)
        ):
            node.target = ours
    module.recompile()
