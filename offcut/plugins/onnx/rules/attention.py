"""Attention, as one operator where it is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offcut.graph.sizes.numbers import arithmetic
from offcut.plugins.onnx.making.context import Context
from offcut.plugins.onnx.making.operands import Call, Element, Operand, Refused, Results
from offcut.plugins.onnx.rules.elementwise import Operator


def _attention(g: Context, call: Call) -> Results:
    q, k, v, mask = call[0], call[1], call[2], call.input(3)
    for name, default in (("softcap", 0.0), ("qk_matmul_output_mode", 0)):
        if call.get(name, default) != default:
            raise Refused(f"{name}={call.get(name)}", f"{name}={default}")
    call.overlook("softmax_precision")
    if call.outputs > 3:
        raise Refused("the products of queries and keys as an output", "three outputs")
    if call.input(6) is not None:
        raise Refused("nonpad_kv_seqlen", "a mask")
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
    if mask is not None:
        if not g.same(g.shape(mask)[-1], g.shape(k)[2]):
            raise Refused("a mask of other keys than there are")
        options["mask"] = mask if not g.is_float(mask) else g.cast(mask, g.dtype(q))
    made: Operand = g.op("attention", q, k, v, **options)
    if flat:
        n, heads, rows, width = g.shape(made)
        made = g.reshape(g.transpose(made, [0, 2, 1, 3]), (n, rows, arithmetic("*", heads, width)))
    return (made, k, v)[: max(call.outputs, 1)]


def _heads(g: Context, x: Operand, count: int) -> Operand:
    """(batch, n, heads * e) as (batch, heads, n, e)."""
    batch, rows, width = g.shape(x)
    apart = g.reshape(x, (batch, rows, count, arithmetic("//", width, count)))
    return g.transpose(apart, [0, 2, 1, 3])


ATTENTION: Mapping[str, Operator] = {"Attention": _attention}
