"""A cut program whose sums are staged, their terms under conditions -> the same with stages that end where these do.

Of a product in stages of 32 terms whose tiles have a cover::

    for s in 0:(n + 31)//32                             for s in 0:min((n + 31)//32, 2*b + 2)
      alloc A_in[…], V_in[…]                              alloc A_in[…], V_in[…]
        tile … @by(load): the copies                        tile … @by(load): the copies
        for w in 0:4  @warp                                 for w in 0:4  @warp
          tile i in 64*b + 16*w +: 16  @cover(…)     ->       tile i in 64*b + 16*w +: 16  @cover(…)
            for t in 32*s:32*s + 32                             for t in 32*s:e
              S[i] += where(t <= i, A_in[i, t] * …, -0.0)         S[i] += A_in[i, t] * …
                                                              tile i in 64*b + 16*w +: 16
                                                                for t in e:32*s + 32
                                                                  if t <= i: S[i] += A_in[i, t] * …

where e = 32*s + 32 if all rows have all terms of the stage, else 32*s, which is said by ``min(32*s + 32, 32*s + 32*max(0, q))`` with
q = (64*b + 16*w + 1 - 32*s)//32. So a stage is in the tile with its cover whole or not at all; else its terms are added under their
condition, one by one; a stage of which no row of a block has a term is none. Units run the same tiles in each stage, some of them
without terms. Each element adds its terms in the order that they had. The step is proved as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import reduce

from offcut.core import index as ix
from offcut.core.analysis import accessed_arrays, stored_arrays
from offcut.core.conditions import conditional_term, conjunction, conjuncts
from offcut.core.expr import (
    Compare,
    Expr,
    Var,
    children,
    dtype_of,
    loads,
    reads_memory,
    rewrite,
    variables,
)
from offcut.core.intervals import Ends, ends, greatest_value
from offcut.core.program import (
    MAX_SIZE,
    Alloc,
    Choose,
    For,
    If,
    Program,
    Size,
    Stmt,
    Store,
    Tile,
    blocks,
    walk,
)
from offcut.core.traversal import map_blocks, substitute_coordinates, used_names
from offcut.describe.computation import Names
from offcut.polyhedral import Facts
from offcut.proof.normal_forms.condition_hoisting import bound
from offcut.proof.normal_forms.copies import without_copies
from offcut.proof.normal_forms.narrowed_blocks import narrow_blocks
from offcut.proof.normal_forms.narrowing import (
    TileRewriting,
    conditional_sums,
    conditions_of_arrays,
)


class _Form(Enum):
    """How far stages are narrowed: their tiles are; what a stage runs has a condition; its loop ends with it.

    REACH is the last with tiles that touch all terms of a stage, and so no less than those that are narrowed.
    """

    TILES = auto()
    STAGES = auto()
    LOOPS = auto()
    REACH = auto()


def narrowing_steps(program: Program) -> tuple[Program, ...]:
    """Return the programs on the way from `program` to the same with narrowed stages, which is the last; none if there are none.

    Without windows and copies four small steps are seen: blocks that no read asks for, the conditions of tiles, those of stages, and loops
    that end with these.
    """
    match program.body:
        case (Choose(options),):
            return _join_options(
                [narrowing_steps(replace(program, body=o.body)) for o in options], program
            )
    if not conditional_sums(program):
        return ()
    bare, stages = _without_copies(program), _Stages(program, _Form.LOOPS).result()
    needed = conditions_of_arrays(bare)
    alone, narrowed = narrow_blocks(bare, needed), narrow_blocks(stages, needed)
    if narrowed.body == program.body:
        return ()
    blocks_step = () if alone is bare else (alone,)
    if stages.body == program.body:
        return (bare, *blocks_step, narrowed)
    forms = (_Stages(alone, form).result() for form in (_Form.TILES, _Form.STAGES, _Form.LOOPS))
    return (bare, *blocks_step, *forms, narrowed)


def synchronized_stages(
    program: Program, narrowed: Program, synchronized: Callable[[Program], Program]
) -> Program:
    """Return `narrowed` with the synchronization of `program` whose tiles touch all terms of their stages: it keeps the order of any part
    of what they touch, and is the same for all units and stages. Conditions around what a block runs hold for all of its units.

    narrowed  the last of `narrowing_steps` of `program`
    """
    if narrowed is program:
        return synchronized(program)
    tiles = (stmt for stmt in walk(narrowed.body) if isinstance(stmt, Tile))

    def change(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Tile):
            return next(tiles)
        return map_blocks(stmt, lambda body: tuple(map(change, body)))

    reach, elements = _with_named_elements(_reach_of(program))
    ordered = synchronized(reach)
    body = substitute_coordinates(ordered.body, elements)
    ordered = replace(ordered, sizes=program.sizes, body=tuple(map(change, body)))
    return _narrow_blocks_of(program, ordered)


def _with_named_elements(program: Program) -> tuple[Program, Mapping[str, Expr]]:
    """Return a program with a size of its own for each element of an array that ends a loop over stages, and these elements; of arrays that
    the program does not write.

    An element is one number for all units of a block. What is ordered for all sizes is so in each block; and in two of them,
    since stages that any of them has are stages at the least, or the greatest, of their numbers.
    """
    names = Names(used_names(program))
    elements = dict[str, Expr]()

    def named(loop: For, blocks_around: frozenset[str]) -> For:
        def name_of(node: Expr) -> Expr | None:
            if not _is_element(node) or not variables(node) <= blocks_around | sizes:
                return None
            if written & {load.buffer for load, _ in loads(node)}:
                return None
            known = next((name for name, one in elements.items() if one == node), "")
            if not known:
                known = names.fresh("element")
                elements[known] = node
            return Var(known)

        return replace(loop, lo=rewrite(loop.lo, name_of), hi=rewrite(loop.hi, name_of))

    def change(stmt: Stmt, blocks_around: frozenset[str]) -> Stmt:
        if isinstance(stmt, Tile):
            return stmt
        if isinstance(stmt, For) and stmt.unit is None:
            stmt = named(stmt, blocks_around)
        elif isinstance(stmt, For) and stmt.unit == "block":
            blocks_around |= {stmt.iter}
        return map_blocks(stmt, lambda body: tuple(change(one, blocks_around) for one in body))

    sizes = frozenset(size.name for size in program.sizes)
    written = stored_arrays(program.body)
    body = tuple(change(stmt, frozenset()) for stmt in program.body)
    own = tuple(Size(name, min=-MAX_SIZE) for name in elements)
    return replace(program, sizes=(*program.sizes, *own), body=body), elements


def _is_element(node: Expr) -> bool:
    """Return whether an index is an element of an array, or computed of it in the array's type."""

    def is_read_index(one: Expr) -> bool:
        return dtype_of(one) == "index" and reads_memory(one)

    return is_read_index(node) and not any(map(is_read_index, children(node)))


def _narrow_blocks_of(program: Program, ordered: Program) -> Program:
    """Return a program with synchronization without the blocks that no read of `program`, the same without it, asks for."""
    match program.body, ordered.body:
        case (Choose(options),), (Choose(others),):
            parts = (
                _narrow_blocks_of(replace(program, body=a.body), replace(ordered, body=b.body))
                for a, b in zip(options, others, strict=True)
            )
            choice = Choose(
                tuple(replace(b, body=p.body) for b, p in zip(others, parts, strict=True))
            )
            return replace(ordered, body=(choice,))
    return narrow_blocks(ordered, conditions_of_arrays(_without_copies(program)))


def _reach_of(program: Program) -> Program:
    match program.body:
        case (Choose(options),):
            bodies = (_reach_of(replace(program, body=option.body)).body for option in options)
            reach = Choose(tuple(map(lambda o, body: replace(o, body=body), options, bodies)))
            return replace(program, body=(reach,))
    return _Stages(program, _Form.REACH).result() if conditional_sums(program) else program


def _without_copies(program: Program) -> Program:
    """Return `program` without the windows of its stages, and what is copied into them."""

    def change(stmt: Stmt) -> Stmt:
        if not (
            isinstance(stmt, For) and stmt.unit is None and any(_tiles_of_stage(stmt.body, ()))
        ):
            return map_blocks(stmt, lambda body: tuple(map(change, body)))
        windows = {inner.buffer for inner in walk(stmt.body) if isinstance(inner, Alloc)}
        arrays = tuple(buffer for buffer in program.buffers if buffer.name not in windows)
        bare, *_ = without_copies(replace(program, body=(stmt,)), replace(program, buffers=arrays))
        return bare.body[0]

    body = tuple(map(change, program.body))
    gone = accessed_arrays(program.body) - accessed_arrays(body)
    buffers = tuple(buffer for buffer in program.buffers if buffer.name not in gone)
    return replace(program, buffers=buffers, body=body)


def _join_options(steps: Sequence[tuple[Program, ...]], program: Program) -> tuple[Program, ...]:
    """Return the steps of all options of a program that is one choice, side by side."""
    (choice,) = program.body
    assert isinstance(choice, Choose)
    programs = []
    for number in range(max(map(len, steps), default=0)):
        bodies = [
            own[number].body if own else option.body
            for own, option in zip(steps, choice.options, strict=True)
        ]
        options = map(lambda o, body: replace(o, body=body), choice.options, bodies)
        programs.append(replace(program, body=(Choose(tuple(options)),)))
    return tuple(programs)


@dataclass(frozen=True, slots=True)
class _Terms:
    """The terms of a tile, under a condition.

    loop    over the terms
    store   of a term without its condition
    whole   the number of stages of as many terms, from the first on, of which all rows have all terms: none if it is not above 0
    first, last  the least term that some row may have, and the greatest
    """

    loop: For
    store: Store
    condition: Expr
    most: int
    whole: Expr
    first: Expr | None
    last: Expr | None


class _Stages(TileRewriting):
    """Rewrite the tiles and the loops of stages to one of the forms of `_Form`."""

    def __init__(self, program: Program, form: _Form) -> None:
        super().__init__(program)
        self.form = form

    def statement(self, stmt: Stmt, at: Facts) -> tuple[Stmt, ...]:
        narrowed = super().statement(stmt, at)
        match narrowed:
            case (For(unit=None) as loop,) if self.form is not _Form.TILES:
                assert isinstance(stmt, For)
                tiles = list(_tiles_of_stage(stmt.body, ()))
                conditions = [_stage_conditions(tile, around) for tile, around in tiles]
                if len(conditions) == 1 and conditions[0]:
                    return (self.stage(loop, conditions[0]),)
        return narrowed

    def stage(self, loop: For, conditions: Sequence[Compare]) -> For:
        """Return a loop over stages with these conditions: of `_Form.STAGES` in an `If` around its body, else in its bounds."""
        limits = [
            (one, limit) for one in conditions if (limit := bound(one, loop.iter)) is not None
        ]
        if self.form is _Form.STAGES:
            comparisons = [one for one, _ in limits]
            return (
                replace(loop, body=(If(conjunction(comparisons), loop.body),))
                if comparisons
                else loop
            )
        lo, hi = loop.lo, loop.hi
        for _, limit in limits:
            if limit.op == ">=":
                lo = ix.maximum(lo, limit.b)
            else:
                hi = ix.minimum(hi, limit.b)
        return replace(loop, lo=lo, hi=hi)

    def tile(self, tile: Tile, at: Facts) -> tuple[Stmt, ...]:
        terms = _terms_of(tile)
        if terms is None:
            return (tile,)
        lo, hi = terms.loop.lo, terms.loop.hi
        if self.form is _Form.REACH:
            whole = replace(tile, body=(replace(terms.loop, body=(terms.store,)),))
            return whole, replace(whole, cover=None, asynchronous=False)
        stages = ix.mul(terms.most, ix.maximum(ix.const(0), terms.whole))
        end = ix.minimum(hi, ix.add(lo, stages))
        first = end if terms.first is None else ix.maximum(end, terms.first)
        last = hi if terms.last is None else ix.minimum(hi, ix.add(terms.last, 1))
        border = replace(terms.loop, lo=first, hi=last, body=(If(terms.condition, (terms.store,)),))
        return (
            replace(tile, body=(replace(terms.loop, hi=end, body=(terms.store,)),)),
            replace(tile, body=(border,), cover=None, asynchronous=False),
        )


def _terms_of(tile: Tile) -> _Terms | None:
    """Return the terms of a tile that is a sum of conditional terms; None of any other, and where limits do not say the condition."""
    match tile.body:
        case (For(_, _, _, (Store() as store,)) as loop,):
            conditional = conditional_term(store.value, store.reduce)
        case _:
            return None
    most = ix.literal_bound(ix.sub(loop.hi, loop.lo))
    if conditional is None or most is None:
        return None
    condition, value = conditional
    ranges = dict(_ranges_of(tile))
    whole, first, last = list[Expr](), list[Expr](), list[Expr]()
    for atom in conjuncts(condition):
        limit = bound(atom, loop.iter)
        extremes = None if limit is None else ends(limit.b, ranges)
        if limit is None or extremes is None:
            return None
        least, greatest = extremes
        if limit.op == ">=":
            whole.append(ix.add(ix.floordiv(ix.sub(loop.lo, greatest), most), 1))
            first.append(least)
        else:
            whole.append(ix.floordiv(ix.sub(least, loop.lo), most))
            last.append(ix.sub(greatest, 1))
    return _Terms(
        loop,
        replace(store, value=value),
        condition,
        most,
        reduce(ix.minimum, whole),
        reduce(ix.maximum, first) if first else None,
        reduce(ix.minimum, last) if last else None,
    )


def _ranges_of(tile: Tile) -> Iterator[tuple[str, Ends]]:
    """Yield each axis of a tile with its first value and the last one that it may have."""
    for axis in tile.axes:
        extent = ix.literal_bound(axis.extent)
        last = ix.sub(ix.add(axis.start, axis.extent if extent is None else extent), 1)
        yield axis.iter, (axis.start, last)


def _tiles_of_stage(
    body: Sequence[Stmt], around: tuple[For, ...]
) -> Iterator[tuple[Tile, tuple[For, ...]]]:
    """Yield the sums of conditional terms of one stage, each with the loops over units around."""
    for stmt in body:
        match stmt:
            case Tile() if _terms_of(stmt) is not None:
                yield stmt, around
            case For() if stmt.unit is not None:
                yield from _tiles_of_stage(stmt.body, (*around, stmt))
            case Alloc() | If():
                for inner in blocks(stmt):
                    yield from _tiles_of_stage(inner, around)


def _stage_conditions(tile: Tile, around: Sequence[For]) -> tuple[Compare, ...]:
    """Return conditions that hold in every stage in which some row of some unit has a term."""
    terms = _terms_of(tile)
    assert terms is not None
    after = ix.add(terms.loop.lo, terms.most)
    differences = [] if terms.first is None else [ix.sub(ix.sub(after, 1), terms.first)]
    differences += [] if terms.last is None else [ix.sub(terms.last, terms.loop.lo)]
    ranges = [(loop.iter, loop.lo, ix.sub(loop.hi, 1)) for loop in around]
    greatest = (greatest_value(difference, ranges) for difference in differences)
    last_values = (value for value in greatest if value is not None)
    return tuple(Compare(">=", ix.simplify(value), ix.const(0)) for value in last_values)
