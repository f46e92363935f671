"""One description, three machines: which strategy wins on a processor, a GPU and an accelerator, in what pieces, at what price.

    python bench/three_machines.py            # at 1, 100 and 1000 rows: some minutes
    python bench/three_machines.py --quick    # at 100 rows
    python bench/three_machines.py --cells 'dense'

A dense layer, a convolution and attention are described once, over element types that a machine multiplies. Each strategy
that is legal there is compiled and proved; the one that is predicted to take least is shown, with its pieces, its microkernel,
its energy, and how much longer the strategy that takes most would be. Nothing has to run: the processor is this one where it is
known, else a Cascade Lake, the GPU an H200, the accelerator VTA.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness import read_options
from rich.table import Table

import offcut as oc
from offcut.core.text.tables import quantity
from offcut.experiment.machine import describe
from offcut.experiment.outputs import wide_console

SIZES, QUICK_SIZES = (1, 100, 1000), (100,)
STRATEGIES = ("guard", "cut", "mask", "pad", "shift", "ladder", "balance", "even", "version", "mix")


def dense(kind: str) -> tuple[Any, list[Any]]:
    """A dense layer, requantized where its elements are integers."""
    a = oc.placeholder((oc.dim("n", min=1, max=1024), 256), kind, "A")
    w = oc.placeholder((256, 320), kind, "W")
    if kind == "int8":
        return oc.ops.requantize(oc.ops.dense(a, w, name="S"), 8, name="Y"), [a, w]
    k = oc.reduce_axis(256, name="k")
    return oc.compute(
        (a.shape[0], 320),
        lambda i, j: oc.sum(a[i, k].astype("float32") * w[k, j].astype("float32"), axis=k),
        name="Y",
    ), [a, w]


def convolution(kind: str) -> tuple[Any, list[Any]]:
    """A convolution of 3×3 over images whose rows vary."""
    x = oc.placeholder((1, oc.dim("n", min=1, max=1024), 14, 64), kind, "X")
    w = oc.placeholder((3, 3, 64, 64), kind, "W")
    sums = oc.ops.conv2d(x, w, padding=1, layout="NHWC", name="S")
    return (oc.ops.requantize(sums, 8, name="Y") if kind == "int8" else sums), [x, w]


def attention(kind: str) -> tuple[Any, list[Any]]:
    """Attention of one head over as many keys as queries."""
    n = oc.dim("n", min=1, max=1024)
    q, k, v = (oc.placeholder((1, n, 64), kind, name) for name in ("Q", "K", "V"))
    return oc.ops.attention(q, k, v), [q, k, v]


OPERATORS: Mapping[str, Callable[[str], tuple[Any, list[Any]]]] = {
    "dense": dense,
    "convolution": convolution,
    "attention": attention,
}


@dataclass(frozen=True)
class Contender:
    """A machine, and the element types that operators have there: the first that is described wins."""

    name: str
    target: Any
    types: tuple[str, ...]


def machines() -> list[Contender]:
    """Return the three machines."""
    return [
        Contender("processor", oc.target("cpu"), ("float32",)),
        Contender(
            "GPU", oc.target("cuda", machine="h200", device="emulated"), ("bfloat16", "float32")
        ),
        Contender("accelerator", oc.target("vta"), ("int8",)),
    ]


def kernels(
    machine: Contender, make: Callable[[str], tuple[Any, list[Any]]]
) -> tuple[str, dict[str, Any], str]:
    """Return the element type, the kernels by strategy, and why there is none."""
    because = ""
    for kind in machine.types:
        try:
            output, inputs = make(kind)
            made = {"auto": oc.compile(output, inputs=inputs, target=machine.target)}
        except oc.OffcutError as error:
            because = because or str(error).partition("\n")[0]
            continue
        for strategy in STRATEGIES:
            try:
                made[strategy] = oc.compile(
                    output, inputs=inputs, target=machine.target, strategy=strategy
                )
            except oc.OffcutError:
                continue
        return kind, made, ""
    return machine.types[0], {}, because


def main() -> None:
    """Print a table."""
    options = read_options(__doc__ or "", ("cells",))
    console = wide_console()
    grid = Table(
        "operator",
        "n",
        "machine",
        "elements",
        "wins",
        "of",
        "takes",
        "worst over it",
        "pieces",
        "microkernel",
        "energy",
    )
    for name, make in OPERATORS.items():
        if not re.search(options.cells, name):
            continue
        for machine in machines():
            kind, made, because = kernels(machine, make)
            for n in QUICK_SIZES if options.quick else SIZES:
                if not made:
                    grid.add_row(name, str(n), machine.name, kind, f"refused: {because}")
                    continue
                costs = {strategy: kernel.cost(n=n) for strategy, kernel in made.items()}
                best = min(costs, key=lambda one: costs[one].seconds)
                cost = costs[best]
                worst = max(one.seconds for one in costs.values()) / cost.seconds
                units = sorted({piece.microkernel or "loops" for piece in cost.pieces})
                grid.add_row(
                    name, str(n), machine.target.machine.name, kind, best, str(len(costs)),
                    quantity(cost.seconds, "s"), f"{worst:.2f} ×", str(len(cost.pieces)), ", ".join(units), quantity(cost.energy, "J"),
                )  # fmt: skip
    console.print(grid)
    console.print("predicted, nothing was run")
    console.print(describe())


if __name__ == "__main__":
    main()
