"""Ways to lay a microkernel over a store: which array is which operand, and which iterator which axis."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from offcut.core.expr import Binary, Expr, Load, dtype_of
from offcut.core.program import Cover, For, Program, Store
from offcut.core.text.printer import format_expr
from offcut.describe.microkernel import Microkernel
from offcut.partition.judge.match import Match, Movement, Question, Refusal, matches, pairings

_AS_BINARY = {"sum": "+", "max": "max", "min": "min"}


def find_ways(
    kernel: Microkernel,
    request: Cover,
    axes: Collection[str],
    store: Store,
    loops: tuple[For, ...],
    program: Program,
) -> list[Match]:
    """Return every way to lay the microkernel over a store that a cover allows.

    axes   iterators of the tile
    loops  of the sum that the store is part of, outermost first
    """
    value, reducer = reduced_term(kernel, store, program)
    allowed, names = dict(request.axes), dict(request.operands)
    if names.pop(kernel.computes.name, store.buffer) != store.buffer:
        return []
    summed = tuple([loop.iter for loop in loops])
    ways = matches(kernel, value, reducer, tuple(axes), summed)
    return [
        one
        for one in ways
        if (not allowed or all(allowed.get(n) == it for n, it in one.axes))
        and all(names.get(name, load.buffer) == load.buffer for name, load in one.operands)
        and all(it is not None or _takes_one(kernel, n) for n, it in one.axes)
    ]


def reduced_term(kernel: Microkernel, store: Store, program: Program) -> tuple[Expr, str | None]:
    """Return the value that a store reduces, and how; of an update, for a microkernel that reduces nothing, all that it computes."""
    if kernel.reducer is not None or store.reduce is None:
        return store.value, store.reduce
    current = Load(store.buffer, store.index, program.buffer(store.buffer).dtype)
    return Binary(_AS_BINARY[store.reduce], current, store.value), None


def _takes_one(kernel: Microkernel, name: str) -> bool:
    """Return whether an axis of the result may have one value, and so be left out."""
    place = kernel.axes.index(name)
    return name in kernel.predicates or any(t.extents[place] == 1 for t in kernel.tiles)


def no_way_refusal(kernel: Microkernel, request: Cover, store: Store, program: Program) -> Refusal:
    """Return why no way is one: another term, or elements that move along other axes."""
    value, reducer = reduced_term(kernel, store, program)
    dtype, of, term = dtype_of(value), kernel.computes.dtype, format_expr(value)
    if reducer != kernel.reducer:
        kind = "no reduction" if store.reduce is None else f"a reduction by {store.reduce}"
        own = "nothing" if kernel.reducer is None else f"by {kernel.reducer}"
        return Refusal(Question.TERM, f"it is {kind}, and {kernel.name} reduces {own}")
    if dtype != of:
        because = f"its elements are {dtype}, and those of {kernel.name} {of}"
        return Refusal(Question.TERM, because)
    ways = list(pairings(kernel, value))
    if not ways or not (request.axes or request.operands):
        question = Question.MOVES if ways else Question.TERM
        does = "sums" if kernel.reducer else "computes"
        return Refusal(question, f"{term} is not what it {does}")
    names, mapping = dict(request.operands), dict(request.axes)
    result = names.get(kernel.computes.name, store.buffer)
    if result != store.buffer:
        because = f"it computes {store.buffer}, and the cover says {result}"
        return Refusal(Question.MOVES, because)
    for mine, theirs in (pair for pairing in ways for pair in pairing):
        if not (isinstance(mine, Load) and isinstance(theirs, Load)):
            continue
        repeated = kernel.repeated_axes(mine)
        movement = Movement(mine, theirs, tuple(mapping), mapping.values(), repeated)
        as_named = names.get(mine.buffer, theirs.buffer) == theirs.buffer
        if as_named and movement.steps(mapping) is None:
            because = f"{format_expr(theirs)} does not move as {format_expr(mine)}"
            return Refusal(Question.MOVES, f"{because} with {_pairs(request.axes)}")
    with_ = _pairs((*request.axes, *request.operands))
    return Refusal(Question.MOVES, f"{term} is not what it computes with {with_}")


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{mine}={theirs}" for mine, theirs in pairs)
