"""The kernel: a compiled loop program, called with arrays of any allowed size."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from offcut.backends.base import Signature
from offcut.backends.cpu import isa, jit
from offcut.backends.cpu.build import Code, build, lowered, tile_modules
from offcut.backends.cpu.call import make_callable
from offcut.backends.cpu.claims import foreign_in
from offcut.backends.cpu.constants import Packed, pack
from offcut.backends.cpu.export import Exported, check_name, export
from offcut.backends.cpu.jit import assembly
from offcut.backends.cpu.planning import DEFAULT, Asked, Planned, plan, shared
from offcut.backends.cpu.seconds import threads_note
from offcut.backends.plan import Plan, plan_at
from offcut.backends.signature import signature_of
from offcut.core.microkernel import Microkernel
from offcut.core.program import Program, canonical
from offcut.core.request import Array, array_of, checked_constants
from offcut.errors import DescribeError, PartitionError
from offcut.partition import Partition, Users
from offcut.polyhedral import bounded, check_divisors, check_program_fits
from offcut.schedule import Schedule


@dataclass(frozen=True)
class How:
    """How a kernel is made; `offcut.compile` says what the fields mean."""

    asked: Asked = DEFAULT
    external: tuple[Microkernel, ...] = ()
    threads: int = 1

    @property
    def host(self) -> isa.Host:
        """The machine as the kernel may use it."""
        return replace(isa.host(), external=self.external, threads=self.threads)


class Kernel:
    """A compiled computation: call it with arrays of any allowed size.

    ``kernel(a, b, out=None, n=12)``: the inputs that are not constant, in order; sizes that no shape
    determines by keyword. Results are of the first input's kind. Calls are reentrant, and a kernel
    can be pickled: it is rebuilt from the cache.
    """

    __call__: Callable[..., Any]

    def __init__(
        self,
        program: Program,
        users: Users,
        arrays: Mapping[str, Array],
        how: How,
        signature: Signature,
        code: Code,
    ) -> None:
        self._program, self._users, self._arrays = program, users, arrays
        self._how, self._host, self._code = how, how.host, code
        self.signature = signature

    def plan(self, /, **sizes: int) -> Plan:
        """What a call of these sizes runs, and why: pieces, and the cost of what competed, or what
        became of each loop.

        Raises CallError for a size that is missing or not allowed.
        """
        planned = self._planned
        made = plan_at(planned.applied, self.signature, sizes)
        names = dict(self._users.sizes)
        values = {names[user]: value for user, value in sizes.items()}
        shares, foreign = shared(self.loops, self._host), foreign_in(self.loops, self._host)
        most = self._host.threads
        notes = threads_note(planned.seconds, shares, most, values, foreign)
        return replace(made, notes=(*made.notes, *planned.notes, *notes))

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
        planned = self._planned
        low = lowered(planned, self.signature, self._host)
        tiles = tile_modules(low, self._host)
        if form == "llvm":
            return "\n\n".join([low.text, *tiles])
        entry = assembly(low.text, self._host, passes=True, loops=planned.has_loops)
        return "\n\n".join([entry, *(assembly(text, self._host, passes=False) for text in tiles)])

    @property
    def loops(self) -> Program:
        """The loop program that runs."""
        return self._planned.program

    @property
    def schedule(self) -> Schedule:
        """What was decided: it prints, parses, and is applied by ``compile(…, schedule=…)``."""
        return self._planned.schedule

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
        planned, alone = self._planned, replace(self._host, threads=1)
        low = lowered(planned, self.signature, alone)
        entry = jit.optimized(low.text, self._host, passes=True, loops=planned.has_loops)
        constants = (bytes(one.owner) for one in _packed(self._code, self._arrays))
        tiles = tile_modules(low, self._host)
        return export(self.signature, entry, tiles, constants, self._host, folder, called)

    @property
    def partition(self) -> Partition:
        """The cut that runs, with its pieces and its proof.

        Raises PartitionError where a program runs in the loops that it has.
        """
        made = self._planned.applied
        if made is None:
            raise PartitionError(
                "partition",
                f"cannot show the cut of {self.signature.name}",
                because="it runs in the loops that it has",
                help=("oc.partition(program, tile={…}) cuts them",),
            )
        return made.partition

    def with_constants(self, constants: Mapping[str, Any]) -> Kernel:
        """The same code with other constants, of the same shapes; nothing is compiled."""
        given = checked_constants(constants, "with_constants")
        names = dict(self._users.buffers)
        held = {user: self._arrays[name] for user, name in names.items() if name in self._arrays}
        if set(given) != set(held):
            raise DescribeError(
                "with_constants",
                f"cannot take constants for {', '.join(given) or 'nothing'}",
                because=f"the kernel was compiled with {', '.join(held) or 'none'}",
            )
        arrays = {names[u]: _alike(u, value, held[u]) for u, value in given.items()}
        return _callable(self._program, self._users, arrays, self._how, self.signature, self._code)

    @cached_property
    def _planned(self) -> Planned:
        return plan(self._program, self._users, self._host, self._how.asked)

    def __reduce__(self) -> tuple[Any, ...]:
        return kernel_of, (self._program, self._users, self._arrays, self._how)

    def __repr__(self) -> str:
        given = ", ".join(argument.name for argument in self.signature.inputs)
        sizes = ", ".join(size.name for size in self.signature.sizes)
        return f"<kernel {self.signature.name}({given}) for any {sizes or 'call'}>"


def kernel_of(program: Program, users: Users, arrays: Mapping[str, Array], how: How) -> Kernel:
    """The kernel of a program whose constants are bound.

    users   what the user calls what is in it
    arrays  the constants, by the program's names
    """
    with bounded("compile", f"cannot compile {program.name}"):
        check_divisors(program, "compile")
    bound = canonical(program)
    check_program_fits(bound)
    signature = signature_of(bound, users)
    code = build(bound, users, signature, how.host, how.asked)
    return _callable(bound, users, arrays, how, signature, code)


def _callable(
    program: Program,
    users: Users,
    arrays: Mapping[str, Array],
    how: How,
    signature: Signature,
    code: Code,
) -> Kernel:
    """A kernel whose class calls the generated code directly: no Python frame in between."""
    packed = _packed(code, arrays)
    call = make_callable(
        signature,
        code.loaded.address("offcut_entry"),
        code.loaded.address("offcut_workspace"),
        code.loaded.address("offcut_fastcall"),
        [(one.address, one.owner) for one in packed],
        owner=(code.loaded, how.external),
    )
    made: Kernel = type("Kernel", (Kernel,), {"__call__": call, "__doc__": Kernel.__doc__})(
        program, users, arrays, how, signature, code
    )
    return made


def _packed(code: Code, arrays: Mapping[str, Array]) -> list[Packed]:
    """The constants as the code reads them."""
    return [pack(arrays[name], layout, dtype) for name, layout, dtype in code.layouts]


def _alike(name: str, value: Any, held: Array) -> Array:
    """Another value of the constant `held`, copied; refused where type or shape differ."""
    array = array_of(name, value, "with_constants")
    if (array.dtype, array.shape) != (held.dtype, held.shape):
        raise DescribeError(
            "with_constants",
            f"cannot take a constant of {array.dtype}, shape {array.shape}",
            at=name,
            because=f"the kernel was compiled for {held.dtype}, shape {held.shape}",
        )
    return np.array(array, order="C")


__all__ = ["How", "Kernel", "kernel_of"]
