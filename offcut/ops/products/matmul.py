"""Products of matrices, alone, in batches or as dense layers; and what follows a sum.

Products of matrices, alone or in batches.

What follows a sum: bias, activation, residual, and the type of the result.

A dense layer: the rows of an array times a matrix, and what follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from offcut.describe.functions import index, minimum, reduce_axis, where
from offcut.describe.functions import sum as sum_over
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.checks import (
    SAME_SIZE,
    Option,
    axis_letters,
    beside,
    check_extent,
    check_float_result,
    check_result,
    check_shape,
    check_tensor,
    element,
    flag,
    is_one,
    narrower,
    of_operands,
    pair_error,
    parameter,
    result_name,
    same_extent,
    scale_of,
    wider,
    zero_of,
)
from offcut.ops.elementwise.activation import OF_INTEGERS, apply_activation, check_activation


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


def matmul(
    a: Tensor,
    b: Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    dtype: str | None = None,
    *,
    bias: Tensor | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
    name: str | None = None,
) -> Tensor:
    """``activation(sum over k of a[…, i, k] * b[…, k, j] + bias[j]) + residual[…, i, j]``.

    a            (…, m, k), or (…, k, m) with `transpose_a`
    b            (…, k, n), or (…, n, k) with `transpose_b`; of the type of `a`, or int8 where `a` is uint8 or float32
    dtype        of the result; None: that of `a`, int32 for int8 and uint8
    bias         (n,)
    activation   as in `dense`
    residual     of the result's shape, added after the activation

    Leading axes are paired from the last on, as numpy does; one that is missing or the literal 1 is
    shared by all of the other's. Sums are accumulated in float32 for bfloat16 and float16, in int32
    for int8 and uint8, else in the type of `a`.

    Raises DescribeError where ranks, extents or element types do not fit, or there is no such
    activation.
    """
    transpose_a = flag("matmul", "transpose_a", transpose_a)
    transpose_b = flag("matmul", "transpose_b", transpose_b)
    check_tensor("matmul", "a", a, least=2)
    check_tensor("matmul", "b", b, least=2, dtypes=beside(a.dtype))
    inner_a, inner_b = (-2 if transpose_a else -1), (-1 if transpose_b else -2)
    check_extent("matmul", (a, len(a.shape) + inner_a), (b, len(b.shape) + inner_b))
    total = wider(a.dtype)
    result = check_result("matmul", dtype, total if total == "int32" else a.dtype)
    rows, columns = a.shape[-1 if transpose_a else -2], b.shape[-2 if transpose_b else -1]
    shape = (*broadcast("matmul", a, b, a.shape[:-2], b.shape[:-2]), rows, columns)
    k, letters = reduce_axis(a.shape[inner_a], "k"), axis_letters(len(shape))
    end = epilogue("matmul", shape, total, result, bias, -1, activation, residual)
    options = (
        ("ta", transpose_a, False),
        ("tb", transpose_b, False),
        *end.options,
        ("", dtype, None),
    )
    name = result_name("matmul", name, [a, b], *options)

    def term(*at: Value) -> Value:
        *leading, i, j = at
        left = (*leading_index(a.shape[:-2], leading), *((k, i) if transpose_a else (i, k)))
        right = (*leading_index(b.shape[:-2], leading), *((j, k) if transpose_b else (k, j)))
        return sum_over(element(a, left) * element(b, right, total), axis=k)

    return end.after(compute(shape, term, end.name_of_total(name), letters), name)


def broadcast(
    op: str, a: Tensor, b: Tensor, first: tuple[Any, ...], second: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The extents that two lists of leading axes have together, paired from the last on.

    Raises DescribeError where two differ and neither is the literal 1.
    """
    rank = max(len(first), len(second))
    padded = [(1,) * (rank - len(shape)) + shape for shape in (first, second)]
    extents = []
    for x, y in zip(*padded, strict=True):
        if not (is_one(x) or is_one(y) or same_extent(x, y)):
            because = f"leading axes of {x} and {y} are neither equal nor 1"
            raise pair_error(op, a, b, because, SAME_SIZE, equal=[(x, y)])
        extents.append(y if is_one(x) else x)
    return tuple(extents)


def leading_index(shape: tuple[Any, ...], at: list[Value] | tuple[Value, ...]) -> tuple[Any, ...]:
    """Where an operand of leading axes `shape` is read at the result's leading axes `at`."""
    own = at[len(at) - len(shape) :]
    return tuple(0 if is_one(extent) else axis for extent, axis in zip(shape, own, strict=True))


def grouped_matmul(x: Tensor, w: Tensor, ends: Tensor, *, name: str | None = None) -> Tensor:
    """``result[i, j] = sum over k of x[i, k] * w[g, k, j]``, where g is the group of row i; 0 behind the last group.

    x      (rows, k)
    w      (groups, k, n), of the type of `x`; at least one group, where there is a row
    ends   (groups,) of int32 or int64: behind the last row of each group, ascending

    Sums are accumulated in float32 for bfloat16 and float16, in int32 for int8 and uint8, and rounded once to the type of `x`.

    Raises DescribeError where ranks, extents or element types do not fit.
    """
    op = "grouped_matmul"
    check_tensor(op, "x", x, 2)
    check_tensor(op, "w", w, 3, dtypes=(x.dtype,))
    check_tensor(op, "ends", ends, 1, dtypes=("int32", "int64"))
    rows, inner = x.shape
    groups, columns = w.shape[0], w.shape[2]
    check_shape(op, "w", w, (groups, inner, columns))
    check_shape(op, "ends", ends, (groups,))
    name, total = result_name(op, name, [x, w, ends]), wider(x.dtype)
    g, k = reduce_axis(groups, "g"), reduce_axis(inner, "k")

    def before(i: Value) -> Value:
        over = where(ends[g] <= cast(i, ends.dtype), cast(1, "int32"), 0)
        return sum_over(over, axis=g)

    own = compute((rows,), before, f"{name}_groups", ("i",))

    def product(i: Value, j: Value) -> Value:
        at = index(minimum(own[i], cast(groups - 1, "int32"))), k, j
        return sum_over(element(x, (i, k), total) * element(w, at, total), axis=k)

    sums = compute((rows, columns), product, f"{name}_sum", ("i", "j"))

    def element_or_zero(i: Value, j: Value) -> Value:
        value = where(own[i] < cast(groups, "int32"), sums[i, j], cast(0, total))
        return cast(value, x.dtype)

    return of_operands(compute((rows, columns), element_or_zero, name, ("i", "j")), x, w, ends)


SMALL_INTEGERS = ("int8", "uint8")


def dense(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
    dtype: str | None = None,
    *,
    transpose_w: bool = False,
    name: str | None = None,
) -> Tensor:
    """``activation(x @ w + bias) + residual``.

    x            (…, k); any leading axes, symbolic or not
    w            (k, n), or (n, k) with `transpose_w`; of the type of `x`, or int8 where `x` is uint8 or float32
    bias         (n,)
    activation   None, relu, gelu, gelu_tanh, silu, tanh or sigmoid; relu alone for integers
    residual     (…, n), added after the activation
    dtype        of the result; None: that of `x`, int32 for int8 and uint8

    Sums and what follows are in float32 for bfloat16 and float16, in int32 for int8 and uint8 (exact
    for ``k <= 65536``), else in the type of `x`; the result is converted once, at the end. Bias and
    residual are of a type that is calculated so.

    Raises DescribeError where ranks, extents or element types do not fit, or there is no such
    activation.
    """
    transpose_w = flag("dense", "transpose_w", transpose_w)
    _check_product("dense", x, w, transpose_w)
    total = wider(x.dtype)
    extent = w.shape[0 if transpose_w else 1]
    shape = (*x.shape[:-1], extent)
    result = check_result("dense", dtype, total if total == "int32" else x.dtype)
    end = epilogue("dense", shape, total, result, bias, -1, activation, residual)
    options = (*end.options, ("", dtype, None), ("tw", transpose_w, False))
    name = result_name("dense", name, [x, w], *options)
    return end.after(_product(x, w, transpose_w, end.name_of_total(name)), name)


def dense_quantized(
    x: Tensor,
    w: Tensor,
    x_scale: float | Tensor,
    w_scale: float | Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
    dtype: str = "float32",
    *,
    x_zero: int | Tensor = 0,
    w_zero: int | Tensor = 0,
    transpose_w: bool = False,
    name: str | None = None,
) -> Tensor:
    """``activation(x_scale * w_scale * ((x - x_zero) @ (w - w_zero)) + bias) + residual``.

    x         (…, k) of int8 or uint8
    w         (k, n), or (n, k) with `transpose_w`, of int8
    x_scale   a finite float, or float32 of shape ()
    w_scale   a finite float, or float32 of shape () or (n,)
    bias      (n,), in units of the result
    x_zero    an int, or int32 of shape ()
    w_zero    an int, or int32 of shape () or (n,)
    dtype     of the result, of floats

    The sum of products is ``x @ w`` in int32; zero points that are not the number 0 correct it by the
    sums of the columns of `w` and of the rows of `x`, so that the products are those of the stored
    integers. What follows is in float32.

    Raises DescribeError where ranks, extents or element types do not fit, or there is no such
    activation.
    """
    op, transpose_w = "dense_quantized", flag("dense_quantized", "transpose_w", transpose_w)
    check_tensor(op, "x", x, least=1, dtypes=SMALL_INTEGERS)
    check_tensor(op, "w", w, 2, dtypes=("int8",))
    _check_product(op, x, w, transpose_w)
    extent = w.shape[0 if transpose_w else 1]
    shape = (*x.shape[:-1], extent)
    x_scale, w_scale = (
        scale_of(op, "x_scale", x_scale, None),
        scale_of(op, "w_scale", w_scale, extent),
    )
    x_zero, w_zero = zero_of(op, "x_zero", x_zero, None), zero_of(op, "w_zero", w_zero, extent)
    check_float_result(op, dtype)
    end = epilogue(op, shape, "float32", dtype, bias, -1, activation, residual)
    options = (
        *(("", x_scale, None), ("", w_scale, None), ("xz", x_zero, 0), ("wz", w_zero, 0)),
        *(*end.options, ("", dtype, "float32"), ("tw", transpose_w, False)),
    )
    name = result_name(op, name, [x, w], *options)
    product = _product(x, w, transpose_w, f"{name}_product")
    letters = axis_letters(len(shape))
    corrected = _zero_points(x, w, x_zero, w_zero, transpose_w, product, name)

    def scaled(*at: Value) -> Value:
        scale = parameter(x_scale, "float32", at[-1:]) * parameter(w_scale, "float32", at[-1:])
        return cast(corrected(*at), "float32") * scale

    result = end.after(compute(shape, scaled, end.name_of_total(name), letters), name)
    return of_operands(result, x, w, x_scale, w_scale, bias, residual, x_zero, w_zero)


def dense_blockwise(x: Tensor, w: Tensor, scale: Tensor, *, name: str | None = None) -> Tensor:
    """``sum over k of x[…, k] * (w[k, j] * scale[k // block, j])``: weights with a scale for each block of terms.

    x      (…, k) of float32
    w      (k, n) of int8
    scale  (blocks, n) of float32; its blocks, an int, divide k, an int

    Microkernels add up a block before they scale it, unless ``reassociate=False``.

    Raises DescribeError where ranks, extents or element types do not fit.
    """
    op = "dense_blockwise"
    check_tensor(op, "x", x, least=1, dtypes=("float32",))
    check_tensor(op, "w", w, 2, dtypes=("int8",))
    check_tensor(op, "scale", scale, 2, dtypes=("float32",))
    inner, columns, blocks = *w.shape, scale.shape[0]
    check_shape(op, "x", x, (*x.shape[:-1], inner))
    check_shape(op, "scale", scale, (blocks, columns))
    if not (inner.is_Integer and blocks.is_Integer and blocks > 0 and inner % blocks == 0):
        raise DescribeError(
            op,
            f"cannot cut {inner} terms into {blocks} blocks",
            at=repr(scale),
            because="blocks have one int of terms each",
            help=("ops.pad(x, …) and zeros in w, up to a whole block",),
        )
    block = int(inner) // int(blocks)
    b, p = reduce_axis(blocks, "block"), reduce_axis(block, "p")

    def term(*at: Value) -> Value:
        *rows, j = at
        k = b * block + p
        weight = element(w, (k, j), "float32") * scale[b, j]
        return sum_over(x[(*rows, k)] * weight, axis=(b, p))

    name, shape = result_name(op, name, [x, w, scale]), (*x.shape[:-1], columns)
    return of_operands(compute(shape, term, name, axis_letters(len(shape))), x, w, scale)


def _product(x: Tensor, w: Tensor, transpose_w: bool, name: str) -> Tensor:
    """``x @ w`` in the type in which sums of `x` are accumulated."""
    shape = (*x.shape[:-1], w.shape[0 if transpose_w else 1])
    k = reduce_axis(x.shape[-1], "k")

    def term(*at: Value) -> Value:
        *rows, j = at
        weight = element(w, (j, k) if transpose_w else (k, j), wider(x.dtype))
        return sum_over(element(x, (*rows, k)) * weight, axis=k)

    return compute(shape, term, name, axis_letters(len(shape)))


def _zero_points(
    x: Tensor,
    w: Tensor,
    x_zero: int | Tensor,
    w_zero: int | Tensor,
    transpose_w: bool,
    product: Tensor,
    name: str,
) -> Any:
    """The elements of ``(x - x_zero) @ (w - w_zero)``, from those of ``x @ w``."""
    k = reduce_axis(x.shape[-1], "k")
    has_x, has_w = (not isinstance(zero, int) or zero != 0 for zero in (x_zero, w_zero))
    extent = w.shape[0 if transpose_w else 1]
    columns = rows = None
    if has_x:
        columns = compute(
            (extent,),
            lambda j: sum_over(element(w, (j, k) if transpose_w else (k, j)), axis=k),
            f"{name}_columns",
        )
    if has_w:
        rows = compute(
            x.shape[:-1],
            lambda *at: sum_over(element(x, (*at, k)), axis=k),
            f"{name}_rows",
            axis_letters(len(x.shape))[:-1],
        )

    def corrected(*at: Value) -> Value:
        value, j = product[at], at[-1]
        offset_x, offset_w = (parameter(zero, "int32", (j,)) for zero in (x_zero, w_zero))
        if columns is not None:
            value = value - offset_x * columns[j]
        if rows is not None:
            value = value - offset_w * rows[at[:-1]]
        if has_x and has_w:
            value = value + offset_x * offset_w * cast(x.shape[-1], "int32")
        return value

    return corrected


def _check_product(op: str, x: Any, w: Any, transpose_w: bool) -> None:
    check_tensor(op, "x", x, least=1)
    check_tensor(op, "w", w, 2, dtypes=beside(x.dtype))
    check_extent(op, (x, len(x.shape) - 1), (w, 1 if transpose_w else 0))
