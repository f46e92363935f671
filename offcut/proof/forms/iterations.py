"""Two programs of the same loops around different bodies -> pairs of small programs, one for each body.

A staged program has the loops of the program it was made of, and other statements inside of them. Where
starts and heights of tiles are products of sizes, sets say nothing of the whole; of one iteration they do,
with what is fixed there as a size::

    let q in 1:17 = n//((n + 15)//16)                       size n, size q in 1:17, size t, size s   (s = q*t)
      for t in 0:…                                          assume 0 <= s and s + q <= n
        tile i in q*t +: q                            ->    tile i in s +: q
          S[i] = A[i]                                         S[i] = A[i]
          C[i] = S[i]//64                                     C[i] = S[i]//64

against the emitted ``alloc S[s +: q] …`` of the same s and q.

Theorem. Let two programs be alike but for pairs of blocks (B, B'): the loops, conditions, bounded values,
windows and choices around a pair are equal as text, and so is every statement outside of the pairs. Call an
array *seen* where a statement outside of the pairs touches it, or it is the caller's; what is touched in
pairs alone is *unseen*. Where for each pair, and for all values of what is bound around it,

    equal    from equal contents of the seen arrays, B and B' leave equal contents of the seen arrays,
             whatever the unseen ones hold when B begins, and when B' begins (1)
    inside   each access of B' lies in its array and in its window (2)
    ranged   the bounded values around are in their ranges (3)

the programs compute the same: both run the same sequence of blocks, and by induction over it the seen
arrays are equal between any two of them. It does not matter how often, or in which order, the blocks run, nor
whether two of them touch the same elements: a tile of ``shift`` may repeat instances.

A pair is asked as two programs of their own (`Body`): sizes are those of the whole, each counter, each
bounded value, and each product of these that sets cannot say; what is assumed are the bounds of
counters, the conditions around, and that B lies inside of its arrays (4), as the whole is asked first.

(1) An array that is seen is updated by both (`Kind.INOUT`): its first contents are given and its last
    ones are compared, so that a store of B' to another element, and a missing one, are seen. One that is
    not seen, and that B touches, is given to both and compared by neither, and B' has it in a window of its
    own, which holds nothing at first: what B reads before it writes cannot be what B' reads.
(2) So a window around a pair stands around B' again where that is asked.
(3) Once for the source, whose text around the pairs is that of the emitted program.
(4) Where it does not, at some values of what is around, those are never reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import gcd
from typing import TypeAlias

from offcut.core import index as ix
from offcut.core.accesses import accessed, stored, touched
from offcut.core.conditions import all_of, conjuncts, negated
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
    substitute,
    variables,
)
from offcut.core.polynomial import Polynomial, constant, polynomial, variable
from offcut.core.program import (
    Alloc,
    Buffer,
    Choose,
    For,
    If,
    Kind,
    Let,
    Program,
    Size,
    Stmt,
    Store,
    Tile,
    all_mapped,
    blocks,
    canonical,
    with_blocks,
)
from offcut.core.walking import bound, bound_in
from offcut.polyhedral import INDEX_LIMIT, Facts, Space, coefficient
from offcut.polyhedral.around import equal
from offcut.proof.by_text.structure import bare

Entry: TypeAlias = For | Let | Alloc | Expr
"""What stands around a body; of a loop, a value and a window its body is left out."""

_Loop: TypeAlias = tuple[str, Expr, Expr]
_SCRATCH = (Kind.LOCAL, Kind.PRIVATE)


@dataclass(frozen=True, slots=True)
class Body:
    """A pair of blocks at one place as two programs, whose sizes are what is fixed there.

    source, emitted  the programs; equal at that place where these are equal
    windowed         `emitted` in the windows that stand around it, which it must not leave
    unseen           the arrays that `source` must write before it reads them
    """

    source: Program
    emitted: Program
    windowed: Program
    unseen: frozenset[str]


def bodies(source: Program, emitted: Program, whole: bool = False) -> tuple[Body, ...] | None:
    """What must hold of `source` and `emitted`, body by body, for them to compute the same; None: not of that form.

    source, emitted  with the same sizes, promises and arrays of the caller's
    whole            whether two blocks that differ are one pair, else the statements of them that do
    """
    source, emitted = bare(canonical(source)), bare(canonical(emitted))
    walker = _Walk(whole)
    walker.block(source.body, emitted.body, ())
    if not walker.pairs or any(not pair.path for pair in walker.pairs):
        return None
    kinds = _kinds(source, emitted, walker)
    if kinds is None:
        return None
    try:
        return tuple(_body(source, emitted, pair, kinds) for pair in walker.pairs)
    except _Unfit:
        return None


class _Unfit(Exception):
    """A pair of blocks that is not of this form."""


@dataclass(frozen=True, slots=True)
class _Pair:
    path: tuple[Entry, ...]
    source: tuple[Stmt, ...]
    emitted: tuple[Stmt, ...]


@dataclass
class _Walk:
    """Two programs, walked together: where they differ, and the arrays that are touched where they do not."""

    whole: bool
    pairs: list[_Pair] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def block(
        self, source: tuple[Stmt, ...], emitted: tuple[Stmt, ...], path: tuple[Entry, ...]
    ) -> None:
        """Two blocks in the same place."""
        if source == emitted:
            self.seen |= touched(source)
            return
        if len(source) == len(emitted) and all(map(_is_like, source, emitted)):
            for one, other in zip(source, emitted, strict=True):
                self.inside(one, other, path)
            return
        first, end = (0, 0) if self.whole else _alike(source, emitted)
        self.seen |= touched((*source[:first], *source[len(source) - end :]))
        pair = source[first : len(source) - end], emitted[first : len(emitted) - end]
        self.pairs.append(_Pair(path, *pair))

    def inside(self, source: Stmt, emitted: Stmt, path: tuple[Entry, ...]) -> None:
        """Two statements that are equal but for what is inside of them."""
        if source == emitted:
            self.seen |= touched((source,))
            return
        self.seen |= accessed(source)
        match source:
            case For() | Let() | Alloc():
                entries: tuple[tuple[Entry, ...], ...] = ((replace(source, body=()),),)
            case If(condition):
                entries = conjuncts(condition), conjuncts(condition, False)
            case Choose(options):
                entries = ((),) * len(options)
            case _:
                raise AssertionError(source)
        for one, other, entry in zip(blocks(source), blocks(emitted), entries, strict=True):
            self.block(one, other, (*path, *entry))


def _is_like(source: Stmt, emitted: Stmt) -> bool:
    """Whether two statements are equal, or equal but for what is inside of them."""
    if source == emitted:
        return True
    if isinstance(source, Tile | Store) or type(source) is not type(emitted):
        return False
    return _head(source) == _head(emitted)


def _head(stmt: Stmt) -> Stmt:
    return with_blocks(stmt, lambda _: ())


def _alike(source: Sequence[Stmt], emitted: Sequence[Stmt]) -> tuple[int, int]:
    """How many statements are equal at the begin of two blocks, and at their ends."""
    short = min(len(source), len(emitted))
    first = next((k for k in range(short) if source[k] != emitted[k]), short)
    left = short - first
    end = next((k for k in range(left) if source[-1 - k] != emitted[-1 - k]), left)
    return first, end


def _kinds(source: Program, emitted: Program, walker: _Walk) -> dict[str, Kind | None] | None:
    """Of each array what it is in a body: given, updated, or as it is declared (None), where it is unseen.

    None where an array is seen that only one of the programs declares, or each otherwise.
    """
    mine = {b.name: b for b in source.buffers}
    theirs = {b.name: b for b in emitted.buffers}
    written = stored(source.body) | stored(emitted.body)
    kinds: dict[str, Kind | None] = {}
    for name in mine | theirs:
        one, other = mine.get(name), theirs.get(name)
        same = one is not None and other is not None and _declared(one) == _declared(other)
        kind = (one or other or mine[name]).kind
        if kind in _SCRATCH and name not in walker.seen:
            if one is not None and other is not None and not same:
                return None
            kinds[name] = None
        elif not same:
            return None
        else:
            kinds[name] = Kind.INOUT if name in written else kind
    return kinds


def _declared(buffer: Buffer) -> Buffer:
    return replace(
        buffer, layout=None, scope=None, kind=Kind.LOCAL if buffer.kind in _SCRATCH else buffer.kind
    )


def _body(source: Program, emitted: Program, pair: _Pair, kinds: Mapping[str, Kind | None]) -> Body:
    fixed = _Fixed(source, pair)
    one, other = fixed.block(pair.source), fixed.block(pair.emitted)
    windows = [entry for entry in pair.path if isinstance(entry, Alloc)]
    mine = touched(one) | touched(other)

    def program(of: Program, body: tuple[Stmt, ...]) -> Program:
        buffers = tuple(
            replace(
                fixed.buffer(b), kind=kinds[b.name] or b.kind, finite=b.finite and kinds[b.name] is b.kind
            )
            for b in of.buffers
            if b.name in mine
        )
        return replace(of, sizes=fixed.sizes, assumptions=fixed.facts, buffers=buffers, body=body)

    small, large = program(source, one), program(emitted, other)
    known = Space(fixed.sizes, fixed.facts)
    fixed.facts = (*fixed.facts, *_lies_inside(small, known))
    small, large = program(source, one), program(emitted, other)
    held = other
    for window in reversed(windows):
        if window.buffer in mine:
            held = (Alloc(window.buffer, fixed.axes(window.axes), held),)
    unseen = frozenset(name for name in touched(one) if kinds[name] is None)
    return Body(small, large, program(emitted, held), unseen)


class _Fixed:
    """What is bound around a pair, as sizes, and what is known of it.

    sizes  those of the program, counters, bounded values, and products of these
    facts  what is promised of them
    """

    def __init__(self, program: Program, pair: _Pair) -> None:
        sizes = {size.name: size for size in program.sizes}
        self.products: dict[Polynomial, Var] = {}
        self.others: dict[Expr, Var] = {}
        self.atoms: dict[str, Expr] = {}
        self.known = sizes
        facts: list[Expr] = list(program.assumptions)
        for entry in pair.path:
            for name in () if isinstance(entry, Expr) else bound(entry):
                if name in sizes:
                    raise _Unfit
            match entry:
                case For(name, lo, hi):
                    least = ix.literal(lo)
                    sizes[name] = Size(name, -INDEX_LIMIT if least is None else least, INDEX_LIMIT)
                    facts += [Compare("<=", lo, Var(name)), Compare("<", Var(name), hi)]
                case Let(name, lo, hi, value):
                    sizes[name] = Size(name, lo, hi - 1)
                    facts += equal(value, Var(name))
                case Alloc():
                    pass
                case _:
                    facts.append(entry)
        if (bound_in(pair.source) | bound_in(pair.emitted)) & sizes.keys():
            raise _Unfit
        named = (self.named(fact) for fact in facts if not reads_memory(fact))
        space = Space(tuple(sizes.values()))
        self.facts = tuple(
            fact for fact in named if space.condition(fact, {}) is not None
        )

    @property
    def sizes(self) -> tuple[Size, ...]:
        """All that is fixed."""
        return tuple(self.known.values())

    def buffer(self, buffer: Buffer) -> Buffer:
        """An array of these sizes."""
        return replace(buffer, shape=tuple(map(self.named, buffer.shape)), layout=None, scope=None)

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Statements over these sizes."""
        return all_mapped(body, self.named)

    def axes(self, axes: Sequence[tuple[Expr, Expr]]) -> tuple[tuple[Expr, Expr], ...]:
        """A window over these sizes."""
        return tuple((self.named(start), self.named(count)) for start, count in axes)

    def named(self, expr: Expr) -> Expr:
        """`expr` with a size for each product, and each quotient by a product, of what is fixed."""
        if dtype_of(expr) != "index":
            return rebuild(expr, tuple(map(self.named, children(expr))))
        if self.is_affine(expr) or reads_memory(expr):
            return expr
        match expr:
            case Binary("+" | "-" | "*"):
                return self.sum(expr)
        made = rebuild(expr, tuple(map(self.named, children(expr))))
        if self.is_affine(made) or not variables(made) <= self.known.keys():
            return made
        if made not in self.others:
            self.others[made] = self.fresh(-INDEX_LIMIT)
        return self.others[made]

    def is_affine(self, expr: Expr) -> bool:
        """Whether sets can say it."""
        space = Space(tuple(self.known.values()))
        local = variables(expr) - self.known.keys()
        return space.expr(expr, {name: "x" for name in local}) is not None

    def sum(self, expr: Expr) -> Expr:
        """A sum of products, those of what is fixed together as one size."""
        whole = self.polynomial(expr)
        plain: dict[tuple[str, ...], int] = {}
        products: dict[tuple[str, ...], int] = {}
        for names, factor in whole.terms:
            fixed = len(names) > 1 and all(
                variables(self.atoms.get(name, Var(name))) <= self.known.keys() for name in names
            )
            (products if fixed else plain)[names] = factor
        parts = [
            ix.mul(factor, self.product(names)) for names, factor in sorted(plain.items())
        ]
        if products:
            scale = reduce(gcd, products.values())
            if products[min(products)] < 0:
                scale = -scale
            key = Polynomial(frozenset((n, f // scale) for n, f in products.items()))
            if key not in self.products:
                least = key.least({n: s.min for n, s in self.known.items()})
                self.products[key] = self.fresh(-INDEX_LIMIT if least is None else least)
            parts.append(ix.mul(scale, self.products[key]))
        return ix.simplify(ix.add(*parts)) if parts else ix.const(0)

    def product(self, names: Sequence[str]) -> Expr:
        """The product of names, and of what they stand for."""
        made: Expr = ix.const(1)
        for name in names:
            made = ix.mul(made, self.atoms.get(name, Var(name)))
        return made

    def polynomial(self, expr: Expr) -> Polynomial:
        """An index expression as a polynomial, its other parts as names."""
        match expr:
            case Const(value):
                return constant(int(value))
            case Var(name):
                return variable(name)
            case Binary("+" | "-" | "*" as op, a, b):
                x, y = self.polynomial(a), self.polynomial(b)
                return x + y if op == "+" else x - y if op == "-" else x * y
        atom = self.named(expr)
        if isinstance(atom, Const | Var) or (isinstance(atom, Binary) and atom.op in "+-*"):
            return self.polynomial(atom)
        name = f"#{atom}"
        self.atoms[name] = atom
        return variable(name)

    def fresh(self, least: int) -> Var:
        """A size of its own."""
        name = f"fixed'{len(self.known)}"
        self.known[name] = Size(name, least, INDEX_LIMIT)
        return Var(name)


def _lies_inside(program: Program, space: Space) -> Iterator[Expr]:
    """What is known of the sizes of a body where its accesses lie in their arrays: of each access, at the
    corners of the loops around it, what sets do not know of `space`.
    """
    shapes = {b.name: b.shape for b in program.buffers}
    at = Facts(space)
    found: set[Expr] = set()

    def look(body: Sequence[Stmt], loops: tuple[_Loop, ...], holds: tuple[Expr, ...]) -> Iterator[Expr]:
        for stmt in body:
            match stmt:
                case For(name, lo, hi):
                    yield from look(stmt.body, (*loops, (name, lo, hi)), holds)
                case Tile(axes, _, where):
                    inner = (*loops, *((a.iter, a.start, ix.add(a.start, a.extent)) for a in axes))
                    more = () if where is None else conjuncts(where)
                    yield from look(stmt.body, inner, (*holds, *more))
                case Alloc():
                    yield from look(stmt.body, loops, holds)
                case Store(buffer, index, value):
                    reads = (load for e in (value, *index) for load, path in loads(e) if not path)
                    for name, own in ((buffer, index), *((r.buffer, r.index) for r in reads)):
                        for part, extent in zip(own, shapes[name], strict=True):
                            for fact in _corners(part, extent, loops, holds, at):
                                if fact not in found:
                                    found.add(fact)
                                    yield fact
                case _:
                    pass

    return look(program.body, (), ())


def _corners(
    part: Expr, extent: Expr, loops: Sequence[_Loop], holds: Sequence[Expr], at: Facts
) -> Iterator[Expr]:
    """``0 <= part < extent`` where its loops begin and end, if they run there."""
    for high in (False, True):
        point: dict[str, Expr] = {}
        runs: list[Expr] = []
        for name, lo, hi in loops:
            first, end = (ix.folded(substitute(bound, point)) for bound in (lo, hi))
            up = (coefficient(part, name) or 0) > 0
            point[name] = ix.sub(end, 1) if up == high and name in variables(part) else first
            runs.append(ix.compare("<", first, end))
        runs += [ix.folded(substitute(condition, point)) for condition in holds]
        here = ix.folded(substitute(part, point))
        fact = ix.compare("<", here, extent) if high else ix.compare("<=", ix.const(0), here)
        if reads_memory(all_of([fact, *runs])) or at.holds(fact):
            continue
        open_ = [negated(one) for one in runs if not at.holds(one)]
        made = Logic("or", (*open_, fact)) if open_ else fact
        if at.expresses(made):
            yield made
