"""Accesses of a loop program against the shapes of its buffers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from offcut.core.expr import Expr, Load, loads
from offcut.core.printer import format_expr
from offcut.core.program import Program
from offcut.polyhedral.affine import Space, coordinates
from offcut.polyhedral.dependences import Statement, statements
from offcut.polyhedral.witness import smallest


@dataclass(frozen=True, slots=True)
class Outside:
    """An access that may lie outside of its buffer.

    access    its text
    sizes     the smallest at which it does; None where its index is not quasi-affine
    point     the coordinates of the instance, then those of the element
    """

    statement: Statement
    access: str
    sizes: tuple[int, ...] | None
    point: tuple[int, ...]


@lru_cache(maxsize=64)
def accesses_outside(program: Program) -> tuple[Outside, ...]:
    """The accesses of `program` that sets cannot show to lie inside their buffers, for all sizes.

    Theorem, where there are none: for each access, ``{ [x] : x runs, and 0 <= index < shape fails }``
    is empty. A condition that is not quasi-affine is taken as true.
    """
    space = Space(program.sizes, program.assumptions)
    found = (
        _outside(program, space, one, buffer, index, path)
        for one in statements(program)
        for buffer, index, path in _accesses(one)
    )
    return tuple(one for one in found if one is not None)


def _accesses(one: Statement) -> Iterator[tuple[str, tuple[Expr, ...], tuple[Expr, ...]]]:
    yield one.store.buffer, one.store.index, one.conditions
    for load, path in loads(one.store.value):
        yield load.buffer, load.index, (*one.conditions, *path)
        yield from _inner(load, (*one.conditions, *path))
    for k, condition in enumerate(one.conditions):
        for load, path in loads(condition):
            yield load.buffer, load.index, (*one.conditions[:k], *path)


def _inner(
    load: Load, path: tuple[Expr, ...]
) -> Iterator[tuple[str, tuple[Expr, ...], tuple[Expr, ...]]]:
    for part in load.index:
        for inner, more in loads(part):
            yield inner.buffer, inner.index, (*path, *more)


def _outside(
    program: Program,
    space: Space,
    one: Statement,
    buffer: str,
    index: tuple[Expr, ...],
    path: tuple[Expr, ...],
) -> Outside | None:
    at = coordinates(one.iterators)
    texts = [space.expr(part, at) for part in index]
    access = f"{buffer}[{', '.join(map(format_expr, index))}]"
    if any(text is None for text in texts):
        return Outside(one, access, None, ())
    elements = [f"x{len(one.loops) + k}" for k in range(len(index))]
    known = (space.condition(condition, at) for condition in path)
    conditions = [text for text in known if text is not None]
    conditions += [f"{e} = {text}" for e, text in zip(elements, texts, strict=True)]
    shape = [space.expr(extent, {}) for extent in program.buffer(buffer).shape]
    wrong = [
        f"{e} < 0" + ("" if extent is None else f" or {e} >= {extent}")
        for e, extent in zip(elements, shape, strict=True)
    ]
    if not wrong:
        return None
    broken = space.set([*one.iterators, *elements], [*conditions, f"({' or '.join(wrong)})"])
    found = smallest(broken)
    return None if found is None else Outside(one, access, *found)
