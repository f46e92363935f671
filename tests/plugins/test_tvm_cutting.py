"""TVM's loops cut by our partitioner: read, written, run by TVM beside numpy, and beside its own LoopPartition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import rejection

pytest.importorskip("tvm", reason="needs apache-tvm: make test-hosts installs it")

import tvm
from tvm.script import tirx as T
from tvm_ffi import structural_equal

import offcut.ir as ir
import offcut.plugins.tvm as plugin
from tests.agree import agree, exact_matmul, of_peer
from tests.plugins.tvm_functions import Fixed, Product, Scaled, guards, split, tvms

SIZES = [0, 1, 7, 8, 9, 29]
SETTINGS: list[tuple[dict[str, int], str]] = [
    ({}, "cut"),
    ({"j": 8}, "cut"),
    ({"i": 4, "j": 8}, "shift"),
    ({"i_1": 3, "j": 8}, "shift"),
    ({"j": 8}, "mask"),
    ({"i": 8, "i_1": 4}, "ladder"),
]


def of(module: Any) -> Any:
    return plugin.lowering_passes()(module)["main"]


def run(built: Any, *arrays: Any) -> Any:
    """The last array after a call."""
    given = [tvm.runtime.tensor(array) for array in arrays]
    built(*given)
    return given[-1].numpy()


def poisoned(*shape: int) -> Any:
    return np.full(shape, np.nan, np.float32)


@pytest.mark.parametrize(("tile", "tail"), SETTINGS, ids=str)
@pytest.mark.parametrize("by", [(), (8,)], ids=["plain", "split"])
def test_a_product_that_is_cut_is_the_product(
    by: tuple[int, ...], tile: dict[str, int], tail: str
) -> None:
    report = plugin.register("offcut-test", tile=tile, tail=tail)
    built = tvm.compile(split(Product, *by), target="llvm", tir_pipeline="offcut-test")
    assert list(report.cut) == ["main"]
    random = np.random.default_rng(1)
    for n in SIZES:
        a, w = (random.standard_normal(s).astype(np.float32) for s in ((n, 12), (12, 21)))
        agree(run(built, a, w, poisoned(n, 21)), exact_matmul(a, w))
        cut = report.cut["main"].loops.run({"A": a, "W": w, "C": poisoned(n, 21)}, n=n)
        agree(cut, exact_matmul(a, w))


@pytest.mark.parametrize("n", SIZES)
def test_two_split_axes_are_cut_on_both(n: int) -> None:
    built = tvm.compile(split(Scaled, 8, 4, hint=True), target="llvm", tir_pipeline="offcut")
    for m in SIZES:
        a = np.random.default_rng(m).standard_normal((n, m)).astype(np.float32)
        np.testing.assert_array_equal(run(built, a, poisoned(n, m)), 2 * a)


# The guards inside of loops: TVM's LoopPartition, with constant extents as well, and ours.
GUARDS = [
    ("one axis is split", Product, (8,), False, 2, 0),
    ("one axis is split, with a hint", Product, (8,), True, 3, 0),
    ("two axes are split", Scaled, (8, 16), False, 1, 0),
    ("two axes are split, with hints", Scaled, (8, 16), True, 2, 0),
    ("constant extent", Fixed, (8,), False, 1, 0),
]


@pytest.mark.parametrize(("what", "module", "by", "hint", "theirs", "ours"), GUARDS)
def test_no_guard_is_left_inside_of_loops(
    what: str, module: Any, by: tuple[int, ...], hint: bool, theirs: int, ours: int
) -> None:
    given = split(module, *by, hint=hint)
    page = Path(__file__).parents[2] / "docs/plugins/tvm.md"
    assert f"\n| {what} | {theirs} | {ours} |\n" in page.read_text(encoding="utf-8")
    assert guards(tvms(given, constant=True)) == theirs
    assert guards(plugin.partition_pass()(plugin.lowering_passes()(given))) == ours


def test_an_axis_of_symbolic_extent_is_cut_where_tvms_schedule_refuses_to() -> None:
    schedule = tvm.s_tir.Schedule(Product)
    loop = schedule.get_loops(schedule.get_sblock("C", func_name="main"))[0]
    with pytest.raises(tvm.s_tir.ScheduleError, match="dynamic shape"):
        schedule.loop_partition(loop, [None, 8])
    report = plugin.Report()
    plugin.partition_pass(tile={"i": 8}, report=report)(plugin.lowering_passes()(Product))
    assert {piece.role for piece in report.cut["main"].pieces} == {"body", "tail"}


def test_what_is_read_prints_as_loops_and_is_written_back_as_it_was() -> None:
    reading = plugin.read(of(split(Product, 8)))
    assert (
        str(reading.program)
        == """\
program main
size n in 0:1099511627777
input A: float32[n, 12]
input W: float32[12, 21]
inout C: float32[n, 21]
for i_0 in 0:(n + 7)//8
  for i_1 in 0:8
    for j in 0:21
      for k in 0:12
        if 8*i_0 + i_1 < n
          if k == 0
            C[8*i_0 + i_1, j] = 0.0
          C[8*i_0 + i_1, j] += A[8*i_0 + i_1, k] * W[k, j]"""
    )
    again = plugin.read(plugin.write(reading, reading.program))
    assert again.program == reading.program


@T.prim_func(s_tir=True)
def mixed(a: T.handle, b: T.handle, c: T.handle) -> None:
    """Conditions, integers read from memory, selects, functions, a name for an integer, an array of its own."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    n = T.int32()
    A = T.match_buffer(a, (n, 6), "float32")
    B = T.match_buffer(b, (n,), "int32")
    C = T.match_buffer(c, (n, 6), "float32")
    D = T.alloc_buffer((n,), "float32")
    for i in T.serial(n):
        D[i] = T.exp(A[i, 0]) + T.Cast("float32", B[i] // 2)
    for i in T.parallel(n):
        for j in T.vectorized(6):
            if j < 3 and i % 2 == 0:
                C[i, j] = T.max(A[i, j], T.float32(0)) * D[i]
            else:
                C[i, j] = T.if_then_else(
                    B[i] > 0,
                    A[T.min(B[i] % 3, i), j],
                    T.Select(i == j, T.float32(1), T.Cast("float32", i)),
                )
    for i, j in T.grid(n, 6):
        C[i, j] = T.max(C[i, j], T.float32(-1))


def mixed_by_numpy(a: Any, b: Any) -> Any:
    n = len(b)
    made = np.empty((n, 6))
    for i in range(n):
        d = np.exp(float(a[i, 0])) + b[i] // 2
        for j in range(6):
            if j < 3 and i % 2 == 0:
                made[i, j] = max(a[i, j], 0.0) * d
            elif b[i] > 0:
                made[i, j] = a[min(b[i] % 3, i), j]
            else:
                made[i, j] = 1.0 if i == j else float(i)
    return np.maximum(made, -1.0)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 9])
def test_what_loops_may_hold_is_read_and_written(n: int) -> None:
    module = tvm.IRModule({"main": mixed})
    plugin.register("offcut-test", tile={"i": 2})
    built = tvm.compile(module, target="llvm", tir_pipeline="offcut-test")
    random = np.random.default_rng(n)
    a = random.standard_normal((n, 6)).astype(np.float32)
    b = random.integers(-4, 5, n).astype(np.int32)
    wanted = of_peer(mixed_by_numpy(a, b))
    agree(run(built, a, b, poisoned(n, 6)), wanted)
    program = plugin.read(of(module)).program
    found = program.run({"A": a, "B": b, "C": poisoned(n, 6)}, n=n)
    agree(found, wanted)


def test_attributes_of_a_function_say_how_it_is_cut() -> None:
    attributes = {"offcut.tile": {"j": 8}, "offcut.tail": "shift"}
    module = tvm.IRModule({"main": Scaled["main"].with_attrs(attributes)})
    report = plugin.Report()
    plugin.partition_pass(tile={"i": 4}, report=report)(plugin.lowering_passes()(module))
    tiles = [s for s in ir.walk(report.cut["main"].loops) if isinstance(s, ir.Tile)]
    assert {axis.iter for tile in tiles for axis in tile.axes} == {"j"}
    assert ir.Form.SHIFT in {tile.form for tile in tiles}


@T.prim_func(s_tir=True)
def truncated(c: T.handle) -> None:
    n = T.int64()
    C = T.match_buffer(c, (n,), "int64")
    for i in T.serial(n):
        C[i] = T.truncdiv(i, T.int64(2))


@T.prim_func(s_tir=True)
def on_threads(c: T.handle) -> None:
    n = T.int64()
    C = T.match_buffer(c, (n,), "float32")
    for i in T.thread_binding(n, thread="threadIdx.x"):
        C[i] = T.float32(0)


@T.prim_func(s_tir=True)
def of_a_scalar(c: T.handle, m: T.int64) -> None:
    C = T.match_buffer(c, (8,), "int64")
    for i in T.serial(8):
        C[i] = m


@T.prim_func(s_tir=True)
def written_far(c: T.handle) -> None:
    T.func_attr({"global_symbol": "main"})
    n = T.int64()
    C = T.match_buffer(c, (n,), "float32")
    for i in T.serial(n):
        C[i + 1] = T.float32(0)


@T.prim_func(s_tir=True)
def of_no_shape(c: T.handle) -> None:
    n = T.int64()
    C = T.match_buffer(c, (2 * n,), "int64")
    for i in T.serial(n):
        C[i] = i


REFUSED = [
    (
        of_no_shape,
        "tvm: cannot read the name n\n  because  it is neither an extent of a parameter nor a loop's",
    ),
    (
        truncated,
        "tvm: cannot read T.Div(i, T.int64(2))\n"
        "  because  a quotient that truncates is not one that floors",
    ),
    (on_threads, "tvm: cannot read the loop i\n  because  an index of the hardware runs it"),
    (of_a_scalar, "tvm: cannot read the parameter m\n  because  it is not an array"),
]


@pytest.mark.parametrize(("function", "text"), REFUSED, ids=lambda one: "")
def test_what_cannot_be_read_is_refused_with_its_text(function: Any, text: str) -> None:
    with rejection(f"DescribeError: {text}"):
        plugin.read(function)


def test_what_is_no_function_is_refused() -> None:
    with rejection("DescribeError: tvm: cannot read 3\n  because  it is not a PrimFunc"):
        plugin.read(3)


def test_a_cut_whose_quotients_tvm_would_compute_too_early_is_not_written() -> None:
    report = plugin.Report()
    plugin.partition_pass(tile={"i": 8}, tail="balance", report=report)(
        plugin.lowering_passes()(Product)
    )
    assert report.skipped["main"].split("\n")[1:] == [
        "  because  TVM computes it before the loop in which its divisor is positive",
        "  help     a tail strategy of constant tiles",
    ]


def test_a_function_that_leaves_an_array_stays_as_it_is() -> None:
    module = plugin.lowering_passes()(tvm.IRModule({"main": written_far}))
    report = plugin.Report()
    made = plugin.partition_pass(tile={"i": 4}, report=report)(module)
    assert structural_equal(made["main"], module["main"])
    assert "n = 1" in report.skipped["main"]
    assert str(report).startswith("main: left; partition: ")


def test_what_is_read_names_apart_what_tvm_names_alike() -> None:
    names = [
        stmt.iter
        for stmt in ir.walk(plugin.read(of(tvm.IRModule({"main": mixed}))).program)
        if isinstance(stmt, ir.For)
    ]
    assert len(names) == len(set(names)) == 5


@T.prim_func(s_tir=True)
def in_two_steps(a: T.handle, c: T.handle) -> None:
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    C = T.match_buffer(c, (n,), "float32")
    B = T.alloc_buffer((n,), "float32")
    D = T.alloc_buffer((n,), "float32")
    for i in T.serial(n):
        B[i] = A[i] + T.float32(1)
    for i in T.serial(n):
        D[i] = B[i] * T.float32(3)
    for i in T.serial(n):
        C[i] = D[i] * T.float32(2)


@pytest.mark.parametrize("tail", ["cut", "mask", "shift", "ladder"])
def test_arrays_that_share_memory_are_written_once(tail: str) -> None:
    report = plugin.register("offcut-test", tile={"i": 4, "i_2": 4, "i_3": 4}, tail=tail)
    module = tvm.IRModule({"main": in_two_steps})
    built = tvm.compile(module, target="llvm", tir_pipeline="offcut-test")
    for n in SIZES:
        a = np.random.default_rng(n).standard_normal(n).astype(np.float32)
        wanted = 6 * (a.astype(np.float64) + 1)
        agree(run(built, a, poisoned(n)), wanted, terms=6)
    if tail == "shift":
        assert report.skipped["main"] == (
            "tvm: cannot write a shifted tile that reads B\n"
            "  because  TVM may keep what it writes in the memory of what it reads, and it runs twice\n"
            '  help     tail="cut"\n'
            '  help     tail="mask"'
        )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tile": "i=4"}, "tile='i=4'\n  because  it is said by loop\n  help     tile={\"i\": 8}"),
        (
            {"tail": 3},
            "tail=3\n  because  it is said by loop\n"
            '  help     tail="mask"\n  help     tail={"i": "mask"}',
        ),
    ],
)
def test_an_option_that_says_nothing_by_loop_is_refused(options: dict[str, Any], text: str) -> None:
    with rejection(f"DescribeError: tvm: cannot take {text}"):
        plugin.partition_pass(**options)
