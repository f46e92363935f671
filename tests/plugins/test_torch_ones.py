"""What torch asks about sizes of 1, attention of its own layers first: compiled once for batches of 1 and others."""

import math
from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="torch is an extra")

import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters

import offcut as oc
from offcut.plugins import torch as plugin
from tests.plugins.torch_models import fresh, held, like

SIZES = [(2, 8), (1, 8), (13, 5), (1, 1)]
"""Batches and lengths; a model is traced with the first."""


_fresh = pytest.fixture(autouse=True)(fresh)


def ours_in_one_graph(model: nn.Module, calls: list[tuple[torch.Tensor, ...]]) -> bool:
    """Whether a model is right for every call, by one graph that leaves nothing to torch."""
    run = torch.compile(model, backend="offcut", dynamic=True)
    held(run, model, calls)
    return counters["stats"]["unique_graphs"] == 1 and not plugin.programs()[-1].left


def padding(batch: int, length: int) -> torch.Tensor:
    """Rows that end earlier and earlier, but not before the first word."""
    return (
        torch.arange(length) >= torch.linspace(length, max(length // 3, 1), batch).long()[:, None]
    )


class Padded(nn.Module):
    """Torch's encoder, of sentences of several lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            16, 2, 24, batch_first=True, activation="gelu", norm_first=True
        )

    def forward(self, x: torch.Tensor, pad: torch.Tensor) -> torch.Tensor:
        return self.layer(x, src_key_padding_mask=pad)


def test_an_encoder_layer_that_torch_fuses_is_ours() -> None:
    calls = [(torch.randn(b, n, 16), padding(b, n)) for b, n in SIZES]
    assert ours_in_one_graph(Padded().eval(), calls)


def test_attention_of_torch_needs_one_graph_for_batches_of_one() -> None:
    class Read(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.layer(x, y, y, need_weights=False)[0]

    calls = [(torch.randn(b, n, 16), torch.randn(b, n + 2, 16)) for b, n in SIZES]
    assert ours_in_one_graph(Read().eval(), calls)


@pytest.mark.parametrize("kind", [torch.float32, torch.bool])
def test_a_mask_of_all_batches_needs_one_graph(kind: torch.dtype) -> None:
    class Placed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            b, n, _ = x.shape
            x = x.view(b, n, 2, 8).transpose(1, 2)
            apart = torch.arange(n)[:, None] - torch.arange(n)
            mask = apart >= 0 if kind is torch.bool else apart * x.new_tensor(0.1)
            return F.scaled_dot_product_attention(x, x, x, attn_mask=mask[None, None])

    calls = [(torch.randn(b, n, 16),) for b, n in SIZES[:3]]
    assert ours_in_one_graph(Placed(), calls)


class Products(nn.Module):
    """Scores of batches, axes that are exchanged before they are joined, sums of products by letters."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        y = x.view(b, n, 2, 8).transpose(1, 2)
        y = torch.softmax(torch.matmul(y, y.transpose(2, 3)), -1) @ y
        y = torch.einsum("bhnk,hkd->bnhd", y, self.weight) + y.transpose(1, 2)
        return y.transpose(1, 2).reshape(b, n, 16) + y.transpose(1, 3).flatten(2).sum((1, 2))[0]


class Rows(nn.Module):
    """A convolution along sentences of words that lie together."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(16, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.layer(x.transpose(1, 2)))


class Masked(nn.Module):
    """Attention under a mask of its own for each sentence, after transformers."""

    def forward(self, x: torch.Tensor, pad: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        x = x.view(b, n, 2, 8).transpose(1, 2)
        mask = ~pad[:, None, None].expand(b, 1, n, n)
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


class Turned(nn.Module):
    """Scores under a triangle, of arrays that a generator gives."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        p, q = (one.view(b, n, 2, 4).transpose(1, 2) for one in self.layer(x).chunk(2, -1))
        return torch.matmul(p, q.transpose(2, 3)).masked_fill(torch.ones(n, n).triu(1) > 0, 0.0)


class Features(nn.Module):
    """A layer for each feature of a series, and one for all, after temporal fusion transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.ModuleList([nn.Linear(1, 8) for _ in range(16)])
        self.layer = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [layer(x[..., n : n + 1]) for n, layer in enumerate(self.each)]
        return self.layer(torch.stack(parts, -1).mean(-1))


@pytest.mark.parametrize(
    "model", [Products(), Rows(), Turned(), Features()], ids=lambda m: type(m).__name__
)
def test_what_torch_asks_about_sizes_of_one_needs_one_graph(model: nn.Module) -> None:
    calls = [(torch.randn(b, n, 16),) for b, n in (*SIZES, (3, 1))]
    assert ours_in_one_graph(model.eval(), calls)


def test_a_mask_for_each_sentence_needs_one_graph() -> None:
    calls = [(torch.randn(b, n, 16), padding(b, n)) for b, n in (*SIZES, (3, 1))]
    assert ours_in_one_graph(Masked(), calls)


class Band(nn.Module):
    """Windows written to parts of an array, as long as an int of the call says."""

    def forward(self, x: torch.Tensor, window: int) -> torch.Tensor:
        found = x.new_zeros(x.shape[0], x.shape[1] + 1, window)
        found[:, 1:, : window - 1] = x[:, :, -window:-1]
        found[:, 0, 1:window] = x[:, -1, 1 - window :]
        return found * 2


def test_what_is_written_to_parts_of_an_array_needs_one_graph() -> None:
    model = Band()
    run = torch.compile(model, backend="offcut", dynamic=True)
    for b, n in (*SIZES, (3, 2)):
        x = torch.randn(b, n, 8)
        assert torch.equal(run(x, 4), model(x, 4))
    assert counters["stats"]["unique_graphs"] == 1
    assert not plugin.programs()[-1].left  # others may live on until they are collected


class Squeezed(nn.Module):
    """One number for each row, without the axes that are 1."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x).squeeze()) + x.squeeze(0)[..., 0]


class Leading(nn.Module):
    """A first axis that is left out where it is 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.squeeze((0, 2)) * 2 + x.squeeze(0).squeeze(-1)


@pytest.mark.parametrize("module", [Squeezed, Leading])
def test_an_axis_of_1_is_left_out_in_the_call_in_which_it_is_1(module: type[nn.Module]) -> None:
    model = module().eval()
    calls = [(torch.randn(b, 3, 4),) for b in (2, 1, 5)]
    if module is Leading:
        calls = [(torch.randn(b, 3, n),) for b, n in ((2, 4), (1, 4), (2, 1), (1, 1), (5, 3))]
    held(torch.compile(model, backend="offcut", dynamic=True), model, calls)
    assert counters["stats"]["unique_graphs"] == (4 if module is Leading else 2)
    held(oc.from_torch(model, calls[0]), model, calls)


def test_a_batch_of_one_that_einsum_broadcasts_has_a_graph_of_its_own() -> None:
    class Product(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.einsum("bij,bjk->bik", x, y)

    model = Product()
    sizes = [(3, 3), (1, 3), (3, 1), (1, 1), (5, 5)]
    calls = [(torch.randn(a, 2, 4), torch.randn(b, 4, 3)) for a, b in sizes]
    held(torch.compile(model, backend="offcut", dynamic=True), model, calls)
    assert counters["stats"]["unique_graphs"] == 3


def test_norms_and_means_of_images_with_channels_last_need_one_graph() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows, self.one, self.four = nn.LayerNorm(8), nn.GroupNorm(1, 8), nn.GroupNorm(4, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows = self.rows(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            rows = torch.zeros_like(rows).copy_(self.one(rows))
            return self.four(x + rows) * F.adaptive_avg_pool2d(rows, 1)

    calls = [(torch.randn(b, 8, h, w),) for b, h, w in ((2, 4, 5), (1, 3, 4), (7, 5, 1), (1, 1, 2))]
    assert ours_in_one_graph(Normed().eval(), calls)


NOTED: list[int] = []


def _noted() -> bool:
    NOTED.append(1)
    return True


def _scripting() -> bool:
    """As libraries ask torch what it does, which may be of an older version."""
    try:
        import torch

        return torch.jit.is_scripting()
    except Exception:
        return False


def _traced() -> bool:
    return _scripting()


class Asking(nn.Module):
    """A module that asks its length where the answer decides nothing under a mask, after transformers' attention."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        n, m = x.shape[1], x.size(1)
        causal = n > 1 and mask is None and True
        if (n == 1 or m == n) and mask is not None:
            x = x * 2
        elif (n == 1 and torch.jit.is_scripting()) or (n == 1 and _traced()):
            x = x + 100
        return torch.relu(x) if causal else x + 1


class Counting(nn.Module):
    """A module whose branch does something besides."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen: list[int] = []
        if x.shape[1] > 1 and seen.append(1):
            x = x * 2
        return x + len(seen)


class Noting(nn.Module):
    """A module whose branch calls a function that does something."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        causal = x.shape[1] > 1 and _noted()
        return x * 2 if causal else x + 1


def test_what_a_branch_calls_is_called_as_often_as_without_a_compiler() -> None:
    calls = [torch.randn(b, n) for b, n in ((3, 7), (2, 1), (1, 5), (1, 1))]
    model = torch.compile(Noting(), backend="offcut", dynamic=True)
    for run, times in ((Noting(), 2), (model, 2)):
        NOTED.clear()
        for x in calls:
            like(run(x), x * 2 if x.shape[1] > 1 else x + 1)
        assert len(NOTED) == times


def test_a_number_of_the_call_that_is_minus_one_is_what_is_left_of_a_shape() -> None:
    class Viewed(nn.Module):
        def forward(self, x: torch.Tensor, rest: int) -> torch.Tensor:
            y = x.view(x.shape[0], rest, 8).relu() + x.T.reshape(8, rest).sum()
            return y.expand(rest, -1, -1)

    assert ours_in_one_graph(Viewed(), [(torch.randn(b, 32), -1) for b in (2, 1, 7)])


class Windowed(nn.Module):
    """Patches whose channels are innermost for torch alone, in windows of two by two, after Hiera's."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 3, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, (h, w) = x.shape[0], x.shape[2:]
        rows = self.patches(x).flatten(2).transpose(1, 2) * 2
        image = rows.view(b, h // 2, w // 2, 8).view(b, h // 4, 2, 2, w // 4, 8)
        return image.permute(0, 2, 3, 1, 4, 5).flatten(0, 2) + 1


def test_a_view_of_an_image_that_lies_by_channels_in_windows_needs_one_graph() -> None:
    calls = [(torch.randn(b, 3, h, w),) for b, h, w in ((2, 8, 16), (1, 16, 8), (7, 4, 4))]
    assert ours_in_one_graph(Windowed(), calls)
    with pytest.raises(RuntimeError):
        torch.compile(Windowed(), backend="offcut", dynamic=True)(torch.randn(2, 3, 6, 8))


class Squared(nn.Module):
    """Rows of an image as an image again, whose side is the root of their number, after DPT's."""

    def __init__(self, root: Callable[[int], float]) -> None:
        super().__init__()
        self.root = root

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = 2 * x.flatten(2).transpose(1, 2)
        side = int(self.root(rows.shape[1]))
        return rows.transpose(1, 2).reshape(x.shape[0], -1, side, side) + 1


@pytest.mark.parametrize("root", [math.sqrt, lambda n: n**0.5], ids=["sqrt", "power"])
def test_the_side_of_a_square_image_needs_one_graph(root: Callable[[int], float]) -> None:
    calls = [(torch.randn(b, 3, n, n),) for b, n in ((2, 8), (1, 6), (3, 2))]
    assert ours_in_one_graph(Squared(root), calls)
    oblong = torch.randn(2, 3, 2, 8)
    run = torch.compile(Squared(root), backend="offcut", dynamic=True)
    taken = oc.from_torch(Squared(root), calls[0])
    for x in (*(x for (x,) in calls), oblong):
        like(run(x), Squared(root)(x))
        like(taken(x), Squared(root)(x))


@pytest.mark.parametrize(
    ("model", "more"),
    [(Asking(), ()), (Asking(), (torch.ones(2),)), (Counting(), ())],
    ids=["asking", "under a mask", "counting"],
)
def test_a_size_that_a_module_branches_on_is_a_guard(
    model: nn.Module, more: tuple[torch.Tensor, ...]
) -> None:
    """Whether the answer decides something or not: torch guards it when it is asked."""
    calls = [(torch.randn(b, n), *more) for b, n in ((3, 7), (2, 1), (1, 5), (1, 1))]
    assert not ours_in_one_graph(model, calls)
    assert counters["stats"]["unique_graphs"] == 2
