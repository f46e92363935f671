"""A loop program as other compilers take it: C for gcc, clang and Polly, Python for numba; the loops as they are described.

What a program says is kept: its loops, their order, its element types. ``-ffast-math`` lets a compiler add sums in another order, as offcut may.
"""

from __future__ import annotations

import builtins
import ctypes
import keyword
import math
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from offcut.core.dtypes import numpy_dtype
from offcut.core.expr import COMBINED, Expr, Load
from offcut.core.interpret.values import evaluate
from offcut.core.program import For, If, Kind, Let, Program, Stmt, Store
from offcut.core.text.c_expressions import (
    LIBRARY,
    OR,
    PRODUCT,
    UNARY,
    CExpressions,
    CStatements,
    Dialect,
    is_word,
)
from offcut.core.text.printer import format_head
from offcut.describe.request import Array
from offcut.errors import DescribeError
from offcut.studies.peers.matmul import Way

COMPILERS: Mapping[str, tuple[str, ...]] = {
    "gcc": ("gcc", "-O3", "-march=native", "-ffast-math"),
    "clang": ("clang", "-O3", "-march=native", "-ffast-math"),
    "polly": ("clang", "-O3", "-march=native", "-ffast-math", "-mllvm", "-polly"),
}
"""The commands by the names of peers; numba is a fourth, ``njit(fastmath=True)``."""

LOOP_COMPILERS = (*COMPILERS, "numba")
_TYPES = {"float64": "double", "float32": "float", "index": "int64_t", "bool": "_Bool"}
_TYPES |= {
    f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
_READ_KINDS = (Kind.INPUT, Kind.INOUT, Kind.CONSTANT)
_WRITTEN_KINDS = (Kind.OUTPUT, Kind.INOUT)
_PRELUDE = """#include <stdbool.h>
#include <stdint.h>
#include <math.h>
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define lesser(a, b) min(a, b)
#define greater(a, b) max(a, b)
#define magnitude(a) ((a) < 0 ? -(a) : (a))
#define floor_div(a, b) ((a) / (b) - ((a) % (b) < 0))
#define floor_mod(a, b) (((a) % (b) + (b)) % (b))
#define __uint_as_float(bits) ((bits) == 0x7f800000 ? INFINITY : (bits) == 0xff800000 ? -INFINITY : NAN)
"""
"""What `CExpressions` calls: quotients of integers by numbers above 0, and of floats the order that ``-ffast-math`` knows."""
_OWN_NAMES = {
    *("min", "max", "lesser", "greater", "magnitude", "floor_div", "floor_mod"),
    *("run", "arrays", "sizes"),
}


def _c_name(name: str) -> str:
    return f"{name}_" if name in _OWN_NAMES or name in LIBRARY or is_word(name) else name


def _python_name(name: str) -> str:
    is_taken = keyword.iskeyword(name) or hasattr(builtins, name) or name in ("math", "np", "run")
    return f"{name}_" if is_taken else name


def no_text_error(at: str, because: str) -> DescribeError:
    """Return the error for what a program has and other compilers are not given."""
    return DescribeError(
        "study", "cannot write a program for another compiler", at=at, because=because
    )


_C = Dialect(_TYPES, _c_name, "({type})({value})", no_text_error)
_PYTHON = Dialect(
    {name: f"np.{name}" for name in _TYPES} | {"index": "np.int64", "bool": "bool"},
    _python_name,
    "{type}({value})",
    no_text_error,
    {"and": " and ", "or": " or ", "not": "not "},
)


class _PythonExpressions(CExpressions):
    """Expressions as numba takes them."""

    def select(self, condition: Expr, then: Expr, other: Expr) -> str:
        return f"{self.text(then, OR)} if {self.text(condition, OR)} else {self.text(other, OR)}"

    def floor(self, op: str, a: Expr, b: Expr, dtype: str) -> tuple[int, str]:
        return PRODUCT, f"{self.text(a, PRODUCT)} {op} {self.text(b, UNARY)}"

    def convert(self, value: str, source: str, dtype: str) -> str:
        return self.narrow(value, dtype)

    def narrow(self, text: str, dtype: str) -> str:
        return f"{self.type(dtype)}({text})"

    def combine(self, op: str, dtype: str, a: str, b: str) -> str:
        return f"{op}({a}, {b})" if op in ("min", "max") else super().combine(op, dtype, a, b)

    def function(self, op: str, dtype: str) -> str:
        name = super().function(op, "float64")
        if not hasattr(math, name):
            raise no_text_error(op, "it is not a function of Python's math")
        return f"math.{name}"

    def literal(self, value: int | float, dtype: str) -> str:
        if math.isfinite(value):
            return repr(value)
        return "np.nan" if math.isnan(value) else f"{'-' * (value < 0)}np.inf"


def _c_expressions() -> CExpressions:
    def element(load: Load) -> str:
        places = [writer.text(one) for one in load.index] or ["0"]
        return _c_name(load.buffer) + "".join(f"[{one}]" for one in places)

    writer = CExpressions(_C, element)
    return writer


def _python_expressions() -> _PythonExpressions:
    def element(load: Load) -> str:
        places = [writer.text(one) for one in load.index] or ["0"]
        return f"{_python_name(load.buffer)}[{', '.join(places)}]"

    writer = _PythonExpressions(_PYTHON, element)
    return writer


def _assignment(program: Program, writer: CExpressions, store: Store) -> str:
    """Return an assignment, or an update, as both languages have it."""
    dtype = program.buffer(store.buffer).dtype
    place = writer.element(Load(store.buffer, store.index, dtype))
    value = writer.text(store.value)
    if store.reduce == "sum":
        return f"{place} += {value}"
    if store.reduce is not None:
        value = writer.combine(COMBINED[store.reduce], dtype, place, value)
    return f"{place} = {value}"


def as_c(program: Program) -> str:
    """Return a program as a C function ``run(arrays, sizes)``; arrays in the order of `program.buffers`.

    Raises DescribeError for a statement, an operation or a type that has no text.
    """
    writer = _c_expressions()
    statements = CStatements(
        _C, writer.text, lambda store: f"{_assignment(program, writer, store)};"
    )
    lines = [_PRELUDE, "void run(void **arrays, const int64_t *sizes) {"]
    lines += [
        f"  const int64_t {_c_name(size.name)} = sizes[{k}];"
        for k, size in enumerate(program.sizes)
    ]
    for k, buffer in enumerate(program.buffers):
        axes = "".join(f"[{writer.text(extent)}]" for extent in buffer.shape[1:])
        kind = writer.type(buffer.dtype)
        lines.append(f"  {kind} (*restrict {_c_name(buffer.name)}){axes} = arrays[{k}];")
    return "\n".join([*lines, *(f"  {one}" for one in statements.block(program.body)), "}", ""])


def as_python(program: Program) -> str:
    """Return a program as a Python function ``run`` of its arrays and its sizes, for numba.

    Raises DescribeError as `as_c`.
    """
    writer = _python_expressions()
    names = [*(buffer.name for buffer in program.buffers), *(size.name for size in program.sizes)]
    parameters = ", ".join(map(_python_name, names))
    body = _python_block(program, writer, program.body)
    return "\n".join(["import math", "import numpy as np", f"def run({parameters}):", *body, ""])


def _python_block(program: Program, writer: CExpressions, body: Sequence[Stmt]) -> list[str]:
    """Return the lines of statements behind a colon."""
    lines = [line for stmt in body for line in _python_lines(program, writer, stmt)]
    return [f"  {line}" for line in lines or ["pass"]]


def _python_lines(program: Program, writer: CExpressions, stmt: Stmt) -> list[str]:
    match stmt:
        case For(name, lo, hi, body):
            head = f"for {_python_name(name)} in range({writer.text(lo)}, {writer.text(hi)}):"
            return [head, *_python_block(program, writer, body)]
        case If(condition, then, other):
            lines = [f"if {writer.text(condition)}:", *_python_block(program, writer, then)]
            return [*lines, *(["else:", *_python_block(program, writer, other)] if other else ())]
        case Let(name, _, _, value, body):
            first = f"{_python_name(name)} = {writer.text(value)}"
            return [first, *(line for one in body for line in _python_lines(program, writer, one))]
        case Store():
            return [_assignment(program, writer, stmt)]
    raise no_text_error(format_head(stmt), "this statement has no text so far")


def compile_loops(
    peer: str, program: Program
) -> Callable[[Sequence[Array], Mapping[str, int]], Callable[[], None]]:
    """Return what runs a program on all of its arrays, compiled by a peer: called with these and sizes, it gives a call.

    Raises DescribeError where the compiler is not there, or refuses the text.
    """
    if peer == "numba":
        import numba

        scope: dict[str, Any] = {}
        exec(compile(as_python(program), program.name, "exec"), scope)  # the text is ours
        function = numba.njit(fastmath=True)(scope["run"])
        names = [size.name for size in program.sizes]
        return lambda arrays, sizes: lambda: function(*arrays, *(sizes[name] for name in names))
    command = COMPILERS[peer]
    if shutil.which(command[0]) is None:
        raise DescribeError("study", f"cannot measure {peer}", because=f"there is no {command[0]}")
    with tempfile.TemporaryDirectory() as folder:
        file, code, library = (str(Path(folder, f"loops.{end}")) for end in ("c", "o", "so"))
        Path(file).write_text(as_c(program), encoding="utf-8")
        # Linked without -ffast-math: with it, gcc's startup code makes the whole process flush small numbers to zero.
        for words in (
            [*command, "-c", "-fPIC", file, "-o", code],
            [command[0], "-shared", code, "-o", library, "-lm"],
        ):
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no reason"])[-1]
                what = f"cannot compile {program.name} by {peer}"
                raise DescribeError("study", what, because=last)
        run = ctypes.CDLL(library).run

    def bind(arrays: Sequence[Array], sizes: Mapping[str, int]) -> Callable[[], None]:
        pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        values = (ctypes.c_int64 * len(sizes))(*(sizes[size.name] for size in program.sizes))
        arrays_alive = tuple(arrays)  # their addresses are what a call takes

        def call() -> None:
            assert arrays_alive
            run(pointers, values)

        return call

    return bind


def loops_call(
    bind: Callable[[Sequence[Array], Mapping[str, int]], Callable[[], None]],
    program: Program,
    inputs: Mapping[str, Array],
    sizes: Mapping[str, int],
) -> tuple[Callable[[], None], tuple[Array, ...]]:
    """Return a call that runs a program as a kernel of offcut's does, and the arrays of its results: what is updated is copied first."""
    arrays: list[Array] = []
    copies: list[tuple[Array, Array]] = []
    for buffer in program.buffers:
        if buffer.kind in _READ_KINDS and buffer.kind is not Kind.INOUT:
            arrays.append(np.ascontiguousarray(inputs[buffer.name]))
            continue
        shape = tuple(int(evaluate(extent, sizes)) for extent in buffer.shape)
        arrays.append(np.zeros(shape or (1,), numpy_dtype(buffer.dtype)))
        if buffer.kind is Kind.INOUT:
            copies.append((arrays[-1], inputs[buffer.name]))
    call = bind(arrays, sizes)
    results = tuple(
        array.reshape(array.shape if buffer.shape else ())
        for array, buffer in zip(arrays, program.buffers, strict=True)
        if buffer.kind in _WRITTEN_KINDS
    )

    def run() -> None:
        for mine, theirs in copies:
            np.copyto(mine, theirs)
        call()

    return run, results


@dataclass(frozen=True)
class LoopTask:
    """Loops as they are described, at some sizes, on an array for each input, constants too."""

    program: Program
    arrays: Mapping[str, Array]
    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LoopCompiler:
    """A compiler of loops as they are described: one of `LOOP_COMPILERS`."""

    name: str
    _compiled: dict[str, Any] = field(default_factory=dict)

    def ways(self, task: Any, /) -> tuple[Way, ...]:
        """Return the loops, compiled once for all sizes.

        Raises DescribeError where the compiler is not there, or refuses the text.
        """
        if not isinstance(task, LoopTask):
            return ()
        key = task.program.digest
        if key not in self._compiled:
            self._compiled[key] = compile_loops(self.name, task.program)
        run, results = loops_call(self._compiled[key], task.program, task.arrays, task.sizes)
        return (Way(self.name, run, lambda _: results),)
