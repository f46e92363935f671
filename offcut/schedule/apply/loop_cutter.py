"""Statements and the cuts of their loops -> statements with each band of cut loops as tiles.

A *band* is a chain of loops each of which holds nothing but the next. The loops that are cut in a
band become tile loops, in their order, around the instances of one tile. A loop that is cut alone
keeps the order of everything. A band of several moves tile loops outward past the instances of a
tile: whether the dependences allow that is proved on the emitted program, which is refused with the
pair of instances otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Logic, reads_memory, variables
from offcut.core.program import (
    Alloc,
    Choose,
    For,
    If,
    Let,
    Option,
    Stmt,
    Store,
    Sync,
    Tile,
    walk,
)
from offcut.partition import LoopCut, runs
from offcut.partition.cutting import Cutting
from offcut.partition.legality import check_crossed, check_takes
from offcut.polyhedral import Facts
from offcut.schedule.apply.band_loops import BandLoops
from offcut.schedule.apply.offsets import At
from offcut.schedule.apply.staged_form import Nests


class LoopCutter:
    """Cuts the loops of one nest as `cutting` says, and notes there what it made.

    nests  the declarations of the program
    """

    def __init__(self, nests: Nests, cutting: Cutting) -> None:
        self.nests, self.cutting, self.carried = nests, cutting, cutting.carried

    def block(self, body: Sequence[Stmt], at: Facts) -> tuple[Stmt, ...]:
        """`body` with the loops in it cut."""
        return tuple(piece for stmt in body for piece in self.statement(stmt, at))

    def statement(self, stmt: Stmt, at: Facts) -> tuple[Stmt, ...]:
        """`stmt` with the loops in it cut."""
        match stmt:
            case For():
                return self.nest(stmt, at)
            case If(condition, then, other):
                yes = self.block(then, at.where(condition))
                return (
                    If(condition, yes, self.block(other, at.where(Logic("not", (condition,))))),
                )
            case Let() | Alloc():
                return (replace(stmt, body=self.block(stmt.body, at)),)
            case Choose(options):
                return (Choose(tuple(replace(o, body=self.block(o.body, at)) for o in options)),)
            case Tile() | Store() | Sync():
                return (stmt,)

    def nest(self, loop: For, at: Facts) -> tuple[Stmt, ...]:
        """`loop` and the loops that it alone holds: from the first that is cut on, a band."""
        chain = _chain(loop)
        cuts = [self.cutting.cut_of(one) for one in chain]
        cut_places = [k for k, cut in enumerate(cuts) if cut is not None]
        if not cut_places:
            inner = at
            for one in chain:
                inner = inner.loop(one.iter, one.lo, one.hi)
            return _wrap(chain, self.block(chain[-1].body, inner))
        first = cut_places[0]
        sums = [k for k in cut_places if chain[k].iter in self.carried.reductions]
        # The terms of a sum keep their order: the second loop over them is cut inside of a tile.
        last = max(k for k in cut_places if len(sums) < 2 or k < sums[1])
        for one in chain[:first]:
            at = at.loop(one.iter, one.lo, one.hi)
        if self.distributes(chain[first:]):
            parts = [_wrap(chain[first:], (inner,))[0] for inner in chain[-1].body]
            pieces = tuple(stmt for part in parts for stmt in self.nest(_loop(part), at))
            return _wrap(chain[:first], pieces)
        band = chain[first : last + 1]
        end = last + 1
        while end < len(chain) and self.joins(chain[end], band):
            band = (*band, chain[end])
            end += 1
        body = _wrap(chain[end:], chain[-1].body) if end < len(chain) else chain[-1].body
        return _wrap(chain[:first], self.band(band, body, at))

    def band(self, band: Sequence[For], body: tuple[Stmt, ...], at: Facts) -> tuple[Stmt, ...]:
        """Return the loops of `band` around `body`, cut; where their tails are `mix`, in every variant that competes."""
        mixed = self.mixed_loops(band, body)
        if not mixed:
            return self.with_cuts(band, body, at)
        iterators = {loop.iter for loop in band}
        for loop, cut in mixed:
            if iterators & (variables(loop.lo) | variables(loop.hi)):
                check_crossed(loop, cut.strategy, cut.tiles[-1], last=True)
        options = []
        for one in mixed[0][1].strategy.among:
            cost: Expr = Const(1.0, "float64")
            for loop, cut in mixed:
                extent = ix.maximum(ix.sub(loop.hi, loop.lo), 0)
                tile = cut.tiles[-1]
                check_takes(f"loop {loop.iter}", one, tile)
                cost = Binary("*", cost, self.cutting.price(runs(one, extent, tile), tile))
            with self.cutting.decide([loop for loop, _ in mixed], one):
                options.append(Option(one.name, cost, self.with_cuts(band, body, at)))
        return (Choose(tuple(options)),)

    def mixed_loops(self, band: Sequence[For], body: tuple[Stmt, ...]) -> list[tuple[For, LoopCut]]:
        """Return the loops whose sequence is one choice, out here: those of the band, and those inside that
        run equally often in every tile.
        """
        inside = list(walk(body))
        bound = {loop.iter for loop in band}
        bound |= {s.iter for s in inside if isinstance(s, For)}
        bound |= {s.name for s in inside if isinstance(s, Let)}
        fixed = [
            stmt
            for stmt in inside
            if isinstance(stmt, For)
            and not bound & (variables(stmt.lo) | variables(stmt.hi))
            and not (reads_memory(stmt.lo) or reads_memory(stmt.hi))
        ]
        cuts = ((loop, self.cutting.cut_of(loop)) for loop in (*band, *fixed))
        return [(loop, cut) for loop, cut in cuts if cut and cut.strategy.among]

    def with_cuts(self, band: Sequence[For], body: tuple[Stmt, ...], at: Facts) -> tuple[Stmt, ...]:
        """Return the loops of `band`, cut level by level."""
        cuts = [self.cutting.cut_of(loop) for loop in band]
        loops = BandLoops(self.nests, band, cuts, body, self.cutting, self.block)
        return loops.emit(At(at, {}))

    def distributes(self, band: Sequence[For]) -> bool:
        """Whether parallel loops are repeated around each of several loops inside: the parts into
        which conditions have cut one. Nothing runs before what it needs: each iteration of a
        parallel loop needs only itself.
        """
        inside = band[-1].body
        loops_only = [stmt for stmt in inside if isinstance(stmt, For)]
        if len(inside) < 2 or len(loops_only) < len(inside):
            return False
        names = {one.iter for one in (*band, *loops_only)}
        return not names & self.carried.sequential

    def joins(self, loop: For, band: Sequence[For]) -> bool:
        """Whether a loop that is not cut lies in the tile with its whole extent."""
        outer = {one.iter for one in band}
        fixed = not outer & (variables(loop.lo) | variables(loop.hi))
        parallel = not {*outer, loop.iter} & self.carried.sequential
        return fixed and parallel and _is_plain(loop)


def _chain(loop: For) -> tuple[For, ...]:
    """`loop` and the loops inside it, each of which holds nothing but the next."""
    chain = [loop]
    while len(chain[-1].body) == 1 and isinstance(chain[-1].body[0], For):
        chain.append(chain[-1].body[0])
    return tuple(chain)


def _loop(stmt: Stmt) -> For:
    assert isinstance(stmt, For)
    return stmt


def _is_plain(loop: For) -> bool:
    return loop.unit is None


def _wrap(chain: Sequence[For], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    for loop in reversed(chain):
        body = (replace(loop, body=body),)
    return body
