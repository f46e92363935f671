"""A program as the CPU runs it: its computation cut, where it is one; else its own loops as vectors.

    bind -> raise -> cut -> cover -> lanes of rows -> threads -> prove        a computation
    bind -> keep inside -> separate -> cut nests -> cover -> vectorize -> threads -> prove    any other program

A computation is a sequence of whole arrays, each from those before. It runs in its own loops where
that separates conditions that no microkernel leaves behind. A nest of any other program may be one. Primitives of a schedule by hand come before
all of this: what is planned is the program that they make.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from offcut import debug
from offcut.backends.cpu.lowering.call_layout import windows_of
from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.microkernels.available import families
from offcut.backends.cpu.planning.claims import check_covers, covers_of, plain_notes
from offcut.backends.cpu.planning.conditions import (
    asks_lanes,
    asks_loops,
    is_cut,
    reads_bounds,
    separated,
    separations,
)
from offcut.backends.cpu.planning.loops_as_they_stand import check_loops, cut_loops
from offcut.backends.cpu.planning.marks import (
    begun,
    bind_units,
    threads_marked,
    with_threads,
)
from offcut.backends.cpu.planning.nests import has_product, with_nests
from offcut.backends.cpu.planning.padding import in_padded_order, without_padding
from offcut.backends.cpu.planning.planned import Planned
from offcut.backends.cpu.planning.policy import policy, pricing, without_blocks
from offcut.backends.cpu.planning.seconds import seconds_of_choices, seconds_of_program
from offcut.backends.cpu.planning.vectorize import privatized
from offcut.backends.cpu.planning.words import machine_words
from offcut.backends.inside import kept_inside
from offcut.backends.proving import check_compiled, check_step
from offcut.backends.raising import raised
from offcut.backends.target import DEFAULT, Options, Strategies
from offcut.core.analysis import analysis
from offcut.core.expr import Binary
from offcut.core.program import THREAD, Alloc, Program, Store, canonicalize, walk
from offcut.core.text.layouts import format_layout
from offcut.core.text.printer import format_head
from offcut.core.traversal import parallel_loop_paths
from offcut.describe.computation import Computation
from offcut.describe.source import source
from offcut.errors import PartitionError
from offcut.partition import (
    Users,
    check_marks,
    check_tiles,
    check_windows,
    labelled,
    without_covers,
)
from offcut.polyhedral import BudgetExceeded, accesses_outside, pass_budget, request_budget
from offcut.proof import UNDECIDED
from offcut.proof.normal_forms.zero_terms import conditions
from offcut.schedule import (
    ANY_LANES,
    ANY_PRODUCTS,
    ANY_TREE,
    Bind,
    Nest,
    Primitive,
    Schedule,
    Together,
    apply,
    check_once,
    create_schedule,
    hand_steps,
    parts_of,
    replay,
)


def plan(program: Program, users: Users, host: Host, asked: Options = DEFAULT) -> Planned:
    """Return `program` as the host runs it, proved.

    users   what the user calls what is in it

    Raises PartitionError where it leaves an array, a strategy or a decision is not legal, or isl does
    not say in bounded work.
    """
    return _plan(program, users, host, asked)


@lru_cache(maxsize=4)  # a kernel that was just built is asked for its loops
def _plan(program: Program, users: Users, host: Host, asked: Options) -> Planned:
    """Return `plan`, by what can be compared; notes and timings are of the first time."""
    schedule = asked.schedule
    by_hand = () if schedule is None else hand_steps(schedule)
    if schedule is None or not by_hand:
        return _proved(program, users, host, asked)
    with debug.timed("primitives"):
        check_step(program, create_schedule(program).source, asked.reassociate)
        own = [family.microkernel for family in families(host)]
        given = asked.microkernels, asked.reassociate, own
        primitives, lowered = replay(program, replace(schedule, steps=by_hand), *given)
        lowered = canonicalize(lowered)
    debug.passed("primitives", lowered, program)
    rest = schedule.steps[len(by_hand) :]
    if rest:
        made = _proved(lowered, users, host, replace(asked, schedule=replace(schedule, steps=rest)))
        made = replace(made, schedule=_behind(by_hand, made.schedule), unnamed=schedule)
    else:
        made = _plan(lowered, users, host, replace(asked, schedule=None))
        made = replace(
            made,
            schedule=_behind(primitives, made.schedule),
            unnamed=_behind(primitives, made.unnamed),
        )
    words = machine_words(lowered, host.machine, "compile")
    return replace(made, by_hand=lowered, notes=(*words, *made.notes))


def _behind(primitives: Sequence[Primitive], schedule: Schedule) -> Schedule:
    """Return `schedule` behind what was decided by hand."""
    return replace(schedule, steps=(*primitives, *schedule.steps))


def _proved(program: Program, users: Users, host: Host, asked: Options) -> Planned:
    """Return a program planned in its own loops, after any primitives by hand; proved.

    Raises PartitionError where it is not legal, or isl does not say so.
    """
    made = _made(program, users, host, asked)
    refused = _refusal(program, made, asked)
    if refused is None:
        return made
    if host.threads > 1 and asked.schedule is None and refused.refused == UNDECIDED:
        # Threads never decide how an instance is computed, so neither does what is not told of their loops.
        return with_threads(_proved(program, users, replace(host, threads=1), asked), host)
    if not asked.padded and refused.refused == UNDECIDED and conditions(program):
        with suppress(PartitionError):
            single = _proved(program, users, host, replace(asked, padded=True))
            why = f"products with padding stay: {refused.refused}: {refused.because}"
            return replace(single, notes=(*single.notes, why))
    row_by_row = without_blocks(made.unnamed)
    if asked.schedule is None and refused.refused == UNDECIDED and row_by_row != made.unnamed:
        with suppress(PartitionError):
            single = _proved(program, users, host, replace(asked, schedule=row_by_row))
            why = f"no blocks of shared loops: {refused.refused}: {refused.because}"
            return replace(single, notes=(*single.notes, why))
    decided = asked.schedule is not None or asked.strategy != "auto"
    if decided or refused.refused != UNDECIDED:
        raise refused
    if made.applied is not None:
        made = _default_loops(program, host, asked, f"{refused.refused}: {refused.because}")
        refused = _refusal(program, made, asked)
        if refused is None:
            return made
        if refused.refused != UNDECIDED:
            raise refused
    made = _in_loops(program, host, asked, Schedule(program.name, ()), "")
    refused = _refusal(program, made, asked)
    if refused is not None:
        raise refused
    note = "its loops stay as they are: isl takes too long to tell that they may run as lanes"
    return replace(made, notes=(*made.notes, note))


def _refusal(program: Program, made: Planned, asked: Options) -> PartitionError | None:
    """Why it is not proved that `made` computes what `program` does; None where it is."""
    try:
        with debug.timed("prove"):
            check_compiled((program, *made.through, made.program), asked.reassociate)
    except PartitionError as refused:
        return refused
    return None


def _made(program: Program, users: Users, host: Host, asked: Options) -> Planned:
    """Return `program` as the host runs it, not proved yet."""
    if asked.schedule is not None:
        return _scheduled(program, users, host, asked, asked.schedule)
    computation, why = computation_of(program, users, asked.reassociate)
    if asked.strategy != "auto" and computation is None:
        raise PartitionError(
            "compile",
            f"cannot take strategy={_shown(asked.strategy)} with this program",
            because=f"{why}, so it runs in the loops that it has",
            help=("oc.compile(oc.partition(program, tile={…}, tail={…}).loops)",),
        )
    if computation is not None:
        try:
            made = _cut(computation, host, asked, _decided(computation, host, asked))
        except PartitionError as refused:  # isl does not say in bounded work, for one
            if asked.strategy != "auto":
                raise
            why = f"{refused.refused}: {refused.because}"
        else:
            unseen = _unseen(program, computation, asked)
            if asked.strategy != "auto" or (_is_worth(made) and not unseen):
                return made
            if not unseen and not asks_lanes(made.program):
                apart = _apart(computation, host, asked, made.unnamed)
                if not asks_loops(apart.program):
                    return apart
            why = unseen or "its conditions are moved out of its loops"
    return _default_loops(program, host, asked, why)


def _default_loops(program: Program, host: Host, asked: Options, why: str) -> Planned:
    """Return a program in the loops that it has, as the policy runs these; `why` it is not cut."""
    marks = (ANY_PRODUCTS, ANY_TREE, ANY_LANES)
    steps = (*separations(program, host.machine), *marks)
    return _in_loops(program, host, asked, threads_marked(Schedule(program.name, steps), host), why)


def _apart(computation: Computation, host: Host, asked: Options, schedule: Schedule) -> Planned:
    """Return a computation cut as `schedule` says, its conditions moved out of the loops that come of it."""
    nests = [step for step in schedule.steps if not isinstance(step, Bind)]
    marks = [step for step in schedule.steps if isinstance(step, Bind)]
    steps = (*nests, *separations(source(computation), host.machine), *marks)
    return _cut(computation, host, asked, replace(schedule, steps=steps))


def _unseen(program: Program, computation: Computation, asked: Options) -> str:
    """In words, why it is not proved that `computation` is `program`; "" where it is."""
    try:
        check_step(program, source(computation), asked.reassociate)
    except PartitionError as refused:
        return f"{refused.refused}: {refused.because}"
    return ""


def _scheduled(
    program: Program, users: Users, host: Host, asked: Options, schedule: Schedule
) -> Planned:
    """Return a program as a schedule says."""
    check_once(schedule)
    if not parts_of(schedule):
        check_loops(schedule)
        cut, notes = cut_loops(program, users, host, schedule)
        # Covers of tiles that are cut here are nobody's wish: one that does not run, packed as nothing is, is left out.
        kept = without_covers(cut, covers_of(cut, host, asked.reassociate).refused)
        cut, notes = kept.program, (*notes, *kept.notes)
        made = _in_loops(cut, host, asked, schedule, "no nest of its schedule covers it")
        return replace(made, notes=(*notes, *made.notes))
    computation, why = computation_of(program, users, asked.reassociate)
    if computation is None:
        raise PartitionError(
            "compile",
            f"cannot apply a schedule with nests to {program.name}",
            because=why,
            help=("separate, split and bind are for loops as they stand",),
        )
    return _cut(computation, host, asked, schedule)


def _shown(strategy: Strategies) -> str:
    if isinstance(strategy, tuple):
        return repr({axis: str(one) for axis, one in strategy})
    return repr(str(strategy))


def _decided(computation: Computation, host: Host, asked: Options) -> Schedule:
    """Return the policy's schedule of a computation."""
    with debug.timed("decide"), request_budget("compile", f"cannot cut {computation.name}"):
        made = policy(
            computation,
            host.isa,
            [one for one in families(host) if asked.reassociate or one.microkernel.ascending],
            dict(asked.strategy) if isinstance(asked.strategy, tuple) else asked.strategy,
            host.threads,
            asked.reassociate,
            asked.every,
        )
    return threads_marked(replace(made, steps=(*made.steps, ANY_TREE)), host)


def computation_of(
    program: Program, users: Users, reassociate: bool
) -> tuple[Computation | None, str]:
    """Return `program` as a computation, in the user's names; else None, and in words why it is none."""
    try:
        with debug.timed("raise"), pass_budget():
            computation = raised(*privatized(program))
    except BudgetExceeded:
        return None, "isl takes too long to tell whether it is a computation"
    if computation is None:
        return None, "it is not a sequence of whole arrays, each from those before"
    late = None if reassociate else _added_last(computation, program)
    return (None, late) if late is not None else (labelled(computation, users), "")


def _added_last(computation: Computation, program: Program) -> str | None:
    """In words, a sum of `program` whose start `computation` adds after its terms; None: none is."""
    own = {buffer.name for buffer in program.buffers}
    for lead in (group[0] for group in computation.groups):
        if lead.reducer is not None and lead.buffer not in own:
            name = lead.buffer.removesuffix("_sum")
            return f"the sum in {name} starts from a value, and reassociate=False"
    return None


def _cut(computation: Computation, host: Host, asked: Options, schedule: Schedule) -> Planned:
    """Return a computation cut for the host."""
    lent = families(host)
    kernels, price = [family.microkernel for family in lent], pricing(lent, host.isa)
    with debug.timed("cut"), request_budget("compile", f"cannot cut {computation.name}"):
        applied = apply(computation, schedule, kernels, price, asked.schedule is not None)
        undecided = accesses_outside(applied.partition.source)
    cut = applied.partition
    covers = covers_of(cut.loops, host, asked.reassociate)
    applied = applied.settled(covers.refused)
    loops = applied.partition.loops
    debug.passed("cut", loops)
    padded = loops
    if not undecided:
        loops = _unpadded(loops, host, asked)
    unpadded: tuple[Program, ...] = (padded,) if loops is not padded else ()
    if undecided:
        loops = kept_inside(loops)
        debug.passed("bounds", loops, applied.partition.loops)
    whole, (loops, notes) = loops, separated(loops, schedule)
    if loops is not whole:
        debug.passed("separate", loops, whole)
        unpadded = (*unpadded, whole) if unpadded else ()
    if undecided or notes:
        asks = "its accesses are asked at run time, and a tile that asks is none"
        because = "its conditions leave its loops" if notes else asks
        for why in covers_of(loops, host, asked.reassociate).refused.values():
            raise PartitionError(
                "compile",
                f"cannot cover {computation.name} by a microkernel",
                because=f"{because}: {why}",
                help=("its loops, as they stand",),
            )
    units = bind_units(loops, schedule, host, asked.reassociate)
    loops = units.shares.program
    applied = replace(applied, partition=replace(applied.partition, loops=loops))
    return Planned(
        loops,
        schedule=units.schedule,
        unnamed=schedule,
        applied=applied,
        seconds=seconds_of_choices(applied),
        shares=units.shares,
        work=computation.instances,
        notes=(
            *notes,
            *dict.fromkeys(plain_notes(cut.loops, covers, _covered(parts_of(schedule)))),
        ),
        through=(source(computation), applied.staged, *unpadded, *units.divided),
    )


def _covered(parts: Sequence[Nest | Together]) -> frozenset[str]:
    """Return the stages whose nests a microkernel covers in some way."""
    found: set[str] = set()
    for part in parts:
        if isinstance(part, Together):
            found |= _covered(part.parts)
        elif any(way.cover is not None for way in part.ways):
            found.add(part.stage)
    return frozenset(found)


def _unpadded(loops: Program, host: Host, asked: Options) -> Program:
    """Return `loops` without products that padding makes zero, where microkernels compute what is left."""
    if not asked.reassociate or asked.padded:
        return loops
    ordered = in_padded_order(loops)
    if ordered is loops:
        return loops
    for made in (without_padding(ordered, True), without_padding(ordered, False), ordered):
        if not covers_of(made, host, asked.reassociate).refused:
            debug.passed("padding", made, loops)
            return made
    return loops


def _is_worth(made: Planned) -> bool:
    """Return whether a computation that was cut runs so: not where it leaves conditions in its loops that
    separating these would move out of them.
    """
    assert made.applied is not None
    cut = made.applied.partition
    covered = any(piece.microkernel is not None for piece in cut.pieces)
    shares = any(isinstance(part, Together) for part in parts_of(made.schedule))
    return covered or shares or not asks_loops(cut.source)


def _check_window_layouts(program: Program) -> None:
    """Check that each window with a layout lies in memory of its own: outside of tiles, of extents that sizes give.

    Raises PartitionError.
    """
    windows = windows_of(program)
    for alloc in analysis(program).of(Alloc):
        if alloc.layout is not None and alloc.buffer not in windows:
            raise PartitionError(
                "compile",
                f"cannot lay the window of {alloc.buffer} out in {format_layout(alloc.layout)}",
                at=format_head(alloc),
                because="its extents move with a loop, or it stands in a tile, and so it lies in the whole array",
                help=(
                    f"local {alloc.buffer} with the layout",
                    "a window of extents that sizes give",
                ),
            )


def _in_loops(
    program: Program, host: Host, asked: Options, schedule: Schedule, why: str
) -> Planned:
    """Return a program in the loops that it has, with conditions moved out of them and lanes along them.

    why   it is not cut as a computation
    """
    with request_budget("compile", f"cannot compile {program.name}"):
        marked_loops = parallel_loop_paths(program).values()
        if host.threads > 1 and any(x.unit == THREAD for x in marked_loops):
            check_marks(program, {})
        check_tiles(program)
        check_windows(program)
        _check_window_layouts(program)
        with debug.timed("bounds"):
            run = inside = kept_inside(program)
        debug.passed("bounds", inside, program)
        notes: tuple[str, ...] = ()
        if not is_cut(program):
            run, notes = separated(run, schedule)
        debug.passed("separate", run, inside)
        uncut = run
        if ANY_PRODUCTS in schedule.steps:
            run, untold = _with_products(run, host, asked)
            notes = (*notes, *untold)
            if run is uncut:
                left = tuple(step for step in schedule.steps if step != ANY_PRODUCTS)
                schedule = replace(schedule, steps=left)
            else:
                debug.passed("products", run, uncut)
        notes = (*_reason(run, why), *notes)
        with debug.timed("covers"):
            covers = covers_of(run, host, asked.reassociate)
            if is_cut(program):
                check_covers(run, covers, host)
            plain = tuple(dict.fromkeys(plain_notes(run, covers)))
            settled = without_covers(run, covers.refused)
        debug.passed("covers", settled.program, run)
        beside = ANY_PRODUCTS in schedule.steps
        units = bind_units(settled.program, schedule, host, asked.reassociate, beside)
        made = units.shares.program
        return Planned(
            made,
            schedule=begun(units.schedule),
            unnamed=schedule,
            notes=(*notes, *units.notes, *settled.notes, *plain),
            seconds=seconds_of_program(made, host),
            shares=units.shares,
            through=(program, inside, *((uncut,) if run is not uncut else ()), *units.divided),
        )


def _with_products(program: Program, host: Host, asked: Options) -> tuple[Program, tuple[str, ...]]:
    """Return `program` with the nests cut that are computations of their own, where that is proved; else why it is not."""
    if is_cut(program) or reads_bounds(program) or not has_product(program.body):
        return program, ()

    def cut(nest: Program) -> Program | None:
        users = Users(
            tuple((size.name, size.name) for size in nest.sizes),
            tuple((buffer.name, buffer.name) for buffer in nest.buffers),
        )
        computation, _ = computation_of(nest, users, asked.reassociate)
        if computation is None:
            return None
        one = replace(host, threads=1)
        free = replace(asked, strategy="auto", schedule=None)
        try:
            made = _cut(computation, one, free, _decided(computation, one, free))
        except PartitionError:
            return None
        assert made.applied is not None
        pieces = made.applied.partition.pieces
        return made.program if any(piece.microkernel is not None for piece in pieces) else None

    with debug.timed("products"):
        made = with_nests(program, cut)
        if made is program:
            return program, ()
        try:
            check_step(program, made, asked.reassociate)
        except PartitionError as refused:
            return program, (f"no nest is cut: {refused.refused}: {refused.because}",)
    return made, ()


def _reason(program: Program, why: str) -> tuple[str, ...]:
    """Return a line that says why no sum of products runs by a microkernel, where there is one that is not cut."""
    products = any(
        isinstance(stmt, Store) and stmt.reduce == "sum" and isinstance(stmt.value, Binary)
        for stmt in walk(program.body)
    )
    return (f"no sum runs by a microkernel: {why}",) if products and not is_cut(program) else ()
