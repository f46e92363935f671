"""Tokens of compiled streams: none can be left out, none can be put in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from random import Random

import pytest
from accelerators import convolution, dense, pooling, residual
from conftest import slow

import offcut as oc
from offcut.backends.accelerator.executor import AcceleratorExecutor
from offcut.backends.accelerator.isa import Instruction, Stream, Tokens, Unit
from offcut.backends.accelerator.simulator import simulate
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.errors import StreamError
from tests.backends.accelerator.machines import shipped

UNITS = list(Unit)
SIDES = {-1: ("push_prev", "pop_next"), 1: ("push_next", "pop_prev")}
PROGRAMS = {
    "dense": lambda: dense(40, 45, most=8),
    "convolution": convolution,
    "pooling": pooling,
    "residual": lambda: residual(40, 45, most=8),
}
# Each axis in tiles of its own, so that every window has several turns.
TILES = {
    "dense": {"i": 1, "j": 16},
    "convolution": {"n_": 1, "y": 2},
    "residual": {"i": 1, "j": 16},
    "pooling": {"y": 1, "c": 16},
}
Pair = tuple[tuple[int, str], tuple[int, str]]


@cache
def compiled(name: str, depth: int) -> AcceleratorExecutor:
    inputs, result = PROGRAMS[name]()
    first = oc.compile(result, inputs=inputs, target="vta").schedule
    assert first is not None
    schedule = oc.Schedule.parse(in_small_tiles(str(first), TILES[name], depth))
    kernel = oc.compile(result, inputs=inputs, target="vta", schedule=schedule)
    assert kernel.schedule == schedule
    return AcceleratorExecutor(kernel.loops, AcceleratorSpec.of(shipped("vta")))


def in_small_tiles(text: str, tiles: Mapping[str, int], depth: int) -> str:
    """The decisions of a text with other tiles of Y, in the innermost loop over which everything is computed and copied."""
    turns = f" depth {depth}" if depth > 1 else ""
    (order,) = re.findall(r"^order Y (.*)$", text, re.M)
    axes = [re.sub(r"_in$", "", loop) for loop in order.split() if not loop.endswith("_tile")]
    inside = [f"{axis}_in" if axis in tiles else axis for axis in axes]
    heads = [f"{axis}_tile" for axis in tiles]
    cuts = [f"split Y.{axis} guard {size} as {axis}_tile {axis}_in" for axis, size in tiles.items()]
    cuts.append(" ".join(("order Y", *heads, *inside)))
    text = re.sub(r"^split Y\..*\n", "", text, flags=re.M).replace(
        f"order Y {order}", "\n".join(cuts)
    )
    text = re.sub(r" depth \d+", "", text)
    text = re.sub(r"^at (\S+) Y(?:\.\S+)?(.*)$", rf"at \1 Y.{heads[-1]}\2{turns}", text, flags=re.M)
    text = re.sub(r"^(at \S+ [^Y]\S*_tile)$", rf"\1{turns}", text, flags=re.M)
    return re.sub(r"^cover Y at \S+", f"cover Y at {inside[0]}", text, flags=re.M)


def pairs(stream: Stream, spec: AcceleratorSpec) -> Iterator[Pair]:
    """The k-th push and the k-th pop of each queue."""
    units = [UNITS.index(spec.unit(one)) for one in stream.instructions]
    for source, target in ((0, 1), (1, 0), (1, 2), (2, 1)):
        push, pop = SIDES[target - source]
        told = enumerate(zip(units, stream.instructions, strict=True))
        ends: tuple[list[int], list[int]] = [], []
        for at, (unit, one) in told:
            for mine, side, found in zip((source, target), (push, pop), ends, strict=True):
                if unit == mine and getattr(one.tokens, side):
                    found.append(at)
        for first, second in zip(*ends, strict=True):
            yield (first, push), (second, pop)


def told(stream: Stream, ends: Pair | tuple[tuple[int, str]], value: bool) -> Stream:
    """The stream with some sides of its tokens as they are asked for."""
    changed: list[Instruction] = list(stream.instructions)
    for at, side in ends:
        tokens: Tokens = replace(changed[at].tokens, **{side: value})
        changed[at] = replace(changed[at], tokens=tokens)
    return Stream(tuple(changed), stream.micro_ops)


def is_caught(stream: Stream, spec: AcceleratorSpec) -> bool:
    try:
        run = simulate(stream, None, spec)
    except StreamError as refused:
        return "standstill" in str(refused)
    return bool(run.races)


CASES = [("dense", 1), ("convolution", 2), ("pooling", 3), ("residual", 2)]
ALL = [slow(name, depth, (1, 3, 5), None) for name, depth in CASES]
SOME = [("dense", 1, (3,), 3), ("convolution", 2, (3,), 3)]


@pytest.mark.parametrize(("name", "depth", "sizes", "most"), [*SOME, *ALL])
def test_without_any_one_pair_there_is_a_race_or_a_standstill(
    name: str, depth: int, sizes: tuple[int, ...], most: int | None
) -> None:
    chip = compiled(name, depth)
    for n in sizes:
        (stream,) = chip.streams({"n": n})
        whole = simulate(stream, None, chip.spec)
        assert not whole.races
        assert not whole.left
        every = list(pairs(stream, chip.spec))
        assert len(every) > 5
        if most is not None:
            every = Random(n).sample(every, most)
        for pair in every:
            assert is_caught(told(stream, pair, False), chip.spec), pair


@pytest.mark.parametrize(
    ("name", "depth", "most"), [("residual", 2, 2), *(slow(*one, 20) for one in CASES)]
)
def test_a_token_more_is_left_and_a_wait_more_is_a_standstill(
    name: str, depth: int, most: int
) -> None:
    chip, rng = compiled(name, depth), Random(depth)
    (stream,) = chip.streams({"n": 3})
    sides = [
        (at, side)
        for at, one in enumerate(stream.instructions)
        for step, ends in SIDES.items()
        for side, away in zip(ends, (step, -step), strict=True)
        if 0 <= UNITS.index(chip.spec.unit(one)) + away < len(UNITS)
        and not getattr(one.tokens, side)
    ]
    for kind in ("push", "pop"):
        some = [end for end in sides if end[1].startswith(kind)]
        for end in rng.sample(some, min(most, len(some))):
            more = told(stream, (end,), True)
            if kind == "pop":
                with pytest.raises(StreamError, match="standstill"):
                    simulate(more, None, chip.spec)
            else:
                run = simulate(more, None, chip.spec)
                assert run.left or run.races
