"""Operators of torch as ours, in groups: each at several sizes of one program, against float64 and against the interpreter."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is an extra")

import torch
import torch.nn.functional as F
from conftest import slow
from torch import nn

import offcut as oc
from tests.agree import agree, of_peer
from tests.facade import interpret_graph
from tests.plugins.torch_models import Function, fresh, like, wide

Results = tuple[torch.Tensor, ...]


_fresh = pytest.fixture(autouse=True)(fresh)


def functions(x: torch.Tensor) -> Results:
    positive = x.abs() + 0.5
    return (
        *(F.relu(x), F.relu6(x * 4), F.silu(x), torch.sigmoid(x), torch.tanh(x), x.exp()),
        *(positive.log(), positive.sqrt(), positive.rsqrt(), positive.reciprocal(), x.erf()),
        *(x.sin(), x.cos(), (x * 3).floor(), (x * 3).ceil(), (x * 3).round(), x.sign(), -x),
        *(F.gelu(x), F.gelu(x, approximate="tanh"), F.elu(x), F.leaky_relu(x, 0.2)),
        *(F.softplus(x), F.hardtanh(x), x.clamp(-0.5, 0.5), x.clamp(min=0.1), x.clamp(max=0.1)),
        *(
            F.hardswish(x * 4),
            F.hardsigmoid(x * 4),
            F.mish(x),
            x.abs().log1p(),
            positive.log2(),
            x**2,
            x**3,
        ),
        *(
            positive**0.5,
            positive**1.7,
            x**7,
            positive**-2,
            2.0**x,
            x.square(),
            x.isnan(),
            x.isinf(),
            ~(x > 0),
        ),
        *(x.expm1(), (x * 20).expm1(), x.sinh(), (x * 20).sinh(), x.cosh(), x.tan()),
        *(positive.log10(), (x * 3).trunc(), F.selu(x), F.celu(x, 0.7), x.clamp(max=x[:1])),
        torch.where(x > 0, x, math.nan).sign(),
    )


def arithmetic(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> Results:
    return (
        *(x + y, x - y, x * y, x / (y.abs() + 1), torch.maximum(x, y), torch.minimum(x, y)),
        *(
            1 - x,
            2 / (x.abs() + 1),
            torch.add(x, y, alpha=3),
            x + i,
            i + 1,
            i * 2.5,
            i // 3,
            (i - 20) // 7,
        ),
        *(i % 3, (i - 20) % 7, x > y, x <= 0, i == 3, i != i[:1], x.ge(y), x.lt(1)),
        *((x > 0) & (y > 0), (x > 0) | (y > 0), (x > 0) ^ (y > 0), torch.where(x > y, x, y)),
        *(
            torch.where(x > 0, x, 0.0),
            x.masked_fill(y > 0, -math.inf),
            i / 2,
            torch.lerp(x, y, 0.3),
        ),
        *(torch.addcmul(x, y, y, value=0.5), i.to(torch.int32), i.float(), i.bool(), (x > 0).int()),
        *(
            (x * 9) // 0.3,
            torch.div(x * 9, 0.7, rounding_mode="trunc"),
            (x * 9) // (y.round() + 0.5),
        ),
        *(x + x[:1], x * y[..., :1], x.to(torch.float64), (x * 9).to(torch.int64)),
    )


def reductions(x: torch.Tensor, i: torch.Tensor) -> Results:
    return (
        *(x.sum(-1), x.sum((0, 2)), x.sum(), x.mean(1, keepdim=True), x.mean((-1, -2)), i.sum(0)),
        *(x.amax(-1), x.amin(1, keepdim=True), x.amax(), i.amax(-1), (x > 0).sum(-1), i.sum()),
        *((x > 0).any(-1), (x > -9).all(-1), x.var(-1), x.var(-1, correction=0), x.std(-1)),
        *(x.norm(dim=-1), x.logsumexp(-1), x.softmax(-1), x.softmax(1), x.log_softmax(-1)),
        *(*torch.var_mean(x, -1), *x.max(-1), *x.min(1), x.argmax(-1), x.argmin(0)),
        *(x.norm(p=1, dim=-1), x.norm(p=math.inf, dim=(0, 2)), x.var((0, 2)), x.std()),
        *(x.cumsum(1), *x.topk(2, -1), F.layer_norm(x, (6,)), F.rms_norm(x, (6,))),
    )


def shapes(x: torch.Tensor) -> Results:
    b, n, _ = x.shape
    return (
        *(x.view(b * n, 6), x.view(b, n, 2, 3), x.flatten(), x.unsqueeze(1), x.permute(2, 0, 1)),
        *(x.transpose(0, 1), x[:, 1:], x[..., ::2], x[:, -1], x[1:3], x[..., 2], x[:, : n - 1]),
        *(*x.split(2, -1), *x.chunk(3, -1), *x.unbind(-1)[:2], torch.cat([x, x[:, :1]], 1)),
        *(
            torch.stack([x, x * 2], 1),
            x.flip(1),
            x.roll(1, -1),
            x.repeat(1, 2, 1),
            F.pad(x, (1, 2)),
        ),
        *(F.pad(x, (1, 1, 0, 2), value=3.0), x.expand(2, b, n, 6), x.movedim(0, 2)),
        *(x.diagonal(1, 0, 2), x.unfold(2, 3, 2) * 2, F.pad(x, (0, 0, -1, 1))),
    )


def sized(x: torch.Tensor, y: torch.Tensor) -> Results:
    """What depends on the values of sizes."""
    b, n, _ = x.shape
    (m,) = y.shape
    written = x.clone()
    written[:, 1:n], written[0], written[..., 2] = 0.5, x[0, 0], x[..., 0]
    return (
        F.pad(x.transpose(1, 2), (0, -x.shape[1] % 3), mode="reflect"),
        F.pad(x.transpose(1, 2), (-x.shape[1] % 3, -1), mode="replicate"),
        *(F.pad(x, (0, 0, m - n, b)), F.pad(x, (0, 0, 0, -n % 4), value=2.0).view(b, -1, 4, 6)),
        *(x.roll(-1, 1), x.roll((1, 2), (0, 2)), x.repeat(1, m, 1), y.repeat(n, 1), written),
        *(x.sum(1) / n, x.mean((0, 1)) * n**-0.5, (x * b).clamp(max=m), x[..., 0] * (b / n) + m),
        *(F.interpolate(x, size=m), F.interpolate(x[None], size=(n, m), mode="bilinear")),
    )


def halves(x: torch.Tensor) -> Results:
    """An image that is a multiple of 4, as what is joined says."""
    half = F.max_pool2d(x, 2)
    quarter = F.interpolate(F.max_pool2d(half, 2), scale_factor=2)
    joined = torch.cat([half, quarter], 1)
    return joined, torch.cat([x, F.interpolate(joined, scale_factor=2)], 1)


def lookups(x: torch.Tensor, ids: torch.Tensor) -> Results:
    b, n = ids.shape
    places = torch.arange(n)
    table = torch.arange(60.0, dtype=x.dtype).view(10, 6)
    return (
        *(F.embedding(ids, table), table[ids], x.index_select(1, ids[0] % 3), places, places * 2),
        *(
            torch.arange(1, 9, 2),
            torch.full((b, n), 2.5, dtype=x.dtype),
            torch.zeros(n, dtype=x.dtype),
        ),
        *(x.gather(2, ids[..., None].expand(b, n, 6) % 6), torch.ones_like(x), x.tril(), x.triu(1)),
        *((places[:, None] >= places).int(), F.one_hot(ids, 10)),
        *(
            x[:, ids[0] % n, ids[0] % 6],
            x[ids[:, 0] % b, :, ids[0, :1] % 6 - 6],
            table[ids, ids % 6],
        ),
        *(torch.arange(0, 9, 2.0, dtype=torch.int64), torch.arange(9, 0, -2.0).to(torch.int64)),
        *(
            x.scatter(2, ids[..., None] % 6, x * 2),
            x.scatter(-1, ids[..., None] % 6, 1.5),
            x.scatter_add(1, (ids % n)[..., None].expand(b, n, 6), x),
        ),
    )


def products(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> Results:
    rows = x.flatten(0, 1)
    return (
        torch.addmm(w[0], rows, w),
        torch.addmm(w[0], rows, w, beta=0.5, alpha=2),
        torch.addmm(rows @ w, rows, w, beta=0),
        torch.addmm(rows[:, :1], rows, w, beta=-1),
        *(x @ w, x @ y.transpose(-1, -2), torch.einsum("bnk,bmk->bnm", x, y), F.linear(x, w.t())),
        *(x @ w[:, 0], F.scaled_dot_product_attention(x, y, y), torch.bmm(x, y.mT)),
        F.scaled_dot_product_attention(x, x, x, is_causal=True),
        F.scaled_dot_product_attention(x, y, y, attn_mask=x[..., :1] > 0, scale=0.3),
    )


def images(x: torch.Tensor, w: torch.Tensor, d: torch.Tensor, t: torch.Tensor) -> Results:
    return (
        *(
            F.conv2d(x, w, padding=1),
            F.conv2d(x.sum(0), w, stride=2),
            F.conv2d(x, d, padding=1, groups=4),
        ),
        *(
            F.conv2d(x, w, padding="same", dilation=2),
            F.conv_transpose2d(x, t, stride=2, padding=1),
        ),
        *(F.max_pool2d(x, 3, 2, 1), F.adaptive_avg_pool2d(x, 1)),
        F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
        *(F.conv1d(x[:, :, 0], w[:, :, 0]), F.group_norm(x, 2), F.instance_norm(x)),
        *(F.max_pool2d(x, 3, 2, 1, ceil_mode=True), F.avg_pool2d(x, 2, ceil_mode=True)),
        F.adaptive_max_pool2d(x, (2, 3)),
        *(F.conv_transpose1d(x[:, :, 0], t[:, :, 0], stride=2), F.pad(x, (2, 1, 1, 1), "reflect")),
        F.grid_sample(x, x[:, :2].movedim(1, -1), align_corners=False),
        *(F.interpolate(x, scale_factor=2.0), F.pixel_shuffle(x, 2)),
        F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False),
        F.interpolate(x, scale_factor=(1.5, 0.625), mode="bilinear"),
        F.interpolate(x, scale_factor=(0.75, 2.5)),
        F.interpolate(x, scale_factor=2.0, mode="bicubic"),
        F.interpolate(x, size=(5, 9), mode="bicubic", align_corners=True),
    )


def more_images(x: torch.Tensor) -> Results:
    return (
        *(F.max_pool2d(x, 2), F.max_pool2d(x.sum(0), 2), F.max_pool2d(x, 3, 2, ceil_mode=True)),
        *(F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1), F.adaptive_max_pool2d(x, 1)),
    )


def volumes(x: torch.Tensor) -> Results:
    return (
        *(
            F.max_pool3d(x, 3, 2, 1, ceil_mode=True),
            F.max_pool3d(x.sum(0), 2, 1, dilation=(1, 2, 1)),
        ),
        F.avg_pool3d(x, 3, 2, 1, count_include_pad=False),
        *(F.adaptive_avg_pool3d(x, (2, 3, 1)), F.adaptive_max_pool3d(x, (1, 2, 2))),
    )


def more_volumes(x: torch.Tensor) -> Results:
    return (
        *(F.max_pool3d(x, 2), F.avg_pool3d(x, 3, 2, 1), F.adaptive_avg_pool3d(x, 1)),
        F.avg_pool3d(x, 2, 2, ceil_mode=True),
    )


def writes(x: torch.Tensor, mask: torch.Tensor, y: torch.Tensor) -> Results:
    b, n, _ = x.shape
    places = torch.arange(0, n, 2) - n
    some = y[:, : places.shape[0]]
    lowest, row, added = x.clone(), x.clone(), x.clone()
    lowest[mask] = -math.inf
    row[mask] = y[0, 0]
    added.index_put_((mask,), y[0, 0], accumulate=True)
    number, rows = x.clone(), x.clone()
    number[:, places], rows[torch.arange(b)] = 1.5, x * 2
    spread = (places + n)[None, :, None].expand(b, -1, 6)
    return (
        *(lowest, row, added, number, rows, x.index_add(1, places + n, some)),
        *(x.index_copy(1, places + n, some), x.scatter_reduce(1, spread, some, "amax")),
        *(x.masked_scatter(mask[..., None].expand_as(x), y), x.index_fill(1, places + n, 2.0)),
    )


def orders(x: torch.Tensor, i: torch.Tensor) -> Results:
    return (
        *torch.sort(i, stable=True),
        *x.sort(-1, descending=True),
        *i.cummax(1),
        x.cumprod(-1),
        *x.topk(1, 1),
        *(part[..., :2] for part in x.transpose(1, 2).topk(x.shape[1], largest=False)),
    )


def middles(x: torch.Tensor) -> Results:
    holed = torch.where(x > 1, torch.nan, x)
    whole = torch.round(x)
    common, places = torch.mode(whole, -1)
    return (
        *(common, whole.gather(-1, places[..., None]), torch.mode(whole, 1, True).values),
        *(torch.nan_to_num(one) for one in torch.median(holed, -1)),
        *torch.nanmedian(holed, -1, keepdim=True),
        *torch.kthvalue(x, 2, dim=-1),
        torch.nan_to_num(torch.median(x[..., 0])),
        *(torch.fmax(holed, x), torch.fmin(x, holed)),
        *(torch.round(x, decimals=2), torch.round(100 * x, decimals=-1)),
    )


def reduced(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> Results:
    ids = i % x.shape[1]
    return (
        *(x.scatter_reduce(1, ids, y, how) for how in ("prod", "mean")),
        *(x.scatter_reduce(1, ids, y, how, include_self=False) for how in ("mean", "amax")),
        *(x.scatter(1, ids, y, reduce="multiply"), x.scatter(1, ids, 0.5, reduce="add")),
    )


def scaled(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Results:
    n = x.shape[1]
    return (
        torch.addmm(z, x[0], y[0], beta=0.5, alpha=n),
        torch.addbmm(z, x, y, alpha=2),
        torch.baddbmm(z, x, y, beta=n),
        F.avg_pool2d(x[None], 2, padding=1, divisor_override=3),
        F.adaptive_max_pool2d(x, (2, 2)),
        *(torch.histc(x, 7, -0.75, 1), torch.histc((8 * x).round(), 5, 0, 4)),
    )


def windows(x: torch.Tensor, places: torch.Tensor) -> Results:
    b, _, h, w = x.shape
    over = F.unfold(x, (3, 2), padding=1)
    apart = F.unfold(x, 2, stride=2, dilation=2, padding=(1, 0))
    both = x.clone()
    both[places % b, :, places % h] = 2.0
    each = [None, None, places[:, None] % h, places % w]
    return (
        *(F.fold(over * 2, (h, w), (3, 2), padding=1), both),
        F.fold(apart.relu(), (h, w), 2, stride=2, dilation=2, padding=(1, 0)),
        torch.ops.aten.index_put(x, each, x[:, :, :1, :1], accumulate=True),
    )


def inverses(x: torch.Tensor, y: torch.Tensor) -> Results:
    unit = x.tanh()
    return (
        *(x.atan(), (x * 9).atan(), unit.asin(), unit.acos(), x.asinh(), unit.atanh()),
        *((x.abs() + 1).acosh(), torch.atan2(x, y), torch.atan2(x, -y.abs()), x.exp2()),
    )


def truths(x: torch.Tensor, i: torch.Tensor) -> Results:
    more, most = x > 0, x > 1
    return (
        *(more * most, more + most, x.isfinite(), x.isclose(x.round(), atol=0.1), ~i, i << 3),
        *((i - 5) >> 1, (i - 5).fmod(3), x.fmod(0.3), x.fmod(-0.3), x.copysign(-1.0), x.signbit()),
        *(torch.logaddexp(x, -x), torch.maximum(more, most)),
        *(more & True, more | True, more ^ True, (i - 5) & 3, i & 0, (i - 5).int() & 1),
        *(
            torch.div(i - 5, 3, rounding_mode="trunc"),
            torch.div(i - 5, -2, rounding_mode="trunc"),
            torch.div(i - 5, i[:1] + 1, rounding_mode="trunc"),
        ),
    )


def distances(x: torch.Tensor, y: torch.Tensor) -> Results:
    return (
        *(torch.cdist(x, y), torch.cdist(x, y, p=1.0), torch.cdist(x, y[0], p=math.inf)),
        *(torch.cdist(x, y, p=3.0), torch.cdist(x, y, p=0.0), x.norm(p=3, dim=1)),
        *(x.norm(p=0, dim=(0, 2)), x.prod(), x.prod(-1), x.prod(1, keepdim=True), (x > 0).prod(0)),
    )


def bags(ids: torch.Tensor, table: torch.Tensor, shares: torch.Tensor) -> Results:
    ascending = torch.arange(0.0, 1.0, 0.25)
    both = torch.stack([shares.cumsum(1), shares.cumsum(1) + 1])
    return (
        *(F.embedding_bag(ids, table, mode=mode) for mode in ("sum", "mean", "max")),
        F.embedding_bag(ids, table, mode="sum", per_sample_weights=shares),
        *(torch.bucketize(shares, ascending, right=right) for right in (False, True)),
        torch.searchsorted(ascending, shares, out_int32=True),
        torch.searchsorted(both, both.flip(0), right=True),
    )


def turns(x: torch.Tensor) -> Results:
    every, last = x.clone(), x.clone()
    every[:, ::2], last[..., 1:5:3] = 1.5, x[..., :2]
    rows, columns = torch.tril_indices(6, 6, -1)
    return (
        *(every, last, x[..., rows] * x[..., columns], F.pad(x, (2, 1), mode="circular")),
        F.pad(x[None], (1, 0, 2, 0), mode="circular"),
    )


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def ints(*shape: int) -> torch.Tensor:
    return torch.randint(0, 10, shape)


CASES: dict[str, tuple[Callable[..., Results], Callable[[int, int], tuple[torch.Tensor, ...]]]] = {
    "functions": (functions, lambda b, n: (floats(b, n),)),
    "arithmetic": (arithmetic, lambda b, n: (floats(b, n), floats(b, n), ints(b, n))),
    "reductions": (reductions, lambda b, n: (floats(b, n, 6), ints(b, n))),
    "shapes": (shapes, lambda b, n: (floats(b, n, 6),)),
    "sized": (sized, lambda b, n: (floats(b, n, 6), floats(n + b))),
    "halves": (halves, lambda b, n: (floats(b, 4, 4 * n, 8),)),
    "lookups": (lookups, lambda b, n: (floats(b, n, 6), ints(b, n))),
    "products": (products, lambda b, n: (floats(b, n, 5), floats(b, n + 2, 5), floats(5, 7))),
    "volumes": (volumes, lambda b, n: (floats(b, 3, 6, n + 2, 7),)),
    "more volumes": (more_volumes, lambda b, n: (floats(b, 3, 6, n + 2, 7),)),
    "writes": (writes, lambda b, n: (floats(b, n, 6), torch.rand(b, n) < 0.5, floats(b, n, 6))),
    "orders": (orders, lambda b, n: (floats(b, n, 6), ints(b, n))),
    "middles": (middles, lambda b, n: (floats(b, n, 6),)),
    "reduced": (reduced, lambda b, n: (floats(b, n), floats(b, n + 3), ints(b, n + 3))),
    "scaled": (
        scaled,
        lambda b, n: (floats(b + 1, n + 1, 5), floats(b + 1, 5, n + 1), floats(n + 1, 1)),
    ),
    "inverses": (inverses, lambda b, n: (floats(b, n), floats(b, n))),
    "truths": (truths, lambda b, n: (floats(b, n), ints(b, n))),
    "distances": (distances, lambda b, n: (floats(b, n, 6), floats(b, n + 2, 6))),
    "bags": (bags, lambda b, n: (ints(b, n), floats(10, 6), torch.rand(b, n))),
    "turns": (turns, lambda b, n: (floats(b, n, 6),)),
    "windows": (windows, lambda b, n: (floats(b, 3, n + 1, n + 4), ints(n))),
    "images": (
        images,
        lambda b, n: (
            floats(b, 4, n + 8, n + 6),
            floats(8, 4, 3, 3),
            floats(4, 1, 3, 3),
            floats(4, 5, 4, 4),
        ),
    ),
    "more images": (more_images, lambda b, n: (floats(b, 4, n + 8, n + 6),)),
}


OF_SOMETHING = {
    *("reductions", "lookups", "sized", "volumes", "writes", "windows", "turns", "distances"),
    "more volumes",
}
"""Cases that torch, or the function itself, refuses of nothing."""


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


# Of images and of volumes, `make test` takes each rule once, with the arguments that ask most of it.
@pytest.mark.parametrize(
    "name", [slow(name) if name in ("more images", "more volumes") else name for name in CASES]
)
def test_operators_give_what_torch_gives_at_every_size(name: str) -> None:
    torch.manual_seed(0)
    run, given = CASES[name]
    module = Function(run)
    model = taken(name)
    assert not model.program.left, model.report
    empty = [] if name in OF_SOMETHING else [(0, 6)]
    for b, n in [(3, 5), (1, 9), (2, 4), (7, 33), *empty]:
        call = given(b, n)
        found, wanted = model(*call), module(*map(wide, call))
        for number, (one, exact, own) in enumerate(zip(found, wanted, module(*call), strict=True)):
            assert one.shape == own.shape, number
            assert one.dtype == own.dtype, number
            like(one, exact.double())


def test_the_interpreter_gives_what_the_kernels_give() -> None:
    torch.manual_seed(0)
    _, given = CASES["products"]
    model = taken("products")
    (region,) = model.program.regions
    arrays: dict[str, Any] = {}
    call = given(2, 3)
    names = [one.name for one in model.traced[0].given]
    for name, node in region.inputs.items():
        arrays[name] = call[names.index(node.name)].numpy()
    expected = interpret_graph(region.bound, arrays)
    found = dict(zip((str(one) for one in model.program.results), model(*call), strict=True))
    for node, name, _ in region.outputs:
        if str(node) in found:
            agree(found[str(node)].numpy(), of_peer(expected[name]))


def test_lines_without_a_finite_element_are_as_torch_says() -> None:
    class Lines(nn.Module):
        def forward(self, x: torch.Tensor) -> Results:
            found = torch.ops.aten._safe_softmax(x, -1)
            return found, x.logsumexp(-1), x.logsumexp((0, 1)), x.logsumexp(0, keepdim=True)

    inf, nan = math.inf, math.nan
    x = torch.tensor([[-inf] * 3, [inf] * 3, [-inf, 1, inf], [-inf, 2, 1], [-inf, nan, 1]])
    model = oc.from_torch(Lines(), (floats(5, 3),))
    assert not model.program.left, model.report
    for given in (x, x[:1], x[:3], x[3:4], x[:0]):
        like(model(given), Lines()(given))


def test_powers_of_any_sign_are_as_torch_says() -> None:
    class Powers(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Results:
            return x**y, x**3.5, x**128, x**-5, torch.pow(2.0, y), torch.pow(-2.0, y), 0.0**y

    inf, nan = math.inf, math.nan
    x = torch.tensor([-2.0, -1, 0, -0.0, 1.5, inf, -inf, nan, -2, 1])
    y = torch.tensor([3.0, 2, 0, -1, 2.5, 0.5, 3, 0, 0.5, nan])
    model = oc.from_torch(Powers(), (x, y))
    assert not model.program.left, model.report
    like(model(x, y), Powers()(x, y), each=True)


def test_angles_are_those_of_the_quadrant_and_the_signs_of_zeros() -> None:
    class Angles(nn.Module):
        def forward(self, y: torch.Tensor, x: torch.Tensor) -> Results:
            return torch.atan2(y, x), y.atan(), torch.copysign(y, x)

    ends = torch.tensor([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, 1e-30, -1e30])
    y, x = (one.flatten() for one in torch.meshgrid(ends, ends, indexing="ij"))
    model = oc.from_torch(Angles(), (y, x))
    assert not model.program.left, model.report
    like(model(y, x), Angles()(y, x), each=True)
    (nan,) = model(x[:1] * math.nan, x[:1])[:1]
    assert nan.isnan().all()


def test_the_few_greatest_of_a_long_axis_are_as_torch_says() -> None:
    class Few(nn.Module):
        def forward(self, x: torch.Tensor) -> Results:
            return (
                *x.topk(1),
                *x.topk(4),
                *x.transpose(0, 1).topk(8, 0),
                *x.topk(4, largest=False),
            )

    inf, nan = math.inf, math.nan
    line = [inf, nan, -inf, -0.0, 1, inf, 3, nan, -2, 0.0, -inf, 5]
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", min=8)
    model = oc.from_torch(Few(), (floats(3, 70),), dynamic_shapes=({0: batch, 1: length},))
    assert not model.program.left, model.report
    for rows in ([line, line[::-1]], [[-inf] * 8], [[7.0] * 100], []):
        x = torch.tensor(rows).reshape(len(rows), -1 if rows else 9)
        results = model(x)
        for values, exact in zip(results[::2], Few()(x)[::2], strict=True):
            assert values.nan_to_num(9e9).equal(exact.nan_to_num(9e9))
        for values, places, axis in zip(results[::2], results[1::2], (1, 1, 0, 1), strict=True):
            own = x if axis else x.transpose(0, 1)
            assert own.gather(axis, places).nan_to_num(9e9).equal(values.nan_to_num(9e9))
            lines = places.sort(axis).values
            assert (lines.diff(dim=axis) > 0).all()
