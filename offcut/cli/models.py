"""What `offcut run` takes and gives: arrays in files, and arrays that are drawn."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from zipfile import BadZipFile, is_zipfile

import numpy as np
import typer

from offcut.backends.abi import Argument
from offcut.backends.host.saved_file import SavedModel, load
from offcut.cli.app import refusal
from offcut.cli.programs import read_number, read_pair
from offcut.core.dtypes import FLOATS, numpy_dtype
from offcut.core.expr import Const, Expr
from offcut.core.interpret.run_arguments import checked_size
from offcut.core.program import Size
from offcut.describe.request import Array
from offcut.errors import CallError
from offcut.graph import extents
from offcut.pipeline import targets
from offcut.plugins.onnx import OnnxModel


def check_readable(model: Path, command: str = "run") -> None:
    """Refuse a model that is no file, in the words of the command."""
    if not model.is_file():
        because = "it is a folder" if model.is_dir() else "there is no such file"
        raise refusal(command, f"cannot read {model}", because, f"offcut {command} model.onnx")


def check_place(path: Path, command: str) -> None:
    """Refuse a file that could not be written, before anything is compiled; nothing is written, and no folder is made.

    Raises DescribeError.
    """
    folder = path.parent
    if path.is_dir():
        because, help = "it is a folder", f"{path / 'model.offcut'}"
    elif folder.exists() and not folder.is_dir():
        because, help = f"{folder} is a file", "a path in a folder"
    elif not folder.exists():
        because, help = f"the folder {folder} is not there", f"mkdir -p {folder}"
    elif not os.access(folder, os.W_OK):
        because, help = f"the folder {folder} is not writable", "a folder that is yours"
    else:
        return
    raise refusal(command, f"cannot write {path}", because, help)


def targets_of(text: str) -> tuple[str, ...]:
    """The targets of ``--target cpu`` or ``--target vta,cpu``.

    Raises DescribeError for one that is not there.
    """
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in targets():
            because = f"there is no target {name!r}"
            help = tuple(f"--target {known}" for known in targets())
            raise refusal("run", f"cannot take --target {text}", because, *help)
    return names


def arrays_of(texts: Sequence[str], option: str = "--input") -> dict[str, Array]:
    """``x=x.npy`` as an input and what is in the file; ``inputs.npz`` as all that is there, by name.

    option  whose texts they are

    Raises DescribeError where there is no such array, or an input is given twice.
    """
    arrays_by_name: dict[str, Array] = {}
    for text in texts:
        if text.endswith(".npz") and "=" not in text:
            arrays = _read_arrays(text)
        else:
            name, path = read_pair(
                "run", option, text, (f"{option} x=x.npy", f"{option} inputs.npz")
            )
            archive = _read_arrays(path)
            arrays = {name: archive[""] if "" in archive else _named_in(archive, name, path)}
        for name, array in arrays.items():
            if name in arrays_by_name:
                because = f"{name} is given twice"
                help = f"{option} {name}=… once"
                raise refusal("run", f"cannot read {option} {text}", because, help)
            arrays_by_name[name] = array
    return arrays_by_name


def _read_arrays(path: str) -> dict[str, Array]:
    """The arrays of a file by name; one that is there alone has none."""
    help = (f"numpy.save({path!r}, array)",)
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        because = reason or "it is not a file of numbers that numpy saved"
        raise refusal("run", f"cannot read {path}", because, *help) from None


def _named_in(arrays: Mapping[str, Array], name: str, path: str) -> Array:
    if name not in arrays:
        because = f"its arrays are {', '.join(arrays) or 'none'}"
        help = f"--input {path} takes them by their names"
        raise refusal("run", f"cannot read {name} from {path}", because, help)
    return arrays[name]


def load_saved(path: Path, shown: Mapping[str, bool]) -> SavedModel | None:
    """Return the model of a file that `offcut build` wrote; None: it is another file.

    shown  whether what only a file of ONNX has is asked for, by option

    Raises DescribeError for a kernel, and for what is asked for; and what `offcut.load` does.
    """
    if path.suffix != ".so" and not is_zipfile(path):
        return None
    model = load(path)
    if not isinstance(model, SavedModel):
        raise refusal("run", f"cannot run {path}", "it holds a kernel, and no model")
    for option, is_asked in shown.items():
        if is_asked:
            because = "a saved model is machine code: its graph and its plan are not in it"
            help = f"offcut run model.onnx {option}"
            raise refusal("run", f"cannot take {option} with {path}", because, help)
    return model


@dataclass(frozen=True)
class ModelCall:
    """How a model is called.

    inputs  by the names of the file
    """

    inputs: Mapping[str, Argument]
    sizes: tuple[Size, ...]


def call_of(model: OnnxModel | SavedModel) -> ModelCall:
    """Return how a model is called."""
    sizes = model.signature.sizes if isinstance(model, SavedModel) else model.sizes
    return ModelCall(model.inputs, sizes)


def bounds_of(texts: Sequence[str]) -> dict[str, int | tuple[int, int]]:
    """Return the sizes of ``--size batch=8`` and ``--size batch=1:64``: a value, or the least and the greatest.

    Raises DescribeError for any other text.
    """
    bounds: dict[str, int | tuple[int, int]] = {}
    for text in texts:
        name, value = read_pair("build", "--size", text, ("--size batch=8", "--size batch=1:64"))
        least, colon, most = value.partition(":")
        ends = [
            read_number("build", f"--size {text}", one, f"--size {name}=1:64")
            for one in ((least, most) if colon else (least,))
        ]
        bounds[name] = (ends[0], ends[1]) if colon else ends[0]
    return bounds


def numbers_of(texts: Sequence[str]) -> dict[str, int]:
    """Return the sizes of ``--size batch=3``.

    Raises DescribeError for any other text.
    """
    asked = {}
    for text in texts:
        name, value = read_pair("run", "--size", text, ("--size batch=3",))
        asked[name] = read_number("run", f"--size {text}", value, f"--size {name}=3")
    return asked


def sizes_of(
    call: ModelCall, arrays: Mapping[str, Array], asked: Mapping[str, int]
) -> dict[str, int]:
    """Return the sizes of a call: those that `arrays` shows, those that are asked for, else 1, or the least there is.

    Raises DescribeError for a size that the model has not, or that a given array has otherwise, CallError for an input that it has
    not, and a size that no call has.
    """
    declared = {size.name: size for size in call.sizes}
    for name in asked:
        if name not in declared:
            listed = ", ".join(declared) or "none"
            because = f"sizes are {listed}"
            help = tuple(f"--size {one}={max(size.min, 1)}" for one, size in declared.items())
            raise refusal("run", f"cannot take --size {name}={asked[name]}", because, *help)
    seen: dict[str, int] = {}
    for name, array in arrays.items():
        if name not in call.inputs:
            listed = ", ".join(call.inputs) or "none"
            raise CallError(
                "run",
                f"cannot take an input {name}",
                because=f"inputs are {listed}",
                help=tuple(f"--input {one}={one}.npy" for one in call.inputs),
            )
        shape = call.inputs[name].shape
        for extent, actual in zip(map(_extent_text, shape), array.shape, strict=False):
            if extent in declared and asked.get(extent, actual) != actual:
                because = f"it is {actual} in {name}, of shape {array.shape}"
                advice = f"--size {extent}={actual}, or none: arrays say it"
                raise refusal(
                    "run", f"cannot take --size {extent}={asked[extent]}", because, advice
                )
            if extent in declared:
                seen.setdefault(extent, actual)
    least = {size.name: max(size.min, min(1, size.max)) for size in call.sizes}
    sizes = {**least, **seen, **asked}
    return {name: checked_size(declared[name], value) for name, value in sizes.items()}


def echo_default_sizes(
    call: ModelCall, arrays: Mapping[str, Array], asked: Mapping[str, int], sizes: Mapping[str, int]
) -> None:
    """Print, beside the results, the sizes that neither the command nor an array that it gives says."""
    seen = {extent for name in arrays for extent in map(_extent_text, call.inputs[name].shape)}
    default = {name: value for name, value in sizes.items() if name not in {*asked, *seen}}
    if default:
        listed = ", ".join(f"{name} = {value}" for name, value in default.items())
        options = " ".join(f"--size {name}=…" for name in default)
        typer.echo(f"at {listed}: {options} says otherwise", err=True)


def draw_inputs(
    call: ModelCall, arrays: Mapping[str, Array], sizes: Mapping[str, int], seed: int
) -> dict[str, Array]:
    """An array for each input: as given, else drawn; floats from the normal distribution, integers 0 or 1.

    Raises DescribeError where the memory for one is not there.
    """
    known = {name: Const(value, "index") for name, value in sizes.items()}
    generator = np.random.default_rng(seed)
    feed: dict[str, Array] = dict(arrays)
    for name, value in call.inputs.items():
        if name in feed:
            continue
        shape = tuple(_count(extents.at(extent, known)) for extent in value.shape)
        try:
            floats = value.dtype in FLOATS
            array: Array = (
                generator.standard_normal(shape) if floats else generator.integers(0, 2, shape)
            )
            feed[name] = np.asarray(array).astype(numpy_dtype(value.dtype))
        except (MemoryError, ValueError):  # numpy's own bound on bytes
            at = ", ".join(f"{size} = {number}" for size, number in sizes.items())
            because = "there is no memory for it"
            help = f"--size, which is {at} now"
            raise refusal("run", f"cannot draw {name} of shape {shape}", because, help) from None
    return feed


def save_outputs(results: Mapping[str, Array], folder: Path) -> None:
    """Each output in a file of its name.

    Raises DescribeError where it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in results.items():
            np.save(folder / f"{quote(name, safe=' []()+,')}.npy", array, allow_pickle=False)
    except OSError as error:
        because = str(error.strerror)
        help = "--output FOLDER, which is made where there is none"
        raise refusal("run", f"cannot write to {folder}", because, help) from None


def write_text(path: Path, text: str, option: str) -> None:
    """Write the file that an option names.

    Raises DescribeError where it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        because = str(error.strerror)
        help = f"{option} FILE, in a folder that is there"
        raise refusal("run", f"cannot write to {path}", because, help) from None


def _extent_text(extent: Expr) -> str:
    return str(getattr(extent, "name", ""))


def _count(extent: Expr) -> int:
    assert isinstance(extent, Const)
    return max(int(extent.value), 0)
