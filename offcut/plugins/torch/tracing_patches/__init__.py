"""Operators of which torch asks whether a size is 1, traced without that question: a batch of 1 then needs no graph of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import _prims_common
from torch._C import DispatchKey
from torch._decomp import decomposition_table
from torch._dynamo.variables.builder import VariableBuilder
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch._subclasses import fake_impls
from torch._subclasses.fake_impls import op_implementations_dict
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.sym_node import SymNode

from offcut.plugins.torch.entry_replacement import replace_entries
from offcut.plugins.torch.tracing_patches.layout import (
    are_channels_last,
    contiguous,
    flatten,
    reshape,
    result_axes,
    view,
)
from offcut.plugins.torch.tracing_patches.numbers import linspace, trunc, wrap_symfloat
from offcut.plugins.torch.tracing_patches.operators import (
    attention,
    average,
    convolution,
    copy,
    dense,
    einsum,
    group_norm,
    overlap,
    slice_index,
    squeeze,
)

aten = torch.ops.aten

_KEY = DispatchKey.CompositeImplicitAutograd

UNGUARDED: Mapping[Any, Callable[..., Any]] = {
    aten.linear.default: dense,
    aten.einsum.default: einsum,
    aten.reshape.default: reshape,
    aten.flatten.using_ints: flatten,
    aten.scaled_dot_product_attention.default: attention,
    aten.group_norm.default: group_norm,
    aten.adaptive_avg_pool2d.default: average(aten.adaptive_avg_pool2d.default, 2),
    aten.adaptive_avg_pool3d.default: average(aten.adaptive_avg_pool3d.default, 3),
}
"""By operator of torch that is others in sequence, what stands for it while torch traces for us."""

_SHAPES: Mapping[Any, Callable[..., Any]] = {
    aten.convolution.default: convolution,
    aten.copy.default: copy,
    aten.view.default: view,
}
"""By operator of torch, what tells the shape of its result."""

_PARTS: Mapping[Any, Callable[..., Any]] = {
    aten.squeeze.default: squeeze,
    aten.squeeze.dim: squeeze,
    aten.squeeze.dims: squeeze,
}
"""By operator of torch whose shape is told by what it is taken apart into, what stands for that."""

_TRACED: tuple[Any, ...] = (FakeTensor, FunctionalTensor)
"""Tensors without elements, that torch traces with."""

_FUNCTIONS: Mapping[tuple[Any, str], Callable[..., Any]] = {
    (fake_impls, "_compute_slice_index"): slice_index,
    (torch, "_debug_has_internal_overlap"): overlap,
    (_prims_common, "are_strides_like_channels_last_or_false"): are_channels_last,
    (_prims_common, "compute_elementwise_output_logical_to_physical_perm"): result_axes,
    (VariableBuilder, "wrap_symfloat"): wrap_symfloat,
    (SymNode, "trunc"): trunc,
}
"""By module or class, and name, what stands for a function that torch calls where it traces."""

_CALLS: Mapping[Any, Callable[..., Any]] = {torch.linspace: linspace}
"""By function that frames call, what stands for the call."""


@contextmanager
def trace_without_guards() -> Iterator[None]:
    """Let torch trace the operators of `UNGUARDED` by the rules of this package until the context ends."""
    handlers = TorchInGraphFunctionVariable._get_handlers()
    with ExitStack() as stack:
        for op, rule in UNGUARDED.items():
            stack.callback(op._dispatch_cache.clear)
            stack.enter_context(replace_entries(op.py_kernels, {_KEY: rule}))
            op._dispatch_cache.clear()
        for one in _TRACED:
            stack.enter_context(replace_entries(one, {"contiguous": contiguous}))
        for (owner, name), function in _FUNCTIONS.items():
            stack.enter_context(replace_entries(owner, {name: function}))
        tables = (
            (op_implementations_dict, _SHAPES),
            (decomposition_table, _PARTS),
            (handlers, _CALLS),
        )
        for table, entries in tables:
            stack.enter_context(replace_entries(table, entries))
        yield
