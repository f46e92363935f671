"""The kernel: a compiled loop program, called with arrays of any allowed size."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, overload

import numpy as np

from offcut.backends.abi import (
    DeviceEntry,
    Entry,
    Exported,
    HasCEntry,
    HasDeviceEntry,
    HasStreams,
    HoldsConstants,
    Signature,
)
from offcut.backends.arguments import checked_schedule
from offcut.backends.compile_request import CompileRequest, has_half_bytes
from offcut.backends.decide import Candidates
from offcut.backends.driver import Alternative, record_ignored_note
from offcut.backends.host.saved_file import SavedCode, write_saved
from offcut.backends.options import KernelPart, check_type, no_schedule_error
from offcut.backends.passes import DECIDE, LOAD, LOWER, PROVE, Log
from offcut.backends.plan import Plan, check_sizes
from offcut.backends.predict import choice_notes, corrected_cost, corrected_plan
from offcut.backends.signature import signature_of
from offcut.backends.target import Loaded, Options, Target, TargetPlan, render
from offcut.backends.typed_call import Result, TypedCall
from offcut.core.memo import lazy_property
from offcut.core.program import Program
from offcut.costmodel import Cost, Device, Formulas
from offcut.describe.request import (
    Array,
    Recalled,
    array_of,
    checked_constants,
    to_constant,
    to_owned_constant,
)
from offcut.errors import (
    DescribeError,
    InternalError,
    OffcutError,
    PartitionError,
    TargetError,
    trim_tracebacks,
)
from offcut.partition import Partition
from offcut.schedule import Schedule

Kinds = Mapping[str, tuple[Any, tuple[int, ...]]]
"""The element types and the shapes of constants, by the program's names."""


@dataclass(frozen=True)
class KernelCode:
    """What kernels that differ in their constants alone have in common. It can be pickled: it is rebuilt from the cache.

    request  without its constants; kinds: what they are
    notes    what a kernel's plan says first
    """

    request: CompileRequest
    options: Options
    target: Target
    kinds: Kinds
    notes: tuple[str, ...] = ()

    @lazy_property
    def signature(self) -> Signature:
        """Return how a kernel is called."""
        return signature_of(self.request.program, self.request.users)

    @lazy_property
    def log(self) -> Log:
        """Return the passes that ran for it, in this process."""
        return Log()

    @lazy_property
    def candidates(self) -> Candidates:
        """Return what the target would run, in order of preference."""
        return DECIDE(self, self.log)

    @lazy_property
    def planned(self) -> TargetPlan:
        """Return the first of these that is proved."""
        return PROVE(self, self.log)

    @lazy_property
    def lowered(self) -> bytes:
        """Return its code, as the cache keeps it."""
        return LOWER(self, self.log)

    @lazy_property
    def loaded(self) -> Loaded:
        """Return the code in this process: from the cache where it has been made before.

        Raises PartitionError or TargetError where none can be made.
        """
        return LOAD(self, self.log)

    @lazy_property
    def choice_notes(self) -> tuple[str, ...]:
        """What a plan of any sizes says of the choice between ways."""
        return choice_notes(self.target, self.planned, self.request, self.options)

    def __reduce__(self) -> tuple[Any, ...]:
        return KernelCode, (self.request, self.options, self.target, self.kinds, self.notes)

    def with_constants(self, constants: Mapping[str, Any]) -> Kernel[Any]:
        """Return a kernel of it; nothing is compiled.

        constants  by the user's names

        Raises DescribeError as `Kernel.with_constants` says.
        """
        given = checked_constants(constants, "with_constants")
        names = dict(self.request.users.buffers)
        held = {user: self.kinds[name] for user, name in names.items() if name in self.kinds}
        if set(given) != set(held):
            raise DescribeError(
                "with_constants",
                f"cannot take constants for {', '.join(given) or 'nothing'}",
                because=f"the kernel was compiled with {', '.join(held) or 'none'}",
            )
        now = {names[u]: _alike(u, value, held[u]) for u, value in given.items()}
        for user, name in names.items():
            buffer = self.request.program.buffer(name)
            if buffer.bits is not None and now[name].any() and not has_half_bytes(now[name]):
                least, most = now[name].min(), now[name].max()
                raise DescribeError(
                    "with_constants",
                    f"cannot take {least if least < -8 else most} in {user}",
                    because="the kernel reads two elements of a byte, which are -8…7, as those that it was compiled with are",
                    help=(f"elements of {user} in -8…7", "oc.compile(…, constants=…) with these"),
                )
            if buffer.finite and not np.isfinite(now[name]).all():
                raise DescribeError(
                    "with_constants",
                    f"cannot take an infinity or NaN in {user}",
                    because="the kernel leaves out its products with padding, which are 0 of finite numbers alone",
                    help=("oc.compile(…, constants=…) with these",),
                )
        return self.bound(now)

    def bound(self, arrays: Mapping[str, Array]) -> Kernel[Any]:
        """Return the kernel that calls the code directly: no Python frame in between.

        arrays  the constants, by the program's names
        """
        loaded = self.loaded
        if isinstance(loaded, HoldsConstants):
            arrays = loaded.constant_copies(arrays)
        else:
            arrays = {name: to_owned_constant(array) for name, array in arrays.items()}
        call = check_type(
            self.target, "load", loaded(arrays), Callable, "a function that is called"
        )
        kind = type("Kernel", (Kernel,), {"__call__": call, "__doc__": Kernel.__doc__})
        made: Kernel[Any] = kind(self, arrays)
        return made


@trim_tracebacks
class Kernel(TypedCall[Result]):
    """A compiled computation: call it with arrays of any allowed size.

    ``kernel(a, b, out=None, n=12)``: the inputs that are not constant, in order or by name
    (``kernel(a, B=b)``); sizes that no shape determines by keyword. Results are of the first input's kind. Calls are reentrant, and a kernel
    can be pickled: it is rebuilt from the cache.
    """

    def __init__(self, code: KernelCode, arrays: Mapping[str, Array]) -> None:
        self.code, self._arrays = code, arrays

    @property
    def signature(self) -> Signature:
        """Return how it is called."""
        return self.code.signature

    def plan(self, /, **sizes: int) -> Plan:
        """What a call of these sizes runs, and why: which records decided, pieces, and the cost of what
        competed, or what became of each loop.

        Raises CallError for a size that is missing or not allowed.
        """
        plan = self.code.target.describe_plan(
            self.code.planned, self.code.request, self.code.options, sizes
        )
        code = self.code
        plan = corrected_plan(code.target, code.planned, code.request, code.options, plan)
        return replace(plan, notes=(*code.notes, *plan.notes, *code.choice_notes))

    @overload
    def cost(self, /) -> Cost | Formulas: ...

    @overload
    def cost(self, /, **sizes: int) -> Cost: ...

    def cost(self, /, **sizes: int) -> Cost | Formulas:
        """What a call of these sizes is predicted to cost on one core: cycles, seconds, operations, bytes from each
        memory, energy; by piece, and what binds (`Cost`). Without sizes, of a kernel that has some, the same as
        formulas in them (`Formulas`).

        Raises CallError for a size that is missing or not allowed.
        """
        given = sizes if sizes or not self.signature.sizes else None
        cost = self.code.target.predict_cost(
            self.code.planned, self.code.request, self.code.options, given
        )
        return corrected_cost(self.code.target, cost) if isinstance(cost, Cost) else cost

    def timeline(self, **sizes: int) -> Any:
        """Return how a call of these sizes runs in time: of an accelerator cycles, events, stalls, bytes.

        Raises CallError for a size that is missing or not allowed, TargetError where the target has no clock
        of its own.
        """
        sizes = check_sizes(self.signature, sizes, "timeline")
        names = dict(self.code.request.users.sizes)
        given = {names[user]: size for user, size in sizes.items()}
        return self.code.target.timeline(
            self.code.planned, self.signature, self.code.options, given
        )

    def source(self, form: str = "loops", /, **sizes: int) -> str:
        """What runs: the loop program (``loops``), or a form of the target; the CPU has LLVM IR
        (``llvm``) and assembly (``asm``), an accelerator the instructions of a call (``listing``), at these sizes
        or at typical ones.

        Raises DescribeError for a form that there is not, or that is the same at every size, CallError for a size
        that is missing or not allowed.
        """
        target, planned, options = self.code.target, self.code.planned, self.code.options
        if not sizes:
            return render(target, planned, self.signature, options, form)
        sizes = check_sizes(self.signature, sizes, "source")
        names = dict(self.code.request.users.sizes)
        given = {names[user]: size for user, size in sizes.items()}
        return render(target, planned, self.signature, options, form, given)

    def streams(self, /, **sizes: int) -> tuple[Any, ...]:
        """Return the streams of instructions that a call of these sizes runs on a machine of queues, in order: for a simulator of
        one's own, or for hardware. Of each, ``instructions`` in the order of fetching, and ``micro_ops``; `source` prints them.

        Raises TargetError where the target has none, CallError for a size that is missing or not allowed.
        """
        target = self.code.target
        if not isinstance(target, HasStreams):
            raise TargetError(
                "streams",
                f"cannot give the instructions of {self.signature.name}",
                because=f"{target.name} is not a machine of queues",
                help=('oc.compile(…, target="vta")',),
            )
        names = dict(self.code.request.users.sizes)
        extents = check_sizes(self.signature, sizes, "streams")
        return target.streams(self.code.planned, {names[user]: n for user, n in extents.items()})

    @lazy_property
    def entry(self) -> Entry:
        """Return the C function that a call runs: its address, what declares it, and the constants that it reads.

        pointers  of the inputs, then the outputs, then the constants
        sizes     in the order of ``kernel.signature.sizes``
        strides   of inputs, then outputs, every axis in turn, in elements
        workspace 64-byte aligned, of as many bytes as ``offcut_workspace`` gives

        Raises TargetError where the target makes no machine code.
        """
        if not isinstance(self.code.loaded, HasCEntry):
            raise TargetError(
                "entry",
                f"cannot give the address of {self.signature.name}",
                because=f"{self.code.target.name} makes no machine code",
                help=("kernel(…) calls it",),
            )
        return self.code.loaded.entry(self._arrays)

    @lazy_property
    def device_entry(self) -> DeviceEntry | None:
        """Return what runs it on arrays in the memory of its target; None where that is the memory of the process."""
        loaded = self.code.loaded
        return loaded.device_entry(self._arrays) if isinstance(loaded, HasDeviceEntry) else None

    @property
    def address(self) -> int:
        """Of the C function that a call runs, in this process: `entry` says how it is called."""
        return self.entry.address

    @property
    def passes(self) -> Log:
        """Return the passes that ran for it in this process, in order: their times, the program after each, what they prove.

        A kernel whose code was kept on disk is planned for it.
        """
        _ = self.code.planned
        return self.code.log

    @property
    def machine(self) -> Device:
        """What it was planned for."""
        return self.code.target.machine

    @property
    def threads(self) -> int:
        """That a call may use, at most."""
        return self.code.options.threads

    @property
    def loops(self) -> Program:
        """Return the loop program that runs."""
        return self.code.planned.program

    @property
    def schedule(self) -> Schedule:
        """What was decided: it prints, parses, and is applied by ``compile(…, schedule=…)``.

        Raises TargetError where the target decides by other means.
        """
        made = self.code.planned.schedule
        if made is None:
            refused = f"cannot show the schedule of {self.signature.name}"
            program, target = self.code.request.program, self.code.target.name
            raise no_schedule_error("schedule", refused, program, target)
        return made

    def export(self, folder: str | os.PathLike[str], name: str | None = None) -> Exported:
        """Return an object file and a C header: the kernel for programs without Python.

        folder  where ``NAME.o`` and ``NAME.h`` are written; it is made where there is none
        name    of the C functions; by default that of the computation

        The object is position independent, holds the packed constants, and needs the C library, and
        the functions of external microkernels that it calls, no more; the header names these and says
        how to call it. A call runs on the thread that makes it, whatever `threads` the kernel has. Its
        results are those of the kernel, bit for bit.

        Raises DescribeError for a name that is no C identifier or means something to C already, or a
        folder that cannot be written to.
        """
        called = self.signature.name if name is None else name
        return self.code.target.export(
            self.code.planned, self.signature, self._arrays, self.code.options, folder, called
        )

    def save(self, path: str | os.PathLike[str], *, shared: bool = False) -> None:
        """Write the kernel into a file: its machine code and its packed constants. `offcut.load` runs it where there is no compiler, with
        the same bits, and as many threads.

        shared  whether the code is a shared library beside the file, which runs where numpy is the only package

        Raises TargetError where the target makes no machine code, the kernel calls external functions, or there is no linker;
        DescribeError where the file cannot be written.
        """
        names = ("entry", "workspace", "fastcall", "supported")
        symbols = {f"offcut_{name}": f"offcut_{name}" for name in names}
        part = KernelPart("offcut", self.code.planned, self.signature)
        target, options = self.code.target, self.code.options
        code = target.portable_code([part], (), symbols, options, True, options.threads)
        saved = SavedCode("kernel", self.signature, code.triple, code.features)
        write_saved(path, saved, code, self.entry.memories, shared=shared)

    @property
    def partition(self) -> Partition:
        """Return the cut that runs, with its pieces and its proof.

        Raises PartitionError where a program runs in the loops that it has.
        """
        made = self.code.planned.applied
        if made is None:
            raise PartitionError(
                "partition",
                f"cannot show the cut of {self.signature.name}",
                because="it runs in the loops that it has",
                help=("oc.partition(program, tile={…}) cuts them",),
            )
        return made.partition

    def with_constants(self, constants: Mapping[str, Any]) -> Kernel[Result]:
        """Return the same code with other constants, of the same shapes; nothing is compiled.

        Raises DescribeError for other names, types or shapes, and for infinities and NaN in a constant of which
        the code leaves out products with zeros.
        """
        return self.code.with_constants(constants)

    @property
    def constants(self) -> Mapping[str, Array]:
        """Return the constants as they were given, by the user's names; one that the code reads packed is unpacked when it is asked for."""
        arrays = self._arrays
        names = (
            (user, name)
            for user, name in self.code.request.users.buffers
            if name in self.code.kinds
        )
        return Recalled({}, {user: partial(arrays.__getitem__, name) for user, name in names})

    def __reduce__(self) -> tuple[Any, ...]:
        return KernelCode.bound, (self.code, self._arrays)

    def __repr__(self) -> str:
        given = ", ".join(argument.name for argument in self.signature.inputs)
        sizes = ", ".join(size.name for size in self.signature.sizes)
        return f"<kernel {self.signature.name}({given}) for any {sizes or 'call'}>"


def kernel_of(
    request: CompileRequest,
    options: Options,
    target: Target,
    notes: tuple[str, ...] = (),
    log: Log | None = None,
) -> Kernel[Any]:
    """Return the kernel of what was asked for, its code from the cache where it has been made before.

    notes  what its plan says first
    log    the passes that ran before
    """
    kinds = {name: (array.dtype, array.shape) for name, array in request.arrays.items()}
    code = KernelCode(replace(request, arrays={}), options, target, kinds, notes)
    if log is not None:
        code.log.steps += log
    return code.bound(request.arrays)


def first_kernel(
    request: CompileRequest, ways: Sequence[Alternative], target: Target, log: Log
) -> Kernel[Any]:
    """Return the kernel of the first way that can be compiled: a schedule of records that cannot be taken is left aside.

    log  the passes that ran before
    """
    notes: tuple[str, ...] = ()
    for way in ways[:-1]:
        try:
            checked_schedule(way.options.schedule, "auto", target)
            return kernel_of(request, way.options, target, way.notes, log)
        except (OffcutError, InternalError) as refused:
            notes = (*notes, record_ignored_note(way.source, refused))
    last = ways[-1]
    return kernel_of(request, last.options, target, (*last.notes, *notes), log)


def _alike(name: str, value: Any, kind: tuple[Any, tuple[int, ...]]) -> Array:
    """Another value of a constant, as `to_constant`; refused where type or shape differ."""
    array = array_of(name, value, "with_constants")
    if (array.dtype, array.shape) != kind:
        raise DescribeError(
            "with_constants",
            f"cannot take a constant of {array.dtype}, shape {array.shape}",
            at=name,
            because=f"the kernel was compiled for {kind[0]}, shape {kind[1]}",
        )
    return to_constant(array)
