"""Index-set splitting: loops cut where a condition changes, so that it leaves the loops inside.

A loop whose body asks ``1 <= i + r`` for every ``0 <= r < 3`` is cut where the answer stops to
depend on r::

    for i in 0:n                          for i in 0:min(1, n)
      for r in 0:3                          for r in 1:3
        if 1 <= i + r                         S
          S                     ->        for i in 1:n
                                            for r in 0:3
                                              S

Loops are visited from the outside in. For each comparison inside a loop, the bounds of the loops
further in give the least and the greatest value of its two sides, hence the iterations from which
on it always holds and those up to which it never does: where these change is a *break*. The loop is
cut at its breaks, in ascending order, so that the order of all instances stays what it was, and
nothing but the conditions changes. What a piece decides is then asked of isl, with all that encloses
the condition, for all sizes: breaks are only guesses where to look, and cannot make a cut wrong.
Comparisons of sizes alone are asked once, outside; ``min`` and ``max`` in a bound or an index are
comparisons too.

Two things are left as they are, and said: a condition that is not quasi-affine, and a cut that is
not worth its copies. It is not, where what stays undecided grows with the sizes while the part that
is decided does not (``j <= i``, asked of i: the loop over j will be cut instead), or where it would
take more copies than the budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from offcut.core import index as ix
from offcut.core.analysis import analysis
from offcut.core.conditions import negate
from offcut.core.expr import (
    Binary,
    Compare,
    Const,
    Expr,
    Logic,
    Var,
    dtype_of,
    substitute,
    variables,
    walk,
)
from offcut.core.memo import memo
from offcut.core.program import (
    Alloc,
    Choose,
    For,
    If,
    Let,
    Option,
    Program,
    Stmt,
    Store,
    Sync,
    Tile,
)
from offcut.core.program import walk as statements
from offcut.core.text.printer import format_expr
from offcut.core.traversal import canonicalize, expressions, substitute_coordinates, used_names
from offcut.describe.computation import Names
from offcut.partition.split_points import (
    LoopComparison,
    comparisons,
    facts_inside,
    find_split_points,
    fold_comparisons,
    is_index,
    is_short,
)
from offcut.polyhedral import BudgetExceeded, Facts, Space, pass_budget

COPIES = 64  # stores in the separated program, per store of the source, at most
UNROLLED = 8  # iterations of a loop that is written out, to make an index affine


@dataclass(frozen=True, slots=True)
class Note:
    """One decision: what was done at a loop, or not done, and why.

    steps  iterations that the loop takes at once; 0 where it takes one after the other
    """

    loop: str
    text: str
    steps: int = 0


@dataclass(frozen=True)
class Separated:
    """A program with fewer conditions, and what was decided."""

    program: Program
    notes: tuple[Note, ...]


def separate(program: Program, copies: int = COPIES) -> Separated:
    """`program` with its loops cut where conditions change; the same instances in the same order.

    copies   stores of the result per store of `program`, at most

    Where isl does not decide them in bounded work, all conditions stay as they are.

    Theorem: the parts of a loop are ascending, disjoint and cover it (each starts where the one
    before ends, clamped to the bounds), and a condition is replaced by its value only where isl
    shows that value for all sizes.
    """
    try:
        with pass_budget():
            return _separate_program(program, copies)
    except BudgetExceeded:
        text = "keeps its conditions: isl takes too long to decide them"
        loops = (stmt for stmt in program.body if isinstance(stmt, For))
        asking = (stmt.iter for stmt in loops if any(comparisons((stmt,))))
        return Separated(program, tuple(Note(name, text) for name in asking))


@memo(32)
def _separate_program(source: Program, copies: int) -> Separated:
    program = canonicalize(source)
    limit = copies * max(1, _stores(program.body))
    worker = _Separation(Space(program.sizes, program.assumptions), program, 2 * limit)
    body = worker.block(program.body, Facts(worker.space), limit)
    separated = program if body == program.body else replace(program, body=body)
    return Separated(separated, tuple(worker.body_with_notes(body)))


@dataclass(frozen=True, slots=True)
class _Kept:
    """Comparisons that a loop keeps, and why, as far as they are in the program that is made."""

    loop: str
    atoms: tuple[Compare, ...]
    because: str


class _Separation:
    """The rewriting of one program.

    left   how many more loops may be cut in two: a part that turns out to run nothing adds no store
    """

    def __init__(self, space: Space, program: Program, budget: int) -> None:
        self.space, self.left = space, budget
        self.sizes = {size.name for size in space.sizes}
        self.notes: dict[Note | _Kept, None] = {}
        self.names = Names(used_names(program))
        self.facts = analysis(program)

    def block(self, body: Sequence[Stmt], at: Facts, limit: int) -> tuple[Stmt, ...]:
        """`body`, in which at most `limit` stores may come out."""
        rest = limit - _stores(body)
        statements: list[Stmt] = []
        for stmt in body:
            own = _stores((stmt,))
            pieces = self.statement(stmt, at, own + max(rest, 0))
            rest -= _stores(pieces) - own
            statements += pieces
        return tuple(statements)

    def statement(self, stmt: Stmt, at: Facts, limit: int) -> tuple[Stmt, ...]:
        match stmt:
            case For():
                return self.loop(stmt, at, limit)
            case If(condition, then, other):
                verdict = fold_comparisons(condition, at)
                if isinstance(verdict, Const):
                    return self.block(then if verdict.value else other, at, limit)
                room = limit - _stores(other)
                yes = self.block(then, at.where(verdict), room)
                no = self.block(other, at.where(Logic("not", (verdict,))), limit - _stores(yes))
                if not yes and not no:
                    return ()
                return (If(verdict, yes, no),)
            case Let() | Alloc():
                return (replace(stmt, body=self.block(stmt.body, at, limit)),)
            case Tile():
                inner = at
                for axis in stmt.axes:
                    inner = inner.loop(axis.iter, axis.start, ix.add(axis.start, axis.extent))
                return (replace(stmt, body=self.block(stmt.body, inner, limit)),)
            case Choose(options):
                share = limit // max(1, len(options))
                return (
                    Choose(
                        tuple(
                            Option(o.label, o.cost, self.block(o.body, at, share)) for o in options
                        )
                    ),
                )
            case Store():
                return self.store(stmt, at)
            case Sync():
                return (stmt,)
            case _:
                assert_never(stmt)

    def store(self, stmt: Store, at: Facts) -> tuple[Stmt, ...]:
        index = tuple(fold_comparisons(part, at) for part in stmt.index)
        value = fold_comparisons(stmt.value, at)
        if self.facts.adds_nothing(stmt, value):
            return ()
        return (replace(stmt, index=index, value=value),)

    def loop(self, loop: For, at: Facts, limit: int) -> tuple[Stmt, ...]:
        lo, hi = fold_comparisons(loop.lo, at), fold_comparisons(loop.hi, at)
        loop = replace(loop, lo=lo, hi=hi)
        inner = at.loop(loop.iter, lo, hi)
        if inner.empty:
            return ()
        own = _stores(loop.body)
        if (unrolled := _unroll(loop)) and own * len(unrolled) <= limit:
            text = (
                "written out: it is multiplied by what is not a literal, which sets cannot express"
            )
            self.note(loop.iter, text)
            return self.block(unrolled, at, limit)
        questions = [a for a in comparisons(loop.body) if self.open(a, inner)]
        outside = next((a.atom for a in questions if self.is_asked_around(a, loop, inner)), None)
        if outside is not None:
            return self.asked_outside(loop, outside, at, limit)
        places = find_split_points(loop, questions, inner, self.space.sizes)
        if places and own * 2 > limit:
            self.too_many(loop, questions, 2 * own, limit)
            places = []
        if places and not self.left:
            self.stays(loop, questions, "loops of the program were cut at too many places before")
            places = []
        if places:
            return self.cut_at(loop, places[0], at, limit)
        if modulus := self.modulus(loop, questions, inner):
            pieces = self.split_by_remainder(loop, modulus, at)
            if own * len(pieces) <= limit:
                text = f"in steps of {modulus}, which a condition inside distinguishes"
                self.note(loop.iter, text, modulus)
                return self.block(pieces, at, limit)
            self.too_many(loop, questions, own * len(pieces), limit)
        body = self.block(loop.body, inner, limit)
        return (replace(loop, body=body),) if body else ()

    def too_many(
        self, loop: For, questions: Sequence[LoopComparison], copies: int, limit: int
    ) -> None:
        text = f"cutting it would take {copies} copies of its statements, {limit} are left"
        self.stays(loop, questions, text)

    def stays(self, loop: For, questions: Sequence[LoopComparison], because: str) -> None:
        """Remember a cut that is not made."""
        atoms = dict.fromkeys(a.atom for a in questions if loop.iter in variables(a.atom))
        self.notes[_Kept(loop.iter, tuple(atoms), because)] = None

    def cut_at(self, loop: For, place: Expr, at: Facts, limit: int) -> tuple[Stmt, ...]:
        """`loop` as the part below `place` and the part from there on, each cut on."""
        self.left -= 1
        own = _stores(loop.body)
        low = replace(loop, hi=at.extreme("min", place, loop.hi))
        high = replace(loop, lo=at.extreme("max", loop.lo, place))
        before = self.loop(self.pin_iterator(low, at), at, limit - own)
        after = self.loop(self.pin_iterator(high, at), at, limit - max(own, _stores(before)))
        match before, after:
            case (*first, For() as one), (For() as other, *last) if (
                one.iter == other.iter == loop.iter
                and one.body == other.body
                and (one.hi, other.lo) == (low.hi, high.lo)
                and (one.lo == low.lo or at.holds(Compare("<=", one.lo, one.hi)))
                and (other.hi == high.hi or at.holds(Compare("<=", other.lo, other.hi)))
            ):
                return (*first, replace(one, hi=other.hi), *last)
        self.note(loop.iter, f"cut at {format_expr(place)}, where a condition inside changes")
        return (*before, *after)

    def pin_iterator(self, loop: For, at: Facts) -> For:
        """`loop`; where it has one iteration at most, and its number is a literal, with that number
        in the bounds and conditions inside.
        """
        inside = at.loop(loop.iter, loop.lo, loop.hi)
        if ix.literal_value(loop.lo) is None or not inside.holds(
            Compare("==", Var(loop.iter), loop.lo)
        ):
            return loop
        return replace(loop, body=tuple(_fix_iterator(s, loop.iter, loop.lo) for s in loop.body))

    def modulus(self, loop: For, questions: Sequence[LoopComparison], inner: Facts) -> int:
        """The divisor of ``x % d`` in a comparison that is still open; 0 where there is none, or the
        remainders at the start of the loop are not known.
        """
        for one in questions:
            for node in walk(one.atom):
                match node:
                    case Binary("%" | "//", dividend, Const(value, _)):
                        divisor = int(value)
                        known = fold_comparisons(dividend, facts_inside(one, inner))
                        step = dict(ix.to_linear(known).terms).get(Var(loop.iter), 0)
                        short = ix.compare("<", ix.sub(loop.hi, loop.lo), divisor)
                        if step % divisor == 0 or divisor > UNROLLED or inner.holds(short):
                            continue
                        loops = ((loop.iter, loop.lo, loop.hi), *one.loops)
                        if _remainder_is_known(known, divisor, loops):
                            return divisor
                        self.keeps(loop.iter, one.atom, "where it starts, no remainder is known")
                    case _:
                        pass
        return 0

    def split_by_remainder(self, loop: For, modulus: int, at: Facts) -> tuple[Stmt, ...]:
        """`loop` in steps of `modulus`, one copy of its body for each remainder, in order."""
        counter = self.names.fresh(f"{loop.iter}_{modulus}")
        extent = at.extreme("max", ix.sub(loop.hi, loop.lo), ix.const(0))
        steps = ix.floordiv(extent, modulus)
        body: tuple[Stmt, ...] = ()
        rest: tuple[Stmt, ...] = ()
        for remainder in range(modulus):
            start = ix.add(loop.lo, remainder)
            here = ix.add(start, ix.mul(modulus, Var(counter)))
            body += substitute_coordinates(loop.body, {loop.iter: here})
            last = ix.add(start, ix.mul(modulus, steps))
            end = at.extreme("min", ix.add(last, 1), loop.hi)
            if remainder < modulus - 1:
                rest += (replace(loop, lo=last, hi=end),)
        return (For(counter, ix.const(0), steps, body), *rest)

    def asked_outside(self, loop: For, atom: Compare, at: Facts, limit: int) -> tuple[Stmt, ...]:
        """`loop` under a condition that does not depend on it, asked once."""
        own = _stores(loop.body)
        if 2 * own > limit:
            text = f"asking it outside would take {2 * own} copies of its statements"
            self.keeps(loop.iter, atom, f"{text}, {limit} are left")
            return (loop,)
        fails = negate(atom)
        yes = self.statement(loop, at.where(atom), limit - own)
        no = self.statement(loop, at.where(fails), limit - _stores(yes))
        if yes == no:
            return yes
        self.note(loop.iter, f"asks {format_expr(atom)} outside")
        if yes:
            return (If(atom, yes, no),)
        return (If(fails, no),) if no else ()

    def open(self, question: LoopComparison, inner: Facts) -> bool:
        """Whether sets can answer a comparison, and have not yet."""
        here, because = facts_inside(question, inner), ""
        if not is_index(question.atom):
            because = "it depends on what is in memory"
        elif not here.expresses(question.atom):
            because = "it is not quasi-affine"
        if not because:
            reverse = Compare(">=", question.atom.a, question.atom.b)
            if question.tie_is_free and here.holds(reverse):  # one side is the least, equal or not
                return False
            return here.decide(question.atom) is None and not here.empty
        if not here.empty:
            self.keeps(here.names[-1], question.atom, because)
        return False

    def is_asked_around(self, question: LoopComparison, loop: For, inner: Facts) -> bool:
        """Whether a comparison that holds or fails for `loop` as a whole is asked around it.

        One that depends on `loop`, or on a loop inside it, is not. One in a bound, which is asked once for all iterations of its loop,
        is where it is of sizes alone, and `loop` is not short. Every other one is.
        """
        names = variables(question.atom)
        if {loop.iter, *(name for name, _, _ in question.loops)} & names:
            return False
        return not question.in_bound or (names <= self.sizes and not is_short(loop, inner))

    def note(self, loop: str, text: str, steps: int = 0) -> None:
        self.notes[Note(loop, text, steps)] = None

    def keeps(self, loop: str, atom: Compare, because: str) -> None:
        self.notes[_Kept(loop, (atom,), because)] = None

    def body_with_notes(self, body: Sequence[Stmt]) -> Iterator[Note]:
        """What was decided, of the program that came of it."""
        atoms = {inside.atom for inside in comparisons(body)}
        for note in self.notes:
            if isinstance(note, Note):
                yield note
            elif remaining := [format_expr(atom) for atom in note.atoms if atom in atoms]:
                yield Note(note.loop, f"keeps {', '.join(remaining)}: {note.because}")


def _stores(body: Sequence[Stmt]) -> int:
    return sum(isinstance(stmt, Store) for stmt in statements(tuple(body)))


def _unroll(loop: For) -> list[For]:
    """The iterations of a short loop whose iterator is multiplied by what is no literal: then it is."""
    low, high = ix.literal_value(loop.lo), ix.literal_value(loop.hi)
    if low is None or high is None or not 1 <= high - low <= UNROLLED:
        return []
    multiplied = any(
        isinstance(node, Binary)
        and node.op == "*"
        and loop.iter in variables(node)
        and dtype_of(node) == "index"
        and not any(isinstance(side, Const) for side in (node.a, node.b))
        for stmt in statements(loop.body)
        for expr in expressions(stmt)
        for node in walk(expr)
    )
    if not multiplied:
        return []
    numbers = map(ix.const, range(low, high))
    return [
        replace(loop, lo=k, hi=ix.add(k, 1), body=substitute_coordinates(loop.body, {loop.iter: k}))
        for k in numbers
    ]


def _remainder_is_known(
    dividend: Expr, divisor: int, loops: Sequence[tuple[str, Expr, Expr]]
) -> bool:
    """Whether ``dividend % divisor`` is a literal where all of `loops` start."""
    for name, lo, _ in reversed(loops):
        dividend = ix.simplify(substitute(dividend, {name: lo}))
    return all(factor % divisor == 0 for _, factor in ix.to_linear(dividend).terms)


def _fix_iterator(stmt: Stmt, name: str, value: Expr) -> Stmt:
    """`stmt` with the one value of an iterator in bounds and conditions; stores stay as they are."""

    def at(expr: Expr) -> Expr:
        return ix.fold_indices(substitute(expr, {name: value}))

    def inside(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(_fix_iterator(inner, name, value) for inner in body)

    match stmt:
        case For():
            return replace(stmt, lo=at(stmt.lo), hi=at(stmt.hi), body=inside(stmt.body))
        case If(condition, then, other):
            return If(at(condition), inside(then), inside(other))
        case _:
            return stmt
