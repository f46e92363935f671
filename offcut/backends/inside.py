"""Accesses of a loop program, inside the arrays: proved for all sizes, or asked while it runs.

Theorem, for each access: ``{ instance -> element } (domain)`` is a subset of the array, where the
domain is what loops, guards and branches of `where` around the access say. Where all of that is
quasi-affine and an element lies outside, a request is refused with the smallest sizes at which it
does. Where some of it is not (an index read from an array), the statement asks before it runs, and
a call that would leave an array is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

from offcut.backends.base import LEFT_AN_ARRAY
from offcut.core import index as ix
from offcut.core.analysis import analysis
from offcut.core.conditions import conjunction, conjuncts
from offcut.core.expr import (
    Compare,
    Const,
    Expr,
    Load,
    Logic,
    Select,
    Var,
    children,
    reads_memory,
    variables,
)
from offcut.core.program import (
    STATUS,
    Alloc,
    Buffer,
    Choose,
    For,
    If,
    Kind,
    Let,
    Program,
    Stmt,
    Store,
    Tile,
    blocks,
)
from offcut.core.text.printer import format_expr, format_stmt
from offcut.errors import PartitionError
from offcut.polyhedral import (
    Facts,
    Map,
    Space,
    Statement,
    accesses_outside,
    bounds,
    check_in_bounds,
    coordinates,
    pass_budget,
    request_budget,
    smallest_point,
    statements,
    try_isl,
    unbounded,
)

Path = tuple[int, ...]


def kept_inside(program: Program) -> Program:
    """Return `program` with a question before each statement that is not proved to stay inside its arrays.

    In tiles, choices and bounded values only what sets do not decide is asked; the rest is proved or
    refused.

    Raises PartitionError, with the smallest witness, where a statement in one of these leaves an array.
    """
    space = Space(program.sizes, program.assumptions)
    undecided: frozenset[str] = frozenset()
    if analysis(program).has(Tile, Choose, Let):
        undecided = _check_tiles(space, program)
    with pass_budget():
        asked = _questions(space, program, undecided)
    if not asked:
        return program
    for stmt in analysis(program).statements:
        if isinstance(stmt, Tile) and stmt.where in asked:
            raise PartitionError(
                "compile",
                f"cannot ask {format_expr(stmt.where)} before a tile runs",
                because="it reads an element that may lie outside of its array",
                help=("an if inside the tile",),
            )
    taken = {buffer.name for buffer in program.buffers}
    name = next(n for k in range(len(taken) + 1) if (n := f"outside{k or ''}") not in taken)
    status = Buffer(name, "int32", (), Kind.LOCAL, scope=STATUS)
    none, some = (Store(name, (), Const(value, "int32")) for value in (0, LEFT_AN_ARRAY))
    body = _with_questions(program.body, (), asked, some)
    return replace(program, buffers=(*program.buffers, status), body=(none, *body))


def _questions(
    space: Space, program: Program, undecided: frozenset[str]
) -> dict[Path | Expr, Expr]:
    """What is not proved, by the statement, or by the condition, that asks it.

    undecided   the buffers that a statement in a tile, a choice or a bounded value may leave
    """
    asked: dict[Path | Expr, Expr] = {}
    for statement in statements(program):
        cut = _in_tile(program.body, statement.path)

        def is_open(access: _Access, at: Statement = statement, cut: bool = cut) -> bool:
            if not access.index or (cut and access.buffer not in undecided):
                return False
            return not _known_inside(space, program, at, access)

        for position, condition in enumerate(statement.conditions):
            before = replace(statement, conditions=statement.conditions[:position])
            open_ = [read for read in _reads(condition) if is_open(read, before)]
            if open_:
                plain, question = _plain(condition), _question(space, program, before, open_)
                parts = [*conjuncts(asked[plain])] if plain in asked else []
                asked[plain] = conjunction([*dict.fromkeys((*parts, *conjuncts(question)))])
        unproved = [access for access in _accesses(statement) if is_open(access)]
        if unproved:
            asked[statement.path] = _question(space, program, statement, unproved)
    return asked


def check_asked(program: Program) -> None:
    """Refuse a program in which an access that sets do not decide is not asked before it is made."""
    space = Space(program.sizes, program.assumptions)
    for statement in statements(program):
        for position, one in enumerate(statement.conditions):
            parts = tuple(conjuncts(_plain(one)))
            for place, part in enumerate(
                parts
            ):  # one after the other: the first that fails ends it
                known = (*statement.conditions[:position], *parts[:place])
                for read in _reads(part):
                    _check_asked(space, program, replace(statement, conditions=known), read)
        for access in _accesses(statement):
            _check_asked(space, program, statement, access)


def _check_asked(space: Space, program: Program, statement: Statement, access: _Access) -> None:
    at = coordinates(statement.iterators)
    parts = [part for one in statement.conditions for part in conjuncts(one)]
    unbounded = not _open_ended(parts).isdisjoint(set().union(*map(variables, access.index)))
    if not unbounded and all(space.expr(part, at) is not None for part in access.index):
        return
    known = {clause for part in parts for clause in _clauses(part)}
    open_ = [
        part
        for part in conjuncts(_question(space, program, statement, [access]))
        if not known.issuperset(_clauses(part)) and (unbounded or space.condition(part, at) is None)
    ]
    if open_ and not _known_inside(space, program, statement, access):
        raise PartitionError(
            "prove",
            f"cannot run {program.name}: it may leave an array",
            at=format_stmt(statement.store),
            because=f"nothing asks before it whether {format_expr(conjunction(open_))}",
        )


def _open_ended(conditions: Sequence[Expr]) -> Set[str]:
    """Return the iterators that elements bound, and those that these bound: sets do not know how far they go."""
    names: set[str] = set()
    count = -1
    while len(names) > count:
        count = len(names)
        for condition in conditions:
            match condition:
                case Compare("<" | "<=", Var(name), end) | Compare("<" | "<=", end, Var(name)):
                    if reads_memory(end) or variables(end) & names:
                        names.add(name)
                case _:
                    pass
    return names


def _known_inside(space: Space, program: Program, statement: Statement, access: _Access) -> bool:
    """Return whether an access is proved inside; False where isl does not tell in bounded work."""
    return not _open_axes(space, program, statement, access)


def _open_axes(
    space: Space, program: Program, statement: Statement, access: _Access
) -> list[tuple[Expr, Expr]]:
    """Return the indices of an access, with the extents of their axes, that are not proved to be inside these in bounded work."""
    proved = partial(_proved, space, statement, access)
    axes = zip(access.index, program.buffer(access.buffer).shape, strict=True)
    parts = (part for one in (*statement.conditions, *access.path) for part in conjuncts(one))
    around = Facts(space, statement.iterators, tuple(parts))

    def inside(part: Expr, extent: Expr) -> bool:
        bounds = Compare("<=", ix.const(0), part), Compare("<", part, extent)
        return all(map(around.holds, bounds)) or proved(part, extent)

    return [axis for axis in axes if not try_isl(partial(inside, *axis), False)]


@request_budget(
    "compile", "cannot run a program that is cut", help=("the program before it was cut",)
)
def _check_tiles(space: Space, program: Program) -> frozenset[str]:
    """Refuse a program that was cut, by whomever, and leaves an array or the range of a value.

    The buffers of which sets do not say it.
    """
    for broken in unbounded(space, program):
        witness = smallest_point(broken.sizes)
        assert witness is not None
        let, pairs = broken.let, zip(program.sizes, witness[0], strict=True)
        sizes = ", ".join(f"{size.name} = {value}" for size, value in pairs)
        because = f"{f'with {sizes}, ' if sizes else ''}it is not in {let.lo}:{let.hi}"
        if broken.open:
            because = f"sets do not show that it is in {let.lo}:{let.hi}, nor express all around it"
        raise PartitionError(
            "compile",
            f"cannot take the value {let.name}",
            at=f"let {let.name} in {let.lo}:{let.hi} = {format_expr(let.value)}",
            because=because,
            help=("a range that holds it at every size",),
        )
    check_in_bounds(program, "compile", {})
    return frozenset(one.buffer for one in accesses_outside(program))


@dataclass(frozen=True, slots=True)
class _Access:
    """An element, and the conditions inside the statement under which it is accessed."""

    buffer: str
    index: tuple[Expr, ...]
    path: tuple[Expr, ...]


def _accesses(statement: Statement) -> list[_Access]:
    store = statement.store
    found = [read for expr in (*store.index, store.value) for read in _reads(expr)]
    return list(dict.fromkeys((*found, _Access(store.buffer, store.index, ()))))


def _reads(expr: Expr, path: tuple[Expr, ...] = ()) -> Iterator[_Access]:
    """What an expression reads, each access behind those that its index and its conditions make."""
    match expr:
        case Select(condition, then, other):
            yield from _reads(condition, path)
            yield from _reads(then, (*path, condition))
            yield from _reads(other, (*path, Logic("not", (condition,))))
        case _:
            for child in children(expr):
                yield from _reads(child, path)
            if isinstance(expr, Load):
                yield _Access(expr.buffer, expr.index, path)


def _proved(space: Space, statement: Statement, access: _Access, part: Expr, extent: Expr) -> bool:
    """Return whether one index of an access is inside of the axis that it is along; False where that is open."""
    at = {name: f"x{k}" for k, name in enumerate(statement.iterators)}
    asked = (*statement.conditions, *access.path)
    known = [space.condition(part, at) for c in asked for part in conjuncts(c)]
    index, count = space.expr(part, at), space.expr(extent, {})
    if count is None:
        return False
    equal = [] if index is None else [f"e = {index}"]
    xs = ", ".join(at.values())
    where = " and ".join([space.facts, *equal, *(text for text in known if text)])
    touched = Map(f"{space.parameters}{{ [{xs}] -> [e] : {where} }}")
    inside = Map(f"{space.parameters}{{ [{xs}] -> [e] : 0 <= e < {count} }}")
    return bool(touched.is_subset(inside))


def _question(
    space: Space, program: Program, statement: Statement, accesses: Sequence[_Access]
) -> Expr:
    """Return whether all of these accesses are inside, where that is not proved; what reads outside of an array where a condition fails is asked only
    where it holds.
    """
    parts: list[Expr] = []
    for access in accesses:
        inside: list[Expr] = []
        for part, extent in _open_axes(space, program, statement, access):
            inside += [Compare("<=", ix.const(0), part), Compare("<", part, extent)]
        if inside and access.path:
            question: Expr = conjunction(inside)
            for condition in reversed(access.path):
                if all(_known_inside(space, program, statement, read) for read in _reads(question)):
                    question = _unless(Select(condition, question, Const(1, "bool")))
                else:
                    question = Select(condition, question, Const(1, "bool"))
            parts.append(question)
        else:
            parts += inside
    return conjunction(parts)


def _unless(question: Expr) -> Expr:
    """What is asked only where a condition holds, as an ``or``: what it reads may be read in any case."""
    match question:
        case Select(condition, asked, Const(1, "bool")):
            inner = _unless(asked)
            before = inner.args if isinstance(inner, Logic) and inner.op == "or" else (inner,)
            return Logic("or", (Logic("not", (condition,)), *before))
        case _:
            return question


def _clauses(question: Expr) -> Iterator[Expr]:
    """Conditions all of which hold where a question does: a program that was cut may ask for more of them than it has to."""
    for part in conjuncts(question):
        match _unless(part):
            case Logic("or", (*before, last)):
                yield from (Logic("or", (*before, one)) for one in conjuncts(last))
            case one:
                yield one


def _plain(condition: Expr) -> Expr:
    """Return a condition that is asked, whichever side of it is meant."""
    while isinstance(condition, Logic) and condition.op == "not":
        (condition,) = condition.args
    return condition


def _in_tile(body: Sequence[Stmt], path: Path) -> bool:
    """Return whether the statement at `path` is inside a tile, a choice or a bounded value."""
    return any(isinstance(stmt, Tile | Choose | Let) for stmt in _down(body, path))


def _down(body: Sequence[Stmt], path: Path) -> list[Stmt]:
    found: list[Stmt] = []
    while path:
        stmt, path = body[path[0]], path[1:]
        found.append(stmt)
        inner = blocks(stmt)
        if isinstance(stmt, If | Choose) and path:
            body, path = inner[path[0]], path[1:]
        elif inner:
            body = inner[0]
    return found


def _with_questions(
    body: Sequence[Stmt], path: Path, asked: Mapping[Path | Expr, Expr], some: Store
) -> tuple[Stmt, ...]:
    made: list[Stmt] = []
    for position, stmt in enumerate(body):
        here = (*path, position)
        match stmt:
            case Store() if here in asked:
                made.append(If(asked[here], (stmt,), (some,)))
            case If(condition, then, other):
                yes = _with_questions(then, (*here, 0), asked, some)
                no = _with_questions(other, (*here, 1), asked, some)
                inner = If(condition, yes, no)
                question = asked.get(_plain(condition))
                made.append(inner if question is None else If(question, (inner,), (some,)))
            case For() | Tile() | Alloc() | Let():
                made.append(replace(stmt, body=_with_questions(stmt.body, here, asked, some)))
                known = bounds(stmt) if isinstance(stmt, For | Tile) else ()
                if before := [asked[bound] for bound in known if bound in asked]:
                    made.append(If(conjunction(before), (made.pop(),), (some,)))
            case Choose(options):
                bodies = (
                    _with_questions(option.body, (*here, number), asked, some)
                    for number, option in enumerate(options)
                )
                parts = zip(options, bodies, strict=True)
                made.append(Choose(tuple(replace(o, body=body) for o, body in parts)))
            case _:
                made.append(stmt)
    return tuple(made)
