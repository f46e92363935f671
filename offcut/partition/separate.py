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
from offcut.core.dtypes import is_identity
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
    dtype_of,
    rebuild,
    substitute,
    variables,
    walk,
)
from offcut.core.interpreter import evaluate
from offcut.core.printer import format_expr
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
    Tile,
    substituted,
)
from offcut.core.program import walk as statements
from offcut.polyhedral import Facts, Space

COPIES = 64  # stores in the separated program, per store of the source, at most
BORDER = 16  # iterations: a part that is no longer than this may keep a condition for the next loop
UNROLLED = 8  # iterations of a loop that is written out, to make an index affine

_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


@dataclass(frozen=True, slots=True)
class Note:
    """One decision: what was done at a loop, or not done, and why."""

    loop: str
    text: str


@dataclass(frozen=True)
class Separated:
    """A program with fewer conditions, and what was decided."""

    program: Program
    notes: tuple[Note, ...]


def separate(program: Program, copies: int = COPIES) -> Separated:
    """`program` with its loops cut where conditions change; the same instances in the same order.

    copies   stores of the result per store of `program`, at most

    Theorem: the parts of a loop are ascending, disjoint and cover it (each starts where the one
    before ends, clamped to the bounds), and a condition is replaced by its value only where isl
    shows that value for all sizes.
    """
    worker = _Separation(Space(program.sizes, program.assumptions), program)
    limit = copies * max(1, _stores(program.body))
    body = worker.block(program.body, Facts(worker.space), limit)
    if body == program.body:
        return Separated(program, tuple(worker.notes))
    return Separated(replace(program, body=body), tuple(worker.notes))


@dataclass(frozen=True, slots=True)
class _Inside:
    """A comparison inside a loop, and the loops between: (name, lo, hi), outermost first."""

    atom: Compare
    loops: tuple[tuple[str, Expr, Expr], ...]


class _Separation:
    def __init__(self, space: Space, program: Program) -> None:
        self.space = space
        self.notes: dict[Note, None] = {}
        self.starts = _starts(program.body)

    def block(self, body: Sequence[Stmt], at: Facts, limit: int) -> tuple[Stmt, ...]:
        """`body`, in which at most `limit` stores may come out."""
        left = limit - _stores(body)
        found: list[Stmt] = []
        for stmt in body:
            own = _stores((stmt,))
            made = self.statement(stmt, at, own + max(left, 0))
            left -= _stores(made) - own
            found += made
        return tuple(found)

    def statement(self, stmt: Stmt, at: Facts, limit: int) -> tuple[Stmt, ...]:
        match stmt:
            case For():
                return self.loop(stmt, at, limit)
            case If(condition, then, other):
                folded = self.decided(condition, at)
                if isinstance(folded, Const):
                    return self.block(then if folded.value else other, at, limit)
                room = limit - _stores(other)
                yes = self.block(then, at.where(folded), room)
                no = self.block(other, at.where(Logic("not", (folded,))), limit - _stores(yes))
                if not yes and not no:
                    return ()
                return (If(folded, yes, no),)
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
                        tuple(Option(o.label, o.cost, self.block(o.body, at, share)) for o in options)
                    ),
                )
            case Store():
                return self.store(stmt, at)
            case _:
                assert_never(stmt)

    def store(self, stmt: Store, at: Facts) -> tuple[Stmt, ...]:
        index = tuple(self.decided(part, at) for part in stmt.index)
        value = self.decided(stmt.value, at)
        if stmt.reduce is not None and isinstance(value, Const):
            nothing = is_identity(stmt.reduce, value.value, value.dtype)
            from_zero = stmt.reduce == "sum" and self.starts.get(stmt.buffer) == {"0.0"}
            if nothing or (from_zero and value.value == 0.0):
                return ()
        return (replace(stmt, index=index, value=value),)

    # -- loops -------------------------------------------------------------------------------

    def loop(self, loop: For, at: Facts, limit: int) -> tuple[Stmt, ...]:
        lo, hi = self.decided(loop.lo, at), self.decided(loop.hi, at)
        loop = replace(loop, lo=lo, hi=hi)
        inner = at.loop(loop.iter, lo, hi)
        if inner.empty:
            return ()
        own = _stores(loop.body)
        if (unrolled := self.unrolled(loop)) and own * len(unrolled) <= limit:
            return self.block(tuple(s for part in unrolled for s in part), at, limit)
        asked = [a for a in _atoms(loop.body) if self.open(a, inner)]
        outside = next((a.atom for a in asked if not self.moves(a, loop)), None)
        if outside is not None:
            return self.asked_outside(loop, outside, at, limit)
        breaks = self.breaks(loop, asked, inner)
        if breaks and own * (len(breaks) + 1) > limit:
            shown = ", ".join(dict.fromkeys(format_expr(a.atom) for a in asked))
            copies = f"{own * (len(breaks) + 1)} copies of its statements, {limit} are left"
            self.note(loop.iter, f"keeps {shown}: cutting it would make {copies}")
            breaks = []
        if not breaks:
            body = self.block(loop.body, inner, limit)
            return (replace(loop, body=body),) if body else ()
        found: list[Stmt] = []
        room = limit - own * (len(breaks) + 1)
        for low, high in self.parts(lo, hi, breaks, at):
            part = at.loop(loop.iter, low, high)
            if part.empty:
                room += own
                continue
            body = self.block(loop.body, part, own + room)
            room -= _stores(body) - own
            if body:
                found.append(replace(loop, lo=low, hi=high, body=body))
        at_breaks = ", ".join(map(format_expr, breaks))
        self.note(loop.iter, f"cut at {at_breaks}, where a condition inside changes")
        return tuple(found)

    def asked_outside(
        self, loop: For, atom: Compare, at: Facts, limit: int
    ) -> tuple[Stmt, ...]:
        """`loop` under a condition that does not depend on it, asked once."""
        own = _stores(loop.body)
        if 2 * own > limit:
            self.note(loop.iter, f"keeps {format_expr(atom)}: {limit} copies are left")
            return (loop,)
        negated = Compare(_NEGATED[atom.op], atom.a, atom.b)
        yes = self.statement(loop, at.where(atom), limit - own)
        no = self.statement(loop, at.where(negated), limit - _stores(yes))
        self.note(loop.iter, f"asks {format_expr(atom)} outside")
        if yes:
            return (If(atom, yes, no),)
        return (If(negated, no),) if no else ()

    def unrolled(self, loop: For) -> list[tuple[Stmt, ...]]:
        """The iterations of a short loop whose iterator is multiplied by a size: then it is affine."""
        low, high = ix.literal(loop.lo), ix.literal(loop.hi)
        if low is None or high is None or not 1 <= high - low <= UNROLLED:
            return []
        multiplied = any(
            isinstance(node, Binary)
            and node.op == "*"
            and loop.iter in variables(node)
            and dtype_of(node) == "index"
            and not any(isinstance(side, Const) for side in (node.a, node.b))
            for stmt in statements(loop.body)
            for expr in _expressions(stmt)
            for node in walk(expr)
        )
        if not multiplied:
            return []
        self.note(loop.iter, "written out: it is multiplied by a size, which sets cannot express")
        return [
            substituted(loop.body, {loop.iter: ix.const(value)}) for value in range(low, high)
        ]

    def open(self, asked: _Inside, inner: Facts) -> bool:
        """Whether sets can answer a comparison, and have not yet."""
        if not _is_index(asked.atom):
            return False
        here = inner
        for name, lo, hi in asked.loops:
            here = here.loop(name, lo, hi)
        if here.empty:
            return False
        if not here.expresses(asked.atom):
            self.note(asked.loops[-1][0] if asked.loops else inner.names[-1],
                      f"keeps {format_expr(asked.atom)}: it is not quasi-affine")
            return False
        return here.decide(asked.atom) is None

    def moves(self, asked: _Inside, loop: For) -> bool:
        """Whether a comparison depends on `loop` or on one inside it."""
        inside = {loop.iter, *(name for name, _, _ in asked.loops)}
        return bool(inside & variables(asked.atom))

    def breaks(self, loop: For, asked: Sequence[_Inside], inner: Facts) -> list[Expr]:
        """Where the answers change along `loop`, in ascending order for large sizes."""
        found: dict[Expr, None] = {}
        for one in asked:
            if loop.iter not in variables(one.atom):
                continue
            for form in _as_differences(one.atom, loop.iter):
                held, never = (
                    _first(form, one.loops, loop.iter, least) for least in (True, False)
                )
                if held is None or never is None:
                    continue
                between = (held, never) if self.smaller(held, never, inner) else (never, held)
                if held == never or self.is_short(*between, loop, inner):
                    found |= dict.fromkeys(between)
        inside = [b for b in found if self.cuts(b, loop, inner)]
        return sorted(inside, key=lambda at: evaluate(at, self.sample(at)))

    def smaller(self, a: Expr, b: Expr, at: Facts) -> bool:
        return evaluate(a, self.sample(a, b)) <= evaluate(b, self.sample(a, b))

    def is_short(self, low: Expr, high: Expr, loop: For, inner: Facts) -> bool:
        """Whether ``low:high``, where the answer varies, is bounded while the rest of the loop is not."""
        longer = inner.without(loop.iter).where(Compare(">", ix.sub(high, low), ix.const(BORDER)))
        if not longer.empty:
            return False
        before = Compare("<", Var(loop.iter), low)
        after = Compare(">=", Var(loop.iter), high)
        return not (inner.where(before).empty and inner.where(after).empty)

    def cuts(self, at: Expr, loop: For, inner: Facts) -> bool:
        """Whether iterations can lie on both sides of a break."""
        before, after = (Compare(op, Var(loop.iter), at) for op in ("<", ">="))
        return not inner.where(before).empty and not inner.where(after).empty

    def sample(self, *exprs: Expr) -> dict[str, int]:
        """Large values for all names in `exprs`: sizes far apart from small constants."""
        sizes = {size.name: min(size.max, 10_000) for size in self.space.sizes}
        names = set().union(*map(variables, exprs))
        return {name: sizes.get(name, 5_000) for name in names}

    def parts(
        self, lo: Expr, hi: Expr, breaks: Sequence[Expr], at: Facts
    ) -> Iterator[tuple[Expr, Expr]]:
        """Bounds of the parts between breaks: disjoint, ascending, together ``lo:hi``."""
        start = lo
        for place in breaks:
            yield start, at.extreme("min", place, hi)
            start = at.extreme("max", start, place)
        yield start, hi

    # -- conditions --------------------------------------------------------------------------

    def decided(self, expr: Expr, at: Facts) -> Expr:
        """`expr` with its comparisons of indices replaced by their values where `at` decides them."""
        match expr:
            case Compare():
                if _is_index(expr):
                    answer = at.decide(expr)
                    if answer is not None:
                        return Const(int(answer), "bool")
                return self.inside(expr, at)
            case Logic("not", (arg,)):
                inner = self.decided(arg, at)
                if isinstance(inner, Const):
                    return Const(int(not inner.value), "bool")
                return Logic("not", (inner,))
            case Logic(op, args):
                return self.joined(op, args, at)
            case Select(condition, then, other):
                asked = self.decided(condition, at)
                if isinstance(asked, Const):
                    return self.decided(then if asked.value else other, at)
                yes = self.decided(then, at.where(asked))
                no = self.decided(other, at.where(Logic("not", (asked,))))
                return Select(asked, yes, no)
            case Binary("min" | "max" as op, a, b) if dtype_of(a) == "index":
                return at.extreme(op, self.decided(a, at), self.decided(b, at))
            case _:
                return self.inside(expr, at)

    def inside(self, expr: Expr, at: Facts) -> Expr:
        made = rebuild(expr, tuple(self.decided(child, at) for child in children(expr)))
        return made if made is expr else ix.folded(made)

    def joined(self, op: str, args: Sequence[Expr], at: Facts) -> Expr:
        """A conjunction or disjunction without what is decided."""
        stops = op == "or"
        left: list[Expr] = []
        for arg in args:
            one = self.decided(arg, at)
            if isinstance(one, Const):
                if bool(one.value) == stops:
                    return Const(int(stops), "bool")
                continue
            left.append(one)
            at = at.where(Logic("not", (one,)) if stops else one)
        if not left:
            return Const(int(not stops), "bool")
        return left[0] if len(left) == 1 else Logic(op, tuple(left))

    def note(self, loop: str, text: str) -> None:
        self.notes[Note(loop, text)] = None


def _stores(body: Sequence[Stmt]) -> int:
    return sum(isinstance(stmt, Store) for stmt in statements(tuple(body)))


def _starts(body: tuple[Stmt, ...]) -> dict[str, set[str]]:
    """By buffer, the texts of the values that are assigned to it."""
    found: dict[str, set[str]] = {}
    for stmt in statements(body):
        if isinstance(stmt, Store) and stmt.reduce is None:
            found.setdefault(stmt.buffer, set()).add(format_expr(stmt.value))
    return found


def _is_index(atom: Compare) -> bool:
    no_loads = not any(isinstance(node, Load) for node in walk(atom))
    return no_loads and dtype_of(atom.a) == "index"


def _expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions of one statement, not of those inside it."""
    match stmt:
        case For(_, lo, hi):
            return lo, hi
        case If(condition):
            return (condition,)
        case Let(_, _, _, value):
            return (value,)
        case Tile(axes, _, where):
            bounds = tuple(part for axis in axes for part in (axis.start, axis.extent))
            return bounds if where is None else (*bounds, where)
        case Alloc(_, axes):
            return tuple(part for axis in axes for part in axis)
        case Store(_, index, value):
            return (*index, value)
        case Choose(options):
            return tuple(option.cost for option in options)
        case _:
            assert_never(stmt)


def _atoms(
    body: Sequence[Stmt], loops: tuple[tuple[str, Expr, Expr], ...] = ()
) -> Iterator[_Inside]:
    """Every comparison in `body`, with ``min(a, b)`` as one, and the loops around it."""
    for stmt in body:
        for expr in _expressions(stmt):
            for node in walk(expr):
                match node:
                    case Compare():
                        yield _Inside(node, loops)
                    case Binary("min" | "max", a, b) if dtype_of(a) == "index":
                        yield _Inside(Compare("<=", a, b), loops)
                    case _:
                        pass
        match stmt:
            case For(name, lo, hi, inner):
                yield from _atoms(inner, (*loops, (name, lo, hi)))
            case Tile(axes, inner):
                bounds = ((a.iter, a.start, ix.add(a.start, a.extent)) for a in axes)
                yield from _atoms(inner, (*loops, *bounds))
            case If(_, then, other):
                yield from _atoms((*then, *other), loops)
            case Let() | Alloc():
                yield from _atoms(stmt.body, loops)
            case Choose(options):
                for option in options:
                    yield from _atoms(option.body, loops)
            case Store():
                pass


def _as_differences(atom: Compare, x: str) -> Iterator[Expr]:
    """Expressions e, linear in `x`, such that the answer changes where one of ``e >= 0`` does."""
    a, b = atom.a, atom.b
    upward = ix.sub(a, b)
    forms = {
        ">=": (upward,),
        ">": (ix.sub(upward, 1),),
        "<=": (upward, ix.sub(upward, 1))[1:],
        "<": (upward,),
        "==": (upward, ix.sub(upward, 1)),
        "!=": (upward, ix.sub(upward, 1)),
    }[atom.op]
    for form in forms:
        linear = _without_floor(form, x)
        if linear is not None:
            yield linear


def _without_floor(form: Expr, x: str) -> Expr | None:
    """e' with ``e' >= 0`` exactly where ``form >= 0``, linear in `x`: ``g // d >= t`` is ``g >= d*t``."""
    terms = [(atom, factor) for atom, factor in ix.linear(form).terms if x in variables(atom)]
    if all(atom == Var(x) for atom, _ in terms):
        return form
    match terms:
        case [(Binary("//", inner, Const(value, _)) as floor, (1 | -1) as factor)]:
            divisor = int(value)
            rest = ix.sub(form, ix.mul(factor, floor))
            if factor == 1:
                made = ix.add(inner, ix.mul(divisor, rest))
            else:
                made = ix.sub(ix.add(ix.mul(divisor, rest), divisor - 1), inner)
            return _without_floor(made, x)
        case _:
            return None


def _first(
    form: Expr, loops: Sequence[tuple[str, Expr, Expr]], x: str, least: bool
) -> Expr | None:
    """Where ``form >= 0`` changes along `x`, with the inner loops at what makes it least or greatest."""
    for name, lo, hi in reversed(loops):
        factor = dict(ix.linear(form).terms).get(Var(name), 0)
        if factor == 0:
            if name in variables(form):
                return None
            continue
        at = lo if (factor > 0) == least else ix.sub(hi, 1)
        form = ix.simplify(substitute(form, {name: at}))
    terms = dict(ix.linear(form).terms)
    factor = terms.get(Var(x), 0)
    rest = ix.sub(form, ix.mul(factor, Var(x)))
    if factor == 0 or x in variables(rest):
        return None
    if factor > 0:
        return ix.ceildiv(ix.sub(0, rest), factor)
    return ix.add(ix.floordiv(rest, -factor), 1)
