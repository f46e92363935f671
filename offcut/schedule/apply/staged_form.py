"""A schedule as values: nests of loops, each known by the buffer that it writes.

A nest is a list of parts, one for each run of statements without a loop between them. A part lists
its loops by name, outermost first; loops that two neighbours begin with are shared. So ``reorder``
is a permutation of names, and a reduction whose outer axis is moved out leaves its start behind::

    for y             parts of C:  C[y] = 0     loops y
      C[y] = 0                     C[y] += …    loops y, k
      for k
        C[y] += …                              reorder(k, y): the second lists k, y
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from offcut.core import index as ix
from offcut.core.analysis import read_arrays
from offcut.core.expr import Expr, Var, variables
from offcut.core.program import UNITS, Buffer, Cover, For, Program, Size, Stmt, Store, walk
from offcut.describe.computation import Names, Stage
from offcut.describe.microkernel import Microkernel
from offcut.partition import Match, tiles_alike
from offcut.partition.cutting import PiecesCost
from offcut.schedule.decisions import At, Bind, Fuse, Order, SplitPair
from offcut.schedule.decisions import Cover as CoverDecision


@dataclass(frozen=True, slots=True)
class Root:
    """``lo <= name < hi``: a loop of the source program.

    label  what the user calls it; two loops of one nest may be called alike
    """

    name: str
    label: str
    lo: Expr
    hi: Expr


def in_loops(roots: Sequence[Root], body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return plain loops over `roots`, the first outermost, around `body`."""
    for root in reversed(roots):
        body = (For(root.name, root.lo, root.hi, body),)
    return body


@dataclass(frozen=True, slots=True)
class Mark:
    """What runs a loop, as `For.unit` says it.

    decision  that says so; None: the program that is scheduled does
    """

    axis: str
    unit: str | None = None
    decision: Bind | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Statements in terms of the roots, and the loops around them by name. Those of a group of stages hold the loops of its sums."""

    loops: tuple[str, ...]
    body: tuple[Stmt, ...]

    @property
    def stores(self) -> tuple[Store, ...]:
        """Return every store, in order."""
        return tuple(stmt for stmt in walk(self.body) if isinstance(stmt, Store))


@dataclass(frozen=True, slots=True)
class Covered:
    """The loops from `axis` inwards are one tile, run by `intrinsic`.

    extents  the declared extent of each root of the tile
    wanted   the cover of tiles of any extents, which the target judges; None: tiles have `extents`, and are judged here
    decision  that says so
    """

    axis: str
    intrinsic: Microkernel
    extents: tuple[tuple[str, int], ...]
    decision: CoverDecision
    wanted: Cover | None = None

    @property
    def names(self) -> frozenset[str]:
        """Return the names by which tiles call the instruction."""
        one = self.intrinsic
        return frozenset(name for name in (one.name, one.reset, one.update) if name is not None)

    def loops(self, nest: Nest) -> tuple[str, ...]:
        """Return the loops of `nest` that the instruction runs, outermost first; empty if `axis` is none of them."""
        inside = [
            part.loops[part.loops.index(self.axis) :]
            for part in nest.parts
            if self.axis in part.loops
        ]
        return tuple(dict.fromkeys(leaf for loops in inside for leaf in loops))


@dataclass(frozen=True, slots=True)
class VectorTile:
    """The loops that are one tile, which instructions of the target's own run; of a group, a microkernel where it fits.

    loops     in any order: a tile has no order of its instances
    decision  that says so
    match     the microkernel that is laid over the sum of a group; None: none is
    """

    loops: frozenset[str]
    decision: CoverDecision
    match: Match | None = None


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops and statements that run together.

    name     the buffer that the first store writes
    at       the (nest, axis) inside which it is computed, axis None: before its loops; None: where the source has it
    placed   the decision that says so, and where its elements lie then
    orders   decisions about the order of its loops
    covered  what an intrinsic runs
    vectors  what runs as vectors
    copies   whether it only moves elements from one memory to another
    plain    its statements in the source program
    group    the stages of which it is a group, whose loops over terms of sums lie in its parts; none: it is of statements. In a loop of
             another group it computes what an iteration has, along the axes of the loops around
    """

    name: str
    roots: tuple[Root, ...]
    parts: tuple[Part, ...]
    plain: tuple[Stmt, ...]
    relations: tuple[SplitPair | Fuse, ...] = ()
    marks: tuple[Mark, ...] = ()
    at: tuple[str, str | None] | None = None
    covered: Covered | None = None
    copies: bool = False
    placed: At | None = None
    orders: tuple[Order, ...] = ()
    group: tuple[Stage, ...] = ()
    vectors: VectorTile | None = None

    @property
    def match(self) -> Match | None:
        """Return the microkernel that is laid over the tiles of a group."""
        return None if self.vectors is None else self.vectors.match

    def with_match(self, match: Match | None) -> Nest:
        """Return it with another microkernel laid over its tiles."""
        assert self.vectors is not None
        return replace(self, vectors=replace(self.vectors, match=match))

    @property
    def terms(self) -> tuple[str, ...]:
        """Return the loops over the terms of the first sum of a group that are not split; they lie in its tiles."""
        names = (axis.name for stage in self.group[:1] for axis in stage.reduce_axes)
        return tuple(name for name in names if self.taken_apart(name) is None)

    @property
    def stored_buffers(self) -> tuple[str, ...]:
        """Return the buffers that it writes, in order."""
        return tuple(dict.fromkeys(s.buffer for part in self.parts for s in part.stores))

    @property
    def is_untouched(self) -> bool:
        """Return whether no loop of it has been changed."""
        decisions = self.relations or self.marks or self.at or self.covered or self.vectors
        return not decisions

    @property
    def tile_loops(self) -> frozenset[str]:
        """Return the loops that are in a tile, which a microkernel or vectors run."""
        return self.covered_loops if self.vectors is None else self.vectors.loops

    @property
    def covered_loops(self) -> frozenset[str]:
        """Return the loops that an intrinsic runs."""
        return frozenset() if self.covered is None else frozenset(self.covered.loops(self))

    @property
    def is_of_host(self) -> bool:
        """Return whether a microkernel of a target runs its tiles, which has no units beside the processor."""
        covered = self.covered
        return (
            covered is not None
            and covered.wanted is not None
            and covered.intrinsic.unit not in UNITS
        )

    def root(self, name: str) -> Root | None:
        """Return the root of that name; None for an axis that a primitive made."""
        for root in self.roots:
            if root.name == name:
                return root
        return None

    def loops_of(self, buffer: str) -> tuple[str, ...]:
        """Return the loops around the stores of `buffer`, outermost first."""
        mine = (p.loops for p in self.parts if any(s.buffer == buffer for s in p.stores))
        return tuple(dict.fromkeys(name for loops in mine for name in loops))

    def made_by(self, axis: str) -> SplitPair | Fuse | None:
        """Return the relation that made `axis`; None for a root."""
        for relation in self.relations:
            match relation:
                case SplitPair(_, outer, inner) if axis in (outer, inner):
                    return relation
                case Fuse(fused=fused) if axis == fused:
                    return relation
        return None

    def taken_apart(self, axis: str) -> SplitPair | Fuse | None:
        """Return the relation by which other axes stand for `axis`; None for a loop."""
        for relation in self.relations:
            match relation:
                case SplitPair(parent) if axis == parent:
                    return relation
                case Fuse(_, outer, inner) if axis in (outer, inner):
                    return relation
        return None

    def mark(self, axis: str) -> Mark:
        """Return how the loop over `axis` runs."""
        for mark in self.marks:
            if mark.axis == axis:
                return mark
        return Mark(axis)

    def names(self) -> Names:
        """Return a supply of axis names that are new to this nest."""
        loop_names = [
            name
            for relation in self.relations
            for name in (
                (relation.outer, relation.inner)
                if isinstance(relation, SplitPair)
                else (relation.fused,)
            )
        ]
        return Names([*(root.name for root in self.roots), *loop_names])

    def leaves(self, axis: str) -> tuple[str, ...]:
        """Return the loops that stand for `axis`."""
        match self.taken_apart(axis):
            case None:
                return (axis,)
            case SplitPair(_, outer, inner):
                return (*self.leaves(outer), *self.leaves(inner))
            case Fuse(_, _, _, fused):
                return self.leaves(fused)

    def root_below(self, leaf: str) -> str | None:
        """Return the root of which `leaf` is the innermost part: consecutive values of it."""
        match self.made_by(leaf):
            case None:
                return leaf
            case SplitPair(parent, _, inner) if inner == leaf:
                return self.root_below(parent)
            case _:
                return None

    def origins(self, axis: str) -> tuple[str, ...]:
        """Return the roots that `axis` is made of."""
        match self.made_by(axis):
            case None:
                return (axis,)
            case SplitPair(parent):
                return self.origins(parent)
            case Fuse(_, outer, inner):
                return (*self.origins(outer), *self.origins(inner))


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A change of stages, by an equation.

    alike   programs before and after it, of which the second is proved to compute what the first does;
            None: the equation alone says so, of a reduction in groups, or of an array of which
            elements are read that the values of another one name
    groups  whether it adds the terms of a sum in another order
    """

    primitive: str
    equation: str
    alike: tuple[Program, Program] | None
    groups: bool = False


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Variants to run some nests, of which a call takes the cheapest.

    stages   the nests that all of them are about
    options  (label, seconds over the sizes, all nests as one of them has them)
    """

    stages: frozenset[str]
    options: tuple[tuple[str, Expr, Nests], ...]

    def own(self, base: Nests, option: Nests) -> Iterator[Nest]:
        """Yield the nests of an option that run in place of `stages`, in order, those inside of others left out."""
        known = {nest.name for nest in base.nests}
        for nest in option.nests:
            if nest.at is None and (nest.name in self.stages or nest.name not in known):
                yield nest


@dataclass(frozen=True, slots=True)
class Nests:
    """What a schedule is made of: the declarations of the program, and its nests in order.

    labels      (the user's name, the buffer), where they were described as tensors
    size_names  (the user's name, the name in programs)
    axis_labels (the buffer, the loop, the user's name of that axis), where names differ: a stage shares
                the loops of the stage whose points it is computed at
    rewrites    every change of stages
    intrinsics  instructions that `tensorize` may name, beside those that were declared
    microkernels  those of a target, which judges the tiles that they cover itself
    tile_cost   predicted seconds of runs of tiles, by which a call chooses among the strategies of a split
    alternatives  nests that several variants compete for
    """

    name: str
    sizes: tuple[Size, ...]
    assumptions: tuple[Expr, ...]
    buffers: tuple[Buffer, ...]
    nests: tuple[Nest, ...]
    labels: tuple[tuple[str, str], ...] = ()
    size_names: tuple[tuple[str, str], ...] = ()
    axis_labels: tuple[tuple[str, str, str], ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    intrinsics: tuple[Microkernel, ...] = ()
    microkernels: tuple[Microkernel, ...] = ()
    alternatives: tuple[Alternatives, ...] = ()
    tile_cost: PiecesCost = tiles_alike

    @property
    def forms(self) -> Iterator[Nests]:
        """Yield these, and what each alternative makes of them."""
        yield self
        yield from (nests for several in self.alternatives for _, _, nests in several.options)

    def buffer(self, name: str) -> Buffer:
        """Return the buffer of that name."""
        return next(buffer for buffer in self.buffers if buffer.name == name)

    def nest(self, name: str) -> Nest:
        """Return the nest of that name."""
        return next(nest for nest in self.nests if nest.name == name)

    def with_nest(self, nest: Nest) -> Nests:
        """These, with the nest of the same name replaced."""
        return replace(self, nests=tuple(nest if n.name == nest.name else n for n in self.nests))

    def rewritten(self, rewrite: Rewrite) -> Nests:
        """These, with one more equation by which stages were changed."""
        return replace(self, rewrites=(*self.rewrites, rewrite))

    def attached_nests(self, nest: str, axis: str | None) -> tuple[Nest, ...]:
        """Return the nests that are computed inside that loop, or before the loops of `nest`: first those that copy what no other of
        them computes, so that memory is asked before anything waits, each of both kinds in order.
        """
        here = [one for one in self.nests if one.at == (nest, axis)]
        buffers = {buffer for one in here for buffer in one.stored_buffers}
        late = {one.name for one in here if not one.copies or buffers & read_arrays(_values(one))}
        return tuple(sorted(here, key=lambda one: one.name in late))

    def at_points(self, reader: Nest) -> tuple[Nest, ...]:
        """Return the nests that are computed at each point of a tile of `reader`, in order: in the innermost of its loops, in no
        memory of the machine, by no instruction of their own.
        """
        declared = reader.covered is not None and reader.covered.wanted is None
        innermost = reader.parts[0].loops[-1:] if len(reader.parts) == 1 and not declared else ()
        here = self.attached_nests(reader.name, *innermost) if innermost else ()
        return tuple(one for one in here if self._is_of_points(one))

    def _is_of_points(self, nest: Nest) -> bool:
        """Return whether an element of a nest that is placed in a tile may live in registers, as long as one instance."""
        where = nest.placed
        plain = where is None or not (where.memory or where.inplace or where.depth != 1)
        scopes = any(self.buffer(buffer).scope for buffer in nest.stored_buffers)
        return plain and not scopes and nest.covered is None and nest.vectors is None

    def is_at_points(self, nest: Nest) -> bool:
        """Return whether a nest is computed at each point of a tile: an element of it lives as long as one instance."""
        if nest.at is None or nest.group:
            return False
        reader, axis = self.nest(nest.at[0]), nest.at[1]
        return axis in reader.tile_loops and nest in self.at_points(reader)

    def program(self, body: tuple[Stmt, ...]) -> Program:
        """Return the program of these declarations around `body`."""
        return Program(self.name, self.sizes, self.assumptions, self.buffers, body)

    @property
    def source(self) -> Program:
        """Return the program that is scheduled: every nest where it was described, no loop changed."""
        return self.program(tuple(stmt for nest in self.nests for stmt in nest.plain))

    def names(self) -> Names:
        """Return a supply of buffer names that are new."""
        axes = [root.name for nest in self.nests for root in nest.roots]
        return Names([*axes, *(s.name for s in self.sizes), *(b.name for b in self.buffers)])


def point_of(nest: Nest, buffer: str) -> tuple[str, ...] | None:
    """Return the roots that name an element of `buffer` wherever it is stored; None where none do.

    Only ``buffer[i, j] = …`` with distinct roots as indices, alike in every store, is such.
    """
    points: set[tuple[str, ...]] = set()
    for part in nest.parts:
        for store in part.stores:
            if store.buffer == buffer:
                names = tuple(part.name for part in store.index if isinstance(part, Var))
                if len(names) != len(store.index) or len(set(names)) != len(names):
                    return None
                if any(nest.root(name) is None for name in names):
                    return None
                points.add(names)
    return points.pop() if len(points) == 1 else None


def _values(nest: Nest) -> Iterator[Expr]:
    """Yield what the statements of a nest store."""
    return (store.value for part in nest.parts for store in part.stores)


def literal_extent(nest: Nest, axis: str) -> int | None:
    """Return how many values `axis` has, where that is one number at all sizes."""
    root = nest.root(axis)
    if root is not None:
        return ix.literal_value(ix.sub(root.hi, root.lo))
    match nest.made_by(axis):
        case None:
            return None
        case SplitPair(parent, outer, _, level) as pair:
            whole = literal_extent(nest, parent)
            if axis != outer:
                return pair.factor
            return None if whole is None or level.by is not None else -(-whole // pair.factor)
        case Fuse(_, outer, inner):
            a, b = literal_extent(nest, outer), literal_extent(nest, inner)
            return None if a is None or b is None else a * b


def depends_on(root: Root) -> frozenset[str]:
    """Return the names in the bounds of a root."""
    return variables(root.lo) | variables(root.hi)
