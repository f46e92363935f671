"""Extents that an operator of torch finds, and numbers of rows beyond which torch calculates otherwise: both doors."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="an extra")

import torch
import torch._dynamo
from torch import nn
from torch._dynamo.utils import counters

import offcut as oc
from offcut.plugins.torch import programs
from tests.plugins.torch_models import held


def expert() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))


class Chosen(nn.Module):
    """One expert, of the rows that a condition chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.expert = expert()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = torch.where(x[:, 0] > 0)[0]
        return torch.zeros_like(x).index_add(0, rows, self.expert(x[rows]))


class Masked(nn.Module):
    """A sum over rows that a mask leaves, each beside its number among them."""

    def __init__(self) -> None:
        super().__init__()
        self.expert = expert()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.expert(x[x[:, 0] > 0])
        return (rows + torch.arange(rows.shape[0])[:, None] * 2.0).sum(0)


class Mixture(nn.Module):
    """The two best of three experts for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(8, 3), nn.ModuleList(expert() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, best = torch.topk(self.router(x).softmax(-1), 2)
        total = torch.zeros_like(x)
        for number, one in enumerate(self.experts):
            row, slot = torch.where(best == number)
            total = total.index_add(0, row, one(x[row]) * weights[row, slot, None])
        return total


class Distances(nn.Module):
    """Of rows, which torch calculates by a product where there are more than 25."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cdist(x, x).neg().exp().sum(-1)


CALLS = [(torch.randn(n, 8),) for n in (20, 1, 7, 0)]
FINDERS = {
    Chosen: "aten.nonzero.default",
    Masked: "aten.index.Tensor",
    Mixture: "aten.nonzero.default",
}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    counters.clear()


@pytest.mark.parametrize("make", FINDERS)
def test_what_follows_an_extent_that_torch_finds_is_ours_by_from_torch(make: type) -> None:
    module = make().eval()
    model = oc.from_torch(module, CALLS[0])
    held(model, module, [*CALLS, (-CALLS[2][0].abs(),)])
    assert {str(node.target) for node, _ in model.program.left} == {FINDERS[make]}
    assert f"{FINDERS[make]}: its shape depends on data" in model.report
    assert len(model.traced) == 1


@pytest.mark.parametrize("make", FINDERS)
def test_and_in_one_graph_by_torch_compile(make: type) -> None:
    module = make().eval()
    run = torch.compile(module, backend="offcut", dynamic=True)
    held(run, module, CALLS[:3])
    assert {str(node.target) for node, _ in programs()[-1].left} == {FINDERS[make]}
    assert (counters["stats"]["unique_graphs"], dict(counters["graph_break"])) == (1, {})


def test_a_plan_asks_for_an_extent_that_torch_finds_by_who_finds_it() -> None:
    model = oc.from_torch(Chosen().eval(), CALLS[0])
    assert [size.name for size in model.sizes] == ["x_0", "nonzero_u0"]
    assert model.cost(x_0=9, nonzero_u0=4).seconds > 0


def test_rows_beyond_which_torch_calculates_otherwise_are_another_program() -> None:
    model = oc.from_torch(Distances(), (torch.randn(2, 33, 3),))
    for b, n in (2, 33), (4, 5), (3, 26), (2, 25):
        x = torch.randn(b, n, 3)
        distance = (model(x) - Distances()(x)).abs().max()
        assert distance <= 0.01  # as near as torch's product is
    assert len(model.traced) == 2
    assert all(line.endswith("0 operators by torch") for line in model.report.splitlines())
