"""A loop program as other compilers take it: C for gcc, clang and Polly, Python for numba; the loops as they are described.

What a program says is kept: its loops, their order, its element types. ``-ffast-math`` lets a compiler add sums in another order, as offcut may.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from offcut.core.dtypes import numpy_dtype
from offcut.core.expr import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Select,
    Unary,
    Var,
)
from offcut.core.interpret.values import evaluate
from offcut.core.program import For, If, Kind, Let, Program, Stmt, Store
from offcut.errors import DescribeError
from offcut.experiment.contraction import Array

COMPILERS: Mapping[str, tuple[str, ...]] = {
    "gcc": ("gcc", "-O3", "-march=native", "-ffast-math"),
    "clang": ("clang", "-O3", "-march=native", "-ffast-math"),
    "polly": ("clang", "-O3", "-march=native", "-ffast-math", "-mllvm", "-polly"),
}
"""The commands by the names of peers; numba is a fourth, ``njit(fastmath=True)``."""

PEERS = (*COMPILERS, "numba")
_C_TYPES = {"float64": "double", "float32": "float", "index": "int64_t", "bool": "_Bool"}
_C_TYPES |= {
    f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
_GIVEN = (Kind.INPUT, Kind.INOUT, Kind.CONSTANT)
_RESULTS = (Kind.OUTPUT, Kind.INOUT)
_PRELUDE = """#include <stdint.h>
#include <math.h>
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define FLOORDIV(a, b) ((a) / (b) - ((a) % (b) < 0))
#define MOD(a, b) (((a) % (b) + (b)) % (b))
"""


def no_text(program: Program, what: object) -> DescribeError:
    """Return the error for what a program has and other compilers are not given."""
    kind = type(what).__name__ if not isinstance(what, str) else what
    because = f"{kind} has no text there"
    return DescribeError(
        "study", f"cannot write {program.name} for another compiler", because=because
    )


@dataclass(frozen=True)
class _Text:
    """How a program is written: in C, else in Python."""

    program: Program
    c: bool

    def block(self, body: Sequence[Stmt], indent: str) -> list[str]:
        """Return the lines of statements."""
        return [line for stmt in body for line in self.lines(stmt, indent)]

    def lines(self, stmt: Stmt, indent: str) -> list[str]:
        """Return the lines of a statement.

        Raises DescribeError for one that has no text.
        """
        deeper = f"{indent}  "
        match stmt:
            case For(name, lo, hi, body):
                low, high = self.expr(lo), self.expr(hi)
                head = (
                    f"for (int64_t {name} = {low}; {name} < {high}; {name}++) {{"
                    if self.c
                    else f"for {name} in range({low}, {high}):"
                )
                return self.around(f"{indent}{head}", self.block(body, deeper), indent)
            case If(condition, then, other):
                test = self.expr(condition)
                head = f"if ({test}) {{" if self.c else f"if {test}:"
                lines = self.around(f"{indent}{head}", self.block(then, deeper), indent)
                if other:
                    head = "else {" if self.c else "else:"
                    lines += self.around(f"{indent}{head}", self.block(other, deeper), indent)
                return lines
            case Let(name, _, _, value, body):
                assigned = f"{name} = {self.expr(value)}"
                lines = [f"{deeper}const int64_t {assigned};" if self.c else f"{deeper}{assigned}"]
                head = "{" if self.c else "if True:"
                return self.around(f"{indent}{head}", lines + self.block(body, deeper), indent)
            case Store(buffer, index, value, reduce):
                place, term = self.element(buffer, index), self.expr(value)
                if reduce in ("max", "min"):
                    term = f"{self.function(reduce)}({place}, {term})"
                assigned = f"{place} {'+=' if reduce == 'sum' else '='} {term}"
                return [f"{indent}{assigned}{';' if self.c else ''}"]
            case _:
                raise no_text(self.program, stmt)

    def around(self, head: str, inside: list[str], indent: str) -> list[str]:
        """Return a block with its head, and its end in C."""
        if self.c:
            return [head, *inside, f"{indent}}}"]
        return [head, *(inside or [f"{indent}  pass"])]

    def element(self, buffer: str, index: Sequence[Expr]) -> str:
        """Return an element of an array; an array without axes has one."""
        places = [self.expr(one) for one in index] or ["0"]
        if self.c:
            return buffer + "".join(f"[{one}]" for one in places)
        return f"{buffer}[{', '.join(places)}]"

    def function(self, op: str) -> str:
        """Return the name of a function."""
        return {"min": "MIN", "max": "MAX"}.get(op, op) if self.c else op

    def expr(self, expr: Expr) -> str:
        """Return the text of an expression, in parentheses where it is no single word.

        Raises DescribeError for one that has none.
        """
        match expr:
            case Const(value, dtype):
                if dtype in ("float32", "float64") and not np.isfinite(value):
                    return f"({'-' if value < 0 else ''}{'INFINITY' if self.c else 'np.inf'})"
                return f"({value!r}{'f' if self.c and dtype == 'float32' else ''})"
            case Var(name):
                return name
            case Load(buffer, index):
                return self.element(buffer, index)
            case Binary("//" | "%" as op, a, b) if self.c:
                return f"{'FLOORDIV' if op == '//' else 'MOD'}({self.expr(a)}, {self.expr(b)})"
            case Binary("+" | "-" | "*" | "/" | "//" | "%" as op, a, b):
                return f"({self.expr(a)} {op} {self.expr(b)})"
            case Binary("min" | "max" | "pow" as op, a, b):
                return f"{self.function(op)}({self.expr(a)}, {self.expr(b)})"
            case Unary("neg", a):
                return f"(-{self.expr(a)})"
            case Unary("abs", a):
                return f"{'fabs' if self.c else 'abs'}({self.expr(a)})"
            case Unary("sqrt" | "exp" | "log" | "tanh" | "sin" | "cos" as op, a):
                return f"{'' if self.c else 'math.'}{op}({self.expr(a)})"
            case Cast(a, dtype) if dtype in _C_TYPES:
                return (
                    f"(({_C_TYPES[dtype]}){self.expr(a)})"
                    if self.c
                    else f"np.{dtype if dtype != 'index' else 'int64'}({self.expr(a)})"
                )
            case Select(condition, then, other):
                parts = self.expr(condition), self.expr(then), self.expr(other)
                return (
                    "({} ? {} : {})".format(*parts)
                    if self.c
                    else "({1} if {0} else {2})".format(*parts)
                )
            case Compare(op, a, b):
                return f"({self.expr(a)} {op} {self.expr(b)})"
            case Logic("not", (a,)):
                return f"({'!' if self.c else 'not '}{self.expr(a)})"
            case Logic(op, args):
                joint = {"and": " && ", "or": " || "}[op] if self.c else f" {op} "
                return f"({joint.join(map(self.expr, args))})"
            case _:
                raise no_text(
                    self.program, expr if not isinstance(expr, Unary | Binary) else expr.op
                )


def as_c(program: Program) -> str:
    """Return a program as a C function ``run(arrays, sizes)``; arrays in the order of `program.buffers`.

    Raises DescribeError for a statement, an operation or a type that has no text.
    """
    text, lines = (
        _Text(program, c=True),
        [_PRELUDE, "void run(void **arrays, const int64_t *sizes) {"],
    )
    lines += [f"  const int64_t {size.name} = sizes[{k}];" for k, size in enumerate(program.sizes)]
    for k, buffer in enumerate(program.buffers):
        if buffer.dtype not in _C_TYPES:
            raise no_text(program, buffer.dtype)
        axes = "".join(f"[{text.expr(extent)}]" for extent in buffer.shape[1:])
        kind = _C_TYPES[buffer.dtype]
        lines.append(f"  {kind} (*restrict {buffer.name}){axes} = arrays[{k}];")
    return "\n".join([*lines, *text.block(program.body, "  "), "}", ""])


def as_python(program: Program) -> str:
    """Return a program as a Python function ``run`` of its arrays and its sizes, for numba.

    Raises DescribeError as `as_c`.
    """
    text = _Text(program, c=False)
    names = [*(buffer.name for buffer in program.buffers), *(size.name for size in program.sizes)]
    body = text.block(program.body, "  ") or ["  pass"]
    return "\n".join(
        ["import math", "import numpy as np", f"def run({', '.join(names)}):", *body, ""]
    )


def compiled_elsewhere(
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
        file, library = Path(folder, "loops.c"), Path(folder, "loops.so")
        file.write_text(as_c(program), encoding="utf-8")
        words = [*command, "-shared", "-fPIC", str(file), "-o", str(library), "-lm"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason"])[-1]
            raise DescribeError("study", f"cannot compile {program.name} by {peer}", because=last)
        run = ctypes.CDLL(str(library)).run

    def bound(arrays: Sequence[Array], sizes: Mapping[str, int]) -> Callable[[], None]:
        pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        values = (ctypes.c_int64 * len(sizes))(*(sizes[size.name] for size in program.sizes))
        held = tuple(arrays)  # their addresses are what a call takes

        def call() -> None:
            assert held
            run(pointers, values)

        return call

    return bound


def loops_call(
    bound: Callable[[Sequence[Array], Mapping[str, int]], Callable[[], None]],
    program: Program,
    given: Mapping[str, Array],
    sizes: Mapping[str, int],
) -> tuple[Callable[[], None], tuple[Array, ...]]:
    """Return a call that runs a program as a kernel of offcut's does, and the arrays of its results: what is updated is copied first."""
    arrays: list[Array] = []
    copies: list[tuple[Array, Array]] = []
    for buffer in program.buffers:
        if buffer.kind in _GIVEN and buffer.kind is not Kind.INOUT:
            arrays.append(np.ascontiguousarray(given[buffer.name]))
            continue
        shape = tuple(int(evaluate(extent, sizes)) for extent in buffer.shape)
        arrays.append(np.zeros(shape or (1,), numpy_dtype(buffer.dtype)))
        if buffer.kind is Kind.INOUT:
            copies.append((arrays[-1], given[buffer.name]))
    call = bound(arrays, sizes)
    results = tuple(
        array.reshape(array.shape if buffer.shape else ())
        for array, buffer in zip(arrays, program.buffers, strict=True)
        if buffer.kind in _RESULTS
    )

    def run() -> None:
        for mine, theirs in copies:
            np.copyto(mine, theirs)
        call()

    return run, results
