"""From a tensor expression to a kernel: the passes, in order. Read this file first.

`PASSES` is all that happens to a program between what a user describes and what a call runs. Each pass takes what those
before it gave, and says what holds of what it gives. A target plans in `decide`, one plan, or in `prove` the next one where that
is not proved; it makes code in `lower`: its own steps are inside of these, never between. ``print(kernel.passes)`` shows those that ran, with their times; `OFFCUT_DUMP` writes the program after each.

    oc.partition    describe  cut
    oc.compile      describe  choose  decide  prove  lower  load
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, overload

from offcut.backends import registry
from offcut.backends.arguments import (
    check_records,
    checked_schedule,
    checked_strategy,
    checked_target,
    first_decision,
)
from offcut.backends.compile_request import check_reassociate
from offcut.backends.cpu import target as cpu
from offcut.backends.driver import (
    CHOOSE,
    CUT,
    DESCRIBE,
    Compilation,
    Cutting,
    RecordsArg,
    prove_equal,
)
from offcut.backends.interpret import target as interpret
from offcut.backends.options import check_result
from offcut.backends.passes import DECIDE, LOAD, LOWER, PROVE, Log, Pass, walk
from offcut.backends.registry import targets
from offcut.backends.target import Target
from offcut.backends.typed_call import Array
from offcut.core.program import Program
from offcut.costmodel import Device, load, shipped_machines
from offcut.describe.microkernel import Microkernel
from offcut.describe.tensor import Tensor
from offcut.errors import TargetError, trim_traceback
from offcut.kernel import Kernel, first_kernel
from offcut.partition import Partition, StrategyLike, Tiles
from offcut.schedule import OwnPrice, Schedule

PASSES: tuple[Pass[Any, Any], ...] = (DESCRIBE, CUT, CHOOSE, DECIDE, PROVE, LOWER, LOAD)
"""What happens to a program, in order; `oc.partition` ends at `CUT`, which `oc.compile` leaves out."""


def _of_queues(name: str) -> registry.Factory:
    """Return the factory of an accelerator; its back end, a fifth of all that is imported here, is imported where one is asked for."""

    def made(machine: Device | None) -> Target:
        from offcut.backends.accelerator.target import target

        return target(name)(machine)

    return made


def _gpu(machine: Device | None, device: str | None = None) -> Target:
    """Return the target of a GPU, imported where one is asked for."""
    from offcut.backends.gpu.target import target

    return target(machine, device)


registry.register("cpu", cpu.target)
registry.register("interpret", interpret.target)
registry.register("cuda", _gpu)
for _name in ("vta", "vta-osdi18", "gemmini", "accelerator"):
    registry.register(_name, _of_queues(_name))


@trim_traceback
def partition(
    output: Tensor | Sequence[Tensor] | Program,
    tile: Mapping[str, Tiles] | None = None,
    tail: Mapping[str, StrategyLike] | StrategyLike = "cut",
    target: str | Target = "cpu",
    inputs: Sequence[Tensor] | None = None,
    copies: int | None = None,
    microkernels: Sequence[Microkernel] = (),
) -> Partition:
    """Return `output` with its conditions separated and the axes named in `tile` cut, and proved.

    output  a tensor, several, or a loop program (`parse`, `recurrence`)
    tile    the largest tile by axis, in iterations, or one for each level of tiles, outermost
            first; ``C.j`` where several tensors have a ``j``; no other axis is cut
    tail    a strategy by axis, or one for all: guard, exact, cut, mask, pad, shift, ladder,
            balance, even, residue, version, mix, or one of your own (`strategy`); with heights,
            ``("ladder", (4, 2, 1))``
    target  whose microkernels may cover the pieces: a name, or what `offcut.target` gives
    copies  stores of the result per store of `output`, at most: what conditions may cost in code;
            None: as many as the cost model finds worth it (`copies_worth`), or 1, where the proof does not see through more
    microkernels  external ones that may cover pieces too, where they are the cheaper; and such as
            another unit runs, a warp for one: what these cover first is noted, and runs otherwise

    Raises PartitionError, with the smallest witness, for a cut that is not legal or not proved.
    """
    target_of_call = checked_target(target, "partition")
    asked = target_of_call.options("partition", microkernels=microkernels, threads=1)
    options = check_result(target_of_call, "options", asked)
    tiles = {} if tile is None else tile
    job = Cutting(output, inputs, tiles, tail, copies, target_of_call, options)
    partition_of_call: Partition = walk(PASSES, job, Log(), "partition")
    return partition_of_call


@overload
def compile(
    output: Tensor | tuple[Tensor],
    inputs: Sequence[Tensor] | None = None,
    constants: Mapping[str, Any] | None = None,
    target: str | Target = "cpu",
    strategy: StrategyLike | Mapping[str, StrategyLike] = "auto",
    threads: int | None = None,
    reassociate: bool = True,
    microkernels: Sequence[Microkernel] = (),
    schedule: Schedule | None = None,
    price: OwnPrice | None = None,
    records: RecordsArg = None,
) -> Kernel[Array]: ...


@overload
def compile(
    output: tuple[Tensor, Tensor, *tuple[Tensor, ...]],
    inputs: Sequence[Tensor] | None = None,
    constants: Mapping[str, Any] | None = None,
    target: str | Target = "cpu",
    strategy: StrategyLike | Mapping[str, StrategyLike] = "auto",
    threads: int | None = None,
    reassociate: bool = True,
    microkernels: Sequence[Microkernel] = (),
    schedule: Schedule | None = None,
    price: OwnPrice | None = None,
    records: RecordsArg = None,
) -> Kernel[tuple[Array, ...]]: ...


@overload
def compile(
    output: Tensor | Sequence[Tensor] | Program,
    inputs: Sequence[Tensor] | None = None,
    constants: Mapping[str, Any] | None = None,
    target: str | Target = "cpu",
    strategy: StrategyLike | Mapping[str, StrategyLike] = "auto",
    threads: int | None = None,
    reassociate: bool = True,
    microkernels: Sequence[Microkernel] = (),
    schedule: Schedule | None = None,
    price: OwnPrice | None = None,
    records: RecordsArg = None,
) -> Kernel: ...


@trim_traceback
def compile(
    output: Tensor | Sequence[Tensor] | Program,
    inputs: Sequence[Tensor] | None = None,
    constants: Mapping[str, Any] | None = None,
    target: str | Target = "cpu",
    strategy: StrategyLike | Mapping[str, StrategyLike] = "auto",
    threads: int | None = None,
    reassociate: bool = True,
    microkernels: Sequence[Microkernel] = (),
    schedule: Schedule | None = None,
    price: OwnPrice | None = None,
    records: RecordsArg = None,
) -> Kernel[Any]:
    """Return a kernel that computes `output`, or runs a loop program, at every allowed size.

    A program's inputs are those that it declares, what it updates among them: a call takes such an
    array, leaves it as it is, and gives back a new one; where ``out=`` is the array itself, it is
    updated in place.

    inputs       placeholders in call order; by default operands of an operator in its own order, others as they are read
    constants    arrays by placeholder name: copied and packed now, not passed at the call
    strategy     ``"auto"``: the cheapest by predicted cost, at each call; one strategy for the rows;
                 or a strategy by axis; of a program that is a computation as well
    threads      that a call may use, at most: it takes fewer where these are faster; None: what
                 the environment variable ``OFFCUT_THREADS`` says, else 1; a kernel that calls an
                 external function runs on its caller's thread alone
    reassociate  whether a sum of floats may use a fixed rule of its own, which depends on its extent
                 alone: on the CPU, lanes along rows of memory; False: sums run in ascending order
    microkernels  external ones that compete with the target's own, of `external_microkernel`; where
                 one is taken, a call runs on one thread, since its function may need Python's lock
    schedule     what is decided already (`Kernel.schedule`, `Schedule.parse`): the same loops, and
                 the same bits, on the same machine; None: the target's policy decides
    price        a cost model of one's own: a function of the loops of a way to run a nest, a `Program`,
                 that gives the seconds of a call, a number or an expression over the sizes. A call
                 takes the cheapest of the ways that there are; None: the target's model
    records      where strategy, schedule, microkernels and price say nothing, the schedule that `tune` found the best
                 for this program here is taken: from this file; None: from the default file, else from what is
                 shipped; False: the policy decides. `plan` says what decided

    Raises DescribeError, PartitionError or TargetError for what cannot be described, cut, or run.
    """
    decided = first_decision(strategy, microkernels, schedule, price)
    check_records(records, decided)
    check_reassociate(reassociate, "compile")
    target_of_call = checked_target(target, "compile")
    asked = target_of_call.options(
        "compile",
        checked_strategy(strategy),
        reassociate,
        microkernels,
        threads,
        checked_schedule(schedule, strategy, target_of_call, microkernels),
    )
    options = check_result(target_of_call, "options", asked)
    job = Compilation(output, inputs, constants, target_of_call, options, price, records, decided)
    log = Log()
    ways = walk(PASSES, job, log, "options")
    return first_kernel(job.request, ways, target_of_call, log)


@trim_traceback
def target(
    name: str,
    machine: str | os.PathLike[str] | Device | None = None,
    device: str | None = None,
) -> Target:
    """Return a target, for the machine that it finds or for another.

    machine  the name of a description that is shipped, the path of a TOML file, or a `Device`; what
             is planned for it is not run here where this machine lacks its features
    device   what runs it, of a target that has a choice: ``"emulated"`` runs a GPU's programs on numpy arrays;
             None: the hardware that is there

    Raises TargetError for a name that is none, a description that cannot be read, or a device that there is not.
    """
    described = load(machine) if isinstance(machine, str | os.PathLike) else machine
    if described is not None and not isinstance(described, Device):
        raise TargetError(
            "target",
            f"cannot plan for machine={machine!r}",
            because="a machine is the name of a description, the path of one, or a Device",
            help=(", ".join(shipped_machines()),),
        )
    return registry.get_target(name, described, "target", device)


__all__ = [
    "PASSES",
    "Kernel",
    "compile",
    "partition",
    "prove_equal",
    "target",
    "targets",
]
