"""Kernels on several threads: the same bits, from several callers, after fork, and to the end."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
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
    same_bits,
)
from conftest import edge_sizes, rejection, slow

import offcut as oc
from offcut import Kernel, Tensor
from offcut.backends.cpu.threads import pool
from offcut.backends.cpu.threads.parallel import mark_parallel_loops
from offcut.backends.host.shared_library import usable_processors
from tests.agree import agree as close
from tests.agree import computed, exact_matmul, of_program
from tests.machines import EAGER, host_threads

pytestmark = [
    pytest.mark.skipif(not pool.is_supported(), reason="the pool needs Linux on x86-64"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning"),
]

COUNTS = (1, 2, 3, 5)
DENSE = contraction("mk,kn->mn", {"k": 40, "n": 200})
W = floats("W", 40, 200)
ROWS = """
program rows
size n in 0:1000
size m in 0:1000
input x: float32[n]
input table: float32[n, m]
output y: float32[n, m]
private t: float32[]
for i in 0:n
  t[] = x[i] * 2
  for j in 0:m
    y[i, j] = table[i, j] + t[]
"""


@pytest.fixture(autouse=True)
def every_call_takes_all() -> Iterator[None]:
    """The smallest call runs on as many threads as it may."""
    with host_threads(**EAGER):
        yield


def on(counts: Sequence[int], output: Tensor | oc.Program, **request: Any) -> dict[int, Kernel]:
    return {count: build(output, threads=count, **request) for count in counts}


def agree(kernels: dict[int, Kernel], *arrays: Array, **sizes: int) -> Array:
    """The result on every number of threads, bit for bit."""
    results = {count: kernel(*arrays, **sizes) for count, kernel in kernels.items()}
    first: Array = next(iter(results.values()))
    for count, result in results.items():
        assert same_bits(result, first), f"{count} threads differ"
    return first


@pytest.mark.every(4)
@pytest.mark.parametrize(
    "strategy",
    [s if s in ("auto", "shift", "balance") else slow(s) for s in (*STRATEGIES, "mix", "residue")],
)
def test_a_dense_layer_has_the_same_bits_on_any_number_of_threads(strategy: str) -> None:
    made = on(COUNTS, DENSE.result, inputs=DENSE.inputs, constants={"B": W}, strategy=strategy)
    for rows in [*edge_sizes(BLOCK), 100]:
        x = floats(strategy, rows, 40)
        DENSE.check(agree(made, x), (x, W))


def softmax() -> tuple[Tensor, Tensor]:
    b, n = oc.dim("b", max=64), oc.dim("n", min=1, max=512)
    X, r, s = oc.placeholder((b, n), name="X"), oc.reduce_axis(n, "r"), oc.reduce_axis(n, "s")
    top = oc.compute((b,), lambda i: oc.max(X[i, r], axis=r), name="top")
    e = oc.compute((b, n), lambda i, j: oc.exp(X[i, j] - top[i]), name="e")
    total = oc.compute((b,), lambda i: oc.sum(e[i, s], axis=s), name="total")
    return X, oc.compute((b, n), lambda i, j: e[i, j] / total[i], name="soft")


def test_stages_that_read_each_other_wait_for_each_other() -> None:
    X, soft = softmax()
    made = on(COUNTS, soft, inputs=[X])
    for rows, columns in [(0, 5), (1, 1), (1, 300), (2, 17), (7, 64), (64, 65)]:
        x = floats("x", rows, columns)
        wide = np.exp(x.astype("float64"))
        found = agree(made, x)
        close(found, wide / wide.sum(axis=1, keepdims=True), units=columns + 32)  # of one sign


PROGRAMS = {
    "a triangle": """
program triangle
size n in 0:200
input x: float32[n]
inout C: float32[n, n]
for i in 0:n
  for j in 0:i + 1
    C[i, j] += x[i] * x[j]
""",
    "one axis": """
program scaled
size n in 0:4000
input x: float32[n]
inout y: float32[n]
for i in 0:n
  y[i] += 2.0 * x[i]
""",
    "a scalar of its own": """
program rows
size n in 0:200
input A: float32[n, n]
input x: float32[n]
output y: float32[n]
local t: float32[]
for i in 0:n
  t[] = 0.0
  for j in 0:i
    t[] += A[i, j] * x[j]
  y[i] = t[] * x[i]
""",
    "a scalar for all": """
program centred
size n in 1:4000
input x: float32[n]
output y: float32[n]
local t: float32[]
t[] = 0.0
for i in 0:n
  t[] += x[i]
for i in 0:n
  y[i] = x[i] - t[]
""",
    "steps": """
program decomposed
size n in 0:100
inout A: float32[n, n]
for k in 0:n
  for i in k + 1:n
    A[i, k] = A[i, k] / (3.0 + abs(A[k, k]))
  for i in k + 1:n
    for j in k + 1:n
      A[i, j] -= A[i, k] * A[k, j]
""",
    "a stencil": """
program stencil
size n in 3:200
size steps in 0:20
input x: float32[n, n]
inout A: float32[n, n]
local B: float32[n, n]
for t in 0:steps
  for i in 1:n - 1
    for j in 1:n - 1
      B[i, j] = 0.2 * (A[i, j] + A[i, j - 1] + A[i, j + 1] + A[i - 1, j] + A[i + 1, j])
  for i in 1:n - 1
    for j in 1:n - 1
      A[i, j] = B[i, j] + 0.1 * x[i, j]
""",
    "marked": """
program marked
size n in 0:100
input x: float32[n, n]
output y: float32[n, n]
for i in 0:n
  for j in 0:n  @thread
    y[i, j] = x[j, i] * 2.0
""",
}


@pytest.mark.every(8)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_the_same_bits_and_those_of_the_interpreter(name: str) -> None:
    program = oc.parse(PROGRAMS[name])
    made = on(COUNTS, program)
    assert "@thread" in str(made[2].loops)
    for n in (3, 24):
        sizes = {size.name: n for size in program.sizes}
        free = {"steps": 3} if "steps" in sizes else {}
        sizes |= free
        arrays = {
            buffer.name: floats(buffer.name, *(n for _ in buffer.shape))
            for buffer in program.buffers
            if buffer.kind.value in ("input", "inout")
        }
        found = agree(made, *arrays.values(), **free)
        close(found, of_program(program, arrays, **free))
    if "inout" in PROGRAMS[name]:
        target = list(arrays.values())[-1].copy()
        given = [*list(arrays.values())[:-1], target]
        assert same_bits(made[3](*given, out=target, **free), found)


def test_a_cut_program_runs_on_threads() -> None:
    cut = oc.partition(
        oc.parse(PROGRAMS["a triangle"]), tile={"i": 8, "j": 8}, tail={"i": "ladder", "j": "cut"}
    )
    made = on(COUNTS, cut.loops)
    for n in edge_sizes(8):
        x, c = floats("x", n), floats("c", n, n)
        close(agree(made, x, c), computed(lambda x, c: c + np.tril(np.outer(x, x)), x, c))


def test_an_index_that_leaves_its_array_is_refused_whichever_thread_meets_it() -> None:
    lookup = oc.parse("""
program lookup
size n in 0:1000
input ids: int32[n]
input table: float32[50, 8]
output y: float32[n, 8]
for i in 0:n
  for j in 0:8
    y[i, j] = table[index(ids[i]), j]
""")
    made = on((1, 2, 5), lookup)
    table, ids = floats("table", 50, 8), np.arange(100, dtype="int32") % 50
    assert same_bits(agree(made, ids, table), table[ids])
    for at in (0, 50, 99):
        wrong = ids.copy()
        wrong[at] = 50
        for kernel in made.values():
            with pytest.raises(oc.CallError, match="leads outside of an array"):
                kernel(wrong, table)
    assert same_bits(agree(made, ids, table), table[ids])


def test_a_scalar_of_an_iteration_is_each_threads_own() -> None:
    rows = oc.parse(ROWS)
    assert mark_parallel_loops(rows, 512, 2).own == {"t"}
    x, table = floats("x", 50), floats("table", 50, 70)
    expected = table + (x * np.float32(2))[:, None]
    assert same_bits(agree(on(COUNTS, rows), x, table), expected)


@cache
def dense_on_three() -> Kernel:
    return build(DENSE.result, inputs=DENSE.inputs, constants={"B": W}, threads=3)


@pytest.fixture
def dense() -> Kernel:
    """One kernel for all tests, whose calls take all threads."""
    return dense_on_three()


def test_four_python_threads_call_at_once(dense: Kernel) -> None:
    X, soft = softmax()
    other = build(soft, inputs=[X], threads=2)
    inputs = [floats(k, rows, 40) for k, rows in enumerate((1, 15, 33, 64))]
    expected = [(dense(x), other(x)) for x in inputs]
    start = threading.Barrier(4)

    def work(number: int) -> None:
        start.wait()
        for _ in range(500):
            found = dense(inputs[number]), other(inputs[number])
            assert all(map(same_bits, found, expected[number]))

    with ThreadPoolExecutor(4) as callers:
        list(callers.map(work, range(4)))


@needs_fork
def test_a_forked_child_makes_its_own_threads_and_the_parent_keeps_its(dense: Kernel) -> None:
    x = floats("x", 64, 40)
    expected = dense(x)

    def child() -> None:
        assert threads_of_process() == 1
        for _ in range(20):
            assert same_bits(dense(x), expected)
        assert threads_of_process() == 3
        assert in_child(lambda: None if same_bits(dense(x), expected) else sys.exit(1)) == 0

    for _ in range(3):
        assert in_child(child) == 0
        assert same_bits(dense(x), expected)


@needs_fork
def test_a_fork_while_another_thread_is_in_the_pool_leaves_the_child_free(dense: Kernel) -> None:
    x = floats("x", 200, 40)
    expected = dense(x)
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            dense(x)

    caller = threading.Thread(target=busy)
    caller.start()
    try:
        for _ in range(10):
            assert in_child(lambda: None if same_bits(dense(x), expected) else sys.exit(1)) == 0
    finally:
        stop.set()
        caller.join()


@needs_fork
def test_threads_that_start_the_pool_at_once_open_one() -> None:
    opened = list[object]()

    def slow(host: object) -> bool:
        opened.append(host)
        time.sleep(0.1)
        return True

    def child() -> None:
        pool._open = slow
        pool._start.cache_clear()
        with ThreadPoolExecutor(4) as callers:
            assert all(callers.map(lambda _: pool.start(), range(4)))
        assert len(opened) == 1

    assert in_child(child) == 0


@needs_fork
def test_a_fork_while_the_pool_starts_leaves_the_child_free() -> None:
    def child() -> None:
        signal.alarm(20)
        assert pool.start()

    with pool._starting:
        assert in_child(child) == 0


@needs_fork
@pytest.mark.skipif(
    not pool.is_supported() or usable_processors() < 2, reason="one thread runs at once here"
)
def test_workers_of_a_pinned_caller_run_where_the_process_may(dense: Kernel) -> None:
    def child() -> None:
        whole, callers = os.sched_getaffinity(0), list[int]()

        def pinned() -> None:
            os.sched_setaffinity(0, {min(whole)})
            dense(floats("x", 64, 40))
            callers.append(threading.get_native_id())

        caller = threading.Thread(target=pinned)
        caller.start()
        caller.join()
        workers = {int(task) for task in os.listdir("/proc/self/task")} - {os.getpid(), *callers}
        assert [os.sched_getaffinity(worker) for worker in workers] == [whole, whole]

    assert in_child(child) == 0


def threads_of_process() -> int:
    return len(os.listdir("/proc/self/task"))


def test_more_threads_than_processors_finish() -> None:
    program = oc.parse(PROGRAMS["steps"])
    few, many = build(program, threads=1), build(program, threads=16)
    a = floats("a", 60, 60)
    for _ in range(5):  # 600 barriers of 16 threads
        assert same_bits(many(a), few(a))


def test_beside_torch_and_its_threads(dense: Kernel) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    a = torch.randn(64, 40)
    weights = torch.from_numpy(W)
    expected = dense(a.numpy())
    for _ in range(50):
        product = (a @ weights).numpy()
        for either in (product, expected):
            close(either, exact_matmul(a.numpy(), W))
        found = dense(a)
        assert isinstance(found, torch.Tensor)
        assert same_bits(found.numpy(), expected)


PROCESS = """
import sys, numpy as np, offcut as oc
from dataclasses import replace
from offcut.backends.cpu.machine import isa
machine = isa.host().machine
machine = replace(machine, threads=replace(machine.threads, grain_seconds=1e-15))
isa.own_machine = lambda *place: machine
n = oc.dim("n", max=4096)
A = oc.placeholder((n, 64), name="A")
C = oc.compute((n, 64), lambda i, j: oc.exp(A[i, j]), name="C")
kernel = oc.compile(C, threads=4)
x = np.ones((100, 64), "float32")
for _ in range(100):
    kernel(x)
{end}
"""


@pytest.mark.parametrize(
    "end", ["", slow("sys.exit(0)"), slow("del kernel; import gc; gc.collect()")]
)
def test_a_process_with_parked_threads_exits(end: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROCESS.format(end=end)], capture_output=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def test_a_pickled_kernel_keeps_its_threads(dense: Kernel) -> None:
    x = floats("x", 29, 40)
    again = pickle.loads(pickle.dumps(dense))
    assert same_bits(again(x), dense(x))
    assert again.plan(m=64).notes == dense.plan(m=64).notes != ()
    program = build(oc.parse(PROGRAMS["one axis"]), threads=2)
    assert pickle.loads(pickle.dumps(program)).plan(n=9).notes == program.plan(n=9).notes


@pytest.fixture
def described() -> Iterator[None]:
    """Threads take the calls that are worth it."""
    with host_threads(grain_seconds=10e-6):
        yield


@pytest.mark.usefixtures("described")
def test_the_plan_says_how_many_threads_share_what() -> None:
    program = oc.parse(PROGRAMS["one axis"])
    made = build(program, threads=2)
    assert made.plan(n=5).notes[-1] == "one thread: less than 10 µs of work for each of two"
    assert str(made.loops).count("@thread") == 1
    square = contraction("mk,kn->mn", {"k": 128, "n": 128})
    wide = build(
        square.result, inputs=square.inputs, constants={"B": floats("b", 128, 128)}, threads=2
    )
    assert wide.plan(m=1).notes != wide.plan(m=1024).notes
    assert wide.plan(m=1024).notes[-1].startswith("2 threads share the iterations of ")
    assert wide.plan(m=1024).notes[-1] in str(wide.plan(m=1024))
    alone = build(square.result, inputs=square.inputs, threads=1)
    assert alone.plan(m=1024).notes == ()
    assert "@thread" not in str(alone.loops)


def test_the_plan_says_when_the_shared_loop_runs_once() -> None:
    made = on((2,), oc.parse(ROWS))[2]
    assert made.plan(n=1, m=900).notes[-1] == "one thread: of i_tile, i there is one iteration"
    assert made.plan(n=2, m=900).notes[-1] == "2 threads share the iterations of i_tile, i"


@pytest.mark.every(3)
@pytest.mark.parametrize("threads", [2, 3, 5])
def test_threads_share_an_image_that_is_left(threads: int) -> None:
    b = oc.dim("b", max=16)
    image = oc.placeholder((b, 16, 9, 28), name="I")
    weight = oc.placeholder((32, 16, 3, 3), name="W")
    w = floats("W", 32, 16, 3, 3)
    product = oc.ops.conv2d(image, weight, padding=1)
    made = on((1, threads), product, inputs=[image, weight], constants={"W": w})
    text = made[threads].source("loops")
    assert f"for n in 0:b - b % {threads}  @thread" in text
    assert f"for n in b - b % {threads}:b\n" in text
    for images in sorted({0, 1, threads - 1, threads, threads + 1, 3 * threads - 1}):
        x = floats(str(images), images, 16, 9, 28)
        for _ in range(20):
            agree(made, x)


def test_what_is_not_told_of_shared_loops_changes_no_bits() -> None:
    program = oc.parse("""
program recurrence
size n in 0:200
size m in 0:200
inout A: float64[n, m]
output r: float64[n]
for i in 0:n
  r[i] = 0.0
  for j in 1:m
    A[i, j] = A[i, j - 1]*0.5 + A[i, j]
  for j in 0:m
    r[i] += A[i, j]
""")
    cut = oc.partition(program, tile={"i": 4}, tail="mix").loops
    made = on((1, 2), cut)
    for n in (0, 1, 4, 5, 17):
        a = floats("a", n, 6).astype("float64")
        (left, sums), (same, others) = made[1](a.copy()), made[2](a.copy())
        assert np.array_equal(left, same)
        assert np.array_equal(sums, others)


def turned(images: str = "b", loop: str = "0:b", scalar: str = "") -> oc.Program:
    """Each image doubled, or multiplied by a scalar of its own, in a window; then turned, plus one."""
    lines = ["private s: float32[]", f"for n in {loop}", "  s[] = x[n, 0, 0]"]
    head = lines if scalar else lines[1:2]
    return oc.parse(
        f"program turned\nsize b in 0:100\ninput x: float32[{images}, 64, 64]\n"
        f"output y: float32[{images}, 64, 64]\nlocal t: float32[{images}, 64, 64]\n"
        + "\n".join(head)
        + f"""
  alloc t[n +: 1, 0 +: 64, 0 +: 64]
    for i in 0:64
      for j in 0:64
        t[n, i, j] = x[n, i, j] * {scalar or 2}
    for i2 in 0:64
      for j2 in 0:64
        y[n, i2, j2] = t[n, j2, i2] + 1
"""
    )


@pytest.mark.every(3)
@pytest.mark.parametrize("loop", ["0:b - 1", "3:b - 2", "b:2*b"])
@pytest.mark.parametrize("threads", [2, 8])
def test_a_loop_that_may_end_before_it_starts_is_shared_whole(loop: str, threads: int) -> None:
    program = turned("2*b", loop)
    divided = str(mark_parallel_loops(program, 512, threads).program).count("for n in") == 2
    assert divided == (loop == "b:2*b")
    made = on((1, threads), program)
    for b in range(6):
        x = floats("x", 2 * b, 64, 64)
        first, end = {"0": (0, max(b - 1, 0)), "3": (3, max(b - 2, 0)), "b": (b, 2 * b)}[loop[0]]
        expected = (x * np.float32(2)).transpose(0, 2, 1) + np.float32(1)
        for kernel in made.values():  # images outside of the loop are not written
            assert same_bits(kernel(x)[first:end], expected[first:end])


def test_an_image_with_a_scalar_of_its_own_is_one_threads() -> None:
    shared = mark_parallel_loops(turned(scalar="s[]"), 512, 2)
    assert shared.own == {"t", "s"}
    assert shared.loops == ("n",)
    made, x = on(COUNTS, turned(scalar="s[]")), floats("x", 5, 64, 64)
    expected = (x * x[:, :1, :1]).transpose(0, 2, 1) + np.float32(1)
    for images in (0, 1, 2, 5):
        assert same_bits(agree(made, x[:images]), expected[:images])


def test_a_window_that_threads_share_is_no_threads_own() -> None:
    shared = mark_parallel_loops(turned(), 512, 2)
    assert "t" not in shared.own
    # Before what reads the window; and at the loop's end, unless it has one iteration at most.
    for threads, count in ((2, 1), (3, 2)):
        text = str(mark_parallel_loops(turned(), 512, threads).program)
        assert text.count("barrier thread") == count
    made, x = on(COUNTS, turned()), floats("x", 5, 64, 64)
    expected = (x * np.float32(2)).transpose(0, 2, 1) + np.float32(1)
    for images in (0, 1, 2, 5):
        assert same_bits(agree(made, x[:images]), expected[:images])


def test_a_program_without_independent_iterations_runs_on_one_thread() -> None:
    chain = oc.parse("""
program chain
size n in 1:1000
inout x: float32[n]
for i in 1:n
  x[i] += x[i - 1]
""")
    made = on((1, 4), chain)
    assert same_bits(agree(made, np.ones(99, "float32")), np.arange(1, 100, dtype="float32"))
    says = "one thread: no loop is known to have iterations that may run side by side"
    assert made[4].plan(n=9).notes[-1] == says


def test_the_plan_says_what_was_not_found_out() -> None:
    lines = "".join(f"  x[(i + {k})//2] += 1.0\n" for k in range(17))
    text = f"program f\nsize n in 1:1000\ninout x: float32[n + 16]\nfor i in 0:n\n{lines}"
    says = "one thread: no loop is known to have iterations that may run side by side"
    why = "17 statements are too many to compare in pairs"
    assert build(oc.parse(text), threads=2).plan(n=9).notes[-1] == f"{says}: {why}"


def test_the_environment_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    program = oc.parse(PROGRAMS["one axis"])
    assert "@thread" not in str(build(program).loops)
    monkeypatch.setenv("OFFCUT_THREADS", "2")
    assert build(program).plan(n=3999).notes[-1].startswith("2 threads share")
    assert "@thread" not in str(build(program, threads=1).loops)


@pytest.mark.parametrize("text", ["x", "0", "-1", "2.5", "1025"])
def test_an_environment_that_is_no_number_is_refused(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFCUT_THREADS", text)
    with rejection(f"""\
TargetError: OFFCUT_THREADS: cannot take {text!r}
  because  it is an int in 1…1024: the most threads that one call may use
  help     OFFCUT_THREADS=2"""):
        build(oc.parse(PROGRAMS["one axis"]))


@pytest.fixture(scope="module", autouse=True)
def no_threads_from_outside() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OFFCUT_THREADS", raising=False)
        yield


@pytest.mark.slow
def test_of_an_image_that_is_known_to_have_no_columns_threads_share_nothing() -> None:
    """Tiles inside of loops that never run are not lowered, whatever is known of them."""
    n = oc.dim("n", 0, 8)
    X = oc.placeholder((n, 5, 0, 7), "float16", name="x")
    W = oc.placeholder((5, 5, 7, 7), "float16", name="w")
    B = oc.placeholder((7,), name="b")
    Y = oc.ops.conv2d(
        X, W, B, stride=(3, 1), padding=((2, 2), (2, 2)), dilation=(2, 1), layout="NHWC"
    )
    kernel = oc.compile(
        Y, constants={"w": np.ones((5, 5, 7, 7), "float16")}, strategy="mix", threads=2
    )
    for images in (0, 1, 3):
        given = np.zeros((images, 5, 0, 7), "float16"), np.zeros(7, "float32")
        assert kernel(*given).shape == (images, 1, 0, 7)


SHOWN = [slow(name) for name in PROGRAMS if name not in ("steps", "a scalar of its own")]


@pytest.mark.parametrize(
    "name", ["steps", "a scalar of its own", "turned", "a scalar and a window", *SHOWN]
)
def test_what_a_kernel_shows_is_a_text_whose_barriers_are_needed(name: str) -> None:
    made = {"turned": turned(), "a scalar and a window": turned(scalar="s[]")}.get(name)
    text = build(oc.parse(PROGRAMS[name]) if made is None else made, threads=2).source("loops")
    assert "@thread" in text
    assert build(oc.parse(text), threads=2).source("loops") == text
    lines = text.splitlines()
    barriers = [at for at, line in enumerate(lines) if line.strip() == "barrier thread"]
    for at in barriers:
        less, more = [*lines[:at], *lines[at + 1 :]], [*lines[:at], lines[at], *lines[at:]]
        for other in (less, more) if len(barriers) > 1 else (more,):
            with pytest.raises(oc.PartitionError, match="cannot keep the order of"):
                build(oc.parse("\n".join(other)), threads=2)


def test_what_a_strategy_shows_is_compiled_again() -> None:
    dense = oc.parse(DENSE_BY_STRATEGY)
    text = oc.compile(dense, strategy="balance", threads=2).source("loops")
    assert oc.compile(oc.parse(text), threads=2).source("loops") == text
    wrong = text.replace("+: q + 1, j", "+: q + 2, j", 1)  # rows of two tiles meet
    assert wrong != text
    with pytest.raises(oc.PartitionError):
        oc.compile(oc.parse(wrong), threads=2)


DENSE_BY_STRATEGY = """program dense
size n in 1:513
input A: float32[n, 64]
input B: float32[64, 96]
output C: float32[n, 96]
for i in 0:n
  for j in 0:96
    C[i, j] = 0.0
    for p in 0:64
      C[i, j] += A[i, p] * B[p, j]
"""
