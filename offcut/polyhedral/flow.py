"""Loop programs as statement instances: domains, times, accesses, and the flow of data between them.

A statement is a store with everything around it. Its instances are a named set over all iterators
around it, lanes of tiles included; its time is the path from the top of the program to it, positions
of the text interleaved with iterators, compared lexicographically. Quotients of sizes by literals
(``n // 14``) become parameters of their own, bound to the sizes, which spares isl most divisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TypeAlias, assert_never

import islpy as isl

from offcut.core import index as ix
from offcut.core.conditions import negated
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Logic,
    Var,
    dtype_of,
    rewrite,
    substitute,
    variables,
)
from offcut.core.program import (
    Alloc,
    Choose,
    For,
    If,
    Kind,
    Let,
    Program,
    Size,
    Stmt,
    Store,
    Tile,
    mapped,
    walk,
)
from offcut.core.text.printer import format_expr
from offcut.errors import PartitionError
from offcut.polyhedral.affine import Map, Set, Space
from offcut.polyhedral.witness import smallest

_PARAM, _IN, _OUT = isl.dim_type.param, isl.dim_type.in_, isl.dim_type.out

# An entry of a time: a position in the text, an iterator of a loop, or the lanes of a tile.
Entry: TypeAlias = "int | str | tuple[str, ...]"
Window: TypeAlias = tuple[tuple[Expr, Expr], ...]


class NotReadable(PartitionError):
    """A program, or a part of it, that sets do not say."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Fresh memory of a buffer: one for every value of the iterators in `prefix`.

    window   (start, extent) per axis of what it holds; None: the whole buffer
    """

    buffer: str
    number: int
    prefix: tuple[str, ...]
    window: Window | None


@dataclass(frozen=True, slots=True)
class Statement:
    """A store of a program and its instances.

    name        of its tuple in isl
    store       with bounded values replaced by their literals
    iters       all iterators around it, outermost first: the coordinates of an instance
    domain      the instances that run, named
    predicates  conditions that isl does not decide: where one does not hold, the element keeps its value
    time        when an instance runs
    storages    the windows around it, innermost last
    """

    name: str
    store: Store
    iters: tuple[str, ...]
    domain: isl.Set = field(compare=False)
    predicates: tuple[Expr, ...]
    time: tuple[Entry, ...]
    storages: tuple[Storage, ...]

    @property
    def coordinates(self) -> dict[str, str]:
        """isl's names of the iterators."""
        return {name: f"x{k}" for k, name in enumerate(self.iters)}

    @property
    def head(self) -> str:
        """``S3[x0, x1]``."""
        return f"{self.name}[{', '.join(self.coordinates.values())}]"

    def storage(self, buffer: str) -> Storage | None:
        """The fresh memory that it sees of `buffer`; None: that of the whole program."""
        return next((s for s in reversed(self.storages) if s.buffer == buffer), None)


@dataclass(frozen=True, slots=True)
class _Scope:
    domain: isl.Set
    iters: tuple[str, ...] = ()
    predicates: tuple[Expr, ...] = ()
    time: tuple[Entry, ...] = ()
    storages: tuple[Storage, ...] = ()
    values: tuple[tuple[str, int], ...] = ()
    in_tile: bool = False


class Flows:
    """The set side of comparing programs over the same sizes and facts.

    users   the users' names of sizes, by the program's
    """

    def __init__(
        self, sizes: Sequence[Size], assumptions: Sequence[Expr], users: Mapping[str, str]
    ) -> None:
        self._case: Mapping[Expr, int | None] = {}
        self.sizes, self.users = tuple(sizes), users
        self._names = frozenset(size.name for size in sizes)
        self._quotients: dict[tuple[Expr, int], Var] = {}
        self._facts: list[Expr] = []
        self._assumptions = tuple(assumptions)
        self._space: Space | None = None
        self._context: isl.Set | None = None
        self._numbers = 0
        self._substitutions: dict[tuple[str, str, tuple[Expr, ...]], isl.PwMultiAff | None] = {}

    # Quotients are named before anything is read, so that all sets have the same parameters.

    def prepared(self, program: Program) -> Program:
        """`program` with quotients of sizes named; all programs are prepared before one is read."""
        assert self._space is None
        body = tuple(mapped(stmt, self.named) for stmt in program.body)
        buffers = tuple(
            replace(b, shape=tuple(self.named(extent) for extent in b.shape))
            for b in program.buffers
        )
        return replace(program, body=body, buffers=buffers)

    def named(self, expr: Expr) -> Expr:
        """`expr` with quotients and rests of sizes by literals as names."""
        return ix.folded(rewrite(expr, self._quotient))

    def unnamed(self, expr: Expr) -> Expr:
        """`expr` with quotients of sizes written out, as a user wrote them."""
        for (a, divisor), q in reversed(self._quotients.items()):
            expr = substitute(expr, {q.name: Binary("//", a, ix.const(divisor))})
        return ix.folded(expr)

    def _quotient(self, node: Expr) -> Expr | None:
        match node:
            case Binary("//" | "%" as op, a, Const(value, "index")) if value > 0:
                if not self._is_size(a):
                    return None
                a, divisor = ix.simplify(a), int(value)
                if (a, divisor) not in self._quotients:
                    q = Var(f"q'{len(self._quotients)}")
                    self._quotients[a, divisor] = q
                    rest = ix.sub(a, ix.mul(divisor, q))
                    self._facts += [
                        Compare(">=", rest, ix.const(0)),
                        Compare("<", rest, ix.const(divisor)),
                    ]
                q = self._quotients[a, divisor]
                return q if op == "//" else ix.sub(a, ix.mul(divisor, q))
            case _:
                return None

    def _text(self, expr: Expr) -> str:
        return format_expr(self.unnamed(expr))

    def _is_size(self, expr: Expr) -> bool:
        form = ix.linear(expr)
        known = {q.name for q in self._quotients.values()} | self._names
        return bool(form.terms) and all(
            isinstance(atom, Var) and atom.name in known for atom, _ in form.terms
        )

    @property
    def space(self) -> Space:
        """The sizes, then the quotients."""
        if self._space is None:
            quotients = tuple(Size(q.name, -(2**62), 2**62) for q in self._quotients.values())
            self._space = Space((*self.sizes, *quotients), (*self._assumptions, *self._facts))
            self._positions = {s.name: k for k, s in enumerate(self._space.sizes)}
            parameters = self._space.parameters
            plain = Space(self.sizes, self._assumptions)
            texts = [plain.facts, *(self._space.condition(f, {}) or "true" for f in self._facts)]
            self._context = Set(f"{parameters}{{ : {' and '.join(texts)} }}")
            self._parts = ", ".join(f"p{k}" for k in range(len(self._space.sizes)))
        return self._space

    @property
    def context(self) -> isl.Set:
        """All sizes that the facts allow, with their quotients."""
        assert self.space is not None
        assert self._context is not None
        return self._context

    def statements(self, program: Program, letter: str) -> list[Statement]:
        """Every store of `program`, without a `Choose` in it, in the order of the text.

        Raises NotReadable for a bound that is not quasi-affine, PartitionError for a value that leaves
        its range.
        """
        self._buffers = {b.name: b for b in program.buffers}
        space = Set(f"{self.space.parameters}{{ [] }}").intersect_params(self.context)
        found = list(self._block(program.body, _Scope(space)))
        return [
            replace(s, name=f"{letter}{k}", domain=s.domain.set_tuple_name(f"{letter}{k}"))
            for k, s in enumerate(found)
        ]

    def _block(self, body: Sequence[Stmt], scope: _Scope) -> Iterator[Statement]:
        for position, stmt in enumerate(body):
            yield from self._statement(stmt, replace(scope, time=(*scope.time, position)))

    def _statement(self, stmt: Stmt, scope: _Scope) -> Iterator[Statement]:
        match stmt:
            case For(iter, lo, hi, body):
                inner = self._bound(scope, iter)
                inner = self._where(
                    inner, Compare(">=", Var(iter), lo), f"the bound {self._text(lo)}"
                )
                inner = self._where(
                    inner, Compare("<", Var(iter), hi), f"the bound {self._text(hi)}"
                )
                yield from self._block(body, replace(inner, time=(*scope.time, iter)))
            case If(condition, then, other):
                holds = self._where(scope, condition)
                yield from self._block(then, replace(holds, time=(*scope.time, 0)))
                if other:
                    fails = self._where(scope, Logic("not", (condition,)))
                    yield from self._block(other, replace(fails, time=(*scope.time, 1)))
            case Let(name, lo, hi, value, body):
                self._check_bounded(stmt, scope)
                value = self._closed(value, scope)
                fixed_to = self._case.get(value)
                literals = range(lo, hi) if value not in self._case else [fixed_to]
                for literal in literals:
                    if literal is None or not lo <= literal < hi:
                        continue
                    fixed = self._equal(scope, value, literal)
                    values = (*scope.values, (name, literal))
                    inner = replace(scope, domain=fixed, values=values)
                    if not fixed.is_empty():
                        yield from self._block(body, inner)
            case Tile(axes, body, where, _, _, _):
                inner = scope
                for axis in axes:
                    inner = self._bound(inner, axis.iter)
                    end = ix.add(self._closed(axis.start, scope), self._closed(axis.extent, scope))
                    text = f"the tile {self._text(axis.start)} +: {self._text(axis.extent)}"
                    inner = self._where(inner, Compare(">=", Var(axis.iter), axis.start), text)
                    inner = self._where(inner, Compare("<", Var(axis.iter), end), text)
                if where is not None:
                    inner = self._where(inner, where)
                storages = scope.storages
                if not scope.in_tile:
                    storages += self._own(stmt, inner.iters)
                lanes = tuple(axis.iter for axis in axes)
                time = (*scope.time, lanes)
                inner = replace(inner, time=time, storages=storages, in_tile=True)
                yield from self._block(body, inner)
            case Alloc(buffer, axes, body):
                if scope.in_tile:
                    raise NotReadable(
                        "prove",
                        f"cannot take a window of {buffer} in a tile",
                        because="its lanes would share it",
                    )
                window = tuple(
                    (self._closed(start, scope), self._closed(extent, scope))
                    for start, extent in axes
                )
                self._numbers += 1
                fresh = Storage(buffer, self._numbers, scope.iters, window)
                yield from self._block(body, replace(scope, storages=(*scope.storages, fresh)))
            case Store():
                if not scope.domain.is_empty():
                    closed = mapped(stmt, lambda expr: self._closed(expr, scope))
                    assert isinstance(closed, Store)
                    yield Statement(
                        "",
                        closed,
                        scope.iters,
                        scope.domain,
                        scope.predicates,
                        scope.time,
                        scope.storages,
                    )
            case Choose():
                raise NotReadable(
                    "prove",
                    "cannot read a choice as a set",
                    because="its options are read one by one",
                )
            case _:
                assert_never(stmt)

    def _check_bounded(self, let: Let, scope: _Scope) -> None:
        """Refuse a bounded value that leaves its range where it is reached."""
        value = self._closed(let.value, scope)
        left, coordinates = scope.domain, {name: f"x{k}" for k, name in enumerate(scope.iters)}
        if isinstance(value, Binary) and value.op == "//" and not isinstance(value.b, Const):
            inside = Logic(
                "and",
                (
                    Compare(">", value.b, ix.const(0)),
                    Compare("<=", ix.mul(let.lo, value.b), value.a),
                    Compare("<", value.a, ix.mul(let.hi, value.b)),
                ),
            )
        else:
            low, high = (
                Compare("<=", ix.const(let.lo), value),
                Compare("<", value, ix.const(let.hi)),
            )
            inside = Logic("and", (low, high))
        for part in bounds_of(inside):
            opposite = next(bounds_of(Logic("not", (part,))))
            kept = self.restricted(left, opposite, coordinates)
            if kept is None:
                raise NotReadable(
                    "prove",
                    f"cannot read the value of {let.name} as a set",
                    because="it is not quasi-affine",
                )
            found = self.smallest(kept)
            if found is not None:
                raise PartitionError(
                    "prove",
                    f"the value of {let.name} is not in {let.lo}:{let.hi}",
                    because=f"{self.given(found[0])}{self._text(let.value)} leaves it",
                )

    def cases(self, program: Program) -> Iterator[Flows]:
        """These sets once for every literal of the bounded values that sizes alone decide."""
        ranges: dict[Expr, tuple[int, int]] = {}
        known = {size.name for size in self.space.sizes}
        for stmt in walk(program.body):
            if isinstance(stmt, Let) and variables(stmt.value) <= known:
                lo, hi = ranges.get(stmt.value, (stmt.lo, stmt.hi))
                ranges[stmt.value] = min(lo, stmt.lo), max(hi, stmt.hi)
        yield from self._cases(tuple(ranges.items()), {}, self.context)

    def _cases(
        self,
        ranges: Sequence[tuple[Expr, tuple[int, int]]],
        fixed: Mapping[Expr, int | None],
        context: isl.Set,
    ) -> Iterator[Flows]:
        if context.is_empty():
            return
        if not ranges:
            here = copy(self)
            here._substitutions = {}
            here._case, here._context = fixed, context
            yield here
            return
        (value, (lo, hi)), *rest = ranges
        left = context
        for literal in range(lo, hi):
            scope = _Scope(Set(f"{self.space.parameters}{{ [] }}").intersect_params(context))
            part = self._equal(scope, value, literal).params()
            left = left - part
            yield from self._cases(rest, {**fixed, value: literal}, part)
        yield from self._cases(rest, {**fixed, value: None}, left)

    def _own(self, tile: Tile, iters: tuple[str, ...]) -> tuple[Storage, ...]:
        """A copy for each lane of the private buffers that the outermost tile starts anew.

        Such a one is assigned at an index that leaves out an axis of the tile.
        """
        axes = {axis.iter for axis in tile.axes}
        found: dict[str, Storage] = {}
        for inner in walk(tile.body):
            if isinstance(inner, Store) and inner.reduce is None:
                buffer = self._buffers.get(inner.buffer)
                named = set().union(*map(variables, inner.index))
                if buffer is not None and buffer.kind is Kind.PRIVATE and not axes <= named:
                    self._numbers += 1
                    found[buffer.name] = Storage(buffer.name, self._numbers, iters, None)
        return tuple(found.values())

    def _closed(self, expr: Expr, scope: _Scope) -> Expr:
        if not scope.values:
            return expr
        values: dict[str, Expr] = {name: ix.const(value) for name, value in scope.values}
        return ix.folded(substitute(expr, values))

    def _bound(self, scope: _Scope, name: str) -> _Scope:
        domain = scope.domain.add_dims(isl.dim_type.set, 1)
        return replace(scope, domain=domain, iters=(*scope.iters, name))

    def _where(self, scope: _Scope, condition: Expr, what: str = "") -> _Scope:
        """`scope` where `condition` holds; what isl does not decide is a predicate, if `what` is ""."""
        condition = self._closed(condition, scope)
        coordinates = {name: f"x{k}" for k, name in enumerate(scope.iters)}
        domain, predicates = scope.domain, list(scope.predicates)
        for part in bounds_of(condition):
            restricted = self.restricted(domain, part, coordinates)
            if restricted is not None:
                domain = restricted
            elif what:
                raise NotReadable(
                    "prove",
                    f"cannot read {what} as a set",
                    because="it is not quasi-affine: isl decides sums, integer multiples, and // "
                    "and % by positive constants",
                )
            else:
                predicates.append(part)
        return replace(scope, domain=domain, predicates=tuple(predicates))

    def _equal(self, scope: _Scope, value: Expr, literal: int) -> isl.Set:
        """The part of the domain where a bounded value is `literal`."""
        value = self._closed(value, scope)
        if isinstance(value, Binary) and value.op == "//" and not isinstance(value.b, Const):
            low = Compare("<=", ix.mul(literal, value.b), value.a)
            high = Compare("<", value.a, ix.mul(literal + 1, value.b))
            positive = Compare(">", value.b, ix.const(0))
            condition: Expr = Logic("and", (positive, low, high))
        else:
            condition = Compare("==", value, ix.const(literal))
        return self._where(scope, condition, f"the value {self._text(value)}").domain

    def restricted(
        self, domain: isl.Set, condition: Expr, coordinates: Mapping[str, str]
    ) -> isl.Set | None:
        """`domain` where `condition` holds; None where it is not quasi-affine."""
        linear = self._linear(condition, coordinates)
        if linear is not None:
            terms, constant, equal = linear
            local = isl.LocalSpace.from_space(domain.get_space())
            make = isl.Constraint.alloc_equality if equal else isl.Constraint.alloc_inequality
            constraint = make(local).set_constant_val(constant)
            for kind, position, factor in terms:
                constraint = constraint.set_coefficient_val(kind, position, factor)
            return domain.add_constraint(constraint)
        text = self.space.condition(condition, coordinates)
        if text is None:
            return None
        rank = domain.dim(isl.dim_type.set)
        xs = ", ".join(f"x{k}" for k in range(rank))
        name = domain.get_tuple_name() if domain.has_tuple_name() else ""
        return domain & Set(f"{self.space.parameters}{{ {name}[{xs}] : {text} }}")

    def _linear(
        self, condition: Expr, coordinates: Mapping[str, str]
    ) -> tuple[list[tuple[isl.dim_type, int, int]], int, bool] | None:
        """A comparison as the coefficients of ``terms + constant >= 0`` or ``== 0``."""
        if not isinstance(condition, Compare) or condition.op == "!=":
            return None
        op, a, b = condition.op, condition.a, condition.b
        if op in ("<", "<="):
            a, b, op = b, a, {"<": ">", "<=": ">="}[op]
        if dtype_of(a) != "index":
            return None
        form = ix.linear(ix.sub(a, b))
        terms = []
        for atom, factor in form.terms:
            if not isinstance(atom, Var):
                return None
            if atom.name in coordinates:
                terms.append((isl.dim_type.set, int(coordinates[atom.name][1:]), factor))
            elif atom.name in self._positions:
                terms.append((_PARAM, self._positions[atom.name], factor))
            else:
                return None
        return terms, form.const - (op == ">"), op == "=="

    def texts(self, exprs: Sequence[Expr], coordinates: Mapping[str, str]) -> list[str] | None:
        """Index expressions as isl text; None where one is not quasi-affine."""
        found = [self.space.expr(expr, coordinates) for expr in exprs]
        known = [text for text in found if text is not None]
        return known if len(known) == len(found) else None

    def map(self, statement: Statement, to: str, exprs: Sequence[Expr]) -> isl.Map | None:
        """``instance -> to[exprs]`` on the domain; None where one is not quasi-affine."""
        texts = self.texts(exprs, statement.coordinates)
        if texts is None:
            return None
        text = f"{self.space.parameters}{{ {statement.head} -> {to}[{', '.join(texts)}] }}"
        return Map(text).intersect_domain(statement.domain)

    def substitution(
        self, statement: Statement, to: str, exprs: Sequence[Expr]
    ) -> isl.PwMultiAff | None:
        """The same as a function, on all integers."""
        key = (statement.head, to, tuple(exprs))
        if key not in self._substitutions:
            texts = self.texts(exprs, statement.coordinates)
            found = None
            if texts is not None:
                text = f"{{ {statement.head} -> {to}[{', '.join(texts)}] }}"
                found = isl.PwMultiAff(f"{self.space.parameters}{text}")
            self._substitutions[key] = found
        return self._substitutions[key]

    def access(
        self, statement: Statement, buffer: str, index: Sequence[Expr], path: Sequence[Expr] = ()
    ) -> isl.Map | None:
        """``instance -> element`` of the memory that the statement sees, where `path` holds.

        What isl does not decide of `path` is left out. None where the index is not quasi-affine.
        """
        storage = statement.storage(buffer)
        prefix = () if storage is None else storage.prefix
        name = memory_name(buffer, storage)
        found = self.map(statement, name, [*map(Var, prefix), *index])
        if found is None or not path:
            return found
        return found.intersect_domain(self.kept(statement, path))

    def kept(self, statement: Statement, path: Sequence[Expr]) -> isl.Set:
        """The instances where `path` holds, as far as isl decides it."""
        domain = statement.domain
        for condition in path:
            for part in bounds_of(condition):
                restricted = self.restricted(domain, part, statement.coordinates)
                domain = domain if restricted is None else restricted
        return domain

    def outside(
        self,
        statement: Statement,
        index: Sequence[Expr],
        bounds: Sequence[tuple[Expr, Expr]],
        path: Sequence[Expr] = (),
    ) -> isl.Set | None:
        """Instances whose element is not in ``start <= e < start + extent``; None: not quasi-affine."""
        domain, broken = self.kept(statement, path), None
        for part, (start, extent) in zip(index, bounds, strict=True):
            for condition in (
                ix.compare("<", part, start),
                ix.compare(">=", part, ix.add(start, extent)),
            ):
                if isinstance(condition, Const) and not condition.value:
                    continue
                here = self.restricted(domain, condition, statement.coordinates)
                if here is None:
                    return None
                if not here.is_empty():
                    broken = here if broken is None else broken | here
        return domain.empty(domain.get_space()) if broken is None else broken

    def smallest(self, broken: isl.Set) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Sizes and coordinates of the smallest point, quotients left out."""
        count = len(self.sizes)
        here = broken.intersect_params(self.context)
        if here.is_empty():
            return None
        here = here.project_out(_PARAM, count, len(self.space.sizes) - count)
        return smallest(here)

    def all_sizes(self) -> Iterator[tuple[int, ...]]:
        """All sizes that the facts allow, the smallest first."""
        left = Set(f"{self.space.parameters}{{ [] }}").intersect_params(self.context)
        while (found := self.smallest(left)) is not None:
            yield found[0]
            left = left - left.intersect_params(self.at_sizes(found[0]))

    def given(self, values: Sequence[int]) -> str:
        """``with n = 2, m = 0``, or nothing."""
        named = zip((self.users.get(s.name, s.name) for s in self.sizes), values, strict=True)
        text = ", ".join(f"{name} = {value}" for name, value in named)
        return f"with {text}, " if text else ""

    def quotients_at(self, values: Sequence[int]) -> dict[str, Expr]:
        """The quotients of given sizes."""
        known: dict[str, Expr] = {
            s.name: ix.const(x) for s, x in zip(self.sizes, values, strict=True)
        }
        for (a, divisor), q in self._quotients.items():
            known[q.name] = ix.floordiv(ix.simplify(substitute(a, known)), divisor)
        return {q.name: known[q.name] for q in self._quotients.values()}

    def point(self, statement: Statement, point: Sequence[int]) -> isl.Set:
        """The instance of a statement at these coordinates, at all sizes."""
        text = ", ".join(map(str, point))
        return Set(f"{self.space.parameters}{{ {statement.name}[{text}] }}")

    def at_sizes(self, values: Sequence[int]) -> isl.Set:
        """The one point of the parameters with these sizes."""
        known = zip((f"p{k}" for k in range(len(values))), values, strict=True)
        text = " and ".join(f"{p} = {value}" for p, value in known) or "true"
        return Set(f"{self.space.parameters}{{ : {text} }}").intersect_params(self.context)


def bounds_of(condition: Expr) -> Iterator[Expr]:
    """The parts of a condition that all must hold; what ``min`` and ``max`` bound, bound by bound."""
    match condition:
        case Logic("and", args):
            for arg in args:
                yield from bounds_of(arg)
        case Logic("not", (Compare() as inner,)) if negated(inner) != condition:
            yield from bounds_of(negated(inner))
        case Logic("not", (Logic("not", (arg,)),)):
            yield from bounds_of(arg)
        case Logic("not", (Logic("or", args),)):
            for arg in args:
                yield from bounds_of(Logic("not", (arg,)))
        case Compare("<" | "<=" as op, a, Binary("min", b, c)):
            yield from bounds_of(Compare(op, a, b))
            yield from bounds_of(Compare(op, a, c))
        case Compare(">" | ">=" as op, a, Binary("max", b, c)):
            yield from bounds_of(Compare(op, a, b))
            yield from bounds_of(Compare(op, a, c))
        case _:
            yield condition


def memory_name(buffer: str, storage: Storage | None) -> str:
    """isl's name of the memory of a buffer."""
    mangled = f"m_{buffer}"
    return mangled if storage is None else f"{mangled}_{storage.number}"
