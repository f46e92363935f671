"""ONNX's own node tests through `from_onnx`: ``python -m tests.plugins.onnx_nodes`` writes docs/plugins/onnx-nodes.md.

A test passes where the interpreter gives what it expects; it is refused where the import refuses it. Nothing else may happen.
An input that must be known at import (a shape, axes) is given as a constant where the test has it as an input of the graph.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import logging
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from offcut.errors import OffcutError
from offcut.plugins.onnx.import_model import Imported, import_proto
from tests.agree import Exact, agree, epsilon, wide
from tests.facade import compile_graph, interpret_graph

PAGE = Path(__file__).parents[2] / "docs" / "plugins" / "onnx-nodes.md"

UNITS = {"bfloat16": 2**-6, "float16": 2**-9}
"""Two units in the last place; ONNX's own runner takes as much for bfloat16."""

PASSED, REFUSED, FAILED = "passed", "refused", "failed"


@dataclass(frozen=True)
class Outcome:
    """What became of a test.

    status     passed, refused or failed
    reason     why it was not passed
    constants  inputs that were known at import
    """

    status: str
    reason: str = ""
    constants: tuple[str, ...] = ()


@cache
def cases() -> list[Any]:
    """All node tests of the wheel, by name."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        with contextlib.redirect_stderr(io.StringIO()):
            from onnx.backend.test.loader import load_model_tests

            return sorted(load_model_tests(kind="node"), key=lambda case: case.name)


def operators() -> dict[str, str]:
    """What each test is about: an operator, or the body of the function that ONNX defines it as."""
    every = {case.name: case for case in cases()}
    return {name: _operator(name, every) for name in every}


def _operator(name: str, every: Mapping[str, Any]) -> str:
    base, expanded, _ = name.partition("_expanded")
    if expanded and base in every:
        return f"{_operator(base, every)}, its body"
    nodes = every[name].model.graph.node
    return str(nodes[-1].op_type) if nodes else "none"


def symbolic(model: Any) -> Any:
    """The same model whose extents are sizes, equal ones one size; those of 0 and 1 stay."""
    made = type(model)()
    made.CopyFrom(model)
    for value in made.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value > 1:
                dim.dim_param = f"n{dim.dim_value}"
    del made.graph.value_info[:]
    for value in made.graph.output:
        if value.type.tensor_type.HasField("shape"):
            for dim in value.type.tensor_type.shape.dim:
                dim.ClearField("dim_value")
    return made


def outcome(case: Any, kernels: bool = False, sizes: bool = False) -> Outcome:
    """What becomes of a test.

    kernels  whether it is run by compiled kernels too, beside the interpreter
    sizes    whether the extents of its inputs are made sizes
    """
    if sizes:
        case = dataclasses.replace(case, model=symbolic(case.model))
    with warnings.catch_warnings(), np.errstate(all="ignore"), _no_logging():
        warnings.simplefilter("ignore")
        found = _outcome(case, (), kernels)
        for alone in (True, False):
            if found.status == REFUSED and "not known at import" in found.reason:
                small = _small(case, alone)
                found = _outcome(case, small, kernels) if small else found
        return found


@contextmanager
def _no_logging() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _small(case: Any, alone: bool) -> tuple[str, ...]:
    """Inputs that may be shapes, axes, counts, and of few elements.

    alone  whether the first is none of them
    """
    names = [one.name for one in case.model.graph.input]
    inputs, _ = case.data_sets[0]
    every = list(zip(names, inputs, strict=False))
    chosen = every[1:] if alone and len(every) > 1 else every
    return tuple(
        name
        for name, array in ((name, plain(one)) for name, one in chosen)
        if isinstance(array, np.ndarray | np.generic) and array.ndim < 2 and array.size <= 16
    )


def _outcome(case: Any, constants: Sequence[str], kernels: bool) -> Outcome:
    names = [one.name for one in case.model.graph.input]
    for inputs, expected in case.data_sets:
        feed = {name: plain(one) for name, one in zip(names, inputs, strict=False)}
        try:
            given = {name: feed.pop(name) for name in constants}
            try:
                model = import_proto(case.model, {}, given)
            except OffcutError as refused:
                return Outcome(REFUSED, refused.because, tuple(constants))
            made = list(run(model, feed, kernels))
        except Exception as error:  # whatever it is, it is a bug
            return Outcome(FAILED, f"{type(error).__name__}: {error}", tuple(constants))
        outputs = [one.name for one in case.model.graph.output]
        for results in made:
            for name, wanted in zip(outputs, expected, strict=True):
                wrong = difference(results[name], wanted, case)
                if wrong:
                    return Outcome(FAILED, f"{name}: {wrong}", tuple(constants))
    return Outcome(PASSED, "", tuple(constants))


def run(model: Imported, feed: dict[str, Any], kernels: bool) -> Iterable[dict[str, Any]]:
    """The outputs by the interpreter, and by kernels."""
    given = model.arrays_by_name({name: feed[name] for name in model.inputs})
    yield model.results_by_name(interpret_graph(model.bound, given))
    if kernels:
        yield model.results_by_name(compile_graph(model.bound, threads=1)(given))


def plain(value: Any) -> Any:
    """A tensor as an array."""
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def stated(wanted: Any, case: Any, dtype: str) -> Exact:
    """What a test of ONNX expects, with the terms that its own tolerance of float32 stands for."""
    relative = max(case.rtol, UNITS.get(dtype, 0))
    added = case.atol
    if case.model.graph.node[-1].op_type == "DFT":  # sums in float32, whose zeros are none
        added = 2**-21 * float(np.abs(wanted).max())
    value = wide(wanted)
    eps = min(epsilon(np.empty(0, dtype).real.dtype), epsilon("float32"))
    return Exact(value, (relative * np.abs(value) + added) / eps, units=1)


def difference(found: Any, wanted: Any, case: Any) -> str:
    """How a result differs from what is expected; nothing where it does not."""
    wanted = np.asarray(plain(wanted))
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype}{found.shape}, not {wanted.dtype}{wanted.shape}"
    if found.dtype.kind in "biu":
        return "" if np.array_equal(found, wanted) else "other elements"
    try:
        agree(found, stated(wanted, case, found.dtype.name))
    except AssertionError as wrong:
        return " ".join(str(wrong).split())[:200]
    return ""


def table(results: dict[str, tuple[str, Outcome]]) -> str:
    """The page: by operator, how many tests are passed, and why the others are refused.

    results  by test, its operator and what became of it
    """
    groups: dict[str, list[tuple[str, Outcome]]] = defaultdict(list)
    for name, (operator, found) in results.items():
        groups[operator].append((name, found))
    passed = sum(found.status == PASSED for _, found in results.values())
    known = sum(found.status == PASSED and bool(found.constants) for _, found in results.values())
    lines = [
        "# ONNX's node tests",
        "",
        f"Of the {len(results)} node tests that the wheel of onnx carries, {passed} are passed and {len(results) - passed} are",
        f"refused; none gives a wrong value. {known} of those that are passed have inputs that must be known at import (a shape,",
        "axes), and are given them as `constants=`. A test keeps this page true; `python -m tests.plugins.onnx_nodes` writes it.",
        "",
        "| operator | passed | of | refused, and why |",
        "|---|---|---|---|",
    ]
    for operator in sorted(groups, key=str.lower):
        found = groups[operator]
        good = sum(one.status == PASSED for _, one in found)
        reasons: dict[str, list[str]] = defaultdict(list)
        for name, one in found:
            if one.status != PASSED:
                reasons[_cell(one)].append(name.removeprefix("test_"))
        told = "<br>".join(f"{', '.join(names)}: {why}" for why, names in sorted(reasons.items()))
        lines.append(f"| {operator} | {good} | {len(found)} | {told} |")
    return "\n".join(lines) + "\n"


def _cell(found: Outcome) -> str:
    first, *others = found.reason.splitlines() or [""]
    text = f"{first[:200]}, and others" if others else first[:200]
    mark = "**failed** " if found.status == FAILED else ""
    return mark + text.replace("|", "\\|")


def say(text: str) -> None:
    """A line for who runs this."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run the tests, and write the page where all were run."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--only", default="", help="tests whose names contain this")
    asked.add_argument("--symbolic", action="store_true", help="with sizes for extents")
    asked.add_argument("--kernels", action="store_true", help="by compiled kernels too")
    options = asked.parse_args()
    results = {}
    named = operators()
    for case in cases():
        if options.only in case.name:
            found = outcome(case, options.kernels, options.symbolic)
            results[case.name] = named[case.name], found
            if options.only or found.status == FAILED:
                say(f"{found.status:8} {case.name} {_cell(found)}")
    counts = {
        status: sum(one.status == status for _, one in results.values())
        for status in (PASSED, REFUSED, FAILED)
    }
    say(str(counts))
    if not (options.only or options.symbolic or options.kernels):
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(table(results), encoding="utf-8")
    return 1 if counts[FAILED] else 0


if __name__ == "__main__":
    sys.exit(main())
