"""Groups in shared loops, factors in scratch, results turned: what the planner makes of stages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import offcut as oc
from offcut.backends.cpu.planning.iteration_blocks import unblock_shared_loops
from offcut.describe.computation import computation
from offcut.errors import PartitionError
from offcut.ir import Alloc, Choose, For, Stmt, Tile, blocks
from offcut.partition import reorder_storage
from offcut.schedule import (
    ANY,
    NARROW,
    Nest,
    Staging,
    Together,
    share_loops,
    transform_stages,
    with_shared,
)
from tests.agree import agree
from tests.facade import Computation, format_expr


def described(*outputs: oc.Tensor) -> Computation:
    return computation(outputs)


def softmax() -> oc.Tensor:
    n, m = oc.dim("n"), oc.dim("m")
    x, j, r = (
        oc.placeholder((n, m), name="X"),
        oc.reduce_axis(m, name="j"),
        oc.reduce_axis(m, name="r"),
    )
    peak = oc.compute((n,), lambda i: oc.max(x[i, j], axis=j), name="P")
    e = oc.compute((n, m), lambda i, k: oc.exp(x[i, k] - peak[i]), name="E")
    total = oc.compute((n,), lambda i: oc.sum(e[i, r], axis=r), name="S")
    return oc.compute((n, m), lambda i, k: e[i, k] / total[i], name="Y")


def tree(parts: tuple[Nest | Together, ...]) -> list[Any]:
    return [part.stage if isinstance(part, Nest) else tree(part.parts) for part in parts]


def loops(body: tuple[Stmt, ...]) -> list[Any]:
    """Loops and windows of a program, without its tiles."""
    found: list[Any] = []
    for stmt in body:
        inner = [one for block in blocks(stmt) for one in loops(block)]
        match stmt:
            case For(name):
                found.append([name, *inner])
            case Alloc(buffer):
                found.append([f"alloc {buffer}", *inner])
            case Tile() | Choose():
                pass
            case _:
                found += inner
    return found


def test_groups_share_the_loops_whose_iterations_keep_to_themselves() -> None:
    given = described(softmax())
    shared = share_loops(given, [1, 1, 1, 1])
    made = with_shared(given, shared)
    assert tree(shared) == [["P", "E", "S", "Y"]]
    (run,) = shared
    assert isinstance(run, Together)
    assert run.axes == ("i",)
    assert all(group[0].axes[0].name == "i" for group in made.groups)


def test_a_limit_keeps_an_axis_out_of_shared_loops() -> None:
    assert tree(share_loops(described(softmax()), [0, 1, 1, 1])) == ["P", ["E", "S", "Y"]]
    assert tree(share_loops(described(softmax()), [1, 1, 0, 1])) == [["P", "E"], "S", "Y"]


def test_a_read_of_another_iteration_ends_the_run() -> None:
    n, m = oc.dim("n"), oc.dim("m")
    x, j = oc.placeholder((n, m), name="X"), oc.reduce_axis(m, name="j")
    s = oc.compute((n,), lambda i: oc.sum(x[i, j], axis=j), name="S")
    y = oc.compute((n, m), lambda i, k: x[i, k] / s[n - 1 - i], name="Y")
    assert tree(share_loops(described(y), [1, 1])) == ["S", "Y"]


def test_inner_runs_share_more_loops() -> None:
    b, n = oc.dim("b"), oc.dim("n")
    x, y = (oc.placeholder((b, n, 8), name=name) for name in "XY")
    d, j, r = oc.reduce_axis(8, name="d"), oc.reduce_axis(n, name="j"), oc.reduce_axis(n, name="r")
    s = oc.compute((b, n, n), lambda h, i, k: oc.sum(x[h, i, d] * y[h, k, d], axis=d), name="S")
    p = oc.compute((b, n), lambda h, i: oc.max(s[h, i, j], axis=j), name="P")
    e = oc.compute((b, n), lambda h, i: oc.sum(oc.exp(s[h, i, r] - p[h, i]), axis=r), name="E")
    assert tree(share_loops(described(e), [1, 2, 2])) == [["S", ["P", "E"]]]


def test_what_an_iteration_keeps_to_itself_lives_in_a_window() -> None:
    y = softmax()
    by_row = unblock_shared_loops(oc.compile(y).schedule)
    program = oc.compile(y, schedule=by_row).loops
    windows = ["alloc S", ["alloc E", ["alloc P", ["k_tile"], ["k_tile"]]]]
    assert loops(program.body) == [["i", windows]]
    assert "alloc E[i +: 1, 0 +: m]" in str(program)


@pytest.mark.parametrize(
    "names", ["i i ik i ik", "a i ik q yz", "k i kr j jr", "a r ab j ab"], ids=str
)
def test_shared_loops_are_proved_whatever_the_axes_are_called(names: str) -> None:
    n, m = oc.dim("n", max=99), oc.dim("m", max=99)
    x, j, r = oc.placeholder((n, m), name="X"), oc.reduce_axis(m, "j"), oc.reduce_axis(m, "r")
    one, _, two, three, four = names.split()
    p = oc.compute((n,), lambda *at: oc.max(x[at[0], j], axis=j), axes=(one,), name="P")
    e = oc.compute((n, m), lambda *at: oc.exp(x[at] - p[at[0]]), axes=tuple(two), name="E")
    t = oc.compute((n,), lambda *at: oc.sum(e[at[0], r], axis=r), axes=(three,), name="T")
    y = oc.compute((n, m), lambda *at: e[at] / t[at[0]], axes=tuple(four), name="Y")
    kernel = oc.compile(y)
    assert "\nat " in str(kernel.schedule)
    given = np.random.default_rng(0).standard_normal((7, 12), dtype=np.float32)
    shifted = np.exp(given.astype("float64") - given.max(1, keepdims=True))
    exact = shifted / shifted.sum(1, keepdims=True)
    agree(kernel(given), exact, units=32)  # of terms of one sign


def padded(stride: int = 1) -> oc.Tensor:
    h, w = oc.dim("h", min=1), oc.dim("w", min=1)
    x, k = oc.placeholder((h, w, 4), name="X"), oc.placeholder((3, 3, 4, 8), name="K")
    r, s, c = oc.reduce_axis(3, name="r"), oc.reduce_axis(3, name="s"), oc.reduce_axis(4, name="c")

    def term(i: Any, j: Any, o: Any) -> Any:
        y, z = stride * i + r - 1, stride * j + s - 1
        inside = (y >= 0) & (y < h) & (z >= 0) & (z < w)
        return oc.sum(oc.where(inside, x[y, z, c], 0.0) * k[r, s, c, o], axis=[r, s, c])

    return oc.compute(((h - 1) // stride + 1, (w - 1) // stride + 1, 8), term, name="Y")


@pytest.mark.parametrize("stride", [1, 2])
def test_a_computed_factor_is_computed_once_for_each_of_its_indices(stride: int) -> None:
    made = transform_stages(described(padded(stride)), Staging("value", NARROW, ANY, ("Y",)))
    (copy,), (lead,) = made.groups
    inside = "((z0 - 1 >= 0 and z0 - h - 1 < 0) and z1 - 1 >= 0) and z1 - w - 1 < 0"
    assert format_expr(copy.value) == f"where({inside}, X[z0 - 1, z1 - 1, c], 0.0)"
    index = "i + r, j + s" if stride == 1 else "2*i + r, 2*j + s"
    assert format_expr(lead.value) == f"X_staged[{index}, c] * K[r, s, c, o]"
    extents = ["h + 2", "w + 2"] if stride == 1 else ["2*((h + 1)//2) + 1", "2*((w + 1)//2) + 1"]
    assert [format_expr(axis.extent) for axis in copy.axes] == [*extents, "4"]


def test_a_sum_of_plain_factors_gets_no_scratch() -> None:
    n, k = oc.dim("n"), oc.reduce_axis(4, name="k")
    x, w = oc.placeholder((n, 4), name="X"), oc.placeholder((8, 4), name="W")
    c = oc.compute((8, n), lambda o, i: oc.sum(x[i, k] * w[o, k], axis=k), name="C")
    with pytest.raises(PartitionError, match="none is computed"):
        transform_stages(described(c), Staging("value", NARROW, ANY, ("C",)))


def test_a_turned_group_is_copied_back() -> None:
    n = oc.dim("n")
    x, w = oc.placeholder((n, 4), name="X"), oc.placeholder((8, 4), name="W")
    k = oc.reduce_axis(4, name="k")
    c = oc.compute((8, n), lambda o, i: oc.sum(x[i, k] * w[o, k], axis=k), name="C")
    (lead,), (copy,) = reorder_storage(described(c), 0, ("i", "o")).groups
    assert [axis.name for axis in lead.axes] == ["i", "o"]
    assert format_expr(copy.value) == "C_turned[i, o]"
    assert [axis.name for axis in copy.axes] == ["o", "i"]
