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
from offcut.core.conditions import conjuncts
from offcut.core.expr import Binary, Compare, Const, Expr, Logic, Var, substitute
from offcut.core.printer import format_expr, format_stmt
from offcut.core.program import Alloc, Choose, For, Form, If, Let, Stmt, Store, Tile, blocks
from offcut.errors import PartitionError
from offcut.polyhedral.affine import Map, Space
from offcut.polyhedral.around import Around, in_range


@dataclass(frozen=True, slots=True)
class Run:
    """A store of the program, and the instances that reach it.

    times   ``instance -> time``, the executed instances; a tile's own axes take no time
    owned   the instances whose result is kept: those of a padded tile that are in the domain
    outer   how many leading entries of a time say which tile it is
    case    the bounded values around it, each with its literal
    place   where in the text it stands: the entries of its time, names for loops
    """

    store: Store
    tile: Tile | None
    times: isl.Map
    owned: isl.Set
    outer: int
    case: tuple[tuple[Expr, int], ...]
    place: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unbounded:
    """Sizes at which a bounded value leaves its range, or divides by what is not positive.

    open   whether a condition around it is no set, and may keep it from that
    """

    let: Let
    sizes: isl.Set
    open: bool


@dataclass(frozen=True)
class _Scope:
    conditions: tuple[str, ...] = ()
    owned: tuple[str, ...] = ()
    time: tuple[str, ...] = ()
    names: tuple[tuple[str, str], ...] = ()
    values: tuple[tuple[str, int], ...] = ()
    case: tuple[tuple[Expr, int], ...] = ()
    tile: Tile | None = None
    outer: int = 0
    open: bool = False


def runs(
    space: Space,
    body: Sequence[Stmt],
    axes_of: Callable[[Store], Sequence[str]],
    depth: int,
    kept_where: Callable[[Store], Sequence[Expr]] = lambda _: (),
) -> list[Run]:
    """Every store of `body` with its instances, as sets over the coordinates that `axes_of` names.

    depth       length of the time vectors, at least twice the nesting depth plus one; padded with 0
    kept_where  conditions under which an instance is more than padding

    Raises PartitionError for a bound or a condition that is not quasi-affine.
    """
    return list(_Reader(space, axes_of, depth, kept_where).block(body, _Scope()))


def unbounded(space: Space, body: Sequence[Stmt]) -> list[Unbounded]:
    """Every `Let` of `body` whose value can leave its range, where the statement is reached.

    Raises PartitionError for a value that is not quasi-affine.
    """
    if _all_in_range(body, Around(space)):
        return []
    reader = _Reader(space, lambda _: (), 0, lambda _: ())
    return [broken for broken in reader.lets(body, _Scope()) if not broken.sizes.is_empty()]


def _all_in_range(body: Sequence[Stmt], at: Around) -> bool:
    """Whether all bounded values are seen to be in their ranges by what is around them."""
    return all(_in_range(stmt, at) for stmt in body)


def _in_range(stmt: Stmt, at: Around) -> bool:
    match stmt:
        case Let():
            return all(map(at.shows, in_range(stmt))) and _all_in_range(stmt.body, at.inside(stmt))
        case For():
            return _all_in_range(stmt.body, at.loop(stmt))
        case Tile():
            inner = at.loop(stmt)
            if stmt.where is not None and stmt.form is not Form.PAD:
                inner = inner.where(stmt.where)
            return _all_in_range(stmt.body, inner)
        case If(condition, then, other):
            fails = at.where(condition, holds=False)
            return _all_in_range(then, at.where(condition)) and _all_in_range(other, fails)
        case _:
            return all(_all_in_range(inside, at) for inside in blocks(stmt))


def where_equal(space: Space, value: Expr, literal: int) -> isl.Set:
    """The sizes at which a bounded value is `literal`."""
    text = _Reader(space, lambda _: (), 0, lambda _: ()).equals(value, literal, _Scope())
    return space.set((), [text]).params()


class _Reader:
    def __init__(
        self,
        space: Space,
        axes_of: Callable[[Store], Sequence[str]],
        depth: int,
        kept_where: Callable[[Store], Sequence[Expr]],
    ) -> None:
        self.space, self.axes_of, self.depth = space, axes_of, depth
        self.kept_where = kept_where

    def lets(self, body: Sequence[Stmt], scope: _Scope) -> Iterator[Unbounded]:
        for stmt in body:
            match stmt:
                case For(name, lo, hi, inner):
                    yield from self.lets(inner, self.over(scope, (name, lo, hi)))
                case Tile(axes, inner, where, form):
                    bounds = ((a.iter, a.start, ix.add(a.start, a.extent)) for a in axes)
                    within = self.over(scope, *bounds)
                    if where is not None and form is not Form.PAD:
                        within = self.given(within, where)
                    yield from self.lets(inner, within)
                case Alloc():
                    yield from self.lets(stmt.body, scope)
                case If(condition, then, other):
                    yield from self.lets(then, self.given(scope, condition))
                    yield from self.lets(other, self.given(scope, Logic("not", (condition,))))
                case Choose(options):
                    for option in options:
                        yield from self.lets(option.body, scope)
                case Let(_, lo, hi, value, inner):
                    facts = [
                        self.space.facts,
                        *scope.conditions,
                        self.outside(value, lo, hi, scope),
                    ]
                    loops = ", ".join(v for _, v in scope.names)
                    exists = f"exists {loops} : " if loops else ""
                    head = f"{self.space.parameters}{{ [] : {exists}"
                    sizes = isl.Set(f"{head}{' and '.join(facts)} }}")
                    yield Unbounded(stmt, sizes, scope.open)
                    for literal in range(lo, hi):
                        now = replace(scope, values=(*scope.values, (stmt.name, literal)))
                        fixed = (*scope.conditions, self.equals(value, literal, now))
                        yield from self.lets(inner, replace(now, conditions=fixed))
                case Store():
                    pass

    def over(self, scope: _Scope, *bounds: tuple[str, Expr, Expr]) -> _Scope:
        """Inside loops with these bounds."""
        for name, lo, hi in bounds:
            within = self.bind(scope, name)
            inside = Compare("<=", lo, Var(name)), Compare("<", Var(name), hi)
            scope = self.given(within, *inside)
        return scope

    def given(self, scope: _Scope, *conditions: Expr) -> _Scope:
        """Where all of `conditions` hold; one that is no set is left out, and makes it `open`."""
        names = dict(scope.names)
        for part in (part for condition in conditions for part in conjuncts(condition)):
            text = self.space.condition(self.closed(part, scope), names)
            kept = scope.conditions if text is None else (*scope.conditions, text)
            scope = replace(scope, conditions=kept, open=scope.open or text is None)
        return scope

    def outside(self, value: Expr, lo: int, hi: int, scope: _Scope) -> str:
        """``value < lo or value >= hi``, or its divisor is not positive."""
        value = self.closed(value, scope)
        if isinstance(value, Binary) and value.op == "//" and not isinstance(value.b, Const):
            a, b = self.text(value.a, scope), self.text(value.b, scope)
            return f"({b} <= 0 or {a} < {lo}*({b}) or {a} >= {hi}*({b}))"
        text = self.text(value, scope)
        return f"({text} < {lo} or {text} >= {hi})"

    def block(self, body: Sequence[Stmt], scope: _Scope) -> Iterator[Run]:
        for position, stmt in enumerate(body):
            yield from self.statement(stmt, replace(scope, time=(*scope.time, str(position))))

    def statement(self, stmt: Stmt, scope: _Scope) -> Iterator[Run]:
        match stmt:
            case For():
                yield from self.block(stmt.body, self.inside(stmt, scope))
            case If(condition, then, other):
                text, known = self.condition(condition, scope), self.decided(condition, scope)
                if known is not False:
                    yield from self.block(then, self.where(scope, text, 0))
                if known is not True:
                    yield from self.block(other, self.where(scope, f"not ({text})", 1))
            case Let(name, lo, hi, value, body):
                for literal in range(lo, hi):
                    fixed = self.equals(value, literal, scope)
                    inner = replace(
                        scope,
                        values=(*scope.values, (name, literal)),
                        case=(*scope.case, (self.closed(value, scope), literal)),
                        conditions=(*scope.conditions, fixed),
                    )
                    yield from self.block(body, inner)
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
            case Alloc(_, _, body):
                yield from self.block(body, scope)
            case Store():
                kept = [self.condition(inside, scope) for inside in self.kept_where(stmt)]
                yield self.run(stmt, replace(scope, owned=(*scope.owned, *kept)))
            case Choose(options):
                for position, option in enumerate(options):
                    yield from self.block(
                        option.body, replace(scope, time=(*scope.time, str(position)))
                    )
            case _:
                assert_never(stmt)

    def inside(self, loop: For, scope: _Scope) -> _Scope:
        inner = self.bind(scope, loop.iter)
        x = inner.names[-1][1]
        bounds = f"{self.text(loop.lo, scope)} <= {x} < {self.text(loop.hi, scope)}"
        return replace(inner, conditions=(*inner.conditions, bounds), time=(*scope.time, x))

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

    def decided(self, condition: Expr, scope: _Scope) -> bool | None:
        """Whether a comparison holds once the bounded values are fixed; None where sizes decide."""
        closed = self.closed(condition, scope)
        if isinstance(closed, Compare):
            closed = ix.compare(closed.op, closed.a, closed.b)
        return bool(closed.value) if isinstance(closed, Const) else None

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
        free = [axis for axis in self.axes_of(store) if axis not in bound]
        if free:
            raise PartitionError(
                "prove",
                f"cannot tell the instances of {format_stmt(store)}",
                because=f"no loop around it is over {', '.join(free)}",
            )
        coordinates = [bound[axis] for axis in self.axes_of(store)]
        time = [*scope.time, *("0" for _ in range(self.depth - len(scope.time)))]
        head = f"{self.space.parameters}{{ [{', '.join(coordinates)}] -> [{', '.join(time)}]"
        facts = [self.space.facts, *scope.conditions]
        times = Map(f"{head} : {' and '.join(facts)} }}")
        owned = times
        if scope.owned:
            owned = Map(f"{head} : {' and '.join([*facts, *scope.owned])} }}")
        return Run(store, scope.tile, times, owned.domain(), scope.outer, scope.case, scope.time)


def _not_affine(expr: Expr) -> PartitionError:
    return PartitionError(
        "prove",
        f"cannot read {format_expr(expr)} as a set",
        because="it is not quasi-affine: isl decides sums, integer multiples, and // and % "
        "by positive constants",
    )


def over_points(times: isl.Map, points: int) -> isl.Map:
    """`times` by the first coordinates of an instance, the others left out."""
    return times.project_out(isl.dim_type.in_, points, times.dim(isl.dim_type.in_) - points)


def up_to(times: isl.Map, entries: int) -> isl.Map:
    """`times` with the first entries only."""
    return times.project_out(isl.dim_type.out, entries, times.dim(isl.dim_type.out) - entries)


def over_sizes(points: isl.Set, sizes: int) -> isl.Set:
    """`points` by the first sizes, whatever the others are."""
    more = points.dim(isl.dim_type.param) - sizes
    return points.project_out(isl.dim_type.param, sizes, more)
