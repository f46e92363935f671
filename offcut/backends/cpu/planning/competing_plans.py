"""Plans of one computation that compete by size: each stages and cuts the whole of it, and a call runs the cheapest.

A nest chooses among ways to run its loops. What differs in whole stages, such as the order in which arrays lie, is an option of a
choice that is all of the program::

    choose
      option lanes_j costs …
        (the decisions of one schedule)
      option lanes_c costs …
        (those of another)
    bind * thread

Each option is planned as a schedule of its own, and proved from the source. Units are bound in the program of all options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce

from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.planning.cpu_plan import CpuPlan
from offcut.backends.cpu.planning.nest_plan import plan_nests
from offcut.backends.cpu.planning.unit_binding import bind_units
from offcut.backends.options import Options
from offcut.core import index as ix
from offcut.core.analysis import analysis
from offcut.core.expr import Binary
from offcut.core.program import Alloc, Buffer, Choose, Option, Program, Stmt, Store
from offcut.describe.computation import Computation, source
from offcut.errors import PartitionError
from offcut.partition import Partition
from offcut.proof import Certificate
from offcut.schedule import Applied, Choice, Schedule, decisions, parts_of
from offcut.schedule.checks import check_cost
from offcut.schedule.decisions import Alternative
from offcut.schedule.diagnostics import with_source_line


def competing_schedules(schedule: Schedule) -> tuple[tuple[Alternative, Schedule], ...]:
    """Return the options of a choice that is all of `schedule` but for its binds, each as a schedule of nests; empty for any other schedule.

    Each option must say what it costs.
    """
    match schedule.steps:
        case (decisions.Choose(options), *binds) if all(
            isinstance(step, decisions.Bind) for step in binds
        ):
            pairs = [(option, Schedule(schedule.name, option.steps)) for option in options]
            is_whole = not parts_of(schedule) and all(parts_of(one) for _, one in pairs)
            priced = all(option.cost is not None for option in options)
            return tuple(pairs) if is_whole and priced else ()
        case _:
            return ()


def first_schedule(schedule: Schedule) -> Schedule:
    """Return the first of the schedules among which `schedule` chooses, with its binds; `schedule` itself if it has no such choice."""
    for alternative, _ in competing_schedules(schedule):
        return replace(schedule, steps=(*alternative.steps, *schedule.steps[1:]))
    return schedule


def plan_competing(
    computation: Computation, host: Host, options: Options, schedule: Schedule
) -> CpuPlan:
    """Return the plan of a computation by the options of `schedule`, of which a call runs the cheapest; not proved yet.

    schedule  one of which `competing_schedules` returns the options

    Raises PartitionError for a decision that is not legal, and for a choice inside of an option.
    """
    alternatives, plans = list[Alternative](), list[CpuPlan]()
    line = 3  # behind the name of the schedule and `choose`
    for alternative, own in competing_schedules(schedule):
        assert alternative.cost is not None
        with with_source_line(schedule, alternative):
            check_cost(alternative.cost, computation.sizes, computation.assumptions)
        with lines_below(line - 1):
            plan = plan_nests(computation, host, options, own, is_whole=False)
        with with_source_line(schedule, alternative):
            _check_competes(plan, alternative.label)
            _all_buffers([one.program for one in (*plans, plan)])
        alternatives.append(alternative)
        plans.append(plan)
        line += len(str(own).splitlines())

    def choice(programs: Sequence[Program]) -> Program:
        """Return the program that runs one of several, as `alternatives` say."""
        windows = {alloc.buffer for one in programs for alloc in analysis(one).of(Alloc)}
        begin = _status_stores(programs)
        rests = (replace(one, body=one.body[len(begin) :]) for one in programs)
        pairs = zip(alternatives, rests, strict=True)
        program_options = (
            Option(one.label, one.cost, _with_windows(rest, windows))
            for one, rest in pairs
            if one.cost is not None
        )
        body = (*begin, Choose(tuple(program_options)))
        return replace(programs[0], buffers=_all_buffers(programs), body=body)

    units = bind_units(
        choice([plan.program for plan in plans]), schedule, host, options.reassociate
    )
    loops = units.shares.program
    steps = [(*plan.through[1:], plan.program) for plan in plans]
    longest = max(map(len, steps))
    padded = [(*(one[0],) * (longest - len(one)), *one) for one in steps]
    through = tuple(choice(step) for step in zip(*padded, strict=True))[:-1]
    return CpuPlan(
        loops,
        schedule=units.schedule,
        unnamed=schedule,
        applied=_shown_alternatives(
            computation, alternatives, plans, (*through, *units.divided), loops
        ),
        seconds=reduce(lambda a, b: Binary("min", a, b), (plan.seconds for plan in plans)),
        shares=units.shares,
        work=plans[0].work,
        notes=(*dict.fromkeys(note for plan in plans for note in plan.notes), *units.absent),
        through=(source(computation), *through, *units.divided),
    )


def _check_competes(plan: CpuPlan, label: str) -> None:
    """Raise PartitionError if a plan cannot be an option."""
    assert plan.applied is not None
    if any(len(ways) > 1 for ways in plan.applied.choices):
        raise PartitionError(
            "schedule",
            f"cannot choose in the option {label}",
            because="a choice among schedules holds no other choice",
            help=("take the decisions of one option of that choice",),
        )


def _status_stores(programs: Sequence[Program]) -> tuple[Stmt, ...]:
    """Return the statement with which each program begins that stores whether accesses stay inside of arrays; empty if there is none."""
    first = programs[0].body[0] if programs[0].body else None
    names = analysis(programs[0]).status_buffers
    asks = isinstance(first, Store) and first.buffer in names
    return (first,) if asks and first is not None else ()


def _with_windows(program: Program, names: Set[str]) -> tuple[Stmt, ...]:
    """Return the body of `program` in which each array of `names` lies in windows: all of it in one, where there are none."""
    body, windows = program.body, {alloc.buffer for alloc in analysis(program).of(Alloc)}
    for buffer in program.buffers:
        if buffer.name in names - windows:
            body = (Alloc(buffer.name, tuple((ix.const(0), one) for one in buffer.shape), body),)
    return body


def _all_buffers(programs: Sequence[Program]) -> tuple[Buffer, ...]:
    """Return the buffers of several programs of one computation.

    Raises PartitionError if a name stands for two.
    """
    buffers: dict[str, Buffer] = {}
    for program in programs:
        for buffer in program.buffers:
            if buffers.setdefault(buffer.name, buffer) != buffer:
                raise PartitionError(
                    "schedule",
                    f"cannot call two arrays {buffer.name}",
                    because="an option has another array of that name",
                    help=("give the array of this option another name",),
                )
    return tuple(buffers.values())


def _shown_alternatives(
    computation: Computation,
    alternatives: Sequence[Alternative],
    plans: Sequence[CpuPlan],
    through: tuple[Program, ...],
    loops: Program,
) -> Applied:
    """Return what is shown of plans that compete: one nest, whose ways are the options.

    through  programs on the way to `loops`
    """
    ways, theorems, applied = list[Choice](), list[Certificate](), list[Applied]()
    for alternative, plan in zip(alternatives, plans, strict=True):
        assert plan.applied is not None
        assert alternative.cost is not None
        groups = tuple(group for (group,) in plan.applied.choices)
        pieces = tuple(piece for group in groups for piece in group.pieces)
        stage = ways[0].stage if ways else groups[-1].stage
        ways.append(Choice(alternative.label, stage, pieces, alternative.cost, parts=groups))
        theorems.append(plan.applied.partition.certificate)
        applied.append(plan.applied)
    first = applied[0].partition
    certificate = Certificate(tuple(dict.fromkeys(t for one in theorems for t in one.theorems)))
    pieces = tuple(piece for way in ways for piece in way.pieces)
    partition = Partition(
        source(computation), pieces, loops, certificate, first.users, steps=through
    )
    return Applied(partition, (tuple(ways),), applied[0].staged)


@contextmanager
def lines_below(count: int) -> Iterator[None]:
    """Count `count` lines more in the line that an error names: a schedule stands below as many of another one."""
    try:
        yield
    except PartitionError as refused:
        refused.at = re.sub(
            r"^line (\d+)", lambda match: f"line {int(match[1]) + count}", refused.at
        )
        raise
