"""What loops carry, by algebra where that says it, is what sets say; what is apart is not asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module

import pytest

import offcut as oc
from offcut import parse
from offcut.core import index as ix
from offcut.core.analysis import is_independent
from offcut.core.memo import forget
from offcut.ir import Compare, Expr, For, Let, Size, Var, walk
from offcut.partition.strategies.axis_proof import _owned_strip, _run
from offcut.partition.strategies.catalog import parse_strategy, segments
from offcut.polyhedral import accesses_outside, carried_by, find_unbounded_lets, operation_budget
from offcut.polyhedral.affine import Space
from offcut.polyhedral.isl_budget import operations
from offcut.proof.by_axis.contiguity import Quotients, are_contiguous
from offcut.proof.by_axis.strips import Strip, X
from tests.facade import dependences, evaluate

HEAD = """\
size n in 0:100
input A: float32[n, n]
input B: int32[n]
output C: float32[n, n]
output S: float32[n]
local T: float32[n, n]
private p: float32[n]
"""
CARRIED = {
    "its own element": ("for i in 0:n\n  for j in 0:n\n    C[i, j] = A[j, i]", set()),
    "its own row": ("for i in 0:n\n  for j in 1:n\n    C[i, j] = C[i, j - 1]", {("j", "flow")}),
    "its own sum": (
        "for i in 0:n\n  S[i] = 0.0\n  for j in 0:n\n    S[i] += A[i, j]",
        {("j", kind) for kind in ("flow", "anti", "output")},
    ),
    "the axes turned": (
        "for i in 0:n\n  for j in 0:n\n    C[i, j] = C[j, i]",
        {("i", "flow"), ("i", "anti")},
    ),
    "an index of one access alone": (
        "for i in 0:n\n  for j in 0:n\n    C[i, j] = C[i, 0]",
        {("j", "flow")},
    ),
    "one scratch": (
        "for i in 0:n\n  for j in 0:n\n    p[j] = A[i, j]\n    C[i, j] = p[j]",
        {("i", kind) for kind in ("flow", "anti", "output")},
    ),
    "one nest after the other": (
        "for i in 0:n\n  for j in 0:n\n    T[i, j] = A[i, j]\n"
        "for i in 0:n\n  for j in 0:n\n    C[i, j] = T[j, i] + T[i, 0]",
        set(),
    ),
    "an index that memory holds": (
        "for i in 0:n\n  S[index(B[i])] = S[index(B[i])]",
        {("i", kind) for kind in ("flow", "anti", "output")},
    ),
}


@pytest.mark.parametrize(("body", "expected"), CARRIED.values(), ids=CARRIED)
def test_loops_carry_what_instances_that_meet_say_by_an_index_or_by_sets(
    body: str, expected: set[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = parse(HEAD + body)
    quick = list(dependences(program))
    assert {(one.loop, one.kind) for one in quick} == expected
    asked = import_module("offcut.polyhedral.dependences")
    monkeypatch.setattr(asked, "_has_equal_index", lambda *_: False)
    for one, other in zip(quick, dependences(program), strict=True):
        assert (one.kind, one.path, one.certain) == (other.kind, other.path, other.certain)
        assert one.relation.is_equal(other.relation)


def test_nests_apart_are_not_asked_of_sets() -> None:
    terms = " + ".join(f"T[i, {k}]" for k in range(40))
    nests = [
        "for i in 0:n\n  for j in 0:n\n    T[i, j] = A[i, j]",
        f"for i in 0:n\n  S[i] = {terms}",
    ]
    program = parse(HEAD + "\n".join(nests))
    with operation_budget(1):
        assert not any(carried_by(program).values())


def test_what_was_asked_before_lets_nothing_more_through_a_bound() -> None:
    program = parse(HEAD + CARRIED["the axes turned"][0])

    def taken() -> int:
        before = operations()
        assert len([*dependences(program)]) == len(("flow", "anti"))
        return operations() - before

    forget()
    first, again = taken(), taken()
    assert again < first
    forget()
    assert abs(taken() - first) < (first - again) // 10


LOOP_HEAD = """\
size n in 0:100
input A: float32[n]
output C: float32[n]
output S: float32[]
local T: float32[n]
private p: float32[n]
"""

APART = {
    "its own element": "for i in 0:n\n  C[i] = A[i]",
    "a tile of its own": "for i in 0:n//8\n  tile x in 8*i +: 8\n    C[x] = A[x]",
    "a clipped tile": "for i in 0:n\n  tile x in 8*i +: min(8, n - 8*i)\n    C[x] = A[x]",
    "every second": "for i in 0:n//2\n  for j in 0:2\n    C[2*i + j] = A[i]",
    "a bounded remainder": "for i in 0:n//8\n  for x in 8*i:8*i + n % 8\n    C[x] = A[x]",
    "the other end": "for i in 0:n\n  C[n - i - 1] = A[i]",
    "a window of its own": "for i in 0:n\n  alloc T[0 +: n]\n    T[0] = A[i]\n    C[i] = T[0]",
    "an update in place": "for i in 0:n\n  C[i] = 0.0\n  C[i] += A[i]",
    "a private element": "for i in 0:n\n  p[i] = A[i]\n  C[i] = p[i]",
}
TOGETHER = {
    "one sum": "for i in 0:n\n  S[] += A[i]",
    "one temporary": "for i in 0:n\n  T[0] = A[i]\n  C[i] = T[0]",
    "the neighbour": "for i in 1:n\n  C[i] = C[i - 1]",
    "tiles that overlap": "for i in 0:n//8\n  tile x in 8*i +: 9\n    C[x] = A[0]",
    "a tile of any extent": "for i in 0:n//8\n  tile x in 8*i +: n\n    C[x] = A[0]",
    "half of it": "for i in 0:n\n  C[i//2] = A[i]",
    "a private buffer": "for i in 0:n\n  tile x in 0 +: 1\n    p[i] = A[i]\n    C[i] = p[i]",
    "one private element": "for i in 0:n\n  p[0] = A[i]\n  C[i] = p[0]",
    "a guard that reads": "for i in 1:n\n  if C[i - 1] < 0.0\n    C[i] = A[i]",
}


@pytest.mark.parametrize(
    ("body", "apart"),
    [*((body, True) for body in APART.values()), *((body, False) for body in TOGETHER.values())],
    ids=[*APART, *TOGETHER],
)
def test_iterations_that_keep_to_themselves_are_independent_and_no_others(
    body: str, apart: bool
) -> None:
    program = parse(LOOP_HEAD + body)
    (stmt,) = program.body
    assert isinstance(stmt, For)
    assert is_independent(stmt, {one.name: one.kind for one in program.buffers}) is apart


# Accesses of programs with bounded values: what is seen inside is inside, and what is not is found.


PRODUCT = """\
program p
size n in 0:200
size m in 0:100
input A: float32[n, m]
input B: float32[m, n]
output C: float32[n, n]
for i in 0:n
  for j in 0:n
    C[i, j] = 0.0
    for k in 0:m
      C[i, j] += A[i, k] * B[k, j]
"""
CUTS = [
    ({"i": 5, "j": 8}, "balance"),
    ({"i": 4, "j": 8}, "mix"),
    ({"i": 4, "k": 3}, "balance"),
]


def cut(tile: dict[str, int], tail: str) -> oc.Program:
    loops = oc.partition(oc.parse(PRODUCT), tile=tile, tail=tail).loops
    assert any(isinstance(stmt, Let) for stmt in walk(loops.body))
    return loops


@pytest.mark.every(2)
@pytest.mark.parametrize(("tile", "tail"), CUTS)
def test_what_is_cut_lies_inside_and_a_buffer_that_is_one_short_is_found_with_the_smallest_sizes(
    tile: dict[str, int], tail: str
) -> None:
    program = cut(tile, tail)
    assert accesses_outside(program) == ()
    assert find_unbounded_lets(Space(program.sizes), program.body) == []
    text = str(program).replace("size n in 0:200", "size n in 1:200")
    for whole, short in (("A: float32[n, m]", "[n - 1, m]"), ("C: float32[n, n]", "[n, n - 1]")):
        assert whole in text
        name = whole[0]
        found = accesses_outside(oc.parse(text.replace(whole, f"{name}: float32{short}")))
        assert {one.buffer for one in found} == {name}
        assert min(one.sizes for one in found if one.sizes) == (1, int(name == "A"))


def test_a_bounded_value_that_leaves_its_range_is_found() -> None:
    program = oc.parse(
        "program p\nsize n in 0:100\noutput B: int32[n]\n"
        "let q in 0:3 = n//30\n  for i in 0:n\n    B[i] = 1\n"
    )
    (broken,) = find_unbounded_lets(Space(program.sizes), program.body)
    assert broken.let.name == "q"
    assert not find_unbounded_lets(
        Space(program.sizes), oc.parse(str(program).replace("0:3", "0:4")).body
    )


# Strips that algebra finds edge to edge share out their axis: held against every coordinate of small extents.


EXTENT = Var("e")
SIZES = (Size("e"),)
EXTENTS = (*range(70), 95, 96, 97, 191, 192, 193, 208, 255, 288, 301)
STRATEGIES = [
    ("mask", 16),
    ("cut", 7),
    ("ladder", 14),
    (("ladder", (32, 16)), 32),
    (("ladder", (48, 32, 16)), 48),
    (("ladder", (96, 64, 32, 16)), 96),
    (("ladder", (5, 3, 1)), 8),
]


def strips(strategy: object, tile: int, *, run: bool) -> list[Strip]:
    """What the segments of a cut answer for, or what their loops run, as intervals."""
    parts = segments(parse_strategy(strategy, at="here"), EXTENT, tile)
    space = Space(SIZES, ())
    found = [s for p in parts for s in (_run(space, p) if run else [_owned_strip(p)])]
    return [strip.joined() for strip in found]


def known(found: list[Strip]) -> bool:
    quotients = Quotients(SIZES)
    named = [strip.mapped(quotients.without_divisions) for strip in found]
    return are_contiguous(quotients.without_divisions(EXTENT), named, quotients, SIZES)


def coordinates(strip: Strip, extent: int) -> list[int]:
    """Those that a strip meets, in order."""
    at = {"e": extent}
    around = range(int(evaluate(strip.lower, at)), int(evaluate(strip.upper, at)))
    return [x for x in around if all(evaluate(c, {**at, X.name: x}) for c in strip.holds)]


def shares_out(found: list[Strip]) -> bool:
    return all(
        [x for strip in found for x in coordinates(strip, e)] == [*range(e)] for e in EXTENTS
    )


def moved(expr: Expr, by: int) -> Expr:
    return ix.add(expr, by)


def mutants(found: list[Strip]) -> Iterator[list[Strip]]:
    """The strips with one thing about one of them changed."""
    for k, strip in enumerate(found):
        others = found[:k], found[k + 1 :]
        for by in (-1, 1, 16):
            for field in ("lower", "upper"):
                changed = replace(strip, **{field: moved(getattr(strip, field), by)})
                yield [*others[0], changed, *others[1]]
            yield [
                *others[0],
                replace(strip, holds=(Compare("<", strip.lower, ix.const(by)),)),
                *others[1],
            ]
        yield [*others[0], replace(strip, holds=()), *others[1]]
        yield [*others[0], *others[1]]
        yield [*others[0], strip, strip, *others[1]]
        yield [strip, *others[0], *others[1]]
        yield [*others[0], replace(strip, repeats=True), *others[1]]


@pytest.mark.every(3)
@pytest.mark.parametrize(("strategy", "tile"), STRATEGIES, ids=str)
def test_cuts_by_several_heights_are_edge_to_edge_and_what_is_found_to_share_out_does(
    strategy: object, tile: int
) -> None:
    for run in (False, True):
        found = strips(strategy, tile, run=run)
        assert known(found)
        assert shares_out(found)
    made = [*mutants(found)]
    taken = [one for one in made if known(one)]
    assert len(taken) < len(made)
    assert all(map(shares_out, taken))


def test_a_negative_extent_is_not_decided() -> None:
    quotients, sizes = Quotients((Size("e", -100),)), (Size("e", -100),)
    parts = [strip.mapped(quotients.without_divisions) for strip in strips("mask", 16, run=True)]
    assert not are_contiguous(quotients.without_divisions(EXTENT), parts, quotients, sizes)
