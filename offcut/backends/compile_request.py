"""Requests to compile: the user's program, from tensors or a loop program, with its constants bound."""

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
from offcut.core.expr import Cast, Load, loads
from offcut.core.expr import walk as nodes
from offcut.core.memo import forget
from offcut.core.program import Kind, Program, Store
from offcut.core.program import walk as statements
from offcut.core.text.parser import read_back
from offcut.core.traversal import canonicalize
from offcut.describe.computation import computation, source
from offcut.describe.request import (
    Array,
    bind_constants,
    constants_of,
    give_back,
    inputs_of,
    outputs_of,
    sizes_fixed_by,
)
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
class CompileRequest:
    """A program to compile, with its constants.

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
    """Reject a value of ``reassociate=`` that is not a bool.

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
) -> tuple[CompileRequest, tuple[str, ...]]:
    """Return what `op` is asked, checked, its text too, and a line for each word of that which is not used.

    constants  arrays by name; None: there are none

    Raises DescribeError, PartitionError or TargetError for what cannot be described or run.
    """
    output = target.without_synchronization(output, op)
    request = make_request(output, inputs, constants, op)
    if not isinstance(output, Program):
        return request, ()
    notes = target.check_text(output, options, op)
    check_layouts(request.program, op)
    return request, notes


def request_by_names(
    target: Target, output: Any, inputs: Any, constants: Any, options: Options, op: str
) -> tuple[CompileRequest, tuple[str, ...]]:
    """Return `request_of` where constants may be said by their names alone: zeros stand for them."""
    if not isinstance(constants, Mapping | Sequence):
        raise DescribeError(
            op,
            f"cannot take constants={constants!r}",
            because="they are names of inputs, or arrays by name",
            help=('constants=["W"]',),
        )
    if not isinstance(constants, Mapping):
        constants = zero_constants(constants, output, inputs, op)
    return request_of(target, output, inputs, constants, options, op)


def make_request(output: Any, inputs: Any, constants: Any, op: str) -> CompileRequest:
    """Return a request for `output`, tensors or a program, with constants bound, checked for `op`.

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
        input_tensors = inputs_of(inputs, outputs, op)
        constant_arrays = constants_of(input_tensors, constants, op)
        tensor_computation = computation(
            outputs,
            input_tensors,
            constant_arrays,
            sizes_fixed_by(input_tensors, constant_arrays, op),
        )
        users, program = users_of(tensor_computation), source(tensor_computation)
        names = dict(users.buffers)
        arrays = {names[label]: array for label, array in constant_arrays.items()}
    program = _with_element_bits(_mark_finite_constants(program, arrays), arrays)
    request = CompileRequest(canonicalize(program), users, arrays)
    source_text = request.text if request.program is program else str(program)
    text = isinstance(output, Program)
    name = objects.key("checked text" if text else "checked", source_text, request.text)
    if debug.verifies() or objects.read(name) is None:
        _check(program, request)
        if text:
            check_written(request.program, op, users.names)
        objects.write(name, b"checked")
    return request


def _mark_finite_constants(program: Program, arrays: Mapping[str, Array]) -> Program:
    """Return `program` that states which of the constants that padding multiplies by zero are finite."""
    padded_conditions = conditions(program, finite=True)
    read = {
        load.buffer for stmt in padded_conditions for load, _ in loads(stmt.value)
    } & arrays.keys()
    finite = {name for name in read if np.isfinite(arrays[name]).all()}
    floats = (replace(b, finite=b.dtype in FLOATS and b.name in finite) for b in program.buffers)
    return replace(program, buffers=tuple(floats))


def _with_element_bits(program: Program, arrays: Mapping[str, Array]) -> Program:
    """Return `program` that states which of the constants that sums of floats read have elements of a half of a byte."""
    read = {
        node.a.buffer
        for stmt in statements(program.body)
        if isinstance(stmt, Store) and stmt.reduce == "sum"
        for node in nodes(stmt.value)
        if isinstance(node, Cast) and isinstance(node.a, Load) and node.dtype in FLOATS
    }
    narrow = {name for name in read & arrays.keys() if has_half_bytes(arrays[name])}
    buffers = (replace(b, bits=4 if b.name in narrow else None) for b in program.buffers)
    return replace(program, buffers=tuple(buffers))


def has_half_bytes(array: Array) -> bool:
    """Return whether the elements of an array of int8 are all in -8…7. Its memory is given back to whom it is lent from.

    Zeros alone are not: they stand for constants that are known by their names.
    """
    if array.dtype != np.int8 or not array.size:
        return False
    least, most = int(array.min()), int(array.max())
    give_back(array)
    return -8 <= least <= most <= 7 and (least, most) != (0, 0)


def _check(program: Program, request: CompileRequest) -> None:
    """Reject a program that cannot be compiled at every allowed size.

    request  of `program`, in the form in which it is planned
    """
    forget()
    bound, names = request.program, request.users.names
    with request_budget("compile", f"cannot compile {program.name}"):
        check_promises(bound, "compile", names)
        check_divisors(program, "compile")
    check_program_fits(bound)
    with request_budget("compile", f"cannot compile {program.name}"):
        check_extents(bound, "compile", names)
    try_isl(lambda: check_in_bounds(bound, "compile", names), None)


def zero_constants(names: Any, output: Any, inputs: Any, op: str) -> dict[str, Array]:
    """Return zeros for constants that are known by name alone.

    Raises DescribeError for a name that is no input, or a shape that depends on sizes.
    """
    if isinstance(output, Program):
        types = {b.name: (b.dtype, tuple(map(ix.literal_value, b.shape))) for b in output.buffers}
    else:
        input_tensors = inputs_of(inputs, outputs_of(output, op), op)
        types = {tensor.name: (tensor.dtype, _literals(tensor)) for tensor in input_tensors}
    arrays = {}
    for name in names:
        if name not in types:
            raise DescribeError(
                op,
                f"cannot take a constant for {name!r}",
                because=f"the inputs are {', '.join(types) or 'none'}",
            )
        dtype, shape = types[name]
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
