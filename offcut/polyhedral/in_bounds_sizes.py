"""Find the sizes at which a program stays in its arrays, as conditions that it can assume."""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl

from offcut.core import index as ix
from offcut.core.conditions import conjunction, conjuncts
from offcut.core.expr import Compare, Expr, Logic, Var, loads
from offcut.core.program import Program
from offcut.polyhedral.affine import Space, coordinates, parse_set
from offcut.polyhedral.dependences import Statement, statements

_PARAM = isl.dim_type.param


def in_bounds_sizes(program: Program) -> tuple[Expr, ...]:
    """Return conditions on the sizes of every call in which no access leaves its array.

    With ``outside = { sizes : some instance runs, whose index fails 0 <= index < shape }`` conditions of
    ``sizes - outside``; of a part of it that is no conjunction of affine inequalities, weaker ones.
    An access whose index, extent or guard is not quasi-affine says nothing. Where accesses are in
    bounds by the language, these are facts. There is none where some access could never run.
    """
    space = Space(program.sizes, program.assumptions)
    nowhere = parse_set(f"{space.parameters}{{ : 1 = 0 }}")
    outside, running = nowhere, []
    for one in statements(program):
        for buffer, index, path in _accesses(one):
            read = _size_sets(space, one, index, program.buffer(buffer).shape, path)
            if read is not None:
                outside |= read[1]
                running.append(read[0])
    in_bounds = space.context - outside
    if outside.is_empty() or any((runs & in_bounds).is_empty() for runs in running):
        return ()
    simplified = in_bounds.remove_divs().coalesce().gist(space.context)
    parts = [_to_condition(part, program) for part in simplified.get_basic_sets()]
    if len(parts) == 1:
        return tuple(conjuncts(parts[0]))
    return (Logic("or", tuple(parts)),)


def _accesses(one: Statement) -> Iterator[tuple[str, tuple[Expr, ...], tuple[Expr, ...]]]:
    yield one.store.buffer, one.store.index, one.conditions
    for expr in (one.store.value, *one.store.index):
        for load, path in loads(expr):
            yield load.buffer, load.index, (*one.conditions, *path)


def _size_sets(
    space: Space,
    one: Statement,
    index: tuple[Expr, ...],
    shape: tuple[Expr, ...],
    path: tuple[Expr, ...],
) -> tuple[isl.Set, isl.Set] | None:
    """Return the sizes at which an access runs, and at which it leaves its array; None if it is not quasi-affine."""
    at = coordinates(one.iterators)
    optional_texts = [
        space.condition(part, at) for condition in path for part in conjuncts(condition)
    ]
    parts = [space.expr(part, at) for part in index]
    extents = [space.expr(extent, {}) for extent in shape]
    if not parts or None in (*optional_texts, *parts, *extents):
        return None
    wrong = " or ".join(f"({e}) < 0 or ({e}) >= ({n})" for e, n in zip(parts, extents, strict=True))
    texts = [text for text in optional_texts if text is not None]
    runs, leaves = space.set(one.iterators, texts), space.set(one.iterators, [*texts, f"({wrong})"])
    return runs.params(), leaves.params()


def _to_condition(part: isl.BasicSet, program: Program) -> Expr:
    """Return affine constraints over the sizes as a condition."""
    conditions: list[Expr] = []
    for constraint in part.get_constraints():
        total: Expr = ix.const(int(constraint.get_constant_val().to_python()))
        for k, size in enumerate(program.sizes):
            factor = int(constraint.get_coefficient_val(_PARAM, k).to_python())
            total = ix.add(total, ix.mul(factor, Var(size.name)))
        conditions.append(Compare("==" if constraint.is_equality() else ">=", total, ix.const(0)))
    return conjunction(conditions)
