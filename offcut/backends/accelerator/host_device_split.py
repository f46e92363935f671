"""A lowered program in phases: what the host does, and nests on the chip, each with the options that it may run in.

A nest has several *options* where the program chooses among them. Those that cost the same by the program are told apart by the cycles
that a call counts of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from offcut.backends.accelerator.lowering.derived_sizes import DerivedSizes, derive_sizes
from offcut.backends.accelerator.lowering.host import check_copy, is_host
from offcut.backends.accelerator.lowering.nest import LoweredNest, lower_nest
from offcut.backends.accelerator.lowering.python_codegen import Values
from offcut.backends.accelerator.nest_run import fastest
from offcut.backends.accelerator.spec import AcceleratorSpec
from offcut.core.accesses import read_arrays, stored_arrays
from offcut.core.expr import Expr, real
from offcut.core.interpret.values import evaluate
from offcut.core.memo import lazy_property
from offcut.core.program import Choose, Program, Stmt, Store
from offcut.core.program import walk as statements


@dataclass(frozen=True)
class HostDeviceProgram:
    """Of a program on the chip.

    told  whether instructions are told whom to wait for; where they are only counted, they need not be
    """

    program: Program
    spec: AcceleratorSpec
    told: bool = True

    @lazy_property
    def derived(self) -> DerivedSizes:
        """Return the sizes that the host derives from those of a call."""
        return self._derived[1]

    @lazy_property
    def _derived(self) -> tuple[Program, DerivedSizes]:
        return derive_sizes(self.program)

    @lazy_property
    def each(self) -> tuple[Stmt | tuple[LoweredNest, ...], ...]:
        """What runs, one after the other: statements of the host, and nests, each by its options.

        Raises TargetError for a statement that neither an instruction nor the host runs.
        """
        parts: list[Stmt | tuple[LoweredNest, ...]] = []
        for host, stmts in self._in_turn:
            if host:
                check_copy(self._derived[0], stmts[0], self.spec)
                parts.append(stmts[0])
                continue
            bodies = (body for _, _, body in _options_of(stmts))
            parts.append(tuple(map(self._lowered, bodies)))
        return tuple(parts)

    @property
    def nests(self) -> Iterator[int]:
        """Return the phases that are nests."""
        return (at for at, phase in enumerate(self.each) if isinstance(phase, tuple))

    def options(self, at: int, sizes: Values | None = None) -> list[LoweredNest]:
        """Return the options of the nest of a phase.

        sizes  of a call: those options alone that cost least; None: all
        """
        nests = self.each[at]
        assert isinstance(nests, tuple)
        costs = [0.0 for _ in nests]
        if sizes is not None:
            known = self.derived.complete(sizes)
            costs = [evaluate(cost, known) for cost in self.costs(at)]
        least = min(costs)
        return [nest for nest, cost in zip(nests, costs, strict=True) if cost <= least]

    def labels(self, at: int) -> list[str]:
        """What the options of a nest are called."""
        return [label for label, _, _ in self._options(at)]

    def costs(self, at: int) -> list[Expr]:
        """What the program says that the options of a nest cost."""
        return [cost for _, cost, _ in self._options(at)]

    def taken(self, at: int, sizes: Values) -> LoweredNest:
        """Return the option of a nest that takes the fewest cycles at these sizes."""
        options = self.options(at, sizes)
        return fastest(options, sizes).nest if len(options) > 1 else options[0]

    def labels_taken(self, sizes: Values) -> dict[str, str]:
        """By nest that has several options, what the one is called that is taken at these sizes."""
        found: dict[str, str] = {}
        for at in self.nests:
            options, labels = self.options(at), self.labels(at)
            if len(options) > 1:
                nest = self.taken(at, sizes)
                found[nest.stage] = labels[options.index(nest)]
        return found

    @lazy_property
    def _in_turn(self) -> list[tuple[bool, tuple[Stmt, ...]]]:
        """Statements, and whether the host runs them: one of the host, a choice, or several that are one stream, none of which
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

    def _options(self, at: int) -> list[tuple[str, Expr, tuple[Stmt, ...]]]:
        _, stmts = self._in_turn[at]
        return _options_of(stmts)

    def _lowered(self, body: Sequence[Stmt]) -> LoweredNest:
        """Return a nest, read."""
        program, derived = self._derived
        return lower_nest(program, body, self.spec, self.told, derived)


def _options_of(stmts: Sequence[Stmt]) -> list[tuple[str, Expr, tuple[Stmt, ...]]]:
    """Return the options of a nest, with labels and costs; of a nest that has none, itself."""
    match stmts:
        case (Choose(options),):
            return [(option.label, option.cost, option.body) for option in options]
    return [("", real(0.0), tuple(stmts))]


def _reads(body: tuple[Stmt, ...]) -> set[str]:
    stores = (stmt for stmt in statements(body) if isinstance(stmt, Store))
    return set().union(*(read_arrays((store.value,)) for store in stores))
