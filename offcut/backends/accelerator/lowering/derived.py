"""Sizes that a program derives from its own: ``let`` over sizes alone, computed by the host before it makes a stream.

::

    let t in 1:33 = (n + 15)//16       ->    size t in 1:33, size q in 1:17, of which t = (n + 15)//16, q = n//t
      let q in 1:17 = n//t                   for i in 0:n - q*t  …
        for i in 0:n - q*t  …

To everything that reads the loops, a derived size is a size with its promised range. A `let` of the loops around is a
loop of one iteration instead; so is one of sizes alone in a loop or under a condition, which need not run: over its derived size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from offcut.backends.accelerator.lowering.python import check_promise, evaluated
from offcut.core.expr import Expr, Var, reads_memory, substitute, variables
from offcut.core.program import (
    For,
    If,
    Let,
    Program,
    Size,
    Stmt,
    map_blocks,
    substitute_coordinates,
    walk,
)
from offcut.core.traversal import bound_names, used_names
from offcut.describe.computation import Names


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
                values[name] = evaluated(let.value, values)
            except ZeroDivisionError:
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
        """Return an expression over the sizes of a call alone."""
        for name, let in reversed(self.lets.items()):
            if name in variables(expr):
                expr = substitute(expr, {name: let.value})
        return expr


def derive_sizes(program: Program) -> tuple[Program, DerivedSizes]:
    """Return the program with derived sizes as sizes, and their definitions; the program itself if it has none."""
    known = {size.name for size in program.sizes}
    names = Names(used_names(program))
    bindings = Counter(name for stmt in walk(program.body) for name in bound_names(stmt))
    lets: dict[str, Let] = {}
    lazy: set[str] = set()

    def block(body: tuple[Stmt, ...], runs: bool = True) -> tuple[Stmt, ...]:
        return tuple(new for stmt in body for new in statement(stmt, runs))

    def statement(stmt: Stmt, runs: bool) -> tuple[Stmt, ...]:
        runs = runs and not isinstance(stmt, For | If)
        of_sizes = isinstance(stmt, Let) and variables(stmt.value) <= known | lets.keys()
        if not isinstance(stmt, Let) or not of_sizes or reads_memory(stmt.value):
            return (map_blocks(stmt, lambda body: block(body, runs)),)
        name, body = stmt.name, stmt.body
        if bindings[name] > 1 or not runs:
            name = names.fresh(name)
            body = substitute_coordinates(body, {stmt.name: Var(name)})
        lets[name] = replace(stmt, name=name, body=())
        if runs:
            return block(body)
        lazy.add(name)
        return (replace(stmt, value=Var(name), body=block(body, runs)),)

    body = block(program.body)
    if not lets:
        return program, DerivedSizes()
    sizes = (Size(let.name, let.lo, let.hi - 1) for let in lets.values())
    return replace(program, sizes=(*program.sizes, *sizes), body=body), DerivedSizes(
        lets, frozenset(lazy)
    )
