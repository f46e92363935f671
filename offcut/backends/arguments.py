"""Check the arguments of `compile`, `partition` and `prove_equal`, before anything is described."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from offcut.backends import registry
from offcut.backends.options import check_type
from offcut.backends.target import Strategies, Target
from offcut.core.analysis import analysis
from offcut.core.integers import whole
from offcut.core.program import Program, Store
from offcut.core.text.printer import shown
from offcut.costmodel import Device, copies_worth
from offcut.describe.microkernel import Microkernel
from offcut.errors import DescribeError, PartitionError
from offcut.partition import MIX, Strategy, parse_strategy
from offcut.schedule import Schedule, decisions, find_intrinsic, hand_steps, with_source_line
from offcut.search import Records


def first_decision(
    strategy: object, microkernels: Sequence[Microkernel], schedule: object, price: object
) -> str:
    """Return the first argument that leaves nothing for records to decide; "" where none does."""
    is_given = {
        "strategy": strategy != "auto",
        "microkernels": bool(microkernels),
        "schedule": schedule is not None,
        "price": price is not None,
    }
    return next((name for name, is_decided in is_given.items() if is_decided), "")


def check_records(records: object, decision: str) -> None:
    """Check `records=`: a file, and nothing beside it that decides.

    decision  the argument that leaves nothing for records to decide; "" for none

    Raises DescribeError.
    """
    if records is None or records is False:
        return
    if not isinstance(records, str | os.PathLike | Records):
        raise DescribeError(
            "compile",
            f"cannot take records={records!r}",
            because="records are a file",
            help=('records="tuned.sqlite"', "records=False looks nothing up"),
        )
    if decision:
        raise DescribeError(
            "compile",
            f"cannot take records= beside {decision}=",
            because="records give a schedule, and it would say otherwise",
            help=("one of the two",),
        )


def checked_strategy(strategy: object) -> Strategies:
    """Return the user's strategies, parsed and checked.

    Raises PartitionError for what names none.
    """
    if strategy == "auto":
        return "auto"
    if isinstance(strategy, str | tuple | Strategy):
        return parse_strategy(strategy, at="every axis of rows", op="compile", others=("auto",))
    if isinstance(strategy, list):
        return _one_of(strategy)
    if not isinstance(strategy, Mapping):
        raise PartitionError(
            "compile",
            f"cannot take strategy={strategy!r}",
            because="a strategy is a name, a list of names that compete, or names by axis",
            help=(
                *('strategy="auto"', 'strategy=["ladder", "balance"]'),
                'strategy={"i": "ladder", "j": "mask"}',
            ),
        )
    undecided_axis = next((axis for axis, choice in strategy.items() if choice == "auto"), None)
    if undecided_axis is not None:
        raise PartitionError(
            "compile",
            "cannot take strategy='auto'",
            at=f"axis {undecided_axis}",
            because="an axis that is not named is the target's to decide on: auto says that of all",
            help=(f"leave {undecided_axis} out", 'strategy="auto"'),
        )
    return tuple(
        (str(axis), parse_strategy(choice, at=f"axis {axis}", op="compile"))
        for axis, choice in strategy.items()
    )


def checked_schedule(
    schedule: object,
    strategy: object,
    target: Target,
    microkernels: Sequence[Microkernel] = (),
) -> Schedule | None:
    """Return a schedule, where one is given and no strategy beside it; its instructions are known.

    microkernels  that covers may name, beside those of `target`
    """
    if schedule is None:
        return None
    if not isinstance(schedule, Schedule):
        raise DescribeError(
            "compile",
            f"cannot take schedule={shown(schedule)}",
            because=f"it is of type {type(schedule).__name__}, and no schedule",
            help=(
                *(('strategy="ladder" names a strategy',) if isinstance(schedule, str) else ()),
                "kernel.schedule",
                "s.schedule, of a schedule by hand",
                "oc.Schedule.parse(text)",
            ),
        )
    if strategy != "auto":
        raise DescribeError(
            "compile",
            f"cannot take strategy={strategy!r} beside schedule=",
            because="a schedule says every strategy",
            help=("one of the two",),
        )
    for step in hand_steps(schedule):
        if isinstance(step, decisions.Cover) and step.microkernel != decisions.VECTORS:
            with with_source_line(schedule, step):
                kernels = (*target.microkernels(), *microkernels)
                known = [kernel.name for kernel in kernels]
                find_intrinsic(step.microkernel, kernels, f"axis {step.stage}.{step.axis}", known)
    return schedule


def checked_copies(copies: int | None, program: Program, machine: Device) -> int:
    """Return how many copies of a statement conditions may cost: the user's number, or what the cost model finds worth it.

    Raises PartitionError for what is no such number.
    """
    if copies is None:
        stores = len(analysis(program).of(Store))
        return copies_worth(machine, stores)
    count = whole(copies)
    if count is None or count < 1:
        raise PartitionError(
            "partition",
            f"cannot make {copies!r} copies",
            because="copies is an int, at least 1: what one statement may become",
            help=("copies=1 leaves every condition where it is",),
        )
    return count


def _one_of(names: Sequence[object]) -> Strategy:
    """Return the strategy by which each call runs the cheapest of the strategies of a list.

    Raises PartitionError if the list is empty, or has one twice, or one that is itself a choice.
    """
    if "auto" in names:
        others = dict.fromkeys([*(name for name in names if name != "auto"), "ladder", "balance"])
        raise PartitionError(
            "compile",
            f"cannot take strategy={names!r}",
            because="auto is the choice among strategies, and none of those that a list has compete",
            help=(f"strategy={[*others]!r}, which auto chooses from on a CPU", 'strategy="auto"'),
        )
    members = tuple(
        parse_strategy(name, at="the rows of every stage", op="compile") for name in names
    )
    if not members or len(set(members)) < len(members) or any(one.among for one in members):
        raise PartitionError(
            "compile",
            f"cannot take strategy={names!r}",
            because="strategies that compete are different ones, each a single one",
            help=('strategy=["ladder", "balance"]', 'strategy="auto"'),
        )
    return members[0] if len(members) == 1 else replace(MIX, members=members)


def checked_target(target: object, op: str) -> Target:
    """Return the target of the argument ``target=``.

    Raises TargetError for what is none.
    """
    if not isinstance(target, Target):
        return registry.get_target(target, None, op)
    check_type(target, "name", target.name, str, "a text")
    check_type(target, "machine", target.machine, Device, "the description of a machine")
    return target


def check_program(program: object, op: str) -> None:
    """Check that a value is a loop program.

    Raises DescribeError.
    """
    if not isinstance(program, Program):
        raise DescribeError(
            op,
            f"cannot compare {shown(program)}",
            because="it is not a loop program",
            help=("parse(text)", "partition(…).loops"),
        )


def check_price(price: object, schedule: Schedule | None) -> None:
    """Check a cost model of a user's own, beside which no schedule stands.

    Raises DescribeError.
    """
    if callable(price) and schedule is None:
        return
    because = "a schedule says what its ways cost" if callable(price) else "it is not a function"
    raise DescribeError(
        "compile",
        f"cannot take price={price!r}",
        because=because,
        help=("lambda loops: 2e-9 * n",),
    )
