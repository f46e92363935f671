"""Attention of torch's own layers: taken whole, and compiled once for batches of 1 and others."""

from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="torch is an extra")

import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensor

from offcut.plugins import torch as plugin
from offcut.plugins.torch.unguarded import UNGUARDED
from tests.plugins.torch_models import held

SIZES = [(2, 8), (1, 8), (13, 5), (1, 1)]
"""Batches and lengths; a model is traced with the first."""


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OFFCUT_VERIFY", "1")  # errors of ours are raised
    torch._dynamo.reset()
    torch.manual_seed(0)
    counters.clear()
    yield
    torch._dynamo.reset()


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


def test_torch_is_as_it_was() -> None:
    model = nn.Linear(8, 8).eval()
    held(torch.compile(model, backend="offcut", dynamic=True), model, [(torch.randn(2, 3, 8),)])
    assert not any(op.py_kernels for op in UNGUARDED)
    assert "contiguous" not in vars(FakeTensor)
