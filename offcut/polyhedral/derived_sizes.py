"""Sizes that a program derives from its own: ``let`` over sizes alone, computed by the host before it makes a stream.

::

    let t in 1:33 = (n + 15)//16       ->    size t in 1:33, size q in 1:17, of which t = (n + 15)//16, q = n//t
      let q in 1:17 = n//t                   for i in 0:n - q*t  …
        for i in 0:n - q*t  …

To everything that reads the loops, a derived size is a size with its promised range, or with a closer one: ``q in 1:1000 = n//t`` is at
most 16. A `let` of the loops around is a loop of one iteration instead; so is one of sizes alone in a loop or under a condition, which
need not run: over its derived size. A part of a bound or a condition that is no set, as ``n - q*t``, is a derived size, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from offcut.core import index as ix
from offcut.core.expr import (
    Binary,
    Const,
    Expr,
    Var,
    children,
    dtype_of,
    reads_memory,
    rebuild,
    rewrite,
    substitute,
    variables,
)
from offcut.core.expr import walk as expressions
from offcut.core.interpret.values import InterpreterFault, evaluate
from offcut.core.intervals import Interval, interval
from offcut.core.program import MAX_SIZE, For, If, Let, Program, Size, Stmt, walk
from offcut.core.traversal import (
    bound_names,
    map_blocks,
    map_own_expressions,
    substitute_coordinates,
    used_names,
)
from offcut.describe.computation import Names
from offcut.errors import CallError
from offcut.polyhedral.index_maximum import quotient_range


def check_promise(name: str, value: int, lo: int, hi: int) -> int:
    """Return a value that a `let` promises to be in ``lo:hi``.

    Raises CallError if it is not.
    """
    if lo <= value < hi:
        return value
    raise CallError(
        "call",
        f"cannot take {name} = {value}",
        because=f"the program promises that it is in {lo}:{hi}",
    )


@dataclass(frozen=True, slots=True)
class DerivedSizes:
    """Sizes with their definitions, each over those before.

    lets  by name, without their bodies
    lazy  those of a `let` in a loop or under a condition, whose promise is checked where it stands
    """

    lets: dict[str, Let] = field(default_factory=dict)
    lazy: frozenset[str] = frozenset()

    def complete(
        self, sizes: Mapping[str, int], used: frozenset[str] = frozenset()
    ) -> dict[str, int]:
        """Return the sizes of a call and those derived from them.

        used  those that have to be in their promised range; others may belong to an option that does not run, and divide by 0

        Raises CallError if a used one is not in its range.
        """
        values = dict(sizes)
        for name, let in self.lets.items():
            try:
                values[name] = int(evaluate(let.value, values))
            except InterpreterFault:  # it divides by 0
                values[name] = let.hi
            if name in used:
                check_promise(name, values[name], let.lo, let.hi)
        return values

    def used_in(self, exprs: Iterable[Expr]) -> frozenset[str]:
        """Return the derived sizes that occur in expressions or in the definitions of such, without lazy ones."""
        names = set().union(*map(variables, exprs))
        for name, let in reversed(self.lets.items()):
            if name in names:
                names |= variables(let.value)
        return frozenset(names & self.lets.keys()) - self.lazy

    def expand(self, expr: Expr) -> Expr:
        """Return an expression over the sizes of a call alone, defined at all of them."""
        for name, let in reversed(self.lets.items()):
            if name in variables(expr):
                expr = substitute(expr, {name: with_positive_divisors(let.value)})
        return expr


def with_positive_divisors(value: Expr) -> Expr:
    """Return the value of a `let` with each quotient and remainder by at least 1: it is evaluated even if its loops do not run."""

    def by_one_at_least(node: Expr) -> Expr | None:
        match node:
            case Binary("//" | "%" as op, a, by) if not isinstance(by, Const):
                return Binary(op, a, ix.maximum(by, 1))
            case _:
                return None

    return rewrite(value, by_one_at_least)


def derive_sizes(program: Program) -> tuple[Program, DerivedSizes]:
    """Return the program with derived sizes as sizes, and their definitions; the program itself if it has none."""
    return _Derivation(program).result()


class _Derivation:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.fresh = Names(used_names(program)).fresh
        self.bindings = Counter(name for stmt in walk(program.body) for name in bound_names(stmt))
        self.sizes = {size.name: size for size in program.sizes}
        self.lets: dict[str, Let] = {}
        self.lazy: set[str] = set()
        self.names: dict[Expr, str] = {}

    def result(self) -> tuple[Program, DerivedSizes]:
        """Return what `derive_sizes` does."""
        body = self.block(self.program.body)
        if not self.lets:
            return self.program, DerivedSizes()
        program = replace(self.program, sizes=tuple(self.sizes.values()), body=body)
        return program, DerivedSizes(self.lets, frozenset(self.lazy))

    def block(self, body: tuple[Stmt, ...], runs: bool = True) -> tuple[Stmt, ...]:
        return tuple(new for stmt in body for new in self.statement(stmt, runs))

    def statement(self, stmt: Stmt, runs: bool) -> tuple[Stmt, ...]:
        if isinstance(stmt, For | If):
            runs, stmt = False, map_own_expressions(stmt, self.linear)
        of_sizes = isinstance(stmt, Let) and variables(stmt.value) <= self.sizes.keys()
        if not isinstance(stmt, Let) or not of_sizes or reads_memory(stmt.value):
            return (map_blocks(stmt, lambda body: self.block(body, runs)),)
        name, body = stmt.name, stmt.body
        always = runs or self.is_bounded(stmt)
        if always and not runs:
            # Whatever holds where it stands, it has one of these values: its promise is asked of the whole program.
            low, high = self.range_of(replace(stmt, lo=-MAX_SIZE, hi=MAX_SIZE))
            stmt = replace(stmt, lo=low, hi=high + 1)
        known = self.equal_size(stmt, always)
        if known is not None:
            name = known
        elif self.bindings[name] > 1 or not runs:
            name = self.fresh(name)
        if name != stmt.name:
            body = substitute_coordinates(body, {stmt.name: Var(name)})
        if known is None:
            self.derive(replace(stmt, name=name, body=()))
        if always:
            return self.block(body, runs)
        self.lazy.add(name)
        return (replace(stmt, value=Var(name), body=self.block(body, runs)),)

    def equal_size(self, let: Let, always: bool) -> str | None:
        """Return the derived size of the same value whose range is promised by `let` too; None if there is none."""
        for name, known in self.lets.items():
            lazy = name in self.lazy
            same = (known.lo, known.hi) == (let.lo, let.hi)
            within = let.lo <= known.lo and known.hi <= let.hi
            if known.value == let.value and (within if always and not lazy else same and lazy):
                return name
        return None

    def is_bounded(self, let: Let) -> bool:
        """Return whether a value can be computed at all sizes, and lies in a range that follows from what it is."""
        if variables(let.value) & self.lazy:
            return False
        divisors = (n.b for n in expressions(let.value) if isinstance(n, Binary) and n.op in "//%")
        known = all(
            interval(one, lambda node: self.bounds_of(node, (0, MAX_SIZE)))[0] > 0
            for one in divisors
        )
        return known and self.range_of(replace(let, lo=-MAX_SIZE, hi=MAX_SIZE))[1] < MAX_SIZE - 1

    def derive(self, let: Let) -> None:
        """Add a size that has the value of a `let`."""
        low, high = self.range_of(let)
        self.lets[let.name], self.sizes[let.name] = let, Size(let.name, low, high)

    def range_of(self, let: Let) -> Interval:
        """Return the least and the greatest value of a `let`: in its promised range, those that its parts allow."""
        promise = let.lo, let.hi - 1
        low, high = interval(let.value, lambda node: self.bounds_of(node, promise))
        match let.value:
            case Binary("//", a, b) if ix.literal_value(b) is None:
                expand, calls = DerivedSizes(self.lets).expand, self.program
                a, b = ix.simplify(expand(a)), ix.simplify(expand(b))
                names = {size.name for size in calls.sizes}
                if ix.is_affine(a, names) and ix.is_affine(b, names):
                    low, high = quotient_range(a, b, calls.sizes, calls.assumptions, promise)
        low, high = max(low, promise[0]), min(high, promise[1])
        return (low, high) if low <= high else promise

    def bounds_of(self, part: Expr, otherwise: Interval) -> Interval:
        """Return the bounds of a name; `otherwise` of a part that is neither a name nor arithmetic."""
        size = self.sizes[part.name] if isinstance(part, Var) else None
        return otherwise if size is None else (size.min, size.last)

    def linear(self, expr: Expr) -> Expr:
        """Return a bound or a condition whose parts over sizes alone are quasi-affine: others are derived sizes."""
        names = variables(expr)
        if not names or reads_memory(expr):
            return expr
        if not names <= self.sizes.keys() or dtype_of(expr) != "index":
            return rebuild(expr, tuple(map(self.linear, children(expr))))
        if ix.is_affine(expr, names):
            return expr
        if expr not in self.names:
            low, high = interval(expr, lambda node: self.bounds_of(node, (-MAX_SIZE, MAX_SIZE)))
            name = self.names[expr] = self.fresh("count")
            self.lazy.add(name)
            self.derive(Let(name, low, high + 1, expr, ()))
        return Var(self.names[expr])
