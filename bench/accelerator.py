"""The published figures of VTA on the layers of ResNet-18, on the simulator, and what lies beyond them.

    python bench/accelerator.py                    # all parts: some ten minutes
    python bench/accelerator.py --quick            # three layers, few designs: a minute
    python bench/accelerator.py --only hiding      # one part: hiding, search, sizes, tails, designs

*hiding* calibrates one number of the bus, its bytes a cycle or the cycles of a row, so that the best
layer without virtual threads is used as published, and predicts the runs with them. *search* tunes
the tiles of each layer. *sizes* runs batches and images that fit no tile, *tails* what is left of
an axis by each way to cut it, *designs* other splits of the same bytes of memory and other
matrices of the same area. Cycles are the simulator's; nothing is timed. Writes out/accelerator*.png.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

import offcut as oc
from offcut import ops
from offcut.backends.requested import Request, requested
from offcut.backends.target import DEFAULT, Target
from offcut.costmodel import load
from offcut.experiment.table import wide_console
from offcut.schedule import Nest, Schedule

PARTS = ("hiding", "search", "sizes", "tails", "designs")
SHIFT = 8
CAPACITY = ("inputs", "weights", "accumulators")


@dataclass(frozen=True)
class Layer:
    """A convolution, then a shift and a clip; `h` rows and `w` columns of `c` channels to `o`."""

    name: str
    h: int
    c: int
    o: int
    window: int
    stride: int
    batch: int = 1
    w: int = 0

    @property
    def request(self) -> Request:
        """What a target is asked for."""
        return asked(self)

    @property
    def multiply_adds(self) -> int:
        """Of the convolution, zeros around the image included."""
        rows, columns = (-(-extent // self.stride) for extent in (self.h, self.w or self.h))
        return self.batch * rows * columns * self.c * self.o * self.window**2


# Source: the layers of the OSDI 2018 paper on TVM; C1, of 3 channels, stays on the CPU.
LAYERS = (
    Layer("C2", 56, 64, 64, 3, 1),
    Layer("C3", 56, 64, 128, 3, 2),
    Layer("C4", 56, 64, 128, 1, 2),
    Layer("C5", 28, 128, 128, 3, 1),
    Layer("C6", 28, 128, 256, 3, 2),
    Layer("C7", 28, 128, 256, 1, 2),
    Layer("C8", 14, 256, 256, 3, 1),
    Layer("C9", 14, 256, 512, 3, 2),
    Layer("C10", 14, 256, 512, 1, 2),
    Layer("C11", 7, 512, 512, 3, 1),
)
QUICK = ("C2", "C8", "C10")


@cache
def asked(layer: Layer) -> Request:
    """The layer in int8, its weights known."""
    shape = (layer.window, layer.window, layer.c, layer.o)
    x = oc.placeholder((layer.batch, layer.h, layer.w or layer.h, layer.c), "int8", name="X")
    w = oc.placeholder(shape, "int8", name="W")
    padding = layer.window // 2
    sums = ops.conv2d(x, w, stride=layer.stride, padding=padding, layout="NHWC", name="S")
    output = ops.requantize(sums, SHIFT, name="Y")
    return requested(output, None, {"W": np.zeros(shape, np.int8)}, "bench")


@dataclass(frozen=True)
class Ran:
    """A layer on a machine.

    said   cycles by the closed form
    moved  bytes over the bus
    """

    layer: Layer
    schedule: Schedule
    cycles: float
    said: float
    moved: int
    rate: float

    @property
    def used(self) -> float:
        """Multiply-adds that are asked for over what the matrix unit could do meanwhile."""
        return self.layer.multiply_adds / (self.cycles * self.rate)


def ran(target: Target, layer: Layer, schedule: Schedule | None = None) -> Ran:
    """Cycles of a layer by a schedule, or by the policy."""
    request, options = layer.request, replace(DEFAULT, schedule=schedule)
    planned = next(iter(target.space(request.program, request.users, options)))
    cycles = target.simulated(planned, request, options, {}) * target.machine.hertz
    cost: Any = target.cost_of(planned, request, options, {})
    assert planned.schedule is not None
    moved = sum(cost.bytes.values())
    (unit,) = (one for one in target.machine.unit if "int8" in one.of)
    return Ran(layer, planned.schedule, cycles, cost.cycles, moved, unit.multiply_adds)


def alone(schedule: Schedule) -> Schedule:
    """The same tiles, no virtual threads."""
    steps = []
    for step in schedule.steps:
        assert isinstance(step, Nest)
        steps.append(replace(step, ways=tuple(replace(way, virtual=None) for way in step.ways)))
    return replace(schedule, steps=tuple(steps))


def total(runs: Sequence[Ran]) -> float:
    """What the matrix unit is used over all layers, one after the other."""
    return sum(one.layer.multiply_adds for one in runs) / sum(o.cycles * o.rate for o in runs)


def machine(name: str, bus: float | None = None, row: float | None = None) -> Target:
    """A machine with another bus: bytes per cycle, cycles of a row."""
    base = load(name)
    dram = base.dram
    dram = dram if bus is None else replace(dram, bytes_per_cycle=bus)
    dram = dram if row is None else replace(dram, latency_cycles=max(row, 1e-6))
    return oc.target("accelerator", machine=replace(base, dram=dram))


# ---------------------------------------------------------------- hiding


@dataclass(frozen=True)
class Published:
    """What a paper says of a design: the best layer's use without and with hiding, and savings by layer."""

    source: str
    design: str
    without: float
    with_: float
    saved: tuple[float, float] | None


PUBLISHED = (
    Published("SysML'18", "vta", 0.52, 0.74, (0.07, 0.54)),
    Published("OSDI'18", "vta-osdi18", 0.70, 0.88, None),
)


def both(target: Target, layers: Sequence[Layer]) -> list[tuple[Ran, Ran]]:
    """Each layer without and with hiding, by the same tiles."""
    found = []
    for layer in layers:
        hidden = ran(target, layer)
        found.append((ran(target, layer, alone(hidden.schedule)), hidden))
    return found


def calibrated(published: Published, layers: Sequence[Layer]) -> Iterator[tuple[str, Target]]:
    """Machines on which the best layer without hiding is used as published: by the bus's rate, by its rows."""
    ways: Mapping[str, tuple[Callable[[float], Target], float, float]] = {
        "bytes a cycle": (lambda x: machine(published.design, bus=x, row=0.0), 1.0, 32.0),
        "cycles a row": (lambda x: machine(published.design, row=x), 0.0, 512.0),
    }
    for what, (made, low, high) in ways.items():
        rising = what == "bytes a cycle"

        def use(x: float, made: Callable[[float], Target] = made) -> float:
            return max(one.used for one, _ in both(made(x), layers))

        if not min(use(low), use(high)) <= published.without <= max(use(low), use(high)):
            print(
                f"  {published.source}: no {what} in {low:g}…{high:g} gives {published.without:.0%}"
            )
            continue
        for _ in range(7):
            middle = (low + high) / 2
            if (use(middle) < published.without) == rising:
                low = middle
            else:
                high = middle
        x = (low + high) / 2
        yield f"{x:.3g} {what}" + (", rows free" if rising else ", 8 bytes a cycle"), made(x)


def hiding(layers: Sequence[Layer], out: Path) -> list[str]:
    """Table and roofline of the published experiment; what was found, in words."""
    words = []
    for published in PUBLISHED:
        for label, target in calibrated(published, layers):
            runs = both(target, layers)
            show_hiding(f"{published.design}: {label}", runs)
            saved = [1 - hidden.cycles / plain.cycles for plain, hidden in runs]
            best = [max(one.used for one in side) for side in zip(*runs, strict=True)]
            text = (
                f"{published.source}, {label}: best layer {best[0]:.0%} → {best[1]:.0%} "
                f"(published {published.without:.0%} → {published.with_:.0%})"
            )
            if published.saved is not None:
                least, most = published.saved
                text += (
                    f"; latency {min(saved):.0%} … {max(saved):.0%} less ({least:.0%} … {most:.0%})"
                )
            worst = max(abs(o.said / o.cycles - 1) for pair in runs for o in pair)
            slower = sum(hidden.cycles > plain.cycles for plain, hidden in runs)
            text += f"; total {total([p for p, _ in runs]):.0%} → {total([h for _, h in runs]):.0%}"
            text += f"; closed form off by {worst:.1%} at most; slower by hiding: {slower} layers"
            words.append(text)
            name = f"accelerator-{published.design}-{'bus' if 'free' in label else 'rows'}.png"
            roofline(target, runs, f"{published.design}, {label}", out / name)
    return words


def show_hiding(title: str, runs: Sequence[tuple[Ran, Ran]]) -> None:
    """A table of a machine's layers."""
    rows = []
    for plain, hidden in runs:
        rows.append(
            (
                plain.layer.name,
                f"{plain.cycles:,.0f}",
                f"{hidden.cycles:,.0f}",
                f"{1 - hidden.cycles / plain.cycles:.0%}",
                f"{plain.used:.0%}",
                f"{hidden.used:.0%}",
                f"{hidden.said / hidden.cycles - 1:+.1%}",
            )
        )
    heads = ("layer", "cycles alone", "hidden", "saved", "used alone", "hidden", "closed form")
    show(title, heads, rows)


def roofline(target: Target, runs: Sequence[tuple[Ran, Ran]], title: str, path: Path) -> None:
    """Operations per second over operations per byte of the bus, without and with hiding."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    hertz, bus = target.machine.hertz, target.machine.dram.bytes_per_cycle
    peak = 2 * runs[0][0].rate * hertz / 1e9
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    x = np.geomspace(4, 4096, 64)
    axes.loglog(x, np.minimum(peak, x * bus * hertz / 1e9), color="black")
    for side, (label, marker) in enumerate((("without hiding", "o"), ("with hiding", "^"))):
        ones = [pair[side] for pair in runs]
        at = [2 * one.layer.multiply_adds / one.moved for one in ones]
        reached = [one.used * peak for one in ones]
        axes.loglog(at, reached, marker, label=label, alpha=0.8)
        for place, one in zip(zip(at, reached, strict=True), ones, strict=True):
            axes.annotate(
                one.layer.name, place, fontsize=6, xytext=(3, 3), textcoords="offset points"
            )
    axes.set_xlabel("operations per byte of the bus")
    axes.set_ylabel("GOPS")
    axes.set_title(title)
    axes.legend()
    figure.savefig(path, dpi=150, bbox_inches="tight")
    pyplot.close(figure)


# ---------------------------------------------------------------- beyond


def search(layers: Sequence[Layer], trials: int) -> list[str]:
    """Each layer tuned on the described machines."""
    words = []
    for name in ("vta", "vta-osdi18"):
        target, rows, tuned = oc.target(name), [], []
        for layer in layers:
            first = ran(target, layer)
            with tempfile.TemporaryDirectory() as folder:
                best = oc.tune(
                    layer.request.program,
                    constants=["W"],
                    trials=trials,
                    target=target,
                    records=Path(folder) / "records.sqlite",
                    progress=False,
                )
            found = ran(target, layer, best)
            tuned.append(found)
            rows.append(
                (
                    layer.name,
                    f"{first.used:.1%}",
                    f"{found.used:.1%}",
                    f"{found.said / found.cycles - 1:+.1%}",
                    " ".join(str(best).split("loops", 1)[1].split()),
                )
            )
        heads = ("layer", "used, policy", "tuned", "closed form", "loops, threads, tiles")
        show(f"{name}: {trials} trials a layer", heads, rows)
        best_one = max(tuned, key=lambda one: one.used)
        words.append(
            f"{name}, tuned: best layer {best_one.layer.name} {best_one.used:.1%}, total {total(tuned):.1%}"
        )
    return words


def sizes(layers: Sequence[Layer]) -> list[str]:
    """Batches and images that fit no tile, beside the layer as it is."""
    target, rows, lost = oc.target("vta"), [], []
    for layer in layers:
        # 33×47 stands for 56×56; deeper layers have as many halvings less
        scale = 56 // layer.h
        odd = replace(layer, batch=3, h=-(-33 // scale), w=-(-47 // scale))
        runs = [ran(target, one) for one in (layer, replace(layer, batch=3), odd)]
        lost.append(1 - runs[2].used / runs[0].used)
        shape = f"3×{odd.h}×{odd.w}"
        rows.append((layer.name, *(f"{one.used:.1%}" for one in runs), shape, f"{lost[-1]:+.1%}"))
    show("odd sizes on vta", ("layer", "used", "batch 3", "odd image", "its shape", "lost"), rows)
    return [
        f"3 images of 33×47 (and their halvings): {min(lost):+.1%} … {max(lost):+.1%} of the use lost"
    ]


def tails(out: Path) -> list[str]:
    """A dense layer of n rows: the rest of an axis in a tile of its own size, in even tiles, in a full tile."""
    target, tile, rows = oc.target("vta"), 32, []
    w = oc.placeholder((256, 256), "int8", name="W")
    worst: dict[str, float] = {}
    for n in (31, 32, 33, 47, 64, 65, 96, 101, 197):
        padded = -(-n // tile) * tile
        even = -(-n // -(-n // tile))
        ways = {"ladder": (n, tile), "even": (n, even), "pad": (padded, tile)}
        cells = {}
        for label, (extent, cut) in ways.items():
            x = oc.placeholder((extent, 256), "int8", name="X")
            output = ops.requantize(ops.dense(x, w, name="S"), SHIFT, name="Y")
            text = (
                "schedule Y\nnest S\n  way chip\n    cover gemm_1x16x16 columns j depth k\n"
                f"    loops i j k\n    virtual j 2\n    split i ladder {cut}\n"
                "    split j pad 64\n    split k pad 128\n"
            )
            request = requested(output, None, {"W": np.zeros((256, 256), np.int8)}, "bench")
            options = replace(DEFAULT, schedule=Schedule.parse(text))
            planned = next(iter(target.space(request.program, request.users, options)))
            seconds = target.simulated(planned, request, options, {})
            cells[label] = n * 256 / (seconds * target.machine.hertz)
            worst[label] = min(worst.get(label, 1.0), cells[label] / (n * 256 / (n * 256)))
        rows.append((str(n), *(f"{cells[label]:.1%}" for label in ways)))
    show(f"n×256 by 256×256, tiles of {tile} rows: used", ("n", "ladder", "even", "pad"), rows)
    return ["a rest in a tile of its own size is never slower than in a full tile"]


def designs(layers: Sequence[Layer], quick: bool, out: Path) -> list[str]:
    """Matrices of 256 multiply-adds, and splits of the same bytes of memory: all layers, by the policy."""
    base = load("vta")
    unit = base.unit[0]
    shapes = [(1, 16, 16), (1, 32, 8), (1, 64, 4), (1, 8, 32), (2, 16, 8), (4, 8, 8)]
    bytes_of = {one.name: one.bytes for one in base.memory}
    whole = sum(bytes_of[name] for name in CAPACITY)
    splits = {"as published": tuple(bytes_of[name] for name in CAPACITY)}
    for parts in ((1, 1, 1), (1, 4, 1), (1, 1, 2), (2, 1, 1), (2, 4, 1)):
        splits["inputs:weights:accumulators " + ":".join(map(str, parts))] = tuple(
            whole * part // sum(parts) // 4096 * 4096 for part in parts
        )
    if quick:
        shapes, splits = shapes[:2], dict(list(splits.items())[:2])
    grid = np.full((len(splits), len(shapes)), np.nan)
    for row, sizes_ in enumerate(splits.values()):
        capacity = dict(zip(CAPACITY, sizes_, strict=True))
        memory = tuple(replace(m, bytes=capacity.get(m.name, m.bytes)) for m in base.memory)
        for column, (rows, columns, terms) in enumerate(shapes):
            made = replace(unit, rows=rows, columns=columns, terms=terms)
            target = oc.target("accelerator", machine=replace(base, memory=memory, unit=(made,)))
            try:
                grid[row, column] = total([ran(target, layer) for layer in layers])
            except oc.OffcutError as refused:
                print(f"  {sizes_}, {rows}×{columns}×{terms}: {refused.because}")
    labels = ["×".join(map(str, shape)) for shape in shapes]
    cells = [
        (name, *(f"{x:.1%}" for x in line))
        for name, line in zip(splits, grid.tolist(), strict=True)
    ]
    show("designs of one area: used over all layers", ("buffers", *labels), cells)
    heat(grid, list(splits), labels, out / "accelerator-designs.png")
    row, column = np.unravel_index(np.nanargmax(grid), grid.shape)
    return [
        f"best design of this area: {labels[column]}, {list(splits)[row]}: {grid[row, column]:.1%}, "
        f"as published {grid[0, 0]:.1%}"
    ]


def heat(grid: Any, rows: Sequence[str], columns: Sequence[str], path: Path) -> None:
    """The designs as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 3.5))
    axes.imshow(grid, aspect="auto", cmap="viridis")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlabel("rows × columns × terms of the matrix unit")
    for (row, column), used in np.ndenumerate(grid):
        axes.text(column, row, f"{used:.0%}", ha="center", va="center", color="white")
    axes.set_title("share of the matrix unit that ResNet-18's layers use")
    figure.savefig(path, dpi=150, bbox_inches="tight")
    pyplot.close(figure)


def show(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    table = Table(title=title)
    for head in heads:
        table.add_column(head)
    for row in rows:
        table.add_row(*row)
    wide_console().print(table)


def main() -> None:
    """Run the parts that are asked for, and say what they found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="three layers, few designs")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; all by default")
    parser.add_argument("--trials", type=int, default=16, help="of the search, a layer (16)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of pictures (out)")
    options = parser.parse_args()
    layers = [one for one in LAYERS if not options.quick or one.name in QUICK]
    options.out.mkdir(parents=True, exist_ok=True)
    parts: Mapping[str, Callable[[], list[str]]] = {
        "hiding": lambda: hiding(layers, options.out),
        "search": lambda: search(layers, 4 if options.quick else options.trials),
        "sizes": lambda: sizes(layers),
        "tails": lambda: tails(options.out),
        "designs": lambda: designs(layers, options.quick, options.out),
    }
    words = [text for part in options.only or PARTS for text in parts[part]()]
    print("\n".join(words))


if __name__ == "__main__":
    main()
