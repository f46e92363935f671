"""Arguments and results of every kind, and layers that write to their buffers, through ``torch.compile``."""

import pytest

pytest.importorskip("torch", reason="torch is an extra")

import torch
import torch._dynamo
from torch import nn

from tests.plugins.torch_models import fresh, like

_fresh = pytest.fixture(autouse=True)(fresh)


def test_results_may_be_nested_named_none_and_arguments() -> None:
    class Several(nn.Module):
        def forward(self, x: torch.Tensor, keep: torch.Tensor, by: int) -> dict[str, object]:
            y = torch.relu(x).masked_fill(keep, 0.0) * by
            return {"y": y, "none": None, "x": x, "views": (y.t(), x.view(-1)), "by": keep + by}

    run = torch.compile(Several(), backend="offcut", dynamic=True)
    with torch.no_grad():
        for batch, by in (3, 2), (1, 3), (5, 1), (512, 2):
            given = torch.randn(batch, 8), torch.randn(batch, 8) > 0, by
            like(run(*given), Several()(*given))


def test_a_cast_that_torch_adds_is_taken() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    run = torch.compile(model, backend="offcut", dynamic=True)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for batch in (3, 1, 5):
            x = torch.randn(batch, 8)
            like(run(x), model(x))
