"""What a user asks for, as a loop program whose constants are bound: whatever it was described as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from offcut import debug
from offcut.backends.host import cache as objects
from offcut.backends.options import Options
from offcut.core import index as ix
from offcut.core.dtypes import FLOATS, numpy_dtype
from offcut.core.expr import loads
from offcut.core.memo import forget
from offcut.core.program import Kind, Program, canonicalize
from offcut.core.text.read_back import read_back
from offcut.describe.binding import bind_constants
from offcut.describe.computation import computation
from offcut.describe.request import Array, constants_of, inputs_of, outputs_of, sizes_fixed_by
from offcut.describe.source import source
from offcut.describe.tensor import Tensor
from offcut.errors import DescribeError
from offcut.partition import Users, check_layouts, users_of
from offcut.polyhedral import (
    check_divisors,
    check_extents,
    check_in_bounds,
    check_program_fits,
    check_promises,
    request_budget,
    try_isl,
)
from offcut.proof import check_written
from offcut.proof.normal_forms.zero_terms import conditions

if TYPE_CHECKING:
    from offcut.backends.target import Target


@dataclass(frozen=True)
class Request:
    """A program that is to run.

    users   what the user calls what is in it
    arrays  the constants, by the program's names
    text    of the program: what is kept on disk is kept by it
    """

    program: Program
    users: Users
    arrays: Mapping[str, Array]
    text: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.text:
            object.__setattr__(self, "text", str(self.program))


def check_reassociate(value: object, op: str) -> None:
    """Refuse what does not say whether the terms of a sum may be added in another order.

    Raises DescribeError.
    """
    if not isinstance(value, bool):
        raise DescribeError(
            op,
            f"cannot take reassociate={value!r}",
            because="it is neither True nor False",
            help=("reassociate=True: the terms of a sum in any order",),
        )


def request_of(
    target: Target, output: Any, inputs: Any, constants: Any, options: Options, op: str
) -> tuple[Request, tuple[str, ...]]:
    """Return what `op` is asked, checked, its text too, and a line for each word of that which is not used.

    constants  arrays by name; None: there are none

    Raises DescribeError, PartitionError or TargetError for what cannot be described or run.
    """
    output = target.unsynchronized(output, op)
    request = requested(output, inputs, constants, op)
    if not isinstance(output, Program):
        return request, ()
    notes = target.check_text(output, options, op)
    check_layouts(output, op)
    return request, notes


def request_by_names(
    target: Target, output: Any, inputs: Any, constants: Any, options: Options, op: str
) -> tuple[Request, tuple[str, ...]]:
    """Return `request_of` where constants may be said by their names alone: zeros stand for them."""
    if not isinstance(constants, Mapping | Sequence):
        raise DescribeError(
            op,
            f"cannot take constants={constants!r}",
            because="they are names of inputs, or arrays by name",
            help=('constants=["W"]',),
        )
    if not isinstance(constants, Mapping):
        constants = stand_ins(constants, output, inputs, op)
    return request_of(target, output, inputs, constants, options, op)


def requested(output: Any, inputs: Any, constants: Any, op: str) -> Request:
    """Return `output`, tensors or a program, with its constants bound, checked for `op`.

    Raises DescribeError for what cannot be described so.
    """
    if isinstance(output, Program):
        if inputs is not None:
            raise DescribeError(
                op,
                "cannot take inputs= with a program",
                because="a program declares its inputs, in call order",
            )
        program, arrays = bind_constants(read_back(output, op), constants, op)
        if not any(buffer.kind in (Kind.OUTPUT, Kind.INOUT) for buffer in program.buffers):
            raise DescribeError(
                op,
                f"cannot {op} {program.name}",
                because="it gives nothing back: it has no output and no inout array",
            )
        users = Users.of(program)
    else:
        outputs = outputs_of(output, op)
        given = inputs_of(inputs, outputs, op)
        named = constants_of(given, constants, op)
        described = computation(outputs, given, named, sizes_fixed_by(given, named, op))
        users, program = users_of(described), source(described)
        names = dict(users.buffers)
        arrays = {names[label]: array for label, array in named.items()}
    program = _with_finite(program, arrays)
    request = Request(canonicalize(program), users, arrays)
    written = request.text if request.program is program else str(program)
    text = isinstance(output, Program)
    name = objects.key("checked text" if text else "checked", written, request.text)
    if debug.verifies() or objects.read(name) is None:
        _check(program, request)
        if text:
            check_written(request.program, op, users.names)
        objects.write(name, b"checked")
    return request


def _with_finite(program: Program, arrays: Mapping[str, Array]) -> Program:
    """Return `program`, which says of the constants that padding multiplies by zero whether they are finite."""
    asked = conditions(program, finite=True)
    read = {load.buffer for stmt in asked for load, _ in loads(stmt.value)} & arrays.keys()
    finite = {name for name in read if np.isfinite(arrays[name]).all()}
    floats = (replace(b, finite=b.dtype in FLOATS and b.name in finite) for b in program.buffers)
    return replace(program, buffers=tuple(floats))


def _check(program: Program, made: Request) -> None:
    """Refuse what cannot be compiled at every allowed size.

    made  of `program`, in the form in which it is planned
    """
    forget()
    bound, names = made.program, made.users.names
    with request_budget("compile", f"cannot compile {program.name}"):
        check_promises(bound, "compile", names)
        check_divisors(program, "compile")
    check_program_fits(bound)
    with request_budget("compile", f"cannot compile {program.name}"):
        check_extents(bound, "compile", names)
    try_isl(lambda: check_in_bounds(bound, "compile", names), None)


def stand_ins(names: Any, output: Any, inputs: Any, op: str) -> dict[str, Array]:
    """Zeros for constants of which nothing but the name is given.

    Raises DescribeError for a name that is no input, or a shape that depends on sizes.
    """
    if isinstance(output, Program):
        known = {b.name: (b.dtype, tuple(map(ix.literal_value, b.shape))) for b in output.buffers}
    else:
        given = inputs_of(inputs, outputs_of(output, op), op)
        known = {tensor.name: (tensor.dtype, _literals(tensor)) for tensor in given}
    arrays = {}
    for name in names:
        if name not in known:
            raise DescribeError(
                op,
                f"cannot take a constant for {name!r}",
                because=f"the inputs are {', '.join(known) or 'none'}",
            )
        dtype, shape = known[name]
        if None in shape:
            raise DescribeError(
                op,
                f"cannot take {name} as a constant by its name",
                because="its shape depends on sizes",
                help=(f'constants={{"{name}": an array}}',),
            )
        arrays[name] = np.zeros([extent or 0 for extent in shape], numpy_dtype(dtype))
    return arrays


def _literals(tensor: Tensor) -> tuple[int | None, ...]:
    return tuple(int(extent) if extent.is_Integer else None for extent in tensor.shape)
