"""A file of ONNX to a graph, and that to kernels."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import onnx

from offcut.describe.request import Array, borrow
from offcut.errors import DescribeError
from offcut.graph import Model, compile_graph
from offcut.plugins.onnx.checking import UnreadableFileError
from offcut.plugins.onnx.import_model import Imported, import_proto
from offcut.plugins.onnx.importer.size_facts import OP
from offcut.plugins.onnx.weights import apart, arrays_in, let_go, map_file


class CompiledFile(NamedTuple):
    """The graph of a file, and the model that runs it."""

    imported: Imported
    model: Model


def compile_file(
    source: Any,
    content: memoryview | None,
    sizes: Mapping[str, int | tuple[int, int]],
    constants: Mapping[str, Any],
    how: Mapping[str, Any],
    key: str | None,
) -> CompiledFile:
    """Return the model of a file, as `from_onnx` says.

    content  the bytes of the source, where they are known
    how      the other arguments of `offcut.graph.compile_graph`
    key      by which the cache keeps it; None: it does not
    """
    proto, weights = _proto(source, content)
    with borrow(weights.values(), let_go):
        weights = arrays_in(proto, weights)
        graph = import_proto(proto, sizes, constants, weights)
        model = compile_graph(graph.bound, **how)
    if key is not None:
        facts = graph.file.to_json()
        model.write_cached(key, graph.inputs, graph.outputs, "mapping", facts)
    return CompiledFile(replace(graph, bound=model.asked), model)


def _proto(source: Any, content: memoryview | None) -> tuple[Any, Mapping[int, Array]]:
    """Return the model of a path, of bytes, or itself; and the bytes of initializers that are left out of it, by their places."""
    if isinstance(source, onnx.ModelProto):
        return source, {}
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        try:
            if (
                onnx.serialization.registry.get_format_from_file_extension(path.suffix)
                == "protobuf"
            ):
                data = memoryview(map_file(path)) if content is None else content
                rest, weights = apart(data)
                proto = onnx.load_model_from_string(rest)
            else:
                proto, weights = onnx.load(path, load_external_data=False), {}
        except OSError as error:
            raise _unread(path, str(error.strerror)) from None
        except Exception as error:  # protobuf has errors of its own
            raise _unread(path, _short(error)) from None
        try:
            onnx.load_external_data_for_model(proto, str(path.parent))
        except Exception as error:  # of the checker, of the system
            because = f"its tensors lie in another file: {' '.join(str(error).split())}"
            raise UnreadableFileError(OP, f"cannot read {path}", because=because) from None
        return proto, weights
    if isinstance(source, bytes | bytearray | memoryview):
        try:
            rest, weights = apart(memoryview(source).cast("B"))
            return onnx.load_model_from_string(rest), weights
        except Exception as error:  # likewise
            raise UnreadableFileError(
                OP, f"cannot read {memoryview(source).nbytes} bytes", because=_short(error)
            ) from None
    raise DescribeError(
        OP,
        f"cannot take {type(source).__name__}",
        because="a model is a path, the bytes of a file, or an onnx.ModelProto",
        help=('from_onnx("model.onnx")',),
    )


def _unread(path: Path, because: str) -> UnreadableFileError:
    help = ('from_onnx("model.onnx"): a file that onnx.save wrote, or another exporter',)
    return UnreadableFileError(OP, f"cannot read {path}", because=because, help=help)


def _short(error: Exception) -> str:
    return (
        f"it is not an ONNX model: {str(error).strip().splitlines()[0] if str(error) else error!r}"
    )
