"""Microkernels that are not offcut's: a BLAS, and any function of the user's, in cuts and in costs."""

from __future__ import annotations

import ctypes
import gc
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import build, contraction, floats, in_child, needs_fork, poisoned, same_bits
from conftest import edge_sizes

import offcut as oc
from offcut.core.dtypes import numpy_dtype
from offcut.core.microkernel import Microkernel
from offcut.core.tensor import Tensor

ROWS = 24  # of the tallest tile that the tests declare
CHEAP, DEAR = 1 / 4096, 4.0
_COMPILER = shutil.which("cc")
_TILE = ctypes.CFUNCTYPE(
    None,
    *(ctypes.c_void_p, ctypes.c_int64) * 3,
    *(ctypes.c_int64,) * 4,
)


def product(dtype: str = "float32", wide: str = "", rows: Any = None) -> Tensor:
    """``C = A B``, of `dtype`, multiplied and added up in `wide`."""
    m, n = oc.dim("m", min=1, max=ROWS) if rows is None else rows, oc.dim("n", min=1)
    k = oc.reduce_axis(oc.dim("k"), name="p")
    a = oc.placeholder((m, oc.dim("k")), dtype, name="A")
    b = oc.placeholder((oc.dim("k"), n), dtype, name="B")

    def term(i: Any, j: Any) -> Any:
        x, y = a[i, k], b[k, j]
        return oc.sum(oc.cast(x, wide) * oc.cast(y, wide) if wide else x * y, axis=k)

    return oc.compute((m, n), term, name="C")


def gemm(dtype: str = "float32", cycles: float = CHEAP) -> Microkernel:
    """scipy's sgemm or dgemm."""
    pytest.importorskip("scipy")
    name = {"float32": "sgemm", "float64": "dgemm"}[dtype]
    function = oc.external.blas(name)
    return oc.external_microkernel(
        name, product(dtype), function, convention="blas_gemm", cycles=cycles
    )


class Own:
    """A function of the user's, of the convention "tile", written in numpy."""

    def __init__(self, dtype: str = "float32", wide: str = "float32", scale: int = 1) -> None:
        self.item, self.wide, self.scale = numpy_dtype(dtype), numpy_dtype(wide), scale
        self.calls: list[tuple[int, int, int, int]] = []
        self.function = _TILE(self.run)

    def run(self, a: int, lda: int, b: int, ldb: int, c: int, ldc: int, *rest: int) -> None:
        m, n, k, accumulate = rest
        self.calls.append((m, n, k, accumulate))
        left, right = self.matrix(a, lda, m, k, self.item), self.matrix(b, ldb, k, n, self.item)
        result = self.matrix(c, ldc, m, n, self.wide)
        total = self.scale * (left.astype(self.wide) @ right.astype(self.wide))
        result[...] = result + total if accumulate else total

    @staticmethod
    def matrix(at: int, step: int, rows: int, columns: int, dtype: Any) -> Any:
        if not rows or not columns:
            return np.zeros((rows, columns), dtype)
        count = ((rows - 1) * step + columns) * dtype.itemsize
        memory = np.frombuffer((ctypes.c_char * count).from_address(at), dtype)
        strides = (step * dtype.itemsize, dtype.itemsize)
        return np.lib.stride_tricks.as_strided(memory, (rows, columns), strides)

    def declared(
        self, name: str = "own", cycles: float = CHEAP, computes: Tensor | None = None
    ) -> Microkernel:
        return oc.external_microkernel(name, computes or product(), self.function, cycles=cycles)


def taken(kernel: oc.Kernel, **sizes: int) -> set[str | None]:
    """The microkernels of the pieces that run at these sizes."""
    return {piece.microkernel for piece in kernel.plan(**sizes).pieces}


@pytest.mark.parametrize("strategy", ["auto", "cut", "mask", "shift", "balance"])
def test_gemm_gives_the_product_at_every_size(strategy: str) -> None:
    case = contraction("mk,kn->mn")
    kernel = build(
        case.result, inputs=case.inputs, strategy=strategy, microkernels=[gemm()], verify=True
    )
    for m in edge_sizes(ROWS):
        for k, n in [(0, 5), (1, 1), (7, 33), (64, 300)]:
            arrays = floats("a", m, k), floats("b", k, n)
            case.check(poisoned(kernel, (m, n), *arrays), arrays)
    assert taken(kernel, m=ROWS, n=48, k=9) == {"sgemm"}


@pytest.mark.parametrize("n", edge_sizes(16))
def test_gemm_in_double_gives_the_product(n: int) -> None:
    case = contraction("mk,kn->mn", dtype="float64")
    kernel = build(case.result, inputs=case.inputs, microkernels=[gemm("float64")])
    arrays = floats("a", 30, 17, dtype="float64"), floats("b", 17, n, dtype="float64")

    case.check(poisoned(kernel, (30, n), *arrays), arrays)


def test_rows_that_repeat_are_multiplied_as_any_others() -> None:
    case = contraction("mk,kn->mn")
    kernel = build(case.result, inputs=case.inputs, microkernels=[gemm()])
    a, b = floats("a", 9, 11), floats("b", 11, 13)
    one_a, one_b = np.broadcast_to(a[:1], a.shape), np.broadcast_to(b[:1], b.shape)
    close = np.lib.stride_tricks.as_strided(floats("c", 40), (9, 11), (8, 4))
    for arrays in [(one_a, b), (a, one_b), (one_a, one_b), (close, b), (a[::2, ::-1], b)]:
        case.check(poisoned(kernel, (len(arrays[0]), 13), *arrays), arrays)


def test_a_sum_in_parts_is_added_to() -> None:
    own = Own()
    case = contraction("mk,kn->mn")
    strategy = {"m": "ladder", "k": "cut"}
    kernel = build(
        case.result, inputs=case.inputs, strategy=strategy, microkernels=[own.declared()]
    )
    arrays = floats("a", 30, 600), floats("b", 600, 20)

    case.check(poisoned(kernel, (30, 20), *arrays), arrays)

    assert {(k, accumulate) for _, _, k, accumulate in own.calls} == {(256, 1), (1, 1)}


def test_stages_after_the_product_run_on_its_tiles() -> None:
    n, k = oc.dim("n", max=512), oc.reduce_axis(40, name="k")
    x, w = oc.placeholder((n, 40), name="X"), oc.placeholder((40, 50), name="W")
    b = oc.placeholder((50,), name="b")
    total = oc.compute((n, 50), lambda i, j: oc.sum(x[i, k] * w[k, j], axis=k), name="S")
    y = oc.compute((n, 50), lambda i, j: oc.maximum(total[i, j] + b[j], 0.0), name="Y")
    kernel = build(y, inputs=[x, w, b], microkernels=[gemm()], verify=True)
    for size in edge_sizes(ROWS):
        arrays = floats("x", size, 40), floats("w", 40, 50), floats("b", 50)
        wide = [array.astype("float64") for array in arrays]
        expected = np.maximum(wide[0] @ wide[1] + wide[2], 0)
        np.testing.assert_allclose(poisoned(kernel, (size, 50), *arrays), expected, atol=1e-4)


def test_outer_axes_are_loops_around_the_function() -> None:
    case = contraction("bmk,bkn->bmn")
    own = Own()
    kernel = build(case.result, inputs=case.inputs, microkernels=[own.declared()])
    arrays = floats("a", 3, 5, 7), floats("b", 3, 7, 9)

    case.check(poisoned(kernel, (3, 5, 9), *arrays), arrays)

    assert own.calls == [(5, 9, 7, 0)] * 3


def test_a_function_of_bytes_is_asked_for_sums_of_casts() -> None:
    own = Own("int8", "int32")
    kernel = build(
        product("int8", "int32", oc.dim("m")),
        microkernels=[own.declared(computes=product("int8", "int32"))],
    )
    a, b = (floats(s, *shape, dtype="float32") * 50 for s, shape in [("a", (30, 9)), ("b", (9, 5))])
    a, b = a.astype("int8"), b.astype("int8")

    assert same_bits(kernel(a, b), a.astype("int32") @ b.astype("int32"))
    assert own.calls


def test_a_program_that_is_a_product_takes_it_too() -> None:
    own = Own()
    kernel = oc.compile(
        oc.parse("""
            program product
            size m in 0:99
            size n in 0:99
            size k in 0:99
            input A: float32[m, k]
            input B: float32[k, n]
            output C: float32[m, n]
            for i in 0:m
              for j in 0:n
                C[i, j] = 0.0
                for p in 0:k
                  C[i, j] += A[i, p] * B[p, j]
        """),
        microkernels=[own.declared()],
    )
    a, b = floats("a", 30, 9), floats("b", 9, 5)

    np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-5, atol=1e-5)
    assert own.calls


def test_a_function_that_is_declared_cheap_is_taken_and_a_dear_one_is_not() -> None:
    case = contraction("mk,kn->mn")
    arrays = floats("a", 30, 9), floats("b", 9, 5)
    for cycles, runs in [(CHEAP, True), (DEAR, False)]:
        own = Own()
        declared = own.declared(cycles=cycles)
        kernel = build(case.result, inputs=case.inputs, microkernels=[declared])
        case.check(kernel(*arrays), arrays)
        assert bool(own.calls) == runs
        assert ("own" in taken(kernel, m=30, n=5, k=9)) == runs
        tails = {"m": "ladder", "n": "mask"}
        cut = oc.partition(case.result, {"m": 14, "n": 16}, tails, microkernels=[declared])
        assert ("@microkernel(own)" in str(cut)) == runs


def test_constants_are_left_unpacked_for_a_function_that_reads_them_so() -> None:
    case = contraction("mk,kn->mn", {"k": 63, "n": 40})
    w, x = floats("w", 63, 40), floats("x", 30, 63)
    own = Own()
    kernel = build(
        case.result, inputs=case.inputs, constants={"B": w}, microkernels=[own.declared()]
    )

    case.check(kernel(x), (x, w))

    assert own.calls
    other = floats("other", 63, 40)
    case.check(kernel.with_constants({"B": other})(x), (x, other))


def test_two_products_of_one_kernel_call_one_function(tmp_path: Path) -> None:
    n, own = oc.dim("n", max=512), Own()
    x, w = oc.placeholder((n, 63), name="X"), oc.placeholder((63, 64), name="W")
    v = oc.placeholder((64, 40), name="V")
    r, s = oc.reduce_axis(63, name="r"), oc.reduce_axis(64, name="s")
    first = oc.compute((n, 64), lambda i, j: oc.sum(x[i, r] * w[r, j], axis=r), name="F")
    second = oc.compute((n, 40), lambda i, j: oc.sum(first[i, s] * v[s, j], axis=s), name="G")
    kernel = build(second, inputs=[x, w, v], microkernels=[own.declared()])
    arrays = floats("x", 30, 63), floats("w", 63, 64), floats("v", 64, 40)

    expected = arrays[0].astype("float64") @ arrays[1] @ arrays[2]
    np.testing.assert_allclose(kernel(*arrays), expected, atol=1e-3)

    assert {k for _, _, k, _ in own.calls} == {63, 64}
    assert "links   own" in kernel.export(tmp_path).header.read_text()


def test_where_operands_do_not_lie_as_the_function_reads_them_others_run() -> None:
    own = Own()
    for spec, shapes in [("km,kn->mn", [(7, 5), (7, 9)]), ("mk,nk->mn", [(5, 7), (9, 7)])]:
        case = contraction(spec)
        kernel = build(case.result, inputs=case.inputs, microkernels=[own.declared()])
        arrays = [floats("a", *shape) for shape in shapes]
        case.check(kernel(*arrays), arrays)
    assert own.calls == []


def test_two_functions_of_one_name_are_each_called_by_their_kernel() -> None:
    case = contraction("mk,kn->mn")
    a, b = floats("a", 5, 7), floats("b", 7, 9)
    one, two = Own(), Own(scale=2)
    first = build(case.result, inputs=case.inputs, microkernels=[one.declared()])
    second = build(case.result, inputs=case.inputs, microkernels=[two.declared()])

    assert same_bits(2 * first(a, b), second(a, b))
    assert same_bits(2 * first(a, b), second(a, b))
    assert str(ctypes.cast(one.function, ctypes.c_void_p).value) not in first.source("llvm")


def test_a_kernel_keeps_the_function_that_it_calls() -> None:
    case = contraction("mk,kn->mn")
    kernel = build(case.result, inputs=case.inputs, microkernels=[Own().declared("gone")])
    gc.collect()
    arrays = floats("a", 30, 9), floats("b", 9, 5)

    case.check(kernel(*arrays), arrays)


def test_a_function_in_python_may_be_called_from_several_threads() -> None:
    case = contraction("mk,kn->mn")
    kernel = build(case.result, inputs=case.inputs, microkernels=[Own().declared()])
    arrays = floats("a", 200, 64), floats("b", 64, 300)  # enough work to let other threads run
    expected, results = kernel(*arrays), list[Any]()

    def call() -> None:
        results.extend(kernel(*arrays) for _ in range(5))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(results) == 20
    assert all(same_bits(result, expected) for result in results)


@needs_fork
def test_a_function_in_python_runs_on_several_threads_of_one_call() -> None:
    own = Own("float16", "float16")
    declared = own.declared(cycles=1e5, computes=product("float16"))  # worth a thread, it says
    kernel = build(product("float16", rows=oc.dim("rows")), microkernels=[declared], threads=2)
    a, b = np.ones((128, 8), "float16"), np.ones((8, 64), "float16")

    def call() -> None:
        signal.alarm(60)  # the thread of the call that waits for the interpreter's lock
        for _ in range(5):
            assert np.all(kernel(a, b) == 8)

    assert in_child(call) == 0


def test_a_kernel_on_a_blas_is_pickled_by_the_routine_s_name() -> None:
    case = contraction("mk,kn->mn")
    kernel = build(case.result, inputs=case.inputs, microkernels=[gemm()])
    program = (
        "import pickle, sys, numpy as np\n"
        "kernel = pickle.load(sys.stdin.buffer)\n"
        "x = np.arange(30 * 7, dtype='float32').reshape(30, 7)\n"
        "assert {p.microkernel for p in kernel.plan(m=30, n=30, k=7).pieces} == {'sgemm'}\n"
        "assert np.array_equal(kernel(x, x.T.copy()), x @ x.T)\n"
    )

    subprocess.run([sys.executable, "-c", program], input=pickle.dumps(kernel), check=True)

    again = pickle.loads(pickle.dumps(kernel))
    arrays = floats("a", 30, 9), floats("b", 9, 5)
    assert same_bits(again(*arrays), kernel(*arrays))


@pytest.mark.skipif(_COMPILER is None, reason="the system has no C compiler")
def test_an_exported_kernel_leaves_the_function_to_the_program(tmp_path: Path) -> None:
    case = contraction("mk,kn->mn", {"k": 7})
    kernel = build(case.result, inputs=case.inputs, microkernels=[Own().declared("mine")])
    made = kernel.export(tmp_path, name="product")
    assert " *   links   mine, which the program defines\n" in made.header.read_text()
    source, library = tmp_path / "mine.c", tmp_path / "mine.so"
    source.write_text("""
        #include <stdint.h>
        void mine(const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc,
                  int64_t m, int64_t n, int64_t k, int64_t accumulate) {
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) {
              float sum = accumulate ? c[i * ldc + j] : 0;
              for (int64_t p = 0; p < k; ++p) sum += a[i * lda + p] * b[p * ldb + j];
              c[i * ldc + j] = sum;
            }
        }
    """)
    command = [str(_COMPILER), "-shared", "-fPIC", "-Wl,-z,defs", str(source), str(made.object)]
    subprocess.run([*command, "-o", str(library)], check=True)
    a, b, c = floats("a", 30, 7), floats("b", 7, 9), np.zeros((30, 9), "float32")

    run = ctypes.CDLL(str(library)).product
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (a, b, c)]
    assert run(*pointers, ctypes.c_int64(30), ctypes.c_int64(9), None) == 0

    case.check(c, (a, b))


@pytest.mark.parametrize(("microkernel", "name"), [("mine", "mine"), ("memcpy", "product")])
def test_a_function_cannot_have_the_name_of_another_in_an_exported_kernel(
    tmp_path: Path, microkernel: str, name: str
) -> None:
    case = contraction("mk,kn->mn")
    kernel = build(case.result, inputs=case.inputs, microkernels=[Own().declared(microkernel)])
    with pytest.raises(oc.DescribeError) as error:
        kernel.export(tmp_path, name=name)
    assert str(error.value) == (
        f"export: cannot leave the microkernel {microkernel} to the program\n"
        "  because  a function of this name is in the header, or C keeps the word for itself\n"
        "  help     another name for the kernel, or for the microkernel"
    )


def _declare(**changed: Any) -> Microkernel:
    asked = {"name": "own", "computes": product(), "address": 4096, "cycles": 1.0} | changed
    return oc.external_microkernel(**asked)


def _with(*microkernels: Any, **request: Any) -> oc.Kernel:
    case = contraction("mk,kn->mn")
    return oc.compile(case.result, microkernels=microkernels, **request)


def _sum() -> Tensor:
    m, k = oc.dim("m"), oc.reduce_axis(oc.dim("k"), name="p")
    a = oc.placeholder((m, oc.dim("k")), name="A")
    return oc.compute((m,), lambda i: oc.sum(a[i, k], axis=k), name="C")


def _instruction() -> Microkernel:
    a = oc.placeholder((8,), name="A")
    return oc.decl_tensor_intrin(
        oc.compute((8,), lambda i: a[i] * 2.0, name="C"),
        lambda inputs, outputs: oc.hardware_intrinsic("twice", inputs[0].access_ptr("r")),
    )


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a null address": (
        lambda: _declare(address=0),
        """\
external_microkernel: cannot call 0
  because  it is no address of a function
  help     an int that is not 0
  help     a ctypes function
  help     external.blas("sgemm")""",
    ),
    "no address": (
        lambda: _declare(address=None),
        """\
external_microkernel: cannot call None
  because  it is no address of a function
  help     an int that is not 0
  help     a ctypes function
  help     external.blas("sgemm")""",
    ),
    "the name of a function": (
        lambda: _declare(address="sgemm"),
        """\
external_microkernel: cannot call 'sgemm'
  because  it is no address of a function
  help     an int that is not 0
  help     a ctypes function
  help     external.blas("sgemm")""",
    ),
    "an unknown convention": (
        lambda: _declare(convention="fastcall"),
        """\
external_microkernel: cannot call own by convention='fastcall'
  because  there is no such convention
  help     convention="tile"
  help     convention="blas_gemm\"""",
    ),
    "a type that gemm lacks": (
        lambda: _declare(computes=product("float16"), convention="blas_gemm"),
        """\
external_microkernel: cannot call own by convention='blas_gemm'
  because  A, B and C are float16, float16, float16, and gemm has one of float32, float64 for all
  help     convention="tile\"""",
    ),
    "types that differ": (
        lambda: _declare(computes=product("float32", "float64"), convention="blas_gemm"),
        """\
external_microkernel: cannot call own by convention='blas_gemm'
  because  A, B and C are float32, float32, float64, and gemm has one of float32, float64 for all
  help     convention="tile\"""",
    ),
    "a name with a space": (
        lambda: _declare(name="my gemm"),
        """\
external_microkernel: cannot name a microkernel 'my gemm'
  because  a name is an ASCII identifier""",
    ),
    "no product": (
        lambda: _declare(computes=_sum()),
        """\
external_microkernel: cannot declare own by C: float32[m]
  because  an external microkernel computes a product of matrices
  help     compute((m, n), lambda i, j: sum(A[i, p] * B[p, j], axis=p))""",
    ),
    "a placeholder": (
        lambda: _declare(computes=oc.placeholder((8, 8), name="A")),
        """\
external_microkernel: cannot declare own by A: float32[8, 8]
  because  an external microkernel computes a product of matrices
  help     compute((m, n), lambda i, j: sum(A[i, p] * B[p, j], axis=p))""",
    ),
    "a fixed height": (
        lambda: _declare(computes=product(rows=8)),
        """\
external_microkernel: cannot declare own
  at       axis i
  because  its extent is 8, and tiles of every size from 1 on are asked for
  help     dim("i", min=1, max=256)""",
    ),
    "no cost": (
        lambda: _declare(cycles=0),
        """\
external_microkernel: cannot take cycles=0
  at       own
  because  it is a number above 0""",
    ),
    "a cost that is no number": (
        lambda: _declare(startup=float("nan")),
        """\
external_microkernel: cannot take startup=nan
  at       own
  because  it is a number at least 0""",
    ),
    "no microkernel": (
        lambda: _with("sgemm"),
        """\
compile: cannot take 'sgemm' as a microkernel
  because  the CPU calls functions: its own, and those that are declared external
  help     microkernels=[external_microkernel(…)]""",
    ),
    "an instruction": (
        lambda: _with(_instruction()),
        """\
compile: cannot take the instruction twice as a microkernel
  because  the CPU calls functions: its own, and those that are declared external
  help     microkernels=[external_microkernel(…)]""",
    ),
    "two of one name": (
        lambda: _with(_declare(), _declare()),
        """\
compile: cannot take two microkernels named own
  because  a cut names the microkernel of a tile
  help     another name for one of them""",
    ),
    "an order of sums that must be kept": (
        lambda: _with(_declare(), reassociate=False),
        """\
compile: cannot take microkernels= with reassociate=False
  because  in which order an external function adds is not known
  help     microkernels=() leaves sums to functions that add in ascending order""",
    ),
    "a routine that no BLAS has": (
        lambda: oc.external.blas("tgemm"),
        """\
blas: cannot find tgemm
  because  the BLAS of scipy has no routine of this name
  help     blas("sgemm")
  help     blas("dgemm")""",
    ),
    "a pickle of an address": (
        lambda: pickle.dumps(_with(Own().declared())),
        """\
pickle: cannot pickle an external microkernel
  because  its function is an address of this process
  help     external.blas("sgemm") is found again by its name
  help     compile it there""",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_microkernel_is_refused_in_words(case: str) -> None:
    call, text = REFUSED[case]
    with pytest.raises(oc.OffcutError) as error:
        call()
    assert str(error.value) == text


def test_without_scipy_the_user_is_told_what_carries_a_blas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.linalg", None)
    with pytest.raises(oc.TargetError) as error:
        oc.external.blas("sgemm")
    assert str(error.value) == (
        "blas: cannot find sgemm\n"
        "  because  scipy, which carries a BLAS, is not installed\n"
        "  help     pip install scipy"
    )
