"""A shared library of an object file, by a linker of the system, or of the package ``ziglang``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from offcut.backends.abi import PortableCode
from offcut.backends.host.shared_library import is_own_architecture
from offcut.core.extras import extra_help, is_installed
from offcut.errors import TargetError

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
            output = finished.stderr.strip()[-500:] or f"it ended with {finished.returncode}"
            raise TargetError("save", refused, because=f"{' '.join(linker)}: {output}")
        return library.read_bytes()


def _linkers(architecture: str, is_own: bool) -> Iterator[Sequence[str]]:
    """Yield linkers that are there and have the command line of ``ld``, the quickest first."""
    for name in (*(("ld",) if is_own else ()), f"{architecture}-linux-gnu-ld", "ld.lld"):
        if (path := shutil.which(name)) is not None:
            yield (path,)
    if is_installed(_PACKAGE):
        yield sys.executable, "-m", _PACKAGE, "ld.lld"


__all__ = ["link"]
