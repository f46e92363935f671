"""What sets find that differs in two programs -> an error with it, where running both confirms it.

What sets say of two programs is of instances that were paired with each other, and a pairing may be a
poor guess, as where both programs are tiled. So what they find wrong is believed where two runs differ.

Two terms of a float sum have one value in either order, so a sum tells its order in a second pair of
runs: its updates ``a += e`` are ``a = a * (1 + 1/64) + e`` there, but for terms of 0. Where order is free,
floats are wide, so that what is close is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from offcut.core.dtypes import FLOATS, numpy_dtype
from offcut.core.expr import Binary, Cast, Compare, Const, Expr, Load, Select, rewrite
from offcut.core.interpret.interpreter import StepLimitError, run
from offcut.core.interpret.run_arguments import small_sizes
from offcut.core.interpret.values import Array, evaluate
from offcut.core.program import Kind, Program, Stmt, Store
from offcut.core.traversal import map_blocks, map_body
from offcut.errors import CallError, InternalError, PartitionError
from offcut.polyhedral.program_sets import ProgramSets
from offcut.proof.by_instances.pairing import ProgramsDiffer, difference_error, undecided_error

_MOST_SIZES = 6  # beside those that sets give
_MOST_STATEMENTS = 4096
_MOST_ELEMENTS = 2**22
_CLOSE = 1e-9
_OTHER, _TURNED = "has another value", "has its terms in another order"
_WHOLE = ((0, 2), (-4, 5), (0, 4))  # ranges of integers: those from 0 on may be indices


@dataclass(frozen=True, slots=True)
class Difference:
    """Elements of results that differ.

    where  by buffer; none where the emitted program breaks
    what   in words, what an element there has
    """

    where: Mapping[str, npt.NDArray[np.bool_]]
    what: str

    def is_at(self, buffer: str, index: tuple[int, ...]) -> bool:
        """Whether that element differs."""
        return not self.where or bool(self.where[buffer][index])

    def __str__(self) -> str:
        """``C[0, 1] has another value``, of the first one."""
        if not self.where:
            return "the emitted program leaves an array, or breaks a promise"
        name, at = next((n, np.argwhere(here)[0]) for n, here in self.where.items() if here.any())
        return f"{name}[{', '.join(map(str, at))}] {self.what}"


def confirm_difference(
    error: ProgramsDiffer,
    source: Program,
    emitted: Program,
    flows: ProgramSets,
    reassociate: bool,
    of: str,
) -> PartitionError:
    """The error of programs that differ, where running both shows it at some of those sizes, or at the
    smallest ones; else of programs of which nothing is known.
    """
    observation = ""
    vague: list[str] = []

    def find_difference(sizes: Sequence[int]) -> Difference | None:
        nonlocal observation
        at = dict(zip((size.name for size in source.sizes), sizes, strict=True))
        result = difference(source, emitted, at, reassociate)
        nothing = "it is too much to run" if result is None else "runs show no difference"
        observation = observation or f"{flows.given(sizes)}{nothing}"
        return result or None

    for case in error.cases:
        witness = find_difference(case.sizes)
        if witness and case.because and (case.element is None or witness.is_at(*case.element)):
            return difference_error(of, case.because)
        vague += [f"{flows.given(case.sizes)}{witness}"] if witness else []
    for sizes in islice(flows.all_sizes(), _MOST_SIZES):
        witness = find_difference(sizes)
        if witness:
            return difference_error(of, f"{flows.given(sizes)}{witness}")
    if vague:
        return difference_error(of, vague[0])
    return undecided_error(of, f"the proof does not see through {error.what}: {observation}")


def difference(
    source: Program,
    emitted: Program,
    sizes: Mapping[str, int],
    free: bool,
    most: int = _MOST_STATEMENTS,
) -> Difference | Literal[False] | None:
    """Where `emitted` gives another result than `source` at `sizes`, or breaks where that does not.

    free    whether the terms of a float sum may be added in another order
    most    statements of a run

    False where all are the same, None where that takes too many statements or elements to be seen.
    """
    if elements(emitted, sizes) > _MOST_ELEMENTS:
        return None
    ways = [(_wide, _OTHER)] if free else [(_itself, _OTHER), (_ordered, _TURNED)]
    try:
        for change, what in ways:
            one, other = change(source), change(emitted)
            for arrays in _samples(one, sizes):
                where = _where(one, other, sizes, arrays, free, most)
                if where is None or any(here.any() for here in where.values()):
                    return Difference(where or {}, what)
    except StepLimitError:
        return None
    return False


def elements(program: Program, sizes: Mapping[str, int]) -> int:
    """Of all buffers together."""
    return sum(prod(int(evaluate(e, sizes)) for e in b.shape) for b in program.buffers)


def _where(
    source: Program,
    emitted: Program,
    sizes: Mapping[str, int],
    arrays: Mapping[str, Array],
    free: bool,
    most: int,
) -> dict[str, npt.NDArray[np.bool_]] | None:
    """The elements of each result that differ, of no result where `source` breaks and so nothing is
    wanted; None where `emitted` breaks.
    """
    try:
        expected = run(source, arrays, sizes, most=most)
    except (CallError, InternalError):
        return {}
    try:
        actual = run(emitted, arrays, sizes, most=most)
    except InternalError:
        return None
    return {name: ~_same(values, actual[name], free) for name, values in expected.items()}


def _same(expected: Array, actual: Array, free: bool) -> npt.NDArray[np.bool_]:
    """Which elements have the same bits, or nearly where order is free; any NaN is any other."""
    a, b = expected.astype(np.float64), actual.astype(np.float64)
    if free:
        return np.isclose(a, b, _CLOSE, _CLOSE, equal_nan=True)
    equal = (a == b) & (np.signbit(a) == np.signbit(b))
    same: npt.NDArray[np.bool_] = equal | (np.isnan(a) & np.isnan(b))
    return same


def _samples(program: Program, sizes: Mapping[str, int]) -> Iterator[dict[str, Array]]:
    """Arrays for what `program` is given."""
    random = np.random.default_rng(0)
    kinds = (Kind.INPUT, Kind.CONSTANT, Kind.INOUT)
    for least, end in _WHOLE:
        arrays: dict[str, Array] = {}
        for buffer in program.buffers:
            if buffer.kind in kinds:
                shape = tuple(int(evaluate(extent, sizes)) for extent in buffer.shape)
                dtype = numpy_dtype(buffer.dtype)
                values: Any = random.uniform(0.5 if least == 0 else -2, 2, shape)
                if buffer.dtype == "bool":
                    values = random.integers(0, 2, shape)
                elif buffer.dtype not in FLOATS:
                    values = random.integers(max(least, int(np.iinfo(dtype).min)), end, shape)
                arrays[buffer.name] = values.astype(dtype)
        yield arrays


def _itself(program: Program) -> Program:
    return program


def _wide(program: Program) -> Program:
    """`program` with floats of 64 bits."""

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Const | Load | Cast) and node.dtype in FLOATS:
            return replace(node, dtype="float64")
        return None

    body = map_body(program.body, lambda expr: rewrite(expr, rule))
    buffers = (replace(b, dtype="float64") if b.dtype in FLOATS else b for b in program.buffers)
    return replace(program, buffers=tuple(buffers), body=body)


def _ordered(program: Program) -> Program:
    """`program` with float sums that tell the order of their terms."""
    floats = {buffer.name: buffer.dtype for buffer in program.buffers if buffer.dtype in FLOATS}

    def change(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map(told, body))

    def told(stmt: Stmt) -> Stmt:
        if not (isinstance(stmt, Store) and stmt.reduce == "sum" and stmt.buffer in floats):
            return map_blocks(stmt, change)
        dtype, term = floats[stmt.buffer], stmt.value
        before = Load(stmt.buffer, stmt.index, dtype)
        after = Binary("+", Binary("*", before, Const(1 + 1 / 64, dtype)), term)
        idle = Compare("==", term, Const(0.0, dtype))
        return replace(stmt, value=Select(idle, before, after), reduce=None)

    return replace(program, body=change(program.body))


# What is said of two programs where isl gives no answer in bounded work: both run at some small sizes, where they may differ.
#
# Runs refute, they do not prove: a difference is a witness like any other, the smallest of those that are tried; where
# none is seen, the programs stay untold.

_SAMPLED_STATEMENTS = 1024  # in a run, and
_SAMPLED_ELEMENTS = 2**16  # so that all runs take about as long as isl did


def compare_sampled_runs(
    source: Program, emitted: Program, users: Mapping[str, str], free: bool, because: str
) -> PartitionError:
    """Return the error of programs of which isl tells nothing.

    users    the users' names of sizes, by the program's
    free     whether the terms of a float sum may be added in another order
    because  why isl does not
    """
    count, last = 0, ""
    for sizes in small_sizes(source):
        sizes_text = ", ".join(
            f"{users.get(name, name)} = {value}" for name, value in sizes.items()
        )
        if elements(emitted, sizes) > _SAMPLED_ELEMENTS:
            break
        witness = difference(source, emitted, sizes, free, _SAMPLED_STATEMENTS)
        if witness is None:
            break
        if witness:
            return difference_error(
                emitted.name, f"with {sizes_text}, {witness}" if sizes_text else str(witness)
            )
        count, last = count + 1, sizes_text
    runs = {
        0: "it is too much to run",
        1: f"a run{' with ' * bool(last)}{last} shows no difference",
    }.get(count, f"runs at {count} small sizes, the last with {last}, show no difference")
    return undecided_error(emitted.name, f"{because}; {runs}: it is not known to be wrong")
