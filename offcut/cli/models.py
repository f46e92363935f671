"""What `offcut run` takes and gives: arrays in files, and arrays that are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np

from offcut.core.dtypes import FLOATS, numpy_dtype
from offcut.core.expr import Const, Expr
from offcut.describe.request import Array
from offcut.errors import CallError, DescribeError
from offcut.graph import extents
from offcut.plugins.onnx import OnnxModel


def arrays_of(texts: Sequence[str]) -> dict[str, Array]:
    """``x=x.npy`` as an input and what is in the file.

    Raises DescribeError where there is no such array.
    """
    found: dict[str, Array] = {}
    for text in texts:
        name, path = _pair(text, "--input")
        try:
            found[name] = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise DescribeError("run", f"cannot read {path}", because=str(reason)) from None
    return found


def drawn(
    model: OnnxModel, given: Mapping[str, Array], texts: Sequence[str], seed: int
) -> dict[str, Array]:
    """An array for each input: as given, else drawn; floats from the normal distribution, integers 0 or 1.

    texts  ``batch=3``: sizes, of which those that `given` determines need no mention; 1, or the least there is, by default

    Raises DescribeError for a size that the model has not.
    """
    sizes = {size.name: max(size.min, min(1, size.max)) for size in model.sizes}
    asked = {
        name: _number(value, text) for text in texts for name, value in (_pair(text, "--size"),)
    }
    for name in asked:
        if name not in sizes:
            listed = ", ".join(sizes) or "none"
            raise DescribeError(
                "run", f"cannot take --size {name}={asked[name]}", because=f"sizes are {listed}"
            )
    values = {value.name: value for value in model.graph.inputs}
    seen: dict[str, int] = {}
    for name, array in given.items():
        if name not in model.imported.inputs:
            listed = ", ".join(model.imported.inputs) or "none"
            raise CallError("run", f"cannot take an input {name}", because=f"inputs are {listed}")
        declared = values[model.imported.inputs[name]].shape
        if len(declared) == array.ndim:
            plain = zip(map(_named, declared), array.shape, strict=True)
            seen |= {size: extent for size, extent in plain if size in sizes}
    known = {name: Const(value, "index") for name, value in {**sizes, **seen, **asked}.items()}
    generator = np.random.default_rng(seed)
    feed: dict[str, Array] = dict(given)
    for name, own in model.imported.inputs.items():
        if name in feed:
            continue
        value = values[own]
        shape = tuple(_count(extents.at(extent, known)) for extent in value.shape)
        if value.dtype in FLOATS:
            array = generator.standard_normal(shape)
        else:
            array = generator.integers(0, 2, shape)
        feed[name] = np.asarray(array).astype(numpy_dtype(value.dtype))
    return feed


def saved(results: Mapping[str, Array], folder: Path) -> None:
    """Each output in a file of its name.

    Raises DescribeError where it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in results.items():
            np.save(folder / f"{quote(name, safe=' []()+,')}.npy", array, allow_pickle=False)
    except OSError as error:
        raise DescribeError(
            "run", f"cannot write to {folder}", because=str(error.strerror)
        ) from None


def _named(extent: Expr) -> str:
    return str(getattr(extent, "name", ""))


def _count(extent: Expr) -> int:
    assert isinstance(extent, Const)
    return max(int(extent.value), 0)


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise DescribeError(
            "run",
            f"cannot read {option} {text}",
            because="it is no name=value",
            help=("--input x=x.npy", "--size batch=3"),
        )
    return name, value


def _number(text: str, whole: str) -> int:
    if not text.isdecimal():
        raise DescribeError(
            "run", f"cannot read --size {whole}", because=f"{text!r} is not a whole number"
        )
    return int(text)
