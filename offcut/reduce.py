"""How a loop program fails when it is cut, compiled and called, and a smaller one that fails in the same way.

A program means what the reference interpreter makes of it. At small sizes, what its cut computes and what
its kernel computes is compared with that; what is refused, and what breaks, is a failure as well.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from offcut.core.dtypes import FLOATS, numpy_dtype
from offcut.core.interpret.interpreter import poison_array
from offcut.core.interpret.interpreter import run as interpreted
from offcut.core.interpret.values import Array, evaluate
from offcut.core.program import Kind, Program
from offcut.core.testcase_shrinking import error_signature, shrink, simpler_programs
from offcut.core.text.parser import parse
from offcut.core.traversal import all_bound_names
from offcut.errors import CallError, InternalError, OffcutError
from offcut.partition import Tiles
from offcut.pipeline import compile, partition

_VALUES = (0, 1, 2, 5, 9, 18)  # of sizes: nothing, one, and around tiles of 2, 4, 8 and 16
_TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 6e-2}
_SIMPLE_TAILS = ("cut", "guard")
_TILES = (2, 4, 8)

Tail = Mapping[str, str] | str


@dataclass(frozen=True)
class Request:
    """A program, and how it is cut; as it stands where `tile` is empty."""

    program: Program
    tile: Mapping[str, Tiles] = field(default_factory=dict)
    tail: Tail = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the program, behind a comment that says the command."""
        tiles = [f"--tile {n}={','.join(map(str, _heights(t)))}" for n, t in self.tile.items()]
        tail = {"": self.tail} if isinstance(self.tail, str) else self.tail
        tails = [f"--tail {name}={one}" if name else f"--tail {one}" for name, one in tail.items()]
        return f"# {' '.join(['offcut check FILE', *tiles, *tails])}\n{self.program}"


@dataclass(frozen=True)
class Failure:
    """How a program fails.

    step     reading back, cutting, the cut's values, compiling, the kernel's values
    symptom  a line that is equal for failures of one cause, as far as one can tell
    told     all that is known of it
    refused  whether it is a refusal in words, which may be right
    """

    step: str
    symptom: str
    told: str
    refused: bool = False

    def alike(self, other: Failure | None) -> bool:
        """Return whether another one fails at the same step in the same way."""
        return other is not None and (self.step, self.symptom) == (other.step, other.symptom)


@dataclass(frozen=True)
class _Run:
    """Arrays of one call, and what the program makes of them."""

    sizes: Mapping[str, int]
    given: Mapping[str, Array]
    wanted: Mapping[str, Array]


def failure(request: Request) -> Failure | None:
    """Return the first way in which `request` fails; None where all that is computed is what the program means."""
    program, step = request.program, "reading back"
    try:
        if parse(str(program)) != program:
            return Failure(step, "another program", "the program is not read back as it prints")
        runs = list(_runs(program))
        if request.tile:
            step = "cutting"
            partition_ = partition(program, request.tile, request.tail)
            step = "the cut's values"
            for run in runs:
                results = interpreted(partition_.loops, run.given, run.sizes)
                if shown := _difference(program, run, results):
                    return Failure(step, "wrong values", shown)
            program = partition_.loops
        step = "compiling"
        constants = [b.name for b in program.buffers if b.kind is Kind.CONSTANT]
        fixed = {name: runs[0].given[name] for name in constants} if runs else {}
        kernel = compile(program, constants=fixed or None, records=False)
        step = "the kernel's values"
        for run in runs:
            inputs = (run.given[argument.name] for argument in kernel.signature.inputs)
            result = kernel(*inputs, **run.sizes)
            several = result if isinstance(result, tuple) else (result,)
            names = (buffer.name for buffer in program.results)
            if shown := _difference(program, run, dict(zip(names, several, strict=True))):
                return Failure(step, "wrong values", shown)
    except OffcutError as refused:
        message = (
            type(refused).__name__,
            error_signature(refused.refused),
            error_signature(refused.because),
        )
        what = ": ".join(message)
        return Failure(step, what, str(refused), refused=True)
    except Exception as broken:
        return _broken_step_error(step, broken)
    return None


def smaller(request: Request, failed: Failure) -> Request:
    """`request` made small, as long as it fails as `failed` says."""
    return shrink(request, simpler, lambda one: failed.alike(failure(one)))


def simpler(request: Request) -> Iterator[Request]:
    """Requests with a simpler program, then with a simpler cut of it."""
    for program in simpler_programs(request.program):
        there = partial(_is_there, all_bound_names(program))
        tail = request.tail
        yield Request(
            program,
            {name: tile for name, tile in request.tile.items() if there(name)},
            tail if isinstance(tail, str) else {n: one for n, one in tail.items() if there(n)},
        )
    for tile, tail in simpler_cuts(request.tile, request.tail):
        yield replace(request, tile=tile, tail=tail)


def _is_there(names: frozenset[str], axis: str) -> bool:
    return axis.rpartition(".")[2] in names


def simpler_cuts(
    tile: Mapping[str, Tiles], tail: Tail
) -> Iterator[tuple[Mapping[str, Tiles], Tail]]:
    """Cuts of fewer axes, of axes without the tensor before their name, by smaller tiles, and plainer tails."""
    for name, heights in tile.items():
        rest = {axis: t for axis, t in tile.items() if axis != name}
        yield rest, tail if isinstance(tail, str) else {a: t for a, t in tail.items() if a != name}
        plain = name.rpartition(".")[2]
        if plain != name:
            same = (
                tail
                if isinstance(tail, str)
                else {plain if a == name else a: t for a, t in tail.items()}
            )
            yield {plain if axis == name else axis: t for axis, t in tile.items()}, same
        levels = _heights(heights)
        fewer = (
            levels[:1] + levels[-1:] if len(levels) > 1 else [t for t in _TILES if t < levels[0]]
        )
        for height in fewer:
            yield {**tile, name: height}, tail
    if isinstance(tail, str):
        if tail not in _SIMPLE_TAILS:
            yield tile, "cut"
        return
    for name, one in tail.items():
        if one not in _SIMPLE_TAILS:
            yield tile, {**tail, name: "cut"}


def _heights(tile: Tiles) -> list[int]:
    return [tile] if isinstance(tile, int) else list(tile)


def _runs(program: Program) -> Iterator[_Run]:
    """Arrays of whole numbers at small sizes at which the program has a meaning."""
    rng = np.random.default_rng(0)
    fixed: dict[str, Array] = {}
    for value in _VALUES:
        sizes = {size.name: size.at_or_above(value + k) for k, size in enumerate(program.sizes)}
        if not all(evaluate(fact, sizes) for fact in program.assumptions):
            continue
        arrays: dict[str, Array] = {}
        for buffer in program.buffers:
            if buffer.kind not in (Kind.INPUT, Kind.CONSTANT, Kind.INOUT):
                continue
            shape = [max(0, int(evaluate(extent, sizes))) for extent in buffer.shape]
            low = -3 if buffer.dtype in FLOATS else 0  # an integer may be an index
            array = rng.integers(low, 4, shape).astype(numpy_dtype(buffer.dtype))
            shared = fixed.setdefault(buffer.name, array) if buffer.kind is Kind.CONSTANT else array
            arrays[buffer.name] = shared
        try:
            yield _Run(sizes, arrays, interpreted(program, arrays, sizes))
        except (
            CallError,
            InternalError,
        ):  # it leaves an array at these sizes: it has no meaning there
            continue
        if not sizes:
            return


def _difference(program: Program, run: _Run, results: Mapping[str, Any]) -> str:
    """In words, the first result that is not what the program means; "" where each is."""
    for buffer in program.results:
        wanted, mine = run.wanted[buffer.name], np.asarray(results[buffer.name])
        unwritten = poison_array((), buffer.dtype)
        if buffer.dtype == "bool":  # as a condition, what is not written is true
            wanted, mine, unwritten = (x.view(np.uint8) for x in (wanted, mine, unwritten))
        if buffer.dtype in FLOATS:
            wanted, mine = wanted.astype("float64"), mine.astype("float64")
            limit = _TOLERANCE[buffer.dtype]
            right = np.isclose(mine, wanted, limit, limit) | np.isnan(wanted)
        else:
            right = (mine == wanted) | (wanted == unwritten)
        if not right.all():
            place = tuple(map(int, np.argwhere(~right)[0]))
            at = ", ".join(f"{name} = {value}" for name, value in run.sizes.items())
            element = f"{buffer.name}[{', '.join(map(str, place))}]"
            return f"{element} is {mine[place]}, not {wanted[place]}" + (
                f", with {at}" if at else ""
            )
    return ""


def _broken_step_error(step: str, error: Exception) -> Failure:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if f"{os.sep}offcut{os.sep}" in frame.filename]
    at = f" in {os.path.basename(ours[-1].filename)}, {ours[-1].name}" if ours else ""
    what = f"{type(error).__name__}: {error_signature(str(error))}{at}"
    return Failure(step, what, "".join(traceback.format_exception(error)))
