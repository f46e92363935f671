"""Operators of Relax served by our kernels: calls of global functions of TVM, each compiled once for all sizes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax, tirx
from tvm_ffi import structural_equal

from offcut.core.sizes import MAX_SIZE, Dim
from offcut.describe.tensor import Tensor, placeholder
from offcut.errors import OffcutError
from offcut.kernel import Kernel
from offcut.pipeline import compile
from offcut.plugins.tvm.calling import registered
from offcut.plugins.tvm.operators import RULES, Rule
from offcut.plugins.tvm.reading import refusal


def served(report: dict[str, str] | None = None, rules: Mapping[str, Rule] | None = None) -> Any:
    """A pass of TVM: operators of Relax that `rules` know become calls of our kernels; the others stay.

    report  is told what stays, and why: by the name of the value
    rules   by the name of an operator; None: `RULES`

    A kernel is made for each distinct operator and its types; a constant operand is packed into it. The module that is
    built calls them by name, in this process.
    """
    told = {} if report is None else report
    known = RULES if rules is None else rules
    made: dict[str, str] = {}

    def run(module: Any, _context: Any) -> Any:
        builder = relax.BlockBuilder(module)
        for name, function in module.functions_items():
            if isinstance(function, relax.Function):
                replacing = _Served(builder, known, made, told)
                builder.update_func(name, replacing.visit_expr(function))
        return builder.get()

    return tvm.transform.module_pass(run, opt_level=0, name="offcut.served")


@relax.expr_functor.mutator
class _Served(relax.PyExprMutator):  # type: ignore[misc]
    """The calls of one function, replaced."""

    def __init__(
        self, builder: Any, rules: Mapping[str, Rule], made: dict[str, str], told: dict[str, str]
    ) -> None:
        super().__init__(builder.get())
        self.rules, self.made, self.told = rules, made, told

    def visit_call_(self, call: Any) -> Any:
        """A call of a kernel where there is a rule, and the kernel can be made."""
        call = self.visit_expr_post_order(call)
        operator = str(getattr(call.op, "name", ""))
        if operator not in self.rules:
            return call
        try:
            name, given = self.kernel(operator, call)
        except OffcutError as refused:
            self.told[operator] = str(refused)
            return call
        return relax.call_dps_packed(name, given, call.ty)

    def kernel(self, operator: str, call: Any) -> tuple[str, list[Any]]:
        """The name of the kernel that a call is, and what it is given."""
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
        given = [one for one in call.args if not isinstance(one, tvm.ir.GenericConst)]
        key = f"{operator} {[(t.shape, t.dtype) for t in operands]} {call.attrs}"
        for one in constants.values():
            key += hashlib.sha256(one.value.numpy().tobytes()).hexdigest()
        if key not in self.made:
            result = self.rules[operator](operands, call.attrs)
            kernel = _compiled(result, operands, constants)
            if str(result.dtype) != str(call.ty.dtype):
                raise refusal(
                    operator, f"TVM has {call.ty.dtype} for it, and offcut {result.dtype}"
                )
            digest = hashlib.sha256(key.encode()).hexdigest()[:16]
            self.made[key] = f"offcut.{operator.rpartition('.')[2]}.{digest}"
            registered(self.made[key], kernel)
        return self.made[key], given


def _compiled(
    result: Tensor, operands: Sequence[Tensor], constants: Mapping[Tensor, Any]
) -> Kernel:
    arrays = {tensor.name: one.value.numpy() for tensor, one in constants.items()}
    return compile(result, inputs=list(operands), constants=arrays)


class _Dims:
    """Extents of Relax as sizes: equal expressions are one size."""

    def __init__(self) -> None:
        self.known: list[tuple[Any, Dim]] = []

    def shape(self, type_: Any) -> tuple[Any, ...]:
        if not isinstance(type_, relax.TensorType) or not isinstance(type_.shape, relax.ShapeExpr):
            raise refusal(str(type_), "its shape is not known")
        return tuple(map(self.size, type_.shape.values))

    def size(self, extent: Any) -> Any:
        if isinstance(extent, tirx.IntImm):
            return int(extent.value)
        for other, dim in self.known:
            if structural_equal(extent, other):
                return dim
        self.known.append((extent, Dim(f"n{len(self.known)}", 0, MAX_SIZE, 1)))
        return self.known[-1][1]
