"""What eager torch raises, of indices outside of an axis and of extremes of nothing, is raised; what it gives is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is an extra")

import torch
import torch.nn.functional as F
from conftest import slow

import offcut as oc
from offcut.plugins.torch.rule_table import TABLE
from tests.plugins.torch_models import Function, fresh, like

N = 3
INDICES = (-2 * N, -N - 1, -N, -1, 0, N - 1, N, -(2**63), 2**63 - 1)
"""Of an axis of `N`."""


_fresh = pytest.fixture(autouse=True)(fresh)


def written(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    found = x.clone()
    found[i] = 7.0
    return found


ROW, COLUMN = torch.ones(1, 4), torch.ones(4, 1)

INDEXING: dict[str, Callable[..., torch.Tensor]] = {
    "scatter.src": lambda x, i: x.scatter(0, i.view(1, 1).expand(1, 4), ROW),
    "scatter.value": lambda x, i: x.scatter(0, i.view(1, 1), 9.0),
    "scatter.reduce": lambda x, i: x.scatter(0, i.view(1, 1).expand(1, 4), ROW, reduce="add"),
    "scatter.value_reduce": lambda x, i: x.scatter(0, i.view(1, 1), 3.0, reduce="multiply"),
    "scatter_add": lambda x, i: x.scatter_add(0, i.view(1, 1).expand(1, 4), ROW),
    "scatter_reduce.two": lambda x, i: x.scatter_reduce(0, i.view(1, 1).expand(1, 4), ROW, "amax"),
    "scatter_reduce.two, alone": lambda x, i: x.scatter_reduce(
        0, i.view(1, 1).expand(1, 4), ROW, "mean", include_self=False
    ),
    "index_copy": lambda x, i: x.index_copy(0, i, ROW),
    "index_fill.int_Scalar": lambda x, i: x.index_fill(0, i, 9.0),
    "index_fill.int_Tensor": lambda x, i: x.index_fill(0, i, ROW[0, 0]),
    "index_add": lambda x, i: x.index_add(0, i, ROW, alpha=2),
    "index_add, of columns": lambda x, i: x.t().index_add(1, i, COLUMN),
    "index_put": lambda x, i: x.index_put((i,), ROW, accumulate=True),
    "index_put, of two": lambda x, i: x.index_put((i, torch.tensor([1])), ROW[0, :1]),
    "_unsafe_index_put": written,
    "gather": lambda x, i: x.gather(0, i.view(1, 1).expand(1, 4)),
    "take": lambda x, i: torch.take(x.reshape(-1)[:N], i),
    "take_along_dim": lambda x, i: torch.take_along_dim(x, i.view(1, 1), 0),
    "index.Tensor": lambda x, i: x[i],
    "index.Tensor, of two": lambda x, i: x[i, torch.tensor([2])],
    "index_select": lambda x, i: x.index_select(0, i),
    "embedding": lambda x, i: F.embedding(i, x),
    "_embedding_bag": lambda x, i: F.embedding_bag(i.view(1, 1), x),
    "one_hot": lambda x, i: F.one_hot(i, N),
    "nll_loss": lambda x, i: F.nll_loss(x.t()[:1], i),
    "max_unpool2d": lambda x, i: F.max_unpool2d(
        x[:1, :1].view(1, 1, 1, 1), i.view(1, 1, 1, 1), (1, N), output_size=(1, N)
    ),
    # of what has no array, or another one than is indexed
    "places": lambda x, i: torch.arange(x.shape[0])[i],
    "places, calculated": lambda x, i: (torch.arange(x.shape[0]) * 2 + 1).relu()[i],
    "padded": lambda x, i: F.pad(x[:2], (0, 0, 0, 1))[i],
    "joined": lambda x, i: torch.cat([x[:1], x[:2]])[i],
    "repeated": lambda x, i: x[:1].repeat(N, 1)[i],
    "shared": lambda x, i: (x[:1].expand(N, 4) * 2)[i],
    "mask": lambda x, i: torch.ones(x.shape[0], x.shape[0]).tril()[i],
}
"""Reads and writes at one index, by the rule of the table that they reach."""

FAST = ("scatter.src", "index_fill.int_Scalar", "index_add", "index_put", "gather", "one_hot")
FAST = (*FAST, "embedding", "places, calculated", "max.dim", "argmax", "flat")
"""What `make test` tries; the others are tried by `make test-all`."""


def tried(run: Callable[..., Any], *given: torch.Tensor) -> Any:
    """What a call gives; None where it raises what torch raises."""
    try:
        return run(*given)
    except oc.OffcutError:
        raise
    except (RuntimeError, IndexError):
        return None


def check_alike(run: Callable[..., Any], model: Callable[..., Any], *given: torch.Tensor) -> None:
    """Check that a call gives what torch gives, or raises as torch does."""
    own, ours = tried(run, *given), tried(model, *given)
    assert (own is None) == (ours is None), (given, own, ours)
    if own is not None:
        like(ours, own)


@pytest.mark.parametrize("name", [name if name in FAST else slow(name) for name in INDEXING])
def test_an_index_outside_is_raised_as_torch_raises_it(name: str) -> None:
    run, x = INDEXING[name], torch.arange(12.0).view(N, 4)
    model = oc.from_torch(Function(run), (x, torch.tensor([1])))
    for index in INDICES:
        check_alike(run, model, x, torch.tensor([index]))


def test_every_rule_that_reads_or_writes_at_indices_is_tried() -> None:
    tried = {name.partition(",")[0].removesuffix(".default") for name in INDEXING}
    same = {"_unsafe_index.Tensor": "index.Tensor", "_embedding_bag_forward_only": "_embedding_bag"}
    others = {
        "searchsorted.Tensor",
        "bucketize.Tensor",
        "masked_scatter",
        "col2im",
        "im2col",
        "max_unpool3d",
    }
    for op, rule in TABLE.items():
        if rule.__module__.rsplit(".", 1)[-1] in ("lookups", "writes"):
            name = str(op).removeprefix("aten.").removesuffix(".default")
            assert same.get(name, name) in tried | others, name


NOTHING: dict[str, Callable[[torch.Tensor], Any]] = {
    "max": lambda x: x.max(),
    "max.dim": lambda x: x.max(1),
    "min.dim": lambda x: x.min(0),
    "amax": lambda x: x.amax((0, 1)),
    "argmax": lambda x: x.argmax(),
    "argmin": lambda x: x.argmin(1),
    "flat": lambda x: x.reshape(-1).min(0),
    "norm": lambda x: torch.linalg.vector_norm(x, float("inf"), dim=1),
    "median": lambda x: x.median(1),
    "median of all": lambda x: x.median(),
    "mode": lambda x: x.mode(1),
    "any": lambda x: (x > 0).any(1),
    "logsumexp": lambda x: x.logsumexp(1),
}


@pytest.mark.parametrize("name", [name if name in FAST else slow(name) for name in NOTHING])
def test_an_extreme_of_nothing_is_raised_as_torch_raises_it(name: str) -> None:
    run = NOTHING[name]
    model = oc.from_torch(Function(run), (torch.randn(3, 4),))
    for shape in ((2, 5), (3, 0), (0, 4), (0, 0)):
        check_alike(run, model, torch.randn(shape))


def test_an_integer_divided_by_0_is_raised_as_torch_raises_it() -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc"), x / y

    model = oc.from_torch(Function(run), (torch.tensor([7, 8]), torch.tensor([1, 2])))
    assert not model.program.left, model.report
    for divisor in ([3, -2], [0, 1], [1, 0]):
        check_alike(run, model, torch.tensor([7, -9]), torch.tensor(divisor))
