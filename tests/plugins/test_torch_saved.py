"""Models of torch as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offcut as oc
from tests.agree import agree, of_peer

torch = pytest.importorskip("torch", reason="torch is not installed")


class Layers(torch.nn.Module):
    """Two results of two arguments, the second of which is read last."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(6, 8), torch.nn.Linear(8, 5)

    def forward(self, x: Any, y: Any) -> Any:
        """Return them."""
        hidden = torch.relu(self.one(x))
        return torch.softmax(self.two(hidden), -1) + y, hidden * 2


def test_a_saved_model_of_torch_gives_the_bits_of_the_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = oc.from_torch(Layers().eval(), (torch.randn(2, 3, 6), torch.randn(2, 3, 5)))
    model.save(tmp_path / "layers.offcut")
    loaded = oc.load(tmp_path / "layers.offcut")
    for batch, rows in ((1, 1), (2, 3), (4, 7)):
        x, y = torch.randn(batch, rows, 6), torch.randn(batch, rows, 5)
        with torch.no_grad():
            wanted = model(x, y)
        for results in (loaded(x, y), loaded({"x": x, "y": y}).values()):
            assert all(torch.equal(one, other) for one, other in zip(results, wanted, strict=True))
        plain = loaded(x.numpy(), y.numpy())
        np.testing.assert_array_equal(plain[0], wanted[0].numpy())


def test_what_torch_runs_a_part_of_is_no_file(tmp_path: Path) -> None:
    class Places(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.where(x > 0)[0], x * 2

    model = oc.from_torch(Places(), (torch.randn(4),))
    with pytest.raises(oc.DescribeError) as refused:
        model.save(tmp_path / "places.offcut")
    assert str(refused.value).startswith(
        "save: cannot save a model of torch\n  because  1 regions of 2 operators by offcut, 1 operators by torch;"
    )


class Heads(torch.nn.Module):
    """Attention by hand: views of arguments, between kernels, of results, and several of one value."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = torch.nn.Linear(8, 24), torch.nn.Linear(8, 8)

    def forward(self, x: Any, mask: Any) -> Any:
        """Return it."""
        b, n, _ = x.shape
        q, k, v = self.into(x).view(b, n, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.softmax(q @ k.transpose(-1, -2) + mask[:, None, None], -1)
        y = self.out((weights @ v).transpose(1, 2).reshape(b, n, 8))
        return y.transpose(1, 2), weights[:, 0], y[:, :1].squeeze(1), x.flatten(1)


VIEWS: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "attention": (Heads, ((2, 5, 8), (2, 5))),
    "a result turned": (lambda: Turned(), ((4, 3),)),
    "a part of an argument": (lambda: Part(), ((4, 3),)),
}


class Turned(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return (x * 2).transpose(0, 1)


class Part(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x[:, 1:].unsqueeze(0), x.exp()


@pytest.mark.parametrize("name", VIEWS)
def test_views_that_torch_makes_are_in_the_file(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make, shapes = VIEWS[name]
    module = make().eval()
    model = oc.from_torch(module, tuple(torch.randn(shape) for shape in shapes))
    model.save(tmp_path / "views.offcut")
    loaded = oc.load(tmp_path / "views.offcut")
    for first in (1, 2, 5):
        given = [torch.randn(first, *shape[1:]) for shape in shapes]
        with torch.no_grad():
            wanted, expected = model(*given), module(*given)
        several = [
            one if isinstance(one, tuple) else (one,) for one in (loaded(*given), wanted, expected)
        ]
        for result, own, theirs in zip(*several, strict=True):
            assert torch.equal(torch.as_tensor(result), own)
            agree(own.numpy(), of_peer(theirs.numpy()))
    assert len(model.program.steps) > 1  # torch goes on to make them in calls
