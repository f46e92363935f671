"""Arrays that candidates are called with: drawn by a seed, the same in every process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from offcut.backends.compile_request import CompileRequest
from offcut.backends.host.fast_entry import solving_order
from offcut.backends.signature import boundary_buffers, signature_of
from offcut.core.accesses import element_accesses
from offcut.core.dtypes import FLOATS, numpy_dtype
from offcut.core.expr import Expr, Load, walk
from offcut.core.interpret.values import evaluate
from offcut.core.program import Buffer, For, If, Let, Program
from offcut.core.program import walk as statements
from offcut.describe.request import Array

_INTEGERS = {"int8": (-100, 101), "uint8": (0, 201), "bool": (0, 2)}  # of data, both ends half open
_OTHER_INTEGERS = (-1000, 1001)


class Draw(Enum):
    """From which values; the later ones for programs that have no meaning on the earlier."""

    SIGNED = "signed"  # floats of -1…1, indices of 0…3
    POSITIVE = "positive"  # floats of 0.5…1.5: for roots and logarithms
    FIRST = "first"  # likewise, and every index is 0


@dataclass(frozen=True, slots=True)
class Operands:
    """The arrays of one call.

    given    inputs, in call order
    results  shape and element type of each result
    sizes    those that no shape determines, by the user's names
    """

    given: tuple[Array, ...]
    results: tuple[tuple[tuple[int, ...], str], ...]
    sizes: Mapping[str, int]


def operands(request: CompileRequest, sizes: Mapping[str, int], seed: int, draw: Draw) -> Operands:
    """What a call at these sizes, by the user's names, takes and gives."""
    known = inner_sizes(request, sizes)
    inputs, outputs = boundary_buffers(request.program.buffers)
    arrays = drawn(request.program, known, seed, draw)
    solved = {name for name, _, _ in solving_order(signature_of(request.program, request.users))}
    return Operands(
        tuple(arrays[buffer.name] for buffer in inputs),
        tuple((shape_of(buffer, known), buffer.dtype) for buffer in outputs),
        {name: value for name, value in sizes.items() if name not in solved},
    )


def inner_sizes(request: CompileRequest, sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes by the program's names."""
    names = dict(request.users.sizes)
    return {names[user]: value for user, value in sizes.items()}


def with_constants(request: CompileRequest, seed: int, draw: Draw) -> CompileRequest:
    """Return the request with values for those constants that are zero everywhere."""
    program = request.program
    arrays = {
        name: array if array.any() else _values(program, name, array.shape, seed, draw)
        for name, array in request.arrays.items()
    }
    return replace(request, arrays=arrays)


def drawn(program: Program, sizes: Mapping[str, int], seed: int, draw: Draw) -> dict[str, Array]:
    """Return an array for each input and each array that is updated, by name."""
    inputs, _ = boundary_buffers(program.buffers)
    return {
        buffer.name: _values(program, buffer.name, shape_of(buffer, sizes), seed, draw)
        for buffer in inputs
    }


def shape_of(buffer: Buffer, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Extents of a buffer, in elements."""
    return tuple(max(0, int(evaluate(extent, sizes))) for extent in buffer.shape)


def _values(program: Program, name: str, shape: tuple[int, ...], seed: int, draw: Draw) -> Array:
    """Values of a buffer, of a stream of its own: the same whatever else is drawn."""
    dtype = program.buffer(name).dtype
    rng = np.random.default_rng([seed & (2**63 - 1), *name.encode()])
    if dtype in FLOATS:
        low, high = (-1.0, 1.0) if draw is Draw.SIGNED else (0.5, 1.5)
        return rng.uniform(low, high, shape).astype(numpy_dtype(dtype))
    ends = _INTEGERS.get(dtype, _OTHER_INTEGERS)
    if name in asked_for_places(program):
        ends = (0, 1 if draw is Draw.FIRST else 4)
    return rng.integers(*ends, shape).astype(numpy_dtype(dtype))


def asked_for_places(program: Program) -> frozenset[str]:
    """Return the buffers whose elements say where something lies: in an index, a bound, or a condition."""
    return frozenset(
        node.buffer for expr in _places(program) for node in walk(expr) if isinstance(node, Load)
    )


def _places(program: Program) -> Iterator[Expr]:
    for stmt in statements(program.body):
        match stmt:
            case For(_, lo, hi):
                yield from (lo, hi)
            case If(condition):
                yield condition
            case Let(_, _, _, value):
                yield value
        for _, index in element_accesses(stmt):
            yield from index
