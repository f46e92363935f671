"""`offcut target`: lists what there is, shows a machine, and measures this one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import offcut as oc
from offcut.backends.cpu.machine import isa, jit
from offcut.backends.cpu.microkernels.available import families
from offcut.backends.cpu.microkernels.family import WIDE_PARAMETERS, Variant
from offcut.costmodel import description
from offcut.experiment import limits, probe, sheet
from offcut.experiment.machine import Machine, describe
from tests.facade import app, load_machine, shipped_machines

run = CliRunner().invoke


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples that are too short to be right, of caches that are small."""
    told = describe()
    small = Machine(told.cpu, 1, (), 2**17, 2**18, told.python, told.numpy, told.blas, "", 2**15)
    monkeypatch.setattr(probe, "describe", lambda: small)
    monkeypatch.setattr(limits, "SECONDS", 1e-5)
    monkeypatch.setattr(limits, "LONG", 2**16)
    monkeypatch.setattr(probe, "ROUNDS", 2)
    monkeypatch.setattr(probe, "DEPTH", 64)
    monkeypatch.setattr(probe, "TIMES", 2)
    monkeypatch.setattr(description, "machine_faults", lambda _: ())


@pytest.mark.usefixtures("quick")
def test_a_loaded_machine_is_not_described(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("offcut.experiment.machine_file.LOADED", 1e9)
    path = tmp_path / "mine.toml"
    done = run(app, ["target", "probe", "--out", str(path)])
    assert done.exit_code == 2
    assert "it is too loaded to be measured" in done.stderr
    assert not path.exists()


def test_list_names_targets_and_machines() -> None:
    done = run(app, ["target", "list"])
    assert done.exit_code == 0
    first, second, *rows = done.output.splitlines()
    assert first == f"targets   {', '.join(oc.targets())}"
    assert second == "machines"
    assert [row.split()[0] for row in rows] == list(shipped_machines())
    kinds = {row.split()[0]: row.split()[1] for row in rows}
    assert (kinds["zen4"], kinds["h200"]) == ("processor", "accelerator")


@pytest.mark.every(3)
@pytest.mark.parametrize("name", shipped_machines())
def test_show_says_every_level_with_its_ridges_and_every_source(name: str) -> None:
    done = run(app, ["target", "show", name])
    machine = load_machine(name)
    assert done.exit_code == 0
    assert done.output.startswith(f"{name}: {machine.title} ({machine.architecture})")
    rows = [line.split() for line in done.output.splitlines() if line.strip()]
    for level in machine.levels:
        numbers = next(row for row in rows if row[0] == level.name and str(level.line) in row)
        for unit in machine.unit:
            ridge = 2 * unit.multiply_adds / level.bytes_per_cycle
            assert f"{ridge:.3g}" in numbers[-len(machine.unit) :]
    assert "published for 45 nm" in done.output
    told = " ".join(done.output.split())
    queues = getattr(machine, "queue", ())
    for table in (*machine.levels, *machine.unit, *queues, machine.energy):
        assert table.source[:60] in told
    for queue in queues:
        loads = ", ".join(queue.loads) or "–"
        assert f"{queue.name} {loads} {queue.depth} {queue.instruction_cycles:g}" in told


def test_show_names_the_rows_whose_prediction_misses_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    rows = (("fma_float32_avx512", 14, 32, 31.0), ("fma_float32_avx512", 1, 32, 2.0))
    tables = (
        f'[[microkernel]]\nname = "{name}"\nrows = {rows}\ncolumns = {columns}\nmultiply_adds = {rate}\nsource = "so"\n'
        for name, rows, columns, rate in rows
    )
    path.write_text('name = "mine"\nlike = "cascade-lake"\n' + "".join(tables))
    kernel = next(
        family.microkernel
        for family in families(isa.host_for_machine(load_machine(path)))
        if family.microkernel.name == "fma_float32_avx512"
    )
    ratio = 32 / kernel.tile(1, 32).cycles / 2.0
    told = " ".join(run(app, ["target", "show", str(path)]).output.split())
    assert (
        "predicted and measured differ by more than 1.5 × in 1 of 2 rows: "
        f"fma_float32_avx512 1×32, {ratio:.2g} × too fast"
    ) in told


def test_show_without_a_name_is_of_this_machine() -> None:
    done = run(app, ["target", "show"])
    assert done.exit_code == 0
    assert done.output.startswith(f"host: {oc.target('cpu').machine.title}")


@pytest.mark.isa("avx2")
def test_units_whose_features_are_hidden_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sheet.units_of(oc.target("cpu").machine)
    monkeypatch.setenv("OFFCUT_HIDE_FEATURES", "avx512f,avx2")
    assert sheet.units_of(oc.target("cpu").machine) == ()
    assert len(sheet.units_of(load_machine("sapphire-rapids"))) == 5


@pytest.mark.every(4)
@pytest.mark.parametrize("name", ["cascade-lake", "sapphire-rapids", "zen4", "avx2"])
def test_a_microkernel_is_called_with_the_parameters_that_it_has(name: str) -> None:
    host = isa.host_for_machine(load_machine(name))
    for family in families(host):
        kernel = family.microkernel
        shape = kernel.tile(kernel.max_rows, kernel.columns_for(kernel.max_rows))
        panels = -(-shape.columns // kernel.panel)
        variant = Variant(unit_depth=True, panels=True, others=len(family.others))
        symbol = family.symbol(variant, shape.rows, panels)
        text = family.text(variant, [(shape.rows, panels)])
        again = probe._again(symbol, WIDE_PARAMETERS if family.wide else variant.parameters)
        head = next(line for line in text.splitlines() if f"@{symbol}(" in line)
        assert "define" in head
        called = next(line for line in again.splitlines() if f"@{symbol}(" in line)
        parts = [re.sub(r"^(\w+).*", r"\1", part.strip()) for part in _inside(head)]
        assert parts == [part.split()[0] for part in _inside(called)]
        assert jit.object_code(f"{text}\n{again}", host, passes=False)


def _inside(line: str) -> list[str]:
    """What stands between the parentheses of a function, by comma."""
    return line[line.index("(") + 1 : line.rindex(")")].split(", ")


def test_show_draws_a_roofline(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    path = tmp_path / "roofline.png"
    assert run(app, ["target", "show", "h200", "--plot", str(path)]).exit_code == 0
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("quick")
def test_what_probe_writes_is_read_back_and_planned_for(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    done = run(app, ["target", "probe", "--loaded", "--out", str(path)])
    assert done.exit_code == 0
    assert "GHz" in done.output
    machine = oc.target("cpu", machine=path).machine
    here = oc.target("cpu").machine
    assert machine.name == "mine"
    assert machine.architecture == here.architecture
    assert [(one.bytes, one.ways, one.line) for one in machine.memory] == [
        (one.bytes, one.ways, one.line) for one in here.memory
    ]
    for table in (*machine.levels, machine.core, *machine.microkernel):
        assert table.source.startswith("measured by offcut target probe on 20")
    kernels = {kernel.name for kernel in oc.target("cpu").microkernels()}
    assert {one.name for one in machine.microkernel} == kernels
    shown = run(app, ["target", "show", str(path)])
    assert shown.exit_code == 0
    assert all(name in shown.output for name in kernels)
    n, k = oc.dim("n", max=64), oc.reduce_axis(32, name="k")
    a, b = oc.placeholder((n, 32), name="A"), oc.placeholder((32, 48), name="B")
    product = oc.compute((n, 48), lambda i, j: oc.sum(a[i, k] * b[k, j], axis=k), name="C")
    assert oc.compile(product, target=oc.target("cpu", machine=path)).plan(n=33).pieces


@pytest.mark.usefixtures("quick")
def test_probe_without_a_file_prints_the_description_alone_on_the_output(tmp_path: Path) -> None:
    done = run(app, ["target", "probe", "--loaded"])
    assert done.exit_code == 0
    path = tmp_path / "printed.toml"
    path.write_text(done.stdout)
    assert load_machine(path).name == "host"
