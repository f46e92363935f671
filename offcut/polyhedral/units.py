"""What may run on different units: what statements touch, which loops carry nothing, what each unit has for itself.

Represent accesses of statements as intervals along each axis of a buffer, to show that two are disjoint.

The ends of an interval are polynomials in what is fixed outside of the statements: sizes, iterators
of the loops around, values of `Let`, and quotients of these. So ``h*t … h*t + h - 1`` is an interval
that moves by its own length with t, whatever h is: tiles of equal height lie side by side, which
sets cannot say. What the form of an index does not show is not known, and nothing is said of it.

Which loops of a program several units may share: those that carry no dependence.

Footprints show it in most cases, otherwise sets of dependences do (`carried_by`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from offcut.core import index as ix
from offcut.core.analysis import (
    accessed_arrays,
    analysis,
    read_arrays,
    statement_arrays,
    stored_arrays,
    windowed_arrays,
)
from offcut.core.expr import Binary, Expr, Load, Var, substitute, variables, walk
from offcut.core.polynomial import Polynomial, constant, polynomial, variable
from offcut.core.program import (
    Alloc,
    Choose,
    For,
    If,
    Kind,
    Let,
    Program,
    Stmt,
    Store,
    Tile,
    blocks,
)
from offcut.core.program import walk as statements
from offcut.core.text.printer import format_expr
from offcut.core.traversal import expressions
from offcut.polyhedral.dependences import Dependence, carried_by
from offcut.polyhedral.isl_budget import try_isl


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


MOST_STORES = 16  # in a nest of which isl is asked, in pairs, whether units may share it

Path = tuple[int, ...]


class Independence:
    """Which loops of a program carry no dependence.

    open   why that was not found out
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.tiled = tile_buffers(program)
        self.conflicts = Conflicts(program, self.tiled | analysis(program).status_buffers)
        self.footprints = self.conflicts.footprints
        self.carried: dict[int, dict[Path, list[Dependence]] | None] = {}
        self.open: dict[str, None] = {}

    def of(self, loop: For, path: Path) -> bool:
        """Return whether iterations of `loop` touch nothing that another one writes, whatever it is marked."""
        open_arrays = self.conflicting_buffers(loop)
        return not open_arrays or self.by_sets(open_arrays, path)

    def conflicting_buffers(self, loop: For) -> set[str]:
        """Return the buffers of which footprints do not show that an iteration of `loop` touches nothing that another one writes."""
        shared = {name for name in stored_arrays(loop.body) if not self.keeps(name, loop)}
        shared -= analysis(self.program).status_buffers
        by_buffer: dict[str, set[Access]] = {name: set() for name in shared}
        for access in self.footprints.of(loop.body, loop.iter) if shared else ():
            if access.buffer in shared:
                by_buffer[access.buffer].add(access)
        return {
            name
            for name, accesses in by_buffer.items()
            if not self.footprints.moves_on(tuple(accesses), loop.iter)
        }

    def inside(self, stmt: Let | Alloc) -> None:
        """Inside a bounded value its range is known."""
        if isinstance(stmt, Let) and stmt.lo >= 0:
            self.footprints.least[stmt.name] = stmt.lo

    def by_sets(self, buffers: set[str], path: Path) -> bool:
        """Return whether the loop at `path` carries no dependence of these buffers, as isl finds them."""
        position = path[0]
        if position not in self.carried:
            alone = replace(self.program, body=(self.program.body[position],))
            inside = list(statements(alone.body))
            stores = sum(isinstance(stmt, Store) for stmt in inside)
            cut = any(isinstance(stmt, Tile) and stmt.microkernel is not None for stmt in inside)
            if stores > MOST_STORES:
                self.open[f"{stores} statements are too many to compare in pairs"] = None
            elif cut:
                self.open["tiles of microkernels are not compared in pairs"] = None
            else:
                self.carried[position] = try_isl(lambda: carried_by(alone), None)
                if self.carried[position] is None:
                    self.open["comparing statements in pairs takes isl too long"] = None
            self.carried.setdefault(position, None)
        carried = self.carried[position]
        if carried is None:
            return False
        return not any(one.buffer in buffers for one in carried.get((0, *path[1:]), ()))

    def keeps(self, name: str, loop: For) -> bool:
        """Return whether each iteration of `loop` has what it writes of a buffer for itself."""
        buffer = self.program.buffer(name)
        if name in self.tiled:
            return True
        if any(isinstance(stmt, Alloc) and stmt.buffer == name for stmt in statements(loop.body)):
            return name in windowed_arrays(self.program.body)
        scalar = buffer.kind is Kind.PRIVATE and not buffer.shape
        return scalar and is_written_before_read(name, loop.body)


def tile_buffers(program: Program) -> frozenset[str]:
    """Return the private buffers that only tiles access: each tile has a copy."""
    outside = set[str]()

    def look(body: Sequence[Stmt]) -> None:
        for stmt in body:
            if not isinstance(stmt, Tile):
                outside.update(statement_arrays(stmt))
                for block in blocks(stmt):
                    look(block)

    look(program.body)
    private = {b.name for b in program.buffers if b.kind is Kind.PRIVATE}
    return frozenset(private - outside)


def begins_with_store(buffer: str, body: Sequence[Stmt]) -> bool:
    """Return whether the first access of a buffer is a direct statement of `body` that overwrites it."""
    for stmt in body:
        if isinstance(stmt, Store) and stmt.buffer == buffer and stmt.reduce is None:
            return buffer not in read_arrays((stmt.value,))
        if buffer in accessed_arrays((stmt,)):
            return False
    return False


def is_written_before_read(name: str, body: Sequence[Stmt]) -> bool:
    """Return whether all accesses of a scalar are in blocks that write it first."""
    if begins_with_store(name, body):
        return True
    for stmt in body:
        if name not in accessed_arrays((stmt,)):
            continue
        if name in statement_arrays(stmt) or isinstance(stmt, Tile | Choose | Alloc):
            return False
        inside = (block for block in blocks(stmt) if name in accessed_arrays(block))
        if not all(is_written_before_read(name, block) for block in inside):
            return False
    return True
