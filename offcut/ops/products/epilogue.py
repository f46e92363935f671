"""What follows a sum: bias, activation, residual, and the type of the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.ops.checks import check_tensor, element, narrower
from offcut.ops.elementwise.activation import OF_INTEGERS, apply_activation, check_activation
from offcut.ops.naming import Option


@dataclass(frozen=True, slots=True)
class Epilogue:
    """``activation(total + bias) + residual``, converted to `dtype` last.

    bias_axis   the axis of the result that `bias` runs along
    total       the type of the sum, in which all of it is calculated
    """

    bias: Tensor | None
    bias_axis: int
    activation: str | None
    residual: Tensor | None
    total: str
    dtype: str

    @property
    def options(self) -> tuple[Option, ...]:
        """What it adds to the name of the result."""
        residual = "residual" if self.bias is None else ""
        return (
            ("", self.bias, None),
            (residual, self.residual, None),
            ("", self.activation, None),
        )

    @property
    def empty(self) -> bool:
        """Whether the sum is the result."""
        parts = (self.bias, self.activation, self.residual)
        return all(part is None for part in parts) and self.total == self.dtype

    def name_of_total(self, name: str) -> str:
        """The name of the sum where the result is called `name`."""
        return name if self.empty else f"{name}_sum"

    def after(self, total: Tensor, name: str) -> Tensor:
        """The result called `name`: `total` itself where nothing follows it."""
        if self.empty:
            return total
        axes = total.definition.axes if total.definition is not None else ()
        letters = tuple(axis.name for axis in axes)
        if self.bias is not None and self.activation not in (None, *OF_INTEGERS):
            biased = compute(
                total.shape, lambda *at: self._add_bias(total, at), f"{name}_biased", letters
            )
        else:
            biased = None

        def result(*at: Value) -> Value:
            inner = self._add_bias(total, at) if biased is None else biased[at]
            value = apply_activation(inner, self.activation)
            if self.residual is not None:
                value = value + element(self.residual, at, self.total)
            return cast(value, self.dtype)

        return compute(total.shape, result, name, letters)

    def _add_bias(self, total: Tensor, at: tuple[Value, ...]) -> Value:
        value = total[at]
        if self.bias is None:
            return value
        return value + element(self.bias, (at[self.bias_axis],), self.total)


def epilogue(
    op: str,
    shape: tuple[Any, ...],
    total: str,
    dtype: str,
    bias: Tensor | None,
    bias_axis: int,
    activation: str | None,
    residual: Tensor | None,
) -> Epilogue:
    """The epilogue of a result of `shape`, checked.

    Raises DescribeError where a bias or a residual does not fit the result or the type of the sum,
    or there is no such activation.
    """
    check_activation(op, activation, total)
    if bias is not None:
        check_tensor(op, "bias", bias, 1, shape=(shape[bias_axis],), dtypes=narrower(total))
    if residual is not None:
        check_tensor(op, "residual", residual, shape=shape, dtypes=narrower(total))
    return Epilogue(bias, bias_axis % max(len(shape), 1), activation, residual, total, dtype)
