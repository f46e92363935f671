"""A loop program -> its pieces, and of each, exactly: how often it runs, what it computes, and what it moves.

A piece is what runs as one: a tile of a microkernel, a tile of plain loops, or a nest of statements that store one array. What is counted
are index expressions over the sizes, literals where the sizes are. A loop that ends at the least of what is known and of an element of an array ends at what
is known; one whose bounds are read from memory runs as often as the machine's
policy assumes, and a condition that is read from memory holds. Where sums have no closed form, what is counted is an estimate, by the last
iteration and the one half way, or a bound, as if all conditions held; and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from offcut.core import index as ix
from offcut.core.analysis import last_stored, limits, residual_conditions
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.expr import (
    Binary,
    Const,
    Expr,
    Var,
    reads_memory,
    rewrite,
    variables,
)
from offcut.core.program import (
    Alloc,
    Choose,
    For,
    Form,
    Program,
    Role,
    Stmt,
    Store,
    Tile,
    TileAxis,
)
from offcut.core.program import walk as statements
from offcut.core.traversal import map_blocks, map_body, rewrite_body, substitute_coordinates
from offcut.costmodel.closed.count_loops import (
    OPEN,
    BytesOf,
    Scope,
    Tally,
    extent_of,
    inside_loop,
    stored_in,
)
from offcut.costmodel.closed.count_microkernels import MicrokernelCounts
from offcut.costmodel.closed.counts import (
    ZERO,
    Counted,
    Exactness,
    OptionNumber,
    Piece,
    least_exact,
    total_of_options,
)
from offcut.costmodel.closed.sums import Amount, SumMethod
from offcut.costmodel.description import load
from offcut.costmodel.machine import processor
from offcut.costmodel.resources import Hardware
from offcut.costmodel.simplification import simplify_index
from offcut.proof.normal_forms.condition_hoisting import bound


def count_program(
    program: Program,
    hardware: Hardware,
    sizes: Mapping[str, int],
    options: Mapping[int, int] | None = None,
    bytes_of: BytesOf = BytesOf.PIECES,
    last_method: SumMethod = SumMethod.NEAR,
) -> Counted:
    """`program`, counted at these sizes, and over those that are not given.

    options  by the number of a `choose`, the option that is counted; of others the cheapest, or all where sizes are open
    bytes_of  what bytes are told of
    last_method  of sums without a closed form, where some sizes are not given or adding up is too much work: an estimate, or a bound

    Sums that have no closed form are added up where all sizes are given.
    """
    fixed = {name: ix.const(size) for name, size in sizes.items()}
    known = with_known_ends(program.body)
    text = rewrite_body(known, _with_open)
    body = map_body(substitute_coordinates(text, fixed), _by_quotients)
    piece_methods: dict[int, Sequence[SumMethod]] = {}
    while True:
        counter = _ProcessorCounts(program, hardware, fixed, piece_methods, options or {}, bytes_of)
        counter.last_method = last_method
        if known != program.body:
            counter.exactness = least_exact(counter.exactness, Exactness.BOUND)
        counts = counter.counts_by_piece(body)
        instead = {piece: sums.methods[1:] for piece, sums in counter.sums.items() if sums.failed}
        if not instead:
            return counts
        piece_methods |= instead


def count_operations(program: Program, sizes: Mapping[str, int]) -> Amount:
    """Return the operations of `program` on elements at these sizes, and over those that are not given: the same on all machines.

    Where sums have no closed form, and are too many to add up, they are an estimate at given sizes, and a bound over others.
    """
    return _operations(program, frozenset(sizes.items()))


@lru_cache(1 << 8)  # a search asks for the same again and again
def _operations(program: Program, sizes: frozenset[tuple[str, int]]) -> Amount:
    hardware = Hardware(processor(load("avx2")), {}, ITEM_BYTES["float32"], ())
    is_open = len(sizes) < len(program.sizes)
    last_method = SumMethod.BOUND if is_open else SumMethod.NEAR
    program_counts = count_program(
        *(program, hardware, dict(sizes)), bytes_of=BytesOf.NOTHING, last_method=last_method
    )
    flop = dict[OptionNumber, Expr]()
    for piece, counts in zip(program_counts.pieces, program_counts.counts, strict=True):
        flop[piece.option] = ix.add(flop.get(piece.option, ZERO), counts.flop)
    total = total_of_options(flop, program_counts.choices, ZERO, ix.add)
    return Amount(total, program_counts.exactness)


def with_known_ends(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return a block whose loops and tiles end where they do at the latest, if the least of what is known and of elements of arrays ends them."""

    def change(stmt: Stmt) -> Stmt:
        match stmt:
            case For(lo=lo, hi=hi):
                stmt = replace(stmt, lo=known_part("max", lo), hi=known_part("min", hi))
            case Tile(axes=axes):
                ends = (replace(axis, extent=known_part("min", axis.extent)) for axis in axes)
                stmt = replace(stmt, axes=tuple(ends))
            case _:
                pass
        return map_blocks(stmt, with_known_ends)

    return tuple(map(change, body))


def known_part(op: str, end: Expr) -> Expr:
    """Return a bound without operands of what it is the greatest, or the least, of that are read from memory, where others are not."""

    def known(node: Expr) -> Expr | None:
        match node:
            case Binary(own, a, b) if own == op and reads_memory(node):
                operands = [one for one in (a, b) if not reads_memory(one)]
                return operands[0] if len(operands) == 1 else None
            case _:
                return None

    return rewrite(end, known) if reads_memory(end) else end


def footprints(program: Program, hardware: Hardware) -> dict[str, tuple[Expr, ...]]:
    """The room that each array of a program takes in each level, nearest first, over the sizes."""
    counter = _ProcessorCounts(program, hardware, {}, {}, {}, BytesOf.ARRAYS)
    boxes = counter.block(program.body, Scope(counter.known)).touched.boxes
    each = [counter.traffic.room(boxes, level) for level in hardware.levels]
    return {name: tuple(room[name] for room in each) for name in boxes}


class _ProcessorCounts(MicrokernelCounts):
    """Counts of a program on a processor, whose pieces are its tiles, and its nests outside of these."""

    def piece_of(self, stmt: Stmt, scope: Scope) -> Piece | None:
        """Return the piece of a tile, or of a nest that holds none."""
        stage = last_stored(stmt)
        match stmt:
            case Tile(axes, _, role=role):
                tile = tuple((axis.iter, extent_of(axis)) for axis in axes)
                return Piece(stage, role.value, tile, stmt.microkernel, scope.option)
            case Store() | For() if not _has_pieces(stmt):
                return Piece(stage, Role.WHOLE.value, (), None, scope.option)
            case _:
                return None

    def tile_of(self, tile: Tile, scope: Scope) -> Tally:
        """Return the counts of a tile of a microkernel, or of plain loops."""
        kernel = self.hardware.microkernels.get(tile.microkernel or "")
        if kernel is None:
            return self.tile(tile, tile.axes, scope)
        return self.count_run(tile, kernel, scope)

    def tile(self, tile: Tile, axes: Sequence[TileAxis], scope: Scope) -> Tally:
        """The instances of a tile of plain loops along `axes`, whose lanes run along the last one: those that no condition
        switches off.
        """
        if not axes:
            tally = self.block(tile.body, scope)
            return self.with_conditions(tally, residual_conditions(tile)) if tile.axes else tally
        axis, *rest = axes
        extent = extent_of(axis)
        start, end = simplify_index(axis.start), simplify_index(ix.add(axis.start, extent))
        known = inside_loop(scope.known, axis.iter, start, end)
        with self.around(axis.iter, start, end):
            run = None if OPEN in variables(axis.extent) else ix.literal_value(extent)
            stop = end
            for limit in limits(tile, axis.iter):
                stop = ix.minimum(stop, simplify_index(limit))
            reach = stop
            for other in _ends_of(axis.iter, residual_conditions(tile)):
                reach = ix.minimum(reach, simplify_index(other))
            across = None if rest or run is None else (axis.iter, start, ix.sub(reach, 1))
            inside = replace(
                scope,
                known=known,
                lane=axis.iter,
                run=run,
                across=across,
                around=scope.loop,
                written=stored_in(tile.body),
            )
            tally = self.tile(tile, rest, inside)
        loops, guarded = self.hardware.machine.loops, tile.form is Form.GUARD
        if across is None:
            each = tally.counts
            tally = self.loop(axis.iter, start, stop, tally, scope.known)
            sizes = {one.name for one in self.program.sizes} | set(self.values)
            if not rest and variables(ix.sub(stop, start)) <= sizes:
                store = next(one for one in statements(tile.body) if isinstance(one, Store))
                width = self.hardware.lanes_of(self.program.buffer(store.buffer).dtype)
                counts = {
                    piece: self.vectors(
                        axis.iter, start, stop, width, tally.counts[piece], one, scope.known, piece
                    )
                    for piece, one in each.items()
                }
                tally = replace(tally, counts={**tally.counts, **counts})
        else:
            each = {
                piece: self.lanes(axis.iter, start, end, stop, one, scope.known, piece, guarded)
                for piece, one in tally.counts.items()
            }
            tally = Tally(self.traffic.at_once(tally.touched, *across), each)
        if rest:
            return (
                self.with_loop_overhead(tally, loops.bind_cycles * (run or 0), scope)
                if guarded
                else tally
            )
        return self.with_loop_overhead(
            tally, loops.begin_cycles if run is None else loops.tile_cycles, scope
        )


def _with_open(stmt: Stmt) -> Stmt | None:
    """A tile of plain loops whose text does not say how many lanes it has, so marked."""
    if not isinstance(stmt, Tile) or not stmt.axes or stmt.cover is not None:
        return None
    *axes, last = stmt.axes
    if ix.literal_value(last.extent) is not None:
        return None
    return replace(stmt, axes=(*axes, replace(last, extent=ix.add(last.extent, Var(OPEN)))))


def _ends_of(name: str, conditions: Sequence[Expr]) -> Iterator[Expr]:
    """The ends of an iterator that conditions say, past which lanes touch nothing."""
    for one in conditions:
        limit = bound(one, name)
        if limit is not None and limit.op == "<" and not reads_memory(limit.b):
            yield limit.b


def _has_pieces(stmt: Stmt) -> bool:
    """Whether a nest holds pieces of its own."""
    return any(isinstance(one, Tile | Choose | Alloc) for one in statements((stmt,)))


def _by_quotients(expr: Expr) -> Expr:
    """Return an expression with remainders as what quotients leave: ``6*(n//6) + n%6`` is n then."""

    def change(node: Expr) -> Expr | None:
        match node:
            case Binary("%", a, Const(_, "index") as by):
                return ix.sub(a, ix.mul(by, ix.floordiv(a, by)))
            case _:
                return None

    return rewrite(expr, change)
