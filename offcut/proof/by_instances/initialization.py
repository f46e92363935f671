"""A program as statements in; what it reads of some arrays before it writes it, out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.analysis import (
    accessed_arrays,
    analysis,
    indices,
    read_arrays,
    statement_arrays,
    windowed_arrays,
)
from offcut.core.expr import Expr, Load, Var, dtype_of, loads, substitute, variables
from offcut.core.program import Alloc, Choose, For, Kind, Program, Stmt, Store, Tile, blocks, walk
from offcut.core.text.printer import format_expr, format_stmt
from offcut.core.traversal import all_bound_names, expressions, map_blocks, map_own_expressions
from offcut.errors import PartitionError
from offcut.polyhedral import try_isl
from offcut.polyhedral.affine import Map, Set
from offcut.polyhedral.extract_statements import NotRepresentable, extract_statements
from offcut.polyhedral.program_sets import ProgramSets, Statement, bounds_of
from offcut.polyhedral.time_relations import (
    UnionMap,
    in_name,
    last_writes,
    map_pieces,
    rename_domain,
    time_depth,
    time_text,
)
from offcut.proof.by_instances.pairing import reads_of

Box = tuple[tuple[Expr, Expr], ...]  # (start, extent) of each axis


def is_written_before_read(program: Program, names: Collection[str]) -> bool:
    """Return whether `program` writes each element of these arrays before it reads it; False where that is not known.

    Theorem: an element that is read has a last write before the read, at all sizes.

    Raises PartitionError for a bounded value that leaves its range.
    """
    arrays = frozenset(name for name in names if not _begins(program.body, name))
    if not arrays:
        return True
    heads = (stmt for stmt in walk(program.body) if not isinstance(stmt, Store))
    if any(arrays & read_arrays(expressions(stmt)) for stmt in heads):
        return False
    try:
        flow = _Flow(program, arrays)
        return not flow.open and not any(flow.unwritten(certain=False))
    except NotRepresentable:
        return False


def check_written(program: Program, op: str, users: Mapping[str, str]) -> None:
    """Check that no element of a result, or of an array of the program's own, is read before a statement wrote it: it would be
    anything.

    op      what was asked for, in the words of the refusal
    users   what the user calls the sizes that the program calls otherwise

    What sets do not decide, in bounded work, is left to who runs it: a write under a condition that reads memory counts
    as one, and a read under such a condition is not asked.

    Raises PartitionError with the smallest sizes and instance.
    """
    kinds = (Kind.LOCAL, Kind.PRIVATE, Kind.OUTPUT)
    # what is touched outside of its window, too, is refused as such
    escaping = analysis(program).windows - windowed_arrays(program.body)
    own = [b for b in program.buffers if b.kind in kinds and b.name not in escaping]
    arrays = frozenset(
        b.name
        for b in own
        if not _begins(program.body, b.name)
        and not _fills(program.body, b.name, tuple((ix.const(0), n) for n in b.shape))
    )
    if not arrays:
        return
    unwritten_read = try_isl(lambda: _smallest(program, arrays, users), None)
    if unwritten_read is None:
        return
    raise PartitionError(
        op,
        f"cannot read {unwritten_read.access} before it is written",
        at=unwritten_read.at,
        because=f"{unwritten_read.given}nothing has written {unwritten_read.element} before",
        help=(
            f"a statement before it that writes {unwritten_read.buffer}",
            "an if around the statement, or where(condition, …) around the access",
        ),
    )


@dataclass(frozen=True, slots=True)
class _Unwritten:
    """The smallest read of an element that nothing wrote."""

    buffer: str
    at: str
    access: str
    given: str
    element: str


def _smallest(
    program: Program, arrays: frozenset[str], users: Mapping[str, str]
) -> _Unwritten | None:
    try:
        flow = _Flow(program, arrays)
        unwritten = list(flow.unwritten(certain=True))
    except NotRepresentable:
        return None
    points = [
        (sum(least[0]), *least, number)
        for number, (_, _, where) in enumerate(unwritten)
        if (least := flow.sets.smallest(where)) is not None
    ]
    if not points:
        return None
    _, sizes, point, number = min(points)
    one, load, _ = unwritten[number]
    known = [
        *zip((users.get(s.name, s.name) for s in program.sizes), sizes, strict=True),
        *zip(one.iters, point, strict=True),
    ]
    at_sizes = ", ".join(f"{name} = {value}" for name, value in known)
    names = [*(size.name for size in program.sizes), *one.iters]
    values = map(ix.const, (*sizes, *point))
    literals: dict[str, Expr] = dict(zip(names, values, strict=True))
    parts = [flow.sets.write_quotients(part) for part in load.index]
    element = [format_expr(ix.fold_indices(substitute(part, literals))) for part in parts]
    index = ", ".join(map(format_expr, parts))
    store = map_own_expressions(one.store, flow.sets.write_quotients)
    asked_first = [flow.sets.write_quotients(part) for part in one.predicates[:1]]
    at = f"if {format_expr(asked_first[0])}" if asked_first else format_stmt(store)
    return _Unwritten(
        load.buffer,
        at,
        f"{load.buffer}[{index}]",
        f"with {at_sizes}, " if at_sizes else "",
        f"{load.buffer}[{', '.join(element)}]",
    )


class _Flow:
    """Reads and writes of some arrays, as sets.

    open   whether sets do not say all of them
    """

    def __init__(self, program: Program, arrays: frozenset[str]) -> None:
        program = replace(program, body=_touching(program.body, arrays))
        self.asked, self.open = arrays, False
        self.sets = ProgramSets(program.sizes, program.assumptions, {})
        self.statements = extract_statements(self.sets, self.sets.prepare(program), "s")

    def unwritten(self, certain: bool) -> Iterator[tuple[Statement, Load, Set]]:
        """Yield the reads of elements that nothing wrote before, and the instances in which.

        certain   such as are read for certain, and not written for certain; False: such as may be read, and may not be
        """
        writes: list[Map] = []
        reads: list[Map] = []
        readers: list[tuple[str, Statement, Load]] = []
        anywhere: set[str] = set()
        for one in self.statements:
            store = one.store
            for load, path in self.reads(one, certain):
                access = self.sets.access(one, load.buffer, load.index, path)
                if access is None or (certain and not self.is_decided(one, path)):
                    self.open = True
                    continue
                readers.append((f"r{len(readers)}", one, load))
                reads.append(rename_domain(access, readers[-1][0]))
            if store.buffer in self.asked and (certain or not one.predicates):
                access = self.sets.access(one, store.buffer, store.index)
                if access is not None:
                    writes.append(access)
                else:
                    self.open = True
                    anywhere.add(store.buffer)
        if not reads or (self.open and not certain):
            return
        depth = time_depth(self.statements)
        texts = [time_text(one.name, one, depth, 1) for one in self.statements]
        texts += [time_text(name, one, depth, 0) for name, one, _ in readers]
        times = UnionMap(f"{self.sets.space.parameters}{{ {'; '.join(texts)} }}")
        _, first = last_writes(reads, writes, times)
        by_name = {name: (one, load) for name, one, load in readers}
        pieces = map_pieces(first.intersect_params(self.sets.context))
        for piece in sorted(pieces, key=lambda piece: [*by_name].index(in_name(piece))):
            one, load = by_name[in_name(piece)]
            if not piece.is_empty() and not (certain and load.buffer in anywhere):
                yield one, load, piece.domain()

    def reads(self, one: Statement, certain: bool) -> Iterator[tuple[Load, tuple[Expr, ...]]]:
        """What a statement reads of the arrays that are asked about, an element that it updates too."""
        if certain and one.predicates:  # the first one is asked wherever the statement is come to
            yield from ((x, path) for x, path in loads(one.predicates[0]) if x.buffer in self.asked)
            return
        yield from ((x, path) for x, path in reads_of(one) if x.buffer in self.asked)
        store = one.store
        if store.reduce is not None and store.buffer in self.asked:
            yield Load(store.buffer, store.index, dtype_of(store.value)), ()

    def is_decided(self, one: Statement, path: Sequence[Expr]) -> bool:
        """Return whether sets say all of the conditions on the way to a read."""
        parts = (part for condition in path for part in bounds_of(condition))
        at = one.coordinates
        return all(self.sets.restrict(one.domain, part, at) is not None for part in parts)


def _touching(body: Sequence[Stmt], names: frozenset[str]) -> tuple[Stmt, ...]:
    """Return `body` without what touches none of these arrays; what asks or counts to their elements stays whole."""
    return tuple(
        stmt if statement_arrays(stmt) & names else map_blocks(stmt, lambda b: _touching(b, names))
        for stmt in body
        if accessed_arrays((stmt,)) & names
    )


def _begins(body: Sequence[Stmt], name: str) -> bool:
    """Return whether the text says so: each block that touches the array stores an element first, and touches no other one."""
    touching = [stmt for stmt in body if name in accessed_arrays((stmt,))]
    if not touching:
        return True
    first = touching[0]
    if not isinstance(first, Store):
        inside = blocks(first)
        alone = len(touching) == 1 and not isinstance(first, Choose)
        return (
            alone
            and name not in read_arrays(expressions(first))
            and all(_begins(b, name) for b in inside)
        )
    if (
        first.buffer != name
        or first.reduce is not None
        or name in read_arrays((first.value, *first.index))
    ):
        return False
    fixed = frozenset().union(*map(variables, first.index))
    return (
        not read_arrays(first.index)
        and not fixed & all_bound_names(tuple(touching))
        and all(index == first.index for index in indices(tuple(touching), name))
    )


def _fills(body: Sequence[Stmt], name: str, box: Box) -> bool:
    """Return whether the text says so: what touches the array first in a block stores all of it, or of its window."""
    touching = [stmt for stmt in body if name in accessed_arrays((stmt,))]
    if not touching:
        return True
    first = touching[0]
    if _is_filled(first, name, box):
        return True
    if len(touching) > 1 or name in statement_arrays(first) or isinstance(first, Choose):
        return False
    if isinstance(first, Alloc) and first.buffer == name:
        box = first.axes
    return all(_fills(block, name, box) for block in blocks(first))


def _is_filled(stmt: Stmt, name: str, box: Box) -> bool:
    """Return whether loops around one store run over all elements of a box, each stored before it is touched otherwise."""
    around: dict[str, tuple[Expr, Expr]] = {}
    inner: tuple[Stmt, ...] = (stmt,)
    while True:
        touching = [one for one in inner if name in accessed_arrays((one,))]
        match touching:
            case [For(iterator, lo, hi, block)] if not read_arrays((lo, hi)):
                around[iterator] = lo, hi
                inner = block
            case [Tile(axes, block, None)]:
                around |= {a.iter: (a.start, ix.add(a.start, a.extent)) for a in axes}
                inner = block
            case [Store(buffer, index, value, None), *_] if buffer == name:
                parts = [part.name for part in index if isinstance(part, Var)]
                whole = len(parts) == len(index) and sorted(parts) == sorted(around)
                return (
                    whole
                    and name not in read_arrays((value,))
                    and all(other == index for other in indices(tuple(touching), name))
                    and not set(parts) & all_bound_names(tuple(touching))
                    and all(
                        ix.sub(around[part][0], start) == ix.const(0)
                        and ix.sub(around[part][1], ix.add(start, extent)) == ix.const(0)
                        for part, (start, extent) in zip(parts, box, strict=True)
                    )
                )
            case _:
                return False
