"""Loop nests of MLIR cut or scheduled by `offcut-partition`: what xDSL's interpreter says of them beside numpy, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from conftest import slow

pytest.importorskip("xdsl", reason="the extra mlir is not installed")

from xdsl.dialects import scf
from xdsl.utils.exceptions import PassFailedException

import offcut as oc
from offcut.plugins.mlir import OffcutPartition
from tests.plugins.host_schedules import (
    COVERS,
    DECISIONS,
    INTRINSICS,
    KERNELS,
    SIZES,
    SUMS,
    TAILS,
    arrays,
    declare,
)
from tests.plugins.mlir_interpreter import run
from tests.plugins.mlir_programs import (
    AXPY,
    CASES,
    MATMUL,
    SLICE,
    SWEEP,
    context,
    floats,
    nest,
    parsed,
)

ROOT = Path(__file__).parents[2]
CUTS = [(name, tail) for name, case in CASES.items() for tail in case.tails]


def only_arrays(found: list[object]) -> list[np.ndarray]:
    return [one for one in found if isinstance(one, np.ndarray)]


@pytest.mark.every(2)
@pytest.mark.parametrize(("name", "tail"), CUTS)
def test_a_cut_nest_computes_what_the_nest_does(name: str, tail: str) -> None:
    case = CASES[name]
    source, cut = parsed(case.text), parsed(case.text)
    OffcutPartition(tile=case.tile, tail=tail).apply(context(), cut)
    cut.verify()
    assert str(cut) != str(source)
    again = parsed(str(cut))
    for size in (0, 1, 3, 4, 5, 17):
        arguments = case.arguments(size, np.random.default_rng(size))
        expected = case.expected(*arguments)
        for module in (source, again):
            for array, wanted in zip(only_arrays(run(module, arguments)), expected, strict=True):
                np.testing.assert_array_equal(array, wanted)


def test_ends_that_may_be_negative_are_asked_first() -> None:
    module = parsed(SLICE)
    OffcutPartition(tile="i=4").apply(context(), module)
    assert sum(isinstance(op, scf.IfOp) for op in module.walk()) >= 1
    x = np.arange(9, dtype=np.int32)
    for lo, hi in ((0, 5), (5, 5), (6, 2), (1, 9), (-2, -4), (3, -1)):
        wanted = x.copy()
        wanted[lo : max(lo, hi)] *= 2 if hi > lo else 1
        np.testing.assert_array_equal(run(module, [lo, hi, x])[2], wanted)
    module = parsed(AXPY)
    OffcutPartition(tile="i=4").apply(context(), module)
    y = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(run(module, [-5, y, y, 2.0])[2], y)


# What is refused, after which the module is as it was.


def refusal(source: str, **options: object) -> str:
    """The text of the refusal."""
    module = parsed(source)
    before = str(module)
    with pytest.raises(PassFailedException) as refused:
        OffcutPartition(**options).apply(context(), module)
    assert str(module) == before
    return str(refused.value).partition('\n"builtin.module"')[0]


def loop(body: str, head: str = "%c0 to %n step %c1", arguments: str = "") -> str:
    return f"""
func.func private @print(f32)
func.func @f(%A: memref<?xf32>{arguments}) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = memref.dim %A, %c0 : memref<?xf32>
  scf.for %i = {head} {{
    %a = memref.load %A[%i] : memref<?xf32>
    {body}
  }}
  return
}}
"""


CALL = loop("func.call @print(%a) : (f32) -> ()")
STORE = "memref.store %a, %A[%i] : memref<?xf32>"
STENCIL = nest(
    "f", "%A: memref<?xf32>, %steps: index", """
  %n = memref.dim %A, %c0 : memref<?xf32>
  %end = arith.subi %n, %c1 : index
  scf.for %t = %c0 to %steps step %c1 {
    scf.for %i = %c1 to %end step %c1 {
      %left = arith.subi %i, %c1 : index
      %right = arith.addi %i, %c1 : index
      %a = memref.load %A[%left] : memref<?xf32>
      %b = memref.load %A[%right] : memref<?xf32>
      %s = arith.addf %a, %b : f32
      memref.store %s, %A[%i] : memref<?xf32>
    }
  }"""
)  # fmt: skip
ALIAS = '%B = "memref.cast"(%A) : (memref<?xf32>) -> memref<?xf32>'
READ = "offcut-partition: cannot read "
REFUSED: dict[str, tuple[str, str]] = {
    READ + """func.call
  at       func.call @print(%a) : (f32) -> ()
  because  it is not a loop, condition, access or scalar operation""": (CALL, "i=8"),
    READ + """math.fma
  at       %b = math.fma %a, %a, %a : f32
  because  no expression of offcut.ir says what it computes""": (
        loop(f"%b = math.fma %a, %a, %a : f32\n    {STORE.replace('%a', '%b')}"), "i=8",
    ),
    READ + """scf.for
  at       scf.for %i = %c0 to %n step %s
  because  its step is not a positive literal of type index""": (
        loop(STORE, "%c0 to %n step %s", ", %s: index"), "i=8",
    ),
    READ + """scf.for
  at       scf.for %i = %c0 to %n step %c1
  because  B may share memory with another memref of the loop
  help     memrefs that are arguments, allocations or globals are memory of their own""": (
        loop(STORE.replace("%A", "%B")).replace("  scf.for", f"  {ALIAS}\n  scf.for"), "i=8",
    ),
    READ + """arith.divsi
  at       %q = arith.divsi %d, %c4 : index
  because  offcut rounds down, and its operand may be negative
  help     arith.floordivsi
  help     arith.ceildivsi""": (
        loop(
            "%c4 = arith.constant 4 : index\n    %d = arith.subi %i, %c4 : index\n"
            "    %q = arith.divsi %d, %c4 : index\n    memref.store %a, %A[%q] : memref<?xf32>"
        ), "i=8",
    ),
    """partition: cannot access A[n + i] out of bounds
  at       A[n + i] = A[i]
  because  with n = 1, i = 0, it is A[1] of a tensor of shape (n)
  help     an if around the statement, or where(condition, …) around the access""": (
        loop("%x = arith.addi %n, %i : index\n    memref.store %a, %A[%x] : memref<?xf32>"), "i=8",
    ),
    """partition: cannot cut t, i so
  at       nest
  because  with steps = 4, n = 11, A[8] = A[7] + A[9] (t = 1, i = 8) runs before A[9] = A[8] + A[10] (t = 0, i = 9)
  help     tile={"t": …} alone keeps the order of all instances""": (STENCIL, "t=4,i=8"),
    """offcut-partition: cannot find the loop 'k'
  because  no loop that can be read has that name
  help     i, acc.i, C.i, j, acc.j, C.j, p, acc.p""": (MATMUL, "k=8"),
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_not_read_or_not_cut_is_refused_with_its_reason(words: str) -> None:
    source, tile = REFUSED[words]
    assert refusal(source, tile=tile) == words


TILE_HELP = """
  help     tile="i=8,j=32"
  help     tile=8,32 by depth"""
TAIL_HELP = """
  help     tail=mask
  help     tail="i=balance,j=mask\""""


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tile": "i:8"}, "tile='i:8'\n  because  'i:8' is not a loop and its tile" + TILE_HELP),
        ({"tile": "i=-1"}, "tile='i=-1'\n  because  'i=-1' is not a loop and its tile" + TILE_HELP),
        ({"tile": "=8"}, "tile='=8'\n  because  '=8' is not a loop and its tile" + TILE_HELP),
        ({"tile": "i=8,i=4"}, "tile='i=8,i=4'\n  because  it says two tiles of i" + TILE_HELP),
        (
            {"tile": -1},
            "tile=-1\n  because  -1 is not a tile: one is from 1 on, and 0 leaves a loop as it is"
            + TILE_HELP,
        ),
        (
            {"tile": "i=8", "tail": "q=cut"},
            "tail='q=cut'\n  because  no loop that is cut is called q: i" + TAIL_HELP,
        ),
        (
            {"tail": "i=cut"},
            "tail='i=cut'\n  because  no loop that is cut is called i: none is cut" + TAIL_HELP,
        ),
        (
            {"tile": "i=8", "tail": "i=cut,mask"},
            "tail='i=cut,mask'\n  because  'mask' is not a loop and its strategy" + TAIL_HELP,
        ),
        (
            {"tile": "i=8", "tail": "i=cut,i=mask"},
            "tail='i=cut,i=mask'\n  because  it says two strategies of i" + TAIL_HELP,
        ),
        (
            {"tile": "i=8", "copies": -2},
            "copies=-2\n  because  it is what one store may become: 1 or more\n"
            "  help     copies=1 leaves every condition where it is",
        ),
    ],
)
def test_an_option_that_says_nothing_is_refused(options: dict[str, object], text: str) -> None:
    assert refusal(AXPY, **options) == f"offcut-partition: cannot take {text}"


def test_options_are_read_where_there_is_no_loop() -> None:
    empty = "func.func @f() { return }"
    for options in ({"tile": -1}, {"copies": 0}, {"tail": "i=mask"}):
        assert refusal(empty, **options).startswith("offcut-partition: cannot take")
    for source in (empty, AXPY):
        module, none = parsed(source), parsed(source)
        OffcutPartition(tile="").apply(context(), module)
        OffcutPartition().apply(context(), none)
        assert str(module) == str(none)
    assert refusal(AXPY, tile="i=8", tail="slice").startswith("partition: cannot take")


def test_a_nest_without_the_loop_is_left_as_it_is() -> None:
    for other in (CALL.replace("%i", "%x"), SWEEP.replace("%i", "%x")):
        module = parsed(AXPY + other.replace("@f", "@g"))
        kept = list(module.body.block.ops)[1:]
        before = [str(op) for op in kept]
        OffcutPartition(tile="i=4").apply(context(), module)
        assert [str(op) for op in kept] == before


def test_tiles_by_depth_are_those_by_name() -> None:
    by_name, by_depth = parsed(MATMUL), parsed(MATMUL)
    OffcutPartition(tile="j=8").apply(context(), by_name)
    OffcutPartition(tile=(0, 8)).apply(context(), by_depth)
    assert str(by_name) == str(by_depth) != str(parsed(MATMUL))


def test_a_tile_of_0_leaves_its_loop_by_name_as_by_depth() -> None:
    by_name, by_depth, alone = parsed(MATMUL), parsed(MATMUL), parsed(MATMUL)
    OffcutPartition(tile="i=0,j=8").apply(context(), by_name)
    OffcutPartition(tile=(0, 8)).apply(context(), by_depth)
    OffcutPartition(tile="j=8").apply(context(), alone)
    assert str(by_name) == str(by_depth) == str(alone)

    by_name, by_depth = parsed(MATMUL), parsed(MATMUL)
    OffcutPartition(tile="i=0").apply(context(), by_name)
    OffcutPartition(tile=(0,)).apply(context(), by_depth)
    assert str(by_name) == str(by_depth)
    assert "no loop that is cut is called i: none is cut" in refusal(
        MATMUL, tile="i=0", tail="i=mask"
    )


def test_xdsl_opt_finds_the_pass_and_runs_it(tmp_path: Path) -> None:
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    described = tmp_path / "named-1.0.dist-info"
    described.mkdir()
    lines = "\n".join(f"{name} = {where}" for name, where in entry["xdsl.universe"].items())
    (described / "entry_points.txt").write_text(f"[xdsl.universe]\n{lines}\n")
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: named\nVersion: 1.0\n")
    source = tmp_path / "axpy.mlir"
    source.write_text(AXPY)

    def opt(options: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(ROOT), str(tmp_path), *filter(None, sys.path)])
        command = [sys.executable, "-m", "xdsl.tools.xdsl_opt", str(source), "-p", options]
        return subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
        )

    done = opt('offcut-partition{tile="i=4" tail=mask}')
    assert done.returncode == 0, done.stderr
    x = np.arange(9, dtype=np.float32)
    y = run(parsed(done.stdout), [9, x, x, 2.0])[2]
    np.testing.assert_array_equal(y, 3 * x)
    refused = opt('offcut-partition{tile="j=4"}')
    assert refused.returncode != 0
    assert "cannot find the loop 'j'" in refused.stderr


# Schedules.


PRODUCT = nest(
    "product", "%A: memref<?x6xf32>, %B: memref<6x?xf32>, %C: memref<?x?xf32>", """
  %c6 = arith.constant 6 : index
  %two = arith.constant 2.0 : f32
  %n = memref.dim %A, %c0 : memref<?x6xf32>
  %m = memref.dim %B, %c1 : memref<6x?xf32>
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %m step %c1 {
      %s = scf.for %p = %c0 to %c6 step %c1 iter_args(%acc = %zero) -> (f32) {
        %a = memref.load %A[%i, %p] : memref<?x6xf32>
        %b = memref.load %B[%p, %j] : memref<6x?xf32>
        %ab = arith.mulf %a, %b : f32
        %next = arith.addf %acc, %ab : f32
        scf.yield %next : f32
      }
      %r = arith.mulf %s, %two : f32
      memref.store %r, %C[%i, %j] : memref<?x?xf32>
    }
  }"""
)  # fmt: skip
TEXTS = TAILS | SUMS | DECISIONS | COVERS | KERNELS
FAST = ("shift of i", "lanes", "choose", "cover", "a grid")
"""One of each kind; all of them at all sizes are slow."""


def scheduled(text: str, source: str = PRODUCT) -> str:
    module = parsed(source)
    OffcutPartition(schedule=text).apply(context(), module)
    module.verify()
    return str(module)


@pytest.mark.parametrize("name", [name if name in FAST else slow(name) for name in TEXTS])
def test_what_comes_back_computes_the_product(name: str) -> None:
    declare()
    module = parsed(scheduled("schedule product\n" + TEXTS[name].replace("{n}", "n")))
    for n in (0, 1, 5, 7) if name in FAST else SIZES:
        a, b, c = arrays(n, n + 1)
        found = run(module, [a, b, c], INTRINSICS, seed=n)
        np.testing.assert_array_equal(found[2], 2 * (a @ b), err_msg=f"n = {n}")


GRID = "bind C.i blockIdx.x\n"
REFUSALS = {
    "bind C.j warp": (
        "line 2: bind C.j warp",
        "offcut-partition has no warp that runs a loop: thread, lane, unroll, blockIdx.x, blockIdx.y, "
        "blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z",
    ),
    "bind C.i lane": (
        "line 2: bind C.i lane",
        "it runs a loop whose extent is a number, and none of the pieces of this loop has one",
    ),
    "split C.i 4 as io ii\nbind C.ii lane": (
        "line 3: bind C.ii lane",
        "vectors of MLIR load and store elements that lie beside each other, and no statement has such",
    ),
    "bind C.i thread\nbind C.j thread": (
        "line 3: bind C.j thread",
        "another loop around is run by threads already",
    ),
    GRID + "bind C.j thread": (
        "line 3: bind C.j thread",
        "threads of the processor run no loop inside of a grid",
    ),
    GRID + "bind C.j blockIdx.x": (
        "line 3: bind C.j blockIdx.x",
        "a loop around it is run by blockIdx.x already",
    ),
    "bind C.i threadIdx.x\nbind C.j blockIdx.x": (
        "line 2: bind C.i threadIdx.x",
        "it stands around a loop over blockIdx.x",
    ),
    GRID + "at acc C.i": (
        "line 3: at acc C.i",
        "nothing bounds its extent m, and an array inside of a kernel has a number of elements",
    ),
    "split C.i 4 as io ii\nat acc C.io\nbind C.io blockIdx.x\nbind C.ii threadIdx.x\nbind acc.j threadIdx.y": (
        "line 3: at acc C.io",
        "nothing bounds its extent m, and an array inside of a kernel has a number of elements",
    ),
    "split C.i 4 as io ii\nsplit C.j 4 as jo ji\norder C io jo ii ji\nbind C.io blockIdx.x\nbind C.ii threadIdx.y\n"
    "bind C.ji threadIdx.x\nat acc C.ii\nbind acc.j threadIdx.x": (
        "line 6: bind C.ii threadIdx.y",
        "threads of it meet inside of its loop, where not all threads of a block come",
    ),
    "bind * lane": (
        "line 2: bind * lane",
        "a target decides so, and offcut-partition has none",
    ),
    "bind acc.p thread": (
        "line 2: bind acc.p thread",
        "with n = 1, m = 1, acc[i, j] += A[i, p] * B[p, j] at i = 0, j = 0, p = 0 writes what the instance "
        "i = 0, j = 0, p = 1 overwrites",
    ),
    "cover acc at j nothing": (
        "line 2: cover acc at j nothing",
        "it is not a declared instruction",
    ),
}


@pytest.mark.parametrize("text", REFUSALS)
def test_what_the_module_cannot_say_is_refused_at_its_line(text: str) -> None:
    at, because = REFUSALS[text]
    words = refusal(PRODUCT, schedule=f"schedule product\n{text}").splitlines()
    assert words[1:3] == [f"  at       {at}", f"  because  {because}"]


FMA = next(k for k in oc.target("cpu").microkernels() if k.name.startswith("fma_float32"))
TARGETS = {
    (
        "cpu",
        FMA.name,
    ): f"{FMA.name} takes B as panels(0, 1, {FMA.operands['B'].layout.multiple[1]}), and a call of offcut-partition says strides",
    ("vta", "gemm_1x16x16"): "term: its elements are float32, and those of gemm_reset int32",
}


@pytest.mark.parametrize(("target", "name"), TARGETS)
def test_a_microkernel_of_a_target_is_judged(target: str, name: str) -> None:
    words = refusal(
        PRODUCT, schedule=f"schedule product\ncover acc at j {name}", target=target
    ).splitlines()
    assert words[1:3] == [
        f"  at       line 2: cover acc at j {name}",
        f"  because  {TARGETS[target, name]}",
    ]


NOT_TAKEN = {
    "a stage that is not there": (
        "split D.i 4 as io ii",
        {},
        "cannot find the nest of schedule product",
    ),
    "beside tiles": ("bind C.i thread", {"tile": "i=4"}, "cannot take schedule='schedule'"),
    "no decision": ("splt C.i 4 as io ii", {}, "cannot read a schedule"),
    "twice": ("separate 2\nseparate 2", {}, "cannot separate conditions twice"),
    "no target": ("bind C.i thread", {"target": "nowhere"}, "cannot plan for 'nowhere'"),
}


@pytest.mark.parametrize("what", NOT_TAKEN)
def test_a_schedule_that_is_none_of_the_nest_is_refused(what: str) -> None:
    text, options, words = NOT_TAKEN[what]
    assert (
        refusal(PRODUCT, schedule=f"schedule product\n{text}", **options)
        .partition(": ")[2]
        .startswith(words)
    )


def test_a_loop_may_carry_its_schedule_and_an_option_has_no_line_breaks() -> None:
    cut = "schedule product\\nsplit C.i 4 as io ii\\nbind C.ii unroll"
    told = scheduled(cut)
    lines = PRODUCT.splitlines()
    lines[-3] = f'  }} {{offcut.schedule = "{cut}"}}'
    module = parsed("\n".join(lines))
    OffcutPartition().apply(context(), module)
    assert str(module) == told != str(parsed(PRODUCT))
    lines[-3] = "  } {offcut.schedule = 3 : i64}"
    with pytest.raises(PassFailedException, match="it is not text"):
        OffcutPartition().apply(context(), parsed("\n".join(lines)))


# Each kind of nest beside the product: bits and functions on vectors, a value that a nest gives back, a covered stencil, a negative extent.


ROWS = nest(
    "rows", "%A: memref<?x8xf32>, %R: memref<?xf32>", """
  %c8 = arith.constant 8 : index
  %n = memref.dim %A, %c0 : memref<?x8xf32>
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %c8 step %c1 {
      %a = memref.load %A[%i, %j] : memref<?x8xf32>
      %r = memref.load %R[%i] : memref<?xf32>
      %s = arith.addf %r, %a : f32
      memref.store %s, %R[%i] : memref<?xf32>
    }
  }"""
)  # fmt: skip
BITS = nest(
    "bits", "%X: memref<?xi32>, %S: memref<?xi32>, %F: memref<?xf32>", """
  %mask = arith.constant 1023 : i32
  %n = memref.dim %X, %c0 : memref<?xi32>
  scf.for %i = %c0 to %n step %c1 {
    %x = memref.load %X[%i] : memref<?xi32>
    %s = memref.load %S[%i] : memref<?xi32>
    %f = memref.load %F[%i] : memref<?xf32>
    %low = arith.andi %x, %mask : i32
    %both = arith.xori %low, %s : i32
    memref.store %both, %X[%i] : memref<?xi32>
    %g = math.absf %f : f32
    memref.store %g, %F[%i] : memref<?xf32>
  }"""
)  # fmt: skip
TOTAL = nest(
    "total", "%A: memref<?xf32>, %R: memref<1xf32>", """
  %n = memref.dim %A, %c0 : memref<?xf32>
  %p = scf.for %i = %c0 to %n step %c1 iter_args(%u = %zero) -> (f32) {
    %a = memref.load %A[%i] : memref<?xf32>
    %s = arith.addf %u, %a : f32
    scf.yield %s : f32
  }
  memref.store %p, %R[%c0] : memref<1xf32>"""
)  # fmt: skip
WEIGHTED = nest(
    "stencil", "%A: memref<?xf32>, %W: memref<3xf32>, %C: memref<?xf32>", """
  %n = memref.dim %C, %c0 : memref<?xf32>
  scf.for %x = %c0 to %n step %c1 {
    memref.store %zero, %C[%x] : memref<?xf32>
    scf.for %r = %c0 to %c3 step %c1 {
      %xr = arith.addi %x, %r : index
      %a = memref.load %A[%xr] : memref<?xf32>
      %w = memref.load %W[%r] : memref<3xf32>
      %c = memref.load %C[%x] : memref<?xf32>
      %aw = arith.mulf %a, %w : f32
      %s = arith.addf %c, %aw : f32
      memref.store %s, %C[%x] : memref<?xf32>
    }
  }"""
)  # fmt: skip


def stencil(a: np.ndarray, w: np.ndarray, c: np.ndarray) -> None:
    for x in range(len(c)):
        c[x] = (a[x : x + 3] * w).sum()


def _stencil(a: np.ndarray, w: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
    c = np.empty_like(c)
    stencil(a, w, c)
    return [a, w, c]


def declare_stencil() -> None:
    x, w = oc.placeholder((6,), "float32", name="x"), oc.placeholder((3,), "float32", name="w")
    k = oc.reduce_axis(3, name="k")
    z = oc.compute((4,), lambda i: oc.sum(x[i + k] * w[k], axis=k), name="z")
    oc.decl_tensor_intrin(
        z,
        lambda ins, outs: oc.hardware_intrinsic(
            "stencil4", ins[0].access_ptr("r"), ins[1].access_ptr("r"), outs[0].access_ptr("w")
        ),
    )


OTHERS = {
    "lanes that add to one element are a reduction": (
        ROWS,
        "schedule rows\nbind R.j lane",
        lambda n, rng: [floats(rng, n, 8), floats(rng, n)],
        lambda a, r: [a, r + a.sum(1)],
    ),
    "bits on vectors": (
        BITS,
        "schedule bits\nsplit X.i 4 as io ii\nsplit F.i 4 as io ii\nbind X.ii lane\nbind F.ii lane",
        lambda n, rng: [*rng.integers(0, 9999, (2, n)).astype(np.int32), floats(rng, n)],
        lambda x, s, f: [(x & 1023) ^ s, s, abs(f)],
    ),
    "a value that a nest gives back": (
        TOTAL,
        "schedule total\nsplit u.i 4 as io ii\nrfactor u.io as part\nbind part.io thread",
        lambda n, rng: [floats(rng, n), np.zeros(1, np.float32)],
        lambda a, r: [a, a.sum(keepdims=True)],
    ),
    "a covered stencil": (
        WEIGHTED,
        "schedule stencil\nsplit C.x pad 4 as xo xi\nstage read A for C as AL in near\nat AL C.xo depth 2\n"
        "cover C at xi stencil4",
        lambda n, rng: [floats(rng, n + 2), floats(rng, 3), np.full(n, np.nan, np.float32)],
        _stencil,
    ),
    "a halo that a grid shares": (
        WEIGHTED,
        "schedule stencil\nsplit C.x mask 4 as xo xi\nstage read A for C as AL\nat AL C.xo\n"
        "bind C.xo blockIdx.x\nbind C.xi threadIdx.x\nbind AL.a0 threadIdx.x",
        lambda n, rng: [floats(rng, n + 2), floats(rng, 3), np.full(n, np.nan, np.float32)],
        _stencil,
    ),
    "an extent that may be negative": (
        AXPY,
        "schedule axpy\nsplit Y.i mask 4 as io ii\nbind Y.io blockIdx.x\nbind Y.ii threadIdx.x",
        lambda n, rng: [n - 1, floats(rng, 20), floats(rng, 20), 3.0],
        lambda n, x, y, a: [x, np.where(np.arange(20) < n, y + np.float32(a) * x, y)],
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_nests_compute_what_they_did(name: str) -> None:
    source, text, arguments, expected = OTHERS[name]
    declare_stencil()
    module = parsed(scheduled(text, source))
    assert ("vector.reduction <add>" in str(module)) == (source is ROWS)
    for n in SIZES:
        given = arguments(n, np.random.default_rng(n))
        found = run(module, given, {"stencil4": stencil}, seed=n)
        for array, wanted in zip(only_arrays(found), expected(*given), strict=True):
            np.testing.assert_array_equal(array, wanted, err_msg=f"n = {n}")
