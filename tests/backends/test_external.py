"""Microkernels that are not offcut's: a BLAS, and any function of the user's, in cuts and in costs."""

from __future__ import annotations

import ctypes
import gc
import mmap
import pickle
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import build, contraction, floats, poisoned, same_bits
from conftest import edge_sizes, rejection
from foreign import DEAR, ROWS, Own, gemm, product, taken

import offcut as oc
from offcut.backends.cpu.threads import pool
from tests.agree import agree, computed
from tests.machines import EAGER, host_threads

_COMPILER = shutil.which("cc")


@pytest.mark.every(2)
@pytest.mark.parametrize("strategy", ["auto", "cut", "mask", "shift", "balance"])
def test_gemm_gives_the_product_at_every_size(strategy: str) -> None:
    case = contraction("mk,kn->mn")
    kernel = build(case.result, inputs=case.inputs, strategy=strategy, microkernels=[gemm()])
    for m in edge_sizes(ROWS):
        for k, n in [(0, 5), (1, 1), (7, 33), (64, 300)]:
            arrays = floats("a", m, k), floats("b", k, n)
            case.check(poisoned(kernel, (m, n), *arrays), arrays)
    assert taken(kernel, m=ROWS, n=48, k=9) == {"sgemm"}


@pytest.mark.skipif(sys.platform != "linux", reason="memory that is promised twice over")
def test_rows_too_far_apart_for_an_int_run_one_by_one() -> None:
    case, step, no_reserve = contraction("mk,kn->mn"), 2**31, 0x4000
    kernel = build(case.result, inputs=case.inputs, microkernels=[gemm()])
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
    memory = np.frombuffer(mmap.mmap(-1, 4 * (step + 5), flags=flags), "float32")
    out = np.lib.stride_tricks.as_strided(memory, (2, 5), (4 * step, 4))
    for k in (0, 1, 7):
        arrays = floats("a", 2, k), floats("b", k, 5)
        out[...] = np.nan
        case.check(kernel(*arrays, out=out), arrays)


@pytest.mark.every(4)
@pytest.mark.parametrize("most", [1, 16, 33, 64])
def test_a_function_is_asked_for_no_more_columns_than_it_takes(most: int) -> None:
    case, own = contraction("mk,kn->mn"), Own()
    declared = own.declared(computes=product(columns=oc.dim("n", min=1, max=most)))
    kernel = build(case.result, inputs=case.inputs, microkernels=[declared])
    for n in (1, 33, 70):
        arrays = floats("a", 30, 9), floats("b", 9, n)
        case.check(poisoned(kernel, (30, n), *arrays), arrays)
    assert taken(kernel, m=30, n=70, k=9) == {"own"}
    assert max(n for _, n, _, _ in own.calls) <= most


def test_a_sum_in_parts_is_added_to() -> None:
    own = Own()
    case = contraction("mk,kn->mn")
    strategy = {"m": "ladder", "k": "cut"}
    kernel = build(
        case.result, inputs=case.inputs, strategy=strategy, microkernels=[own.declared()]
    )
    arrays = floats("a", 30, 600), floats("b", 600, 20)

    case.check(poisoned(kernel, (30, 20), *arrays), arrays)

    assert {(k, accumulate) for _, _, k, accumulate in own.calls} == {(256, 1), (88, 1)}


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

    agree(kernel(*arrays), computed(lambda x, w, v: x @ w @ v, *arrays))

    assert {k for _, _, k, _ in own.calls} == {63, 64}
    assert "links   own" in kernel.export(tmp_path).header.read_text()


@pytest.mark.slow
def test_operands_that_do_not_lie_as_the_function_reads_them_are_copied_or_others_run() -> None:
    own = Own()
    for spec, shapes in [("km,kn->mn", [(7, 5), (7, 9)]), ("mk,nk->mn", [(5, 7), (9, 7)])]:
        case = contraction(spec)
        kernel = build(case.result, inputs=case.inputs, microkernels=[own.declared()])
        arrays = [floats("a", *shape) for shape in shapes]
        case.check(kernel(*arrays), arrays)
    assert own.calls == [(5, 9, 7, 0)]


def test_threads_that_compile_functions_of_one_name_each_get_their_own() -> None:
    case = contraction("mk,kn->mn")
    a, b = np.ones((5, 7), "float32"), np.ones((7, 9), "float32")

    def work(scale: int) -> set[float]:
        results = set[float]()
        for _ in range(15):
            own = Own(scale=scale)
            kernel = oc.compile(case.result, inputs=case.inputs, microkernels=[own.declared()])
            results |= set(kernel(a, b).ravel().tolist())
        return results

    with ThreadPoolExecutor(4) as callers:
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            found = list(callers.map(work, (1, 2, 3, 4)))
        finally:
            sys.setswitchinterval(before)

    assert found == [{7.0}, {14.0}, {21.0}, {28.0}]


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


def test_a_call_for_several_threads_runs_an_external_function_on_its_own() -> None:
    case, own = contraction("mk,kn->mn"), Own()
    request: dict[str, Any] = {"inputs": case.inputs, "threads": 2}
    arrays = floats("a", 200, 64), floats("b", 64, 300)
    with host_threads(**EAGER):
        kernel = build(case.result, microkernels=[own.declared(verify=True)], **request)
        dear = build(case.result, microkernels=[own.declared(cycles=DEAR)], **request)

    case.check(kernel(*arrays), arrays)

    assert own.threads == {threading.get_ident()}
    says = "one thread: own runs on the caller's thread"
    assert kernel.plan(m=200, n=300, k=64).notes == (says,)
    assert pool.is_supported() == any(
        note.startswith("2 threads share") for note in dear.plan(m=200, n=300, k=64).notes
    )


@pytest.mark.slow
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
    header = made.header.read_text()
    assert " *   links   mine, which the program defines\n" in header
    assert "Link with the C library, its libm, and what is listed above.\n" in header
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


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("microkernel", "name"), [("mine", "mine"), ("memcpy", "product"), ("exp", "product")]
)
def test_a_function_cannot_have_the_name_of_another_in_an_exported_kernel(
    tmp_path: Path, microkernel: str, name: str
) -> None:
    case = contraction("mk,kn->mn")
    kernel = build(case.result, inputs=case.inputs, microkernels=[Own().declared(microkernel)])
    with rejection(
        f"DescribeError: export: cannot leave the microkernel {microkernel} to the program\n"
        "  because  a function of this name is in the header, or in the C library, or C keeps the word "
        "for itself\n"
        "  help     another name for the kernel, or for the microkernel"
    ):
        kernel.export(tmp_path, name=name)
