"""Every refusal of a machine, in full: its description, by file, line and field; words of a text that it has not; targets that give something else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import refusals, rejection

import offcut as oc
from offcut import Target
from offcut.backends.target import TargetPlan
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
given LIKE + "[core]\nhertzes = 3e9\n", ":4  core.hertzes"
the keys here are count, hertz, issue, multiply_adds, loads, stores, latency_cycles, code_bytes, source

given LIKE + '[core]\nhertz = "3 GHz"\n', ":4  core.hertz"
it is a number above 0, got '3 GHz'

given LIKE + "[core]\nhertz = inf\n", ":4  core.hertz"
it is a number above 0, got inf

given LIKE + "[tiles]\nunroll = 4.0\n", ":4  tiles.unroll"
it is an int above 0, got 4.0

given LIKE + 'title = ""\n', ":3  title"
it is a text, got ''

given LIKE + "core = 3\n", ":3  core"
it is a table, [core]

given LIKE + "features = 3\n", ":3  features"
it is a list, got 3

given LIKE + "[tiles]\nvectors_32 = []\n", ":4  tiles.vectors_32"
it is a list, got []

given 'name = "mine"\nlike = "zen9"\n', ":2  like"
no description that is shipped is named 'zen9'

given LIKE + '[[memory]]\nname = "L0"\n', ":3  memory.0.bytes"
it is not stated, and no like= states it

given LIKE + "[tiles]\nunroll = 6\n", ":4  tiles.unroll"
it is a power of 2, at least 4, got 6

given LIKE + "[threads]\nspin_cycles = 3000000000\n", ":3  threads"
spin_cycles, recent_cycles are at most 2147483647

given LIKE + '[[unit]]\nname = "fma float32"\nof = ["float32", "float8"]\n', ":5  unit.0.of.1"
element types are float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, bool, got 'float8'

given LIKE + '[[unit]]\nname = "fma float32"\nof = []\n', ":5  unit.0.of"
a unit multiplies elements of some type

given LIKE + "[energy.add]\nint8 = 0.03\n\n[energy.multiply]\nint8 = -1\n", ":7  energy.multiply.int8"
it is a number above 0, got -1

given LIKE + "[[energy.sram]]\nbytes = 1\npicojoules_per_byte = 1\n[[energy.sram]]\nbytes = true\npicojoules_per_byte = 1\n", ":7  energy.sram.1.bytes"
it is an int above 0, got True

given LIKE + "".join((f"[[energy.sram]]\nbytes = {n}\npicojoules_per_byte = 1\n" for n in (2, 1))), ":3  energy.sram"
the smallest memory comes first

given ENGINE + "[loops]\nchains = 4\n", ":8  loops"
the keys here are name, title, architecture, memory, dram, unit, energy, engine, control, queue, alu, grid

given ENGINE + '[[memory]]\nname = "all"\n' + LEVEL + '[dram]\nname = "all"\n' + LEVEL.partition("bytes = 64")[2], "  unit"
it is not stated, and no like= states it

given LIKE + "[tiles]\nvectors_32 = [2, 4, 0]\n", ":4  tiles.vectors_32.2"
it is an int above 0, got 0

given 'like = "zen4"\n', "  name"
a description has a name of its own

given 'name = "mine"\n', "  title"
it is not stated, and no like= states it

given LIKE.replace('name = "mine"', 'name = "zen4"'), ":1  name"
zen4 is shipped: it has a name of its own

given LIKE + "".join((level("L1", n) for n in (1, 2, 3))), ":12  memory.1.name"
another level is called L1

given LIKE + "".join((level(f"L{n}", 8, line=3) for n in range(3))), ":9  memory.0.line"
it is a power of 2, got 3

given LIKE + "[tiles]\nvectors_32 = [12, 40]\n", ":4  tiles.vectors_32.1"
2 rows of 40, as many of B and one of A need more than 32 registers

given LIKE + '[[memory]]\nname = "L1"\nbytes = 1\nways = 1\nbytes_per_cycle = 1\nsource = "it is so"\n', ":3  memory"
packed operands stream from the third of its levels, and 1 stand there: a list is stated whole

given LIKE + "[call]\ncall_seconds = 85.0\n", ":4  call.call_seconds"
85 seconds: machines have at most 0.001

given LIKE + "[core]\nhertz = 4100.0\n", ":4  core.hertz"
4100 cycles per second: machines have 1e+07 to 1e+10
  help     hertz = 4.1e+09, if 4100 is in MHz

given LIKE + "[core]\nhertz = 4.1\n", ":4  core.hertz"
4.1 cycles per second: machines have 1e+07 to 1e+10
  help     hertz = 4.1e+09, if 4.1 is in GHz

given LIKE + "[core]\nhertz = 4e12\n", ":4  core.hertz"
4e+12 cycles per second: machines have 1e+07 to 1e+10

given LIKE + '[[memory]]\nname = "L1"\nbytes = 4194304\n[[memory]]\nname = "L2"\n[[memory]]\nname = "L3"\n', ":6  memory.1.bytes"
L2 holds 1,048,576 bytes, and L1, which is nearer, 4,194,304

given LIKE + "[dram]\nlatency_cycles = 20.0\n", ":4  dram.latency_cycles"
DRAM answers in 20 cycles, and L3, which is nearer, in 60

given LIKE + "[dram]\nbytes_per_cycle = 300.0\n", ":4  dram.bytes_per_cycle"
DRAM streams 300 bytes per cycle, and L3, which is nearer, 11.4

given LIKE + '[[memory]]\nname = "L1"\nways = 1024\n[[memory]]\nname = "L2"\n[[memory]]\nname = "L3"\n', ":5  memory.0.ways"
1024 ways of lines of 64 bytes are more than its 32,768 bytes

given LIKE + 'features = ["avx2", "nonsense"]\n', ":3  features.1"
Linux names no feature 'nonsense' of x86_64
  help     names as /proc/cpuinfo lists them

given LIKE + 'features = ["avx2", "avx512-vnni"]\n', ":3  features.1"
Linux names no feature 'avx512-vnni' of x86_64: did you mean avx512_vnni or avx512_4vnniw or avx512vbmi?
  help     names as /proc/cpuinfo lists them

given LIKE + "[policy]\ngroup_share = 35.0\n", ":4  policy.group_share"
35 of the whole: machines have at most 1

given LIKE + '[[unit]]\nname = "fma float32"\nmultiply_adds = 3e12\n', ":5  unit.0.multiply_adds"
3e+12 multiply-adds per cycle: machines have at most 1.04858e+06

given LIKE + '[[microkernel]]\nname = "fma_float32_avx512"\nrows = 4\ncolumns = 32\nmultiply_adds = 90000.0\nsource = "so"\n', ":7  microkernel.0.multiply_adds"
fma_float32_avx512 does 90000 multiply-adds per cycle, and the fastest unit 128

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


@pytest.mark.parametrize("name", ["gemmini", "h200"])
def test_a_machine_that_is_no_processor_is_not_planned_for_as_one(name: str) -> None:
    with rejection(f"""\
TargetError: target: cannot plan for machine='{name}'
  because  {load_machine(name).title} is not a processor: its description has no [core]
  help     oc.target("cpu", machine="cascade-lake")"""):
        oc.target("cpu", machine=name)
    with pytest.raises(oc.TargetError, match=f"cannot interpret for machine='{name}'"):
        oc.target("interpret", machine=name)


COPIED = """program t
size n in 0:64
input A: float32[n]
local L: float32[n]{scope}
output B: float32[n]
alloc L[0 +: n]{window}
  for i in 0:n{loop}
    L[i] = A[i]
  tile i in 0 +: n{tile}
    B[i] = L[i]
"""
NO_WORDS = {"scope": "", "window": "", "loop": "", "tile": ""}

LACKING = {
    "a memory that there is not": (
        {"window": " in nonsense depth 7"},
        """\
compile: cannot keep L in nonsense
  at       alloc L[0 +: n] in nonsense depth 7
  because  zen4 has no memory nonsense
  help     without in nonsense, in main memory
  help     in L1, L2, L3, DRAM""",
    ),
    "a unit of tiles that there is not": (
        {"tile": "  @by(load)  @async"},
        """\
compile: cannot run a tile by load
  at       tile i in 0 +: n  @by(load)  @async
  because  zen4 has no unit load
  help     without @by(load), by the thread that comes to it""",
    ),
    "a unit of loops that nobody knows": (
        {"loop": "  @bind(zork)"},
        """\
compile: cannot run loop i on zork
  at       for i in 0:n  @bind(zork)
  because  zen4 has no unit zork, and schedules know none
  help     @thread
  help     @lane
  help     @unroll
  help     without it, one iteration after the other""",
    ),
}


@pytest.mark.parametrize("case", LACKING)
def test_what_a_processor_has_not_is_refused(case: str) -> None:
    changed, said = LACKING[case]
    target = oc.target("cpu", machine="zen4")
    with rejection(f"TargetError: {said}"):
        oc.compile(oc.parse(COPIED.format(**NO_WORDS | changed)), target=target)


NOTED = {
    "depth": ({"window": " depth 7"}, "L has one window, not 7: a thread uses one after the other"),
    "a cache": (
        {"window": " in L1"},
        "L lies in main memory: L1 is a cache, which fills itself",
    ),
    "a scope": ({"scope": " @scope(acc)"}, "L lies in main memory: {} has no memory acc"),
    "async": (
        {"tile": "  @async"},
        "tile i is not asynchronous: it has ended when the next statement begins",
    ),
    "a warp": ({"loop": "  @warp"}, "loop i runs one iteration after the other: {} has no warp"),
    "a block of a grid": (
        {"loop": "  @bind(blockIdx.x)"},
        "loop i runs one iteration after the other: {} has no blockIdx.x",
    ),
}


@pytest.mark.parametrize("case", NOTED)
def test_what_a_processor_does_not_use_is_said(case: str) -> None:
    changed, said = NOTED[case]
    target = oc.target("cpu")
    kernel = oc.compile(oc.parse(COPIED.format(**NO_WORDS | changed)), target=target)
    assert said.format(target.machine.name) in kernel.plan(n=5).notes
    for n in (0, 1, 5):
        a = np.arange(n, dtype="f4")
        np.testing.assert_array_equal(kernel(a), a)


@pytest.mark.parametrize("changed", [{"window": " in DRAM"}, {"loop": "  @lane"}], ids=str)
def test_what_a_processor_has_is_not_mentioned(changed: dict[str, str]) -> None:
    kernel = oc.compile(oc.parse(COPIED.format(**NO_WORDS | changed)))
    words = ("lies in", "window", "iteration after", "asynchronous")
    assert not [note for note in kernel.plan(n=5).notes if any(w in note for w in words)]


def test_an_element_of_a_window_that_is_empty_is_not_read() -> None:
    text = COPIED.format(**NO_WORDS).replace("B[i] = L[i]", "B[i] = L[0]")
    kernel = oc.compile(oc.parse(text))
    for n in (0, 1, 5):
        a = np.arange(3, n + 3, dtype="f4")
        np.testing.assert_array_equal(kernel(a), np.full(n, 3, "f4"))
    with pytest.raises(oc.PartitionError, match=r"with n = 1, i = 0, it is L\[1\]"):
        oc.compile(oc.parse(text.replace("L[0]", "L[1]")))


class Mine(Target):
    """Gives the first input back; ``over`` stands in the place of one of its methods."""

    name = "mine"
    machine = load_machine("avx2")

    def __init__(self, **over: Any) -> None:
        for name, value in over.items():
            setattr(self, name, value)

    def policy(self, program: Any, users: Any, options: Any) -> Iterator[TargetPlan]:
        yield TargetPlan(program)

    def lower(self, planned: Any, signature: Any, options: Any) -> bytes:
        return b"mine"

    def load(self, lowered: Any, signature: Any, options: Any) -> Any:
        return lambda constants: lambda kernel, *inputs: inputs[0]


class Texts:
    """Mixed into a target, makes code that is no bytes."""

    def lower(self, planned: Any, signature: Any, options: Any) -> Any:
        return "text"


def kernel(target: Target) -> Any:
    n = oc.dim("n", max=9)
    x = oc.placeholder((n, 4), name="x")
    return oc.compile(oc.ops.relu(x), inputs=[x], target=target)


def nothing(*args: object, **named: object) -> None:
    """What a method gives that was forgotten to return."""


PROGRAM = oc.parse("size n in 0:9\noutput c: float32[n]\nfor i in 0:n\n  c[i] = 1.0\n")

GIVEN = refusals(
    r"""
>>> kernel(Mine(options=nothing))
options
  because  it gives None, not Options

>>> kernel(Mine(policy=nothing))
policy
  because  it gives None, not an iterator over plans

>>> kernel(Mine(policy=lambda *_: iter([PROGRAM])))
policy
  because  it gives PROGRAM, not TargetPlan(program)

>>> kernel(Mine(cache_key_parts=lambda _: 3))
cache_key_parts
  because  it gives 3, not a tuple of texts

>>> kernel(Mine(lower=lambda *_: 'text'))
lower
  because  it gives 'text', not bytes

>>> kernel(Mine(load=nothing))
load
  because  it gives None, not a function of the constants

>>> kernel(Mine(load=lambda *_: nothing))
load
  because  it gives None, not a function that is called

>>> kernel(Mine(notes=lambda *_: 3)).plan(n=2)
notes
  because  it gives 3, not a tuple of lines

>>> kernel(Mine(source_forms=3)).source('mine')
source_forms
  because  it gives 3, not a tuple of names

>>> kernel(Mine(source_forms=('mine',), render_form=nothing)).source('mine')
render_form
  because  it gives None, not a text

>>> kernel(Mine(machine='avx2'))
machine
  because  it gives 'avx2', not the description of a machine
""",
    globals(),
)


@pytest.fixture(autouse=True)
def kept_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFCUT_CACHE", "off")


@pytest.mark.parametrize("case", GIVEN)
def test_what_a_target_gives_is_of_the_kind_that_is_asked_for(case: str) -> None:
    ask, text = GIVEN[case]
    text = text.replace("PROGRAM", repr(PROGRAM))
    with rejection(f"TargetError: target: cannot use target='mine'\n  at       Mine.{text}"):
        ask()


def test_a_name_is_a_text() -> None:
    with pytest.raises(TargetError) as refused:
        kernel(Mine(name=3))
    text = "target: cannot use target=3\n  at       Mine.name\n  because  it gives 3, not a text"
    assert str(refused.value) == text


def test_a_target_that_gives_what_is_asked_for_is_used() -> None:
    x = np.ones((2, 4), "float32")
    made = kernel(
        Mine(source_forms=["mine"], render_form=lambda *_: "shown", notes=lambda *_: ["noted"])
    )
    assert made(x) is x
    assert made.source("mine") == "shown"
    assert "noted" in str(made.plan(n=2))


def test_a_method_may_be_static() -> None:
    class Static(Mine):
        @staticmethod
        def load(lowered: bytes, signature: Any, options: Any) -> Any:
            return lambda constants: lambda kernel, *inputs: inputs[0]

    x = np.ones((2, 4), "float32")
    assert kernel(Static())(x) is x


def test_what_an_inherited_method_gives_is_checked() -> None:
    class Second(Texts, Mine): ...

    with pytest.raises(TargetError) as refused:
        kernel(Second())
    text = "target: cannot use target='mine'\n  at       Second.lower\n  because  it gives 'text', not bytes"
    assert str(refused.value) == text
