"""Constants that multiply a sum of products go into its constant operand; those that are added to it become one.

Before: ``s[i, j] = sum over k of x[i, k] * w[k, j]``, ``y[i, j] = (s[i, j] - m[j]) * g[j] + b[j]``.
After: ``v[k, j] = w[k, j] * g[j]``, ``c[j] = (0 - m[j]) * g[j] + b[j]``, ``s[i, j] = sum over k of x[i, k] * v[k, j]``,
``y[i, j] = s[i, j] + c[j]``, where v and c depend on constants alone.

So a batch norm leaves no more of itself than a bias. That is equal in exact arithmetic; in floats weights are rounded once more,
and sums once less.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from offcut.core.dtypes import FLOATS
from offcut.core.expr import (
    Binary,
    Const,
    Expr,
    Load,
    Reduce,
    Var,
    loads,
    rewrite,
    substitute,
    variables,
)
from offcut.describe.tensor import Compute, Tensor, tensors_of
from offcut.describe.value import Axis
from offcut.graph.fusion.tensor_rewrites import rebuilt, written_where

Affine = tuple[Expr, Expr]
"""What a sum is multiplied by, and what is added to it then."""


def scaled_name(name: str) -> str:
    """What the constant of that name is called where others were multiplied into it."""
    return f"{name}_scaled"


def with_folded_factors(
    results: tuple[Tensor, ...], constants: Collection[str]
) -> tuple[Tensor, ...]:
    """The results, where each sum that constants multiply and shift along one axis has them in its own constant; the same object
    where no sum is so.

    constants  names of operands that are known
    """
    described = results
    results = _with_bias_in_readers(results, constants)
    order, readers, fixed = _around(results, constants)
    folds = dict[str, _Fold]()
    for tensor in order:
        if tensor not in results and len(readers[tensor.name]) == 1:
            fold = _fold_of(tensor, readers[tensor.name][0], fixed)
            if fold is not None and len(readers[fold.weights.name]) == 1:
                folds[tensor.name] = folds[fold.reader] = fold
    if not folds:
        return described

    def change(tensor: Tensor, rewritten: Mapping[str, Tensor]) -> Tensor:
        definition, fold = tensor.definition, folds.get(tensor.name)
        if definition is None or tensor.name in fixed:
            return tensor
        if fold is None:
            reads = tuple(rewritten[one.name] for one in definition.reads)
            return replace(tensor, definition=replace(definition, reads=reads))
        if tensor.name == fold.sum:
            return _scaled_sum(tensor, definition, fold, rewritten)
        return _shifted_sum(tensor, definition, fold, rewritten[fold.sum])

    rewritten = rebuilt(results, change)
    return tuple(rewritten[tensor.name] for tensor in results)


def _around(
    results: Sequence[Tensor], constants: Collection[str]
) -> tuple[Sequence[Tensor], Mapping[str, Sequence[Tensor]], Mapping[str, Tensor]]:
    """All tensors in order, what reads each, and those that are known or depend on known ones alone."""
    order = tensors_of(results)
    readers: dict[str, list[Tensor]] = {tensor.name: [] for tensor in order}
    fixed = {tensor.name: tensor for tensor in order if tensor.name in constants}
    for tensor in order:
        reads = () if tensor.definition is None else tensor.definition.reads
        for one in reads:
            readers[one.name].append(tensor)
        if reads and all(one.name in fixed for one in reads) and tensor not in results:
            fixed[tensor.name] = tensor
    return order, readers, fixed


def _with_bias_in_readers(
    results: tuple[Tensor, ...], constants: Collection[str]
) -> tuple[Tensor, ...]:
    """The results, where what constants shift and one tensor reads, which they scale, is computed there: a bias in front of a norm."""
    order, readers, fixed = _around(results, constants)
    shifted = set[str]()
    for tensor in order:
        if tensor.name in fixed or tensor in results or len(readers[tensor.name]) != 1:
            continue
        (reader,) = readers[tensor.name]
        of = [one for one in _reads_of(tensor) if one.name not in fixed]
        if len(of) == 1 and _scales(reader, tensor, fixed) and _scales(tensor, of[0], fixed):
            shifted.add(tensor.name)
    return written_where(results, lambda name, _: name in shifted) if shifted else results


def _reads_of(tensor: Tensor) -> Sequence[Tensor]:
    return () if tensor.definition is None else tensor.definition.reads


def _scales(reader: Tensor, tensor: Tensor, fixed: Mapping[str, Tensor]) -> bool:
    """Whether each element of a reader is one of a tensor, times what is known, plus what is known."""
    definition = reader.definition
    if definition is None or definition.reduce_axes:
        return False
    if reader.shape != tensor.shape or reader.dtype != tensor.dtype:
        return False
    load = Load(tensor.name, tuple(Var(axis.name) for axis in definition.axes), tensor.dtype)
    others = [one.name for one in definition.reads if one.name != tensor.name]
    return _affine(definition.body, load) is not None and fixed.keys() >= {*others}


@dataclass(frozen=True)
class _Fold:
    """A sum whose factor and shift go into constants.

    sum, reader    their names
    weights, axis  the constant that the sum multiplies, and the axis of it that goes with `name`
    name, extent   the axis of the reader along which factor and shift change
    known          what these read
    """

    sum: str
    reader: str
    weights: Tensor
    axis: int
    name: str
    extent: Any
    factor: Expr
    shift: Expr
    known: Mapping[str, Tensor]

    def read(self, expr: Expr) -> tuple[Tensor, ...]:
        """The tensors that an expression reads."""
        return tuple(dict.fromkeys(self.known[load.buffer] for load, _ in loads(expr)))


def _fold_of(total: Tensor, reader: Tensor, fixed: Mapping[str, Tensor]) -> _Fold | None:
    """What of a reader goes into the constants of a sum; None where nothing does."""
    definition, outer = total.definition, reader.definition
    assert outer is not None
    if definition is None or total.dtype not in FLOATS or reader.dtype != total.dtype:
        return None
    own = tuple(Var(axis.name) for axis in outer.axes)
    if outer.reduce_axes or reader.shape != total.shape:
        return None
    affine = _affine(outer.body, Load(total.name, own, total.dtype))
    if affine is None or isinstance(affine[0], Const):
        return None
    used = set[str]().union(*map(variables, affine))
    read = {load.buffer for part in affine for load, _ in loads(part)}
    places = [place for place, axis in enumerate(outer.axes) if axis.name in used]
    if len(used) != 1 or not places or not read <= fixed.keys():
        return None
    (name,), (place,) = used, places
    weights = _weights(definition, Var(definition.axes[place].name), fixed)
    if weights is None or weights[0].dtype != total.dtype:
        return None
    known = {one: fixed[one] for one in read}
    extent = outer.axes[place].extent
    return _Fold(total.name, reader.name, *weights, name, extent, *affine, known)


def _affine(expr: Expr, total: Load) -> Affine | None:
    """The factor and the shift of `total` in an expression that is ``factor * total + shift``; None where it is none."""
    if expr == total:
        return Const(1.0, total.dtype), Const(0.0, total.dtype)
    if not isinstance(expr, Binary) or expr.op not in "+-*/":
        return None
    inner, other = expr.a, expr.b
    if expr.op in "+*" and not _reads(inner, total.buffer):
        inner, other = other, inner
    inner_form = None if _reads(other, total.buffer) else _affine(inner, total)
    if inner_form is None:
        return None
    factor, shift = inner_form
    if expr.op in "+-":
        return factor, Binary(expr.op, shift, other)
    return _times(expr.op, factor, other), _times(expr.op, shift, other)


def _times(op: str, value: Expr, by: Expr) -> Expr:
    """A product or quotient, of 0 and 1 in short."""
    match value:
        case Const(0.0):
            return value
        case Const(1.0) if op == "*":
            return by
        case _:
            return Binary(op, value, by)


def _reads(expr: Expr, buffer: str) -> bool:
    return any(load.buffer == buffer for load, _ in loads(expr))


def _weights(
    definition: Compute, along: Var, fixed: Mapping[str, Tensor]
) -> tuple[Tensor, int] | None:
    """The known factor of the terms of a sum, and its axis that `along` alone says; None where there is none such."""
    match definition.body:
        case Reduce("sum", Binary("*", a, b)):
            pass
        case _:
            return None
    for mine, other in ((a, b), (b, a)):
        if not isinstance(mine, Load) or mine.buffer not in fixed or _reads(other, mine.buffer):
            continue
        weights = fixed[mine.buffer]
        if weights.definition is None and mine.index.count(along) == 1:
            return weights, mine.index.index(along)
    return None


def _scaled_sum(
    total: Tensor, definition: Compute, fold: _Fold, rewritten: Mapping[str, Tensor]
) -> Tensor:
    """The sum, of weights that the factor was multiplied into."""
    old = fold.weights
    axes = tuple(Axis(f"w{place}", extent) for place, extent in enumerate(old.shape))
    element = Load(old.name, tuple(Var(axis.name) for axis in axes), old.dtype)
    factor = substitute(fold.factor, {fold.name: cast("Expr", Var(axes[fold.axis].name))})
    product = Compute(axes, (), Binary("*", element, factor), (old, *fold.read(fold.factor)))
    new = Tensor(scaled_name(old.name), old.shape, old.dtype, product)

    def rule(expr: Expr) -> Expr | None:
        if not isinstance(expr, Load) or expr.buffer != old.name:
            return None
        return replace(expr, buffer=new.name)

    reads = tuple(new if one.name == old.name else rewritten[one.name] for one in definition.reads)
    body = rewrite(definition.body, rule)
    return replace(total, definition=replace(definition, body=body, reads=reads))


def _shifted_sum(reader: Tensor, definition: Compute, fold: _Fold, total: Tensor) -> Tensor:
    """The sum, and what is added to it."""
    load = Load(total.name, tuple(Var(axis.name) for axis in definition.axes), total.dtype)
    if fold.shift == Const(0.0, total.dtype):
        return replace(reader, definition=replace(definition, body=load, reads=(total,)))
    inner = Compute((Axis(fold.name, fold.extent),), (), fold.shift, fold.read(fold.shift))
    shift = Tensor(f"{reader.name}_shift", (fold.extent,), reader.dtype, inner)
    body = Binary("+", load, Load(shift.name, (Var(fold.name),), reader.dtype))
    return replace(reader, definition=replace(definition, body=body, reads=(total, shift)))
