"""Single operators as modules of torch, for `single-ops.toml`; each function gives a module, and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Model = tuple[nn.Module, Callable[[], tuple[Tensor, ...]]]


class Operator(nn.Module):
    """A function of one tensor, or of several, as a module."""

    def __init__(self, call: Callable[..., Tensor]) -> None:
        super().__init__()
        self.call = call

    def forward(self, x0: Tensor, x1: Tensor | None = None, x2: Tensor | None = None) -> Tensor:
        """Return the result."""
        return self.call(*(one for one in (x0, x1, x2) if one is not None))


def randn(*shape: int) -> Tensor:
    """Return normal numbers, the same for a shape each time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def places(extent: int, *shape: int) -> Tensor:
    """Return places of an axis."""
    return torch.randint(0, extent, shape, generator=torch.Generator().manual_seed(extent))


def model(call: Callable[..., Tensor], *arguments: Tensor) -> Model:
    """Return a function as a module, with its arguments."""
    return Operator(call), lambda: arguments


def first(call: Callable[..., Any]) -> Callable[..., Tensor]:
    """Return the values of a function that gives places, too."""
    return lambda *arguments: call(*arguments)[0]


OPERATORS: dict[str, Callable[[], Model]] = {
    "grid_sample 2×16×32²": lambda: model(
        partial(F.grid_sample, align_corners=False),
        randn(2, 16, 32, 32),
        randn(2, 32, 32, 2).tanh(),
    ),
    "bicubic resize ×2 of 16×20²": lambda: model(
        partial(F.interpolate, scale_factor=2.0, mode="bicubic"), randn(1, 16, 20, 20)
    ),
    "nearest resize ×2 of 4×16×40²": lambda: model(
        partial(F.interpolate, scale_factor=2.0), randn(4, 16, 40, 40)
    ),
    "topk 50 of 64×1000": lambda: model(first(partial(torch.topk, k=50)), randn(64, 1000)),
    "topk 4 of 512×64": lambda: model(first(partial(torch.topk, k=4)), randn(512, 64)),
    "median of 64×301": lambda: model(first(partial(torch.median, dim=-1)), randn(64, 301)),
    "sort of 64×500": lambda: model(first(torch.sort), randn(64, 500)),
    "unfold 3×3 of 16×28²": lambda: model(partial(F.unfold, kernel_size=3), randn(1, 16, 28, 28)),
    "cat 2048×65, 2048×31 along the last axis": lambda: model(
        lambda x, y: torch.cat((x, y), -1), randn(2048, 65), randn(2048, 31)
    ),
    "cat 8×32×20², 8×16×20² along channels": lambda: model(
        lambda x, y: torch.cat((x, y), 1), randn(8, 32, 20, 20), randn(8, 16, 20, 20)
    ),
    "flip 1024×500 along the last axis": lambda: model(lambda x: x.flip(-1), randn(1024, 500)),
    "one_hot 5000 of 50": lambda: model(lambda i: F.one_hot(i, 50), places(50, 5000)),
    "scatter_add 512×200": lambda: model(
        lambda x, i, v: x.scatter_add(1, i, v),
        randn(512, 100),
        places(100, 512, 200),
        randn(512, 200),
    ),
    "atan2 of 50 000": lambda: model(torch.atan2, randn(50000), randn(50001)[1:]),
    "softplus of 50 000": lambda: model(F.softplus, randn(50000)),
    "mean over 4×256×20²": lambda: model(lambda x: x.mean((2, 3)), randn(4, 256, 20, 20)),
    "sum of int64, 1024×500": lambda: model(lambda x: x.sum(-1), places(50, 1024, 500)),
    "normalize 512×500": lambda: model(F.normalize, randn(512, 500)),
}


def operator(name: str) -> Model:
    """Return the operator of that name."""
    return OPERATORS[name]()
