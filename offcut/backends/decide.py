"""What is decided for any target: its request, checked, and the first plan of its policy that is proved."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from offcut import debug
from offcut.backends.checked_results import check_result, check_type
from offcut.backends.covers import complete_covers, unknown_covers, unknown_microkernel_error
from offcut.backends.options import Options, Planned, Strategies
from offcut.backends.proving import Unproved, check_step, unproved_step
from offcut.backends.requested import Request, requested, stand_ins
from offcut.core.memo import forget
from offcut.core.plain_loops import is_synchronized, unsynchronized
from offcut.core.program import Program
from offcut.core.text.read_back import read_back
from offcut.describe.microkernel import Microkernel
from offcut.errors import DescribeError, PartitionError, TargetError
from offcut.partition import Users, check_layouts, check_windows
from offcut.polyhedral.sync import Agents, check
from offcut.proof import UNDECIDED
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
    check_schedule_of(options.schedule, request.program)
    facts = check_result(target, "facts", target.facts(options))
    return _plan(_Question(tuple(facts), request.program, request.users, options, target))


@dataclass(frozen=True)
class _Question:
    """What a target is asked to plan; equal to another one where all that its plan depends on is.

    facts  by which the cache knows the target's code
    """

    facts: tuple[str, ...]
    program: Program
    users: Users
    options: Options
    target: Target = field(compare=False)


@lru_cache(maxsize=4)  # a kernel that was just built is asked for its loops
def _plan(asked: _Question) -> Planned:
    """Return the plan of a question; notes and timings are of the first time."""
    target, program, options = asked.target, asked.program, asked.options
    schedule = options.schedule
    if not target.judges:
        check_windows(program)
    by_hand, rest = None, options
    if schedule is not None and not target.applies_schedules:
        by_hand = lowered_by_hand(target, program, options)
        rest = replace(options, schedule=None)
    primitive = schedule is not None and bool(hand_steps(schedule))

    def proved(plan: Planned) -> Planned | Unproved:
        """Return a plan whose tiles say the whole of their covers, proved from what is asked for on."""
        check_type(target, "policy", plan, Planned, "Planned(program)")
        if by_hand is not None:
            plan = replace(plan, schedule=schedule, by_hand=by_hand)
        source = plan.by_hand if primitive and plan.by_hand is not None else program
        steps = (source, *plan.through, plan.program)
        with debug.timed("prove"):
            unproved = unproved_step(steps, options.reassociate)
        if unproved is not None or target.judges:
            return unproved or plan
        try:
            return with_whole_covers(target, plan, options)
        except PartitionError as error:
            return Unproved(len(steps), error)

    with at_decision(schedule):
        start = program if by_hand is None else by_hand
        plans = check_result(target, "policy", target.policy(start, asked.users, rest))
        plan = first_proved(plans, proved)
    if plan is None:
        raise TargetError(
            "compile",
            f"cannot plan {program.name} for target={target.name!r}",
            because="the target's policy holds no plan of it",
        )
    return plan


def forget_plans() -> None:
    """Plan anew what is asked for next."""
    _plan.cache_clear()


P = TypeVar("P", bound=Planned)
Plans = Generator[P, Unproved, None]
"""Plans in order of preference. A policy may hear why one is not taken: it is what its ``yield`` gives."""


def first_proved(
    plans: Iterable[Planned], proved: Callable[[Planned], Planned | Unproved]
) -> Planned | None:
    """Return the first of some plans that is proved; None where there is no plan.

    plans   in order of preference; the next one is asked for where one is not proved, and told why
    proved  what becomes of a plan

    Raises PartitionError, of the first plan, where none is proved.
    """
    remaining, refused = iter(plans), list[Unproved]()
    while (plan := _next_plan(remaining, refused[-1] if refused else None)) is not None:
        outcome = proved(plan)
        if isinstance(outcome, Planned):
            return outcome
        refused.append(outcome)
    if refused:
        raise refused[0].error
    return None


def changed_plans(plans: Plans[P], change: Callable[[P], P]) -> Plans[P]:
    """Yield each of some plans after a change, and hand on why it is not taken."""
    plan = next(plans, None)
    while plan is not None:
        unproved = yield change(plan)
        plan = _next_plan(plans, unproved or _UNTOLD)


_UNTOLD = Unproved(-1, PartitionError("prove", UNDECIDED, because="whoever asks does not say why"))
"""What a policy hears of a plan where it is iterated without being told."""


def _next_plan(plans: Iterator[P], unproved: Unproved | None) -> P | None:
    """Return the next plan, whose policy is told why the one before is not taken; None behind the last one."""
    if unproved is None or not isinstance(plans, Generator):
        return next(plans, None)
    try:
        plan: P = plans.send(unproved)
    except StopIteration:
        return None
    return plan


def attempt(make: Callable[[], P]) -> P | PartitionError:
    """Return a plan, or why its decisions do not apply: the next one in a policy's order of preference may do."""
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
    "Plans",
    "attempt",
    "changed_plans",
    "check_covers",
    "check_schedule_of",
    "checked_options",
    "first_proved",
    "forget_plans",
    "lowered_by_hand",
    "proved_plan",
    "request_by_names",
    "request_of",
    "with_whole_covers",
    "without_synchronization",
]
