"""Calls of a model of torch at sizes that it had before: nothing is checked again, and nothing else is taken for such a call."""

from __future__ import annotations

import pytest

import offcut as oc
from offcut.errors import CallError
from tests.agree import agree, of_peer

torch = pytest.importorskip("torch", reason="torch is an extra")


class Two(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Two results, in another order than they are computed in."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(6, 6)

    def forward(self, x, y):  # type: ignore[no-untyped-def]
        first = self.layer(x)
        return torch.relu(first) + y, first


def test_known_sizes_give_what_the_first_call_gave() -> None:
    module = Two().eval()
    x, y = torch.randn(3, 6), torch.randn(3, 6)
    model = oc.from_torch(module, (x, y))
    for rows in (1, 5, 3):
        given = torch.randn(rows, 6), torch.randn(rows, 6)
        first = model(*given)
        known = model.traced[0].at_known_sizes(given)
        assert isinstance(known, tuple)
        for one, other, wanted in zip(known, first, module(*given), strict=True):
            assert torch.equal(one, other)
            agree(one.numpy(), of_peer(wanted.detach().numpy()))


def test_what_is_unlike_is_still_refused() -> None:
    x, y = torch.randn(3, 6), torch.randn(3, 6)
    model = oc.from_torch(Two().eval(), (x, y))
    model(x, y)
    with pytest.raises(CallError, match="the program was exported with a tensor there"):
        model(x.numpy(), y)
    with pytest.raises(CallError, match=r"of torch\.float64"):
        model(x.double(), y)
    with pytest.raises(CallError, match="that asks for a gradient"):
        model(x.clone().requires_grad_(), y)
    with pytest.raises(CallError, match="cannot take 1 arguments"):
        model(x)
    with torch.no_grad():
        assert torch.equal(model(x.clone().requires_grad_(), y)[0], model(x, y)[0])
    assert torch.equal(model(torch._neg_view(-x), y)[0], model(x, y)[0])
    wide = torch.zeros(3, 12)
    wide[:, ::2] = x
    assert torch.equal(model(wide[:, ::2], y)[0], model(x, y)[0])
    with torch.profiler.profile() as profile:
        model(x, y)
    assert any(event.key.startswith("offcut::") for event in profile.key_averages())
