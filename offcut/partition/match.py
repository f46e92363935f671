"""Matching a statement against a microkernel by its accesses, never by its name.

The value of one instance must be the microkernel's, node by node (products and sums commute), and
each operand must move along exactly the axes along which the microkernel's operand moves::

    kernel  C[m, n] += A[m, k] * B[k, n]        stage  Y[b, i, j] += X[b, j, r] * V[r, i, b]
    m -> i, n -> j, k -> r;  A = V, B = X        (b is an outer loop)

An axis of the microkernel may be missing from the stage (extent 1: a matrix–vector product), never
the other way round along the axes that are mapped. A microkernel without a reduction matches what is
computed instance by instance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from offcut.core import index as ix
from offcut.core.expr import Binary, Cast, Const, Expr, Load, Reduce, Var, variables
from offcut.core.program import For, Stmt, Store
from offcut.describe.computation import Stage
from offcut.describe.microkernel import Microkernel
from offcut.partition.cutting import Cover
from offcut.polyhedral import coefficient


@dataclass(frozen=True, slots=True)
class Match:
    """A microkernel laid over a stage.

    rows, columns  axes of the stage; None: the stage has no such axis (one row, one column)
    depth          the reduction axis that runs inside the microkernel; "": it has none
    operands       what the stage reads for each operand of the microkernel, by its name
    """

    microkernel: Microkernel
    rows: str | None
    columns: str | None
    depth: str
    operands: tuple[tuple[str, Load], ...]

    def operand(self, name: str) -> Load:
        """What the stage reads for the microkernel's operand `name`."""
        return dict(self.operands)[name]

    @property
    def by_rows(self) -> Load:
        """What the stage reads for the operand that moves along the microkernel's rows."""
        return self.operand(self.microkernel.operand_along(self.microkernel.rows))

    @property
    def by_columns(self) -> Load:
        """What the stage reads for the operand that moves along the microkernel's columns."""
        return self.operand(self.microkernel.operand_along(self.microkernel.columns))

    def turned(self, lead: Stage) -> tuple[str, ...]:
        """The axes of a sum, of known extents, that run inside of the microkernel's functions around its depth."""
        others = [axis for axis in lead.reduce_axes if axis.name != self.depth]
        inside: list[str] = []
        for axis in others[::-1][: self.microkernel.turns]:
            if not ix.literal(axis.extent):
                break
            inside.insert(0, axis.name)
        return tuple(inside)


def matches(
    microkernel: Microkernel,
    value: Expr,
    reducer: str | None,
    axes: Sequence[str],
    reduce_axes: Sequence[str],
) -> Iterator[Match]:
    """Every way to lay `microkernel` over ``C[axes] reducer= value``, the preferred ones first.

    Preferred: columns on the innermost axis, rows on the next that fits, depth on the innermost
    reduction axis.
    """
    definition = microkernel.computes.definition
    assert definition is not None
    kernel, summed = definition.body, microkernel.depth
    term, op = (kernel.value, kernel.op) if isinstance(kernel, Reduce) else (kernel, None)
    if op != reducer:
        return
    pairings = list(_unify(term, value))
    for rows, columns in _choices(axes):
        for depth in reversed(reduce_axes) if summed else ("",):
            mapping = {microkernel.rows: rows, microkernel.columns: columns}
            if summed:
                mapping[summed] = depth
            for operands in pairings:
                if all(_moves_alike(mine, theirs, mapping) for mine, theirs in operands):
                    named = tuple((mine.buffer, theirs) for mine, theirs in operands)
                    yield Match(microkernel, rows, columns, depth, named)


def _choices(axes: Sequence[str]) -> Iterator[tuple[str | None, str | None]]:
    inner = list(reversed(axes))
    for columns in inner[:1]:
        yield from ((rows, columns) for rows in inner[1:])
        yield None, columns
    yield from ((rows, columns) for columns, rows in permutations(inner, 2))
    yield from ((rows, None) for rows in inner)
    yield None, None


def _unify(mine: Expr, theirs: Expr) -> Iterator[tuple[tuple[Load, Load], ...]]:
    """Every pairing of the loads of two expressions of one shape."""
    if isinstance(mine, Load) and isinstance(theirs, Load) and mine.dtype == theirs.dtype:
        yield ((mine, theirs),)
    if isinstance(mine, Const) and mine == theirs:
        yield ()
    if isinstance(mine, Cast) and isinstance(theirs, Cast) and mine.dtype == theirs.dtype:
        yield from _unify(mine.a, theirs.a)
    if isinstance(mine, Binary) and isinstance(theirs, Binary) and mine.op == theirs.op:
        orders = [(theirs.a, theirs.b)]
        if mine.op in ("+", "*"):
            orders.append((theirs.b, theirs.a))
        for a, b in orders:
            for left in _unify(mine.a, a):
                yield from (left + right for right in _unify(mine.b, b))


def _moves_alike(mine: Load, theirs: Load, mapping: dict[str, str | None]) -> bool:
    """Whether their element moves along the image of exactly the axes that mine moves along."""
    for kernel_axis, stage_axis in mapping.items():
        if stage_axis is None:
            continue
        steps = [coefficient(part, stage_axis) for part in theirs.index]
        if None in steps:
            return False
        moves = any(coefficient(part, kernel_axis) for part in mine.index)
        if moves != any(steps):
            return False
    return True


def covering(microkernels: Sequence[Microkernel]) -> Cover:
    """By which of `microkernels` a tile is covered: one that computes the sum in it, or all that is
    in it; one that holds it in the preferred way before one that takes it in pieces.
    """

    def covers(
        store: Store,
        inner: Sequence[For],
        heights: Mapping[str, tuple[int, int]],
        masked: frozenset[str],
    ) -> list[Microkernel]:
        terms = {loop.iter: ix.sub(loop.hi, loop.lo) for loop in inner}
        of = store.value, store.reduce, list(heights), list(terms)
        ways = [list(matches(kernel, *of)) for kernel in microkernels]
        preferred = [found for way in ways for found in way[:1]]
        others = [found for way in ways for found in way[1:]]
        every = (*preferred, *others)
        return [found.microkernel for found in every if cover(found, heights, masked, terms)]

    def covered(
        body: Sequence[Stmt], heights: Mapping[str, tuple[int, int]], masked: frozenset[str]
    ) -> str | None:
        found = _updates(body, (), frozenset(heights))
        match body:
            case [Store(reduce=None) as only]:
                found.append((only, ()))
            case _:
                pass
        for one in found:
            for kernel in covers(*one, heights, masked):
                whole = kernel.at_once > 1  # then it computes all of the sum, or nothing of it
                if not whole or all(kernel in covers(*o, heights, masked) for o in found):
                    return kernel.name
        return None

    return covered


def _updates(
    body: Sequence[Stmt], loops_around: tuple[For, ...], axes: frozenset[str]
) -> list[tuple[Store, tuple[For, ...]]]:
    """Every reduction in `body` that is as long for all instances, with the loops around it."""
    found: list[tuple[Store, tuple[For, ...]]] = []
    for stmt in body:
        match stmt:
            case Store() if stmt.reduce is not None:
                found.append((stmt, loops_around))
            case For(_, lo, hi, inner) if not axes & (variables(lo) | variables(hi)):
                found += _updates(inner, (*loops_around, stmt), axes)
            case _:
                pass
    return found


def cover(
    found: Match,
    heights: Mapping[str, tuple[int, int]],
    masked: frozenset[str],
    terms: Mapping[str, Expr],
) -> str | None:
    """The microkernel's name where one of its tiles holds every tile of these heights, and it has a
    predicate on every axis with lanes that are off.

    heights   least and most instances along each axis of the tile
    terms     of the loops of its sum, by iterator: an instruction takes so many, and no fewer
    """
    if found.columns not in (None, *heights):
        return None
    axes = {found.rows: found.microkernel.rows, found.columns: found.microkernel.columns}
    if any(axes.get(axis) not in (None, *found.microkernel.predicates) for axis in masked):
        return None
    low, high = heights.get(found.rows, (1, 1)) if found.rows is not None else (1, 1)
    kernel = found.microkernel
    if not _is_whole(found, heights, terms):
        return None
    columns = heights[found.columns][1] if found.columns is not None else 1
    fits = high <= kernel.max_rows and all(
        kernel.any_columns or kernel.columns_for(rows) >= columns
        for rows in range(max(low, 1), high + 1)
    )
    return kernel.name if fits else None


def _is_whole(
    found: Match, heights: Mapping[str, tuple[int, int]], terms: Mapping[str, Expr]
) -> bool:
    """Whether a tile has all columns that a microkernel takes, and its sum as many terms at once as
    it takes, where it has no predicate along them.
    """
    kernel = found.microkernel
    if kernel.columns not in kernel.predicates:
        low, high = heights.get(found.columns or "", (1, 1))
        if low != high or high not in {tile.columns for tile in kernel.tiles}:
            return False
    if kernel.at_once == 1:
        return True
    length = ix.literal(terms.get(found.depth, Var(found.depth)))
    return length is not None and length % kernel.at_once == 0
