"""Dispatch operators of Relax to kernels, by rules that translate each into `offcut.ops`; each is compiled once for all sizes.

Rules that translate operators of Relax into `offcut.ops`, from operands and attributes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax, tirx
from tvm_ffi import structural_equal

import offcut.ops as ops
from offcut.core.function_table import FUNCTIONS
from offcut.core.program import MAX_SIZE
from offcut.core.sizes import Dim
from offcut.describe.tensor import Tensor, placeholder
from offcut.errors import OffcutError
from offcut.kernel import Kernel
from offcut.pipeline import compile
from offcut.plugins.tvm.import_tir import import_error
from offcut.plugins.tvm.packed_function import register_kernel

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


def dispatch_pass(
    report: dict[str, str] | None = None, rules: Mapping[str, Rule] | None = None
) -> Any:
    """Return a pass of TVM that replaces the operators of Relax that `rules` cover by calls of kernels.

    report  receives why an operator stays, by its name
    rules   by the name of an operator; None: `RULES`

    A kernel is made for each distinct operator and its types; a constant operand is packed into it. The module that is
    built calls them by name, in this process.
    """
    skipped = {} if report is None else report
    known_rules = RULES if rules is None else rules
    kernel_names: dict[str, str] = {}

    def run(module: Any, _context: Any) -> Any:
        builder = relax.BlockBuilder(module)
        for name, function in module.functions_items():
            if isinstance(function, relax.Function):
                replacing = _CallRewriter(builder, known_rules, kernel_names, skipped)
                builder.update_func(name, replacing.visit_expr(function))
        return builder.get()

    return tvm.transform.module_pass(run, opt_level=0, name="offcut.dispatch")


@relax.expr_functor.mutator
class _CallRewriter(relax.PyExprMutator):  # type: ignore[misc]
    """A rewriter of the calls of one function."""

    def __init__(
        self,
        builder: Any,
        rules: Mapping[str, Rule],
        kernel_names: dict[str, str],
        skipped: dict[str, str],
    ) -> None:
        super().__init__(builder.get())
        self.rules, self.kernel_names, self.skipped = rules, kernel_names, skipped

    def visit_call_(self, call: Any) -> Any:
        """Return a call of a kernel if there is a rule and the kernel compiles, else the call itself."""
        call = self.visit_expr_post_order(call)
        operator = str(getattr(call.op, "name", ""))
        if operator not in self.rules:
            return call
        try:
            name, arguments = self.kernel(operator, call)
        except OffcutError as error:
            self.skipped[operator] = str(error)
            return call
        return relax.call_dps_packed(name, arguments, call.ty)

    def kernel(self, operator: str, call: Any) -> tuple[str, list[Any]]:
        """Return the name of the kernel for a call, and the arguments of the kernel."""
        dims = _Dims()
        operands = [
            placeholder(dims.shape(one.ty), str(one.ty.dtype), name=f"x{number}")
            for number, one in enumerate(call.args)
        ]
        constants = {
            tensor: one
            for tensor, one in zip(operands, call.args, strict=True)
            if isinstance(one, tvm.ir.GenericConst)
        }
        arguments = [one for one in call.args if not isinstance(one, tvm.ir.GenericConst)]
        key = f"{operator} {[(t.shape, t.dtype) for t in operands]} {call.attrs}"
        for one in constants.values():
            key += hashlib.sha256(one.value.numpy().tobytes()).hexdigest()
        if key not in self.kernel_names:
            result = self.rules[operator](operands, call.attrs)
            kernel = _compile(result, operands, constants)
            if str(result.dtype) != str(call.ty.dtype):
                raise import_error(
                    operator, f"TVM has {call.ty.dtype} for it, and offcut {result.dtype}"
                )
            digest = hashlib.sha256(key.encode()).hexdigest()[:16]
            self.kernel_names[key] = f"offcut.{operator.rpartition('.')[2]}.{digest}"
            register_kernel(self.kernel_names[key], kernel)
        return self.kernel_names[key], arguments


def _compile(result: Tensor, operands: Sequence[Tensor], constants: Mapping[Tensor, Any]) -> Kernel:
    arrays = {tensor.name: one.value.numpy() for tensor, one in constants.items()}
    return compile(result, inputs=list(operands), constants=arrays)


class _Dims:
    """Sizes for the extents of Relax: equal expressions are one size."""

    def __init__(self) -> None:
        self.known: list[tuple[Any, Dim]] = []

    def shape(self, type_: Any) -> tuple[Any, ...]:
        if not isinstance(type_, relax.TensorType) or not isinstance(type_.shape, relax.ShapeExpr):
            raise import_error(str(type_), "its shape is not known")
        return tuple(map(self.size, type_.shape.values))

    def size(self, extent: Any) -> Any:
        if isinstance(extent, tirx.IntImm):
            return int(extent.value)
        for other, dim in self.known:
            if structural_equal(extent, other):
                return dim
        self.known.append((extent, Dim(f"n{len(self.known)}", 0, MAX_SIZE, 1)))
        return self.known[-1][1]
