"""`from_onnx`: a file to a model that runs at every size."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offcut.core.extras import check_installed
from offcut.core.gc_scope import freeze_gc
from offcut.core.program import Size
from offcut.describe.request import Array, lent
from offcut.errors import DescribeError, trim_traceback
from offcut.graph import Graph, Model, Targets, compiled

if TYPE_CHECKING:
    from offcut.backends.abi import Exported
    from offcut.graph.models.batches.parts import Parts
    from offcut.graph.models.cost import ModelCost
    from offcut.graph.models.plan import ModelPlan
    from offcut.plugins.onnx.importing import Imported

OP = "from_onnx"


class OnnxModel:
    """A model of an ONNX file: ``model({"x": x})``, or ``model(x)`` of one input, gives the outputs by the names that they have there.

    imported  the graph, and the names of its inputs and outputs in the file
    model     what runs
    """

    def __init__(self, imported: Imported, model: Model) -> None:
        self.imported, self.model = imported, model

    def __repr__(self) -> str:
        given, found = (", ".join(names) for names in (self.imported.inputs, self.imported.outputs))
        sizes = ", ".join(size.name for size in self.sizes)
        return f"<model {self.graph.name}({given}) -> {found} for any {sizes or 'call'}>"

    @property
    def graph(self) -> Graph:
        """The graph of our operators that the file became."""
        return self.imported.bound.graph

    @property
    def sizes(self) -> tuple[Size, ...]:
        """What the extents of inputs are made of, with their bounds."""
        return self.graph.sizes

    @trim_traceback
    def __call__(self, feed: Any = None, *more: Any, **sizes: int) -> dict[str, Array]:
        """The outputs by name.

        feed   an array for each input, by name; or the array, where there is one input
        more   none: arrays in order are refused with the names
        sizes  those that no shape determines

        Raises CallError where an array does not fit.
        """
        return self.imported.run(self.model, (feed, *more) if more else feed, sizes)

    def plan(self, **sizes: int) -> ModelPlan:
        """What a call runs, as `Model.plan` says it."""
        return self.model.plan(**sizes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model into a file, which `offcut.load` runs where there is no compiler, as `Model.save` says."""
        self.model.save(path, self.imported.inputs, self.imported.outputs, "mapping")

    def export(self, folder: str | os.PathLike[str], name: str | None = None) -> Exported:
        """Return an object file and a C header, as `Model.export` says."""
        return self.model.export(folder, name, self.imported.inputs, self.imported.outputs)

    def cost(self, **sizes: int) -> ModelCost:
        """What a call is predicted to cost, as `Model.cost` says it."""
        return self.model.cost(**sizes)


@freeze_gc()
@trim_traceback
def from_onnx(
    source: Any,
    sizes: Mapping[str, int | tuple[int, int]] | None = None,
    threads: int | None = None,
    target: Targets = "cpu",
    *,
    constants: Mapping[str, Any] | None = None,
    distributive: bool = True,
    parts: Parts = True,
) -> OnnxModel:
    """A model of an ONNX file, compiled once for all its sizes.

    source     a path, the bytes of a file, or an ``onnx.ModelProto``
    sizes      bounds of sizes, ``{"batch": (1, 512)}``, or values, ``{"batch": 8}``; by default from 1 on. A size is a
               ``dim_param`` of the file, or ``x_0`` for the first axis of x, where that has no name
    threads    that a kernel may use; None: as `offcut.compile` says
    target     a target, or its name; or several: a kernel runs on the first that takes it
    constants  arrays for inputs that no call changes: a shape, axes, weights
    distributive  whether products may be distributed over sums, as `offcut.graph.compiled` says
    parts      which kernels run for a part of the batch at a time, likewise: lines as `OnnxModel.plan` shows them, or a rule

    Extents that are calculated (``Shape``, ``Gather``, ``Concat``, ``Reshape``) become expressions over the sizes. Operators that
    ONNX defines as functions, and functions of the model, are expanded.

    Raises DescribeError for a file that is none, for sizes that it has not, and for nodes that cannot be taken: all of them
    at once, each with the reason. Raises TargetError where onnx is not installed.
    """
    check_installed(OP, "cannot read ONNX files", "onnx")
    import onnx

    from offcut.plugins.onnx.importing import imported
    from offcut.plugins.onnx.weights import arrays_in, let_go

    for name, given in (("sizes", sizes), ("constants", constants)):
        if given is not None and not isinstance(given, Mapping):
            raise DescribeError(
                OP,
                f"cannot take {name}={given!r}",
                because="they are given by name",
                help=('sizes={"batch": (1, 512)}', 'constants={"axes": array}'),
            )
    proto, weights = _proto(onnx, source)
    with lent(weights.values(), let_go):
        weights = arrays_in(proto, weights)
        found = imported(proto, sizes or {}, constants or {}, weights)
        model = compiled(found.bound, threads, target, distributive=distributive, parts=parts)
    return OnnxModel(replace(found, bound=model.asked), model)


def _proto(onnx: Any, source: Any) -> tuple[Any, Mapping[int, Array]]:
    """The model of a path, of bytes, or itself; and the bytes of initializers that are left out of it, by their places."""
    from offcut.plugins.onnx.weights import apart, mapped

    if isinstance(source, onnx.ModelProto):
        return source, {}
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        try:
            if (
                onnx.serialization.registry.get_format_from_file_extension(path.suffix)
                == "protobuf"
            ):
                rest, weights = apart(mapped(path))
                made = onnx.load_model_from_string(rest)
            else:
                made, weights = onnx.load(path, load_external_data=False), {}
        except OSError as error:
            raise _unread(path, str(error.strerror)) from None
        except Exception as error:  # protobuf has errors of its own
            raise _unread(path, _short(error)) from None
        try:
            onnx.load_external_data_for_model(made, str(path.parent))
        except Exception as error:  # of the checker, of the system
            because = f"its tensors lie in another file: {' '.join(str(error).split())}"
            raise DescribeError(OP, f"cannot read {path}", because=because) from None
        return made, weights
    if isinstance(source, bytes | bytearray | memoryview):
        try:
            rest, weights = apart(memoryview(source).cast("B"))
            return onnx.load_model_from_string(rest), weights
        except Exception as error:  # likewise
            raise DescribeError(
                OP, f"cannot read {memoryview(source).nbytes} bytes", because=_short(error)
            ) from None
    raise DescribeError(
        OP,
        f"cannot take {type(source).__name__}",
        because="a model is a path, the bytes of a file, or an onnx.ModelProto",
        help=('from_onnx("model.onnx")',),
    )


def _unread(path: Path, because: str) -> DescribeError:
    help = ('from_onnx("model.onnx"): a file that onnx.save wrote, or another exporter',)
    return DescribeError(OP, f"cannot read {path}", because=because, help=help)


def _short(error: Exception) -> str:
    return f"it is no ONNX model: {str(error).strip().splitlines()[0] if str(error) else error!r}"
