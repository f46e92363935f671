"""From a tensor expression to a kernel: the passes, in order. Read this file first.

describe    core        tensors, symbolic sizes         `compute`, `placeholder`, `dim`
represent   core        unique names, extents, groups   `computation`, `signature_of`
cut         backends    microkernels and strategies     `schedule`
prove       partition   isl, for all sizes              `prove`, `check_program`
lower       backends    loops to LLVM IR                `lower`, `fast_entry_ir`
build       backends    object code, cached             `build`
run         backends    any size, no Python per shape   `Kernel`
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from offcut.backends.base import Signature
from offcut.backends.cpu import isa, jit, pool
from offcut.backends.cpu.build import (
    Code,
    added_last,
    build,
    build_program,
    code_bytes,
    computation_in,
    covers_of,
    foreign_in,
    hardware,
    lowered,
    lowered_program,
    plan,
    plan_program,
    raised_of,
    shared,
    tile_modules,
)
from offcut.backends.cpu.call import make_callable
from offcut.backends.cpu.constants import Packed, pack
from offcut.backends.cpu.export import Exported, check_name, export
from offcut.backends.cpu.external import checked
from offcut.backends.cpu.family import families
from offcut.backends.cpu.jit import assembly
from offcut.backends.cpu.lower import Lowered
from offcut.backends.cpu.seconds import seconds_of_program, seconds_of_schedule, threads_note
from offcut.backends.cpu.vectorize import Vectorized
from offcut.backends.plan import Plan, check_sizes, plan_at
from offcut.backends.schedule import Schedule
from offcut.backends.signature import signature_of
from offcut.core.binding import bind_constants
from offcut.core.computation import Computation, computation
from offcut.core.expr import Expr
from offcut.core.intrinsic import is_declared
from offcut.core.microkernel import Microkernel
from offcut.core.program import Program, Store, Tile, canonical
from offcut.core.program import walk as statements
from offcut.core.request import (
    Array,
    checked_constants,
    constants_of,
    inputs_of,
    outputs_of,
    sizes_fixed_by,
)
from offcut.core.sizes import assume, facts_about
from offcut.core.source import source
from offcut.core.tensor import Tensor, sizes_of, tensors_of
from offcut.costmodel import copies_worth, tile_price
from offcut.errors import DescribeError, PartitionError, TargetError
from offcut.partition import (
    Certificate,
    Partition,
    Tiles,
    check_equal,
    check_marks,
    checked_request,
    cut,
    cut_program,
    settled,
    strategy_named,
)
from offcut.polyhedral import bounded, check_divisors

Strategies = str | Mapping[str, str]
_Request = tuple[tuple[Tensor, ...], tuple[Tensor, ...]]  # outputs, inputs


@dataclass(frozen=True)
class _How:
    """How a kernel is made; `compile` says what the fields mean."""

    strategy: Strategies = "auto"
    reassociate: bool = True
    external: tuple[Microkernel, ...] = ()
    threads: int = 1

    @property
    def host(self) -> isa.Host:
        """The machine as the kernel may use it."""
        return replace(isa.host(), external=self.external, threads=self.threads)


_SIMPLER = ("fewer axes in tile=", "one tile by axis", 'tail="cut"')


def partition(
    output: Tensor | Sequence[Tensor] | Program,
    tile: Mapping[str, Tiles] | None = None,
    tail: Mapping[str, str] | str = "cut",
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
            balance, even, residue, version, mix
    target  whose microkernels may cover the pieces
    copies  stores of the result per store of `output`, at most: what conditions may cost in code;
            None: as many as the cost model finds worth it (`copies_worth`)
    microkernels  external ones that may cover pieces too, where they are the cheaper

    Raises PartitionError, with the smallest witness, for a cut that is not legal or not proved.
    """
    _check_target(target, "partition")
    host = _lent(isa.host(), microkernels, "partition")
    kernels = [family.microkernel for family in families(host)]
    asked = {} if tile is None else tile
    price = tile_price(kernels[0], hardware())
    kernels.sort(key=lambda kernel: kernel.cycles)
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
            made = cut_program(program, checked_request(asked, tail), kernels, price, copies=most)
        else:
            made = cut(described, asked, tail, kernels, price, most)
    made = settled(made, covers_of(made.loops, host).refused)
    return replace(made, measure=lambda cut: code_bytes(cut.loops, isa.host()))


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
    strategy: Strategies = "auto",
    threads: int | None = None,
    reassociate: bool = True,
    microkernels: Sequence[Microkernel] = (),
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

    Raises DescribeError, PartitionError or TargetError for what cannot be described, cut, or run.
    """
    _check_target(target, "compile")
    most = pool.threads_of(threads)
    external = _lent(isa.host(), microkernels, "compile").external
    if external and not reassociate:
        raise TargetError(
            "compile",
            "cannot take microkernels= with reassociate=False",
            because="in which order an external function adds is not known",
            help=("microkernels=() leaves sums to functions that add in ascending order",),
        )
    how = _How(_checked_strategy(strategy), reassociate, external, most)
    if isinstance(output, Program):
        _check_program_request(inputs)
        _check_covers(output, how.host, "compile")
        return _kernel_of_program(output, checked_constants(constants, "compile"), how)
    outputs = outputs_of(output, "compile")
    given = inputs_of(inputs, outputs, "compile")
    return _kernel(outputs, given, constants_of(given, constants, "compile"), how)


def _checked_strategy(strategy: object) -> Strategies:
    """A name, or names by axis."""
    if isinstance(strategy, str):
        return strategy
    if not isinstance(strategy, Mapping):
        raise PartitionError(
            "compile",
            f"cannot take strategy={strategy!r}",
            because="a strategy is a name, or names by axis",
            help=('strategy="auto"', 'strategy={"i": "ladder", "j": "mask"}'),
        )
    return {
        str(axis): strategy_named(choice, at=f"axis {axis}", op="compile").value
        for axis, choice in strategy.items()
    }


class Kernel:
    """A compiled computation: call it with arrays of any allowed size.

    ``kernel(a, b, out=None, n=12)``: the inputs that are not constant, in order; sizes that no shape
    determines by keyword. Results are of the first input's kind. Calls are reentrant, and a kernel
    can be pickled: it is rebuilt from the cache.
    """

    __call__: Callable[..., Any]

    def __init__(
        self,
        request: _Request,
        described: Computation,
        signature: Signature,
        how: _How,
        code: Code,
        constants: dict[str, Array],
    ) -> None:
        self._request, self._described, self._how, self._host = request, described, how, how.host
        self._code, self._constants = code, constants
        self._promises = facts_about(sizes_of((*request[1], *tensors_of(request[0]))))
        self.signature = signature

    def plan(self, /, **sizes: int) -> Plan:
        """What a call of these sizes runs, and why: pieces, and the cost of what competed.

        Raises CallError for a size that is missing or not allowed.
        """
        made = plan_at(self._schedule, self.signature, sizes)
        names = dict(self._schedule.partition.users.sizes)
        values = {names[user]: value for user, value in sizes.items()}
        shares = self._shares(seconds_of_schedule(self._schedule), values)
        return replace(made, notes=(*made.notes, *shares))

    def _shares(self, seconds: Expr, sizes: Mapping[str, int]) -> tuple[str, ...]:
        """How many threads a call takes, and what they share."""
        made, foreign = shared(self.loops, self._host), foreign_in(self.loops, self._host)
        return threads_note(seconds, made, self._host.threads, sizes, foreign)

    def source(self, form: str = "loops") -> str:
        """What runs: the loop program (``loops``), LLVM IR (``llvm``) or assembly (``asm``)."""
        if form == "loops":
            return str(self.loops)
        if form not in ("llvm", "asm"):
            raise DescribeError(
                "source",
                f"cannot show {form!r}",
                because="there is no such form",
                help=('"loops"', '"llvm"', '"asm"'),
            )
        low, loops = self._modules(self._host)
        tiles = tile_modules(low, self._host)
        if form == "llvm":
            return "\n\n".join([low.text, *tiles])
        parts = [assembly(text, self._host, passes=False) for text in tiles]
        return "\n\n".join([assembly(low.text, self._host, passes=True, loops=loops), *parts])

    @property
    def loops(self) -> Program:
        """The loop program that runs."""
        return self._schedule.partition.loops

    def _modules(self, host: isa.Host) -> tuple[Lowered, bool]:
        """LLVM IR, and whether its loops are left to LLVM's passes."""
        low = lowered(self._described, self.signature, self._schedule, host)
        return low, self._schedule.has_loops

    def export(self, folder: str | os.PathLike[str], name: str | None = None) -> Exported:
        """An object file and a C header: the kernel for programs without Python.

        folder  where ``NAME.o`` and ``NAME.h`` are written
        name    of the C functions; by default that of the computation

        The object is position independent, holds the packed constants, and needs the C library, and
        the functions of external microkernels that it calls, no more; the header names these and says
        how to call it. A call runs on the thread that makes it, whatever `threads` the kernel has. Its
        results are those of the kernel, bit for bit.

        Raises DescribeError for a name that is no C identifier or means something to C already, or a
        folder that cannot be written to.
        """
        called = self.signature.name if name is None else name
        check_name(called)
        low, loops = self._modules(replace(self._host, threads=1))
        entry = jit.optimized(low.text, self._host, passes=True, loops=loops)
        constants = (bytes(one.owner) for one in _packed(self._code, self._by_buffer()))
        tiles = tile_modules(low, self._host)
        return export(self.signature, entry, tiles, constants, self._host, folder, called)

    def _by_buffer(self) -> Mapping[str, Array]:
        """The constants by the names that the code has for them."""
        labels = {name: label for label, name in self._described.labels}
        return {name: self._constants[labels[name]] for name, _, _ in self._code.layouts}

    @property
    def partition(self) -> Partition:
        """The cut that runs, with its pieces and its proof."""
        return self._schedule.partition

    def with_constants(self, constants: Mapping[str, Any]) -> Kernel:
        """The same code with other constants, of the same shapes; nothing is compiled."""
        arrays = constants_of(self._request[1], constants, "with_constants")
        if set(arrays) != set(self._constants):
            raise DescribeError(
                "with_constants",
                f"cannot take constants for {', '.join(arrays) or 'nothing'}",
                because=f"the kernel was compiled with {', '.join(self._constants) or 'none'}",
            )
        for name, array in arrays.items():
            if array.shape != self._constants[name].shape:
                raise DescribeError(
                    "with_constants",
                    f"cannot take a constant of shape {array.shape}",
                    at=name,
                    because=f"the kernel was compiled for {self._constants[name].shape}",
                )
        return _bound(self._request, self._described, self.signature, self._how, self._code, arrays)

    @cached_property
    def _schedule(self) -> Schedule:
        return plan(self._described, self._host, self._how.strategy, self._how.reassociate)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (*self._request, self._constants, self._how, self._promises)

    def __repr__(self) -> str:
        given = ", ".join(argument.name for argument in self.signature.inputs)
        sizes = ", ".join(size.name for size in self.signature.sizes)
        return f"<kernel {self.signature.name}({given}) for any {sizes or 'call'}>"


class ProgramKernel(Kernel):
    """A compiled loop program, called as any other kernel.

    One that is a computation with a contraction in it is cut as that; any other runs in its loops, and
    its plan says why.
    """

    def __init__(
        self,
        program: Program,
        bound: Program,
        described: Computation | None,
        signature: Signature,
        how: _How,
        code: Code,
        constants: dict[str, Array],
        why: str,
    ) -> None:
        self._program, self._bound, self._raised, self._why = program, bound, described, why
        self._how, self._host = how, how.host
        self.signature, self._code, self._constants = signature, code, constants

    @cached_property
    def _vectorized(self) -> Vectorized:
        return plan_program(self._bound, self._host, self._how.reassociate)

    @cached_property
    def _schedule(self) -> Schedule:
        if self._raised is None:
            raise PartitionError(
                "partition",
                f"cannot show the cut of {self.signature.name}",
                because="a program that is no computation runs in the loops that it has",
                help=("oc.partition(program, tile={…}) cuts them",),
            )
        return plan(self._raised, self._host, self._how.strategy, self._how.reassociate)

    def plan(self, /, **sizes: int) -> Plan:
        """What a call of these sizes runs, and why: pieces, or what became of each loop.

        Raises CallError for a size that is missing or not allowed.
        """
        if self._raised is not None:
            return super().plan(**sizes)
        check_sizes(self.signature, sizes)
        shares = self._shares(seconds_of_program(self.loops), sizes)
        why = (f"no sum runs by a microkernel: {self._why}",) if self._why else ()
        notes = (*why, *self._vectorized.notes, *shares)
        return Plan(self.signature.name, dict(sizes), (), (), None, notes)

    @property
    def loops(self) -> Program:
        """The loop program that runs."""
        return super().loops if self._raised is not None else self._vectorized.program

    def _modules(self, host: isa.Host) -> tuple[Lowered, bool]:
        if self._raised is None:
            return lowered_program(self._vectorized, self.signature, host), True
        low = lowered(self._raised, self.signature, self._schedule, host)
        return low, self._schedule.has_loops

    def _by_buffer(self) -> Mapping[str, Array]:
        return self._constants

    def with_constants(self, constants: Mapping[str, Any]) -> Kernel:
        """The same program with other constants."""
        named = checked_constants(constants, "with_constants")
        if set(named) != set(self._constants):
            raise DescribeError(
                "with_constants",
                f"cannot take constants for {', '.join(named) or 'nothing'}",
                because=f"the kernel was compiled with {', '.join(self._constants) or 'none'}",
            )
        return _kernel_of_program(self._program, named, self._how)

    def __reduce__(self) -> tuple[Any, ...]:
        return _kernel_of_program, (self._program, self._constants, self._how)


def _kernel_of_program(program: Program, constants: dict[str, Any], how: _How) -> Kernel:
    """The passes of a loop program, one after the other."""
    given, arrays = bind_constants(program, constants, "compile")
    with bounded("compile", f"cannot compile {program.name}"):
        check_divisors(given, "compile")
    bound = canonical(given)
    signature = signature_of(bound)
    host = how.host
    if how.strategy == "auto":
        described, why = computation_in(bound, host, how.reassociate)
    else:
        with bounded("compile", f"cannot cut {program.name}"):
            described, why = raised_of(bound), ""
        _check_strategy_of_program(bound, described, how)
    if described is not None:
        code = build(described, signature, host, how.strategy, how.reassociate)
    else:
        code = build_program(bound, signature, host, how.reassociate)
    call = _callable(signature, host, code, arrays)
    made: Kernel = type("ProgramKernel", (ProgramKernel,), {"__call__": call})(
        program, bound, described, signature, how, code, arrays, why
    )
    return made


def _check_program_request(inputs: Any) -> None:
    if inputs is not None:
        raise DescribeError(
            "compile",
            "cannot take inputs= with a program",
            because="a program declares its inputs, in call order",
        )


def _check_strategy_of_program(program: Program, described: Computation | None, how: _How) -> None:
    """Refuse a strategy for what runs in the loops that it has."""
    why: str | None = None
    if described is None:
        why = "it is not a sequence of whole arrays, each from those before"
    elif not how.reassociate:
        why = added_last(described, program)
    if why is not None:
        raise PartitionError(
            "compile",
            f"cannot take strategy={how.strategy!r} with this program",
            because=f"{why}, so it runs in the loops that it has",
            help=("oc.compile(oc.partition(program, tile={…}, tail={…}).loops)",),
        )


def _kernel(
    outputs: tuple[Tensor, ...], inputs: tuple[Tensor, ...], arrays: dict[str, Array], how: _How
) -> Kernel:
    """The passes, one after the other."""
    known = sizes_fixed_by(inputs, arrays, "compile")
    described = computation(outputs, inputs, arrays, known)
    if described.asks_memory:
        names = dict(described.labels)
        named = {names[label]: array for label, array in arrays.items()}
        return _kernel_of_program(source(described), named, how)
    signature = signature_of(described)
    code = build(described, signature, how.host, how.strategy, how.reassociate)
    return _bound((outputs, inputs), described, signature, how, code, arrays)


def _restored(
    outputs: tuple[Tensor, ...],
    inputs: tuple[Tensor, ...],
    arrays: dict[str, Array],
    how: _How,
    promises: tuple[Any, ...],
) -> Kernel:
    """A pickled kernel, under the promises that it was compiled under."""
    with assume(*promises):
        return _kernel(outputs, inputs, arrays, how)


def _bound(
    request: _Request,
    described: Computation,
    signature: Signature,
    how: _How,
    code: Code,
    arrays: dict[str, Array],
) -> Kernel:
    """A kernel whose class calls the generated code directly: no Python frame in between."""
    labels = {name: label for label, name in described.labels}
    named = {name: arrays[labels[name]] for name, _, _ in code.layouts}
    call = _callable(signature, how.host, code, named)
    made: Kernel = type("Kernel", (Kernel,), {"__call__": call, "__doc__": Kernel.__doc__})(
        request, described, signature, how, code, arrays
    )
    return made


def _callable(signature: Signature, host: isa.Host, code: Code, arrays: Mapping[str, Array]) -> Any:
    """What runs `code`, with the constants packed as it reads them."""
    packed = _packed(code, arrays)
    return make_callable(
        signature,
        code.loaded.address("offcut_entry"),
        code.loaded.address("offcut_workspace"),
        code.loaded.address("offcut_fastcall"),
        [(one.address, one.owner) for one in packed],
        owner=(code.loaded, host.external),
    )


def _packed(code: Code, arrays: Mapping[str, Array]) -> list[Packed]:
    """The constants as the code reads them."""
    return [pack(arrays[name], layout, dtype) for name, layout, dtype in code.layouts]


def _lent(host: isa.Host, microkernels: Any, op: str) -> isa.Host:
    """`host` with the external microkernels of a call of `op`."""
    own = [family.microkernel for family in families(host)]
    return replace(host, external=checked(microkernels, own, op))


def _check_covers(program: Program, host: isa.Host, op: str) -> None:
    """Refuse a program that names a microkernel which is none."""
    known = [family.microkernel.name for family in families(host)]
    for tile in (stmt for stmt in statements(program.body) if isinstance(stmt, Tile)):
        name = tile.microkernel
        if name is not None and name not in known and not is_declared(name):
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
