"""The 3×3 and 1×1 convolutions of ResNet-50 at every kind of batch and image: offcut against every peer.

    python bench/conv2d.py            # all of it: an hour
    python bench/conv2d.py --quick    # a few layers: under a minute

float32, constant weights, one kernel of offcut's per layer and order of axes, for every batch and
image. torch and offcut take images with the channels second or last, whichever is faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from offcut.experiment.bench import Group, main
from offcut.experiment.contraction import Array
from offcut.experiment.operators import Convolution
from offcut.experiment.table import Asked

ASKED = Asked(mean=1.05, worst=0.9, share=0.85)
BATCHES = (1, 2, 3, 5, 8, 13)


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: windows of `window` × `window`, images of `image` × `image` as ResNet-50 has them."""

    window: int
    channels: int
    outputs: int
    image: int
    stride: int = 1

    def __str__(self) -> str:
        step = f" stride {self.stride}" if self.stride > 1 else ""
        return f"{self.window}×{self.window} {self.channels}→{self.outputs}{step}"


LAYERS = (
    *(Layer(3, c, c, image) for c, image in ((64, 56), (128, 28), (256, 14), (512, 7))),
    *(Layer(3, c, c, image, 2) for c, image in ((128, 56), (256, 28), (512, 14))),
    *(Layer(1, 64, 64, 56), Layer(1, 64, 256, 56), Layer(1, 256, 64, 56)),
    *(Layer(1, 256, 128, 56), Layer(1, 128, 512, 28), Layer(1, 512, 128, 28)),
    *(Layer(1, 512, 256, 28), Layer(1, 256, 1024, 14), Layer(1, 1024, 256, 14)),
    *(Layer(1, 1024, 512, 14), Layer(1, 512, 2048, 7), Layer(1, 2048, 512, 7)),
    *(Layer(1, 256, 512, 56, 2), Layer(1, 512, 1024, 28, 2), Layer(1, 1024, 2048, 14, 2)),
)
QUICK_LAYERS = (Layer(3, 128, 128, 28), Layer(3, 512, 512, 7), Layer(1, 256, 1024, 14))


def group(layer: Layer, sizes: Sequence[tuple[int, int]]) -> Group:
    """A layer at several sizes, (batch, image); weights are drawn with the first."""
    held: list[Array] = []

    def task(batch: int, image: int) -> Convolution:
        rng = np.random.default_rng(batch)
        window = (layer.window, layer.window)
        if not held:
            shape = (layer.outputs, layer.channels, *window)
            held.append(rng.standard_normal(shape, dtype=np.float32))
        given = rng.standard_normal((batch, layer.channels, image, image), dtype=np.float32)
        return Convolution(given, held[0], layer.stride, layer.window // 2)

    return Group(str(layer), {f"{b} × {s}²": partial(task, b, s) for b, s in sizes})


def sizes(layer: Layer, quick: bool) -> tuple[tuple[int, int], ...]:
    """Batches of the image that the layer has, then images that are one off."""
    if quick:
        return (1, layer.image), (3, layer.image), (1, layer.image + 1)
    odd = tuple((b, layer.image + off) for b in (1, 3) for off in (-1, 1))
    return (*((b, layer.image) for b in BATCHES), *odd)


def groups(quick: bool) -> Iterator[Group]:
    """A group for each layer."""
    for layer in QUICK_LAYERS if quick else LAYERS:
        yield group(layer, sizes(layer, quick))


if __name__ == "__main__":
    main(__doc__ or "", groups, ASKED)
