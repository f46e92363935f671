"""Where and with what a study was measured: the machine, the system, the libraries, the commit; and how loaded it was."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from offcut.experiment.machine import describe
from offcut.experiment.timing import KERNELS
from offcut.studies.errors import refusal

LIBRARIES = (
    *("numpy", "scipy", "torch", "onnx", "onnxruntime", "openvino"),
    *("islpy", "llvmlite", "sympy", "xgboost-cpu", "numba"),
)
MIN_TICKS = 20
"""Ticks of all processors together from which on their parts mean something: a tenth of a second on two."""
GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def environment() -> dict[str, Any]:
    """Return what a measurement depends on, as plain data without anything that changes while a study runs.

    ``commit`` is that of the folder that offcut is imported from, "" where it is not a working tree. ``forced`` is there where variables
    hold libraries back to the kernels of another processor: these, with their values.
    """
    import llvmlite.binding as llvm

    machine = describe()
    commit, dirty = _commit(Path(__file__).parent)
    forced = {name: os.environ[name] for name in KERNELS if name in os.environ}
    return {
        "machine": str(machine),
        "cpu": machine.cpu,
        "cores": machine.cores,
        "features": list(machine.features),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "llvm": ".".join(map(str, llvm.llvm_version_info)),
        "libraries": {name: version for name in LIBRARIES if (version := _version(name))},
        "blas": machine.blas,
        "governor": GOVERNOR.read_text().strip() if GOVERNOR.exists() else "unknown",
        "offcut": machine.offcut,
        "commit": commit,
        "dirty": dirty,
        **({"forced": forced} if forced else {}),
    }


def write_environment(folder: Path, name: str, facts: Mapping[str, Any]) -> None:
    """Write what a study was measured with into its folder, whole or not at all."""
    file = folder / "environments" / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(file)


def read_environments(folder: Path, names: Iterable[str]) -> list[dict[str, Any]]:
    """Return the environments of these names that a study's folder has, each once.

    Raises DescribeError for a file that was damaged.
    """
    every = []
    for name in dict.fromkeys(names):
        file = folder / "environments" / f"{name}.json"
        if not file.is_file():
            continue
        try:
            facts = json.loads(file.read_text(encoding="utf-8"))
            if not {"machine", "cpu", "commit", "dirty", "libraries"} <= facts.keys():
                raise ValueError("it lacks what it must say")
        except (ValueError, AttributeError) as error:
            help = "remove it: the samples stay"
            raise refusal(str(file), str(error), help, what="cannot read the file") from error
        every.append(facts)
    return every


def digest(values: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits that stand for plain data."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=False, default=str)
    return sha256(text.encode()).hexdigest()[:16]


def command() -> str:
    """Return the command line of this process, without the folders of its program, and of absolute paths the last part alone."""
    rest = (re.sub(r"(^|=)/\S*/", r"\1", word) for word in sys.argv[1:])
    program = Path(sys.argv[0]).name
    return " ".join(("offcut" if program == "__main__.py" else program, *rest))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _commit(folder: Path) -> tuple[str, bool]:
    """Return the commit of the working tree that `folder` is in, and whether it has changes; "" where there is none."""

    def git_output(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        return git_output("rev-parse", "HEAD"), bool(
            git_output("status", "--porcelain", "--untracked-files=no", ".")
        )
    except (OSError, subprocess.CalledProcessError):
        return "", False


@dataclass(frozen=True, slots=True)
class Load:
    """How much of the machine this process had while something was measured.

    share   of the time on the wall, what its processor time is: 1 where nobody else ran; below, others had the core
    steal   of the processors' time, what the host of a virtual machine gave to others
    average of runnable processes, over the last minute
    others  of the processors' time, what other processes of this machine used: they share its caches, and often the core
    """

    share: float
    steal: float
    average: float
    others: float = 0.0


@dataclass(frozen=True, slots=True)
class Clocks:
    """What clocks show at one moment: seconds on the wall, processor seconds of this process and its children, ticks of all processors."""

    wall: float
    own: float
    ticks: tuple[int, ...]


def read_clocks() -> Clocks:
    """Return what the clocks show now."""
    return Clocks(time.perf_counter(), sum(os.times()[:4]), _ticks())


def run_watched(run: Callable[[], Any], threads: int, begin: Clocks) -> tuple[Any, Load]:
    """Return what `run` returns, and the load while it ran.

    threads  that the process keeps busy
    begin    of the time that steal and others are of: a run of some hundredths of a second has too few ticks
    """
    wall, cpu = time.perf_counter(), time.process_time()
    result = run()
    seconds, used, end = time.perf_counter() - wall, time.process_time() - cpu, read_clocks()
    ticks = [b - a for a, b in zip(begin.ticks, end.ticks, strict=True)]
    total = sum(ticks)
    steal = ticks[7] / total if total > 0 and len(ticks) > 7 else 0.0
    others = 0.0
    if total >= MIN_TICKS:
        own = (end.own - begin.own) / (end.wall - begin.wall) / (os.cpu_count() or 1)
        others = min(max(1.0 - sum(ticks[3:5]) / total - steal - own, 0.0), 1.0)
    share = min(used / seconds / (threads if threads > 1 else 1), 1.0) if seconds > 0 else 1.0
    average = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return result, Load(round(share, 4), round(steal, 4), round(average, 2), round(others, 4))


def _ticks() -> tuple[int, ...]:
    """Return the processors' time by kind, as Linux counts it; nothing elsewhere."""
    file = Path("/proc/stat")
    if not file.exists():
        return ()
    return tuple(map(int, file.read_text().splitlines()[0].split()[1:9]))
