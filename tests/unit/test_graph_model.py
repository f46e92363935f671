"""Models: few kernels, no copies but where they are needed, memory used again; every call as the interpreter computes it."""

import copy
import gc
import pickle
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from conftest import rejection

from offcut.core import index as ix
from offcut.describe.request import borrow
from offcut.errors import CallError, DescribeError
from offcut.ir import Binary, Kind
from tests.agree import nearly
from tests.compiled import floats
from tests.facade import Bound, Builder, Model, Ref, compile_graph, interpret_graph, parse_graph
from tests.graphs import arrays, drawn
from tests.operators import near


@pytest.fixture(scope="module")
def model() -> Model:
    return compile_graph(block(), threads=1)


def test_a_model_costs_what_its_kernels_cost_at_the_sizes_that_they_run_at(model: Model) -> None:
    cost = model.cost(b=2, n=7)
    assert [one.value for one in cost.kernels] == [step.name for step in model.steps]
    assert cost.flop == sum(one.each.flop for one in cost.kernels)
    calls = sum(one.each.call / one.each.hertz for one in cost.kernels)  # each from Python
    assert cost.seconds == nearly(sum(one.each.seconds for one in cost.kernels) - calls)
    assert cost.flop < model.cost(b=2, n=14).flop < 5 * cost.flop
    assert str(cost).splitlines()[0].startswith("block(b = 2, n = 7): ")
    assert len(str(cost).splitlines()) == 3 + len(model.steps)
    with rejection(
        "CallError: cost: cannot do without b, n\n  because  the sizes of block are b, n\n  help     cost(b=…, n=…)"
    ):
        model.cost()
    with pytest.raises(CallError, match="cost: cannot take n = 0\n  because  n is in 1…64"):
        model.cost(b=2, n=0)


@pytest.mark.every(3)
@pytest.mark.parametrize("seed", range(100, 106, 2))
def test_a_drawn_graph_runs_as_it_is_interpreted(seed: int) -> None:
    bound = drawn(seed, 7)
    model = compile_graph(bound, threads=1)
    for sizes in ({"b": 1, "n": 1}, {"b": 3, "n": 4}, {"b": 2, "n": 1}):
        given = arrays(bound, seed, **sizes)
        found, expected = model(given), interpret_graph(bound, given)
        assert list(found) == list(expected)
        for name in found:
            near(found[name], expected[name])


def block() -> Bound:
    """A layer of a transformer, at any batch and length, as front ends write it: rows are merged for products."""
    made = Builder("block")
    b, n = made.size("b", 1, 16), made.size("n", 1, 64)
    generator = np.random.default_rng(0)

    def weights(*shape: int) -> object:
        values = generator.uniform(-0.3, 0.3, shape).astype("float32")
        return made.constant(made.fresh("w"), values)

    def linear(x: object, rows: int, columns: int) -> object:
        flat = made.node("reshape", x, [Binary("*", b, n), rows])
        made_ = made.node("dense", flat, weights(rows, columns), weights(columns))
        return made.node("reshape", made_, [b, n, columns])

    x = made.input("x", "float32", (b, n, 16))
    heads = linear(made.node("layernorm", x), 16, 48)
    q, k, v = (
        made.node(
            "transpose",
            made.node("reshape", made.node("slice", heads, 2, at, at + 16), [b, n, 2, 8]),
            axes=[0, 2, 1, 3],
        )
        for at in (0, 16, 32)
    )
    scores = made.node("matmul", q, k, transpose_b=True)
    mixed = made.node("matmul", made.node("softmax", made.node("multiply", scores, 0.35)), v)
    joined = made.node("reshape", made.node("transpose", mixed, axes=[0, 2, 1, 3]), [b, n, 16])
    x = made.node("add", x, linear(joined, 16, 16))
    hidden = made.node("gelu", linear(made.node("layernorm", x), 16, 24))
    made.output(made.node("add", x, linear(hidden, 24, 16)))
    return made.bound


def test_a_layer_is_few_kernels_on_joined_rows_and_nothing_is_copied(model: Model) -> None:
    assert (
        str(model.plan())
        == """\
block(): 9 kernels, 8 distinct
value             operators        shape           memory
layernorm         layernorm        [b * n, 16]     slot 0
dense_rows        dense            [b * n, 48]     slot 1
multiply          matmul multiply  [b, 2, n, n]    slot 0
softmax           softmax          [2*(b * n), n]  slot 2
matmul_2          matmul           [b, n, 2, 8]    slot 0
add_rows          dense add        [b * n, 16]     slot 1
layernorm_2_rows  layernorm        [b * n, 16]     slot 0
gelu_rows         dense gelu       [b * n, 24]     slot 2
add_2_rows        dense add        [b * n, 16]     result
arena: max(64*(b * n), 8*(b * n * n)) + max(192*(b * n), 64*(b * n)) + max(8*(b * n * n), 96*(b * n)) bytes"""
    )
    assert model.plan(b=2, n=3).sizes == {"b": 2, "n": 3}
    with pytest.raises(CallError, match="the sizes of block are b, n"):
        model.plan(b=2)


@pytest.mark.every(2)
@pytest.mark.parametrize(("b", "n"), [(1, 1), (2, 13)])
def test_one_model_serves_every_batch_and_length(b: int, n: int, model: Model) -> None:
    given = arrays(model.bound, 7, b=b, n=n)
    expected = interpret_graph(block(), given)["add_2"]
    near(model(given)["add_2"], expected)
    near(model(given["x"]), expected)
    strided = np.zeros((b, n, 32), "float32")
    strided[..., ::2] = given["x"]
    near(model(strided[..., ::2]), expected)


def test_results_are_fresh_arrays_in_several_threads_too(model: Model) -> None:
    every = [arrays(model.bound, seed, b=seed % 3 + 1, n=seed % 5 + 1)["x"] for seed in range(12)]
    expected = [model(x) for x in every]
    kept = [array.copy() for array in expected]
    found: dict[int, np.ndarray] = {}

    def run(number: int) -> None:
        for _ in range(20):
            found[number] = model(every[number])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(every))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for number, array in enumerate(kept):
        np.testing.assert_array_equal(found[number], array)
        np.testing.assert_array_equal(expected[number], array)


def test_a_frame_is_given_back_when_all_is_copied_out_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = Builder("views")
    x = b.input("x", "float32", (b.size("n", 0, 64), 3, 4))
    b.output(b.node("reshape", x, (-1, 4)))
    model = compile_graph(b.bound, threads=1)
    copied, free = Model._copied_output, list[bool]()

    def noted(self: Model, output: str, number: Any, frame: Any, *others: Any) -> Any:
        free.append(any(frame in known.frames for known in self._calls.values()))
        return copied(self, output, number, frame, *others)

    monkeypatch.setattr(Model, "_copied_output", noted)
    given = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for _ in range(2):
        np.testing.assert_array_equal(model(given), given.reshape(6, 4))
    assert free == [False, False]


def test_tensors_of_torch_give_tensors(model: Model) -> None:
    torch = pytest.importorskip("torch", reason="torch's own arrays")
    x = arrays(model.bound, 3, b=2, n=3)["x"]
    found = model(torch.from_numpy(x))
    assert isinstance(found, torch.Tensor)
    np.testing.assert_array_equal(found.numpy(), model(x))


def test_what_a_call_lacks_is_said(model: Model) -> None:
    with pytest.raises(CallError, match="takes 1 array, got 2"):
        model(np.zeros((1, 1, 16), "float32"), np.zeros(1, "float32"))
    with pytest.raises(CallError, match="cannot run without x"):
        model({})
    with pytest.raises(CallError, match="cannot take n = 65"):
        model(np.zeros((1, 65, 16), "float32"))


SLICES = {
    "of columns, then of rows": (
        "s: float32[4, m] = slice(x, 1, 0, m)\ny: float32[2, m] = slice(s, 0, 0, 2)",
        "0:4 of axis 1 is not within 0:3",
    ),
    "from before the first column": (
        "s: float32[4, m] = slice(x, 1, n - m, n)\ny: float32[2, m] = slice(s, 0, 1, 3)",
        "-1:3 of axis 1 is not within 0:3",
    ),
    "by steps past the last": (
        "y: float32[4, (m + 3)//4] = slice(x, 1, 0, m, 4)",
        "0:4 of axis 1 is not within 0:3",
    ),
    "that ends before it begins": (
        "y: float32[4, (n - m + 1)//2] = slice(x, 1, m, n, 2)",
        "4:3 of axis 1 is not within 0:3",
    ),
}


@pytest.mark.parametrize("name", SLICES)
def test_a_slice_past_its_axis_is_refused_though_it_stays_within_the_array(name: str) -> None:
    lines, because = SLICES[name]
    graph = parse_graph(
        f"graph late\nsize n in 0:65\nsize m in 0:65\ninput x: float32[4, n]\ninput z: float32[m]\n"
        f"{lines}\noutput y"
    )
    bound, model = Bound(graph, {}), compile_graph(Bound(graph, {}), threads=1)
    x = floats("slices", 4, 3)
    for count in (0, 1, 2, 3):
        given = {"x": x, "z": np.ones(count, "float32")}
        np.testing.assert_array_equal(model(given)["y"], interpret_graph(bound, given)["y"])
    given["z"] = np.ones(4, "float32")
    with pytest.raises(CallError) as refused:
        model(given)
    at = lines.partition(":")[0]
    assert (
        str(refused.value)
        == f"late: cannot run at n = 3, m = 4\n  at       {at}\n  because  {because}"
    )
    with pytest.raises(CallError, match="cannot take"):
        interpret_graph(bound, given)


@pytest.mark.parametrize("rows", [0, 1, 3, 5])
def test_a_slice_of_nothing_may_begin_behind_the_end(rows: int) -> None:
    made = Builder("nothing")
    n = made.size("n")
    x = made.input("x", "float32", (n, 2))
    behind = Binary("+", n, ix.const(1))
    made.output(*(made.node("slice", x, 0, at, at) for at in (3, behind)))
    made.output(made.node("slice", x, 1, 4, 4), made.node("slice", x, 0, 3, 3, 2))
    given = {"x": np.ones((rows, 2), "float32")}
    found, expected = (
        compile_graph(made.bound, threads=1)(given),
        interpret_graph(made.bound, given),
    )
    empty = [given["x"][3:3], given["x"][rows + 1 : rows + 1], given["x"][:, 4:4]]
    for got in (found, expected):
        assert [one.shape for one in got.values()] == [one.shape for one in (*empty, empty[0])]


def test_outputs_may_be_inputs_constants_views_and_each_other() -> None:
    made = Builder("many")
    n = made.size("n", 0, 9)
    x = made.input("x", "float32", (n, 4))
    y = made.node("relu", x)
    turned, first = made.node("transpose", y), made.node("slice", y, 1, 0, 1)
    repeated = made.node("broadcast_to", made.constant("k", np.arange(4.0, dtype="f4")), [n, 4])
    made.output(x, y, turned, first, repeated, Ref("k"))
    model = compile_graph(made.bound, threads=1)
    for rows in (0, 1, 5):
        given = {"x": np.random.default_rng(rows).uniform(-1, 1, (rows, 4)).astype("f4")}
        found, expected = model(given), interpret_graph(made.bound, given)
        assert list(found) == list(expected)
        for name, array in found.items():
            np.testing.assert_array_equal(array, expected[name])
            assert not np.shares_memory(array, given["x"])


def test_a_convolution_stores_its_result_with_channels_innermost() -> None:
    made = Builder("image")
    n, h = made.size("n", 1, 8), made.size("h", 4, 32)
    generator = np.random.default_rng(0)
    x = made.input("x", "float32", (n, 3, h, h))
    w = [generator.uniform(-1, 1, s).astype("f4") for s in ((8, 3, 3, 3), (8, 8, 1, 1), (8,))]
    first = made.node("conv2d", x, made.constant("w0", w[0]), padding=1)
    y = made.node(
        "relu", made.node("batchnorm", first, *(made.constant(c, abs(w[2])) for c in "mv"))
    )
    pooled = made.node("max_pool2d", y, 2)
    z = made.node("add", made.node("conv2d", pooled, made.constant("w1", w[1])), pooled)
    flat = made.node("reshape", z, [n, -1])
    made.output(z, made.node("relu", flat))
    model = compile_graph(made.bound, threads=1)
    assert [step.nodes for step in model.steps] == [
        ("conv2d", "batchnorm", "relu"),
        ("max_pool2d",),
        ("conv2d", "add"),
        ("relu",),
    ]
    for sizes in ({"n": 1, "h": 4}, {"n": 2, "h": 7}):
        given = arrays(made.bound, 5, **sizes)
        found, expected = model(given), interpret_graph(made.bound, given)
        for name, array in found.items():
            near(array, expected[name])


def test_an_image_of_many_channels_is_stored_with_them_innermost() -> None:
    made = Builder("image")
    n, h = made.size("n", 1, 8), made.size("h", 4, 32)
    x = made.input("x", "float32", (n, 24, h, h))
    weights = made.constant("w", floats("weights", 16, 24, 3, 3))
    made.output(made.node("relu", made.node("conv2d", x, weights, padding=1)))
    model = compile_graph(made.bound, threads=1)
    assert model.steps[0].nodes == ("transpose",)
    given = arrays(made.bound, 5, n=2, h=9)
    near(model(given)["relu"], interpret_graph(made.bound, given)["relu"])


def test_a_target_without_machine_code_runs_models_too() -> None:
    bound = drawn(102, 5)
    given = arrays(bound, 1, b=2, n=3)
    found, expected = compile_graph(bound, target="interpret")(given), interpret_graph(bound, given)
    for name, array in found.items():
        near(array, expected[name])


def test_weights_that_are_multiplied_lane_by_lane_are_held_with_the_lanes_innermost() -> None:
    made = Builder("depthwise")
    n, h = made.size("n", 1, 8), made.size("h", 4, 32)
    generator = np.random.default_rng(0)
    x = made.input("x", "float32", (n, 3, h, h))
    for number, groups in enumerate((1, 16)):
        shape = (16, 3 if groups == 1 else 1, 3, 3)
        w = made.constant(f"w{number}", generator.uniform(-1, 1, shape).astype("f4"))
        x = made.node("conv2d", x, w, padding=1, groups=groups)
    made.output(x)
    model = compile_graph(made.bound, threads=1)
    constants = [b for b in model.steps[-1].kernel.loops.buffers if b.kind is Kind.CONSTANT]
    assert [[getattr(e, "value", e) for e in b.shape] for b in constants] == [[1, 3, 3, 16]]
    for sizes in ({"n": 1, "h": 4}, {"n": 2, "h": 7}):
        given = arrays(made.bound, 5, **sizes)
        near(model(given)[x.name], interpret_graph(made.bound, given)[x.name])


def test_a_constant_on_the_left_is_read_as_any_other_operand() -> None:
    made = Builder("mixer")
    n = made.size("n", 1, 8)
    x = made.input("x", "float32", (n, 7, 24))
    w = made.constant("w", np.random.default_rng(0).uniform(-1, 1, (9, 7)).astype("f4"))
    made.output(made.node("relu", made.node("matmul", w, x)))
    model = compile_graph(made.bound, threads=1)
    (step,) = model.steps
    assert [one.value for one in step.inputs] == ["w", "x"]
    for rows in (1, 3):
        given = arrays(made.bound, 5, n=rows)
        near(model(given)["relu"], interpret_graph(made.bound, given)["relu"])


def test_a_model_is_pickled_and_copied() -> None:
    made = Builder("pickled")
    x = made.input("x", "float32", (made.size("n", 0, 64), 8))
    made.output(made.node("relu", made.node("matmul", x, made.constant("w", floats("w", 8, 4)))))
    model = compile_graph(made.bound, threads=1)
    given = floats("x", 7, 8)
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(again(given), model(given))


@pytest.mark.slow
def test_constants_are_held_once_and_are_made_again_bit_for_bit() -> None:
    bound = block()
    before = {name: array.tobytes() for name, array in bound.arrays.items()}
    large = [weakref.ref(array) for array in bound.arrays.values() if array.ndim == 2]
    model = compile_graph(bound, threads=1)
    given = arrays(bound, 0, b=2, n=3)
    expected = interpret_graph(bound, given)
    del bound
    gc.collect()
    assert large
    assert not any(one() is not None for one in large)
    assert {name: array.tobytes() for name, array in model.asked.arrays.items()} == before
    for name, found in interpret_graph(model.bound, given).items():
        near(found, expected[name])


def test_lent_constants_are_copied_before_they_are_given_back() -> None:
    made = Builder("lent")
    n = made.size("n", 1, 8)
    w, b = np.ones((5, 24), "f"), np.ones(24, "f")
    with borrow((w, b)):
        x = made.input("x", "float32", (n, 5))
        y = made.node("dense", x, made.constant("w", w[:, 1:20:2]), made.constant("b", b[:10]))
        made.output(made.node("add", y, made.constant("v", w[0, :10])))
        model = compile_graph(made.bound, threads=1)
    w[...], b[...] = 7, 7
    np.testing.assert_array_equal(model(np.ones((3, 5), "f")), np.full((3, 10), 7.0))
    assert all((array == 1).all() for array in model.asked.arrays.values())


def test_options_that_are_equal_and_differ_are_told_apart() -> None:
    made = Builder("signs")
    x = made.input("x", "float32", (made.size("n"),))
    for name, zero in (("plus", 0.0), ("minus", -0.0)):
        made.output(made.node("multiply", x, zero, results=(name,)))
    found = compile_graph(made.bound)({"x": np.ones(5, np.float32)})
    assert {name: bool(np.signbit(array).all()) for name, array in found.items()} == {
        "plus": False,
        "minus": True,
    }


def test_arrays_by_keyword_and_what_is_no_pass_are_refused() -> None:
    made = Builder("plain")
    x = made.input("x", "float32", (made.size("n", 1, 9), 4))
    made.output(made.node("relu", x))
    model = compile_graph(made.bound, threads=1)
    with pytest.raises(CallError, match="cannot take x= ndarray") as refused:
        model(x=np.ones((2, 4), "float32"))
    assert refused.value.because == "what is named beside the arrays is a size"
    for passes, because in (
        ([lambda bound: None], "it gives NoneType"),
        ("fold", "it is not a function"),
    ):
        with pytest.raises(DescribeError, match="as a pass") as refusal:
            compile_graph(made.bound, passes=passes)  # type: ignore[arg-type]
        assert refusal.value.because == because
    with pytest.raises(DescribeError, match="cannot take distributive='no'"):
        compile_graph(made.bound, distributive="no")  # type: ignore[arg-type]


@pytest.mark.parametrize("turned", [False, True])
def test_one_row_of_known_extent_runs_by_the_microkernel_of_its_weights(turned: bool) -> None:
    made = Builder("row")
    x = made.input("x", "float32", (1, 96))
    w = made.constant("w", floats("w", *((80, 96) if turned else (96, 80))))
    y = made.node("dense", x, w, transpose_w=turned)
    made.output(y)
    model = compile_graph(made.bound, threads=1)
    assert "vector loops" not in str(model.steps[-1].kernel.plan())
    given = arrays(made.bound, 3)
    near(model(given)[y.name], interpret_graph(made.bound, given)[y.name])


def test_sizes_whose_product_no_machine_has_are_planned_all_the_same() -> None:
    made = Builder("huge")
    a, b, c = (made.size(name, 1) for name in "abc")
    x = made.input("x", "float32", (a, b, c))
    made.output(made.node("relu", made.node("sum", made.node("relu", x), axis=2)))
    most = 2**31 - 1
    plan = compile_graph(made.bound, threads=1).plan(a=most, b=most, c=most)
    assert plan.parts == ()
    assert f"{most}" in str(plan)


def test_a_weight_of_several_products_is_packed_once() -> None:
    made = Builder("again")
    n = made.size("n", 1, 9)
    weight = made.constant("w", floats("w", 48, 48))
    x = made.input("x", "float32", (n, 48))
    for _ in range(4):
        x = made.node("tanh", made.node("dense", x, weight))
    made.output(x)
    model = compile_graph(made.bound, threads=1)
    entries = [step.entry for step in model.steps if step.entry is not None]
    addresses = [address for entry in entries for address in entry.constants]
    assert len(addresses) == 4
    assert len({*addresses}) == 1
