"""Replaces the names that are fixed in an iteration by sizes, and states the facts that hold of these.

Each of two steps only drops facts: a theorem for all values of the sizes holds in the iteration.

- `FixedNames`: counters, bounded values, products of them that sets cannot express, and elements that they name of arrays that
  nobody writes, become sizes; the facts are the bounds of counters, the conditions around, and that the source lies inside of its arrays.
- `with_opaque_tiles`: begins and heights of tiles become sizes; the facts are how they lie in the arrays, not how they are
  computed. So the tiles of most strategies become one program::

      tile i in 16*t +: 16                                                size s, size c in 1:…
      tile i in 16*(n//16) +: n % 16               ->    tile i in s +: c
      tile i in (q + 1)*t +: q + 1                                      assume s + c <= n
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import TypeAlias

from offcut.core import index as ix
from offcut.core.conditions import conjunction, conjuncts, negate, read_only_element
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Logic,
    Var,
    children,
    dtype_of,
    loads,
    reads_memory,
    rebuild,
    rewrite,
    substitute,
    variables,
)
from offcut.core.polynomial import Polynomial, polynomial, variable
from offcut.core.program import (
    Alloc,
    Buffer,
    For,
    Let,
    Program,
    Size,
    Stmt,
    Store,
    Tile,
    TileAxis,
    walk,
)
from offcut.core.traversal import (
    bound_names,
    expressions,
    map_blocks,
    map_body,
    map_own_expressions,
)
from offcut.polyhedral import INDEX_LIMIT, Facts, Space, coefficient
from offcut.polyhedral.facts import equal

Entry: TypeAlias = For | Let | Alloc | Expr
"""A statement around a body, without its own body, or a condition."""

Loop: TypeAlias = tuple[str, Expr, Expr]  # name, lo, hi


class RebindingError(Exception):
    """An error: a name is bound twice."""


class FixedNames:
    """The names that are bound around a body as sizes, and the facts that hold of them.

    sizes  those of the program, counters, bounded values, products of these, and elements of inputs at places that these name
    facts  conditions on them that sets can express

    Raises Rebound if a name is bound twice, around the body or in it.
    """

    def __init__(self, program: Program, path: Sequence[Entry], inside: Collection[str]) -> None:
        sizes = {size.name: size for size in program.sizes}
        self.products: dict[Polynomial, Var] = {}
        self.others: dict[Expr, Var] = {}
        self.atoms: dict[str, Expr] = {}
        self.known = sizes
        self.read_only_arrays = program.read_only_arrays
        facts: list[Expr] = list(program.assumptions)
        for entry in path:
            for name in () if isinstance(entry, Expr) else bound_names(entry):
                if name in sizes:
                    raise RebindingError
            match entry:
                case For(name, lo, hi):
                    least = ix.literal_value(lo)
                    sizes[name] = Size(name, -INDEX_LIMIT if least is None else least, INDEX_LIMIT)
                    facts += [Compare("<=", lo, Var(name)), Compare("<", Var(name), hi)]
                case Let(name, lo, hi, value):
                    sizes[name] = Size(name, lo, hi - 1)
                    facts += equal(value, Var(name))
                case Alloc():
                    pass
                case _:
                    facts.append(entry)
        if sizes.keys() & set(inside):
            raise RebindingError
        facts_of_names = [one for one in map(self.name_products, facts) if not reads_memory(one)]
        space = Space(tuple(sizes.values()))
        self.facts = tuple(fact for fact in facts_of_names if space.condition(fact, {}) is not None)

    @property
    def sizes(self) -> tuple[Size, ...]:
        """Return the sizes of the program and those that are added."""
        return tuple(self.known.values())

    def buffer(self, buffer: Buffer) -> Buffer:
        """Return an array over these sizes."""
        return replace(
            buffer, shape=tuple(map(self.name_products, buffer.shape)), layout=None, scope=None
        )

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Return statements over these sizes."""
        return map_body(body, self.name_products)

    def axes(self, axes: Sequence[tuple[Expr, Expr]]) -> tuple[tuple[Expr, Expr], ...]:
        """Return the axes of a window over these sizes."""
        return tuple(
            (self.name_products(start), self.name_products(count)) for start, count in axes
        )

    def name_products(self, expr: Expr) -> Expr:
        """Return `expr` with a size for each product, and each quotient by a product, of fixed names."""
        if dtype_of(expr) != "index":
            return rebuild(expr, tuple(map(self.name_products, children(expr))))
        expr = rewrite(expr, self.element)
        if self.is_affine(expr) or reads_memory(expr):
            return expr
        if isinstance(expr, Binary) and expr.op in "+-*":
            return self.sum(expr)
        over_sizes = rebuild(expr, tuple(map(self.name_products, children(expr))))
        if self.is_affine(over_sizes) or not variables(over_sizes) <= self.known.keys():
            return over_sizes
        if over_sizes not in self.others:
            self.others[over_sizes] = self.fresh(-INDEX_LIMIT)
        return self.others[over_sizes]

    def element(self, expr: Expr) -> Expr | None:
        """Return a size for an element of an array that nobody writes, at a place of fixed names; None for anything else."""
        element = read_only_element(expr, self.read_only_arrays)
        if element is None or not variables(element) <= self.known.keys():
            return None
        if expr not in self.others:
            self.others[expr] = self.fresh(-INDEX_LIMIT)
        return self.others[expr]

    def is_affine(self, expr: Expr) -> bool:
        """Return whether sets can express `expr`."""
        space = Space(tuple(self.known.values()))
        local = variables(expr) - self.known.keys()
        return space.expr(expr, dict.fromkeys(local, "x")) is not None

    def sum(self, expr: Expr) -> Expr:
        """Return a sum of products, in which one size stands for all products of fixed names."""
        plain: dict[tuple[str, ...], int] = {}
        products: dict[tuple[str, ...], int] = {}
        for names, factor in self.polynomial(expr).terms:
            fixed = len(names) > 1 and all(
                variables(self.atoms.get(name, Var(name))) <= self.known.keys() for name in names
            )
            (products if fixed else plain)[names] = factor
        parts = [ix.mul(factor, self.product(names)) for names, factor in sorted(plain.items())]
        if products:
            scale = gcd(*products.values())
            if products[min(products)] < 0:
                scale = -scale
            key = Polynomial(frozenset((n, f // scale) for n, f in products.items()))
            if key not in self.products:
                least = key.least({n: s.min for n, s in self.known.items()})
                self.products[key] = self.fresh(-INDEX_LIMIT if least is None else least)
            parts.append(ix.mul(scale, self.products[key]))
        return ix.simplify(ix.add(*parts)) if parts else ix.const(0)

    def product(self, names: Sequence[str]) -> Expr:
        """Return the product of names, or of the expressions that they stand for."""
        product: Expr = ix.const(1)
        for name in names:
            product = ix.mul(product, self.atoms.get(name, Var(name)))
        return product

    def polynomial(self, expr: Expr) -> Polynomial:
        """Return an index expression as a polynomial; a part that is none has a name in it."""
        form = polynomial(expr, self.atom)
        assert form is not None
        return form

    def atom(self, expr: Expr) -> Polynomial:
        """Return the name of a part that is no sum or product, as a polynomial."""
        atom = self.name_products(expr)
        if isinstance(atom, Const | Var) or (isinstance(atom, Binary) and atom.op in "+-*"):
            return self.polynomial(atom)
        name = f"#{atom}"
        self.atoms[name] = atom
        return variable(name)

    def fresh(self, least: int) -> Var:
        """Return a new size, of at least `least`."""
        name = f"fixed'{len(self.known)}"
        self.known[name] = Size(name, least, INDEX_LIMIT)
        return Var(name)


def in_bounds_facts(program: Program, space: Space) -> tuple[Expr, ...]:
    """Return the facts that hold because the accesses of a body lie in their arrays: for each access, at the corners of the
    loops around it, those that do not follow from `space`.
    """
    shapes = {b.name: b.shape for b in program.buffers}
    at = Facts(space)

    def visit(
        body: Sequence[Stmt], loops: tuple[Loop, ...], conditions: tuple[Expr, ...]
    ) -> Iterator[Expr]:
        for stmt in body:
            match stmt:
                case For(name, lo, hi):
                    yield from visit(stmt.body, (*loops, (name, lo, hi)), conditions)
                case Tile(axes, _, where):
                    inner = (*loops, *((a.iter, a.start, ix.add(a.start, a.extent)) for a in axes))
                    more = () if where is None else conjuncts(where)
                    yield from visit(stmt.body, inner, (*conditions, *more))
                case Alloc():
                    yield from visit(stmt.body, loops, conditions)
                case Store(buffer, index, value):
                    reads = (load for e in (value, *index) for load, path in loads(e) if not path)
                    for name, own in ((buffer, index), *((r.buffer, r.index) for r in reads)):
                        for part, extent in zip(own, shapes[name], strict=True):
                            yield from _corners(part, extent, loops, conditions, at)
                case _:
                    pass

    return tuple(dict.fromkeys(visit(program.body, (), ())))


def _corners(
    part: Expr, extent: Expr, loops: Sequence[Loop], conditions: Sequence[Expr], at: Facts
) -> Iterator[Expr]:
    """Return ``0 <= part < extent`` at the first and the last iterations of the loops, if `conditions` hold there."""
    for high in (False, True):
        point: dict[str, Expr] = {}
        runs: list[Expr] = []
        for name, lo, hi in loops:
            first, end = (ix.fold_indices(substitute(bound, point)) for bound in (lo, hi))
            up = (coefficient(part, name) or 0) > 0
            point[name] = ix.sub(end, 1) if up == high and name in variables(part) else first
            runs.append(ix.compare("<", first, end))
        runs += [ix.fold_indices(substitute(condition, point)) for condition in conditions]
        here = ix.fold_indices(substitute(part, point))
        fact = ix.compare("<", here, extent) if high else ix.compare("<=", ix.const(0), here)
        if reads_memory(conjunction([fact, *runs])) or at.holds(fact):
            continue
        unknown = [negate(one) for one in runs if not at.holds(one)]
        fact = Logic("or", (*unknown, fact)) if unknown else fact
        if at.expresses(fact):
            yield fact


def with_opaque_tiles(programs: Sequence[Program], whole: Program) -> tuple[Program, ...]:
    """Return the programs of an iteration of `whole` with the begin and the length of each range as sizes."""
    ranges = _Ranges(programs[0], whole)
    for one in programs:
        ranges.add(one)
    return tuple(map(ranges.program, programs))


@dataclass(frozen=True, slots=True)
class _Range:
    """The size `start` for ranges that begin at `begin` plus a constant, and the size `count` for `length`."""

    begin: Expr
    length: Expr
    start: Var
    count: Var


class _Ranges:
    """The ranges of the loops, tiles and windows in a body, by their begins without constants.

    by_key    begins that are computed: expressions inside of the body are over these too
    by_begin  begins that are a size and a constant, as ``n - 3``: only the ranges are
    by_count  lengths that are computed, by their fixed terms without constants: what is left of a range is over these
    """

    def __init__(self, source: Program, whole: Program) -> None:
        self.source, self.promised = source, whole.assumptions
        self.own = {size.name for size in whole.sizes}
        self.fixed = {size.name for size in source.sizes}
        self.by_key: dict[Expr, _Range] = {}
        self.by_begin: dict[Expr, _Range] = {}
        self.by_count: dict[Expr, _Range] = {}

    def key(self, expr: Expr) -> tuple[Expr, Expr]:
        """Return the sum of the fixed terms of an index, without constants, and the rest of it."""
        form = ix.to_linear(expr)
        terms = [(a, f) for a, f in form.terms if variables(a) and variables(a) <= self.fixed]
        key = ix.add(*(ix.mul(factor, atom) for atom, factor in terms)) if terms else ix.const(0)
        return key, ix.sub(expr, key)

    def add(self, program: Program) -> None:
        """Add the ranges of a program whose begin is neither a size nor a constant."""
        for stmt in walk(program.body):
            for begin, length in _ranges(stmt):
                key, rest = self.key(begin)
                fixed = self.fixed_range(key, rest, length)
                simple = isinstance(key, Var) and key.name in self.own
                ranges, name = (self.by_begin, begin) if simple else (self.by_key, key)
                if fixed is not None and variables(key) and name not in ranges:
                    number = len(self.by_key) + len(self.by_begin)
                    start, count = Var(f"start'{number}"), Var(f"count'{number}")
                    ranges[name] = _Range(*fixed, start, count)
                    remains, _ = self.key(fixed[1])
                    if variables(remains) and not isinstance(remains, Var):
                        self.by_count.setdefault(remains, ranges[name])

    def fixed_range(self, key: Expr, rest: Expr, length: Expr) -> tuple[Expr, Expr] | None:
        """Return the begin and the length of a range of fixed ones; of one that iterators move, ``s + 16*w +: min(16, h - 16*w)``, those of
        the range that all of it lies in, ``s +: h``; None if there is none.
        """
        begin = ix.add(key, ix.to_linear(rest).const)
        if variables(length) <= self.fixed:
            return (begin, length) if ix.literal_value(rest) is not None else None
        lengths = (ix.sub(ix.add(key, rest, part), begin) for part in ix.parts_of_minimum(length))
        fixed = next((one for one in lengths if variables(one) <= self.fixed), None)
        return None if fixed is None else (begin, fixed)

    def program(self, program: Program) -> Program:
        """Return `program` over begins and lengths."""
        body = tuple(map(self.statement, program.body))
        buffers = tuple(
            replace(b, shape=tuple(map(self.name_products, b.shape))) for b in program.buffers
        )
        sizes, facts = self.sizes_and_facts(program)
        used = {name for stmt in walk(body) for e in expressions(stmt) for name in variables(e)}
        used |= {name for b in buffers for extent in b.shape for name in variables(extent)}
        names = self.own | (used & self.fixed)
        remaining = (size for size in program.sizes if size.name in names)
        promised = (
            fact
            for fact in program.assumptions
            if fact in self.promised or self.own < self.own | variables(fact) <= names
        )
        return replace(
            program,
            sizes=(*remaining, *sizes),
            assumptions=(*promised, *facts),
            buffers=buffers,
            body=body,
        )

    def statement(self, stmt: Stmt) -> Stmt:
        """Return a statement over begins and lengths."""
        inside = map_blocks(stmt, lambda body: tuple(map(self.statement, body)))
        match inside:
            case For(lo=lo, hi=hi):
                start, count = self.pair(lo, ix.sub(hi, lo))
                return replace(inside, lo=start, hi=ix.add(start, count))
            case Tile(axes, _, where):
                pairs = [(a.iter, *self.pair(a.start, a.extent)) for a in axes]
                condition = None if where is None else self.name_products(where)
                return replace(inside, axes=tuple(TileAxis(*p) for p in pairs), where=condition)
            case Alloc():
                return replace(inside, axes=tuple(self.pair(*axis) for axis in _ranges(inside)))
        return map_own_expressions(inside, self.name_products)

    def pair(self, begin: Expr, length: Expr) -> tuple[Expr, Expr]:
        """Return a begin and a length over begins and lengths."""
        own = self.by_begin.get(begin)
        if own is not None and length == own.length:
            return own.start, own.count
        known = self.by_key.get(self.key(begin)[0])
        more = None if known is None else ix.literal_value(ix.sub(length, known.length))
        if known is not None and more is not None:
            return self.name_products(begin), ix.add(known.count, more)
        return self.name_products(begin), self.name_products(length)

    def name_products(self, expr: Expr) -> Expr:
        """Return `expr` over begins."""
        if dtype_of(expr) != "index" or isinstance(expr, Const):
            return rebuild(expr, tuple(map(self.name_products, children(expr))))
        key, rest = self.key(expr)
        known = self.by_key.get(key)
        if known is not None:
            return ix.add(known.start, ix.sub(self.name_products(rest), ix.sub(known.begin, key)))
        known = self.by_count.get(key)
        if known is not None:
            return ix.add(known.count, ix.sub(self.name_products(rest), ix.sub(known.length, key)))
        return ix.fold_indices(rebuild(expr, tuple(map(self.name_products, children(expr)))))

    def sizes_and_facts(self, program: Program) -> tuple[list[Size], list[Expr]]:
        """Return the sizes for begins and lengths, and the facts that say how these lie in the arrays."""
        at = Facts(Space(self.source.sizes, self.source.assumptions))
        extents = dict.fromkeys(
            extent
            for buffer in self.source.buffers
            for extent in buffer.shape
            if variables(extent) <= self.own
        )
        sizes: list[Size] = []
        facts: list[Expr] = []
        for one in (*self.by_key.values(), *self.by_begin.values()):
            zero = ix.const(0)
            natural = at.holds(ix.compare("<=", zero, one.begin))
            least = next((k for k in (1, 0) if at.holds(ix.compare("<=", k, one.length))), None)
            sizes.append(Size(one.start.name, 0 if natural else -INDEX_LIMIT, INDEX_LIMIT))
            sizes.append(
                Size(one.count.name, -INDEX_LIMIT if least is None else least, INDEX_LIMIT)
            )
            end, real = ix.add(one.start, one.count), ix.add(one.begin, one.length)
            ends = [e for e in extents if at.holds(ix.compare("<=", real, e))]
            if any(
                map(variables, ends)
            ):  # what literal extents say besides is of these heights alone
                facts += [ix.compare("<=", end, e) for e in ends if variables(e)]
                continue
            for extent in extents:
                if extent in ends:
                    facts.append(ix.compare("<=", end, extent))
                elif at.holds(ix.compare("<", one.begin, extent)):
                    facts.append(ix.compare("<", one.start, extent))
        return sizes, facts


def _ranges(stmt: Stmt) -> Iterator[tuple[Expr, Expr]]:
    """Yield the begin and the length of each range of a statement; of a window that ends where the first of several ends is, its length
    is that of a tile that does, ``min(h, n - s)``.
    """
    match stmt:
        case For(lo=lo, hi=hi):
            yield lo, ix.sub(hi, lo)
        case Tile(axes):
            yield from ((axis.start, axis.extent) for axis in axes)
        case Alloc(_, axes):
            yield from (
                (begin, ix.distance(begin, ix.add(begin, length))) for begin, length in axes
            )
