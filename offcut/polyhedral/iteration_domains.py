"""Compute iteration domains: the instances that reach a statement, from what encloses it, and bounded values.

A `Let` is a finite union over the literals of its range, which is how a program with heights
``n // ceil(n / 14)`` is quasi-affine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from offcut.core import index as ix
from offcut.core.conditions import conjunction, conjuncts
from offcut.core.expr import Compare, Expr, Logic, Var, loads, substitute
from offcut.core.program import For, Form, If, Let, Program, Stmt, Tile, Tree
from offcut.core.text.printer import format_expr
from offcut.core.traversal import walk_with_parents
from offcut.errors import PartitionError
from offcut.polyhedral.affine import Space, coordinates, parse_set
from offcut.polyhedral.dependences import Statement, statements
from offcut.polyhedral.facts import EnclosingScope, equal, in_range


def iteration_domain(
    space: Space, path: Sequence[tuple[Stmt, bool]], names: Sequence[str]
) -> isl.Set:
    """Return the instances that run inside of `path`, as points over `names`; other loops count tiles.

    path   what encloses them, outermost first; of an `if`, whether its condition holds there

    Raises PartitionError for a bound or a condition that is not quasi-affine.
    """
    reading = _Reading(space, {}, {}, (), None)
    instances = space.set(names, ["1 = 0"])
    for inner_reading in reading.inside(path):
        instances |= inner_reading.points(names)
    return instances


@dataclass(frozen=True, slots=True)
class UnboundedLet:
    """The sizes at which a bounded value leaves its range, or its divisor is not positive.

    open   whether a condition around it is no set, and may keep it from that
    """

    let: Let
    sizes: isl.Set
    open: bool


def find_unbounded_lets(space: Space, tree: Tree) -> list[UnboundedLet]:
    """Return every `Let` in `tree` whose value can leave its range where it is reached.

    Raises PartitionError for a value that is not quasi-affine.
    """
    lets: list[UnboundedLet] = []
    for let, path in walk_with_parents(tree):
        if not isinstance(let, Let) or _is_in_range(let, EnclosingScope(space), path):
            continue
        entries = tuple((_tile_of_all_lanes(stmt), number == 0) for stmt, number in path)
        for reading in _Reading(space, {}, {}, (), open=False).inside(entries):
            inside = reading.text(let.value, in_range(reading.close(let.value), let.lo, let.hi))
            sizes = reading.with_condition(f"not ({inside})").points(())
            if not sizes.is_empty():
                lets.append(UnboundedLet(let, sizes, bool(reading.open)))
    return lets


def _is_in_range(let: Let, at: EnclosingScope, path: Sequence[tuple[Stmt, int]]) -> bool:
    """Return whether what is around it shows that a value is in its range."""
    for stmt, number in path:
        match _tile_of_all_lanes(stmt):
            case For() as loop:
                at = at.loop(loop)
            case Tile(_, _, where) as tile:
                at = at.loop(tile) if where is None else at.loop(tile).where(where)
            case If(condition):
                at = at.where(condition, holds=number == 0)
            case Let() as outer:
                at = at.inside(outer)
    return all(map(at.implies, in_range(let.value, let.lo, let.hi)))


def _tile_of_all_lanes(stmt: Stmt) -> Stmt:
    """Return a tile whose lanes that are off run all the same without the condition that switches them off."""
    pads = isinstance(stmt, Tile) and stmt.form is Form.PAD
    return replace(stmt, where=None) if pads and isinstance(stmt, Tile) else stmt


@dataclass(frozen=True, slots=True)
class _Reading:
    """The state of reading: isl's names of loops, the literals of bounded values, and conditions.

    open  whether a condition that is no set was left out; None: such a one is refused
    """

    space: Space
    loops: Mapping[str, str]
    values: Mapping[str, Expr]
    holds: tuple[str, ...]
    open: bool | None

    def inside(self, path: Sequence[tuple[Stmt, bool]]) -> Iterator[_Reading]:
        """Yield the reading inside of all of `path`, for each literal of the bounded values in it."""
        if not path:
            yield self
            return
        (stmt, branch), rest = path[0], path[1:]
        match stmt:
            case For(name, lo, hi):
                yield from self.loop(self, name, lo, hi).inside(rest)
            case Tile(axes, _, where):
                inner = self
                for axis in axes:
                    inner = inner.loop(self, axis.iter, axis.start, ix.add(axis.start, axis.extent))
                inner = inner if where is None else inner.where(where)
                yield from inner.inside(rest)
            case If(condition):
                yield from self.where(condition, branch).inside(rest)
            case Let(name, lo, hi, value):
                for literal in range(lo, hi):
                    with_literal = replace(self, values={**self.values, name: ix.const(literal)})
                    equals = self.text(value, equal(self.close(value), ix.const(literal)))
                    yield from with_literal.with_condition(equals).inside(rest)
            case _:
                yield from self.inside(rest)

    def loop(self, outer: _Reading, name: str, lo: Expr, hi: Expr) -> _Reading:
        """Return the reading inside of a loop, whose bounds are read by `outer`."""
        x = f"v{len(self.loops)}"
        inner = replace(self, loops={**self.loops, name: x})
        lower, end = (outer.read(edge, self.space.expr) for edge in (lo, hi))
        inner = inner.with_condition(None if lower is None else f"{lower} <= {x}")
        return inner.with_condition(None if end is None else f"{x} < {end}")

    def where(self, condition: Expr, holds: bool = True) -> _Reading:
        """Return the reading where a condition holds, or fails."""
        inner = self
        for part in conjuncts(condition, holds):
            inner = inner.with_condition(self.read(part, self.space.condition))
        return inner

    def with_condition(self, condition: str | None) -> _Reading:
        """Return the reading with a condition as isl text; None: it is not quasi-affine."""
        if condition is None:
            return replace(self, open=True)
        return replace(self, holds=(*self.holds, condition))

    def close(self, expr: Expr) -> Expr:
        return ix.simplify(substitute(expr, self.values)) if self.values else expr

    def text(self, value: Expr, conditions: Sequence[Expr]) -> str:
        """Return conditions on a value as isl text."""
        texts = (self.space.condition(one, self.loops) for one in conditions)
        return " and ".join(_text_or_error(text, value) for text in texts)

    def read(self, expr: Expr, by: Callable[[Expr, Mapping[str, str]], str | None]) -> str | None:
        """Return a text, which is None where one may be left out."""
        text = by(self.close(expr), self.loops)
        return _text_or_error(text, expr) if self.open is None else text

    def points(self, names: Sequence[str]) -> isl.Set:
        """Return the points over these loops at which all conditions hold."""
        isl_names = [self.loops[name] for name in names]
        others = [x for x in self.loops.values() if x not in isl_names]
        exists = f"exists {', '.join(others)} : " if others else ""
        head = f"{self.space.parameters}{{ [{', '.join(isl_names)}] : {exists}"
        return parse_set(f"{head}{' and '.join([self.space.facts, *self.holds])} }}")


def _text_or_error(text: str | None, expr: Expr) -> str:
    if text is not None:
        return text
    raise PartitionError(
        "prove",
        f"cannot read {format_expr(expr)} as a set",
        because="it is not quasi-affine: isl decides sums, integer multiples, and // and % "
        "by positive constants",
    )


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
