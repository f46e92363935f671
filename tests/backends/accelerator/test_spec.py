"""From a description to numbers: what changes with what, and descriptions that cannot work."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import refusals, rejection

from offcut.backends.accelerator.isa import MemorySpace, Unit
from offcut.backends.accelerator.spec import AcceleratorSpec
from tests.backends.accelerator.machines import shipped
from tests.facade import load_machine

MINE = 'name = "mine"\nlike = "vta"\n'
MEMORIES = ("micro-ops", "inputs", "weights", "accumulators", "outputs")


def spec_of(tmp_path: Path, text: str) -> AcceleratorSpec:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return AcceleratorSpec.of(load_machine(path))


def memories(**changes: str) -> str:
    """The list of memories, some with fields of their own; it begins at line 3."""
    blocks = (f'[[memory]]\nname = "{name}"\n{changes.get(name, "")}' for name in MEMORIES)
    return MINE + "".join(blocks)


@pytest.mark.parametrize(
    ("name", "depths"),
    [
        ("vta", (8192, 2048, 1024, 2048, 2048)),
        ("vta-osdi18", (8192, 2048, 128, 2048, 2048)),
        ("gemmini", (2048, 16384, 1024, 1024, 1024)),
    ],
)
def test_words_of_the_shipped_machines(name: str, depths: tuple[int, ...]) -> None:
    spec = AcceleratorSpec.of(shipped(name))
    assert tuple(spec.words[place].depth for place in MemorySpace) == depths
    assert spec.gemm_cycles == 1
    assert (spec.rows, spec.columns, spec.terms) == (1, 16, 16)


def test_who_loads_what_and_who_waits_how() -> None:
    vta, gemmini = AcceleratorSpec.of(shipped("vta")), AcceleratorSpec.of(shipped("gemmini"))
    assert vta.tokens
    assert not gemmini.tokens
    assert vta.loads[MemorySpace.ACCUMULATORS] is Unit.COMPUTE
    assert gemmini.loads[MemorySpace.ACCUMULATORS] is Unit.LOAD
    assert gemmini.words[MemorySpace.INPUTS].memory == gemmini.words[MemorySpace.WEIGHTS].memory


def test_another_matrix_unit_has_other_words(tmp_path: Path) -> None:
    unit = '[[unit]]\nname = "gemm"\nrows = 2\ncolumns = 32\nterms = 8\n'
    spec = spec_of(tmp_path, MINE + unit)
    assert {place: spec.words[place].bytes for place in MemorySpace} == {
        MemorySpace.MICRO_OPS: 4,
        MemorySpace.INPUTS: 2 * 8,
        MemorySpace.WEIGHTS: 32 * 8,
        MemorySpace.ACCUMULATORS: 2 * 32 * 4,
        MemorySpace.OUTPUTS: 2 * 32,
    }
    assert spec.words[MemorySpace.ACCUMULATORS].depth == 131072 // 256
    assert spec.gemm_cycles == 2


def test_a_bus_and_a_clock_of_ones_own(tmp_path: Path) -> None:
    bus = "[dram]\nbytes_per_cycle = 16.0\nlatency_cycles = 0\nline = 16\n"
    spec = spec_of(tmp_path, MINE + bus + "[engine]\nhertz = 3e8\n[control]\ntokens = false\n")
    assert (spec.bus_bytes, spec.row_cycles, spec.beat) == (16, 0, 16)
    assert (spec.hertz, spec.tokens) == (3e8, False)


def test_a_machine_without_queues_has_no_spec() -> None:
    with rejection(f"""\
TargetError: target: cannot plan for machine='zen4'
  because  {load_machine("zen4").title} is not a machine of queues: its description has no [control]
  help     oc.target("vta")"""):
        AcceleratorSpec.of(load_machine("zen4"))


QUEUE = '[[queue]]\nname = "{}"\nloads = [{}]\ndepth = 1\ninstruction_cycles = 0\nsource = "so"\n'

REFUSED = refusals(
    r"""
a memory smaller than a word
given memories(weights="bytes = 255\n"), ":9  memory.2.bytes"
a word of weights has 256 bytes, by gemm, and the memory 255

a matrix unit without a memory for an operand
given memories(weights='holds = ["outputs"]\n', outputs="holds = []\n"), ":3  memory"
no memory holds weights

an operand in two memories
given memories(outputs='holds = ["inputs"]\n'), ":13  memory.4.holds.0"
inputs are held by inputs

an operand that there is not
given memories(inputs='holds = ["inputs", "A"]\n'), ":7  memory.1.holds.1"
operands are micro-ops, inputs, weights, accumulators, outputs, got 'A'

micro-ops beside others
given memories(weights="holds = []\n", **{"micro-ops": 'holds = ["micro-ops", "weights"]\n'}), ":5  memory.0.holds"
micro-ops are held alone

outputs beside inputs
given memories(inputs='holds = ["inputs", "outputs"]\n', outputs="holds = []\n"), ":7  memory.1.holds"
outputs are accumulators as they are stored: they are held alone, or with these

micro-ops that are too narrow
given memories(inputs="bytes = 1048576\n"), ":3  memory.0.line"
a micro-op that names any word has 37 bits, and 4 bytes are moved at a time
  help     line = 8
  help     fewer words, by fewer bytes of memories: there are, with the bits that name one, 8,192 of micro-ops (13), 65,536 of inputs (16), 1,024 of weights (10), 2,048 of accumulators (11), 2,048 of outputs (11)

a unit of other words that leave micro-ops too narrow
given MINE + '[[unit]]\nname = "gemm"\ncolumns = 8\nterms = 32\n', "  memory.0.line"
a micro-op that names any word has 34 bits, and 4 bytes are moved at a time
  help     line = 8
  help     fewer words, by fewer bytes of memories: there are, with the bits that name one, 8,192 of micro-ops (13), 1,024 of inputs (10), 1,024 of weights (10), 4,096 of accumulators (12), 4,096 of outputs (12)

instructions that are too narrow
given memories(accumulators="bytes = 134217728\n", **{"micro-ops": "line = 8\n"}), ":3  memory"
with so many words an instruction gemm has 145 bits, and there are 128
  help     fewer words, by fewer bytes of memories: there are, with the bits that name one, 4,096 of micro-ops (12), 2,048 of inputs (11), 1,024 of weights (10), 2,097,152 of accumulators (21), 2,048 of outputs (11)

no matrix unit
given MINE + '[[unit]]\nname = "gemm"\nof = ["int32"]\n', ":3  unit"
no unit multiplies int8

a queue that there is not
given MINE + QUEUE.format("loads", ""), ":4  queue.0.name"
queues are load, compute, store, one of each, got 'loads'

a queue that lacks
given MINE + QUEUE.format("load", "") + QUEUE.format("store", ""), ":3  queue"
there is no queue 'compute'

words that nobody loads
given MINE + '[[queue]]\nname = "load"\nloads = ["inputs"]\n[[queue]]\nname = "compute"\n[[queue]]\nname = "store"\n', ":3  queue"
no queue loads weights

words that two load
given MINE + '[[queue]]\nname = "load"\n[[queue]]\nname = "compute"\nloads = ["inputs"]\n[[queue]]\nname = "store"\n', ":7  queue.1.loads.0"
inputs are loaded by load

outputs that are loaded
given MINE + '[[queue]]\nname = "load"\nloads = ["outputs"]\n[[queue]]\nname = "compute"\n[[queue]]\nname = "store"\n', ":5  queue.0.loads.0"
operands that are loaded are micro-ops, inputs, weights, accumulators, got 'outputs'

a store that loads
given MINE + '[[queue]]\nname = "load"\n[[queue]]\nname = "compute"\n[[queue]]\nname = "store"\nloads = ["inputs"]\n', ":9  queue.2.loads.0"
what stores loads nothing

micro-ops that another unit loads
given MINE + '[[queue]]\nname = "load"\nloads = ["micro-ops"]\n[[queue]]\nname = "compute"\n[[queue]]\nname = "store"\n', ":5  queue.0.loads.0"
with tokens compute loads micro-ops, and not load

an operation that there is not
given MINE + '[alu]\noperations = ["min", "xor"]\n', ":4  alu.operations.1"
operations are min, max, add, shr, mul, got 'xor'

no answer
given MINE + "[control]\ntokens = 1\n", ":4  control.tokens"
it is true or false, got 1

cycles below 0
given MINE + "[control]\nfetch_cycles = -1\n", ":4  control.fetch_cycles"
it is a number, 0 or above, got -1

queues alone
given 'name = "mine"\nlike = "h200"\n[control]\ntokens = true\ntoken_depth = 1\nfetch_cycles = 0\nsource = "so"\n', "  queue"
it is not stated, and a machine of queues has it
""",
    globals(),
)


@pytest.mark.parametrize("name", REFUSED)
def test_a_description_that_cannot_work_is_refused_with_its_line(name: str, tmp_path: Path) -> None:
    text, where, because = REFUSED[name]
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with rejection(
        f"TargetError: target: cannot read the machine mine.toml\n  at       {path}{where}\n  because  {because}"
    ):
        load_machine(path)
