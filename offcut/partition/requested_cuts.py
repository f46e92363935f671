"""What a user asks of the axes of a computation, as cuts of the loops of its program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from offcut.core.integers import whole
from offcut.describe.computation import Computation, Stage
from offcut.errors import PartitionError
from offcut.partition.cutting import LoopCut
from offcut.partition.pieces import Users
from offcut.partition.strategies.catalog import (
    CUT,
    Strategy,
    StrategyLike,
    parse_strategy,
)

Tiles = int | Sequence[int]


def cuts_of(
    computation: Computation,
    tile: Mapping[str, Tiles],
    tail: Mapping[str, StrategyLike] | StrategyLike,
) -> dict[str, LoopCut]:
    """How loops of the source of `computation` are cut, by their names there: ``C.j``."""
    cuts = _resolve(computation, tile, tail)
    groups = computation.groups
    return {f"{groups[home][0].buffer}.{axis}": choice for (home, axis), choice in cuts.items()}


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


def rename_for_user(computation: Computation, users: Users) -> Computation:
    """`computation` with what it holds called as the user does."""
    axes = {(full.rpartition(".")[0], name): full.rpartition(".")[2] for full, name in users.axes}
    buffers = {name: label for label, name in users.buffers}

    def rename(stage: Stage) -> Stage:
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
        groups=tuple(tuple(map(rename, group)) for group in computation.groups),
    )


def checked_tiles(name: str, value: object) -> tuple[int, ...]:
    """The tiles of an axis by level, outermost first; refused where they do not nest."""
    sizes = list[int]()
    for one in (value if isinstance(value, tuple | list) else (value,)) or (value,):
        size = whole(one)
        if size is None or not 1 <= size < 2**31:
            raise PartitionError(
                "partition",
                f"cannot cut {name} by {one!r}",
                at=f"axis {name}",
                because="a tile is an int from 1 to 2**31 - 1: isl decides no symbolic tile size",
                help=(f'tile={{"{name}": 8}}', f'tile={{"{name}": (64, 16)}} in two levels'),
            )
        sizes.append(size)
    for outer, inner in pairwise(sizes):
        if outer % inner:
            raise PartitionError(
                "partition",
                f"cannot cut {name} by {outer} and then by {inner}",
                at=f"axis {name}",
                because=f"{outer} is not a multiple of {inner}: every outer tile would have a tail",
                help=(f'tile={{"{name}": ({-(-outer // inner) * inner}, {inner})}}',),
            )
    return tuple(sizes)


def checked_request(
    tile: Mapping[str, Tiles], tail: Mapping[str, StrategyLike] | StrategyLike
) -> dict[str, LoopCut]:
    """How each axis is to be cut, by the name that the user gave."""
    for what, requested in (("tile", tile), ("tail", tail)):
        if not isinstance(requested, Mapping) and not (
            what == "tail" and isinstance(requested, str | tuple | Strategy)
        ):
            raise PartitionError(
                "partition",
                f"cannot take {what}={requested!r}",
                because="a cut is given by axis",
                help=('tile={"i": 14, "j": 32}, tail={"i": "balance", "j": "mask"}',),
            )
    if not isinstance(tail, Mapping):
        parse_strategy(tail, at="every axis", tiles=())
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
    cuts: dict[str, LoopCut] = {}
    for name, size in tile.items():
        sizes = checked_tiles(name, size)
        text = tails.get(name, CUT)
        strategy = parse_strategy(text, at=f"axis {name}", tiles=sizes[-1:])
        cuts[name] = LoopCut(sizes, strategy)
    return cuts


def _resolve(
    computation: Computation,
    tile: Mapping[str, Tiles],
    tail: Mapping[str, StrategyLike] | StrategyLike,
) -> dict[tuple[int, str], LoopCut]:
    """(group, axis) -> choice, from the user's names."""
    if isinstance(tail, Mapping) and isinstance(tile, Mapping):
        for name in [*tile, *tail]:
            axis_named(computation, name)
    choices: dict[tuple[int, str], LoopCut] = {}
    for name, choice in checked_request(tile, tail).items():
        home = axis_named(computation, name)
        if home in choices:
            raise PartitionError(
                "partition",
                f"cannot cut {name} twice",
                at=f"axis {name}",
                because="two of the names given are this axis",
            )
        choices[home] = choice
    return choices


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
