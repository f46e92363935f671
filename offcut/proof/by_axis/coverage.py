"""What a program does along each axis, proved for all sizes: strips and an extent in, a witness or None out.

What was decided (`decision`) is kept by its text, with names made canonical: the rows of every
contraction cut alike are one theorem, and so are ``lo:hi`` and ``0:n``, where nothing but
``hi - lo`` matters. It is tried first for sizes about which nothing is known, so that it serves
them all; then with the facts there are.

The loops, windows and conditions around a tile -> for each axis the strip of coordinates that the tile runs.

In nearly every cut, the instances that a tile runs are a product: each loop, window and condition
around a store speaks of one axis, and the sizes. Then, with the statements grouped by what they say
about an axis a,

    covering   the groups' coordinates on a cover the axis, and each group covers the other axes
    disjoint   the groups are disjoint on a, and each is disjoint on the other axes

suffice, one axis after the other, and each axis is a question in one dimension (`coverage.py`). A
condition on sizes alone may stand with any axis: for given sizes, the product is the same. It is
put where its subterms occur; a poor choice can only make the proof fail. A program of another form is
`NotSeparable`, which says nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from offcut.core import index as ix
from offcut.core.conditions import conjuncts
from offcut.core.expr import (
    Compare,
    Const,
    Expr,
    Var,
    dtype_of,
    rewrite,
    substitute,
    variables,
    walk,
)
from offcut.core.program import For, Form, If, Let, Size, Stmt, Tile
from offcut.describe.computation import StageAxis
from offcut.polyhedral import Space
from offcut.proof.by_axis.contiguity import LEAST
from offcut.proof.by_axis.decision import CoverageCounterexample, decide_coverage, decide_within
from offcut.proof.by_axis.strips import NotSeparable, Strip, Value, X

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


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tile of a program, and what encloses it; what stands in no tile is one of no axes.

    path  loops, values, and conditions that hold, outermost first
    """

    path: tuple[For | Let | Expr, ...]
    tile: Tile


def strips_of(space: Space, body: tuple[Stmt, ...], axis: str) -> list[Strip]:
    """What each tile of a program over one axis says about it."""
    alone = (StageAxis(axis, ix.const(0), axis),)
    products = [product_of(leaf, alone, space) for leaf in _leaves(body, ())]
    return [replace(one[axis], repeats=one[""].repeats) for one in products]


def _leaves(body: Sequence[Stmt], path: tuple[For | Let | Expr, ...]) -> Iterator[Leaf]:
    """The tiles in a block, inside of `path`."""
    for stmt in body:
        match stmt:
            case For(body=inner) | Let(body=inner):
                yield from _leaves(inner, (*path, stmt))
            case If(condition, then, other):
                yield from _leaves(then, (*path, *conjuncts(condition)))
                yield from _leaves(other, (*path, *conjuncts(condition, False)))
            case Tile():
                yield Leaf(path, stmt)
            case _:
                raise NotSeparable("a statement outside of all tiles")


def fills(space: Space, axes: Sequence[StageAxis], products: Sequence[dict[str, Strip]]) -> bool:
    """Whether it shows that the products cover all of `axes` and, but for those that repeat, are disjoint."""
    if not axes:
        return bool(products) and sum(not product[""].repeats for product in products) <= 1
    for axis in axes:
        groups: dict[Strip, list[dict[str, Strip]]] = {}
        for product in products:
            alone = replace(product[axis.name], repeats=False)
            groups.setdefault(alone, []).append(product)
        strips = [
            replace(strip, repeats=all(one[""].repeats for one in group))
            for strip, group in groups.items()
        ]
        if prove_coverage(space, axis.extent, strips) is not None:
            continue
        rest = [other for other in axes if other is not axis]
        if all(fills(space, rest, group) for group in groups.values()):
            return True
    return False


def product_of(leaf: Leaf, axes: Sequence[StageAxis], space: Space) -> dict[str, Strip]:
    """What a tile says about each axis; the entry ``""`` says whether it may repeat."""
    names = {axis.name for axis in axes}
    sizes = {size.name for size in space.sizes}
    path: list[For | Let | Expr] = list(leaf.path)
    windows = {}
    for axis in leaf.tile.axes:
        windows[axis.iter] = (axis.start, ix.add(axis.start, axis.extent))
    loops = [entry for entry in path if isinstance(entry, For)]
    lets = [entry for entry in path if isinstance(entry, Let)]
    bound = [*(one.iter for one in loops), *windows, *(one.name for one in lets)]
    if len(set(bound)) != len(bound) or set(bound) & sizes:
        raise NotSeparable("a name that is bound twice")
    windows |= {one.iter: (one.lo, one.hi) for one in loops if one.iter in names}
    if set(windows) != names:
        raise NotSeparable("a tile over other axes than its stage's")
    _check_scopes(leaf, sizes)
    conditions = [entry for entry in path if not isinstance(entry, For | Let)]
    if leaf.tile.where is not None:
        conditions += conjuncts(leaf.tile.where)
    classes = _Classes(bound)
    for one in loops:
        classes.join({one.iter} | variables(one.lo) | variables(one.hi))
    for name, (start, end) in windows.items():
        classes.join({name} | variables(start) | variables(end))
    for condition in conditions:
        classes.join(variables(condition))
    home: dict[str, str] = {}
    for name in names:
        if classes.root(name) in home:
            raise NotSeparable("two axes in one condition")
        home[classes.root(name)] = name
    used = set().union(
        *(variables(e) for w in windows.values() for e in w),
        *(variables(condition) for condition in conditions),
        *(variables(e) for one in loops for e in (one.lo, one.hi)),
    )
    where: dict[str, list[Expr]] = {name: [] for name in names}
    terms: dict[str, list[Expr]] = {name: list(windows[name]) for name in names}
    for one in loops:
        if classes.root(one.iter) not in home:
            raise NotSeparable("a loop that no axis depends on")
        terms[home[classes.root(one.iter)]] += [one.lo, one.hi]
    for let in lets:
        if let.name in used and classes.root(let.name) in home:
            terms[home[classes.root(let.name)]].append(let.value)
        elif let.name in used:
            raise NotSeparable("a value that no axis depends on")
    for condition in conditions:
        inner = variables(condition) & set(bound)
        if inner:
            where[home[classes.root(min(inner))]].append(condition)
    for entry in conditions:
        if not variables(entry) & set(bound):
            axis_name = _nearest(entry, terms, _inside(entry, path, classes, home))
            where[axis_name].append(entry)
    strips = {"": Strip(ix.const(0), ix.const(1), repeats=leaf.tile.form is Form.SHIFT)}
    for name in names:
        to_x: dict[str, Expr] = {name: X}

        def at(expr: Expr, to_x: dict[str, Expr] = to_x) -> Expr:
            return substitute(expr, to_x)

        root = classes.root(name)
        start, end = windows[name]
        strips[name] = Strip(
            start,
            end,
            tuple(
                (one.iter, one.lo, one.hi)
                for one in loops
                if one.iter != name and classes.root(one.iter) == root
            ),
            tuple(at(condition) for condition in where[name]),
            tuple(
                _value(let, path, set(bound), where[name])
                for let in lets
                if classes.root(let.name) == root and let.name in used
            ),
        )
    for let in lets:
        if let.name not in used:
            raise NotSeparable("a value that nothing uses")
    return _canonical(strips)


def _check_scopes(leaf: Leaf, sizes: set[str]) -> None:
    """Whether each expression speaks of what is bound around it."""
    known = set(sizes)
    for entry in leaf.path:
        match entry:
            case For(iter=name, lo=lo, hi=hi):
                used, new = variables(lo) | variables(hi), {name}
            case Let(name=name, value=value):
                used, new = variables(value), {name}
            case _:
                used, new = variables(entry), set()
        if not used <= known:
            raise NotSeparable("a name that nothing binds")
        known |= new
    tile = leaf.tile
    if not all(variables(axis.start) | variables(axis.extent) <= known for axis in tile.axes):
        raise NotSeparable("a name that nothing binds")
    known |= {axis.iter for axis in tile.axes}
    if tile.where is not None and not variables(tile.where) <= known:
        raise NotSeparable("a name that nothing binds")


def _value(
    let: Let, path: Sequence[For | Let | Expr], bound: set[str], mine: Sequence[Expr]
) -> Value:
    """A bounded value, with those of its axis' conditions around it that speak of sizes alone."""
    if variables(let.value) & bound:
        raise NotSeparable("a bounded value of other than sizes")
    around = path[: next(k for k, entry in enumerate(path) if entry is let)]
    conditions = tuple(c for c in mine if not variables(c) & bound and any(c is e for e in around))
    return Value(let.name, let.lo, let.hi, let.value, conditions)


def _inside(
    entry: Expr, path: Sequence[For | Let | Expr], classes: _Classes, home: dict[str, str]
) -> str | None:
    """The axis of the first loop or value inside a condition."""
    behind = [k for k, other in enumerate(path) if other is entry]
    for other in path[behind[0] + 1 :] if behind else ():
        if isinstance(other, For | Let):
            return home.get(classes.root(other.iter if isinstance(other, For) else other.name))
    return None


def _nearest(condition: Expr, terms: dict[str, list[Expr]], inside: str | None) -> str:
    """The axis that shares most with a condition on sizes; where equal, the one inside of it."""
    if not terms:
        raise NotSeparable("a condition around no axis")
    parts = {node for node in walk(condition) if not isinstance(node, Const)}

    def shared(axis: str) -> tuple[int, bool]:
        known = {node for expr in terms[axis] for node in walk(expr)}
        return len(parts & known), axis == inside

    return max(sorted(terms), key=shared)


def _canonical(strips: dict[str, Strip]) -> dict[str, Strip]:
    """Counters and values named by position, so that equal strips are equal as nodes."""
    result = {}
    for name, strip in strips.items():
        local = [*(n for n, _, _ in strip.loops), *(v.name for v in strip.values)]
        new: dict[str, Expr] = {old: Var(f"#{k}") for k, old in enumerate(local)}

        def at(expr: Expr, new: dict[str, Expr] = new) -> Expr:
            return substitute(expr, new)

        result[name] = Strip(
            at(strip.lower),
            at(strip.upper),
            tuple((f"#{k}", at(lo), at(hi)) for k, (_, lo, hi) in enumerate(strip.loops)),
            tuple(at(condition) for condition in strip.holds),
            tuple(
                replace(v, name=f"#{len(strip.loops) + k}", value=at(v.value))
                for k, v in enumerate(strip.values)
            ),
            strip.repeats,
        )
    return result


class _Classes:
    """Names that occur together in a bound or a condition, joined."""

    def __init__(self, names: Sequence[str]) -> None:
        self.above = {name: name for name in names}

    def root(self, name: str) -> str:
        while self.above[name] != name:
            name = self.above[name]
        return name

    def join(self, names: Set[str]) -> None:
        roots = sorted({self.root(name) for name in names if name in self.above})
        for other in roots[1:]:
            self.above[other] = roots[0]
