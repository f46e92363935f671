"""Every refusal of an instruction stream, in full."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from conftest import refusals, rejection

import offcut as oc
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
from offcut.backends.accelerator.isa.encoding import decode, encode
from offcut.backends.accelerator.isa.listing import listing
from offcut.backends.accelerator.simulator import simulate, simulate_timing
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.errors import OffcutError, StreamError
from tests.facade import load_machine

VTA, GEMMINI = (AcceleratorSpec.of(load_machine(name)) for name in ("vta", "gemmini"))
DRAM = {
    MemorySpace.INPUTS: np.zeros((4, 1, 16), np.int8),
    MemorySpace.OUTPUTS: np.zeros((4, 1, 16), np.int8),
}
OPS = Load(MemorySpace.MICRO_OPS, 0, 0, 1, 1, 1)

REFUSED: dict[str, tuple[tuple[Instruction, ...], str, str]] = {
    "words that the chip has not": (
        (Load(MemorySpace.INPUTS, 2040, 0, 3, 3, 3),),
        "0: load inputs[2040] = dram[0], 3 rows of 3 every 3",
        "it touches inputs[2040:2049], and there are 2048 words",
    ),
    "an array that is not given": (
        (Load(MemorySpace.WEIGHTS, 0, 0, 1, 1, 1),),
        "0: load weights[0] = dram[0], 1 row of 1",
        "it touches weights[0:1] of main memory, and there are 0 words",
    ),
    "results that the array has no room for": (
        (Store(0, 3, 1, 2, 2),),
        "0: store dram[3] = accumulators[0], 1 row of 2",
        "it touches outputs[3:5] of main memory, and there are 4 words",
    ),
    "a loop that leaves the accumulators": (
        (OPS, Gemm(0, 1, Loop(3, 1024), reset=True)),
        "1: gemm reset of micro-ops[0:1], 3 times by 1024 0 0",
        "it touches accumulators[0:2049], and there are 2048 words",
    ),
    "micro-ops that there are not": (
        (Gemm(0, 8193),),
        "0: gemm of micro-ops[0:8193]",
        "it touches micro-ops[0:8193], and there are 8192 words",
    ),
    "a field that does not fit": (
        (Store(0, 0, 1 << 16, 0, 0),),
        "0: store dram[0] = accumulators[0], 65536 rows of 0 every 0",
        "y = 65536, and its field has 16 bits: 0 to 65535",
    ),
    "a token to nobody": (
        (OPS, Store(0, 0, 1, 1, 1, Tokens(push_next=True))),
        "1: store dram[0] = accumulators[0], 1 row of 1",
        "store has no unit after it",
    ),
    "a token from nobody": (
        (Load(MemorySpace.INPUTS, 0, 0, 1, 1, 1, tokens=Tokens(pop_prev=True)),),
        "0: load inputs[0] = dram[0], 1 row of 1",
        "load has no unit before it",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_instruction_that_means_nothing_is_refused(name: str) -> None:
    instructions, at, because = REFUSED[name]
    with rejection(
        f"StreamError: simulate: cannot run an instruction\n  at       instruction {at}\n  because  {because}"
    ):
        simulate(Stream(instructions, (MicroOp(0),)), DRAM, VTA)


def test_tokens_are_refused_by_a_machine_that_has_none() -> None:
    with pytest.raises(oc.StreamError) as refused:
        simulate(Stream((Finish(Tokens(push_next=True)),)), None, GEMMINI)
    assert refused.value.because == "gemmini has no tokens"


def test_an_operation_is_refused_by_a_machine_that_has_it_not() -> None:
    spec = replace(VTA, alu=frozenset({"min", "add"}))
    with pytest.raises(oc.StreamError) as refused:
        simulate(Stream((Alu(AluOp.MUL, 0, 1),)), None, spec)
    assert refused.value.because == "vta has no mul: it has add, min"


def test_arrays_of_other_words_are_refused() -> None:
    with rejection("""\
StreamError: simulate: cannot take an array as weights
  because  words of weights are int8[16, 16], got int8[16]"""):
        simulate(Stream(()), {MemorySpace.WEIGHTS: np.zeros((3, 16), np.int8)}, VTA)


def test_a_standstill_says_who_waits_for_whom() -> None:
    stream = Stream(
        (
            Load(MemorySpace.INPUTS, 0, 0, 1, 1, 1, tokens=Tokens(pop_next=True)),
            Gemm(0, 0, tokens=Tokens(pop_prev=True, pop_next=True)),
            Store(0, 0, 1, 1, 1),
        )
    )
    with rejection("""\
StreamError: simulate: the stream comes to a standstill
  at       instruction 0: load inputs[0] = dram[0], 1 row of 1
  because  load, at 0, waits for a token of compute; compute, at 1, waits for a token of load, store; store has run all of its instructions"""):
        simulate(stream, None, VTA)


def test_a_standstill_by_full_queues_says_which() -> None:
    spec = replace(VTA, token_depth=1, queue_depth=dict.fromkeys(VTA.queue_depth, 1))
    one = Load(MemorySpace.INPUTS, 0, 0, 1, 1, 1, tokens=Tokens(push_next=True))
    with rejection("""\
StreamError: simulate: the stream comes to a standstill
  at       instruction 1: load inputs[0] = dram[0], 1 row of 1
  because  load, at 1, waits for room for a token to compute; compute waits for instruction 4; store has run all of its instructions; instruction 3 waits for room in the queue of load, of 1"""):
        simulate(Stream((one, one, one, one, Finish(Tokens(pop_prev=True)))), None, spec)


GIVEN = refusals(
    r"""
>>> simulate(None, None, VTA)
simulate: cannot take None as a stream
  because  it is of type NoneType, not Stream
  help     Stream((Load(…), …, Finish()), micro_ops=(MicroOp(…), …))

>>> simulate_timing(Stream((Finish(),)), 'vta')
timed: cannot take 'vta' as the machine
  because  it is of type str, not Spec
  help     AcceleratorSpec.of(load("vta")) is a description in numbers

>>> AcceleratorSpec.of('vta')
target: cannot plan for 'vta'
  because  it is of type str, not the description of a machine
  help     AcceleratorSpec.of(load("vta"))

>>> simulate_timing(Stream(Finish()), VTA)
timed: cannot take Finish(tokens=Tokens(pop_prev=False, pop_next=False, push_pr… as instructions
  because  it is of type Finish, not a tuple

>>> listing(Stream(('load',)), VTA)
listing: cannot take 'load'
  at       instruction 0
  because  instructions are Load, Store, Gemm, Alu, Finish

>>> simulate(Stream((OPS,), ((0, 0, 0),)), None, VTA)
simulate: cannot take (0, 0, 0)
  at       micro-op 0
  because  it is not a MicroOp

>>> encode(Finish(tokens=True), VTA)
encode: cannot take Finish(tokens=True)
  because  tokens = True is not Tokens of True and False

>>> encode(Gemm(0, 1, 3), VTA)
encode: cannot take Gemm(begin=0, end=1, outer=3, inner=Loop(extent=1, dst=0, sr…
  because  outer = 3 is not a Loop of integers

>>> decode('0x8', VTA)
decode: cannot decode '0x8'
  because  it is of type str, not an integer

>>> simulate(Stream((OPS,), (MicroOp(0),)), [1], VTA)
simulate: cannot take dram
  because  it is of type list, not a dict of arrays by Place
  help     dram=None for times without values

>>> simulate(Stream((OPS,), (MicroOp(0),)), {'inputs': np.zeros(3)}, VTA)
simulate: cannot take dram['inputs']
  because  it is of type ndarray; arrays of words are given by Place
  help     {Place.INPUTS: numpy array of words}

>>> simulate(Stream((Load(MemorySpace.MICRO_OPS, 0, 0, 1, 9, 9),), (MicroOp(0),)), None, VTA)
simulate: cannot run an instruction
  at       instruction 0: load micro-ops[0] = dram[0], 1 row of 9
  because  it touches micro-ops[0:9] of main memory, and there are 1 words

>>> simulate(Stream((Load(MemorySpace.OUTPUTS, 0, 0, 1, 1, 1),)), None, VTA)
simulate: cannot run an instruction
  at       instruction 0: load outputs[0] = dram[0], 1 row of 1
  because  outputs are stored, never loaded
""",
    globals() | {"decode": decode, "encode": encode, "listing": listing},
)

FIELDS: dict[str, tuple[Instruction, str]] = {
    "a place by its name": (Load("inputs", 0, 0, 1, 1, 1), "place = 'inputs' is not a Place"),  # type: ignore[arg-type]
    "three pads": (
        Load(MemorySpace.INPUTS, 0, 0, 1, 1, 1, (0, 0, 0)),  # type: ignore[arg-type]
        "pad = (0, 0, 0) is not four integers: rows above and below, words left and right",
    ),
    "a loop of half a turn": (
        Gemm(0, 1, Loop(0.5)),  # type: ignore[arg-type]
        "outer = Loop(extent=0.5, dst=0, src=0, wgt=0) is not a Loop of integers",
    ),
    "an operation by its name": (Alu("shr", 0, 1), "op = 'shr' is not an AluOp"),  # type: ignore[arg-type]
    "half an immediate": (
        Alu(AluOp.ADD, 0, 1, immediate=4.5),  # type: ignore[arg-type]
        "immediate = 4.5 is not an integer, or None for a second word",
    ),
    "a name of whom to wait for": (
        Finish(Tokens(pop_prev="x")),  # type: ignore[arg-type]
        "tokens = Tokens(pop_prev='x', pop_next=False, push_prev=False, push_n… is not Tokens of True and False",
    ),
    "a count of resets": (Gemm(0, 1, reset=1), "reset = 1 is not True or False"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", GIVEN)
def test_what_is_no_stream_no_machine_and_no_words_is_refused(case: str) -> None:
    ask, text = GIVEN[case]
    with pytest.raises(OffcutError) as refused:
        ask()
    assert str(refused.value) == text


@pytest.mark.parametrize("case", FIELDS)
def test_a_field_of_another_type_is_refused_with_its_name(case: str) -> None:
    instruction, because = FIELDS[case]
    for ask in (simulate, lambda stream, dram, spec: simulate_timing(stream, spec)):
        with pytest.raises(StreamError) as refused:
            ask(Stream((OPS, instruction), (MicroOp(0),)), None, VTA)
        assert refused.value.at == "instruction 1"
        assert refused.value.because == because


RECORDS = (Load(MemorySpace.INPUTS, 0, 0, 1, 1, 1), Store(0, 0, 1, 1, 1), Gemm(0, 1), Finish())


@pytest.mark.parametrize(
    "record",
    [*RECORDS, Alu(AluOp.ADD, 0, 1), MicroOp(0), Loop(), Tokens()],
    ids=lambda record: type(record).__name__,
)
def test_each_field_of_each_record_is_checked(
    record: Instruction | MicroOp | Loop | Tokens,
) -> None:
    for field in fields(record):
        other = replace(record, **{field.name: "x"})
        match other:
            case MicroOp():
                stream = Stream((OPS,), (other,))
            case Loop():
                stream = Stream((OPS, Gemm(0, 1, inner=other)), (MicroOp(0),))
            case Tokens():
                stream = Stream((OPS, Finish(other)), (MicroOp(0),))
            case _:
                stream = Stream((OPS, other), (MicroOp(0),))
        with pytest.raises(StreamError, match="is not") as refused:
            simulate(stream, None, VTA)
        assert f"{field.name} = " in str(refused.value.because) or isinstance(other, Loop | Tokens)
