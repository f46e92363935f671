"""The kernels that run a graph, region by region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offcut.errors import OffcutError
from offcut.graph.fusion.access_analysis import NodeAccesses
from offcut.graph.fusion.regions import Region, region_of, regions_of
from offcut.graph.graph import Bound, Node
from offcut.graph.layout.axis_orders import depthwise_constants, orders_of, unpackable_constants
from offcut.graph.layout.placement import place_graph
from offcut.graph.models.compiling.compile_pool import max_processes
from offcut.graph.models.compiling.kernels import Kernels, NamedRegion
from offcut.graph.models.compiling.plan_cache import RegionSteps, Stepped
from offcut.graph.models.kernel_step import Step
from offcut.graph.views import VIEWS


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
