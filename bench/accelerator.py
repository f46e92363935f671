"""The published figures of VTA on the layers of ResNet-18, on the simulator, and what lies beyond them.

    python bench/accelerator.py                    # all parts: a quarter of an hour
    python bench/accelerator.py --quick            # three layers, few designs: a minute
    python bench/accelerator.py --only hiding      # one part: hiding, search, sizes, tails, designs

*hiding* runs each layer by the policy's tiles, with one window of everything and with two: on the machine as it
is described, and calibrated. Then one number of the bus, its bytes a cycle or the cycles of a row,
is such that the best layer without is used as published, by the same programs, and the runs with
them are predicted. *search* tunes the tiles of each layer. *sizes* runs batches and images that fit
no tile, *tails* what is left of an axis by each way to cut it, *designs*
other splits of the same bytes of memory and other matrices of the same area. Cycles are the simulator's; nothing is timed. Writes out/accelerator*.png.
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
from pictures import Point, heat, roofline
from rich.table import Table

import offcut as oc
from offcut import ops
from offcut.backends.accelerator.executor import AcceleratorExecutor
from offcut.backends.accelerator.isa import Stream
from offcut.backends.accelerator.simulator import simulate_timing
from offcut.backends.accelerator.target import Accelerator
from offcut.backends.compile_request import CompileRequest, make_request
from offcut.backends.target import DEFAULT, Options, TargetPlan
from offcut.costmodel import Device, load
from offcut.experiment.outputs import wide_console
from offcut.schedule import At, Schedule

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
    def request(self) -> CompileRequest:
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
def asked(layer: Layer) -> CompileRequest:
    """The layer in int8, its weights known."""
    shape = (layer.window, layer.window, layer.c, layer.o)
    x = oc.placeholder((layer.batch, layer.h, layer.w or layer.h, layer.c), "int8", name="X")
    w = oc.placeholder(shape, "int8", name="W")
    padding = layer.window // 2
    sums = ops.conv2d(x, w, stride=layer.stride, padding=padding, layout="NHWC", name="S")
    output = ops.requantize(sums, SHIFT, name="Y")
    return make_request(output, None, {"W": np.zeros(shape, np.int8)}, "bench")


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

    @property
    def point(self) -> Point:
        """On a roofline."""
        return Point(self.layer.name, 2 * self.layer.multiply_adds / self.moved, self.used)


def ran(target: Accelerator, layer: Layer, schedule: Schedule | None = None) -> Ran:
    """Cycles of a layer by a schedule, or by the policy."""
    request, options = layer.request, replace(DEFAULT, schedule=schedule)
    planned = next(iter(target.policy(request.program, request.users, options)))
    cycles = target.simulated_seconds(planned, request, options, {}) * target.machine.hertz
    return told(target, layer, planned, options, cycles)


def told(
    target: Accelerator, layer: Layer, planned: TargetPlan, options: Options, cycles: float
) -> Ran:
    """What ran in so many cycles, with what the closed form says of it."""
    cost: Any = target.predict_cost(planned, layer.request, options, {})
    assert planned.schedule is not None
    (unit,) = (one for one in target.machine.unit if "int8" in one.of)
    moved = sum(cost.bytes.values())
    return Ran(layer, planned.schedule, cycles, cost.cycles, moved, unit.multiply_adds)


def alone(schedule: Schedule) -> Schedule:
    """The same tiles, one window of everything."""
    steps = (replace(step, depth=1) if isinstance(step, At) else step for step in schedule.steps)
    return replace(schedule, steps=tuple(steps))


def total(runs: Sequence[Ran]) -> float:
    """What the matrix unit is used over all layers, one after the other."""
    return sum(one.layer.multiply_adds for one in runs) / sum(o.cycles * o.rate for o in runs)


def machine(name: str, bus: float | None = None, row: float | None = None) -> Accelerator:
    """A machine, with another bus: bytes per cycle, cycles of a row."""
    base = load(name)
    dram = base.dram
    dram = dram if bus is None else replace(dram, bytes_per_cycle=bus)
    dram = dram if row is None else replace(dram, latency_cycles=max(row, 1e-6))
    return designed(replace(base, dram=dram))


def designed(machine: Device) -> Accelerator:
    """The target of a description."""
    target = oc.target("accelerator", machine=machine)
    assert isinstance(target, Accelerator)
    return target


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


@dataclass(frozen=True)
class Programs:
    """A layer by the same tiles, with one window and with two, ready to be timed on any bus.

    alone  the streams without: the same on each
    """

    layer: Layer
    planned: tuple[TargetPlan, TargetPlan]
    alone: list[Stream]

    def timed(self, target: Accelerator, side: int) -> Ran:
        """One of them on a machine with the memories of the one that it was made for."""
        planned = self.planned[side]
        streams = (
            AcceleratorExecutor(planned.program, target.spec).streams({}) if side else self.alone
        )
        cycles = sum(simulate_timing(stream, target.spec).cycles for stream in streams)
        return told(target, self.layer, planned, DEFAULT, cycles)


def programs(target: Accelerator, layer: Layer) -> Programs:
    """Those that the policy makes for a machine, its depths left out or not."""
    request = layer.request
    hidden = next(iter(target.policy(request.program, request.users, DEFAULT)))
    assert hidden.schedule is not None
    options = replace(DEFAULT, schedule=alone(hidden.schedule))
    plain = next(iter(target.policy(request.program, request.users, options)))
    return Programs(
        layer, (plain, hidden), AcceleratorExecutor(plain.program, target.spec).streams({})
    )


def calibrated(
    published: Published, layers: Sequence[Programs]
) -> Iterator[tuple[str, Accelerator]]:
    """Machines on which the best layer without hiding is used as published: by the bus's rate, by its rows."""
    ways: Mapping[str, tuple[Callable[[float], Accelerator], float, float]] = {
        "bytes a cycle, rows free": (
            lambda x: machine(published.design, bus=x, row=0.0),
            0.5,
            32.0,
        ),
        "cycles a row, 8 bytes a cycle": (lambda x: machine(published.design, row=x), 512.0, 0.0),
    }
    for what, (made, slow, fast) in ways.items():

        def used(x: float, made: Callable[[float], Accelerator] = made) -> float:
            return max(one.timed(made(x), 0).used for one in layers)

        if not used(slow) <= published.without <= used(fast):
            most = f"{used(slow):.0%} … {used(fast):.0%} is used"
            print(f"  {published.source}: no {what} give {published.without:.0%}: {most}")
            continue
        for _ in range(9):
            middle = (slow + fast) / 2
            if used(middle) < published.without:
                slow = middle
            else:
                fast = middle
        yield f"{fast:.3g} {what}", made(fast)


def hiding(layers: Sequence[Layer], out: Path) -> list[str]:
    """Table and roofline of the published experiment; what was found, in words."""
    words = []
    for published in PUBLISHED:
        described = machine(published.design)
        made = [programs(described, layer) for layer in layers]
        for label, target in [("as described", described), *calibrated(published, made)]:
            runs = [(one.timed(target, 0), one.timed(target, 1)) for one in made]
            show_hiding(f"{published.design}: {label}", runs)
            words.append(compared(published, label, runs))
            way = {"as": "described", "cycles": "rows"}.get(
                label.split()[label[0].isdigit()], "bus"
            )
            name = f"accelerator-{published.design}-{way}.png"
            sides = {
                title: [pair[at].point for pair in runs]
                for at, title in enumerate(("without hiding", "with hiding"))
            }
            title = f"{published.design}, {label}"
            roofline(target.machine, runs[0][0].rate, sides, title, out / name)
    return words


def compared(published: Published, label: str, runs: Sequence[tuple[Ran, Ran]]) -> str:
    """What was found, beside what a paper says."""
    saved = [1 - hidden.cycles / plain.cycles for plain, hidden in runs]
    best = [max(one.used for one in side) for side in zip(*runs, strict=True)]
    text = (
        f"{published.source}, {label}: best layer {best[0]:.0%} → {best[1]:.0%} "
        f"(published {published.without:.0%} → {published.with_:.0%})"
        f"; latency {min(saved):.0%} … {max(saved):.0%} less"
    )
    if published.saved is not None:
        least, most = published.saved
        text += f" (published {least:.0%} … {most:.0%})"
    worst = max(abs(o.said / o.cycles - 1) for pair in runs for o in pair)
    slower = sum(hidden.cycles > plain.cycles for plain, hidden in runs)
    text += f"; total {total([p for p, _ in runs]):.0%} → {total([h for _, h in runs]):.0%}"
    return f"{text}; closed form off by {worst:.1%} at most; slower by hiding: {slower} layers"


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


# ---------------------------------------------------------------- beyond


def searched(target: Accelerator, layer: Layer, trials: int) -> Ran:
    """The best of the schedules that a search tries, the policy's among them."""
    with tempfile.TemporaryDirectory() as folder:
        best = oc.tune(
            layer.request.program,
            constants=["W"],
            trials=trials,
            target=target,
            records=Path(folder) / "records.sqlite",
            progress=False,
        )
    return ran(target, layer, best)


def search(layers: Sequence[Layer], trials: int) -> list[str]:
    """Each layer tuned on the described machines."""
    words = []
    for name in ("vta", "vta-osdi18"):
        target, rows, tuned = machine(name), [], []
        for layer in layers:
            first, found = ran(target, layer), searched(target, layer, trials)
            tuned.append(found)
            loops = " ".join(str(found.schedule).split("loops", 1)[1].split())
            off = f"{found.said / found.cycles - 1:+.1%}"
            rows.append((layer.name, f"{first.used:.1%}", f"{found.used:.1%}", off, loops))
        heads = ("layer", "used, policy", "tuned", "closed form", "loops, threads, tiles")
        show(f"{name}: {trials} trials a layer", heads, rows)
        best = max(tuned, key=lambda one: one.used)
        words.append(
            f"{name}, tuned: best layer {best.layer.name} {best.used:.1%} (asked 90%), "
            f"total {total(tuned):.1%} (asked 80%)"
        )
    return words


def sizes(layers: Sequence[Layer], trials: int) -> list[str]:
    """Batches and images that fit no tile, beside the layer as it is.

    Their channels are whole words, and a word of inputs is of one pixel: the matrix unit forces no padding, and what
    is lost is that of the tiles.
    """
    target, rows, lost = machine("vta"), [], []
    for layer in layers:
        # 33×47 stands for 56×56; deeper layers have as many halvings less
        scale = 56 // layer.h
        odd = replace(layer, batch=3, h=-(-33 // scale), w=-(-47 // scale))
        runs = [ran(target, one) for one in (layer, replace(layer, batch=3), odd)]
        runs.append(searched(target, odd, trials))
        lost.append([runs[0].used - one.used for one in runs[2:]])
        shape = f"3×{odd.h}×{odd.w}"
        rows.append(
            (
                layer.name,
                *(f"{one.used:.1%}" for one in runs[:2]),
                shape,
                *(f"{one.used:.1%}" for one in runs[2:]),
            )
        )
    show(
        "odd sizes on vta: used",
        ("layer", "batch 1", "batch 3", "odd images", "policy", "tuned"),
        rows,
    )
    policy, tuned = (max(one) for one in zip(*lost, strict=True))
    return [
        f"3 images of 33×47 and their halvings: at most {policy:.1%} of the matrix unit less than the layer as it "
        f"is by the policy, {tuned:.1%} by {trials} trials; the unit forces 0.0%"
    ]


TAIL = (
    "schedule Y\nnest S\n  way chip\n    cover gemm_1x16x16 columns j depth k\n    loops i j k\n"
    "    depth j 2\n    split i ladder {cut}\n    split j pad 64\n    split k pad 128\n"
)


def tails() -> list[str]:
    """A dense layer of n rows: the rest of an axis in a tile of its own size, in even tiles, in a full tile."""
    target, tile, rows, gained = machine("vta"), 32, [], []
    for n in (31, 32, 33, 47, 64, 65, 96, 101, 197):
        padded = -(-n // tile) * tile
        even = -(-n // -(-n // tile))
        ways = [(n, tile), (n, even), (padded, tile)]
        cycles = [dense_cycles(target, extent, TAIL.format(cut=cut)) for extent, cut in ways]
        gained.append(min(cycles[2] / one for one in cycles[:2]))
        used = (f"{n * 256 / one:.1%}" for one in cycles)
        rows.append((str(n), *used, f"{padded / n - 1:.0%}", f"{cycles[2] / cycles[0] - 1:+.0%}"))
    heads = ("n", "ladder", "even", "pad", "rows that pad adds", "its cycles")
    show(f"n×256 by 256×256, tiles of {tile} rows: used", heads, rows)
    return [
        f"a rest of its own size, or even tiles: {min(gained):.2f} × … {max(gained):.2f} × as fast as padding"
    ]


def dense_cycles(target: Accelerator, extent: int, schedule: str) -> float:
    """Cycles of so many rows by 256×256."""
    x = oc.placeholder((extent, 256), "int8", name="X")
    w = oc.placeholder((256, 256), "int8", name="W")
    output = ops.requantize(ops.dense(x, w, name="S"), SHIFT, name="Y")
    request = make_request(output, None, {"W": np.zeros((256, 256), np.int8)}, "bench")
    options = replace(DEFAULT, schedule=Schedule.parse(schedule))
    planned = next(iter(target.policy(request.program, request.users, options)))
    return target.simulated_seconds(planned, request, options, {}) * target.machine.hertz


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
            target = designed(replace(base, memory=memory, unit=(made,)))
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
    row, column = divmod(int(np.nanargmax(grid)), len(shapes))
    return [
        f"best design of this area: {labels[column]}, {list(splits)[row]}: {grid[row, column]:.1%}, "
        f"as published {grid[0, 0]:.1%}"
    ]


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
    trials = 4 if options.quick else options.trials
    options.out.mkdir(parents=True, exist_ok=True)
    parts: Mapping[str, Callable[[], list[str]]] = {
        "hiding": lambda: hiding(layers, options.out),
        "search": lambda: search(layers, trials),
        "sizes": lambda: sizes(layers, trials),
        "tails": tails,
        "designs": lambda: designs(layers, options.quick, options.out),
    }
    words = [text for part in options.only or PARTS for text in parts[part]()]
    print("\n".join(words))


if __name__ == "__main__":
    main()
