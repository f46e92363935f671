"""Check the accesses of a loop program against the shapes of its buffers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from offcut.core import index as ix
from offcut.core.analysis import accessed_arrays, analysis, read_arrays, windowed_arrays
from offcut.core.conditions import conjunction, conjuncts
from offcut.core.expr import (
    Cast,
    Compare,
    Expr,
    Load,
    Var,
    children,
    dtype_of,
    loads,
    reads_memory,
    rewrite,
    variables,
)
from offcut.core.interpret.run_arguments import declaration
from offcut.core.memo import memo
from offcut.core.program import (
    Alloc,
    Choose,
    For,
    If,
    Let,
    Program,
    Stmt,
    Store,
    Tile,
    TileAxis,
    blocks,
)
from offcut.core.text.printer import format_expr, format_head, format_size, format_stmt
from offcut.core.traversal import (
    expressions,
    map_blocks,
    map_own_expressions,
    rewrite_body,
    substitute_coordinates,
)
from offcut.errors import PartitionError
from offcut.polyhedral.affine import Space, coordinates
from offcut.polyhedral.dependences import Statement, statements
from offcut.polyhedral.facts import EnclosingScope, Facts, equal
from offcut.polyhedral.index_maximum import fitting
from offcut.polyhedral.witness import smallest_point


@dataclass(frozen=True, slots=True)
class OutOfBoundsAccess:
    """An access that may lie outside of its buffer.

    buffer    what is accessed, at `index`
    sizes     the smallest at which it does; None where its index, an extent, or a condition on the
              way to it, is not quasi-affine, so that this is open
    point     the coordinates of the instance, then those of the element
    """

    statement: Statement
    buffer: str
    index: tuple[Expr, ...]
    sizes: tuple[int, ...] | None
    point: tuple[int, ...]

    @property
    def access(self) -> str:
        """Return the access as text: ``A[i + 1, 0]``."""
        return f"{self.buffer}[{', '.join(map(format_expr, self.index))}]"

    @property
    def element(self) -> str:
        """Return the coordinates of the element: ``1, 0``."""
        return ", ".join(map(str, self.point[len(self.statement.iterators) :]))

    def sizes_text(self, program: Program, names: Mapping[str, str]) -> str:
        """Return ``with n = 1, i = 0, ``: the sizes and the instance, as far as there are any.

        names   what the user calls what `program` calls otherwise
        """
        inner = [*(size.name for size in program.sizes), *self.statement.iterators]
        pairs = zip(inner, (*(self.sizes or ()), *self.point), strict=False)
        text = ", ".join(f"{names.get(name, name)} = {value}" for name, value in pairs)
        return f"with {text}, " if text else ""


@memo(64)
def accesses_outside(
    program: Program, buffers: frozenset[str] | None = None
) -> tuple[OutOfBoundsAccess, ...]:
    """Return the accesses of `program` that sets cannot show to lie inside their buffers, for all sizes.

    buffers   those that are asked about; None: all

    Theorem, where there are none: for each access, ``{ [x] : x runs, and 0 <= index < shape fails }``
    is empty, a condition that is not quasi-affine taken as true.

    Where bounded values have too many literals between them, the accesses inside are open.
    """
    space = Space(program.sizes, program.assumptions)
    checked_buffers = frozenset(b.name for b in program.buffers) if buffers is None else buffers
    open_ = _Seen(program, checked_buffers).without_proved_stores(
        program.body, EnclosingScope(space)
    )
    if _copies(open_) > MAX_COPIES:
        return tuple(
            OutOfBoundsAccess(one, buffer, index, None, ())
            for one in statements(replace(program, body=open_))
            for buffer, index, _ in _accesses(one)
            if buffer in checked_buffers
        )
    without_lets = replace(program, body=_without_lets(open_))
    accesses = (
        _outside(program, space, one, buffer, index, path)
        for one in statements(without_lets)
        for buffer, index, path in _accesses(one)
        if buffer in checked_buffers
    )
    return tuple(one for one in accesses if one is not None)


def check_in_bounds(program: Program, op: str, names: Mapping[str, str]) -> None:
    """Reject `program` if sets show an access outside of its buffer, at any size.

    op      what was asked for, in the words of the refusal
    names   what the user calls what the program calls otherwise

    An access that sets do not decide is left to who runs it.

    Raises PartitionError with the smallest sizes and instance.
    """
    one = next((one for one in accesses_outside(program) if one.sizes is not None), None)
    if one is None:
        return
    by_user_names = partial(_by_user_names, names=names)
    store = map_own_expressions(one.statement.store, by_user_names)
    assert isinstance(store, Store)
    buffer = names.get(one.buffer, one.buffer)
    access = replace(one, buffer=buffer, index=tuple(map(by_user_names, one.index))).access
    shape = ", ".join(format_expr(by_user_names(n)) for n in program.buffer(one.buffer).shape)
    raise PartitionError(
        op,
        f"cannot access {access} out of bounds",
        at=format_stmt(replace(store, buffer=names.get(store.buffer, store.buffer))),
        because=f"{one.sizes_text(program, names)}it is {buffer}[{one.element}] of a tensor of "
        f"shape ({shape})",
        help=("an if around the statement, or where(condition, …) around the access",),
    )


def _by_user_names(expr: Expr, names: Mapping[str, str]) -> Expr:
    """Return `expr` with what is in it called as the user does."""

    def rule(node: Expr) -> Expr | None:
        match node:
            case Var(name):
                return Var(names.get(name, name))
            case Load(name):
                return replace(node, buffer=names.get(name, name))
            case _:
                return None

    return rewrite(expr, rule)


@memo(64)
def escaping_windows(program: Program, among: frozenset[str] | None = None) -> tuple[str, ...]:
    """Return the arrays of `program` that are not seen to be accessed inside of their windows alone; a window whose
    place is read from memory may be another one when that is read again.

    among   the arrays that are asked about; None: all that have windows
    """
    windows = analysis(program).of(Alloc)
    boxed = analysis(program).windows
    candidates = boxed if among is None else boxed & among
    lasting = {w.buffer for w in windows if not any(map(reads_memory, chain(*w.axes)))}
    alone = windowed_arrays(program.body) & candidates & lasting
    arrays = candidates - alone
    if alone:
        check = _Seen(program, alone, windows=True)
        open_ = check.without_proved_stores(
            program.body, EnclosingScope(Space(program.sizes, program.assumptions))
        )
        arrays |= accessed_arrays(open_) & alone
    return tuple(sorted(arrays))


def outside_window(program: Program, name: str) -> OutOfBoundsAccess | None:
    """Return an access of `name` outside of the window that it stands in, at an element counted from its start.

    None where sets show none, or a window is not of a length that sizes alone say.
    """
    windows = [s for s in analysis(program).of(Alloc) if s.buffer == name]
    shapes = {tuple(count for _, count in window.axes) for window in windows}
    sizes = {size.name for size in program.sizes}
    if len(shapes) != 1 or any(variables(n) - sizes or read_arrays((n,)) for n in min(shapes)):
        return None
    (shape,) = shapes
    buffers = tuple(replace(b, shape=shape) if b.name == name else b for b in program.buffers)
    body = tuple(_from_start(stmt, name) for stmt in program.body)
    accesses = accesses_outside(replace(program, buffers=buffers, body=body))
    return next((one for one in accesses if one.buffer == name and one.sizes is not None), None)


def _from_start(stmt: Stmt, name: str) -> Stmt:
    """Return `stmt` with the accesses of `name` in a window of it counted from the start of that window."""
    if not isinstance(stmt, Alloc) or stmt.buffer != name:
        return map_blocks(stmt, lambda body: tuple(_from_start(inner, name) for inner in body))

    def shift(index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(ix.sub(part, start) for part, (start, _) in zip(index, stmt.axes, strict=True))

    def rule(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer != name:
            return None
        return replace(node, index=shift(node.index))

    def counted(inner: Stmt) -> Stmt:
        inner = map_own_expressions(inner, lambda expr: rewrite(expr, rule))
        if isinstance(inner, Store) and inner.buffer == name:
            return replace(inner, index=shift(inner.index))
        return inner

    return replace(stmt, body=rewrite_body(stmt.body, counted))


class _Seen:
    """The accesses whose bounds follow quickly from the enclosing scope.

    buffers   those that are asked about
    windows   inside of their windows, where they stand in one
    """

    def __init__(self, program: Program, buffers: Collection[str], windows: bool = False) -> None:
        zero = ix.const(0)
        self.buffers, self.windows = buffers, windows
        self.held: dict[str, tuple[tuple[Expr, Expr], ...]] = {}
        if not windows:
            checked_buffers = (buffer for buffer in program.buffers if buffer.name in buffers)
            self.held = {b.name: tuple((zero, n) for n in b.shape) for b in checked_buffers}

    def without_proved_stores(self, body: Sequence[Stmt], at: EnclosingScope) -> tuple[Stmt, ...]:
        """Return `body` without the stores all of whose accesses are seen to lie inside."""
        return tuple(rest for stmt in body for rest in self.undecided_in(stmt, at))

    def undecided_in(self, stmt: Stmt, at: EnclosingScope) -> tuple[Stmt, ...]:
        """Return the undecided parts of one statement; the whole of it if a bound or a condition of it is undecided."""
        match stmt:
            case Store(buffer, index, value):
                reads = all(self.all_in(expr, at) for expr in (value, *index))
                return () if reads and self.is_inside(buffer, index, at) else (stmt,)
            case If(condition, then, other) if self.all_in(condition, at):
                then = self.without_proved_stores(then, at.where(condition))
                other = self.without_proved_stores(other, at.where(condition, holds=False))
                return (If(condition, then, other),) if then or other else ()
            case For(_, lo, hi) if self.all_in(lo, at) and self.all_in(hi, at):
                body = self.without_proved_stores(stmt.body, at.loop(stmt))
            case Tile(axes, _, where) if self.all_in_bounds(axes, at):
                inner = at.loop(stmt)
                if where is not None:
                    if not self.all_in(where, inner):
                        return (stmt,)
                    inner = inner.where(where)
                body = self.without_proved_stores(stmt.body, inner)
            case Let(_, _, _, value) if self.all_in(value, at):
                body = self.without_proved_stores(stmt.body, at.inside(stmt))
            case Alloc(name, axes):
                before = self.held
                if self.windows and name in self.buffers:
                    self.held = {**before, name: axes}
                body = self.without_proved_stores(stmt.body, at)
                self.held = before
            case Choose(options):
                new_options = (
                    replace(o, body=self.without_proved_stores(o.body, at)) for o in options
                )
                return (Choose(tuple(new_options)),)
            case _:
                return (stmt,)
        return (replace(stmt, body=body),) if body else ()

    def all_in_bounds(self, axes: Sequence[TileAxis], at: EnclosingScope) -> bool:
        """Return whether all that the bounds of a tile read is seen to lie inside."""
        return all(self.all_in(e, at) for axis in axes for e in (axis.start, axis.extent))

    def all_in(self, expr: Expr, at: EnclosingScope) -> bool:
        """Return whether all that `expr` reads is seen to lie inside."""
        return all(
            self.is_inside(load.buffer, load.index, at.where(*path)) for load, path in loads(expr)
        )

    def is_inside(self, buffer: str, index: Sequence[Expr], at: EnclosingScope) -> bool:
        """Return whether one access is seen to lie inside."""
        if buffer not in self.held:
            return True
        sides = (
            side
            for part, (start, count) in zip(index, self.held[buffer], strict=True)
            for side in (Compare("<=", start, part), Compare("<", part, ix.add(start, count)))
        )
        if self.windows:  # no sets ask later
            return all(at.implies(side) or at.implies_where_it_runs(side) for side in sides)
        return all(map(at.implies, sides))


MAX_COPIES = 20_000
"""Statements that are asked about one by one, each bounded value written out literal by literal."""


def _copies(body: Sequence[Stmt]) -> int:
    """Return how many statements `_without_lets` makes of `body`."""
    total = 0
    for stmt in body:
        inner_copies = sum(map(_copies, blocks(stmt))) or 1
        total += inner_copies * max(stmt.hi - stmt.lo, 0) if isinstance(stmt, Let) else inner_copies
    return total


def _without_lets(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return `body` with each bounded value written out, literal by literal, under what makes it that one."""
    statements: list[Stmt] = []
    for stmt in body:
        match stmt:
            case Let(name, lo, hi, value, inner):
                inner = _without_lets(inner)
                for literal in range(lo, hi):
                    q = ix.const(literal)
                    statements.append(
                        If(conjunction(equal(value, q)), substitute_coordinates(inner, {name: q}))
                    )
            case _:
                statements.append(map_blocks(stmt, _without_lets))
    return tuple(statements)


def _accesses(one: Statement) -> Iterator[tuple[str, tuple[Expr, ...], tuple[Expr, ...]]]:
    yield one.store.buffer, one.store.index, one.conditions
    for expr in (one.store.value, *one.store.index):
        for load, path in loads(expr):
            yield load.buffer, load.index, (*one.conditions, *path)
    for k, condition in enumerate(one.conditions):
        for load, path in loads(condition):
            yield load.buffer, load.index, (*one.conditions[:k], *path)


def _outside(
    program: Program,
    space: Space,
    one: Statement,
    buffer: str,
    index: tuple[Expr, ...],
    path: tuple[Expr, ...],
) -> OutOfBoundsAccess | None:
    at = coordinates(one.iterators)
    texts = [space.expr(part, at) for part in index]
    if any(text is None for text in texts):
        return OutOfBoundsAccess(one, buffer, index, None, ())
    path_conditions = [part for condition in path for part in conjuncts(condition)]
    if _clearly_inside(program, Facts(space, one.iterators, tuple(path_conditions)), buffer, index):
        return None
    elements = [f"x{len(one.loops) + k}" for k in range(len(index))]
    condition_texts = [space.condition(part, at) for part in path_conditions]
    shape = [space.expr(extent, {}) for extent in program.buffer(buffer).shape]
    if None in shape:
        return OutOfBoundsAccess(one, buffer, index, None, ())
    conditions = [text for text in condition_texts if text is not None]
    conditions += [f"{e} = {text}" for e, text in zip(elements, texts, strict=True)]
    wrong = [f"{e} < 0 or {e} >= {n}" for e, n in zip(elements, shape, strict=True)]
    if not wrong:
        return None
    broken = space.set([*one.iterators, *elements], [*conditions, f"({' or '.join(wrong)})"])
    if None in condition_texts:
        return None if broken.is_empty() else OutOfBoundsAccess(one, buffer, index, None, ())
    witness = smallest_point(broken)
    return None if witness is None else OutOfBoundsAccess(one, buffer, index, *witness)


def _clearly_inside(program: Program, at: Facts, buffer: str, index: tuple[Expr, ...]) -> bool:
    """Return whether each bound follows by itself from what shares names with it: the cheaper question."""
    bounds = zip(index, program.buffer(buffer).shape, strict=True)
    sides = ((Compare("<=", ix.const(0), part), Compare("<", part, n)) for part, n in bounds)
    return all(at.holds(side) for pair in sides for side in pair)


def check_promises(program: Program, op: str, users: Mapping[str, str]) -> None:
    """Reject `program` if no sizes meet all promises: of no sizes, everything could be proved.

    op     what was asked for, in the words of the refusal
    users  what the user calls the sizes that the program calls otherwise

    Raises PartitionError, with the ranges of the sizes and the assumptions.
    """
    if not program.assumptions or not Space(program.sizes, program.assumptions).context.is_empty():
        return
    sizes_by_name = {
        size.name: replace(size, name=users.get(size.name, size.name)) for size in program.sizes
    }
    about = set().union(*map(variables, program.assumptions))
    ranges = [format_size(sizes_by_name[size.name]) for size in program.sizes if size.name in about]
    facts = [f"assume {format_expr(_by_user_names(fact, users))}" for fact in program.assumptions]
    raise PartitionError(
        op,
        "cannot promise this of the sizes",
        at=program.name,
        because=f"no values meet all of it: {', '.join((*ranges, *facts))}",
        help=("leave one of them out",),
    )


def check_extents(program: Program, op: str, names: Mapping[str, str]) -> None:
    """Reject `program` unless every buffer has a shape: no extent is negative, at all sizes.

    At a size where one is, nothing could be called, and what is between would have no memory.

    op      what was asked for, in the words of the refusal
    names   what the user calls what the program calls otherwise

    Raises PartitionError with the smallest sizes, and where sets do not decide it.
    """
    ranges = {size.name: (size.min, size.max) for size in program.sizes}
    at = Facts(Space(program.sizes, program.assumptions))
    for buffer in program.buffers:
        for extent in buffer.shape:
            holds = Compare(">=", extent, ix.const(0))
            if fitting(extent, ranges, buffer.name)[0] >= 0 or at.holds(holds):
                continue
            witness = at.example(Compare("<", extent, ix.const(0)))
            size_texts = [f"{names.get(name, name)} = {v}" for name, v in (witness or {}).items()]
            shape = tuple(_by_user_names(part, names) for part in buffer.shape)
            user_buffer = replace(buffer, name=names.get(buffer.name, buffer.name), shape=shape)
            text = format_expr(_by_user_names(extent, names))
            because, help = "it may be negative: sets do not say", ["give its sizes a larger min"]
            if size_texts:
                because = f"it is negative with {', '.join(size_texts)}"
                help.append(f"assume({text} >= 0)")
            elif witness is not None:
                because, help = "it is negative", []
            raise PartitionError(
                op,
                f"cannot take the extent {text}",
                at=declaration(user_buffer),
                because=because,
                help=tuple(help),
            )


def check_program_fits(program: Program) -> None:
    """Reject `program` unless all its index arithmetic stays within 2^62, for all sizes.

    Theorem: the interval of every index expression, over the facts of the sizes and the bounds of
    the loops around it, lies in ``[-2^62, 2^62]``; so int64 computes what isl decided over the
    integers.
    """
    ranges = {size.name: (size.min, size.max) for size in program.sizes}
    for buffer in program.buffers:
        for extent in buffer.shape:
            fitting(extent, ranges, buffer.name)
    for stmt in program.body:
        _check_fits(stmt, ranges)


def _check_fits(stmt: Stmt, ranges: Mapping[str, tuple[int, int]]) -> None:
    at = format_head(stmt)
    inner = dict(ranges)
    if isinstance(stmt, Tile):
        for axis in stmt.axes:
            start, extent = fitting(axis.start, ranges, at), fitting(axis.extent, ranges, at)
            inner[axis.iter] = _range(start[0], start[1] + extent[1])
    for expr in expressions(stmt):
        for part in _indices(expr):
            fitting(part, inner, at)
    match stmt:
        case For(name, lo, hi):
            inner[name] = _range(fitting(lo, ranges, at)[0], fitting(hi, ranges, at)[1])
        case Let(name, lo, hi):
            inner[name] = _range(lo, hi)
        case _:
            pass
    for block in blocks(stmt):
        for inside in block:
            _check_fits(inside, inner)


def _range(low: int, end: int) -> tuple[int, int]:
    return low, max(low, end - 1)


def _indices(expr: Expr) -> Iterator[Expr]:
    """Yield the index expressions in `expr` that lie in no other."""
    if dtype_of(expr) == "index":
        yield expr
    for child in children(expr):
        if dtype_of(expr) != "index" or isinstance(expr, Cast):
            yield from _indices(child)
