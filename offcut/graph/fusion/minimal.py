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
exact sums it is off by about as much. An infinite element makes other results NaN than those that it belongs to.

What such a sum is, is read from expressions: ``sum over c, r of d(i + r, c) * w[r, c, o]`` with three r and a constant w, whatever d computes
of the sum of i and r, conditions of a padding among them. It is done where it saves more multiplications than it moves elements.

Sources: S. Winograd, Arithmetic Complexity of Computations, SIAM 1980; A. Lavin and S. Gray, Fast Algorithms for Convolutional
Neural Networks, CVPR 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from typing import Any

import sympy

from offcut.core import index as ix
from offcut.core.conditions import all_of, conjuncts
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Load,
    Reduce,
    Select,
    Var,
    dtype_of,
    loads,
    rewrite,
    substitute,
    variables,
)
from offcut.core.sizes import Dim, quotient
from offcut.describe.reads import tensors_of
from offcut.describe.tensor import Compute, Tensor
from offcut.describe.value import Axis, size_value
from offcut.graph.fusion.rearrange import rebuilt

TAPS, TILE = 3, 2
"""Of a window; results that are computed together."""
POINTS = TAPS + TILE - 1
"""Elements that these read, and products that they take."""
AXES = 2
"""At most: what is added up grows with each, by a factor."""
WORTH = 6
"""Multiply-adds that an element costs which is moved: a core does two vectors of the former in the time of a load or a store of
one, and these elements come from the second cache or beyond. At half as many more than break even for large images, small ones lose nothing."""

Point = Callable[[int], Expr]
"""What is combined, at each of some neighbours."""


def with_fewer_products(
    results: Sequence[Tensor], constants: Collection[str]
) -> tuple[Tensor, ...]:
    """The results, where sums over windows of three with constants take fewer multiplications.

    constants  names of operands that are known
    """
    fixed = {*constants}
    for tensor in tensors_of(results):
        reads = () if tensor.definition is None else tensor.definition.reads
        if reads and all(one.name in fixed for one in reads) and tensor not in results:
            fixed.add(tensor.name)

    def change(tensor: Tensor, made: Mapping[str, Tensor]) -> Tensor:
        definition = tensor.definition
        if definition is None:
            return tensor
        reads = tuple(made[one.name] for one in definition.reads)
        now = replace(tensor, definition=replace(definition, reads=reads))
        found = None if tensor.name in fixed else _window_of(now, fixed)
        return now if found is None or not found.worth else found.made()

    made = rebuilt(results, change)
    return tuple(made[tensor.name] for tensor in results)


@dataclass(frozen=True)
class _Window:
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

    @property
    def worth(self) -> bool:
        """Whether it saves more than it takes, for each place of the window."""
        count = len(self.along)
        depth, lanes = (
            prod(int(axis.extent) for axis in axes) for axes in (self.depth, self.lanes)
        )
        filled = prod(map(_filled, self.along))
        saved = (TAPS**count - filled * TILE**count) * depth * lanes
        # Each transformation reads two elements for each that it writes; sums are read by all results of a tile.
        written = sum((POINTS // TILE) ** (n + 1) for n in range(count))
        moved = depth * (3 * written + TILE**count) + lanes * (TILE**count + TAPS**count + 1)
        return bool(saved > WORTH * filled * moved)

    def made(self) -> Tensor:
        """The tensor that is computed so."""
        *outer, inner = range(len(self.along))
        points = [Axis(f"{axis.name}_point", sympy.Integer(POINTS)) for axis in self.along]
        tiles = [Axis(f"{axis.name}_tile", _tiles(axis.extent)) for axis in self.along]
        pairs = [axis for n in outer for axis in (tiles[n], points[n])]
        pairs += [points[inner], tiles[inner]]

        data = self._data(points, tiles)
        weights = self._weights(points)
        factors = (_element(one) for one in (data, weights))
        product = self._tensor(
            "products",
            (*self.lead, *pairs, *self.lanes),
            Reduce("sum", Binary("*", *factors), tuple(axis.name for axis in self.depth)),
            (data, weights),
            self.depth,
        )
        body: Expr = _element(product)
        for axis, point, tile in zip(self.along, points, tiles, strict=True):
            body = _result(_at(body, point), Var(axis.name))
            body = substitute(body, {tile.name: ix.floordiv(Var(axis.name), TILE)})
        return replace(
            self.total,
            definition=replace(self.definition, reduce_axes=(), body=body, reads=(product,)),
        )

    def _data(self, points: Sequence[Axis], tiles: Sequence[Axis]) -> Tensor:
        """What the products read of the data: along each axis in turn, the points of its tiles."""
        last = len(self.along) - 1
        read = {load.buffer for load, _ in loads(self.data)}
        reads = tuple(one for one in self.definition.reads if one.name in read)
        body, sizes = self._inside()
        before = list[Axis]()
        after = [
            replace(axis, extent=TILE * _tiles(axis.extent) + POINTS - TILE) for axis in self.along
        ]
        for n, (point, tile) in enumerate(zip(points, tiles, strict=True)):
            moved = after.pop(0)
            before += (point, tile) if n == last else (tile, point)
            start = ix.mul(TILE, Var(tile.name))

            def neighbour(
                place: int, name: str = moved.name, start: Expr = start, of: Expr = body
            ) -> Expr:
                return _placed(of, {name: ix.add(start, place)})

            made = self._tensor(
                f"data_{moved.name}",
                (*self.lead, *before, *after, *self.depth),
                _data_at(Var(point.name), neighbour),
                reads,
                sizes=(*self.definition.sizes, *sizes),
            )
            body, reads, sizes = _element(made), (made,), ()
        return made

    def _weights(self, points: Sequence[Axis]) -> Tensor:
        """What the products read of the weights."""
        found = self.weights
        axes = {part.name: part for part in (*self.taps, *self.depth, *self.lanes)}
        order = [axes[part.name] for part in self.at if isinstance(part, Var)]
        body: Expr = Load(found.name, self.at, found.dtype)
        for point, tap in zip(points, self.taps, strict=True):
            order = [point if axis.name == tap.name else axis for axis in order]
            body = _weights_at(Var(point.name), _at(body, tap))
            found = self._tensor(f"weights_{tap.name}", order, body, (found,))
            body = _element(found)
        return found

    def _inside(self) -> tuple[Expr, tuple[Dim, ...]]:
        """The data, and 0 behind the last window, since the last tile may be of one result alone; and the sizes that this names."""
        shapes = {one.name: one.shape for one in self.definition.reads}
        asked = set[tuple[Expr, Expr]]()
        if isinstance(self.data, Select) and not any(True for _ in loads(self.data.other)):
            around = conjuncts(self.data.condition)
            asked = {(one.a, one.b) for one in around if isinstance(one, Compare) and one.op == "<"}
        conditions, sizes = list[Expr](), list[Dim]()
        for axis in self.along:
            ends = {
                (index, _size(extent)[0])
                for load, _ in loads(self.data)
                for index, extent in zip(load.index, shapes[load.buffer], strict=True)
                if axis.name in variables(index)
            }
            if not ends <= asked:
                end, own = _size(axis.extent + TAPS - 1)
                conditions.append(Compare("<", Var(axis.name), end))
                sizes += own
        if not conditions:
            return self.data, ()
        zero = Const(0.0, self.total.dtype)
        return Select(all_of(conditions), self.data, zero), tuple(sizes)

    def _tensor(
        self,
        word: str,
        axes: Sequence[Axis],
        body: Expr,
        reads: Sequence[Tensor],
        reduced: Sequence[Axis] = (),
        sizes: Sequence[Dim] = (),
    ) -> Tensor:
        made = Compute(tuple(axes), tuple(reduced), body, tuple(reads), tuple(sizes))
        shape = tuple(axis.extent for axis in axes)
        return Tensor(f"{self.total.name}_{word}", shape, self.total.dtype, made)


def _window_of(total: Tensor, fixed: Collection[str]) -> _Window | None:
    """A sum over windows of three with constants; None for any other tensor."""
    definition = total.definition
    assert definition is not None
    if total.dtype not in ("float32", "float64"):
        return None
    match definition.body:
        case Reduce("sum", Binary("*", a, b)):
            pass
        case _:
            return None
    for weights, data in ((a, b), (b, a)):
        if isinstance(weights, Load) and weights.buffer in fixed:
            return _by_axes(total, definition, weights, data)
    return None


def _by_axes(total: Tensor, definition: Compute, weights: Load, data: Expr) -> _Window | None:
    """The window, its axes told apart by what data and weights read of them; None where one is of neither kind."""
    named = {axis.name: axis for axis in (*definition.axes, *definition.reduce_axes)}
    own = [part.name for part in weights.index if isinstance(part, Var) and part.name in named]
    if len(set(own)) < len(weights.index) or weights.buffer in {
        load.buffer for load, _ in loads(data)
    }:
        return None
    along, taps = list[Axis](), list[Axis]()
    for tap in definition.reduce_axes:
        if tap.extent != TAPS or len(taps) == AXES:
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
    return _Window(
        total, definition, data, of, weights.index, lead, tuple(along), lanes, tuple(taps), depth
    )


def _of_sum(data: Expr, axis: str, tap: str) -> Expr | None:
    """The data with the name of an axis for the sum of the axis and a tap; None where they are not read so."""
    if not {axis, tap} <= variables(data):
        return None
    found = _placed(data, {axis: ix.sub(Var(axis), Var(tap))})
    return None if tap in variables(found) else found


def _placed(data: Expr, values: Mapping[str, Expr]) -> Expr:
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


def _size(extent: Any) -> tuple[Expr, tuple[Dim, ...]]:
    """An extent in an expression over elements, and the sizes that it names."""
    found = size_value(extent)
    assert found is not None, "an extent is a size"
    return found.node, found.sizes


def _filled(axis: Axis) -> float:
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
    *others, found = values
    for number in reversed(range(len(others))):
        found = Select(Compare("<", point, ix.const(number + 1)), others[number], found)
    return found


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
