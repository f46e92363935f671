"""Whole models on a GPU, by a driver that records its calls and runs the text of kernels: values, copies, memory, streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import rejection
from fake_driver import FakeArray, FakeDriver, FakeNvrtc, aligned, fake_package, install, launches
from on_cpu import COMPILER

import offcut as oc
from offcut.backends.gpu import calls
from offcut.backends.gpu.text import cuda_kernels
from offcut.errors import DescribeError
from tests.agree import agree, computed
from tests.facade import Bound, Builder, compile_graph

STREAM = 77
GPU = oc.target("cuda", machine="h200")
rng = np.random.default_rng(0)
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = FakeDriver()
    install(monkeypatch, fake, FakeNvrtc())
    return fake


@pytest.fixture
def package() -> Iterator[list[tuple[int, ...]]]:
    with fake_package(STREAM) as shapes:
        yield shapes


def floats(*shape: int) -> Any:
    return rng.standard_normal(shape, dtype=np.float32)


def mlp() -> Bound:
    """A dense layer, and the share of each of its results."""
    made = Builder("mlp")
    x = made.input("x", "float32", (made.size("n", 0, 4096), 5))
    made.output(made.node("softmax", made.node("dense", x, made.constant("w", floats(5, 3)))))
    return made.bound


def of_mlp(x: Any, w: Any) -> Any:
    scores = np.exp(x @ w)
    return scores / scores.sum(-1, keepdims=True)


def counts(fake: FakeDriver) -> Counter[str]:
    """Return how often each function was called that allocates, copies, waits or launches; forget it."""
    ours = ("cuMem", "cuStream", "cuLaunch", "cuModule")
    found = Counter(name for name in fake.names() if name.startswith(ours))
    fake.calls.clear()
    return found


@needs_compiler
def test_a_model_copies_its_inputs_launches_and_waits_for_its_results_alone(
    gpu: FakeDriver,
) -> None:
    bound = mlp()
    model = compile_graph(bound, target=GPU)
    model(floats(7, 5))
    counts(gpu)
    for n in (7, 1, 2, 7):
        x = floats(n, 5)
        found = model(x)
        assert counts(gpu) == {
            "cuMemcpyHtoDAsync": 1,
            "cuLaunchKernel": sum(
                len(step.kernel.source("cuda").split("__global__")) - 1 for step in model.steps
            ),
            "cuMemcpyDtoHAsync": 1,
            "cuStreamSynchronize": 1,
        }
        agree(found, computed(of_mlp, x, bound.arrays["w"]))
    assert model(floats(0, 5)).shape == (0, 3)


@needs_compiler
def test_arrays_of_the_device_are_read_in_place_on_the_stream_of_their_package(
    gpu: FakeDriver, package: list[tuple[int, ...]]
) -> None:
    bound = mlp()
    model = compile_graph(bound, target=GPU)
    model(FakeArray(aligned(floats(7, 5))))
    counts(gpu)
    for n in (7, 1, 2):
        x = FakeArray(aligned(floats(n, 5)))
        found = model(x)
        assert {launch[8] for launch in launches(gpu)} == {STREAM}
        assert counts(gpu).keys() == {"cuLaunchKernel"}
        assert isinstance(found, FakeArray)
        agree(found.held, computed(of_mlp, x.held, bound.arrays["w"]))
    assert package == [(n, 3) for n in (7, 7, 1, 2)]
    offset = FakeArray(
        aligned(floats(2, 5), offset=1)
    )  # no multiple of 16 bytes: its package copies it
    agree(model(offset).held, computed(of_mlp, offset.held, bound.arrays["w"]))


def test_arrays_of_another_device_are_refused(
    gpu: FakeDriver, package: list[tuple[int, ...]]
) -> None:
    model = compile_graph(mlp(), target=GPU)
    with rejection("""\
CallError: mlp: cannot take x from cuda:1
  at       x
  because  the model lies on cuda:0"""):
        model(FakeArray(aligned(floats(2, 5)), 1))


def test_blocks_are_freed_with_the_model(gpu: FakeDriver) -> None:
    model = compile_graph(mlp(), target=GPU)
    before = len(gpu.memory)
    gpu.runs = False
    model(floats(7, 5))
    assert len(gpu.memory) == before + 1
    model._blocks._free.clear()
    assert len(gpu.memory) == before


def shares() -> Bound:
    """A dense layer, and the share of each of its results: of other widths than `mlp`, whose code may lie in the cache."""
    made = Builder("shares")
    x = made.input("x", "float32", (made.size("n", 1, 16), 6))
    made.output(made.node("softmax", made.node("dense", x, made.constant("w", floats(6, 4)))))
    return made.bound


@pytest.fixture
def no_powers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``exp`` have no text."""

    def kernels(program: oc.Program) -> Any:
        if "exp(" in str(program):
            because = "a power has no text"
            raise DescribeError("source", "cannot show 'cuda'", at="exp", because=because)
        return cuda_kernels(program)

    monkeypatch.setattr(calls, "cuda_kernels", kernels)


def test_a_kernel_without_a_text_is_refused_by_the_name_of_its_node(
    gpu: FakeDriver, no_powers: None
) -> None:
    with rejection("""\
TargetError: compile: cannot run softmax on a GPU
  at       softmax: softmax, exp
  because  a power has no text
  help     device="emulated" runs it on numpy arrays"""):
        compile_graph(shares(), target=GPU)


@needs_compiler
def test_what_the_gpu_does_not_run_runs_on_the_host_and_is_listed(
    gpu: FakeDriver, no_powers: None
) -> None:
    bound = shares()
    model = compile_graph(bound, target=(GPU, "cpu"))
    assert [step.target for step in model.steps] == ["cuda", "cpu"]
    assert model.plan().split == (
        "softmax: runs on cpu, since cuda refuses it: a power has no text",
    )
    for n in (1, 2):
        x = floats(n, 6)
        agree(model(x), computed(of_mlp, x, bound.arrays["w"]))
