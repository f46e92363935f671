"""A loop nest of MLIR, its loop program, and the MLIR value of each name of the program."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import builtin
from xdsl.ir import Attribute, Operation, SSAValue

from offcut.errors import DescribeError
from offcut.ir import Program

DTYPES: dict[Attribute, str] = {
    builtin.f64: "float64",
    builtin.f32: "float32",
    builtin.f16: "float16",
    builtin.bf16: "bfloat16",
    builtin.i64: "int64",
    builtin.i32: "int32",
    builtin.IntegerType(16): "int16",
    builtin.IntegerType(8): "int8",
    builtin.i1: "bool",
    builtin.IndexType(): "index",
}
TYPES = {name: kind for kind, name in DTYPES.items()}


@dataclass(frozen=True)
class Extent:
    """``memref.dim memref, axis``: a size that is never negative."""

    memref: SSAValue
    axis: int


@dataclass(frozen=True)
class Nest:
    """A loop `op` and the `program` that computes the same, with the values of its names.

    buffers      the memref of each array that is not local, by name
    scalars      the value of each array of no axes that stands for a scalar, by name
    sizes        by name, an extent or a value of type index; such a value may be negative, and the
                 program holds only where it is not
    held_arrays  the local arrays of which an instance writes, then reads one element: SSA values
    results      of `op`, in order: the arrays of no axes that hold them
    """

    op: Operation
    program: Program
    buffers: dict[str, SSAValue]
    scalars: dict[str, SSAValue]
    sizes: dict[str, SSAValue | Extent]
    held_arrays: frozenset[str]
    results: tuple[str, ...]

    @property
    def signed_sizes(self) -> tuple[str, ...]:
        """Return the sizes that may be negative."""
        return tuple(name for name, source in self.sizes.items() if isinstance(source, SSAValue))


def import_error(op: Operation, because: str, *help: str) -> DescribeError:
    """Return the error for an operation that cannot be imported."""
    line = str(op).strip().splitlines()[0].rstrip(" {")
    return DescribeError(
        "offcut-partition", f"cannot read {op.name}", at=line, because=because, help=help
    )
