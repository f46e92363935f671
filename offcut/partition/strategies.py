"""What to do with the last, partial tile of an axis, and what each choice makes of the axis.

A cut of ``0 <= x < extent`` by tiles of at most `tile` is a sequence of `Segment`s in ascending
order: full tiles (bodies), then what is left (tails). Every quantity is quasi-affine in the extent,
or becomes so once a `let` with a bounded range is fixed: ``balance`` has heights q and q + 1 with
``q = extent // ceil(extent / tile)``, which isl sees as a finite union over the literals of q.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

from offcut.core import index as ix
from offcut.core.conditions import all_of
from offcut.core.expr import Binary, Compare, Const, Expr, Var
from offcut.core.program import Form, Role


class Strategy(Enum):
    """How the partial tile of an axis is treated. Each: *legal when · pro · con*."""

    GUARD = "guard"
    """Always · smallest code · an `if` in every instance: the naive baseline."""

    EXACT = "exact"
    """The tile divides the extent at every allowed size · no tail at all · a promise is needed."""

    CUT = "cut"
    """Always · full tiles without conditions · the rest runs one instance at a time."""

    MASK = "mask"
    """Always; by a microkernel where it declares a predicate on the axis · one call for the rest ·
    it costs a full tile."""

    PAD = "pad"
    """Always for sums (the term is masked to the neutral element) · one call · copies, a full tile's cost."""

    SHIFT = "shift"
    """Repeating instances changes nothing (no `+=` across tiles, no `B[i] = 2*B[i]`) · one microkernel ·
    repeats up to a tile of work; an extent below the tile needs a version of its own."""

    LADDER = "ladder"
    """A microkernel for every height · the rest in one tile of its exact height · more microkernels."""

    BALANCE = "balance"
    """Likewise · ceil(n/t) tiles of nearly equal height, no sliver · none of them is the largest."""

    EVEN = "even"
    """Likewise · the largest tile as long as it fits, the last two share what is left · three heights."""

    RESIDUE = "residue"
    """Always · the rest has a constant height in each of t versions · t copies of the code."""

    VERSION = "version"
    """Always · an extent below the tile has code of its own, without the body's · one more copy."""

    MIX = "mix"
    """Where its sequences are (ladder, balance, even) · the cheapest for the size of the call ·
    the code of all of them."""


# Names of other systems, once: guard is Halide's GuardWithIf, mask its Predicate and LLVM's tail
# folding, shift its ShiftInwards, pad its RoundUp; cut is Exo's cut and MLIR's peeling.


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
    guarded   not a tile but single instances, in tiles of this many, each under its own `if`
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
    guarded: int | None = None

    @property
    def executed(self) -> tuple[Expr, Expr]:
        """``lo, hi``: the coordinates that run, the repeated, padded and masked ones among them."""
        if self.form in (Form.SHIFT, Form.PAD, Form.MASK):
            return self.start, ix.add(self.start, self.height)
        return self.owned


ITER = Var("#t")  # no user can name a size so, nor q below


def segments(
    strategy: Strategy, extent: Expr, tile: int, heights: Sequence[int] | None = None
) -> tuple[Segment, ...]:
    """The segments of an axis; those that a constant extent leaves empty are left out.

    heights   the heights that exist, for `ladder`; None: every height up to `tile`. A cut is given
              them as a tuple that is empty for None
    """
    return _nonempty(strategy, extent, tile, tuple(heights or ()))


@lru_cache(1024)
def _nonempty(
    strategy: Strategy, extent: Expr, tile: int, heights: tuple[int, ...]
) -> tuple[Segment, ...]:
    found = _SEGMENTS[strategy](extent, tile, heights)
    return tuple(segment for segment in found if not _is_empty(segment))


def _is_empty(segment: Segment) -> bool:
    if segment.when == Const(0, "bool"):
        return True
    count = None if segment.count is None else ix.literal(segment.count)
    height = ix.literal(segment.height)
    return (count is not None and count <= 0) or (height is not None and height <= 0)


def _body(extent: Expr, tile: int) -> Segment:
    full = ix.floordiv(extent, tile)
    return Segment(
        role=Role.BODY,
        form=Form.FULL,
        start=ix.mul(tile, ITER),
        height=ix.const(tile),
        heights=(tile, tile),
        owned=(ix.const(0), ix.mul(tile, full)),
        count=full,
    )


def _rest(extent: Expr, tile: int) -> Expr:
    """Where the partial tile starts."""
    return ix.mul(tile, ix.floordiv(extent, tile))


def _guard(extent: Expr, tile: int, heights: Sequence[int]) -> tuple[Segment, ...]:
    return (
        Segment(
            role=Role.BODY,
            form=Form.FULL,
            start=ix.mul(tile, ITER),
            height=ix.const(1),
            heights=(1, 1),
            owned=(ix.const(0), extent),
            count=ix.ceildiv(extent, tile),
            predicate=True,
            guarded=tile,
        ),
    )


def _exact(extent: Expr, tile: int, heights: Sequence[int]) -> tuple[Segment, ...]:
    return (_body(extent, tile),)


def _cut(extent: Expr, tile: int, heights: Sequence[int]) -> tuple[Segment, ...]:
    rest = _rest(extent, tile)
    single = Segment(
        role=Role.TAIL,
        form=Form.FULL,
        start=ix.add(rest, ITER),
        height=ix.const(1),
        heights=(1, 1),
        owned=(rest, extent),
        count=ix.mod(extent, tile),
    )
    return _body(extent, tile), single


def _partial(extent: Expr, tile: int, form: Form) -> tuple[Segment, ...]:
    rest = _rest(extent, tile)
    last = Segment(
        role=Role.TAIL,
        form=form,
        start=rest,
        height=ix.const(tile),
        heights=(tile, tile),
        owned=(rest, extent),
        when=ix.compare("<", rest, extent),
        predicate=True,
    )
    return _body(extent, tile), last


def _mask(extent: Expr, tile: int, heights: Sequence[int]) -> tuple[Segment, ...]:
    return _partial(extent, tile, Form.MASK)


def _pad(extent: Expr, tile: int, heights: Sequence[int]) -> tuple[Segment, ...]:
    return _partial(extent, tile, Form.PAD)


def _shift(extent: Expr, tile: int, heights: Sequence[int]) -> tuple[Segment, ...]:
    rest = _rest(extent, tile)
    ragged = Compare("!=", ix.mod(extent, tile), ix.const(0))
    moved = Segment(
        role=Role.TAIL,
        form=Form.SHIFT,
        start=ix.sub(extent, tile),
        height=ix.const(tile),
        heights=(tile, tile),
        owned=(rest, extent),
        when=both(ix.compare(">=", extent, tile), ragged),
    )
    short = Segment(
        role=Role.TAIL,
        form=Form.FULL,
        start=ix.const(0),
        height=extent,
        heights=(1, tile - 1),
        owned=(ix.const(0), extent),
        when=both(ix.compare("<", extent, tile), ix.compare(">", extent, 0)),
    )
    return _body(extent, tile), moved, short


def both(a: Expr | None, b: Expr) -> Expr:
    """Both conditions, folded where one is a literal; None is no condition."""
    parts = []
    for part in (a, b) if a is not None else (b,):
        folded = ix.compare(part.op, part.a, part.b) if isinstance(part, Compare) else part
        if folded == Const(0, "bool"):
            return folded
        if folded != Const(1, "bool"):
            parts.append(folded)
    if not parts:
        return Const(1, "bool")
    return all_of(parts)


def _ladder(extent: Expr, tile: int, heights: Sequence[int]) -> tuple[Segment, ...]:
    """Full tiles, then the rest: exactly, or by the largest heights that fit, in turn."""
    found = [_body(extent, tile)]
    rest, left = _rest(extent, tile), ix.mod(extent, tile)
    if not heights:
        exact = Segment(
            role=Role.TAIL,
            form=Form.FULL,
            start=rest,
            height=left,
            heights=(1, max(tile - 1, 1)),
            owned=(rest, extent),
            when=ix.compare(">", left, 0),
        )
        return (*found, exact) if tile > 1 else tuple(found)
    below = sorted((h for h in heights if h < tile), reverse=True)
    for height in below:
        count = ix.floordiv(left, height)
        end = ix.add(rest, ix.mul(height, count))
        found.append(
            Segment(
                role=Role.TAIL,
                form=Form.FULL,
                start=ix.add(rest, ix.mul(height, ITER)),
                height=ix.const(height),
                heights=(height, height),
                owned=(rest, end),
                count=count,
            )
        )
        rest, left = end, ix.mod(left, height)
    if below and below[-1] == 1:
        return tuple(found)
    smallest = min(heights)
    last = Segment(
        role=Role.TAIL,
        form=Form.MASK,
        start=rest,
        height=ix.const(smallest),
        heights=(smallest, smallest),
        owned=(rest, extent),
        when=ix.compare("<", rest, extent),
        predicate=True,
    )
    return (*found, last)


def _balance(extent: Expr, tile: int, heights: Sequence[int]) -> tuple[Segment, ...]:
    """``ceil(n/t)`` tiles; the first ``n - q*ceil(n/t)`` of them have one instance more.

    There are such tiles only where t does not divide n, and then q is less than t.
    """
    tiles = ix.ceildiv(extent, tile)
    size = ix.literal(extent)
    known = None if size is None else size // max(-(-size // tile), 1)
    q: Expr = Var("#q") if known is None else ix.const(known)
    lets: dict[str, tuple[Bounded, ...]] = {"higher": (), "lower": ()}
    low, high = (1, tile) if known is None else (known, known)
    if known is None:
        value = Binary("//", extent, tiles)
        lets = {
            "higher": (Bounded("#q", 1, tile, value),),
            "lower": (Bounded("#q", 1, tile + 1, value),),
        }
    more = ix.sub(extent, ix.mul(q, tiles))
    taller = ix.add(q, 1)
    done = ix.mul(taller, more)
    nonempty = ix.compare(">", extent, 0)
    higher = Segment(
        role=Role.BODY,
        form=Form.FULL,
        start=ix.mul(taller, ITER),
        height=taller,
        heights=(low + 1, high if known is None else high + 1),
        owned=(ix.const(0), done),
        count=more,
        when=both(nonempty, ix.compare("<", extent, ix.mul(tile, tiles))),
        lets=lets["higher"],
    )
    lower = Segment(
        role=Role.BODY,
        form=Form.FULL,
        start=ix.add(done, ix.mul(q, ITER)),
        height=q,
        heights=(low, high),
        owned=(done, extent),
        count=ix.sub(tiles, more),
        when=nonempty,
        lets=lets["lower"],
    )
    return higher, lower


def _single(extent: Expr, start: Expr, height: Expr, highest: int, when: Expr) -> Segment:
    """One tile of exactly what is left from `start` on."""
    return Segment(
        role=Role.TAIL,
        form=Form.FULL,
        start=start,
        height=height,
        heights=(1, highest),
        owned=(start, extent),
        when=when,
    )


def _version(extent: Expr, tile: int, heights: Sequence[int]) -> tuple[Segment, ...]:
    enough = ix.compare(">=", extent, tile)
    body = replace(_body(extent, tile), when=None if enough == Const(1, "bool") else enough)
    if tile == 1:
        return (body,)
    left = ix.mod(extent, tile)
    ragged = both(enough, Compare(">", left, ix.const(0)))
    short = both(ix.compare("<", extent, tile), ix.compare(">", extent, 0))
    return (
        body,
        _single(extent, _rest(extent, tile), left, tile - 1, ragged),
        _single(extent, ix.const(0), extent, tile - 1, short),
    )


def _residue(extent: Expr, tile: int, heights: Sequence[int]) -> tuple[Segment, ...]:
    """Full tiles, then one tile of ``extent % tile`` instances: a literal in each version."""
    rest, left = _rest(extent, tile), ix.mod(extent, tile)
    tails = []
    for height in range(1, tile):
        when = ix.compare("==", left, height)
        if when != Const(0, "bool"):
            one = _single(extent, rest, ix.const(height), height, when)
            tails.append(replace(one, heights=(height, height)))
    return (_body(extent, tile), *tails)


def _even(extent: Expr, tile: int, heights: Sequence[int]) -> tuple[Segment, ...]:
    """Full tiles, but where a rest r is left over, the last t + r instances in two halves."""
    full, left = ix.floordiv(extent, tile), ix.mod(extent, tile)
    if tile == 1:
        return (_body(extent, tile),)
    ragged = Compare(">", left, ix.const(0))
    enough = ix.compare(">=", extent, tile)
    whole = both(enough, ix.compare("==", left, 0))
    split = both(enough, ragged)
    short = both(ix.compare("<", extent, tile), ix.compare(">", extent, 0))
    shared = ix.add(left, tile)
    first = ix.mul(tile, ix.sub(full, 1))
    upper, lower = ix.floordiv(ix.add(shared, 1), 2), ix.floordiv(shared, 2)
    middle = ix.add(first, upper)
    some = (tile // 2, tile)
    return (
        replace(_body(extent, tile), when=whole),
        replace(
            _body(extent, tile),
            count=ix.sub(full, 1),
            owned=(ix.const(0), first),
            when=split,
        ),
        replace(_single(extent, first, upper, tile, split), owned=(first, middle), heights=some),
        replace(_single(extent, middle, lower, tile, split), heights=some),
        _single(extent, ix.const(0), extent, tile - 1, short),
    )


_SEGMENTS = {
    Strategy.GUARD: _guard,
    Strategy.EXACT: _exact,
    Strategy.CUT: _cut,
    Strategy.MASK: _mask,
    Strategy.PAD: _pad,
    Strategy.SHIFT: _shift,
    Strategy.LADDER: _ladder,
    Strategy.BALANCE: _balance,
    Strategy.EVEN: _even,
    Strategy.RESIDUE: _residue,
    Strategy.VERSION: _version,
}
SEQUENCES = (Strategy.LADDER, Strategy.BALANCE, Strategy.EVEN)  # that `mix` chooses from


def sequence(strategy: Strategy, extent: Expr, tile: int) -> tuple[tuple[Expr, Expr], ...]:
    """(how many, their height) of the tiles that a strategy runs, in order; what a price is made of.

    extent   at least 0, in iterations
    """
    full, left = ix.floordiv(extent, tile), ix.mod(extent, tile)
    one = ix.const(1)
    some = ix.minimum(left, one)
    match strategy:
        case Strategy.BALANCE:
            tiles = ix.ceildiv(extent, tile)
            q = _quotient(extent, tiles)
            tall = ix.sub(extent, ix.mul(q, tiles))
            higher = ix.minimum(ix.add(q, 1), tile)
            return ((tall, higher), (ix.sub(tiles, tall), q))
        case Strategy.EVEN:
            last = ix.minimum(full, some)
            shared = ix.add(left, ix.mul(tile, last))
            return (
                (ix.sub(full, last), ix.const(tile)),
                (some, ix.ceildiv(shared, 2)),
                (last, ix.floordiv(shared, 2)),
            )
        case Strategy.PAD | Strategy.SHIFT | Strategy.MASK:
            return ((ix.ceildiv(extent, tile), ix.const(tile)),)
        case Strategy.CUT:
            return ((full, ix.const(tile)), (left, one))
        case Strategy.GUARD:
            return ((extent, one),)
        case _:
            return ((full, ix.const(tile)), (some, left))


def _quotient(extent: Expr, tiles: Expr) -> Expr:
    known, count = ix.literal(extent), ix.literal(tiles)
    if known is not None and count is not None:
        return ix.const(known // max(count, 1))
    return Binary("//", extent, ix.maximum(tiles, 1))
