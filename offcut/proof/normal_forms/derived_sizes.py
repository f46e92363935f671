"""A program -> the same with its derived sizes written out where they are used.

    let T in 1:33 = (n + 15)//16
      let q in 1:17 = n//T                          let q in 1:17 = n//((n + 15)//16)
        let t in 0:33 = n - q*T            ->         for i in 0:n - q*((n + 15)//16)
          for i in 0:t

A `let` that divides by what is not a literal stays: sets take its literals one by one. So does one whose range is not shown,
by what is around it: there the value may break its promise, and `find_broken_range` says at which sizes it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product

from offcut.core import index as ix
from offcut.core.conditions import conjuncts
from offcut.core.expr import Binary, Const, Expr, reads_memory, variables, walk
from offcut.core.interpret.values import evaluate
from offcut.core.program import Alloc, For, If, Let, Program, Size, Stmt
from offcut.core.program import walk as statements
from offcut.core.traversal import all_bound_names, map_blocks, substitute_coordinates
from offcut.polyhedral import Facts, Space, try_isl
from offcut.proof.normal_forms.fixed_names import Entry, FixedNames, RebindingError

_MOST_POINTS = 1024  # combinations of sizes at which a value is looked at
_FIRST = 600  # sizes from the least one on, of a program of one size


def write_out_derived_sizes(program: Program) -> Program:
    """Return `program` without bounded values that are sums, products, and quotients by literals, of what is fixed around them;
    the same one where that takes isl more than a pass may.
    """
    if not any(
        isinstance(stmt, Let) and _is_plain(stmt.value) for stmt in statements(program.body)
    ):
        return program
    body = try_isl(lambda: _block(program, program.body, ()), program.body)
    return program if body == program.body else replace(program, body=body)


def _block(program: Program, body: tuple[Stmt, ...], path: tuple[Entry, ...]) -> tuple[Stmt, ...]:
    statements: list[Stmt] = []
    for stmt in body:
        match stmt:
            case Let(name, _, _, value) if _is_plain(value) and _is_in_range(program, stmt, path):
                inner = (*path, replace(stmt, body=()))
                statements += substitute_coordinates(
                    _block(program, stmt.body, inner), {name: value}
                )
            case Let() | For() | Alloc():
                inner = (*path, replace(stmt, body=()))
                statements.append(replace(stmt, body=_block(program, stmt.body, inner)))
            case If(condition, then, other):
                holds, fails = conjuncts(condition), conjuncts(condition, False)
                first = _block(program, then, (*path, *holds))
                statements.append(If(condition, first, _block(program, other, (*path, *fails))))
            case _:
                statements.append(map_blocks(stmt, lambda inside: _block(program, inside, path)))
    return tuple(statements)


def _is_plain(value: Expr) -> bool:
    if reads_memory(value):
        return False
    divisions = (e for e in walk(value) if isinstance(e, Binary) and e.op in ("//", "%"))
    return all(isinstance(e.b, Const) and e.b.value > 0 for e in divisions)


def _is_in_range(program: Program, let: Let, path: tuple[Entry, ...]) -> bool:
    """Return whether what is around shows that a bounded value is in its range, and nothing inside takes a name that is in it."""
    if all_bound_names(let.body) & (variables(let.value) | {let.name}):
        return False
    try:
        fixed = FixedNames(program, path, (let.name,))
    except RebindingError:
        return False
    value = fixed.name_products(let.value)
    at = Facts(Space(fixed.sizes, fixed.facts))
    low, high = ix.compare("<=", let.lo, value), ix.compare("<", value, let.hi)
    return at.holds(low) and at.holds(high)


def find_broken_range(program: Program) -> tuple[Let, dict[str, int]] | None:
    """Return a bounded value over sizes alone that leaves its range where it is reached, and the first sizes tried at which
    it does; None if none is found.

    It is looked at, not proved: the least values of each size, powers of two about them, and the greatest.
    """
    if not any(isinstance(stmt, Let) for stmt in statements(program.body)):
        return None
    names = [size.name for size in program.sizes]
    each = [_sample_values(size, len(names)) for size in program.sizes]
    for values in sorted(product(*each), key=lambda one: (sum(one), one)):
        at = dict(zip(names, values, strict=True))
        if all(evaluate(fact, at) for fact in program.assumptions):
            let = _find_broken_value(program.body, at)
            if let is not None:
                return let, at
    return None


def _sample_values(size: Size, count: int) -> list[int]:
    """Some values of one of `count` sizes, the least and the greatest among them."""
    first = _FIRST if count == 1 else max(2, int(_MOST_POINTS ** (1 / count)) // 2)
    offsets = [k * size.multiple_of for k in range(first)]
    far = [2**k + near for k in range(first.bit_length(), 31) for near in (-1, 0, 1)]
    spread = far if count == 1 else far[:: max(1, -(-len(far) // first))]
    values = (size.at_or_above(size.min + offset) for offset in (*offsets, *spread))
    return list(dict.fromkeys((*values, size.last)))


def _find_broken_value(body: Iterable[Stmt], at: Mapping[str, int]) -> Let | None:
    """Return the first bounded value in a block that leaves its range, with these values of what is around.

    What depends on anything else, as a counter, is not looked at, and neither is what it is around.
    """
    known = at.keys()
    for stmt in body:
        let: Let | None = None
        match stmt:
            case Let(name, lo, hi, value) if _is_of(value, known):
                number = evaluate(value, at) if _divides(value, at) else hi
                if not lo <= number < hi:
                    return stmt
                let = _find_broken_value(stmt.body, {**at, name: int(number)})
            case For(name, lo, hi) if _is_of(lo, known) and _is_of(hi, known):
                if _divides(lo, at) and _divides(hi, at) and evaluate(lo, at) < evaluate(hi, at):
                    let = _find_broken_value(stmt.body, at)
            case If(condition, then, other) if _is_of(condition, known):
                if _divides(condition, at):
                    let = _find_broken_value(then if evaluate(condition, at) else other, at)
            case Alloc():
                let = _find_broken_value(stmt.body, at)
        if let is not None:
            return let
    return None


def _is_of(expr: Expr, names: Iterable[str]) -> bool:
    return not reads_memory(expr) and variables(expr) <= set(names)


def _divides(expr: Expr, at: Mapping[str, int]) -> bool:
    """Return whether each divisor of an expression is positive."""
    divisors = (e.b for e in walk(expr) if isinstance(e, Binary) and e.op in ("//", "%"))
    return all(evaluate(divisor, at) > 0 for divisor in divisors)
