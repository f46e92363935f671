"""The largest values that a kernel computes in 32 bits, as expressions over the sizes.

Indices are ints in the text of a kernel, and addresses of arrays of several axes are not: a size that makes an index
larger than that is refused at the call, with the value that this file bounds. A sum is bounded by its positive and by its
negative terms apart, so that each of its partial sums is, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from offcut.core import index as ix
from offcut.core.expr import Binary, Expr, Select, Var, children, dtype_of
from offcut.core.interpret.values import evaluate
from offcut.core.program import For, Let, Program, Stmt, Tile, blocks
from offcut.core.text.printer import format_expr
from offcut.core.traversal import expressions

ZERO = ix.const(0)


def index_bounds(program: Program, launch: Stmt, limit: int) -> tuple[Expr, ...]:
    """Return bounds of the indices that a launch computes, over the sizes; those alone that some allowed sizes make larger than `limit`."""
    largest = {size.name: size.max for size in program.sizes}
    bounds: dict[Expr, None] = {}
    sizes: Iterator[Expr] = (Var(size.name) for size in program.sizes)
    extents = (extent for buffer in program.buffers for extent in buffer.shape)
    for bound in (*sizes, *_all_bounds(tuple(extents), {}), *_of_statement(launch, {})):
        if int(evaluate(bound, largest)) > limit:
            bounds[bound] = None
    return tuple(sorted(bounds, key=format_expr))


def _of_statement(stmt: Stmt, bounds: Mapping[str, Expr]) -> Iterator[Expr]:
    """Yield bounds of all indices of a statement.

    bounds  of the iterators around it
    """
    yield from _all_bounds(expressions(stmt), bounds)
    inner = dict(bounds)
    match stmt:
        case For(name, lo, hi, _):
            inner[name] = _larger(_magnitude_bound(lo, bounds), _magnitude_bound(hi, bounds))
        case Let(name, _, hi, value, _):
            inner[name] = ix.minimum(_magnitude_bound(value, bounds), hi)
        case Tile(axes, _, _):
            for axis in axes:
                inner[axis.iter] = ix.add(
                    _magnitude_bound(axis.start, bounds), _magnitude_bound(axis.extent, bounds)
                )
                yield inner[axis.iter]
    for body in blocks(stmt):
        for child in body:
            yield from _of_statement(child, inner)


def _all_bounds(exprs: tuple[Expr, ...], bounds: Mapping[str, Expr]) -> Iterator[Expr]:
    """Yield a bound of each index in expressions, and of each index that it is made of."""
    for expr in exprs:
        if dtype_of(expr) == "index":
            yield _magnitude_bound(expr, bounds)
            parts = tuple(atom for atom, _ in ix.to_linear(expr).terms)
            if parts == (expr,):
                parts = children(expr)
            yield from _all_bounds(parts, bounds)
        else:
            yield from _all_bounds(children(expr), bounds)


def _magnitude_bound(expr: Expr, bounds: Mapping[str, Expr]) -> Expr:
    """Return an upper bound of the magnitude of an index."""
    form = ix.to_linear(expr)
    if form.terms == ((expr, 1),):
        return _atom_bound(expr, bounds)
    above: Expr = ix.const(max(form.const, 0))
    below: Expr = ix.const(max(-form.const, 0))
    for atom, factor in form.terms:
        term = ix.mul(_magnitude_bound(atom, bounds), abs(factor))
        if factor > 0 or not ix.is_nonnegative(atom):
            above = ix.add(above, term)
        if factor < 0 or not ix.is_nonnegative(atom):
            below = ix.add(below, term)
    return _larger(above, below)


def _atom_bound(expr: Expr, bounds: Mapping[str, Expr]) -> Expr:
    match expr:
        case Var(name):
            return bounds.get(name, expr)
        case Binary("//", a, b):
            bound, divisor = _magnitude_bound(a, bounds), ix.literal_value(b)
            quotient = bound if divisor is None else ix.floordiv(bound, divisor)
            return quotient if ix.is_nonnegative(a) else ix.add(quotient, 1)
        case Binary("%", a, b):
            return _magnitude_bound(b, bounds)
        case Binary("min", a, b) if ix.is_nonnegative(a) and ix.is_nonnegative(b):
            return ix.minimum(_magnitude_bound(a, bounds), _magnitude_bound(b, bounds))
        case Binary("min" | "max", a, b) | Select(_, a, b):
            return _larger(_magnitude_bound(a, bounds), _magnitude_bound(b, bounds))
        case Binary("*", a, b):
            return ix.mul(_magnitude_bound(a, bounds), _magnitude_bound(b, bounds))
    return ZERO  # an element, which is checked where it is read


def _larger(a: Expr, b: Expr) -> Expr:
    """Return the larger of two magnitudes, which are never below 0."""
    return b if a == ZERO else a if b == ZERO else ix.maximum(a, b)
