"""Marks loops around tiles whose iterations run each tile together: unroll-and-jam.

    for j in 0:n                                    for j in 0:n  @unroll(4)
      tile c in 0:64                                  tile c in 0:64
        S[j, c] = 0.0                                   S[j, c] = 0.0
        for r in 0:3                          ->        for r in 0:3
          S[j, c] += X[j + r, c] * W[r, c]                S[j, c] += X[j + r, c] * W[r, c]
        Y[j, c] = S[j, c]                               Y[j, c] = S[j, c]

A sum over a window of an image has as many loads as products: of `X` and of `W`. Of four rows that run together, those of `W` are
loaded once (`Vectors.jammed_statements`). Each sum keeps its order, in a register of its own.

A schedule says it by a split, whose inner loop is bound: ``split Y.j 4 as j_tile j_in``, ``bind Y.j_in unroll``; a factor of 1 keeps
iterations apart. Of a loop of which it says nothing, the default is as many iterations as there are registers for, if they
load something once, and sums have one extent in all iterations of the loops around, or these are known to have several: borders of one
row are a small part of an image, and most of the code.

Legality is shown by the indices: what a tile writes to memory has the loop's iterator alone in one index, and the tile reads none
of it; what else it writes lives in registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace

from offcut.backends.cpu.lowering.call_layout import buffers_in_memory
from offcut.backends.cpu.lowering.expressions import is_one_element, store_apart
from offcut.backends.cpu.lowering.lane_reductions import has_lane_reductions
from offcut.backends.cpu.machine.isa import Isa
from offcut.core import index as ix
from offcut.core.analysis import residual_conditions
from offcut.core.expr import Expr, Load, loads, variables
from offcut.core.program import STATUS, THREAD, UNROLL, For, If, Program, Stmt, Store, Tile
from offcut.core.program import walk as statements
from offcut.core.text.printer import format_head
from offcut.core.traversal import expressions, map_blocks
from offcut.errors import PartitionError
from offcut.polyhedral import coefficient
from offcut.polyhedral.sync import has_loops_of
from offcut.schedule import Binds, Split, with_source_line


def unroll_and_jam(
    program: Program, isa: Isa, binds: Binds, shares: bool
) -> tuple[Program, tuple[Split, ...]]:
    """Return `program` with loops marked ``@unroll(factor)``, and the splits that say so of those that `binds` leaves open.

    binds   the lines of a schedule that bind loops to `UNROLL`
    shares  whether threads share loops

    Raises PartitionError, with the line or the loop, for iterations that may not run a tile together.
    """
    marker = _Marker(program, isa, binds, shares)
    body = marker.block(program.body, ())
    if marker.gainless - marker.mark:
        marker = _Marker(program, isa, binds, shares, marker.gainless - marker.mark)
        body = marker.block(program.body, ())
    marker.check_lines()
    program = program if body == program.body else replace(program, body=body)
    return program, tuple(marker.new_splits)


def without_factors(program: Program) -> Program:
    """Return `program` with no loop marked ``@unroll(factor)``."""

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(
            map_blocks(
                replace(stmt, unit=None, factor=None)
                if isinstance(stmt, For) and stmt.factor is not None
                else stmt,
                block,
            )
            for stmt in body
        )

    return replace(program, body=block(program.body))


class _Marker:
    """Marks loops, the outermost first.

    forced    splits of which each loop is marked that may be, since none gains
    marked    splits of which some loop is marked
    gainless  splits of which some loop may be marked, and does not gain
    reasons   why loops that lines name may not be marked, by the line's split
    """

    def __init__(
        self,
        program: Program,
        isa: Isa,
        binds: Binds,
        shares: bool,
        forced: Set[Split] = frozenset(),
    ) -> None:
        self.program, self.isa, self.binds, self.shares = program, isa, binds, shares
        self.forced, self.gainless = forced, set[Split]()
        self.memory = buffers_in_memory(program)
        self.new_splits: dict[Split, None] = {}
        self.mark: set[Split] = set()
        self.reasons: dict[Split, str] = {}

    def block(self, body: tuple[Stmt, ...], around: tuple[For, ...]) -> tuple[Stmt, ...]:
        """Return a block with its loops marked; `around` are the loops of one thread that it stands in."""
        return tuple(
            self.loop(stmt, around)
            if isinstance(stmt, For)
            else stmt
            if isinstance(stmt, Tile)
            else map_blocks(stmt, lambda inner: self.block(inner, around))
            for stmt in body
        )

    def loop(self, loop: For, around: tuple[For, ...]) -> For:
        """Return a loop that is marked, or whose inner loops are."""
        factor = self.factor(loop, around)
        if factor is not None:
            return replace(loop, unit=UNROLL, factor=factor)
        is_of_team = self.shares and has_loops_of(THREAD, loop)
        inner = around if is_of_team else (*around, loop)
        return replace(loop, body=self.block(loop.body, inner))

    def factor(self, loop: For, around: tuple[For, ...]) -> int | None:
        """Return how many iterations of a loop run together; None if they run in turn."""
        if loop.factor is not None:
            self.check_mark(loop)
            return loop.factor
        if loop.unit is not None or not any(isinstance(s, Tile) for s in statements(loop.body)):
            return None
        split = self.binds.unrolled_split(loop)
        factor = self.default_factor() if split is None else split.levels[0].tile
        extent = ix.literal_value(ix.sub(loop.hi, loop.lo))
        if factor < 2 or (extent is not None and extent < factor):
            self.mark |= set() if split is None else {split}
            return None
        reason = self.why_in_turn(loop, loop.body)
        if reason is not None:
            self.reasons |= {} if split is None else {split: reason}
            return None
        gains = self.gains(loop, loop.body, (), around)
        if split is not None:
            gains = gains or split in self.forced
            (self.mark if gains else self.gainless).add(split)
            return factor if gains else None
        if not gains:
            return None
        new_splits = self.binds.new_unrolled_splits(loop, factor)
        self.new_splits |= dict.fromkeys(new_splits)
        return factor if new_splits else None

    def default_factor(self) -> int:
        """Return as many iterations as leave registers for the accumulators of each, a power of 2."""
        count, chains = 1, self.isa.machine.loops.chains
        while (2 * count + 1) * chains < self.isa.registers:
            count *= 2
        return count

    def check_mark(self, loop: For) -> None:
        """Check a loop that a text marks ``@unroll(factor)``.

        Raises PartitionError, with the loop.
        """
        reason = self.why_in_turn(loop, loop.body)
        if reason is not None:
            raise PartitionError(
                "compile",
                f"cannot run {loop.factor} iterations of {loop.iter} together",
                at=format_head(loop),
                because=reason,
                help=(f"without @{UNROLL}({loop.factor})",),
            )

    def check_lines(self) -> None:
        """Check that each line marks a loop.

        Raises PartitionError, with the line.
        """
        for line in self.binds.lines:
            split = self.binds.split_of(line)
            if split is None or split in self.mark:
                continue
            name, because = f"{split.stage}.{split.axis}", self.reasons.get(split)
            help = f"split {name} 1 as {' '.join(split.names)}"
            if because is None:
                because = "no loop of that name runs in turn around tiles"
                help = "the schedule without this line, and without the split"
            with with_source_line(self.binds.schedule, line):
                raise PartitionError(
                    "bind",
                    f"cannot run {split.levels[0].tile} iterations of {name} together",
                    because=because,
                    help=(help,),
                )

    def why_in_turn(self, loop: For, body: Sequence[Stmt]) -> str | None:
        """Return why iterations of `loop` may not run the tiles in it together; None if they may."""
        if not body:
            return "no tile is inside of it"
        for stmt in body:
            if isinstance(stmt, Tile):
                reason = self.why_tile_in_turn(loop, stmt)
            elif (
                isinstance(stmt, If) and not stmt.other and not _varies({loop.iter}, stmt.condition)
            ):
                reason = self.why_in_turn(loop, stmt.then)
            elif not isinstance(stmt, For):
                reason = "a statement stands in it beside the tiles"
            elif _varies({loop.iter}, stmt.lo, stmt.hi):
                reason = f"the loop {stmt.iter} in it has other bounds in each iteration"
            else:
                reason = self.why_in_turn(loop, stmt.body)
            if reason is not None:
                return reason
        return None

    def why_tile_in_turn(self, loop: For, tile: Tile) -> str | None:
        """Return why iterations of `loop` may not run a tile together; None if they may."""
        if tile.microkernel is not None:
            return f"a microkernel runs the tile in it: {tile.microkernel}"
        if len(tile.axes) != 1 or residual_conditions(tile):
            return "the tile in it has several axes, or a condition in each instance"
        (axis,) = tile.axes
        where = () if tile.where is None else (tile.where,)
        if _varies({loop.iter}, axis.start, axis.extent, *where):
            return "the tile in it moves with it"
        if not store_apart(self.program, self.memory, tile.body, axis.iter):
            return "lanes of the tile write one element"
        inside = [*statements(tile.body)]
        sums = [stmt for stmt in inside if isinstance(stmt, For)]
        stores = [stmt for stmt in inside if isinstance(stmt, Store)]
        if len(sums) + len(stores) < len(inside):
            return "the tile holds more than sums and stores"
        if has_lane_reductions(tile.body, self.program, self.isa):
            return "lanes of the tile hold partial sums"
        if any(_varies({loop.iter, axis.iter}, one.lo, one.hi) for one in sums):
            return "a sum in it has other bounds in each iteration"
        read = {
            load.buffer for stmt in inside for expr in expressions(stmt) for load, _ in loads(expr)
        }
        inner = {axis.iter, *_iterators_between(loop, tile), *(one.iter for one in sums)}
        for store in stores:
            if store.buffer not in self.memory:
                if not is_one_element(store.buffer, tile.body):
                    return f"no register stands for {store.buffer}"
            elif (
                store not in tile.body
                or store.buffer in read
                or self.program.buffer(store.buffer).scope == STATUS
                or not _is_own(store, loop.iter, inner)
            ):
                return f"an iteration reads what another one writes to {store.buffer}, or writes it too"
        return None

    def gains(
        self, loop: For, body: Sequence[Stmt], inner: tuple[str, ...], around: tuple[For, ...]
    ) -> bool:
        """Return whether all tiles in `loop` load something once, and their sums have one extent wherever they stand.

        inner   the iterators of the loops inside of `loop` around `body`
        around  the loops around `loop`
        """
        short = {one.iter for one in around if not _is_long(one)}

        def tile_gains(tile: Tile) -> bool:
            (axis,) = tile.axes
            sums = [stmt for stmt in statements(tile.body) if isinstance(stmt, For)]
            outer = {loop.iter, axis.iter, *inner, *short}
            return not any(_varies(outer, one.lo, one.hi) for one in sums) and any(
                _is_alike(load, loop.iter, axis.iter)
                for load in (*_loads(sums), *_place_loads(_loads([tile])))
            )

        def gains(stmt: Stmt) -> bool:
            match stmt:
                case Tile():
                    return tile_gains(stmt)
                case If():
                    return self.gains(loop, stmt.then, inner, around)
                case For():
                    return self.gains(loop, stmt.body, (*inner, stmt.iter), around)
                case _:
                    return False

        return all(map(gains, body))


def _iterators_between(loop: For, tile: Tile) -> Iterator[str]:
    """Yield the iterators of the loops inside of `loop` around `tile`."""
    for stmt in statements(loop.body):
        if isinstance(stmt, For) and any(inner is tile for inner in statements(stmt.body)):
            yield stmt.iter


def _is_long(loop: For) -> bool:
    """Return whether a loop is known to have several iterations."""
    extent = ix.literal_value(ix.sub(loop.hi, loop.lo))
    return extent is not None and extent > 1


def _varies(names: Set[str], *exprs: Expr) -> bool:
    return any(variables(expr) & names for expr in exprs)


def _is_own(store: Store, name: str, inner: set[str]) -> bool:
    """Return whether each iteration of the loop of `name` writes elements of its own, as one index shows."""
    return any(coefficient(part, name) and not variables(part) & inner for part in store.index)


def _is_alike(load: Load, name: str, lane: str) -> bool:
    """Return whether what is read varies along lanes, and not along the loop of `name`."""
    names = set[str]().union(*map(variables, load.index))
    return lane in names and name not in names


def _loads(body: Sequence[Stmt]) -> Iterator[Load]:
    for store in statements(tuple(body)):
        if isinstance(store, Store):
            yield from (load for load, _ in loads(store.value))


def _place_loads(gathers: Iterable[Load]) -> Iterator[Load]:
    """Yield what is read to know where elements lie."""
    for gather in gathers:
        for part in gather.index:
            yield from (load for load, _ in loads(part))
