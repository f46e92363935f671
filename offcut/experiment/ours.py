"""offcut as one of the contenders: `oc.ops` on a task, compiled once for all sizes.

What is symbolic is the batch, the rows and the image; channels, features and constants are fixed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import offcut as oc
from offcut.errors import DescribeError
from offcut.experiment.contraction import Array, Computation, Problem, build, poisoned
from offcut.experiment.operators import (
    EPSILON,
    Attention,
    Convolution,
    Dequantized,
    LayerNorm,
    Softmax,
)
from offcut.experiment.peers import Way
from offcut.partition import STRATEGIES as KNOWN

STRATEGIES = ("auto", *(strategy.name for strategy in KNOWN))
"""The strategies that can be named."""

LARGEST = 2**16
"""The most that a symbolic size may be."""

HOPELESS = 4.0
"""Times the least time of a first call: a form beyond is not measured."""

Task = Problem | Attention | Convolution | Softmax | LayerNorm | Dequantized
"""What a bench gives to everybody."""


@dataclass(frozen=True, slots=True)
class Form:
    """One way to describe a task to offcut, with the arrays of this task.

    key        what the kernel is compiled for; tasks with equal keys and the same `keeps` share one
    describe   makes the tensor expressions
    constants  arrays by placeholder name
    operands   the other arrays, in call order
    out        where the result goes
    keeps      the task's constants
    read       the result with the axes that the task has, from `out`
    """

    name: str
    key: tuple[object, ...]
    describe: Callable[[], Computation]
    constants: Mapping[str, Array]
    operands: tuple[Array, ...]
    out: Array
    keeps: tuple[Array, ...] = ()
    read: Callable[[Array], Array] = np.asarray

    def __str__(self) -> str:
        return f"{self.name} {' '.join(map(str, self.key))}"


def forms(task: Task, swept: Mapping[str, tuple[int, int]]) -> tuple[Form, ...]:
    """The descriptions of `task`; `swept` are the symbolic letters of a contraction."""
    key: tuple[object, ...]
    out = task.result()
    match task:
        case Problem():
            fixed = {letter: size for letter, size in task.sizes.items() if letter not in swept}
            swept = {letter: ends for letter, ends in swept.items() if letter in task.sizes}
            key = (str(task.contraction), task.kind, *fixed.items(), *swept.items())
            describe = partial(build, task.contraction, fixed, swept, task.kind)
            constants = {name: task.arrays[name] for name in task.constant}
            keeps = tuple(constants.values())
            return (Form("ops", key, describe, constants, task.operands, out, keeps),)
        case Attention():
            describe = partial(attention, task.kind, task.q.shape[-1])
            key = ("attention", task.kind, task.q.shape[-1])
            return (Form("ops", key, describe, {}, (task.q, task.k, task.v), out),)
        case Convolution():
            return (_convolution(task, "NCHW"), _convolution(task, "NHWC"))
        case Softmax():
            return (Form("ops", ("softmax",), softmax, {}, (task.x,), out),)
        case LayerNorm():
            constants = {"gain": task.gain, "bias": task.bias}
            columns, keeps = task.x.shape[-1], (task.gain, task.bias)
            describe = partial(layernorm, columns)
            key = ("layernorm", columns)
            return (Form("ops", key, describe, constants, (task.x,), out, keeps),)
        case Dequantized():
            constants = {"W": task.w, "scales": task.scales}
            describe = partial(dequantized, task.w.shape, task.zero, task.scale)
            key = ("dense_quantized", *task.w.shape, task.zero, task.scale)
            keeps = (task.w, task.scales)
            return (Form("ops", key, describe, constants, (task.x,), out, keeps),)


def _sizes(letters: str, least: int = 1) -> list[Any]:
    return [oc.dim(letter, min=least, max=LARGEST) for letter in letters]


def attention(kind: str, d: int) -> Computation:
    """`oc.ops.attention` of q, k and v, each (b, h, s, d)."""
    shape = (*_sizes("bhs"), d)
    q, k, v = inputs = tuple(oc.placeholder(shape, kind, name=name) for name in "QKV")
    return Computation(inputs, oc.ops.attention(q, k, v, name="result"))


def softmax() -> Computation:
    """`oc.ops.softmax` of the rows of x, (m, n)."""
    x = oc.placeholder(tuple(_sizes("mn")), "float32", name="X")
    return Computation((x,), oc.ops.softmax(x, name="result"))


def layernorm(columns: int) -> Computation:
    """`oc.ops.layernorm` of the rows of x, (m, columns)."""
    x = oc.placeholder((*_sizes("m"), columns), "float32", name="X")
    gain, bias = (oc.placeholder((columns,), "float32", name=name) for name in ("gain", "bias"))
    return Computation((x, gain, bias), oc.ops.layernorm(x, gain, bias, EPSILON, name="result"))


def dequantized(shape: tuple[int, ...], zero: int, scale: float) -> Computation:
    """`oc.ops.dense_quantized` of x, (m, k) of uint8, w of `shape`, (k, n)."""
    x = oc.placeholder((*_sizes("m"), shape[0]), "uint8", name="X")
    w = oc.placeholder(shape, "int8", name="W")
    scales = oc.placeholder(shape[1:], "float32", name="scales")
    result = oc.ops.dense_quantized(x, w, scale, scales, x_zero=zero, name="result")
    return Computation((x, w, scales), result)


def convolution(task: Convolution, layout: str) -> Computation:
    """`oc.ops.conv2d` of images of any batch and size, with the channels, windows and stride of `task`."""
    outputs, channels, *window = task.weights.shape
    (b,) = _sizes("b")
    h, w = (_sizes(x, max(1, n - 2 * task.padding))[0] for x, n in zip("hw", window, strict=True))
    last = layout == "NHWC"
    image = oc.placeholder((b, h, w, channels) if last else (b, channels, h, w), name="X")
    held = (*window, channels, outputs) if last else (outputs, channels, *window)
    weights = oc.placeholder(held, "float32", name="W")
    result = oc.ops.conv2d(image, weights, None, task.stride, task.padding, layout=layout, name="Y")
    return Computation((image, weights), result)


def _convolution(task: Convolution, layout: str) -> Form:
    """With the channels last in memory, or as the task has them."""
    image, weights, out = task.image, task.weights, task.result()
    read: Callable[[Array], Array] = np.asarray
    if layout == "NHWC":
        image, weights = image.transpose(0, 2, 3, 1), weights.transpose(2, 3, 1, 0)
        batch, outputs, height, width = task.shape
        out = poisoned((batch, height, width, outputs), "float32")
        read = partial(np.transpose, axes=(0, 3, 1, 2))
    key = ("conv2d", *task.weights.shape, task.stride, task.padding)
    constants = {"W": np.ascontiguousarray(weights)}
    operands = (np.ascontiguousarray(image),)
    describe = partial(convolution, task, layout)
    return Form(layout, key, describe, constants, operands, out, (task.weights,), read)


@dataclass(slots=True)
class Ours:
    """Kernels of offcut's, compiled when a task first needs them.

    swept     symbolic letters of contractions, each with the least and largest extent
    threads   of each kernel
    strategy  how rows are cut
    seconds   what compiling took, by form; of the forms compiled so far
    refused   forms that could not be compiled or called, each with the reason
    """

    swept: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    threads: int = 1
    name: str = "offcut"
    strategy: str = "auto"
    seconds: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    _kernels: dict[object, tuple[oc.Kernel, tuple[Array, ...]]] = field(default_factory=dict)
    _failed: set[object] = field(default_factory=set)

    def ways(self, task: Task) -> tuple[Way, ...]:
        """A way for each form that compiles and that can be called; none where none does.

        A form whose first call takes several times as long as another's is left out.
        """
        found: list[tuple[float, Way]] = []
        for form in forms(task, self.swept):
            key = (form.name, form.key, *map(id, form.keeps))
            if key in self._failed:
                continue
            try:
                run = partial(self._kernel(key, form), *form.operands, out=form.out)
                start = time.perf_counter()
                run()
                taken = time.perf_counter() - start
            except Exception as stopped:  # whatever stops one form is a line under the table
                self._failed.add(key)
                self.refused[f"{self.name} {form}"] = _reason(stopped)
                continue
            found.append((taken, Way(f"{self.name}.{form.name}", run, partial(_read, form))))
        least = min((taken for taken, _ in found), default=0.0)
        return tuple(way for taken, way in found if taken <= HOPELESS * least)

    def _kernel(self, key: object, form: Form) -> oc.Kernel:
        """The kernel of a form; the task's constants are kept, so that their ids stay theirs."""
        if key not in self._kernels:
            start = time.perf_counter()
            kernel = form.describe().compile(form.constants, self.threads, self.strategy)
            self.seconds[f"{self.name} {form}"] = time.perf_counter() - start
            self._kernels[key] = kernel, form.keeps
        return self._kernels[key][0]


def strategies(names: Iterable[str], swept: Mapping[str, tuple[int, int]]) -> tuple[Ours, ...]:
    """A contender on one thread for each of these strategies.

    Raises DescribeError when a name is not known.
    """
    for name in names:
        if name not in STRATEGIES:
            raise DescribeError(
                "sweep",
                f"there is no strategy {name!r}",
                at=f"--strategies {name}",
                because=f"the strategies are {', '.join(STRATEGIES)}",
            )
    return tuple(Ours(swept, 1, name, name) for name in dict.fromkeys(names))


def _read(form: Form, _: object) -> Array:
    return form.read(form.out)


def _reason(stopped: Exception) -> str:
    lines = [line.strip() for line in str(stopped).splitlines() if line.strip()]
    because = next((line for line in lines if line.startswith("because")), "")
    return f"{type(stopped).__name__}: {' '.join((*lines[:1], because))[:200]}"
