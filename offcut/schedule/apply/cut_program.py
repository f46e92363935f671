"""A loop program and the tiles of its loops -> a partition: conditions separated, loops cut, the whole proved.

Every step keeps the order of the instances but for the tiles of a band; the emitted program is then
proved equal to the one given, whatever made it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from offcut.core.analysis import stored_arrays
from offcut.core.memo import memo
from offcut.core.program import For, Form, Program, Stmt, Tile
from offcut.core.program import walk as statements
from offcut.core.text.printer import format_expr
from offcut.core.traversal import used_names
from offcut.describe.computation import Computation, Names
from offcut.describe.computation import source as source_of
from offcut.describe.microkernel import Microkernel
from offcut.errors import PartitionError
from offcut.partition import (
    CUT,
    EmittedTile,
    LoopCut,
    Partition,
    StrategyLike,
    Tiles,
    Users,
    check_marks,
    cuts_of,
    first_cover,
    pieces_of,
    separate,
    tiles_alike,
    users_of,
)
from offcut.partition.cutting import Carried, Cutting, PiecesCost
from offcut.partition.separate import COPIES
from offcut.polyhedral import (
    Facts,
    Space,
    accesses_outside,
    check_divisors,
    check_extents,
    check_in_bounds,
    check_program_fits,
    check_promises,
    dependences,
)
from offcut.proof import UNDECIDED, Certificate, Theorem, check_equal
from offcut.schedule.apply.loop_cutter import LoopCutter
from offcut.schedule.apply.staged_form import Nests


def cut(
    computation: Computation,
    tile: Mapping[str, Tiles],
    tail: Mapping[str, StrategyLike] | StrategyLike,
    microkernels: Sequence[Microkernel],
    price: PiecesCost = tiles_alike,
    copies: int = COPIES,
) -> Partition:
    """Return `computation` with the axes in `tile` cut, and no other.

    tile   the largest tile by axis, in iterations, or one for each level, outermost first; an axis
           is ``j``, or ``C.j`` where two have it
    tail   what to do with the partial tile, by axis, or one strategy for all, by name, or by name
           and heights; ``cut`` by default
    price   predicted seconds of a sequence of tiles, by which ``mix`` chooses
    copies  stores that separating conditions may make of one

    Raises PartitionError for what is not there, not legal, or not proved.
    """
    cuts = cuts_of(computation, tile, tail)
    users = users_of(computation)
    return cut_program(source_of(computation), cuts, microkernels, price, users, copies)


def cut_program(
    source: Program,
    cuts: Mapping[str, LoopCut],
    microkernels: Sequence[Microkernel],
    price: PiecesCost = tiles_alike,
    users: Users | None = None,
    copies: int = COPIES,
) -> Partition:
    """Return `source` with its conditions separated and the loops named in `cuts` cut, and no other.

    cuts    by loop, ``j``, or ``C.j`` for the loops over j that write C
    copies  stores that separation may make of one

    Raises PartitionError for what is not there, not legal, or not proved.
    """
    users = users or Users.of(source)
    _check_assumptions(source)
    check_promises(source, "partition", users.names)
    check_divisors(source, "partition")
    check_marks(source, users.of_sizes)
    check_program_fits(source)
    check_extents(source, "partition", users.names)
    homes = {name: _loops_of_name(source, name) for name in cuts}
    names = Names(used_names(source))
    space = Space(source.sizes, source.assumptions)
    separated = separate(source, copies)
    affine = all(one.sizes is not None for one in accesses_outside(source))
    check_in_bounds(source if affine else separated.program, "partition", users.names)
    notes = dict.fromkeys(f"loop {note.loop}: {note.text}" for note in separated.notes)
    body: tuple[Stmt, ...] = ()
    emitted_tiles: list[EmittedTile] = []
    theorems: dict[Theorem, None] = {}
    nests = _carried_by_nest(source)
    declarations = Nests(source.name, source.sizes, source.assumptions, source.buffers, ())
    for stmt in separated.program.body:
        cutting = Cutting(
            lambda loop: _choice(loop, homes, cuts),
            _carried_in(stmt, nests),
            names,
            lambda tile, heights: first_cover(tile, source, microkernels, heights),
            price,
        )
        body += LoopCutter(declarations, cutting).block((stmt,), Facts(space))
        emitted_tiles += cutting.made
        theorems |= cutting.theorems
        notes |= cutting.notes
    reached = {axis for one in emitted_tiles for axis, _ in one.segments}
    notes |= {
        f"{name} is not cut: none of its iterations is left in a loop": None
        for name, (iterator, _) in homes.items()
        if iterator not in reached
    }
    notes |= {
        f"loop {note.loop}: only what its steps of {note.steps} leave over is in tiles of {_sizes(cuts[name])}; copies=1, or "
        "`separate 1` in a schedule, keeps the condition, and cuts the loop": None
        for name, (iterator, _) in homes.items()
        for note in separated.notes
        if note.steps and note.loop == iterator
    }
    emitted = replace(source, body=body)
    try:
        proved = check_equal(source, emitted, users=users.of_sizes, through=separated.program)
    except PartitionError as refused:
        tiles = (stmt for stmt in statements(body) if isinstance(stmt, Tile))
        again = any(tile.form is Form.SHIFT for tile in tiles)
        others = any(cut.strategy != CUT for cut in cuts.values())
        apart = separated.program.body != source.body
        raise _not_equal(refused, list(cuts), again, apart, others) from None
    return Partition(
        source=source,
        pieces=pieces_of(space, source, emitted, emitted_tiles, users),
        loops=emitted,
        certificate=Certificate((*theorems, _fits(source), *proved)),
        users=users,
        notes=tuple(notes),
        through=separated.program,
    )


def _check_assumptions(source: Program) -> None:
    """Refuse what sets cannot say of the sizes: the smallest sizes would be no witness."""
    space = Space(source.sizes)
    for fact in source.assumptions:
        if space.condition(fact, {}) is None:
            raise PartitionError(
                "partition",
                f"cannot assume {format_expr(fact)}",
                because="isl decides quasi-affine facts only: no product of two sizes",
                help=("a fact of sums and integer multiples of sizes",),
            )


def _fits(source: Program) -> Theorem:
    return Theorem("int64", "index arithmetic stays within 2^62", source.name)


def _sizes(cut: LoopCut) -> str:
    return "×".join(map(str, cut.tiles))


def _loops(body: Sequence[Stmt]) -> list[For]:
    return [stmt for stmt in statements(tuple(body)) if isinstance(stmt, For)]


def _loops_of_name(program: Program, name: str) -> tuple[str, frozenset[str] | None]:
    """(iterator, buffers) of the loops that the user calls `name`; refused where that is not clear."""
    label, _, iterator = name.rpartition(".")
    all_loops = _loops(program.body)
    known = _qualified_names(all_loops)
    matches = [loop for loop in all_loops if loop.iter == iterator]
    if label:
        matches = [loop for loop in matches if label in stored_arrays(loop.body)]
    elif len(matches) > 1:
        raise PartitionError(
            "partition",
            f"cannot find the axis {name!r}",
            because="several axes have that name",
            help=(", ".join(_qualified_names(matches)),),
        )
    if not matches:
        raise PartitionError(
            "partition",
            f"cannot find the axis {name!r}",
            because="no axis has that name",
            help=(", ".join(known) or "the program has no loop",),
        )
    return iterator, frozenset({label}) if label else None


def _qualified_names(loops: Sequence[For]) -> list[str]:
    """``C.i`` for every loop and every buffer that it writes."""
    return list(
        dict.fromkeys(f"{b}.{one.iter}" for one in loops for b in sorted(stored_arrays(one.body)))
    )


def _choice(
    loop: For,
    homes: Mapping[str, tuple[str, frozenset[str] | None]],
    cuts: Mapping[str, LoopCut],
) -> LoopCut | None:
    for name, (iterator, labels) in homes.items():
        if loop.iter == iterator and (labels is None or labels & stored_arrays(loop.body)):
            return cuts[name]
    return None


@memo(16)
def _carried_by_nest(program: Program) -> list[tuple[set[str], Carried]]:
    """By top-level statement: the buffers it writes, and what its loops carry, by iterator."""
    sequential: dict[int, set[str]] = {}
    reductions: dict[int, dict[str, str]] = {}
    mixed: set[tuple[int, str]] = set()
    for one in dependences(program):
        nest, loop = one.path[0], one.loop
        sequential.setdefault(nest, set()).add(loop)
        if one.reduction and one.source.store.reduce is not None:
            reductions.setdefault(nest, {})[loop] = one.source.store.reduce
        else:
            mixed.add((nest, loop))
    result: list[tuple[set[str], Carried]] = []
    for position, stmt in enumerate(program.body):
        alone = {
            name: op
            for name, op in reductions.get(position, {}).items()
            if (position, name) not in mixed
        }
        carried = Carried(frozenset(sequential.get(position, ())), alone)
        result.append((stored_arrays((stmt,)), carried))
    return result


def _carried_in(stmt: Stmt, nests: Sequence[tuple[set[str], Carried]]) -> Carried:
    """What the loops of a separated statement carry: at most what those of its source do."""
    mine = [carried for buffers, carried in nests if stored_arrays((stmt,)) & buffers]
    sequential = frozenset(name for carried in mine for name in carried.sequential)
    reductions = {name: op for carried in mine for name, op in carried.reductions.items()}
    alone = {
        name: op
        for name, op in reductions.items()
        if all(name in c.reductions or name not in c.sequential for c in mine)
    }
    return Carried(sequential, alone)


LESS_TO_COMPARE = "copies=1 leaves every condition where it is: less to compare"
"""What a refusal offers where the program is not seen through once its conditions have left the loops."""


def _not_equal(
    refused: PartitionError, loops: Sequence[str], again: bool, separated: bool, others: bool
) -> PartitionError:
    """Return the refusal of a cut whose program does not compute what was asked.

    again      whether instances were to run a second time
    separated  whether conditions have left the loops
    others     whether a tail is another one than cut
    """
    help: tuple[str, ...] = ()
    if len(loops) > 1:
        first = loops[0]
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
        f"cannot cut {', '.join(loops) or 'the program'} so",
        at=refused.at,
        because=what + refused.because,
        help=help,
    )
