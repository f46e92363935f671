"""Every refusal of a machine description, in full: the file, its line, the field."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import refusals, rejection

import offcut as oc
from offcut.costmodel import Machine
from offcut.costmodel.machine_validation import linux_features
from offcut.errors import TargetError
from tests.facade import load_machine, shipped_machines

LIKE = 'name = "mine"\nlike = "cascade-lake"\n'
ENGINE = 'name = "mine"\ntitle = "so"\narchitecture = "so"\n[engine]\ncount = 1\nhertz = 1e8\nsource = "so"\n'
LEVEL = 'bytes = 64\nline = 64\nbytes_per_cycle = 1.0\nlatency_cycles = 1.0\nsource = "it is so"\n'


def level(name: str, count: int, line: int = 64) -> str:
    """A level of memory, in eight lines."""
    return (
        f'[[memory]]\nname = "{name}"\nbytes = {count}\nways = 1\nbytes_per_cycle = 1\n'
        f'latency_cycles = 1\nline = {line}\nsource = "so"\n'
    )


REFUSED = refusals(
    r"""
a field that there is not
given LIKE + "[core]\nhertzes = 3e9\n", ":4  core.hertzes"
the keys here are count, hertz, issue, multiply_adds, loads, stores, latency_cycles, code_bytes, source

a text for a number
given LIKE + '[core]\nhertz = "3 GHz"\n', ":4  core.hertz"
it is a number above 0, got '3 GHz'

a number below 0
given LIKE + "\n[threads]  # of one call\nchunk = -1\n", ":5  threads.chunk"
it is an int above 0, got -1

no finite number
given LIKE + "[core]\nhertz = inf\n", ":4  core.hertz"
it is a number above 0, got inf

a float for an int
given LIKE + "[tiles]\nunroll = 4.0\n", ":4  tiles.unroll"
it is an int above 0, got 4.0

a text that is empty
given LIKE + 'title = ""\n', ":3  title"
it is a text, got ''

a number for a table
given LIKE + "core = 3\n", ":3  core"
it is a table, [core]

a number for a list
given LIKE + "features = 3\n", ":3  features"
it is a list, got 3

a list without numbers
given LIKE + "[tiles]\nvectors_32 = []\n", ":4  tiles.vectors_32"
it is a list, got []

a machine that there is not
given 'name = "mine"\nlike = "zen9"\n', ":2  like"
no description that is shipped is named 'zen9'

a table that lacks
given LIKE + '[[memory]]\nname = "L0"\n', ":3  memory.0.bytes"
it is not stated, and no like= states it

a loop that is not unrolled
given LIKE + "[tiles]\nunroll = 6\n", ":4  tiles.unroll"
it is a power of 2, at least 4, got 6

a thread that never sleeps
given LIKE + "[threads]\nspin_cycles = 3000000000\n", ":3  threads"
spin_cycles, recent_cycles are at most 2147483647

a cache without its ways
given LIKE + "".join((f'[[memory]]\nname = "{name}"\n{LEVEL}' for name in ("L0", "L1", "L2"))), ":3  memory.0.ways"
it is not stated, and no like= states it

an element type that there is not
given LIKE + '[[unit]]\nname = "fma float32"\nof = ["float32", "float8"]\n', ":5  unit.0.of.1"
element types are float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, bool, got 'float8'

a unit of nothing
given LIKE + '[[unit]]\nname = "fma float32"\nof = []\n', ":5  unit.0.of"
a unit multiplies elements of some type

a table that is like none
given LIKE + '[energy]\nlike = "zen9"\n', ":4  energy.like"
no description that is shipped is named 'zen9'

a field of a table in a table
given LIKE + "[energy.add]\nint8 = 0.03\n\n[energy.multiply]\nint8 = -1\n", ":7  energy.multiply.int8"
it is a number above 0, got -1

a list of tables in a table
given LIKE + "[[energy.sram]]\nbytes = 1\npicojoules_per_byte = 1\n[[energy.sram]]\nbytes = true\npicojoules_per_byte = 1\n", ":7  energy.sram.1.bytes"
it is an int above 0, got True

memories that do not grow
given LIKE + "".join((f"[[energy.sram]]\nbytes = {n}\npicojoules_per_byte = 1\n" for n in (2, 1))), ":3  energy.sram"
the smallest memory comes first

an accelerator with a processor's table
given ENGINE + "[loops]\nchains = 4\n", ":8  loops"
the keys here are name, title, architecture, memory, dram, unit, energy, engine, control, queue, alu, grid

an accelerator that computes nothing
given ENGINE + '[[memory]]\nname = "all"\n' + LEVEL + '[dram]\nname = "all"\n' + LEVEL.partition("bytes = 64")[2], "  unit"
it is not stated, and no like= states it

a second table that is wrong
given LIKE + '[[memory]]\nname = "L1"\nbytes = 1\nways = 1\nbytes_per_cycle = 1\nsource = "so"\n[[memory]]\nbytes = true\n', ":9  memory.1.name"
it is not stated, and no like= states it

an element of a list
given LIKE + "[tiles]\nvectors_32 = [2, 4, 0]\n", ":4  tiles.vectors_32.2"
it is an int above 0, got 0

a file without a name
given 'like = "zen4"\n', "  name"
a description has a name of its own

a file that lacks
given 'name = "mine"\n', "  title"
it is not stated, and no like= states it

the name of one that is shipped
given LIKE.replace('name = "mine"', 'name = "zen4"'), ":1  name"
zen4 is shipped: it has a name of its own

two levels of one name
given LIKE + "".join((level("L1", n) for n in (1, 2, 3))), ":12  memory.1.name"
another level is called L1

a line that is no power of 2
given LIKE + "".join((level(f"L{n}", 8, line=3) for n in range(3))), ":9  memory.0.line"
it is a power of 2, got 3

tiles that no registers hold
given LIKE + "[tiles]\nvectors_32 = [12, 40]\n", ":4  tiles.vectors_32.1"
2 rows of 40, as many of B and one of A need more than 32 registers

one level of memory
given LIKE + '[[memory]]\nname = "L1"\nbytes = 1\nways = 1\nbytes_per_cycle = 1\nsource = "it is so"\n', ":3  memory"
packed operands stream from the third of its levels, and 1 stand there: a list is stated whole

nanoseconds for seconds
given LIKE + "[call]\ncall_seconds = 85.0\n", ":4  call.call_seconds"
85 seconds: machines have at most 0.001

MHz for hertz
given LIKE + "[core]\nhertz = 4100.0\n", ":4  core.hertz"
4100 cycles per second: machines have 1e+07 to 1e+10
  help     hertz = 4.1e+09, if 4100 is in MHz

GHz for hertz
given LIKE + "[core]\nhertz = 4.1\n", ":4  core.hertz"
4.1 cycles per second: machines have 1e+07 to 1e+10
  help     hertz = 4.1e+09, if 4.1 is in GHz

a clock of no machine
given LIKE + "[core]\nhertz = 4e12\n", ":4  core.hertz"
4e+12 cycles per second: machines have 1e+07 to 1e+10

a first level larger than the second
given LIKE + '[[memory]]\nname = "L1"\nbytes = 4194304\n[[memory]]\nname = "L2"\n[[memory]]\nname = "L3"\n', ":6  memory.1.bytes"
L2 holds 1,048,576 bytes, and L1, which is nearer, 4,194,304

a farther level that answers sooner
given LIKE + "[dram]\nlatency_cycles = 20.0\n", ":4  dram.latency_cycles"
DRAM answers in 20 cycles, and L3, which is nearer, in 60

GB/s for bytes per cycle
given LIKE + "[dram]\nbytes_per_cycle = 300.0\n", ":4  dram.bytes_per_cycle"
DRAM streams 300 bytes per cycle, and L3, which is nearer, 11.4

more ways than lines
given LIKE + '[[memory]]\nname = "L1"\nways = 1024\n[[memory]]\nname = "L2"\n[[memory]]\nname = "L3"\n', ":5  memory.0.ways"
1024 ways of lines of 64 bytes are more than its 32,768 bytes

a feature that there is not
given LIKE + 'features = ["avx2", "nonsense"]\n', ":3  features.1"
Linux names no feature 'nonsense' of x86_64
  help     names as /proc/cpuinfo lists them

a feature that is misspelt
given LIKE + 'features = ["avx2", "avx512-vnni"]\n', ":3  features.1"
Linux names no feature 'avx512-vnni' of x86_64: did you mean avx512_vnni or avx512_4vnniw or avx512vbmi?
  help     names as /proc/cpuinfo lists them

a share above 1
given LIKE + "[policy]\ngroup_share = 35.0\n", ":4  policy.group_share"
35 of the whole: machines have at most 1

a number of multiply-adds that no unit does
given LIKE + '[[unit]]\nname = "fma float32"\nmultiply_adds = 3e12\n', ":5  unit.0.multiply_adds"
3e+12 multiply-adds per cycle: machines have at most 1.04858e+06

a microkernel above any unit
given LIKE + '[[microkernel]]\nname = "fma_float32_avx512"\nrows = 4\ncolumns = 32\nmultiply_adds = 90000.0\nsource = "so"\n', ":7  microkernel.0.multiply_adds"
fma_float32_avx512 does 90000 multiply-adds per cycle, and the fastest unit 128

years to start a thread
given LIKE + "[threads]\ngrain_seconds = 1e9\n", ":4  threads.grain_seconds"
1e+09 seconds: machines have at most 3600
""",
    globals(),
)


def test_the_features_of_shipped_machines_are_known() -> None:
    for name in shipped_machines():
        machine = load_machine(name)
        known = linux_features(machine.architecture)
        assert not isinstance(machine, Machine) or known is None or known >= {*machine.features}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_is_refused_at_its_line(name: str, tmp_path: Path) -> None:
    text, where, because = REFUSED[name]
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with rejection(
        f"TargetError: target: cannot read the machine mine.toml\n  at       {path}{where}\n  because  {because}"
    ):
        load_machine(path)


def test_what_is_no_toml_is_refused_with_what_its_parser_says(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[core\n")
    with pytest.raises(TargetError) as refused:
        load_machine(path)
    first, at, because = str(refused.value).splitlines()
    assert first == "target: cannot read the machine mine.toml"
    assert at == f"  at       {path}"
    assert because.startswith("  because  it is not TOML: ")
    assert "line 1" in because


def test_a_file_that_is_not_there_and_one_that_is_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    for because in ("No such file or directory", "it is not text in UTF-8"):
        with rejection(
            "TargetError: target: cannot read the machine mine.toml\n"
            f"  at       {path}\n"
            f"  because  {because}\n"
            "  help     a description that is shipped: "
            "a100, avx2, cascade-lake, gemmini, h100, h200, neoverse-n1, sapphire-rapids, vta, vta-osdi18, zen4, zen5"
        ):
            load_machine(path)
        path.write_bytes(b"\xff\xfe")


def test_a_name_that_is_not_shipped_is_refused_with_those_that_are() -> None:
    with rejection(
        "TargetError: target: cannot plan for machine='zen9'\n"
        "  because  no description that is shipped has that name\n"
        "  help     a100, avx2, cascade-lake, gemmini, h100, h200, neoverse-n1, sapphire-rapids, vta, vta-osdi18, zen4, zen5\n"
        '  help     machine="mine.toml" reads a file'
    ):
        load_machine("zen9")


def test_a_machine_is_a_name_a_path_or_a_description() -> None:
    with rejection("""\
TargetError: target: cannot plan for machine=3
  because  a machine is the name of a description, the path of one, or a Device
  help     a100, avx2, cascade-lake, gemmini, h100, h200, neoverse-n1, sapphire-rapids, vta, vta-osdi18, zen4, zen5"""):
        oc.target("cpu", machine=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["gemmini", "h200", "vta", "vta-osdi18"])
def test_a_machine_that_is_no_processor_is_not_planned_for_as_one(name: str) -> None:
    with rejection(f"""\
TargetError: target: cannot plan for machine='{name}'
  because  {load_machine(name).title} is not a processor: its description has no [core]
  help     oc.target("cpu", machine="cascade-lake")"""):
        oc.target("cpu", machine=name)
    with pytest.raises(oc.TargetError, match=f"cannot interpret for machine='{name}'"):
        oc.target("interpret", machine=name)
