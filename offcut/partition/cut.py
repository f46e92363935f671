"""Cutting a computation: what is asked is checked, each check a theorem, then pieces and loops."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

from offcut.core import index as ix
from offcut.core.computation import Computation, Names, Stage, StageAxis
from offcut.core.microkernel import Microkernel
from offcut.core.program import Program, Stmt
from offcut.core.source import source
from offcut.errors import PartitionError
from offcut.partition.legality import check_keeps_reduction, check_takes
from offcut.partition.loops import LoopCut, Price, tiles_alike
from offcut.partition.match import Match, cover, matches
from offcut.partition.nest import AxisCut, Cover, nest
from offcut.partition.pieces import Partition, Piece, Users
from offcut.partition.placing import Segment
from offcut.partition.programs import cut_program
from offcut.partition.prove import Certificate, Theorem, check_axis, check_divides
from offcut.partition.separate import COPIES
from offcut.partition.strategies import (
    CUT,
    LADDER,
    Strategy,
    StrategyLike,
    segments,
    strategy_named,
)
from offcut.polyhedral import (
    Space,
    check_extents,
    check_fits,
    check_in_bounds,
    check_parallel,
    space_of,
    stage_sets,
)

Tiles = int | Sequence[int]


@dataclass(frozen=True, slots=True)
class GroupCut:
    """How one group of stages is cut; `nest` says what the fields mean."""

    group: tuple[Stage, ...]
    cuts: tuple[AxisCut, ...] = ()
    reduce_cuts: tuple[AxisCut, ...] = ()
    outer: tuple[str, ...] = ()
    match: Match | None = None
    around: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()


def cut(
    computation: Computation,
    tile: Mapping[str, Tiles],
    tail: Mapping[str, StrategyLike] | StrategyLike,
    microkernels: Sequence[Microkernel],
    price: Price = tiles_alike,
    copies: int = COPIES,
) -> Partition:
    """`computation` with the axes in `tile` cut, and no other.

    tile   the largest tile by axis, in iterations, or one for each level, outermost first; an axis
           is ``j``, or ``C.j`` where two have it
    tail   what to do with the partial tile, by axis, or one strategy for all, by name, or by name
           and heights; ``cut`` by default
    price   predicted seconds of a sequence of tiles, by which ``mix`` chooses
    copies  stores that separating conditions may make of one

    Raises PartitionError for what is not there, not legal, or not proved.
    """
    wanted = cuts_of(computation, tile, tail)
    space = space_of(computation)
    theorems: dict[Theorem, None] = {}
    for group in computation.groups:
        for stage in group:
            theorems |= dict.fromkeys(_prove_stage(computation, space, stage))
    users = users_of(computation)
    made = cut_program(source(computation), wanted, microkernels, price, users, copies)
    return replace(made, certificate=Certificate((*theorems, *made.certificate.theorems)))


def cuts_of(
    computation: Computation,
    tile: Mapping[str, Tiles],
    tail: Mapping[str, StrategyLike] | StrategyLike,
) -> dict[str, LoopCut]:
    """How loops of the source of `computation` are cut, by their names there: ``C.j``."""
    wanted = _resolve(computation, tile, tail)
    groups = computation.groups
    return {f"{groups[home][0].buffer}.{axis}": choice for (home, axis), choice in wanted.items()}


def users_of(computation: Computation) -> Users:
    """What the user calls what is in `computation`."""
    stages = (stage for group in computation.groups for stage in group)
    renamed = dict.fromkeys(
        (f"{stage.label}.{axis.label}", axis.name)
        for stage in stages
        for axis in (*stage.axes, *stage.reduce_axes)
        if axis.label != axis.name
    )
    return Users(computation.size_names, computation.labels, tuple(renamed))


def labelled(computation: Computation, users: Users) -> Computation:
    """`computation` with what it holds called as the user does."""
    axes = {(full.rpartition(".")[0], name): full.rpartition(".")[2] for full, name in users.axes}
    buffers = {name: label for label, name in users.buffers}

    def named(stage: Stage) -> Stage:
        label = buffers.get(stage.buffer, stage.label)
        own, reduced = (
            tuple(replace(a, label=axes.get((label, a.name), a.label)) for a in some)
            for some in (stage.axes, stage.reduce_axes)
        )
        return replace(stage, label=label, axes=own, reduce_axes=reduced)

    return replace(
        computation,
        size_names=users.sizes,
        labels=tuple((buffers.get(name, label), name) for label, name in computation.labels),
        groups=tuple(tuple(map(named, group)) for group in computation.groups),
    )


def partition_of(
    computation: Computation, pieces: tuple[Piece, ...], loops: Program, theorems: Certificate
) -> Partition:
    """The partition of a described computation."""
    return Partition(
        source=source(computation),
        pieces=pieces,
        loops=loops,
        certificate=theorems,
        users=users_of(computation),
        computation=computation,
    )


def program_of(computation: Computation, body: tuple[Stmt, ...]) -> Program:
    """The loop program of `computation` with this body."""
    return Program(
        computation.name, computation.sizes, computation.assumptions, computation.buffers, body
    )


def all_matches(stage: Stage, microkernels: Sequence[Microkernel]) -> Iterator[Match]:
    """Every way in which a microkernel computes what `stage` does, the preferred ones first."""
    axes = [axis.name for axis in stage.axes]
    reduced = [axis.name for axis in stage.reduce_axes]
    for kernel in microkernels:
        yield from matches(kernel, stage.value, stage.reducer, axes, reduced)


def cut_group(
    computation: Computation, plan: GroupCut, names: Names
) -> tuple[tuple[Stmt, ...], tuple[Piece, ...]]:
    """The statements and the pieces of one group."""
    made = nest(
        plan.group,
        plan.cuts,
        plan.reduce_cuts,
        plan.outer,
        _cover(plan.match),
        names,
        plan.around,
        plan.inner,
    )
    space, lead = space_of(computation), plan.group[0]
    along: list[list[tuple[str, Segment]]] = []
    extents = {axis.name: axis.extent for axis in lead.reduce_axes}
    for one in plan.reduce_cuts:
        parts = segments(one.strategy.stepped(one.heights), extents[one.axis], one.tile)
        along.append([(one.axis, segment) for segment in parts])
    pieces = tuple(
        Piece(
            (*region.segments, *reduced), region.microkernel, space, lead, tuple(made.tiles[region])
        )
        for region in made.regions
        for reduced in product(*along)
    )
    return made.body, pieces


def _cover(found: Match | None) -> Cover:
    """The microkernel's name wherever it covers a tile; None where nothing does."""
    return lambda heights, masked: None if found is None else cover(found, heights, masked, {})


def prove(computation: Computation, cuts: Sequence[GroupCut]) -> Certificate:
    """The certificate of a computation cut so; raises PartitionError where a theorem fails."""
    space = space_of(computation)
    names = {name: user for user, name in computation.size_names}
    theorems: dict[Theorem, None] = {}
    for one in cuts:
        for stage in one.group:
            theorems |= dict.fromkeys(_prove_stage(computation, space, stage))
        lead = one.group[0]
        axes = {axis.name: axis for axis in (*lead.axes, *lead.reduce_axes)}
        for axis_cut in (*one.cuts, *one.reduce_cuts):
            axis = axes[axis_cut.axis]
            reduced = axis in lead.reduce_axes
            theorems |= dict.fromkeys(_prove_axis(space, names, lead, axis, axis_cut, reduced))
    return Certificate(tuple(theorems))


def _prove_stage(computation: Computation, space: Space, stage: Stage) -> tuple[Theorem, ...]:
    """What holds of a stage however it is cut."""
    check_extents(computation, space, stage)
    check_fits(computation, stage)
    sets = stage_sets(space, stage)
    check_in_bounds(computation, space, sets)
    check_parallel(sets)
    of = stage.label
    return (
        Theorem("in bounds", "every access lies inside its tensor", of),
        Theorem("int64", "index arithmetic stays within 2^62", of),
        Theorem("order kept", "dependences run along the reduction only", of),
    )


def _prove_axis(
    space: Space,
    names: dict[str, str],
    lead: Stage,
    axis: StageAxis,
    asked: AxisCut,
    reduced: bool,
) -> list[Theorem]:
    at = f"axis {lead.label}.{axis.label}"
    steps: list[tuple[int, tuple[int, ...] | None]] = [
        (tile, heights) for _, tile, heights in asked.by_height
    ]
    found: list[Theorem] = []
    size = ix.literal(axis.extent)
    windows = [size]
    if asked.group is not None and (size is None or size > asked.group):
        found += check_axis(LADDER, asked.group, reduced, size)
        windows = [None] if size is None else [asked.group, size % asked.group]
    for tile, heights in steps or [(asked.tile, asked.heights)]:
        strategy = asked.strategy.stepped(heights)
        check_takes(at, strategy, tile)
        check_keeps_reduction(at, strategy, tile, lead.reducer if reduced else None)
        for window in windows:
            found += check_axis(strategy, tile, reduced, window)
        if strategy.divides:
            found.append(check_divides(space, names, axis.extent, tile, at=at))
        if strategy.repeats(tile):
            statement = (
                "a repeated instance starts from the neutral element and writes the same value"
            )
            found.append(Theorem("repetition safe", statement, at))
    return found


def checked_tiles(name: str, given: object) -> tuple[int, ...]:
    """The tiles of an axis by level, outermost first; refused where they do not nest."""
    sizes = tuple(map(_whole, given)) if isinstance(given, tuple | list) else (_whole(given),)
    for size in sizes or (given,):
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size < 2**31:
            raise PartitionError(
                "partition",
                f"cannot cut {name} by {size!r}",
                at=f"axis {name}",
                because="a tile is an int from 1 to 2**31 - 1: isl decides no symbolic tile size",
            )
    for outer, inner in pairwise(sizes):
        if outer % inner:
            raise PartitionError(
                "partition",
                f"cannot cut {name} by {outer} and then by {inner}",
                at=f"axis {name}",
                because=f"{outer} is no multiple of {inner}: every outer tile would have a tail",
                help=(f'tile={{"{name}": ({-(-outer // inner) * inner}, {inner})}}',),
            )
    return tuple(sizes)


def _whole(size: Any) -> Any:
    """An int of whatever type as Python's; anything else as it is."""
    try:
        return size if isinstance(size, bool) else operator.index(size)
    except TypeError:
        return size


def checked_request(
    tile: Mapping[str, Tiles], tail: Mapping[str, StrategyLike] | StrategyLike
) -> dict[str, LoopCut]:
    """How each axis is to be cut, by the name that the user gave."""
    for what, given in (("tile", tile), ("tail", tail)):
        if not isinstance(given, Mapping) and not (
            what == "tail" and isinstance(given, str | tuple | Strategy)
        ):
            raise PartitionError(
                "partition",
                f"cannot take {what}={given!r}",
                because="a cut is given by axis",
                help=('tile={"i": 14, "j": 32}, tail={"i": "balance", "j": "mask"}',),
            )
    if not isinstance(tail, Mapping):
        strategy_named(tail, at="every axis", tiles=())
    for name in tile:
        if not isinstance(name, str):
            raise PartitionError(
                "partition",
                f"cannot cut {name!r}",
                because="an axis is known by its name",
                help=('tile={"i": 14}',),
            )
    tails = dict(tail) if isinstance(tail, Mapping) else dict.fromkeys(tile, tail)
    for name in tails:
        if name not in tile:
            raise PartitionError(
                "partition",
                f"cannot treat the tail of {name}",
                at=f"axis {name}",
                because="no tile is given for it, so it is not cut",
                help=(f'tile={{"{name}": 16}}',),
            )
    found: dict[str, LoopCut] = {}
    for name, size in tile.items():
        sizes = checked_tiles(name, size)
        asked = tails.get(name, CUT)
        strategy = strategy_named(asked, at=f"axis {name}", tiles=sizes[-1:])
        found[name] = LoopCut(sizes, strategy)
    return found


def _resolve(
    computation: Computation,
    tile: Mapping[str, Tiles],
    tail: Mapping[str, StrategyLike] | StrategyLike,
) -> dict[tuple[int, str], LoopCut]:
    """(group, axis) -> choice, from the user's names."""
    if isinstance(tail, Mapping) and isinstance(tile, Mapping):
        for name in [*tile, *tail]:
            axis_named(computation, name)
    found: dict[tuple[int, str], LoopCut] = {}
    for name, choice in checked_request(tile, tail).items():
        home = axis_named(computation, name)
        if home in found:
            raise PartitionError(
                "partition",
                f"cannot cut {name} twice",
                at=f"axis {name}",
                because="two of the names given are this axis",
            )
        found[home] = choice
    return found


def axis_named(computation: Computation, name: str) -> tuple[int, str]:
    """(group, axis) that the user calls `name`: ``j``, or ``C.j`` where several stages have it."""
    homes: dict[tuple[int, str], str] = {}
    known: dict[str, None] = {}
    described = {label for label, _ in computation.labels}
    for position, group in enumerate(computation.groups):
        for stage in group:
            if stage.label not in described:
                continue
            for axis in (*stage.axes, *stage.reduce_axes):
                full = f"{stage.label}.{axis.label}"
                known[full] = None
                if name in (axis.label, full):
                    homes.setdefault((position, axis.name), full)
    if len(homes) == 1:
        return next(iter(homes))
    candidates = list(homes.values()) or list(known)
    raise PartitionError(
        "partition",
        f"cannot find the axis {name!r}",
        because="several axes have that name" if homes else "no axis has that name",
        help=(", ".join(candidates),),
    )
