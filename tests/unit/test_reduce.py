"""Programs that fail are found out and made small, as long as they fail in the same way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import offcut as oc
import offcut.ir as ir
from offcut import reduce
from offcut.core.testcase_shrinking import shrink, simpler_programs
from offcut.reduce import Failure, Request, failure, smaller
from tests.facade import app, normal

run = CliRunner().invoke
STENCIL = """\
program stencil
size n in 0:4097 multiple_of 2
size m in 0:4097
assume n <= m
constant W: float32[3]
input A: float32[n, m]
input X: float16[7]
inout D: float32[n, m]
local T: float32[n]
for t in 0:n
  T[t] = 2.0
for i in 0:n
  if i > 2
    D[i, 0] = 1.0
  else
    for j in 0:m  @unroll
      D[i, j] += max(A[i, j], 3.0) * W[1] + T[i]
"""
LARGER = """\
program larger
size n in 0:4097
input A: float32[n]
inout D: float32[n]
for i in 0:n
  if i > 2
    D[i] = 1.0
  else
    D[i] += max(A[i], 3.0)
"""
OUTSIDE = STENCIL.replace("A[i, j]", "A[i, j + 1]")


def stores(program: ir.Program) -> int:
    return sum(isinstance(stmt, ir.Store) for stmt in ir.walk(program))


def test_a_refusal_is_made_small_and_stays_the_same_refusal() -> None:
    request = Request(oc.parse(OUTSIDE), {"j": 4}, "mask")
    found = failure(request)
    assert found is not None
    assert (found.step, found.refused) == ("cutting", True)
    small = smaller(request, found)
    assert found.alike(failure(small))
    assert not small.tile or len(str(small.program)) < len(OUTSIDE) / 2
    assert stores(small.program) == 1


def test_wrong_values_of_a_kernel_are_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    def astray(program: ir.Program, **options: Any) -> oc.Kernel:
        """A compiler that takes the smaller one where the larger one is asked for."""

        def turned(node: ir.Expr) -> ir.Expr | None:
            found = isinstance(node, ir.Binary) and node.op == "max"
            return ir.Binary("min", node.a, node.b) if found else None

        return oc.compile(ir.rewrite_expressions(program, turned), **options)

    monkeypatch.setattr(reduce, "compile", astray)
    request = Request(oc.parse(LARGER))
    found = failure(request)
    assert found is not None
    assert (found.step, found.symptom, found.refused) == (
        "the kernel's values",
        "wrong values",
        False,
    )
    assert found.told.startswith("D[0] is ")
    small = smaller(request, found).program
    assert found.alike(failure(Request(small)))
    assert stores(small) == 1
    assert "max(" in str(small)
    assert len(str(small).splitlines()) <= 5


def test_wrong_values_of_a_cut_are_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cut:
        """A cut that forgets what is added."""

        def __init__(self, program: ir.Program, tile: Any, tail: Any) -> None:
            def forgets(stmt: ir.Stmt) -> tuple[ir.Stmt, ...] | None:
                return () if isinstance(stmt, ir.Store) and stmt.reduce else None

            self.loops = ir.rewrite(oc.partition(program, tile=tile, tail=tail).loops, forgets)

    monkeypatch.setattr(reduce, "partition", Cut)
    request = Request(oc.parse(STENCIL), {"i": 4, "j": 16}, {"i": "guard", "j": "mask"})
    found = failure(request)
    assert found is not None
    assert found.step == "the cut's values"
    small = smaller(request, found)
    assert stores(small.program) == 1
    assert "+=" in str(small.program)
    assert len(small.tile) == 1


def test_what_breaks_is_told_by_what_broke_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(program: ir.Program, **options: Any) -> oc.Kernel:
        raise oc.InternalError(f"no register for {program.name}[3]")

    monkeypatch.setattr(reduce, "compile", breaks)
    found = failure(Request(oc.parse(STENCIL)))
    assert found is not None
    assert found.symptom == "InternalError: no register for stencil[…] in reduce.py, failure"
    assert "Traceback" in found.told
    assert str(smaller(Request(oc.parse(STENCIL)), found)).count("\n") <= 5


def test_every_simpler_program_is_read_back_and_has_less_in_it() -> None:
    cut = oc.partition(oc.parse(STENCIL), tile={"j": 8}, tail="mask")
    for program in (oc.parse(STENCIL), cut.loops):
        found = list(simpler_programs(program))
        assert len(found) > 20
        assert all(oc.parse(str(one)) == one for one in found)
        assert min(map(stores, found)) < stores(program)


def test_the_search_ends_after_its_checks_and_tries_nothing_twice() -> None:
    tried: list[int] = []

    def even(number: int) -> bool:
        tried.append(number)
        return number % 2 == 0

    assert shrink(0, lambda n: [n - 1, n - 2, n - 1], even) == -598
    assert len(tried) == len(set(tried)) == 300
    assert shrink(9, lambda n: [n // 2] if n else [], lambda n: True) == 0


def test_messages_of_one_cause_are_alike() -> None:
    one = "with n = 1, m = 3, i = 0, it is A[1, 0] of a tensor of shape (n, 4)\nmore"
    other = "with k = 21, it is Beta[k + 1, 0] of a tensor of shape (n, 16)"
    assert normal(one) == normal(other)
    assert not Failure("a", "x", "").alike(None)


def test_the_command_prints_a_smaller_program_that_fails_alike(tmp_path: Path) -> None:
    path, small = tmp_path / "stencil.offcut", tmp_path / "small.offcut"
    options = ["--tile", "j=8", "--tail", "mask"]
    path.write_text(STENCIL, encoding="utf-8")
    done = run(app, ["check", str(path), *options])
    assert done.exit_code == 0
    assert done.stdout == "stencil is read back, compiled, and computes what it means\n"
    path.write_text(OUTSIDE, encoding="utf-8")
    done = run(app, ["check", str(path), *options, "--reduce"])
    assert done.exit_code == 2
    assert done.stderr.startswith("cutting: partition: cannot access A[i, j + 1] out of bounds\n")
    assert done.stdout.startswith("# offcut check FILE")
    small.write_text(done.stdout, encoding="utf-8")
    asked = done.stdout.splitlines()[0].split()[4:]
    again = run(app, ["check", str(small), *asked])
    assert again.exit_code == 2
    assert again.stderr.startswith("cutting: partition: cannot access A[")


def test_options_of_one_program_and_of_two_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "stencil.offcut"
    path.write_text(STENCIL, encoding="utf-8")
    for arguments, said in (
        (
            [str(path), "--reduce", "--tile", "i=4"],
            "check: cannot take --tile, --reduce\n"
            f"  because  {path} and {path} are compared as they stand\n"
            "  help     offcut check FILE --tile --reduce\n",
        ),
        (
            ["--reassociate"],
            "check: cannot take --reassociate\n"
            "  because  there is one program, and it is not compared with another\n"
            "  help     offcut check SOURCE EMITTED --reassociate\n",
        ),
    ):
        done = run(app, ["check", str(path), *arguments])
        assert (done.exit_code, done.stderr) == (2, said)
