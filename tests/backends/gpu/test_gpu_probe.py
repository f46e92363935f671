"""`offcut target probe --gpu`: what is asked of the driver, what is launched, and the description that comes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_driver import FakeDriver, FakeNvrtc, install, launches
from typer.testing import CliRunner

import offcut as oc
from offcut.backends.gpu.nvrtc import compile_cubin
from offcut.experiment import gpu_probe as probe
from tests.agree import nearly
from tests.facade import app, load_machine

TIMES = {"spin": 10.0, "read": 0.5, "nothing": 1.0}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = FakeDriver()
    fake.runs, fake.times = False, TIMES
    install(monkeypatch, fake, FakeNvrtc())
    monkeypatch.setattr(probe, "FAR_BYTES", 1 << 16)
    return fake


def test_a_gpu_is_measured_and_its_description_is_read_back(
    gpu: FakeDriver, tmp_path: Path
) -> None:
    file = tmp_path / "card.toml"
    done = CliRunner().invoke(app, ["target", "probe", "--gpu", "--out", str(file)])
    assert done.exit_code == 0, done.output
    asked = {arguments[0] for name, arguments in gpu.calls if name == "cuDeviceGetAttribute"}
    assert asked >= {*probe.ATTRIBUTES, "COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR"}
    machine, near = load_machine(file), load_machine("h200")
    assert (machine.name, machine.title, machine.architecture) == ("card", "FAKE H200", "sm_90")
    assert machine.engine.count == 132
    assert machine.hertz == nearly(probe.SPIN_CYCLES / 0.010)
    assert machine.grid.launch_seconds == nearly(1e-3 / probe.LAUNCHES)
    assert (machine.grid.warps, machine.grid.blocks, machine.grid.registers) == (64, 32, 65536)
    levels = {level.name: level for level in machine.memory}
    share = 132 * machine.hertz
    near_bytes = int(probe.NEAR_SHARE * 62_914_560) // 16 * 16 * probe.NEAR_ROUNDS
    assert levels["L2"].bytes_per_cycle == nearly(near_bytes / 5e-4 / share, rel=1e-3)
    assert levels["L2"].bytes == 62_914_560 // 132
    assert levels["shared"].bytes == 232_448
    assert machine.dram.bytes_per_cycle == nearly((1 << 16) / 5e-4 / share, rel=1e-3)
    assert machine.unit == near.unit
    assert "measured by offcut target probe --gpu on " in levels["L2"].source
    assert not gpu.memory
    grids = {launch[0][1]: launch[1] for launch in launches(gpu)}
    assert grids == {"spin": 132, "read": 528, "nothing": 1}
    target = oc.target("cuda", machine=file, device="emulated")
    assert target.machine == machine


@pytest.mark.parametrize(
    ("capability", "count", "rate", "name"),
    [
        ((8, 0), 108, 1.9e12, "a100"),
        ((9, 0), 132, 4.3e12, "h200"),
        ((9, 0), 132, 3.0e12, "h100"),
        ((8, 7), 16, 2e11, "h100"),
    ],
)
def test_the_nearest_description_is_of_the_same_capability_count_and_rate(
    capability: tuple[int, int], count: int, rate: float, name: str
) -> None:
    assert probe.nearest(capability, count, rate).name == name


def test_without_a_gpu_the_command_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from offcut.backends.gpu import driver

    def none(op: str) -> None:
        raise oc.TargetError(op, "cannot run on a GPU", because="no GPU was found")

    monkeypatch.setattr(driver, "driver_api", none)
    done = CliRunner().invoke(app, ["target", "probe", "--gpu"])
    assert done.exit_code == 2
    assert done.stderr.startswith("probe: cannot run on a GPU\n")


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_the_kernels_of_the_probe_compile(architecture: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings are not installed")
    threads = {name: plan.launches[0].threads for name, plan in probe.PLAN.items()}
    code, _ = compile_cubin("probe", probe.TEXT, architecture, threads)
    assert code[:4] == b"\x7fELF"
