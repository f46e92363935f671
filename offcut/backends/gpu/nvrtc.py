"""Compiles CUDA C++ to a cubin by NVRTC, without a GPU and a toolkit; and reads what ptxas says of the kernels.

The text includes no header. The cubin lies in the cache by the text, the options and the version of the compiler, so a kernel
is loaded where there is no compiler.

What ptxas says of the kernels that it made: their registers, and what makes code slow.

A spill, a ``setmaxnreg`` that is ignored and products of a warpgroup that run one after the other are no faults of values, and
ptxas only notes them. Here they are errors: nobody reads a log, and the code would be several times slower.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache as remember
from types import ModuleType
from typing import Any

from offcut.backends.host import cache
from offcut.core.extras import extra_help
from offcut.errors import InternalError, TargetError

SLOW = {
    "C7508": "setmaxnreg is ignored",
    "C7510": "products of a warpgroup run one after the other, because of a function call",
    "C7511": "products of a warpgroup run one after the other, for want of registers",
    "C7512": "products of a warpgroup run one after the other, as the function is not as they need it",
}
"""Notes of ptxas that mean slow code, by their number."""
REGISTERS = 65536
"""Registers of a multiprocessor, which is what a block can have."""
_GRANULE = 8
"""Registers of a thread are a multiple of this."""

_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_NOTE = re.compile(r"\((C\d+)\)")


@dataclass(frozen=True, slots=True)
class KernelUsage:
    """What a kernel takes: registers of a thread, and bytes of its stack that are written and read as spills."""

    name: str
    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


def kernel_usages(log: str) -> tuple[KernelUsage, ...]:
    """Return what each kernel takes, in the order of the log."""
    usages: list[KernelUsage] = []
    name, stack = "", (0, 0, 0)
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            name, stack = entry[1], (0, 0, 0)
        elif spills := _SPILLS.search(line):
            stack = int(spills[1]), int(spills[2]), int(spills[3])
        elif (used := _USED.search(line)) and name:
            usages.append(KernelUsage(name, int(used[1]), *stack))
            name = ""
    return tuple(usages)


def slow_line(log: str, threads: dict[str, int]) -> tuple[str, str] | None:
    """Return the first line of a log that means slow code or none that starts, and what it means; None if there is none.

    threads  of a block, by kernel
    """
    for line in log.splitlines():
        note = _NOTE.search(line)
        if note is not None and note[1] in SLOW:
            return line.strip(), SLOW[note[1]]
    for usage in kernel_usages(log):
        if usage.spill_store_bytes or usage.spill_load_bytes:
            line = f"{usage.name}: {usage.spill_store_bytes} bytes spill stores, {usage.spill_load_bytes} bytes spill loads"
            return line, f"values do not fit in its {usage.registers} registers a thread"
        own = -(-usage.registers // _GRANULE) * _GRANULE
        count = threads.get(usage.name, 0)
        if own * count > REGISTERS:
            line = f"{usage.name}: {usage.registers} registers a thread"
            return line, f"{own} for each of {count} threads are more than the {REGISTERS} of a multiprocessor"  # fmt: skip
    return None


VERSION = (13, 0)
"""The version whose cubins are kept: the drivers that it asks for are those of CUDA 13."""
WHEELS = ("cuda-bindings", "nvidia-cuda-nvrtc")
_SUCCESS = 0
_COMPILATION = 6
_SPECIFIC = frozenset({"sm_90"})
"""Architectures whose own instructions (``wgmma``, ``setmaxnreg``) are those of the architecture with an ``a`` behind."""


def architecture_of(machine: str) -> str:
    """Return the architecture that code is made for: ``sm_90a`` for a machine ``sm_90``."""
    return f"{machine}a" if machine in _SPECIFIC else machine


def options_of(architecture: str) -> tuple[str, ...]:
    """Return the options of the compiler; its log then tells registers and spills."""
    return (f"--gpu-architecture={architecture}", "--std=c++17", "--ptxas-options=-v")


def cached_cubin(op: str, text: str, architecture: str, threads: Mapping[str, int]) -> bytes:
    """Return the cubin of a text: from the cache where it was made before, with no compiler then.

    threads  of a block, by kernel

    Raises TargetError as `compile_cubin` does.
    """
    options = options_of(architecture)
    name = cache.key("cubin", text, *options, ".".join(map(str, VERSION)))
    return cache.get_or_build(name, lambda: compile_cubin(op, text, architecture, threads)[0])


def compile_cubin(
    op: str, text: str, architecture: str, threads: Mapping[str, int], library: Any = None
) -> tuple[bytes, str]:
    """Return the cubin of a text, and the log of its compilation.

    op       the call that errors name
    threads  of a block, by kernel: their registers must fit a multiprocessor
    library  with the functions of ``cuda.bindings.nvrtc``; None: that

    Raises TargetError where the compiler is not installed or does not know the architecture, and for code that is slow: spills,
    registers that no block gets, products of warpgroups made serial, ``setmaxnreg`` ignored. The text of offcut's own kernels
    compiles: where it does not, InternalError says the compiler's first error.
    """
    nvrtc = library or nvrtc_module(op)
    program = _check_status(
        op, nvrtc, nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], [])
    )
    try:
        options = [option.encode() for option in options_of(architecture)]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _text(op, nvrtc, program)
        if int(status) == _COMPILATION:
            line = next((one for one in log.splitlines() if "error" in one), log)
            raise InternalError(f"{op}: the text is not CUDA C++ of {architecture}: {line.strip()}")
        if int(status) != _SUCCESS:
            raise TargetError(
                op,
                f"cannot compile for {architecture}",
                because=f"NVRTC {'.'.join(map(str, VERSION))} says: {log.strip() or status}",
                help=("sm_80 and sm_90a are architectures that it knows",),
            )
        slow = slow_line(log, dict(threads))
        if slow is not None:
            raise TargetError(
                op,
                f"does not take slow code for {architecture}",
                at=slow[0],
                because=slow[1],
                help=("smaller tiles", "fewer stages that follow a sum element by element"),
            )
        size = _check_status(op, nvrtc, nvrtc.nvrtcGetCUBINSize(program))
        code = bytearray(size)
        _check_status(op, nvrtc, nvrtc.nvrtcGetCUBIN(program, code))
        return bytes(code), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


@remember
def nvrtc_module(op: str) -> ModuleType:
    """Return ``cuda.bindings.nvrtc``, whose library is there, too.

    Raises TargetError, naming the wheel, where one of the two is missing or of another version.
    """
    try:
        from cuda.bindings import nvrtc
    except ImportError:
        raise _missing(op, WHEELS[0], "it is not installed") from None
    try:
        status, *version = nvrtc.nvrtcVersion()
    except Exception as error:  # its loader raises what it likes where the library is not there
        raise _missing(op, WHEELS[1], str(error).partition("\n")[0]) from None
    if int(status) != _SUCCESS or tuple(version) != VERSION:
        installed = ".".join(map(str, version))
        raise _missing(op, WHEELS[1], f"{'.'.join(map(str, VERSION))} is asked for, and {installed} is there")  # fmt: skip
    module: ModuleType = nvrtc
    return module


def _missing(op: str, wheel: str, because: str) -> TargetError:
    return TargetError(
        op,
        f"cannot compile CUDA C++ without the wheel {wheel}",
        because=because,
        help=(
            extra_help("gpu"),
            'device="emulated" runs on numpy arrays, without a compiler',
        ),
    )


def _text(op: str, nvrtc: Any, program: object) -> str:
    size = _check_status(op, nvrtc, nvrtc.nvrtcGetProgramLogSize(program))
    log = bytearray(size)
    _check_status(op, nvrtc, nvrtc.nvrtcGetProgramLog(program, log))
    return bytes(log).rstrip(b"\0").decode(errors="replace")


def _check_status(op: str, nvrtc: Any, returned: tuple[Any, ...]) -> Any:
    """Return what a function of NVRTC gives beside its status; None if nothing.

    Raises InternalError for a status that is no success.
    """
    status, *values = returned
    if int(status) != _SUCCESS:
        because = nvrtc.nvrtcGetErrorString(status)[1]
        raise InternalError(f"{op}: NVRTC says {bytes(because).decode()}")
    return values[0] if values else None
