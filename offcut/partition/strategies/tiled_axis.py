"""The axis that a strategy tiles: what its function is given, and what it takes of it.

A strategy is a function of a `TiledAxis`. Each method takes tiles from where the tiles before them
end, and what the function yields is what is run::

    @oc.strategy("halve")
    def halve(axis):
        yield axis.full()                  # as many tiles of axis.tile as fit
        height = axis.tile // 2
        while height:
            yield axis.rest(height)        # as many of this height as fit in what is left
            height //= 2

The function is asked for one tile size at a time, and knows no extent but a symbolic one: what it
takes is data, which a proof reads for all extents, and which travels with a compiled kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, TypeAlias

from offcut.core import index as ix
from offcut.core.expr import Binary, Expr, Var, children, substitute, variables
from offcut.core.text.printer import format_expr
from offcut.describe.value import Value
from offcut.errors import DescribeError, InternalError

EXTENT = Var("#e")  # no user can name a size so
MOST_TAKES = 64  # of an axis, each code of its own
MOST_HEIGHTS = 1024  # that balanced tiles may have, each asked of isl by itself

_TOO_MANY = f"it gives more than {MOST_TAKES} segments, each of them code of its own"

TakeKind: TypeAlias = Literal[
    "rest", "one", "tail", "masked", "padded", "moved_back", "guarded", "balanced"
]


class NotTaken(Exception):
    """Why a function is no strategy, as a clause of a refusal."""


@dataclass(frozen=True, slots=True)
class Take:
    """Tiles that a strategy takes of what is left of an axis.

    kind    the method of `TiledAxis` that gave it, which says what the tiles are
    height  instances of a tile: a literal, or of one tile an expression in `EXTENT`; of a tail, and
            of balanced tiles, the most that there may be
    count   how many; None: as many as fit
    when    conditions on `EXTENT` without which there are none
    after   the number of the take that ends where this one starts; None: it starts at 0
    """

    kind: TakeKind
    height: Expr
    count: Expr | None = None
    when: tuple[Expr, ...] = ()
    after: int | None = None

    def __str__(self) -> str:
        parts = [self.height] if self.kind in ("rest", "one", "masked", "padded") else []
        parts += [self.count] if self.kind == "rest" and self.count is not None else []
        text = f"{self.kind}({', '.join(map(_shown, parts))})"
        return f"where({', '.join(map(_shown, self.when))}).{text}" if self.when else text


@dataclass(frozen=True, slots=True)
class Takes:
    """What a strategy makes of a tile size.

    made   everything that was asked of the axis, in order
    given  what is run: numbers of `made`
    """

    made: tuple[Take, ...]
    given: tuple[int, ...]

    def ends(self, number: int | None, extent: Expr) -> tuple[Expr, Expr]:
        """Where what is left starts after a take, and how much that is."""
        if number is None:
            return ix.const(0), extent
        take = self.made[number]
        start, left = self.ends(take.after, extent)
        if take.kind not in ("rest", "one"):
            return extent, ix.const(0)
        height = at(extent, take.height)
        if take.count is None:
            whole = ix.mul(height, ix.floordiv(left, height))
            rest = ix.mod(left, height)
            return (extent if rest == ix.const(0) else ix.add(start, whole)), rest
        whole = ix.mul(height, at(extent, take.count))
        return ix.add(start, whole), ix.sub(left, whole)

    def __str__(self) -> str:
        return ", ".join(str(self.made[number]) for number in self.given) or "nothing"


class TiledAxis:
    """An axis of any extent that is to be cut into tiles of at most `tile` instances.

    Every method that takes something starts where what was taken before ends.
    """

    def __init__(
        self,
        tile: int,
        made: list[Take] | None = None,
        when: tuple[Expr, ...] = (),
        after: int | None = None,
    ) -> None:
        self._tile, self._when, self._after = tile, when, after
        self._made: list[Take] = [] if made is None else made

    @property
    def tile(self) -> int:
        """The largest tile, in iterations, at least 1."""
        return self._tile

    @property
    def extent(self) -> Value:
        """How many iterations there are: at least 0, and known only when a kernel is called."""
        return Value(EXTENT)

    @property
    def left(self) -> Value:
        """How many of them are not taken yet."""
        return Value(Takes(tuple(self._made), ()).ends(self._after, EXTENT)[1])

    def where(self, *conditions: Value | bool) -> TiledAxis:
        """The same axis from here on, where all of `conditions` hold: comparisons of `extent` or
        `left`. What is taken of it exists there only, and this axis goes on as if it had not been.
        """
        when = (*self._when, *(_node(condition, "bool") for condition in conditions))
        return TiledAxis(self._tile, self._made, when, self._after)

    def full(self, count: Value | int | None = None) -> Take:
        """Full tiles: `count` of them, or as many as fit in what is left."""
        return self.rest(self._tile, count)

    def rest(self, height: int, count: Value | int | None = None) -> Take:
        """Tiles of `height` instances: `count` of them, or as many as fit in what is left."""
        return self._take("rest", self._int(height), None if count is None else _node(count))

    def one(self, height: Value | int) -> Take:
        """One tile of `height` instances, where that is at least 1."""
        return self._take("one", _node(height), ix.const(1))

    def tail(self) -> Take:
        """One tile of exactly what is left, where anything is."""
        return self._take("tail", ix.const(self._tile))

    def masked(self, height: int | None = None) -> Take:
        """One tile of `height` instances, `tile` by default, where anything is left: lanes past the
        end are switched off.
        """
        return self._take("masked", self._int(self._tile if height is None else height))

    def padded(self, height: int | None = None) -> Take:
        """Likewise; terms past the end are run, and are neutral."""
        return self._take("padded", self._int(self._tile if height is None else height))

    def moved_back(self) -> Take:
        """A full tile that ends where the axis ends, over instances that ran before; where anything
        is left, and the extent is at least `tile`.
        """
        return self._take("moved_back", ix.const(self._tile))

    def guarded(self) -> Take:
        """What is left in tiles of `tile`, whose loops have that extent: a condition in each instance."""
        return self._take("guarded", ix.const(self._tile))

    def balanced(self) -> Take:
        """What is left in as few tiles as can be, whose heights differ by at most 1."""
        if self._tile > MOST_HEIGHTS:
            raise NotTaken(
                f"its tiles may have any of {self._tile} heights, each asked by itself, and "
                f"{MOST_HEIGHTS} at most are"
            )
        return self._take("balanced", ix.const(self._tile))

    def _int(self, height: int) -> Expr:
        whole = isinstance(height, int) and not isinstance(height, bool)
        if not whole or not 1 <= height <= self._tile:
            shown = _shown(height.node) if isinstance(height, Value) else height
            raise NotTaken(
                f"a tile of {shown} instances is asked for, which is no int from 1 to {self._tile}"
            )
        return ix.const(height)

    def _take(self, kind: TakeKind, height: Expr, count: Expr | None = None) -> Take:
        if len(self._made) == MOST_TAKES:
            raise NotTaken(_TOO_MANY)
        take = Take(kind, height, count, self._when, self._after)
        self._after = len(self._made)
        self._made.append(take)
        return take


Give: TypeAlias = Callable[..., Iterator[Take]]


def taken(give: Give, tile: int, arguments: Sequence[int]) -> Takes:
    """What a strategy's function takes of an axis in tiles of `tile`.

    Raises NotTaken for what is no strategy.
    """
    made: list[Take] = []
    axis = TiledAxis(tile, made)
    try:
        given = list(islice(iter(give(axis, *arguments)), MOST_TAKES + 1))
    except (NotTaken, InternalError):
        raise
    except Exception as error:
        said = str(error).partition("\n")[0].replace(EXTENT.name, "extent")
        why = f"its function raises {type(error).__name__}: {said}"
        if isinstance(error, DescribeError) and EXTENT.name in str(error):
            why += "; axis.where(condition) is the axis where that holds"
        raise NotTaken(why) from error
    if len(given) > MOST_TAKES:
        raise NotTaken(_TOO_MANY)
    numbers = {id(take): number for number, take in enumerate(made)}
    for one in given:
        if id(one) not in numbers:
            raise NotTaken(f"it gives {one}, which is no segment of the axis that it was given")
    return Takes(tuple(made), tuple(numbers[id(take)] for take in given))


def _node(given: Value | int, dtype: str = "index") -> Expr:
    """An expression in `EXTENT`, or a literal."""
    if isinstance(given, int) and (isinstance(given, bool) == (dtype == "bool")):
        return ix.const(given) if dtype == "index" else ix.compare("==", int(given), 1)
    if not isinstance(given, Value) or given.dtype != dtype or given.sizes or given.tensors:
        kind = "condition on" if dtype == "bool" else "int, and no expression in"
        shown = _shown(given.node) if isinstance(given, Value) else repr(given)
        raise NotTaken(f"{shown} is no {kind} axis.extent and axis.left")
    if not _is_quasi_affine(given.node):
        raise NotTaken(f"{_shown(given.node)} is not quasi-affine: a factor is an int")
    return given.node


def _is_quasi_affine(node: Expr) -> bool:
    """Whether isl takes an expression: no product of two that vary."""
    if isinstance(node, Binary) and node.op == "*" and variables(node.a) and variables(node.b):
        return False
    return all(map(_is_quasi_affine, children(node)))


def at(extent: Expr, given: Expr) -> Expr:
    """An expression or a condition in `EXTENT`, of this extent."""
    return ix.fold_indices(substitute(given, {EXTENT.name: extent}))


def _shown(expr: Expr) -> str:
    return format_expr(substitute(expr, {EXTENT.name: Var("extent")}))
