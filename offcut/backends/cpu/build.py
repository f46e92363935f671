"""Building a kernel for the CPU: plan, lower, compile; or take it from the cache."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache

from offcut import debug
from offcut.backends.base import Signature
from offcut.backends.cpu import cache as objects
from offcut.backends.cpu import external, jit, pool
from offcut.backends.cpu.entry import fast_entry_ir
from offcut.backends.cpu.family import Family, Variant
from offcut.backends.cpu.isa import Host
from offcut.backends.cpu.kernels import families
from offcut.backends.cpu.lower import Lowered, lower
from offcut.backends.cpu.machine import hardware
from offcut.backends.cpu.planning import DEFAULT, Asked, Planned, plan, shared
from offcut.backends.cpu.rows import marked
from offcut.backends.cpu.threaded import lower_threaded
from offcut.backends.cpu.vectorize import vectorized
from offcut.core import index as ix
from offcut.core.program import Buffer, Kind, Panels, Program, canonical
from offcut.partition import Users

CHAINS = 4  # vectors of a program's sums that are computed side by side: as long as an FMA takes

Shapes = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Code:
    """A kernel's machine code.

    layouts   of the constants and their element types, in the order of the entry's pointers
    fresh     whether it was built now, and not found in the cache
    """

    loaded: jit.Loaded
    layouts: tuple[tuple[str, Panels | None, str], ...]
    fresh: bool


def build(
    program: Program, users: Users, signature: Signature, host: Host, asked: Asked = DEFAULT
) -> Code:
    """Machine code of `program`, from the cache where it has been proved and built before."""
    content = (str(program), repr(signature), repr(users), repr(asked), *host.facts)
    name = objects.key(*content, repr(hardware()))
    kept = objects.read(name)
    if kept is not None:
        if debug.verifies():
            plan(program, users, host, asked)  # which proves it again
        with debug.timed("load"):
            return _unpacked(kept, host, fresh=False)
    made = plan(program, users, host, asked)
    with debug.timed("lower"):
        low = lowered(made, signature, host)
    return _compiled(low, made.program.buffers, host, name, loops=made.has_loops)


def lowered(made: Planned, signature: Signature, host: Host) -> Lowered:
    """LLVM IR of a kernel: its entry and the fast call; its microkernels are modules of their own."""
    program, chains = made.program, CHAINS
    work = ix.const(0) if made.work is None else made.work
    run, lent = shared(program, host), families(host)
    if run.loops:
        low = lower_threaded(run, host.isa, lent, work, chains, host.threads, made.seconds)
    else:
        low = lower(program, host.isa, lent, work, chains)
    constants = sum(buffer.kind is Kind.CONSTANT for buffer in program.buffers)
    entry = fast_entry_ir(signature, constants=constants, work=made.work is not None)
    return replace(low, text=low.text + entry)


def code_bytes(program: Program, host: Host) -> int:
    """Bytes of the instructions of a cut program as they are emitted, microkernels not counted."""
    made = vectorized(marked(canonical(program), reassociate=True), host.isa)
    low = lower(made.program, host.isa, families(host), ix.const(0), CHAINS)
    return jit.text_bytes(jit.object_code(low.text, host, passes=True, loops=True))


def tile_modules(low: Lowered, host: Host) -> list[str]:
    """LLVM IR of the microkernels that a kernel calls."""
    return [_family(host, name).text(variant, shapes) for name, variant, shapes in low.tiles]


def _family(host: Host, name: str) -> Family:
    return next(family for family in families(host) if family.microkernel.name == name)


@lru_cache(maxsize=256)
def _tile_object(host: Host, kernel: str, variant: Variant, shapes: Shapes) -> bytes:
    """Object code of microkernels, shared by all kernels that need the same ones."""
    name = objects.key("tiles", repr((host, kernel, variant, shapes)))
    kept = objects.read(name)
    if kept is None:
        text = _family(host, kernel).text(variant, shapes)
        kept = jit.object_code(text, host, passes=False)
        objects.write(name, kept)
    return kept


def _compiled(low: Lowered, buffers: Sequence[Buffer], host: Host, name: str, loops: bool) -> Code:
    """The machine code of a kernel, which the cache keeps as `name`."""
    debug.note(4, low.text, "lower")
    with debug.timed("microkernels"):
        tiles_for = replace(host, threads=1)
        parts = [_tile_object(tiles_for, *request) for request in low.tiles]
    with debug.timed("compile"):
        parts.append(jit.object_code(low.text, host, passes=True, loops=loops))
    layouts = [
        [b.name, astuple(b.layout) if b.layout else None, b.dtype]
        for b in buffers
        if b.kind is Kind.CONSTANT
    ]
    payload = _framed([json.dumps(layouts).encode(), *parts])
    objects.write(name, payload)
    return _unpacked(payload, host, fresh=True)


def _framed(parts: Sequence[bytes]) -> bytes:
    """Byte strings one after the other, each behind its length."""
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def _unpacked(payload: bytes, host: Host, fresh: bool) -> Code:
    parts: list[bytes] = []
    while payload:
        end = 8 + int.from_bytes(payload[:8], "little")
        parts.append(payload[8:end])
        payload = payload[end:]
    layouts = tuple(
        (name, None if layout is None else Panels(*layout), dtype)
        for name, layout, dtype in json.loads(parts[0])
    )
    if host.threads > 1:
        pool.start()
    return Code(external.load(parts[1:], host), layouts, fresh)
