"""Models whose values lie in the memory of a device: what is copied, allocated and waited for, and what no kernel there reads."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from conftest import rejection

import offcut as oc
from offcut.backends.executor.faults import fault
from offcut.backends.gpu.emulation import MEMORY, EmulatedCode, EmulatedMemory
from offcut.backends.interpret.target import Interpret
from offcut.backends.target import TargetPlan
from offcut.errors import CallError, DescribeError, InternalError, TargetError
from offcut.graph.sizes.extent_values import Numbers
from tests.agree import agree, computed, exact_matmul, of_peer
from tests.facade import Bound, Builder, compile_graph, interpret_graph
from tests.graphs import arrays, drawn

EMULATED = oc.target("cuda", machine="h200", device="emulated")
rng = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return rng.standard_normal(shape, dtype=np.float32)


def mlp() -> Bound:
    """Two dense layers and a softmax."""
    made = Builder("mlp")
    x = made.input("x", "float32", (made.size("n", 0, 4096), 5))
    hidden = made.node("relu", made.node("dense", x, made.constant("w", floats(5, 8))))
    made.output(made.node("softmax", made.node("dense", hidden, made.constant("u", floats(8, 3)))))
    return made.bound


def of_mlp(x: Any, w: Any, u: Any) -> Any:
    scores = np.exp(np.maximum(x @ w, 0) @ u)
    return scores / scores.sum(-1, keepdims=True)


def counts() -> tuple[int, int, int]:
    """Return how often the emulated device allocated, and how often something was copied to it and from it."""
    return MEMORY.allocations, MEMORY.writes, MEMORY.reads


def test_a_call_after_the_first_of_its_size_class_allocates_nothing_and_waits_for_its_result_alone() -> (
    None
):
    bound = mlp()
    model = compile_graph(bound, target=EMULATED)
    model(floats(33, 5))
    for n in (33, 20, 1, 7, 34, 33, 0):
        x = floats(n, 5)
        allocations, writes, reads = counts()
        found = model(x)
        assert counts() == (allocations, writes + 1, reads + 1)
        agree(found, computed(of_mlp, x, bound.arrays["w"], bound.arrays["u"]))
    before = counts()
    model(floats(330, 5))  # of a larger class
    assert MEMORY.allocations == before[0] + 1


def test_constants_are_copied_to_the_device_once() -> None:
    bound = mlp()
    before = counts()
    model = compile_graph(bound, target=EMULATED)
    assert (MEMORY.allocations - before[0], MEMORY.writes - before[1]) == (2, 2)
    assert model.in_parts(False)(floats(3, 5)).shape == (3, 3)
    assert MEMORY.writes - before[1] == 2 + 1


def test_calls_of_several_threads_have_blocks_of_their_own() -> None:
    bound = mlp()
    model = compile_graph(bound, target=EMULATED)
    given = [floats(n, 5) for n in (1, 2, 7, 3)]
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(model, given)]
    for x, result in zip(given, found, strict=True):
        agree(result, computed(of_mlp, x, bound.arrays["w"], bound.arrays["u"]))


@pytest.mark.parametrize("split", [False, True])
def test_a_model_of_a_device_can_be_pickled_with_its_targets(split: bool) -> None:
    bound = quantised() if split else mlp()
    model = compile_graph(bound, target=(Integers(), EMULATED) if split else EMULATED)
    again = pickle.loads(pickle.dumps(model))
    assert [step.target for step in again.steps] == [step.target for step in model.steps]
    if not split:
        x = floats(7, 5)
        np.testing.assert_array_equal(again(x), model(x))


@pytest.mark.every(2)
@pytest.mark.parametrize("seed", [3, 8])
def test_drawn_graphs_give_on_the_device_what_they_mean(seed: int) -> None:
    bound = drawn(seed)
    model = compile_graph(bound, target=EMULATED, distributive=False)
    for b, n in ((1, 1), (2, 5)):
        given = arrays(bound, seed, b=b, n=n)
        found = model(given)
        for name, exact in as_meant(bound, given).items():
            agree(found[name], exact)


def as_meant(bound: Bound, given: Mapping[str, Any]) -> Any:
    """Return what a graph means, its floats in float64, with the terms of each element."""
    text = str(bound.graph).replace("float32", "float64")
    wide = {name: array.astype("float64") for name, array in bound.arrays.items()}
    graph = Bound(oc.graph.parse_graph(text), wide)
    return computed(lambda given: interpret_graph(graph, given), given)


def heads() -> Bound:
    """Three parts of one product, as attention has them: every second row of the first two, times the third, and a part itself."""
    made = Builder("heads")
    n = made.size("n", 1, 64)
    x = made.input("x", "float32", (n, 6))
    joined = made.node("dense", x, made.constant("w", floats(6, 12)))
    a, b, c = (made.node("slice", joined, 1, k, k + 4) for k in (0, 4, 8))
    made.output(made.node("matmul", made.node("multiply", a, b), made.node("transpose", c, (1, 0))))
    made.output(b)
    return made.bound


def test_kernels_read_row_by_row_where_the_target_takes_no_strides() -> None:
    bound = heads()
    on_cpu, model = compile_graph(bound), compile_graph(bound, target=EMULATED)
    assert any(not is_dense(one) for step in on_cpu.steps for one in step.arrays)
    assert all(is_dense(one) for step in model.steps for one in step.arrays)
    for n in (1, 2, 7, 33):
        x = floats(n, 6)
        found = model({"x": x})
        w = bound.arrays["w"]
        agree(found["slice_2"], exact_matmul(x, w[:, 4:8]))
        agree(found["matmul"], computed(of_heads, x, w))


@pytest.mark.parametrize(
    ("count", "start", "n", "taken", "refused"),
    [
        ("m", "n - m", 3, (0, 2, 3), (4, "-1:3 of axis 1 is not within 0:3")),
        ("1", "2*((m + 1)//4) - 2", 1, (3, 4, 6), (7, "2:3 of axis 1 is not within 0:1")),
    ],
)
def test_a_slice_that_only_a_call_knows_to_be_within_its_axis_is_copied(
    count: str, start: str, n: int, taken: tuple[int, ...], refused: tuple[int, str]
) -> None:
    """Its kernel has sizes of its own, which say nothing of each other; the second is how an extent is said to be 1."""
    graph = oc.graph.parse_graph(
        f"graph late\nsize n in 0:65\nsize m in 0:65\ninput x: float32[4, n]\ninput z: float32[m]\n"
        f"s: float32[4, {count}] = slice(x, 1, {start}, {start} + {count})\n"
        f"y: float32[4, {count}] = relu(s)\noutput y, z"
    )
    bound, model = Bound(graph, {}), compile_graph(Bound(graph, {}), target=EMULATED)
    for m in taken:
        given = {"x": floats(4, n), "z": floats(m)}
        np.testing.assert_array_equal(model(given)["y"], interpret_graph(bound, given)["y"])
    m, because = refused
    with pytest.raises(CallError, match=because):
        model({"x": floats(4, n), "z": floats(m)})


def of_heads(x: Any, w: Any) -> Any:
    joined = x @ w
    return (joined[:, :4] * joined[:, 4:8]) @ joined[:, 8:].T


def is_dense(array: Any) -> bool:
    """Return whether the elements of an array of a kernel lie row by row at n = 5."""
    number = Numbers({"n": 5})
    step = 1
    for extent, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if number(extent) != 1 and number(stride) != step:
            return False
        step *= number(extent)
    return True


@pytest.mark.slow
def test_nothing_is_measured_on_a_device_since_a_call_would_wait_for_it() -> None:
    made = Builder("window")
    h, w = made.size("h", 3, 64), made.size("w", 3, 64)
    x, weights = made.input("x", "float32", (1, 40, h, w)), made.constant("k", floats(48, 40, 3, 3))
    made.output(made.node("conv2d", x, weights))
    assert any(step.limits for step in compile_graph(made.bound).steps)
    assert not any(step.limits for step in compile_graph(made.bound, target=EMULATED).steps)


class Integers(Interpret):
    """A target of the process that runs what has no float in it."""

    name = "integers"

    def policy(self, program: Any, *rest: Any) -> Iterator[TargetPlan]:
        """Yield the program as it stands.

        Raises TargetError where an array of it holds floats.
        """
        for one in program.buffers:
            if one.dtype.startswith("float"):
                because = f"{one.name} is of {one.dtype}"
                raise TargetError("compile", f"cannot plan {program.name}", because=because)
        yield from super().policy(program, *rest)


def quantised() -> Bound:
    """A product of integers, requantised, and a softmax over it."""
    made = Builder("layers")
    x = made.input("x", "int8", (made.size("n", 1, 64), 6))
    w = made.constant("w", np.arange(-12, 12, dtype="int8").reshape(6, 4))
    small = made.node("requantize", made.node("dense", x, w), 3, low=0)
    made.output(small, made.node("softmax", made.node("dequantize", small, 0.25)))
    return made.bound


@pytest.mark.parametrize("first", ["integers", "vta"])
def test_what_a_target_of_the_process_runs_is_copied_from_the_device_and_back(first: str) -> None:
    before = {"integers": Integers(), "vta": "vta"}[first]
    bound = quantised()
    model = compile_graph(bound, target=(before, EMULATED))
    assert [step.target for step in model.steps] == [first, "cuda"]
    assert [step.device is not None for step in model.steps] == [False, True]
    for n in (1, 3, 33):
        x = rng.integers(-128, 127, (n, 6), "int8")
        model({"x": x})
        allocations, writes, reads = counts()
        found, exact = model({"x": x}), interpret_graph(bound, {"x": x})
        assert counts() == (
            allocations,
            writes + 2,
            reads + 3,
        )  # x to it, and of the step: x, its result; two results
        np.testing.assert_array_equal(found["requantize"], exact["requantize"])
        agree(found["softmax"], computed(softmax, exact["requantize"] * 0.25))


def softmax(x: Any) -> Any:
    powers = np.exp(x)
    return powers / powers.sum(-1, keepdims=True)


def test_what_no_target_takes_is_refused_by_the_name_of_its_node() -> None:
    made = Builder("scores")
    x = made.input("pixels", "float32", (made.size("n", 1, 64), 16))
    made.output(made.node("relu", made.node("dense", x, made.constant("weights", floats(16, 16)))))
    with rejection("""\
TargetError: compile: cannot run dense on vta
  at       dense: dense
  because  pixels[a0, r0] * weights[r0, a1] is of float32, and its units have int8 and int32
  help     quantise it to int8
  help     the matrix unit adds products of int8 in int32, the vector unit has add, max, min, mul, shr on int32
  help     target="cpu" runs it"""):
        compile_graph(made.bound, target="vta")
    (split,) = compile_graph(made.bound, target=("vta", EMULATED)).plan().split
    assert split.startswith(
        "relu: runs on cuda, since vta refuses it: pixels[a0, r0] * weights[r0, a1] is of float32"
    )


def test_a_call_that_fails_names_the_node() -> None:
    made = Builder("words")
    table = made.constant("table", floats(4, 3))
    ids = made.input("ids", "int32", (made.size("n", 1, 64),))
    made.output(made.node("embedding", table, ids))
    model = compile_graph(made.bound, target=EMULATED)
    agree(model(np.array([3, 0], np.int32)), made.bound.arrays["table"][[3, 0]].astype(float))
    with pytest.raises(CallError) as refused:
        model(np.array([3, 4], np.int32))
    assert refused.value.at.startswith("embedding: embedding, ")


def test_a_fault_that_no_data_causes_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    model = compile_graph(mlp(), target=EMULATED)

    def racing(*_: Any) -> None:
        raise fault("v1", "race", because="two warps write v1[0, 0]")

    monkeypatch.setattr(EmulatedCode, "results", racing)
    with pytest.raises(InternalError, match="race"):
        model(floats(3, 5))


def test_two_devices_are_refused() -> None:
    class Other(Integers):
        """A target with a device of its own."""

        memory = EmulatedMemory()

    with pytest.raises(DescribeError) as refused:
        compile_graph(mlp(), target=(Other(), EMULATED))
    assert "each has a memory of its own, and the values of a model lie in one" in str(
        refused.value
    )


def test_an_address_outside_of_the_blocks_of_the_device_is_illegal() -> None:
    block = MEMORY.allocate(64)
    poisoned = MEMORY.array(block.address, (4, 4), "float32")
    assert np.isnan(poisoned).all()
    with pytest.raises(InternalError, match="68 bytes lie in no block"):
        MEMORY.array(block.address, (17,), "float32")
    x = floats(3, 5)
    entry = compile_graph(mlp(), target=EMULATED).steps[0].device
    assert entry is not None
    at = x.__array_interface__["data"][0]
    with pytest.raises(InternalError, match="illegal address"):
        entry([at, block.address], [3], block.address)


# A model on several targets: each kernel on the first that takes it, the split printed, the bits those of one.


def test_each_kernel_runs_on_the_first_target_that_takes_it_and_the_plan_says_why() -> None:
    model = compile_graph(quantised(), threads=1, target=(Integers(), "cpu"))
    assert (
        str(model.plan())
        == """\
layers(): 2 kernels, 2 distinct
value       operators           target    shape   memory
requantize  dense requantize    integers  [n, 4]  result
softmax     dequantize softmax  cpu       [n, 4]  result
arena: 0 bytes
softmax: runs on cpu, since integers refuses it: v2_max is of float32"""
    )
    for rows in (1, 3, 64):
        x = np.random.default_rng(rows).integers(-128, 127, (rows, 6), "int8")
        found, alone = model({"x": x}), compile_graph(quantised(), threads=1)({"x": x})
        expected = interpret_graph(quantised(), {"x": x})
        for name in found:
            np.testing.assert_array_equal(found[name], alone[name])
            agree(found[name], of_peer(expected[name], 0, 16))


def test_what_no_target_takes_is_refused_by_the_last() -> None:
    with pytest.raises(TargetError, match="is of float32"):
        compile_graph(quantised(), target=(Integers(),))
    with rejection(
        "DescribeError: graph: cannot compile for target=()\n"
        "  because  there is no target in it\n"
        '  help     target="cpu"\n'
        '  help     target=("vta", "cpu")'
    ):
        compile_graph(quantised(), target=())
