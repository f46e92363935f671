"""`python -m offcut.report`: what a bug report needs to say of the place it comes from, as text.

Versions, the machine, the instruction set that kernels are made for, the environment variables that
change what offcut does, and the cache. What cannot be learned says why, and the rest is still told.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import offcut
from offcut.errors import TargetError

VARIABLES = (
    "OFFCUT_CACHE",
    "OFFCUT_DEBUG",
    "OFFCUT_DUMP",
    "OFFCUT_HIDE_FEATURES",
    "OFFCUT_MACHINE",
    "OFFCUT_MODEL",
    "OFFCUT_PROCESSES",
    "OFFCUT_RECORDS",
    "OFFCUT_THREADS",
    "OFFCUT_VERIFY",
)
THREADS = ("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PACKAGES = (
    *("islpy", "llvmlite", "ml_dtypes", "numpy", "platformdirs", "rich", "sympy", "typer"),
    *("distributed", "matplotlib", "safetensors", "scipy", "tokenizers", "torch", "xgboost"),
)

Rows = Iterator[tuple[str, str]]


def report() -> str:
    """Everything as text to paste: a title a section, then one line a fact."""
    sections: tuple[tuple[str, Callable[[], Rows]], ...] = (
        ("versions", _versions),
        ("machine", _machine),
        ("target", _target),
        ("environment", _environment),
        ("cache", _cache),
    )
    lines: list[str] = []
    for title, facts in sections:
        lines.append(title)
        rows = _facts_and_failure(facts)
        width = max(len(name) for name, _ in rows)
        lines += [f"  {name:<{width}}  {fact}" for name, fact in rows]
    return "\n".join(lines)


def _facts_and_failure(facts: Callable[[], Rows]) -> list[tuple[str, str]]:
    """The facts of a section; where learning one fails, those before it and the failure."""
    rows: list[tuple[str, str]] = []
    try:
        rows.extend(facts())
    except Exception as failed:  # a broken installation is what is reported
        rows.append(("unknown", f"{type(failed).__name__}: {failed}"))
    return rows or [("none", "")]


def _versions() -> Rows:
    yield "offcut", offcut.__version__
    yield "Python", f"{platform.python_version()} ({platform.python_implementation()})"
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "not installed"


def _machine() -> Rows:
    yield "system", f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield "C library", " ".join(platform.libc_ver()).strip() or "unknown"
    from offcut.experiment.machine import describe

    yield "machine", str(describe())


def _target() -> Rows:
    import llvmlite.binding as llvm

    yield "LLVM", ".".join(str(part) for part in llvm.llvm_version_info)
    from offcut.backends.cpu.machine import isa

    host = isa.host()
    yield "triple", host.triple
    chosen = host.isa
    yield (
        "instruction set",
        f"{chosen.name}, {chosen.registers} registers of {chosen.register_bytes} bytes",
    )
    yield "features", " ".join(sorted(host.features)) or "none"
    levels = ", ".join(f"{level.name} {level.bytes} bytes" for level in host.machine.memory)
    yield "described as", f"{host.machine.title}; {levels}"


def _environment() -> Rows:
    for name in sorted(os.environ):
        if name.startswith("OFFCUT_") or name in THREADS:
            known = name in VARIABLES or name in THREADS
            yield name, os.environ[name] + ("" if known else "  (offcut does not read it)")


def _cache() -> Rows:
    from offcut.backends.host import cache

    try:
        folder = cache.cache_dir()
    except TargetError as refused:
        yield "folder", f"refused: {refused.because}"
        return
    if folder is None:
        chosen = os.environ.get("OFFCUT_CACHE", "")
        yield "folder", "off" if chosen == "off" else "cannot be used: OFFCUT_DEBUG=1 says why"
        return
    yield "folder", _short(folder)
    yield "writable", "yes" if os.access(folder, os.W_OK | os.X_OK) else "no"
    files = [path for path in folder.iterdir() if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    yield "entries", f"{len(files)}, {size / 1024:.0f} KiB"


def _short(path: Path) -> str:
    """`path` with the user's home written ``~``, so that a pasted report names nobody."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


if __name__ == "__main__":
    sys.stdout.write(report() + "\n")
