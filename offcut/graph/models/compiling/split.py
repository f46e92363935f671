"""Which target runs a region: the first of several that takes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from offcut import pipeline
from offcut.backends.memory import HOST, Memory
from offcut.backends.options import check_result
from offcut.backends.target import Target
from offcut.errors import DescribeError, OffcutError
from offcut.graph.sizes.extent_values import typical_sizes
from offcut.kernel import Kernel

Targets: TypeAlias = str | Target | Sequence[str | Target]
"""A target, or several: a region runs on the first that takes it."""


@dataclass(frozen=True, slots=True)
class TargetKernel:
    """The kernel of a region, on the first target that takes it.

    target   its name
    refused  the targets before, by name, and why they do not
    """

    kernel: Kernel
    target: str
    refused: tuple[tuple[str, str], ...] = ()


def as_targets(targets: Targets) -> tuple[str | Target, ...]:
    """The targets, in order.

    Raises DescribeError where there is none.
    """
    all_targets = (targets,) if isinstance(targets, str | Target) else tuple(targets)
    if not all_targets:
        raise DescribeError(
            "graph",
            "cannot compile for target=()",
            because="there is no target in it",
            help=('target="cpu"', 'target=("vta", "cpu")'),
        )
    return all_targets


def first_accepting(
    targets: Targets, make: Callable[[str | Target], Kernel], least_filled: float = 0.0
) -> TargetKernel:
    """The kernel of the first target that `make` makes one for, and that its unit is filled by.

    least_filled  share of what microkernels compute that is asked for; the last target takes what is left

    Raises what `make` does for the last target.
    """
    *before, last = as_targets(targets)
    refused: list[tuple[str, str]] = []
    for target in before:
        try:
            kernel = make(target)
        except OffcutError as refusal:
            refused.append((name_of(target), refusal.because))
            continue
        because = underfill_reason(kernel, least_filled) if least_filled > 0 else ""
        if not because:
            return TargetKernel(kernel, name_of(target), tuple(refused))
        refused.append((name_of(target), because))
    return TargetKernel(make(last), name_of(last), tuple(refused))


def underfill_reason(kernel: Kernel, least: float) -> str:
    """Why a kernel does not fill its unit, in words; "" where it does, or needs none."""
    cost = kernel.cost(**typical_sizes(kernel.signature.sizes))
    units = dict.fromkeys(piece.microkernel for piece in cost.pieces if piece.microkernel)
    computed = sum(piece.flop for piece in cost.pieces if piece.microkernel)
    if not computed or cost.flop >= least * computed:
        return ""
    share = cost.flop / computed
    return f"{share:.0%} of what {', '.join(units)} would compute is asked for, the rest pads its tiles"


def name_of(target: str | Target) -> str:
    """What a plan calls a target."""
    return target if isinstance(target, str) else target.name


def resolve_targets(targets: Sequence[str | Target]) -> tuple[Target, ...]:
    """The targets, those that are named found.

    Raises TargetError as `offcut.compile` does.
    """
    return tuple(one if isinstance(one, Target) else pipeline.target(one) for one in targets)


def memory_of(targets: Sequence[Target]) -> Memory:
    """Return the memory that the values of a model lie in: that of a device, if a target has one, else that of the process.

    Raises DescribeError for two devices.
    """
    devices = {id(one.memory): one for one in targets if not one.memory.is_host}
    if len(devices) > 1:
        names = " and ".join(repr(one) for one in devices.values())
        raise DescribeError(
            "graph",
            f"cannot compile for {names}",
            because="each has a memory of its own, and the values of a model lie in one",
            help=(f"target=({next(iter(devices.values()))!r}, 'cpu')",),
        )
    return next((one.memory for one in devices.values()), HOST)


def has_packed_operands(targets: Sequence[Target]) -> bool:
    """Return whether a microkernel of a target reads an operand from main memory in a layout of its own, as a constant can be packed."""
    return any(
        place.layout is not None and not place.memories
        for target in targets
        for kernel in target.microkernels()
        for place in kernel.operands.values()
    )


def texts_of(targets: Sequence[Target], threads: int | None) -> tuple[tuple[str, ...], ...]:
    """All that code for the targets depends on beside the program.

    Raises TargetError as `offcut.compile` does.
    """
    return tuple(_text(one, threads) for one in targets)


def _text(target: Target, threads: int | None) -> tuple[str, ...]:
    options = check_result(target, "options", target.options("compile", threads=threads))
    return tuple(check_result(target, "cache_key_parts", target.cache_key_parts(options)))
