"""Norms while a model trains: their statistics are results, too, which the backward graph of torch reads."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="an extra")

import torch
import torch._dynamo
from torch import nn

from offcut.plugins.torch import programs
from tests.agree import agree, of_peer

NORMS: dict[str, Callable[[], nn.Module]] = {
    "batch norm": lambda: nn.BatchNorm2d(4),
    "batch norm without a gain, of its own momentum": lambda: nn.BatchNorm2d(4, affine=False, momentum=0.3),
    "batch norm that holds nothing": lambda: nn.BatchNorm2d(4, track_running_stats=False),
    "layer norm over two axes": lambda: nn.LayerNorm((6, 6)),
    "group norm": lambda: nn.GroupNorm(2, 4),
}  # fmt: skip


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_that_trains_is_ours_and_steps_as_torch_steps(name: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), NORMS[name](), nn.ReLU()).train()
    exact = copy.deepcopy(model).double()
    run = torch.compile(model, backend="offcut", dynamic=True)
    ours, theirs = (torch.optim.SGD(one.parameters(), 0.1) for one in (model, exact))
    for batch in 3, 5, 2:
        x = torch.randn(batch, 3, 8, 8)
        run(x).square().mean().backward()
        exact(x.double()).square().mean().backward()
        for steps in ours, theirs:
            steps.step()
            steps.zero_grad()
    assert not programs()[-1].left
    state = exact.state_dict()
    for key, one in model.state_dict().items():
        agree(one.numpy(), of_peer(state[key].to(one.dtype).numpy()))
