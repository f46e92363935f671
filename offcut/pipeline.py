"""From a tensor expression to a kernel: the passes, in order. Read this file first.

describe    core        tensors, symbolic sizes            `compute`, `placeholder`, `dim`
represent   core        a loop program, unique names       `computation`, `source`, `parse`
bind        core        constants, and the sizes they fix  `bind_constants`
cut         backends    microkernels and strategies        `plan`
prove       partition   isl, for all sizes                 `prove`, `check_equal`
lower       backends    loops to LLVM IR                   `lowered`
build       backends    object code, cached                `build`
run         kernel      any size, no Python per shape      `Kernel`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from offcut.backends.cpu import isa, pool
from offcut.backends.cpu.build import code_bytes
from offcut.backends.cpu.claims import covers_of
from offcut.backends.cpu.external import checked, measured
from offcut.backends.cpu.kernels import families
from offcut.backends.cpu.machine import hardware
from offcut.backends.cpu.planning import Asked, Strategies
from offcut.core.binding import bind_constants
from offcut.core.computation import computation
from offcut.core.intrinsic import declared
from offcut.core.microkernel import Microkernel
from offcut.core.program import Program, Store, Tile
from offcut.core.program import walk as statements
from offcut.core.request import constants_of, inputs_of, outputs_of, sizes_fixed_by
from offcut.core.source import source
from offcut.core.tensor import Tensor
from offcut.costmodel import copies_worth, tile_price
from offcut.errors import DescribeError, PartitionError, TargetError
from offcut.kernel import How, Kernel, kernel_of
from offcut.partition import (
    Certificate,
    Partition,
    Strategy,
    StrategyLike,
    Tiles,
    Users,
    check_equal,
    check_marks,
    checked_request,
    cut,
    cut_program,
    cuts_of,
    settled,
    strategy_named,
    users_of,
)
from offcut.polyhedral import bounded
from offcut.schedule import Schedule, schedule_of

_SIMPLER = ("fewer axes in tile=", "one tile by axis", 'tail="cut"')


def partition(
    output: Tensor | Sequence[Tensor] | Program,
    tile: Mapping[str, Tiles] | None = None,
    tail: Mapping[str, StrategyLike] | StrategyLike = "cut",
    target: str = "cpu",
    inputs: Sequence[Tensor] | None = None,
    copies: int | None = None,
    microkernels: Sequence[Microkernel] = (),
) -> Partition:
    """`output` with its conditions separated and the axes named in `tile` cut, and proved.

    output  a tensor, several, or a loop program (`parse`, `recurrence`)
    tile    the largest tile by axis, in iterations, or one for each level of tiles, outermost
            first; ``C.j`` where several tensors have a ``j``; no other axis is cut
    tail    a strategy by axis, or one for all: guard, exact, cut, mask, pad, shift, ladder,
            balance, even, residue, version, mix, or one of your own (`strategy`); with heights,
            ``("ladder", (4, 2, 1))``
    target  whose microkernels may cover the pieces
    copies  stores of the result per store of `output`, at most: what conditions may cost in code;
            None: as many as the cost model finds worth it (`copies_worth`)
    microkernels  external ones that may cover pieces too, where they are the cheaper; and such as
            another unit runs, a warp for one: what these cover first is noted, and runs otherwise

    Raises PartitionError, with the smallest witness, for a cut that is not legal or not proved.
    """
    _check_target(target, "partition")
    host, elsewhere = _lent(isa.host(), microkernels, "partition", declared=True)
    host = replace(host, external=measured(host.external, host))
    own = [family.microkernel for family in families(host)]
    asked = {} if tile is None else tile
    price = tile_price(own[0], hardware())
    kernels = [*elsewhere, *sorted(own, key=lambda kernel: kernel.cycles)]
    described = None
    if isinstance(output, Program):
        _check_covers(output, host, "partition")
        program = output
    else:
        outputs = outputs_of(output, "partition")
        described = computation(outputs, inputs_of(inputs, outputs, "partition"))
        program = source(described)
    most = _copies(copies, program)
    with bounded("partition", f"cannot cut {program.name} so", help=_SIMPLER):
        if described is None or described.asks_memory:
            wanted = checked_request(asked, tail)
            made = cut_program(program, wanted, kernels, price, copies=most)
        else:
            wanted = cuts_of(described, asked, tail)
            made = cut(described, asked, tail, kernels, price, most)
    made = settled(made, covers_of(made.loops, host).refused)
    return replace(
        made,
        schedule=schedule_of(program.name, wanted, most),
        measure=lambda cut: code_bytes(cut.loops, isa.host()),
    )


def prove_equal(source: Program, emitted: Program, reassociate: bool = False) -> Certificate:
    """The proof that one loop program computes what another one does, at every allowed size.

    source       what must be computed, in plain loops
    emitted      the same sizes and buffers, in whatever order and pieces
    reassociate  whether the terms of a sum may be added in another order

    Raises PartitionError, with the smallest witness, where they differ or the proof does not reach.
    """
    for program in (source, emitted):
        if not isinstance(program, Program):
            raise DescribeError(
                "prove_equal",
                f"cannot compare {program!r}",
                because="it is no loop program",
                help=("parse(text)", "partition(…).loops"),
            )
    check_marks(emitted, {}, reassociate)
    return Certificate(check_equal(source, emitted, reassociate=reassociate))


def _copies(asked: int | None, program: Program) -> int:
    if asked is None:
        stores = sum(isinstance(stmt, Store) for stmt in statements(program.body))
        return copies_worth(hardware(), stores)
    if not isinstance(asked, int) or isinstance(asked, bool) or asked < 1:
        raise PartitionError(
            "partition",
            f"cannot make {asked!r} copies",
            because="copies is an int, at least 1: what one statement may become",
            help=("copies=1 leaves every condition where it is",),
        )
    return asked


def compile(
    output: Tensor | Sequence[Tensor] | Program,
    inputs: Sequence[Tensor] | None = None,
    constants: Mapping[str, Any] | None = None,
    target: str = "cpu",
    strategy: StrategyLike | Mapping[str, StrategyLike] = "auto",
    threads: int | None = None,
    reassociate: bool = True,
    microkernels: Sequence[Microkernel] = (),
    schedule: Schedule | None = None,
) -> Kernel:
    """A kernel that computes `output`, or runs a loop program, at every allowed size.

    A program's inputs are those that it declares, what it updates among them: a call takes such an
    array, leaves it as it is, and gives back a new one; where ``out=`` is the array itself, it is
    updated in place.

    inputs       placeholders in call order; by default in the order in which they are read
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

    Raises DescribeError, PartitionError or TargetError for what cannot be described, cut, or run.
    """
    _check_target(target, "compile")
    most = pool.threads_of(threads)
    host, _ = _lent(isa.host(), microkernels, "compile")
    if host.external and not reassociate:
        raise TargetError(
            "compile",
            "cannot take microkernels= with reassociate=False",
            because="in which order an external function adds is not known",
            help=("microkernels=() leaves sums to functions that add in ascending order",),
        )
    asked = Asked(_checked_strategy(strategy), reassociate, _checked_schedule(schedule, strategy))
    how = How(asked, measured(host.external, host), most)
    if isinstance(output, Program):
        _check_program_request(inputs)
        _check_covers(output, how.host, "compile")
        program, arrays = bind_constants(output, constants, "compile")
        return kernel_of(program, Users.of(program), arrays, how)
    outputs = outputs_of(output, "compile")
    given = inputs_of(inputs, outputs, "compile")
    arrays = constants_of(given, constants, "compile")
    known = sizes_fixed_by(given, arrays, "compile")
    described = computation(outputs, given, arrays, known)
    users = users_of(described)
    names = dict(users.buffers)
    return kernel_of(source(described), users, {names[n]: a for n, a in arrays.items()}, how)


def _checked_strategy(strategy: object) -> Strategies:
    """What a user wrote, as strategies."""
    if strategy == "auto":
        return "auto"
    if isinstance(strategy, str | tuple | Strategy):
        return strategy_named(strategy, at="every axis of rows", op="compile")
    if not isinstance(strategy, Mapping):
        raise PartitionError(
            "compile",
            f"cannot take strategy={strategy!r}",
            because="a strategy is a name, or names by axis",
            help=('strategy="auto"', 'strategy={"i": "ladder", "j": "mask"}'),
        )
    return tuple(
        (str(axis), strategy_named(choice, at=f"axis {axis}", op="compile"))
        for axis, choice in strategy.items()
    )


def _checked_schedule(schedule: object, strategy: object) -> Schedule | None:
    """A schedule, where one is given and no strategy beside it."""
    if schedule is None:
        return None
    if not isinstance(schedule, Schedule):
        raise DescribeError(
            "compile",
            f"cannot take schedule={schedule!r}",
            because="it is no schedule",
            help=("kernel.schedule", "oc.Schedule.parse(text)"),
        )
    if strategy != "auto":
        raise DescribeError(
            "compile",
            f"cannot take strategy={strategy!r} beside schedule=",
            because="a schedule says every strategy",
            help=("one of the two",),
        )
    return schedule


def _check_program_request(inputs: Any) -> None:
    if inputs is not None:
        raise DescribeError(
            "compile",
            "cannot take inputs= with a program",
            because="a program declares its inputs, in call order",
        )


def _lent(
    host: isa.Host, microkernels: Any, op: str, declared: bool = False
) -> tuple[isa.Host, tuple[Microkernel, ...]]:
    """`host` with the external microkernels of a call of `op`, and those that it cannot run."""
    own = [family.microkernel for family in families(host)]
    lent = checked(microkernels, own, op, declared)
    external = tuple(kernel for kernel in lent if kernel.unit == "core")
    return replace(host, external=external), tuple(
        kernel for kernel in lent if kernel.unit != "core"
    )


def _check_covers(program: Program, host: isa.Host, op: str) -> None:
    """Refuse a program that names a microkernel which is none."""
    known = [family.microkernel.name for family in families(host)]
    for tile in (stmt for stmt in statements(program.body) if isinstance(stmt, Tile)):
        name = tile.microkernel
        if name is not None and name not in known and declared(name) is None:
            raise PartitionError(
                op,
                f"cannot cover a tile by {name}",
                at=f"tile {', '.join(axis.iter for axis in tile.axes)}",
                because="no microkernel of this machine, and no declared instruction, has that name",
                help=(", ".join(known), f"without @microkernel({name}) it runs as loops"),
            )


def _check_target(target: str, op: str) -> None:
    if target != "cpu":
        raise TargetError(
            op,
            f"cannot {op} for target={target!r}",
            because="there is no such target",
            help=('target="cpu"',),
        )


__all__ = ["Kernel", "compile", "partition", "prove_equal"]
