"""What is decided for any target: its request, checked, and the first plan of its policy that is proved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from offcut import debug
from offcut.backends.checked_results import check_result, check_type
from offcut.backends.covers import complete_covers, unknown_covers, unknown_microkernel_error
from offcut.backends.options import Options, Planned, Strategies
from offcut.backends.proving import check_compiled, check_step
from offcut.backends.requested import Request, requested, stand_ins
from offcut.core.memo import forget
from offcut.core.plain_loops import is_synchronized, unsynchronized
from offcut.core.program import Program
from offcut.core.text.read_back import read_back
from offcut.describe.microkernel import Microkernel
from offcut.errors import DescribeError, PartitionError, TargetError
from offcut.partition import check_layouts, check_windows
from offcut.polyhedral.sync import Agents, check
from offcut.schedule import Schedule, at_decision, create_schedule, hand_steps, replay

if TYPE_CHECKING:
    from offcut.backends.target import Planner, Target


def checked_options(
    planner: Planner,
    one_way: bool,
    op: str,
    strategy: Strategies,
    reassociate: bool,
    microkernels: Sequence[Microkernel],
    schedule: Schedule | None,
) -> Options:
    """Return the options of a call of `op`, for a target that decides by hand alone.

    one_way  whether its policy takes no strategies

    Raises TargetError for strategies that its policy does not take, for microkernels that are lent, and for
    decisions that are not those by hand.
    """
    refused = {
        "strategy": one_way and strategy != "auto",
        "microkernels": bool(microkernels),
        "schedule": schedule is not None and hand_steps(schedule) != schedule.steps,
    }
    for option, is_refused in refused.items():
        if is_refused:
            raise TargetError(
                op,
                f"cannot take {option}= for target={planner.name!r}",  # type: ignore[attr-defined]
                because="it has one way to run a program",
            )
    return Options(strategy, reassociate, schedule=schedule)


def request_of(
    target: Target, output: Any, inputs: Any, constants: Any, options: Options, op: str
) -> tuple[Request, tuple[str, ...]]:
    """Return what `op` is asked, checked, its text too, and a line for each word of that which is not used.

    constants  arrays by name; None: there are none

    Raises DescribeError, PartitionError or TargetError for what cannot be described or run.
    """
    output = target.unsynchronized(output, op)
    request = requested(output, inputs, constants, op)
    if not isinstance(output, Program):
        return request, ()
    notes = target.check_text(output, options, op)
    check_layouts(output, op)
    return request, notes


def request_by_names(
    target: Target, output: Any, inputs: Any, constants: Any, options: Options, op: str
) -> tuple[Request, tuple[str, ...]]:
    """Return `request_of` where constants may be said by their names alone: zeros stand for them."""
    if not isinstance(constants, Mapping | Sequence):
        raise DescribeError(
            op,
            f"cannot take constants={constants!r}",
            because="they are names of inputs, or arrays by name",
            help=('constants=["W"]',),
        )
    if not isinstance(constants, Mapping):
        constants = stand_ins(constants, output, inputs, op)
    return request_of(target, output, inputs, constants, options, op)


def without_synchronization(output: Any, agents: Agents | None, op: str) -> Any:
    """Return `output`; a program without its statements of synchronization, checked for `agents`: what is lowered gets its own.

    agents  None: nothing is checked, and nothing left out

    Raises PartitionError, in the name of `sync`, where the order of its text would not be kept.
    """
    if agents is None or not isinstance(output, Program):
        return output
    if not is_synchronized(read_back(output, op)):
        return output
    check(output, agents)
    return unsynchronized(output)


def check_covers(planner: Planner, program: Program, options: Options, op: str) -> tuple[str, ...]:
    """Check the covers of a text; return a line for each name of a microkernel that nobody knows.

    Memories, layouts and units of the target's own microkernels may be decided by its policy: these are asked of its plan.

    Raises PartitionError, in the name of `op`, with the first question that a tile fails.
    """
    own = planner.microkernels(options)
    complete_covers(program, own, op, None if planner.judges else False)
    unknown = unknown_covers(program, own)
    if unknown and not planner.any_cover:
        raise unknown_microkernel_error(*next(iter(unknown.items())), own, op)
    if planner.judges:
        return ()
    because = f"target={planner.name!r} knows no microkernel of that name"  # type: ignore[attr-defined]
    return tuple(f"{name} stays a name, and is not checked: {because}" for name in unknown)


def proved_plan(target: Target, request: Request, options: Options) -> Planned:
    """Return the first plan of a target's policy that is proved; the same one whatever was planned before.

    Raises PartitionError, with a witness, where none computes what was asked for.
    """
    forget()
    program, schedule = request.program, options.schedule
    check_schedule_of(schedule, program)
    if not target.judges:
        check_windows(program)
    by_hand, rest = None, options
    if schedule is not None and not target.applies_schedules:
        by_hand = lowered_by_hand(target, program, options)
        program, rest = by_hand, replace(options, schedule=None)
    primitive = schedule is not None and bool(hand_steps(schedule))
    refused: PartitionError | None = None
    with at_decision(schedule):
        for plan in check_result(target, "policy", target.policy(program, request.users, rest)):
            check_type(target, "policy", plan, Planned, "Planned(program)")
            if by_hand is not None:
                plan = replace(plan, schedule=schedule, by_hand=by_hand)
            source = plan.by_hand if primitive and plan.by_hand is not None else request.program
            steps = (source, *plan.through, plan.program)
            whole = attempt(partial(_proved, target, plan, steps, options))
            if isinstance(whole, Planned):
                return whole
            refused = refused or whole
    if refused is None:
        raise TargetError(
            "compile",
            f"cannot plan {request.program.name} for target={target.name!r}",
            because="the target's policy holds no plan of it",
        )
    raise refused


def _proved(target: Target, plan: Planned, steps: Sequence[Program], options: Options) -> Planned:
    """Return a plan, proved, whose tiles say the whole of their covers.

    steps  programs from what is asked for to the plan's

    Raises PartitionError, with a witness, where it does not compute that, or a microkernel does not run its tile.
    """
    with debug.step("prove"):
        check_compiled(steps, options.reassociate)
    return plan if target.judges else with_whole_covers(target, plan, options)


def attempt(make: Callable[[], Planned]) -> Planned | PartitionError:
    """Return a plan, or why it is refused: the next one in a policy's order of preference may do."""
    try:
        return make()
    except PartitionError as refused:
        return refused


def check_schedule_of(schedule: Schedule | None, program: Program) -> None:
    """Refuse a schedule of another program.

    Raises PartitionError.
    """
    if schedule is not None and schedule.name != program.name:
        raise PartitionError(
            "schedule",
            f"cannot apply a schedule of {schedule.name} to {program.name}",
            at=f"line 1: schedule {schedule.name}",
            because="it was written for another program",
            help=(f"schedule {program.name}",),
        )


def lowered_by_hand(planner: Planner, program: Program, options: Options) -> Program:
    """Return what the decisions by hand of the options make of a program, each proved."""
    assert options.schedule is not None
    check_step(program, create_schedule(program).source, options.reassociate)
    arguments = (options.microkernels, options.reassociate)
    return replay(program, options.schedule, *arguments, planner.microkernels(options))[1]


def with_whole_covers(planner: Planner, plan: Planned, options: Options) -> Planned:
    """Return a plan whose tiles say the whole of their covers.

    Raises PartitionError for a tile that the microkernel it names does not run.
    """
    own = planner.microkernels(options)
    unknown = {} if planner.any_cover else unknown_covers(plan.program, own)
    if unknown:
        raise unknown_microkernel_error(*next(iter(unknown.items())), own, "compile")
    program = complete_covers(plan.program, own, "compile")
    return plan if program == plan.program else replace(plan, program=program)


__all__ = [
    "attempt",
    "check_covers",
    "check_schedule_of",
    "checked_options",
    "lowered_by_hand",
    "proved_plan",
    "request_by_names",
    "request_of",
    "with_whole_covers",
    "without_synchronization",
]
