"""The demo's encoder by other libraries: torch's calls, and one ONNX model of it.

A batch is a list of rows without padding where the
library is called operator by operator, else a rectangle with padding and a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples.sentences.batches import EncodeAll, runs
from examples.sentences.kernels import EPSILON
from examples.sentences.tokens import LONGEST, Tokens
from examples.sentences.weights import HEADS, HIDDEN, Layer, Linear, Norm, Weights
from offcut.describe.request import Array
from offcut.studies.peers.graphs import serialize_model
from offcut.studies.peers.with_onnxruntime import onnxruntime_session
from offcut.studies.peers.with_openvino import openvino_options

INT32, BOOLEAN = 6, 9
"""Element types, as ONNX numbers them."""


def torch_encoder(
    torch: Any, weights: Weights, kind: str, packed: bool, fused: bool = True
) -> EncodeAll:
    """The encoder in torch, for sentences in ascending order of length.

    kind    ``float32`` or ``bfloat16``, of all weights and of what is between
    packed  whether weights are packed by oneDNN, and gelu is part of the product
    fused   whether attention is one call, or two products and a softmax
    """
    functional, ops = torch.nn.functional, torch.ops.mkldnn
    dtype = getattr(torch, kind)

    def tensor(array: Array) -> Any:
        return torch.from_numpy(np.ascontiguousarray(array)).to(dtype)

    def dense(linear: Linear, gelu: bool = False) -> Callable[[Any], Any]:
        weight, bias = tensor(linear.weight.T), tensor(linear.bias)
        if not packed:
            if gelu:
                return lambda x: functional.gelu(functional.linear(x, weight, bias))
            return lambda x: functional.linear(x, weight, bias)
        held = ops._reorder_linear_weight(weight, None)
        after: tuple[str, list[float], str] = ("gelu", [], "none") if gelu else ("none", [], "")
        return lambda x: ops._linear_pointwise(x, held, bias, *after)

    def norm(given: Norm) -> Callable[[Any], Any]:
        gain, bias = tensor(given.gain), tensor(given.bias)
        return lambda x: functional.layer_norm(x, (HIDDEN,), gain, bias, EPSILON)

    def attend(q: Any, k: Any, v: Any) -> Any:
        if fused:
            return functional.scaled_dot_product_attention(q, k, v)
        scores = (q @ k.transpose(-1, -2)) * (HEADS / HIDDEN) ** 0.5
        return functional.softmax(scores, dim=-1) @ v

    def layer(given: Layer) -> Callable[[Any, list[Any]], Any]:
        together, out = dense(given.together), dense(given.attention)
        wide, narrow = dense(given.feed_in, gelu=True), dense(given.feed_out)
        first, second = norm(given.attention_norm), norm(given.feed_norm)

        def run(x: Any, same: list[Any]) -> Any:
            rows, mixed = together(x), []
            for one in same:
                heads = rows[one.rows].view(one.count, one.length, 3, HEADS, -1)
                found = attend(*heads.permute(2, 0, 3, 1, 4))
                mixed.append(found.transpose(1, 2).reshape(one.count * one.length, -1))
            x = first(x + out(mixed[0] if len(mixed) == 1 else torch.cat(mixed)))
            return second(x + narrow(wide(x)))

        return run

    layers = [layer(given) for given in weights.layers]
    words, start = tensor(weights.words), norm(weights.norm)
    places = tensor(weights.positions + weights.kind)

    @torch.inference_mode()  # type: ignore[untyped-decorator]  # torch is loaded when it is wanted
    def encode_all(sentences: Sequence[Tokens]) -> Array:
        lengths = [len(tokens) for tokens in sentences]
        same = runs(lengths)
        tokens = torch.from_numpy(np.concatenate(sentences))
        where = torch.from_numpy(np.concatenate([np.arange(length) for length in lengths]))
        x = start(words[tokens] + places[where])
        for run in layers:
            x = run(x, same)
        means = [x[one.rows].view(one.count, one.length, -1).float().mean(1) for one in same]
        found: Array = functional.normalize(torch.cat(means)).numpy()
        return found

    return encode_all  # type: ignore[no-any-return]  # mypy takes torch's decorator for untyped


def encoder_model(weights: Weights, operator: str, padded: bool) -> bytes:
    """The encoder as an ONNX model: input X, tokens (b, n) int64, output Y, (b, 384).

    operator  ``Attention``, or ``MultiHeadAttention``, which only onnxruntime knows
    padded    whether there is an input M, (b, n) float32: 1 where there is a token, 0 for padding
    """
    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = []
    constants: dict[str, Any] = {
        "words": weights.words.astype(np.float32),
        "places": (weights.positions + weights.kind).astype(np.float32),
    }

    def add(op: str, given: list[str], out: str, **attributes: Any) -> str:
        nodes.append((op, given, [out], attributes))
        return out

    def constant(name: str, value: Any) -> str:
        constants[name] = value
        return name

    def dense(x: str, linear: Linear, name: str) -> str:
        w = constant(f"{name}.weight", linear.weight.astype(np.float32))
        b = constant(f"{name}.bias", linear.bias.astype(np.float32))
        return add("Add", [add("MatMul", [x, w], f"{name}.product"), b], f"{name}.out")

    def norm(x: str, given: Norm, name: str) -> str:
        gain = constant(f"{name}.gain", given.gain.astype(np.float32))
        bias = constant(f"{name}.bias", given.bias.astype(np.float32))
        return add("LayerNormalization", [x, gain, bias], f"{name}.out", epsilon=EPSILON)

    zero, one, two = (constant(f"at {k}", np.array([k], np.int64)) for k in range(3))
    counted = add("Shape", ["X"], "n", start=1)
    places = add("Slice", ["places", zero, counted, zero], "here")
    summed = add("Add", [add("Gather", ["words", "X"], "found"), places], "summed")
    x = norm(summed, weights.norm, "norm")
    if operator == "MultiHeadAttention":
        heads = {"num_heads": HEADS}
        hidden = ["", add("Cast", ["M"], "present", to=INT32)] if padded else []
    else:
        heads = {"q_num_heads": HEADS, "kv_num_heads": HEADS}
        hidden = []
        if padded:
            present = add("Cast", ["M"], "present", to=BOOLEAN)
            axes = constant("axes", np.array([1, 2], np.int64))
            shape = add(
                "Concat", [add("Shape", ["X"], "b", end=1), one, counted, counted], "square", axis=0
            )
            hidden = [add("Expand", [add("Unsqueeze", [present, axes], "row"), shape], "mask")]
    for index, layer in enumerate(weights.layers):
        at = f"layer{index}"
        q, k, v = (
            dense(x, linear, f"{at}.{name}")
            for name, linear in zip("qkv", (layer.query, layer.key, layer.value), strict=True)
        )
        mixed = add(operator, [q, k, v, *hidden], f"{at}.mixed", **heads)
        out = dense(mixed, layer.attention, f"{at}.attention")
        x = norm(add("Add", [x, out], f"{at}.residual"), layer.attention_norm, f"{at}.norm")
        wide = add("Gelu", [dense(x, layer.feed_in, f"{at}.in")], f"{at}.gelu")
        narrow = dense(wide, layer.feed_out, f"{at}.narrow")
        x = norm(add("Add", [x, narrow], f"{at}.result"), layer.feed_norm, f"{at}.last")
    if padded:
        x = add("Mul", [x, add("Unsqueeze", ["M", two], "weight")], "present rows")
    total = add("ReduceSum", [x, one], "total", keepdims=0)
    add("LpNormalization", [total], "Y", axis=-1, p=2)
    single = np.dtype(np.float32)
    dims = ["b", "n"]
    given: dict[str, tuple[np.dtype[Any], Sequence[object]]] = {"X": (np.dtype(np.int64), dims)}
    if padded:
        given["M"] = (single, dims)
    return serialize_model(nodes, given, (single, ["b", HIDDEN]), constants)


def rectangle(sentences: Sequence[Tokens], padded: bool) -> dict[str, NDArray[Any]]:
    """The inputs of an ONNX model: tokens with padding behind, and the mask where it has one."""
    lengths = np.array([len(tokens) for tokens in sentences])
    present = np.arange(lengths.max()) < lengths[:, None]
    tokens = np.zeros(present.shape, np.int64)
    tokens[present] = np.concatenate(sentences)
    return {"X": tokens, "M": present.astype(np.float32)} if padded else {"X": tokens}


def onnxruntime_encoder(
    onnxruntime: Any, weights: Weights, operator: str, padded: bool, threads: int
) -> EncodeAll:
    """The model by onnxruntime, float32."""
    session = onnxruntime_session(onnxruntime, encoder_model(weights, operator, padded), threads)

    def encode_all(sentences: Sequence[Tokens]) -> Array:
        found: Array = session.run(None, rectangle(sentences, padded))[0]
        return found

    return encode_all


def openvino_encoder(
    openvino: Any, weights: Weights, kind: str, padded: bool, threads: int
) -> EncodeAll:
    """The model by OpenVINO, computed in float32 or bfloat16.

    It is run at the greatest length before it is handed out: OpenVINO (2026.4, without a mask) gives
    wrong embeddings from the length of 17 on where the first that it saw was 1.
    """
    core = openvino.Core()
    options = openvino_options(threads, "bf16" if kind == "bfloat16" else "f32")
    model = core.read_model(encoder_model(weights, "Attention", padded))
    request = core.compile_model(model, "CPU", options).create_infer_request()

    def encode_all(sentences: Sequence[Tokens]) -> Array:
        given = rectangle(sentences, padded)  # alive until the request is done with it
        for name, array in given.items():
            request.set_tensor(name, openvino.Tensor(array, shared_memory=True))
        request.start_async()
        request.wait()
        found: Array = request.get_output_tensor().data.copy()
        return found

    encode_all([np.zeros(LONGEST, np.int64)])
    return encode_all
