"""A program -> the same with conditions on the coordinates of loops further out, and in the bounds of loops.

    for s in 0:3                                        for s in 0:3
      for r in 0:3                                        if x + s - 1 >= 0
        for c in 0:64                              ->       for r in max(0, 1 - y):3
          if x + s - 1 >= 0 and y + r - 1 >= 0                for c in 0:64
            S                                                   S

A condition leaves a loop whose iterator it does not name: no statement changes what it names. It becomes a
bound of one whose iterator it does, where it names no axis of a tile, whose instances share their loops; and a
limit of an axis that it names: where isl shows that just the same iterations are left.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.conditions import conditional_term, conjunction, conjuncts
from offcut.core.expr import Compare, Expr, Var, all_loads, dtype_of, reads_memory, variables
from offcut.core.program import For, If, Program, Stmt, Store, Tile
from offcut.core.traversal import map_blocks
from offcut.polyhedral import Facts, Space, coefficient


def hoist_conditions(program: Program) -> Program:
    """Return `program` with its conditions as far out as they go."""
    return _Hoisting(program).hoist()


def unswitch(program: Program) -> Program:
    """Return `program` with loops over conditional terms inside of those of their conditions on elements that no iteration changes; itself
    where there are none::

        for t in 0:n                                                  if q[i] != q[i]
          S[i] += where(q[i] != q[i] and m[t] != 0, w[t], -0.0)  ->     for t in 0:n
                                                                          S[i] += where(q[i] != q[i] and m[t] != 0, w[t], -0.0)

    Theorem: an update under a condition that fails changes nothing, and the loop stores none of what the condition reads.
    LLVM: loop unswitching.
    """
    body = tuple(map(_unswitch, program.body))
    return program if body == program.body else replace(program, body=body)


def _unswitch(stmt: Stmt) -> Stmt:
    match stmt:
        case For(name, _, _, (Store(buffer) as store,)):
            term = conditional_term(store.value, store.reduce)
            invariant = [
                atom
                for atom in conjuncts(term[0] if term else conjunction(()))
                if reads_memory(atom)
                and name not in variables(atom)
                and all(load.buffer != buffer for load in all_loads(atom))
            ]
            return If(conjunction(invariant), (stmt,)) if invariant else stmt
    return map_blocks(stmt, lambda inner: tuple(map(_unswitch, inner)))


class _Hoisting:
    """One program, and what is known at a place of it."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.axes: set[str] = set()

    def hoist(self) -> Program:
        program = self.program
        at = Facts(Space(program.sizes, program.assumptions))
        return replace(program, body=self.block(program.body, at))

    def block(self, body: Sequence[Stmt], at: Facts) -> tuple[Stmt, ...]:
        return tuple(self.statement(stmt, at) for stmt in body)

    def statement(self, stmt: Stmt, at: Facts) -> Stmt:
        match stmt:
            case For(name, lo, hi, body):
                return self.loop(replace(stmt, body=self.block(body, at.loop(name, lo, hi))), at)
            case Tile():
                for axis in stmt.axes:
                    at = at.loop(axis.iter, axis.start, ix.add(axis.start, axis.extent))
                    self.axes.add(axis.iter)
                return replace(stmt, body=self.block(stmt.body, at))
            case _:
                return map_blocks(stmt, lambda inner: self.block(inner, at))

    def loop(self, loop: For, at: Facts) -> Stmt:
        """Return a loop, or a condition around it."""
        match loop.body:
            case (If(condition, then, ()),) if not reads_memory(condition):
                pass
            case _:
                return loop
        out: list[Expr] = []
        inside: list[Expr] = []
        for atom in conjuncts(condition):
            if loop.iter not in variables(atom):
                out.append(atom)
            elif along := variables(atom) & self.axes:
                inside.append(_limit(atom, along, at.loop(loop.iter, loop.lo, loop.hi)))
            elif (limited := _limit_loop(loop, atom, at)) is None:
                inside.append(atom)
            else:
                loop = limited
        result: Stmt = replace(loop, body=(If(conjunction(inside), then),) if inside else then)
        return If(conjunction(out), (result,)) if out else result


def _limit_loop(loop: For, atom: Expr, at: Facts) -> For | None:
    """Return `loop` with the iterations at which `atom` holds; None where bounds do not say them."""
    limit = bound(atom, loop.iter)
    if limit is None:
        return None
    if limit.op == ">=":
        limited = replace(loop, lo=ix.maximum(loop.lo, limit.b))
    else:
        limited = replace(loop, hi=ix.minimum(loop.hi, limit.b))
    name = Var(loop.iter)
    known = at.loop(loop.iter, loop.lo, loop.hi).where(atom)
    is_implied = known.holds(Compare(">=", name, limited.lo)) and known.holds(
        Compare("<", name, limited.hi)
    )
    return (
        limited if is_implied and at.loop(loop.iter, limited.lo, limited.hi).holds(atom) else None
    )


def _limit(atom: Expr, axes: Set[str], at: Facts) -> Expr:
    """Return an atom on one of `axes` as a limit of it, where isl shows that it is the same."""
    limit = bound(atom, *axes) if len(axes) == 1 else None
    same = limit is not None and at.where(atom).holds(limit) and at.where(limit).holds(atom)
    return limit if limit is not None and same else atom


def bound(atom: Expr, name: str) -> Compare | None:
    """Return a comparison as ``name >= lo`` or ``name < hi``; None where it is neither."""
    if not isinstance(atom, Compare) or atom.op not in (">=", "<", ">", "<="):
        return None
    if dtype_of(atom.a) != "index":
        return None
    difference = ix.sub(ix.sub(atom.a, atom.b), 1 if atom.op in (">", "<=") else 0)
    step = coefficient(difference, name)
    if not step:
        return None
    rest = ix.sub(difference, ix.mul(step, Var(name)))
    below = atom.op in ("<", "<=")
    if step > 0:
        return Compare("<" if below else ">=", Var(name), ix.ceildiv(ix.sub(0, rest), step))
    return Compare(">=" if below else "<", Var(name), ix.add(ix.floordiv(rest, -step), 1))
