"""Plans the nests of a computation by a schedule: cut, covered, without padding, bound to lanes and threads; and reads programs as computations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from offcut import debug
from offcut.backends.bounds_guards import insert_bounds_guards
from offcut.backends.cpu.machine.isa import Host, Isa
from offcut.backends.cpu.microkernels.available import families
from offcut.backends.cpu.microkernels.family import Family
from offcut.backends.cpu.planning.cover_report import (
    CoverReport,
    reasons_without_cover,
    report_covers,
    vector_tile_notes,
)
from offcut.backends.cpu.planning.cpu_plan import CpuPlan, seconds_of_choices
from offcut.backends.cpu.planning.operand_layout import OperandChoice
from offcut.backends.cpu.planning.padded_terms import PaddedTerms
from offcut.backends.cpu.planning.policy import policy
from offcut.backends.cpu.planning.schedule_words import with_thread_binds
from offcut.backends.cpu.planning.tile_sizes import Tiles
from offcut.backends.cpu.planning.unit_binding import bind_units
from offcut.backends.cpu.planning.vectorize import privatize
from offcut.backends.options import Options
from offcut.backends.raising import raise_to_computation
from offcut.core import index as ix
from offcut.core.analysis import analysis
from offcut.core.expr import Binary, Compare, Expr, Load, Select, Var, dtype_of, real, variables
from offcut.core.expr import walk as nodes
from offcut.core.program import Choose, For, Let, Program, Store, Tile
from offcut.core.traversal import expressions
from offcut.costmodel import Inside, Machine, StatementPrices, copies_worth, simplify_cost
from offcut.costmodel.nests import over_rows
from offcut.describe.computation import Computation, Stage, source
from offcut.errors import PartitionError
from offcut.partition import (
    Users,
    rename_for_user,
    separate,
)
from offcut.polyhedral import BudgetExceeded, accesses_outside, pass_budget, request_budget
from offcut.proof.normal_forms.condition_hoisting import unswitch
from offcut.proof.normal_forms.narrowing import (
    narrow_terms,
    without_conditions,
    without_unread_elements,
)
from offcut.proof.normal_forms.unpacked_reads import read_unpacked
from offcut.schedule import (
    ANY_TREE,
    Applied,
    Nest,
    Nests,
    Schedule,
    Separate,
    SplitPair,
    Step,
    Together,
    VariantCostFunction,
    apply,
    axis_cuts,
    is_of_loops,
    nests_in,
    nests_of,
    parts_of,
    with_source_line,
)

RUN_TIME_REASON = "whether it reads inside of its arrays is asked at run time, of each element, and no microkernel asks"
"""The reason why a product of elements that are looked up runs by no microkernel."""


def nest_schedule(
    computation: Computation, host: Host, options: Options, competes: bool = False
) -> Schedule:
    """Return the schedule that the policy prefers for a computation.

    competes  whether it may be a choice among schedules (`competing_plans`)

    Raises PartitionError for an axis that there is not, or where isl does not answer in bounded work.
    """
    with debug.timed("decide"), request_budget("compile", f"cannot cut {computation.name}"):
        schedule = policy(
            computation,
            host.isa,
            [
                family
                for family in families(host)
                if options.reassociate or family.microkernel.ascending
            ],
            dict(options.strategy) if isinstance(options.strategy, tuple) else options.strategy,
            host.threads,
            options.reassociate,
            options.keep_pruned,
            competes,
        )
    return with_thread_binds(replace(schedule, steps=(*schedule.steps, ANY_TREE)), host)


def plan_nests(
    computation: Computation,
    host: Host,
    options: Options,
    schedule: Schedule,
    is_whole: bool = True,
) -> CpuPlan:
    """Return the plan of a computation in the nests of a schedule, not proved yet.

    is_whole  whether it is no nest of another program, whose other loops are bound later

    Raises PartitionError for a decision that is not legal, or that isl does not judge in bounded work.
    """
    microkernels = families(host)
    kernels, price = (
        [family.microkernel for family in microkernels],
        variant_cost_model(microkernels, host.isa),
    )
    with debug.timed("cut"), request_budget("compile", f"cannot cut {computation.name}"):
        applied = apply(computation, schedule, kernels, price, options.schedule is not None)
        undecided = accesses_outside(applied.partition.source)
    cut = applied.partition
    narrows = any(stage.narrowed for group in computation.groups for stage in group)
    inside = without_conditions(cut.loops) if narrows else cut.loops
    covers = report_covers(inside, host, options.reassociate)
    applied = applied.with_microkernels(covers.refused)
    vector_notes = (*vector_tile_notes(cut.loops, covers, _covered_stages(parts_of(schedule))),)
    if options.schedule is not None:
        _check_lines_of_covers(schedule, applied, cut.loops, covers)
    loops = applied.partition.loops
    debug.passed("cut", loops)
    whole = padded = loops
    narrowed: tuple[Program, ...] = ()
    if narrows:
        with debug.timed("narrow"), request_budget("compile", f"cannot narrow {computation.name}"):
            read = without_unread_elements(whole)
            terms = narrow_terms(read)
            padded = loops = read_unpacked(terms)
        debug.passed("narrow", loops, whole)
        _check_covered(loops, host, options, computation.name, "its loops are narrowed")
        narrowed = tuple(dict.fromkeys((whole, read, terms, loops)))
    named = schedule
    if not undecided:
        loops, named = PaddedTerms(loops, host, options, schedule).leave_out()
    unpadded = narrowed or ((padded,) if loops is not padded else ())
    if undecided:
        loops = insert_bounds_guards(loops)
        debug.passed("bounds", loops, applied.partition.loops)
    switched, loops = loops, unswitch(loops)
    unpadded = (*unpadded, *((switched,) if loops is not switched else ()))
    unseparated, (loops, notes) = loops, separate_conditions(loops, schedule)
    if loops is not unseparated:
        debug.passed("separate", loops, unseparated)
        unpadded = (*unpadded, unseparated) if unpadded else ()
    if undecided or notes:
        because = "its conditions leave its loops" if notes else RUN_TIME_REASON
        _check_covered(loops, host, options, computation.name, because, is_whole_reason=not notes)
    units = bind_units(loops, named, host, options.reassociate, is_whole=is_whole)
    loops = units.shares.program
    applied = replace(applied, partition=replace(applied.partition, loops=loops))
    return CpuPlan(
        loops,
        schedule=units.schedule,
        unnamed=schedule,
        applied=applied,
        seconds=seconds_of_choices(applied),
        shares=units.shares,
        work=computation.instances,
        notes=(*notes, *dict.fromkeys(vector_notes), *units.absent),
        through=(source(computation), applied.staged, *unpadded, *units.divided),
    )


def _check_lines_of_covers(
    schedule: Schedule, applied: Applied, program: Program, covers: CoverReport
) -> None:
    """Check that a microkernel that a line of `schedule` names runs a piece at least, where no tail asks a condition in each instance.

    program  cut, with the covers that are reported on

    Raises PartitionError with the line of the first that runs none.
    """
    view = nests_of(schedule)
    if view is None:
        return
    for nest, choices in zip(nests_in(view.parts), applied.choices, strict=True):
        for variant, choice in zip(nest.variants, choices, strict=True):
            pieces = choice.pieces
            if variant.cover is None or not pieces or any(piece.microkernel for piece in pieces):
                continue
            if any(cut.guards for cut in variant.splits):
                continue
            with with_source_line(schedule, view.lines[id(variant.cover)]):
                raise PartitionError(
                    "schedule",
                    f"cannot cover {nest.last} by {variant.cover.microkernel}",
                    because=next(reasons_without_cover(program, covers, nest.stage)),
                    help=(f"cover {nest.last} vectors",),
                )


def _check_covered(
    loops: Program,
    host: Host,
    options: Options,
    name: str,
    because: str,
    is_whole_reason: bool = False,
) -> None:
    """Check that the microkernels that tiles name run them.

    Raises PartitionError with the reason of the first that does not, behind `because` if this is not all of it.
    """
    for why in report_covers(loops, host, options.reassociate).refused.values():
        help = "no schedule" if options.schedule is not None else 'strategy="auto"'
        raise PartitionError(
            "compile",
            f"cannot cover {name} by a microkernel",
            because=because if is_whole_reason else f"{because}: {why}",
            help=(f"{help}, by which it runs in its own loops",),
        )


def _covered_stages(parts: Sequence[Nest | Together]) -> frozenset[str]:
    """Return the stages whose nests a microkernel covers in some variant."""
    return frozenset(
        nest.stage
        for nest in nests_in(parts)
        if any(variant.cover is not None for variant in nest.variants)
    )


def computation_of(
    program: Program, users: Users, reassociate: bool
) -> tuple[Computation | None, str]:
    """Return `program` as a computation, in the user's names; else None, and the reason as text."""
    try:
        with debug.timed("raise"), pass_budget():
            computation = raise_to_computation(*privatize(program), narrows=True)
    except BudgetExceeded:
        return None, "isl takes too long to tell whether it is a computation"
    if computation is None:
        return None, "it is not a sequence of whole arrays, each from those before"
    late = None if reassociate else _added_last(computation, program)
    return (None, late) if late is not None else (rename_for_user(computation, users), "")


def _added_last(computation: Computation, program: Program) -> str | None:
    """Return the reason, as text, if `computation` adds the start of a sum of `program` after its terms; else None."""
    buffers = {buffer.name for buffer in program.buffers}
    for lead in (group[0] for group in computation.groups):
        if lead.reducer is not None and lead.buffer not in buffers:
            name = lead.buffer.removesuffix("_sum")
            return f"the sum in {name} starts from a value, and reassociate=False"
    return None


def variant_cost_model(
    families: Sequence[Family], isa: Isa, legible: bool = True
) -> VariantCostFunction:
    """Return the price of a variant, by the cost model of these cores.

    legible  whether it is written as one would write it: somebody reads it, or code evaluates it
    """
    by_name = {family.microkernel.name: family for family in families}
    costs_by_key: dict[object, Expr] = {}

    def price(nests: Nests, packed: bool) -> Expr:
        (nest,) = nests.nests
        match, stages = nest.match, nest.group
        if match is None:
            if stages not in costs_by_key:
                costs_by_key[stages] = reduce(
                    _plus, (_plain_seconds(stage, isa) for stage in stages)
                )
            return costs_by_key[stages]
        splits = tuple(one for one in nest.relations if isinstance(one, SplitPair))
        laid = nests.buffer(match.by_columns.buffer).layout is not None
        key = stages[0], match.microkernel.name, match.axes, packed, laid, splits, nests.buffers
        if key not in costs_by_key:
            operand = OperandChoice(match, "packed" if packed else "panels" if laid else "direct")
            tiles = Tiles(nests, by_name, isa.machine, 1)
            seconds = tiles.seconds(stages[0], operand, axis_cuts(nest))
            costs_by_key[key] = simplify_cost(seconds) if legible else seconds
        return costs_by_key[key]

    return price


def _plain_seconds(stage: Stage, isa: Isa) -> Expr:
    """Predicted seconds of a stage whose instances run as vectors, all lanes of them."""
    axes, width = [axis.name for axis in stage.axes], isa.lanes("float32")
    store = Store(stage.buffer, tuple(map(Var, axes)), stage.value, stage.reducer)
    inner = stage.reduce_axes[-1].name if stage.reduce_axes else ""
    lane = inner if inner and over_rows(store, inner) else axes[-1] if axes else None
    width = 1 if lane is None else width
    inside = Inside(lane, inner, frozenset((stage.buffer,)))
    around = For(inner, ix.const(0), ix.const(1), (store,))
    each = StatementPrices(isa.machine, width).each(store, inside, around)
    return Binary("*", real(stage.instances), real(each / width / isa.machine.hertz))


def _plus(a: Expr, b: Expr) -> Expr:
    return Binary("+", a, b)


def default_separation(program: Program, machine: Machine) -> tuple[Step, ...]:
    """Return how far conditions leave the loops of a program: not at all where it was cut, and they were separated,
    nor where an array says how often a loop runs, since no set knows where its conditions change.
    """
    if is_cut(program) or reads_bounds(program):
        return ()
    stores = len(analysis(program).of(Store))
    return (Separate(min(machine.policy.copies, copies_worth(machine, stores))),)


def separate_conditions(program: Program, schedule: Schedule) -> tuple[Program, tuple[str, ...]]:
    """Return `program` with conditions moved out of its loops where `schedule` says so, and what was done at which loop."""
    notes: tuple[str, ...] = ()
    with debug.timed("separate"):
        for step in schedule.steps:
            if is_of_loops(step):
                result = separate(program, step.copies)
                program = result.program
                notes += tuple(f"loop {note.loop}: {note.text}" for note in result.notes)
    return program, notes


def depends_on_loops(program: Program) -> bool:
    """Return whether what is read depends on conditions on the coordinates of loops."""
    return _asks(program, analysis(program).iterators)


def depends_on_lanes(program: Program) -> bool:
    """Return whether what is read depends on conditions on the coordinates of tiles: they cannot leave these."""
    tiles = analysis(program).of(Tile)
    return _asks(program, frozenset(axis.iter for tile in tiles for axis in tile.axes))


def _asks(program: Program, names: frozenset[str]) -> bool:
    """Return whether what is read depends on conditions on some coordinates."""
    return any(
        isinstance(test, Compare) and dtype_of(test.a) == "index" and variables(test) & names
        for stmt in analysis(program).statements
        for expr in expressions(stmt)
        for choice in nodes(expr)
        if isinstance(choice, Select)
        for test in nodes(choice.condition)
    )


def is_cut(program: Program) -> bool:
    """Return whether a program was cut: its conditions were separated then, as far as that was worth it."""
    return analysis(program).has(Tile, Choose, Let)


def reads_bounds(program: Program) -> bool:
    """Return whether an array says how often some loop runs: no set knows where its conditions change."""
    bounds = (b for loop in analysis(program).of(For) for b in (loop.lo, loop.hi))
    return any(isinstance(node, Load) for bound in bounds for node in nodes(bound))
