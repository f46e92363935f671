"""Races and standstills: the simulator's clocks against paths in a graph of instructions, byte by byte."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest

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
from offcut.backends.accelerator.simulator import simulate, simulate_timing
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.errors import StreamError
from tests.backends.accelerator.literal import Literal
from tests.backends.accelerator.machines import shipped, small
from tests.backends.accelerator.streams import memory, stream

UNITS = list(Unit)


def paths(given: Stream, spec: AcceleratorSpec) -> set[tuple[int, int]] | None:
    """Pairs of instructions of which the first has completed before the second starts; None where none can run on."""
    count = len(given.instructions)
    units = [UNITS.index(spec.unit(one)) for one in given.instructions]
    edges: set[tuple[int, int]] = set()
    for unit in range(3):
        mine = [at for at in range(count) if units[at] == unit]
        edges |= set(pairwise(mine))
        for other in (unit - 1, unit + 1):
            pushes = [at for at in mine if _tells(given.instructions[at].tokens, other - unit)]
            theirs = [at for at in range(count) if units[at] == other]
            pops = [at for at in theirs if _waits(given.instructions[at].tokens, unit - other)]
            if len(pops) > len(pushes):
                return None
            edges |= set(zip(pushes, pops, strict=False))
    reached = [[False] * count for _ in range(count)]
    for first, second in edges:
        reached[first][second] = True
    for middle in range(count):
        for first in range(count):
            if reached[first][middle]:
                reached[first] = [
                    a or b for a, b in zip(reached[first], reached[middle], strict=True)
                ]
    if any(reached[at][at] for at in range(count)):
        return None
    return {(a, b) for a in range(count) for b in range(count) if reached[a][b]}


def _tells(tokens: Tokens, step: int) -> bool:
    return tokens.push_prev if step < 0 else tokens.push_next


def _waits(tokens: Tokens, step: int) -> bool:
    return tokens.pop_prev if step < 0 else tokens.pop_next


def conflicts(given: Stream, spec: AcceleratorSpec, seed: int) -> set[tuple[int, int]]:
    """Pairs of instructions of two units that share a byte that one of them writes."""
    literal = Literal(spec, memory(spec, seed))
    literal.run(given)
    found = set()
    for first, second in combinations(range(len(given.instructions)), 2):
        a, b = literal.touched[first], literal.touched[second]
        meet = (a.writes & (b.reads | b.writes)) | (a.reads & b.writes)
        units = {spec.unit(given.instructions[one]) for one in (first, second)}
        if meet and len(units) == 2:
            found.add((first, second))
    return found


@pytest.mark.every(4)
@pytest.mark.parametrize("name", ["vta", "gemmini"])
@pytest.mark.parametrize("seed", range(60))
def test_races_are_conflicts_that_no_path_orders(name: str, seed: int) -> None:
    spec = replace(small(name), tokens=True, token_depth=99)
    given = stream(spec, random.Random(seed), 9, pairs=(10, 40, 160)[seed % 3])
    ordered = paths(given, spec)
    if ordered is None:
        with pytest.raises(StreamError, match="standstill"):
            simulate(given, None, spec)
        return
    races = simulate(given, None, spec).races
    expected = conflicts(given, spec, seed) - ordered
    found = {(race.earlier, race.later) for race in races}
    assert found <= expected
    by_unit = {(spec.unit(given.instructions[a]), b) for a, b in expected}
    assert {(race.units[0], race.later) for race in races} == by_unit


def test_some_of_these_streams_race_and_some_stand_still_and_some_do_neither() -> None:
    kinds = {"still": 0, "race": 0, "neither": 0}
    for seed in range(60):
        spec = small("vta")
        given = stream(spec, random.Random(seed), 9, pairs=(10, 40, 160)[seed % 3])
        ordered = paths(given, spec)
        kinds[
            "still"
            if ordered is None
            else "race"
            if conflicts(given, spec, seed) - ordered
            else "neither"
        ] += 1
    assert min(kinds.values()) > 2


def pipeline(tiles: int) -> Stream:
    """Loads, products and stores of tiles that take turns in two halves of each memory."""
    ops = (MicroOp(0, 0, 0), MicroOp(4, 4, 1))
    found: list[Instruction] = [Load(MemorySpace.MICRO_OPS, 0, 0, 1, 2, 2)]
    for tile in range(tiles):
        half, again, last = tile % 2, tile >= 2, tile >= tiles - 2
        first = Tokens(pop_next=again)
        found += [
            Load(MemorySpace.INPUTS, 4 * half, 4 * tile, 1, 4, 4, tokens=first),
            Load(MemorySpace.WEIGHTS, half, tile, 1, 1, 1, tokens=Tokens(push_next=True)),
            Gemm(half, half + 1, Loop(4, 1, 1), reset=True, tokens=Tokens(pop_next=again)),
            Gemm(
                half,
                half + 1,
                Loop(4, 1, 1),
                tokens=Tokens(pop_prev=True, push_prev=not last, push_next=True),
            ),
            Store(4 * half, 4 * tile, 1, 4, 4, Tokens(pop_prev=True, push_prev=not last)),
        ]
    return Stream(tuple(found), ops)


def test_two_halves_that_take_turns_race_nowhere_and_overlap() -> None:
    spec = small("vta")
    run = simulate(pipeline(6), memory(spec, 0), spec)
    assert not run.races
    assert not run.left
    assert not run.unwritten
    assert run.cycles < sum(run.busy.values())
    assert simulate_timing(pipeline(6), spec).cycles == run.cycles


@pytest.mark.parametrize("field", ["pop_prev", "pop_next", "push_prev", "push_next"])
def test_without_any_one_token_there_is_a_race_or_a_standstill_or_one_is_left(field: str) -> None:
    spec, whole = small("vta"), pipeline(6)
    removed = 0
    for at, instruction in enumerate(whole.instructions):
        if not getattr(instruction.tokens, field):
            continue
        fewer = replace(instruction, tokens=replace(instruction.tokens, **{field: False}))
        changed = (*whole.instructions[:at], fewer, *whole.instructions[at + 1 :])
        removed += 1
        try:
            run = simulate(Stream(changed, whole.micro_ops), None, spec)
        except StreamError:
            assert field.startswith("push")
        else:
            assert run.races
            assert run.left
    assert removed > 3


def test_a_race_is_told_of_with_both_instructions_and_the_word() -> None:
    spec = small("vta")
    (race,) = simulate(
        Stream(
            (
                Load(MemorySpace.MICRO_OPS, 0, 0, 1, 1, 1),
                Load(MemorySpace.INPUTS, 3, 0, 1, 4, 4),
                Gemm(0, 1),
            ),
            (MicroOp(0, 5, 0),),
        ),
        None,
        spec,
    ).races
    assert str(race) == (
        "2 (compute) reads what 1 (load) writes, inputs[5], and nothing orders them"
    )


def test_an_end_that_does_not_wait_for_the_last_store_is_a_race() -> None:
    spec = small("vta")
    loaded = Load(MemorySpace.ACCUMULATORS, 0, 0, 1, 1, 1, tokens=Tokens(push_next=True))
    stored = Store(0, 3, 1, 1, 1, Tokens(pop_prev=True, push_prev=True))
    assert not simulate(Stream((loaded, stored, Finish(Tokens(pop_next=True)))), None, spec).races
    stored = replace(stored, tokens=Tokens(pop_prev=True))
    (race,) = simulate(Stream((loaded, stored, Finish())), None, spec).races
    assert (
        str(race) == "2 (compute) ends what 1 (store) writes, outputs[3], and nothing orders them"
    )


def test_a_word_that_nothing_wrote_is_told_of() -> None:
    spec = small("vta")
    run = simulate(Stream((Store(2, 0, 1, 1, 1),)), None, spec)
    assert run.unwritten == ((0, MemorySpace.ACCUMULATORS, 2),)


@pytest.mark.parametrize("seed", range(20))
def test_without_tokens_an_instruction_waits_for_those_that_it_shares_words_with(seed: int) -> None:
    spec = small("gemmini")
    given = stream(spec, random.Random(seed), 9)
    run = simulate(given, None, spec)
    assert not run.races
    when = {event.position: event for event in run.events}
    pairs = conflicts(given, spec, seed)
    assert all(when[first].end <= when[second].start for first, second in pairs)
    assert simulate_timing(given, spec).cycles == run.cycles


# The simulator against a literal reading of the instruction set, on random streams and random memories.


def unified() -> AcceleratorSpec:
    """A machine that keeps all operands in one memory, so that a sum may be an operand."""
    spec = small("gemmini")
    words = {
        place: replace(one, memory="all", depth=8) if place is not MemorySpace.MICRO_OPS else one
        for place, one in spec.words.items()
    }
    return replace(spec, words=words, memories={**spec.memories, "all": 8 * 24})


MACHINES = {
    "rows": small("vta"),
    "one row": small("vta", 1, 4, 2),
    "shared": small("gemmini"),
    "unified": unified(),
}


@pytest.mark.every(4)
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("seed", range(30))
def test_values_are_those_of_a_literal_reading(name: str, seed: int) -> None:
    spec = replace(MACHINES[name], tokens=False)
    given = stream(spec, random.Random(seed), 12)
    ours, theirs = memory(spec, seed), memory(spec, seed)
    run = simulate(given, ours, spec)
    literal = Literal(spec, theirs)
    literal.run(given)
    for place, array in ours.items():
        np.testing.assert_array_equal(array, theirs[place], err_msg=place.value)
    assert run.cycles > 0


def test_long_sums_of_the_largest_products_are_exact_and_wrap() -> None:
    spec = replace(AcceleratorSpec.of(shipped("vta")), tokens=False)
    words = 300  # 300 · 16 · 2¹⁴ is above 2²⁴, and not by a multiple of what float32 has
    inputs, weights = (
        np.full((words, 1, 16), -128, np.int8),
        np.full((words, 16, 16), -128, np.int8),
    )
    inputs[-1, 0, 0] = 1
    start = np.full((1, 1, 16), 2**31 - 1, np.int32)
    dram = {
        MemorySpace.INPUTS: inputs,
        MemorySpace.WEIGHTS: weights,
        MemorySpace.ACCUMULATORS: start,
        MemorySpace.OUTPUTS: np.zeros((1, 1, 16), np.int8),
    }
    ops = tuple(MicroOp(0, k, k) for k in range(words))
    run = (
        Load(MemorySpace.MICRO_OPS, 0, 0, 1, words, words),
        *(
            Load(place, 0, 0, 1, words, words)
            for place in (MemorySpace.INPUTS, MemorySpace.WEIGHTS)
        ),
        Load(MemorySpace.ACCUMULATORS, 0, 0, 1, 1, 1),
        Gemm(0, words),
        Store(0, 0, 1, 1, 1),
    )
    total = 2**31 - 1 + (words * 16 - 1) * 2**14 - 128
    for shift in (0, 8, 16, 24):
        shifted = (*run[:-1], Alu(AluOp.SHR, 0, 1, immediate=shift), run[-1])
        simulate(Stream(shifted, ops), dram, spec)
        expected = (total - 2**32 >> shift) % 256
        assert (dram[MemorySpace.OUTPUTS].view(np.uint8) == expected).all()


def test_a_reduction_in_one_word_keeps_its_order() -> None:
    spec = replace(small("vta", 1, 2, 2), tokens=False)
    values = np.array([3, -5, 7, 11], np.int32).reshape(4, 1, 1).repeat(2, 2)
    dram = {
        MemorySpace.ACCUMULATORS: values,
        MemorySpace.OUTPUTS: np.zeros((1, 1, 2), np.int8),
    }
    chain = (
        Load(MemorySpace.MICRO_OPS, 0, 0, 1, 1, 1),
        Load(MemorySpace.ACCUMULATORS, 0, 0, 1, 4, 4),
        Alu(AluOp.ADD, 0, 1, inner=Loop(3, 1, 1)),  # acc[k + 1] += acc[k], k = 0, 1, 2
        Store(3, 0, 1, 1, 1),
    )
    simulate(Stream(chain, (MicroOp(1, 0),)), dram, spec)
    assert dram[MemorySpace.OUTPUTS].tolist() == [[[16, 16]]]
