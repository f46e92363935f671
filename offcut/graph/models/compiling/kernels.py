"""Regions as kernels: one for each distinct computation, bound to constants; and the steps that run a graph by them.

The kernels that run a graph, region by region.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from offcut.core.expr import Expr
from offcut.core.program import Size
from offcut.describe.request import Array
from offcut.errors import DescribeError, OffcutError
from offcut.graph.fusion.access_analysis import NodeAccesses
from offcut.graph.fusion.folding import scaled_name
from offcut.graph.fusion.regions import Region, region_of, regions_of
from offcut.graph.graph import Bound, Node, Value, rename_values
from offcut.graph.layout.axis_orders import depthwise_constants, orders_of, unpackable_constants
from offcut.graph.layout.placement import ONE, ZERO, Place, PlacedRegion, own_place, place_graph
from offcut.graph.models.compiling.batch_strides import batch_strides
from offcut.graph.models.compiling.compile_pool import Compilation, CompilePool, max_processes
from offcut.graph.models.compiling.kernel_request import (
    Binding,
    CanonicalRegion,
    Derived,
    DescribedKernel,
    make_kernel_request,
    zero,
)
from offcut.graph.models.compiling.plan_cache import (
    BoundKernels,
    Call,
    RegionSteps,
    Stepped,
    bind_kernels,
)
from offcut.graph.models.compiling.split import (
    TargetKernel,
    Targets,
    as_targets,
    first_accepting,
    has_packed_operands,
    memory_of,
    resolve_targets,
)
from offcut.graph.models.kernel_step import Operand, Step
from offcut.graph.sizes import extents
from offcut.graph.views import VIEWS
from offcut.kernel import Kernel, KernelCode
from offcut.pipeline import compile


@dataclass(frozen=True)
class NamedRegion:
    """A region in its canonical form, and what it calls its values; its constants by the former's names."""

    asked: CanonicalRegion
    placed: PlacedRegion
    names: Mapping[str, str]
    constants: Mapping[str, Array] = field(repr=False)


class Kernels:
    """Kernels by what they compute.

    values  of the graph
    arrays  its constants
    like    of another graph, whose code is taken where it fits
    compiled  one for each code, by its number
    memory  that the values lie in; takes_strides: whether all targets read and write there at strides
    packs   whether a target packs constants
    least_filled, distributive  as `offcut.graph.compile_graph` says
    """

    def __init__(
        self,
        sizes: Sequence[Size],
        values: Mapping[str, Value],
        arrays: Mapping[str, Array],
        targets: Targets,
        threads: int | None,
        like: Kernels | None = None,
        least_filled: float = 0.0,
        distributive: bool = True,
    ) -> None:
        self.sizes, self.values, self.arrays = tuple(sizes), values, arrays
        self.targets, self.threads, self.least_filled = targets, threads, least_filled
        self.distributive = distributive
        run_by = resolve_targets(as_targets(targets))
        self.memory, self.packs = memory_of(run_by), has_packed_operands(run_by)
        self.takes_strides = all(one.takes_strides for one in run_by)
        self._known: dict[object, tuple[Call, ...]] = {} if like is None else like._known
        self._numbers: dict[str, int] = {} if like is None else like._numbers
        self.compiled: list[TargetKernel] = [] if like is None else like.compiled

    @property
    def codes(self) -> list[KernelCode]:
        """By their numbers."""
        return [one.kernel.code for one in self.compiled]

    def request(
        self,
        placed_region: PlacedRegion,
        unpacked: Collection[str] = (),
        constant_orders: Mapping[str, tuple[int, ...]] | None = None,
    ) -> NamedRegion:
        """What a region asks for.

        unpacked         constants that are read as any other operand is
        constant_orders  orders of the axes of constants, where they are not held as they are
        """
        region, places = placed_region.region, placed_region.places
        known = {
            name
            for name in region.operands
            if name in self.arrays and self.whole(places[name]) and name not in unpacked
        }
        names = {name: f"x{place}" for place, name in enumerate(region.operands)}
        for value in (value for node in region.nodes for value in node.results):
            names[value.name] = f"v{len(names)}"
        nodes = tuple(_rename(node, names) for node in region.nodes)
        types = tuple(replace(self.values[n], name=names[n]) for n in region.operands)
        orders = {
            names[name]: placed_region.orders.get(name, place.order)
            for name, place in places.items()
            if name not in known
        }
        turns = constant_orders or {}
        for name in known & turns.keys():
            orders |= dict.fromkeys((names[name], scaled_name(names[name])), turns[name])
        apart = frozenset(
            (names[name], at)
            for name, place in places.items()
            if name not in known
            for at in place.apart(orders[names[name]])
        )
        before = frozenset(names[name] for name in region.before)
        fixed = frozenset(names[name] for name in known)
        constants = {names[name]: self.arrays[name] for name in region.operands if name in known}
        canonical = CanonicalRegion(self.sizes, nodes, types, fixed, orders, apart, before)
        return NamedRegion(canonical, placed_region, names, constants)

    def ahead(self, regions: Sequence[NamedRegion], count: int) -> CompilePool:
        """Helpers for the kernels that are not there yet.

        count  of processes that may compile, this one among them
        """
        jobs = dict[str, Compilation]()
        target, *others = as_targets(self.targets)
        if others or count == 1:  # of several, which takes it is not known
            return CompilePool((), 1)
        for one in regions:
            if one.asked.key in self._known:
                continue
            constants = {name: zero(a.dtype.name, a.shape) for name, a in one.constants.items()}
            with suppress(OffcutError):  # it is refused where it is made
                requests, _ = make_kernel_request(
                    one.asked, constants, self.distributive, Derived.zeros, self.memory.is_host
                )
                for each in requests:
                    kinds = {name: (a.dtype, a.shape) for name, a in each.constants.items()}
                    arguments = each.output, each.inputs, kinds, self.threads, target
                    jobs.setdefault(each.key, Compilation(each.key, *arguments))
        return CompilePool([job for key, job in jobs.items() if key not in self._numbers], count)

    def steps(
        self, region: NamedRegion, ahead: CompilePool, priced: bool = False
    ) -> tuple[RegionSteps, list[Step]]:
        """The steps of a region, for any constants and with its own. The last computes its results; where that assumes how
        large data is, one before it measures that.

        ahead   who may be making its kernels
        priced  whether it is asked for its cost alone: it may hold constants of another region

        Raises DescribeError, PartitionError or TargetError for what a kernel cannot be made of.
        """
        nodes, names = region.placed.region.nodes, {new: old for old, new in region.names.items()}
        try:
            calls, bound = self._kernels_of_region(region, ahead, priced)
        except OffcutError as error:
            operators = [node.op for node in nodes]
            raise of_node(error, nodes[-1].results[0].name, operators, names) from error
        kernels = zip(calls, bound.kernels, strict=True)
        makers = tuple(self._step(region, call, kernel) for call, kernel in kernels)
        constants = {name: names[name] for name in region.constants}
        result = RegionSteps(constants, region.asked.orders, calls, makers)
        return result, [*result.steps(bound, priced)]

    def _kernels_of_region(
        self, region: NamedRegion, ahead: CompilePool, priced: bool
    ) -> tuple[tuple[Call, ...], BoundKernels]:
        """The kernels of a region with its constants: those of another of the same computation, or new ones."""
        request, constants = region.asked, region.constants
        known = self._known.get(request.key)
        if known is not None and (priced or not constants):
            return known, BoundKernels(
                [self.compiled[call.code].kernel for call in known], constants
            )
        if known is not None:
            with suppress(DescribeError):  # their code is for finite ones
                return known, bind_kernels(known, self.codes, constants, request.orders)
        asks, arrays = make_kernel_request(
            request, constants, self.distributive, Derived.run, self.memory.is_host
        )
        compiled = [self.kernel_of(one, ahead) for one in asks]
        pairs = zip(compiled, asks, strict=True)
        calls = self._known[request.key] = tuple(
            Call(code, one.binding) for (code, _), one in pairs
        )
        return calls, BoundKernels([kernel for _, kernel in compiled], arrays)

    def _step(self, region: NamedRegion, call: Call, kernel: Kernel) -> partial[Step]:
        """A step of a region, but for its kernel and what its constants say."""
        binding, request, placed_region = call.binding, region.asked, region.placed
        own = {new: old for old, new in region.names.items()}
        nodes, compiled = placed_region.region.nodes, self.compiled[call.code]
        name = nodes[-1].results[0].name
        measured = {f"{name}.{number}": one.dtype for number, one in enumerate(binding.assumed)}
        inputs = {x: self.operand(own[x], region, binding) for x in binding.inputs}
        results = {n: Operand(n, n, dtype, ZERO, (), ()) for n, dtype in measured.items()} or {
            region.names[n]: self.operand(n, region, binding) for n in placed_region.region.results
        }
        return partial(
            Step,
            code=call.code,
            name=f"{name}.largest" if measured else name,
            nodes=("largest",) if measured else tuple(node.op for node in nodes),
            inputs=tuple(inputs.values()),
            outputs=tuple(results.values()),
            sizes=tuple((n.name, binding.sizes[n.name]) for n in kernel.signature.sizes),
            target=compiled.target,
            refused=tuple((by, with_names(why, own)) for by, why in compiled.refused),
            constants=tuple(
                (own[x], name, request.orders.get(x) or tuple(range(self.arrays[own[x]].ndim)))
                for name, x in binding.constants.items()
                if x in own
            ),
            distributed=binding.distributed,
            batch_strides=batch_strides(binding, inputs, results, own),
        )

    def operand(self, name: str, region: NamedRegion, binding: Binding) -> Operand:
        """A value as an array of a kernel."""
        place, own = region.placed.places[name], region.names[name]
        order = region.asked.orders.get(own, place.order)
        shape, strides = _joined_place(place, order, binding.runs[own])
        return Operand(name, place.root, self.values[name].dtype, place.offset, shape, strides)

    def whole(self, place: Place) -> bool:
        """Whether a constant is read as it is."""
        value = self.values[place.root]
        return place == own_place(value.name, value.shape)

    def kernel_of(self, request: DescribedKernel, ahead: CompilePool) -> tuple[int, Kernel]:
        """Return the number of its code, and a kernel with its constants: compiled where none that computes the same is."""
        known = self._numbers.get(request.key)
        if known is not None:
            kernel = self.compiled[known].kernel
            with suppress(DescribeError):  # its code is for finite ones
                own = kernel.with_constants(request.constants) if request.constants else kernel
                return known, own
        with ahead.making(request.key):
            compiled = first_accepting(
                self.targets,
                lambda target: compile(
                    request.output,
                    request.inputs,
                    request.constants,
                    threads=self.threads,
                    target=target,
                ),
                self.least_filled,
            )
        self.compiled.append(compiled)
        number = self._numbers[request.key] = len(self.compiled) - 1
        return number, compiled.kernel


def _rename(node: Node, names: Mapping[str, str]) -> Node:
    results = tuple(replace(value, name=names[value.name]) for value in node.results)
    arguments = tuple(rename_values(one, names) for one in node.arguments)
    options = tuple((name, rename_values(one, names)) for name, one in node.options)
    return Node(results, node.op, arguments, options)


def _joined_place(
    place: Place, order: Sequence[int], runs: Sequence[int]
) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Extents and strides where axes in order are joined, so many at a time."""
    shape, strides, at = list[Expr](), list[Expr](), 0
    for count in runs:
        axes = order[at : at + count]
        shape.append(extents.product(place.shape[axis] for axis in axes))
        long = [axis for axis in axes if place.shape[axis] != ONE]
        strides.append(place.strides[long[-1]] if long else ONE)
        at += count
    return tuple(shape), tuple(strides)


Error = TypeVar("Error", bound=OffcutError)


def of_node(
    error: Error, name: str, operators: Sequence[str], names: Mapping[str, str] | None = None
) -> Error:
    """Return an error of a kernel as one of the node that it computes.

    name, operators  of the node
    names            what the graph calls the values of the kernel
    """
    refused, at, because, *help = (
        with_names(text, names or {})
        for text in (error.refused, error.at, error.because, *error.help)
    )
    node = f"{name}: {' '.join(operators)}"
    at = node if at in ("", name) else f"{node}, {at}"
    return type(error)(error.op, refused, at=at, because=because, help=tuple(help))


def with_names(text: str, names: Mapping[str, str]) -> str:
    """Return a text in which values have the names that the graph has for them."""
    return re.sub(r"\b[A-Za-z_]\w*", lambda word: names.get(word[0], word[0]), text)


def steps_of_bound(
    bound: Bound,
    kernels: Kernels,
    priced: bool = False,
    orders: Mapping[str, tuple[int, ...]] | None = None,
) -> Stepped:
    """Return the kernels that run a graph.

    priced  whether they are asked for their cost alone
    orders  of the axes of outputs in memory, as `compiled` says
    """
    graph, readings, notes = bound.graph, NodeAccesses(bound.graph), list[str]()
    fused: Sequence[Region | Node] = regions_of(graph, readings)
    requested, orders = orders or {}, {**(orders or {}), **orders_of(graph, readings)}
    count = max_processes()
    while True:
        placed_graph = place_graph(graph, fused, readings, orders, requested, kernels.takes_strides)
        try:
            steps, regions, regions_by_name = list[Step](), list[RegionSteps](), list[NamedRegion]()
            for step in placed_graph.steps:
                region = step.region
                fixed = _constants(region, readings, bound, orders, kernels.packs)
                regions_by_name.append(kernels.request(step, *fixed))
            with kernels.ahead(regions_by_name, count) as ahead:
                for one in regions_by_name:
                    region = one.placed.region
                    decisions, own = kernels.steps(one, ahead, priced)
                    regions.append(decisions)
                    steps += own
        except OffcutError as refused:
            if len(region.nodes) == 1:
                (value, *_) = region.results
                if value in requested and readings.is_view(
                    region.nodes[0]
                ):  # a call copies it, then
                    requested = {name: order for name, order in requested.items() if name != value}
                    continue
                refused.value = value
                raise
            notes.append(f"{region.results[0]}: not fused, since {str(refused).splitlines()[0]}")
            fused = [each for one in fused for each in _split_region(one, region)]
            continue
        return Stepped(steps, placed_graph.outputs, tuple(notes), tuple(regions))


def _constants(
    region: Region,
    readings: NodeAccesses,
    bound: Bound,
    orders: Mapping[str, tuple[int, ...]],
    packs: bool,
) -> tuple[frozenset[str], dict[str, tuple[int, ...]]]:
    """Return the constants of a region that are read as any other operand is, and the orders of axes of others.

    packs  whether a target packs constants
    """
    constants, unpacked = frozenset(bound.arrays), frozenset[str]()
    turns: dict[str, tuple[int, ...]] = {}
    for node in region.nodes:
        if node.op not in VIEWS:
            reading = readings.of(node)
            unpacked |= (
                unpackable_constants(node, reading, constants, orders) if packs else frozenset()
            )
            turns |= depthwise_constants(node, reading, constants, orders)
    return unpacked, turns


def _split_region(one: Region | Node, refused: Region) -> Sequence[Region | Node]:
    """Return a region or view; the nodes of the region that was refused, each alone."""
    if one is not refused:
        return (one,)
    return tuple(region_of((node,)) for node in refused.nodes)
