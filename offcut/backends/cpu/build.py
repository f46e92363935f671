"""Building a kernel for the CPU: cut, prove, lower, compile; or take it from the cache."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

from offcut import debug
from offcut.backends.base import Signature
from offcut.backends.cpu import cache as objects
from offcut.backends.cpu import fma, jit
from offcut.backends.cpu.entry import fast_entry_ir
from offcut.backends.cpu.isa import Host
from offcut.backends.cpu.lower import Lowered, lower
from offcut.backends.cpu.schedule import microkernels, schedule
from offcut.backends.schedule import Schedule
from offcut.core import index as ix
from offcut.core.computation import Computation
from offcut.core.expr import Expr
from offcut.core.program import Kind, Panels
from offcut.costmodel import Hardware, load, with_caches
from offcut.partition import check_program

Shapes = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Code:
    """A kernel's machine code.

    layouts   of the constants, by buffer, in the order of the entry's pointers
    fresh     whether it was built now, and not found in the cache
    """

    loaded: jit.Loaded
    layouts: tuple[tuple[str, Panels | None], ...]
    fresh: bool


@cache
def hardware() -> Hardware:
    """This machine: the description beside this file, with the host's own caches."""
    described = load(Path(__file__).with_name("core.toml"))
    return with_caches(
        described,
        l1_bytes=_cache_fact(0, "size"),
        l1_ways=_cache_fact(0, "ways_of_associativity"),
        nearest_bytes=_cache_fact(2, "size"),
    )


def _cache_fact(index: int, fact: str) -> int | None:
    """A fact of one of the core's caches, where the system says it."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}/{fact}").read_text().strip()
    except OSError:
        return None
    digits, factor = text.rstrip("KM"), {"K": 1024, "M": 1 << 20}.get(text[-1:], 1)
    return int(digits) * factor if digits.isdigit() else None


def plan(computation: Computation, host: Host, strategy: str | Mapping[str, str]) -> Schedule:
    """The schedule of `computation`, proved; ``OFFCUT_VERIFY=1`` reads the program back as well."""
    with debug.timed("cut and prove"):
        made = schedule(computation, host.isa, hardware(), strategy)
    debug.note(3, str(made.partition))
    if os.environ.get("OFFCUT_VERIFY") == "1":
        with debug.timed("verify"):
            check_program(made.partition.computation, made.partition.loops)
    return made


def lowered(computation: Computation, signature: Signature, made: Schedule, host: Host) -> Lowered:
    """LLVM IR of a kernel: its entry and the fast call; its microkernels are modules of their own."""
    program = made.partition.loops
    low = lower(program, host.isa, microkernels(host.isa), work_of(computation))
    constants = sum(buffer.kind is Kind.CONSTANT for buffer in program.buffers)
    return replace(low, text=low.text + fast_entry_ir(signature, constants=constants, work=True))


def tile_modules(low: Lowered, host: Host) -> list[str]:
    """LLVM IR of the microkernels that a kernel calls."""
    return [fma.tiles(host.isa, *request) for request in low.tiles]


@lru_cache(maxsize=64)
def _tile_object(host: Host, dtype: str, variant: fma.Variant, shapes: Shapes) -> bytes:
    """Object code of microkernels, shared by all kernels that need the same ones."""
    name = objects.key("tiles", repr((host, dtype, variant, shapes)))
    kept = objects.read(name)
    if kept is None:
        text = fma.tiles(host.isa, dtype, variant, shapes)
        kept = jit.object_code(text, host, passes=False)
        objects.write(name, kept)
    return kept


def work_of(computation: Computation) -> Expr:
    """Instances of all stages, as an index expression in the sizes."""
    total: Expr = ix.const(0)
    for group in computation.groups:
        for stage in group:
            instances: Expr = ix.const(1)
            for axis in (*stage.axes, *stage.reduce_axes):
                instances = ix.mul(instances, axis.extent)
            total = ix.add(total, instances)
    return total


def build(
    computation: Computation,
    signature: Signature,
    host: Host,
    strategy: str | Mapping[str, str],
) -> Code:
    """Machine code of `computation`, from the cache where it has been proved and built before."""
    named = strategy if isinstance(strategy, str) else json.dumps(dict(strategy), sort_keys=True)
    content = (repr(computation), repr(signature), named, host.triple, host.feature_string)
    name = objects.key(*content, repr(hardware()))
    if os.environ.get("OFFCUT_VERIFY") != "1":
        kept = objects.read(name)
        if kept is not None:
            with debug.timed("load"):
                return _unpacked(kept, host, fresh=False)
    made = plan(computation, host, strategy)
    with debug.timed("lower"):
        low = lowered(computation, signature, made, host)
    debug.note(4, low.text)
    with debug.timed("compile microkernels"):
        parts = [_tile_object(host, *request) for request in low.tiles]
    with debug.timed("compile"):
        parts.append(jit.object_code(low.text, host, passes=True))
    layouts = [
        [b.name, [b.layout.rows, b.layout.columns, b.layout.width] if b.layout else None]
        for b in made.partition.loops.buffers
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
        (name, None if layout is None else Panels(*layout)) for name, layout in json.loads(parts[0])
    )
    return Code(jit.load(parts[1:], host), layouts, fresh)
