"""Loop nests of MLIR cut by `offcut-partition`: what xDSL's interpreter says of them before and after."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("xdsl", reason="the extra mlir is not installed")

from xdsl.dialects import scf

from offcut.plugins.mlir import OffcutPartition, import_nest
from tests.plugins.mlir_programs import AXPY, CASES, SLICE, context, parsed, run

# Against tiles of 4: nothing, less than one, one short, exact, one over, several and a ragged end.
SIZES = (0, 1, 3, 4, 5, 17)
CUTS = [(name, tail) for name, case in CASES.items() for tail in case.tails]


@pytest.mark.every(2)
@pytest.mark.parametrize(("name", "tail"), CUTS)
def test_a_cut_nest_computes_what_the_nest_does(name: str, tail: str) -> None:
    case = CASES[name]
    source, cut = parsed(case.text), parsed(case.text)
    OffcutPartition(tile=case.tile, tail=tail).apply(context(), cut)
    cut.verify()
    assert str(cut) != str(source)
    again = parsed(str(cut))
    for size in SIZES:
        arguments = case.arguments(size, np.random.default_rng(size))
        expected = case.expected(*arguments)
        for module in (source, cut, again):
            arrays, _ = run(module, arguments)
            for array, wanted in zip(arrays, expected, strict=True):
                np.testing.assert_array_equal(array, wanted)


# Of extents of their results nothing is known but that they are enough.
OPEN = {"blocked", "diagonal"}


@pytest.mark.parametrize("name", [name for name in CASES if name not in OPEN])
def test_the_program_that_is_read_computes_what_the_nest_does(name: str) -> None:
    case = CASES[name]
    loop = next(op for op in parsed(case.text).walk() if isinstance(op, scf.ForOp))
    program = import_nest(loop).program
    arguments = case.arguments(9, np.random.default_rng(9))
    given = dict(zip(_names(case.text), arguments, strict=True))
    sizes = {size.name: given[size.name] for size in program.sizes if size.name in given}
    taken = [b for b in program.buffers if b.kind.value in ("input", "inout")]
    inputs = {b.name: np.asarray(given[b.name], b.dtype) for b in taken}
    found = program.run(inputs, **sizes)
    found = found if isinstance(found, tuple) else (found,)
    expected = dict(
        zip(
            (n for n in given if isinstance(given[n], np.ndarray)),
            case.expected(*arguments),
            strict=True,
        )
    )
    for buffer, array in zip(program.results, found, strict=True):
        if buffer.name in expected:
            np.testing.assert_array_equal(array, expected[buffer.name])


@pytest.mark.parametrize("size", [-5, 5])
def test_a_negative_extent_runs_nothing(size: int) -> None:
    module = parsed(AXPY)
    OffcutPartition(tile="i=4").apply(context(), module)
    x = np.arange(5, dtype=np.float32)
    _, y = run(module, [size, x, x, 2.0])[0]
    np.testing.assert_array_equal(y, x if size < 0 else 3 * x)


@pytest.mark.parametrize(("lo", "hi"), [(0, 5), (5, 5), (6, 2), (1, 9), (-2, -4), (3, -1)])
def test_ends_that_may_be_negative_are_asked_first(lo: int, hi: int) -> None:
    module = parsed(SLICE)
    OffcutPartition(tile="i=4").apply(context(), module)
    assert sum(isinstance(op, scf.IfOp) for op in module.walk()) >= 1
    x = np.arange(9, dtype=np.int32)
    (found,), _ = run(module, [lo, hi, x])
    wanted = x.copy()
    if hi > lo:
        wanted[lo:hi] *= 2
    np.testing.assert_array_equal(found, wanted)


def _names(text: str) -> list[str]:
    head = text[text.index("(") + 1 : text.index(") {")]
    return [part.split(":")[0].strip().lstrip("%") for part in head.split(", ")]
