"""Small models in plain torch, after those that users have, and how they are held against float64."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters
from torch.utils._pytree import tree_flatten

from tests.agree import agree, of_peer
from tests.agree import wide as wide_array

OPTIONS = """\
  because  the options are threads, the most that a call may use, distributive, whether products may be distributed over sums, parts, whether kernels may run for a part of the batch at a time: True or False, and target, which runs them: one, or several in order
  help     options={"threads": 2}
  help     options={"distributive": False}
  help     options={"parts": False}
  help     options={"target": "cpu"}"""
"""What is said of an option that is none."""


def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin with nothing compiled, and raise errors of ours: ``_fresh = pytest.fixture(autouse=True)(fresh)`` in a file of tests."""
    monkeypatch.setenv("OFFCUT_VERIFY", "1")
    torch._dynamo.reset()
    torch.manual_seed(0)
    counters.clear()
    yield
    torch._dynamo.reset()


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.run = run

    def forward(self, *given: torch.Tensor) -> Any:
        return self.run(*given)


def mlp() -> nn.Module:
    """Of the contract."""
    return nn.Sequential(nn.Linear(40, 72), nn.GELU(), nn.LayerNorm(72), nn.Linear(72, 8)).eval()


class Residual(nn.Module):
    """Two convolutions with batch norm, and a shortcut."""

    def __init__(self, c: int, o: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = (
            nn.Conv2d(c, o, 3, stride, 1, bias=False),
            nn.Conv2d(o, o, 3, 1, 1, bias=False),
        )
        self.norms = nn.ModuleList([nn.BatchNorm2d(o), nn.BatchNorm2d(o)])
        self.short = nn.Sequential(nn.Conv2d(c, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norms[0](self.one(x)), inplace=True)
        return F.relu(self.norms[1](self.two(y)) + self.short(x))


class ResNet(nn.Module):
    """A stem, pooling, a residual block, a mean over the image, classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
        self.blocks = Residual(8, 16, 2)
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        return self.head(F.adaptive_avg_pool2d(self.blocks(x), 1).flatten(1))


class Mobile(nn.Module):
    """An inverted residual: wide, depthwise, narrow."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(8, 24, 1, bias=False),
            nn.BatchNorm2d(24),
            nn.ReLU6(),
            nn.Conv2d(24, 24, 3, 1, 1, groups=24, bias=False),
            nn.BatchNorm2d(24),
            nn.Hardswish(),
            nn.Conv2d(24, 8, 1, bias=False),
            nn.BatchNorm2d(8),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


class Block(nn.Module):
    """A decoder's: causal attention and a feed-forward net, each behind a layer norm."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, e = x.shape
        split = self.qkv(self.norms[0](x)).view(b, n, 3, self.heads, e // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, n, e))
        return x + self.feed(self.norms[1](x))


class Gpt(nn.Module):
    """Tokens and places embedded, two blocks, scores of words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 32), nn.Embedding(64, 32)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(32, 50, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.blocks(x))


class Placed(nn.Module):
    """Words and their places, which are a part of a table of 64."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(64, 16)
        self.register_buffer("ids", torch.arange(64)[None])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.words(ids) + self.places(self.ids[:, : ids.shape[1]]))


class Eighths(nn.Module):
    """A buffer of elements that are not ours."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.arange(8.0).to(torch.float8_e4m3fn))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * self.scale.to(x.dtype)


class Bessel(nn.Module):
    """An operator that is not ours between two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.i0(torch.relu(self.one(x))))


def held(
    run: Callable[..., Any],
    model: nn.Module,
    calls: Iterable[tuple[torch.Tensor, ...]],
    units: float = 256,
) -> None:
    """Every result is that of the model in float64, of the type that the model gives."""
    exact = copy.deepcopy(model).double()
    with torch.no_grad():
        for call in calls:
            found, wanted = run(*call), exact(*map(wide, call))
            assert found.shape == wanted.shape
            assert found.dtype == model(*call).dtype
            like(found, wanted, units=units)


def like(found: Any, wanted: Any, units: float = 256, each: bool = False) -> None:
    """Check that tensors, or structures of them, are those of torch, or of its model in float64, but for rounding.

    each  whether no element has terms that are larger than itself
    """
    ours, form = tree_flatten(found)
    theirs, other = tree_flatten(wanted)
    assert form == other
    for one, reference in zip(ours, theirs, strict=True):
        if not isinstance(one, torch.Tensor):
            assert one == reference
            continue
        assert one.shape == reference.shape
        if not (one.is_floating_point() or one.is_complex()):
            assert torch.equal(one, reference)
            continue
        halves = one.dtype in (torch.float16, torch.bfloat16)
        eps = torch.finfo(one.dtype).eps / 2**-23 if halves else 1.0  # torch rounds each step
        array, exact = (as_array(each) for each in (one, reference))
        reference_units = 4 * eps if halves else units
        if each:
            agree(array, wide_array(exact), units=reference_units)
        else:
            agree(array, of_peer(exact, units=reference_units))


def as_array(tensor: torch.Tensor) -> Any:
    """A tensor as an array of numpy; of bfloat16, in float32, which holds its values."""
    tensor = tensor.detach().resolve_conj()
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()


def wide(given: Any) -> Any:
    """Floats in float64."""
    floats = isinstance(given, torch.Tensor) and given.is_floating_point()
    return given.double() if floats else given
