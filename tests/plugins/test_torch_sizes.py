"""Sizes of 0 and 1: which of them are sizes, and what they are where they are none."""

from itertools import product
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="torch is an extra")

import sympy
import torch
import torch._dynamo
from torch import nn
from torch._dynamo.utils import counters
from torch.utils._sympy import functions as sf

import offcut as oc
from offcut.graph.sizes.extents import normal
from offcut.plugins.torch import programs
from offcut.plugins.torch.rule_table import Unsupported
from offcut.plugins.torch.size_facts import equalities
from offcut.plugins.torch.sizes import canonical, extent_of
from tests.facade import evaluate, parse_expr
from tests.plugins.torch_models import fresh, held, like, mlp

SHAPES = [(3, 5), (1, 2), (2, 1), (7, 4)]
"""Batches and lengths; a model is traced with the first."""


_fresh = pytest.fixture(autouse=True)(fresh)


def stats() -> tuple[int, int]:
    """Graphs, and breaks between them."""
    return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())


class Shifted(nn.Module):
    """A sum of two, of which one is broadcast."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + y) * x


class Asked(nn.Module):
    """Attention whose options depend on whether there is more than one row, as transformers writes it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        causal = x.shape[2] > 1 and x is not None
        return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=causal)


@pytest.mark.parametrize("shape", [(3, 1, 4), (1, 5, 4), (1, 1, 4), (5, 1), (1, 1)])
def test_an_operand_is_broadcast_along_axes_of_one(shape: tuple[int, ...]) -> None:
    run = torch.compile(Shifted(), backend="offcut", dynamic=True)
    held(run, Shifted(), [(torch.randn(3, 5, 4), torch.randn(shape))])
    assert stats() == (1, 0)


def test_what_is_broadcast_in_one_call_alone_is_compiled_again() -> None:
    run = torch.compile(Shifted(), backend="offcut", dynamic=True)
    shapes = [((3, 5, 4), (1, 5, 4)), ((3, 5, 4), (3, 5, 4)), ((1, 2, 4), (1, 2, 4))]
    held(run, Shifted(), [(torch.randn(a), torch.randn(b)) for a, b in shapes])
    assert stats() == (2, 0)


@pytest.mark.parametrize(("order", "graphs"), [((0, 3, 1), 2), ((1, 0, 3), 1), ((3, 0, 1), 1)])
def test_an_empty_batch_may_be_the_first(order: tuple[int, ...], graphs: int) -> None:
    model = mlp()
    calls = [(torch.randn(b, 40),) for b in order]
    held(torch.compile(model, backend="offcut", dynamic=True), model, calls)
    assert stats() == (graphs, 0)
    assert not any(hasattr(x, "_dynamo_static_indices") for (x,) in calls)


@pytest.mark.parametrize("lengths", [(4, 1, 7), (1, 4, 7)])
def test_a_model_that_asks_for_a_length_of_one_stays_whole(lengths: tuple[int, ...]) -> None:
    run = torch.compile(Asked(), backend="offcut", dynamic=True)
    held(run, Asked(), [(torch.randn(b, 2, n, 8),) for n in lengths for b in (3, 1)])
    assert stats() == (2, 0)


class Compared(nn.Module):
    """A branch on a batch of one, whose other side is broadcast: in one of them the batch is known to be 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.arange(x.shape[1], dtype=x.dtype).unsqueeze(0)
        shifted = x + y if x.shape[0] != y.shape[0] else x * y
        return torch.relu(shifted).reshape(-1, x.shape[1]) + x


def test_a_batch_that_a_branch_fixes_is_a_number_everywhere() -> None:
    run = torch.compile(Compared(), backend="offcut", dynamic=True)
    held(run, Compared(), [(torch.randn(b, 5),) for b in (3, 1, 2)])
    assert stats() == (2, 0)
    assert [program.left for program in programs()[-2:]] == [[], []]


class Attended(nn.Module):
    """Keys with a batch of their own, in the shape of the queries: after transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        q = self.layer(x).view(b, n, 2, 4).transpose(1, 2)
        k = self.layer(y).view(b, -1, 2, 4).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(q, k, k)


def test_a_view_that_leaves_a_size_open_keeps_the_batch() -> None:
    model = Attended().eval()
    run = torch.compile(model, backend="offcut", dynamic=True)
    held(run, model, [(torch.randn(b, n, 8), torch.randn(b, 5, 8)) for b, n in SHAPES])
    assert stats() == (1, 0)
    assert programs()[-1].left == []


class Lengths(nn.Module):
    """Attention under a mask of two lengths, scaled by a depth of any number."""

    def __init__(self, scaled: bool) -> None:
        super().__init__()
        self.scaled = scaled

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        mask = torch.arange(q.shape[2])[:, None] >= torch.arange(k.shape[2])[None]
        scale = 2 * q.shape[3] ** -0.5 if self.scaled else None
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_mask_of_two_lengths_is_spread_over_scores_of_both(
    scaled: bool, dtype: torch.dtype
) -> None:
    model = Lengths(scaled)
    given = [
        [torch.randn(b, 2, n, d).to(dtype) for n in (m, n, n)]
        for b, m, n, d in ((3, 4, 6, 8), (2, 7, 3, 5), (1, 4, 4, 2))
    ]
    run = torch.compile(model, backend="offcut", dynamic=True)
    with torch.no_grad():
        held(run, model, given)
        assert programs()[-1].left == []
        assert scaled or stats() == (1, 0)  # dynamo makes a scale a number
        held(oc.from_torch(model, (*given[0],)), model, given)


class Cached(nn.Module):
    """Keys and values behind those of a cache, of which only attention says that there are as many."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, *cached: torch.Tensor) -> torch.Tensor:
        q = self.one(x)
        keys, values = (torch.cat([one, q], 2) for one in cached)
        return nn.functional.scaled_dot_product_attention(q, keys, values)


def test_a_cache_has_as_many_values_as_keys() -> None:
    model = Cached().eval()
    run = torch.compile(model, backend="offcut", dynamic=True)
    given = [(torch.randn(b, 2, 1, 8), *torch.randn(2, b, 2, n, 8)) for b, n in SHAPES]
    with torch.no_grad():
        held(run, model, given)
    assert stats() == (1, 0)
    assert programs()[-1].left == []


class Padded(nn.Module):
    """Windows of 4, of an image that is padded by what is lacking."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, h, _ = x.shape
        lack = (4 - h % 4) % 4
        y = nn.functional.pad(x, (0, 0, 0, lack)) if lack > 0 else x
        return (2 * y).view(b, (h + lack) // 4, 4, -1).amax(2).view(b, h // 4, 2, 3)


def test_what_is_padded_by_nothing_is_a_multiple() -> None:
    run = torch.compile(Padded(), backend="offcut", dynamic=True)
    held(run, Padded(), [(torch.randn(b, 4 * n, 6),) for b, n in SHAPES])
    assert stats() == (1, 0)
    assert programs()[-1].left == []


class Halved(nn.Module):
    """Rows and columns in pairs, of sizes that only their product says to be even."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, h, w = x.shape
        y = (2 * x).view(b, h // 2, 2, w // 2, 2)
        return torch.cat([y.sum((2, 4)), y[:, :, 0, :, 1]], 1)


def test_sizes_whose_floors_multiply_to_them_are_multiples() -> None:
    run = torch.compile(Halved(), backend="offcut", dynamic=True)
    held(run, Halved(), [(torch.randn(b, 2 * n, 4 * b),) for b, n in SHAPES])
    assert stats() == (1, 0)
    assert programs()[-1].left == []


def test_what_two_guards_say_of_one_expression_is_equal() -> None:
    s, t = sympy.symbols("s t", positive=True, integer=True)
    least = sympy.Min(64, s)
    guards = [SimpleNamespace(expr=sympy.Eq(least, one)) for one in (s, t)]
    known = SimpleNamespace(guards=guards, replace=lambda expr: expr)
    assert equalities(known, {}) == ((canonical(least), s), (t, s))


def test_sizes_that_floats_scale_are_rounded_as_integers_are() -> None:
    s = sympy.Symbol("s", positive=True, integer=True)
    wide, half = sf.ToFloat(s), sf.IntTrueDiv(s, 4)
    for expr, wanted in [
        (sf.TruncToInt(1.5 * wide), "3*s//2"),
        (sf.FloorToInt(half), "s//4"),
        (sf.CeilToInt(half), "(s + 3)//4"),
        (sf.CeilToInt(2.0 * wide), "2*s"),
        (sf.CeilToInt(sf.FloatTrueDiv(wide - 0.5, 1.0)), "s"),
        (sf.FloorToInt(sf.FloatTrueDiv(1.5 * wide + 2, 0.25) + 0.5), "6*s + 8"),
    ]:
        assert extent_of(expr) == normal(parse_expr(wanted))
    refused = wide / 3, sf.FloatPow(wide, 0.5), wide + 0.1, sf.FloatTrueDiv(wide, 3.0), wide + 1e9
    for expr in map(sf.TruncToInt, refused):
        with pytest.raises(Unsupported):
            extent_of(expr)


class Centres(nn.Module):
    """Places of patches, after DINOv3's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.shape[1]
        return x + (torch.arange(0.5, h, dtype=torch.float32) / h)[:, None]


def test_places_that_are_counted_from_a_half_are_as_many_as_their_size() -> None:
    run = torch.compile(Centres(), backend="offcut", dynamic=True)
    held(run, Centres(), [(torch.randn(b, n, 4),) for b, n in ((2, 6), (1, 3), (3, 1))])
    assert stats() == (1, 0)
    assert programs()[-1].left == []


class Filled(nn.Module):
    """Numbers that floats make of sizes, where torch makes an array of them first."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        return torch.where(x > 0, x, 0.5 * n) + torch.full((n,), n / 3)


def test_a_float_of_sizes_fills_arrays() -> None:
    run = torch.compile(Filled(), backend="offcut", dynamic=True)
    held(run, Filled(), [(torch.randn(b, n),) for b, n in ((2, 6), (1, 3), (3, 1))])
    assert stats() == (1, 0)
    assert programs()[-1].left == []


def test_int_rounds_what_is_below_nothing_towards_0() -> None:
    h = sympy.Symbol("h", integer=True, positive=True)
    for expr, exact in (
        (sf.TruncToInt(sf.IntTrueDiv(8 - h, 4)), lambda n: int((8 - n) / 4)),
        (sf.TruncToInt(0.5 * sf.ToFloat(h - 8)), lambda n: int((n - 8) * 0.5)),
        (sf.FloorToInt(sf.IntTrueDiv(8 - h, 4)), lambda n: (8 - n) // 4),
        (sf.CeilToInt(sf.IntTrueDiv(8 - h, 4)), lambda n: -(-(8 - n) // 4)),
        (sf.TruncToInt(sf.IntTrueDiv(h, 4)), lambda n: n // 4),
        (sf.TruncToInt(0.75 * sf.ToFloat(h) - 5.5), lambda n: int(0.75 * n - 5.5)),
        (sf.CeilToInt(sf.FloatTrueDiv(0.5 - sf.ToFloat(h), 0.25)), lambda n: 2 - 4 * n),
    ):
        found = extent_of(expr)
        assert [evaluate(found, {"h": n}) for n in range(1, 30)] == [exact(n) for n in range(1, 30)]


class Mirrored(nn.Module):
    """Of one operand, and of two side by side."""

    def forward(
        self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        both = nn.functional.pad(torch.cat([torch.tanh(x), y], -1), (1, 1), mode="reflect")
        return nn.functional.pad(z, (2, 1), mode="reflect"), torch.relu(both)


def test_what_is_mirrored_is_there_and_what_no_kernel_can_be_made_of_stays_alone() -> None:
    model = oc.from_torch(Mirrored(), tuple(torch.rand(3, n) for n in (5, 4, 6)))
    first, *left = model.report.splitlines()
    assert first.endswith("of 4 operators by offcut, 1 operators by torch")
    assert "pad" in left[0]
    assert "out of bounds" in left[0]
    for n, *widths in ((3, 5, 4, 6), (1, 0, 3, 3), (1, 4, 3, 9), (2, 17, 0, 4)):
        given = [torch.rand(n, width) for width in widths]
        for found, wanted in zip(model(*given), Mirrored()(*given), strict=True):
            like(found, wanted)
    with pytest.raises(RuntimeError, match="less than the corresponding input dimension"):
        model(torch.rand(3, 3), torch.rand(3, 2), torch.rand(3, 2))


def test_windows_that_would_begin_behind_the_image_at_some_sizes_are_torchs() -> None:
    """An exported program says of their number what holds for its example."""
    for module in (nn.MaxPool2d(2, 2, 1, ceil_mode=True), nn.MaxPool2d(3, 2, 1, ceil_mode=True)):
        model = oc.from_torch(module, (torch.rand(2, 3, 11, 11),))
        held(model, module, [(torch.rand(2, 3, size, size + 1),) for size in (8, 9, 10, 12)])


@pytest.mark.parametrize(
    "layer", [nn.ConvTranspose2d(2, 3, 3, 2, 1), nn.ConvTranspose1d(2, 3, 3, 2, 1)]
)
def test_a_transposed_convolution_is_of_images_that_something_is_left_of(layer: nn.Module) -> None:
    axes = layer.weight.dim() - 2
    model = oc.from_torch(layer, (torch.rand(3, 2, *(5, 6)[:axes]),))
    assert model.report.endswith("0 operators by torch")
    held(model, layer, [(torch.rand(b, 2, *(h, w)[:axes]),) for b, h, w in ((1, 1, 1), (2, 4, 9))])


class Chunks(nn.Module):
    """Sums over chunks of 8."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        filled = nn.functional.pad(x, (0, -x.shape[1] % 8))
        chunks = filled.view(x.shape[0], filled.shape[1] // 8, 8)
        return torch.relu(chunks.cumsum(1) * 2)


def test_an_extent_that_torch_says_is_a_number_is_one_in_the_calls_that_are_taken() -> None:
    model = oc.from_torch(Chunks(), (torch.rand(3, 5),))
    assert model.report.endswith("0 operators by torch")
    held(model, Chunks(), [(torch.rand(b, n),) for b, n in ((1, 1), (2, 8), (5, 3), (2, 17))])


class Pyramid(nn.Module):
    """Levels of an image that are doubled to the size of those before."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(2, 4, 3, 2, 1), nn.Conv2d(4, 4, 3, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        large = self.one(x)
        small = self.two(large)
        return torch.cat([nn.functional.interpolate(small, scale_factor=2.0) + large, large], 1)


class Positions(nn.Module):
    """Patches, as many as a table has positions."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.table = nn.Conv2d(2, 4, 4, 4), nn.Parameter(torch.randn(1, 16, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.patches(x).flatten(2).transpose(1, 2) + self.table
        return rows.view(-1, 4, 4, 4).relu()


@pytest.mark.parametrize(
    ("model", "sizes", "others"),
    [
        (Pyramid, [(8, 12), (16, 4), (7, 11)], [(6, 8), (9, 12)]),
        (Positions, [(16, 16), (8, 32), (17, 18)], [(20, 20), (12, 12)]),
    ],
)
def test_extents_that_torch_says_are_equal_are_one_where_they_are(
    model: type[nn.Module], sizes: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    module = model().eval()
    calls = [(torch.randn(b, 2, *size),) for b, size in zip((3, 1, 2), sizes, strict=True)]
    compiled = torch.compile(module, backend="offcut", dynamic=True)
    held(compiled, module, calls)
    assert stats()[1] == 0
    assert programs()[-1].report().endswith("0 operators by torch")
    taken = oc.from_torch(module, calls[0])
    held(taken, module, calls)
    assert taken.report.endswith("0 operators by torch")
    for size in others:
        with pytest.raises(RuntimeError, match="must match"), torch.no_grad():
            taken(torch.randn(1, 2, *size))


class Picked(nn.Module):
    """One of an axis from either end, where it is copied to be read."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[..., 2].cumsum(1), x[..., -3].sort(1).values], 1)


def test_an_element_that_is_picked_is_there() -> None:
    model = oc.from_torch(Picked(), (torch.rand(3, 5, 4),))
    assert model.report.endswith("0 operators by torch")
    held(model, Picked(), [(torch.rand(shape),) for shape in ((1, 9, 3), (2, 1, 7))])
    with pytest.raises(IndexError, match="out of range"):
        model(torch.rand(2, 5, 2))


class Differences(nn.Module):
    """Numbers that are differences of sizes, below 0 in some calls, and what is cut off along such diagonals."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n, m = x.shape[0], y.shape[0]
        table = torch.arange(1.0, 50.0).reshape(7, 7)
        return x * max(n - 1, 1) + (n - m), y / max(m - 2, 1), table.tril(n - m), table.triu(n - 3)


def test_a_number_is_a_difference_of_sizes() -> None:
    model = oc.from_torch(Differences(), (torch.rand(3, 4), torch.rand(5)))
    assert model.report.endswith("0 operators by torch")
    for n, m in ((3, 5), (7, 2), (4, 4), (1, 6), (6, 1)):
        x, y = torch.rand(n, 4), torch.rand(m)
        for found, wanted in zip(model(x, y), Differences()(x, y), strict=True):
            like(found, wanted)


class Numbered(nn.Module):
    """The parts of an image that shifted windows see apart, numbered as Swin does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        numbers = torch.zeros(1, x.shape[1], x.shape[2], 1)
        parts = slice(0, -4), slice(-4, -2), slice(-2, None)
        for n, (rows, columns) in enumerate(product(parts, parts)):
            numbers[:, rows, columns, :] = n
        return numbers + x


def test_parts_that_are_written_from_the_end_are_ours() -> None:
    run = torch.compile(Numbered(), backend="offcut", dynamic=True)
    shapes = (2, 8, 9, 3), (1, 12, 8, 2), (3, 4, 7, 3)
    held(run, Numbered(), [(torch.rand(shape),) for shape in shapes])
    assert stats() == (1, 0)
    assert programs()[-1].left == []
    held(run, Numbered(), [(torch.rand(2, 2, 3, 1),)])  # parts overlap: by torch


class Lagged(nn.Module):
    """Parts of a series as long as another, that end one step before the other, as forecasts read it."""

    def forward(self, past: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        whole, length = torch.cat([past, new], 1), past.shape[1]
        return torch.stack([whole[:, -length - lag : -lag] for lag in (1, 2)], -1)


def test_parts_that_are_as_long_as_torch_says_are_stacked() -> None:
    run = torch.compile(Lagged(), backend="offcut", dynamic=True)
    shapes = ((3, 5), (3, 4)), ((1, 7), (1, 3)), ((2, 4), (2, 9)), ((3, 2), (3, 2))
    held(run, Lagged(), [tuple(map(torch.rand, each)) for each in shapes])
    assert programs()[-1].left == []


THEIRS = torch.linspace


class Coordinates(nn.Module):
    """An image beside the places of its rows and columns."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, _, h, w = x.shape
        rows = torch.linspace(-1, 1, h, dtype=x.dtype).view(h, 1)
        columns = THEIRS(0.5, w - 0.5, steps=w, dtype=x.dtype)
        return x * rows + columns + torch.linspace(0, 1, 3, dtype=x.dtype).view(3, 1, 1)


def test_as_many_numbers_as_a_size_says_need_one_graph() -> None:
    calls = [(torch.rand(b, 3, h, w),) for b, h, w in ((2, 8, 9), (1, 5, 4), (3, 1, 6), (2, 2, 1))]
    held(torch.compile(Coordinates(), backend="offcut", dynamic=True), Coordinates(), calls)
    assert stats() == (1, 0)
    assert programs()[-1].left == []
    model = oc.from_torch(Coordinates(), calls[0])
    held(model, Coordinates(), calls)
    assert model.report.endswith("0 operators by torch")


class Modulated(nn.Module):
    """A convolution whose weights each sample has of its own, as StyleGAN writes it."""

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        b, c, *image = x.shape
        together, each = x.reshape(1, b * c, *image), w.reshape(b * 5, c, 3, 3)
        return nn.functional.conv2d(together, each, groups=b).reshape(b, 5, -1)


def test_groups_as_many_as_a_size_are_those_of_torch() -> None:
    inputs = torch.rand(3, 2, 6, 6), torch.rand(3, 5, 2, 3, 3)
    model = oc.from_torch(Modulated(), inputs)
    assert "1 × aten.convolution.default: how many groups it has is a size" in model.report
    held(model, Modulated(), [inputs, (torch.rand(1, 2, 5, 7), torch.rand(1, 5, 2, 3, 3))])


class Rounded(nn.Module):
    """Means of windows, a last one of fewer elements, divided by a number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.avg_pool2d(x, 2, ceil_mode=True, divisor_override=3)


def test_means_by_a_divisor_of_windows_that_are_rounded_up_are_those_of_torch() -> None:
    model = oc.from_torch(Rounded(), (torch.rand(2, 3, 5, 7),))
    assert "it has a divisor, and rounds the number of its windows up" in model.report
    held(model, Rounded(), [(torch.rand(2, 3, 5, 7),), (torch.rand(1, 3, 4, 3),)])


class Windowed(nn.Module):
    """A window of three on what is padded, and on what stands side by side."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights = torch.linspace(-1, 1, 12).reshape(2, 2, 3)
        conv = nn.functional.conv1d
        return conv(nn.functional.pad(x, (1, 0)), weights), conv(torch.cat([x, x * 2], -1), weights)


def test_windows_fit_what_torch_takes() -> None:
    model = oc.from_torch(Windowed(), (torch.ones(3, 2, 9),))
    assert model.report.endswith("0 operators by torch")
    for n, length in ((1, 2), (2, 3), (3, 17)):
        x = torch.linspace(-2, 2, n * 2 * length).reshape(n, 2, length)
        for found, wanted in zip(model(x), Windowed()(x), strict=True):
            like(found, wanted)
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        model(torch.ones(1, 2, 1))


@pytest.mark.parametrize(
    ("layer", "least"),
    [
        (nn.Sequential(nn.MaxPool2d(2), nn.ReLU(), nn.AvgPool2d(2)), 4),
        (nn.Sequential(nn.MaxPool2d(3, 2, ceil_mode=True), nn.ReLU()), 2),
        (nn.Sequential(nn.AvgPool2d(3, 2, padding=1), nn.Conv2d(3, 2, 3)), 5),
    ],
    ids=["two in turn", "rounded up", "padded, then a convolution"],
)
@torch.no_grad()
def test_images_that_torch_pools_nothing_of_are_refused(layer: nn.Module, least: int) -> None:
    model = oc.from_torch(layer, (torch.randn(2, 3, 12, 14),))
    fits, small = torch.randn(1, 3, least, least + 1), torch.randn(1, 3, least - 1, least + 1)
    like(model(fits), layer(fits))
    for one in (layer, model):
        with pytest.raises(RuntimeError, match=r"too small|greater than actual"):
            one(small)
