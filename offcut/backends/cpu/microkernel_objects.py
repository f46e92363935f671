"""The microkernels that a kernel calls, as LLVM IR and as object files.

Most of them are called by other kernels, too, and a file takes longer than a function in it. So what a kernel is the
first to call of a microkernel is one file, and the next kernels take that as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from offcut.backends.cpu.lowering.lower import Lowered
from offcut.backends.cpu.machine import jit
from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.microkernels.available import families
from offcut.backends.cpu.microkernels.family import Family, Variant
from offcut.backends.host import cache
from offcut.core.fork_safety import ForkSafeLock

Shape = tuple[int, int]
"""Rows and panels."""
ANY: Shape = (0, 0)
"""Of the one function that takes any."""

_MAX_VARIANTS = 256
"""Of which files are held in memory; each has some tens of shapes."""

_files: dict[tuple[Host, str, Variant], dict[Shape, bytes]] = {}
"""The file of each function that there is in this process."""
_lock = ForkSafeLock()


def microkernel_ir(lowered: Iterable[Lowered], host: Host) -> list[str]:
    """Return LLVM IR of the microkernels that some kernels call, each function once."""
    shapes_of: dict[tuple[str, Variant], dict[Shape, None]] = {}
    for low in lowered:
        for name, variant, shapes in low.tiles:
            shapes_of.setdefault((name, variant), {}).update(dict.fromkeys(shapes))
    return [
        _family(host, name).text(variant, (*shapes,))
        for (name, variant), shapes in shapes_of.items()
    ]


def compile_microkernels(low: Lowered, host: Host) -> list[bytes]:
    """Object files of the microkernels that a kernel calls, no function in two of them; there may be others, too."""
    objects: dict[int, bytes] = {}
    for kernel, variant, shapes in low.tiles:
        wanted: Sequence[Shape] = shapes or (ANY,)
        with _lock:
            if len(_files) > _MAX_VARIANTS:
                _files.clear()
            known = _files.setdefault((host, kernel, variant), {})
            if new := [shape for shape in wanted if shape not in known]:
                known |= dict.fromkeys(new, _object(host, kernel, variant, new))
            objects |= {id(known[shape]): known[shape] for shape in wanted}
    return list(objects.values())


def clear_cache() -> None:
    """Drop the object files of this process: the next kernel compiles its microkernels, or reads them from the cache on disk."""
    with _lock:
        _files.clear()


def _object(host: Host, kernel: str, variant: Variant, shapes: Sequence[Shape]) -> bytes:
    name = cache.key("tiles", repr(host), repr((kernel, variant, shapes)))

    def made() -> bytes:
        text = _family(host, kernel).text(variant, [one for one in shapes if one != ANY])
        return jit.object_code(text, host, passes=False)

    return cache.get_or_build(name, made)


def _family(host: Host, name: str) -> Family:
    return next(family for family in families(host) if family.microkernel.name == name)
