"""Windows of sequences, images and volumes, and padding and repetition by any amounts, composed of ours.

Padding and repetition by any amounts, those that depend on sizes too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from offcut.graph.call_conditions import extent_tensor
from offcut.graph.sizes.extent_values import Extent, arithmetic, extent, plain, product
from offcut.graph.sizes.extents import places
from offcut.plugins.operators.translator import Translator


@dataclass(frozen=True)
class Windows:
    """Windows over spatial axes, one entry for each axis.

    sizes          elements of a window
    before, after  elements of padding
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def padding(self) -> tuple[tuple[int, int], ...]:
        """Return the padding as `offcut.ops` takes it."""
        return tuple(zip(self.before, self.after, strict=True))

    @property
    def reach(self) -> tuple[int, ...]:
        """Return the elements from the first of a window to the last."""
        each = zip(self.sizes, self.dilations, strict=True)
        return tuple((size - 1) * dilation + 1 for size, dilation in each)

    def part(self, axes: Sequence[int]) -> Windows:
        """Return the windows along some of the axes."""
        fields = (self.sizes, self.strides, self.dilations, self.before, self.after)
        return Windows(*(tuple(one[axis] for axis in axes) for one in fields))

    def beside(self, other: Windows) -> Windows:
        """Return these windows, followed by those of other axes."""
        return Windows(
            self.sizes + other.sizes,
            self.strides + other.strides,
            self.dilations + other.dilations,
            self.before + other.before,
            self.after + other.after,
        )


UNIT_WINDOWS = Windows((1,), (1,), (1,), (0,), (0,))
"""Of an axis of which each element is a window."""


def pool(t: Translator, x: Any, windows: Windows, op: str, **options: Any) -> tuple[Any, ...]:
    """Return the results of pooling over one to three spatial axes, two at a time.

    x   (n, c, …)
    op  the operator over two axes; over three it has one result, and may be taken axis by axis
    """
    axes = len(windows.sizes)
    if axes == 1:
        n, c, length = t.shape(x)
        made = pool(t, t.reshape(x, (n, c, 1, length)), UNIT_WINDOWS.beside(windows), op, **options)
        return tuple(t.reshape(one, (n, c, t.shape(one)[3])) for one in made)
    if axes == 2:
        if op.startswith("max_pool2d"):
            options["dilation"] = windows.dilations
        around = {"stride": windows.strides, "padding": windows.padding}
        results = t.node(op, x, windows.sizes, **around, **options)
        return results if isinstance(results, tuple) else (results,)
    n, c, d, h, w = t.shape(x)
    (images,) = pool(
        t, t.reshape(x, (n, product((c, d)), h, w)), windows.part((1, 2)), op, **options
    )
    _, _, rows, columns = t.shape(images)
    lines = t.reshape(images, (n, c, d, product((rows, columns))))
    (result,) = pool(t, lines, windows.part((0,)).beside(UNIT_WINDOWS), op, **options)
    return (t.reshape(result, (n, c, t.shape(result)[2], rows, columns)),)


def crop_windows(t: Translator, x: Any, counts: Sequence[Extent | None]) -> Any:
    """Return the first windows along each spatial axis, as many as `counts` says; None: all."""
    for axis, count in enumerate(counts, start=2):
        x = x if count is None else t.slice(x, axis, 0, count)
    return x


def transposed_convolution(t: Translator, x: Any, w: Any, **options: Any) -> Any:
    """Return a transposed convolution over one to three spatial axes; over one it is that of images of one row.

    options  of `offcut.ops.conv_transpose2d`, those of spatial axes one for each
    """
    axes = t.rank(w) - 2
    if axes > 1:
        return t.node(f"conv_transpose{axes}d", x, w, **options)
    rows = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
    options |= {name: (row, *options[name]) for name, row in rows.items() if name in options}
    images, filters = (t.reshape(one, (*t.shape(one)[:2], 1, t.shape(one)[2])) for one in (x, w))
    result = t.node("conv_transpose2d", images, filters, **options)
    return t.reshape(result, (*t.shape(result)[:2], t.shape(result)[3]))


def fold(t: Translator, x: Any, image: Sequence[Extent], windows: Windows) -> Any:
    """Return rows of windows, added up at their places in an image: torch's ``col2im``, ONNX's ``Col2Im``.

    x  (n, c * elements of a window, places)
    """
    batch, merged, _ = t.shape(x)
    padded = map(extent, image, windows.before, windows.after)
    counts = map(plain, map(places, padded, windows.reach, windows.strides))
    channels = arithmetic("//", merged, product(windows.sizes))
    apart = t.reshape(x, (batch, channels, *windows.sizes, *counts))
    return t.node(
        "fold",
        apart,
        tuple(image),
        stride=windows.strides,
        padding=windows.padding,
        dilation=windows.dilations,
    )


def pad(
    t: Translator, x: Any, before: Sequence[Extent], after: Sequence[Extent], mode: str, value: Any
) -> Any:
    """Return `x` with elements around it.

    before, after  how many along each axis; below 0, as many are left out
    mode           constant, edge or reflect; but for the first the axis has an element to repeat, or enough to mirror
    value          of the elements, where they are constant
    """
    amounts = tuple(zip(before, after, strict=True))
    if all(one == (0, 0) for one in amounts):
        return x
    if mode == "constant":
        return t.node("pad", x, tuple(before), tuple(after), value=value)
    numbers = [n for n in (*before, *after) if isinstance(n, int) and n >= 0]
    if len(numbers) == 2 * len(amounts):
        for whole, *both in zip(t.shape(x), numbers, numbers[len(amounts) :], strict=False):
            t.require_at_least(whole, (max(both) > 0) + max(both) * (mode == "reflect"))
        return t.node("pad", x, tuple(before), tuple(after), mode=mode)
    for axis, (low, high) in enumerate(amounts):
        if (low, high) != (0, 0):
            gone = (-one for one in (low, high) if isinstance(one, int) and one < 0)
            t.require_at_least(t.shape(x)[axis], 1 + sum(gone))
            x = _pad_axis(t, x, axis, low, high, mode)
    return x


def wrap(t: Translator, x: Any, before: Sequence[int], after: Sequence[int]) -> Any:
    """Return `x` with the other end of each axis put before and after it, as many elements as these say, none below 0."""
    for axis, (low, high) in enumerate(zip(before, after, strict=True)):
        whole = t.shape(x)[axis]
        parts = [t.slice(x, axis, extent(whole, -low), whole)] if low else []
        parts += [x, *([t.slice(x, axis, 0, high)] if high else [])]
        x = t.node("concat", tuple(parts), axis=axis) if len(parts) > 1 else x
    return x


def _pad_axis(t: Translator, x: Any, axis: int, before: Extent, after: Extent, mode: str) -> Any:
    """Return `x` with elements put before and after it along an axis.

    Elements are taken by their places, so that a call is refused in which there are too few to mirror.
    """
    whole = t.shape(x)[axis]
    places = t.node("iota", extent(whole, before, after), "int64")
    if before != 0:
        start = before if isinstance(before, int) else extent_tensor(t.node, before, "int64")
        places = t.node("subtract", places, start)
    last = t.node("subtract", extent_tensor(t.node, whole, "int64"), 1)
    if mode == "edge":
        places = t.node("minimum", t.node("maximum", places, 0), last)
    else:
        over = t.node("subtract", last, t.node("absolute", places))
        places = t.node("subtract", last, t.node("absolute", over))
    return t.node("take", x, places, axis=axis, from_end=False)


def tile(t: Translator, x: Any, counts: Sequence[Extent]) -> Any:
    """Return all of `x`, as often as sizes say along each axis: new axes that are merged with the next.

    counts  one for each axis
    """
    shape = t.shape(x)
    pairs = tuple(zip(counts, shape, strict=True))
    merged = tuple(map(product, pairs))
    if all(1 in pair for pair in pairs):
        return t.node("broadcast_to", x, merged)
    apart = t.reshape(x, tuple(one for own in shape for one in (1, own)))
    spread = t.node("broadcast_to", apart, tuple(one for pair in pairs for one in pair))
    return t.reshape(spread, merged)
