"""Where the values of a graph lie: each computed value in memory of its own, in an order of axes; each view somewhere in another
value's memory, said by an offset and strides that are expressions over the sizes.

A view is as good as an array to a kernel that finds an axis of stride 1 in it. Where there is none, or a reshape joins axes
that do not lie together, the elements are copied: a view becomes a region of its own. A value whose only reader is a
transpose that would be copied is stored transposed instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Binary, Expr
from offcut.graph.fusion.access_analysis import NodeAccesses, Strided
from offcut.graph.fusion.regions import Region, region_of
from offcut.graph.graph import Argument, Graph, Node
from offcut.graph.operators import Kind
from offcut.graph.sizes import extents
from offcut.graph.views import VIEWS

ZERO, ONE = ix.const(0), ix.const(1)
ALIGNED = 16
"""Bytes that the address of an array is a multiple of, if kernels take no strides."""


@dataclass(frozen=True, slots=True)
class Place:
    """``root[offset + strides · index]``, in elements of the memory of the value `root`."""

    root: str
    offset: Expr
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]

    @property
    def unit(self) -> int | None:
        """The last axis of stride 1, or of one element; None where there is none and there are axes."""
        units = [
            n
            for n, (e, s) in enumerate(zip(self.shape, self.strides, strict=True))
            if s == ONE and e != ONE
        ]
        ones = [n for n, extent in enumerate(self.shape) if extent == ONE]
        return units[-1] if units else ones[-1] if ones else None

    @property
    def order(self) -> tuple[int, ...]:
        """The axes, with one of stride 1 last."""
        axes = range(len(self.shape))
        return tuple(axis for axis in axes if axis != self.unit) + tuple(
            axis for axis in axes if axis == self.unit
        )

    def apart(self, axes: Sequence[int]) -> tuple[int, ...]:
        """Where neighbours in a list of axes do not lie together: a step of the outer is no whole run of the inner.

        An axis of one element lies with any.
        """
        separate_axes = list[int]()
        run: Expr = ONE
        for at in reversed(range(len(axes))):
            axis = axes[at]
            if self.shape[axis] == ONE:
                continue
            if self.strides[axis] != run and at < len(axes) - 1:
                separate_axes.append(at)
            run = extents.product((self.strides[axis], self.shape[axis]))
        return tuple(reversed(separate_axes))

    @property
    def lying(self) -> tuple[int, ...] | None:
        """The axes as they lie, outermost first, where the elements lie side by side; None where they do not."""
        open_axes, ordered_axes = list(range(len(self.shape))), list[int]()
        run: Expr = ONE
        while open_axes:
            next_ = [axis for axis in open_axes if self.strides[axis] == run]
            ones = [axis for axis in open_axes if self.shape[axis] == ONE]
            if not next_ and not ones:
                return None
            axis = max(next_, key=lambda one: (self.shape[one] != ONE, one)) if next_ else ones[-1]
            open_axes.remove(axis)
            ordered_axes.append(axis)
            run = extents.product((run, self.shape[axis]))
        return tuple(reversed(ordered_axes))

    def lies(self, order: Sequence[int]) -> bool:
        """Whether the elements lie side by side, the axes in that order, outermost first."""
        strides = own_place(self.root, self.shape, tuple(order)).strides
        pairs = zip(self.shape, self.strides, strides, strict=True)
        return all(extent == ONE or stride == own for extent, stride, own in pairs)

    @property
    def compact(self) -> bool:
        """Whether the elements lie side by side, the last axis innermost."""
        return self.lies(range(len(self.shape)))


def steps_of(shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """The strides of an array whose elements lie side by side."""
    return tuple(extents.product(shape[axis + 1 :]) for axis in range(len(shape)))


def own_place(name: str, shape: tuple[Expr, ...], order: tuple[int, ...] | None = None) -> Place:
    """Memory of a value of its own.

    order  of its axes in memory, outermost first; None: as they are
    """
    axes = tuple(range(len(shape))) if order is None else order
    steps = steps_of([shape[axis] for axis in axes])
    strides = dict(zip(axes, steps, strict=True))
    return Place(name, ZERO, shape, tuple(strides[axis] for axis in range(len(shape))))


def is_written_by_programs(order: Sequence[int]) -> bool:
    """Return whether a loop program can write a result whose axes lie in that order: kernels take any strides but the innermost, which is 1."""
    return len(order) == 0 or order[-1] == len(order) - 1


def strided_place(place: Place, view: Strided, shape: tuple[Expr, ...]) -> Place:
    """The place of the elements that a strided node picks."""
    offset = _total([place.offset, *map(_times, view.offset, place.strides)])
    strides = tuple(
        _total(
            _times(ix.const(row[axis]), s) for row, s in zip(view.steps, place.strides, strict=True)
        )
        for axis in range(len(shape))
    )
    return Place(place.root, offset, shape, strides)


def slice_place(
    place: Place, axis: int, start: Argument, step: int, shape: tuple[Expr, ...]
) -> Place:
    """The place of ``start::step`` of an axis."""
    at = extents.normal(start if isinstance(start, Expr | int) else 0)
    strides = list(place.strides)
    strides[axis] = _times(ix.const(step), strides[axis])
    offset = _total((place.offset, _times(at, place.strides[axis])))
    return Place(place.root, offset, shape, tuple(strides))


def broadcast_place(place: Place, shape: tuple[Expr, ...]) -> Place:
    """The place of elements that are repeated along axes of one, and along new ones before them."""
    more = len(shape) - len(place.shape)
    own = zip(place.shape, place.strides, shape[more:], strict=True)
    strides = tuple(s if extent == target else ZERO for extent, s, target in own)
    return Place(place.root, place.offset, shape, (ZERO,) * more + strides)


def reshape_place(place: Place, shape: tuple[Expr, ...]) -> Place | None:
    """The place of another shape of the same elements; None where axes that are joined do not lie together."""
    if place.compact:
        return Place(place.root, place.offset, shape, steps_of(shape))
    old = [axis for axis, extent in enumerate(place.shape) if extent != ONE]
    new = [axis for axis, extent in enumerate(shape) if extent != ONE]
    strides: dict[int, Expr] = dict.fromkeys(range(len(shape)), ONE)
    left, right = 0, 0
    while left < len(old) and right < len(new):
        cut = _common_prefix([place.shape[a] for a in old[left:]], [shape[a] for a in new[right:]])
        if cut is None:
            return None
        own, new_axes = old[left : left + cut[0]], new[right : right + cut[1]]
        if place.apart(own):
            return None
        for axis, step in zip(new_axes, steps_of([shape[a] for a in new_axes]), strict=True):
            strides[axis] = _times(step, place.strides[own[-1]])
        left, right = left + cut[0], right + cut[1]
    if left < len(old) or right < len(new):
        return None
    return Place(place.root, place.offset, shape, tuple(strides[n] for n in range(len(shape))))


def _common_prefix(old: Sequence[Expr], new: Sequence[Expr]) -> tuple[int, int] | None:
    """The fewest first axes of both with as many elements."""
    mine = [extents.product(old[:count]) for count in range(1, len(old) + 1)]
    for count in range(1, len(new) + 1):
        total = extents.product(new[:count])
        if total in mine:
            return mine.index(total) + 1, count
    return None


def _times(a: Expr, b: Expr) -> Expr:
    return extents.product((a, b))


def _total(terms: Iterable[Expr]) -> Expr:
    total: Expr = ZERO
    for term in terms:
        total = Binary("+", total, term)
    return extents.normal(total)


@dataclass(frozen=True, slots=True)
class PlacedRegion:
    """A region with the places of what it reads and gives, by name.

    orders  of the axes as the kernel has them: as they lie in memory, outermost first; as they are for all that a loop program reads and
            gives
    """

    region: Region
    places: Mapping[str, Place]
    orders: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class PlacedGraph:
    """A graph in memory: regions in order, and the places of its outputs."""

    steps: tuple[PlacedRegion, ...]
    outputs: Mapping[str, Place]


def place_graph(
    graph: Graph,
    fused: Sequence[Region | Node],
    readings: NodeAccesses,
    stored: Mapping[str, tuple[int, ...]] | None = None,
    requested: Mapping[str, tuple[int, ...]] | None = None,
    strides: bool = True,
) -> PlacedGraph:
    """The graph in memory: as few copies as are found to do.

    stored     the orders of the axes of computed values in memory, where they are not as they are
    requested  those of outputs, which views that lie otherwise are copied for
    strides whether kernels read at any strides; else what does not lie side by side, or begins at no multiple of `ALIGNED` bytes, is copied
    """
    laying = _Laying(graph, readings, dict(stored or {}), strides)
    laying.settled.update(requested or ())
    maker = {name: n for n, one in enumerate(fused) for name in _results(one)}
    before, number = list[_State](), 0
    while number < len(fused):
        del before[number:]
        before.append(laying.state())
        try:
            laying.place(fused[number])
        except _Transposed as transposed:
            number = maker[transposed.name]
            laying.take_back(before[number], transposed)
        else:
            number += 1
    for name, order in (requested or {}).items():
        laying.turn(name, order)
    outputs = {name: laying.places[name] for name in graph.outputs}
    return PlacedGraph(tuple(laying.steps), outputs)


def _results(one: Region | Node) -> tuple[str, ...]:
    """What a region or a view gives."""
    if isinstance(one, Region):
        return one.results
    return tuple(value.name for value in one.results)


class _Transposed(Exception):
    """A value that is better stored in another order of its axes."""

    def __init__(self, name: str, order: tuple[int, ...]) -> None:
        super().__init__(name)
        self.name, self.order = name, order


class _State(NamedTuple):
    """What is known before a region or a view."""

    places: Mapping[str, Place]
    computed: Collection[str]
    steps: int


class _Laying:
    """Places of values, region by region.

    orders   of the axes of computed values in memory, where they are not as they are
    settled  the values whose order a reader has asked for
    computed the values whose order a reader may ask for
    """

    def __init__(
        self,
        graph: Graph,
        readings: NodeAccesses,
        orders: dict[str, tuple[int, ...]],
        strides: bool,
    ) -> None:
        self.strides = strides
        self.settled: set[str] = set()
        self.graph, self.readings, self.orders = graph, readings, orders
        self.maker = {value.name: node for node in graph.nodes for value in node.results}
        self.shapes = {name: value.shape for name, value in graph.values.items()}
        values = (*graph.inputs, *graph.constants)
        self.places = {value.name: own_place(value.name, value.shape) for value in values}
        self.computed: set[str] = set()
        self.steps: list[PlacedRegion] = []

    def state(self) -> _State:
        """What is known now."""
        return _State(dict(self.places), set(self.computed), len(self.steps))

    def take_back(self, state: _State, transposed: _Transposed) -> None:
        """Know what was known before the region that computes a value, which is stored in another order from there on."""
        self.places, self.computed = dict(state.places), set(state.computed)
        del self.steps[state.steps :]
        self.orders[transposed.name] = transposed.order
        self.settled.add(transposed.name)

    def place(self, one: Region | Node) -> None:
        """Place what a region or a view gives."""
        if isinstance(one, Region):
            self.region(one)
        elif one.op == "reshape":
            (name,), (value,) = one.operands, one.results
            reshaped_place = reshape_place(self.places[name], value.shape)
            if reshaped_place is None:
                self.copy(name)
                reshaped_place = reshape_place(self.places[name], value.shape)
            assert reshaped_place is not None
            self.places[value.name] = reshaped_place
        else:
            self.places[one.results[0].name] = self.view(one)

    def view(self, node: Node) -> Place:
        """The place of a view that is always one."""
        (name,), (value,) = node.operands, node.results
        place = self.places[name]
        if node.op not in VIEWS:
            strided_view = self.readings.of(node).strided
            assert strided_view is not None
            return strided_place(place, strided_view, value.shape)
        arguments = VIEWS[node.op].arguments(*node.arguments, **dict(node.options))
        if node.op == "broadcast_to":
            return broadcast_place(place, value.shape)
        axis = arguments["axis"] % len(place.shape)
        return slice_place(place, axis, arguments["start"], arguments["step"], value.shape)

    def region(self, region: Region) -> None:
        """Place what a region gives; what it reads is readable from here on."""
        opaque = self.opaque(region)
        for name in region.operands:
            if not self.is_readable(name, opaque):
                self.copy(name)
        orders = dict[str, tuple[int, ...]]()
        for name in region.operands:
            lying = None if self.strides else self.places[name].lying
            if opaque:
                orders[name] = tuple(range(len(self.shapes[name])))
            elif lying is not None:
                orders[name] = lying
        for name in region.results:
            rows = tuple(range(len(self.shapes[name])))
            order = self.orders.get(name, rows)
            if opaque and not is_written_by_programs(order):
                order = self.orders[name] = rows
            orders[name] = rows if opaque else order
            self.places[name] = own_place(name, self.shapes[name], order)
            if not opaque:
                self.computed.add(name)
        used = (*region.operands, *region.results)
        self.steps.append(PlacedRegion(region, {name: self.places[name] for name in used}, orders))

    def is_readable(self, name: str, opaque: bool) -> bool:
        """Return whether a kernel reads a value where it lies.

        opaque  of a loop program
        """
        place = self.places[name]
        if not self.strides:
            begin = ix.known_divisor(place.offset) * ITEM_BYTES[self.graph.values[name].dtype]
            lies = place.compact if opaque else place.lying is not None
            return lies and begin % ALIGNED == 0
        last = len(place.shape) - 1
        lies = place.shape[last:] == (ONE,) or place.unit == last
        return last < 0 or (lies if opaque else place.unit is not None)

    def opaque(self, region: Region) -> bool:
        """Whether it is a loop program, whose arrays have their axes in the order that it says."""
        node = region.nodes[-1]
        return node.op not in VIEWS and self.readings.of(node).kind is Kind.OPAQUE

    def copy(self, name: str) -> None:
        """Give a view memory of its own; or its root, where it is all of that in another order."""
        place = self.places[name]
        if place.root == name:
            raise _Transposed(name, tuple(range(len(place.shape))))
        order = self.order_of_axes(place)
        if order is not None:
            raise _Transposed(place.root, order)
        node = self.maker[name]
        if node.op == "reshape":
            (operand,) = node.operands
            if reshape_place(self.places[operand], self.shapes[name]) in (None, place):
                self.copy(operand)
            self.place(node)  # of what another reader may have copied
            if not self.is_readable(name, opaque=False):
                self.copy(name)
        else:
            self.orders.pop(name, None)  # it is copied to lie as it is read
            self.region(region_of((node,)))

    def turn(self, name: str, order: tuple[int, ...]) -> None:
        """Copy a view that lies otherwise into memory of its own, in an order of axes."""
        node = self.maker.get(name)
        if node is None or node.op == "reshape" or not self.readings.is_view(node):
            return
        if not self.places[name].lies(order):
            self.orders[name] = order
            self.region(region_of((node,)))

    def order_of_axes(self, place: Place) -> tuple[int, ...] | None:
        """The order of axes in which the root would be `place`, compact; None where it has been tried, or it is no such."""
        root = place.root
        if root not in self.computed or root in self.settled:
            return None
        own = own_place(root, self.shapes[root], self.orders.get(root))
        axes = [*zip(own.shape, own.strides, strict=True)]
        mine = [*zip(place.shape, place.strides, strict=True)]
        if place.offset != ZERO or len(axes) != len(mine) or len(set(axes)) < len(axes):
            return None
        if any(axis not in axes for axis in mine) or len(set(mine)) < len(mine):
            return None
        return tuple(axes.index(axis) for axis in mine)
