"""The machine code of a file as a shared library beside it, and the pool of threads that such code brings along.

The pool of threads of some machine code, which it brings along, made ready for calls in this process and in those forked from it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from offcut.backends.abi import PortableCode
from offcut.core import process
from offcut.core.extras import extra_help, is_installed
from offcut.errors import TargetError

_X86 = ("x86_64", "AMD64", "amd64")
_OPEN: dict[tuple[int, int], int] = {}
"""Descriptors of the libraries that this process has opened, by device and inode: see `open_library`."""


def is_own_architecture(triple: str) -> bool:
    """Return whether this process runs code for a triple of LLVM."""
    made_for, here = triple.partition("-")[0], platform.machine()
    return made_for == here or (made_for in _X86 and here in _X86)


@dataclass(frozen=True)
class LibraryFile:
    """A shared library beside a file: its name there, its bytes, and their CRC-32."""

    name: str
    bytes: int
    crc32: int

    @staticmethod
    def read(members: Mapping[str, Any]) -> LibraryFile:
        """Return what JSON has; raises LookupError, TypeError or ValueError for anything else."""
        name = str(members["name"])
        if name != os.path.basename(name) or not name:
            raise ValueError(f"{name!r} is not a name of a file")
        return LibraryFile(name, int(members["bytes"]), int(members["crc32"]))


@dataclass(frozen=True)
class LoadedLibrary:
    """A shared library in this process, for as long as it lives."""

    library: ctypes.CDLL

    def address(self, symbol: str) -> int:
        """Return the address of a function; raises RuntimeError where there is none."""
        try:
            return ctypes.cast(getattr(self.library, symbol), ctypes.c_void_p).value or 0
        except AttributeError:
            raise RuntimeError(f"it has no {symbol}") from None


def open_library(path: Path, expected: LibraryFile) -> LoadedLibrary:
    """Return a shared library, whose bytes are compared before anything of it runs.

    The loader of the system knows libraries by the path that they were opened by, and would give the one before for a path that was written
    anew. So a library is opened by its descriptor, which stays open as long as the process: no other file gets that name.

    Raises RuntimeError for a file that is not the expected one, OSError for one that cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    try:
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read()
        if (len(data), zlib.crc32(data)) != (expected.bytes, expected.crc32):
            raise RuntimeError("it is damaged, or of another file")
        _provide_math()
        first = _OPEN.setdefault((status.st_dev, status.st_ino), descriptor)
        return LoadedLibrary(ctypes.CDLL(f"/proc/self/fd/{first}"))
    finally:
        if _OPEN.get((status.st_dev, status.st_ino)) != descriptor:
            os.close(descriptor)


def _provide_math() -> None:
    """Let libraries find the functions of ``math.h``, which are in the C library itself where this one is not there."""
    try:
        ctypes.CDLL("libm.so.6", ctypes.RTLD_GLOBAL)
    except OSError:
        return


_PACKAGE = "ziglang"
"""Of the extra ``shared``: a wheel with LLVM's linker for all architectures."""
_FLAGS = "-shared -z text -z noexecstack -Bsymbolic --build-id=none"
"""Nothing is written to where the code is mapped, no stack is executable, its own symbols are its own, and equal objects are equal
libraries. What the C library defines stays undefined: the process has it."""


def link(name: str, code: PortableCode) -> bytes:
    """Return the shared library of an object file.

    name  what is not saved where there is no linker

    Raises TargetError where there is none, or where it fails.
    """
    refused, architecture = f"cannot make a shared library of {name}", code.triple.partition("-")[0]
    linker = next(_linkers(architecture, is_own_architecture(code.triple)), None)
    if linker is None:
        raise TargetError(
            "save",
            refused,
            because=f"there is no linker for {architecture}",
            help=("ld of binutils, or ld.lld, on the path", extra_help("shared")),
        )
    with TemporaryDirectory(prefix="offcut-") as folder:
        source, library = Path(folder, "code.o"), Path(folder, "code.so")
        source.write_bytes(code.object)
        command = [*linker, *_FLAGS.split(), "-o", str(library), str(source)]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        if finished.returncode or not library.exists():
            said = finished.stderr.strip()[-500:] or f"it ended with {finished.returncode}"
            raise TargetError("save", refused, because=f"{' '.join(linker)}: {said}")
        return library.read_bytes()


def _linkers(architecture: str, is_own: bool) -> Iterator[Sequence[str]]:
    """Yield linkers that are there and have the command line of ``ld``, the quickest first."""
    for name in (*(("ld",) if is_own else ()), f"{architecture}-linux-gnu-ld", "ld.lld"):
        if (path := shutil.which(name)) is not None:
            yield (path,)
    if is_installed(_PACKAGE):
        yield sys.executable, "-m", _PACKAGE, "ld.lld"


MOST = 1024
"""Threads of a job."""
OPEN, FORGET = "offcut_pool_open", "offcut_pool_forget"
_NO_MEMORY, _SURVIVES_FORK = 1, 2
_opened = set[int]()


def open_pool(code: Any) -> bool:
    """Return whether the pool of some code could be made; done once for the code at an address.

    code  loaded: it gives addresses by symbols, and lives as long as the process from here on, since workers run it
    """
    address = code.address(OPEN)
    if address in _opened:
        return True
    answer = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(address)(usable_processors())
    if answer == _NO_MEMORY:
        return False
    _opened.add(address)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))
    if answer == _SURVIVES_FORK:
        process.run_in_children(ctypes.CFUNCTYPE(None)(code.address(FORGET)))
    return True


def usable_processors() -> int:
    """Return how many threads of this process can run at once."""
    return min(len(os.sched_getaffinity(os.getpid())), MOST)
