"""What a cut of a loop program needs, each a theorem, and how it is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from offcut.core import index as ix
from offcut.core.analysis import unwindowed_arrays
from offcut.core.dtypes import ANY_ORDER
from offcut.core.expr import Compare, Expr
from offcut.core.interpret.run_arguments import declaration
from offcut.core.program import (
    Alloc,
    Buffer,
    Choose,
    For,
    Kind,
    Program,
    Stmt,
    Store,
    Tile,
    blocks,
    walk,
)
from offcut.core.text.layouts import format_layout
from offcut.core.text.printer import format_expr, format_stmt
from offcut.errors import PartitionError
from offcut.partition.strategies.catalog import CUT, Strategy, segments
from offcut.partition.strategies.tiled_axis import EXTENT
from offcut.polyhedral import (
    Facts,
    OutOfBoundsAccess,
    escaping_windows,
    outside_window,
    try_isl,
)

MOST_TILES = 256  # each code of its own: what compiles in seconds


def check_keeps_reduction(at: str, strategy: Strategy, tile: int, reduction: str | None) -> None:
    """Refuse a strategy that would meet a term of a reduction again.

    Theorem: tiles that are not moved back are disjoint and ascend, which is proved of each axis, so a
    loop that adds up meets each term once, in its order; one that is moved back, as by ``shift``,
    meets some again, which changes no max and no min.
    """
    if reduction in (None, *ANY_ORDER) or not strategy.repeats(tile):
        return
    raise PartitionError(
        "partition",
        f'cannot take tail="{strategy}" on a reduction',
        at=at,
        because=f"the last tile would add terms again: {reduction} is not idempotent",
        help=("any tail but shift meets each term once, in its order",),
    )


def check_repeats(loop: For, strategy: Strategy) -> None:
    """Refuse to repeat instances of a loop that adds to what it does not set first: a term would
    count twice.

    Whether other values are the same when an instance runs again is proved on the emitted program.
    """
    stores = [stmt for stmt in walk(loop.body) if isinstance(stmt, Store)]
    assigned = {store.buffer for store in stores if store.reduce is None}
    for store in stores:
        if store.reduce == "sum" and store.buffer not in assigned:
            raise PartitionError(
                "partition",
                f'cannot take tail="{strategy}"',
                at=f"loop {loop.iter}",
                because=f"the last tile would run {format_stmt(store)} again",
                help=("mask, cut, ladder, balance run each instance once",),
            )


def check_exact(
    at: str, tile: int, extent: Expr, known: Facts, users: Mapping[str, str] | None = None
) -> None:
    """Refuse ``exact`` unless `tile` divides the extent wherever the loop runs, at all sizes.

    users  the users' names of the sizes, by the program's
    """
    rest, users = ix.mod(extent, tile), users or {}
    known = known.where(Compare(">", extent, ix.const(0)))
    if known.holds(Compare("==", rest, ix.const(0))):
        return
    example = known.example(Compare("!=", rest, ix.const(0)))
    because = f"{tile} does not divide the extent {format_expr(extent)}"
    if example is None:
        because = f"nothing shows that {tile} divides the extent {format_expr(extent)}"
    elif example:
        because = (
            f"with {', '.join(f'{users.get(n, n)} = {v}' for n, v in example.items())}, {because}"
        )
    help: tuple[str, ...] = (f'tail="cut" separates the last {format_expr(rest)} iterations',)
    if ix.literal_value(rest) is None:
        help = (*help, f"assume({format_expr(rest)} == 0) if every caller guarantees it")
    raise PartitionError(
        "partition",
        'cannot take tail="exact"',
        at=at,
        because=because,
        help=help,
    )


def check_crossed(loop: For, strategy: Strategy, tile: int, last: bool) -> Strategy:
    """By which of `cut`, `mask` and `guard` each row of a tile is treated; refuse a strategy that needs one extent for all rows of a tile, where each row has its own.

    Theorem: where the bounds of a loop depend on another loop of the same tile, the rectangle
    ``max lo : min hi`` lies inside every row; what is left of each row has a length of its own.
    """
    if last and not strategy.among:
        check_takes(f"loop {loop.iter}", strategy, tile)
    by_row = strategy.per_row(tile) if last else CUT
    if by_row is not None:
        return by_row
    raise PartitionError(
        "partition",
        f'cannot take tail="{strategy}"',
        at=f"loop {loop.iter}",
        because=f"its bounds {format_expr(loop.lo)}:{format_expr(loop.hi)} differ between the rows "
        "of a tile, so the tail has no single extent",
        help=("cut, guard and mask treat each row by itself", "cut only one of the two loops"),
    )


def check_takes(at: str, strategy: Strategy, tile: int) -> None:
    """Refuse a strategy that gives no segments of an axis in tiles of `tile`, or too many."""
    try:
        segments(strategy, EXTENT, tile)
    except PartitionError as refused:
        refused.at = f"{at}, in tiles of {tile}"
        raise


def check_few(axes: Sequence[str], tiles: int, *alternatives: str) -> None:
    """Refuse cuts, the last of them of `axes`, into many tiles or parts of sums, each code of its own.

    tiles         as many as there are at least
    alternatives  that would be accepted, as text; none: what cuts of loops by hand may take
    """
    if tiles > MOST_TILES:
        raise PartitionError(
            "partition",
            f"cannot cut {', '.join(axes)} so",
            because=f"there would be at least {tiles} tiles, more than {MOST_TILES}, each of them code of its own",
            help=alternatives or ("one loop with residue or mix, or fewer levels",),
        )


def count_tiles(body: Sequence[Stmt]) -> int:
    """Return the number of tiles in the text of statements; of a choice, those of the option that has most."""
    total = 0
    for stmt in body:
        counts = [count_tiles(block) for block in blocks(stmt)]
        total += 1 if isinstance(stmt, Tile) else 0
        total += max(counts, default=0) if isinstance(stmt, Choose) else sum(counts)
    return total


def not_together(loop: For, strategy: Strategy) -> PartitionError:
    """Return the refusal of padded tiles on a loop that carries a dependence other than a reduction's."""
    return PartitionError(
        "partition",
        f'cannot take tail="{strategy}"',
        at=f"loop {loop.iter}",
        because="a padded tile runs its instances together, and this loop carries "
        "dependences between them",
        help=("any tail but pad and shift keeps their order",),
    )


def check_layouts(program: Program, op: str) -> None:
    """Check that no array of the caller has a layout: it lies as the caller's strides say; and that elements that share bytes fit.

    Raises PartitionError, in the name of `op`.
    """
    allocs = [stmt for stmt in walk(program.body) if isinstance(stmt, Alloc)]
    for buffer in program.buffers:
        windows = (
            replace(buffer, kind=Kind.LOCAL, layout=alloc.layout)
            for alloc in allocs
            if alloc.buffer == buffer.name
        )
        for array in (buffer, *windows):
            check_narrow(op, array, declaration(buffer))
        if buffer.layout is not None and buffer.kind in (Kind.INPUT, Kind.OUTPUT, Kind.INOUT):
            raise PartitionError(
                op,
                f"cannot lay {buffer.name} out in {format_layout(buffer.layout)}",
                at=declaration(buffer),
                because="the caller owns it, and its strides say how it lies",
                help=(
                    f"constant {buffer.name} is packed when compiled",
                    "a local buffer with the layout, and a loop that copies",
                ),
            )


def check_narrow(op: str, buffer: Buffer, at: str) -> None:
    """Check that elements of an array that share bytes fit its layout.

    Raises PartitionError, in the name of `op`.
    """
    if buffer.layout is not None and buffer.narrow_refusal:
        raise PartitionError(
            op,
            f"cannot lay {buffer.name} out in {format_layout(buffer.layout)}",
            at=at,
            because=buffer.narrow_refusal,
            help=(format_layout(replace(buffer.layout, bits=None)),),
        )


def check_windows(program: Program, op: str = "compile") -> None:
    """Check that each access of a windowed array lies in its window: elsewhere there is no memory for it.

    Raises PartitionError, in the name of `op`.
    """
    escaping = escaping_windows(program)
    witnesses = {name: try_isl(partial(outside_window, program, name), None) for name in escaping}
    for name in sorted(escaping, key=lambda name: witnesses[name] is None):
        because = f"nothing shows that all that is accessed of {name} lies in a window of it"
        if name in unwindowed_arrays(program.body):
            because = f"{name} is accessed outside of it, too"
        elif (witness := witnesses[name]) is not None:
            because = _leaves(witness, program)
        raise PartitionError(
            op,
            f"cannot {op.partition('_')[0]} {program.name}",
            at=f"alloc {name}",
            because=because,
            help=(f"a larger window, or {name} without alloc, which holds all of it",),
        )


def _leaves(one: OutOfBoundsAccess, program: Program) -> str:
    """Return an access outside of a window in words, at its smallest."""
    text = f"element [{one.element}], counted from where the window starts, lies outside of it"
    return one.sizes_text(program, {}) + text
