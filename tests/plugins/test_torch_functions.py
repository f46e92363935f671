"""Functions of torch that models seldom call: each taken whole, at several sizes, against float64 or exact integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is an extra")

import torch
from conftest import slow
from torch import nn

import offcut as oc
from tests.plugins.torch_models import wide

Results = tuple[torch.Tensor, ...]
Given = Callable[[int, int], tuple[torch.Tensor, ...]]


@pytest.fixture(autouse=True)
def _errors_of_ours_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFCUT_VERIFY", "1")


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, run: Callable[..., Results]) -> None:
        super().__init__()
        self.run = run

    def forward(self, *given: torch.Tensor) -> Results:
        return self.run(*given)


def bits(x: torch.Tensor, y: torch.Tensor) -> Results:
    """Of every integer type; shifts by the width and more, and by less than 0."""
    z = x > 3
    return (
        *(x & y, x | y, x ^ y, ~x, x & 6, x | 1, x ^ 5, 3 & x),
        *(x << y, x >> y, x << 2, x >> 1, x << 70, x >> 70, torch.bitwise_left_shift(1, y)),
        *(z & (y > 3), z ^ (y > 3), ~z, z | False, torch.bitwise_right_shift(x, y)),
    )


def integers(dtype: torch.dtype) -> Given:
    """Of the whole range of a type, and shifts around its width."""

    def given(b: int, n: int) -> tuple[torch.Tensor, ...]:
        info, rng = np.iinfo(str(dtype).removeprefix("torch.")), np.random.default_rng([b, n])
        x = rng.integers(info.min, info.max, (b, n), info.dtype, endpoint=True)
        low = -3 if info.min else 0
        y = rng.integers(low, info.bits + 3, (b, n)).astype(info.dtype)
        return torch.from_numpy(x), torch.from_numpy(y)

    return given


CASES: dict[str, tuple[Callable[..., Results], Given]] = {
    f"bits of {str(dtype).removeprefix('torch.')}": (bits, integers(dtype))
    for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64)
}


@cache
def taken(name: str) -> Any:
    """The program of a case, for all its sizes; what does not depend on them stays as it is."""
    run, given = CASES[name]
    auto, fixed = torch.export.Dim.AUTO, torch.export.Dim.STATIC
    shapes = [
        tuple(fixed if a == b else auto for a, b in zip(one.shape, other.shape, strict=True))
        for one, other in zip(given(3, 5), given(4, 6), strict=True)
    ]
    return oc.from_torch(Function(run), given(3, 5), dynamic_shapes=(tuple(shapes),))


def close(found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor], own: Results) -> None:
    """Of torch's shapes and element types, and of the values that float64 gives."""
    for number, (one, wanted, theirs) in enumerate(zip(found, exact, own, strict=True)):
        assert (one.shape, one.dtype) == (theirs.shape, theirs.dtype), number
        if not one.is_floating_point():
            assert torch.equal(one, theirs), number
            continue
        torch.testing.assert_close(
            one.double(),
            wanted.double(),
            rtol=2e-6 if one.dtype is torch.float32 else 1e-12,
            atol=2e-6 if one.dtype is torch.float32 else 1e-12,
            equal_nan=True,
            msg=lambda m, n=number: f"{n}: {m}",
        )


SLOW = ("bits of int8", "bits of int64")


@pytest.mark.parametrize("name", [slow(name) if name in SLOW else name for name in CASES])
def test_a_function_gives_what_torch_gives_at_every_size(name: str) -> None:
    run, given = CASES[name]
    model = taken(name)
    assert not model.program.left, model.report
    for b, n in [(3, 5), (1, 9), (7, 33), (0, 6)]:
        torch.manual_seed(b)
        call = given(b, n)
        exact = run(*(one if not one.is_floating_point() else wide(one) for one in call))
        close(model(*call), exact, run(*call))
