"""Rules that translate operators of Relax into `offcut.ops`, from operands and attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import offcut.ops as ops
from offcut.core.function_table import FUNCTIONS
from offcut.describe.tensor import Tensor
from offcut.plugins.tvm.import_tir import import_error

Operator = Callable[..., Tensor]
Rule = Callable[[Sequence[Tensor], Any], Tensor]

_BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_REDUCTIONS = ("sum", "mean", "max", "min")
_ELEMENTWISE = {
    **{f"nn.{name}": name for name in ("relu", "gelu", "gelu_tanh", "silu")},
    **{name: name for name in ("rsqrt", "negative", "square", "sigmoid")},
    **{row.relax: row.public for row in FUNCTIONS.values() if row.relax and row.public},
}


def _elementwise(operator: Operator) -> Rule:
    return lambda operands, _: operator(*operands)


def _reduction(operator: Operator) -> Rule:
    def rule(operands: Sequence[Tensor], attributes: Any) -> Tensor:
        axes = attributes.axis
        return operator(
            operands[0],
            axis=None if axes is None else tuple(map(int, axes)),
            keepdims=bool(attributes.keepdims),
        )

    return rule


def _check_last_axis(operator: str, x: Tensor, attributes: Any) -> None:
    """Reject a norm along other axes than the last; raises DescribeError."""
    if [int(axis) % len(x.shape) for axis in attributes.axes] != [len(x.shape) - 1]:
        raise import_error(
            operator, f"it is along axes {[*map(int, attributes.axes)]}, not the last"
        )


def _layer_norm(operands: Sequence[Tensor], attributes: Any) -> Tensor:
    _check_last_axis("layer_norm", operands[0], attributes)
    x, gain, bias = operands
    return ops.layernorm(
        x,
        gain if attributes.scale else None,
        bias if attributes.center else None,
        float(attributes.epsilon),
    )


def _rms_norm(operands: Sequence[Tensor], attributes: Any) -> Tensor:
    _check_last_axis("rms_norm", operands[0], attributes)
    return ops.rmsnorm(operands[0], operands[1], float(attributes.epsilon))


def _paddings(padding: Sequence[Any]) -> list[tuple[int, int]]:
    """Return the padding before and after each axis, from TVM's order: before all axes, then after all."""
    half = len(padding) // 2
    return [(int(a), int(b)) for a, b in zip(padding[:half], padding[half:], strict=True)]


def _conv2d(operands: Sequence[Tensor], attributes: Any) -> Tensor:
    layouts = (attributes.data_layout, attributes.kernel_layout, attributes.out_layout)
    if layouts != ("NCHW", "OIHW", "NCHW"):
        raise import_error("conv2d", f"its layouts are {', '.join(layouts)}")
    return ops.conv2d(
        operands[0],
        operands[1],
        stride=tuple(map(int, attributes.strides)),
        padding=_paddings(attributes.padding),
        dilation=tuple(map(int, attributes.dilation)),
        groups=int(attributes.groups),
    )


def _pooling(operator: Operator, **options: Any) -> Rule:
    def rule(operands: Sequence[Tensor], attributes: Any) -> Tensor:
        if attributes.ceil_mode or (attributes.layout, attributes.out_layout) != ("NCHW", "NCHW"):
            raise import_error("pool2d", "it rounds extents up, or is not NCHW")
        attribute_values = {
            "dilation": tuple(map(int, attributes.dilation)),
            "count_include_pad": bool(attributes.count_include_pad),
        }
        return operator(
            operands[0],
            tuple(map(int, attributes.pool_size)),
            tuple(map(int, attributes.strides)),
            _paddings(attributes.padding),
            **{name: attribute_values[name] for name in options},
        )

    return rule


def _avg_pool2d(operands: Sequence[Tensor], attributes: Any) -> Tensor:
    if any(int(by) != 1 for by in attributes.dilation):
        raise import_error("avg_pool2d", "its windows have holes")
    return _pooling(ops.avg_pool2d, count_include_pad=True)(operands, attributes)


def _transpose(operands: Sequence[Tensor], attributes: Any) -> Tensor:
    axes = attributes.axes
    return ops.transpose(operands[0], None if axes is None else tuple(map(int, axes)))


RULES: dict[str, Rule] = {
    "relax.matmul": lambda operands, _: ops.matmul(operands[0], operands[1]),
    "relax.nn.softmax": lambda operands, attributes: ops.softmax(
        operands[0], axis=int(attributes.axis)
    ),
    "relax.nn.log_softmax": lambda operands, attributes: ops.log_softmax(
        operands[0], axis=int(attributes.axis)
    ),
    "relax.nn.leakyrelu": lambda operands, attributes: ops.leaky_relu(
        operands[0], float(attributes.alpha)
    ),
    "relax.nn.layer_norm": _layer_norm,
    "relax.nn.rms_norm": _rms_norm,
    "relax.nn.conv2d": _conv2d,
    "relax.nn.max_pool2d": _pooling(ops.max_pool2d, dilation=True),
    "relax.nn.avg_pool2d": _avg_pool2d,
    "relax.permute_dims": _transpose,
    "relax.where": _elementwise(ops.where),
    **{f"relax.{name}": _reduction(getattr(ops, name)) for name in _REDUCTIONS},
    **{f"relax.{name}": _elementwise(getattr(ops, name)) for name in (*_BINARY, *_COMPARISONS)},
    **{f"relax.{name}": _elementwise(getattr(ops, known)) for name, known in _ELEMENTWISE.items()},
}
"""By the name of an operator of Relax."""
