"""Calls of a model at sizes that it had before, which machine code makes by itself: the same bits, nothing kept, and Python where it must be."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest

import offcut as oc
from offcut.errors import CallError
from offcut.graph import Builder, Model, compile_graph
from offcut.graph.models import model as models
from offcut.graph.models.kernel_step import observed_by
from tests.agree import agree

ROWS = [0, 1, 3, 4, 5, 12, 17]
WEIGHTS = np.random.default_rng(7).standard_normal((8, 8), dtype=np.float32) / 8


def model_of_two_outputs(threads: int = 1) -> Model:
    """``y = relu(x w) w + z`` and ``u = relu(x w)``, of any rows."""
    b = Builder("pair")
    n = b.size("n", 0, 1 << 20)
    x, z = b.input("x", "float32", (n, 8)), b.input("z", "float32", (n, 8))
    w = b.constant("w", WEIGHTS)
    u = b.node("maximum", b.node("matmul", x, w), b.constant("zero", np.float32(0)))
    b.output(b.node("add", b.node("matmul", u, w), z), u)
    return compile_graph(b.bound, threads=threads)


@pytest.fixture(scope="module")
def pair() -> Model:
    return model_of_two_outputs()


def given(rows: int, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((rows, 8), dtype=np.float32) for _ in range(2)]


def expected(x: Any, z: Any) -> tuple[Any, Any]:
    u = np.maximum(x.astype("f8") @ WEIGHTS, 0)
    return u @ WEIGHTS + z, u


@pytest.mark.parametrize("rows", ROWS)
def test_a_second_call_is_made_without_python_and_gives_the_same_bits(
    pair: Model, rows: int
) -> None:
    arrays = given(rows)
    first = pair(*arrays)
    for _ in range(2):
        known = pair.at_known_sizes(*arrays)
        assert known is not None
        for one, other, wanted in zip(known, first, expected(*arrays), strict=True):
            np.testing.assert_array_equal(one, other)
            agree(one, wanted, terms=8)
    by_name = pair({"z": arrays[1], "x": arrays[0]})
    assert [*by_name] == [*pair.bound.graph.outputs]
    for one, other in zip(by_name.values(), first, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_not_as_it_was_goes_through_python(pair: Model) -> None:
    x, z = given(5)
    pair(x, z)
    wide = np.zeros((5, 16), np.float32)
    wide[:, ::2] = x
    read = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(5, 8)
    for other in (wide[:, ::2], np.asfortranarray(x), read, x.astype(">f4").view(">f4")):
        assert pair.at_known_sizes(other, z) is None
    for other in (wide[:, ::2], np.asfortranarray(x), read):
        np.testing.assert_array_equal(pair(other, z)[0], pair(x, z)[0])
    for wrong in ([x], [x, z, z], [x[:4], z], [x.astype("f8"), z], [x, None], [x.tolist(), z]):
        assert pair.at_known_sizes(*wrong) is None
    assert pair.at_known_sizes(x, z, n=5) is None
    with pytest.raises(CallError, match="takes 2 arrays, got 1"):
        pair(x)
    with pytest.raises(CallError, match="cannot take x of float64"):
        pair(x.astype("f8"), z)
    with pytest.raises(CallError, match="cannot run without z"):
        pair({"x": x})


def test_an_axis_of_one_element_has_any_stride(pair: Model) -> None:
    x, z = given(1)
    pair(x, z)
    for row in (x[0][None], x[[0, 0]][::2], np.broadcast_to(x[0], (1, 8))):
        known = pair.at_known_sizes(row, z)
        assert known is not None
        np.testing.assert_array_equal(known[0], pair(x, z)[0])


def test_no_object_and_no_memory_is_kept_by_calls(pair: Model) -> None:
    x, z = given(3)
    feed, wrong = {"x": x, "z": z}, given(4, 1)[0]
    pair(x, z)
    watched = [x, z, feed, x.dtype, "x", None, wrong]

    def calls(count: int) -> None:
        for _ in range(count):
            pair(x, z)
            pair(feed)
            pair.at_known_sizes(wrong, z)

    model = model_of_two_outputs()
    results = [model(*given(3)) for _ in range(3)]
    gone = weakref.ref(model)
    gc.collect()
    gc.disable()
    try:
        del model
        assert gone() is None, "it is freed at once"
    finally:
        gc.enable()
    agree(results[-1][0], expected(*given(3))[0], terms=8)
    calls(100)
    gc.collect()
    tracemalloc.start()
    try:
        before = [sys.getrefcount(one) for one in watched], tracemalloc.get_traced_memory()[0]
        calls(20_000)
        after = [sys.getrefcount(one) for one in watched], tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert all(abs(a - b) < 50 for a, b in zip(after[0], before[0], strict=True))
    assert after[1] - before[1] < 10_000


def test_threads_call_one_model_at_once() -> None:
    """The larger sizes let other threads run meanwhile: what comes then goes through Python, with memory of its own."""
    model = model_of_two_outputs()
    every = [given(rows, rows) for rows in (2, 3000, 9, 3001)]
    wanted = [model(*arrays) for arrays in every]
    wrong = list[int]()

    def run(first: int) -> None:
        for number in range(first, first + 60):
            found = model(*every[number % 4])
            if not all(map(np.array_equal, found, wanted[number % 4])):
                wrong.append(number)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


def test_a_call_inside_of_a_call_has_memory_of_its_own(pair: Model) -> None:
    """As a finalizer that runs while results are allocated may make one: the head says that a call runs."""
    x, z = given(12)
    wanted = pair(x, z)
    head, busy = pair._known._head, 3
    head[busy] = 1
    try:
        assert pair.at_known_sizes(x, z) is None
        np.testing.assert_array_equal(pair(x, z)[0], wanted[0])
    finally:
        head[busy] = 0
    assert pair.at_known_sizes(x, z) is not None


def test_sizes_that_were_not_met_for_long_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "MOST_FRAMES", 3)
    model = model_of_two_outputs()
    for rows in (1, 300, 3, 1000, 2, 5, 1):  # memory grows with the sizes
        model(*given(rows))
        assert model.at_known_sizes(*given(rows)) is not None
        assert len(model._known._records) <= 3
    every = (0, 1, 2, 3, 4, 5, 300, 1000)
    assert sum(model.at_known_sizes(*given(rows)) is not None for rows in every) == 3
    for rows in every:
        agree(model(*given(rows))[0], expected(*given(rows))[0], terms=8)


def test_an_observer_sees_every_call(pair: Model) -> None:
    pair(*given(4))
    seen = list[str]()

    class Seen:
        def model(self, model: Any, sizes: Any) -> Any:
            seen.append("model")
            return threading.Lock()

        def kernel(self, step: Any) -> Any:
            seen.append(step.name)
            return threading.Lock()

    with observed_by(Seen()):
        assert pair.at_known_sizes(*given(4)) is None
        pair(*given(4))
        pair(*given(4))
    assert seen == ["model", *(step.name for step in pair.steps)] * 2
    assert pair.at_known_sizes(*given(4)) is not None


def test_an_index_out_of_an_array_is_refused_again() -> None:
    b = Builder("rows")
    x = b.input("x", "float32", (b.size("n", 1, 99), 4))
    b.output(b.node("take", x, b.input("at", "int64", (2,)), 0))
    model = compile_graph(b.bound, threads=1)
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    good, bad = np.array([2, 0]), np.array([1, 3])
    np.testing.assert_array_equal(model(data, good), data[good])
    assert model.at_known_sizes(data, good) is not None
    assert model.at_known_sizes(data, bad) is None
    with pytest.raises(CallError, match="leads outside of an array"):
        model(data, bad)
    np.testing.assert_array_equal(model(data, good), data[good])


def test_a_file_is_called_by_its_names_and_in_order(pair: Model, tmp_path: Any) -> None:
    inputs, outputs = {"b": "z", "a": "x"}, dict(zip("pq", pair.bound.graph.outputs, strict=True))
    x, z = given(3)
    wanted, feed = pair(x, z), {"a": x, "b": z}
    for returns in ("arrays", "mapping"):
        pair.save(tmp_path / returns, inputs, outputs, returns)
        model = oc.load(tmp_path / returns)
        watched = [x, z, x.dtype, *feed, *outputs, None]
        before = [*map(sys.getrefcount, watched)]
        for _ in range(2000):
            by_name, in_order = model(feed), model(z, x)
        after = [*map(sys.getrefcount, watched)]
        assert all(abs(a - b) < 20 for a, b in zip(after, before, strict=True))
        assert [*by_name] == ["p", "q"]
        listed = [*in_order.values()] if returns == "mapping" else in_order
        for one, other, result in zip(by_name.values(), listed, wanted, strict=True):
            np.testing.assert_array_equal(one, result)
            np.testing.assert_array_equal(other, result)
        with pytest.raises(CallError, match="takes b, a, got a"):
            model({"a": x})
        with pytest.raises(CallError, match="a has the wrong element type"):
            model({"a": x.astype("f8"), "b": z})
        with pytest.raises(CallError, match="takes 2 arrays, got 1"):
            model(x)


def test_tensors_of_torch_are_taken_as_they_are(pair: Model) -> None:
    torch = pytest.importorskip("torch", reason="torch is an extra")
    x, z = given(5)
    wanted = pair(x, z)
    tx, tz = torch.from_numpy(x), torch.from_numpy(z)
    pair(tx, tz)
    known = pair.at_known_sizes(tx, tz)
    assert known is not None
    assert all(type(one) is torch.Tensor for one in known)
    np.testing.assert_array_equal(known[0].numpy(), wanted[0])
    grown = tx.clone().requires_grad_()
    for other in (grown, torch._neg_view(-tx), tx.double(), tx.t(), tx[:, ::2]):
        assert pair.at_known_sizes(other, tz) is None
    with pytest.raises(CallError, match="x is negated lazily"):
        pair(torch._neg_view(-tx), tz)
    before = sys.getrefcount(tx)
    for _ in range(1000):
        pair(tx, tz)
    assert sys.getrefcount(tx) - before < 5
