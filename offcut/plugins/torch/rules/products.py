"""Products of matrices, dense layers and attention; stacks of recurrent layers.

Recurrent layers: torch's stacks of them, in one direction or two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offcut.graph import Ref
from offcut.graph.sizes.extent_values import plain
from offcut.plugins.operators.functions import MAX_DETERMINANT_ROWS, determinants
from offcut.plugins.operators.lines import recurrence
from offcut.plugins.torch.dtypes import accumulation_dtype
from offcut.plugins.torch.rule_table import Unsupported, register_rule, takes_of_others
from offcut.plugins.torch.rules.arithmetic import binary
from offcut.plugins.torch.translation import Translation


@register_rule("addmm")
def addmm(t: Translation, bias: Ref, x: Ref, w: Ref, *, beta: Any = 1, alpha: Any = 1) -> Any:
    plain = alpha == 1 and beta == 1
    if plain and t.rank(bias) == 1 and t.shape(bias) == t.shape(w)[1:]:
        return layer(t, x, w, bias)
    return _add_bias(t, layer(t, x, w, None, accumulation_dtype(t.result)), bias, beta, alpha)


@register_rule("linear")
def linear(t: Translation, x: Ref, w: Ref, bias: Ref | None = None) -> Any:
    return t.node("dense", x, w, bias=bias, transpose_w=True)


@register_rule("baddbmm")
def baddbmm(t: Translation, bias: Ref, x: Ref, y: Ref, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _add_bias(t, batched_product(t, x, y, accumulation_dtype(t.result)), bias, beta, alpha)


@register_rule("addbmm")
def addbmm(t: Translation, bias: Ref, x: Ref, y: Ref, *, beta: Any = 1, alpha: Any = 1) -> Any:
    products = batched_product(t, x, y, accumulation_dtype(t.result))
    return _add_bias(t, t.node("sum", products, axis=0), bias, beta, alpha)


@register_rule("matmul")
def matmul(t: Translation, x: Ref, y: Ref) -> Any:
    if t.rank(x) == 1 and t.rank(y) == 1:
        return dot(t, x, y)
    if t.rank(x) == 1:
        row = t.reshape(x, (1, *t.shape(x)))
        return t.reshape(batched_product(t, row, y), t.extents)
    if t.rank(y) == 1:
        return matrix_vector_product(t, x, y)
    if t.rank(y) == 2:
        return layer(t, x, y)
    return batched_product(t, x, y)


@register_rule("mv")
def matrix_vector_product(t: Translation, x: Ref, y: Ref, dtype: str | None = None) -> Any:
    row = t.reshape(y, (1, *t.shape(y)))
    result = t.node("dense", x, row, transpose_w=True, dtype=dtype)
    return t.reshape(result, t.shape(x)[:-1])


@register_rule("addmv")
def addmv(t: Translation, bias: Ref, x: Ref, y: Ref, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _add_bias(
        t, matrix_vector_product(t, x, y, accumulation_dtype(t.result)), bias, beta, alpha
    )


def _add_bias(t: Translation, product: Ref, bias: Ref, beta: Any, alpha: Any) -> Any:
    """``beta * bias + alpha * product``, rounded once; without the bias, whatever it holds, where beta is 0."""
    kind = t.dtype(product)
    if alpha != 1:
        product = binary(t, "multiply", product, alpha, kind)
    if beta != 0:
        bias = bias if beta == 1 else binary(t, "multiply", t.cast(bias, kind), beta, kind)
        product = binary(t, "add", product, bias, kind)
    return t.cast(product, t.result)


@register_rule("_grouped_mm")
@takes_of_others("transformers::grouped_mm_fallback")
def grouped_mm(
    t: Translation,
    x: Ref,
    w: Ref,
    ends: Ref | None = None,
    bias: Ref | None = None,
    dtype: Any = None,
) -> Any:
    """Groups of rows, each with a matrix of its own."""
    if ends is None or bias is not None or (t.rank(x), t.rank(w)) != (2, 3):
        raise Unsupported("it is not a product of groups of rows with a matrix for each")
    w = t.with_shape(w, (*t.shape(ends), t.shape(x)[1], t.shape(w)[2]))
    return t.as_result(t.node("grouped_matmul", x, w, ends))


@register_rule("_trilinear", rounds_each=True)
def trilinear(
    t: Translation,
    x: Ref,
    y: Ref,
    z: Ref,
    of_x: Sequence[int],
    of_y: Sequence[int],
    of_z: Sequence[int],
    axes: Sequence[int],
    _: int = 1,
) -> Any:
    """The sum along some axes of the product of three, each with new axes."""
    wide = []
    for one, new in ((x, of_x), (y, of_y), (z, of_z)):
        own = iter(t.shape(one))
        rank = t.rank(one) + len(new)
        wide.append(t.reshape(one, [1 if n in new else next(own) for n in range(rank)]))
    product = t.node("multiply", t.node("multiply", wide[0], wide[2]), wide[1])
    return t.node("sum", product, axis=tuple(axes))


@register_rule("dot")
def dot(t: Translation, x: Ref, y: Ref) -> Any:
    return t.node("sum", t.node("multiply", x, y))


@register_rule("_scaled_dot_product_flash_attention_for_cpu")
def flash(
    t: Translation,
    q: Ref,
    k: Ref,
    v: Ref,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: Ref | None = None,
    scale: Ref | float | None = None,
) -> Any:
    return attention(t, q, k, v, attn_mask, dropout, causal, scale=scale), None


@register_rule("scaled_dot_product_attention")
def attention(
    t: Translation,
    q: Ref,
    k: Ref,
    v: Ref,
    mask: Ref | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: Ref | float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """``softmax(scale * q @ k.T + mask) @ v``; the scale is a value where it depends on sizes: on the depth of any number."""
    if dropout:
        raise Unsupported("dropout is random")
    if mask is not None and t.dtype(mask) == "bool":
        mask = t.cast(mask, "int8")
    depth = t.shape(q)[-1]
    if scale is None and not isinstance(plain(depth), int):
        scale = t.node("rsqrt", t.scalar(depth, "float64"))
    if isinstance(scale, Ref):  # attention takes a number: the queries take what is none
        q, scale = t.node("multiply", q, t.cast(scale, t.dtype(q))), 1.0
    return t.node("attention", q, k, v, mask=mask, scale=scale, causal=causal or None)


@register_rule("mm", "_int_mm")
def layer(t: Translation, x: Ref, w: Ref, bias: Ref | None = None, dtype: str | None = None) -> Any:
    """``x @ w + bias`` of a matrix; one that is transposed is read as it lies."""
    transposed = t.source_of_transpose(w)
    if transposed is not None:
        return t.node("dense", x, transposed, bias=bias, transpose_w=True, dtype=dtype)
    return t.node("dense", x, w, bias=bias, dtype=dtype)


@register_rule("bmm")
def batched_product(t: Translation, x: Ref, y: Ref, dtype: str | None = None) -> Any:
    """``x @ y`` of matrices in batches; one that is transposed is read as it lies."""
    left, right = t.source_of_transpose(x), t.source_of_transpose(y)
    return t.node(
        "matmul",
        x if left is None else left,
        y if right is None else right,
        transpose_a=left is not None or None,
        transpose_b=right is not None or None,
        dtype=dtype,
    )


@register_rule("_linalg_det")
def determinant_of(t: Translation, x: Ref) -> Any:
    result = determinants(t, x)
    if result is None:
        raise Unsupported(
            f"its matrices have any number of rows, or more than {MAX_DETERMINANT_ROWS}"
        )
    return result, None, None


def recurrent_stack(
    t: Translation,
    x: Ref,
    hx: Sequence[Ref],
    params: Sequence[Ref],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    *,
    kind: str,
    **options: Any,
) -> tuple[Any, ...]:
    """The results of a stack: the states of the last layer, and the last states of all layers.

    kind  lstm, gru or rnn
    hx    for each state, (layers · directions, batch, columns)
    """
    if dropout and train:
        raise Unsupported("dropout is random")
    directions = 2 if bidirectional else 1
    per = len(params) // (num_layers * directions)
    last: list[list[Ref]] = [[] for _ in hx]
    for layer in range(num_layers):
        outputs = []
        for back in range(directions):
            number = layer * directions + back
            w, r, *rest = params[number * per : (number + 1) * per]
            x = t.with_shape(x, (*t.shape(x)[:-1], t.shape(w)[1]))  # as torch says
            every, *ends = recurrence(
                t,
                kind,
                x,
                w,
                r,
                (rest[0], rest[1]) if has_biases else None,
                batch_first and not layer,
                reverse=bool(back) or None,
                projection=rest[-1] if len(rest) % 2 else None,
                **{name: state_of(t, one, number) for name, one in zip("hc", hx, strict=False)},
                **options,
            )
            outputs.append(every)
            for parts, end in zip(last, ends, strict=True):
                parts.append(t.reshape(end, (1, *t.shape(end))))
        x = t.node("concat", tuple(outputs), axis=2) if bidirectional else outputs[0]
    ends = [
        t.node("concat", tuple(parts), axis=0) if len(parts) > 1 else parts[0] for parts in last
    ]
    return (t.transpose(x, (1, 0, 2)) if batch_first else x, *ends)


def state_of(t: Translation, x: Ref, number: int) -> Ref | None:
    """One of the states; None where they are zeros, as torch writes one that is not given."""
    if t.builder.is_zero(x):
        return None
    return t.reshape(t.slice(x, 0, number, number + 1), t.shape(x)[1:])


def recurrent(
    t: Translation, x: Ref, hx: Any, params: Sequence[Ref], *how: Any, kind: str, **options: Any
) -> Any:
    states = hx if isinstance(hx, list) else [hx]
    return recurrent_stack(t, x, states, params, *how, kind=kind, **options)


for _name, _options in (
    *(("lstm", {"kind": "lstm"}), ("gru", {"kind": "gru"}), ("rnn_tanh", {"kind": "rnn"})),
    ("rnn_relu", {"kind": "rnn", "activation": "relu"}),
):
    takes_of_others(f"offcut::{_name}", rounds_each=True, **_options)(recurrent)
    register_rule(f"{_name}.input", rounds_each=True, **_options)(recurrent)
