"""Models taken from torch whose kernels run for a part of the batch at a time, as is asked for."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is an extra")

import torch

import offcut as oc
from offcut.plugins.torch import programs
from offcut.plugins.torch.program_cost import in_parts
from tests.plugins.torch_models import like


class TwoRegions(torch.nn.Module):
    """Layers around an operator that stays with torch."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> Any:
        return torch.softmax(self.two(torch.i0(torch.relu(self.one(x)))), -1)


@pytest.fixture(scope="module")
def module() -> Any:
    torch.manual_seed(0)
    return TwoRegions().eval()


def taken(module: Any, parts: Any) -> Any:
    return oc.from_torch(module, (torch.randn(3, 8),), threads=1, parts=parts)


@pytest.fixture(scope="module")
def model(module: Any) -> Any:
    return taken(module, True)


@pytest.fixture(scope="module")
def names(model: Any) -> list[str]:
    """The kernels of both regions."""
    return [row[0] for row in model.plan(x_0=8).rows]


def held(run: Any, module: Any) -> None:
    x = torch.linspace(-1, 1, 64).reshape(8, 8)
    with torch.no_grad():
        like(run(x), module(x))


def test_lines_are_of_the_region_that_has_their_kernels(module: Any, names: list[str]) -> None:
    first, *others = names
    asked = (
        f"{first} to {first}: 2 of x_0 at a time\n{others[0]} to {others[-1]}: 3 of x_0 at a time"
    )
    model = taken(module, asked)
    assert "\n".join(map(str, model.plan(x_0=8).parts)) == asked
    held(model, module)
    assert model.plan(x_0=2).parts == ()


def test_a_rule_is_asked_in_the_sizes_of_the_user(module: Any, names: list[str]) -> None:
    seen, first = [], names[0]

    def rule(sizes: dict[str, int]) -> str:
        seen.append(sizes)
        return f"{first} to {first}: {sizes['x_0'] // 2} of x_0 at a time"

    model = taken(module, rule)
    assert [str(one) for one in model.plan(x_0=8).parts] == [
        f"{first} to {first}: 4 of x_0 at a time"
    ]
    held(model, module)
    assert {"x_0": 8} in seen
    assert all(tuple(sizes) == ("x_0",) for sizes in seen)


def test_a_rule_that_fails_is_refused_at_the_call_and_not_left_to_torch(module: Any) -> None:
    model = taken(module, lambda sizes: sizes["b"])
    with pytest.raises(oc.PartitionError) as refused:
        model(torch.ones(8, 8))
    assert (refused.value.at, refused.value.because) == ("x_0 = 8", "it raised KeyError: 'b'")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "{0} to foo: 2 of x_0 at a time",
            """\
parts: cannot run {0} to foo: 2 of x_0 at a time
  because  no region has a kernel that gives {0}, and one that gives foo
  help     model.plan() lists what kernels give""",
        ),
        (
            "{0} to {0}: 2 of b at a time",
            """\
parts: cannot run {0} to {0}: 2 of b at a time
  at       b
  because  the region has no such size, of which that is a multiple
  help     1 of x_0""",
        ),
        (
            "{0} to {0}: 2 at a time",
            """\
parse: cannot read parts
  at       line 1: {0} to {0}: 2 at a time
  because  it is not of this form
  help     relu_1 to mean: 2 of b at a time""",
        ),
    ],
)
def test_parts_that_no_region_has_are_refused(
    model: Any, names: list[str], text: str, expected: str
) -> None:
    with pytest.raises(oc.OffcutError) as refused:
        in_parts(model.program.predicted, text.format(names[0]))
    assert str(refused.value) == expected.format(names[0])


def test_what_is_no_parts_is_refused_before_anything_is_traced(module: Any) -> None:
    with pytest.raises(oc.DescribeError, match="from_torch: cannot take parts=3"):
        taken(module, 3)


def test_torch_compile_takes_whether_there_are_parts(module: Any) -> None:
    run = torch.compile(module, backend="offcut", dynamic=True, options={"parts": False})
    held(run, module)
    assert programs()[-1].how.parts is False
