"""How long a call is predicted to take on one thread: by it the number of threads is chosen.

What the cost model prices is taken from there. Of the rest each instance of a statement takes what it computes with operands at
hand, all lanes of a vector in use: enough to see which calls are too short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from offcut.backends.cpu.machine.isa import Host, Isa
from offcut.backends.cpu.microkernels.kernels import families
from offcut.backends.cpu.threads.parallel import Parallel
from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Load, real, substitute, variables, walk
from offcut.core.interpret.values import evaluate
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
from offcut.costmodel import Inside, Machine, StatementPrices
from offcut.describe.microkernel import Microkernel
from offcut.schedule import Applied


def seconds_of_choices(made: Applied) -> Expr:
    """Predicted seconds of a scheduled computation, over its sizes."""
    ways = ((choice.cost for choice in choices) for choices in made.choices)
    return reduce(_plus, (reduce(_least, costs) for costs in ways), real(0.0))


def seconds_of_program(program: Program, host: Host) -> Expr:
    """Predicted seconds of a loop program, over its sizes: instances, the loops taken at their middle."""
    kernels = {family.microkernel.name: family.microkernel for family in families(host)}
    prices = _Seconds(host.isa, kernels)
    cycles = prices.block(program.body, {}, _Around(None, None, None))
    return Binary("*", cycles, real(1.0 / host.machine.hertz))


def threads_at(seconds: Expr, most: int, sizes: Mapping[str, int], machine: Machine) -> int:
    """How many threads a call at `sizes` takes, of at most `most`."""
    return min(most, max(1, int(float(evaluate(seconds, sizes)) / machine.threads.grain_seconds)))


def threads_note(
    seconds: Expr,
    made: Parallel,
    most: int,
    sizes: Mapping[str, int],
    machine: Machine,
    foreign: Sequence[str] = (),
) -> tuple[str, ...]:
    """How many threads a call at `sizes` takes, and along which loops; nothing where it has one.

    foreign   external functions that it calls
    """
    if most == 1:
        return ()
    if foreign:
        runs = "runs" if len(foreign) == 1 else "run"
        return (f"one thread: {', '.join(foreign)} {runs} on the caller's thread",)
    if not made.loops:
        why = f": {'; '.join(made.open)}" if made.open else ""
        return (f"one thread: no loop is known to have iterations that may run side by side{why}",)
    count = threads_at(seconds, most, sizes, machine)
    if count == 1:
        grain = machine.threads.grain_seconds * 1e6
        return (f"one thread: less than {grain:.0f} µs of work for each of two",)
    trips = _trips(made, sizes)
    if trips is not None and trips < 2:
        return (f"one thread: of {', '.join(made.loops)} there is one iteration",)
    return (f"{count} threads share the iterations of {', '.join(made.loops)}",)


def _trips(made: Parallel, sizes: Mapping[str, int]) -> int | None:
    """The most iterations that a shared loop has at `sizes`; None where a bound is no expression in them."""
    shared = [
        stmt
        for stmt in statements(made.program.body)
        if isinstance(stmt, For) and stmt.iter in made.loops
    ]
    if any(not variables(bound) <= set(sizes) for loop in shared for bound in (loop.lo, loop.hi)):
        return None
    return max((int(evaluate(s.hi, sizes)) - int(evaluate(s.lo, sizes)) for s in shared), default=0)


@dataclass(frozen=True, slots=True)
class _Around:
    """What a statement runs in.

    loop    the innermost loop around it; None: there is none
    lane    the iterator that runs along lanes; None: instances run one by one
    cycles  of an instance, where a microkernel computes it; None: none does
    """

    loop: For | None
    lane: str | None
    cycles: float | None


@dataclass(frozen=True, slots=True)
class _Seconds:
    """Cycles of statements on cores, the loops around at their middle."""

    isa: Isa
    kernels: Mapping[str, Microkernel]

    def block(self, body: Sequence[Stmt], middle: Mapping[str, Expr], around: _Around) -> Expr:
        total = real(0.0)
        for stmt in body:
            total = _plus(total, self.statement(stmt, middle, around))
        return total

    def statement(self, stmt: Stmt, middle: Mapping[str, Expr], around: _Around) -> Expr:
        match stmt:
            case Store():
                return real(self.instance(stmt, around))
            case For(name, lo, hi, body):
                first, end = self.at(lo, middle), self.at(hi, middle)
                inside = {**middle, name: ix.floordiv(ix.add(first, end), 2)}
                within = replace(around, loop=stmt)
                return _times(_count(ix.sub(end, first)), self.block(body, inside, within))
            case Tile(axes, body):
                inside, trips = dict(middle), real(1.0)
                for axis in axes:
                    start, extent = self.at(axis.start, middle), self.at(axis.extent, middle)
                    inside[axis.iter] = ix.add(start, ix.floordiv(extent, 2))
                    trips = _times(trips, _count(extent))
                return _times(trips, self.block(body, inside, self.within(stmt)))
            case If(_, then, other):
                return _most(self.block(then, middle, around), self.block(other, middle, around))
            case Let(name, lo, hi, _, body):
                return self.block(body, {**middle, name: ix.const((lo + hi) // 2)}, around)
            case Alloc():
                return self.block(stmt.body, middle, around)
            case Sync():
                return real(0.0)
            case Choose(options):
                return reduce(_least, (self.option(option, middle, around) for option in options))

    def within(self, tile: Tile) -> _Around:
        """What the statements of a tile run in."""
        kernel = self.kernels.get(tile.microkernel or "")
        lane = tile.axes[-1].iter if tile.axes else None
        return _Around(None, lane, None if kernel is None else kernel.cycles)

    def instance(self, store: Store, around: _Around) -> float:
        """Cycles of one instance, where it fills vectors."""
        if around.cycles is not None:
            return around.cycles
        width = 1 if around.lane is None else self.isa.lanes("float32")
        inner = "" if around.loop is None else around.loop.iter
        inside = Inside(around.lane, inner, frozenset((store.buffer,)))
        return StatementPrices(self.isa.machine, width).each(store, inside, around.loop) / width

    def option(self, option: Option, middle: Mapping[str, Expr], around: _Around) -> Expr:
        """What an option costs where the loops around are at their middle."""
        if any(isinstance(node, Load) for node in walk(option.cost)):
            return self.block(option.body, middle, around)
        seconds = substitute(option.cost, dict(middle))
        return _times(seconds, real(self.isa.machine.hertz))

    def at(self, bound: Expr, middle: Mapping[str, Expr]) -> Expr:
        """A bound where the loops around are at their middle."""
        if any(isinstance(node, Load) for node in walk(bound)):
            return ix.const(self.isa.machine.policy.trips)
        return ix.simplify(substitute(bound, dict(middle)))


def _count(extent: Expr) -> Expr:
    return real(ix.maximum(extent, 0))


def _plus(a: Expr, b: Expr) -> Expr:
    return b if a == real(0.0) else a if b == real(0.0) else Binary("+", a, b)


def _times(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return real(float(a.value) * float(b.value))
    return b if a == real(1.0) else a if b == real(1.0) else Binary("*", a, b)


def _least(a: Expr, b: Expr) -> Expr:
    return Binary("min", a, b)


def _most(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return a if float(a.value) >= float(b.value) else b
    return a if b == real(0.0) else Binary("max", a, b)
