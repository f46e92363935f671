"""The closed form against enumeration: sums, counts, and the bytes that a simulated cache is filled with."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import refusals, rejection
from polybench import KERNELS

import offcut as oc
from offcut import Cost, Program
from offcut.core import index as ix
from offcut.core.dtypes import ITEM_BYTES
from offcut.core.scan import Range, ScanContext
from offcut.costmodel import Formulas, Hardware, Level, cost, formulas
from offcut.costmodel.closed.count_statements import operations
from offcut.costmodel.closed.counting import count_operations, count_program
from offcut.costmodel.closed.counts import Exactness, HowExact
from offcut.costmodel.closed.summation import NoClosedForm, sum_over
from offcut.ir import (
    Alloc,
    Binary,
    Compare,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Logic,
    Select,
    Stmt,
    Store,
    Tile,
    Var,
)
from offcut.ir import walk as nodes
from tests.agree import nearly
from tests.facade import evaluate, load_machine, proved_plan, requested, stand_ins

WAYS = 8
i, n, m = Var("i"), Var("n"), Var("m")
SIZES = ScanContext(tuple(Range(name, (ix.const(0),), (ix.const(99),)) for name in ("n", "m")))


@cache
def text_of(expr: Expr) -> Any:
    """An index expression as Python's code."""

    def text(one: Expr) -> str:
        match one:
            case Const(value):
                return str(int(value))
            case Var(name):
                return name
            case Binary("min" | "max" as op, a, b):
                return f"{op}({text(a)}, {text(b)})"
            case Binary(op, a, b) | Compare(op, a, b):
                return f"({text(a)} {op} {text(b)})"
            case Logic("not", (a,)):
                return f"(not {text(a)})"
            case Logic(op, args):
                return "(" + f" {op} ".join(map(text, args)) + ")"
            case Select(condition, then, other):
                return f"({text(then)} if {text(condition)} else {text(other)})"
            case _:
                raise AssertionError(one)

    return compile(text(expr), "index", "eval")


def value_of(expr: Expr, at: Mapping[str, int]) -> int:
    """What an index expression is at some place."""
    return int(eval(text_of(expr), {"__builtins__": {"min": min, "max": max}}, dict(at)))


def where(condition: Expr, then: Expr | int, other: Expr | int) -> Expr:
    return Select(condition, ix.index(then), ix.index(other))


TERMS: dict[str, Expr] = {
    "nothing of the iterator": ix.mul(3, m),
    "linear": ix.add(ix.mul(2, i), m),
    "a square": ix.mul(i, ix.add(i, m)),
    "a cube": ix.mul(ix.mul(i, i), ix.sub(n, i)),
    "a minimum": ix.minimum(6, ix.sub(n, ix.mul(6, i))),
    "a maximum of two that rise": ix.maximum(ix.mul(2, i), ix.add(i, 3)),
    "a minimum of two that rise alike": ix.minimum(ix.add(i, m), ix.add(i, n)),
    "a maximum of two that fall alike, in halves": ix.maximum(
        ix.sub(m, ix.floordiv(i, 2)), ix.sub(n, ix.floordiv(i, 2))
    ),
    "a condition of two that rise alike": where(Compare("<", ix.add(i, m), ix.add(i, n)), i, 7),
    "a condition": where(Compare("<", i, m), i, 7),
    "a condition the other way round": where(Compare(">=", ix.mul(2, i), m), ix.mul(i, i), 1),
    "one place": where(Compare("==", i, m), 5, i),
    "all but one place": where(Compare("!=", i, ix.const(3)), 5, i),
    "quotients, some of them negative": ix.floordiv(ix.sub(ix.mul(2, i), m), 40),
    "a square of a quotient": ix.mul(ix.floordiv(ix.add(i, m), 3), ix.floordiv(ix.add(i, m), 3)),
    "two quotients": ix.mul(ix.floordiv(i, 3), ix.floordiv(ix.add(i, 5), 18)),
    "a quotient and what it leaves": ix.mul(ix.add(i, 1), ix.floordiv(ix.add(i, 1), 64)),
    "the least of quotients": ix.minimum(ix.floordiv(n, 4), ix.add(ix.floordiv(i, 4), 1)),
    "a condition on a quotient that falls": where(
        Compare("<", m, ix.sub(7, ix.floordiv(i, 3))), i, 2
    ),
    "both": ix.mul(ix.minimum(i, m), where(Compare(">", i, ix.const(2)), i, 1)),
}
BOUNDS = [
    (ix.const(0), n),
    (ix.const(2), n),
    (m, n),
    (ix.floordiv(n, 3), n),
    (ix.const(0), ix.const(5)),
]


@pytest.mark.parametrize("term", TERMS)
def test_a_sum_is_what_adding_its_terms_gives(term: str) -> None:
    """Each term between some bounds, and every pair of bounds with some terms."""
    for bounds in BOUNDS[list(TERMS).index(term) % 2 :: 2]:
        found = sum_over("i", *bounds, TERMS[term], SIZES)
        for n, m in itertools.product((0, 1, 2, 5, 13), (0, 1, 4, 9)):
            sizes = {"n": n, "m": m}
            lo, hi = (value_of(bound, sizes) for bound in bounds)
            expected = sum(value_of(TERMS[term], {**sizes, "i": at}) for at in range(lo, hi))
            assert evaluate(found, sizes) == expected, (bounds, sizes)


def test_a_sum_without_a_closed_form_is_written_out_where_it_is_short() -> None:
    term = ix.floordiv(ix.mul(i, i), 7)
    few = sum_over("i", ix.const(0), ix.const(20), term, SIZES)
    assert evaluate(few, {}) == sum(k * k // 7 for k in range(20))
    with pytest.raises(NoClosedForm):
        sum_over("i", ix.const(0), n, term, SIZES)


def hardware(machine: str = "avx2", caches: tuple[int, ...] = ()) -> Hardware:
    """A machine whose plain loops run one by one, and whose caches have these capacities."""
    described = load_machine(machine)
    sizes = caches or tuple(memory.bytes for memory in described.memory)
    assert hasattr(described, "with_memory")
    for level, size in enumerate(sizes):
        described = described.with_memory(level, size, None)  # type: ignore[union-attr]
    levels = (Level(512, 1), *(Level(size, 64, WAYS) for size in sizes))
    return Hardware(described, {}, 32, levels)  # type: ignore[arg-type]


def ran(body: tuple[Stmt, ...], at: Mapping[str, int]) -> Iterator[tuple[Store, dict[str, int]]]:
    """Every instance of a program's statements, in order."""
    for stmt in body:
        match stmt:
            case Store():
                yield stmt, dict(at)
            case For(name, lo, hi):
                for value in range(int(value_of(lo, at)), int(value_of(hi, at))):
                    yield from ran(stmt.body, {**at, name: value})
            case Tile(axes, inner):
                starts = [int(value_of(axis.start, at)) for axis in axes]
                extents = [int(value_of(axis.extent, at)) for axis in axes]
                for point in itertools.product(*map(range, extents)):
                    here = {
                        axis.iter: start + step
                        for axis, start, step in zip(axes, starts, point, strict=True)
                    }
                    yield from ran(inner, {**at, **here})
            case If(condition, then, other):
                yield from ran(then if value_of(condition, at) else other, at)
            case Let(name, _, _, value, inner):
                yield from ran(inner, {**at, name: int(value_of(value, at))})
            case Alloc():
                yield from ran(stmt.body, at)


@pytest.mark.every(4)
@pytest.mark.parametrize("kernel", KERNELS)
def test_instances_and_operations_are_those_that_run_and_formulas_give_them(kernel: str) -> None:
    program = KERNELS[kernel].program()
    whole = count_program(program, hardware(), {})
    for values in ((1, 1, 1, 1), (2, 3, 4, 2), (5, 4, 3, 6)):
        sizes = {
            size.name: max(size.min, at) for size, at in zip(program.sizes, values, strict=False)
        }
        found = count_program(program, hardware(), sizes)
        assert found.exactness == "exact"
        runs = list(ran(program.body, sizes))
        ops = sum(operations(store) for store, _ in runs)
        for field, count in (("instances", len(runs)), ("flop", ops)):
            assert sum(literal(getattr(one, field)) for one in found.counts) == count
            if whole.exactness == "exact":
                assert sum(value_of(getattr(one, field), sizes) for one in whole.counts) == count


class Cache:
    """A cache of lines of 64 bytes in sets, whose least recently used line goes; what is stored is written back."""

    def __init__(self, size: int) -> None:
        self.sets = [OrderedDict[int, bool]() for _ in range(size // 64 // WAYS)]
        self.bytes = 0

    def touch(self, address: int, written: bool) -> None:
        line = address // 64
        kept = self.sets[line % len(self.sets)]
        if line in kept:
            kept.move_to_end(line)
        else:
            self.bytes += 64
            if len(kept) == WAYS:
                self.bytes += 64 * kept.popitem(last=False)[1]
        kept[line] = kept.get(line, False) or written


def simulated(program: Program, sizes: Mapping[str, int], size: int) -> int:
    """Bytes that move between a cache and what is behind it, in the second of two calls."""
    strides, starts, at = {}, {}, 0
    for buffer in program.buffers:
        extents = [int(value_of(extent, sizes)) for extent in buffer.shape]
        item = ITEM_BYTES[buffer.dtype]
        strides[buffer.name] = [item * int(np.prod(extents[k + 1 :])) for k in range(len(extents))]
        starts[buffer.name] = at
        at += -(-item * int(np.prod(extents)) // 64) * 64 + 64 * 37
    cache = Cache(size)

    def address(buffer: str, index: tuple[Expr, ...], values: Mapping[str, int]) -> int:
        places = zip(index, strides[buffer], strict=True)
        return starts[buffer] + sum(int(value_of(part, values)) * step for part, step in places)

    before = 0
    for _ in range(2):
        before = cache.bytes
        for store, values in ran(program.body, sizes):
            for node in nodes(store.value):
                if isinstance(node, Load):
                    cache.touch(address(node.buffer, node.index, values), False)
            cache.touch(address(store.buffer, store.index, values), True)
    return cache.bytes - before


STREAMED = {
    "a product, row by row": (
        """program product
size n in 1:65
input A: float32[n, 48]
input B: float32[48, 40]
output C: float32[n, 40]
for i in 0:n
  for j in 0:40
    C[i, j] = 0.0
    for k in 0:48
      C[i, j] += A[i, k] * B[k, j]
""",
        {"n": 12},
    ),
    "a product in tiles": (
        """program tiled
size n in 1:65
input A: float32[n, 64]
input B: float32[64, 64]
output C: float32[n, 64]
for jt in 0:4
  for i in 0:n
    for j in 16*jt:16*jt + 16
      C[i, j] = 0.0
      for k in 0:64
        C[i, j] += A[i, k] * B[k, j]
""",
        {"n": 12},
    ),
    "a sum of columns": (
        """program columns
size n in 1:257
input X: float32[n, 96]
output S: float32[96]
for j in 0:96
  S[j] = 0.0
for i in 0:n
  for j in 0:96
    S[j] += X[i, j]
""",
        {"n": 100},
    ),
    "two passes over rows": (
        """program passes
size n in 1:129
input X: float32[n, 256]
local M: float32[n]
output Y: float32[n, 256]
for i in 0:n
  M[i] = -inf
  for j in 0:256
    M[i] max= X[i, j]
  for j in 0:256
    Y[i, j] = X[i, j] - M[i]
""",
        {"n": 30},
    ),
    "a stencil": (
        """program stencil
size n in 3:129
input X: float32[n, 128]
output Y: float32[n, 128]
for i in 1:n - 1
  for j in 1:127
    Y[i, j] = X[i - 1, j] + X[i + 1, j] + X[i, j - 1] + X[i, j + 1]
""",
        {"n": 40},
    ),
    "a transposition": (
        """program turned
size n in 1:129
input X: float32[n, 64]
output Y: float32[64, n]
for i in 0:n
  for j in 0:64
    Y[j, i] = X[i, j]
""",
        {"n": 64},
    ),
    "a triangle": (
        """program triangle
size n in 1:129
input L: float32[n, n]
input b: float32[n]
output y: float32[n]
for i in 0:n
  y[i] = 0.0
  for j in 0:i + 1
    y[i] += L[i, j] * b[j]
""",
        {"n": 80},
    ),
}

# The simulator takes seconds for them; one cache, which holds neither all nor a tile alone, tells the most.
LONG = ("a product in tiles", "a product, row by row")


@pytest.mark.every(4)
@pytest.mark.parametrize(
    ("name", "size"),
    [
        (name, size)
        for name in STREAMED
        for size in (1024, 4096, 32768)
        if size == 4096 or name not in LONG
    ],
)
def test_bytes_are_those_of_a_simulated_cache(name: str, size: int) -> None:
    text, sizes = STREAMED[name]
    program = oc.parse(text)
    found = count_program(program, hardware(caches=(size, 1 << 22, 1 << 24)), sizes)
    moved = sum(literal(one) for one in found.moved[1].values())
    # A box is a hull: of a triangle it is the square, and rows are as long as in the middle.
    wide = 0.16 if name == "a triangle" else 0.105
    assert moved == nearly(simulated(program, sizes, size), rel=wide)


def literal(expr: Expr) -> int:
    return int(value_of(expr, {}))


K = oc.reduce_axis(96, name="k")
ROWS = oc.dim("rows", min=1, max=4096)
A, W = oc.placeholder((ROWS, 96), name="A"), oc.placeholder((96, 80), name="W")
C = oc.compute((ROWS, 80), lambda i, j: oc.sum(A[i, K] * W[K, j], axis=K), name="C")


@cache
def dense() -> oc.Kernel:
    return oc.compile(C, inputs=[A, W], constants={"W": np.ones((96, 80), "float32")})


NEAR = Exactness.ESTIMATE


@cache
def anywhere_of_dense() -> Formulas:
    return dense().cost()  # type: ignore[no-any-return]


@pytest.mark.parametrize("rows", [1, 7, 128])
def test_a_cost_counts_what_is_described_and_its_formulas_agree(rows: int) -> None:
    there, anywhere = dense().cost(rows=rows), anywhere_of_dense()
    (symbol,) = anywhere.flop.free_symbols
    assert str(symbol) == "rows"
    assert there.flop == 2 * rows * 96 * 80 == anywhere.flop.subs({symbol: rows})
    assert there.cycles == nearly(float(anywhere.cycles.subs({symbol: rows})), rel=0.02)
    assert there.seconds == there.cycles / there.hertz
    estimated = HowExact(flop=Exactness.EXACT, bytes=NEAR, cycles=NEAR, energy=NEAR)
    assert there.exactness == anywhere.exactness == estimated
    assert sum(piece.flop for piece in there.pieces) >= there.flop
    assert all(0 <= share <= 1 for share in there.occupancy.values())
    pairs = ((there.bytes, anywhere.bytes), (there.kept, anywhere.resident_bytes))
    for found, formula in pairs:
        for name, size in formula.items():
            assert found[name] == nearly(float(size.subs({symbol: rows})), rel=0.1, abs=64)


def test_a_call_that_does_nothing_moves_nothing_from_each_memory() -> None:
    program = oc.parse(STREAMED["a triangle"][0].replace("in 1:129", "in 0:129"))
    found = cost(program, program, hardware(), {"n": 0}, {"n": 0})
    assert found.bytes == {"L1": 0, "L2": 0, "L3": 0, "DRAM": 0}
    assert (found.flop, found.cycles, found.energy, found.bound_by) == (0, found.call, 0, "call")


def test_a_cost_reads_as_a_table() -> None:
    text = str(dense().cost(rows=33)).splitlines()
    assert text[0].startswith("C(rows = 33) on ")
    assert "506,880 flop" in text[0]
    assert "bound by" in text[0]
    assert text[1].split()[:3] == ["stage", "tile", "microkernel"]
    assert all(line.startswith("C ") for line in text[2:-2])
    assert text[-2].startswith("holds L1 ")
    assert text[-1] == "exact: flop; estimate: bytes, cycles, energy"


def test_a_machine_with_other_caches_moves_other_bytes() -> None:
    program = oc.parse(STREAMED["a product in tiles"][0])
    near, far = (
        cost(program, program, hardware(caches=(size, 1 << 20, 1 << 22)), {"n": 12}, {"n": 12})
        for size in (1 << 17, 1 << 11)
    )
    assert near.bytes["L2"] < far.bytes["L2"]
    assert near.bytes["L1"] == far.bytes["L1"]
    assert near.energy < far.energy


def test_energy_is_that_of_operations_and_bytes_by_the_table() -> None:
    program = oc.parse(STREAMED["a sum of columns"][0])
    described = hardware().machine
    found = cost(program, program, hardware(), {"n": 100}, {"n": 100})
    energy = described.energy
    assert energy is not None
    expected = 100 * 96 * energy.add.float32
    for memory in described.memory:
        expected += found.bytes[memory.name] * energy.on_chip(memory.bytes)
    expected += found.bytes[described.dram.name] * energy.dram
    assert found.energy == nearly(expected * 1e-12)


def test_what_no_size_tells_is_an_estimate() -> None:
    rows = oc.parse(
        """program rows
size n in 0:100
input first: int32[n + 1]
input x: float32[4096]
output y: float32[n]
for i in 0:n
  y[i] = 0.0
  for k in index(first[i]):index(first[i + 1])
    y[i] += x[k]
"""
    )
    at = cost(rows, rows, hardware(), {"n": 7}, {"n": 7})
    anywhere = formulas(rows, rows, hardware(), {})
    assert (
        at.exactness
        == anywhere.exactness
        == HowExact(flop=NEAR, bytes=NEAR, cycles=NEAR, energy=NEAR)
    )
    assert str(at).splitlines()[-1] == "estimate: flop, bytes, cycles, energy"


def test_a_curve_is_what_costs_at_its_sizes_say(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, of the extra plot, is not installed")
    anywhere = dense().cost()
    figure = anywhere.plot(tmp_path / "cost.png", over=(1, 40))
    assert (tmp_path / "cost.png").stat().st_size > 0
    (axes,) = figure.axes
    drawn = dict(zip(*(map(float, one) for one in axes.lines[0].get_data()), strict=True))
    assert set(drawn) == set(range(1, 41))
    for rows in (1, 7, 33):
        assert drawn[rows] == nearly(dense().cost(rows=rows).seconds * 1e6, rel=0.02)


REFUSED = refusals(
    """\
>>> dense().cost(rows=0)
cost: cannot take rows = 0
  because  rows is in 1…4096

>>> dense().cost(n=3)
cost: cannot take n
  because  the sizes of C are rows
  help     cost(rows=…)

>>> dense().cost().plot(size="n")
plot: cannot draw a curve
  at       n
  because  it runs along one of rows, and the others have values
  help     kernel.cost().plot(size=…, others=…)

>>> dense().cost().plot(over=(0, 9))
plot: cannot draw rows in 0…9
  because  rows is in 1…4096""",
    {"dense": dense},
)


@pytest.mark.parametrize("call", REFUSED)
def test_sizes_that_a_call_cannot_have_and_curves_that_there_are_not_are_refused(call: str) -> None:
    ask, text = REFUSED[call]
    with rejection(f"CallError: {text}"):
        ask()


def test_a_picture_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, of the extra plot, is not installed")
    with rejection(
        f"CallError: plot: cannot write the picture to {tmp_path}\n"
        "  because  Is a directory\n"
        '  help     kernel.cost().plot("cost.png")'
    ):
        dense().cost().plot(tmp_path)
    with pytest.raises(oc.CallError, match=r"nothing is not one of .*\n  help     .*/cost\.png$"):
        dense().cost().plot(tmp_path / "cost.nothing")


def test_a_cost_says_what_it_holds_and_what_its_code_takes() -> None:
    target = oc.target("cpu", machine="cascade-lake")
    wide = oc.ops.matmul(
        oc.placeholder((ROWS, 768), name="X"), oc.placeholder((768, 768), name="Y")
    )
    request = requested(wide, None, stand_ins(["Y"], wide, None, "cost"), "cost")
    options = target.options("cost")
    planned = proved_plan(target, request, options)
    found = target.predict_cost(planned, request, options, {"rows": 140})
    formula = target.predict_cost(planned, request, options)
    assert isinstance(found, Cost)
    # 14 rows by 2 vectors are accumulated; a group of 288 columns and a block of rows stay in L2.
    (body,) = (piece for piece in found.pieces if piece.role == "body")
    assert body.registers == 14 * 2 + 2 + 1
    assert set(found.occupancy) == {"L1", "L2", "L3"}
    assert 0.5 < found.occupancy["L2"] <= 1
    assert found.kept["L2"] == found.occupancy["L2"] * (1 << 20)
    assert found.code_bytes == formula.code_bytes
    assert 5e3 < found.code_bytes < 1e5
    assert found.compile_seconds == nearly(float(formula.compile_seconds))
    assert "31" in str(found)
    assert "holds L1" in str(found)
    assert {"occupancy", "code_bytes", "compile_seconds"} <= set(found.to_dict())


def cost_of_program(text: str, schedule: str | None = None, **sizes: int) -> Cost:
    program = oc.parse(text)
    kernel = oc.compile(program, schedule=None if schedule is None else oc.Schedule.parse(schedule))
    found = kernel.cost(**sizes)
    assert isinstance(found, Cost)
    return found


SYRK = """\
program syrk
size n in 0:2000
input A: float32[n, 24]
inout C: float32[n, n]
for i in 0:n
  for j in 0:i + 1
    for k in 0:24
      C[i, j] += A[i, k] * A[j, k]
"""


def test_rows_and_columns_of_one_array_are_apart() -> None:
    found = cost_of_program(SYRK, n=300)
    instances = 24 * 300 * 301 // 2
    assert found.flop == 2 * instances
    assert found.bytes["L1"] < 12 * instances


def test_a_tile_whose_extent_moves_has_a_cost() -> None:
    cut = "schedule syrk\nseparate 16\nsplit *.j ladder 8 as j_tile j_in\nbind * lane tree\nbind * lane"
    found = cost_of_program(SYRK, cut, n=33)
    assert found.flop == 2 * 24 * 33 * 34 // 2
    assert "i - 8*((i + 1)//8) + 1" in str(found)


def test_a_gather_touches_as_many_rows_as_it_reads() -> None:
    rows, table = oc.dim("rows", max=4096), oc.dim("table", min=1, max=65536)
    t, x = oc.placeholder((table, 40), name="T"), oc.placeholder((rows, 40), name="X")
    at = oc.placeholder((rows,), "int32", name="I")
    made = oc.compute((rows, 40), lambda i, j: t[oc.index(at[i]), j] * x[i, j], name="G")
    found = oc.compile(made, inputs=[t, at, x]).cost(rows=3000, table=50000)
    assert found.exactness.flop == "bound"
    assert max(found.bytes.values()) < 4 * 3000 * 40 * 4 * 2


def test_a_window_as_long_as_a_loop_around_leaves_open_is_priced() -> None:
    kernel = oc.compile(
        oc.parse(
            """program y
size n in 0:65
input A: float32[n]
local S: float32[n]
output Y: float32[n]
for io in 0:n
  alloc S[io +: n - io]
    for i in io:n
      S[i] = A[i] * 2.0
    for i in io:n
      Y[i] = S[i]
"""
        )
    )
    for n in (1, 8, 64):
        assert kernel.plan(n=n).seconds == nearly(kernel.cost(n=n).seconds, rel=0.05)


def test_operations_are_counted_of_tiles_too_and_for_any_machine() -> None:
    n = oc.dim("n", min=1, max=64)
    x = oc.placeholder((n, 40), name="X")
    result = oc.compute((n, 40), lambda i, j: x[i, j] * 2.0 + 1.0, name="Y")
    tiles = {"i": 8, "j": 16}
    program = oc.partition(result, tile=tiles, tail={"i": "cut", "j": "cut"}, target="cpu").loops
    amount = count_operations(program, {program.sizes[0].name: 13})
    assert (int(evaluate(amount.value, {})), amount.exactness) == (2 * 13 * 40, Exactness.EXACT)
