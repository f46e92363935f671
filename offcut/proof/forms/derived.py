"""A program -> the same with its derived sizes written out where they are used.

    let T in 1:33 = (n + 15)//16
      let q in 1:17 = n//T                          let q in 1:17 = n//((n + 15)//16)
        let t in 0:33 = n - q*T            ->         for i in 0:n - q*((n + 15)//16)
          for i in 0:t

A `let` that divides by what is not a literal stays: sets take its literals one by one. So does one whose range is not shown,
by what is around it: there the value may break its promise.
"""

from __future__ import annotations

from dataclasses import replace

from offcut.core import index as ix
from offcut.core.conditions import conjuncts
from offcut.core.expr import Binary, Const, Expr, reads_memory, variables, walk
from offcut.core.program import Alloc, For, If, Let, Program, Stmt, substituted, with_blocks
from offcut.core.program import walk as statements
from offcut.core.walking import bound_in
from offcut.polyhedral import Facts, Space
from offcut.proof.forms.fixed import Entry, Fixed, Rebound


def underived(program: Program) -> Program:
    """`program` without bounded values that are sums, products, and quotients by literals, of what is fixed around them."""
    if not any(
        isinstance(stmt, Let) and _is_plain(stmt.value) for stmt in statements(program.body)
    ):
        return program
    body = _block(program, program.body, ())
    return program if body == program.body else replace(program, body=body)


def _block(program: Program, body: tuple[Stmt, ...], path: tuple[Entry, ...]) -> tuple[Stmt, ...]:
    made: list[Stmt] = []
    for stmt in body:
        match stmt:
            case Let(name, _, _, value) if _is_plain(value) and _is_in_range(program, stmt, path):
                inner = (*path, replace(stmt, body=()))
                made += substituted(_block(program, stmt.body, inner), {name: value})
            case Let() | For() | Alloc():
                inner = (*path, replace(stmt, body=()))
                made.append(replace(stmt, body=_block(program, stmt.body, inner)))
            case If(condition, then, other):
                holds, fails = conjuncts(condition), conjuncts(condition, False)
                first = _block(program, then, (*path, *holds))
                made.append(If(condition, first, _block(program, other, (*path, *fails))))
            case _:
                made.append(with_blocks(stmt, lambda inside: _block(program, inside, path)))
    return tuple(made)


def _is_plain(value: Expr) -> bool:
    if reads_memory(value):
        return False
    divisions = (e for e in walk(value) if isinstance(e, Binary) and e.op in ("//", "%"))
    return all(isinstance(e.b, Const) and e.b.value > 0 for e in divisions)


def _is_in_range(program: Program, let: Let, path: tuple[Entry, ...]) -> bool:
    """Whether what is around shows that a bounded value is in its range, and nothing inside takes a name that is in it."""
    if bound_in(let.body) & (variables(let.value) | {let.name}):
        return False
    try:
        fixed = Fixed(program, path, (let.name,))
    except Rebound:
        return False
    value = fixed.named(let.value)
    at = Facts(Space(fixed.sizes, fixed.facts))
    low, high = ix.compare("<=", let.lo, value), ix.compare("<", value, let.hi)
    return at.holds(low) and at.holds(high)
