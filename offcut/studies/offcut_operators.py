"""Operators that offcut describes: contractions, functions of `oc.ops`, loop programs; as tasks and as kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import numpy as np

import offcut as oc
from offcut.backends.compile_request import make_request
from offcut.backends.raising import raise_to_computation
from offcut.core.dtypes import FLOATS, numpy_dtype
from offcut.core.expr import Var
from offcut.core.interpret.interpreter import StepLimitError, run
from offcut.core.interpret.values import evaluate
from offcut.core.program import Kind, Program
from offcut.describe.request import Array
from offcut.errors import DescribeError
from offcut.partition import axis_named, rename_for_user
from offcut.polyhedral.isl_budget import try_isl
from offcut.studies.peers import LoopTask
from offcut.studies.peers.operators import (
    Attention,
    Convolution,
    Dequantized,
    LayerNorm,
    Problem,
    Softmax,
)
from offcut.studies.tasks import TOLERANCE, Exact, Task, at_page_offset, drawn

MOST = 50_000
"""Statements that the interpreter runs for an exact result; a program that takes more is compiled, with all floats in float64."""

LARGEST = 2**16
"""The most that a symbolic size may be, where no size of the study is larger."""


@dataclass
class Described:
    """Tensors, or a program, with random constants.

    output     what `oc.compile` takes; inputs: of tensors, in call order
    constants  names of inputs whose values are known beforehand
    values     how an input is drawn, by name
    contraction  what an einsum computes: the contraction, its element types, the steps of its epilogue
    operator   the name in `oc.ops`, and its arguments
    """

    output: Any
    inputs: Sequence[oc.Tensor] | None
    constants: tuple[str, ...]
    values: Mapping[str, str]
    contraction: Any = None
    operator: tuple[str, Mapping[str, Any]] = ("", field(default_factory=dict))
    tolerance: float | None = None
    _constants: dict[str, Array] = field(default_factory=dict)
    _program: Program | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of its inputs."""
        if self.inputs is not None:
            return tuple(one.name for one in self.inputs)
        kinds = (Kind.INPUT, Kind.INOUT)
        return tuple(one.name for one in self.program.buffers if one.kind in kinds)

    @property
    def program(self) -> Program:
        """Return what is described as loops, with the user's names of inputs."""
        if self._program is None:
            self._program = make_request(self.output, self.inputs, {}, "study").program
        return self._program

    def check_axes(self, names: Iterable[str]) -> None:
        """Check that these are axes of the loops, as strategies of `oc.compile` name them.

        Raises PartitionError for a name of none, or of several.
        """
        request = make_request(self.output, self.inputs, {}, "study")
        computation = try_isl(lambda: raise_to_computation(request.program, {}), None)
        if computation is not None:  # else the program runs in its own loops, and a compile says so
            for name in names:
                axis_named(rename_for_user(computation, request.users), name)

    def task(self, sizes: Mapping[str, int], seed: int) -> Task:
        """Return arrays at `sizes`; constants are the same each time."""
        program, known = self.program, self._known_sizes(sizes)
        rng, operands = np.random.default_rng(seed), dict[str, Array]()
        shapes = self._input_shapes(known)
        constants = self._known_arrays()
        for name, shape, element in shapes:
            if name not in constants:
                array = drawn(shape, element, rng, self.values.get(name, ""))
                operands[name] = at_page_offset(array, len(operands))
        arrays_by_name = {**operands, **constants}
        arrays = {name: arrays_by_name[name] for name, _, _ in shapes}
        results = [b for b in program.buffers if b.kind in (Kind.OUTPUT, Kind.INOUT)]
        moved = sum(array.nbytes for array in arrays.values())
        for result in results:
            count = int(np.prod([evaluate(e, known) for e in result.shape], dtype=np.int64))
            moved += count * numpy_dtype(result.dtype).itemsize
        known_operator = self._known_operator(arrays, sizes)
        return Task(
            dict(sizes),
            operands,
            dict(constants),
            shapes[0][2].name if shapes else results[0].dtype,
            0 if known_operator is None else known_operator.flop,
            moved,
            lambda: self._exact(arrays, known, known_operator),
            known_operator,
            LoopTask(program, arrays, sizes),
        )

    def compiled(self, options: Mapping[str, Any]) -> CompiledKernel:
        """Return a kernel with these arguments of `oc.compile`.

        Raises DescribeError for `frontend`, which applies to models of torch alone.
        """
        if "frontend" in options:
            because = "frontend applies to models of torch alone"
            raise DescribeError("study", "cannot take frontend for a kernel", because=because)
        constants = dict(self._known_arrays())
        kernel = oc.compile(self.output, self.inputs, constants=constants, records=False, **options)
        return CompiledKernel(kernel, free_sizes(kernel))

    def _input_shapes(self, known: Mapping[str, int]) -> list[tuple[str, tuple[int, ...], Any]]:
        """Return the name, shape and element type of each input at these sizes."""
        buffers = (b for b in self.program.buffers if b.kind in (Kind.INPUT, Kind.INOUT))
        return [
            (b.name, tuple(int(evaluate(e, known)) for e in b.shape), numpy_dtype(b.dtype))
            for b in buffers
        ]

    def _known_arrays(self) -> Mapping[str, Array]:
        """Return the constants, drawn once: their shapes are the same at all sizes."""
        if self.constants and not self._constants:
            least = {size.name: size.min for size in self.program.sizes}
            for number, (name, shape, element) in enumerate(self._input_shapes(least)):
                if name in self.constants:
                    rng = np.random.default_rng([7, number])
                    self._constants[name] = drawn(shape, element, rng, self.values.get(name, ""))
        return self._constants

    def _known_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        return {size.name: sizes[size.name] for size in self.program.sizes}

    def _exact(self, arrays: Mapping[str, Any], known: Mapping[str, int], operator: Any) -> Exact:
        """Return the results by numpy with a bound for each element, of an operator that the peers know; else by the interpreter, with
        all floats in float64.
        """
        results = [b for b in self.program.buffers if b.kind in (Kind.OUTPUT, Kind.INOUT)]
        types = {b.dtype for b in self.program.buffers if b.dtype in FLOATS}
        tolerance = max((TOLERANCE[one] for one in types), default=0.0)
        if self.tolerance is not None:
            tolerance = self.tolerance
        if operator is not None:
            reference = operator.reference()
            bounds = () if self.tolerance is not None else (reference,)
            return Exact((reference.value,), tolerance, "numpy in float64", bounds)
        text = re.sub(r"\b(bfloat16|float16|float32)\b", "float64", str(self.program))
        wide = oc.parse(text)
        wide_arrays = {
            name: array.astype(np.float64) if array.dtype.name in FLOATS else array
            for name, array in arrays.items()
        }
        try:
            results_by_name = run(wide, wide_arrays, known, most=MOST)
            values = tuple(results_by_name[b.name] for b in results)
            return Exact(values, tolerance, "the interpreter in float64")
        except StepLimitError:
            kernel = oc.compile(wide, reassociate=False, records=False)
            answer = kernel(**wide_arrays, **{name: known[name] for name in free_sizes(kernel)})
            values = answer if isinstance(answer, tuple) else (answer,)
            return Exact(values, tolerance, "offcut in float64")

    def _known_operator(self, arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
        """Return the task as the peers know it; None where they know no such operator."""
        if self.contraction is not None:
            contraction, kind, epilogue = self.contraction
            return Problem(contraction, dict(sizes), arrays, tuple(self._constants), kind, epilogue)
        name, arguments = self.operator
        if name:  # an argument that is the default says nothing
            defaults = signature(getattr(oc.ops, name)).parameters
            is_default = {
                k: k in defaults and defaults[k].default == v for k, v in arguments.items()
            }
            arguments = {k: v for k, v in arguments.items() if not is_default[k]}
        operands = list(arrays.values())
        kinds = [array.dtype.name for array in operands]
        single = set(kinds) == {"float32"}
        match name, [array.ndim for array in operands]:
            case "softmax", [2] if single and not arguments:
                return Softmax(operands[0])
            case "layernorm", [2, 1, 1] if single and not arguments:
                return LayerNorm(*operands)
            case "attention", [4, 4, 4] if not arguments and operands[0].shape == operands[1].shape:
                q, k, v = operands
                return Attention(q, k, v, q.dtype.name)
            case "conv2d", [4, 4] if single and set(arguments) <= {"stride", "padding"}:
                x, w = operands
                return Convolution(x, w, arguments.get("stride", 1), arguments.get("padding", 0))
            case "dense_quantized", [2, 2, 1] if kinds == ["uint8", "int8", "float32"] and set(
                arguments
            ) == {"x_scale", "x_zero"}:
                x, w, scales = operands
                return Dequantized(x, w, arguments["x_zero"], arguments["x_scale"], scales)
        return None


def free_sizes(kernel: Any) -> tuple[str, ...]:
    """Return the sizes that no operand's shape determines."""
    shapes = [one.shape for one in kernel.signature.inputs]
    names = (size.name for size in kernel.signature.sizes)
    return tuple(name for name in names if not any(Var(name) in shape for shape in shapes))


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel, and the sizes that no operand's shape determines."""

    kernel: Any
    free: tuple[str, ...]

    def call(self, task: Task) -> tuple[Callable[[], Any], Callable[[Any], tuple[Array, ...]]]:
        """Return a call into arrays that are kept, where there is one result."""
        kernel, sizes = self.kernel, {name: task.sizes[name] for name in self.free}
        operands = tuple(task.operands.values())
        first = kernel(*operands, **sizes)
        if isinstance(first, tuple):
            return (lambda: kernel(*operands, **sizes)), tuple
        out = at_page_offset(np.zeros_like(first), len(operands))
        if sizes:
            return (lambda: kernel(*operands, out=out, **sizes)), lambda _: (out,)
        return (lambda: kernel(*operands, out=out)), lambda _: (out,)

    def cost(self, task: Task) -> Any:
        """Return the kernel's cost at the task's sizes."""
        return self.kernel.cost(**self._sizes(task))

    def simulated_seconds(self, task: Task) -> float | None:
        """Return the seconds of the call by the simulator of the kernel's machine; None where it has none."""
        if not self.kernel.code.target.is_simulator:
            return None
        seconds: float = self.kernel.timeline(**self._sizes(task)).seconds
        return seconds

    def _sizes(self, task: Task) -> dict[str, int]:
        return {size.name: task.sizes[size.name] for size in self.kernel.signature.sizes}
