"""Torch's own samples of its operators through ``torch.compile``: arguments by rows, transposed, with gaps and repeated, results in the
order that torch says, everything between pages that may not be touched.
"""

from __future__ import annotations

import sys
import types
import unittest
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is an extra")

import torch
import torch._dynamo
from torch._dynamo.utils import counters
from torch.utils import _pytree as pytree

from offcut.backends.host import arrays as host
from offcut.errors import OffcutError
from offcut.plugins.torch.program import Program
from offcut.plugins.torch.rule_table import TABLE
from tests.agree import agree
from tests.facade import MemoryBlocks
from tests.guarded import Memory
from tests.plugins.torch_models import like

LAYOUTS = ("transposed", "sliced", "expanded")
SAMPLES = 2
"""Of each operator, of different shapes."""
PARTS = 40


INNER = """_adaptive_avg_pool2d _adaptive_avg_pool3d _assert_tensor_metadata _cdist_forward _convolution _embedding_bag
    _embedding_bag_forward_only _fused_rms_norm _grouped_mm _linalg_det _log_softmax _native_batch_norm_legit_functional _native_batch_norm_legit_no_training
    _reshape_alias _reshape_copy _scaled_dot_product_flash_attention_for_cpu _softmax _to_copy _trilinear _unsafe_index
    _unsafe_index_put _unsafe_view alias col2im convert_element_type convolution copy copy_strided detach feature_dropout grid_sampler gru index
    lift_fresh lift_fresh_copy lstm max_pool2d_with_indices max_pool3d_with_indices native_dropout numpy_T reflection_pad1d
    reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d rnn_relu rnn_tanh select_copy slice_copy
    __lshift__ __rshift__ _safe_softmax _upsample_bicubic2d_aa split_copy type_as upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d"""
"""Operators with a rule that torch has no samples of: other operators are written in most of them."""
OUTER = """argsort cartesian_prod column_stack cov cross diag_embed diff dist dstack einsum fliplr flipud hstack index_add index_copy
    index_fill index_reduce inner kron logaddexp logsumexp masked_select meshgrid msort nansum nanmean outer put renorm rot90 std_mean
    swapaxes take take_along_dim tensordot tile trace trapezoid unsafe_chunk vstack xlogy"""
"""Operators that torch writes in those that have a rule."""


def names_of(operator: Any) -> set[str]:
    """What torch calls an operator, its last part."""
    every = (operator.name, operator.aten_name, *(one.name for one in operator.aliases))
    return {name.rpartition(".")[2] for name in every}


@cache
def operators() -> dict[str, Any]:
    """Torch's descriptions of the operators that have a rule, and of its layers, by name."""
    if "expecttest" not in sys.modules:  # torch's tests alone need it
        module: Any = types.ModuleType("expecttest")
        module.TestCase = unittest.TestCase
        sys.modules["expecttest"] = module
    from torch.testing._internal.common_methods_invocations import op_db

    taken = {*rules(), *OUTER.split()}
    return {
        f"{one.name}{f'.{one.variant_test_name}' * bool(one.variant_test_name)}": one
        for one in op_db
        if names_of(one) & taken or one.name.startswith("nn.functional.")
    }


def rules() -> set[str]:
    """The operators of torch that have a rule, without their overloads."""
    return {one.name().partition("::")[2].partition(".")[0] for one in TABLE}


@pytest.mark.slow
def test_every_rule_is_of_an_operator_with_samples() -> None:
    sampled = set[str]().union(*map(names_of, operators().values()))
    assert rules() - sampled == {*INNER.split()}


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    """What is allocated meanwhile lies between walls, and what is no refusal is raised."""
    found, refuse = Memory(), Program._note_refusal

    def refused(self: Program, region: Any, failed: Exception) -> None:
        if not isinstance(failed, OffcutError):
            raise failed
        refuse(self, region, failed)

    monkeypatch.setattr(Program, "_note_refusal", refused)
    monkeypatch.setattr(host, "allocate", found.allocated)
    monkeypatch.setattr(MemoryBlocks, "take", lambda _, count: found.arena(count))
    torch._dynamo.reset()
    yield found
    torch._dynamo.reset()


def samples(name: str) -> list[Any]:
    """Samples of an operator, of different shapes, in float32 where it takes that."""
    operator = operators()[name]
    kinds = [torch.float32, torch.int64, torch.bool]
    dtype = next((kind for kind in kinds if kind in operator.supported_dtypes("cpu")), None)
    if dtype is None:
        return []
    torch.manual_seed(0)
    found = dict[object, Any]()
    for one in operator.sample_inputs("cpu", dtype, requires_grad=False):
        tensors = [
            x
            for x in pytree.tree_leaves((one.input, one.args, one.kwargs))
            if isinstance(x, torch.Tensor)
        ]
        shapes = tuple(x.shape for x in tensors)
        if tensors and any(x.dim() > 1 and x.numel() > 1 for x in tensors):
            found.setdefault(shapes, one)
    kept = sorted(found.items(), key=lambda item: -max(len(shape) for shape in item[0]))
    return [one for _, one in kept[:SAMPLES]]


def laid(x: Any, layout: str, memory: Memory) -> Any:
    """A tensor of these values, in that layout, between walls."""
    if (
        not isinstance(x, torch.Tensor)
        or x.layout is not torch.strided
        or x.is_complex()
        or not x.dim()
    ):
        return x
    if layout == "expanded" and x.shape[0] > 1:
        x = x[:1].expand(x.shape)
    made = torch.from_numpy(
        memory.lying(layout, tuple(x.shape), str(x.dtype).removeprefix("torch."))
    )
    if layout == "expanded":
        made[:1] = x[:1]
    else:
        made.copy_(x)
    return made


def calls(name: str, memory: Memory) -> list[tuple[Any, Any]]:
    """The arguments of each sample in each layout, and what torch gives; none where that is drawn at random, or refused."""
    run, found = operators()[name].op, list[tuple[Any, Any]]()
    for sample in samples(name):
        for layout in LAYOUTS:
            given = pytree.tree_map(
                lambda x, layout=layout: laid(x, layout, memory),
                (sample.input, sample.args, sample.kwargs),
            )
            try:
                once, again = (run(given[0], *given[1], **given[2]) for _ in range(2))
                like(once, again, each=True)
            except (RuntimeError, TypeError, ValueError, IndexError, AssertionError):
                continue
            found.append((given, once))
    return found


def difference(name: str, memory: Memory) -> str:
    """Return how an operator differs from torch's; "" where it does not, and where torch cannot trace it."""
    run, every = operators()[name].op, calls(name, memory)
    leaves, spec = pytree.tree_flatten([given for given, _ in every])

    def together(*leaves: Any) -> list[Any]:
        given = pytree.tree_unflatten([*leaves], spec)
        return [run(x, *args, **kwargs) for x, args, kwargs in given]

    torch._dynamo.reset()
    try:
        with torch.no_grad():
            found = torch.compile(together, backend="offcut", dynamic=True)(*leaves)
        memory.check()
        for result, (_, expected) in zip(found, every, strict=True):
            like(result, expected)
    except torch._dynamo.exc.TorchDynamoException:
        return ""
    except Exception as wrong:
        return f"{type(wrong).__name__}: {wrong}"
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_an_operator_gives_what_torch_does(part: int, memory: Memory) -> None:
    found = {name: difference(name, memory) for name in [*operators()][part::PARTS]}
    assert {name: text for name, text in found.items() if text} == {}


def test_what_a_program_writes_lies_as_torch_says(memory: Memory) -> None:
    def several(x: Any, i: Any) -> tuple[Any, ...]:
        z = x.clone()
        z[i] = 7
        return (*torch.sort(x, dim=0), z, x.index_fill(0, i, 5.0), x.cumsum(0), *x.cummax(1))

    x = laid(torch.randn(17, 4), "transposed", memory)
    given = (x, torch.tensor([3, 1]))
    with torch.no_grad():
        found = torch.compile(several, backend="offcut", dynamic=True)(*given)
    memory.check()
    for result, expected in zip(found, several(*given), strict=True):
        assert (result.stride(), torch.equal(result, expected)) == (expected.stride(), True)


def test_weights_of_group_norm_that_torch_runs_lie_side_by_side(memory: Memory) -> None:
    def normed(x: Any, weight: Any, bias: Any) -> Any:
        return torch.nn.functional.group_norm(x, 2, weight, bias)

    weight = laid(torch.randn(6), "sliced", memory)
    given = torch.randn(2, 6, 4, 5), weight, laid(torch.randn(6), "expanded", memory)
    with torch.no_grad():
        found = torch.compile(normed, backend="offcut", dynamic=True)(*given)
    like(found, normed(*given))


def cropped(n: int) -> Any:
    """Images with channels last, with a gap behind each row."""
    return torch.randn(n, 4, 8, 11).to(memory_format=torch.channels_last)[:, :, 1:-1, 2:-1]


def gapped(n: int) -> Any:
    """Every other row, and every third column."""
    return torch.randn(n, 8, 15)[:, ::2, 1::3]


def exchanged(n: int) -> Any:
    """The last axes exchanged."""
    return torch.randn(n, 5, 4).transpose(1, 2)


F = torch.nn.functional
KERNEL = torch.randn(6, 4, 3, 3)
ORDERS = {
    "exchanged with gaps": (lambda x: x.transpose(1, 2) + 1, gapped),
    "axes moved": (lambda x: x.movedim(0, -1) * 2, gapped),
    "windows": (lambda x: x.unfold(2, 2, 1) * 1, gapped),
    "part of exchanged": (lambda x: x[:, ::2] + 1, exchanged),
    "copied into": (lambda x: torch.empty_like(x).copy_(x), exchanged),
    "adaptive average": (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), cropped),
    "padded": (lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), cropped),
    "group norm": (lambda x: F.group_norm(x, 2), cropped),
    "resized": (
        lambda x: F.interpolate(F.conv2d(x, KERNEL, padding=1), scale_factor=2, mode="nearest"),
        cropped,
    ),
}


@pytest.mark.parametrize("name", ORDERS)
def test_results_of_what_has_gaps_lie_as_torch_says(name: str) -> None:
    function, draw = ORDERS[name]
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(function, backend="offcut", dynamic=True)
    with torch.no_grad():
        for n in (3, 2, 7, 1):
            x = draw(n)
            found, expected = compiled(x), function(x)
            assert found.stride() == expected.stride() or n == 1
            agree(found.detach().numpy(), expected.detach().double().numpy(), terms=10.0, units=64)
    assert counters["stats"]["unique_graphs"] == 1
