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
    not seen holds nothing at first and is not compared; B must write what it reads of it (`writes_first`).
    A window of an array that is seen, inside of B or B', is refused: it is other memory of the same name.
(2) So a window around a pair stands around B' again where that is asked.
(3) Once for the source, whose text around the pairs is that of the emitted program.
(4) Where it does not, at some values of what is around, those are never reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from offcut.core.accesses import accessed, stored, touched
from offcut.core.conditions import conjuncts
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
    canonical,
    walk,
    with_blocks,
)
from offcut.core.walking import bound_in
from offcut.polyhedral import Space
from offcut.proof.by_text.structure import bare
from offcut.proof.forms.fixed import Entry, Fixed, Rebound, inside_facts, opened

_SCRATCH = (Kind.LOCAL, Kind.PRIVATE)


@dataclass(frozen=True, slots=True)
class Body:
    """A pair of blocks at one place as two programs, whose sizes are what is fixed there.

    source, emitted  the programs; equal at that place where these are equal
    windowed         `emitted` in the windows that stand around it, which it must not leave
    unseen           the arrays that `source` must write before it reads them
    whole            the source that `source` is a part of
    """

    source: Program
    emitted: Program
    windowed: Program
    unseen: frozenset[str]
    whole: Program

    def opened(self) -> Body:
        """The same of any begin and length of the ranges in it: a harder question, and the same one for many pairs."""
        one, other, held = opened((self.source, self.emitted, self.windowed), self.whole)
        return Body(one, other, held, self.unseen, one)


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
    try:
        fixed = Fixed(source, pair.path, bound_in(pair.source) | bound_in(pair.emitted))
    except Rebound:
        raise _Unfit from None
    one, other = fixed.block(pair.source), fixed.block(pair.emitted)
    mine = touched(one) | touched(other)

    def program(of: Program, body: tuple[Stmt, ...]) -> Program:
        buffers = (b for b in of.buffers if b.name in mine)
        given = tuple(_given(fixed.buffer(b), kinds[b.name]) for b in buffers)
        return replace(of, sizes=fixed.sizes, assumptions=fixed.facts, buffers=given, body=body)

    known = Space(fixed.sizes, fixed.facts)
    fixed.facts = (*fixed.facts, *inside_facts(program(source, one), known))
    held = other
    for window in reversed(pair.path):
        if isinstance(window, Alloc) and window.buffer in mine:
            held = (Alloc(window.buffer, fixed.axes(window.axes), held),)
    windows = {s.buffer for s in walk((*one, *other)) if isinstance(s, Alloc)}
    if any(kinds[name] is not None for name in windows):
        raise _Unfit  # what a window holds is no element of what is seen
    unseen = frozenset(name for name in touched(one) if kinds[name] is None)
    return Body(
        program(source, one), program(emitted, other), program(emitted, held), unseen, source
    )


def _given(buffer: Buffer, kind: Kind | None) -> Buffer:
    """An array as a body has it."""
    if kind is None:
        return buffer
    return replace(buffer, kind=kind, finite=buffer.finite and kind is buffer.kind)
