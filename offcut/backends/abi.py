"""The binary interface of compiled kernels: their signature, and the C entry that every back end provides.

Every kernel has one stable C entry, whatever its back end::

    int32_t offcut_entry(void **pointers, const int64_t *sizes, const int64_t *strides, void *workspace);
    int64_t offcut_workspace(const int64_t *sizes);          /* bytes, 64-byte aligned by the caller */

    pointers   inputs, then outputs, then packed constants
    sizes      the symbolic sizes in the order of `Signature.sizes`
    strides    of inputs, then outputs, every axis in turn, in elements
    status     0: done; `STATUS_OUT_OF_BOUNDS`: it would have, and has left the results unfinished
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from offcut.core.expr import Expr
from offcut.core.program import Size
from offcut.core.text.printer import format_expr

STATUS_OUT_OF_BOUNDS = 1
"""What the entry returns where an index or a guard that depends on data leads out of an array."""


ENTRY = (
    "int32_t offcut_entry(void **pointers, const int64_t *sizes, "
    "const int64_t *strides, void *workspace);"
)


@dataclass(frozen=True)
class Entry:
    """The C entry of a kernel in this process; it owns what the entry reads.

    address    of the function that `declaration` declares
    workspace  address of ``int64_t offcut_workspace(const int64_t *sizes)``, which gives bytes
    constants  addresses of the packed constants: the last of the pointers
    memories   the bytes at these, arrays of uint8
    objects    the object files of the code; none where it calls functions of other libraries
    in_turn    address of a function of `offcut.backends.host.call_sequence`, which calls several such entries
    sized_call  address of a function of `offcut.backends.host.sized_call_ir`; 0: there is none
    by_name    address of a function of `offcut.backends.host.by_name_ir`, likewise
    """

    address: int
    workspace: int
    constants: tuple[int, ...]
    in_turn: int
    sized_call: int = 0
    by_name: int = 0
    declaration: str = ENTRY
    owners: tuple[object, ...] = field(default=(), repr=False, compare=False)
    memories: tuple[Any, ...] = field(default=(), repr=False, compare=False)
    objects: tuple[bytes, ...] = field(default=(), repr=False, compare=False)


@runtime_checkable
class HasCEntry(Protocol):
    """Loaded code that other programs can call by address."""

    def entry(self, constants: Mapping[str, Any]) -> Entry:
        """Return the C entry, with the constants, by name, packed as it reads them."""


@runtime_checkable
class HasStreams(Protocol):
    """A target whose calls are streams of instructions."""

    def streams(self, planned: Any, sizes: Mapping[str, int]) -> tuple[Any, ...]:
        """Return the streams of a call, in order, each with its instructions and micro-ops.

        sizes  by the program's names
        """


class DeviceEntry(Protocol):
    """A kernel, with its constants, that is called by addresses in the memory of its target (`Runtime.memory`)."""

    def workspace(self, sizes: Sequence[int]) -> int:
        """Return the bytes that a call takes beside its arrays: those of its intermediate tensors."""

    def __call__(
        self, pointers: Sequence[int], sizes: Sequence[int], workspace: int, stream: int = 0
    ) -> None:
        """Call the kernel on a stream; it allocates nothing, and nobody waits for its end.

        pointers   of the inputs, then of the outputs, each of which lies row by row
        sizes      in the order of `Signature.sizes`
        workspace  of as many bytes as the method gives
        """


@runtime_checkable
class HasDeviceEntry(Protocol):
    """Loaded code whose kernels run on arrays in the memory of their target."""

    def device_entry(self, constants: Mapping[str, Any]) -> DeviceEntry:
        """Return the entry, with the constants, by name, copied to that memory."""


@runtime_checkable
class HoldsConstants(Protocol):
    """Loaded code that reads its own copies of the constants, from which the arrays can be restored."""

    def constant_copies(self, constants: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the constants, by name, in the copies that the code reads: they stand for the arrays from here on."""


@dataclass(frozen=True, slots=True)
class AffineFact:
    """An affine fact between sizes, promised by `assume`.

    kind   ">=": ``const + sum(coef * size) >= 0``; "==": ``… == 0``; "mod": ``… % modulus == 0``
    text   as the user wrote it, for messages
    """

    kind: str
    const: int
    terms: tuple[tuple[str, int], ...]
    text: str
    modulus: int = 1

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Return whether the fact holds for these sizes."""
        value = self.const + sum(factor * sizes[name] for name, factor in self.terms)
        return (
            value >= 0
            if self.kind == ">="
            else value % self.modulus == 0
            if self.kind == "mod"
            else value == 0
        )


@dataclass(frozen=True, slots=True)
class Argument:
    """An array that crosses the call: `dtype` is the element type's name, such as "float32".

    shape  sums of multiples of sizes and of quotients of such sums by positive ints
    """

    name: str
    dtype: str
    shape: tuple[Expr, ...]

    @property
    def extents(self) -> tuple[str, ...]:
        """Return the shape, as text."""
        return tuple(map(format_expr, self.shape))


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments and results of a compiled kernel; constants are not part of it.

    updated   (input, output), by position: the output begins as a copy of the input, and the two may
              be one array
    """

    name: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    sizes: tuple[Size, ...]
    relations: tuple[AffineFact, ...] = ()
    updated: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PortableCode:
    """An object file that runs in any process of a machine like the one that it was made for.

    triple    of the processor, as LLVM has it
    features  that the processor must have, in LLVM's names
    provided  symbols that the program must define: functions of external microkernels
    threads   that a call may use
    """

    object: bytes
    triple: str
    features: tuple[str, ...]
    provided: tuple[str, ...] = ()
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Exported:
    """The files of an exported kernel: object code, and how C calls it."""

    object: Path
    header: Path
