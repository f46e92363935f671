"""How a statement that a machine of queues does not run is refused."""

from __future__ import annotations

from collections.abc import Sequence

from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core.expr import Binary, Cast, Expr, Load, dtype_of, walk
from offcut.core.program import Kind
from offcut.core.text.printer import format_expr
from offcut.describe.computation import Computation, Stage
from offcut.errors import TargetError


def refuse(spec: AcceleratorSpec, at: str, because: str, *help: str) -> TargetError:
    """The refusal of a statement.

    help   what would be accepted
    """
    units = f"the matrix unit adds products of int8 in int32, the vector unit has {', '.join(sorted(spec.alu))} on int32"
    return TargetError(
        "compile",
        f"cannot run {at} on {spec.name}",
        at=at,
        because=because,
        help=(*help, units, 'target="cpu" runs it'),
    )


def unsupported_reduction(stage: Stage, spec: AcceleratorSpec) -> TargetError:
    """The refusal of a sum, maximum or minimum that neither unit has."""
    value = stage.value
    because = f"it is a {stage.reducer} of {format_expr(value)}"
    help = ["a sum of products int32(A[…])*int32(B[…]) of int8"]
    if stage.reducer == "sum" and isinstance(value, Binary) and value.op == "*":
        factors = _narrow(value.a), _narrow(value.b)
        first, second = map(dtype_of, factors)
        if "int8" not in (first, second) or first != second:
            because += f", of {first} and {second}, and the matrix unit multiplies int8 and int8"
        for one, other in (factors, factors[::-1]):
            if dtype_of(one) == "uint8" and isinstance(one, Load) and isinstance(other, Load):
                help.append(
                    f"{one.buffer} less 128, as int8, and behind the sum 128 times the sums of {other.buffer} added"
                )
    return refuse(spec, stage.label, because, *help, "a sum, maximum or minimum of elements")


def unsupported_result(
    computation: Computation, group: Sequence[Stage], stage: Stage, spec: AcceleratorSpec
) -> TargetError:
    """The refusal of a stage whose words main memory would have to keep whole: of its result, or of who reads it.

    group   the one that it is in
    """
    dtype = computation.buffer(stage.buffer).dtype
    reads = (
        (other, node)
        for others in computation.groups
        if tuple(others) != tuple(group)
        for other in others
        for node in walk(other.value)
        if isinstance(node, Load) and node.buffer == stage.buffer
    )
    if computation.buffer(stage.buffer).kind is Kind.OUTPUT or (read := next(reads, None)) is None:
        return refuse(
            spec,
            stage.label,
            f"it is of {dtype} in main memory, and a store cuts words to 8 bits",
            f'{stage.label}.astype("int8"), behind a shift and minimum and maximum',
            f'four results, its bytes: ({stage.label} // 256**b).astype("uint8") for b in 0, 1, 2, 3',
        )
    reader, load = read
    parts = [part for part in load.index if isinstance(part, Binary) and part.op == "//"]
    return refuse(
        spec,
        reader.label,
        f"it reads {format_expr(load)} of {dtype}, not point by point, so from main memory, where a store cuts words "
        "to 8 bits",
        *(f"a sum and a result of its own for each {format_expr(part)}" for part in parts[:1]),
        "int8 of what it reads, behind a shift and minimum and maximum",
    )


def _narrow(value: Expr) -> Expr:
    """`value` before it was made int32."""
    return _narrow(value.a) if isinstance(value, Cast) and value.dtype == "int32" else value
