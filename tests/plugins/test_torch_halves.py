"""What torch calculates of floats of 16 bits in float32, and rounds once: near the ends of their range, by factors beyond it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is an extra")

import torch
import torch.nn.functional as F

from offcut import ops
from offcut.graph.views import VIEWS
from offcut.plugins.torch import rules
from offcut.plugins.torch.dtypes import UNROUNDED
from offcut.plugins.torch.rule_table import ROUND_EACH, TABLE
from offcut.plugins.torch.translation import Translation
from tests.agree import agree
from tests.facade import Builder
from tests.plugins.torch_models import as_array, fresh

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "hidden": lambda x: (x > 0).to(x.dtype) * -1e9,
    "large factor": lambda x: x * 1e5,
    "large divisor": lambda x: x / 1e5,
    "whole factor": lambda x: x * 100_001,
    "factor": lambda x: 0.1 * x,
    "dividend": lambda x: 0.1 / x,
    "leaky relu": lambda x: F.leaky_relu(x, 0.3),
    "elu": lambda x: F.elu(x, 0.3),
    "sinh": lambda x: torch.sinh(x / 30),
    "cosh": lambda x: torch.cosh(x / 30),
    "expm1": lambda x: torch.expm1(x / 1e3),
    "mish": F.mish,
    "log10": lambda x: torch.log10(x.abs()),
    "power": lambda x: x**3,
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.3),
    "addcdiv": lambda x: torch.addcdiv(x, x, x, value=1e5),
    "addmm": lambda x: torch.addmm(x[:, :1] * 0 - 4e4, x / 4, x.T / 4),
    "dot": lambda x: torch.dot(x[0], x[-1] / 4),
    "alpha": lambda x: torch.sub(x, x.flip(0), alpha=3.3),
    "number of float32": lambda x: x * torch.tensor(1e5, dtype=torch.float32),
    "norm": lambda x: x.norm(dim=-1),
    "norm of cubes": lambda x: torch.linalg.vector_norm(x, 3, -1),
    "deviation": lambda x: x.std(-1),
    "variance": lambda x: (x / 2).var(-1),
    "distances": lambda x: torch.cdist(x, -x),
    "digits": lambda x: x.round(decimals=1),
    "mean of volumes": lambda x: F.avg_pool3d(x.reshape(1, -1, 2, 3, 4).abs(), 2, 1),
    "batch norm": lambda x: F.batch_norm(x, x[0] * 0, x[0].abs() * 1e-6),
}
"""Of x from 1e-2 to 250: steps of theirs leave the range of float16, or lose what is small."""

UNITS = {"sinh": 3, "cosh": 3, "batch norm": 3}
"""In the last place: of those whose argument is rounded first, as torch rounds it, and of what convolutions before it take in."""


_fresh = pytest.fixture(autouse=True)(fresh)


def every(x: torch.Tensor) -> dict[str, torch.Tensor]:
    return {name: function(x) for name, function in FUNCTIONS.items()}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_what_torch_rounds_once_is_rounded_once(dtype: torch.dtype) -> None:
    run = torch.compile(every, backend="offcut", dynamic=True)
    for rows in (3, 2, 5):
        sign = torch.where(torch.arange(rows * 24) % 3 == 0, -1.0, 1.0)
        x = (torch.logspace(-2, 2.4, rows * 24) * sign).reshape(rows, 24).to(dtype)
        with torch.no_grad():
            found, exact = run(x), every(x.double())
        for name, wanted in exact.items():
            eps = torch.finfo(dtype).eps / torch.finfo(torch.float32).eps
            exact_value = as_array(wanted.to(dtype).double())
            agree(as_array(found[name]), exact_value, units=UNITS.get(name, 1) * eps, what=name)


def squared_and_less(t: Translation, x: Any) -> Any:
    """``x * x - 4e4``, which leaves the range of float16 on the way."""
    return t.node("subtract", t.node("multiply", x, x), 4e4)


@pytest.mark.parametrize("each", [False, True], ids=["a rule that says nothing", "rounds_each"])
def test_no_rule_can_forget_that_it_is_rounded_once(
    each: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TABLE, torch.ops.aten.relu.default, squared_and_less)
    if each:
        monkeypatch.setattr("offcut.plugins.torch.translation.ROUND_EACH", {squared_and_less})
    x = torch.tensor([255.0, 260.0], dtype=torch.float16)
    with torch.no_grad():
        found = torch.compile(torch.relu, backend="offcut")(x)
    steps = (x * x - 4e4) if each else (x.float() * x.float() - 4e4).half()
    assert found.tolist() == steps.tolist()
    assert steps.isinf().any() == each


def test_what_a_rule_made_before_it_was_widened_is_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Builder] = []

    def noted(t: Translation, x: Any) -> Any:
        made.append(t.builder)
        return squared_and_less(t, x)

    monkeypatch.setitem(TABLE, torch.ops.aten.relu.default, noted)
    with torch.no_grad():
        torch.compile(torch.relu, backend="offcut")(torch.ones(2, dtype=torch.float16))
    ops_of = [[node.op for node in one.nodes] for one in made[:2]]
    assert ops_of == [["cast", "multiply", "subtract", "cast"]] * 2


def test_what_is_said_of_rounding_is_said_of_what_there_is() -> None:
    assert set(ops.__all__) | VIEWS.keys() >= UNROUNDED
    assert set(TABLE.values()) >= ROUND_EACH
    assert {getattr(rule, "func", rule).__module__ for rule in ROUND_EACH} <= {
        f"{rules.__name__}.{one}" for one in rules.__all__
    }
