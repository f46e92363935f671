"""A dense layer: the rows of an array times a matrix, and what follows."""

from __future__ import annotations

from typing import Any

from offcut.describe.functions import reduce_axis
from offcut.describe.functions import sum as sum_over
from offcut.describe.tensor import Tensor, compute
from offcut.describe.value import Value, cast
from offcut.errors import DescribeError
from offcut.ops.checks import (
    axis_letters,
    beside,
    check_extent,
    check_float_result,
    check_result,
    check_shape,
    check_tensor,
    element,
    flag,
    of_operands,
    parameter,
    scale_of,
    wider,
    zero_of,
)
from offcut.ops.naming import result_name
from offcut.ops.products.epilogue import epilogue

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
