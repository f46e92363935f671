"""Arrays and sizes that a program is to run with -> arrays and every size, checked against what it declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

from offcut.core.dtypes import numpy_dtype
from offcut.core.expr import Expr, variables
from offcut.core.extents import solve
from offcut.core.integers import whole
from offcut.core.interpret.values import Array, evaluate
from offcut.core.program import Buffer, Kind, Program, Size
from offcut.core.text.printer import format_expr
from offcut.errors import CallError

GIVEN = (Kind.INPUT, Kind.CONSTANT)


def checked_arrays(program: Program, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
    """Return every array that `program` is given, of the declared element type and rank.

    Raises CallError for one that is missing, or of another kind.
    """
    input_kinds = (*GIVEN, Kind.INOUT)
    wanted = {buffer.name: buffer for buffer in program.buffers if buffer.kind in input_kinds}
    listed = (f"inputs: {', '.join(wanted) or 'none'}",)
    for name in inputs:
        if name not in wanted:
            raise CallError(
                "run",
                f"cannot take an input {name}",
                because=f"program {program.name} reads no such buffer",
                help=listed,
            )
    arrays: dict[str, Array] = {}
    for name, buffer in wanted.items():
        if name not in inputs:
            raise CallError(
                "run",
                f"cannot run without {name}",
                at=declaration(buffer),
                because="it is not given",
            )
        array = arrays[name] = np.asarray(inputs[name])
        if array.dtype != numpy_dtype(buffer.dtype):
            raise CallError(
                "run",
                f"cannot take {name} of {array.dtype}",
                at=declaration(buffer),
                because=f"its elements are {buffer.dtype}",
                help=(f'{name}.astype("{buffer.dtype}")',),
            )
        if array.ndim != len(buffer.shape):
            raise CallError(
                "run",
                f"cannot take {name} of shape {array.shape}",
                at=declaration(buffer),
                because=f"it has {len(buffer.shape)} axes, not {array.ndim}",
            )
    return arrays


def checked_sizes(
    program: Program, arrays: dict[str, Array], sizes: dict[str, int]
) -> dict[str, int]:
    """Return every size of the program: as given, else solved from the shapes, then checked."""
    declared = {size.name: size for size in program.sizes}
    known: dict[str, int] = {}
    for name, value in sizes.items():
        if name not in declared:
            raise CallError(
                "run",
                f"cannot take a size {name}",
                because=f"program {program.name} has no such size",
                help=(f"sizes: {', '.join(declared) or 'none'}",),
            )
        known[name] = checked_size(declared[name], value)
    _solve(program, arrays, known)
    for name, size in declared.items():
        if name not in known:
            raise CallError(
                "run",
                f"cannot run without the size {name}",
                because="no shape of an input determines it",
                help=(f"run(…, {name}={size.min})",),
            )
        checked_size(size, known[name])
    _check_shapes(program, arrays, known)
    for fact in program.assumptions:
        if not evaluate(fact, known):
            raise CallError(
                "run",
                f"cannot run at {at_sizes(fact, known)}",
                at=f"program {program.name}",
                because=f"it assumes {format_expr(fact)}",
            )
    return known


def _solve(program: Program, arrays: dict[str, Array], known: dict[str, int]) -> None:
    """Add the sizes that shapes give to `known`, each checked."""
    declared = {size.name: size for size in program.sizes}
    places = tuple(_extents(program, arrays))
    shapes = [(extent, arrays[b.name].shape[axis]) for b, axis, extent in places]
    for name, number, value in solve(shapes, known):
        (buffer, axis, extent), (_, actual) = places[number], shapes[number]
        if value is None:
            raise CallError(
                "run",
                f"cannot take {buffer.name} of shape {arrays[buffer.name].shape}",
                at=declaration(buffer),
                because=f"axis {axis} is {actual}, and no {name} makes {format_expr(extent)} that",
            )
        where = f"axis {axis}, of {actual}, of {declaration(buffer)}"
        checked_size(declared[name], value, at=where)


def _extents(program: Program, arrays: dict[str, Array]) -> Iterator[tuple[Buffer, int, Expr]]:
    for buffer in program.buffers:
        if buffer.name in arrays:
            for axis, extent in enumerate(buffer.shape):
                yield buffer, axis, extent


def given_sizes(
    op: str, of: str, declared: Sequence[Size], sizes: Mapping[str, int]
) -> dict[str, int]:
    """What a user gave for each size, as Python ints, in the user's order.

    op  what is refused: ``plan``, ``cost``; of  whose sizes are declared

    Raises CallError for a size that is missing, unknown, or outside its facts.
    """
    known = {size.name: size for size in declared}
    missing = [name for name in known if name not in sizes]
    unknown = [name for name in sizes if name not in known]
    if missing or unknown:
        what = f"take {', '.join(unknown)}" if unknown else f"do without {', '.join(missing)}"
        raise CallError(
            op,
            f"cannot {what}",
            because=f"the sizes of {of} are {', '.join(known) or 'none'}",
            help=(f"{op}({', '.join(f'{name}=…' for name in known)})",),
        )
    return {name: checked_size(known[name], value, op) for name, value in sizes.items()}


def checked_size(size: Size, value: int, op: str = "run", at: str = "") -> int:
    """Return a value that a size may have, as a Python int.

    op  what is refused: ``run``, ``plan``
    at  what the value was read from, where the user did not give it
    """
    number, refused = whole(value), f"cannot take {size.name} = {value!r}"
    if number is None:
        raise CallError(op, refused, at=at, because="a size is an integer")
    if not size.min <= number <= size.max or number % size.multiple_of:
        multiple = f", a multiple of {size.multiple_of}" if size.multiple_of > 1 else ""
        because = f"{size.name} is in {size.min}…{size.max}{multiple}"
        error = CallError(op, refused, at=at, because=because)
        error.size, error.extent = size.name, number
        raise error
    return number


def _check_shapes(program: Program, arrays: dict[str, Array], known: dict[str, int]) -> None:
    for buffer, axis, extent in _extents(program, arrays):
        actual, wanted = arrays[buffer.name].shape[axis], int(evaluate(extent, known))
        if actual != wanted:
            sizes = at_sizes(extent, known)
            raise CallError(
                "run",
                f"cannot take {buffer.name} of shape {arrays[buffer.name].shape}",
                at=declaration(buffer),
                because=f"axis {axis} is {wanted}{f' at {sizes}' if sizes else ''}, not {actual}",
            )


def declaration(buffer: Buffer) -> str:
    """``input A: float32[n, m]``, for a message."""
    shape = ", ".join(map(format_expr, buffer.shape))
    return f"{buffer.kind.value} {buffer.name}: {buffer.dtype}[{shape}]"


def at_sizes(expr: Expr, known: Mapping[str, int]) -> str:
    """``n = 3, m = 4`` of the sizes in an expression, for a message."""
    return ", ".join(f"{name} = {known[name]}" for name in sorted(variables(expr)))


_COMBINATIONS = 4096
"""The most combinations of values that are looked at."""
_ALIKE = (5, 7, 8, 9, 15, 16, 17, 33)
"""Further values, of all sizes at once: about the edges of tiles."""


def small_sizes(program: Program, values: int = 4, most: int = 12) -> Iterator[dict[str, int]]:
    """Return some sizes that a program allows, from the smallest on.

    values   of each size, from its least one on, that are combined
    most     combinations of these, before further values of all sizes at once
    """
    sizes = program.sizes
    each = next((k for k in range(values, 1, -1) if k ** len(sizes) <= _COMBINATIONS), 1)
    least = [
        [size.at_or_above(size.min + k * size.multiple_of) for k in range(each)] for size in sizes
    ]
    combined = sorted(product(*least), key=lambda one: (sum(one), one))
    alike = (tuple(size.at_or_above(value) for size in sizes) for value in _ALIKE)
    fine = [one for one in dict.fromkeys(combined) if _sizes_are_allowed(program, one)][:most]
    further = (
        [one for one in alike if sum(one) > sum(fine[-1]) and _sizes_are_allowed(program, one)]
        if fine
        else []
    )
    for point in dict.fromkeys((*fine, *further)):
        yield dict(zip((size.name for size in sizes), point, strict=True))


def _sizes_are_allowed(program: Program, values: tuple[int, ...]) -> bool:
    at = dict(zip((size.name for size in program.sizes), values, strict=True))
    return all(evaluate(one, at) for one in program.assumptions)
