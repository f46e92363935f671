"""ResNet-18 in 8-bit integers, with random weights, as a graph of operators of `oc.ops`.

A layer is ``clip((x * w + bias) >> shift)``, with a shift such that results spread over some part of int8: for
terms of independent weights and elements of the widths WEIGHT and ELEMENT, a sum of k of them has the width
``sqrt(k) * WEIGHT * ELEMENT``. A shortcut is added behind the shift.

Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offcut.core.expr import Const, Expr
from offcut.graph import Bound, Builder, Ref

WIDTHS = (64, 64, 128, 256, 512)
CLASSES = 1000
WEIGHT, ELEMENT = 5.0, 25.0
"""Standard deviations: of weights, and of elements as they are hoped for."""


@dataclass(frozen=True)
class Layer:
    """The constants of a convolution or a dense layer, and the shift behind it.

    weights  int8, (kh, kw, c, o) or (c, o); bias int32, (o,)
    """

    weights: NDArray[np.int8]
    bias: NDArray[np.int32]
    shift: int
    stride: int = 1


@dataclass(frozen=True)
class Block:
    """Two convolutions beside a shortcut, which is a convolution where shapes differ."""

    one: Layer
    two: Layer
    short: Layer | None


@dataclass(frozen=True)
class Weights:
    """All constants; `image` is the extent of the square images."""

    image: int
    stem: Layer
    blocks: tuple[Block, ...]
    head: Layer


def drawn(
    image: int = 224, widths: Sequence[int] = WIDTHS, classes: int = CLASSES, seed: int = 0
) -> Weights:
    """Random constants: the first of `widths` is that of the stem, each other one of two blocks."""
    generator = np.random.default_rng(seed)

    def layer(window: int, c: int, o: int, stride: int = 1) -> Layer:
        shape = (window, window, c, o) if window else (c, o)
        terms = math.prod(shape[:-1])
        weights = generator.normal(0, WEIGHT, shape).round().clip(-127, 127).astype(np.int8)
        bias = generator.integers(-500, 500, o, np.int32)
        return Layer(weights, bias, max(round(math.log2(math.sqrt(terms) * WEIGHT)), 0), stride)

    stem = layer(7, 3, widths[0], 2)
    blocks: list[Block] = []
    for c, o in pairwise(widths):
        step = 1 if c == o else 2
        short = layer(1, c, o, step) if step > 1 else None
        blocks.append(Block(layer(3, c, o, step), layer(3, o, o), short))
        blocks.append(Block(layer(3, o, o), layer(3, o, o), None))
    return Weights(image, stem, tuple(blocks), layer(0, widths[-1], classes))


def graph(weights: Weights, most: int = 64) -> Bound:
    """The network for batches of 1 to `most` images, (batch, image, image, 3) of int8; it gives int32 scores."""
    made = Builder("resnet18")
    batch = made.size("batch", 1, most)
    x = made.input("image", "int8", (batch, weights.image, weights.image, 3))
    x = _layer(made, x, weights.stem, low=0)
    x = made.node("max_pool2d", x, 3, stride=2, padding=1, layout="NHWC")
    for block in weights.blocks:
        x = _block(made, x, block)
    pixels = math.prod(_number(extent) for extent in made.shape(x)[1:3])
    total = made.node("sum", x, (1, 2))
    mean = made.node("cast", made.node("floor_divide", total, pixels), "int8")
    made.output(made.node("dense", mean, *_constants(made, weights.head)))
    return made.bound


def _number(extent: Expr) -> int:
    assert isinstance(extent, Const)
    return int(extent.value)


def _block(made: Builder, x: Ref, block: Block) -> Ref:
    inner = _layer(made, x, block.one, low=0)
    sums = _sums(made, inner, block.two)
    beside = x if block.short is None else _layer(made, x, block.short)
    found: Ref = made.node("requantize", sums, block.two.shift, low=0, residual=beside)
    return found


def _layer(made: Builder, x: Ref, layer: Layer, low: int | None = None) -> Ref:
    found: Ref = made.node("requantize", _sums(made, x, layer), layer.shift, low=low)
    return found


def _sums(made: Builder, x: Ref, layer: Layer) -> Ref:
    padding = layer.weights.shape[0] // 2
    options: dict[str, Any] = {"stride": layer.stride, "padding": padding, "layout": "NHWC"}
    found: Ref = made.node("conv2d", x, *_constants(made, layer), **options)
    return found


def _constants(made: Builder, layer: Layer) -> tuple[Ref, Ref]:
    weights = made.constant(made.fresh("weights"), layer.weights)
    return weights, made.constant(made.fresh("bias"), layer.bias)
