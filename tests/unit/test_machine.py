import sys
from pathlib import Path

import pytest

from offcut.cli import main
from offcut.experiment import machine as module
from offcut.experiment import timing
from offcut.experiment.machine import Machine, _cache_bytes, _cpu_name, describe


def test_this_machine_is_one_line() -> None:
    found = describe()

    assert found.cores >= 1
    assert found.cpu
    assert "\n" not in str(found)


def test_a_machine_reads_as_a_reader_would_write_it() -> None:
    machine = Machine(
        "Some CPU", 1, ("avx2", "fma"), 512 * 1024, 0, "3.11.7", "2.4", "openblas 0.3", "0.1.0"
    )

    assert str(machine) == (
        "Some CPU, 1 core · avx2 fma · L2 512 KiB, L3 unknown ·"
        " Python 3.11.7, numpy 2.4 (openblas 0.3), offcut 0.1.0"
    )


def test_the_cpu_name_is_the_systems_else_llvms() -> None:
    assert _cpu_name(["processor : 0", "model name\t: Some CPU @ 2 GHz"]) == "Some CPU @ 2 GHz"
    assert _cpu_name([])


@pytest.mark.parametrize(("level", "expected"), [(2, 2048 * 1024), (3, 0)])
def test_cache_sizes_come_from_the_unified_caches(
    tmp_path: Path, level: int, expected: int
) -> None:
    for name, kind, size in (("index0", "Instruction", "32K"), ("index1", "Unified", "2048K")):
        (tmp_path / name).mkdir()
        for file, text in (("level", "2"), ("type", kind), ("size", size)):
            (tmp_path / name / file).write_text(text + "\n")

    assert _cache_bytes(tmp_path, level) == expected


def test_a_hidden_feature_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFCUT_HIDE_FEATURES", "avx2")
    assert not {"avx2", "fma", "avx512f"} & set(describe().features)


def test_the_line_names_the_kernels_that_the_matrix_library_chose(monkeypatch) -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl", reason="threadpoolctl is not installed")
    chosen = [{"user_api": "openmp"}, {"user_api": "blas", "architecture": "Haswell"}]
    monkeypatch.setattr(threadpoolctl, "threadpool_info", lambda: chosen)
    assert describe().blas.endswith(", Haswell kernels")


def test_the_line_says_where_the_kernels_are_unknown(monkeypatch) -> None:
    monkeypatch.setattr(module, "is_installed", lambda package: package != "threadpoolctl")
    assert describe().blas.endswith(", kernels unknown: threadpoolctl is not installed")


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
