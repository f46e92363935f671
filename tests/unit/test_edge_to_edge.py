"""Strips that algebra finds edge to edge share out their axis: held against every coordinate of small extents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from offcut.core import index as ix
from offcut.ir import Compare, Expr, Size, Var
from offcut.partition.strategies.axis_proof import _owned_strip, _run
from offcut.partition.strategies.catalog import parse_strategy, segments
from offcut.polyhedral import Space
from offcut.proof.by_axis.contiguity import Quotients, are_contiguous
from offcut.proof.by_axis.strips import Strip, X
from tests.facade import evaluate

EXTENT = Var("e")
SIZES = (Size("e"),)
EXTENTS = (*range(70), 95, 96, 97, 191, 192, 193, 208, 255, 288, 301)
CUTS = [
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


@pytest.mark.every(4)
@pytest.mark.parametrize("run", [False, True], ids=["owned", "run"])
@pytest.mark.parametrize(("strategy", "tile"), CUTS, ids=str)
def test_cuts_by_several_heights_are_edge_to_edge(strategy: object, tile: int, run: bool) -> None:
    found = strips(strategy, tile, run=run)
    assert known(found)
    assert shares_out(found)


@pytest.mark.every(6)
@pytest.mark.parametrize(("strategy", "tile"), CUTS, ids=str)
def test_what_is_found_to_share_out_does(strategy: object, tile: int) -> None:
    refused = 0
    for found in mutants(strips(strategy, tile, run=True)):
        if known(found):
            assert shares_out(found)
        else:
            refused += 1
    assert refused > 0


def test_a_negative_extent_is_not_decided() -> None:
    quotients, sizes = Quotients((Size("e", -100),)), (Size("e", -100),)
    parts = [strip.mapped(quotients.without_divisions) for strip in strips("mask", 16, run=True)]
    assert not are_contiguous(quotients.without_divisions(EXTENT), parts, quotients, sizes)
