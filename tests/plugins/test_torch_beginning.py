"""Frames of ours are traced once: with the settings of `tracing` from the first time on."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is an extra")

import torch
import torch._dynamo
from torch import nn
from torch._dynamo.utils import counters
from torch.fx.experimental import _config as symbolic

from offcut.plugins import torch as plugin
from tests.plugins.torch_models import fresh, held

_fresh = pytest.fixture(autouse=True)(fresh)


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval()


def calls(*batches: int) -> list[tuple[torch.Tensor, ...]]:
    return [(torch.randn(b, 1, 8),) for b in batches]


def test_a_frame_is_traced_once_where_dynamo_was_reset_too() -> None:
    for _ in range(2):
        torch._dynamo.reset()
        counters.clear()
        one = model()
        held(torch.compile(one, backend="offcut", dynamic=True), one, calls(3, 1, 13))
        assert counters["stats"]["unique_graphs"] == 1
        assert counters["stats"]["calls_captured"] == 3


def test_a_backend_that_is_given_as_a_function_asks_for_one_more_trace_after_a_reset() -> None:
    backend, one = plugin.backend, model()
    torch._dynamo.reset()
    held(torch.compile(one, backend=backend, dynamic=True), one, calls(3, 1, 13))
    assert counters["stats"]["unique_graphs"] == 1
    assert counters["stats"]["calls_captured"] == 6


class Box:
    """What holds a tensor that no list or dictionary shows."""

    def __init__(self, mask: torch.Tensor) -> None:
        self.mask = mask


def test_a_tensor_that_was_not_seen_when_a_trace_began_is_seen_by_another() -> None:
    assert plugin.backend is not None

    def masked(x: torch.Tensor, box: Box) -> torch.Tensor:
        return torch.relu(x).masked_fill(box.mask, 0.0)

    run = torch.compile(masked, backend="offcut", dynamic=True)
    for batch in 3, 1, 13:
        x, box = torch.randn(batch, 5, 5), Box(torch.rand(batch, 1, 5) < 0.5)
        assert torch.equal(run(x, box), masked(x, box))
    assert counters["stats"]["unique_graphs"] == 1


def test_frames_of_others_are_traced_as_they_were() -> None:
    assert plugin.backend is not None
    seen: list[bool] = []

    def other(module: Any, examples: Any) -> Any:
        seen.append(symbolic.backed_size_oblivious)
        return module.forward

    one = model()
    held(torch.compile(one, backend=other, dynamic=True), one, calls(3, 5))
    assert seen
    assert not any(seen)


class Cooled(nn.Module):
    """Layers that hold floats, one of which is changed."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(8, 8), nn.RMSNorm(8, eps=1e-5)
        self.heat = 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.norm(self.layer(x)) / self.heat, -1)


def test_floats_of_a_module_are_numbers_and_its_frame_is_traced_once() -> None:
    assert plugin.backend is not None
    one = Cooled().eval()
    held(torch.compile(one, backend="offcut", dynamic=True), one, calls(3, 1, 13))
    assert counters["stats"]["unique_graphs"] == 1
    assert counters["stats"]["calls_captured"] == 4


def test_a_float_of_a_module_that_changes_is_a_value_from_then_on() -> None:
    assert plugin.backend is not None
    one = Cooled().eval()
    run = torch.compile(one, backend="offcut", dynamic=True)
    for heat in 0.5, 0.25, 2.0, 3.0, 7.0:
        one.heat = heat
        held(run, one, calls(3, 1))
    assert counters["stats"]["unique_graphs"] == 2
