"""The operators of a study, from its file: einsum, functions of `oc.ops`, loop programs, models, functions of one's own, suites."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import offcut as oc
from offcut.errors import OffcutError
from offcut.studies.contraction import ELEMENTS, build, parse_contraction
from offcut.studies.errors import (
    Place,
    check_keys,
    check_names,
    error_text,
    file_of,
    number_of,
    pattern_of,
    refusal,
    table_of,
    text_of,
    texts_of,
)
from offcut.studies.functions import bind_inputs, function_named, inputs_in_order
from offcut.studies.models import model_workload
from offcut.studies.offcut_operators import LARGEST, Described
from offcut.studies.peers.operators import EPILOGUES
from offcut.studies.sizes import (
    Point,
    Values,
    axes_of,
    layers_of_csv,
    points_of,
    read_values,
    vectors_of_csv,
)
from offcut.studies.suites import suite_operators
from offcut.studies.tasks import Operator, check_values
from offcut.studies.user_objects import (
    AbsentOperator,
    absent_lines,
    digest_of_file,
    load_named,
    missing_module,
    without_exit,
)

KINDS = ("einsum", "op", "program", "model", "describe", "suite")
"""What an operator is given by: one of these keys."""

COMMON = ("name", "type", "sizes", "bounds", "constants", "values", "tolerance")
OWN_KEYS: Mapping[str, tuple[str, ...]] = {
    "einsum": ("epilogue",),
    "op": ("inputs", "arguments"),
    "program": (),
    "model": ("arguments",),
    "describe": ("arguments",),
    "suite": ("only",),
}


def read_operators(
    tables: Sequence[Mapping[str, Any]], file: Path
) -> tuple[tuple[Operator, ...], tuple[AbsentOperator, ...]]:
    """Return the operators of a study's file, those of its suites among them; and those that need a module that is not installed.

    Raises DescribeError for what is none, with its place in the file, and where no operator stays.
    """
    operators: list[Operator] = []
    absent: list[AbsentOperator] = []
    top = Place(file.name)
    for number, table in enumerate(tables, 1):
        for one in _of_table(table, top.entry("operator", number, table), file.parent):
            if isinstance(one, AbsentOperator):
                absent.append(one)
            else:
                operators.append(one)
    names = [one.name for one in operators] + [one.name for one in absent]
    check_names(names, "operator", top)
    if not operators:
        raise refusal(top, "no operator can be measured", *absent_lines(absent))
    return tuple(operators), tuple(absent)


def _of_table(
    table: Mapping[str, Any], at: Place, folder: Path
) -> Iterator[Operator | AbsentOperator]:
    kinds = [kind for kind in KINDS if kind in table]
    if len(kinds) != 1:
        because = f"it has {' and '.join(kinds) or 'none'} of the keys {', '.join(KINDS)}, and one is needed"
        raise refusal(at, because, 'einsum = "mk,kn->mn"', 'op = "softmax"', 'suite = "dietcode"')
    (kind,) = kinds
    check_keys(table, (kind, *COMMON, *OWN_KEYS[kind]), at)
    if kind == "suite":
        yield from _of_suite(table, at, folder)
        return
    types = texts_of(table.get("type", _DEFAULT_TYPE), at / "type", 'type = "float32"')
    for layer, element in itertools.product(_layers(table, at, folder), types):
        yield _operator(kind, {**table, "type": element}, layer, at, folder)


_DEFAULT_TYPE = "float32"
_DESCRIBE_HELP = ("a function of the sizes by name that returns output, [A, B]",)
VECTORS = (
    "sizes = [{m = 1, k = 64}, {m = 7, k = 80}]",
    'sizes = "shapes.csv"',
    'sizes = {csv = "shapes.csv", columns = {m = "M", k = "K"}, weights = "calls", names = "layer"}',
)
"""Sizes that belong together, as a file may list them."""
CSV_KEYS = ("csv", "columns", "weights")
"""Keys by which a table of sizes is known to stand for the lines of a CSV file; such a table may have `names`, too."""


def _of_suite(
    table: Mapping[str, Any], at: Place, folder: Path
) -> Iterator[Operator | AbsentOperator]:
    """Yield the operators of a suite in whose names the regular expression `only` is found, with the table's element types if it gives some."""
    only = pattern_of(table, "only", at)
    suite = suite_operators(text_of(table, "suite", at), folder, at)
    chosen = [one for one in suite.operators if re.search(only, one["name"])]
    if not chosen:
        because = f"no operator of the suite {suite.name} has {only!r} in its name"
        raise refusal(at / "only", because, ", ".join(one["name"] for one in suite.operators))
    more = {key: table[key] for key in ("type", "bounds", "tolerance") if key in table}
    for number, one in enumerate(chosen, 1):
        place = Place(f"{at}, suite {suite.name}").entry("operator", number, one)
        yield from _of_table({**one, **more}, place, suite.folder)


def _layers(table: Mapping[str, Any], at: Place, folder: Path) -> tuple[str, ...]:
    """Return the names of the layers that the lines of a table's CSV file have under ``sizes.names``; "" alone without such a column."""
    sizes = table.get("sizes")
    if not isinstance(sizes, Mapping) or "csv" not in sizes or "names" not in sizes:
        return ("",)
    column, file = text_of(sizes, "names", at / "sizes"), text_of(sizes, "csv", at / "sizes")
    return layers_of_csv(folder / file, column, at / "sizes")


def _operator(
    kind: str, table: Mapping[str, Any], layer: str, at: Place, folder: Path
) -> Operator | AbsentOperator:
    """Return an operator of one element type.

    layer  the name in the lines of a CSV file that are its sizes; "": all lines
    """
    values = table_of(table, "values", at, 'values = {A = "positive"}')
    sizes = table.get("sizes", {})
    if isinstance(sizes, str) or (isinstance(sizes, Mapping) and sizes.keys() & {*CSV_KEYS}):
        axes, points = _vectors(sizes, layer, at / "sizes", folder)
    elif isinstance(sizes, list):
        axes, points = _sizes_and_weights([(one, 1.0) for one in sizes], at / "sizes")
    elif isinstance(sizes, Mapping):
        extents = {
            name: read_values(given, at / "sizes" / name, folder) for name, given in sizes.items()
        }
        axes, points = axes_of(extents, at / "sizes"), points_of(extents)
    else:
        because = f"{sizes!r} is not a table"
        raise refusal(at / "sizes", because, "sizes = {m = [1, 7], k = 64}", *VECTORS)
    suffix = "" if table["type"] == _DEFAULT_TYPE else table["type"]
    stated = text_of(table, "name", at) or ("" if layer else str(table[kind]))
    name = " ".join(filter(None, (stated, layer, suffix)))
    try:
        with without_exit():
            workload, identity = _workload(kind, table, axes, at, folder)
    except (Exception, SystemExit) as error:  # whatever a function of a user's raises
        if module := missing_module(error, str(table[kind])):
            return AbsentOperator(name, module)
        if isinstance(error, OffcutError) and error.op == "study":
            raise
        because = error.because if isinstance(error, OffcutError) else error_text(error)
        help: tuple[str, ...] = _DESCRIBE_HELP if kind == "describe" else ()
        help = error.help if isinstance(error, OffcutError) else help
        what = f"cannot describe {kind} = {table[kind]!r}"
        raise refusal(at, because, *help, what=what) from error
    for array in values:
        if isinstance(workload, Described) and array not in workload.names:
            listed = f"the inputs are {', '.join(workload.names)}"
            raise refusal(at / "values", f"there is no input {array!r}", listed)
        check_values(values[array], at / "values" / array)
    tolerance = number_of(table, "tolerance", at, 0.0, 0.0) if "tolerance" in table else None
    if tolerance is not None:
        if not hasattr(workload, "tolerance"):
            because = f"{table[kind]} gives a workload, whose tasks say how far a result may be off"
            raise refusal(at / "tolerance", because, "Exact(values, tolerance, by), of its task")
        workload.tolerance = tolerance
        identity = {**identity, "tolerance": tolerance}
    identity = {"kind": kind, "type": table["type"], "values": values, **identity}
    if kind != "program":  # whose sizes are all symbolic
        symbolic = {axis: high for axis, (_, high) in _ranges(axes, table, at)[1].items()}
        identity["symbolic"] = symbolic
    return Operator(name, identity, axes, points, workload)


def _vectors(
    sizes: str | Mapping[str, Any], layer: str, at: Place, folder: Path
) -> tuple[dict[str, Values], tuple[Point, ...]]:
    """Return the axes and the points of a CSV file, a line each: ``"shapes.csv"``, or ``{csv = "shapes.csv", columns = {m = "M"}}``.

    layer  the name in the lines that are taken, in the column `names`; "": all lines
    """
    table: Mapping[str, Any] = {"csv": sizes} if isinstance(sizes, str) else sizes
    check_keys(table, (*CSV_KEYS, "names"), at)
    file, columns = text_of(table, "csv", at), table.get("columns")
    if not file.endswith(".csv"):
        raise refusal(at, f"{file!r} is not the name of a CSV file", *VECTORS)
    if columns is not None and not (
        isinstance(columns, Mapping) and all(isinstance(one, str) for one in columns.values())
    ):
        raise refusal(at / "columns", f"{columns!r} does not name a column for each axis", *VECTORS)
    names = text_of(table, "names", at)
    vectors = vectors_of_csv(folder / file, columns, text_of(table, "weights", at), at, names)
    return _sizes_and_weights(
        [(vector, weight) for name, vector, weight in vectors if name == layer], at
    )


def _sizes_and_weights(
    weighted: Sequence[tuple[Any, float]], at: Place
) -> tuple[dict[str, Values], tuple[Point, ...]]:
    """Return the axes and the points of vectors of sizes, ``{m = 1, k = 64}``, all of the same axes, each with its weight."""
    vectors = [one for one, _ in weighted]
    if not vectors or not all(isinstance(one, Mapping) and one for one in vectors):
        raise refusal(at, "it is not a list of vectors", VECTORS[0])
    if any(set(one) != set(vectors[0]) for one in vectors):
        raise refusal(at, "its vectors have different axes", VECTORS[0])
    axes: dict[str, Values] = {}
    for name in vectors[0]:
        given = [one[name] for one in vectors]
        one = read_values(given, at / name, Path())
        axes[name] = Values(one.weights, swept=len(one.weights) > 1)
    total = sum(weight for _, weight in weighted)
    shares: dict[tuple[tuple[str, int], ...], float] = {}
    for vector, weight in weighted:
        key = tuple((name, vector[name]) for name in vectors[0])
        shares[key] = shares.get(key, 0.0) + weight / total
    return axes, tuple(Point(dict(one), share) for one, share in shares.items())


def _workload(
    kind: str, table: Mapping[str, Any], axes: Mapping[str, Values], at: Place, folder: Path
) -> tuple[Any, Mapping[str, Any]]:
    """Return a workload and what identifies it."""
    if kind in ("einsum", "op"):
        return (_einsum if kind == "einsum" else _op)(table, axes, at)
    readers = {"program": _program, "model": model_workload, "describe": _own}
    return readers[kind](table, axes, at, folder)


def _ranges(
    axes: Mapping[str, Values], table: Mapping[str, Any], at: Place
) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
    """Return the extents of the fixed axes, and the least and the greatest extent of those that are swept."""
    bounds = table_of(table, "bounds", at, "bounds = {m = 4096}")
    for name in bounds:
        if name not in axes:
            listed = f"the axes are {', '.join(axes)}"
            raise refusal(at / "bounds", f"there is no axis {name!r}", listed)
    fixed = {name: max(one.weights) for name, one in axes.items() if not one.swept}
    swept: dict[str, tuple[int, int]] = {}
    for name, values in axes.items():
        if not values.swept:
            continue
        most = max(values.weights)
        bound = bounds.get(name, min(max(LARGEST, 1 << (most - 1).bit_length()), 2**31 - 1))
        if isinstance(bound, bool) or not isinstance(bound, int) or bound < most:
            because = f"{bound!r} is not a whole number from {most} on, the greatest size"
            raise refusal(at / "bounds" / name, because, f"bounds = {{{name} = {most}}}")
        swept[name] = (1, bound)
    return fixed, swept


def _extents(axes: Mapping[str, Values], table: Mapping[str, Any], at: Place) -> dict[str, Any]:
    """Return a symbolic size for each axis that is swept, the extent of each other one."""
    fixed, swept = _ranges(axes, table, at)
    sizes = {name: oc.dim(name, min=low, max=high) for name, (low, high) in swept.items()}
    return {**fixed, **sizes}


def _constants(
    table: Mapping[str, Any],
    inputs: Mapping[str, Sequence[str]],
    axes: Mapping[str, Values],
    at: Place,
) -> tuple[str, ...]:
    """Return the inputs that are known beforehand: those that are named, else all after the first without a swept axis."""
    free = {
        name for name, letters in inputs.items() if any(axes[x].swept for x in letters if x in axes)
    }
    if "constants" not in table:
        return tuple(name for name in list(inputs)[1:] if name not in free)
    place, names = at / "constants", table["constants"]
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise refusal(place, f"{names!r} is not a list of names", f"constants = {[*inputs][1:]}")
    for name in names:
        if name not in inputs or name in free:
            because = "its shape depends on a swept size" if name in free else "it is not an input"
            because = f"{name!r} cannot be a constant: {because}"
            raise refusal(place, because, ", ".join(inputs))
    return tuple(names)


def _einsum(
    table: Mapping[str, Any], axes: Mapping[str, Values], at: Place
) -> tuple[Described, Mapping[str, Any]]:
    kind = table["type"]
    if kind not in ELEMENTS:
        raise refusal(at / "type", f"there is no contraction of {kind!r}", ", ".join(ELEMENTS))
    contraction = parse_contraction(text_of(table, "einsum", at))
    epilogue: tuple[str, ...] = ()
    if "epilogue" in table:
        example = 'epilogue = ["bias", "relu"]'
        epilogue = texts_of(table["epilogue"], at / "epilogue", example)
    _check_sizes(contraction.letters, axes, at, "axis")
    computation = build(contraction, *_ranges(axes, table, at), kind)
    inputs, result = list(computation.inputs), computation.result
    letters = dict[str, Sequence[str]](zip(contraction.names, contraction.operands, strict=True))
    for step in epilogue:
        if step not in EPILOGUES:
            raise refusal(at / "epilogue", f"there is no epilogue {step!r}", ", ".join(EPILOGUES))
        if step in ("bias", "residual"):
            shape = result.shape[-1:] if step == "bias" else result.shape
            inputs.append(oc.placeholder(shape, result.dtype, name=step))
            letters[step] = contraction.result[-1:] if step == "bias" else contraction.result
            result = oc.ops.add(result, inputs[-1])
        else:
            result = getattr(oc.ops, step)(result)
    constants = _constants(table, letters, axes, at)
    known = (contraction, kind, epilogue)
    workload = Described(result, inputs, constants, table.get("values", {}), known)
    identity = {"einsum": str(contraction), "epilogue": [*epilogue], "constants": [*constants]}
    return workload, identity


def _op(
    table: Mapping[str, Any], axes: Mapping[str, Values], at: Place
) -> tuple[Described, Mapping[str, Any]]:
    name, inputs = text_of(table, "op", at), table.get("inputs", {})
    function = function_named(name, at / "op")
    example = 'inputs = {x = "m, n"}'
    if not isinstance(inputs, Mapping) or not inputs:
        because = "it has no shape for each input, in the order of the call"
        raise refusal(at / "inputs", because, example)
    arguments = dict(table_of(table, "arguments", at, "arguments = {axis = 1}"))
    inputs = inputs_in_order(name, inputs, arguments, at)
    extents, placeholders, letters = _extents(axes, table, at), [], dict[str, Sequence[str]]()
    for label, described in inputs.items():
        one = described if isinstance(described, Mapping) else {"shape": described}
        check_keys(one, ("shape", "type"), at / "inputs" / label)
        shape, element = one.get("shape", ""), one.get("type", table["type"])
        parts = [part.strip() for part in str(shape).split(",") if part.strip()]
        for part in parts:
            if part not in extents and not re.fullmatch(r"\d+", part):
                because, example = f"the axis {part!r} has no size", f"sizes = {{{part} = …}}"
                raise refusal(at / "inputs" / label, because, example)
        letters[label] = parts
        dims = tuple(extents[part] if part in extents else int(part) for part in parts)
        placeholders.append(oc.placeholder(dims, element, name=label))
    positional, others = bind_inputs(name, placeholders, arguments, at)
    constants = _constants(table, letters, axes, at)
    result = function(*positional, **others)
    shapes = {
        label: described if isinstance(described, str) else dict(described)
        for label, described in inputs.items()
    }
    values = table.get("values", {})
    workload = Described(result, placeholders, constants, values, None, (name, arguments))
    identity = {"op": name, "inputs": shapes, "arguments": arguments, "constants": [*constants]}
    return workload, identity


def _check_sizes(
    known: Sequence[str], axes: Mapping[str, Values], at: Place, what: Literal["axis", "size"]
) -> None:
    """Refuse an axis of a contraction, or a size of a program, that the file gives no extent, and an extent of none."""
    value, plural = {"axis": ("size", "axes"), "size": ("value", "sizes")}[what]
    listed = f"the {plural} are {', '.join(known) or 'none'}"
    for name in known:
        if name not in axes:
            raise refusal(at / "sizes", f"the {what} {name!r} has no {value}", listed)
    for name in axes:
        if name not in known:
            raise refusal(at / "sizes", f"there is no {what} {name!r}", listed)


def _program(
    table: Mapping[str, Any], axes: Mapping[str, Values], at: Place, folder: Path
) -> tuple[Described, Mapping[str, Any]]:
    file = file_of(table, "program", at, folder, 'program = "gemm.offcut"')
    program = oc.parse(file.read_text(encoding="utf-8"))
    _check_sizes([size.name for size in program.sizes], axes, at, "size")
    constants = tuple(table.get("constants", ()))
    workload = Described(program, None, constants, table.get("values", {}))
    return workload, {"program": digest_of_file(file), "constants": list(constants)}


def _own(
    table: Mapping[str, Any], axes: Mapping[str, Values], at: Place, folder: Path
) -> tuple[Any, Mapping[str, Any]]:
    """Return what a user's function describes: it takes extents by name, and gives ``(output, inputs)`` or a `Workload`."""
    text = text_of(table, "describe", at)
    own = load_named(text, "offcut.operators", folder, at / "describe")
    arguments = dict(table_of(table, "arguments", at, "arguments = {channels = 64}"))
    description = own.value(**_extents(axes, table, at), **arguments)
    identity = {"describe": text, "digest": own.digest, "arguments": arguments}
    if all(hasattr(description, name) for name in ("task", "compiled")):
        return description, identity
    match description:
        case (output, [*inputs]) | (output, inputs):
            inputs = inputs if isinstance(inputs, list) else [inputs]
        case _:
            output, inputs = None, [None]
    if not all(isinstance(one, oc.Tensor) for one in inputs):
        raise refusal(at / "describe", f"it gave {description!r}", "return output, [A, B]")
    letters = {tensor.name: [str(extent) for extent in tensor.shape] for tensor in inputs}
    constants = _constants(table, letters, axes, at)
    workload = Described(output, inputs, constants, table.get("values", {}))
    return workload, {**identity, "constants": [*constants]}


def read_toml(file: Path, at: str) -> dict[str, Any]:
    """Return a file of tables.

    Raises DescribeError where it cannot be read.
    """
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise refusal(at, f"{error.strerror}", 'offcut study "layers.toml"') from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        is_text = isinstance(error, tomllib.TOMLDecodeError)
        help = "key = value, [table] or [[list]]" if is_text else "text in UTF-8"
        raise refusal(at, str(error), help, what="cannot read the file") from error
