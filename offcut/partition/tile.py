"""The instances of one tile of a band: ranges of its loops go in, a `Tile` or ordered loops come out.

Where all loops of a tile are parallel these form a `Tile`, else loops that keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.conditions import conjunction
from offcut.core.dtypes import identity
from offcut.core.expr import Const, Expr, Select, dtype_of, reads_memory, variables
from offcut.core.program import For, Form, If, Role, Stmt, Store, Tile, TileAxis
from offcut.errors import PartitionError
from offcut.partition.cutting import Cutting, EmittedTile
from offcut.partition.legality import check_few
from offcut.partition.strategies.segment_placement import Segment, leading_form
from offcut.polyhedral import Facts

# (statements, what is known there) -> the statements with the loops in them cut
Inside = Callable[[Sequence[Stmt], Facts], tuple[Stmt, ...]]


@dataclass(frozen=True)
class Range:
    """A loop of the band inside a tile.

    rect   (start, height) where it does not depend on the others; else None, and `lo`, `hi` clip
    where  the condition of the instances that are kept
    """

    lo: Expr
    hi: Expr
    rect: tuple[Expr, Expr] | None
    where: Expr | None = None
    segment: Segment | None = None


@dataclass(frozen=True)
class OneTile:
    """What is inside the tiles of `band`: its instances of `body`; `inside` cuts the loops in `body`."""

    cutting: Cutting
    band: Sequence[For]
    body: tuple[Stmt, ...]
    inside: Inside

    @property
    def iters(self) -> tuple[str, ...]:
        """The names of the loops of the band."""
        return tuple(loop.iter for loop in self.band)

    def emitted(self, ranges: Mapping[int, Range], at: Facts) -> tuple[Stmt, ...]:
        """The instances of one tile: parallel loops as a `Tile`, others in their order."""
        self.cutting.tiles += 1
        check_few(self.iters, self.cutting.tiles)
        all_ranges = {
            k: ranges.get(k, Range(loop.lo, loop.hi, self.rectangle(k)))
            for k, loop in enumerate(self.band)
        }
        inner = at
        for k, loop in enumerate(self.band):
            inner = inner.loop(loop.iter, all_ranges[k].lo, all_ranges[k].hi)
        parts = tuple((self.iters[k], one.segment) for k, one in ranges.items() if one.segment)
        roles = {segment.role for _, segment in parts}
        role = Role.TAIL if Role.TAIL in roles else Role.BODY if roles else Role.WHOLE
        before = len(self.cutting.made)
        body = self.inside(self.body, inner)
        sequential = self.cutting.carried.sequential
        lanes: list[int] = []
        for k in reversed(range(len(self.band))):
            together = all_ranges[k].rect is not None and self.iters[k] not in sequential
            if together and (not lanes or lanes[0] == k + 1):
                lanes.insert(0, k)
            elif lanes:
                break
        if any(all_ranges[k].rect is None for k in range(len(self.band))):
            lanes = []
        name: str | None = None
        for k in reversed(range(len(self.band))):
            if k in lanes:
                if k == lanes[0]:
                    tiled = self.lanes(lanes, all_ranges, body, role)
                    body, name = (tiled,), tiled.microkernel
            else:
                body = self.ordered(k, all_ranges[k], body, role)
        if not self.band:
            tiled = self.lanes((), {}, body, role)
            body, name = (tiled,), tiled.microkernel
        leaf = body[0] if len(body) == 1 else If(Const(1, "bool"), body)
        inside = self.cutting.made[before:]
        self.cutting.made[before:] = [
            EmittedTile(one.leaf, (*parts, *one.segments), one.microkernel or name)
            for one in inside
        ] or [EmittedTile(leaf, parts, name)]
        return (leaf,)

    def rectangle(self, k: int) -> tuple[Expr, Expr] | None:
        """(start, height) of a loop that is not cut; None where it depends on the band."""
        loop = self.band[k]
        if set(self.iters) & (variables(loop.lo) | variables(loop.hi)):
            return None
        return loop.lo, ix.sub(loop.hi, loop.lo)

    def lanes(
        self, lanes: Sequence[int], ranges: Mapping[int, Range], body: tuple[Stmt, ...], role: Role
    ) -> Tile:
        """A tile over these loops of the band, all of them parallel."""
        axes, conditions = [], []
        heights: dict[str, tuple[int, int]] = {}
        forms: set[Form] = set()
        for k in lanes:
            rect, segment = ranges[k].rect, ranges[k].segment
            assert rect is not None
            axes.append(TileAxis(self.iters[k], *rect))
            if ranges[k].where is not None:
                conditions.append(ranges[k].where)
            heights[self.iters[k]] = segment.heights if segment else _heights(rect[1])
            if segment:
                forms.add(segment.form)
        form = leading_form(forms)
        known = [c for c in conditions if c is not None]
        where = conjunction(known) if known else None
        guarded = Form.GUARD in forms  # loops with the conditions inside, which no microkernel is
        tile = Tile(tuple(axes), body, where, form, role)
        return tile if guarded else replace(tile, cover=self.cutting.cover(tile, heights))

    def ordered(self, k: int, mine: Range, body: tuple[Stmt, ...], role: Role) -> tuple[Stmt, ...]:
        """The instances of a loop one after the other."""
        loop, lo, hi = self.band[k], mine.lo, mine.hi
        if mine.where is not None:
            form = mine.segment.form if mine.segment else Form.FULL
            if form is Form.PAD:
                assert mine.rect is not None
                hi = ix.add(*mine.rect)
                body = tuple(neutral_outside(stmt, mine.where) for stmt in body)
            elif form is Form.GUARD:
                assert mine.rect is not None
                hi = ix.add(*mine.rect)
                body = (If(mine.where, body),)
            elif hi == (ix.add(*mine.rect) if mine.rect else None):
                body = (If(mine.where, body),)
        own = role if mine.segment is not None else Role.WHOLE
        return (For(loop.iter, lo, hi, body, own, loop.unit),)


def _heights(height: Expr) -> tuple[int, int]:
    known = ix.literal_value(height)
    return (known, known) if known is not None else (0, 2**31)


def neutral_outside(stmt: Stmt, inside: Expr) -> Stmt:
    """`stmt` with the terms of its updates masked: -0.0 leaves every float sum as it is, also -0.0."""
    match stmt:
        case Store(_, index, value, reduce) if reduce is not None and not any(
            map(reads_memory, index)
        ):
            dtype = dtype_of(value)
            nothing = Const(identity(reduce, dtype), dtype)
            return replace(stmt, value=Select(inside, value, nothing))
        case For():
            return replace(stmt, body=tuple(neutral_outside(s, inside) for s in stmt.body))
        case _:
            raise PartitionError(
                "partition",
                'cannot take tail="pad"',
                because="only the terms of a reduction can be masked to its neutral element",
                help=('tail="mask" runs no instance outside',),
            )
