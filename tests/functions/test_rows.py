"""Each row of the table of functions is right of numpy, mpmath, machines and editors; no list stands beside it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import mpmath
import numpy as np
import pytest

import offcut as oc
from offcut import ops
from offcut.backends.llvm import math_via_float64, vector_math
from offcut.core import functions
from offcut.core.function_table import FUNCTIONS, PUBLIC
from offcut.costmodel.description import load, shipped_machines
from offcut.costmodel.machine import Machine

PACKAGE = Path(oc.__file__).parent
POINTS = (-7.75, -1.5, -1.0, -0.5, -0.25, 0.0, 1e-3, 0.25, 0.5, 1.0, 1.5, 2.5, 30.25)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_row_says_what_numpy_and_mpmath_compute(name: str) -> None:
    row = FUNCTIONS[name]
    others = (None,) if row.arity == 1 else (-2.0, 0.5, 3.0)
    for x in POINTS:
        for y in others:
            given = [np.float64(one) for one in (x, y) if one is not None]
            with np.errstate(all="ignore"):
                found = float(row(*given))
            if not np.isfinite(found):
                continue
            wanted = float(row.exact(*given)) if hasattr(mpmath, row.mpmath) else found
            assert abs(found - wanted) <= 2 * np.spacing(abs(wanted))
            assert row.range[0] <= found <= row.range[1]


def test_a_row_has_the_name_that_editors_know() -> None:
    of_rows = {name: row for name, row in vars(functions).items() if row in FUNCTIONS.values()}
    assert {name for name in of_rows if not name.startswith("_")} == set(PUBLIC)
    for name, row in PUBLIC.items():
        assert of_rows[name] is row
        for place in (oc, ops):
            made = getattr(place, name)
            assert made.__name__ == name
            assert made.__doc__.endswith(row.help(*("ab" if place is oc else "xy")))
        assert name in oc.__all__
        assert name in ops.__all__


def test_every_machine_says_what_functions_take_or_their_rows_do() -> None:
    for name in shipped_machines():
        machine = load(name)
        if not isinstance(machine, Machine):
            continue
        for table in (machine.scalar, machine.vector):
            assert all(table.of(one) is None or table.of(one) > 0 for one in FUNCTIONS)
    assert all(row.cycles > 0 for row in FUNCTIONS.values())


def test_a_writer_is_of_a_row() -> None:
    for library in (vector_math, math_via_float64):
        assert set(library.WRITERS) <= set(FUNCTIONS)
        assert not any(FUNCTIONS[name].intrinsic for name in library.WRITERS)


def test_no_list_of_functions_stands_beside_the_table() -> None:
    names = set(FUNCTIONS) - {"max", "min"}  # those are reductions, too
    quoted = re.compile("|".join(f'"{name}"' for name in names))
    found = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if len(set(quoted.findall(text))) < 2:
            continue
        for node in ast.walk(ast.parse(text)):
            parts = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
            held = {one.value for one in parts if isinstance(one, ast.Constant)} & names
            if len(held) > 1:
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == {
        "backends/llvm/vector_math.py",
        "backends/llvm/math_via_float64.py",
        "core/text/c_expressions.py",  # two names that C spells otherwise
    }


def test_a_function_stands_in_its_row_its_writer_and_where_it_is_used() -> None:
    files = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\berf\b", path.read_text(encoding="utf-8"))
    }
    assert files == {
        "core/functions.py",
        "backends/llvm/vector_math.py",
        "ops/elementwise/activation.py",
        "studies/peers/operators.py",  # what a library's gelu is compared with
    }


@pytest.mark.slow
def test_an_editor_knows_the_functions_and_what_they_give() -> None:
    code = """\
import offcut as oc
n = oc.dim("n", min=1)
X = oc.placeholder((n,), name="X")
reveal_type(oc.exp(X[0]))
reveal_type(oc.ops.erf(X, name="Y"))
oc.exp(1.0)
oc.exq
oc.ops.exq
from offcut import tanh
from offcut.ops import tanh as of_tensors
"""
    made = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--follow-imports=silent", "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in made.stdout.splitlines() if line.startswith("<string>")]
    assert ['"offcut.describe.value.Value"' in lines[0], '.tensor.Tensor"' in lines[1]] == [
        True
    ] * 2
    assert [line.split(":")[1] for line in lines[2:]] == ["6", "7", "8"]
