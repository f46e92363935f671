"""The names of the public face: functions, packages, and the one that is both."""

from __future__ import annotations

import inspect
import pickle
import pydoc
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import offcut as oc
from offcut import pipeline

AS_A_PACKAGE = """
import offcut.partition.strategies.catalog as strategies
import offcut
from offcut.partition import Strategy
assert offcut.partition.strategies.catalog is strategies and strategies.Strategy is Strategy
"""
AS_A_FUNCTION = """
import offcut
program = offcut.parse("size n in 0:9\\noutput A: float32[n]\\nfor i in 0:n\\n  A[i] = 1.0\\n")
assert offcut.partition(program, tile={"i": 4}).loops != program
"""

DESCRIBED = """
import sys
import offcut as oc
n = oc.dim("n", max=64)
a = oc.placeholder((n, 8), name="A")
oc.compute((n, 8), lambda i, j: a[i, j] * 2.0, name="D")
unneeded = {f"offcut.{name}" for name in ("tuning", "search", "plugins", "costmodel", "backends")}
assert not unneeded & sys.modules.keys(), unneeded & sys.modules.keys()
"""
CALLED = """
import sys
import numpy as np
import offcut as oc
n = oc.dim("n", max=64)
a = oc.placeholder((n, 8), name="A")
kernel = oc.compile(oc.compute((n, 8), lambda i, j: a[i, j] * 2.0, name="D"))
before = {*sys.modules}
kernel(np.ones((3, 8), "f")[::-1])
assert not sys.modules.keys() - before, sys.modules.keys() - before
"""


@pytest.mark.every(2)
@pytest.mark.parametrize(
    "code",
    [AS_A_PACKAGE + AS_A_FUNCTION, AS_A_FUNCTION + AS_A_PACKAGE],
    ids=["package", "function"],
)
def test_partition_is_a_function_and_a_package_whichever_comes_first(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["external", "ir", "ops", "errors", "partition"])
def test_a_package_may_be_what_is_asked_for_first(name: str) -> None:
    asked = f"import offcut; assert offcut.{name}.__name__.endswith({name!r})"
    subprocess.run([sys.executable, "-c", asked], check=True)


def test_a_description_loads_what_it_needs() -> None:
    subprocess.run([sys.executable, "-c", DESCRIBED], check=True)


def test_a_call_loads_nothing_so_that_a_fork_meanwhile_inherits_no_lock_of_an_import() -> None:
    subprocess.run([sys.executable, "-c", CALLED], check=True)


def test_partition_has_the_signature_of_its_function_and_can_be_pickled() -> None:
    assert inspect.signature(oc.partition) == inspect.signature(pipeline.partition)
    assert pickle.loads(pickle.dumps(oc.partition)) is oc.partition
    assert callable(oc.partition)


def test_what_a_user_holds_is_shown_in_a_line() -> None:
    n = oc.dim("n", max=64)
    a = oc.placeholder((n, 8), name="A")
    doubled = oc.compute((n, 8), lambda i, j: a[i, j] * 2.0, name="D")
    cut, kernel = oc.partition(doubled, {"i": 4}), oc.compile(doubled)
    decisions = len(kernel.schedule.steps)  # of this machine
    shown = {
        "<partition D: 2 pieces, 0 by microkernels>": cut,
        "<piece D body: i body by 4; loops>": cut.pieces[0],
        f"<program D(n): 3 statements, {cut.source.digest}>": cut.source,
        "<kernel D(A) for any n>": kernel,
        f"<schedule D: {decisions} decisions, {kernel.schedule.digest}>": kernel.schedule,
        "<schedule by hand of D>": oc.create_schedule(doubled),
    }
    for text, held in shown.items():
        assert repr(held) == text
    assert repr(kernel.plan(n=3)).startswith("<plan D(n = 3), predicted ")
    assert repr(cut.certificate).startswith("<certificate: disjoint, ")
    for held in (cut, cut.source, kernel.schedule, kernel.plan(n=3)):
        assert held._repr_html_().startswith("<")


@pytest.mark.slow
def test_an_editor_knows_which_names_there_are() -> None:
    code = "import offcut as oc\noc.Tensor\noc.Partition\noc.Plan\noc.Kernel\noc.Tensr\n"
    made = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.stdout.count("error") == 2  # the line, and the tally
    assert 'has no attribute "Tensr"' in made.stdout


def test_every_public_name_is_there() -> None:
    for name in oc.__all__:
        assert name in dir(oc)
        assert callable(getattr(oc, name)) or name in ("errors", "external", "ir", "ops", "sync")


def test_dir_lists_the_public_names_alone():
    assert dir(oc) == sorted([*oc.__all__, "__version__"])


def test_help_of_partition_says_what_its_arguments_are():
    text = pydoc.plain(pydoc.render_doc(oc.partition))
    assert "tile    the largest tile by axis" in text
    assert "tail    a strategy by axis" in text
    assert len(text.splitlines()) < 40


CALLS = {
    "one(x)": "numpy.ndarray[Any, Any]",
    "one(Tensor(), n=3)": "Tensor",
    "one(Tensor(), **sizes)": "Tensor",
    "one(X=x, n=3)": "numpy.ndarray[Any, Any]",
    "one(n=3)": "numpy.ndarray[Any, Any]",
    "one(x, out=Tensor())": "Tensor",
    "two(x)": "tuple[numpy.ndarray[Any, Any], ...]",
    "two(Tensor())": "tuple[Tensor, ...]",
    "two(x, out=(Tensor(), Tensor()))": "tuple[Tensor, Tensor]",
    "program(x)": "numpy.ndarray[Any, Any] | tuple[numpy.ndarray[Any, Any], ...]",
    "program(Tensor())": "Tensor | tuple[Tensor, ...]",
    "program(x, out=Tensor())": "Tensor",
    "one.with_constants({})(Tensor())": "Tensor",
    "oc.load('file')(x)": "numpy.ndarray[Any, Any] | tuple[numpy.ndarray[Any, Any], ...]",
}


@pytest.mark.slow
def test_a_type_checker_knows_what_a_call_gives() -> None:
    code = """\
import numpy as np, offcut as oc
X = oc.placeholder((oc.dim("n"),), name="X")
Y, Z = oc.ops.exp(X), oc.ops.tanh(X)
x, sizes = np.ones(3), {"n": 3}
class Tensor: ...
one, two, program = oc.compile(Y), oc.compile((Y, Z)), oc.compile(oc.parse(""))
def of_one(kernel: oc.Kernel[np.ndarray]) -> None: ...
def of_any(kernel: oc.Kernel) -> None: ...
of_one(one); of_any(one); of_any(two)
of_one(two)
two(x).shape
"""
    code += "".join(f"reveal_type({call})\n" for call in CALLS)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--follow-imports=silent", "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    types = re.findall(r'Revealed type is "(.*)"', checked.stdout)
    assert [one.replace("__main__.", "") for one in types] == [*CALLS.values()]
    errors = [line for line in checked.stdout.splitlines() if ": error: " in line]
    assert [line.split(":")[1] for line in errors] == ["10", "11"]


def test_the_version_is_one_and_costs_no_look_at_metadata() -> None:
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    fallback = project["tool"]["hatch"]["version"]["fallback-version"]
    face = (root / "offcut" / "__init__.py").read_text(encoding="utf-8")

    assert f'__version__ = "{fallback}"' in face
    assert f"\nversion: {fallback}\n" in (root / "CITATION.cff").read_text(encoding="utf-8")
    code = "import sys, offcut; print(offcut.__version__, 'importlib.metadata' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [oc.__version__, "False"]
