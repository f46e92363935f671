"""What a size costs the first time: 300 distinct M through one dense layer, and models at sizes that they have not met.

    python bench/new_size.py            # five minutes
    python bench/new_size.py --quick    # one process each
    python bench/new_size.py --slow     # and torch.compile by inductor, which compiles again: minutes more

The layer: the first pass over the stream divided by the second; 1 means that a new size costs nothing. Outputs are
touched beforehand. 768×768 float32, constant B, packed where the library can. Seconds are processor time, so that
another process on the core does not look like a cost of a size.

The models: after two calls at one size, one call at each of seven others, and that call again. The figure is the
slowest of the seven first calls, in seconds on the wall: what a user waits, and an inductor that compiles in other
processes too. Every contender and repetition is a fresh process, since a library may remember sizes for as long as it
lives. One thread.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from harness import network, publish, ratio_to_best, read_options, row_of, run_case, table

from offcut.experiment.contraction import Array, build, parse_contraction
from offcut.experiment.outputs import wide_console
from offcut.experiment.peers import COMPILED
from offcut.studies.rows import Row

K = N = 768
LARGEST = 512
STREAM = 300
WARM_UP = 513
"""A size outside the stream, so that warming up teaches no size of it."""

REPETITIONS, MODEL_REPETITIONS = 5, 3
PASSES = ("second pass", "first pass", "third pass")

Layer = Callable[[Array, Array], object]
"""Called with x of shape (m, K) and out of shape (m, N); may ignore out."""


def offcut_auto(b: Array) -> Layer:
    """offcut's kernel, every size decided in generated code."""
    fixed, swept = {"k": K, "n": N}, {"m": (1, WARM_UP)}
    kernel = build(parse_contraction("mk,kn->mn"), fixed, swept).compile({"B": b})
    return lambda x, out: kernel(x, out=out)


def numpy_matmul(b: Array) -> Layer:
    """numpy's BLAS."""
    return lambda x, out: np.matmul(x, b, out=out)


def torch_linear(b: Array) -> Layer:
    """torch, eager."""
    import torch

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    weight = torch.from_numpy(np.ascontiguousarray(b.T))
    return lambda x, out: torch.nn.functional.linear(torch.from_numpy(x), weight)


def torch_onednn(b: Array) -> Layer:
    """oneDNN with a weight packed beforehand, through torch."""
    import torch

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    weight = torch.from_numpy(np.ascontiguousarray(b.T))
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    call = torch.ops.mkldnn._linear_pointwise
    return lambda x, out: call(torch.from_numpy(x), packed, None, "none", [], "")


SUBJECTS: dict[str, Callable[[Array], Layer]] = {
    "offcut auto": offcut_auto,
    "numpy": numpy_matmul,
    "torch linear": torch_linear,
    "torch oneDNN packed": torch_onednn,
}


@dataclass(frozen=True, slots=True)
class Network:
    """A model, and the sizes that it is called with.

    function   of `networks.py`, and its arguments: gives the module and what it is called with
    sizes      the first is met before anything is timed
    axes       of each argument, those that vary, by position
    """

    function: str
    arguments: tuple[int, ...]
    sizes: tuple[tuple[int, ...], ...]
    axes: tuple[dict[int, str], ...]


NETWORKS = {
    "encoder, 12 layers of 384": Network(
        "bert",
        (384,),
        ((4, 64), (1, 7), (2, 33), (3, 100), (1, 128), (5, 17), (8, 50), (2, 64)),
        ({0: "b", 1: "n"}, {0: "b", 1: "n"}),
    ),
    "ResNet-18": Network(
        "resnet18",
        (),
        (
            *((2, 224, 224), (1, 224, 224), (3, 160, 160), (1, 192, 256), (4, 128, 128)),
            *((2, 225, 97), (1, 97, 97), (5, 64, 96)),
        ),
        ({0: "b", 2: "h", 3: "w"},),
    ),
}


def by_offcut(network: Network, module: Any, first: tuple[Any, ...]) -> Callable[..., Any]:
    """`torch.compile` with offcut as the back end."""
    import torch

    compiled: Callable[..., Any] = torch.compile(module, backend="offcut", dynamic=True)
    return compiled


def by_from_torch(network: Network, module: Any, first: tuple[Any, ...]) -> Callable[..., Any]:
    """`offcut.from_torch`."""
    import offcut as oc

    return oc.from_torch(module, first)


def by_onnxruntime(network: Network, module: Any, first: tuple[Any, ...]) -> Callable[..., Any]:
    """A session of onnxruntime with its default optimizations."""
    import io

    import onnxruntime
    import torch

    file, names = io.BytesIO(), [f"x{number}" for number in range(len(first))]
    torch.onnx.export(
        module,
        first,
        file,
        input_names=names,
        dynamic_axes=dict(zip(names, network.axes, strict=True)),
        dynamo=False,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(file.getvalue(), options, ["CPUExecutionProvider"])
    taken = {one.name for one in session.get_inputs()}

    def call(*given: Any) -> Any:
        fed = {name: one.numpy() for name, one in zip(names, given, strict=True) if name in taken}
        return session.run(None, fed)

    return call


def by_torch(network: Network, module: Any, first: tuple[Any, ...]) -> Callable[..., Any]:
    """torch, eager."""
    called: Callable[..., Any] = module
    return called


def by_inductor(network: Network, module: Any, first: tuple[Any, ...]) -> Callable[..., Any]:
    """`torch.compile` as it is by default: sizes that change become symbols after the second compile."""
    import torch

    compiled: Callable[..., Any] = torch.compile(module)
    return compiled


COMPILERS: dict[str, Callable[[Network, Any, tuple[Any, ...]], Callable[..., Any]]] = {
    "offcut": by_offcut,
    "offcut, from_torch": by_from_torch,
    "onnxruntime": by_onnxruntime,
    "torch": by_torch,
    "torch.compile": by_inductor,
}
OWN = 2
"""How many of these are offcut's."""


def first_calls(title: str, compiler: str) -> dict[str, float]:
    """Seconds of the slowest first call at a new size, and of the slowest when it is called again, in this process."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    made = NETWORKS[title]
    module, feed = network(made.function, *made.arguments)
    warm, *fresh_sizes = made.sizes
    with torch.no_grad():
        call = COMPILERS[compiler](made, module, feed(*warm))
        for _ in range(2):
            call(*feed(*warm))
        firsts, seconds = list[float](), list[float]()
        for size in fresh_sizes:
            inputs = feed(*size)
            for taken in (firsts, seconds):
                start = time.perf_counter()
                call(*inputs)
                taken.append(time.perf_counter() - start)
    return {"first": max(firsts), "again": max(seconds)}


def model_rows(names: Sequence[str], repetitions: int) -> Iterator[Row]:
    """A row a model and figure, the contenders in turns."""
    title = "slowest of seven calls at new sizes, one thread, fresh processes"
    for name_of_model in NETWORKS:
        taken: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for turn in range(repetitions):
            for name, runs in taken.items():
                case = f"{name_of_model}/{name}"
                if turn == len(runs) and (found := run_case(__file__, case, turn)) is not None:
                    runs.append(found)
        for figure, label in (("first", "first call"), ("again", "the same call again")):
            times = {name: [run[figure] for run in runs] for name, runs in taken.items()}
            peers = [*taken][OWN:]
            yield row_of(title, f"{name_of_model}: {label}", times, peers=peers)


def passes(subject: str, seed: int) -> list[float]:
    """Seconds of three passes over one stream, in this process."""
    rng = np.random.default_rng(seed)
    stream = rng.permutation(np.arange(1, LARGEST + 1))[:STREAM].tolist()
    layer = SUBJECTS[subject](rng.standard_normal((K, N), dtype=np.float32))
    x = rng.standard_normal((WARM_UP, K), dtype=np.float32)
    out = np.full((WARM_UP, N), np.nan, np.float32)
    for _ in range(50):
        layer(x, out)
    seconds = []
    for _ in range(3):
        start = time.process_time()
        for m in stream:
            layer(x[:m], out[:m])
        seconds.append(time.process_time() - start)
    return seconds


def main() -> None:
    """Measure every subject in turn, and print the ratios of its passes, then the models."""
    cases = [f"{title}/{name}" for title in NETWORKS for name in COMPILERS]
    options = read_options(__doc__ or "", ("slow", "out"), (*SUBJECTS, *cases))
    if "/" in options.case:
        title, _, name = options.case.partition("/")
        print(json.dumps(first_calls(title, name)))
        return
    if options.case:
        print(json.dumps(passes(options.case, options.turn)))
        return
    repetitions = 1 if options.quick else REPETITIONS
    taken: dict[str, list[list[float]]] = {name: [] for name in SUBJECTS}
    for turn in range(repetitions):
        for name, runs in taken.items():
            if turn == len(runs) and (seconds := run_case(__file__, name, turn)) is not None:
                runs.append(seconds)
    group = f"{STREAM} distinct M in 1…{LARGEST}, {K}×{N}, fresh processes"
    rows = [
        row_of(
            group, name, {PASSES[k]: [run[at] for run in runs] for k, at in enumerate((1, 0, 2))}
        )
        for name, runs in taken.items()
        if runs
    ]
    goals = {"offcut auto": "≤ 1.03"}
    made = table(rows, "ms", "first over second", ("first pass",), goals)
    wide_console().print(made)
    thirds = [
        (f"{row.name}, third over second", "–", str(found[0]), "")
        for row in rows
        if (found := ratio_to_best(row, "third pass")) is not None
    ]
    names = [name for name in COMPILERS if options.slow or name != COMPILED]
    models = list(model_rows(names, min(repetitions, MODEL_REPETITIONS)))
    wide_console().print(table(models, "ms", "the best other over offcut", names[OWN:]))
    raise SystemExit(publish("new_size", [*rows, *models], options, thirds))


if __name__ == "__main__":
    main()
