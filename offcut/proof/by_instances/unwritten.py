"""A program as statements in; whether it reads an element of some arrays before it writes it, out."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from offcut.core.accesses import accessed_arrays, indices, read_arrays
from offcut.core.expr import Load, dtype_of, variables
from offcut.core.program import Choose, Program, Stmt, Store, blocks, expressions, walk
from offcut.core.traversal import all_bound_names
from offcut.polyhedral.affine import Map
from offcut.polyhedral.extract_statements import NotRepresentable, extract_statements
from offcut.polyhedral.program_sets import ProgramSets, Statement
from offcut.polyhedral.time_relations import UnionMap, last_writes, renamed, time_depth, time_text
from offcut.proof.by_instances.pairing import reads_of


def writes_first(program: Program, names: Collection[str]) -> bool:
    """Whether `program` writes each element of these arrays before it reads it; False where that is not known.

    Theorem: an element that is read has a last write before the read, at all sizes.

    Raises PartitionError for a bounded value that leaves its range.
    """
    arrays = frozenset(name for name in names if not _begins(program.body, name))
    if not arrays:
        return True
    heads = (stmt for stmt in walk(program.body) if not isinstance(stmt, Store))
    if any(arrays & read_arrays(expressions(stmt)) for stmt in heads):
        return False
    flows = ProgramSets(program.sizes, program.assumptions, {})
    try:
        statements = extract_statements(flows, flows.prepared(program), "s")
    except NotRepresentable:
        return False
    writes: list[Map] = []
    reads: list[Map] = []
    readers: list[tuple[str, Statement]] = []
    for one in statements:
        store = one.store
        own = [(load, path) for load, path in reads_of(one) if load.buffer in arrays]
        if store.reduce is not None and store.buffer in arrays:
            own.append((Load(store.buffer, store.index, dtype_of(store.value)), ()))
        for load, path in own:
            access = flows.access(one, load.buffer, load.index, path)
            if access is None:
                return False
            readers.append((f"r{len(readers)}", one))
            reads.append(renamed(access, readers[-1][0]))
        if store.buffer in arrays and not one.predicates:
            access = flows.access(one, store.buffer, store.index)
            if access is None:
                return False
            writes.append(access)
    if not reads:
        return True
    depth = time_depth(statements)
    texts = [time_text(one.name, one, depth, 1) for one in statements]
    texts += [time_text(name, one, depth, 0) for name, one in readers]
    times = UnionMap(f"{flows.space.parameters}{{ {'; '.join(texts)} }}")
    _, first = last_writes(reads, writes, times)
    return bool(first.intersect_params(flows.context).is_empty())


def _begins(body: Sequence[Stmt], name: str) -> bool:
    """Whether the text says so: each block that touches the array stores an element first, and touches no other one."""
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
