"""What becomes of a case: every step of it compared with what the program means."""

from __future__ import annotations

import os
import re
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

import offcut as oc
from offcut.errors import CallError, InternalError, OffcutError
from tests.facade import microkernels_here, normal

from . import meaning
from .case import Case, Outcome
from .cuts import loops_of
from .meaning import dtype_of
from .memory import filled, laid_out, poison, same
from .misuse import wrong_calls
from .reading import Buffer, Source, read

Array = npt.NDArray[Any]
_ROUNDED = re.compile(r"\b(exp|log|tanh|erf|sqrt|float16|bfloat16)\(|[^/]/[^/]")
_SMOOTH = re.compile(r"\b(exp|log|tanh|erf)\(")
_CHOOSES = re.compile(r"\b(max|min)\b")
_TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 6e-2}


class Mismatch(Exception):
    """A result is not what the program means."""


@dataclass(frozen=True)
class Run:
    """Arrays of one call, and what is to come of them."""

    sizes: Mapping[str, int]
    given: Mapping[str, Array]
    wanted: Mapping[str, tuple[Array, npt.NDArray[np.bool_]]]


def check(case: Case) -> Outcome:
    """The outcome of all steps of `case`; the first that fails."""
    started = time.process_time()
    outcome = _checked(case)
    return replace(outcome, seconds=time.process_time() - started)


def _checked(case: Case) -> Outcome:
    try:
        source = read(case.text)
        runs = list(runs_of(case, source))
    except (meaning.Wrong, ValueError, SyntaxError, NameError, LookupError, TypeError) as error:
        return Outcome("skipped", "meaning", f"{type(error).__name__}: {error}", case.text)
    refused: Outcome | None = None
    steps = _Steps(case, source, runs)
    with environment(case):
        for step in case.steps:
            try:
                getattr(steps, step)()
            except Mismatch as error:
                return Outcome("wrong", step, "wrong values", str(error))
            except OffcutError as error:
                outcome = _refusal(error, step, source)
                if outcome.failed:
                    return outcome
                refused = refused or outcome
                if step == "run":
                    break
            except Exception as error:
                return _failure(error, step)
    if refused:
        return refused
    return Outcome("ok" if runs else "skipped", symptom="" if runs else "defined nowhere")


class _Steps:
    """The steps of a case, by name."""

    def __init__(self, case: Case, source: Source, runs: Sequence[Run]) -> None:
        self.case, self.source, self.runs = case, source, runs
        self.constants = [b.name for b in source.buffers if b.kind == "constant"]
        self.made: Any = None

    def options(self) -> dict[str, Any]:
        fixed = {name: self.runs[0].given[name] for name in self.constants} if self.runs else {}
        return {"threads": self.case.threads, **({"constants": fixed} if fixed else {})}

    def described(self) -> tuple[Any, Any]:
        names: dict[str, Any] = {"oc": oc, "written": written}
        exec(self.case.described, names)
        return names["result"], names["inputs"]

    def uncut(self) -> None:
        """The program as it stands, compiled."""
        self.call(oc.compile(oc.parse(self.case.text), **self.options()))

    def strategy(self) -> None:
        """What is described, compiled by a strategy."""
        result, inputs = self.described()
        options = self.options()
        if self.case.strategy != "auto":
            options["strategy"] = self.case.strategy
        try:
            kernel = oc.compile(result, inputs, **options)
        except oc.PartitionError as refused:
            if "without @cover(" not in str(refused):
                raise
            uncovered = re.sub(r"  @cover\([^)]*\)", "", str(result))
            kernel = oc.compile(oc.parse(uncovered), inputs, **options)
        self.call(kernel)

    def run(self) -> None:
        """The partition as our interpreter runs it, and as it is read back."""
        made = self.partition()
        if oc.parse(str(made)) != made.loops:
            raise AssertionError("the partition is not read back as it prints")
        for run in self.runs:
            found = made.run(dict(run.given), **run.sizes)
            self.compare(run, self.several(found), "p.run")

    def cut(self) -> None:
        """The partition's loops, compiled."""
        self.call(oc.compile(self.partition().loops, **self.options()))

    def partition(self) -> Any:
        """What `oc.partition` makes of it, once."""
        if self.made is None:
            case = self.case
            what = self.described()[0] if case.described else oc.parse(case.text)
            tile, tail = case.tile, case.tail
            if "oc.ops." in case.described:
                names = dict(
                    zip(tile, loops_of(read(str(oc.partition(what).source))), strict=False)
                )
                tile = {names[name]: t for name, t in tile.items() if name in names}
                if not isinstance(tail, str):
                    tail = {names[name]: t for name, t in tail.items() if name in names}
            options: dict[str, Any] = {"tile": tile, "tail": tail, "copies": case.copies}
            said = {name: value for name, value in options.items() if value}
            self.made = oc.partition(what, **said)
        return self.made

    def call(self, kernel: Any) -> None:
        """`kernel` at every size: new arrays, guarded and poisoned ones, its input's own."""
        from .scratch import flush  # which imports what faults are planted in

        rng = Random(self.case.seed)
        named = {buffer.name: buffer for buffer in self.source.buffers}
        declared = [named[argument.name] for argument in kernel.signature.inputs]
        results = [b for b in self.source.buffers if b.kind in ("output", "inout")]
        solved = {extent for b in declared for extent in b.shape}
        careful = {at_end: flush(kernel, at_end) for at_end in (False, True)}
        for number, run in enumerate(self.runs):
            at_end = (number + self.case.seed) % 2 == 0
            layout = self.case.layouts[number % len(self.case.layouts)]
            given = [laid_out(run.given[b.name], b.dtype, layout, at_end) for b in declared]
            sizes = {n: v for n, v in run.sizes.items() if n not in solved or rng.random() < 0.3}
            before = [array.tobytes() for array in given]
            # Half of the calls are Python's own; the others have scratch that faults past its ends.
            called = kernel if (number + self.case.seed) // 2 % 2 else careful[at_end]
            how = ("out", "out", "new", "place")[rng.randrange(4)]
            if how == "new":
                found = self.several(called(*given, **sizes))
            else:
                shapes = [run.wanted[b.name][0].shape for b in results]
                out = [
                    poison(laid_out(np.zeros(shape, dtype_of(b.dtype)), b.dtype, layout, at_end))
                    for b, shape in zip(results, shapes, strict=True)
                ]
                if how == "place" and layout == "rows":
                    mine = {b.name: array for b, array in zip(declared, given, strict=True)}
                    out = [mine.get(b.name, o) for b, o in zip(results, out, strict=True)]
                given_out = out[0] if len(out) == 1 else tuple(out)
                called(*given, out=given_out, **sizes)
                found = out
            self.compare(run, found, f"{how}, {layout}, at the {'end' if at_end else 'start'}")
            for buffer, array, bits in zip(declared, given, before, strict=True):
                if array.tobytes() != bits and not any(array is o for o in found):
                    raise Mismatch(f"the input {buffer.name} is changed, sizes {run.sizes}")
        if self.runs:
            self.misuse(kernel, declared, results)
            self.astray(kernel, declared, results)

    def misuse(self, kernel: Any, declared: Sequence[Buffer], results: Sequence[Buffer]) -> None:
        """`kernel` refuses calls that are wrong, and touches nothing of theirs."""
        for wrong in wrong_calls(self.source, declared, results, self.runs[-1].sizes):
            before = [array.tobytes() for array in wrong.arrays()]
            out = wrong.out[0] if len(wrong.out) == 1 else wrong.out
            try:
                kernel(*wrong.given, out=out, **wrong.sizes)
            except CallError:
                if before == [array.tobytes() for array in wrong.arrays()]:
                    continue
            raise Mismatch(f"a call is taken although {wrong.why}, sizes {dict(wrong.sizes)}")

    def astray(self, kernel: Any, declared: Sequence[Buffer], results: Sequence[Buffer]) -> None:
        """Where what an array holds leads outside of another, `kernel` says so, and stays inside."""
        rng = Random(self.case.seed)
        for buffer in declared:
            if f"index({buffer.name}[" not in self.case.text:
                continue
            for run in self.runs:
                array = run.given[buffer.name].copy()
                if not array.size:
                    continue
                lost = (-1, 4, 100) if buffer.dtype != "uint8" else (4, 100)
                array.reshape(-1)[rng.randrange(array.size)] = rng.choice(lost)
                given = {**run.given, buffer.name: array}
                arrays = [laid_out(given[b.name], b.dtype, "rows", True) for b in declared]
                try:
                    wanted = meaning.run(self.source, given, run.sizes)
                except meaning.Wrong:
                    with suppress(CallError):
                        kernel(*arrays, **run.sizes)
                        raise Mismatch(
                            f"{buffer.name} = {array.tolist()} leads outside, sizes {run.sizes}"
                        ) from None
                except (meaning.Undefined, meaning.TooLong):
                    continue
                else:
                    found = self.several(kernel(*arrays, **run.sizes))
                    self.compare(Run(run.sizes, given, wanted), found, "led elsewhere")

    def several(self, found: Any) -> list[Array]:
        if isinstance(found, dict):
            return list(found.values())
        return list(found) if isinstance(found, tuple) else [found]

    def compare(self, run: Run, found: Sequence[Array], how: str) -> None:
        inexact = _SMOOTH if self.case.data == "rough" else _ROUNDED
        rounded = self.case.data == "smooth" or inexact.search(self.case.text)
        zeros = not rounded and not _CHOOSES.search(self.case.text)
        coarse = max((_TOLERANCE.get(b.dtype, 0) for b in self.source.buffers), default=0)
        options = {"tolerance": coarse if rounded else 0, "zeros": zeros}
        if len(found) != len(run.wanted):
            raise Mismatch(f"{len(found)} results, not {len(run.wanted)}")
        for (name, (wanted, known)), mine in zip(run.wanted.items(), found, strict=True):
            if not same(np.asarray(mine), wanted, known, options):
                raise Mismatch(_difference(name, np.asarray(mine), wanted, known, run, how))


def written(text: str) -> Any:
    """A program with tiles, whose microkernels are those of this machine; others are left out."""
    names = microkernels_here()

    def mark(found: re.Match[str]) -> str:
        name = next((name for name in names if name.startswith(found[1])), None)
        return f"  @cover({name})" if name else ""

    return oc.parse(re.sub(r"  @cover\((\w+)\)", mark, text))


def _difference(
    name: str, found: Array, wanted: Array, known: npt.NDArray[np.bool_], run: Run, how: str
) -> str:
    given = "\n".join(f"{n} = {a.tolist()}" for n, a in run.given.items() if a.size <= 64)
    return (
        f"{name} at {dict(run.sizes)} ({how})\nfound  {_shown(found)}\nwanted {_shown(wanted)}\n"
        f"known  {'everywhere' if known.all() else _shown(known)}\n{given}"
    )


def _shown(array: Array) -> str:
    return str(array.tolist()) if array.size <= 200 else f"{array.dtype}{array.shape}"


def runs_of(case: Case, source: Source) -> Iterator[Run]:
    """The arrays of every size at which the program has a meaning."""
    rng = Random(case.seed)
    fixed: dict[str, Array] = {}
    for sizes in case.sizes:
        given: dict[str, Array] = {}
        for buffer in source.buffers:
            if buffer.kind in ("output", "local"):
                continue
            shape = tuple(meaning.value_of(extent, sizes) for extent in buffer.shape)
            if min(shape, default=0) < 0:
                break
            data = case.data
            if f"index({buffer.name}[" in case.text:
                data = "rising" if f":index({buffer.name}[" in case.text else "indices"
            values = filled(shape, buffer.dtype, data, rng)
            if buffer.kind == "constant":
                values = fixed.setdefault(buffer.name, values)
            given[buffer.name] = values
        else:
            try:
                yield Run(sizes, given, meaning.run(source, given, sizes))
            except (meaning.Undefined, meaning.TooLong):
                continue


_OWN = re.compile(r"is no (instance|statement) of the source")
_OUTSIDE = re.compile(r"it is .* of a tensor of shape")
_WITNESS = re.compile(r"\bwith ((?:\w+ = -?\d+(?:, )?)+)")


def _refusal(error: OffcutError, step: str, source: Source) -> Outcome:
    """A refusal in words, or a failure where the words are wrong."""
    because, text = str(error.because), str(error)
    if not because:
        return Outcome("error", step, "a refusal without a reason", text)
    names = {size.name: size for size in source.sizes}
    sizes: dict[str, int] | None = None
    for found in _WITNESS.finditer(because):
        values = dict(pair.split(" = ") for pair in found[1].rstrip(", ").split(", "))
        sizes = {n: int(v) for n, v in values.items() if n in names}
        outside = [n for n, value in sizes.items() if not names[n].allows(value)]
        complete = len(sizes) == len(names)
        broken = [f for f in source.assumptions if complete and not meaning.holds(f, sizes)]
        if outside or broken:
            return Outcome("error", step, "a witness outside of the declared sizes", text)
    if step in ("run", "cut") and _OWN.search(because):
        return Outcome("error", step, "its own cut is not proved: " + normal(because), text)
    if _OUTSIDE.search(because) and sizes is not None and _stays_inside(source, sizes):
        return Outcome("error", step, "a witness that stays inside", text)
    if type(error).__name__ == "CallError":
        return Outcome("error", step, f"CallError: {normal(text)}", text)
    return Outcome("refused", step, f"{type(error).__name__}: {normal(because)}", text)


def _stays_inside(source: Source, sizes: Mapping[str, int]) -> bool:
    """Whether nothing that the program accesses at `sizes`, all that it has, is outside of a buffer."""
    if len(sizes) < len(source.sizes) or "index(" in str(source):
        return False
    case = Case("witness", 0, str(source), sizes=(sizes,))
    try:
        return bool(list(runs_of(case, source)))
    except meaning.Wrong:
        return False


def _failure(error: Exception, step: str) -> Outcome:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if f"{os.sep}offcut{os.sep}" in f.filename]
    at = f" in {os.path.basename(ours[-1].filename)}, {ours[-1].name}" if ours else ""
    kind = "InternalError" if isinstance(error, InternalError) else type(error).__name__
    return Outcome(
        "error",
        step,
        f"{kind}: {normal(str(error))}{at}",
        "".join(traceback.format_exception(error)),
    )


@contextmanager
def environment(case: Case) -> Iterator[None]:
    """The machine that the case asks for."""
    asked = {"OFFCUT_HIDE_FEATURES": case.mask, "OFFCUT_VERIFY": str(int(case.verify))}
    before = {name: os.environ.get(name) for name in asked}
    os.environ.update(asked)
    try:
        with ExitStack() as machine:
            if case.emulated:
                from tile_unit import emulated, stores_tiles

                if stores_tiles():
                    machine.enter_context(emulated())
            if case.threads > 1:
                from .late import late

                machine.enter_context(late())
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
