"""A module that is ours: what it holds is held once where it was, and nobody else writes to it."""

import pytest

pytest.importorskip("torch", reason="torch is an extra")

import torch

from offcut.plugins.torch.module_copy import ModuleCopy, place_of


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(5, 5, bias=False)
        self.second = torch.nn.Linear(5, 5, bias=False)
        self.second.weight = self.first.weight
        self.turned = torch.nn.Parameter(torch.randn(3, 4).T, requires_grad=False)
        self.short = torch.nn.Parameter(torch.randn(3).to(torch.bfloat16))
        self.register_buffer("scales", torch.ones(2))
        self.names = ["a"]


def test_a_copy_has_the_values_the_strides_and_the_types_of_what_it_is_of() -> None:
    module = Tied()
    mine = ModuleCopy(module)
    mine.settle({})
    made = mine.module
    for (name, one), (other_name, other) in zip(
        module.state_dict().items(), made.state_dict().items(), strict=True
    ):
        assert name == other_name
        assert torch.equal(one, other)
        assert (one.stride(), one.dtype) == (other.stride(), other.dtype)
        assert one.data_ptr() != other.data_ptr()
    assert made.second.weight is made.first.weight
    assert made.first.weight.requires_grad
    assert not made.turned.requires_grad
    assert made.names == ["a"]
    assert made.names is not module.names


def test_what_becomes_of_a_module_does_not_become_of_its_copy() -> None:
    module = Tied()
    mine, before = ModuleCopy(module), module.turned.clone()
    mine.settle({})
    made = mine.module
    with torch.no_grad():
        module.turned.zero_()
        module.scales.zero_()
    assert torch.equal(made.turned, before)
    assert torch.equal(made.scales, torch.ones(2))


def test_a_parameter_of_a_kind_of_its_own_is_copied_as_it_says() -> None:
    class Marked(torch.nn.Parameter):
        def __deepcopy__(self, memo: dict[int, object]) -> "Marked":
            return Marked(self.data + 1)

    module = torch.nn.Linear(2, 2)
    module.bias = Marked(torch.zeros(2))
    assert torch.equal(ModuleCopy(module).module.bias.data, torch.ones(2))


def test_a_weight_that_something_else_holds_is_made_when_the_module_runs() -> None:
    module = Tied()
    mine = ModuleCopy(module)
    again = {place_of(module.first.weight): module.first.weight.detach().clone}
    mine.settle(again)
    assert mine.module.first.weight.numel() == 0
    assert mine.module.turned.numel() == 12
    filled = mine.with_parameters()
    assert torch.equal(filled.first.weight, module.first.weight)
    assert filled.second.weight is filled.first.weight
    assert filled.first.weight.data_ptr() != module.first.weight.data_ptr()
