"""Decides the plan of a program for any target: the first plan of its policy, in order of preference, that is proved."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from offcut import debug
from offcut.backends.compile_request import CompileRequest
from offcut.backends.covers import complete_covers, unknown_covers, unknown_microkernel_error
from offcut.backends.options import Options, TargetPlan, check_result, check_type
from offcut.backends.verify import Unproved, unproved_step, verify_pass
from offcut.core.memo import forget, lazy_property
from offcut.core.program import Program
from offcut.errors import OffcutError, PartitionError, TargetError
from offcut.partition import Users, check_windows
from offcut.proof import UNDECIDED
from offcut.schedule import Schedule, at_decision, create_schedule, hand_steps, replay

if TYPE_CHECKING:
    from offcut.backends.planner import Planner
    from offcut.backends.target import Target


def proved_plan(target: Target, request: CompileRequest, options: Options) -> TargetPlan:
    """Return the first plan of a target's policy that is proved; the same one whatever was planned before.

    Raises PartitionError, with a witness, where none computes what was asked for.
    """
    return candidates(target, request, options).first_proved_plan


def candidates(target: Target, request: CompileRequest, options: Options) -> Candidates:
    """Return the plans of a target's policy for a request, the same ones whatever was planned before.

    Raises PartitionError for a schedule of another program, or decisions that do not apply.
    """
    forget()
    check_schedule_of(options.schedule, request.program)
    facts = check_result(target, "cache_key_parts", target.cache_key_parts(options))
    return _candidates(_Question(tuple(facts), request.program, request.users, options, target))


@dataclass(frozen=True)
class _Question:
    """A program to plan for a target; equal to another one if all that the plan depends on is equal.

    facts  the parts of the cache key that tell the target's code
    """

    facts: tuple[str, ...]
    program: Program
    users: Users
    options: Options
    target: Target = field(compare=False)


class Candidates:
    """The plans of a target's policy for a program, in order of preference; each is made only if those before it are not proved.

    first  the preferred plan
    """

    def __init__(self, question: _Question) -> None:
        target, program, options = question.target, question.program, question.options
        if not target.judges:
            check_windows(program)
        self._question, self._by_hand, rest = question, None, options
        if options.schedule is not None and not target.applies_schedules:
            self._by_hand = lowered_by_hand(target, program, question.users, options)
            rest = replace(options, schedule=None)
        with at_decision(options.schedule):
            start = program if self._by_hand is None else self._by_hand
            plans = check_result(target, "policy", target.policy(start, question.users, rest))
            self._others = iter(plans)
            first = next(self._others, None)
        if first is None:
            raise TargetError(
                "compile",
                f"cannot plan {program.name} for target={target.name!r}",
                because="the target's policy holds no plan of it",
            )
        self.first: TargetPlan = _checked_plan(target, first)

    @lazy_property
    def first_proved_plan(self) -> TargetPlan:
        """Return the first plan that is proved: it computes what the request does, and may run as its marks say.

        Raises PartitionError, with a witness, if no plan is.
        """
        try:
            with at_decision(self._question.options.schedule):
                return first_proved(self.first, self._others, self._outcome)
        except OffcutError:
            forget_plans()  # whoever asks again hears the same
            raise
        finally:
            self._others = iter(())  # a suspended policy keeps its sets alive

    def _outcome(self, plan: TargetPlan) -> TargetPlan | Unproved:
        """Return a plan with complete covers, proved from the requested program on; or its first step that is not proved."""
        target, options = self._question.target, self._question.options
        if plan is not self.first:
            _checked_plan(target, plan)
        if self._by_hand is not None:
            plan = replace(plan, schedule=options.schedule, by_hand=self._by_hand)
        is_by_hand = options.schedule is not None and bool(hand_steps(options.schedule))
        source = plan.by_hand if is_by_hand and plan.by_hand is not None else self._question.program
        steps = (source, *plan.through, plan.program)
        with debug.timed("prove"):
            unproved = unproved_step(steps, options.reassociate)
        if unproved is not None or target.judges:
            return unproved or plan
        try:
            return with_whole_covers(target, plan, options)
        except PartitionError as error:
            return Unproved(len(steps), error)


@lru_cache(maxsize=4)  # a kernel that was just built is asked for its loops
def _candidates(question: _Question) -> Candidates:
    """Return the candidates for a question; an equal question gets the same, with the notes and timings of the first."""
    return Candidates(question)


def forget_plans() -> None:
    """Forget all plans: the next request is planned anew."""
    _candidates.cache_clear()


P = TypeVar("P", bound=TargetPlan)
E = TypeVar("E", bound=OffcutError)
T = TypeVar("T")
Plans = Generator[P, Unproved, None]
"""Plans in order of preference. A policy learns from its ``yield`` why the plan is not taken."""


def first_proved(
    first: TargetPlan,
    others: Iterator[TargetPlan],
    outcome: Callable[[TargetPlan], TargetPlan | Unproved],
) -> TargetPlan:
    """Return the first plan that is proved.

    others   the plans behind the first, in order of preference; each is made only if those before it are not proved
    outcome  returns a plan if it is proved, else the step that is not

    Raises PartitionError, of the first plan, if none is proved.
    """
    plan: TargetPlan | None = first
    failures = list[Unproved]()
    while plan is not None:
        proved = outcome(plan)
        if isinstance(proved, TargetPlan):
            return proved
        failures.append(proved)
        plan = _next_plan(others, proved)
    raise failures[0].error


def changed_plans(plans: Plans[P], change: Callable[[P], P]) -> Plans[P]:
    """Yield plans after a change; the policy behind learns why each is not taken."""
    plan = next(plans, None)
    while plan is not None:
        unproved = yield change(plan)
        plan = _next_plan(plans, unproved or _NO_REASON)


_NO_REASON = Unproved(
    -1, PartitionError("prove", UNDECIDED, because="whoever asks does not say why")
)
"""The reason for a policy that is iterated without one."""


def _checked_plan(target: Target, plan: object) -> TargetPlan:
    """Return what a policy yields.

    Raises TargetError where it is no plan.
    """
    checked: TargetPlan = check_type(target, "policy", plan, TargetPlan, "TargetPlan(program)")
    return checked


def _next_plan(plans: Iterator[P], unproved: Unproved | None) -> P | None:
    """Return the next plan, whose policy is told why the one before is not taken; None behind the last one."""
    if unproved is None or not isinstance(plans, Generator):
        return next(plans, None)
    try:
        plan: P = plans.send(unproved)
    except StopIteration:
        return None
    return plan


def attempt(make: Callable[[], T], refusal: type[E] = PartitionError) -> T | E:  # type: ignore[assignment]
    """Return what a function makes, a plan or a cut, or why its decisions do not apply: the next one in order of preference may do."""
    try:
        return make()
    except refusal as refused:
        return refused


def check_schedule_of(schedule: Schedule | None, program: Program) -> None:
    """Reject a schedule of another program.

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


def lowered_by_hand(planner: Planner, program: Program, users: Users, options: Options) -> Program:
    """Return what the decisions by hand of the options make of a program, each proved."""
    assert options.schedule is not None
    verify_pass(program, create_schedule(program).source, options.reassociate)
    schedule = planner.with_options(options.schedule, program, options)
    arguments = (options.microkernels, options.reassociate)
    return replay(program, schedule, *arguments, planner.microkernels(options), users=users)[1]


def with_whole_covers(planner: Planner, plan: TargetPlan, options: Options) -> TargetPlan:
    """Return a plan whose tiles say the whole of their covers.

    Raises PartitionError for a tile that the microkernel it names does not run.
    """
    own = planner.microkernels(options)
    unknown = {} if planner.accepts_any_cover else unknown_covers(plan.program, own)
    if unknown:
        raise unknown_microkernel_error(*next(iter(unknown.items())), own, "compile")
    program = complete_covers(plan.program, own, "compile")
    return plan if program == plan.program else replace(plan, program=program)
