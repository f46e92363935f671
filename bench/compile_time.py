"""How long `compile` takes: from nothing, and from the disk cache in a fresh process.

    python bench/compile_time.py            # twenty minutes, of which models take most
    python bench/compile_time.py --quick    # one process each

Every figure comes from a process of its own, after imports, with the proof on, in seconds of the
process's CPU, which compiles alone (`OFFCUT_PROCESSES=1`). A cold process starts with an empty cache; a warm one finds what the cold one left.
Of models it is also said how long the clock runs where as many processes compile as there are cores, and from the cache as many threads bind constants. What
packing a constant B takes is measured by giving the compiled kernel the same constant once more, and
is taken off. Models are those of `studies/bench/models.toml`; what torch takes to export and to decompose them is
said apart.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from harness import Line, models, publish, read_options, row_of, run_case, table

from offcut.experiment.outputs import wide_console

REPETITIONS, MODEL_REPETITIONS = 7, 3
HEADS, DEPTH = 12, 32
HIDDEN, WIDE = HEADS * DEPTH, 1536
ASKED_WARM, ASKED_WARM_MODEL = "≤ 10 ms", "≤ 500 ms"
MODELS = (
    *("ResNet-18", "MobileNetV2", "ViT-S/32", "GPT-2 small", "GPT-2 small, one token"),
    *("BERT, masked", "Mixer-S/32", "LSTM 128→256"),
)
"""Of `studies/bench/models.toml`."""


def loaded() -> None:
    """Everything that compiling and cutting imports."""
    import islpy  # noqa: F401
    import llvmlite.binding  # noqa: F401
    import sympy  # noqa: F401

    import offcut.pipeline  # noqa: F401


def importing(name: str) -> float:
    """Seconds of an import, in a process that has nothing of offcut's yet."""
    timed = f"start = time.process_time(); import {name}; print(time.process_time() - start)"
    command = [sys.executable, "-c", f"import time; {timed}"]
    return float(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def dense(constant: bool) -> float:
    """A dense layer of 768×768, of 1 to 4096 rows."""
    loaded()
    from offcut.experiment.contraction import build, parse_contraction

    fixed = {"k": 768, "n": 768}
    weights = np.random.default_rng(0).standard_normal((768, 768), np.float32)
    packed = {"B": weights} if constant else {}
    described = build(parse_contraction("mk,kn->mn"), fixed, {"m": (1, 4096)})
    start = time.process_time()
    kernel = described.compile(packed)
    compiled = time.process_time()
    if packed:
        kernel.with_constants(packed)
    return compiled - start - (time.process_time() - compiled)


def attention() -> float:
    """`oc.ops.attention`, every batch, heads and length, d = 64."""
    loaded()
    import offcut as oc

    sizes = [oc.dim(letter, min=1, max=2**16) for letter in "bhs"]
    q, k, v = (oc.placeholder((*sizes, 64), name=name) for name in "QKV")
    result = oc.ops.attention(q, k, v, name="result")
    start = time.process_time()
    oc.compile(result, inputs=[q, k, v], threads=1)
    return time.process_time() - start


def encoder_layer() -> float:
    """A post-norm layer of an encoder on the rows of one sentence, (n, 384), as one program."""
    loaded()
    import offcut as oc

    n = oc.dim("n", min=1, max=512)
    x = oc.placeholder((n, HIDDEN), name="x")
    inputs = [x]

    def parameter(name: str, *shape: int) -> Any:
        inputs.append(oc.placeholder(shape, name=name))
        return inputs[-1]

    def layer(given: Any, name: str, k: int, m: int, **options: Any) -> Any:
        weight, bias = parameter(f"W{name}", k, m), parameter(f"b{name}", m)
        return oc.ops.dense(given, weight, bias, name=name, **options)

    def norm(given: Any, name: str) -> Any:
        gain, shift = parameter(f"gain{name}", HIDDEN), parameter(f"shift{name}", HIDDEN)
        return oc.ops.layernorm(given, gain, shift, name=name)

    def heads(name: str) -> Any:
        split = oc.ops.split_axis(layer(x, name, HIDDEN, HIDDEN), 1, DEPTH, name=f"split{name}")
        return oc.ops.transpose(split, (1, 0, 2), name=f"heads{name}")

    mixed = oc.ops.attention(heads("q"), heads("k"), heads("v"), name="mixed")
    merged = oc.ops.merge_axes(oc.ops.transpose(mixed, (1, 0, 2), name="turned"), 1, name="merged")
    first = norm(layer(merged, "o", HIDDEN, HIDDEN, residual=x), "first")
    wide = layer(first, "wide", HIDDEN, WIDE, activation="gelu")
    result = norm(layer(wide, "narrow", WIDE, HIDDEN, residual=first), "second")
    start = time.process_time()
    oc.compile(result, inputs=inputs)
    return time.process_time() - start


def from_torch(name: str) -> tuple[float, float, float, float]:
    """A model of `models.toml`: all but what torch takes to export and to decompose it, that, and both by the clock; the first by the
    clock."""
    loaded()
    import torch

    import offcut as oc
    import offcut.plugins.torch.exported

    case = models()[name].workload
    free = tuple(dict.fromkeys(axes, torch.export.Dim.AUTO) for axes in case.free)
    torchs, waited = list[float](), list[float]()

    def timed(run: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            start, begun = time.process_time(), time.perf_counter()
            made = run(*given, **named)
            torchs.append(time.process_time() - start)
            waited.append(time.perf_counter() - begun)
            return made

        return call

    program = torch.export.ExportedProgram
    torch.export.export = timed(torch.export.export)
    program.run_decompositions = timed(program.run_decompositions)
    model, example = case.module, case.example
    start, begun = time.process_time(), time.perf_counter()
    oc.from_torch(model, example, dynamic_shapes=free)
    seconds, passed = time.process_time() - start - sum(torchs), time.perf_counter() - begun
    return seconds, sum(torchs), passed, passed - sum(waited)


def padded() -> float:
    """A padded 3×3 convolution cut on two axes, and proved."""
    loaded()
    from partitioner import convolution

    start = time.process_time()
    convolution().prove()
    return time.process_time() - start


CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "dense 768×768, B at run time": (partial(dense, constant=False), "≤ 300 ms"),
    "dense 768×768, constant B, packing apart": (partial(dense, constant=True), "≤ 300 ms"),
    "attention": (attention, "≤ 800 ms"),
    "an encoder layer as one kernel": (encoder_layer, "≤ 3000 ms"),
    **{name: (partial(from_torch, name), "≤ 10 s") for name in MODELS},
    "padded 3×3 convolution, partitioned": (padded, "≤ 200 ms"),
    "import offcut": (partial(importing, "offcut"), "≤ 300 ms"),
    "import of all that compile needs": (partial(importing, "offcut.pipeline"), ""),
}
"""What is measured, and what is asked of it cold."""

CLOCKED = ("all, cold", "from the cache, torch's own apart")

UNCACHED = tuple(CASES)[-3:]
"""What leaves nothing in the disk cache."""


def main() -> None:
    """Measure cold and warm in turns, and print both with what is asked."""
    options = read_options(__doc__ or "", ("out",), CASES)
    if options.case:
        print(json.dumps(CASES[options.case][0]()))
        return
    taken: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in CASES}
    torchs: dict[str, list[float]] = {name: [] for name in MODELS}
    clocks: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in MODELS}
    for turn in range(1 if options.quick else REPETITIONS):
        for name, states in taken.items():
            if name in MODELS and turn >= MODEL_REPETITIONS:
                continue
            if name in MODELS:
                with tempfile.TemporaryDirectory() as cache:
                    for state, at in zip(clocks[name], (2, 3), strict=True):
                        result = run_case(__file__, name, turn, OFFCUT_CACHE=cache)
                        state += [] if result is None else [result[at]]
            with tempfile.TemporaryDirectory() as cache:
                for state in states[: 1 if name in UNCACHED else 2]:
                    seconds = run_case(
                        __file__, name, turn, OFFCUT_CACHE=cache, OFFCUT_PROCESSES="1"
                    )
                    if name in MODELS and seconds is not None:
                        seconds, apart, *_ = seconds
                        torchs[name].append(apart)
                    if seconds is not None:
                        state.append(seconds)
    group = "compile, seconds of CPU in processes of their own"
    rows = [
        row_of(group, name, {"cold": cold, "from the cache": warm})
        for name, (cold, warm) in taken.items()
        if cold
    ]
    goals = {
        name: ", ".join(
            (
                CASES[name][1],
                *([ASKED_WARM_MODEL if name in MODELS else ASKED_WARM] if warm else []),
            )
        )
        for name, (_, warm) in taken.items()
    }
    wide_console().print(table(rows, "ms", "cache over cold", goals=goals))
    lines: list[Line] = [
        (f"{name}: torch exports and decomposes it", "", f"{median(result):.1f} s", "")
        for name, result in torchs.items()
        if result
    ]
    lines += [
        (f"{name}: {state}, by the clock, on all cores", goals, f"{median(result):.2f} s", "")
        for name, states in clocks.items()
        for state, result, goals in zip(CLOCKED, states, ("< 10 s", "< .5 s"), strict=True)
        if result
    ]
    raise SystemExit(publish("compile_time", rows, options, lines))


if __name__ == "__main__":
    main()
