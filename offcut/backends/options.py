"""Records that the parts of a target exchange, and checks of what a target's methods return.

The error that a plan has no schedule: its program is decided as it is written, or the target decides nothing.

Check the results of the methods of targets: a user's target may return anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from offcut.backends.abi import Signature
from offcut.core.program import Alloc, For, Program, Tile, walk
from offcut.describe.microkernel import Microkernel
from offcut.describe.request import Array
from offcut.errors import TargetError
from offcut.partition import EmittedTile, Strategy
from offcut.schedule import Applied, Schedule, hand_steps

# For all axes of results, or by axis.
Strategies = Literal["auto"] | Strategy | tuple[tuple[str, Strategy], ...]
Loaded = Callable[[Mapping[str, Array]], Callable[..., Any]]
"""From the constants, by the program's names, to what a user calls."""


@dataclass(frozen=True)
class Options:
    """The options of a kernel; `offcut.compile` explains the fields.

    schedule  what is decided already; None: the policy decides
    keep_pruned  whether ways stay that the target's own prices leave out: others will price them
    keep_padding_terms  whether products that padding makes zero stay
    """

    strategy: Strategies = "auto"
    reassociate: bool = True
    microkernels: tuple[Microkernel, ...] = ()
    threads: int = 1
    schedule: Schedule | None = None
    keep_pruned: bool = False
    keep_padding_terms: bool = False


DEFAULT = Options()


def format_strategy(strategy: Strategies) -> str:
    """Return a strategy as a user writes it: one for all axes, or some by axis."""
    if isinstance(strategy, tuple):
        return str({axis: str(one) for axis, one in strategy})
    return str(strategy)


@dataclass(frozen=True)
class TargetPlan:
    """A program as a target runs it, with the decisions that made it.

    program   what is lowered, proved equal to what was asked for
    schedule  every decision that made it; None where the target decides by other means
    applied   its pieces, and the ways that compete at run time; None where it runs in its own loops
    notes     what became of its loops and tiles, and why
    through   programs on the way to it: a proof by small steps reaches further
    by_hand   what primitives of the schedule that was asked for made, each by a theorem of its own: the proof goes on
              from there; None: there are none
    tiles     its tiles by the loops that were cut around them, in the order of the text; none where `applied` has them
    """

    program: Program
    schedule: Schedule | None = None
    applied: Applied | None = None
    notes: tuple[str, ...] = ()
    through: tuple[Program, ...] = ()
    by_hand: Program | None = None
    tiles: tuple[EmittedTile, ...] = ()


@dataclass(frozen=True)
class KernelPart:
    """A kernel as a part of an object file.

    symbol     what its functions begin with: ``SYMBOL_entry``, ``SYMBOL_workspace``
    """

    symbol: str
    planned: TargetPlan
    signature: Signature


def checked_options(
    target: str,
    one_way: bool,
    op: str,
    strategy: Strategies,
    reassociate: bool,
    microkernels: Sequence[Microkernel],
    schedule: Schedule | None,
) -> Options:
    """Return the options of a call of `op`, for a target that decides by hand alone.

    target   its name
    one_way  whether its policy takes no strategies

    Raises TargetError for strategies that its policy does not take, for microkernels that are lent, and for
    decisions that are not those by hand.
    """
    refused = {
        "strategy": one_way and strategy != "auto",
        "microkernels": bool(microkernels),
        "schedule": schedule is not None
        and hand_steps(schedule, binds_last=False) != schedule.steps,
    }
    for option, is_refused in refused.items():
        if is_refused:
            because = "it has one way to run a program"
            if option == "schedule" and schedule is not None and not one_way:
                line = str(schedule).splitlines()[1 + len(hand_steps(schedule, binds_last=False))]
                because = f"it takes decisions by hand, and `{line}` is not one of these"
            raise TargetError(op, f"cannot take {option}= for target={target!r}", because=because)
    return Options(strategy, reassociate, schedule=schedule)


def no_schedule_error(op: str, refused: str, program: Program, target: str) -> TargetError:
    """Return the error for a plan without decisions.

    program  as it was compiled
    target   its name
    """
    decided = any(
        isinstance(stmt, Alloc | Tile) or (isinstance(stmt, For) and stmt.unit is not None)
        for stmt in walk(program)
    )
    if not decided:
        because = f"target={target!r} decides nothing that a schedule says"
        return TargetError(op, refused, because=because)
    return TargetError(
        op,
        refused,
        because=f"{program.name} runs as it is written: its tiles, units and windows are its schedule",
        help=(
            "kernel.loops, whose text is edited and compiled again",
            "what it computes as tensors, or as loops without tiles, units and windows",
        ),
    )


RESULTS: Mapping[str, tuple[Any, str]] = {
    "options": (Options, "Options"),
    "policy": (Iterable, "an iterator over plans"),
    "lower": (bytes, "bytes"),
    "load": (Callable, "a function of the constants"),
    "cache_key_parts": ((tuple, list), "a tuple of texts"),
    "notes": ((tuple, list), "a tuple of lines"),
    "render_form": (str, "a text"),
    "render_form_at": (str, "a text"),
}
"""The type that each of these methods returns, and what an error calls it."""

R = TypeVar("R")


def check_result(target: Any, method: str, result: R) -> R:
    """Return the checked result of a target's method: ``check_result(mine, "lower", mine.lower(…))``.

    Raises TargetError where it is not of the type in `RESULTS`.
    """
    check_type(target, method, result, *RESULTS[method])
    return result


def check_type(target: Any, member: str, value: Any, kind: Any, expected: str) -> Any:
    """Return a value of a target, checked: the result of a method, or an attribute.

    kind  a type, or several: one of which it is

    Raises TargetError where it is of another one.
    """
    if isinstance(value, kind):
        return value
    raise TargetError(
        "target",
        f"cannot use target={target.name!r}",
        at=f"{type(target).__name__}.{member}",
        because=f"it gives {value!r}, not {expected}",
    )
