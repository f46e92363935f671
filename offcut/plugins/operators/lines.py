"""What is computed along an axis: norms, running sums and extremes, recurrent layers.

What depends on the order of elements along an axis: running sums and extremes, all in order, the first few.

Sums and norms of lines: logarithms of sums of exponentials, norms along several last axes as one.

Recurrent layers in one direction: the input times its weights for all steps, then the steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from offcut.graph.sizes.extent_values import Extent, arithmetic, plain, product
from offcut.ops.sorting.ranking import FEW
from offcut.plugins.operators.translator import Translator


def log_sum_exp(t: Translator, x: Any, axes: Sequence[int], keepdims: bool) -> Any:
    """Return ``log(sum of exp(x))`` of floats along some axes, counted from the first; -inf of none."""
    greatest = t.node("max", x, axis=tuple(axes), keepdims=True)
    is_infinite = t.node("equal", t.node("absolute", greatest), math.inf)
    shift = t.node("where", is_infinite, 0.0, greatest)  # inf - inf is NaN
    powers = t.node("exp", t.node("subtract", x, shift))
    total = t.node("log", t.node("sum", powers, axis=tuple(axes), keepdims=True))
    result = t.node("add", total, shift)
    shape = [one for axis, one in enumerate(t.shape(x)) if axis not in axes]
    return result if keepdims else t.reshape(result, shape)


def norm_of_last_axes(
    t: Translator, op: str, x: Any, count: int, parameters: Mapping[str, Any], epsilon: float
) -> Any:
    """Return a norm of ours along the last axes, as one.

    op          layernorm or rmsnorm
    count       of the axes
    parameters  gain and bias, of the extents of these axes; those that are None are left out
    """
    shape = t.shape(x)
    width = product(shape[len(shape) - count :])
    flat_parameters = {
        name: t.reshape(one, (width,)) for name, one in parameters.items() if one is not None
    }
    lines = t.reshape(x, (*shape[: len(shape) - count], width))
    return t.reshape(t.node(op, lines, epsilon=epsilon, **flat_parameters), shape)


MAX_COMPARED_ELEMENTS = 64
"""Elements along an axis, of which each is compared with all; in longer ones, runs of them are merged."""


def accumulate(t: Translator, x: Any, axis: int, reduction: str, places: bool = False) -> Any:
    """Return what is joined up to each element along an axis, and the places of extremes where they are asked for: `offcut.ops.accumulated`."""
    own = tuple(map(plain, t.shape(x)))
    parts = (own[:axis], own[axis : axis + 1], own[axis + 1 :])
    lines = t.reshape(x, tuple(product(part) for part in parts if part))
    sums = t.node("accumulated", lines, axis=min(axis, 1), reduction=reduction, places=places)
    return tuple(t.reshape(one, own) for one in sums) if places else t.reshape(sums, own)


def sort(t: Translator, x: Any, axis: int, descending: bool) -> Any:
    """Return the elements along an axis in ascending order, and their places."""
    return t.node(
        "sort" if _is_short(t, x, axis) else "merged", x, axis=axis, descending=descending
    )


def top_elements(t: Translator, x: Any, k: Extent, axis: int, largest: bool) -> tuple[Any, ...]:
    """Return the `k` greatest elements along an axis in descending order, or the least in ascending order, and their places.

    k  no more than the extent of the axis; up to `FEW` of the greatest are found one after the other, however long the axis is
    """
    few = isinstance(k, int) and k <= MAX_COMPARED_ELEMENTS
    one_by_one = largest and isinstance(k, int) and k <= FEW
    if few and (_is_short(t, x, axis) or one_by_one or k == 0):
        return tuple(t.node("topk", x, k, axis=axis, largest=largest))
    if few:
        last = t.node("kth", x, k, axis=axis, largest=largest)
        return tuple(t.node("leading", x, *last, k, axis=axis, largest=largest))
    return tuple(t.slice(one, axis, 0, k) for one in sort(t, x, axis, largest))


def _is_short(t: Translator, x: Any, axis: int) -> bool:
    extent = plain(t.shape(x)[axis])
    return isinstance(extent, int) and extent <= MAX_COMPARED_ELEMENTS


def recurrence(
    t: Translator,
    kind: str,
    x: Any,
    w: Any,
    r: Any,
    biases: tuple[Any, Any] | None,
    is_batch_first: bool,
    **options: Any,
) -> tuple[Any, ...]:
    """Return the states after each step, (steps, batch, columns), and each state after the last step.

    kind            rnn, lstm or gru
    x               (steps, batch, e), or (batch, steps, e) if batches come first
    w, r            the weights of the input and of the state, gates one after the other: (gates * columns, …)
    biases          of both, (gates * columns,); None: there are none
    is_batch_first  of the input alone
    options         of the operator of that kind; those that are None are left out
    """
    dense_options: dict[str, Any] = {}
    if biases is not None and kind == "gru" and options.get("after") is None:
        # the state's bias of the last gate is added before that is reset
        rows = plain(t.shape(biases[0])[0])
        gates = arithmetic("*", arithmetic("//", rows, 3), 2)
        both = t.node("add", *(t.slice(one, 0, 0, gates) for one in biases))
        last, options["bias"] = (t.slice(one, 0, gates, rows) for one in biases)
        dense_options["bias"] = t.node("concat", (both, last), axis=0)
    elif biases is not None:
        dense_options["bias"] = t.node("add", *biases)
    steps = t.node("dense", x, w, transpose_w=True, **dense_options)
    steps = t.transpose(steps, (1, 0, 2)) if is_batch_first else steps
    parameters = {name: one for name, one in options.items() if one is not None}
    results: tuple[Any, ...] = t.node(kind, steps, r, **parameters)
    return results
