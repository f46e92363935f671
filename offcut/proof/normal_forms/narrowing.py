"""A cut program whose terms have conditions -> the same with loops that end where these do.

`without_unread_elements`, then `narrow_terms`::

    tile i in 14*u +: 14, j in 32*v +: 32                if 32*v < 14*u + 14
      S[i, j] = 0.0                                        tile i in 14*u +: 14, j in 32*v +: 32
      for d in 0:64                                          S[i, j] = 0.0
        S[i, j] += Q[i, d] * K[d, j]                         for d in 0:64
                                                     ->        S[i, j] += Q[i, d] * K[d, j]
    tile i in 14*u +: 14, j in 0 +: 64                   tile i in 14*u +: 14, j in 0 +: 64
      Y[i, j] = 0.0                                        Y[i, j] = 0.0
      for t in 0:n                                         for t in 0:14*u + 1
        Y[i, j] += where(t <= i, S[i, t] * V[t, j], -0.0)    Y[i, j] += S[i, t] * V[t, j]
                                                         for i in 14*u:14*u + 14
                                                           tile j in 0 +: 64
                                                             for t in 14*u + 1:i + 1
                                                               Y[i, j] += S[i, t] * V[t, j]

Elements. Theorem: where every read of a local array asks that some condition holds of the element, the value of an element at
which it fails reaches no result, so a tile of such elements alone is none. A read in a term asks what the term does, one in a
statement that stores such an array what is asked of the element that it stores.

Terms. An update by what changes nothing (-0.0, an infinity of the right sign) is none. Terms that all rows of a tile have stay in
it; those of some, before and behind these, are added row by row, so in the order that they had. This step is proved as any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import reduce
from math import lcm

from offcut.core import index as ix
from offcut.core.analysis import analysis
from offcut.core.conditions import (
    at_another_place,
    at_least_zero,
    conditional_term,
    conjunction,
    conjuncts,
    read_only_element,
)
from offcut.core.expr import (
    Binary,
    Compare,
    Expr,
    Load,
    Var,
    all_loads,
    loads,
    reads_memory,
    substitute,
    variables,
)
from offcut.core.intervals import ends
from offcut.core.memo import memo
from offcut.core.plain_loops import tile_to_loops
from offcut.core.program import For, Form, If, Kind, Program, Role, Stmt, Store, Tile, walk
from offcut.core.traversal import expressions, map_blocks
from offcut.polyhedral import Facts, Space
from offcut.polyhedral.affine import coefficient
from offcut.proof.normal_forms.condition_hoisting import bound

_OWN = (Kind.LOCAL, Kind.PRIVATE)


@memo(16)
def without_unread_elements(program: Program) -> Program:
    """Return `program` without tiles of elements that no term with a condition reads; itself where there are none."""
    needed = conditions_of_arrays(program)
    return _Elements(program, needed).result() if needed else program


def narrow_terms(program: Program) -> Program:
    """Return `program` with its loops over conditional terms narrowed; itself where there are none."""
    return _Terms(program).result() if conditional_sums(program) else program


def conditional_sums(program: Program) -> tuple[str, ...]:
    """Return the arrays that updates with conditions on their terms store, in the order of the text."""
    stores = analysis(program).of(Store)
    return tuple(dict.fromkeys(store.buffer for store in stores if _is_conditional_update(store)))


def without_conditions(program: Program) -> Program:
    """Return `program` whose terms have no conditions: what narrowed loops compute inside."""

    def change(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(unconditional(stmt) for stmt in body)

    return replace(program, body=change(program.body)) if conditional_sums(program) else program


def unconditional(stmt: Stmt) -> Stmt:
    """Return a statement whose terms have no conditions."""
    if not isinstance(stmt, Store):
        return map_blocks(stmt, lambda body: tuple(map(unconditional, body)))
    term = conditional_term(stmt.value, stmt.reduce)
    return stmt if term is None else replace(stmt, value=term[1])


class TileRewriting:
    """A program whose tiles are rewritten, in the facts of the loops around them."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def result(self) -> Program:
        """Return the program rewritten."""
        program = self.program
        body = self.block(program.body, Facts(Space(program.sizes, program.assumptions)))
        return replace(program, body=body)

    def block(self, body: Sequence[Stmt], at: Facts) -> tuple[Stmt, ...]:
        """Return what stands for a block."""
        return tuple(part for stmt in body for part in self.statement(stmt, at))

    def statement(self, stmt: Stmt, at: Facts) -> tuple[Stmt, ...]:
        """Return what stands for a statement."""
        match stmt:
            case For(name, lo, hi, body):
                return (replace(stmt, body=self.block(body, at.loop(name, lo, hi))),)
            case Tile():
                return self.tile(stmt, at)
            case _:
                return (map_blocks(stmt, lambda inner: self.block(inner, at)),)

    def tile(self, tile: Tile, at: Facts) -> tuple[Stmt, ...]:
        """Return what stands for a tile."""
        raise NotImplementedError


class _Elements(TileRewriting):
    """A program without tiles of elements that nobody reads.

    needed  conditions on the elements of a local array, its axes called `axis_name`, of which every read asks all
    """

    def __init__(self, program: Program, needed: Mapping[str, tuple[Expr, ...]]) -> None:
        super().__init__(program)
        self.needed = needed

    def statement(self, stmt: Stmt, at: Facts) -> tuple[Stmt, ...]:
        match stmt:
            case For(name, _, _, (Tile() as tile,)) if limits := self.limits(tile, name):
                return self.tiles(stmt, tile, limits, at)
            case For():
                (loop,) = super().statement(stmt, at)
                assert isinstance(loop, For)
                return (_without_condition(loop, at),)
            case _:
                return super().statement(stmt, at)

    def tile(self, tile: Tile, at: Facts) -> tuple[Stmt, ...]:
        atoms = self.common_conditions(tile)
        if not atoms:
            return (tile,)
        inside = inside_tile(tile, at)
        some = [one for atom in atoms if (one := _in_some(atom, tile)) is not None]
        if tile.cover is None:
            tile = replace(tile, where=_and(tile.where, atoms))
        some = [one for one in some if not inside.holds(one)]
        return (If(conjunction(some), (tile,)),) if some else (tile,)

    def common_conditions(self, tile: Tile) -> tuple[Expr, ...]:
        """Return what every read asks of all that a tile stores; nothing where it stores what is read anywhere."""
        common: list[tuple[Expr, ...]] = []
        for store in walk(tile.body):
            if (
                isinstance(store, Store)
                and self.program.buffer(store.buffer).kind is not Kind.PRIVATE
            ):
                at = {axis_name(k): part for k, part in enumerate(store.index)}
                needed = self.needed.get(store.buffer, ())
                common.append(tuple(substitute(one, at) for one in needed))
        return tuple(one for one in common[0] if all(one in c for c in common)) if common else ()

    def limits(self, tile: Tile, name: str) -> tuple[Compare, ...]:
        """Return what is asked of the elements of a tile without a microkernel as limits of the one axis that moves with `name`;
        nothing where something else is asked, or of more.
        """
        moving = [axis for axis in tile.axes if name in variables(axis.start)]
        if (
            tile.cover is not None
            or len(moving) != 1
            or any(_is_conditional_update(s) for s in walk(tile.body))
        ):
            return ()
        axes = {axis.iter for axis in tile.axes}
        limits = [bound(atom, moving[0].iter) for atom in self.common_conditions(tile)]
        plain = [one for one in limits if one is not None and not variables(one.b) & axes]
        has_bounds = all(bound(replace(one, a=moving[0].start), name) is not None for one in plain)
        return tuple(plain) if has_bounds and len(plain) == len(limits) else ()

    def tiles(
        self, loop: For, tile: Tile, limits: Sequence[Compare], at: Facts
    ) -> tuple[Stmt, ...]:
        """Return a loop over tiles as those that the lower limits cross, those inside of all, and those that the upper ones cross."""
        (axis,) = (one for one in tile.axes if loop.iter in variables(one.start))
        first, last = axis.start, ix.sub(ix.add(axis.start, axis.extent), 1)
        some, every = (loop.lo, loop.hi), (loop.lo, loop.hi)
        for one in limits:
            nearest, farthest = (last, first) if one.op == ">=" else (first, last)
            some = _limit_bounds(some, bound(replace(one, a=nearest), loop.iter), at)
            every = _limit_bounds(every, bound(replace(one, a=farthest), loop.iter), at)
        partial = replace(tile, where=_and(tile.where, limits))
        crossed = at.extreme("max", every[0], every[1])
        parts: list[Stmt] = []
        if any(one.op == ">=" for one in limits):
            end = at.extreme("min", every[0], some[1])
            parts.append(replace(loop, lo=some[0], hi=end, body=(partial,), role=Role.TAIL))
        parts.append(replace(loop, lo=every[0], hi=every[1]))
        if any(one.op == "<" for one in limits):
            parts.append(replace(loop, lo=crossed, hi=some[1], body=(partial,), role=Role.TAIL))
        return tuple(parts)


class _Terms(TileRewriting):
    """A program whose loops over conditional terms are narrowed.

    split  arrays that several tiles store where one did
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.split: set[str] = set()

    def result(self) -> Program:
        program = super().result()
        buffers = tuple(
            replace(b, kind=Kind.LOCAL) if b.kind is Kind.PRIVATE and b.name in self.split else b
            for b in program.buffers
        )
        return replace(program, buffers=buffers)

    def tile(self, tile: Tile, at: Facts) -> tuple[Stmt, ...]:
        for place, stmt in enumerate(tile.body):
            match stmt:
                case For(_, _, _, (Store() as store,)) if _is_conditional_update(store):
                    return self.terms(tile, place, stmt, store, inside_tile(tile, at))
        return (tile,)

    def terms(self, tile: Tile, place: int, loop: For, store: Store, at: Facts) -> tuple[Stmt, ...]:
        """Return a tile whose sum has conditions on its terms: those of all rows in the tile, others row by row around it."""
        condition, value = conditional_term(store.value, store.reduce)  # type: ignore[misc]
        lo, hi = loop.lo, loop.hi
        for atom in conjuncts(condition):
            limit = bound(atom, loop.iter)
            if limit is None:
                return (tile,)
            if limit.op == ">=":
                lo = at.extreme("max", lo, limit.b)
            else:
                hi = at.extreme("min", hi, limit.b)
        plain = replace(store, value=value)
        axes = {axis.iter for axis in tile.axes}
        rows = (variables(lo) | variables(hi)) & axes
        group = self.group(plain, loop.iter)
        before, after = (
            bool(variables(end) & axes) or (end != old_end and not _is_multiple(end, group, at))
            for end, old_end in ((lo, loop.lo), (hi, loop.hi))
        )
        if not before and not after:
            sums = replace(loop, lo=lo, hi=hi, body=(plain,))
            return (replace(tile, body=(*tile.body[:place], sums, *tile.body[place + 1 :])),)
        ranges = {
            axis.iter: (axis.start, ix.sub(ix.add(axis.start, axis.extent), 1))
            for axis in tile.axes
        }
        lows, highs = ends(lo, ranges), ends(hi, ranges)
        if lows is None or highs is None:
            return (tile,)
        first = ix.mul(ix.ceildiv(lows[1], group), group) if before else lo
        end = ix.mul(ix.floordiv(highs[0], group), group) if after else hi
        last = at.extreme("max", first, end)
        start, rest = tile.body[:place], tile.body[place + 1 :]
        if (before and start) or after:
            self.split |= {one.buffer for one in walk(tile.body) if isinstance(one, Store)}
        sums = replace(loop, lo=first, hi=last, body=(plain,))
        parts: list[Stmt] = []
        if before:
            end = at.extreme("min", hi, first)
            parts.append(replace(tile, body=start, cover=None))
            parts.append(self.row_by_row(tile, rows, replace(sums, lo=lo, hi=end)))
            start = ()
        if not after:
            return (*parts, replace(tile, body=(*start, sums, *rest)))
        parts.append(replace(tile, body=(*start, sums)))
        parts.append(self.row_by_row(tile, rows, replace(sums, lo=last, hi=hi)))
        if rest:
            parts.append(replace(tile, body=rest, cover=None))
        return tuple(parts)

    def group(self, store: Store, name: str) -> int:
        """Return how many terms along an iterator lie in one group of the layouts that a sum reads, of which none is taken apart."""
        groups = [1]
        for load in all_loads(store.value):
            layout = self.program.buffer(load.buffer).layout
            if layout is not None:
                groups += (
                    many
                    for part, many in zip(load.index, layout.multiple, strict=True)
                    if name in variables(part)
                )
        return lcm(*groups)

    def row_by_row(self, tile: Tile, rows: Set[str], sums: For) -> Stmt:
        """Return the terms of a sum that rows of a tile have by themselves: its other axes as lanes. Without `rows`, all have these terms."""
        others = tuple(axis for axis in tile.axes if axis.iter not in rows)
        conditions = () if tile.where is None else conjuncts(tile.where)
        inside = [one for one in conditions if not variables(one) & rows]
        around = [one for one in conditions if variables(one) & rows]
        where = conjunction(inside) if inside else None
        form = tile.form if inside else Form.FULL
        body: tuple[Stmt, ...] = (Tile(others, (sums,), where, form, Role.TAIL),)
        if around:
            body = (If(conjunction(around), body),)
        own = tuple(axis for axis in tile.axes if axis.iter in rows)
        return tile_to_loops(Tile(own, body))[0]


def _is_multiple(end: Expr, group: int, at: Facts) -> bool:
    """Return whether a bound is one of whole groups of terms."""
    return group == 1 or at.holds(Compare("==", ix.mod(end, group), ix.const(0)))


def inside_tile(tile: Tile, at: Facts) -> Facts:
    """Return the facts inside of a tile."""
    for axis in tile.axes:
        at = at.loop(axis.iter, axis.start, ix.add(axis.start, axis.extent))
    return at


def _without_condition(loop: For, at: Facts) -> Stmt:
    """Return a loop around a condition as one that ends where it does, inside of what does not name its iterator."""
    match loop.body:
        case (If(condition, then, ()),) if not reads_memory(condition):
            pass
        case _:
            return loop
    ends_at, out, inside = (loop.lo, loop.hi), list[Expr](), list[Expr]()
    for atom in conjuncts(condition):
        limit = bound(atom, loop.iter)
        if loop.iter not in variables(atom):
            out.append(atom)
        elif limit is None:
            inside.append(atom)
        else:
            ends_at = _limit_bounds(ends_at, limit, at)
    body = (If(conjunction(inside), then),) if inside else then
    narrowed = replace(loop, lo=ends_at[0], hi=ends_at[1], body=body)
    return If(conjunction(out), (narrowed,)) if out else narrowed


def _limit_bounds(
    ends_at: tuple[Expr, Expr], limit: Compare | None, at: Facts
) -> tuple[Expr, Expr]:
    """Return the bounds of a loop within a limit."""
    assert limit is not None
    lo, hi = ends_at
    if limit.op == ">=":
        return at.extreme("max", lo, limit.b), hi
    return lo, at.extreme("min", hi, limit.b)


def _in_some(atom: Expr, tile: Tile) -> Expr | None:
    """Return what holds where a condition of `conditions_of_arrays` may hold for some instance of a tile; None where that is not known."""
    assert isinstance(atom, Compare)
    ranges = {
        axis.iter: (axis.start, ix.sub(ix.add(axis.start, axis.extent), 1)) for axis in tile.axes
    }
    extremes = ends(atom.a, ranges)
    return None if extremes is None else Compare(">=", extremes[1], atom.b)


def _and(where: Expr | None, limits: Sequence[Expr]) -> Expr:
    conditions = () if where is None else conjuncts(where)
    return conjunction([*conditions, *(one for one in limits if one not in conditions)])


def _is_conditional_update(stmt: Stmt) -> bool:
    """Return whether a statement is an update with a condition on its term."""
    return (
        isinstance(stmt, Store)
        and stmt.reduce is not None
        and conditional_term(stmt.value, stmt.reduce) is not None
    )


def conditions_of_arrays(program: Program) -> Mapping[str, tuple[Expr, ...]]:
    """Return what every read of a local array asks of the element, by the array; its axes are called `axis_name`."""
    if not conditional_sums(program):
        return {}
    stores = analysis(program).of(Store)
    order = list(dict.fromkeys(store.buffer for store in stores))
    own = {b.name for b in program.buffers if b.kind in _OWN and b.layout is None}
    anywhere = {
        load.buffer
        for stmt in walk(program.body)
        for expr in _expressions_beside_value(stmt)
        for load in all_loads(expr)
    }
    needed: dict[str, tuple[Expr, ...]] = {}
    known = _Known(
        frozenset(size.name for size in program.sizes),
        program.read_only_arrays,
    )
    for name in reversed(order):
        if name not in own or name in anywhere:
            continue
        conditions: list[frozenset[Expr]] = []
        for store in stores:
            for load, path in loads(store.value):
                if load.buffer == name and store.buffer != name:
                    conditions.append(
                        _conditions_of_read(load, path, store, needed.get(store.buffer, ()), known)
                    )
                elif load.buffer == name:
                    conditions.append(frozenset())
        if conditions and (common := reduce(frozenset.intersection, conditions)):
            needed[name] = tuple(sorted(common, key=str))
    return needed


def _expressions_beside_value(stmt: Stmt) -> Iterator[Expr]:
    """Yield what a statement reads but for the value that it stores."""
    if isinstance(stmt, Store):
        yield from stmt.index
    else:
        yield from expressions(stmt)


@dataclass(frozen=True, slots=True)
class _Known:
    """The names that mean one thing everywhere in a program.

    sizes   of the program
    arrays  that it does not write
    """

    sizes: frozenset[str]
    arrays: frozenset[str]


def _conditions_of_read(
    load: Load, path: Sequence[Expr], store: Store, needed: Sequence[Expr], known: _Known
) -> frozenset[Expr]:
    """Return what holds of the element that a store reads, its axes called `axis_name`.

    path    conditions around the read
    needed  what is asked of the element that is stored
    """
    index_of_axis = {axis_name(k): part for k, part in enumerate(store.index)}
    conditions = [atom for condition in path for atom in conjuncts(condition)]
    conditions += [substitute(one, index_of_axis) for one in needed]
    forms = (at_least_zero(atom) for atom in conditions)
    over_axes = (_over_axes(one.a, load.index, known) for one in forms if one is not None)
    return frozenset(Compare(">=", one, ix.const(0)) for one in over_axes if one is not None)


def _over_axes(expr: Expr, index: Sequence[Expr], known: _Known) -> Expr | None:
    """Return an index over sizes, elements of arrays that nobody writes, and iterators as one over the element at `index`, its axes called
    `axis_name`; None where it is none.

    An iterator that moves one axis alone, by ones, is written as the place along that axis.
    """
    total: Expr = ix.const(ix.to_linear(expr).const)
    steps: dict[str, int] = {}
    for atom, step in ix.to_linear(expr).terms:
        match atom:
            case Var(name):
                steps[name] = step
            case Binary("//" | "%" | "min" | "max" as op, a, b):
                parts = _over_axes(a, index, known), _over_axes(b, index, known)
                if parts[0] is None or parts[1] is None:
                    return None
                total = ix.add(total, ix.mul(step, Binary(op, parts[0], parts[1])))
            case _:
                element = read_only_element(atom, known.arrays)
                place = (
                    [_over_axes(part, index, known) for part in element.index] if element else []
                )
                over = tuple(part for part in place if part is not None)
                if element is None or len(over) < len(place):
                    return None
                total = ix.add(total, ix.mul(step, at_another_place(atom, over)))
    rest: Expr = ix.const(0)
    for name, step in steps.items():
        rest = ix.add(rest, ix.mul(step, Var(name)))
    for number, part in enumerate(index):
        others = {n for k, one in enumerate(index) if k != number for n in variables(one)}
        names = sorted(variables(part) - others - known.sizes)
        own = next((name for name in names if coefficient(part, name) == 1), None)
        factor = None if own is None else coefficient(rest, own)
        if factor:
            rest = ix.simplify(ix.sub(rest, ix.mul(factor, part)))
            total = ix.add(total, ix.mul(factor, Var(axis_name(number))))
    if not variables(rest) <= known.sizes:
        return None
    return ix.simplify(ix.add(total, rest))


def axis_name(number: int) -> str:
    """Return the name of an axis of an array in what is asked of its elements."""
    return f"axis'{number}"
