"""Building a kernel for the CPU: lower its plan, compile it, load it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from offcut import debug
from offcut.backends.abi import Entry, Signature
from offcut.backends.cpu.lowering.lower import Lowered, lower
from offcut.backends.cpu.machine import jit
from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.microkernels import external
from offcut.backends.cpu.microkernels.available import families
from offcut.backends.cpu.microkernels.family import Family, Variant
from offcut.backends.cpu.packed_constants import PackedBuffer, PackedConstants, Reading
from offcut.backends.cpu.planning.cpu_plan import CpuPlan
from offcut.backends.cpu.planning.lanes import mark_row_reductions
from offcut.backends.cpu.planning.vectorize import vectorize
from offcut.backends.cpu.threads import pool
from offcut.backends.cpu.threads.parallel import check_race_free
from offcut.backends.cpu.threads.spmd_lowering import lower_spmd
from offcut.backends.host import by_name, by_name_ir, cache, call_sequence, sized_call_ir
from offcut.backends.host import cache as objects
from offcut.backends.host.call import make_callable
from offcut.backends.host.fast_entry import DECLARED, fast_entry_ir
from offcut.backends.llvm.loader import JitModule
from offcut.core import index as ix
from offcut.core.process import ForkSafeLock
from offcut.core.program import Buffer, Kind, Program
from offcut.core.text.layouts import format_layout, layout_of
from offcut.core.traversal import canonicalize
from offcut.describe.request import Array
from offcut.errors import TargetError


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel's machine code: from the constants, by name, to what a user calls.

    objects  that it was loaded from
    layouts  of the constants and their element types, in the order of the entry's pointers
    host     the machine that it is for; external microkernels that it may call live as long as it does
    """

    signature: Signature
    loaded: JitModule
    objects: tuple[bytes, ...]
    layouts: tuple[Reading, ...]
    host: Host

    def __call__(self, constants: Mapping[str, Array]) -> Callable[..., Any]:
        """Return the call, with the constants packed as the code reads them."""
        return make_callable(
            self.signature,
            self.loaded.address("offcut_entry"),
            self.loaded.address("offcut_workspace"),
            self.loaded.address("offcut_fastcall"),
            [(one.address, one.owner) for one in self._read(constants)],
            owner=(self.loaded, self.host.external),
        )

    def entry(self, constants: Mapping[str, Array]) -> Entry:
        """Return the C entry, with the constants packed as it reads them."""
        packed, turn = self._read(constants), _in_turn(replace(self.host, external=(), threads=1))
        return Entry(
            self.loaded.address("offcut_entry"),
            self.loaded.address("offcut_workspace"),
            tuple(one.address for one in packed),
            turn.address(call_sequence.SYMBOL),
            turn.address(sized_call_ir.SYMBOL),
            turn.address(by_name.SYMBOL),
            owners=(self.loaded, turn, self.host.external, *(one.owner for one in packed)),
            memories=tuple(one.memory for one in packed),
            objects=() if self.host.external else self.objects,
        )

    def constant_copies(self, constants: Mapping[str, Array]) -> PackedConstants:
        """Return the constants, packed as the code reads them."""
        return PackedConstants.of(constants, self.layouts)

    def _read(self, constants: Mapping[str, Array]) -> list[PackedBuffer]:
        copies = self.constant_copies(constants)
        return [copies.as_read(layout) for layout in self.layouts]


@dataclass(frozen=True)
class ForeignKernel:
    """A kernel's machine code for a machine that this one is not: it is saved and exported, and refuses to be called.

    lacking  what this machine lacks
    """

    signature: Signature
    layouts: tuple[Reading, ...]
    host: Host
    lacking: tuple[str, ...]

    def __call__(self, constants: Mapping[str, Array]) -> Callable[..., Any]:
        """Return what raises TargetError."""

        def call(*arrays: Any, **sizes: Any) -> Any:
            raise TargetError(
                self.signature.name,
                f"cannot run code for {self.host.machine.name} here",
                because=f"this machine lacks {', '.join(self.lacking)}",
                help=("save(path), or export(folder), for a machine like that one",),
            )

        return call

    def entry(self, constants: Mapping[str, Array]) -> Entry:
        """Return an entry without addresses: what it reads, packed."""
        memories = tuple(map(self.constant_copies(constants).as_read, self.layouts))
        return Entry(
            0,
            0,
            tuple(one.address for one in memories),
            0,
            owners=tuple(one.owner for one in memories),
            memories=tuple(one.memory for one in memories),
        )

    def constant_copies(self, constants: Mapping[str, Array]) -> PackedConstants:
        """Return the constants, packed as the code reads them."""
        return PackedConstants.of(constants, self.layouts)


def lower_kernel(plan: CpuPlan, signature: Signature, host: Host) -> Lowered:
    """LLVM IR of a kernel: its entry and the fast call; its microkernels are modules of their own."""
    program, chains = plan.program, host.machine.loops.chains
    work = ix.const(0) if plan.work is None else plan.work
    run, lent = plan.shares, families(host)
    if host.threads > 1 and run.loops:
        check_race_free(run, host.machine.threads.chunk, host.threads)
        low = lower_spmd(run, host.isa, lent, work, chains, host.threads, plan.seconds)
    else:
        low = lower(program, host.isa, lent, work, chains)
    fastcall = fast_entry_ir(signature, constants=len(constants(plan)), work=plan.work is not None)
    return replace(low, fastcall=DECLARED + fastcall)


def code_bytes(program: Program, host: Host) -> int:
    """Bytes of the instructions of a cut program as they are emitted, microkernels not counted."""
    loops = vectorize(mark_row_reductions(canonicalize(program), reassociate=True), host.isa)
    low = lower(loops.program, host.isa, families(host), ix.const(0), host.machine.loops.chains)
    return jit.text_bytes(jit.object_code(low.text, host, passes=True, loops=low.loops))


def compile_kernel(plan: CpuPlan, signature: Signature, host: Host) -> bytes:
    """Return a kernel's object files, and how its constants lie."""
    with debug.timed("lower"):
        low = lower_kernel(plan, signature, host)
    debug.note(4, low.text + low.loops + low.fastcall, "lower")
    with debug.timed("microkernels"):
        parts = [*compile_microkernels(low, replace(host, threads=1))]
    with debug.timed("compile"):
        modules = {"loops": low.loops, "fastcall": low.fastcall}
        parts.append(jit.object_code(low.text, host, passes=True, **modules))
    layouts = [
        [b.name, format_layout(b.layout) if b.layout else None, b.dtype] for b in constants(plan)
    ]
    return _frame([json.dumps(layouts).encode(), *parts])


def constants(plan: CpuPlan) -> list[Buffer]:
    """Return the constants that the code of a plan reads, in the order of the entry's pointers."""
    return [buffer for buffer in plan.program.buffers if buffer.kind is Kind.CONSTANT]


def _frame(parts: Sequence[bytes]) -> bytes:
    """Byte strings one after the other, each behind its length."""
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def load_kernel(
    payload: bytes, signature: Signature, host: Host, lacking: tuple[str, ...] = ()
) -> LoadedKernel | ForeignKernel:
    """Return what `compile_kernel` gave, in this process.

    lacking  what this machine lacks to run it
    """
    parts: list[bytes] = []
    while payload:
        end = 8 + int.from_bytes(payload[:8], "little")
        parts.append(payload[8:end])
        payload = payload[end:]
    layouts = tuple(
        (name, layout_of(layout) if layout else None, dtype)
        for name, layout, dtype in json.loads(parts[0])
    )
    if lacking:
        return ForeignKernel(signature, layouts, host, lacking)
    if host.threads > 1:
        pool.start()
    code = external.load(parts[1:], host)
    return LoadedKernel(signature, code, tuple(parts[1:]), layouts, host)


@lru_cache(maxsize=8)
def _in_turn(host: Host) -> JitModule:
    """Return the functions that call entries one after the other. Who takes its address keeps them: threads that ask at once get some each."""
    sequence = call_sequence.call_sequence_ir()
    text = sequence + sized_call_ir.sized_call_ir(call_sequence.SYMBOL) + by_name_ir.by_name_ir()
    name = objects.key("in turn", text, repr(host))
    object_code = objects.get_or_build(name, lambda: jit.object_code(text, host, passes=True))
    return jit.load([object_code], host)


# The microkernels that a kernel calls, as LLVM IR and as object files.
#
# Most of them are called by other kernels, too, and a file takes longer than a function in it. So what a kernel is the
# first to call of a microkernel is one file, and the next kernels take that as it is.

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
    found: dict[int, bytes] = {}
    for kernel, variant, shapes in low.tiles:
        wanted: Sequence[Shape] = shapes or (ANY,)
        with _lock:
            if len(_files) > _MAX_VARIANTS:
                _files.clear()
            known = _files.setdefault((host, kernel, variant), {})
            if new := [shape for shape in wanted if shape not in known]:
                known |= dict.fromkeys(new, _object(host, kernel, variant, new))
            found |= {id(known[shape]): known[shape] for shape in wanted}
    return list(found.values())


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
