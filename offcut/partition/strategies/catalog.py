"""What to do with the last, partial tile of an axis: strategies by name, our own and a user's.

A strategy is a function of a `TiledAxis` that takes tiles of it; ``@strategy("name")`` makes it one.
Ours stand below, and have no other door. What a user's function gives is recorded as data when its
name is used, so a `Strategy` is a value: it is compared, kept in caches and sent to other processes
by what it gives, and a function that takes the name later on is another one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeAlias, TypeVar

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Select, substitute
from offcut.core.integers import whole
from offcut.core.memo import memo
from offcut.core.nearest import nearest
from offcut.core.program import Form
from offcut.errors import DescribeError, PartitionError, trim_traceback
from offcut.partition.strategies.placing import Segment, placed
from offcut.partition.strategies.tiled_axis import (
    EXTENT,
    Give,
    NotTaken,
    Take,
    Takes,
    TiledAxis,
    taken,
)

KNOWN = range(1, 257)  # tile sizes of which a compiled kernel takes a user's strategy along


@dataclass(frozen=True, slots=True)
class Strategy:
    """How the partial tile of an axis is treated; its text is its name and its arguments.

    arguments  numbers that its function takes: heights
    own        of a user's function: what it takes by tile, or why that is nothing; None: it is ours
    """

    name: str
    arguments: tuple[int, ...] = ()
    own: tuple[tuple[int, Takes | str], ...] | None = field(default=None, hash=False)

    def __str__(self) -> str:
        return (
            f"{self.name}({', '.join(map(str, self.arguments))})" if self.arguments else self.name
        )

    @property
    def among(self) -> tuple[Strategy, ...]:
        """The strategies of which a call takes the cheapest, where it is no strategy of its own."""
        return (LADDER, BALANCE, EVEN) if self == MIX else ()

    @property
    def divides(self) -> bool:
        """Whether it is for extents that the tile divides, which is proved of the sizes."""
        return self == EXACT

    def stepped(self, heights: tuple[int, ...] | None) -> Strategy:
        """The same with these heights below a tile; None or none: with its own."""
        return replace(self, arguments=heights) if heights else self

    def only(self, tile: int) -> Strategy:
        """The same, for tiles of this size."""
        if self.own is None:
            return self
        return replace(self, own=tuple(pair for pair in self.own if pair[0] == tile) or self.own)

    def takes(self, tile: int) -> Takes:
        """What it takes of an axis in tiles of `tile`.

        Raises NotTaken where that is nothing.
        """
        if self.own is None:
            return _taken(_OURS[self.name], tile, self.arguments)
        found = dict(self.own).get(tile, f"it is known for tiles of {_known(self.own)} here")
        if isinstance(found, str):
            raise NotTaken(found)
        return found

    def repeats(self, tile: int) -> bool:
        """Whether instances may run a second time."""
        return any(s.form is Form.SHIFT for s in segments(self, EXTENT, tile))

    def pads(self, tile: int) -> bool:
        """Whether instances run that are none, and add neutral terms."""
        return any(s.form is Form.PAD for s in segments(self, EXTENT, tile))

    def guards(self, tile: int) -> bool:
        """Return whether some tiles are loops of full extents that ask a condition in each instance."""
        return any(s.form is Form.GUARD for s in segments(self, EXTENT, tile))

    def by_row(self, tile: int) -> Strategy | None:
        """Of `CUT`, `MASK` and `GUARD` the one that it is, which treat each row of a tile by itself."""
        if self.among:
            return None
        same = (one for one in (CUT, MASK, GUARD) if one.takes(tile) == self.takes(tile))
        return next(same, None)


def _known(own: tuple[tuple[int, object], ...]) -> str:
    tiles = [tile for tile, _ in own]
    return str(tiles[0]) if len(tiles) == 1 else f"{tiles[0]}…{tiles[-1]}"


_taken = lru_cache(4096)(taken)
_OURS: dict[str, Give] = {}
_USERS: dict[str, Give] = {}
StrategyLike: TypeAlias = str | tuple[str, tuple[int, ...]] | Strategy  # what a user may write
_F = TypeVar("_F", bound=Give)


@trim_traceback
def strategy(name: str) -> Callable[[_F], _F]:
    """A decorator that makes a function of a `TiledAxis` the strategy `name`, wherever one is taken.

    The function yields what its axis gives it, and may have more arguments: numbers, which
    ``tail={"i": ("name", (4, 2))}`` gives. A name that is taken by another function of the user is
    this one's from then on; kernels that are compiled, and schedules, keep what they were made of.

    Raises DescribeError for a name that is no identifier, or one of ours.
    """
    because = None
    if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
        because = "a strategy is known by an ASCII identifier"
    elif name in _OURS or name in ("auto", MIX.name):
        because = "offcut has a strategy of that name"
    if because is not None:
        help = ('@oc.strategy("halve")',)
        raise DescribeError("strategy", f"cannot name it {name!r}", because=because, help=help)

    def registered(function: _F) -> _F:
        called: object = function
        if not inspect.isgeneratorfunction(called):
            raise DescribeError(
                "strategy",
                f"cannot take {getattr(function, '__name__', repr(function))} as the strategy {name}",
                because="it is no generator function",
                help=("def halve(axis): yield axis.full()",),
            )
        _USERS[name] = function
        return function

    return registered


def _ours(function: Give) -> Strategy:
    """One of the strategies that there are, by the name of its function."""
    name = function.__name__.strip("_")
    _OURS[name] = function
    return Strategy(name)


def _guard(axis: TiledAxis) -> Iterator[Take]:
    """Always · one code for all tiles · loops of full extents with an `if` inside, what a compiler makes that does not partition: the baseline."""
    yield axis.guarded()


def _exact(axis: TiledAxis) -> Iterator[Take]:
    """The tile divides the extent at every allowed size · no tail at all · a promise is needed."""
    yield axis.full()


def _cut(axis: TiledAxis) -> Iterator[Take]:
    """Always · full tiles without conditions · the rest runs one instance at a time."""
    yield axis.full()
    yield axis.rest(1)


def _mask(axis: TiledAxis) -> Iterator[Take]:
    """Always; by a microkernel where it declares a predicate on the axis · one call for the rest ·
    it costs a full tile."""
    yield axis.full()
    yield axis.masked()


def _pad(axis: TiledAxis) -> Iterator[Take]:
    """Always for sums (the term is masked to the neutral element) · one call · copies, a full tile's
    cost."""
    yield axis.full()
    yield axis.padded()


def _shift(axis: TiledAxis) -> Iterator[Take]:
    """Repeating instances changes nothing (no `+=` across tiles, no `B[i] = 2*B[i]`) · one microkernel
    · repeats up to a tile of work; an extent below the tile needs a version of its own."""
    short = axis.where(axis.extent < axis.tile)
    yield axis.full()
    yield axis.moved_back()
    yield short.tail()


def _ladder(axis: TiledAxis, *heights: int) -> Iterator[Take]:
    """A microkernel for every height · the rest in one tile of its exact height, or of the largest
    of `heights` that fit, in turn · more microkernels."""
    yield axis.full()
    if not heights:
        yield axis.tail()
        return
    below = sorted((height for height in heights if height < axis.tile), reverse=True)
    for height in below:
        yield axis.rest(height)
    if min(heights) > 1:
        yield axis.masked(min(*heights, axis.tile))


def _balance(axis: TiledAxis) -> Iterator[Take]:
    """Likewise · ceil(n/t) tiles of nearly equal height, no sliver · none of them is the largest."""
    yield axis.balanced()


def _even(axis: TiledAxis) -> Iterator[Take]:
    """Likewise · the largest tile as long as it fits, the last two share what is left · three heights."""
    over = axis.extent % axis.tile
    enough = axis.where(axis.extent >= axis.tile)
    short = axis.where(axis.extent < axis.tile)
    yield enough.where(over == 0).full()
    ragged = enough.where(over > 0)
    yield ragged.full(axis.extent // axis.tile - 1)
    yield ragged.one((over + axis.tile + 1) // 2)
    yield ragged.one((over + axis.tile) // 2)
    yield short.tail()


def _residue(axis: TiledAxis) -> Iterator[Take]:
    """Always · the rest has a constant height in each of t versions · t copies of the code."""
    yield axis.full()
    for height in range(1, axis.tile):
        yield axis.where(axis.left == height).one(height)


def _version(axis: TiledAxis) -> Iterator[Take]:
    """Always · an extent below the tile has code of its own, without the body's · one more copy."""
    enough = axis.where(axis.extent >= axis.tile)
    short = axis.where(axis.extent < axis.tile)
    yield enough.full()
    yield enough.tail()
    yield short.tail()


# Names of other systems, once: guard is Halide's GuardWithIf, mask its Predicate and LLVM's tail
# folding, shift its ShiftInwards, pad its RoundUp; cut is Exo's cut and MLIR's peeling.
GUARD, EXACT, CUT = _ours(_guard), _ours(_exact), _ours(_cut)
MASK, PAD, SHIFT = _ours(_mask), _ours(_pad), _ours(_shift)
LADDER, BALANCE, EVEN = _ours(_ladder), _ours(_balance), _ours(_even)
RESIDUE, VERSION = _ours(_residue), _ours(_version)
MIX = Strategy("mix")  # of ladder, balance and even the cheapest for the size of the call
STRATEGIES = (*map(Strategy, _OURS), MIX)


def strategy_named(
    given: object,
    *,
    at: str,
    op: str = "partition",
    tiles: Iterable[int] = KNOWN,
    others: tuple[str, ...] = (),
) -> Strategy:
    """The strategy that ``halve``, ``ladder(4, 2, 1)`` or ``("ladder", (4, 2, 1))`` says.

    tiles   the tile sizes that it may be asked for, if it is a user's
    others  names that the caller takes beside these

    Raises PartitionError with the names there are.
    """
    if isinstance(given, Strategy):
        return given
    what = "tail" if op in ("partition", "split") else "strategy"

    def refused(because: str, *help: str) -> PartitionError:
        return PartitionError(
            op, f"cannot take {what}={given!r}", at=at, because=because, help=help
        )

    name, arguments = _parts(given)
    give = (_OURS | _USERS).get(name) if isinstance(name, str) else None
    if name == MIX.name and not arguments:
        return MIX
    if isinstance(given, tuple) and not isinstance(name, str):
        raise refused("it is no name with a tuple of heights", '("ladder", (4, 2, 1))')
    if give is None or not isinstance(name, str):
        known = (*others, *map(str, STRATEGIES), *_USERS)
        meant = nearest(name, known) if isinstance(name, str) else ""
        raise refused("there is no such strategy", *filter(None, [meant]), ", ".join(known))
    if isinstance(given, tuple) and not arguments:
        raise refused("it has no heights", f'"{name}" alone', f'("{name}", (4, 2, 1))')
    heights = tuple(n for n in map(whole, arguments) if n is not None and 1 <= n < 2**31)
    if len(heights) < len(arguments):
        raise refused("heights are ints, at least 1", f'("{name}", (4, 2, 1))')
    try:
        inspect.signature(give).bind(None, *heights)
    except TypeError:
        raise refused(f"{name} does not take {len(heights)} heights") from None
    if name in _OURS:
        return Strategy(name, heights)
    return Strategy(name, heights, _recorded(give, tuple(tiles), heights))


def _parts(given: object) -> tuple[object, tuple[object, ...]]:
    """A name and its arguments, as far as it is these."""
    match given:
        case str():
            found = re.fullmatch(r"(\w+)\(([\d ,]+)\)", given)
            if found is None:
                return given, ()
            return found[1], tuple(int(n) for n in found[2].split(",") if n.strip().isdecimal())
        case (name, (*arguments,)):
            return name, tuple(arguments)
    return given, ()


def _recorded(
    give: Give, tiles: tuple[int, ...], arguments: tuple[int, ...]
) -> tuple[tuple[int, Takes | str], ...]:
    """What a user's function takes, by tile."""
    found: list[tuple[int, Takes | str]] = []
    for tile in tiles:
        try:
            found.append((tile, _taken(give, tile, arguments)))
        except NotTaken as reason:
            found.append((tile, str(reason)))
    return tuple(found)


@memo(1024)
def segments(strategy: Strategy, extent: Expr, tile: int) -> tuple[Segment, ...]:
    """The segments of an axis; those that a constant extent leaves empty are left out.

    Raises PartitionError where the strategy's function takes what no cut can be.
    """
    try:
        return placed(strategy.takes(tile), extent, tile)
    except NotTaken as reason:
        raise PartitionError(
            "partition",
            f"cannot cut by {strategy}",
            at=f"a tile of {tile}",
            because=str(reason),
            help=(f'tail="{CUT}" and tail="{LADDER}" are for tiles of any size',),
        ) from reason


def runs(strategy: Strategy, extent: Expr, tile: int) -> tuple[tuple[Expr, Expr], ...]:
    """(how many, their height) of the tiles that a strategy runs, in order; what a price is made of. Rows of a masked tile that
    are off do not run, those of a padded one do.

    extent   at least 0, in iterations
    """
    return tuple(run for one in segments(strategy, extent, tile) for run in runs_of(one))


def runs_of(segment: Segment) -> tuple[tuple[Expr, Expr], ...]:
    """Return (how many, their height) of the tiles of a segment, in order: of guarded tiles the full ones, and what the last one has in
    the domain.
    """
    if segment.form is Form.GUARD:
        left = ix.sub(segment.owned[1], segment.owned[0])
        rest = ix.mod(left, segment.height)
        full = ix.floordiv(left, segment.height), segment.height
        runs = (full, (ix.minimum(rest, 1), rest)) if rest != ix.const(0) else (full,)
        if segment.when is None:
            return runs
        when, none = segment.when, ix.const(0)
        return tuple(
            (Select(when, count, none), Select(when, height, none)) for count, height in runs
        )
    return (_run(segment),)


def _run(segment: Segment) -> tuple[Expr, Expr]:
    """A segment's tiles; none where it does not exist."""
    count = ix.const(1) if segment.count is None else segment.count
    height, when = segment.height, segment.when
    if segment.form is Form.MASK and segment.on is not None:
        height = segment.on
    elif segment.lets:
        # Where a bounded value is out of its range there are no tiles, of whatever height.
        values: dict[str, Expr] = {let.name: _total(let.value) for let in segment.lets}
        inside = all(let.hi > segment.heights[1] for let in segment.lets)
        count, height = (ix.simplify(substitute(part, values)) for part in (count, height))
        height, when = height if inside else ix.minimum(height, segment.heights[1]), segment.asked
    elif segment.count is None and when == ix.compare(">", height, 0):
        count, when = ix.minimum(height, 1), None
    if when is None:
        return count, height
    highest = ix.minimum(ix.maximum(height, 0), segment.heights[1])
    return Select(when, count, ix.const(0)), highest


def _total(value: Expr) -> Expr:
    """A quotient that has a value wherever its divisor is none."""
    match value:
        case Binary("//", a, b) if not isinstance(b, Const):
            return Binary("//", a, ix.maximum(b, 1))
        case _:
            return value
