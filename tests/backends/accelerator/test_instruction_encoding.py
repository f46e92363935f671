"""Instructions as bits and back, and as lines."""

from __future__ import annotations

import random

import pytest
from conftest import rejection

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
)
from offcut.backends.accelerator.isa.encoding import (
    decode,
    decode_micro_op,
    encode,
    encode_micro_op,
)
from offcut.backends.accelerator.isa.listing import listing
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.errors import StreamError
from tests.backends.accelerator.machines import shipped, small

SPECS = {
    **{name: AcceleratorSpec.of(shipped(name)) for name in ("vta", "vta-osdi18", "gemmini")},
    "small": small("vta"),
}
VTA = SPECS["vta"]


def any_instruction(spec: AcceleratorSpec, rng: random.Random) -> Instruction:
    """An instruction whose fields hold any bits, at their ends more often than not."""

    def bits(count: int) -> int:
        return rng.choice([0, (1 << count) - 1, rng.getrandbits(count)])

    def loop(*widths: int) -> Loop:
        return Loop(bits(14), *map(bits, widths))

    tokens = Tokens(*(rng.random() < 0.5 for _ in range(4)))
    dst, src, wgt, ops = (
        (spec.words[place].depth - 1).bit_length()
        for place in (
            MemorySpace.ACCUMULATORS,
            MemorySpace.INPUTS,
            MemorySpace.WEIGHTS,
            MemorySpace.MICRO_OPS,
        )
    )
    kind = rng.randrange(5)
    block = (bits(16), bits(32), bits(16), bits(16), bits(16))
    if kind == 0:
        pad = (bits(4), bits(4), bits(4), bits(4))
        return Load(rng.choice(list(MemorySpace)[:-1]), *block, pad, tokens)
    if kind == 1:
        return Store(*block, tokens)
    if kind == 2:
        loops = loop(dst, src, wgt), loop(dst, src, wgt)
        return Gemm(bits(ops), bits(ops + 1), *loops, rng.random() < 0.5, tokens)
    if kind == 3:
        immediate = rng.choice([None, -(1 << 15), (1 << 15) - 1, rng.randrange(-99, 99)])
        op = rng.choice(list(AluOp))
        return Alu(op, bits(ops), bits(ops + 1), loop(dst, dst), loop(dst, dst), immediate, tokens)
    return Finish(tokens)


@pytest.mark.parametrize("name", SPECS)
def test_what_is_encoded_is_decoded(name: str) -> None:
    spec, rng = SPECS[name], random.Random(0)
    seen = set()
    for _ in range(1000):
        instruction = any_instruction(spec, rng)
        word = encode(instruction, spec)
        assert 0 <= word < 1 << 128
        assert decode(word, spec) == instruction
        seen.add(type(instruction))
    assert len(seen) == 5


@pytest.mark.parametrize("name", SPECS)
def test_micro_ops_that_are_encoded_are_decoded(name: str) -> None:
    spec, rng = SPECS[name], random.Random(1)
    depths = [
        spec.words[place].depth
        for place in (MemorySpace.ACCUMULATORS, MemorySpace.INPUTS, MemorySpace.WEIGHTS)
    ]
    for _ in range(200):
        op = MicroOp(*(rng.randrange(depth) for depth in depths))
        word = encode_micro_op(op, spec)
        assert word < 1 << 8 * spec.words[MemorySpace.MICRO_OPS].bytes
        assert decode_micro_op(word, spec) == op


def test_fields_of_vta_lie_where_its_repository_has_them() -> None:
    """Positions written out from the structures of hw_spec.h, whose bit fields begin at the lowest bit of 64."""
    load = Load(MemorySpace.INPUTS, 5, 7, 2, 3, 9, (1, 0, 4, 8), Tokens(True, False, False, True))
    first = 0 | 1 << 3 | 1 << 6 | 2 << 7 | 5 << 10 | 7 << 26
    second = 2 | 3 << 16 | 9 << 32 | 1 << 48 | 4 << 56 | 8 << 60
    assert encode(load, VTA) == first | second << 64
    gemm = Gemm(3, 8, Loop(14, 1, 2, 3), Loop(15, 4, 5, 6), True, Tokens(False, True))
    first = 2 | 1 << 4 | 1 << 7 | 3 << 8 | 8 << 21 | 14 << 35 | 15 << 49
    second = 1 | 4 << 11 | 2 << 22 | 5 << 33 | 3 << 44 | 6 << 54
    assert encode(gemm, VTA) == first | second << 64
    alu = Alu(AluOp.SHR, 0, 1, Loop(2, 3, 4), Loop(5, 6, 7), -8)
    first = 4 | 1 << 21 | 2 << 35 | 5 << 49
    second = 3 | 6 << 11 | 4 << 22 | 7 << 33 | 3 << 44 | 1 << 47 | (1 << 16) - 8 << 48
    assert encode(alu, VTA) == first | second << 64
    assert encode_micro_op(MicroOp(1, 2, 3), VTA) == 1 | 2 << 11 | 3 << 22


UNFIT = {
    "an address": (
        Load(MemorySpace.INPUTS, 1 << 16, 0, 1, 1, 1),
        "sram = 65536, and its field has 16 bits: 0 to 65535",
    ),
    "a padding": (
        Load(MemorySpace.INPUTS, 0, 0, 1, 1, 1, (16, 0, 0, 0)),
        "pad_top = 16, and its field has 4 bits: 0 to 15",
    ),
    "a loop": (Gemm(0, 1, Loop(1 << 14)), "outer = 16384, and its field has 14 bits: 0 to 16383"),
    "a factor": (
        Gemm(0, 1, inner=Loop(1, 0, 0, 1024)),
        "inner_wgt = 1024, and its field has 10 bits: 0 to 1023",
    ),
    "a number below 0": (
        Store(0, -1, 1, 1, 1),
        "dram = -1, and its field has 32 bits: 0 to 4294967295",
    ),
    "an immediate": (
        Alu(AluOp.ADD, 0, 1, immediate=32768),
        "immediate = 32768, and its field has 16 bits: -32768 to 32767",
    ),
    "weights of the vector unit": (
        Alu(AluOp.ADD, 0, 1, Loop(1, 0, 0, 1)),
        "outer_wgt = 1, and there is no such field",
    ),
    "outputs that are loaded": (
        Load(MemorySpace.OUTPUTS, 0, 0, 1, 1, 1),
        "outputs are stored, never loaded",
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_refused_with_its_field(name: str) -> None:
    instruction, because = UNFIT[name]
    with pytest.raises(StreamError) as refused:
        encode(instruction, VTA)
    assert refused.value.because == because


def test_a_refusal_in_full() -> None:
    with rejection("""\
StreamError: encode: cannot encode an instruction
  at       gemm of micro-ops[0:1], 16384 times by 0 0 0
  because  outer = 16384, and its field has 14 bits: 0 to 16383"""):
        encode(Gemm(0, 1, Loop(1 << 14)), VTA)
    with rejection("""\
StreamError: encode: cannot encode a micro-op
  at       MicroOp(dst=2048, src=0, wgt=0)
  because  dst = 2048, and its field has 11 bits: 0 to 2047"""):
        encode_micro_op(MicroOp(2048), VTA)


@pytest.mark.parametrize(
    ("word", "because"),
    [
        (7, "no instruction has the opcode 7"),
        (4 << 7, "no load has such fields"),
        (4 | 7 << 64 + 44, "no alu has such fields"),
        (3 | 1 << 100, "bits are set that no field has"),
    ],
)
def test_bits_that_mean_nothing_are_refused(word: int, because: str) -> None:
    with rejection(
        f"StreamError: decode: cannot decode bits\n  at       0x{word:032x}\n  because  {because}"
    ):
        decode(word, VTA)


def test_a_listing_says_what_each_instruction_touches_and_for_whom_it_waits() -> None:
    stream = Stream(
        (
            Load(MemorySpace.MICRO_OPS, 0, 0, 1, 2, 2),
            Load(MemorySpace.INPUTS, 0, 64, 2, 6, 8, (1, 1, 1, 1), Tokens(push_next=True)),
            Gemm(0, 2, Loop(4, 4, 8), Loop(4, 1, 1), reset=True),
            Gemm(0, 2, Loop(4, 4, 8), Loop(4, 1, 1), tokens=Tokens(True, False, True, False)),
            Alu(AluOp.SHR, 0, 1, Loop(16, 1), immediate=8),
            Alu(AluOp.ADD, 0, 1, Loop(16, 1, 1), tokens=Tokens(push_next=True)),
            Store(0, 32, 2, 8, 16, Tokens(True)),
            Finish(),
        ),
        (MicroOp(0, 0, 0), MicroOp(0, 1, 9)),
    )
    names = {MemorySpace.INPUTS: {0: "W", 60: "X"}, MemorySpace.OUTPUTS: {0: "Y"}}
    assert (
        listing(stream, VTA, names)
        == """\
   0  compute                        micro-ops[0:2] = dram[0:2]
   1  load     tell compute          inputs[0:32] = X[4:18], 2 rows of 6 every 8, zeros 1 1 1 1
   2  compute                        accumulators[0:16] = 0  of micro-ops[0:2], 4 times by 4 8 0, 4 times by 1 1 0
   3  compute  wait load; tell load  accumulators[0:16] += inputs[0:29] · weights[0:10]  of micro-ops[0:2], 4 times by 4 8 0, 4 times by 1 1 0
   4  compute                        accumulators[0:16] >>= 8  of micro-ops[0:1], 16 times by 1 0 0
   5  compute  tell store            accumulators[0:16] += accumulators[0:16]  of micro-ops[0:1], 16 times by 1 1 0
   6  store    wait compute          Y[32:56] = int8(accumulators[0:16]), 2 rows of 8 every 16
   7  compute                        finish"""
    )
