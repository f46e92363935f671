"""Encoders and a dense layer of torch for `new_size.toml`: any batch, any length."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HEAD = 32
"""Width of a head."""

Workload = tuple[nn.Module, Callable[..., tuple[Tensor, ...]]]


class Layer(nn.Module):
    """Attention and two dense layers, each beside a shortcut, norms behind."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Map (b, n, width) to the same shape."""
        b, n, width = x.shape
        q, k, v = (
            one.view(b, n, width // HEAD, HEAD).transpose(1, 2)
            for one in self.qkv(x).split(width, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, width)
        x = self.first(x + self.out(mixed))
        return self.second(x + self.narrow(F.gelu(self.wide(x))))


def _encoder(layers: int, width: int) -> Workload:
    torch.manual_seed(0)
    module = nn.Sequential(*(Layer(width) for _ in range(layers))).eval().requires_grad_(False)
    return module, lambda b, n: (torch.randn(b, n, width),)


def small() -> Workload:
    """Return two layers of 128, and the inputs at a batch and a length."""
    return _encoder(2, 128)


def sentences() -> Workload:
    """Return twelve layers of 384, and the inputs at a batch and a length."""
    return _encoder(12, 384)


def dense() -> Workload:
    """Return a dense layer of 768 by 768, and the inputs at a number of rows."""
    torch.manual_seed(0)
    module = nn.Linear(768, 768, bias=False).eval().requires_grad_(False)
    return module, lambda m: (torch.randn(m, 768),)
