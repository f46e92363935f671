"""Whole models as workloads of a study: an ONNX file, or a function that gives a module of torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import offcut as oc
from offcut.core.dtypes import numpy_dtype
from offcut.core.extras import check_installed
from offcut.core.interpret.values import evaluate
from offcut.errors import DescribeError, OffcutError
from offcut.experiment.contraction import Array
from offcut.studies.errors import refusal, text_of
from offcut.studies.named import digest_of_file, named
from offcut.studies.sizes import Values
from offcut.studies.tasks import TOLERANCE, Exact, Task, drawn

TAKEN = ("threads", "target")
"""Arguments of a contender that a model takes; another one is refused."""


def model_workload(
    table: Mapping[str, Any], axes: Mapping[str, Values], at: str, folder: Path
) -> tuple[Any, Mapping[str, Any]]:
    """Return the model that ``model = "file.onnx"`` or ``model = "module:function"`` says, and what identifies it."""
    text, values = text_of(table, "model", at), table.get("values", {})
    if ":" in text:
        check_installed("study", f"cannot take {text}", "torch")
        own = named(text, "offcut.operators", folder, f"{at}.model")
        module, inputs = own.value()
        return TorchWorkload(module, inputs, tuple(axes)), {"model": text, "digest": own.digest}
    file = folder / text
    if not file.is_file():
        raise refusal(
            f"{at}.model",
            f"there is no file {text}",
            'model = "encoder.onnx"',
            'model = "module:function"',
        )
    check_installed("study", f"cannot read {text}", "onnx")
    return OnnxWorkload(file, dict(values)), {"model": digest_of_file(file)}


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those arguments that a model takes.

    Raises DescribeError for another one.
    """
    for name in options:
        if name not in TAKEN and (name, options[name]) != ("strategy", "auto"):
            because = f"a model takes {' and '.join(TAKEN)}"
            raise DescribeError("study", f"cannot give {name}= to a model", because=because)
    return {name: options[name] for name in TAKEN if name in options}


@dataclass
class OnnxWorkload:
    """A file, at sizes of its symbolic axes.

    values  how an input is drawn, by name: ``{"input_ids": "0:30521"}``
    """

    file: Path
    values: Mapping[str, str]
    tolerance: float | None = None
    _model: Any = None
    _wide: Any = None

    @property
    def model(self) -> Any:
        """Return the model as offcut takes it, with its default arguments."""
        if self._model is None:
            self._model = oc.from_onnx(str(self.file))
        return self._model

    def task(self, sizes: Mapping[str, int], seed: int) -> Task:
        """Return an array for each input."""
        inputs, rng = self.model.inputs, np.random.default_rng(seed)
        known = {size.name: _size(sizes, size.name, self.file) for size in self.model.sizes}
        for given, names in ((sizes, known), (self.values, inputs)):
            for name in given:
                if name not in names:
                    what = f"cannot measure {self.file.name}"
                    because = f"it has no {name!r}, but {', '.join(names) or 'none'}"
                    raise DescribeError("study", what, because=because)
        operands = {
            name: drawn(
                [int(evaluate(extent, known)) for extent in one.shape],
                numpy_dtype(one.dtype),
                rng,
                self.values.get(name, ""),
            )
            for name, one in inputs.items()
        }
        moved = self.file.stat().st_size + sum(array.nbytes for array in operands.values())
        kind = next((one.dtype.name for one in operands.values() if one.dtype.kind == "f"), "int8")
        model = ModelTask(self.file.read_bytes(), operands)
        return Task(dict(sizes), operands, {}, kind, 0, moved, lambda: self._exact(operands), model)

    def compiled(self, options: Mapping[str, Any]) -> CompiledModel:
        """Return the model, compiled."""
        taken = _options(options)
        return CompiledModel(oc.from_onnx(str(self.file), **taken) if taken else self.model)

    def _exact(self, operands: Mapping[str, Array]) -> Exact:
        """Return the results by onnxruntime where it is installed, else by the model in float64."""
        tolerance = TOLERANCE["float32"] * 10 if self.tolerance is None else self.tolerance
        from offcut.core.extras import is_installed

        if is_installed("onnxruntime"):
            import onnxruntime

            session = onnxruntime.InferenceSession(self.file, providers=["CPUExecutionProvider"])
            return Exact(
                tuple(session.run(None, dict(operands))), tolerance, "onnxruntime in float32"
            )
        from offcut.graph.interpret import interpreted

        imported = self.model.imported
        named = {imported.inputs[name]: array for name, array in operands.items()}
        made = interpreted(imported.bound, named)
        return Exact(tuple(made.values()), tolerance, "the interpreter")


def _size(sizes: Mapping[str, int], name: str, file: Path) -> int:
    if name not in sizes:
        help = (f"sizes = {{{name} = [1, 8]}}",)
        raise DescribeError(
            "study",
            f"cannot measure {file.name}",
            because=f"its size {name!r} has no value",
            help=help,
        )
    return sizes[name]


@dataclass(frozen=True)
class ModelTask:
    """What a peer is given of an ONNX model: the file, and arrays by input."""

    file: bytes
    feed: Mapping[str, Array]


@dataclass
class TorchWorkload:
    """A module of torch.

    inputs  a function of sizes by name that gives the tensors of a call
    """

    module: Any
    inputs: Callable[..., Sequence[Any]]
    axes: tuple[str, ...]
    tolerance: float | None = None
    _compiled: dict[str, Any] = field(default_factory=dict)

    def task(self, sizes: Mapping[str, int], seed: int) -> Task:
        """Return the tensors of a call as arrays; torch's generator is seeded with `seed`."""
        import torch

        torch.manual_seed(seed)
        given = tuple(self.inputs(**sizes))
        operands = {f"input {number}": one.numpy() for number, one in enumerate(given)}
        every = (*self.module.state_dict().values(), *given)
        moved = sum(one.nbytes for one in every)
        kind = next((one.dtype.name for one in operands.values() if one.dtype.kind == "f"), "int8")
        model = TorchTask(self.module, given)
        return Task(dict(sizes), operands, {}, kind, 0, moved, lambda: self._exact(given), model)

    def compiled(self, options: Mapping[str, Any]) -> CompiledModel:
        """Return the module, taken by `oc.from_torch` with each axis free that varies with the sizes."""
        import torch

        one, other = (
            {name: size + number for number, name in enumerate(self.axes)} for size in (2, 9)
        )
        example, larger = tuple(self.inputs(**one)), tuple(self.inputs(**other))
        free = tuple(
            {
                axis: torch.export.Dim.AUTO
                for axis, (a, b) in enumerate(zip(x.shape, y.shape, strict=True))
                if a != b
            }
            for x, y in zip(example, larger, strict=True)
        )
        with torch.no_grad():
            model = oc.from_torch(
                self.module.eval(), example, dynamic_shapes=free, **_options(options)
            )
        return CompiledModel(model, tuple(inspect.signature(self.module.forward).parameters))

    def _exact(self, given: Sequence[Any]) -> Exact:
        import copy

        import torch

        wide = copy.deepcopy(self.module).double().eval()
        with torch.no_grad():
            made = wide(*(one.double() if one.is_floating_point() else one for one in given))
        made = made if isinstance(made, tuple | list) else (made,)
        tolerance = TOLERANCE["float32"] * 10 if self.tolerance is None else self.tolerance
        return Exact(tuple(one.numpy() for one in made), tolerance, "torch in float64")


@dataclass(frozen=True)
class TorchTask:
    """What a peer is given of a module: itself, and the tensors of a call."""

    module: Any
    given: Sequence[Any]


@dataclass(frozen=True)
class CompiledModel:
    """A model of offcut's.

    arguments  names of a module's, which is called with them in order; none of an ONNX file, whose inputs have names
    """

    model: Any
    arguments: tuple[str, ...] = ()

    def call(self, task: Task) -> tuple[Callable[[], Any], Callable[[Any], tuple[Array, ...]]]:
        """Return a call on the task's inputs."""
        given: tuple[Any, ...] = (dict(task.operands),)
        if self.arguments:
            given = tuple(task.for_peers.given)
        return (lambda: self.model(*given)), results_of

    def cost(self, task: Task) -> Any:
        """Return the model's predicted cost; None where it has none."""
        try:
            return self.model.cost(**self._sizes(task))
        except (AttributeError, KeyError, OffcutError):
            return None

    def _sizes(self, task: Task) -> Mapping[str, int]:
        """Return the sizes as the model names them: of a module of torch, ``x_0`` is the first extent of x."""
        if not self.arguments:
            return task.sizes
        shapes = dict(
            zip(self.arguments, (one.shape for one in task.operands.values()), strict=False)
        )
        parts = {size.name: size.name.rpartition("_") for size in self.model.sizes}
        return {name: shapes[one][int(axis)] for name, (one, _, axis) in parts.items()}


def results_of(made: Any) -> tuple[Array, ...]:
    """Return the arrays of what a model gave."""
    if isinstance(made, Mapping):
        made = tuple(made.values())
    made = made if isinstance(made, tuple | list) else (made,)
    return tuple(
        one.detach().numpy() if hasattr(one, "detach") else np.asarray(one) for one in made
    )
