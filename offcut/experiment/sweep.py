"""One contraction, many sizes, several strategies and peers: how fast is each where?

`sizes_of` reads the sizes that a sweep visits, `sweep` measures one point after the other and
`Sweep` is the table: as rows for the screen, as CSV, and as lines for a picture.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import offcut as oc
from offcut.errors import DescribeError, OffcutError
from offcut.experiment.contraction import Array, Computation, Contraction, Problem, make_problem
from offcut.experiment.described import Task
from offcut.experiment.peers import Contender, Way
from offcut.experiment.timing import Clock, Timing, fastest, measure
from offcut.partition import Strategy

STRATEGIES = ("auto", *(strategy.value for strategy in Strategy))
"""The strategies that a sweep can name."""

OVER_BUDGET = "> budget"
"""The note of a cell that was left out because one call would take longer than its budget."""


@dataclass(frozen=True, slots=True)
class SweptSizes:
    """The extents that some letters take together.

    letters   all of them have the same extent at each point
    values    the extents, ascending, in elements
    allowed   how many the text describes, of which `values` may be a sample
    """

    letters: str
    values: tuple[int, ...]
    allowed: int

    @property
    def sampled(self) -> bool:
        """Whether `values` leaves some out."""
        return len(self.values) < self.allowed

    def __str__(self) -> str:
        taken = f"{len(self.values)} of {self.allowed}" if self.sampled else f"all {self.allowed}"
        return f"{' = '.join(self.letters)}: {taken} sizes: {', '.join(map(str, self.values))}"


def sizes_of(text: str, points: int | None) -> SweptSizes:
    """The sizes that `text` describes, or a sample of them if it is a range of more than `points`.

    text     ``m=1:512`` every size, both ends included; ``m=1:512:8`` every eighth;
             ``m=1,7,100`` exactly these; ``ik=1:512`` sweeps two letters together
    points   most sizes taken of a range (None: no limit); a list is taken whole

    >>> sizes_of("m=1:512", 8).values
    (1, 3, 7, 17, 40, 95, 221, 512)

    Raises DescribeError when the text is none of these, or describes a size below 1.
    """

    def refused(because: str) -> DescribeError:
        return DescribeError(
            "sweep",
            "cannot read the sizes",
            at=f"--sizes {text}",
            because=because,
            help=("m=1:512 or m=1:512:8 for a range, both ends included", "m=1,7,100 for a list"),
        )

    letters, equals, body = text.replace(" ", "").partition("=")
    if not equals or not re.fullmatch("[A-Za-z]+", letters):
        raise refused("it does not begin with an axis and '=', such as m=")
    if not re.fullmatch(r"\d+(,\d+)*|\d+:\d+(:\d+)?", body):
        raise refused(f"{body!r} is neither a range nor a list of whole numbers")
    numbers = [int(number) for number in re.split("[,:]", body)]
    if max(numbers) > 2**31 - 1:
        raise refused("a size is at most 2**31 - 1")
    if ":" not in body:
        values: Sequence[int] = sorted(set(numbers))
    else:
        first, last, step = (*numbers, 1)[:3]
        if first > last:
            raise refused(f"the range ends at {last}, before its start {first}")
        if step < 1:
            raise refused("the range does not advance: its step is 0")
        values = range(first, last + 1, step)
    if values[0] < 1:
        raise refused("size 0 has no work to time")
    if isinstance(values, range) and points is not None and len(values) > points:
        return SweptSizes(letters, sample(values, points), len(values))
    return SweptSizes(letters, tuple(values), len(values))


def sample(values: range, points: int) -> tuple[int, ...]:
    """About geometrically spaced members of `values`, both ends among them, many of them odd.

    A geometric progression hits powers of two, where everything is fast; every second inner point
    is moved to an odd neighbour where there is one.

    values   ascending, at least `points` members
    points   how many are returned; 2 or more, else 2
    """
    taken = [values[0]]
    inner = max(points, 2) - 2
    for position in range(inner):
        remaining = inner - position + 1
        target = taken[-1] * (values[-1] / taken[-1]) ** (1 / remaining)
        least = values.index(taken[-1]) + 1
        most = len(values) - remaining
        index = min(max(round((target - values.start) / values.step), least), most)
        if position % 2 == 0 and values[index] % 2 == 0 and index < most:
            index += values[index + 1] % 2
        taken.append(values[index])
    return (*taken, values[-1])


def read_axes(texts: Sequence[str], points: int | None) -> tuple[SweptSizes, ...]:
    """The sizes of every text; `points` is the most combinations taken if all are ranges.

    Raises DescribeError as `sizes_of`, or when an axis is swept twice.
    """
    if points is not None and len(texts) > 1:
        points = max(2, round(points ** (1 / len(texts))))
    swept = tuple(sizes_of(text, points) for text in texts)
    seen: dict[str, str] = {}
    for axis, text in zip(swept, texts, strict=True):
        for letter in axis.letters:
            if letter in seen:
                raise DescribeError(
                    "sweep",
                    f"the axis {letter!r} is swept twice",
                    at=f"--sizes {text}",
                    because=f"--sizes {seen[letter]} has it too",
                )
            seen[letter] = text
    return swept


def points_of(swept: Sequence[SweptSizes]) -> tuple[dict[str, int], ...]:
    """Every combination of the swept sizes, as letter -> extent."""
    combinations = itertools.product(*(axis.values for axis in swept))
    return tuple(
        {letter: value for axis, value in zip(swept, point, strict=True) for letter in axis.letters}
        for point in combinations
    )


@dataclass(frozen=True, slots=True)
class Compiled:
    """One strategy of offcut's: a kernel compiled once, called at every size."""

    name: str
    kernel: oc.Kernel

    def ways(self, problem: Problem) -> tuple[Way, ...]:
        """The one way there is: call the kernel on the operands that are not constants."""
        operands = [
            problem.arrays[name]
            for name in problem.contraction.names
            if name not in problem.constant
        ]
        out = problem.result()
        run = partial(self.kernel, *operands, out=out)
        return (Way(f"offcut.{self.name}", run, lambda _: out),)


@dataclass(frozen=True, slots=True)
class Strategies:
    """The strategies that were asked for: those that compiled, and why the others did not."""

    compiled: tuple[Contender, ...]
    refused: Mapping[str, OffcutError]


def compile_strategies(
    names: Iterable[str], computation: Computation, constants: Mapping[str, Array]
) -> Strategies:
    """Compile the computation once per strategy, for one thread.

    Raises DescribeError when a name is not known; the refusal of a known one is returned.
    """
    compiled: list[Contender] = []
    refused: dict[str, OffcutError] = {}
    for name in dict.fromkeys(names):
        if name not in STRATEGIES:
            raise DescribeError(
                "sweep",
                f"there is no strategy {name!r}",
                at=f"--strategies {name}",
                because=f"the strategies are {', '.join(STRATEGIES)}",
            )
        try:
            kernel = oc.compile(
                computation.result,
                inputs=list(computation.inputs),
                constants=dict(constants),
                target="cpu",
                strategy=name,
                threads=1,
            )
        except OffcutError as error:
            refused[name] = error
        else:
            compiled.append(Compiled(name, kernel))
    return Strategies(tuple(compiled), refused)


@dataclass(frozen=True, slots=True)
class Cell:
    """One contender at one point.

    sizes    letter -> extent
    flop     additions and multiplications of one call
    way      which of the contender's ways was measured
    timing   None when it was not
    note     why it was not measured
    wrong    what is wrong with its values; empty when they are right
    """

    sizes: Mapping[str, int]
    contender: str
    flop: int
    way: str = ""
    timing: Timing | None = None
    note: str = ""
    wrong: str = ""

    @property
    def gflops(self) -> float | None:
        """Median GFLOP/s; None when it was not measured."""
        return None if self.timing is None else self.flop / self.timing.seconds / 1e9


def sweep(
    contraction: Contraction,
    contenders: Sequence[Contender],
    points: Sequence[Mapping[str, int]],
    constants: Mapping[str, Array],
    *,
    budget: float = 0.3,
    clock: Clock = time.process_time,
) -> Iterator[tuple[Cell, ...]]:
    """Measure every contender at every point; yields the cells of one point at a time.

    points      letter -> extent for every letter, small ones first
    constants   operand name -> values
    budget      seconds per cell

    Before it is timed, a cell's result is compared with the float64 reference; a wrong one is not
    timed. A cell is left out when, at the throughput that its contender had at the point before,
    one call would take longer than the budget.
    """
    throughput: dict[str, float] = {}
    for number, sizes in enumerate(points):
        problem = make_problem(contraction, sizes, constants, seed=number)
        cells = measure_point(problem, contenders, throughput, budget=budget, clock=clock)
        for cell in cells:
            if cell.timing is not None:
                throughput[cell.contender] = cell.flop / cell.timing.seconds
        yield cells


def measure_point(
    problem: Task,
    contenders: Sequence[Contender],
    throughput: Mapping[str, float],
    *,
    budget: float,
    clock: Clock = time.process_time,
) -> tuple[Cell, ...]:
    """The contenders at one point, in turns; one cell each, in their order.

    throughput   flop/s that a contender is expected to reach; without an entry it is tried
    """
    reference = problem.reference()
    cells: dict[str, Cell] = {}
    chosen: dict[str, Way] = {}
    for contender in contenders:
        name = contender.name
        cell = Cell(problem.sizes, name, problem.flop)
        expected = throughput.get(name, math.inf)
        if problem.flop / expected > budget:
            cells[name] = replace(cell, note=OVER_BUDGET)
            continue
        ways = {way.name: way for way in contender.ways(problem)}
        for way in ways.values():
            wrong = reference.mismatch(way.read(way.run()))
            if wrong:
                cell = replace(cell, way=way.name, note="wrong", wrong=wrong)
        if not ways:
            cell = replace(cell, note="no way to compute it")
        elif not cell.wrong:
            best = fastest({way.name: way.run for way in ways.values()}, clock=clock)
            cell, chosen[name] = replace(cell, way=best), ways[best]
        cells[name] = cell
    timings = measure({name: way.run for name, way in chosen.items()}, budget=budget, clock=clock)
    for name, timing in timings.items():
        cells[name] = replace(cells[name], timing=timing)
    return tuple(cells[contender.name] for contender in contenders)


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep measured.

    letters   the swept letters, whose extents name a row
    ours      names of offcut's strategies, in the order of the columns
    peers     names of the peers, likewise
    machine   one line that says where it was measured
    facts     further lines about the run: the contraction, its fixed sizes, the budget
    """

    contraction: Contraction
    letters: tuple[str, ...]
    ours: tuple[str, ...]
    peers: tuple[str, ...]
    machine: str
    facts: tuple[str, ...]
    points: tuple[tuple[Cell, ...], ...] = field(repr=False)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell, point by point."""
        return tuple(itertools.chain.from_iterable(self.points))

    @property
    def mismatches(self) -> tuple[Cell, ...]:
        """The cells whose values were wrong."""
        return tuple(cell for cell in self.cells if cell.wrong)

    def best_peer(self, point: Sequence[Cell]) -> float | None:
        """GFLOP/s of the fastest peer at `point`; None when none was measured."""
        rates = [
            cell.gflops
            for cell in point
            if cell.contender in self.peers and cell.gflops is not None
        ]
        return max(rates, default=None)

    def ratio(self, cell: Cell, point: Sequence[Cell]) -> float | None:
        """GFLOP/s of `cell` over those of the best peer at its point; None when either lacks."""
        best = self.best_peer(point)
        return None if best is None or cell.gflops is None else cell.gflops / best

    def mean_ratio(self, contender: str) -> float | None:
        """Geometric mean of `ratio` over the points where it exists."""
        ratios = [
            self.ratio(cell, point)
            for point in self.points
            for cell in point
            if cell.contender == contender
        ]
        known = [ratio for ratio in ratios if ratio is not None]
        return statistics.geometric_mean(known) if known else None

    @property
    def spread(self) -> float | None:
        """Median over the cells of the distance of the quartiles over the median."""
        spreads = [cell.timing.spread for cell in self.cells if cell.timing is not None]
        return statistics.median(spreads) if spreads else None

    @property
    def x_label(self) -> str:
        """What the x axis of a picture shows: the swept extent, or flop if there are several."""
        return " = ".join(self.letters) if self._one_extent else "flop"

    @property
    def _one_extent(self) -> bool:
        return all(len(set(_extents(point[0], self.letters))) == 1 for point in self.points)

    def lines(self) -> dict[str, tuple[tuple[float, float], ...]]:
        """Contender -> points (x, GFLOP/s) of a picture, x as `x_label` says."""
        one_extent = self._one_extent
        return {
            name: tuple(
                (float(cell.sizes[self.letters[0]] if one_extent else cell.flop), cell.gflops)
                for cell in self.cells
                if cell.contender == name and cell.gflops is not None
            )
            for name in (*self.ours, *self.peers)
        }

    def to_csv(self) -> str:
        """One line per cell below comment lines that say where and how it was measured."""
        text = io.StringIO()
        for line in (f"machine: {self.machine}", *self.facts):
            text.write(f"# {line}\n")
        letters = self.contraction.letters
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow((*letters, *CSV_COLUMNS))
        for point in self.points:
            for cell in point:
                writer.writerow((*_extents(cell, letters), *self._fields(cell, point)))
        return text.getvalue()

    def _fields(self, cell: Cell, point: Sequence[Cell]) -> Iterator[object]:
        yield from (cell.contender, cell.way, cell.flop)
        timing = cell.timing
        if timing is None:
            yield from ("",) * 7
        else:
            low, high = timing.quartiles
            ratio = self.ratio(cell, point)
            yield f"{cell.gflops:.4g}"
            yield from (f"{seconds:.4e}" for seconds in (timing.seconds, low, high))
            yield from (timing.calls, len(timing.samples))
            yield "" if ratio is None else f"{ratio:.4f}"
        yield cell.note


CSV_COLUMNS = (
    "contender",
    "way",
    "flop",
    "gflops",
    "seconds",
    "seconds_q1",
    "seconds_q3",
    "calls",
    "rounds",
    "ratio_to_best_peer",
    "note",
)
"""Columns of the CSV after one column per letter."""


def _extents(cell: Cell, letters: Iterable[str]) -> tuple[int, ...]:
    return tuple(cell.sizes[letter] for letter in letters)
