"""What `offcut-partition` refuses, and what it leaves alone; and the pass as xdsl-opt runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("xdsl", reason="the extra mlir is not installed")

from xdsl.utils.exceptions import PassFailedException

from offcut.plugins.mlir import OffcutPartition
from tests.plugins.mlir_programs import AXPY, MATMUL, SWEEP, context, parsed, run

ROOT = Path(__file__).parents[2]


def refusal(text: str, **options: object) -> str:
    """The text of the refusal, after which the module is as it was."""
    module = parsed(text)
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
STENCIL = """
func.func @f(%A: memref<?xf32>, %steps: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
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
  }
  return
}
"""


def test_a_cut_that_changes_the_result_is_refused_with_a_witness() -> None:
    assert (
        refusal(STENCIL, tile="t=4,i=8")
        == """\
partition: cannot cut t, i so
  at       nest
  because  with steps = 4, n = 11, A[8] = A[7] + A[9] (t = 1, i = 8) runs before A[9] = A[8] + A[10] (t = 0, i = 9)
  help     tile={"t": …} alone keeps the order of all instances"""
    )


def test_an_operation_that_no_program_says_is_refused_by_its_text() -> None:
    assert (
        refusal(CALL, tile="i=8")
        == """\
offcut-partition: cannot read func.call
  at       func.call @print(%a) : (f32) -> ()
  because  it is not a loop, condition, access or scalar operation"""
    )


def test_a_scalar_operation_that_rounds_otherwise_is_refused() -> None:
    fused = loop("%b = math.fma %a, %a, %a : f32\n    memref.store %b, %A[%i] : memref<?xf32>")
    assert (
        refusal(fused, tile="i=8")
        == """\
offcut-partition: cannot read math.fma
  at       %b = math.fma %a, %a, %a : f32
  because  no expression of offcut.ir says what it computes"""
    )


def test_a_step_that_no_literal_says_is_refused() -> None:
    text = loop("memref.store %a, %A[%i] : memref<?xf32>", "%c0 to %n step %s", ", %s: index")
    assert (
        refusal(text, tile="i=8")
        == """\
offcut-partition: cannot read scf.for
  at       scf.for %i = %c0 to %n step %s
  because  its step is not a positive literal of type index"""
    )


def test_memory_that_may_be_shared_is_refused() -> None:
    text = loop("memref.store %a, %B[%i] : memref<?xf32>").replace(
        "  scf.for",
        '  %B = "memref.cast"(%A) : (memref<?xf32>) -> memref<?xf32>\n  scf.for',
    )
    assert (
        refusal(text, tile="i=8")
        == """\
offcut-partition: cannot read scf.for
  at       scf.for %i = %c0 to %n step %c1
  because  B may share memory with another memref of the loop
  help     memrefs that are arguments, allocations or globals are memory of their own"""
    )


def test_an_access_that_always_leaves_its_memref_is_refused() -> None:
    text = loop("%x = arith.addi %n, %i : index\n    memref.store %a, %A[%x] : memref<?xf32>")
    assert (
        refusal(text, tile="i=8")
        == """\
partition: cannot access A[n + i] out of bounds
  at       A[n + i] = A[i]
  because  with n = 1, i = 0, it is A[1] of a tensor of shape (n)
  help     an if around the statement, or where(condition, …) around the access"""
    )


def test_a_quotient_of_what_may_be_negative_is_refused() -> None:
    text = loop(
        """\
    %c4 = arith.constant 4 : index
    %d = arith.subi %i, %c4 : index
    %q = arith.divsi %d, %c4 : index
    memref.store %a, %A[%q] : memref<?xf32>"""
    )
    assert (
        refusal(text, tile="i=8")
        == """\
offcut-partition: cannot read arith.divsi
  at       %q = arith.divsi %d, %c4 : index
  because  offcut rounds down, and its operand may be negative
  help     arith.floordivsi
  help     arith.ceildivsi"""
    )


def test_a_loop_that_is_not_there_is_refused_with_those_that_are() -> None:
    assert (
        refusal(MATMUL, tile="k=8")
        == """\
offcut-partition: cannot find the loop 'k'
  because  no loop that can be read has that name
  help     i, acc.i, C.i, j, acc.j, C.j, p, acc.p"""
    )


TILES = """
  help     tile="i=8,j=32"
  help     tile=8,32 by depth"""
TAILS = """
  help     tail=mask
  help     tail="i=balance,j=mask\""""


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tile": "i:8"}, "tile='i:8'\n  because  'i:8' is not a loop and its tile" + TILES),
        ({"tile": "i=-1"}, "tile='i=-1'\n  because  'i=-1' is not a loop and its tile" + TILES),
        ({"tile": "=8"}, "tile='=8'\n  because  '=8' is not a loop and its tile" + TILES),
        ({"tile": "i=8,i=4"}, "tile='i=8,i=4'\n  because  it says two tiles of i" + TILES),
        (
            {"tile": -1},
            "tile=-1\n  because  -1 is not a tile: one is from 1 on, and 0 leaves a loop as it is"
            + TILES,
        ),
        (
            {"tile": "i=8", "tail": "q=cut"},
            "tail='q=cut'\n  because  no loop that is cut is called q: i" + TAILS,
        ),
        (
            {"tail": "i=cut"},
            "tail='i=cut'\n  because  no loop that is cut is called i: none is cut" + TAILS,
        ),
        (
            {"tile": "i=8", "tail": "i=cut,mask"},
            "tail='i=cut,mask'\n  because  'mask' is not a loop and its strategy" + TAILS,
        ),
        (
            {"tile": "i=8", "tail": "i=cut,i=mask"},
            "tail='i=cut,i=mask'\n  because  it says two strategies of i" + TAILS,
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
    module = parsed(empty)
    OffcutPartition(tile="").apply(context(), module)
    assert str(module) == str(parsed(empty))


def test_an_empty_text_says_no_tile() -> None:
    module = parsed(AXPY)
    OffcutPartition(tile="").apply(context(), module)
    none = parsed(AXPY)
    OffcutPartition().apply(context(), none)
    assert str(module) == str(none)


def test_a_strategy_that_is_none_is_refused() -> None:
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
    _, y = run(parsed(done.stdout), [9, x, x, 2.0])[0]
    np.testing.assert_array_equal(y, 3 * x)
    refused = opt('offcut-partition{tile="j=4"}')
    assert refused.returncode != 0
    assert "cannot find the loop 'j'" in refused.stderr
