"""Tokens of compiled streams: none can be left out, none can be put in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from random import Random

import pytest
from accelerators import convolution, dense, pooling, residual
from conftest import slow

import offcut as oc
from offcut.backends.accelerator.chip import Chip
from offcut.backends.accelerator.isa import Instruction, Stream, Tokens, Unit
from offcut.backends.accelerator.simulator import simulate
from offcut.backends.accelerator.spec import Spec
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
CUTS = {
    "dense": "loops i j\n    {}split i ladder 1\n    split j pad 16",
    "convolution": "loops n_ y\n    {}split n_ ladder 1\n    split y ladder 2",
    "residual": "loops i j\n    {}split i ladder 1\n    split j pad 16",
    "pooling": "loops y c\n    {}split y ladder 1\n    split c pad 16",
}
AXES = {"dense": "i", "convolution": "n_", "residual": "j", "pooling": "y"}
Pair = tuple[tuple[int, str], tuple[int, str]]


@cache
def compiled(name: str, depth: int) -> Chip:
    inputs, result = PROGRAMS[name]()
    first = str(oc.compile(result, inputs=inputs, target="vta").schedule)
    head = first[: first.index("    loops")]
    turns = f"depth {AXES[name]} {depth}\n    " if depth > 1 else ""
    schedule = oc.Schedule.parse(f"{head}    {CUTS[name].format(turns)}\n")
    kernel = oc.compile(result, inputs=inputs, target="vta", schedule=schedule)
    return Chip(kernel.loops, Spec.of(shipped("vta")))


def pairs(stream: Stream, spec: Spec) -> Iterator[Pair]:
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


def is_caught(stream: Stream, spec: Spec) -> bool:
    try:
        run = simulate(stream, None, spec)
    except StreamError as refused:
        return "standstill" in str(refused)
    return bool(run.races)


CASES = [(name, depth) for name in PROGRAMS for depth in (1, 2, 3)]
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
