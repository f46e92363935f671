"""What a cut of a loop program needs, each a theorem, and how it is refused."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product, starmap
from math import prod
from typing import TypeVar

from offcut.core import index as ix
from offcut.core.accesses import element_accesses, unwindowed_arrays, windowed_arrays
from offcut.core.conditions import conjunction, negate
from offcut.core.dtypes import ANY_ORDER, FLOATS
from offcut.core.expr import Compare, Expr, variables
from offcut.core.interpret.run_arguments import declaration
from offcut.core.program import (
    LANE,
    Alloc,
    Choose,
    For,
    If,
    Kind,
    Let,
    Program,
    Role,
    Stmt,
    Store,
    Sync,
    Tile,
    substitute_coordinates,
    walk,
)
from offcut.core.text.layouts import format_layout
from offcut.core.text.marks import loop_marks
from offcut.core.text.printer import format_expr, format_stmt
from offcut.core.traversal import (
    Place,
    parallel_loop_paths,
    walk_with_parents,
    walk_with_paths,
)
from offcut.errors import PartitionError
from offcut.partition.strategies.catalog import CUT, Strategy, segments
from offcut.partition.strategies.tiled_axis import EXTENT
from offcut.polyhedral import (
    Dependence,
    Facts,
    OutOfBoundsAccess,
    coefficient,
    dependences,
    escaping_windows,
    outside_window,
    request_budget,
    try_isl,
)
from offcut.polyhedral.enclosing_scope import equal
from offcut.polyhedral.units.independence import Independence, is_written_before_read
from offcut.proof import UNDECIDED, Theorem

Inner = TypeVar("Inner", For, Tile)
MOST_TILES = 256  # each code of its own: what compiles in seconds
_MOST_VALUES = 256  # that bounded values around a tile take together, each asked by itself


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
    left, users = ix.mod(extent, tile), users or {}
    known = known.where(Compare(">", extent, ix.const(0)))
    if known.holds(Compare("==", left, ix.const(0))):
        return
    found = known.example(Compare("!=", left, ix.const(0)))
    because = f"{tile} does not divide the extent {format_expr(extent)}"
    if found is None:
        because = f"nothing shows that {tile} divides the extent {format_expr(extent)}"
    elif found:
        because = (
            f"with {', '.join(f'{users.get(n, n)} = {v}' for n, v in found.items())}, {because}"
        )
    help: tuple[str, ...] = (f'tail="cut" separates the last {format_expr(left)} iterations',)
    if ix.literal_value(left) is None:
        help = (*help, f"assume({format_expr(left)} == 0) if every caller guarantees it")
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


def check_few(axes: Sequence[str], tiles: int) -> None:
    """Refuse cuts, the last of them of `axes`, into many tiles or parts of sums, each code of its own."""
    if tiles > MOST_TILES:
        raise PartitionError(
            "partition",
            f"cannot cut {', '.join(axes)} so",
            because=f"there would be more than {MOST_TILES} tiles, each of them code of its own",
            help=("one loop with residue or mix, or fewer levels",),
        )


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


@request_budget(
    "partition", "cannot run loops as they are marked", help=("the loops without marks",)
)
def check_marks(
    program: Program, sizes: Mapping[str, str], reassociate: bool = True
) -> tuple[Theorem, ...]:
    """What is proved of each loop whose iterations are marked to run together; refuse one that carries a dependence.

    sizes         the users' names of the sizes, by the program's
    reassociate   whether the terms of a float sum may be added in another order

    Theorem: iterations of a loop that carries no dependence touch no element that another one
    writes, so they may run in any order, and at once. ``@lane`` also takes the order of the
    updates of a declared reduction, whose terms are then reduced in several accumulators: to the
    same value, for max, min and integers, and to one of a sum's values, for floats.
    """
    marked = parallel_loop_paths(program)
    if not marked:
        return ()
    reducing: set[tuple[int, ...]] = set()
    asked = _not_shown(program, marked)
    for one in dependences(program) if asked else ():
        loop = asked.get(one.path)
        if loop is None or one.buffer in _own_of(loop, program):
            continue
        store = one.target.store
        reduces = one.reduction and loop.unit == LANE
        exact = store.reduce in ANY_ORDER or program.buffer(one.buffer).dtype not in FLOATS
        if reduces and (reassociate or exact):
            reducing.add(one.path)
            continue
        if not one.certain:
            told = _certainly(program, loop)
            if told is None:
                continue
            one = told
        help: tuple[str, ...] = (f"the loop without {_mark(loop)}",)
        if reduces:
            help = (*help, "reassociate=True")
        elif one.reduction:
            help = (*help, f"rfactor({loop.iter}) in a schedule reduces in parts that run together")
        raise PartitionError(
            "partition",
            f"cannot run loop {loop.iter} as {_mark(loop)}",
            at=format_stmt(store),
            because=carried(one, program, sizes),
            help=help,
        )
    return tuple(
        Theorem(
            "parallel",
            f"{_mark(loop)}: no iteration meets another"
            + (" but in a reduction" if path in reducing else ""),
            f"loop {loop.iter}",
        )
        for path, loop in marked.items()
    )


def _not_shown(program: Program, marked: Mapping[Place, For]) -> dict[Place, For]:
    """Return the loops whose iterations footprints do not show to be independent: of these, sets are asked."""
    independence = Independence(program)
    asked = {}
    for place, stmt in walk_with_paths(program.body):
        if isinstance(stmt, Let):
            independence.entered(stmt)
        if isinstance(stmt, For) and place in marked and independence.not_shown(stmt):
            asked[place] = stmt
    return asked


def _certainly(program: Program, loop: For) -> Dependence | None:
    """What a loop carries for some literal of the bounded values around it; None where it carries nothing."""
    outer = next(path for stmt, path in walk_with_parents(program) if stmt is loop)
    ways = _with_values(tuple(starmap(_entered, outer)), loop)
    own = _own_of(loop, program)
    each = (_needed(program, way, inner, own) for way, inner in ways)
    return next((one for one in each if one is not None), None)


def _own_of(loop: For, program: Program) -> set[str]:
    """Return the arrays that each iteration of a loop has for itself: in windows, or scalars that it writes first."""
    if loop.unit == LANE:
        return windowed_arrays(loop.body)
    scalars = (b.name for b in program.buffers if b.kind is Kind.PRIVATE and not b.shape)
    return windowed_arrays(loop.body) | {
        name for name in scalars if is_written_before_read(name, loop.body)
    }


def _mark(loop: For) -> str:
    return f"@{next(loop_marks(replace(loop, role=Role.WHOLE)), '')}"


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
        for laid in (buffer, *windows):
            if laid.layout is not None and laid.narrow_refusal:
                raise PartitionError(
                    op,
                    f"cannot lay {buffer.name} out in {format_layout(laid.layout)}",
                    at=declaration(buffer),
                    because=laid.narrow_refusal,
                    help=(format_layout(replace(laid.layout, bits=None)),),
                )
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


def check_windows(program: Program, op: str = "compile") -> None:
    """Check that each access of a windowed array lies in its window: elsewhere there is no memory for it.

    Raises PartitionError, in the name of `op`.
    """
    left = escaping_windows(program)
    witnesses = {name: try_isl(partial(outside_window, program, name), None) for name in left}
    for name in sorted(left, key=lambda name: witnesses[name] is None):
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
    return one.given(program, {}) + text


@request_budget(
    "compile", "cannot tell whether a tile's instances are independent", help=("loops",)
)
def check_tiles(program: Program) -> None:
    """Refuse a tile of a program, cut by whomever, whose instances need each other.

    Theorem: instances that carry no dependence may run in any order, and side by side. Most tiles
    show it by their indices: along each axis, what is written and all that is accessed of it has a
    part that moves with this axis alone. The others are asked of isl, one tile at a time.
    """
    for outer, tile in _tiles(program):
        private = {b.name for b in program.buffers if b.kind is Kind.PRIVATE or b.scope is not None}
        own = private | windowed_arrays(tile.body)
        if _is_apart(tile, own):
            continue
        found = _needed(program, outer, tile, own)
        if found is not None and not found.certain:
            each = (_needed(program, way, inner, own) for way, inner in _with_values(outer, tile))
            found = next((one for one in each if one is not None), None)
        if found is not None:
            raise PartitionError(
                "compile",
                "cannot run a tile whose instances need each other",
                at=f"tile {', '.join(axis.iter for axis in tile.axes)}",
                because=carried(found, program, {}),
                help=("loops instead of the tile keep the order",),
            )


def _needed(
    program: Program, around: Sequence[Stmt], inner: Tile | For, own: Collection[str]
) -> Dependence | None:
    """Return a dependence between two instances of one tile, or iterations, by an array that is not in `own`."""
    body: tuple[Stmt, ...] = (inner,)
    for stmt in reversed(around):
        body = (only_with(stmt, body),)
    depth = sum(len(s.axes) if isinstance(s, Tile) else isinstance(s, For) for s in around)
    for one in dependences(replace(program, body=body)):
        inside = [path for _, path in one.source.loops]
        if one.path == inside[depth] and one.buffer not in own:
            return one
    return None


def _with_values(around: Sequence[Stmt], inner: Inner) -> Iterator[tuple[tuple[Stmt, ...], Inner]]:
    """Yield a tile or a loop and what encloses it, once for each literal that the bounded values around may be."""
    lets = [stmt for stmt in around if isinstance(stmt, Let)]
    if prod(let.hi - let.lo for let in lets) > _MOST_VALUES:
        yield tuple(around), inner
        return
    for literals in product(*(range(let.lo, let.hi) for let in lets)):
        values = {let.name: ix.const(q) for let, q in zip(lets, literals, strict=True)}
        way: list[Stmt] = []
        for stmt in around:
            fixed = substitute_coordinates((only_with(stmt, ()),), values)[0]
            if isinstance(fixed, Let):
                fixed = If(conjunction(equal(fixed.value, values[fixed.name])), ())
            way.append(fixed)
        (made,) = substitute_coordinates((inner,), values)
        assert isinstance(made, type(inner))
        yield tuple(way), made


def _tiles(program: Program) -> Iterator[tuple[tuple[Stmt, ...], Tile]]:
    """Yield every tile, with what encloses it; of an `if` that is its other branch, under the negated condition."""
    for stmt, path in walk_with_parents(program):
        if isinstance(stmt, Tile):
            yield tuple(starmap(_entered, path)), stmt


def _entered(stmt: Stmt, number: int) -> Stmt:
    if isinstance(stmt, If) and number == 1:
        return If(negate(stmt.condition), stmt.other)
    return stmt


def only_with(stmt: Stmt, body: tuple[Stmt, ...]) -> Stmt:
    """Return `stmt` with nothing but `body` inside."""
    match stmt:
        case If(condition):
            return If(condition, body)
        case Choose(options):
            return Choose((replace(options[0], body=body),))
        case Store() | Sync():
            return stmt
        case _:
            return replace(stmt, body=body)


def _is_apart(tile: Tile, own: set[str]) -> bool:
    """Return whether the indices show that no instance touches what another one writes."""
    written = {s.buffer for s in walk(tile.body) if isinstance(s, Store)} - own
    names = {axis.iter for axis in tile.axes}
    inner = {s.iter for s in walk(tile.body) if isinstance(s, For)}
    inner |= {s.name for s in walk(tile.body) if isinstance(s, Let)}
    for buffer in written:
        places = {
            tuple(map(ix.simplify, index))
            for stmt in walk(tile.body)
            for name, index in element_accesses(stmt)
            if name == buffer
        }
        for axis in names:
            others = (names | inner) - {axis}
            apart = (
                len(parts) == 1
                and not variables(part := next(iter(parts))) & others
                and coefficient(part, axis)
                for parts in map(set, zip(*places, strict=True))
            )
            if not any(apart):
                return False
    return True


def carried(one: Dependence, program: Program, sizes: Mapping[str, str]) -> str:
    """Return a dependence in words, at its smallest: the sizes, and the two instances."""
    values, first, second = one.witness
    given = ", ".join(
        f"{sizes.get(size.name, size.name)} = {value}"
        for size, value in zip(program.sizes, values, strict=True)
    )
    pair = [
        ", ".join(f"{n} = {x}" for n, x in zip(statement.iterators, point, strict=True))
        for statement, point in ((one.source, first), (one.target, second))
    ]
    says = {"flow": "writes what", "anti": "reads what", "output": "writes what"}[one.kind]
    then = {"flow": "reads", "anti": "overwrites", "output": "overwrites"}[one.kind]
    text = f"{format_stmt(one.source.store)} at {pair[0]} {says} the instance {pair[1]} {then}"
    text = text if one.certain else f"as far as sets tell, {text}"
    return f"with {given}, {text}" if given else text


LESS_TO_COMPARE = "copies=1 leaves every condition where it is: less to compare"
"""What a refusal offers where the program is not seen through once its conditions have left the loops."""


def not_equal(
    refused: PartitionError, wanted: Sequence[str], again: bool, separated: bool, others: bool
) -> PartitionError:
    """Return the refusal of a cut whose program does not compute what was asked.

    again      whether instances were to run a second time
    separated  whether conditions have left the loops
    others     whether a tail is another one than cut
    """
    help: tuple[str, ...] = ()
    if len(wanted) > 1:
        first = wanted[0]
        help = (f'tile={{"{first}": …}} alone keeps the order of all instances',)
    if again:
        help = (*help, 'another tail than "shift" runs no instance twice')
    elif refused.refused == UNDECIDED and separated:
        help = (*help, LESS_TO_COMPARE)
    if refused.refused == UNDECIDED and others:
        help = (*help, 'tail="cut" leaves less to compare')
    what = f"{refused.refused}: " if refused.refused.startswith("cannot ") else ""
    return PartitionError(
        "partition",
        f"cannot cut {', '.join(wanted) or 'the program'} so",
        at=refused.at,
        because=what + refused.because,
        help=help,
    )
