"""A loop program read back into sets: which instances run, in which tile, at what time.

This knows nothing of how a program was cut. It walks the statements, collects what encloses each
store, and gives the relation from statement instances to time. A `Let` is a finite union over the
literals of its range, which is how a program with heights ``n // ceil(n / 14)`` is quasi-affine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import islpy as isl

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Select, substitute
from offcut.core.printer import format_expr
from offcut.core.program import Choose, For, Form, If, Let, Stmt, Store, Tile
from offcut.errors import PartitionError
from offcut.polyhedral.affine import Map, Space


@dataclass(frozen=True, slots=True)
class Run:
    """A store of the program, and the instances that reach it.

    times   ``instance -> time``, the executed instances; a tile's own axes take no time
    owned   the instances whose result is kept: those of a padded tile that are in the domain
    outer   how many leading entries of a time say which tile it is
    case    the literals of the bounded values around it
    """

    store: Store
    tile: Tile | None
    times: isl.Map
    owned: isl.Set
    outer: int
    case: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class _Scope:
    conditions: tuple[str, ...] = ()
    owned: tuple[str, ...] = ()
    time: tuple[str, ...] = ()
    names: tuple[tuple[str, str], ...] = ()
    values: tuple[tuple[str, int], ...] = ()
    tile: Tile | None = None
    outer: int = 0


def runs(
    space: Space, body: Sequence[Stmt], axes_of: Callable[[Store], Sequence[str]], depth: int
) -> list[Run]:
    """Every store of `body` with its instances, as sets over the coordinates that `axes_of` names.

    depth   length of the time vectors, at least twice the nesting depth plus one; padded with 0

    Raises PartitionError for a bound or a condition that is not quasi-affine.
    """
    return list(_Reader(space, axes_of, depth).block(body, _Scope()))


class _Reader:
    def __init__(self, space: Space, axes_of: Callable[[Store], Sequence[str]], depth: int) -> None:
        self.space, self.axes_of, self.depth = space, axes_of, depth

    def block(self, body: Sequence[Stmt], scope: _Scope) -> Iterator[Run]:
        for position, stmt in enumerate(body):
            yield from self.statement(stmt, replace(scope, time=(*scope.time, str(position))))

    def statement(self, stmt: Stmt, scope: _Scope) -> Iterator[Run]:
        match stmt:
            case For(name, lo, hi, body, _):
                inner = self.bind(scope, name)
                x = inner.names[-1][1]
                bounds = f"{self.text(lo, scope)} <= {x} < {self.text(hi, scope)}"
                conditions = (*inner.conditions, bounds)
                inner = replace(inner, conditions=conditions, time=(*scope.time, x))
                yield from self.block(body, inner)
            case If(condition, then, other):
                text = self.condition(condition, scope)
                yield from self.block(then, self.where(scope, text, 0))
                yield from self.block(other, self.where(scope, f"not ({text})", 1))
            case Let(name, lo, hi, value, body):
                for literal in range(lo, hi):
                    inner = replace(scope, values=(*scope.values, (name, literal)))
                    conditions = (*scope.conditions, self.equals(value, literal, inner))
                    yield from self.block(body, replace(inner, conditions=conditions))
            case Tile(axes, body, where, form, _, _):
                inner = scope
                for axis in axes:
                    inner = self.bind(inner, axis.iter)
                    x = inner.names[-1][1]
                    start, extent = self.text(axis.start, scope), self.text(axis.extent, scope)
                    bounds = f"{start} <= {x} < {start} + {extent}"
                    inner = replace(inner, conditions=(*inner.conditions, bounds))
                if where is not None:
                    text = self.condition(where, inner)
                    if form is not Form.PAD:
                        inner = replace(inner, conditions=(*inner.conditions, text))
                    inner = replace(inner, owned=(*inner.owned, text))
                yield from self.block(body, replace(inner, tile=stmt, outer=len(scope.time)))
            case Store(_, _, Select(inside, _, Const()), reduce) if reduce is not None:
                # A term masked to a literal: only where the condition holds is it the term.
                text = self.condition(inside, scope)
                yield self.run(stmt, replace(scope, owned=(*scope.owned, text)))
            case Store():
                yield self.run(stmt, scope)
            case Choose(options):
                for position, option in enumerate(options):
                    yield from self.block(
                        option.body, replace(scope, time=(*scope.time, str(position)))
                    )
            case _:
                assert_never(stmt)

    def bind(self, scope: _Scope, name: str) -> _Scope:
        return replace(scope, names=(*scope.names, (name, f"v{len(scope.names)}")))

    def where(self, scope: _Scope, text: str, position: int) -> _Scope:
        time = (*scope.time, str(position))
        return replace(scope, conditions=(*scope.conditions, text), time=time)

    def text(self, expr: Expr, scope: _Scope) -> str:
        names, closed = dict(scope.names), self.closed(expr, scope)
        text = self.space.expr(closed, names)
        if text is None:
            raise _not_affine(closed)
        return text

    def condition(self, expr: Expr, scope: _Scope) -> str:
        names, closed = dict(scope.names), self.closed(expr, scope)
        text = self.space.condition(closed, names)
        if text is None:
            raise _not_affine(closed)
        return text

    def closed(self, expr: Expr, scope: _Scope) -> Expr:
        values: dict[str, Expr] = {name: ix.const(value) for name, value in scope.values}
        return ix.simplify(substitute(expr, values)) if values else expr

    def equals(self, value: Expr, literal: int, scope: _Scope) -> str:
        """``value == literal``, where `value` may divide by an expression that is positive."""
        value = self.closed(value, scope)
        if isinstance(value, Binary) and value.op == "//" and not isinstance(value.b, Const):
            a, b = self.text(value.a, scope), self.text(value.b, scope)
            return f"{literal}*({b}) <= ({a}) < {literal + 1}*({b})"
        return f"({self.text(value, scope)}) = {literal}"

    def run(self, store: Store, scope: _Scope) -> Run:
        bound = dict(scope.names)
        coordinates = [bound[axis] for axis in self.axes_of(store)]
        others = [v for _, v in scope.names if v not in coordinates]
        time = [*scope.time, *("0" for _ in range(self.depth - len(scope.time)))]
        head = f"{self.space.parameters}{{ [{', '.join(coordinates)}]"
        facts = " and ".join([self.space.facts, *scope.conditions])
        exists = f"exists {', '.join(others)} : " if others else ""
        time_names = [f"w{k}" for k in range(len(time))]
        equal = " and ".join(f"{w} = {t}" for w, t in zip(time_names, time, strict=True))
        times = Map(f"{head} -> [{', '.join(time_names)}] : {exists}{facts} and {equal} }}")
        kept = " and ".join([facts, *scope.owned])
        owned = isl.Set(f"{head} : {exists}{kept} }}")
        return Run(store, scope.tile, times, owned, scope.outer, scope.values)


def _not_affine(expr: Expr) -> PartitionError:
    return PartitionError(
        "prove",
        f"cannot read {format_expr(expr)} as a set",
        because="it is not quasi-affine: isl decides sums, integer multiples, and // and % "
        "by positive constants",
    )


def project_last(
    times: isl.Map, points_left: int | None = None, times_left: int | None = None
) -> isl.Map:
    """`times` without the last coordinates, or without the last entries of time."""
    if points_left is not None:
        n = times.dim(isl.dim_type.in_) - points_left
        return times.project_out(isl.dim_type.in_, points_left, n)
    assert times_left is not None
    return times.project_out(
        isl.dim_type.out, times_left, times.dim(isl.dim_type.out) - times_left
    )
