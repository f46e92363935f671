"""Dispatch operators of Relax to kernels: calls of global functions of TVM, each compiled once for all sizes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax, tirx
from tvm_ffi import structural_equal

from offcut.core.program import MAX_SIZE
from offcut.core.sizes import Dim
from offcut.describe.tensor import Tensor, placeholder
from offcut.errors import OffcutError
from offcut.kernel import Kernel
from offcut.pipeline import compile
from offcut.plugins.tvm.import_tir import import_error
from offcut.plugins.tvm.operators import RULES, Rule
from offcut.plugins.tvm.packed_function import register_kernel


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
