"""ONNX's node tests with sizes for extents, where one size is 1, or 0: the values of ONNX's evaluator, or a refusal."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from conftest import slow

pytest.importorskip("onnx", reason="the extra onnx is not installed")

from onnx.reference import ReferenceEvaluator

from offcut.errors import InternalError, OffcutError
from offcut.plugins.onnx.import_model import import_proto
from offcut.plugins.onnx.importer.size_facts import INT_MAX
from tests.plugins import onnx_nodes
from tests.plugins.onnx_nodes import cases, difference, plain, symbolic

PARTS = 60

UNDEFINED = ("reduction_mean", "dynamicquantizelinear", "maxpool_with_argmax_2d_precomputed_pads")
"""What is in the names of tests whose results over nothing, or of zeros, ONNX leaves open, and the evaluator has otherwise than onnxruntime."""


def sizes_of(model: Any) -> list[str]:
    """Extents of inputs that are sizes."""
    dims = (dim for one in model.graph.input for dim in one.type.tensor_type.shape.dim)
    return sorted({dim.dim_param for dim in dims if dim.dim_param})


def cut(model: Any, inputs: Sequence[Any], size: str, extent: int) -> list[Any]:
    """Inputs of which each axis of a size is cut to an extent."""
    made = []
    for one, array in zip(model.graph.input, map(plain, inputs), strict=False):
        for axis, dim in enumerate(one.type.tensor_type.shape.dim):
            if dim.dim_param == size and isinstance(array, np.ndarray):
                array = np.ascontiguousarray(array.take(range(extent), axis=axis))
        made.append(array)
    return made


def ours(case: Any, feed: Mapping[str, Any], size: str, extent: int) -> dict[str, Any] | None:
    """The results; None where the import, or the call, is refused."""
    small = onnx_nodes._small(replace(case, data_sets=[(list(feed.values()), [])]), True)
    bounds = {} if extent else {size: (0, INT_MAX)}
    for constants in ((), small):
        given = dict(feed)
        known = {name: given.pop(name) for name in constants}
        try:
            model = import_proto(case.model, bounds, known)
            return next(iter(onnx_nodes.run(model, given, kernels=False)))
        except InternalError as fault:  # of the interpreter, where a kernel refuses the call
            if "is outside" not in str(fault):
                raise
        except OffcutError as refused:
            if "not known at import" not in (refused.because or ""):
                return None
    return None


def references(model: Any, feed: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    """What references give, of those that take the arrays."""
    try:
        yield ReferenceEvaluator(model).run(None, dict(feed))
    except Exception:
        logging.debug("the evaluator takes no such arrays")


def wrong(case: Any, size: str, extent: int) -> str:
    """How a result differs from what all references give; nothing where it does not, or none gives one."""
    names = [one.name for one in case.model.graph.input]
    try:
        cropped = cut(case.model, case.data_sets[0][0], size, extent)
    except IndexError:
        return ""
    feed = dict(zip(names, cropped, strict=False))
    if not all(isinstance(one, np.ndarray) for one in feed.values()):
        return ""
    try:
        found = ours(case, feed, size, extent)
    except Exception as broken:  # a bug, where the arrays fit each other: a reference takes them
        taken = any(True for _ in references(case.model, feed))
        return f"{case.name} at {size} = {extent}: {broken!r}" if taken else ""
    if found is None:
        return ""
    outputs = [one.name for one in case.model.graph.output]
    told = ""
    for wanted in references(case.model, feed):
        differ = [difference(found[name], one, case) for name, one in zip(outputs, wanted, strict=True)]  # fmt: skip
        if not any(differ):
            return ""
        told = f"{case.name} at {size} = {extent}: {differ}"
    return told


FAST = ("test_softmax_axis_1", "test_gather_0", "test_slice_neg_steps", "test_concat_2d_axis_0")  # fmt: skip


@pytest.mark.parametrize("extent", [slow(1), 0])
def test_some_nodes_at_the_end_of_a_size_give_what_a_reference_gives(extent: int) -> None:
    assert not list(differing([case for case in cases() if case.name in FAST], extent))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("extent", [1, 0])
def test_a_node_at_the_end_of_a_size_gives_what_a_reference_gives(extent: int, part: int) -> None:
    """Functions in the place of operators are left out: they are those again."""
    chosen = [
        case
        for case in cases()
        if crc32(case.name.encode()) % PARTS == part
        and "_expanded" not in case.name
        and not any(one in case.name for one in UNDEFINED)
    ]
    assert not list(differing(chosen, extent))


def differing(chosen: Sequence[Any], extent: int) -> Iterator[str]:
    """How results differ, of each test at each size."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for case in chosen:
            named = replace(case, model=symbolic(case.model))
            found = (wrong(named, size, extent) for size in sizes_of(named.model))
            yield from filter(None, found)
