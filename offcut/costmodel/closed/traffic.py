"""Bytes that move between levels of memory while a loop program runs: exact footprints, and what stays of them.

A level of C bytes is filled, while a statement S runs once, by

    M(S) = F(S)                                                where F(S) <= C: all that it touches stays
    M(loop) = sum over arrays of min(trips * F(body), F(loop))    where F(body) <= C: one iteration's stays to the next
    M(loop) = sum of M(body)                                      otherwise; in formulas, trips * M(body) half way
    M(block) = sum of M(part), less what a part finds of the one before it, where both fit

with F, the bytes that are touched: boxes of whole lines (`footprints`). What is stored moves twice: it is filled, and written back.
A tile of a microkernel touches each element once. Registers are such a level as well: what they are filled with is what L1 gives.

Source: the recursion is that of reuse distances in perfect nests, as in Low et al., *Analytical modeling is enough for
high-performance BLIS*, 2016, and Olivry et al., *IOOpt*, 2021, over footprints that isl's users call access relations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import Const, Expr, substitute, variables
from offcut.core.program import Buffer
from offcut.core.scan import ScanContext
from offcut.costmodel.closed.footprints import Box, bytes_of, crowding
from offcut.costmodel.closed.summation import trips
from offcut.costmodel.closed.sums import Sums, asks, greatest, middle_of
from offcut.costmodel.resources import Level
from offcut.costmodel.simplification import select, simplify_index

Piece = int | str  # which of the pieces of a program; or an array


@dataclass(frozen=True, slots=True)
class Held:
    """An array, as statements see it: its window, where it has one.

    shape  of what it lies in
    """

    buffer: Buffer
    shape: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Touched:
    """What one run of a statement touches, and what moves for it.

    boxes   by array
    first   by array, the piece that touches it first; of two sides of a condition, that of the first
    moved   into each level, by piece: bytes
    kept    by level, bytes of the largest part that fits it, which stay there
    """

    boxes: Mapping[str, Box] = field(default_factory=dict)
    first: Mapping[str, Piece] = field(default_factory=dict)
    moved: tuple[Mapping[Piece, Expr], ...] = ()
    kept: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class Traffic:
    """The recursion, for arrays and levels of memory, nearest first.

    sizes   what is known of them
    sums    of bytes over loops
    middle  of each loop around what is looked at, outermost first: whether something fits is asked there
    by_array  whether what moves is told by array, of a call that finds nothing in a cache; else by piece
    """

    held: Mapping[str, Held]
    levels: tuple[Level, ...]
    sizes: ScanContext
    sums: Sums
    middle: dict[str, Expr] = field(default_factory=dict)
    by_array: bool = False

    @property
    def nothing(self) -> Touched:
        """Of what never runs."""
        nothing = tuple(ix.const(0) for _ in self.levels)
        return Touched(moved=tuple({} for _ in self.levels), kept=nothing)

    def access(self, boxes: Mapping[str, Box], piece: Piece) -> Touched:
        """Of accesses that touch each element once: a statement, or a tile of a microkernel."""
        first = {name: name if self.by_array else piece for name in boxes}
        volumes = tuple(self._spread(self._bytes(boxes, level), first) for level in self.levels)
        return Touched(
            boxes, first, volumes, self._resident_room(boxes, (self.nothing,), self.sizes)
        )

    def block(self, parts: Sequence[Touched]) -> Touched:
        """Of statements one after the other."""
        parts = [part for part in parts if part.boxes]
        if len(parts) < 2:
            return parts[0] if parts else self.nothing
        boxes, first = self._joined_boxes(parts)
        volumes = []
        for number, level in enumerate(self.levels):
            each = [self.room(part.boxes, level) for part in parts]
            apart = _plus(part.moved[number] for part in parts)
            for k in range(1, len(parts)):
                if any(
                    self._never(_total((one,)), level, self.sizes) for one in each[k - 1 : k + 1]
                ):
                    continue
                fit = self._fits(_total((each[k - 1], each[k])), level, self.sizes)
                for name in (one for one in each[k] if one in each[k - 1]):
                    both = ix.minimum(each[k - 1][name], each[k][name])
                    piece = parts[k].first[name]
                    reused = select(fit, both, ix.const(0))
                    rest = ix.sub(apart.get(piece, ix.const(0)), reused)
                    apart = {**apart, piece: ix.maximum(rest, 0)}
            volumes.append(self._where_fits(boxes, first, level, apart, self.sizes))
        return Touched(boxes, first, tuple(volumes), self._resident_room(boxes, parts, self.sizes))

    def loop(self, name: str, lo: Expr, hi: Expr, body: Touched, known: ScanContext) -> Touched:
        """Of all iterations of a loop."""
        count = trips(lo, hi, known)
        if not body.boxes or count == ix.const(0):
            return self.nothing
        runs = ix.const(1) if known.at_least_zero(ix.sub(count, 1)) else ix.minimum(count, 1)
        ends = {name: (lo, ix.sub(ix.add(lo, count), 1))}
        boxes = {array: box.over(ends) for array, box in body.boxes.items()}
        half_way = {name: middle_of(lo, hi)}
        typical = {array: box.at(half_way) for array, box in body.boxes.items()}
        volumes = []
        for number, level in enumerate(self.levels):
            whole, once = self._bytes(boxes, level), self._bytes(typical, level)
            near = {
                array: ix.minimum(ix.mul(count, once[array]), whole[array])
                if name in body.boxes[array].names
                else whole[array]
                for array in boxes
            }
            far = {
                piece: self.sums.over(name, lo, hi, term, known)
                for piece, term in body.moved[number].items()
            }
            stays = self._fits(self._size(typical, level), level, known)
            fits = self._fits(self._size(boxes, level), level, known)
            some = _either(stays, _times(runs, self._spread(near, body.first)), far)
            all_of = _times(runs, self._spread(whole, body.first))
            volumes.append(_either(fits, all_of, some))
        inside = replace(
            body, kept=tuple(self._stays(name, lo, hi, size, known) for size in body.kept)
        )
        sizes = (ix.mul(runs, size) for size in self._resident_room(boxes, (inside,), known))
        return Touched(boxes, body.first, tuple(volumes), tuple(sizes))

    def at_once(self, body: Touched, name: str, first: Expr, last: Expr) -> Touched:
        """Of all lanes of a tile together, whose accesses are of all of them already; what loops inside of it do otherwise
        lane by lane is as in the middle.
        """
        half_way = {name: ix.floordiv(ix.add(first, last), 2)}
        boxes = {array: box.over({name: (first, last)}) for array, box in body.boxes.items()}
        volumes = tuple(
            {piece: _at(size, half_way) for piece, size in level.items()} for level in body.moved
        )
        sizes = tuple(_at(size, half_way) for size in body.kept)
        return Touched(boxes, body.first, volumes, sizes)

    def where(self, condition: Expr, then: Touched, other: Touched) -> Touched:
        """Of one of two, by a condition on sizes and iterators."""
        boxes, first = self._joined_boxes((then, other))
        pairs = zip(then.moved, other.moved, strict=True)
        volumes = tuple(_either(condition, one, two) for one, two in pairs)
        sizes = zip(then.kept, other.kept, strict=True)
        return Touched(
            boxes, first, volumes, tuple(select(condition, one, two) for one, two in sizes)
        )

    def at_a_call(self, whole: Touched) -> tuple[Mapping[Piece, Expr], ...]:
        """What moves in a call after one of the same sizes: nothing into a cache that holds all arrays."""
        if self.by_array:
            return whole.moved
        arrays = {self.held[name].buffer.name: self.held[name] for name in whole.boxes}.values()
        sizes = (ix.product((*one.shape, ITEM_BYTES[one.buffer.dtype])) for one in arrays)
        total = ix.add(*sizes)
        _, *caches = self.levels
        first, *rest = whole.moved
        volumes = (
            first,
            *(
                _either(self._fits(total, level, self.sizes), {}, volume)
                for level, volume in zip(caches, rest, strict=True)
            ),
        )
        return tuple({k: self.sums.finish(size) for k, size in one.items()} for one in volumes)

    def _stays(self, name: str, lo: Expr, hi: Expr, size: Expr, known: ScanContext) -> Expr:
        """Bytes of a part that stay in an iteration of a loop: half way, or the most where a condition asks which it is."""
        if asks(size, name):
            return greatest(name, lo, hi, size, known)
        return _at(size, {name: middle_of(lo, hi)})

    def _resident_room(
        self, boxes: Mapping[str, Box], parts: Sequence[Touched], known: ScanContext
    ) -> tuple[Expr, ...]:
        """Of all that is touched, where that fits a level, else the most of a part."""
        if self.by_array:
            return self.nothing.kept
        sizes = []
        for number, level in enumerate(self.levels):
            size = self._size(boxes, level)
            inside = parts[0].kept[number]
            for part in parts[1:]:
                inside = ix.maximum(inside, part.kept[number])
            sizes.append(select(self._fits(size, level, known), size, inside))
        return tuple(sizes)

    def _size(self, boxes: Mapping[str, Box], level: Level) -> Expr:
        """Bytes that boxes take up."""
        return _total((self.room(boxes, level),))

    def room(self, boxes: Mapping[str, Box], level: Level) -> dict[str, Expr]:
        """The room that boxes take in a level, by array."""
        sizes = {}
        for name, box in boxes.items():
            view = self.held[name]
            times = crowding(box, view.buffer, view.shape, level)
            sizes[name] = ix.mul(times, self._lines(name, box, level))
        return sizes

    def _bytes(self, boxes: Mapping[str, Box], level: Level) -> dict[str, Expr]:
        """Bytes that move for each array: in, and out where it is stored; a cache is filled before that."""
        sizes = {}
        for name, box in boxes.items():
            ways = int(box.read or level.line > 1) + int(box.written)
            sizes[name] = ix.mul(ways, self._lines(name, box, level))
        return sizes

    def _lines(self, name: str, box: Box, level: Level) -> Expr:
        view = self.held[name]
        return bytes_of(box, view.buffer, view.shape, level)

    def _where_fits(
        self,
        boxes: Mapping[str, Box],
        first: Mapping[str, Piece],
        level: Level,
        otherwise: Mapping[Piece, Expr],
        known: ScanContext,
    ) -> Mapping[Piece, Expr]:
        fits = self._fits(self._size(boxes, level), level, known)
        return _either(fits, self._spread(self._bytes(boxes, level), first), otherwise)

    def _joined_boxes(self, parts: Sequence[Touched]) -> tuple[dict[str, Box], dict[str, Piece]]:
        """The boxes of statements one after the other, and who touches each first."""
        boxes: dict[str, Box] = {}
        first: dict[str, Piece] = {}
        for part in parts:
            for name, box in part.boxes.items():
                boxes[name] = boxes[name].join(box, self.sizes) if name in boxes else box
                first.setdefault(name, part.first[name])
        return boxes, first

    def _here(self, size: Expr) -> Expr:
        """Bytes in the middle of the loops around."""
        for name, middle in reversed(list(self.middle.items())):
            if name in variables(size):
                size = simplify_index(substitute(size, {name: middle}))
        return size

    def _never(self, size: Expr, level: Level, known: ScanContext) -> bool:
        """Whether bytes are known not to fit a level, whatever the sizes."""
        return known.at_least_zero(ix.sub(self._here(size), level.bytes + 1))

    def _fits(self, size: Expr, level: Level, known: ScanContext) -> Expr:
        """Whether bytes fit a level: a literal where all sizes tell the same."""
        size = self._here(size)
        if known.at_least_zero(ix.sub(level.bytes, size)):
            return Const(1, "bool")
        if self._never(size, level, known):
            return Const(0, "bool")
        return ix.compare("<=", size, level.bytes)

    def _spread(self, each: Mapping[str, Expr], first: Mapping[str, Piece]) -> dict[Piece, Expr]:
        """Bytes of arrays, by the piece that touches them first."""
        return _plus({first[name]: size} for name, size in each.items())


def _at(size: Expr, values: Mapping[str, Expr]) -> Expr:
    return simplify_index(substitute(size, values)) if variables(size) & set(values) else size


def _plus(parts: Iterable[Mapping[Piece, Expr]]) -> dict[Piece, Expr]:
    total: dict[Piece, Expr] = {}
    for part in parts:
        for piece, size in part.items():
            total[piece] = ix.add(total.get(piece, ix.const(0)), size)
    return total


def _times(count: Expr, parts: Mapping[Piece, Expr]) -> dict[Piece, Expr]:
    return {piece: ix.mul(count, size) for piece, size in parts.items()}


def _either(
    condition: Expr, then: Mapping[Piece, Expr], other: Mapping[Piece, Expr]
) -> dict[Piece, Expr]:
    zero = ix.const(0)
    pieces = dict.fromkeys((*then, *other))
    return {
        piece: select(condition, then.get(piece, zero), other.get(piece, zero)) for piece in pieces
    }


def _total(parts: Iterable[Mapping[str, Expr]]) -> Expr:
    """Bytes of arrays together, each once, where it is largest."""
    largest: dict[str, Expr] = {}
    for part in parts:
        for name, size in part.items():
            largest[name] = ix.maximum(largest[name], size) if name in largest else size
    return ix.add(*largest.values())
