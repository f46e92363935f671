"""Every kernel of `polybench`, at edge sizes: what its program means, and what is made of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from conftest import EQUAL, proved, slow
from polybench import ILLEGAL, KERNELS, LEGAL, Array, Carries, Polybench, Sizes, unsolved

import offcut as oc
from offcut.describe.computation import computation, source
from offcut.errors import PartitionError
from offcut.ir import Kind
from tests.agree import Exact, agree, computed

TILE = 4
DEEP = ("adi", "cholesky", "durbin", "seidel-2d")
"""Whose illegal cuts take isl more work than is done: both programs are run."""
RAGGED = r"\b4 does not divide the extent "
AGAIN = r"^the last tile would (add terms|run .*) again"
SEES = r"^with .* reads .* of .*, not of "
EARLY = r"^with .* runs before "
DIFFERS = r"^with .* has another value$"


def results(found: Any) -> tuple[Array, ...]:
    return found if isinstance(found, tuple) else (found,)


def check_results(found: Any, expected: Sequence[Exact]) -> None:
    """Check that each result is the reference but for rounding, and of its shape."""
    for one, other in zip(results(found), expected, strict=True):
        agree(one, other)


def expected_of(kernel: Polybench, given: Mapping[str, Array], sizes: Sizes) -> tuple[Exact, ...]:
    """What numpy computes in float64, of steps that follow each other, as many as the sizes say."""
    reference = partial(kernel.expected, sizes=sizes)
    return computed(reference, given, units=16 * max(sizes.values()))


def sizes_of(program: oc.Program, sizes: Sizes) -> dict[str, int]:
    """Those of `sizes` that the program has."""
    return {size.name: sizes[size.name] for size in program.sizes if size.name in sizes}


AT = [(name, sizes) for name, kernel in KERNELS.items() for sizes in kernel.sizes]
CUTS = [
    pytest.param(name, {loop: TILE}, tail, marks=() if tail == "cut" else pytest.mark.slow)
    for name, kernel in KERNELS.items()
    for loop, carried in kernel.carries.items()
    for tail in LEGAL[carried]
] + [
    (name, dict.fromkeys(block, TILE), "cut")
    for name, kernel in KERNELS.items()
    for block in kernel.blocks
]
PRODUCTS = ("2mm", "3mm")  # of several matrices; gemm stands for them in `make test`
REFUSED = [
    (name, {loop: TILE}, tail)
    for name, kernel in KERNELS.items()
    for loop, carried in kernel.carries.items()
    for tail in ILLEGAL[carried]
] + [
    (name, dict.fromkeys(block, TILE), "cut")
    for name, kernel in KERNELS.items()
    for block in kernel.crossed
]


@pytest.mark.every(5)
@pytest.mark.parametrize(("name", "sizes"), AT, ids=str)
def test_a_program_means_what_numpy_computes(name: str, sizes: Sizes) -> None:
    kernel = KERNELS[name]
    program, given = kernel.program(), kernel.inputs(sizes)
    check_results(program.run(given, **sizes_of(program, sizes)), expected_of(kernel, given, sizes))


@pytest.mark.every(5)
@pytest.mark.parametrize(
    ("name", "sizes"), [at for at in AT if KERNELS[at[0]].front is not None], ids=str
)
def test_the_front_end_describes_the_same(name: str, sizes: Sizes) -> None:
    kernel = KERNELS[name]
    assert kernel.front is not None
    described, given = kernel.front(), kernel.inputs(sizes)
    expected = expected_of(kernel, given, sizes)
    if isinstance(described, oc.Program):
        named = dict(zip((b.name for b in kernel.program().results), expected, strict=True))
        expected = tuple(named[buffer.name] for buffer in described.results)
    else:
        outputs = [described] if not isinstance(described, Sequence) else described
        described = source(computation(outputs))
    check_results(described.run(given, **sizes_of(described, sizes)), expected)


@pytest.mark.every(16)
@pytest.mark.parametrize(("name", "tile", "tail"), CUTS, ids=str)
def test_a_legal_cut_computes_the_same(name: str, tile: dict[str, int], tail: str) -> None:
    kernel = KERNELS[name]
    cut = oc.partition(kernel.program(), tile=tile, tail=tail)
    assert proved(cut) >= EQUAL
    assert oc.parse(str(cut)) == cut.loops
    for sizes in (kernel.sizes[0], *kernel.sizes[-2:]):
        given = kernel.inputs(sizes)
        found = cut.run(given, **sizes_of(cut.loops, sizes))
        check_results(found, expected_of(kernel, given, sizes))


def reason(name: str, tile: dict[str, int], tail: str) -> str:
    """Why a cut is refused, as a pattern."""
    if tail == "exact":
        return RAGGED
    found = [SEES, EARLY] if len(tile) > 1 else [SEES]
    if tail == "shift" and KERNELS[name].carries[next(iter(tile))] in (Carries.SUM, Carries.MIXED):
        found = [AGAIN]
    return "|".join([*found, DIFFERS] if name in DEEP else found)


@pytest.mark.every(6)
@pytest.mark.parametrize(("name", "tile", "tail"), REFUSED, ids=str)
def test_an_illegal_cut_is_refused(name: str, tile: dict[str, int], tail: str) -> None:
    with pytest.raises(PartitionError) as refused:
        oc.partition(KERNELS[name].program(), tile=tile, tail=tail)
    assert re.search(reason(name, tile, tail), refused.value.because)


@pytest.mark.every(10)
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [slow(n) if n in PRODUCTS else n for n in KERNELS])
def test_a_compiled_program_computes_the_same(name: str, dtype: str) -> None:
    kernel = KERNELS[name]
    compiled = oc.compile(kernel.program(dtype))
    for sizes in kernel.sizes:
        given = kernel.inputs(sizes, dtype)
        found = compiled(*given.values(), **unsolved(kernel.program(), sizes))
        check_results(found, expected_of(kernel, given, sizes))


@pytest.mark.every(4)
@pytest.mark.parametrize(
    "name",
    [slow(n) if n in (*PRODUCTS, "covariance") else n for n, k in KERNELS.items() if k.front],
)
def test_what_the_front_end_describes_compiles_to_the_same(name: str) -> None:
    kernel = KERNELS[name]
    assert kernel.front is not None
    described = kernel.front()
    compiled, program = oc.compile(described), described
    if not isinstance(program, oc.Program):
        outputs = [program] if not isinstance(program, Sequence) else program
        program = source(computation(outputs))
    order = [b.name for b in program.buffers if b.kind in (Kind.INPUT, Kind.INOUT)]
    for sizes in kernel.sizes[-2:]:
        given = kernel.inputs(sizes)
        expected = expected_of(kernel, given, sizes)
        if isinstance(described, oc.Program):
            named = dict(zip((b.name for b in kernel.program().results), expected, strict=True))
            expected = tuple(named[buffer.name] for buffer in program.results)
        found = compiled(*(given[name] for name in order), **unsolved(program, sizes))
        check_results(found, expected)
