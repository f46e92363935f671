"""Represent accesses of statements as intervals along each axis of a buffer, to show that two are disjoint.

The ends of an interval are polynomials in what is fixed outside of the statements: sizes, iterators
of the loops around, values of `Let`, and quotients of these. So ``h*t … h*t + h - 1`` is an interval
that moves by its own length with t, whatever h is: tiles of equal height lie side by side, which
sets cannot say. What the form of an index does not show is not known, and nothing is said of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from offcut.core import index as ix
from offcut.core.analysis import analysis
from offcut.core.expr import Binary, Expr, Load, Var, substitute, variables, walk
from offcut.core.polynomial import Polynomial, constant, polynomial, variable
from offcut.core.program import Alloc, Choose, For, If, Let, Program, Stmt, Store, Tile
from offcut.core.text.printer import format_expr
from offcut.core.traversal import expressions


@dataclass(frozen=True, slots=True)
class Access:
    """The elements of a buffer that statements access.

    axes   the first and the last index along each axis; None where they are not known
    """

    buffer: str
    writes: bool
    axes: tuple[tuple[Polynomial, Polynomial] | None, ...]


@dataclass(frozen=True)
class Footprints:
    """The intervals of the accesses in `program`.

    buffers  the buffers that are looked at
    least    lower bounds of names that are never negative
    """

    program: Program
    buffers: frozenset[str]
    least: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.least.update({size.name: max(size.min, 0) for size in self.program.sizes})

    def of(self, body: Sequence[Stmt], moving: str = "") -> list[Access]:
        """Return the accesses of `body`; names that are bound around it are fixed.

        moving   the one of them that `moves_on` is asked about
        """
        return list(self._block(body, _Scope(moving=moving)))

    def moves_on(self, accesses: Sequence[Access], name: str) -> bool:
        """Return whether some axis has an interval past all earlier ones as `name` grows by one.

        accesses   of one buffer, where `name` is fixed
        """
        following = {name: variable(name) + constant(1)}
        for axis in zip(*(access.axes for access in accesses), strict=True):
            known = [ends for ends in axis if ends is not None]
            if len(known) < len(axis):
                continue
            starts = [(first, first.at(following)) for first, _ in known]
            if all(self._at_least(after - first, 0) for first, after in starts) and all(
                self._at_least(after - last, 1) for _, after in starts for _, last in known
            ):
                return True
        return False

    def apart(self, one: Access, other: Access) -> bool:
        """Return whether two accesses of a buffer are known to touch no element in common."""
        return any(
            mine is not None
            and theirs is not None
            and (self._at_least(theirs[0] - mine[1], 1) or self._at_least(mine[0] - theirs[1], 1))
            for mine, theirs in zip(one.axes, other.axes, strict=True)
        )

    def runs(self, loop: For) -> bool:
        """Return whether a loop, whose bounds are fixed, is known to have an iteration."""
        lo, hi = self._polynomial(loop.lo, _Scope()), self._polynomial(loop.hi, _Scope())
        return lo is not None and hi is not None and self._at_least(hi - lo, 1)

    def _at_least(self, value: Polynomial, bound: int) -> bool:
        lower_bound = value.least(self.least)
        return lower_bound is not None and lower_bound >= bound

    def _block(self, body: Sequence[Stmt], scope: _Scope) -> Iterator[Access]:
        for stmt in body:
            inner_scope = self._within(stmt, scope)
            for expr in expressions(stmt):
                yield from self._loads(expr, inner_scope)
            match stmt:
                case For() | Tile() | Let():
                    yield from self._block(stmt.body, inner_scope)
                case If(_, then, other):
                    yield from self._block((*then, *other), scope)
                case Alloc(_, _, inner):
                    yield from self._block(inner, scope)
                case Choose(options):
                    for option in options:
                        yield from self._block(option.body, scope)
                case Store(buffer, index, _) if buffer in self.buffers:
                    yield self._access(buffer, index, True, scope)

    def _within(self, stmt: Stmt, scope: _Scope) -> _Scope:
        """Return the scope of what is inside a loop, a tile or a bounded value."""
        match stmt:
            case For(name, lo, hi, _):
                return self._over(scope, name, lo, hi)
            case Tile(axes, _):
                for axis in axes:
                    end = ix.add(axis.start, _simpler(axis.extent))
                    scope = self._over(scope, axis.iter, axis.start, end)
                return scope
            case Let(name, lo, hi, value, _) if scope.moves(value):
                return self._over(scope, name, ix.const(lo), ix.const(hi))
            case Let(name, lo, _, value, _):
                symbol = f"let {format_expr(scope.in_local_names(value))}"
                if lo >= 0:
                    self.least[symbol] = max(lo, self.least.get(symbol, 0))
                return replace(scope, fixed={**scope.fixed, name: Var(symbol)})
            case _:
                return scope

    def _over(self, scope: _Scope, name: str, lo: Expr, hi: Expr) -> _Scope:
        """Return the scope inside one more loop."""
        first, end = self._polynomial(lo, scope), self._polynomial(_simpler(hi), scope)
        last = None if end is None else end - constant(1)
        return replace(scope, ranges=(*scope.ranges, (name, first, last)))

    def _loads(self, expr: Expr, scope: _Scope) -> Iterator[Access]:
        for node in walk(expr):
            if isinstance(node, Load) and node.buffer in self.buffers:
                yield self._access(node.buffer, node.index, False, scope)

    def _access(self, buffer: str, index: Sequence[Expr], writes: bool, scope: _Scope) -> Access:
        return Access(buffer, writes, tuple(self._interval(part, scope) for part in index))

    def _interval(self, part: Expr, scope: _Scope) -> tuple[Polynomial, Polynomial] | None:
        form = self._polynomial(part, scope)
        if form is None:
            return None
        ends = [form, form]
        for name, lo, hi in reversed(scope.ranges):
            for side in (0, 1):
                split = ends[side].split(name)
                if split is None:
                    return None
                rest, factor = split
                if not factor.terms:
                    continue
                rises = self._at_least(factor, 0)
                if not rises and not self._at_least(constant(0) - factor, 0):
                    return None
                at = lo if rises == (side == 0) else hi
                if at is None:
                    return None
                ends[side] = rest + factor * at
        return ends[0], ends[1]

    def _polynomial(self, expr: Expr, scope: _Scope) -> Polynomial | None:
        """Return an index expression; quotients and the like of what is fixed are names of their own."""

        def part(node: Expr) -> Polynomial | None:
            match node:
                case Binary("//" | "%" | "min" | "max") if not scope.moves(node):
                    symbol = format_expr(ix.simplify(node))
                    if node.op == "%" or (node.op == "//" and _is_size(node.a, self.program)):
                        self.least[symbol] = 0
                    return variable(symbol)
                case _:
                    return None

        return polynomial(scope.in_local_names(expr), part)


class Conflicts:
    """Conflicts between statements: which may access elements that others write, by intervals along each axis."""

    def __init__(self, program: Program, own: frozenset[str]) -> None:
        """`own`: the buffers that no two agents share."""
        written_buffers = analysis(program).stored_buffers
        self.footprints = Footprints(program, written_buffers - own)
        self.found: dict[Stmt, frozenset[Access]] = {}

    def between(self, one: Stmt, other: Stmt, allocated: Collection[str] = ()) -> bool:
        """Return whether one of two statements may touch what the other one writes.

        allocated  the buffers whose elements do not say where they lie
        """
        mine, theirs = self.accesses(one), self.accesses(other)
        return any(
            a.buffer == b.buffer
            and (a.writes or b.writes)
            and (a.buffer in allocated or not self.footprints.apart(a, b))
            for a in mine
            for b in theirs
        )

    def accesses(self, stmt: Stmt) -> frozenset[Access]:
        """Return the accesses of a statement, each footprint once."""
        if stmt not in self.found:
            self.found[stmt] = frozenset(self.footprints.of((stmt,)))
        return self.found[stmt]


@dataclass(frozen=True)
class _Scope:
    """The scope of a statement inside the statements in question.

    ranges   iterators with the first and the last value, None where not known; outermost first
    fixed    what the values of `Let` are called: the same for the same value
    moving   an iterator around the statements that is not taken as fixed
    """

    ranges: tuple[tuple[str, Polynomial | None, Polynomial | None], ...] = ()
    fixed: Mapping[str, Var] = field(default_factory=dict)
    moving: str = ""

    def moves(self, expr: Expr) -> bool:
        """Return whether `expr` may change from one iteration to another, or with the data."""
        inner = {self.moving, *(name for name, _, _ in self.ranges)}
        reads = any(isinstance(node, Load) for node in walk(expr))
        return reads or bool(variables(expr) & inner)

    def in_local_names(self, expr: Expr) -> Expr:
        """Return `expr` with the values of `Let` by their names here."""
        return substitute(expr, dict(self.fixed)) if self.fixed else expr


def _simpler(end: Expr) -> Expr:
    """Return an end that `end` does not exceed."""
    return end.a if isinstance(end, Binary) and end.op == "min" else end


def _is_size(expr: Expr, program: Program) -> bool:
    return isinstance(expr, Var) and any(size.name == expr.name for size in program.sizes)
