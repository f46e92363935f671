"""Turn loops that are bound to blocks and threads of a grid into kernels: the loops of the grid outermost, barriers inside.

A statement outside of a loop over threads is run by the first of them; the others wait, where it may matter, at a barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace

from offcut.core import index as ix
from offcut.core.analysis import element_accesses, stored_arrays
from offcut.core.conditions import conjunction
from offcut.core.expr import Expr, Logic, Var, variables
from offcut.core.program import Action, Alloc, For, If, Let, Program, Stmt, Store, Sync, Tile, walk
from offcut.core.traversal import all_bound_names, map_blocks, substitute_coordinates
from offcut.errors import PartitionError
from offcut.plugins.hosts.windows import BLOCKS, HARDWARE, THREADS, Bounds, bounds_in, literal_limit

Refuse = Callable[..., PartitionError]

SHARED, PRIVATE = "shared", "local"
BARRIER = Sync(Action.BARRIER, "thread")


def with_kernels(program: Program, refuse: Refuse) -> Program:
    """Return `program` in which each outermost loop that is bound to a grid is a kernel.

    A kernel is a loop for each index of the hardware that it has, from 0 on, directly inside of each other, whose extents no
    name inside of it decides, and none of which is 0. A window that threads share lies in the memory ``shared``, one that each has in ``local``.

    refuse  called with a loop and why no grid runs it
    """

    def visit(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        statements: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, For) and stmt.unit in HARDWARE:
                statements += [_Kernel(part, refuse).stmt() for part in _block_loops((stmt,))]
            else:
                statements.append(map_blocks(stmt, visit))
        return tuple(statements)

    return replace(program, body=visit(program.body))


def _block_loops(body: tuple[Stmt, ...]) -> Iterator[For]:
    """Yield one loop over blocks for each statement that contains others, and one for the remaining statements.

    Iterations that blocks run are independent: all of them may run one statement before any runs the next one.
    """
    for stmt in body:
        assert isinstance(stmt, For)
        yield from (replace(stmt, body=part) for part in _parts(stmt.body))


def _parts(body: tuple[Stmt, ...]) -> list[tuple[Stmt, ...]]:
    if not any(_units((stmt,)) & set(BLOCKS) for stmt in body):
        return [body]
    parts: list[tuple[Stmt, ...]] = []
    for stmt in body:
        match stmt:
            case If(condition, then, other):
                parts += [(If(condition, part),) for part in _parts(then) if part]
                negation = Logic("not", (condition,))
                parts += [(If(negation, part),) for part in _parts(other) if part]
            case For(unit=str() as unit) if unit in BLOCKS:
                parts += [(replace(stmt, body=part),) for part in _parts(stmt.body)]
            case Let():
                parts += [(replace(stmt, body=part),) for part in _parts(stmt.body)]
            case _:
                parts.append((stmt,))
    return parts


@dataclass
class _Kernel:
    root: For
    refuse: Refuse
    extents: dict[str, Expr] = field(default_factory=dict)
    within: set[str | None] = field(
        default_factory=set
    )  # what runs loops inside of the outermost one over threads

    def stmt(self) -> Stmt:
        inner_names = {self.root.iter, *all_bound_names(self.root.body)}
        bounds = bounds_in((self.root,))
        for loop in walk((self.root,)):
            if isinstance(loop, For) and loop.unit in HARDWARE:
                extent = self.extent(loop, inner_names, bounds)
                extent_so_far = self.extents.get(loop.unit)
                same = extent_so_far is None or extent_so_far == extent
                self.extents[loop.unit] = extent if same else ix.maximum(extent_so_far, extent)  # type: ignore[arg-type]
        self.threads = [name for name in THREADS if name in self.extents]
        body = self.block((self.root,), frozenset())
        for name in reversed([name for name in HARDWARE if name in self.extents]):
            body = (For(_id(name), ix.const(0), self.extents[name], body, unit=name),)
        open_ = [one for one in self.extents.values() if (ix.literal_value(one) or 0) <= 0]
        is_nonempty = [ix.compare("<", ix.const(0), extent) for extent in open_]
        return If(conjunction(is_nonempty), body) if is_nonempty else body[0]

    def extent(self, loop: For, inner_names: Collection[str], bounds: Bounds) -> Expr:
        """Return how many iterations a loop has at most, by what is known before the kernel begins."""
        extent = ix.sub(loop.hi, loop.lo)
        if not variables(extent) & set(inner_names):
            return extent
        limit = literal_limit(extent, bounds)
        if limit is None:
            raise self.refuse(
                loop,
                f"how many iterations {loop.iter} has changes inside of the kernel",
                "split … mask: a tile of one height, under a condition",
            )
        return ix.const(limit)

    def block(self, body: tuple[Stmt, ...], outer_units: frozenset[str]) -> tuple[Stmt, ...]:
        """Return statements inside the loops of some indices, with barriers between those that all threads come to."""
        statements: list[Stmt] = []
        all_threads_come = not outer_units & set(THREADS) and bool(self.threads)
        for stmt in body:
            if all_threads_come and statements and _writes(stmt):
                statements.append(BARRIER)
            statements += self.inner(stmt, outer_units)
        return tuple(statements)

    def inner(self, stmt: Stmt, outer_units: frozenset[str]) -> tuple[Stmt, ...]:
        if isinstance(stmt, For) and stmt.unit in HARDWARE:
            unit, index = stmt.unit, Var(_id(stmt.unit))
            if unit in outer_units:
                raise self.refuse(stmt, f"a loop around it is run by {unit} already")
            behind = [n for n in self.extents if n in BLOCKS and n not in outer_units | {unit}]
            if unit in THREADS and behind and any(n in _units(stmt.body) for n in behind):
                raise self.refuse(
                    stmt, f"it stands around a loop over {behind[0]}", f"order … {behind[0]} first"
                )
            outermost = unit in THREADS and not outer_units & set(THREADS)
            self.within = {*_units(stmt.body)} if outermost else self.within
            if outermost and self.within & set(THREADS) and not _is_barrier_free(stmt):
                raise self.refuse(
                    stmt,
                    "threads of it meet inside of its loop, where not all threads of a block come",
                    "order …: loops that are bound to threads directly inside of each other",
                    "at … in a loop around them",
                )
            body = self.block(stmt.body, outer_units | {unit})
            self.within = set() if outermost else self.within
            body = substitute_coordinates(body, {stmt.iter: ix.add(stmt.lo, index)})
            extent = ix.sub(stmt.hi, stmt.lo)
            return (
                body
                if extent == self.extents[unit]
                else (If(ix.compare("<", index, extent), body),)
            )
        if isinstance(stmt, Store | Tile):
            missing = [name for name in self.extents if name not in outer_units]
            blocks = [name for name in missing if name in BLOCKS]
            if blocks:
                raise self.refuse(
                    replace(self.root, unit=blocks[0]),
                    "a statement beside its loop is run by one of the blocks, and no other one waits for it",
                    "order …: loops that are bound to blocks around all others",
                )
            if not missing:
                return (stmt,)
            if self.within & set(missing):
                raise self.refuse(
                    replace(self.root, unit=missing[0]),
                    f"a statement beside its loop stands inside of a loop over {min(outer_units & {*THREADS})}",
                    "order …: loops that are bound to threads directly inside of each other",
                )
            first = [ix.compare("==", Var(_id(name)), ix.const(0)) for name in missing]
            return (If(conjunction(first), (stmt,)),)
        if isinstance(stmt, Alloc):
            private = bool(outer_units & set(THREADS)) or not self.threads
            scope = PRIVATE if private else SHARED
            stmt = replace(stmt, memory=stmt.memory or scope)
        stmt = map_blocks(stmt, lambda body: self.block(body, outer_units))
        if isinstance(stmt, For) and self.threads and not outer_units & set(THREADS):
            stmt = replace(stmt, body=(*stmt.body, BARRIER))
        return (stmt,)


def _units(body: tuple[Stmt, ...]) -> set[str | None]:
    return {stmt.unit for stmt in walk(body) if isinstance(stmt, For)}


def _is_barrier_free(loop: For) -> bool:
    """Return whether threads of several indices need no barrier inside of a loop: they are directly inside of each other, or each
    touches elements that no other thread writes.
    """
    inner: tuple[Stmt, ...] = loop.body
    while len(inner) == 1 and _units(inner) & set(THREADS):
        (stmt,) = inner
        if not (isinstance(stmt, For) and stmt.unit in THREADS) and not isinstance(stmt, If | Let):
            break
        if isinstance(stmt, If) and stmt.other:
            break
        inner = stmt.then if isinstance(stmt, If) else stmt.body
    if not _units(inner) & set(THREADS):
        return True
    indices: dict[str, set[tuple[Expr, ...]]] = {}
    for stmt in walk(inner):
        for array, index in element_accesses(stmt):
            indices.setdefault(array, set()).add(index)
    windows = any(isinstance(stmt, Alloc) and _units(stmt.body) for stmt in walk(inner))
    return not windows and all(len(indices[name]) == 1 for name in stored_arrays(inner))


def _writes(stmt: Stmt) -> bool:
    return any(isinstance(one, Store | Tile) for one in walk((stmt,)))


def _id(name: str) -> str:
    return name.replace(".", "_")
