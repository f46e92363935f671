"""Quantized exports of torch (pt2e): their operators are those of our graphs, and every product is one of bytes."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is an extra")

import torch
import torch.ao.quantization.fx._decomposed  # registers the operators
import torch.nn.functional as F
from conftest import slow
from torch import nn

import offcut as oc
from tests.agree import of_peer
from tests.plugins.torch_models import fresh

bytes_of = torch.ops.quantized_decomposed
PRODUCTS = ("conv2d", "dense", "matmul")


_fresh = pytest.fixture(autouse=True)(fresh)


class Quantized(nn.Module):
    """A convolution and a layer as `convert_pt2e` leaves them.

    dynamic  whether calls choose the scale of what the layer multiplies
    ends     of the weights' range
    """

    def __init__(self, dynamic: bool, dtype: Any, ends: tuple[int, int]) -> None:
        super().__init__()
        self.dynamic, self.dtype, self.ends = dynamic, dtype, ends
        info = torch.iinfo(dtype)
        self.range = info.min, info.max
        draw = torch.Generator().manual_seed(0)
        self.register_buffer(
            "w", torch.randint(ends[0], ends[1] + 1, (6, 3, 3, 3), generator=draw, dtype=torch.int8)
        )
        self.register_buffer("v", torch.randn(4, 6, generator=draw))
        self.register_buffer("scales", torch.linspace(0.01, 0.02, 6))
        self.register_buffer("zeros", torch.zeros(6, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.through(x, 0.03, self.range[0] + 100)
        weights = self.scales, self.zeros, 0, *self.ends, torch.int8
        x = F.relu(F.conv2d(x, bytes_of.dequantize_per_channel(self.w, *weights), padding=1))
        x = self.through(x, 0.02, self.range[0]).mean((2, 3))
        if self.dynamic:
            scale, zero = bytes_of.choose_qparams.tensor(x, *self.range, 1e-6, self.dtype)
            rest = scale, zero, *self.range, self.dtype
            x = bytes_of.quantize_per_tensor.tensor(x, *rest)
            x = bytes_of.dequantize_per_tensor.tensor(x, *rest)
        else:
            x = self.through(x, 0.02, self.range[0])
        ends = self.scales[:4], self.zeros[:4], 0, *self.ends, torch.int8
        v = bytes_of.quantize_per_channel(self.v, *ends)
        return F.linear(x, bytes_of.dequantize_per_channel(v, *ends))

    def through(self, x: torch.Tensor, scale: float, zero: int) -> torch.Tensor:
        rest = scale, zero, *self.range, self.dtype
        return bytes_of.dequantize_per_tensor(bytes_of.quantize_per_tensor(x, *rest), *rest)


@pytest.mark.parametrize(
    ("dynamic", "dtype", "ends"),
    [
        slow(False, torch.uint8, (-128, 127)),
        (True, torch.uint8, (-128, 127)),
        slow(True, torch.int8, (-64, 63)),
    ],
)
def test_a_quantized_module_multiplies_bytes(
    dynamic: bool, dtype: Any, ends: tuple[int, int]
) -> None:
    module = Quantized(dynamic, dtype, ends)
    x = torch.randn(2, 3, 5, 6)
    exported = torch.export.export(module, (x,), dynamic_shapes=({0: torch.export.Dim("n")},))
    model = oc.from_torch(exported)
    for count in (1, 2, 7):
        x = torch.randn(count, 3, 5, 6)
        of_peer(model(x), module(x))
    compiled, *_ = model.traced[0].whole_region("test")
    graph = compiled.bound.graph
    products = [node for node in graph.nodes if node.op in PRODUCTS]
    assert len(products) == 2
    for node in products:
        assert {graph.values[name].dtype for name in node.operands[:2]} <= {"int8", "uint8"}


def test_a_symmetric_scale_is_chosen_by_the_call() -> None:
    class Symmetric(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            scale, zero = bytes_of.choose_qparams_symmetric.tensor(x, -127, 127, 1e-6, torch.int8)
            rest = scale, zero, -127, 127, torch.int8
            return scale, zero, bytes_of.quantize_per_tensor.tensor(x, *rest)

    module = Symmetric()
    x = torch.randn(5, 7)
    model = oc.from_torch(torch.export.export(module, (x,)))
    for given in (x, -x, torch.zeros(5, 7)):
        scale, zero, whole = model(given)
        expected = module(given)
        of_peer(scale, expected[0])
        assert torch.equal(zero, expected[1])
        assert int((whole.int() - expected[2].int()).abs().max()) == 0


def test_a_product_of_int8_is_int32() -> None:
    class Product(nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return torch._int_mm(x, w)

    x, w = torch.full((33, 16), -128, dtype=torch.int8), torch.full((16, 8), -128, dtype=torch.int8)
    model = oc.from_torch(torch.export.export(Product(), (x, w)))
    assert "0 operators by torch" in str(model.report)
    assert torch.equal(model(x, w), torch._int_mm(x, w))
