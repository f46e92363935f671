"""A function that is declared as a microkernel is called before it is taken, and refused with the smallest call that differs."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from typing import Any

import pytest
from compiled import build, contraction, floats, needs_fork
from foreign import Own, product

import offcut as oc
from offcut.backends.cpu.external import declaration
from offcut.backends.cpu.external.calls import Place, Values, calls_of

pytestmark = needs_fork

ROWS, COLUMNS = 12, 40
NAN = "; NaN lies around its operands, and in C before"

C = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define ARGUMENTS const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc, \\
                  int64_t m, int64_t n, int64_t k, int64_t add
#define C(i, j) c[(i) * ldc + (j)]
#define EACH for (int64_t i = 0; i < m; i++) for (int64_t j = 0; j < n; j++)
#define RIGHT right(a, lda, b, ldb, c, ldc, m, n, k, add)
static float dot(const float *a, const float *b, int64_t ldb, int64_t k) {
  float sum = 0;
  for (int64_t p = k; p-- > 0;) sum += a[p] * b[p * ldb];
  return sum;
}
void right(ARGUMENTS) { EACH C(i, j) = (add ? C(i, j) : 0) + dot(a + i * lda, b + j, ldb, k); }
"""

WRONG = {
    "computes nothing": ("", f"nan by own{NAN}"),
    "only zeroes": ("if (!add) EACH C(i, j) = 0;", "m = 1, n = 1, k = 1, accumulate = 0"),
    "drops the last term": ("right(a, lda, b, ldb, c, ldc, m, n, k - 1, add);", "m = 1, n = 1, k = 1, "),
    "writes a row too many": ("RIGHT; C(m, 0) = 0;", "it writes C[1, 0]: C has 1 × 1 elements"),
    "writes a column too many": ("RIGHT; C(m - 1, n) = 0;", "it writes C[0, 1]: C has 1 × 1 elements"),
    "writes before its result": ("RIGHT; c[-1] = 0;", "it writes C[-1, "),
    "writes an operand": ("RIGHT; if (k > 2) memset((void *)b, 0, 4);", "it writes B[0, 0]: B may be read alone"),
    "reads a column too many": (
        "volatile float sum = 0; RIGHT; for (int64_t p = 0; p < k; p++) sum += b[p * ldb + n];",
        "it reads or writes behind the end of B: its process was ended by SIGSEGV",
    ),
    "reads a term too many": (
        "volatile float sum = 0; RIGHT; for (int64_t i = 0; i < m; i++) sum += a[i * lda + k];",
        "it reads or writes behind the end of A: its process was ended by SIGSEGV",
    ),
    "reads what lies before": ("volatile float x = b[-1]; RIGHT;", "it reads or writes before the start of B"),
    "reads what it shall write": ("EACH C(i, j) = (add ? 1 : 0) * C(i, j) + dot(a + i * lda, b + j, ldb, k);", NAN),
    "is wrong for one height": ("RIGHT; if (m == 7 && n > 20) C(6, n - 1) += 1;", "at       m = 7, n = "),
    "is wrong for the greatest height": ("RIGHT; if (m == 12) C(11, 0) *= 1.001f;", "at       m = 12, n = 1, "),
    "is wrong for one width": ("RIGHT; if (n == 37) C(0, 36) += 1;", "n = 37, "),
    "is wrong for one tile": ("RIGHT; if (m == 5 && n == 11) C(4, 10) += 1;", "m = 5, n = 11, "),
    "is wrong of long sums": ("right(a, lda, b, ldb, c, ldc, m, n, k > 256 ? 256 : k, add);", "k = 257, "),
    "leaves a sum without terms": ("if (k > 0) RIGHT;", "m = 1, n = 1, k = 0, "),
    "is wrong when it adds": ("right(a, lda, b, ldb, c, ldc, m, n, k, 0);", "m = 1, n = 1, k = 0, accumulate = 1"),
    "takes rows to be next to each other": ("right(a, k, b, n, c, n, m, n, k, add);", "by own"),
    "keeps what it read of the same address": (
        "static float kept[1 << 16]; static const float *at; static int64_t of; if (n * k > 1 << 16) abort();"
        "if (at != b || of != n * k + k) for (int64_t p = 0; p < k; p++) memcpy(kept + p * n, b + p * ldb, 4 * n);"
        "at = b; of = n * k + k; right(a, lda, kept, n, c, ldc, m, n, k, add);",
        "by own",
    ),
    "is right once": ("static int calls; RIGHT; if (calls++) C(0, 0) += 1;", "1 by own"),
    "keeps fewer digits": (
        "EACH { float sum = add ? C(i, j) : 0; for (int64_t p = 0; p < k; p++) { float x = a[i * lda + p]; uint32_t bits;"
        "memcpy(&bits, &x, 4); bits &= 0xffff0000; memcpy(&x, &bits, 4); sum += x * b[p * ldb + j]; } C(i, j) = sum; }",
        "m = 1, n = 1, k = 1, ",
    ),
    "wants aligned rows": ('RIGHT; if ((uintptr_t)c % 32 || ldc % 8) { fputs("rows!\\n", stderr); abort(); }', "; it said: rows!"),
    "aborts": ("abort();", "its process was ended by SIGABRT"),
    "leaves": ("exit(0);", "its process left with status 0"),
    "leaves with a status": ("if (m == 2) exit(3); RIGHT;", "its process left with status 3"),
    "goes astray": ("RIGHT; if (m == 3) *(volatile int *)8 = 0;", "at       m = 3, n = 1, "),
}  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the system has no C compiler")
    folder = tmp_path_factory.mktemp("wrong")
    source, made = folder / "wrong.c", folder / "wrong.so"
    functions = (
        f"void {symbol(name)}(ARGUMENTS) {{ {body} }}" for name, (body, _) in WRONG.items()
    )
    others = (
        "void two(float *a, float *b) { *a = *b; } void spins(ARGUMENTS) { for (;;); }"
        # as libraries do that wait for their threads at the end, which a fork does not have
        f"__attribute__((destructor)) static void ends(void) {{ if (getpid() != {os.getpid()}) pause(); }}"
    )
    source.write_text("\n".join((C, *functions, others)))
    flags = ["-O1", "-w", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(source), "-o", str(made)], check=True)
    return ctypes.CDLL(str(made))


def symbol(name: str) -> str:
    return name.replace(" ", "_")


def declare(function: Any, **changed: Any) -> oc.Microkernel:
    sizes = {"rows": oc.dim("m", min=1, max=ROWS), "columns": oc.dim("n", min=1, max=COLUMNS)}
    asked: dict[str, Any] = {"cycles": 1 / 4096, "measured": False} | changed
    return oc.external_microkernel("own", product(**sizes), function, **asked)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_function_is_refused_with_the_smallest_call_that_shows_it(
    name: str, library: ctypes.CDLL
) -> None:
    with pytest.raises(oc.DescribeError) as refused:
        declare(getattr(library, symbol(name)))
    assert str(refused.value).startswith("external_microkernel: cannot take own\n  at       m = ")
    assert WRONG[name][1] in str(refused.value)
    assert refused.value.help == ("verify=False takes it unchecked, and plans say so",)


def test_a_right_function_is_taken_and_not_asked_again(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = declare(library.right)
    monkeypatch.setattr(declaration, "run_in_fork", lambda *_: pytest.fail("it was checked"))
    assert declare(library.right).lowering == first.lowering
    with pytest.raises(pytest.fail.Exception, match="it was checked"):
        oc.external_microkernel("own", product(), library.right, cycles=1.0)  # larger tiles
    with pytest.raises(pytest.fail.Exception, match="it was checked"):
        declare(ctypes.cast(library.right, ctypes.c_void_p).value)  # who knows what lies there now


def test_a_wrong_function_is_refused_again(library: ctypes.CDLL) -> None:
    for _ in range(2):
        with pytest.raises(oc.DescribeError):
            declare(library.aborts)


def test_a_function_of_other_arguments_breaks_a_process_of_its_own(library: ctypes.CDLL) -> None:
    with pytest.raises(oc.DescribeError, match="m = 1, n = 1, k = 0"):
        declare(library.two)
    with pytest.raises(oc.DescribeError, match="its process was ended by SIG"):
        declare(4096)


def test_a_function_that_does_not_return_is_refused(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declaration, "PROCESSOR_SECONDS", 0.2)
    with pytest.raises(oc.DescribeError) as refused:
        declare(library.spins)
    assert refused.value.because == (
        "it does not return: it was busy for 0.2 s of the processor's time"
    )


class Waits(Own):
    """A function that waits for a thread which a fork does not have."""

    def run(self, *arguments: int) -> None:  # type: ignore[override]
        os.read(self.never[0], 1)

    never = os.pipe()


def test_a_function_that_waits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declaration, "SECONDS", 0.3)
    with pytest.raises(oc.DescribeError) as refused:
        declare(Waits().function)
    assert refused.value.because == (
        "it does not return: it was silent for 0.3 s; threads of this process are not in the one that it is called in"
    )


class Raises(Own):
    """A function of Python that raises."""

    def run(self, *arguments: int) -> None:  # type: ignore[override]
        if arguments[6] == 2:
            raise ValueError("no two rows")
        super().run(*arguments)


def test_a_callback_that_raises_is_refused() -> None:
    with pytest.raises(oc.DescribeError, match="m = 2, n = 1, k = 1"):
        declare(Raises().function)


@pytest.mark.every(10)
@pytest.mark.parametrize(
    ("dtype", "wide"),
    [
        *((one, one) for one in ("float64", "float16", "bfloat16", "int32", "uint8", "int64", "uint64")),
        *((one, "float32") for one in ("float32", "float16", "bfloat16", "int8")),
        *((one, "int32") for one in ("int8", "uint8", "bool")),
    ],
)  # fmt: skip
def test_functions_of_each_type_are_compared_with_sums_in_that_type(dtype: str, wide: str) -> None:
    sizes = {"rows": oc.dim("m", min=1, max=5), "columns": oc.dim("n", min=1, max=9)}
    computes = product(dtype, "" if dtype == wide else wide, **sizes)
    assert Own(dtype, wide).declared(computes=computes, verify=True)
    with pytest.raises(oc.DescribeError, match="m = 1, n = 1, k = 1, "):
        Own(dtype, wide, scale=2).declared(computes=computes, verify=True)


class Saturates(Own):
    """Sums of bytes that stop at the ends of their type."""

    def run(self, a: int, lda: int, b: int, ldb: int, c: int, ldc: int, *rest: int) -> None:
        m, n, k, add = rest
        left, right = self.matrix(a, lda, m, k, self.item), self.matrix(b, ldb, k, n, self.item)
        result = self.matrix(c, ldc, m, n, self.wide)
        total = left.astype("int64") @ right.astype("int64") + (result if add else 0)
        result[...] = total.clip(-(2**31), 2**31 - 1)


def test_integers_wrap_around() -> None:
    with pytest.raises(oc.DescribeError, match="accumulate = 1"):
        Saturates("int8", "int32").declared(computes=product("int8", "int32"), verify=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_blas_is_compared_as_kernels_call_it(dtype: str) -> None:
    pytest.importorskip("scipy", reason="scipy, which brings the BLAS, is not installed")
    name = {"float32": "sgemm", "float64": "dgemm"}[dtype]
    sizes = {"rows": oc.dim("m", min=1, max=9), "columns": oc.dim("n", min=1, max=20)}
    how: dict[str, Any] = {"convention": "blas_gemm", "cycles": 1.0}
    assert oc.external_microkernel(name, product(dtype, **sizes), oc.external.blas(name), **how)
    other = {"float32": "dgemm", "float64": "sgemm"}[dtype]
    with pytest.raises(oc.DescribeError, match="cannot take wrong"):
        oc.external_microkernel(
            "wrong", product(dtype, **sizes), oc.external.blas(other).address, **how
        )


def test_what_is_not_verified_is_said_by_the_plan_and_by_a_cut() -> None:
    case, wrong = contraction("mk,kn->mn"), Own(scale=2)
    says = "own is not verified: it was declared with verify=False"
    declared = wrong.declared(verify=False)
    kernel = build(case.result, inputs=case.inputs, microkernels=[declared])
    assert kernel.plan(m=30, n=9, k=5).notes == (says,)
    tails = {"m": "ladder", "n": "mask"}
    cut = oc.partition(case.result, {"m": 14, "n": 16}, tails, microkernels=[declared])
    assert says in cut.notes
    right = build(case.result, inputs=case.inputs, microkernels=[Own().declared(verify=True)])
    assert right.plan(m=30, n=9, k=5).notes == ()
    arrays = floats("a", 30, 5), floats("b", 5, 9)
    case.check(right(*arrays), arrays)


def test_calls_are_at_all_heights_and_corners_in_both_ways_of_starting() -> None:
    calls = calls_of(70, 300, True)
    assert [sum((c.m, c.n, c.k)) for c in calls] == sorted(sum((c.m, c.n, c.k)) for c in calls)
    for add in (False, True):
        some = [call for call in calls if call.add is add]
        assert {call.m for call in some} == {*range(1, 71)}
        assert {*range(1, 65), 127, 128, 129, 255, 256, 257, 300} <= {call.n for call in some}
        assert {*range(34), 64 + 1, 127, 128, 129, 1025, 4097} <= {call.k for call in some}
        corners = {(call.m, call.n) for call in some}
        assert {(1, 1), (1, 300), (70, 1), (70, 300), (35, 151)} <= corners
        assert {call.values for call in some} == set(Values)
        assert {call.places[0] for call in some} == set(Place)
        assert {call.steps[0] - call.k for call in some} >= {0, 1, 5, 16}
        assert any(call.steps[0] == 0 < call.k and call.m > 1 for call in some)  # rows that are one
        assert all(call.steps[2] >= call.n for call in some)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["height", "width", "terms"])
def test_what_is_wrong_of_one_size_alone_is_refused(kind: str, library: ctypes.CDLL) -> None:
    place = {"height": 6, "width": 7, "terms": 8}[kind]
    for at in range(1, {"height": ROWS, "width": COLUMNS, "terms": 33}[kind] + 1):

        class Once(Own):
            def run(self, *arguments: int, at: int = at) -> None:  # type: ignore[override]
                super().run(*arguments)
                if arguments[place] == at:
                    c, ldc, m, n = (arguments[number] for number in (4, 5, 6, 7))
                    self.matrix(c, ldc, m, n, self.wide)[-1, -1] += 1

        with pytest.raises(oc.DescribeError, match=f"{'mnk'[place - 6]} = {at}, "):
            declare(Once().function)
