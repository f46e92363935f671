"""What users of TVM schedule, and what its own passes break: no guard is left, and the results are numpy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm", reason="needs apache-tvm: make test-hosts installs it")

import tvm
from tvm import s_tir
from tvm.script import tirx as T

import offcut.plugins.tvm as plugin
from tests.agree import agree, exact_matmul
from tests.plugins.tvm_functions import Product, guards

Schedule = Callable[[Any, Any, Any], None]


def vectorized_and_parallel(s: Any, block: Any, loops: Any) -> None:
    i, j, k = loops
    (io, ii), (jo, ji) = s.split(i, [None, 8]), s.split(j, [None, 8])
    s.reorder(io, jo, ii, k, ji)
    s.vectorize(ji)
    s.parallel(io)
    s.decompose_reduction(block, k)


def unrolled(s: Any, block: Any, loops: Any) -> None:
    _, ii = s.split(loops[0], [None, 4])
    s.unroll(ii)


def fused(s: Any, block: Any, loops: Any) -> None:
    outer, inner = s.split(s.fuse(*loops[:2]), [None, 16])
    s.parallel(outer)
    s.vectorize(inner)


def written_through_a_cache(s: Any, block: Any, loops: Any) -> None:
    copy = s.cache_write(block, 0, "local")
    s.reverse_compute_at(copy, s.split(loops[0], [None, 8])[0])


def read_through_a_cache(s: Any, block: Any, loops: Any) -> None:
    copy = s.cache_read(block, 1, "local")
    s.compute_at(copy, s.split(loops[0], [None, 8])[0])


def reordered(s: Any, block: Any, loops: Any) -> None:
    i, j, k = loops
    (io, ii), (jo, ji) = s.split(i, [None, 8]), s.split(j, [None, 16])
    s.reorder(jo, io, k, ji, ii)


def scheduled(by: Schedule) -> Any:
    schedule = s_tir.Schedule(Product)
    block = schedule.get_sblock("C", func_name="main")
    by(schedule, block, schedule.get_loops(block))
    return schedule.mod


SCHEDULES = [
    vectorized_and_parallel,
    unrolled,
    fused,
    written_through_a_cache,
    read_through_a_cache,
    reordered,
]


@pytest.mark.parametrize("tile", [{}, {"k": 5, "j": 4, "ax0": 3, "ax1": 4}], ids=str)
@pytest.mark.parametrize("by", SCHEDULES, ids=lambda by: by.__name__)
def test_a_scheduled_product_is_cut_without_a_guard(by: Schedule, tile: dict[str, int]) -> None:
    module = scheduled(by)
    report = plugin.register("offcut-test", tile=tile)
    built = tvm.compile(module, "llvm", tir_pipeline="offcut-test")
    assert list(report.cut) == ["main"]
    assert guards(plugin.partition_pass(tile=tile)(plugin.lowering_passes()(module))) == 0
    random = np.random.default_rng(3)
    for n in (0, 1, 7, 8, 9, 29):
        a, w = (random.standard_normal(s).astype(np.float32) for s in ((n, 12), (12, 21)))
        given = [
            tvm.runtime.tensor(array) for array in (a, w, np.full((n, 21), np.nan, np.float32))
        ]
        built(*given)
        agree(given[-1].numpy(), exact_matmul(a, w))


def test_a_schedule_of_tvms_that_leaves_an_array_is_named_with_a_witness() -> None:
    """TVM's `rfactor` (0.27) forgets the condition of an axis that it has split, and writes past the array."""

    def by(s: Any, block: Any, loops: Any) -> None:
        s.split(loops[0], [None, 8])
        s.rfactor(s.split(loops[2], [None, 5])[1], 0)

    report = plugin.Report()
    plugin.partition_pass(report=report)(plugin.lowering_passes()(scheduled(by)))
    assert report.skipped["main"].splitlines()[:3] == [
        "partition: cannot access C[8*i_0_2 + i_1_2, j_2] out of bounds",
        "  at       C[8*i_0_2 + i_1_2, j_2] = 0.0",
        "  because  with n = 1, i_0_2 = 0, i_1_2 = 1, j_2 = 0, k_1_2 = 0, it is C[1, 0] of a tensor of shape (n, 21)",
    ]


@T.prim_func(s_tir=True)
def ends(c: T.handle) -> None:
    """The last, up to 3, of each 8: the first iteration of the inner loop depends on the outer one."""
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    n = T.int64()
    C = T.match_buffer(c, (n,), "float32")
    for i in range(T.int64(1), n // T.int64(8)):
        for j in range(T.int64(8) * i + T.int64(5), T.int64(8) * i + T.int64(8)):
            C[j] = T.float32(1)


def test_loops_that_start_at_one_another_are_the_users() -> None:
    """TVM's CanonicalizeLoop (0.27) moves the outer loop to 0, and not the inner loop's first iteration."""
    module = tvm.IRModule({"main": ends})
    wanted = np.zeros(40, np.float32)
    for i in range(1, 5):
        wanted[8 * i + 5 : 8 * i + 8] = 1
    found = {}
    for pipeline in "default", "offcut":
        given = tvm.runtime.tensor(np.zeros(40, np.float32))
        tvm.compile(module, "llvm", tir_pipeline=pipeline)(given)
        found[pipeline] = (given.numpy() == wanted).all()
    assert found == {"default": False, "offcut": True}
