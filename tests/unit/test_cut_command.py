"""Programs in files: `offcut cut` prints what `partition` makes and says why, `offcut check` compares two of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import refusals, rejection
from typer.testing import CliRunner

import offcut as oc
from tests.facade import app

GEMM = """\
program gemm
size n in 0:100
size m in 0:100
size K in 0:100
input A: float32[n, K]
input B: float32[K, m]
output C: float32[n, m]
for i in 0:n
  for j in 0:m
    C[i, j] = 0.0
    for k in 0:K
      C[i, j] += A[i, k] * B[k, j]
"""
run = CliRunner().invoke


@pytest.fixture
def gemm(tmp_path: Path) -> Path:
    path = tmp_path / "gemm.offcut"
    path.write_text(GEMM, encoding="utf-8")
    return path


def test_cut_prints_what_partition_makes(gemm: Path) -> None:
    done = run(app, ["cut", str(gemm), "--tile", "i=8,4", "--tile", "j=8", "--tail", "mask"])
    wanted = oc.partition(oc.parse(GEMM), tile={"i": (8, 4), "j": 8}, tail="mask")
    assert done.exit_code == 0
    assert done.stdout == f"{wanted}\n"


def test_cut_explains_and_draws(gemm: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws, is not installed")
    png = tmp_path / "cut.png"
    asked = ["--tile", "i=4", "--tile", "j=8", "--tail", "i=balance", "--explain"]
    at = [word for size in ("n=13", "m=20", "K=3") for word in ("--at", size)]
    done = run(app, ["cut", str(gemm), *asked, "--png", str(png), *at])
    assert done.exit_code == 0
    assert "i, j cut into" in done.stderr
    assert png.stat().st_size > 1000


def test_check_accepts_a_cut_and_refuses_a_mutant(gemm: Path, tmp_path: Path) -> None:
    cut = run(app, ["cut", str(gemm), "--tile", "i=4", "--tail", "cut"]).stdout
    emitted = tmp_path / "cut.offcut"
    emitted.write_text(cut, encoding="utf-8")
    accepted = run(app, ["check", str(gemm), str(emitted)])
    assert accepted.exit_code == 0
    assert "every result is left by the source's last write" in accepted.stdout
    emitted.write_text(cut.replace("0:n//4", "0:n//4 - 1"), encoding="utf-8")
    refused = run(app, ["check", str(gemm), str(emitted)])
    assert refused.exit_code == 2
    assert (
        refused.stderr
        == """\
prove: the emitted program does not compute what the source does
  at       gemm
  because  with n = 4, m = 1, K = 0, C[0, 0] has no value: C[0, 0] = 0.0 (i = 0, j = 0) is not run
"""
    )


REFUSED = refusals(
    """
given "cut", ["--tile", "i"]
cut: cannot read --tile i
  because  it is not a name=value
  help     --tile i=14
  help     --tile i=64,16

given "cut", ["--tile", "i=x"]
cut: cannot read --tile i=x
  because  'x' is not a whole number from 0 on
  help     --tile i=8

given "cut", ["--tile", "i=4", "--tail", "mask", "--tail", "cut"]
cut: cannot take 2 strategies for all loops
  at       --tail mask --tail cut
  because  one is for all that are not named
  help     --tail mask --tail i=balance

given "cut", ["--tile", "i=4,"]
cut: cannot read --tile i=4,
  because  there is no number
  help     --tile i=8

given "cut", ["--tile", "i=-4"]
cut: cannot read --tile i=-4
  because  '-4' is not a whole number from 0 on
  help     --tile i=8

given "cut", ["--tile", "i=4", "--tile", "i=8"]
cut: cannot take --tile i=8
  because  --tile i=4 came before
  help     --tile i=… once

given "cut", ["--tail", "mask"]
cut: cannot take --tail mask
  because  no --tile cuts a loop, so none has a tail
  help     --tile i=8 --tail mask

given "cut", ["--tile", "i=4", "--tail", "j=mask"]
cut: cannot take --tail j=mask
  because  no --tile cuts the loop j, so none has a tail
  help     --tile j=8 --tail j=mask

given "cut", ["--tile", "i=4", "--at", "n=3"]
cut: cannot take --at n=3
  because  it is a size of the picture, and none is drawn
  help     --png cut.png --at n=3

given "check", ["--tile", "i=x"]
check: cannot read --tile i=x
  because  'x' is not a whole number from 0 on
  help     --tile i=8

given "check", ["--tile", "i=4", "--tail", "=mask"]
check: cannot read --tail =mask
  because  it is not a name=value
  help     --tail i=balance

given "check", ["--tile", "i=4", "--tail", "mask", "--tail", "cut"]
check: cannot take 2 strategies for all loops
  at       --tail mask --tail cut
  because  one is for all that are not named
  help     --tail mask --tail i=balance
""",
    {},
)


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_read_is_refused(gemm: Path, what: str) -> None:
    command, asked, text = REFUSED[what]
    done = run(app, [command, str(gemm), *asked])
    assert (done.exit_code, done.stderr) == (2, f"{text}\n")


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (
            "n",
            "cut: cannot read --at n\n  because  it is not a name=value\n  help     --at n=29\n",
        ),
        (
            "n=x",
            "cut: cannot read --at n=x\n  because  'x' is not a whole number from 0 on\n"
            "  help     --at n=29\n",
        ),
    ],
)
def test_a_size_of_the_picture_is_a_whole_number(
    gemm: Path, tmp_path: Path, at: str, text: str
) -> None:
    done = run(app, ["cut", str(gemm), "--png", str(tmp_path / "cut.png"), "--at", at])
    assert (done.exit_code, done.stderr) == (2, text)


@pytest.mark.parametrize("at", [[], ["--at", "n=13"], ["--at", "q=3"]])
def test_a_picture_is_of_all_sizes(gemm: Path, tmp_path: Path, at: list[str]) -> None:
    done = run(app, ["cut", str(gemm), "--png", str(tmp_path / "cut.png"), *at])
    assert done.exit_code == 2
    assert done.stderr.endswith(
        f" at {at[1] if at else 'no sizes'}\n  because  its sizes are n, m, K\n"
        "  help     --at n=29 --at m=29 --at K=29\n"
    )


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = run(app, ["cut", str(tmp_path / "none")])
    assert done.exit_code == 2
    assert done.stderr.startswith("cut: cannot read ")
    assert done.stderr.endswith(
        "  because  No such file or directory\n"
        "  help     offcut cut FILE, of a loop program: its text, as `offcut cut` prints it\n"
    )


def test_only_programs_are_compared() -> None:
    with rejection("""\
DescribeError: prove_equal: cannot compare 'program gemm\\nsize n in 0:100\\nsize m in 0:100\\nsize K in 0…
  because  it is not a loop program
  help     parse(text)
  help     partition(…).loops"""):
        oc.prove_equal(oc.parse(GEMM), GEMM)  # type: ignore[arg-type]
    assert oc.prove_equal(oc.parse(GEMM), oc.parse(GEMM)).theorems


# A partition in words: every condition that stays, every loop that is left, and why.


def explained(text: str, tile: dict[str, Any], tail: str) -> str:
    """What a partition says, without the size of its object code."""
    made = oc.partition(oc.parse(text), tile=tile, tail=tail)
    return replace(made, measure=None).explain()


def test_what_stays_is_named_with_its_reason() -> None:
    text = """\
size n in 0:1000
size m in 0:1000
input X: float32[n]
output C: float32[n]
for i in 0:n
  if n*i < m
    C[i] = X[i]
  else
    C[i] = where(X[i] > 0.0, 1.0, 2.0)
"""
    assert (
        explained(text, {"i": 4}, "cut")
        == """\
program: i cut into 1 body, 1 tail. 2 conditions are left. 4 statements in 10 lines, 2 copies of each. 8 theorems hold for all sizes.
- loop i: keeps n * i < m: it is not quasi-affine
- loop i: keeps X[i] > 0.0: it depends on what is in memory"""
    )


def test_a_masked_tile_says_which_lanes_are_off() -> None:
    text = """\
size n in 0:1000
input X: float32[n]
output C: float32[n]
for i in 0:n
  C[i] = X[i] * 2.0
"""
    assert (
        explained(text, {"i": 4}, "mask")
        == """\
program: i cut into 1 body, 1 tail. One condition is left. 2 statements in 6 lines, 2 copies of each. 8 theorems hold for all sizes.
- i < n stays: it holds on a part of a tile"""
    )


def test_a_loop_in_steps_says_what_is_left_of_its_tiles() -> None:
    text = """\
program third
size n in 0:1000
input x: float32[n]
output y: float32[n]
for i in 0:n
  if i % 3 == 1
    y[i] = x[i] * 2.0
  else
    y[i] = x[i]
"""
    said = (
        "loop i: only what its steps of 3 leave over is in tiles of 8; copies=1, or `separate 1` in a "
        "schedule, keeps the condition, and cuts the loop"
    )
    program = oc.parse(text)
    cut = oc.partition(program, tile={"i": 8}, tail="cut")
    assert f"- {said}" in cut.explain().splitlines()
    kernel = oc.compile(program, schedule=cut.schedule)
    assert said in kernel.plan(n=20).notes
    whole = oc.partition(program, tile={"i": 8}, tail="cut", copies=1)
    assert "steps" not in whole.explain()
    assert [(piece.role, piece.tile["i"]) for piece in whole.pieces] == [("body", 8), ("tail", 1)]
