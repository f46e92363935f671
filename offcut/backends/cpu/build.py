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
from offcut.backends.cpu.vectorize import Vectorized, privatized, vectorized
from offcut.backends.inside import kept_inside
from offcut.backends.raising import raised
from offcut.backends.schedule import Schedule
from offcut.core import index as ix
from offcut.core.computation import Computation
from offcut.core.expr import Expr, Load
from offcut.core.expr import walk as nodes
from offcut.core.program import Buffer, For, Kind, Panels, Program, Store, walk
from offcut.costmodel import Hardware, load, with_caches
from offcut.errors import PartitionError
from offcut.partition import all_matches, check_program, separate
from offcut.partition.separate import Separated

CHAINS = 4  # vectors of a program's sums that are computed side by side: as long as an FMA takes

COPIES = 16  # of a statement, at most, to move conditions out of loops

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
            assert made.partition.computation is not None
            check_program(made.partition.computation, made.partition.loops)
    return made


def lowered(computation: Computation, signature: Signature, made: Schedule, host: Host) -> Lowered:
    """LLVM IR of a kernel: its entry and the fast call; its microkernels are modules of their own."""
    program = made.partition.loops
    low = lower(program, host.isa, microkernels(host.isa), work_of(computation))
    constants = sum(buffer.kind is Kind.CONSTANT for buffer in program.buffers)
    return replace(low, text=low.text + fast_entry_ir(signature, constants=constants, work=True))


def plan_program(program: Program, host: Host) -> Vectorized:
    """`program` with conditions moved out of its loops, and loops turned into tiles of lanes.

    Raises PartitionError where it leaves an array.
    """
    with debug.timed("bounds"):
        inside = kept_inside(program)
    with debug.timed("separate"):
        whole = Separated(inside, ())
        apart = whole if _reads_bounds(inside) else separate(inside, COPIES)
    with debug.timed("vectorize"):
        made = vectorized(apart.program, host.isa)
    debug.note(3, str(made.program))
    said = tuple(f"loop {note.loop}: {note.text}" for note in apart.notes)
    return replace(made, notes=(*said, *made.notes))


def contraction_in(program: Program, host: Host) -> Computation | None:
    """`program` as a computation, where it is one and some microkernel computes a sum of it."""
    name = objects.key("contraction", repr(program), host.triple, host.feature_string)
    if objects.read(name) == b"none":
        return None
    with debug.timed("raise"):
        found = _contraction(program, host)
    if found is None:
        objects.write(name, b"none")
    return found


def _contraction(program: Program, host: Host) -> Computation | None:
    if not any(isinstance(stmt, Store) and stmt.reduce for stmt in walk(program.body)):
        return None
    computation = raised(*privatized(program))
    if computation is None:
        return None
    kernels = microkernels(host.isa)
    leads = (group[0] for group in computation.groups)
    if not any(match.columns for lead in leads for match in all_matches(lead, kernels)):
        return None
    try:
        schedule(computation, host.isa, hardware(), "auto")
    except PartitionError:  # a read that cannot be bounded, say: loops run it as it stands
        return None
    return computation


def _reads_bounds(program: Program) -> bool:
    """Whether an array says how often some loop runs: no set knows where its conditions change."""
    bounds = (b for stmt in walk(program.body) if isinstance(stmt, For) for b in (stmt.lo, stmt.hi))
    return any(isinstance(node, Load) for bound in bounds for node in nodes(bound))


def lowered_program(made: Vectorized, signature: Signature, host: Host) -> Lowered:
    """LLVM IR of a kernel that runs a program."""
    program = made.program
    low = lower(program, host.isa, microkernels(host.isa), ix.const(0), CHAINS)
    constants = sum(buffer.kind is Kind.CONSTANT for buffer in program.buffers)
    return replace(low, text=low.text + fast_entry_ir(signature, constants=constants))


def code_bytes(program: Program, host: Host) -> int:
    """Bytes of the instructions of a cut program as they are emitted, microkernels not counted."""
    made = vectorized(program, host.isa)
    low = lower(made.program, host.isa, microkernels(host.isa), ix.const(0), CHAINS)
    return jit.text_bytes(jit.object_code(low.text, host, passes=True, loops=True))


def build_program(program: Program, signature: Signature, host: Host) -> Code:
    """Machine code of a loop program, from the cache where it has been built before."""
    content = (repr(program), repr(signature), host.triple, host.feature_string)
    name = objects.key("program", *content)
    kept = objects.read(name)
    if kept is not None:
        with debug.timed("load"):
            return _unpacked(kept, host, fresh=False)
    made = plan_program(program, host)
    with debug.timed("lower"):
        low = lowered_program(made, signature, host)
    return _compiled(low, made.program.buffers, host, name, loops=True)


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
    return _compiled(low, made.partition.loops.buffers, host, name, loops=False)


def _compiled(low: Lowered, buffers: Sequence[Buffer], host: Host, name: str, loops: bool) -> Code:
    """The machine code of a kernel, which the cache keeps as `name`."""
    debug.note(4, low.text)
    with debug.timed("compile microkernels"):
        parts = [_tile_object(host, *request) for request in low.tiles]
    with debug.timed("compile"):
        parts.append(jit.object_code(low.text, host, passes=True, loops=loops))
    layouts = [
        [b.name, [b.layout.rows, b.layout.columns, b.layout.width] if b.layout else None]
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
        (name, None if layout is None else Panels(*layout)) for name, layout in json.loads(parts[0])
    )
    return Code(jit.load(parts[1:], host), layouts, fresh)
