"""How long `compile` takes: from nothing, and from the disk cache in a fresh process.

    python bench/compile_time.py

Every figure comes from a process of its own, after imports, with the proof on. A cold process starts
with an empty cache; a warm one finds what the cold one left. What packing a constant B takes is
measured by giving the compiled kernel the same constant once more, and is taken off. Seconds are on
the wall, since the disk is part of it.
"""

from __future__ import annotations

import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import offcut as oc
from offcut.experiment.contraction import build, draw, parse_contraction
from offcut.experiment.machine import describe
from offcut.experiment.options import bench_parser

K = N = 768
REPETITIONS = 7
CACHE = "OFFCUT_CACHE"
"""The environment variable that names the folder of the disk cache."""

VARIANTS = {"run-time": "B at run time", "constant": "constant B, packing apart"}


def compile_once(variant: str) -> float:
    """Seconds of one compile in this process, everything imported before, packing taken off."""
    for module in ("sympy", "islpy", "llvmlite.binding"):
        importlib.import_module(module)
    fixed = {"k": K, "n": N}
    packed = {"B": draw("kn", fixed, np.random.default_rng(0))} if variant == "constant" else {}
    computation = build(parse_contraction("mk,kn->mn"), fixed, {"m": (1, 4096)})
    compile_ = oc.compile
    start = time.perf_counter()
    kernel = compile_(
        computation.result,
        inputs=list(computation.inputs),
        constants=packed,
        target="cpu",
        threads=1,
    )
    compiled = time.perf_counter()
    if packed:
        kernel.with_constants(packed)
    return compiled - start - (time.perf_counter() - compiled)


def in_a_fresh_process(variant: str, cache: str) -> float:
    """`compile_once` in a process of its own that keeps its cache in the folder `cache`."""
    done = subprocess.run(
        [sys.executable, __file__, variant],
        env={**os.environ, CACHE: cache},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout)


def main() -> None:
    """Measure cold and warm in turns, and print both with what is asked."""
    cold: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    warm: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(REPETITIONS):
        for variant in VARIANTS:
            with tempfile.TemporaryDirectory() as cache:
                cold[variant].append(in_a_fresh_process(variant, cache))
                warm[variant].append(in_a_fresh_process(variant, cache))
    print(f"dense {K}×{N}, m in 1…4096; medians of {REPETITIONS} processes (least–most), in ms")
    for state, runs, asked in (("cold", cold, 500), ("from the cache", warm, 10)):
        for variant, label in VARIANTS.items():
            taken = [seconds * 1e3 for seconds in runs[variant]]
            middle = f"{statistics.median(taken):8.1f} ({min(taken):.1f}–{max(taken):.1f})"
            print(f"{state:16}{label:30}{middle:26}asked < {asked}")
    print(f"machine: {describe()}")


if __name__ == "__main__":
    parser = bench_parser(__doc__ or "")
    parser.add_argument(
        "variant", nargs="?", metavar="VARIANT", choices=VARIANTS, help="compile it here, once"
    )
    variant = parser.parse_args().variant
    if variant is None:
        main()
    else:
        print(compile_once(variant))
