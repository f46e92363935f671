"""What torch decides before a backend is asked: the page on torch says it, and each of torch's own backends does the same."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is an extra")

import torch

from tests.plugins.torch_models import like


def unused(x: Any) -> Any:
    torch.rand(3)
    return x + 1.0


def branching(x: Any) -> Any:
    return x + 1.0 if (x.shape[0] > 5) is False else x - 1.0


def as_written(x: Any) -> Any:
    return x + 1.0 if not x.shape[0] > 1 else x - 1.0


def compiled(function: Any, backend: str) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend=backend, dynamic=True)


@pytest.mark.parametrize("backend", ["aot_eager", "offcut"])
def test_a_random_call_that_nothing_uses_does_not_move_the_generator(backend: str) -> None:
    run, x = compiled(unused, backend), torch.ones(3, 4)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    like(run(x), x + 1.0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("backend", ["eager", "offcut"])
def test_a_comparison_of_sizes_is_never_false_itself(backend: str) -> None:
    run, x = compiled(branching, backend), torch.ones(3, 4)
    like(run(x), x - 1.0)
    like(branching(x), x + 1.0)


@pytest.mark.parametrize("rows", [3, 1, 0])
def test_a_branch_that_negates_a_comparison_is_as_written(rows: int) -> None:
    x = torch.ones(rows, 4)
    like(compiled(as_written, "offcut")(x), as_written(x))
