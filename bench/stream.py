"""Models in a stream of sizes that are drawn: p50, p99, cold start and peak memory, beside onnxruntime and torch.

    python bench/stream.py            # every model: a quarter of an hour
    python bench/stream.py --quick    # two of them: a minute

Each contender has a process of its own for each model, and reads a file of ONNX (torch: the module itself). The cold start
is the time from the first import to the first result, offcut's with an empty cache and with what that left. p50 and p99 are
of the calls after it: each has sizes that are drawn, by a seed, and hardly one occurs twice. One thread. Seconds are on the
wall, contenders take turns, a figure is the median over the turns. Memory is the greatest that the process held.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = "OFFCUT_BENCH_STREAM"
"""The variable with the folder of a model's file and what it is called with."""

CALLS, QUICK_CALLS = 200, 40
TURNS, QUICK_TURNS = 3, 1
CHECKED = 5
"""How many of the last results are compared."""

Feed = Mapping[str, Any]
Model = Callable[[Feed], Any]


def by_offcut(path: Path) -> Model:
    """The file, compiled for every size."""
    import offcut as oc

    model = oc.from_onnx(path, threads=1)
    return lambda feed: next(iter(model(feed).values()))


def by_onnxruntime(path: Path) -> Model:
    """A session with the default optimizations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    return lambda feed: session.run(None, dict(feed))[0]


def by_torch(path: Path) -> Model:
    """Eager."""
    import torch

    sys.path.insert(0, str(Path(__file__).parents[1] / "studies" / "bench"))
    import networks

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    name = path.with_name("function").read_text(encoding="utf-8")
    module, _ = getattr(networks, name)()

    def call(feed: Feed) -> Any:
        results = module(*map(torch.from_numpy, feed.values()))
        return (results[0] if isinstance(results, tuple) else results).numpy()

    return call


CONTENDERS: Mapping[str, Callable[[Path], Model]] = {
    "offcut": by_offcut,
    "onnxruntime": by_onnxruntime,
    "torch": by_torch,
}


def measured(contender: str) -> dict[str, float]:
    """The figures of one contender, in this process; the last results go into the folder."""
    folder = Path(os.environ[FOLDER])
    stored = np.load(folder / "stream.npz")
    feeds: dict[int, dict[str, Any]] = {}
    for key in stored:
        number, _, name = key.partition(":")
        feeds.setdefault(int(number), {})[name] = stored[key]
    start = time.perf_counter()
    call = CONTENDERS[contender](folder / "model.onnx")
    call(feeds[0])
    cold = time.perf_counter() - start
    seconds, results = list[float](), list[Any]()
    for number in range(1, len(feeds)):
        start = time.perf_counter()
        found = call(feeds[number])
        seconds.append(time.perf_counter() - start)
        results = [*results, found][-CHECKED:]
    np.savez(folder / f"{contender}.npz", *results)
    p50, p99 = np.percentile(seconds, [50, 99])
    return {"p50": float(p50), "p99": float(p99), "cold": cold, "memory": peak_memory()}


def peak_memory() -> float:
    """The greatest memory of this process in bytes, without that of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return float(re.findall(r"VmHWM:\s*(\d+) kB", status)[0]) * 1024


def ranges() -> dict[str, tuple[tuple[int, int], ...]]:
    """The least and the greatest of the sizes that are drawn, by the title of a model of `models.toml`."""
    images, words = ((1, 4), (64, 224), (64, 224)), ((1, 8), (1, 64))
    return {
        "ResNet-18": images,
        "BERT, masked": words,
        "MobileNetV2": images,
        "GPT-2 small": words,
        "GPT-2 small, one token": ((1, 4), (1, 128)),
        "ViT-S/32": ((1, 13),),
        "LSTM 128→256": ((1, 32),),
    }


def written(
    folder: Path, model: Any, within: tuple[tuple[int, int], ...], calls: int
) -> list[dict[str, int]]:
    """Write the file of a model, and the arguments of each call; the sizes of the last of these."""
    import torch

    (folder / "model.onnx").write_bytes(model.file())
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    sizes = [
        {
            name: int(rng.integers(low, high + 1))
            for name, (low, high) in zip(model.axes, within, strict=True)
        }
        for _ in range(calls + 1)
    ]
    arrays = {
        f"{number}:{name}": one.numpy()
        for number, at in enumerate(sizes)
        for name, one in zip(model.names, model.inputs(**at), strict=False)
    }
    np.savez(folder / "stream.npz", **arrays)
    return sizes[-CHECKED:]


def wrong(folder: Path, contender: str, model: Any, sizes: list[dict[str, int]]) -> str:
    """What is wrong with the last results, against float64; empty when they are right."""
    import torch

    stored = np.load(folder / f"{contender}.npz")
    arrays = np.load(folder / "stream.npz")
    count = 1 + max(int(key.partition(":")[0]) for key in arrays)
    for number, result in zip(range(count - len(sizes), count), stored.values(), strict=True):
        row_inputs = [
            torch.from_numpy(arrays[f"{number}:{name}"])
            for name in model.names
            if f"{number}:{name}" in arrays
        ]
        exact = model.exact(row_inputs)
        mismatch = replace(exact, values=exact.values[:1]).mismatch((result,))
        if mismatch:
            return str(mismatch)
    return ""


def runs_of(folder: Path, turns: int) -> dict[str, list[dict[str, float]]]:
    """The figures of all contenders, in turn."""
    from harness import run_case

    taken: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for turn in range(turns):
        for name, runs in taken.items():
            with tempfile.TemporaryDirectory() as cache:
                place = {FOLDER: str(folder), "OFFCUT_CACHE": cache}
                result = run_case(__file__, name, turn, **place)
                if result is not None and name == "offcut":
                    again = run_case(__file__, name, turn, **place)
                    result |= {"again": again["cold"]}
            if result is not None:
                runs.append({"again": result["cold"], **result})
    return taken


def rows(
    title: str, folder: Path, model: Any, sizes: list[dict[str, int]], turns: int
) -> Iterator[Any]:
    """The table of a model: seconds, and of memory bytes."""
    from harness import row_of

    taken = runs_of(folder, turns)
    faults = {name: wrong(folder, name, model, sizes) for name, runs in taken.items() if runs}
    for what, label in (
        ("p50", "p50"),
        ("p99", "p99"),
        ("cold", "cold start"),
        ("again", "cold start, cached"),
        ("memory", "peak memory"),
    ):
        figures = {name: [run[what] for run in runs] for name, runs in taken.items()}
        yield row_of(
            f"{title}, a stream of sizes", label, figures, peers=[*taken][1:], wrong=faults
        )


def main() -> None:
    """Measure, print, write."""
    if sys.argv[1:2] and sys.argv[1] in CONTENDERS:  # without what only the tables need
        print(json.dumps(measured(sys.argv[1])))
        return
    from harness import models, publish, read_options, table

    from offcut.experiment.outputs import wide_console

    options = read_options(__doc__ or "", ("cells", "out"), tuple(CONTENDERS))
    import torch

    torch.set_grad_enabled(False)
    made: list[Any] = []
    every = [(title, sizes) for title, sizes in ranges().items() if re.search(options.cells, title)]
    known = models()
    for title, within in every[: 2 if options.quick else None]:
        with tempfile.TemporaryDirectory() as name:
            folder, model = Path(name), known[title].workload
            function = known[title].name.partition(":")[2]
            (folder / "function").write_text(function, encoding="utf-8")
            last = written(folder, model, within, QUICK_CALLS if options.quick else CALLS)
            measured_rows = list(
                rows(title, folder, model, last, QUICK_TURNS if options.quick else TURNS)
            )
        name_of_ratio = "the best other over offcut"
        wide_console().print(table(measured_rows[:-1], "ms", name_of_ratio))
        wide_console().print(table(measured_rows[-1:], "MB", name_of_ratio))
        made += measured_rows
    raise SystemExit(publish(Path(__file__).stem, made, options))


if __name__ == "__main__":
    main()
