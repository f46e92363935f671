"""torch on the tasks of the benches: eager, with weights packed beforehand, and compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from offcut.core.dtypes import numpy_dtype
from offcut.describe.request import Array
from offcut.experiment.timing import Run
from offcut.studies.peers.matmul import Matmul, Way, as_matmul
from offcut.studies.peers.operators import (
    EPSILON,
    Attention,
    Convolution,
    Dequantized,
    LayerNorm,
    Problem,
    Softmax,
    TorchTask,
)

Offer = tuple[str, Callable[[], Run]]
"""A way's name, and what makes its call: packs what is constant."""

COMPILED_GRAPHS = 64
"""How often torch.compile may compile one function, before it gives up and runs it eagerly."""


@dataclass(frozen=True, slots=True)
class Torch:
    """torch on the CPU: mm or bmm, linear, and a weight packed by oneDNN or by MKL.

    MKL packs for a hint of the number of rows, and is given the right one at every size.
    """

    torch: Any
    name: ClassVar[str] = "torch"

    def ways(self, task: Any, /) -> tuple[Way, ...]:
        """Return every way that this build of torch has for `task`."""
        match task:
            case Problem():
                return self._contraction(task)
            case Attention():
                return self._working_ways(self._attention(task))
            case Convolution():
                return self._working_ways(self._convolution(task))
            case Softmax(x):
                tensors, out = torch_of(self.torch, x), task.result()
                into = torch_of(self.torch, out)
                run = partial(self.torch.softmax, tensors, -1, out=into)
                return (Way("torch.softmax", run, lambda _: out),)
            case LayerNorm(x, gain, bias):
                tensors = [torch_of(self.torch, array) for array in (gain, bias)]
                call = self.torch.nn.functional.layer_norm
                run = partial(call, torch_of(self.torch, x), (x.shape[-1],), *tensors, EPSILON)
                return (Way("torch.layer_norm", run, array_of),)
            case Dequantized():
                return self._working_ways(self._dequantizing_call(task))
            case TorchTask(module, inputs):
                return (Way("torch", partial(module, *inputs), lambda outputs: outputs),)
        return ()

    def _contraction(self, problem: Problem) -> tuple[Way, ...]:
        product = as_matmul(problem)
        if problem.epilogue and problem.kind != "float32":
            return ()
        if product is not None:
            return (*self._product(product, problem), *self._constant(product, problem))
        if problem.kind not in ("float32", "float64"):
            return ()
        names = problem.contraction.names
        operands = [torch_of(self.torch, problem.arrays[name]) for name in names]
        finish = _epilogue(self.torch, problem.epilogue, self._step_operands(problem))
        run = _with_finish(partial(self.torch.einsum, str(problem.contraction), *operands), finish)
        return (Way("torch.einsum", run, array_of),)

    def _step_operands(self, problem: Problem) -> Mapping[str, Any]:
        """Return the tensors that steps of an epilogue read, by step."""
        steps = [step for step in problem.epilogue if step in problem.arrays]
        return {step: torch_of(self.torch, problem.arrays[step]) for step in steps}

    def _product(self, product: Matmul, problem: Problem) -> tuple[Way, ...]:
        torch = self.torch
        if product.kind == "uint8" or (product.kind == "int8" and product.batched):
            return ()
        a, b, c = (torch_of(torch, array) for array in (product.a, product.b, product.c))
        if product.kind == "int8":
            turned = b.t().contiguous().t()
            offers: list[Offer] = [
                ("_int_mm", lambda: partial(torch._int_mm, a, b, out=c)),
                ("_int_mm.turned", lambda: partial(torch._int_mm, a, turned, out=c)),
            ]
            return self._working_ways(iter(offers), lambda _: product.out)
        name, call = ("bmm", torch.bmm) if product.batched else ("mm", torch.mm)
        run, steps, others = (
            partial(call, a, b, out=c),
            problem.epilogue,
            self._step_operands(problem),
        )
        if steps[:1] == ("bias",) and product.has_row_bias and not product.batched:
            name, steps = "addmm", steps[1:]
            run = partial(torch.addmm, others["bias"], a, b, out=c)
        finish = _epilogue(torch, steps, others, torch_of(torch, product.out))
        return (Way(f"torch.{name}", _with_finish(run, finish), lambda _: product.out),)

    def _constant(self, product: Matmul, problem: Problem) -> tuple[Way, ...]:
        """Return the ways that hold the second operand as a weight of shape (n, k), and what is added along n as its bias."""
        if product.batched or not product.constant_b or product.kind in ("int8", "uint8"):
            return ()
        steps, others = problem.epilogue, dict(self._step_operands(problem))
        if steps and not product.is_in_order:
            return ()
        torch, ops = self.torch, self.torch.ops
        x, rows = torch_of(torch, product.a), product.a.shape[0]
        weight = torch_of(torch, np.ascontiguousarray(product.b.T))
        if "residual" in others:
            others["residual"] = others["residual"].reshape(product.c.shape)
        bias = None
        if steps[:1] == ("bias",) and product.has_row_bias:
            bias, steps = others["bias"], steps[1:]
        elif "bias" in steps and not product.has_row_bias:
            return ()
        fused = ONEDNN.get(steps[0]) if len(steps) == 1 else None
        finish = _epilogue(torch, steps, others)

        def onednn() -> Run:
            packed = ops.mkldnn._reorder_linear_weight(weight, None)
            call = partial(ops.mkldnn._linear_pointwise, x, packed, bias)
            return (
                partial(call, *fused)
                if fused
                else _with_finish(partial(call, "none", [], ""), finish)
            )

        def mkl() -> Run:
            packed = ops.mkl._mkl_reorder_linear_weight(weight, rows)
            return _with_finish(partial(ops.mkl._mkl_linear, x, packed, weight, bias, rows), finish)

        def read(value: Any) -> Array:
            product.c[...] = array_of(value)
            return product.out

        offers: list[Offer] = [
            (
                "linear",
                lambda: _with_finish(partial(torch.nn.functional.linear, x, weight, bias), finish),
            ),
            ("onednn", onednn),
            *([("mkl", mkl)] if product.kind == "float32" else []),
        ]
        return self._working_ways(iter(offers), read)

    def _attention(self, task: Attention) -> Iterator[Offer]:
        q, k, v = (torch_of(self.torch, array) for array in (task.q, task.k, task.v))
        call = self.torch.nn.functional.scaled_dot_product_attention
        yield "sdpa", lambda: partial(call, q, k, v)

    def _convolution(self, task: Convolution) -> Iterator[Offer]:
        """Yield ways for images in both orders of axes, and for weights that oneDNN packed for either."""
        torch, packs = self.torch, self.torch.ops.mkldnn
        pad, step = [task.padding] * 2, [task.stride] * 2
        for order, suffix in (
            (torch.contiguous_format, ""),
            (torch.channels_last, ".channels_last"),
        ):
            x, w = (
                torch_of(torch, array).contiguous(memory_format=order)
                for array in (task.image, task.weights)
            )

            def packed(x: Any = x, w: Any = w) -> Run:
                weight = packs._reorder_convolution_weight(w, pad, step, [1, 1], 1, list(x.shape))
                fixed: tuple[Any, ...] = (None, pad, step, [1, 1], 1, "none", [], "")
                return partial(packs._convolution_pointwise, x, weight, *fixed)

            yield (
                f"conv2d{suffix}",
                partial(partial, torch.nn.functional.conv2d, x, w, None, step, pad),
            )
            yield f"onednn{suffix}", packed

    def _dequantizing_call(self, task: Dequantized) -> Iterator[Offer]:
        torch, ops = self.torch, self.torch.ops.onednn
        x = torch_of(torch, task.x)

        def packed() -> Run:
            weight = ops.qlinear_prepack(torch_of(torch, np.ascontiguousarray(task.w.T)), None)
            scales = torch_of(torch, task.scales)
            zeros = torch.zeros(len(task.scales), dtype=torch.int64)
            fixed: tuple[Any, ...] = (None, 1.0, 0, torch.float32, "none", [], "")
            arguments = (task.scale, task.zero, weight, scales, zeros, *fixed)
            return partial(ops.qlinear_pointwise, x, *arguments)

        yield "onednn.qlinear", packed

    def _working_ways(
        self, offers: Iterator[Offer], read: Callable[[Any], Array] | None = None
    ) -> tuple[Way, ...]:
        """Return the offers that this build of torch accepts on these operands."""
        ways = []
        for name, prepare in offers:
            try:
                run = prepare()
                run()
            except (RuntimeError, AttributeError, NotImplementedError, TypeError):
                continue  # this build of torch lacks the library, or it refuses the shape
            ways.append(Way(f"torch.{name}", run, read or array_of))
        return tuple(ways)


@dataclass(slots=True)
class TorchCompiled:
    """torch.compile with symbolic shapes and frozen weights, one module for each constant.

    What it compiles anew for a size (1 has code of its own) it does before the cell is timed.
    """

    torch: Any
    name: str = "torch.compile"
    _modules: dict[object, tuple[Any, object]] = field(default_factory=dict)

    def ways(self, task: Any, /) -> tuple[Way, ...]:
        """Return the eager call of the task, compiled."""
        torch, functional = self.torch, self.torch.nn.functional
        read: Callable[[Any], Array] = array_of
        arrays: tuple[Array, ...]
        key: object
        key_arrays: object
        match task:
            case Problem(kind="float32" | "bfloat16"):
                product = as_matmul(task)
                if product is None:
                    return ()
                weight = task.arrays[task.constant[0]] if task.constant else None
                if task.epilogue and not (product.is_in_order and weight is not None):
                    return ()
                arrays, key = (product.a, product.b), (task.kind, str(task.contraction), id(weight))
                make = torch.matmul
                if weight is not None:
                    turned = torch_of(torch, np.ascontiguousarray(product.b.T))
                    steps = task.epilogue
                    names = tuple(step for step in steps if step in task.arrays)
                    if "bias" in steps and not product.has_row_bias:
                        return ()
                    shapes = {"bias": (-1,), "residual": product.c.shape}
                    others = [task.arrays[name].reshape(shapes[name]) for name in names]
                    arrays, key = (product.a, *others), (*key, steps)

                    def linear(x: Any, w: Any, *others: Any) -> Any:
                        finish = _epilogue(torch, steps, dict(zip(names, others, strict=True)))
                        value = functional.linear(x, w)
                        return value if finish is None else finish(value)

                    make = _freeze(torch, linear, turned)

                def read(value: Any) -> Array:
                    product.c[...] = array_of(value)
                    return product.out

                key_arrays = weight
            case Attention(q, k, v):
                arrays, key, key_arrays = (q, k, v), ("attention", task.kind), None
                make = functional.scaled_dot_product_attention
            case Convolution(image, weights, stride, padding):
                arrays, key_arrays = (image,), weights
                key = ("convolution", id(weights), stride, padding)
                make = _freeze(
                    torch,
                    lambda x, w: functional.conv2d(x, w, None, stride, padding),
                    torch_of(torch, weights),
                )
            case Softmax(x):
                arrays, key, key_arrays = (x,), "softmax", None
                make = partial(torch.softmax, dim=-1)
            case LayerNorm(x, gain, bias):
                arrays, key, key_arrays = (x,), ("layer norm", id(gain)), (gain, bias)
                tensors = [torch_of(torch, array) for array in (gain, bias)]
                make = lambda x: functional.layer_norm(x, (x.shape[-1],), *tensors, EPSILON)  # noqa: E731
            case TorchTask(module, inputs):
                run = partial(self._compile_once(id(module), module, module), *inputs)
                return (Way("torch.compile", run, lambda outputs: outputs),)
            case _:
                return ()
        run = partial(
            self._compile_once(key, make, key_arrays), *(torch_of(torch, array) for array in arrays)
        )
        try:
            run()
        except RuntimeError:
            return ()  # its compiler fails on some operators of symbolic shape
        return (Way("torch.compile", run, read),)

    def _compile_once(self, key: object, make: Any, key_arrays: object) -> Any:
        """Return a function or a module, compiled once for all sizes, with its weights frozen."""
        torch = self.torch
        if key not in self._modules:
            torch._inductor.config.freezing = True
            torch._dynamo.config.cache_size_limit = COMPILED_GRAPHS
            self._modules[key] = torch.compile(make, dynamic=True), key_arrays
        return self._modules[key][0]


ONEDNN: Mapping[str, tuple[str, list[Any], str]] = {
    "relu": ("relu", [], ""),
    "gelu": ("gelu", [], "none"),
    "sigmoid": ("sigmoid", [], ""),
    "silu": ("swish", [], ""),
    "tanh": ("tanh", [], ""),
}
"""Steps of an epilogue that oneDNN computes with the product, as its call names them."""


def _epilogue(
    torch: Any, steps: Sequence[str], others: Mapping[str, Any], result: Any = None
) -> Callable[[Any], Any] | None:
    """Return what does the steps of an epilogue to a tensor, in place where torch can; None without steps.

    others  the tensor that a step reads, by step
    result  the tensor, where it is known beforehand: in place of what the call is given
    """
    if not steps:
        return None
    functional = torch.nn.functional
    calls: Mapping[str, Callable[[Any], Any]] = {
        "bias": lambda x: x.add_(others["bias"]),
        "residual": lambda x: x.add_(others["residual"]),
        "relu": torch.relu_,
        "gelu": functional.gelu,
        "sigmoid": torch.sigmoid_,
        "silu": partial(functional.silu, inplace=True),
        "tanh": torch.tanh_,
    }

    def finish(value: Any) -> Any:
        tensor = value if result is None else result
        for step in steps:
            tensor = calls[step](tensor)
        return tensor if result is None or tensor is result else result.copy_(tensor)

    return finish


def _with_finish(run: Run, finish: Callable[[Any], Any] | None) -> Run:
    """Return a call whose result goes through `finish`."""
    return run if finish is None else lambda: finish(run())


def _freeze(torch: Any, call: Callable[..., Any], weight: Any) -> Any:
    """Return a module that applies `call` to its first input, a constant, and further inputs."""

    class Frozen(torch.nn.Module):  # type: ignore[misc]  # torch is loaded when it is wanted
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(weight, requires_grad=False)

        def forward(self, x: Any, *others: Any) -> Any:
            return call(x, self.weight, *others)

    return Frozen().eval()


def torch_of(torch: Any, array: Array) -> Any:
    """Return a tensor on the memory of `array`."""
    if array.dtype == numpy_dtype("bfloat16"):
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def array_of(value: Any) -> Array:
    """Return an array on the memory of a tensor."""
    if str(value.dtype) == "torch.bfloat16":
        import torch

        bits: Array = value.view(torch.int16).numpy()
        return bits.view(numpy_dtype("bfloat16"))
    array: Array = value.numpy()
    return array
