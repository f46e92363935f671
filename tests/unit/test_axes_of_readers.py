"""A stage that reads a sum at each point shares the loops of the sum: lines about it may name its axes as it does, on every target."""

from __future__ import annotations

import numpy as np
import pytest

import offcut as oc
from tests.agree import agree, computed

EMULATED = oc.target("cuda", machine="h200", device="emulated")


def relu_of_product(*names: str) -> tuple[oc.Tensor, list[oc.Tensor]]:
    """``R = max(A @ W, 0)``, whose axes have these names, of the product `S`, whose axes are i and j."""
    n, k = oc.dim("n", max=64), oc.reduce_axis(8, name="k")
    a, w = oc.placeholder((n, 8), name="A"), oc.placeholder((8, 24), name="W")
    s = oc.compute((n, 24), lambda i, j: oc.sum(a[i, k] * w[k, j], axis=k), name="S")
    r = oc.compute((n, 24), lambda *at: oc.maximum(s[at], 0.0), axes=names, name="R")
    return r, [a, w]


@pytest.mark.every(4)
@pytest.mark.parametrize("target", ["cpu", EMULATED], ids=["cpu", "emulated"])
@pytest.mark.parametrize("axes", ["r c", "i j"])
def test_a_line_may_name_an_axis_as_its_own_stage_or_as_the_sum_does(
    axes: str, target: str | oc.Target
) -> None:
    r, inputs = relu_of_product("r", "c")
    rows, columns = axes.split()
    schedule = oc.Schedule.parse(
        f"schedule R\nsplit R.{rows} mask 4 as a b\norder R a {columns} b\nat S R.a"
    )
    by_hand = oc.create_schedule(r).apply(schedule).lower()
    kernel = oc.compile(r, inputs=inputs, schedule=schedule, target=target)
    rng = np.random.default_rng(0)
    w = rng.standard_normal((8, 24), dtype=np.float32)
    for n in (0, 1, 3, 4, 5, 17):
        x = rng.standard_normal((n, 8), dtype=np.float32)
        agree(kernel(x, w), computed(lambda x, w: np.maximum(x @ w, 0), x, w))
    assert "for a in 0:n//4" in str(by_hand)
    replayed = oc.Schedule.parse(str(kernel.schedule))
    again = oc.compile(r, inputs=inputs, schedule=replayed, target=target)
    assert again.loops == kernel.loops


@pytest.mark.parametrize("target", ["cpu", EMULATED], ids=["cpu", "emulated"])
def test_where_the_two_stages_cross_their_names_a_printed_schedule_is_replayed(
    target: str | oc.Target,
) -> None:
    r, inputs = relu_of_product("j", "i")
    kernel = oc.compile(r, inputs=inputs, target=target)
    replayed = oc.Schedule.parse(str(kernel.schedule))
    assert oc.compile(r, inputs=inputs, schedule=replayed, target=target).loops == kernel.loops
