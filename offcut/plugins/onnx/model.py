"""`from_onnx`: a file to a model that runs at every size.

A file that was compiled before is run from the cache: the packages onnx and the compiler are imported where something else is asked.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from offcut.backends.abi import Argument
from offcut.backends.host.cache import model_key, read_model
from offcut.backends.host.saved_file import SavedModel
from offcut.core.extras import check_installed
from offcut.core.process import ForkSafeLock, freeze_gc
from offcut.core.program import MAX_SIZE, Size
from offcut.errors import CallError, DescribeError, OffcutError, trim_traceback
from offcut.plugins.onnx.weights import apart, let_go, map_file

if TYPE_CHECKING:
    from offcut.backends.abi import Exported
    from offcut.describe.request import Array
    from offcut.graph import Graph, Model, Targets
    from offcut.graph.models.batches.microbatches import Parts
    from offcut.graph.models.cost import ModelCost, ModelPlan
    from offcut.graph.models.profile import ModelProfile
    from offcut.plugins.onnx.compile_file import CompiledFile
    from offcut.plugins.onnx.file_facts import FileFacts
    from offcut.plugins.onnx.import_model import Imported

OP = "from_onnx"
EXTERNAL = b"\x0a\x08location\x12"
"""How the entry of a tensor begins whose data lie in another file."""


class OnnxModel:
    """A model of an ONNX file: ``model({"x": x})``, or ``model(x)`` of one input, gives the outputs by the names that they have there."""

    def __init__(
        self, compile: Callable[[], CompiledFile], saved: SavedModel | None = None
    ) -> None:
        """Take a model of the cache, which runs until something is asked that it does not have.

        compile  the file; called once, where that is asked; saved  None: now
        """
        self._compile, self._lock = compile, ForkSafeLock()
        self._saved = saved
        self._compiled = compile() if saved is None else None
        self._by_name = None if self._compiled is None else _calls_by_name(self._compiled)

    def compile(self) -> None:
        """Compile the file, where the model is one of the cache: its plans, costs and profiles are then at hand."""
        _ = self._file

    @property
    def _file(self) -> CompiledFile:
        """Return the compiled file."""
        with self._lock:
            if self._compiled is None:
                self._compiled, self._saved = self._compile(), None
                self._by_name = _calls_by_name(self._compiled)
            return self._compiled

    @property
    def imported(self) -> Imported:
        """Return the graph, and the names of its inputs and outputs in the file."""
        return self._file.imported

    @property
    def model(self) -> Model:
        """Return what runs."""
        return self._file.model

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(names) for names in (self.inputs, self.outputs))
        saved = self._saved
        name = saved.signature.name if saved else self.graph.name
        sizes = ", ".join(size.name for size in self.sizes)
        return f"<model {name}({inputs}) -> {outputs} for any {sizes or 'call'}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """It is compiled again where it is read: its kernels come from the cache."""
        return _of_file, (self._file,)

    @property
    def graph(self) -> Graph:
        """The graph of our operators that the file became."""
        return self.imported.bound.graph

    @property
    def file(self) -> FileFacts:
        """The facts that the file states of itself."""
        from offcut.plugins.onnx.file_facts import FileFacts

        saved = self._saved
        return FileFacts.from_json(saved.saved.source) if saved else self.imported.file

    @property
    def sizes(self) -> tuple[Size, ...]:
        """What the extents of inputs are made of, with their bounds."""
        saved = self._saved
        return saved.signature.sizes if saved else self.graph.sizes

    @property
    def inputs(self) -> dict[str, Argument]:
        """What a call takes, by the names in the file; extents are over `sizes`."""
        saved = self._saved
        return saved.inputs if saved else self._arguments(self.imported.inputs)

    @property
    def outputs(self) -> dict[str, Argument]:
        """What a call gives, likewise."""
        saved = self._saved
        return saved.outputs if saved else self._arguments(self.imported.outputs)

    def _arguments(self, names: Mapping[str, str]) -> dict[str, Argument]:
        values = self.graph.values
        return {
            name: Argument(own, values[own].dtype, values[own].shape) for name, own in names.items()
        }

    @trim_traceback
    def __call__(self, feed: Any = None, *more: Any, **sizes: int) -> dict[str, Array]:
        """The outputs by name.

        feed   an array for each input, by name; or the array, where there is one input
        more   none: arrays in order are refused with the names
        sizes  those that no shape determines

        Raises CallError where an array does not fit.
        """
        if not more and not sizes:
            saved, by_name = self._saved, self._by_name
            results = by_name(feed) if by_name else _run(saved, feed) if saved else None
            if results is not None:
                return results
        try:
            return self.imported.run(self.model, (feed, *more) if more else feed, sizes)
        except CallError as error:
            self._add_bounds(error)
            raise

    def _add_bounds(self, error: CallError) -> None:
        """Say in an error about a size by which bounds the file is imported for that of the call."""
        for size in (one for one in self.sizes if one.name == error.size):
            low, high = min(size.min, error.extent), max(size.max, error.extent)
            most = "…" if high == MAX_SIZE else high
            error.help = (f'from_onnx(…, sizes={{"{size.name}": ({low}, {most})}})',)

    def plan(self, **sizes: int) -> ModelPlan:
        """What a call runs, as `Model.plan` says it."""
        return self.model.plan(**sizes)

    @trim_traceback
    def profile(self, feed: Any = None, *more: Any, calls: int = 20, **sizes: int) -> ModelProfile:
        """Return what each kernel of a call takes, measured, as `Model.profile` says.

        calls  that are timed; the other arguments are those of a call
        """
        arguments = self.imported.arrays_by_name((feed, *more) if more else feed)
        return self.model.profile(arguments, calls=calls, **sizes)

    def save(self, path: str | os.PathLike[str], *, shared: bool = False) -> None:
        """Write the model into a file, which `offcut.load` runs where there is no compiler, as `Model.save` says."""
        imported = self.imported
        names, source = (imported.inputs, imported.outputs), imported.file.to_json()
        self.model.save(path, *names, "mapping", shared=shared, source=source)

    def export(self, folder: str | os.PathLike[str], name: str | None = None) -> Exported:
        """Return an object file and a C header, as `Model.export` says."""
        return self.model.export(folder, name, self.imported.inputs, self.imported.outputs)

    def cost(self, **sizes: int) -> ModelCost:
        """What a call is predicted to cost, as `Model.cost` says it."""
        return self.model.cost(**sizes)


def _of_file(file: CompiledFile) -> OnnxModel:
    return OnnxModel(lambda: file)


def _run(saved: SavedModel, feed: Any) -> dict[str, Array] | None:
    """Return the outputs of a model of the cache; None where the compiled model runs this call, or says what is wrong with it."""
    try:
        results: dict[str, Array] | None = saved.by_name(feed)
        if results is not None:
            return results
        names = saved.saved.inputs
        arrays = feed if isinstance(feed, Mapping) else dict.fromkeys(names, feed)
        if len(names) != 1 and arrays is not feed:
            return None
        if any(type(array) is not np.ndarray for array in arrays.values()):
            return None
        results = saved(arrays)
    except OffcutError:
        return None
    return results


def _calls_by_name(file: CompiledFile) -> Callable[..., dict[str, Array] | None]:
    """Return the function that makes calls at known sizes with the names of the file, as `Model.named` does."""
    return file.model.named(file.imported.inputs, file.imported.outputs, is_mapping=True)


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
    distributive  whether products may be distributed over sums, as `offcut.graph.compile_graph` says
    parts      which kernels run for a part of the batch at a time, likewise: lines as `OnnxModel.plan` shows them, or a rule

    Extents that are calculated (``Shape``, ``Gather``, ``Concat``, ``Reshape``) become expressions over the sizes. Operators that
    ONNX defines as functions, and functions of the model, are expanded.

    Raises DescribeError for a file that is none, for sizes that it has not, and for nodes that cannot be taken: all of them
    at once, each with the reason. Raises TargetError where onnx is not installed.
    """
    check_installed(OP, "cannot read ONNX files", "onnx")
    for name, mapping in (("sizes", sizes), ("constants", constants)):
        if mapping is not None and not isinstance(mapping, Mapping):
            raise DescribeError(
                OP,
                f"cannot take {name}={mapping!r}",
                because="they are given by name",
                help=('sizes={"batch": (1, 512)}', 'constants={"axes": array}'),
            )
    content = _content(source)
    single = threads == 1 or (threads is None and os.environ.get("OFFCUT_THREADS", "1") == "1")
    key, digest = None, ""
    if content is not None and single and target == "cpu" and parts is True and not constants:
        digest = _digest(content)
        key = model_key(digest, sorted((sizes or {}).items()), distributive)
    saved = None if key is None else read_model(key)

    def compile() -> CompiledFile:
        from offcut.plugins.onnx.compile_file import compile_file

        if saved is not None and content is not None and not _is_unchanged(content, digest):
            raise DescribeError(
                OP,
                f"cannot compile {source}",
                because="its contents have changed since it was read, and the model of the cache does not run this call",
                help=("from_onnx(path) of the file as it is now",),
            )
        how = {"threads": threads, "target": target, "distributive": distributive, "parts": parts}
        new = key if saved is None else None
        return compile_file(source, content, sizes or {}, constants or {}, how, new)

    return OnnxModel(compile, saved)


def _digest(content: memoryview) -> str:
    """Return the digest of a file; its pages are given back."""
    digest = hashlib.sha256(content).hexdigest()
    let_go(np.frombuffer(content, np.uint8))
    return digest


def _is_unchanged(content: memoryview, digest: str) -> bool:
    """Return whether a file has the bytes that it had; one that is deleted has, and pages that are cut off are not touched."""
    mapped = content.obj
    is_as_long = not isinstance(mapped, mmap.mmap) or mapped.size() == len(mapped)
    return is_as_long and _digest(content) == digest


def _content(source: Any) -> memoryview | None:
    """Return the bytes of a file that is all of a model; None for anything else, and for what cannot be read."""
    if isinstance(source, bytes):
        data: Any = source
    elif isinstance(source, str | os.PathLike) and os.fsdecode(source).endswith(".onnx"):
        try:
            data = map_file(source)
        except OSError:
            return None
    else:
        return None
    content = memoryview(data)
    return None if EXTERNAL in apart(content).rest else content
