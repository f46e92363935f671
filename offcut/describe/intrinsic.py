"""Instructions on tiles, declared by what they compute and by which names run it.

As in TVM: a tensor expression on operands of fixed shape, and a function that says how it is lowered,
with pointers to the operands: one instruction; or three, the whole, the start of the reduction
(reset), and one step of it (update).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from offcut.core.expr import Expr, Var, loads
from offcut.describe.microkernel import Microkernel
from offcut.describe.tensor import Compute, Tensor
from offcut.describe.tile_shapes import Place, TileShape
from offcut.errors import DescribeError, trim_traceback

_MODES = ("r", "w", "rw")


@dataclass(frozen=True, slots=True)
class Pointer:
    """The first element of an operand, to be read ("r"), written ("w") or both ("rw")."""

    operand: str
    mode: str


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of an instruction while it is lowered."""

    tensor: Tensor

    def access_ptr(self, mode: str) -> Pointer:
        """Return a pointer to it; `mode` is "r", "w" or "rw"."""
        if mode not in _MODES:
            raise DescribeError(
                "access_ptr",
                f"cannot access {self.tensor.name} as {mode!r}",
                because=f"a mode is one of {', '.join(_MODES)}",
            )
        return Pointer(self.tensor.name, mode)


@dataclass(frozen=True, slots=True)
class Instruction:
    """A hardware instruction by name, with its operands in order."""

    name: str
    operands: tuple[Pointer, ...]


Lowering = Callable[[tuple[Operand, ...], tuple[Operand, ...]], Any]

_declared: dict[str, tuple[Microkernel, ...]] = {}
_MOST_DECLARED = 16  # of one name


def find_instruction(name: str) -> Microkernel | None:
    """Return the instruction of that name that was declared last in this process; None where none was."""
    return next(iter(declarations(name)), None)


def declarations(name: str) -> tuple[Microkernel, ...]:
    """Return the instructions that have that name, for their starts and steps too, the last 16, last one first.

    Two instructions may start their sums by one of the same name.
    """
    return _declared.get(name, ())


def declare(kernel: Microkernel) -> Microkernel:
    """Return `kernel`, which programs may name from now on, whatever a target makes of it."""
    for name in (kernel.name, kernel.reset, kernel.update):
        if name is not None:
            _declared[name] = (kernel, *declarations(name))[:_MOST_DECLARED]
    return kernel


@trim_traceback
def hardware_intrinsic(name: str, *pointers: Pointer) -> Instruction:
    """Return the instruction of that name on operands, as a lowering returns it.

    Raises DescribeError for what is no name, or no pointer.
    """
    if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
        raise DescribeError(
            "hardware_intrinsic",
            f"cannot name an instruction {name!r}",
            because="a name is an ASCII identifier",
        )
    for pointer in pointers:
        if not isinstance(pointer, Pointer):
            raise DescribeError(
                "hardware_intrinsic",
                f"cannot take {pointer!r} as an operand of {name}",
                because="an operand is a pointer",
                help=('inputs[0].access_ptr("r")',),
            )
    return Instruction(name, pointers)


@trim_traceback
def decl_tensor_intrin(
    computation: Tensor, lowering: Lowering, *, cycles: float = 1.0, startup: float = 0.0
) -> Microkernel:
    """Return the instruction that computes `computation`, a tensor of constant shape.

    lowering  called with the inputs and the outputs; returns one `hardware_intrinsic`, or three: the
              whole, the start of its reduction, one step of it
    cycles    predicted cycles of a step of its reduction
    startup   predicted cycles of an issue

    Raises DescribeError where a shape is symbolic, or the lowering returns something else.
    """
    definition = computation.definition if isinstance(computation, Tensor) else None
    if definition is None:
        raise DescribeError(
            "decl_tensor_intrin",
            f"cannot declare {computation!r}",
            because="an instruction is declared by a tensor that compute defines",
        )
    for tensor in (computation, *definition.reads):
        for axis, extent in enumerate(tensor.shape):
            if not extent.is_Integer:
                raise DescribeError(
                    "decl_tensor_intrin",
                    f"cannot declare {computation.name}",
                    at=f"tensor {tensor.name}, axis {axis}",
                    because=f"its extent is {extent}, and an instruction has a fixed shape",
                )
    lowered = lowering(
        tuple(Operand(tensor) for tensor in definition.reads), (Operand(computation),)
    )
    three = _instructions(lowered, computation)
    _check_operands(three, computation, definition)
    tile = TileShape(tuple(int(extent) for extent in computation.shape), cycles, startup)
    names = [instruction.name for instruction in three]
    reset, update = (names[1], names[2]) if len(names) == 3 else (None, None)
    microkernel = Microkernel(
        name=names[0],
        computes=computation,
        tiles=(tile,),
        operands={
            tensor.name: _in_rows(tensor, computation)
            for tensor in (*definition.reads, computation)
        },
        accumulate="both" if update else "fresh",
        reset=reset,
        update=update,
    )
    return declare(microkernel)


def _check_operands(
    instructions: Sequence[Instruction], computation: Tensor, definition: Compute
) -> None:
    """Check that instructions write the result and nothing else, and read what it is computed from; a reset reads nothing.

    Raises DescribeError.
    """
    read = {tensor.name for tensor in definition.reads}
    for what, one in zip(("body", "reset", "update"), instructions, strict=False):
        if not one.operands:  # a name alone
            continue
        named = {pointer.operand for pointer in one.operands}
        written = {pointer.operand for pointer in one.operands if "w" in pointer.mode}
        wanted = set() if what == "reset" else read
        because = ""
        if foreign := sorted(named - read - {computation.name}):
            because = f"it has {', '.join(foreign)}, which {computation.name} is not computed from"
        elif extra := sorted(written - {computation.name}):
            because = f"it writes {', '.join(extra)}, and computes {computation.name}"
        elif not written:
            because = f"it writes nothing, and computes {computation.name}"
        elif missing := sorted(wanted - named):
            because = (
                f"it does not read {', '.join(missing)}, which {computation.name} is computed from"
            )
        elif what == "reset" and named & read - {computation.name}:
            because = f"it reads {', '.join(sorted(named & read))}, and starts a reduction"
        if because:
            raise DescribeError(
                "decl_tensor_intrin",
                f"cannot declare {computation.name}",
                at=f"{what} {one.name}",
                because=because,
                help=('inputs[0].access_ptr("r"), outputs[0].access_ptr("w")',),
            )


def _in_rows(operand: Tensor, computation: Tensor) -> Place:
    """Return an operand as its pointer says: elements of its last axis next to each other."""
    definition = computation.definition
    assert definition is not None
    index: tuple[Expr, ...] = tuple(Var(axis.name) for axis in definition.axes)
    if operand is not computation:
        index = next(
            load.index for load, _ in loads(definition.body) if load.buffer == operand.name
        )
    last = index[-1] if index else None
    return Place(beside=last.name if isinstance(last, Var) else "")


def _instructions(lowered: Any, computation: Tensor) -> Sequence[Instruction]:
    listed = lowered if isinstance(lowered, tuple | list) else (lowered,)
    if len(listed) not in (1, 3) or not all(isinstance(one, Instruction) for one in listed):
        raise DescribeError(
            "decl_tensor_intrin",
            f"cannot lower {computation.name} to {lowered!r}",
            because="a lowering returns one instruction, or three: body, reset, update",
            help=('hardware_intrinsic("gemm8x8", inputs[0].access_ptr("r"), …)',),
        )
    return listed
