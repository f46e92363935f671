"""Models compiled by ``torch.compile(model, backend="offcut", dynamic=True)``: once, for every size."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is an extra")

import torch
import torch._dynamo
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.utils import counters
from torch._subclasses import fake_impls
from torch._subclasses.fake_impls import get_fast_op_impls
from torch._subclasses.fake_tensor import FakeTensor

from offcut.errors import CallError, DescribeError, InternalError, TargetError
from offcut.plugins import torch as plugin
from offcut.plugins.torch import program as plugin_program
from offcut.plugins.torch.options import Options
from offcut.plugins.torch.rule_table import TABLE
from offcut.plugins.torch.tracing_patches import UNGUARDED
from tests.facade import Model
from tests.plugins.torch_models import (
    OPTIONS,
    Bessel,
    Eighths,
    Gpt,
    Mobile,
    ResNet,
    fresh,
    held,
    like,
    mlp,
)

_fresh = pytest.fixture(autouse=True)(fresh)


def fast(model: nn.Module) -> Callable[..., Any]:
    return torch.compile(model, backend="offcut", dynamic=True)


def graphs() -> int:
    return counters["stats"]["unique_graphs"]


def left() -> set[str]:
    return {str(node.target) for node, _ in plugin.programs()[-1].left}


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(0, 50, shape)


def test_the_backend_is_found_by_its_name() -> None:
    assert "offcut" in torch._dynamo.list_backends()


def test_options_reach_the_program() -> None:
    model, options = mlp(), {"threads": 2, "distributive": False, "parts": False}
    run = torch.compile(model, backend="offcut", dynamic=True, options=options)
    held(run, model, [(torch.randn(b, 40),) for b in (3, 1)])
    assert plugin.programs()[-1].how == Options(
        threads=2, distributive=False, parts=False, target=("cpu",)
    )
    assert left() == set()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"options": {"threads": 2, "nonsense": 1}}, "options={'nonsense': 1}"),
        ({"mode": "reduce-overhead"}, "mode='reduce-overhead'"),
        ({"options": {"threads": 9999}}, "threads=9999"),
    ],
)
def test_what_is_no_option_is_refused(asked: dict[str, Any], said: str) -> None:
    run = torch.compile(mlp(), backend="offcut", dynamic=True, **asked)
    with pytest.raises(BackendCompilerFailed) as refused, torch.no_grad():
        run(torch.randn(3, 40))
    assert isinstance(refused.value.inner_exception, TargetError)
    assert str(refused.value.inner_exception) == (
        f"torch.compile: cannot take {said}\n{OPTIONS}"
        if said != "threads=9999"
        else "compile: cannot run on threads=9999\n"
        "  because  it is an int in 1…1024: the most threads that one call may use\n"
        "  help     threads=2"
    )


def test_no_batch_compiles_again() -> None:
    model = mlp()
    held(fast(model), model, [(torch.randn(b, 40),) for b in (5, 1, 2, 0, 37, 512)])
    assert graphs() == 1
    assert left() == set()


def test_no_length_compiles_again_and_none_is_taken_for_another() -> None:
    model = mlp()
    shapes = [(3, 3), (1, 1), (5, 1), (1, 4), (0, 3), (40, 2)]
    held(fast(model), model, [(torch.randn(*s, 40),) for s in shapes])
    assert graphs() == 1


def test_a_residual_network_runs_at_every_image() -> None:
    model = ResNet().eval()
    images = [(2, 3, 32, 40), (1, 3, 33, 17), (17, 3, 16, 16), (3, 3, 20, 21)]
    held(fast(model), model, [(torch.randn(s),) for s in images])
    assert graphs() == 1
    assert left() == set()


def test_a_decoder_runs_at_every_batch_and_length() -> None:
    model = Gpt().eval()
    held(fast(model), model, [(tokens(*s),) for s in [(3, 5), (1, 7), (2, 1), (1, 1), (4, 33)]])
    assert graphs() == 1
    assert left() == set()


def test_results_lie_as_torch_expects_them_where_more_follows() -> None:
    class Following(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(8, 12, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(self.conv(x))
            return torch.i0(y.view(y.shape[0], 12, -1)).view(y.shape) + y

    model = Following().eval()
    held(fast(model), model, [(torch.randn(s),) for s in [(2, 8, 6, 5), (1, 8, 4, 7)]])
    assert left() == {"aten.i0.default"}


def test_an_operator_that_is_not_ours_stays_with_torch_and_is_listed() -> None:
    model = Bessel().eval()
    held(fast(model), model, [(torch.randn(b, 8),) for b in (3, 1, 0, 9)])
    assert left() == {"aten.i0.default"}
    assert "1 × aten.i0.default: there is no rule for it" in plugin.report()


def test_a_region_that_no_kernel_is_made_of_is_run_by_torch_and_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise DescribeError("graph", "cannot", because="of this test")

    monkeypatch.setattr("offcut.plugins.torch.program.compile_graph", failing)
    model = mlp()
    held(fast(model), model, [(torch.randn(b, 40),) for b in (3, 1)])
    assert len(left()) == 3
    assert "1 × aten.gelu.default: graph: cannot because of this test" in plugin.report()


def test_a_model_that_fails_is_not_tried_again_and_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def failing(model: Model, *given: object) -> None:
        tried.append(given)
        raise InternalError("of this test")

    model = mlp()
    monkeypatch.setenv("OFFCUT_VERIFY", "0")
    monkeypatch.setattr(Model, "outputs", failing)
    held(fast(model), model, [(torch.randn(b, 40),) for b in (3, 1, 7)])
    assert len(tried) == 1
    report = plugin.programs()[-1].report()
    assert report.startswith("0 regions of 0 operators by offcut, 4 operators by torch")
    assert "1 × aten.gelu.default: internal error: InternalError: of this test" in report


def test_a_call_that_is_refused_is_torchs_and_the_next_is_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried, run = [], Model.outputs

    def refusing(model: Model, *given: Any) -> Any:
        tried.append(given)
        if len(tried) < 3:
            raise CallError("graph", "cannot", because="of this test")
        return run(model, *given)

    model = mlp()
    monkeypatch.setattr(Model, "outputs", refusing)
    held(fast(model), model, [(torch.randn(b, 40),) for b in (3, 1, 7)])
    assert len(tried) == 3
    assert "1 × aten.gelu.default: graph: cannot because of this test" in plugin.report()


def test_an_error_of_ours_is_raised_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise InternalError("of this test")

    for owner, name in ((Model, "outputs"), (plugin_program, "compile_graph")):
        with monkeypatch.context() as patched, torch.no_grad():
            patched.setattr(owner, name, failing)
            torch._dynamo.reset()
            with pytest.raises(InternalError, match="of this test"):
                fast(mlp())(torch.randn(3, 40))


def test_a_rule_that_fails_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(t: Any, x: Any) -> Any:
        return x.nonsense

    model = nn.ReLU()
    monkeypatch.setitem(TABLE, torch.ops.aten.relu.default, failing)
    monkeypatch.setenv("OFFCUT_VERIFY", "0")
    held(fast(model), model, [(torch.randn(b, 8),) for b in (3, 1)])
    reason = "internal error: AttributeError: 'Ref' object has no attribute 'nonsense'"
    assert f"1 × aten.relu.default: {reason}" in plugin.report()

    torch._dynamo.reset()
    monkeypatch.setenv("OFFCUT_VERIFY", "1")
    with pytest.raises(AttributeError, match="nonsense"), torch.no_grad():
        fast(model)(torch.randn(3, 8))


def test_what_a_rule_does_not_take_stays_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLE, torch.ops.aten.relu.default, lambda t: None)
    held(fast(nn.ReLU()), nn.ReLU(), [(torch.randn(b, 8),) for b in (3, 1)])
    reason = "its rule does not take what it is called with: too many positional arguments"
    assert f"1 × aten.relu.default: {reason}" in plugin.report()


def test_constants_of_other_elements_stay_with_torch() -> None:
    model = Eighths()
    held(fast(model), model, [(torch.randn(b, 8),) for b in (3, 1)])
    assert left() == {"aten._to_copy.default"}
    assert "its elements are float8_e4m3fn" in plugin.report()


def test_operators_that_draw_numbers_run_in_their_order() -> None:
    class Drawn(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first = torch.multinomial((x == x.amax(1, keepdim=True)).to(x.dtype), 1)
            last = (torch.arange(x.shape[1]) == (first + 1) % 7).to(x.dtype)
            return torch.relu(torch.multinomial(last, 1) * 2.0 + x)

    held(fast(Drawn()), Drawn(), [(torch.randn(b, 7),) for b in (3, 1)])
    assert left() == {"aten.multinomial.default"}


def test_complex_numbers_stay_with_torch() -> None:
    model = nn.Linear(4, 4, dtype=torch.complex64)
    x = torch.randn(3, 4, dtype=torch.complex64)
    with torch.no_grad():
        like(fast(model)(x), model(x))


def test_other_floats_run() -> None:
    model = mlp().to(torch.bfloat16)
    calls = [(torch.randn(b, 40).to(torch.bfloat16),) for b in (3, 1, 14)]
    held(fast(model), model, calls)
    assert left() == set()


def test_gradients_are_those_of_torch() -> None:
    model = mlp()
    run = fast(model)
    for batch in (4, 1, 7):
        x = torch.randn(batch, 40, requires_grad=True)
        found = torch.autograd.grad(run(x).square().sum(), [x, *model.parameters()])
        wanted = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
        like(found, wanted)


def test_a_weight_that_changes_is_noticed() -> None:
    model = mlp()
    run, x = fast(model), torch.randn(3, 40)
    for _ in range(5):
        held(run, model, [(x,)])
        with torch.no_grad():
            model[0].weight.mul_(1.5)
    model[3].weight = nn.Parameter(torch.randn(8, 72))
    held(run, model, [(x,)])
    model.load_state_dict(mlp().state_dict())
    held(run, model, [(x,)])


def test_layers_that_are_alike_are_compiled_once_each_with_its_weights() -> None:
    layers = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)]
    for layer in layers * 2:
        held(fast(layer), layer, [(torch.randn(b, 8),) for b in (3, 1)])
    assert graphs() == 1


def test_results_share_no_memory_that_those_of_torch_do_not() -> None:
    class Several(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = torch.relu(x)
            return y, y.clone(), y.t(), x.clone(), x[1:], x

    with torch.no_grad():
        for batch in (3, 1):
            x = torch.randn(batch, 8)
            found, wanted = fast(Several())(x), Several()(x)
            like(found, wanted)
            for given in (found, wanted):
                given[0].add_(1)
                given[3].add_(2)
            like(found, wanted)
            assert [one.stride() for one in found] == [one.stride() for one in wanted]


def test_an_argument_that_is_written_to_is() -> None:
    class Writing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.relu_()
            return torch.tanh(x)

    for batch in (3, 1):
        x = torch.randn(batch, 8)
        other = x.clone()
        like(fast(Writing())(x), Writing()(other))
        like(x, other)


def test_a_buffer_that_is_written_to_is_no_constant() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.copy_(self.seen + torch.relu(x).sum(0))
            return torch.tanh(x) + self.seen

    one, other = Counting(), Counting()
    run = fast(one)
    with torch.no_grad():
        for batch in (3, 1, 3):
            x = torch.randn(batch, 8)
            like(run(x), other(x))
            like(one.seen, other.seen)


def test_strided_arguments_are_taken() -> None:
    model = mlp()
    calls = [torch.randn(40, 5).t(), torch.randn(6, 80)[::2, ::2], torch.randn(1, 40).expand(4, 40)]
    held(fast(model), model, [(x,) for x in calls])


def test_images_with_channels_last_give_results_with_channels_last() -> None:
    model = Mobile().eval().to(memory_format=torch.channels_last)
    run = fast(model)
    for batch in (3, 1, 17):
        x = torch.randn(batch, 8, 6, 5).to(memory_format=torch.channels_last)
        held(run, model, [(x,)])
        with torch.no_grad():
            assert run(x).stride() == model(x).stride()
    assert graphs() <= 2


def test_torch_is_as_it_was() -> None:
    from torch.fx.experimental import _config as symbolic

    def settings() -> tuple[Any, ...]:
        flags = symbolic.backed_size_oblivious, symbolic.use_duck_shape
        return *flags, torch.backends.mkldnn.enabled, dict(get_fast_op_impls())

    torch._dynamo.reset()  # forgets what is to be done when a compilation ends
    before, model = settings(), nn.Linear(8, 8).eval()
    held(fast(model), model, [(torch.randn(2, 3, 8),)])
    assert before == settings()
    assert before[-1] != {}
    assert not any(op.py_kernels for op in UNGUARDED)
    assert "contiguous" not in vars(FakeTensor)
    assert fake_impls._compute_slice_index.__module__ == fake_impls.__name__


def test_a_copy_of_a_model_is_another() -> None:
    model = mlp()
    held(fast(model), model, [(torch.randn(3, 40),)])
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight.add_(1)
    held(fast(other), other, [(torch.randn(3, 40),)])


def test_a_layer_of_experts_is_one_region() -> None:
    @torch.library.custom_op("transformers::grouped_mm_fallback", mutates_args=())
    def grouped(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        starts = [0, *offs.tolist()]
        parts = [input[a:b] @ w for a, b, w in zip(starts, starts[1:], weight, strict=False)]
        return torch.cat(parts)

    @grouped.register_fake
    def _(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        return input.new_empty(input.shape[0], weight.shape[2])

    router, experts = torch.randn(4, 8), torch.randn(4, 8, 12)

    def layer(x: torch.Tensor) -> torch.Tensor:
        weights, chosen = torch.softmax(x @ router.T, -1).topk(2, -1)
        order = torch.argsort(chosen.flatten())
        counts = torch.histc(chosen.flatten()[order].float(), 4, 0, 3)
        found = grouped(x[order // 2], experts, counts.cumsum(0).int())
        found = found * weights.flatten()[order, None]
        return torch.empty_like(found).index_copy(0, order, found).view(-1, 2, 12).sum(1)

    torch._dynamo.reset()
    with torch.no_grad():
        run = torch.compile(layer, backend="offcut", dynamic=True)
        for tokens in (5, 1, 13):
            x = torch.randn(tokens, 8)
            like(run(x), layer(x))
    assert plugin.programs()[-1].report().endswith("0 operators by torch")


@pytest.mark.parametrize("align_corners", [False, True])
def test_the_grid_of_an_affine_map_has_any_number_of_pixels(align_corners: bool) -> None:
    class Placed(nn.Module):
        def forward(self, x: Any, maps: Any) -> Any:
            grid = torch.nn.functional.affine_grid(maps, x.size(), align_corners=align_corners)
            return torch.nn.functional.grid_sample(x, grid, align_corners=align_corners)

    sizes = ((7, 9), (1, 6), (6, 1), (1, 1))
    calls = [(torch.randn(2, 3, h, w), torch.randn(2, 2, 3)) for h, w in sizes]
    held(fast(Placed()), Placed(), calls)
