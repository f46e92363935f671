"""Comparisons that are seen to hold by their form, beside every point there is."""

from __future__ import annotations

import random
from itertools import product

import pytest

from offcut.core import index as ix
from offcut.ir import Binary, Compare, Const, Expr, Var
from offcut.polyhedral.enclosing_scope import Ranges, holds_syntactically
from tests.facade import evaluate

N, M, T = (Var(name) for name in "nmt")


def points(ranges: Ranges, least: dict[str, int], most: int) -> list[dict[str, int]]:
    """Every point of the loops, at all sizes up to `most`."""
    sizes = [range(low, most + 1) for low in least.values()]
    found = [dict(zip(least, values, strict=True)) for values in product(*sizes)]
    for name, (lo, hi) in ranges.items():
        found = [
            {**point, name: value}
            for point in found
            for value in range(evaluate(lo, point), evaluate(hi, point))
        ]
    return found


def drawn(draw: random.Random, names: list[Expr], depth: int) -> Expr:
    """A random index expression."""
    if not depth:
        return draw.choice([*names, *names, ix.const(draw.randint(-3, 8))])
    a, b = (drawn(draw, names, depth - 1) for _ in range(2))
    match draw.randint(0, 6):
        case 0 | 1:
            return ix.add(a, b)
        case 2:
            return ix.sub(a, b)
        case 3:
            return ix.mul(draw.choice([-4, 2, 3, 4]), a)
        case 4:
            return ix.floordiv(a, draw.choice([2, 3, 4]))
        case 5:
            return ix.mod(a, draw.choice([2, 3, 4]))
        case _:
            return draw.choice([ix.minimum, ix.maximum])(a, b)


@pytest.mark.every(4)
@pytest.mark.parametrize("seed", range(20))
def test_what_is_seen_holds_at_every_point(seed: int) -> None:
    draw = random.Random(seed)
    least = {"n": draw.randint(0, 2), "m": 0}
    seen = 0
    for _ in range(30):
        names: list[Expr] = [N, M]
        ranges: Ranges = {}
        for name in "ij":
            lo = draw.choice([ix.const(0), drawn(draw, names, 1)])
            ranges[name] = lo, ix.add(lo, draw.choice([N, ix.const(3), drawn(draw, names, 1)]))
            names.append(Var(name))
        a, b = drawn(draw, names, 1), drawn(draw, names, 2)
        condition = Compare(draw.choice(["<", "<="]), a, b)
        if holds_syntactically(condition, ranges, least):
            seen += 1
            for point in points(ranges, least, 4):
                left, right = evaluate(a, point), evaluate(b, point)
                assert left < right if condition.op == "<" else left <= right, (condition, point)
    assert seen > 0


TILES: Ranges = {
    "t": (ix.const(0), ix.floordiv(N, 16)),
    "i": (ix.mul(16, T), ix.add(ix.mul(16, T), 16)),
}
BLOCKS: Ranges = {
    "t": (ix.const(0), ix.floordiv(ix.add(N, 7), 8)),
    "i": (ix.mul(8, T), ix.minimum(ix.add(ix.mul(8, T), 8), N)),
}
LEFT = ix.mod(N, 192)
START = ix.add(ix.mul(192, ix.floordiv(N, 192)), ix.mul(64, ix.floordiv(LEFT, 64)), ix.mul(32, T))
LADDER: Ranges = {
    "t": (ix.const(0), ix.floordiv(ix.mod(LEFT, 64), 32)),
    "i": (START, ix.add(START, 32)),
}


@pytest.mark.parametrize("ranges", [TILES, BLOCKS, LADDER], ids=["tiles", "blocks", "ladder"])
def test_tiles_are_seen_to_lie_inside(ranges: Ranges) -> None:
    for condition in (Compare("<", Var("i"), N), Compare("<=", ix.const(0), Var("i"))):
        assert holds_syntactically(condition, ranges, {"n": 0})
    assert not holds_syntactically(Compare("<", ix.add(Var("i"), 1), N), ranges, {"n": 0})


def test_of_elements_nothing_is_said() -> None:
    x = Const(0.5, "float32")
    assert not holds_syntactically(Compare("<", x, Binary("+", x, x)), {}, {})
