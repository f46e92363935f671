"""Represent statements of loop programs by sets over named sizes: instances, accesses and windows.

A statement is a store with everything around it (`reading` finds those of a program). Its
instances are a named set over all iterators around it, lanes of tiles included; its time is the
path from the top of the program to it, positions of the text interleaved with iterators, compared
lexicographically. Quotients of sizes by literals (``n // 14``) become parameters of their own,
bound to the sizes, which spares isl most divisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import islpy as isl

from offcut.core import index as ix
from offcut.core.conditions import conjuncts
from offcut.core.expr import Binary, Compare, Const, Expr, Var, dtype_of, rewrite, substitute
from offcut.core.program import Program, Size, Store
from offcut.core.text.printer import format_expr
from offcut.core.traversal import map_expressions
from offcut.polyhedral.affine import Space, parse_function, parse_map, parse_set
from offcut.polyhedral.witness import smallest_point

_PARAM, _IN, _OUT = isl.dim_type.param, isl.dim_type.in_, isl.dim_type.out

# An entry of a time: a position in the text, an iterator of a loop, or the lanes of a tile.
Entry: TypeAlias = "int | str | tuple[str, ...]"
Window: TypeAlias = tuple[tuple[Expr, Expr], ...]


@dataclass(frozen=True, slots=True)
class Storage:
    """The memory of a buffer, new for every value of the iterators in `prefix`.

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
        """Return isl's names of the iterators."""
        return {name: f"x{k}" for k, name in enumerate(self.iters)}

    @property
    def head(self) -> str:
        """Return the tuple of the statement: ``S3[x0, x1]``."""
        return f"{self.name}[{', '.join(self.coordinates.values())}]"

    def storage(self, buffer: str) -> Storage | None:
        """Return the new memory of `buffer` that the statement sees; None: that of the whole program."""
        return next((s for s in reversed(self.storages) if s.buffer == buffer), None)


class ProgramSets:
    """The sets of programs that are compared, over the same sizes and facts.

    users   the users' names of sizes, by the program's
    fixed   the literals of bounded values, where they are known; None: none of its range
    """

    def __init__(
        self, sizes: Sequence[Size], assumptions: Sequence[Expr], users: Mapping[str, str]
    ) -> None:
        self.fixed: Mapping[Expr, int | None] = {}
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

    def prepare(self, program: Program) -> Program:
        """Return `program` with quotients of sizes named; all programs are prepared before one is read."""
        assert self._space is None
        body = tuple(map_expressions(stmt, self.name_quotients) for stmt in program.body)
        buffers = tuple(
            replace(b, shape=tuple(self.name_quotients(extent) for extent in b.shape))
            for b in program.buffers
        )
        return replace(program, body=body, buffers=buffers)

    def name_quotients(self, expr: Expr) -> Expr:
        """Return `expr` with names for quotients and remainders of sizes by literals."""
        return ix.fold_indices(rewrite(expr, self._quotient))

    def write_quotients(self, expr: Expr) -> Expr:
        """Return `expr` with quotients of sizes written out, as a user wrote them."""
        for (a, divisor), q in reversed(self._quotients.items()):
            expr = substitute(expr, {q.name: Binary("//", a, ix.const(divisor))})
        return ix.fold_indices(expr)

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

    def text(self, expr: Expr) -> str:
        """Return `expr` as text, as a user wrote it."""
        return format_expr(self.write_quotients(expr))

    def _is_size(self, expr: Expr) -> bool:
        form = ix.to_linear(expr)
        known = {q.name for q in self._quotients.values()} | self._names
        return bool(form.terms) and all(
            isinstance(atom, Var) and atom.name in known for atom, _ in form.terms
        )

    @property
    def space(self) -> Space:
        """Return the space of the sizes, then the quotients."""
        if self._space is None:
            quotients = tuple(Size(q.name, -(2**62), 2**62) for q in self._quotients.values())
            self._space = Space((*self.sizes, *quotients), (*self._assumptions, *self._facts))
            self._positions = {s.name: k for k, s in enumerate(self._space.sizes)}
            parameters = self._space.parameters
            plain = Space(self.sizes, self._assumptions)
            texts = [plain.facts, *(self._space.condition(f, {}) or "true" for f in self._facts)]
            self._context = parse_set(f"{parameters}{{ : {' and '.join(texts)} }}")
            self._parts = ", ".join(f"p{k}" for k in range(len(self._space.sizes)))
        return self._space

    @property
    def context(self) -> isl.Set:
        """Return all sizes that the facts allow, with their quotients."""
        assert self.space is not None
        assert self._context is not None
        return self._context

    def at(self, quotient_values: Mapping[Expr, int | None], context: isl.Set) -> ProgramSets:
        """Return the sets restricted to a part of the sizes, where bounded values are known."""
        restricted_sets = copy(self)
        restricted_sets._substitutions = {}
        restricted_sets.fixed, restricted_sets._context = quotient_values, context
        return restricted_sets

    def fresh(self) -> int:
        """Return a number that no storage has yet."""
        self._numbers += 1
        return self._numbers

    def restrict(
        self, domain: isl.Set, condition: Expr, coordinates: Mapping[str, str]
    ) -> isl.Set | None:
        """Return `domain` where `condition` holds; None if it is not quasi-affine."""
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
        return domain & parse_set(f"{self.space.parameters}{{ {name}[{xs}] : {text} }}")

    def _linear(
        self, condition: Expr, coordinates: Mapping[str, str]
    ) -> tuple[list[tuple[isl.dim_type, int, int]], int, bool] | None:
        """Return a comparison as the coefficients of ``terms + constant >= 0`` or ``== 0``."""
        if not isinstance(condition, Compare) or condition.op == "!=":
            return None
        op, a, b = condition.op, condition.a, condition.b
        if op in ("<", "<="):
            a, b, op = b, a, {"<": ">", "<=": ">="}[op]
        if dtype_of(a) != "index":
            return None
        form = ix.to_linear(ix.sub(a, b))
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
        """Return index expressions as isl text; None if one is not quasi-affine."""
        texts = [self.space.expr(expr, coordinates) for expr in exprs]
        known = [text for text in texts if text is not None]
        return known if len(known) == len(texts) else None

    def map(self, statement: Statement, to: str, exprs: Sequence[Expr]) -> isl.Map | None:
        """Return ``instance -> to[exprs]`` on the domain; None if one is not quasi-affine."""
        texts = self.texts(exprs, statement.coordinates)
        if texts is None:
            return None
        text = f"{self.space.parameters}{{ {statement.head} -> {to}[{', '.join(texts)}] }}"
        return parse_map(text).intersect_domain(statement.domain)

    def substitution(
        self, statement: Statement, to: str, exprs: Sequence[Expr]
    ) -> isl.PwMultiAff | None:
        """Return ``instance -> to[exprs]`` as a function on all integers; None if one is not quasi-affine."""
        key = (statement.head, to, tuple(exprs))
        if key not in self._substitutions:
            texts = self.texts(exprs, statement.coordinates)
            function = None
            if texts is not None:
                text = f"{{ {statement.head} -> {to}[{', '.join(texts)}] }}"
                function = parse_function(f"{self.space.parameters}{text}")
            self._substitutions[key] = function
        return self._substitutions[key]

    def access(
        self, statement: Statement, buffer: str, index: Sequence[Expr], path: Sequence[Expr] = ()
    ) -> isl.Map | None:
        """Return ``instance -> element`` of the memory that the statement sees, where `path` holds.

        What isl does not decide of `path` is left out. None where the index is not quasi-affine.
        """
        storage = statement.storage(buffer)
        prefix = () if storage is None else storage.prefix
        name = memory_name(buffer, storage)
        relation = self.map(statement, name, [*map(Var, prefix), *index])
        if relation is None or not path:
            return relation
        return relation.intersect_domain(self.instances_on_path(statement, path))

    def instances_on_path(self, statement: Statement, path: Sequence[Expr]) -> isl.Set:
        """Return the instances where `path` holds, as far as isl can express it."""
        domain = statement.domain
        for condition in path:
            for part in bounds_of(condition):
                smaller = self.restrict(domain, part, statement.coordinates)
                domain = domain if smaller is None else smaller
        return domain

    def outside(
        self,
        statement: Statement,
        index: Sequence[Expr],
        bounds: Sequence[tuple[Expr, Expr]],
        path: Sequence[Expr] = (),
    ) -> isl.Set | None:
        """Return the instances whose element is not in ``start <= e < start + extent``; None: not quasi-affine."""
        domain, broken = self.instances_on_path(statement, path), None
        for part, (start, extent) in zip(index, bounds, strict=True):
            for condition in (
                ix.compare("<", part, start),
                ix.compare(">=", part, ix.add(start, extent)),
            ):
                if isinstance(condition, Const) and not condition.value:
                    continue
                violations = self.restrict(domain, condition, statement.coordinates)
                if violations is None:
                    return None
                if not violations.is_empty():
                    broken = violations if broken is None else broken | violations
        return domain.empty(domain.get_space()) if broken is None else broken

    def smallest(self, broken: isl.Set) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return sizes and coordinates of the smallest point, without quotients."""
        count = len(self.sizes)
        points = broken.intersect_params(self.context)
        if points.is_empty():
            return None
        points = points.project_out(_PARAM, count, len(self.space.sizes) - count)
        return smallest_point(points)

    def all_sizes(self) -> Iterator[tuple[int, ...]]:
        """Yield all sizes that the facts allow, the smallest first."""
        remaining = parse_set(f"{self.space.parameters}{{ [] }}").intersect_params(self.context)
        while (point := self.smallest(remaining)) is not None:
            yield point[0]
            remaining = remaining - remaining.intersect_params(self.at_sizes(point[0]))

    def given(self, values: Sequence[int]) -> str:
        """Return ``with n = 2, m = 0, ``, or an empty text."""
        user_sizes = zip((self.users.get(s.name, s.name) for s in self.sizes), values, strict=True)
        text = ", ".join(f"{name} = {value}" for name, value in user_sizes)
        return f"with {text}, " if text else ""

    def quotients_at(self, values: Sequence[int]) -> dict[str, Expr]:
        """Return the quotients of given sizes."""
        known: dict[str, Expr] = {
            s.name: ix.const(x) for s, x in zip(self.sizes, values, strict=True)
        }
        for (a, divisor), q in self._quotients.items():
            known[q.name] = ix.floordiv(ix.simplify(substitute(a, known)), divisor)
        return {q.name: known[q.name] for q in self._quotients.values()}

    def point(self, name: str, point: Sequence[int]) -> isl.Set:
        """Return the instance of a tuple at these coordinates, at all sizes."""
        text = ", ".join(map(str, point))
        return parse_set(f"{self.space.parameters}{{ {name}[{text}] }}")

    def at_sizes(self, values: Sequence[int]) -> isl.Set:
        """Return the point of the parameters with these sizes."""
        known = zip((f"p{k}" for k in range(len(values))), values, strict=True)
        text = " and ".join(f"{p} = {value}" for p, value in known) or "true"
        return parse_set(f"{self.space.parameters}{{ : {text} }}").intersect_params(self.context)


def bounds_of(condition: Expr) -> Iterator[Expr]:
    """Return the parts of a conjunction; comparisons with ``min`` and ``max`` are split bound by bound."""
    for part in conjuncts(condition):
        match part:
            case Compare("<" | "<=", _, Binary("min", b, c)) | Compare(
                ">" | ">=", _, Binary("max", b, c)
            ):
                yield from bounds_of(replace(part, b=b))
                yield from bounds_of(replace(part, b=c))
            case _:
                yield part


def memory_name(buffer: str, storage: Storage | None) -> str:
    """Return isl's name of the memory of a buffer."""
    mangled = f"m_{buffer}"
    return mangled if storage is None else f"{mangled}_{storage.number}"
