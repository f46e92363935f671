"""Names that were renamed work as before, and warn with the new one."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

import offcut as oc
from offcut import graph, search
from offcut.backends import target as targets
from offcut.costmodel import learned as costmodel_learned


def test_a_public_name_that_was_renamed_is_the_new_one() -> None:
    with pytest.warns(DeprecationWarning, match=r"^oc\.Take is now oc\.TileRun; the old name will"):
        assert oc.Take is oc.TileRun  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match="Planned is now TargetPlan"):
        assert targets.Planned is targets.TargetPlan  # type: ignore[attr-defined]
    with pytest.warns(
        DeprecationWarning, match=r"search\.Points is now offcut\.search\.ScheduleSpace"
    ):
        assert search.Points is search.ScheduleSpace  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match=r"search\.Expected is now .*\.ExpectedCost"):
        assert search.Expected is search.ExpectedCost  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match="Choices is now offcut.search.product_space"):
        assert search.Choices is search.product_space  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match="compiled is now offcut.graph.compile_graph"):
        assert graph.compiled is graph.compile_graph  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match="library is now .*xgboost_loader"):
        library = costmodel_learned.library  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match="there is now .*is_available"):
        assert library.there is library.is_available
    with pytest.raises(AttributeError, match=r"module 'offcut\.graph' has no attribute 'parsed'"):
        graph.parsed  # type: ignore[attr-defined]  # noqa: B018


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


def test_an_attribute_that_was_never_there_is_missing() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'lines'"):
        oc.target("cpu").lines  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="'TiledAxis' object has no attribute 'lines'"):
        oc.TiledAxis(4).lines  # type: ignore[attr-defined]  # noqa: B018


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
