"""A plan of the CPU: the program as the host runs it, and what it is predicted to take.

How long a call is predicted to take on one thread: by it the number of threads is chosen.

It is what the cost model counts, operands at hand, short enough to be evaluated in a call: where ways compete, the least of their prices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from offcut.backends import target
from offcut.backends.cpu.machine.isa import Host
from offcut.backends.cpu.microkernels.available import families
from offcut.backends.cpu.threads.parallel import Parallel
from offcut.core import index as ix
from offcut.core.expr import Binary, Const, Expr, Load, real, substitute, variables, walk
from offcut.core.interpret.values import evaluate
from offcut.core.program import Alloc, Choose, For, If, Let, Option, Program, Stmt
from offcut.core.program import walk as statements
from offcut.core.traversal import substitute_coordinates
from offcut.costmodel import Hardware, Level, Machine
from offcut.costmodel.closed.count_loops import BytesOf
from offcut.costmodel.closed.counting import count_program
from offcut.costmodel.closed.counts import THOUSANDTHS
from offcut.costmodel.closed.summation import is_longer
from offcut.schedule import Applied, Schedule


@dataclass(frozen=True, kw_only=True)
class CpuPlan(target.TargetPlan):
    """A program as the host runs it.

    unnamed  the schedule before its units had loops by name: what is the target's choice stays so, whatever else is varied
    seconds  predicted, of a call on one thread: an expression over the sizes
    shares   the same program, and which of its loops threads share
    work     instances of a call; None where nothing counts them
    """

    schedule: Schedule
    unnamed: Schedule
    seconds: Expr
    shares: Parallel
    work: Expr | None = None


def seconds_of_choices(applied: Applied) -> Expr:
    """Predicted seconds of a scheduled computation, over its sizes."""
    ways = ((choice.cost for choice in choices) for choices in applied.choices)
    return reduce(_plus, (reduce(_least, costs) for costs in ways), real(0.0))


def seconds_of_program(program: Program, host: Host) -> Expr:
    """Predicted seconds of a loop program, over its sizes, operands at hand."""
    kernels = {family.microkernel.name: family.microkernel for family in families(host)}
    isa = host.isa
    registers = Level(isa.registers * isa.register_bytes, 1)
    hardware = Hardware(host.machine, kernels, isa.register_bytes, (registers,))
    cycles = _Seconds(program, hardware).block(program.body, {})
    return Binary("*", cycles, real(1.0 / host.machine.hertz))


def threads_at(seconds: Expr, most: int, sizes: Mapping[str, int], machine: Machine) -> int:
    """How many threads a call at `sizes` takes, of at most `most`."""
    return min(most, max(1, int(float(evaluate(seconds, sizes)) / machine.threads.grain_seconds)))


def threads_note(
    seconds: Expr,
    parallel: Parallel,
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
    if not parallel.loops:
        why = f": {'; '.join(parallel.open)}" if parallel.open else ""
        return (f"one thread: no loop is known to have iterations that may run side by side{why}",)
    count = threads_at(seconds, most, sizes, machine)
    if count == 1:
        grain = machine.threads.grain_seconds * 1e6
        return (f"one thread: less than {grain:.0f} µs of work for each of two",)
    trips = _trips(parallel, sizes)
    if trips is not None and trips < 2:
        return (f"one thread: of {', '.join(parallel.loops)} there is one iteration",)
    return (f"{count} threads share the iterations of {', '.join(parallel.loops)}",)


def _trips(parallel: Parallel, sizes: Mapping[str, int]) -> int | None:
    """The most iterations that a shared loop has at `sizes`; None where a bound is no expression in them."""
    shared = [
        stmt
        for stmt in statements(parallel.program.body)
        if isinstance(stmt, For) and stmt.iter in parallel.loops
    ]
    if any(not variables(bound) <= set(sizes) for loop in shared for bound in (loop.lo, loop.hi)):
        return None
    return max((int(evaluate(s.hi, sizes)) - int(evaluate(s.lo, sizes)) for s in shared), default=0)


@dataclass(frozen=True, slots=True)
class _Seconds:
    """Cycles of statements, operands at hand: as they are counted, but of loops around choices, which are taken at their middle."""

    program: Program
    hardware: Hardware

    def block(self, body: Sequence[Stmt], middle: Mapping[str, Expr]) -> Expr:
        return reduce(_plus, (self.statement(stmt, middle) for stmt in body), real(0.0))

    def statement(self, stmt: Stmt, middle: Mapping[str, Expr]) -> Expr:
        inside_it = list(statements((stmt,)))
        few = len(inside_it) <= _MOST or not isinstance(stmt, For | If | Let | Alloc)
        if few and not any(isinstance(one, Choose) for one in inside_it):
            cycles = self.statement_cycles(stmt, middle)
            if not isinstance(stmt, For | If | Let | Alloc) or not is_longer(cycles, _LONGEST):
                return cycles
        match stmt:
            case For(name, lo, hi, body):
                first, end = self.at(lo, middle), self.at(hi, middle)
                inside = {**middle, name: ix.floordiv(ix.add(first, end), 2)}
                return _times(_count(ix.sub(end, first)), self.block(body, inside))
            case Choose(options):
                return reduce(_least, (self.option(option, middle) for option in options))
            case If(_, then, other):
                return _most(self.block(then, middle), self.block(other, middle))
            case Let(name, lo, hi, _, body):
                return self.block(body, {**middle, name: ix.const((lo + hi) // 2)})
            case Alloc():
                return self.block(stmt.body, middle)
            case _:
                return self.statement_cycles(stmt, middle)

    def statement_cycles(self, stmt: Stmt, middle: Mapping[str, Expr]) -> Expr:
        """Cycles of a statement where the loops around are at their middle."""
        body = substitute_coordinates((stmt,), dict(middle))
        program = replace(self.program, body=body)
        counts = count_program(program, self.hardware, {}, bytes_of=BytesOf.NOTHING)
        total = ix.add(*(one.cycles for one in counts.counts))
        for name, value in reversed([*counts.values.items()]):
            total = substitute(total, {name: value})
        return _times(real(ix.simplify(total)), real(1.0 / THOUSANDTHS))

    def option(self, option: Option, middle: Mapping[str, Expr]) -> Expr:
        """What an option costs where the loops around are at their middle."""
        if any(isinstance(node, Load) for node in walk(option.cost)):
            return self.block(option.body, middle)
        seconds = substitute(option.cost, dict(middle))
        return _times(seconds, real(self.hardware.machine.hertz))

    def at(self, bound: Expr, middle: Mapping[str, Expr]) -> Expr:
        """A bound where the loops around are at their middle."""
        if any(isinstance(node, Load) for node in walk(bound)):
            return ix.const(self.hardware.machine.policy.trips)
        return ix.simplify(substitute(bound, dict(middle)))


_MOST = 8
"""Statements that are counted together, whose formula may be short."""

_LONGEST = 64
"""Parts of what a call evaluates of a statement: of a loop that would take more, the middle iteration stands for all, of a condition the longer side."""


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
