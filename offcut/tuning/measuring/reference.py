"""Arrays that candidates are called with: drawn by a seed, the same in every process.

What the results of a program must be, and by how much a right one may be off.

The reference is the program in float64, in the loops that it was described in: no schedule, no
microkernel, no vector. Where the interpreter is fast enough it gives the value; at larger sizes these
loops are compiled as they stand, once what they give is what the interpreter gives at small ones.

How far rounding may go is found by a second run on operands each of which is off by one part in 2^20,
up or down:

    allowed = change * 2^20 * ((terms + 16) * u + 4 * v) + (16 * u + 2 * w) * |value|

    change  the largest difference of an element of the result between the two runs
    terms   instances that one element may pass through, at these sizes
    u       rounding of the type that the longest sums are added in
    v       of the coarsest type that lies between, w of the result's own

An integer is exact where no float is rounded to one, else it may be off by 1.
Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 1.6 (backward error) and 3.1.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from math import inf, prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from offcut.backends.compile_request import CompileRequest
from offcut.backends.host.fast_entry import solving_order
from offcut.backends.signature import boundary_buffers, signature_of
from offcut.core.analysis import analysis, element_accesses
from offcut.core.dtypes import FLOATS, numpy_dtype
from offcut.core.expr import (
    Cast,
    Const,
    Expr,
    Load,
    dtype_of,
    reads_memory,
    rewrite,
    variables,
    walk,
)
from offcut.core.interpret.interpreter import StepLimitError, run
from offcut.core.interpret.values import evaluate
from offcut.core.program import Buffer, For, If, Kind, Let, Program, Stmt, Store, blocks
from offcut.core.program import walk as statements
from offcut.core.traversal import expressions, map_body
from offcut.core.unpickle import unpickle
from offcut.describe.request import Array
from offcut.errors import CallError, InternalError, OffcutError, TargetError
from offcut.experiment.reference import HALF_ULP, Reference
from offcut.kernel import Kernel
from offcut.pipeline import compile
from offcut.schedule import Schedule
from offcut.tuning.problem import Problem

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


_QUICK = 2_000
"""Statements that the interpreter may run at one vector of sizes: parts of a second."""

_PATIENT = 100 * _QUICK
"""Likewise, where compiled loops are to be compared with it."""

_SMALL = (5, 1, 13)
"""Sizes at which they are: nearest allowed ones."""

_OFF = 2.0**-20


def write_reference(
    argument: tuple[Problem, Path], say: Callable[[object], None]
) -> Draw | OffcutError:
    """The job of a child: `reference_results` of a problem, into a folder; which values operands are drawn from."""
    problem, folder = argument
    try:
        draw, references = reference_results(problem, say)
    except OffcutError as refused:
        return refused
    for number, results in enumerate(references):
        with _file(folder, number).open("wb") as out:
            pickle.dump(results, out)
    return draw


def load_reference(folder: Path, number: int) -> tuple[Reference, ...]:
    """What the results must be at the sizes of that number, from the folder that `write_reference` filled."""
    references: tuple[Reference, ...] = unpickle(_file(folder, number).read_bytes())
    return references


def _file(folder: Path, number: int) -> Path:
    return folder / f"expected-{number}.pickle"


def reference_results(
    problem: Problem, say: Callable[[object], None] = lambda done: None
) -> tuple[Draw, tuple[tuple[Reference, ...], ...]]:
    """From which values operands are drawn, and what each result must be at each of the problem's sizes.

    say  told the sizes that are done

    Raises TargetError where the program has no meaning on any operands that are drawn.
    """
    refused = "a result is not finite"
    for draw in Draw:
        references = []
        try:
            for sizes, _ in problem.sizes:
                references.append(_at(problem, sizes, draw))
                say(dict(sizes))
        except (CallError, InternalError) as error:
            refused = str(error).splitlines()[0]
            continue
        finite = all(np.isfinite(one.value).all() for results in references for one in results)
        if finite or draw is Draw.FIRST:
            return draw, tuple(references)
    raise TargetError(
        "tune",
        f"cannot check what {problem.request.program.name} computes",
        because=f"it has no meaning on the arrays that are drawn: {refused}",
        help=("constants={…}: arrays that fit each other",),
    )


def _at(problem: Problem, sizes: Mapping[str, int], draw: Draw) -> tuple[Reference, ...]:
    request = with_constants(problem.request, problem.seed, draw)
    program, known = request.program, inner_sizes(request, sizes)
    inputs = {**drawn(program, known, problem.seed, draw), **request.arrays}
    wide = promote_to_float64(program)
    arrays = {name: _widened(array) for name, array in inputs.items()}
    shaken = {name: _shaken(name, array) for name, array in arrays.items()}
    value, change = results(wide, (arrays, shaken), known)
    factor = (max_terms_per_element(program, known) + 16) * _summing(program) + 4 * _between(
        program
    )
    return tuple(
        Reference(
            value[buffer.name].astype(np.float64),
            _allowed(program, buffer, value[buffer.name], change[buffer.name], factor),
        )
        for buffer in program.results
    )


def _allowed(
    program: Program, buffer: Buffer, value: Array, perturbed: Array, factor: float
) -> NDArray[np.float64]:
    if buffer.dtype not in FLOATS:
        return np.full(value.shape, float(_rounds_to_integers(program)))
    size, differences = np.abs(np.nan_to_num(value)), np.abs(np.nan_to_num(perturbed - value))
    most = float(differences.max(initial=0.0)) / _OFF
    last = 16 * _summing(program) + 2 * HALF_ULP[buffer.dtype]
    allowed: NDArray[np.float64] = most * factor + last * size
    return allowed


def results(
    program: Program, several: Sequence[Mapping[str, Array]], sizes: Mapping[str, int]
) -> list[dict[str, Array]]:
    """The results of a program on each of several sets of arrays: interpreted, or where that takes too
    long by its compiled loops.
    """
    try:
        return [run(program, arrays, sizes, most=_QUICK) for arrays in several]
    except StepLimitError:
        loops = _compiled(program)
        return [loops(arrays, sizes) for arrays in several]


@lru_cache(maxsize=1)
def _compiled(program: Program) -> _Loops:
    """The loops of a program as they stand, compiled, and compared with the interpreter.

    Raises InternalError where they differ.
    """
    loops = _Loops(program, compile(program, schedule=Schedule(program.name, ()), threads=1))
    longest = inf
    for value in _SMALL:
        if value >= longest:
            continue
        sizes = {s.name: s.at_or_above(value + k) for k, s in enumerate(program.sizes)}
        arrays = drawn(program, sizes, 0, Draw.FIRST)
        try:
            expected_arrays = run(program, arrays, sizes, most=_PATIENT)
        except (CallError, InternalError):  # these sizes are not allowed together
            continue
        except StepLimitError:
            longest = value
            continue
        actual = loops(arrays, sizes)
        for name, array in expected_arrays.items():
            if not np.allclose(actual[name], array, rtol=1e-9, atol=1e-12, equal_nan=True):
                raise InternalError(f"{program.name} compiled as it stands is not what it means")
        return loops
    raise TargetError(
        "tune",
        f"cannot check what {program.name} computes",
        because="the interpreter takes too long at the smallest sizes",
        help=("smaller extents",),
    )


@dataclass(frozen=True, slots=True)
class _Loops:
    """A kernel from arrays and sizes by name to results by name."""

    program: Program
    kernel: Kernel

    def __call__(self, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
        result = self.kernel(*(arrays[one.name] for one in self.kernel.signature.inputs), **sizes)
        several = result if isinstance(result, tuple) else (result,)
        return {b.name: a for b, a in zip(self.program.results, several, strict=True)}


def promote_to_float64(program: Program) -> Program:
    """`program` with every float as float64, its constants as inputs, and no array that an instance has for itself: iterations
    that are independent then run together in the interpreter, hundreds of times as fast.
    """
    kinds = {Kind.CONSTANT: Kind.INPUT, Kind.PRIVATE: Kind.LOCAL}

    def widen(node: Expr) -> Expr | None:
        match node:
            case Const(value, dtype) if dtype in FLOATS:
                return Const(float(np.asarray(value, numpy_dtype(dtype))), "float64")
            case Load(_, _, dtype) | Cast(_, dtype) if dtype in FLOATS:
                return replace(node, dtype="float64")
            case _:
                return None

    return replace(
        program,
        buffers=tuple(
            replace(
                buffer,
                dtype="float64" if buffer.dtype in FLOATS else buffer.dtype,
                kind=kinds.get(buffer.kind, buffer.kind),
                layout=None,
                finite=False,
            )
            for buffer in program.buffers
        ),
        body=map_body(program.body, lambda expr: rewrite(expr, widen)),
    )


def _widened(array: Array) -> Array:
    return array if array.dtype.kind in "biu" else array.astype(np.float64)


def _shaken(name: str, array: Array) -> Array:
    """Each element off by `_OFF` of it, up or down."""
    if array.dtype.kind in "biu":
        return array
    signs = np.random.default_rng([*name.encode()]).choice([-_OFF, _OFF], array.shape)
    shaken: Array = array * (1 + signs)
    return shaken


def max_terms_per_element(program: Program, sizes: Mapping[str, int]) -> int:
    """Instances of a statement, at most, that store one element, at these sizes."""
    return max(_repeats(program.body, dict(sizes), dict(sizes), {}), default=1)


def _repeats(
    body: Sequence[Stmt], low: dict[str, int], high: dict[str, int], trips: dict[str, int]
) -> Iterator[int]:
    """For each store, the trips of the loops around that its index does not mention.

    low, high  of every coordinate around: bounds are taken at both
    """
    for stmt in body:
        if isinstance(stmt, Store):
            index_names = set().union(*map(variables, stmt.index))
            yield prod(count for name, count in trips.items() if name not in index_names)
        inside = low, high, trips
        if isinstance(stmt, For) and not any(map(reads_memory, (stmt.lo, stmt.hi))):
            first = min(int(evaluate(stmt.lo, at)) for at in (low, high))
            last = max(int(evaluate(stmt.hi, at)) for at in (low, high))
            count = max(0, last - first)
            ends = {**low, stmt.iter: first}, {**high, stmt.iter: max(first, last - 1)}
            inside = *ends, {**trips, stmt.iter: count}
        elif isinstance(stmt, For | Let):
            name = stmt.iter if isinstance(stmt, For) else stmt.name
            inside = {**low, name: 0}, {**high, name: 0}, trips
        for block in blocks(stmt):
            yield from _repeats(block, *inside)


def _summing(program: Program) -> float:
    """Rounding of the coarsest type that terms are added in; of what is stored where nothing is."""
    types = {b.name: b.dtype for b in program.buffers}
    stores = analysis(program).of(Store)
    sums = [stmt for stmt in stores if stmt.reduce is not None] or stores
    return max((HALF_ULP.get(types[stmt.buffer], 0.0) for stmt in sums), default=0.0)


def _between(program: Program) -> float:
    """Rounding of the coarsest type between the operands and what is stored as a result."""
    known = {b.name for b in program.results}
    dtypes = [b.dtype for b in program.buffers if b.kind in (Kind.LOCAL, Kind.PRIVATE)]
    for stmt in statements(program.body):
        for expr in expressions(stmt):
            nodes = list(walk(expr))
            if isinstance(stmt, Store) and stmt.buffer in known and expr is stmt.value:
                nodes = nodes[1:]
            dtypes += [node.dtype for node in nodes if isinstance(node, Cast)]
    return max((HALF_ULP.get(dtype, 0.0) for dtype in dtypes), default=0.0)


def _rounds_to_integers(program: Program) -> bool:
    """Whether a float becomes an integer somewhere."""
    return any(
        isinstance(node, Cast) and node.dtype not in FLOATS and dtype_of(node.a) in FLOATS
        for stmt in statements(program.body)
        for expr in expressions(stmt)
        for node in walk(expr)
    )
