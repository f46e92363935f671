"""Which statement of a program another one's statement is: matching by unification.

A store of the emitted program is an instance of a store of the source when its value is the source's
under a substitution of the source's iterators by expressions over the emitted ones. Solving for it
needs the index expressions; whether data is read from and left at the right places is not asked
here, the flow of data decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from offcut.core import index as ix
from offcut.core.expr import (
    Const,
    Expr,
    Load,
    Logic,
    Select,
    Var,
    children,
    dtype_of,
    is_same_node,
    substitute,
    variables,
    walk,
)

_MOST_CANDIDATES = 24
_PRIME = "'"


@dataclass(frozen=True, slots=True)
class ReadPair:
    """A read of the emitted statement and the read of the source that it stands for.

    path   conditions of the source around it
    own    conditions of the emitted statement around it
    """

    emitted: Load
    source: Load
    path: tuple[Expr, ...]
    own: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Unified:
    """What must hold for two values to be equal; source iterators are primed.

    equal    (source, emitted, path): index expressions that must agree
    pairs    the reads, in order
    alike    (source, emitted, path): conditions that must agree
    holds    (condition, path) of the source that must hold wherever the statement runs
    """

    equal: tuple[tuple[Expr, Expr, tuple[Expr, ...]], ...] = ()
    pairs: tuple[ReadPair, ...] = ()
    alike: tuple[tuple[Expr, Expr, tuple[Expr, ...]], ...] = ()
    holds: tuple[tuple[Expr, tuple[Expr, ...]], ...] = ()

    def __add__(self, other: Unified) -> Unified:
        return Unified(
            self.equal + other.equal,
            self.pairs + other.pairs,
            self.alike + other.alike,
            self.holds + other.holds,
        )


def prime_iterators(expr: Expr, iters: Collection[str]) -> Expr:
    """`expr` with the source's iterators told from the emitted program's."""
    return substitute(expr, {name: Var(name + _PRIME) for name in iters})


def unify(
    source: Expr,
    emitted: Expr,
    same: Collection[str],
    path: tuple[Expr, ...] = (),
    own: tuple[Expr, ...] = (),
) -> Iterator[Unified]:
    """Every way in which `emitted` may be `source`, the literal one first.

    same   buffers of both programs: a read of one of them stands for a read of it alone
    """
    match source, emitted:
        case Select(condition, then, other), Select():
            yield from _selects(source, emitted, same, path, own)
            yield from _resolve_select(condition, then, other, emitted, same, path, own)
        case Select(condition, then, other), _:
            yield from _resolve_select(condition, then, other, emitted, same, path, own)
        case _ if dtype_of(source) == "index" and dtype_of(emitted) == "index":
            yield Unified(equal=((source, emitted, path),))
        case Load(), Load():
            is_comparable = source.buffer == emitted.buffer or not (
                source.buffer in same and emitted.buffer in same
            )
            if source.dtype == emitted.dtype and is_comparable:
                yield Unified(pairs=(ReadPair(emitted, source, path, own),))
        case Const(), Const():
            if source == emitted:
                yield Unified()
        case Logic("and" | "or" as op, args), _:
            mine = emitted.args if isinstance(emitted, Logic) and emitted.op == op else (emitted,)
            yield from _joined_conditions(op, args, mine, same, path, own)
        case _:
            if not is_same_node(source, emitted):
                return
            parts = [
                list(unify(a, b, same, path, own))
                for a, b in zip(children(source), children(emitted), strict=True)
            ]
            for choice in product(*parts):
                yield sum(choice, Unified())


def _selects(
    source: Select,
    emitted: Select,
    same: Collection[str],
    path: tuple[Expr, ...],
    own: tuple[Expr, ...],
) -> Iterator[Unified]:
    test = emitted.condition
    reads_nothing = not any(isinstance(n, Load) for c in (source.condition, test) for n in walk(c))
    conditions = (
        [Unified(alike=((source.condition, test, path),))]
        if reads_nothing
        else list(unify(source.condition, test, same, path, own))
    )
    first = (*path, source.condition), (*own, test)
    second = (
        (*path, Logic("not", (source.condition,))),
        (*own, Logic("not", (test,))),
    )
    then = list(unify(source.then, emitted.then, same, *first))
    other = list(unify(source.other, emitted.other, same, *second))
    for choice in product(conditions, then, other):
        yield sum(choice, Unified())


def _joined_conditions(
    op: str,
    source: Sequence[Expr],
    emitted: Sequence[Expr],
    same: Collection[str],
    path: tuple[Expr, ...],
    own: tuple[Expr, ...],
) -> Iterator[Unified]:
    """Conditions joined by `op`, in order, without those of the source that are decided."""
    if not source:
        if not emitted:
            yield Unified()
        return
    if emitted:
        for first in unify(source[0], emitted[0], same, path, own):
            for rest in _joined_conditions(op, source[1:], emitted[1:], same, path, own):
                yield first + rest
    if len(source) > len(emitted):
        for known in _deciders(source[0], op == "and"):
            for rest in _joined_conditions(op, source[1:], emitted, same, path, own):
                yield Unified(holds=((known, path),)) + rest


def _resolve_select(
    condition: Expr,
    then: Expr,
    other: Expr,
    emitted: Expr,
    same: Collection[str],
    path: tuple[Expr, ...],
    own: tuple[Expr, ...],
) -> Iterator[Unified]:
    """A select of the source whose condition is decided wherever the emitted statement runs."""
    for branch, value in ((then, True), (other, False)):
        for known in _deciders(condition, value):
            for unified in unify(branch, emitted, same, path, own):
                yield Unified(holds=((known, path),)) + unified


def _deciders(condition: Expr, value: bool) -> Iterator[Expr]:
    """Conditions that read no memory, each of which makes `condition` true, or false if not `value`."""
    if not any(isinstance(node, Load) for node in walk(condition)):
        yield condition if value else Logic("not", (condition,))
        return
    match condition:
        case Logic("not", (inner,)):
            yield from _deciders(inner, not value)
        case Logic("and" | "or" as op, args) if value == (op == "or"):
            for arg in args:
                yield from _deciders(arg, value)
        case _:
            pass


def solutions(
    iters: Sequence[str],
    equations: Sequence[tuple[Expr, Expr]],
    around: Sequence[str],
    candidates: Callable[[], Iterator[Expr]],
) -> Iterator[tuple[dict[str, Expr], bool]]:
    """The source's iterators as expressions over the emitted ones, by name, the likeliest first; and
    whether one of them is a guess.

    equations    (source, emitted), the more telling ones first; one that does not fit is passed by
    around       the emitted iterators
    candidates   what an iterator that no equation mentions may be
    """
    solved = _solve(iters, equations)
    free = [name for name in iters if name not in solved]
    choices: list[list[Expr]] = []
    for name in free:
        own = [Var(name)] if name in around else []
        used = set().union(*map(variables, solved.values())) if solved else set()
        rest = [c for c in candidates() if c not in own and not variables(c) & used]
        choices.append((own + rest)[:_MOST_CANDIDATES])
    for count, choice in enumerate(product(*choices)):
        if count >= _MOST_CANDIDATES:
            return
        yield {**solved, **dict(zip(free, choice, strict=True))}, bool(free)


def _solve(iters: Sequence[str], equations: Sequence[tuple[Expr, Expr]]) -> dict[str, Expr]:
    """Gauss' elimination over the integers, as far as the equations carry."""
    unknown = {name + _PRIME: name for name in iters}
    known: dict[str, Expr] = {}
    rest = list(equations)
    progress = True
    while progress:
        progress = False
        for strict in (True, False):
            for place, (source, emitted) in enumerate(rest):
                solution = _one(source, emitted, unknown, known, strict)
                if solution is None:
                    continue
                name, value = solution
                known = {n: ix.simplify(substitute(v, {name: value})) for n, v in known.items()}
                known[name] = value
                del rest[place]
                progress = True
                break
            if progress:
                break
    return {
        unknown[name]: value for name, value in known.items() if not variables(value) & set(unknown)
    }


def _one(
    source: Expr,
    emitted: Expr,
    unknown: Mapping[str, str],
    known: Mapping[str, Expr],
    alone: bool,
) -> tuple[str, Expr] | None:
    """An unknown that an equation gives; `alone`: it mentions no other unknown."""
    form = ix.to_linear(ix.sub(ix.simplify(substitute(source, known)), emitted))
    here = {n for atom, _ in form.terms for n in variables(atom) if n in unknown}
    if not here or (alone and len(here) > 1):
        return None
    for atom, factor in form.terms:
        if not (isinstance(atom, Var) and atom.name in here):
            continue
        rest = [(a, f) for a, f in form.terms if a != atom]
        if any(atom.name in variables(a) for a, _ in rest):
            continue
        if any(not isinstance(a, Var) and variables(a) & set(unknown) for a, _ in rest):
            continue
        if all(f % factor == 0 for _, f in rest) and form.const % factor == 0:
            value = ix.Linear(tuple((a, -f // factor) for a, f in rest), -form.const // factor)
            return atom.name, ix.simplify(value.expr())
    return None
