"""Functions of torch that models seldom call: each taken whole, at several sizes, against float64 or exact integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is an extra")

import torch
import torch.nn.functional as F
from conftest import slow

import offcut as oc
from tests.agree import agree
from tests.plugins.torch_models import Function, as_array, fresh, like, wide

Results = tuple[torch.Tensor, ...]
Given = Callable[[int, int], tuple[torch.Tensor, ...]]


_fresh = pytest.fixture(autouse=True)(fresh)


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


def narrow(x: torch.Tensor, i: torch.Tensor) -> Results:
    """Of 16 bits, and of types without a sign that torch has in parts."""
    y = i.to(torch.int16)
    byte = (i % 251).to(torch.uint8)
    unsigned = [i.abs().to(dtype) for dtype in (torch.uint16, torch.uint32, torch.uint64)]
    return (
        *(y + y, y * 3 - 1, y // 7, y % 5, y.abs(), -y, y > 3, y.amax(-1), y.sum(), y.cumsum(1)),
        *(i.view(torch.uint64).to(torch.float64), y.view(torch.uint16).to(torch.int32)),
        *(byte.view(torch.int8) * 2, (i * 3).view(torch.uint64)),
        *(i**byte, y ** (y % 7), 3 ** (i % 41), torch.tensor(-1) ** i, (y % 3 - 1) ** -y.abs()),
        *(byte // 7, torch.div(byte, 7, rounding_mode="trunc"), byte // (byte + 1)),
        *(torch.maximum(y, y.flip(1)), torch.where(y > 2, y, 9), x.to(torch.int16), y * x),
        *(one.to(torch.int64) + 1 for one in unsigned),
        *(one.to(torch.float32) for one in unsigned),
        *unsigned,
    )


def elementary(x: torch.Tensor, y: torch.Tensor) -> Results:
    far = torch.where(y > 1, torch.inf, torch.where(y < -1.5, torch.nan, x * 1e30))
    return (
        *(torch.hypot(x, y), torch.hypot(far, x), torch.hypot(x * 0, y * 0)),
        *(torch.erfc(x * 3), torch.erfc(x * 9), torch.erfc(y / 4), torch.special.ndtr(x)),
        *(F.softplus(x * 9, 2.0), F.softplus(x * 9, 0.5, 3.0), F.softplus(x, threshold=1.0)),
        *(torch.logcumsumexp(x * 40, 1), torch.logcumsumexp(y * 4, 0)),
        *(torch.ldexp(x, (y * 9).round()), torch.angle(x), torch.angle(far)),
        *(
            torch.special.log_ndtr(x),
            torch.special.erfcx(x),
            torch.xlogy(x.abs(), y.abs()),
            torch.sinc(x),
        ),
    )


def gammas(x: torch.Tensor, y: torch.Tensor) -> Results:
    """Of large and small numbers, of those of either sign between whole ones, and of what is special."""
    far = torch.where(y > 1, torch.inf, torch.where(y < -1.5, -torch.inf, y.round()))
    near = torch.where(x > 0, 1, 2) + (y * 64).round() / 2**20
    every = torch.cat([x.abs() * 30, x.abs() * 1e27, (x * 9).round() + 0.375, far, near])
    return torch.lgamma(every), torch.digamma(every), torch.lgamma(near) * 2**15


def double(x: torch.Tensor, y: torch.Tensor) -> Results:
    """In float64 too, where nothing is calculated in a wider type."""
    wide = torch.hypot(x.double() * 1e200, y.double() * 1e200)
    return wide, torch.angle(x.double()), F.softplus(x.double(), 2.0)


def images(x: torch.Tensor, w: torch.Tensor) -> Results:
    return (
        *F.max_pool2d(x, 2, return_indices=True),
        *F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
        *F.max_pool2d(torch.where(x > 1, torch.nan, x), 3, 1, 1, return_indices=True),
        F.max_pool2d((x * 9).round().to(torch.int32), 2, return_indices=True)[1],
        F.max_unpool2d(*F.max_pool2d(x, 2, 2, return_indices=True), 2, output_size=x.shape[-2:]),
        F.max_pool1d(x[..., 0], 2, return_indices=True)[1],
        F.conv_transpose3d(x[:, :, None], w, stride=(1, 2, 3), padding=(0, 1, 1)),
        x.select_scatter(x[:, :, 1], 2, 0),
    )


def matrices(x: torch.Tensor) -> Results:
    """Of known extents."""
    return (
        *(torch.linalg.det(x[..., :n, :n]) for n in (1, 2, 3, 4)),
        F.interpolate(x[:, None], size=(3, 7), mode="bilinear", antialias=True),
        F.interpolate(x[:, None], scale_factor=0.6, mode="bicubic", antialias=True),
    )


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


CASES: dict[str, tuple[Callable[..., Results], Given]] = {
    f"bits of {str(dtype).removeprefix('torch.')}": (bits, integers(dtype))
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
} | {
    "narrow": (narrow, lambda b, n: (floats(b, n) * 300, torch.randint(-40000, 40000, (b, n)))),
    "elementary": (elementary, lambda b, n: (floats(b, n), floats(b, n))),
    "gammas": (gammas, lambda b, n: (floats(b, n), floats(b, n))),
    "double": (double, lambda b, n: (floats(b, n), floats(b, n))),
    "images": (images, lambda b, n: (floats(b, 4, n, n + 1), floats(4, 3, 2, 3, 3))),
    "matrices": (matrices, lambda b, n: (floats(b, 6, 5),)),
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
        agree(as_array(one), as_array(wanted.double()), terms=1.0, units=16, what=str(number))


OF_SOMETHING = ("images", "narrow")
"""Cases that torch refuses of nothing."""
SLOW = ("gammas", "bits of int8", "bits of int32", "bits of int64")


@pytest.mark.parametrize("name", [slow(name) if name in SLOW else name for name in CASES])
def test_a_function_gives_what_torch_gives_at_every_size(name: str) -> None:
    run, given = CASES[name]
    model = taken(name)
    assert not model.program.left, model.report
    for b, n in [(3, 5), (1, 9), (7, 33), *([] if name in OF_SOMETHING else [(0, 6)])]:
        torch.manual_seed(b)
        call = given(b, n)
        exact = run(*(one if not one.is_floating_point() else wide(one) for one in call))
        close(model(*call), exact, run(*call))


def left(run: Callable[..., Any], *given: torch.Tensor) -> str:
    """Why torch keeps the one operator of a function, which gives what it gives."""

    def alone(*taken: torch.Tensor) -> Results:
        return (run(*taken),)

    model = oc.from_torch(Function(alone), given)
    like(model(*given)[0], run(*given))
    ((_, reason),) = model.program.left
    return str(reason)


def test_what_stays_with_torch_is_told_by_its_reason() -> None:
    x = floats(2, 5, 5)
    assert left(lambda x: x.view(torch.int32), x) == "it takes bits of float32 for int32"
    rows = "its matrices have any number of rows, or more than 4"
    assert left(torch.linalg.det, x) == rows

    def smoothed(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x[None], size=(3, 4), mode="bilinear", antialias=True)

    assert left(smoothed, x) == "it is smoothed, and an extent is not known"
