"""A lowered program in phases: what the host does, and nests on the chip, each with the options that it may run in.

A nest has several *options* where the program chooses among them. Those that cost the same by the program are told apart by the cycles
that a call counts of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from offcut.backends.accelerator.lowering.nest import LoweredNest, lower_nest
from offcut.backends.accelerator.lowering.python_codegen import Values, check_copy, is_host
from offcut.backends.accelerator.nest_run import Ran, run_of
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core.analysis import read_arrays, stored_arrays
from offcut.core.expr import Expr, real
from offcut.core.interpret.values import evaluate
from offcut.core.memo import lazy_property
from offcut.core.program import Choose, Program, Stmt, Store
from offcut.core.program import walk as statements
from offcut.errors import TargetError
from offcut.polyhedral.derived_sizes import DerivedSizes, derive_sizes


@dataclass(frozen=True, slots=True)
class NestOption:
    """An option of a nest.

    label  "" of a nest without a choice
    cost   over the sizes, as the program says it
    """

    label: str
    cost: Expr
    nest: LoweredNest


@dataclass(frozen=True)
class NestPhase:
    """A nest, of whose options each call takes one.

    derived  the sizes that the host derives from those of a call
    """

    options: tuple[NestOption, ...]
    derived: DerivedSizes

    def run(self, sizes: Values) -> Ran:
        """Return how the option runs that takes the fewest cycles, of those that cost least.

        Raises TargetError where a window does not fit.
        """
        runs = (run_of(option.nest, sizes) for option in self.cheapest(sizes))
        return min(runs, key=lambda one: one.timed.cycles)

    def cheapest_nest(self, sizes: Values) -> LoweredNest:
        """Return the nest of that option."""
        cheapest = self.cheapest(sizes)
        return self.run(sizes).nest if len(cheapest) > 1 else cheapest[0].nest

    def cheapest(self, sizes: Values) -> list[NestOption]:
        """Return the options that cost least, as the program says it."""
        known = self.derived.complete(sizes)
        costs = [evaluate(option.cost, known) for option in self.options]
        return [one for one, cost in zip(self.options, costs, strict=True) if cost <= min(costs)]


@dataclass(frozen=True)
class HostDeviceProgram:
    """A program on the chip, in phases.

    has_tokens  whether instructions say whom they wait for; where they are only counted, they need not
    """

    program: Program
    spec: AcceleratorSpec
    has_tokens: bool = True

    @lazy_property
    def derived_sizes(self) -> DerivedSizes:
        """Return the sizes that the host derives from those of a call."""
        return self._derived[1]

    @lazy_property
    def _derived(self) -> tuple[Program, DerivedSizes]:
        return derive_sizes(self.program)

    @lazy_property
    def each(self) -> tuple[Stmt | NestPhase, ...]:
        """Return what runs, one after the other: statements of the host, and nests.

        Raises TargetError for a statement that neither an instruction nor the host runs.
        """
        return tuple(self._phases())

    @property
    def nests(self) -> Iterator[NestPhase]:
        """Yield the phases that are nests."""
        return (phase for phase in self.each if isinstance(phase, NestPhase))

    def option_labels(self, sizes: Values) -> dict[str, str]:
        """Return the label of the option that a call takes, by nest that has several."""
        labels: dict[str, str] = {}
        for phase in self.nests:
            if len(phase.options) > 1:
                nest = phase.cheapest_nest(sizes)
                (labels[nest.stage],) = (one.label for one in phase.options if one.nest is nest)
        return labels

    def _phases(self) -> Iterator[Stmt | NestPhase]:
        program, derived = self._derived
        for host, stmts in self._in_turn():
            if host:
                check_copy(program, stmts[0], self.spec)
                yield stmts[0]
                continue
            bodies: list[tuple[str, Expr, tuple[Stmt, ...]]] = [("", real(0.0), stmts)]
            match stmts:
                case (Choose(options),):
                    bodies = [(option.label, option.cost, option.body) for option in options]
            nest_options = (
                NestOption(label, cost, self._lower_option(body, label))
                for label, cost, body in bodies
            )
            yield NestPhase(tuple(nest_options), derived)

    def _in_turn(self) -> list[tuple[bool, tuple[Stmt, ...]]]:
        """Return statements, and whether the host runs them: one of the host, a choice, or several that are one stream, none of which
        reads in main memory what another one of them has stored there.
        """
        program, stretches = self._derived[0], list[tuple[bool, tuple[Stmt, ...]]]()
        main = {buffer.name for buffer in program.buffers if buffer.scope is None}
        for stmt in program.body:
            host = is_host(program, stmt)
            last_host, last = stretches[-1] if stretches else (True, ())
            choice = isinstance(stmt, Choose) or isinstance(next(iter(last), None), Choose)
            if host or last_host or choice or _reads((stmt,)) & stored_arrays(last) & main:
                stretches.append((host, (stmt,)))
            else:
                stretches[-1] = False, (*last, stmt)
        return stretches

    def _lower_option(self, body: Sequence[Stmt], option: str) -> LoweredNest:
        program, derived = self._derived
        try:
            return lower_nest(program, body, self.spec, self.has_tokens, derived)
        except TargetError as refused:
            refused.option = option
            raise


def _reads(body: tuple[Stmt, ...]) -> set[str]:
    stores = (stmt for stmt in statements(body) if isinstance(stmt, Store))
    return set().union(*(read_arrays((store.value,)) for store in stores))
