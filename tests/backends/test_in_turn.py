"""Entries that are called one after the other: pointers follow their bases, and the first that fails ends the batch."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import offcut as oc
from offcut.backends.abi import STATUS_OUT_OF_BOUNDS
from offcut.backends.cpu import build
from offcut.backends.host.call_sequence import SYMBOL, CallSequence
from offcut.backends.llvm.loader import JitModule
from offcut.errors import CallError, InternalError
from tests.facade import ENTRY, check_status


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
