"""The axis that a strategy tiles: the argument of its function, and the runs of tiles that it yields.

A strategy is a function of a `TiledAxis`. Each method takes tiles from where the tiles before them
end, and what the function yields is what is run::

    @oc.strategy("halve")
    def halve(axis):
        yield axis.full()                  # as many tiles of axis.tile as fit
        height = axis.tile // 2
        while height:
            yield axis.fixed(height)        # as many of this height as fit in what is left
            height //= 2

The function is asked for one tile size at a time, and knows no extent but a symbolic one: what it
takes is data, which a proof reads for all extents, and which travels with a compiled kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from offcut.core import index as ix
from offcut.core.expr import Binary, Expr, Var, children, substitute, variables
from offcut.core.names import warn_renamed
from offcut.core.text.printer import format_expr
from offcut.describe.value import Value
from offcut.errors import DescribeError, InternalError

EXTENT = Var("#e")  # no user can name a size so
MAX_RUNS = 64  # of an axis, each code of its own
MAX_BALANCED_HEIGHTS = 1024  # that balanced tiles may have, each asked of isl by itself

_TOO_MANY_RUNS = f"it gives more than {MAX_RUNS} segments, each of them code of its own"

TileRunKind: TypeAlias = Literal[
    "fixed", "single", "tail", "masked", "padded", "shifted", "guarded", "balanced"
]


_RENAMED = {"left": "remaining", "rest": "fixed", "one": "single", "moved_back": "shifted"}


class InvalidStrategy(Exception):
    """Raised with the reason why a function is not a valid strategy, as a clause of an error."""


@dataclass(frozen=True, slots=True)
class TileRun:
    """A run of tiles that a strategy takes from the remaining part of an axis.

    kind    the method of `TiledAxis` that gave it, which says what the tiles are
    height  instances of a tile: a literal, or of one tile an expression in `EXTENT`; of a tail, and
            of balanced tiles, the most that there may be
    count   how many; None: as many as fit
    when    conditions on `EXTENT` without which there are none
    after   the number of the take that ends where this one starts; None: it starts at 0
    multiple  of which the heights of balanced tiles are multiples, but for the last one
    """

    kind: TileRunKind
    height: Expr
    count: Expr | None = None
    when: tuple[Expr, ...] = ()
    after: int | None = None
    multiple: int = 1

    def __str__(self) -> str:
        parts = [self.height] if self.kind in ("fixed", "single", "masked", "padded") else []
        parts += [ix.const(self.multiple)] if self.multiple > 1 else []
        parts += [self.count] if self.kind == "fixed" and self.count is not None else []
        text = f"{self.kind}({', '.join(map(_format, parts))})"
        return f"where({', '.join(map(_format, self.when))}).{text}" if self.when else text


@dataclass(frozen=True, slots=True)
class TileRuns:
    """The runs of a strategy for one tile size.

    all_runs  everything that was asked of the axis, in order
    yielded  what is run: numbers of `all_runs`
    """

    all_runs: tuple[TileRun, ...]
    yielded: tuple[int, ...]

    def ends(self, number: int | None, extent: Expr) -> tuple[Expr, Expr]:
        """Return the start and the extent of the remaining part after a run."""
        if number is None:
            return ix.const(0), extent
        take = self.all_runs[number]
        start, remaining = self.ends(take.after, extent)
        if take.kind not in ("fixed", "single"):
            return extent, ix.const(0)
        height = substitute_extent(extent, take.height)
        if take.count is None:
            whole = ix.mul(height, ix.floordiv(remaining, height))
            remainder = ix.mod(remaining, height)
            return (extent if remainder == ix.const(0) else ix.add(start, whole)), remainder
        whole = ix.mul(height, substitute_extent(extent, take.count))
        return ix.add(start, whole), ix.sub(remaining, whole)

    def __str__(self) -> str:
        return ", ".join(str(self.all_runs[number]) for number in self.yielded) or "nothing"


class TiledAxis:
    """An axis of any extent, to be tiled by tiles of at most `tile` instances.

    Every method that takes something starts where what was taken before ends.
    """

    def __init__(
        self,
        tile: int,
        runs: list[TileRun] | None = None,
        when: tuple[Expr, ...] = (),
        after: int | None = None,
    ) -> None:
        self._tile, self._when, self._after = tile, when, after
        self._runs: list[TileRun] = [] if runs is None else runs

    @property
    def tile(self) -> int:
        """Return the largest tile, in iterations, at least 1."""
        return self._tile

    @property
    def extent(self) -> Value:
        """Return the number of iterations: at least 0, known only when a kernel is called."""
        return Value(EXTENT)

    @property
    def remaining(self) -> Value:
        """Return the number of iterations that are not taken yet."""
        return Value(TileRuns(tuple(self._runs), ()).ends(self._after, EXTENT)[1])

    def where(self, *conditions: Value | bool) -> TiledAxis:
        """Return the axis from here on, restricted to extents where all of `conditions` hold: comparisons of `extent` or
        `remaining`. What is taken of it exists there only, and this axis goes on as if it had not been.
        """
        when = (*self._when, *(_node(condition, "bool") for condition in conditions))
        return TiledAxis(self._tile, self._runs, when, self._after)

    def full(self, count: Value | int | None = None) -> TileRun:
        """Take full tiles: `count` of them, or as many as fit in the remaining part."""
        return self.fixed(self._tile, count)

    def fixed(self, height: int, count: Value | int | None = None) -> TileRun:
        """Take tiles of `height` instances: `count` of them, or as many as fit in the remaining part."""
        return self._take("fixed", self._int(height), None if count is None else _node(count))

    def single(self, height: Value | int) -> TileRun:
        """Take one tile of `height` instances, if that is at least 1."""
        return self._take("single", _node(height), ix.const(1))

    def tail(self) -> TileRun:
        """Take one tile of exactly the remaining iterations, if there are any."""
        return self._take("tail", ix.const(self._tile))

    def masked(self, height: int | None = None) -> TileRun:
        """Take one tile of `height` instances, `tile` by default, if anything remains: lanes past the
        end are switched off.
        """
        return self._take("masked", self._int(self._tile if height is None else height))

    def padded(self, height: int | None = None) -> TileRun:
        """Take one tile as `masked` does, but run the terms past the end, which are neutral."""
        return self._take("padded", self._int(self._tile if height is None else height))

    def shifted(self) -> TileRun:
        """Take a full tile that ends where the axis ends, over instances that ran before; only if anything
        is left, and the extent is at least `tile`.
        """
        return self._take("shifted", ix.const(self._tile))

    def guarded(self) -> TileRun:
        """Take the remaining iterations in tiles of `tile`, whose loops have that extent: a condition in each instance."""
        return self._take("guarded", ix.const(self._tile))

    def balanced(self, multiple: int = 1) -> TileRun:
        """Take the remaining iterations in as few tiles as possible, whose heights differ by at most 1.

        multiple  heights are multiples of it, and differ by at most one: each is code of its own, and of the last tile what lies
                  past the end is left out
        """
        self._int(multiple)
        if multiple > 1:
            if self._tile // multiple > MAX_RUNS // 2:
                raise InvalidStrategy(_TOO_MANY_RUNS)
            return self._take("balanced", ix.const(self._tile), multiple=multiple)
        if self._tile > MAX_BALANCED_HEIGHTS:
            raise InvalidStrategy(
                f"its tiles may have any of {self._tile} heights, each asked by itself, and "
                f"{MAX_BALANCED_HEIGHTS} at most are"
            )
        return self._take("balanced", ix.const(self._tile))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in _RENAMED:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            warn_renamed(f"TiledAxis.{name}", f"TiledAxis.{_RENAMED[name]}")
            return getattr(self, _RENAMED[name])

    def _int(self, height: int) -> Expr:
        whole = isinstance(height, int) and not isinstance(height, bool)
        if not whole or not 1 <= height <= self._tile:
            height_text = _format(height.node) if isinstance(height, Value) else height
            raise InvalidStrategy(
                f"a tile of {height_text} instances is asked for, which is not an int from 1 to {self._tile}"
            )
        return ix.const(height)

    def _take(
        self, kind: TileRunKind, height: Expr, count: Expr | None = None, multiple: int = 1
    ) -> TileRun:
        if len(self._runs) == MAX_RUNS:
            raise InvalidStrategy(_TOO_MANY_RUNS)
        take = TileRun(kind, height, count, self._when, self._after, multiple)
        self._after = len(self._runs)
        self._runs.append(take)
        return take


StrategyFunction: TypeAlias = Callable[..., Iterator[TileRun]]


def run_strategy(function: StrategyFunction, tile: int, arguments: Sequence[int]) -> TileRuns:
    """Run a strategy's function on an axis with tiles of `tile`; return its runs.

    Raises InvalidStrategy for what is no strategy.
    """
    runs: list[TileRun] = []
    axis = TiledAxis(tile, runs)
    try:
        yielded = list(islice(iter(function(axis, *arguments)), MAX_RUNS + 1))
    except (InvalidStrategy, InternalError):
        raise
    except Exception as error:
        message = str(error).partition("\n")[0].replace(EXTENT.name, "extent")
        why = f"its function raises {type(error).__name__}: {message}"
        if isinstance(error, DescribeError) and EXTENT.name in str(error):
            why += "; axis.where(condition) is the axis where that holds"
        raise InvalidStrategy(why) from error
    if len(yielded) > MAX_RUNS:
        raise InvalidStrategy(_TOO_MANY_RUNS)
    numbers = {id(take): number for number, take in enumerate(runs)}
    for one in yielded:
        if id(one) not in numbers:
            raise InvalidStrategy(
                f"it gives {one}, which is not a segment of the axis that it was given"
            )
    return TileRuns(tuple(runs), tuple(numbers[id(take)] for take in yielded))


def _node(value: Value | int, dtype: str = "index") -> Expr:
    """Return an expression in `EXTENT`, or a literal, checked."""
    if isinstance(value, int) and (isinstance(value, bool) == (dtype == "bool")):
        return ix.const(value) if dtype == "index" else ix.compare("==", int(value), 1)
    if not isinstance(value, Value) or value.dtype != dtype or value.sizes or value.tensors:
        kind = "a condition on" if dtype == "bool" else "an int or an expression in"
        value_text = _format(value.node) if isinstance(value, Value) else repr(value)
        raise InvalidStrategy(f"{value_text} is not {kind} axis.extent and axis.remaining")
    if not _is_quasi_affine(value.node):
        raise InvalidStrategy(f"{_format(value.node)} is not quasi-affine: a factor is an int")
    return value.node


def _is_quasi_affine(node: Expr) -> bool:
    """Return whether isl can express a node: no product of two factors that vary."""
    if isinstance(node, Binary) and node.op == "*" and variables(node.a) and variables(node.b):
        return False
    return all(map(_is_quasi_affine, children(node)))


def substitute_extent(extent: Expr, expr: Expr) -> Expr:
    """Substitute this extent in an expression or a condition in `EXTENT`."""
    return ix.fold_indices(substitute(expr, {EXTENT.name: extent}))


def _format(expr: Expr) -> str:
    return format_expr(substitute(expr, {EXTENT.name: Var("extent")}))
