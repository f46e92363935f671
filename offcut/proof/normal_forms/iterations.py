"""Two programs of the same loops around different bodies -> pairs of small programs, one for each body.

A staged program has the loops of its source, and other statements inside of them. If starts and heights of
tiles are products of sizes, sets cannot express the whole; they can express one iteration, with everything
that is fixed in it as a size::

    let q in 1:17 = n//((n + 15)//16)                       size n, size q in 1:17, size t, size s   (s = q*t)
      for t in 0:…                                          assume 0 <= s and s + q <= n
        tile i in q*t +: q                            ->    tile i in s +: q
          S[i] = A[i]                                         S[i] = A[i]
          C[i] = S[i]//64                                     C[i] = S[i]//64

against the emitted ``alloc S[s +: q] …`` of the same s and q.

Theorem. Let two programs be alike but for pairs of blocks (B, B'): the loops, conditions, bounded values,
windows and choices around a pair are equal as text, and so is every statement outside of the pairs. An
array is *visible* if a statement outside of the pairs touches it, if a block B reads it and does not write it, or if it
is the caller's, else *hidden*.
If for each pair, and for all values of the names that are bound around it,

    equal    from equal contents of the visible arrays, B and B' leave equal contents of the visible arrays,
             whatever the hidden ones hold when B begins, and when B' begins (1)
    inside   each access of B' lies in its array and in its window (2)
    ranged   the bounded values around are in their ranges (3)

the programs compute the same: both run the same sequence of blocks, and by induction over it the visible
arrays are equal between any two of them. It does not matter how often, or in which order, the blocks run, nor
whether two of them touch the same elements: a tile of ``shift`` may repeat instances.

Each pair becomes two programs (`Body`). Their sizes are those of the whole, each counter, each bounded
value, and each product of these that sets cannot express; their assumptions are the bounds of counters, the
conditions around, and that B lies inside of its arrays (4), which is proved of the whole first.

(1) A visible array is updated by both (`Kind.INOUT`): its first contents are arguments and its last ones are
    compared, so that a store of B' to another element, or a missing one, is detected. A hidden one holds
    nothing at first and is not compared; B must write the elements of it that it reads (`writes_first`). A
    window of a visible array, inside of B or B', is rejected: it is other memory of the same name.
(2) So that program has the windows around a pair around B', too.
(3) Once for the source, whose text around the pairs is that of the emitted program.
(4) Values around at which it does not are never reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from offcut.core import index as ix
from offcut.core.analysis import accessed_arrays, statement_arrays, stored_arrays
from offcut.core.conditions import conjuncts
from offcut.core.expr import Expr, Var, variables
from offcut.core.plain_loops import strip_annotations
from offcut.core.program import (
    Alloc,
    Buffer,
    Choose,
    For,
    If,
    Kind,
    Let,
    Program,
    Stmt,
    Store,
    Tile,
    blocks,
    walk,
)
from offcut.core.traversal import (
    all_bound_names,
    canonicalize,
    map_blocks,
    substitute_coordinates,
)
from offcut.polyhedral import Space
from offcut.proof.normal_forms.fixed_names import (
    Entry,
    FixedNames,
    RebindingError,
    in_bounds_facts,
    with_opaque_tiles,
)

_SCRATCH = (Kind.LOCAL, Kind.PRIVATE)


@dataclass(frozen=True, slots=True)
class Body:
    """A pair of blocks at one place as two programs, whose sizes are the names that are fixed there.

    source, emitted  the blocks; the whole programs are equal at that place if these are
    windowed         `emitted` in the windows around it, which it must not leave
    hidden           the arrays that `source` must write before it reads them
    whole            the program that `source` is a part of
    """

    source: Program
    emitted: Program
    windowed: Program
    hidden: frozenset[str]
    whole: Program

    def with_any_bounds(self) -> Body:
        """Return the pair for any begin and length of its ranges: it is harder to prove, and one for many pairs."""
        source, emitted, windowed = with_opaque_tiles(
            (self.source, self.emitted, self.windowed), self.whole
        )
        return Body(source, emitted, windowed, self.hidden, source)


def bodies(source: Program, emitted: Program, whole: bool = False) -> tuple[Body, ...] | None:
    """Return the pairs that have to be equal for `source` and `emitted` to be; None if they are not of that form.

    source, emitted  programs with the same sizes, assumptions and arrays of the caller's
    whole            whether a pair is two whole blocks that differ, else the statements that differ in them
    """
    source, emitted = (
        strip_annotations(count_from_elements(canonicalize(one))) for one in (source, emitted)
    )
    walker = _Walk(whole)
    walker.block(source.body, emitted.body, ())
    if not walker.pairs or any(not pair.path for pair in walker.pairs):
        return None
    for pair in walker.pairs:
        walker.visible |= accessed_arrays(pair.source) - stored_arrays(pair.source)
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
    """Two programs, walked together: the pairs in which they differ, and the visible arrays."""

    whole: bool
    pairs: list[_Pair] = field(default_factory=list)
    visible: set[str] = field(default_factory=set)

    def block(
        self, source: tuple[Stmt, ...], emitted: tuple[Stmt, ...], path: tuple[Entry, ...]
    ) -> None:
        """Walk two blocks at the same place."""
        if source == emitted:
            self.visible |= accessed_arrays(source)
            return
        if len(source) == len(emitted) and all(map(_is_like, source, emitted)):
            for one, other in zip(source, emitted, strict=True):
                self.inside(one, other, path)
            return
        first = 0 if self.whole else _count_longer(source, emitted)
        for one, other in zip(source[:first], emitted[:first], strict=True):
            self.inside(one, other, path)
        source, emitted = source[first:], emitted[first:]
        first, end = (0, 0) if self.whole else _common_ends(source, emitted)
        self.visible |= accessed_arrays((*source[:first], *source[len(source) - end :]))
        pair = source[first : len(source) - end], emitted[first : len(emitted) - end]
        self.pairs.append(_Pair(path, *pair))

    def inside(self, source: Stmt, emitted: Stmt, path: tuple[Entry, ...]) -> None:
        """Walk two statements that are equal but for the blocks in them."""
        if source == emitted:
            self.visible |= accessed_arrays((source,))
            return
        self.visible |= statement_arrays(source)
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
    """Return whether two statements are equal, or equal but for the blocks in them."""
    if source == emitted or isinstance(source, Tile | Store):
        return source == emitted
    one, other = (map_blocks(stmt, lambda _: ()) for stmt in (source, emitted))
    return one == other


def _count_longer(source: Sequence[Stmt], emitted: Sequence[Stmt]) -> int:
    """Return how many statements at the begin of two blocks are alike, and have more statements inside in one of them: a pair in each."""
    counts = [[sum(1 for _ in walk((stmt,))) for stmt in body] for body in (source, emitted)]
    pairs = zip(source, emitted, *counts, strict=False)
    grown = [_is_like(one, other) and own != more for one, other, own, more in pairs]
    return (*grown, False).index(False)


def _common_ends(source: Sequence[Stmt], emitted: Sequence[Stmt]) -> tuple[int, int]:
    """Return the number of statements that are equal at the begin of two blocks, and at their end."""
    short = min(len(source), len(emitted))
    first = next((k for k in range(short) if source[k] != emitted[k]), short)
    rest = short - first
    return first, next((k for k in range(rest) if source[-1 - k] != emitted[-1 - k]), rest)


def _kinds(source: Program, emitted: Program, walker: _Walk) -> dict[str, Kind | None] | None:
    """Return the kind of each array in the programs of a `Body`; None for a hidden one, which stays as it is declared.

    None at all if a visible array is declared by one of the programs alone, or by each in another way.
    """
    mine = {b.name: b for b in source.buffers}
    theirs = {b.name: b for b in emitted.buffers}
    written = stored_arrays(source.body) | stored_arrays(emitted.body)
    kinds: dict[str, Kind | None] = {}
    for name in mine | theirs:
        one, other = mine.get(name), theirs.get(name)
        same = one is not None and other is not None and _declaration(one) == _declaration(other)
        kind = (one or other or mine[name]).kind
        if kind in _SCRATCH and name not in walker.visible:
            if one is not None and other is not None and not same:
                return None
            kinds[name] = None
        elif not same:
            return None
        else:
            kinds[name] = Kind.INOUT if name in written else kind
    return kinds


def _declaration(buffer: Buffer) -> Buffer:
    return replace(
        buffer, layout=None, scope=None, kind=Kind.LOCAL if buffer.kind in _SCRATCH else buffer.kind
    )


def _body(source: Program, emitted: Program, pair: _Pair, kinds: Mapping[str, Kind | None]) -> Body:
    try:
        fixed = FixedNames(
            source, pair.path, all_bound_names(pair.source) | all_bound_names(pair.emitted)
        )
    except RebindingError:
        raise _Unfit from None
    one, other = fixed.block(pair.source), fixed.block(pair.emitted)
    mine = accessed_arrays(one) | accessed_arrays(other)

    def program(of: Program, body: tuple[Stmt, ...]) -> Program:
        buffers = (b for b in of.buffers if b.name in mine)
        arrays = tuple(_with_kind(fixed.buffer(b), kinds[b.name]) for b in buffers)
        return replace(of, sizes=fixed.sizes, assumptions=fixed.facts, buffers=arrays, body=body)

    known = Space(fixed.sizes, fixed.facts)
    fixed.facts = (*fixed.facts, *in_bounds_facts(program(source, one), known))
    windowed = other
    for window in reversed(pair.path):
        if isinstance(window, Alloc) and window.buffer in mine:
            windowed = (Alloc(window.buffer, fixed.axes(window.axes), windowed),)
    windows = {s.buffer for s in walk((*one, *other)) if isinstance(s, Alloc)}
    if any(kinds[name] is not None for name in windows):
        raise _Unfit  # the window is other memory than the visible array
    hidden = frozenset(name for name in accessed_arrays(one) if kinds[name] is None)
    return Body(
        program(source, one), program(emitted, other), program(emitted, windowed), hidden, source
    )


def _with_kind(buffer: Buffer, kind: Kind | None) -> Buffer:
    if kind is None:
        return buffer
    return replace(buffer, kind=kind, finite=buffer.finite and kind is buffer.kind)


# Loops that count from where the elements begin that they run over, so that two programs count alike.
#
# ::
#
#     for i in 0:m                            for i in s:s + m
#       C[s + i] = A[s + i]          ->         C[i] = A[i]
#
# The new iterator is the old one and a number that nothing inside of the loop changes: the loop runs the same
# iterations, in the same order.

_NO_OFFSET = ix.const(0)


def count_from_elements(program: Program) -> Program:
    """Return `program` with its loops counting from where the elements begin that all stores inside of them write."""
    body = shift_loops(program.body)
    return program if body == program.body else replace(program, body=body)


def shift_loops(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return a block with the loops in it counting from where elements begin."""
    return tuple(map_blocks(_shift(stmt), shift_loops) for stmt in body)


def _shift(stmt: Stmt) -> Stmt:
    offset = stored_offset(stmt) if isinstance(stmt, For) else None
    if not isinstance(stmt, For) or offset in (None, _NO_OFFSET):
        return stmt
    assert offset is not None
    inside = {stmt.iter: ix.sub(Var(stmt.iter), offset)}
    lo, hi = ix.add(stmt.lo, offset), ix.add(stmt.hi, offset)
    return replace(stmt, lo=lo, hi=hi, body=substitute_coordinates(stmt.body, inside))


def stored_offset(loop: For) -> Expr | None:
    """Return how much more than the iterator the index is that it moves in all stores inside; None where they are of two numbers,
    or one that changes inside, or there is no such index.
    """
    bound = {loop.iter} | all_bound_names(loop.body)
    offsets = set[Expr | None]()
    for store in (stmt for stmt in walk(loop.body) if isinstance(stmt, Store)):
        moving = [part for part in store.index if loop.iter in variables(part)]
        offset = ix.sub(moving[0], Var(loop.iter)) if len(moving) == 1 else None
        offsets.add(None if offset is None or variables(offset) & bound else offset)
    return offsets.pop() if len(offsets) == 1 else None
