"""A compiled kernel as an object: called from threads and after fork, pickled, planned, shown, abused."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import itertools
import json
import multiprocessing
import pickle
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from compiled import (
    BLOCK,
    STRATEGIES,
    Array,
    build,
    contraction,
    floats,
    in_child,
    needs_fork,
    poisoned,
    same_bits,
)
from conftest import edge_sizes, rejection
from guarded import walled

import offcut as oc
from offcut import Kernel
from offcut.backends.cpu.machine import jit
from tests.agree import nearly
from tests.facade import numpy_dtype

DEPTH, COLUMNS = 19, 37
W = floats("w", DEPTH, COLUMNS)
DENSE = contraction("mk,kn->mn", {"k": DEPTH, "n": COLUMNS})
FREE = contraction("mk,kn->mn")
SIZES = edge_sizes(BLOCK)

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"
)  # fork beside threads is meant


@pytest.fixture(scope="module")
def packed() -> dict[str, Kernel]:
    return {
        s: build(DENSE.result, inputs=DENSE.inputs, constants={"B": W}, strategy=s)
        for s in STRATEGIES
    }


@pytest.fixture(scope="module")
def plain() -> dict[str, Kernel]:
    return {s: build(FREE.result, inputs=FREE.inputs, strategy=s) for s in STRATEGIES[1:]}


@pytest.fixture(scope="module")
def softmax() -> Kernel:
    m, n = oc.dim("m", max=4096), oc.dim("n", max=4096)
    X, r, s = oc.placeholder((m, n), name="X"), oc.reduce_axis(n, "r"), oc.reduce_axis(n, "s")
    top = oc.compute((m,), lambda i: oc.max(X[i, r], axis=r), name="top")
    e = oc.compute((m, n), lambda i, j: oc.exp(X[i, j] - top[i]), name="e")
    total = oc.compute((m,), lambda i: oc.sum(e[i, s], axis=s), name="total")
    Z = oc.compute((m, n), lambda i, j: e[i, j] / total[i], name="Z")
    return build(Z, inputs=[X], strategy="shift")


def test_eight_threads_call_one_kernel_with_different_sizes(
    packed: dict[str, Kernel], plain: dict[str, Kernel], softmax: Kernel
) -> None:
    inputs = [floats(t, m, DEPTH) for t, m in enumerate((1, 2, 13, 14, 15, 29, 64, 100))]
    dense, free = packed["auto"], plain["pad"]
    expected = [(dense(x), free(x, W), softmax(x)) for x in inputs]

    def work(number: int) -> bool:
        x = inputs[number]
        return all(
            same_bits(one, other)
            for _ in range(100)
            for one, other in zip((dense(x), free(x, W), softmax(x)), expected[number], strict=True)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


@needs_fork
def test_a_forked_process_calls_compiles_and_exits(packed: dict[str, Kernel]) -> None:
    x = floats("x", 15, DEPTH)
    expected = packed["auto"](x)

    def child() -> None:
        assert same_bits(packed["auto"](x), expected)
        made = build(DENSE.result, inputs=DENSE.inputs, strategy="cut")
        assert same_bits(made(x, W), expected)

    assert in_child(child) == 0


def called(kernel: Kernel, x: Array) -> Array:
    result: Array = kernel(x)
    return result


@pytest.mark.every(2)
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_of_processes_receives_kernels(packed: dict[str, Kernel], method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"the system has no {method}")
    work = [(packed[s], floats(s, m, DEPTH)) for s, m in (("auto", 5), ("shift", 29))]
    with multiprocessing.get_context(method).Pool(1) as pool:
        results = pool.starmap(called, work)
    for (kernel, x), result in zip(work, results, strict=True):
        assert same_bits(result, kernel(x))


def test_a_pickled_kernel_comes_back_from_the_cache(
    packed: dict[str, Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit, "object_code", lambda *_, **__: pytest.fail("code was generated"))
    x = floats("x", 29, DEPTH)
    for kernel in packed.values():
        again = pickle.loads(pickle.dumps(kernel))
        assert same_bits(again(x), kernel(x))
        assert (repr(again), again.signature) == (repr(kernel), kernel.signature)
        assert same_bits(pickle.loads(pickle.dumps(again))(x), kernel(x))


def test_a_pickled_kernel_keeps_the_promises_it_was_compiled_under() -> None:
    size = oc.dim("size", max=64)
    P = oc.placeholder((size,), name="P")
    Y = oc.compute((size,), lambda i: P[i] + 1.0, name="Y")
    with oc.assume(size % 4 == 0):
        kernel = build(Y, inputs=[P])
    again = pickle.loads(pickle.dumps(kernel))
    assert (again.signature, again.source()) == (kernel.signature, kernel.source())
    assert again(np.ones(8, "float32")).tolist() == [2.0] * 8
    assert pickle.loads(pickle.dumps(again)).signature == kernel.signature
    with pytest.raises(oc.CallError) as wanted:
        kernel(np.ones(6, "float32"))
    with pytest.raises(oc.CallError) as refused:
        again(np.ones(6, "float32"))
    assert str(refused.value) == str(wanted.value)
    assert "assume(size % 4 == 0)" in refused.value.because
    assert build(Y, inputs=[P])(np.ones(6, "float32")).tolist() == [2.0] * 6


def test_a_kernel_lives_as_long_as_its_results_need() -> None:
    kernel = build(DENSE.result, inputs=DENSE.inputs, constants={"B": W.copy()}, strategy="cut")
    call = kernel.__call__
    x = floats("x", 15, DEPTH)
    expected = kernel(x)
    del kernel
    gc.collect()
    assert same_bits(call(x), expected)


def test_constants_are_copied(packed: dict[str, Kernel]) -> None:
    mine = W.copy()
    kernel = build(DENSE.result, inputs=DENSE.inputs, constants={"B": mine}, strategy="shift")
    x = floats("x", 15, DEPTH)
    mine[:] = np.nan
    assert same_bits(kernel(x), packed["shift"](x))


def test_other_constants_take_the_same_code(
    packed: dict[str, Kernel], plain: dict[str, Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit, "object_code", lambda *_, **__: pytest.fail("code was generated"))
    monkeypatch.setattr(jit, "load", lambda *_, **__: pytest.fail("code was loaded"))
    x, other = floats("x", 29, DEPTH), floats("other", DEPTH, COLUMNS)
    for kernel in packed.values():
        before = kernel(x)
        changed = kernel.with_constants({"B": other})
        assert same_bits(changed(x), plain["cut"](x, other))
        assert same_bits(kernel(x), before)
        assert same_bits(changed.with_constants({"B": W})(x), before)


def test_constants_of_any_layout_are_packed(packed: dict[str, Kernel]) -> None:
    x = floats("x", 15, DEPTH)
    wide = np.repeat(W, 2, axis=1)[:, ::2]
    for constant in (np.asfortranarray(W), wide, W[::-1].copy()[::-1]):
        assert same_bits(packed["cut"].with_constants({"B": constant})(x), packed["cut"](x))


def test_a_kernel_names_its_inputs_and_sizes(
    packed: dict[str, Kernel], plain: dict[str, Kernel]
) -> None:
    assert repr(packed["auto"]) == "<kernel C(A) for any m>"
    assert repr(plain["cut"]) == "<kernel C(A, B) for any m, k, n>"
    fixed = build(DENSE.result, inputs=DENSE.inputs, constants={"A": floats("a", 3, DEPTH)})
    assert repr(fixed) == "<kernel C(B) for any call>"


def test_a_size_may_be_named_self() -> None:
    size, other = oc.dim("self", max=64), oc.dim("other", max=64)
    P = oc.placeholder((size,), name="P")
    Y = oc.compute((size, other), lambda i, j: P[i] + oc.cast(j, "float32"), name="Y")
    kernel = build(Y, inputs=[P])
    assert repr(kernel) == "<kernel Y(P) for any self, other>"
    assert kernel.plan(self=2, other=3).pieces
    x = np.ones(2, "float32")
    assert kernel(x, other=3).tolist() == [[1, 2, 3], [1, 2, 3]]
    assert kernel(x, self=2, other=3).tolist() == [[1, 2, 3], [1, 2, 3]]
    with rejection(
        "CallError: Y: P disagrees on self\n"
        "  at       P\n"
        "  because  axis 0 of P is 2, but self = 4 by the keyword"
    ):
        kernel(x, self=4, other=3)


def test_the_source_has_three_forms(packed: dict[str, Kernel]) -> None:
    kernel = packed["shift"]
    loops = kernel.source()
    assert loops == kernel.source("loops") == str(kernel.partition)
    assert oc.parse(loops) == kernel.partition.loops
    assert "define i32 @offcut_entry" in kernel.source("llvm")
    assert "offcut_entry:" in kernel.source("asm")


def owners(kernel: Kernel, m: int, sizes: dict[str, int]) -> Counter[tuple[int, int]]:
    """How often a piece owns each element."""
    counted: Counter[tuple[int, int]] = Counter()
    for piece in kernel.plan(m=m, **sizes).pieces:
        (i_lo, i_hi), (j_lo, j_hi) = (
            piece.ranges.get("m", (0, m)),
            piece.ranges.get("n", (0, COLUMNS)),
        )
        counted.update(itertools.product(range(i_lo, i_hi), range(j_lo, j_hi)))
        depth = sizes.get("k", DEPTH)
        assert piece.instances == (i_hi - i_lo) * (j_hi - j_lo) * depth
    return counted


@pytest.mark.every(6)
@pytest.mark.parametrize("m", SIZES)
def test_the_pieces_of_a_plan_own_every_element_once(
    packed: dict[str, Kernel], plain: dict[str, Kernel], m: int
) -> None:
    everything = Counter(itertools.product(range(m), range(COLUMNS)))
    for strategy, kernel in packed.items():
        assert owners(kernel, m, {}) == everything, strategy
    for strategy in ("shift", "balance", "guard"):
        found = owners(plain[strategy], m, {"n": COLUMNS, "k": 3})
        assert found == everything, strategy


def test_a_plan_is_data_text_and_a_table(packed: dict[str, Kernel]) -> None:
    plan = packed["auto"].plan(m=29)
    data = plan.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert set(data) - {"notes"} == {
        *("kernel", "sizes", "predicted_seconds", "call_seconds", "pieces", "considered")
    }
    assert (data["kernel"], data["sizes"]) == ("C", {"m": 29})
    assert data["predicted_seconds"] == plan.seconds > data["call_seconds"] > 0
    assert plan.seconds == nearly(packed["auto"].cost(m=29).seconds)
    assert sum(piece["instances"] for piece in data["pieces"]) == 29 * COLUMNS * DEPTH
    in_pieces = sum(piece.seconds for piece in plan.pieces)
    assert in_pieces + plan.beside == nearly(plan.seconds)
    assert [one["chosen"] for one in data["considered"]].count(True) == 1
    chosen = next(one for one in plan.considered if one.chosen)
    assert chosen.seconds == min(one.seconds for one in plan.considered)
    assert str(plan).startswith("C(m = 29), predicted ")
    assert all(piece.microkernel in str(plan) for piece in plan.pieces)
    page = plan._repr_html_()
    assert page.count("<tr>") == page.count("</tr>") == len(plan.pieces) + 1
    assert packed["auto"].plan(m=0).pieces == ()


def test_a_piece_takes_its_share_of_a_nest_by_what_it_would_take_alone() -> None:
    target = oc.target("cpu", machine="cascade-lake")
    kernel = build(DENSE.result, inputs=DENSE.inputs, strategy="cut", target=target)
    for m in (1, 13, 29, 100):
        pieces, costs = kernel.plan(m=m).pieces, kernel.cost(m=m).pieces
        assert [piece.microkernel for piece in pieces] == [one.microkernel for one in costs]
        alone = [one.cycles for one in costs]
        for piece, cycles in zip(pieces, alone, strict=True):
            share = piece.seconds / sum(one.seconds for one in pieces)
            assert 0.95 < share / (cycles / sum(alone)) < 1.05


def test_every_number_that_plan_takes_is_a_size_of_the_call(softmax: Kernel) -> None:
    plan = softmax.plan(m=5, n=33)
    assert {piece.stage for piece in plan.pieces} == {"top", "e", "total", "Z"}


def test_every_element_of_the_result_is_written_and_nothing_else(
    packed: dict[str, Kernel], plain: dict[str, Kernel], softmax: Kernel
) -> None:
    for m in SIZES:
        x = floats("x", m, DEPTH)
        for name, kernel in (*packed.items(), *plain.items()):
            arrays = (x,) if kernel is packed.get(name) else (x, W)
            around = np.full((m + 4, COLUMNS + 40), np.nan, "float32")
            inside = around[2 : m + 2, 20:-20]
            assert kernel(*arrays, out=inside) is inside
            assert not np.isnan(inside).any()
            inside[:] = np.nan
            assert np.isnan(around).all(), f"{name} at {m} writes beside its result"
        assert not np.isnan(poisoned(softmax, (m, DEPTH), x)).any()


@needs_fork
def test_the_guard_is_real() -> None:
    def past() -> None:
        faulthandler.disable()  # the crash is wanted
        ctypes.string_at(walled(np.zeros(5, "uint8"), at_end=True).ctypes.data, 6)

    def before() -> None:
        faulthandler.disable()
        ctypes.string_at(walled(np.zeros(5, "uint8"), at_end=False).ctypes.data - 1, 1)

    assert in_child(past) < 0
    assert in_child(before) < 0


@pytest.mark.every(3)
@needs_fork
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_strategy_touches_memory_outside_its_arrays(
    packed: dict[str, Kernel], plain: dict[str, Kernel], strategy: str
) -> None:
    def child() -> None:
        for m, at_end in itertools.product((1, 3, 13, 15, 29, 43), (True, False)):
            x = walled(floats("x", m, DEPTH), at_end)
            out = walled(np.full((m, COLUMNS), np.nan, "float32"), at_end)
            assert packed[strategy](x, out=out) is out
            assert same_bits(out, packed["cut"](x.copy()))
        if strategy not in plain:
            return
        for m, n, k in itertools.product((1, 13, 15, 29), (1, 7, 17, 53), (1, 5, 19)):
            for at_end in (True, False):
                a, b = (
                    walled(floats("a", m, k), at_end),
                    walled(floats("b", k, n), at_end),
                )
                out = walled(np.full((m, n), np.nan, "float32"), at_end)
                assert plain[strategy](a, b, out=out) is out
                assert same_bits(out, plain["cut"](a.copy(), b.copy()))

    assert in_child(child) == 0


@needs_fork
@pytest.mark.slow
def test_other_operand_orders_and_types_touch_no_memory_outside_either(softmax: Kernel) -> None:
    kernels = [
        (spec, build(contraction(spec, dtype=dtype).result, strategy=strategy), dtype)
        for spec, dtype, strategy in (
            ("km,nk->mn", "float32", "shift"),
            ("mk,k->m", "float32", "auto"),
            ("km,k->m", "float64", "mask"),
            ("bmk,bkn->bmn", "float64", "ladder"),
            ("mn,mn->mn", "float16", "auto"),
            ("mk,kn->mn", "int8", "mask"),
        )
    ]

    def child() -> None:
        for (spec, kernel, dtype), at_end in itertools.product(kernels, (True, False)):
            for m, n, k in ((1, 1, 1), (15, 17, 5), (29, 33, 19)):
                sizes = {"m": m, "n": n, "k": k, "b": 2}
                left, result = spec.split("->")
                arrays = [
                    (4 * floats(s, *(sizes[a] for a in s))).astype(numpy_dtype(dtype))
                    for s in left.split(",")
                ]
                out = np.zeros(tuple(sizes[a] for a in result), numpy_dtype(dtype))
                inside = [walled(each, at_end) for each in (*arrays, out)]
                assert same_bits(kernel(*inside[:-1], out=inside[-1]), kernel(*arrays)), spec
        for m, n in itertools.product((1, 7, 15), (1, 5, 16, 33)):
            for at_end in (True, False):
                x = walled(floats("x", m, n), at_end)
                softmax(x, out=walled(np.zeros((m, n), "float32"), at_end))

    assert in_child(child) == 0


def junk(choose: random.Random) -> Any:
    """Something that is, or is nearly, or is not at all an argument."""
    rank = choose.randint(0, 4)
    shape = tuple(choose.choice((0, 1, 3, DEPTH, COLUMNS, 4097)) for _ in range(rank))
    if int(np.prod(shape, dtype=np.int64)) > 100_000:
        shape = shape[:1]
    types = ("float32", "float64", "float16", "int32", "int8", "bool", "complex64", "S3", "object")
    array = np.zeros(shape, choose.choice((*types, "float32", "float32", ">f4", "M8[s]")))
    frozen = np.zeros((3, DEPTH), "float32")
    frozen.flags.writeable = False
    return choose.choice(
        [
            array,
            array,
            array.T,
            array[..., ::-1] if rank else array,
            np.broadcast_to(np.float32(1), (choose.choice((1, 3, 2**40)), DEPTH)),
            np.lib.stride_tricks.as_strided(np.zeros(99, "float32"), (3, DEPTH), (4, 4)),
            frozen,
            np.ma.masked_array(np.zeros((3, DEPTH), "float32")),
            np.zeros((3, DEPTH), [("x", "f4")]),
            memoryview(b"123"),
            array[..., :2].tolist() if rank == 1 else [[1.0]],
            *(
                None,
                1,
                -1,
                2.5,
                10**30,
                "x",
                b"x",
                (),
                [],
                {},
                object(),
                type,
                np.float32(1),
                print,
            ),
        ]
    )


@needs_fork
def test_no_call_whatever_its_arguments_does_anything_but_answer_or_refuse(
    packed: dict[str, Kernel], plain: dict[str, Kernel], softmax: Kernel
) -> None:
    kernels = (packed["auto"], plain["shift"], softmax)

    def child() -> None:
        choose = random.Random(11)
        outcomes: Counter[str] = Counter()
        for _ in range(4000):
            kernel = choose.choice(kernels)
            args = [junk(choose) for _ in range(choose.choice((0, 1, 1, 1, 2, 2, 3)))]
            names = choose.sample(
                ["out", "m", "n", "k", "x", "strategy"], choose.choice((0, 0, 1, 2))
            )
            try:
                kernel(*args, **{name: junk(choose) for name in names})
                outcomes["answered"] += 1
            except oc.CallError as error:
                outcomes["refused" if "\n  because " in str(error) else "mumbled"] += 1
        assert outcomes["answered"] > 20
        assert outcomes["refused"] > 1000
        assert outcomes["mumbled"] == 0

    assert in_child(child) == 0
