"""Functions that are not offcut's, behind the calling convention of wide microkernels.

For each there is a shim in LLVM IR, which turns byte strides into what the function takes, and calls
it by a symbol: no address is in the code, so object code may be cached. `load` says where the symbol
leads, for one kernel alone: other kernels may have another function of that name, at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from importlib.metadata import version
from math import log2
from pathlib import Path
from typing import Any

import numpy as np

from offcut.backends.cpu.machine import instruction_rates, jit
from offcut.backends.cpu.machine.isa import Host, detect_processor
from offcut.backends.cpu.microkernels.amx_code import ARGUMENTS
from offcut.backends.cpu.microkernels.family import WIDE_PARAMETERS, Family
from offcut.backends.llvm import ir
from offcut.backends.llvm.ir import FunctionWriter
from offcut.backends.llvm.loader import JitModule
from offcut.core.dtypes import ITEM_BYTES
from offcut.describe.external import Foreign, Routine, tiles_of
from offcut.describe.microkernel import Microkernel
from offcut.errors import DescribeError

PREFIX = "oc_function_"
"""What stands before a microkernel's name in the symbol of its function."""

_LARGEST_INT = 2**31 - 1
_TALL, _SIDES = 48, (8, 32, 128)  # rows, and columns and terms, of tiles that are timed
_LONG = 5e-5  # seconds of a call that can be timed
_UNSURE = 2000.0  # cycles by which the time of a call may be wrong
_LEAST = 1e-6  # cycles: less costs nothing


def families(host: Host) -> Iterator[Family]:
    """Those that are lent to the host, for one kernel."""
    for kernel in host.external:
        yield Family(
            kernel,
            lambda *_, kernel=kernel: symbol(kernel),
            lambda *_, kernel=kernel: text(kernel),
            {},
        )


def check_external(
    microkernels: Any, own: Sequence[Microkernel], op: str, declared: bool = False
) -> tuple[Microkernel, ...]:
    """`microkernels` of a call of `op`: external ones, with names that are not taken.

    declared   or such as other units run, by which a cut may be seen, though not run

    Raises DescribeError.
    """
    if not isinstance(microkernels, Sequence):
        microkernels = (microkernels,)
    used_names = {kernel.name for kernel in own}
    for kernel in microkernels:
        called = isinstance(kernel, Microkernel) and isinstance(kernel.lowering, Foreign)
        seen = declared and isinstance(kernel, Microkernel) and kernel.unit != "core"
        if not (called or seen):
            instruction = isinstance(kernel, Microkernel)
            shown = f"the instruction {kernel.name}" if instruction else repr(kernel)
            raise DescribeError(
                op,
                f"cannot take {shown} as a microkernel",
                because="the CPU calls functions: its own, and those that are declared external",
                help=("microkernels=[external_microkernel(…)]",),
            )
        if kernel.name in used_names:
            raise DescribeError(
                op,
                f"cannot take two microkernels named {kernel.name}",
                because="a cut names the microkernel of a tile",
                help=("another name for one of them",),
            )
        used_names.add(kernel.name)
    return tuple(microkernels)


def time_kernels(kernels: Sequence[Microkernel], host: Host) -> tuple[Microkernel, ...]:
    """`kernels` as dear as their functions are on this machine; as declared where that is to be
    believed, or no function is at the address.
    """
    return tuple(map(partial(_measured_seconds, host), kernels))


def _measured_seconds(host: Host, kernel: Microkernel) -> Microkernel:
    foreign = _foreign(kernel)
    if (
        not foreign.measured
        or detect_processor(host.features) is None
        or not _is_code(foreign.address)
    ):
        return kernel
    costs = _costs(kernel, replace(host, external=(kernel,), threads=1))
    tile = max(kernel.tiles, key=lambda one: one.rows)
    return replace(kernel, tiles=tiles_of(tile.rows, tile.columns, *costs))


def _is_code(address: int) -> bool:
    """Whether the system lets this process run what is at an address; True where it does not say."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return True
    spans = ((line.split()[0].split("-"), line.split()[1]) for line in lines)
    return any("x" in mode and int(lo, 16) <= address < int(hi, 16) for (lo, hi), mode in spans)


@lru_cache(maxsize=64)
def _costs(kernel: Microkernel, host: Host) -> tuple[float, ...]:
    """Cycles of a multiply–add, of the copy of an element of B, and of a call, to a sixth; those of a
    function of scipy are kept on disk.
    """
    measure = partial(_fit_cost, kernel, host)
    foreign = _foreign(kernel)
    if not isinstance(foreign.function, Routine):
        return measure()
    tile = max(kernel.tiles, key=lambda one: one.rows)
    parts = (foreign.function.name, version("scipy"), str(tile.rows), str(tile.columns))
    return instruction_rates.cached_measurement(parts, host.features, measure) or measure()


def _fit_cost(kernel: Microkernel, host: Host) -> tuple[float, ...]:
    """Likewise, of calls on a tall and on a low tile that take long enough to be timed, and on a small one."""
    loaded = load([jit.object_code(text(kernel), host, passes=False)], host)
    tile = max(kernel.tiles, key=lambda one: one.rows)
    for side in _SIDES:
        columns = min(tile.columns, side)
        shapes = [(min(tile.rows, _TALL), columns, side), (1, columns, side), (1, 1, 1)]
        calls = [_call(kernel, loaded, *shape) for shape in shapes]
        calls[0]()  # what a function does once, it has done then
        start = time.perf_counter()
        calls[0]()
        if time.perf_counter() - start > _LONG:
            break
    fitted = _fit(shapes, instruction_rates.cycles(host, calls))
    return tuple(2.0 ** (round(4 * log2(max(cost, _LEAST))) / 4) for cost in fitted)


def _call(
    kernel: Microkernel, loaded: JitModule, rows: int, columns: int, depth: int
) -> instruction_rates.Bound:
    """A call of the shim on zeros."""
    a, b, c = (ITEM_BYTES[dtype] for dtype in _foreign(kernel).types)
    sizes = (rows * depth * a, depth * columns * b, rows * columns * c)
    left, right, result = (np.zeros(size, np.uint8) for size in sizes)
    arguments = (left, depth * a, rows, right, columns * b, result, columns * c, depth, columns, 0)
    return instruction_rates.Bound(loaded, symbol(kernel), WIDE_PARAMETERS, arguments)


def _fit(shapes: Sequence[tuple[int, int, int]], cycles: Sequence[float]) -> tuple[float, ...]:
    """The costs, none below 0, by which ``depth * columns * (rows * x + y) + z`` is nearest to `cycles`,
    for shapes (rows, columns, depth), relative to what they take.
    """
    weight = 1.0 / (np.asarray(cycles) + _UNSURE)
    terms = np.array([(n * k * m, n * k, 1.0) for m, n, k in shapes]) * weight[:, None]
    wanted, least, best = np.asarray(cycles) * weight, np.inf, np.zeros(3)
    for columns in ([0, 1, 2], [0, 1], [0, 2], [0]):
        solved = np.linalg.lstsq(terms[:, columns], wanted, rcond=None)[0]
        error = float(np.sum((terms[:, columns] @ solved - wanted) ** 2))
        if np.all(solved >= 0) and error < least:
            least, best = error, np.zeros(3)
            best[columns] = solved
    return tuple(map(float, best))


def load(objects: Sequence[bytes], host: Host) -> JitModule:
    """Object files as callable code, in which the symbols of the host's external functions lead there.

    Raises RuntimeError when the bytes are no object file of this machine.
    """
    addresses = {PREFIX + kernel.name: _foreign(kernel).address for kernel in host.external}
    return jit.load(objects, host, addresses)


def symbol(kernel: Microkernel) -> str:
    """The name of the shim."""
    return f"oc_external_{kernel.name}"


def text(kernel: Microkernel) -> str:
    """LLVM IR of the shim, with the parameters of a wide microkernel."""
    foreign = _foreign(kernel)
    f = FunctionWriter()
    some = [f.let(f"icmp sgt i64 {extent}, 0") for extent in ("%rows", "%columns")]
    with f.when(_all(f, some)):
        _CONVENTIONS[foreign.convention](f, "@" + PREFIX + kernel.name, foreign)
    f.do("ret void")
    head = f"define weak_odr void @{symbol(kernel)}({ARGUMENTS}) nounwind"
    return "\n".join([f"{head} {{", f.text(), "}", *sorted(f.declares)])


def _foreign(kernel: Microkernel) -> Foreign:
    assert isinstance(kernel.lowering, Foreign)
    return kernel.lowering


def _steps(f: FunctionWriter, foreign: Foreign) -> list[str]:
    """The row steps of A, B and C, in elements."""
    shifts = [ITEM_BYTES[dtype].bit_length() - 1 for dtype in foreign.types]
    names = ("%a_row", "%b_row", "%c_row")
    return [f.let(f"ashr i64 {n}, {shift}") for n, shift in zip(names, shifts, strict=True)]


def _call_tile(f: FunctionWriter, function: str, foreign: Foreign) -> None:
    lda, ldb, ldc = _steps(f, foreign)
    matrices = f"ptr %a, i64 {lda}, ptr %b, i64 {ldb}, ptr %c, i64 {ldc}"
    f.do(f"call void {function}({matrices}, i64 %rows, i64 %columns, i64 %depth, i64 %accumulate)")
    f.declares.add(f"declare void {function}(ptr, i64, ptr, i64, ptr, i64, i64, i64, i64, i64)")


def _call_gemm(f: FunctionWriter, function: str, foreign: Foreign) -> None:
    """Row-major C = A B is column-major C' = B' A'.

    gemm wants rows that are apart, and counts in int; where A or B repeats a row, or steps are
    larger, C is updated row by row and term by term; without terms each row once.
    """
    steps = _steps(f, foreign)
    lengths = ("%depth", "%columns", "%columns")
    tests = []
    for step, count, length in zip(steps, ("%rows", "%depth", "%rows"), lengths, strict=True):
        one = f.let(f"icmp sle i64 {count}, 1")
        tests.append(f.let(f"or i1 {one}, {f.let(f'icmp sge i64 {step}, {length}')}"))
        tests.append(f.let(f"icmp sle i64 {step}, {_LARGEST_INT}"))
    regular = _all(f, tests)
    gemm = _Gemm(f, function, foreign.types[2])
    fresh = f.let("icmp eq i64 %accumulate, 0")
    beta = f.let(f"select i1 {fresh}, {gemm.t} 0.0, {gemm.t} 1.0")
    whole, parts, end = f.name("whole"), f.name("parts"), f.name("end")
    f.do(f"br i1 {regular}, label {whole}, label {parts}")
    with f.within(whole):
        rows = zip(steps, lengths, strict=True)
        leading = [ir.maximum(f, ir.maximum(f, step, length), "1") for step, length in rows]
        gemm.call(("%a", "%b", "%c"), ("%columns", "%rows", "%depth"), leading, beta)
    f.do(f"br label {end}")
    with f.within(parts), f.loop("0", "%rows") as row:
        a_row = f.let(f"getelementptr i8, ptr %a, i64 {ir.mul(f, row, '%a_row')}")
        c_row = f.let(f"getelementptr i8, ptr %c, i64 {ir.mul(f, row, '%c_row')}")
        with f.loop("0", ir.maximum(f, "%depth", "1")) as k:
            a = f.let(f"getelementptr {gemm.t}, ptr {a_row}, i64 {k}")
            b = f.let(f"getelementptr i8, ptr %b, i64 {ir.mul(f, k, '%b_row')}")
            first = f.let(f"icmp eq i64 {k}, 0")
            keep = f.let(f"select i1 {first}, {gemm.t} {beta}, {gemm.t} 1.0")
            extents = "%columns", "1", ir.minimum(f, "%depth", "1")
            gemm.call((a, b, c_row), extents, ("1", "%columns", "%columns"), keep)
    f.block(end)


class _Gemm:
    """Calls of a Fortran gemm: every argument is a pointer."""

    def __init__(self, f: FunctionWriter, function: str, dtype: str) -> None:
        self.f, self.function = f, function
        self.t = {"float32": "float", "float64": "double"}[dtype]
        self.letter = f.slot("i8")
        self.ints = [f.slot("i32") for _ in range(6)]
        self.alpha, self.beta = f.slot(self.t), f.slot(self.t)
        f.declares.add(f"declare void {function}({', '.join(['ptr'] * 13)})")

    def call(
        self, matrices: Sequence[str], extents: Sequence[str], leading: Sequence[str], beta: str
    ) -> None:
        f, (a, b, c) = self.f, matrices
        f.do(f"store i8 {ord('N')}, ptr {self.letter}")
        f.do(f"store {self.t} 1.0, ptr {self.alpha}")
        f.do(f"store {self.t} {beta}, ptr {self.beta}")
        for value, slot in zip((*extents, *leading), self.ints, strict=True):
            f.do(f"store i32 {f.let(f'trunc i64 {value} to i32')}, ptr {slot}")
        m, n, k, lda, ldb, ldc = self.ints
        order = [self.letter, self.letter, m, n, k, self.alpha, b, ldb, a, lda, self.beta, c, ldc]
        f.do(f"call void {self.function}({', '.join(f'ptr {value}' for value in order)})")


def _all(f: FunctionWriter, tests: Sequence[str]) -> str:
    good = "true"
    for test in tests:
        good = f.let(f"and i1 {good}, {test}")
    return good


_CONVENTIONS: Mapping[str, Callable[[FunctionWriter, str, Foreign], None]] = {
    "tile": _call_tile,
    "blas_gemm": _call_gemm,
}
