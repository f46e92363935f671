"""Cycles of some sixty layers on VTA, VTA of OSDI'18 and Gemmini, by the policy's schedules, on the simulator: to compare two commits.

    python bench/accelerator_layers.py --out new.json                     # a quarter of an hour
    python bench/accelerator_layers.py --out new.json --against old.json  # and what takes longer than there
    python bench/accelerator_layers.py --quick --cells 'vta/dense'        # some of them

Dense layers with and without a residual, convolutions, groups, pooling, maxima of rows, element-wise chains; rows from 1 to
513, images from 1 to 8. Nothing is timed.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from functools import partial
from math import exp, log
from pathlib import Path
from typing import Any

import offcut as oc
from offcut import Tensor, ops
from offcut.backends.accelerator.executor import AcceleratorExecutor
from offcut.backends.accelerator.simulator import simulate_timing
from offcut.backends.accelerator.target import Accelerator
from offcut.backends.compile_request import make_request
from offcut.backends.target import DEFAULT

MACHINES = ("vta", "vta-osdi18", "gemmini")
ROWS, IMAGES = (1, 2, 7, 8, 16, 37, 64, 130, 200, 513), (1, 2, 3, 7, 8)
QUICK = 3
"""Sizes of a layer."""
LONGER = 1.01
"""What is shown takes more than so many times the cycles."""

Layer = tuple[Callable[[], Tensor], tuple[int, ...]]


def clipped(total: Tensor, shift: int) -> Tensor:
    """Sums, shifted, as int8."""
    return ops.requantize(total, shift, name="Y")


def placeholder(name: str, *shape: Any) -> Tensor:
    """An array of int8."""
    return oc.placeholder(shape, "int8", name=name)


def batch(most: int = max(ROWS)) -> Any:
    """The size that varies."""
    return oc.dim("n", min=0, max=most)


def dense(depth: int, columns: int, residual: bool = False) -> Tensor:
    """Rows by known weights."""
    n = batch()
    sums = ops.dense(placeholder("A", n, depth), placeholder("W", depth, columns), name="S")
    return added(sums, placeholder("R", n, columns)) if residual else clipped(sums, 6)


def added(sums: Tensor, residual: Tensor) -> Tensor:
    """Sums, shifted, bounded and added to a residual."""
    axes = [axis.name for axis in sums.definition.axes] if sums.definition else None
    total = oc.compute(
        sums.shape,
        lambda *at: oc.maximum(sums[at] // 16, 0) + residual[at].astype("int32"),
        axes=axes,
        name="T",
    )
    return clipped(total, 2)


def convolution(
    image: int,
    channels: int,
    results: int,
    kernel: int = 3,
    stride: int = 1,
    layout: str = "NHWC",
    images: int | None = 1,
    groups: int = 1,
    residual: bool = False,
) -> Tensor:
    """A layer on square images; `images` None: of a batch that varies."""
    n = batch(max(IMAGES)) if images is None else images
    inner, side = channels // groups, -(-image // stride)
    last = layout == "NHWC"
    x = placeholder("X", *((n, image, image, channels) if last else (n, channels, image, image)))
    shape = (kernel, kernel, inner, results) if last else (results, inner, kernel, kernel)
    sums = ops.conv2d(
        x,
        placeholder("K", *shape),
        stride=stride,
        padding=kernel // 2,
        layout=layout,
        groups=groups,
        name="S",
    )
    if not residual:
        return clipped(sums, 9)
    return added(
        sums, placeholder("R", *((n, side, side, results) if last else (n, results, side, side)))
    )


def pooling(image: int, channels: int, kernel: int, stride: int, images: int | None = 1) -> Tensor:
    """The greatest of windows, padded where they are of three."""
    x = placeholder("X", batch(64) if images is None else images, image, image, channels)
    return ops.max_pool2d(x, kernel, stride, (kernel - 1) // 2, layout="NHWC", name="Y")


def row_maximum(columns: int) -> Tensor:
    """The greatest of each row."""
    x, k = placeholder("X", batch(), columns), oc.reduce_axis(columns, name="k")
    return oc.compute((x.shape[0],), lambda i: oc.max(x[i, k], axis=k), name="Y")


def less_maximum(columns: int) -> Tensor:
    """Rows less the greatest of each."""
    x, k = placeholder("X", batch(), columns), oc.reduce_axis(columns, name="k")
    most = oc.compute((x.shape[0],), lambda i: oc.max(x[i, k], axis=k), name="M")
    return clipped(
        oc.compute(x.shape, lambda i, j: x[i, j].astype("int32") - most[i].astype("int32")), 1
    )


def mean(columns: int) -> Tensor:
    """Of two arrays, element by element."""
    n = batch()
    x, z = placeholder("X", n, columns), placeholder("Z", n, columns)
    return clipped(
        oc.compute(x.shape, lambda i, j: x[i, j].astype("int32") + z[i, j].astype("int32")), 1
    )


# Source: the layers of the OSDI 2018 paper on TVM.
RESNET = {
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


def layers() -> dict[str, Layer]:
    """All layers, with the sizes that each is run at."""
    found: dict[str, Layer] = {
        name: (partial(convolution, *layer), ()) for name, layer in RESNET.items()
    }
    for depth, columns in (
        *((70, 45), (200, 200), (64, 64), (128, 512), (768, 768)),
        *((768, 3072), (37, 100), (512, 16)),
    ):
        found[f"dense {depth}×{columns}"] = partial(dense, depth, columns), ROWS
    for depth, columns in ((70, 45), (256, 256)):
        found[f"dense {depth}×{columns}, residual"] = partial(dense, depth, columns, True), ROWS
    for layout in ("NHWC", "NCHW"):
        own = partial(convolution, layout=layout)
        for image, channels, open_ in (
            *((6, 24, True), (14, 64, True)),
            *((28, 128, False), (56, 64, False)),
        ):
            images, sizes = (None, IMAGES) if open_ else (1, ())
            made = partial(own, image, channels, channels, images=images, residual=True)
            found[f"{image}×{image}×{channels} {layout}, residual"] = made, sizes
        for groups, residual in ((2, False), (2, True), (24, False)):
            name = f"14×14×24 {layout}, {groups} groups{', residual' if residual else ''}"
            made = partial(own, 14, 24, 24, images=None, groups=groups, residual=residual)
            found[name] = made, IMAGES
    for image, channels, kernel, stride, images in (
        *((7, 24, 3, 2, None), (14, 32, 3, 1, None), (28, 64, 2, 2, None)),
        *((56, 64, 3, 2, 1), (112, 64, 3, 2, 1)),
    ):
        name = f"pooling {image}×{image}×{channels} by {kernel}"
        made = partial(pooling, image, channels, kernel, stride, images)
        found[name] = made, IMAGES if images is None else ()
    for columns in (64, 100, 300):
        found[f"maxima of {columns}"] = partial(row_maximum, columns), ROWS
    for columns in (100, 256):
        found[f"mean of {columns}"] = partial(mean, columns), ROWS
    found["100 less their maximum"] = partial(less_maximum, 100), ROWS
    return found


def cycles(target: Accelerator, layer: Layer, most: int) -> dict[str, float]:
    """Cycles of a layer by its size, of `most` sizes."""
    make, sizes = layer
    request = make_request(make(), None, {}, "bench")
    planned = next(iter(target.policy(request.program, request.users, DEFAULT)))
    executor = AcceleratorExecutor(planned.program, target.spec)
    names = [size.name for size in planned.program.sizes]
    found = {}
    step = max(-(-len(sizes) // most), 1)
    for size in sizes[::step] or (1,):
        streams = executor.streams(dict.fromkeys(names, size))
        found[str(size)] = sum(simulate_timing(one, target.spec).cycles for one in streams)
    return found


def main() -> None:
    """Read the command line, run, compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} sizes of each layer")
    parser.add_argument("--cells", default="", help="a regular expression: machine/layer")
    parser.add_argument("--out", type=Path, help="a file of cycles")
    parser.add_argument("--against", type=Path, help="such a file, of another commit")
    asked = parser.parse_args()
    most = QUICK if asked.quick else max(len(ROWS), len(IMAGES))
    found: dict[str, float] = {}
    for machine in MACHINES:
        target = oc.target(machine)
        assert isinstance(target, Accelerator)
        for name, layer in layers().items():
            if re.search(asked.cells, f"{machine}/{name}"):
                own = cycles(target, layer, most)
                print(f"{machine}/{name}: {', '.join(f'{n}: {c:,.0f}' for n, c in own.items())}")
                found |= {f"{machine}/{name}/{size}": count for size, count in own.items()}
    if asked.out is not None:
        asked.out.write_text(json.dumps(found, indent=1), encoding="utf-8")
    if asked.against is not None:
        old = json.loads(asked.against.read_text(encoding="utf-8"))
        times = {cell: found[cell] / old[cell] for cell in found if cell in old}
        longer = sorted((times[c], c) for c in times if times[c] > LONGER)
        for more, cell in reversed(longer):
            print(f"{more:.3f} {cell}: {old[cell]:,.0f} -> {found[cell]:,.0f}")
        mean_of_all = exp(sum(map(log, times.values())) / max(len(times), 1))
        print(f"{len(longer)} of {len(times)} take longer; all of them {mean_of_all:.3f} times")


if __name__ == "__main__":
    main()
