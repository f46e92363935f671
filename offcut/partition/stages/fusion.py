"""Groups of stages in shared loops: what a later group reads of an earlier one stays near.

Two groups may share a loop over their first axes when the later one reads, of what the earlier one
makes, only what the same iteration made::

    for b, h                         scores[b, h, i, j]   (its rows i and columns j stay whole)
      scores = …                     peak[b, h, i]        reads scores[b, h, i, j]
      for i                          weight[b, h, i, j]   reads scores[b, h, i, j], peak[b, h, i]
        peak, weight = …             result[b, h, i, d]   reads weight[b, h, i, j]
      result = …

What is made and read inside one iteration alone lives in a window of that iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from offcut.core import index as ix
from offcut.core.conditions import conjunction
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Expr, Load, Var, substitute, walk
from offcut.core.program import Alloc, Buffer, For, If, Kind, Stmt
from offcut.describe.computation import Computation, Names, Stage, StageAxis
from offcut.describe.source import plain_loop
from offcut.errors import PartitionError

_NOTHING: Expr = ix.const(0)

Point: TypeAlias = tuple[Expr, Expr]
"""Along an axis of an array, where a window of it begins, and how far it reaches."""


@dataclass(frozen=True, slots=True)
class Block:
    """Iterations of a shared loop that each part runs before the next part does: what one waits for, others of them hide.

    iterations  2 at least
    room        bytes that what lives in them may take, and each line that they add up; where it is more, iterations run one by one
    """

    iterations: int
    room: int


@dataclass(frozen=True, slots=True)
class Shared:
    """Loops that several groups share, outermost first, and what runs inside, in order.

    parts   the position of a group, or further loops that some of them share
    block   of the innermost loop; None: each iteration by itself
    """

    axes: tuple[StageAxis, ...]
    parts: tuple[int | Shared, ...]
    block: Block | None = None

    @property
    def groups(self) -> tuple[int, ...]:
        """The positions of all groups inside."""
        return tuple(
            position
            for part in self.parts
            for position in ((part,) if isinstance(part, int) else part.groups)
        )


def fused(computation: Computation, limits: Sequence[int]) -> Shared:
    """The loops that groups can share, with names that no other axis has: none around all.

    limits   of each group, how many of its first axes may be loops of their own
    """
    groups = computation.groups
    taken = computation.names()

    def named(part: int | Shared, known: tuple[StageAxis, ...]) -> int | Shared:
        if isinstance(part, int):
            return part
        first = len(known)
        stages = [stage for position in part.groups for stage in groups[position]]
        axes: tuple[StageAxis, ...] = ()
        for k, axis in enumerate(part.axes, first):
            others = {
                a.name for s in stages for a in (*s.axes[:k], *s.axes[k + 1 :], *s.reduce_axes)
            }
            free = axis.name not in others and axis.name not in {a.name for a in (*known, *axes)}
            axes += (axis if free else replace(axis, name=taken.fresh(axis.label)),)
        inside = tuple(named(inner, (*known, *axes)) for inner in part.parts)
        return replace(part, axes=axes, parts=inside)

    parts = _runs(groups, range(len(groups)), 0, limits)
    return Shared((), tuple(named(part, ()) for part in parts))


def with_shared(computation: Computation, shared: Shared) -> Computation:
    """`computation` with the first axes of groups named as the loops that they share."""
    groups = list(computation.groups)

    def name(part: int | Shared, known: tuple[StageAxis, ...]) -> None:
        if isinstance(part, int):
            groups[part] = tuple(_on(stage, known) for stage in groups[part])
            return
        for inner in part.parts:
            name(inner, (*known, *part.axes))

    name(shared, ())
    return replace(computation, groups=tuple(groups))


def check_shared(computation: Computation, shared: Shared, around: int = 0) -> None:
    """Refuse loops that groups cannot share: of different extents, or where an iteration reads what
    another one makes.

    around   loops that lie around these
    """
    length = around + len(shared.axes)
    positions = shared.groups
    for count, position in enumerate(positions[1:], 1):
        limits = [length] * len(computation.groups)
        run = list(positions[:count])
        if _prefix(computation.groups, run, position, limits, alone=length) < length:
            lead = computation.groups[position][0]
            raise PartitionError(
                "schedule",
                f"cannot compute {lead.label} in loops that it shares",
                at=f"the loops {', '.join(axis.name for axis in shared.axes)}",
                because="an iteration would read what another one makes, or the extents differ",
                help=("nests one after the other",),
            )
    for part in shared.parts:
        if isinstance(part, Shared):
            check_shared(computation, part, length)


def windowed(
    computation: Computation,
    shared: Shared,
    around: Sequence[StageAxis],
    parts: Sequence[tuple[Stmt, ...]],
    names: Names,
) -> tuple[Stmt, ...]:
    """The loops of `shared` around its parts; what only lives in an iteration, or in a block of them, in a window of it.

    around   the axes of the loops that lie around these
    """
    inside, deeper = set(shared.groups), [p for p in shared.parts if isinstance(p, Shared)]
    held = [
        computation.buffer(name)
        for name in _lives_in(computation, inside)
        if not any(name in _lives_in(computation, set(part.groups)) for part in deeper)
    ]
    points: list[Point] = [(Var(a.name), ix.const(1)) for a in (*around, *shared.axes)]
    *outer, axis = shared.axes
    in_turn = tuple(stmt for part in parts for stmt in part)
    body: tuple[Stmt, ...] = (plain_loop(axis, windows(held, points, in_turn)),)
    if shared.block is not None:
        fits = _has_room(computation, shared, shared.block, len(around))
        if fits is not False:
            blocks = _in_blocks(shared.block, axis, points, held, parts, names)
            body = blocks if fits is True else (If(fits, blocks, body),)
    for axis in reversed(outer):
        body = (plain_loop(axis, body),)
    return body


def least_room(computation: Computation, shared: Shared, many: int) -> int:
    """Bytes that a block of so many iterations of `shared` takes at the least sizes."""
    return max(_at(_taken(computation, shared, 0, many), _least(computation)))


def _least(computation: Computation) -> dict[str, int]:
    return {size.name: size.min for size in computation.sizes}


def _at(values: Sequence[Expr], sizes: Mapping[str, int]) -> list[int]:
    """Sums of products of sizes at these."""
    at = {name: ix.const(size) for name, size in sizes.items()}
    found = [ix.literal_value(ix.fold_indices(substitute(value, at))) for value in values]
    assert None not in found
    return [size for size in found if size is not None]


def _taken(computation: Computation, shared: Shared, around: int, many: int) -> list[Expr]:
    """Bytes that have to have room in a block: all that lives in it, and each line that is added up.

    around  how many loops lie around
    """
    total, sizes = _NOTHING, list[Expr]()
    for name in _lives_in(computation, set(shared.groups)):
        buffer = computation.buffer(name)
        total = ix.add(total, _bytes(buffer, around + len(shared.axes), many))
    for lead in (computation.groups[position][0] for position in shared.groups):
        item = ITEM_BYTES[computation.buffer(lead.buffer).dtype]
        sizes += (ix.mul(axis.extent, many * item) for axis in lead.reduce_axes)
    longest = [size for size in sizes if (ix.literal_value(ix.sub(total, size)) or -1) < 0]
    return list(dict.fromkeys((total, *longest)))


def _bytes(buffer: Buffer, depth: int, many: int) -> Expr:
    each: Expr = ix.const(ITEM_BYTES[buffer.dtype] * many)
    for length in buffer.shape[depth:]:
        each = ix.mul(each, length)
    return each


def _has_room(computation: Computation, shared: Shared, block: Block, around: int) -> Expr | bool:
    """Whether a block has room: at all sizes, at none, or where a condition holds."""
    taken = _taken(computation, shared, around, block.iterations)
    if any(least > block.room for least in _at(taken, _least(computation))):
        return False
    greatest = _at(taken, {size.name: size.max for size in computation.sizes})
    pairs = zip(taken, greatest, strict=True)
    asked = [ix.compare("<=", size, block.room) for size, most in pairs if most > block.room]
    return conjunction(asked) if asked else True


def _in_blocks(
    block: Block,
    axis: StageAxis,
    points: Sequence[Point],
    held: Sequence[Buffer],
    parts: Sequence[tuple[Stmt, ...]],
    names: Names,
) -> tuple[Stmt, ...]:
    """A loop over blocks of the iterations of `axis`, each part of all of a block before the next::

    for i_block in 0:(n + 3)//4
      for i in 4*i_block:min(4*i_block + 4, n)     by part
    """
    many, extent = block.iterations, axis.extent
    number = names.fresh(f"{axis.label}_block")
    start = ix.mul(many, Var(number))
    stop = ix.minimum(ix.add(start, many), extent)
    body = windows(
        held,
        [*points[:-1], (start, ix.const(many))],
        tuple(For(axis.name, start, stop, part) for part in parts),
    )
    return (For(number, ix.const(0), ix.ceildiv(extent, many), body),)


def windows(
    buffers: Iterable[Buffer], points: Sequence[Point], body: tuple[Stmt, ...]
) -> tuple[Stmt, ...]:
    """Return `body` with the part of each buffer that it uses: along its first axes from a start as far as an extent, all of the others."""
    for buffer in buffers:
        rest = [(ix.const(0), extent) for extent in buffer.shape[len(points) :]]
        body = (Alloc(buffer.name, (*points, *rest), body),)
    return body


def _lives_in(computation: Computation, inside: set[int]) -> list[str]:
    """The scratch buffers that these groups make, and no other reads."""
    made = {stage.buffer for position in inside for stage in computation.groups[position]}
    outside = [g for position, g in enumerate(computation.groups) if position not in inside]
    read = {load.buffer for group in outside for load in _loads(group)}
    buffers = (b for b in computation.buffers if b.kind is Kind.LOCAL)
    return [buffer.name for buffer in buffers if buffer.name in made - read]


def _runs(
    groups: Sequence[Sequence[Stage]], positions: Iterable[int], depth: int, limits: Sequence[int]
) -> list[int | Shared]:
    """Neighbours that share more loops than the `depth` around them, as far as each run goes."""
    found: list[tuple[list[int], int]] = []
    for position in positions:
        if found:
            run, length = found[-1]
            shares = min(length, _prefix(groups, run, position, limits))
            if shares > depth:
                found[-1] = [*run, position], shares
                continue
        found.append(([position], limits[position]))
    parts: list[int | Shared] = []
    for run, length in found:
        if len(run) == 1:
            parts += run
            continue
        axes = groups[run[0]][0].axes[depth:length]
        parts.append(Shared(axes, tuple(_runs(groups, run, length, limits))))
    return parts


def _prefix(
    groups: Sequence[Sequence[Stage]],
    run: Sequence[int],
    position: int,
    limits: Sequence[int],
    alone: int = 0,
) -> int:
    """How many of its first axes a group can share with a run before it; `alone` if it reads none of it."""
    lead, mine = groups[run[0]][0], groups[position][0]
    length = min(limits[position], len(lead.axes), len(mine.axes))
    alike = (a.extent == b.extent for a, b in zip(lead.axes, mine.axes, strict=False))
    length = min(length, next((k for k, same in enumerate(alike) if not same), length))
    made = {stage.buffer for other in run for stage in groups[other]}
    reads = [load for load in _loads(groups[position]) if load.buffer in made]
    for load in reads:
        own = [part == Var(axis.name) for part, axis in zip(load.index, mine.axes, strict=False)]
        length = min(length, next((k for k, same in enumerate(own) if not same), len(own)))
    return length if reads else min(length, alone)


def _loads(group: Sequence[Stage]) -> list[Load]:
    return [node for stage in group for node in walk(stage.value) if isinstance(node, Load)]


def _on(stage: Stage, axes: Sequence[StageAxis]) -> Stage:
    """`stage` with its first axes named as these are."""
    own = stage.axes[: len(axes)]
    renamed: dict[str, Expr] = {old.name: Var(new.name) for old, new in zip(own, axes, strict=True)}
    kept = stage.axes[len(axes) :]
    named = tuple(replace(old, name=new.name) for old, new in zip(own, axes, strict=True))
    return replace(stage, axes=(*named, *kept), body=substitute(stage.body, renamed))
