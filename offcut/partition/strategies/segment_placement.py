"""Place the tiles of a strategy along an axis: runs of tiles, in ascending order, as data.

Every quantity is quasi-affine in the extent, or becomes so once a `let` with a bounded range is
fixed: balanced tiles have heights q and q + 1 with ``q = left // ceil(left / tile)``, which isl sees
as a finite union over the literals of q. By multiples there are few such q, and each has segments of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from offcut.core import index as ix
from offcut.core.conditions import conjunction, conjuncts
from offcut.core.expr import Binary, Compare, Const, Expr, Var
from offcut.core.memo import memo
from offcut.core.program import Form, Role
from offcut.partition.strategies.tiled_axis import (
    EXTENT,
    InvalidStrategy,
    TileRun,
    TileRuns,
    substitute_extent,
)
from offcut.polyhedral import Space, smallest_point

ITER = Var("#t")  # the number of a tile; no user can name a size so, nor q below


@dataclass(frozen=True, slots=True)
class BoundedLet:
    """``let name in lo:hi = value``."""

    name: str
    lo: int
    hi: int
    value: Expr


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of tiles along an axis: tile t covers ``start(t) <= x < start(t) + height``.

    start     in `ITER`, the tile's number, and in the names that `lets` bind
    count     how many tiles; None for one
    height    instances of a tile, always within `heights` (inclusive)
    when      the segment exists only for extents where this holds
    owned     ``lo, hi``: of what is executed, the coordinates this segment answers for
    predicate instances run only where ``x < hi`` of `owned`
    asked     the part of `when` without which `count` is not 0 by itself; of balanced tiles
    on        of a tile that is masked or padded, how many of its instances are in the domain
    """

    role: Role
    form: Form
    start: Expr
    height: Expr
    heights: tuple[int, int]
    owned: tuple[Expr, Expr]
    count: Expr | None = None
    when: Expr | None = None
    lets: tuple[BoundedLet, ...] = ()
    predicate: bool = False
    asked: Expr | None = None
    on: Expr | None = None

    @property
    def executed(self) -> tuple[Expr, Expr]:
        """Return ``lo, hi``: the coordinates that run, repeated and padded ones included."""
        if self.form in (Form.SHIFT, Form.PAD):
            return self.start, ix.add(self.start, self.height)
        return self.owned


def leading_form(forms: Iterable[Form]) -> Form:
    """Return the form of a tile whose axes have `forms`: the most particular of them."""
    return max(forms, key=_PARTICULAR.index, default=Form.FULL)


_PARTICULAR = (Form.FULL, Form.GUARD, Form.MASK, Form.PAD, Form.SHIFT)


def place_segments(takes: TileRuns, extent: Expr, tile: int) -> tuple[Segment, ...]:
    """Return the segments of an axis of `extent`, without those that a constant extent leaves empty.

    Raises InvalidStrategy where a tile may be higher than `tile`, or is not quasi-affine in the extent.
    """
    segments: list[Segment] = []
    for number in takes.yielded:
        take = takes.all_runs[number]
        when = tuple(substitute_extent(extent, condition) for condition in take.when)
        place = _Place(take, *takes.ends(take.after, extent), extent, tile, when)
        match take.kind:
            case "fixed":
                segments.append(place.fixed())
            case "single":
                segments.append(place.single(take.height, substitute_extent(extent, take.height)))
            case "tail":
                segments.append(place.single(takes.ends(take.after, EXTENT)[1], place.remaining))
            case "masked" | "padded":
                segments.append(place.masked(Form.MASK if take.kind == "masked" else Form.PAD))
            case "shifted":
                segments.append(place.shifted())
            case "guarded":
                segments.append(place.guarded())
            case "balanced" if take.multiple > 1:
                segments += place.balanced_by(take.multiple)
            case "balanced":
                segments += place.balanced()
    return tuple(segment for segment in segments if not _is_empty(segment))


def _is_empty(segment: Segment) -> bool:
    if segment.when == Const(0, "bool"):
        return True
    count = None if segment.count is None else ix.literal_value(segment.count)
    height = ix.literal_value(segment.height)
    return (count is not None and count <= 0) or (height is not None and height <= 0)


@dataclass(frozen=True, slots=True)
class _Place:
    """The start of a run, the remaining extent there, and the conditions for the run to exist."""

    take: TileRun
    start: Expr
    remaining: Expr
    extent: Expr
    tile: int
    when: tuple[Expr, ...]

    def fixed(self) -> Segment:
        """Return tiles of one height, edge to edge."""
        height = _literal_height(self.take.height)
        given_count = self.take.count
        count = (
            ix.floordiv(self.remaining, height)
            if given_count is None
            else substitute_extent(self.extent, given_count)
        )
        end = ix.add(self.start, ix.mul(height, count))
        return Segment(
            role=Role.BODY if height == self.tile else Role.TAIL,
            form=Form.FULL,
            start=ix.add(self.start, ix.mul(height, ITER)),
            height=self.take.height,
            heights=(height, height),
            owned=(self.start, self.extent if given_count is None and height == 1 else end),
            count=count,
            when=fold_conjunction(*self.when),
        )

    def single(self, always: Expr, height: Expr) -> Segment:
        """Return one tile of a height, which is `always` for any extent, if that is at least 1."""
        lowest, highest = _height_range(ix.simplify(always), self.take.when, self.tile)
        none = Const(0, "bool")
        exists = () if lowest >= 1 else (none if highest < 1 else ix.compare(">", height, 0),)
        literal = ix.literal_value(height)
        end = self.extent if height == self.remaining else ix.add(self.start, height)
        return Segment(
            role=Role.TAIL,
            form=Form.FULL,
            start=self.start,
            height=height,
            heights=(max(lowest, 1), highest) if literal is None else (literal, literal),
            owned=(self.start, end),
            when=fold_conjunction(*self.when, *exists),
        )

    def masked(self, form: Form) -> Segment:
        """Return a tile of a fixed height if anything remains; what lies past the end is dropped."""
        height = _literal_height(self.take.height)
        return Segment(
            role=Role.TAIL,
            form=form,
            start=self.start,
            height=self.take.height,
            heights=(height, height),
            owned=(self.start, self.extent),
            when=fold_conjunction(*self.when, ix.compare("<", self.start, self.extent)),
            predicate=True,
            on=ix.minimum(self.remaining, height),
        )

    def shifted(self) -> Segment:
        """Return a full tile that ends where the axis ends, and owns the remaining coordinates."""
        enough = ix.compare(">=", self.extent, self.tile)
        return Segment(
            role=Role.TAIL,
            form=Form.SHIFT,
            start=ix.sub(self.extent, self.tile),
            height=ix.const(self.tile),
            heights=(self.tile, self.tile),
            owned=(self.start, self.extent),
            when=fold_conjunction(*self.when, enough, Compare("!=", self.remaining, ix.const(0))),
        )

    def guarded(self) -> Segment:
        """Return tiles of one height, edge to edge; the last may reach past the end, so each instance is tested."""
        return Segment(
            role=Role.BODY,
            form=Form.GUARD,
            start=ix.add(self.start, ix.mul(self.tile, ITER)),
            height=ix.const(self.tile),
            heights=(self.tile, self.tile),
            owned=(self.start, self.extent),
            count=ix.ceildiv(self.remaining, self.tile),
            when=fold_conjunction(*self.when),
            predicate=True,
        )

    def balanced(self) -> tuple[Segment, Segment]:
        """Return ``ceil(left/t)`` tiles; the first ``left - q*ceil(left/t)`` of them have one instance more.

        There are such tiles only where t does not divide what is left, and then q is less than t.
        """
        remaining, tile = self.remaining, self.tile
        tiles = ix.ceildiv(remaining, tile)
        size = ix.literal_value(remaining)
        literal_q = None if size is None else size // max(-(-size // tile), 1)
        q: Expr = Var("#q") if literal_q is None else ix.const(literal_q)
        value = Binary("//", remaining, tiles)
        taller_tiles = ix.sub(remaining, ix.mul(q, tiles))
        taller = ix.add(q, 1)
        lower_start = ix.add(self.start, ix.mul(taller, taller_tiles))
        nonempty = ix.compare(">", remaining, 0)
        higher = Segment(
            role=Role.BODY,
            form=Form.FULL,
            start=ix.add(self.start, ix.mul(taller, ITER)),
            height=taller,
            heights=(2, tile) if literal_q is None else (literal_q + 1, literal_q + 1),
            owned=(self.start, lower_start),
            count=taller_tiles,
            when=fold_conjunction(
                *self.when, nonempty, ix.compare("<", remaining, ix.mul(tile, tiles))
            ),
            lets=(BoundedLet("#q", 1, tile, value),) if literal_q is None else (),
            asked=fold_conjunction(*self.when),
        )
        lower = Segment(
            role=Role.BODY,
            form=Form.FULL,
            start=ix.add(lower_start, ix.mul(q, ITER)),
            height=q,
            heights=(1, tile) if literal_q is None else (literal_q, literal_q),
            owned=(lower_start, self.extent),
            count=ix.sub(tiles, taller_tiles),
            when=fold_conjunction(*self.when, nonempty),
            lets=(BoundedLet("#q", 1, tile + 1, value),) if literal_q is None else (),
            asked=fold_conjunction(*self.when),
        )
        return higher, lower

    def balanced_by(self, multiple: int) -> Iterator[Segment]:
        """Yield the segments of ``ceil(left/t)`` tiles of q and q + 1 units of `multiple` instances, t the largest multiple that a
        tile may have; the last unit may be clipped.

        One tile is as high as what is left. There are more only where q is at least half of what a tile holds: for each such q, a
        literal, ``units - q*tiles`` tiles of ``q + 1``, then those of q.
        """
        most = self.tile // multiple
        remaining, units = self.remaining, ix.ceildiv(self.remaining, multiple)
        tiles = ix.ceildiv(remaining, most * multiple)
        one = ix.compare("<=", remaining, most * multiple)
        several = ix.compare(">", remaining, most * multiple)
        yield Segment(
            role=Role.TAIL,
            form=Form.FULL,
            start=self.start,
            height=remaining,
            heights=(1, most * multiple),
            owned=(self.start, self.extent),
            when=fold_conjunction(*self.when, ix.compare(">", remaining, 0), one),
        )
        for q in range((most + 1) // 2, most + 1):
            taller = ix.sub(units, ix.mul(q, tiles))
            lower_start = self.start
            when = (*self.when, several, ix.compare(">=", taller, 0))
            if q < most:
                when = (*when, ix.compare("<", taller, tiles))
                height = (q + 1) * multiple
                lower_start = ix.add(self.start, ix.mul(height, taller))
                yield Segment(
                    role=Role.BODY,
                    form=Form.FULL,
                    start=ix.add(self.start, ix.mul(height, ITER)),
                    height=ix.const(height),
                    heights=(height, height),
                    owned=(self.start, lower_start),
                    count=taller,
                    when=fold_conjunction(*when),
                )
            height = q * multiple
            yield Segment(
                role=Role.BODY,
                form=Form.GUARD,
                start=ix.add(lower_start, ix.mul(height, ITER)),
                height=ix.const(height),
                heights=(height, height),
                owned=(lower_start, self.extent),
                count=ix.sub(tiles, taller),
                when=fold_conjunction(*when),
                predicate=True,
            )


def _literal_height(height: Expr) -> int:
    literal = ix.literal_value(height)
    assert literal is not None
    return literal


@memo(1024)
def _height_range(height: Expr, when: tuple[Expr, ...], tile: int) -> tuple[int, int]:
    """Return the range of a height over all extents; raises InvalidStrategy if it exceeds `tile`."""
    names, space = {EXTENT.name: "x0"}, Space(())
    text = space.expr(height, names)
    texts = [space.condition(condition, names) for condition in when]
    conditions = [condition for condition in texts if condition is not None]
    if text is None or len(conditions) < len(texts):
        raise InvalidStrategy("the height of a tile is not quasi-affine in the extent")
    extents = space.set(("e", "h"), ["0 <= x0", f"x1 = {text}", *conditions])
    if extents.is_empty():
        return 0, 0
    above = extents & space.set(("e", "h"), [f"x1 > {tile}"])
    if not above.is_empty():
        witness = smallest_point(above)
        assert witness is not None
        extent, high = witness[1]
        raise InvalidStrategy(f"with an extent of {extent}, a tile has {high} instances")
    lowest = extents.dim_min_val(1)
    return (
        int(lowest.to_python()) if lowest.is_int() else 0,
        int(extents.dim_max_val(1).to_python()),
    )


def fold_conjunction(*conditions: Expr | None) -> Expr | None:
    """Return the conjunction of conditions, with literals folded; None if it is always true."""
    parts: list[Expr] = []
    for part in (p for c in conditions if c is not None for p in conjuncts(c)):
        folded_part = ix.compare(part.op, part.a, part.b) if isinstance(part, Compare) else part
        if folded_part == Const(0, "bool"):
            return folded_part
        if folded_part != Const(1, "bool"):
            parts.append(folded_part)
    return conjunction(parts) if parts else None
