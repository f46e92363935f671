"""The start of a process to its first result, over onnxruntime's of the same file and run; and the peak memory of import and compile.

    python bench/start.py            # three layers of an MLP, ResNet-18, and 100 MB of weights: four minutes
    python bench/start.py --quick

Each run is a process of its own, from its start to its end; contenders take turns. Of a turn processor seconds are compared, since other
processes may take the cores; a figure is the median over the turns. Bytecode of all packages is there, and modules lie in memory: the first
turn is not counted. *Empty cache* compiles the file of ONNX, each turn anew. Memory is the greatest that a process held, less that of one with as many layers of a few numbers, over the bytes of the file: the
cache is empty then. The modules and libraries that a compile needs are in both.
"""

from __future__ import annotations

import io
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TURNS, QUICK_TURNS = 9, 3
ASKED = {"offcut, a saved file": 1.3, "offcut, from the cache": 4.0}
EMPTY = "offcut, empty cache"
MEMORY_ASKED = 2.2
"""Peak memory over the bytes of a file."""


def by_onnxruntime(folder: Path) -> Any:
    """A session with the default optimizations, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    return session.run(None, {"x": np.load(folder / "x.npy")})[0]


def by_file(folder: Path) -> Any:
    """The file that `save` wrote."""
    import offcut as oc

    model: Any = oc.load(folder / "model.offcut")
    return model({"x": np.load(folder / "x.npy")})["y"]


def by_onnx(folder: Path) -> Any:
    """The file of ONNX, which the cache knows or not."""
    import offcut as oc

    return oc.from_onnx(folder / "model.onnx", threads=1)({"x": np.load(folder / "x.npy")})["y"]


def by_torch(folder: Path) -> Any:
    """The module, exported."""
    import torch

    import offcut as oc

    x = torch.from_numpy(np.load(folder / "x.npy"))
    return np.asarray(oc.from_torch(module(folder.name), (x,), threads=1)(x))


RUNS: dict[str, Callable[[Path], Any]] = {
    "onnxruntime": by_onnxruntime,
    "offcut, a saved file": by_file,
    "offcut, from the cache": by_onnx,
    EMPTY: by_onnx,
    "offcut, torch": by_torch,
    "nothing": lambda folder: np.load(folder / "x.npy"),
}


def module(name: str) -> Any:
    """Return a model of torch."""
    from harness import network

    widths = {
        "mlp": (256, 512, 512, 64),
        "large": (256, *[1024] * 24, 64),
        "small": (256, *[16] * 24, 64),
    }
    return network("layers", *widths[name])[0] if name in widths else network("resnet18")[0]


def write(folder: Path) -> None:
    """Write the file of ONNX, and what it is run with."""
    import torch

    shape = (1, 3, 224, 224) if folder.name == "resnet" else (4, 256)
    folder.mkdir()
    np.save(folder / "x.npy", np.random.default_rng(0).standard_normal(shape, dtype=np.float32))
    file, x = io.BytesIO(), torch.zeros(shape)
    names: Any = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": {"x": {0: "n"}}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module(folder.name), (x,), file, dynamo=False, **names)
    (folder / "model.onnx").write_bytes(file.getvalue())


def process(name: str, folder: Path, **environment: str) -> tuple[float, float]:
    """Return the processor seconds of a process from its start to its end, and its greatest memory in bytes.

    Raises CalledProcessError where it fails.
    """
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), **environment}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, __file__, "--run", name, str(folder)]
    finished = subprocess.run(command, env=environ, check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, json.loads(finished.stdout)


def run(name: str, folder: Path) -> None:
    """Run a contender in this process, keep its result, print its greatest memory in bytes."""
    np.save(folder / f"{re.sub('[^a-z]+', '-', name)}.npy", RUNS[name](folder))
    status = Path("/proc/self/status").read_text(encoding="ascii")  # not that of who started it
    sys.stdout.write(str(1024 * int(re.findall(r"VmHWM:\s*(\d+) kB", status)[0])))


def started(folder: Path, turns: int) -> bool:
    """Print the starts of a model; return whether one is slower than what is asked."""
    import offcut as oc

    with tempfile.TemporaryDirectory() as cache:
        process("offcut, from the cache", folder, OFFCUT_CACHE=cache)
        oc.from_onnx(folder / "model.onnx", threads=1).save(folder / "model.offcut")
        names = ("onnxruntime", "nothing", *ASKED, EMPTY)
        samples: dict[str, list[float]] = {name: [] for name in names}
        memory = dict.fromkeys(names, 0.0)
        for turn in range(turns + 1):
            for name in names:
                place = f"{cache}/{turn}" if name == EMPTY else cache
                seconds, memory[name] = process(name, folder, OFFCUT_CACHE=place)
                if turn:
                    samples[name].append(seconds)
    medians = {name: float(np.median(seconds)) for name, seconds in samples.items()}
    for name, seconds in medians.items():
        over = seconds / medians["onnxruntime"]
        target = f", asked {ASKED[name]} ×" if name in ASKED else ""
        peak_memory = f"{memory[name] / 1e6:5.0f} MB"
        print(
            f"{folder.name:8} {name:24} {seconds * 1e3:7.0f} ms  {over:5.2f} ×  {peak_memory}{target}"
        )
    expected = np.load(folder / "onnxruntime.npy")
    for name in ASKED:
        result = np.load(folder / f"{re.sub('[^a-z]+', '-', name)}.npy")
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3 * abs(expected).max())
    return any(medians[name] > most * medians["onnxruntime"] for name, most in ASKED.items())


def remembered(folder: Path) -> bool:
    """Print the peak memory of import and compile of a model; return whether one is more than what is asked."""
    size, is_more = (folder / "model.onnx").stat().st_size, False
    write(folder.with_name("small"))
    for name in ("offcut, from the cache", "offcut, torch"):
        with tempfile.TemporaryDirectory() as cache:
            small, most = (
                process(name, one, OFFCUT_CACHE=f"{cache}/{one.name}", OFFCUT_PROCESSES="1")[1]
                for one in (folder.with_name("small"), folder)
            )
        over = (most - small) / size
        print(
            f"{folder.name:8} {name.replace('from the cache', 'ONNX'):24} {most / 1e6:7.0f} MB, of a few numbers {small / 1e6:.0f} MB, "
            f"the file {size / 1e6:.0f} MB: {over:.2f} ×, asked {MEMORY_ASKED} ×"
        )
        is_more |= over > MEMORY_ASKED
    return is_more


def main() -> None:
    """Measure, print; the exit status is 1 where something is not as asked."""
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2], Path(sys.argv[3]))
        return
    from harness import read_options

    options = read_options(__doc__ or "", ("cells",))
    fails = False
    with tempfile.TemporaryDirectory() as name:
        for model, measure in (("mlp", started), ("resnet", started), ("large", remembered)):
            if not re.search(options.cells, model):
                continue
            folder = Path(name) / model
            write(folder)
            if measure is started:
                fails |= started(folder, QUICK_TURNS if options.quick else TURNS)
            else:
                fails |= remembered(folder)
    raise SystemExit(fails)


if __name__ == "__main__":
    main()
