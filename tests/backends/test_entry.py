"""The address of a kernel: other programs call it as C does."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from offcut import ops
from offcut.backends.abi import STATUS_OUT_OF_BOUNDS
from offcut.backends.cpu import build
from offcut.backends.host.call_sequence import SYMBOL, CallSequence
from offcut.backends.llvm.loader import JitModule
from offcut.errors import CallError, InternalError
from tests.agree import agree, computed, of_program
from tests.compiled import floats, poisoned
from tests.facade import ENTRY, check_status

SIZES = (0, 1, 13, 14, 15, 42, 47)


def called(kernel: oc.Kernel, arrays: list[np.ndarray], sizes: list[int]) -> int:
    """The status of a call through the address alone."""
    entry = kernel.entry
    pointers = (ctypes.c_void_p * (len(arrays) + len(entry.constants)))(
        *(array.ctypes.data for array in arrays), *entry.constants
    )
    extents = (ctypes.c_int64 * max(len(sizes), 1))(*sizes)
    steps = [step // array.itemsize for array in arrays for step in array.strides]
    strides = (ctypes.c_int64 * max(len(steps), 1))(*steps)
    needed = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(entry.workspace)(extents)
    scratch = np.zeros(needed + 64, np.uint8)
    aligned = -(-scratch.ctypes.data // 64) * 64
    call = ctypes.CFUNCTYPE(ctypes.c_int32, *([ctypes.c_void_p] * 4))(kernel.address)
    return call(pointers, extents, strides, aligned)


@pytest.mark.every(4)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("packed", [False, True])
def test_a_call_by_address_gives_the_bits_of_a_call(packed: bool, threads: int) -> None:
    n = oc.dim("n", max=64)
    a, w = oc.placeholder((n, 24), name="A"), oc.placeholder((24, 40), name="W")
    rng = np.random.default_rng(0)
    held = rng.standard_normal((24, 40), dtype=np.float32)
    constants = {"W": held} if packed else {}
    kernel = oc.compile(ops.matmul(a, w), inputs=[a, w], constants=constants, threads=threads)
    assert len(kernel.entry.constants) == len(constants)
    for size in SIZES:
        x = rng.standard_normal((size, 24), dtype=np.float32)
        given = [x] if packed else [x, held]
        result = np.full((size, 40), np.nan, np.float32)
        assert called(kernel, [*given, result], [size]) == 0
        np.testing.assert_array_equal(result, kernel(*given))


def test_an_index_that_leads_outside_is_said_by_the_status() -> None:
    n = oc.dim("n", max=64)
    ids, t = oc.placeholder((n,), "int32", name="ids"), oc.placeholder((9, 4), name="T")
    kernel = oc.compile(ops.embedding(t, ids), inputs=[ids, t])
    rows, table = np.array([3, 9], np.int32), np.ones((9, 4), np.float32)
    assert called(kernel, [rows, table, np.empty((2, 4), np.float32)], [2]) == 1


def test_what_makes_no_machine_code_has_no_address() -> None:
    n = oc.dim("n", max=64)
    a = oc.placeholder((n,), name="A")
    kernel = oc.compile(ops.relu(a), target="interpret")
    with rejection(
        f"TargetError: entry: cannot give the address of {kernel.signature.name}\n"
        "  because  interpret makes no machine code\n"
        "  help     kernel(…) calls it"
    ):
        _ = kernel.address


# Extents of arguments with quotients in them: what a call checks, allocates and says.


EVEN: dict[str, Any] = {
    "2*(n//2)": lambda n: 2 * (n // 2),
    "2*((n - 1)//2) + 3": lambda n: 2 * ((n - 1) // 2) + 3,
    "n - n % 3": lambda n: n - n % 3,
    "3*(n//2//2) + n//5": lambda n: 3 * (n // 2 // 2) + n // 5,
    "(2*(n//2) + 5)//3": lambda n: (2 * (n // 2) + 5) // 3,
}


@pytest.mark.parametrize("extent", EVEN)
def test_a_result_is_as_long_as_the_expression_says(extent: str) -> None:
    size = oc.dim("n", min=1, max=99)
    A = oc.placeholder((size,), name="A")
    B = oc.compute((EVEN[extent](size),), lambda i: oc.cast(i, "float32") + A[0], name="B")
    kernel = oc.compile(B, inputs=[A])
    for n in (1, 2, 3, 4, 7, 30, 99):
        a = floats("extents", n)
        length = EVEN[extent](n)
        exact = np.arange(length, dtype="float32") + a[0]
        np.testing.assert_array_equal(kernel(a), exact)
        np.testing.assert_array_equal(poisoned(kernel, (length,), a), exact)


@pytest.mark.every(2)
@pytest.mark.parametrize("extent", EVEN)
def test_an_operand_is_held_to_the_expression(extent: str) -> None:
    size = oc.dim("n", min=1, max=99)
    A, X = (oc.placeholder((e,), name=name) for name, e in (("A", size), ("X", EVEN[extent](size))))
    C = oc.compute((EVEN[extent](size),), lambda i: X[i] * 2.0 + A[0], name="C")
    kernel = oc.compile(C, inputs=[A, X])
    for n in (1, 2, 7, 30):
        a, x = floats("a", n), floats("x", EVEN[extent](n))
        agree(kernel(a, x), computed(lambda a, x: x * 2 + a[0], a, x))
        with pytest.raises(oc.CallError, match="X disagrees on n"):
            kernel(a, floats("x", EVEN[extent](n) + 1))


def test_an_operand_alone_does_not_say_what_is_divided() -> None:
    size = oc.dim("n", min=2, max=99)
    X = oc.placeholder((2 * (size // 2),), name="X")
    kernel = oc.compile(oc.compute((2 * (size // 2),), lambda i: X[i] + 1.0, name="Y"), inputs=[X])
    np.testing.assert_array_equal(kernel(np.zeros(6, "float32"), n=7), np.ones(6, "float32"))
    with rejection("""\
CallError: Y: X disagrees on n
  at       X
  because  axis 0 of X is 6, but 2*(n//2) = 4 with n = 5 by the keyword"""):
        kernel(np.zeros(6, "float32"), n=5)


@pytest.mark.slow
def test_phases_of_a_transposed_convolution_behind_a_strided_one_are_one_kernel() -> None:
    h = oc.dim("h", min=4, max=64)
    x = oc.placeholder((1, 3, h, 8), name="x")
    w, v = oc.placeholder((4, 3, 3, 3), name="w"), oc.placeholder((4, 2, 2, 2), name="v")
    down = oc.ops.conv2d(x, w, stride=2, padding=1, name="down")
    up = oc.ops.conv_transpose2d(down, v, stride=2, name="up")
    kernel = oc.compile(up, inputs=[x, w, v])
    for rows in (4, 5, 9):
        given = [floats("u", 1, 3, rows, 8), floats("w", 4, 3, 3, 3), floats("v", 4, 2, 2, 2)]
        named = dict(zip("xwv", given, strict=True))
        agree(kernel(*given), of_program(kernel.loops, named))


# Entries that are called one after the other: pointers follow their bases, and the first that fails ends the batch.


def in_turn() -> int:
    n = oc.dim("n")
    x = oc.placeholder((n,), name="X")
    return oc.compile(oc.compute((n,), lambda i: x[i], name="Y")).entry.in_turn


@pytest.mark.parametrize("failing", [None, 0, 1, 2])
def test_calls_are_made_in_order_until_one_fails(failing: int | None) -> None:
    seen = list[tuple[int, ...]]()

    def called(number: int) -> object:
        def run(pointers: int, sizes: int, strides: int, workspace: int | None) -> int:
            words = ctypes.cast(pointers, ctypes.POINTER(ctypes.c_int64))
            seen.append((number, words[0], words[1], sizes, strides, workspace or 0))
            return 7 if number == failing else 0

        return ENTRY(run)

    functions = [called(number) for number in range(3)]
    words = (ctypes.c_int64 * 6)()
    at = ctypes.addressof(words)
    bases = (ctypes.c_int64 * 3)(0, 1000, 2000)
    batch = CallSequence(
        in_turn(),
        [(at + 8 * place, base, 8 * place) for place, base in enumerate((1, 2, 0, 1, 2, 2))],
        [
            (ctypes.cast(one, ctypes.c_void_p).value or 0, at + 16 * n, 64 + n, 128 + n, n == 1)
            for n, one in enumerate(functions)
        ],
        (words, functions),
    )
    every = [
        (0, 1000, 2008, 64, 128, 0),
        (1, 16, 1024, 65, 129, 4096),
        (2, 2032, 2040, 66, 130, 0),
    ]
    for _ in range(2):
        seen.clear()
        status = batch(ctypes.addressof(bases), 4096)
        assert status == (0 if failing is None else 7)
        assert seen == every[: 3 if failing is None else failing + 1]


def test_an_empty_batch_does_nothing() -> None:
    assert CallSequence(in_turn(), [], [], None)(0, 0) == 0


def test_a_status_says_what_was_left() -> None:
    check_status("model", 0)
    with pytest.raises(CallError, match="leads outside of an array"):
        check_status("model", STATUS_OUT_OF_BOUNDS)
    with pytest.raises(InternalError, match="returned 9"):
        check_status("model", 9)


def test_the_address_is_the_same_for_all_kernels() -> None:
    assert in_turn() == in_turn()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_compact_arrays_are_seen_as_views_see_them(dtype: str) -> None:
    from offcut.backends.host import arrays
    from tests.facade import numpy_dtype

    made = np.zeros((3, 5, 2), numpy_dtype(dtype))
    for array in (made, made[1:], made[:, 1:1], made[0, 0, 0:1].reshape(())[()] * made[:1]):
        found, seen = arrays.contiguous_info(array), arrays.view(array, "x", op="k")
        assert found == (seen.address, seen.shape, seen.dtype)
    bytes_ = np.zeros(65, np.uint8)[1:].view(np.uint8)
    others = (made[:, ::2], made.transpose(1, 0, 2), made.astype(">f4"), [1.0], 3.0)
    assert [arrays.contiguous_info(one) for one in others] == [None] * len(others)
    assert arrays.contiguous_info(bytes_) is not None
    assert arrays.contiguous_info(bytes_[:64].view(np.float32)) is None


def test_compact_tensors_are_seen_as_views_see_them() -> None:
    torch = pytest.importorskip("torch", reason="torch is an extra")
    from offcut.backends.host import arrays

    made = torch.zeros(3, 5, 2)
    for tensor in (made, made[1:], made.bfloat16(), made.bool()):
        found, seen = arrays.contiguous_info(tensor), arrays.view(tensor, "x", op="k")
        assert found == (seen.address, seen.shape, seen.dtype)
    others = (
        made[:, ::2],
        made.clone().requires_grad_(),
        torch.nn.Parameter(made),
        made.to("meta"),
        torch.zeros(2, dtype=torch.complex64),
        torch.zeros(2, dtype=torch.complex64).conj().imag,
        made.to_sparse(),
    )
    assert [arrays.contiguous_info(one) for one in others] == [None] * len(others)


def test_an_entry_keeps_the_function_that_calls_it() -> None:
    """Of threads that ask for it at once each has its own, and what is remembered of it is one of them."""
    x = oc.placeholder((oc.dim("n"),), name="X")
    code = oc.compile(oc.compute(x.shape, lambda i: x[i] + 1.0, "Y")).code.loaded
    build._in_turn.cache_clear()
    first = code.entry({})
    build._in_turn.cache_clear()
    for entry in (first, code.entry({})):
        turns = [
            one for one in entry.owners if isinstance(one, JitModule) and one is not code.loaded
        ]
        assert [one.address(SYMBOL) for one in turns] == [entry.in_turn]
