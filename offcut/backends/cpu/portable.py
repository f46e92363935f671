"""The modules of kernels, and what calls them, as one position-independent object file.

The microkernels that several kernels call are in it once. What nothing exported calls is dropped, and all but the exported
symbols gets internal linkage under a name that C does not have, so that several such files link into one program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from offcut.backends.abi import PortableCode
from offcut.backends.cpu.build import lower_kernel
from offcut.backends.cpu.lowering.lower import Lowered
from offcut.backends.cpu.machine import cpuid, jit
from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.microkernel_objects import microkernel_ir
from offcut.backends.cpu.microkernels.external import PREFIX
from offcut.backends.cpu.planning.cpu_plan import CpuPlan
from offcut.backends.cpu.threads import pool_ir
from offcut.backends.host.thread_pool import FORGET, OPEN
from offcut.backends.options import KernelPart
from offcut.core.text.c_keywords import LIBRARY, is_word
from offcut.errors import DescribeError

_OWN = "offcut_"
"""How the functions begin that each kernel has: its entry, its workspace, its work, the call from Python."""
_SUPPORTED = "offcut_supported"


def portable_code(
    parts: Sequence[KernelPart],
    glue: Sequence[str],
    symbols: Mapping[str, str],
    host: Host,
    from_python: bool = False,
    threads: int = 1,
) -> PortableCode:
    """Return an object file of kernels and of what calls them.

    parts    plans of this target; the functions of each begin with its symbol in place of ``offcut``; none: code for `host` is called
    glue     modules of LLVM IR that call these functions
    symbols  those that are exported, by their names in these modules; beside them is ``offcut_supported``
    from_python  whether ``offcut_fastcall`` of each kernel is in it
    threads  that a call may use: more than 1 are a pool of the object, which `offcut.backends.host.thread_pool` opens; 1: a call runs on
             the thread that makes it

    Raises DescribeError for external microkernels whose names the program cannot define.
    """
    has_pool = threads > 1 and host.machine.architecture == "x86_64"
    host = replace(host, threads=threads if has_pool else 1)
    lowered, texts = list[Lowered](), list[str]()
    with jit.parse_ir(f'target triple = "{host.triple}"') as module:
        for part in parts:
            assert isinstance(part.planned, CpuPlan)
            low = lower_kernel(part.planned, part.signature, host)
            lowered.append(low)
            fastcall = low.fastcall if from_python else ""
            own = {"loops": low.loops, "fastcall": fastcall}
            with jit.optimize(low.text, host, passes=True, **own) as optimized:
                texts.append(str(optimized))
            jit.link(module, texts[-1], partial(_prefix_symbols, part.symbol))
        texts += microkernel_ir(lowered, host)
        features = cpuid.needed(host, texts) if parts else cpuid.all_features(host)
        supported = cpuid.supported(_SUPPORTED, features, host.triple)
        pools = [pool_ir.text(host.machine.threads)] if has_pool else []
        for text in (*texts[len(parts) :], *pools, *glue, supported):
            jit.link(module, text)
        if has_pool:
            symbols = {**symbols, OPEN: OPEN, FORGET: FORGET}
        provided = _rename_exported(module, symbols)
        code = jit.position_independent(module, host.triple, features)
    return PortableCode(code, host.triple, features, provided, host.threads)


def _prefix_symbols(prefix: str, module: Any) -> None:
    """Give the functions of a kernel its prefix, and hide those that only it calls."""
    for function in module.functions:
        if function.is_declaration:
            continue
        if function.name.startswith(_OWN):
            function.name = f"{prefix}_{function.name.removeprefix(_OWN)}"
        else:
            function.linkage = "internal"


def _rename_exported(module: Any, symbols: Mapping[str, str]) -> tuple[str, ...]:
    """Give what is exported its name and hide the rest; return the symbols that are left to the program."""
    name = symbols.get(_SUPPORTED, _SUPPORTED).removesuffix("_supported")
    everything = [*module.functions, *module.global_variables]
    defined = [value for value in everything if not value.is_declaration]
    for value in defined:
        if value.name not in symbols:
            value.linkage = "internal"
            value.name = f"{name}.{value.name}"  # no name of C: it can meet no other
    for value in defined:
        if value.name in symbols:
            value.name = symbols[value.name]
    jit.strip_unused(module)
    left = [value for value in module.functions if value.is_declaration]
    external = [value for value in left if value.name.startswith(PREFIX)]
    for value in external:
        plain = value.name.removeprefix(PREFIX)
        if plain in symbols.values() or plain in LIBRARY or is_word(plain):
            raise DescribeError(
                "export",
                f"cannot leave the microkernel {plain} to the program",
                because="a function of this name is in the header, or in the C library, or C keeps "
                "the word for itself",
                help=("another name for the kernel, or for the microkernel",),
            )
        value.name = plain
    return tuple(sorted(value.name for value in external))
