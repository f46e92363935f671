"""Calls of kernels and models on a GPU, by a driver that records them and runs the text of kernels: values, the order of calls,
streams, memory, and what is refused.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import rejection
from fake_driver import FakeArray, FakeDriver, FakeNvrtc, aligned, fake_package, install, launches
from on_cpu import COMPILER

import offcut as oc
from offcut.backends.gpu import calls, nvrtc
from offcut.backends.gpu.driver import checked_grids
from offcut.backends.gpu.launches import LaunchPlan
from offcut.backends.gpu.text import cuda_kernels
from offcut.errors import DescribeError
from tests.agree import agree, computed
from tests.facade import Bound, Builder, compile_graph

SIZES = (0, 1, 64, 65)
STREAM = 77
GPU = oc.target("cuda", machine="h200")
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


def dense(
    k_size: int = 40,
    n_size: int = 24,
    constants: dict[str, np.ndarray] | None = None,
    strategy: str | dict[str, str] = "auto",
) -> oc.Kernel:
    """A product; with a strategy, in tiles of 64 rows by 128 columns."""
    n, k = oc.dim("n"), oc.reduce_axis(k_size, name="k")
    a = oc.placeholder((n, k_size), "float16", name="A")
    w = oc.placeholder((k_size, n_size), "float16", name="W")
    s = oc.compute(
        (n, n_size),
        lambda i, j: oc.sum(a[i, k].astype("float32") * w[k, j].astype("float32"), axis=k),
        name="S",
    )
    target = GPU
    return oc.compile(s, inputs=[a, w], constants=constants or {}, target=target, strategy=strategy)


def centered() -> oc.Kernel:
    """Columns without their sums, which are an array of main memory between two launches."""
    n = oc.dim("n", min=1)
    x, k = oc.placeholder((n, 6), "float32", name="X"), oc.reduce_axis(n, name="k")
    m = oc.compute((6,), lambda j: oc.sum(x[k, j], axis=k), name="M")
    y = oc.compute((n, 6), lambda i, j: x[i, j] - m[j], name="Y")
    return oc.compile(y, inputs=[x], target=GPU)


def doubled() -> oc.Kernel:
    n, m = oc.dim("n"), oc.dim("m")
    x = oc.placeholder((n, m), "float32", name="X")
    y = oc.compute((n, m), lambda i, j: x[i, j] * 2.0, name="Y")
    return oc.compile(y, inputs=[x], target=GPU)


def operands(n: int, k: int = 40, m: int = 24) -> tuple[np.ndarray, ...]:
    draw = np.random.default_rng(7)
    return draw.integers(-4, 5, (n, k)).astype(np.float16), draw.integers(-4, 5, (k, m)).astype(
        np.float16
    )


@needs_compiler
def test_arrays_of_the_host_are_copied_there_and_back(gpu: FakeDriver) -> None:
    kernel = dense()
    for n in SIZES:
        x, w = operands(n)
        exact = x.astype(np.float32) @ w.astype(np.float32)
        np.testing.assert_array_equal(np.asarray(kernel(x, w)), exact)
    x, w = operands(9)
    out = np.zeros((24, 9), np.float32).T
    assert kernel(x, w, out=out) is out
    np.testing.assert_array_equal(out, x.astype(np.float32) @ w.astype(np.float32))


@needs_compiler
def test_arrays_of_a_device_are_used_where_they_lie(
    gpu: FakeDriver, package: list[tuple[int, ...]]
) -> None:
    kernel = dense()
    for n in SIZES:
        x, w = (FakeArray(aligned(array)) for array in operands(n))
        found = kernel(x, w)
        assert isinstance(found, FakeArray)
        exact = x.held.astype(np.float32) @ w.held.astype(np.float32)
        np.testing.assert_array_equal(found.held, exact)
    assert package == [(n, 24) for n in SIZES]
    made = [launch for launch in launches(gpu) if launch[0][1] == "offcut_S"]
    assert [launch[1] for launch in made] == [-(-n // 128) for n in SIZES if n]
    assert {launch[8] for launch in made} == {STREAM}
    assert not {"cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuStreamSynchronize"} & {*gpu.names()}


@needs_compiler
def test_a_call_waits_for_nothing_and_allocates_nothing_after_the_first_of_its_size(
    gpu: FakeDriver, package: list[tuple[int, ...]]
) -> None:
    kernel = centered()
    x = FakeArray(np.arange(54, dtype=np.float32).reshape(9, 6))
    out = FakeArray(np.zeros((9, 6), np.float32))
    kernel(x, out=out)
    assert gpu.names().count("cuMemAllocAsync") == 1  # the sums
    gpu.calls.clear()
    assert kernel(x, out=out) is out
    pushed = ["cuCtxPushCurrent", "cuLaunchKernel", "cuLaunchKernel", "cuCtxPopCurrent"]
    assert gpu.names() == pushed
    np.testing.assert_array_equal(out.held, x.held - x.held.sum(0))
    assert package == []
    host = np.arange(54, dtype=np.float32).reshape(9, 6)
    kernel(host)
    gpu.calls.clear()
    kernel(host)
    assert gpu.names().count("cuMemAllocAsync") == 0
    assert gpu.names().count("cuStreamSynchronize") == 1


@needs_compiler
def test_an_array_that_does_not_lie_as_the_kernel_reads_it_is_copied_on_the_device(
    gpu: FakeDriver, package: list[tuple[int, ...]]
) -> None:
    kernel = dense()
    x, w = operands(9)
    turned = FakeArray(aligned(np.ascontiguousarray(x.T)).T)
    odd = FakeArray(aligned(w, offset=1))
    out = FakeArray(np.zeros((9, 48), np.float32)[:, ::2])
    kernel(turned, odd, out=out)
    np.testing.assert_array_equal(out.held, x.astype(np.float32) @ w.astype(np.float32))
    names = gpu.names()
    assert "cuMemcpyDtoHAsync" not in names


@needs_compiler
def test_a_constant_is_copied_to_the_device_once(
    gpu: FakeDriver, package: list[tuple[int, ...]]
) -> None:
    x, w = operands(70)
    kernel = dense(constants={"W": w})
    for size in (70, 3):
        found = kernel(FakeArray(aligned(x[:size])))
        np.testing.assert_array_equal(
            found.held, x[:size].astype(np.float32) @ w.astype(np.float32)
        )
    assert gpu.names().count("cuMemcpyHtoDAsync") == 1


def test_a_block_asks_for_more_shared_memory_than_it_has_without_asking(
    gpu: FakeDriver, package: list[tuple[int, ...]]
) -> None:
    gpu.runs = False
    kernel = dense(64, 128, strategy={"i": "guard"})
    kernel(*map(FakeArray, map(aligned, operands(1, 64, 128))))
    ((_, (_, attribute, count)),) = [c for c in gpu.calls if c[0] == "cuFuncSetAttribute"]
    (launch,) = launches(gpu)
    assert attribute == "shared"
    assert count == launch[7] > 48 * 1024
    assert launch[1:7] == (1, 1, 1, 384, 1, 1)


def test_a_kernel_is_pickled_and_loaded_without_a_compiler(
    gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.runs = False
    held = pickle.dumps(dense(48, 16))

    def none(op: str) -> None:
        raise AssertionError("the compiler is asked")

    monkeypatch.setattr(nvrtc, "nvrtc_module", none)
    kernel = pickle.loads(held)
    kernel(*operands(0, 48, 16))
    assert launches(gpu) == []
    kernel(*operands(3, 48, 16))
    assert len(launches(gpu)) == 1


def refusal(call: object) -> str:
    with pytest.raises(oc.OffcutError) as refused:
        call()  # type: ignore[operator]
    return str(refused.value)


def test_sizes_beyond_an_index_are_refused_before_the_launch(
    gpu: FakeDriver, package: list[tuple[int, ...]]
) -> None:
    kernel = doubled()
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (2**31 - 1, 0), (0, 4))
    assert refusal(lambda: kernel(FakeArray(huge), out=FakeArray(huge))) == (
        """\
Y: cannot launch offcut_Y with n = 2147483647
  because  4*((n + 3)//4) + 4 = 2147483652 is an index in 32 bits, and 2147418111 is the largest
  help     n <= 2147418104, m = 0, in several calls"""
    )
    assert launches(gpu) == []


def test_a_grid_that_is_too_large_is_refused_before_the_launch() -> None:
    text = """\
program P
size n in 0:99999
size m in 0:9
output C: float32[n, m]
for j in 0:m  @block
  for i in 0:n  @block
    C[i, j] = 1.0
"""
    _, plan = cuda_kernels(oc.parse(text))
    assert LaunchPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert checked_grids(plan, {"n": 65535, "m": 2}) == ((2, 65535, 1),)
    assert refusal(lambda: checked_grids(plan, {"n": 65540, "m": 2})) == (
        """\
P: cannot launch offcut_P with n = 65540
  because  n = 65540 is blocks along y of its grid, and 65535 is the largest
  help     n <= 65535, m = 2, in several calls"""
    )


def test_shared_memory_that_the_device_does_not_have_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = FakeDriver({"MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 50_000})
    install(monkeypatch, small, FakeNvrtc())
    kernel = dense(64, 128, strategy={"i": "guard"})
    assert refusal(lambda: kernel(*operands(1, 64, 128))) == (
        """\
S: cannot run offcut_S on FAKE H200
  because  a block takes 131080 bytes of shared memory, and has 50000 at most
  help     smaller tiles
  help     a smaller depth"""
    )


def test_a_device_of_another_capability_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    blackwell = FakeDriver({"COMPUTE_CAPABILITY_MAJOR": 10})
    install(monkeypatch, blackwell, FakeNvrtc())
    assert refusal(doubled) == (
        """\
compile: cannot run code of sm_90a on FAKE H200
  because  its compute capability is 10.0, and the code is for 9.0
  help     oc.target("cuda", machine=…) of the GPU that is there"""
    )


LAUNCH = "offcut_S at n = 3: 1 × 1 × 1 blocks of 384 threads, 98312 bytes of shared memory each"
FAILED = {
    "a launch": (
        "cuLaunchKernel",
        1,
        f"""\
S: failed on FAKE H200
  at       {LAUNCH}
  because  cuLaunchKernel says CUDA_ERROR_INVALID_VALUE (invalid value)""",
    ),
    "memory": (
        "cuMemAllocAsync",
        2,
        """\
S: failed on FAKE H200
  because  cuMemAllocAsync says CUDA_ERROR_OUT_OF_MEMORY (out of memory)
  help     smaller sizes
  help     out= of arrays that are there""",
    ),
    "a fault": (
        "cuStreamSynchronize",
        700,
        f"""\
S: failed on FAKE H200, and the context of this process with it
  at       the last launch before it: {LAUNCH}
  because  cuStreamSynchronize says CUDA_ERROR_ILLEGAL_ADDRESS (illegal address): a kernel that ran before this call has faulted, and each later call of this process will fail alike
  help     a new process
  help     compute-sanitizer names the kernel and the address""",
    ),
}


@pytest.mark.parametrize("what", FAILED)
def test_a_status_of_the_driver_is_an_error_with_kernel_and_sizes(
    gpu: FakeDriver, what: str
) -> None:
    function, status, expected = FAILED[what]
    kernel = dense()
    kernel(*operands(0))  # it is loaded
    gpu.statuses[function] = status
    assert refusal(lambda: kernel(*operands(3))) == expected


def test_a_context_that_an_earlier_kernel_has_broken_is_said_to_be_so(gpu: FakeDriver) -> None:
    kernel = dense()
    kernel(*operands(3))
    gpu.statuses["cuLaunchKernel"] = 716
    text = refusal(lambda: kernel(*operands(2)))
    assert text.splitlines()[1] == f"  at       {LAUNCH.replace('n = 3', 'n = 2')}"
    assert text.splitlines()[-1] == f"  help     the last launch before it: {LAUNCH}"


def test_arrays_of_two_devices_are_refused(gpu: FakeDriver, package: list[tuple[int, ...]]) -> None:
    kernel = dense()
    x, w = operands(3)
    assert refusal(lambda: kernel(FakeArray(aligned(x)), w)) == (
        """\
S: W is on another device than A
  at       W
  because  A is on cuda:0, and W in the memory of the host
  help     all arrays on cuda:0
  help     all arrays in the memory of the host"""
    )
    text = refusal(lambda: kernel(FakeArray(aligned(x)), FakeArray(aligned(w), 1)))
    assert text.splitlines()[2] == "  because  A is on cuda:0, and W on cuda:1"


def test_what_has_no_text_is_refused_for_a_gpu(gpu: FakeDriver) -> None:
    text = """\
program whole
size n in 0:99
input A: float32[n]
output C: float32[n]
for b in 0:n  @block
  for g in 0:1  @warpgroup
    C[b] = A[b]
"""
    target = GPU
    assert refusal(lambda: oc.compile(oc.parse(text), target=target)) == (
        """\
compile: cannot run whole on a GPU
  at       C[b] = A[b]
  because  what lanes of a warpgroup run has no text so far
  help     device="emulated" runs it on numpy arrays"""
    )


@needs_compiler
def test_an_array_that_is_updated_begins_as_its_input(
    gpu: FakeDriver, package: list[tuple[int, ...]]
) -> None:
    text = """\
program add
size n in 0:99
input A: float32[n]
inout C: float32[n]
for b in 0:n  @block
  C[b] += A[b]
"""
    kernel = oc.compile(oc.parse(text), target=GPU)
    a, c = np.arange(5, dtype=np.float32), np.full(5, 3, np.float32)
    np.testing.assert_array_equal(np.asarray(kernel(a, c)), a + 3)
    np.testing.assert_array_equal(c, np.full(5, 3, np.float32))
    held = FakeArray(c.copy())
    np.testing.assert_array_equal(kernel(FakeArray(a), held).held, a + 3)
    assert kernel(FakeArray(a), held, out=held) is held
    np.testing.assert_array_equal(held.held, a + 3)


# Whole models.


rng = np.random.default_rng(0)


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
