"""The machine that a measurement was taken on, in one line that goes beside every number."""

import os
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np

import offcut
from offcut.backends.cpu.machine import isa
from offcut.core.extras import is_installed

CPU_INFO = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

# What decides which microkernels can run, widest first. A feature that a wider one implies on
# every machine ever sold is left out.
TELLING_FEATURES = (
    *("amx-tile", "amx-bf16", "amx-int8", "avx512f", "avx512bf16", "avx512fp16", "avx512vnni"),
    *("avx2", "fma", "sve", "neon"),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """One computer and the software on it that a measurement depends on.

    cpu           model name, as the operating system gives it
    cores         cores that this process may use
    features      instruction sets that matter to a microkernel, widest first
    l1, l2, l3    bytes of the data cache and the second-level cache of one core, and of the third
                  level; 0 if unknown
    python, numpy, offcut   versions
    blas          numpy's matrix library, its version, and the kernels that it chose
    """

    cpu: str
    cores: int
    features: tuple[str, ...]
    l2: int
    l3: int
    python: str
    numpy: str
    blas: str
    offcut: str
    l1: int = 0

    def __str__(self) -> str:
        """Return one line; sizes in KiB and MiB (1024)."""
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        parts = [
            f"{self.cpu}, {cores}",
            " ".join(self.features) or "no vector features known",
            f"L2 {_size(self.l2)}, L3 {_size(self.l3)}",
            f"Python {self.python}, numpy {self.numpy} ({self.blas}), offcut {self.offcut}",
        ]
        return " · ".join(parts)


def describe() -> Machine:
    """Return the machine that this process runs on; what cannot be learned reads "unknown" or 0.

    Features that are hidden from offcut are not listed. Raises TargetError where a hidden name is none.
    """
    host = isa.host().features
    return Machine(
        cpu=_cpu_name(CPU_INFO.read_text().splitlines() if CPU_INFO.exists() else ()),
        cores=len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
        features=tuple(name for name in TELLING_FEATURES if name in host),
        l2=_cache_bytes(CACHES, level=2),
        l3=_cache_bytes(CACHES, level=3),
        python=platform.python_version(),
        numpy=np.__version__,
        blas=_blas(),
        offcut=offcut.__version__,
        l1=_cache_bytes(CACHES, level=1),
    )


def _cpu_name(lines: Iterable[str]) -> str:
    """Return the first ``model name`` of `/proc/cpuinfo`, else LLVM's name for the CPU."""
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return str(llvm.get_host_cpu_name())


def _cache_bytes(caches: Path, level: int) -> int:
    """Return the bytes of the cache of `level` that holds data, as Linux's sysfs lists it, else 0."""
    for entry in sorted(caches.glob("index*")):
        try:
            cache_level = int((entry / "level").read_text())
            kind = (entry / "type").read_text().strip()
            text = (entry / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if (
            cache_level == level
            and kind in ("Unified", "Data")
            and text[-1:] == "K"
            and text[:-1].isdigit()
        ):
            return int(text[:-1]) * 1024
    return 0


def _size(count: int) -> str:
    """Return `count` bytes in the largest unit that keeps it at or above 1."""
    if not count:
        return "unknown"
    if count < 1024 * 1024:
        return f"{count / 1024:g} KiB"
    return f"{count / (1024 * 1024):.4g} MiB"


def _blas() -> str:
    """Return the name and version of the matrix library that numpy was built with, and the kernels that it chose here."""
    built = np.show_config(mode="dicts")
    blas = (built or {}).get("Build Dependencies", {}).get("blas", {})
    name = f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
    return ", ".join((name, *_blas_kernels()))


def _blas_kernels() -> Iterator[str]:
    """Yield what the loaded matrix library says of its kernels: OpenBLAS and BLIS name an architecture."""
    if not is_installed("threadpoolctl"):
        yield "kernels unknown: threadpoolctl is not installed"
        return
    from threadpoolctl import threadpool_info

    for library in threadpool_info():
        if library.get("user_api") == "blas" and library.get("architecture"):
            yield f"{library['architecture']} kernels"
            return
