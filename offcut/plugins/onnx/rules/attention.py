"""Attention, as one operator where it is one."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from offcut.graph.sizes.numbers import arithmetic
from offcut.plugins.onnx.importer.context import Context
from offcut.plugins.onnx.importer.operands import (
    Call,
    Element,
    Operand,
    Results,
    UnsupportedNode,
    known_array,
)
from offcut.plugins.onnx.rules.elementwise import Operator


def _attention(g: Context, call: Call) -> Results:
    q, k, v, mask = call[0], call[1], call[2], call.input(3)
    for name, default in (("softcap", 0.0), ("qk_matmul_output_mode", 0)):
        if call.get(name, default) != default:
            raise UnsupportedNode(f"{name}={call.get(name)}", f"{name}={default}")
    call.overlook("softmax_precision")
    operands = [k, v, *(one for one in map(call.input, (4, 5, 6)) if one is not None)]
    g.require_equal("batches differ", *((g.shape(q)[0], g.shape(one)[0]) for one in operands))
    g.require_equal("keys and values differ in their rows", (g.shape(k)[-2], g.shape(v)[-2]))
    if call.outputs > 3:
        raise UnsupportedNode("the products of queries and keys as an output", "three outputs")
    flat = g.rank(q) == 3
    if flat:
        q = _heads(g, q, call.get("q_num_heads"))
        k, v = (_heads(g, one, call.get("kv_num_heads")) for one in (k, v))
    past: Element = 0
    if call.input(4) is not None:
        past = g.shape(call[4])[2]
        k = g.op("concat", (call[4], k), axis=2)
        v = g.op("concat", (call[5], v), axis=2)
    causal = bool(call.get("is_causal", 0))
    options: dict[str, Any] = {"causal": causal}
    if causal and past != 0:
        options["past"] = past
    if call.get("scale"):
        options["scale"] = call.get("scale")
    if call.input(6) is not None:
        if causal:
            raise UnsupportedNode("is_causal=1 with nonpad_kv_seqlen", "a mask")
        lengths = g.binary("minimum", call[6], known_array(g.shape(k)[2]))
        options["lengths"] = g.cast(g.binary("maximum", lengths, known_array(0)), "int32")
    if mask is not None:
        if not g.same(g.shape(mask)[-1], g.shape(k)[2]):
            raise UnsupportedNode("a mask of other keys than there are")
        options["mask"] = mask if not g.is_float(mask) else g.cast(mask, g.dtype(q))
    result: Operand = g.op("attention", q, k, v, **options)
    return (_join_heads(g, result) if flat else result, k, v)[: max(call.outputs, 1)]


def grouped_attention(g: Context, call: Call) -> Results:
    """Translate ``GroupQueryAttention`` of onnxruntime: causal attention over the keys and values of its cache and its own.

    Every sentence of the batch must be as long as the longest; a call with a shorter one is an error.
    """
    for name, default in (("softcap", 0.0), ("smooth_softmax", 0), ("qk_output", 0)):
        if call.get(name, default) not in (default, -1):
            raise UnsupportedNode(f"{name}={call.get(name)}", f"{name}={default}")
    heads, groups = call.get("num_heads"), call.get("kv_num_heads")
    if call.input(1) is None:
        depth = arithmetic("//", g.shape(call[0])[2], heads + 2 * groups)
        ends = [arithmetic("*", depth, n) for n in (0, heads, heads + groups, heads + 2 * groups)]
        parts = [g.slice(call[0], 2, low, high) for low, high in pairwise(ends)]
    else:
        parts = [call[place] for place in range(3)]
    q, k, v = (_heads(g, x, n) for x, n in zip(parts, (heads, groups, groups), strict=True))
    rows, past = g.shape(q)[2], 0 if call.input(3) is None else g.shape(call[3])[2]
    whole = arithmetic("+", past, rows)
    if call.get("do_rotary", 0):
        if call.get("rotary_interleaved", 0):
            raise UnsupportedNode("rotary_interleaved=1", "rotary_interleaved=0")
        turns = [g.slice(call[place], 0, past, whole) for place in (7, 8)]
        q, k = (_rotate(g, x, *turns) for x in (q, k))
    if call.input(3) is not None:
        k = g.op("concat", (call[3], k), axis=2)
        v = g.op("concat", (call[4], v), axis=2)
    call.overlook("k_quant_type", "v_quant_type", "kv_cache_bit_width")
    batch, last = g.shape(q)[0], g.cast(call[5], "int64")
    is_whole = g.binary("equal", last, known_array(arithmetic("-", whole, 1)))
    if call.input(3) is None:  # what follows the end of a sentence no query of it sees
        is_whole = g.binary("less", last, known_array(whole))
    q = g.require(q, g.broadcast(g.reshape(is_whole, (batch, 1, 1, 1)), g.shape(q)))
    call.input(6)  # as long as the longest
    options: dict[str, Any] = {"causal": True}
    if past != 0:
        options["past"] = past
    if call.get("local_window_size", -1) > 0:
        options["window"] = call.get("local_window_size")
    if call.get("scale", 0.0):
        options["scale"] = call.get("scale")
    result = _join_heads(g, g.op("attention", q, k, v, **options))
    return (result, k, v)[: max(call.outputs, 1)]


def _rotate(g: Context, x: Operand, cosines: Operand, sines: Operand) -> Operand:
    """Return `x` (batch, heads, n, 2 * e) with element pairs (k, k + e) rotated by the angles of their rows, whose cosines and sines are (n, e).

    Raises Refused unless the angles are as many as half of the elements of a head.
    """
    half = g.shape(cosines)[1]
    if not g.same(arithmetic("*", half, 2), g.shape(x)[3]):
        raise UnsupportedNode(
            "angles of a part of the elements", "as many angles as half of a head"
        )
    one, other = g.slice(x, 3, 0, half), g.slice(x, 3, half, g.shape(x)[3])
    first = g.binary(
        "subtract", g.binary("multiply", one, cosines), g.binary("multiply", other, sines)
    )
    second = g.binary("add", g.binary("multiply", other, cosines), g.binary("multiply", one, sines))
    return g.op("concat", (first, second), axis=3)


def _join_heads(g: Context, x: Operand) -> Operand:
    """Return `x` (batch, heads, n, e) as (batch, n, heads * e)."""
    batch, heads, rows, width = g.shape(x)
    return g.reshape(g.transpose(x, [0, 2, 1, 3]), (batch, rows, arithmetic("*", heads, width)))


def _heads(g: Context, x: Operand, count: int) -> Operand:
    """(batch, n, heads * e) as (batch, heads, n, e)."""
    batch, rows, width = g.shape(x)
    apart = g.reshape(x, (batch, rows, count, arithmetic("//", width, count)))
    return g.transpose(apart, [0, 2, 1, 3])


ATTENTION: Mapping[str, Operator] = {"Attention": _attention}
