"""Tail strategies by name, built-in and user-defined: how the last, partial tile of an axis is treated.

A strategy is a function of a `TiledAxis` that takes tiles of it; ``@strategy("name")`` makes it one.
The built-in ones stand below, and use the same interface. What a user's function gives is recorded as data when its
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
from offcut.core.names import similar_names
from offcut.core.program import Form
from offcut.errors import DescribeError, PartitionError, trim_traceback
from offcut.partition.strategies.segment_placement import Segment, place_segments
from offcut.partition.strategies.tiled_axis import (
    EXTENT,
    InvalidStrategy,
    StrategyFunction,
    TiledAxis,
    TileRun,
    TileRuns,
    run_strategy,
)

KNOWN_TILE_SIZES = range(
    1, 257
)  # tile sizes of which a compiled kernel takes a user's strategy along

MAX_OFFERED_HEIGHTS = 8
"""Maximum number of heights that the help of an error offers."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """A tail strategy; its text is its name and its arguments.

    arguments  numbers that its function takes: heights
    user_defined  of a user's function: what it takes by tile, or why that is nothing; None: it is ours
    members  of `mix`, the strategies of which a call takes the cheapest; none: ladder, balance and even
    """

    name: str
    arguments: tuple[int, ...] = ()
    user_defined: tuple[tuple[int, TileRuns | str], ...] | None = field(default=None, hash=False)
    members: tuple[Strategy, ...] = ()

    def __str__(self) -> str:
        if self.members:
            return f"{self.name}({', '.join(map(str, self.members))})"
        return (
            f"{self.name}({', '.join(map(str, self.arguments))})" if self.arguments else self.name
        )

    @property
    def among(self) -> tuple[Strategy, ...]:
        """Return the strategies of which a call takes the cheapest; none for a single strategy."""
        if self.name != MIX.name:
            return ()
        return self.members or (
            LADDER,
            replace(BALANCE, arguments=self.arguments),
            replace(EVEN, arguments=self.arguments),
        )

    @property
    def divides(self) -> bool:
        """Return whether the tile must divide the extent, which is proved from the sizes."""
        return self == EXACT

    def with_heights(self, heights: tuple[int, ...] | None) -> Strategy:
        """Return the strategy with these heights below a tile; None or none: its own heights."""
        return replace(self, arguments=heights) if heights else self

    def in_multiples(self, of: int) -> Strategy:
        """Return the strategy whose tiles have heights that are multiples of a number; itself if it has arguments, or its heights do
        not depend on any such number.
        """
        takes = self.name in (BALANCE.name, EVEN.name, RESIDUE.name, MIX.name)
        return replace(self, arguments=(of,)) if takes and not self.arguments and of > 1 else self

    def for_tile(self, tile: int) -> Strategy:
        """Return the strategy, restricted to tiles of this size."""
        if self.user_defined is None:
            return self
        return replace(
            self,
            user_defined=tuple(pair for pair in self.user_defined if pair[0] == tile)
            or self.user_defined,
        )

    def takes(self, tile: int) -> TileRuns:
        """Return the runs of tiles of an axis whose tile size is `tile`.

        Raises InvalidStrategy where that is nothing.
        """
        if self.user_defined is None:
            return _run_strategy(_BUILTIN[self.name], tile, self.arguments)
        runs_or_reason = dict(self.user_defined).get(
            tile, f"it is known for tiles of {_tile_range(self.user_defined)} here"
        )
        if isinstance(runs_or_reason, str):
            raise InvalidStrategy(runs_or_reason)
        return runs_or_reason

    def repeats(self, tile: int) -> bool:
        """Return whether instances may run a second time."""
        return any(s.form is Form.SHIFT for s in segments(self, EXTENT, tile))

    def pads(self, tile: int) -> bool:
        """Return whether instances outside of the domain run, which add neutral terms."""
        return any(s.form is Form.PAD for s in segments(self, EXTENT, tile))

    def guards(self, tile: int) -> bool:
        """Return whether some tiles are loops of full extents that ask a condition in each instance."""
        return any(s.form is Form.GUARD for s in segments(self, EXTENT, tile))

    def per_row(self, tile: int) -> Strategy | None:
        """Return the strategy among `CUT`, `MASK` and `GUARD` that this one equals: they treat each row of a tile separately; else None."""
        if self.among:
            return None
        same = (one for one in (CUT, MASK, GUARD) if one.takes(tile) == self.takes(tile))
        return next(same, None)


def _tile_range(user_defined: tuple[tuple[int, object], ...]) -> str:
    tiles = [tile for tile, _ in user_defined]
    return str(tiles[0]) if len(tiles) == 1 else f"{tiles[0]}…{tiles[-1]}"


_run_strategy = lru_cache(4096)(run_strategy)
_BUILTIN: dict[str, StrategyFunction] = {}
_USERS: dict[str, StrategyFunction] = {}
StrategyLike: TypeAlias = str | tuple[str, tuple[int, ...]] | Strategy  # what a user may write
_F = TypeVar("_F", bound=StrategyFunction)


@trim_traceback
def strategy(name: str) -> Callable[[_F], _F]:
    """Register a function of a `TiledAxis` as the strategy `name` (a decorator).

    The function yields what its axis gives it, and may have more arguments: numbers, which
    ``tail={"i": ("name", (4, 2))}`` gives. A name that is taken by another function of the user is
    this one's from then on; kernels that are compiled, and schedules, keep what they were made of.

    Raises DescribeError for a name that is no identifier, or one of ours.
    """
    because = None
    if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
        because = "a strategy is known by an ASCII identifier"
    elif name in _BUILTIN or name in ("auto", MIX.name):
        because = "offcut has a strategy of that name"
    if because is not None:
        help = ('@oc.strategy("halve")',)
        raise DescribeError("strategy", f"cannot name it {name!r}", because=because, help=help)

    def register(function: _F) -> _F:
        candidate: object = function
        if not inspect.isgeneratorfunction(candidate):
            raise DescribeError(
                "strategy",
                f"cannot take {getattr(function, '__name__', repr(function))} as the strategy {name}",
                because="it is not a generator function",
                help=("def halve(axis): yield axis.full()",),
            )
        _USERS[name] = function
        return function

    return register


def _builtin(function: StrategyFunction) -> Strategy:
    """Register a built-in strategy by the name of its function."""
    name = function.__name__.strip("_")
    _BUILTIN[name] = function
    return Strategy(name)


def _guard(axis: TiledAxis) -> Iterator[TileRun]:
    """Always · one code for all tiles · loops of full extents with an `if` inside, what a compiler makes that does not partition: the baseline."""
    yield axis.guarded()


def _exact(axis: TiledAxis) -> Iterator[TileRun]:
    """The tile divides the extent at every allowed size · no tail at all · a promise is needed."""
    yield axis.full()


def _cut(axis: TiledAxis) -> Iterator[TileRun]:
    """Always · full tiles without conditions · the rest runs one instance at a time."""
    yield axis.full()
    yield axis.fixed(1)


def _mask(axis: TiledAxis) -> Iterator[TileRun]:
    """Always; by a microkernel where it declares a predicate on the axis · one call for the rest ·
    it costs a full tile."""
    yield axis.full()
    yield axis.masked()


def _pad(axis: TiledAxis) -> Iterator[TileRun]:
    """Always for sums (the term is masked to the neutral element) · one call · copies, a full tile's
    cost."""
    yield axis.full()
    yield axis.padded()


def _shift(axis: TiledAxis) -> Iterator[TileRun]:
    """Repeating instances changes nothing (no `+=` across tiles, no `B[i] = 2*B[i]`) · one microkernel
    · repeats up to a tile of work; an extent below the tile needs a version of its own."""
    short = axis.where(axis.extent < axis.tile)
    yield axis.full()
    yield axis.shifted()
    yield short.tail()


def _ladder(axis: TiledAxis, *heights: int) -> Iterator[TileRun]:
    """A microkernel for every height · the rest in one tile of its exact height, or of the largest
    of `heights` that fit, in turn · more microkernels."""
    yield axis.full()
    if not heights:
        yield axis.tail()
        return
    below = sorted((height for height in heights if height < axis.tile), reverse=True)
    for height in below:
        yield axis.fixed(height)
    if min(heights) > 1:
        yield axis.masked(min(*heights, axis.tile))


def _balance(axis: TiledAxis, multiple: int = 1) -> Iterator[TileRun]:
    """Likewise · ceil(n/t) tiles of nearly equal height, no sliver · none of them is the largest."""
    yield axis.balanced(multiple)


def _even(axis: TiledAxis, multiple: int = 1) -> Iterator[TileRun]:
    """Likewise · the largest tile as long as it fits, the last two share what is left · three heights."""
    remainder = axis.extent % axis.tile
    enough = axis.where(axis.extent >= axis.tile)
    short = axis.where(axis.extent < axis.tile)
    yield enough.where(remainder == 0).full()
    ragged = enough.where(remainder > 0)
    yield ragged.full(axis.extent // axis.tile - 1)
    if multiple == 1:
        yield ragged.single((remainder + axis.tile + 1) // 2)
        yield ragged.single((remainder + axis.tile) // 2)
    else:
        yield ragged.single(
            multiple * ((remainder + axis.tile + 2 * multiple - 1) // (2 * multiple))
        )
        yield ragged.tail()
    yield short.tail()


def _residue(axis: TiledAxis, multiple: int = 1) -> Iterator[TileRun]:
    """Always · the rest has a constant height in each of t versions · t copies of the code; of t/g, if heights are multiples of g."""
    yield axis.full()
    for height in range(1, axis.tile) if multiple == 1 else ():
        yield axis.where(axis.remaining == height).single(height)
    for below in range(0, axis.tile, multiple) if multiple > 1 else ():
        height = min(below + multiple, axis.tile)
        some = axis.where(axis.remaining > below, axis.remaining <= height)
        yield some.masked(height)


def _version(axis: TiledAxis) -> Iterator[TileRun]:
    """Always · an extent below the tile has code of its own, without the body's · one more copy."""
    enough = axis.where(axis.extent >= axis.tile)
    short = axis.where(axis.extent < axis.tile)
    yield enough.full()
    yield enough.tail()
    yield short.tail()


# Names of other systems, once: guard is Halide's GuardWithIf, mask its Predicate and LLVM's tail
# folding, shift its ShiftInwards, pad its RoundUp; cut is Exo's cut and MLIR's peeling.
GUARD, EXACT, CUT = _builtin(_guard), _builtin(_exact), _builtin(_cut)
MASK, PAD, SHIFT = _builtin(_mask), _builtin(_pad), _builtin(_shift)
LADDER, BALANCE, EVEN = _builtin(_ladder), _builtin(_balance), _builtin(_even)
RESIDUE, VERSION = _builtin(_residue), _builtin(_version)
MIX = Strategy("mix")  # of ladder, balance and even the cheapest for the size of the call
STRATEGIES = (*map(Strategy, _BUILTIN), MIX)


def parse_strategy(
    value: object,
    *,
    at: str,
    op: str = "partition",
    tiles: Iterable[int] = KNOWN_TILE_SIZES,
    others: tuple[str, ...] = (),
) -> Strategy:
    """Parse ``halve``, ``ladder(4, 2, 1)`` or ``("ladder", (4, 2, 1))`` as a strategy.

    tiles   the tile sizes that it may be asked for, if it is a user's
    others  names that the caller takes beside these

    Raises PartitionError with the names there are.
    """
    if isinstance(value, Strategy):
        return value
    argument = "tail" if op in ("partition", "split") else "strategy"

    def error(because: str, *help: str) -> PartitionError:
        return PartitionError(
            op, f"cannot take {argument}={value!r}", at=at, because=because, help=help
        )

    if isinstance(value, list):
        alone = (f'"{one}"' for one in value if isinstance(one, str) and one in _BUILTIN)
        compete = f"strategy={value!r}, for the rows of products" if argument == "strategy" else ""
        raise error(
            "the tail of one axis is treated by one strategy, and this is a list",
            *alone,
            *filter(None, [compete]),
        )
    name, arguments = _split_name(value)
    functions = {
        **_BUILTIN,
        **_USERS,
        MIX.name: _balance,
    }  # what `mix` is of takes what `balance` takes
    strategy_function = functions.get(name) if isinstance(name, str) else None
    if isinstance(value, tuple) and not isinstance(name, str):
        raise error("it is not a name with a tuple of heights", '("ladder", (4, 2, 1))')
    if strategy_function is None or not isinstance(name, str):
        names = (*others, *map(str, STRATEGIES), *_USERS)
        suggestion = similar_names(name, names) if isinstance(name, str) else ""
        raise error("there is no such strategy", *filter(None, [suggestion]), ", ".join(names))
    if isinstance(value, tuple) and not arguments:
        raise error("it has no heights", f'"{name}" alone', f'("{name}", (4, 2, 1))')
    heights = tuple(n for n in map(whole, arguments) if n is not None and 1 <= n < 2**31)
    if len(heights) < len(arguments):
        raise error("heights are ints, at least 1", f'("{name}", (4, 2, 1))')
    if not _takes_heights(strategy_function, len(heights)):
        count = f"{len(heights)} {'height is' if len(heights) == 1 else 'heights are'} given"
        accepted = [
            n for n in range(MAX_OFFERED_HEIGHTS + 1) if _takes_heights(strategy_function, n)
        ]
        if 0 in accepted or not accepted:
            raise error(f"{count}, and {name} takes no heights", f'"{name}"')
        call = f'("{name}", {tuple(range(accepted[0], 0, -1))})'
        raise error(f"{count}, and {name} takes {' or '.join(map(str, accepted))}", call)
    if name in _BUILTIN or name == MIX.name:
        return Strategy(name, heights)
    return Strategy(name, heights, _record_by_tile(strategy_function, tuple(tiles), heights))


def _takes_heights(function: Callable[..., object], count: int) -> bool:
    """Return whether a strategy takes so many heights."""
    try:
        inspect.signature(function).bind(None, *[1] * count)
    except TypeError:
        return False
    return True


def _split_name(value: object) -> tuple[object, tuple[object, ...]]:
    """Split a strategy as the user wrote it into a name and arguments, if it has this form."""
    match value:
        case str():
            match_ = re.fullmatch(r"(\w+)\(([\d ,]+)\)", value)
            if match_ is None:
                return value, ()
            return match_[1], tuple(int(n) for n in match_[2].split(",") if n.strip().isdecimal())
        case (name, (*arguments,)):
            return name, tuple(arguments)
    return value, ()


def _record_by_tile(
    function: StrategyFunction, tiles: tuple[int, ...], arguments: tuple[int, ...]
) -> tuple[tuple[int, TileRuns | str], ...]:
    """Return the runs of a user's strategy by tile size, or why it is invalid."""
    recorded: list[tuple[int, TileRuns | str]] = []
    for tile in tiles:
        try:
            recorded.append((tile, _run_strategy(function, tile, arguments)))
        except InvalidStrategy as reason:
            recorded.append((tile, str(reason)))
    return tuple(recorded)


@memo(1024)
def segments(strategy: Strategy, extent: Expr, tile: int) -> tuple[Segment, ...]:
    """Return the segments of an axis, without those that a constant extent leaves empty.

    Raises PartitionError where the strategy's function takes what no cut can be.
    """
    try:
        return place_segments(strategy.takes(tile), extent, tile)
    except InvalidStrategy as reason:
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
        extent = ix.sub(segment.owned[1], segment.owned[0])
        last_height = ix.mod(extent, segment.height)
        full = ix.floordiv(extent, segment.height), segment.height
        runs = (
            (full, (ix.minimum(last_height, 1), last_height))
            if last_height != ix.const(0)
            else (full,)
        )
        if segment.when is None:
            return runs
        when, none = segment.when, ix.const(0)
        return tuple(
            (Select(when, count, none), Select(when, height, none)) for count, height in runs
        )
    return (_tile_run(segment),)


def _tile_run(segment: Segment) -> tuple[Expr, Expr]:
    """Return the number and the height of the tiles of a segment; none if it does not exist."""
    count = ix.const(1) if segment.count is None else segment.count
    height, when = segment.height, segment.when
    if segment.form is Form.MASK and segment.on is not None:
        height = segment.on
    elif segment.lets:
        # Where a bounded value is out of its range there are no tiles, of whatever height.
        values: dict[str, Expr] = {let.name: _total(let.value) for let in segment.lets}
        is_in_range = all(let.hi > segment.heights[1] for let in segment.lets)
        count, height = (ix.simplify(substitute(part, values)) for part in (count, height))
        height, when = (
            height if is_in_range else ix.minimum(height, segment.heights[1]),
            segment.asked,
        )
    elif segment.count is None and when == ix.compare(">", height, 0):
        count, when = ix.minimum(height, 1), None
    if when is None:
        return count, height
    highest = ix.minimum(ix.maximum(height, 0), segment.heights[1])
    return Select(when, count, ix.const(0)), highest


def _total(value: Expr) -> Expr:
    """Return a quotient that is defined even if its divisor is 0."""
    match value:
        case Binary("//", a, b) if not isinstance(b, Const):
            return Binary("//", a, ix.maximum(b, 1))
        case _:
            return value
