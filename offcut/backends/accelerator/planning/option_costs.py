"""What the options of nests cost, as formulas in the size of a call: derived from the cycles that their instances take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from offcut.backends.accelerator.costs.cycles import formula
from offcut.backends.accelerator.host_device_split import HostDeviceProgram
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.backends.options import TargetPlan
from offcut.core.expr import Binary, Expr, real
from offcut.core.program import Choose, Program
from offcut.costmodel import shortened
from offcut.schedule import Schedule
from offcut.schedule.decisions import Choose as ChooseStep

Costs = Sequence[Sequence[Expr]]
"""Seconds of the options, by choice."""


def with_option_costs(plan: TargetPlan, spec: AcceleratorSpec) -> TargetPlan:
    """Return a plan whose options cost what is counted of them, seconds over its size.

    Of several sizes a call counts the cycles of each option: a formula over them is made of more calls than it saves. So it does where
    a split chooses among strategies, which the schedule says in one line.
    """
    program, schedule = plan.program, plan.schedule
    counts = [len(stmt.options) for stmt in program.body if isinstance(stmt, Choose)]
    steps = () if schedule is None else schedule.steps
    said = [len(step.options) for step in steps if isinstance(step, ChooseStep)]
    if not counts or said != counts or len(program.sizes) != 1 or schedule is None:
        return plan
    costs = tuple(_costs(program, spec))
    return replace(
        plan,
        program=_program(program, costs),
        schedule=_schedule(schedule, costs),
        through=tuple(_program(one, costs) for one in plan.through),
    )


def _costs(program: Program, spec: AcceleratorSpec) -> Iterator[Sequence[Expr]]:
    phases = HostDeviceProgram(program, spec, told=False)
    for at in phases.nests:
        options = phases.options(at)
        if len(options) > 1:
            cycles = (formula(nest).formula for nest in options)
            per_cycle = real(1 / spec.hertz)
            yield [
                shortened(Binary("max", Binary("*", one, per_cycle), real(0.0))) for one in cycles
            ]


def _program(program: Program, costs: Costs) -> Program:
    """Return a program whose choices cost so; one without choices as it is."""
    left = iter(costs)
    body = tuple(
        Choose(tuple(replace(o, cost=c) for o, c in zip(stmt.options, next(left), strict=True)))
        if isinstance(stmt, Choose)
        else stmt
        for stmt in program.body
    )
    return replace(program, body=body)


def _schedule(schedule: Schedule, costs: Costs) -> Schedule:
    left = iter(costs)
    steps = tuple(
        ChooseStep(tuple(replace(o, cost=c) for o, c in zip(step.options, next(left), strict=True)))
        if isinstance(step, ChooseStep)
        else step
        for step in schedule.steps
    )
    return Schedule(schedule.name, steps)


__all__ = ["with_option_costs"]
