"""Whole models as workloads of a study: ONNX models, and modules of torch."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import offcut as oc
from offcut.core.dtypes import numpy_dtype
from offcut.core.extras import check_installed, is_installed
from offcut.core.interpret.values import evaluate
from offcut.describe.request import Array
from offcut.errors import DescribeError, OffcutError
from offcut.studies.errors import Place, file_of, refusal, table_of, text_of
from offcut.studies.functions import check_arguments
from offcut.studies.peers.onnx_reference import exact_results
from offcut.studies.peers.operators import ModelTask, TorchTask, results_of
from offcut.studies.sizes import Values
from offcut.studies.tasks import TOLERANCE, Exact, Task, drawn
from offcut.studies.user_objects import (
    check_callable,
    digest_of_file,
    load_named,
    needs_missing_module,
)

if TYPE_CHECKING:
    from offcut.graph import Rule, Substituted
    from offcut.plugins.onnx.model import OnnxModel

MODEL_OPTIONS = ("threads", "target", "rules")
"""Arguments of a contender that a model takes; another one is refused."""
FRONTENDS = ("torch", "onnx")
"""Importers of a module of torch: `offcut.from_torch`, or `offcut.from_onnx` of the file that torch exports."""


def model_workload(
    table: Mapping[str, Any], axes: Mapping[str, Values], at: Place, folder: Path
) -> tuple[Any, Mapping[str, Any]]:
    """Return the model that ``model = "file.onnx"`` or ``model = "module:function"`` says, and what identifies it."""
    text, values = text_of(table, "model", at), table.get("values", {})
    if ":" in text:
        own = load_named(text, "offcut.operators", folder, at / "model")
        arguments = dict(table_of(table, "arguments", at, "arguments = {layers = 2}"))
        check_callable(own, at / "model", "its arguments, which returns a model")
        check_arguments(own.value, arguments, at)
        if needs_missing_module(own.value):  # a call with these arguments raises if it does
            own.value(**arguments)
        identity = {"model": text, "digest": own.digest, "arguments": arguments}
        return FunctionModel(text, own.value, arguments, dict(axes), dict(values)), identity
    examples = 'model = "encoder.onnx"', 'model = "module:function"'
    file = file_of(table, "model", at, folder, *examples)
    if not is_installed("onnx"):
        raise ModuleNotFoundError(name="onnx")
    _check_onnx_file(file, at / "model")
    return OnnxWorkload(file, dict(values)), {"model": digest_of_file(file)}


def _check_onnx_file(file: Path, at: Place) -> None:
    """Check that a file is one of ONNX; its weights are not read.

    Raises DescribeError.
    """
    import onnx

    from offcut.plugins.onnx.weights import apart, map_file

    try:
        onnx.load_model_from_string(apart(memoryview(map_file(file)))[0])
    except Exception as error:  # protobuf has errors of its own
        help = "a file that onnx.save wrote, or another exporter"
        raise refusal(at, f"{file.name} is not an ONNX model", help) from error


def _options(options: Mapping[str, Any], allowed: Sequence[str] = MODEL_OPTIONS) -> dict[str, Any]:
    """Return those arguments that a model takes.

    Raises DescribeError for another one.
    """
    for name in options:
        if name not in allowed and (name, options[name]) != ("strategy", "auto"):
            because = f"a model takes {' and '.join(allowed)}"
            raise DescribeError("study", f"cannot give {name}= to a model", because=because)
    return {name: options[name] for name in allowed if name in options}


@dataclass
class FunctionModel:
    """A model that a user's function makes when it is first needed.

    function  called with `arguments` by name; gives an ONNX model, or a module of torch and a function from sizes to its inputs
    """

    name: str
    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    axes: Mapping[str, Values]
    values: Mapping[str, str]
    tolerance: float | None = None
    _workload: Any = None

    @property
    def workload(self) -> OnnxWorkload | TorchWorkload:
        """Return the model as a workload of its kind.

        Raises DescribeError for what is none, and whatever the function raises.
        """
        if self._workload is None:
            model = self.function(**self.arguments)
            if isinstance(model, tuple) and len(model) == 2 and callable(model[1]):
                check_installed("study", f"cannot take {self.name}", "torch")
                self._workload = TorchWorkload(*model, self.axes)
            elif hasattr(model, "SerializeToString"):
                self._workload = OnnxWorkload(model.SerializeToString(), self.values, self.name)
            else:
                because = f"it gave {type(model).__name__}"
                help = ("return an ONNX model", "return module, inputs_of_sizes")
                what = f"cannot take {self.name}"
                raise DescribeError("study", what, because=because, help=help)
            self._workload.tolerance = self.tolerance
        workload: OnnxWorkload | TorchWorkload = self._workload
        return workload

    def task(self, sizes: Mapping[str, int], seed: int) -> Task:
        """Return the arguments of a call."""
        return self.workload.task(sizes, seed)

    def compiled(self, options: Mapping[str, Any]) -> CompiledModel:
        """Return the model, compiled."""
        return self.workload.compiled(options)


@dataclass
class OnnxWorkload:
    """An ONNX model, at sizes of its symbolic axes.

    source  a file, or the bytes of one
    values  how an input is drawn, by name: ``{"input_ids": "0:30521"}``
    """

    source: Path | bytes
    values: Mapping[str, str]
    name: str = ""
    tolerance: float | None = None
    _model: Any = None

    @property
    def label(self) -> str:
        """Return the name of the file, or of the function that made the model."""
        return self.source.name if isinstance(self.source, Path) else self.name

    @property
    def content(self) -> bytes:
        """Return the bytes of the file."""
        return self.source.read_bytes() if isinstance(self.source, Path) else self.source

    @property
    def model(self) -> Any:
        """Return the model as offcut takes it, with its default arguments."""
        if self._model is None:
            self._model = oc.from_onnx(self._given_inputs)
        return self._model

    @property
    def _given_inputs(self) -> Any:
        return str(self.source) if isinstance(self.source, Path) else self.source

    def task(self, sizes: Mapping[str, int], seed: int) -> Task:
        """Return an array for each input."""
        inputs, rng = self.model.inputs, np.random.default_rng(seed)
        known = {size.name: self._size(sizes, size.name) for size in self.model.sizes}
        for group, names in ((sizes, known), (self.values, inputs)):
            for name in group:
                if name not in names:
                    what = f"cannot measure {self.label}"
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
        content = self.content
        moved = len(content) + sum(array.nbytes for array in operands.values())
        kind = next((one.dtype.name for one in operands.values() if one.dtype.kind == "f"), "int8")
        model = ModelTask(content, operands)
        return Task(dict(sizes), operands, {}, kind, 0, moved, lambda: self._exact(model), model)

    def compiled(self, options: Mapping[str, Any]) -> CompiledModel:
        """Return the model, compiled."""
        accepted = _options(options)
        if "rules" in accepted:
            rules = accepted.pop("rules")
            return substitute_model(self.model, rules, accepted)
        return CompiledModel(
            oc.from_onnx(self._given_inputs, **accepted) if accepted else self.model
        )

    def _exact(self, task: ModelTask) -> Exact:
        """Return the results in float64 where onnx's reference evaluator has the operators; the answer says by what."""
        tolerance = TOLERANCE["float32"] * 10 if self.tolerance is None else self.tolerance
        reference = exact_results(task.file, task.feed)
        if reference is not None:
            return Exact(reference[0], tolerance, reference[1])
        from offcut.graph.interpret import interpret_graph

        imported = self.model.imported
        inputs = {imported.inputs[name]: array for name, array in task.feed.items()}
        results = interpret_graph(imported.bound, inputs)
        return Exact(tuple(results.values()), tolerance, "the interpreter")

    def _size(self, sizes: Mapping[str, int], name: str) -> int:
        if name not in sizes:
            because, help = f"its size {name!r} has no value", (f"sizes = {{{name} = [1, 8]}}",)
            raise DescribeError("study", f"cannot measure {self.label}", because=because, help=help)
        return sizes[name]


@dataclass
class TorchWorkload:
    """A module of torch.

    inputs  a function of sizes by name that gives the tensors of a call
    axes    the extents of each size
    """

    module: Any
    inputs: Callable[..., Sequence[Any]]
    axes: Mapping[str, Values]
    tolerance: float | None = None
    _wide: Any = None
    _file: bytes = b""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the module's arguments."""
        return tuple(inspect.signature(self.module.forward).parameters)

    @property
    def example(self) -> tuple[Any, ...]:
        """Return the tensors of a call whose sizes are those of the study at the most, no two alike, and none of them 1."""
        return tuple(self.inputs(**self._sizes(0)))

    @property
    def free(self) -> tuple[tuple[int, ...], ...]:
        """Return the axes of each argument that vary with the sizes that are swept; all axes, where no size has a name."""
        if not self.axes:
            return tuple(tuple(range(one.dim())) for one in self.example)
        larger = self.inputs(**self._sizes(7))
        return tuple(
            tuple(k for k, (a, b) in enumerate(zip(x.shape, y.shape, strict=True)) if a != b)
            for x, y in zip(self.example, larger, strict=True)
        )

    def _sizes(self, more: int) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for name, values in self.axes.items():
            extent = max(values.weights)
            if values.swept:
                extent = max(extent, 2) + more
                while extent in sizes.values():
                    extent += 1
            sizes[name] = extent
        return sizes

    def file(self) -> bytes:
        """Return the module as an ONNX file in which the axes are free that vary with the sizes."""
        if not self._file:
            self._file = _export_onnx(self.module.eval(), self.example, self.names, self.free)
        return self._file

    def task(self, sizes: Mapping[str, int], seed: int) -> Task:
        """Return the tensors of a call as arrays; torch's generator is seeded with `seed`."""
        import torch

        torch.manual_seed(seed)
        group = tuple(self.inputs(**sizes))
        operands = {name: one.numpy() for name, one in zip(self.names, group, strict=False)}
        every = (*self.module.state_dict().values(), *group)
        moved = sum(one.nbytes for one in every)
        kind = next(
            (one.dtype.name for one in operands.values() if one.dtype.kind == "f"), "float32"
        )
        model = TorchTask(self.module.eval(), group, lambda: ModelTask(self.file(), operands))
        flop = _flop_of(self.module.eval(), group)
        return Task(dict(sizes), operands, {}, kind, flop, moved, lambda: self.exact(group), model)

    def compiled(self, options: Mapping[str, Any]) -> CompiledModel:
        """Return the module, imported by one of `FRONTENDS`, with each axis that varies with the sizes dynamic."""
        import torch

        model_options = _options(options, (*MODEL_OPTIONS, "frontend"))
        if model_options.pop("frontend", FRONTENDS[0]) == "onnx":
            return OnnxWorkload(self.file(), {}).compiled(model_options)
        if "rules" in model_options:
            because = "torch runs what is not ours of a module, so that it has no graph of its own"
            what, help = "cannot give rules= to a module of torch", ('frontend = "onnx"',)
            raise DescribeError("study", what, because=because, help=help)
        free = tuple(dict.fromkeys(axes, torch.export.Dim.AUTO) for axes in self.free)
        with torch.no_grad():
            model = oc.from_torch(
                self.module.eval(), self.example, dynamic_shapes=free, **model_options
            )
        return CompiledModel(model, self.names)

    def exact(self, inputs: Sequence[Any]) -> Exact:
        """Return what a call of these tensors must give, by the module in float64."""
        import copy

        import torch

        if self._wide is None:
            self._wide = copy.deepcopy(self.module).double().eval()
        with torch.no_grad():
            results = self._wide(
                *(one.double() if one.is_floating_point() else one for one in inputs)
            )
        results = results if isinstance(results, tuple | list) else (results,)
        tolerance = TOLERANCE["float32"] * 10 if self.tolerance is None else self.tolerance
        return Exact(tuple(one.numpy() for one in results), tolerance, "torch in float64")


def _export_onnx(
    module: Any,
    example: Sequence[Any],
    names: Sequence[str],
    free: Sequence[Sequence[int]],
) -> bytes:
    """Return an ONNX file, by torch's older exporter, or by the newer one where that one fails.

    Raises what the older one raises, where both fail.
    """
    import io
    import warnings

    import torch

    labels = [
        {axis: f"{name}_{axis}" for axis in axes} for name, axes in zip(names, free, strict=False)
    ]
    used = list(names[: len(labels)])
    older = {"dynamo": False, "dynamic_axes": dict(zip(used, labels, strict=True))}
    newer = {"dynamic_shapes": tuple(labels), "external_data": False, "verbose": False}

    def exported(options: Mapping[str, Any]) -> bytes:
        file = io.BytesIO()
        torch.onnx.export(module, tuple(example), file, input_names=used, **options)
        return file.getvalue()

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            return exported(older)
        except Exception as error:  # of the exporter, of any kind
            try:
                return exported(newer)
            except Exception:
                raise error from None


def _flop_of(module: Any, inputs: Sequence[Any]) -> int:
    """Return the operations of the products that a module does on these tensors."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    known = {torch.ops.aten.mkldnn_rnn_layer: _recurrent_flop}
    with FlopCounterMode(display=False, custom_mapping=known) as counter, torch.no_grad():
        module(*inputs)
    return int(counter.get_total_flops())


def _recurrent_flop(
    x: Sequence[int], read: Sequence[int], carried: Sequence[int], *_: Any, **__: Any
) -> int:
    """Return the operations of a recurrent layer, by the shapes of its argument and of its two matrices."""
    return 2 * math.prod(x[:-1]) * (math.prod(read) + math.prod(carried))


@dataclass(frozen=True)
class CompiledModel:
    """A model of offcut's.

    arguments  names of a module's, which is called with them in order; none of an ONNX file, whose inputs have names
    """

    model: Any
    arguments: tuple[str, ...] = ()

    def call(self, task: Task) -> tuple[Callable[[], Any], Callable[[Any], tuple[Array, ...]]]:
        """Return a call on the task's inputs."""
        arguments: tuple[Any, ...] = (dict(task.operands),)
        if self.arguments:
            arguments = tuple(task.for_peers.inputs)
        return (lambda: self.model(*arguments)), results_of

    @property
    def way(self) -> str:
        """Return the model's name as a contender, and what torch runs of it."""
        if not self.arguments:
            return "offcut"
        return ", ".join(("offcut", *str(self.model.report).splitlines()[:1]))

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


@dataclass(frozen=True, kw_only=True)
class SubstitutedModel(CompiledModel):
    """A model whose graph is the cheapest that rules lead to."""

    search: Substituted

    @property
    def way(self) -> str:
        """Return the rules that were applied, the predicted gain, and how many graphs were priced."""
        rules = ", ".join(self.search.rules) or "nothing is cheaper"
        gain = self.search.before / self.search.after
        return f"{rules}; predicted gain {gain:.2f}, {self.search.tried} graphs"


def substitute_model(
    model: OnnxModel, rules: Sequence[Rule], options: Mapping[str, Any]
) -> SubstitutedModel:
    """Return a model with the cheapest graph that rules lead to, by predicted cost at typical sizes.

    options  threads and target of `offcut.graph.compile_graph`
    """
    from offcut.graph import compile_graph, search_rewrites
    from offcut.plugins.onnx.compile_file import CompiledFile
    from offcut.plugins.onnx.model import OnnxModel

    search = search_rewrites(model.imported.bound, rules, target=options.get("target", "cpu"))
    imported = replace(model.imported, bound=search.bound)
    file = CompiledFile(imported, compile_graph(search.bound, **options))
    return SubstitutedModel(OnnxModel(lambda: file), search=search)
