"""Facts of a program: what statements store and read, the conditions of tiles, loops that touch nothing of each other.

What statements store and read of which arrays, as their text says it.

The conditions of a tile: those that limit an axis, and those that are asked of each instance.

Loops whose iterations touch nothing of each other, found in the text alone.

An iteration keeps to itself where every buffer that the loop writes has an axis along which it has
an interval of its own: with ``y in 8*yo +: 8`` inside, ``C[y, x]`` stays in ``8*yo … 8*yo + 7``.
A window that is allocated inside belongs to its iteration. What is not recognised is not
independent: the interpreter runs such a loop one iteration after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from itertools import chain
from typing import TypeVar

from offcut.core import index as ix
from offcut.core.conditions import conjunction
from offcut.core.dtypes import is_identity
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Var,
    all_loads,
    is_zero,
    loads,
    variables,
)
from offcut.core.expr import walk as walk_expr
from offcut.core.index import add, const, sub, to_linear
from offcut.core.intervals import Ends, ends
from offcut.core.memo import lazy_property, memo, memoize_method
from offcut.core.program import (
    STATUS,
    Alloc,
    Choose,
    For,
    Kind,
    Let,
    Program,
    Stmt,
    Store,
    Tile,
    TileAxis,
    blocks,
    walk,
)
from offcut.core.program import walk as statements
from offcut.core.traversal import expressions


def stored_arrays(body: tuple[Stmt, ...]) -> set[str]:
    """Return the arrays that `body` stores."""
    return {stmt.buffer for stmt in statements(body) if isinstance(stmt, Store)}


def read_arrays(exprs: Iterable[Expr]) -> set[str]:
    """Return the arrays that expressions read."""
    return {load.buffer for load in _loads(exprs)}


def element_accesses(stmt: Stmt) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """Yield the elements that a statement itself stores and reads, not those inside it: an array and an index each."""
    if isinstance(stmt, Store):
        yield stmt.buffer, stmt.index
    for load in _loads(expressions(stmt)):
        yield load.buffer, load.index


def statement_arrays(stmt: Stmt) -> set[str]:
    """Return the arrays that a statement itself stores or reads."""
    read = read_arrays(expressions(stmt))
    return read | {stmt.buffer} if isinstance(stmt, Store) else read


def accessed_arrays(body: tuple[Stmt, ...]) -> set[str]:
    """Return the arrays that `body` stores or reads."""
    return set().union(*map(statement_arrays, statements(body)))


def last_stored(stmt: Stmt) -> str:
    """Return the array that `stmt` stores last; "" if it stores none."""
    return next((s.buffer for s in [*statements((stmt,))][::-1] if isinstance(s, Store)), "")


def indices(body: tuple[Stmt, ...], buffer: str) -> list[tuple[Expr, ...]]:
    """Return the elements of an array that `body` stores and reads."""
    return [
        at for stmt in statements(body) for name, at in element_accesses(stmt) if name == buffer
    ]


def windowed_arrays(body: tuple[Stmt, ...]) -> set[str]:
    """Return the arrays that `body` touches in windows of its own alone."""
    return {
        stmt.buffer for stmt in statements(body) if isinstance(stmt, Alloc)
    } - unwindowed_arrays(body)


def unwindowed_arrays(
    body: tuple[Stmt, ...], outer_windows: frozenset[str] = frozenset()
) -> set[str]:
    """Return the arrays that `body` touches outside of a window of theirs; those `outer_windows` are in one."""
    arrays: set[str] = set()
    for stmt in body:
        inside = outer_windows | {stmt.buffer} if isinstance(stmt, Alloc) else outer_windows
        arrays |= statement_arrays(stmt) - outer_windows
        for block in blocks(stmt):
            arrays |= unwindowed_arrays(block, inside)
    return arrays


def only_reduces(loop: For) -> bool:
    """Return whether a loop does nothing but reduce into elements that do not move with it.

    Each statement has a buffer of its own, which no statement of the loop reads: so what the loop
    carries is the order of these reductions and nothing else.
    """
    stores = [stmt for stmt in loop.body if isinstance(stmt, Store)]
    written = {store.buffer for store in stores}
    read = {
        load.buffer
        for store in stores
        for part in (store.value, *store.index)
        for load, _ in loads(part)
    }
    return (
        0 < len(stores) == len(loop.body) == len(written)
        and not written & read
        and all(store.reduce in ("sum", "max", "min") for store in stores)
        and not any(loop.iter in variables(part) for store in stores for part in store.index)
    )


def _loads(exprs: Iterable[Expr]) -> Iterator[Load]:
    return chain.from_iterable(map(all_loads, exprs))


_Kind = TypeVar("_Kind", bound=Stmt)


class Analysis:
    """The facts of one program, each computed at its first use. `analysis` returns it."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @lazy_property
    def statements(self) -> tuple[Stmt, ...]:
        """Every statement, parents first."""
        return tuple(walk(self.program.body))

    @memoize_method
    def of(self, kind: type[_Kind]) -> tuple[_Kind, ...]:
        """Return the statements of one kind, parents first."""
        return tuple(stmt for stmt in self.statements if isinstance(stmt, kind))

    def has(self, *kinds: type[Stmt]) -> bool:
        """Return whether there is a statement of one of these kinds."""
        return any(map(self.of, kinds))

    @lazy_property
    def iterators(self) -> frozenset[str]:
        """The names of loops; those of the axes of tiles are not among them."""
        return frozenset(loop.iter for loop in self.of(For))

    @lazy_property
    def windows(self) -> frozenset[str]:
        """The buffers that have a window."""
        return frozenset(stmt.buffer for stmt in self.of(Alloc))

    @lazy_property
    def stored_buffers(self) -> frozenset[str]:
        """The buffers that are stored to."""
        return frozenset(stmt.buffer for stmt in self.of(Store))

    @lazy_property
    def status_buffers(self) -> frozenset[str]:
        """The buffers that say whether some access would have left an array: whoever says so says the same."""
        return frozenset(b.name for b in self.program.buffers if b.scope == STATUS)

    @lazy_property
    def zero_sums(self) -> frozenset[str]:
        """The buffers that begin as 0 and are only added to: no element of them is -0.0, so adding a zero of either sign changes nothing."""
        initialized = {stmt.buffer for stmt in self.of(Store) if stmt.reduce is None}
        others = {buffer.name for buffer in self.program.buffers if buffer.kind is Kind.INOUT}
        for stmt in self.of(Store):
            if not (is_zero(stmt.value) if stmt.reduce is None else stmt.reduce == "sum"):
                others.add(stmt.buffer)
        return frozenset(initialized - others)

    def adds_nothing(self, store: Store, value: Expr) -> bool:
        """Return whether updating an element with a literal changes nothing: with a neutral one, or with a zero in one of `zero_sums`."""
        if store.reduce is None or not isinstance(value, Const):
            return False
        is_sum = store.reduce == "sum" and store.buffer in self.zero_sums
        return is_identity(store.reduce, value.value, value.dtype) or (is_sum and value.value == 0)


class _Identity:
    """A program as a key, compared by identity: hashing a program visits all of it."""

    __slots__ = ("program",)

    def __init__(self, program: Program) -> None:
        self.program = program

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.program is other.program

    def __hash__(self) -> int:
        return id(self.program)


def analysis(program: Program) -> Analysis:
    """Return the facts of `program`: one object for it until `memo.forget` is called."""
    return _analysis(_Identity(program))


@memo(64)
def _analysis(key: _Identity) -> Analysis:
    return Analysis(key.program)


def limits(tile: Tile, axis: str) -> Iterator[Expr]:
    """Yield the `hi` of every condition ``axis < hi`` of a tile, equal for all its instances."""
    for condition in _conditions(tile.where):
        if isinstance(condition, Compare) and _limit(tile, condition) == axis:
            yield condition.b


def residual_conditions(tile: Tile) -> tuple[Expr, ...]:
    """Return the conditions of a tile that are no `limits` of an axis."""
    return tuple(c for c in _conditions(tile.where) if _limit(tile, c) is None)


def normalize_start(tile: Tile) -> Tile:
    """`tile` starting at the least instance that its conditions allow: a condition ``axis >= lo`` is a start."""
    floors: dict[str, list[Expr]] = {}
    left: list[Expr] = []
    for condition in _conditions(tile.where):
        match condition:
            case Compare(">=", Var(name), lo) if _limit(tile, replace(condition, op="<")):
                floors.setdefault(name, []).append(lo)
            case _:
                left.append(condition)
    if not floors:
        return tile
    axes: list[TileAxis] = []
    for axis in tile.axes:
        if axis.iter in floors:
            left.append(Compare("<", Var(axis.iter), ix.add(axis.start, axis.extent)))
            axis = replace(axis, start=reduce(ix.maximum, floors[axis.iter], axis.start))
        axes.append(axis)
    return replace(tile, axes=tuple(axes), where=conjunction(left))


def at_most(extent: Expr) -> int | None:
    """Return a literal that an index expression does not exceed, as its form shows; None where it shows none."""
    form = ix.to_linear(extent)
    if not form.terms:
        return form.const
    bounds = []
    for atom, factor in form.terms:
        match atom, factor:
            case (Binary("min", a, b), 1) | (Binary("max", a, b), -1):
                rest = ix.sub(extent, atom) if factor == 1 else ix.add(extent, atom)
                for side in (a, b):
                    bounds.append(
                        at_most(ix.add(rest, side) if factor == 1 else ix.sub(rest, side))
                    )
            case (Binary("%", _, Const(by, _)), _) if factor > 0:
                most = ix.sub(int(by) - 1, atom)
                bounds.append(at_most(ix.add(extent, ix.mul(factor, most))))
    return min((value for value in bounds if value is not None), default=None)


def _limit(tile: Tile, condition: Expr) -> str | None:
    axes = {axis.iter for axis in tile.axes}
    match condition:
        case Compare("<", Var(name), hi) if name in axes and not variables(hi) & axes:
            plain = not any(isinstance(node, Load) for node in walk_expr(hi))
            return name if plain else None
    return None


def _conditions(where: Expr | None) -> Iterator[Expr]:
    match where:
        case None:
            return
        case Logic("and", args):
            for arg in args:
                yield from _conditions(arg)
        case _:
            yield where


# None: an iterator of which no more is known than that it is one
_Ranges = Mapping[str, Ends | None]


def is_independent(loop: For, kinds: Mapping[str, Kind]) -> bool:
    """Return whether the iterations of `loop` may run in any order, or together.

    kinds  of the buffers, by name
    """
    inside = list(walk(loop.body))
    if any(isinstance(stmt, Choose) for stmt in inside):
        return False
    written = {stmt.buffer for stmt in inside if isinstance(stmt, Store)}
    if any(kinds.get(name) is Kind.PRIVATE for name in written) and _has_tiles(inside):
        return False  # a tile has copies of it
    shared = written - windowed_arrays(loop.body)
    index_ends: dict[str, list[tuple[Ends | None, ...]]] = {name: [] for name in shared}
    for name, index, ranges in _accesses(loop.body, {}):
        if name in index_ends:
            index_ends[name].append(tuple(ends(part, ranges) for part in index))
    return all(_apart(accesses, loop.iter) for accesses in index_ends.values())


def _has_tiles(inside: list[Stmt]) -> bool:
    return any(isinstance(stmt, Tile) for stmt in inside)


def _apart(accesses: list[tuple[Ends | None, ...]], name: str) -> bool:
    return any(_separates(list(axis), name) for axis in zip(*accesses, strict=True))


def _separates(axis: list[Ends | None], name: str) -> bool:
    """Return whether these indices are all in an interval that moves by more than its length."""
    known = [end for both in axis if both is not None for end in both]
    if len(known) < 2 * len(axis):
        return False
    lengths = [to_linear(sub(end, known[0])) for end in known]
    steps = dict(to_linear(known[0]).terms)
    if any(one.terms for one in lengths) or any(
        name in variables(a) for a in steps if a != Var(name)
    ):
        return False
    offsets = [one.const for one in lengths]
    return max(offsets) - min(offsets) < abs(steps.get(Var(name), 0))


def _accesses(
    body: tuple[Stmt, ...], ranges: _Ranges
) -> Iterator[tuple[str, tuple[Expr, ...], _Ranges]]:
    for stmt in body:
        inside = _inside(stmt, ranges)
        yield from ((name, index, inside) for name, index in element_accesses(stmt))
        for block in blocks(stmt):
            yield from _accesses(block, inside)


def _inside(stmt: Stmt, ranges: _Ranges) -> _Ranges:
    match stmt:
        case For(name, lo, hi):
            return {**ranges, name: _range_of_count(lo, at_most(sub(hi, lo)), ranges)}
        case Tile(axes):
            counted = {a.iter: _range_of_count(a.start, at_most(a.extent), ranges) for a in axes}
            return {**ranges, **counted}
        case Let(name, low, high):
            return {**ranges, name: (const(low), const(high - 1))}
        case _:
            return ranges


def _range_of_count(start: Expr, count: int | None, ranges: _Ranges) -> Ends | None:
    """Return the ends of an iterator that takes at most `count` values from `start`."""
    begin = ends(start, ranges)
    if begin is None or count is None:
        return None
    return begin[0], add(begin[1], max(0, count - 1))
