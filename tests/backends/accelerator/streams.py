"""Random streams, all of whose words there are; tokens at random, or none."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from offcut.backends.accelerator.isa import (
    Alu,
    AluOp,
    Finish,
    Gemm,
    Instruction,
    Load,
    Loop,
    MemorySpace,
    MicroOp,
    Store,
    Stream,
    Tokens,
    Unit,
)
from offcut.backends.accelerator.spec import AcceleratorSpec

ROOM = 24  # words of each array in main memory
FIELDS = ("pop_prev", "pop_next", "push_prev", "push_next")
LOADED = (MemorySpace.MICRO_OPS, MemorySpace.INPUTS, MemorySpace.WEIGHTS, MemorySpace.ACCUMULATORS)


def memory(spec: AcceleratorSpec, seed: int) -> dict[MemorySpace, NDArray[np.generic]]:
    """Main memory: random words, extreme ones among them, and poison where stores go."""
    rng = np.random.default_rng(seed)
    found: dict[MemorySpace, NDArray[np.generic]] = {}
    for place in LOADED[1:]:
        words = spec.words[place]
        info = np.iinfo(words.dtype)
        values = rng.integers(info.min, info.max, (ROOM, *words.shape), words.dtype, endpoint=True)
        found[place] = np.where(rng.random(values.shape) < 0.1, info.min, values).astype(
            words.dtype
        )
    found[MemorySpace.OUTPUTS] = np.full(
        (ROOM, *spec.words[MemorySpace.OUTPUTS].shape), 77, np.int8
    )
    return found


def stream(spec: AcceleratorSpec, rng: random.Random, length: int, pairs: int = 0) -> Stream:
    """A stream that loads micro-ops first, which any of its instructions may use.

    pairs  of instructions that are tried for a token from one to the other
    """
    count = spec.words[MemorySpace.MICRO_OPS].depth
    ops = tuple(
        MicroOp(*(rng.randrange(max(depth // 2, 1)) for depth in _depths(spec)))
        for _ in range(count)
    )
    body = [_instruction(spec, rng, ops) for _ in range(length)]
    first: list[Instruction] = [Load(MemorySpace.MICRO_OPS, 0, 0, 1, count, count)]
    return Stream(tuple(_told(spec, rng, [*first, *body, Finish()], pairs)), ops)


def _depths(spec: AcceleratorSpec) -> tuple[int, int, int]:
    accumulators = spec.words[MemorySpace.ACCUMULATORS].depth
    inputs = min(spec.words[MemorySpace.INPUTS].depth, accumulators)
    return accumulators, inputs, spec.words[MemorySpace.WEIGHTS].depth


def _instruction(
    spec: AcceleratorSpec, rng: random.Random, ops: tuple[MicroOp, ...]
) -> Instruction:
    kind = rng.choice(["load", "load", "gemm", "gemm", "alu", "store"])
    if kind == "load":
        place = rng.choice(LOADED[1:])
        depth = spec.words[place].depth
        while True:
            y, x, stride = rng.randrange(4), rng.randrange(5), rng.randrange(7)
            pad = tuple(rng.choice([0, 0, 1, 2]) for _ in range(4))
            load = Load(place, 0, 0, y, x, stride, (pad[0], pad[1], pad[2], pad[3]))
            if load.words <= depth:
                break
        room = ROOM - ((y - 1) * stride + x if x and y else 0)
        sram, dram = rng.randrange(depth - load.words + 1), rng.randrange(room + 1)
        return Load(place, sram, dram, y, x, stride, load.pad)
    if kind == "store":
        y, x, stride = rng.randrange(3), rng.randrange(5), rng.randrange(8)
        depth = min(
            spec.words[one].depth for one in (MemorySpace.ACCUMULATORS, MemorySpace.OUTPUTS)
        )
        room = ROOM - ((y - 1) * stride + x if x and y else 0)
        return Store(rng.randrange(depth - y * x + 1), rng.randrange(room + 1), y, x, stride)
    begin = rng.randrange(len(ops))
    end = rng.randrange(begin, len(ops) + 1)
    if kind == "gemm":
        outer, inner = _loops(rng, ops[begin:end], _depths(spec))
        return Gemm(begin, end, outer, inner, reset=rng.random() < 0.2)
    depth = spec.words[MemorySpace.ACCUMULATORS].depth
    outer, inner = _loops(rng, ops[begin:end], (depth, depth, depth))
    outer, inner = (Loop(one.extent, one.dst, one.src) for one in (outer, inner))
    immediate = rng.choice([None, 0, 1, -1, 3, 31, -31, rng.randrange(-(1 << 15), 1 << 15)])
    return Alu(rng.choice(list(AluOp)), begin, end, outer, inner, immediate)


def _loops(
    rng: random.Random, ops: tuple[MicroOp, ...], depths: tuple[int, int, int]
) -> tuple[Loop, Loop]:
    """Two loops that stay within the words of each operand."""
    extents = rng.randrange(4), rng.randrange(1, 4)
    factors: list[tuple[int, int]] = []
    for field, depth in zip(("dst", "src", "wgt"), depths, strict=True):
        room = depth - 1 - max((getattr(op, field) for op in ops), default=0)
        outer = rng.randrange(room // max(extents[0] - 1, 1) + 1) if rng.random() < 0.7 else 0
        left = room - outer * max(extents[0] - 1, 0)
        inner = rng.randrange(left // max(extents[1] - 1, 1) + 1) if rng.random() < 0.7 else 0
        factors.append((outer, inner))
    one, two = (Loop(extents[at], *(factor[at] for factor in factors)) for at in (0, 1))
    return one, two


def _told(
    spec: AcceleratorSpec, rng: random.Random, instructions: list[Instruction], pairs: int
) -> list[Instruction]:
    """Instructions with tokens from earlier to later ones of neighbours; in one stream of four one is lost."""
    units = [list(Unit).index(spec.unit(one)) for one in instructions]
    told = [dict.fromkeys(FIELDS, False) for _ in instructions]
    for _ in range(pairs):
        first, second = sorted(rng.sample(range(len(instructions)), 2))
        step = units[second] - units[first]
        push, pop = ("push_next", "pop_prev") if step > 0 else ("push_prev", "pop_next")
        if abs(step) == 1 and not told[first][push] and not told[second][pop]:
            told[first][push] = told[second][pop] = True
    if rng.random() < 0.25:
        rng.choice(told)[rng.choice(FIELDS)] = False
    return [
        replace(one, tokens=Tokens(**tokens))
        for one, tokens in zip(instructions, told, strict=True)
    ]
