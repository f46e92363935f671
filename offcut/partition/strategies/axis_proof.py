"""Prove the tiling of one axis for all sizes, by isl; an error carries the smallest witness.

An axis is proved once for an abstract extent, and the result is lifted: the pieces of a
rectangular domain are the products of the segments of its axes, so they are disjoint and covering
when each axis' segments are.
"""

from __future__ import annotations

from offcut.core import index as ix
from offcut.core.conditions import conjuncts
from offcut.core.expr import Expr, Var
from offcut.core.memo import memo
from offcut.core.program import Size, Stmt, Store, Tile, TileAxis
from offcut.describe.computation import Names
from offcut.errors import PartitionError
from offcut.partition.strategies.catalog import CUT, Strategy, segments
from offcut.partition.strategies.segment_loops import TilePlace, segment_loops
from offcut.partition.strategies.segment_placement import Segment
from offcut.polyhedral import Space
from offcut.proof import Theorem
from offcut.proof.by_axis.coverage import prove_containment, prove_coverage, strips_of
from offcut.proof.by_axis.decision import CoverageCounterexample
from offcut.proof.by_axis.strips import Strip, Value


@memo(4096)
def check_axis(
    strategy: Strategy,
    tile: int,
    ordered: bool,
    size: int | None = None,
) -> tuple[Theorem, ...]:
    """Prove the tiling of ``0 <= x < e``, read back from the loops that implement it.

    size   the extent e where it is a literal; None: the proof is for every e

    disjoint    each x is owned by one segment, and its segment runs it in one tile
    covering    the owned sets together are ``0 <= x < e``, and each segment runs what it owns
    in bounds   what is executed (in a padded tile: what is kept) lies in ``0 <= x < e``
    ascending   x < y implies that x does not run after y; asked for a reduction (`ordered`)

    `coverage.py` says how. A refusal names the smallest extent. A strategy that `divides` is proved for the multiples of the tile;
    `check_exact` asks whether these are all.
    """
    extent: Expr = Var("e") if size is None else ix.const(size)
    of = f"{strategy} by {tile}"
    parts = segments(strategy, extent, tile)
    facts: tuple[Expr, ...] = ()
    if strategy.divides:
        facts = (ix.compare("==", ix.mod(extent, tile), 0),)
    space = Space((Size("e") if size is None else Size("e", size, size),), facts)
    owned = [_owned_strip(segment) for segment in parts]
    run = [strip for segment in parts for strip in _run(space, segment)]
    ascends = ordered and not any(strip.repeats for strip in run)
    broken = prove_coverage(space, extent, owned, ordered=ordered and not ascends)
    broken = broken or prove_coverage(space, extent, run, ordered=ascends)
    for mine, strip in zip(owned, run, strict=True):
        broken = broken or prove_containment(space, mine, strip)
    if broken is not None:
        witness_extent = dict(broken.sizes).get("e", size or 0)
        for smaller in range(min(witness_extent, _TRIED) if size is None else 0):
            check_axis(strategy, tile, ordered, smaller)
        raise _coverage_error(strategy, tile, witness_extent, broken)
    theorems = [
        Theorem("disjoint", "no coordinate is owned twice", of),
        Theorem("covering", "every coordinate is owned", of),
        Theorem("in bounds", "what is executed and kept lies inside the extent", of),
    ]
    if ordered:
        theorems.append(Theorem("ascending", "tiles run in the order of the coordinate", of))
    return tuple(theorems)


def _owned_strip(segment: Segment) -> Strip:
    """Return the coordinates that a segment owns, with its conditions."""
    lo, hi = segment.owned
    conditions = () if segment.when is None else conjuncts(segment.when)
    values = tuple(Value(let.name, let.lo, let.hi, let.value, conditions) for let in segment.lets)
    return Strip(lo, hi, holds=conditions, values=values)


def _run(space: Space, segment: Segment) -> list[Strip]:
    """Return the coordinates that the loops of a segment run, read from their text."""

    def tile(place: TilePlace) -> tuple[Stmt, ...]:
        where = None
        if segment.predicate:
            where = ix.compare("<", Var("x"), segment.owned[1])
        store = Store("x", (Var("x"),), ix.const(0))
        return (Tile((TileAxis("x", place.start, place.height),), (store,), where, segment.form),)

    return strips_of(space, segment_loops(segment, "x_tile", Names(("x", "e")), tile), "x")


def _coverage_error(
    strategy: Strategy, tile: int, extent: int, broken: CoverageCounterexample
) -> PartitionError:
    """Return the error for a tiling that does not run each iteration of an axis once."""
    return PartitionError(
        "partition",
        f"cannot cut by {strategy}",
        at=f"a tile of {tile}: {strategy.takes(tile)}",
        because=f"with an extent of {extent}, {_BROKEN[broken.what].format(broken.at)}",
        help=(f'tail="{CUT}" runs every iteration once',),
    )


_TRIED = 256  # extents below one that breaks a theorem: a smaller one may break another
_BROKEN = {
    "missing": "no tile runs iteration {}",
    "outside": "a tile runs iteration {}, which does not exist",
    "twice": "two tiles run iteration {}",
    "late": "iteration {} runs after a later one",
    "bounded": "a bounded value leaves its range",
}
