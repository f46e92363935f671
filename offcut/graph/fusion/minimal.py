"""Sums over windows of three neighbours by fewer multiplications: minimal filtering.

Two neighbouring results of a window of three, ``y[0] = d[0]g[0] + d[1]g[1] + d[2]g[2]`` and ``y[1] = d[1]g[0] + d[2]g[1] + d[3]g[2]``,
take four products in place of six::

    m[0] = (d[0] - d[2]) * g[0]                          y[0] = m[0] + m[1] + m[2]
    m[1] = (d[1] + d[2]) * (g[0] + g[1] + g[2])/2        y[1] = m[1] - m[2] - m[3]
    m[2] = (d[2] - d[1]) * (g[0] - g[1] + g[2])/2
    m[3] = (d[1] - d[3]) * g[2]

Along two axes, sixteen in place of 36. What is made of d and of m is added up alone; what is made of g depends on constants, and is
computed when a model is compiled. The sum over channels runs between: four, or sixteen, products of matrices.

That is equal in exact arithmetic. In floats each result is a sum of other terms, as many times smaller as there are fewer: against
exact sums it is off by about as much. Each result reads the elements that it reads in the plain sum, and no other, so a NaN reaches the
same results; infinities would cancel to NaN, and differences of great numbers overflow: `Assumed` says how large data may be.

It is done where it saves more multiplications than it moves elements.

Sources: S. Winograd, Arithmetic Complexity of Computations, SIAM 1980; A. Lavin and S. Gray, Fast Algorithms for Convolutional
Neural Networks, CVPR 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import sympy

from offcut.core import index as ix
from offcut.core.conditions import conjunction, conjuncts
from offcut.core.dtypes import numpy_dtype
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Unary,
    Var,
    dtype_of,
    loads,
    rewrite,
    substitute,
    variables,
)
from offcut.core.sizes import Dim, quotient
from offcut.describe.request import Array
from offcut.describe.tensor import Compute, Tensor, tensors_of
from offcut.describe.value import Axis, size_value
from offcut.graph.fusion.tensor_rewrites import rebuilt

TAPS, TILE = 3, 2
"""Of a window; results that are computed together."""
POINTS = TAPS + TILE - 1
"""Elements that these read, and products that they take."""
WORTH = 6
"""Multiply-adds that an element costs which is moved: a core does two vectors of the former in the time of a load or a store of
one, and these elements come from the second cache or beyond. At half as many more than break even for large images, small ones lose nothing."""

Point = Callable[[int], Expr]
"""What is combined, at each of some neighbours."""


@dataclass(frozen=True)
class MagnitudeLimit:
    """The magnitude of data up to which sums by fewer products differ from the plain ones by rounding alone.

    dtype    of the data
    points   the name of the weights' points
    terms    how many products of the two are added up, times how many elements are in one
    """

    dtype: str
    points: str
    terms: int

    def limit(self, points: Array) -> float:
        """Return the magnitude up to which no sum of that many elements or products leaves the finite numbers, rounding included."""
        most = float(np.finfo(numpy_dtype(self.dtype)).max) / 2
        return most / (self.terms * float(np.abs(points).max(initial=1.0)))


@dataclass(frozen=True)
class Assumed:
    """What sums by fewer products assume of what they read.

    largest  a tensor of one element: the magnitude of the data, or more
    """

    largest: Tensor
    limit: MagnitudeLimit


def with_fewer_products(
    results: Sequence[Tensor], constants: Collection[str]
) -> tuple[tuple[Tensor, ...], tuple[Assumed, ...]]:
    """The results, where sums over windows of three with constants take fewer multiplications; and what these assume.

    constants  names of operands that are known
    """
    fixed, assumed = {*constants}, list[Assumed]()
    for tensor in tensors_of(results):
        reads = () if tensor.definition is None else tensor.definition.reads
        if reads and all(one.name in fixed for one in reads) and tensor not in results:
            fixed.add(tensor.name)

    def change(tensor: Tensor, rewritten: Mapping[str, Tensor]) -> Tensor:
        definition = tensor.definition
        if definition is None:
            return tensor
        reads = tuple(rewritten[one.name] for one in definition.reads)
        now = replace(tensor, definition=replace(definition, reads=reads))
        window = None if tensor.name in fixed else window_of(now, fixed, TAPS)
        if window is None or not _worth(window):
            return now
        minimal = _Minimal(window)
        transformed, points = minimal.tensor_and_points()
        largest = replace(minimal.largest(), name=f"largest_{len(assumed)}")
        limit = MagnitudeLimit(largest.dtype, points.name, minimal.terms)
        assumed.append(Assumed(largest, limit))
        return transformed

    rewritten = rebuilt(results, change)
    return tuple(rewritten[tensor.name] for tensor in results), tuple(assumed)


def _worth(window: Window) -> bool:
    """Whether it saves more than it takes, for each place of the window."""
    if window.total.dtype not in ("float32", "float64"):
        return False
    count = len(window.along)
    depth, lanes = (
        prod(int(axis.extent) for axis in axes) for axes in (window.depth, window.lanes)
    )
    filled = prod(map(_computed_extent, window.along))
    saved = (TAPS**count - filled * TILE**count) * depth * lanes
    # Each transformation reads two elements for each that it writes; sums are read by all results of a tile.
    written = sum((POINTS // TILE) ** (n + 1) for n in range(count))
    traffic = depth * (3 * written + TILE**count) + lanes * (TILE**count + TAPS**count + 1)
    return bool(saved > WORTH * filled * traffic)


@dataclass(frozen=True)
class _Minimal:
    """The tensors that a sum over windows is computed by."""

    window: Window

    @property
    def terms(self) -> int:
        """How many products a result is the sum of, times how many elements of the data a factor is."""
        depth = prod(int(axis.extent) for axis in self.window.depth)
        return int((TILE * TAPS) ** len(self.window.along) * depth)

    def tensor_and_points(self) -> tuple[Tensor, Tensor]:
        """The tensor that is computed so, and the points of the weights."""
        of = self.window
        *outer, inner = range(len(of.along))
        points = [Axis(f"{axis.name}_point", sympy.Integer(POINTS)) for axis in of.along]
        tiles = [Axis(f"{axis.name}_tile", _tiles(axis.extent)) for axis in of.along]
        pairs = [axis for n in outer for axis in (tiles[n], points[n])]
        pairs += [points[inner], tiles[inner]]

        data = self._data(points, tiles)
        weights = self._weights(points)
        factors = (_element(one) for one in (data, weights))
        product = self._tensor(
            "products",
            (*of.lead, *pairs, *of.lanes),
            Reduce("sum", Binary("*", *factors), tuple(axis.name for axis in of.depth)),
            (data, weights),
            of.depth,
        )
        body: Expr = _element(product)
        for axis, point, tile in zip(of.along, points, tiles, strict=True):
            body = _result(_at(body, point), Var(axis.name))
            body = substitute(body, {tile.name: ix.floordiv(Var(axis.name), TILE)})
        definition = replace(of.definition, reduce_axes=(), body=body, reads=(product,))
        return replace(of.total, definition=definition), weights

    def largest(self) -> Tensor:
        """The magnitude of the data: of a whole tensor, where it is that and constants around, or of all windows."""
        of, sizes = self.window, tuple[Dim, ...]()
        match of.data:
            case (Load() as load) | Select(_, Load() as load, Const(value=0)):
                (read,) = (one for one in of.definition.reads if one.name == load.buffer)
                axes = tuple(
                    Axis(f"{read.name}_{n}", extent) for n, extent in enumerate(read.shape)
                )
                body: Expr = Load(read.name, tuple(Var(axis.name) for axis in axes), read.dtype)
            case body:
                ends = (replace(axis, extent=axis.extent + TAPS - 1) for axis in of.along)
                axes, sizes = (*of.lead, *ends, *of.depth), of.definition.sizes
        names = tuple(axis.name for axis in axes)
        magnitude = Reduce("max", Unary("abs", body), names)
        return self._tensor("largest", (), magnitude, self._data_tensors(), axes, sizes)

    def _data_tensors(self) -> tuple[Tensor, ...]:
        """What the data reads."""
        read = {load.buffer for load, _ in loads(self.window.data)}
        return tuple(one for one in self.window.definition.reads if one.name in read)

    def _data(self, points: Sequence[Axis], tiles: Sequence[Axis]) -> Tensor:
        """What the products read of the data: along each axis in turn, the points of its tiles."""
        of, reads = self.window, self._data_tensors()
        last = len(of.along) - 1
        body, sizes = self._inside()
        before = list[Axis]()
        after = [
            replace(axis, extent=TILE * _tiles(axis.extent) + POINTS - TILE) for axis in of.along
        ]
        for n, (point, tile) in enumerate(zip(points, tiles, strict=True)):
            new_axis = after.pop(0)
            before += (point, tile) if n == last else (tile, point)
            start = ix.mul(TILE, Var(tile.name))

            def neighbour(
                place: int, name: str = new_axis.name, start: Expr = start, of: Expr = body
            ) -> Expr:
                return substitute_indices(of, {name: ix.add(start, place)})

            tensor = self._tensor(
                f"data_{new_axis.name}",
                (*of.lead, *before, *after, *of.depth),
                _data_at(Var(point.name), neighbour),
                reads,
                sizes=(*of.definition.sizes, *sizes),
            )
            body, reads, sizes = _element(tensor), (tensor,), ()
        return tensor

    def _weights(self, points: Sequence[Axis]) -> Tensor:
        """What the products read of the weights: for each point a matrix, which lies by itself."""
        of = self.window
        weights, planes = of.weights, [*of.taps]
        axes = {part.name: part for part in (*of.depth, *of.lanes)}
        matrix = [axes[x.name] for x in of.at if isinstance(x, Var) and x.name in axes]
        body: Expr = Load(weights.name, of.at, weights.dtype)
        for n, (point, tap) in enumerate(zip(points, of.taps, strict=True)):
            planes[n] = point
            body = _weights_at(Var(point.name), _at(body, tap))
            weights = self._tensor(f"weights_{tap.name}", (*planes, *matrix), body, (weights,))
            body = _element(weights)
        return weights

    def _inside(self) -> tuple[Expr, tuple[Dim, ...]]:
        """The data, and 0 behind the last window, since the last tile may be of one result alone; and the sizes that this names."""
        of = self.window
        shapes = {one.name: one.shape for one in of.definition.reads}
        comparisons = set[tuple[Expr, Expr]]()
        if isinstance(of.data, Select) and not any(True for _ in loads(of.data.other)):
            around = conjuncts(of.data.condition)
            comparisons = {
                (one.a, one.b) for one in around if isinstance(one, Compare) and one.op == "<"
            }
        conditions, sizes = list[Expr](), list[Dim]()
        for axis in of.along:
            ends = {
                (index, _size(extent)[0])
                for load, _ in loads(of.data)
                for index, extent in zip(load.index, shapes[load.buffer], strict=True)
                if axis.name in variables(index)
            }
            if not ends <= comparisons:
                end, own = _size(axis.extent + TAPS - 1)
                conditions.append(Compare("<", Var(axis.name), end))
                sizes += own
        if not conditions:
            return of.data, ()
        zero = Const(0.0, of.total.dtype)
        return Select(conjunction(conditions), of.data, zero), tuple(sizes)

    def _tensor(
        self,
        word: str,
        axes: Sequence[Axis],
        body: Expr,
        reads: Sequence[Tensor],
        reduced: Sequence[Axis] = (),
        sizes: Sequence[Dim] = (),
    ) -> Tensor:
        definition = Compute(tuple(axes), tuple(reduced), body, tuple(reads), tuple(sizes))
        shape = tuple(axis.extent for axis in axes)
        total = self.window.total
        return Tensor(f"{total.name}_{word}", shape, total.dtype, definition)


def _size(extent: Any) -> tuple[Expr, tuple[Dim, ...]]:
    """An extent in an expression over elements, and the sizes that it names."""
    size = size_value(extent)
    assert size is not None, "an extent is a size"
    return size.node, size.sizes


def _computed_extent(axis: Axis) -> float:
    """What is computed along an axis for each result: more than one where the last tile is of one, as far as is known."""
    extent = axis.extent
    return TILE * int(_tiles(extent)) / max(int(extent), 1) if extent.is_Integer else 1.0


def _tiles(extent: Any) -> Any:
    return quotient(extent + TILE - 1, TILE)


def _element(tensor: Tensor) -> Load:
    """Its element at its own axes."""
    assert tensor.definition is not None
    return Load(tensor.name, tuple(Var(axis.name) for axis in tensor.definition.axes), tensor.dtype)


def _at(body: Expr, axis: Axis) -> Point:
    return lambda place: substitute(body, {axis.name: ix.const(place)})


def _plus(*parts: Expr) -> Expr:
    return reduce(lambda a, b: Binary("+", a, b), parts)


def _by(point: Expr, *values: Expr) -> Expr:
    """The value of that number."""
    *others, selected = values
    for number in reversed(range(len(others))):
        selected = Select(Compare("<", point, ix.const(number + 1)), others[number], selected)
    return selected


def _data_at(point: Expr, d: Point) -> Expr:
    differences = (Binary("-", d(0), d(2)), _plus(d(1), d(2)), Binary("-", d(2), d(1)))
    return _by(point, *differences, Binary("-", d(1), d(3)))


def _weights_at(point: Expr, g: Point) -> Expr:
    ends = _plus(g(0), g(2))
    half = Const(0.5, dtype_of(ends))
    halves = (Binary("*", Binary(op, ends, g(1)), half) for op in "+-")
    return _by(point, g(0), *halves, g(2))


def _result(m: Point, place: Expr) -> Expr:
    first, second = _plus(m(0), m(1), m(2)), Binary("-", Binary("-", m(1), m(2)), m(3))
    return _by(ix.mod(place, TILE), first, second)


# Sums over windows of neighbours, as they are read from expressions.
#
# ``sum over c, r of d(i + r, c) * w[r, c, o]`` with a constant w, whatever d computes of the sum of i and r, conditions of a padding among
# them: along one axis, or two.

AXES = 2
"""At most: what is added up beside products grows with each, by a factor."""


@dataclass(frozen=True)
class Window:
    """``total[lead, y…, o…] = sum over r…, c… of data(lead, y + r…, c…) * weights[r…, c…, o…]``.

    total, definition    the sum, as it was described
    data                 what is multiplied, with the name of y for the sum of y and r
    weights, at          the constant, and the index at which it is read
    lead, along, lanes   axes of the result: of data alone, those that move a window, and those of the weights alone
    taps, depth          axes of the sum: one for each of `along`, and the others
    """

    total: Tensor
    definition: Compute
    data: Expr
    weights: Tensor
    at: tuple[Expr, ...]
    lead: tuple[Axis, ...]
    along: tuple[Axis, ...]
    lanes: tuple[Axis, ...]
    taps: tuple[Axis, ...]
    depth: tuple[Axis, ...]


def window_of(total: Tensor, fixed: Collection[str], taps: int) -> Window | None:
    """A sum over windows of so many taps along each axis, with constants; None for any other tensor.

    fixed  names of tensors that are known
    """
    definition = total.definition
    assert definition is not None
    match definition.body:
        case Reduce("sum", Binary("*", a, b)):
            pass
        case _:
            return None
    for weights, data in ((a, b), (b, a)):
        if isinstance(weights, Load) and weights.buffer in fixed:
            return _by_axes(total, definition, weights, data, taps)
    return None


def _by_axes(
    total: Tensor, definition: Compute, weights: Load, data: Expr, count: int
) -> Window | None:
    """The window, its axes told apart by what data and weights read of them; None where one is of neither kind."""
    axes_by_name = {axis.name: axis for axis in (*definition.axes, *definition.reduce_axes)}
    own = [
        part.name for part in weights.index if isinstance(part, Var) and part.name in axes_by_name
    ]
    if len(set(own)) < len(weights.index) or weights.buffer in {
        load.buffer for load, _ in loads(data)
    }:
        return None
    along, taps = list[Axis](), list[Axis]()
    for tap in definition.reduce_axes:
        if tap.extent != count or len(taps) == AXES:
            continue
        for axis in definition.axes:
            apart = None if axis in along else _of_sum(data, axis.name, tap.name)
            if apart is not None:
                along.append(axis)
                taps.append(tap)
                data = apart
                break
    read = variables(data)
    lanes = tuple(axis for axis in definition.axes if axis.name not in read)
    lead = tuple(axis for axis in definition.axes if axis.name in read and axis not in along)
    depth = tuple(axis for axis in definition.reduce_axes if axis not in taps)
    if not (along and lanes and depth) or {*own} != {a.name for a in (*taps, *depth, *lanes)}:
        return None
    if not all(axis.extent.is_Integer for axis in (*depth, *lanes)):
        return None
    if any(axis.name not in read for axis in depth):
        return None
    (of,) = (one for one in definition.reads if one.name == weights.buffer)
    return Window(
        total, definition, data, of, weights.index, lead, tuple(along), lanes, tuple(taps), depth
    )


def _of_sum(data: Expr, axis: str, tap: str) -> Expr | None:
    """The data with the name of an axis for the sum of the axis and a tap; None where they are not read so."""
    if not {axis, tap} <= variables(data):
        return None
    element = substitute_indices(data, {axis: ix.sub(Var(axis), Var(tap))})
    return None if tap in variables(element) else element


def substitute_indices(data: Expr, values: Mapping[str, Expr]) -> Expr:
    """An expression with others for names, indices and conditions in canonical form."""

    def rule(expr: Expr) -> Expr | None:
        match expr:
            case Load():
                return replace(expr, index=tuple(map(ix.simplify, expr.index)))
            case Compare():
                return Compare(expr.op, ix.simplify(expr.a), ix.simplify(expr.b))
            case _:
                return None

    return rewrite(substitute(data, values), rule)
