"""The session: a model of offcut by the names of onnxruntime."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import offcut
from offcut.backends.host.saved_file import SavedModel, load
from offcut.core.dtypes import numpy_dtype
from offcut.core.expr import Const, Expr
from offcut.core.process import ForkSafeLock
from offcut.core.program import MAX_SIZE
from offcut.core.text.printer import format_expr
from offcut.errors import (
    CallError,
    DescribeError,
    OffcutError,
    OutOfBoundsError,
    trim_traceback,
)
from offcut.onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    MissingInputs,
    NoSuchFile,
    NotImplemented,
    Status,
)
from offcut.onnxruntime.options import RunOptions, SessionOptions
from offcut.onnxruntime.overrides import OverrideSessions
from offcut.onnxruntime.profiling import Profile
from offcut.onnxruntime.values import IOBinding, OrtValue, type_text, type_text_of_onnx
from offcut.plugins.onnx.checking import (
    InvalidModelError,
    UnknownSizeError,
    UnreadableFileError,
    UnsupportedNodesError,
)
from offcut.plugins.onnx.file_facts import Extent, FileFacts

if TYPE_CHECKING:
    from offcut.plugins.onnx.model import OnnxModel

PROVIDERS = ("CPUExecutionProvider",)
_SUFFIXES = (".offcut", ".so")


@dataclass(frozen=True)
class NodeArg:
    """An input or an output of a model.

    type   such as ``tensor(float)``
    shape  as the file declares it: numbers, the names of sizes, None where a size has none
    """

    name: str
    type: str
    shape: list[Extent]


@dataclass(frozen=True)
class ModelMetadata:
    """What a file says of itself."""

    graph_name: str
    graph_description: str
    producer_name: str
    domain: str
    description: str
    version: int
    custom_metadata_map: Mapping[str, str]


class InferenceSession:
    """A model that runs at every size of its file.

    path_or_bytes  a path, or the bytes of a file of ONNX; the path of a file that `save` wrote, which ends in ``.offcut``
    sess_options   of which the number of threads, sizes that are fixed, and whether runs are profiled count
    providers      of onnxruntime: those that are not there are said to be, and left out

    Raises what onnxruntime does for a file of ONNX that does not run, by the kind of what is wrong; for a file of `save` what `offcut.load` does.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(path_or_bytes, str | bytes | os.PathLike):
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        if not isinstance(sess_options, SessionOptions | None):
            raise TypeError(f"sess_options is a SessionOptions, not {type(sess_options).__name__}")
        self._options = sess_options or SessionOptions()
        _check_providers(providers or ())
        is_path = not isinstance(path_or_bytes, bytes)
        if is_path and not os.path.exists(path_or_bytes):
            text = f"Load model from {path_or_bytes!s} failed:Load model {path_or_bytes!s} failed. File doesn't exist"
            raise NoSuchFile.of(text, "there is no such file")
        self.model: OnnxModel | SavedModel
        self._source: Any = None
        self._zeros, self._lock = frozenset[str](), ForkSafeLock()
        if is_path and str(path_or_bytes).endswith(_SUFFIXES):
            self._file = self._load_file(load(str(path_or_bytes)))
        else:
            self._source = path_or_bytes
            self.model = self._compile(())
            self._file = self.model.file
        self._inputs, self._outputs = (
            [
                NodeArg(name, type_text(one.dtype), self._shape(name, one.shape))
                for name, one in arguments.items()
            ]
            for arguments in (self.model.inputs, self.model.outputs)
        )
        self._overridable = {
            name: NodeArg(name, type_text_of_onnx(number), self._shape(name, ()))
            for name, number in self._file.initialized.items()
            if self._source is not None
        }
        self._overrides = OverrideSessions(
            self._source, lambda content: InferenceSession(content, self._options)
        )
        self._profile = Profile() if self._options.enable_profiling else None
        self._call = self._run_function()
        self._names = [one.name for one in self._outputs]
        self._dtypes = {name: one.dtype for name, one in self.model.inputs.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to pickle the session: it is opened again from the same source and options."""
        source = self.model.path if isinstance(self.model, SavedModel) else self._source
        return type(self), (source, self._options)

    def _load_file(self, saved: Any) -> FileFacts:
        """Take a saved model; return the facts of its file.

        Raises CallError for a saved kernel.
        """
        if not isinstance(saved, SavedModel):
            raise CallError(
                "InferenceSession",
                f"cannot run {saved.path}",
                because="it holds a kernel, and no model",
            )
        self.model = saved
        return FileFacts.from_json({"graph_name": saved.signature.name, **saved.saved.source})

    def _compile(self, zeros: Iterable[str]) -> OnnxModel:
        """Return the model of a file of ONNX.

        zeros  names of sizes that begin at 0; the others begin at 1

        Raises the errors of onnxruntime for a file that does not run.
        """
        source, threads = self._source, max(self._options.intra_op_num_threads, 0) or None
        sizes: dict[str, Any] = {**dict.fromkeys(zeros, (0, MAX_SIZE)), **self._options.dimensions}
        while True:
            try:
                return offcut.from_onnx(source, sizes=sizes, threads=threads)
            except UnknownSizeError as refused:  # without effect, as in onnxruntime
                sizes.pop(refused.size)
            except UnreadableFileError as refused:
                text = "Failed to load model because protobuf parsing failed."
                if not isinstance(source, bytes):
                    text = f"Load model from {source!s} failed:Protobuf parsing failed."
                raise InvalidProtobuf.of(text, refused) from refused
            except InvalidModelError as refused:
                raise InvalidGraph.of("This is an invalid model.", refused) from refused
            except UnsupportedNodesError as refused:
                text = f"Could not find an implementation: {refused.refused}"
                raise NotImplemented.of(text, refused) from refused
            except DescribeError as refused:
                raise Fail.of(refused.refused, refused) from refused

    def _run_function(self) -> Callable[[Any], Any]:
        """Return the function that a run calls: the model, with a profile if the options ask for one."""
        if self._profile is None:
            return self.model
        if not isinstance(self.model, SavedModel):
            self.model.compile()  # a model of the cache has no steps to profile
        return self._profile.profile_calls(self.model)

    def _shape(self, name: str, shape: Sequence[Expr]) -> list[Extent]:
        """Return the shape of an array as the file declares it, or as the model has it where the file does not."""
        if name in self._file.shapes:
            numbers: Mapping[Any, int] = self._options.dimensions
            return [numbers.get(extent, extent) for extent in self._file.shapes[name]]
        return [int(e.value) if isinstance(e, Const) else format_expr(e) for e in shape]

    @trim_traceback
    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Return outputs, in the order in which they are asked for.

        output_names  None: all, in the order of the file
        input_feed    an array for each input, by name; and for initializers that are inputs of the file, in place of what that has.
                      The first call with such a name compiles the file once more; if a node has to know the array at import, as the shape of
                      a `Reshape`, so does the first call with other elements, of which the file is kept for 16

        Raises InvalidArgument for a name that the model has not, for an array that does not fit, and for an index in one that leads out of
        another; `ValueError` for inputs that are missing; Fail for sizes that do not go together, and where the options say to terminate.
        """
        if isinstance(output_names, str):
            raise TypeError("run(): output_names is a list of names, or None")
        if run_options is not None:
            _check_run_options(run_options)
        feed = input_feed
        if not self._overridable.keys().isdisjoint(feed):
            feed = {
                name: array
                for name, array in feed.items()
                if array is not None or name not in self._overridable
            }
            if not self._overridable.keys().isdisjoint(feed):
                return self._run_with_initializers(output_names, feed, run_options)
        for one in feed.values():
            if type(one) is not np.ndarray:
                feed = {name: self._array(name, value) for name, value in input_feed.items()}
                break
        try:
            results = self._call(feed)
            return [*map(results.__getitem__, output_names or self._names)]
        except KeyError as error:
            if not isinstance(error.args[0], str):
                raise TypeError("run(): the names of outputs are texts") from None
            names = ", ".join(self._names)
            text = f"Invalid output name:{error.args[0]}"
            raise InvalidArgument.of(text, f"the outputs are {names}") from None
        except CallError as refused:
            if self._recompile_for_zeros(feed):
                return self.run(output_names, input_feed, run_options)
            raise self._refusal(feed, refused) from refused

    def _recompile_for_zeros(self, feed: Mapping[str, Any]) -> bool:
        """Compile the file once more if a call has sizes of 0 that the model does not take yet, as an empty batch or cache.

        Return whether there is another model now.
        """
        zeros = {
            extent if isinstance(extent, str) else f"{one.name}_{axis}"
            for one in self._inputs
            for axis, (extent, own) in enumerate(zip(one.shape, _extents(feed, one), strict=False))
            if own == 0 and not isinstance(extent, int)
        }
        if self._source is None or zeros <= self._zeros:
            return False
        with self._lock:
            before, self._zeros = self._zeros, self._zeros | zeros
            if self._zeros == before:  # another thread has compiled it
                return True
            try:
                self.model = self._compile(self._zeros)
            except OffcutError:  # some of these sizes cannot be 0
                return False
            self._call = self._run_function()
            return True

    def _run_with_initializers(
        self,
        output_names: Sequence[str] | None,
        feed: Mapping[str, Any],
        run_options: RunOptions | None,
    ) -> list[Any]:
        """Return the outputs of a call that gives initializers.

        Raises as `run` does.
        """
        arrays = {name: self._array(name, feed[name]) for name in self._overridable if name in feed}
        for name, array in arrays.items():
            refused = _array_refusal(
                self._overridable[name], array, "it is another than the file declares"
            )
            if refused is not None:
                raise refused
        session, inputs = self._overrides.session_of(arrays)
        rest = {name: one for name, one in feed.items() if name not in arrays or name in inputs}
        return session.run(output_names, rest, run_options)

    def _array(self, name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value
        if isinstance(value, OrtValue):
            return value.numpy()
        if isinstance(value, list | tuple) and name in self._dtypes:
            try:
                return np.array(value, numpy_dtype(self._dtypes[name]))
            except (ValueError, TypeError, OverflowError):
                raise RuntimeError("Could not create tensor from given input list") from None
        if not hasattr(value, "__dlpack__"):
            raise RuntimeError(f"Unable to handle object of type {type(value)}")
        return value

    def _refusal(self, feed: Mapping[str, Any], refused: OffcutError) -> OffcutError:
        """Return what onnxruntime says of a call that was refused; what it has no words for, as a failure."""
        inputs = {one.name: one for one in self._inputs}
        if inputs.keys() - feed.keys():
            missing = [name for name in inputs if name not in feed]
            text = f"Required inputs ({missing}) are missing from input feed ({[*feed]})."
            return MissingInputs("run", text, because=refused.because)
        for name, array in feed.items():
            if name not in inputs:
                return InvalidArgument.of(f"Invalid input name: {name}", refused)
            error = _array_refusal(inputs[name], array, refused)
            if error is not None:
                return error
        kind = InvalidArgument if isinstance(refused, OutOfBoundsError) else Fail
        return kind.of(refused.refused, refused)

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run in a thread of its own, then call ``callback(outputs, user_data, error)``; the error is "" where there is none."""

        def run() -> None:
            try:
                results, error = self.run(output_names, input_feed, run_options), ""
            except Status as refused:
                results, error = [], refused.text
            except Exception as refused:
                results, error = [], str(refused)
            callback(results, user_data, error)

        threading.Thread(target=run, name="offcut run_async").start()

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Return outputs as `run` does, as values."""
        return [*map(OrtValue, self.run(output_names, input_dict_ort_values, run_options))]

    def io_binding(self) -> IOBinding:
        """Return what arrays are bound to."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Read and fill what is bound."""
        iobinding.run(run_options)

    def get_inputs(self) -> list[NodeArg]:
        """Return what a call takes."""
        return [*self._inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Return what a call gives."""
        return [*self._outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return the inputs that a call may leave out: the file has values for them. None of a file that `save` wrote, where these are constants."""
        return [*self._overridable.values()]

    def get_modelmeta(self) -> ModelMetadata:
        """Return what the file says of itself."""
        file = self._file
        return ModelMetadata(
            file.graph_name,
            file.graph_description,
            file.producer_name,
            file.domain,
            file.description,
            file.version,
            dict(file.custom_metadata),
        )

    def get_providers(self) -> list[str]:
        """Return what runs it, by onnxruntime's name for processors."""
        return [*PROVIDERS]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the options of what runs it: none."""
        return {name: {} for name in PROVIDERS}

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Any = None
    ) -> None:
        """Leave what runs it as it is."""
        _check_providers(providers or ())

    def enable_fallback(self) -> None:
        """Do nothing: there is nothing to fall back to."""

    def disable_fallback(self) -> None:
        """Do nothing, likewise."""

    def get_session_options(self) -> SessionOptions:
        """Return what it was asked for."""
        return self._options

    def end_profiling(self) -> str:
        """Write the file of a profile, where the options asked for one, and return its name; "" where they did not, or it was written."""
        profile, self._profile = self._profile, None
        if profile is None:
            return ""
        self._call = self.model
        return profile.write(self._options.profile_file_prefix)


def _check_providers(providers: Sequence[Any]) -> None:
    for one in providers:
        name = one[0] if isinstance(one, tuple | list) and one else one
        if name not in PROVIDERS:
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names. Available providers: '{', '.join(PROVIDERS)}'",
                UserWarning,
                stacklevel=3,
            )


def _array_refusal(own: NodeArg, array: Any, refused: str | OffcutError) -> Status | None:
    """Return what onnxruntime says of an array of another element type, rank or extent than an input has; None if it fits."""
    shape = [*array.shape]
    dtype = str(getattr(array.dtype, "name", array.dtype)).removeprefix("torch.")
    actual = type_text(dtype)
    if getattr(array.dtype, "kind", "") in ("O", "S", "U"):
        actual = "tensor(string)"
    if actual != own.type:
        text = f"Unexpected input data type. Actual: ({actual}) , expected: ({own.type})"
        return InvalidArgument.of(text, refused)
    end = " Please fix either the inputs/outputs or the model."
    if len(shape) != len(own.shape):
        text = (
            f"Invalid rank for input: {own.name} Got: {len(shape)} Expected: {len(own.shape)}{end}"
        )
        return InvalidArgument.of(text, refused)
    wrong = [
        f" index: {axis} Got: {extent} Expected: {expected}"
        for axis, (extent, expected) in enumerate(zip(shape, own.shape, strict=True))
        if isinstance(expected, int) and extent != expected
    ]
    if not wrong:
        return None
    head = f"Got invalid dimensions for input: {own.name} for the following indices"
    return InvalidArgument.of("\n".join([head, *wrong, end]), refused)


def _extents(feed: Mapping[str, Any], one: NodeArg) -> Sequence[int]:
    """Return the extents of the array for an input; none if the array is missing."""
    shape: Sequence[int] = getattr(feed.get(one.name), "shape", ())
    return shape


def _check_run_options(options: Any) -> None:
    """Check the options of a run.

    Raises TypeError for anything but `RunOptions`, Fail if they say to terminate.
    """
    if not isinstance(options, RunOptions):
        raise TypeError(f"run(): run_options is a RunOptions, not {type(options).__name__}")
    if options.terminate:
        text = "Exiting due to terminate flag being set to true."
        raise Fail.of(text, "run_options.terminate is True")


__all__ = ["PROVIDERS", "InferenceSession", "ModelMetadata", "NodeArg"]
