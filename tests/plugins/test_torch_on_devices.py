"""Whole models of torch on other targets than the CPU: the emulated GPU, and token queues, which say what they refuse."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from conftest import rejection

pytest.importorskip("torch", reason="torch is an extra")

import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensor

import offcut as oc
from offcut.errors import TargetError
from offcut.plugins import torch as plugin
from offcut.plugins.torch.graph_split import split
from offcut.plugins.torch.options import Options
from offcut.plugins.torch.size_facts import Facts
from tests.plugins.torch_models import OPTIONS, Bessel, fresh, held, like, wide

EMULATED = oc.target("cuda", machine="h200", device="emulated")


_fresh = pytest.fixture(autouse=True)(fresh)


class Encoder(nn.Module):
    """A layer of an encoder: attention and a feed-forward net, each behind a layer norm."""

    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.feed = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.split(x)
        x = x + self.joined(F.scaled_dot_product_attention(q, k, v))
        return x + self.feed(self.norms[1](x))

    def split(self, x: torch.Tensor) -> Any:
        b, n, e = x.shape
        qkv = self.qkv(self.norms[0](x)).view(b, n, 3, self.heads, e // self.heads)
        return qkv.permute(2, 0, 3, 1, 4)

    def joined(self, heads: torch.Tensor) -> torch.Tensor:
        return self.out(heads.transpose(1, 2).flatten(2))


class Decoder(Encoder):
    """One step of a decoder: keys and values of the past, of any length, and those of the new tokens behind them."""

    def forward(
        self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q, k, v = self.split(x)
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        return x + self.joined(F.scaled_dot_product_attention(q, keys, values)), keys, values


class Images(nn.Module):
    """Two convolutions with batch norm, pooling, and classes."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            [nn.Conv2d(3, 4, 3, 2, 1, bias=False), nn.Conv2d(4, 6, 3, 1, 1, bias=False)]
        )
        self.norms = nn.ModuleList([nn.BatchNorm2d(4), nn.BatchNorm2d(6)])
        self.head = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norms[0](self.convs[0](x))), 2)
        x = F.relu(self.norms[1](self.convs[1](x)))
        return self.head(x.mean((2, 3)))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.LayerNorm(12), nn.Linear(12, 4)).eval()


def tensors(*shapes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(shape) for shape in shapes)


def steps(*lengths: tuple[int, int]) -> list[tuple[torch.Tensor, ...]]:
    """Return calls of a decoder, by batch and length of the past."""
    return [tensors((b, 1, 8), (b, 2, n, 4), (b, 2, n, 4)) for b, n in lengths]


CALLS: dict[str, tuple[nn.Module, list[tuple[torch.Tensor, ...]]]] = {
    "mlp": (mlp(), [tensors((n, 8)) for n in (3, 1, 2, 7, 33)]),
    "encoder": (
        Encoder(),
        [tensors((b, n, 8)) for b, n in ((2, 3), (1, 1), (2, 2), (1, 7))],
    ),
    "images": (Images(), [tensors((n, 3, 4, 4)) for n in (2, 1, 7)]),
    "decoder": (Decoder(), steps((2, 5), (1, 1), (1, 2), (2, 7), (1, 33), (1, 0))),
}
"""Models, and their calls: the first is an example to trace."""


@pytest.mark.parametrize("name", CALLS)
def test_a_model_runs_on_the_emulated_gpu_at_every_size_by_one_compile(name: str) -> None:
    model, calls = CALLS[name]
    model = model.eval()
    run = oc.from_torch(model, calls[0], target=EMULATED)
    exact = copy.deepcopy(model).double()
    with torch.no_grad():
        for call in calls:
            like(run(*call), exact(*map(wide, call)))
    assert len(run.traced) == 1
    assert {row[2] for row in run.plan().rows} == {"cuda"}
    assert run.report.endswith("operators by offcut, 0 operators by torch")


@pytest.mark.parametrize("name", ["mlp", "encoder"])
def test_a_model_in_bfloat16_runs_on_the_emulated_gpu(name: str) -> None:
    model, calls = CALLS[name]
    model, calls = copy.deepcopy(model).eval().bfloat16(), [(x.bfloat16(),) for (x,) in calls]
    run = oc.from_torch(model, calls[0], target=EMULATED)
    exact = copy.deepcopy(model).double()
    with torch.no_grad():
        for call in calls[:2]:
            like(run(*call), exact(*map(wide, call)))
    (ours,) = run.program.predicted.models
    assert any("mma" in str(step.kernel.loops) for step in ours.steps)
    assert run.report.endswith("operators by offcut, 0 operators by torch")


def test_torch_compile_takes_the_target_as_an_option_and_compiles_once() -> None:
    model, others = mlp().eval(), plugin.programs()
    run = torch.compile(model, backend="offcut", dynamic=True, options={"target": EMULATED})
    held(run, model, [tensors((n, 8)) for n in (3, 1, 2, 7, 33)])
    assert counters["stats"]["unique_graphs"] == 1
    (program,) = [one for one in plugin.programs() if not any(one is other for other in others)]
    assert {row[2] for row in program.plan().rows} == {"cuda"}


def test_what_no_target_takes_stays_with_torch_and_is_listed() -> None:
    model = Bessel().eval()
    run = oc.from_torch(model, tensors((3, 8)), target=EMULATED)
    held(run, model, [tensors((n, 8)) for n in (1, 7)])
    first, *rest = run.report.splitlines()
    assert first == "2 regions of 3 operators by offcut, 1 operators by torch"
    assert [line.split(":")[0] for line in rest] == ["  1 × aten.i0.default"]
    assert run.plan().notes == tuple(rest)


def test_of_several_targets_the_first_that_takes_a_kernel_runs_it() -> None:
    model = mlp().eval()
    run = oc.from_torch(model, tensors((3, 8)), target=("vta", EMULATED))
    held(run, model, [tensors((n, 8)) for n in (1, 7)])
    assert {row[2] for row in run.plan().rows} == {"cuda"}
    assert all("since vta refuses it" in line for line in run.plan().split)


def test_tensors_of_a_gpu_are_taken_where_the_target_is_one_and_left_to_torch_where_not() -> None:
    """No GPU is needed to translate: the exported tensors have no elements."""
    exported = torch.export.export(
        mlp(), tensors((3, 8)), dynamic_shapes=({0: torch.export.Dim.AUTO},)
    )
    graph = exported.run_decompositions().graph
    for node in graph.nodes:
        fake = node.meta.get("val")
        if isinstance(fake, FakeTensor):
            node.meta["val"] = FakeTensor(fake.fake_mode, fake.to("meta"), torch.device("cuda"))
    facts = Facts(lambda symbol: (0, None))
    on_gpu, on_cpu = Options(target=oc.target("cuda", machine="h200")), Options()
    assert (on_gpu.devices, on_cpu.devices) == ({"cpu", "cuda"}, {"cpu"})
    assert [on_cpu.on({kind}).target for kind in ("cpu", "cuda", "xpu")] == [
        ("cpu",),
        ("cuda",),
        ("cpu",),
    ]
    assert on_gpu.on({"cpu"}) is on_gpu
    (region,) = split(graph, facts, {}, {}, on_gpu.devices).steps
    assert {node.op for node in region.bound.graph.nodes} >= {"gelu"}
    left = split(graph, facts, {}, {}, on_cpu.devices).left
    assert {reason for _, reason in left} == {"it is on cuda, in the layout torch.strided"}


def test_token_queues_leave_floats_to_torch_and_say_which_node_and_why() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval()
    run = oc.from_torch(model, tensors((3, 8)), target="vta")
    held(run, model, [tensors((n, 8)) for n in (1, 7)])
    assert run.report.splitlines()[0] == "0 regions of 0 operators by offcut, 2 operators by torch"
    assert "its units have int8 and int32" in run.report


def test_a_target_that_is_none_is_refused_with_those_that_there_are() -> None:
    with rejection(f"TargetError: from_torch: cannot take options={{'target': 7}}\n{OPTIONS}"):
        oc.from_torch(mlp(), tensors((3, 8)), target=7)
    with pytest.raises(TargetError, match="cannot plan for 'gpu'"):
        oc.from_torch(mlp(), tensors((3, 8)), target="gpu")
