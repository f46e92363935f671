"""Where the tiles lie that a strategy takes of an axis: runs of tiles, in ascending order, as data.

Every quantity is quasi-affine in the extent, or becomes so once a `let` with a bounded range is
fixed: balanced tiles have heights q and q + 1 with ``q = left // ceil(left / tile)``, which isl sees
as a finite union over the literals of q.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from offcut.core import index as ix
from offcut.core.conditions import conjunction, conjuncts
from offcut.core.expr import Binary, Compare, Const, Expr, Var
from offcut.core.memo import memo
from offcut.core.program import Form, Role
from offcut.partition.strategies.tiled_axis import EXTENT, NotTaken, Take, Takes, at
from offcut.polyhedral import Space, smallest_point

ITER = Var("#t")  # the number of a tile; no user can name a size so, nor q below


@dataclass(frozen=True, slots=True)
class Bounded:
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
    lets: tuple[Bounded, ...] = ()
    predicate: bool = False
    asked: Expr | None = None
    on: Expr | None = None

    @property
    def executed(self) -> tuple[Expr, Expr]:
        """``lo, hi``: the coordinates that run, the repeated and padded ones among them."""
        if self.form in (Form.SHIFT, Form.PAD):
            return self.start, ix.add(self.start, self.height)
        return self.owned


def leading_form(forms: Iterable[Form]) -> Form:
    """Return the form of a tile whose axes have `forms`: the most particular of them."""
    return max(forms, key=_PARTICULAR.index, default=Form.FULL)


_PARTICULAR = (Form.FULL, Form.GUARD, Form.MASK, Form.PAD, Form.SHIFT)


def placed(takes: Takes, extent: Expr, tile: int) -> tuple[Segment, ...]:
    """The segments of an axis of `extent`; those that a constant extent leaves empty are left out.

    Raises NotTaken where a tile may be higher than `tile`, or is not quasi-affine in the extent.
    """
    found: list[Segment] = []
    for number in takes.given:
        take = takes.made[number]
        when = tuple(at(extent, condition) for condition in take.when)
        place = _Place(take, *takes.ends(take.after, extent), extent, tile, when)
        match take.kind:
            case "rest":
                found.append(place.run())
            case "one":
                found.append(place.one(take.height, at(extent, take.height)))
            case "tail":
                found.append(place.one(takes.ends(take.after, EXTENT)[1], place.left))
            case "masked" | "padded":
                found.append(place.last(Form.MASK if take.kind == "masked" else Form.PAD))
            case "moved_back":
                found.append(place.moved_back())
            case "guarded":
                found.append(place.guarded())
            case "balanced":
                found += place.balanced()
    return tuple(segment for segment in found if not _is_empty(segment))


def _is_empty(segment: Segment) -> bool:
    if segment.when == Const(0, "bool"):
        return True
    count = None if segment.count is None else ix.literal_value(segment.count)
    height = ix.literal_value(segment.height)
    return (count is not None and count <= 0) or (height is not None and height <= 0)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a take starts, how much is left there, and the conditions without which it is none."""

    take: Take
    start: Expr
    left: Expr
    extent: Expr
    tile: int
    when: tuple[Expr, ...]

    def run(self) -> Segment:
        """Tiles of one height, edge to edge."""
        height = _literal(self.take.height)
        asked = self.take.count
        count = ix.floordiv(self.left, height) if asked is None else at(self.extent, asked)
        end = ix.add(self.start, ix.mul(height, count))
        return Segment(
            role=Role.BODY if height == self.tile else Role.TAIL,
            form=Form.FULL,
            start=ix.add(self.start, ix.mul(height, ITER)),
            height=self.take.height,
            heights=(height, height),
            owned=(self.start, self.extent if asked is None and height == 1 else end),
            count=count,
            when=both(*self.when),
        )

    def one(self, always: Expr, height: Expr) -> Segment:
        """One tile of a height that is `always` for any extent, where that is at least 1."""
        least, most = _heights(ix.simplify(always), self.take.when, self.tile)
        none = Const(0, "bool")
        some = () if least >= 1 else (none if most < 1 else ix.compare(">", height, 0),)
        known = ix.literal_value(height)
        end = self.extent if height == self.left else ix.add(self.start, height)
        return Segment(
            role=Role.TAIL,
            form=Form.FULL,
            start=self.start,
            height=height,
            heights=(max(least, 1), most) if known is None else (known, known),
            owned=(self.start, end),
            when=both(*self.when, *some),
        )

    def last(self, form: Form) -> Segment:
        """A tile of a fixed height, where anything is left; what lies past the end is not kept."""
        height = _literal(self.take.height)
        return Segment(
            role=Role.TAIL,
            form=form,
            start=self.start,
            height=self.take.height,
            heights=(height, height),
            owned=(self.start, self.extent),
            when=both(*self.when, ix.compare("<", self.start, self.extent)),
            predicate=True,
            on=ix.minimum(self.left, height),
        )

    def moved_back(self) -> Segment:
        """A full tile that ends where the axis does, and answers for what is left."""
        enough = ix.compare(">=", self.extent, self.tile)
        return Segment(
            role=Role.TAIL,
            form=Form.SHIFT,
            start=ix.sub(self.extent, self.tile),
            height=ix.const(self.tile),
            heights=(self.tile, self.tile),
            owned=(self.start, self.extent),
            when=both(*self.when, enough, Compare("!=", self.left, ix.const(0))),
        )

    def guarded(self) -> Segment:
        """Tiles of one height, edge to edge, the last of which may reach past the end: each instance is tested."""
        return Segment(
            role=Role.BODY,
            form=Form.GUARD,
            start=ix.add(self.start, ix.mul(self.tile, ITER)),
            height=ix.const(self.tile),
            heights=(self.tile, self.tile),
            owned=(self.start, self.extent),
            count=ix.ceildiv(self.left, self.tile),
            when=both(*self.when),
            predicate=True,
        )

    def balanced(self) -> tuple[Segment, Segment]:
        """``ceil(left/t)`` tiles; the first ``left - q*ceil(left/t)`` of them have one instance more.

        There are such tiles only where t does not divide what is left, and then q is less than t.
        """
        left, tile = self.left, self.tile
        tiles = ix.ceildiv(left, tile)
        size = ix.literal_value(left)
        known = None if size is None else size // max(-(-size // tile), 1)
        q: Expr = Var("#q") if known is None else ix.const(known)
        value = Binary("//", left, tiles)
        more = ix.sub(left, ix.mul(q, tiles))
        taller = ix.add(q, 1)
        done = ix.add(self.start, ix.mul(taller, more))
        nonempty = ix.compare(">", left, 0)
        higher = Segment(
            role=Role.BODY,
            form=Form.FULL,
            start=ix.add(self.start, ix.mul(taller, ITER)),
            height=taller,
            heights=(2, tile) if known is None else (known + 1, known + 1),
            owned=(self.start, done),
            count=more,
            when=both(*self.when, nonempty, ix.compare("<", left, ix.mul(tile, tiles))),
            lets=(Bounded("#q", 1, tile, value),) if known is None else (),
            asked=both(*self.when),
        )
        lower = Segment(
            role=Role.BODY,
            form=Form.FULL,
            start=ix.add(done, ix.mul(q, ITER)),
            height=q,
            heights=(1, tile) if known is None else (known, known),
            owned=(done, self.extent),
            count=ix.sub(tiles, more),
            when=both(*self.when, nonempty),
            lets=(Bounded("#q", 1, tile + 1, value),) if known is None else (),
            asked=both(*self.when),
        )
        return higher, lower


def _literal(height: Expr) -> int:
    known = ix.literal_value(height)
    assert known is not None
    return known


@memo(1024)
def _heights(height: Expr, when: tuple[Expr, ...], tile: int) -> tuple[int, int]:
    """The least and the greatest value of a height over all extents; raises NotTaken above `tile`."""
    names, space = {EXTENT.name: "x0"}, Space(())
    text = space.expr(height, names)
    given = [space.condition(condition, names) for condition in when]
    known = [condition for condition in given if condition is not None]
    if text is None or len(known) < len(given):
        raise NotTaken("the height of a tile is not quasi-affine in the extent")
    extents = space.set(("e", "h"), ["0 <= x0", f"x1 = {text}", *known])
    if extents.is_empty():
        return 0, 0
    above = extents & space.set(("e", "h"), [f"x1 > {tile}"])
    if not above.is_empty():
        found = smallest_point(above)
        assert found is not None
        extent, high = found[1]
        raise NotTaken(f"with an extent of {extent}, a tile has {high} instances")
    lowest = extents.dim_min_val(1)
    return (
        int(lowest.to_python()) if lowest.is_int() else 0,
        int(extents.dim_max_val(1).to_python()),
    )


def both(*conditions: Expr | None) -> Expr | None:
    """All of the conditions, folded where some are literals; None where nothing is left of them."""
    parts: list[Expr] = []
    for part in (p for c in conditions if c is not None for p in conjuncts(c)):
        folded = ix.compare(part.op, part.a, part.b) if isinstance(part, Compare) else part
        if folded == Const(0, "bool"):
            return folded
        if folded != Const(1, "bool"):
            parts.append(folded)
    return conjunction(parts) if parts else None
