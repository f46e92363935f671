"""Keep the accesses of a loop program inside its arrays: by proof for all sizes, or by guards at run time.

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

from offcut.backends.abi import STATUS_OUT_OF_BOUNDS
from offcut.core import index as ix
from offcut.core.analysis import analysis
from offcut.core.conditions import conjunction, conjuncts
from offcut.core.expr import (
    Binary,
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
    Space,
    Statement,
    accesses_outside,
    bounds,
    check_in_bounds,
    coordinates,
    find_unbounded_lets,
    parse_map,
    pass_budget,
    request_budget,
    smallest_point,
    statements,
    try_isl,
)

Path = tuple[int, ...]


def insert_bounds_guards(program: Program) -> Program:
    """Return `program` with a guard before each statement that is not proved to stay inside its arrays.

    In tiles, choices and bounded values only what sets do not decide is asked; the rest is proved or
    refused.

    Raises PartitionError, with the smallest witness, where a statement in one of these leaves an array.
    """
    space = Space(program.sizes, program.assumptions)
    undecided: frozenset[str] = frozenset()
    if analysis(program).has(Tile, Choose, Let):
        undecided = _check_tiles(space, program)
    with pass_budget():
        guards = _bounds_guards(space, program, undecided)
    if not guards:
        return program
    for stmt in analysis(program).statements:
        if isinstance(stmt, Tile) and stmt.where in guards:
            raise PartitionError(
                "compile",
                f"cannot ask {format_expr(stmt.where)} before a tile runs",
                because="it reads an element that may lie outside of its array",
                help=("an if inside the tile",),
            )
    used_names = {buffer.name for buffer in program.buffers}
    name = next(
        n for k in range(len(used_names) + 1) if (n := f"outside{k or ''}") not in used_names
    )
    status = Buffer(name, "int32", (), Kind.LOCAL, scope=STATUS)
    none, report = (Store(name, (), Const(value, "int32")) for value in (0, STATUS_OUT_OF_BOUNDS))
    body = _with_guards(program.body, (), guards, report)
    return replace(program, buffers=(*program.buffers, status), body=(none, *body))


def _bounds_guards(
    space: Space, program: Program, undecided: frozenset[str]
) -> dict[Path | Expr, Expr]:
    """Return the guards of `program`, by the path of the statement, or by the condition, whose accesses are not proved.

    undecided   the buffers that a statement in a tile, a choice or a bounded value may leave
    """
    guards: dict[Path | Expr, Expr] = {}
    for statement in statements(program):
        cut = _in_tile(program.body, statement.path)

        def is_open(access: _Access, at: Statement = statement, cut: bool = cut) -> bool:
            if not access.index or (cut and access.buffer not in undecided):
                return False
            return not _is_proved_in_bounds(space, program, at, access)

        for position, condition in enumerate(statement.conditions):
            before = replace(statement, conditions=statement.conditions[:position])
            open_ = [read for read in _reads(condition) if is_open(read, before)]
            if open_:
                plain, question = (
                    _without_not(condition),
                    _guard_condition(space, program, before, open_),
                )
                parts = [*conjuncts(guards[plain])] if plain in guards else []
                guards[plain] = conjunction([*dict.fromkeys((*parts, *conjuncts(question)))])
        unproved = [access for access in _accesses(statement) if is_open(access)]
        if unproved:
            guards[statement.path] = _guard_condition(space, program, statement, unproved)
    return guards


def check_bounds_guards(program: Program) -> None:
    """Reject a program in which an access that sets cannot decide has no guard."""
    space = Space(program.sizes, program.assumptions)
    for statement in statements(program):
        for position, one in enumerate(statement.conditions):
            parts = tuple(conjuncts(_without_not(one)))
            for place, part in enumerate(
                parts
            ):  # one after the other: the first that fails ends it
                conditions = (*statement.conditions[:position], *parts[:place])
                for read in _reads(part):
                    _check_guard(space, program, replace(statement, conditions=conditions), read)
        for access in _accesses(statement):
            _check_guard(space, program, statement, access)


def _check_guard(space: Space, program: Program, statement: Statement, access: _Access) -> None:
    at = coordinates(statement.iterators)
    parts = [part for one in statement.conditions for part in conjuncts(one)]
    is_unbounded = not _iterators_bounded_by_data(parts).isdisjoint(
        set().union(*map(variables, access.index))
    )
    if not is_unbounded and all(space.expr(part, at) is not None for part in access.index):
        return
    guard_clauses = {clause for part in parts for clause in _clauses(part)}
    open_ = [
        part
        for part in conjuncts(_guard_condition(space, program, statement, [access]))
        if not guard_clauses.issuperset(_clauses(part))
        and (is_unbounded or space.condition(part, at) is None)
    ]
    if open_ and not _is_proved_in_bounds(space, program, statement, access):
        raise PartitionError(
            "prove",
            f"cannot run {program.name}: it may leave an array",
            at=format_stmt(statement.store),
            because=f"nothing asks before it whether {format_expr(conjunction(open_))}",
        )


def _iterators_bounded_by_data(conditions: Sequence[Expr]) -> Set[str]:
    """Return the iterators whose bounds read memory, directly or through other iterators: sets have no bound for them."""
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


def _is_proved_in_bounds(
    space: Space, program: Program, statement: Statement, access: _Access
) -> bool:
    """Return whether an access is proved in bounds; False if isl gives up within its budget."""
    return not _open_axes(space, program, statement, access)


def _open_axes(
    space: Space, program: Program, statement: Statement, access: _Access
) -> list[tuple[Expr, Expr]]:
    """Return the indices of an access that are not proved in bounds, with the extents of their axes."""
    is_in_axis = partial(_is_in_bounds, space, statement, access)
    axes = zip(access.index, program.buffer(access.buffer).shape, strict=True)
    parts = (part for one in (*statement.conditions, *access.path) for part in conjuncts(one))
    facts = Facts(space, statement.iterators, tuple(parts))

    def is_proved(part: Expr, extent: Expr) -> bool:
        bounds = Compare("<=", ix.const(0), part), Compare("<", part, extent)
        return all(_holds(facts, one) for one in bounds) or is_in_axis(part, extent)

    return [axis for axis in axes if not try_isl(partial(is_proved, *axis), False)]


def _holds(facts: Facts, bound: Compare) -> bool:
    """Return whether facts show a bound, or bounds on the operands of an extreme from which it follows: ``max(min(d[i], n - 1), 0) < n`` whatever
    d holds.
    """
    if facts.holds(bound):
        return True
    match bound:
        case Compare("<=", low, Binary("min" | "max" as op, a, b)):
            sides, enough = (Compare("<=", low, a), Compare("<=", low, b)), op == "max"
        case Compare("<", Binary("min" | "max" as op, a, b), high):
            sides, enough = (Compare("<", a, high), Compare("<", b, high)), op == "min"
        case _:
            return False
    return (any if enough else all)(_holds(facts, one) for one in sides)


@request_budget(
    "compile", "cannot run a program that is cut", help=("the program before it was cut",)
)
def _check_tiles(space: Space, program: Program) -> frozenset[str]:
    """Reject a partitioned program that leaves an array or the range of a `let`; return the undecided buffers."""
    for broken in find_unbounded_lets(space, program):
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
    """An access of an element, and the conditions inside the statement under which it happens."""

    buffer: str
    index: tuple[Expr, ...]
    path: tuple[Expr, ...]


def _accesses(statement: Statement) -> list[_Access]:
    store = statement.store
    reads = [read for expr in (*store.index, store.value) for read in _reads(expr)]
    return list(dict.fromkeys((*reads, _Access(store.buffer, store.index, ()))))


def _reads(expr: Expr, path: tuple[Expr, ...] = ()) -> Iterator[_Access]:
    """Yield the reads of an expression, each after those in its index and in its conditions."""
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


def _is_in_bounds(
    space: Space, statement: Statement, access: _Access, part: Expr, extent: Expr
) -> bool:
    """Return whether one index of an access is in bounds of its axis; False if the extent is unknown."""
    at = {name: f"x{k}" for k, name in enumerate(statement.iterators)}
    conditions = (*statement.conditions, *access.path)
    condition_texts = [space.condition(part, at) for c in conditions for part in conjuncts(c)]
    index, count = space.expr(part, at), space.expr(extent, {})
    if count is None:
        return False
    equal = [] if index is None else [f"e = {index}"]
    xs = ", ".join(at.values())
    domain = " and ".join([space.facts, *equal, *(text for text in condition_texts if text)])
    elements = parse_map(f"{space.parameters}{{ [{xs}] -> [e] : {domain} }}")
    array = parse_map(f"{space.parameters}{{ [{xs}] -> [e] : 0 <= e < {count} }}")
    return bool(elements.is_subset(array))


def _guard_condition(
    space: Space, program: Program, statement: Statement, accesses: Sequence[_Access]
) -> Expr:
    """Return whether all of these accesses are inside, where that is not proved; what reads outside of an array where a condition fails is asked only
    where it holds.
    """
    parts: list[Expr] = []
    for access in accesses:
        comparisons: list[Expr] = []
        for part, extent in _open_axes(space, program, statement, access):
            comparisons += [Compare("<=", ix.const(0), part), Compare("<", part, extent)]
        if comparisons and access.path:
            question: Expr = conjunction(comparisons)
            for condition in reversed(access.path):
                if all(
                    _is_proved_in_bounds(space, program, statement, read)
                    for read in _reads(question)
                ):
                    question = _implication(Select(condition, question, Const(1, "bool")))
                else:
                    question = Select(condition, question, Const(1, "bool"))
            parts.append(question)
        else:
            parts += comparisons
    return conjunction([*dict.fromkeys(parts)])


def _implication(question: Expr) -> Expr:
    """Return a conditional guard as an ``or``; what it reads must be readable in any case."""
    match question:
        case Select(condition, conclusion, Const(1, "bool")):
            inner = _implication(conclusion)
            before = inner.args if isinstance(inner, Logic) and inner.op == "or" else (inner,)
            return Logic("or", (Logic("not", (condition,)), *before))
        case _:
            return question


def _clauses(question: Expr) -> Iterator[Expr]:
    """Yield conditions whose conjunction is a guard: a partitioned program may check more of them than it needs."""
    for part in conjuncts(question):
        match _implication(part):
            case Logic("or", (*before, last)):
                yield from (Logic("or", (*before, one)) for one in conjuncts(last))
            case one:
                yield one


def _without_not(condition: Expr) -> Expr:
    """Return a condition without its negations, as both branches share one guard."""
    while isinstance(condition, Logic) and condition.op == "not":
        (condition,) = condition.args
    return condition


def _in_tile(body: Sequence[Stmt], path: Path) -> bool:
    """Return whether the statement at `path` is inside a tile, a choice or a bounded value."""
    return any(isinstance(stmt, Tile | Choose | Let) for stmt in _enclosing_statements(body, path))


def _enclosing_statements(body: Sequence[Stmt], path: Path) -> list[Stmt]:
    statements: list[Stmt] = []
    while path:
        stmt, path = body[path[0]], path[1:]
        statements.append(stmt)
        inner = blocks(stmt)
        if isinstance(stmt, If | Choose) and path:
            body, path = inner[path[0]], path[1:]
        elif inner:
            body = inner[0]
    return statements


def _with_guards(
    body: Sequence[Stmt], path: Path, guards: Mapping[Path | Expr, Expr], report: Store
) -> tuple[Stmt, ...]:
    statements: list[Stmt] = []
    for position, stmt in enumerate(body):
        statement_path = (*path, position)
        match stmt:
            case Store() if statement_path in guards:
                statements.append(If(guards[statement_path], (stmt,), (report,)))
            case If(condition, then, other):
                yes = _with_guards(then, (*statement_path, 0), guards, report)
                no = _with_guards(other, (*statement_path, 1), guards, report)
                inner = If(condition, yes, no)
                question = guards.get(_without_not(condition))
                statements.append(inner if question is None else If(question, (inner,), (report,)))
            case For() | Tile() | Alloc() | Let():
                statements.append(
                    replace(stmt, body=_with_guards(stmt.body, statement_path, guards, report))
                )
                conditions = bounds(stmt) if isinstance(stmt, For | Tile) else ()
                if before := [guards[bound] for bound in conditions if bound in guards]:
                    statements.append(If(conjunction(before), (statements.pop(),), (report,)))
            case Choose(options):
                bodies = (
                    _with_guards(option.body, (*statement_path, number), guards, report)
                    for number, option in enumerate(options)
                )
                parts = zip(options, bodies, strict=True)
                statements.append(Choose(tuple(replace(o, body=body) for o, body in parts)))
            case _:
                statements.append(stmt)
    return tuple(statements)
