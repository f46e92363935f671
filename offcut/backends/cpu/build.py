"""Building a kernel for the CPU: cut, prove, lower, compile; or take it from the cache."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

from offcut import debug
from offcut.backends.base import Signature
from offcut.backends.cpu import cache as objects
from offcut.backends.cpu import external, fma, jit, pool
from offcut.backends.cpu.entry import fast_entry_ir
from offcut.backends.cpu.family import Family, families
from offcut.backends.cpu.isa import Host
from offcut.backends.cpu.lower import Judging, Lowered, lower
from offcut.backends.cpu.parallel import Parallel, parallel
from offcut.backends.cpu.rows import marked
from offcut.backends.cpu.schedule import schedule
from offcut.backends.cpu.seconds import seconds_of_program, seconds_of_schedule
from offcut.backends.cpu.threaded import lower_threaded
from offcut.backends.cpu.vectorize import Vectorized, privatized, vectorized
from offcut.backends.inside import kept_inside
from offcut.backends.raising import raised
from offcut.backends.schedule import Schedule
from offcut.core import index as ix
from offcut.core.computation import Computation
from offcut.core.expr import Expr, Load
from offcut.core.expr import walk as nodes
from offcut.core.program import (
    Alloc,
    Buffer,
    Choose,
    Execution,
    For,
    Kind,
    Let,
    Panels,
    Program,
    Stmt,
    Store,
    Tile,
    canonical,
    walk,
)
from offcut.costmodel import Hardware, copies_worth, load, with_caches
from offcut.errors import PartitionError
from offcut.partition import (
    all_matches,
    check_marks,
    check_program,
    check_tiles,
    check_windows,
    is_staged,
    separate,
    without_covers,
)
from offcut.partition.separate import Separated
from offcut.polyhedral import GaveUp, bounded, in_pass

CHAINS = 4  # vectors of a program's sums that are computed side by side: as long as an FMA takes

COPIES = 16  # of a statement, at most, to move conditions out of loops

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


def plan(
    computation: Computation,
    host: Host,
    strategy: str | Mapping[str, str],
    reassociate: bool = True,
) -> Schedule:
    """The schedule of `computation`, proved; ``OFFCUT_VERIFY=1`` reads the program back as well.

    reassociate   whether a sum over rows of memory may run as lanes
    """
    asked = strategy if isinstance(strategy, str) else tuple(strategy.items())
    return _plan(computation, host, asked, reassociate, os.environ.get("OFFCUT_VERIFY") == "1")


@lru_cache(maxsize=4)  # a kernel that was just built is asked for its loops
def _plan(
    computation: Computation,
    host: Host,
    asked: str | tuple[tuple[str, str], ...],
    reassociate: bool,
    verify: bool,
) -> Schedule:
    """`plan`, by what can be compared; notes and timings are of the first time."""
    strategy = asked if isinstance(asked, str) else dict(asked)
    with debug.timed("cut and prove"), bounded("compile", f"cannot cut {computation.name}"):
        lent, threads = families(host), host.threads
        made = schedule(computation, host.isa, lent, hardware(), strategy, threads, reassociate)
    made = made.settled(covers_of(made.partition.loops, host, reassociate).refused)
    loops = marked(made.partition.loops, reassociate)
    made = replace(made, partition=replace(made.partition, loops=loops))
    debug.note(3, str(made.partition))
    if verify:
        with debug.timed("verify"):
            assert made.partition.computation is not None
            check_program(made.partition.computation, made.partition.loops)
    loops = shared(made.partition.loops, host).program
    return replace(made, partition=replace(made.partition, loops=loops))


def shared(program: Program, host: Host) -> Parallel:
    """`program` with the loops marked that threads share, where a call may use several.

    A program that calls external functions runs on the caller's thread: they may need Python's lock.
    """
    if host.threads == 1 or foreign_in(program, host):
        return Parallel(program, frozenset(), ())
    with debug.timed("threads"):
        return parallel(program)


@dataclass(frozen=True)
class Covers:
    """What became of the tiles of a cut program, each by its position among the statements.

    refused  why the microkernel that a tile names does not compute it
    plain    why a tile that names none has none
    """

    refused: Mapping[int, str]
    plain: Mapping[int, str]


def covers_of(program: Program, host: Host, reassociate: bool = True) -> Covers:
    """Which tiles of a cut program a kernel of it runs without a microkernel, and why.

    It is found on the way that the lowering takes, so it is what a kernel does. Positions are
    parents first.
    """
    given = list(walk(program.body))
    refused, plain = dict[int, str](), dict[int, str]()
    if any(isinstance(stmt, Tile) for stmt in given):
        run = marked(program, reassociate)
        judging = Judging(run, host.isa, families(host))
        for position, (before, after) in enumerate(zip(given, walk(run.body), strict=True)):
            if not isinstance(before, Tile) or not isinstance(after, Tile):
                continue
            reason = judging.refused.get(id(after))
            if before.microkernel is None and reason is not None:
                plain[position] = reason
            elif before.microkernel != after.microkernel:
                refused[position] = "its sums run as lanes of their own"
            elif reason is not None:
                refused[position] = reason
    return Covers(refused, plain)


def _plain_notes(program: Program, covers: Covers) -> Iterator[str]:
    """A line for every tile that runs as vectors."""
    for position, stmt in enumerate(walk(program.body)):
        if position in covers.plain and isinstance(stmt, Tile):
            axes = ", ".join(axis.iter for axis in stmt.axes)
            yield f"tile {axes} as vectors: {covers.plain[position]}"


def foreign_in(program: Program, host: Host) -> tuple[str, ...]:
    """The names of the external microkernels that `program` calls."""
    tiles = (stmt for stmt in walk(program.body) if isinstance(stmt, Tile))
    called = {tile.microkernel for tile in tiles}
    return tuple(kernel.name for kernel in host.external if kernel.name in called)


def lowered(computation: Computation, signature: Signature, made: Schedule, host: Host) -> Lowered:
    """LLVM IR of a kernel: its entry and the fast call; its microkernels are modules of their own."""
    program = made.partition.loops
    low = _lowered(program, host, work_of(computation), 1, seconds_of_schedule(made))
    constants = sum(buffer.kind is Kind.CONSTANT for buffer in program.buffers)
    return replace(low, text=low.text + fast_entry_ir(signature, constants=constants, work=True))


def plan_program(program: Program, host: Host, reassociate: bool = True) -> Vectorized:
    """`program` with conditions moved out of its loops, and loops turned into tiles of lanes.

    reassociate   whether a sum over rows of memory may run as lanes

    Raises PartitionError where it leaves an array, or isl does not say in bounded work.
    """
    with bounded("compile", f"cannot compile {program.name}"):
        return _planned(program, host, reassociate)


def _planned(program: Program, host: Host, reassociate: bool) -> Vectorized:
    """`plan_program`, within the bound on the work of isl."""
    if host.threads > 1 and any(_is_parallel(stmt) for stmt in walk(program.body)):
        check_marks(program, {})
    check_tiles(program)
    check_windows(program)
    with debug.timed("bounds"):
        inside = kept_inside(program)
    with debug.timed("separate"):
        whole = Separated(inside, ())
        leave = _is_cut(inside) or _reads_bounds(inside)
        stores = sum(isinstance(stmt, Store) for stmt in walk(inside.body))
        apart = whole if leave else separate(inside, min(COPIES, copies_worth(hardware(), stores)))
    with debug.timed("covers"):
        covers = covers_of(apart.program, host, reassociate)
        plain = tuple(dict.fromkeys(_plain_notes(apart.program, covers)))
        settled = without_covers(apart.program, covers.refused)
    with debug.timed("vectorize"):
        made = vectorized(marked(settled.program, reassociate), host.isa)
    made = replace(made, program=shared(made.program, host).program)
    debug.note(3, str(made.program))
    said = tuple(f"loop {note.loop}: {note.text}" for note in apart.notes)
    return replace(made, notes=(*said, *made.notes, *settled.notes, *plain))


def _is_cut(program: Program) -> bool:
    """Whether a program was cut: its conditions were separated then, as far as that was worth it."""
    return any(isinstance(stmt, Tile | Choose | Let) for stmt in walk(program.body))


def computation_in(
    program: Program, host: Host, reassociate: bool = True
) -> tuple[Computation | None, str]:
    """`program` as a computation, where it is one that is better planned than run as it stands; else
    why no microkernel runs in it, "" where nothing in it is a sum of products.

    reassociate   whether a sum that starts from a value may add it last
    """
    name = objects.key("computation", repr(program), *host.facts, repr(reassociate))
    kept = objects.read(name)
    if kept is not None:
        text = kept.decode()
        return (None, text) if text != _PLANNED else (raised_of(program), "")
    found, why = _computation(program, host, reassociate)
    objects.write(name, (why if found is None else _PLANNED).encode())
    return found, why


_PLANNED = "planned"  # what the cache keeps of a program that is a computation


def raised_of(program: Program) -> Computation | None:
    """`program` as a computation, where it is one."""
    return raised(*privatized(program))


def added_last(computation: Computation, program: Program) -> str | None:
    """In words, a sum of `program` whose start `computation` adds after its terms; None: none is."""
    own = {buffer.name for buffer in program.buffers}
    for lead in (group[0] for group in computation.groups):
        if lead.reducer is not None and lead.buffer not in own:
            return f"the sum in {lead.buffer.removesuffix('_sum')} starts from a value, and reassociate=False"
    return None


def _computation(program: Program, host: Host, reassociate: bool) -> tuple[Computation | None, str]:
    if not any(isinstance(stmt, Store) and stmt.reduce for stmt in walk(program.body)):
        return None, ""
    try:
        with debug.timed("raise"), in_pass():
            computation = raised_of(program)
    except GaveUp:
        return None, "isl takes too long to tell whether it is a computation"
    if computation is None:
        return None, ""
    kernels = [family.microkernel for family in families(host)]
    leads = [group[0] for group in computation.groups]
    product = any(match.columns for lead in leads for match in all_matches(lead, kernels))
    if len(leads) == 1 and not product and not is_staged(leads[0]):
        return None, ""
    late = None if reassociate else added_last(computation, program)
    if late is not None:
        return None, late if product else ""
    try:
        made = plan(computation, host, "auto", reassociate)
    except PartitionError as refused:  # a read that cannot be bounded, say
        return None, f"{refused.refused}: {refused.because}" if product else ""
    covered = any(piece.microkernel is not None for piece in made.partition.pieces)
    shares = any(isinstance(stmt, Alloc) for stmt in walk(made.partition.loops.body))
    return (computation, "") if covered or shares else (None, "")


def _reads_bounds(program: Program) -> bool:
    """Whether an array says how often some loop runs: no set knows where its conditions change."""
    bounds = (b for stmt in walk(program.body) if isinstance(stmt, For) for b in (stmt.lo, stmt.hi))
    return any(isinstance(node, Load) for bound in bounds for node in nodes(bound))


def lowered_program(made: Vectorized, signature: Signature, host: Host) -> Lowered:
    """LLVM IR of a kernel that runs a program."""
    program = made.program
    low = _lowered(program, host, ix.const(0), CHAINS, seconds_of_program(program))
    constants = sum(buffer.kind is Kind.CONSTANT for buffer in program.buffers)
    return replace(low, text=low.text + fast_entry_ir(signature, constants=constants))


def _lowered(program: Program, host: Host, work: Expr, chains: int, seconds: Expr) -> Lowered:
    """A finished program for the host, and for as many threads as its calls may use."""
    if host.threads > 1:
        made = shared(program, host)
        if made.loops:
            threads = host.threads
            return lower_threaded(made, host.isa, families(host), work, chains, threads, seconds)
    return lower(program, host.isa, families(host), work, chains)


def _is_parallel(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.execution is Execution.PARALLEL


def code_bytes(program: Program, host: Host) -> int:
    """Bytes of the instructions of a cut program as they are emitted, microkernels not counted."""
    made = vectorized(marked(canonical(program), reassociate=True), host.isa)
    low = lower(made.program, host.isa, families(host), ix.const(0), CHAINS)
    return jit.text_bytes(jit.object_code(low.text, host, passes=True, loops=True))


def build_program(
    program: Program, signature: Signature, host: Host, reassociate: bool = True
) -> Code:
    """Machine code of a loop program, from the cache where it has been built before."""
    content = (repr(program), repr(signature), *host.facts)
    name = objects.key("program", *content, repr(reassociate))
    kept = objects.read(name)
    if kept is not None:
        with debug.timed("load"):
            return _unpacked(kept, host, fresh=False)
    made = plan_program(program, host, reassociate)
    with debug.timed("lower"):
        low = lowered_program(made, signature, host)
    return _compiled(low, made.program.buffers, host, name, loops=True)


def tile_modules(low: Lowered, host: Host) -> list[str]:
    """LLVM IR of the microkernels that a kernel calls."""
    return [_family(host, name).text(variant, shapes) for name, variant, shapes in low.tiles]


def _family(host: Host, name: str) -> Family:
    return next(family for family in families(host) if family.microkernel.name == name)


@lru_cache(maxsize=256)
def _tile_object(host: Host, kernel: str, variant: fma.Variant, shapes: Shapes) -> bytes:
    """Object code of microkernels, shared by all kernels that need the same ones."""
    name = objects.key("tiles", repr((host, kernel, variant, shapes)))
    kept = objects.read(name)
    if kept is None:
        text = _family(host, kernel).text(variant, shapes)
        kept = jit.object_code(text, host, passes=False)
        objects.write(name, kept)
    return kept


def work_of(computation: Computation) -> Expr:
    """Instances of all stages, as an index expression in the sizes."""
    stages = (stage for group in computation.groups for stage in group)
    return ix.add(*(stage.instances for stage in stages))


def build(
    computation: Computation,
    signature: Signature,
    host: Host,
    strategy: str | Mapping[str, str],
    reassociate: bool = True,
) -> Code:
    """Machine code of `computation`, from the cache where it has been proved and built before."""
    named = strategy if isinstance(strategy, str) else json.dumps(dict(strategy), sort_keys=True)
    content = (repr(computation), repr(signature), named, *host.facts)
    name = objects.key(*content, repr(hardware()), repr(reassociate))
    kept = objects.read(name)
    if kept is not None:
        if os.environ.get("OFFCUT_VERIFY") == "1":
            plan(computation, host, strategy, reassociate)  # which proves it again
        with debug.timed("load"):
            return _unpacked(kept, host, fresh=False)
    made = plan(computation, host, strategy, reassociate)
    with debug.timed("lower"):
        low = lowered(computation, signature, made, host)
    return _compiled(low, made.partition.loops.buffers, host, name, loops=made.has_loops)


def _compiled(low: Lowered, buffers: Sequence[Buffer], host: Host, name: str, loops: bool) -> Code:
    """The machine code of a kernel, which the cache keeps as `name`."""
    debug.note(4, low.text)
    with debug.timed("compile microkernels"):
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
