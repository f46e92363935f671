"""Machines of queues: the closed form of their cycles, bytes and energy is held to the simulator, which `oc.tune` asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle
from math import exp, log
from pathlib import Path
from random import Random

import accelerators
import numpy as np
import pytest
from conftest import slow

import offcut as oc
from offcut import Cost, Kernel, Outcome, Records, Schedule, ops
from offcut.backends.accelerator.costs import prediction
from offcut.backends.accelerator.executor import AcceleratorExecutor
from offcut.backends.accelerator.planning.choices import Nests
from offcut.backends.accelerator.simulator import SimulationResult
from offcut.backends.accelerator.target import Accelerator
from offcut.backends.target import DEFAULT, TargetPlan
from offcut.core.sizes import Dim
from offcut.costmodel import Formulas
from offcut.costmodel.periodic_fit import PeriodicFit
from offcut.search import ScheduleSpace
from tests.agree import nearly
from tests.backends.accelerator.machines import in_one_window, shipped
from tests.facade import Request, proved_plan, real, requested

# Input rows, channels, results, window, stride: layers of ResNet-18.
LAYERS = {
    "C2": (56, 64, 64, 3, 1),
    "C3": (56, 64, 128, 3, 2),
    "C4": (56, 64, 128, 1, 2),
    "C5": (28, 128, 128, 3, 1),
    "C6": (28, 128, 256, 3, 2),
    "C7": (28, 128, 256, 1, 2),
    "C8": (14, 256, 256, 3, 1),
    "C9": (14, 256, 512, 3, 2),
    "C10": (14, 256, 512, 1, 2),
    "C11": (7, 512, 512, 3, 1),
}
QUICK = ("C4", "C10")
Extent = int | Dim
TILE = 64  # of rows of the dense layer, by the policy


# Of the bus: bytes a cycle, and cycles of a row; None as described. Some are what the published experiment calibrates.
MACHINES: dict[str, tuple[str, float | None, float | None]] = {
    "vta": ("vta", None, None),
    "vta-osdi18": ("vta-osdi18", None, None),
    "gemmini": ("gemmini", None, None),
    "vta, few bytes": ("vta", 1.42, 1e-6),
    "vta, slow rows": ("vta", None, 492.0),
    "vta-osdi18, fewer bytes": ("vta-osdi18", 5.79, 1e-6),
    "vta-osdi18, slow rows": ("vta-osdi18", None, 126.0),
}


@cache
def machine(name: str) -> Accelerator:
    like, rate, row = MACHINES[name]
    base = shipped(like)
    rate = base.dram.bytes_per_cycle if rate is None else rate
    row = base.dram.latency_cycles if row is None else row
    dram = replace(base.dram, bytes_per_cycle=rate, latency_cycles=row)
    found = oc.target("accelerator", machine=replace(base, dram=dram))
    assert isinstance(found, Accelerator)
    return found


@dataclass(frozen=True)
class Layer:
    """A layer as a target plans it."""

    target: Accelerator
    request: Request
    planned: TargetPlan

    def cost(self) -> Cost:
        found = self.target.predict_cost(self.planned, self.request, DEFAULT, {})
        assert isinstance(found, Cost)
        return found

    def formulas(self) -> Formulas:
        found = self.target.predict_cost(self.planned, self.request, DEFAULT)
        assert isinstance(found, Formulas)
        return found

    def timeline(self, **sizes: int) -> SimulationResult:
        names = dict(self.request.users.sizes)
        given = {names[user]: size for user, size in sizes.items()}
        return AcceleratorExecutor(self.planned.program, self.target.spec).timeline(given)

    def alone(self) -> Layer:
        """The same tiles, one window of everything."""
        assert self.planned.schedule is not None
        return planned(self.target, self.request, in_one_window(self.planned.schedule))


def planned(target: Accelerator, request: Request, schedule: Schedule | None = None) -> Layer:
    options = replace(DEFAULT, schedule=schedule)
    return Layer(target, request, next(target.policy(request.program, request.users, options)))


@cache
def layer(name: str, target: str, images: tuple[Extent, Extent, Extent] | None = None) -> Layer:
    """A layer by the policy."""
    h, c, o, window, stride = LAYERS[name]
    x = oc.placeholder((*(images or (1, h, h)), c), "int8", name="X")
    w = oc.placeholder((window, window, c, o), "int8", name="W")
    sums = ops.conv2d(x, w, stride=stride, padding=window // 2, layout="NHWC", name="S")
    weights = {"W": np.zeros((window, window, c, o), "int8")}
    return planned(
        machine(target), requested(ops.requantize(sums, 8, name="Y"), None, weights, "test")
    )


def odd(name: str, batch: int) -> tuple[int, int, int]:
    """Images of 33×47 where a layer has 56×56, and of as many halvings where it has fewer."""
    h = LAYERS[name][0]
    return batch, -(-33 * h // 56), -(-47 * h // 56)


@cache
def dense() -> Kernel:
    n = oc.dim("n", min=0, max=4 * TILE)
    x, w = oc.placeholder((n, 70), "int8", name="X"), oc.placeholder((70, 45), "int8", name="W")
    sums = ops.dense(x, w, name="S")
    constants = {"W": np.zeros((70, 45), "int8")}
    return oc.compile(ops.requantize(sums, 6, name="Y"), constants=constants, target="vta")


def close(kernel: Kernel | Layer, **sizes: int) -> None:
    said, ran = kernel.cost(**sizes), kernel.timeline(**sizes)
    assert said.cycles == nearly(ran.cycles, rel=0.01)
    moved = {place.value: count for place, count in ran.bytes.items() if count}
    assert {name: size for name, size in said.bytes.items() if size} == moved
    assert said.instructions == len(ran.instructions)
    assert said.energy == nearly(sum(ran.energy.values()))


def pairs() -> Iterator[tuple[str, str]]:
    """One layer on every machine, and every layer on one of them."""
    yield from (("C10", target) for target in MACHINES)
    yield from zip(LAYERS, cycle(MACHINES), strict=False)


@pytest.mark.every(8)
@pytest.mark.parametrize(
    ("name", "target"), [(*at,) if at[0] in QUICK else slow(*at) for at in dict.fromkeys(pairs())]
)
def test_cycles_of_a_layer_are_those_of_the_simulator_with_windows_in_turn_and_without(
    name: str, target: str
) -> None:
    for images in (None, odd(name, len(name + target) % 4 + 2)) if name != "C10" else (None,):
        made = layer(name, target, images)
        alone = made.alone()
        close(made)
        close(alone)
        assert made.timeline().cycles <= alone.timeline().cycles


@pytest.mark.every(2)
@pytest.mark.parametrize("name", QUICK)
def test_odd_images_use_the_unit_as_even_ones_do_and_cost_what_is_said(name: str) -> None:
    h, *_, stride = LAYERS[name]
    images = odd(name, 3)
    even, other = layer(name, "vta"), layer(name, "vta", images)
    close(other)
    rows, columns = (-(-extent // stride) for extent in images[1:])
    work = rows * columns * images[0] / (-(-h // stride)) ** 2
    # channels are whole words, and a word of inputs is one pixel: nothing has to be padded
    assert other.timeline().cycles <= 1.01 * work * even.timeline().cycles


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("kind", "target"), [("pooling", "vta"), ("pooling", "gemmini"), ("convolution", "vta-osdi18")]
)
def test_words_that_the_vector_unit_fills_and_micro_ops_take_energy(kind: str, target: str) -> None:
    """A pool's border is filled with -128; a call as small as these brings micro-ops of a hundredth of its energy."""
    inputs, output = getattr(accelerators, kind)()
    kernel = oc.compile(output, inputs=inputs, target=target)
    for n in (1, 3, 8):
        close(kernel, n=n)


def test_who_asks_for_the_bus_between_two_rows_of_another_unit_gets_it() -> None:
    """On gemmini ten rows of images fill the queue: micro-ops are fetched, and asked for, before the last of them are loaded."""
    x = oc.placeholder((2, 24, 24, 24), "int8", name="X")
    w = oc.placeholder((128, 24, 1, 1), "int8", name="W")
    output = ops.requantize(ops.conv2d(x, w, stride=2, name="S"), 8, name="Y")
    kernel = oc.compile(output, inputs=[x, w], target="gemmini")
    assert kernel.cost().cycles == kernel.timeline().cycles


def test_cycles_at_any_size_are_those_of_the_simulator() -> None:
    for n in (1, TILE - 1, TILE, 3 * TILE + 5):
        close(dense(), n=n)


def test_nothing_costs_nothing_and_issues_nothing() -> None:
    at, run = dense().cost(n=0), dense().timeline(n=0)
    assert run.instructions == ()
    assert at.cycles == run.cycles == cycles_said(dense().cost(), n=0) == 0
    assert at.flop == at.energy == sum(at.bytes.values()) == 0


def but_micro_ops(moved: Mapping[str, int]) -> dict[str, int]:
    return {name: size for name, size in moved.items() if name != "micro-ops"}


def said_but_for_micro_ops(formulas: Formulas, at: Cost, **sizes: int) -> None:
    """A formula takes the micro-ops of typical sizes, whose last tiles are of other shapes; all else is counted."""
    bytes_, energy = bytes_said(formulas, **sizes), formulas.energy
    assert but_micro_ops(bytes_) == but_micro_ops(at.bytes)
    spec = machine("vta").spec
    assert spec.energy is not None
    on_chip = spec.energy.on_chip(spec.memories["micro-ops"]) * 1e-12
    more = (bytes_["micro-ops"] - at.bytes["micro-ops"]) * (spec.energy.dram * 1e-12 + on_chip)
    said = energy.xreplace({s: sizes[str(s)] for s in energy.free_symbols}).doit()
    assert float(said) == nearly(at.energy + more, rel=1e-6, abs=spec.beat * on_chip)


def cycles_said(formulas: Formulas, **sizes: int) -> float:
    """What a formula says of a size."""
    made = formulas.cycles
    at = {symbol: sizes[str(symbol)] for symbol in made.free_symbols}
    return float(made.xreplace(at).doit())


def test_a_formula_gives_what_is_said_of_a_size() -> None:
    formulas = dense().cost()
    (size,) = formulas.flop.free_symbols
    for n in (1, TILE, 3 * TILE + 5):
        at = dense().cost(n=n)
        assert formulas.flop.subs({size: n}) == at.flop == n * 45 * (2 * 70 + 3)
        assert cycles_said(formulas, n=n) == nearly(at.cycles, rel=0.02)
        said_but_for_micro_ops(formulas, at, n=n)
    assert float(formulas.energy.xreplace({size: 0}).doit()) == 0


IMAGES = (1, 2, 3, 5, 8, 13)


def formula_holds(kernel: Kernel | Layer, *points: Mapping[str, int]) -> None:
    """A formula is within 5 % of the simulator, and of what it says of itself, up to half."""
    formulas = kernel.formulas() if isinstance(kernel, Layer) else kernel.cost()
    assert formulas.within <= 0.05
    for sizes in points:
        ran = kernel.timeline(**sizes).cycles
        assert cycles_said(formulas, **sizes) == nearly(ran, rel=0.05)


# What binds differs from machine to machine: a product meets all of them, what adds and pools one each.
ROWS = {
    "dense": ("vta", "gemmini", "vta, few bytes", "vta, slow rows"),
    "residual": ("vta, few bytes",),
    "pooling": ("vta",),
}


@pytest.mark.every(6)
@pytest.mark.parametrize(("kind", "target"), [(kind, on) for kind in ROWS for on in ROWS[kind]])
def test_formulas_of_any_rows_hold_at_sizes_that_they_were_not_made_of(
    kind: str, target: str
) -> None:
    match kind:
        case "dense":
            inputs, output = accelerators.dense(70, 45, most=4096)
        case "residual":
            inputs, output = accelerators.residual(70, 45, most=4096)
        case _:
            inputs, output = accelerators.pooling(64)
    kernel = oc.compile(output, inputs=inputs, target=machine(target))
    formula_holds(kernel, *({"n": n} for n in (1, 2, 17, 31, 64)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "target"), [("C3", "vta"), ("C9", "vta, few bytes"), ("C10", "vta, slow rows")]
)
def test_a_formula_over_images_is_the_simulators(name: str, target: str) -> None:
    made = layer(name, target, (oc.dim("n", min=1, max=64), *[LAYERS[name][0]] * 2))
    formula_holds(made, *({"n": n} for n in IMAGES))


def drawn(formula: Formulas, kernel: Kernel, **ends: tuple[int, int]) -> list[float]:
    """By which part it is off at sizes that are drawn, small ones as often as others."""
    draw = Random(0)
    points = [
        {name: round(exp(draw.uniform(log(low), log(high)))) for name, (low, high) in ends.items()}
        for _ in range(12)
    ]
    return [
        abs(cycles_said(formula, **point) / kernel.cost(**point).cycles - 1) for point in points
    ]


@pytest.mark.slow
def test_a_formula_over_images_and_their_sides_holds_at_sizes_that_are_drawn() -> None:
    n, h, w = oc.dim("n", min=1, max=8), oc.dim("h", min=3, max=56), oc.dim("w", min=3, max=56)
    x = oc.placeholder((n, 64, h, w), "int8", name="X")
    k = oc.placeholder((40, 64, 3, 3), "int8", name="K")
    output = ops.requantize(ops.conv2d(x, k, stride=2, padding=1, name="S"), 8, name="Y")
    kernel = oc.compile(output, inputs=[x, k], target="vta")
    formula = kernel.cost()
    formula_holds(kernel, {"n": 2, "h": 56, "w": 12}, {"n": 2, "h": 46, "w": 24})
    sides = (3, 56)
    assert max(drawn(formula, kernel, n=(1, 8), h=sides, w=sides)) <= min(
        formula.within + 0.01, 0.05
    )


@pytest.mark.slow
def test_a_formula_over_three_sizes_of_a_product_says_how_far_it_is_off() -> None:
    n, m, k = (oc.dim(name, min=1, max=300) for name in "nmk")
    x, w = oc.placeholder((n, k), "int8", name="X"), oc.placeholder((k, m), "int8", name="W")
    output = ops.requantize(ops.dense(x, w, name="S"), 6, name="Y")
    kernel = oc.compile(output, inputs=[x, w], target="vta")
    formula = kernel.cost()
    assert max(drawn(formula, kernel, n=(1, 300), m=(1, 300), k=(1, 300))) <= formula.within + 0.01


def counts_of(
    output: oc.Tensor, monkeypatch: pytest.MonkeyPatch, schedule: oc.Schedule | None = None
) -> tuple[Kernel, Formulas]:
    """A kernel, and its formulas but for cycles, which take long."""
    monkeypatch.setattr(prediction, "formula", lambda nest: PeriodicFit(real(0.0), 0.0))
    kernel = oc.compile(output, target="vta", schedule=schedule)
    return kernel, kernel.cost()


def bytes_said(formulas: Formulas, **sizes: int) -> dict[str, int]:
    at = {name: {s: sizes[str(s)] for s in f.free_symbols} for name, f in formulas.bytes.items()}
    return {name: int(f.xreplace(at[name]).doit()) for name, f in formulas.bytes.items()}


@pytest.mark.slow
def test_formulas_of_three_sizes_are_what_is_counted_at_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n, m, k = (oc.dim(name, min=1, max=300) for name in "nmk")
    x, w = oc.placeholder((n, k), "int8", name="X"), oc.placeholder((k, m), "int8", name="W")
    output = ops.requantize(ops.dense(x, w, name="S"), 6, name="Y")
    kernel, formulas = counts_of(output, monkeypatch)
    assert formulas.exactness.flop == "exact"
    assert formulas.exactness.bytes == "estimate"  # by micro-ops; those of operands are exact
    for sizes in ({"n": 33, "m": 70, "k": 51}, {"n": 1, "m": 1, "k": 1}):
        said_but_for_micro_ops(formulas, kernel.cost(**sizes), **sizes)
    one = {"n": 1, "m": 1, "k": 1}
    assert bytes_said(formulas, **one)["micro-ops"] > kernel.cost(**one).bytes["micro-ops"]


def test_a_formula_counts_words_that_the_vector_unit_fills() -> None:
    inputs, output = accelerators.pooling()
    kernel = oc.compile(output, inputs=inputs, target="vta")
    formulas = kernel.cost()
    assert formulas.exactness.flop == "exact"
    for n in (1, 3, 8):
        said_but_for_micro_ops(formulas, kernel.cost(n=n), n=n)


def test_what_no_formula_counts_is_a_bound_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    h, w = oc.dim("h", min=3, max=56), oc.dim("w", min=3, max=56)
    x = oc.placeholder((1, 32, h, w), "int8", name="X")
    k = oc.placeholder((16, 32, 3, 3), "int8", name="K")
    output = ops.requantize(ops.conv2d(x, k, stride=2, padding=1, name="S"), 8, name="Y")
    both = oc.compile(output, target="vta").schedule
    (choice,) = both.steps
    one = oc.Schedule(both.name, choice.options[0].steps)  # of two, a call takes one by its cycles
    kernel, formulas = counts_of(output, monkeypatch, one)
    assert formulas.exactness.bytes == "estimate"  # by micro-ops; those of operands are a bound
    for a, b in ((3, 3), (19, 23), (56, 56)):
        at = kernel.cost(h=a, w=b)
        assert str(at.exactness) == "exact: flop, bytes, cycles; estimate: energy"
        said = bytes_said(formulas, h=a, w=b)
        assert all(said[name] >= size for name, size in but_micro_ops(at.bytes).items())


def test_a_cost_is_shown_by_operand_with_what_binds() -> None:
    shown = str(dense().cost(n=TILE))
    assert shown.startswith("Y(n = 64) on vta: ")
    assert "from inputs  from weights  from outputs" in shown
    assert "bound by" in shown


# `oc.tune` on a simulated machine of queues: nothing is timed, the simulator is the measurement.


n = oc.dim("n", min=1, max=64)
X = oc.placeholder((n, 64), "int8", name="X")
W = oc.placeholder((64, 96), "int8", name="W")
Y = ops.requantize(ops.dense(X, W, name="S"), 6, name="Y")
WEIGHTS = np.random.default_rng(0).integers(-20, 20, (64, 96), "int8")


def space() -> ScheduleSpace:
    request = requested(Y, [X, W], {"W": WEIGHTS}, "test")
    target = oc.target("vta")
    planned = proved_plan(target, request, DEFAULT)
    found = target.space(planned, request, DEFAULT, 1)
    assert isinstance(found, ScheduleSpace)
    return found


def grouped() -> tuple[oc.Tensor, list[oc.Tensor]]:
    """A convolution in groups, whose space has more axes than the orders of all of them could be kept."""
    x = oc.placeholder((n, 3, 2, 8), "int8", name="X")
    k = oc.placeholder((1, 1, 4, 6), "int8", name="K")
    total = ops.conv2d(x, k, groups=2, layout="NHWC")
    return ops.requantize(total, 9, name="Y"), [x, k]


def several() -> tuple[oc.Tensor, list[oc.Tensor]]:
    """Two products, one behind the other, over rows of which there may be one alone."""
    m = oc.dim("m", min=1, max=1)
    x = oc.placeholder((m, 40), "int8", name="X")
    weights = [
        oc.placeholder(shape, "int8", name=name)
        for name, shape in (("V", (40, 24)), ("W", (24, 20)))
    ]
    y = x
    for one in weights:
        y = ops.requantize(ops.dense(y, one), 6)
    return y, [x, *weights]


def pooled() -> tuple[oc.Tensor, list[oc.Tensor]]:
    """A maximum, which no product runs, of which several layouts compete."""
    x = oc.placeholder((n, 8, 6, 8), "int8", name="X")
    return ops.max_pool2d(x, 2, 2, 0), [x]


def product() -> tuple[oc.Tensor, list[oc.Tensor]]:
    """What is tuned below."""
    return Y, [X, W]


@pytest.mark.parametrize(
    ("described", "machine"),
    [(product, "vta"), (grouped, "vta"), slow(several, "gemmini"), (pooled, "vta")],
)
def test_every_default_is_a_point_of_its_space_as_is_what_that_draws(
    described: Callable[[], tuple[oc.Tensor, list[oc.Tensor]]], machine: str
) -> None:
    output, inputs = described()
    request, target = requested(output, inputs, {}, "test"), oc.target(machine)
    assert isinstance(target, Accelerator)
    first = next(target.policy(request.program, request.users, DEFAULT)).schedule
    assert first is not None
    arrays = target.arrays(request.program)
    space, rng = Nests.of(request.program, arrays, target.spec, first).space, Random(2)
    assert first in space
    assert all(one in space for one in space.neighbours(first))
    points = [space.sample(rng) for _ in range(8)]
    assert all(one in space for one in points)
    for point in points if described is product else points[:2]:
        near = space.neighbours(point)
        assert point not in near
        assert len(set(near)) == len(near)
        assert all(one in space for one in near)
        assert space.step(point, rng) in space
        assert space.crossover(point, points[-1], rng) in space
    if described is product:
        assert len(set(space.enumerate(50))) == 50
    other = oc.Schedule.parse(str(first).replace(" guard ", " guard 7"))
    assert (other in space) == (other == first)


def test_schedules_of_the_space_compute_the_same() -> None:
    x = np.random.default_rng(1).integers(-20, 20, (29, 64), "int8")
    exact = ((x.astype("int32") @ WEIGHTS) // 64).clip(-128, 127)
    whole, rng, ran = space(), Random(1), 0
    while ran < 2:
        schedule = whole.sample(rng)
        try:
            kernel = oc.compile(
                Y, inputs=[X, W], constants={"W": WEIGHTS}, target="vta", schedule=schedule
            )
            found = kernel(x)
        except oc.OffcutError:  # its windows do not fit
            continue
        np.testing.assert_array_equal(found, exact)
        assert kernel.timeline(n=29).races == ()
        ran += 1


def test_tuning_asks_the_simulator(tmp_path: Path) -> None:
    records = tmp_path / "records.sqlite"
    best = oc.tune(
        Y,
        inputs=[X, W],
        constants=["W"],
        sizes={"n": [7, 33]},
        trials=2,
        explorer="random",
        seed=0,
        records=records,
        target="vta",
    )
    kept = [one for one in Records(records) if one.outcome is Outcome.OK]
    kernel = oc.compile(Y, inputs=[X, W], constants={"W": WEIGHTS}, target="vta", schedule=best)
    for size in (7, 33):
        own = [r for r in kept if dict(r.sizes) == {"n": size} and r.schedule == str(best)]
        assert own
        assert all(one.seconds == kernel.timeline(n=size).seconds for one in own)
    assert all(one.spread == 0 for one in kept)


@pytest.mark.parametrize(("machine", "strategy"), [("gemmini", "shift"), ("vta", "mix")])
def test_a_formula_is_the_cost_of_a_call_where_no_whole_tile_is_and_where_nothing_runs(
    machine: str, strategy: str
) -> None:
    n = oc.dim("n", max=600)
    x = oc.placeholder((n, 19), "int8", name="X")
    y = oc.compute((n, 19), lambda i, j: oc.maximum(x[i, j], 0), name="Y")
    kernel = oc.compile(y, inputs=[x], target=machine, strategy=strategy)
    formula = kernel.cost().cycles
    for rows in (0, 1, 5, 17, 22, 23):
        cycles = float(formula.subs(dict.fromkeys(formula.free_symbols, rows)))
        assert cycles == nearly(kernel.cost(n=rows).cycles, rel=0.02)
