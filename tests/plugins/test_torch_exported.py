"""Programs of ``torch.export`` as models: what they give, what they refuse."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import rejection

pytest.importorskip("torch", reason="torch is an extra")

import torch
from torch import nn

import offcut as oc
from offcut.errors import CallError, DescribeError, InternalError
from offcut.plugins.torch.traced_program import Guard
from tests.plugins.torch_models import Placed, fresh, held, like, mlp

_fresh = pytest.fixture(autouse=True)(fresh)


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(0, 50, shape)


def test_a_module_is_taken_with_every_size_free() -> None:
    module = mlp()
    model = oc.from_torch(module, (torch.randn(3, 40),))
    held(model, module, [(torch.randn(b, 40),) for b in (1, 2, 0, 37)])
    assert model.report == "1 regions of 4 operators by offcut, 0 operators by torch"


def test_a_module_is_taken_by_an_example_of_one() -> None:
    module, net = mlp(), nn.Sequential(nn.Conv2d(2, 4, 3, 2, 1), nn.ReLU()).eval()
    held(oc.from_torch(module, (torch.randn(1, 40),)), module, [(torch.randn(3, 40),)])
    model = oc.from_torch(net, (torch.randn(1, 2, 8, 9),))
    held(model, net, [(torch.randn(b, 2, 7, 6),) for b in (3, 1, 0)])
    assert len(model.traced) == 1


class Alone(nn.Module):
    """A batch of one and no other."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(1, 6) * 2


def test_a_module_that_takes_a_batch_of_one_alone_is_taken_so() -> None:
    model = oc.from_torch(Alone(), (torch.randn(1, 2, 3),))
    held(model, Alone(), [(torch.randn(1, 2, 3),)])


class Even(nn.Module):
    """Another result for rows of an even number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[1] % 2 == 0 else x * 3


def test_an_exported_program_is_taken_for_the_sizes_that_it_was_traced_for() -> None:
    auto = torch.export.Dim.AUTO
    program = torch.export.export(Even(), (torch.ones(2, 8),), dynamic_shapes=({0: auto, 1: auto},))
    model = oc.from_torch(program)
    assert model(torch.ones(1, 4)).tolist() == [[2.0] * 4]
    with rejection(
        "CallError: call: cannot take x.shape[1] = 5\n"
        "  because  the program was traced for (x.shape[1] % 2) == 0\n"
        "  help     from_torch(module, args), which is traced for other sizes, too"
    ):
        model(torch.ones(1, 5))
    assert oc.from_torch(Even(), (torch.ones(2, 8),))(torch.ones(1, 5)).tolist() == [[3.0] * 5]


def test_a_guard_is_arithmetic_of_sizes_or_none() -> None:
    (node,) = torch.fx.symbolic_trace(nn.Identity()).graph.find_nodes(op="placeholder")
    size = f"L['{node.name}'].size()[0]"
    divides = Guard.of(f"4 % {size} == 0", [node])
    assert divides is not None
    divides.check([torch.ones(2)])
    with pytest.raises(CallError, match=r"cannot take input_1.shape\[0\] = 0"):
        divides.check([torch.ones(0)])
    codes = f"9 ** {size} == 1", f"__import__('os') == {size}", f"{size}.x == 1", "1 == 1"
    for code in (*codes, f"1 << {size} == 1", f"float(*[{size}]) == 1", f"{size} ** 9 == 1"):
        assert Guard.of(code, [node]) is None


class Rooted(nn.Module):
    """Floats that torch.export makes numbers of."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        return nn.functional.layer_norm(x * float(n**0.5), (n,), eps=1 / n) + int(0.7 * n)


class Thirds(nn.Module):
    """A branch on a float."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (1.0 if x.shape[1] / 3 > 2 else 5.0)


@pytest.mark.parametrize("module", [Rooted(), Thirds()])
def test_a_float_of_sizes_that_tracing_makes_a_number_is_one_for_these_sizes(
    module: nn.Module,
) -> None:
    x, free = torch.randn(3, 6), torch.export.Dim.DYNAMIC
    held(oc.from_torch(module, (x,)), module, [(torch.randn(2, n),) for n in (6, 7, 9, 2)])
    program = torch.export.export(module, (x,), dynamic_shapes=({0: free, 1: free},))
    model = oc.from_torch(program)
    held(model, module, [(torch.randn(b, 6),) for b in (1, 4)])
    with pytest.raises(CallError, match=r"the program was traced for .*x\.shape\[1\]"):
        model(torch.randn(2, 7))


class Unused(nn.Module):
    """Results that nothing uses, of which tracing makes sizes numbers: each axis."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.take_along_dim(x, torch.argsort(x, dim=-1, stable=True), dim=-1)
        nn.functional.max_pool1d(x, 3, padding=1)
        x.split(1, 0)
        return torch.relu(x)


def test_what_nothing_uses_freezes_no_size() -> None:
    model = oc.from_torch(Unused(), (torch.randn(5, 6),))
    held(model, Unused(), [(torch.randn(*one),) for one in ((5, 6), (9, 6), (4, 3), (1, 7))])
    assert "axis 0 of x is 5 when it is traced" in model.report


def test_a_number_that_depends_on_sizes_leaves_an_operator_with_torch() -> None:
    class Soft(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.softplus(x, beta=x.shape[1] ** 0.5)

    model = oc.from_torch(Soft(), (torch.randn(5, 6),))
    held(model, Soft(), [(torch.randn(2, n),) for n in (6, 3)])
    assert "softplus.default: a number that it is called with depends on sizes" in model.report


def test_an_exported_program_is_taken_within_its_bounds() -> None:
    module = mlp()
    batch = torch.export.Dim("batch", min=3, max=64)
    program = torch.export.export(module, (torch.randn(3, 40),), dynamic_shapes=({0: batch},))
    model = oc.from_torch(program)
    held(model, module, [(torch.randn(b, 40),) for b in (3, 64)])
    (region,) = model.program.regions
    ((size,),) = (region.bound.graph.sizes,)
    assert (size.min, size.max) == (3, 64)
    for b in (2, 65):
        with pytest.raises(CallError) as refused:
            model(torch.randn(b, 40))
    assert (
        str(refused.value)
        == """\
call: cannot take input of shape (65, 40)
  because  the program was exported for 3 to 64 along axis 0
  help     from_torch(module, args), which is traced for other sizes, too"""
    )


class Parts(nn.Module):
    """Twice the halves of a batch, as many as there are, and the last."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        halves = x.chunk(2)
        return torch.cat([*(half * 2 for half in halves), halves[-1]])


def test_a_module_is_traced_once_for_each_number_of_parts() -> None:
    model = oc.from_torch(Parts(), (torch.randn(3, 4),))
    held(model, Parts(), [(torch.randn(b, 4),) for b in (3, 4, 1, 5)])
    assert len(model.traced) == 2


class Row(nn.Module):
    """A first axis that is left out where it is 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.squeeze(0) * 2


def test_an_exported_program_leaves_out_an_axis_in_the_call_in_which_it_is_1() -> None:
    auto = torch.export.Dim.AUTO
    program = torch.export.export(Row(), (torch.randn(3, 4),), dynamic_shapes=({0: auto},))
    held(oc.from_torch(program), Row(), [(torch.randn(b, 4),) for b in (3, 1, 2)])


class Causal(nn.Module):
    """Attention that says whether it is causal by the length, as models of transformers do."""

    def forward(self, q: torch.Tensor) -> torch.Tensor:
        causal = q.shape[2] > 1 and q.shape[1] == 2
        return nn.functional.scaled_dot_product_attention(q, q, q, is_causal=causal)


@pytest.mark.parametrize("named", [False, True])
def test_a_size_of_1_that_torch_may_settle_is_a_number_where_it_is_traced_again(
    named: bool,
) -> None:
    free = dict.fromkeys((0, 2), torch.export.Dim.AUTO)
    example = torch.randn(2, 2, 5, 8)
    model = oc.from_torch(Causal(), (example,), dynamic_shapes={"q": free} if named else (free,))
    held(model, Causal(), [(torch.randn(b, 2, n, 8),) for b, n in ((1, 1), (3, 7), (2, 1))])
    assert "by torch:" not in model.report


def test_sizes_that_torch_was_asked_to_find_start_at_0() -> None:
    module, auto = mlp(), torch.export.Dim.AUTO
    program = torch.export.export(module, (torch.randn(3, 40),), dynamic_shapes=({0: auto},))
    model = oc.from_torch(program)
    held(model, module, [(torch.randn(b, 40),) for b in (1, 0, 512)])
    assert model.report.endswith("0 operators by torch")


def test_a_length_that_the_module_has_no_places_for_is_refused_as_torch_does() -> None:
    module = Placed().eval()
    model = oc.from_torch(module, (tokens(3, 5),))
    held(model, module, [(tokens(*s),) for s in [(1, 7), (2, 64)]])
    for run in (module, model):
        with pytest.raises(RuntimeError, match="must match the size"):
            run(tokens(2, 70))


def test_a_module_that_branches_on_a_size_is_traced_once_for_each_branch() -> None:
    class Branching(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            if x.shape[0] == 1:
                return x * 2 + y.sum()
            return x + y.sum() if x.shape[0] < y.shape[0] else x - y.sum()

    module = Branching()
    model = oc.from_torch(module, (torch.randn(3, 8), torch.randn(5, 8)))
    calls = [(1, 5), (2, 7), (5, 2), (1, 1), (9, 4), (4, 9)]
    held(model, module, [(torch.randn(b, 8), torch.randn(c, 8)) for b, c in calls])
    assert len(model.traced) == 3
    said = model.report.split("\n")
    assert all(line.endswith("by offcut, 0 operators by torch") for line in said)
    assert len(said) == len(set(said))


def test_threads_that_meet_a_branch_at_once_trace_it_once() -> None:
    class Doubling(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.shape[0] == 1 else x + 1

    model = oc.from_torch(Doubling(), (torch.randn(3, 8),))
    x = torch.randn(1, 8)
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(model, [x] * 12))
    assert all(torch.equal(one, x * 2) for one in found)
    assert len(model.traced) == 2


def test_a_view_that_torch_runs_takes_results_that_lie_otherwise_than_traced() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.conv(x)
            n, _, h, w = found.shape
            return found.view(n, 4, 2, h, w).permute(0, 3, 4, 1, 2)

    module, batch = Heads(), torch.export.Dim("batch", max=4)
    example = torch.randn(3, 3, 6, 6)
    model = oc.from_torch(module, (example,), dynamic_shapes=({0: batch},))
    x = torch.randn(5, 3, 6, 6)
    with torch.no_grad():
        found = model(x.to(memory_format=torch.channels_last))
        like(found, module(x))
    assert "cannot take s" in model.report


def test_a_weight_that_changes_afterwards_changes_nothing() -> None:
    class Weighed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Parameter(torch.randn(8, 8)), nn.Linear(8, 8)
            self.register_buffer("shift", torch.randn(8))
            self.tied = self.right.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = self.right(self.left @ x) + self.shift
            return torch.i0(found) + torch.i0(self.shift) + found @ self.tied

    module, calls = Weighed(), [(torch.randn(b, 8, 8),) for b in (3, 1)]
    before = copy.deepcopy(module)
    model = oc.from_torch(module, calls[0])
    held(model, before, calls)
    with torch.no_grad():
        for one in (*module.parameters(), *module.buffers()):
            one.zero_()
    held(model, before, calls)
    by_torch = [one.shape for one in model.known if isinstance(one, torch.Tensor)]
    assert by_torch == [(8,)]  # what kernels read is held by them


def test_weights_that_kernels_hold_are_there_where_torch_takes_a_call() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(6, 12)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = self.inner(x)
            if x.shape[0] == 7:
                found = found + 1
            return found.permute(1, 0, 2).reshape(-1, 12)

    module = Heads()
    before = copy.deepcopy(module)
    model = oc.from_torch(module, (torch.randn(3, 4, 6),))
    with torch.no_grad():
        module.inner.weight.zero_()
    assert not any(isinstance(one, torch.Tensor) for one in model.known)
    step = next(one for one in model.program.steps if hasattr(one, "failed"))
    x = torch.randn(5, 4, 6)
    expected = before(x)
    like(model(x), expected)
    step.failed = True
    like(model(x), expected)
    step.failed = False
    held(model, before, [(torch.randn(b, 4, 6),) for b in (7, 2, 7)])
    assert len(model.traced) == 2


def test_arguments_and_results_may_be_nested() -> None:
    class Nested(nn.Module):
        def forward(self, pair: dict[str, torch.Tensor]) -> dict[str, list[torch.Tensor]]:
            return {"sums": [pair["x"] + pair["y"], pair["x"]]}

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    model = oc.from_torch(Nested(), ({"x": x, "y": y},))
    found = model({"x": x, "y": y})
    like(found, {"sums": [x + y, x]})


def test_what_a_call_gives_is_checked() -> None:
    model = oc.from_torch(mlp(), (torch.randn(3, 40),))
    with rejection("""\
CallError: call: cannot take input of torch.float64 and shape (3, 40)
  because  the program was exported with torch.float32 and 2 axes
  help     input.to(torch.float32)"""):
        model(torch.randn(3, 40, dtype=torch.float64))
    with pytest.raises(CallError, match="axis 1 is 40 in every call"):
        model(torch.randn(3, 41))
    with pytest.raises(
        CallError,
        match=r"cannot take 2 arguments and no named ones\n  because  it was exported to be called by model\(input\)",
    ):
        model(torch.randn(3, 40), 1)
    with pytest.raises(CallError, match="cannot take input = None"):
        model(None)


def test_what_holds_a_function_is_said_of_one() -> None:
    with rejection(
        "DescribeError: from_torch: cannot take function\n"
        "  because  it is neither a module nor an exported program\n"
        "  help     a torch.nn.Module whose forward calls it: from_torch(module, args)\n"
        '  help     torch.compile(function, backend="offcut", dynamic=True)'
    ):
        oc.from_torch(lambda x: x + 1, (torch.ones(3),))
    with pytest.raises(DescribeError) as refused:
        oc.from_torch(torch.nn.Linear, (torch.ones(3),))
    assert refused.value.refused == "cannot take the class Linear"
    assert refused.value.help == ("from_torch(Linear(…), args): one that is made",)
    with pytest.raises(DescribeError, match="Unsupported input type") as refused:
        oc.from_torch(torch.nn.Linear(3, 4), (np.ones((2, 3), np.float32),))
    assert refused.value.help == ("torch.from_numpy(x) makes a tensor of an array",)


def test_an_argument_by_name_that_was_none_is_told_how_it_becomes_one() -> None:
    model = oc.from_torch(torch.nn.Linear(3, 4), (torch.randn(2, 3),))
    with rejection(
        "CallError: call: cannot take 0 arguments and input named ones\n"
        "  because  it was exported to be called by model(input)\n"
        "  help     from_torch(model, args, kwargs={…}) of those that are given by name"
    ):
        model(input=torch.randn(2, 3))


def test_what_is_no_model_of_torch_is_refused() -> None:
    with rejection("""\
DescribeError: from_torch: cannot take int
  because  it is neither a module nor an exported program
  help     from_torch(torch.export.export(model, args))"""):
        oc.from_torch(3)
    with rejection("""\
DescribeError: from_torch: cannot export Sequential
  because  it is not known what it is called with
  help     from_torch(model, (torch.randn(2, 3, 224, 224),))"""):
        oc.from_torch(mlp())
    with pytest.raises(DescribeError) as refused:
        oc.from_torch(mlp(), torch.randn(3, 40))  # type: ignore[arg-type]
    assert (
        str(refused.value)
        == """\
from_torch: cannot take arguments that are a Tensor
  because  they are a tuple of what the module is called with
  help     from_torch(model, (x,))"""
    )


def test_a_gradient_that_results_would_not_carry_is_refused() -> None:
    model = oc.from_torch(mlp(), (torch.randn(3, 40),))
    x = torch.randn(3, 40, requires_grad=True)
    with pytest.raises(CallError, match="that asks for a gradient\n  because  results carry none"):
        model(x)
    with torch.no_grad():
        assert not model(x).requires_grad


def test_a_module_that_cannot_be_copied_is_taken_as_the_program_that_it_is() -> None:
    module = mlp()
    module.lock = threading.Lock()  # type: ignore[assignment]
    model = oc.from_torch(module, (torch.randn(3, 40),), kwargs={})
    assert model.again is None
    x = torch.randn(7, 40)
    with torch.no_grad():
        like(model(x), module(x))


def test_a_module_that_cannot_be_exported_is_refused() -> None:
    class Branching(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(DescribeError, match="cannot export Branching"):
        oc.from_torch(Branching(), (torch.randn(3),))
    with pytest.raises(DescribeError, match="cannot export Sequential"):
        oc.from_torch(mlp(), (torch.randn(3, 41),))
    with rejection("""\
DescribeError: from_torch: cannot export Linear
  because  TypeError: too many positional arguments"""):
        oc.from_torch(nn.Linear(3, 4), (torch.randn(2, 3), 7))


def test_a_bug_of_ours_that_is_met_while_torch_traces_is_told_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise InternalError("a size without a name")

    monkeypatch.setattr(torch.export, "export", broken)
    with pytest.raises(InternalError, match="a size without a name"):
        oc.from_torch(mlp(), (torch.randn(3, 40),))


def test_a_module_that_writes_to_its_buffers_is_refused() -> None:
    with pytest.raises(DescribeError) as refused:
        oc.from_torch(nn.BatchNorm1d(4), (torch.randn(3, 4),))
    assert "cannot take a module that writes to its buffers or arguments" in str(refused.value)
    assert "help     model.eval()" in str(refused.value)


def test_a_model_taken_from_torch_is_not_pickled() -> None:
    taken = oc.from_torch(torch.nn.Linear(4, 3).eval(), (torch.randn(2, 4),))
    with rejection("""\
DescribeError: from_torch: cannot pickle a model taken from torch
  because  what stays with torch holds what torch traced
  help     torch.export.save(program), and from_torch of what torch.export.load gives"""):
        pickle.dumps(taken)


def test_models_are_taken_in_several_threads() -> None:
    modules = [torch.nn.Linear(4, width).eval() for width in (3, 5, 7)]
    x = torch.randn(2, 4)
    with ThreadPoolExecutor(3) as pool:
        taken = list(pool.map(lambda one: oc.from_torch(one, (x,)), modules))
    with torch.no_grad():
        for module, model in zip(modules, taken, strict=True):
            like(model(x), module(x))


class Exchanged(nn.Module):
    """Sums of what lies by columns, as torch gives them."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x.permute(0, 2, 1) + y.permute(0, 2, 1)
        return torch.relu(total) * 2, total.sum(0)


def test_a_result_is_stored_as_torch_expects_it_to_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.rand(3, 4, 5), torch.rand(3, 4, 5)
    model, made = oc.from_torch(Exchanged(), (x, y)), list[object]()
    strided = torch.empty_strided
    model(x, y)
    monkeypatch.setattr(torch, "empty_strided", lambda *a, **b: made.append(a) or strided(*a, **b))
    for n in (1, 2, 7):
        x, y = torch.rand(n, n + 2, 5), torch.rand(n, n + 2, 5)
        found, wanted = model(x, y), Exchanged()(x, y)
        for one, own in zip(found, wanted, strict=True):
            like(one, own)
            assert one.stride() == own.stride()
    assert len(made) == 3  # a call makes its result so, and copies none


class Inverse(nn.Module):
    """What torch checks as it runs, by an operator that has an effect."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(x * 2) * 3


def test_what_torch_checks_as_it_runs_is_checked_at_each_call() -> None:
    torch.manual_seed(0)
    model = oc.from_torch(Inverse(), (torch.randn(4, 3, 3),))
    for batch in (1, 4, 7):
        x = torch.randn(batch, 3, 3)
        like(model(x), Inverse()(x))
    assert [str(one) for one, _ in model.program.left] == ["linalg_inv_ex"]
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        model(torch.zeros(2, 3, 3))


class Masked(nn.Module):
    """Arguments that are given by name alone; another result for many rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(
        self,
        x: torch.Tensor,
        *,
        mask: torch.Tensor | None = None,
        more: torch.Tensor | None = None,
        scale: float = 2.0,
    ) -> torch.Tensor:
        found = self.layer(x)
        found = found if mask is None else found * mask
        found = found if more is None else found + more
        return (found + 1.0 if x.shape[0] > 9 else found) * scale


def test_a_module_is_taken_with_arguments_by_name() -> None:
    module, rows = Masked(), lambda n: torch.randn(n, 8)
    model = oc.from_torch(module, (rows(3),), kwargs={"mask": rows(3), "more": rows(3)})
    for n in (1, 3, 7, 12):  # 12 rows: traced once more
        x, mask, more = rows(n), rows(n), rows(n)
        wanted = module(x, mask=mask, more=more)
        like(model(x, mask=mask, more=more), wanted)
        like(model(x, more=more, mask=mask), wanted)
    assert len(model.traced) == 2
    by_name = oc.from_torch(module, kwargs={"x": rows(3), "scale": 3.0})
    x = rows(5)
    like(by_name(x=x, scale=3.0), module(x, scale=3.0))


def test_a_program_that_was_exported_with_arguments_by_name_is_called_so() -> None:
    module, x, mask = Masked(), torch.randn(3, 8), torch.randn(3, 8)
    program = torch.export.export(module, (x,), {"mask": mask})
    model = oc.from_torch(program)
    like(model(x, mask=mask), module(x, mask=mask))
    with rejection("""\
CallError: call: cannot take 1 arguments and no named ones
  because  it was exported to be called by model(x, mask=…)"""):
        model(x)
    with rejection("""\
DescribeError: from_torch: cannot take mask for an exported program
  because  it is called as it was exported
  help     torch.export.export(model, args, kwargs)"""):
        oc.from_torch(program, kwargs={"mask": mask})
    with pytest.raises(DescribeError) as none:
        oc.from_torch(module, (x,), kwargs=3)  # type: ignore[arg-type]
    assert (
        str(none.value)
        == """\
from_torch: cannot take kwargs=3
  because  they are a dict of what the module is called with by name
  help     from_torch(model, (x,), kwargs={"mask": mask})"""
    )


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * 2.0 + y) * (3.0 if x.shape[0] > 9 else 1.0)


def test_an_example_that_is_given_twice_is_two_arguments() -> None:
    """torch.export takes it for one, so that a call of two gave what a call of the first twice gives."""
    x = torch.randn(3, 8)
    model = oc.from_torch(Doubled(), (x, x))
    twice = torch.randn(12, 8)
    for given in ((torch.randn(7, 8), torch.randn(7, 8)), (x, x), (twice, twice)):
        like(model(*given), Doubled()(*given))
    like(model(twice, twice + 1.0), Doubled()(twice, twice + 1.0))


def test_a_size_that_tracing_made_a_number_is_traced_again() -> None:
    class Sorted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.take_along_dim(x, torch.argsort(x, dim=-1, stable=True), dim=-1)

    model = oc.from_torch(Sorted(), (torch.randn(5, 6),))
    for shape in ((5, 6), (9, 6), (9, 6), (4, 2)):
        x = torch.randn(shape)
        assert torch.equal(model(x), Sorted()(x))
    assert len(model.traced) == 3
    assert (
        "axis 0 of x is 5 when it is traced: other sizes are traced by themselves" in model.report
    )


def test_the_profiler_of_torch_names_regions_and_kernels() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(8, 5), torch.nn.ReLU()).eval()
    model, x = oc.from_torch(layers, (torch.randn(3, 8),)), torch.randn(4, 8)
    wanted = model(x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        result = model(x)
    assert torch.equal(result, wanted)
    names = {one.key for one in profiler.key_averages() if one.key.startswith("offcut::")}
    assert len(names) == 2
    (kernel,) = model.profile((x,), calls=2).kernels
    assert f"offcut::{kernel.value}" in names
    assert kernel.operators == "dense relu"
    assert torch.equal(model(x), wanted)
