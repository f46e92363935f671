"""The names of the public face: functions, packages, and the one that is both."""

from __future__ import annotations

import inspect
import pickle
import pydoc
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from conftest import rejection, slow

import offcut as oc
from offcut import graph, pipeline, search
from offcut.backends import target as targets
from offcut.core.dtypes import to_dtype
from offcut.costmodel import learned as costmodel_learned
from offcut.errors import DescribeError
from tests.facade import DTYPES, Builder, numpy_dtype

AS_A_PACKAGE = """
import offcut.partition.strategies.catalog as strategies
import offcut
from offcut.partition import Strategy
assert offcut.partition.strategies.catalog is strategies and strategies.Strategy is Strategy
"""
AS_A_FUNCTION = """
import sys
import offcut as oc
program = oc.parse("size n in 0:9\\noutput A: float32[n]\\nfor i in 0:n\\n  A[i] = 1.0\\n")
assert oc.partition(program, tile={"i": 4}).loops != program
"""
DESCRIBED = """
import sys
import offcut as oc
n = oc.dim("n", max=64)
a = oc.placeholder((n, 8), name="A")
made = oc.compute((n, 8), lambda i, j: a[i, j] * 2.0, name="D")
unneeded = {f"offcut.{name}" for name in ("tuning", "search", "plugins", "costmodel", "backends")}
assert not unneeded & sys.modules.keys(), unneeded & sys.modules.keys()
"""
CALLED = """
import numpy as np
kernel = oc.compile(made)
before = {*sys.modules}
kernel(np.ones((3, 8), "f")[::-1])
assert not sys.modules.keys() - before, sys.modules.keys() - before
"""
FIRST = "import offcut; assert offcut.{0}.__name__.endswith({0!r})"


@pytest.mark.parametrize(
    "code",
    [
        AS_A_PACKAGE + AS_A_FUNCTION,
        slow(AS_A_FUNCTION + AS_A_PACKAGE),
        *(slow(FIRST.format(name)) for name in ("external", "ir", "ops", "errors", "partition")),
        DESCRIBED + CALLED,
    ],
    ids=[
        *("a package", "a function", "external", "ir", "ops", "errors", "partition"),
        "a call loads nothing, so that a fork meanwhile inherits no lock of an import",
    ],
)
def test_a_process_loads_what_it_asks_for_whatever_comes_first(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


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


def test_every_public_name_is_there_and_no_other() -> None:
    assert dir(oc) == sorted([*oc.__all__, "__version__"])
    for name in oc.__all__:
        assert name in dir(oc)
        assert callable(getattr(oc, name)) or name in ("errors", "external", "ir", "ops", "sync")


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


# Names that are spelt nearly right are told what they may have meant.


def test_a_misspelt_name_of_the_package_is_told_the_nearest() -> None:
    with rejection(
        "AttributeError: module 'offcut' has no attribute 'complie': did you mean compile or compute?"
    ):
        oc.complie  # noqa: B018
    with rejection(
        "AttributeError: module 'offcut.ops' has no attribute 'sofmax': did you mean softmax or log_softmax or max?"
    ):
        oc.ops.sofmax  # noqa: B018
    with pytest.raises(AttributeError, match=r"^module 'offcut' has no attribute 'qqq'$"):
        oc.qqq  # noqa: B018
    builder = Builder("g")
    with pytest.raises(DescribeError) as refused:
        builder.node("rulu", builder.input("x", "float32", (4,)))
    assert str(refused.value).endswith("\n  help     did you mean relu or relu6?")


# Names that were renamed work as before, and warn with the new one.


RENAMED = [
    (oc, "Take", "TileRun", r"^oc\.Take is now oc\.TileRun; the old name will"),
    (targets, "Planned", "TargetPlan", "Planned is now TargetPlan"),
    (search, "Points", "ScheduleSpace", r"search\.Points is now offcut\.search\.ScheduleSpace"),
    (search, "Expected", "ExpectedCost", r"search\.Expected is now .*\.ExpectedCost"),
    (search, "Choices", "product_space", "Choices is now offcut.search.product_space"),
    (graph, "compiled", "compile_graph", "compiled is now offcut.graph.compile_graph"),
    (oc.ir.panels(16), "laid", "arrange", r"^Layout\.laid is now Layout\.arrange;"),
    (oc.ir.panels(16), "padded", "padded_extents", r"^Layout\.padded is now Layout\.padded_extents;"),
]  # fmt: skip


@pytest.mark.parametrize(("owner", "old", "new", "said"), RENAMED)
def test_a_name_that_was_renamed_is_the_new_one(
    owner: object, old: str, new: str, said: str
) -> None:
    with pytest.warns(DeprecationWarning, match=said):
        assert getattr(owner, old) == getattr(owner, new)
    with pytest.raises(AttributeError, match="has no attribute 'parsed'"):
        owner.parsed  # type: ignore[attr-defined]  # noqa: B018


def test_names_inside_of_what_was_renamed_are_the_new_ones() -> None:
    with pytest.warns(DeprecationWarning, match="library is now .*xgboost_loader"):
        library = costmodel_learned.library  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match="there is now .*is_available"):
        assert library.there is library.is_available
    x = oc.placeholder((oc.dim("n", max=64),), "float32", name="x")
    made = oc.compute(x.shape, lambda i: x[i] + 1.0, name="y")
    formulas, piece = oc.compile(made).cost(), oc.partition(made, tile={"i": 8}).pieces[0]
    with pytest.warns(DeprecationWarning, match=r"^Formulas\.kept is now .*\.resident_bytes;"):
        assert formulas.kept == formulas.resident_bytes
    with pytest.warns(DeprecationWarning, match=r"^Piece\.entered is now Piece\.enclosing_blocks;"):
        assert piece.entered == piece.enclosing_blocks


@pytest.mark.parametrize(
    ("old", "new"),
    [("left", "remaining"), ("rest", "fixed"), ("one", "single"), ("moved_back", "shifted")],
)
def test_an_axis_takes_the_old_names(old: str, new: str) -> None:
    axis = oc.TiledAxis(8)
    arguments = {"rest": (2,), "one": (3,)}.get(old, ())
    with pytest.warns(DeprecationWarning, match=rf"TiledAxis\.{old} is now TiledAxis\.{new}"):
        value = getattr(axis, old)
    expected = getattr(oc.TiledAxis(8), new)
    if callable(expected):
        assert value(*arguments) == expected(*arguments)
    else:
        assert str(value) == str(expected)


def test_a_strategy_by_old_names_cuts_as_before() -> None:
    @oc.strategy("halve_by_old_names")
    def halve(axis):  # type: ignore[no-untyped-def]
        yield axis.full()
        yield axis.rest(1)

    n = oc.dim("n")
    x = oc.placeholder((n,), name="X")
    y = oc.compute((n,), lambda i: x[i] + 1.0, name="Y")
    with pytest.warns(DeprecationWarning, match="TiledAxis.rest is now"):
        cut = oc.partition(y, tile={"i": 4}, tail="halve_by_old_names")
    by_name = oc.partition(y, tile={"i": 4}, tail="cut")
    assert str(cut.loops) == str(by_name.loops)


def test_a_target_that_defines_old_names_is_asked_by_the_new_ones() -> None:
    with pytest.warns(DeprecationWarning, match=r"Old\.(forms is now source_forms|show is now)"):

        class Old(type(oc.target("interpret"))):  # type: ignore[misc]
            name = "old"
            forms = ("words",)

            def show(self, planned, signature, options, form):  # type: ignore[no-untyped-def]
                return f"{form} of {planned.program.name}"

    n = oc.dim("n")
    x = oc.placeholder((n,), name="X")
    y = oc.compute((n,), lambda i: x[i] + 1.0, name="Y")
    old = Old()
    kernel = oc.compile(y, target=old)
    assert kernel.source("words") == "words of Y"
    np.testing.assert_array_equal(kernel(np.zeros(3, np.float32)), np.ones(3, np.float32))
    with pytest.warns(DeprecationWarning, match=r"Old\.forms is now source_forms"):
        assert old.forms == ("words",)
    with pytest.raises(AttributeError, match="has no attribute 'lines'"):
        old.lines  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("module", "name", "home"),
    [
        ("contraction", "parse_contraction", "offcut.studies.contraction"),
        ("contraction", "Problem", "offcut.studies.peers.operators"),
        ("contraction", "Reference", "offcut.experiment.reference"),
        ("operators", "Attention", "offcut.studies.peers.operators"),
        ("peers", "load_peers", "offcut.studies.peers"),
    ],
)
def test_a_name_that_moved_to_another_room_is_found(module: str, name: str, home: str) -> None:
    old, new = import_module(f"offcut.experiment.{module}"), import_module(home)
    with pytest.warns(
        DeprecationWarning, match=rf"^offcut.experiment.{module}.{name} is now {home}.{name}; "
    ):
        assert getattr(old, name) is getattr(new, name)
    with pytest.raises(AttributeError, match=f"^module '{old.__name__}' has no attribute 'gone'$"):
        old.gone  # noqa: B018


# Element types go by their names, or by numpy's dtypes and types.


def test_a_type_goes_by_its_name_and_by_numpys_and_nothing_else_is_one() -> None:
    for name in DTYPES:
        assert to_dtype(name) == to_dtype(numpy_dtype(name)) == name
        assert to_dtype(numpy_dtype(name).type) == name
    for other in ("float", "f4", np.dtype(">f4"), np.complex64, object, None, 4):
        assert to_dtype(other) is None


def test_tensors_casts_and_graphs_take_numpys_types() -> None:
    n = oc.dim("n", max=9)
    x = oc.placeholder((n,), np.dtype("int8"), name="x")  # type: ignore[arg-type]
    y = oc.compute((n,), lambda i: oc.cast(x[i], ml_dtypes.bfloat16), name="y")  # type: ignore[arg-type]
    assert (str(x), str(y)) == ("x: int8[n]", "y: bfloat16[n]")
    made = Builder("g")
    made.output(made.node("relu", made.input("x", np.float32, (4,))))  # type: ignore[arg-type]
    assert "input x: float32[4]" in str(made.graph)
    assert oc.compile(y)(np.arange(3, dtype="int8")).tolist() == [0, 1, 2]


def test_a_refusal_shows_an_array_by_its_shape() -> None:
    with pytest.raises(oc.errors.DescribeError) as refused:
        oc.ops.relu(np.ones((40, 40)))
    assert str(refused.value).splitlines()[:2] == [
        "relu: cannot take x = an array of shape (40, 40)",
        "  because  it is not a tensor",
    ]
