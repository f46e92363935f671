"""Machine descriptions: those that are shipped, what a file takes from them, and the host's own."""

from __future__ import annotations

import ctypes
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from offcut.backends.cpu.machine import isa, jit
from offcut.backends.cpu.machine.features import in_llvm
from offcut.backends.cpu.microkernels import fma
from offcut.backends.cpu.microkernels.family import Variant
from offcut.backends.cpu.microkernels.kernels import families
from offcut.costmodel import load, shipped
from offcut.costmodel.description import SHIPPED

MICROKERNELS = {
    "cascade-lake": {"fma", "vnni"},
    "sapphire-rapids": {"fma", "vnni", "amx"},
    "zen4": {"fma", "vnni"},
    "neoverse-n1": {"fma"},
}


@pytest.mark.parametrize("name", MICROKERNELS)
def test_a_shipped_machine_is_planned_for_with_its_own_microkernels(name: str) -> None:
    machine = load(name)
    host = isa.described(machine)
    assert machine.name == name
    assert not host.here
    found = {family.microkernel.name.partition("_")[0] for family in families(host)}
    assert found >= MICROKERNELS[name]
    assert ("amx" in found) == ("amx_tile" in machine.features)
    for family in families(host):
        assert family.microkernel.features <= host.features
        for tile in family.microkernel.tiles:
            assert tile.cycles > 0
            assert tile.startup > 0


def test_the_names_that_are_shipped_are_the_files() -> None:
    assert set(shipped()) == set(MICROKERNELS)


@pytest.mark.parametrize("name", MICROKERNELS)
def test_every_table_that_a_file_states_says_where_its_numbers_are_from(name: str) -> None:
    path = SHIPPED / f"{name}.toml"
    stated = tomllib.loads(path.read_text(encoding="utf-8"))
    tables = [value for value in stated.values() if isinstance(value, dict)] + stated["memory"]
    assert tables
    assert all(len(table["source"]) > 10 for table in tables)


def test_a_file_of_two_lines_is_like_another_machine(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\nlike = "neoverse-n1"\n[core]\nhertz = 3.0e9\n')
    mine, n1 = load(path), load("neoverse-n1")
    assert mine == replace(n1, name="mine", core=replace(n1.core, hertz=3.0e9))
    assert load(str(path)) == mine


def test_the_rows_that_a_set_of_l1_holds() -> None:
    n1 = load("neoverse-n1")
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
    for name in ("cascade-lake", "sapphire-rapids", "zen4", "neoverse-n1"):
        machine = load(name)
        features = frozenset(map(in_llvm, machine.features)) | {"sahf", "rdpid"}
        isa.own_machine.cache_clear()
        found = isa.own_machine(machine.architecture, features)
        assert found.title == machine.title
        assert (found.memory[0].bytes, found.memory[0].ways) == (40960, machine.memory[0].ways)
        assert (found.memory[1].bytes, found.memory[1].ways) == (machine.memory[1].bytes, 20)
    isa.own_machine.cache_clear()


def test_an_unknown_architecture_has_the_portable_set_and_some_description() -> None:
    machine = isa.own_machine("riscv64", frozenset({"v"}))
    assert machine.architecture == "riscv64"
    assert isa.isa_of(frozenset({"v"}), machine).name == "portable"


def neon_here() -> tuple[isa.Isa, isa.Host]:
    """The instruction set of Neoverse N1, and this host, to run its LLVM IR on."""
    return isa.described(load("neoverse-n1")).isa, isa.host()


@pytest.mark.parametrize("shape", [(1, 2), (2, 4), (8, 3), (14, 2)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_tile_of_four_lanes_and_32_registers_is_code_for_its_machine(
    dtype: str, shape: tuple[int, int]
) -> None:
    host = isa.described(load("neoverse-n1"))
    text = fma.tiles(host.isa, dtype, Variant(True, True), [shape])
    lanes = host.isa.lanes(dtype)
    assert f"<{lanes} x {fma.LLVM_TYPE[dtype]}>" in text
    assert lanes * 8 <= 32
    assembly = jit.assembly(text, host, passes=False)
    assert assembly.count("fmla") >= shape[0] * shape[1]
    assert "zmm" not in assembly
    assert "ymm" not in assembly


@pytest.mark.isa("fma")
@pytest.mark.parametrize("depth", [0, 1, 3, 4, 5, 17])
@pytest.mark.parametrize(("rows", "vectors"), [(1, 2), (2, 4), (8, 3), (14, 2)])
def test_a_tile_of_four_lanes_computes_its_product(rows: int, vectors: int, depth: int) -> None:
    neon, host = neon_here()
    variant = Variant(True, True)
    text = fma.tiles(neon, "float32", variant, [(rows, vectors)])
    code = jit.load([jit.object_code(text, host, passes=False)], host)
    function = ctypes.CFUNCTYPE(
        None, *[ctypes.c_void_p, *[ctypes.c_int64] * 2] * 2, ctypes.c_void_p, *[ctypes.c_int64] * 4
    )(code.address(fma.symbol(neon, "float32", variant, rows, vectors)))
    generator = np.random.default_rng(rows * 100 + vectors * 10 + depth)
    columns = 4 * vectors - 1
    a = generator.standard_normal((rows, depth)).astype("float32")
    b = generator.standard_normal((depth, columns)).astype("float32")
    panels = np.zeros((vectors, depth + 64, 4), "float32")  # it asks for what follows a panel
    for column in range(columns):
        panels[column // 4, :depth, column % 4] = b[:, column]
    c = np.full((rows, columns), np.nan, "float32")
    function(
        a.ctypes.data,
        4 * depth,
        4,
        panels.ctypes.data,
        panels.strides[0],
        16,
        c.ctypes.data,
        4 * columns,
        depth,
        3,
        0,
    )
    np.testing.assert_allclose(c, a.astype("float64") @ b, rtol=1e-5, atol=1e-5)


def test_the_order_of_features_hides_none_of_a_described_machine() -> None:
    spelled = isa.described(load("sapphire-rapids")).feature_string.split(",")
    assert all(one.startswith("+") for one in spelled)
