"""What models taken from torch say of a call before it: their kernels, and what these cost."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import rejection

pytest.importorskip("torch", reason="torch is an extra")

import torch

import offcut as oc
from offcut.plugins.torch import programs
from tests.agree import nearly
from tests.plugins.torch_models import Bessel


@pytest.fixture(scope="module")
def taken() -> Any:
    batch = torch.export.Dim("batch", max=64)
    shapes = {"x": {0: batch}}
    return oc.from_torch(Bessel().eval(), (torch.randn(3, 8),), dynamic_shapes=shapes, threads=1)


def test_sizes_have_the_names_of_arguments_and_axes(taken: Any) -> None:
    assert [(one.name, one.min, one.max) for one in taken.sizes] == [("x_0", 0, 64)]


def test_a_model_says_what_it_is(taken: Any) -> None:
    assert repr(taken) == (
        "<model of torch for any x_0: 2 regions of 3 operators by offcut, 1 operators by torch>"
    )


def test_a_plan_shows_the_kernels_of_all_regions_and_what_stays_with_torch(taken: Any) -> None:
    plan = taken.plan(x_0=5)
    assert [row[1] for row in plan.rows] == ["dense relu", "dense"]
    assert [row[3] for row in plan.rows] == ["[5, 8]", "[5, 8]"]
    assert [row[3] for row in taken.plan().rows] == ["[x_0, 8]", "[x_0, 8]"]
    assert plan.notes[-1] == "  1 × aten.i0.default: there is no rule for it"


def test_a_cost_is_the_sum_over_regions(taken: Any) -> None:
    regions = [step.model.cost for step in taken.program.steps if hasattr(step, "model")]
    (name,) = taken.program.called
    cost = taken.cost(x_0=5)
    assert cost.sizes == {"x_0": 5}
    assert cost.seconds == nearly(sum(one(**{name: 5}).seconds for one in regions))


def test_a_size_that_no_call_has_is_refused(taken: Any) -> None:
    with rejection(
        "CallError: cost: cannot take batch\n  because  the sizes of the model are x_0\n  help     cost(x_0=…)"
    ):
        taken.cost(batch=5)
    with pytest.raises(oc.CallError, match="cannot take x_0 = 65\n  because  x_0 is in 0…64"):
        taken.plan(x_0=65)


def test_what_torch_compiled_has_plans_and_costs_too() -> None:
    compiled = torch.compile(torch.nn.Linear(8, 4).eval(), backend="offcut", dynamic=True)
    with torch.no_grad():
        compiled(torch.randn(3, 8))
    program = programs()[-1]
    (size,) = program.predicted.sizes
    assert program.cost(**{size.name: 3}).flop < program.cost(**{size.name: 6}).flop
    assert len(program.plan(**{size.name: 3}).rows) == 1
