"""Machine descriptions: those that are shipped, what a file takes from them, and the host's own."""

from __future__ import annotations

import ctypes
import re
import sys
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import offcut as oc
from offcut.backends.cpu.machine import isa, jit
from offcut.backends.cpu.machine.isa import in_llvm
from offcut.backends.cpu.microkernels import fma
from offcut.backends.cpu.microkernels.available import families
from offcut.backends.cpu.microkernels.family import TILES, Variant
from offcut.backends.cpu.microkernels.llvm_blocks import LLVM_TYPE
from offcut.backends.host import cache
from offcut.cli import main
from offcut.costmodel.description import SHIPPED
from offcut.experiment import machine as module
from offcut.experiment import timing
from offcut.experiment.machine import Machine, _cache_bytes, _cpu_name, describe
from tests.agree import agree, exact_matmul, nearly
from tests.facade import load_machine, processor, shipped_machines

MICROKERNELS = {
    "cascade-lake": {"fma", "vnni"},
    "sapphire-rapids": {"fma", "vnni", "amx"},
    "zen4": {"fma", "vnni"},
    "zen5": {"fma", "vnni"},
    "avx2": {"fma"},
    "neoverse-n1": {"fma"},
}
ACCELERATORS = ("a100", "gemmini", "h100", "h200", "vta", "vta-osdi18")


@pytest.mark.parametrize("name", MICROKERNELS)
def test_a_shipped_machine_is_planned_for_with_its_own_microkernels(name: str) -> None:
    machine = load_machine(name)
    host = isa.host_for_machine(machine)
    assert machine.name == name
    assert not host.here
    found = {family.microkernel.name.partition("_")[0] for family in families(host)}
    assert found >= MICROKERNELS[name]
    assert ("amx" in found) == ("amx_tile" in machine.features)
    for family in families(host):
        assert family.microkernel.features <= host.features
        assert all(tile.cycles > 0 and tile.startup > 0 for tile in family.microkernel.tiles)
    numbers = {field.name for field in fields(machine.core)} - {"source"}
    assert numbers <= set(re.findall(r"\w+", machine.core.source))
    assert all(one.startswith("+") for one in host.feature_string.split(","))
    for unit in machine.unit:
        assert {in_llvm(one) for one in unit.needs} <= host.features
        if unit.name in ("fma float32", "fma float64"):
            lanes = host.isa.lanes(unit.of[0])
            assert (unit.columns, unit.multiply_adds) == (lanes, lanes * machine.core.multiply_adds)
    assert machine.memory[0].bytes_per_cycle == host.isa.register_bytes * machine.core.loads


def test_every_table_that_a_file_states_says_where_its_numbers_are_from() -> None:
    assert set(shipped_machines()) == {*MICROKERNELS, *ACCELERATORS}
    for name in (*MICROKERNELS, *ACCELERATORS):
        stated = tomllib.loads((SHIPPED / f"{name}.toml").read_text(encoding="utf-8"))
        lists = [one for value in stated.values() if isinstance(value, list) for one in value]
        tables = [value for value in (*stated.values(), *lists) if isinstance(value, dict)]
        whole = [table for table in tables if table.keys() - {"name", "like"}]
        assert whole
        assert all(len(table["source"]) > 10 for table in whole), name


def test_a_file_of_two_lines_is_like_another_machine(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\nlike = "neoverse-n1"\n[core]\nhertz = 3.0e9\n')
    mine, n1 = load_machine(path), load_machine("neoverse-n1")
    source = f"hertz: it is not said; the rest: {n1.core.source}"
    assert mine == replace(n1, name="mine", core=replace(n1.core, hertz=3.0e9, source=source))
    assert load_machine(str(path)) == mine


def test_the_rows_that_a_set_of_l1_holds() -> None:
    n1 = load_machine("neoverse-n1")
    assert n1.memory[0].bytes == 65536
    assert n1.memory[0].ways == 4
    assert [n1.rows_in_l1(row) for row in (16384, 8192, 3072, 3076)] == [3, 6, 48, 12288]


def test_features_are_named_as_linux_names_them() -> None:
    named = {
        "avx512_bf16": "avx512bf16",
        "avx512_vnni": "avx512vnni",
        "avx512f": "avx512f",
        "amx_tile": "amx-tile",
        "pni": "sse3",
        "sse4_1": "sse4.1",
        "asimd": "neon",
        "asimdhp": "fullfp16",
    }
    assert {name: in_llvm(name) for name in named} == named


def test_the_host_is_the_description_that_differs_least_with_its_own_caches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caches = {(0, "size"): 40960, (2, "ways_of_associativity"): 20}
    monkeypatch.setattr(isa, "_cache_fact", lambda index, fact: caches.get((index, fact)))
    for name in ("cascade-lake", "sapphire-rapids", "zen4", "zen5", "avx2", "neoverse-n1"):
        machine = load_machine(name)
        features = frozenset(map(in_llvm, machine.features)) | {"sahf", "rdpid"}
        isa.detect_machine.cache_clear()
        found = isa.detect_machine(machine.architecture, features)
        assert found.title == machine.title
        assert (found.memory[0].bytes, found.memory[0].ways) == (40960, machine.memory[0].ways)
        assert (found.memory[1].bytes, found.memory[1].ways) == (machine.memory[1].bytes, 20)
    isa.detect_machine.cache_clear()


@pytest.mark.parametrize("name", ["avx2", "cascade-lake", "sapphire-rapids", "zen4", "zen5"])
def test_the_host_may_be_described_as_a_shipped_machine(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OFFCUT_MACHINE", raising=False)
    machine, own = processor(load_machine(name)), isa.host()
    if own.machine.architecture != "x86_64":
        pytest.skip("the descriptions are of x86-64")
    monkeypatch.setenv("OFFCUT_MACHINE", name)
    host = isa.host()
    assert host.machine == replace(machine, name="host")
    assert host.here
    assert not host.lacking
    stated = frozenset(map(in_llvm, machine.features))
    assert host.features <= own.features
    assert {"avx512f", "amx-tile", "avx512vnni", "avx512bf16"} & host.features <= stated
    without = name == "avx2" and own.isa.name == "avx512"
    assert host.isa.name == ("avx2" if without else own.isa.name)
    assert oc.target("cpu").machine == host.machine


def test_a_description_in_a_file_describes_the_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, architecture = tmp_path / "mine.toml", isa.host().machine.architecture
    head = f'name = "mine"\nlike = "cascade-lake"\narchitecture = "{architecture}"\n'
    path.write_text(f"{head}[core]\ncode_bytes = 12345\n")
    monkeypatch.setenv("OFFCUT_MACHINE", str(path))
    assert isa.host().machine.core.code_bytes == 12345


ZEN3 = "sse4a sha avx2 fma f16c bmi bmi2 lzcnt vaes vpclmulqdq movbe popcnt aes pclmul"
SKYLAKE = "avx2 fma f16c bmi bmi2 lzcnt movbe avx512f avx512dq avx512cd avx512bw avx512vl"


@pytest.mark.parametrize(
    ("features", "name"),
    [
        (ZEN3, "avx2"),
        (SKYLAKE, "cascade-lake"),
        (f"{SKYLAKE} avx512vnni", "cascade-lake"),
        (f"{SKYLAKE} avx512vnni avx512bf16 avx512vbmi avx512ifma vaes sse4a gfni", "zen4"),
        (
            f"{SKYLAKE} avx512vnni avx512bf16 avx512vbmi avx512ifma vaes sse4a gfni avxvnni avx512vp2intersect",
            "zen5",
        ),
    ],
)
def test_a_host_is_described_by_registers_that_it_has(features: str, name: str) -> None:
    shared = frozenset(map(in_llvm, load_machine("avx2").features[:18]))
    assert isa.nearest_machine("x86_64", shared | frozenset(features.split())).name == name
    other = isa.detect_machine("riscv64", frozenset({"v"}))
    assert other.architecture == "riscv64"
    assert isa.isa_of(frozenset({"v"}), other).name == "portable"


@pytest.mark.parametrize("name", [*MICROKERNELS, *ACCELERATORS])
def test_memories_of_a_machine_are_ordered_as_they_lie(name: str) -> None:
    machine = load_machine(name)
    for unit in machine.unit:
        assert unit.multiply_adds % (unit.rows * unit.columns * unit.terms) == 0 or (
            unit.rows * unit.columns * unit.terms % unit.multiply_adds == 0
        )
    assert machine.dram.latency_cycles > max(level.latency_cycles for level in machine.memory)
    if any(level.holds for level in machine.memory):
        return
    levels = [*machine.memory, machine.dram]
    assert levels == sorted(levels, key=lambda level: level.latency_cycles)
    assert levels == sorted(levels, key=lambda level: -level.bytes_per_cycle)


def test_the_peak_of_the_h200_is_that_of_its_data_sheet() -> None:
    machine = load_machine("h200")
    unit = next(unit for unit in machine.unit if "bfloat16" in unit.of)
    assert 2 * unit.multiply_adds * machine.cores * machine.hertz == nearly(989e12, rel=1e-3)
    bandwidth = machine.dram.bytes_per_cycle * machine.cores * machine.hertz
    assert bandwidth == nearly(4.8e12, rel=5e-3)


def test_all_machines_take_their_energies_from_one_table() -> None:
    """Horowitz: of 32 bits, 5 pJ in an SRAM of 8 KB and 640 in DRAM."""
    energies = [load_machine(name).energy for name in shipped_machines()]
    assert len({repr(energy) for energy in energies}) == 1
    energy = energies[0]
    assert (energy.add.float32, energy.multiply.float32) == (0.9, 3.7)
    assert (energy.add.int8, energy.multiply.int8) == (0.03, 0.2)
    assert (4 * energy.on_chip(8192), 4 * energy.dram) == (5.0, 640.0)
    assert [energy.on_chip(n) for n in (1, 8193, 2**20, 2**25)] == [1.25, 2.5, 12.5, 12.5]


def test_a_level_takes_what_it_does_not_state_from_the_level_of_its_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\nlike = "zen4"\n[[memory]]\nname = "L1"\n[[memory]]\nname = "L2"\nbytes = 524288\nsource = "so"\n'
        '[[memory]]\nname = "L3"\n[energy]\nlike = "vta"\n[threads]\nlike = "cascade-lake"\nchunk = 64\nsource = "so"\n'
    )
    mine, zen4 = load_machine(path), load_machine("zen4")
    assert mine.memory[1] == replace(zen4.memory[1], bytes=524288, source="so")
    assert (mine.memory[0], mine.memory[2]) == (zen4.memory[0], zen4.memory[2])
    assert mine.threads == replace(load_machine("cascade-lake").threads, chunk=64, source="so")
    assert mine.energy == zen4.energy


@pytest.mark.parametrize(("dtype", "shape"), [("float32", (14, 2)), ("float64", (8, 3))])
def test_a_tile_of_four_lanes_and_32_registers_is_code_for_its_machine(
    dtype: str, shape: tuple[int, int]
) -> None:
    host = isa.host_for_machine(load_machine("neoverse-n1"))
    text = fma.emit_llvm(host.isa, dtype, Variant(True, True), [shape])
    lanes = host.isa.lanes(dtype)
    assert f"<{lanes} x {LLVM_TYPE[dtype]}>" in text
    assert lanes * 8 <= 32
    assembly = jit.assembly(text, host, passes=False)
    assert assembly.count("fmla") >= shape[0] * shape[1]
    assert "zmm" not in assembly
    assert "ymm" not in assembly


@pytest.mark.isa("fma")
@pytest.mark.parametrize(
    ("rows", "vectors", "depth"),
    [(1, 2, 0), (2, 4, 1), (8, 3, 3), (14, 2, 4), (8, 3, 5), (14, 2, 17)],
)
def test_a_tile_of_four_lanes_computes_its_product(rows: int, vectors: int, depth: int) -> None:
    neon, host = isa.host_for_machine(load_machine("neoverse-n1")).isa, isa.host()
    variant = Variant(True, True)
    text = fma.emit_llvm(neon, "float32", variant, [(rows, vectors)])
    code = jit.load([jit.object_code(text, host, passes=False)], host)
    function = ctypes.CFUNCTYPE(
        None, *(ctypes.c_void_p if kind == "ptr" else ctypes.c_int64 for kind in TILES.split(", "))
    )(code.address(fma.symbol(neon, "float32", variant, rows, vectors)))
    generator = np.random.default_rng(rows * 100 + vectors * 10 + depth)
    columns = 4 * vectors - 1
    a = generator.standard_normal((rows, depth)).astype("float32")
    b = generator.standard_normal((depth, columns)).astype("float32")
    panels = np.zeros((vectors, depth + 64, 4), "float32")  # it asks for what follows a panel
    for column in range(columns):
        panels[column // 4, :depth, column % 4] = b[:, column]
    c = np.full((rows, columns), np.nan, "float32")
    operands = (*(a.ctypes.data, 4 * depth, 4), *(panels.ctypes.data, panels.strides[0], 16))
    function(*operands, c.ctypes.data, 4 * columns, depth, 3, 0, panels.ctypes.data, 0)
    agree(c, exact_matmul(a, b))


@pytest.mark.parametrize(
    ("listed", "count"), [("0-1\n", 2), ("0\n", 1), ("0-3,8-11\n", 8), ("", 1), (None, 1)]
)
def test_a_cache_is_shared_by_the_processors_that_the_system_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str | None, count: int
) -> None:
    monkeypatch.setattr(cache, "_CACHES", str(tmp_path))
    if listed is not None:
        (tmp_path / "index3").mkdir()
        (tmp_path / "index3" / "shared_cpu_list").write_text(listed)
    assert isa._sharing(3) == count


def test_a_machine_reads_as_a_reader_would_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\n" not in str(describe())
    assert _cpu_name(["processor : 0", "model name\t: Some CPU @ 2 GHz"]) == "Some CPU @ 2 GHz"
    assert _cpu_name([])
    monkeypatch.setenv("OFFCUT_HIDE_FEATURES", "avx2")
    assert not {"avx2", "fma", "avx512f"} & set(describe().features)
    if module.is_installed("threadpoolctl"):
        import threadpoolctl

        chosen = [{"user_api": "openmp"}, {"user_api": "blas", "architecture": "Haswell"}]
        monkeypatch.setattr(threadpoolctl, "threadpool_info", lambda: chosen)
        assert describe().blas.endswith(", Haswell kernels")
    monkeypatch.setattr(module, "is_installed", lambda package: package != "threadpoolctl")
    assert describe().blas.endswith(", kernels unknown: threadpoolctl is not installed")
    machine = Machine(
        "Some CPU", 1, ("avx2", "fma"), 512 * 1024, 0, "3.11.7", "2.4", "openblas 0.3", "0.1.0"
    )

    assert str(machine) == (
        "Some CPU, 1 core · avx2 fma · L2 512 KiB, L3 unknown ·"
        " Python 3.11.7, numpy 2.4 (openblas 0.3), offcut 0.1.0"
    )


@pytest.mark.parametrize(("level", "expected"), [(2, 2048 * 1024), (3, 0)])
def test_cache_sizes_come_from_the_unified_caches(
    tmp_path: Path, level: int, expected: int
) -> None:
    for name, kind, size in (("index0", "Instruction", "32K"), ("index1", "Unified", "2048K")):
        (tmp_path / name).mkdir()
        for file, text in (("level", "2"), ("type", kind), ("size", size)):
            (tmp_path / name / file).write_text(text + "\n")

    assert _cache_bytes(tmp_path, level) == expected


def test_a_baseline_is_started_with_the_kernels_that_it_chooses_itself(monkeypatch) -> None:
    started = []
    monkeypatch.setattr(timing.os, "execve", lambda *given: started.append(given[2]))
    for name in timing.KERNELS:
        monkeypatch.delenv(name, raising=False)
    for name in timing.THREADS:
        monkeypatch.setenv(name, "1")
    timing.restart_single_threaded()
    assert not started
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    timing.restart_single_threaded()
    assert "OPENBLAS_CORETYPE" not in started[0]
    assert started[0]["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("command", ["sweep", "study", "worker"])
def test_a_command_that_measures_is_started_so(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(timing, "restart_single_threaded", lambda: started.append(command))
    monkeypatch.setattr(sys, "argv", ["offcut", command, "--help"])
    with pytest.raises(SystemExit):
        main()
    assert started == [command]
