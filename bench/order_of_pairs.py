"""Whether predictions put pairs in order: of strategies, and of schedules that are drawn; and what the choice of auto costs.

    python bench/order_of_pairs.py                  # processor and accelerators: half an hour, alone on the machine
    python bench/order_of_pairs.py --quick          # few sizes and schedules: some minutes
    python bench/order_of_pairs.py --cells 'vta'    # an accelerator: on the simulator, the machine need not be idle

Of each operator all strategies that are legal are compiled, and schedules drawn from the space that tuning searches. At
each size a pair counts whose measured times differ by more than 15 %: it is in order where the predictions of
`kernel.cost` are, and half where they are equal. Regret is how much longer the choice of `strategy="auto"` takes than the
fastest of the strategies at that size, one row included. On the processor all of an operator take turns and a time is a
median; on an accelerator it is the simulator's. Asked are .95 of all pairs, and of regret 2 % in the mean, 5 % or 60 ns
at worst.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from harness import Options, read_options
from rich.table import Table

import offcut as oc
from offcut.backends.compile_request import make_request
from offcut.backends.decide import proved_plan
from offcut.core.interpret.values import evaluate
from offcut.core.program import Kind
from offcut.experiment.machine import describe
from offcut.experiment.outputs import wide_console
from offcut.experiment.timing import measure

APART = 0.15
"""Of the shorter time, by which the longer one of a pair is more: else it is no pair."""
SIZES, QUICK_SIZES = (1, 2, 13, 14, 15, 43, 100, 300), (1, 14, 43)
DRAWN, QUICK_DRAWN = 32, 5
"""Schedules of each operator."""
STRATEGIES = ("mask", "pad", "shift", "ladder", "balance", "even", "residue", "cut", "version")
TARGETS = ("cpu", "vta", "gemmini")

Operator = Callable[[], tuple[Any, list[Any], list[str]]]

STENCIL = """program stencil
size n in 1:1025
input A: float32[n + 2, 258]
output B: float32[n, 256]
for i in 0:n
  for j in 0:256
    B[i, j] = (A[i + 1, j + 1] + A[i, j + 1] + A[i + 2, j + 1] + A[i + 1, j] + A[i + 1, j + 2]) * 0.2
"""


def rows(least: int = 1) -> Any:
    """The size that varies."""
    return oc.dim("n", min=least, max=1024)


def dense() -> tuple[Any, list[Any], list[str]]:
    """A dense layer of float32 on known weights."""
    a, w = oc.placeholder((rows(), 256), name="A"), oc.placeholder((256, 320), name="W")
    return oc.ops.matmul(a, w), [a, w], ["W"]


def over_rows(operator: Callable[[Any], Any]) -> Operator:
    """An operator on rows of 512."""

    def made() -> tuple[Any, list[Any], list[str]]:
        x = oc.placeholder((rows(), 512), name="X")
        return operator(x), [x], []

    return made


def convolution() -> tuple[Any, list[Any], list[str]]:
    """A convolution of 3×3 over images whose rows vary."""
    x = oc.placeholder((1, rows(), 28, 32), name="X")
    w = oc.placeholder((3, 3, 32, 64), name="W")
    return oc.ops.conv2d(x, w, padding=1, layout="NHWC", name="C"), [x, w], ["W"]


def stencil() -> tuple[Any, list[Any], list[str]]:
    """Five points of a grid, from its program."""
    return oc.parse(STENCIL), [], []


def quantized(kind: str) -> Operator:
    """A layer of int8, requantized."""

    def made() -> tuple[Any, list[Any], list[str]]:
        if kind == "pooling":
            x = oc.placeholder((1, rows(), 14, 64), "int8", name="X")
            return oc.ops.max_pool2d(x, 3, 2, 1, layout="NHWC", name="Y"), [x], []
        if kind == "dense":
            x, w = (
                oc.placeholder((rows(), 256), "int8", "X"),
                oc.placeholder((256, 320), "int8", "W"),
            )
            sums = oc.ops.dense(x, w, name="S")
        else:
            x = oc.placeholder((1, rows(), 14, 64), "int8", name="X")
            w = oc.placeholder((3, 3, 64, 64), "int8", name="W")
            sums = oc.ops.conv2d(x, w, padding=1, layout="NHWC", name="S")
        return oc.ops.requantize(sums, 8, name="Y"), [x, w], ["W"]

    return made


OPERATORS: Mapping[str, Mapping[str, Operator]] = {
    "cpu": {
        "dense": dense,
        "softmax": over_rows(oc.ops.softmax),
        "layer norm": over_rows(oc.ops.layernorm),
        "convolution": convolution,
        "stencil": stencil,
    },
    **{
        name: {kind: quantized(kind) for kind in ("dense", "convolution", "pooling")}
        for name in ("vta", "gemmini")
    },
}


@dataclass(frozen=True)
class Figures:
    """Of an operator on a target.

    order    of strategies, then of drawn schedules: pairs in order, and pairs
    regret   of auto, by size
    longer   seconds that it is longer than the fastest, by size
    refused  what was not compiled, with the reason
    """

    target: str
    operator: str
    order: tuple[tuple[float, int], tuple[float, int]]
    regret: tuple[float, ...]
    longer: tuple[float, ...]
    refused: tuple[str, ...]


def in_order(times: Sequence[float], predicted: Sequence[float]) -> tuple[float, int]:
    """Return how many pairs are in order, and how many there are."""
    right, count = 0.0, 0
    for one, other in permutations(range(len(times)), 2):
        if times[one] > (1 + APART) * times[other]:
            count += 1
            apart = predicted[one] - predicted[other]
            right += 0.5 if apart == 0 else float(apart > 0)
    return right, count


def kernels(
    target: str, operator: Operator, drawn: int, refused: list[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the kernels by strategy, ``auto`` among them, and those of schedules that are drawn."""
    output, inputs, constants = operator()
    rng = np.random.default_rng(0)
    given = {name: weights(rng, next(x for x in inputs if x.name == name)) for name in constants}
    described: dict[str, Any] = {"constants": given, "target": target}
    if inputs:
        described["inputs"] = inputs
    if target == "cpu":
        described["threads"] = 1
    by_strategy, by_schedule = dict[str, Any](), dict[str, Any]()

    def compiled(into: dict[str, Any], name: str, **how: Any) -> None:
        try:
            into[name] = oc.compile(output, **described, **how)
        except oc.OffcutError as error:
            refused.append(f"{name}: {str(error).partition(chr(10))[0]}")

    for name in ("auto", *STRATEGIES):
        compiled(by_strategy, name, strategy=name)
    for number, schedule in enumerate(schedules(target, output, inputs, given, drawn)):
        compiled(by_schedule, f"drawn {number}", schedule=schedule)
    return by_strategy, by_schedule


def schedules(
    target: str, output: Any, inputs: Any, constants: Mapping[str, Any], count: int
) -> Iterator[Any]:
    """Yield schedules of the space that tuning searches, each once."""
    planner = oc.target(target)
    request = make_request(output, inputs or None, constants, "tune")
    options = planner.options("tune", threads=1 if target == "cpu" else None)
    space = planner.space(proved_plan(planner, request, options), request, options, 1)
    draw, known = Random(0), set[str]()
    for _ in range(20 * count):
        schedule = space.sample(draw)
        if str(schedule) not in known:
            known.add(str(schedule))
            yield schedule
        if len(known) == count:
            return


def weights(rng: np.random.Generator, tensor: Any) -> Any:
    """Return values of a constant."""
    shape = [int(extent) for extent in tensor.shape]
    if tensor.dtype == "int8":
        return rng.integers(-20, 20, shape, dtype=np.int8)
    return rng.standard_normal(shape, dtype=np.float32)


def arguments(kernel: Any, size: int) -> list[Any]:
    """Return arrays to call a kernel with."""
    rng, program = np.random.default_rng(size), kernel.loops
    at = {one.name: size for one in program.sizes}
    shapes = [
        [int(evaluate(extent, at)) for extent in buffer.shape]
        for buffer in program.buffers
        if buffer.kind is Kind.INPUT
    ]
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def timed(target: str, made: Mapping[str, Any], size: int, budget: float) -> dict[str, float]:
    """Return the seconds of each kernel at a size: medians of turns; on an accelerator the simulator's."""
    if target != "cpu":
        return {name: kernel.timeline(n=size).seconds for name, kernel in made.items()}
    given = arguments(next(iter(made.values())), size)
    runs = {name: lambda kernel=kernel: kernel(*given) for name, kernel in made.items()}
    return {name: one.seconds for name, one in measure(runs, budget=budget).items()}


def figures(target: str, name: str, operator: Operator, options: Options) -> Figures:
    """Measure an operator."""
    refused: list[str] = []
    strategies, drawn = kernels(target, operator, QUICK_DRAWN if options.quick else DRAWN, refused)
    order = [[0.0, 0], [0.0, 0]]
    regret, longer = list[float](), list[float]()
    for size in QUICK_SIZES if options.quick else SIZES:
        times = timed(target, {**strategies, **drawn}, size, options.budget)
        for at, made in enumerate((strategies, drawn)):
            predicted = [kernel.cost(n=size).seconds for kernel in made.values()]
            right, count = in_order([times[one] for one in made], predicted)
            order[at][0] += right
            order[at][1] += count
        if "auto" in strategies:
            best = min(times[one] for one in strategies)
            regret.append(times["auto"] / best - 1)
            longer.append(times["auto"] - best)
    first, second = ((right, int(count)) for right, count in order)
    return Figures(target, name, (first, second), tuple(regret), tuple(longer), tuple(refused))


def share(right: float, count: int) -> str:
    """A share of pairs, and how many there are."""
    return f"{right / count:.3f} of {count}" if count else "no pair"


def main() -> None:
    """Print a row for each operator of each target, then all together."""
    options = read_options(__doc__ or "", ("cells", "budget", "json"))
    console, found = wide_console(), list[Figures]()
    grid = Table(
        "target",
        "operator",
        "strategies in order",
        "drawn in order",
        "regret",
        "at worst",
        "n = 1",
        "refused",
    )
    for target in TARGETS:
        for name, operator in OPERATORS[target].items():
            if not re.search(options.cells, f"{target} {name}"):
                continue
            one = figures(target, name, operator, options)
            found.append(one)
            worst = max(range(len(one.regret)), key=lambda at: one.regret[at], default=None)
            told = ("–", "–", "–")
            if worst is not None:
                told = (
                    f"{np.mean(one.regret):.1%}",
                    f"{one.regret[worst]:.1%}, {1e9 * one.longer[worst]:.0f} ns",
                    f"{one.regret[0]:.1%}",
                )
            grid.add_row(
                target, name, *(share(*pairs) for pairs in one.order), *told, str(len(one.refused))
            )
    console.print(grid)
    for at, kind in enumerate(("strategies", "drawn schedules")):
        right, count = (sum(one.order[at][of] for one in found) for of in (0, 1))
        console.print(f"{kind}: {share(right, int(count))} pairs in order, asked .95")
    every = [one for each in found for one in each.regret]
    if every:
        console.print(
            f"regret of auto: {np.mean(every):.1%} in the mean (asked 2 %), {max(every):.1%} at worst"
        )
    for each in found:
        for reason in each.refused:
            console.print(
                f"{each.target} {each.operator}, {reason}", highlight=False, soft_wrap=True
            )
    console.print(f"machine: {describe()}", highlight=False, soft_wrap=True)
    if options.json is not None:
        saved = {
            "bench": "order_of_pairs",
            "machine": str(describe()),
            "rows": list(map(asdict, found)),
        }
        Path(options.json).write_text(json.dumps(saved, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
