"""ONNX's node tests by kernels: inputs transposed, with gaps and in reverse, results in reverse order, everything between pages that may
not be touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from zlib import crc32

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra onnx is not installed")

from conftest import slow

from offcut.backends.host import arrays as host
from offcut.plugins.onnx.import_model import Imported
from tests.facade import DTYPES, MemoryBlocks, compile_graph
from tests.guarded import Memory
from tests.plugins import onnx_nodes
from tests.plugins.onnx_nodes import FAILED, cases, outcome

LAYOUTS = ("transposed", "sliced", "reversed")
PARTS = 40


@pytest.mark.parametrize("part", [None, *map(slow, range(PARTS))])
def test_a_node_reads_and_writes_any_layout(
    part: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, layout = Memory(), LAYOUTS[(part or 0) % len(LAYOUTS)]

    def run(model: Imported, feed: dict[str, Any], kernels: bool) -> Iterable[dict[str, Any]]:
        given = model.arrays_by_name({name: feed[name] for name in model.inputs})
        for name, array in given.items():
            if isinstance(array, np.ndarray) and array.dtype.name in DTYPES:
                given[name] = memory.lying(layout, array.shape, array.dtype.name)
                given[name][...] = array
        graph = model.bound.graph
        ranks = {name: len(graph.values[name].shape) for name in graph.outputs}
        orders = {name: tuple(range(rank - 1, -1, -1)) for name, rank in ranks.items()}
        found = compile_graph(model.bound, threads=1, orders=orders)(given)
        memory.check()
        memory.walled.clear()
        assert all(found[n].transpose(order).flags.c_contiguous for n, order in orders.items())
        yield model.results_by_name(found)

    monkeypatch.setattr(host, "allocate", memory.allocated)
    monkeypatch.setattr(MemoryBlocks, "take", lambda _, count: memory.arena(count))
    monkeypatch.setattr(onnx_nodes, "run", run)
    chosen = [case for case in cases() if crc32(case.name.encode()) % PARTS == (part or 0)]
    found = {case.name: outcome(case) for case in (chosen[:1] if part is None else chosen)}
    assert {name: one.reason for name, one in found.items() if one.status == FAILED} == {}
