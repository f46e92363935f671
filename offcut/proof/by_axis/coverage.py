"""What a program does along one axis, proved for all sizes: strips and an extent in, a witness or None out.

What was decided (`decision`) is kept by its text, with names made canonical: the rows of every
contraction cut alike are one theorem, and so are ``lo:hi`` and ``0:n``, where nothing but
``hi - lo`` matters. It is tried first for sizes about which nothing is known, so that it serves
them all; then with the facts there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

from offcut.core import index as ix
from offcut.core.expr import Compare, Expr, Var, dtype_of, rewrite, substitute, variables, walk
from offcut.core.program import Size
from offcut.polyhedral import Space
from offcut.proof.by_axis.contiguity import LEAST
from offcut.proof.by_axis.decision import CoverageCounterexample, decide_coverage, decide_within
from offcut.proof.by_axis.strips import NotSeparable, Strip, X

_EXTENT = Var("#e")  # an extent as a size


def prove_coverage(
    space: Space,
    extent: Expr,
    strips: Sequence[Strip],
    *,
    ordered: bool = False,
) -> CoverageCounterexample | None:
    """None where, for all sizes, the strips are ``0 <= X < extent``.

    missing   every coordinate lies in a strip
    outside   no other one does
    twice     it lies in one iteration of one strip; strips that repeat do not count
    late      a strip's coordinates are less than those of the strips behind it, if `ordered`; each
              strip must be a run of tiles, which ascends
    bounded   where a value's conditions hold, it lies in its range and its divisor is positive

    Raises NotSeparable where a part is not quasi-affine, or not of a form that keeps an order.
    """
    return _decide_coverage(
        space, extent, tuple(strip.joined() for strip in strips), ordered, decide_coverage
    )


def prove_containment(space: Space, inner: Strip, outer: Strip) -> CoverageCounterexample | None:
    """None where, for all sizes, `outer` meets each coordinate of `inner`, and meets it once.

    Raises NotSeparable where a part is not quasi-affine.
    """
    inner, outer = inner.joined(), outer.joined()
    if inner == outer and not inner.loops:
        return None
    return _decide_coverage(space, ix.const(0), (inner, outer), False, decide_within)


_Decide: TypeAlias = Callable[
    [Expr, tuple[Strip, ...], tuple[Size, ...], tuple[Expr, ...], bool],
    CoverageCounterexample | None,
]


def _decide_coverage(
    space: Space,
    extent: Expr,
    strips: tuple[Strip, ...],
    ordered: bool,
    ask: _Decide,
) -> CoverageCounterexample | None:
    """What `ask` says of any extent, where nothing else matters; else of these sizes."""
    alone = _in_extent(extent, strips)
    if alone is not None:
        sizes = Space((Size(_EXTENT.name, _least(space, extent)),))
        with suppress(NotSeparable):  # it may be seen by what is known of the sizes
            if _of_sizes(sizes, _EXTENT, alone, ordered, ask) is None:
                return None
    return _of_sizes(space, extent, strips, ordered, ask)


def _least(space: Space, extent: Expr) -> int:
    """What an extent is at least: 1, 0, or any number below; of a loop that runs, its cuts need not ask whether it does."""
    for least in (1, 0):
        below = space.condition(ix.compare("<", extent, least), {})
        if below is not None and space.set((), [below]).is_empty():
            return least
    return LEAST


def _in_extent(extent: Expr, strips: tuple[Strip, ...]) -> tuple[Strip, ...] | None:
    """`strips` over `_EXTENT` and their own names alone; None where sizes are left, or it is one."""
    form = ix.to_linear(extent)
    local = {X.name, _EXTENT.name}
    for strip in strips:
        local |= strip.bound_names
    for atom, factor in () if isinstance(extent, Var) else form.terms:
        if abs(factor) != 1:
            continue
        rest = ix.sub(extent, ix.mul(factor, atom))
        same = ix.mul(factor, ix.sub(_EXTENT, rest))

        def by_extent(expr: Expr, atom: Expr = atom, same: Expr = same) -> Expr:
            expanded = ix.fold_indices(rewrite(expr, lambda node: same if node == atom else None))
            if isinstance(expanded, Compare) and dtype_of(expanded.a) == "index":
                return ix.compare(expanded.op, ix.sub(expanded.a, expanded.b), 0)
            return expanded

        renamed = tuple(strip.mapped(by_extent) for strip in strips)
        if all(variables(expr) <= local for strip in renamed for expr in strip.exprs()):
            return renamed
    return None


def _of_sizes(
    space: Space,
    extent: Expr,
    strips: tuple[Strip, ...],
    ordered: bool,
    ask: _Decide,
) -> CoverageCounterexample | None:
    """What `ask` says with canonical names: for any sizes, else with the facts there are."""
    bound = {X.name}
    for strip in strips:
        bound |= strip.bound_names
    names: dict[str, str] = {X.name: X.name}
    for expr in (extent, *(e for strip in strips for e in strip.exprs())):
        for node in walk(expr):
            if isinstance(node, Var) and node.name not in names:
                names[node.name] = f"{'v' if node.name in bound else 's'}{len(names)}"
    for strip in strips:
        for name in (*(n for n, _, _ in strip.loops), *(value.name for value in strip.values)):
            names.setdefault(name, f"v{len(names)}")
    canonical = tuple(strip.renamed(names) for strip in strips)
    known = {size.name: size for size in space.sizes}
    if not {name for name in names if name not in bound} <= set(known):
        raise NotSeparable("a name that is not a size")
    length = _rename(extent, names)
    used = [name for name in names if name not in bound]
    plain = tuple(Size(names[name], min(0, known[name].min)) for name in used)
    decision = ask(length, canonical, plain, (), ordered)
    if decision is None:
        return None
    used = _connected_names(used, space.assumptions)
    names |= {name: f"s{name}" for name in used if name not in names}
    sizes = tuple(replace(known[name], name=names[name]) for name in used)
    facts = tuple(_rename(f, names) for f in space.assumptions if variables(f) <= set(used))
    if sizes != plain or facts:
        decision = ask(length, canonical, sizes, facts, ordered)
    if decision is None:
        return None
    back = {new: old for old, new in names.items()}
    return replace(decision, sizes=tuple((back[name], value) for name, value in decision.sizes))


def _connected_names(names: Sequence[str], facts: Iterable[Expr]) -> list[str]:
    """`names` and the sizes that `facts` tie them to."""
    connected, pending = list(names), [variables(fact) for fact in facts]
    grown = True
    while grown:
        grown = False
        for tied in pending:
            new = sorted(tied - set(connected)) if tied & set(connected) else []
            connected += new
            grown = grown or bool(new)
    return connected


def _rename(expr: Expr, names: Mapping[str, str]) -> Expr:
    return substitute(expr, {old: Var(new) for old, new in names.items()})
