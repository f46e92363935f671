"""Torch's recurrent layers: of any batch and length, as one kernel for each direction of each layer."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import rejection

pytest.importorskip("torch", reason="an extra")

import torch
from torch import nn
from torch._dynamo.utils import counters

import offcut as oc
from offcut.plugins.torch import programs
from offcut.plugins.torch.opaque_recurrences import NAMES, trace_recurrences_whole
from tests.agree import agree
from tests.plugins.torch_models import like

STACKS: dict[str, tuple[Any, dict[str, Any], int]] = {
    "LSTM, two layers, two directions": (
        *(nn.LSTM, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
        4,
    ),
    "LSTM with a projection, no bias": (nn.LSTM, {"proj_size": 3, "bias": False}, 1),
    "GRU, two directions": (nn.GRU, {"bidirectional": True, "batch_first": True}, 2),
    "RNN of relu": (nn.RNN, {"nonlinearity": "relu"}, 1),
}


@pytest.mark.parametrize("case", STACKS)
def test_a_stack_is_taken_whole_at_any_batch_and_length(case: str) -> None:
    make, options, count = STACKS[case]
    torch.manual_seed(0)
    model = make(8, 6, **options).eval()
    taken = oc.from_torch(model, (torch.randn(3, 5, 8),))
    assert taken.report.endswith("0 operators by torch")
    (region,) = taken.program.regions
    kinds = [node.op for node in region.bound.graph.nodes]
    assert sum(kinds.count(kind) for kind in ("lstm", "gru", "rnn")) == count
    for shape in (3, 5, 8), (1, 1, 8), (1, 9, 8), (7, 2, 8):
        x = torch.randn(shape)
        with torch.no_grad():
            like(taken(x), model(x))


def test_states_are_given_or_zeros() -> None:
    torch.manual_seed(0)
    model = nn.LSTM(8, 6, 2).eval()
    state = torch.randn(2, 3, 6), torch.randn(2, 3, 6)
    taken = oc.from_torch(model, (torch.randn(4, 3, 8), state))
    x, given = torch.randn(2, 5, 8), (torch.randn(2, 5, 6), torch.randn(2, 5, 6))
    with torch.no_grad():
        like(taken(x, given), model(x, given))
    alone = oc.from_torch(model, (torch.randn(4, 3, 8),))
    (region,) = alone.program.regions
    assert [value.name for value in region.bound.graph.inputs] == ["input_2"]
    layers = [node for node in region.bound.graph.nodes if node.op == "lstm"]
    assert [dict(node.options) for node in layers] == [{}, {}]


def test_a_sequence_without_a_batch_is_taken() -> None:
    torch.manual_seed(0)
    model = nn.RNN(8, 6).eval()
    taken = oc.from_torch(model, (torch.randn(4, 8),))
    for length in 1, 6:
        x = torch.randn(length, 8)
        with torch.no_grad():
            like(taken(x), model(x))


def test_a_program_that_torch_exported_keeps_its_length() -> None:
    torch.manual_seed(0)
    model = nn.GRU(8, 6, batch_first=True).eval()
    free = ({0: torch.export.Dim.AUTO},)
    exported = torch.export.export(model, (torch.randn(3, 5, 8),), dynamic_shapes=free)
    taken = oc.from_torch(exported)
    x = torch.randn(4, 5, 8)
    with torch.no_grad():
        like(taken(x), model(x))
    with rejection(
        "FixedSizeError: call: cannot take input of shape (4, 6, 8)\n"
        "  because  axis 1 is 5 in every call\n"
        "  help     from_torch(module, args), where the module takes it"
    ):
        taken(torch.randn(4, 6, 8))
    module = oc.from_torch(model, (torch.randn(3, 5, 8),))
    assert module(torch.randn(4, 6, 8))[0].shape == (4, 6, 6)
    with pytest.raises(oc.CallError, match=r"axis 2 is 8 in every call$"):
        module(torch.randn(4, 6, 9))


def test_torch_traces_as_before_once_we_have_traced() -> None:
    def kept() -> list[Any]:
        table = torch._decomp.decomposition_table
        every = [getattr(torch.ops.aten, name).input for name in NAMES]
        return [(dict(op.py_kernels), table[op]) for op in every]

    before = kept()
    with trace_recurrences_whole():
        assert kept() != before
    assert kept() == before


def test_dropout_in_training_stays_with_torch() -> None:
    model = nn.LSTM(8, 6, 2, dropout=0.5).train()
    taken = oc.from_torch(model, (torch.randn(4, 3, 8),))
    assert "aten.lstm.input: dropout is random" in taken.report


@pytest.mark.parametrize("case", STACKS)
def test_torch_compile_takes_a_stack_whole_in_one_graph_at_any_batch_and_length(case: str) -> None:
    make, options, count = STACKS[case]
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(make(8, 6, **options)).eval()
    counters.clear()
    run = torch.compile(model, backend="offcut", dynamic=True)
    for shape in (3, 5, 8), (1, 1, 8), (1, 9, 8), (7, 2, 8):
        x = torch.randn(shape)
        with torch.no_grad():
            like(run(x), model(x))
    assert counters["stats"]["unique_graphs"] == 1
    assert not programs()[-1].left
    (region,) = programs()[-1].regions
    kinds = [node.op for node in region.bound.graph.nodes]
    assert sum(kinds.count(kind) for kind in ("lstm", "gru", "rnn")) == count


def test_a_layer_whose_weights_learn_stays_with_torch_under_torch_compile() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.GRU(8, 6)
    run = torch.compile(model, backend="offcut", dynamic=True)
    x = torch.randn(3, 2, 8)
    run(x)[0].sum().backward()
    found = [one.grad.clone() for one in model.parameters()]
    model.zero_grad()
    model(x)[0].sum().backward()
    assert all(
        torch.equal(one, own.grad) for one, own in zip(found, model.parameters(), strict=True)
    )


def test_features_whose_number_is_calculated_are_those_of_the_layer() -> None:
    """As of an image whose rows become features: ``4 * (h // 2)`` of them, 8 in each call that torch takes."""

    class Lines(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.LSTM(8, 3)

        def forward(self, x: Any) -> Any:
            image = torch.nn.functional.max_pool2d(x, (2, 1))
            return self.layer(image.flatten(1, 2).permute(2, 0, 1))[0]

    module = Lines().eval()
    model = oc.from_torch(module, (torch.randn(2, 4, 4, 5),), target="interpret")
    assert not model.program.left, model.report
    with torch.no_grad():
        for b, steps in ((1, 1), (3, 7)):
            x = torch.randn(b, 4, 4, steps)
            agree(model(x).numpy(), module(x).double().numpy(), terms=4.0, units=64)
