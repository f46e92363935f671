"""Pooling of volumes, whose images are pooled, and then lines along the depth; adaptive pooling of images and volumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from offcut.graph import Ref
from offcut.graph.sizes.numbers import product
from offcut.plugins.torch.rules.convolutions import averaged, pooled, spread, without_batch
from offcut.plugins.torch.table import takes
from offcut.plugins.torch.translation import Translation


@takes("max_pool3d_with_indices")
def max_pool_indices(t: Translation, x: Ref, *given: Any) -> Any:
    return max_pool(t, x, *given), None


@takes("max_pool3d")
def max_pool(
    t: Translation,
    x: Ref,
    window: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil: bool = False,
) -> Any:
    far = spread(dilation, 3)
    images, depth = {"dilation": far[1:]}, {"dilation": (far[0], 1)}
    return _pooled(t, "max_pool2d", x, (window, stride, padding), ceil, images, depth)


@takes("avg_pool3d")
def avg_pool(
    t: Translation,
    x: Ref,
    window: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Any:
    each = averaged(spread(padding, 3), ceil, count_include_pad, divisor)
    return _pooled(t, "avg_pool2d", x, (window, stride, padding), ceil, each, each)


def _pooled(
    t: Translation,
    op: str,
    x: Ref,
    windows: tuple[Any, Any, Any],
    ceil: bool,
    images: dict[str, Any],
    depth: dict[str, Any],
) -> Any:
    """Windows of images, then of depth.

    windows        extents, strides, padding
    images, depth  further options of each
    """
    window, stride, padding = windows
    sizes, pads = spread(window, 3), spread(padding, 3)
    strides = spread(stride, 3) if stride not in ((), []) else sizes
    batch = x if t.rank(x) == 5 else t.reshape(x, (1, *t.shape(x)))
    n, c, d, h, w = t.shape(batch)
    ends = t.extents[-3:] if ceil else None
    flat = t.reshape(batch, (n, product((c, d)), h, w))
    (within,) = pooled(
        t, op, flat, sizes[1:], strides[1:], pads[1:], None if ends is None else ends[1:], images
    )
    _, _, rows, columns = t.shape(within)
    lines = t.reshape(within, (n, c, d, product((rows, columns))))
    pixels = t.shape(lines)[3]
    (found,) = pooled(
        t,
        op,
        lines,
        (sizes[0], 1),
        (strides[0], 1),
        (pads[0], 0),
        None if ends is None else (ends[0], pixels),
        depth,
    )
    found = t.reshape(found, (n, c, t.shape(found)[2], rows, columns))
    return found if t.rank(x) == 5 else without_batch(t, found)


def _adaptive(reduction: str) -> Callable[..., Any]:
    """Return the rule for so many windows along each of two axes, or of three; "mean" or "max"."""
    op = {"mean": "adaptive_avg_pool2d", "max": "adaptive_max_pool2d"}[reduction]

    def pool(t: Translation, x: Ref, size: Sequence[Any]) -> Ref:
        if len(size) == 2:
            pooled_images: Ref = t.node(op, x, tuple(size))
            return pooled_images
        n, c, depth, *image = t.shape(x)
        within = t.node(op, t.reshape(x, (n, product((c, depth)), *image)), tuple(size[1:]))
        pixels = product(size[1:])
        lines = t.node(op, t.reshape(within, (n, c, depth, pixels)), (size[0], pixels))
        return t.reshape(lines, (n, c, *size))

    def rule(t: Translation, x: Ref, size: Sequence[Any]) -> Any:
        if all(one == 1 for one in size):
            found = t.node(reduction, x, axis=tuple(range(-len(size), 0)), keepdims=True)
        elif t.rank(x) == len(size) + 2:
            found = pool(t, x, size)
        else:
            found = without_batch(t, pool(t, t.reshape(x, (1, *t.shape(x))), size))
        return found if reduction == "mean" else (found, None)

    return rule


for _axes in (2, 3):
    takes(f"adaptive_avg_pool{_axes}d", f"_adaptive_avg_pool{_axes}d")(_adaptive("mean"))
    takes(f"adaptive_max_pool{_axes}d")(_adaptive("max"))
